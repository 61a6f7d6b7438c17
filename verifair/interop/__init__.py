"""Other verifiers: questions written for them (VNN-LIB and ONNX), and their questions answered here."""
