"""The result of FGCE for each group, in the schema's words, and the comparison of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from encoders.arrays import Array, Booleans, Integers
from solvers.outcome import Limit
from verifair.checker.certificates.centers import NEAR
from verifair.systems.fgce.estimator import Group, GroupCounterfactuals
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.measures.burden import Burden
from verifair.systems.fgce.measures.changes import change_frequency
from verifair.systems.fgce.optimum.center import Centers
from verifair.systems.fgce.result import Advice, Certainty, GroupComparison, GroupSummary, OutOfReach, Subgroup
from verifair.systems.proportions import critical, level_of_pairs, newcombe, wilson_of
from verifair.systems.results.result import Interval
from verifair.systems.results.words import percent, rounded

GREEDY = 1 - 1 / np.e
"""The share of the best coverage that greedy reaches at least."""
WITHOUT, LEAST = "share without any feasible counterfactual", "mean least cost"
"""Measures of everybody's own, whatever is chosen for the group: the second is of the cheapest row that each can reach."""
INTERVALS = (
    "Intervals are of 95 %: of shares Wilson's and Newcombe's, of costs by bootstrap over people; those of differences hold for "
    "all pairs of groups together"
)


def summaries(model: GroupCounterfactuals, rows: pd.Index, *, seed: int = 0) -> list[GroupSummary]:
    """Return all groups of a fitted model. rows: (N,) names of the table's rows.   seed: of the bootstrap."""
    return [_summary(model, name, group, rows, seed) for name, group in model.groups_.items()]


def explanations(model: GroupCounterfactuals, rows: pd.Index) -> pd.DataFrame:
    """Return one line for each factual: group, row, component, counterfactual, cost, and what changes, or why it has none."""
    lines = []
    for name, group in model.groups_.items():
        weak = model.reachability_.weak
        unassigned = np.full(len(group.instance.hopeless), -1)
        nodes = np.concatenate([group.instance.factuals, group.instance.hopeless]).tolist()
        targets = np.concatenate([group.assigned, unassigned]).tolist()
        for n, (node, target) in enumerate(zip(nodes, targets, strict=True)):
            line: dict[str, Any] = {"group": name, "row": rows[node], "component": int(weak[node])}
            if target >= 0:
                line |= {"counterfactual": rows[target], "cost": float(group.cost[n]), "changes": _change(model, node, target)}
            else:
                reason = "not covered" if n < group.instance.size else "no feasible counterfactual"
                line |= {"counterfactual": None, "cost": None, "changes": reason}
            lines.append(line)
    table = pd.DataFrame(lines)
    return table.assign(counterfactual=pd.Series([line["counterfactual"] for line in lines], dtype=object))  # not 308.0 for 308


def comparisons(
    model: GroupCounterfactuals, groups: Sequence[GroupSummary], burden: Burden | None, *, seed: int = 0
) -> list[GroupComparison]:
    """Return every measure that compares groups; empty for a single group."""
    if len(groups) < 2:
        return []
    people = {summary.name: summary.factuals for summary in groups}
    hopeless = {summary.name: (summary.hopeless, summary.negatives) for summary in groups}
    missed = {summary.name: (summary.factuals - summary.covered, summary.factuals) for summary in groups}
    # The mean cost of the chosen counterfactuals depends on which optimum was found, as only the largest cost is optimised.
    costs = {name: group.instance.nearest for name, group in model.groups_.items()}
    lines = [_of_shares(WITHOUT, hopeless)]
    if any(summary.covered < summary.factuals for summary in groups):
        lines.append(_of_shares("share of the others that is not covered", missed))
    if groups[0].certainty.of == "cost" and all(summary.short is None for summary in groups):  # of equal coverage
        lines.append(_of_largest(groups, people))
    lines.append(_of_means(LEAST, costs, seed))
    return lines + (_of_burden(burden, people) if burden is not None else [])


def _summary(model: GroupCounterfactuals, name: str, group: Group, rows: pd.Index, seed: int) -> GroupSummary:
    served = group.assigned >= 0
    return GroupSummary(
        name=name,
        negatives=len(group.negatives),
        hopeless=len(group.instance.hopeless),
        factuals=group.instance.size,
        covered=int(served.sum()),
        coverage=share_interval(served),
        cost=float(group.cost[served].max(initial=0.0)) if served.any() else float("nan"),
        mean=interval(group.cost[served], seed=seed) if served.any() else None,
        cheapest=min(float(block.cost.min()) for block in group.instance.blocks),
        certainty=_certainty(group, model.method),
        advice=tuple(_advice(model, group, int(node), rows) for node in _by_use(group)),
        subgroups=_subgroups(model, group),
        short=None if group.short is None else OutOfReach(asked=group.short.asked, needed=group.short.needed),
    )


def _by_use(group: Group) -> Integers:
    """Return the chosen nodes that serve somebody, those that serve most first."""
    nodes, counts = np.unique(group.assigned[group.assigned >= 0], return_counts=True)
    return np.asarray(nodes[np.argsort(-counts, kind="stable")], dtype=np.int64)


