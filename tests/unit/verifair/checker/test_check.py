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

from encoders.network import Layer, Link, Network
from tests.brute_force import exact_forward
from tests.builders import categorical, integer, network_of, one_hot, real, schema_of
from verifair.checker.certificate import Certificate, Claim, Proof
from verifair.checker.check import check
from verifair.checker.envelope import Trust, semantics
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kernel.leaves import GOALS
from verifair.checker.report import CheckReport
from verifair.checker.statement import BoxQuery, BoxStatement, RowsQuery, RowStatement, Signs
from verifair.checker.tree import Tree
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


def grow(network: Network, statement: RowStatement | BoxStatement, lower: np.ndarray, upper: np.ndarray, depth: int) -> Tree:
    """A true tree: cut the widest feature `depth` times; the bound of a leaf is a little below its least value."""
    feature, cut, bound = [], [], []

    def visit(lower: np.ndarray, upper: np.ndarray, depth: int) -> None:
        v = int(np.argmax(upper - lower))
        if depth and upper[v] > lower[v]:
            middle = np.floor((lower[v] + upper[v]) / 2)
            feature.append(v)
            cut.append(middle)
            bound.append(np.nan)
            left, right = upper.copy(), lower.copy()
            left[v], right[v] = middle, middle + 1
            visit(lower, left, depth - 1)
            visit(right, upper, depth - 1)
            return
        least = min(value(network, points(lower, upper), statement.prime, statement.goal, statement.classes))
        single = bool((lower == upper).all())
        feature.append(-1)
        cut.append(0.0)
        bound.append(np.nan if single else max(float(least) * 0.99, 0.0))

    visit(lower, upper, depth)
    return Tree(feature=np.array(feature), cut=np.array(cut), bound=np.array(bound))


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


