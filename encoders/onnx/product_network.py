"""Two copies of a network as one network, and any network as a plain ONNX file: for verifiers that take one model only.

The product network of a twin reads

    u = (x,  own columns of x',  shifts)        x' = x with its own columns in place, and with shifts added

and outputs the given rows over the margins g(x), g(x'):

    first layer     [ W                0        0       ]     (W: the network's own first weights)
                    [ W without own    W own    W shift ]
    further ones    [ W  0 ]                                  last, where rows are wanted:  rows over both copies' logits
                    [ 0  W ]

Every weight is a weight of the network, its negative, or a zero, so nothing is rounded: the product at u *is* the pair of
networks at x and x', in exact arithmetic. A float32 runtime may add in another order and differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from encoders.arrays import Array, Integers
from encoders.model import Link
from encoders.network import Layer, Network

OPSET, IR_VERSION = 13, 7
"""Versions old enough for every verifier: Gemm, Relu, LeakyRelu and PRelu have not changed since."""

NONE = np.empty(0, dtype=np.int64)


def product_network(
    network: Network, *, own: Integers, shift: Integers = NONE, margin: Array | None = None, rows: Array | None = None
) -> Network:
    """Return the network of x and x' (see above); its outputs are the logits of both copies, one after the other.

    own: (k,) input columns in which x' has values of its own, inputs n .. n + k - 1 of the product.
    shift: (s,) further columns in which x' is x plus an input, n + k .. n + k + s - 1 of the product.
    margin (n_N,) and rows (R, 2), given together: the R outputs are rows @ (g, g') instead, g = margin . logits.
    """
    network.require_piecewise_linear("the product network")
    first, *others = network.layers
    second = first.weight.copy()
    second[:, own] = 0.0
    blank = np.zeros((len(first.bias), len(own) + len(shift)))
    weight: Array = np.block([[first.weight, blank], [second, first.weight[:, own], first.weight[:, shift]]]).astype(np.float64)
    layers = [Layer(weight=weight, bias=np.tile(first.bias, 2), slope=np.tile(first.slope, 2))]
    for layer in others:
        weight = np.kron(np.eye(2), layer.weight).astype(np.float64)
        layers.append(Layer(weight=weight, bias=np.tile(layer.bias, 2), slope=np.tile(layer.slope, 2)))
    if rows is not None and margin is not None:
        last = np.kron(rows, margin).astype(np.float64)
        layers.append(Layer(weight=last, bias=np.zeros(len(last)), slope=np.ones(len(last))))
    return Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256=network.source_sha256, rounded=network.rounded)


def is_single(network: Network) -> bool:
    """Return True if every weight, bias and slope is a float32 number; else (constants folded by the reader) files need float64."""
    values = [part for layer in network.layers for part in (layer.weight, layer.bias, layer.slope)]
    with np.errstate(over="ignore", under="ignore"):
        return all((part.astype(np.float32).astype(np.float64) == part).all() for part in values)


def network_model(network: Network, metadata: Mapping[str, str]) -> onnx.ModelProto:
    """Return the network up to the logits as Gemm, Relu, Gemm, ...: input x [1, n], output y [1, m]; its link is left out.

    Float32 where that holds every weight, else float64: no weight is rounded. LeakyRelu where all neurons of a layer have one
    slope, PRelu where slopes differ; a neuron without a kink beside ReLUs is written as relu(a) - relu(-a), which every
    verifier reads. metadata goes into metadata_props, sorted by key.
    """
    single = is_single(network)
    dtype = np.float32 if single else np.float64
    nodes, stored, value = [], [], "x"
    for k, layer in enumerate(_plain(network), start=1):
        last = k == len(network.layers)
        affine = "y" if last else f"affine_{k}"
        stored += [
            numpy_helper.from_array(layer.weight.astype(dtype), f"weight_{k}"),
            numpy_helper.from_array(layer.bias.astype(dtype), f"bias_{k}"),
        ]
        nodes.append(helper.make_node("Gemm", [value, f"weight_{k}", f"bias_{k}"], [affine], name=f"gemm_{k}", transB=1))
        value = affine
        if not layer.linear:
            value = f"active_{k}"
            nodes.append(_activation(layer, affine, value, k, single))
            if nodes[-1].op_type == "PRelu":
                stored.append(numpy_helper.from_array(layer.slope.astype(dtype), f"slope_{k}"))
    kind = TensorProto.FLOAT if single else TensorProto.DOUBLE
    graph = helper.make_graph(
        nodes, "verifair", [helper.make_tensor_value_info("x", kind, [1, network.inputs])],
        [helper.make_tensor_value_info("y", kind, [1, network.outputs])], initializer=stored,
    )
    model = helper.make_model(
        graph, producer_name="verifair", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    helper.set_model_props(model, dict(sorted(metadata.items())))
    onnx.checker.check_model(model, full_check=True)
    return model


def _activation(layer: Layer, affine: str, value: str, k: int, single: bool) -> onnx.NodeProto:
    slope = float(layer.slope[0])
    if (layer.slope == 0).all():
        return helper.make_node("Relu", [affine], [value], name=f"relu_{k}")
    if single and (layer.slope == slope).all():  # its slope is a float32 attribute
        return helper.make_node("LeakyRelu", [affine], [value], name=f"leaky_{k}", alpha=slope)
    return helper.make_node("PRelu", [affine, f"slope_{k}"], [value], name=f"prelu_{k}")


def _plain(network: Network) -> list[Layer]:
    """Return layers with the same function, none of which has only ReLU (slope 0) and identity (slope 1) neurons, of both kinds."""
    layers = list(network.layers)
    for k, layer in enumerate(layers[:-1]):
        mixed = (layer.slope == 1).any() and (layer.slope == 0).any() and np.isin(layer.slope, (0.0, 1.0)).all()
        if not mixed:
            continue
        identity = np.flatnonzero(layer.slope == 1)  # a = relu(a) - relu(-a), exactly
        above = layers[k + 1]
        layers[k] = Layer(
            weight=np.concatenate([layer.weight, -layer.weight[identity]]),
            bias=np.concatenate([layer.bias, -layer.bias[identity]]), slope=np.zeros(len(layer.slope) + len(identity)),
        )
        layers[k + 1] = Layer(
            weight=np.concatenate([above.weight, -above.weight[:, identity]], axis=1), bias=above.bias, slope=above.slope
        )
    return layers
