"""Branch-and-bound over the signs of neurons, and whose turn it is beside boxes."""
