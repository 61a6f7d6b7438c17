"""One file per comparison; each has `run(folder) -> Table`, prints what it measured and writes it as CSV."""
