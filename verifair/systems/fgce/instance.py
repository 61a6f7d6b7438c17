"""The problem of one group: people who need a counterfactual, candidates, and the cost of each pair.

Factuals and candidates of different weak components never meet, so costs come in blocks, one for each component (a subgroup).
Reference: FGCE, section II: cost is the L2 vector distance, the weight of the shortest path, or its number of hops.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist

from encoders.arrays import Array, Booleans, Integers
from verifair.errors import DataError, QueryError
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.settings import Cost

ROWS = 512
"""Factuals whose shortest paths are searched at once: each takes N float64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CostBlock:
    """One weak component (its number). factuals (f,), candidates (c,): nodes.   cost: (f, c), infinite where not reachable."""

    component: int
    factuals: Integers
    candidates: Integers
    cost: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Instance:
    """The problem of one group.   blocks: costs of those with a feasible counterfactual (X).   hopeless: negatives without any.

    candidates: (C,) all nodes that may be chosen (X').
    """

    blocks: tuple[CostBlock, ...]
    hopeless: Integers
    candidates: Integers

    @property
    def nearest(self) -> Array:
        """(F,) the cost of each factual's cheapest counterfactual, in the order of the blocks."""
        return np.concatenate([block.cost.min(axis=1) for block in self.blocks])

    @classmethod
    def of(
        cls,
        graph: FeasibilityGraph,
        reach: Reachability,
        negatives: Integers,
        candidates: Integers,
        *,
        cost: Cost = "l2",
        weights: Array | None = None,
        group: str = "the group",
    ) -> Instance:
        """Return the problem for nodes `negatives` (n,) and `candidates` (C,).   weights: (E,) of edges, for cost "path".

        Raises DataError when there is nobody to explain, or nobody has a feasible counterfactual; QueryError for an unknown cost.
        """
        if cost not in get_args(Cost):
            raise QueryError(f"cost {cost!r} is not known; use one of {', '.join(get_args(Cost))}")
        if not len(negatives):
            raise DataError(f"{group}: nobody in it is to be explained (no row with the negative decision); choose another group")
        if not len(candidates):
            raise DataError(f"{group}: there is no row with the positive decision, so there can be no counterfactual")
        blocks, hopeless = [], [negatives[~np.isin(reach.weak[negatives], reach.weak[candidates])]]
        numbers = np.intersect1d(reach.weak[negatives], reach.weak[candidates])
        for number in numbers:
            factuals, targets = negatives[reach.weak[negatives] == number], candidates[reach.weak[candidates] == number]
            feasible = reach.reaches(factuals, targets)
            reached = feasible.any(axis=1)
            hopeless.append(factuals[~reached])
            used = feasible.any(axis=0)
            if reached.any():
                factuals, targets, feasible = factuals[reached], targets[used], feasible[np.ix_(reached, used)]
                costs = _costs(graph, factuals, targets, feasible, cost, weights)
                blocks.append(CostBlock(component=int(number), factuals=factuals, candidates=targets, cost=costs))
        if not blocks:
            raise DataError(
                f"{group}: none of its {len(negatives)} rows has a feasible counterfactual at eps = {graph.eps:g}: no positive row "
                "can be reached by allowed moves; raise eps, or free features (change = \"free\")"
            )
        return cls(blocks=tuple(blocks), hopeless=np.concatenate(hopeless), candidates=candidates)

    @property
    def size(self) -> int:
        """|X|, factuals with at least one feasible counterfactual."""
        return sum(len(block.factuals) for block in self.blocks)

    @cached_property
    def factuals(self) -> Integers:
        """(F,) nodes of X, block by block."""
        return np.concatenate([block.factuals for block in self.blocks])

    @cached_property
    def columns(self) -> Integers:
        """(C',) nodes of the candidates that some factual can reach, block by block."""
        return np.concatenate([block.candidates for block in self.blocks])

    def costs(self) -> Array:
        """Return (F, C') all blocks in one matrix, infinite elsewhere, for the paper's MIP."""
        matrix = np.full((len(self.factuals), len(self.columns)), np.inf)
        row = column = 0
        for block in self.blocks:
            f, c = block.cost.shape
            matrix[row : row + f, column : column + c] = block.cost
            row, column = row + f, column + c
        return matrix

    def to(self, chosen: Integers) -> Array:
        """Return (F, n) cost from every factual to each of the chosen nodes (n,)."""
        parts = []
        for block in self.blocks:
            part = np.full((len(block.factuals), len(chosen)), np.inf)
            position = {int(node): c for c, node in enumerate(block.candidates)}
            for n, node in enumerate(chosen):
                if int(node) in position:
                    part[:, n] = block.cost[:, position[int(node)]]
            parts.append(part)
        return np.concatenate(parts)


def _costs(
    graph: FeasibilityGraph, factuals: Integers, targets: Integers, feasible: Booleans, cost: Cost, weights: Array | None
) -> Array:
    if cost == "l2":
        result = np.asarray(cdist(graph.points[factuals], graph.points[targets]))
        return np.where(feasible, result, np.inf)
    if cost == "path" and weights is None:
        raise QueryError("cost path: pass the weights of the edges (density.edge_weights)")
    matrix = graph.matrix(weights if weights is not None else np.ones(graph.edges))
    result = np.empty((len(factuals), len(targets)))
    for start in range(0, len(factuals), ROWS):
        part = slice(start, start + ROWS)
        result[part] = dijkstra(matrix, indices=factuals[part], unweighted=cost == "hops")[:, targets]
    return np.where(feasible, result, np.inf)
