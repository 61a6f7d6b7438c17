"""Arrays of verifair: the network, the numeric problem, rigorous bounds, and how they become programs. Imports solvers only."""
