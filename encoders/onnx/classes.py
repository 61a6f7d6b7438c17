"""What a stored classifier calls its classes, in the order of its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
from onnx import numpy_helper

from encoders.onnx.file import attributes, class_labels


def class_names(model: onnx.ModelProto, count: int) -> tuple[str, ...]:
    """The names of `count` classes as a converter of classifiers writes them; none where the model says nothing, or two things.

    Words count more than numbers: a converter may number classes first, and name them in the end.
    """
    listed = {names for names in _listed(model) if len(names) == count}
    words = {names for names in listed if not all(name.removeprefix("-").isdecimal() for name in names)}
    found = words or listed
    return found.pop() if len(found) == 1 else ()


def _listed(model: onnx.ModelProto) -> Iterator[tuple[str, ...]]:
    constants = {constant.name: constant for constant in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("ZipMap", "LinearClassifier"):
            yield _texts(class_labels(attributes(node)))
        elif node.op_type == "ArrayFeatureExtractor" and node.input and node.input[0] in constants:  # picks the label to show
            yield _texts(numpy_helper.to_array(constants[node.input[0]]).ravel().tolist())


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values)
