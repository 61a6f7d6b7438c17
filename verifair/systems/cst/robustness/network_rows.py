"""Counterfactuals of rows by a causal model, and a network's decisions on both, in the schema's raw values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from encoders.model import Model
from encoders.onnx.runtime import predictions
from solvers import clock
from verifair.checker.certificates.statement import CounterfactualQuery, Equation, Term
from verifair.checker.kinds.counterfactuals import Enclosure, reach
from verifair.engine.questions import decisions
from verifair.errors import QueryError
from verifair.schema.feature import text
from verifair.schema.rows import block_of
from verifair.schema.schema import Schema
from verifair.systems.cst.causal.design import is_number
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.robustness.alternatives import Alternatives
from verifair.systems.cst.robustness.cells import Dependence, Part
from verifair.systems.cst.robustness.effects import Coefficient, Effects, Errors, quantile

MAX_CORNERS = 256
"""Corners of the coefficients' box that are tried for every row: all of them for up to eight coefficients."""
ROWS_AT_ONCE = 20_000
"""Rows of network inputs held in memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkRows:
    """N counterfactuals of P rows of a table under one intervention: one of each row, or one for each possible choice of
    categories.

    t: standard errors to which the coefficients' intervals reach.   row: (N,) positions among the P rows, in their order.
    probability: (N,) of the categories, given the row.   left: (P,) that of categories left out.   raw: (N, V) of the rows,
    base: (N, V) with the values of do and the categories.   chosen: (N, c) raw values of the categories.   factual: (N,) classes.
    values: (N, m) of the nodes, change: (N, p), see `Effects`.
    position: (m,) each node's position among the features, -1 if the network does not take it.
    outside: attributes that the network does not take -> their words.
    extra: (N, A) raw values of these.   set_to: raw values of everything in do.   basis: for each coefficient, the factor that
    each raw value of its parent stands for (None: the raw value itself).
    """

    network: Model
    schema: Schema
    effects: Effects
    t: float
    row: Integers
    probability: Array
    left: Array
    raw: Array
    base: Array
    chosen: Array
    factual: Integers
    values: Array
    change: Array
    position: Integers
    outside: Mapping[str, tuple[str, ...]]
    extra: Array
    set_to: Mapping[str, float]
    basis: tuple[tuple[float, ...] | None, ...]

    @classmethod
    def of(
        cls, model: CausalModel, network: Model, schema: Schema, frame: pd.DataFrame, rows: Integers, do: Mapping[str, Any],
        errors: Errors | None, *, level: float, simultaneous: bool, alternatives: int,
    ) -> NetworkRows:
        """Return the counterfactuals of the given rows.   alternatives: most counterfactuals of each row.

        Raises QueryError, SchemaError, DataError if model, schema and table do not fit each other."""
        settled, schema = schema.settled(network)
        network = schema.judges(settled)
        _check_read_once(schema, frame, [*do, *model.descendants(list(do))])
        position = {feature.source: v for v, feature in enumerate(schema.features)}
        effects = Effects.of(model, do, needed=position, errors=errors)
        for name in effects.nodes:
            if not is_number(frame[name]) or (name in position and not schema.features[position[name]].numeric):
                raise QueryError(f"node {name!r}: holds categories; only numbers have linear equations: drop it, or its parents")
        fixed = (*do, *effects.categories)
        if not any(name in position for name in (*fixed, *effects.nodes)):
            raise QueryError(
                f"do changes nothing that the network takes: neither {', '.join(do)} nor what they cause is a feature of the "
                "schema; check the names of the schema's columns against those of the causal model"
            )
        people = frame.iloc[rows]
        worlds = Alternatives.of(model, people, do, {*effects.nodes, *effects.categories}, max_per_row=alternatives)
        sources = people.iloc[worlds.row]
        raw = schema.raw(people)[worlds.row]
        observed = {
            name: [*pd.unique(frame[name]).tolist(), *pd.unique(worlds.frame[name]).tolist()] for name in (*fixed, *effects.nodes)
        }
        words = {
            name: () if is_number(frame[name]) else tuple(sorted({text(value) for value in observed[name]}))
            for name in (*fixed, *effects.nodes) if name not in position
        }
        extra = np.column_stack([np.empty((len(sources), 0)), *(_outside(sources[name], words[name]) for name in words)])
        after = {
            name: _raw(worlds.frame[name], partial(schema.raw_value, schema.features[position[name]].name)) if name in position
            else _outside(worlds.frame[name], words[name])
            for name in fixed
        }
        base = raw.copy()
        for name in fixed:
            if name in position:
                base[:, position[name]] = after[name]
        values, change = effects.values(people)[worlds.row], effects.changes(sources, worlds.frame)
        t = quantile(level, int((effects.errors > 0).sum()), simultaneous=simultaneous)
        effects.check_categories(values, change, t)
        return cls(
            network=network, schema=schema, effects=effects, t=t, row=worlds.row, probability=worlds.probability, left=worlds.left,
            raw=raw, chosen=np.column_stack([np.empty((len(sources), 0)), *(after[name] for name in effects.categories)]),
            base=base, factual=decisions(network, schema.encode(raw)), values=values, change=change,
            position=np.array([position.get(name, -1) for name in effects.nodes], dtype=np.int64), outside=words, extra=extra,
            set_to={
                name: schema.raw_value(schema.features[position[name]].name, value) if name in position
                else float(words[name].index(text(value)) if words[name] else value)
                for name, value in do.items()
            },
            basis=tuple(
                _basis(term, observed.get(term.parent, []), schema, position, words) if term.parent in fixed else None
                for term in effects.coefficients
            ),
        )

    def __len__(self) -> int:
        return len(self.raw)

    def also(self, row: int) -> tuple[float, ...]:
        """Return the row's raw values of attributes that the network does not take."""
        return tuple(self.extra[row].tolist())

    def corners(self, low: Array, high: Array) -> Array:
        """(T, p) corners of a box of coefficients: all, or MAX_CORNERS random ones where there are more."""
        uncertain = np.flatnonzero(high > low)
        if 1 << len(uncertain) <= MAX_CORNERS:
            is_high = (np.arange(1 << len(uncertain))[:, None] >> np.arange(len(uncertain)) & 1).astype(bool)
        else:
            is_high = np.random.default_rng(0).random((MAX_CORNERS, len(uncertain))) < 0.5
        theta = np.tile(low, (len(is_high), 1))
        theta[:, uncertain] = np.where(is_high, high[uncertain], low[uncertain])
        return theta

    def decided(self, theta: Array, rows: Integers) -> tuple[Integers, Booleans]:
        """(T, R) classes of the counterfactuals of rows (R,) for coefficients theta (T, p), and whether the schema allows these."""
        clock.spend(2 * len(theta) * len(rows) * self.network.work)
        nodes = self.effects.counterfactuals(self.values[rows], self.change[rows], theta)
        raw = self._legal(np.tile(self.base[rows], (len(theta), 1, 1)), nodes)
        flat = raw.reshape(-1, raw.shape[2])
        classes, legal = decisions(self.network, self.schema.encode(flat)), self.schema.inside(flat)
        return classes.reshape(raw.shape[:2]), legal.reshape(raw.shape[:2])

    def decided_each(self, rows: Integers, theta: Array) -> tuple[Integers, Booleans]:
        """(R,) classes of the counterfactuals of single rows (R,) for coefficients of their own, theta (R, p)."""
        classes, legal = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=bool)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            k = rows[part]
            nodes = self.effects.counterfactuals(self.values[k], self.change[k], theta[None, part])[0]
            raw = self._legal(self.base[k], nodes)
            classes[part], legal[part] = decisions(self.network, self.schema.encode(raw)), self.schema.inside(raw)
        return classes, legal

    def _legal(self, raw: Array, values: Array) -> Array:
        """Raw rows (..., V) with the nodes' values (..., m) as the schema allows them: rounded where whole, clipped."""
        domain, raw = self.schema.domain, raw.copy()
        used = np.flatnonzero(self.position >= 0)
        v = self.position[used]
        rounded = np.where(domain.integer[v], np.rint(values[..., used]), values[..., used])
        raw[..., v] = np.clip(rounded, domain.lower[v], domain.upper[v])
        return raw

    def enclosure(self, rows: Integers, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Raw boxes (R, V), (R, V) that hold the counterfactuals of rows (R,) for coefficients in low .. high, (p,) or (R, p); and
        (R,) how wide they are in network inputs, before whole numbers are made of them."""
        domain = self.schema.domain
        low, high = (np.broadcast_to(end, (len(rows), len(self.effects))) for end in (low, high))
        ends = self.effects.enclosure(self.values[rows], self.change[rows], low, high)
        used = np.flatnonzero(self.position >= 0)
        width = ((ends[1] - ends[0])[:, used] / domain.scale[self.position[used]]).sum(axis=1)
        return self._legal(self.base[rows], ends[0]), self._legal(self.base[rows], ends[1]), width

    def clipped(self, low: Array, high: Array) -> Booleans:
        """(N,) whether some coefficients in low .. high may lead out of the schema's ranges."""
        domain, used = self.schema.domain, np.flatnonzero(self.position >= 0)
        lower, upper = self.effects.enclosure(self.values, self.change, low, high)
        v = self.position[used]
        return np.asarray(((lower[:, used] < domain.lower[v]) | (upper[:, used] > domain.upper[v])).any(axis=1))

    def query(self, low: Array, high: Array, origin: str) -> CounterfactualQuery:
        """Return the equations with the coefficients' intervals, as a certificate states them."""
        name = {feature.source: feature.name for feature in self.schema.features}
        equations = []
        for n, node in enumerate(self.effects.nodes):
            terms = tuple(
                Term(parent=name.get(term.parent, term.parent), low=float(low[k]), high=float(high[k]), values=self.basis[k])
                for k, term in enumerate(self.effects.coefficients) if term.node == node
            )
            span = self.effects.range[n]
            equations.append(Equation(
                node=name.get(node, node), terms=terms, range=None if span is None else (float(span[0]), float(span[1])),
                decimals=self.effects.decimals[n], logarithmic=self.effects.logarithmic[n],
            ))
        return CounterfactualQuery(
            kind="counterfactual-decision", do={name.get(attribute, attribute): value for attribute, value in self.set_to.items()},
            equations=tuple(equations), origin=origin, also=dict(self.outside),
            categories=tuple(name.get(attribute, attribute) for attribute in self.effects.categories),
        )

    def exact_box(self, query: CounterfactualQuery, part: Part) -> tuple[Array, Array]:
        """The box (V,), (V,) of a part without padding: rational arithmetic, the ends rounded outwards to float64."""
        box = self._reach(query, part)
        low, high = (np.array([float(end) for end in ends]) for ends in (box.low, box.high))
        low_inside = np.array([Fraction(value) > end for value, end in zip(low.tolist(), box.low, strict=True)])
        high_inside = np.array([Fraction(value) < end for value, end in zip(high.tolist(), box.high, strict=True)])
        return np.where(low_inside, np.nextafter(low, -np.inf), low), np.where(high_inside, np.nextafter(high, np.inf), high)

    def _point(self, query: CounterfactualQuery, row: int, theta: Array) -> Array | None:
        """Return the counterfactual (V,) for one coefficient vector, rounded to the nearest float64; None where it is ambiguous or
        the schema forbids it."""
        box = self._reach(query, Part.at(row, theta))
        raw, upper = (np.array([float(end) for end in ends]) for ends in (box.low, box.high))
        return raw if (raw == upper).all() and self.schema.inside(raw[None])[0] else None

    def _reach(self, query: CounterfactualQuery, part: Part) -> Enclosure:
        k = part.row
        return reach(query, tuple(self.raw[k].tolist()), self.also(k), tuple(self.chosen[k].tolist()), part.cell, self.schema)

    def dependences(self, query: CounterfactualQuery, pairs: Sequence[tuple[int, Array]]) -> dict[int, Dependence]:
        """Return those pairs (row, coefficients (p,)) that exact evaluation confirms to decide otherwise than the estimates."""
        candidates, points = [], []
        for row, theta in pairs:
            counterfactuals = [self._point(query, row, coefficients) for coefficients in (self.effects.estimates, theta)]
            if all(point is not None for point in counterfactuals):
                candidates.append((row, theta))
                points += counterfactuals
        if not candidates:
            return {}
        raw = np.array(points)
        x = self.schema.encode(raw)
        logits, decided = self.network.forward(x), decisions(self.network, x)
        margins = logits[:, 0] if self.network.outputs == 1 else logits[:, 1] - logits[:, 0]
        runtime = decided if self.network.source is None else predictions(self.network, x.astype(np.float32))
        dependences = {}
        for k, (row, theta) in enumerate(candidates):
            a, b = 2 * k, 2 * k + 1
            classes = int(decided[a]), int(decided[b])
            if set(classes) == {0, 1}:
                dependences[row] = Dependence(
                    coefficients=(tuple(self.effects.estimates.tolist()), tuple(theta.tolist())),
                    counterfactuals=(self.schema.decode(raw[a]), self.schema.decode(raw[b])), classes=classes,
                    margins=(float(margins[a]), float(margins[b])),
                    float32_agrees=None if self.network.source is None else (int(runtime[a]), int(runtime[b])) == classes,
                )
        return dependences


def _check_read_once(schema: Schema, frame: pd.DataFrame, changed: Sequence[str]) -> None:
    """Raise QueryError where the equations, which are about features, would miss a change of the network's inputs.

    changed: columns that the intervention may change.
    """
    for name in changed:
        readers = [feature.name for feature in schema.features if feature.source == name]
        if len(readers) > 1:
            raise QueryError(
                f"column {name!r}: do may change it, and the features {', '.join(readers)} are both read from it; a certificate's "
                "equations are about one feature each: take a network that reads the column once"
            )
        block = [feature.name for feature in schema.features if feature.source not in frame.columns and name in block_of(feature)]
        if block:
            raise QueryError(
                f"column {name!r}: do may change it, and it is one of a block that the one-hot feature {block[0]!r} is read from; "
                f"write the block as one column of words, {block[0]!r}, in the table and in the causal model"
            )
        if not readers and any(feature.name == name for feature in schema.features):
            raise QueryError(
                f"column {name!r}: do may change it, and the feature of that name is read from another column; rename the feature"
            )


def _raw(column: pd.Series, convert: Callable[[Any], float]) -> Array:
    """(N,) raw values of a column."""
    codes, values = pd.factorize(column)
    return np.asarray(np.array([convert(value) for value in values.tolist()], dtype=np.float64)[codes])


def _outside(column: pd.Series, words: tuple[str, ...]) -> Array:
    """(N,) raw values of an attribute that the network does not take."""
    return column.to_numpy(dtype=float) if not words else _raw(column, lambda value: float(words.index(text(value))))


def _basis(
    term: Coefficient, values: Sequence[Any], schema: Schema, feature: Mapping[str, int], words: Mapping[str, tuple[str, ...]],
) -> tuple[float, ...] | None:
    """Return the factor in the equation for each raw value of a coefficient's parent; None if it is the raw value itself.

    values: all values that the parent has, in rows and counterfactuals.
    """

    def counts(value: Any) -> float:
        return float(value) if term.word is None else float(text(value) == term.word)

    name = term.parent
    if name not in feature:
        return tuple(counts(word) for word in words[name]) if words[name] else None
    parent = schema.features[feature[name]]
    if parent.categories is None:
        if term.word is not None:
            raise QueryError(f"attribute {name!r}: a number in the schema, but words in the table; give both the same type")
        return None
    factors = [0.0] * len(parent.categories)  # categories not in `values` occur in no row
    for value in values:
        factors[int(schema.raw_value(parent.name, value))] = counts(value)
    return tuple(factors)
