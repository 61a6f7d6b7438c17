"""What each method says of small problems is the truth: brute force over the lattice, scipy for LPs; peers as well."""

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from encoders.bounds.twin import Twin
from encoders.curves.layer import Curve, SmoothLayer
from encoders.evaluate import exact_goals
from encoders.problem import TwinProblem
from encoders.programs.triangle import triangle
from encoders.programs.twin_box import Method, TwinBox
from solvers.outcome import Budget
from tests.brute_force import not_safe, optimum
from tests.builders import DIFFERENCE, NO_FLIP, lattice, layer, twin_problem
from verifair.bench import methods
from verifair.bench.cases import chosen
from verifair.bench.competitors import competitors
from verifair.bench.contradictions import asked_again
from verifair.bench.peers import fairify, marabou
from verifair.bench.questions import DecisionQuestion, MinimumQuestion, RelaxationQuestion, fingerprint

BUDGET = Budget(seconds=30)


def problem(seed: int, **changed: Any) -> TwinProblem:
    found = twin_problem(np.random.default_rng(seed), (4, 3), **changed)
    return replace(found, goals=(found.goals[seed % len(found.goals)],))


def truth(question: TwinProblem) -> str:
    points = lattice(question.batch.lower[0], question.batch.upper[0])
    return "violated" if not_safe(question, points, question.goals[0]).any() else "proved"


@pytest.mark.parametrize("seed", range(6))
def test_every_method_decides_as_brute_force_does(seed: int) -> None:
    question = problem(seed)
    for method, solver in (("auto", None), ("bnb", None), ("milp", "highs")):
        said = methods.decide(DecisionQuestion(problem=question), method, solver, BUDGET)
        assert said.status == truth(question), method
        assert said.trust == ("exact" if said.status == "violated" else "claimed" if solver else "checked")


