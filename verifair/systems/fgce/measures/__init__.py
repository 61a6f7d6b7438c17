"""Measures of each group's burden: coverage curves, their areas, and attributes that have to change."""
