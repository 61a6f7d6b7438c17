"""The leaf rule against the checker that it replaced, which cut boxes until bounds or points told (`tests.oracle`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.arrays import Array
from encoders.problem import TwinProblem
from tests.builders import claim_of, tree_flaw
from tests.draws import draws
from tests.oracle.search_checker import throughout
from tests.soundness.random_fairness import small_cases
from tests.soundness.random_twins import FLIP, PBA, ROBUST, STRICT_SIGNS, STYLES, random_problem
from tests.soundness.test_whole_domain import verdict_of
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.certificates.statement import BoxQuery, BoxStatement
from verifair.checker.certificates.tree import Tree
from verifair.checker.kernel.tasks import Task
from verifair.checker.kinds.statements import task_of
from verifair.engine.questions import no_gap
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import PROVED
from verifair.engine.search.signs.neurons import decide_by_phases

GOALS = {"pba": PBA, "robust": ROBUST, "flip": FLIP, "strict": STRICT_SIGNS, "gap": no_gap(0.2)}
seeds = st.integers(0, 2**32 - 1)


def alone(problem: TwinProblem, q: int, g: int) -> TwinProblem:
    return replace(problem, batch=problem.batch.take([q]), goals=(problem.goals[g],))


def cut_up(rng: np.random.Generator, lower: Array, upper: Array, depth: int) -> Tree:
    """A tree that cuts whole numbers at random, `depth` times one after the other; a large depth ends at single points."""
    feature, cut = [], []

    def visit(low: Array, high: Array, left: int) -> None:
        wide = np.flatnonzero(low < high)
        if not left or not len(wide):
            feature.append(-1)
            cut.append(0.0)
            return
        v = int(rng.choice(wide))
        feature.append(v)
        cut.append(float(rng.integers(low[v], high[v])))
        first, second = high.copy(), low.copy()
        first[v], second[v] = cut[-1], cut[-1] + 1
        visit(low, first, left - 1)
        visit(second, high, left - 1)

    visit(lower, upper, depth)
    return Tree.plain(np.array(feature), np.array(cut))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", GOALS)
@settings(max_examples=len(draws(4)))
@given(seed=seeds)
def test_both_agree_on_what_searches_prove_and_on_points(style: str, kind: str, seed: int) -> None:
    problem = random_problem(seed, style, GOALS[kind])
    decision, rng = decide(problem), np.random.default_rng(seed)
    for q in range(len(problem.batch)):
        for g in range(len(problem.goals)):
            one = alone(problem, q, g)
            about = problem.network, problem.domain, claim_of(one)
            truth = throughout(*about, one.batch.lower[0], one.batch.upper[0], boxes=10**6)
            assert truth == (decision.status[q, g] == PROVED)
            if truth:
                margin = decision.margin(q, g)
                assert tree_flaw(*about, decision.trees.tree(q, g), margin=margin) is None
                assert throughout(*about, one.batch.lower[0], one.batch.upper[0], margin=margin or 0.0, boxes=10**6)
            for depth in (0, 2, 5, 999):
                flaw = tree_flaw(*about, cut_up(rng, one.batch.lower[0], one.batch.upper[0], depth))
                assert flaw is not None or truth
                assert flaw is None or not truth or depth < 999


@pytest.mark.parametrize("kind", GOALS)
@settings(max_examples=len(draws(5)))
@given(seed=seeds)
def test_both_agree_on_trees_of_neurons_and_on_those_of_others(kind: str, seed: int) -> None:
    """A tree that proves one question is put forward for all of them."""
    problem = random_problem(seed, "plain", GOALS[kind])
    pairs = [(q, g) for q in range(len(problem.batch)) for g in range(len(problem.goals))]
    trees = [decide_by_phases(problem, q, g, seconds=20, max_nodes=2000).tree for q, g in pairs]
    for q, g in pairs:
        one = alone(problem, q, g)
        about = problem.network, problem.domain, claim_of(one)
        truth = throughout(*about, one.batch.lower[0], one.batch.upper[0], boxes=10**6)
        for at, tree in zip(pairs, trees, strict=True):
            if tree is not None:
                flaw = tree_flaw(*about, tree)
                assert flaw is not None or truth
                assert flaw is None or at != (q, g)


@pytest.mark.parametrize("style", ["plain", "integer", "sparse"])
def test_both_agree_on_certificates_of_queries(style: str) -> None:
    checked = 0
    for case in small_cases(style, 12):
        certificate = verdict_of(case).certificate
        if certificate is None:
            continue
        for statement, task in tasks_of(certificate, case.query):
            truth = throughout(case.query.model, case.schema.domain, task, task.lower, task.upper, boxes=4096)
            assert truth is not False, statement
            checked += 1
    assert checked > 10


def tasks_of(certificate: Certificate, query) -> list[tuple[BoxStatement, Task]]:
    found = []
    for proof in certificate.proofs:
        assert isinstance(proof.statement, BoxStatement)
        assert isinstance(certificate.query, BoxQuery)
        task = task_of(proof.statement, certificate.query, query.model, query.schema)
        assert isinstance(task, Task)
        found.append((proof.statement, task))
    return found