@pytest.mark.parametrize("name", ["random-trees/4-0", "random-trees/4-1", "random-classes/4-1", "random-classes/16-1"])
def test_every_method_decides_trees_as_brute_force_does(name: str) -> None:
    """In the cells next to a row; the boxes of random-trees are made smaller for that."""
    pytest.importorskip("z3", reason='pip install "verifair[z3]"')
    (case,) = chosen([name], 0)
    asked = case.question()
    assert isinstance(asked, DecisionQuestion)
    batch = asked.problem.batch
    centre = np.clip((batch.lower + batch.upper) // 2, batch.lower, batch.upper)
    batch = replace(batch, lower=np.maximum(centre - 1, batch.lower), upper=np.minimum(centre + 1, batch.upper))
    asked = DecisionQuestion(problem=replace(asked.problem, batch=batch))
    points = lattice(batch.lower[0], batch.upper[0])
    met, _ = exact_goals(asked.problem, np.zeros(len(points), dtype=np.int64), points)
    expected = "proved" if met.all() else "violated"
    for method, solver in (("auto", None), ("bnb", None), ("milp", "highs"), ("smt", "z3")):
        assert methods.decide(asked, method, solver, BUDGET).status == expected, method
    asking = {one.name for one in competitors() if one.takes(asked)}
    assert {"auto", "bnb", "milp:highs", "smt:z3"} <= asking
    assert not {"lp:highs", "marabou", "fairify:z3"} & asking


def test_a_disagreement_about_trees_without_a_file_holds_all_of_them() -> None:
    (case,) = chosen(["random-classes/4-0"], 0)
    asked = asked_again(case.question())
    assert asked["decision"]["groups"] == ((2,),)
    assert np.array(asked["trees"]["value"]).shape == (4 * 31, 3)
    json.dumps(asked["trees"])


@pytest.mark.parametrize("seed", range(3))
def test_the_relaxation_has_one_optimum(seed: int) -> None:
    question = replace(problem(seed), goals=(DIFFERENCE,))
    expected = optimum(triangle(TwinBox.of(Twin.of(question), 0, method=Method.INTERVAL)).minimise(question.rows[0]))
    assert expected is not None
    said = methods.relax(RelaxationQuestion(problem=question), "highs", BUDGET)
    assert said.status == "optimal"
    assert (said.lower, said.upper) == (pytest.approx(expected[0], abs=1e-6), pytest.approx(expected[0], abs=1e-6))


@pytest.mark.parametrize("seed", range(3))
def test_the_minimum_is_that_of_the_lattice(seed: int) -> None:
    question = replace(problem(seed), goals=(DIFFERENCE,))
    points = lattice(question.batch.lower[0], question.batch.upper[0])
    pair = [question.network.forward(question.domain.encode(x)) @ question.margin for x in (points, question.batch.second(points))]
    least = float((pair[0] - pair[1]).min())
    for method, solver in (("bnb", None), ("milp", "highs")):
        said = methods.least(MinimumQuestion(problem=question), method, solver, BUDGET)
        assert said.status == "optimal"
        assert said.lower - 1e-4 <= least <= said.upper + 1e-4
        assert said.upper - said.lower <= 2.1e-4


@pytest.mark.parametrize("name", ["center-german/10-0", "part-german/20-0"])
def test_the_k_center_is_the_same_by_every_method(name: str) -> None:
    (case,) = chosen([name], 0)
    question = case.question()
    able = [one for one in competitors() if one.available and one.solver in (None, "highs") and one.takes(question)]
    said = [one.ask(question, BUDGET) for one in able]
    assert len(said) >= 2
    assert {one.status for one in said} == {"optimal"}
    assert len({one.upper for one in said} | {one.lower for one in said}) == 1


def test_no_time_left_for_a_solver_is_no_answer() -> None:
    question = replace(problem(0), goals=(DIFFERENCE,))
    with pytest.raises(methods.OutOfBudget):
        methods.relax(RelaxationQuestion(problem=question), "highs", Budget(seconds=1e-9))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("categories", [0, 3])
def test_marabou_never_contradicts_brute_force(seed: int, categories: int) -> None:
    pytest.importorskip("maraboupy", reason='pip install "verifair[peers]"')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        marabou.load()
    question = problem(seed, categories=categories)
    said = marabou.decide(DecisionQuestion(problem=question), Budget(seconds=10))
    assert said.status in (truth(question), "unknown")
    assert said.trust == {"proved": "claimed", "violated": "exact", "unknown": ""}[said.status]


def test_marabou_decides_most_of_them() -> None:
    pytest.importorskip("maraboupy", reason='pip install "verifair[peers]"')
    said = [marabou.decide(DecisionQuestion(problem=problem(seed)), Budget(seconds=10)).status for seed in range(8)]
    assert "proved" in said
    assert "violated" in said


def test_marabou_is_not_asked_about_what_it_cannot_be_told() -> None:
    assert marabou.takes(problem(0))
    assert not marabou.takes(problem(0, slope=0.25))
    smooth = SmoothLayer(weight=np.ones((2, 4)), bias=np.zeros(2), bend=np.ones(2), curve=np.full(2, Curve.TANH, dtype=np.int8))
    network = replace(problem(0).network, layers=(smooth, layer([[1.0, 1.0]])), rounding=None)
    asked = DecisionQuestion(problem=replace(problem(0), network=network))
    assert [one.name for one in competitors() if one.takes(asked)] == ["auto", "bnb"]
    assert fingerprint(asked) != fingerprint(DecisionQuestion(problem=problem(0)))


@pytest.mark.parametrize("seed", range(6))
def test_the_fairify_baseline_decides_as_brute_force_does(seed: int) -> None:
    pytest.importorskip("z3", reason='pip install "verifair[z3]"')
    question = replace(problem(seed), goals=(NO_FLIP if seed % 2 else DIFFERENCE,))
    said = fairify.decide(DecisionQuestion(problem=question), BUDGET)
    assert said.status == truth(question)


def test_the_fairify_baseline_cuts_the_box_and_covers_it() -> None:
    pytest.importorskip("z3", reason='pip install "verifair[z3]"')
    (case,) = chosen(["pba-adult/30-0"], 0)
    question = case.question()
    assert isinstance(question, DecisionQuestion)
    parts = fairify._partition(question.problem, 0)
    assert 1 < parts.count <= fairify.MAX_PARTS
    assert parts.volume(np.arange(parts.count)).sum() == pytest.approx(1)
