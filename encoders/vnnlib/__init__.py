"""VNN-LIB text as queries over exact numbers, and queries as VNN-LIB text."""
