"""The re-checker against brute force: true claims with true trees pass, everything else is rejected.

Trees are grown here by a small splitter whose bounds come from listing every point, so that nothing of the engine is used.
"""

import ast
import json
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.model import Link
from encoders.network import Layer, Network
from tests.brute_force import exact_forward
from tests.builders import categorical, integer, network_of, one_hot, real, schema_of
from verifair.checker.certificates.certificate import Certificate, Claim, Proof
from verifair.checker.certificates.envelope import Trust, semantics
from verifair.checker.certificates.statement import BoxQuery, BoxStatement, RowsQuery, RowStatement, Signs
from verifair.checker.certificates.tree import Tree
from verifair.checker.check import check
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kernel.tasks import GOALS
from verifair.checker.report import CheckReport
from verifair.errors import CertificateError

SCHEMA = schema_of(
    integer("age", 0, 5, unit=1.0, scale="minmax"),
    integer("hours", -2, 3, unit=2.0),
    one_hot("work", "a", "b", "c"),
    categorical("sex", "f", "m", protected=True),
)
SHA = "0" * 64


def mixed_network(seed: int, hidden: tuple[int, ...] = (6, 4), outputs: int = 1, scale: float = 1.0) -> Network:
    """Gaussian float32 weights; ReLU and LeakyReLU neurons mixed; some weights 0."""
    rng = np.random.default_rng(seed)
    sizes = (SCHEMA.domain.columns, *hidden, outputs)
    layers = []
    for k, (n, m) in enumerate(pairwise(sizes)):
        weight = (rng.normal(size=(m, n)) * scale * (rng.random((m, n)) < 0.9)).astype(np.float32).astype(float)
        bias = (rng.normal(size=m) * scale).astype(np.float32).astype(float)
        slope = np.ones(m) if k == len(hidden) else rng.choice([0.0, 0.0, 0.25], size=m)
        layers.append(Layer(weight=weight, bias=bias, slope=slope))
    return Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256=SHA)


def value(network: Network, raw: np.ndarray, prime: dict[str, float], goal: str, classes: tuple[int, int]) -> list[Fraction]:
    """The best row of the goal at raw points, as exact fractions."""
    rows = [[Fraction(one) for one in row] for row in GOALS[goal]]
    return [max(p * a + q * b for p, q in rows) for a, b in margins_of(network, raw, prime, classes)]


def margins_of(
    network: Network, raw: np.ndarray, prime: dict[str, float], classes: tuple[int, int]
) -> list[tuple[Fraction, Fraction]]:
    """g(x), g(x') at raw points, as exact fractions."""
    second = raw.copy()
    for name, to in prime.items():
        second[:, SCHEMA.index(name)] = to
    margins = []
    for points in (raw, second):
        logits = exact_forward(network, SCHEMA.encode(points))
        if network.outputs == 1:
            margins.append(logits[:, 0] if classes[0] > classes[1] else -logits[:, 0])
        else:
            margins.append(logits[:, classes[0]] - logits[:, classes[1]])
    return list(zip(*margins, strict=True))


