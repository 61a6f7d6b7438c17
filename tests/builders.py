"""The networks, schemas and small problems of tests, written once."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array
from encoders.domain import Domain, Regions
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.problem import Goal, TwinBatch, TwinProblem
from verifair.checker.certificates.tree import Tree
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kernel.leaves import Boxes, JoinedTrees, LeafRule, Leaves, replay
from verifair.checker.kernel.multipliers import lagrange
from verifair.checker.kernel.tasks import StatedGoal, Task, Tasks
from verifair.schema.schema import Schema

SHA = "0" * 64
DIFFERENCE = Goal(rows=np.array([[1.0, -1.0]]), strict=True)
NO_FLIP = Goal(rows=np.array([[-1.0, 0.0], [0.0, 1.0], [-0.5, 0.5]]), strict=np.array([False, True, False]))


# Schemas: each feature is a line


def integer(name: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "integer", "range": (low, high), **more}


def real(name: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "real", "range": (low, high), **more}


def categorical(name: str, *categories: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "categorical", "categories": list(categories), **more}


def one_hot(name: str, *categories: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "one-hot", "categories": list(categories), **more}


def schema_of(*features: dict[str, Any], **more: Any) -> Schema:
    """A schema of these features. more: constraints, label, positive, ..."""
    return Schema.build({"features": list(features), **more})


# Networks


def layer(weight: npt.ArrayLike, bias: npt.ArrayLike | None = None, slope: float | Sequence[float] = 1.0) -> Layer:
    """Rows of weights, biases (0 unless given), and what negative values are multiplied by: 1 is affine, 0 is ReLU."""
    rows = np.array(weight, dtype=float)
    biases = np.zeros(len(rows)) if bias is None else np.array(bias, dtype=float)
    return Layer(weight=rows, bias=biases, slope=np.broadcast_to(np.array(slope, dtype=float), biases.shape).copy())


def network_of(*layers: tuple[npt.ArrayLike, npt.ArrayLike | None], link: Link = Link.IDENTITY, **more: Any) -> Network:
    """Weights and biases layer by layer: ReLU neurons in all but the last, which is affine. more: of Network."""
    made = [layer(weight, bias, 1.0 if k == len(layers) else 0.0) for k, (weight, bias) in enumerate(layers, start=1)]
    return Network(layers=tuple(made), link=link, **{"source_sha256": SHA, **more})


def linear_network(*weight: float, bias: float = 0.0, **more: Any) -> Network:
    """One affine output."""
    return network_of(([weight], [bias]), **more)


def random_network(rng: np.random.Generator, widths: tuple[int, ...], *, slope: float = 0.0, sparsity: float = 0.0) -> Network:
    """A network of float32 weights, widths = (inputs, hidden ..., outputs), one slope, a share `sparsity` of zero weights."""
    layers = []
    for k, (n, m) in enumerate(itertools.pairwise(widths)):
        weight = (rng.standard_normal((m, n)) / np.sqrt(n)) * (rng.random((m, n)) >= sparsity)
        bias = 0.3 * rng.standard_normal(m)
        last = k == len(widths) - 2
        weight, bias = (part.astype(np.float32).astype(float) for part in (weight, bias))
        layers.append(layer(weight, bias, 1.0 if last else float(np.float32(slope))))
    return Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256="")


# Problems


def small_domain(*, scale: float = 1.0, real: bool = False, categories: int = 0) -> Domain:
    """Variables: protected in 0..1, two numbers in -2..2 (whole unless real), and one with `categories` categories if any."""
    one_hot = np.array([False, False, False] + [True] * (categories > 0))
    width = np.where(one_hot, categories, 1)
    number = ~one_hot
    return Domain(
        integer=np.array([True, not real, not real] + [True] * (categories > 0)),
        lower=np.array([0.0, -2.0, -2.0] + [0.0] * (categories > 0)),
        upper=np.array([1.0, 2.0, 2.0] + [categories - 1.0] * (categories > 0)),
        offset=np.zeros(len(width)),
        scale=np.where(number, [1.0, scale, scale, 1.0][: len(width)], 1.0),
        start=np.cumsum(width) - width,
        one_hot=one_hot,
        width=width,
    )


def twin_problem(
    rng: np.random.Generator,
    hidden: tuple[int, ...] = (4, 3),
    *,
    outputs: int = 1,
    slope: float = 0.0,
    sparsity: float = 0.0,
    scale: float = 1.0,
    real: bool = False,
    categories: int = 0,
    network: Network | None = None,
    goals: tuple[Goal, ...] = (DIFFERENCE, NO_FLIP),
) -> TwinProblem:
    """A question about the whole of `small_domain`: protected variable 0 is 1 in x and 0 in x'."""
    domain = small_domain(scale=scale, real=real, categories=categories)
    if network is None:
        network = random_network(rng, (domain.columns, *hidden, outputs), slope=slope, sparsity=sparsity)
    lower, upper = domain.lower.copy(), domain.upper.copy()
    lower[0] = upper[0] = 1.0
    prime = np.zeros(domain.variables)
    protected = np.arange(domain.variables) == 0
    margin = np.zeros(network.outputs)
    margin[0] = 1.0
    if network.outputs > 1:
        margin[1] = -1.0
    batch = TwinBatch(lower=lower[None, :], upper=upper[None, :], prime=prime[None, :], protected=protected)
    return TwinProblem(network=network, domain=domain, batch=batch, margin=margin, goals=goals)


