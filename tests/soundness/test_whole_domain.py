"""Whole-domain certification against enumeration: verdicts, witnesses and certificates of tiny nasty queries (`random_fairness`).

The truth comes from listing every row in fractions and decimals; the engine may be silent, never wrong.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from encoders.network import Network
from tests.builders import categorical, integer, network_of, one_hot, random_network, real, schema_of
from tests.draws import draws
from tests.soundness.random_fairness import (
    LARGEST,
    OFFS,
    STYLES_HERE,
    Case,
    compared,
    exact_logits,
    near_cases,
    random_case,
    sigma,
    small_cases,
    verdict_of,
)
from verifair.checker.certificates.certificate import Certificate, Proof
from verifair.checker.certificates.tree import Tree
from verifair.checker.check import check
from verifair.checker.partition import PROVED, UNKNOWN, VIOLATED, Chunk, PartitionStore
from verifair.engine.partition import certify_partition, partition_of
from verifair.errors import DataError


def raw_of(case: Case, row: dict[str, Any]) -> np.ndarray:
    return np.array([[case.schema.raw_value(name, value) for name, value in row.items()]])


def assert_true(case: Case, verdict: vf.Verdict) -> None:
    """What the verdict says is so; a certificate that need not be believed is accepted."""
    assert (verdict.status is vf.Status.VIOLATED) == bool(case.wrong().any())
    if verdict.status is vf.Status.VIOLATED:
        assert verdict.witness is not None
        x, x_prime = raw_of(case, dict(verdict.witness.x)), raw_of(case, dict(verdict.witness.x_prime))
        both = np.concatenate([x, x_prime])
        assert case.schema.inside(both).all()
        assert ((both >= case.box[0]) & (both <= case.box[1])).all()
        assert compared(case.query, x, x_prime)[0, 0]
        a, b = exact_logits(case.query.model, case.schema.encode(both))
        if case.query.epsilon is None:
            assert (a > 0) != (b > 0)
            assert case.query.signs == "deployed" or a * b < 0
        else:
            assert abs(sigma(a) - sigma(b)) > Decimal(case.query.epsilon)
        assert verdict.witness.margin <= 1e-15 or np.isinf(verdict.witness.margin)
    else:
        assert verdict.certificate is not None
        report = vf.check(verdict.certificate, model=case.query.model, schema=case.schema)
        assert report.accepted or verdict.certificate.trust is vf.Trust.CLAIMED, report.rejections


@pytest.mark.parametrize("style", STYLES_HERE)
def test_flips_are_those_that_enumeration_finds(style: str) -> None:
    for case in small_cases(style, 8):
        verdict = verdict_of(case)
        assert verdict.status is not vf.Status.UNKNOWN, (case.seed, verdict.reason)
        assert_true(case, verdict)


@pytest.mark.parametrize("style", STYLES_HERE)
def test_gaps_are_those_that_enumeration_finds(style: str) -> None:
    for case in small_cases(style, 6, epsilon=True):
        verdict = verdict_of(case)
        assert verdict.status is not vf.Status.UNKNOWN, (case.seed, verdict.reason)
        assert_true(case, verdict)


@pytest.mark.parametrize("off", OFFS)
def test_near_ties_of_the_largest_gap(off: float) -> None:
    """epsilon is the largest gap itself, rounded, or a little more or less: the hardest questions there are."""
    for k, style in enumerate(STYLES_HERE):
        for case in near_cases(style, 2 if off < 0 else 1, off, first=7 * k):
            verdict = verdict_of(case)
            assert verdict.status is not vf.Status.UNKNOWN or verdict.reason is vf.Reason.TIME, (style, case.seed, verdict.reason)
            if verdict.status is not vf.Status.UNKNOWN:
                assert_true(case, verdict)


@pytest.mark.parametrize("nodes", [1, 4])
def test_what_the_cascade_adds_is_true(nodes: int) -> None:
    """With hardly any boxes to spend, neuron branching and the MILP are asked; they may leave it open, not be wrong."""
    for k, style in enumerate(STYLES_HERE):
        cases = [*small_cases(style, 2, first=40 + k), *near_cases(style, 2, OFFS[k % len(OFFS)], first=80 + k)]
        for case in cases:
            verdict = verdict_of(case, nodes=nodes)
            if verdict.status is not vf.Status.UNKNOWN:
                assert_true(case, verdict)


@pytest.mark.parametrize("scale", ["probability", "logit"])
@pytest.mark.parametrize("style", [style for style in STYLES_HERE if style not in ("giant", "huge")])
def test_maximise_brackets_the_largest_gap(style: str, scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("verifair.engine.gap.maximise")
    monkeypatch.setattr(module, "runtime_logits", lambda network, x: network.forward(x.astype(float)))  # these are in no file
    for case in small_cases(style, len(draws(6)), first=150):
        q = case.query
        query = vf.ProbabilityGap(
            model=q.model, schema=q.schema, protected=q.protected, box=q.box, differ=q.differ, relax=q.relax, scale=scale
        )
        found = vf.verify(query, budget=vf.Budget(seconds=10), tolerance=1e-3)
        first, second = (case.logits[at] for at in case.pairs)
        gaps = [Fraction(gap) for gap in case.gaps()] if scale == "probability" else (first - second).tolist()
        largest = max(gaps, default=Fraction(0))
        assert Fraction(found.lower) <= largest
        assert found.upper == np.inf or largest <= Fraction(found.upper)
        if found.reason is None:
            assert found.upper - found.lower <= 1.001e-3 + 1e-12 * found.upper
        if found.certificate is not None:
            assert vf.check(found.certificate, model=q.model, schema=q.schema).accepted


def hand_made(
    weight: list[float], bias: float, features: list[dict[str, Any]], constraints: list[dict[str, Any]]
) -> vf.IndividualFairness:
    """One affine layer over `features`, of which "sex" is protected."""
    return vf.IndividualFairness(
        model=network_of(([weight], [bias]), source_sha256="1" * 64),
        schema=schema_of(*features, constraints=constraints),
        protected=["sex"],
    )


SEX = categorical("sex", "f", "m")


@pytest.mark.parametrize("epsilon", [None, 0.1])
@pytest.mark.parametrize("shared", [{"kind": "integer", "range": (0, 3)}, {"kind": "real", "range": (0.0, 3.0)}])
def test_a_question_whose_rows_all_break_constraints_is_true(shared: dict[str, Any], epsilon: float | None) -> None:
    """sex f and m are told apart by everything, but no f is below 2 and no m above: nobody has a counterpart."""
    features = [SEX, {"name": "age", **shared}]
    edge = 1 if shared["kind"] == "integer" else float(np.nextafter(2.0, 0.0))
    constraints = [{"never": {"sex": "f", "age": {"high": edge}}}, {"never": {"sex": "m", "age": {"low": 2}}}]
    query = replace(hand_made([2.0, 0.0], -1.0, features, constraints), epsilon=epsilon)
    verdict = vf.verify(query)
    assert verdict.status is vf.Status.PROVED
    assert verdict.certificate is not None
    assert vf.check(verdict.certificate, model=query.model, schema=query.schema).accepted
    free = schema_of(*features)
    assert vf.verify(replace(query, schema=free)).status is vf.Status.VIOLATED
    stolen = replace(verdict.certificate, schema_sha256=free.sha256)
    assert not vf.check(stolen, model=query.model, schema=free).accepted


@pytest.mark.parametrize("side", [-1, 0, 1])
@pytest.mark.parametrize("edge", [1.0, 1 + 2.0**-24, 0.1, 1 / 3])
def test_a_real_feature_is_cut_to_the_last_float(edge: float, side: int) -> None:
    """Flips need income above a float32 border by half a unit in the last place or more; rows from `cut` on are forbidden.

    The smallest raw income with the input t is found by bisection, so the verdict hangs on one float64.
    """
    t = float(np.nextafter(np.float32(edge), np.float32(np.inf)))
    below = float(np.float32(edge))
    low, high = below, t
    while np.nextafter(low, np.inf) < high:  # the last raw value that is rounded to `below`, and the first one rounded to t
        middle = low + (high - low) / 2
        low, high = (middle, high) if float(np.float32(middle)) == below else (low, middle)
    cut = {-1: low, 0: high, 1: float(np.nextafter(high, np.inf))}[side]
    bias = -(below + t) / 2  # g = income - (below + t) / 2 for m: positive from t on; always negative for f
    features = [SEX, real("income", 0.0, 2.0)]
    query = hand_made([2.0 * t, 1.0], -2.0 * t + bias, features, [{"never": {"income": {"low": cut}}}])
    verdict = vf.verify(query)
    assert verdict.status is (vf.Status.VIOLATED if side == 1 else vf.Status.PROVED)
    if verdict.certificate is not None:
        assert vf.check(verdict.certificate, model=query.model, schema=query.schema).accepted
    if verdict.witness is not None:
        assert verdict.witness.x["income"] == verdict.witness.x_prime["income"] == high


@pytest.mark.parametrize("seed", draws(40))
def test_impossible_counterfactuals_are_no_bias(seed: int) -> None:
    """Rows of `verify_rows` under constraints against enumeration: which questions are asked, and their answers."""
    rng = np.random.default_rng(seed)
    features = [
        integer("age", 0, 4, unit=1.0),
        categorical("sex", "a", "b", "c"),
        one_hot("job", "u", "v"),
    ]
    age = int(rng.integers(0, 5))
    constraints = [
        {"never": {"sex": str(rng.choice(["a", "b", "c"])), "age": {"low": age}}},
        {"if": {"job": "u"}, "then": {"sex": [str(one) for one in rng.choice(["a", "b", "c"], 2, replace=False)]}},
    ]
    schema = schema_of(*features, constraints=constraints, label="y")
    weight = rng.standard_normal((4, 4)).astype(np.float32).astype(float)
    last = rng.standard_normal((1, 4)).astype(np.float32).astype(float)
    network = network_of((weight, None), (last, None), source_sha256="2" * 64)
    everything = np.array([[a, s, j] for a in range(5) for s in range(3) for j in range(2)], dtype=float)
    rows = everything[schema.inside(everything)]
    logit = dict(zip(map(tuple, everything.tolist()), exact_logits(network, schema.encode(everything)), strict=True))
    label = [int(logit[tuple(row)] > 0) for row in rows.tolist()]
    frame = pd.DataFrame([schema.decode(row) for row in rows])
    frame["y"] = label
    found = vf.verify(vf.PersistentBias(model=network, schema=schema, protected="sex", delta=[0, 1, 2]), frame)
    expected: dict[tuple[str, float, int, float], bool] = {}
    for k, row in enumerate(rows.tolist()):
        for to in {0.0, 1.0, 2.0} - {row[1]}:
            other = [row[0], to, row[2]]
            if not schema.inside(np.array([other]))[0] or (logit[tuple(other)] > 0) != (label[k] == 1):
                continue
            sign = 1 if label[k] else -1
            for delta in (0.0, 1.0, 2.0):
                pairs = [
                    (logit[a, row[1], row[2]], logit[a, to, row[2]])
                    for a in np.arange(max(0, row[0] - delta), min(4, row[0] + delta) + 1)
                    if schema.inside(np.array([[a, row[1], row[2]], [a, to, row[2]]])).all()
                ]
                expected["observed", delta, k, to] = all(sign * (x - y) > 0 for x, y in pairs)
                expected["flipped", delta, k, to] = all(sign * (y - x) > 0 for x, y in pairs)
    to = {"a": 0.0, "b": 1.0, "c": 2.0}
    answers = {(line.goal, line.delta, line.row, to[line.to]): line.status == "proved" for line in found.itertuples()}
    assert set(found["status"]) <= {"proved", "violated"}
    assert answers == expected


# Partitioned certification against enumeration, part by part; runs that end early; stores that were tampered with.


def statuses(path: Path, count: int) -> np.ndarray:
    found = np.full(count, UNKNOWN)
    with PartitionStore(path) as store:
        for first, status in store.statuses():
            found[first : first + len(status)] = status
    return found


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("style", STYLES_HERE)
def test_parts_are_decided_as_enumeration_does(style: str, gap: bool, tmp_path: Path) -> None:
    """Relaxed and constrained ones among them; with many boxes, with few, and with one, which leaves it to neuron branching."""
    cases = near_cases(style, 4, 1e-6, first=200) if gap else small_cases(style, 4, first=200)
    for k, case in enumerate(cases):
        size, path = 2 + k % 2, tmp_path / f"{k}.sqlite"
        budget = vf.Budget(seconds=20, nodes=(None, 5, 1)[k % 3])
        certify_partition(case.query, size=size, store=path, budget=budget)
        partition = partition_of(case.query, size, case.box)
        found, truth = statuses(path, partition.count), case.wrong_parts(partition)
        assert ((found == UNKNOWN) | ((found == VIOLATED) == truth)).all()
        if k % 3 == 0:
            assert (found != UNKNOWN).all()
        report = check(path, model=case.query.model, schema=case.schema)
        assert (not report.rejections) == bool((found != UNKNOWN).any()), (style, case.seed, report.rejections)
        assert report.accepted == bool((found != UNKNOWN).all()), "accepted is said of the whole"


def mixed_case() -> Case:
    """One whose parts are some proved, some violated."""
    for seed in draws(1000):
        case = random_case(seed, "plain", constrained=False)
        if len(case.rows) <= LARGEST and not any(feature.kind == "real" for feature in case.schema.features):
            truth = case.wrong_parts(partition_of(case.query, 2, case.box))
            if 2 <= truth.sum() <= len(truth) - 2:
                return case
    raise AssertionError("no seed gives such a case")


def test_a_partial_run_is_taken_up_again(tmp_path: Path) -> None:
    case = mixed_case()
    path, whole = tmp_path / "run.sqlite", tmp_path / "whole.sqlite"
    count = partition_of(case.query, 2, case.box).count
    certify_partition(case.query, size=2, store=path, budget=vf.Budget(seconds=1e-9))
    assert (statuses(path, count) == UNKNOWN).all()
    certify_partition(case.query, size=2, store=path, resume=True, budget=vf.Budget(seconds=20, nodes=1))
    certify_partition(case.query, size=2, store=path, resume=True, budget=vf.Budget(seconds=20))
    certify_partition(case.query, size=2, store=whole, budget=vf.Budget(seconds=20))
    truth = case.wrong_parts(partition_of(case.query, 2, case.box))
    assert (statuses(path, count) == np.where(truth, VIOLATED, PROVED)).all()
    assert (statuses(whole, count) == statuses(path, count)).all()


def test_a_store_is_about_one_question_only(tmp_path: Path) -> None:
    case = mixed_case()
    path = tmp_path / "run.sqlite"
    certify_partition(case.query, size=2, store=path)
    differ = "any" if case.query.differ == "all" else "all"
    others = [(case.query, 3), (case.asking(epsilon=0.1).query, 2), (replace(case.query, differ=differ), 2)]
    for query, size in others:
        for resume in (False, True):
            with pytest.raises(DataError, match="another question"):
                certify_partition(query, size=size, store=path, resume=resume)
    with pytest.raises(DataError, match="this question already"):
        certify_partition(case.query, size=2, store=path)


def rewritten(path: Path, change: Any) -> None:
    """Every chunk of a store after `change`."""
    with PartitionStore(path) as store:
        about = {key: value for key, value in store.about.items() if key != "format"}
        chunks = list(store.chunks())
    with PartitionStore(path, about, resume=True) as store:
        for chunk in chunks:
            store.add(change(chunk))


def all_proved(chunk: Chunk) -> Chunk:
    """Every part claimed as proved by a single leaf for each question."""
    count = len(chunk)
    return replace(
        chunk, status=np.full(count, PROVED, dtype=np.int8), pair=chunk.pair[:0], goal=chunk.goal[:0], x=chunk.x[:0],
        margins=chunk.margins[:0], agrees=chunk.agrees[:0],
    )


def with_leaves(chunk: Chunk, questions: int) -> Chunk:
    leaves = np.ones(2 * questions, dtype=np.int64)
    return replace(
        all_proved(chunk), size=leaves, feature=-leaves, cut=np.zeros(len(leaves)), count=0 * leaves,
        index=np.empty(0, dtype=np.int64), value=np.empty(0),
    )


def moved_witness(chunk: Chunk) -> Chunk:
    x = chunk.x.copy()
    x[0] = x[-1]
    return replace(chunk, x=x)


def swapped(chunk: Chunk) -> Chunk:
    """Each verdict given to its mirror image."""
    return replace(chunk, status=chunk.status[::-1].copy())


@pytest.mark.parametrize("change", [all_proved, moved_witness, swapped, "goal", "leaves", "tree"])
def test_a_store_that_was_tampered_with_is_rejected(change: Any, tmp_path: Path) -> None:
    case = mixed_case()
    path = tmp_path / "run.sqlite"
    certify_partition(case.query, size=2, store=path)
    assert check(path, model=case.query.model, schema=case.schema).accepted
    match change:
        case "goal":
            rewritten(path, lambda chunk: replace(chunk, goal=1 - chunk.goal))
        case "tree":
            rewritten(path, lambda chunk: replace(chunk, feature=chunk.feature[:-1], cut=chunk.cut[:-1]))
        case "leaves":
            pairs = len(case_pairs(case))
            rewritten(path, lambda chunk: with_leaves(chunk, pairs * len(chunk)))
        case _:
            rewritten(path, change)
    assert not check(path, model=case.query.model, schema=case.schema).accepted


def case_pairs(case: Case) -> set[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Pairs of protected combinations that the query compares."""
    index = [case.schema.index(name) for name in case.query.protected]
    first, second = case.pairs
    return {
        (tuple(case.rows[i, index]), tuple(case.rows[k, index]))
        for i, k, earlier in zip(first.tolist(), second.tolist(), case.first_copy, strict=True)
        if earlier
    }


