"""The models that people have: fitted objects of other packages become ONNX, and ONNX becomes a network. Nothing is unpickled."""
