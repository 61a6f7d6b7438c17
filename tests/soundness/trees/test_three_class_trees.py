"""Tree ensembles of three classes: decisions, buckets, shares and gaps against brute force; forgeries are rejected."""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

import verifair as vf
from encoders.arrays import Array
from encoders.decision import Favoured, decided
from encoders.errors import ModelError
from encoders.exact.dyadic import exact
from encoders.model import Link, Model
from encoders.onnx.reader import read_model
from tests.builders import integer, schema_of
from tests.soundness.classes.test_outcomes import OF_TREES, largest, outputs_of, trees
from tests.soundness.classes.test_three_class_buckets import RULES as BUCKETS
from tests.soundness.classes.test_three_class_buckets import bucket_of, people
from tests.soundness.classes.whole_weights import FEATURES, ROWS, made
from tests.soundness.trees.test_share_trees import WHOLE
from tests.tree_models import random_tree, save
from verifair.engine.gap.maximise import maximise
from verifair.engine.questions import decisions
from verifair.engine.shares.share import certify_share
from verifair.errors import QueryError
from verifair.systems.fgce.decider import positive
from verifair.systems.hyfair.search.clusters import recount
from verifair.systems.hyfair.search.space import Space

THREE = [rule for rule, (outputs, _) in OF_TREES.items() if outputs == 3]


@pytest.mark.parametrize("rule", THREE)
def test_decisions_are_those_of_brute_force(rule: str, tmp_path: Path) -> None:
    ties = 0
    for seed in range(16):
        model, described = trees(seed, tmp_path / f"{seed}.onnx", scores=3), schema_of(*FEATURES, positive=rule)
        scores = outputs_of(model, ROWS)
        expected = np.array([OF_TREES[rule][1](row) for row in scores])
        assert np.array_equal(decisions(described.judges(model), ROWS) == described.good, expected)
        assert np.array_equal(positive(model, described, ROWS), expected)
        ties += sum(sorted(row)[-1] == sorted(row)[-2] for row in scores)
    assert ties > 5


def test_a_counterexample_shows_a_tie_as_0(tmp_path: Path) -> None:
    tree = (2, "BRANCH_LEQ", 0.5, [0.0, 1.0, 1.0], [1.0, 1.0, 0.0])
    model = read_model(save(tmp_path / "trees.onnx", [tree], 3, classes=3))
    for rule, words in (("class = 1", ("positive", "negative")), ("class in [0, 2]", ("negative", "positive"))):
        asked = vf.IndividualFairness(model=model, schema=schema_of(*FEATURES, positive=rule), protected=["sex"])
        witness = vf.verify(asked).witness
        assert witness is not None
        assert (witness.outputs, witness.margin, witness.decisions, witness.float32_agrees) == ((0.0, 0.0), 0.0, words, True)


def test_margins_are_the_definitions_in_every_arithmetic(tmp_path: Path) -> None:
    for seed in range(4):
        model = trees(seed, tmp_path / f"{seed}.onnx", scores=3)
        scores = outputs_of(model, ROWS)
        rational = np.array([[Fraction(float(v)) for v in row] for row in ROWS], dtype=object)
        for groups in (((2,),), ((0, 1),), ((1, 2), (2,))):
            compared = decided(model, Favoured(groups=groups))
            rest = [[k for k in range(3) if k not in group] for group in groups]
            true = [
                [max(row[k] for k in group) - max(row[k] for k in others) for group, others in zip(groups, rest, strict=True)]
                for row in scores
            ]
            assert compared.forward(exact(ROWS)).to_fractions().tolist() == true
            assert compared.forward(rational).tolist() == true
            assert np.allclose(compared.forward(ROWS), np.array(true, dtype=float))
        shares = decided(replace(model, link=Link.SHARES), Favoured(groups=((0, 2),), odds=True, votes=True))
        voted = [[row[0] + row[2] - Fraction(1, 2)] for row in scores]
        assert shares.forward(exact(ROWS)).to_fractions().tolist() == voted == shares.forward(rational).tolist()
        odds = decided(model, Favoured(groups=((1,),), odds=True))
        with pytest.raises(ModelError, match="no rational numbers"):
            odds.forward(exact(ROWS))


@pytest.mark.parametrize("buckets", [2, 3, 20])
def test_buckets_of_a_person_are_counted_exactly(buckets: int, tmp_path: Path) -> None:
    counts = set()
    for rule in ("class = 2", "class >= 1", "class = 1"):
        for seed in range(4):
            model, described = trees(seed, tmp_path / f"{seed}.onnx", scores=3), schema_of(*FEATURES, positive=rule)
            found = [bucket_of(row, rule, buckets, trees=True) for row in outputs_of(model, ROWS)]
            asked = vf.KDiscrimination(model=model, schema=described, protected=["sex"], buckets=buckets)
            space = Space.of(asked)
            for one in people(ROWS, [2]):
                k = len({found[n] for n in one})
                assert recount(space, ROWS[one[0]]).k == k
                counts.add(k)
    assert counts == {1, 2}


