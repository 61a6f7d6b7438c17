"""Bounds of integrated gradients, and of the difference of two explanations."""
