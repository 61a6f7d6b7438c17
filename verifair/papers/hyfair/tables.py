"""Tables of the HyFair paper: discriminatory instances by solver, searches for the largest k, rules beside LIME, mitigation; and,
which the paper lacks, the costs of a certified gap and of the certified largest k that follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from encoders.network import Array
from encoders.onnx.reader import read_onnx
from solvers import registry
from solvers.outcome import Budget, LicenceLimit
from solvers.registry import Capability
from verifair.checker.check import check
from verifair.datasets import Dataset
from verifair.engine.buckets.kmax import kmax
from verifair.engine.counterexamples import counterexamples
from verifair.engine.queries import IndividualFairness, KDiscrimination
from verifair.errors import QueryError
from verifair.papers.catalog import Request
from verifair.papers.hyfair.data import Question, declared, question
from verifair.papers.hyfair.printed import table_1, table_2, table_3, table_4
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain import lime
from verifair.systems.hyfair.explain.refusals import snapped
from verifair.systems.hyfair.explain.rounds import Rounds, explain_rounds, outside, with_network
from verifair.systems.hyfair.explain.samples import severity_of
from verifair.systems.hyfair.explain.settings import ExplainSettings
from verifair.systems.hyfair.guard.effects import EffectData, effect, score
from verifair.systems.hyfair.guard.retraining import retrain
from verifair.systems.hyfair.guard.tighten import Tightening, largest
from verifair.systems.hyfair.search.annealing import METHODS, search_clusters
from verifair.systems.hyfair.search.space import Space

EPSILON = 0.05
ALL = 10**9
"""A search does not end at the largest k: what it meets there is counted."""
MOST = 1_000_000
"""People listed at most: more than any time limit allows."""
ROUNDS = 3
"""Clusters that table IV's rules are about, each outside the rules of those before."""
ITERATIONS = 500
"""Steps of each search before and after a mitigation."""
PARTS_OF_GAP = (0.9, 0.75, 0.5, 0.25)
"""The targets of table 5, as parts of the largest gap found."""
RETRAININGS, EPOCHS = 3, 10
"""Rounds of retraining in table 5, and epochs of each."""


def instances(request: Request) -> pd.DataFrame:
    """Table I: people with a gap above epsilon, by solver, in the same time; k of the first one and the largest k of all.

    Protected are Fairify's attributes: of Adult race and sex, of Bank age.
    """
    asked = question(request)
    protected = tuple(name for name in asked.protected if name in asked.schema.protected_names)
    space = Space.of(KDiscrimination(network=asked.network, schema=asked.schema, protected=protected))
    query = IndividualFairness(network=asked.network, schema=asked.schema, protected=protected, epsilon=EPSILON, differ="any")
    lines: list[dict[str, Any]] = []
    for method, solver in _solvers():
        line = {"network": request.dataset, "method": method, "solver": solver or "verifair"}
        budget = Budget(seconds=request.seconds, seed=request.seed)
        try:
            found = counterexamples(query, MOST, budget=budget, method=method, solver=solver)
        except LicenceLimit:
            lines.append({**line, "#ID": np.nan, "T.1st": np.nan, "k of the first": np.nan, "largest k": np.nan})
            continue
        k = space.count(_rows(asked.schema, [one.x for one in found.found])) if found.found else np.empty(0)
        lines.append({
            **line, "#ID": len(found.found), "T.1st": found.first_seconds,
            "k of the first": float(k[0]) if len(k) else np.nan, "largest k": float(k.max()) if len(k) else np.nan,
        })
    ours = pd.DataFrame(lines).astype({"T.1st": float})
    return ours.merge(table_1(), how="left", on=["network", "method"])


def _solvers() -> Iterator[tuple[str, str | None]]:
    """Yield (name in table I, solver): our search, and each installed MIP and SMT solver."""
    yield "bnb", None
    for one in registry.backends():
        if one.is_available() and Capability.MIP in one.capabilities:
            yield ("smt" if Capability.CLAUSES in one.capabilities else "milp"), one.name


def searches(request: Request) -> pd.DataFrame:
    """Table II: random walk, annealing, and annealing among neighbours, in the same time."""
    asked, lines = question(request), list[dict[str, Any]]()
    query, rows = asked.clusters, asked.schema.raw(asked.table.frame)
    for method in METHODS:
        found = search_clusters(query, method=method, data=rows, seconds=request.seconds, seed=request.seed, enough=ALL)
        s = found.statistics
        lines.append({
            "network": request.dataset, "search": method, "iterations": s.iterations, "rows": s.rows, "Max.K": found.k,
            "Avg.K": s.mean_k, "T.1st": s.first_seconds, "#ID": s.instances, "Succ.rate": 100 * s.success_rate,
            "#ID.maxK": s.at_best, "T.maxK": s.best_seconds,
        })
    return pd.DataFrame(lines).astype({"T.1st": float}).merge(table_2(), how="left", on=["network", "search"])


def explanations(request: Request) -> pd.DataFrame:
    """Table III: rules about the worst cluster, beside local surrogates as LIME fits them."""
    asked = question(request)
    found = _explained(request, asked, 1)
    space, rows = Space.of(asked.clusters), asked.schema.raw(asked.table.train)
    severity = severity_of(space, "k")
    fitted = [lime.surrogates(space, one.centre, severity, rows=rows, seed=request.seed) for one in found.found]
    lines = lime.comparison(asked.schema, found.found, fitted)
    ours = pd.DataFrame([{"network": request.dataset, **line.model_dump(by_alias=True, exclude={"features"})} for line in lines])
    return ours.merge(table_3(), how="left", on=["network", "method"])


