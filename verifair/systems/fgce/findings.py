"""What FGCE found for each group, in the schema's words and ready to be shown: overview, counterfactuals, subgroups."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from encoders.network import Integers
from solvers.outcome import Limit
from verifair.systems.fgce.decider import beside
from verifair.systems.fgce.estimator import Group, GroupCounterfactuals
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.measures import Interval, change_frequency, interval
from verifair.systems.fgce.optimum.center import Centers

GREEDY = 1 - 1 / np.e
"""What greedy reaches of the best coverage, at least."""


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """How sure the optimum is.   of: which number is optimised.   value: found.   bound: nothing is better than that.

    trust: proved here in whole numbers, or claimed by a solver.   optimal: value and bound meet.   text: one line.
    """

    of: Literal["cost", "coverage"]
    value: float
    bound: float
    trust: Literal["proved", "claimed"]
    optimal: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One chosen counterfactual.   row: label of the table's row.   values: of it, in words.   serves: factuals sent to it.

    largest, mean: their cost.   changes: feature -> share of them that must change it (ACF), largest first, without zeros.
    """

    row: Hashable
    values: Mapping[str, Any]
    serves: int
    largest: float
    mean: float
    changes: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """One weak component of a group.   component: its number in the graph.   common: fixed features that set it apart.

    factuals: with a feasible counterfactual.   hopeless: without.   candidates: positive rows of the component.   used:
    counterfactuals that serve it.   covered: factuals they serve.   largest, mean: their cost, NaN where nobody is served.
    """

    component: int
    common: Mapping[str, Any]
    factuals: int
    hopeless: int
    candidates: int
    used: int
    covered: int
    largest: float
    mean: float


@dataclass(frozen=True, kw_only=True)
class GroupSummary:
    """One group.   negatives: to be explained, hopeless of them without any feasible counterfactual, factuals with one.

    covered: of the factuals.   coverage: that share, with its bootstrap interval.   cost: the largest of those covered.
    mean: their mean cost with its interval, None where nobody is covered.   cheapest: the least cost of any counterfactual of
    anybody.   subgroups: largest first.
    """

    name: str
    negatives: int
    hopeless: int
    factuals: int
    covered: int
    coverage: Interval
    cost: float
    mean: Interval | None
    cheapest: float
    certainty: Certainty
    advice: tuple[Advice, ...]
    subgroups: tuple[Subgroup, ...]

    @property
    def used(self) -> int:
        """Counterfactuals that serve somebody."""
        return len(self.advice)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        out = asdict(self)
        return {**out, "used": self.used, "hopeless_share": self.hopeless / self.negatives}


def summaries(model: GroupCounterfactuals, rows: pd.Index, *, seed: int = 0) -> list[GroupSummary]:
    """All groups of a fitted model. rows: (N,) what the table's rows are called.   seed: of the bootstrap."""
    return [_summary(model, name, group, rows, seed) for name, group in model.groups_.items()]


def explanations(model: GroupCounterfactuals, rows: pd.Index) -> pd.DataFrame:
    """One line for each factual: group, row, component, counterfactual, cost, and what changes in words, or why there is none."""
    lines = []
    for name, group in model.groups_.items():
        weak = model.reachability_.weak
        without = np.full(len(group.instance.hopeless), -1)
        nodes = np.concatenate([group.instance.factuals, group.instance.hopeless]).tolist()
        targets = np.concatenate([group.assigned, without]).tolist()
        for n, (node, target) in enumerate(zip(nodes, targets, strict=True)):
            line: dict[str, Any] = {"group": name, "row": rows[node], "component": int(weak[node])}
            if target >= 0:
                line |= {"counterfactual": rows[target], "cost": float(group.cost[n]), "changes": _change(model, node, target)}
            else:
                why = "not covered" if n < group.instance.size else "no feasible counterfactual"
                line |= {"counterfactual": None, "cost": None, "changes": why}
            lines.append(line)
    table = pd.DataFrame(lines)
    return table.assign(counterfactual=pd.Series([line["counterfactual"] for line in lines], dtype=object))  # not 308.0 for 308


def advice_table(found: Sequence[GroupSummary]) -> pd.DataFrame:
    """One line for each chosen counterfactual: group, row, how many it serves, costs, all its values."""
    lines = []
    for one in found:
        for a in one.advice:
            line = {"group": one.name, "row": a.row, "serves": a.serves, "largest cost": a.largest, "mean cost": a.mean}
            names = beside(list(line), list(a.values))
            lines.append({**line, **{names[name]: value for name, value in a.values.items()}})
    return pd.DataFrame(lines)


def subgroup_table(found: Sequence[GroupSummary]) -> pd.DataFrame:
    """One line for each subgroup of each group."""
    return pd.DataFrame([
        {"group": one.name, **asdict(part), "common": words(part.common)} for one in found for part in one.subgroups
    ])  # fmt: skip


def words(values: Mapping[str, Any]) -> str:
    """feature = value, feature = value"""
    return ", ".join(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in values.items())


