"""Five published systems, one folder a paper."""
