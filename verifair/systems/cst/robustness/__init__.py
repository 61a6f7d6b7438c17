"""How wrong the causal model may be: sensitivity, and decisions certified for whole intervals of coefficients."""
