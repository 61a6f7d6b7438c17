"""The search against full enumeration on tiny networks: its k is never too large, exact where reported, legal, reproducible."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from onnxruntime import InferenceSession

from encoders.arrays import Array
from encoders.buckets import bucket, share_bucket
from encoders.domain import Forbidden
from encoders.model import Link
from encoders.network import Layer
from encoders.probability.shares import logistic
from solvers.outcome import Budget
from tests.brute_force import exact_forward, fractions
from tests.builders import categorical, integer, lattice, network_of, one_hot, random_network, schema_of
from tests.tree_models import random_tree, save
from verifair.engine.gap.maximise import maximise
from verifair.engine.queries import KDiscrimination, ProbabilityGap
from verifair.engine.verdict import Finding, Verdict
from verifair.errors import DataError, QueryError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.kmax.result import KmaxSearch
from verifair.systems.hyfair.search import annealing, clusters
from verifair.systems.hyfair.search.annealing import METHODS, Schedule, search_clusters
from verifair.systems.hyfair.search.moves import Mutation, Nearest, Pool, SolverSeeds
from verifair.systems.hyfair.search.space import Space, edges, occupied
from verifair.systems.results.files import json_text

FEW = Schedule(chains=8, patience=20)


def schema(positive: str = "logit > 0") -> Schema:
    """Two protected features with 2 x 3 combinations, an integer, a category and a number beside them."""
    return schema_of(
        integer("a", 0, 1),
        integer("n", -3, 3, scale={"scale": 2.0}),
        one_hot("z", "p", "q", "r"),
        one_hot("c", "u", "v"),
        categorical("m", "1", "2", "3", codes=[1, 2, 3]),
        positive=positive,
    )


def question(seed: int, *, outputs: int = 1, slope: float = 0.0, gain: float = 6.0, **fields: Any) -> KDiscrimination:
    network = random_network(np.random.default_rng(seed), (8, 6, 5, outputs), slope=slope)
    last = network.layers[-1]
    steep = Layer(weight=gain * last.weight, bias=last.bias, slope=last.slope)
    network = replace(network, layers=(*network.layers[:-1], steep))
    described = schema("logit > 0" if outputs == 1 else "class = 1")
    return KDiscrimination(**{"model": network, "schema": described, "protected": ["a", "z"], "buckets": 7, **fields})


def forbid(query: KDiscrimination, **ends: tuple[float, float]) -> KDiscrimination:
    """The query with one more box that cannot be."""
    described, domain = query.schema, query.schema.domain
    lower, upper = np.full(5, -np.inf), np.full(5, np.inf)
    for name, (low, high) in ends.items():
        lower[described.index(name)], upper[described.index(name)] = low, high
    copy = Schema.loads(described.dumps())
    copy.__dict__["domain"] = replace(domain, forbidden=Forbidden(lower=lower[None, :], upper=upper[None, :]))
    return replace(query, schema=copy)


def true_k(query: KDiscrimination, x: Array) -> int:
    """By the definition, in fractions: legal combinations only."""
    described = query.schema
    index = [described.index(name) for name in query.protected]
    rows = np.repeat(x[None, :], len(query.combinations()), axis=0)
    rows[:, index] = query.combinations()
    rows = rows[described.domain.legal(rows)]
    if not len(rows):
        return 0
    logits = exact_forward(query.model, described.encode(rows))
    values = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
    return len({bucket(value, query.buckets) for value in values})


def enumerated(query: KDiscrimination) -> tuple[Array, list[int]]:
    space = Space.of(query)
    upper = space.upper.copy()
    lower = space.lower.copy()
    lower[space.protected] = upper[space.protected] = 0
    points = lattice(lower, upper)
    return points, [true_k(query, x) for x in points]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("outputs", "slope"), [(1, 0.0), (2, 0.0), (1, 0.1)])
def test_counts_equal_the_definition(seed: int, outputs: int, slope: float) -> None:
    query = question(seed, outputs=outputs, slope=slope)
    points, expected = enumerated(query)
    space = Space.of(query)
    assert space.count(points).tolist() == expected, "no logit of these networks is within float32's error of an edge"
    for x, k in list(zip(points, expected, strict=True))[::7]:
        found = clusters.recount(space, x)
        assert found.k == k
        assert found.runtime_k is None, "there is no model file"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", METHODS)
def test_search_finds_the_largest_k_of_a_small_space(seed: int, method: str) -> None:
    query = question(seed)
    points, expected = enumerated(query)
    found = search_clusters(query, method=method, data=points, iterations=60, schedule=FEW, seed=seed, seconds=60)
    assert found.k == max(expected)
    assert true_k(query, found.cluster.x) == found.k == found.value
    assert query.schema.inside(found.cluster.x[None, :]).all()
    assert found.peers.shape[1] == 5
    assert all(true_k(query, x) == found.k for x in found.peers)
    assert found.statistics.at_best >= len(found.peers) >= 1


@pytest.mark.parametrize("seed", range(4))
def test_k_found_never_exceeds_the_largest(seed: int) -> None:
    query = question(seed, gain=20.0, buckets=11)
    _, expected = enumerated(query)
    short = search_clusters(query, iterations=1, schedule=Schedule(chains=1), seed=seed)
    assert 1 <= short.k <= max(expected)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_search(method: str) -> None:
    query = question(3)
    data = Space.of(query).random(np.random.default_rng(0), 30)
    same = {"method": method, "data": data, "iterations": 40, "schedule": FEW, "seconds": 60, "enough": 99}
    runs = [search_clusters(query, **same, seed=s) for s in (5, 5, 6)]
    first, again, other = (
        (r.cluster.x.tolist(), r.peers.tolist(), r.statistics.instances, r.statistics.mean_k, r.statistics.restarts,
         [(p.evaluations, p.k) for p in r.trace]) for r in runs
    )
    assert first == again
    assert first != other


def test_the_result_is_a_finding_and_says_so() -> None:
    query = question(1)
    space = Space.of(query)
    found = search_clusters(query, iterations=30, schedule=FEW)
    assert isinstance(found, Finding)
    assert not isinstance(found, Verdict)
    read = json.loads(json_text(KmaxSearch.of(space, found)))
    assert read["proof"] is False
    assert read["k"] == found.k == len({line["bucket"] for line in read["outcomes"]})
    assert len(read["outcomes"]) == 6
    assert set(read["person"]) == {"n", "c", "m"}
    lines = clusters.by_bucket(space, found.cluster)
    assert len(lines) == found.k
    assert lines["variants"].sum() == 6
    assert found.table_two()["Max.K"] == found.k


def test_statistics_are_those_of_the_rows_generated() -> None:
    query = question(2)
    met: list[int] = []
    inner = Space.count

    class Watched(Space):
        def count(self, x: Array) -> Any:
            k = inner(self, x)
            met.extend(k.tolist())
            return k

    run = annealing._Walk(
        space=Watched(**{name: getattr(Space.of(query), name) for name in Space.__dataclass_fields__}),
        pool=Pool.of(Space.of(query), None), method="sa", schedule=FEW, rng=np.random.default_rng(0),
    )
    run.reseed = lambda rng, count: run.space.random(rng, count)
    run.begin()
    for _ in range(50):
        run.step()
    s = run.result("iterations", 0).statistics
    assert s.rows == len(met)
    assert s.evaluations == 6 * len(met)
    assert s.instances == sum(k >= 2 for k in met)
    assert s.mean_k == pytest.approx(np.mean([k for k in met if k >= 2]))
    assert s.success_rate == pytest.approx(s.instances / len(met))
    assert s.restarts > 0, "a small space is soon searched through"


def test_the_best_row_is_counted_where_float32_counts_fewer_of_its_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Space.count
    monkeypatch.setattr(Space, "count", lambda self, x: np.maximum(inner(self, x) - 1, 1))
    found = search_clusters(question(2), iterations=20, schedule=FEW)
    assert found.k > 1
    assert found.statistics.at_best == 1 == len(found.peers)


# What cannot be


def test_forbidden_combinations_do_not_count() -> None:
    query = question(4, gain=20.0)
    _, expected = enumerated(query)
    hardly = forbid(query, a=(1, 1))  # a = 1 cannot be at all
    points, fewer = enumerated(hardly)
    assert fewer == Space.of(hardly).count(points).tolist()
    assert any(k < full for k, full in zip(fewer, expected, strict=True))
    found = search_clusters(hardly, iterations=60, schedule=FEW)
    assert found.k == max(fewer)
    assert (found.cluster.combinations[:, 0] == 0).all()
    assert len(found.cluster.combinations) == 3


@pytest.mark.parametrize("method", METHODS)
def test_forbidden_rows_are_never_visited(method: str) -> None:
    query = forbid(question(0, gain=20.0), n=(1, 3))
    assert not query.schema.inside(np.array([[0.0, 2, 0, 0, 0]])).any()
    data, _ = enumerated(replace(query, schema=schema()))
    found = search_clusters(query, method=method, data=data, iterations=60, schedule=FEW, enough=99)
    assert found.statistics.skipped == (data[:, 1] >= 1).sum()
    assert (found.peers[:, 1] < 1).all()
    assert query.schema.inside(found.peers).all()
    points, expected = enumerated(query)
    assert found.k == max(expected)
    assert max(k for x, k in zip(points, expected, strict=True) if x[1] >= 1) == 0


def test_partly_forbidden_rows_show_a_combination_that_can_be() -> None:
    query = forbid(question(5, gain=20.0), a=(0, 0), c=(0, 0))
    found = search_clusters(query, iterations=60, schedule=FEW)
    assert query.schema.inside(found.cluster.x[None, :]).all()
    assert query.schema.inside(found.peers).all()
    _, expected = enumerated(query)
    assert found.k == max(expected)


def test_where_few_rows_can_be_these_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifair.systems.hyfair.search.space.DRAWS", 2)
    space = Space.of(forbid(question(0), n=(-2, 3)))  # one of seven can be
    drawn = space.random(np.random.default_rng(0), 200)
    assert drawn.shape == (200, len(space.lower))
    assert space.legal(drawn).all()
    assert len(np.unique(drawn, axis=0)) > 5


def test_where_nothing_can_be_the_search_says_so() -> None:
    with pytest.raises(QueryError, match="constraints forbid nearly every row"):
        search_clusters(forbid(question(0), n=(-3, 3)), iterations=5, schedule=FEW)


def test_boxes_and_listed_values_are_kept() -> None:
    query = question(0, gain=20.0, box={"n": (-1, 0), "c": "v"}, values={"z": [0, 2]})
    found = search_clusters(query, iterations=40, schedule=FEW)
    assert set(found.peers[:, 1]) <= {-1.0, 0.0}
    assert set(found.peers[:, 3]) == {1.0}
    assert set(found.cluster.combinations[:, 1]) == {0.0, 2.0}
    assert found.k == max(enumerated(query)[1])


def test_protected_features_have_no_place_in_the_box() -> None:
    with pytest.raises(QueryError, match="'a': the feature is protected"):
        Space.of(question(0, box={"a": 1}))


def test_a_single_combination_is_an_error() -> None:
    with pytest.raises(QueryError, match="at least two different"):
        question(0, values={"z": [1]})


# Buckets


@pytest.mark.parametrize("buckets", [2, 7, 20, 1000])
def test_edges_are_where_buckets_begin(buckets: int) -> None:
    found = edges(buckets)
    assert len(found) == buckets - 1
    for i in range(1, buckets, max(1, buckets // 50)):  # an exact bucket takes a while
        edge = found[i - 1]
        assert bucket(fractions(np.array([edge - 1e-9]))[0], buckets) == i - 1
        assert bucket(fractions(np.array([edge + 1e-9]))[0], buckets) == i


def test_a_logit_of_zero_ends_the_lower_half_of_an_even_number_of_buckets() -> None:
    logits = np.array([[0.0, -1e-30], [-1e-30, -1e-30], [0.0, 1e-30]])
    assert occupied(logits, None, 20).tolist() == [1, 1, 2]
    assert occupied(logits, None, 21).tolist() == [1, 1, 1]
    described = schema()
    query = KDiscrimination(
        model=network_of((np.zeros((1, 8)), None), link=Link.SIGMOID), schema=described, protected=["a"], buckets=20
    )
    found = clusters.recount(Space.of(query), described.domain.lower)
    assert found.bucket.tolist() == [9, 9]


def test_saturated_logits_fall_into_the_outermost_buckets() -> None:
    weight = np.zeros((1, 8))
    weight[0, 0], bias = 2e30, np.array([-1e30])
    network = network_of((weight, bias))
    query = KDiscrimination(model=network, schema=schema(), protected=["a"], buckets=20)
    found = search_clusters(query, iterations=3, schedule=FEW)
    assert found.k == 2
    assert sorted(found.cluster.bucket.tolist()) == [0, 19]
    assert clusters.outcomes(Space.of(query), found.cluster)["probability"].tolist() == [0.0, 1.0]


def test_weights_beyond_float32_are_no_warning() -> None:
    network = network_of((np.full((2, 8), 1e60), None), ([[1e60, -1e60]], None))
    query = KDiscrimination(model=network, schema=schema(), protected=["a"], buckets=20)
    assert search_clusters(query, iterations=2, schedule=FEW, enough=99).k == 1, "exactly, both terms cancel"


def test_masked_combinations_hit_nothing() -> None:
    logits = np.array([[-9.0, 9.0, 0.1]])
    assert occupied(logits, np.array([[True, False, True]]), 4).tolist() == [2]
    assert occupied(logits, np.zeros((1, 3), dtype=bool), 4).tolist() == [0]


# Data


def test_an_empty_table_is_like_none_but_not_for_neighbours() -> None:
    query, empty = question(0), np.empty((0, 5))
    without = search_clusters(query, iterations=30, schedule=FEW)
    assert search_clusters(query, data=empty, iterations=30, schedule=FEW).k == without.k
    with pytest.raises(QueryError, match="sa-knn walks among the rows of a table"):
        search_clusters(query, method="sa-knn", data=empty, iterations=5, schedule=FEW)


def test_rows_outside_are_skipped_and_counted() -> None:
    query = question(0, box={"n": (0, 3)})
    data = np.array([[0.0, 1, 0, 0, 0], [0.0, 1, 2, 0, 0], [0, -1, 0, 0, 0], [0, 9, 0, 0, 0], [0, 2.5, 0, 0, 0], [1, 2, 0, 1, 1]])
    pool = Pool.of(Space.of(query), data)
    assert pool.skipped == 3
    assert pool.x.tolist() == [[0, 1, 0, 0, 0], [0, 2, 0, 1, 1]], "equal but for protected values: one row"
    with pytest.raises(DataError, match="none of the 3 rows lies in the box"):
        search_clusters(query, data=data[2:5], iterations=5, schedule=FEW)


def test_nearest_neighbours_are_those_of_brute_force() -> None:
    query = question(0)
    space = Space.of(query)
    pool = Pool.of(space, space.random(np.random.default_rng(1), 200))
    move = Nearest.of(space, pool)
    rng = np.random.default_rng(0)
    width = query.schema.domain.upper - query.schema.domain.lower
    for own in (0, 5, 17):
        x = np.repeat(pool.x[[own]], 300, axis=0)
        seen, origin = move(x, np.full(300, own), rng)
        assert (pool.x[origin] == seen).all()
        distance = ((pool.x[:, 1] - x[0, 1]) / width[1]) ** 2 + (pool.x[:, 3:] != x[0, 3:]).sum(axis=1)
        others = np.sort(np.delete(distance, own))
        assert own not in origin
        assert len(set(origin.tolist())) == 10
        assert np.sort(distance[list(set(origin.tolist()))]) == pytest.approx(others[:10])


def test_mutations_change_free_features_and_stay_in_the_box() -> None:
    space = Space.of(question(0, box={"n": (-2, 2)}))
    rng = np.random.default_rng(0)
    x = space.random(rng, 500)
    moved, _ = Mutation(space=space)(x, np.full(500, -1), rng)
    assert space.legal(moved).all()
    assert (moved[:, space.protected] == x[:, space.protected]).all()
    changed = (moved != x)[:, space.free].mean(axis=0)
    assert ((changed > 0.1) & (changed < 0.9)).all()


# How it ends


def test_ctrl_c_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    query, steps = question(0), 0

    def progress(done: int, total: int) -> None:
        nonlocal steps
        steps += 1
        if steps == 12:
            raise KeyboardInterrupt

    found = search_clusters(query, schedule=FEW, iterations=1000, enough=99, progress=progress)
    assert found.statistics.stopped == "interrupted"
    assert found.statistics.iterations == 12
    assert found.k == true_k(query, found.cluster.x) >= 1
    monkeypatch.setattr(annealing._Walk, "begin", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    assert search_clusters(query, schedule=FEW).k >= 1, "even before the first row was judged there is a row to show"


def test_limits_end_it() -> None:
    query = question(0)
    assert search_clusters(query, schedule=FEW, seconds=0.05, enough=99).statistics.stopped == "time"
    assert search_clusters(query, schedule=FEW, iterations=3, enough=99).statistics.stopped == "iterations"
    assert search_clusters(query, schedule=FEW, enough=1).statistics.stopped == "enough"
    single = question(0, box={"n": 0, "c": "u", "m": "2"}, buckets=1000)
    alone = search_clusters(single, schedule=FEW, enough=99)
    assert alone.statistics.stopped == "exhausted"
    assert alone.k == enumerated(single)[1][0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"method": "hill"}, "'hill' is unknown"), ({"seconds": 0.0}, "positive time"), ({"seconds": float("nan")}, "positive time")],
)
def test_wrong_settings_are_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        search_clusters(question(0), **fields)


@pytest.mark.parametrize(
    "fields", [{"chains": 0}, {"stay": 1.5}, {"coldest": 0.0}, {"start": 0.1, "coldest": 0.2}, {"cooling": 1.1}, {"patience": 0}]
)
def test_wrong_schedules_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(QueryError):
        Schedule(**fields)


def test_seeds_come_from_the_caller_and_are_checked() -> None:
    query = question(0)
    asked: list[int] = []

    def reseed(rng: np.random.Generator, count: int) -> Array:
        asked.append(count)
        return np.tile([0.0, 99.0, 0, 0, 0], (count, 1))

    found = search_clusters(query, reseed=reseed, iterations=60, schedule=FEW, enough=99)
    assert asked[0] == 8
    assert len(asked) > 1, "chains that do not improve ask again"
    assert found.statistics.illegal_seeds == sum(asked)
    assert query.schema.inside(found.peers).all()


def test_the_solver_gives_rows_whose_decision_flips() -> None:
    query = question(1, gain=20.0, buckets=2)  # with two buckets, k = 2 is a decision flip
    space = Space.of(query)
    seeds = SolverSeeds(space=space, pool=Pool.of(space, None), share=1)
    rows = seeds(np.random.default_rng(0), 60)
    assert seeds.asked == 60
    assert seeds.found >= 3
    assert space.legal(rows).all()
    assert sum(true_k(query, x) == 2 for x in rows) >= seeds.found
    assert search_clusters(query, reseed=seeds, iterations=10, schedule=FEW).k == 2


@pytest.mark.parametrize("votes", [False, True])
def test_trees_are_searched_by_their_probabilities(votes: bool, tmp_path: Path) -> None:
    """The guide's log-odds and the exact counts against both probabilities of the runtime: logistic, and shares of votes."""
    rng, trees = np.random.default_rng(int(votes)), 5

    def leaf(node: Any) -> Any:
        return [float(np.float32(rng.random() / trees))] if isinstance(node, list) else (*node[:3], leaf(node[3]), leaf(node[4]))

    drawn = [random_tree(rng, 8, 4) for _ in range(trees)]
    path = save(tmp_path / "m.onnx", [leaf(one) for one in drawn] if votes else drawn, 8, classes=2,
                transform="NONE" if votes else "LOGISTIC")
    query = KDiscrimination(model=path, schema=schema(), protected=["a", "z"], buckets=7)
    space = Space.of(query)
    assert logistic(query.model) is not votes
    gap = ProbabilityGap(model=query.model, schema=schema(), protected=["a"])
    assert gap.quantity == "probability"
    assert gap.scale == ("logit" if votes else "probability")  # sigma(share) is not what anybody is shown
    assert maximise(gap, budget=Budget(seconds=0.2)).quantity == "probability"
    x = space.random(rng, 40)
    session = InferenceSession(path.read_bytes())
    for row, guide, count in zip(x, scipy.special.expit(space.logits(x)), space.count(x), strict=True):
        shown = session.run(["scores"], {"X": query.schema.encode(space.rows(row)).astype(np.float32)})[0][:, 1]
        np.testing.assert_allclose(guide, shown, atol=1e-6)
        found = clusters.recount(space, row)
        assert found.runtime_k == found.k == len(np.unique(np.ceil(np.clip(shown, 1e-9, 1) * 7))) == count


