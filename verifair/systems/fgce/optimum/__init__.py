"""Optimal counterfactuals: k-center and maximum coverage."""
