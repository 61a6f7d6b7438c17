"""What is shown of rules and of a search: tables on a narrow screen, and the picture's axis of time."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import verifair as vf
from tests.builders import categorical, integer, linear_network, schema_of
from verifair.systems.hyfair.certify.result import VerdictResult
from verifair.systems.hyfair.certify.tables import tables
from verifair.systems.hyfair.explain.result import LimeLine
from verifair.systems.hyfair.explain.tables import COLUMNS, comparison_table
from verifair.systems.hyfair.guard.effects import Effect
from verifair.systems.hyfair.guard.tables import effects_table
from verifair.systems.hyfair.kmax.plots import plot

NAMES = "status, purpose, installment-plans-of-others"


def effect(name: str, accuracy: float | None, mean_k: float | None, local: float | None) -> Effect:
    return Effect(
        intervention=name, accuracy=accuracy, abstained=0.09, rows=10**6, max_k=20, mean_k=mean_k, instances=1_234_567,
        success_rate=0.978, at_best=3, local_k=local, local_success=None if local is None else 0.921,
    )


def shown(*effects: Effect) -> str:
    file = io.StringIO()
    Console(file=file, width=80).print(effects_table(effects))
    return file.getvalue()


def test_four_interventions_fit_80_columns() -> None:
    names = ("original", "original + rules", "retrained", "retrained + rules")
    text = shown(*(effect(name, 0.75, 3.33, 2.88) for name in names))
    assert "\u2026" not in text
    assert max(map(len, text.splitlines())) <= 80
    for value in ("0.7500", "9.00%", "3.33", "1,234,567", "97.8%", "2.88", "92.1%"):
        assert text.count(value) == 4
    for word in ("accuracy", "abstains", "max k", "mean k", "#ID", "near: mean k", "near: ID"):
        assert word in text


def test_what_is_no_number_is_a_dash() -> None:
    text = shown(effect("original", 0.75, None, None), effect("original + rules", None, None, None))
    assert "nan" not in text
    assert "near" not in text
    assert [line.split()[-2:] for line in text.splitlines() if "accuracy" in line] == [["0.7500", "-"]]


def test_names_of_features_are_shown_in_full() -> None:
    names = "status, installment-plans, other-debtors"
    numbers = {"init_k": 4, "size": 5.462, "k": 3.504, "pert_k": 3.1234, "diff": 0.87654}
    lines = [LimeLine(method="LIME", cov=cov, features=names, **numbers) for cov in (79.38, 1545.0)]
    file = io.StringIO()
    Console(file=file, width=80).print(comparison_table(lines))
    table = file.getvalue()
    assert "\u2026" not in table
    assert all(table.count(f"{name},") == 2 for name in ("status", "installment-plans"))
    assert ("79.4" in table, "1,545" in table) == (True, True)
    assert all(f"{header}: " in COLUMNS for header in ("Init.K", "Size", "K", "Pert.K", "Diff", "Cov"))


# The picture of a search: its axis of time.


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([0.01328, 0.01336], (0.01, 0.1)), ([0.0, 0.0], (1e-4, 1e-3)), ([0.02, 3.0, 29.9], (0.01, 100.0)), ([0.1, 1.0], (0.1, 10.0))],
)
def test_the_axis_of_time_spans_whole_decades(
    seconds: list[float], expected: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[float, float]] = []
    save = Figure.savefig

    def noted(figure: Figure, *where: Any, **how: Any) -> None:
        limits.append(figure.axes[0].get_xlim())
        save(figure, *where, **how)

    monkeypatch.setattr(Figure, "savefig", noted)
    search = SimpleNamespace(trace=[SimpleNamespace(seconds=at, k=k) for k, at in enumerate(seconds, 1)], method="sa")
    outcomes = pd.DataFrame({"bucket": [3, 4], "probability": [0.35, 0.45]})
    best, space = SimpleNamespace(k=len(seconds), buckets=10), SimpleNamespace(
        query=SimpleNamespace(probable=True, schema=SimpleNamespace(class_names=("bad", "good")))
    )
    result: Any = SimpleNamespace(search=search, best=best, outcomes=outcomes, upper=3, space=space)
    plot(result, tmp_path / "k.png")
    assert limits == [pytest.approx(expected)]
    assert (tmp_path / "k.png").stat().st_size > 0


def test_features_may_be_called_like_what_is_told_of_a_counterexample() -> None:
    """Their values are those of the person, and not the model's."""
    schema = schema_of(
        integer("probability", 1, 1), categorical("decision", "no", "yes", protected=True), categorical("decision'", "west", "east")
    )
    query = vf.IndividualFairness(
        model=linear_network(1.0, 4.0, 0.0, bias=-3.0), schema=schema, protected=["decision"], box={"decision'": "west"}
    )
    witness = vf.verify(query).witness
    assert witness is not None
    for column, row in (("x", witness.x), ("x'", witness.x_prime)):
        shown = witness.to_frame()[column]
        assert {name: shown[name] for name in row} == row
        assert set(shown.index) == {*row, "decision (verifair)", "probability (verifair)"}
    result = VerdictResult.model_construct(question=query, witness=witness)
    (line,) = tables(result)["counterexamples.csv"].to_dict(orient="records")
    assert {name: line[name] for name in witness.x} == witness.x
    assert line["decision' (verifair)"] == witness.x_prime["decision"]
    assert (line["decision (verifair)"], line["decision' (verifair) (verifair)"]) == witness.decisions
    assert (line["probability (verifair)"], line["probability' (verifair)"]) == witness.probabilities
