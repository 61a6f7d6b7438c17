"""Five published systems, one folder for each paper. Each of HyFair's questions has a folder and a verb of its own."""
