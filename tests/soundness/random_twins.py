"""Tiny random twin problems over lattices small enough to enumerate, nasty on purpose; with curves, and the truth about them."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
from flint import arb, ctx

from encoders.arrays import Array
from encoders.curves.layer import Curve, SmoothLayer
from encoders.domain import Domain
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.problem import Goal, TwinBatch, TwinProblem
from tests.brute_force import exact_forward, fractions

PBA = (Goal(rows=np.array([[1.0, -1.0]]), strict=True), Goal(rows=np.array([[-1.0, 1.0]]), strict=True))
ROBUST = (Goal(rows=np.array([[1.0, 0.0]]), strict=True), Goal(rows=np.array([[0.0, -1.0]]), strict=False))
FLIP = (
    Goal(rows=np.array([[-1.0, 0.0], [0.0, 1.0], [-0.5, 0.5]]), strict=np.array([False, True, False])),
    Goal(rows=np.array([[1.0, 0.0], [0.0, -1.0], [0.5, -0.5]]), strict=np.array([True, False, False])),
)
STRICT_SIGNS = tuple(replace(goal, strict=False) for goal in FLIP)
"""Fairify's: a margin of exactly 0 is on neither side."""
STYLES = ("plain", "sparse", "duplicate", "huge", "tiny", "mixed", "constant", "integer")


def nasty_network(rng: np.random.Generator, inputs: int, style: str, *, depth: int, width: int, outputs: int) -> Network:
    """float32 weights in one of several styles; integer weights make exact ties common."""
    sizes = [inputs, *rng.integers(1, width + 1, depth), outputs]
    layers = []
    for k, (n, m) in enumerate(pairwise(sizes)):
        weight, bias = rng.standard_normal((m, n)), rng.standard_normal(m)
        match style:
            case "sparse":
                weight *= rng.random((m, n)) < 0.4
                bias *= rng.random(m) < 0.5
            case "duplicate":
                weight[rng.integers(0, m)] = weight[0]
                bias[:] = bias[0]
            case "huge":
                weight, bias = weight * 1e6, bias * 1e6
            case "tiny":
                weight, bias = weight * 1e-12, bias * 1e-12
            case "mixed":
                weight *= 10.0 ** rng.integers(-15, 8, (m, n))
            case "constant":
                weight *= 0.0 if k == depth else 1.0
            case "integer":
                weight, bias = np.round(weight * 2), np.round(bias * 2)
        slope = np.ones(m) if k == depth else rng.choice([0.0, 0.0, 0.0, 0.25, float(np.float32(0.01)), 1.0], m)
        layers.append(
            Layer(weight=weight.astype(np.float32).astype(float), bias=bias.astype(np.float32).astype(float), slope=slope)
        )
    return Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256="random")


def random_problem(seed: int, style: str, goals: tuple[Goal, ...]) -> TwinProblem:
    """A few questions over numbers (some scaled) and a one-hot variable, one protected variable, boxes of at most ~200 points."""
    rng = np.random.default_rng(seed)
    one_hot = np.array([False, False, False, True])
    width = np.where(one_hot, 3, 1)
    domain = Domain(
        integer=np.ones(4, dtype=bool),
        lower=np.array([0.0, -3.0, 0.0, 0.0]),
        upper=np.array([1.0, 6.0, 40.0, 2.0]),
        offset=np.array([0.0, 0.0, 0.0, 0.0]),
        scale=np.array([1.0, rng.choice([1.0, 7.0]), rng.choice([1.0, 40.0, 3.0]), 1.0]),
        start=np.cumsum(width) - width,
        one_hot=one_hot,
        width=width,
    )
    depth = int(rng.choice([0, 1, 1, 2, 2, 3, 10]))
    outputs = int(rng.choice([1, 2, 3]))
    network = nasty_network(rng, 6, style, depth=depth, width=int(rng.choice([1, 3, 8])), outputs=outputs)
    count = 3
    low = rng.integers(domain.lower, domain.upper + 1, (count, 4)).astype(float)
    high = np.minimum(low + rng.integers(0, [1, 5, 9, 3], (count, 4)), domain.upper)
    low[:, 0] = high[:, 0] = 0
    prime = low.copy()
    prime[:, 0] = 1
    batch = TwinBatch(lower=low, upper=high, prime=prime, protected=np.array([True, False, False, False]))
    margin = np.array([1.0]) if outputs == 1 else np.eye(outputs)[0] - np.eye(outputs)[1]
    return TwinProblem(network=network, domain=domain, batch=batch, margin=margin, goals=goals)


