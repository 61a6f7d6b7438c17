"""Seconds to an exact decision-flip witness over the whole domain, ours beside MILP and SMT; a line for each network and attribute.

Clocks start when network and schema are loaded and stop at a witness that exact arithmetic has confirmed; building counts. Ours is
`verify` as it comes, asked again before every peer, so that all are interleaved: its median and its slowest. The peers are asked
pair by pair and direction by direction until the first witness, each in its two forms:

    worst       `--method milp`: the point that violates most. A witness met before the time is up counts, at the time-out
    any         the same MILP as a feasibility question, g >= margin and g' <= -margin: any point that flips by a clear margin
    z3          `--method smt`: any point at all, in exact arithmetic

A time-out is unknown, and counted as such; "licence" is a program beyond what Gurobi's bundled licence takes. For comparison,
HyFair's Table I (its own machine and solvers) has 0.2-106 s to the first witness by MILP, 4-139 s or none by SMT.

    python -m benchmarks.run witnesses --nets AC-1 GC-3 --seconds 5       a shorter run
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.fairness.networks import ListedNetwork, subjects
from benchmarks.pba.adult import single
from benchmarks.shared import data_folder, measured, show
from encoders.bounds.twin import Twin
from encoders.evaluate import exact_goals
from encoders.problem import TwinProblem
from encoders.programs.big_m import big_m
from encoders.programs.twin_box import Method, TwinBox
from solvers import registry
from solvers.outcome import Budget, LicenceLimit, Limit, Outcome, Unavailable
from solvers.program import Program
from verifair.engine.cascade import solve
from verifair.engine.questions import Pairs, box_of, goals_of, twin_problem
from verifair.engine.verdict import Reason, Status
from verifair.engine.verify import verify
from verifair.errors import Disagreement

BAR = 1.0
"""Seconds."""
MARGIN = 1e-3
"""Of the feasibility form, in logits: beyond solvers' tolerances, below what any of these networks' flips needs."""
FLIPS = (np.array([[-1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, -1.0]]))
"""Rows that are at most -MARGIN at a clear flip, for the two directions of a question."""
Finder = Callable[[TwinProblem, int, int, float], bool | None]
"""(problem, question, direction, seconds) -> whether it found a confirmed witness, None when time ran out."""


@dataclass(frozen=True, kw_only=True)
class FirstWitness:
    """status: "violated", "unknown", "licence" or "not installed"; "no witness" if a peer claims that there is none."""

    status: str
    seconds: float


def run(folder: Path, *, seconds: float = 20.0, nets: Sequence[str] = ()) -> pd.DataFrame:
    data = data_folder()
    questions = ((subject, protected) for subject in subjects(data, nets=nets) for protected in subject.protected)
    with threadpool_limits(limits=1):
        runs = measured("Witness runs: one line a run, in the order they were made", _runs(questions, seconds), folder)
    lines = [_line(net, protected, group) for (net, protected), group in runs.groupby(["net", "protected"], sort=False)]
    table = show(f"Witnesses: seconds to an exact decision flip, full domain, peers stopped after {seconds:g} s",
                 pd.DataFrame(lines), folder)
    ours = runs[runs["method"] == "ours"]
    print(f"ours: a witness in {(ours['status'] == 'violated').sum()} of {len(ours)} runs; always under {BAR:g} s on "
          f"{(table['slowest'] < BAR).sum()} of {len(table)} lines, slowest {table['slowest'].max():.3f} s")
    for name in PEERS:
        print(f"{name}: {_summary(runs[runs['method'] == name], table)}")
    return table


def _runs(questions: Iterator[tuple[ListedNetwork, str]], seconds: float) -> Iterator[dict[str, Any]]:
    for subject, protected in questions:
        problem = _problem(subject, protected)
        for name, finder in PEERS.items():
            own, peer = _own_search(subject, protected, seconds), _first_witness(finder, problem, seconds)
            if {own.status, peer.status} in ({"violated", "no witness"}, {"violated", "proved"}):
                raise Disagreement(f"{subject.name}, {protected}: ours says {own.status}, {name} {peer.status}")
            for method, first in (("ours", own), (name, peer)):
                yield {"net": subject.name, "protected": protected, "method": method, "status": first.status,
                       "seconds": first.seconds}


def _line(net: str, protected: str, runs: pd.DataFrame) -> dict[str, Any]:
    ours = runs[runs["method"] == "ours"]
    median = float(ours["seconds"].median())
    line = {"net": net, "protected": protected, "ours": "/".join(sorted(set(ours["status"]))), "seconds": median,
            "slowest": float(ours["seconds"].max())}
    for row in runs[runs["method"] != "ours"].itertuples():
        bound = ">" if row.status == "unknown" else ""
        is_timed = row.status in ("violated", "unknown")
        line[row.method] = f"{bound}{row.seconds:.2f} ({bound}{row.seconds / median:.1f}x)" if is_timed else row.status
    return line


def _summary(runs: pd.DataFrame, table: pd.DataFrame) -> str:
    """Return the number of each outcome, and the time relative to our median where a witness was found."""
    counts = ", ".join(f"{count} {status}" for status, count in runs["status"].value_counts().items())
    solved = runs[runs["status"] == "violated"].merge(table, on=["net", "protected"], suffixes=("", " of ours"))
    if solved.empty:
        return counts
    ratio = solved["seconds"] / solved["seconds of ours"]
    return (f"{counts}; where found {solved['seconds'].median():.2f} s in the median, {ratio.median():.1f}x ours "
            f"({ratio.min():.1f}-{ratio.max():.1f}x)")


def _own_search(subject: ListedNetwork, protected: str, seconds: float) -> FirstWitness:
    query = subject.fairness(protected)
    started = time.perf_counter()
    verdict = verify(query, budget=Budget(seconds=seconds))
    return FirstWitness(status=verdict.status.value, seconds=time.perf_counter() - started)


def _problem(subject: ListedNetwork, protected: str) -> TwinProblem:
    query = subject.fairness(protected)
    box = box_of(query.schema, query.box)
    batch, _, _ = Pairs.of(query, *box).batch(query.schema.domain, box[0][None], box[1][None], box)
    return twin_problem(query, batch, goals_of(query))


def _first_witness(finder: Finder, problem: TwinProblem, seconds: float) -> FirstWitness:
    """Ask question by question until a witness is found."""
    started = time.perf_counter()
    status = "no witness"
    for q, g in np.ndindex(len(problem.batch), len(problem.goals)):
        remaining = seconds - (time.perf_counter() - started)
        try:
            is_violated = finder(problem, q, g, remaining) if remaining > 0 else None
        except (LicenceLimit, Unavailable) as error:
            return FirstWitness(status="licence" if isinstance(error, LicenceLimit) else "not installed", seconds=np.nan)
        if is_violated:
            status = "violated"
        elif is_violated is None:
            status = "unknown"
        if status == "violated" or remaining <= 0:
            break
    return FirstWitness(status=status, seconds=time.perf_counter() - started)


def _worst(method: str, backend: str) -> Finder:
    def find(problem: TwinProblem, q: int, g: int, seconds: float) -> bool | None:
        ((answer,),) = solve(single(problem, q, g), method=method, solver=backend, budget=Budget(seconds=seconds))
        if answer.reason is Reason.INTERRUPTED:
            raise KeyboardInterrupt
        return None if answer.status is Status.UNKNOWN else answer.status is Status.VIOLATED

    return find


def _flip_finder(backend: str) -> Finder:
    def find(problem: TwinProblem, q: int, g: int, seconds: float) -> bool | None:
        started = time.perf_counter()
        encoding = big_m(TwinBox.of(Twin.of(problem), q, method=Method.LINEAR), difference=False)
        program: Program = encoding.program
        for row in FLIPS[g]:
            program = replace(encoding, program=program).at_most(row, -MARGIN)
        remaining = max(seconds - (time.perf_counter() - started), 1e-3)
        outcome: Outcome = registry.solve(program, backend=backend, budget=Budget(seconds=remaining))
        if outcome.limit is Limit.INTERRUPTED:
            raise KeyboardInterrupt
        if outcome.values is None:
            return None  # out of time, or infeasible: no flip by this margin, though there may be one by less
        is_met, _ = exact_goals(problem, np.array([q]), encoding.decode(outcome.values))
        return None if is_met[0, g] else True

    return find


PEERS: dict[str, Finder] = {
    "highs worst": _worst("milp", "highs"),
    "highs any": _flip_finder("highs"),
    "gurobi worst": _worst("milp", "gurobi"),
    "gurobi any": _flip_finder("gurobi"),
    "z3": _worst("smt", "z3"),
}
