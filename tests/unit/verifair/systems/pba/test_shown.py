"""How PBA is shown: tables that stay short, and pictures that draw nothing of groups without rows."""

from io import StringIO
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import verifair as vf
from tests.command_line import answered, flat, verifair
from verifair import datasets
from verifair.systems.pba import plots, tables

OUTCOMES = ("bad", "good")


def shares_of(groups: list[str], rows: dict[str, int], proved: dict[str, int]) -> pd.DataFrame:
    """Counts of every ordered pair of groups: so many rows of the first one, of which so many are proved."""
    lines = [
        ("age", "PBA", setting, 1.0, group, to, group if setting == "observed" else to, outcome, rows[group], proved[group], 0)
        for group, to in permutations(groups, 2) for setting in ("observed", "flipped") for outcome in OUTCOMES
    ]
    columns = ["sensitive", "metric", "setting", "delta", "group", "to", "shown", "label", "rows", "proved", "unknown"]
    return pd.DataFrame(lines, columns=columns)


def printed(table: Any) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_of_many_values_the_worst_pairs_and_the_largest_groups_are_shown() -> None:
    groups = [str(k) for k in range(20, 50)]
    people = {group: 1 + k for k, group in enumerate(groups)}
    shares = shares_of(groups, people, people)
    text = printed(tables.pair_table("age", shares))
    assert len(text.splitlines()) < 20
    assert text.count("│ 49 ") >= tables.WORST
    rates = pd.DataFrame([("age", metric, group, 0.5, people[group]) for metric in tables.RATES for group in groups],
                         columns=["sensitive", "metric", "group", "value", "rows"])
    assert list(tables.groups_of("age", rates)) == [people[group] for group in groups]
    header = printed(tables.screen_table("age", rates, shares)).splitlines()[2]
    assert [word for word in header.split() if word.isdecimal()] == ["45", "46", "47", "48", "49"]
    few = groups[:4]
    every = printed(tables.pair_table("age", shares_of(few, people, people)))
    assert every.count("│ 1 ") == len(list(permutations(few, 2)))


def test_sentences_and_tables_say_of_whom_they_are() -> None:
    german = datasets.load("german")
    found = vf.audit(
        vf.read(datasets.network_path("german")), german.frame, schema=german.schema, sensitive=["sex"],
        analyses={"pba": {"rows": 40}}, timeout=60, what_if=False,
    )
    assert found.result.network == "56 inputs, hidden layers of 100 and 50 neurons, 2 outputs"
    (section,) = found.result.sections
    (headline,) = (one for one in section.statements if one.headline)
    who = "people whose label the model predicts correctly with either value"
    assert who in headline.text
    assert who in headline.brief
    notes = [one.note for one in section.tables if "Measured on" in one.note]
    assert len(notes) == 2
    for note in notes:
        assert "Measured on 40 of the table's 1,000 rows, drawn at random" in note


def test_delta_0_needs_no_unit_and_says_that_nothing_moves(tmp_path: Path) -> None:
    german = datasets.load("german")
    (tmp_path / "s.toml").write_text("\n".join(line for line in german.schema.dumps().splitlines() if not line.startswith("unit")))
    german.frame[:40].to_csv(tmp_path / "d.csv", index=False)
    model = (datasets.network_path("german"), "--schema", tmp_path / "s.toml")
    asked = ("pba", *model, "--data", tmp_path / "d.csv", "--protected", "sex", "--delta", 0)
    screen = answered(*asked, "--out", tmp_path / "out").stdout
    assert screen.startswith("sex: delta 0 moves nothing; the questions are about the rows themselves.\n")
    answered("check", tmp_path / "out" / "certificate.json.gz", *("--model", *model))
    done = verifair(*asked, "--delta", 1)
    assert (done.returncode, "delta counts units, but no feature that may move has one" in flat(done.stderr)) == (2, True)


def test_groups_without_rows_are_not_drawn_as_none_of_a_hundred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *where, **how: (drawn.append(figure), save(figure, *where, **how)))
    shares = shares_of(["A", "B", "C"], {"A": 4, "B": 2, "C": 0}, {"A": 1, "B": 0, "C": 0})
    shares = shares.astype({"rows": int})
    shares.loc[(shares["group"] == "B") & (shares["label"] == "good"), "rows"] = 0
    plots.outcome_plot("age", shares, tmp_path / "p.png", OUTCOMES)
    left = drawn[0].axes[0]
    assert [label.get_text() for label in left.get_xticklabels()] == ["A", "B"]
    assert sorted(text.get_text() for text in left.texts) == ["0%", "25%", "25%", "no\nrows"]
    many = [f"{k:02d}" for k in range(30)]
    plots.outcome_plot("age", shares_of(many, dict.fromkeys(many, 2), dict.fromkeys(many, 1)), tmp_path / "m.png", OUTCOMES)
    left = drawn[1].axes[0]
    assert len(left.get_xticklabels()) == plots.GROUPS
    assert left.get_title(loc="left") == f"observed: as they are ({plots.GROUPS} largest of 30 groups)"
    nobody = dict.fromkeys(many, 0)
    plots.outcome_plot("age", shares_of(many, nobody, nobody), tmp_path / "n.png", OUTCOMES)
    assert not drawn[2].axes[0].get_xticklabels()
