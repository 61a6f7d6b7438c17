"""The questions of the benchmarks: PBA on Adult's test rows, with the paper's three network sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoders.arrays import Integers
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from encoders.problem import TwinProblem
from verifair import datasets
from verifair.engine.questions import bias_problem, decisions
from verifair.schema.schema import Schema
from verifair.systems.pba.stream import LabelledRows
from verifair.training import train

SIZES = ((100, 50), (200, 100), (500, 100))
NETS = Path("runs") / "nets"


@dataclass(frozen=True, kw_only=True, eq=False)
class Adult:
    """Adult's test rows that are eligible for PBA with sex (both copies predicted right), and a network of one size."""

    network: Network
    schema: Schema
    table: LabelledRows
    rows: Integers

    @classmethod
    def of(cls, hidden: tuple[int, ...]) -> Adult:
        """Return the rows with the fairness-agnostic network of seed 0, trained on first use and kept in runs/nets."""
        dataset = datasets.load("adult")
        path = NETS / f"adult-agnostic-{'x'.join(map(str, hidden))}.onnx"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            train(dataset, method="agnostic", sensitive=None, hidden=hidden, seed=0).save(path)
        network, schema = read_onnx(path), dataset.schema
        table = LabelledRows.of(network, schema, dataset.test)
        v = schema.index("sex")
        flipped = table.raw.copy()
        flipped[:, v] = 1 - flipped[:, v]
        right = (table.predicted == table.labels) & (decisions(network, schema.encode(flipped)) == table.labels)
        return cls(network=network, schema=schema, table=table, rows=np.flatnonzero(right))

    def problem(self, rows: Integers, delta: float, label: int) -> TwinProblem:
        """Return PBA (observed and flipped) of the given rows, all of one label."""
        values = 1 - self.table.raw[rows, self.schema.index("sex")]
        return bias_problem(self.network, self.schema, self.table.raw[rows], "sex", values, delta, (label, 1 - label))

    def sample(self, count: int, delta: float, seed: int = 0) -> list[TwinProblem]:
        """Return `count` random eligible rows as problems, one for each label."""
        chosen = np.sort(np.random.default_rng(seed).choice(self.rows, size=min(count, len(self.rows)), replace=False))
        labels = self.table.labels[chosen]
        return [self.problem(chosen[labels == label], delta, label) for label in (0, 1) if (labels == label).any()]


def single(problem: TwinProblem, q: int, g: int) -> TwinProblem:
    """Return one question and one goal of a problem."""
    return replace(problem, batch=problem.batch.take([q]), goals=(problem.goals[g],))
