"""Favourable decisions by thresholds and by several classes, against brute force in exact arithmetic, with ties in plenty."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from typer.testing import CliRunner

import verifair as vf
from encoders.arrays import Array
from encoders.decision import Favoured, Threshold, decided
from encoders.model import Model
from encoders.onnx.reader import read_model
from tests.builders import categorical, integer, random_network, schema_of
from tests.soundness.classes.whole_weights import FEATURES, ROWS, made
from tests.tree_models import random_tree, save
from verifair.checker.certificates.statement import Scale
from verifair.cli.main import app
from verifair.engine.gap.maximise import maximise
from verifair.engine.questions import decisions
from verifair.errors import QueryError, SchemaError
from verifair.systems.cec.audit import probability
from verifair.systems.hyfair.certify.tables import holds
from verifair.training.onnx_writer import onnx_model


def trees(seed: int, path: Path, scores: int = 1) -> Model:
    """Leaves of whole numbers and halves, so that sums lie on thresholds."""
    rng = np.random.default_rng(seed)
    grid = np.array([-0.5, 0, 0.5, 1, 2], dtype=np.float32)

    def whole(node: Any) -> Any:
        return [round(2 * v) / 2 for v in node] if isinstance(node, list) else (*node[:3], *map(whole, node[3:]))

    found = [whole(random_tree(rng, 3, 3, scores=scores, grid=grid)) for _ in range(4)]
    return read_model(save(path, found, 3))


def outputs_of(model: Any, raw: Array) -> list[list[Fraction]]:
    found = model.forward(np.array([[Fraction(float(v)) for v in row] for row in raw], dtype=object))
    return [list(row) for row in found]


def largest(row: list[Fraction]) -> int:
    return row.index(max(row))


def alone(row: list[Fraction]) -> bool:
    """Class 1 of a network's three: a tie with another one is not favourable, as the statement says."""
    return row[1] > max(row[0], row[2])


RULES: dict[str, tuple[int, Any]] = {
    "value >= 2": (1, lambda row: row[0] >= 2), "value > 2": (1, lambda row: row[0] > 2),
    "value < 1": (1, lambda row: row[0] < 1), "value <= 1": (1, lambda row: row[0] <= 1),
    "logit < 0": (1, lambda row: row[0] < 0), "logit >= 0": (1, lambda row: row[0] >= 0),
    "class >= 1": (3, lambda row: largest(row) >= 1), "class = 2": (3, lambda row: largest(row) == 2),
    "class <= 0": (3, lambda row: largest(row) == 0), "class in [1, 0]": (3, lambda row: largest(row) < 2),
    "class = 0": (4, lambda row: largest(row) == 0), "class > 1": (4, lambda row: largest(row) > 1), "class = 1": (3, alone),
}  # fmt: skip

OF_TREES = RULES | {"class = 1": (3, lambda row: largest(row) == 1), "class in [0, 2]": (3, lambda row: largest(row) != 1)}
"""A tie goes to the lower class, whatever is favourable."""


@pytest.mark.parametrize("rule", RULES)
def test_flips_of_every_outcome_are_those_of_brute_force(rule: str) -> None:
    outputs, favourable = RULES[rule]
    seen = set()
    for seed in range(6):
        network, described = made(seed, outputs), schema_of(*FEATURES, positive=rule)
        expected = np.array([favourable(row) for row in outputs_of(network, ROWS)])
        query = vf.IndividualFairness(model=network, schema=described, protected=["sex"])
        assert np.array_equal(decisions(query.model, ROWS) == described.good, expected)
        found = vf.verify(query)
        flips = (expected[0::2] != expected[1::2]).any()
        assert found.status is (vf.Status.VIOLATED if flips else vf.Status.PROVED), (seed, found)
        seen.add(found.status)
        if found.certificate is not None:
            assert vf.check(found.certificate, model=network, schema=described).accepted
            other = schema_of(*FEATURES, positive="class = 0" if outputs > 1 and rule != "class = 0" else "value > 7")
            if outputs == 1 or rule != "class = 0":
                assert not vf.check(found.certificate, model=network, schema=other).accepted
        else:
            assert found.witness is not None
            assert found.witness.float32_agrees  # onnxruntime's numbers are decided by the same rule
            assert set(found.witness.decisions) == set(described.class_names)
    assert len(seen) == 2  # some of each


