"""The certified share of schemas with constraints: it is that of points with legal rows to compare, and forgeries are refused."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.onnx.reader import read_model
from tests.builders import integer, network_of, real, schema_of
from tests.soundness.systems.test_share import BUDGET, FEATURES, SCHEMA, accepted, integers, truth
from tests.tree_models import save
from verifair.checker.certificates.share import ShareCertificate, ShareQuery
from verifair.checker.certificates.tree import Tree
from verifair.engine.shares.share import SAMPLE, certify_share, row_shares, sampled_share
from verifair.errors import QueryError
from verifair.schema.schema import Schema

CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"never": {"c": "x", "b": {"low": 3}}},
    {"if": {"sex": 1}, "then": {"a": {"low": 0}}},
    {"never": {"race": 2, "a": {"low": -1, "high": 1}}},
    {"if": {"c": ["y", "z"], "sex": 0}, "then": {"race": [0, 1], "b": {"high": 4}}},
    {"never": {"race": [0, 1], "c": "z"}},
)


def constrained(*which: int) -> Schema:
    return schema_of(*FEATURES, integer("a", -3, 4), constraints=[CONSTRAINTS[k] for k in which])


@pytest.mark.parametrize("which", [(0,), (1,), (2, 4), (0, 1, 2, 3), (3, 4)])
@pytest.mark.parametrize("seed", [1, 4])
def test_bracket_holds_the_share_by_enumeration_and_ends_at_it(seed: int, which: tuple[int, ...]) -> None:
    schema = constrained(*which)
    for protected, differ in ((("race",), "any"), (("sex", "race"), "all"), (("sex", "race"), "any")):
        query: Any = vf.IndividualFairness(model=integers(seed), schema=schema, protected=protected, differ=differ)
        expected = truth(query)
        for nodes in (1, 8, 40, None):
            found = certify_share(query, tolerance=0, budget=vf.Budget(seconds=60, nodes=nodes))
            assert found.certificate.fair <= expected <= 1 - found.certificate.unfair
            assert not accepted(found, query)
        assert (found.certificate.fair, 1 - found.certificate.unfair) == (expected, expected)


def test_real_features_weigh_by_the_width_that_is_legal() -> None:
    """Flips where 0 < a <= 1. Of a in 0 ... 4 all above 3 is forbidden, and of sex 1 all from 0.5 to 0.75."""
    network = network_of(([[1.0, 1.0]], [-1.0]), source_sha256="a" * 64)
    rules = [{"never": {"a": {"low": 3}}}, {"never": {"sex": 1, "a": {"low": 0.5, "high": 0.75}}}]
    schema = schema_of(integer("sex", 0, 1), real("a", 0, 4), constraints=rules)
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"])
    found = certify_share(query, tolerance=1e-4, budget=BUDGET)
    assert found.reason is None
    assert found.fair <= 2 / 2.75 <= 1 - found.unfair
    assert not accepted(found, query)


def test_the_bracket_is_as_narrow_as_asked_of_the_points_that_count() -> None:
    """One point in a hundred counts: an open share of the box that is narrow is a wide one of these."""
    network = network_of(([[1.0, 1.0, 1e-3]], [-1.5]), source_sha256="b" * 64)
    rules = [{"never": {"a": {"low": 1}}}]
    schema = schema_of(integer("sex", 0, 1), integer("a", 0, 99), real("b", 0, 1000), constraints=rules)
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"])
    found = certify_share(query, tolerance=0.01, budget=BUDGET)
    assert found.reason is None
    assert found.width <= 0.01
    assert found.fair <= 0.5 <= 1 - found.unfair
    assert found.fair > 0.48
    assert not accepted(found, query)


def test_forgeries_are_refused() -> None:
    query = vf.IndividualFairness(model=integers(1), schema=constrained(0, 1, 2, 3), protected=["race"])
    free = certify_share(replace(query, schema=SCHEMA), tolerance=0, budget=BUDGET).certificate
    own = certify_share(query, tolerance=0, budget=BUDGET).certificate
    step = Fraction(1, 10**9)
    assert 0 < own.fair < 1
    assert own.fair != free.fair
    assert not accepted(own, query)
    assert "are fair" in accepted(replace(own, fair=own.fair + step), query)
    assert "are unfair" in accepted(replace(own, unfair=own.unfair + step), query)
    # The share of all points, with a tree that proves it, under the name of the schema that allows fewer; and the other way round.
    assert "its leaves show" in accepted(replace(free, schema_sha256=own.schema_sha256), query)
    assert "its leaves show" in accepted(replace(own, schema_sha256=free.schema_sha256), replace(query, schema=SCHEMA))
    assert "its leaves show" in accepted(replace(own, tree=Tree.leaf()), query)
    assert not accepted(replace(own, tree=Tree.leaf(), fair=Fraction(0), unfair=Fraction(0)), query)


def test_where_nothing_is_compared_nothing_is_claimed() -> None:
    rules = [{"if": {"a": {"low": 1}}, "then": {"sex": 0}}]
    schema = schema_of(integer("sex", 0, 1), integer("a", 0, 9), constraints=rules)
    network = network_of(([[1.0, 0.0]], [0.0]), source_sha256="c" * 64)
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"], box={"a": (1, 9)})
    with pytest.raises(QueryError, match="no two compared rows"):
        certify_share(query, budget=BUDGET)
    whole = certify_share(replace(query, box={}), tolerance=0, budget=BUDGET)
    assert (whole.fair, whole.unfair) == (0, 1)  # a = 0 alone counts
    asked = whole.certificate.query
    empty = replace(whole.certificate, query=ShareQuery(**{**vars(asked), "box": {**asked.box, "a": (1.0, 9.0)}}), tree=Tree.leaf())
    assert isinstance(empty, ShareCertificate)
    for unfair in (Fraction(1), Fraction(0)):
        assert "claims nothing" in accepted(replace(empty, unfair=unfair), query)


def test_rows_without_legal_rows_to_compare_are_not_counted() -> None:
    query = vf.IndividualFairness(model=integers(1), schema=constrained(0, 2, 4), protected=["race"])
    rows = np.array(list(product(*(SCHEMA.values(one.name) for one in SCHEMA.features))), dtype=float)
    fair, unfair, outside = row_shares(query, rows)
    assert Fraction(fair, fair + unfair) == truth(query)
    assert outside > 0
    assert fair + unfair + outside == len(rows)


def test_a_sample_is_drawn_of_the_points_that_are_counted() -> None:
    query = vf.IndividualFairness(model=integers(1), schema=constrained(0, 2, 4), protected=["race"])
    points, unfair = sampled_share(query, seed=0)
    true = float(1 - truth(query))
    assert 0 < points < SAMPLE
    assert abs(unfair - points * true) < 4 * (points * true * (1 - true)) ** 0.5
    assert sampled_share(query, seed=0) == (points, unfair) != sampled_share(query, seed=1)


@pytest.mark.parametrize("trees", [False, True])
def test_a_table_of_nobody_to_compare_counts_nobody(trees: bool, tmp_path: Path) -> None:
    schema = schema_of(integer("sex", 0, 1), integer("a", 0, 3), constraints=[{"never": {"sex": 0, "a": {"low": 2}}}])
    tree = (0, "BRANCH_LEQ", 0.5, [-1.0], [1.0])
    affine = network_of(([[1.0, 1.0]], [-1.0]), source_sha256="d" * 64)
    network = read_model(save(tmp_path / "trees.onnx", [tree], 2)) if trees else affine
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"])
    assert row_shares(query, np.array([[1.0, 2.0], [1.0, 3.0]])) == (0, 0, 2)
    assert row_shares(query, np.empty((0, 2))) == (0, 0, 0)
