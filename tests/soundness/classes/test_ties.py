"""Logits of exactly 0 on whole regions: verdicts against exact arithmetic and onnxruntime's own decisions, by both rules."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import verifair as vf
from encoders.arrays import Array, Booleans
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from tests.brute_force import exact_forward
from tests.builders import integer, schema_of
from tests.draws import draws
from tests.unit.encoders.onnx.onnx_models import node, onnxruntime_output, save
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.check import check
from verifair.checker.partition import PROVED, UNKNOWN, VIOLATED, PartitionStore
from verifair.engine.buckets.kmax import kmax
from verifair.engine.partition import certify_partition
from verifair.engine.queries import IndividualFairness, KDiscrimination
from verifair.engine.verdict import Status

Signs = Literal["deployed", "strict"]
RULES: tuple[Signs, ...] = ("deployed", "strict")
BUDGET = vf.Budget(seconds=60)
HIGH = 10


def schema(positive: str = "logit > 0") -> vf.Schema:
    return schema_of(integer("sex", 0, 1, protected=True), integer("x", 0, HIGH), integer("y", -2, 2), positive=positive)


Layers = Sequence[tuple[Sequence[Sequence[float]], Sequence[float] | None]]


def model(path: Path, layers: Layers, *, last: str = "", probability: bool = False) -> Path:
    """Layers of (rows of weights, biases or None), a ReLU after each but the last; then the operator `last`, then a Sigmoid."""
    nodes, constants, name = [], {}, "x"
    for k, (weight, bias) in enumerate(layers):
        constants[f"w{k}"] = np.array(weight, dtype=np.float32).T.copy()
        operands = [name, f"w{k}"]
        if bias is not None:
            constants[f"b{k}"] = np.array(bias, dtype=np.float32)
            operands.append(f"b{k}")
        steps = ["MatMul" if bias is None else "Gemm", "Relu" if k < len(layers) - 1 else last, "Sigmoid" if probability else ""]
        for step in filter(None, steps[: 3 if k == len(layers) - 1 else 2]):
            name = f"{step}{k}"
            nodes.append(node(step, operands, (name,), name=name))
            operands = [name]
    nodes.append(node("Identity", (name,), ("y",), name="y"))
    save(path, nodes, constants, shape=("N", 3))
    return path


FALL = [[2.0, 1.0, 0.0]]
"""2 sex + x: less 5 and through a ReLU, it is 0 up to x = 5 and x = 3."""
TIED: dict[str, Callable[[Path], Path]] = {
    "relu last": lambda path: model(path, [(FALL, [-5.0])], last="Relu"),
    "no bias in the head": lambda path: model(path, [(FALL, [-5.0]), ([[1.0]], None)]),
    "no bias and a sigmoid": lambda path: model(path, [(FALL, [-5.0]), ([[1.0]], None)], probability=True),
    "two relu logits": lambda path: model(path, [([[0.0, 0.0, 1.0], *FALL], [-9.0, -5.0])], last="Relu"),
}


def tied(name: str, tmp_path: Path) -> tuple[Network, vf.Schema]:
    network = read_onnx(TIED[name](tmp_path / "m.onnx"))
    return network, schema("class = 1" if network.outputs == 2 else "logit > 0")


def every_row() -> Array:
    """(N, 3) all rows with sex 0; those with sex 1 are the same but for the first column."""
    return np.array(list(product((0.0,), range(HIGH + 1), range(-2, 3))))


def margins(network: Network) -> Array:
    """(N, 2) exact margins of all rows with sex 0 and 1."""
    rows = every_row()
    out = [exact_forward(network, rows + np.array([sex, 0, 0])) for sex in (0, 1)]
    return np.array([one[:, 0] if network.outputs == 1 else one[:, 1] - one[:, 0] for one in out], dtype=object).T


def flips(network: Network, signs: Signs) -> Booleans:
    """(N,) which rows are decided otherwise with another sex, exactly."""
    first, second = margins(network).T
    if signs == "strict":
        return np.asarray(((first > 0) & (second < 0)) | ((first < 0) & (second > 0)), dtype=bool)
    return np.asarray((first > 0) != (second > 0), dtype=bool)


def runtime_flips(path: Path, probability: bool = False) -> Booleans:
    """(N,) the same by onnxruntime's outputs: above 0 (1/2), or argmax, which takes the first of equal ones."""
    rows = every_row()
    out = [onnxruntime_output(path, (rows + np.array([sex, 0, 0])).astype(np.float32)) for sex in (0, 1)]
    first, second = (one.argmax(axis=1) if one.shape[1] == 2 else one[:, 0] > (0.5 if probability else 0) for one in out)
    return np.asarray(first != second)


def question(network: Network, described: vf.Schema, signs: Signs) -> IndividualFairness:
    return IndividualFairness(model=network, schema=described, protected=["sex"], signs=signs)