def _advice(model: GroupCounterfactuals, group: Group, node: int, rows: pd.Index) -> Advice:
    served = group.assigned == node
    raw = model.graph_.raw
    shares = change_frequency(model.space_, model.levels_, group.instance.factuals[served], group.assigned[served])
    shares = shares.sort_values(ascending=False)
    return Advice(
        row=rows[node], values=model.schema.decode(raw[node]), serves=int(served.sum()), largest=float(group.cost[served].max()),
        mean=float(group.cost[served].mean()), changes={str(f): float(share) for f, share in shares.items() if share > 0},
    )


def _subgroups(model: GroupCounterfactuals, group: Group) -> tuple[Subgroup, ...]:
    reach, instance = model.reachability_, group.instance
    weak = reach.weak
    subgroups = []
    for component in np.unique(weak[group.negatives]).tolist():
        members = weak[instance.factuals] == component
        served = members & (group.assigned >= 0)
        cost = group.cost[served]
        subgroups.append(Subgroup(
            component=component, common=_common(model, group, component, reach), factuals=int(members.sum()),
            hopeless=int((weak[instance.hopeless] == component).sum()),
            candidates=int((weak[instance.candidates] == component).sum()),
            used=len(np.unique(group.assigned[served])), covered=int(served.sum()),
            largest=float(cost.max()) if len(cost) else float("nan"), mean=float(cost.mean()) if len(cost) else float("nan"),
        ))
    return tuple(sorted(subgroups, key=lambda subgroup: -subgroup.factuals - subgroup.hopeless))


def _common(model: GroupCounterfactuals, group: Group, component: int, reach: Reachability) -> dict[str, Any]:
    """Return the component's values of the fixed features (which no move changes) in which the group's negatives differ."""
    raw = model.graph_.raw
    first = int(group.negatives[reach.weak[group.negatives] == component][0])
    values = model.schema.decode(raw[first])
    return {
        feature.name: values[feature.name]
        for v, (feature, change) in enumerate(zip(model.schema.features, model.space_.changes, strict=True))
        if change == "fixed" and np.ptp(raw[group.negatives, v]) > 0
    }


def _change(model: GroupCounterfactuals, node: int, target: int) -> str:
    """Return "feature: before -> after; ..."."""
    schema, raw = model.schema, model.graph_.raw
    differ = np.flatnonzero(model.space_.changed(raw[node], raw[target]))
    names = [schema.features[v].name for v in differ]
    return "; ".join(
        f"{name}: {schema.format(name, raw[node, v])} -> {schema.format(name, raw[target, v])}"
        for name, v in zip(names, differ, strict=True)
    )


def _certainty(group: Group, method: str) -> Certainty:
    """Return the bounds of the optimum, and whether they are proved or a solver's claim."""
    found, robust = group.found, group.robust
    scope = " among robust rows" if robust is not None else " for the most that k can cover" if group.short is not None else ""
    stopped = f"{robust.undecided} rows were not decided" if robust is not None and robust.undecided else "time was up"
    if isinstance(found, Centers):
        outcome = found.outcome
        by = "proved" if found.proved or outcome is None else f"claimed by {outcome.backend} {outcome.version}"
        reason = stopped if outcome is None or outcome.limit in (None, Limit.TIME) else f"stopped ({outcome.limit.value})"
        if not np.isfinite(found.cost):
            text = f"{reason} before enough were covered; no cost below {rounded(found.lower, up=False, digits=4)} can do it ({by})"
        elif found.optimal:
            text = f"optimal{scope}, {by}"
        else:
            share = (found.cost - found.lower) / found.cost if found.cost else 0.0
            text = f"not below {rounded(found.lower, up=False, digits=4)}{scope} ({by}), gap {percent(share)}: {reason}"
        trust: Literal["proved", "claimed"] = "proved" if found.proved else "claimed"
        return Certainty(of="cost", value=found.cost, bound=found.lower, trust=trust, optimal=found.optimal, text=text)
    size = group.instance.size
    bound = f"{rounded(100 * found.bound / size, up=True, digits=1)}%"
    if found.optimal:
        text = f"the most there is{scope}, proved"
    elif method == "greedy":
        text = f"greedy's, at least {100 * GREEDY:.0f}% of the most, which is at most {bound}{scope}"
    else:
        text = f"no choice{scope} covers more than {bound} (proved): {stopped}"
    return Certainty(
        of="coverage", value=found.covered / size, bound=found.bound / size, trust="proved", optimal=found.optimal, text=text
    )