def brute_force(problem: TwinProblem, question: int) -> np.ndarray:
    """Exact values (P, R) of all rows at every lattice point of a question's box, as fractions."""
    batch, domain = problem.batch, problem.domain
    axes = [np.arange(a, b + 1) for a, b in zip(batch.lower[question], batch.upper[question], strict=True)]
    raw = np.array(list(product(*axes)), dtype=float)
    prime = np.where(batch.protected, batch.prime[question], raw)
    logits = [exact_forward(problem.network, domain.encode(copy)) for copy in (raw, prime)]
    margins = np.stack([copy @ fractions(problem.margin) for copy in logits], axis=1)
    return np.asarray(margins @ fractions(problem.rows).T)


def truth(problem: TwinProblem, question: int, values: np.ndarray) -> list[bool]:
    """Whether each goal holds at every point."""
    del question
    met = np.where(problem.strict, values > 0, values >= 0).astype(bool)
    return [bool(m) for m in problem.goals_met(met).all(axis=0)]


# Tiny random twin problems with sigmoid and tanh neurons, and the truth about them by plain ball arithmetic of its own.


BITS = 700
MIXES = {"sigmoid": (Curve.SIGMOID,), "tanh": (Curve.TANH,), "mixed": (Curve.SIGMOID, Curve.TANH, Curve.BENT)}
MIXES |= {
    "convex": (Curve.SOFTPLUS, Curve.ELU), "jumps": (Curve.SELU, Curve.HARDSWISH, Curve.BENT),
    "falls": (Curve.SILU, Curve.GELU, Curve.GELU_TANH, Curve.MISH), "squares": (Curve.SQUARE, Curve.SQUARE, Curve.BENT),
    "every": tuple(Curve),
}


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
            elif kind != Curve.BENT:
                a = shaped(Curve(kind), a)
            elif not a > 0:
                a = slope * a if a <= 0 else slope * a + (1 - arb(slope)) * a.max(arb(0))
            above.append(a)
        values = above
    return values


def shaped(kind: Curve, a: arb) -> arb:
    """The other curves, by other formulas than `encoders.curves.shapes` has."""
    match kind:
        case Curve.SOFTPLUS:
            return a.exp().log1p() if a < 0 else a + (-a).exp().log1p()
        case Curve.ELU | Curve.SELU:
            numbers = (1.0, 1.0) if kind == Curve.ELU else (1.6732632423543772, 1.0507009873554805)
            alpha, gamma = (float(np.float32(number)) for number in numbers)
            return gamma * (a if a > 0 else alpha * a.expm1())
        case Curve.SILU:
            return a * (1 + (a / 2).tanh()) / 2
        case Curve.GELU:
            return a - a * (a / arb(2).sqrt()).erfc() / 2 if a > 0 else a * (-a / arb(2).sqrt()).erfc() / 2
        case Curve.GELU_TANH:
            return a * (1 + ((2 / arb.pi()).sqrt() * (a + arb("0.044715") * a**3)).tanh()) / 2
        case Curve.SQUARE:
            return abs(a) ** 2
        case Curve.MISH:
            return a * shaped(Curve.SOFTPLUS, a).tanh()
        case _:
            assert kind == Curve.HARDSWISH
            return a if a >= 3 else arb(0) if a <= -3 else a * (a + 3) / 6


def points(problem: TwinProblem, q: int) -> Array:
    """All legal points (P, V) of a question's box, which holds whole numbers alone."""
    axes = [np.arange(a, b + 1) for a, b in zip(problem.batch.lower[q], problem.batch.upper[q], strict=True)]
    return np.array(list(product(*axes)), dtype=float)


def brute_force_smooth(problem: TwinProblem, q: int) -> list[list[arb]]:
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
