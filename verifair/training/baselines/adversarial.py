r"""Adversarial debiasing for equalized odds: Zhang, Lemoine and Mitchell, "Mitigating unwanted biases with adversarial learning"
(AIES 2018).

The adversary predicts the group from [y, s, s y], s the predicted probability and y the true label. Knowing y, it learns from s
only what equalized odds forbid. (The paper's section 4 has [s, s y, s (1 - y)]: without y itself, s y stands for it, and where
labels and groups go together the predictor is driven to equal shares instead: on Adult to gaps of 0.01 in shares, 0.35 in rates.)
The predictor's weights W follow

    grad_W L_P - proj_{grad_W L_A} grad_W L_P - alpha grad_W L_A :

no step helps the adversary. A loop of our own over the same network as all other methods, because fairlearn 0.15's projection
multiplies weight matrices row by row (`torch.inner`), which is no projection of the gradient unless a layer has one output.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from verifair.systems.cec.people import People
from verifair.training.objectives import Objective
from verifair.training.perceptron import Perceptron

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
        """The value of the predictor's loss, with the projected gradient in place of its own."""
        loss = cross_entropy(z, self.labels[chosen])
        against = self._adversary_loss(z, chosen)
        parameters = network.parameters()
        own = torch.autograd.grad(loss, parameters, retain_graph=True)
        other = torch.autograd.grad(against, parameters, retain_graph=True)
        self.gradients = torch.autograd.grad(against, list(self.adversary.parameters()))
        wanted = projected(own, other, self.alpha)
        surrogate = torch.stack([(p * g).sum() for p, g in zip(parameters, wanted, strict=True)]).sum()
        return loss.detach() + surrogate - surrogate.detach()

    def after_step(self, network: Perceptron, chosen: Tensor) -> None:
        """The adversary's own step down its loss on the same batch."""
        for parameter, gradient in zip(self.adversary.parameters(), self.gradients, strict=True):
            parameter.grad = gradient
        self.adam.step()

    def _adversary_loss(self, z: Tensor, chosen: Tensor) -> Tensor:
        s, y = z.softmax(dim=1)[:, 1], self.labels[chosen].to(z.dtype)
        return cross_entropy(self.adversary(torch.stack([y, s, s * y], dim=1)), self.groups[chosen])


def projected(own: Sequence[Tensor], other: Sequence[Tensor], alpha: float) -> list[Tensor]:
    """own - proj_other own - alpha other, all parameters taken as one vector; own where other is 0."""
    inner = torch.stack([(a * b).sum() for a, b in zip(own, other, strict=True)]).sum()
    square = torch.stack([(b * b).sum() for b in other]).sum()
    share = torch.where(square > 0, inner / square.clamp(min=torch.finfo(square.dtype).tiny), torch.zeros(()))
    return [a - (share + alpha) * b for a, b in zip(own, other, strict=True)]
