"""Curves that exporters write as several nodes become one node again: a product of the data with a function of the data.

    x sigmoid(c x)                              Swish, of c x, over c               torch's SiLU
    x tanh(softplus(x))                         Mish
    x (1 + erf(x / sqrt 2))                     Gelu, twice                         torch before opset 20
    x (1 + tanh(sqrt(2 / pi) (x + k x^3)))      Gelu by tanh, twice; k = 0.044715
    x hard_sigmoid(x), x clip(x + 3, 0, 6)      HardSwish, and six times HardSwish

with any constant factors at each place. Constants within 1e-6 of sqrt 2, sqrt(2 / pi), 0.044715, 1 / 6 are read as these numbers.
A normalisation of rows, and attention, that are written as several nodes become one node, too, so that they are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from encoders.onnx.file import attributes, drop_nodes, node_name, producers

MADE = "verifair:"
"""Prefix of the names of tensors that the stored graph does not hold."""
NEAR = 1e-6
Factor = tuple[str, str]
"""Mul or Div, and the name of a constant with one number."""
INVERSE = {"Mul": "Div", "Div": "Mul"}


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A function of the data whose product with `base` is  times * T(stretched base), unstretched, T the operator's function."""

    base: str
    operator: onnx.NodeProto
    stretch: tuple[Factor, ...] = ()
    times: float = 1.0


def with_curves(model: onnx.ModelProto, output: str) -> onnx.ModelProto:
    """Return the model with such products replaced, or itself if there are none."""
    graph = _Graph(model)
    curves = [graph.curve(node) for node in model.graph.node]
    if not any(curves):
        return model
    nodes = [n for node, replacement in zip(model.graph.node, curves, strict=True) for n in replacement or [node]]
    nodes.sort(key=lambda node: node.op_type != "Attention")  # refused first: nodes before it would be refused for their axes
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    drop_nodes(result.graph, [output])
    return result


