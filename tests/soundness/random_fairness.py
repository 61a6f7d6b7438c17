"""Tiny random fairness queries in the schema's own words, nasty on purpose; `fairness_truth` knows the answers.

Features are integers (scaled or not), categories with codes, one-hot blocks, and real intervals so short that float32 has a handful
of numbers in them; one or two are protected, rows may be forbidden, some integers may be relaxed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

import verifair as vf
from encoders.arrays import Array, Booleans
from encoders.network import Network
from tests.brute_force import exact_forward
from tests.builders import categorical, integer, one_hot, real, schema_of
from tests.soundness.random_twins import STYLES, nasty_network
from verifair.checker.partition import Partition
from verifair.engine.questions import box_of
from verifair.errors import QueryError, SchemaError
from verifair.systems.hyfair.certify.partition import located

STYLES_HERE = (*STYLES, "blind", "giant", "dust", "saturated")
"""blind: protected columns carry no weight.   giant, dust: weights about 1e30 and 1e-30.   saturated: logits of +-1000."""
PROTECTED = ("sex", "race")
OFFS = (0.0, 1e-15, -1e-15, 1e-12, -1e-12, 1e-9, -1e-9, 1e-6, -1e-6)
"""From the largest gap of a query to the epsilon that is asked about."""
LARGEST = 200
"""Rows of a box that are still listed."""


def random_case(seed: int, style: str, *, epsilon: bool = False, constrained: bool | None = None, relaxed: bool = True) -> Case:
    """A random query. With `epsilon` the bound is random; `near` is what brings it next to the truth."""
    rng = np.random.default_rng([seed, STYLES_HERE.index(style)])
    while True:
        features = _features(rng)
        constraints = _constraints(rng, features) if (rng.random() < 0.5 if constrained is None else constrained) else []
        try:
            schema = schema_of(*features, positive=str(rng.choice(["logit > 0", "class = 1"])), constraints=constraints)
            break
        except SchemaError:
            continue  # constraints that forbid nothing, or everything
    protected = [f.name for f in schema.features if f.name in PROTECTED]
    shiftable = [f.name for f in schema.features if f.kind == "integer" and f.affine == (0.0, 1.0) and f.name not in PROTECTED]
    relax = {name: int(rng.integers(1, 3)) for name in shiftable[:1] if relaxed and rng.random() < 0.5}
    query = vf.IndividualFairness(
        model=_network(rng, schema, style, protected),
        schema=schema,
        protected=protected,
        box=_box(rng, schema),
        epsilon=float(rng.choice([1e-9, 0.001, 0.01, 0.1, 0.3, 0.9, 1 - 1e-9])) if epsilon else None,
        differ=str(rng.choice(["all", "any"])),
        relax=relax,
        signs="deployed" if epsilon or rng.random() < 0.5 else "strict",
    )
    return Case(query=query, seed=seed, style=style)


def _features(rng: np.random.Generator) -> list[dict[str, Any]]:
    features = [_protected(rng, name) for name in PROTECTED[: int(rng.integers(1, 3))]]
    kinds = rng.choice(["integer", "scaled", "categorical", "one-hot", "real"], int(rng.integers(1, 4)), replace=False)
    features += [_shared(rng, str(kind)) for kind in kinds]
    return [features[k] for k in rng.permutation(len(features))]


def _protected(rng: np.random.Generator, name: str) -> dict[str, Any]:
    most = int(rng.integers(1, 3))
    names = ["a", "b", "c"][: most + 1]
    options: list[dict[str, Any]] = [
        {"kind": "integer", "range": (0, most)},
        {"kind": "integer", "range": (-1, most - 1), "scale": "minmax"},
        {"kind": "integer", "range": (5, 5 + most), "scale": {"offset": 5.5, "scale": 3.0}},
        {"kind": "categorical", "categories": names, "codes": [3, 5, 7][: most + 1]},
        {"kind": "categorical", "categories": names},
        {"kind": "one-hot", "categories": names},
    ]
    return {"name": name, **options[rng.integers(0, len(options))]}


def _shared(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    names = [f"v{k}" for k in range(int(rng.integers(2, 4)))]
    if kind == "real":
        low = float(rng.choice([0.0, 1.0, -3.0, 1e-30, 1000.0]))
        width = float(rng.integers(1, 4)) * float(np.spacing(np.float32(abs(low) or 1e-40)))
        scale = "none" if low in (0.0, 1e-30) or rng.random() < 0.6 else {"offset": 0.25, "scale": 3.0}
        return real("income", low, low + width, scale=scale)
    if kind == "integer":
        low = int(rng.integers(-4, 3))
        return integer("age", low, low + int(rng.integers(0, 6)))
    if kind == "scaled":
        return integer("hours", 1, int(rng.integers(2, 7)), scale={"offset": 2.5, "scale": 7.0})
    if kind == "categorical":
        codes = [3, 5, 7][: len(names)] if rng.random() < 0.5 else None
        return categorical("job", *names, codes=codes)
    return one_hot("town", *names)


def _constraints(rng: np.random.Generator, features: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for _ in range(int(rng.integers(1, 4))):
        some = [features[k] for k in rng.permutation(len(features))[: int(rng.integers(1, 3))]]
        if rng.random() < 0.5 or len(some) < 2:
            out.append({"never": {f["name"]: _condition(rng, f) for f in some}})
        else:
            out.append({"if": {some[0]["name"]: _condition(rng, some[0])}, "then": {some[1]["name"]: _condition(rng, some[1])}})
    return out


def _condition(rng: np.random.Generator, feature: Mapping[str, Any]) -> Any:
    if "categories" in feature:
        names = feature["categories"]
        return [str(n) for n in rng.choice(names, int(rng.integers(1, len(names))), replace=False)]
    low, high = feature["range"]
    if feature["kind"] == "real":  # at, or one float64 beside, the border between two inputs
        step = float(np.spacing(np.float32(abs(low) or 1e-40)))
        end = low + step * float(rng.choice([0.25, 0.5, 1.0, 1.5]))
        end = float(min(high, max(low, rng.choice([np.nextafter(end, -np.inf), end, np.nextafter(end, np.inf)]))))
    else:
        end = int(rng.integers(low, high + 1))
    return rng.choice([{"low": end}, {"high": end}, {"low": end, "high": end}])  # type: ignore[arg-type]


def _box(rng: np.random.Generator, schema: vf.Schema) -> dict[str, Any]:
    """Of about half the numbers that are not protected, a part of their range."""
    box: dict[str, Any] = {}
    for feature in schema.features:
        if feature.range is not None and feature.name not in PROTECTED and rng.random() < 0.4:
            low, high = feature.range
            whole = feature.kind == "integer"
            ends = np.sort(rng.integers(int(low), int(high) + 1, 2) if whole else rng.uniform(low, high, 2))
            box[feature.name] = (float(ends[0]), float(ends[1]))
    return box


def _network(rng: np.random.Generator, schema: vf.Schema, style: str, protected: list[str]) -> Network:
    depth, width = int(rng.choice([0, 1, 1, 2, 2, 3])), int(rng.choice([1, 3, 6]))
    outputs = 1 if schema.positive == "logit > 0" else 2
    base = style if style in STYLES else "plain"
    network = nasty_network(rng, schema.domain.columns, base, depth=depth, width=width, outputs=outputs)
    layers = list(network.layers)
    match style:
        case "blind":
            weight = layers[0].weight.copy()
            weight[:, schema.domain.columns_of(np.array([schema.index(name) for name in protected]))] = 0.0
            layers[0] = replace(layers[0], weight=weight)
        case "giant" | "dust":
            factor = 1e30 if style == "giant" else 1e-30
            k = int(rng.integers(0, len(layers)))
            layers[k] = replace(layers[k], weight=_float32(layers[k].weight * factor), bias=_float32(layers[k].bias * factor))
        case "saturated":
            layers[-1] = replace(layers[-1], weight=_float32(layers[-1].weight * 1000), bias=_float32(layers[-1].bias * 1000))
    network = replace(network, layers=tuple(layers), source_sha256=hashlib.sha256(rng.bytes(8)).hexdigest())
    return _centred(rng, network, schema) if rng.random() < 0.8 else network


def _centred(rng: np.random.Generator, network: Network, schema: vf.Schema) -> Network:
    """The same network with its last bias such that a random row's logit is about 0 (often exactly)."""
    domain = schema.domain
    share = rng.random((1, domain.variables))
    row = np.where(
        domain.integer,
        np.clip(domain.lower + np.floor(share * (domain.upper - domain.lower + 1)), domain.lower, domain.upper),
        np.clip(domain.lower + share * (domain.upper - domain.lower), domain.lower, domain.upper),
    )
    out = network.forward(schema.encode(row))[0]
    last = network.layers[-1]
    bias = last.bias - (out if network.outputs == 1 else np.array([0.0, out[1] - out[0]]))
    if not np.isfinite(_float32(bias)).all():
        return network
    return replace(network, layers=(*network.layers[:-1], replace(last, bias=_float32(bias))))


