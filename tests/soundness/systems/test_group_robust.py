"""Robust counterfactuals against brute force: every verdict by all points of its neighbourhood, every choice by all choices."""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from encoders.arrays import Array, Booleans, Integers
from encoders.network import Network
from solvers.outcome import Budget
from tests.brute_force import exact_forward
from tests.builders import integer, lattice, one_hot, random_network, schema_of
from tests.draws import draws
from verifair.checker.check import check
from verifair.engine.verdict import Status
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.fgce.instance import CostBlock, Instance
from verifair.systems.fgce.optimum.center import Centers, centers
from verifair.systems.fgce.optimum.cover import Coverage, greedy_coverage, largest_coverage
from verifair.systems.fgce.robust import certify_robust
from verifair.systems.fgce.robust_choice import Prove, RobustChoice, robust_choice, without

PROVED, VIOLATED, UNKNOWN = Status.PROVED, Status.VIOLATED, Status.UNKNOWN


# Verdicts

def random_schema(rng: np.random.Generator, outputs: int) -> Schema:
    """Numbers that move, one fixed, one without a unit, a protected one, categories; sometimes rows that cannot be."""
    return schema_of(
        integer("a", -3, 4, unit=1, scale=str(rng.choice(["none", "minmax"]))),
        integer("b", 0, 6, unit=float(rng.choice([1.0, 1.5, 2.0]))),
        integer("f", 0, 3, unit=1, change="fixed"),
        integer("n", 0, 3),
        integer("p", 0, 1, unit=1, protected=True),
        one_hot("c", "x", "y", "z"),
        positive="logit > 0" if outputs == 1 else "class = 1",
        constraints=[{"name": "never", "never": {"a": {"low": 2}, "c": "z"}}] if rng.random() < 0.5 else [],
    )


def decided_positive(network: Network, schema: Schema, raw: Array) -> Booleans:
    """Class 1 in fractions: the only largest logit but for later classes, above 0 where there is one logit."""
    logits = exact_forward(network, schema.encode(raw))
    if network.outputs == 1:
        return np.array([row[0] > 0 for row in logits])
    return np.array([row[1] > row[0] and all(row[1] >= other for other in row[2:]) for row in logits])


def neighbours(schema: Schema, row: Array, delta: float) -> Array:
    """All rows that can be, with a and b up to delta units away and everything else as it is."""
    lower, upper = row.copy(), row.copy()
    for v, unit in ((0, 1.0), (1, float(schema.features[1].unit or 0))):
        lower[v] = max(np.ceil(row[v] - delta * unit), schema.domain.lower[v])
        upper[v] = min(np.floor(row[v] + delta * unit), schema.domain.upper[v])
    points = lattice(lower, upper).astype(float)
    return points[schema.inside(points)]


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("seed", draws(12))
def test_every_verdict_is_that_of_all_rows_of_the_neighbourhood(outputs: int, seed: int) -> None:
    rng = np.random.default_rng([seed, outputs])
    schema = random_schema(rng, outputs)
    network = random_network(rng, (8, 5, 4, outputs), slope=float(rng.choice([0.0, 0.25])))
    network = replace(network, source_sha256="0" * 64)
    if seed % 3 == 0:  # whole weights: ties
        layers = tuple(replace(x, weight=np.round(2 * x.weight), bias=np.round(2 * x.bias)) for x in network.layers)
        network = replace(network, layers=layers)
    raw = rng.integers(schema.domain.lower, schema.domain.upper + 1, (40, 6)).astype(float)
    raw = raw[schema.inside(raw)]
    deltas = [0.0, 0.6, 1.0, 3.0]
    found = certify_robust(network, schema, raw, delta=[3.0, 0.0, 1.0, 0.6, 1.0])
    assert [(line.row, line.delta) for line in found.table.itertuples()] == list(itertools.product(range(len(raw)), deltas))
    for line in found.table.itertuples():
        points = neighbours(schema, raw[line.row], line.delta)
        positive = decided_positive(network, schema, points)
        assert line.status == ("proved" if positive.all() else "violated")
        assert line.trust == ("checked" if positive.all() else "")
        if line.status == "violated":
            witness = np.array([schema.raw_value(name, value) for name, value in line.witness.items()])
            assert (points == witness).all(axis=1).any()
            assert not decided_positive(network, schema, witness[None])[0]
            margin = network.forward(schema.encode(witness[None]))[0]
            assert outputs == 1 or margin[1] - margin[line.against] <= 1e-9
        if outputs <= 2 and line.lower > -np.inf:
            logits = network.forward(schema.encode(points))
            least = float((logits[:, 0] if outputs == 1 else logits[:, 1] - logits[:, 0]).min())
            assert line.lower <= least + 1e-6
            assert line.upper >= least - 1e-6
    proved = int((found.table["status"] == "proved").sum())
    if found.certificate is None:
        assert proved == 0
    else:
        report = check(found.certificate, model=network, schema=schema)
        assert report.accepted
        lines = found.table[found.table["status"] == "proved"].itertuples()
        different = {(tuple(raw[line.row]), line.delta) for line in lines}  # people with the same values are one statement
        assert report.extent.proved == len(different) * max(outputs - 1, 1)