def points(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return np.array(list(product(*(np.arange(lo, hi + 1) for lo, hi in zip(lower, upper, strict=True)))))


def grow(lower: np.ndarray, upper: np.ndarray, depth: int) -> Tree:
    """A tree that cuts the widest feature `depth` times; a large depth ends at single points."""
    feature, cut = [], []

    def visit(lower: np.ndarray, upper: np.ndarray, depth: int) -> None:
        v = int(np.argmax(upper - lower))
        if depth and upper[v] > lower[v]:
            middle = np.floor((lower[v] + upper[v]) / 2)
            feature.append(v)
            cut.append(middle)
            left, right = upper.copy(), lower.copy()
            left[v], right[v] = middle, middle + 1
            visit(lower, left, depth - 1)
            visit(right, upper, depth - 1)
            return
        feature.append(-1)
        cut.append(0.0)

    visit(lower, upper, depth)
    return Tree.plain(np.array(feature), np.array(cut))


def least_of(network: Network, statement: RowStatement | BoxStatement, lower: np.ndarray, upper: np.ndarray) -> Fraction:
    return min(value(network, points(lower, upper), statement.prime, statement.goal, statement.classes))


def row_box(statement: RowStatement) -> tuple[np.ndarray, np.ndarray]:
    """age moves by delta, hours by 2 delta; the others stay."""
    row, step = np.array(statement.row), statement.delta * np.array([1.0, 2.0, 0.0, 0.0])
    low, high = np.array([0, -2, 0, 0]), np.array([5, 3, 2, 1])
    return np.maximum(row - step, low), np.minimum(row + step, high)


def certificate(network: Network, *proofs: Proof, kind: str = "persistent-bias") -> Certificate:
    return Certificate(
        network_sha256=network.source_sha256,
        schema_sha256=SCHEMA.sha256,
        semantics=semantics(network),
        query=RowsQuery(kind=kind, protected=("sex",), delta=(0, 1, 2)),
        features=("age", "hours", "work", "sex"),
        proofs=proofs,
    )


def rows_of(rng: np.random.Generator) -> tuple[float, ...]:
    return (float(rng.integers(0, 6)), float(rng.integers(-2, 4)), float(rng.integers(0, 3)), float(rng.integers(0, 2)))


def statement_of(network: Network, seed: int, goal: str, delta: float) -> RowStatement:
    rng = np.random.default_rng(seed)
    row = rows_of(rng)
    classes = (1, 0) if rng.random() < 0.5 else (0, 1)
    return RowStatement(goal=goal, row=row, delta=delta, classes=classes, prime={} if goal == "robust" else {"sex": 1 - row[3]})


def holds(
    network: Network, statement: RowStatement | BoxStatement, lower: np.ndarray, upper: np.ndarray, signs: str = "deployed"
) -> bool:
    raw, (i, j) = points(lower, upper), statement.classes
    if statement.goal == "no-flip":
        pairs = margins_of(network, raw, statement.prime, statement.classes)
        if signs == "strict":
            return not any(a > 0 > b for a, b in pairs)
        return not any((a > 0 >= b) if i > j else (a >= 0 > b) for a, b in pairs)
    least = min(value(network, raw, statement.prime, statement.goal, statement.classes))
    return least >= 0 if statement.goal == "robust" and i < j else least > 0


def proof_of(network: Network, goal: str = "observed", delta: float = 1) -> Proof:
    """The first true statement of a kind about the network, with a tree that ends at single points and 99 % of its margin."""
    for seed in range(1000):
        statement = statement_of(network, seed, goal, delta)
        lower, upper = row_box(statement)
        if holds(network, statement, lower, upper) and (lower < upper).sum() == 2:
            least = float(least_of(network, statement, lower, upper))
            return Proof(statement=statement, evidence=grow(lower, upper, 99), margin=0.99 * least)
    raise AssertionError("no true statement found")


def reasons(report: CheckReport) -> str:
    return "\n".join(map(str, report.rejections))


# Against brute force


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    goal=st.sampled_from(["observed", "flipped", "robust"]),
    hidden=st.sampled_from([(), (5,), (6, 4), (4, 3, 3)]),
    outputs=st.sampled_from([1, 2]),
    scale=st.sampled_from([1e-12, 1.0, 1e6]),
    depth=st.sampled_from([0, 1, 2, 3, 99]),
)
def test_row_statements_are_accepted_only_when_true(
    seed: int, goal: str, hidden: tuple[int, ...], outputs: int, scale: float, depth: int
) -> None:
    """And always where the tree ends at single points: with the margin that there is, not with more."""
    network = mixed_network(seed, hidden, outputs, scale)
    statement = statement_of(network, seed, goal, 1.0)
    lower, upper = row_box(statement)
    tree, true = grow(lower, upper, depth), holds(network, statement, lower, upper)
    least = float(least_of(network, statement, lower, upper))
    for margin in (None, max(least * (1 - 1e-9), 0.0), float(np.nextafter(abs(least), np.inf))):
        given = certificate(
            network, Proof(statement=statement, evidence=tree, margin=margin),
            kind="robustness" if goal == "robust" else "persistent-bias",
        )
        accepted = check(given, model=network, schema=SCHEMA).accepted
        assert not accepted or (true and (margin is None or margin <= least))
        if depth == 99 and true and (margin is None or margin < least):
            assert accepted


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    hidden=st.sampled_from([(), (5,), (6, 4)]),
    outputs=st.sampled_from([1, 2]),
    depth=st.sampled_from([0, 1, 2, 3, 99]),
    signs=st.sampled_from(["deployed", "strict"]),
    classes=st.sampled_from([(1, 0), (0, 1)]),
)
def test_flip_statements_are_accepted_only_when_true(
    seed: int, hidden: tuple[int, ...], outputs: int, depth: int, signs: Signs, classes: tuple[int, int]
) -> None:
    """And always where the trees end at single points. Every second network has whole weights between -1 and 1, so that margins of
    exactly 0 are common."""
    network = mixed_network(seed, hidden, outputs)
    if seed % 2:
        coarse = [replace(one, weight=np.clip(np.rint(one.weight), -1, 1), bias=np.rint(one.bias)) for one in network.layers]
        network = replace(network, layers=tuple(coarse))
    domain = SCHEMA.domain
    lower, upper = domain.lower.copy(), domain.upper.copy()
    lower[3] = upper[3] = sex = float(seed // 2 % 2)
    statement = BoxStatement(goal="no-flip", lower=tuple(lower), upper=tuple(upper), prime={"sex": 1.0 - sex}, classes=classes)
    tree = grow(lower, upper, depth)
    query = BoxQuery(kind="individual-fairness", protected=("sex",), box={"age": (0, 5)}, differ="all", signs=signs)
    other = BoxStatement(
        goal="no-flip",
        lower=(*lower[:3], statement.prime["sex"]),
        upper=(*upper[:3], statement.prime["sex"]),
        prime={"sex": float(lower[3])},
        classes=classes,
    )
    second = grow(np.array(other.lower), np.array(other.upper), depth)
    whole = replace(
        certificate(network, Proof(statement=statement, evidence=tree), Proof(statement=other, evidence=second)), query=query
    )
    report = check(whole, model=network, schema=SCHEMA)
    ends = np.array(other.lower), np.array(other.upper)
    truth = {0: holds(network, statement, lower, upper, signs), 1: holds(network, other, *ends, signs)}
    rejected = {rejection.proof for rejection in report.rejections}
    false = {k for k, true in truth.items() if not true}
    assert rejected == false if depth == 99 else rejected >= false, reasons(report)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    hidden=st.sampled_from([(5,), (6, 4), (5, 5, 5), (3,) * 8]),
    scale=st.sampled_from([1e-20, 1.0, 1e8]),
    close=st.booleans(),
)
def test_bounds_are_below_every_exact_value(seed: int, hidden: tuple[int, ...], scale: float, close: bool) -> None:
    network = mixed_network(seed, hidden, 2, scale)
    rng = np.random.default_rng(seed)
    domain = SCHEMA.domain
    ends = np.sort([rows_of(rng) for _ in range(2)], axis=0)
    lower, upper = ends[0], ends[1]
    lower[3] = upper[3] = 0.0
    low, high = domain.box(lower[None], upper[None])
    prime = lower.copy(), upper.copy()
    prime[0][3] = prime[1][3] = 1.0
    low2, high2 = domain.box(prime[0][None], prime[1][None])
    bounds = TwinBounds(network, low, high, low2, high2, close=close)
    forms = rng.normal(size=(6, 2, 2)).round(2)
    forms[0] = [[1, -1], [-1, 1]]
    found = bounds.by_substitution(forms[:, 0], forms[:, 1], np.zeros(6, dtype=np.int64), layer=len(hidden))
    raw = points(lower, upper)
    second = raw.copy()
    second[:, 3] = 1.0
    as_fraction = np.vectorize(Fraction, otypes=[object])
    first, other = (exact_forward(network, domain.encode(x)) for x in (raw, second))
    for form, bound in zip(forms, found, strict=True):
        exact_least = min(first @ as_fraction(form[0]) + other @ as_fraction(form[1]))
        assert np.isfinite(bound)
        assert Fraction(bound) <= exact_least


