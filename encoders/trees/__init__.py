"""Tree ensembles: the second kind of model, its trees for two copies at once, and bounds of them over boxes."""
