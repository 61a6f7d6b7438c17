"""Find the worst cluster, explain it, refuse what the rules cover, and look again: one round covers one cluster only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoders.network import Array, Network
from verifair.engine.queries import KDiscrimination
from verifair.errors import QueryError
from verifair.systems.hyfair.explain.rules import Explanation, Rule, explain
from verifair.systems.hyfair.explain.samples import severity_of
from verifair.systems.hyfair.mitigation.guardrail import guarded_schema, snapped
from verifair.systems.hyfair.search.annealing import search
from verifair.systems.hyfair.search.space import Space

POOL, STARTS, STEPS, DRAWN = 20_000, 32, 30, 12
"""Of the search for a large gap, see `climb`."""
SIGNIFICANT = 0.05
INTERRUPTED = "interrupted"
"""Why there are fewer rounds after Ctrl-C."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How clusters are searched and explained; see `verifair.systems.hyfair.explain.rules.explain` for the fields that it takes.

    measure: severity, "k" or "gap".   rounds: clusters, each outside the rules of those before.   iterations, seconds: limits of
    each search.   delta None: SIGNIFICANT of the largest severity there can be.
    """

    measure: str = "k"
    rounds: int = 1
    samples: int = 5000
    quantile: float = 0.95
    delta: float | None = None
    depth: int = 8
    leaf: int = 25
    purity: float = 0.3
    iterations: int = 500
    seconds: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("samples", 100), ("depth", 1), ("leaf", 1), ("iterations", 1)):
            if getattr(self, name) < least:
                raise QueryError(f"{name} = {getattr(self, name)}, expected at least {least}")
        if self.delta is not None and not 0 <= self.delta < np.inf:
            raise QueryError(f"delta = {self.delta}, expected the least fall of the severity by negation, 0 or more")
        if not 0 < self.purity <= 1:
            raise QueryError(f"purity = {self.purity}, expected a share of a leaf's samples, above 0 and at most 1")

    def significant(self, space: Space) -> float:
        """delta of Algorithm 2."""
        return self.delta if self.delta is not None else SIGNIFICANT * (space.cap if self.measure == "k" else 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds:
    """found: one explanation a round.   stopped: why there are fewer than asked for (None: there are not).
    rules: those kept, of all rounds."""

    found: tuple[Explanation, ...]
    stopped: str | None

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(one.rule for explanation in self.found for one in explanation.rules)


def explain_rounds(
    query: KDiscrimination,
    settings: Settings,
    *,
    rows: Array | None = None,
    deadline: float = np.inf,
    centre: Array | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Rounds:
    """HyFair's debugging, round by round.

    rows: (N, V) raw data.   deadline: on time.monotonic().   centre: (V,) where to begin, instead of searching.
    Raises QueryError when the first round finds nothing to explain; later rounds then stop. Ctrl-C stops them, too, and is raised
    where there is no explanation yet.
    """
    found: list[Explanation] = []
    stopped = None
    for number in range(settings.rounds):
        rules = [one.rule for explanation in found for one in explanation.rules]
        if found and not found[-1].rules:
            stopped = "no rule of the last cluster was confirmed by negation"
            break
        if time.monotonic() >= deadline:
            stopped = "time"
            break
        try:
            found.append(_round(query, settings, rules, rows, deadline, centre if number == 0 else None, number))
        except (QueryError, KeyboardInterrupt) as error:
            if not found:
                raise
            stopped = INTERRUPTED if isinstance(error, KeyboardInterrupt) else str(error)
            break
        if progress is not None:
            progress(number + 1, settings.rounds)
    if not found:
        raise QueryError("time ran out before a cluster was explained; give a longer --timeout")
    return Rounds(found=tuple(found), stopped=stopped)


def _round(
    query: KDiscrimination, settings: Settings, rules: Sequence[Rule], rows: Array | None, deadline: float, centre: Array | None,
    number: int,
) -> Explanation:  # fmt: skip
    asked = outside(query, rules)
    space = Space.of(asked)
    seed = settings.seed + 1000 * number
    severity = severity_of(space, settings.measure)
    if centre is None and settings.measure == "gap":
        centre = climb(space, rows, seed)
    elif centre is None:
        seconds = max(min(settings.seconds, deadline - time.monotonic()), 0.01)
        met = search(asked, data=rows, seconds=seconds, iterations=settings.iterations, seed=seed)
        if met.statistics.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        centre = met.cluster.x
    return explain(
        space, centre, severity, rows=rows, samples=settings.samples, quantile=settings.quantile, delta=settings.significant(space),
        depth=settings.depth, leaf=settings.leaf, purity=settings.purity, seed=seed,
    )  # fmt: skip


def outside(query: KDiscrimination, rules: Sequence[Rule]) -> KDiscrimination:
    """The same question about the people that the rules do not refuse."""
    return replace(query, schema=guarded_schema(query.schema, snapped(rules, query.schema))) if rules else query


def with_network(query: KDiscrimination, network: Network) -> KDiscrimination:
    """The same question about another network."""
    return replace(query, network=network)


def climb(space: Space, rows: Array | None, seed: int) -> Array:
    """A raw point (V,) with a large probability gap: coordinate ascent from the best of the data and of random points.

    In every step each of STARTS points tries DRAWN values of each free variable, all at once. A finding: there may be larger gaps,
    which `verifair certify --maximise` bounds.
    """
    rng, gap = np.random.default_rng(seed), severity_of(space, "gap")
    pool = space.random(rng, POOL)
    if rows is not None:
        pool = np.concatenate([pool, rows[space.legal(rows)]])
    values = gap(pool)
    order = np.argsort(-values)
    chosen = np.concatenate([order[: STARTS // 2], rng.choice(len(pool), size=STARTS - STARTS // 2)])
    x, most = space.canonical(pool[chosen]), values[chosen]
    variables = np.repeat(space.free, DRAWN)
    for _ in range(STEPS):
        candidates = np.repeat(x[:, None, :], len(variables), axis=1)
        drawn = space.uniform_values(rng, np.tile(variables, (len(x), 1)))
        candidates[:, np.arange(len(variables)), variables] = drawn
        flat = candidates.reshape(-1, x.shape[1])
        found = np.where(space.legal(flat), gap(flat), -np.inf).reshape(len(x), -1)
        best = found.argmax(axis=1)
        better = found[np.arange(len(x)), best] > most
        if not better.any():
            break
        x[better], most[better] = candidates[better, best[better]], found[better, best[better]]
    return np.asarray(x[most.argmax()])
