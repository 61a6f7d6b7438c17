"""Rules that describe where a network discriminates: paths of a decision tree whose negation lowers the severity.  (HyFair,
Algorithm 2)

A rule is a conjunction of conditions on features that are not protected, so its region is a box of raw variables.
Findings, never proofs: a rule's numbers are means over samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from encoders.arrays import Array, Booleans
from verifair.errors import QueryError
from verifair.interrupts import OutOfTime
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.samples import Labelled, Neighbourhood, Severity, label
from verifair.systems.hyfair.explain.settings import ExplainSettings
from verifair.systems.hyfair.search.space import Space

CHECKS = 1000
"""Samples on which each rule is validated, inside it and against it."""
DRAWS = 30
MAX_LISTED = 8
"""So many categories of one feature are listed in words."""


PURITY = 0.3
"""Share of high samples that makes a leaf high, where none is named and some leaf has so much."""
MIN_FALL = 0.05
"""Default of the least fall by negation that keeps a rule, as a share of the largest possible severity."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rule:
    """The closed raw box [lower, upper], (V,) each; infinite where the rule has no condition."""

    lower: Array
    upper: Array

    @property
    def conditions(self) -> tuple[int, ...]:
        """The variables that the rule restricts. Their number is its size: an interval is one condition."""
        return tuple(int(v) for v in np.flatnonzero(np.isfinite(self.lower) | np.isfinite(self.upper)))

    def contain(self, raw: Array) -> Booleans:
        """Return (N,) True for raw points in the rule's box."""
        return np.asarray(((raw >= self.lower) & (raw <= self.upper)).all(axis=1))

    def words(self, schema: Schema) -> str:
        """Return the rule in the schema's words, such as "age between 31 and 45 and relationship is Husband or Wife"."""
        return " and ".join(condition_words(schema, v, self.lower[v], self.upper[v]) for v in self.conditions) or "always"

    def share(self, space: Space) -> float:
        """Return the share of the domain that the rule covers: by number of values of whole variables, by length of real ones."""
        share = 1.0
        for v in self.conditions:
            low, high = max(self.lower[v], space.lower[v]), min(self.upper[v], space.upper[v])
            unit = float(space.query.schema.domain.integer[v])
            width = space.upper[v] - space.lower[v] + unit
            share *= max(high - low + unit, 0.0) / width if width else float(low <= high)
        return float(share)


def condition_words(schema: Schema, v: int, low: float, high: float) -> str:
    """Return one condition in words."""
    feature, domain = schema.features[v], schema.domain
    name = feature.name
    if feature.categories is not None:
        first, last = int(max(low, 0)), int(min(high, len(feature.categories) - 1))
        included = feature.categories[first : last + 1]
        excluded = feature.categories[:first] + feature.categories[last + 1 :]
        if not excluded:
            return f"{name} is anything"
        if min(len(included), len(excluded)) > MAX_LISTED:
            return f"{name} from {included[0]} to {included[-1]} in the schema's order"
        if len(included) <= len(excluded):
            return f"{name} is {_join_words(included, 'or')}"
        return f"{name} is not {_join_words(excluded, 'nor')}"
    ends = (max(low, domain.lower[v]), min(high, domain.upper[v]))
    texts = [f"{int(end)}" if domain.integer[v] else f"{end:.6g}" for end in ends]
    if low == high:
        return f"{name} is {texts[0]}"
    if high >= domain.upper[v]:
        return f"{name} is at least {texts[0]}"
    return f"{name} is at most {texts[1]}" if low <= domain.lower[v] else f"{name} between {texts[0]} and {texts[1]}"


