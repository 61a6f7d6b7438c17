"""Display of results in notebooks: a line, a table, a picture."""
