"""Marabou as a peer: the product network of the twin, one query for each question and goal; its answers count as a solver's claims.

Inputs range over the box as reals (Marabou has no integers; a one-hot block keeps its sum), so `unsat` covers every legal row, and
the point of a `sat` is rounded to the nearest legal row and counts once that violates the goal exactly.
Sound? `unsat` is Marabou's claim, in floats with tolerances, and is CLAIMED here.  Complete? no: a `sat` that rounding loses is
UNKNOWN, and so is a probability gap that only outlines the curve (no line is added).
Reference: Wu et al., Marabou 2.0, CAV 2024.  Only in `bench`: `verify` never asks it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from encoders.arrays import Array
from encoders.onnx.product_network import product_network
from encoders.problem import TwinProblem
from solvers.outcome import Budget
from verifair.bench.questions import DecisionQuestion
from verifair.bench.records import Reply, unknown

SPLITTING = "relu-violation"
"""Of its strategies the one that decides most of our cases; its own choice splits inputs and decides none of the random ones."""


def load() -> Any:
    """Import its core without its readers of other files (they warn about tensorflow)."""
    return import_module("maraboupy.MarabouCore")


def takes(problem: TwinProblem) -> bool:
    """Return True for a ReLU network whose copies differ in protected values alone."""
    network = problem.network
    if network.of_trees or not network.piecewise_linear or problem.batch.offset is not None:
        return False
    return all(np.isin(layer.slope, (0.0, 1.0)).all() for layer in network.layered("Marabou").layers)


def decide(question: DecisionQuestion, budget: Budget) -> Reply:
    """Ask about all goals of all boxes, one query each."""
    problem = question.problem
    deadline = time.monotonic() + budget.seconds
    solver_seconds, reasons = 0.0, []
    for q in range(len(problem.batch)):
        for g in range(len(problem.goals)):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return unknown("time")
            status, point, seconds = _ask(problem, q, g, remaining)
            solver_seconds += seconds
            if status == "sat" and point is not None:
                is_refuted, value = question.refuted(q, g, question.nearest(q, point))
                if is_refuted:
                    return Reply(
                        status="violated", reason=None, trust="exact", upper=value, comparable=question.single,
                        solve_seconds=solver_seconds, engine="marabou",
                    )
                reasons.append("witness-rejected")
            elif status != "unsat":
                reasons.append("time" if status == "TIMEOUT" else "solver-error")
    if reasons:
        return Reply(status="unknown", reason=reasons[0], trust="", solve_seconds=solver_seconds, engine="marabou")
    return Reply(status="proved", reason=None, trust="claimed", solve_seconds=solver_seconds, engine="marabou")


def _ask(problem: TwinProblem, q: int, g: int, seconds: float) -> tuple[str, Array | None, float]:
    """Return sat, unsat, TIMEOUT or another word of Marabou's; the inputs x (n,) of a sat; seconds within Marabou."""
    core, goal, batch, domain = load(), problem.goals[g], problem.batch, problem.domain
    columns = domain.columns_of(np.flatnonzero(batch.protected))
    network = product_network(problem.network.layered("Marabou"), own=columns, margin=problem.margin, rows=goal.rows)
    low, high = (bounds[0] for bounds in domain.box(batch.lower[[q]], batch.upper[[q]]))
    prime, _ = domain.box(batch.second(batch.lower[[q]]), batch.second(batch.lower[[q]]))
    query = core.InputQuery()
    query.setNumberOfVariables(network.inputs + sum(len(layer.bias) + int((layer.slope == 0).sum()) for layer in network.layers))
    number = itertools.count()
    inputs = _variables(query, number, np.concatenate([low, prime[0, columns]]), np.concatenate([high, prime[0, columns]]))
    for position, variable in enumerate(inputs):
        query.markInputVariable(variable, position)
    for v in np.flatnonzero(domain.one_hot):
        block = range(int(domain.start[v]), int(domain.start[v] + domain.width[v]))
        if (low[list(block)] != high[list(block)]).any():
            _equation(core, query, [(1.0, inputs[j]) for j in block], 1.0)
    previous = inputs
    for k, layer in enumerate(network.layers):
        width, last = len(layer.bias), k == len(network.layers) - 1
        current = _variables(query, number, np.full(width, -np.inf), -goal.constants if last else np.full(width, np.inf))
        for i in range(width):
            terms = [(float(w), previous[j]) for j, w in enumerate(layer.weight[i].tolist()) if w]
            _equation(core, query, [*terms, (-1.0, current[i])], -float(layer.bias[i]))
        if last:
            for position, variable in enumerate(current):
                query.markOutputVariable(variable, position)
            continue
        previous = []
        for i, variable in enumerate(current):
            if layer.slope[i] == 1:
                previous.append(variable)
                continue
            (active,) = _variables(query, number, np.zeros(1), np.full(1, np.inf))
            core.addReluConstraint(query, variable, active)
            previous.append(active)
    options = core.Options()
    options._verbosity = 0
    options._splittingStrategy = SPLITTING
    options._timeoutInSeconds = max(int(seconds), 1)
    started = time.perf_counter()
    status, values, _ = core.solve(query, options, "")
    point = np.array([values[j] for j in inputs[: domain.columns]]) if status == "sat" else None
    return status, point, time.perf_counter() - started


def _variables(query: Any, number: Iterator[int], lower: Array, upper: Array) -> list[int]:
    """Add variables with these bounds."""
    variables = [next(number) for _ in lower]
    for j, low, high in zip(variables, lower.tolist(), upper.tolist(), strict=True):
        if np.isfinite(low):
            query.setLowerBound(j, low)
        if np.isfinite(high):
            query.setUpperBound(j, high)
    return variables


def _equation(core: Any, query: Any, terms: list[tuple[float, int]], constant: float) -> None:
    equation = core.Equation()
    for coefficient, variable in terms:
        equation.addAddend(coefficient, variable)
    equation.setScalar(constant)
    query.addEquation(equation)
