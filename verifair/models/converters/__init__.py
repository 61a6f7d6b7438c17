"""Fitted objects as ONNX: a module for each kind of object, and one for the missing values that it takes for a category."""