def test_a_store_about_another_epsilon_network_or_schema_is_rejected(tmp_path: Path) -> None:
    case = mixed_case()
    gaps = case.gaps()
    case = case.asking(epsilon=float(max(gaps) + Decimal("1e-6")), relax={})
    path = tmp_path / "run.sqlite"
    certify_partition(case.query, size=2, store=path)
    assert check(path, model=case.query.model, schema=case.schema).accepted
    other = replace(case.query.model, source_sha256="0" * 64)
    assert not check(path, model=other, schema=case.schema).accepted
    with sqlite3.connect(path) as connection:
        (about,) = connection.execute("SELECT value FROM about").fetchone()
        smaller = float(max(gaps) - Decimal("1e-6"))
        connection.execute("UPDATE about SET value = ?", (about.replace(repr(case.query.epsilon), repr(smaller)),))
    assert not check(path, model=case.query.model, schema=case.schema).accepted


# Certificates that were tampered with: the checker believes no false claim, whatever evidence stands beside it.


def accepted(certificate: Certificate, case: Case) -> bool:
    """Whether the checker believes the certificate once it claims to be about this very network and schema."""
    dressed = replace(
        certificate, network_sha256=case.query.model.source_sha256, schema_sha256=case.schema.sha256,
        features=tuple(feature.name for feature in case.schema.features),
    )
    return vf.check(dressed, model=case.query.model, schema=case.schema).accepted