def at(verdict: vf.Verdict) -> int:
    """Position of a witness among all rows."""
    assert verdict.witness is not None
    wanted = [float(verdict.witness.x[name]) for name in ("x", "y")]
    return int(np.flatnonzero((every_row()[:, 1:] == wanted).all(axis=1))[0])


def assert_right(verdict: vf.Verdict, network: Network, described: vf.Schema, signs: Signs, method: str) -> None:
    """What a verdict says is true, and its certificate is accepted. Only MILP, whose proofs need room, may leave it open."""
    truth = flips(network, signs)
    match verdict.status:
        case Status.PROVED:
            assert not truth.any()
            if method in ("auto", "bnb"):
                report = check(verdict.certificate, model=network, schema=described)  # type: ignore[arg-type]
                assert report.accepted, report.rejections
        case Status.VIOLATED:
            assert truth[at(verdict)]
        case Status.UNKNOWN:
            assert method == "milp"


@pytest.mark.parametrize("name", TIED)
def test_exact_arithmetic_and_the_runtime_decide_alike(name: str, tmp_path: Path) -> None:
    network, _ = tied(name, tmp_path)
    expected = flips(network, "deployed")
    assert expected.any()
    assert not flips(network, "strict").any()
    assert np.array_equal(runtime_flips(tmp_path / "m.onnx", probability="sigmoid" in name), expected)


@pytest.mark.parametrize("signs", RULES)
@pytest.mark.parametrize("method", ["auto", "bnb", "smt", "milp"])
@pytest.mark.parametrize("name", TIED)
def test_a_tie_is_negative_unless_signs_are_strict(name: str, method: str, signs: Signs, tmp_path: Path) -> None:
    network, described = tied(name, tmp_path)
    verdict = vf.verify(question(network, described, signs), method=method, budget=BUDGET)
    assert_right(verdict, network, described, signs, method)
    if method != "milp":
        assert verdict.status is (Status.VIOLATED if signs == "deployed" else Status.PROVED)
    if verdict.witness is not None:
        assert verdict.witness.float32_agrees


def statuses(path: Path) -> list[int]:
    with PartitionStore(path) as store:
        return [int(one) for _, status in store.statuses() for one in status]


def assert_parts_right(query: IndividualFairness, path: Path) -> None:
    """A part of a store is refuted exactly where a row in it flips."""
    certify_partition(query, size=3, store=path, budget=BUDGET)
    report = check(path, model=query.model, schema=query.schema)
    assert report.accepted, report.rejections
    assert statuses(path) == expected_parts(query)


