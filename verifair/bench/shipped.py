"""The shipped networks with the rows that questions are asked about; each is read once a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from encoders.evaluate import pair
from encoders.network import Array, Integers, Network
from encoders.onnx.reader import read_onnx
from encoders.problem import TwinProblem
from verifair import datasets
from verifair.datasets import Dataset
from verifair.engine.questions import bias_problem, decisions, margin
from verifair.schema.schema import Schema
from verifair.systems.pba.rows import Table

SENSITIVE = "sex"
NAMES = ("german", "adult")


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
        """PBA of one row: goals observed and flipped."""
        return _bias(self.network, self.schema, self.table, np.array([row]), delta)


@lru_cache
def shipped(name: str) -> Shipped:
    """german or adult."""
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
    )  # fmt: skip


def _flipped(schema: Schema, raw: Array) -> Array:
    """Both shipped datasets know two sexes."""
    v, out = schema.index(SENSITIVE), raw.copy()
    out[:, v] = 1 - out[:, v]
    return out


def _bias(network: Network, schema: Schema, table: Table, rows: Integers, delta: float) -> TwinProblem:
    """PBA of rows of one label."""
    label = int(table.labels[rows[0]])
    raw = table.raw[rows]
    return bias_problem(network, schema, raw, SENSITIVE, 1 - raw[:, schema.index(SENSITIVE)], delta, label, 1 - label)


def _difference(problem: TwinProblem) -> Array:
    """g(x) - g(x') at the rows themselves."""
    x, x_prime = pair(problem, np.arange(len(problem.batch)), problem.batch.lower)
    both = [problem.network.forward(copy) @ problem.margin for copy in (x, x_prime)]
    return np.asarray(both[0] - both[1])