def lattice(lower: Array, upper: Array) -> Array:
    """All whole points (P, V) of a raw box."""
    return np.array(list(itertools.product(*(np.arange(lo, hi + 1) for lo, hi in zip(lower, upper, strict=True)))))


def sample(rng: np.random.Generator, problem: TwinProblem, count: int) -> Array:
    """Random legal points (count, V) of the first question's box."""
    lower, upper = problem.batch.lower[0], problem.batch.upper[0]
    raw = lower + (upper - lower) * rng.random((count, len(lower)))
    return np.where(problem.domain.integer, np.rint(raw), raw)


def claim_of(problem: TwinProblem) -> Task:
    """The only goal of the only question as the checker takes it."""
    batch, goal = problem.batch, problem.goals[0]
    rows = np.column_stack([goal.rows, goal.constants])
    return Task(
        lower=batch.lower[0], upper=batch.upper[0], prime=np.where(batch.protected, batch.prime[0], 0.0), differs=batch.protected,
        offset=np.zeros(len(batch.protected)) if batch.offset is None else batch.offset[0], margin=problem.margin,
        goal=StatedGoal(rows=tuple(map(tuple, rows.tolist())), strict=tuple(goal.strict_rows.tolist()), gap=goal.gap),
    )


def tree_flaw(
    network: Network, domain: Domain, claim: Task, tree: Tree, *, float32: bool = False, margin: float | None = None
) -> str | None:
    """Why the checker does not take a tree for a proof of a claim, or None."""
    return tree.misfit or replay(network, domain, Tasks.of([claim]), JoinedTrees.of([tree], [float32], [margin])).get(0)


def by_multipliers(
    network: Network, domain: Domain, claim: Task, regions: Regions, weights: Array, slopes: Array, own: Array | None = None
) -> tuple[Array, Array, Array]:
    """The checker's bounds (B,) over regions by weights (B, R) of rows and slopes (B, 2 H), NaN where left out; where it finds no
    point (B,), and what it takes for proved (B,). own: (B,) slopes of lines of their own."""
    entries = []
    for k in range(len(regions)):
        given = np.flatnonzero(~np.isnan(slopes[k]))
        index, value = np.arange(weights.shape[1]) + slopes.shape[1], weights[k]
        if own is not None:
            index, value = np.append(index, slopes.shape[1] + weights.shape[1]), np.append(value, own[k])
        entries.append((np.concatenate([given, index]), np.concatenate([slopes[k, given], value])))
    count, tasks = len(regions), Tasks.of([claim])
    joined = JoinedTrees(
        size=np.array([count]), feature=np.full(count, -1), cut=np.zeros(count),
        start=np.cumsum([0, *(len(i) for i, _ in entries)]), index=np.concatenate([i for i, _ in entries]),
        value=np.concatenate([v for _, v in entries]), float32=np.array([False]), margin=np.array([np.nan]),
    )
    first, nodes = np.zeros(count, dtype=np.int64), np.arange(count)
    leaves = Leaves(
        tree=first, node=nodes, lower=regions.lower, upper=regions.upper, frame=np.full(count, -1), is_frame=first > 0,
        active=regions.active, inactive=regions.inactive,
    )
    ends = [regions.lower, regions.upper, *(tasks.second(first, end) for end in (regions.lower, regions.upper))]
    (low, high), (low2, high2) = domain.box(*ends[:2]), domain.box(*ends[2:])
    rule = LeafRule(network, domain, tasks, joined)
    with np.errstate(all="ignore"):
        bounds = TwinBounds(network, low, high, low2, high2, close=True, signs=(regions.active, regions.inactive))
        rows, _ = rule.rows_of(leaves)
        bound, nowhere = lagrange(bounds, domain, (low, high), rows, slopes)
        proved = rule.proved(leaves, Boxes(low=low, high=high, low2=low2, high2=high2), (True, True), 0.0)
        return bound - rows.charge(bounds, np.tile(claim.margin, (count, 1))), nowhere | bounds.empty, proved
