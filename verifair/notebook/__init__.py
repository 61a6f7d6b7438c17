"""What a notebook shows of an object: one line, a table, a picture."""