def proof_of(network: Network, goal: str = "observed", delta: float = 1, depth: int = 2) -> Proof:
    """The first true statement of a kind about the network, with a true tree of several leaves."""
    for seed in range(1000):
        statement = statement_of(network, seed, goal, delta)
        lower, upper = row_box(statement)
        if holds(network, statement, lower, upper) and (lower < upper).sum() == 2:
            return Proof(statement=statement, evidence=grow(network, statement, lower, upper, depth))
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
    depth=st.integers(0, 3),
)
def test_row_statements_are_accepted_exactly_when_true(
    seed: int, goal: str, hidden: tuple[int, ...], outputs: int, scale: float, depth: int
) -> None:
    network = mixed_network(seed, hidden, outputs, scale)
    statement = statement_of(network, seed, goal, 1.0)
    lower, upper = row_box(statement)
    tree = grow(network, statement, lower, upper, depth)
    tiny = np.where(tree.bound == 0, 5e-324, tree.bound)  # a false claim has to look like a claim, or it is not even tried
    report = check(
        certificate(
            network,
            Proof(statement=statement, evidence=replace(tree, bound=tiny)),
            kind="robustness" if goal == "robust" else "persistent-bias",
        ),
        network=network,
        schema=SCHEMA,
    )
    least = min(value(network, points(lower, upper), statement.prime, goal, statement.classes))
    if least != 0:  # ties have their own test
        assert report.accepted == holds(network, statement, lower, upper), reasons(report)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    hidden=st.sampled_from([(), (5,), (6, 4)]),
    outputs=st.sampled_from([1, 2]),
    depth=st.integers(0, 3),
    signs=st.sampled_from(["deployed", "strict"]),
    classes=st.sampled_from([(1, 0), (0, 1)]),
)
def test_flip_statements_are_accepted_exactly_when_true(
    seed: int, hidden: tuple[int, ...], outputs: int, depth: int, signs: Signs, classes: tuple[int, int]
) -> None:
    """Every second network has whole weights between -1 and 1, so that margins of exactly 0 are common."""
    network = mixed_network(seed, hidden, outputs)
    if seed % 2:
        coarse = [replace(one, weight=np.clip(np.rint(one.weight), -1, 1), bias=np.rint(one.bias)) for one in network.layers]
        network = replace(network, layers=tuple(coarse))
    domain = SCHEMA.domain
    lower, upper = domain.lower.copy(), domain.upper.copy()
    lower[3] = upper[3] = sex = float(seed // 2 % 2)
    statement = BoxStatement(goal="no-flip", lower=tuple(lower), upper=tuple(upper), prime={"sex": 1.0 - sex}, classes=classes)
    tree = grow(network, statement, lower, upper, depth)
    query = BoxQuery(kind="individual-fairness", protected=("sex",), box={"age": (0, 5)}, differ="all", signs=signs)
    other = BoxStatement(
        goal="no-flip",
        lower=(*lower[:3], statement.prime["sex"]),
        upper=(*upper[:3], statement.prime["sex"]),
        prime={"sex": float(lower[3])},
        classes=classes,
    )
    second = grow(network, other, np.array(other.lower), np.array(other.upper), depth)
    whole = replace(
        certificate(network, Proof(statement=statement, evidence=tree), Proof(statement=other, evidence=second)), query=query
    )
    report = check(whole, network=network, schema=SCHEMA)
    ends = np.array(other.lower), np.array(other.upper)
    truth = {0: holds(network, statement, lower, upper, signs), 1: holds(network, other, *ends, signs)}
    rejected = {rejection.proof for rejection in report.rejections}
    assert rejected == {k for k, true in truth.items() if not true}, reasons(report)


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
    found = bounds.lower(forms[:, 0], forms[:, 1], np.zeros(6, dtype=np.int64), layer=len(hidden))[0]
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
    found, error, _, _ = bounds.lower(np.ones((1, 1)), np.zeros((1, 1)), np.zeros(1, dtype=np.int64), layer=3)
    assert 0 < error[0] < 1e-10
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
    bound = 0.0 if classes == (0, 1) else 2.0**-141
    proof = Proof(statement=statement, evidence=Tree.leaf(bound))
    report = check(certificate(network, proof, kind="robustness"), network=network, schema=SCHEMA)
    assert report.accepted == accepted, reasons(report)


@pytest.mark.parametrize("goal", ["observed", "flipped"])
def test_equal_copies_are_no_bias(goal: str) -> None:
    network = constant(1.0)
    for bound in (None, 5e-324):
        statement = RowStatement(goal=goal, row=(2, 0, 1, 0), delta=0, classes=(1, 0), prime={"sex": 1})
        report = check(certificate(network, Proof(statement=statement, evidence=Tree.leaf(bound))), network=network, schema=SCHEMA)
        assert "false at this point" in reasons(report)


@pytest.mark.parametrize("signs", ["deployed", "strict"])
def test_touching_zero_is_no_flip_with_strict_signs_alone(signs: Signs) -> None:
    network = constant(0.0, weight=1.0)  # f = sex: 0, negative, for one copy, 1 for the other
    query = BoxQuery(kind="individual-fairness", protected=("sex",), box={}, differ="any", signs=signs)
    proofs = []
    for z in (0.0, 1.0):
        statement = BoxStatement(goal="no-flip", lower=(0, -2, 0, z), upper=(5, 3, 2, z), prime={"sex": 1 - z}, classes=(1, 0))
        proofs.append(Proof(statement=statement, evidence=Tree.leaf(0.0)))
    report = check(replace(certificate(network, *proofs), query=query), network=network, schema=SCHEMA)
    assert {one.proof for one in report.rejections} == (set() if signs == "strict" else {1})


@pytest.mark.parametrize(("signs", "epsilon"), [(None, None), ("deployed", 0.1), ("strict", 0.1)])
def test_a_query_is_about_flips_or_about_gaps(signs: Signs | None, epsilon: float | None) -> None:
    network, good = fairness_certificate()
    other = replace(good, query=replace(good.query, signs=signs, epsilon=epsilon))
    assert "either the signs" in reasons(check(other, network=network, schema=SCHEMA))


# Mutations: each is written to a file with a fresh digest, so that only the check itself can notice


NETWORK = mixed_network(3)
GOOD, OTHER = proof_of(NETWORK), proof_of(NETWORK, "flipped")


def nudged(tree: Tree) -> Tree:
    lower, upper = row_box(GOOD.statement)
    leaf = int(np.flatnonzero(tree.feature < 0)[0])
    most = max(value(NETWORK, points(lower, upper), GOOD.statement.prime, GOOD.statement.goal, GOOD.statement.classes))
    bound = tree.bound.copy()
    bound[leaf] = float(most) * 1.01
    return replace(tree, bound=bound)


def dropped(tree: Tree) -> Tree:
    return Tree(feature=tree.feature[:-1], cut=tree.cut[:-1], bound=tree.bound[:-1])


def doubled(tree: Tree) -> Tree:
    return Tree(feature=np.r_[tree.feature, -1], cut=np.r_[tree.cut, 0], bound=np.r_[tree.bound, tree.bound[-1]])


def recut(tree: Tree, cut: float) -> Tree:
    cuts = tree.cut.copy()
    cuts[0] = cut
    return replace(tree, cut=cuts)


def resplit(tree: Tree, feature: int) -> Tree:
    features = tree.feature.copy()
    features[0] = feature
    return replace(tree, feature=features)


@pytest.mark.parametrize(("change", "reason"), [
    (nudged, "the claim is false"),
    (dropped, "1 leaves are missing"),
    (doubled, "nodes left over"),
    (lambda tree: recut(tree, 99.0), "outside the box"),
    (lambda tree: recut(tree, tree.cut[0] + 0.5), "outside the box"),
    (lambda tree: recut(tree, row_box(GOOD.statement)[1][tree.feature[0]]), "outside the box"),
    (lambda tree: resplit(tree, 77), "does not exist"),
    (lambda tree: resplit(tree, 3), "outside the box"),
    (lambda tree: replace(tree, bound=-np.abs(tree.bound)), "does not show the goal"),
    (lambda tree: replace(tree, bound=np.full(len(tree.bound), np.nan)), "must be one single point"),
])
def test_changed_trees_are_rejected(change, reason: str, tmp_path: Path) -> None:
    assert check(certificate(NETWORK, GOOD), network=NETWORK, schema=SCHEMA).accepted
    bad = certificate(NETWORK, OTHER, replace(GOOD, evidence=change(GOOD.evidence)))
    bad.save(tmp_path / "bad.json")
    report = check(tmp_path / "bad.json", network=NETWORK, schema=SCHEMA)
    assert not report.accepted
    assert {rejection.proof for rejection in report.rejections} == {1}
    assert reason in reasons(report)


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
    report = check(certificate(NETWORK, replace(GOOD, statement=replace(GOOD.statement, **change))), network=NETWORK, schema=SCHEMA)
    assert reason in reasons(report)


def test_a_tree_moved_to_a_false_row_is_rejected() -> None:
    for seed in range(1000):
        false = statement_of(NETWORK, seed, "observed", 1.0)
        lower, upper = row_box(false)
        if not holds(NETWORK, false, lower, upper):
            break
    report = check(certificate(NETWORK, Proof(statement=false, evidence=Tree.leaf(1e-9))), network=NETWORK, schema=SCHEMA)
    assert "the claim is false" in reasons(report)


def test_the_same_hash_on_a_network_that_computes_something_else_is_rejected() -> None:
    good = certificate(NETWORK, GOOD)
    layers = (*NETWORK.layers[:-1], replace(NETWORK.layers[-1], weight=-NETWORK.layers[-1].weight))
    assert "the claim is false" in reasons(check(good, network=replace(NETWORK, layers=layers), schema=SCHEMA))


def test_a_network_out_of_range_proves_nothing() -> None:
    huge = constant(1e300)
    statement = RowStatement(goal="robust", row=(2, 0, 1, 0), delta=2, classes=(1, 0))
    assert check(
        certificate(huge, Proof(statement=statement, evidence=Tree.leaf(1.0)), kind="robustness"), network=huge, schema=SCHEMA
    ).accepted  # point by point, exactly
    low = np.zeros((1, SCHEMA.domain.columns))
    with np.errstate(all="ignore"):
        bounds = TwinBounds(huge, low, low, low, low, close=True)
        found = bounds.lower(np.ones((1, 1)), np.zeros((1, 1)), np.zeros(1, dtype=np.int64), layer=0)[0]
    assert found[0] == -np.inf


# Fairness queries: all pairs, both directions, the whole box


def fairness_certificate(differ: str = "all") -> tuple[Network, Certificate]:
    """A constant class, so that everything is true and only what is missing can be wrong."""
    network = constant(1.0)
    proofs = []
    for z in (0.0, 1.0):
        statement = BoxStatement(goal="no-flip", lower=(1, -2, 0, z), upper=(4, 3, 2, z), prime={"sex": 1 - z}, classes=(1, 0))
        proofs.append(Proof(statement=statement, evidence=Tree.leaf(0.5)))
    query = BoxQuery(kind="individual-fairness", protected=("sex",), box={"age": (1, 4)}, differ=differ, signs="deployed")
    return network, replace(certificate(network, *proofs), query=query)


def test_all_pairs_in_both_directions_have_to_be_there() -> None:
    network, good = fairness_certificate()
    assert check(good, network=network, schema=SCHEMA).accepted
    first, second = good.proofs
    reverse = replace(first, statement=replace(first.statement, classes=(0, 1)))
    assert check(replace(good, proofs=(first, reverse)), network=network, schema=SCHEMA).accepted
    assert "cannot cover" in reasons(check(replace(good, proofs=(first,)), network=network, schema=SCHEMA))
    assert "no proof covers" in reasons(check(replace(good, proofs=(first, first)), network=network, schema=SCHEMA))
    smaller = replace(second, statement=replace(second.statement, lower=(2, *second.statement.lower[1:])))
    assert "no proof covers" in reasons(check(replace(good, proofs=(first, smaller)), network=network, schema=SCHEMA))
    unfixed = replace(second, statement=replace(second.statement, lower=(1, -2, 0, 0)))
    assert not check(replace(good, proofs=(first, second, unfixed)), network=network, schema=SCHEMA).accepted
    wide = replace(good, query=replace(good.query, box={"age": (0, 5)}))
    assert "no proof covers" in reasons(check(wide, network=network, schema=SCHEMA))


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
    assert reason in reasons(check(replace(good, query=replace(good.query, **change)), network=network, schema=SCHEMA))


# Claims, files, independence


def test_claims_are_reported_and_not_accepted(tmp_path: Path) -> None:
    claim = Claim(backend="scip", version="9", tolerance=1e-6)
    mixed = certificate(NETWORK, OTHER, replace(GOOD, evidence=claim))
    mixed.save(tmp_path / "mixed.json")
    loaded = Certificate.load(tmp_path / "mixed.json")
    assert loaded.trust is Trust.CLAIMED
    assert certificate(NETWORK, GOOD).trust is Trust.CHECKED
    report = check(loaded, network=NETWORK, schema=SCHEMA)
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
        "below -1": changed('"feature": [', '"feature": [-2, '),
        "no evidence": changed('"tree": {', '"wood": {'),
    }


