"""Structural causal models: causes, fitted equations, and counterfactuals of rows.

Abduction, action, prediction (Pearl et al. 2016, section 4.2; CST, section 3.1): find the noise of each node from the row, set the
attribute, and compute its descendants with the same noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.arrays import Booleans
from verifair.errors import DataError, QueryError
from verifair.notebook.shown import Shown
from verifair.schema.spelling import nearest
from verifair.systems.cst.causal import checks as causal_checks
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.design import is_number, shown
from verifair.systems.cst.causal.draws import Draws
from verifair.systems.cst.causal.mechanisms import Mechanism
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.groups import blocks


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CausalModel(Shown):
    """A causal model: a directed acyclic graph of a table's columns, with a mechanism for each node that has parents.

    nodes: in any order.   fitted: node -> its mechanism; empty until `fit`.
    known: root -> the distinct values that it had in the table the model was fitted on.
    Raises SchemaError for a graph that cannot be: a cycle (named), a parent that is no node, a node described twice.
    """

    nodes: tuple[Node, ...]
    fitted: Mapping[str, Mechanism] = field(default_factory=dict)
    known: Mapping[str, pd.Series] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.graph  # noqa: B018  builds it, and so checks it

    @classmethod
    def load(cls, path: str | Path) -> CausalModel:
        """The causal model of a TOML file. Raises SchemaError. See `verifair.systems.cst.causal.file` for the format."""
        return cls(nodes=causal_file.load(path).nodes)

    @classmethod
    def loads(cls, text: str) -> CausalModel:
        """The causal model of a TOML text. Raises SchemaError."""
        return cls(nodes=causal_file.loads(text).nodes)

    @classmethod
    def build(cls, content: Mapping[str, Any]) -> CausalModel:
        """Return the causal model of a file's content, {"causal": {"node": [{"name": ...}]}}. Raises SchemaError."""
        return cls(nodes=causal_file.build(content).nodes)

    @cached_property
    def graph(self) -> nx.DiGraph:
        """Edges from cause to effect, between names."""
        return causal_checks.graph_of(self.nodes)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Names, causes before effects; ties in alphabetical order."""
        return tuple(nx.lexicographical_topological_sort(self.graph))

    @property
    def roots(self) -> tuple[str, ...]:
        """Names of the nodes without parents."""
        return tuple(node.name for node in self.nodes if not node.parents)

    def descendants(self, of: str | Sequence[str]) -> tuple[str, ...]:
        """Return the nodes that an intervention on `of` may change, causes first, without `of`. Raises QueryError."""
        names = [of] if isinstance(of, str) else list(of)
        for name in names:
            if name not in self.graph:
                raise QueryError(f"{name!r} is no node of the causal model; {nearest(name, self.graph)}")
        below = set().union(*(nx.descendants(self.graph, name) for name in names)) - set(names)
        return tuple(name for name in self.order if name in below)

    def equations(self) -> tuple[str, ...]:
        """Return the fitted equation of each node, causes first; of a node that is not fitted only its parents."""
        lines = []
        for name in self.order:
            node = self.by_name[name]
            if not node.parents:
                lines.append(f"{name} = U")
                continue
            line = self.fitted[name].equation(name) if name in self.fitted else f"{name} = f({', '.join(node.parents)}, U)"
            lines.append(f"{line}, {node.bounds}" if node.bounds else line)
        return tuple(lines)

    def fit(self, frame: pd.DataFrame, *, seed: int = 0) -> CausalModel:
        """Return this model with its mechanisms fitted to a table.   seed: of estimators that draw.

        Raises DataError, SchemaError for a table that does not fit the graph, or cannot tell the effects of parents apart.
        """
        causal_checks.check_columns(frame, self.order)
        fitted = {
            name: self.by_name[name].mechanism.fit(frame[list(self.by_name[name].parents)], frame[name], seed=seed)
            for name in self.order
            if self.by_name[name].parents
        }
        return replace(self, fitted=fitted, known={name: _distinct(frame[name]) for name in self.roots})

    def check(self, frame: pd.DataFrame, do: Mapping[str, Any]) -> dict[str, Any]:
        """Return an intervention `do` (root -> value) with its values in the table's type.

        Raises DataError for a table that does not fit, QueryError for an attribute that is no root, or a value that no row has.
        """
        causal_checks.check_attributes(self.graph, do)
        causal_checks.check_columns(frame, self.order)
        return {name: causal_checks.known_value(name, value, self._known_values(frame[name])) for name, value in do.items()}

    def _known_values(self, column: pd.Series) -> pd.Series:
        """Return the distinct values of a root, in this table and in the one that the model was fitted on."""
        current, fitted = _distinct(column), self.known.get(str(column.name))
        if fitted is None or is_number(current) != is_number(fitted):
            return current
        seen = set(current.tolist())
        additional = [value for value in fitted.tolist() if value not in seen]
        return pd.Series([*current.tolist(), *additional]) if additional else current

    def counterfactual(self, frame: pd.DataFrame, do: Mapping[str, Any], *, seed: int = 0) -> pd.DataFrame:
        """Return the counterfactual of each row under `do`: a table with the same index and columns.

        do: root -> the value it is set to; several roots are one joint intervention. Only these columns and their descendants
        change. A node none of whose parents changed keeps its exact value. Types are kept, except that whole numbers become floats
        if the prediction needs it.   seed: of noise that a row does not determine (categorical nodes); a row's noise is the same
        whichever other rows there are, if the index has each name once.
        Raises DataError, QueryError as `check` does, and QueryError before `fit`.
        """
        values = self.check(frame, do)
        unfitted = [name for name in self.order if self.by_name[name].parents and name not in self.fitted]
        if unfitted:
            raise QueryError(f"node {unfitted[0]!r}: the causal model is not fitted; call fit with a table first")
        result = self.set_to(frame, values)
        changed: dict[str, Booleans] = {name: np.asarray(frame[name] != value, dtype=bool) for name, value in values.items()}
        for name in self.descendants(list(values)):
            parent_changes = [changed[parent] for parent in self.by_name[name].parents if parent in changed]
            rows = np.logical_or.reduce(parent_changes)
            if rows.any():
                result[name], changed[name] = self.predicted(name, frame, result, rows, seed=seed)
        return result

    def set_to(self, frame: pd.DataFrame, do: Mapping[str, Any]) -> pd.DataFrame:
        """Return the table with the columns of `do` set to its values.   do: as `check` returns it."""
        result = frame.copy(deep=False)
        for name, value in do.items():
            result[name] = _constant_column(frame[name], value)
        return result

    def predicted(
        self, name: str, frame: pd.DataFrame, result: pd.DataFrame, rows: Booleans, *, seed: int
    ) -> tuple[pd.Series, Booleans]:
        """Return the node's column under the intervention, and (N,) True where it changed.   rows: (N,) where a parent changed."""
        node, mechanism = self.by_name[name], self.fitted[name]
        parents = list(node.parents)
        factual, draws = frame[name], Draws.of(frame.index, node=name, seed=seed)
        before, after, child = frame[parents], result[parents], factual
        if not rows.all():
            before, after, child, draws = before[rows], after[rows], child[rows], draws.take(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.concatenate([
                mechanism.value(after.iloc[part], mechanism.noise(before.iloc[part], child.iloc[part], draws.take(part)))
                for part in blocks(len(child))  # noises of categories take many times their rows' memory
            ])
        if np.issubdtype(np.asarray(values).dtype, np.number):
            values = node.bounded(np.asarray(values, dtype=np.float64))
            if not np.isfinite(values).all():
                position = int(np.argmax(~np.isfinite(values)))
                raise DataError(
                    f"node {name!r}: its equation makes {values[position]:g} of row {shown(child.index[position])}; give the node "
                    "a range, or correct its coefficients"
                )
        column = _with_values(factual, values, rows)
        return column, np.asarray(column != factual, dtype=bool)


def _distinct(column: pd.Series) -> pd.Series:
    return pd.Series(pd.unique(column))


def _constant_column(column: pd.Series, value: Any) -> pd.Series:
    """Return a column of the same type that holds this value in every row."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype) and value not in dtype.categories:
        dtype = pd.CategoricalDtype([*dtype.categories, value], ordered=dtype.ordered)
    return pd.Series(value, index=column.index, name=column.name).astype(dtype)


def _with_values(column: pd.Series, values: Any, rows: Booleans) -> pd.Series:
    """Return the column with values (R,) in the R rows that `rows` (N,) marks, in the column's type if that can hold them."""
    new, dtype = np.asarray(values), column.dtype
    if np.issubdtype(new.dtype, np.number) and pd.api.types.is_numeric_dtype(dtype) and not _holds(dtype, new):
        dtype = np.dtype(np.float64)
    kind = object if isinstance(dtype, pd.CategoricalDtype) else dtype
    result = column.astype(kind).to_numpy(copy=True)
    result[rows] = new
    return pd.Series(result, index=column.index, name=column.name).astype(dtype)


def _holds(dtype: Any, values: npt.NDArray[Any]) -> bool:
    """Return True if a numeric column type can hold the values (R,): integer types hold whole numbers within their limits,
    boolean ones none."""
    numpy_type = dtype.numpy_dtype if isinstance(dtype, pd.ArrowDtype) else dtype  # Arrow's type is int or float, whatever its size
    if pd.api.types.is_float_dtype(dtype):
        return bool((np.abs(values) <= np.finfo(numpy_type.type).max).all())
    if not pd.api.types.is_integer_dtype(dtype):
        return bool(values.dtype == dtype)
    limits = np.iinfo(numpy_type.type)
    return bool(((np.round(values) == values) & (values >= limits.min) & (values < float(limits.max) + 1)).all())
