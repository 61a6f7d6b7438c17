"""Explanation consistency: matching against brute force, scores against their definition, regimes, intervals, and every error."""

import pickle
import re
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import verifair as vf
from encoders.arrays import Array
from encoders.errors import ModelError
from encoders.model import Link, Model
from encoders.network import Layer, Network
from encoders.onnx.reader import read_model, read_onnx
from tests.builders import categorical, integer, network_of, one_hot, random_network, real, schema_of
from tests.tree_models import random_tree, save
from verifair import ExplanationConsistency, aside, datasets
from verifair.errors import DataError, QueryError, SchemaError
from verifair.models.read import read
from verifair.schema.schema import Schema
from verifair.systems import groups
from verifair.systems.cec import matching
from verifair.systems.cec.audit import ComparedPairs, Explanations, audit, control, probability, scored
from verifair.systems.cec.certified import certify_consistency
from verifair.systems.cec.explanations import cec_score, contributions, explanations, normalised, regimes
from verifair.systems.cec.matching import Matches, Reference, match, match_within
from verifair.systems.cec.measures import (
    by_group,
    excess,
    feature_parts,
    interval,
    population,
    replace_pairs,
    sensitivity,
    to_review,
    triviality,
)
from verifair.systems.cec.people import People, merit_columns, people_of
from verifair.systems.cec.settings import CecSettings, Ties
from verifair.systems.groups import identities

SCHEMA = schema_of(
    integer("income", 0, 6, merit=True),
    one_hot("job", "a", "b", "c", merit=True),
    real("zip", 0, 1),
    categorical("sex", "F", "M", protected=True),
    positive="class = 1",
    label="good",
    positive_label="yes",
)


def table(rows: int = 150, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "income": rng.integers(0, 7, rows), "job": rng.choice(list("abc"), rows), "zip": rng.random(rows).round(3),
        "sex": rng.choice(["F", "M"], rows), "race": rng.choice(["x", "y", "z"], rows), "good": rng.choice(["yes", "no"], rows),
    })


def some_network(seed: int = 0) -> Network:
    return random_network(np.random.default_rng(seed), (6, 10, 7, 2))


def reference(frame: pd.DataFrame, sensitive: Any = "sex") -> Reference:
    return Reference.of(people_of(SCHEMA, frame, sensitive), merit_columns(SCHEMA))


@pytest.mark.parametrize("sensitive", ["sex", "race", ["sex", "race"]])
def test_matching_is_brute_force(sensitive: Any) -> None:
    """Definition 2, word for word: nearest of each other group with the same label; among the equally near the lowest row."""
    found = reference(table(), sensitive)
    asked = people_of(SCHEMA, table(60, seed=1), sensitive, names=found.people.names)
    matches = match(found, asked)
    (points, place), (pool, at) = found.merit(asked), found.merit(found.people)
    distances = cdist(points[place], pool[at])
    pairs = [(i, g) for i in range(60) for g in range(len(asked.names)) if g != asked.groups[i]]
    assert list(zip(matches.individual, matches.other, strict=True)) == pairs
    for k, (i, g) in enumerate(pairs):
        cell = np.flatnonzero((found.people.labels == asked.labels[i]) & (found.people.groups == g))
        near = cell[distances[i, cell] <= distances[i, cell].min() + 1e-9]
        assert matches.row[k] == near.min()
        assert matches.ties[k] == len(near)
        assert matches.distance[k] == pytest.approx(distances[i, cell].min(), abs=1e-9)
    assert (matches.ties > 1).any()  # the table is coarse: the rule for ties is tested, not idle


def test_random_ties_are_uniform_and_seeded() -> None:
    found = reference(table())
    asked = found.people.take(np.array([0]))
    ties = int(match(found, asked).ties[0])
    assert ties > 1
    rows = [int(match(found, asked, ties="random", seed=seed).row[0]) for seed in range(60 * ties)]
    counts = np.unique(rows, return_counts=True)[1]
    assert len(counts) == ties
    assert counts.min() > 30
    assert rows[5] == match(found, asked, ties="random", seed=5).row[0]


def test_tau_leaves_pairs_unmatched() -> None:
    found = reference(table())
    everybody = match(found, found.people)
    tau = float(np.median(everybody.distance)) + 0.01
    some = match(found, found.people, tau=tau)
    np.testing.assert_array_equal(some.row >= 0, everybody.distance <= tau)
    np.testing.assert_array_equal(some.distance, everybody.distance)  # kept: how far the unmatched were
    assert 0 < some.coverage < 1
    counted = audit(some_network(), found, found.people, CecSettings(tau=tau))
    assert len(counted.score) == len(some.matched)
    assert by_group(counted)["matched"].sum() == len(some.matched)