def _summary(model: GroupCounterfactuals, name: str, group: Group, rows: pd.Index, seed: int) -> GroupSummary:
    served = group.assigned >= 0
    return GroupSummary(
        name=name,
        negatives=len(group.negatives),
        hopeless=len(group.instance.hopeless),
        factuals=group.instance.size,
        covered=int(served.sum()),
        coverage=interval(served.astype(float), seed=seed),
        cost=float(group.cost[served].max(initial=0.0)) if served.any() else float("nan"),
        mean=interval(group.cost[served], seed=seed) if served.any() else None,
        cheapest=min(float(block.cost.min()) for block in group.instance.blocks),
        certainty=_certainty(group, model.method),
        advice=tuple(_advice(model, group, int(node), rows) for node in _by_use(group)),
        subgroups=_subgroups(model, group),
    )


def _by_use(group: Group) -> Integers:
    """Chosen nodes that serve somebody, those that serve most first."""
    nodes, counts = np.unique(group.assigned[group.assigned >= 0], return_counts=True)
    return np.asarray(nodes[np.argsort(-counts, kind="stable")], dtype=np.int64)


def _advice(model: GroupCounterfactuals, group: Group, node: int, rows: pd.Index) -> Advice:
    own = group.assigned == node
    raw = model.graph_.raw
    shares = change_frequency(model.space_, raw, group.instance.factuals[own], group.assigned[own]).sort_values(ascending=False)
    return Advice(
        row=rows[node], values=model.schema.decode(raw[node]), serves=int(own.sum()), largest=float(group.cost[own].max()),
        mean=float(group.cost[own].mean()), changes={str(f): float(share) for f, share in shares.items() if share > 0},
    )  # fmt: skip


def _subgroups(model: GroupCounterfactuals, group: Group) -> tuple[Subgroup, ...]:
    reach, instance = model.reachability_, group.instance
    weak = reach.weak
    out = []
    for component in np.unique(weak[group.negatives]).tolist():
        own = weak[instance.factuals] == component
        served = own & (group.assigned >= 0)
        cost = group.cost[served]
        out.append(Subgroup(
            component=component, common=_common(model, group, component, reach), factuals=int(own.sum()),
            hopeless=int((weak[instance.hopeless] == component).sum()),
            candidates=int((weak[instance.candidates] == component).sum()),
            used=len(np.unique(group.assigned[served])), covered=int(served.sum()),
            largest=float(cost.max()) if len(cost) else float("nan"), mean=float(cost.mean()) if len(cost) else float("nan"),
        ))  # fmt: skip
    return tuple(sorted(out, key=lambda one: -one.factuals - one.hopeless))


def _common(model: GroupCounterfactuals, group: Group, component: int, reach: Reachability) -> dict[str, Any]:
    """Fixed features, which no move changes, in which the group's negatives are not all alike."""
    raw = model.graph_.raw
    first = int(group.negatives[reach.weak[group.negatives] == component][0])
    here = model.schema.decode(raw[first])
    return {
        feature.name: here[feature.name]
        for v, (feature, change) in enumerate(zip(model.schema.features, model.space_.changes, strict=True))
        if change == "fixed" and np.ptp(raw[group.negatives, v]) > 0
    }


def _change(model: GroupCounterfactuals, node: int, target: int) -> str:
    """feature: before -> after; ..."""
    schema, raw = model.schema, model.graph_.raw
    differ = np.flatnonzero(model.space_.changed(raw[node], raw[target]))
    names = [schema.features[v].name for v in differ]
    return "; ".join(
        f"{name}: {schema.format(name, raw[node, v])} -> {schema.format(name, raw[target, v])}"
        for name, v in zip(names, differ, strict=True)
    )


def _certainty(group: Group, method: str) -> Certainty:
    """What is known of the optimum, with who says so."""
    found, robust = group.found, group.robust
    among = "" if robust is None else " among robust rows"
    late = f"{robust.undecided} rows were not decided" if robust is not None and robust.undecided else "time was up"
    if isinstance(found, Centers):
        outcome = found.outcome
        by = "proved" if found.proved or outcome is None else f"claimed by {outcome.backend} {outcome.version}"
        why = late if outcome is None or outcome.limit in (None, Limit.TIME) else f"stopped ({outcome.limit.value})"
        if not np.isfinite(found.cost):
            text = f"{why} before enough were covered; no cost below {found.lower:.4g} can do it ({by})"
        elif found.optimal:
            text = f"optimal{among}, {by}"
        else:
            share = (found.cost - found.lower) / found.cost if found.cost else 0.0
            text = f"not below {found.lower:.4g}{among} ({by}), gap {100 * share:.1f}%: {why}"
        trust: Literal["proved", "claimed"] = "proved" if found.proved else "claimed"
        return Certainty(of="cost", value=found.cost, bound=found.lower, trust=trust, optimal=found.optimal, text=text)
    size = group.instance.size
    bound = f"{100 * found.bound / size:.1f}%"
    if found.optimal:
        text = f"the most there is{among}, proved"
    elif method == "greedy":
        text = f"greedy's, at least {100 * GREEDY:.0f}% of the most, which is at most {bound}{among}"
    else:
        text = f"no choice{among} covers more than {bound} (proved): {late}"
    return Certainty(
        of="coverage", value=found.covered / size, bound=found.bound / size, trust="proved", optimal=found.optimal, text=text
    )
