"""CEC: counterfactual explanation consistency, measured. Same decision, for the same reasons?"""
