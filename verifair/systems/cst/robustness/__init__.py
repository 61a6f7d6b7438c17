"""Robustness to errors of the causal model: sensitivity, and decisions certified for whole intervals of coefficients."""
