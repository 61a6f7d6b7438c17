"""FGCE's optima against brute force: from rows through the graph, on odd costs, out of time at every step; and monotonicity."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from encoders.arrays import Array, Booleans
from solvers.outcome import Budget
from tests.draws import draws
from tests.soundness.systems.random_groups import fewest_columns, least_cost, most_covered, random_table
from verifair.errors import DataError, QueryError
from verifair.systems.fgce.graph.density import edge_weights
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Cost, CostBlock, Instance
from verifair.systems.fgce.optimum import center, cover, partial, relaxation, search
from verifair.systems.fgce.optimum.center import Centers, Unfinished, by_components, by_solver, centers, fewest, needed
from verifair.systems.fgce.optimum.cover import Coverage, greedy_coverage, largest_coverage
from verifair.systems.fgce.optimum.partial import PartialSearch
from verifair.systems.fgce.optimum.search import CoverSearch
from verifair.systems.fgce.space import FeatureSpace

Method = Callable[..., Centers]
EXACT: tuple[Method, ...] = (centers, by_components)
SHARES = (1.0, 0.999999, 0.7, 0.5, 0.3, 0.1, 1e-9)
GREEDY = 1 - 1 / np.e
NEAR = 1e-9
"""A cost that exceeds a limit by this share of it, or less, counts as the limit."""


def from_rows(rng: np.random.Generator, cost: Cost | None = None) -> Instance | None:
    """A random table's question, or None where it has no answer."""
    table = random_table(rng, int(rng.choice([6, 12, 20])))
    eps = None if rng.random() < 0.4 else float(rng.choice([0.3, 0.6, 1.0, 1.5]))
    try:
        graph = FeasibilityGraph.build(table.space, table.raw, eps, threads=1)
        kind: Cost = cost or rng.choice(np.array(["l2", "path", "hops"]))  # type: ignore[assignment]
        negatives, candidates = np.flatnonzero(~table.positive), np.flatnonzero(table.positive)
        weights = edge_weights(graph, "inverse", 0.3)
        return Instance.of(graph, Reachability.of(graph), negatives, candidates, cost=str(kind), weights=weights)  # type: ignore[arg-type]
    except DataError:
        return None


def from_costs(*costs: Array) -> Instance:
    """An instance with these blocks (f, c); rows without a finite cost are left out, as are such columns."""
    blocks, node = [], 0
    for number, cost in enumerate(costs):
        cost = cost[np.isfinite(cost).any(axis=1)]
        cost = cost[:, np.isfinite(cost).any(axis=0)]
        f, c = cost.shape
        if f:
            ends = np.arange(node, node + f), np.arange(node + f, node + f + c)
            blocks.append(CostBlock(component=number, factuals=ends[0], candidates=ends[1], cost=cost))
            node += f + c
    return Instance(blocks=tuple(blocks), hopeless=np.empty(0, dtype=np.int64), candidates=np.arange(node))


def odd(rng: np.random.Generator, style: str) -> Instance:
    """Costs that are often equal, all equal, zero, next to each other, or of one candidate only; about half may be infeasible."""
    def block() -> Array:
        shape = (int(rng.integers(1, 8)), 1 if style == "one candidate" else int(rng.integers(1, 7)))
        cost = {
            "ties": rng.integers(0, 4, shape).astype(float), "equal": np.full(shape, 0.7), "zero": np.zeros(shape),
            "next": np.nextafter(1.0, 2.0) ** rng.integers(0, 4, shape), "one candidate": rng.random(shape),
            "huge": 10.0 ** rng.integers(-300, 300, shape), "plain": rng.random(shape),
        }[style]
        return np.where(rng.random(shape) < rng.choice([0.0, 0.3, 0.6]), np.inf, cost)

    while not (instance := from_costs(*(block() for _ in range(rng.integers(1, 4))))).blocks:
        pass
    return instance


STYLES = ("ties", "equal", "zero", "next", "one candidate", "huge", "plain")


