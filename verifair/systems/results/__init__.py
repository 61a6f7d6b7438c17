"""Results of systems: typed results, statements for a page, numbers and people in words, files and pictures."""
