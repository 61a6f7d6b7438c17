"""Every way in which two answers cannot both be true is found, and none that is within a solver's tolerance."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.bench_support import record
from verifair.bench.cases import chosen
from verifair.bench.contradictions import contradictions, save

INF = math.inf
OTHER = {"method": "milp", "solver": "highs"}


def test_proved_against_violated() -> None:
    (one,) = contradictions([record(lower=-INF), record(**OTHER, status="violated", lower=-INF)])
    assert one.what == "proved against violated"
    assert {one.first.competitor, one.second.competitor} == {"bnb", "milp:highs"}


@pytest.mark.parametrize("status", ["unknown", "proved"])
def test_what_does_not_contradict(status: str) -> None:
    assert contradictions([record(), record(**OTHER, status=status)]) == []
    assert contradictions([record(), record(**OTHER, question="another", subject="another", status="violated")]) == []


def test_bounds_that_exclude_each_other_beyond_any_tolerance() -> None:
    pair = [record(kind="minimum", lower=1.0, upper=1.0), record(kind="minimum", **OTHER, lower=0.9, upper=0.99)]
    (one,) = contradictions(pair)
    assert one.what == "at least 1.0 against at most 0.99"
    assert contradictions([pair[0], record(kind="minimum", **OTHER, lower=0.9, upper=1.0 - 1e-4)]) == []
    assert contradictions([pair[0], record(kind="minimum", **OTHER, lower=0.9, upper=0.99, comparable=False)]) == []


def test_two_optima_of_a_k_center_are_equal_or_one_is_wrong() -> None:
    costs = {"a": 2.0, "b": 2.000001}
    pair = [record(kind="center", status="optimal", lower=cost, upper=cost, method=name) for name, cost in costs.items()]
    assert len(contradictions(pair)) == 1


def test_a_relaxation_bounds_the_minimum_from_below_only() -> None:
    relaxed = record(kind="relaxation", question="lp", method="lp", solver="highs", lower=0.3, upper=0.3)
    exact = record(kind="minimum", question="min", lower=0.5, upper=0.5)
    assert contradictions([relaxed, exact]) == []
    (one,) = contradictions([relaxed, record(kind="minimum", question="min", lower=0.1, upper=0.2)])
    assert (one.first.kind, one.second.kind) == ("relaxation", "minimum")
    (lps,) = contradictions([relaxed, record(kind="relaxation", question="lp", method="lp", solver="cbc", lower=0.1, upper=0.1)])
    assert {lps.first.solver, lps.second.solver} == {"highs", "cbc"}


def test_a_decision_and_a_minimum_about_one_box_are_compared() -> None:
    proved = record(question="d", lower=0.4)
    (one,) = contradictions([proved, record(kind="minimum", question="m", lower=-0.2, upper=-0.1)])
    assert one.what.startswith("at least 0.4")


def test_rounds_of_one_contradiction_are_told_once() -> None:
    proved = [record(repeat=n) for n in range(3)]
    violated = [record(**OTHER, repeat=n, status="violated", lower=-INF) for n in range(3)]
    assert len(contradictions([*proved, *violated])) == 1


def test_what_the_engine_itself_met_is_told() -> None:
    (one,) = contradictions([record(status="unknown", reason="disagreement", note="saved as x.json")])
    assert one.what == "saved as x.json"


@pytest.mark.parametrize("glob", ["random-wide/4-0", "center-german/10-0"])
def test_both_answers_and_the_question_are_saved(glob: str, tmp_path: Path) -> None:
    (case,) = chosen([glob], 0)
    found = contradictions([record(case=case.name), record(**OTHER, case=case.name, status="violated", lower=-INF)])
    (path,) = save(found, tmp_path, {case.name: case.question()})
    content = json.loads(path.read_text(encoding="utf-8"))
    assert [answer["status"] for answer in content["answers"]] == ["proved", "violated"]
    asked = content["cases"][case.name]
    assert asked["boxes"][0]["lower"] if glob.startswith("random") else asked["costs"]
