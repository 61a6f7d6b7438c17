"""certify: is anybody treated differently when protected values change, in a box or anywhere? Proofs, counterexamples, bounds."""
