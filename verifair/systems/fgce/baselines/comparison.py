"""Table VI: the feasible part of the advice of AReS and GLOBE-CE, compared with FACE and FGCE, as constraints are removed.

A factual is covered if the feasibility graph, with the counterfactuals added as nodes, has a path from it to its own
counterfactual. FACE is each person's own cheapest feasible data row, so no set of data rows serves anyone for less.
Reference: FGCE, section V-B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from verifair.errors import DataError, QueryError
from verifair.schema.file import Change
from verifair.schema.schema import Schema
from verifair.systems.fgce.baselines.recourse import GroupRecourse
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.space import FeatureSpace, distance

Choose = Callable[[Instance, int], Integers]
"""FGCE: an instance and k -> nodes of at most k counterfactuals."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Feasibility:
    """feasible: (n,) True if the counterfactual can be reached.   costs: (n,) L2 distance to it, NaN where there is none.

    size: number of rules, translations or counterfactuals.
    """

    feasible: Booleans
    costs: Array
    size: int

    @property
    def coverage(self) -> float:
        """Share of all factuals that have a feasible counterfactual."""
        return float(self.feasible.mean())

    @property
    def cost(self) -> float:
        """Mean L2 distance over those; NaN when there is nobody."""
        return float(self.costs[self.feasible].mean()) if self.feasible.any() else float("nan")


def feasible_share(space: FeatureSpace, raw: Array, factuals: Integers, recourse: GroupRecourse, eps: float | None) -> Feasibility:
    """Return which factuals (n,), nodes of the rows (N, V), can reach their own counterfactual by allowed moves of at most eps.

    eps: infinite for no limit; None for the smallest that leaves no data row isolated. A path may pass through any row, and through
    counterfactuals of others, which are ordinary nodes. Raises QueryError when the counterfactuals are not the factuals'.
    """
    if recourse.counterfactuals.shape != (len(factuals), raw.shape[1]):
        raise QueryError(
            f"{recourse.name}: counterfactuals of shape {recourse.counterfactuals.shape} for {len(factuals)} factuals of "
            f"{raw.shape[1]} features; pass one row a factual, in their order"
        )
    limit = FeasibilityGraph.build(space, raw).eps if eps is None else eps
    advised = np.flatnonzero(recourse.helped)
    rows = np.concatenate([raw, recourse.counterfactuals[advised]])
    feasible, costs = np.zeros(len(factuals), dtype=bool), np.full(len(factuals), np.nan)
    if len(advised):
        graph = _graph(space, rows, limit)
        reach = Reachability.of(graph)
        nodes = len(raw) + np.arange(len(advised))
        for n, target in zip(advised, nodes, strict=True):
            feasible[n] = reach.reaches(factuals[[n]], np.array([target]))[0, 0]
        costs[advised] = distance(graph.points[factuals[advised]], graph.points[nodes])
    return Feasibility(feasible=feasible, costs=costs, size=recourse.size)


def freed(space: FeatureSpace, names: Sequence[str]) -> FeatureSpace:
    """Return the space without the constraints of some features; a custom rule goes only when all features are free.

    Raises SchemaError for an unknown name.
    """
    free = {space.schema.index(name) for name in names}
    features = [
        feature.model_copy(update={"moves": None}) if v in free else feature for v, feature in enumerate(space.schema.features)
    ]
    fields = {field: getattr(space.schema, field) for field in Schema.model_fields}
    changes: list[Change] = ["free" if v in free else change for v, change in enumerate(space.changes)]
    custom = None if len(free) == len(features) else space.custom
    return FeatureSpace(schema=Schema.model_validate({**fields, "features": features}), changes=tuple(changes), custom=custom)


