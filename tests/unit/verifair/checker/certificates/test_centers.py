"""Certificates of group optima: true ones are accepted, and no tree and no changed file proves what is false."""

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from encoders.arrays import Booleans
from solvers import clock
from tests.builders import categorical, integer, linear_network, real, schema_of
from verifair import datasets
from verifair.checker.certificates.centers import UNIT, CentersCertificate, GroupProof, Step
from verifair.checker.check import check
from verifair.checker.kinds.centers import _tree_flaw
from verifair.systems.fgce.estimator import Group
from verifair.systems.fgce.optimum import proof, relaxation, search

SCHEMA = schema_of(
    real("income", 0, 10), integer("years", 0, 9), categorical("sex", "f", "m", protected=True), positive="logit > 0",
)
NETWORK = linear_network(1.0, 0.0, 0.0, bias=-6.0)
"""Positive where income exceeds 6."""


def most(near: Booleans, k: int) -> int:
    columns = range(near.shape[1])
    return max(int(near[:, list(some)].any(axis=1).sum()) for some in itertools.combinations(columns, min(k, len(columns))))


def proved(near: Booleans, k: int, target: int) -> GroupProof | None:
    found = proof.steps(near, k, target, clock.now() + 60)
    return None if found is None else GroupProof(chosen=(), value=0.0, contained=found[0], steps=found[1])


@pytest.mark.parametrize("steps", [0, 2, 300])
def test_a_search_proves_what_brute_force_finds_and_nothing_more(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "STEPS", steps)
    monkeypatch.setattr(relaxation, "ROUNDS", steps)
    split = 0
    for seed in range(40):
        rng = np.random.default_rng([seed, steps])
        near = rng.random((int(rng.integers(3, 25)), int(rng.integers(1, 10)))) < rng.choice([0.1, 0.3])
        near = near[rng.integers(0, len(near), len(near))]  # some are alike
        k = int(rng.integers(1, 4))
        truth = most(near, k)
        found = proved(near, k, truth + 1)
        assert found is not None
        assert _tree_flaw(near, k, truth + 1, found) is None
        assert proved(near, k, truth) is None or truth == 0
        if truth:
            assert _tree_flaw(near, k, truth, found) is not None
        if (near.shape[1] > k) and most(near, k + 1) > truth:
            assert _tree_flaw(near, k + 1, truth + 1, found) is not None
        split += any(step.split >= 0 for step in found.steps)
    assert split > 5 or steps


def test_no_tree_proves_what_is_false() -> None:
    """Random trees, and true ones of another table, with any multipliers and pairs."""
    accepted = 0
    for seed in range(200):
        rng = np.random.default_rng([seed, 1])
        near = rng.random((8, 6)) < 0.35
        k = int(rng.integers(1, 4))
        truth = most(near, k)
        steps = [
            Step(multipliers=rng.choice([0, 1 << UNIT, int(rng.integers(0, 1 << UNIT))], 8).tolist(),
                 split=int(rng.choice([-1, -1, -2, *range(6)])))
            for _ in range(int(rng.integers(1, 12)))
        ]
        pairs = [tuple(rng.integers(0, 6, 2).tolist()) for _ in range(int(rng.integers(0, 2)))]
        other = near ^ (rng.random((8, 6)) < 0.1)
        trees = [GroupProof(chosen=(), value=0.0, contained=pairs, steps=steps), proved(other, k, most(other, k) + 1)]
        for target, tree in itertools.product(range(1, 9), trees):
            assert tree is not None
            flaw = _tree_flaw(near, k, target, tree)
            assert flaw is not None or truth < target
            accepted += flaw is None
    assert accepted > 20


def test_a_bound_by_hand() -> None:
    """Four people, a candidate for each: two cover two, which multipliers of 1 show and those of 0 do not."""
    near = np.eye(4, dtype=bool)
    for units, flaw in ((1 << UNIT, None), (0, "step 0 closes a branch that may cover 4.000, not fewer than 3")):
        tree = GroupProof(chosen=(), value=0.0, contained=[], steps=[Step(multipliers=[units] * 4, split=-1)])
        assert _tree_flaw(near, 2, 3, tree) == flaw
    assert _tree_flaw(near, 3, 3, tree) is not None


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    return pd.DataFrame({"income": rng.random(60) * 10, "years": rng.integers(0, 10, 60), "sex": rng.choice(["f", "m"], 60)})


