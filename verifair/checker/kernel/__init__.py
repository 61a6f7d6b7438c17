"""The bounds, leaves and trees that every kind of check uses."""