def test_a_proof_about_another_model_is_none_about_such_trees(tmp_path: Path) -> None:
    described = schema_of(*FEATURES, positive="class = 2")
    model, network = trees(0, tmp_path / "trees.onnx", scores=3), made(0, 3)
    about: Any = {"schema": described, "protected": ["sex"]}
    flips = vf.verify(vf.IndividualFairness(model=network, **about)).certificate
    gaps = vf.verify(vf.IndividualFairness(model=network, epsilon=0.99, **about)).certificate
    buckets = vf.verify(vf.KDiscrimination(model=network, buckets=3, **about)).certificate
    assert flips is not None
    assert gaps is not None
    claimed = replace(flips, network_sha256=model.source_sha256)
    assert not vf.check(claimed, model=model, schema=described).accepted
    real = replace(claimed, proofs=tuple(replace(one, float32=False) for one in claimed.proofs))
    others: list[Any] = [replace(one, network_sha256=model.source_sha256) for one in (gaps, buckets)]
    assert not vf.check(real, model=model, schema=described).accepted     # the network's tree cuts no signs here
    for certificate in others:
        assert not vf.check(certificate, model=model, schema=described).accepted


@pytest.mark.parametrize("rule", ["class = 1", "class = 2"])
@pytest.mark.parametrize("near", [False, True])
def test_float32_certificates_hold_in_every_order_of_the_sums(near: bool, rule: str, tmp_path: Path) -> None:
    """near: thirds that differ by their last bit, whose sums are in another order in float32."""
    statuses = set()
    for seed in range(4):
        rng = np.random.default_rng(seed)

        def leaves(node: Any, rng: np.random.Generator = rng) -> Any:
            if not isinstance(node, list):
                return (*node[:3], *(leaves(child) for child in node[3:]))
            return [float(np.float32(1 / 3 + rng.integers(-2, 3) * 2.0**-25)) for _ in range(3)] if near else node

        grown = [leaves(random_tree(rng, 3, 2, scores=3, grid=WHOLE)) for _ in range(5)]
        grown = [(2, "BRANCH_LEQ", 0.5, *grown[:2]), *grown[2:]]    # sex counts
        model = read_model(save(tmp_path / "trees.onnx", grown, 3, classes=3, transform="SOFTMAX"))
        values = model.value[model.leaves(ROWS)].astype(np.float32)     # (N, trees, 3)
        orders = [np.add.accumulate(values[:, list(order)], axis=1)[:, -1] for order in permutations(range(4))]
        favoured = np.array([scores.argmax(axis=1) == int(rule[-1]) for scores in orders])
        about: Any = {"model": model, "schema": schema_of(*FEATURES, positive=rule), "protected": ["sex"]}
        for k in range(0, len(ROWS), 2):
            asked = vf.IndividualFairness(**about, box={"a": ROWS[k, 0], "b": ROWS[k, 1]}, arithmetic="float32")
            found = vf.verify(asked)
            statuses.add(found.status)
            assert found.status is not vf.Status.PROVED or (favoured[:, k : k + 2] == favoured[0, k]).all()
            real = vf.verify(replace(asked, model=model, arithmetic="real")).certificate
            for certificate in filter(None, (found.certificate, real)):
                claimed = replace(certificate, proofs=tuple(replace(one, float32=True) for one in certificate.proofs))
                assert vf.check(certificate, model=model, schema=asked.schema).accepted
                holds = found.status is vf.Status.PROVED
                assert vf.check(claimed, model=model, schema=asked.schema).accepted == holds
    assert vf.Status.VIOLATED in statuses
    assert (vf.Status.UNKNOWN if near else vf.Status.PROVED) in statuses


@dataclass(frozen=True)
class Case:
    """A model of three classes, a schema, every pair of sexes as rows of the model's scores, and the rows (N, 2, V)."""

    model: Model
    schema: vf.Schema
    rule: str
    scores: Any

    @property
    def probability(self) -> Array:
        """(N, 2) of the favourable classes, as it is shown."""
        favoured, scores = BUCKETS[self.rule], np.array(self.scores, dtype=float)
        shown = scores if self.model.link is Link.SHARES else softmax(scores, axis=1)
        return shown[:, favoured].sum(axis=1).reshape(-1, 2)


