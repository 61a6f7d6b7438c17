"""The largest probability or logit gap over a box, bounded from both sides."""
