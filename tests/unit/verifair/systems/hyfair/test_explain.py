"""Rules: a planted cause is found, a rule that explains nothing is dropped, and files of rules read back."""

import json
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoders.arrays import Array
from tests.builders import categorical, integer, one_hot, random_network, real, schema_of
from verifair.engine.queries import KDiscrimination
from verifair.errors import DataError, QueryError
from verifair.interrupts import OutOfTime
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain import rules_file
from verifair.systems.hyfair.explain.rounds import climb
from verifair.systems.hyfair.explain.rules import Explanation, Rule, explain, high_leaves, refused
from verifair.systems.hyfair.explain.samples import Neighbourhood, label, severity_of
from verifair.systems.hyfair.explain.settings import ExplainSettings
from verifair.systems.hyfair.search import space as space_module
from verifair.systems.hyfair.search.space import Space

SCHEMA = schema_of(
    integer("age", 18, 80),
    real("amount", 0.0, 10.0),
    one_hot("job", "none", "clerk", "nurse", "smith"),
    categorical("sex", "female", "male", protected=True),
    integer("region", 1, 3, protected=True),
    positive="logit > 0",
)
CENTRE = np.array([40.0, 5.0, 1.0, 0.0, 1.0])


@pytest.fixture(scope="module")
def space() -> Space:
    schema = SCHEMA
    network = random_network(np.random.default_rng(0), (schema.domain.columns, 6, 1))
    return Space.of(KDiscrimination(model=network, schema=schema, protected=["sex", "region"], buckets=20))


def planted(raw: Array) -> Array:
    """Severity 6 for clerks and nurses between 31 and 45, 1 for everybody else."""
    hit = (raw[:, 0] >= 31) & (raw[:, 0] <= 45) & np.isin(raw[:, 2], (1, 2))
    return np.where(hit, 6.0, 1.0)


@pytest.fixture(scope="module")
def found(space: Space) -> Explanation:
    return explain(space, CENTRE, planted, ExplainSettings(delta=0.5), seed=1)


def test_a_planted_condition_is_recovered(space: Space, found: Explanation) -> None:
    raw = space.random(np.random.default_rng(3), 4000)
    said = refused([one.rule for one in found.rules], raw)
    assert (said == (planted(raw) == 6)).mean() > 0.99
    (best, *_) = found.rules
    assert best.rule.conditions == (0, 2), "neither the amount nor a protected feature is part of the cause"
    assert best.evidence.inside > 5.9
    assert best.evidence.negated < 1.1
    assert all(fall > 4.8 for fall in best.evidence.effects)
    words = best.rule.words(space.query.schema)
    assert "clerk or nurse" in words
    assert "age between 31 and 45" in words


def test_rules_name_no_feature_that_the_schema_calls_protected(space: Space) -> None:
    """Such a rule was found where other features were asked about, and `guard` refuses it."""
    asked = Space.of(KDiscrimination(model=space.query.model, schema=SCHEMA, protected=["sex"]))
    found = explain(asked, CENTRE, lambda raw: planted(raw) * (raw[:, 4] > 1), ExplainSettings(delta=0.0), seed=1)
    assert found.rules
    assert all(set(one.rule.conditions) <= {0, 1, 2} for one in (*found.rules, *found.dropped))


def test_coverage_is_that_of_the_domain_the_samples_and_the_rows(space: Space) -> None:
    rows = space.random(np.random.default_rng(9), 500)
    found = explain(space, CENTRE, planted, ExplainSettings(delta=0.5), rows=rows, seed=1)
    rule = Rule(lower=np.array([31.0, -np.inf, 1, -np.inf, -np.inf]), upper=np.array([45.0, np.inf, 2, np.inf, np.inf]))
    assert rule.share(space) == pytest.approx(15 / 63 * 2 / 4)
    half = Rule(lower=np.array([-np.inf, 2.5, -np.inf, -np.inf, -np.inf]), upper=np.full(5, np.inf))
    assert half.share(space) == pytest.approx(0.75)
    one = found.rules[0]
    assert one.evidence.rows == one.rule.contain(rows).mean()
    assert one.evidence.samples == one.rule.contain(found.labelled.raw).mean()


