"""One check for each kind of certificate."""
