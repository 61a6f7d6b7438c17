"""Local functions of an ONNX model, written out where they are called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from onnx import ModelProto, NodeProto, inliner

MOST_NODES = 2**16
"""The most nodes of an inlined model: functions that call others twice double them, so that a small file could fill the memory."""
Name = tuple[str, str]


def inlined(model: ModelProto) -> ModelProto:
    """Return the model with local functions inlined. Raises ValueError if they call themselves, or become too many nodes."""
    if not model.functions:
        return model
    calls = {(f.domain, f.name): list(_names(f.node)) for f in model.functions}  # the last of several of one name
    try:
        order = list(TopologicalSorter({name: set(called) & set(calls) for name, called in calls.items()}).static_order())
    except CycleError as error:
        raise ValueError(f"its function {error.args[1][0][1]!r} calls itself") from None
    size: dict[Name, int] = {}
    for name in order:
        size[name] = sum(size.get(call, 1) for call in calls[name])
    count = sum(size.get(call, 1) for call in _names(model.graph.node))
    if max(count, *size.values()) > MOST_NODES:
        raise ValueError(f"its functions become {count:,} nodes, at most {MOST_NODES:,} are read")
    return inliner.inline_local_functions(model)


def _names(nodes: Iterable[NodeProto]) -> Iterator[Name]:
    """Yield the names of operators of all nodes, including those in graphs within them."""
    for node in nodes:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _names(graph.node)
