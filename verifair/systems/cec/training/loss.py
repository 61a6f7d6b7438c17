"""The loss of CEC training: prediction, equal error rates of the groups, and the same reasons for counterparts.

Reference: CEC, "Training Objective" and algorithm 2.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from verifair.systems.cec.explanations import EPSILON
from verifair.systems.cec.matching import Matches, Reference
from verifair.systems.cec.training.path_gradients import Buffers, attributions
from verifair.systems.cec.training.settings import ConsistencyTerms
from verifair.training.objectives import CrossEntropy, Objective
from verifair.training.perceptron import Perceptron

SMOOTHING = 0.02
"""Share of the newest batch in the running mean of the excess: a batch of 64 alone says little."""
FULL_WEIGHT_EXCESS = 0.005
"""Excess from which on it is pulled to 0 with the whole weight."""


class CecObjective(Objective):
    """CE + lambda_eo equalized_odds + lambda_cec explanation_gap on the people of a reference, matched among themselves.

    Both people of a pair are explained from the person's own label-group mean, by the network without dropout. If a person has
    counterparts in several other groups, each epoch draws one of them; people without any within tau are not in the last term.
    With lambda_cec = 0 nothing is drawn or explained: the paper's ablation "prediction and equalized odds".

    within: neighbours in everybody's own group (`match_within`), for lambda_excess: its term is the excess of the batch times the
    running mean of the excess (in units of FULL_WEIGHT_EXCESS, clipped to -1 .. 1), so that it is pulled to 0 from either side.
    strength: factor of both terms of explanations, which `floors` changes.
    """

    strength = 1.0

    def __init__(
        self, prediction: CrossEntropy, reference: Reference, matches: Matches, consistency: ConsistencyTerms,
        within: Matches | None = None,
    ) -> None:
        people = reference.people
        self.prediction, self.consistency = prediction, consistency
        self.groups, self.count = torch.from_numpy(people.groups), len(people.names)
        self.labels = torch.from_numpy(people.labels)
        self.x = torch.from_numpy(people.x.astype(np.float32))
        self.baselines = torch.from_numpy(reference.baselines.astype(np.float32)).flatten(0, 1)
        self.cell = self.labels * self.count + self.groups
        counterparts = np.full((len(people), self.count), -1)
        counterparts[matches.individual, matches.other] = matches.row
        self.counterparts = torch.from_numpy(counterparts)
        self.partner = self.counterparts.max(dim=1).values
        self.neighbour = torch.full((len(people),), -1) if within is None else torch.from_numpy(within.row)
        self.choose = bool(((counterparts >= 0).sum(axis=1) > 1).any())
        self.buffers = Buffers()
        self.excess, self.steps = 0.0, 0

    def epoch(self, generator: torch.Generator) -> None:
        if self.choose and self.consistency.explains:
            order = torch.rand(self.counterparts.shape, generator=generator).masked_fill(self.counterparts < 0, -1)
            self.partner = self.counterparts.gather(1, order.argmax(dim=1, keepdim=True))[:, 0]

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        loss = self.prediction(network, z, chosen)
        terms = self.consistency
        if terms.lambda_eo:
            gap = equalized_odds(z, self.labels[chosen], self.groups[chosen], self.count)
            loss = loss + terms.lambda_eo * gap
        self.steps += 1
        if terms.explains and self.steps % terms.every == 0:
            loss = loss + self.strength * terms.every * self.explained(network, chosen)
        return loss

    def explained(self, network: Perceptron, chosen: Tensor) -> Tensor:
        """Return lambda_cec score + lambda_excess excess, towards 0, of the chosen who have a counterpart."""
        terms = self.consistency
        if not terms.lambda_excess:
            return terms.lambda_cec * self.score(network, chosen)
        score, excess = self.scores(network, self.x[chosen], self.cell[chosen], self.partner[chosen], self.neighbour[chosen])
        self.excess += SMOOTHING * (float(excess.detach()) - self.excess)
        pull = max(-1.0, min(1.0, self.excess / FULL_WEIGHT_EXCESS))
        return terms.lambda_cec * score + terms.lambda_excess * pull * excess

    def score(self, network: Perceptron, chosen: Tensor) -> Tensor:
        """Return the mean squared score of the chosen who have a counterpart."""
        return self.scores(network, self.x[chosen], self.cell[chosen], self.partner[chosen], torch.full_like(chosen, -1))[0]

    def scores(
        self, network: Perceptron, x: Tensor, cell: Tensor, partner: Tensor, neighbour: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the mean squared score of people x (B, n) of cells (B,) with their partners' rows (B,), -1 for none; and the
        excess over the score with their neighbours (B,), of those who have both.
        """
        has_partner = partner >= 0
        if not bool(has_partner.all()):
            x, cell, partner, neighbour = x[has_partner], cell[has_partner], partner[has_partner], neighbour[has_partner]
        paired = neighbour >= 0
        baseline = self.baselines[cell]
        g = attributions(
            network.layers, torch.cat((x, self.x[partner], self.x[neighbour[paired]])),
            torch.cat((baseline, baseline, baseline[paired])), self.consistency.steps, self.buffers,
        )
        own, other, near = g.split((len(x), len(x), len(g) - 2 * len(x)))
        across = explanation_gap(torch.stack((own, other)))
        if not len(near):
            return across, torch.zeros(())
        return across, explanation_gap(torch.stack((own, other))[:, paired]) - explanation_gap(torch.stack((own[paired], near)))


def equalized_odds(z: Tensor, labels: Tensor, groups: Tensor, count: int) -> Tensor:
    """Return CEC's outcome term: (TPR_0 - TPR_1)^2 + (FPR_0 - FPR_1)^2 with soft rates, a group's mean p(1 | x) under a label.

    labels, groups: (B,); count: number G of groups. With more than two groups, each square is the mean over the pairs of
    groups that have rows with that label in the batch; a label without such a pair contributes 0 (gradient 0).
    Reference: CEC, "Training Objective".
    """
    cell = one_hot(labels * count + groups, 2 * count).to(z.dtype)
    rows = cell.sum(dim=0)
    rate = (((z[:, 1] - z[:, 0]).sigmoid() @ cell) / rows.clamp(min=1)).view(2, count)
    differences = _differences(count).to(z.dtype)
    defined = ((rows > 0).to(z.dtype).view(2, count) @ differences.abs() == 2).to(z.dtype)
    return ((rate @ differences).square() * (defined / defined.sum(dim=1, keepdim=True).clamp(min=1))).sum()


@cache
def _differences(count: int) -> Tensor:
    """Return D (G, pairs), such that v D holds the difference of each pair of the G values v."""
    i, j = torch.triu_indices(count, count, 1)
    return torch.eye(count)[:, i] - torch.eye(count)[:, j]


def explanation_gap(g: Tensor) -> Tensor:
    """Return CEC's procedural term: mean over pairs of || g / (|g| + eps) - g~ / (|g~| + eps) ||^2 / 4, within [0, 1].

    eps: EPSILON.   g: (2, P, n) attributions of the persons, and of their counterparts. The squares are summed without a root,
    which has no gradient at 0; the norm of a zero attribution has gradient 0, so that the attribution's own gradient is 1 / eps at
    most. No pairs give 0. Reference: CEC, definition 3 and "Training Objective".
    """
    unit = g / (torch.linalg.vector_norm(g, dim=2, keepdim=True) + EPSILON)
    return (unit[0] - unit[1]).square().sum() / (4 * max(1, g.shape[1]))
