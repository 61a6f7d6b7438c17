"""The arrays of verifair: models, numeric problems, rigorous bounds, and their encodings as programs. Imports solvers only."""