def test_negation_drops_a_rule_that_explains_nothing(space: Space) -> None:
    """Severity that hangs on noise: leaves fitted to it are not confirmed by fresh samples."""

    def noise(raw: Array) -> Array:
        return 1.0 + 9.0 * ((np.floor(raw[:, 1] * 1e7) % 20) == 7)

    found = explain(space, CENTRE, noise, ExplainSettings(leaf=2, depth=20, delta=0.5), seed=0)
    assert found.dropped
    assert not found.rules
    kept = explain(space, CENTRE, planted, ExplainSettings(delta=1.0), seed=1)
    assert len(kept.rules) > 0
    strict = explain(space, CENTRE, planted, ExplainSettings(delta=5.5), seed=1)
    assert not strict.rules, "no negation lowers 6 by more than 5"
    assert len(strict.dropped) == len(kept.rules) + len(kept.dropped)


def test_only_the_top_share_is_high_whatever_the_ties() -> None:
    raw = np.zeros((100, 1))
    few = label(raw, np.r_[np.ones(97), [4, 4, 5]])
    assert few.threshold == 4
    assert few.high.sum() == 3, "the quantile 1 is everybody's severity, so it cannot mark the high ones"
    assert label(raw, np.arange(100.0)).high.sum() == 5
    with pytest.raises(QueryError, match="1 of 100 samples have logits beyond float32"):
        label(raw, np.r_[np.nan, np.ones(99)])
    with pytest.raises(QueryError, match="same severity"):
        label(raw, np.ones(100))
    with pytest.raises(QueryError, match="quantile"):
        label(raw, np.arange(100.0), 1.5)


def test_no_high_leaf_is_a_clear_error(space: Space) -> None:
    settings = ExplainSettings(purity=0.99, depth=1)
    with pytest.raises(QueryError, match="no leaf of the decision tree is high"):
        explain(space, CENTRE, lambda raw: (np.floor(raw[:, 1] * 1e7) % 2).astype(float), settings)


def test_the_purest_leaf_is_explained_where_none_is_pure(space: Space) -> None:
    def weak(raw: Array) -> Array:
        """High for 12 % of the clerks and 1 % of the others, at random: no leaf can be 30 % high."""
        drawn = np.random.default_rng(len(raw)).random(len(raw))
        return np.where(drawn < np.where(raw[:, 2] == 1, 0.12, 0.01), 6.0, 1.0)

    explanation = explain(space, CENTRE, weak, ExplainSettings(delta=0.0, leaf=400, depth=2, samples=4000))
    rules = [one.rule for one in (*explanation.rules, *explanation.dropped)]
    assert rules
    assert 0.01 < explanation.purity < 0.3
    assert all(2 in rule.conditions for rule in rules), "the job is what tells them apart; no rule says `always`"
    for rule in rules:
        inside = rule.contain(explanation.labelled.raw)
        assert explanation.labelled.high[inside].mean() > explanation.labelled.high.mean()
    with pytest.raises(QueryError, match="no leaf of the decision tree is high"):
        explain(space, CENTRE, weak, ExplainSettings(purity=0.3, leaf=400, depth=2, samples=4000))


def test_samples_are_local_legal_and_seeded(space: Space) -> None:
    near = Neighbourhood.of(space, CENTRE)
    one, two = (near.draw(2000, np.random.default_rng(5)) for _ in range(2))
    assert (one == two).all()
    assert space.query.schema.inside(one).all()
    kept = (one == near.centre).mean(axis=0)
    assert (kept[3:] == 1).all(), "protected features stay"
    assert (kept[:3] > 0.45).all()
    assert (kept[:3] < 0.75).all()
    rows = np.tile(CENTRE, (50, 1))
    rows[:, 2] = 3.0
    jobs = Neighbourhood.of(space, CENTRE, rows).draw(500, np.random.default_rng(0))[:, 2]
    assert set(jobs) == {1.0, 3.0}, "categories are drawn as often as in the data"