# Choices

def random_instance(rng: np.random.Generator) -> Instance:
    """Up to three components, few different costs, some pairs out of reach; everybody has somebody."""
    blocks, node = [], 0
    for number in range(rng.integers(1, 4)):
        f, c = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        cost = rng.integers(1, 6, (f, c)) / 4.0
        cost[rng.random((f, c)) < 0.3] = np.inf
        for row in np.flatnonzero(np.isinf(cost).all(axis=1)):
            cost[row, rng.integers(c)] = 2.0
        cost = cost[:, np.isfinite(cost).any(axis=0)]
        own, there = np.arange(node, node + f), np.arange(node + f, node + f + cost.shape[1])
        blocks.append(CostBlock(component=number, factuals=own, candidates=there, cost=cost))
        node += f + cost.shape[1]
    spare = np.arange(node, node + 2)  # candidates that nobody reaches
    candidates = np.concatenate([*(block.candidates for block in blocks), spare])
    return Instance(blocks=tuple(blocks), hopeless=np.empty(0, dtype=np.int64), candidates=candidates)


def answering(status: dict[int, Status], hard: frozenset[int] = frozenset()) -> tuple[Prove, list[int]]:
    """A prover that knows the answers, and the list of what it was asked; `hard` ones are told only in earnest."""
    asked: list[int] = []

    def prove(nodes: Integers, budget: Budget) -> list[Status]:
        asked.extend(nodes.tolist())
        return [UNKNOWN if node in hard and budget.nodes is not None else status[node] for node in nodes.tolist()]

    return prove, asked


def best_choice(instance: Instance, allowed: set[int], k: int, count: int, limit: float | None) -> float | None:
    """By all choices: the least cost that covers `count`, or with a limit the most that are covered; None where none serves."""
    nodes = [node for node in instance.columns.tolist() if node in allowed]
    best: float | None = None if limit is None else 0.0
    for size in range(1, min(k, len(nodes)) + 1):
        for chosen in itertools.combinations(nodes, size):
            paid = np.sort(instance.to(np.array(chosen)).min(axis=1))
            if limit is not None:
                best = max(best or 0.0, float((paid <= limit).sum()))
            elif np.isfinite(paid[count - 1]):
                best = float(paid[count - 1]) if best is None else min(best, float(paid[count - 1]))
    return best


def solver(k: int, limit: float | None, *, exact: bool = True) -> Callable[[Instance, float, Budget], Centers | Coverage]:
    def found(instance: Instance, coverage: float, budget: Budget) -> Centers | Coverage:
        if limit is None:
            return centers(instance, k, coverage, budget=budget)
        return largest_coverage(instance, k, limit, budget=budget) if exact else greedy_coverage(instance, k, limit)

    return found


def all_proved(choice: RobustChoice) -> bool:
    return all(choice.asked[int(node)] is PROVED for node in choice.found.chosen)