def proved(style: str, *, count: int, first: int, gap: bool) -> Iterator[tuple[Case, Certificate]]:
    """Queries with what proves them; with `gap` just so."""
    cases = near_cases(style, count, 1e-6, first=first) if gap else small_cases(style, count, first=first)
    for case in cases:
        verdict = verdict_of(case)
        if verdict.status is vf.Status.PROVED and verdict.certificate is not None:
            yield case, verdict.certificate


def with_query(certificate: Certificate, **changes: Any) -> Certificate:
    return replace(certificate, query=replace(certificate.query, **changes))


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("style", STYLES_HERE)
def test_a_wider_claim_is_accepted_only_where_it_is_true(style: str, gap: bool) -> None:
    """A smaller epsilon, fewer constraints, wider relaxation or box, other pairs, other weights: never accepted when false."""
    for case, certificate in proved(style, count=4, first=20, gap=gap):
        rng = np.random.default_rng(case.seed)
        claims: list[tuple[Certificate, Case]] = []
        if gap:
            for off in (1e-15, 1e-12, 1e-9, 1e-3):
                epsilon = float(max(case.gaps(), default=Decimal(0)) - Decimal(off))
                if 1e-9 <= epsilon <= 1 - 1e-9:
                    claims.append((with_query(certificate, epsilon=epsilon), case.asking(epsilon=epsilon)))
        for name, width in case.query.relax.items():
            wider = {name: width + 1}
            claims.append((with_query(certificate, relax=wider), case.asking(relax=wider)))
        whole = {
            name: (float(low), float(high))
            for name, low, high in zip(certificate.features, case.schema.domain.lower, case.schema.domain.upper, strict=True)
        }
        claims.append((with_query(certificate, box=whole), case.asking(box={})))
        claims.append((with_query(certificate, differ="any"), case.asking(differ="any")))
        claims += [(certificate, case.asking(schema=schema)) for schema in with_one_constraint_less(case.schema)]
        claims += [(certificate, case.asking(model=network)) for network in other_networks(case.query.model, rng)]
        for changed, other in claims:
            if len(other.rows) <= 2 * LARGEST and accepted(changed, other):
                assert not other.wrong().any()


