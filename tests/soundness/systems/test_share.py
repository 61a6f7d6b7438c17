"""The certified share: every bracket holds the share by enumeration, at tolerance 0 it is that share, and forgeries are refused."""

import time
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.bounds.planes import CopyForms
from encoders.domain import Regions
from encoders.exact.dyadic import exact
from encoders.network import Network
from solvers import clock
from tests.builders import integer, network_of, one_hot, random_network, real, schema_of
from tests.draws import draws
from verifair.checker.certificates.envelope import write
from verifair.checker.certificates.share import ShareCertificate
from verifair.checker.certificates.tree import Tree, leaf_regions
from verifair.checker.check import check
from verifair.checker.kernel.planes import copy_planes
from verifair.checker.shares import ShareQuestion, swing
from verifair.engine.parallel import Helpers
from verifair.engine.shares import share
from verifair.engine.shares.cells import CellLooks
from verifair.engine.shares.share import CertifiedShare, certify_share, row_shares
from verifair.engine.verdict import Reason
from verifair.errors import DataError, QueryError
from verifair.schema.schema import Schema

FEATURES = (integer("sex", 0, 1), integer("race", 0, 2), integer("b", 0, 6, scale="minmax"), one_hot("c", "x", "y", "z"))
SCHEMA = schema_of(*FEATURES, integer("a", -3, 4))
TWO = schema_of(*FEATURES, integer("a", -3, 4), positive="class = 1")
PAIRS = (("sex",), ("race",), ("sex", "race"))
BUDGET = vf.Budget(seconds=60)


def integers(seed: int, inputs: int = 7, outputs: int = 1) -> Network:
    """A network of small whole weights: many margins are exactly 0."""
    rng = np.random.default_rng(seed)
    shapes = [(4, inputs), (3, 4), (outputs, 3)] if seed % 2 else [(5, inputs), (outputs, 5)]
    layers = [(rng.integers(-2, 3, shape), rng.integers(-2, 3, shape[0])) for shape in shapes]
    return network_of(*layers, source_sha256=f"{seed:064d}")


def signs_at(network: Network, schema: Schema, raw: Any) -> Any:
    logits = network.forward(exact(schema.domain.encode(raw))).to_fractions()
    values = logits[:, 0] if network.outputs == 1 else logits[:, 1] - logits[:, 0]
    return np.array([(value > 0) - (value < 0) for value in values])


def truth(query: vf.IndividualFairness) -> Fraction:
    """The share of points without protected features where no compared pair of legal rows flips, of those that have one."""
    schema, names = query.schema, [one.name for one in query.schema.features]
    protected = [names.index(name) for name in query.protected]
    values = [schema.values(name) if names.index(name) in protected else schema.values(name)[:1] for name in names]
    everyone = [schema.values(name) if names.index(name) not in protected else schema.values(name)[:1] for name in names]
    combinations = [np.array(one)[protected] for one in product(*values)]
    points = np.array(list(product(*everyone)), dtype=float)
    copies, legal = [], []
    for combination in combinations:
        rows = points.copy()
        rows[:, protected] = combination
        copies.append(signs_at(query.model, schema, rows))
        legal.append(schema.domain.legal(rows))
    every = all if query.differ == "all" else any
    flips, counted = np.zeros((2, len(points)), dtype=bool)
    for one, first, here in zip(combinations, copies, legal, strict=True):
        for two, second, there in zip(combinations, copies, legal, strict=True):
            if every(one != two):
                flips |= here & there & (first > 0) & ((second < 0) if query.signs == "strict" else (second <= 0))
                counted |= here & there
    return Fraction(int((counted & ~flips).sum()), int(counted.sum()))


def accepted(found: CertifiedShare | ShareCertificate, query: vf.IndividualFairness) -> str:
    """Return what is wrong with a share. One that shows nothing is not accepted, but that is not wrong."""
    certificate = found.certificate if isinstance(found, CertifiedShare) else found
    report = check(certificate, model=query.model, schema=query.schema)
    assert report.rejections or certificate.fair + certificate.unfair
    return "" if report.verdict == "NOTHING TO ACCEPT" else "; ".join(map(str, report.rejections))


