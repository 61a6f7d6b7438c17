"""Rules that say where a network discriminates (HyFair, Algorithm 2)."""
