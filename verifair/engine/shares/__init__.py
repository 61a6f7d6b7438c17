"""Certified shares: which part of a box is treated alike, bracketed cell by cell."""