@pytest.mark.parametrize("seed", draws(12))
@pytest.mark.parametrize("signs", ["deployed", "strict"])
def test_bracket_at_tolerance_0_is_the_share_by_enumeration(seed: int, signs: str) -> None:
    network, schema = integers(seed, outputs=1 + seed % 3 % 2), TWO if seed % 3 % 2 else SCHEMA
    for protected, differ in product(PAIRS, ("all", "any")):
        query: Any = vf.IndividualFairness(model=network, schema=schema, protected=protected, differ=differ, signs=signs)
        found = certify_share(query, tolerance=0, budget=BUDGET)
        expected = truth(query)
        assert found.reason is None
        assert (found.certificate.fair, 1 - found.certificate.unfair) == (expected, expected)
        assert not accepted(found, query)


@pytest.mark.parametrize("seed", draws(8))
def test_every_bracket_holds_the_share_by_enumeration_and_is_accepted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = replace(random_network(rng, (7, 6, 4, 1), slope=0.25 * (seed % 2)), source_sha256="1" * 64)
    query = vf.IndividualFairness(model=network, schema=SCHEMA, protected=["race"])
    expected = truth(query)
    for nodes in (1, 5, 20, 100):
        found = certify_share(query, tolerance=0, budget=vf.Budget(seconds=60, nodes=nodes))
        assert found.certificate.fair <= expected <= 1 - found.certificate.unfair
        assert Fraction(found.fair) <= expected <= 1 - Fraction(found.unfair)
        assert not accepted(found, query)


@pytest.mark.parametrize("seed", [5, 16, 38, 45])
def test_weights_of_all_sizes_leave_the_checker_as_sure(seed: int) -> None:
    """Where rounding decides, the search leaves room for all that the checker takes off."""
    rng = np.random.default_rng(seed)
    layers = []
    for m, n in ((4, 7), (4, 4), (4, 4), (1, 4)):
        weight = rng.normal(size=(m, n)) * 10.0 ** rng.integers(-6, 6, size=(m, n))
        layers.append((weight.astype(np.float32), rng.normal(size=m).astype(np.float32)))
    query = vf.IndividualFairness(model=network_of(*layers, source_sha256="9" * 64), schema=SCHEMA, protected=["race"])
    found = certify_share(query, tolerance=0, budget=vf.Budget(seconds=60, nodes=200))
    expected = truth(query)
    assert found.certificate.fair <= expected <= 1 - found.certificate.unfair
    assert not accepted(found, query)


def test_all_ties() -> None:
    """A margin of exactly 0 everywhere is negative for the deployed rule, and on neither side by strict signs: nobody flips."""
    network = network_of(([[0.0] * 5], [0.0]), source_sha256="2" * 64)
    small = schema_of(*(integer(f"f{v}", 0, 1) for v in range(5)))
    for signs in ("deployed", "strict"):
        query: Any = vf.IndividualFairness(model=network, schema=small, protected=["f0"], signs=signs)
        found = certify_share(query, tolerance=0, budget=BUDGET)
        assert (found.fair, found.unfair) == (1.0, 0.0)
        assert not accepted(found, query)


def test_tie_flips_by_the_deployed_rule_alone() -> None:
    network = network_of(([[1.0, 0.0]], [0.0]), source_sha256="3" * 64)
    schema = schema_of(integer("sex", 0, 1), integer("a", 0, 9))
    for signs, fair in (("deployed", 0.0), ("strict", 1.0)):
        query: Any = vf.IndividualFairness(model=network, schema=schema, protected=["sex"], signs=signs)
        found = certify_share(query, tolerance=0, budget=BUDGET)
        assert (found.fair, found.unfair) == (fair, 1 - fair)
        assert not accepted(found, query)


def test_real_and_one_hot_features_weigh_by_width() -> None:
    """Flips where a + (a category's step) lies between 0 and 1: a share of lengths that is known."""
    network = network_of(([[1.0, 1.0, 0.0, 0.5]], [-1.0]), source_sha256="4" * 64)
    schema = schema_of(integer("sex", 0, 1), real("a", 0, 4), one_hot("c", "x", "y"))
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"])
    found = certify_share(query, tolerance=1e-4, budget=BUDGET)
    expected = 1 - (0.25 + 0.125) / 2  # x: a in (0, 1]; y: a in (0, 0.5]
    assert found.reason is None
    assert found.fair <= expected <= 1 - found.unfair
    assert found.width <= 1e-4
    assert not accepted(found, query)


