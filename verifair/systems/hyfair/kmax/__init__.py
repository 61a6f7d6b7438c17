"""kmax: into how many outcome buckets one person can fall (HyFair, Algorithm 1), and a certified bound."""
