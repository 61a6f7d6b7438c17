"""Side-by-side measurements. `python -m benchmarks.run` runs them all; README.md says what each shows."""
