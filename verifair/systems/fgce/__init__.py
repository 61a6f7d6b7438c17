"""FGCE: group counterfactuals on a feasibility graph, and the burden of each group."""