@pytest.fixture(scope="module")
def optimum(table: pd.DataFrame) -> CentersCertificate:
    model = vf.GroupCounterfactuals(NETWORK, SCHEMA, k=3, coverage=0.8, eps=0.5).fit(table, sensitive_features="sex")
    found = model.prove_optima()
    assert isinstance(found, CentersCertificate)
    return found


def rejected(given: CentersCertificate) -> str:
    report = check(given, model=NETWORK, schema=SCHEMA)
    assert not report.accepted
    return " ".join(map(str, report.rejections))


def test_the_statement_names_groups_and_costs(optimum: CentersCertificate) -> None:
    report = check(optimum, model=NETWORK, schema=SCHEMA)
    assert report.accepted
    assert "cover at least the share 0.8 of those" in report.statement
    assert all(f"'{name}': the largest cost is at least" in report.statement for name in ("sex = f", "sex = m"))


def forged(given: CentersCertificate, **changes: Any) -> CentersCertificate:
    """Another proof of the first group."""
    name = next(iter(given.groups))
    return replace(given, groups={**given.groups, name: replace(given.groups[name], **changes)})


def test_forged_certificates_are_rejected(optimum: CentersCertificate) -> None:
    first = optimum.groups["sex = f"]
    assert "covers" in rejected(forged(optimum, value=first.value * 0.99))
    assert rejected(forged(optimum, value=first.value * 1.2))
    assert "covers" in rejected(forged(optimum, chosen=first.chosen[:1]))
    assert "or one that is not decided favourably" in rejected(forged(optimum, chosen=optimum.query.asked["sex = f"][:1]))
    assert "or one twice" in rejected(forged(optimum, chosen=(first.chosen[0], first.chosen[0])))
    assert "left open" in rejected(forged(optimum, steps=[]))
    assert "belongs to no branch" in rejected(forged(optimum, steps=[*first.steps, first.steps[-1]]))
    assert "left out" in rejected(forged(optimum, contained=[*first.contained, (first.contained[0][1], first.contained[0][1])]))


def test_a_changed_question_stands_only_where_its_answer_is_the_same(table: pd.DataFrame, optimum: CentersCertificate) -> None:
    stood = []
    for changes in ({"k": 1}, {"k": 8}, {"coverage": 0.3}, {"coverage": 0.9}, {"eps": 5.0}, {"eps": 0.3}, {"coverage": 0.799}):
        asked = {"k": 3, "coverage": 0.8, "eps": 0.5, **changes}
        other = vf.GroupCounterfactuals(NETWORK, SCHEMA, **asked).fit(table, sensitive_features="sex")
        same = all(abs(group.found.cost - optimum.groups[name].value) < 1e-9 for name, group in other.groups_.items())
        report = check(replace(optimum, query=replace(optimum.query, **changes)), model=NETWORK, schema=SCHEMA)
        assert same or not report.accepted
        stood.append(report.accepted)
    assert stood.count(False) > 2
    assert stood[-1]  # no other number of people
    fixed = replace(optimum.query, changes={**optimum.query.changes, "income": "fixed"})
    assert "nobody in it can reach" in rejected(replace(optimum, query=fixed))


def test_a_changed_table_is_rejected(optimum: CentersCertificate) -> None:
    rows = optimum.rows.copy()
    rows[optimum.query.asked["sex = f"][0], 0] = 9.0
    assert "decided favourably" in rejected(replace(optimum, rows=rows))
    rows[0, 0] = 11.0
    assert "outside the declared domain" in rejected(replace(optimum, rows=rows))


def test_a_group_that_is_dropped_is_missed(optimum: CentersCertificate) -> None:
    one = {"sex = f": optimum.groups["sex = f"]}
    assert "left undecided" in rejected(replace(optimum, groups=one))
    report = check(replace(optimum, groups=one, undecided=1), model=NETWORK, schema=SCHEMA)
    assert (report.accepted, report.verdict) == (False, "INCOMPLETE")


