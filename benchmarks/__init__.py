"""Side-by-side measurements. `python -m benchmarks.run` runs them all; see README.md for what each shows."""
