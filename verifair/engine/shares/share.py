"""`certify_share`: bound the share of a box that is treated alike from below and above, by cutting the box into cells.

Method: every cell is bounded for each copy (`cells`). Cells with one answer throughout are done; in the others the points on both
sides of an undecided strip are counted. Cells with the most open volume are cut first.
Sound? yes: the certificate holds the tree, and `check` bounds and counts it again.
Complete? to the tolerance, within the budget: cells end as single network inputs, which exact arithmetic decides.
References: FairQuant (Kim et al., ICSE 2025) defines the share; it decides cells only as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Integers
from encoders.domain import Batched, Regions
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.share import ShareCertificate, ShareQuery
from verifair.checker.certificates.tree import Tree, leaf_regions
from verifair.checker.shares import SLACK, ShareQuestion
from verifair.engine.parallel import Helpers, Shared
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, box_of
from verifair.engine.search.boxes import uniform
from verifair.engine.search.subdivision import subdivide
from verifair.engine.search.trees import Trees
from verifair.engine.shares.cells import COPIES, COPY, SPARE, CellLooks, ShareCells
from verifair.engine.verdict import Reason
from verifair.errors import CertificateError, DataError, QueryError
from verifair.files import whole
from verifair.notebook.pictures import shares
from verifair.notebook.shown import Pictured

AT_ONCE, PART = 256, 32
"""Leaves cut at a time: at least AT_ONCE, or one in PART if there are many, but never more than a quarter of all."""
POINTS = "fair", "unfair", "outside", "open"
"""The counts of a cell, which its halves inherit when it is cut."""
KEEP = 60.0
"""The least seconds between two writings of an unfinished tree, which a kill may lose. Writing takes at most 5 % of the time."""
SAMPLE, FEWEST, SAMPLE_WORK = 10_000, 200, 5_000_000_000
"""The most and the fewest points of a sample, and about the most multiplications for it."""
EACH = 64
"""The fewest cells that a process gets: fewer take less time to bound than to send."""


@dataclass(frozen=True, kw_only=True, repr=False)
class CertifiedShare(Pictured):
    """Bounds of the share of a box in which no decision flips: fair <= share <= 1 - unfair.

    certificate: proves both; it is also the store of the run.   cells: number of leaves of its tree.
    reason: why 1 - fair - unfair exceeds the tolerance (None: it does not).   seconds: of all runs together.
    """

    fair: float
    unfair: float
    certificate: ShareCertificate
    cells: int
    reason: Reason | None
    seconds: float
    semantics: str

    @property
    def width(self) -> float:
        """The share that is open: 1 - fair - unfair."""
        return max(0.0, 1 - self.fair - self.unfair)

    def _draw(self, path: Path) -> None:
        parts = {"fair": self.fair, "open": max(0.0, 1 - self.fair - self.unfair), "not fair": self.unfair}
        shares(parts, "share of the domain", path)


def certify_share(
    query: IndividualFairness, *, tolerance: float = 1e-3, budget: Budget | None = None, store: str | Path | None = None,
    resume: bool = False, jobs: int = 1, progress: Callable[[float, float], None] | None = None,
) -> CertifiedShare:
    """Bound the share of the query's box in which no decision flips, until at most `tolerance` of it is open.

    Only points with at least two legal rows to compare are counted.
    Requires: a piecewise-linear network or a tree ensemble, and a query about favourable decisions, with nothing relaxed.
    Returns: the bounds and their certificate, which is also written to `store`; `resume` continues with the tree in that file.
    budget: seconds by the clock, and cells (nodes). When it is spent, or after Ctrl-C, the bounds so far are returned.
    jobs: processes that bound cells; the tree does not depend on it.   progress: called with estimates of both bounds.
    Sound? yes, see the certificate.   Complete? to the tolerance, within the budget (seconds, nodes: cells).
    Raises QueryError for other questions, DataError for a store of another one.   Reference: FairQuant (Kim et al., ICSE 2025).
    """
    _check(query, tolerance)
    budget = budget or Budget()
    question = share_question(query)
    stored = _stored(query, store) if resume and store is not None else None
    search = _ShareSearch(query, question, tolerance, budget, stored, jobs)

    def keep() -> None:
        if store is not None:
            with whole(Path(store)) as half:
                search.certificate().save(half)

    reason = search.run(progress, keep)
    certificate = search.certificate()
    if not search.total:
        raise QueryError("the schema's constraints leave no two compared rows in the box: widen it, or protect other features")
    keep()
    width = 1 - certificate.fair - certificate.unfair
    return CertifiedShare(
        fair=_rounded(certificate.fair), unfair=_rounded(certificate.unfair), certificate=certificate, cells=search.cells,
        reason=None if width <= tolerance else reason or Reason.NUMERICAL, seconds=search.seconds,
        semantics=semantics(query.model),
    )


def row_shares(query: IndividualFairness, raw: Array) -> tuple[int, int, int]:
    """Return the numbers of rows (N, V) of a table that are fair, and that are not, both decided exactly, and of those that are not
    counted: outside the box (protected values aside), or without legal rows to compare."""
    question = share_question(query)
    lower, upper = box_of(query.schema, query.box)
    rows = np.where(np.isin(np.arange(raw.shape[1]), question.index), lower, raw)
    inside = rows[query.schema.domain.within(rows) & ((rows >= lower) & (rows <= upper)).all(axis=1)]
    fair = unfair = 0
    for i in range(0, len(inside), COPIES):
        part = inside[i : i + COPIES]
        pairs, _ = question.comparisons(part, part)
        counted = pairs.any(axis=(1, 2))
        is_fair = question.decided(query.model, part[counted], pairs[counted])
        fair, unfair = fair + int(is_fair.sum()), unfair + int((~is_fair).sum())
    return fair, unfair, len(raw) - fair - unfair


def sampled_share(query: IndividualFairness, *, seed: int) -> tuple[int, int]:
    """Return the number of random points of the query's box that are counted, and of those that are not fair, each decided exactly:
    the uniform distribution is that of the certified share.   Sound? it is a measurement, and proves nothing."""
    lower, upper = box_of(query.schema, query.box)
    copies = len(share_question(query).values)
    count = int(np.clip(SAMPLE_WORK // (copies * (query.model.work + COPY)), FEWEST, SAMPLE))
    rng, is_whole = np.random.default_rng(seed), query.schema.domain.integer
    fair, unfair, _ = row_shares(query, uniform(rng, np.tile(lower, (count, 1)), np.tile(upper, (count, 1)), is_whole))
    return fair + unfair, unfair


def share_question(query: IndividualFairness) -> ShareQuestion:
    lower, upper = box_of(query.schema, query.box)
    Pairs.of(query, lower, upper)  # refuses boxes without pairs, or with too many
    index = [query.schema.index(name) for name in query.protected]
    question = ShareQuestion.of(query.schema.domain, lower, upper, index, differ=query.differ, strict=query.signs == "strict")
    return replace(question, slack=4 * SLACK)  # the checker sums in another order


def _check(query: IndividualFairness, tolerance: float) -> None:
    if not 0 <= tolerance < 1:
        raise QueryError(f"tolerance = {tolerance}: expected at least 0 and less than 1")
    if query.model.ensemble is None:
        query.model.require_piecewise_linear("the certified share")
    query.require_favourable("the certified share")
    if query.epsilon is not None:
        raise QueryError("the certified share is about decisions: drop epsilon")
    if query.relax:
        raise QueryError("the certified share counts people by what both copies have in common: drop relax")
    if query.arithmetic != "real":
        raise QueryError("the certified share is about the real-valued function only: drop arithmetic = 'float32'")


def _rounded(share: Fraction) -> float:
    """Return a share as a float, rounded down."""
    value = float(share)
    return float(np.nextafter(value, -np.inf)) if Fraction(value) > share else value


def _query(query: IndividualFairness, tolerance: float | None = None) -> ShareQuery:
    lower, upper = box_of(query.schema, query.box)
    box = {feature.name: (float(low), float(high)) for feature, low, high in zip(query.schema.features, lower, upper, strict=True)}
    return ShareQuery(
        kind="certified-share", protected=tuple(query.protected), box=box, differ="any" if query.differ == "any" else "all",
        signs=query.signs, tolerance=tolerance,
    )


def _stored(query: IndividualFairness, store: str | Path) -> ShareCertificate:
    try:
        certificate = ShareCertificate.load(store)
    except CertificateError as error:
        raise DataError(f"{error}; name another file with --store") from None
    matches = (replace(certificate.query, tolerance=None), certificate.network_sha256, certificate.schema_sha256) == (
        _query(query), query.model.source_sha256, query.schema.sha256
    )
    if not matches or not certificate.intact:
        raise DataError(f"{store}: holds another question; pass the same model, schema and options as it was made with")
    return certificate


@dataclass(frozen=True, kw_only=True, eq=False)
class _Taken(Batched):
    """Leaves that are to be cut."""

    node: Integers


class _ShareSearch:
    """The state of the search: the tree, with the data of `ShareCells` for every node; a node that is cut has no points."""

    def __init__(
        self, query: IndividualFairness, question: ShareQuestion, tolerance: float, budget: Budget, stored: ShareCertificate | None,
        jobs: int,
    ) -> None:
        self.query, self.question, self.tolerance, self.budget = query, question, tolerance, budget
        self.domain = domain = question.domain
        self.looks = CellLooks.of(query.model, question)
        self.volume, self.helpers = self.looks.volume, Helpers(Shared(value=self.looks.cells), jobs)
        self.started = clock.now()
        self.deadline = self.started + (np.inf if budget.seconds is None else budget.seconds)
        self.earlier = stored.history[-1][0] if stored is not None and stored.history else 0.0
        self.history = [] if stored is None else list(stored.history)
        root = self._looked_at(question.lower[None], question.upper[None])
        small = domain.integer.all() and max(np.abs(root.lower).max(), np.abs(root.upper).max()) < 2**31
        cells = replace(root, lower=root.lower.astype(np.int32), upper=root.upper.astype(np.int32)) if small else root
        self.trees = Trees(1, **{name: getattr(cells, name) for name in cells.__dataclass_fields__})
        if stored is not None:
            self._grow(stored.tree)

    @property
    def cells(self) -> int:
        """The number of leaves."""
        return (self.trees.size + 1) // 2

    @property
    def total(self) -> Fraction:
        """The volume of points that may be counted."""
        return self.volume if self.domain.forbidden is None else self.volume - self._known("outside").sum()

    @property
    def seconds(self) -> float:
        return self.earlier + clock.now() - self.started

    def run(self, progress: Callable[[float, float], None] | None, keep: Callable[[], None]) -> Reason | None:
        """Cut cells until the bracket is narrow enough; return why it ended earlier, or None. keep: writes the present tree."""
        reason: Reason | None = None
        reported = self.started
        next_save = time.monotonic() + KEEP

        def ended() -> bool:
            nonlocal reason, reported, next_save
            if (start := time.monotonic()) > next_save:
                keep()
                next_save = (end := time.monotonic()) + max(KEEP, 20 * (end - start))
            now = clock.now()
            if now - reported > 1:
                fair, unfair = self._shares()
                reported = clock.now()
                if progress is not None:
                    progress(float(fair), float(1 - unfair))
            if self._known("open").sum() <= 0.98 * self.tolerance * float(self.total / self.volume):
                return True
            if now > self.deadline:
                reason = Reason.TIME
            elif self.budget.nodes is not None and self.trees.size >= self.budget.nodes:
                reason = Reason.NODES
            return reason is not None

        try:
            subdivide(self, self._step, ended=ended, deadline=self.deadline)
        except KeyboardInterrupt:
            reason = Reason.INTERRUPTED
        return reason

    def take(self, limit: int) -> _Taken | None:
        """Return at most `limit` leaves that can be cut, those with the largest open volume."""
        left = np.where(self._known("variable") >= 0, self._known("open"), 0.0)
        divisible = np.flatnonzero(left)
        if not len(divisible):
            return None
        count = min(max(AT_ONCE, len(divisible) // PART), limit, max(1, len(divisible) // 4))
        return _Taken(node=divisible[np.argpartition(-left[divisible], count - 1)[:count]])

    def _step(self, taken: _Taken) -> None:
        nodes = taken.node
        variable, cut, (lower, upper) = self._known("variable")[nodes], self._known("cut")[nodes], self._boxes(nodes)
        cells = self._looked_at(*self.domain.halves(lower, upper, variable, cut))
        for name in POINTS:  # halves inherit 0: an interrupt here leaves less than is proved, and never more
            self._known(name)[nodes] = 0
        first = self.trees.split(nodes, variable, cut)
        self._note(np.concatenate([first, first + 1]), cells)

    def _known(self, name: str) -> npt.NDArray[Any]:
        return self.trees.known[name][: self.trees.size]

    def _boxes(self, nodes: Integers) -> tuple[Array, Array]:
        return self._known("lower")[nodes].astype(np.float64), self._known("upper")[nodes].astype(np.float64)

    def _note(self, nodes: Integers, cells: ShareCells) -> None:
        for name in cells.__dataclass_fields__:
            self._known(name)[nodes] = getattr(cells, name)

    def _grow(self, tree: Tree) -> None:
        """Take over a tree of an earlier run. Raises DataError if it is no tree over this box."""
        decoded = leaf_regions(tree.feature, tree.cut, Regions.whole(self.question.lower, self.question.upper), self.domain)
        if isinstance(decoded, str) or np.isin(tree.feature, self.question.index).any():
            raise DataError("the store's tree is none over the query's box; name another file with --store")
        for name in POINTS:
            self._known(name)[:] = 0
        number, (leaves, regions) = self.trees.grow(tree), decoded
        self._note(number[leaves], self._looked_at(regions.lower, regions.upper))

    def _looked_at(self, lower: Array, upper: Array) -> ShareCells:
        """Bound and count cells (B, V), and choose their next cuts, in all processes."""
        clock.spend(len(lower) * len(self.question.values) * (COPY + self.looks.bounds.work))
        jobs = max(min(self.helpers.ready(), len(lower) // EACH), 1)
        parts = zip(np.array_split(lower, jobs), np.array_split(upper, jobs), strict=True)
        return ShareCells.join(self.helpers.together(list(parts)))

    def _shares(self) -> tuple[Fraction, Fraction]:
        """Return the fair and the unfair share of all cells, and add them to the history."""
        strip = self._known("strip")
        points = [(self._known(name)[~strip].sum(), self._known(name)[strip].sum()) for name in ("fair", "unfair")]
        fair, unfair = ((exact + (1 - SPARE) * counted) / (self.total or 1) for exact, counted in points)
        self.history.append((self.seconds, float(fair), float(unfair)))
        return fair, unfair

    def certificate(self) -> ShareCertificate:
        fair, unfair = self._shares()
        leaf = np.asarray(self.trees.feature[: self.trees.size] == -1)
        return ShareCertificate(
            network_sha256=self.query.model.source_sha256, schema_sha256=self.query.schema.sha256,
            semantics=semantics(self.query.model), query=_query(self.query, self.tolerance),
            features=tuple(feature.name for feature in self.query.schema.features), fair=fair, unfair=unfair,
            tree=self.trees.written(np.zeros(1, dtype=np.int64), leaf, {})[0], history=tuple(self.history),
        )
