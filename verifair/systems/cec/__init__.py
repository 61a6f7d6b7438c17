"""CEC: counterfactual explanation consistency, measured."""
