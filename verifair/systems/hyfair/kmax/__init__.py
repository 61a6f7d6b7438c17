"""kmax: the largest number of outcome buckets for the variants of one person (HyFair, Algorithm 1), and a certified bound."""
