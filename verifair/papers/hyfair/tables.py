"""Tables of the HyFair paper: discriminatory instances by solver, searches for the largest k, rules beside LIME, mitigation; and,
which the paper lacks, the costs of a certified gap and of the certified largest k that follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Array
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
MAX_INSTANCES = 1_000_000
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
    setup = question(request)
    protected = tuple(name for name in setup.protected if name in setup.schema.protected_names)
    space = Space.of(KDiscrimination(model=setup.network, schema=setup.schema, protected=protected))
    query = IndividualFairness(model=setup.network, schema=setup.schema, protected=protected, epsilon=EPSILON, differ="any")
    lines: list[dict[str, Any]] = []
    for method, solver in _solvers():
        line = {"network": request.dataset, "method": method, "solver": solver or "verifair"}
        budget = Budget(seconds=request.seconds, seed=request.seed)
        try:
            result = counterexamples(query, MAX_INSTANCES, budget=budget, method=method, solver=solver)
        except LicenceLimit:
            lines.append({**line, "#ID": np.nan, "T.1st": np.nan, "k of the first": np.nan, "largest k": np.nan})
            continue
        k = space.count(_rows(setup.schema, [witness.x for witness in result.found])) if result.found else np.empty(0)
        lines.append({
            **line, "#ID": len(result.found), "T.1st": result.first_seconds,
            "k of the first": float(k[0]) if len(k) else np.nan, "largest k": float(k.max()) if len(k) else np.nan,
        })
    ours = pd.DataFrame(lines).astype({"T.1st": float})
    return ours.merge(table_1(), how="left", on=["network", "method"])


def _solvers() -> Iterator[tuple[str, str | None]]:
    """Yield (name in table I, solver): our search, and each installed MIP and SMT solver."""
    yield "bnb", None
    for backend in registry.backends():
        if backend.is_available() and Capability.MIP in backend.capabilities:
            yield ("smt" if Capability.CLAUSES in backend.capabilities else "milp"), backend.name


def searches(request: Request) -> pd.DataFrame:
    """Table II: random walk, annealing, and annealing among neighbours, in the same time."""
    setup, lines = question(request), list[dict[str, Any]]()
    query, rows = setup.clusters, setup.schema.raw(setup.table.frame)
    for method in METHODS:
        result = search_clusters(query, method=method, data=rows, seconds=request.seconds, seed=request.seed, enough=ALL)
        s = result.statistics
        lines.append({
            "network": request.dataset, "search": method, "iterations": s.iterations, "rows": s.rows, "Max.K": result.k,
            "Avg.K": s.mean_k, "T.1st": s.first_seconds, "#ID": s.instances, "Succ.rate": 100 * s.success_rate,
            "#ID.maxK": s.at_best, "T.maxK": s.best_seconds,
        })
    return pd.DataFrame(lines).astype({"T.1st": float}).merge(table_2(), how="left", on=["network", "search"])


def explanations(request: Request) -> pd.DataFrame:
    """Table III: rules about the worst cluster, beside local surrogates as LIME fits them."""
    setup = question(request)
    result = _explanation(request, setup, 1)
    space, rows = Space.of(setup.clusters), setup.schema.raw(setup.table.train)
    severity = severity_of(space, "k")
    fitted = [lime.surrogates(space, cluster.centre, severity, rows=rows, seed=request.seed) for cluster in result.found]
    lines = lime.comparison(setup.schema, result.found, fitted)
    ours = pd.DataFrame([{"network": request.dataset, **line.model_dump(by_alias=True, exclude={"features"})} for line in lines])
    return ours.merge(table_3(), how="left", on=["network", "method"])


def mitigations(request: Request) -> pd.DataFrame:
    """Table IV: the network and the retrained one, without and with a guardrail of rules about ROUNDS clusters."""
    setup = question(request)
    result = _explanation(request, setup, ROUNDS)
    rules, table, query = snapped(result.rules, setup.schema), setup.table, setup.clusters
    centres = np.stack([cluster.centre for cluster in result.found])
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "retrained.onnx"
        retrain(Space.of(query), table, centres, path, seed=request.seed)
        networks = ("original", query), ("retrained", with_network(query, read_onnx(path)))
        effect_data = EffectData(
            data=setup.schema.raw(table.test), labels=setup.schema.labels(table.test), clusters=None, iterations=ITERATIONS,
            budget=Budget(seconds=request.seconds, nodes=None, seed=request.seed),
        )
        rule_sets = ("", ()), (" + rules", rules)
        effects = [effect(name + suffix, q, chosen, effect_data) for name, q in networks for suffix, chosen in rule_sets]
    ours = pd.DataFrame([
        {
            "network": request.dataset, "intervention": e.intervention, "accuracy, %": _percent(e.accuracy),
            "refused, %": _percent(e.abstained), "Max.K": e.max_k, "Avg.K": e.mean_k, "#ID": e.instances,
            "Succ.rate": _percent(e.success_rate), "#ID.maxK": e.at_best,
        }
        for e in effects
    ])
    return ours.astype({"Avg.K": float}).merge(table_4(), how="left", on=["network", "intervention"])


def prices(request: Request) -> pd.DataFrame:
    """The costs of a certified gap and largest k: the share of held-out rows that a guardrail refuses, for a series of targets, for
    the network and after each round of retraining. Targets are fractions of the first network's gap.

    Bank has nine ages here: with two, k is at most 2.
    """
    setup = question(request) if request.dataset.startswith("BM") else declared(request)
    query, lines = setup.clusters, list[dict[str, Any]]()
    with TemporaryDirectory() as scratch:
        for round_number in range(RETRAININGS + 1):
            if round_number:
                path = Path(scratch) / f"{round_number}.onnx"
                query = _retrained(query, setup.table, path, seconds=request.seconds, seed=request.seed + round_number)
            gap = largest(query, request.seconds, request.seed)
            first_gap = lines[0]["gap met"] if lines else gap.lower
            line = {"network": request.dataset, "retrained": round_number, "gap met": gap.lower}
            lines += [line | row for row in _prices(query, setup, request, gap.upper, [part * first_gap for part in PARTS_OF_GAP])]
    return pd.DataFrame(lines)


def _prices(
    query: KDiscrimination, setup: Question, request: Request, certified: float, targets: Sequence[float]
) -> list[dict[str, Any]]:
    """Return a line for a network without a guardrail, with the gap certified so far, and one for each target."""
    schema, table = setup.schema, setup.table
    train, test, labels = schema.raw(table.train), schema.raw(table.test), schema.labels(table.test)
    largest_k = kmax(query, budget=Budget(seconds=request.seconds, seed=request.seed), start=train)
    tightening = Tightening(question=query, given=(), rows=train, seed=request.seed)
    accuracy, _ = score(query.model, schema, (), test, labels)
    lines = [_price("none", certified, largest_k.upper, 0.0, 1.0, accuracy)]
    for part, target in zip(PARTS_OF_GAP, targets, strict=True):
        try:
            guardrail = tightening.towards(target, request.seconds)
        except QueryError:  # nothing was proved
            lines.append(_price(f"{part:g}", target, 0, 1.0, 0.0, None))
            continue
        k = min(largest_k.upper, guardrail.most_buckets(query.buckets))
        if not check(guardrail.certificate, model=query.model, schema=outside(query, guardrail.rules).schema).accepted:
            raise AssertionError(f"{request.dataset}: the certificate of a gap of {target:g} is rejected")
        accuracy, refused = score(query.model, schema, guardrail.rules, test, labels)
        lines.append(_price(f"{part:g}", target, k, refused, guardrail.domain, accuracy))
    for n in reversed(range(1, len(lines) - 1)):  # rules with a smaller gap that refuse no more also serve a larger target
        if lines[n + 1]["refused, %"] <= lines[n]["refused, %"]:
            lines[n] = lines[n + 1] | {"part of it": lines[n]["part of it"]}
    return [{"k met": largest_k.lower} | line for line in lines]


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


def _explanation(request: Request, setup: Question, rounds: int) -> Rounds:
    budget, rows = Budget(seconds=request.seconds, nodes=None, seed=request.seed), setup.schema.raw(setup.table.train)
    return explain_rounds(setup.clusters, ExplainSettings(rounds=rounds), budget=budget, rows=rows)


def _percent(share: float | None) -> float:
    return np.nan if share is None else 100 * share


def _rows(schema: Schema, people: list[dict[str, Any]]) -> Array:
    return np.array([[schema.raw_value(feature.name, x[feature.name]) for feature in schema.features] for x in people])
