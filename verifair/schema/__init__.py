"""The description of a network's inputs: features, constraints, rows as network inputs, TOML files, inference."""
