"""CST: counterfactual situation testing, measured."""
