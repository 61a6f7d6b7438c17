"""kmax of tree ensembles against every row: all copies in exact fractions; certificates are accepted, forgeries refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import verifair as vf
from encoders.arrays import Array
from encoders.buckets import bucket, share_bucket
from encoders.model import Model
from encoders.onnx.reader import read_model
from encoders.probability.shares import logistic
from tests.builders import integer, one_hot, real, schema_of
from tests.draws import draws
from tests.soundness.systems.test_share_constraints import CONSTRAINTS
from tests.soundness.trees.test_share_trees import SCHEMA, WHOLE, drawn
from tests.tree_models import save
from verifair.checker.certificates.tree import Tree
from verifair.checker.check import check
from verifair.engine.buckets.kmax import KmaxVerdict, kmax

LEGAL = schema_of(
    integer("sex", 0, 1), integer("race", 0, 2), integer("b", 0, 6, scale="minmax"), one_hot("c", "x", "y", "z"),
    integer("a", -3, 4), constraints=CONSTRAINTS,
)
BUDGET = vf.Budget(seconds=60)


def truth(query: vf.KDiscrimination, everyone: Array) -> int:
    """The most buckets at one of the rows (N, V), whose protected entries do not matter."""
    schema, combinations = query.schema, query.combinations()
    protected, of = [schema.index(name) for name in query.protected], bucket if logistic(query.model) else share_bucket
    rows = np.repeat(everyone[:, None], len(combinations), axis=1)
    rows[:, :, protected] = combinations
    flat = rows.reshape(-1, rows.shape[2])
    inputs = np.vectorize(Fraction, otypes=[object])(schema.domain.encode(flat))
    logits: Any = query.model.forward(inputs)
    margins = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
    known = {value: of(value, query.buckets) for value in set(margins.tolist())}
    found = np.where(schema.domain.legal(flat), [known[value] for value in margins.tolist()], -1).reshape(rows.shape[:2])
    return max(len(set(row) - {-1}) for row in found.tolist())


def everyone(schema: vf.Schema, protected: list[str]) -> Array:
    return np.array(list(itertools.product(*(
        schema.values(one.name)[: 1 if one.name in protected else None] for one in schema.features
    ))), dtype=float)


def accepted(found: KmaxVerdict, query: vf.KDiscrimination, **changes: Any) -> bool:
    return check(replace(found.certificate, **changes), model=query.model, schema=query.schema).accepted


@pytest.mark.parametrize("seed", draws(16))
def test_kmax_is_that_of_all_rows(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    schema = LEGAL if seed % 3 == 0 else SCHEMA
    model, protected = drawn(rng, tmp_path, schema.domain.columns, ties=seed % 2 == 0), ["sex", "race"]
    for buckets in (2, 7, 40):
        query = vf.KDiscrimination(model=model, schema=schema, protected=protected, buckets=buckets)
        found, most = kmax(query, budget=BUDGET), truth(query, everyone(schema, protected))
        assert (found.lower, found.upper, found.reason) == (most, most, None)
        assert accepted(found, query)
        assert most == 1 or not accepted(found, query, upper=most - 1)
        few = kmax(query, budget=vf.Budget(seconds=60, nodes=2))
        assert few.lower <= most <= few.upper
        assert accepted(few, query)


@pytest.mark.parametrize("seed", draws(4))
def test_buckets_of_a_forest_are_of_shares_of_votes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.array(list(itertools.product(*(SCHEMA.values(one.name) for one in SCHEMA.features))), dtype=float)
    x = SCHEMA.encode(rows[rng.choice(len(rows), 300)]).astype(np.float32)
    good = (x.sum(axis=1) + rng.normal(size=300) > 2).astype(int)
    forest = RandomForestClassifier(4 + seed, max_depth=4, random_state=seed).fit(x, good)
    model = vf.read(forest)
    assert not logistic(model)
    for buckets in (2, 5, 8):
        query = vf.KDiscrimination(model=model, schema=SCHEMA, protected=["sex", "race"], buckets=buckets)
        found, most = kmax(query, budget=BUDGET), truth(query, everyone(SCHEMA, ["sex", "race"]))
        assert (found.lower, found.upper) == (most, most)
        assert accepted(found, query)
        assert most == 1 or not accepted(found, query, upper=most - 1)


@pytest.mark.parametrize("seed", draws(6))
def test_real_features_are_cut_at_thresholds(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    schema = schema_of(integer("sex", 0, 2), real("a", -2, 3), real("b", 0, 1))
    model = drawn(rng, tmp_path, 3, ties=seed % 2 == 0)
    numbers = np.unique(np.concatenate([WHOLE, np.nextafter(WHOLE, np.float32(9)), np.nextafter(WHOLE, np.float32(-9)), [-2, 3]]))
    numbers = numbers.astype(float)
    rows = np.array(list(itertools.product([0.0], numbers, numbers[(numbers >= 0) & (numbers <= 1)])))
    for buckets in (2, 9):
        query = vf.KDiscrimination(model=model, schema=schema, protected=["sex"], buckets=buckets)
        found, most = kmax(query, budget=BUDGET), truth(query, rows)
        assert (found.lower, found.upper) == (most, most)
        assert accepted(found, query)
        assert most == 1 or not accepted(found, query, upper=most - 1)


def test_a_threshold_belongs_to_what_lies_below_it(tmp_path: Path) -> None:
    """Only at 1/4 itself, which no number above or below shares, are three people decided in three ways."""
    at = float(np.float32(0.25))
    below = float(np.nextafter(np.float32(0.25), np.float32(0)))
    groups = (0, "BRANCH_LEQ", 0.5, [-9.0], (0, "BRANCH_LEQ", 1.5, [0.0], [9.0]))
    tree = (1, "BRANCH_LEQ", at, (1, "BRANCH_LEQ", below, [-9.0], groups), [9.0])
    model: Model = read_model(save(tmp_path / "trees.onnx", [tree], 2))
    query = vf.KDiscrimination(model=model, schema=schema_of(integer("g", 0, 2), real("a", 0, 1)), protected=["g"], buckets=3)
    found = kmax(query, budget=BUDGET)
    assert (found.lower, found.upper) == (3, 3)
    assert accepted(found, query)
    assert not accepted(found, query, upper=2)


@pytest.mark.parametrize(("at_end", "most"), [(3.0, 1), (-1.5, 2)])
def test_the_lower_end_of_a_box_may_be_a_part_of_its_own(at_end: float, most: int, tmp_path: Path) -> None:
    """Where b is 1, the network's 0, both sexes have 4 and 5, or -0.5 and 0.5; elsewhere -2 and -1."""
    trees = [(1, "BRANCH_LEQ", 0.0, [at_end], [-3.0]), (0, "BRANCH_LEQ", 0.5, [1.0], [2.0])]
    schema = schema_of(integer("sex", 0, 1), real("b", 1, 2, scale={"offset": 1.0, "scale": 1.0}))
    model = read_model(save(tmp_path / "trees.onnx", trees, 2))
    query = vf.KDiscrimination(model=model, schema=schema, protected=["sex"], buckets=2)
    found = kmax(query, budget=vf.Budget(seconds=60, nodes=20))
    assert (found.lower, found.upper, found.reason) == (most, most, None)
    assert accepted(found, query)
    for at in (1.0, float(np.nextafter(1, 0)), float(np.nextafter(1, 2)), 1.5, 2.0):
        tree = Tree.plain(np.array([1, -1, -1]), np.array([at, 0.0, 0.0]))
        assert accepted(found, query, tree=tree, upper=1) == (at == 1 and most == 1)
