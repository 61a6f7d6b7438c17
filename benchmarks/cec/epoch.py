"""The cost of CEC training: an epoch on Adult beside a plain epoch of the same loop, interleaved, with equal threads.

The paper reports 3 to 5 times a plain epoch on a GPU. All epochs have the paper's network (128, 64), batch 64 and dropout; the CEC
epochs have T = 32, and `every 2` explains in every second step with twice the weight. `naive` is the same objective through
autograd's double backward, every step of the path as a row of one batch, for a share of an epoch.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.shared import show
from encoders.arrays import Floats
from verifair import datasets
from verifair.systems.cec.matching import Reference, match, match_within
from verifair.systems.cec.people import merit_columns, people_of
from verifair.systems.cec.training import CEC_LOOP, EXCESS_TERMS, ConsistencyTerms
from verifair.systems.cec.training.loss import CecObjective, explanation_gap
from verifair.training import Loop
from verifair.training.fit import fit
from verifair.training.objectives import CrossEntropy, Objective
from verifair.training.perceptron import Perceptron

ROUNDS, NAIVE_ROWS = 5, 1280


class Naive(CecObjective):
    """The paper's loss, implemented literally: gradients of gradients."""

    def score(self, network: Perceptron, chosen: Tensor) -> Tensor:
        baseline = self.baselines[self.cell[chosen]]
        g = [self._attributions(network, x, baseline) for x in (self.x[chosen], self.x[self.partner[chosen]])]
        return explanation_gap(torch.stack(g))

    def _attributions(self, network: Perceptron, x: Tensor, baseline: Tensor) -> Tensor:
        steps = self.consistency.steps
        alpha = (torch.arange(steps, dtype=x.dtype) + 0.5) / steps
        points = torch.addcmul(baseline[:, None], alpha[:, None], (x - baseline)[:, None]).flatten(0, 1).requires_grad_()
        z = network(points)
        (gradient,) = torch.autograd.grad((z[:, 1] - z[:, 0]).sum(), points, create_graph=True)
        return (x - baseline) * gradient.view(len(x), steps, -1).mean(dim=1)


def run(folder: Path, *, rounds: int = ROUNDS, threads: int = 2) -> pd.DataFrame:
    adult = datasets.load("adult")
    people = people_of(adult.schema, adult.frame, "sex")  # all 45,222 rows
    reference = Reference.of(people, merit_columns(adult.schema))
    matches = match(reference, people)
    prediction = CrossEntropy(people.labels)
    loop = replace(CEC_LOOP, epochs=1, threads=threads)
    x = people.x.astype(np.float32)
    within = match_within(reference, people)
    objectives = {
        "plain": prediction, "cec": CecObjective(prediction, reference, matches, ConsistencyTerms()),
        "cec, every 2": CecObjective(prediction, reference, matches, ConsistencyTerms(every=2)),
        "with the excess, every 2": CecObjective(prediction, reference, matches, EXCESS_TERMS, within),
    }
    for objective in objectives.values():
        _seconds(x[:NAIVE_ROWS], loop, objective)  # the first steps load libraries
    times = pd.DataFrame(
        [{name: _seconds(x, loop, objective) for name, objective in objectives.items()} for _ in range(rounds)]
    )
    naive = Naive(prediction, reference, matches, ConsistencyTerms())
    share = _seconds(x[:NAIVE_ROWS], loop, naive) * len(x) / NAIVE_ROWS
    plain = times["plain"]
    lines = [
        {"epoch": "plain", "s": plain.median(), "times plain": 1.0, "least": 1.0, "most": 1.0},
        *(_line(name, times[name], plain) for name in list(objectives)[1:]),
        _line("naive (double backward)", pd.Series([share]), plain.median()),
    ]
    title = f"CEC epoch: Adult, {len(x)} rows, {threads} threads, median of {rounds} interleaved rounds"
    return show(title, pd.DataFrame(lines), folder)


def _line(name: str, seconds: pd.Series, plain: pd.Series | float) -> dict[str, object]:
    """Return a line of the table; ratios are of the two epochs of one round."""
    ratio = seconds / plain
    return {"epoch": name, "s": seconds.median(), "times plain": ratio.median(), "least": ratio.min(), "most": ratio.max()}


def _seconds(x: Floats, loop: Loop, objective: Objective) -> float:
    started = time.perf_counter()
    fit(x, loop, objective)
    return time.perf_counter() - started
