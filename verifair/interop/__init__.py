"""Other verifiers: questions written for them (VNN-LIB and ONNX), and their questions answered here."""

MOST = 1000
"""Pieces of one export, unless asked for more: each becomes a file."""
