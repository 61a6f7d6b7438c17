"""From statements and trees to leaves: what has to be shown, on which box of raw values, for the checker to accept a proof.

Every function here returns the reason for a rejection as text, or the thing asked for: a certificate that is wrong is an
ordinary result of checking, no exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from encoders.network import Array, Network
from verifair.schema import Schema
from verifair.verify.certificate import BoxStatement, FairnessQuery, Proof, RowsQuery, RowStatement, Statement, Tree

Booleans = npt.NDArray[np.bool_]

GOALS = {
    "observed": ((1.0, -1.0),),
    "flipped": ((-1.0, 1.0),),
    "robust": ((1.0, 0.0),),
    "no-flip": ((-1.0, 0.0), (0.0, 1.0), (-0.5, 0.5)),
}
"""Rows (p, q) of each goal: at every point of the box some row must have  p g(x) + q g(x') > 0  (>= 0 when not strict)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A statement as numbers: x in [lower, upper] (V,), x' = prime where `differs`, else x; g = margin.f; `rows` as in GOALS."""

    lower: Array
    upper: Array
    prime: Array
    differs: Booleans
    margin: Array
    rows: tuple[tuple[float, float], ...]
    strict: bool


def classes_of(network: Network) -> int:
    return max(2, network.outputs)


def task_of(statement: Statement, query: RowsQuery | FairnessQuery, network: Network, schema: Schema) -> Task | str:
    """What a statement asks for, or why it may not be asked."""
    domain, names = schema.domain, [feature.name for feature in schema.features]
    allowed = {"persistent-bias": ("observed", "flipped"), "robustness": ("robust",), "individual-fairness": ("no-flip",)}
    if statement.goal not in allowed[query.kind]:
        return f"a {statement.goal} statement does not belong into a {query.kind} certificate"
    stray = set(statement.prime) - (set(query.protected) & set(names))
    if stray:
        return f"prime names {', '.join(sorted(stray))}, no protected feature of the query"
    if bool(statement.prime) == (statement.goal == "robust"):
        return f"prime is {'out of place' if statement.prime else 'missing'} in a {statement.goal} statement"
    i, j = statement.classes
    if i == j or max(i, j) >= classes_of(network):
        return f"classes {i} and {j} are no two classes of the network"
    differs = np.array([name in statement.prime for name in names])
    box = _row_box(statement, query, schema) if isinstance(statement, RowStatement) else _given_box(statement, differs, schema)
    if isinstance(box, str):
        return box
    lower, upper = box
    prime = np.array([statement.prime.get(name, value) for name, value in zip(names, lower.tolist(), strict=True)])
    if not domain.legal(np.stack([lower, upper, np.where(differs, prime, lower)])).all():
        return "the statement lies outside the declared domain"
    margin = np.zeros(network.outputs)
    if network.outputs == 1:
        margin[0] = 1.0 if i > j else -1.0
    else:
        margin[i], margin[j] = 1.0, -1.0
    strict = statement.goal in ("observed", "flipped") or (statement.goal == "robust" and i > j)
    return Task(
        lower=lower, upper=upper, prime=prime, differs=differs, margin=margin, rows=GOALS[statement.goal], strict=strict
    )


def _row_box(statement: RowStatement, query: RowsQuery | FairnessQuery, schema: Schema) -> tuple[Array, Array] | str:
    domain, row = schema.domain, np.array(statement.row)
    if len(row) != domain.variables:
        return f"the row has {len(row)} values, the schema {domain.variables} features"
    if not domain.legal(row[None])[0]:
        return "the row lies outside the declared domain"
    if isinstance(query, RowsQuery) and statement.delta not in query.delta:
        return f"delta {statement.delta:g} is none of the query's"
    lower, upper = row.copy(), row.copy()
    for v, feature in enumerate(schema.features):
        still = feature.change == "fixed" or feature.protected or feature.name in query.protected
        if still or not feature.numeric or feature.unit is None:
            continue
        low, high = row[v] - statement.delta * feature.unit, row[v] + statement.delta * feature.unit
        if domain.integer[v]:
            low, high = np.ceil(low), np.floor(high)
        lower[v], upper[v] = max(low, domain.lower[v]), min(high, domain.upper[v])
    return lower, upper


def _given_box(statement: BoxStatement, differs: Booleans, schema: Schema) -> tuple[Array, Array] | str:
    lower, upper = np.array(statement.lower), np.array(statement.upper)
    if not len(lower) == len(upper) == schema.domain.variables:
        return f"the box has {len(lower)} and {len(upper)} ends, the schema {schema.domain.variables} features"
    if (lower > upper).any():
        return "the box is empty: a lower end lies above its upper end"
    if (differs & (lower != upper)).any():
        return "a protected feature is not fixed in the box"
    return lower, upper


def leaves_of(tree: Tree, task: Task, integer: Booleans) -> tuple[Array, Array, Array] | str:
    """The leaves' boxes (L, V), (L, V) and claimed bounds (L,), or why the arrays are no tree over the statement's box."""
    useless = (tree.feature == -1) & ((tree.bound < 0) | ((tree.bound == 0) & task.strict))
    if useless.any():
        return f"a leaf claims the bound {tree.bound[useless][0]:g}, which does not show the goal"
    if len(tree.feature) == 1 and tree.feature[0] == -1:
        return task.lower[None], task.upper[None], tree.bound
    pending = [(task.lower, task.upper)]
    lowers, uppers, bounds = [], [], []
    for v, cut, bound in zip(tree.feature.tolist(), tree.cut.tolist(), tree.bound.tolist(), strict=True):
        if not pending:
            return "the tree has nodes left over after its last leaf"
        lower, upper = pending.pop()
        if v < 0:
            lowers.append(lower)
            uppers.append(upper)
            bounds.append(bound)
            continue
        if v >= len(lower):
            return f"the tree splits feature {v}, which does not exist"
        last = upper[v] - 1 if integer[v] else upper[v]
        if not lower[v] <= cut <= last or (integer[v] and cut != np.floor(cut)):
            return f"the tree cuts feature {v} at {cut:g}, outside the box {lower[v]:g} .. {upper[v]:g}"
        left, right = upper.copy(), lower.copy()
        left[v], right[v] = cut, cut + 1 if integer[v] else cut
        pending += [(right, upper), (lower, left)]
    if pending:
        return f"the tree ends before its box is covered: {len(pending)} leaves are missing"
    return np.array(lowers), np.array(uppers), np.array(bounds)


def pairs_missing(query: FairnessQuery, proofs: tuple[Proof, ...], network: Network, schema: Schema) -> str | None:
    """Why the proofs do not answer a fairness query: which pair, direction or part of the box none of them covers."""
    domain, names = schema.domain, [feature.name for feature in schema.features]
    unknown = (set(query.box) | set(query.protected)) - set(names)
    if unknown or not query.protected or len(set(query.protected)) < len(query.protected):
        return f"the query names features that are unknown, or none or one twice as protected: {sorted(unknown)}"
    lower, upper = domain.lower.copy(), domain.upper.copy()
    for name, (low, high) in query.box.items():
        v = names.index(name)
        if not domain.lower[v] <= low <= high <= domain.upper[v]:
            return f"the query's box of {name} lies outside the declared domain"
        lower[v], upper[v] = (np.ceil(low), np.floor(high)) if domain.integer[v] else (low, high)
    protected = [names.index(name) for name in query.protected]
    if not domain.integer[protected].all():
        return "a protected feature is real-valued: its pairs cannot be counted"
    classes = classes_of(network)
    if (lower > upper).any():
        return "the query's box is empty"
    sizes = upper[protected] - lower[protected] + 1
    count = float(np.prod(sizes))
    partners = float(np.prod(sizes - 1)) if query.differ == "all" else count - 1
    needed = count * partners * classes * (classes - 1) / 2
    if needed > len(proofs):
        return f"{len(proofs)} proofs cannot cover the {needed:.0f} pairs and directions of the query"
    if needed == 0:
        return "the query's box is empty, or leaves its protected features no two values: it claims nothing"
    values = [np.arange(lower[v], upper[v] + 1) for v in protected]
    shared = np.array([v for v in range(len(names)) if v not in protected], dtype=np.int64)
    covered = {
        _direction(proof.statement, protected, query.protected)
        for proof in proofs
        if isinstance(proof.statement, BoxStatement)
        and set(proof.statement.prime) == set(query.protected)
        and len(proof.statement.lower) == len(proof.statement.upper) == len(names)
        and (np.array(proof.statement.lower)[shared] <= lower[shared]).all()
        and (np.array(proof.statement.upper)[shared] >= upper[shared]).all()
    }
    points = [tuple(map(float, point)) for point in product(*values)]
    for z, other in product(points, points):
        same = [a == b for a, b in zip(z, other, strict=True)]
        if any(same) if query.differ == "all" else all(same):
            continue
        for i, j in combinations(range(classes - 1, -1, -1), 2):
            if (z, other, i, j) not in covered:
                pair = f"{dict(zip(query.protected, z, strict=True))} against {dict(zip(query.protected, other, strict=True))}"
                return f"no proof covers {pair}, class {i} to {j}, on the query's box"
    return None


def _direction(
    statement: BoxStatement, protected: list[int], names: tuple[str, ...]
) -> tuple[tuple[float, ...], tuple[float, ...], int, int]:
    """(z, z', i, j) with i > j: from i to j between z and z' is the same as from j to i between z' and z."""
    z, other = tuple(statement.lower[v] for v in protected), tuple(statement.prime[name] for name in names)
    i, j = statement.classes
    return (z, other, i, j) if i > j else (other, z, j, i)
