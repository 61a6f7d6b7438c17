"""Agreement of the methods: LP optima across backends, exact minima by MILP and by the engine, statuses of every pair.

On at least 300 queries (row and direction) of Adult at (100, 50): the LP optimum of every LP backend, the MILP minimum of every MIP
backend and the engine's bracket of the exact minimum. Z3 is compared on a network of four neurons, the largest that it finishes.
A contradiction between two methods' statuses raises Disagreement.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.pba.adult import Adult
from benchmarks.shared import show
from encoders.bounds.twin import Twin
from encoders.onnx.reader import read_onnx
from encoders.problem import TwinProblem
from encoders.programs.big_m import big_m
from encoders.programs.triangle import triangle
from encoders.programs.twin_box import Method, TwinBox
from solvers import registry
from solvers.outcome import BackendError, Budget
from solvers.program import Program
from verifair import datasets
from verifair.engine.cascade import solve
from verifair.engine.questions import bias_problem
from verifair.engine.search.optimum import minimum
from verifair.engine.verdict import Status
from verifair.errors import Disagreement
from verifair.systems.pba.stream import LabelledRows
from verifair.training import train

ROWS, DELTA, LIMIT = 160, 2.0, 30.0
LINEAR = ("highs", "gurobi", "scip", "ortools-glop", "ortools-pdlp")
INTEGER = ("highs", "gurobi", "scip", "ortools-scip")


def run(folder: Path) -> pd.DataFrame:
    adult = Adult.of((100, 50))
    lps: dict[str, list[float]] = defaultdict(list)
    minima: dict[str, list[float]] = defaultdict(list)
    lower, upper, engine = [], [], []
    for problem in adult.sample(ROWS, DELTA, seed=1):
        twin = Twin.of(problem)
        exact_minima = [minimum(replace(problem, goals=(goal,)), tolerance=1e-6) for goal in problem.goals]
        for q in range(len(problem.batch)):
            relaxed = triangle(TwinBox.of(twin, q, method=Method.INTERVAL))
            exact = big_m(TwinBox.of(twin, q, method=Method.LINEAR))
            for g, row in enumerate(problem.rows):
                lower.append(exact_minima[g].lower[q])
                upper.append(exact_minima[g].upper[q])
                for name in LINEAR:
                    lps[name].append(_value(relaxed.minimise(row), name))
                for name in INTEGER:
                    minima[name].append(_value(exact.minimise(row), name))
        engine += [answer.status for pair in solve(problem, method="bnb") for answer in pair]
    lines = _compare(lps, minima, np.array(lower), np.array(upper), engine)
    lines += _with_z3()
    return show("Agreement: every method on the same queries", pd.DataFrame(lines), folder)


def _value(program: Program, backend: str) -> float:
    """Return the optimum that a backend claims; NaN if it is not installed, its licence is too small, or time ran out."""
    try:
        outcome = registry.solve(program, backend=backend, budget=Budget(seconds=LIMIT))
    except BackendError:
        return float("nan")
    is_optimal = outcome.termination.value == "optimal" and outcome.primal_bound is not None
    return float(outcome.primal_bound) if is_optimal and outcome.primal_bound is not None else float("nan")


def _compare(
    lps: dict[str, list[float]], minima: dict[str, list[float]], lower: np.ndarray, upper: np.ndarray, engine: list[Status]
) -> list[dict[str, object]]:
    total = len(engine)
    proved = np.array([status is Status.PROVED for status in engine])
    undecided = sum(status is Status.UNKNOWN for status in engine) / total
    lines: list[dict[str, object]] = [
        {"method": "engine", "queries": total, "answered": total, "proved": float(proved.mean()), "undecided": undecided,
         "largest deviation": float((upper - lower).max())}
    ]
    reference = np.array(lps["highs"])
    for name, values in lps.items():
        array = np.array(values)
        is_solved = ~np.isnan(array)
        claims = is_solved & (array > 1e-5)
        if (claims & ~proved).any():
            raise Disagreement(f"lp {name} claims {int((claims & ~proved).sum())} queries proved that the engine refutes")
        deviation = float(np.abs(array - reference)[is_solved & ~np.isnan(reference)].max(initial=0.0))
        lines.append(
            {"method": f"lp {name}", "queries": total, "answered": int(is_solved.sum()), "proved": float(claims.mean()),
             "undecided": float(1 - claims.mean()), "largest deviation": deviation}
        )
    for name, values in minima.items():
        array = np.array(values)
        is_solved = ~np.isnan(array)
        claims, refutes = is_solved & (array > 1e-5), is_solved & (array < -1e-5)
        if (claims & ~proved).any() or (refutes & proved).any():
            raise Disagreement(f"milp {name} contradicts the engine")
        deviation = float(np.maximum(array - upper, lower - array)[is_solved].max(initial=0.0))
        lines.append(
            {"method": f"milp {name}", "queries": total, "answered": int(is_solved.sum()), "proved": float(claims.mean()),
             "undecided": float(1 - (claims | refutes).mean()), "largest deviation": deviation}
        )
    return lines


def _with_z3() -> list[dict[str, object]]:
    """Compare Z3 with the engine on German Credit with a hidden layer of four."""
    dataset = datasets.load("german")
    path = Path("runs") / "nets" / "german-agnostic-4.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        train(dataset, method="agnostic", sensitive=None, hidden=(4,), seed=0).save(path)
    network, schema = read_onnx(path), dataset.schema
    table = LabelledRows.of(network, schema, dataset.test)
    v = schema.index("age")
    problems: list[TwinProblem] = []
    for label in (0, 1):
        raw = table.raw[(table.predicted == table.labels) & (table.labels == label)][:15]
        problems.append(bias_problem(network, schema, raw, "age", 1 - raw[:, v], 1.0, (label, 1 - label)))
    statuses = []
    for problem in problems:
        ours = solve(problem, method="bnb")
        theirs = solve(problem, method="smt", budget=Budget(seconds=600))
        statuses += [(a.status, b.status) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)]
    contradictions = [pair for pair in statuses if Status.UNKNOWN not in pair and pair[0] is not pair[1]]
    if contradictions:
        raise Disagreement(f"z3 contradicts the engine on {len(contradictions)} queries of {path}")
    answers = [b for _, b in statuses if b is not Status.UNKNOWN]
    return [
        {"method": "smt z3 (german, 4)", "queries": len(statuses), "answered": len(answers),
         "proved": sum(b is Status.PROVED for b in answers) / len(statuses), "undecided": 1 - len(answers) / len(statuses),
         "largest deviation": 0.0}
    ]