def test_bounds_of_one_point_are_as_tight_as_rounding_allows() -> None:
    network = mixed_network(5, (8, 8, 8), 1)
    raw = np.array([[2.0, 1.0, 1.0, 0.0]])
    x = SCHEMA.encode(raw)
    bounds = TwinBounds(network, x, x, x, x, close=True)
    found = bounds.by_substitution(np.ones((1, 1)), np.zeros((1, 1)), np.zeros(1, dtype=np.int64), layer=3)
    assert found[0] == pytest.approx(network.forward(x)[0, 0], abs=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_layer_bounds_hold_the_inner_values(seed: int) -> None:
    network = mixed_network(seed, (7, 6, 5), 1)
    domain = SCHEMA.domain
    lower, upper = np.array([[0.0, -2.0, 1.0, 0.0]]), np.array([[5.0, 3.0, 1.0, 0.0]])
    raw = points(lower[0], upper[0])
    x = domain.encode(raw)
    second = domain.encode(np.where(np.arange(4) == 3, 1.0, raw))
    low, high = domain.box(lower, upper)
    prime_low, prime_high = (np.where(np.arange(4) == 3, 1.0, end) for end in (lower, upper))
    bounds = TwinBounds(network, low, high, *(domain.box(prime_low, prime_high)), close=True)
    y, y2 = x, second
    for layer, span in zip(network.layers, bounds.spans, strict=True):
        a, a2 = y @ layer.weight.T + layer.bias, y2 @ layer.weight.T + layer.bias
        for inner, low_, high_ in ((a, span.low, span.high), (a2, span.low2, span.high2), (a2 - a, span.d_low, span.d_high)):
            assert (inner >= low_ - 1e-12).all()
            assert (inner <= high_ + 1e-12).all()
        sizes = np.abs(y) @ np.abs(layer.weight).T + np.abs(y2) @ np.abs(layer.weight).T + 2 * np.abs(layer.bias)
        assert (span.size >= sizes * (1 - 1e-12)).all()  # what rounding errors are relative to
        y, y2 = (np.where(v > 0, v, layer.slope * v) for v in (a, a2))


# Ties: the value is exactly 0


def constant(output: float, weight: float = 0.0) -> Network:
    """f = output + weight * (sex), whatever else."""
    w = np.zeros((1, SCHEMA.domain.columns))
    w[0, -1] = weight
    return network_of((w, [output]))


@pytest.mark.parametrize(
    ("classes", "output", "accepted"),
    [((1, 0), 0.0, False), ((0, 1), 0.0, True), ((1, 0), 2.0**-140, True), ((0, 1), 2.0**-140, False)],
)
def test_robustness_at_a_tie_goes_to_the_smaller_class(classes: tuple[int, int], output: float, accepted: bool) -> None:
    network = constant(output)
    statement = RowStatement(goal="robust", row=(2, 0, 1, 0), delta=1, classes=classes)
    for margin in (None, 0.0, 2.0**-141):
        proof = Proof(statement=statement, evidence=grow(*row_box(statement), 99), margin=margin)
        report = check(certificate(network, proof, kind="robustness"), model=network, schema=SCHEMA)
        assert report.accepted == (accepted and (not margin or output > 0)), reasons(report)


@pytest.mark.parametrize("goal", ["observed", "flipped"])
def test_equal_copies_are_no_bias(goal: str) -> None:
    network = constant(1.0)
    for margin in (None, 0.0, 5e-324):
        statement = RowStatement(goal=goal, row=(2, 0, 1, 0), delta=0, classes=(1, 0), prime={"sex": 1})
        proof = Proof(statement=statement, evidence=Tree.leaf(), margin=margin)
        report = check(certificate(network, proof), model=network, schema=SCHEMA)
        assert "the claim is false" in reasons(report)


@pytest.mark.parametrize("signs", ["deployed", "strict"])
def test_touching_zero_is_no_flip_with_strict_signs_alone(signs: Signs) -> None:
    network = constant(0.0, weight=1.0)  # f = sex: 0, negative, for one copy, 1 for the other
    query = BoxQuery(kind="individual-fairness", protected=("sex",), box={}, differ="any", signs=signs)
    proofs = []
    for z in (0.0, 1.0):
        statement = BoxStatement(goal="no-flip", lower=(0, -2, 0, z), upper=(5, 3, 2, z), prime={"sex": 1 - z}, classes=(1, 0))
        tree = grow(np.array(statement.lower), np.array(statement.upper), 99)
        proofs.append(Proof(statement=statement, evidence=tree))
    report = check(replace(certificate(network, *proofs), query=query), model=network, schema=SCHEMA)
    assert {one.proof for one in report.rejections} == (set() if signs == "strict" else {1})


@pytest.mark.parametrize(("signs", "epsilon"), [(None, None), ("deployed", 0.1), ("strict", 0.1)])
def test_a_query_is_about_flips_or_about_gaps(signs: Signs | None, epsilon: float | None) -> None:
    network, good = fairness_certificate()
    other = replace(good, query=replace(good.query, signs=signs, epsilon=epsilon))
    assert "either the signs" in reasons(check(other, model=network, schema=SCHEMA))


# Mutations: each is written to a file with a fresh digest, so that only the check itself can notice


NETWORK = mixed_network(3)
GOOD, OTHER = proof_of(NETWORK), proof_of(NETWORK, "flipped")


def dropped(tree: Tree) -> Tree:
    return Tree.plain(tree.feature[:-1], tree.cut[:-1])


def doubled(tree: Tree) -> Tree:
    return Tree.plain(np.r_[tree.feature, -1], np.r_[tree.cut, 0])


def named(tree: Tree, index: int, value: float) -> Tree:
    """The last leaf gets a multiplier."""
    start = np.append(np.zeros(len(tree.feature), dtype=np.int64), 1)
    return replace(tree, start=start, index=np.array([index]), value=np.array([value]))


def recut(tree: Tree, cut: float) -> Tree:
    cuts = tree.cut.copy()
    cuts[0] = cut
    return replace(tree, cut=cuts)


def resplit(tree: Tree, feature: int) -> Tree:
    features = tree.feature.copy()
    features[0] = feature
    return replace(tree, feature=features)


@pytest.mark.parametrize(("change", "reason"), [
    (dropped, "1 leaves are missing"),
    (doubled, "nodes left over"),
    (lambda tree: recut(tree, 99.0), "outside the box"),
    (lambda tree: recut(tree, tree.cut[0] + 0.5), "outside the box"),
    (lambda tree: recut(tree, row_box(GOOD.statement)[1][tree.feature[0]]), "outside the box"),
    (lambda tree: resplit(tree, 77), "does not exist"),
    (lambda tree: resplit(tree, 3), "outside the box"),
    (lambda tree: resplit(tree, -500), "neuron 498, which does not exist"),
    (lambda tree: named(tree, 99, 1.0), "belongs to none of the 20 neurons"),
    (lambda tree: named(tree, 20, -1.0), "negative weight"),
])
def test_changed_trees_are_rejected(change, reason: str, tmp_path: Path) -> None:
    assert check(certificate(NETWORK, GOOD), model=NETWORK, schema=SCHEMA).accepted
    bad = certificate(NETWORK, OTHER, replace(GOOD, evidence=change(GOOD.evidence)))
    bad.save(tmp_path / "bad.json")
    report = check(tmp_path / "bad.json", model=NETWORK, schema=SCHEMA)
    assert not report.accepted
    assert {rejection.proof for rejection in report.rejections} == {1}
    assert reason in reasons(report)


@pytest.mark.parametrize(
    ("share", "accepted"), [(None, True), (0.0, True), (-0.0, True), (1.0, True), (1.0101, True), (1.02, False)]
)
def test_margins_may_not_be_raised(share: float | None, accepted: bool) -> None:
    """GOOD states 99 % of its least value: what is left may be claimed as well, and no more."""
    stated = None if share is None else share * GOOD.margin
    report = check(certificate(NETWORK, replace(GOOD, margin=stated)), model=NETWORK, schema=SCHEMA)
    assert report.accepted == accepted, reasons(report)


def test_a_margin_below_0_is_no_margin() -> None:
    report = check(certificate(NETWORK, replace(GOOD, margin=-1e-9)), model=NETWORK, schema=SCHEMA)
    assert "below 0" in reasons(report)


def test_goals_of_several_rows_have_no_margin() -> None:
    network, good = fairness_certificate()
    first, *others = good.proofs
    report = check(replace(good, proofs=(replace(first, margin=0.0), *others)), model=network, schema=SCHEMA)
    assert "several rows" in reasons(report)


@pytest.mark.parametrize(("change", "reason"), [
    ({"goal": "flipped"}, "the claim is false"),
    ({"classes": (GOOD.statement.classes[1], GOOD.statement.classes[0])}, "the claim is false"),
    ({"classes": (1, 1)}, "no two classes"),
    ({"classes": (2, 0)}, "no two classes"),
    ({"prime": {}}, "prime is missing"),
    ({"prime": {"age": 1.0}}, "no protected feature"),
    ({"prime": {"sex": 7.0}}, "outside the declared domain"),
    ({"prime": {"sex": 0.5}}, "outside the declared domain"),
    ({"prime": {"sex": GOOD.statement.row[3]}}, "false"),
    ({"row": (99.0, *GOOD.statement.row[1:])}, "outside the declared domain"),
    ({"row": (0.5, *GOOD.statement.row[1:])}, "outside the declared domain"),
    ({"row": GOOD.statement.row[1:]}, "the row has 3 values"),
    ({"delta": 3.0}, "none of the query's"),
])
def test_changed_statements_are_rejected(change: dict[str, object], reason: str) -> None:
    report = check(certificate(NETWORK, replace(GOOD, statement=replace(GOOD.statement, **change))), model=NETWORK, schema=SCHEMA)
    assert reason in reasons(report)


def test_a_tree_moved_to_a_false_row_is_rejected() -> None:
    for seed in range(1000):
        false = statement_of(NETWORK, seed, "observed", 1.0)
        lower, upper = row_box(false)
        if not holds(NETWORK, false, lower, upper):
            break
    report = check(certificate(NETWORK, Proof(statement=false, evidence=grow(lower, upper, 99))), model=NETWORK, schema=SCHEMA)
    assert "the claim is false" in reasons(report)


def test_the_same_hash_on_a_network_that_computes_something_else_is_rejected() -> None:
    good = certificate(NETWORK, GOOD)
    layers = (*NETWORK.layers[:-1], replace(NETWORK.layers[-1], weight=-NETWORK.layers[-1].weight))
    assert "the claim is false" in reasons(check(good, model=replace(NETWORK, layers=layers), schema=SCHEMA))


def test_a_network_out_of_range_proves_nothing() -> None:
    huge = constant(1e300)
    statement = RowStatement(goal="robust", row=(2, 0, 1, 0), delta=2, classes=(1, 0))
    assert check(
        certificate(huge, Proof(statement=statement, evidence=grow(*row_box(statement), 99)), kind="robustness"),
        model=huge, schema=SCHEMA,
    ).accepted  # point by point, exactly
    bare = certificate(huge, Proof(statement=statement, evidence=Tree.leaf()), kind="robustness")
    assert not check(bare, model=huge, schema=SCHEMA).accepted
    low = np.zeros((1, SCHEMA.domain.columns))
    with np.errstate(all="ignore"):
        bounds = TwinBounds(huge, low, low, low, low, close=True)
        found = bounds.by_substitution(np.ones((1, 1)), np.zeros((1, 1)), np.zeros(1, dtype=np.int64), layer=0)
    assert found[0] == -np.inf


# Fairness queries: all pairs, both directions, the whole box


def fairness_certificate(differ: str = "all") -> tuple[Network, Certificate]:
    """A constant class, so that everything is true and only what is missing can be wrong."""
    network = constant(1.0)
    proofs = []
    for z in (0.0, 1.0):
        statement = BoxStatement(goal="no-flip", lower=(1, -2, 0, z), upper=(4, 3, 2, z), prime={"sex": 1 - z}, classes=(1, 0))
        proofs.append(Proof(statement=statement, evidence=Tree.leaf()))
    query = BoxQuery(kind="individual-fairness", protected=("sex",), box={"age": (1, 4)}, differ=differ, signs="deployed")
    return network, replace(certificate(network, *proofs), query=query)


def test_all_pairs_in_both_directions_have_to_be_there() -> None:
    network, good = fairness_certificate()
    assert check(good, model=network, schema=SCHEMA).accepted
    first, second = good.proofs
    reverse = replace(first, statement=replace(first.statement, classes=(0, 1)))
    assert check(replace(good, proofs=(first, reverse)), model=network, schema=SCHEMA).accepted
    assert "cannot cover" in reasons(check(replace(good, proofs=(first,)), model=network, schema=SCHEMA))
    assert "no proof covers" in reasons(check(replace(good, proofs=(first, first)), model=network, schema=SCHEMA))
    smaller = replace(second, statement=replace(second.statement, lower=(2, *second.statement.lower[1:])))
    assert "no proof covers" in reasons(check(replace(good, proofs=(first, smaller)), model=network, schema=SCHEMA))
    unfixed = replace(second, statement=replace(second.statement, lower=(1, -2, 0, 0)))
    assert not check(replace(good, proofs=(first, second, unfixed)), model=network, schema=SCHEMA).accepted
    wide = replace(good, query=replace(good.query, box={"age": (0, 5)}))
    assert "no proof covers" in reasons(check(wide, model=network, schema=SCHEMA))


@pytest.mark.parametrize(("change", "reason"), [
    ({"protected": ("height",)}, "unknown"),
    ({"protected": ()}, "unknown"),
    ({"protected": ("sex", "sex")}, "twice"),
    ({"box": {"age": (4, 1)}}, "outside the declared domain"),
    ({"box": {"age": (0, 50)}}, "outside the declared domain"),
    ({"protected": ("sex", "work")}, "cannot cover"),
])
def test_wrong_fairness_queries_are_rejected(change: dict[str, object], reason: str) -> None:
    network, good = fairness_certificate()
    assert reason in reasons(check(replace(good, query=replace(good.query, **change)), model=network, schema=SCHEMA))


# Claims, files, independence


def test_claims_are_reported_and_not_accepted(tmp_path: Path) -> None:
    claim = Claim(backend="scip", version="9", tolerance=1e-6)
    mixed = certificate(NETWORK, OTHER, replace(GOOD, evidence=claim, margin=None))
    mixed.save(tmp_path / "mixed.json")
    loaded = Certificate.load(tmp_path / "mixed.json")
    assert loaded.trust is Trust.CLAIMED
    assert certificate(NETWORK, GOOD).trust is Trust.CHECKED
    report = check(loaded, model=NETWORK, schema=SCHEMA)
    assert report.claimed == 1
    assert not report.accepted
    assert reasons(report) == "proof 1: claimed by scip 9, not re-provable"


def broken_files() -> dict[str, bytes]:
    good = json.dumps(certificate(NETWORK, GOOD).payload | {"digest": SHA}, allow_nan=False)

    def changed(old: str, new: str) -> bytes:
        assert old in good
        return good.replace(old, new, 1).encode()

    return {
        "another kind": changed("persistent-bias", "kindness"),
        "another goal": changed('"observed"', '"unobserved"'),
        "no number": changed('"delta": 1', '"delta": NaN'),
        "infinite": changed('"delta": 1', '"delta": 1e9991'),
        "negative": changed('"delta": 1', '"delta": -1'),
        "boolean": changed('"delta": 1.0', '"delta": true'),
        "text for a number": changed('"delta": 1.0', '"delta": "1.0"'),
        "long number": changed('"delta": 1.0', '"delta": ' + "9" * 6000),
        "a bare tree": changed('"feature": [', '"feature": [], "other": ['),
        "sizes": changed('"cut": [', '"cut": [0.0, '),
        "fraction": changed('"feature": [', '"feature": [0.5, '),
        "multipliers without starts": changed('"cut": [', '"index": [1], "cut": ['),
        "no evidence": changed('"tree": {', '"wood": {'),
    }


@pytest.mark.parametrize("name", broken_files())
def test_broken_files_are_one_clear_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(broken_files()[name])
    with pytest.raises(CertificateError, match=r"broken\.json: .*expected a verifair-certificate/3 file"):
        check(path, model=NETWORK, schema=SCHEMA)


def test_deep_trees_need_no_recursion() -> None:
    """5,000 cuts of a real feature, each halving towards its lower end, on a network that is constant."""
    schema = schema_of(integer("wide", 0, 6000, unit=6000.0), SCHEMA["sex"].model_dump())
    weight = np.array([[0.0, 1.0]])
    network = network_of((weight, None))
    cut = np.array([value for k in range(5000) for value in (float(k), 0.0)] + [0.0])
    tree = Tree.plain(np.array([0, -1] * 5000 + [-1]), cut)
    statement = RowStatement(goal="flipped", row=(0, 0), delta=1, classes=(1, 0), prime={"sex": 1})
    proof = Proof(statement=statement, evidence=tree, margin=0.9)
    whole = replace(certificate(network, proof), schema_sha256=schema.sha256, features=("wide", "sex"))
    report = check(whole, model=network, schema=schema)
    assert report.accepted, reasons(report)
    assert report.leaves == 5001


def test_the_checker_imports_nothing_of_the_engine() -> None:
    exact = {"encoders.exact.balls", "encoders.exact.dyadic", "encoders.curves.layer", "encoders.probability.logistic",
             "encoders.buckets"}
    models = {"encoders.arrays", "encoders.decision", "encoders.model", "encoders.network", "encoders.probability.shares",
              "encoders.trees.compared", "encoders.trees.ensemble", "encoders.trees.mean"}
    allowed = {*exact, *models, "encoders.domain", "encoders.errors", "verifair.schema.space", "verifair.errors"}
    folder = Path(sys.modules[CheckReport.__module__].__file__).parent
    for file in folder.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
        modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        ours = {module for module in modules if module.split(".")[0] in ("verifair", "encoders", "solvers")}
        assert {module for module in ours if not module.startswith("verifair.checker")} <= allowed, file


@pytest.mark.parametrize(("classes", "depth", "accepted"), [((1, 0), 0, False), ((1, 0), 10, True), ((0, 1), 10, False)])
def test_no_leaf_is_cut_by_who_checks_it(classes: tuple[int, int], depth: int, accepted: bool) -> None:
    """f = |x| + |x - y| - x + 1/16 >= 1/16 with equality on a whole segment: no single linear bound shows 0.03, small boxes do."""
    features = [real(name, -1, 1, unit=1.0) for name in "xy"]
    schema = schema_of(*features, SCHEMA["sex"].model_dump())
    kinks = np.array([[1.0, 0, 0], [-1, 0, 0], [1, -1, 0], [-1, 1, 0], [1, 0, 0], [-1, 0, 0]])
    layers = (
        Layer(weight=kinks, bias=np.zeros(6), slope=np.zeros(6)),
        Layer(weight=np.array([[1.0, 1, 1, 1, -1, 1]]), bias=np.array([0.0625]), slope=np.ones(1)),
    )
    network = Network(layers=layers, link=Link.IDENTITY, source_sha256=SHA)
    statement = RowStatement(goal="robust", row=(0, 0, 1), delta=1, classes=classes)
    cuts: list[tuple[int, float]] = []

    def cut(box: list[tuple[float, float]], left: int) -> None:
        v = max(range(2), key=lambda k: box[k][1] - box[k][0])
        middle = sum(box[v]) / 2
        cuts.append((v, middle) if left else (-1, 0.0))
        for part in ((box[v][0], middle), (middle, box[v][1])) if left else ():
            cut([part if k == v else one for k, one in enumerate(box)], left - 1)

    cut([(-1.0, 1.0), (-1.0, 1.0)], depth)
    proof = Proof(statement=statement, evidence=Tree.plain(*map(np.array, zip(*cuts, strict=True))), margin=0.03)
    whole = replace(certificate(network, proof, kind="robustness"), schema_sha256=schema.sha256, features=("x", "y", "sex"))
    report = check(whole, model=network, schema=schema)
    assert report.accepted == accepted, reasons(report)


def test_a_file_s_own_words_state_nothing_beside_its_proofs() -> None:
    network = mixed_network(0)
    given = certificate(network, proof_of(network, "robust"), kind="robustness")
    assert "within 1 unit, " in check(given, model=network, schema=SCHEMA).statement  # no proof is about its query's 0 and 2
    for protected in (("sex: no decision flips.\nIt states: nothing",), ("sex", "sex")):
        forged = replace(given, query=replace(given.query, protected=protected))
        assert "names features as protected" in str(check(forged, model=network, schema=SCHEMA).rejections)


def test_a_changed_file_with_a_claim_is_rejected() -> None:
    network = mixed_network(0)
    claimed = Proof(statement=proof_of(network).statement, evidence=Claim(backend="highs", version="1", tolerance=1e-6))
    given = certificate(network, claimed)
    assert check(given, model=network, schema=SCHEMA).verdict == "CLAIMED, NOT RE-PROVABLE"
    assert check(replace(given, network_sha256="1" * 64), model=network, schema=SCHEMA).verdict == "REJECTED"
