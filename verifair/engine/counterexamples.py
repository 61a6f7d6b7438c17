"""Search for many counterexamples: after each one, the rest of the box is searched again.

A person is a row without its protected values (HyFair's x). A person counts once and is shown with one pair, however many protected
values change the decision. With real features, two people are distinct if they differ by at least APART of a feature's range.

A list of boxes of pairs (x, x') is kept, at first the query's own. Boxes are decided by the cascade, many at a time, or one by one
by a solver. A person who is found is taken out of every box, whose rest is cut into at most two boxes a feature. Pieces of few rows
are listed and evaluated exactly. Proved boxes are never searched again.
Sound? yes: everyone listed is confirmed by exact evaluation of a legal pair.
Complete? `complete` says that the search came to its end. This rests on the engine's bounds or on a solver's claim; it has a
certificate only if nobody was found.
References: HyFair, Table I (#ID, T.1st); Fairify.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Batched
from encoders.evaluate import seconds_exactly, settled_goals
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.certificate import Certificate, Claim
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.tree import Tree
from verifair.checker.report import Progress
from verifair.engine.answer import GoalAnswer, engines, runtime_agrees
from verifair.engine.cascade import check_method, solve
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import goals_of, questions_of, twin_problem
from verifair.engine.search.subdivision import SHARE
from verifair.engine.verdict import Reason, Status, Witness, draw_witnesses
from verifair.engine.verify import fairness_certificate, witness_of
from verifair.errors import QueryError
from verifair.notebook.shown import Pictured

APART = 1e-3
"""Share of a real feature's range: people nearer than this to one found are not searched for."""
TOGETHER = 64
"""Boxes that branch-and-bound decides at a time."""
NODES = (100, 1_000, 10_000)
"""Boxes of branch-and-bound for one open piece in its first rounds; later, as many as the time allows."""
LISTED = 8
"""Pieces whose rows are all evaluated between two looks at the clock."""
FEW = 64
"""Pieces of up to so many rows are listed."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Counterexamples(Pictured):
    """People who are decided differently when protected values change, and whether there are others.

    found: one pair for each person.   complete: there are no others, except within `apart` (real feature -> distance) of one found.
    by_solver: `complete` rests in part on the answer of a solver.   certificate: proof of the query, if nobody was found.
    reason: why the search ended early (None: it found everybody, or as many as were asked for).
    first_seconds: time until the first one was found.
    """

    found: tuple[Witness, ...]
    complete: bool
    by_solver: bool
    apart: dict[str, float]
    certificate: Certificate | None
    reason: Reason | None
    engine: str
    seconds: float
    first_seconds: float | None
    semantics: str

    def to_frame(self) -> pd.DataFrame:
        """Return a table with two rows for each counterexample, x and x': features, decision, and probability or value."""
        frames = {number: counterexample.to_frame().T for number, counterexample in enumerate(self.found, start=1)}
        return pd.concat(frames, names=["counterexample", "row"]) if frames else pd.DataFrame()

    def _draw(self, path: Path) -> None:
        draw_witnesses(self.found, path)


def counterexamples(
    query: IndividualFairness, count: int, *, budget: Budget | None = None, method: str = "auto", solver: str | None = None,
    progress: Progress | None = None,
) -> Counterexamples:
    """Search for up to `count` different people who get another decision when protected values change.

    Requires: a query about decisions or epsilon, without `relax`.   method, solver: as in `verify`.
    Returns: `Counterexamples`, in the order in which they were found. Ctrl-C ends the search and keeps them.
    Sound? yes: exact evaluation confirms each.   Complete? if `complete` is True, up to what its fields say.
    Raises QueryError for other queries, and for a count below 1.   References: HyFair, Table I; Fairify.
    """
    if query.relax:
        raise QueryError("people are counted by what they share with their partner: relaxed features leave that open; drop --relax")
    query.require_favourable("a list of counterexamples")
    if count < 1:
        raise QueryError(f"{count} counterexamples: expected at least 1")
    check_method(query.model, method, solver)
    search = _Enumeration(query, count, budget or Budget(), method, solver)
    reason: Reason | None = Reason.INTERRUPTED
    with suppress(KeyboardInterrupt):  # keeps what was found until then
        reason = search.run(progress or (lambda done, total: None))
    return search.result(reason)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pieces(Batched):
    """Boxes still to be decided.

    pair: (B,).   lower, upper: (B, V) raw.   rounds: (B,) that left it open.   own: (B,) True for the query's whole box of the
    pair, False for a piece.
    """

    pair: Integers
    lower: Array
    upper: Array
    rounds: Integers
    own: Booleans


