"""Random ONNX graphs of the operators that are rewritten, and an evaluator of such graphs in fractions that knows nothing of ours.

Weights are multiples of 1/4, slopes and divisors powers of two or small integers, so that nothing need be rounded and the imported
network must be the stored graph *exactly*.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verifair as vf
from encoders.errors import ModelError
from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import runtime_logits
from tests.builders import integer, schema_of
from tests.soundness.random_fairness import Case
from tests.soundness.test_whole_domain import assert_true

Objects = np.ndarray[Any, np.dtype[np.object_]]
WIDEST = 8
KINDS = ("gemm", "relu", "leaky", "prelu", "max", "min", "constants", "abs", "clip", "hard-sigmoid", "residual", "conv", "max-pool",
         "average-pool", "pad", "reduce", "concat", "select")
PLANES = {2: (1, 2), 3: (1, 3), 4: (2, 2), 5: (1, 5), 6: (2, 3), 7: (1, 7), 8: (2, 4)}


@dataclass
class Graph:
    """A graph under construction: nodes, constants, all tensors' values for x = 0, and the widths (N, width) of those of use."""

    rng: np.random.Generator
    zeros: dict[str, Any]
    live: dict[str, int]
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def weight(self, *shape: int, zeros: float = 0.2) -> Any:
        values = self.rng.integers(-6, 7, shape) * (self.rng.random(shape) >= zeros) / 4
        return values.astype(np.float32)

    def node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{len(self.nodes)}", **attributes))
        self.zeros[name] = _value(self.nodes[-1], self.zeros | self.constants)
        return name

    def of_width(self, width: int) -> str:
        """Some tensor of this width: an old one, or a new affine map of one."""
        same = [name for name, w in self.live.items() if w == width]
        if same and self.rng.random() < 0.5:
            return str(self.rng.choice(same))
        below = str(self.rng.choice(list(self.live)))
        return self.node("Gemm", [below, self.constant(self.weight(self.live[below], width)), self.constant(self.weight(width))])

    def plane(self, name: str, width: int) -> tuple[str, tuple[int, int]]:
        h, w = PLANES[width]
        return self.node("Reshape", [name, self.constant(np.array([-1, 1, h, w]))]), (h, w)

    def flat(self, name: str) -> str:
        return self.node("Flatten", [name])


def random_graph(seed: int, inputs: int, steps: int) -> Graph:
    """A graph from x (N, inputs) to y (N, 1)."""
    zeros = {"x": np.full((1, inputs), Fraction(0), dtype=object)}
    graph = Graph(rng=np.random.default_rng(seed), zeros=zeros, live={"x": inputs})
    for _ in range(steps):
        name = str(graph.rng.choice(list(graph.live)[-3:]))
        made = _step(graph, str(graph.rng.choice(KINDS)), name, graph.live[name])
        width = graph.zeros[made].size
        if width <= WIDEST:
            graph.live[made] = width
    top = list(graph.live)[-1]
    last = graph.node("Gemm", [top, graph.constant(graph.weight(graph.live[top], 1, zeros=0.0)), graph.constant(graph.weight(1))])
    graph.nodes.append(helper.make_node("Identity", [last], ["y"], name="last"))
    return graph


