"""CST: counterfactual situation testing, measured. Had the group been another, would people like that fare better?"""