def _join_words(names: Sequence[str], last: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def refused(rules: Sequence[Rule], raw: Array) -> Booleans:
    """Return (N,) True for raw points in the box of some rule."""
    result = np.zeros(len(raw), dtype=bool)
    for rule in rules:
        result |= rule.contain(raw)
    return result


@dataclass(frozen=True, kw_only=True)
class SampleEvidence:
    """The evidence of samples about a rule: mean severities (and their standard deviations), and its coverage.

    inside: of CHECKS fresh samples within the rule.   negated: of the same samples with one condition negated.
    outside: of the local samples outside the rule.   effects: for each condition, the fall of the mean severity when it alone is
    negated.   samples, domain, rows: share of the local samples, of the declared domain, and of the rows of
    data (None without data) that the rule covers.
    """

    inside: float
    inside_deviation: float
    negated: float
    negated_deviation: float
    outside: float
    effects: tuple[float, ...]
    samples: float
    domain: float
    rows: float | None

    @property
    def difference(self) -> float:
        """Mean severity inside minus that of the negations, which is compared with delta."""
        return self.inside - self.negated


@dataclass(frozen=True, kw_only=True, eq=False)
class Explained:
    rule: Rule
    evidence: SampleEvidence


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """The rules found around one cluster.

    centre: (V,) the cluster's raw point, a legal row.   severity: its own.   labelled: the local samples.   tree, columns: the
    decision tree and the variables that it saw.   purity: the share of high samples that makes a leaf high.
    rules: those kept, in descending order of difference.   dropped: those that negation did not confirm.
    late: number of others that there was no time for.
    """

    centre: Array
    severity: float
    labelled: Labelled
    tree: DecisionTreeClassifier
    columns: tuple[int, ...]
    purity: float
    rules: tuple[Explained, ...]
    dropped: tuple[Explained, ...]
    late: int


def explain(
    space: Space, centre: Array, severity: Severity, settings: ExplainSettings, *, rows: Array | None = None, seed: int = 0
) -> Explanation:
    """Explain the discrimination around one raw point by rules.  (HyFair, Algorithm 2)

    rows: (N, V) raw data, for spreads and coverage.   settings: n, kappa's quantile and the significant difference of Algorithm 2,
    and the decision tree's depth, its fewest samples of a leaf and the share of high samples that makes a leaf high. These
    three are our choice, as the paper gives none: with 5 % high samples hardly any leaf has a majority of them. If no share is
    given and no leaf reaches PURITY, the purest leaf is used; negation still decides whether its rule is kept.
    When the space's deadline passes, rules that are not judged yet are left out.
    Sound? Complete? neither: findings only.  Raises OutOfTime before the first rule, QueryError when severity is the same
    everywhere, or the tree has no leaf of high severity.
    """
    largest = space.cap if settings.measure == "k" else 1.0
    delta = settings.delta if settings.delta is not None else MIN_FALL * largest
    rng = np.random.default_rng(seed)
    neighbourhood = Neighbourhood.of(space, centre, rows)
    raw = neighbourhood.draw(settings.samples, rng)
    labelled = label(raw, np.asarray(severity(raw), dtype=np.float64), settings.quantile)
    # A guardrail must not refuse by any protected feature of the schema, even if the question is about others.
    columns = tuple(int(v) for v in space.free if not space.query.schema.features[v].protected)
    if not columns:
        raise QueryError("every feature is protected or has a single value: there is nothing that a rule could be about")
    tree = DecisionTreeClassifier(max_depth=settings.depth, min_samples_leaf=settings.leaf, random_state=seed)
    tree.fit(raw[:, columns], labelled.high)
    purity = least_purity(tree) if settings.purity is None else settings.purity
    paths = list(high_leaves(tree, columns, neighbourhood.whole, purity))
    if not paths:
        raise QueryError(
            f"no leaf of the decision tree is high: {int(labelled.high.sum())} of {len(raw)} samples have a severity of at least "
            f"{labelled.threshold:g}, but nowhere are they {100 * purity:g} % of a leaf; allow a deeper tree or smaller leaves, "
            "draw more samples, or ask for less purity"
        )
    centre_severity, explained = float(severity(neighbourhood.centre[None, :])[0]), list[Explained]()
    try:
        for rule in paths:
            explained.append(Explained(rule=rule, evidence=judge(rule, neighbourhood, labelled, severity, rows, rng)))
    except OutOfTime:
        if not explained:
            raise
    explained.sort(key=lambda item: -item.evidence.difference)
    return Explanation(
        centre=space.shown(neighbourhood.centre[None, :])[0],
        severity=centre_severity,
        labelled=labelled,
        tree=tree,
        columns=columns,
        purity=purity,
        rules=tuple(item for item in explained if item.evidence.difference >= delta),
        dropped=tuple(item for item in explained if not item.evidence.difference >= delta),
        late=len(paths) - len(explained),
    )


def least_purity(tree: DecisionTreeClassifier) -> float:
    """Return PURITY or, if no leaf has this share of high samples, the share of the purest leaf.

    A leaf must be purer than all samples together: otherwise a tree without a cut would give the rule "always".
    """
    inner, high = tree.tree_, list(tree.classes_).index(True)
    share = inner.value[:, 0, high] / inner.value[:, 0, :].sum(axis=1)
    purest = float(share[inner.children_left < 0].max())
    return PURITY if purest >= PURITY or purest <= share[0] else purest * (1 - 1e-9)  # the division may round up


def high_leaves(tree: DecisionTreeClassifier, columns: Sequence[int], is_integer: Booleans, purity: float) -> Iterator[Rule]:
    """Yield the paths to leaves where at least the share `purity` of the samples is high, each as one box with whole ends for whole
    variables.

    Real variables: "x > t" becomes x >= t, so that boxes are closed.
    """
    nodes, values = tree.tree_, tree.tree_.value[:, 0, :]
    stack = [(0, np.full(len(is_integer), -np.inf), np.full(len(is_integer), np.inf))]
    high = list(tree.classes_).index(True)
    while stack:
        node, lower, upper = stack.pop()
        if nodes.children_left[node] < 0:
            if values[node, high] >= purity * values[node].sum():
                yield Rule(lower=lower, upper=upper)
            continue
        v, threshold = columns[nodes.feature[node]], float(nodes.threshold[node])
        left_upper, right_lower = upper.copy(), lower.copy()
        left_upper[v] = np.floor(threshold) if is_integer[v] else threshold
        right_lower[v] = np.floor(threshold) + 1 if is_integer[v] else threshold
        stack.append((nodes.children_right[node], right_lower, upper))
        stack.append((nodes.children_left[node], lower, left_upper))


def judge(
    rule: Rule, neighbourhood: Neighbourhood, labelled: Labelled, severity: Severity, rows: Array | None, rng: np.random.Generator
) -> SampleEvidence:
    """Validate a rule by negation, on fresh samples.  (Algorithm 2, lines 8 to 10)

    Samples inside are local ones given that the rule holds. Their negations have the feature of one condition drawn uniformly from
    the values where that condition is false.
    """
    try:  # moved into the rule before illegal ones are dropped: until then features are independent
        inside = neighbourhood.draw(CHECKS, rng, lambda raw: into(rule, neighbourhood, raw, rng))
    except QueryError:
        inside = np.empty((0, len(neighbourhood.centre)))
    value = np.asarray(severity(inside), dtype=np.float64) if len(inside) else np.array([np.nan])
    falls, negated = [], []
    for v in rule.conditions:
        flipped = _legal(neighbourhood, against(rule, neighbourhood, inside, v, rng))
        k = np.asarray(severity(flipped), dtype=np.float64) if len(flipped) else np.array([])
        falls.append(float(value.mean() - k.mean()) if len(k) else float("nan"))
        negated.append(k[rng.permutation(len(k))[: max(1, CHECKS // len(rule.conditions))]])
    opposite = np.concatenate(negated) if negated else np.array([])
    outside = labelled.severity[~rule.contain(labelled.raw)]
    return SampleEvidence(
        inside=float(value.mean()),
        inside_deviation=float(value.std()),
        negated=float(opposite.mean()) if len(opposite) else float("nan"),
        negated_deviation=float(opposite.std()) if len(opposite) else float("nan"),
        outside=float(outside.mean()) if len(outside) else float("nan"),
        effects=tuple(falls),
        samples=float(rule.contain(labelled.raw).mean()),
        domain=rule.share(neighbourhood.space),
        rows=None if rows is None else float(rule.contain(rows).mean()),
    )


def _legal(neighbourhood: Neighbourhood, raw: Array) -> Array:
    return raw[neighbourhood.space.legal(raw)]


def into(rule: Rule, neighbourhood: Neighbourhood, raw: Array, rng: np.random.Generator) -> Array:
    """Return local samples in which features that violate a condition are redrawn from the neighbourhood until they satisfy it.

    If features were drawn independently, these are local samples given that the rule holds. A value that DRAWS draws do not bring
    into the rule is drawn uniformly from the values where the condition is true.
    """
    result = raw.copy()
    for v in rule.conditions:
        for _ in range(DRAWS):
            violating = np.flatnonzero((result[:, v] < rule.lower[v]) | (result[:, v] > rule.upper[v]))
            if not len(violating):
                break
            result[violating, v] = neighbourhood.neighbours(v, len(violating), rng)
        violating = np.flatnonzero((result[:, v] < rule.lower[v]) | (result[:, v] > rule.upper[v]))
        result[violating, v] = neighbourhood.between(v, rule.lower[v], rule.upper[v], len(violating), rng)
    return result


def against(rule: Rule, neighbourhood: Neighbourhood, raw: Array, v: int, rng: np.random.Generator) -> Array:
    """Return the points with variable v drawn uniformly from the values where its condition is false."""
    step = 1.0 if neighbourhood.whole[v] else 0.0
    below = (float(neighbourhood.space.lower[v]), rule.lower[v] - step)
    above = (rule.upper[v] + step, float(neighbourhood.space.upper[v]))
    sides = [(low, high) for low, high in (below, above) if np.isfinite(low) and np.isfinite(high) and low <= high]
    result = raw.copy()
    if not sides:
        return result[:0]
    weight = np.array([high - low + step for low, high in sides])
    total = weight.sum()
    side = rng.choice(len(sides), size=len(raw), p=weight / total if total > 0 else None)
    for k, (low, high) in enumerate(sides):
        chosen = np.flatnonzero(side == k)
        result[chosen, v] = neighbourhood.between(v, low, high, len(chosen), rng)
    return result[~rule.contain(result)]
