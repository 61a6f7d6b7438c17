"""How hard a group is to help: coverage curves, their areas, and which attributes have to change."""
