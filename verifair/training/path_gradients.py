"""Integrated gradients that can be trained through, by first-order autograd alone.

The gradient of a ReLU network is a product of weights and of masks (which neurons are on), and the masks have no derivative. So
the masks of all points of all paths are found first, without autograd, and the attribution is then an explicit product in which
autograd sees only the weights. Three things keep it small. In the first layer the pre-activations are affine along a path, so
that they need no product of matrices for the steps. The score's weights are the same at every point, and are folded into the
last hidden layer's. The product with the input layer's weights comes after the sum over the steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

Layers = tuple[tuple[Tensor, Tensor], ...]


def attributions(layers: Layers, x: Tensor, baseline: Tensor, steps: int) -> Tensor:
    """IG (P, n_0) of f = logit_1 - logit_0 at x (P, n_0) from baseline (P, n_0), differentiable in the weights.

    layers: ((W, b), ...), ReLU in between, two logits.   steps: T of the Riemann sum over alpha = (t - 1/2) / T.
    The gradient is that of autograd's double backward: at a kink a ReLU's slope is 0.   Reference: CEC, "Training Objective".
    """
    masks = _masks(layers[:-1], x, baseline, steps)
    score = layers[-1][0][1] - layers[-1][0][0]
    if len(masks) == 1:
        summed = masks[0].mean(dim=1) * score
    else:
        pulled, scale = masks[-1], score
        for (weight, _), mask in zip(reversed(layers[1:-1]), reversed(masks[:-1]), strict=True):
            pulled = (pulled.flatten(0, 1) @ (weight * scale[:, None])).view_as(mask) * mask
            scale = torch.ones(len(weight.T), dtype=x.dtype)
        summed = pulled.mean(dim=1)
    return (x - baseline) * (summed @ layers[0][0])


def _masks(hidden: Layers, x: Tensor, baseline: Tensor, steps: int) -> list[Tensor]:
    """For each hidden layer (P, T, n): 1 where the neuron is on, else 0. Without autograd."""
    (weight, bias), *above = ((weight.detach(), bias.detach()) for weight, bias in hidden)
    alpha = (torch.arange(steps, dtype=x.dtype) + 0.5) / steps
    start, direction = torch.addmm(bias, baseline, weight.T), (x - baseline) @ weight.T
    z = torch.addcmul(start[:, None], alpha[:, None], direction[:, None])
    masks = [torch.gt(z, 0, out=torch.empty_like(z))]
    for weight, bias in above:
        z = torch.addmm(bias, z.relu_().flatten(0, 1), weight.T).view(len(x), steps, -1)
        masks.append(torch.gt(z, 0, out=torch.empty_like(z)))
    return masks
