"""A baseline in the style of Fairify: partition the box, prune neurons that interval bounds show stable, ask Z3 part by part.

Parts are taken in random order; each gets a soft time-out, 1/18 of the whole, as in the paper (100 seconds of 30 minutes); parts
still open then are left, and one witness ends the run. Blocks have 10 values at first, as in the paper for Adult, and grow tenfold
until there are at most MAX_PARTS parts. Two differences from the paper: pruning is by interval bounds alone (its
heuristic pruning, of neurons that no simulation activates, is unsound and left out), and neurons that are always active are
linear here, where the paper only prunes dead ones.
Sound? UNSAT of every part is Z3's claim, over exact rationals; a point counts once it is confirmed exactly.
Complete? no: a soft time-out leaves its part open.
Reference: Biswas and Rajan, Fairify, ICSE 2023, section IV.  Only in `bench`: `verifair certify --partition` does it better.
"""

from __future__ import annotations

import time

import numpy as np

from encoders.bounds.twin import Twin
from encoders.problem import TwinProblem
from encoders.programs.smt import smt
from encoders.programs.twin_box import Method, TwinBox
from solvers import registry
from solvers.outcome import Budget, Termination
from verifair.bench.questions import DecisionQuestion
from verifair.bench.records import Reply, unknown
from verifair.checker.partition import Partition

SOFT = 18
ENGINE = "fairify:z3"
FIRST, MAX_PARTS = 10, 1000


def takes(problem: TwinProblem) -> bool:
    """Return True if the goals are decision flips or differences of a ReLU network: Fairify knows no probability gaps."""
    return "lp" in problem.network.programs and all(goal.gap is None for goal in problem.goals)


def decide(question: DecisionQuestion, budget: Budget) -> Reply:
    """Ask about all parts of all boxes, in both directions."""
    problem = question.problem
    deadline, soft = time.monotonic() + budget.seconds, budget.seconds / SOFT
    rng = np.random.default_rng(budget.seed)
    twin = Twin.of(problem)
    parts = [_partition(problem, q) for q in range(len(problem.batch))]
    tasks = [(q, n) for q, partition in enumerate(parts) for n in range(partition.count)]
    solver_seconds, undecided, version = 0.0, 0, ""
    for k in rng.permutation(len(tasks)).tolist():
        q, n = tasks[k]
        lower, upper = (bounds[0] for bounds in parts[q].boxes(np.array([n])))
        encoding = smt(TwinBox.of(twin, q, lower, upper, method=Method.INTERVAL))
        for g, goal in enumerate(problem.goals):
            remaining = min(deadline - time.monotonic(), soft)
            if remaining <= 0:
                return unknown("time", f"{len(tasks)} parts")
            outcome = registry.solve(encoding.violated(goal), backend="z3", budget=Budget(seconds=remaining, seed=budget.seed))
            solver_seconds += outcome.solve_seconds
            version = outcome.version
            if outcome.termination is Termination.INFEASIBLE:
                continue
            if outcome.values is not None:
                is_refuted, value = question.refuted(q, g, encoding.decode(outcome.values)[0])
                if is_refuted:
                    return Reply(
                        status="violated", reason=None, trust="exact", upper=value, solve_seconds=solver_seconds, engine=ENGINE,
                        version=version,
                    )
            undecided += 1
    if undecided:
        return Reply(
            status="unknown", reason="time", trust="", solve_seconds=solver_seconds, engine=ENGINE, version=version,
            note=f"{undecided} soft time-outs in {len(tasks)} parts",
        )
    return Reply(status="proved", reason=None, trust="claimed", solve_seconds=solver_seconds, engine=ENGINE, version=version)


def _partition(problem: TwinProblem, q: int) -> Partition:
    batch, size = problem.batch, FIRST
    protected = np.flatnonzero(batch.protected).tolist()
    while True:
        partition = Partition.of(problem.domain, batch.lower[q], batch.upper[q], size=size, whole=protected)
        if partition.count <= MAX_PARTS:
            return partition
        size *= 10
