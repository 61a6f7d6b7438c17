"""kmax against brute force: every lattice point of tiny boxes, all K copies in exact rationals, buckets by ball arithmetic."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from flint import arb, fmpq

from encoders.arrays import Array, Booleans
from encoders.bounds.copies import CopyBounds, Thresholds
from encoders.buckets import borders, bucket
from encoders.domain import Domain, Forbidden
from encoders.exact.balls import precision
from solvers.outcome import Budget
from tests.brute_force import exact_forward
from tests.builders import integer, network_of, one_hot, real, schema_of
from tests.draws import draws
from tests.soundness.random_twins import BITS, MIXES, STYLES, logits, nasty_network, smoothed
from verifair.checker.check import check
from verifair.checker.kinds.kmax import _Enclosed, _KmaxChecker
from verifair.engine.buckets.bounds import matching, most_buckets
from verifair.engine.buckets.kmax import kmax
from verifair.engine.queries import KDiscrimination
from verifair.engine.verdict import Reason
from verifair.errors import QueryError
from verifair.schema.schema import Schema

PLENTY = Budget(seconds=60)


class Constrained(Schema):
    """A schema some of whose whole rows cannot be: `Domain.forbidden`, set directly."""

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        low, high = np.full((2, 4), -np.inf), np.full((2, 4), np.inf)
        low[0, 0], low[0, 2] = 1, 3  # group 1 or above never with x2 >= 3 ...
        low[1, 1], high[1, 1], low[1, 3], high[1, 3] = 2, 2, 1, 1  # ... and x1 = 2 never with category 1, whatever the group
        return replace(super().domain, forbidden=Forbidden(lower=low, upper=high))


def schema(groups: int, kind: type[Schema] = Schema, outputs: int = 1) -> Schema:
    return kind.build({"positive": "logit > 0" if outputs == 1 else "class = 1", "features": [
        integer("group", 0, groups - 1),
        integer("x1", -2, 3),
        integer("x2", 0, 9, scale="minmax"),
        one_hot("c", "u", "v", "w"),
    ]})


def query(
    seed: int, style: str, *, groups: int, buckets: int = 20, gain: float = 1.0, kind: type[Schema] = Schema
) -> KDiscrimination:
    rng = np.random.default_rng(seed)
    depth, outputs = int(rng.choice([0, 1, 1, 2, 2, 3])), int(rng.choice([1, 2]))
    network = nasty_network(rng, 6, style, depth=depth, width=int(rng.choice([1, 3, 6])), outputs=outputs)
    last = network.layers[-1]
    scaled = replace(last, weight=(last.weight * gain).astype(np.float32).astype(float))
    network = replace(network, layers=(*network.layers[:-1], scaled))
    return KDiscrimination(model=network, schema=schema(groups, kind, outputs), protected=["group"], buckets=buckets)


def exact_counts(asked: KDiscrimination) -> tuple[Array, Array]:
    """All lattice points (N, V) of the shared features, with the exact k of each (N,)."""
    domain = asked.schema.domain
    axes = [np.arange(a, b + 1) for a, b in zip(domain.lower[1:], domain.upper[1:], strict=True)]
    groups = asked.combinations()[:, 0]
    points = np.array([(groups[0], *point) for point in product(*axes)])
    hit: list[set[int]] = [set() for _ in points]
    for z in groups:
        rows = points.copy()
        rows[:, 0] = z
        logits = exact_forward(asked.model, domain.encode(rows))
        values = logits[:, 0] if asked.model.outputs == 1 else logits[:, 1] - logits[:, 0]
        for n in np.flatnonzero(domain.legal(rows)):
            hit[n].add(bucket(values[n], asked.buckets))
    return points, np.array([len(one) for one in hit])


def assert_right(asked: KDiscrimination, budget: Budget = PLENTY) -> None:
    points, counts = exact_counts(asked)
    truth = int(counts.max())
    verdict = kmax(asked, budget=budget)
    assert verdict.lower <= truth <= verdict.upper
    if verdict.reason is None:
        assert verdict.lower == truth == verdict.upper
    if verdict.x is not None:
        same = (points[:, 1:] == verdict.x[1:]).all(axis=1)
        assert counts[same].tolist() == [verdict.lower]
        assert len({one.bucket for one in verdict.outcomes} - {None}) == verdict.lower
    assert check(verdict.certificate, model=asked.model, schema=asked.schema).accepted


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", draws(6))
def test_between_exact_bounds_in_every_style(style: str, seed: int) -> None:
    assert_right(query(seed, style, groups=2 + seed % 3))


@pytest.mark.parametrize("groups", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("gain", [0.2, 1.0, 5.0])
def test_from_two_to_twelve_copies(groups: int, gain: float) -> None:
    for seed in range(3):
        assert_right(query(100 + seed, "plain", groups=groups, gain=gain))


@pytest.mark.parametrize("buckets", [2, 3, 7, 20, 100])
def test_numbers_of_buckets(buckets: int) -> None:
    for seed in range(3):
        assert_right(query(200 + seed, "plain", groups=4, buckets=buckets))
        assert_right(query(200 + seed, "integer", groups=4, buckets=buckets))  # logits of exactly 0 are common here


@pytest.mark.parametrize("style", ["plain", "integer", "sparse"])
@pytest.mark.parametrize("seed", draws(6))
def test_rows_that_cannot_be_do_not_count(style: str, seed: int) -> None:
    assert_right(query(300 + seed, style, groups=3 + seed % 2, kind=Constrained))


@pytest.mark.parametrize("nodes", [1, 3, 10])
def test_bounds_of_an_unfinished_run_are_bounds(nodes: int) -> None:
    for seed in draws(8):
        assert_right(query(400 + seed, "plain", groups=4, gain=3.0), Budget(seconds=60, nodes=nodes))


def test_huge_logits_share_the_outermost_buckets() -> None:
    network = network_of(([[1e6, 0.0, 0.0, 0.0, 0.0, 0.0]], [-1e6]))
    asked = KDiscrimination(model=network, schema=schema(3), protected=["group"])
    verdict = kmax(asked, budget=PLENTY)  # -1e6, 0, 1e6: the first bucket, the one that ends at 1/2, the last
    assert [one.bucket for one in verdict.outcomes] == [0, 9, 19]
    assert verdict.lower == verdict.upper == 3


def test_copies_that_are_the_same_function_share_their_bucket() -> None:
    rng = np.random.default_rng(0)
    network = nasty_network(rng, 6, "plain", depth=2, width=6, outputs=1)
    first = network.layers[0]
    blind = replace(first, weight=first.weight * np.array([0.0, 1, 1, 1, 1, 1]))
    network = replace(network, layers=(blind, *network.layers[1:]))
    verdict = kmax(KDiscrimination(model=network, schema=schema(7), protected=["group"]), budget=PLENTY)
    assert (verdict.lower, verdict.upper, verdict.boxes) == (1, 1, 1)


def test_two_logits_that_the_group_cannot_move_share_their_bucket() -> None:
    """The group only feeds a neuron that is never on, and the margin -relu(a) is a tie wherever a <= 0: no cut of a helps."""
    network = network_of(
        ([[1.0, 0.0], [0.0, -1.0]], [0.0, -1.0]), ([[1.0, 0.0], [0.0, -3.0], [-1.0, 0.0]], [0.0, 0.0, 0.0]),
        ([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]], [0.0, 0.0]),
    )
    described = schema_of(real("a", -1.0, 1.0), integer("group", 0, 2), positive="class = 1")
    asked = KDiscrimination(model=network, schema=described, protected=["group"], buckets=2)
    verdict = kmax(asked, budget=PLENTY)
    assert (verdict.lower, verdict.upper, verdict.boxes) == (1, 1, 1)
    report = check(verdict.certificate, model=network, schema=described)
    assert report.accepted, report.rejections


def test_real_valued_features_end_in_bounds_that_hold() -> None:
    rng = np.random.default_rng(5)
    network = nasty_network(rng, 3, "plain", depth=1, width=6, outputs=1)
    described = schema_of(
        integer("group", 0, 2),
        real("a", -1.0, 1.0),
        real("b", 0.0, 5.0),
    )
    asked = KDiscrimination(model=network, schema=described, protected=["group"])
    verdict = kmax(asked, budget=Budget(seconds=3))
    points = np.column_stack([np.zeros(20_000), rng.uniform(-1, 1, 20_000), rng.uniform(0, 5, 20_000)])
    logits = np.stack([network.forward(described.encode(points + np.array([z, 0, 0])))[:, 0] for z in range(3)], axis=1)
    borders = np.log(np.arange(1, 20) / np.arange(19, 0, -1))
    found = max(len(set(row)) for row in np.searchsorted(borders, logits, side="left").tolist())
    assert found <= verdict.upper
    assert verdict.lower <= verdict.upper
    assert check(verdict.certificate, model=network, schema=described).accepted


def test_start_is_used_and_points_outside_are_not() -> None:
    asked = query(101, "plain", groups=5, gain=5.0)
    points, counts = exact_counts(asked)
    best = points[counts.argmax()]
    outside = best + np.array([0, 100, 0, 0])
    verdict = kmax(asked, budget=Budget(seconds=60, nodes=1), start=np.stack([outside, best]))
    assert verdict.lower == counts.max()


def test_interrupted_run_keeps_what_is_certified() -> None:
    asked = query(103, "plain", groups=5, gain=5.0)
    truth = int(exact_counts(asked)[1].max())

    def stop(lower: int, upper: int) -> None:
        raise KeyboardInterrupt

    verdict = kmax(asked, budget=PLENTY, progress=stop)
    assert verdict.lower <= truth <= verdict.upper
    assert verdict.reason in (None, Reason.INTERRUPTED)
    assert check(verdict.certificate, model=asked.model, schema=asked.schema).accepted


def test_box_of_a_protected_feature_is_refused() -> None:
    asked = replace(query(1, "plain", groups=3), box={"group": (0, 1)})
    with pytest.raises(QueryError, match=r"'group'.*values"):
        kmax(asked, budget=PLENTY)


@pytest.mark.parametrize("buckets", [2, 3, 20, 999, 1000])
def test_thresholds_enclose_the_true_ones(buckets: int) -> None:
    thresholds = Thresholds.of(buckets)
    with precision(256):
        for i in range(1, buckets):
            true = arb(fmpq(i, buckets - i)).log()
            low, high = (arb(float(end[i - 1])) for end in (thresholds.lower, thresholds.upper))
            assert low < true < high or 2 * i == buckets
    if buckets % 2 == 0:
        assert thresholds.lower[buckets // 2 - 1] == thresholds.upper[buckets // 2 - 1] == 0
    assert (thresholds.upper - thresholds.lower <= 1e-12).all()


def test_matching_is_a_maximum_one() -> None:
    import scipy.sparse as sp
    from scipy.sparse.csgraph import maximum_bipartite_matching

    rng = np.random.default_rng(0)
    for _ in range(500):
        copies, buckets = rng.integers(1, 9), int(rng.integers(2, 9))
        first = rng.integers(0, buckets, (1, copies))
        last = np.minimum(first + rng.integers(-1, 5, (1, copies)), buckets - 1)
        edges = (np.arange(buckets) >= first.T) & (np.arange(buckets) <= last.T)
        expected = (maximum_bipartite_matching(sp.csr_matrix(edges.astype(int))) >= 0).sum()
        assert matching(first, last, buckets).tolist() == [expected]


def test_the_sweep_uses_differences_where_intervals_alone_say_nothing() -> None:
    """Three copies anywhere in [-9, 9], but within 0.01 of each other: at most two buckets, never three."""
    wide, narrow = np.full((1, 3), 9.0), np.array([[0.0, 0.01, 0.01]])
    bounds = CopyBounds(lower=-wide, upper=wide, delta_lower=-narrow, delta_upper=narrow)
    every = np.ones((1, 3), dtype=bool)
    assert most_buckets(bounds, Thresholds.of(20), 0, every, enough=2).tolist() == [2]
    assert most_buckets(bounds, Thresholds.of(20), 0, np.array([[True, False, False]]), enough=0).tolist() == [1]


def nested(rng: np.random.Generator, copies: int) -> tuple[CopyBounds, CopyBounds]:
    """Bounds of one box and of one reference (copy 0), as a writer may have them, and tighter ones, as a checker may."""
    centre, width = rng.normal(0, 3, copies), rng.exponential(rng.choice([0.01, 0.3, 5.0]), copies)
    apart, reach = rng.normal(0, rng.choice([0.01, 0.5]), copies), rng.exponential(rng.choice([0.001, 0.1, 1.0]), copies)
    apart[0] = reach[0] = 0.0
    endless = rng.random(copies) < 0.05

    def of(share: float) -> CopyBounds:
        far = np.where(endless & (share == 1.0), np.inf, width * share)
        return CopyBounds(
            lower=(centre - far)[None], upper=(centre + far)[None], delta_lower=(apart - reach * share)[None],
            delta_upper=(apart + reach * share)[None],
        )

    return of(1.0), of(float(rng.choice([1.0, 1 - 1e-12, 0.7])))


def test_what_the_writer_counts_the_checker_counts_with_tighter_bounds() -> None:
    rng, shown = np.random.default_rng(0), 0
    for _ in range(600):
        copies, buckets = int(rng.integers(2, 9)), int(rng.choice([2, 3, 10, 20]))
        wide, tight = nested(rng, copies)
        counted = np.append(rng.random(copies - 1) < 0.9, True)
        thresholds, claim = Thresholds.of(buckets), int(rng.integers(1, copies + 1))
        most = int(most_buckets(wide, thresholds, 0, counted[None], enough=int(rng.integers(0, claim + 1)))[0])
        if most <= claim:
            shown += 1
            assert shown_by_the_checker(tight, counted, buckets, claim) <= claim
    assert shown > 100


def shown_by_the_checker(bounds: CopyBounds, counted: Booleans, buckets: int, claim: int) -> int:
    checker = object.__new__(_KmaxChecker)
    checker.buckets, checker.claim, checker.reference = buckets, claim, 0
    checker.border_low, checker.border_high = borders(buckets, shares=False)
    given = _Enclosed(low=bounds.lower, high=bounds.upper, d_low=bounds.delta_lower, d_high=bounds.delta_upper)
    return checker._most(given, 0, counted)


@pytest.mark.parametrize("buckets", [2, 3, 7, 8, 20, 100, 999, 1000])
def test_borders_enclose_where_buckets_begin(buckets: int) -> None:
    for shares in (False, True):
        low, high = borders(buckets, shares=shares)
        with precision(400):
            for i, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True), start=1):
                begin = arb(fmpq(2 * i - buckets, 2 * buckets)) if shares else arb(fmpq(i, buckets - i)).log()
                if 2 * i == buckets:
                    assert least == most == 0
                    continue
                assert arb(least) <= begin <= arb(most) or (least == most and begin.overlaps(arb(least)))
                assert most <= np.nextafter(np.nextafter(least, np.inf), np.inf)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("style", ["plain", "integer", "sparse", "tiny"])
@pytest.mark.parametrize("mix", MIXES)
def test_smooth_networks_between_bounds_by_balls(mix: str, style: str) -> None:
    for seed in range(len(draws(4))):
        buckets, gain = [2, 3, 7, 20][seed % 4], [1.0, 4.0][seed // 2 % 2]
        asked = query(500 + seed, style, groups=2 + seed % 4, buckets=buckets, gain=gain)
        network = smoothed(asked.model, np.random.default_rng(seed), mix)
        asked = KDiscrimination(model=network, schema=asked.schema, protected=["group"], buckets=buckets)
        points, least, most = enclosed_counts(asked)
        verdict = kmax(asked, budget=PLENTY)
        assert verdict.lower <= most.max()
        assert verdict.upper >= least.max()
        if (least == most).all():
            assert verdict.lower == verdict.upper == most.max()
        if verdict.x is not None:
            same = (points[:, 1:] == verdict.x[1:]).all(axis=1)
            assert verdict.lower <= most[same].max()
        assert check(verdict.certificate, model=network, schema=asked.schema).accepted
        forged = replace(verdict.certificate, upper=int(least.max()) - 1)
        assert not check(forged, model=network, schema=asked.schema).accepted


def enclosed_counts(asked: KDiscrimination) -> tuple[Array, Array, Array]:
    """All lattice points (N, V) of the shared features, and the least and the largest k (N,) that balls leave."""
    domain = asked.schema.domain
    axes = [np.arange(a, b + 1) for a, b in zip(domain.lower[1:], domain.upper[1:], strict=True)]
    groups = asked.combinations()[:, 0]
    points = np.array([(groups[0], *point) for point in product(*axes)])
    ends = []
    with precision(BITS):
        begin = [arb(fmpq(i, asked.buckets - i)).log() for i in range(1, asked.buckets)]
        for point in points:
            rows = np.repeat(point[None], len(groups), axis=0)
            rows[:, 0] = groups
            hit = []
            for row in domain.encode(rows):
                values = logits(asked.model, row)
                g = values[0] if len(values) == 1 else values[1] - values[0]
                hit.append((sum(g > t for t in begin), asked.buckets - 1 - sum(g <= t for t in begin)))
            sure = {low for low, high in hit if low == high}
            ends.append((len(sure), len(sure) + sum(low < high for low, high in hit)))
    return points, *np.array(ends).T
