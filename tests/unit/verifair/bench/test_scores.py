"""Scores against values worked out by hand, and every way in which two answers cannot both be true."""

import json
import math
from pathlib import Path

import pytest

from tests.bench_support import record
from verifair.bench.cases import chosen
from verifair.bench.contradictions import contradictions, save
from verifair.bench.plots import times_as_long
from verifair.bench.scores import cactus, choices, entries, jobs, par2, profile, ratios, times

INF = math.inf
SECONDS = {"a": {"p": 1.0, "q": 2.0, "r": 8.0, "s": INF}, "b": {"p": 4.0, "q": 2.0, "r": INF, "s": INF}}


def test_par2_counts_twice_the_limit_for_what_is_not_solved() -> None:
    assert par2(SECONDS, 10.0) == {"a": (1 + 2 + 8 + 20) / 4, "b": (4 + 2 + 20 + 20) / 4}


def test_a_cactus_is_the_solved_times_ascending() -> None:
    assert cactus(SECONDS) == {"a": [1.0, 2.0, 8.0], "b": [2.0, 4.0]}


def test_the_performance_profile_is_that_of_dolan_and_more() -> None:
    found = ratios(SECONDS)
    assert found == {"a": [1.0, 1.0, 1.0, INF], "b": [1.0, 4.0, INF, INF]}
    # rho counts all cases, also the one that nobody solves
    assert [profile(found["a"], tau) for tau in (1, 3.9, 4, 1e9)] == [0.75, 0.75, 0.75, 0.75]
    assert [profile(found["b"], tau) for tau in (1, 3.9, 4, 1e9)] == [0.25, 0.25, 0.5, 0.5]


def test_rounds_are_one_entry_with_their_median_and_one_failure_is_a_failure() -> None:
    rounds = [record(repeat=n, total_seconds=t) for n, t in enumerate((3.0, 1.0, 2.0))]
    (one,) = entries(rounds)
    assert (one.solved, one.seconds, one.least, one.most, one.rounds) == (True, 2.0, 1.0, 3.0, 3)
    (two,) = entries([*rounds[:2], record(repeat=2, status="unknown", reason="time", trust="", total_seconds=10.0)])
    assert (two.solved, two.seconds, two.reason, two.par2) == (False, INF, "time", 20.0)


def test_an_answer_after_the_limit_does_not_count_as_solved() -> None:
    (late,) = entries([record(total_seconds=10.1)])
    assert not late.solved
    assert late.par2 == 20.0


def test_who_does_not_take_a_case_has_not_solved_it() -> None:
    found = entries([record(case="f/1-0"), record(case="f/2-0", size=2), record(case="f/1-0", method="lp", solver="highs")])
    assert times(found) == {"bnb": {"f/1-0": 1.0, "f/2-0": 1.0}, "lp:highs": {"f/1-0": 1.0, "f/2-0": INF}}


def test_the_best_of_a_cell_and_how_much_longer_the_default_takes() -> None:
    found = entries([
        record(method="auto", total_seconds=3.0),
        record(method="milp", solver="highs", total_seconds=1.0, trust="claimed"),
        record(case="f/2-0", size=2, method="auto", status="unknown", reason="time", trust="", total_seconds=10.0),
    ])
    first, second = jobs(found, {"decision": "auto"})
    assert (first.best, first.seconds, first.trust, first.default_seconds) == ("milp:highs", 1.0, "claimed", 3.0)
    assert (second.size, second.best, second.default_seconds) == (2, None, 20.0)
    assert not first.default_serves
    assert not second.default_serves
    assert jobs(found, {"decision": "milp:highs"})[0].default_serves


def test_a_default_is_compared_with_the_other_backends_of_its_method() -> None:
    found = entries([record(method="milp", solver=name, total_seconds=t) for name, t in (("highs", 2.0), ("scip", 1.0))])
    (choice,) = choices(found, {"milp": "highs", "lp": "highs"})
    assert (choice.default, choice.default_par2, choice.best, choice.best_par2) == ("milp:highs", 2.0, "milp:scip", 1.0)


def test_times_too_short_to_measure_are_equal() -> None:
    found = times(entries([record(total_seconds=1e-6), record(method="auto", total_seconds=1e-5)]))
    assert ratios(found) == {"bnb": [1.0], "auto": [1.0]}


@pytest.mark.parametrize("limit", [1.0, 5.0])
def test_par2_of_nothing_solved_is_twice_the_limit(limit: float) -> None:
    assert par2({"a": {"p": INF}}, limit) == {"a": 2 * limit}


# Every way in which two answers cannot both be true is found, and none that is within a solver's tolerance.


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


def test_a_job_that_took_no_time_can_be_compared() -> None:
    (job,) = jobs(entries([record(method="other", total_seconds=0.0), record(method="auto")]), {"decision": "auto"})
    assert times_as_long(job) == "10000.0 x"
