"""2-fairness of random models that grow, on an integer lattice: do log-odds ever differ by more than c?

ReLU networks grow wider, or deeper, and ensembles get more trees. Networks with 100 neurons a layer, as deep as those of data/race,
are asked about in the cells next to a point of the lattice; and so are trees of three classes, whether the decision differs.

Models are drawn from the seed, and c is close to the largest difference at random points: above it in even cases, which are then
mostly fair, below it in odd ones, which have few witnesses.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np

from encoders.decision import Favoured, decided
from encoders.domain import Domain
from encoders.model import Link, Model
from encoders.network import Layer, Network
from encoders.problem import Goal, TwinBatch, TwinProblem
from encoders.trees.ensemble import TreeEnsemble
from verifair.bench.cases.family import Family, generator
from verifair.bench.questions import DecisionQuestion
from verifair.engine.questions import NO_FALL, NO_RISE

FEATURES, REACH = 6, 10
"""Shared integer features, each in -REACH .. REACH; a seventh one, 0 or 1, is protected."""
WIDTH = 8
POINTS = 4096
ABOVE, BELOW = 1.3, 0.97
"""c over the largest difference that so many random points show."""
WIDTHS, DEPTHS, DEEPER, TREES = (4, 8, 16, 32), (1, 2, 3, 4), (2, 4, 6, 8), (4, 16, 64)
SPLITS = 4
"""On every path of a tree."""


def families() -> list[Family]:
    specs = (
        ("random-wide", "2-fairness of random networks with one hidden layer", "hidden neurons", WIDTHS),
        ("random-deep", f"2-fairness of random networks with hidden layers of {WIDTH}", "hidden layers", DEPTHS),
        ("random-hundred", "2-fairness of random networks with hidden layers of 100, about a point", "hidden layers", DEEPER),
        ("random-trees", f"2-fairness of random trees with {SPLITS} splits on a path", "trees", TREES),
        ("random-classes", "2-fairness of decisions of random trees of three classes, about a point", "trees", TREES),
    )
    return [
        Family(name=name, kind="decision", about=about, size_is=size_is, sizes=sizes, count=2, build=partial(_build, name))
        for name, about, size_is, sizes in specs
    ]


def _build(name: str, size: int, number: int, seed: int) -> DecisionQuestion:
    rng = generator(f"{name} {size}", number, seed)
    problem = _problem(_model(name, size, rng))
    batch, point, reach = problem.batch, np.zeros(FEATURES + 1), REACH
    if name in ("random-hundred", "random-classes"):
        point, reach = np.where(batch.protected, 0.0, rng.integers(1 - REACH, REACH, FEATURES + 1)), 1
        batch = replace(batch, lower=(point - ~batch.protected)[None], upper=(point + ~batch.protected)[None])
    if name == "random-classes":
        return DecisionQuestion(problem=replace(problem, batch=batch, goals=(NO_FALL, NO_RISE)))
    points = np.where(batch.protected, 0.0, point + rng.integers(-reach, reach + 1, (POINTS, FEATURES + 1)))
    g, g_prime = (problem.network.forward(x)[:, 0] for x in (points, np.where(batch.protected, 1.0, points)))
    limit = float(np.abs(g - g_prime).max()) * (ABOVE if number % 2 == 0 else BELOW)
    goals = tuple(Goal(rows=np.array([row]), strict=False, constant=np.array([limit])) for row in ([1.0, -1.0], [-1.0, 1.0]))
    return DecisionQuestion(problem=replace(problem, batch=batch, goals=goals))


def _model(name: str, size: int, rng: np.random.Generator) -> Model:
    if name == "random-trees":
        return _trees(rng, size, 1)
    if name == "random-classes":
        return decided(_trees(rng, size, 3), Favoured(groups=((2,),), lowest=True))
    hidden = {"random-wide": (size,), "random-deep": (WIDTH,) * size, "random-hundred": (100,) * size}[name]
    return _network(rng, (FEATURES + 1, *hidden, 1))


def _trees(rng: np.random.Generator, count: int, scores: int) -> TreeEnsemble:
    """Draw full trees with thresholds between whole numbers, and float32 leaves of variance 1 / count."""
    inner = 2**SPLITS - 1
    node = np.arange(2 * inner + 1)     # of one tree: node k has the branches 2 k + 1 and 2 k + 2
    is_leaf = node >= inner
    column = np.where(is_leaf, -1, rng.integers(0, FEATURES + 1, (count, len(node))))
    threshold = np.where(column == 0, 0.5, rng.integers(-REACH, REACH, column.shape) + 0.5)
    left, right = np.where(is_leaf, node, 2 * node + 1), np.where(is_leaf, node, 2 * node + 2)
    first = len(node) * np.arange(count)
    value = np.where(is_leaf[:, None], _float32(rng.standard_normal((count, len(node), scores)) / np.sqrt(count)), 0.0)
    return TreeEnsemble(
        root=first, column=column.ravel(), threshold=np.where(is_leaf, 0.0, threshold).ravel(),
        left=(first[:, None] + left).ravel(), right=(first[:, None] + right).ravel(),
        missing_left=np.ones(column.size, dtype=bool), value=value.reshape(-1, scores), base=np.zeros(scores),
        columns=FEATURES + 1, link=Link.SIGMOID if scores == 1 else Link.SOFTMAX, source_sha256="",
    )


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


def _problem(model: Model) -> TwinProblem:
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
    return TwinProblem(network=model, domain=domain, batch=batch, margin=np.array([1.0]), goals=())
