"""Tiny random twin problems with sigmoid and tanh neurons, and the truth about them by plain ball arithmetic of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from flint import arb, ctx

from encoders.curves import Curve, SmoothLayer
from encoders.network import Array, Layer, Network
from encoders.problem import Goal, TwinProblem

from .random_twins import random_problem

BITS = 700
MIXES = {"sigmoid": (Curve.SIGMOID,), "tanh": (Curve.TANH,), "mixed": (Curve.SIGMOID, Curve.TANH, Curve.BENT)}


def smooth_problem(seed: int, style: str, mix: str, goals: tuple[Goal, ...]) -> TwinProblem:
    """`random_problem` with curves in its hidden layers; in some layers of a mixed network there are none."""
    problem = random_problem(seed, style, goals)
    return replace(problem, network=smoothed(problem.network, np.random.default_rng(seed + 1), mix))


def smoothed(network: Network, rng: np.random.Generator, mix: str) -> Network:
    """The same weights, other activations."""
    layers: list[Layer] = []
    for layer in network.layers[:-1]:
        curve = rng.choice(MIXES[mix], len(layer.bias)).astype(np.int8)
        if not curve.any():
            layers.append(layer)
            continue
        bend = np.where(curve == Curve.BENT, layer.slope, 1.0)
        layers.append(SmoothLayer(weight=layer.weight, bias=layer.bias, bend=bend, curve=curve))
    return replace(network, layers=(*layers, network.layers[-1]))


def logits(network: Network, x: Array) -> list[arb]:
    """f(x) of one input (n,), written out neuron by neuron."""
    values = [arb(v) for v in x.tolist()]
    for layer in network.layers:
        bend = layer.bend if isinstance(layer, SmoothLayer) else layer.slope
        curve = layer.curve if isinstance(layer, SmoothLayer) else np.zeros(len(layer.bias))
        above = []
        for row, bias, slope, kind in zip(layer.weight.tolist(), layer.bias.tolist(), bend.tolist(), curve.tolist(), strict=True):
            a = arb(bias)
            for w, v in zip(row, values, strict=True):
                a += arb(w) * v
            if kind == Curve.SIGMOID:
                a = ((a / 2).tanh() + 1) / 2
            elif kind == Curve.TANH:
                a = 1 - 2 / ((2 * a).exp() + 1) if a < 0 else 2 / (1 + (-2 * a).exp()) - 1
            elif not a > 0:
                a = slope * a if a <= 0 else slope * a + (1 - arb(slope)) * a.max(arb(0))
            above.append(a)
        values = above
    return values


def points(problem: TwinProblem, q: int) -> Array:
    """All legal points (P, V) of a question's box, which holds whole numbers alone."""
    axes = [np.arange(a, b + 1) for a, b in zip(problem.batch.lower[q], problem.batch.upper[q], strict=True)]
    return np.array(list(product(*axes)), dtype=float)


def brute_force(problem: TwinProblem, q: int) -> list[list[arb]]:
    """The rows' values, with their constants, at every legal point of a question's box."""
    before, ctx.prec = ctx.prec, BITS
    try:
        batch = problem.batch.take([q])
        raw = points(problem, q)
        pair = problem.domain.encode(raw), problem.domain.encode(batch.second(raw))
        out = []
        for x, x_prime in zip(*pair, strict=True):
            g, g_prime = (
                sum((arb(m) * f for m, f in zip(problem.margin.tolist(), logits(problem.network, one), strict=True)), arb(0))
                for one in (x, x_prime)
            )
            rows = zip(problem.rows.tolist(), problem.constants.tolist(), strict=True)
            out.append([arb(a) * g + arb(b) * g_prime + arb(c) for (a, b), c in rows])
        return out
    finally:
        ctx.prec = before
