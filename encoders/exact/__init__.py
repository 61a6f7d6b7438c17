"""Arithmetic that does not round: dyadic numbers, rationals over a common denominator, affine maps, balls."""
