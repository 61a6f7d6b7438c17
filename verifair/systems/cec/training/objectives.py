r"""The objectives of two baselines for equalized odds: Lagrange multipliers that are learnt, and an adversary.

Lagrangian: Cotter, Jiang, Gupta et al., "Optimization with non-differentiable constraints" (JMLR 2019), in the form that uses
soft rates for both players.

    min_theta max_{lambda >= 0}  BCE(theta) + \sum_{y, g != h} lambda_{y,g,h} (R_{y,g}(theta) - R_{y,h}(theta) - slack)

R_{1,g} is the group's soft true-positive rate, R_{0,g} its soft false-positive rate, both over the batch; cells without rows add 0.

Adversarial: Zhang, Lemoine and Mitchell, "Mitigating unwanted biases with adversarial learning" (AIES 2018).
The adversary predicts the group from [y, s, s y], s the predicted probability and y the true label. Knowing y, it learns from s
only what equalized odds forbid. (The paper's section 4 has [s, s y, s (1 - y)]. Without y itself, s y takes its role, and if
labels and groups are correlated the predictor is driven to equal shares instead: on Adult to gaps of 0.01 in shares, 0.35 in
rates.) The predictor's weights W follow

    grad_W L_P - proj_{grad_W L_A} grad_W L_P - alpha grad_W L_A :

no step helps the adversary. A loop of our own over the same network as all other methods, because fairlearn 0.15's projection
multiplies weight matrices row by row (`torch.inner`), which is no projection of the gradient unless a layer has one output.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from verifair.systems.cec.people import People
from verifair.training.objectives import Objective
from verifair.training.perceptron import Perceptron

SLACK = 0.01
"""Allowed difference of the rates of two groups."""
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
        """Take a projected ascent step on the violations of the batch that the step was taken on."""
        self.multipliers = (self.multipliers + self.ascent * self.violation).clamp(min=0)


def violations(z: Tensor, labels: Tensor, groups: Tensor, count: int, slack: float) -> Tensor:
    """Return (2, G, G) R_{y,g} - R_{y,h} - slack of the batch, 0 on the diagonal and where a group has no row of the label."""
    cell = one_hot(labels * count + groups, 2 * count).to(z.dtype)  # (B, 2 G)
    rows = cell.sum(dim=0)
    rate = (z.softmax(dim=1)[:, 1] @ cell / rows.clamp(min=1)).reshape(2, count)
    known = (rows > 0).reshape(2, count)
    defined = known[:, :, None] & known[:, None, :] & ~torch.eye(count, dtype=torch.bool)
    return torch.where(defined, rate[:, :, None] - rate[:, None, :] - slack, torch.zeros(()))


ALPHA = 1.0
"""Weight of the adversary's gradient (fairlearn's default)."""
RATE = 1e-2
"""The adversary's learning rate (Adam): it has 4 weights a group and must keep up with the network."""


class Adversarial(Objective):
    """adversary: logits of the groups, linear in the three inputs."""

    def __init__(self, people: People, *, alpha: float = ALPHA, rate: float = RATE) -> None:
        self.labels, self.groups = torch.from_numpy(people.labels), torch.from_numpy(people.groups)
        self.alpha = alpha
        self.adversary = nn.utils.skip_init(nn.Linear, 3, len(people.names))
        nn.init.zeros_(self.adversary.weight)
        nn.init.zeros_(self.adversary.bias)
        self.adam = torch.optim.Adam(self.adversary.parameters(), lr=rate)
        self.gradients: tuple[Tensor, ...] = ()

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        """Return the value of the predictor's loss, with the projected gradient in place of its own."""
        loss = cross_entropy(z, self.labels[chosen])
        adversary_loss = self._adversary_loss(z, chosen)
        parameters = network.parameters()
        own = torch.autograd.grad(loss, parameters, retain_graph=True)
        other = torch.autograd.grad(adversary_loss, parameters, retain_graph=True)
        self.gradients = torch.autograd.grad(adversary_loss, list(self.adversary.parameters()))
        gradient = projected(own, other, self.alpha)
        surrogate = torch.stack([(p * g).sum() for p, g in zip(parameters, gradient, strict=True)]).sum()
        return loss.detach() + surrogate - surrogate.detach()

    def after_step(self, network: Perceptron, chosen: Tensor) -> None:
        """Take the adversary's own step down its loss on the same batch."""
        for parameter, gradient in zip(self.adversary.parameters(), self.gradients, strict=True):
            parameter.grad = gradient
        self.adam.step()

    def _adversary_loss(self, z: Tensor, chosen: Tensor) -> Tensor:
        s, y = z.softmax(dim=1)[:, 1], self.labels[chosen].to(z.dtype)
        return cross_entropy(self.adversary(torch.stack([y, s, s * y], dim=1)), self.groups[chosen])


def projected(own: Sequence[Tensor], other: Sequence[Tensor], alpha: float) -> list[Tensor]:
    """Return own - proj_other own - alpha other, all parameters taken as one vector; own where other is 0."""
    inner = torch.stack([(a * b).sum() for a, b in zip(own, other, strict=True)]).sum()
    square = torch.stack([(b * b).sum() for b in other]).sum()
    share = torch.where(square > 0, inner / square.clamp(min=torch.finfo(square.dtype).tiny), torch.zeros(()))
    return [a - (share + alpha) * b for a, b in zip(own, other, strict=True)]