def test_the_control_is_the_nearest_other_of_the_own_group() -> None:
    frame = table(120)
    frame = pd.concat([frame, frame.head(5)], ignore_index=True)  # twins: the same in every input
    found = reference(frame)
    people = found.people
    matches = match_within(found, people)
    points, place = found.merit(people)
    distances = cdist(points[place], points[place])
    for i in range(len(people)):
        cell = (people.labels == people.labels[i]) & (people.groups == people.groups[i])
        cell &= (people.x != people.x[i]).any(axis=1)
        rows = np.flatnonzero(cell)
        near = rows[distances[i, rows] <= distances[i, rows].min() + 1e-9]
        assert (matches.row[i], matches.ties[i]) == (near.min(), len(near))
        assert matches.distance[i] == pytest.approx(distances[i, near].min(), abs=1e-9)
    assert (match_within(found, people, tau=0.3).row < 0).any()


def test_people_who_are_their_own_reference_are_numbered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of their values beside themselves is the largest there is; of others it is needed."""
    numbered: list[int] = []
    monkeypatch.setattr(matching, "identities", lambda values: numbered.append(len(values)) or identities(values))
    found = reference(table(120))
    one, other = (match_within(found, people) for people in (found.people, replace(found.people)))
    assert numbered == [120, 240]
    assert (one.row == other.row).all()


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux's files")
@pytest.mark.parametrize("ties", ["first", "random"])
def test_what_there_is_of_everybody_lies_in_files(ties: Ties, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is what memory would hold. A pair has seventeen numbers and a control nine; less than two of them are in memory."""
    pool, settings = reference(table(30_000), ["sex", "race"]), CecSettings(steps=1, ties=ties)

    def measured() -> tuple[ComparedPairs, ComparedPairs]:
        found = audit(some_network(), pool, pool.people, settings, seed=3, threads=1)
        return found, control(some_network(), pool, found, settings, seed=4, threads=1)

    expected = measured()
    monkeypatch.setattr(aside, "ASIDE", 1 << 14)
    tracemalloc.start()
    found = measured()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 8 * 2 * len(expected[0].pair)
    for one, other in zip(found, expected, strict=True):
        for name in ("pair", "g", "g_tilde", "length", "length_tilde", "most", "silent", "score", "decision", "probability"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for name in ("individual", "other", "row", "distance", "ties"):
            np.testing.assert_array_equal(getattr(one.matches, name), getattr(other.matches, name))
    assert population(found[0]) == population(expected[0])
    assert excess(*found) == excess(*expected)
    pd.testing.assert_frame_equal(by_group(found[0]), by_group(expected[0]))


def test_equal_rows_have_one_number_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(-2, 3, (3000, 4)).astype(np.float32)
    expected = np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)
    np.testing.assert_array_equal(identities(values), expected)
    monkeypatch.setattr(groups, "ASIDE", 1)
    np.testing.assert_array_equal(identities(values), expected)
    np.testing.assert_array_equal(identities(values, [1]), np.unique(values[:, 1], return_inverse=True)[1])


def test_the_excess_is_that_of_the_group() -> None:
    """A network that looks at zip alone gives the groups nothing: the excess is noise around 0. One that turns its sign does."""
    frame = table(600)
    estimator = vf.ExplanationConsistency(some_network(), SCHEMA).fit(frame, sensitive_features="sex")
    people = estimator.reference_.people

    def network(weight: Array, out: list[float]) -> Network:
        layers = (
            Layer(weight=weight, bias=np.zeros(len(weight)), slope=np.zeros(len(weight))),
            Layer(weight=np.array([out]), bias=np.zeros(1), slope=np.ones(1)),
        )
        return Network(layers=layers, link=Link.IDENTITY, source_sha256="")

    zip_only = network(np.array([[0, 0, 0, 0, 1.0, 0], [0, 1.0, 0, 0, 0, 0]]), [1.0, 1.0])
    found = audit(zip_only, estimator.reference_, people)
    apart = excess(found, control(zip_only, estimator.reference_, found))
    assert apart.low < 0.02
    assert apart.high > -0.02
    # relu(zip - 2 sex) for sex = 0, relu(income + 6 sex - 6) for sex = 1: other reasons for the other group
    biased = network(np.array([[0, 0, 0, 0, 1.0, -2.0], [1.0, 0, 0, 0, 0, 6.0]]), [1.0, 1.0])
    found = audit(biased, estimator.reference_, people)
    inner = control(biased, estimator.reference_, found)
    np.testing.assert_array_equal(inner.individual, np.unique(found.individual))
    apart = excess(found, inner)
    assert apart.low > 0.05
    assert apart.mean == pytest.approx(found.score.mean() - inner.score.mean())
    estimator.model = biased
    np.testing.assert_array_equal(estimator.control(found).score, inner.score)


