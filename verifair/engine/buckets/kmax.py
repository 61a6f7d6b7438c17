"""Largest k: an exact witness as the lower bound, a certified upper bound.  (HyFair, k-discrimination; the paper only searches)

    k(x) = number of buckets hit by sigma(g(x, z)) over the protected combinations z that are legal with x,   kmax = max over x

Branch-and-bound over x: boxes with the largest bound first, each bounded by `bounds.most_buckets`; witnesses come from
random points, mutations of the best ones and the centres of boxes, all K copies at once, and are decided in exact arithmetic, of
smooth models by balls.
Sound? yes: `upper` rests on rigorous bounds of every leaf, `lower` on exact evaluation.
Complete? yes: inputs are float32 numbers, so splitting ends at single points, which exact evaluation decides (balls do not where a
margin is the very border of a bucket).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.copies import Copies, CopyBounds, Thresholds
from encoders.domain import Batched
from encoders.onnx.runtime import runtime_logits
from encoders.probability.shares import logistic
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.kmax import BucketQuery, KmaxCertificate
from verifair.checker.certificates.tree import Tree
from verifair.checker.report import Progress
from verifair.engine.buckets.bounds import different, most_buckets
from verifair.engine.buckets.points import Point, PointSearch
from verifair.engine.buckets.tree_copies import TreeCopies
from verifair.engine.parallel import Helpers, Shared
from verifair.engine.queries import KDiscrimination
from verifair.engine.questions import margin, shared_box
from verifair.engine.search.subdivision import Open, subdivide
from verifair.engine.search.trees import Trees
from verifair.engine.verdict import Reason
from verifair.errors import Disagreement, QueryError
from verifair.notebook.pictures import interval
from verifair.notebook.shown import Pictured

COPIES = 1024
"""Copies bounded at once: a block has this number divided by K boxes."""
BLOCKS = 16
"""Blocks of a step, which all processes share."""
POINTS, STALE = 2048, 8
"""Random points at the start, and generations without improvement after which the boxes have a turn."""
SEARCHING = 0.25
"""Share of the time after that which is spent on further search for witnesses."""


@dataclass(frozen=True, kw_only=True)
class CombinationOutcome:
    """One combination of protected values at the witness, in the schema's words.

    bucket: None if the row is not legal, or if the balls around the margin of a smooth model reach two buckets.
    """

    combination: dict[str, Any]
    logit: float
    bucket: int | None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KmaxVerdict(Pictured):
    """Bounds of the largest k over a box: lower <= largest k <= upper.

    lower: k at the witness, counted exactly.   upper: certified, at most min(K, buckets).   combinations: K, of protected values.
    x: (V,) the witness in raw units, with its first legal combination.   witness: x in the schema's words, without protected
    features.   outcomes: of every combination.   reason: why lower < upper (None: they are equal).
    float32_agrees: True if onnxruntime, in float32, also shows `lower` buckets at the witness (None: no model file, or no witness).
    boxes: number of boxes that were bounded.
    """

    lower: int
    upper: int
    combinations: int
    buckets: int
    witness: dict[str, Any] | None
    x: Array | None = field(repr=False)
    outcomes: tuple[CombinationOutcome, ...] = field(repr=False)
    certificate: KmaxCertificate = field(repr=False)
    float32_agrees: bool | None
    boxes: int
    seconds: float
    reason: Reason | None
    semantics: str

    def __post_init__(self) -> None:
        if (self.reason is None) != (self.lower == self.upper):
            raise ValueError("a kmax verdict needs a reason exactly when its bounds differ")

    def _draw(self, path: Path) -> None:
        interval(self.lower, self.upper, "distinct outcomes k: met to certified", path)


def kmax(
    query: KDiscrimination, *, budget: Budget | None = None, start: Array | None = None, jobs: int = 1,
    progress: Progress | None = None,
) -> KmaxVerdict:
    """Bound the largest k over the query's box: an exact witness from below, a certified bound from above.

    budget: seconds for the whole run, and boxes (nodes).   start: (N, V) raw points to start from, e.g. of a search; points
    outside the box are left out, protected entries ignored.   jobs: processes that bound boxes; the bounds do not depend on it.
    progress: called with (lower, upper) after every step.
    Ctrl-C ends the run with the bounds so far. Raises QueryError for a box that names protected features.
    """
    started = clock.now()
    run = _KmaxSearch(query, budget or Budget(), started, jobs)
    try:
        reason = run.go(start, progress)
    except KeyboardInterrupt:
        reason = Reason.INTERRUPTED
    lower, upper = run.search.k, run.tree.upper()
    if lower > upper:
        raise Disagreement(f"a point hits {lower} buckets where the bounds allow {upper}: x = {run.search.best!r}")
    point = run.search.best
    words = None if point is None else {k: v for k, v in query.schema.decode(point.x).items() if k not in query.protected}
    return KmaxVerdict(
        lower=lower, upper=upper, combinations=len(run.copies), buckets=query.buckets, witness=words,
        x=None if point is None else run.copies.rows(point.x[None])[0, int(point.counted.argmax())],
        outcomes=() if point is None else _outcomes(query, run.copies, point), certificate=run.certificate(upper),
        float32_agrees=None if point is None else _replayed(run, point), boxes=run.boxes, seconds=clock.now() - started,
        reason=None if lower == upper else reason or Reason.NUMERICAL, semantics=semantics(query.model),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Boxes(Batched):
    """N open boxes: tree nodes, and raw ends (N, V) whose protected entries are those of the first combination."""

    node: Integers
    lower: Array
    upper: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bounded(Batched):
    """Of N boxes: bound (N,) of the buckets; candidate cuts: score (N, v) of each moving variable, at the value `cut` (N, v)."""

    bound: Integers
    score: Array
    cut: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bounder:
    """Bounds boxes, `block` at once: that number is fixed, as other boxes in a batch can change the last bit of a box's bound."""

    copies: Copies | TreeCopies
    thresholds: Thresholds
    block: int

    def bounded(self, boxes: _Boxes, parents: Integers, threshold: int) -> _Bounded:
        """Bound boxes.   parents: (N,) bounds from their parents.   threshold: `enough` of `most_buckets`."""
        blocks = [slice(start, start + self.block) for start in range(0, len(boxes), self.block)]
        return _Bounded.join([self._block(boxes.take(block), parents[block], threshold) for block in blocks])

    def _block(self, boxes: _Boxes, parents: Integers, threshold: int) -> _Bounded:
        def most(bounds: CopyBounds, possible: Booleans) -> Integers:
            return most_buckets(bounds, self.thresholds, self.copies.reference, possible, threshold)

        possible, bound = self.copies.possible(boxes.lower, boxes.upper), parents.copy()
        linear, score, cuts = self.copies.linear(boxes.lower, boxes.upper)
        estimate = most(linear, possible)
        if self.copies.final:
            bound = np.minimum(bound, estimate)
        else:  # only the checker's relaxation counts; where linear bounds gain nothing, it does not either
            for closer in (False, True):
                remaining = np.flatnonzero(estimate < bound)
                if len(remaining):
                    linear = self.copies.standard(boxes.lower[remaining], boxes.upper[remaining], closer=closer)
                    bound[remaining] = np.minimum(bound[remaining], most(linear, possible[remaining]))
        return _Bounded(bound=bound, score=score, cut=cuts)