@pytest.mark.parametrize("rule", ["value >= 2", "value > 2", "value < 1", "value <= 1"])
def test_thresholds_of_tree_ensembles_are_exact(rule: str, tmp_path: Path) -> None:
    (_, favourable), decided = RULES[rule], 0
    for seed in range(12):
        model = trees(seed, tmp_path / f"{seed}.onnx")
        described = schema_of(*FEATURES, positive=rule)
        expected = np.array([favourable(row) for row in outputs_of(model, ROWS)])
        found = vf.verify(vf.IndividualFairness(model=model, schema=described, protected=["sex"]))
        flips = (expected[0::2] != expected[1::2]).any()
        if found.status is vf.Status.UNKNOWN:  # sums of float64 numbers cannot tell a tie from what is near it
            assert any(row[0] == int(rule[-1]) for row in outputs_of(model, ROWS))
            continue
        decided += 1
        assert found.status is (vf.Status.VIOLATED if flips else vf.Status.PROVED)
        if found.certificate is not None:
            assert vf.check(found.certificate, model=model, schema=described).accepted
        values = np.array(outputs_of(model, ROWS), dtype=float)[:, 0]
        gap = maximise(vf.ProbabilityGap(model=model, schema=described, protected=["sex"], scale="logit"), tolerance=1e-3)
        assert gap.lower - 1e-9 <= np.abs(values[0::2] - values[1::2]).max() <= gap.upper + 1e-9
        assert gap.certificate is not None
        assert vf.check(gap.certificate, model=model, schema=described).accepted
    assert decided >= 11


@pytest.mark.parametrize("rule", ["class = 2", "class >= 1", "class = 1"])
def test_probabilities_of_several_classes_are_enclosed(rule: str) -> None:
    favoured = {"class = 2": [2], "class >= 1": [1, 2], "class = 1": [1]}[rule]
    for seed in range(2):
        network, described = made(seed, 3), schema_of(*FEATURES, positive=rule)
        probability = softmax(np.array(outputs_of(network, ROWS), dtype=float), axis=1)[:, favoured].sum(axis=1)
        true = float(np.abs(probability[0::2] - probability[1::2]).max())
        for epsilon, status in ((true - 1e-3, vf.Status.VIOLATED), (true + 1e-3, vf.Status.PROVED)):
            found = vf.verify(vf.IndividualFairness(model=network, schema=described, protected=["sex"], epsilon=epsilon))
            assert found.status is status
        gap = maximise(vf.ProbabilityGap(model=network, schema=described, protected=["sex"]), tolerance=1e-3)
        assert gap.reason is None
        assert gap.lower <= true + 1e-12
        assert true - 1e-12 <= gap.upper <= gap.lower + 1.0001e-3
        assert gap.certificate is not None
        assert vf.check(gap.certificate, model=network, schema=described).accepted
        assert gap.witness is not None
        assert gap.witness.probabilities is not None
        assert abs(gap.witness.probabilities[0] - gap.witness.probabilities[1]) == pytest.approx(gap.lower, abs=1e-9)


def test_margins_are_the_definitions_and_their_signs_those_of_the_runtime() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 3)).astype(np.float32).astype(float)
    network = random_network(rng, (3, 8, 5))
    logits = network.forward(x)
    for groups in (((2,),), ((0, 1), (3, 4)), ((4,), (3, 4), (2, 3, 4), (1, 2, 3, 4))):
        for odds in (False, True):
            decision = Favoured(groups=groups, odds=odds)
            assert np.allclose(decided(network, decision).forward(x), decision.of(logits), atol=1e-12)
    single = random_network(rng, (3, 8, 1))
    for below in (False, True):
        threshold = Threshold(at=0.1, below=below)
        assert np.allclose(decided(single, threshold).forward(x), threshold.of(single.forward(x)), atol=1e-15)
    assert decided(decided(single, threshold), threshold).undecided is single  # of the model as it was read, however often