@pytest.mark.parametrize("seed", draws(300))
def test_the_choice_is_the_best_of_all_choices_of_robust_candidates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance, k = random_instance(rng), int(rng.integers(1, 5))
    some = [PROVED, VIOLATED] if seed % 2 else [PROVED, VIOLATED, UNKNOWN]
    status = {int(node): some[rng.integers(len(some))] for node in instance.candidates}
    hard = frozenset(node for node in status if rng.random() < 0.3)
    prove, asked = answering(status, hard)
    limit = float(rng.choice([0.5, 1.0])) if seed % 3 == 0 else None
    coverage = float(rng.choice([1.0, 0.6]))
    count = max(int(np.ceil(coverage * instance.size - 1e-9)), 1)
    sure = {node for node, one in status.items() if one is PROVED}
    maybe = sure | {node for node, one in status.items() if one is UNKNOWN}
    best, optimistic = (best_choice(instance, nodes, k, count, limit) for nodes in (sure, maybe))
    run = partial(robust_choice, instance, solver(k, limit), prove, coverage=coverage, max_cost=limit)
    if best is None:
        with pytest.raises(QueryError):
            run()
        return
    choice = run()
    assert all_proved(choice)
    assert len(choice.found.chosen) <= k
    if isinstance(choice.found, Centers):
        paid = np.sort(instance.to(choice.found.chosen).min(axis=1))
        assert choice.found.cost == best
        assert paid[count - 1] <= best
        assert optimistic is not None
        assert choice.found.lower <= optimistic
        assert choice.found.optimal or choice.undecided
    else:
        assert choice.found.covered == best
        assert (instance.to(choice.found.chosen).min(axis=1, initial=np.inf) <= (limit or 0.0)).sum() == best
        assert optimistic is not None
        assert choice.found.bound >= optimistic
        assert choice.found.optimal or choice.undecided
    assert set(asked) <= set(instance.candidates.tolist())


@pytest.mark.parametrize("seed", draws(60))
def test_more_asked_is_never_cheaper(seed: int) -> None:
    """Candidates robust at a larger delta are so at a smaller one: costs do not fall, whoever is left without a counterfactual."""
    rng = np.random.default_rng([seed, 1])
    instance = random_instance(rng)
    radius = {int(node): float(rng.integers(0, 4)) for node in instance.candidates}
    before = 0.0
    for delta in range(5):
        prove, _ = answering({node: PROVED if far >= delta else VIOLATED for node, far in radius.items()})
        try:
            cost = float(robust_choice(instance, solver(3, None), prove, coverage=0.7).found.cost)  # type: ignore[union-attr]
        except QueryError:
            cost = np.inf
        assert cost >= before
        before = cost
    assert before == np.inf  # nobody is robust at 4


@pytest.mark.parametrize("seed", draws(40))
def test_greedy_keeps_its_guarantee_among_robust_candidates(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    instance = random_instance(rng)
    status = {int(node): PROVED if rng.random() < 0.6 else VIOLATED for node in instance.candidates}
    prove, _ = answering(status)
    choice = robust_choice(instance, solver(2, 1.0, exact=False), prove, max_cost=1.0)
    best = best_choice(instance, {node for node, one in status.items() if one is PROVED}, 2, 1, 1.0)
    assert isinstance(choice.found, Coverage)
    assert best is not None
    assert all_proved(choice)
    assert (1 - 1 / np.e) * best - 1e-9 <= choice.found.covered <= best <= choice.found.bound


def test_few_are_asked_about_and_rounds_are_few() -> None:
    """A thousand candidates, the cheapest five hundred refuted: every one of them would be chosen in turn."""
    cost = np.tile(np.arange(1.0, 1001.0), (3, 1))
    block = CostBlock(component=0, factuals=np.arange(3), candidates=np.arange(3, 1003), cost=cost)
    instance = Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)
    prove, asked = answering({node: VIOLATED if node < 503 else PROVED for node in range(3, 1003)})
    choice = robust_choice(instance, solver(1, None), prove)
    assert isinstance(choice.found, Centers)
    assert (choice.found.cost, choice.found.lower) == (501.0, 501.0)
    assert choice.rounds <= 11
    assert len(asked) == len(set(asked)) < 1000
    prove, asked = answering(dict.fromkeys(range(3, 1003), PROVED))
    assert robust_choice(instance, solver(1, None), prove).rounds == 1
    assert asked == [3]