def _of_burden(burden: Burden, people: Mapping[str, int]) -> list[GroupComparison]:
    reaches = {name: reach for name, reach in burden.reach.items() if reach is not None}
    lines = []
    if set(people) <= set(reaches):
        proved = all(reaches[name].optimal for name in people)
        lines += [
            _of("k0, fewest for full coverage", {name: float(reaches[name].k0) for name in people}, people),
            _best_known("d0 with k0", {name: reaches[name].d0 for name in people}, people, proved),
            _of("d0 with any number", {name: reaches[name].d_least for name in people}, people),
        ]
    for title, table, by, sign in (
        ("kAUC, mean over k (higher is better)", burden.kauc, "k", -1.0),
        ("dAUC, mean over d (higher is better)", burden.dauc, "d", -1.0),
        ("cAUC, mean over c", burden.cauc, "c", 1.0),
    ):
        if not len(table):
            continue
        pivot = table.pivot(index=by, columns="group", values="score").dropna()
        if len(pivot) and set(people) <= set(pivot.columns):
            widths = table.drop_duplicates(by).set_index(by)["width"][pivot.index] if "width" in table else None
            lines.append(_of(title, {name: float(np.average(pivot[name], weights=widths)) for name in people}, people, sign))
    return lines


def _of(measure: str, values: Mapping[str, float], people: Mapping[str, int], sign: float = 1.0) -> GroupComparison:
    """Return a measure's comparison among the ranked groups; no group is worst if all are equal within NEAR.

    sign: -1 if more is better.
    """
    line = GroupComparison(measure=measure, values=dict(values), people=dict(people), worst=None, apart=float("nan"))
    if len(line.ranked) < 2:
        return line
    signed = {name: sign * values[name] for name in line.ranked}
    worst = max(signed, key=lambda name: signed[name])
    apart = signed[worst] - min(signed.values())
    return line.model_copy(update={"worst": worst if apart > NEAR * abs(signed[worst]) else None, "apart": apart})


def _of_largest(groups: Sequence[GroupSummary], people: Mapping[str, int]) -> GroupComparison:
    """Compare the largest cost: a group is certainly worse if its lower bound is at least the cost found for the others."""
    optimal = all(group.certainty.optimal for group in groups)
    line = _best_known("largest cost d", {group.name: group.cost for group in groups}, people, optimal)
    ranked = {group.name: group.certainty for group in groups if group.name in line.ranked}
    if line.worst is None:
        return line
    others = max(group.value for name, group in ranked.items() if name != line.worst)
    return line.model_copy(update={"known": ranked[line.worst].bound >= others})


def _best_known(measure: str, values: Mapping[str, float], people: Mapping[str, int], optimal: bool) -> GroupComparison:
    return _of(measure + ("" if optimal else " (best known)"), values, people).model_copy(update={"known": optimal})


def _of_means(measure: str, values: Mapping[str, Array], seed: int) -> GroupComparison:
    """Compare means over people: the difference of the worst and the best group has an interval."""
    means = {name: float(costs.mean()) if len(costs) else float("nan") for name, costs in values.items()}
    line = _of(measure, means, {name: len(costs) for name, costs in values.items()})
    if line.worst is None:
        return line
    best = min(line.ranked, key=lambda name: means[name])
    bounds = bootstrap(
        (values[line.worst], values[best]), lambda a, b, axis=-1: a.mean(axis=axis) - b.mean(axis=axis), method="percentile",
        vectorized=True, n_resamples=2000, batch=256, rng=seed, confidence_level=level_of_pairs(len(line.ranked)),
    ).confidence_interval
    return _with_interval(line, bounds.low, bounds.high)


def _of_shares(measure: str, counts: Mapping[str, tuple[int, int]]) -> GroupComparison:
    """Compare shares of people, counts (some, all): the difference of the worst and the best group has Newcombe's interval."""
    shares = {name: count / people if people else float("nan") for name, (count, people) in counts.items()}
    line = _of(measure, shares, {name: people for name, (_, people) in counts.items()})
    if line.worst is None:
        return line
    best = min(line.ranked, key=lambda name: shares[name])
    (_, worst_people), (_, best_people) = counts[line.worst], counts[best]
    z = critical(level_of_pairs(len(line.ranked)), 2)
    return _with_interval(line, *newcombe(np.array(shares[line.worst]), worst_people, np.array(shares[best]), best_people, z))


def _with_interval(line: GroupComparison, low: Any, high: Any) -> GroupComparison:
    return line.model_copy(update={"chance": Interval(mean=line.apart, low=float(low), high=float(high))})


def interval(values: Array, *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Return the percentile bootstrap interval of a mean over factuals (F,), such as of costs; for one factual it has no ends."""
    mean = float(values.mean())
    if len(values) < 2:
        return Interval(mean=mean, low=np.nan, high=np.nan)
    if np.ptp(values) == 0:
        return Interval(mean=mean, low=mean, high=mean)
    result = bootstrap((values,), np.mean, confidence_level=level, n_resamples=resamples, method="percentile", rng=seed, batch=256)
    low, high = result.confidence_interval
    return Interval(mean=mean, low=float(low), high=float(high))


def share_interval(true: Booleans) -> Interval:
    """Return Wilson's 95 % interval of the share of True among people (F,)."""
    share = float(true.mean())
    low, high = wilson_of(share, len(true))
    return Interval(mean=share, low=low, high=high)