def _float32(values: Array) -> Array:
    return values.astype(np.float32).astype(np.float64)


def near(case: Case, off: float) -> Case:
    """The same query with an epsilon next to the largest gap of all: that much above it (below, if negative); one of exactly the
    nearest float64 for off = 0. Raises ValueError where the query refuses it."""
    largest = max(case.gaps(), default=Decimal(0))
    epsilon = float(largest + Decimal(off))
    if not 1e-9 <= epsilon <= 1 - 1e-9:
        raise ValueError(f"epsilon = {epsilon}")
    return case.asking(epsilon=epsilon)


def small_cases(style: str, count: int, *, first: int = 0, **options: Any) -> Iterator[Case]:
    """The first `count` random queries from a seed on whose boxes have few enough rows and compare something."""
    seed = first
    while count:
        case = random_case(seed, style, **options)
        seed += 1
        index = [case.schema.index(name) for name in case.query.protected]
        if len(case.rows) <= LARGEST and (case.box[0][index] < case.box[1][index]).all():
            count -= 1
            yield case


def near_cases(style: str, count: int, off: float, *, first: int = 0, **options: Any) -> Iterator[Case]:
    """The same with an epsilon next to the largest gap, where there is one."""
    for case in small_cases(style, count, first=first, **options):
        try:
            yield near(case, off)
        except (ValueError, QueryError):
            continue


