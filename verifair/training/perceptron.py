"""The network in training: weights as torch tensors, and the generator of every random draw."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from verifair.training.onnx_writer import Weights

OUTPUTS = 2


class Perceptron:
    """A ReLU network: layers ((W (m, n), b (m,)), ...), ReLU in between.

    generator: of every random draw of a training run, in the order in which they are made.
    """

    def __init__(self, layers: tuple[tuple[Tensor, Tensor], ...], generator: torch.Generator) -> None:
        self.layers = layers
        self.generator = generator

    @classmethod
    def drawn(cls, inputs: int, hidden: tuple[int, ...], generator: torch.Generator) -> Perceptron:
        """Draw a network of two logits: Glorot-uniform weights and zero biases."""
        layers = []
        for fan_in, fan_out in itertools.pairwise((inputs, *hidden, OUTPUTS)):
            weight, bias = torch.empty((fan_out, fan_in)), torch.zeros(fan_out)
            nn.init.xavier_uniform_(weight, generator=generator)
            layers.append((weight.requires_grad_(), bias.requires_grad_()))
        return cls(tuple(layers), generator)

    @classmethod
    def of(cls, weights: Weights, generator: torch.Generator) -> Perceptron:
        """Return an existing network with copied weights."""
        return cls(
            tuple((torch.tensor(weight).requires_grad_(), torch.tensor(bias).requires_grad_()) for weight, bias in weights),
            generator,
        )

    def __call__(self, x: Tensor, dropout: float = 0.0) -> Tensor:
        """Return logits (B, m) of x (B, n). dropout: share of each hidden layer's neurons left out, drawn only when it is not 0;
        the others are scaled by 1 / (1 - dropout)."""
        z = linear(x, *self.layers[0])
        for weight, bias in self.layers[1:]:
            z = z.relu()
            if dropout:
                mask = torch.rand(z.shape, generator=self.generator) >= dropout
                z = z * mask.mul(1 / (1 - dropout))
            z = linear(z, weight, bias)
        return z

    def parameters(self) -> list[Tensor]:
        """Return weights and biases, layer by layer."""
        return [tensor for layer in self.layers for tensor in layer]

    def weights(self) -> Weights:
        """Return a copy for NumPy."""
        return tuple((weight.detach().numpy().copy(), bias.detach().numpy().copy()) for weight, bias in self.layers)