def compare(
    space: FeatureSpace,
    raw: Array,
    factuals: Integers,
    candidates: Integers,
    recourses: Sequence[GroupRecourse],
    fgce: Choose,
    k: int,
    *,
    eps: Sequence[float | None] = (None, np.inf),
    removed: Mapping[str, Sequence[str]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Return table VI: a row for each eps and set of features whose constraints are removed, with each method's size and cost.

    factuals (n,), candidates (C,): nodes of the rows (N, V).   recourses: of these factuals, found once for all sets of removed
    constraints. removed: label -> features (default: none, and all).   eps: see `feasible_share`; None is determined with all
    constraints. Coverage is a share of all factuals; costs are mean L2 distances in the space of their line of the table (an
    unordered category with a one-way constraint is a number, without it a one-hot block: declare it ordered for comparable costs).
    """
    if not len(factuals) or not len(candidates):
        raise DataError(f"{len(factuals)} rows to be explained and {len(candidates)} candidates; there must be some of each")
    removals = removed if removed is not None else {"none": (), "all": [feature.name for feature in space.schema.features]}
    default = FeasibilityGraph.build(space, raw).eps if None in eps else np.nan
    cells = [(default if limit is None else limit, label) for limit in eps for label in removals]
    rows = []
    for done, (limit, label) in enumerate(cells, start=1):
        freed_space = freed(space, removals[label])
        shares = {recourse.name: feasible_share(freed_space, raw, factuals, recourse, limit) for recourse in recourses}
        shares |= _of_graph(freed_space, raw, factuals, candidates, limit, fgce, k)
        rows.append({(name, part): getattr(share, part) for name, share in shares.items() for part in ("size", "coverage", "cost")})
        if progress is not None:
            progress(done, len(cells))
    index = pd.MultiIndex.from_tuples(cells, names=["eps", "removed"])
    return pd.DataFrame(rows, index=index, columns=pd.MultiIndex.from_tuples(list(rows[0]), names=["method", "measure"]))


def _of_graph(
    space: FeatureSpace, raw: Array, factuals: Integers, candidates: Integers, eps: float, fgce: Choose, k: int
) -> dict[str, Feasibility]:
    """Return FACE and FGCE on the graph of the data alone."""
    graph = _graph(space, raw, eps)
    reach = Reachability.of(graph)
    if not reach.reaches(factuals, candidates).any():
        nobody = Feasibility(feasible=np.zeros(len(factuals), dtype=bool), costs=np.full(len(factuals), np.nan), size=0)
        return {"FACE": nobody, "FGCE": nobody}
    instance = Instance.of(graph, reach, factuals, candidates)
    chosen = fgce(instance, k)
    return of_choice(instance, factuals, instance.to(chosen).min(axis=1, initial=np.inf), len(chosen))


def of_choice(instance: Instance, factuals: Integers, cost: Array, chosen: int) -> dict[str, Feasibility]:
    """Return FACE (everybody's own cheapest candidate) and FGCE with this number of chosen ones, for all factuals (n,) and l2
    costs.

    cost: (F,) of the instance's factuals, inf for those whom the choice does not serve.
    """
    nearest = np.concatenate([block.candidates[block.cost.argmin(axis=1)] for block in instance.blocks])
    return {
        "FACE": _spread_costs(instance, factuals, instance.nearest, len(np.unique(nearest))),
        "FGCE": _spread_costs(instance, factuals, cost, chosen),
    }


def _spread_costs(instance: Instance, factuals: Integers, cost: Array, size: int) -> Feasibility:
    """Return costs (F,) of the instance's factuals, given those of all factuals (n,)."""
    position = {int(node): n for n, node in enumerate(factuals)}
    costs = np.full(len(factuals), np.nan)
    costs[[position[int(node)] for node in instance.factuals]] = np.where(np.isfinite(cost), cost, np.nan)
    return Feasibility(feasible=~np.isnan(costs), costs=costs, size=size)


def _graph(space: FeatureSpace, rows: Array, eps: float) -> FeasibilityGraph:
    """Return the graph. An infinite eps becomes more than the largest distance, so that every allowed move is an edge."""
    if np.isinf(eps):
        points = space.points(rows)
        eps = float(np.linalg.norm(points.max(axis=0) - points.min(axis=0))) + 1.0
    return FeasibilityGraph.build(space, rows, eps)
