"""A guardrail built from counterexamples: answer where a proof says that no gap exceeds a target, refuse the rest.

The domain is repeatedly cut into two boxes. For each box verifair decides whether it has a gap above the target. A proved box is
answered. A box with a counterexample, or not decided in its time, is cut along the feature that best separates samples with a large
gap from rows of data; boxes with the most rows of data come first. Boxes without a row of data whose gap is within the target are
refused whole: nobody in the data who is treated within the target loses an answer.

So every answer is covered by a proof, and the price of the target is coverage. The proofs of the boxes make one certificate
about the guarded schema. Sound? yes.   Complete? no: when time runs out, more is refused than necessary.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from encoders.arrays import Array, Booleans, Integers
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.certificates.tree import Tree
from verifair.checker.report import Progress
from verifair.engine.gap.maximise import MaximumGap, maximise
from verifair.engine.queries import IndividualFairness, KDiscrimination, ProbabilityGap
from verifair.engine.questions import questions_of
from verifair.engine.verdict import Reason, Status, Verdict
from verifair.engine.verify import fairness_certificate, verify
from verifair.errors import QueryError
from verifair.systems.hyfair.explain.refusals import snapped
from verifair.systems.hyfair.explain.rounds import outside
from verifair.systems.hyfair.explain.rules import Rule
from verifair.systems.hyfair.explain.samples import Neighbourhood, severity_of
from verifair.systems.hyfair.search.space import Space

SCALES = ((0.8, 1.0), (0.5, 1.0), (0.8, 0.2), (0.5, 0.2))
"""Samples around a counterexample: chance to keep a value, and size of a step."""
SAMPLES = 500
"""Number of samples for each scale, and from the whole box."""
BRACKET_SHARE = 1 / 3
"""Share of the time for the proof without rules, at most."""
TIME_SLICES = 60
"""A box gets at most so large a part of the time."""
MIN_TIME_SHARE = 0.25
"""And at least this share of the time that is left, times its share of the rows in boxes that wait."""
SPARSE_SHARE = 0.05
"""Share of a box's rows of data that counts as nearly nobody."""
EVIDENCE = tuple[Tree, bool]
"""A proof, and whether it is certified for float32."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tightened:
    """Rules, and the proof that they suffice.

    target: no gap above it is left outside the rules.   rules: snapped, the given ones first.
    certificate: the proof of this, about the guarded schema.   boxes: number of proved ones.   open: number of given rows in boxes
    refused because time ran out, not because of a gap; with more time some would be answered.
    """

    target: float
    rules: tuple[Rule, ...]
    certificate: Certificate
    boxes: int
    domain: float
    open: int

    def most_buckets(self, buckets: int) -> int:
        """Return a certified k: probabilities at most the target apart meet no more of the buckets (i / B, (i + 1) / B]."""
        return min(buckets, math.ceil(Fraction(self.target) * buckets) + 1)


@dataclass(kw_only=True, eq=False)
class GuardCell:
    """A box [lower, upper] (V,) of the domain, and the rows of data in it.   halves: its parts, cut along `feature` at `cut`.

    proved: [question][direction] the proof that no gap exceeds the target, None without one.   reason: the reason for refusing it:
    "gap" if a gap above the target is known and no cut would keep rows out of it, "time" if it was not decided.
    """

    lower: Array
    upper: Array
    rows: Integers
    proved: list[list[EVIDENCE]] | None = None
    reason: str = "time"
    feature: int = -1
    cut: float = 0.0
    halves: tuple[GuardCell, GuardCell] | None = None

    def cuts(self, v: int, position: float, is_integer: Booleans) -> bool:
        """Return True if a cut of variable v at `position` leaves two smaller boxes."""
        return bool(self.lower[v] <= position < self.upper[v] if is_integer[v] else self.lower[v] < position < self.upper[v])

    def leaves(self) -> Iterator[GuardCell]:
        if self.halves is None:
            yield self
        else:
            for half in self.halves:
                yield from half.leaves()

    def refused(self) -> Iterator[GuardCell]:
        """Yield the largest boxes of the tree in which nothing is proved."""
        if all(leaf.proved is None for leaf in self.leaves()):
            yield self
        elif self.halves is not None:
            for half in self.halves:
                yield from half.refused()

    def tree(self, q: int, d: int) -> Iterator[Tree]:
        """Yield the proof of question q in direction d, part by part in preorder."""
        if all(leaf.proved is None for leaf in self.leaves()):
            yield Tree.leaf()  # a refused box holds no legal row of the guarded schema
        elif self.halves is None:
            assert self.proved is not None
            yield self.proved[q][d][0]
        else:
            yield Tree.plain(np.array([self.feature]), np.array([self.cut]))
            for half in self.halves:
                yield from half.tree(q, d)


@dataclass(frozen=True, kw_only=True)
class BoxCut:
    """A cut of a box.   at_once: cut without trying to prove the whole box, because a gap above the target is known in it, or
    because one half of the box holds nearly no row of data."""

    feature: int
    cut: float
    at_once: bool


@dataclass(kw_only=True, eq=False)
class Tightening:
    """The boxes so far, for a series of targets, each smaller than the last.

    given: rules that exist already.   query: the question outside of these.   rows: (N, V) raw data in its box, which the rules
    should answer as far as possible.
    """

    question: KDiscrimination
    given: tuple[Rule, ...]
    rows: Array
    seed: int
    query: KDiscrimination = field(init=False)
    whole: GuardCell = field(init=False)

    def __post_init__(self) -> None:
        self.query = outside(self.question, self.given)
        self.space = Space.of(self.query)
        self.severity = severity_of(self.space, "gap")
        self.rows = self.rows[self.space.legal(self.rows)]
        self.gaps = self.severity(self.rows) if len(self.rows) else np.empty(0)
        schema = self.query.schema
        # Rules use no protected feature of the query or the schema: refusing people by one would itself be discrimination.
        self.columns = [int(v) for v in self.space.free if not schema.features[v].protected]
        self.whole = GuardCell(lower=self.space.lower, upper=self.space.upper, rows=np.arange(len(self.rows)))
        self.asked = 0

    def towards(self, target: float, seconds: float, progress: Progress | None = None) -> Tightened:
        """Cut and decide boxes for `seconds`. Raises KeyboardInterrupt after Ctrl-C, and QueryError if nothing is left to
        answer."""
        started, box_seconds = clock.now(), seconds / TIME_SLICES
        waiting = list[tuple[int, int, GuardCell]]()

        def wait(cell: GuardCell) -> None:
            self.asked += 1
            heapq.heappush(waiting, (-len(cell.rows), self.asked, cell))

        for leaf in self.whole.leaves():
            leaf.proved, leaf.reason = None, "time"
            wait(leaf)
        while waiting and (remaining := started + seconds - clock.now()) > 0:
            _, _, cell = heapq.heappop(waiting)
            if progress is not None:
                progress(int(TIME_SLICES * (1 - remaining / seconds)), TIME_SLICES)
            cut = self._cut(cell, target, None)
            if cut is None or not cut.at_once:
                share = len(cell.rows) / max(sum(-count for count, _, _ in waiting) + len(cell.rows), 1)
                verdict = self._decide(cell, target, min(max(box_seconds, MIN_TIME_SHARE * share * remaining), remaining))
                if verdict.reason is Reason.INTERRUPTED:
                    raise KeyboardInterrupt
                if verdict.status is Status.PROVED:
                    cell.proved = None if verdict.certificate is None else _evidence(verdict.certificate)
                    continue
                if verdict.witness is not None:
                    cut, cell.reason = self._cut(cell, target, verdict.witness.x), "gap"
            for half in self._halve(cell, cut):
                wait(half)
        return self._result(target)

    def _decide(self, cell: GuardCell, target: float, seconds: float) -> Verdict:
        return verify(self._question(target, self.query, cell), budget=Budget(seconds=seconds, seed=self.seed))

    def _question(self, target: float, query: KDiscrimination, cell: GuardCell) -> IndividualFairness:
        return IndividualFairness(
            model=query.model, schema=query.schema, protected=query.protected, box=_box(query, cell), differ="any",
            epsilon=target,
        )

    def _cut(self, cell: GuardCell, target: float, witness: Mapping[str, object] | None) -> BoxCut | None:
        """Return the cut of a box, None if no cut would let a row of data be answered."""
        gaps, is_integer = self.gaps[cell.rows], self.query.schema.domain.integer
        kept_rows = self.rows[cell.rows[gaps <= target]]
        movable = [v for v in self.columns if cell.upper[v] > cell.lower[v]]
        if not len(kept_rows) or not movable:
            return None
        sampled = self._samples(cell, witness)
        high_rows = np.concatenate([self.rows[cell.rows[gaps > target]], sampled[self.severity(sampled) > target]])
        candidate = self._separating_cut(high_rows if len(high_rows) else sampled, kept_rows, movable)
        v, edge = candidate if candidate is not None and cell.cuts(*candidate, is_integer) else _middle(cell, movable, is_integer)
        if not cell.cuts(v, edge, is_integer):
            return None  # neighbouring floats: nothing to cut
        step = 1.0 if is_integer[v] else 0.0
        low, high = (edge - cell.lower[v] + step) / (cell.upper[v] - cell.lower[v] + step), (self.rows[cell.rows, v] <= edge).mean()
        sparse = (high < SPARSE_SHARE < 0.5 < low) or (high > 1 - SPARSE_SHARE and low < 0.5)
        return BoxCut(feature=v, cut=edge, at_once=candidate is not None and (len(high_rows) > 0 or bool(sparse)))

    def _samples(self, cell: GuardCell, witness: Mapping[str, object] | None) -> Array:
        """Return rows of a box, some near a counterexample; no rows if constraints forbid nearly all."""
        space, schema = replace(self.space, lower=cell.lower, upper=cell.upper), self.query.schema
        rng = np.random.default_rng([self.seed, self.asked])
        try:
            parts = [space.random(rng, SAMPLES)]
            if witness is not None:
                centre = np.array([schema.raw_value(feature.name, witness[feature.name]) for feature in schema.features])
                region = Neighbourhood.of(space, centre, None)
                parts.append(region.centre[None, :])
                parts += [replace(region, keep=keep, spread=region.spread * size).draw(SAMPLES, rng) for keep, size in SCALES]
        except QueryError:
            return np.empty((0, len(cell.lower)))
        return np.concatenate(parts)

    def _halve(self, cell: GuardCell, cut: BoxCut | None) -> tuple[GuardCell, ...]:
        if cut is None:
            return ()
        v, step = cut.feature, 1.0 if self.query.schema.domain.integer[cut.feature] else 0.0
        left_upper, right_lower = cell.upper.copy(), cell.lower.copy()
        left_upper[v], right_lower[v] = cut.cut, cut.cut + step
        is_left = self.rows[cell.rows, v] <= cut.cut
        cell.feature, cell.cut = v, cut.cut
        cell.halves = (
            GuardCell(lower=cell.lower, upper=left_upper, rows=cell.rows[is_left]),
            GuardCell(lower=right_lower, upper=cell.upper, rows=cell.rows[~is_left]),
        )
        return cell.halves

    def _separating_cut(self, high: Array, kept_rows: Array, movable: Sequence[int]) -> tuple[int, float] | None:
        """Return the cut that best separates samples with a large gap from spared rows, both sides weighted equally; None without
        one."""
        if not len(high):
            return None
        raw, label = np.concatenate([high, kept_rows])[:, movable], np.arange(len(high) + len(kept_rows)) < len(high)
        weight = {True: len(kept_rows) / len(high), False: 1.0}
        tree = DecisionTreeClassifier(max_depth=1, class_weight=weight, random_state=self.seed).fit(raw, label).tree_
        if tree.node_count == 1:
            return None
        v, threshold = movable[int(tree.feature[0])], float(tree.threshold[0])
        return v, float(np.floor(threshold)) if self.query.schema.domain.integer[v] else threshold

    def _result(self, target: float) -> Tightened:
        rules = [_rule(cell, self.whole) for cell in self.whole.refused()]
        if any(not rule.conditions for rule in rules) and not len(self.rows):
            raise QueryError("no row of the table lies in the box, and --target spares rows; widen --box, or pass another table")
        if any(not rule.conditions for rule in rules):
            share, median = float((self.gaps <= target).mean()), float(np.median(self.gaps))
            undecided = sum(leaf.reason == "time" for leaf in self.whole.leaves())
            raise QueryError(
                f"no part of the domain was proved to have no gap above {target:g}: a guardrail for this target would refuse "
                f"everybody. Of {len(self.rows):,} rows {100 * share:.0f} % are within the target themselves (half have a gap of "
                f"at most {median:.3g}), and {undecided:,} boxes were not decided in time. Narrow the question with --box, ask "
                "about fewer attributes (--protected), set a larger --target, or give a longer --timeout"
            )
        all_rules = (*self.given, *snapped(rules, self.query.schema))
        leaves = list(self.whole.leaves())
        proved = [leaf for leaf in leaves if leaf.proved is not None]
        return Tightened(
            target=target, rules=all_rules, certificate=self._certificate(target, all_rules),
            boxes=len(proved), domain=sum(_rule(leaf, self.whole).share(self.space) for leaf in proved),
            open=sum(len(leaf.rows) for leaf in leaves if leaf.proved is None and leaf.reason == "time"),
        )

    def _certificate(self, target: float, rules: Sequence[Rule]) -> Certificate:
        """Join the proofs of the boxes: a tree of the cuts, whose leaves are those of each box, or refused."""
        query = self._question(target, outside(self.question, rules), self.whole)  # about the schema that is written
        box, batch = questions_of(query)
        proved = [leaf.proved for leaf in self.whole.leaves() if leaf.proved is not None]
        evidence = [
            [(joined(list(self.whole.tree(q, d))), all(p[q][d][1] for p in proved)) for d in (0, 1)] for q in range(len(batch))
        ]
        return fairness_certificate(query, batch, box, evidence, epsilon=target, scale=query.scale)


def tighten(
    query: KDiscrimination, rows: Array, target: float, *, rules: Sequence[Rule] = (), seconds: float = 60.0, seed: int = 0,
    progress: Progress | None = None,
) -> tuple[MaximumGap, Tightened]:
    """Return the largest gap outside of the given rules, bracketed, and rules outside of which no gap is larger than the target.

    rows: (N, V) raw data, which the rules should answer as far as possible.   seconds: for both; at most a third for the bracket.
    Raises QueryError for an invalid target, one above every gap that was found, or one that leaves nobody to answer, and
    KeyboardInterrupt after Ctrl-C.
    """
    if not 0 < target < 1:
        raise QueryError(f"target = {target:g}: expected a gap between two probabilities, a number above 0 and below 1")
    if not query.probable:  # rules about decisions: a target is still a gap of probabilities
        query = replace(query, model=query.model.whole, buckets=20)
    question = outside(query, rules)
    bracket = largest(question, BRACKET_SHARE * seconds, seed)
    if bracket.reason is Reason.INTERRUPTED:
        raise KeyboardInterrupt  # after Ctrl-C maximise returns its bracket; no rules are built from it
    tightened = None
    if bracket.upper > target:
        work = Tightening(question=query, given=tuple(rules), rows=rows, seed=seed)
        tightened = work.towards(target, seconds - bracket.seconds, progress)
    if tightened is None or len(tightened.rules) == len(rules):
        scope = "outside of the given rules " if rules else ""
        remedy = "drop --target, or set a smaller one" if rules else "set a smaller --target"
        raise QueryError(f"{scope}no gap is above {target:g}, which is certified, so there is nothing more to refuse; {remedy}")
    return bracket, tightened


def largest(query: KDiscrimination, seconds: float, seed: int) -> MaximumGap:
    """Return the bracket of the largest gap between any two protected variants."""
    gap = ProbabilityGap(model=query.model, schema=query.schema, protected=query.protected, box=query.box, differ="any")
    return maximise(gap, budget=Budget(seconds=seconds, seed=seed), tolerance=1e-3)


def joined(parts: Sequence[Tree]) -> Tree:
    """Return one tree of parts that are consecutive in preorder."""
    ends = np.cumsum([0, *(len(tree.index) for tree in parts)])
    starts = [np.zeros(1, dtype=np.int64), *(tree.start[1:] + end for tree, end in zip(parts, ends.tolist(), strict=False))]
    arrays = {name: np.concatenate([getattr(tree, name) for tree in parts]) for name in ("feature", "cut", "index", "value")}
    return Tree(start=np.concatenate(starts), **arrays)


def _evidence(certificate: Certificate) -> list[list[EVIDENCE]]:
    evidence = list[EVIDENCE]()
    for proof in certificate.proofs:
        assert isinstance(proof.evidence, Tree), "branch-and-bound asks no solver"
        evidence.append((proof.evidence, proof.float32))
    return [evidence[k : k + 2] for k in range(0, len(evidence), 2)]


def _box(query: KDiscrimination, cell: GuardCell) -> dict[str, tuple[object, object]]:
    lower, upper = query.schema.decode(cell.lower), query.schema.decode(cell.upper)
    return {name: (lower[name], upper[name]) for name in lower}


def _middle(cell: GuardCell, movable: Sequence[int], is_integer: Booleans) -> tuple[int, float]:
    """Return the feature with the most values left, or else the widest real one, and its middle."""
    width = cell.upper - cell.lower
    v = max(movable, key=lambda j: width[j])
    middle = float(cell.lower[v] + width[v] / 2)
    return v, float(np.floor(middle)) if is_integer[v] else middle


def _rule(cell: GuardCell, whole: GuardCell) -> Rule:
    """Return a box as a rule, without conditions on features where it is as wide as the whole."""
    return Rule(
        lower=np.where(cell.lower > whole.lower, cell.lower, -np.inf), upper=np.where(cell.upper < whole.upper, cell.upper, np.inf)
    )
