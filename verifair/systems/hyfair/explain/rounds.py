"""Rounds of explanation: find the worst cluster, explain it, exclude the region of its rules, and repeat; one cluster a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoders.arrays import Array
from encoders.model import Model
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.report import Progress
from verifair.engine.queries import KDiscrimination
from verifair.errors import QueryError
from verifair.interrupts import OutOfTime
from verifair.systems.hyfair.explain.refusals import guarded_schema, snapped
from verifair.systems.hyfair.explain.rules import Explanation, Rule, explain
from verifair.systems.hyfair.explain.samples import severity_of
from verifair.systems.hyfair.explain.settings import ExplainSettings
from verifair.systems.hyfair.search.annealing import search_clusters
from verifair.systems.hyfair.search.space import Space

POOL, STARTS, STEPS, DRAWS = 20_000, 32, 30, 12
"""Parameters of the search for a large gap, see `climb`."""
SEARCH = Budget(seconds=10.0)
"""Limits of each search for a cluster."""
INTERRUPTED = "interrupted"
"""The reason for fewer rounds after Ctrl-C."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds:
    """found: one explanation for each round.   stopped: the reason that there are fewer than asked for, else None.
    rules: those kept, of all rounds."""

    found: tuple[Explanation, ...]
    stopped: str | None

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(explained.rule for explanation in self.found for explained in explanation.rules)


def explain_rounds(
    query: KDiscrimination, settings: ExplainSettings, *, budget: Budget = SEARCH, rows: Array | None = None,
    deadline: float = np.inf, centre: Array | None = None, progress: Progress | None = None,
) -> Rounds:
    """Run HyFair's debugging, round by round.

    budget: seconds of each search for a cluster, and the seed.   rows: (N, V) raw data.   deadline: on clock.now().
    centre: (V,) the first centre, in place of a search.
    Raises QueryError when the first round finds nothing to explain; later rounds then stop. Ctrl-C also stops them, and is raised
    if there is no explanation yet.
    """
    explanations: list[Explanation] = []
    stopped = None
    for index in range(settings.rounds):
        rules = [explained.rule for explanation in explanations for explained in explanation.rules]
        if clock.now() >= deadline:
            stopped = "time"
            break
        if explanations and not explanations[-1].rules:
            stopped = "no rule of the last cluster was confirmed by negation"
            break
        try:
            seconds = max(min(budget.seconds, deadline - clock.now()), 0.01)
            limits = Budget(seconds=seconds, nodes=None, seed=budget.seed + 1000 * index)
            explanations.append(_round(outside(query, rules), settings, rows, limits, deadline, centre if index == 0 else None))
        except OutOfTime:
            stopped = "time"
            break
        except (QueryError, KeyboardInterrupt) as error:
            if not explanations:
                raise
            stopped = INTERRUPTED if isinstance(error, KeyboardInterrupt) else str(error)
            break
        if progress is not None:
            progress(index + 1, settings.rounds)
    if explanations and explanations[-1].late:
        stopped = f"time, before {explanations[-1].late} more rules of the last cluster were judged"
    if not explanations:
        raise QueryError("time ran out before a cluster was explained; give a longer --timeout")
    return Rounds(found=tuple(explanations), stopped=stopped)


def _round(
    query: KDiscrimination, settings: ExplainSettings, rows: Array | None, budget: Budget, deadline: float, centre: Array | None
) -> Explanation:
    space = Space.of(query, deadline)
    severity = severity_of(space, settings.measure)
    if centre is None and settings.measure == "gap":
        centre = climb(space, rows, budget.seed)
    elif centre is None:
        rows_in_box = among(query, rows)
        search = search_clusters(query, data=rows_in_box, seconds=budget.seconds, iterations=settings.iterations, seed=budget.seed)
        if search.statistics.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        centre = search.cluster.x
    return explain(space, centre, severity, settings, rows=rows, seed=budget.seed)


def outside(query: KDiscrimination, rules: Sequence[Rule]) -> KDiscrimination:
    """Return the same question about the people whom the rules do not refuse."""
    return replace(query, schema=guarded_schema(query.schema, snapped(rules, query.schema))) if rules else query


def among(query: KDiscrimination, rows: Array | None) -> Array | None:
    """Return the rows (N, V) of a table that lie in the box and are not refused; None, for random rows of the box, if there are
    none."""
    return rows if rows is not None and Space.of(query).legal(rows).any() else None


def with_network(query: KDiscrimination, network: Model) -> KDiscrimination:
    """Return the same question about another network."""
    return replace(query, model=network)


def climb(space: Space, rows: Array | None, seed: int) -> Array:
    """Return a raw point (V,) with a large probability gap: coordinate ascent from the best of the data and of random points.

    In every step each of STARTS points tries DRAWS values of each free variable, all at once. A finding: larger gaps may exist;
    `verifair certify --maximise` bounds them.
    """
    rng, gap = np.random.default_rng(seed), severity_of(space, "gap")
    pool = space.random(rng, POOL)
    if rows is not None:
        pool = np.concatenate([pool, rows[space.legal(rows)]])
    values = gap(pool)
    order = np.argsort(-values)
    chosen = np.concatenate([order[: STARTS // 2], rng.choice(len(pool), size=STARTS - STARTS // 2)])
    x, best_gaps = space.canonical(pool[chosen]), values[chosen]
    variables = np.repeat(space.free, DRAWS)
    for _ in range(STEPS if len(variables) else 0):
        candidates = np.repeat(x[:, None, :], len(variables), axis=1)
        new_values = space.uniform_values(rng, np.tile(variables, (len(x), 1)))
        candidates[:, np.arange(len(variables)), variables] = new_values
        flat = candidates.reshape(-1, x.shape[1])
        gaps = np.where(space.legal(flat), gap(flat), -np.inf).reshape(len(x), -1)
        best = gaps.argmax(axis=1)
        better = gaps[np.arange(len(x)), best] > best_gaps
        if not better.any():
            break
        x[better], best_gaps[better] = candidates[better, best[better]], gaps[better, best[better]]
    return np.asarray(x[best_gaps.argmax()])