def test_constraints_of_the_schema_hold_for_samples() -> None:
    schema = Schema.loads(SCHEMA.dumps() + '\n[[constraint]]\nnever = { job = "nurse", age = { high = 45 } }\n')
    network = random_network(np.random.default_rng(0), (schema.domain.columns, 6, 1))
    space = Space.of(KDiscrimination(model=network, schema=schema, protected=["sex", "region"]))
    raw = Neighbourhood.of(space, CENTRE).draw(1000, np.random.default_rng(0))
    assert not ((raw[:, 2] == 2) & (raw[:, 0] <= 45)).any()
    assert (raw[:, 2] == 2).any()


def test_gap_is_the_largest_difference_of_two_probabilities(space: Space) -> None:
    raw = space.random(np.random.default_rng(2), 20)
    domain, network = space.query.schema.domain, space.query.model
    expected = []
    for x in raw:
        p = 1 / (1 + np.exp(-network.forward(domain.encode(space.rows(x)))[:, 0]))
        expected.append(p.max() - p.min())
    assert severity_of(space, "gap")(raw) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(QueryError, match="k, gap"):
        severity_of(space, "spread")


def test_a_gap_is_not_taken_of_decisions() -> None:
    """With 2 buckets a model of three classes is asked for its decision: its margin is no log-odds."""
    network = random_network(np.random.default_rng(3), (SCHEMA.domain.columns, 6, 3))
    schema = SCHEMA.changed(positive="class = 1", classes=("a", "b", "c"))
    for buckets, decided in ((20, False), (2, True)):
        space = Space.of(KDiscrimination(model=network, schema=schema, protected=["sex"], buckets=buckets))
        with pytest.raises(QueryError, match="2 buckets are the two decisions") if decided else nullcontext():
            severity_of(space, "gap")


def test_where_nothing_is_free_the_person_is_found_that_there_is() -> None:
    network = random_network(np.random.default_rng(0), (SCHEMA.domain.columns, 6, 1))
    fixed = {"age": (30, 30), "amount": (2.0, 2.0), "job": (1, 1)}
    space = Space.of(KDiscrimination(model=network, schema=SCHEMA, protected=["sex", "region"], box=fixed))
    assert len(climb(space, None, 0)) == SCHEMA.domain.variables


def test_paths_become_boxes_with_whole_ends(found: Explanation, space: Space) -> None:
    whole = space.query.schema.domain.integer
    for rule in high_leaves(found.tree, found.columns, whole, 0.3):
        ends = np.concatenate([rule.lower[whole], rule.upper[whole]])
        ends = ends[np.isfinite(ends)]
        assert (ends == np.rint(ends)).all()
        inside = rule.contain(found.labelled.raw)
        leaf = found.tree.apply(found.labelled.raw[:, found.columns])
        assert len(set(leaf[inside])) == 1
        assert inside.sum() == (leaf == leaf[inside][0]).sum()


def test_the_file_reads_back(space: Space, found: Explanation, tmp_path: Path) -> None:
    schema = space.query.schema
    path = tmp_path / "rules.json"
    rules = [rules_file.found_rule(one, schema, 0).model_dump() for one in found.rules]
    clusters = [{"x": schema.decode(found.centre)}]
    rules_file.save(path, {"query": {"protected": list(space.query.protected)}, "clusters": clusters, "rules": rules})
    read = rules_file.load(path, schema)
    assert len(read.rules) == len(found.rules)
    raw = space.random(np.random.default_rng(0), 3000)
    for one, rule in zip(found.rules, read.rules, strict=True):
        assert (rule.contain(raw) == one.rule.contain(raw)).all()
    assert (read.clusters == found.centre).all()
    assert read.query["protected"] == ["sex", "region"]


