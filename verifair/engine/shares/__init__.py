"""Certified shares: the share of a box that is treated alike, bracketed cell by cell."""