SEVENTHS = schema_of(integer("a", 0, 7), integer("b", 0, 3), categorical("sex", "f", "m", protected=True))
"""Equal distances of rows come out as several numbers: 1 - 2/3 and 1/3."""


@pytest.mark.parametrize("seed", range(8))
def test_costs_and_moves_that_differ_by_rounding_are_the_same(seed: int) -> None:
    """A limit next to a cost is that cost: for the search, in fractions, and for who checks; so is an eps next to the default."""
    rng, network = np.random.default_rng(seed), linear_network(1.0, 0.0, 0.0, bias=-4.5)
    frame = pd.DataFrame({"a": rng.integers(0, 8, 12), "b": rng.integers(0, 4, 12), "sex": "f"})
    frame = pd.concat([frame, pd.DataFrame({"a": [0, 7], "b": [0, 3], "sex": "f"})], ignore_index=True)

    def told(**options: Any) -> tuple[Group, float]:
        fitted = vf.GroupCounterfactuals(network, SEVENTHS, **options).fit(frame, sensitive_features="sex")
        found = fitted.prove_optima()
        assert isinstance(found, CentersCertificate)
        assert check(found, model=network, schema=SEVENTHS).accepted
        return fitted.groups_["sex = f"], fitted.graph_.eps

    for share in (0.3, 0.5, 0.7):
        group, eps = told(k=2, coverage=share)
        near, _ = told(k=2, coverage=share, eps=float(np.nextafter(eps, 0)))
        assert (near.found.cost, near.instance.size) == (group.found.cost, group.instance.size)
    instance, rows = group.instance, frame[["a", "b"]].to_numpy().tolist()

    def square(i: int, j: int) -> Fraction:
        return Fraction(rows[i][0] - rows[j][0], 7) ** 2 + Fraction(rows[i][1] - rows[j][1], 3) ** 2

    costs = instance.costs()
    for i, j in rng.permutation(np.argwhere(np.isfinite(costs)))[:4].tolist():
        limit = square(instance.factuals[i], instance.columns[j])
        truth = max(
            sum(bool(np.isfinite(costs[n, c])) and square(own, to) <= limit for n, own in enumerate(instance.factuals))
            for c, to in enumerate(instance.columns)
        )
        for most in (np.nextafter(costs[i, j], 0), costs[i, j], np.nextafter(costs[i, j], 9)):
            if most > 0:
                assert told(k=1, max_cost=float(most))[0].found.covered == truth


@pytest.mark.parametrize("options", [{"coverage": 0.6}, {"max_cost": 2.0}])
def test_german_optima_are_proved_again_from_their_file(options: dict[str, Any], tmp_path: Path) -> None:
    german = datasets.load("german")
    network, schema = vf.read_onnx(datasets.network_path("german")), german.schema
    model = vf.GroupCounterfactuals(network, schema, k=4, **options).fit(german.frame, sensitive_features="sex")
    found = model.prove_optima()
    assert isinstance(found, CentersCertificate)
    found.save(tmp_path / "optimum.json.gz")
    assert check(tmp_path / "optimum.json.gz", model=network, schema=schema).accepted


def test_what_cannot_be_proved_again_says_why() -> None:
    table = pd.DataFrame({"income": [1.0, 2.0, 7.0], "years": [1, 2, 3], "sex": list("fff")})
    told = vf.GroupCounterfactuals(NETWORK, SCHEMA, k=1, cost="hops").fit(table).prove_optima()
    assert isinstance(told, str)
    assert "cost l2" in told


def test_a_statement_has_all_digits_and_quotes_the_files_words(optimum: CentersCertificate) -> None:
    query = optimum.query
    groups = {"f: the largest cost is at least 0\nIt states": optimum.groups["sex = f"], "sex = m": optimum.groups["sex = m"]}
    forged = replace(optimum, groups=groups, query=replace(query, eps=0.50000012, max_cost=0.60000018))
    said = check(forged, model=NETWORK, schema=SCHEMA).statement
    assert "moves of at most 0.50000012;" in said
    assert "cost at most 0.60000018 " in said
    assert "\n" not in said
    assert "own names of the groups: 'f: the largest cost" in said