def test_counts_beyond_float64_are_exact() -> None:
    """2^60 and more points: whatever is not a float any more is counted by whole numbers."""
    schema = schema_of(integer("sex", 0, 1), *(integer(f"f{v}", 0, 4095) for v in range(6)))
    network = network_of(([[0.0, *[1.0] * 6]], [-12285.5]), source_sha256="5" * 64)
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"])
    found = certify_share(query, tolerance=0.05, budget=BUDGET)
    assert found.unfair == 0
    assert found.fair > 0.95
    assert not accepted(found, query)


def test_features_of_a_billion_values_are_not_listed() -> None:
    """Flips where b - 5 lies in (-1, 0]: one point in ten of b, whatever the other one is."""
    schema = schema_of(integer("sex", 0, 1), integer("a", 0, 10**9), integer("b", 0, 9))
    network = network_of(([[1.0, 0.0, 1.0]], [-5.5]), source_sha256="7" * 64)
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"])
    found = certify_share(query, tolerance=0, budget=BUDGET)
    assert (found.certificate.fair, found.certificate.unfair) == (Fraction(9, 10), Fraction(1, 10))
    assert not accepted(found, query)
    sloped = network_of(([[1.0, 2.0**-26, 1.0]], [-5.5]), source_sha256="8" * 64)
    found = certify_share(replace(query, model=sloped), tolerance=0.01, budget=BUDGET)
    assert found.reason is None
    assert not accepted(found, replace(query, model=sloped))


def partly() -> tuple[vf.IndividualFairness, CertifiedShare]:
    """A query with fair and with unfair points, and its share."""
    for seed in range(1, 99, 2):
        query = vf.IndividualFairness(model=integers(seed), schema=SCHEMA, protected=["race"])
        found = certify_share(query, tolerance=0, budget=BUDGET)
        if 0 < found.unfair < 1 and len(found.certificate.tree.feature) > 15:
            return query, found
    raise AssertionError("no such query among the seeds")


QUERY, FOUND = partly()


def forged(**changes: Any) -> str:
    return accepted(replace(FOUND.certificate, **changes), QUERY)


def test_forgeries_are_refused() -> None:
    own, step = FOUND.certificate, Fraction(1, 10**6)
    assert 0 < own.unfair < 1
    assert len(own.tree.feature) > 3
    assert "are fair" in forged(fair=own.fair + step)
    assert "are unfair" in forged(unfair=own.unfair + step)
    assert forged(fair=own.unfair, unfair=own.fair)
    assert forged(query=replace(own.query, protected=("sex",)))
    strict = truth(replace(QUERY, signs="strict"))
    assert bool(forged(query=replace(own.query, signs="strict"))) == (strict < own.fair or 1 - strict < own.unfair)
    assert "leaves the declared domain" in forged(query=replace(own.query, box={**own.query.box, "a": (-9.0, 4.0)}))
    assert forged(query=replace(own.query, box={**own.query.box, "a": (-3.0, 0.0)}))
    inner = np.flatnonzero(own.tree.feature >= 0)[0]
    tree = own.tree
    outside = np.where(np.arange(len(tree.cut)) == inner, 99.0, tree.cut)
    for feature, cut in ((tree.feature, outside), (tree.feature[:-1], tree.cut[:-1])):
        assert forged(tree=Tree.plain(feature, cut))
    split = tree.feature.copy()
    split[inner] = 1
    assert "protected" in forged(tree=replace(tree, feature=split))
    coarse = Tree.leaf()
    assert "its leaves show" in forged(tree=coarse)
    assert not forged(fair=own.fair - step)  # a weaker statement is still true


def test_another_network_or_schema_is_refused() -> None:
    other = replace(QUERY, model=integers(900))
    assert "another network" in accepted(FOUND, other)
    wider = schema_of(*FEATURES, integer("a", -3, 5))
    assert "another schema" in accepted(FOUND, replace(QUERY, schema=wider))


def test_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "share.json"
    FOUND.certificate.save(path)
    assert check(path, model=QUERY.model, schema=SCHEMA).accepted
    text = path.read_text()
    numerator = f'"fair":["{FOUND.certificate.fair.numerator}"'
    path.write_text(text.replace(numerator, f'"fair":["{FOUND.certificate.fair.numerator + 1}"'))
    assert not check(path, model=QUERY.model, schema=SCHEMA).accepted


