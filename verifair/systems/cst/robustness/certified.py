"""Certified counterfactual decisions: are they the same for all coefficients of the causal model in their intervals?

For a row x decided by a network, and its counterfactual x~(theta) under do, with theta anywhere in the confidence box of a causal
model's coefficients:

flips     for every theta, x~(theta) is decided otherwise than x        stays     for every theta, it is decided as x is
depends   two coefficient vectors of the box are known, with different decisions on the counterfactual (exact, and replayed)
unknown   with the reason

flips and stays come with a certificate that `verifair check` re-proves, the enclosure of the counterfactuals included. The
equations and the intervals are taken as given.

If categories are on the causal path, a row has a counterfactual for each possible choice of categories (`alternatives`); each is
decided, and proved, by itself. The row flips (stays) if all of them do, apart from some with a total probability below NEGLIGIBLE;
it depends if some flip and some stay. The probability that it is decided otherwise is at least that of those proved to flip, and at
most 1 less that of those proved to stay. Classifiers, and so these probabilities, are taken as given at their estimates.

Method: the box of coefficients becomes a box of counterfactuals (intervals, equation by equation), which the engine decides; if
it cannot, coefficients at corners and centres are tried, and the coefficients' box is halved.
Sound? yes.  Complete? no: up to `cells` parts of the coefficients' box.
Reference: CF is Kusner et al. 2017, in situation testing CST (Alvarez and Ruggieri 2023), section 3.4; the certificate is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.certificate import Certificate, Proof
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.statement import CounterfactualStatement
from verifair.checker.certificates.tree import Tree
from verifair.checker.kinds.counterfactuals import Row
from verifair.checker.report import Progress
from verifair.engine.answer import GoalAnswer
from verifair.engine.cascade import solve
from verifair.engine.questions import decided_problem
from verifair.engine.search.ready import ready
from verifair.engine.search.subdivision import Objects, Open, subdivide
from verifair.engine.verdict import Status
from verifair.errors import QueryError
from verifair.models.read import read
from verifair.schema.schema import Schema
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.groups import groups_under
from verifair.systems.cst.robustness.cells import Cells, Dependence, Part
from verifair.systems.cst.robustness.effects import Effects, Errors, quantile
from verifair.systems.cst.robustness.network_rows import ROWS_AT_ONCE, NetworkRows

FLIPS, STAYS, DEPENDS, UNKNOWN = "flips", "stays", "depends", "unknown"
TIME, NODES, WEAK, IMPOSSIBLE, CATEGORIES, TIE = "time", "nodes", "relaxation-too-weak", "impossible", "categories", "tie"
REASONS = {
    TIME: "time was up",
    NODES: "the network could not be bounded with the boxes allowed",
    WEAK: "some points that enclose the counterfactuals are decided otherwise, but no coefficients were found that lead there",
    IMPOSSIBLE: "the schema's constraints forbid the counterfactual",
    CATEGORIES: "not all categories that the counterfactual may have were looked at",
    TIE: "the smooth network's margin is 0, or nearer to 0 than ball arithmetic tells",
}
"""The reasons of unknown rows, in words."""
NEGLIGIBLE = 1e-6
"""Probability of categories that are not looked at, without which nothing is said of the row."""
LEFT_OUT = f"categories with together at most {NEGLIGIBLE:g} of the probability"
"""Exception of flips and stays, in words, if categories are on the path."""
ALTERNATIVES = 16
"""Counterfactuals of a row that are looked at, the most probable ones, where categories are on the way."""
BOXES = 200
"""The engine's boxes for one part of the coefficients' box, by default; beyond that, cutting the part usually helps more."""
PARTS_AT_ONCE = 1_024
"""Parts that a step decides; the time is looked at between steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CertifiedCounterfactuals:
    """The decisions on C counterfactuals under one intervention.

    rows: (C,) positions in the table.   factual: (C,) the network's classes of the rows.   estimated: (C,) those of their
    most probable counterfactuals at the estimates.   constrained: whether the schema has constraints; proofs
    are then about coefficients whose counterfactual it allows.   status, reason: (C,) see the module.   clipped: (C,) whether some
    coefficients may lead out of the schema's ranges, where the counterfactual is clipped.   cells: (C,) parts of
    the coefficients' box looked at.   otherwise: (C, 2) bounds on the probability, over categories, that the counterfactual is
    decided otherwise.   left: (C,) probability of categories not looked at.   low, high: (p,) the box.   dependences: position
    among the rows -> evidence that it depends on coefficients.   certificate: of flips and stays, None if there are none.
    """

    effects: Effects
    level: float
    simultaneous: bool
    low: Array
    high: Array
    rows: Integers
    factual: Integers
    estimated: Integers
    constrained: bool
    status: npt.NDArray[np.str_]
    reason: npt.NDArray[np.str_]
    clipped: Booleans
    cells: Integers
    otherwise: Array
    left: Array
    dependences: Mapping[int, Dependence] = field(repr=False)
    seconds: float
    certificate: Certificate | None = field(repr=False)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each status."""
        return {status: int((self.status == status).sum()) for status in (FLIPS, STAYS, DEPENDS, UNKNOWN)}

    @property
    def reasons(self) -> dict[str, int]:
        """Unknown rows for each reason."""
        return dict(Counter(self.reason[self.status == UNKNOWN].tolist()))

    @property
    def box(self) -> str:
        """The intervals of the coefficients, in words."""
        t = quantile(self.level, int((self.effects.errors > 0).sum()), simultaneous=self.simultaneous)
        scope = "all coefficients together (Bonferroni)" if self.simultaneous else "each coefficient alone"
        return f"{100 * self.level:.6g} % confidence intervals of {scope}: estimates -+ {t:.4g} standard errors"

    def coefficients(self) -> pd.DataFrame:
        """A line for each coefficient: name, estimate, error, low, high."""
        lines = zip(self.effects.coefficients, self.low.tolist(), self.high.tolist(), strict=True)
        return pd.DataFrame([
            {"coefficient": term.name, "estimate": term.estimate, "error": term.error, "low": low, "high": high}
            for term, low, high in lines
        ])

    def table(self) -> pd.DataFrame:
        """A line for each row."""
        columns = ("rows", "factual", "estimated", "status", "reason", "clipped", "cells")
        table = pd.DataFrame({name: getattr(self, name) for name in columns}).rename(columns={"rows": "row"})
        return table.assign(otherwise_low=self.otherwise[:, 0], otherwise_high=self.otherwise[:, 1])


def certify_counterfactuals(
    causal_model: CausalModel, model: Any, schema: Schema, frame: pd.DataFrame, *, do: Mapping[str, Any], level: float = 0.95,
    simultaneous: bool = False, errors: Errors | None = None, rows: Sequence[int] | None = None, cells: int = 32,
    alternatives: int = ALTERNATIVES, budget: Budget | None = None, progress: Progress | None = None,
) -> CertifiedCounterfactuals:
    """Prove the model's decisions on counterfactuals for all coefficients of the causal model in their confidence intervals.

    model: anything that `verifair.read` takes.
    causal_model: fitted, or fitted here to the table; linear, log-linear or categorical wherever do has an effect on the network.
    frame: the table.   do: protected attribute -> the value of those who are not protected; several are one joint intervention.
    level: of the coefficients' normal intervals; simultaneous: of all of them together (Bonferroni).   errors: standard errors of
    coefficients that were given, see `effects.Errors`.   rows: positions in the table (default: everybody who differs from do).
    cells: largest number of parts that the coefficients' box of one row is cut into.   alternatives: if categories depend on do,
    number of each row's most probable counterfactuals that are decided.   budget: seconds for the whole run, boxes (nodes)
    for each part.   progress: called with (counterfactuals done, all).
    Raises QueryError, DataError, SchemaError for arguments, tables and models that do not fit.
    Sound? yes.  Complete? no.
    """
    network = read(model)
    ready(network)
    started = clock.now()
    causal = causal_model if causal_model.fitted else causal_model.fit(frame)
    do = causal.check(frame, do)
    positions = np.flatnonzero(groups_under(frame, do)[1] >= 0) if rows is None else _positions(rows, len(frame))
    if cells < 1:
        raise QueryError(f"cells = {cells}: expected 1 or more parts of the coefficients' box")
    if alternatives < 1:
        raise QueryError(f"alternatives = {alternatives}: expected 1 or more counterfactuals of each row")
    people = NetworkRows.of(
        causal, network, schema, frame, positions, do, errors, level=level, simultaneous=simultaneous, alternatives=alternatives
    )
    effects = people.effects
    low, high = effects.box(people.t)
    search = _Search(people, low, high, cells, budget or Budget(), started)
    search.run(progress)
    status, reason, otherwise = _row_statuses(people, search)
    first = np.searchsorted(people.row, np.arange(len(positions)))
    result = CertifiedCounterfactuals(
        effects=effects, level=level, simultaneous=simultaneous, low=low, high=high, rows=positions, factual=people.factual[first],
        estimated=search.estimated[first], constrained=schema.domain.forbidden is not None, status=status, reason=reason,
        otherwise=otherwise, left=people.left,
        clipped=np.bincount(people.row, weights=people.clipped(low, high), minlength=len(positions)) > 0,
        cells=np.bincount(people.row, weights=search.cells.count, minlength=len(positions)).astype(np.int64),
        dependences={int(people.row[k]): dependence for k, dependence in search.dependences.items()}, seconds=0.0, certificate=None,
    )
    certificate = _certificate(people, search, result.box, low, high)
    return replace(result, certificate=certificate, seconds=clock.now() - started)


def _row_statuses(people: NetworkRows, search: _Search) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.str_], Array]:
    """(P,) status and reason of each row, and (P, 2) bounds on the probability that its counterfactual is decided otherwise."""
    probabilities: list[dict[str, float]] = [{} for _ in people.left]  # status -> probability
    reason = np.where(people.left > NEGLIGIBLE, CATEGORIES, "").astype("<U24")
    for k in range(len(people) - 1, -1, -1):  # the most probable counterfactual's reason is kept
        outcome, shares = search.status(k), probabilities[people.row[k]]
        shares[outcome] = shares.get(outcome, 0.0) + float(people.probability[k])
        if outcome == UNKNOWN:
            reason[people.row[k]] = search.reason.get(k, "")
    mixed = np.array([DEPENDS in shares or (FLIPS in shares and STAYS in shares) for shares in probabilities], dtype=bool)
    is_open = ~mixed & (reason != "")
    decided = [FLIPS if FLIPS in shares else STAYS for shares in probabilities]
    status = np.where(mixed, DEPENDS, np.where(is_open, UNKNOWN, np.array(decided, dtype="<U7"))).astype("<U7")
    lower = np.array([min(shares.get(FLIPS, 0.0), 1.0) for shares in probabilities], dtype=np.float64)
    upper = np.array([1 - shares.get(STAYS, 0.0) for shares in probabilities], dtype=np.float64)
    otherwise = np.column_stack([lower, np.maximum(lower, upper)])  # probabilities add up to 1 but for rounding
    return status, np.where(is_open, reason, "").astype("<U24"), otherwise


def _positions(rows: Sequence[int], count: int) -> Integers:
    array = np.asarray(rows)
    if array.size and array.dtype.kind not in "iu":
        raise QueryError(f"rows: found {array.dtype} values; expected positions in the table, whole numbers")
    chosen = array.astype(np.int64).reshape(-1)
    if len(chosen) and (chosen.min() < 0 or chosen.max() >= count):
        raise QueryError(f"rows: {chosen.min()} .. {chosen.max()}, but the table has rows 0 .. {count - 1}; give positions in it")
    if len(np.unique(chosen)) < len(chosen):
        raise QueryError("rows: some position is named twice; name each once")
    return chosen


class _Search:
    """One run: open and proved parts of the coefficients' box, and the state of each row."""

    def __init__(self, people: NetworkRows, low: Array, high: Array, cells: int, budget: Budget, started: float) -> None:
        self.people, self.low, self.high, self.budget = people, low, high, budget
        self.deadline = started + budget.seconds
        self.cells = Cells(people, max_parts=cells)
        self.query = people.query(low, high, "")
        self.proved: dict[int, list[tuple[Part, GoalAnswer]]] = {}
        self.dependences: dict[int, Dependence] = {}
        self.reason: dict[int, str] = {}
        self.estimated = np.zeros(len(people), dtype=np.int64)

    def status(self, row: int) -> str:
        if row in self.dependences:
            return DEPENDS
        if row in self.reason or row not in self.proved:
            return UNKNOWN
        return STAYS if self.estimated[row] == self.people.factual[row] else FLIPS

    def run(self, progress: Progress | None) -> None:
        """Corners first, then the whole box of every row, then parts of it."""
        queue = Open[Objects](PARTS_AT_ONCE, oldest=True)

        def ended() -> bool:
            remaining = {part.row for batch in queue.batches for part in batch.items}
            if progress is not None:
                progress(len(self.people) - len(remaining), len(self.people))
            timed_out = clock.now() > self.deadline
            self.reason.update({row: TIME for row in remaining if timed_out})
            return timed_out

        order = np.argsort(-self.people.probability, kind="stable")  # the most probable first, as time may run out
        self._try_corners(order)
        for rows in _pieces(order, PARTS_AT_ONCE):
            queue.add(Objects.of(self.cells.roots(self.low, self.high, [k for k in rows.tolist() if not self._is_settled(k)])))
        subdivide(queue, lambda parts: queue.add(Objects.of(self._cut(parts.items.tolist()))), ended=ended, deadline=self.deadline)

    def _cut(self, parts: list[Part]) -> list[Part]:
        """Return the halves of the parts whose rows are neither decided nor given up."""
        undecided = self._decide(parts, 0) + self._decide(parts, 1)
        self._try_coefficients([(part.row, theta) for part in undecided for theta in part.samples()])
        undecided = [part for part in undecided if not self._is_settled(part.row)]
        halves, stuck = self.cells.cut(undecided)
        exact = [part for part in stuck if not part.exact and self._without_padding(part)]
        self.reason.update({part.row: part.flaw for part in stuck if part not in exact})
        return [part for part in halves + exact if not self._is_settled(part.row)]

    def _without_padding(self, part: Part) -> bool:
        """Give a part the box of rational arithmetic. Return True if it is smaller (mostly because of rounding at a tie)."""
        lower, upper = self.people.exact_box(self.query, part)
        smaller = bool((lower > part.lower).any() or (upper < part.upper).any())
        part.lower, part.upper, part.exact = lower, upper, True
        return smaller

    def _is_settled(self, row: int) -> bool:
        return row in self.dependences or row in self.reason

    def _try_corners(self, order: Integers) -> None:
        """Decide at the estimates, and keep two coefficient vectors with different decisions where corners show such a pair.

        order: of the rows. Corners may take half of the time; the search samples those of the rows that are left.
        """
        for rows in _pieces(order, ROWS_AT_ONCE):
            (self.estimated[rows],), (legal,) = self.people.decided(self.people.effects.estimates[None], rows)
            self.reason.update(dict.fromkeys(rows[~legal].tolist(), IMPOSSIBLE))
        self.reason.update(dict.fromkeys(np.flatnonzero((self.estimated < 0) | (self.people.factual < 0)).tolist(), TIE))
        theta = self.people.corners(self.low, self.high)
        enough = clock.now() + (self.deadline - clock.now()) / 2
        for rows in _pieces(order, max(ROWS_AT_ONCE // len(theta), 1)):
            classes, legal = self.people.decided(theta, rows)
            possible = np.array([self.reason.get(k) != IMPOSSIBLE for k in rows.tolist()])
            differs = (classes != self.estimated[rows]) & legal & possible
            hits = np.flatnonzero(differs.any(axis=0))
            self._confirm([(int(rows[k]), theta[int(differs[:, k].argmax())]) for k in hits])
            if clock.now() > enough:
                break

    def _try_coefficients(self, pairs: list[tuple[int, Array]]) -> None:
        """Try coefficient vectors of single rows."""
        if not pairs:
            return
        rows = np.array([row for row, _ in pairs])
        classes, legal = self.people.decided_each(rows, np.array([theta for _, theta in pairs]))
        hits = np.flatnonzero((classes != self.estimated[rows]) & legal)
        self._confirm([pairs[k] for k in hits])

    def _confirm(self, pairs: list[tuple[int, Array]]) -> None:
        """Keep the pairs that exact evaluation of both counterfactuals confirms."""
        pairs = list({row: (row, theta) for row, theta in pairs}.values())
        self.dependences.update(self.people.dependences(self.query, pairs))

    def _decide(self, parts: list[Part], winner: int) -> list[Part]:
        """Let the engine prove that the boxes of those decided `winner` at the estimates are so throughout. Return the parts not
        proved.
        """
        parts = [part for part in parts if self.estimated[part.row] == winner]
        if not parts:
            return []
        people = self.people
        lower, upper = np.array([part.lower for part in parts]), np.array([part.upper for part in parts])
        problem = decided_problem(people.network, people.schema, lower, upper, (winner, 1 - winner))
        seconds = max(self.deadline - clock.now(), 1e-3)
        limit = Budget(
            seconds=seconds, nodes=self.budget.nodes or BOXES, memory_mb=self.budget.memory_mb, threads=self.budget.threads,
            seed=self.budget.seed,
        )
        undecided = []
        for part, (answer,) in zip(parts, solve(problem, method="bnb", budget=limit), strict=True):
            if answer.status is Status.PROVED:
                self.proved.setdefault(part.row, []).append((part, answer))
            else:
                part.flaw = WEAK if answer.status is Status.VIOLATED or answer.reason is None else answer.reason.value
                undecided.append(part)
        return undecided


def _pieces(rows: Integers, size: int) -> Iterator[Integers]:
    return (rows[start:start + size] for start in range(0, len(rows), size))


def _certificate(people: NetworkRows, search: _Search, origin: str, low: Array, high: Array) -> Certificate | None:
    proofs = []
    stated: set[Row] = set()
    statuses: dict[tuple[Row, tuple[float, ...]], str] = {}  # people with the same values share one row
    for k in range(len(people)):
        row, chosen, status = (tuple(people.raw[k].tolist()), people.also(k)), tuple(people.chosen[k].tolist()), search.status(k)
        previous = statuses.get((row, chosen))
        if previous is None or previous == UNKNOWN:
            statuses[row, chosen] = status
        if status not in (FLIPS, STAYS) or previous in (FLIPS, STAYS):
            continue
        factual, estimated = int(people.factual[k]), int(search.estimated[k])
        if row not in stated:
            stated.add(row)
            statement = CounterfactualStatement(goal="factual", row=row[0], also=row[1], classes=(factual, 1 - factual))
            proofs.append(Proof(statement=statement, evidence=Tree.leaf()))
        for part, answer in search.proved[k]:
            is_whole = (part.low == low).all() and (part.high == high).all()
            statement = CounterfactualStatement(
                goal="counterfactual", row=row[0], also=row[1], categories=chosen, classes=(estimated, 1 - estimated),
                cell=() if is_whole else part.cell, lower=tuple(part.lower.tolist()), upper=tuple(part.upper.tolist()),
            )
            proofs.append(Proof(statement=statement, evidence=answer.evidence, float32=answer.float32, margin=answer.margin))
    if not proofs:
        return None
    count = Counter(statuses.values())
    return Certificate(
        network_sha256=people.network.source_sha256, schema_sha256=people.schema.sha256, semantics=semantics(people.network),
        undecided=count[UNKNOWN], depends=count[DEPENDS],
        query=people.query(low, high, origin), features=tuple(feature.name for feature in people.schema.features),
        proofs=tuple(proofs),
    )
