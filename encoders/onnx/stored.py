"""The tensors that an ONNX file stores, wherever in it, and the files beside it that hold the numbers of some of them.

A model file may come from anybody: it names no file outside its own folder, and its tensors hold as many numbers as they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import onnx
from onnx import TensorProto, external_data_helper, numpy_helper

from encoders.errors import ModelFileError


def stored_tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """All of them: of the graph and the graphs within it, of sparse tensors, of attributes and of local functions."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from chain.from_iterable(map(_node_tensors, function.node))
        yield from chain.from_iterable(map(_attribute_tensors, function.attribute_proto))


def external_files(path: Path, model: onnx.ModelProto) -> tuple[Path, ...]:
    """The files beside the model that hold numbers of it, in the order of their names.

    Raises ModelFileError for what is no plain file in the model's folder or below it, links followed.
    """
    return tuple(_beside(path, name) for name in sorted(
        {_location(t) for t in stored_tensors(model) if external_data_helper.uses_external_data(t)}))


def check_numbers(path: Path, model: onnx.ModelProto) -> None:
    """Raises ModelFileError for a tensor that does not hold the numbers that its shape and type ask for."""
    for tensor in stored_tensors(model):
        try:
            fits = min(tensor.dims, default=0) >= 0 and numpy_helper.to_array(tensor) is not None
        except (ValueError, TypeError, KeyError, OverflowError, NotImplementedError, MemoryError):
            fits = False
        if not fits:
            shape = ", ".join(map(str, tensor.dims))
            kind = type_name(tensor.data_type)
            raise ModelFileError(path, f"does not hold the numbers of shape ({shape}) and type {kind} that it "
                                       "says: the file is damaged; export or copy it again", node=tensor.name or "a tensor")


def type_name(number: int) -> str:
    """What ONNX calls an element type; its number where it has no such type."""
    return str(TensorProto.DataType.Name(number)) if number in TensorProto.DataType.values() else f"number {number}"


def _beside(path: Path, name: str) -> Path:
    folder = path.parent
    remedy = "put the weights beside the model, under the name they had, or store the model in one file"
    try:
        found = (folder / name).resolve()
        inside = bool(name) and found.is_relative_to(folder.resolve())
        plain = inside and (found.is_file() or not found.exists())
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a name too long, links in a circle
        raise ModelFileError(path, f"names external weights {name[:200]!r}, which no file can be called; {remedy}") from error
    if not inside:
        raise ModelFileError(path, f"names external weights {name[:200]!r}, outside the folder of the model; {remedy}")
    if not plain:
        raise ModelFileError(path, f"names external weights {name[:200]!r}, which is no plain file; {remedy}")
    return folder / name


def _location(tensor: TensorProto) -> str:
    """Where the numbers lie: of several places that are named the last one, as `onnx` has it."""
    return next((str(entry.value) for entry in reversed(tensor.external_data) if entry.key == "location"), "")


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from chain.from_iterable(map(_node_tensors, graph.node))


def _node_tensors(node: onnx.NodeProto) -> Iterator[TensorProto]:
    return chain.from_iterable(map(_attribute_tensors, node.attribute))


def _attribute_tensors(attribute: onnx.AttributeProto) -> Iterator[TensorProto]:
    yield from ([attribute.t] if attribute.HasField("t") else [])
    yield from attribute.tensors
    for sparse in (*([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []), *attribute.sparse_tensors):
        yield from (sparse.values, sparse.indices)
    for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
        yield from _graph_tensors(graph)
