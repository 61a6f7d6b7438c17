"""Rules that describe where a network discriminates (HyFair, Algorithm 2)."""
