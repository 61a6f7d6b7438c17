"""The k nearest rows of a group around a person: distances, the search, and what is counted of the rows found."""
