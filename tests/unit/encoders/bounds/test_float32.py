"""How far float32 evaluations lie from the real-valued function: onnxruntime's and sums in any order, against the bound."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from encoders.arrays import Array, Floats
from encoders.bounds.float32 import Float32Error
from encoders.exact.dyadic import exact
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from tests.unit.encoders.onnx.onnx_models import node, save
from verifair.checker.kernel.float32 import margin_errors

RUNS = [(batch, threads) for batch in (1, 7, 1024) for threads in (1, 2)]


def stored(path: Path, weights: list[Floats], biases: list[Floats], *, slope: float = 0.0) -> Path:
    """A chain of MatMul, Add and ReLU (LeakyReLU with a slope)."""
    nodes, constants, last = [], {}, "x"
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        constants |= {f"w{k}": weight.astype(np.float32), f"b{k}": bias.astype(np.float32)}
        end = "y" if k + 1 == len(weights) else f"a{k}"
        nodes += [node("MatMul", [last, f"w{k}"], [f"p{k}"], name=f"m{k}"), node("Add", [f"p{k}", f"b{k}"], [end], name=f"s{k}")]
        if end != "y":
            more = {"alpha": slope} if slope else {}
            nodes.append(node("LeakyRelu" if slope else "Relu", [end], [f"r{k}"], name=f"act{k}", **more))
            last = f"r{k}"
    return save(path, nodes, constants, shape=("N", weights[0].shape[0]))


def random_layers(rng: np.random.Generator, widths: tuple[int, ...], scale: float = 1.0) -> tuple[list[Any], list[Any]]:
    weights = [(scale * rng.standard_normal((n, m)) / np.sqrt(n)).astype(np.float32) for n, m in pairwise(widths)]
    return weights, [rng.standard_normal(m).astype(np.float32) for m in widths[1:]]


def adversarial(rng: np.random.Generator, kind: str) -> tuple[list[Any], list[Any], float, Floats]:
    """Weights, biases, slope and inputs of a network whose rounding is bad in one way."""
    slope, x = 0.0, rng.uniform(-5, 5, (1024, 6))
    match kind:
        case "huge weights":
            weights, biases = random_layers(rng, (6, 20, 20, 2), 1e4)
        case "cancellation":
            weights, biases = random_layers(rng, (6, 40, 2))
            weights[0][:, 1::2] = weights[0][:, ::2] * np.float32(1 + 2**-20)
            biases[0][1::2] = biases[0][::2]
            weights[1][1::2] = -weights[1][::2]
            weights[1] = weights[1] * np.float32(2.0**20)
        case "1,000 inputs":
            weights, biases = random_layers(rng, (1000, 30, 2))
            x = rng.uniform(-100, 100, (1024, 1000))
        case "denormals":
            weights, biases = random_layers(rng, (6, 20, 2))
            weights[0] = weights[0] * np.float32(1e-39)
            biases[0] = biases[0] * np.float32(1e-39)
            biases[1] = biases[1] * np.float32(1e-44)
            x[::2] *= 1e-38
        case "deep":
            weights, biases = random_layers(rng, (6, *[12] * 20, 2), 1.6)
        case _:
            weights, biases = random_layers(rng, (6, 16, 16, 2))
            slope = 0.1
    return weights, biases, slope, x.astype(np.float32)


def exactly(network: Network, x: Floats) -> list[Fraction]:
    return [row[0] - row[1] for row in network.forward(exact(x.astype(np.float64))).to_fractions()]


def by_onnxruntime(path: Path, x: Floats, batch: int, threads: int) -> Array:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    parts = [session.run(None, {"x": x[k : k + batch]})[0] for k in range(0, len(x), batch)]
    return np.concatenate(parts).astype(np.float64)


def in_some_order(
    rng: np.random.Generator, weights: list[Floats], biases: list[Floats], slope: float, x: Floats, *, pairs: bool
) -> Array:
    """numpy's float32, the sums in a random order: one after the other, or in pairs."""
    y = x
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        terms = np.concatenate([y[:, :, None] * weight[None], np.broadcast_to(bias, (len(y), 1, len(bias)))], axis=1)
        terms = terms[:, rng.permutation(terms.shape[1])]
        assert terms.dtype == np.float32
        if pairs:
            while terms.shape[1] > 1:
                rest = terms[:, -1:] if terms.shape[1] % 2 else terms[:, :0]
                terms = np.concatenate([terms[:, :-1:2][:, : terms.shape[1] // 2] + terms[:, 1::2], rest], axis=1)
            y = terms[:, 0]
        else:
            y = np.cumsum(terms, axis=1, dtype=np.float32)[:, -1]
        if k + 1 < len(weights):
            y = np.where(y > 0, y, np.float32(slope) * y)
    return y.astype(np.float64)


@pytest.mark.parametrize("kind", ["huge weights", "cancellation", "1,000 inputs", "denormals", "deep", "leaky"])
def test_no_float32_evaluation_leaves_the_bound(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(len(kind))
    weights, biases, slope, x = adversarial(rng, kind)
    path = stored(tmp_path / "net.onnx", weights, biases, slope=slope)
    network = read_onnx(path)
    margin = np.array([1.0, -1.0])
    rule = Float32Error.of(network, margin)
    assert rule is not None
    at = x.astype(np.float64)
    points, box = rule.within(at, at), rule.within(at.min(axis=0)[None], at.max(axis=0)[None])[0]
    checked = margin_errors(network, np.tile(margin, (len(at), 1)), at, at)
    assert np.isfinite(points).all()
    assert (points <= box).all()
    assert np.allclose(points, checked, rtol=1e-6, atol=0.0)  # two programs, one recursion
    few = slice(0, 128)
    true = exactly(network, x[few])
    found = [by_onnxruntime(path, x, *run)[few] for run in RUNS]
    found += [in_some_order(rng, weights, biases, slope, x[few], pairs=pairs) for pairs in (False, True) for _ in range(3)]
    for logits in found:
        errors = [abs(Fraction(a) - Fraction(b) - g) for a, b, g in zip(logits[:, 0], logits[:, 1], true, strict=True)]
        assert all(error <= Fraction(bound) for error, bound in zip(errors, points[few], strict=True))


def test_nothing_is_said_of_what_is_not_float32(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    weight = rng.standard_normal((4, 1))
    plain = save(tmp_path / "a.onnx", [node("MatMul", ["x", "w"])], {"w": weight.astype(np.float32)})
    assert read_onnx(plain).rounding is not None
    double = save(tmp_path / "b.onnx", [node("MatMul", ["x", "w"])], {"w": weight}, kind=11)
    assert read_onnx(double).rounding is None
    folded = [node("Add", ["u", "v"], ["w"], name="sum"), node("MatMul", ["x", "w"])]
    parts = {"u": weight.astype(np.float32), "v": (weight / 3).astype(np.float32)}
    assert read_onnx(save(tmp_path / "c.onnx", folded, parts)).rounding is None
    curved = [node("MatMul", ["x", "w"], ["a"]), node("Tanh", ["a"], ["t"]), node("MatMul", ["t", "v"], name="last")]
    smooth = read_onnx(save(tmp_path / "d.onnx", curved, {"w": weight.astype(np.float32), "v": np.ones((1, 1), np.float32)}))
    assert smooth.rounding is None
    assert Float32Error.of(smooth, np.ones(1)) is None


def test_sums_that_may_overflow_have_no_bound(tmp_path: Path) -> None:
    weight = np.full((2, 1), 1e25, dtype=np.float32)
    network = read_onnx(save(tmp_path / "a.onnx", [node("MatMul", ["x", "w"])], {"w": weight}, shape=("N", 2)))
    rule = Float32Error.of(network, np.ones(1))
    assert rule is not None
    large, small = np.full((1, 2), 1e10), np.full((1, 2), 1.0)
    assert rule.within(large, large)[0] == np.inf
    assert np.isfinite(rule.within(small, small)[0])
    assert margin_errors(network, np.ones((1, 1)), large, large)[0] == np.inf


def test_cancelled_products_of_affine_maps_count(tmp_path: Path) -> None:
    """(3 x) - (3 x) + x is x; a runtime rounds 3 x twice, differently if its sums are of different orders."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="a"), node("MatMul", ["x", "v"], ["b"], name="b"), node("Sub", ["a", "b"], ["d"]),
        node("Relu", ["d"], ["r"]), node("MatMul", ["r", "o"], name="end"),
    ]
    w = np.full((4, 1), 1e6, dtype=np.float32)
    network = read_onnx(save(tmp_path / "a.onnx", nodes, {"w": w, "v": w, "o": np.ones((1, 1), np.float32)}))
    assert not network.layers[0].weight.any()
    rule = Float32Error.of(network, np.ones(1))
    assert rule is not None
    at = np.ones((1, 4))
    assert rule.within(at, at)[0] > 1e6 * 2**-24