def check_centers(instance: Instance, k: int, share: float, methods: Iterable[Method]) -> bool:
    """All methods give brute force's cost, exactly, by a choice that has it; or say that k is too few, and what it could cover."""
    cost = instance.costs()
    count = needed(instance, share)
    truth = least_cost(cost, k, count)
    for method in methods:
        if np.isinf(truth):
            with pytest.raises(QueryError, match=r"too few|infeasible") as caught:
                method(instance, k, share)
            told = re.search(r"cover at most (\d+) of", str(caught.value))
            assert told is None or most_covered(cost, k, np.inf) <= int(told[1]) < count
            continue
        found = method(instance, k, share)
        assert (found.cost, found.lower) == (truth, truth)
        assert found.optimal
        assert len(set(found.chosen.tolist())) == len(found.chosen) <= k
        assert np.isin(found.chosen, instance.columns).all()
        assert np.sort(instance.to(found.chosen).min(axis=1))[count - 1] <= truth
    return bool(np.isfinite(truth))


def check_coverage(instance: Instance, k: int, limit: float) -> None:
    most = limit * (1 + NEAR)
    truth = most_covered(instance.costs(), k, most)
    exact, greedy = largest_coverage(instance, k, limit), greedy_coverage(instance, k, limit)
    assert (exact.covered, exact.bound, exact.optimal) == (truth, truth, True)
    assert GREEDY * truth <= greedy.covered <= truth <= greedy.bound
    for found in (exact, greedy):
        assert len(found.chosen) <= k
        paid = instance.to(found.chosen).min(axis=1, initial=np.inf)
        assert (np.isfinite(paid) & (paid <= most)).sum() == found.covered


def check_fewest(instance: Instance, limit: float) -> None:
    most = limit * (1 + NEAR)
    truth = fewest_columns(instance.costs(), most)
    if truth is None:
        with pytest.raises(QueryError, match="somebody has no counterfactual so near"):
            fewest(instance, limit)
    else:
        k, chosen = fewest(instance, limit)
        assert k == truth == len(chosen)
        paid = instance.to(chosen).min(axis=1)
        assert (np.isfinite(paid) & (paid <= most)).all()


def weaken(monkeypatch: pytest.MonkeyPatch, steps: int, rounds: int = 0) -> None:
    """Bounds of few steps and of LPs with few cuts (0: none), so that small systems are branched on at all."""
    monkeypatch.setattr(search, "STEPS", steps)
    monkeypatch.setattr(relaxation, "ROUNDS", rounds)


def limits(instance: Instance, rng: np.random.Generator) -> list[float]:
    """Costs to ask about: some that are there, what counts as one of them, what is too little for it, nothing, and no limit."""
    cost = instance.costs()
    some = rng.choice(np.unique(cost[np.isfinite(cost)]), 2)
    return [*some.tolist(), float(np.nextafter(some[0], -1)), some[0] * (1 - 2 * NEAR), 0.0, -1.0, np.inf]