@pytest.mark.parametrize("name", broken_files())
def test_broken_files_are_one_clear_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(broken_files()[name])
    with pytest.raises(CertificateError, match=r"broken\.json: .*expected a verifair-certificate/2 file"):
        check(path, network=NETWORK, schema=SCHEMA)


def test_deep_trees_need_no_recursion() -> None:
    """5,000 cuts of a real feature, each halving towards its lower end, on a network that is constant."""
    schema = schema_of(integer("wide", 0, 6000, unit=6000.0), SCHEMA["sex"].model_dump())
    weight = np.array([[0.0, 1.0]])
    network = network_of((weight, None))
    tree = Tree(
        feature=np.array([0, -1] * 5000 + [-1]),
        cut=np.array([value for k in range(5000) for value in (float(k), 0.0)] + [0.0]),
        bound=np.array([np.nan, 0.9] * 5000 + [0.9]),
    )
    statement = RowStatement(goal="flipped", row=(0, 0), delta=1, classes=(1, 0), prime={"sex": 1})
    proof = Proof(statement=statement, evidence=tree)
    whole = replace(certificate(network, proof), schema_sha256=schema.sha256, features=("wide", "sex"))
    report = check(whole, network=network, schema=schema)
    assert report.accepted, reasons(report)
    assert report.leaves == 5001


