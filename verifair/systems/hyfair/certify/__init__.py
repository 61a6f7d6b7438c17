"""certify: individual fairness in a box or in the whole domain, by proofs, counterexamples and bounds."""
