"""The checker's bounds of tree ensembles, of means of functions of their sums, and of decisions among several classes."""
