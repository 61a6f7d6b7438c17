"""Guardrails and retraining: the certified largest probability gap before, and outside the refused region; and the costs.

"+ rules": clusters explained by the gap, in several rounds. "+ rules for t": those of `guard --target t`.
The certified bound is for the whole domain (all legal rows), the witness beside it is exact; every line gets the same time.
Accuracy and abstention are those of the data (held-out fifth).
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.shared import Skipped, data_folder, show
from encoders.onnx.reader import read_onnx
from solvers.outcome import Budget
from verifair import datasets
from verifair.datasets import Dataset
from verifair.engine.gap.maximise import maximise
from verifair.engine.queries import KDiscrimination, ProbabilityGap
from verifair.errors import QueryError
from verifair.papers.hyfair.data import fairify_schema
from verifair.systems.hyfair.explain.refusals import guarded_schema, snapped
from verifair.systems.hyfair.explain.rounds import Rounds, explain_rounds
from verifair.systems.hyfair.explain.rules import Rule
from verifair.systems.hyfair.explain.settings import ExplainSettings
from verifair.systems.hyfair.guard.effects import EffectData, effect
from verifair.systems.hyfair.guard.retraining import retrain
from verifair.systems.hyfair.guard.tighten import tighten
from verifair.systems.hyfair.search.space import Space

SECONDS, ROUNDS, ITERATIONS = 30.0, 8, 200
TARGET = 0.6
"""Of the gap that is met without a guardrail: what tightening aims at."""
NETS = ("AC-1", "AC-2", "AC-3", "AC-5", "AC-6")


@dataclass(frozen=True, kw_only=True)
class GuardedNetwork:
    name: str
    model: Path
    dataset: Dataset
    protected: tuple[str, ...]


def subjects() -> list[GuardedNetwork]:
    """The shipped networks, and Fairify's Adult networks where VERIFAIR_DATA has them."""
    networks = [
        GuardedNetwork(name=name, model=datasets.network_path(name), dataset=datasets.load(name), protected=protected)
        for name, protected in (("german", ("sex", "age")), ("adult", ("race", "sex")))
    ]
    try:
        folder = data_folder()
    except Skipped as reason:
        print(f"guardrail: Fairify's networks skipped, {reason}")
        return networks
    schema = fairify_schema(folder, "adult", named=True)
    frame = datasets.read_table(folder / "encoded" / "adult.csv.gz")
    frame = frame[schema.fitting(frame)].reset_index(drop=True)
    dataset = Dataset(name="adult-encoded", frame=frame, schema=schema)
    nets = [GuardedNetwork(name=n, model=folder / "nets" / f"{n}.onnx", dataset=dataset, protected=("sex",)) for n in NETS]
    return networks + nets


def run(folder: Path) -> pd.DataFrame:
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for subject in subjects():
            lines += _lines(subject, Path(scratch) / f"{subject.name}.onnx")
    return show("Guardrail: certified largest gap outside the refused region", pd.DataFrame(lines), folder)


def _lines(subject: GuardedNetwork, retrained: Path) -> list[dict[str, object]]:
    schema, train = subject.dataset.schema, subject.dataset.schema.raw(subject.dataset.train)
    query = KDiscrimination(model=read_onnx(subject.model), schema=schema, protected=subject.protected)
    started = time.perf_counter()
    try:
        explained = explain_rounds(query, ExplainSettings(measure="gap", rounds=ROUNDS), rows=train)
    except QueryError as error:
        print(f"guardrail: {subject.name}: {error}")
        return []
    seconds = time.perf_counter() - started
    rules = snapped(explained.rules, schema)
    centres = np.stack([cluster.centre for cluster in explained.found])
    retrain(Space.of(query), subject.dataset, centres, retrained)
    retrained_query = KDiscrimination(model=read_onnx(retrained), schema=schema, protected=subject.protected)
    lines: list[dict[str, object]] = []
    original = _measured(subject, query, (), explained)
    target = TARGET * float(str(original["gap met"]))
    try:
        proved = tighten(query, train, target, seconds=2 * SECONDS)[1].rules
    except QueryError as error:
        print(f"guardrail: {subject.name}: {error}")
        proved = ()
    lines.append({"network": subject.name, "intervention": "original", "rules": 0} | original)
    for name, variant, chosen_rules in (
        ("original + rules", query, rules), (f"original + rules for {target:.3g}", query, proved),
        ("retrained", retrained_query, ()), ("retrained + rules", retrained_query, rules),
    ):
        head = {"network": subject.name, "intervention": name, "rules": len(chosen_rules)}
        lines.append(head | _measured(subject, variant, chosen_rules, explained))
    lines[1]["explain s"] = seconds
    return lines


def _measured(subject: GuardedNetwork, query: KDiscrimination, rules: tuple[Rule, ...], explained: Rounds) -> dict[str, object]:
    schema, test = query.schema, subject.dataset.test
    guarded = guarded_schema(schema, rules) if rules else schema
    gap = ProbabilityGap(model=query.model, schema=guarded, protected=query.protected, differ="any")
    bound = maximise(gap, budget=Budget(seconds=SECONDS), tolerance=1e-3)
    effect_data = EffectData(
        data=schema.raw(test), labels=schema.labels(test), clusters=np.stack([cluster.centre for cluster in explained.found]),
        iterations=ITERATIONS, budget=Budget(seconds=SECONDS),
    )
    table = effect("", query, rules, effect_data)
    return {
        "gap met": bound.lower, "gap certified": bound.upper, "accuracy": table.accuracy, "refused": table.abstained,
        "max k": table.max_k, "mean k": table.mean_k, "#ID": table.instances, "success": table.success_rate,
        "near: k": table.local_k, "near: success": table.local_success,
    }
