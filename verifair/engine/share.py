"""`certify_share`: which share of a box is treated alike, and which is not, bracketed by cutting the box into cells.

Method: every cell is bounded by an affine form for each copy (`encoders.bounds.copies`). Cells where these show one answer
throughout are done; of the others the forms say on which sides of a strip points are fair and unfair, which is estimated, and those
with the most open volume are cut where the bands of their neurons come from. At the end the points on both sides of each
strip are counted exactly.
Sound? yes: the certificate holds the tree, and `check` bounds and counts it again.
Complete? to the tolerance, within the budget: cells end as single network inputs, which exact arithmetic decides.
References: the share is that of FairQuant (Kim et al., ICSE 2025), whose cells are decided as wholes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from encoders.bounds.copies import CopyForms
from encoders.domain import Batched, Regions
from encoders.network import Array, Booleans, Integers
from solvers.outcome import Budget
from verifair.checker.envelope import semantics
from verifair.checker.share_certificate import ShareCertificate, ShareQuery
from verifair.checker.shares import MOST, SLACK, CopyShapes, Counted, ShareQuestion
from verifair.checker.tree import Tree, leaf_regions
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, box_of, margin
from verifair.engine.search.subdivision import subdivide
from verifair.engine.verdict import Reason
from verifair.errors import CertificateError, DataError, QueryError

AT_ONCE = 512
"""Cells cut at a time, or a quarter of all where there are few."""
COPIES = 4096
"""Copies bounded at a time when a tree is read again."""
SPARE = Fraction(1, 10**6)
"""Share of what is counted in cells of both kinds that is not stated: the checker's directions are rounded in another order."""
SAMPLE = 32
"""Cells of a batch that are counted at once, so that it is known how long counting all will take."""


