"""Five published systems, one folder a paper. HyFair's four questions are a folder and a verb each."""
