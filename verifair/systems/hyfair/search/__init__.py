"""Search for clusters of discrimination (HyFair, Algorithm 1). Findings, never proofs."""
