"""The feasibility graph: edges, weights, reachability."""
