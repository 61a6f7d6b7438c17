"""Files that end in a mean of functions of trees' scores: what is read, and what is refused in one line."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import verifair as vf
from encoders.errors import ModelError
from encoders.onnx.ensemble import ColumnScores
from encoders.onnx.reader import read_model
from encoders.onnx.runtime import runtime_logits
from encoders.trees.mean import MeanOfTrees
from tests.builders import integer, schema_of


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, size=(200, 3)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=200) > 0).astype(int)
    forest = RandomForestClassifier(4, max_depth=3, random_state=0)
    path = tmp_path_factory.mktemp("mean") / "m.onnx"
    vf.save_onnx(vf.read(CalibratedClassifierCV(forest, cv=2, method="isotonic").fit(x, y)), path)
    return path


def test_a_file_is_read_as_the_object_is(stored: Path) -> None:
    network = read_model(stored)
    assert isinstance(network, MeanOfTrees)
    assert network.trees.outputs == 2
    assert network.ramps.constant + network.ramps.weight.sum() <= 1
    x = np.random.default_rng(1).integers(-3, 4, size=(500, 3)).astype(np.float32)
    np.testing.assert_allclose(network.forward(x.astype(float)), runtime_logits(network, x), atol=1e-5)


def test_the_import_check_sees_the_wrong_score_of_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear model beside trees: what its score may be off by differs from row to row."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, size=(200, 3)).astype(np.float32)
    vote = VotingClassifier([("line", LogisticRegression()), ("tree", DecisionTreeClassifier(max_depth=3))], voting="soft")
    vf.save_onnx(vf.read(vote.fit(x, (x[:, 0] + x[:, 1] > 0).astype(int))), tmp_path / "m.onnx")
    monkeypatch.setattr(ColumnScores, "at", lambda lines, rows: (lines.weight.sum() + np.zeros((len(rows), 2)), rows[:, :1] ** 0))
    with pytest.raises(ModelError, match="does not reproduce onnxruntime at x"):
        read_model(tmp_path / "m.onnx")


def words(one: np.ndarray) -> np.ndarray:
    return np.full(one.shape, "a", dtype=object)


@pytest.mark.parametrize(("op", "place", "change"), [
    ("Mul", 1, lambda one: -one), ("Mul", 1, np.zeros_like), ("Sub", 1, lambda one: one * np.float32(np.nan)),
    ("Gather", 1, lambda one: one + 2), ("Gather", 1, lambda one: np.repeat(one, 2)), ("Clip", 2, lambda one: one * 2),
    ("MatMul", 1, lambda one: one * 2), ("MatMul", 1, np.negative), ("MatMul", 1, lambda one: one[:-1]),
    ("Gather", 1, lambda one: one + 2**40), ("Gather", 1, lambda one: np.full(one.shape, np.inf, np.float32)), ("Gather", 1, words),
    ("MatMul", 1, words), ("Mul", 1, lambda one: one + 1j), ("Sub", 1, words),
])  # fmt: skip
def test_other_means_are_refused_in_one_line(stored: Path, tmp_path: Path, op: str, place: int, change: Any) -> None:
    model = onnx.load(stored)
    node = next(one for one in model.graph.node if one.op_type == op)
    constant = next(one for one in model.graph.initializer if one.name == node.input[place])
    constant.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(constant)), constant.name))
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ModelError) as caught:
        read_model(tmp_path / "other.onnx")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("at", [0.3, 0.5])
def test_classes_of_another_threshold_are_refused(stored: Path, tmp_path: Path, at: float) -> None:
    """As of networks: what a file shows as its class is what it decides."""
    model = onnx.load(stored)
    picked, label = (one for one in model.graph.node if one.op_type in ("ArrayFeatureExtractor", "Reshape"))
    shown = next(one for one in model.graph.node if model.graph.output[1].name in one.output)
    model.graph.initializer.append(numpy_helper.from_array(np.array([at], dtype=np.float32), "at"))
    model.graph.node.remove(picked)
    model.graph.node.remove(label)
    model.graph.node.extend([helper.make_node("Greater", [shown.input[1], "at"], ["above"]),
                             helper.make_node("Cast", ["above"], [label.output[0]], to=TensorProto.INT64)])
    onnx.save(model, tmp_path / "other.onnx")
    if at == 0.5:
        assert isinstance(read_model(tmp_path / "other.onnx"), MeanOfTrees)
        return
    with pytest.raises(ModelError, match=r"a threshold of its own.*probability less 1/2"):
        read_model(tmp_path / "other.onnx")


@pytest.mark.parametrize("flatter", [16.0, 32.0, 64.0])
def test_ramps_of_a_score_that_overlap_are_bounded_one_by_one(stored: Path, tmp_path: Path, flatter: float) -> None:
    """No estimator's do; of a file that has such, proofs are of what its functions are."""
    model = onnx.load(stored)
    scales = {one.input[1] for one in model.graph.node if one.op_type == "Mul"}
    for constant in model.graph.initializer:
        if constant.name in scales:
            changed = numpy_helper.to_array(constant) / np.float32(flatter)
            constant.CopyFrom(numpy_helper.from_array(changed, constant.name))
    onnx.save(model, tmp_path / "flat.onnx")
    network = read_model(tmp_path / "flat.onnx")
    assert isinstance(network, MeanOfTrees)
    assert not all(network.ramps.apart(score) for score in range(network.trees.outputs))
    assert all(read_model(stored).ramps.apart(score) for score in range(2))  # type: ignore[attr-defined]
    schema = schema_of(*(integer(name, -3, 3) for name in "abc"), positive="logit > 0")
    rows = np.array(list(itertools.product(range(-3, 4), repeat=3)), dtype=float)
    shown = network.forward(rows)[:, 0].reshape(49, 7)
    gap = float((shown.max(axis=1) - shown.min(axis=1)).max())
    for share in (0.3, 0.6, 0.99, 1.01):
        query = vf.IndividualFairness(model=network, schema=schema, protected=["c"], epsilon=share * gap)
        verdict = vf.verify(query, budget=vf.Budget(seconds=60))
        assert verdict.status is (vf.Status.VIOLATED if share < 1 else vf.Status.PROVED)
        assert verdict.certificate is None or vf.check(verdict.certificate, model=network, schema=schema).accepted
