"""Branch and bound over the signs of neurons, and the rule for its turns with the search over boxes."""
