"""Batched, outward-rounded bounds of two copies of a network over boxes of their shared inputs."""
