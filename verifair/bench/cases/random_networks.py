"""2-fairness of random ReLU networks that grow wider, or deeper, on an integer lattice: do log-odds ever differ by more than c?

Networks with 100 neurons a layer, as deep as those of data/race, are asked about in the cells next to a point of the lattice.

Weights are drawn from the seed, and c is close to the largest difference at random points: above it in even cases, which are then
mostly fair, below it in odd ones, which have few witnesses.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np

from encoders.domain import Domain
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.problem import Goal, TwinBatch, TwinProblem
from verifair.bench.cases.family import Family, generator
from verifair.bench.questions import DecisionQuestion

FEATURES, REACH = 6, 10
"""Shared integer features, each in -REACH .. REACH; a seventh one, 0 or 1, is protected."""
WIDTH = 8
POINTS = 4096
ABOVE, BELOW = 1.3, 0.97
"""c over the largest difference that so many random points show."""
WIDTHS, DEPTHS, DEPTHS_OF_HUNDRED = (4, 8, 16, 32), (1, 2, 3, 4), (2, 4, 6, 8)


def families() -> list[Family]:
    return [
        Family(
            name="random-wide", kind="decision", about="2-fairness of random networks with one hidden layer",
            size_is="hidden neurons", sizes=WIDTHS, count=2, build=partial(_build, "random-wide"),
        ),
        Family(
            name="random-deep", kind="decision", about=f"2-fairness of random networks with hidden layers of {WIDTH}",
            size_is="hidden layers", sizes=DEPTHS, count=2, build=partial(_build, "random-deep"),
        ),
        Family(
            name="random-hundred", kind="decision", about="2-fairness of random networks with hidden layers of 100, about a point",
            size_is="hidden layers", sizes=DEPTHS_OF_HUNDRED, count=2, build=partial(_build, "random-hundred"),
        ),
    ]


def _build(name: str, size: int, number: int, seed: int) -> DecisionQuestion:
    hidden = {"random-wide": (size,), "random-deep": (WIDTH,) * size, "random-hundred": (100,) * size}[name]
    rng = generator(f"{name} {size}", number, seed)
    problem = _problem(_network(rng, (FEATURES + 1, *hidden, 1)))
    batch, point, reach = problem.batch, np.zeros(FEATURES + 1), REACH
    if name == "random-hundred":
        point, reach = np.where(batch.protected, 0.0, rng.integers(1 - REACH, REACH, FEATURES + 1)), 1
        batch = replace(batch, lower=(point - ~batch.protected)[None], upper=(point + ~batch.protected)[None])
    points = np.where(batch.protected, 0.0, point + rng.integers(-reach, reach + 1, (POINTS, FEATURES + 1)))
    g, g_prime = (problem.network.forward(x)[:, 0] for x in (points, np.where(batch.protected, 1.0, points)))
    limit = float(np.abs(g - g_prime).max()) * (ABOVE if number % 2 == 0 else BELOW)
    goals = tuple(Goal(rows=np.array([row]), strict=False, constant=np.array([limit])) for row in ([1.0, -1.0], [-1.0, 1.0]))
    return DecisionQuestion(problem=replace(problem, batch=batch, goals=goals))


def _network(rng: np.random.Generator, widths: tuple[int, ...]) -> Network:
    """Draw float32 weights of variance 1 / fan-in."""
    layers = []
    for k, (n, m) in enumerate(itertools.pairwise(widths)):
        weight = rng.standard_normal((m, n)) / np.sqrt(n)
        bias = 0.3 * rng.standard_normal(m)
        last = k == len(widths) - 2
        layers.append(Layer(weight=_float32(weight), bias=_float32(bias), slope=np.full(m, 1.0 if last else 0.0)))
    return Network(layers=tuple(layers), link=Link.SIGMOID, source_sha256="")


def _float32(values: np.ndarray) -> np.ndarray:
    return np.asarray(values.astype(np.float32).astype(np.float64))


def _problem(network: Network) -> TwinProblem:
    """Return the question about the whole lattice, the protected feature 0 in x and 1 in x'; no goal yet."""
    count = FEATURES + 1
    lower = np.array([0.0, *[-float(REACH)] * FEATURES])
    domain = Domain(
        integer=np.ones(count, dtype=bool), lower=lower, upper=np.array([1.0, *[float(REACH)] * FEATURES]), offset=np.zeros(count),
        scale=np.ones(count), start=np.arange(count), one_hot=np.zeros(count, dtype=bool), width=np.ones(count, dtype=np.int64),
    )
    low, high = domain.lower.copy(), domain.upper.copy()
    low[0] = high[0] = 0.0
    prime = np.zeros(count)
    prime[0] = 1.0
    batch = TwinBatch(lower=low[None], upper=high[None], prime=prime[None], protected=np.arange(count) == 0)
    return TwinProblem(network=network, domain=domain, batch=batch, margin=np.array([1.0]), goals=())