def test_run_goes_on_from_its_store(tmp_path: Path) -> None:
    path = tmp_path / "share.json.gz"
    first = certify_share(QUERY, tolerance=0, budget=vf.Budget(seconds=60, nodes=8), store=path)
    assert first.reason is Reason.NODES
    assert check(path, model=QUERY.model, schema=SCHEMA, partial=True).accepted
    wider = certify_share(QUERY, tolerance=0.999, store=path, resume=True)
    assert (wider.reason, wider.cells) == (None, first.cells)
    second = certify_share(QUERY, tolerance=0, budget=BUDGET, store=path, resume=True)
    assert (second.certificate.fair, second.certificate.unfair) == (FOUND.certificate.fair, FOUND.certificate.unfair)
    assert check(path, model=QUERY.model, schema=SCHEMA).accepted
    assert second.certificate.history[: len(first.certificate.history)] == first.certificate.history
    with pytest.raises(DataError, match="another question"):
        certify_share(replace(QUERY, protected=["sex"]), budget=BUDGET, store=path, resume=True)


def test_a_share_is_accepted_as_far_as_it_is_decided(tmp_path: Path) -> None:
    """Wider than its tolerance it is accepted in part, and with nothing shown there is nothing to accept."""
    path = tmp_path / "share.json"
    expected = {  # nodes, tolerance -> verdicts without and with --partial, and how many brackets are decided
        (1, 0): ("NOTHING TO ACCEPT", "NOTHING TO ACCEPT", 0), (8, 0): ("INCOMPLETE", "PARTIALLY ACCEPTED", 0),
        (8, 0.999): ("ACCEPTED", "ACCEPTED", 1), (None, 0): ("ACCEPTED", "ACCEPTED", 1),
    }
    for (nodes, tolerance), (alone, partly, decided) in expected.items():
        found = certify_share(QUERY, tolerance=tolerance, budget=vf.Budget(seconds=60, nodes=nodes), store=path)
        own = found.certificate
        assert decided == (found.reason is None) == (1 - own.fair - own.unfair <= Fraction(tolerance))
        whole, part = (check(path, model=QUERY.model, schema=SCHEMA, partial=partial) for partial in (False, True))
        assert (whole.verdict, part.verdict) == (alone, partly)
        assert (whole.accepted, part.accepted) == ("ACCEPTED" in alone, "ACCEPTED" in partly)
        assert (whole.extent.total, whole.extent.decided) == (1, decided)
        payload = own.payload
        for change in ({"proved": 1 - decided, "undecided": decided}, {"undecided": 5}):
            write(path, {**payload, "extent": {**payload["extent"], **change}})
            assert check(path, model=QUERY.model, schema=SCHEMA, partial=True).verdict == "REJECTED"
    old = replace(own, query=replace(own.query, tolerance=None))
    assert "tolerance" not in old.question["query"]
    assert check(old, model=QUERY.model, schema=SCHEMA).verdict == "ACCEPTED"


def test_counted_effort_ends_a_share_at_the_same_cells() -> None:
    """An audit's share, which cuts on for ever at tolerance 0, ends by what it did and not by the clock."""
    found = []
    for _ in range(2):
        query = replace(QUERY, model=random_network(np.random.default_rng(0), (7, 30, 20, 1)))
        with clock.counted(time.monotonic() + 60) as counted:
            found.append(certify_share(query, tolerance=0, budget=vf.Budget(seconds=0.01)))
        assert not counted.cut
    assert [one.reason for one in found] == [Reason.TIME] * 2
    assert found[0].cells == found[1].cells > 1


