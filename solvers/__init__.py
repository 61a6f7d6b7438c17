"""Rows and columns: one Program, one Outcome, one file per backend. Knows nothing of networks."""
