"""Constants that a few bytes make enormous are refused before they are computed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from encoders.errors import ModelError
from encoders.onnx import graph as onnx_graph
from encoders.onnx import reader as onnx_reader
from encoders.onnx.graph import size_of
from encoders.onnx.reader import read_onnx

from .onnx_models import node, save

F = np.float32


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(("nodes", "constants"), [
    ([node("ConstantOfShape", ["n"], ["c"])], {"n": whole(10**6, 10**6)}),
    ([node("Expand", ["one", "n"], ["c"])], {"n": whole(10**6, 10**6), "one": np.ones((1, 1), F)}),
    ([node("Tile", ["one", "n"], ["c"])], {"n": whole(10**6, 10**6), "one": np.ones((1, 1), F)}),
    ([node("Range", ["zero", "end", "step"], ["c"])], {"zero": np.array(0), "end": np.array(10**12), "step": np.array(1)}),
    ([node("Pad", ["v", "n"], ["c"])], {"v": np.ones(3, F), "n": whole(0, 10**9)}),
    ([node("MatMul", ["v", "w"], ["c"])], {"v": np.ones((20_000, 1), F), "w": np.ones((1, 20_000), F)}),
    ([node("Add", ["v", "w"], ["c"])], {"v": np.ones((20_000, 1), F), "w": np.ones((1, 20_000), F)}),
    ([node("Gather", ["v", "n"], ["c"], axis=0)], {"v": np.ones((1, 1000), F), "n": np.zeros(100_000, np.int64)}),
    ([node("Concat", [f"c{k}"] * 9, [f"c{k + 1}" if k < 39 else "c"], axis=0) for k in range(40)], {"c0": np.ones(4, F)}),
])  # fmt: skip
def test_refused_before_they_are_computed(nodes: list[onnx.NodeProto], constants: dict[str, Any], tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [*nodes, node("Add", ["x", "c"])], constants, check=False)
    with pytest.raises(ModelError, match=r"constant numbers; at most") as caught:
        read_onnx(path)
    assert caught.value.node is not None


def test_all_of_them_together_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is small: arithmetic, which is done in rationals, counts several times."""
    nodes = [node("Add", [f"c{k}", "c0"], [f"c{k + 1}" if k < 9 else "c"], name=f"n{k}") for k in range(10)]
    path = save(tmp_path / "m.onnx", [*nodes, node("Add", ["x", "c"])], {"c0": np.ones(4, F)})
    monkeypatch.setattr(onnx_graph, "IN_ALL", 10 * 4 * 8)
    assert (read_onnx(path).layers[0].bias == 11).all()
    monkeypatch.setattr(onnx_graph, "IN_ALL", 10 * 4 * 8 - 1)
    with pytest.raises(ModelError, match="constant numbers; at most"):
        read_onnx(path)


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@settings(max_examples=60)
@given(
    op=st.sampled_from(["Add", "Max", "Where", "MatMul", "Concat", "Transpose", "Gather", "Pad", "Tile", "Expand"]),
    one=SHAPES, two=SHAPES,
)  # fmt: skip
def test_what_is_computed_is_never_larger_than_said(op: str, one: tuple[int, ...], two: tuple[int, ...]) -> None:
    a, b = np.ones(one, F), np.ones(two, F)
    numbers = {"Gather": np.zeros(two, np.int64), "Tile": whole(*one), "Expand": whole(*two), "Pad": whole(*one, *one[::-1])}
    given_ = {"Where": [a > 0, a, b], "Transpose": [a]}.get(op, [a, numbers.get(op, b)])
    attributes = {"axis": 0} if op in ("Concat", "Gather") else {}
    names = [f"v{k}" for k in range(len(given_))]
    fed = dict(zip(names, given_, strict=True))
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in fed.items()]
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", infos, [onnx.ValueInfoProto(name="y")])
    try:
        evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
        found = np.asarray(evaluator.run(None, fed)[0])
    except Exception:  # shapes that do not fit
        return
    assert found.size <= size_of(op, given_, attributes) <= 4096 * math.prod(one) * math.prod(two)


def test_constants_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["v", "w"], ["c"], name="product"), node("Add", ["x", "c"])]
    path = save(tmp_path / "m.onnx", nodes, {"v": np.ones((2, 4), F), "w": np.ones((8, 2), F)}, check=False)
    with pytest.raises(ModelError, match=r"node 'product' \(MatMul\): computes with constants of shapes \(2, 4\), \(8, 2\)"):
        read_onnx(path)


def test_a_million_indices_are_not_listed_in_a_message(tmp_path: Path) -> None:
    nodes = [node("Gather", ["x", "n"], ["y"], axis=1)]
    path = save(tmp_path / "m.onnx", nodes, {"n": np.arange(1_000_000)}, check=False)
    with pytest.raises(ModelError, match="picks indices 0 to 999999 of an axis") as caught:
        read_onnx(path)
    assert len(str(caught.value)) < 500


def test_wide_tensors_are_compared_few_points_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(onnx_reader, "check_layers", lambda *given: asked.append(len(given[-1])))
    nodes = [node("Gather", ["x", "n"], ["h"], axis=1), node("ReduceSum", ["h", "last"], keepdims=1)]
    path = save(tmp_path / "m.onnx", nodes, {"n": np.zeros(1000, np.int64), "last": whole(1)})
    read_onnx(path)
    assert asked == [64]
    monkeypatch.setattr(onnx_reader, "AT_ONCE", 30_000)
    read_onnx(path)
    assert asked[1:] == [30, 30, 4]
