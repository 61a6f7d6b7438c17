"""From statements and trees to leaves: what has to be shown, on which box of raw values, for the checker to accept a proof.

Every function here returns the reason for a rejection as text, or the thing asked for: a certificate that is wrong is an
ordinary result of checking, no exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np

from encoders.domain import Domain, Regions
from encoders.network import Array, Booleans, Integers, Network
from encoders.probability import SMALLEST, GapGoal, gap_rows
from verifair.checker.certificate import Proof
from verifair.checker.statement import BoxQuery, BoxStatement, RowsQuery, RowStatement, Signs
from verifair.checker.tree import Tree, leaf_regions
from verifair.schema.space import InputSpace

GOALS = {
    "observed": ((1.0, -1.0),),
    "flipped": ((-1.0, 1.0),),
    "robust": ((1.0, 0.0),),
    "no-flip": ((-1.0, 0.0), (0.0, 1.0), (-0.5, 0.5)),
    "no-gap": (),
}
"""Rows (p, q) of each goal: at every point of the box some row must have  p g(x) + q g(x') > 0, or >= 0 where it is not strict (see
`_strict`). The rows of "no-gap" depend on epsilon, see `encoders.probability`."""
DENSE = 4095
"""Lines of a gap that are looked at where its rows do not suffice."""


@dataclass(frozen=True, kw_only=True)
class StatedGoal:
    """What has to hold at every point: some row (p, q, c) has  p g(x) + q g(x') + c > 0  (>= 0 where it is not strict).

    For a probability gap the rows are lines that suffice, and single points are decided by the probabilities themselves.
    """

    rows: tuple[tuple[float, float, float], ...]
    strict: tuple[bool, ...]
    gap: GapGoal | None = None

    @classmethod
    def of(cls, goal: str, classes: tuple[int, int], signs: Signs, gap: GapGoal | None = None) -> StatedGoal:
        """Return the goals of GOALS by name; "no-gap" needs its gap."""
        if gap is not None:
            rows, constants = gap_rows(gap.epsilon, rise=gap.rise)
            return cls(
                rows=tuple(map(tuple, np.column_stack([rows, constants]).tolist())), strict=(False,) * len(rows), gap=gap
            )
        return cls(rows=tuple((p, q, 0.0) for p, q in GOALS[goal]), strict=_strict(goal, classes, signs))

    @cached_property
    def denser(self) -> Array:
        """(N, 3) many more lines of a gap, by slope; none for other goals."""
        if self.gap is None:
            return np.empty((0, 3))
        rows, constants = gap_rows(self.gap.epsilon, rise=self.gap.rise, count=DENSE)
        return np.column_stack([rows, constants])[2:]


def _strict(goal: str, classes: tuple[int, int], signs: Signs) -> tuple[bool, ...]:
    """Return whether each row of a goal has to be positive.

    Class i = classes[0] is decided over j where g > 0, and at g = 0 too where i < j: ties go to the smaller index. So a flip from i
    to j is g > 0 >= g' where i > j, and g >= 0 > g' where i < j; with Fairify's strict signs it is g > 0 > g' either way.
    """
    higher = classes[0] > classes[1]
    if goal == "no-flip":
        return (False, False, False) if signs == "strict" else (not higher, higher, False)
    return (goal != "robust" or higher,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A statement as numbers: x in [lower, upper] (V,), x' = prime where `differs`, else x + offset; g = margin.f."""

    lower: Array
    upper: Array
    prime: Array
    offset: Array
    differs: Booleans
    margin: Array
    asked: StatedGoal


@dataclass(frozen=True, kw_only=True, eq=False)
class Tasks:
    """T tasks without their boxes: prime, offset, differs (T, V), margin (T, n_N), and which (T,) of the things asked."""

    prime: Array
    offset: Array
    differs: Booleans
    margin: Array
    asked: tuple[StatedGoal, ...]
    which: Integers

    @classmethod
    def of(cls, tasks: list[Task]) -> Tasks:
        asked = tuple(dict.fromkeys(task.asked for task in tasks))
        return cls(
            prime=np.array([task.prime for task in tasks]), offset=np.array([task.offset for task in tasks]),
            differs=np.array([task.differs for task in tasks]), margin=np.array([task.margin for task in tasks]), asked=asked,
            which=np.array([asked.index(task.asked) for task in tasks]),
        )

    def second(self, task: Integers, raw: Array) -> Array:
        """x' (N, V) of raw points x (N, V) of the given tasks."""
        return np.where(self.differs[task], self.prime[task], raw + self.offset[task])


@dataclass(frozen=True, kw_only=True, eq=False)
class Leaves:
    """Leaves (L) of several proofs: their raw boxes (L, V), claimed bounds (NaN: a point, or no legal row), tasks, and whether they
    are claimed to be certified for float32."""

    tasks: Tasks
    task: Integers
    proof: Integers
    lower: Array
    upper: Array
    bound: Array
    float32: Booleans


def classes_of(network: Network) -> int:
    return max(2, network.outputs)


def task_of(
    statement: RowStatement | BoxStatement, query: RowsQuery | BoxQuery, network: Network, schema: InputSpace
) -> Task | str:
    """Return what a statement asks for, or why it may not be asked."""
    domain, names = schema.domain, [feature.name for feature in schema.features]
    allowed = {
        "persistent-bias": ("observed", "flipped"),
        "robustness": ("robust",),
        "individual-fairness": ("no-flip",) if getattr(query, "epsilon", None) is None else ("no-gap",),
    }
    if statement.goal not in allowed[query.kind]:
        return f"a {statement.goal} statement does not belong into a {query.kind} certificate"
    stray = set(statement.prime) - (set(query.protected) & set(names))
    if stray:
        return f"prime names {', '.join(sorted(stray))}, no protected feature of the query"
    if bool(statement.prime) == (statement.goal == "robust"):
        return f"prime is {'out of place' if statement.prime else 'missing'} in a {statement.goal} statement"
    if query.kind == "persistent-bias" and set(statement.prime) != set(query.protected):
        return f"prime names {', '.join(statement.prime)}, not all of {', '.join(query.protected)}"
    i, j = statement.classes
    if i == j or max(i, j) >= classes_of(network):
        return f"classes {i} and {j} are no two classes of the network"
    differs = np.array([name in statement.prime for name in names])
    box = _row_box(statement, query, schema) if isinstance(statement, RowStatement) else _given_box(statement, differs, schema)
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
        logit = query.scale == "logit"
        gap = None if query.epsilon is None or logit else GapGoal(epsilon=query.epsilon, rise=False)
    ends = np.stack([lower, upper, np.where(differs, prime, lower + offset), np.where(differs, prime, upper + offset)])
    if not domain.within(ends).all():
        return "the statement lies outside the declared domain"
    unscaled = (~domain.one_hot & (domain.offset == 0) & (domain.scale == 1) & domain.integer) | (offset == 0)
    unscaled &= (offset == 0) | (np.maximum(np.abs(domain.lower), np.abs(domain.upper)) <= 2**24)  # where float32 counts exactly
    if not unscaled.all():
        return "the statement shifts a feature that the network does not take as it is"
    signs = query.signs if isinstance(query, BoxQuery) else None
    asked, margin = asked_of(statement.goal, (i, j), gap, network, signs or "deployed")
    if statement.goal == "no-gap" and gap is None:  # g(x) - g(x') <= epsilon
        asked = StatedGoal(rows=((-1.0, 1.0, float(getattr(query, "epsilon", 0.0))),), strict=(False,))
    return Task(lower=lower, upper=upper, prime=prime, offset=offset, differs=differs, margin=margin, asked=asked)


def asked_of(
    goal: str, classes: tuple[int, int], gap: GapGoal | None, network: Network, signs: Signs = "deployed"
) -> tuple[StatedGoal, Array]:
    """Return what is asked of g = f_i - f_j, and the weights (n_N,) of g.

    A gap from class 0 to class 1 is asked as a rise from 1 to 0: sigma(-g) - sigma(-g') = sigma(g') - sigma(g), and the lines of a
    rise are those that the multipliers of neuron branching belong to.
    """
    i, j = classes
    if gap is not None and i < j:
        i, j, gap = j, i, GapGoal(epsilon=gap.epsilon, rise=not gap.rise)
    margin = np.zeros(network.outputs)
    if network.outputs == 1:
        margin[0] = 1.0 if i > j else -1.0
    else:
        margin[i], margin[j] = 1.0, -1.0
    return StatedGoal.of(goal, (i, j), signs, gap), margin


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
        still = feature.change == "fixed" or feature.protected or feature.name in query.protected
        if still or not feature.numeric or feature.unit is None:
            continue
        low, high = row[v] - statement.delta * feature.unit, row[v] + statement.delta * feature.unit
        if domain.integer[v]:
            low, high = np.ceil(low), np.floor(high)
        lower[v], upper[v] = max(low, domain.lower[v]), min(high, domain.upper[v])
    return lower, upper


def _given_box(statement: BoxStatement, differs: Booleans, schema: InputSpace) -> tuple[Array, Array] | str:
    lower, upper = np.array(statement.lower), np.array(statement.upper)
    if not len(lower) == len(upper) == schema.domain.variables:
        return f"the box has {len(lower)} and {len(upper)} ends, the schema {schema.domain.variables} features"
    if (lower > upper).any():
        return "the box is empty: a lower end lies above its upper end"
    if (differs & (lower != upper)).any():
        return "a protected feature is not fixed in the box"
    return lower, upper


def leaves_of(tree: Tree, task: Task, domain: Domain) -> tuple[Array, Array, Array] | str:
    """Return the leaves' boxes (L, V), (L, V) and claimed bounds (L,), or why the arrays are no tree over the statement's box."""
    # Of several rows a bound says no more than that one of them holds, and 0 is all that may be claimed of it.
    strict = len(task.asked.rows) == 1 and task.asked.strict[0]
    useless = (tree.feature == -1) & ((tree.bound < 0) | ((tree.bound == 0) & strict))
    if useless.any():
        return f"a leaf claims the bound {tree.bound[useless][0]:g}, which does not show the goal"
    found = leaf_regions(tree.feature, tree.cut, Regions.whole(task.lower, task.upper), domain)
    return found if isinstance(found, str) else (found[1].lower, found[1].upper, tree.bound[found[0]])


def pairs_missing(query: BoxQuery, proofs: tuple[Proof, ...], network: Network, schema: InputSpace) -> str | None:
    """Return why the proofs do not answer a fairness query: which pair, direction or part of the box none of them covers."""
    domain, names = schema.domain, [feature.name for feature in schema.features]
    unknown = (set(query.box) | set(query.protected)) - set(names)
    if query.epsilon is not None and query.scale == "probability" and not SMALLEST <= query.epsilon <= 1 - SMALLEST:
        return f"the query's epsilon {query.epsilon:g} is no gap between probabilities"
    if (query.signs is None) != (query.epsilon is not None):
        return "the query has to name either the signs by which decisions flip, or an epsilon"
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
    stray = [name for name in query.relax if name not in names or name in query.protected]
    if stray:
        return f"the query relaxes {stray}: unknown or protected"
    relaxed = [names.index(name) for name in query.relax]
    if not (domain.integer & ~domain.one_hot & (domain.scale == 1) & (domain.offset == 0))[relaxed].all():
        return "the query relaxes a feature that the network does not take as it is, in whole numbers"
    if query.epsilon is not None and network.outputs > 2:
        return "gaps are between two classes, the network has more"
    reach = [min(width, int(upper[names.index(name)] - lower[names.index(name)])) for name, width in query.relax.items()]
    sizes = upper[protected] - lower[protected] + 1
    count = float(np.prod(sizes))
    partners = float(np.prod(sizes - 1)) if query.differ == "all" else count - 1
    needed = count * partners * classes * (classes - 1) / 2 * float(np.prod([2 * most + 1 for most in reach]))
    if needed > len(proofs):
        return f"{len(proofs)} proofs cannot cover the {needed:.0f} pairs and directions of the query"
    if needed == 0:
        return "the query's box is empty, or leaves its protected features no two values: it claims nothing"
    values = [np.arange(lower[v], upper[v] + 1) for v in protected]
    shared = np.array([v for v in range(len(names)) if v not in protected], dtype=np.int64)
    covered: dict[Direction, list[tuple[Array, Array]]] = {}
    for proof in proofs:
        one = proof.statement
        fits = isinstance(one, BoxStatement) and len(one.lower) == len(one.upper) == len(names)
        if fits and isinstance(one, BoxStatement) and set(one.prime) == set(query.protected):
            key, box = _direction(one, protected, query, names)
            covered.setdefault(key, []).append(box)
    points = [tuple(map(float, point)) for point in product(*values)]
    shifts = list(product(*(range(-most, most + 1) for most in reach)))  # those that leave both copies room in the box
    for z, other, shift in product(points, points, shifts):
        same = [a == b for a, b in zip(z, other, strict=True)]
        if any(same) if query.differ == "all" else all(same):
            continue
        need_lower, need_upper = lower.copy(), upper.copy()
        for name, step in zip(query.relax, shift, strict=True):  # both x and x' stay inside the query's box
            v = names.index(name)
            need_lower[v], need_upper[v] = max(lower[v], lower[v] - step), min(upper[v], upper[v] - step)
        for i, j in combinations(range(classes - 1, -1, -1), 2):
            boxes = covered.get((z, other, shift, i, j), [])
            if not any((lo[shared] <= need_lower[shared]).all() and (hi[shared] >= need_upper[shared]).all() for lo, hi in boxes):
                pair = f"{dict(zip(query.protected, z, strict=True))} against {dict(zip(query.protected, other, strict=True))}"
                return f"no proof covers {pair}, shifts {shift}, class {i} to {j}, on the query's box"
    return None


Direction = tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...], int, int]


def _direction(
    statement: BoxStatement, protected: list[int], query: BoxQuery, names: list[str]
) -> tuple[Direction, tuple[Array, Array]]:
    """Return (z, z', shifts, i, j) with i > j, and the box of the first copy: from i to j between x and x' = x + shift is the same
    as from j to i between x' and x = x' - shift."""
    z, other = tuple(statement.lower[v] for v in protected), tuple(statement.prime[name] for name in query.protected)
    shift = tuple(statement.offset.get(name, 0) for name in query.relax)
    i, j = statement.classes
    lower, upper = np.array(statement.lower), np.array(statement.upper)
    if i > j:
        return (z, other, shift, i, j), (lower, upper)
    for name, step in zip(query.relax, shift, strict=True):
        lower[names.index(name)] += step
        upper[names.index(name)] += step
    return (other, z, tuple(-step for step in shift), j, i), (lower, upper)