def test_float32_certificates_of_thresholds_keep_a_distance() -> None:
    """A value on the wrong side of float32 rounding is not certified: g = v - t of v = a / 3 has a rounded weight."""
    network = vf.read(onnx_model([(np.array([[1 / 3, 0, 0]], np.float32), np.zeros(1, np.float32))], {}))
    exactly = float(np.float32(1 / 3) * 3)
    near = schema_of(*FEATURES, positive=f"value > {exactly + 1e-9!r}")
    far = schema_of(*FEATURES, positive="value > 0.9")
    for described, status in ((near, vf.Status.UNKNOWN), (far, vf.Status.PROVED)):
        query = vf.IndividualFairness(model=network, schema=described, protected=["sex"], box={"a": 3}, arithmetic="float32")
        found = vf.verify(query)
        assert found.status is status
        if found.certificate is not None:
            assert found.float32
            assert vf.check(found.certificate, model=network, schema=described).accepted


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    one, three = made(0, 1), made(0, 3)
    for rule, network, said in (
        ("value >= 2", three, "needs a model with one output, this one has 3"),
        ("class = 3", three, "expected some of the model's classes 0 to 2, and not all"),
        ("class >= 0", three, "expected some of the model's classes 0 to 2, and not all"),
        ("class = high", three, "the model does not name its classes"),
    ):
        with pytest.raises(SchemaError, match=said):
            vf.IndividualFairness(model=network, schema=schema_of(*FEATURES, positive=rule), protected=["sex"])
    valued = schema_of(*FEATURES, positive="value >= 2")
    with pytest.raises(QueryError, match="expected how far a value may move, a number above 0"):
        vf.IndividualFairness(model=one, schema=valued, protected=["sex"], epsilon=float("inf"))
    several = trees(0, tmp_path / "several.onnx", scores=3)
    with pytest.raises(QueryError, match="of whose log-odds no gap is bounded; drop --logit, or ask with scale"):
        vf.ProbabilityGap(model=several, schema=schema_of(*FEATURES, positive="class = 2"), protected=["sex"], scale="logit")


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_the_gap_of_values_is_that_of_the_model(scale: Scale) -> None:
    network, described = made(3, 1), schema_of(*FEATURES, positive="value >= 2")
    values = np.array(outputs_of(network, ROWS), dtype=float)[:, 0]
    gap = maximise(vf.ProbabilityGap(model=network, schema=described, protected=["sex"], scale=scale), tolerance=1e-3)
    assert gap.lower <= np.abs(values[0::2] - values[1::2]).max() <= gap.upper
    assert gap.witness is not None
    assert gap.witness.values is not None
    assert abs(gap.witness.values[0] - gap.witness.values[1]) == pytest.approx(gap.lower, abs=1e-6)
    assert gap.certificate is not None
    assert vf.check(gap.certificate, model=network, schema=described).accepted