def _step(graph: Graph, kind: str, x: str, width: int) -> str:
    rng = graph.rng
    match kind:
        case "relu":
            return graph.node("Relu", [x])
        case "leaky":
            return graph.node("LeakyRelu", [x], alpha=float(rng.choice([-2.0, -0.5, 0.0, 0.25, 1.0, 1.5, 4.0])))
        case "prelu":
            return graph.node("PRelu", [x, graph.constant(graph.weight(width))])
        case "max" | "min":
            others = [graph.of_width(width) for _ in range(int(rng.integers(1, 3)))]
            return graph.node(kind.capitalize(), [x, *others])
        case "constants":
            return graph.node(str(rng.choice(["Max", "Min"])), [graph.constant(graph.weight(width)), x])
        case "abs":
            return graph.node("Abs", [x])
        case "clip":
            low, high = (float(v) for v in rng.choice([-1e30, -2, -0.5, 0, 0.25, 1, 3, 6, 1e30], 2))
            bounds = [graph.constant(np.float32(v)) if rng.random() < 0.8 else "" for v in (low, high)]
            return graph.node("Clip", [x, *bounds])
        case "hard-sigmoid":
            return graph.node("HardSigmoid", [x], alpha=0.25, beta=0.5)
        case "residual":
            return graph.node(str(rng.choice(["Add", "Sub"])), [x, graph.of_width(width)])
        case "concat":
            return graph.node("Concat", [x, str(rng.choice(list(graph.live)))], axis=1)
        case "select":
            picked = rng.integers(0, width, int(rng.integers(1, width + 1)))
            return graph.node("Gather", [x, graph.constant(picked)], axis=1)
        case "reduce":
            return graph.node(str(rng.choice(["ReduceMax", "ReduceMin"])), [x], axes=[1], keepdims=1)
        case "conv" | "max-pool" | "average-pool" | "pad" if width in PLANES:
            return graph.flat(_on_plane(graph, kind, *graph.plane(x, width)))
    m = int(rng.integers(1, 5))
    return graph.node("Gemm", [x, graph.constant(graph.weight(width, m)), graph.constant(graph.weight(m))])


def _on_plane(graph: Graph, kind: str, x: str, shape: tuple[int, int]) -> str:
    rng = graph.rng
    kernel = [int(rng.integers(1, min(n, 2) + 1)) for n in shape]
    strides = [int(rng.integers(1, 3)) for _ in shape]
    pads = [int(rng.integers(0, k)) for k in kernel] * 2
    match kind:
        case "conv":
            m = int(rng.integers(1, 3))
            weight, bias = graph.constant(graph.weight(m, 1, *kernel)), graph.constant(graph.weight(m))
            return graph.node("Conv", [x, weight, bias], strides=strides, pads=pads)
        case "max-pool":
            return graph.node("MaxPool", [x], kernel_shape=kernel, strides=strides, pads=pads)
        case "average-pool":
            return graph.node("AveragePool", [x], kernel_shape=kernel, strides=strides)
        case _:
            mode = str(rng.choice(["constant", "edge", "reflect"]))
            room = [min(1, n - 1) if mode == "reflect" else 1 for n in shape]
            widths_ = [int(rng.integers(0, r + 1)) for r in room * 2]
            pads_ = graph.constant(np.array([0, 0, widths_[0], widths_[1], 0, 0, widths_[2], widths_[3]]))
            return graph.node("Pad", [x, pads_, graph.constant(np.float32(0.5))], mode=mode)


def save(graph: Graph, inputs: int, path: Path) -> Path:
    proto = helper.make_graph(
        graph.nodes, "random", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", inputs))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 1))],
        [numpy_helper.from_array(value, name) for name, value in graph.constants.items()])
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


# The evaluator


def evaluated(graph: Graph, x: Objects) -> dict[str, Objects]:
    """All tensors for rows x (B, n) of fractions."""
    values: dict[str, Any] = {"x": x, **graph.constants}
    for node in graph.nodes:
        values[node.output[0]] = _value(node, values)
    return values


def _value(node: Any, values: dict[str, Any]) -> Objects:
    options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return _apply(node.op_type, [values[i] if i else None for i in node.input], options)


def exactly(values: Any) -> Objects:
    array = np.asarray(values)
    if array.dtype == object:
        return array
    return np.array([Fraction(float(v)) for v in array.ravel()], dtype=object).reshape(array.shape)


