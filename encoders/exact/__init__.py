"""Arithmetic that does not round: dyadic numbers, affine maps over rationals, balls."""
