"""Structural causal models: the graph, its mechanisms, their fits, and counterfactuals of rows."""
