"""`verifair bench` from the command line: one small run, its files, its refusals, and a solver that lies."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.bench_support import Fake
from tests.command_line import is_drawn
from verifair.bench.competitors import Competitor
from verifair.cli import bench

Run = Callable[..., tuple[int, str, str]]
SMALL = ("bench", "--cases", "random-wide/4-*", "--cases", "center-german/10-0", "--timeout", 20)


def test_a_small_run_leaves_tables_and_figures(inside: Run, tmp_path: Path) -> None:
    few = ("--methods", "auto,bnb,milp,exact,mip", "--solvers", "highs", "--repeats", 2, "--out", "out")
    code, screen, _ = inside(*SMALL, *few, "--json", "answer.json")
    assert code == 0, screen
    assert "3 cases, 5 competitors, 16 runs of at most 20 s: 8 of 8 answers decided, 0 disagreements." in screen
    out = tmp_path / "out"
    assert all(is_drawn(out / name) for name in ("cactus.png", "profile.png", "jobs.png"))
    runs = pd.read_csv(out / "runs.csv")
    assert len(runs) == 16
    assert set(runs.loc[runs["case"] == "random-wide/4-0", "status"]) == {"proved"}
    assert set(runs.loc[runs["case"] == "random-wide/4-1", "status"]) == {"violated"}
    assert (runs["total_seconds"] > 0).all()
    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    assert answer["disagreements"] == []
    assert {job["family"] for job in answer["jobs"]} == {"random-wide", "center-german"}
    assert json.loads((out / "bench.json").read_text(encoding="utf-8"))["records"] == answer["records"]

    code, _, errors = inside(*SMALL, *few)
    assert code == 2
    assert "--resume" in errors
    code, screen, _ = inside(*SMALL, *few, "--resume")
    assert code == 0
    assert (out / "runs.jsonl").read_text(encoding="utf-8").count("\n") == 17
    assert "16 runs" in screen


def test_a_lie_is_a_disagreement(inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "competitors", lambda: [Competitor(method="bnb"), Fake(method="lie")])
    code, _, errors = inside("bench", "--cases", "random-wide/4-1", "--repeats", 1, "--out", "out")
    assert code == 6
    assert "proved against violated" in errors
    (saved,) = (tmp_path / "out").glob("disagreement-*.json")
    content = json.loads(saved.read_text(encoding="utf-8"))
    assert {answer["method"] for answer in content["answers"]} == {"bnb", "lie"}
    assert content["cases"]["random-wide/4-1"]["layers"]


def test_the_list_names_cases_competitors_and_what_is_missing(inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Competitor(method="marabou", package="no_such_package", remedy='pip install "verifair[peers]"')
    monkeypatch.setattr(bench, "competitors", lambda: [Competitor(method="auto"), absent])
    code, screen, _ = inside("bench", "--list")
    assert code == 0
    assert "98 cases" in screen
    assert 'pip install "verifair[peers]"' in screen
    code, screen, _ = inside("bench", "--cases", "random-wide/4-0", "--repeats", 1, "--out", "out")
    assert code == 0
    assert 'marabou was not asked: not installed; pip install "verifair[peers]"' in screen


@pytest.mark.parametrize(("wrong", "said"), [
    (("--cases", "nothing/*"), "no case is called so"), (("--solvers", "cplex"), "--solvers cplex: is not known"),
    (("--methods", "magic"), "--methods magic: is not known"), (("--timeout", 0), "expected a positive number"),
    (("--quick", "--cases", "pba-*"), "--quick chooses its own cases"),
])
def test_what_cannot_be_asked_is_refused(refused: Callable[..., str], wrong: tuple[object, ...], said: str) -> None:
    assert said in refused("bench", *wrong)