def verdict_of(case: Case, **options: Any) -> vf.Verdict:
    return vf.verify(case.query, budget=vf.Budget(seconds=30, nodes=options.pop("nodes", None)), **options)


# The truth about tiny fairness queries: every row of the box listed, logits in fractions, probabilities in decimals.


REAL_POINTS = 40
DIGITS = 80


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A query and, on demand, everything about all rows of its box."""

    query: vf.IndividualFairness
    seed: int
    style: str

    @property
    def schema(self) -> vf.Schema:
        return self.query.schema

    @cached_property
    def box(self) -> tuple[Array, Array]:
        return box_of(self.schema, self.query.box)

    @cached_property
    def rows(self) -> Array:
        """(N, V) legal raw rows of the box, one at least for every network input that a legal row has."""
        axes = [_values(self.schema, v, self.box[0][v], self.box[1][v]) for v in range(len(self.schema.features))]
        rows = np.array(list(product(*axes)), dtype=np.float64)
        return rows[self.schema.inside(rows)]

    @cached_property
    def logits(self) -> npt.NDArray[np.object_]:
        """(N,) exact log-odds of the positive class, as fractions."""
        return exact_logits(self.query.model, self.schema.encode(self.rows))

    @cached_property
    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions of all ordered pairs of rows that the query compares."""
        return np.nonzero(compared(self.query, self.rows, self.rows))

    @cached_property
    def first_copy(self) -> Booleans:
        """(pairs,) whether the first row of the pair has the earlier protected combination, the one that lies in a part."""
        index = [self.schema.index(name) for name in self.query.protected]
        one, two = self.rows[self.pairs[0]][:, index], self.rows[self.pairs[1]][:, index]
        return np.array([tuple(a) < tuple(b) for a, b in zip(one.tolist(), two.tolist(), strict=True)], dtype=bool)

    def wrong_parts(self, partition: Partition) -> Booleans:
        """(parts,) whether a part holds the first copy of a pair that the query forbids, in either order."""
        first, second = self.pairs
        bad = {(i, k) for i, k, is_bad in zip(first.tolist(), second.tolist(), self.wrong(), strict=True) if is_bad}
        part = located(partition, self.rows)
        out = np.zeros(partition.count, dtype=bool)
        for i, k, earlier in zip(first.tolist(), second.tolist(), self.first_copy, strict=True):
            out[part[i]] |= earlier and ((i, k) in bad or (k, i) in bad)
        return out

    @cached_property
    def flips(self) -> Booleans:
        """(pairs,) g(x) > 0 >= g(x'); g(x) > 0 > g(x') where signs are strict."""
        first, second = (self.logits[at] for at in self.pairs)
        strict = self.query.signs == "strict"
        return np.array([a > 0 and (b < 0 if strict else b <= 0) for a, b in zip(first, second, strict=True)], dtype=bool)

    @cached_property
    def probabilities(self) -> list[Decimal]:
        """(N,) sigma(g), to DIGITS digits of p and of 1 - p alike near the middle."""
        return [sigma(value) for value in self.logits]

    def gaps(self) -> list[Decimal]:
        """(pairs,) sigma(g(x)) - sigma(g(x')), to about DIGITS digits."""
        with localcontext(Context(prec=DIGITS)):
            return [self.probabilities[i] - self.probabilities[k] for i, k in zip(*self.pairs, strict=True)]

    def wrong(self) -> Booleans:
        """(pairs,) which pairs the query forbids, x first. Both orders of every pair are listed."""
        if self.query.epsilon is None:
            return self.flips
        return np.array([gap > Decimal(self.query.epsilon) for gap in self.gaps()], dtype=bool)

    def asking(self, **changes: Any) -> Case:
        """The same with other fields of the query; about probabilities, signs do not matter."""
        changes = {"signs": "deployed", **changes} if changes.get("epsilon") else changes
        return Case(query=replace(self.query, **changes), seed=self.seed, style=self.style)


