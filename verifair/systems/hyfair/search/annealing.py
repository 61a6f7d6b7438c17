"""HyFair's search for the largest k (Algorithm 1): random walk, simulated annealing, and annealing among nearest neighbours.

Many chains walk at once, one array row each. In every step each chain proposes a candidate, all candidates are evaluated in one
forward pass over all protected combinations, and each chain accepts its candidate or stays. The paper's listing asks the solver for
a new current solution whenever the last step was no improvement. Here a chain asks after `patience` such steps, because a solver's
witness costs thousands of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from solvers import clock
from verifair.checker.report import Progress
from verifair.engine.queries import KDiscrimination
from verifair.errors import QueryError
from verifair.systems.hyfair.search.clusters import Cluster, ClusterSearch, Statistics, Stopped, TracePoint, recount
from verifair.systems.hyfair.search.moves import Move, Mutation, Nearest, Pool
from verifair.systems.hyfair.search.space import Space

STEP_WORK = 3_000_000
"""Multiplications that take as long as a step of all chains, the network aside."""
METHODS = ("rw", "sa", "sa-knn")
MAX_PEERS = 20
"""Rows at the best k that are kept for an explanation."""
MAX_COUNTED = 100_000
"""Distinct rows at the best k are counted up to here; beyond, the count is a lower bound."""
Reseed = Callable[[np.random.Generator, int], Array]
"""Gives so many raw rows (count, V) to walk on from: the solver's witnesses, or rows of a table."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """chains: rows that walk at once.   stay: p, the chance of a neighbour rather than a random row of the data (sa, sa-knn).

    Temp(i) = max(coldest, start * cooling^i), where i counts the steps since the chain's last seed.   patience: number of steps
    without improvement on the chain's best since its seed, after which it gets a new seed. Raises QueryError.
    """

    chains: int = 64
    stay: float = 0.95
    start: float = 1.0
    cooling: float = 0.98
    coldest: float = 0.15
    patience: int = 300

    def __post_init__(self) -> None:
        if not 1 <= self.chains <= 100_000:
            raise QueryError(f"chains = {self.chains}: expected between 1 and 100000")
        if not 0 <= self.stay <= 1:
            raise QueryError(f"stay = {self.stay}: a probability lies between 0 and 1 (HyFair: at least 0.9)")
        if not (0 < self.coldest <= self.start and 0 < self.cooling <= 1):
            raise QueryError("temperatures: expected 0 < coldest <= start and 0 < cooling <= 1")
        if self.patience < 1:
            raise QueryError(f"patience = {self.patience}: expected at least 1 step")


def search_clusters(
    query: KDiscrimination,
    *,
    method: str = "sa",
    data: Array | None = None,
    seconds: float = 10.0,
    iterations: int | None = None,
    schedule: Schedule | None = None,
    seed: int = 0,
    reseed: Reseed | None = None,
    enough: int | None = None,
    progress: Progress | None = None,
) -> ClusterSearch:
    """Search for the row of the box that falls into the most outcome buckets (HyFair, Algorithm 1).

    method: "rw" (random walk), "sa" (simulated annealing) or "sa-knn" (among nearest rows).   data: (N, V) raw rows of a table, the
    paper's A (default: random rows of the box).   seconds, iterations: limits; a step tries one candidate for each chain.
    reseed: returns the rows at which chains start (default: rows of the data).   enough: stop at this k (default: the largest
    possible, min(K, buckets)).   progress: called with (done, total) in seconds, or steps if these are limited.
    Ctrl-C ends the search like a time limit. The same seed and iterations give the same result if the time suffices.

    Sound? yes: k is exact at the row found.  Complete? no: the largest k may be larger, `verifair.engine.buckets.kmax` bounds it.
    Raises QueryError or DataError if there is nothing to search, or no data to walk among.
    """
    if method not in METHODS:
        raise QueryError(f"search {method!r} is unknown; choose one of {', '.join(METHODS)}")
    if not seconds > 0:
        raise QueryError(f"seconds = {seconds}: a search needs a positive time limit")
    schedule = schedule or Schedule()
    space = Space.of(query)
    run = _Walk(space=space, pool=Pool.of(space, data), method=method, schedule=schedule, rng=np.random.default_rng(seed))
    run.reseed = reseed or (lambda rng, count: run.pool.draw(space, rng, count)[0])
    deadline = run.started + seconds
    goal = space.cap if enough is None else enough
    stopped: Stopped = "time"
    try:
        run.begin()
        while run.best is None or run.best.k < goal:
            if not len(space.free):  # the box is one row, which has been evaluated
                stopped = "exhausted"
                break
            if clock.now() >= deadline:
                break
            if iterations is not None and run.iterations >= iterations:
                stopped = "iterations"
                break
            run.step()
            if progress is not None:
                limit = (int(clock.now() - run.started), int(np.ceil(seconds)))
                progress(*(limit if iterations is None else (run.iterations, iterations)))
        else:
            stopped = "enough"
    except KeyboardInterrupt:
        stopped = "interrupted"
    return run.result(stopped, seed)


@dataclass(kw_only=True, eq=False)
class _Walk:
    """The chains and their results so far. Arrays over chains: x (C, V), origin, k, since (steps since the seed), top, stale."""

    space: Space
    pool: Pool
    method: str
    schedule: Schedule
    rng: np.random.Generator
    started: float = field(default_factory=clock.now)
    reseed: Reseed = field(init=False)
    move: Move = field(init=False)
    x: Array = field(init=False)
    origin: Integers = field(init=False)
    k: Integers = field(init=False)
    since: Integers = field(init=False)
    top: Integers = field(init=False)
    stale: Integers = field(init=False)
    best: Cluster | None = None
    trace: list[TracePoint] = field(default_factory=list)
    peers: dict[bytes, Array] = field(default_factory=dict)
    at_best: set[bytes] = field(default_factory=set)
    iterations: int = 0
    rows: int = 0
    instances: int = 0
    sum_k: int = 0
    first: TracePoint | None = None
    restarts: int = 0
    illegal_seeds: int = 0

    def __post_init__(self) -> None:
        self.move = Nearest.of(self.space, self.pool) if self.method == "sa-knn" else Mutation(space=self.space)

    def begin(self) -> None:
        """Start every chain at a seed (lines 2-4)."""
        chains = self.schedule.chains
        self.x, self.origin = self._seeds(chains)
        self.k = self._evaluate(self.x)
        self.since, self.stale, self.top = np.zeros(chains, dtype=np.int64), np.zeros(chains, dtype=np.int64), self.k.copy()

    def step(self) -> None:
        """Take one step of all chains (lines 5-28)."""
        clock.spend(STEP_WORK)
        candidates, origin = self._propose()
        k = self._evaluate(candidates)
        accepted = self._accepted(k)
        self.x[accepted], self.origin[accepted], self.k[accepted] = candidates[accepted], origin[accepted], k[accepted]
        self.iterations += 1
        self.since += 1
        self.stale = np.where(self.k > self.top, 0, self.stale + 1)
        self.top = np.maximum(self.top, self.k)
        self._restart(np.flatnonzero(self.stale >= self.schedule.patience))

    def _propose(self) -> tuple[Array, Integers]:
        """Return a candidate for each chain, and its origin (lines 12-19)."""
        candidates, origin = self.move(self.x, self.origin, self.rng)
        if self.method == "rw":
            return candidates, origin
        away = np.flatnonzero(self.rng.random(len(self.x)) >= self.schedule.stay)
        candidates[away], origin[away] = self.pool.draw(self.space, self.rng, len(away))
        return candidates, origin

    def _accepted(self, k: Integers) -> Booleans:
        """Return True where exp(-(cur - cand) / T) >= U(0, 1) (lines 22-25, maximising). A random walk accepts everything."""
        if self.method == "rw":
            return np.ones(len(k), dtype=bool)
        temperature = np.maximum(self.schedule.coldest, self.schedule.start * self.schedule.cooling**self.since)
        ratio = np.exp(np.minimum(k - self.k, 0) / temperature)
        return np.asarray(ratio >= self.rng.random(len(k)))

    def _restart(self, chains: Integers) -> None:
        """Move chains without improvement to new seeds (line 10)."""
        if not len(chains):
            return
        self.x[chains], self.origin[chains] = self._seeds(len(chains))
        self.k[chains] = self._evaluate(self.x[chains])
        self.since[chains] = self.stale[chains] = 0
        self.top[chains] = self.k[chains]
        self.restarts += len(chains)

    def _seeds(self, count: int) -> tuple[Array, Integers]:
        """Return legal rows to start from; illegal rows of the caller are replaced."""
        x = self.space.canonical(self.reseed(self.rng, count))
        illegal = np.flatnonzero(~self.space.legal(x))
        if len(illegal):
            x[illegal] = self.space.random(self.rng, len(illegal))
            self.illegal_seeds += len(illegal)
        return x, np.full(count, -1)

    def _evaluate(self, x: Array) -> Integers:
        """Return k of the rows; update the statistics, and count the best row exactly."""
        k = self.space.count(x)
        self.rows += len(x)
        self.instances += int((k >= 2).sum())
        self.sum_k += int(k[k >= 2].sum())
        if self.first is None and (k >= 2).any():
            self.first = self._trace_point(int(k[k >= 2][0]))
        best_k = self.best.k if self.best is not None else 0
        if k.max() > best_k:
            row = x[int(k.argmax())]
            cluster = recount(self.space, row)
            if cluster.k > best_k:
                self.best, best_k = cluster, cluster.k
                self.trace.append(self._trace_point(cluster.k))
                self.peers, self.at_best = {row.tobytes(): row.copy()}, {row.tobytes()}
        self._count_best(x[k >= best_k])
        return k

    def _count_best(self, x: Array) -> None:
        """Count the distinct rows at the best k, and keep the first of them."""
        for row in x[: MAX_COUNTED - len(self.at_best)]:
            self.at_best.add(row.tobytes())
            if len(self.peers) < MAX_PEERS:
                self.peers.setdefault(row.tobytes(), row.copy())

    def _trace_point(self, k: int) -> TracePoint:
        evaluations = self.rows * len(self.space.combinations)
        return TracePoint(seconds=clock.now() - self.started, evaluations=evaluations, k=k)

    def result(self, stopped: Stopped, seed: int) -> ClusterSearch:
        if self.best is None:  # interrupted before the first rows were evaluated
            self.best = recount(self.space, self.space.random(self.rng, 1)[0])
        end = self._trace_point(self.best.k)
        statistics = Statistics(
            rows=self.rows,
            iterations=self.iterations,
            evaluations=end.evaluations,
            instances=self.instances,
            mean_k=self.sum_k / self.instances if self.instances else float("nan"),
            first_seconds=self.first.seconds if self.first else None,
            first_k=self.first.k if self.first else None,
            at_best=len(self.at_best),
            at_best_capped=len(self.at_best) >= MAX_COUNTED,
            best_seconds=self.trace[-1].seconds if self.trace else 0.0,
            restarts=self.restarts,
            skipped=self.pool.skipped,
            illegal_seeds=self.illegal_seeds,
            seconds=end.seconds,
            stopped=stopped,
        )
        return ClusterSearch(
            kind="k-discrimination",
            value=float(self.best.k),
            method=self.method,
            seed=seed,
            details={"schedule": asdict(self.schedule)},
            cluster=self.best,
            statistics=statistics,
            trace=(*self.trace, end),
            peers=self.space.shown(np.array([*self.peers.values()]).reshape(-1, len(self.space.lower))),
        )
