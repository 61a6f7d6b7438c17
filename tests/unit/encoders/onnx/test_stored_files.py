"""What a model file may name beside itself, and that its tensors hold what they say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from encoders.errors import ModelFileError
from encoders.onnx.file import load, stored_tensors
from encoders.onnx.reader import read_onnx

WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2)


def model(weight: TensorProto, *nodes: onnx.NodeProto) -> onnx.ModelProto:
    """x (N, 4) @ W (4, 2)"""
    graph = helper.make_graph(
        nodes or [helper.make_node("MatMul", ["x", "W"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 2))], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def elsewhere(location: str, **more: Any) -> TensorProto:
    """W, its numbers in another file."""
    weight = TensorProto(name="W", dims=[4, 2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "length": 32, **more}.items():
        weight.external_data.add(key=key, value=str(value))
    return weight


def saved(folder: Path, weight: TensorProto) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "weights.data").write_bytes(WEIGHT.tobytes())
    path = folder / "m.onnx"
    path.write_bytes(model(weight).SerializeToString())
    return path


def refused(path: Path, match: str) -> None:
    with pytest.raises(ModelFileError, match=match) as caught:
        read_onnx(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_weights_beside_and_below_the_model_are_read(tmp_path: Path) -> None:
    (tmp_path / "m" / "deep").mkdir(parents=True)
    (tmp_path / "m" / "deep" / "w").write_bytes(WEIGHT.tobytes())
    for location in ("weights.data", "./weights.data", "deep/w"):
        found = read_onnx(saved(tmp_path / "m", elsewhere(location)))
        assert (found.layers[0].weight == WEIGHT.T).all()


@pytest.mark.parametrize("location", ["../secret", "deep/../../secret", "/etc/passwd", "link", "linked/secret", "", ".."])
def test_nothing_outside_the_models_folder_is_opened(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    path = saved(tmp_path / "m", elsewhere(location))
    (tmp_path / "m" / "deep").mkdir()
    (tmp_path / "m" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "m" / "linked").symlink_to(tmp_path)
    read = Path.read_bytes

    def only_the_model(self: Path) -> bytes:
        assert self == path
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", only_the_model)
    refused(path, "outside the folder|no plain file")


@pytest.mark.parametrize("location", ["pipe", "folder", "round", "a\x00b", "x" * 5000, "/dev/zero"])
def test_only_plain_files_are_opened(location: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited for without end; /dev/zero has no end."""
    path = saved(tmp_path / "m", elsewhere(location))
    os.mkfifo(tmp_path / "m" / "pipe")
    (tmp_path / "m" / "folder").mkdir()
    (tmp_path / "m" / "round").symlink_to("round")
    refused(path, "no plain file|no file can be called|outside the folder|cannot be read")


def test_of_two_places_the_one_that_is_read_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    weight = elsewhere("weights.data")
    weight.external_data.add(key="location", value="../secret")
    refused(saved(tmp_path / "m", weight), "outside the folder")


@pytest.mark.parametrize(
    "more", [{"offset": -8}, {"offset": 10**12}, {"length": 10**12}, {"length": -1}, {"offset": "x"}, {"length": 31}])
def test_places_within_the_file_of_weights(more: dict[str, Any], tmp_path: Path) -> None:
    refused(saved(tmp_path / "m", elsewhere("weights.data", **more)), "valid ONNX model|does not hold")


def test_every_tensor_of_a_file_is_known(tmp_path: Path) -> None:
    """Also those in branches, sparse ones and those of functions: their files count in the model's hash."""
    def tensor(name: str) -> TensorProto:
        return numpy_helper.from_array(np.zeros(1, dtype=np.float32), name)

    inside = helper.make_node("Constant", [], ["c"], value=tensor("in a branch"))
    branch = helper.make_graph([inside], "b", [], [], [tensor("of a branch")])
    sparse = helper.make_sparse_tensor(tensor("values"), numpy_helper.from_array(np.zeros(1, dtype=np.int64), "indices"), [4])
    nodes = [helper.make_node("If", ["c"], ["d"], then_branch=branch), helper.make_node("Constant", [], ["e"], sparse_value=sparse)]
    found = model(tensor("W"), *nodes)
    found.graph.sparse_initializer.append(sparse)
    function = [helper.make_node("Constant", [], ["b"], value=tensor("of a function"))]
    found.functions.append(helper.make_function("local", "F", ["a"], ["b"], function, [helper.make_opsetid("", 17)]))
    names = [t.name for t in stored_tensors(found)]
    assert sorted(names) == sorted(["W", "of a branch", "in a branch", "of a function", *2 * ["values", "indices"]])
    found.graph.node[0].attribute[0].g.initializer[0].CopyFrom(elsewhere("../secret"))
    (tmp_path / "m.onnx").write_bytes(found.SerializeToString())
    with pytest.raises(ModelFileError, match="outside the folder"):
        load(tmp_path / "m.onnx")


def with_dims(*dims: int) -> TensorProto:
    weight = numpy_helper.from_array(WEIGHT, "W")
    del weight.dims[:]
    weight.dims.extend(dims)
    return weight


@pytest.mark.parametrize("dims", [(4, 3), (-1, 2), (-4, -2), (10**6, 10**6), (2**62, 2), (4, 2, 0), (2**40,)])
def test_shapes_that_the_numbers_do_not_fill(dims: tuple[int, ...], tmp_path: Path) -> None:
    refused(saved(tmp_path / "m", with_dims(*dims)), "does not hold the numbers|valid ONNX model")


@pytest.mark.parametrize("kind", [0, -1, 99, 2**31 - 1, TensorProto.DOUBLE, TensorProto.STRING])
def test_types_that_the_numbers_are_not_of(kind: int, tmp_path: Path) -> None:
    weight = numpy_helper.from_array(WEIGHT, "W")
    weight.data_type = kind
    refused(saved(tmp_path / "m", weight), "does not hold the numbers|valid ONNX model")


def test_functions_that_cannot_be_inlined(tmp_path: Path) -> None:
    """More arguments than the function takes; a function that calls itself."""
    for body, inputs in (("Relu", ["x", "x"]), ("F", ["x"])):
        found = model(numpy_helper.from_array(WEIGHT, "W"), helper.make_node("F", inputs, ["y"], domain="local"))
        inner = [helper.make_node(body, ["a"], ["b"], domain="" if body == "Relu" else "local")]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        found.functions.append(helper.make_function("local", "F", ["a"], ["b"], inner, imports))
        found.opset_import.extend([helper.make_opsetid("local", 1)])
        (tmp_path / "m.onnx").write_bytes(found.SerializeToString())
        refused(tmp_path / "m.onnx", "valid ONNX model")
