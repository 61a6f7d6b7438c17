"""Replay in onnxruntime: its own float32 logits, of the very file that was read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoders.errors import ModelError, ModelFileError
from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import decisions, predictions, runtime_logits, runtime_outputs

from .onnx_models import node, save

F = np.float32


def test_logits_in_front_of_a_saturated_sigmoid(tmp_path: Path) -> None:
    nodes = [node("Gemm", ["x", "w"], ["z"]), node("Sigmoid", ["z"])]
    network = read_onnx(save(tmp_path / "m.onnx", nodes, {"w": np.full((4, 1), 50, dtype=F)}))
    x = np.array([[1, 1, 1, 1], [1, 1, 1, 2], [-1, -1, 0, 0]], dtype=F)
    assert runtime_outputs(network, x)[:2].tolist() == [[1.0], [1.0]]
    assert runtime_logits(network, x).tolist() == [[200.0], [250.0], [-100.0]]
    assert predictions(network, x).tolist() == [1, 1, 0]


def test_fixed_batch_sizes_are_looped_over(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(F)
    for batch in (1, 3):
        network = read_onnx(save(tmp_path / f"{batch}.onnx", [node("Neg", ["x"])], {}, shape=(batch, 4)))
        assert (runtime_logits(network, x) == -x.astype(np.float64)).all()
    assert runtime_logits(network, x[:0]).shape == (0, 4)


def test_float32_arithmetic_is_the_runtimes_own(tmp_path: Path) -> None:
    """2^24 + 1 is no float32: the runtime says 0 where the real-valued network says 1."""
    nodes = [node("Add", ["x", "c"], ["a"]), node("Sub", ["a", "c"])]
    network = read_onnx(save(tmp_path / "m.onnx", nodes, {"c": F(2.0**24)}), check_points=1)
    x = np.ones((1, 4), dtype=F)
    assert network.forward(x.astype(np.float64)).tolist() == [[1.0] * 4]
    assert runtime_logits(network, x).tolist() == [[0.0] * 4]


def test_a_file_that_changed_or_went_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    network = read_onnx(save(path, [node("Neg", ["x"])], {}))
    x = np.ones((1, 4), dtype=F)
    assert runtime_logits(network, x).tolist() == [[-1.0] * 4]
    save(path, [node("Neg", ["x"], ["n"]), node("Neg", ["n"], name="again")], {})
    with pytest.raises(ModelError, match="has changed since it was read"):
        runtime_logits(network, x)
    path.unlink()
    with pytest.raises(ModelFileError, match="cannot be read"):
        runtime_logits(network, x)


def test_a_network_without_a_file(tmp_path: Path) -> None:
    network = replace(read_onnx(save(tmp_path / "m.onnx", [node("Neg", ["x"])], {})), source=None)
    with pytest.raises(ModelError, match="nothing to replay"):
        runtime_logits(network, np.ones((1, 4), dtype=F))


def test_wrong_width(tmp_path: Path) -> None:
    network = read_onnx(save(tmp_path / "m.onnx", [node("Neg", ["x"])], {}))
    with pytest.raises(ValueError, match="expected"):
        runtime_logits(network, np.ones((1, 3), dtype=F))


def test_decisions() -> None:
    assert decisions(np.array([[0.0], [1e-9], [-1.0]])).tolist() == [0, 1, 0]
    assert decisions(np.array([[0.0, 0.0], [0.0, 1.0]])).tolist() == [0, 1]
