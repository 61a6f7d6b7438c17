"""Schemas drafted from a table and a model: what can be seen is filled in, what has to be decided is noted."""
