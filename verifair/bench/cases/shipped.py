"""Questions about rows of the shipped data, asked of the shipped networks; each network is read once a process.

PBA and robustness: neighbourhoods that grow around the same rows, as decisions, triangle LPs and exact minima.

2-fairness on boxes that open around a row: no decision flips, or no probability gap above epsilon. Size n opens n features,
numbers first, each over its whole declared range; the others keep the row's values. Even numbers take a row of which the network
is sure (of a tenth of them), so that small boxes are fair; odd ones take any row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from encoders.evaluate import pair
from encoders.network import Array, Integers, Network
from encoders.onnx.reader import read_onnx
from encoders.problem import TwinProblem
from verifair import datasets
from verifair.bench.cases.family import Family, generator
from verifair.bench.questions import DecisionQuestion, Kind, MinimumQuestion, Question, RelaxationQuestion
from verifair.datasets import Dataset
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, bias_problem, decisions, goals_of, margin, robustness_problem, twin_problem
from verifair.schema.schema import Schema
from verifair.systems.pba.rows import Table

SENSITIVE = "sex"
NAMES = ("german", "adult")
DELTAS = (3, 30, 100)
EPSILON = 0.1
OPEN = {"german": (2, 5, 9), "adult": (2, 4, 7)}
"""How many features are open."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shipped:
    """A shipped network, its schema and its test rows.

    eligible: positions of the rows that PBA asks about (both copies predicted right).   favoured: those of them in which the
    network is more confident than in their counterfactual, so that the question is not decided at the row itself.   sure: the
    tenth of those eligible with the largest margins.
    """

    network: Network
    dataset: Dataset
    table: Table
    eligible: Integers
    favoured: Integers
    sure: Integers

    @property
    def schema(self) -> Schema:
        return self.dataset.schema

    def bias(self, row: int, delta: float) -> TwinProblem:
        """Return PBA of one row: goals observed and flipped."""
        return _bias(self.network, self.schema, self.table, np.array([row]), delta)


