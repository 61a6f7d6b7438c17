"""Tables about rules, on a narrow screen."""

from __future__ import annotations

import io

from rich.console import Console

from verifair.systems.hyfair.explain.result import LimeLine
from verifair.systems.hyfair.explain.tables import comparison_table
from verifair.systems.hyfair.guard.effects import Effect
from verifair.systems.hyfair.guard.tables import effects_table

NAMES = "status, purpose, installment-plans-of-others"


def effect(name: str, accuracy: float | None, mean_k: float | None, local: float | None) -> Effect:
    return Effect(
        intervention=name, accuracy=accuracy, abstained=0.09, rows=10**6, max_k=20, mean_k=mean_k, instances=1_234_567,
        success_rate=0.978, at_best=3, local_k=local, local_success=None if local is None else 0.921,
    )  # fmt: skip


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
    for word in ("accuracy", "refused", "max k", "mean k", "#ID", "near: mean k", "near: ID"):
        assert word in text


def test_what_is_no_number_is_a_dash() -> None:
    text = shown(effect("original", 0.75, None, None), effect("original + rules", None, None, None))
    assert "nan" not in text
    assert "near" not in text
    assert [line.split()[-2:] for line in text.splitlines() if "accuracy" in line] == [["0.7500", "-"]]


def test_names_of_features_are_shown_in_full() -> None:
    lines = [LimeLine(method="LIME", init_k=4, size=4.0, k=4.0, pert_k=3.125, diff=0.875, cov=33.0, features=NAMES)]
    file = io.StringIO()
    Console(file=file, width=80).print(comparison_table(lines))
    assert "\u2026" not in file.getvalue()
