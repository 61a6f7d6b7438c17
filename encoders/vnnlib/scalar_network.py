"""A conjunction of linear constraints over several networks as one network with one output: satisfied exactly where it is <= 0.

    inputs u                    the free inputs; network j sees  x_j = u[own_j] + u[shift_j]  in each of its columns
    networks side by side       and the inputs that constraints mention passed through (neurons of slope 1)
    t = A (logits, inputs) + c  a row for each constraint, t <= 0 where it is met
    max(t_1, ..., t_K)          as a tree of  max(a, b) = b + relu(a - b)

Every weight is a weight of a network, a coefficient of a constraint, or -1, 0, 1: nothing is rounded, so the engine's proofs about
this network are proofs about the constraints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from encoders.arrays import Array, Integers
from encoders.model import Link
from encoders.network import Layer, Network


def scalar_network(
    networks: Sequence[Network], own: Sequence[Integers], shift: Sequence[Integers], passed: Integers, rows: Array, constants: Array
) -> Network:
    """u (n,) -> max over k of  rows[k] @ (logits of all networks, u[passed]) + constants[k].

    own, shift: for each network (n_j,) the position in u of each of its inputs, and of what is added to it (-1: nothing). No
    position may occur twice in one network: weights would have to be added up.
    """
    width = 1 + max(int(index.max(initial=-1)) for index in (*own, *shift, passed))
    depth = max(len(network.layers) for network in networks)
    layers = [_side_by_side(networks, k, len(passed)) for k in range(depth)]
    selection = np.concatenate([*(_selection(o, s, width) for o, s in zip(own, shift, strict=True)), np.eye(width)[passed]])
    first = layers[0]
    layers[0] = Layer(weight=first.weight @ selection, bias=first.bias, slope=first.slope)  # a sum of one term each: exact
    layers.append(_affine(rows, constants))
    return Network(layers=(*layers, *_maximum(len(rows))), link=Link.IDENTITY, source_sha256="")


def _side_by_side(networks: Sequence[Network], k: int, passed: int) -> Layer:
    """Layer k of every network, identity where one has ended, and `passed` inputs handed on."""
    blocks = [network.layers[k] if k < len(network.layers) else _handed_on(network.outputs) for network in networks]
    blocks.append(_handed_on(passed))
    return Layer(
        weight=np.asarray(scipy.linalg.block_diag(*(block.weight for block in blocks)), dtype=np.float64),
        bias=np.concatenate([block.bias for block in blocks]),
        slope=np.concatenate([block.slope for block in blocks]),
    )


def _handed_on(count: int) -> Layer:
    return _affine(np.eye(count), np.zeros(count))


def _affine(weight: Array, bias: Array) -> Layer:
    return Layer(weight=weight, bias=bias, slope=np.ones(len(bias)))


def _selection(own: Integers, shift: Integers, width: int) -> Array:
    """(n_j, n): x_j = selection @ u."""
    out = np.zeros((len(own), width))
    index = np.arange(len(own))
    out[index, own] = 1.0
    out[index[shift >= 0], shift[shift >= 0]] = 1.0
    return out


def _maximum(count: int) -> list[Layer]:
    """Return layers for max(t_1 ... t_count), pair by pair; none for a single t."""
    layers: list[Layer] = []
    next_weight = np.eye(count)  # what the last layer's values become: (values now, values of the last layer)
    while count > 1:
        pairs, odd = divmod(count, 2)
        remaining = pairs + odd
        weight, slope = np.zeros((pairs + remaining, count)), np.zeros(pairs + remaining)
        index = np.arange(pairs)
        weight[index, 2 * index], weight[index, 2 * index + 1] = 1.0, -1.0
        weight[pairs + index, 2 * index + 1] = 1.0
        if odd:
            weight[-1, -1] = 1.0
        slope[pairs:] = 1.0
        layers.append(Layer(weight=weight @ next_weight, bias=np.zeros(len(slope)), slope=slope))
        count, next_weight = remaining, np.concatenate([np.eye(remaining, pairs), np.eye(remaining)], axis=1)
    return [*layers, _affine(next_weight, np.zeros(1))] if layers else []