def test_the_checker_imports_nothing_of_the_engine() -> None:
    exact = {"encoders.exact.balls", "encoders.exact.dyadic", "encoders.curves", "encoders.probability"}
    allowed = {*exact, "encoders.network", "encoders.domain", "verifair.schema.space", "verifair.errors"}
    folder = Path(sys.modules[CheckReport.__module__].__file__).parent
    for file in folder.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
        modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        ours = {module for module in modules if module.split(".")[0] in ("verifair", "encoders", "solvers")}
        assert {module for module in ours if not module.startswith("verifair.checker")} <= allowed, file


@pytest.mark.parametrize(("classes", "accepted"), [((1, 0), True), ((0, 1), False)])
def test_leaves_of_real_features_are_cut_further_where_needed(classes: tuple[int, int], accepted: bool) -> None:
    """f = |x| + |x - y| - x + 1/16 >= 1/16 with equality on a whole segment: no single linear bound shows 0.06."""
    features = [real(name, -1, 1, unit=1.0) for name in "xy"]
    schema = schema_of(*features, SCHEMA["sex"].model_dump())
    kinks = np.array([[1.0, 0, 0], [-1, 0, 0], [1, -1, 0], [-1, 1, 0], [1, 0, 0], [-1, 0, 0]])
    layers = (
        Layer(weight=kinks, bias=np.zeros(6), slope=np.zeros(6)),
        Layer(weight=np.array([[1.0, 1, 1, 1, -1, 1]]), bias=np.array([0.0625]), slope=np.ones(1)),
    )
    network = Network(layers=layers, link=Link.IDENTITY, source_sha256=SHA)
    statement = RowStatement(goal="robust", row=(0, 0, 1), delta=1, classes=classes)
    tree = Tree(feature=np.array([0, -1, -1]), cut=np.array([0.25, 0, 0]), bound=np.array([np.nan, 0.06, 0.06]))
    whole = certificate(network, Proof(statement=statement, evidence=tree), kind="robustness")
    report = check(replace(whole, schema_sha256=schema.sha256, features=("x", "y", "sex")), network=network, schema=schema)
    assert report.accepted == accepted, reasons(report)
    if not accepted:
        assert "the claim is false" in reasons(report)
