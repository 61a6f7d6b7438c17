"""Structural causal models: the graph, its mechanisms, their fits, and the counterfactuals of rows."""
