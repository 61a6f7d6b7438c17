"""CEC training that keeps the model from becoming constant: floors under AUC and under the variance of the probability.

A constant model is perfectly consistent, and the paper's objective leads there on German. Here a fifth of the people is set apart,
a plain network is trained on the rest, and training continues from it by CEC's objective. After each epoch both floors are checked
on the people set apart: if they hold, the weight of the explanations grows, otherwise it shrinks. The weights of the epoch with the
least score and excess among those where the floors hold are kept, or else the plain network.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from encoders.arrays import Booleans, Integers
from verifair.checker.report import Progress
from verifair.errors import TrainingError
from verifair.systems.cec.matching import Matches, Reference, match, match_within
from verifair.systems.cec.people import People
from verifair.systems.cec.training.loss import CecObjective
from verifair.systems.cec.training.settings import ConsistencyTerms
from verifair.training.fit import descend, fit
from verifair.training.measure import forward
from verifair.training.objectives import CrossEntropy
from verifair.training.onnx_writer import Weights
from verifair.training.perceptron import Perceptron
from verifair.training.settings import Loop

FOLDS = 5
"""One of so many people of each label and group is set apart."""
START, GROWTH, DECAY, MAX_STRENGTH = 0.25, 1.25, 0.5, 20.0
"""Strength of the explanations' terms: to begin with, its factor after an epoch with and without both floors, and the largest."""
MAX_SAMPLE = 1_000
"""People set apart whose explanations are compared after each epoch."""


def fit_above_floors(
    people: People, columns: Integers, loop: Loop, terms: ConsistencyTerms, *, class_weight: str | None = None,
    progress: Progress | None = None,
) -> tuple[Weights, tuple[float, ...]]:
    """Train a network; returns its weights and the mean loss of each epoch after the plain ones.

    columns: (F,) of merit.   loop: for the plain epochs, and again as many.   Raises TrainingError where too few people of a label
    can be set apart, DataError as `Reference.of` and `match`.
    """
    is_apart = set_apart(people, loop.seed)
    training, held_out = people.take(np.flatnonzero(~is_apart)), people.take(np.flatnonzero(is_apart))
    x = training.x.astype(np.float32)
    report = progress or (lambda done, total: None)
    prediction = CrossEntropy(training.labels, class_weight=class_weight)
    weights, _ = fit(x, loop, prediction, lambda done, total: report(done, 2 * total))
    reference = Reference.of(training, columns)
    within = match_within(reference, training, tau=terms.tau)
    objective = FlooredObjective(prediction, reference, match(reference, training, tau=terms.tau), terms, within, held_out, weights)
    network = Perceptron.of(weights, torch.Generator().manual_seed(loop.seed))
    _, losses = descend(network, x, loop, objective, lambda done, total: report(total + done, 2 * total))
    return objective.kept, losses


def set_apart(people: People, seed: int) -> Booleans:
    """Return (N,) one in FOLDS of the people of each label and group, drawn. Raises TrainingError where a label has nobody."""
    is_apart: Booleans = np.zeros(len(people), dtype=bool)
    generator = np.random.default_rng(seed)
    for cell in np.unique(np.stack([people.labels, people.groups]), axis=1).T:
        rows = np.flatnonzero((people.labels == cell[0]) & (people.groups == cell[1]))
        is_apart[generator.permutation(rows)[: len(rows) // FOLDS]] = True
    if len(np.unique(people.labels[is_apart])) < 2:
        raise TrainingError(
            f"a floor under AUC is measured on one in {FOLDS} of the people of each label and group, and these are too few of one "
            "label; pass more rows, or no auc_loss"
        )
    return is_apart


class FlooredObjective(CecObjective):
    """The objective on some people, checked on others.   kept: the best weights so far.   auc, variance: the floors."""

    def __init__(
        self, prediction: CrossEntropy, reference: Reference, matches: Matches, consistency: ConsistencyTerms, within: Matches,
        held_out: People, plain: Weights,
    ) -> None:
        super().__init__(prediction, reference, matches, consistency, within)
        self.strength, self.kept, self.lowest, self.seen = START, plain, np.inf, 0
        self.held_out_x, self.held_out_labels = held_out.x.astype(np.float32), held_out.labels
        auc, variance = self._auc_and_variance(plain)
        self.auc, self.variance = auc - (consistency.auc_loss or 0.0), variance * consistency.variance_share
        sample = held_out.take(np.arange(len(held_out))[:: max(len(held_out) // MAX_SAMPLE, 1)])
        across, control = match(reference, sample, tau=consistency.tau), match_within(reference, sample, tau=consistency.tau)
        person, row = across.individual[across.matched], across.row[across.matched]
        self.sample = tuple(map(torch.from_numpy, (
            sample.x[person].astype(np.float32), (sample.labels * self.count + sample.groups)[person], row, control.row[person],
        )))

    def after_step(self, network: Perceptron, chosen: Tensor) -> None:
        """Check the floors after the last step of an epoch."""
        self.seen += len(chosen)
        if self.seen < len(self.x):
            return
        self.seen = 0
        weights = network.weights()
        auc, variance = self._auc_and_variance(weights)
        if auc < self.auc or variance < self.variance:
            self.strength *= DECAY
            return
        with torch.no_grad():
            score, excess = self.scores(network, *self.sample)
        if (total := float(score) + abs(float(excess))) < self.lowest:
            self.lowest, self.kept = total, weights
        self.strength = min(self.strength * GROWTH, MAX_STRENGTH)

    def _auc_and_variance(self, weights: Weights) -> tuple[float, float]:
        """Return AUC and variance of the probability on the people set apart."""
        z = forward(weights, self.held_out_x).astype(np.float64)
        margin = z[:, 1] - z[:, 0]
        return float(roc_auc_score(self.held_out_labels, margin)), float((1 / (1 + np.exp(-margin))).var())

