"""One analysis a file: what the audit asks of each of the five systems, and what its section shows."""
