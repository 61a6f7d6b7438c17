"""The CST paper's tables beside ours, and the choices that their numbers depend on.

`tables`: cases by method and k. "paper" is the authors' procedure (`preset="paper"`); "one scale" is the same with counterfactuals
in the table's units; "default" is the range-normalised distance with shared ties.
`ties`: least and most cases over `--orders` random orders of the rows, where the first of equally near rows is taken.
`stated`: German, Adult and COMPAS under the shipped causal models, networks deciding. COMPAS's is trained here (extra torch), the
42 rows of its groups too small for k = 100 are left out. Other seeds draw other noises for categories; "without" lacks an edge.
`chance`: the protected attribute shuffled among the same people, so that it means nothing: all cases found then are chance.

    python -m benchmarks.run cst_tables --parts tables ties        some of the parts
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.shared import data_folder, show
from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.papers.cst.data import PublishedQuestion, authors_loan, law_school, law_school_jointly
from verifair.papers.cst.printed import JOINTLY, TABLE_1, TABLE_4, TABLE_5, Counts, K
from verifair.papers.cst.tables import SCORES
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.deciders import NetworkDecider
from verifair.systems.cst.estimator import SituationTesting, chance
from verifair.systems.cst.testing import Situations

PAPER: dict[str, Any] = {"preset": "paper"}
ONE_SCALE: dict[str, Any] = {"distance": "standardised", "interval": "wald", "sides": 1}
SETTINGS: dict[str, dict[str, Any]] = {"paper": PAPER, "one scale": ONE_SCALE, "default": {}}
LAW: dict[str, tuple[Counts, tuple[tuple[str, ...], ...]]] = {
    "nonwhite": (TABLE_4, (SCORES, (*SCORES, "female"))), "female": (TABLE_5, (SCORES, (*SCORES, "nonwhite"))),
}
"""Protected attribute -> the paper's table, and the attributes that may make two applicants similar."""
WITHOUT = {"adult": ("sex", "marital-status"), "compas": ("race", "priors"), "german": ("sex", "credit-amount")}
"""The edge that most of the effect runs along."""
PARTS = ("tables", "ties", "stated", "chance")


def run(folder: Path, *, parts: Sequence[str] = PARTS, orders: int = 20) -> list[pd.DataFrame]:
    data = data_folder()
    tables = []
    if "tables" in parts:
        tables.append(show("CST tables: cases beside the paper's", pd.DataFrame(_tables(data)), folder))
    if "ties" in parts:
        tables.append(show("CST ties: cases over orders of the rows", pd.DataFrame(_ties(data, orders)), folder))
    if "stated" in parts:
        tables.append(show("CST stated: networks under stated graphs", pd.DataFrame(_stated(data)), folder))
    if "chance" in parts:
        tables.append(show("CST chance: beside an attribute dealt out anew", pd.DataFrame(_chance(data)), folder))
    return tables


def cases(situations: Situations) -> dict[str, tuple[int, ...]]:
    """Method -> cases at every k."""
    return {method: tuple(int(situations.claims(method, k).positive.sum()) for k in situations.k) for method in situations.methods}


def one(audit: PublishedQuestion, frame: pd.DataFrame | None = None, **settings: Any) -> Situations:
    (situations,) = audit.estimator(k=K, **settings).fit(audit.frame if frame is None else frame).test().values()
    return situations


def questions(data: Path) -> Iterator[tuple[str, PublishedQuestion, dict[str, Any], Counts]]:
    """The paper's tables: name, audit, what is asked, printed counts."""
    yield "1 loan, gender", authors_loan(data), {}, TABLE_1
    law = law_school(data)
    for protected, (printed, choices) in LAW.items():
        for attributes in choices:
            name = f"{'4 law school, race' if protected == 'nonwhite' else '5 law school, gender'}; {', '.join(attributes)}"
            yield name, law, {"do": {protected: 0}, "attributes": attributes}, printed
    yield "- law school, nonwhite women", law_school_jointly(data), {}, JOINTLY


def _tables(data: Path) -> Iterator[dict[str, Any]]:
    for name, audit, terms, printed in questions(data):
        for setting, settings in SETTINGS.items():
            started = time.perf_counter()
            situations = one(audit, **terms, **settings)
            for method, ours in cases(situations).items():
                significant = [int(situations.claims(method, k).significant.sum()) for k in situations.k]  # type: ignore[arg-type]
                yield {
                    "table": name, "procedure": setting, "method": method, "ours, k = 15 30 50 100": _listed(ours),
                    "printed": _listed(printed[method]), "equal": ours == printed[method], "significant": _listed(significant),
                    "s": round(time.perf_counter() - started, 2),
                }


def _listed(counts: Sequence[float]) -> str:
    return " ".join(map(str, counts))