def test_the_control_of_several_classes_is_about_the_favourable_ones() -> None:
    frame, schema = table(), SCHEMA.changed(positive="class in [0, 2]", positive_label=None, label="grade")
    frame = frame.assign(grade=np.arange(len(frame)) % 3)
    network = random_network(np.random.default_rng(0), (SCHEMA.domain.columns, 3, 3))
    estimator = vf.ExplanationConsistency(network, schema).fit(frame, sensitive_features="sex")
    found = estimator.audit(frame, sensitive_features="sex")
    settled, described = schema.settled(network)
    inner = control(described.judges(settled), estimator.reference_, found)
    np.testing.assert_array_equal(estimator.control(found).score, inner.score)


def test_labels_beyond_the_models_classes_are_refused() -> None:
    """1 would count as favourable, and 2 as the other class."""
    frame, schema = table(), SCHEMA.changed(positive_label=None)
    frame["good"] = np.where(frame["good"] == "yes", 1, 2)
    estimator = vf.ExplanationConsistency(some_network(), schema)
    for y in (None, frame["good"]):
        with pytest.raises(DataError, match="holds 1, 2, not class numbers 0 and 1; name the positive value"):
            estimator.fit(frame, y, sensitive_features="sex")


def test_a_control_of_nobody() -> None:
    lonely = table(4).assign(sex=list("FFMM"), good=["yes", "no"] * 2)
    estimator = vf.ExplanationConsistency(some_network(), SCHEMA).fit(lonely, sensitive_features="sex")
    found = estimator.audit(lonely, sensitive_features="sex")
    inner = estimator.control(found)
    assert len(inner.score) == 0
    assert np.isnan(inner.value)
    assert np.isnan(excess(found, inner).mean)


def test_baselines_are_label_group_means() -> None:
    found = reference(table())
    people = found.people
    for label in (0, 1):
        for group in (0, 1):
            rows = (people.labels == label) & (people.groups == group)
            np.testing.assert_allclose(found.baselines[label, group], people.x[rows].mean(axis=0))
    np.testing.assert_allclose(found.baseline(people)[7], found.baselines[people.labels[7], people.groups[7]])


def test_scores_are_their_definition() -> None:
    found, network = reference(table()), some_network()
    whole = audit(network, found, found.people)
    for k in range(0, len(whole.score), 13):
        i, j = whole.individual[k], whole.counterpart[k]
        b = found.baselines[found.people.labels[i], found.people.groups[i]][None]
        g = explanations(network, found.people.x[[i]], b)[0]
        g_tilde = explanations(network, found.people.x[[j]], b)[0]
        angle = np.arccos(np.clip(g @ g_tilde / np.linalg.norm(g) / np.linalg.norm(g_tilde), -1, 1))
        assert whole.score[k] == pytest.approx(np.sin(angle / 2), abs=1e-6)
        assert whole.decision[k] == (network.forward(found.people.x[[i]])[0].argmax())
    assert whole.value == pytest.approx(whole.score.mean())
    assert isinstance(whole, vf.Finding)
    np.testing.assert_array_equal(whole.regime == "A", (whole.score <= 0.5) & (whole.decision == whole.decision_tilde))


def test_score_identities() -> None:
    rng = np.random.default_rng(0)
    g = rng.standard_normal((50, 6))
    assert cec_score(g, 3 * g).max() < 1e-7
    assert np.abs(cec_score(g, -g) - 1).max() < 1e-7
    np.testing.assert_allclose(cec_score(g, g[::-1]), cec_score(g[::-1], g))
    np.testing.assert_allclose(contributions(g, g[::-1]).sum(axis=1), cec_score(g, g[::-1]) ** 2)
    zero = np.zeros((1, 6))
    assert cec_score(zero, zero)[0] == 0  # nothing is explained: no difference, and no NaN
    assert cec_score(zero, g[:1])[0] == pytest.approx(0.5, abs=1e-7)
    for scale in (1e-200, 1e-12, 1e200, 1e300):
        assert np.isfinite(normalised(scale * g)).all()
    np.testing.assert_allclose(np.linalg.norm(normalised(1e200 * g), axis=1), 1)
    assert np.linalg.norm(normalised(1e-200 * g), axis=1).max() < 1e-190


def test_regimes_at_the_threshold() -> None:
    score = np.array([0.0, 0.3, 0.5, np.nextafter(0.5, 1), 1.0, 0.5, 0.6])
    same = np.array([True] * 5 + [False] * 2)
    assert "".join(regimes(score, same, 0.5)) == "AAABBCD"
    assert "".join(regimes(score, same, 0.0)) == "ABBBBDD"
    assert "".join(regimes(score, same, 1.0)) == "AAAAACC"
    for threshold in (-0.1, 1.1, float("nan")):
        with pytest.raises(QueryError, match=r"expected a number there|\[0, 1\]"):
            regimes(score, same, threshold)


def test_a_network_without_the_group_explains_equals_alike() -> None:
    """Two people who agree in everything that the network looks at have score 0: regime A, whatever their group."""
    weight = np.random.default_rng(1).standard_normal((8, 6))
    weight[:, 4:] = 0  # blind to zip and sex
    blind = network_of((weight, np.ones(8)), (np.random.default_rng(2).standard_normal((2, 8)), None))
    found = reference(table(600))
    whole = audit(blind, found, found.people)
    exact = whole.matches.distance[whole.pair] == 0
    assert exact.sum() > 100
    assert whole.score[exact].max() < 1e-7
    assert set(whole.regime[exact]) == {"A"}


