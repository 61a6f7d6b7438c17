"""Search for clusters of discrimination (HyFair, Algorithm 1): findings, never proofs."""