def test_interrupt_and_time_keep_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    late = certify_share(QUERY, tolerance=0, budget=vf.Budget(seconds=1e-9))
    assert late.reason is Reason.TIME
    assert not accepted(late, QUERY)
    calls = 0
    look = share.CellLooks.cells

    def interrupted(self: Any, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return look(self, *given)

    monkeypatch.setattr(share.CellLooks, "cells", interrupted)
    found = certify_share(QUERY, tolerance=0, budget=BUDGET)
    assert found.reason is Reason.INTERRUPTED
    assert found.certificate.fair <= FOUND.certificate.fair <= 1 - found.certificate.unfair
    assert not accepted(found, QUERY)


def test_rows_are_decided_exactly() -> None:
    rows = np.array(list(product(*(SCHEMA.values(one.name) for one in SCHEMA.features))), dtype=float)
    rows = np.concatenate([rows, [[0.0, 0.0, 99.0, 0.0, 0.0]]])
    fair, unfair, outside = row_shares(QUERY, rows)
    assert outside == 1
    assert Fraction(fair, fair + unfair) == truth(QUERY)


def test_other_questions_are_refused() -> None:
    with pytest.raises(QueryError, match="epsilon"):
        certify_share(replace(QUERY, epsilon=0.1))
    with pytest.raises(QueryError, match="relax"):
        certify_share(replace(QUERY, relax={"a": 1}))
    with pytest.raises(QueryError, match="float32"):
        certify_share(replace(QUERY, arithmetic="float32"))
    with pytest.raises(QueryError, match="tolerance"):
        certify_share(QUERY, tolerance=1.5)


def test_absurd_weights_show_nothing() -> None:
    network = network_of(([[1e120, 1.0]], [0.0]), ([[1e200]], [1.0]), source_sha256="6" * 64)
    schema = schema_of(integer("sex", 0, 1), integer("a", 0, 3))
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"])
    found = certify_share(query, budget=vf.Budget(seconds=5, nodes=50))
    assert 0 <= found.fair <= 1 - found.unfair <= 1


def test_no_point_is_counted_twice() -> None:
    """A real feature that the box leaves no width may not be cut: both halves would be the whole cell."""
    domain = schema_of(integer("p", 0, 1, protected=True), integer("a", 0, 9), real("r", 0, 1)).domain
    whole = Regions.whole(np.array([0.0, 0.0, 0.5]), np.array([0.0, 9.0, 0.5]), 0)
    found = leaf_regions(np.array([2, -1, -1]), np.array([0.5, 0.0, 0.0]), whole, domain)
    assert isinstance(found, str)
    assert "outside the box" in found


@pytest.mark.parametrize("seed", draws(8))
def test_points_are_counted_as_one_by_one(seed: int) -> None:
    """Never more than the planes show at each point, and nearly as many: short, long, one-hot, and real features; two signs."""
    rng, long = np.random.default_rng(seed), 200 if seed % 2 else 9
    schema = schema_of(integer("p", 0, 1), integer("a", 0, long), one_hot("c", "x", "y", "z"), integer("b", 0, 6), *(
        integer(f"f{v}", -1, 1, scale="minmax") for v in range(2)
    ))
    domain = schema.domain
    question = ShareQuestion.of(domain, domain.lower, domain.upper, [0], differ="any", strict=seed % 3 == 0)
    lower, upper = np.repeat(question.lower[None], 20, axis=0), np.repeat(question.upper[None], 20, axis=0)
    lower[:, 1] += rng.integers(0, 3, 20)
    upper[:, 3] -= rng.integers(0, 3, 20)
    low, high = question.boxes(lower, upper)
    slope = rng.normal(size=(20, 1, low.shape[1])) / np.maximum(1, high - low)[::2][:, None] + 1e-3 * rng.normal(size=(20, 2, 1))
    value, radius = rng.normal(scale=0.3, size=(20, 2)), rng.uniform(0, 0.05, (20, 2))
    tilt = 0.02 * rng.normal(size=slope.shape) / np.maximum(1, high - low).max()  # the planes are not parallel, and never meet
    radius = radius + (np.abs(tilt) * (high - low).reshape(20, 2, -1)).sum(axis=2)
    planes = [((slope + sign * tilt).reshape(40, -1), (value + sign * radius).ravel()) for sign in (-1, 1)]
    found = question.counted(integers(1, 8), lower, upper, *planes)
    shown = np.zeros(2)
    for k in range(20):
        points = np.array(list(product(*(np.arange(a, b + 1) for a, b in zip(lower[k], upper[k], strict=True)))))
        moved = domain.encode(points) - (low[2 * k] + high[2 * k]) / 2
        least, most = (moved @ (slope + sign * tilt)[k].T + value[k] + sign * radius[k] for sign in (-1, 1))
        fair = (least > 0).all(axis=1) | (most <= 0).all(axis=1)
        negative = most < 0 if question.strict else most <= 0
        unfair = ((least > 0)[:, :, None] & negative[:, None] & question.compared).any(axis=(1, 2))
        assert found.volume[k] == len(points)
        assert 0 <= found.fair[k] <= fair.sum()
        assert 0 <= found.unfair[k] <= unfair.sum()
        shown += [found.fair[k] + found.unfair[k], fair.sum() + unfair.sum()]
    assert shown[0] > 0.9 * shown[1]


@pytest.mark.parametrize("seed", draws(6))
def test_planes_of_search_and_checker_hold_at_every_point(seed: int) -> None:
    """Wide and narrow boxes, leaks, two and three hidden layers, huge weights."""
    rng = np.random.default_rng(seed)
    network = random_network(rng, (5, 8, 6, 1) if seed % 2 else (5, 7, 6, 5, 1), slope=0.2 * (seed % 3))
    if seed == 5:
        network = replace(network, layers=[replace(one, weight=one.weight * 1e60) for one in network.layers])
    domain = schema_of(real("a", -9, 9), real("b", -9, 9), one_hot("c", "x", "y", "z")).domain
    middle, width = rng.normal(size=(40, 3)), rng.choice([0, 1e-3, 0.3, 3.0], (40, 3))
    lower, upper = middle - width, middle + width
    lower[:, 2], upper[:, 2] = rng.integers(0, 2, 40), rng.integers(1, 3, 40)
    low, high = domain.box(lower, upper)
    found = CopyForms(network, np.ones(1), domain, partial(swing, domain)).planes(low, high)
    raw = lower + rng.uniform(size=(200, 40, 3)) * (upper - lower + domain.integer)
    raw = np.where(domain.integer, np.floor(raw), raw)
    x = domain.encode(raw.reshape(-1, 3)).reshape(200, 40, 5)
    g = network.forward(x.reshape(-1, 5)).reshape(200, 40)
    moved, room = x - (low + high) / 2, 1e-12 * np.abs(g).max()
    checker = copy_planes(network, np.ones(1), domain, low, high)
    for (under, least), (over, most) in (((found.under, found.least), (found.over, found.most)), checker):
        assert (least + (moved * under).sum(axis=2) <= g + room).all()
        assert (most + (moved * over).sum(axis=2) >= g - room).all()
        assert np.isfinite(least).all()
        assert np.isfinite(most).all()
    for mine, theirs in (((found.under, found.least), checker[0]), ((found.over, found.most), checker[1])):
        assert np.allclose(mine[0], theirs[0], rtol=1e-6, atol=1e-9 * np.abs(theirs[0]).max())
        assert np.allclose(mine[1], theirs[1], rtol=1e-6, atol=1e-9 * np.abs(theirs[1]).max())


def test_two_processes_end_where_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a run that one process began, and two go on with."""
    sent = 0

    whole = Helpers.together

    def counted(self: Helpers[Any], arguments: Any) -> Any:
        nonlocal sent
        found = whole(self, arguments)
        sent += len(found) if len(found) > 1 else 0
        return found

    monkeypatch.setattr(Helpers, "together", counted)
    monkeypatch.setattr(Helpers, "ready", lambda self: self.jobs)  # from the first step on
    monkeypatch.setattr(share, "EACH", 2)
    path = tmp_path / "share.json"
    certify_share(QUERY, tolerance=0, budget=vf.Budget(seconds=60, nodes=20), store=path)
    assert not sent
    for store in (None, path):
        sent = 0
        found = certify_share(QUERY, tolerance=0, budget=BUDGET, jobs=2, store=store, resume=store is not None)
        assert sent > 2
        assert (found.certificate.fair, found.certificate.unfair) == (FOUND.certificate.fair, FOUND.certificate.unfair)
        assert not accepted(found, QUERY)


def test_a_run_that_is_killed_has_kept_its_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told to a process that is killed: the tree on disk is that of an earlier moment, and can be gone on with."""
    path, minutes = tmp_path / "share.json", 0
    monkeypatch.setattr(share, "time", SimpleNamespace(monotonic=lambda: 61.0 * minutes))

    def killed(cells: CellLooks, lower: Any, upper: Any) -> Any:
        nonlocal minutes
        minutes += 1
        if minutes == 7:
            raise SystemExit
        return looks(cells, lower, upper)

    looks = CellLooks.cells
    with monkeypatch.context() as patch:
        patch.setattr(CellLooks, "cells", killed)
        with pytest.raises(SystemExit):
            certify_share(QUERY, tolerance=0, budget=BUDGET, store=path)
    kept = vf.check(path, model=QUERY.model, schema=QUERY.schema)
    assert (kept.rejections, kept.leaves > 1) == ((), True)
    found = certify_share(QUERY, tolerance=0, budget=BUDGET, store=path, resume=True)
    assert (found.certificate.fair, found.certificate.unfair) == (FOUND.certificate.fair, FOUND.certificate.unfair)