def sigma(value: Fraction) -> Decimal:
    """The logistic function, to about DIGITS digits; beyond 10,000 it is 0 or 1 to 4,000 digits."""
    if abs(value) > 10_000:
        return Decimal(int(value > 0))
    with localcontext(Context(prec=DIGITS + 20, Emin=-(10**9), Emax=10**9)):
        return 1 / (1 + (-(Decimal(value.numerator) / Decimal(value.denominator))).exp())


def exact_logits(network: Network, x: Array) -> npt.NDArray[np.object_]:
    """(N,) log-odds of the positive class at network inputs x (N, n), in fractions."""
    out = exact_forward(network, x) if len(x) else np.empty((0, network.outputs), dtype=object)
    return np.asarray(out[:, 0] if network.outputs == 1 else out[:, 1] - out[:, 0], dtype=object)


def compared(query: vf.IndividualFairness, first: Array, second: Array) -> Booleans:
    """(N, M) which rows are each other's counterfactuals in the query's sense."""
    schema = query.schema
    protected = [schema.index(name) for name in query.protected]
    width = np.zeros(len(schema.features))
    for name, units in query.relax.items():
        width[schema.index(name)] = units
    apart = np.abs(first[:, None, :] - second[None, :, :])
    differ = apart[:, :, protected] > 0
    others = np.delete(apart <= width, protected, axis=2).all(axis=2)
    return np.asarray(others & (differ.all(axis=2) if query.differ == "all" else differ.any(axis=2)))


def _values(schema: vf.Schema, v: int, low: float, high: float) -> Array:
    """Raw values of one feature within [low, high], see the module's text."""
    domain = schema.domain
    if domain.integer[v]:
        return np.arange(low, high + 1)
    column = domain.take(np.array([v]))

    def encoded(raw: float) -> float:
        return float(column.encode(np.array([[raw]]))[0, 0])

    found = [low, high]
    at = low
    while encoded(at) < encoded(high):  # the last float64 with the same input, by bisection; then the next
        start, end = at, high
        while np.nextafter(start, np.inf) < end:
            middle = start + (end - start) / 2
            start, end = (middle, end) if encoded(middle) == encoded(at) else (start, middle)
        found += [start, end]
        at = end
        if len(found) > REAL_POINTS:
            raise ValueError(f"feature {v} has too many inputs in {low} .. {high} to be listed")
    if domain.forbidden is not None:
        for end in np.concatenate([domain.forbidden.lower[:, v], domain.forbidden.upper[:, v]]):
            if np.isfinite(end):
                found += [end, float(np.nextafter(end, np.inf)), float(np.nextafter(end, -np.inf))]
    values = np.unique(found)
    return values[(values >= low) & (values <= high)]
