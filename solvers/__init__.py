"""Rows and columns of verifair: one Program, one Outcome, one file per backend. Knows nothing of networks."""
