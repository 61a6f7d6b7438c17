"""Other verifiers, asked the same decisions: what they say is weighed as a solver's word."""
