"""Checkable proofs of group optima: the search is run again with every bound recorded.

Sound? yes: `verifair check`, which knows nothing of this search, checks them.   Complete? given time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from encoders.arrays import Booleans, Integers
from encoders.model import Model
from encoders.programs.max_coverage import UNIT
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.centers import MOST_ROWS, CentersCertificate, CentersQuery, GroupProof, Step, up_to
from verifair.checker.certificates.envelope import semantics
from verifair.schema.schema import Schema
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import Centers, needed
from verifair.systems.fgce.optimum.cover import Coverage, SetSystem, greedy
from verifair.systems.fgce.optimum.search import CoverSearch

Answer = tuple[Integers, Instance, Centers | Coverage]
"""A group's negatives that were asked about, its question, and the answer."""


def certificate(
    network: Model, schema: Schema, graph: FeasibilityGraph, answers: Mapping[str, Answer], *, k: int, coverage: float,
    max_cost: float | None, budget: Budget,
) -> CentersCertificate | str:
    """Return a certificate of the groups whose optimum is proved again in time, or the reason that there is none.

    Requires: cost l2, no custom rule for moves, all positive rows as candidates, and a `network` that `verifair.read` gave.
    """
    if len(graph) > MOST_ROWS:
        return f"the table has {len(graph):,} rows, and the checker closes graphs of at most {MOST_ROWS:,}"
    if max_cost is not None and not np.isfinite(max_cost):
        return "the cost limit is infinite: pass a finite --max-cost"
    deadline = clock.now() + budget.seconds
    groups: dict[str, GroupProof] = {}
    for name, (_, instance, answer) in answers.items():
        proof = _proof(instance, answer, k, coverage, max_cost, deadline)
        if proof is not None:
            groups[name] = proof
    if not groups:
        return "no group's optimum was proved in time"
    changes = {feature.name: change for feature, change in zip(schema.features, graph.space.changes, strict=True)}
    query = CentersQuery(
        kind="group-counterfactuals", eps=graph.eps, changes=changes, k=k, coverage=coverage, max_cost=max_cost,
        asked={name: tuple(negatives.tolist()) for name, (negatives, _, _) in answers.items()},
    )
    return CentersCertificate(
        network_sha256=network.source_sha256, schema_sha256=schema.sha256, semantics=semantics(network),
        features=tuple(feature.name for feature in schema.features), query=query, rows=graph.raw, groups=groups,
        undecided=len(answers) - len(groups),
    )


def _proof(
    instance: Instance, answer: Centers | Coverage, k: int, coverage: float, max_cost: float | None, deadline: float
) -> GroupProof | None:
    if not answer.optimal or (isinstance(answer, Centers) and not np.isfinite(answer.cost)):
        return None
    order = np.argsort(instance.factuals)
    columns = np.unique(instance.candidates)
    cost = np.full((instance.size, len(columns)), np.inf)
    cost[:, np.searchsorted(columns, instance.columns)] = instance.costs()
    cost = cost[order]
    if isinstance(answer, Centers):
        near, target, value = up_to(cost) < answer.cost, needed(instance, coverage), answer.cost
    else:
        near, target, value = np.isfinite(cost) & (cost <= up_to(float(max_cost or 0.0))), answer.covered + 1, float(answer.covered)
    recorded = steps(near, k, target, deadline)
    if recorded is None:
        return None
    contained, proof = recorded
    return GroupProof(chosen=tuple(sorted(answer.chosen.tolist())), value=value, contained=contained, steps=proof)


def steps(near: Booleans, k: int, target: int, deadline: float) -> tuple[list[tuple[int, int]], list[Step]] | None:
    """Return pairs (column of a table (F, C), column that contains it), and the bounds that show that no k columns cover `target`
    rows; None if time was up or some do."""
    if not near.any():
        return [], [Step(multipliers=[0] * len(near), split=-1)]
    system = SetSystem.of([near], [np.arange(near.shape[1])])
    search = CoverSearch(system.covers, system.weights, greedy(system, k), k, target, record=True)
    search.run(deadline, None)
    if search.open or search.covered >= target or search.steps is None:
        return None
    others = np.setdiff1d(np.flatnonzero(near.any(axis=0)), system.nodes)
    members = near[:, system.nodes].astype(np.float32)
    inside = near[:, others].astype(np.float32).T @ members >= near[:, others].sum(axis=0)[:, None]
    contained = list(zip(others.tolist(), system.nodes[inside.argmax(axis=1)].tolist(), strict=True))
    # A row of the system stands for several factuals: its multiplier is split among them, at most one unit for each.
    offset = np.zeros(len(near), dtype=np.int64)
    for row in range(len(system.weights)):
        factuals = np.flatnonzero(system.same == row)
        offset[factuals] = np.arange(len(factuals)) << UNIT
    covered = system.same >= 0
    result = []
    for step in search.steps:
        units = np.where(covered, np.clip(step.multipliers[system.same] - offset, 0, 1 << UNIT), 0)
        result.append(Step(multipliers=units.tolist(), split=step.split if step.split < 0 else int(system.nodes[step.split])))
    return contained, result
