"""Small random tables for FGCE, nasty on purpose, and the truth about them by other means: plain loops, fractions and networkx.

Ranges are powers of two and values lie on their grid, so every squared distance is exact in float64 and ties are ties. Nothing here
is taken from `verifair.systems.fgce` but the types that the answers come in.
"""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np

from encoders.arrays import Array, Booleans, Integers
from tests.builders import categorical, integer, one_hot, schema_of
from verifair.schema.feature import Feature
from verifair.schema.file import Change
from verifair.systems.fgce.space import Custom, FeatureSpace

CHANGES: tuple[Change | None, ...] = (None, "free", "free", "increase", "decrease", "fixed")
KINDS = ("integer", "real", "two", "ordered", "unordered", "one-hot", "constant", "protected", "moves", "ordered-moves")
WORDS = "abcdefghi"


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """space: with its custom rule.   raw: (N, V).   positive: (N,) the rows that may be counterfactuals."""

    space: FeatureSpace
    raw: Array
    positive: Booleans


def random_table(rng: np.random.Generator, rows: int) -> Table:
    """A table of one to five features with many equal values; sometimes all rows are the same few."""
    features = [_feature(rng, f"f{v}", str(rng.choice(KINDS))) for v in range(rng.integers(1, 6))]
    schema = schema_of(*features)
    changes = {f.name: "free" for f in schema.features if rng.random() < 0.15}
    rule = _never_all_at_once if rng.random() < 0.2 else None
    raw = np.column_stack([_values(rng, feature, rows) for feature in schema.features])
    if rng.random() < 0.25:
        raw = raw[rng.integers(0, max(rows // 3, 1), rows)]
    return Table(space=FeatureSpace.of(schema, changes, rule), raw=raw, positive=rng.random(rows) < rng.choice([0.2, 0.5]))


def _feature(rng: np.random.Generator, name: str, kind: str) -> dict[str, Any]:
    change = rng.choice(np.array(CHANGES, dtype=object))
    own = {"name": name} | ({} if change is None else {"change": change})
    low, width = int(rng.integers(-3, 4)), int(rng.choice([1, 2, 4, 8]))
    some = list(WORDS[: rng.choice([3, 4, 6])])
    match kind:
        case "integer" | "real":
            return own | {"kind": kind, "range": [low, low + width]}
        case "constant":
            return own | {"kind": "integer", "range": [low, low]}
        case "protected":
            return integer(name, 0, 1, protected=True)
        case "two":
            return own | {"kind": "categorical", "categories": ["a", "b"]}
        case "ordered":
            return own | {"kind": "categorical", "categories": list(WORDS[: rng.choice([3, 5, 9])]), "ordered": True}
        case "unordered":
            return categorical(name, *some)
        case "one-hot":
            return one_hot(name, *some, change=str(rng.choice(["free", "fixed"])))
    names = list(WORDS[: rng.choice([3, 5])])
    table = {one: [str(other) for other in rng.permutation(names)[: rng.integers(0, 3)]] for one in names if rng.random() < 0.7}
    return own | {"kind": "categorical", "categories": names, "ordered": kind == "ordered-moves", "moves": table} | (
        {"change": "free"} if kind == "moves" else {}
    )


def _values(rng: np.random.Generator, feature: Feature, rows: int) -> Array:
    low, high = feature.range or (0, len(feature.categories or ()) - 1)
    if feature.kind == "real":
        return np.asarray(low + (high - low) * rng.integers(0, 17, rows) / 16.0)
    return rng.integers(int(low), int(high) + 1, rows).astype(float)


def _never_all_at_once(before: Array, after: Array) -> Booleans:
    """A custom rule: no move changes every feature, and none changes the first one by an odd number upwards."""
    up = after[:, 0] - before[:, 0]
    return np.asarray((before == after).any(axis=1) & ~((up > 0) & (up % 2 == 1)))


# The truth

def squared(table: Table, i: int, j: int) -> Fraction:
    """The squared distance of two rows: unordered categories of more than two values are sqrt(2) apart, the rest is scaled."""
    total = Fraction(0)
    for v, feature in enumerate(table.space.schema.features):
        a, b = Fraction(float(table.raw[i, v])), Fraction(float(table.raw[j, v]))
        many = feature.categories is not None and len(feature.categories) > 2
        if many and not feature.ordered and table.space.changes[v] in ("free", "fixed"):
            total += 2 if a != b else 0
            continue
        low, high = feature.range or (0.0, len(feature.categories or ()) - 1.0)
        total += ((a - b) / Fraction(high - low)) ** 2 if high > low else 0
    return total


def allowed(table: Table, i: int, j: int) -> bool:
    """Whether row i may become row j, whatever the distance."""
    for v, feature in enumerate(table.space.schema.features):
        a, b, change = table.raw[i, v], table.raw[j, v], table.space.changes[v]
        if (change == "fixed" and a != b) or (change == "increase" and b < a) or (change == "decrease" and b > a):
            return False
        names = feature.categories or ()
        if feature.moves and a != b and names[int(a)] in feature.moves and names[int(b)] not in feature.moves[names[int(a)]]:
            return False
    custom: Custom | None = table.space.custom
    return custom is None or bool(custom(table.raw[[i]], table.raw[[j]])[0])


def true_moves(table: Table) -> dict[tuple[int, int], Fraction]:
    """(i, j) -> squared length, of every move between two rows that is allowed at any length."""
    pairs = itertools.permutations(range(len(table.raw)), 2)
    return {(i, j): squared(table, i, j) for i, j in pairs if allowed(table, i, j)}


def true_eps(moves: dict[tuple[int, int], Fraction], rows: int) -> Fraction | None:
    """The square of the smallest eps at which no row is alone that has a move at all; None where none has."""
    nearest: dict[int, Fraction] = {}
    for (i, j), length in moves.items():
        for node in (i, j):
            nearest[node] = min(length, nearest.get(node, length))
    return max((nearest[node] for node in range(rows) if node in nearest), default=None)


def true_graph(moves: dict[tuple[int, int], Fraction], rows: int, square: Fraction) -> nx.DiGraph:
    """Nodes 0 .. rows - 1; edges of squared length at most `square`, with `distance`."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(rows))
    graph.add_edges_from((i, j, {"distance": math.sqrt(length)}) for (i, j), length in moves.items() if length <= square)
    return graph


def edges_of(indptr: Integers, indices: np.ndarray) -> list[tuple[int, int]]:
    """The edges of a CSR graph, sorted; an edge stored twice stands here twice."""
    sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return sorted(zip(sources.tolist(), indices.tolist(), strict=True))


def least_cost(cost: Array, k: int, count: int) -> float:
    """The least d at which some k columns of cost (F, C) cover `count` rows, by trying all; infinite where none do."""
    best = np.inf
    for chosen in itertools.combinations(range(cost.shape[1]), min(k, cost.shape[1])):
        best = min(best, float(np.sort(cost[:, chosen].min(axis=1))[count - 1]))
    return best


def most_covered(cost: Array, k: int, limit: float) -> int:
    """The most rows of cost (F, C) that some k columns cover at cost at most `limit`, by trying all."""
    sets = itertools.combinations(range(cost.shape[1]), min(k, cost.shape[1]))
    near = np.isfinite(cost) & (cost <= limit)
    return max(int(near[:, chosen].any(axis=1).sum()) for chosen in sets)


def fewest_columns(cost: Array, limit: float = np.inf) -> int | None:
    """The fewest columns of cost (F, C) that cover all rows at cost at most `limit`, by trying all; None where none do."""
    near = np.isfinite(cost) & (cost <= limit)
    for k in range(1, cost.shape[1] + 1):
        if any(near[:, chosen].any(axis=1).all() for chosen in itertools.combinations(range(cost.shape[1]), k)):
            return k
    return None
