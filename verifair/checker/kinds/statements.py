"""Statements about rows and boxes as tasks, and the check that those of a file answer its whole query.

Functions return either their result or the reason for a rejection as text: a wrong certificate is an ordinary result of checking,
not an exception.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np

from encoders.arrays import Array
from encoders.model import Model
from encoders.probability.logistic import GapGoal
from verifair.checker.certificates.certificate import Proof
from verifair.checker.certificates.statement import BoxQuery, BoxStatement, CounterfactualQuery, RowsQuery, RowStatement
from verifair.checker.kernel.tasks import StatedGoal, Task, classes_of, question_flaw, stated_goal
from verifair.schema.space import InputSpace


def judged(query: BoxQuery | CounterfactualQuery, network: Model, schema: InputSpace) -> Model:
    """Return the model whose margins the proofs are about: that of decisions, or for probabilities the log-odds of decision 1."""
    if isinstance(query, BoxQuery) and query.classes == "any":
        return schema.compares(network)
    return schema.judges(network, odds=isinstance(query, BoxQuery) and query.signs is None and schema.outcome.of != "value")


def task_of(
    statement: RowStatement | BoxStatement, query: RowsQuery | BoxQuery, network: Model, schema: InputSpace
) -> Task | str:
    """Return the task of a statement, or why the statement is invalid."""
    domain, names = schema.domain, [feature.name for feature in schema.features]
    allowed = {
        "persistent-bias": ("observed", "flipped"),
        "robustness": ("robust",),
        "individual-fairness": ("no-flip",) if getattr(query, "epsilon", None) is None else ("no-gap",),
    }
    if statement.goal not in allowed[query.kind]:
        return f"a {statement.goal} statement does not belong into a {query.kind} certificate"
    unknown = set(statement.prime) - (set(query.protected) & set(names))
    if unknown:
        return f"prime names {', '.join(sorted(unknown))}, no protected feature of the query"
    if bool(statement.prime) == (statement.goal == "robust"):
        return f"prime is {'out of place' if statement.prime else 'missing'} in a {statement.goal} statement"
    if query.kind == "persistent-bias" and set(statement.prime) != set(query.protected):
        return f"prime names {', '.join(statement.prime)}, not all of {', '.join(query.protected)}"
    i, j = statement.classes
    if i == j or max(i, j) >= classes_of(network):
        return f"classes {i} and {j} are no two classes of the network"
    if network.ordered and abs(i - j) > 1:
        return f"classes {i} and {j} are no neighbours, between which a threshold of ordered classes lies"
    differs = np.array([name in statement.prime for name in names])
    box = _row_box(statement, query, schema) if isinstance(statement, RowStatement) else _given_box(statement, schema)
    if isinstance(box, str):
        return box
    lower, upper = box
    prime = np.array([statement.prime.get(name, value) for name, value in zip(names, lower.tolist(), strict=True)])
    offset = np.zeros(len(names))
    gap = None
    if isinstance(statement, BoxStatement) and isinstance(query, BoxQuery):
        if set(statement.offset) - set(query.relax):
            return "the statement shifts a feature that the query does not relax"
        offset = np.array([float(statement.offset.get(name, 0)) for name in names])
        gap = None if query.epsilon is None or query.scale == "logit" else GapGoal(epsilon=query.epsilon, rise=False)
    ends = np.stack([lower, upper, np.where(differs, prime, lower + offset), np.where(differs, prime, upper + offset)])
    if not domain.within(ends).all():
        return "the statement lies outside the declared domain"
    signs = query.signs if isinstance(query, BoxQuery) else None
    goal, margin = stated_goal(statement.goal, (i, j), gap, network, signs or "deployed")
    if statement.goal == "no-gap" and gap is None:  # g(x) - g(x') <= epsilon
        goal = StatedGoal.at_most(float(getattr(query, "epsilon", 0.0)))
    return Task(lower=lower, upper=upper, prime=prime, offset=offset, differs=differs, margin=margin, goal=goal)


def _row_box(statement: RowStatement, query: RowsQuery | BoxQuery, schema: InputSpace) -> tuple[Array, Array] | str:
    domain, row = schema.domain, np.array(statement.row)
    if len(row) != domain.variables:
        return f"the row has {len(row)} values, the schema {domain.variables} features"
    partner = np.array([statement.prime.get(feature.name, value) for feature, value in zip(schema.features, row, strict=True)])
    if not domain.legal(np.stack([row, partner])).all():
        return "the row, or its counterfactual, lies outside the declared domain or cannot be"
    if isinstance(query, RowsQuery) and statement.delta not in query.delta:
        return f"delta {statement.delta:g} is none of the query's"
    lower, upper = row.copy(), row.copy()
    for v, feature in enumerate(schema.features):
        fixed = feature.change == "fixed" or feature.protected or feature.name in query.protected
        if fixed or not feature.numeric or feature.unit is None:
            continue
        low, high = row[v] - statement.delta * feature.unit, row[v] + statement.delta * feature.unit
        if domain.integer[v]:
            low, high = np.ceil(low), np.floor(high)
        lower[v], upper[v] = max(low, domain.lower[v]), min(high, domain.upper[v])
    return lower, upper


def _given_box(statement: BoxStatement, schema: InputSpace) -> tuple[Array, Array] | str:
    lower, upper = np.array(statement.lower), np.array(statement.upper)
    if not len(lower) == len(upper) == schema.domain.variables:
        return f"the box has {len(lower)} and {len(upper)} ends, the schema {schema.domain.variables} features"
    return lower, upper


def pairs_missing(query: BoxQuery, proofs: tuple[Proof, ...], network: Model, schema: InputSpace) -> str | None:
    """Return why the proofs do not answer a fairness query: which pair, direction or part of the box none of them covers."""
    domain, names = schema.domain, [feature.name for feature in schema.features]
    unknown = set(query.box) - set(names)
    if flaw := question_flaw(query.epsilon, query.scale, query.signs, network, values=schema.outcome.of == "value"):
        return flaw
    if query.classes == "any" and query.signs != "deployed":
        return "flips between any two classes are those of decisions as the model makes them"
    if unknown or not query.protected:
        return f"the query protects no feature, or its box names unknown ones: {sorted(unknown)}"
    lower, upper = domain.lower.copy(), domain.upper.copy()
    for name, (low, high) in query.box.items():
        v = names.index(name)
        if not domain.lower[v] <= low <= high <= domain.upper[v]:
            return f"the query's box of {name} lies outside the declared domain"
        lower[v], upper[v] = (np.ceil(low), np.floor(high)) if domain.integer[v] else (low, high)
    protected = [names.index(name) for name in query.protected]
    if not domain.integer[protected].all():
        return "a protected feature is real-valued: its pairs cannot be counted"
    relaxed = [names.index(name) for name in query.relax if name in names]
    if len(relaxed) < len(query.relax) or set(relaxed) & set(protected) or not domain.integer[relaxed].all():
        return f"the query relaxes features that are unknown, protected or real-valued: {list(query.relax)}"
    trees = network.of_trees  # a shift of x does not shift their branches
    pinned = [v for v in relaxed if trees or domain.one_hot[v] or domain.scale[v] != 1 or domain.offset[v] != 0]
    if query.epsilon is not None and network.outputs > 2:
        return "gaps are between two classes, the network has more"
    reach = [min(width, int(upper[names.index(name)] - lower[names.index(name)])) for name, width in query.relax.items()]
    sizes = upper[protected] - lower[protected] + 1
    count = float(np.prod(sizes))
    partners = float(np.prod(sizes - 1)) if query.differ == "all" else count - 1
    neighbours = [(i, j) for i, j in combinations(range(classes_of(network) - 1, -1, -1), 2) if i - j == 1 or not network.ordered]
    needed = count * partners * len(neighbours) * float(np.prod([2 * limit + 1 for limit in reach]))
    if needed == 0 or (lower > upper).any():
        return "the query's box is empty, or leaves its protected features no two values: it claims nothing"
    if needed > len(proofs):
        return f"{len(proofs)} proofs cannot cover the {needed:.0f} pairs and directions of the query"
    values = [np.arange(lower[v], upper[v] + 1) for v in protected]
    shared = np.array([v for v in range(len(names)) if v not in protected], dtype=np.int64)
    covered: dict[Direction, list[tuple[Array, Array]]] = {}
    for proof in proofs:
        statement = proof.statement
        fits = isinstance(statement, BoxStatement) and len(statement.lower) == len(statement.upper) == len(names)
        if fits and isinstance(statement, BoxStatement) and set(statement.prime) == set(query.protected):
            key, box = _direction(statement, protected, query, names)
            covered.setdefault(key, []).append(box)
    points = [tuple(map(float, point)) for point in product(*values)]
    shifts = list(product(*(range(-limit, limit + 1) for limit in reach)))  # shifts that leave both copies room in the box
    for z, z_prime, shift in product(points, points, shifts):
        equal = [a == b for a, b in zip(z, z_prime, strict=True)]
        if any(equal) if query.differ == "all" else all(equal):
            continue
        need_lower, need_upper = lower.copy(), upper.copy()
        for name, step in zip(query.relax, shift, strict=True):  # both x and x' stay inside the query's box
            v = names.index(name)
            need_lower[v], need_upper[v] = max(lower[v], lower[v] - step), min(upper[v], upper[v] - step)
        fixed = [v for v in pinned if shift[relaxed.index(v)]]  # such features need one statement for each value
        if (need_upper[fixed] - need_lower[fixed] + 1).prod() > len(proofs):
            return f"{len(proofs)} proofs cannot cover every value that shifts {shift} leave"
        for *pinned_values, (i, j) in product(*(np.arange(need_lower[v], need_upper[v] + 1) for v in fixed), neighbours):
            need_lower[fixed] = need_upper[fixed] = pinned_values
            boxes = [(lo, hi) for lo, hi in covered.get((z, z_prime, shift, i, j), []) if (lo[fixed] == hi[fixed]).all()]
            if not any((lo[shared] <= need_lower[shared]).all() and (hi[shared] >= need_upper[shared]).all() for lo, hi in boxes):
                pair = f"{dict(zip(query.protected, z, strict=True))} against {dict(zip(query.protected, z_prime, strict=True))}"
                return f"no proof covers {pair}, shifts {shift}, class {i} to {j}, on the query's box"
    return None


Direction = tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...], int, int]


def _direction(
    statement: BoxStatement, protected: list[int], query: BoxQuery, names: list[str]
) -> tuple[Direction, tuple[Array, Array]]:
    """Return (z, z', shifts, i, j) with i > j, and the box of the first copy. A statement with i < j is turned round: a flip from i
    to j between x and x' = x + shift is one from j to i between x' and x = x' - shift."""
    z, z_prime = tuple(statement.lower[v] for v in protected), tuple(statement.prime[name] for name in query.protected)
    shift = tuple(statement.offset.get(name, 0) for name in query.relax)
    i, j = statement.classes
    lower, upper = np.array(statement.lower), np.array(statement.upper)
    if i > j:
        return (z, z_prime, shift, i, j), (lower, upper)
    for name, step in zip(query.relax, shift, strict=True):
        lower[names.index(name)] += step
        upper[names.index(name)] += step
    return (z_prime, z, tuple(-step for step in shift), j, i), (lower, upper)