class _Enumeration:
    """The state of one search."""

    def __init__(self, query: IndividualFairness, count: int, budget: Budget, method: str, solver: str | None) -> None:
        self.started = clock.now()
        self.query, self.count, self.budget, self.method, self.solver = query, count, budget, method, solver
        self.deadline = self.started + budget.seconds
        self.box, batch = questions_of(query)
        self.problem = twin_problem(query, batch, goals_of(query))
        pairs = len(batch)
        self.open = _Pieces(
            pair=np.arange(pairs), lower=batch.lower, upper=batch.upper, rounds=np.zeros(pairs, dtype=np.int64),
            own=np.ones(pairs, dtype=bool),
        )
        self.aside: list[Reason] = []
        """Why boxes were given up."""
        self.evidence: list[list[tuple[Tree | Claim, bool]]] = [[] for _ in range(pairs)]
        self.found: dict[tuple[float, ...], Witness] = {}
        self.known: set[tuple[float, ...]] = set()
        """People found before this round, who are in no box any more."""
        self.engines: set[str] = set()
        self.first_seconds: float | None = None
        self.cost = FEW * seconds_exactly(query.model)
        """Seconds for a small piece, as last measured."""
        self.by_solver = False
        shared = ~batch.protected
        domain = self.problem.domain
        moving = (batch.lower < batch.upper).any(axis=0)
        self.shared = np.flatnonzero(shared)
        self.reach = np.where(domain.integer, 0.0, APART * (domain.upper - domain.lower))
        self.real = np.flatnonzero(shared & moving & ~domain.integer)

    def run(self, progress: Progress) -> Reason | None:
        """Search; return why it ended before all were found, or None."""
        progress(0, self.count)
        while len(self.open) and len(self.found) < self.count:
            if clock.now() > self.deadline:
                return Reason.TIME
            self.known = set(self.found)
            reason = self._round()
            for key in [person for person in self.found if person not in self.known]:
                self.open = _Pieces.join([self.open.take(slice(0, 0)), *self._without(self.open, np.array(key))])
            progress(min(len(self.found), self.count), self.count)
            if reason is not None:
                return reason
        return self.aside[0] if self.aside and len(self.found) < self.count else None

    def _round(self) -> Reason | None:
        """Decide the next boxes: those that were tried least, then the oldest."""
        first = np.argsort(self.open.rounds, kind="stable")
        small = self._small(self.open)
        if small.any():
            started = clock.now()
            left = SHARE * (self.deadline - started)
            listed = np.flatnonzero(small)[: int(np.clip(left / max(self.cost, 1e-9), 1, LISTED))]
            self._list(self.open.take(listed))
            self.cost = (clock.now() - started) / len(listed)
            self.open = self.open.take(np.setdiff1d(np.arange(len(self.open)), listed))
            return None
        batched = self.method in ("auto", "bnb")
        first = first[: TOGETHER if batched else 1]
        rounds = int(self.open.rounds[first[0]])
        first = first[self.open.rounds[first] == rounds]
        chosen, boxes = self.open.take(first), len(self.open)
        rest = np.ones(boxes, dtype=bool)
        rest[first] = False
        answers = self._decide(chosen, rounds, batched)
        self.open = self.open.take(rest)
        return self._sort(chosen, answers)

    def _decide(self, chosen: _Pieces, rounds: int, batched: bool) -> list[list[GoalAnswer]]:
        """Decide boxes, each as a group of its own. A solver gets a share of the time; branch-and-bound first gets few boxes."""
        left = max(self.deadline - clock.now(), 1e-3)
        limits, method = replace(self.budget, seconds=left), self.method
        if batched and rounds < len(NODES):
            limits, method = replace(limits, nodes=min(NODES[rounds], self.budget.nodes or NODES[rounds])), "bnb"
        elif batched:
            limits = replace(limits, seconds=left * len(chosen) / len(self.open))
        else:
            limits = replace(limits, seconds=left / min(len(self.open), max(self.count - len(self.found), 2)))
        batch = replace(self.problem.batch.take(chosen.pair), lower=chosen.lower, upper=chosen.upper)
        problem, group = replace(self.problem, batch=batch), np.arange(len(chosen))
        return solve(problem, method=method, solver=None if method == "bnb" else self.solver, budget=limits, group=group)

    def _sort(self, chosen: _Pieces, answers: list[list[GoalAnswer]]) -> Reason | None:
        """Keep people who were found, drop proved boxes, and put back open ones; return INTERRUPTED after Ctrl-C, else None."""
        kept: list[int] = []
        interrupted = False
        for k, row in enumerate(answers):
            pair = int(chosen.pair[k])
            self.engines.add(engines(row))
            violated = next(((g, answer) for g, answer in enumerate(row) if answer.status is Status.VIOLATED), None)
            if violated is not None:
                if self._keep(pair, *violated):
                    kept.append(k)
                else:
                    self.aside.append(Reason.NUMERICAL)
            elif all(answer.status is Status.PROVED for answer in row):
                self.by_solver |= any(answer.tree is None for answer in row)
                self.evidence[pair] = [(answer.evidence, answer.float32) for answer in row]
            else:
                reason = next(answer.reason for answer in row if answer.status is Status.UNKNOWN)
                assert reason is not None
                interrupted |= reason is Reason.INTERRUPTED
                if self._again(reason, int(chosen.rounds[k])):
                    kept.append(k)
                    chosen.rounds[k] += 1
                else:
                    self.aside.append(reason)
        self.open = _Pieces.join([self.open, chosen.take(np.array(kept, dtype=np.int64))])
        return Reason.INTERRUPTED if interrupted else None

    def _again(self, reason: Reason, rounds: int) -> bool:
        """Return True if an open box can get more of the time or nodes that it ran out of."""
        spent = self.budget.nodes is not None and (rounds >= len(NODES) or NODES[rounds] >= self.budget.nodes)
        return reason in (Reason.TIME, Reason.INTERRUPTED) or (reason is Reason.NODES and not spent)

    def _keep(self, pair: int, g: int, answer: GoalAnswer) -> bool:
        """Add a person, unless somebody found is too near; return True if they are to be taken out of the boxes after this
        round."""
        assert answer.witness is not None
        key = tuple((answer.witness[self.shared] + 0.0).tolist())  # -0.0 is 0.0
        if key in self.known:
            return False
        if key not in self.found and not self._near(key):
            self.found[key] = witness_of(self.query, self.problem, pair, g, answer)
            self.first_seconds = self.first_seconds or clock.now() - self.started
        return True

    def _near(self, key: tuple[float, ...]) -> bool:
        """Return True if somebody found is the same except in real features, and too near in these."""
        if not len(self.real) or not self.found:
            return False
        distance = np.abs(np.array(list(self.found)) - np.array(key))
        reach = self.reach[self.shared]  # a little less, so that rounding does not count people at its edge
        return bool(np.where(reach > 0, distance < 0.999 * reach, distance == 0).all(axis=1).any())

    def _small(self, boxes: _Pieces) -> Booleans:
        """Return (B,) True for pieces that hold few rows."""
        rows = np.prod(np.where(self.problem.domain.integer, boxes.upper - boxes.lower + 1, 1.0), axis=1)
        real = (boxes.lower < boxes.upper)[:, ~self.problem.domain.integer].any(axis=1)
        return np.asarray((rows <= FEW) & ~real & ~boxes.own)

    def _list(self, boxes: _Pieces) -> None:
        """Evaluate all rows of some pieces exactly."""
        domain, rows = self.problem.domain, []
        for lower, upper in zip(boxes.lower, boxes.upper, strict=True):
            axes = [np.arange(low, high + 1) if low < high else [low] for low, high in zip(lower, upper, strict=True)]
            rows.append(np.array(list(product(*axes)), dtype=np.float64))
        raw, question = np.concatenate(rows), np.repeat(boxes.pair, [len(block) for block in rows])
        legal = domain.legal(raw) & domain.legal(self.problem.batch.take(question).second(raw))
        raw, question = raw[legal], question[legal]
        holds, unmet, margins = settled_goals(self.problem, question, raw)
        if not (holds | unmet.any(axis=1, keepdims=True)).all():
            self.aside.append(Reason.NUMERICAL)
        index = np.flatnonzero(unmet.any(axis=1))
        goal = unmet[index].argmax(axis=1)
        agreements = runtime_agrees(self.problem, question[index], goal, raw[index])
        for k, g, agreement in zip(index.tolist(), goal.tolist(), agreements.tolist(), strict=True):
            answer = replace(
                GoalAnswer.blank("exact-evaluation", Reason.MOOT), status=Status.VIOLATED, reason=None, witness=raw[k],
                margins=(float(margins[k, 0]), float(margins[k, 1])), agrees=None if agreement < 0 else agreement == 1,
            )
            self._keep(int(question[k]), g, answer)

    def _without(self, boxes: _Pieces, person: Array) -> Iterator[_Pieces]:
        """Yield the rests of the boxes of all pairs without a person, given by shared values."""
        shared = self.shared
        low, high = person - self.reach[shared], person + self.reach[shared]
        integral = self.problem.domain.integer[shared]
        last = np.where(integral, low - 1, np.minimum(low, np.nextafter(person, -np.inf)))
        first = np.where(integral, high + 1, np.maximum(high, np.nextafter(person, np.inf)))
        holds = ((boxes.lower[:, shared] <= high) & (boxes.upper[:, shared] >= low)).all(axis=1)
        yield boxes.take(np.flatnonzero(~holds))
        rest = boxes.take(np.flatnonzero(holds))
        relative = (rest.upper - rest.lower)[:, shared].max(axis=0, initial=0.0)
        for k in np.argsort(-relative):  # the widest first: its pieces are the largest
            v = shared[k]
            yield _piece(rest.take(np.flatnonzero(rest.lower[:, v] <= last[k])), v, upper=last[k])
            yield _piece(rest.take(np.flatnonzero(rest.upper[:, v] >= first[k])), v, lower=first[k])
            rest = _piece(rest, v, lower=low[k], upper=high[k])

    def result(self, reason: Reason | None) -> Counterexamples:
        """Return the people found, at most as many as asked for."""
        people = tuple(self.found.values())[: self.count]
        complete = reason is None and not len(self.open) and not self.aside and len(self.found) <= self.count
        certificate = None
        if complete and not people:
            certificate = fairness_certificate(
                self.query, self.problem.batch, self.box, self.evidence, epsilon=self.query.epsilon,
                scale=self.query.scale,
            )
        names = [feature.name for feature in self.query.schema.features]
        return Counterexamples(
            found=people, complete=complete, by_solver=complete and self.by_solver,
            apart={names[v]: float(self.reach[v]) for v in self.real.tolist()} if people else {}, certificate=certificate,
            reason=None if len(people) == self.count else reason, engine="+".join(sorted(self.engines - {""})),
            seconds=clock.now() - self.started, first_seconds=self.first_seconds, semantics=semantics(self.query.model),
        )


def _piece(boxes: _Pieces, v: int, *, lower: float = -np.inf, upper: float = np.inf) -> _Pieces:
    """Return the boxes cut to lower <= x_v <= upper. Pieces start again at round 0, as they are smaller."""
    low, high = boxes.lower.copy(), boxes.upper.copy()
    low[:, v], high[:, v] = np.maximum(low[:, v], lower), np.minimum(high[:, v], upper)
    return replace(boxes, lower=low, upper=high, rounds=np.zeros_like(boxes.rounds), own=np.zeros_like(boxes.own))
