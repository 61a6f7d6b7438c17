"""The search for proofs and counterexamples."""