def expected_parts(query: IndividualFairness) -> list[int]:
    """x is cut into 0-2, 3-5, 6-8, 9-10, y into -2..0 and 1..2."""
    rows, truth = every_row(), flips(query.model, query.signs)
    part = (rows[:, 1] // 3) * 2 + (rows[:, 2] > 0)
    return [VIOLATED if truth[part == k].any() else PROVED for k in range(8)]


@pytest.mark.parametrize("signs", RULES)
@pytest.mark.parametrize("name", TIED)
def test_parts_are_refuted_where_a_tie_flips(name: str, signs: Signs, tmp_path: Path) -> None:
    network, described = tied(name, tmp_path)
    query = question(network, described, signs)
    assert (VIOLATED in expected_parts(query)) == (signs == "deployed")
    assert_parts_right(query, tmp_path / "parts.sqlite")


@pytest.mark.parametrize("name", TIED)
def test_two_buckets_are_the_two_decisions(name: str, tmp_path: Path) -> None:
    network, described = tied(name, tmp_path)
    assert most_buckets(network, described, {}) == 2
    assert most_buckets(network, described, {"x": (0, 3)}) == 1  # 0 against 0


def most_buckets(network: Network, described: vf.Schema, box: dict[str, tuple[int, int]]) -> int:
    """k over a box, with its certificate accepted."""
    asked = KDiscrimination(model=network, schema=described, protected=["sex"], buckets=2, box=box)
    found = kmax(asked, budget=BUDGET)
    assert found.lower == found.upper
    report = check(found.certificate, model=network, schema=described)
    assert report.accepted, report.rejections
    return found.upper


# Random networks with whole weights of -2 ... 2 and many zeros: their logits are often exactly 0


def random_model(seed: int, path: Path) -> tuple[Network, vf.Schema, bool]:
    """The network, its schema, and whether the file's output is a probability."""
    rng = np.random.default_rng(seed)
    outputs = int(rng.integers(1, 3))
    widths = [3, *rng.integers(1, 4, rng.integers(0, 3)), outputs]
    layers: list[tuple[list[list[float]], list[float] | None]] = []
    for n, m in pairwise(widths):
        weight = rng.integers(-2, 3, (m, n)) * (rng.random((m, n)) < 0.7)
        layers.append((weight.tolist(), rng.integers(-3, 2, m).tolist() if rng.random() < 0.5 else None))
    probability = outputs == 1 and rng.random() < 0.3
    network = read_onnx(model(path, layers, last="Relu" if rng.random() < 0.5 else "", probability=probability))
    return network, schema("class = 1" if outputs == 2 else "logit > 0"), probability


seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("signs", RULES)
@pytest.mark.parametrize(("method", "count"), [("auto", 25), ("bnb", 25), ("smt", 8), ("milp", 8)])
def test_verdicts_equal_brute_force(
    method: str, count: int, signs: Signs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("ties") / "m.onnx"

    @settings(max_examples=count)
    @given(seed=seeds)
    def right(seed: int) -> None:
        network, described, probability = random_model(seed, path)
        assert np.array_equal(runtime_flips(path, probability), flips(network, "deployed"))
        verdict = vf.verify(question(network, described, signs), method=method, budget=BUDGET)
        assert_right(verdict, network, described, signs, method)
        if method in ("auto", "bnb"):
            assert verdict.status is (Status.VIOLATED if flips(network, signs).any() else Status.PROVED)

    right()


@pytest.mark.parametrize("signs", RULES)
def test_parts_equal_brute_force(signs: Signs, tmp_path: Path) -> None:
    for seed in draws(12):
        network, described, _ = random_model(seed, tmp_path / "m.onnx")
        assert_parts_right(question(network, described, signs), tmp_path / f"{seed}-{signs}.sqlite")


def test_buckets_equal_brute_force(tmp_path: Path) -> None:
    for seed in draws(12):
        network, described, _ = random_model(seed, tmp_path / "m.onnx")
        assert most_buckets(network, described, {}) == 1 + flips(network, "deployed").any()


# Forged rules: what is proved by one rule is no proof by the other


def test_a_certificate_by_strict_signs_does_not_pass_for_the_deployed_rule(tmp_path: Path) -> None:
    """Random networks and the tied ones: the re-labelled certificate is accepted exactly where it is true."""
    seen = set()
    for seed in draws(40):
        network, described, _ = random_model(seed, tmp_path / "m.onnx")
        seen |= _relabelled(network, described, tmp_path)
    for name in TIED:
        network, described = tied(name, tmp_path)
        assert _relabelled(network, described, tmp_path) == {("strict", False)}
    assert seen >= {("strict", False), ("strict", True), ("deployed", True)}


def _relabelled(network: Network, described: vf.Schema, tmp_path: Path) -> set[tuple[str, bool]]:
    """(rule of the proof, whether the other rule holds too), after asserting that the checker says so."""
    seen = set()
    for signs, other in (RULES, RULES[::-1]):
        verdict = vf.verify(question(network, described, signs), budget=BUDGET)
        if verdict.certificate is None:
            continue
        forged = replace(verdict.certificate, query=replace(verdict.certificate.query, signs=other))
        forged.save(tmp_path / "forged.json")
        true = not flips(network, other).any()
        report = check(Certificate.load(tmp_path / "forged.json"), model=network, schema=described)
        assert report.accepted <= true
        if signs == "strict":  # what holds by the deployed rule holds by strict signs, and the same leaves show it
            assert report.accepted == true
        seen.add((signs, true))
    return seen


@pytest.mark.parametrize("name", TIED)
def test_a_store_by_strict_signs_does_not_pass_for_the_deployed_rule(name: str, tmp_path: Path) -> None:
    network, described = tied(name, tmp_path)
    for signs, other in (RULES, RULES[::-1]):
        path = tmp_path / f"{signs}.sqlite"
        certify_partition(question(network, described, signs), size=3, store=path, budget=BUDGET)
        with closing(sqlite3.connect(path)) as connection, connection:
            (about,) = connection.execute("SELECT value FROM about").fetchone()
            connection.execute("UPDATE about SET value = ?", (json.dumps(json.loads(about) | {"signs": other}),))
        report = check(path, model=network, schema=described)
        found = statuses(path)
        wrong = {k for k, (one, true) in enumerate(zip(found, expected_parts(question(network, described, other)), strict=True))
                 if one not in (UNKNOWN, true)}
        assert wrong
        assert {one.proof for one in report.rejections} - {None} == wrong  # None: the digest of the question


def test_the_smallest_number_is_no_tie(tmp_path: Path) -> None:
    """Denormal weights: a logit of 1e-45 or of their product 1e-90 is positive, of -0.0 is not."""
    tiny = float(np.float32(1e-45))
    for weight, expected in ((tiny, True), (-0.0, False), (-tiny, False)):
        for layers in ([([[weight, 0.0, 0.0]], None)], [([[tiny, 0.0, 0.0]], None), ([[weight]], None)]):
            network = read_onnx(model(tmp_path / "m.onnx", layers))
            verdict = vf.verify(question(network, schema(), "deployed"), budget=BUDGET)
            assert verdict.status is (Status.VIOLATED if expected else Status.PROVED)
            assert flips(network, "deployed").any() == expected


def test_saved_models_are_the_ones_read(tmp_path: Path) -> None:
    for name, write in TIED.items():
        onnx.checker.check_model(onnx.load(write(tmp_path / f"{name}.onnx")))
