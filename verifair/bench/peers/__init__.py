"""Other verifiers, asked the same decisions; their answers count as a solver's claims."""
