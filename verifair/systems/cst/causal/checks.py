"""Checks that a causal model, a table and an intervention fit together, with their error messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from verifair.errors import DataError, QueryError, SchemaError
from verifair.schema.feature import text
from verifair.schema.spelling import listed, nearest
from verifair.systems.cst.causal.design import shown
from verifair.systems.cst.causal.nodes import Node


def graph_of(nodes: Sequence[Node]) -> nx.DiGraph:
    """Return the graph. Raises SchemaError for no nodes, a repeated name, a parent that is no node, and a cycle, which it names."""
    if not nodes:
        raise SchemaError("the causal model has no nodes; describe each variable in a [[causal.node]] section")
    names = [node.name for node in nodes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"node {twice[0]!r}: is described twice; give each variable one [[causal.node]] section")
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    for node in nodes:
        for parent in node.parents:
            if parent not in graph:
                raise SchemaError(
                    f"node {node.name!r}: parent {parent!r} is no node; {nearest(parent, names)}; a root needs a section too"
                )
            graph.add_edge(parent, node.name)
    if not nx.is_directed_acyclic_graph(graph):
        steps = [edge[0] for edge in nx.find_cycle(graph)]
        cycle = " -> ".join([*steps, steps[0]])
        raise SchemaError(f"the graph has a cycle: {cycle}; causes cannot run in circles: drop one of these edges")
    return graph


def check_columns(frame: pd.DataFrame, nodes: Collection[str]) -> None:
    """Raise DataError if it is no table, has no rows, or if a node's column is absent, repeated, or has missing values."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"found {type(frame).__name__}; expected a DataFrame with a column for each node")
    if not len(frame):
        raise DataError("the table has no rows; a causal model needs rows to be fitted and asked")
    columns = list(frame.columns)
    for name in nodes:
        match columns.count(name):
            case 0:
                raise DataError(
                    f"node {name!r}: is no column of the table ({nearest(name, columns)}); a hidden variable cannot be seen in a "
                    "row: add its column, or drop the node and let the noise stand for it"
                )
            case 1:
                pass
            case times:
                raise DataError(f"column {name!r}: stands {times} times in the table; rename or drop the others")
        _check_values(frame[name])


def _check_values(column: pd.Series) -> None:
    missing = column.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"column {column.name!r}: {int(missing.sum())} of {len(column)} rows have no value, the first is row "
            f"{shown(column.index[missing.argmax()])}; drop such rows, or fill them in (--missing drop, or most-frequent)"
        )
    if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
        raise DataError(f"column {column.name!r}: holds dates; turn them into a number, such as years")
    if pd.api.types.is_float_dtype(column.dtype) and not np.isfinite(column.to_numpy(dtype=np.float64)).all():
        raise DataError(f"column {column.name!r}: holds infinite values; correct them or leave such rows out")


def check_attributes(graph: nx.DiGraph, names: Mapping[str, Any]) -> None:
    """Raise QueryError for an empty intervention, and for one on a name that is no node, or no root, of the graph."""
    if not isinstance(names, Mapping) or not names:
        raise QueryError('do names no attribute; say which value the others have, such as do = { sex = "Male" }')
    for name in names:
        if name not in graph:
            raise QueryError(f"attribute {name!r}: is no node of the causal model; {nearest(name, graph)}")
        parents = sorted(map(str, graph.predecessors(name)))
        if parents:
            raise QueryError(
                f"attribute {name!r}: has the parent{'s' if len(parents) > 1 else ''} {', '.join(parents)}, but a protected "
                "attribute has to be a root of the graph: drop its parents, or ask about them instead"
            )


def known_value(name: str, value: Any, known: pd.Series) -> Any:
    """Return the column's value whose text is that of `value`: "0", 0 and 0.0 are the same.

    known: (M,) distinct values of the column.   Raises QueryError, which lists the known values, where none matches.
    """
    match: dict[str, Any] = {}
    for v in known.tolist():
        if match.setdefault(text(v), v) != v:
            raise DataError(f"column {name!r}: writes one value in two ways, {match[text(v)]!r} and {v!r}; make them the same")
    if pd.api.types.is_bool_dtype(known.dtype):
        match |= {word: v for v in known.tolist() for word in ((str(int(v)), str(v).lower()))}
    word = text(int(value)) if isinstance(value, (bool, np.bool_)) and text(value) not in match else text(value)
    if word not in match:
        names = sorted(text(v) for v in known.tolist())
        raise QueryError(f"do {name} = {value!r}: no row has that value; known are {listed(names, 12)}")
    return match[word]