BAD = {
    "no list": ({}, "no list of rules"),
    "empty": ({"rules": []}, "holds no rule"),
    "feature": ({"rules": [{"when": {"ages": 40}}]}, "did you mean 'age'"),
    "category": ({"rules": [{"when": {"job": "pope"}}]}, "unknown category"),
    "protected": ({"rules": [{"when": {"sex": "male"}}]}, "protected"),
    "nothing": ({"rules": [{"when": {}}]}, "rule 1"),
    "absent": ({"rules": [{}]}, "rule 1"),
    "cluster": (
        {"rules": [{"when": {"age": 40}}],
         "clusters": [{"x": {"age": 40, "amount": -5, "job": "none", "sex": "male", "region": 1}}]},
        "clusters: 'amount' lies outside the schema's range",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named(case: str, tmp_path: Path) -> None:
    content, word = BAD[case]
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=word) as caught:
        rules_file.load(path, SCHEMA)
    assert str(path) in str(caught.value)


def test_a_handwritten_rule_of_scattered_categories_becomes_two_boxes(tmp_path: Path) -> None:
    path = tmp_path / "hand.json"
    path.write_text(json.dumps({"rules": [{"when": {"job": ["none", "nurse"]}}]}))
    read = rules_file.load(path, SCHEMA)
    assert sorted(read.words) == ["job is none", "job is nurse"]


def test_a_list_of_numbers_in_a_handwritten_rule_is_no_range(tmp_path: Path) -> None:
    """As the document says: the two ages, and nobody between them."""
    path = tmp_path / "hand.json"
    for when, ages in ({"age": [31, 33]}, [31, 33]), ({"age": {"low": 31, "high": 33}}, [31, 32, 33]):
        path.write_text(json.dumps({"rules": [{"when": when}]}))
        rows = np.zeros((60, len(SCHEMA.features)))
        rows[:, SCHEMA.index("age")] = np.arange(60)
        inside = np.any([rule.contain(rows) for rule in rules_file.load(path, SCHEMA).rules], axis=0)
        assert np.flatnonzero(inside).tolist() == ages


def test_rules_that_there_is_no_time_for_are_left_out_and_counted(space: Space) -> None:
    settings, left = ExplainSettings(leaf=2, depth=20, delta=0.0), [10**6]

    def noise(raw: Array) -> Array:
        left[0] -= 1
        if left[0] < 0:
            raise OutOfTime("the time was up")
        return np.random.default_rng(len(raw)).integers(0, 6, size=len(raw)).astype(float)

    whole = explain(space, CENTRE, noise, settings)
    rules = len(whole.rules) + len(whole.dropped)
    assert whole.late == 0
    assert rules > 3
    left[0] = (10**6 - left[0]) // 2
    some = explain(space, CENTRE, noise, settings)
    judged = len(some.rules) + len(some.dropped)
    assert 0 < judged == rules - some.late < rules
    left[0] = 3
    with pytest.raises(OutOfTime):
        explain(space, CENTRE, noise, settings)


def test_the_model_is_asked_in_blocks_and_nothing_after_the_deadline(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = space.random(np.random.default_rng(0), 100)
    timed = replace(space, deadline=time.monotonic() + 3600)
    monkeypatch.setattr(space_module, "at_once", lambda network, most: 3 * len(space.combinations))
    assert timed.logits(raw) == pytest.approx(space.logits(raw), abs=1e-5)
    assert timed.logits(raw[:0]).shape == (0, len(space.combinations))
    asked = list[int]()
    late = replace(space, deadline=time.monotonic() - 1)
    monkeypatch.setattr(space_module, "logits_of", lambda *given: asked.append)
    with pytest.raises(OutOfTime):
        late.logits(raw)
    assert not asked