@pytest.mark.parametrize("outputs", [3, 4])
def test_flips_between_any_two_classes_are_those_of_brute_force(outputs: int) -> None:
    seen = set()
    for seed in range(10):
        network, described = made(seed, outputs), schema_of(*FEATURES, positive="class = 1")
        classes = np.array([largest(row) for row in outputs_of(network, ROWS)])
        found = vf.verify(vf.IndividualFairness(model=network, schema=described, protected=["sex"], classes="any"))
        flips = (classes[0::2] != classes[1::2]).any()
        assert found.status is (vf.Status.VIOLATED if flips else vf.Status.PROVED)
        seen.add(found.status)
        if found.witness is not None:
            assert found.witness.decisions[0] != found.witness.decisions[1]
            assert found.witness.float32_agrees
        else:
            assert found.certificate is not None
            assert vf.check(found.certificate, model=network, schema=described).accepted
            assert len(found.certificate.proofs) == 4 * (outputs - 1) // 2
            fewer = replace(found.certificate, proofs=found.certificate.proofs[:-1])
            assert "cannot cover" in str(vf.check(fewer, model=network, schema=described).rejections)
            narrower = replace(found.certificate.query, classes="favourable")
            assert not vf.check(replace(found.certificate, query=narrower), model=network, schema=described).accepted
    assert len(seen) == 2


def test_float32_agrees_where_it_decides_the_two_otherwise_at_another_threshold() -> None:
    """Exactly f(x) = (1 + .9 u, 1 + .75 u, 0), class 0, and f(x') = (..., 4), class 2; float32 numbers above 1 are u apart. Float32
    has (1, 1 + u, 0) for x, class 1: no flip between class 0 and the others, but one between class 1 and class 2."""
    tiny = 2.0**-23
    first = np.array([[0.45 * tiny, 0.0], [1.0, 0.0], [0.0, 1.0]])
    second = np.array([[1.0, 0.45 * tiny, 0.0], [0.0, 0.75 * tiny, 0.0], [0.0, 0.0, 4.0]])
    layers = [(first, np.array([1.0, 0.0, 0.0])), (second, np.array([0.0, 1.0, 0.0]))]
    network = vf.read(onnx_model([(w.astype(np.float32), b.astype(np.float32)) for w, b in layers], {}))
    described = schema_of(integer("one", 0, 1), categorical("sex", "f", "m"), positive="class = 1")
    found = vf.verify(vf.IndividualFairness(
        model=network, schema=described, protected=["sex"], classes="any", box={"one": 1},
    ))  # fmt: skip
    assert found.witness is not None
    assert found.witness.decisions in (("class 0", "class 2"), ("class 2", "class 0"))
    assert found.witness.float32_agrees


def test_what_any_two_classes_cannot_be_asked() -> None:
    network, described = made(0, 3), schema_of(*FEATURES, positive="class = 1")
    query = vf.IndividualFairness(model=network, schema=described, protected=["sex"], classes="any")
    for ask in (lambda: vf.counterexamples(query, 3), lambda: vf.certify_share(query)):
        with pytest.raises(QueryError, match=r"classes = 'any': .* is about favourable decisions"):
            ask()
    with pytest.raises(QueryError, match="drop epsilon, or signs"):
        vf.IndividualFairness(model=network, schema=described, protected=["sex"], classes="any", epsilon=0.1)
    two = vf.IndividualFairness(model=made(0, 1), schema=schema_of(*FEATURES), protected=["sex"], classes="any")
    assert two.thresholds == [(1, 0)]  # of two classes it is the same question


def test_classes_that_a_model_only_numbers_may_be_named() -> None:
    network = replace(made(0, 3), classes=("0", "1", "2"))
    for names, fits in ((["low", "middle", "high"], True), (["low", "high"], False)):
        described = schema_of(*FEATURES, positive="class >= 1", classes=names)
        if fits:
            query = vf.IndividualFairness(model=network, schema=described, protected=["sex"])
            assert query.schema.classes == tuple(names)
        else:
            with pytest.raises(SchemaError, match="classes names 2, the model has 3"):
                described.check_network(network)
    with pytest.raises(SchemaError, match="but the model calls its classes a, b, c"):
        schema_of(*FEATURES, positive="class >= 1", classes=["low", "middle", "high"]).check_network(
            replace(network, classes=("a", "b", "c"))
        )


