r"""The expected margin of a randomised choice among networks is one network: block-diagonal, with weighted outputs.

    z(x) = \sum_t p_t z_t(x):   W_1 = [W_1^1; ...; W_1^T],   W_k = diag(W_k^1, ..., W_k^T),   W_N = [p_1 W_N^1, ..., p_T W_N^T].

Integrated gradients are linear in the function, so those of z are the expected attributions of the randomised classifier.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import block_diag

from encoders.network import Array, Layer, Link, Network


def mixture(networks: Sequence[Network], weights: Array) -> Network:
    """The network of sum_t weights_t logits_t, for networks of the same depth, inputs and outputs.

    Raises ValueError for networks that do not fit. Its logits are the weighted sum up to the rounding of float64.
    """
    first = networks[0]
    if any((n.inputs, n.outputs, len(n.layers)) != (first.inputs, first.outputs, len(first.layers)) for n in networks):
        raise ValueError("a mixture needs networks of the same depth with the same inputs and outputs")
    layers = []
    for k in range(len(first.layers)):
        parts = [network.layers[k] for network in networks]
        last = k == len(first.layers) - 1
        matrices = [p * part.weight if last else part.weight for p, part in zip(weights, parts, strict=True)]
        if last and k > 0:
            weight = np.hstack(matrices)
        elif k == 0:
            weight = np.sum(matrices, axis=0) if last else np.vstack(matrices)
        else:
            weight = block_diag(*matrices)
        bias = np.tensordot(weights, [part.bias for part in parts], 1) if last else np.concatenate([part.bias for part in parts])
        slope = np.ones(len(bias)) if last else np.concatenate([part.slope for part in parts])
        layers.append(Layer(weight=weight, bias=bias, slope=slope))
    return Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256="")


def constant(like: Network, positive: bool) -> Network:
    """A network of the same shape that decides everybody alike: logits (0, 1) or (1, 0), nothing depends on the input."""
    layers = [Layer(weight=0 * layer.weight, bias=0 * layer.bias, slope=layer.slope) for layer in like.layers]
    last = layers[-1]
    bias = np.zeros(like.outputs)
    bias[int(positive)] = 1.0
    return Network(
        layers=(*layers[:-1], Layer(weight=last.weight, bias=bias, slope=last.slope)), link=Link.IDENTITY, source_sha256=""
    )
