"""CEC training: predict, equalise the error rates of the groups, and decide counterparts for the same reasons.

Reference: CEC, "Training Objective" and algorithm 2.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from verifair.systems.cec.matching import Matches, Reference
from verifair.training.losses import equalized_odds, explanation_gap
from verifair.training.objectives import CrossEntropy, Objective
from verifair.training.path_gradients import Rooms, attributions
from verifair.training.perceptron import Perceptron
from verifair.training.settings import Consistency


class Cec(Objective):
    """CE + lambda_eo equalized_odds + lambda_cec explanation_gap on the people of a reference, matched among themselves.

    Both of a pair are explained from the person's own label-group mean, by the network without dropout. Where a person has
    counterparts in several other groups, each epoch draws one of them; who has none within tau takes no part in the last term.
    With lambda_cec = 0 nothing is drawn and nothing explained: the paper's ablation "prediction and equalized odds".
    """

    def __init__(self, prediction: CrossEntropy, reference: Reference, matches: Matches, consistency: Consistency) -> None:
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
        self.rooms = Rooms()
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
        """Mean squared score of the chosen who have a counterpart."""
        if not self.everybody:
            chosen = chosen[self.partner[chosen] >= 0]
        x = self.x[torch.cat((chosen, self.partner[chosen]))]
        baseline = self.baselines[self.cell[chosen].repeat(2)]
        g = attributions(network.layers, x, baseline, self.consistency.steps, self.rooms)
        return explanation_gap(g.unflatten(0, (2, len(chosen))))
