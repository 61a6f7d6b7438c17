"""Tree ensembles of three classes: decisions and buckets against brute force; what proves nothing about them says so."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

import verifair as vf
from encoders.decision import Favoured, decided
from encoders.errors import ModelError
from encoders.exact.dyadic import exact
from encoders.network import Link
from tests.builders import schema_of
from tests.soundness.classes.test_outcomes import FEATURES, ROWS, RULES, made, outputs_of, trees
from tests.soundness.classes.test_three_class_buckets import bucket_of, people
from verifair.engine.questions import decisions
from verifair.systems.fgce.decider import positive
from verifair.systems.hyfair.search.clusters import recount
from verifair.systems.hyfair.search.space import Space

THREE = [rule for rule, (outputs, _) in RULES.items() if outputs == 3]


@pytest.mark.parametrize("rule", THREE)
def test_decisions_are_those_of_brute_force(rule: str, tmp_path: Path) -> None:
    ties = 0
    for seed in range(16):
        model, described = trees(seed, tmp_path / f"{seed}.onnx", scores=3), schema_of(*FEATURES, positive=rule)
        scores = outputs_of(model, ROWS)
        expected = np.array([RULES[rule][1](row) for row in scores])
        assert np.array_equal(decisions(described.judges(model), ROWS) == described.good, expected)
        assert np.array_equal(positive(model, described, ROWS), expected)
        ties += sum(sorted(row)[-1] == sorted(row)[-2] for row in scores)
    assert ties > 5


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
            found = [bucket_of(row, rule, buckets) for row in outputs_of(model, ROWS)]
            asked = vf.KDiscrimination(network=model, schema=described, protected=["sex"], buckets=buckets)
            space = Space.of(asked)
            for one in people(ROWS, [2]):
                k = len({found[n] for n in one})
                assert recount(space, ROWS[one[0]]).k == k
                counts.add(k)
    assert counts == {1, 2}


def test_no_proof_about_such_trees_is_accepted_nor_made(tmp_path: Path) -> None:
    described = schema_of(*FEATURES, positive="class = 2")
    model, network = trees(0, tmp_path / "trees.onnx", scores=3), made(0, 3)
    gaps = (vf.IndividualFairness, {"epsilon": 0.1}), (vf.ProbabilityGap, {}), (vf.ProbabilityGap, {"scale": "logit"})
    for query, more in gaps:
        with pytest.raises(ModelError, match="is a tree ensemble of 3 classes"):
            query(network=model, schema=described, protected=["sex"], **more)
    with pytest.raises(ModelError, match="is a tree ensemble, which kmax cannot take"):
        vf.verify(vf.KDiscrimination(network=model, schema=described, protected=["sex"]))
    about = {"schema": described, "protected": ["sex"]}
    flips = vf.verify(vf.IndividualFairness(network=network, **about)).certificate
    gaps = vf.verify(vf.IndividualFairness(network=network, epsilon=0.99, **about)).certificate
    buckets = vf.verify(vf.KDiscrimination(network=network, buckets=3, **about)).certificate
    assert flips is not None
    assert gaps is not None
    claimed = replace(flips, network_sha256=model.source_sha256)
    assert not vf.check(claimed, network=model, schema=described).accepted  # it claims float32, of which nothing is known
    real = replace(claimed, proofs=tuple(replace(one, float32=False) for one in claimed.proofs))
    others = [replace(one, network_sha256=model.source_sha256) for one in (gaps, buckets)]
    assert not vf.check(real, network=model, schema=described).accepted     # the network's tree cuts no signs here
    for certificate in others:
        with pytest.raises(ModelError, match="is a tree ensemble"):
            vf.check(certificate, network=model, schema=described)


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
    asked = vf.KDiscrimination(network=model, schema=described, protected=["sex"], buckets=20)
    shown = [recount(Space.of(asked), row).probabilities for row in ROWS[0::2]]
    assert np.allclose(shown, fitted.predict_proba(ROWS)[:, 2].reshape(-1, 2), atol=1e-6)
