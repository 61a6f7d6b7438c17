"""The ONNX operators on affine expressions: one function for each operator; `SUPPORTED` is the table of them."""

from encoders.onnx.operators.activations import ACTIVATIONS
from encoders.onnx.operators.affine import AFFINE_OPERATORS
from encoders.onnx.operators.convolution import CONVOLUTION_OPERATORS
from encoders.onnx.operators.pipelines import ML_OPERATORS
from encoders.onnx.operators.products import PRODUCTS
from encoders.onnx.operators.shapes import SHAPE_OPERATORS
from encoders.onnx.operators.trees import TREE_OPERATORS

SUPPORTED = SHAPE_OPERATORS | ML_OPERATORS | CONVOLUTION_OPERATORS | ACTIVATIONS | AFFINE_OPERATORS | PRODUCTS | TREE_OPERATORS