def mitigations(request: Request) -> pd.DataFrame:
    """Table IV: the network and the retrained one, without and with a guardrail of rules about ROUNDS clusters."""
    asked = question(request)
    found = _explained(request, asked, ROUNDS)
    rules, table, query = snapped(found.rules, asked.schema), asked.table, asked.clusters
    centres = np.stack([one.centre for one in found.found])
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "retrained.onnx"
        retrain(Space.of(query), table, centres, path, seed=request.seed)
        networks = ("original", query), ("retrained", with_network(query, read_onnx(path)))
        on = EffectData(
            data=asked.schema.raw(table.test), labels=asked.schema.labels(table.test), clusters=None, iterations=ITERATIONS,
            budget=Budget(seconds=request.seconds, nodes=None, seed=request.seed),
        )
        guarded = ("", ()), (" + rules", rules)
        effects = [effect(name + suffix, one, chosen, on) for name, one in networks for suffix, chosen in guarded]
    ours = pd.DataFrame([
        {
            "network": request.dataset, "intervention": one.intervention, "accuracy, %": _percent(one.accuracy),
            "refused, %": _percent(one.abstained), "Max.K": one.max_k, "Avg.K": one.mean_k, "#ID": one.instances,
            "Succ.rate": _percent(one.success_rate), "#ID.maxK": one.at_best,
        }
        for one in effects
    ])
    return ours.astype({"Avg.K": float}).merge(table_4(), how="left", on=["network", "intervention"])


def prices(request: Request) -> pd.DataFrame:
    """The costs of a certified gap and largest k: the share of held-out rows that a guardrail refuses, for a series of targets, for
    the network and after each round of retraining. Targets are fractions of the first network's gap.

    Bank has nine ages here: with two, k is at most 2.
    """
    asked = question(request) if request.dataset.startswith("BM") else declared(request)
    query, lines = asked.clusters, list[dict[str, Any]]()
    with TemporaryDirectory() as scratch:
        for times in range(RETRAININGS + 1):
            if times:
                path = Path(scratch) / f"{times}.onnx"
                query = _retrained(query, asked.table, path, seconds=request.seconds, seed=request.seed + times)
            before = largest(query, request.seconds, request.seed)
            first = lines[0]["gap met"] if lines else before.lower
            line = {"network": request.dataset, "retrained": times, "gap met": before.lower}
            lines += [line | one for one in _priced(query, asked, request, before.upper, [part * first for part in PARTS_OF_GAP])]
    return pd.DataFrame(lines)


def _priced(
    query: KDiscrimination, asked: Question, request: Request, certified: float, targets: Sequence[float]
) -> list[dict[str, Any]]:
    """Return a line for a network without a guardrail, with the gap certified so far, and one for each target."""
    schema, table = asked.schema, asked.table
    train, test, labels = schema.raw(table.train), schema.raw(table.test), schema.labels(table.test)
    most = kmax(query, budget=Budget(seconds=request.seconds, seed=request.seed), start=train)
    work = Tightening(question=query, given=(), rows=train, seed=request.seed)
    accuracy, _ = score(query.network, schema, (), test, labels)
    lines = [_price("none", certified, most.upper, 0.0, 1.0, accuracy)]
    for part, target in zip(PARTS_OF_GAP, targets, strict=True):
        try:
            found = work.towards(target, request.seconds)
        except QueryError:  # nothing was proved
            lines.append(_price(f"{part:g}", target, 0, 1.0, 0.0, None))
            continue
        k = min(most.upper, found.most_buckets(query.buckets))
        if not check(found.certificate, network=query.network, schema=outside(query, found.rules).schema).accepted:
            raise AssertionError(f"{request.dataset}: the certificate of a gap of {target:g} is rejected")
        accuracy, refused = score(query.network, schema, found.rules, test, labels)
        lines.append(_price(f"{part:g}", target, k, refused, found.domain, accuracy))
    for n in reversed(range(1, len(lines) - 1)):  # rules with a smaller gap that refuse no more also serve a larger target
        if lines[n + 1]["refused, %"] <= lines[n]["refused, %"]:
            lines[n] = lines[n + 1] | {"part of it": lines[n]["part of it"]}
    return [{"k met": most.lower} | line for line in lines]


def _retrained(query: KDiscrimination, table: Dataset, out: Path, *, seconds: float, seed: int) -> KDiscrimination:
    """Train the network on, with the rows of data and samples around the worst cluster that it treats differently."""
    rows = query.schema.raw(table.train)
    worst = search_clusters(query, method="sa-knn", data=rows, seconds=seconds, seed=seed).peers[:1]
    retrain(Space.of(query), table, worst, out, epochs=EPOCHS, seed=seed)
    return with_network(query, read_onnx(out))


def _price(part: str, gap: float, k: int, refused: float, domain: float, accuracy: float | None) -> dict[str, Any]:
    return {
        "part of it": part, "certified gap": gap, "certified k": k, "refused, %": 100 * refused,
        "domain answered, %": 100 * domain, "accuracy, %": _percent(accuracy),
    }


def _explained(request: Request, asked: Question, rounds: int) -> Rounds:
    own, rows = Budget(seconds=request.seconds, nodes=None, seed=request.seed), asked.schema.raw(asked.table.train)
    return explain_rounds(asked.clusters, ExplainSettings(rounds=rounds), budget=own, rows=rows)


def _percent(share: float | None) -> float:
    return np.nan if share is None else 100 * share


def _rows(schema: Schema, people: list[dict[str, Any]]) -> Array:
    return np.array([[schema.raw_value(feature.name, x[feature.name]) for feature in schema.features] for x in people])
