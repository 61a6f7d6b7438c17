"""From an ONNX graph to affine expressions: constants folded, nodes applied in the graph's own (topological) order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from encoders.errors import ModelError
from encoders.exact.affine import exact
from encoders.onnx.file import LogitsModel, attributes, node_name, opset, producers
from encoders.onnx.operators import SUPPORTED
from encoders.onnx.operators.pipelines import KEEP_RAW, TAKE_WHOLE
from encoders.onnx.operators.shapes import BATCH
from encoders.onnx.patterns import MADE, with_curves
from encoders.onnx.tensor import Constant, ModelInputs, NeuronSource, OnnxNode, Tensor, finite, graph_inputs

MOVES = {"Abs", "Cast", "Concat", "Constant", "ConstantOfShape", "Dropout", "Equal", "Expand", "Flatten", "Gather",
         "Identity", "Max", "Min", "Mod", "Pad", "Range", "Reshape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose",
         "Unsqueeze", "Where"}
"""Operators that do not round constants."""

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Div": np.true_divide, "MatMul": np.matmul, "Mul": np.multiply, "Neg": np.negative,
    "Sub": np.subtract}
"""Operators that are computed on constants in rationals, and rounded once."""

ROUNDED = {"Exp", "Gemm", "Log", "Pow", "Reciprocal", "ReduceL2", "ReduceMean", "ReduceSum", "Sqrt"}
"""Operators computed on constants as a float32 runtime computes them; the node is reported as rounded."""


@dataclass(kw_only=True, eq=False)
class Reading:
    """The state of reading a graph.

    batch: fixed batch size of the inputs, or None.   constants, tensors: by name.   sized: constants that hold the open batch size.
    sources: the inputs (number 0) and all activations.   rewritten: results of nodes that became several activations, by name.
    rounded: nodes whose constants were rounded.   folded: numbers in all constants that were computed.
    """

    path: Path
    model: onnx.ModelProto
    inputs: ModelInputs
    batch: int | None
    opset: int
    constants: dict[str, Constant] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    sized: set[str] = field(default_factory=set)
    sources: list[NeuronSource] = field(default_factory=list)
    rewritten: dict[str, Tensor] = field(default_factory=dict)
    rounded: list[str] = field(default_factory=list)
    folded: int = 0


def read_graph(path: Path, logits: LogitsModel) -> tuple[Reading, Tensor]:
    """Return the sources of a logits model, and its logits as affine expressions. Raises ModelError for what cannot be read."""
    feeds, batch = graph_inputs(path, logits.model)
    inputs = ModelInputs(path=path, feeds=feeds, number=np.full(sum(len(f.start) for f in feeds), -1))
    reading = Reading(path=path, model=logits.model, inputs=inputs, batch=batch, opset=opset(logits.model))
    reading.sources.append(NeuronSource(node="input", before=None, after=None, level=0, pre=None, slope=np.ones(0)))
    reading.tensors.update({feed.name: inputs.tensor(feed) for feed in feeds})
    reading.constants.update({i.name: numpy_helper.to_array(i) for i in logits.model.graph.initializer})
    for node in with_curves(logits.model, logits.logits).graph.node:
        _apply(reading, node)
    if logits.logits not in reading.tensors:
        names = ", ".join(repr(feed.name) for feed in feeds)
        raise ModelError(path, f"the output {logits.logits!r} is a constant or does not depend on the input {names}")
    final = reading.tensors[logits.logits]
    if final.whole:
        end = producers(logits.model).get(logits.logits)
        raise ModelError(path, "ends with integers; supported are float32 and float64 outputs (logits or probabilities)",
                         node=node_name(end) if end else logits.logits, op=end.op_type if end else "input")
    return reading, inputs.numbers(final)


def _apply(reading: Reading, proto: onnx.NodeProto) -> None:
    name, op = node_name(proto), proto.op_type
    if proto.domain not in ("", "ai.onnx", "ai.onnx.ml"):
        op = f"{proto.domain}.{op}"
    if op == "Shape" and proto.input[0] in reading.tensors:
        _measure(reading, proto)
        return
    if op == "ConstantOfShape" and proto.input[0] in reading.sized:
        _fill(reading, proto)
        return
    if all(i == "" or i in reading.constants for i in proto.input):
        _fold(reading, proto)
        return
    if op not in SUPPORTED:
        raise ModelError(reading.path, refusal(op, SUPPORTED), node=name, op=op)
    inputs = tuple(_operand(reading, i, op) if i else None for i in proto.input)
    node = OnnxNode(path=reading.path, name=name, op=op, opset=reading.opset, batch=reading.batch,
                attributes=attributes(proto), input_names=tuple(proto.input), output_names=tuple(proto.output),
                inputs=inputs, sources=reading.sources, columns=reading.inputs)
    if op not in TAKE_WHOLE and any(isinstance(i, Tensor) and i.whole for i in inputs):
        raise node.error("computes with integers, whose arithmetic rounds and wraps; cast them to float32 first")
    for input_name, value in zip(proto.input, inputs, strict=True):
        if input_name and value is None:
            raise node.error(f"its input {input_name!r} cannot be followed")
        if input_name in reading.sized and op != "Reshape":
            raise node.error("computes with the size of the batch; supported is that size in a Reshape only")
    count = len(reading.sources)
    try:
        results = SUPPORTED[op](node)
    except (ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, MemoryError, TypeError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), "")    # a damaged file may hold any attributes on any shapes
        raise node.error(f"its inputs and attributes do not fit each other ({type(error).__name__}: {reason})") from error
    if len(reading.sources) > count and any(isinstance(i, Tensor) and 0 in i.shape for i in inputs):
        raise node.error("acts on an empty tensor; export the model without it")
    clean = all(i.is_float for i in inputs if isinstance(i, Tensor))
    for output, result in zip(proto.output, [results] if isinstance(results, Tensor) else results, strict=False):
        if result is not None:
            inexact = (*result.inexact, name) if clean and not result.is_float else result.inexact
            reading.tensors[output] = replace(result, inexact=inexact)
            if any(source.after is None for source in reading.sources[count:]) and not output.startswith(MADE):
                reading.rewritten[output] = reading.tensors[output]


def _operand(reading: Reading, name: str, op: str) -> Tensor | Constant | None:
    """Return an input of a node. Raw columns stay raw for operators that only move or encode them; else they become numbers."""
    if name in reading.tensors and op not in KEEP_RAW:
        reading.tensors[name] = reading.inputs.numbers(reading.tensors[name])
    return reading.tensors.get(name, reading.constants.get(name))


def _measure(reading: Reading, proto: onnx.NodeProto) -> None:
    """Store the shape of a tensor as a constant, with a mark for an open batch size."""
    shape = (BATCH if reading.batch is None else reading.batch, *reading.tensors[proto.input[0]].shape)
    values = attributes(proto)
    start, end = values.get("start", 0), values.get("end", len(shape))
    if not (isinstance(start, int) and isinstance(end, int)):
        raise ModelError(reading.path, "start and end must be whole numbers", node=node_name(proto), op="Shape")
    reading.constants[proto.output[0]] = np.array(shape[start:end], dtype=np.int64)
    if BATCH in shape[start:end]:
        reading.sized.add(proto.output[0])


def _fill(reading: Reading, proto: onnx.NodeProto) -> None:
    """Store a tensor with the same number in every row of the batch, which depends on nothing."""
    batch, *shape = reading.constants[proto.input[0]].tolist()
    value = next((numpy_helper.to_array(a.t) for a in proto.attribute if a.name == "value"), np.zeros(1, dtype=np.float32))
    if batch != BATCH or BATCH in shape or not all(0 < d <= MOST for d in shape) or math.prod(shape) > MOST:
        raise ModelError(reading.path, f"makes numbers of shape {[batch, *shape]}, which does not keep axis 0 as the batch",
                         node=node_name(proto), op=proto.op_type)
    number = finite(reading.path, proto.output[0], value).item()
    reading.tensors[proto.output[0]] = Tensor(shape=tuple(shape), terms={}, const=exact(np.full(math.prod(shape), number)))


def _fold(reading: Reading, proto: onnx.NodeProto) -> None:
    """Compute a node whose inputs are all constants."""
    name, op = node_name(proto), proto.op_type
    values = [reading.constants[i] for i in proto.input if i]
    size = size_of(op, values, attributes(proto))
    reading.folded += RATIONAL * size if op in ARITHMETIC else size
    if size > MOST or reading.folded > IN_ALL:
        raise ModelError(reading.path, f"computes {size:,} constant numbers; at most {MOST:,} a node and {IN_ALL:,} in all are "
                                       "computed here: export the model with its constants folded", node=name, op=op)
    floating = [v.dtype in (np.dtype(np.float32), np.dtype(np.float64)) for v in values]
    if op in ARITHMETIC and values and all(floating) and all(np.isfinite(v).all() for v in values):
        if op == "Div" and not all(v.all() for v in values[1:]):
            raise ModelError(reading.path, "divides a constant by zero", node=name, op=op)
        try:
            results = [np.asarray(ARITHMETIC[op](*(exact(v).as_rational() for v in values)), dtype=object)]
        except (ArithmeticError, TypeError, ValueError) as error:   # inputs of other shapes, or another number of inputs
            shapes = ", ".join(map(str, (v.shape for v in values[:4])))
            raise ModelError(reading.path, f"computes with constants of shapes {shapes}, which do not fit each other",
                             node=name, op=op) from error
        rounded, is_exact = exact(results[0]).rounded()
        results = [rounded]
        if not is_exact:
            reading.rounded.append(name)
    elif proto.domain in ("", "ai.onnx") and op in MOVES | ROUNDED | set(ARITHMETIC):
        results = _evaluate(reading, proto)
        narrowed = op == "Cast" and not _same_numbers(values[0], results[0])
        if narrowed or op in ROUNDED or (op in ARITHMETIC and any(floating)):
            reading.rounded.append(name)
    else:
        raise ModelError(reading.path, f"operator {op} on constants is not supported; supported are "
                                       f"{', '.join(sorted(MOVES | ROUNDED | set(ARITHMETIC)))}", node=name, op=op)
    sized = any(i in reading.sized for i in proto.input)
    if sized and op not in MOVES:
        raise ModelError(reading.path, "computes with the size of the batch; supported is that size in a Reshape only",
                         node=name, op=op)
    for output, result in zip(proto.output, results, strict=False):
        reading.constants[output] = result
        if sized and BATCH in result:
            reading.sized.add(output)


def _same_numbers(before: Constant, after: Constant) -> bool:
    return bool(np.array_equal(before.astype(np.float64), after.astype(np.float64), equal_nan=True))


def _evaluate(reading: Reading, proto: onnx.NodeProto) -> list[Constant]:
    inputs = {i: reading.constants[i] for i in proto.input if i}
    infos = [helper.make_tensor_value_info(i, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for i, v in inputs.items()]
    graph = helper.make_graph([proto], "constant", infos, [onnx.ValueInfoProto(name=o) for o in proto.output if o])
    model = helper.make_model(graph, opset_imports=reading.model.opset_import)
    try:
        return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, inputs)]
    except Exception as error:      # the reference evaluator raises whatever NumPy does
        name = node_name(proto)
        raise ModelError(reading.path, f"cannot be computed: {error}", node=name, op=proto.op_type) from error


MOST = 2**24
"""The most numbers in one computed constant."""
IN_ALL = 2**26
"""The most numbers in all computed constants of a graph; one that is computed in rationals counts as RATIONAL."""
RATIONAL = 8


def size_of(op: str, values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    """Return an upper bound of a node's result in numbers; for invalid inputs any number, as computing it raises the error."""
    try:
        return GROWING.get(op, _elementwise)(values, attributes)
    except (ArithmeticError, IndexError, TypeError, ValueError):
        return 0


