"""What each ONNX operator does to affine expressions: one file per family of operators."""
