"""HyFair: individual fairness certified over whole domains, clusters of discrimination searched, explained, mitigated."""