@dataclass(frozen=True, kw_only=True)
class CertifiedShare:
    """At least `fair` and at most 1 - `unfair` of the box is fair.

    certificate: shows both; also the store of the run.   cells: leaves of its tree.   rows: of a table, see `row_shares`.
    reason: why the bracket is wider than the tolerance, None where it is not.   seconds: of all runs together.
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
        return max(0.0, 1 - self.fair - self.unfair)


def certify_share(
    query: IndividualFairness, *, tolerance: float = 1e-3, budget: Budget | None = None, store: str | Path | None = None,
    resume: bool = False, progress: Callable[[float, float], None] | None = None,
) -> CertifiedShare:
    """Bracket the share of the query's box where no decision flips, to `tolerance` or as far as the budget goes.

    Requires: a piecewise-linear network with one or two logits, a schema without constraints, no epsilon and nothing relaxed.
    Returns: the bracket and its certificate, which is written to `store` where one is named; `resume` goes on with the tree there.
    progress is called with estimates of the fair share and of that which is not unfair. Ctrl-C ends it with what is known by then.
    Sound? yes, see the certificate.   Complete? to the tolerance, within the budget (seconds, nodes: cells).
    Raises QueryError for other questions, DataError for a store of another one.
    """
    _check(query, tolerance)
    budget = budget or Budget()
    question = share_question(query)
    before = _stored(query, store) if resume and store is not None else None
    search = _ShareSearch(query, question, tolerance, budget, before)
    reason = search.run(progress)
    certificate = search.certificate()
    if store is not None:
        path = Path(store)
        half = path.with_name(f"part-{path.name}")
        certificate.save(half)
        half.replace(path)
    width = 1 - certificate.fair - certificate.unfair
    return CertifiedShare(
        fair=_rounded(certificate.fair), unfair=_rounded(certificate.unfair), certificate=certificate, cells=len(search.cells),
        reason=None if width <= tolerance else reason or Reason.NUMERICAL, seconds=search.seconds,
        semantics=semantics(query.network),
    )


def row_shares(query: IndividualFairness, raw: Array) -> tuple[int, int, int]:
    """Return how many rows (N, V) of a table are fair, how many are not, both decided exactly, and how many lie outside the box."""
    question = share_question(query)
    lower, upper = box_of(query.schema, query.box)
    raw = np.where(np.isin(np.arange(raw.shape[1]), question.index), lower, raw)
    inside = raw[query.schema.inside(raw) & ((raw >= lower) & (raw <= upper)).all(axis=1)]
    weights = margin(query.network, 1, 0)
    parts = [question.decided(query.network, weights, inside[i : i + COPIES]) for i in range(0, len(inside), COPIES)]
    fair = int(sum(int(part.sum()) for part in parts))
    return fair, len(inside) - fair, len(raw) - len(inside)


def share_question(query: IndividualFairness) -> ShareQuestion:
    lower, upper = box_of(query.schema, query.box)
    Pairs.of(query, lower, upper)  # refuses boxes without pairs, or with too many
    index = [query.schema.index(name) for name in query.protected]
    found = ShareQuestion.of(query.schema.domain, lower, upper, index, differ=query.differ, strict=query.signs == "strict")
    return replace(found, slack=4 * SLACK)  # the checker sums in another order


def _check(query: IndividualFairness, tolerance: float) -> None:
    if not 0 <= tolerance < 1:
        raise QueryError(f"tolerance = {tolerance}: expected at least 0 and less than 1")
    query.network.require_piecewise_linear("the certified share")
    if query.epsilon is not None:
        raise QueryError("the certified share is about decisions: drop epsilon")
    if query.relax:
        raise QueryError("the certified share counts people by what both copies have in common: drop relax")
    if query.arithmetic != "real":
        raise QueryError("the certified share is about the real-valued function only: drop arithmetic = 'float32'")
    if query.network.outputs > 2:
        raise QueryError(f"the network has {query.network.outputs} logits, the certified share takes one or two")
    if query.schema.domain.forbidden is not None:
        raise QueryError("the schema's constraints forbid some rows, and the certified share counts all: drop them, or --partition")


def _rounded(share: Fraction) -> float:
    """Return a float that is not above a share."""
    value = float(share)
    return float(np.nextafter(value, -np.inf)) if Fraction(value) > share else value


def _query(query: IndividualFairness) -> ShareQuery:
    lower, upper = box_of(query.schema, query.box)
    box = {one.name: (float(low), float(high)) for one, low, high in zip(query.schema.features, lower, upper, strict=True)}
    return ShareQuery(
        kind="certified-share", protected=tuple(query.protected), box=box, differ="any" if query.differ == "any" else "all",
        signs=query.signs,
    )


def _stored(query: IndividualFairness, store: str | Path) -> ShareCertificate:
    try:
        found = ShareCertificate.load(store)
    except CertificateError as error:
        raise DataError(f"{error}; name another file with --store") from None
    same = (found.query, found.network_sha256, found.schema_sha256) == (
        _query(query), query.network.source_sha256, query.schema.sha256
    )
    if not same or not found.intact:
        raise DataError(f"{store}: holds another question; pass the same model, schema and options as it was made with")
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cells(Batched):
    """node: (B,) of the tree.   lower, upper: (B, V).   fair, unfair: (B,) shares of the box, estimated where something is open.
    open: (B,) what is left.   kind: (B,) FAIR, UNFAIR, or STRIP.   variable: (B,) where it is cut, -1 where it cannot be."""

    node: Integers
    lower: Array
    upper: Array
    fair: Array
    unfair: Array
    open: Array
    kind: Integers
    variable: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class _Splits(Batched):
    """Nodes (S,) that were cut, where, and their children."""

    node: Integers
    feature: Integers
    cut: Array
    first: Integers
    second: Integers

    @classmethod
    def none(cls) -> _Splits:
        whole = np.empty(0, dtype=np.int64)
        return cls(node=whole, feature=whole, cut=np.empty(0), first=whole, second=whole)


STRIP, FAIR, UNFAIR = 0, 1, 2


class _ShareSearch:
    """The tree under way, and its leaves."""

    def __init__(
        self, query: IndividualFairness, question: ShareQuestion, tolerance: float, budget: Budget, before: ShareCertificate | None
    ) -> None:
        self.query, self.question, self.tolerance, self.budget = query, question, tolerance, budget
        self.domain, self.weights = query.schema.domain, margin(query.network, 1, 0)
        low, high = (end[0] for end in self.domain.box(query.schema.domain.lower[None], query.schema.domain.upper[None]))
        self.copies = CopyForms(query.network, self.weights, np.minimum(low, high), np.maximum(low, high))
        order = np.argsort(self.domain.start)  # owner: (n_0, V) of each column, its variable
        self.owner = np.repeat(np.eye(self.domain.variables)[order], self.domain.width[order], axis=0)
        self.total = float(question.total)
        self.started, self.counting = time.monotonic(), 0.0
        self.deadline = self.started + (np.inf if budget.seconds is None else budget.seconds)
        self.earlier = before.history[-1][0] if before is not None and before.history else 0.0
        self.history = [] if before is None else list(before.history)
        self.splits: list[_Splits] = []
        self.shown: dict[int, Counted] = {}
        node, lower, upper, self.nodes = np.zeros(1, dtype=np.int64), question.lower[None], question.upper[None], 1
        if before is not None:
            node, lower, upper = self._grown(before.tree)
        # Cells and how many of the splits they come from, in one place: Ctrl-C finds both or neither.
        self.now = self._looked_at(node, lower, upper), len(self.splits)

    @property
    def cells(self) -> _Cells:
        return self.now[0]

    @property
    def seconds(self) -> float:
        return self.earlier + time.monotonic() - self.started

    def run(self, progress: Callable[[float, float], None] | None) -> Reason | None:
        """Cut cells until the bracket is narrow; return why it ended before that."""
        reason: Reason | None = None
        told = self.started

        def ended() -> bool:
            nonlocal reason, told
            now = time.monotonic()
            if now - told > 1 or (not self.counting and self.nodes > SAMPLE):
                told = now
                self._note()
                self._measure()
                if progress is not None:
                    progress(float(self.cells.fair.sum()), float(1 - self.cells.unfair.sum()))
            left = float(self.cells.open.sum())
            if left <= 0.98 * self.tolerance and (self.tolerance > 0 or not self.cells.open.any()):
                return True
            if self._late():
                self._measure()  # cells may have become smaller
                reason = Reason.TIME if self._late() else None
            if reason is None and self.budget.nodes is not None and self.nodes >= self.budget.nodes:
                reason = Reason.NODES
            return reason is not None

        try:
            while True:
                subdivide(self, self._step, ended=ended, deadline=self.deadline)
                if reason is not None or not self._open().any():
                    return reason
                sums = self._sums()
                if 1 - (sums.fair + sums.unfair) / self.question.total <= Fraction(self.tolerance):
                    return None
                if time.monotonic() > self.deadline:
                    return Reason.TIME
                self._again()
        except KeyboardInterrupt:
            return Reason.INTERRUPTED

    def _late(self) -> bool:
        """Return whether it is time to count what there is."""
        strips = int((self.cells.kind == STRIP).sum())
        return time.monotonic() + 1.2 * strips * self.counting > self.deadline

    def _measure(self) -> None:
        """Count some cells, all over the list, to know how long all will take."""
        strips = np.flatnonzero(self.cells.kind == STRIP)
        self.counting = 0.0
        self._count(self.cells.take(strips[:: len(strips) // SAMPLE + 1]))

    def _open(self) -> Booleans:
        return np.asarray((self.cells.kind == STRIP) & (self.cells.variable >= 0) & (self.cells.open > 0))

    def take(self, most: int = AT_ONCE) -> _Cells | None:
        """Return at most so many of the cells with the largest open volume, which are then no longer among the leaves."""
        able = np.flatnonzero(self._open())
        if not len(able):
            return None
        count = min(AT_ONCE, most, max(1, len(able) // 4))
        top = able[np.argpartition(-self.cells.open[able], count - 1)[:count]]
        keep = np.ones(len(self.cells), dtype=bool)
        keep[top] = False
        taken = self.cells.take(top)
        self._kept = self.cells.take(keep)
        return taken

    def _step(self, cells: _Cells) -> None:
        at = self.domain.middle(cells.lower, cells.upper)[np.arange(len(cells)), cells.variable]
        lower, upper = self.domain.halves(cells.lower, cells.upper, cells.variable, at)
        first = self.nodes + np.arange(len(cells))
        second = first + len(cells)
        found = self._looked_at(np.concatenate([first, second]), lower, upper)
        self.splits.append(_Splits(node=cells.node, feature=cells.variable, cut=at, first=first, second=second))
        self.now, self.nodes = (_Cells.join([self._kept, found]), len(self.splits)), self.nodes + len(found)

    def _looked_at(self, node: Integers, lower: Array, upper: Array) -> _Cells:
        """Bound some cells, decide single inputs, and estimate what is open of the others."""
        step = max(1, COPIES // len(self.question.values))
        parts = [self._look(node[i : i + step], lower[i : i + step], upper[i : i + step]) for i in range(0, len(node), step)]
        return _Cells.join(parts)

    def _shapes(self, lower: Array, upper: Array) -> tuple[CopyShapes, Array, Array, Booleans]:
        """Return the forms of all copies, the half-widths of the network boxes, the scores (B, n_0), and which are one input."""
        question, count = self.question, len(self.question.values)
        low, high = self.domain.box(question.rows(lower), question.rows(upper))
        forms = self.copies.forms(low, high)
        shapes = CopyShapes(
            slope=forms.slope.reshape(len(lower), count, -1), value=forms.value.reshape(-1, count),
            radius=forms.radius.reshape(-1, count),
        )
        score = forms.score.reshape(len(lower), count, -1).sum(axis=1)
        point = (low == high).all(axis=1).reshape(-1, count).all(axis=1)
        return shapes, ((high - low) / 2)[::count], score, np.asarray(point)

    def _look(self, node: Integers, lower: Array, upper: Array) -> _Cells:
        question = self.question
        shapes, radius, score, point = self._shapes(lower, upper)
        fair, unfair = question.shown(shapes, radius)
        settle = np.flatnonzero(point & ~fair & ~unfair)
        if len(settle):
            settled = question.decided(self.query.network, self.weights, lower[settle])
            fair[settle], unfair[settle] = settled, ~settled
        share = self._shares(lower, upper)
        some, other, variable = self._estimated(shapes, radius, score, lower, upper)
        part_fair = np.where(fair, 1.0, np.where(unfair, 0.0, some))
        part_unfair = np.where(unfair, 1.0, np.where(fair, 0.0, other))
        done = fair | unfair
        left = np.where(done, 0.0, np.maximum(1 - part_fair - part_unfair, np.finfo(float).eps))
        return _Cells(
            node=node, lower=lower, upper=upper, fair=share * part_fair, unfair=share * part_unfair, open=share * left,
            kind=np.where(fair, FAIR, np.where(unfair, UNFAIR, STRIP)), variable=variable,
        )

    def _shares(self, lower: Array, upper: Array) -> Array:
        """Return (B,) about how much of the box each cell is."""
        question, whole = self.question, self.domain.integer
        width = np.where(whole, upper - lower + 1, np.where(question.upper > question.lower, upper - lower, 1.0))
        return np.asarray(width.prod(axis=1) / self.total)

    def _estimated(
        self, shapes: CopyShapes, radius: Array, score: Array, lower: Array, upper: Array
    ) -> tuple[Array, Array, Integers]:
        """Return (B,) about which share of each cell's points is fair, and unfair, as though their direction were normal; and the
        variable that the strip's width comes from most."""
        question, domain = self.question, self.domain
        columns = question.columns
        direction = np.zeros(radius.shape)
        direction[:, columns] = shapes.slope[:, :, columns].mean(axis=1)
        many = upper - lower + 1
        centre, variance = np.zeros(len(lower)), np.zeros(len(lower))
        for v in question.counted.tolist():
            block, one = slice(domain.start[v], domain.start[v] + domain.width[v]), many[:, v]
            direction[one > MOST, block] = 0.0
            if domain.one_hot[v]:
                possible, slopes = radius[:, block] > 0, direction[:, block]
                mean = (slopes * possible).sum(axis=1) / one
                centre += mean - (slopes * radius[:, block]).sum(axis=1)
                variance += ((slopes - mean[:, None]) ** 2 * possible).sum(axis=1) / one
            else:
                step = 2 * direction[:, block.start] * radius[:, block.start] / np.maximum(one - 1, 1)
                variance += step**2 * (one**2 - 1) / 12
        sigma = np.sqrt(variance) + np.finfo(float).tiny
        apart = np.abs(shapes.slope - direction[:, None])
        width = (apart @ radius[:, :, None])[:, :, 0] + shapes.radius
        low, high = shapes.value - width + centre[:, None], shapes.value + width + centre[:, None]
        with np.errstate(all="ignore"):
            fair = ndtr(low.min(axis=1) / sigma) + ndtr(-high.max(axis=1) / sigma)
            unfair = np.maximum(ndtr(-high.min(axis=1) / sigma) - ndtr(-low.max(axis=1) / sigma), 0.0)
        columns_score = score + (apart.sum(axis=1) + 1e-6 * np.abs(shapes.slope).sum(axis=1)) * radius
        blame = columns_score @ self.owner
        can = domain.divisible(lower, upper)
        wide = (upper - lower) / np.maximum(question.upper - question.lower, np.finfo(float).tiny)
        blame = np.where(can, blame + 1e-9 * wide * blame.max(axis=1, keepdims=True) + 1e-300 * wide, -1.0)
        variable = np.where(can.any(axis=1), blame.argmax(axis=1), -1)
        return np.nan_to_num(np.clip(fair, 0, 1)), np.nan_to_num(np.clip(unfair, 0, 1)), variable

    def _sums(self) -> Counted:
        """Return what all cells show, exactly; those of strips are counted once."""
        cells = self.cells
        fair = unfair = Fraction(0)
        for kind in (FAIR, UNFAIR):
            at = np.flatnonzero(cells.kind == kind)
            volume = self._volumes(cells.lower[at], cells.upper[at])
            fair, unfair = (fair + volume, unfair) if kind == FAIR else (fair, unfair + volume)
        at = np.flatnonzero((cells.kind == STRIP) & ~np.isin(cells.node, list(self.shown)))
        at = at[np.argsort(-(cells.fair + cells.unfair)[at], kind="stable")]
        for start in range(0, len(at), SAMPLE):
            if time.monotonic() > self.deadline:
                break  # what was not counted is open
            self._count(cells.take(at[start : start + SAMPLE]))
        strips = [self.shown[node] for node in cells.node[cells.kind == STRIP].tolist() if node in self.shown]
        fair += (1 - SPARE) * sum((one.fair for one in strips), start=Fraction(0))
        unfair += (1 - SPARE) * sum((one.unfair for one in strips), start=Fraction(0))
        return Counted(fair=fair, unfair=unfair)

    def _count(self, cells: _Cells) -> None:
        """Count the points that the forms of some cells decide."""
        if not len(cells):
            return
        started, question = time.monotonic(), self.question
        shapes = self._shapes(cells.lower, cells.upper)[0]
        for k, (node, lower, upper) in enumerate(zip(cells.node.tolist(), cells.lower, cells.upper, strict=True)):
            self.shown[node] = question.count(lower, upper, shapes.take(slice(k, k + 1)))
        took = (time.monotonic() - started) / len(cells)
        self.counting = 0.9 * self.counting + 0.1 * took if self.counting else took

    def _volumes(self, lower: Array, upper: Array) -> Fraction:
        """Return the sum of the cells' volumes, exactly."""
        if self.domain.integer.all():
            points = (upper - lower + 1).astype(object)
            return Fraction(int(points.prod(axis=1).sum())) if len(points) else Fraction(0)
        return sum((self.question.volume(low, high) for low, high in zip(lower, upper, strict=True)), start=Fraction(0))

    def _again(self) -> None:
        """Take what was counted for what was estimated, so that cells are cut further where that was too hopeful."""
        cells = self.cells
        fair, unfair, nothing = cells.fair.copy(), cells.unfair.copy(), Counted(fair=Fraction(0), unfair=Fraction(0))
        for k in np.flatnonzero(cells.kind == STRIP).tolist():
            one = self.shown.get(int(cells.node[k]), nothing)
            fair[k], unfair[k] = float(one.fair / self.question.total), float(one.unfair / self.question.total)
        share = self._shares(cells.lower, cells.upper)
        left = np.where(cells.kind == STRIP, np.maximum(share - fair - unfair, 0.0), 0.0)
        self.now = replace(cells, fair=fair, unfair=unfair, open=left), self.now[1]

    def _note(self) -> None:
        self.history.append((self.seconds, float(self.cells.fair.sum()), float(self.cells.unfair.sum())))

    def certificate(self) -> ShareCertificate:
        sums = self._sums()
        fair, unfair = sums.fair / self.question.total, sums.unfair / self.question.total
        self.history.append((self.seconds, float(fair), float(unfair)))
        return ShareCertificate(
            network_sha256=self.query.network.source_sha256, schema_sha256=self.query.schema.sha256,
            semantics=semantics(self.query.network), query=_query(self.query),
            features=tuple(one.name for one in self.query.schema.features), fair=fair, unfair=unfair, tree=self._tree(),
            history=tuple(self.history),
        )

    def _tree(self) -> Tree:
        """Return the tree in preorder."""
        count = self.nodes
        made = _Splits.join(self.splits[: self.now[1]]) if self.now[1] else _Splits.none()
        feature, cut, first, second = np.full(count, -1), np.zeros(count), np.zeros(count, int), np.zeros(count, int)
        feature[made.node], cut[made.node], first[made.node], second[made.node] = made.feature, made.cut, made.first, made.second
        order, waiting, splits = list[int](), [0], feature.tolist()
        while waiting:
            node = waiting.pop()
            order.append(node)
            if splits[node] >= 0:
                waiting += [int(second[node]), int(first[node])]
        return Tree.plain(feature[order], cut[order])

    def _grown(self, tree: Tree) -> tuple[Integers, Array, Array]:
        """Take over a tree that was cut before; return its leaves. Raises DataError for one that is none over this box."""
        found = leaf_regions(tree.feature, tree.cut, Regions.whole(self.question.lower, self.question.upper), self.domain)
        if isinstance(found, str) or np.isin(tree.feature, self.question.index).any():
            raise DataError("the store's tree is none over the query's box; name another file with --store")
        second, waiting = np.zeros(len(tree.feature), dtype=np.int64), list[int]()
        for node, feature in enumerate(tree.feature.tolist()):  # after a leaf comes the second child of the last node that waits
            if feature >= 0:
                waiting.append(node)
            elif waiting:
                second[waiting.pop()] = node + 1
        inner = np.flatnonzero(tree.feature >= 0)
        splits = _Splits(node=inner, feature=tree.feature[inner], cut=tree.cut[inner], first=inner + 1, second=second[inner])
        self.splits, self.nodes = [splits], len(tree.feature)
        return found[0], found[1].lower, found[1].upper
