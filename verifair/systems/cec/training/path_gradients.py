r"""Integrated gradients that can be trained through, with first-order autograd alone.

The gradient of a ReLU network is a product of weights and masks (which neurons are on), and the masks have no derivative. For a
path of T points, hidden layers 1 ... N with masks D_k (T, n_k) and the score's weights w,

    IG = (x - b) * (s W_1),   s = 1/T \sum_t D_1[t] * ((... (D_N[t] @ (w W_N)) * D_{N-1}[t] ...) @ W_2),

which is a polynomial in the weights. It is fast because the first layer's pre-activations are affine along a path, so the steps
need no matrix product there; w is folded into W_N once, so the topmost factor is a mask and needs no derivative; W_1 comes after
the sum over steps; and memory that a layer no longer needs is reused.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

Layers = tuple[tuple[Tensor, Tensor], ...]


class Buffers:
    """Memory for the points of all paths, reused from one training step to the next: fresh pages cost as much as the arithmetic.

    Only for one graph at a time: its backward has to come before the next attributions with the same buffers.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Tensor] = {}

    def take(self, name: str, layer: int, template: Tensor, *shape: int) -> Tensor:
        """Return an uninitialised tensor of this shape and of the type of `template`."""
        size = math.prod(shape)
        memory = self._kept.get((name, layer))
        if memory is None or len(memory) < size or memory.dtype != template.dtype:
            memory = self._kept[name, layer] = template.new_empty(size)
        return memory[:size].view(shape)


def attributions(layers: Layers, x: Tensor, baseline: Tensor, steps: int, buffers: Buffers | None = None) -> Tensor:
    """Return IG (P, n_0) of f = logit_1 - logit_0 at x (P, n_0) from baseline (P, n_0), differentiable in the weights.

    layers: ((W, b), ...), ReLU in between, two logits.   steps: T of the sum over alpha = (t - 1/2) / T, t = 1 ... T.
    buffers: memory to use again, None for fresh memory.
    The derivative is that of autograd's double backward: a ReLU's slope is 0 at 0, and a change of the masks counts for nothing.
    Reference: CEC, "Integrated Gradients Background" and algorithm 2.
    """
    first, *later = layers[:-1]
    score = layers[-1][0][1] - layers[-1][0][0]
    masks, spent = _masks(layers[:-1], x, baseline, steps, buffers or Buffers())
    if later:
        matrices = [weight for weight, _ in later[:-1]] + [later[-1][0] * score[:, None]]
        pulled = _Pulled.apply(masks, spent, *matrices)
    else:
        pulled = masks[0].mean(dim=1) * score
    return (x - baseline) * (pulled @ first[0])


def _masks(hidden: Layers, x: Tensor, baseline: Tensor, steps: int, buffers: Buffers) -> tuple[list[Tensor], list[Tensor]]:
    """For each hidden layer return (P, T, n): 1 where a neuron is on, else 0; and for each but the last a spare tensor."""
    (weight, bias), *later = ((weight.detach(), bias.detach()) for weight, bias in hidden)
    alpha = (torch.arange(steps, dtype=x.dtype) + 0.5) / steps
    start, direction = torch.addmm(bias, baseline, weight.T), (x - baseline) @ weight.T
    z = buffers.take("z", 0, x, len(x), steps, len(bias))
    torch.addcmul(start[:, None], alpha[:, None], direction[:, None], out=z)
    masks, spent = [], []
    for k, (weight, bias) in enumerate(later):
        masks.append(torch.gt(z, 0, out=buffers.take("mask", k, z, *z.shape)))
        spent.append(z)
        z = buffers.take("z", k + 1, z, len(x), steps, len(bias))
        torch.addmm(bias, spent[-1].relu_().flatten(0, 1), weight.T, out=z.flatten(0, 1))
    return [*masks, torch.gt(z, 0, out=z)], spent


class _Pulled(torch.autograd.Function):  # type: ignore[misc]
    """s of the module's formula, (P, n_1), as a function of w W_N and W_{N-1} ... W_2 (given from W_2 up)."""

    @staticmethod
    def forward(ctx: Any, masks: list[Tensor], spent: list[Tensor], *matrices: Tensor) -> Tensor:
        pulled = [masks[-1]]
        for matrix, mask, buffer in zip(reversed(matrices), reversed(masks[:-1]), reversed(spent), strict=True):
            torch.mm(pulled[-1].flatten(0, 1), matrix, out=buffer.flatten(0, 1))
            pulled.append(buffer.mul_(mask))
        ctx.save_for_backward(*matrices)
        ctx.masks, ctx.pulled = masks, pulled
        return pulled[-1].mean(dim=1)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor | None, ...]:
        matrices, masks, pulled = ctx.saved_tensors, ctx.masks, ctx.pulled
        gradients = []
        gradient = torch.mul(masks[0], (derivative / masks[0].shape[1])[:, None], out=pulled[-1])  # reused: served the mean only
        for k, matrix in enumerate(matrices):
            gradient = gradient.flatten(0, 1)
            gradients.append(pulled[-2 - k].flatten(0, 1).T @ gradient)
            if k + 1 < len(matrices):
                gradient = (gradient @ matrix.T).view_as(masks[k + 1]).mul_(masks[k + 1])
        return None, None, *gradients
