"""verifair cst in clumsy hands: what is found, expected and to be done is said; nothing is taken in silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from verifair import datasets
from verifair.cli import cst_answer

Run = Callable[..., tuple[int, str, str]]
LOAN = datasets.causal_path("loan").read_text()


@pytest.fixture
def run(inside: Run) -> Run:
    """run(*arguments): exit code, screen, errors, in a folder with loan.csv (300 rows) and loan.toml."""
    datasets.load("loan").frame.head(300).to_csv("loan.csv", index=False)
    Path("loan.toml").write_text(LOAN)

    def run_it(*arguments: object) -> tuple[int, str, str]:
        return inside("cst", "--data", "loan.csv", "--k", 5, *arguments)

    return run_it


def written(text: str) -> str:
    Path("own.toml").write_text(text)
    return "own.toml"


def test_the_recorded_decision_makes_nobody_similar(run: Run) -> None:
    node = '[[causal.node]]\nname = "LoanApproval"\nparents = ["AnnualSalary", "AccountBalance"]\n\n[situation]'
    graph = written(LOAN.replace("[situation]", node))
    code, told, _ = run("--causal", graph, "--json", "with.json")
    assert code == 0
    assert "over AnnualSalary, AccountBalance. Causal model" in told
    run("--causal", "loan.toml", "--json", "without.json")
    one, other = (json.loads(Path(name).read_text())["tests"][0]["counts"] for name in ("with.json", "without.json"))
    assert one == other
    code, _, told = run("--causal", "loan.toml", "--attribute", "LoanApproval")
    assert (code, told.startswith("error: attributes: 'LoanApproval' is the decision itself")) == (2, True)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("seed = 5", "seed: unknown key"),
        ("tau = -0.5", "tau = -0.5: a case is a greater difference; expected 0 or more"),
        ('preset = "paper"\nlevel = 0.9', "itself: drop it, or drop your level"),
        ('attributes = ["AnualSalary"]', "own.toml: [situation]: attribute AnualSalary: the table has no such column"),
    ],
)
def test_a_causal_file_is_not_ignored_in_silence(run: Run, line: str, told: str) -> None:
    code, _, error = run("--causal", written(LOAN.replace("[situation]", f"[situation]\n{line}")))
    assert code == 2
    assert told in error


def test_the_preset_names_options_as_they_are_called(run: Run) -> None:
    _, _, told = run("--causal", "loan.toml", "--preset", "paper", "--one-sided")
    assert told.endswith("sets level, one-sided, distance, interval, ties, correct itself: drop it, or drop your one-sided")
    code, _, _ = run("--causal", written(LOAN.replace("[situation]", "[situation]\nlevel = 0.9")), "--preset", "paper")
    assert code == 0, "the command line goes before the file"


def test_the_word_among_numbers_is_named(run: Run) -> None:
    table = pd.read_csv("loan.csv").astype({"AnnualSalary": object})
    table.loc[7, "AnnualSalary"] = "lots"
    table.to_csv("loan.csv", index=False)
    assert "values such as 'lots'" in run("--causal", "loan.toml")[2]


def test_deciders_who_disagree_are_shown(run: Run) -> None:
    assert "otherwise than is recorded" not in run("--causal", "loan.toml")[1]
    table = pd.read_csv("loan.csv")
    table.loc[:2, "LoanApproval"] *= -1
    table.to_csv("loan.csv", index=False)
    assert "Of the rows it decides 3 (1.0 %) otherwise than is recorded" in run("--causal", "loan.toml")[1]


def test_chance_without_time_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any, **__: Any) -> None:
        raise TimeoutError("time was up")

    monkeypatch.setattr("verifair.cli.cst.dealt", late)
    code, told, _ = run("--causal", "loan.toml", "--chance", "2", "--json", "a.json")
    assert code == 0
    note = "What chance finds (--chance) was not finished for do(Gender = 0): there was no time."
    assert note in told
    assert json.loads(Path("a.json").read_text())["notes"] == [note]


def test_measured_chance_takes_the_place_of_the_expected(run: Run) -> None:
    told = run("--causal", "loan.toml", "--chance", "1")[1]
    assert "sig. by chance" in told
    assert "would make about" not in told


def test_ctrl_c_while_pictures_are_drawn_keeps_the_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cst_answer, "causal_graph", interrupted)
    code, told, error = run("--causal", "loan.toml", "--out", "o", "--json", "a.json")
    assert code == 130
    assert "To review first" in told
    assert error.endswith("interrupted: not everything is in --out o")
    assert json.loads(Path("a.json").read_text())["tests"]


def test_letters_without_a_glyph_are_no_warning(run: Run, recwarn: pytest.WarningsRecorder) -> None:
    table = pd.read_csv("loan.csv")
    table["Gender"] = table["Gender"].map({0: "ma[le]", 1: "日本"})
    table.to_csv("loan.csv", index=False)
    code, told, error = run("--causal", "loan.toml", "--do", "Gender=ma[le]", "--cases", "1", "--out", "a b")
    assert (code, error) == (0, "")
    assert "Gender = 日本" in told
    assert not [one for one in recwarn if "Glyph" in str(one.message)]


def test_an_earlier_runs_robustness_does_not_stay(run: Run) -> None:
    Path("o").mkdir()
    for name in ("sensitivity.png", "sensitivity.csv"):
        (Path("o") / name).write_text("old")
    assert run("--causal", "loan.toml", "--out", "o", "--cases", "0")[0] == 0
    assert not list(Path("o").glob("sensitivity*"))
