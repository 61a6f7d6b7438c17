"""Branch-and-bound for tree ensembles: boxes of cells, cut at thresholds."""
