"""Every layer of an imported network against onnxruntime's values of the stored graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from encoders.curves import Curve
from encoders.errors import ModelError
from encoders.feed import Feed
from encoders.network import Array, activate, affine
from encoders.onnx.chain import ChainLink, Neurons
from encoders.onnx.file import LogitsModel
from encoders.onnx.runtime import open_session
from encoders.onnx.tensor import Tensor

_UNIT = 2.0**-24      # unit roundoff of float32
_TINY = 1e-35         # what denormals flushed to zero may add
MOST_SHOWN = 1000     # numbers of a point in a message
CURVE = 2e-6
"""What a runtime's float32 sigmoid or tanh may be off by: onnxruntime 1.2x evaluates rational approximations, and over 3 million
numbers its tanh was off by at most 3.1e-7, its sigmoid by 1.7e-7."""


def check_layers(path: Path, logits: LogitsModel, neurons: Neurons, chain: Sequence[ChainLink], feeds: Sequence[Feed],
                  x: npt.NDArray[np.float32]) -> None:
    """Compare every layer with onnxruntime, from the runtime's own values below it.

    So the allowance stays that of one layer however deep the network: K * 2^-24 * (sum of |contributions|), with K the
    number of roundings in one neuron (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). Neurons that
    no tensor of the stored graph holds (of a maximum, say) are computed here, and the allowance that the runtime's rounding of
    what goes into them calls for goes on to the layers that read them; what such nodes give in the end is compared as well.
    """
    reading = neurons.reading
    named = [t for s in reading.sources for t in (s.before, s.after) if t is not None]
    names = list(dict.fromkeys([logits.logits, *named, *reading.rewritten]))
    found = dict(zip(names, open_session(path, logits.model, names, feeds).run(x, names), strict=True))
    values = np.full((len(x), len(neurons.source)), np.nan)
    slack = np.zeros_like(values)
    values[:, : len(neurons.place)] = x
    for k, link in enumerate(chain, start=1):
        here, allowed = _layer_by_hand(link, values[:, link.inputs], slack[:, link.inputs])
        if not len(link.neurons):
            compare(path, x, here, found[logits.logits], allowed, [logits.logits] * here.shape[1])
            break
        top = activate(here, link.layer)
        own = np.flatnonzero(neurons.level[link.neurons] == k)
        for s in np.unique(neurons.source[link.neurons[own]]):
            at, source = np.flatnonzero(neurons.source[link.neurons] == s), reading.sources[s]
            all_of_it = slice(int(neurons.first[s]), int(neurons.first[s]) + len(source.slope))
            if source.before is None or source.after is None:
                values[:, all_of_it], slack[:, all_of_it] = top[:, at], allowed[:, at]
                continue
            entering, leaving = found[source.before], found[source.after]
            compare(path, x, here[:, at], entering, allowed[:, at], [source.node] * len(at))
            here[:, at] = entering
            expected = activate(here, link.layer)[:, at]
            curved = CURVE if source.curve != Curve.BENT else 0.0
            compare(path, x, expected, leaving, 2 * _UNIT * np.abs(entering) + _TINY + curved, [source.node] * len(at))
            values[:, all_of_it] = leaving
        carried = np.flatnonzero(neurons.level[link.neurons] < k)
        nodes = [reading.sources[s].node for s in neurons.source[link.neurons[carried]]]
        compare(path, x, top[:, carried], values[:, link.neurons[carried]], allowed[:, carried], nodes)
    for name, tensor in reading.rewritten.items():
        _check_rewritten(path, x, neurons, tensor, values, slack, found[name], name)


def _layer_by_hand(link: ChainLink, below: Array, slack: Array) -> tuple[Array, Array]:
    """Pre-activations (B, m) of a layer, and how far onnxruntime's may lie from them. slack: how far `below` may."""
    sizes = np.abs(below) @ link.size.T + link.bias_size
    return affine(below, link.layer), (link.operations + 4) * _UNIT * sizes + slack @ link.magnitude.T + _TINY


def _check_rewritten(path: Path, x: npt.NDArray[np.float32], neurons: Neurons, tensor: Tensor, values: Array, slack: Array,
                     found: Array, name: str) -> None:
    """Compare what a node gives that was rewritten into several activations, where its neurons are part of the network."""
    weight, size, _ = neurons.matrices(tensor)
    bias, _ = tensor.const.rounded()
    known = np.flatnonzero(~(np.isnan(values[:1]) @ (abs(size).T != 0))[0])
    below = np.nan_to_num(values)
    here = below @ weight.T + bias
    sizes = np.abs(below) @ size.T + tensor.const.size
    allowed = (tensor.operations + 4) * _UNIT * sizes + slack @ abs(weight).T + _TINY
    if here.shape == found.shape:       # else `compare` says so
        here, found, allowed = (part[:, known] for part in (here, found, allowed))
    compare(path, x, here, found, allowed, [name] * here.shape[1])


def compare(path: Path, x: npt.NDArray[np.float32], here: Array, there: Array, allowed: Array,
             nodes: Sequence[str]) -> None:
    if here.shape != there.shape:
        raise ModelError(path, f"the import gives {here.shape[1]} numbers, onnxruntime {there.shape[1]}; please report this model",
                         node=nodes[0] if nodes else None, op="import check" if nodes else None)
    wrong = ~(np.abs(here - there) <= allowed)          # also true for NaN
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        point = f"{x[row, :MOST_SHOWN].tolist()}{' ...' if x.shape[1] > MOST_SHOWN else ''}"
        raise ModelError(path, f"the import does not reproduce onnxruntime at x = {point}: "
                               f"{here[row, column]:.9g} here, {there[row, column]:.9g} in onnxruntime "
                               f"(allowed {allowed[row, column]:.2g}); please report this model",
                         node=nodes[column], op="import check")