def test_population_measures_add_up() -> None:
    found = reference(table(), "race")
    whole = audit(some_network(), found, found.people)
    shares = population(whole)
    assert sum(shares[name].mean for name in "ABCD") == pytest.approx(1)
    assert shares["PFR"].mean == pytest.approx(shares["C"].mean + shares["D"].mean)
    assert all(one.low <= one.mean <= one.high for one in shares.values())
    lines = sensitivity(whole)
    np.testing.assert_allclose(lines[list("ABCD")].sum(axis=1), 1)
    assert (np.diff(lines["A"]) >= 0).all()
    at = lines[lines["threshold"] == 0.5].iloc[0]
    assert at["B"] == pytest.approx(shares["B"].mean)
    parts = feature_parts(whole, SCHEMA)
    assert parts["part"].sum() == pytest.approx((whole.score**2).mean())
    assert parts["share"].sum() == pytest.approx(1)
    assert set(parts["feature"]) == {"income", "job", "zip", "sex"}
    groups = by_group(whole)
    assert len(groups) == 6
    assert (groups["CEC"] * groups["matched"]).sum() / groups["matched"].sum() == pytest.approx(whole.value)


def test_intervals_are_over_people() -> None:
    """Everybody has two counterparts with the same score: the interval is that of 40 values, not of 80."""
    values = np.random.default_rng(0).random(40)
    nobody = np.zeros(40, dtype=int)
    people = People(values=np.zeros((40, 1)), labels=nobody, groups=nobody, names=("a", "b", "c"))

    def of(repeats: int) -> ComparedPairs:
        rows = 40 * repeats
        matches = Matches(
            individual=np.repeat(np.arange(40), repeats), other=np.ones(rows, dtype=int), row=np.zeros(rows, dtype=int),
            distance=np.zeros(rows), ties=np.ones(rows, dtype=int), tau=None,
        )
        same = np.zeros(rows, dtype=int)
        g = np.ones((rows, 1))
        alike = Explanations(g=g, decision=same, probability=g[:, 0])
        return scored(people, matches, [(slice(None), alike, alike)], method="test")

    once, twice = interval(of(1), values), interval(of(2), np.repeat(values, 2))
    assert once.high - once.low == pytest.approx(twice.high - twice.low, rel=1e-9)
    assert once.high - once.low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(40), rel=0.2)


def test_one_person_is_never_certain() -> None:
    """Products that cancel leave a rest, which is no error: one person with several counterparts says hardly anything."""
    people = People(values=np.zeros((9, 1)), labels=np.zeros(9, dtype=int), groups=np.arange(9), names=tuple("abcdefghi"))
    matches = Matches(
        individual=np.zeros(8, dtype=int), other=np.arange(1, 9), row=np.arange(1, 9), distance=np.zeros(8),
        ties=np.ones(8, dtype=int), tau=None,
    )
    alike = Explanations(g=np.ones((8, 1)), decision=np.zeros(8, dtype=int), probability=np.ones(8))
    pairs = scored(people, matches, [(slice(None), alike, alike)], method="test")
    for scores in np.random.default_rng(0).random((100, 8)):
        found = interval(pairs, scores)
        assert found.high - found.low > 0.5


def test_random_groups_seldom_add_anything() -> None:
    """Of 60 tables with groups drawn by lot about 3 intervals exclude 0; were only the persons the same, 7 would."""
    wrong = 0
    for seed in range(60):
        found = reference(table(100, seed=seed).assign(race=np.random.default_rng(10_000 + seed).choice(["x", "y"], 100)), "race")
        across = audit(some_network(3), found, found.people, threads=1)
        apart = excess(across, control(some_network(3), found, across, threads=1))
        wrong += not apart.low <= 0 <= apart.high
    assert wrong <= 4


def test_the_error_of_an_interval_is_of_pairs_that_share_somebody() -> None:
    """Word for word: the products of any two pairs with a person in common, whether as person or as counterpart."""
    found = reference(table(), "race")
    across = audit(some_network(1), found, found.people)
    inner = control(some_network(1), found, across)
    own, twice = set(across.individual), np.bincount(across.individual)
    pairs = [({i, j}, (s - across.score.mean()) / (len(own) * twice[i]))
             for i, j, s in zip(across.individual, across.counterpart, across.score, strict=True)]
    pairs += [({i, j}, -(s - inner.score.mean()) / len(own))
              for i, j, s in zip(inner.individual, inner.counterpart, inner.score, strict=True)]
    assert len(inner.score) == len(own)
    square = sum(a * b for one, a in pairs for other, b in pairs if one & other) * len(own) / (len(own) - 1)
    apart = excess(across, inner)
    assert apart.mean == pytest.approx(across.score.mean() - inner.score.mean())
    assert apart.high - apart.low == pytest.approx(2 * 1.959964 * np.sqrt(square))
    # people who are asked about in another order, some of them only, are the same people
    some = np.random.default_rng(0).permutation(len(found.people))[:100]
    np.testing.assert_array_equal(found.people.values[found.rows_of(found.people.take(some))], found.people.values[some])
    assert len(np.unique(found.rows_of(found.people.take(some)))) == 100
    stranger = found.people.take(some)
    assert (found.rows_of(replace(stranger, labels=1 - stranger.labels, values=stranger.values + 0.5)) == -1).all()


