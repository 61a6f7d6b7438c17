"""FGCE: group counterfactuals on a feasibility graph, with proven optima, and the burden they measure."""