def case(seed: int, path: Path, *, votes: bool = False) -> Case:
    """Random trees with values of 24 bits, or small whole ones; votes add up to 1, as far as float32 numbers do."""
    rng, rule = np.random.default_rng(seed), list(BUCKETS)[seed % len(BUCKETS)]
    count = int(rng.integers(2, 6))

    def leaves(node: Any) -> Any:
        if not isinstance(node, list):
            return (*node[:3], *map(leaves, node[3:]))
        if votes:
            return (rng.dirichlet(np.ones(3)) / count).astype(np.float32).tolist()
        return [float(v) for v in rng.integers(-2, 3, 3)] if seed % 2 else node

    found = [leaves(random_tree(rng, 4, 3, scores=3, grid=WHOLE)) for _ in range(count + 1)]
    found = [(2, "BRANCH_LEQ", 0.5, *found[:2]), *found[2:]]    # sex counts
    model = read_model(save(path / "trees.onnx", found, 4, classes=3, transform="NONE" if votes else "SOFTMAX"))
    schema = schema_of(*FEATURES, integer("c", -1, 2), positive=rule)
    rows = np.array([[a, b, sex, c] for a in range(4) for b in range(3) for c in range(-1, 3) for sex in range(2)], dtype=float)
    return Case(model, schema, rule, outputs_of(model, rows))


@pytest.mark.parametrize("method", ["milp", "smt"])
@pytest.mark.parametrize("rule", THREE)
def test_solvers_agree_with_brute_force(rule: str, method: str, tmp_path: Path) -> None:
    """Z3 decides ties as argmax does; a MILP claims nothing where a row is exactly 0."""
    seen = set()
    for seed in range(10):
        model, described = trees(seed, tmp_path / f"{seed}.onnx", scores=3), schema_of(*FEATURES, positive=rule)
        favourable = np.array([OF_TREES[rule][1](row) for row in outputs_of(model, ROWS)]).reshape(-1, 2)
        truth = vf.Status.VIOLATED if (favourable[:, 0] != favourable[:, 1]).any() else vf.Status.PROVED
        decided_as = np.array([largest(row) for row in outputs_of(model, ROWS)]).reshape(-1, 2)
        any_truth = vf.Status.VIOLATED if (decided_as[:, 0] != decided_as[:, 1]).any() else vf.Status.PROVED
        for classes, expected in (("favourable", truth), ("any", any_truth)):
            asked = vf.IndividualFairness(model=model, schema=described, protected=["sex"], classes=classes)
            found = vf.verify(asked, method=method, budget=vf.Budget(seconds=60))
            assert found.status in ((expected,) if method == "smt" else (expected, vf.Status.UNKNOWN))
            seen.add(found.status)
    assert seen >= {vf.Status.PROVED, vf.Status.VIOLATED}


def test_cbc_proves_nothing_that_is_wrong(tmp_path: Path) -> None:
    """With its preprocessing CBC calls an optimum positive that is below 0: here, of 349 such ensembles."""
    pytest.importorskip("pulp", reason='pip install "verifair[pulp]"')
    rng, grid = np.random.default_rng(323), np.array([-0.5, 0, 0.5, 1, 2], dtype=np.float32)
    grown = [random_tree(rng, 3, 3, scores=3, grid=grid, modes=("BRANCH_LEQ",)) for _ in range(3)]
    model = read_model(save(tmp_path / "trees.onnx", grown, 3))
    asked = vf.IndividualFairness(model=model, schema=schema_of(*FEATURES, positive="class = 2"), protected=["sex"])
    assert vf.verify(asked, method="milp", solver="cbc").status is vf.Status.VIOLATED


@pytest.mark.parametrize("seed", range(8))
def test_gaps_between_probabilities_are_those_of_brute_force(seed: int, tmp_path: Path) -> None:
    one = case(seed, tmp_path, votes=seed >= 5)
    assert (one.model.link is Link.SHARES) == (seed >= 5)
    true = float(np.abs(np.diff(one.probability, axis=1)).max())
    about: Any = {"model": one.model, "schema": one.schema, "protected": ["sex"]}
    for epsilon in (true - 1e-6, true + 1e-6, 0.7 * true):
        found = vf.verify(vf.IndividualFairness(**about, epsilon=epsilon))
        assert found.status is (vf.Status.PROVED if epsilon > true else vf.Status.VIOLATED)
        if found.certificate is not None:
            assert vf.check(found.certificate, model=one.model, schema=one.schema).accepted
            forged = replace(found.certificate, query=replace(found.certificate.query, epsilon=0.99 * true))
            assert not vf.check(forged, model=one.model, schema=one.schema).accepted
    scale = "logit" if one.model.link is Link.SHARES else "probability"
    if scale == "logit":
        with pytest.raises(QueryError, match="how far a probability may move, a number below 1"):
            vf.IndividualFairness(**about, epsilon=1.0)
    gap = maximise(vf.ProbabilityGap(**about, scale=scale), tolerance=1e-3)
    assert gap.reason is None
    assert gap.lower - 1e-9 <= true <= gap.upper
    assert gap.certificate is not None
    assert vf.check(gap.certificate, model=one.model, schema=one.schema).accepted