@lru_cache
def shipped(name: str) -> Shipped:
    """Read german or adult."""
    dataset = datasets.load(name)
    network, schema = read_onnx(datasets.network_path(name)), dataset.schema
    table = Table.of(network, schema, dataset.test)
    right = table.predicted == table.labels
    eligible = np.flatnonzero(right & (decisions(network, schema.encode(_flipped(schema, table.raw))) == table.labels))
    ahead = np.zeros(len(table.raw), dtype=bool)
    for label in (0, 1):
        rows = eligible[table.labels[eligible] == label]
        ahead[rows] = _difference(_bias(network, schema, table, rows, 0.0)) > 0
    logits = network.forward(schema.encode(table.raw[eligible]))
    surest = np.argsort(-np.abs(logits @ margin(network, 1, 0)), kind="stable")[: max(len(eligible) // 10, 1)]
    return Shipped(
        network=network, dataset=dataset, table=table, eligible=eligible, favoured=np.flatnonzero(ahead),
        sure=np.sort(eligible[surest]),
    )


def _flipped(schema: Schema, raw: Array) -> Array:
    """Return the rows with the other sex: both shipped datasets know two."""
    v, out = schema.index(SENSITIVE), raw.copy()
    out[:, v] = 1 - out[:, v]
    return out


def _bias(network: Network, schema: Schema, table: Table, rows: Integers, delta: float) -> TwinProblem:
    """Return PBA of rows of one label."""
    label = int(table.labels[rows[0]])
    raw = table.raw[rows]
    return bias_problem(network, schema, raw, SENSITIVE, 1 - raw[:, schema.index(SENSITIVE)], delta, (label, 1 - label))


def _difference(problem: TwinProblem) -> Array:
    """Return g(x) - g(x') at the rows themselves."""
    x, x_prime = pair(problem, np.arange(len(problem.batch)), problem.batch.lower)
    both = [problem.network.forward(copy) @ problem.margin for copy in (x, x_prime)]
    return np.asarray(both[0] - both[1])


def bias(name: str, delta: int, number: int, seed: int) -> TwinProblem:
    """Ask for persistent bias of one test row, *observed*. Even numbers take a favoured row, odd ones any eligible one."""
    data = shipped(name)
    rows = data.favoured if number % 2 == 0 else data.eligible
    row = int(generator(f"bias {name}", number, seed).choice(rows))
    problem = data.bias(row, float(delta))
    return replace(problem, goals=problem.goals[:1])


def robustness(name: str, delta: int, number: int, seed: int) -> TwinProblem:
    """Ask whether the right decision on one test row survives."""
    data = shipped(name)
    row = int(generator(f"robustness {name}", number, seed).choice(data.eligible))
    label = int(data.table.labels[row])
    raw = data.table.raw[np.array([row])]
    return robustness_problem(data.network, data.schema, raw, float(delta), SENSITIVE, (label, 1 - label))


def _fairness(name: str, epsilon: float | None, size: int, number: int, seed: int) -> DecisionQuestion:
    data = shipped(name)
    schema, rows = data.schema, data.sure if number % 2 == 0 else data.eligible
    row = int(generator(f"fairness {name}", number, seed).choice(rows))
    others = [feature.name for feature in schema.features if feature.name != SENSITIVE]
    numbers = [name for name in others if schema[name].kind == "integer"]
    open_ = [*numbers, *(name for name in others if name not in numbers)][:size]
    raw = data.table.raw[row]
    lower, upper = schema.domain.lower, schema.domain.upper
    query = IndividualFairness(network=data.network, schema=schema, protected=[SENSITIVE], epsilon=epsilon)
    free = np.isin(np.arange(len(raw)), [schema.index(name) for name in [*open_, SENSITIVE]])
    low, high = np.where(free, lower, raw), np.where(free, upper, raw)
    batch, _, _ = Pairs.of(query, low, high).batch(schema.domain, low[None], high[None], (low, high))
    return DecisionQuestion(problem=twin_problem(query, batch, goals_of(query)))


def families() -> list[Family]:
    out = []
    for name in NAMES:
        asks: tuple[tuple[str, Kind, str, int, Ask, type[DecisionQuestion | RelaxationQuestion | MinimumQuestion]], ...] = (
            (f"pba-{name}", "decision", f"persistent bias of test rows of {name}", 3, bias, DecisionQuestion),
            (f"robust-{name}", "decision", f"robustness of the decisions on test rows of {name}", 1, robustness, DecisionQuestion),
            (f"lp-{name}", "relaxation", f"the triangle LP's optimum on the rows of pba-{name}", 2, bias, RelaxationQuestion),
            (f"min-{name}", "minimum", f"the exact minimum on the rows of pba-{name}", 2, bias, MinimumQuestion),
        )
        out += [
            Family(
                name=label, kind=kind, about=about, size_is="delta, units around the row", sizes=DELTAS, count=count,
                build=partial(_around, name, ask, asked),
            )
            for label, kind, about, count, ask, asked in asks
        ]
    flips = (f"2-fairness (no decision flips with {SENSITIVE})", None, 2)
    gaps = (f"no probability gap above {EPSILON} with {SENSITIVE}", EPSILON, 1)
    for label, (about, epsilon, count) in (("fair", flips), ("gap", gaps)):
        out += [
            Family(
                name=f"{label}-{name}", kind="decision", about=f"{about} around rows of {name}", size_is="features that are open",
                sizes=sizes, count=count, build=partial(_fairness, name, epsilon),
            )
            for name, sizes in OPEN.items()
        ]
    return out


Ask = Callable[[str, int, int, int], TwinProblem]


def _around(
    name: str, ask: Ask, asked: type[DecisionQuestion | RelaxationQuestion | MinimumQuestion], size: int, number: int, seed: int
) -> Question:
    return asked(problem=ask(name, size, number, seed))