def _apply(op: str, operands: list[Any], options: dict[str, Any]) -> Objects:
    x = operands[0]
    exact = [None if v is None or v.dtype.kind == "i" else exactly(v) for v in operands]
    a = exact[0]
    half = Fraction(1, 2)
    match op:
        case "Gemm":
            return a @ exact[1] + exact[2]
        case "Identity":
            return a
        case "Relu":
            return np.where(a > 0, a, Fraction(0))
        case "LeakyRelu":
            return np.where(a > 0, a, Fraction(float(np.float32(options["alpha"]))) * a)
        case "PRelu":
            return np.where(a > 0, a, exact[1] * a)
        case "Max" | "Min":
            pick = np.maximum if op == "Max" else np.minimum
            for other in exact[1:]:
                a = pick(a, other)
            return a
        case "Abs":
            return np.abs(a)
        case "Clip":
            a = a if len(exact) < 2 or exact[1] is None else np.maximum(a, exact[1])
            return a if len(exact) < 3 or exact[2] is None else np.minimum(a, exact[2])
        case "HardSigmoid":
            return np.minimum(np.maximum(a / 4 + half, Fraction(0)), Fraction(1))
        case "Add":
            return a + exact[1]
        case "Sub":
            return a - exact[1]
        case "Concat":
            return np.concatenate([a, exact[1]], axis=1)
        case "Gather":
            return a[:, operands[1]]
        case "ReduceMax" | "ReduceMin":
            return (np.max if op == "ReduceMax" else np.min)(a, axis=1, keepdims=True)
        case "Reshape":
            return a.reshape(len(a), *operands[1][1:])
        case "Flatten":
            return a.reshape(len(a), -1)
        case "Pad":
            return _padded(a, operands[1].tolist(), options["mode"], Fraction(float(operands[2])))
        case "Conv" | "MaxPool" | "AveragePool":
            return _windows(op, a, exact, options)
    raise NotImplementedError(op, x)


def _padded(a: Objects, pads: list[int], mode: bytes, value: Fraction) -> Objects:
    top, left, bottom, right = pads[2], pads[3], pads[6], pads[7]
    h, w = a.shape[2:]
    out = np.full((len(a), 1, h + top + bottom, w + left + right), value, dtype=object)
    for i, j in product(range(out.shape[2]), range(out.shape[3])):
        p, q = i - top, j - left
        if mode == b"edge":
            p, q = min(max(p, 0), h - 1), min(max(q, 0), w - 1)
        elif mode == b"reflect":
            p, q = (abs(v) if v < n else 2 * (n - 1) - v for v, n in ((p, h), (q, w)))
        if 0 <= p < h and 0 <= q < w:
            out[:, :, i, j] = a[:, :, p, q]
    return out


def _windows(op: str, a: Objects, exact: list[Any], options: dict[str, Any]) -> Objects:
    (h, w), (s, t) = a.shape[2:], options["strides"]
    k, m = exact[1].shape[2:] if op == "Conv" else options["kernel_shape"]
    top, left, bottom, right = options.get("pads", [0, 0, 0, 0])
    rows, columns = (h + top + bottom - k) // s + 1, (w + left + right - m) // t + 1
    channels = len(exact[1]) if op == "Conv" else 1
    out = np.empty((len(a), channels, rows, columns), dtype=object)
    for c, i, j in product(range(channels), range(rows), range(columns)):
        cells = [(p, q, i * s + p - top, j * t + q - left) for p in range(k) for q in range(m)]
        inside = [(p, q, y, x) for p, q, y, x in cells if 0 <= y < h and 0 <= x < w]
        if op == "Conv":
            out[:, c, i, j] = exact[2][c] + sum((exact[1][c, 0, p, q] * a[:, 0, y, x] for p, q, y, x in inside), Fraction(0))
            continue
        found = np.array([a[:, 0, y, x] for _, _, y, x in inside], dtype=object)
        out[:, 0, i, j] = found.max(axis=0) if op == "MaxPool" else found.sum(axis=0) / len(inside)
    return out


# Graphs of maxima, clippings, poolings, convolutions and branches against enumeration: the import is exact, verdicts are true.


GRAPHS = 100
METHODS = ("auto", "bnb", "milp", "smt")


def rows(inputs: int, most: int = 2) -> np.ndarray:
    return np.array(list(product((0, 1), *[range(most + 1)] * (inputs - 1))), dtype=np.float64)