def test_cec_shows_the_probability_of_the_favourable_classes() -> None:
    network, described = made(1, 3), schema_of(*FEATURES, positive="class >= 1")
    logits = np.array(outputs_of(network, ROWS), dtype=float)
    for rule, favoured in (("class >= 1", [1, 2]), ("class = 2", [2])):
        model = described.changed(positive=rule).judges(network)
        assert np.allclose(probability(model, ROWS), softmax(logits, axis=1)[:, favoured].sum(axis=1))


def test_cec_of_a_model_that_gives_values_shows_no_probabilities(tmp_path: Path) -> None:
    described, network = schema_of({**FEATURES[0], "merit": True}, *FEATURES[1:], positive="value >= 1", label="y"), made(3, 1)
    frame = pd.DataFrame([described.decode(row) for row in ROWS]).assign(y=network.forward(ROWS)[:, 0])
    frame.to_csv(tmp_path / "t.csv", index=False)
    described.save(tmp_path / "s.toml")
    vf.save_onnx(network, tmp_path / "m.onnx")
    about = ["cec", tmp_path / "m.onnx", "--schema", tmp_path / "s.toml", "--data", tmp_path / "t.csv", "--protected", "sex"]
    done = CliRunner().invoke(app, [*map(str, about), "--json", str(tmp_path / "a.json")])
    assert done.exception is None, done.output
    assert "probability" not in done.output
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["model_decides"]["variance"] is None
    assert found["model_decides"]["positive"] == pytest.approx((frame["y"] >= 1).mean())
    assert {one["probability"] for one in (*found["pairs"], *found["review"])} == {None}


@pytest.mark.parametrize("rule", ["logit > 0", "logit < 1", "value >= 1"])
def test_a_model_of_one_output_has_no_more_than_two_classes(rule: str) -> None:
    seen = set()
    for seed in range(10):
        network, described = made(seed, 1), schema_of(*FEATURES, positive=rule)
        one, any_two = (
            vf.verify(vf.IndividualFairness(model=network, schema=described, protected=["sex"], classes=classes))
            for classes in ("favourable", "any")
        )
        assert any_two.status is one.status
        if one.witness is not None and any_two.witness is not None:
            assert any_two.witness.decisions == one.witness.decisions
        seen.add(one.status)
    assert vf.Status.VIOLATED in seen


def test_a_proof_names_its_epsilon_with_all_digits() -> None:
    query = vf.IndividualFairness(model=made(0, 1), schema=schema_of(*FEATURES), protected=["sex"], epsilon=0.2500003)
    assert holds(query).endswith("by more than 0.2500003 with sex")


def test_one_protected_name_alone_is_no_list() -> None:
    with pytest.raises(QueryError, match=r"protected = 'sex': expected a list of names, \['sex'\]"):
        vf.IndividualFairness(model=made(0, 1), schema=schema_of(*FEATURES), protected="sex")


@pytest.mark.filterwarnings("error")
def test_a_logit_beyond_float32_is_infinite_for_the_runtime() -> None:
    """f(p = 1) is 6.8e38, above all float32 numbers. Exactly f(p = 0) = (1 + .55 u) - (1 + .45 u) - .5 u < 0; in float32, where
    numbers above 1 are u apart, it is 1 + u - 1 - .5 u > 0: the runtime decides both alike."""
    tiny = 2.0**-23
    first = np.array([[0.0, 3.4e34], [0.55 * tiny, 0.0], [0.45 * tiny, 0.0]])
    layers = [(first, np.array([0.0, 1.0, 1.0])), (np.array([[2.0, 1.0, -1.0]]), np.array([-0.5 * tiny]))]
    network = vf.read(onnx_model([(w.astype(np.float32), b.astype(np.float32)) for w, b in layers], {}))
    described = schema_of(integer("one", 0, 1), integer("p", 0, 1, scale={"offset": 0.0, "scale": 1e-4}))
    found = vf.verify(vf.IndividualFairness(model=network, schema=described, protected=["p"], box={"one": 1}))
    assert found.witness is not None
    assert found.witness.float32_agrees is False
