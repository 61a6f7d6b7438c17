"""The certified share of tree ensembles: at tolerance 0 the share by enumeration, accepted by the checker; forgeries refused."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.exact.dyadic import exact
from encoders.model import Model
from encoders.onnx.reader import read_model
from tests.builders import integer, one_hot, real, schema_of
from tests.draws import draws
from tests.soundness.systems.test_share import accepted, truth
from tests.soundness.systems.test_share_constraints import CONSTRAINTS
from tests.tree_models import Node, random_tree, save
from verifair.engine.shares.share import CertifiedShare, certify_share, row_shares
from verifair.engine.verdict import Reason

FEATURES = (integer("sex", 0, 1), integer("race", 0, 2), integer("b", 0, 6, scale="minmax"), one_hot("c", "x", "y", "z"))
SCHEMA = schema_of(*FEATURES, integer("a", -3, 4))
LEGAL = schema_of(*FEATURES, integer("a", -3, 4), constraints=CONSTRAINTS)
BUDGET = vf.Budget(seconds=60)
WHOLE = np.array([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0], dtype=np.float32)


def model_of(path: Path, trees: list[Node], columns: int, **more: Any) -> Model:
    return read_model(save(path / "trees.onnx", trees, columns, **more))


def tied(rng: np.random.Generator, tree: Node) -> Node:
    """The tree with small whole values: many sums are exactly 0."""
    if isinstance(tree, list):
        return [float(v) for v in rng.integers(-2, 3, len(tree))]
    return (*tree[:3], tied(rng, tree[3]), tied(rng, tree[4]))


def opposed(tree: Node) -> Node:
    """The tree with scores -z and z."""
    return [-tree[0], tree[0]] if isinstance(tree, list) else (*tree[:3], opposed(tree[3]), opposed(tree[4]))


def drawn(rng: np.random.Generator, path: Path, columns: int, *, ties: bool, classes: int = 0) -> Model:
    """Trees at random; with ties, NaN goes the true way at every other node as well."""
    trees = [random_tree(rng, columns, 4, grid=WHOLE) for _ in range(int(rng.integers(1, 6)))]
    trees = [tied(rng, tree) for tree in trees] if ties else trees
    return model_of(path, [opposed(tree) for tree in trees] if classes else trees, columns, classes=classes, missing=ties)


@pytest.mark.parametrize("seed", draws(24))
def test_the_share_is_that_by_enumeration(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    schema = LEGAL if seed % 3 == 0 else SCHEMA
    signs: Any = "strict" if seed % 4 == 1 else "deployed"
    model = drawn(rng, tmp_path, schema.domain.columns, ties=seed % 2 == 0)
    for protected, differ in ((("race",), "all"), (("sex", "race"), "any")):
        query: Any = vf.IndividualFairness(model=model, schema=schema, protected=protected, differ=differ, signs=signs)
        expected = truth(query)
        found = certify_share(query, tolerance=0, budget=BUDGET)
        assert found.reason is None
        assert (found.certificate.fair, 1 - found.certificate.unfair) == (expected, expected)
        assert not accepted(found, query)
        few = certify_share(query, tolerance=0, budget=vf.Budget(seconds=60, nodes=3))
        assert few.certificate.fair <= expected <= 1 - few.certificate.unfair
        assert not accepted(few, query)


@pytest.mark.parametrize("seed", draws(6))
def test_forests_of_two_scores(seed: int, tmp_path: Path) -> None:
    schema = schema_of(*FEATURES, integer("a", -3, 4), positive="class = 1")
    model = drawn(np.random.default_rng(seed), tmp_path, schema.domain.columns, ties=False, classes=2)
    query = vf.IndividualFairness(model=model, schema=schema, protected=["sex"])
    found, expected = certify_share(query, tolerance=0, budget=BUDGET), truth(query)
    assert (found.certificate.fair, 1 - found.certificate.unfair) == (expected, expected)
    assert not accepted(found, query)


@pytest.mark.parametrize("seed", draws(6))
def test_real_features_weigh_by_width(seed: int, tmp_path: Path) -> None:
    """Points between all thresholds decide; a threshold itself has no width."""
    rng = np.random.default_rng(seed)
    schema = schema_of(integer("sex", 0, 1), real("a", -2, 3), real("b", 0, 1))
    model = drawn(rng, tmp_path, 3, ties=seed % 2 == 0)
    query = vf.IndividualFairness(model=model, schema=schema, protected=["sex"])
    grid = np.unique(np.concatenate([WHOLE, np.nextafter(WHOLE, np.float32(9)), np.nextafter(WHOLE, np.float32(-9))]))
    share = 0.0
    for cell in product(*(list(pairwise(ends)) for ends in (
            np.unique(np.clip([low, *grid, high], low, high)).tolist() for low, high in ((-2, 3), (0, 1))))):
        point = [(low + high) / 2 for low, high in cell]
        values = model.forward(exact(schema.domain.encode(np.array([[sex, *point] for sex in (0, 1)])))).to_fractions()[:, 0]
        share += ((values[0] > 0) == (values[1] > 0)) * float(np.prod([high - low for low, high in cell])) / 5
    found = certify_share(query, tolerance=0, budget=BUDGET)
    assert found.reason is None or found.width < 1e-12
    assert found.fair - 1e-5 <= share <= 1 - found.unfair + 1e-5
    assert not accepted(found, query)


def test_a_stump_on_a_real_feature_is_closed_by_one_cut(tmp_path: Path) -> None:
    """Women are refused up to 1/4 and men never: the half above the cut holds no point of the half below."""
    tree = (0, "BRANCH_LEQ", 0.5, (1, "BRANCH_LEQ", 0.25, [-1.0], [1.0]), [1.0])
    query = vf.IndividualFairness(
        model=model_of(tmp_path, [tree], 2), schema=schema_of(integer("sex", 0, 1), real("a", 0, 1)), protected=["sex"]
    )
    found = certify_share(query, tolerance=0, budget=BUDGET)
    assert found.reason is None
    assert abs(found.fair - 0.75) < 1e-7
    assert found.cells == 2
    assert not accepted(found, query)
    rows = np.array([[0, 0.1], [1, 0.25], [0, 0.2500001], [1, 0.9]])
    assert row_shares(query, rows) == (2, 2, 0)


def partly(path: Path) -> tuple[vf.IndividualFairness, CertifiedShare]:
    for seed in draws(99):
        model = drawn(np.random.default_rng(seed), path, SCHEMA.domain.columns, ties=False)
        query = vf.IndividualFairness(model=model, schema=SCHEMA, protected=["race"])
        found = certify_share(query, tolerance=0, budget=BUDGET)
        if 0.1 < found.unfair < 0.9 and found.cells > 8:
            return query, found
    raise AssertionError("no such query among the seeds")


def test_forgeries_are_refused(tmp_path: Path) -> None:
    query, found = partly(tmp_path)
    own, step = found.certificate, Fraction(1, 10**6)
    assert "fair" in accepted(replace(own, fair=own.fair + step, unfair=own.unfair - step), query)
    assert "unfair" in accepted(replace(own, fair=own.fair - step, unfair=own.unfair + step), query)
    feature, cut = own.tree.feature.copy(), own.tree.cut.copy()
    cut[0] += 1     # the first cut elsewhere: cells that were of one kind are not, or lie outside
    assert accepted(replace(own, tree=replace(own.tree, feature=feature, cut=cut)), query)


def test_a_run_goes_on_and_more_processes_cut_the_same_tree(tmp_path: Path) -> None:
    query, found = partly(tmp_path)
    store = tmp_path / "share.json"
    first = certify_share(query, tolerance=0, budget=vf.Budget(seconds=60, nodes=3), store=store)
    assert first.reason is Reason.NODES
    again = certify_share(query, tolerance=0, budget=BUDGET, store=store, resume=True, jobs=2)
    assert (again.certificate.fair, again.certificate.unfair) == (found.certificate.fair, found.certificate.unfair)
    assert not accepted(again, query)


def test_a_constant_ensemble_treats_all_alike(tmp_path: Path) -> None:
    model = model_of(tmp_path, list(repeat([0.0], 3)), SCHEMA.domain.columns)
    query = vf.IndividualFairness(model=model, schema=SCHEMA, protected=["sex"])
    found = certify_share(query, tolerance=0, budget=BUDGET)
    assert (found.fair, found.unfair, found.cells) == (1.0, 0.0, 1)
    assert not accepted(found, query)


@pytest.mark.parametrize("scores", [(0.0, 2.0, -1.0), (0.0, -2.0, 1.0), (0.0, 0.0, 3.0), (-1.0, 0.0, 0.0)])
def test_strict_signs_ask_whether_a_sum_is_0(scores: tuple[float, float, float], tmp_path: Path) -> None:
    """Whether a sum is 0 or beyond decides whether there is a flip, for it counts on neither side: it is cut as far."""
    zero, other, men = scores
    women = (1, "BRANCH_LEQ", 0.25, (1, "BRANCH_LEQ", 0.125, [zero], [other]), [zero])
    tree = (0, "BRANCH_LEQ", 0.5, women, (1, "BRANCH_LEQ", 0.5, [men], [zero]))
    schema = schema_of(integer("sex", 0, 1), integer("a", 0, 15, scale="minmax"))
    query: Any = vf.IndividualFairness(model=model_of(tmp_path, [tree], 2), schema=schema, protected=["sex"], signs="strict")
    found, expected = certify_share(query, tolerance=0, budget=BUDGET), truth(query)
    assert found.reason is None
    assert (found.certificate.fair, 1 - found.certificate.unfair) == (expected, expected)
    assert not accepted(found, query)