def with_one_constraint_less(schema: vf.Schema) -> list[vf.Schema]:
    fields = {name: getattr(schema, name) for name in type(schema).model_fields}
    return [
        vf.Schema.model_validate({**fields, "constraints": (*schema.constraints[:k], *schema.constraints[k + 1 :])})
        for k in range(len(schema.constraints))
    ]


def other_networks(network: Network, rng: np.random.Generator) -> Iterator[Network]:
    """One layer's weights off by about half, and another last bias."""
    k = int(rng.integers(len(network.layers)))
    weight = network.layers[k].weight * (1 + 0.5 * rng.standard_normal(network.layers[k].weight.shape))
    bias = network.layers[-1].bias + rng.standard_normal(network.outputs)
    for position, change in ((k, {"weight": weight}), (len(network.layers) - 1, {"bias": bias})):
        layers = list(network.layers)
        rounded = {name: value.astype(np.float32).astype(float) for name, value in change.items()}
        layers[position] = replace(layers[position], **rounded)
        yield replace(network, layers=tuple(layers))


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("style", ["plain", "integer", "sparse", "duplicate", "blind"])
def test_incomplete_evidence_is_rejected(style: str, gap: bool) -> None:
    """A pair without its proof, a pair proved twice instead, one direction twice, another shift, half a tree."""
    for case, certificate in proved(style, count=6, first=60, gap=gap):
        rng = np.random.default_rng(case.seed)
        proofs = certificate.proofs
        k = int(rng.integers(len(proofs)))
        statement = proofs[k].statement
        reverse = replace(statement, classes=statement.classes[::-1])
        changed: list[Proof | None] = [None, proofs[k - 1], replace(proofs[k], statement=reverse)]
        changed += [
            replace(proofs[k], statement=replace(statement, offset={name: step + one}))
            for name, step in statement.offset.items()
            for one in (-1, 1)
        ]
        for one in changed:
            rest = (*proofs[:k], *([] if one is None else [one]), *proofs[k + 1 :])
            assert not accepted(replace(certificate, proofs=rest), case)
        for at, proof in enumerate(proofs):
            tree = proof.evidence
            if isinstance(tree, Tree) and len(tree.feature) > 1:
                many = slice(int(tree.start[-2]))
                half = Tree(
                    feature=tree.feature[:-1], cut=tree.cut[:-1], start=tree.start[:-1], index=tree.index[many],
                    value=tree.value[many],
                )
                rest = (*proofs[:at], replace(proof, evidence=half), *proofs[at + 1 :])
                assert not accepted(replace(certificate, proofs=rest), case)
                break


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("style", STYLES_HERE)
def test_trees_prove_nothing_false(style: str, gap: bool) -> None:
    """The trees of a query that holds, or a single leaf, as evidence for one that does not."""
    for case in small_cases(style, 4, first=100):
        if gap:
            largest = max(case.gaps(), default=Decimal(0))
            if not Decimal("2e-9") < largest < 1 - Decimal("2e-6"):
                continue
            false, true = (case.asking(epsilon=float(largest + Decimal(off))) for off in ("-1e-9", "1e-6"))
        elif case.wrong().any():
            false, true = case, case.asking(epsilon=1 - 1e-9)
        else:
            continue
        verdict = verdict_of(true)
        if verdict.certificate is None or not false.wrong().any():
            continue
        stolen = with_query(verdict.certificate, epsilon=false.query.epsilon)
        if false.query.epsilon is None:
            stolen = replace(
                stolen,
                proofs=tuple(replace(proof, statement=replace(proof.statement, goal="no-flip")) for proof in stolen.proofs),
            )
        assert not accepted(stolen, false)
        leaf = tuple(replace(proof, evidence=Tree.leaf()) for proof in stolen.proofs)
        assert not accepted(replace(stolen, proofs=leaf), false)


def test_parts_of_deep_networks_come_in_many_chunks(tmp_path: Path) -> None:
    """Their hard parts are to be shared out among processes; of other networks one chunk holds as many parts as fit."""
    case = mixed_case()
    rng = np.random.default_rng(0)
    for depth in (2, 3):
        widths = (case.schema.domain.columns, *(4,) * depth, 1)
        network = replace(random_network(rng, widths), source_sha256=f"{depth:064x}")
        query, path = replace(case.query, model=network), tmp_path / f"{depth}.sqlite"
        certify_partition(query, size=2, store=path)
        with PartitionStore(path) as store:
            sizes = [len(chunk) for chunk in store.chunks()]
        count = partition_of(query, 2, case.box).count
        assert sum(sizes) == count
        assert max(sizes) == (-(-count // 16) if depth == 3 else count)
        assert check(path, model=network, schema=query.schema).accepted
