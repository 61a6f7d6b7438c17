"""PBA and robustness on the shipped networks, neighbourhoods growing around the same rows: decisions, LPs and exact minima."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from encoders.problem import TwinProblem
from verifair.bench.family import Family, generator
from verifair.bench.questions import Decision, Minimum, Question, Relaxation
from verifair.bench.shipped import SENSITIVE, shipped
from verifair.engine.questions import robustness_problem

SIZE = "delta, units around the row"
DELTAS = {"german": (3, 30, 100), "adult": (3, 30, 100)}


def bias(name: str, delta: int, number: int, seed: int) -> TwinProblem:
    """Persistent bias of one test row, *observed*. Even numbers take a row that is favoured, odd ones any that is eligible."""
    data = shipped(name)
    rows = data.favoured if number % 2 == 0 else data.eligible
    row = int(generator(f"bias {name}", number, seed).choice(rows))
    problem = data.bias(row, float(delta))
    return replace(problem, goals=problem.goals[:1])


def robustness(name: str, delta: int, number: int, seed: int) -> TwinProblem:
    """Does the right decision on one test row survive?"""
    data = shipped(name)
    row = int(generator(f"robustness {name}", number, seed).choice(data.eligible))
    label = int(data.table.labels[row])
    raw = data.table.raw[np.array([row])]
    return robustness_problem(data.network, data.schema, raw, float(delta), SENSITIVE, label, 1 - label)


def families() -> list[Family]:
    out = []
    for name, deltas in DELTAS.items():
        ask = partial(bias, name)
        out.append(
            Family(
                name=f"pba-{name}", kind="decision", about=f"persistent bias of test rows of {name}", size_is=SIZE, sizes=deltas,
                count=3, build=_as(lambda problem: Decision(problem=problem), ask),
            )
        )  # fmt: skip
        out.append(
            Family(
                name=f"robust-{name}", kind="decision", about=f"robustness of the decisions on test rows of {name}", size_is=SIZE,
                sizes=deltas, count=1, build=_as(lambda problem: Decision(problem=problem), partial(robustness, name)),
            )
        )  # fmt: skip
        out.append(
            Family(
                name=f"lp-{name}", kind="relaxation", about=f"the triangle LP's optimum on the rows of pba-{name}", size_is=SIZE,
                sizes=deltas, count=2, build=_as(lambda problem: Relaxation(problem=problem), ask),
            )
        )  # fmt: skip
        out.append(
            Family(
                name=f"min-{name}", kind="minimum", about=f"the exact minimum on the rows of pba-{name}", size_is=SIZE,
                sizes=deltas, count=2, build=_as(lambda problem: Minimum(problem=problem), ask),
            )
        )  # fmt: skip
    return out


def _as(
    kind: Callable[[TwinProblem], Question], ask: Callable[[int, int, int], TwinProblem]
) -> Callable[[int, int, int], Question]:
    return lambda size, number, seed: kind(ask(size, number, seed))
