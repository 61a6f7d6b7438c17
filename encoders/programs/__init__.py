"""Linear, mixed-integer and SMT programs, built from arrays."""
