r"""Equalized odds as constraints with learned multipliers: Cotter, Jiang, Gupta et al., "Optimization with non-differentiable
constraints" (JMLR 2019), in the form that uses soft rates for both players.

    min_theta max_{lambda >= 0}  BCE(theta) + \sum_{y, g != h} lambda_{y,g,h} (R_{y,g}(theta) - R_{y,h}(theta) - slack)

R_{1,g} is the group's soft true-positive rate, R_{0,g} its soft false-positive rate, both over the batch; cells without rows add 0.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from verifair.systems.cec.people import People
from verifair.training.objectives import Objective
from verifair.training.perceptron import Perceptron

SLACK = 0.01
"""How far the rates of two groups may lie apart."""
ASCENT = 0.05
"""Step of the multipliers: 100 batches at a gap of 0.2 raise one to 1, the weight of the cross-entropy."""


class Lagrangian(Objective):
    """multipliers: (2, G, G) for each label and ordered pair of groups."""

    def __init__(self, people: People, *, slack: float = SLACK, ascent: float = ASCENT) -> None:
        self.labels, self.groups = torch.from_numpy(people.labels), torch.from_numpy(people.groups)
        self.slack, self.ascent = slack, ascent
        self.multipliers = torch.zeros(2, len(people.names), len(people.names))
        self.violation = torch.zeros_like(self.multipliers)

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        violation = violations(z, self.labels[chosen], self.groups[chosen], len(self.multipliers[0]), self.slack)
        self.violation = violation.detach()
        return cross_entropy(z, self.labels[chosen]) + (self.multipliers * violation).sum()

    def after_step(self, network: Perceptron, chosen: Tensor) -> None:
        """Projected ascent on the violations of the batch that the step was taken on."""
        self.multipliers = (self.multipliers + self.ascent * self.violation).clamp(min=0)


def violations(z: Tensor, labels: Tensor, groups: Tensor, count: int, slack: float) -> Tensor:
    """(2, G, G) R_{y,g} - R_{y,h} - slack of the batch, 0 on the diagonal and where a group has no row of the label."""
    cell = torch.nn.functional.one_hot(labels * count + groups, 2 * count).to(z.dtype)  # (B, 2 G)
    rows = cell.sum(dim=0)
    rate = (z.softmax(dim=1)[:, 1] @ cell / rows.clamp(min=1)).reshape(2, count)
    known = (rows > 0).reshape(2, count)
    both = known[:, :, None] & known[:, None, :] & ~torch.eye(count, dtype=torch.bool)
    return torch.where(both, rate[:, :, None] - rate[:, None, :] - slack, torch.zeros(()))