def test_what_is_undecided_leaves_a_gap_and_says_so() -> None:
    """Costs 1 (undecided), 2 (refuted), 3 (proved), 4 (proved): 3 is found, 1 cannot be ruled out."""
    block = CostBlock(component=0, factuals=np.arange(2), candidates=np.arange(2, 6), cost=np.tile([1.0, 2.0, 3.0, 4.0], (2, 1)))
    instance = Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)
    prove, _ = answering({2: UNKNOWN, 3: VIOLATED, 4: PROVED, 5: PROVED})
    choice = robust_choice(instance, solver(1, None), prove)
    assert isinstance(choice.found, Centers)
    assert (choice.found.cost, choice.found.lower, choice.found.optimal) == (3.0, 1.0, False)
    assert (choice.count(UNKNOWN), choice.count(VIOLATED), choice.undecided) == (1, 1, 1)
    prove, _ = answering({2: VIOLATED, 3: UNKNOWN, 4: PROVED, 5: UNKNOWN})
    choice = robust_choice(instance, solver(1, 3.0), prove, max_cost=3.0)
    assert isinstance(choice.found, Coverage)
    assert (choice.found.covered, choice.found.bound) == (2, 2)  # however the undecided one turns out, no more are covered


def test_an_undecided_one_that_does_not_matter_leaves_no_gap() -> None:
    """One component has an undecided candidate beside a proved one, the other a refuted one: its dearer one sets the cost."""
    first = CostBlock(component=0, factuals=np.arange(2), candidates=np.arange(2, 4), cost=np.ones((2, 2)))
    second = CostBlock(component=1, factuals=np.arange(4, 6), candidates=np.arange(6, 8), cost=np.tile([2.0, 3.0], (2, 1)))
    candidates = np.array([2, 3, 6, 7])
    instance = Instance(blocks=(first, second), hopeless=np.empty(0, dtype=np.int64), candidates=candidates)
    for undecided, proved in ((2, 3), (3, 2)):
        prove, _ = answering({undecided: UNKNOWN, proved: PROVED, 6: VIOLATED, 7: PROVED})
        choice = robust_choice(instance, solver(2, None), prove)
        assert isinstance(choice.found, Centers)
        assert sorted(choice.found.chosen.tolist()) == [proved, 7]
        assert (choice.found.cost, choice.found.lower) == (3.0, 3.0)


def test_a_bound_once_proved_is_kept_when_a_later_round_proves_less() -> None:
    block = CostBlock(component=0, factuals=np.arange(2), candidates=np.arange(2, 5), cost=np.tile([1.0, 2.0, 3.0], (2, 1)))
    instance = Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)

    def weaker(rest: Instance, coverage: float, budget: Budget) -> Centers:
        found = centers(rest, 1, coverage, budget=budget)
        return found if 3 in rest.candidates else replace(found, lower=0.5)

    choice = robust_choice(instance, weaker, answering({2: VIOLATED, 3: VIOLATED, 4: PROVED})[0])
    assert isinstance(choice.found, Centers)
    assert (choice.found.cost, choice.found.lower) == (3.0, 1.0)
    limited = [Coverage(chosen=np.array([node]), covered=2, bound=bound, nodes=1) for node, bound in ((2, 3), (4, 9))]
    choice = robust_choice(instance, lambda *_: limited.pop(0), answering({2: VIOLATED, 3: UNKNOWN, 4: PROVED})[0], max_cost=3.0)
    assert isinstance(choice.found, Coverage)
    assert (choice.found.chosen.tolist(), choice.found.bound) == ([4], 3)