@pytest.mark.parametrize("seed", range(8))
def test_buckets_and_shares_are_those_of_brute_force(seed: int, tmp_path: Path) -> None:
    one = case(seed, tmp_path, votes=seed >= 5)
    about: Any = {"model": one.model, "schema": one.schema, "protected": ["sex"]}
    for buckets in (2, 7):
        found = vf.verify(vf.KDiscrimination(**about, buckets=buckets))
        if one.model.link is Link.SHARES and buckets > 2:
            k = [[min(ceil(sum(row[c] for c in BUCKETS[one.rule]) * buckets) - 1, buckets - 1) for row in one.scores]]
        else:
            k = [[bucket_of(row, one.rule, buckets, trees=True) for row in one.scores]]
        pairs = np.array(k).reshape(-1, 2)
        most = 1 + int((pairs[:, 0] != pairs[:, 1]).any())
        assert (found.lower, found.upper) == (most, most)
        assert vf.check(found.certificate, model=one.model, schema=one.schema).accepted
        forged = replace(found.certificate, upper=most - 1)
        assert not vf.check(forged, model=one.model, schema=one.schema).accepted
        if buckets == 2:
            fair = Fraction(int((pairs[:, 0] == pairs[:, 1]).sum()), len(pairs))
    share = certify_share(vf.IndividualFairness(**about), tolerance=0)
    assert (share.certificate.fair, share.certificate.unfair) == (fair, 1 - fair)
    assert vf.check(share.certificate, model=one.model, schema=one.schema).accepted
    more = replace(share.certificate, fair=fair + Fraction(1, 10**6), unfair=1 - fair - Fraction(1, 10**6))
    assert not vf.check(more, model=one.model, schema=one.schema).accepted


def test_a_tie_is_a_bucket_of_its_own_though_the_difference_of_margins_leads_past_it(tmp_path: Path) -> None:
    """Class 1 scores 1 or 0, by sex, the others 0: g is 1, or a tie that class 0 wins, and 0 = 1 - 1 is not the number for it."""
    described = schema_of(*FEATURES, positive="class = 1")
    for low, high, k in ((1.0, 0.0, 2), (-1.0, 0.0, 1)):
        tree = (2, "BRANCH_LEQ", 0.5, [0.0, low, 0.0], [0.0, high, 0.0])
        model = read_model(save(tmp_path / "trees.onnx", [tree], 3, classes=3))
        found = vf.verify(vf.KDiscrimination(model=model, schema=described, protected=["sex"], buckets=2))
        assert (found.lower, found.upper) == (k, k)
        assert vf.check(found.certificate, model=model, schema=described).accepted
        for reference in (0, 1):
            forged = replace(found.certificate, upper=k - 1, reference=reference)
            assert not vf.check(forged, model=model, schema=described).accepted
    tree, fair = (2, "BRANCH_LEQ", 0.5, [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]), [0.0, 3.0, 0.0]
    needle = (0, "BRANCH_LEQ", 123_456.5, fair, (0, "BRANCH_LEQ", 123_460.5, tree, fair))
    wide = schema_of(integer("a", 0, 10**6), *FEATURES[1:], positive="class = 1")
    model = read_model(save(tmp_path / "needle.onnx", [needle], 3, classes=3))
    found = vf.verify(vf.KDiscrimination(model=model, schema=wide, protected=["sex"], buckets=2))
    assert (found.lower, found.upper) == (2, 2)


@pytest.mark.parametrize("kind", [GradientBoostingClassifier, RandomForestClassifier])
def test_fitted_ensembles_decide_as_their_originals(kind: type) -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 4, 300), rng.integers(0, 3, 300), rng.integers(0, 2, 300)]).astype(np.float32)
    y = np.clip(x[:, 0] + x[:, 1] * x[:, 2] - rng.integers(0, 2, 300), 0, 2).astype(int)
    fitted = kind(n_estimators=7, max_depth=3, random_state=0).fit(x, y)
    model, described = vf.read(fitted), schema_of(*FEATURES, positive="class = 2")
    clear = np.diff(np.sort(fitted.predict_proba(ROWS), axis=1)[:, -2:])[:, 0] > 1e-6
    assert np.array_equal(positive(model, described, ROWS)[clear], (fitted.predict(ROWS) == 2)[clear])
    assert clear.sum() > 15
    asked = vf.KDiscrimination(model=model, schema=described, protected=["sex"], buckets=20)
    shown = [recount(Space.of(asked), row).probabilities for row in ROWS[0::2]]
    assert np.allclose(shown, fitted.predict_proba(ROWS)[:, 2].reshape(-1, 2), atol=1e-6)
