"""Exchange of questions with other verifiers, in VNN-LIB and ONNX."""

MAX_QUERIES = 1000
"""Pieces of one export, unless asked for more: each becomes a file."""
