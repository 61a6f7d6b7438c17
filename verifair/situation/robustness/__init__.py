"""How wrong may the causal model be: claims under other coefficients, and decisions certified for all of an interval."""
