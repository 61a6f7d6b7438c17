"""Smooth activations: which there are, what each of them is, and their values in float64."""
