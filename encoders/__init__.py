"""Arrays: the network, the numeric problem, rigorous bounds, and how they become programs. Imports go to solvers only."""