@pytest.mark.parametrize("part", range(5))
def test_the_import_is_the_stored_graph_exactly(part: int, tmp_path: Path) -> None:
    """Every row of a small box and some fractions beside it, in fractions on both sides; onnxruntime agrees in float32."""
    rewritten = 0
    for seed in range(part * GRAPHS // 5, (part + 1) * GRAPHS // 5):
        inputs = 2 + seed % 5
        graph = random_graph(seed, inputs, steps=2 + seed % 6)
        network = read_onnx(save(graph, inputs, tmp_path / f"{seed}.onnx"), check_points=8)
        rng = np.random.default_rng(seed)
        x = np.concatenate([rows(inputs, 1), rng.integers(-40, 41, (16, inputs)) / 8])
        expected = evaluated(graph, exactly(x))["y"]
        if not network.rounded:
            assert (network.forward(exactly(x)) == expected).all(), seed
        exact = expected.astype(np.float64)
        np.testing.assert_allclose(network.forward(x), exact, rtol=1e-9, atol=1e-9 * (1 + np.abs(exact).max()))
        float32 = runtime_logits(network, x.astype(np.float32))
        np.testing.assert_allclose(float32, exact, rtol=1e-4, atol=1e-4 * (1 + np.abs(exact).max()))
        rewritten += not network.rounded
    assert rewritten >= 10      # of 20: most graphs need no rounding at all


@pytest.mark.parametrize("method", METHODS)
def test_verdicts_are_those_of_enumeration(method: str, tmp_path: Path) -> None:
    """Is there a row whose decision changes with the first input? Asked of graphs whose last bias puts some row on the fence."""
    decided = {True: 0, False: 0}
    for seed in range(1000, 1020):
        inputs = 3 + seed % 2
        graph = random_graph(seed, inputs, steps=2 + seed % 5)
        domain = rows(inputs)
        values = evaluated(graph, exactly(domain))["y"][:, 0]
        bias, fence = graph.nodes[-2].input[2], float(sorted(values)[len(values) * (seed % 7) // 7])
        graph.constants[bias] = (graph.constants[bias] - fence).astype(np.float32)
        network = read_onnx(save(graph, inputs, tmp_path / f"{seed}.onnx"), check_points=8)
        schema = schema_of(
            integer("sex", 0, 1, protected=True),
            *(integer(f"v{k}", 0, 2) for k in range(1, inputs)),
            positive="logit > 0",
        )
        case = Case(query=vf.IndividualFairness(model=network, schema=schema, protected=["sex"]), seed=seed, style="graph")
        logits = evaluated(graph, exactly(case.rows))["y"][:, 0]
        if not network.rounded:
            assert (case.logits == logits).all()
        verdict = vf.verify(case.query, method=method, budget=vf.Budget(seconds=20))
        if verdict.status is vf.Status.UNKNOWN:
            assert method in ("milp", "smt"), (seed, verdict.reason)
            continue
        assert_true(case, verdict)
        if verdict.status is vf.Status.VIOLATED and min(abs(v) for v in logits if v) > Fraction(1, 1000):
            assert verdict.witness is not None
            assert verdict.witness.float32_agrees
        decided[verdict.status is vf.Status.VIOLATED] += 1
    assert decided[True] >= 3
    assert decided[False] >= 3 or method == "milp"      # a row on the fence is beyond a MILP's tolerance


def test_a_lost_kink_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations of the rewriting: the comparison with the stored graph must notice each of them."""
    from encoders.onnx.operators import activations as onnx_maxima

    right = onnx_maxima._relu
    paths = [save(random_graph(seed, 4, steps=4), 4, tmp_path / f"{seed}.onnx") for seed in range(20)]
    for path in paths:
        read_onnx(path, check_points=16)
    wrongs = (lambda node, pre: pre, lambda node, pre: right(node, -pre),
              lambda node, pre: right(node, pre).scale(onnx_maxima.exact(np.full(pre.size, 1.01))))
    for wrong in wrongs:
        monkeypatch.setattr(onnx_maxima, "_relu", wrong)
        refused = 0
        for path in paths:
            try:
                read_onnx(path, check_points=16)
            except ModelError:
                refused += 1
        assert refused >= 5
