"""Schemas drafted from a table and a model: facts are filled in, and open decisions are noted."""
