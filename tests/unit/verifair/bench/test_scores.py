"""Scores against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from tests.bench_support import record
from verifair.bench.scores import cactus, choices, entries, jobs, par2, profile, ratios, times

INF = math.inf
SECONDS = {
    "a": {"p": 1.0, "q": 2.0, "r": 8.0, "s": INF},
    "b": {"p": 4.0, "q": 2.0, "r": INF, "s": INF},
}


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
    found = entries(
        [
            record(method="auto", total_seconds=3.0),
            record(method="milp", solver="highs", total_seconds=1.0, trust="claimed"),
            record(case="f/2-0", size=2, method="auto", status="unknown", reason="time", trust="", total_seconds=10.0),
        ]
    )
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