@pytest.mark.parametrize("block", draws(8))
def test_optima_from_rows_are_those_of_brute_force(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(30 * block, 30 * (block + 1)):
        rng = np.random.default_rng([seed, 1])
        instance = from_rows(rng)
        if instance is None:
            continue
        seen["instances"] += 1
        seen["with several components"] += len(instance.blocks) > 1
        for limit in limits(instance, rng)[:: int(rng.integers(1, 4))]:
            check_fewest(instance, limit)
            check_coverage(instance, int(rng.choice([1, 2, 3, 1 + instance.costs().shape[1]])), limit)
        for k in {1, int(rng.integers(2, 4)), 1 + instance.costs().shape[1]}:
            for share in rng.choice(SHARES, 2):
                methods = [method for method, part in ((centers, 1), (by_components, 0.3), (by_solver, 0.1)) if rng.random() < part]
                seen["solved"] += check_centers(instance, k, float(share), methods)
    assert seen["instances"] > 15
    assert seen["with several components"] > 5
    assert seen["solved"] > 60


@pytest.mark.parametrize("style", STYLES)
def test_optima_of_odd_costs_are_those_of_brute_force(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    solved = 0
    for seed in draws(25):
        rng = np.random.default_rng([seed, 2])
        monkeypatch.setattr(search, "DOMINATED", int(rng.choice([0, 3000])))
        weaken(monkeypatch, int(rng.choice([0, 3, 120])), int(rng.choice([0, 1, 2, 60])))
        instance = odd(rng, style)
        k, share = int(rng.integers(1, 6)), float(rng.choice(SHARES))
        solved += check_centers(instance, k, share, EXACT)
        for limit in limits(instance, rng):
            check_fewest(instance, limit)
            check_coverage(instance, k, limit)
    assert solved >= 0.8 * len(draws(25))  # some have no feasible choice


@pytest.mark.parametrize("rounds", [0, 1, 2, 4])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_branching_is_exact(steps: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch, steps, rounds)
    branches = 0
    for seed in range(25):
        rng = np.random.default_rng([seed, steps, 6])
        instance = from_costs(np.where(rng.random((20, 9)) < 0.3, rng.integers(1, 4, (20, 9)), np.inf))
        k = int(rng.integers(2, 5))
        check_coverage(instance, k, 2.0)
        check_centers(instance, k, float(rng.choice(SHARES)), [centers])
        truth, target = most_covered(instance.costs(), k, 2.0), int(rng.integers(8, 20))
        found = cover.best(cover.SetSystem.within(instance, 2.0), k, target=target, budget=Budget())
        assert found.covered <= truth <= found.bound
        assert found.covered >= target if truth >= target else found.bound < target
        branches += largest_coverage(instance, k, 2.0).nodes
    assert branches > (50 if rounds < 2 else 20)


def on_a_plane(rng: np.random.Generator) -> Instance:
    """People and candidates in two components of points of a coarse grid, so that many are alike and costs are often equal."""
    def block(f: int, c: int) -> Array:
        own, there = rng.integers(0, 12, (f, 2)), rng.integers(0, 12, (c, 2))
        cost = np.hypot(*(own[:, None] - there[None]).transpose(2, 0, 1)).astype(float)
        return np.where(rng.random((f, c)) < 0.2, np.inf, cost)

    return from_costs(block(50, 22), block(20, 8))


@pytest.mark.parametrize("rounds", [0, 2, 3, 5])
def test_any_columns_may_be_branched_on_together(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is in, or none, whichever they are: nothing is lost and nothing is gained."""
    together = 0
    for seed in draws(10):
        rng = np.random.default_rng([seed, rounds, 13])

        def some(branch: search.Branch, point: Array, rng: np.random.Generator = rng) -> Booleans | None:
            nonlocal together
            among = rng.random(len(branch.columns)) < rng.choice([0.2, 0.6])
            columns, there = set(branch.columns[among].tolist()), set(branch.columns.tolist())
            known = any(required & there <= columns for required in branch.required)
            if rng.random() < 0.6 or len(columns) < 2 or known:
                return None
            together += 1
            return np.asarray(among)

        monkeypatch.setattr(search, "_alike", some)
        monkeypatch.setattr(relaxation, "GROUPS", 2)
        weaken(monkeypatch, int(rng.choice([1, 3])), rounds)
        instance = from_costs(np.where(rng.random((300, 18)) < 0.3, 1.0, np.inf))
        k = int(rng.integers(3, 6))
        check_coverage(instance, k, 2.0)
        check_centers(instance, k, float(rng.choice(SHARES)), [centers])
    assert together > 10


@pytest.mark.parametrize("steps", [0, 3, 300])
def test_partial_coverage_is_brute_forces_after_any_work(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The enclosure holds the truth however early it ends, columns that were fixed included, and shrinks to it."""
    fixed, early = 0, 0
    for seed in range(12):
        rng = np.random.default_rng([seed, 12])
        weaken(monkeypatch, steps, seed % 4)
        instance, k, count = on_a_plane(rng), int(rng.integers(2, 4)), int(rng.integers(25, 66))
        monkeypatch.setattr(search, "DOMINATED", int(rng.choice([0, 3000])))
        truth = least_cost(instance.costs(), k, count)
        run = partial.CoverSearch.run
        for asked in (1, 2, 4, 7, 1000):
            calls = itertools.count()

            def some(self: CoverSearch, deadline: float, most: int | None) -> None:
                if next(calls) < asked:  # noqa: B023
                    run(self, deadline, most)  # noqa: B023

            monkeypatch.setattr(partial.CoverSearch, "run", some)
            monkeypatch.setattr(partial, "ROUNDS", (1, 2))
            found = PartialSearch(instance, k, count)
            most = found.run(np.inf)
            monkeypatch.setattr(partial.CoverSearch, "run", run)
            if np.isinf(truth):
                assert most < count or asked < 1000
                continue
            assert found.lower <= truth <= found.upper
            assert most >= count
            if np.isfinite(found.upper):
                assert np.sort(instance.to(found.chosen).min(axis=1))[count - 1] == found.upper
            early += found.lower < found.upper
            fixed += sum(map(len, found.useful[-1][1])) < len(instance.columns)
        if np.isfinite(truth):
            assert found.lower == found.upper == truth
    assert early > 5
    assert fixed > 5 or steps < 300



def test_greedy_takes_the_largest_gain_in_every_round() -> None:
    """Lazy evaluation changes nothing: of equal gains the first column."""
    for seed in draws(60):
        rng = np.random.default_rng([seed, 7])
        near = rng.random((30, 12)) < rng.choice([0.1, 0.3])
        covers = cover.SetSystem.of([near], [np.arange(12)])
        table, left, chosen = covers.covers.toarray(), covers.weights.copy(), []
        while len(chosen) < 6 and (gains := left @ table).max() > 0:
            chosen.append(int(gains.argmax()))
            left[table[:, chosen[-1]]] = 0
        assert cover.greedy(covers, 6) == chosen


def test_fewer_candidates_than_components_is_told_with_the_k_that_would_do() -> None:
    """The dynamic program has nothing to share out here, and must not stumble over that."""
    instance = from_costs(*(np.ones((2, 2)) for _ in range(4)))
    for method, k in itertools.product(EXACT, (1, 2, 3)):
        with pytest.raises(QueryError, match=rf"^k = {k} is too few to cover all 8 people who can be helped: they are in 4 parts "
                                             r"of the table .*; 4 counterfactuals are needed: pass k = 4, or a coverage below 1$"):
            method(instance, k)
        with pytest.raises(QueryError, match=rf"cover at most {2 * k} of the 8 factuals, 7 are asked for; raise k, or lower"):
            method(instance, k, 0.8)
        assert method(instance, k, k / 4).cost == 1.0
    with pytest.raises(QueryError, match="infeasible without a solution for k = 3"):
        by_solver(instance, 3)


def test_coverage_may_leave_a_component_out() -> None:
    near, far = np.full((6, 2), 1.0), np.full((4, 2), 9.0)
    instance = from_costs(near, far)
    for method in (*EXACT, by_solver):
        found = method(instance, 3, 0.6)
        assert found.cost == 1.0
        assert set(found.chosen.tolist()) & set(instance.blocks[0].candidates.tolist())
        assert method(instance, 3, 0.61).cost == 9.0


@pytest.mark.parametrize(("share", "size", "count"), [
    (0.1, 30, 3), (0.7, 10, 7), (0.3, 10, 3), (0.29, 100, 29), (0.57, 100, 57), (1 / 3, 3, 1), (2 / 3, 3, 2), (0.15, 20, 3),
    (0.999999, 30, 30), (1e-9, 30, 1), (1e-300, 30, 1), (1.0, 30, 30), (0.5, 3, 2), (0.07, 100, 7), (0.995, 200, 199),
])
def test_a_share_is_as_many_factuals_as_in_decimals(share: float, size: int, count: int) -> None:
    """0.1 * 30 = 3.0000000000000004 in floats, 0.29 * 100 = 28.999999999999996."""
    instance = from_costs(np.arange(1.0, size + 1)[:, None])
    assert needed(instance, share) == count
    assert {method(instance, 1, share).cost for method in EXACT} == {float(count)}


@pytest.mark.parametrize("share", [0.0, -0.1, 1.0000001, np.nan, np.inf])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    for method in (*EXACT, by_solver):
        with pytest.raises(QueryError, match="expected a share of the factuals, above 0 and at most 1"):
            method(from_costs(np.ones((2, 2))), 1, share)


def test_what_cannot_be_asked_is_refused() -> None:
    instance = from_costs(np.ones((2, 2)))
    for k in (0, -1):
        for asked in (lambda k: centers(instance, k), lambda k: largest_coverage(instance, k, 1.0),
                      lambda k: greedy_coverage(instance, k, 1.0)):
            with pytest.raises(QueryError, match=f"k = {k}: at least one counterfactual is needed"):
                asked(k)
    for limit in (0.5, -1.0, np.nan):
        with pytest.raises(QueryError, match=r"somebody has no counterfactual so near; 1 is the least that covers all"):
            fewest(instance, limit)


# Out of time


class Clock:
    """Every look at it takes a second, so that a budget of n seconds ends at the n-th look."""

    def __init__(self) -> None:
        self.looks = itertools.count(1)

    def now(self) -> float:
        return float(next(self.looks))

    def spend(self, multiplications: float) -> None:
        """Looks alone take time."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Clock]:
    def start() -> Clock:
        clock = Clock()
        for module in (center, cover):
            monkeypatch.setattr(module, "clock", clock)
        return clock

    return start


def ends(rng: np.random.Generator, looks: int) -> list[Budget]:
    """Budgets that end at some of so many looks, among them the last ones."""
    some = {*rng.integers(1, looks + 1, 25).tolist(), *range(max(looks - 15, 1), looks + 1)}
    return [Budget(seconds=look - 0.5) for look in sorted(some)]


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_out_of_time_at_any_step_leaves_a_true_interval(
    method: Method, share: float, started: Callable[[], Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """lower <= optimum <= cost of the chosen ones <= cost: never a false optimum, and with components none that is not proved."""
    seen: Counter[str] = Counter()
    weaken(monkeypatch, 0)
    for seed in range(6 if method is by_components else 60):
        rng = np.random.default_rng([seed, 3])
        instance = odd(rng, str(rng.choice(["ties", "plain", "next"])))
        count, k = needed(instance, share), int(rng.integers(1, 5))
        truth = least_cost(instance.costs(), k, count)
        if np.isinf(truth):
            continue
        clock = started()
        assert method(instance, k, share, budget=Budget(seconds=1e6)).cost == truth
        for budget in ends(rng, next(clock.looks)):
            started()
            try:
                found = method(instance, k, share, budget=budget)
            except Unfinished:
                assert method is by_components
                seen["no answer"] += 1
                continue
            assert found.lower <= truth <= found.cost
            assert len(found.chosen) <= k
            if np.isfinite(found.cost):
                assert np.sort(instance.to(found.chosen).min(axis=1))[count - 1] <= found.cost
            seen["optimal" if found.optimal else "gap"] += 1
    assert seen["optimal"] > 10
    assert seen["no answer" if method is by_components else "gap"] > 50


def test_a_set_cover_that_was_not_decided_raises_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undecided is not infeasible: not at the least cost, not in bisection, and not without a limit (k would be too few)."""
    instance = from_costs(np.array([[1.0, 5.0], [5.0, 1.0], [2.0, 3.0]]))
    assert (centers(instance, 1).cost, centers(instance, 1, 0.6).cost) == (5.0, 2.0)
    plain = center.best
    for decided in range(5):
        calls = itertools.count()

        def undecided(system: cover.SetSystem, k: int, *, target: int, budget: Budget) -> Coverage:
            found = plain(system, k, target=target, budget=budget)
            return found if next(calls) < decided else replace(found, covered=0, bound=target)  # noqa: B023

        monkeypatch.setattr(center, "best", undecided)
        found = centers(instance, 1)
        assert found.lower <= 5.0 <= found.cost
        calls = itertools.count()
        assert centers(instance, 1, 0.6).lower <= 2.0


def test_components_prove_nothing_with_a_part_that_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = from_costs(np.array([[1.0, 5.0], [5.0, 1.0]]), np.ones((2, 1)))

    def gap(part: Instance, k: int, share: float, *, budget: Budget) -> Centers:
        found = centers(part, k, share, budget=budget)
        return replace(found, lower=0.0) if k == 2 and part.size == 2 else found

    monkeypatch.setattr(center, "centers", gap)
    for k, share in ((3, 1.0), (2, 0.9)):
        with pytest.raises(Unfinished):
            by_components(instance, k, share)


def test_coverage_out_of_time_or_of_nodes_leaves_a_true_interval(
    started: Callable[[], Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps = 0
    for seed in draws(30):
        weaken(monkeypatch, seed % 3)
        rng = np.random.default_rng([seed, 4])
        instance = from_costs((rng.random((24, 9)) > 0.25).astype(float))
        k = int(rng.integers(2, 5))
        truth = most_covered(instance.costs(), k, 0.5)
        for budget in (*(Budget(seconds=n + 0.5) for n in range(1, 12)), Budget(nodes=1), Budget(nodes=2)):
            started()
            found = largest_coverage(instance, k, 0.5, budget=budget)
            assert found.covered <= truth <= found.bound
            assert (instance.to(found.chosen).min(axis=1) <= 0.5).sum() == found.covered
            gaps += not found.optimal
    assert gaps > 20


@pytest.mark.parametrize("seconds", [1e-9, 1e-4, 3e-3])
def test_hardly_any_time_at_all(seconds: float) -> None:
    """The same with the real clock, which no other test here depends on."""
    for seed in draws(12):
        rng = np.random.default_rng([seed, 5])
        instance = from_costs(*(rng.random((30, 8)) for _ in range(2)))
        for share in (1.0, 0.7):
            truth = least_cost(instance.costs(), 3, needed(instance, share))
            found = centers(instance, 3, share, budget=Budget(seconds=seconds))
            assert found.lower <= truth <= found.cost
        with pytest.raises(Unfinished):
            fewest(instance, budget=Budget(seconds=1e-9))


# Monotonicity and invariance

seeds = st.integers(0, 2**32 - 1)


def cost_of(instance: Instance, k: int, share: float) -> float:
    try:
        return centers(instance, k, share).cost
    except QueryError:
        return np.inf


@settings(max_examples=len(draws(28)))
@given(seed=seeds, style=st.sampled_from(STYLES), shares=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)))
def test_cost_falls_in_k_and_rises_in_coverage(seed: int, style: str, shares: tuple[float, float]) -> None:
    instance = odd(np.random.default_rng(seed), style)
    low, high = sorted(shares)
    table = np.array([[cost_of(instance, k, share) for k in range(1, 5)] for share in (low, high, 1.0)])
    assert (table[:, 1:] <= table[:, :-1]).all()
    assert (table[1:] >= table[:-1]).all()


@settings(max_examples=len(draws(28)))
@given(seed=seeds, style=st.sampled_from(STYLES))
def test_coverage_rises_in_cost_and_in_k(seed: int, style: str) -> None:
    rng = np.random.default_rng(seed)
    instance = odd(rng, style)
    costs = sorted(limits(instance, rng))
    table = np.array([[largest_coverage(instance, k, cost).covered for k in range(1, 5)] for cost in costs])
    assert (np.diff(table, axis=0) >= 0).all()
    assert (np.diff(table, axis=1) >= 0).all()
    assert (np.diff(np.diff(np.column_stack([np.zeros(len(costs)), table[:, :1]]), axis=1), axis=1) <= 0).all()


@settings(max_examples=len(draws(28)))
@given(seed=seeds)
def test_k_center_and_coverage_and_fewest_are_one_question(seed: int) -> None:
    """At the optimal cost of k all are covered by k; below it they are not; and no fewer than `fewest` says will do."""
    rng = np.random.default_rng(seed)
    instance = odd(rng, str(rng.choice(STYLES)))
    least, _ = fewest(instance)
    found = centers(instance, least)
    assert largest_coverage(instance, least, found.cost).covered == instance.size
    assert largest_coverage(instance, least, float(np.nextafter(found.cost, 0))).covered == instance.size
    assert largest_coverage(instance, least, found.cost * (1 - 2 * NEAR) or -1.0).covered < instance.size
    assert fewest(instance, found.cost)[0] == least
    assert least == len(instance.blocks) or np.isinf(cost_of(instance, least - 1, 1.0))


@settings(max_examples=len(draws(35)))
@given(seed=seeds)
def test_a_longer_eps_or_a_freed_feature_never_costs_more(seed: int) -> None:
    """By vectors (l2) and with everybody able to reach somebody before: more moves only add feasible pairs."""
    rng = np.random.default_rng(seed)
    table = random_table(rng, 14)
    negatives, candidates = np.flatnonzero(~table.positive), np.flatnonzero(table.positive)
    assume(len(negatives) and len(candidates))
    names = [feature.name for feature in table.space.schema.features]
    changes = dict(zip(names, table.space.changes, strict=True))
    freed = changes | {name: "free" for name in rng.permutation(names)[:1] if table.space.schema[name].moves is None}
    assume(all(table.space.schema[n].categories is None or table.space.schema[n].ordered for n in freed if freed[n] != changes[n]))
    eps = float(rng.choice([0.3, 0.7, 1.0]))

    def asked(space: FeatureSpace, eps: float, rows: Array) -> Instance:
        graph = FeasibilityGraph.build(space, table.raw, eps, threads=1)
        return Instance.of(graph, Reachability.of(graph), rows, candidates)

    before = FeatureSpace.of(table.space.schema, changes, table.space.custom)
    try:
        first = asked(before, eps, negatives)
    except DataError:
        assume(False)
    least = fewest(first)[0]
    more = FeatureSpace.of(before.schema, freed, before.custom)
    for other in (asked(before, 1.7 * eps, first.factuals), asked(more, eps, first.factuals)):
        assert other.size == first.size
        assert fewest(other)[0] <= least
        for k in (least, least + 1):
            assert centers(other, k).cost <= centers(first, k).cost
        for cost in (0.5, 1.0):
            assert largest_coverage(other, 2, cost).covered >= largest_coverage(first, 2, cost).covered


@settings(max_examples=len(draws(18)))
@given(seed=seeds)
def test_the_order_of_rows_and_candidates_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = odd(rng, "plain")
    turned = from_costs(*(block.cost[rng.permutation(len(block.cost))][:, rng.permutation(block.cost.shape[1])]
                          for block in instance.blocks[::-1]))
    assert fewest(turned)[0] == fewest(instance)[0]
    for k, share in itertools.product((1, 2, 4), (1.0, 0.6)):
        assert cost_of(turned, k, share) == cost_of(instance, k, share)
        limit = float(rng.random())
        both: list[Coverage] = [largest_coverage(one, k, limit) for one in (instance, turned)]
        assert both[0].covered == both[1].covered
