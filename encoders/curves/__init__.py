"""Smooth activations: their kinds, definitions, and values in float64."""