def test_the_interval_of_an_excess_is_about_people_with_both_scores() -> None:
    """Three people of 150: the others do not make it narrower, neither when scores vary nor when all are equal."""
    found = reference(table(), "race")
    constant = network_of((np.zeros((4, 6)), np.ones(4)), (np.ones((2, 4)), [0.0, 1.0]))
    for network in (some_network(1), constant):
        across = audit(network, found, found.people)
        few = replace_pairs(control(network, found, across), np.array([3, 50, 90]))
        own_pairs = replace_pairs(across, np.flatnonzero(np.isin(across.individual, few.individual)))
        apart = excess(across, few)
        assert apart == excess(own_pairs, few)
        assert apart.high - apart.low > 0.1


def test_values_that_are_all_alike_leave_a_width() -> None:
    """0 flips of 150 pairs are no proof of none: Wilson's interval of as many pairs as there are independent ones."""
    found = reference(table(), "race")
    constant = network_of((np.zeros((4, 6)), np.ones(4)), (np.ones((2, 4)), [0.0, 1.0]))
    across = audit(constant, found, found.people)
    flips, apart = population(across)["PFR"], excess(across, control(constant, found, across))
    assert flips.mean == flips.low == apart.mean == 0
    served = np.bincount(across.counterpart)
    count = served.sum() ** 2 / (served**2).sum()  # fewer than the 150 people: some serve as counterparts of many
    assert flips.high == pytest.approx(1.959964**2 / (count + 1.959964**2))
    assert -0.2 < apart.low < 0 < apart.high < 0.2


def test_review_puts_hidden_bias_first() -> None:
    found = reference(table())
    whole = audit(some_network(), found, found.people)
    lines = to_review(whole, SCHEMA, top=len(whole.score))
    hidden = (lines["decision"] == lines["its decision"]).to_numpy()
    assert not hidden[np.argmin(hidden) :].any()
    assert (np.diff(lines.loc[hidden, "score"]) <= 0).all()
    first = int(np.flatnonzero((whole.individual == lines["row"][0]) & (whole.counterpart == lines["counterpart"][0]))[0])
    x = found.people.x[[whole.individual[first], whole.counterpart[first]]]
    g = normalised(explanations(some_network(), x, found.baseline(found.people)[whole.individual[[first, first]]]))
    part = np.add.reduceat((g[0] - g[1]) ** 2, SCHEMA.domain.start)
    assert lines["most different"][0].split(", ")[0] == SCHEMA.features[int(part.argmax())].name
    assert len(to_review(whole, SCHEMA, top=3)) == 3


def test_a_constant_network_is_seen() -> None:
    constant = network_of((np.zeros((4, 6)), np.ones(4)), (np.ones((2, 4)), [0.0, 1.0]))
    found = reference(table())
    whole = audit(constant, found, found.people)
    assert whole.value == 0
    seen = triviality(whole)
    assert seen.variance < 1e-30
    assert (seen.positive, seen.auc, seen.silent) == (1, 0.5, 1)


def test_the_estimator_is_the_audit() -> None:
    frame, network = table(), some_network()
    estimator = vf.ExplanationConsistency(network, SCHEMA, threshold=0.3, steps=32)
    with pytest.raises(NotFittedError):
        estimator.audit(frame, sensitive_features="sex")
    fitted = estimator.fit(frame, sensitive_features="sex")
    found = fitted.audit(frame.head(40), sensitive_features=frame["sex"].head(40))
    direct = audit(network, reference(frame), people_of(SCHEMA, frame.head(40), "sex"), CecSettings(threshold=0.3, steps=32))
    np.testing.assert_array_equal(found.score, direct.score)
    labels = (frame["good"] == "yes").to_numpy()
    again = clone(estimator).fit(frame.drop(columns="good"), labels, sensitive_features=frame[["sex"]])
    whole = fitted.audit(frame, sensitive_features="sex")
    np.testing.assert_array_equal(again.audit(frame, sensitive_features="sex").score, whole.score)
    means = vf.ExplanationConsistency(network, SCHEMA, tau=0.4).fit(frame, sensitive_features="race")
    each, pairs = means.score_samples(frame, sensitive_features="race"), means.audit(frame, sensitive_features="race")
    assert np.isnan(each).any()
    who = int(pairs.individual[0])
    assert each[who] == pytest.approx(pairs.score[pairs.individual == who].mean())