def _numbers(value: Constant) -> list[int]:
    """Return the values as sizes of axes, none of them negative."""
    return [max(0, int(v)) for v in np.asarray(value).ravel().tolist()]


def _elementwise(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    """Return the size by broadcasting, which also covers operators that only rearrange one input."""
    rank = max((v.ndim for v in values), default=0)
    shapes = [(1,) * (rank - v.ndim) + v.shape for v in values]
    return math.prod(max(axis) for axis in zip(*shapes, strict=True))


def _moved(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    return values[0].size if values else 0


def _expand(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    target = _numbers(values[1])
    rank = max(values[0].ndim, len(target))
    shapes = [[1] * (rank - len(shape)) + shape for shape in (list(values[0].shape), target)]
    return math.prod(max(axis) for axis in zip(*shapes, strict=True))


def _gather(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    axis = attributes.get("axis", 0)
    assert isinstance(axis, int)
    return int(values[0].size // max(1, values[0].shape[axis]) * values[1].size)


def _product(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    """Return the size of products of matrices, perhaps transposed (then by the longer axis), perhaps many of them."""
    left, right = (v.reshape(1, -1) if v.ndim < 2 else v for v in values[:2])
    sides = max(left.shape[-2:]) if attributes.get("transA") else left.shape[-2], max(right.shape[-2:])
    return int(math.prod(sides)) * max(math.prod(left.shape[:-2]), 1) * max(math.prod(right.shape[:-2]), 1)


def _pad(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    pads = _numbers(values[1]) if len(values) > 1 else _numbers(np.array(attributes.get("pads", ())))
    return math.prod(length + sum(pads) for length in values[0].shape)


def _range(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    start, limit, step = (float(v) for v in values)
    return max(0, math.ceil((limit - start) / step))


GROWING: dict[str, Callable[[Sequence[Constant], Mapping[str, object]], int]] = {
    **dict.fromkeys(("Cast", "Dropout", "Flatten", "Identity", "ReduceMean", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze",
                     "Transpose", "Unsqueeze"), _moved),
    "Concat": lambda values, _: sum(v.size for v in values),
    "ConstantOfShape": lambda values, _: math.prod(_numbers(values[0])),
    "Expand": _expand, "Gather": _gather, "Gemm": _product, "MatMul": _product, "Pad": _pad, "Range": _range,
    "Tile": lambda values, _: values[0].size * math.prod(_numbers(values[1])),
}
"""Operators whose result is not bounded by broadcasting."""


_RECURRENT = "a recurrent network is not one chain of layers; unroll it, or use a feed-forward network"
_CURVED = "it is neither piecewise linear nor a curve that is bounded here; train with ReLU, GELU, SiLU, ELU or Softplus instead"
_JUMPS = "it jumps, and a network of continuous layers has no jumps; leave it out, or export the model behind it"
_ATTENTION = "it multiplies the data with itself; use a network of layers one after the other, without gates and attention"
_NORM = ("it divides each row by its own deviation, which is not bounded here; use BatchNormalization, whose numbers are fixed "
         "once the network is trained, or none: inputs that are scaled need none")
_WHY = {
    "TreeEnsembleClassifier": "a classifier of trees is read only at the end of the graph, by its scores",
    "SVMClassifier": "kernels are not piecewise linear; use a linear model or a network",
    "SVMRegressor": "kernels are not piecewise linear; use a linear model or a network",
    "LSTM": _RECURRENT, "GRU": _RECURRENT, "RNN": _RECURRENT, "Loop": _RECURRENT, "Scan": _RECURRENT,
    "If": "branches of a graph are not followed; export the model for inference, without control flow",
    "Attention": _ATTENTION, "MultiHeadAttention": _ATTENTION, "Einsum": _ATTENTION, "Erf": _CURVED, "Softsign": _CURVED,
    "Exp": _CURVED, "Log": _CURVED, "Sqrt": _CURVED, "Reciprocal": _CURVED, "Sin": _CURVED, "Cos": _CURVED,
    "ThresholdedRelu": _JUMPS, "Binarizer": _JUMPS, "Floor": _JUMPS, "Ceil": _JUMPS, "Round": _JUMPS, "Sign": _JUMPS,
    "ArgMax": _JUMPS, "ArgMin": _JUMPS, "TopK": _JUMPS, "Greater": _JUMPS, "Less": _JUMPS, "Where": _JUMPS, "Equal": _JUMPS,
    "Softmax": "it is supported only at the end, as the model's probabilities; attention and voting classifiers have it in the "
               "middle: read the tensor in front of it with output=...",
    "LogSoftmax": "it is supported only at the end, as the model's probabilities",
    "Normalizer": "it divides each row by its own norm, which is not piecewise linear; use StandardScaler or MinMaxScaler",
    "LayerNormalization": _NORM, "InstanceNormalization": _NORM, "GroupNormalization": _NORM, "RMSNormalization": _NORM,
    "MeanVarianceNormalization": _NORM,
    "LpNormalization": "it divides each row by its own norm, which is not piecewise linear; leave it out",
    "SimpleImputer": "it replaces missing values, and proofs are about rows without any; fill them in before the model",
    "ReduceLogSumExp": "skl2onnx ends GaussianNB with it: pass the fitted object to vf.read, which converts it in another way",
    "ConvTranspose": "upsampling is not read; networks that decide on rows or small images need none",
}


def refusal(op: str, supported: Iterable[str]) -> str:
    """Return the message about an operator that is not supported."""
    why = f" ({_WHY[op]})" if op in _WHY else ""
    return (f"operator {op} is not supported here{why}; supported are {', '.join(sorted(supported))}; at the end Sigmoid, Softmax, "
            "LogSoftmax")
