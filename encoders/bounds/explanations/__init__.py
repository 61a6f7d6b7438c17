"""Bounds of integrated gradients, and of how far two explanations can differ."""
