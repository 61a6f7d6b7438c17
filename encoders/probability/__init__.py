"""Probabilities that models show, as logistic functions or shares of votes, and exact gaps between them."""
