"""ONNX files as networks: read, turned into affine expressions, and checked against onnxruntime."""
