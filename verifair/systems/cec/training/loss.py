"""CEC training: predict, equalise the error rates of the groups, and decide counterparts for the same reasons.

Reference: CEC, "Training Objective" and algorithm 2.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from verifair.systems.cec.matching import Matches, Reference
from verifair.systems.cec.training.path_gradients import Buffers, attributions
from verifair.systems.cec.training.settings import ConsistencyTerms
from verifair.training.objectives import CrossEntropy, Objective
from verifair.training.perceptron import Perceptron


class CecObjective(Objective):
    """CE + lambda_eo equalized_odds + lambda_cec explanation_gap on the people of a reference, matched among themselves.

    Both of a pair are explained from the person's own label-group mean, by the network without dropout. Where a person has
    counterparts in several other groups, each epoch draws one of them; who has none within tau takes no part in the last term.
    With lambda_cec = 0 nothing is drawn and nothing explained: the paper's ablation "prediction and equalized odds".
    """

    def __init__(self, prediction: CrossEntropy, reference: Reference, matches: Matches, consistency: ConsistencyTerms) -> None:
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
        self.choose = bool(((counterparts >= 0).sum(axis=1) > 1).any())
        self.buffers = Buffers()
        self.everybody = bool((counterparts >= 0).any(axis=1).all())

    def epoch(self, generator: torch.Generator) -> None:
        if self.choose and self.consistency.lambda_cec:
            order = torch.rand(self.counterparts.shape, generator=generator).masked_fill(self.counterparts < 0, -1)
            self.partner = self.counterparts.gather(1, order.argmax(dim=1, keepdim=True))[:, 0]

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        loss = self.prediction(network, z, chosen)
        if self.consistency.lambda_eo:
            gap = equalized_odds(z, self.labels[chosen], self.groups[chosen], self.count)
            loss = loss + self.consistency.lambda_eo * gap
        if self.consistency.lambda_cec:
            loss = loss + self.consistency.lambda_cec * self.score(network, chosen)
        return loss

    def score(self, network: Perceptron, chosen: Tensor) -> Tensor:
        """Return the mean squared score of the chosen who have a counterpart."""
        if not self.everybody:
            chosen = chosen[self.partner[chosen] >= 0]
        x = self.x[torch.cat((chosen, self.partner[chosen]))]
        baseline = self.baselines[self.cell[chosen].repeat(2)]
        g = attributions(network.layers, x, baseline, self.consistency.steps, self.buffers)
        return explanation_gap(g.unflatten(0, (2, len(chosen))))


def equalized_odds(z: Tensor, labels: Tensor, groups: Tensor, count: int) -> Tensor:
    """Return CEC's outcome term: (TPR_0 - TPR_1)^2 + (FPR_0 - FPR_1)^2 with soft rates, a group's mean p(1 | x) under a label.

    labels, groups: (B,); count: number G of groups. With more than two groups, each square is the mean over the pairs of
    groups that have rows with that label in the batch; a label without such a pair contributes 0 (gradient 0).
    Reference: CEC, "Training Objective".
    """
    cell = one_hot(labels * count + groups, 2 * count).to(z.dtype)
    rows = cell.sum(dim=0)
    rate = (((z[:, 1] - z[:, 0]).sigmoid() @ cell) / rows.clamp(min=1)).view(2, count)
    between = _differences(count).to(z.dtype)
    both = ((rows > 0).to(z.dtype).view(2, count) @ between.abs() == 2).to(z.dtype)
    return ((rate @ between).square() * (both / both.sum(dim=1, keepdim=True).clamp(min=1))).sum()


@cache
def _differences(count: int) -> Tensor:
    """Return (G, pairs): a row vector of G values times it is their differences, one for each pair."""
    one, other = torch.triu_indices(count, count, 1)
    return torch.eye(count)[:, one] - torch.eye(count)[:, other]


def explanation_gap(g: Tensor, eps: float = 1e-8) -> Tensor:
    """Return CEC's procedural term: mean over pairs of || g / (|g| + eps) - g~ / (|g~| + eps) ||^2 / 4, within [0, 1].

    g: (2, P, n) attributions of the persons, and of their counterparts. The square is summed as it is, as a root has no
    gradient at 0; the norm of an attribution of 0 has gradient 0, so that the attribution's own is 1 / eps at most. No
    pairs give 0. Reference: CEC, definition 3 and "Training Objective".
    """
    unit = g / (torch.linalg.vector_norm(g, dim=2, keepdim=True) + eps)
    return (unit[0] - unit[1]).square().sum() / (4 * max(1, g.shape[1]))
