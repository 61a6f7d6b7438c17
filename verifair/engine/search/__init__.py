"""Branch-and-bound over boxes of inputs and over signs of neurons."""