def test_shares_of_several_classes_beside_an_edge_are_counted_as_exactly(tmp_path: Path) -> None:
    """Leaves of 3/4 of eight trees, some of them the next float32 number: shares are 7e-9 beside the edge."""
    leaf = np.array([3 / 32, 1 / 32, 0.0])
    moved = (leaf + sign * 2.0**-27 * np.array([1, -1, 0]) for sign in (1, -1))
    asked = [(column, "BRANCH_LEQ", 0.5, leaf.tolist(), other.tolist()) for column, other in zip((0, 2), moved, strict=True)]
    path = save(tmp_path / "m.onnx", [*asked, *[leaf.tolist()] * 6], 8, classes=3)
    query = KDiscrimination(model=path, schema=schema("class = 0"), protected=["a", "z"], buckets=20)
    space = Space.of(query)
    for row in space.random(np.random.default_rng(0), 20):
        assert space.count(row[None])[0] == clusters.recount(space, row).k


def test_shares_of_votes_are_counted_exactly_at_every_edge() -> None:
    for buckets in (2, 7, 20):
        for i in range(buckets + 1):
            share, step = Fraction(i, buckets) - Fraction(1, 2), Fraction(1, 10**30)
            assert [share_bucket(share + move, buckets) for move in (-step, 0, step)] == [
                max(i - 1, 0), max(i - 1, 0), min(i, buckets - 1)
            ]
