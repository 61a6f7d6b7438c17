"""Intervals and lines around smooth neurons."""