def _ties(data: Path, orders: int) -> Iterator[dict[str, Any]]:
    for name, audit, terms, printed in questions(data):
        if "loan" in name:
            continue  # no two applicants are alike
        runs = [
            cases(one(audit, audit.frame.sample(frac=1, random_state=seed).reset_index(drop=True), **terms, **PAPER))
            for seed in range(orders)
        ]
        for method in ("CST w/o", "ST", "CST"):
            counts = np.array([counts_of[method] for counts_of in runs])
            low, high = counts.min(axis=0), counts.max(axis=0)
            inside = [bool(a <= p <= b) for a, p, b in zip(low, printed[method], high, strict=True)]
            yield {
                "table": name, "method": method, "orders": orders, "printed": _listed(printed[method]),
                "ours, least .. most": " ".join(f"{a}..{b}" if a < b else f"{a}" for a, b in zip(low, high, strict=True)),
                "printed inside": _listed([int(flag) for flag in inside]),
            }


def stated(name: str, data: Path) -> tuple[pd.DataFrame, CausalModel, NetworkDecider, Mapping[str, Any], tuple[str, ...] | None]:
    """Return table, causal model, network, do and attributes of german, adult or compas."""
    file, folder = causal_file.load(datasets.causal_path(name)), data / "tabular"
    dataset = datasets.load(name, folder / "compas_two_years.csv.gz" if name == "compas" else None)
    frame = dataset.frame
    if name == "compas":
        from verifair.training import train  # needs torch
        from verifair.training.measure import network_of

        network = network_of(train(dataset, method="agnostic", hidden=(100, 50), seed=0).weights)
        frame = frame[~frame["race"].isin(["Asian", "Native American"])].reset_index(drop=True)
    else:
        network = read_onnx(datasets.network_path(name))
    decider = NetworkDecider(model=network, schema=dataset.schema)
    return frame, CausalModel(nodes=file.nodes), decider, dict(file.situation.do or {}), file.situation.attributes


def without(model: CausalModel, cause: str, effect: str) -> CausalModel:
    """Return the causal model without one edge."""
    return CausalModel(nodes=tuple(
        replace(node, parents=tuple(name for name in node.parents if name != cause)) if node.name == effect else node
        for node in model.nodes
    ))


def _stated(data: Path) -> Iterator[dict[str, Any]]:
    for name in ("german", "compas", "adult"):
        frame, model, decider, do, attributes = stated(name, data)
        cause, effect = WITHOUT[name]
        variants: list[tuple[str, CausalModel, int]] = [("as shipped", model, seed) for seed in range(3)]
        variants.append((f"without {cause} -> {effect}", without(model, cause, effect), 0))
        for variant, graph, seed in variants:
            interventions = {cause: do[cause]} if "without" in variant else do
            started = time.perf_counter()
            test = SituationTesting(graph, decider, do=interventions, attributes=attributes, k=K, seed=seed).fit(frame)
            fitted = time.perf_counter() - started
            for words, situations in test.test().items():
                yield {
                    "table": name, "graph": variant, "seed": seed, "do": words, "complainants": len(situations.complainants),
                    "refused %": round(100 * float(situations.refused.mean()), 1),
                    "counterfactuals refused %": round(100 * float(np.mean(situations.refused_tilde)), 1),
                    **{method: _listed(counts) for method, counts in cases(situations).items()},
                    "CST significant": _listed([int(situations.claims("CST", k).significant.sum()) for k in situations.k]),
                    "fit s": round(fitted, 1), "all s": round(time.perf_counter() - started, 1),
                }


def _chance(data: Path, deals: int = 10) -> Iterator[dict[str, Any]]:
    """Yield cases by chance beside those found, in % of the complainants."""
    law, loan = law_school(data), authors_loan(data)
    frame, model, decider, do, attributes = stated("german", data)
    german = PublishedQuestion(frame=frame, model=model, decider=decider, do=dict(do), attributes=attributes)
    for name, audit, protected in (
        ("loan", loan, "Gender"), ("law school", law, "nonwhite"), ("law school", law, "female"), ("german", german, "sex"),
        ("german", german, "age"),
    ):
        intervention = {protected: audit.do[protected]}
        for correction in (None, "bh"):
            test = audit.estimator(do=intervention, k=K, correction=correction).fit(audit.frame)
            (result,) = test.test().values()
            by_chance = chance(test, intervention, deals=deals)
            for method, lines in result.counts().merge(by_chance, on=["method", "k"], suffixes=("", ", chance")).groupby("method"):
                yield {
                    "table": name, "do": f"{protected} = {intervention[protected]}", "complainants": len(result.complainants),
                    "correction": correction or "none", "method": method, "deals": deals,
                    **{
                        f"{text} %{end}": _listed([round(100 * float(share), 1) for share in lines[column + end]])
                        for text, column in (("cases", "share"), ("significant", "significant share")) for end in ("", ", chance")
                    },
                }