class _KmaxSearch:
    """The state of one run: the tree, the open boxes by bound, the best point."""

    def __init__(self, query: KDiscrimination, budget: Budget, started: float, jobs: int) -> None:
        self.query, self.budget, self.started = query, budget, started
        schema, domain = query.schema, query.schema.domain
        self.lower, self.upper = shared_box(query)
        self.lower = np.where(domain.integer, np.ceil(self.lower), self.lower)
        self.upper = np.where(domain.integer, np.floor(self.upper), self.upper)
        if (self.lower > self.upper).any():
            v = int(np.argmax(self.lower > self.upper))
            raise QueryError(f"box of {schema.features[v].name!r}: it holds no whole number; widen it")
        values = query.combinations()
        protected = np.array([schema.index(name) for name in query.protected])
        self.lower[protected] = self.upper[protected] = values[0]
        weights = margin(query.model, 1, 0)
        model, arguments = query.model, (domain, weights, values, protected, (self.lower, self.upper))
        trees = model.of_trees
        copies = TreeCopies.of(model, *arguments) if trees else Copies.of(model.layered("kmax"), *arguments)
        self.thresholds = Thresholds.of(query.buckets, shares=not logistic(query.model))
        self.search = PointSearch(copies, self.thresholds, (self.lower, self.upper), budget.seed, started + budget.seconds)
        reference = _reference(copies, self.search.uniform(64))
        self.copies: Copies | TreeCopies = copies.with_reference(reference, self.lower, self.upper)
        cap = min(len(values), query.buckets)
        self.tree = KmaxTree(cap)
        self.cap = cap
        self.block = max(1, COPIES // len(self.copies))
        bounder = _Bounder(copies=self.copies, thresholds=self.thresholds, block=self.block)
        self.helpers = Helpers(Shared(value=bounder.bounded), jobs)
        self.open = Open[_Boxes](BLOCKS * self.block)
        self.open.add(_Boxes(node=np.array([0]), lower=self.lower[None], upper=self.upper[None]), cap)
        self.boxes = 0
        self.searched = 0.0

    @property
    def elapsed(self) -> float:
        return clock.now() - self.started

    def go(self, start: Array | None, progress: Progress | None) -> Reason | None:
        """Run until the bounds meet or the budget is spent; returns why it stopped early, or None."""
        reason: Reason | None = None

        def ended() -> bool:
            nonlocal reason
            if progress is not None:
                progress(self.search.k, int(max(self.open.top, self.search.k)))
            if self.open.top <= self.search.k:
                return True
            if self.elapsed > self.budget.seconds:
                reason = Reason.TIME
            elif self.budget.nodes is not None and self.boxes >= self.budget.nodes:
                reason = Reason.NODES
            return reason is not None

        self._first_points(start)
        subdivide(self, self._step, ended=ended, deadline=self.started + self.budget.seconds)
        return reason

    def certificate(self, upper: int) -> KmaxCertificate:
        query, names = self.query, tuple(feature.name for feature in self.query.schema.features)
        return KmaxCertificate(
            network_sha256=query.model.source_sha256,
            schema_sha256=query.schema.sha256,
            semantics=semantics(query.model),
            query=BucketQuery(
                kind="k-discrimination",
                protected=tuple(query.protected),
                box={
                    name: (float(low), float(high))
                    for name, low, high in zip(names, self.lower, self.upper, strict=True)
                    if name not in query.protected
                },
                combinations=tuple(tuple(row) for row in self.copies.values.tolist()),
                buckets=query.buckets,
            ),
            features=names,
            upper=upper,
            reference=self.copies.reference,
            tree=self.tree.certificate(upper),
        )

    # Points

    def _first_points(self, start: Array | None) -> None:
        if start is not None and len(start):
            free = np.delete(np.arange(len(self.lower)), self.copies.protected)
            points = np.array(start, dtype=np.float64)
            inside = ((points >= self.lower) & (points <= self.upper))[:, free].all(axis=1)
            integral = ((points == np.floor(points)) | ~self.copies.domain.integer)[:, free].all(axis=1)
            points[:, self.copies.protected] = self.copies.values[0]
            self.search.look(points[inside & integral])
        self.search.look(self.search.uniform(max(64, min(POINTS, POINTS * 64 // len(self.copies)))))
        stale = 0
        while stale < STALE and self.search.k < self.cap and self.elapsed < self.budget.seconds / 4:
            previous = self.search.k
            self.search.mutate()
            stale = stale + 1 if self.search.k == previous else 0
        self.searched = self.elapsed

    def _mutate_while_cheap(self) -> None:
        while self.searched < SEARCHING * self.elapsed:
            started = clock.now()
            self.search.mutate()
            self.searched += clock.now() - started

    # Boxes

    def take(self, limit: int) -> _Boxes | None:
        """Take open boxes with the largest bound, as many as the budget's nodes allow."""
        return self.open.take(limit if self.budget.nodes is None else min(limit, max(1, self.budget.nodes - self.boxes)))

    def _step(self, boxes: _Boxes) -> None:
        """Bound boxes, and split those that stay above the best point. Then search for better points, while that is cheap."""
        self._bound_and_split(boxes)
        self._mutate_while_cheap()

    def _bound_and_split(self, boxes: _Boxes) -> None:
        self.boxes += len(boxes)
        centre = self.copies.domain.middle(boxes.lower, boxes.upper)
        self.search.look(centre)
        boxes = self._without_points(boxes, centre)
        if not len(boxes):
            return
        bounded = self._bounded(boxes)
        bound = self.tree.tighten(boxes.node, bounded.bound)
        left = bound > self.search.k
        self._split(boxes.take(left), bounded.cut[left], bound[left], bounded.score[left])

    def _bounded(self, boxes: _Boxes) -> _Bounded:
        """Bound boxes, in all processes."""
        parents, threshold = self.tree.known["bound"][boxes.node], self.search.k
        blocks = -(-len(boxes) // self.block)
        jobs = min(self.helpers.ready(), blocks)
        parts = [slice(low, high) for low, high in pairwise(blocks * k // jobs * self.block for k in range(jobs + 1))]
        return _Bounded.join(self.helpers.together([(boxes.take(part), parents[part], threshold) for part in parts]))

    def _without_points(self, boxes: _Boxes, centre: Array) -> _Boxes:
        """Decide exactly the boxes that hold one network input, and return the others."""
        low, high = self.copies.domain.box(boxes.lower, boxes.upper)
        point = (low == high).all(axis=1)
        for n in np.flatnonzero(point):
            # Real values can differ and still be one float32 input: every copy that is legal somewhere in the box counts.
            box = boxes.take(np.array([n]))
            counted = self.copies.possible(box.lower, box.upper)[0]
            decided = Point.at(self.copies, self.thresholds, centre[n], counted)
            self.tree.tighten(box.node, np.array([decided.most]))
        return boxes.take(~point)

    def _split(self, boxes: _Boxes, cuts: Array, bound: Integers, score: Array) -> None:
        if not len(boxes):
            return
        domain, variables = self.copies.domain, self.copies.variables
        divisible = domain.divisible(boxes.lower, boxes.upper)[:, variables] & ~np.isnan(cuts)
        relative = ((boxes.upper - boxes.lower) / np.maximum(self.upper - self.lower, 1e-300))[:, variables]
        score = np.where(divisible, np.maximum(np.nan_to_num(score), 0.0) + 1e-12 * relative, -np.inf)
        # A real interval with no float64 inside but two float32 inputs cannot be cut: it stays an open leaf with its bound.
        rows = np.flatnonzero(divisible.any(axis=1))
        best = score[rows].argmax(axis=1)
        v, cut = variables[best], cuts[rows, best]
        lower, upper = domain.halves(boxes.lower[rows], boxes.upper[rows], v, cut)
        if isinstance(self.copies, TreeCopies):
            lower[len(rows) :] = self.copies.above_cut(v, cut, lower[len(rows) :])
        children = self.tree.split(boxes.node[rows], v, cut)
        halves = _Boxes(node=np.concatenate([children, children + 1]), lower=lower, upper=upper)
        level = np.concatenate([bound[rows]] * 2)
        for k in np.unique(level):
            self.open.add(halves.take(level == k), k)


def _reference(copies: Copies | TreeCopies, points: Array) -> int:
    """Return the copy with the least distance to the others, over some points (N, V)."""
    logits = copies.evaluate(points)
    centre = np.median(logits, axis=1, keepdims=True)
    return int(np.abs(logits - centre).sum(axis=0).argmin())


def _outcomes(query: KDiscrimination, copies: Copies | TreeCopies, point: Point) -> tuple[CombinationOutcome, ...]:
    outcomes, logits = [], copies.evaluate(point.x[None])[0].tolist()
    for z, row in enumerate(copies.values.tolist()):
        combination = {name: query.schema[name].word(value) for name, value in zip(query.protected, row, strict=True)}
        bucket = int(point.buckets[z, 0]) if point.decided[z] else None
        outcomes.append(CombinationOutcome(combination=combination, logit=logits[z], bucket=bucket))
    return tuple(outcomes)


def _replayed(run: _KmaxSearch, point: Point) -> bool | None:
    """Return True if float32 onnxruntime shows as many buckets at the witness; None without a model file."""
    copies = run.copies
    if copies.network.source is None:
        return None
    inputs = copies.domain.encode(copies.rows(point.x[None])[0]).astype(np.float32)
    logits = runtime_logits(copies.network, inputs) @ copies.margin
    buckets = np.searchsorted(run.thresholds.lower, logits, side="left")
    return bool(different(buckets[None], point.counted[None])[0] >= point.k)


class KmaxTree(Trees):
    """One tree, and the most buckets that every node may hold. A node is a leaf until it is split."""

    def __init__(self, bound: int) -> None:
        super().__init__(1, bound=np.array([bound]))

    def tighten(self, nodes: Integers, bound: Integers) -> Integers:
        """Lower the bounds of some nodes, never raising one; returns their bounds."""
        np.minimum.at(self.known["bound"], nodes, bound)
        return np.asarray(self.known["bound"][nodes])

    def upper(self) -> int:
        """Return the largest bound of a leaf."""
        return int(self.known["bound"][: self.size][self.feature[: self.size] == -1].max())

    def certificate(self, upper: int) -> Tree:
        """Return the tree cut off at the first nodes whose own bound is at most `upper`."""
        leaf = (self.feature[: self.size] == -1) | (self.known["bound"][: self.size] <= upper)
        feature, cut = self.splits(self.preorder([0], leaf), leaf)
        return Tree.plain(feature, cut)