@pytest.mark.parametrize(("change", "error", "words"), [
    (lambda f: f.assign(good="yes"), DataError, "every row has the true label 1"),
    (lambda f: f.assign(sex="F"), DataError, "only one group"),
    (lambda f: f[(f.sex == "M") | (f.good == "no")], DataError, "'sex = F' has no row with the true label 1"),
    (lambda f: f.drop(columns="good"), DataError, "label"),
    (lambda f: f.drop(columns="sex"), DataError, "no such column"),
])
def test_tables_that_cannot_be_compared(change: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        vf.ExplanationConsistency(some_network(), SCHEMA).fit(change(table()), sensitive_features="sex")


def test_other_mistakes() -> None:
    frame, network = table(), some_network()
    bare = schema_of(*({**f.model_dump(), "merit": False} for f in SCHEMA.features), **SCHEMA.model_dump(exclude={"features"}))
    with pytest.raises(SchemaError, match="no feature has merit = true"):
        vf.ExplanationConsistency(network, bare).fit(frame, sensitive_features="sex")
    fitted = vf.ExplanationConsistency(network, SCHEMA, tau=1e-12).fit(frame.iloc[:8].assign(
        income=[0, 1, 2, 3, 4, 5, 6, 0], sex=list("FMFMFMFM"), good=["yes", "yes", "no", "no"] * 2
    ), sensitive_features="sex")
    with pytest.raises(DataError, match="nobody has a counterpart that near; the nearest pair is"):
        fitted.audit(frame.iloc[:1].assign(income=6, job="b"), sensitive_features="sex")
    for tau in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(QueryError, match="tau"):
            vf.ExplanationConsistency(network, SCHEMA, tau=tau).fit(frame, sensitive_features="sex").audit(
                frame, sensitive_features="sex"
            )
    good = vf.ExplanationConsistency(network, SCHEMA).fit(frame, sensitive_features="race")
    with pytest.raises(DataError, match="race = w"):
        good.audit(frame.assign(race="w"), sensitive_features="race")
    with pytest.raises(QueryError, match="sensitive_features"):
        good.audit(frame, sensitive_features=None)
    for steps in (0, True, "32"):
        none = vf.ExplanationConsistency(network, SCHEMA, steps=steps)  # type: ignore[arg-type]
        with pytest.raises(QueryError, match=rf"steps: expected exact, or a number .*, found {steps!r}"):
            none.fit(frame, sensitive_features="sex").audit(frame, sensitive_features="sex")
    partial = Reference.of(good.reference_.people.take(np.flatnonzero(good.reference_.people.groups > 0)), merit_columns(SCHEMA))
    with pytest.raises(DataError, match="has no baseline"):
        match(partial, good.reference_.people)


def test_inputs_of_merit_are_columns() -> None:
    found: Array = merit_columns(SCHEMA)
    np.testing.assert_array_equal(found, [0, 1, 2, 3])


# ExplanationConsistency as a scikit-learn user meets it: indices, arrays, parameters, and an interval that hangs on no seed.


GERMAN = datasets.german()
FRAME = GERMAN.frame.iloc[:300]


@pytest.fixture(scope="module")
def network() -> Network:
    return read_onnx(datasets.network_path("german"))


@pytest.fixture(scope="module")
def model(network: Network) -> ExplanationConsistency:
    return ExplanationConsistency(network, GERMAN.schema).fit(FRAME, sensitive_features="sex")


@pytest.fixture(scope="module")
def found(model: ExplanationConsistency) -> ComparedPairs:
    return model.audit(FRAME, sensitive_features="sex")


def test_values_are_taken_by_place_whatever_their_index(model: ExplanationConsistency, found: ComparedPairs) -> None:
    named = FRAME.set_axis([f"p{n}" for n in range(len(FRAME))])
    y = pd.Series((FRAME["credit"] == "good").to_numpy(), index=range(5000, 5000 + len(FRAME)))
    sex = pd.Series(FRAME["sex"].to_numpy(), index=range(7000, 7000 + len(FRAME)), name="sex")
    for again in (
        model.audit(named, sensitive_features="sex"),
        model.audit(named, y, sensitive_features=sex),
        model.audit(FRAME, FRAME["credit"].tolist(), sensitive_features=FRAME[["sex"]]),
        pickle.loads(pickle.dumps(model)).audit(FRAME, sensitive_features="sex"),
    ):
        np.testing.assert_array_equal(again.score, found.score)


@pytest.mark.parametrize("which", ["y", "series", "frame"])
def test_the_same_rows_in_another_order_are_refused(model: ExplanationConsistency, which: str) -> None:
    """They would be paired with the wrong people, and the figures be wrong without a word."""
    turned = FRAME.iloc[::-1]
    y = turned["credit"] if which == "y" else None
    sensitive: Any = {"y": "sex", "series": turned["sex"], "frame": turned[["sex"]]}[which]
    with pytest.raises(DataError, match=r"in another order \(at place 0 row 299, in the table 0\)"):
        model.audit(FRAME, y, sensitive_features=sensitive)
    aligned = y if y is None else y.loc[FRAME.index]
    if not isinstance(sensitive, str):
        sensitive = sensitive.loc[FRAME.index]
    assert len(model.audit(FRAME, aligned, sensitive_features=sensitive).score) == len(FRAME)


def test_a_column_that_is_there_twice_is_refused(model: ExplanationConsistency) -> None:
    with pytest.raises(DataError, match="'sex': the table has more than one such column"):
        model.audit(pd.concat([FRAME, FRAME[["sex"]]], axis=1), sensitive_features="sex")


@pytest.mark.parametrize(("parameter", "message"), [
    ({"seed": -1}, "seed = -1: expected 0 or more"),
    ({"seed": "a"}, "seed = 'a': expected a whole number"),
    ({"threads": 0}, "threads = 0: expected 1 or more"),
    ({"threads": "2"}, "threads = '2': expected a whole number"),
    ({"schema": "german.toml"}, "schema: found str; expected a Schema (Schema.load)"),
    ({"steps": 10**20}, f"steps: expected exact, or a number of steps in 1 .. 10000, such as the paper's 32, found {10**20}"),
])
def test_parameters_that_cannot_be_are_named(model: ExplanationConsistency, parameter: dict[str, Any], message: str) -> None:
    wrong = clone(model, safe=False).set_params(**parameter)
    with pytest.raises(QueryError, match=re.escape(message)):
        wrong.fit(FRAME, sensitive_features="sex").audit(FRAME, sensitive_features="sex")


def test_the_excess_is_less_sure_than_of_as_many_independent_people(network: Network) -> None:
    """On all of German the interval holds 0, and it does not hang on a seed."""
    model = ExplanationConsistency(network, GERMAN.schema).fit(GERMAN.frame, sensitive_features="sex")
    found = model.audit(GERMAN.frame, sensitive_features="sex")
    inside = model.control(found)
    difference, apart = found.score - inside.score, excess(found, inside)
    assert apart.low < difference.mean() - 1.96 * difference.std() / len(difference) ** 0.5
    assert apart.low < 0 < apart.high
    assert excess(found, inside) == apart


# Trees, and attributions of somebody else's


ONE_LOGIT = Schema.loads(SCHEMA.dumps().replace('"class = 1"', '"logit > 0"'))


def some_trees(folder: Path, *, votes: bool = False) -> Model:
    rng = np.random.default_rng(5)
    trees = [random_tree(rng, 6, 4) for _ in range(4)]
    if votes:
        trees = [(k, "BRANCH_LEQ", 0.5, [0.1 * k], [0.2]) for k in range(4)]
    return read_model(save(folder / "m.onnx", trees, 6, classes=2, transform="NONE" if votes else "LOGISTIC"))


@pytest.mark.parametrize("votes", [False, True])
def test_trees_are_explained_by_shapley_values_of_features(votes: bool, tmp_path: Path) -> None:
    frame, model = table(), some_trees(tmp_path, votes=votes)
    found = ExplanationConsistency(model, ONE_LOGIT).fit(frame, sensitive_features="sex").audit(frame, sensitive_features="sex")
    assert "interventional Shapley values" in found.method
    people = found.people
    f = model.forward(people.x)[:, 0]
    shown = np.clip(f + 0.5, 0, 1) if votes else expit(f)
    np.testing.assert_allclose(found.probability, shown[found.individual])
    for g, who in ((found.g, found.individual), (found.g_tilde, found.counterpart)):
        base = [f[(people.labels == people.labels[i]) & (people.groups == people.groups[i])].mean() for i in found.individual]
        np.testing.assert_allclose(g.sum(axis=1), f[who] - base, atol=1e-12)
    assert found.g[:, 1].any()


@pytest.mark.parametrize("positive", ["class = 1", "class in [0, 2]"])
@pytest.mark.parametrize("kind", [GradientBoostingClassifier, RandomForestClassifier])
def test_trees_of_several_classes_are_explained_by_their_scores(kind: Any, positive: str) -> None:
    frame = table().assign(good=np.random.default_rng(3).integers(0, 3, 150))
    three = schema_of(*SCHEMA.features, positive=positive, label="good")
    fitted = kind(n_estimators=5, max_depth=3, random_state=0).fit(SCHEMA.encode(SCHEMA.raw(frame)), frame["good"])
    model = read(fitted)
    found = ExplanationConsistency(model, three).fit(frame, sensitive_features="sex").audit(frame, sensitive_features="sex")
    assert "Shapley values of the favourable classes' mean score less that of the others" in found.method
    people, favoured = found.people, [0, 2] if "in" in positive else [1]
    shares = fitted.predict_proba(people.x)[found.individual]
    np.testing.assert_allclose(found.probability, shares[:, favoured].sum(axis=1), atol=1e-6)
    scores = model.forward(people.x)
    f = scores[:, favoured].mean(axis=1) - np.delete(scores, favoured, axis=1).mean(axis=1)
    base = [f[(people.labels == people.labels[i]) & (people.groups == people.groups[i])].mean() for i in found.individual]
    np.testing.assert_allclose(found.g.sum(axis=1), f[found.individual] - base, atol=1e-12)


def test_steps_and_proofs_are_of_networks_alone(tmp_path: Path) -> None:
    frame, model = table(), some_trees(tmp_path)
    asked = ExplanationConsistency(model, ONE_LOGIT, steps=32).fit(frame, sensitive_features="sex")
    with pytest.raises(QueryError, match="piecewise constant"):
        asked.audit(frame, sensitive_features="sex")
    asked.set_params(steps=None)
    with pytest.raises(ModelError, match="is a tree ensemble, not supported by certified explanation consistency"):
        certify_consistency(
            model, ONE_LOGIT, asked.audit(frame, sensitive_features="sex"), asked.reference_, asked.reference_.people, 1
        )


def test_any_attribution_explains(tmp_path: Path) -> None:
    """It is given the people of the own group and label, and what it says counts; what is no attribution is refused."""
    frame, seen = table(), []

    def difference(x: Array, background: Array) -> Array:
        seen.append((len(x), len(background)))
        return np.asarray(x - background.mean(axis=0))

    for model, schema in ((some_network(), SCHEMA), (some_trees(tmp_path), ONE_LOGIT)):
        asked = ExplanationConsistency(model, schema, attribution=difference).fit(frame, sensitive_features="sex")
        found = asked.audit(frame, sensitive_features="sex")
        assert found.method == "attribution by difference"
        mean = asked.reference_.baseline(found.people)
        by_feature = np.add.reduceat(found.people.x - mean, SCHEMA.domain.start, axis=1)
        np.testing.assert_allclose(found.g, by_feature[found.individual], atol=1e-12)
        np.testing.assert_allclose(asked.control(found).length, found.length)
    assert sum(background for _, background in seen[:4]) == len(frame)
    for wrong in (lambda x, b: x[:, :1], lambda x, b: x * np.nan, lambda x, b: x.astype(str)):
        with pytest.raises(QueryError, match="attribution: gave"):
            ExplanationConsistency(some_network(), SCHEMA, attribution=wrong).fit(frame, sensitive_features="sex").audit(
                frame, sensitive_features="sex"
            )


def test_smooth_networks_are_explained_by_a_quadrature() -> None:
    """A soft vote of an MLP with tanh and a linear model: its probability is the mean, and what is explained is that less 1/2."""
    frame = table()
    x = SCHEMA.encode(SCHEMA.raw(frame))
    members = [("tanh", MLPClassifier((6,), activation="tanh", solver="lbfgs", alpha=1.0, max_iter=500, random_state=0)),
               ("linear", LogisticRegression())]
    votes = VotingClassifier(members, voting="soft").fit(x, frame["good"])
    model = read(votes)
    fitted = ExplanationConsistency(model, ONE_LOGIT).fit(frame, sensitive_features="sex")
    found = fitted.audit(frame, sensitive_features="sex")
    assert found.method == "integrated gradients, path integral by quadrature"
    people = found.people
    f = votes.predict_proba(people.x)[:, 1] - 0.5
    np.testing.assert_allclose(found.probability, f[found.individual] + 0.5, atol=1e-6)
    baseline = fitted.reference_.baseline(people)[found.individual]
    base = votes.predict_proba(baseline)[:, 1] - 0.5
    for g, who in ((found.g, found.individual), (found.g_tilde, found.counterpart)):
        np.testing.assert_allclose(g.sum(axis=1), f[who] - base, atol=1e-6)
    steps = ExplanationConsistency(model, ONE_LOGIT, steps=500).fit(frame, sensitive_features="sex")
    rough = steps.audit(frame, sensitive_features="sex")
    assert rough.method == "integrated gradients, 500-step Riemann sum"
    np.testing.assert_allclose(found.g, rough.g, atol=1e-4)


@pytest.mark.parametrize("rule", ["logit > 0", "logit > 1.5", "logit >= -1", "logit < 2", "logit <= 0"])
def test_the_probability_is_the_models_own_wherever_the_decision_is_cut(rule: str) -> None:
    """It was the logistic function of the distance to the threshold."""
    network, x = network_of(([[1.0, -2.0]], [0.5])), np.random.default_rng(0).normal(size=(5, 2))
    judged = schema_of(real("a", -9, 9), real("b", -9, 9), positive=rule).judges(network)
    np.testing.assert_allclose(probability(judged, x), expit(x @ [1.0, -2.0] + 0.5))