class _Graph:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.by_output = producers(model)
        stored_names = {i.name for i in model.graph.initializer}
        self.data = next((i.name for i in model.graph.input if i.name not in stored_names), "")
        self.numbers: dict[str, float] = {}
        stored = [(i.name, i) for i in model.graph.initializer]
        for node in model.graph.node:
            stored += [(node.output[0], a.t) for a in node.attribute if node.op_type == "Constant" and a.name == "value"]
        for name, tensor in stored:
            if math.prod(tensor.dims) == 1 and tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
                self.numbers[name] = float(numpy_helper.to_array(tensor).item())

    def curve(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes that replace a node; none for most."""
        if node.op_type == "Div" and (operator := self.normalised(node)) is not None:
            return [helper.make_node(operator, list(node.input[:1]), list(node.output), name=node_name(node))]
        if node.op_type == "MatMul" and self.inside(node.input[0], "Softmax") is not None:
            return [helper.make_node("Attention", [self.data], list(node.output), name=node_name(node))]
        if node.op_type != "Mul" or any(name in self.numbers for name in node.input):
            return []
        for first, second in (node.input, reversed(node.input)):
            factors, base = self.scaled(first)
            second_factors, inner = self.scaled(second)
            gate = self.gate(inner)
            if gate is not None and gate.base == base:
                inverse = [(INVERSE[operator], name) for operator, name in gate.stretch]
                return list(_nodes(node, gate, [*factors, *second_factors, *inverse]))
        return []

    def scaled(self, name: str) -> tuple[tuple[Factor, ...], str]:
        """Return the constant factors of a tensor, and the tensor that they multiply."""
        factors: list[Factor] = []
        while (node := self.by_output.get(name)) is not None and node.op_type in INVERSE:
            constants = [k for k, i in enumerate(node.input) if i in self.numbers]
            if len(constants) != 1 or (node.op_type == "Div" and constants == [0]) or not self.numbers[node.input[constants[0]]]:
                break
            factors.append((node.op_type, node.input[constants[0]]))
            name = node.input[1 - constants[0]]
        return tuple(reversed(factors)), name

    def of(self, factors: tuple[Factor, ...]) -> float:
        """Return the product of the factors."""
        values = [self.numbers[name] if operator == "Mul" else 1 / self.numbers[name] for operator, name in factors]
        return math.prod(values)

    def gate(self, name: str) -> Gate | None:
        """Return the function of the data that a tensor is, if it is one of those above."""
        node = self.by_output.get(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            return None
        match node.op_type:
            case "Sigmoid":
                stretch, base = self.scaled(node.input[0])
                return Gate(base=base, stretch=stretch, operator=helper.make_node("Swish", [], []))
            case "HardSigmoid":
                values = attributes(node)
                if _near(values.get("alpha", 0.2), 1 / 6) and _near(values.get("beta", 0.5), 0.5):
                    return Gate(base=node.input[0], operator=helper.make_node("HardSwish", [], []))
            case "Clip":
                shifted, values = self.plus(node.input[0], 3.0), attributes(node)
                ends: list[object] = [self.numbers.get(i) for i in node.input[1:]] or [values.get("min"), values.get("max")]
                if shifted is not None and ends == [0.0, 6.0]:
                    return Gate(base=shifted, operator=helper.make_node("HardSwish", [], []), times=6.0)
            case "Tanh":
                soft = self.inside(node.input[0], "Softplus")
                if soft is None and (log := self.inside(node.input[0], "Log")) is not None:
                    soft = self.inside(self.plus(log, 1.0), "Exp")
                return None if soft is None else Gate(base=soft, operator=helper.make_node("Mish", [], []))
            case "Add":
                return self.by_error_function(self.plus(name, 1.0))
        return None

    def by_error_function(self, name: str | None) -> Gate | None:
        """Return the gate 1 + erf or 1 + tanh of a tensor, which is twice that of GELU."""
        if (argument := self.inside(name, "Erf")) is not None:
            factors, base = self.scaled(argument)
            if _near(self.of(factors), math.sqrt(0.5)):
                return Gate(base=base, operator=helper.make_node("Gelu", [], []), times=2.0)
        if (argument := self.inside(name, "Tanh")) is not None:
            factors, total = self.scaled(argument)
            node = self.by_output.get(total)
            if node is not None and node.op_type == "Add" and _near(self.of(factors), math.sqrt(2 / math.pi)):
                for base, other in (node.input, reversed(node.input)):
                    cubed, power = self.scaled(other)
                    if _near(self.of(cubed), 0.044715) and self.cube(power) == base:
                        return Gate(base=base, operator=helper.make_node("Gelu", [], [], approximate="tanh"), times=2.0)
        return None

    def normalised(self, node: onnx.NodeProto) -> str | None:
        """Return the operator whose last node is the division x / sqrt(mean(x^2) + epsilon)."""
        mean = self.by_output.get(self.inside(node.input[1], "Sqrt") or "")
        squares = next((s for name in mean.input if (s := self.inside(name, "ReduceMean"))), None) if mean is not None else None
        square = self.by_output.get(squares or "")
        if square is None or square.op_type not in ("Pow", "Mul") or square.input[0] != node.input[0]:
            return None
        return "LayerNormalization" if self.inside(node.input[0], "Sub") is not None else "RMSNormalization"

    def inside(self, name: str | None, operator: str) -> str | None:
        """Return the input of the node that computes a tensor, if the node is of this operator."""
        node = self.by_output.get(name or "")
        return node.input[0] if node is not None and node.op_type == operator else None

    def plus(self, name: str, number: float) -> str | None:
        """Return the tensor x if a tensor is x plus this number."""
        node = self.by_output.get(name)
        if node is None or node.op_type != "Add":
            return None
        return next((b for a, b in (node.input, reversed(node.input)) if self.numbers.get(a) == number), None)

    def cube(self, name: str) -> str | None:
        """Return the tensor x if a tensor is x^3."""
        node = self.by_output.get(name)
        if node is None or node.op_type not in ("Pow", "Mul"):
            return None
        if node.op_type == "Pow":
            return node.input[0] if self.numbers.get(node.input[1]) == 3 else None
        for base, square in (node.input, reversed(node.input)):
            squared = self.by_output.get(square)
            if squared is not None and (list(squared.input), squared.op_type) == ([base, base], "Mul"):
                return str(base)
        return None


def _nodes(node: onnx.NodeProto, gate: Gate, factors: list[Factor]) -> Iterator[onnx.NodeProto]:
    prefix = MADE + node.output[0]
    if gate.times != 1:
        constant = numpy_helper.from_array(np.array(gate.times, dtype=np.float32))
        yield helper.make_node("Constant", [], [f"{prefix}:times"], value=constant, name=f"{node_name(node)}:times")
        factors = [*factors, ("Mul", f"{prefix}:times")]
    name = gate.base
    for k, (operator, factor) in enumerate(gate.stretch):
        yield helper.make_node(operator, [name, factor], [f"{prefix}:{k}"], name=node_name(node))
        name = f"{prefix}:{k}"
    curve = onnx.NodeProto()
    curve.CopyFrom(gate.operator)
    curve.name = node_name(node)
    outputs = [*(f"{prefix}::{k}" for k in range(len(factors))), node.output[0]]
    curve.input.append(name)
    curve.output.append(outputs[0])
    yield curve
    for (operator, factor), before, after in zip(factors, outputs[:-1], outputs[1:], strict=True):
        yield helper.make_node(operator, [before, factor], [after], name=node_name(node))


def _near(value: object, expected: float) -> bool:
    return isinstance(value, int | float) and abs(value - expected) <= NEAR * expected