def test_too_few_robust_ones_are_told_with_a_coverage_that_would_do() -> None:
    block = CostBlock(component=0, factuals=np.arange(3), candidates=np.arange(3, 6), cost=np.where(np.eye(3) > 0, 1.0, np.inf))
    instance = Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)
    prove, _ = answering({3: PROVED, 4: VIOLATED, 5: PROVED})
    with pytest.raises(QueryError, match=r"3 of the 3 factuals .* only 2 have .* coverage of at most 0\.6666, or a smaller delta"):
        robust_choice(instance, solver(3, None), prove)
    choice = robust_choice(instance, solver(3, None), prove, coverage=0.6666)
    assert sorted(choice.found.chosen.tolist()) == [3, 5]
    prove, _ = answering({3: PROVED, 4: UNKNOWN, 5: PROVED})
    with pytest.raises(QueryError, match="among the 1 undecided; raise the time"):
        robust_choice(instance, solver(3, None), prove)
    prove, _ = answering({3: VIOLATED, 4: VIOLATED, 5: VIOLATED})
    with pytest.raises(QueryError, match=r"only 0 have .*; pass a smaller delta"):
        robust_choice(instance, solver(3, None), prove)
    covered = robust_choice(instance, solver(3, 1.0), prove, max_cost=1.0).found
    assert isinstance(covered, Coverage)
    assert (len(covered.chosen), covered.covered, covered.bound) == (0, 0, 0)
    with pytest.raises(QueryError, match="with robust counterfactuals only: k = 1 is too few"):
        robust_choice(instance, solver(1, None), answering({3: PROVED, 4: PROVED, 5: PROVED})[0])


def test_when_time_is_up_only_what_is_proved_is_chosen() -> None:
    """Every question takes longer than there is: of the first round, what was proved remains."""
    cost = np.array([[1.0, 2.0, np.inf], [2.0, np.inf, 1.0]])
    block = CostBlock(component=0, factuals=np.arange(2), candidates=np.arange(2, 5), cost=cost)
    instance = Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)
    told = {2: PROVED, 3: PROVED, 4: VIOLATED}

    def slow(nodes: Integers, budget: Budget) -> list[Status]:
        time.sleep(0.3)
        return [told[int(node)] for node in nodes]

    choice = robust_choice(instance, solver(2, None), slow, budget=Budget(seconds=0.2))
    assert isinstance(choice.found, Centers)
    assert all_proved(choice)
    assert choice.found.cost == 2.0
    assert choice.found.lower == 1.0
    with pytest.raises(QueryError, match="time is up: 2 of the 2 factuals"):
        robust_choice(instance, solver(2, None), slow, budget=Budget(seconds=1e-9))


def test_where_an_optimum_takes_all_its_time_everything_is_decided_before_the_next() -> None:
    """The first answer is hasty: all proved, and dear. The second may take longer; the better of the two is kept, either way."""
    block = CostBlock(component=0, factuals=np.arange(2), candidates=np.arange(2, 6), cost=np.tile([1.0, 2.0, 3.0, 4.0], (2, 1)))
    instance = Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)
    told = {2: VIOLATED, 3: PROVED, 4: PROVED, 5: PROVED}

    def hasty(answers: list[int]) -> Callable[[Instance, float, Budget], Centers]:
        def found(rest: Instance, coverage: float, budget: Budget) -> Centers:
            time.sleep(budget.seconds)
            node = answers.pop(0)
            assert node in rest.candidates
            return Centers(chosen=np.array([node]), cost=float(node - 1), lower=1.0, proved=True, steps=1)

        return found

    for answers, expected in (([5, 3], 3), ([4, 5], 4)):
        prove, asked = answering(told)
        choice = robust_choice(instance, hasty(answers), prove, budget=Budget(seconds=3))
        assert isinstance(choice.found, Centers)
        assert (choice.found.chosen.tolist(), choice.found.cost, choice.found.lower) == ([expected], expected - 1.0, 1.0)
        assert sorted(asked) == [2, 3, 4, 5]
        assert (choice.rounds, choice.undecided) == (2, 0)


def test_without_leaves_the_rest_as_it_is() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        instance = random_instance(rng)
        gone = [int(node) for node in instance.candidates if rng.random() < 0.4]
        rest = without(instance, gone)
        left = np.setdiff1d(instance.columns, gone)
        assert sorted(rest.candidates.tolist()) == sorted(set(instance.candidates.tolist()) - set(gone))
        helped = np.isfinite(instance.to(left)).any(axis=1) if len(left) else np.zeros(instance.size, dtype=bool)
        assert sorted(rest.hopeless.tolist()) == sorted(instance.factuals[~helped].tolist())
        if rest.blocks:
            assert (rest.factuals == instance.factuals[helped]).all()
            assert (rest.to(left) == instance.to(left)[helped]).all()
