"""Certified regime A: what is certified holds at every row of the neighbourhoods, is re-proved, and no tampering passes."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from encoders.arrays import Array
from encoders.domain import Regions
from encoders.network import Network
from solvers.outcome import Budget
from tests.builders import categorical, integer, one_hot, random_network, real, schema_of
from verifair.checker.certificates.consistency import ConsistencyCertificate
from verifair.checker.certificates.tree import Tree
from verifair.checker.check import check
from verifair.checker.kinds.consistency import _leaves, _near, explanation_bounds, leaf_flaw
from verifair.engine.questions import decisions
from verifair.errors import CertificateError, DataError, QueryError, SchemaError
from verifair.schema.schema import Schema
from verifair.systems.cec import certified
from verifair.systems.cec.audit import ComparedPairs, audit
from verifair.systems.cec.certified import CertifiedConsistency, SubBox, certify_consistency, raw_rows
from verifair.systems.cec.explanations import cec_score, explanations
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People, merit_columns, people_of
from verifair.systems.cec.settings import CecSettings

FEATURES: list[dict[str, Any]] = [
    integer("income", 0, 12, scale="minmax", unit=1, merit=True),
    integer("debt", -40, 40, scale="minmax", unit=5, merit=True),
    real("rate", 0, 3, scale="minmax"),
    one_hot("job", "a", "b", "c"),
    integer("age", 0, 9, unit=1, protected=True),
    categorical("sex", "F", "M", protected=True),
]
LABEL = {"positive": "class = 1", "label": "good", "positive_label": "yes"}
SCHEMA = schema_of(*FEATURES, **LABEL)
STILL = schema_of(*({**f, "unit": None} for f in FEATURES), **LABEL)
NETWORK = replace(random_network(np.random.default_rng(5), (8, 12, 8, 2)), source_sha256="0" * 64)


def table(rows: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "income": rng.integers(0, 13, rows), "debt": rng.integers(-40, 41, rows), "rate": rng.random(rows).round(3) * 3,
        "job": rng.choice(list("abc"), rows), "age": rng.integers(0, 10, rows), "sex": rng.choice(["F", "M"], rows),
        "good": rng.choice(["yes", "no"], rows),
    })


FRAME = table()


def people(schema: Schema = SCHEMA) -> tuple[People, Reference]:
    read = people_of(schema, FRAME, "sex")
    return read, Reference.of(read, merit_columns(schema))


def run(
    delta: float, *, schema: Schema = SCHEMA, network: Network = NETWORK, threshold: float = 0.5, budget: Budget | None = None
) -> tuple[CertifiedConsistency, ComparedPairs, Reference]:
    who, reference = people(schema)
    measured = audit(network, reference, who, CecSettings(threshold=threshold), threads=1)
    return certify_consistency(network, schema, measured, reference, who, delta, budget=budget), measured, reference


FOUND, MEASURED, REFERENCE = run(1.0)
CERTIFICATE = FOUND.certificate


def neighbours(row: Array, delta: float) -> Array:
    """All rows within delta units of a row whose income and debt move, by the definition."""
    income = [v for v in range(13) if abs(v - row[0]) <= delta]
    debt = [v for v in range(-40, 41) if abs(v - row[1]) <= 5 * delta]
    return np.array([[a, b, *row[2:]] for a, b in itertools.product(income, debt)])


def test_some_are_certified_and_some_are_not() -> None:
    assert FOUND.candidates == (MEASURED.regime == "A").sum() > 10
    assert 0 < FOUND.certified.sum() < FOUND.candidates
    assert FOUND.share == FOUND.certified.sum() / FOUND.candidates
    assert (FOUND.reason[FOUND.certified] == "").all()
    assert (FOUND.reason[~FOUND.certified] != "").all()
    assert (np.isnan(FOUND.bound) == ~FOUND.certified).all()
    assert sum(FOUND.reasons.values()) == (~FOUND.certified).sum()


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.85])
def test_what_is_certified_holds_at_every_row_of_the_neighbourhoods(threshold: float) -> None:
    found, measured, reference = run(1.0, threshold=threshold)
    baseline = reference.baseline(measured.people)
    raw = raw_rows(SCHEMA, measured.people.x)
    chosen = np.flatnonzero(found.certified)
    assert len(chosen)
    for pair in chosen[:15]:
        person, counterpart = measured.individual[pair], measured.counterpart[pair]
        x, y = (SCHEMA.encode(neighbours(raw[row], 1.0)) for row in (person, counterpart))
        g, h = (explanations(NETWORK, z, np.tile(baseline[person], (len(z), 1)), threads=1) for z in (x, y))
        score = cec_score(np.repeat(g, len(h), axis=0), np.tile(h, (len(g), 1)))
        assert score.max() <= found.bound[pair] < threshold
        assert len(set(decisions(NETWORK, x)) | set(decisions(NETWORK, y))) == 1


def test_a_pair_as_it_is_is_certified_where_its_score_is_clearly_below() -> None:
    found, measured, _ = run(0.0)
    clearly = (measured.regime == "A") & (measured.score < 0.49)
    assert clearly.any()
    assert found.certified[clearly].all()
    assert (found.bound >= found.score)[found.certified].all()
    assert (found.reason[measured.regime != "A"] == "not in regime A").all()


def test_larger_neighbourhoods_certify_fewer() -> None:
    shares = [run(delta)[0].certified for delta in (0.0, 1.0, 3.0)]
    assert (shares[2] <= shares[1]).all()
    assert (shares[1] <= shares[0]).all()
    assert shares[2].sum() < shares[0].sum()


def test_more_boxes_decide_more() -> None:
    few, _, _ = run(1.0, budget=Budget(nodes=2))
    assert (few.certified <= FOUND.certified).all()
    assert set(few.reasons) & {"score", "decision"}
    assert few.certified.sum() < FOUND.certified.sum()
    assert (few.boxes[few.certified] == 2).all()
    assert FOUND.boxes[FOUND.certified].max() > 2


def test_when_time_is_up_what_is_left_is_unknown() -> None:
    found, measured, _ = run(1.0, budget=Budget(seconds=1e-9))
    assert not found.certified.any()
    assert set(found.reason[measured.regime == "A"]) == {"time"}
    assert not len(found.certificate)


def test_corners_in_another_regime_are_found_before_boxes_are_cut() -> None:
    found, _, _ = run(3.0, budget=Budget(nodes=2))
    assert found.reasons["leaves A"] > 0
    assert (found.boxes[found.reason == "leaves A"] == 2).all()


@pytest.mark.parametrize("delta", [-1.0, float("nan"), float("inf")])
def test_a_delta_that_cannot_be_is_refused(delta: float) -> None:
    with pytest.raises(QueryError, match=r"delta = .*expected a number of units"):
        run(delta)


def test_without_units_only_the_pairs_themselves_can_be_certified() -> None:
    assert run(0.0, schema=STILL)[0].certified.any()
    with pytest.raises(SchemaError, match="unit"):
        run(1.0, schema=STILL)


@pytest.mark.parametrize("by", [1e-4, 10.0])  # between two whole numbers, and beyond the range
def test_people_who_are_no_rows_of_the_schema_are_refused(by: float) -> None:
    who, reference = people()
    other = who.fed(who.x + np.where(np.arange(8) == 0, by, 0.0))
    measured = audit(NETWORK, reference, other, threads=1)
    with pytest.raises(DataError, match="no row of the schema"):
        certify_consistency(NETWORK, SCHEMA, measured, reference, other, 1.0)


def test_raw_rows_are_read_back_from_network_inputs() -> None:
    raw = SCHEMA.raw(FRAME)
    found = raw_rows(SCHEMA, SCHEMA.encode(raw))
    whole = SCHEMA.domain.integer
    assert (found[:, whole] == raw[:, whole]).all()
    assert found == pytest.approx(raw, abs=1e-6)


def test_a_row_at_the_end_of_a_range_that_is_no_float32_stays_within_it() -> None:
    schema = schema_of(real("share", 0, 0.1), **LABEL)
    raw = np.array([[0.1], [0.05], [0.0]])
    found = raw_rows(schema, schema.domain.encode(raw))
    assert schema.domain.within(found).all()
    assert found == pytest.approx(raw, abs=1e-8)


# The certificate


def report(given: ConsistencyCertificate | Path, network: Network = NETWORK, schema: Schema = SCHEMA) -> str:
    found = check(given, model=network, schema=schema)
    assert found.accepted == (not found.rejections and found.extent.whole)
    return "; ".join(map(str, found.rejections))


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0])
def test_a_true_certificate_is_accepted(delta: float) -> None:
    given = run(delta)[0].certificate
    seen: list[tuple[int, int]] = []
    found = check(given, model=NETWORK, schema=SCHEMA, progress=lambda done, of: seen.append((done, of)))
    assert replace(found, partial=True).accepted, found.rejections
    assert found.accepted == (len(given) == found.extent.total), "a pair without a proof is left out of the statement"
    assert found.proofs == len(given) > 0
    assert found.leaves == sum((tree.feature == -1).sum() for tree in given.trees) >= len(given)
    assert seen[-1] == (len(given), len(given))


def shifted(array: Array, column: int, by: float) -> Array:
    out = array.copy()
    out[:, column] += by
    return out


def weaker(network: Network) -> Network:
    """Another network under the same name: some neuron is turned."""
    first = network.layers[0]
    return replace(network, layers=(replace(first, weight=-first.weight), *network.layers[1:]))


TAMPERED: dict[str, Callable[[], ConsistencyCertificate]] = {
    "delta": lambda: replace(CERTIFICATE, query=replace(CERTIFICATE.query, delta=4.0)),
    "threshold": lambda: replace(CERTIFICATE, query=replace(CERTIFICATE.query, threshold=0.2)),
    "epsilon": lambda: replace(CERTIFICATE, query=replace(CERTIFICATE.query, epsilon=0.5)),
    "row": lambda: replace(CERTIFICATE, rows=np.roll(CERTIFICATE.rows, 1, axis=0)),
    "counterpart": lambda: replace(CERTIFICATE, counterparts=np.roll(CERTIFICATE.counterparts, 3, axis=0)),
    "baseline": lambda: replace(CERTIFICATE, baselines=SCHEMA.encode(CERTIFICATE.rows), baseline=np.arange(len(CERTIFICATE))),
    "outside": lambda: replace(CERTIFICATE, rows=shifted(CERTIFICATE.rows, 0, 20.0)),
    "between": lambda: replace(CERTIFICATE, rows=shifted(CERTIFICATE.rows, 1, 0.5)),
    "columns": lambda: replace(CERTIFICATE, baselines=CERTIFICATE.baselines[:, 1:]),
    "empty": lambda: replace(CERTIFICATE, rows=CERTIFICATE.rows[:0], counterparts=CERTIFICATE.counterparts[:0],
                             baseline=CERTIFICATE.baseline[:0], trees=()),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_tampered_with_is_rejected(what: str, tmp_path: Path) -> None:
    TAMPERED[what]().save(tmp_path / "pairs.json")  # with a digest that fits
    assert report(tmp_path / "pairs.json")


def test_weights_that_were_changed_are_found_out_by_the_bounds() -> None:
    assert "not confirmed" in report(CERTIFICATE, network=weaker(NETWORK)) or "differ" in report(
        CERTIFICATE, network=weaker(NETWORK)
    )


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.85])
def test_what_is_written_has_room_for_rounding(threshold: float) -> None:
    """One leaf at a time, in the reverse order, with twice the rounding errors: the rule still holds."""
    given = run(1.0, threshold=threshold)[0].certificate
    lower, upper = (np.stack(ends, axis=1) for ends in zip(
        *(_near(SCHEMA, rows, 1.0) for rows in (given.rows, given.counterparts)), strict=True))
    for pair, tree in enumerate(given.trees):
        root = Regions.whole(lower[pair].ravel(), upper[pair].ravel())
        leaves = _leaves(tree, int(given.baseline[pair]), root, SCHEMA.domain)
        assert not isinstance(leaves, str)
        for leaf in leaves[::-1]:
            sides = []
            for slices, baseline, *ends in leaf:
                box = SCHEMA.domain.box(np.array([ends[:6]]), np.array([ends[6:]]))
                margin, start = np.array([-1.0, 1.0]), given.baselines[[int(baseline)]]
                sides += explanation_bounds(NETWORK, margin, start, *box, int(slices), room=2.0)
            assert leaf_flaw(*sides, threshold) is None


# Trees that are none, of something else, or of what is false

CUT = int(np.argmax([len(tree.feature) for tree in CERTIFICATE.trees]))
"""The pair that took the most cuts."""


def only(pair: int, tree: Tree, given: ConsistencyCertificate = CERTIFICATE) -> ConsistencyCertificate:
    """One pair of the certificate, with another tree."""
    one = slice(pair, pair + 1)
    return replace(
        given, rows=given.rows[one], counterparts=given.counterparts[one], baseline=given.baseline[one], trees=(tree,), undecided=0
    )


def tree_of(splits: list[tuple[int, float] | None], slices: tuple[float, ...] = ()) -> Tree:
    """A tree from its nodes in preorder, None for a leaf; all leaves have the same slices."""
    counts = np.array([0 if split else len(slices) for split in splits])
    return Tree(
        feature=np.array([split[0] if split else -1 for split in splits]),
        cut=np.array([split[1] if split else 0.0 for split in splits]),
        start=np.cumsum([0, *counts]), index=np.tile(np.arange(len(slices)), int((counts > 0).sum())),
        value=np.tile(slices, int((counts > 0).sum())),
    )


def without_last(tree: Tree) -> Tree:
    end = int(tree.start[-2])
    return replace(
        tree, feature=tree.feature[:-1], cut=tree.cut[:-1], start=tree.start[:-1], index=tree.index[:end], value=tree.value[:end]
    )


def doubled(tree: Tree) -> Tree:
    return replace(
        tree, feature=np.append(tree.feature, -1), cut=np.append(tree.cut, 0.0), start=np.append(tree.start, tree.start[-1])
    )


def recut(tree: Tree, feature: int, cut: float) -> Tree:
    """The same with another split at its root."""
    splits = tree.feature.copy(), tree.cut.copy()
    splits[0][0], splits[1][0] = feature, cut
    return replace(tree, feature=splits[0], cut=splits[1])


FORGED: dict[str, tuple[str, Callable[[Tree], Tree]]] = {
    "a leaf is missing": ("missing", without_last),
    "all leaves are missing": ("missing", lambda tree: tree_of([(0, 1.0)])),
    "a leaf stands in it twice": ("left over", doubled),
    "it is cut off at its root": ("not confirmed", lambda tree: tree_of([None])),
    "a cut below its box": ("outside the box", lambda tree: recut(tree, int(tree.feature[0]), -1e6)),
    "a cut above its box": ("outside the box", lambda tree: recut(tree, int(tree.feature[0]), 1e6)),
    "a cut between whole numbers": ("outside the box", lambda tree: recut(tree, int(tree.feature[0]), tree.cut[0] + 0.5)),
    "a cut of what does not move": ("outside the box", lambda tree: recut(tree, 5, 0.0)),
    "a feature that is none": ("does not exist", lambda tree: recut(tree, 12, 0.0)),
    "a neuron": ("does not exist", lambda tree: recut(tree, -2, 0.0)),
    "no nodes": ("do not fit", lambda tree: tree_of([])),
    "fewer cuts than nodes": ("do not fit", lambda tree: replace(tree, cut=tree.cut[:-1])),
    "no starts": ("do not fit", lambda tree: replace(tree, start=tree.start[:0])),
    "starts out of order": ("not in order", lambda tree: replace(tree, start=np.append(tree.start[:-1], len(tree.index) + 1))),
    "slices of a third side": ("multipliers", lambda tree: tree_of([None], (16, 16, 16))),
    **{
        f"{count} slices": ("multipliers", lambda tree, count=count: tree_of([None], (16, count)))
        for count in (0, -16, 3, 15, 0.5, 16.5, 8192, 1e30, float("nan"), float("inf"))
    },
}


@pytest.mark.parametrize("what", FORGED)
def test_a_tree_that_is_none_is_rejected(what: str) -> None:
    reason, forge = FORGED[what]
    tree = CERTIFICATE.trees[CUT]
    assert not report(only(CUT, tree))
    assert reason in report(only(CUT, forge(tree)))


def test_another_pair_s_tree_proves_nothing_or_what_is_true() -> None:
    """It is about features and cuts of another neighbourhood."""
    found = [report(only(CUT, tree)) for pair, tree in enumerate(CERTIFICATE.trees) if pair != CUT]
    assert sum(map(bool, found)) > len(found) / 2


def test_with_fewer_slices_less_is_accepted_and_with_more_all() -> None:
    accepted = []
    for count in (1.0, 4.0, 16.0, 64.0):
        trees = tuple(
            tree_of([(int(v), c) if v >= 0 else None for v, c in zip(tree.feature, tree.cut, strict=True)], (count, count))
            for tree in CERTIFICATE.trees
        )
        rejected = check(replace(CERTIFICATE, trees=trees), model=NETWORK, schema=SCHEMA).rejections
        assert {one.reason for one in rejected} <= {"the score is not confirmed", "the decision is not confirmed"}
        accepted.append(len(trees) - len(rejected))
    assert accepted == sorted(accepted)
    assert accepted[0] < accepted[-1] == len(CERTIFICATE)


def random_tree(rng: np.random.Generator, lower: Array, upper: Array, depth: int) -> list[tuple[int, float] | None]:
    """Nodes in preorder of whole boxes (12,), (12,) cut at random, `depth` times at most on every way."""
    moves = np.flatnonzero(lower < upper)
    if not len(moves) or not depth:
        return [None]
    v = int(rng.choice(moves))
    at = float(rng.integers(int(lower[v]), int(upper[v])))
    left, right = upper.copy(), lower.copy()
    left[v], right[v] = at, at + 1
    return [(v, at), *random_tree(rng, lower, left, depth - 1), *random_tree(rng, right, upper, depth - 1)]


@pytest.mark.parametrize("pair", [CUT, 0, 1, 2])
def test_no_tree_proves_what_brute_force_refutes(pair: int) -> None:
    """The threshold is just below the largest score of all rows of the two neighbourhoods; the last tree cuts down to points."""
    rng = np.random.default_rng(pair)
    baseline = CERTIFICATE.baselines[CERTIFICATE.baseline[pair]]
    near = [neighbours(rows[pair], 1.0) for rows in (CERTIFICATE.rows, CERTIFICATE.counterparts)]
    near = [rows[SCHEMA.domain.within(rows)] for rows in near]
    g, h = (explanations(NETWORK, x, np.tile(baseline, (len(x), 1)), threads=1) for x in map(SCHEMA.encode, near))
    worst = float(cec_score(np.repeat(g, len(h), axis=0), np.tile(h, (len(g), 1))).max())
    lower, upper = (np.concatenate([getattr(rows, end)(axis=0) for rows in near]) for end in ("min", "max"))
    trees = [CERTIFICATE.trees[pair]]
    trees += [tree_of(random_tree(rng, lower, upper, depth), (2.0**k, 2.0**k)) for depth in range(5) for k in (0, 4, 8)]
    points = tree_of(random_tree(rng, lower, upper, 99), (256.0, 256.0))
    for tree in (*trees, points):
        below = replace(CERTIFICATE, query=replace(CERTIFICATE.query, threshold=worst * (1 - 1e-9)))
        assert "not confirmed" in report(only(pair, tree, below))
    above = replace(CERTIFICATE, query=replace(CERTIFICATE.query, threshold=worst + 1e-3))
    assert not report(only(pair, points, above)), "points are bounded closely"


def edited(path: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    CERTIFICATE.save(path)
    raw = json.loads(path.read_text())
    edit(raw)
    path.write_text(json.dumps(raw))
    return path


@pytest.mark.parametrize("edit", [
    lambda raw: raw["pairs"][0].update(row=[1.0]),
    lambda raw: raw["pairs"][0].update(baseline=99),
    lambda raw: raw["pairs"][0].update(tree=None),
    lambda raw: raw["pairs"][0]["tree"].pop("cut"),
    lambda raw: raw["pairs"][0]["tree"].update(feature=[]),
    lambda raw: raw["pairs"][0]["tree"].update(cut=[float("inf")]),
    lambda raw: raw["pairs"][0].update(boxes=2),
    lambda raw: raw["pairs"][0].pop("counterpart"),
    lambda raw: raw["pairs"][0]["row"].__setitem__(0, float("nan")),
    lambda raw: raw["pairs"][0]["row"].__setitem__(0, "1"),
    lambda raw: raw["baselines"].append([0.0]),
    lambda raw: raw["query"].update(threshold=1.5),
    lambda raw: raw["query"].update(delta=-1.0),
    lambda raw: raw.update(network_sha256="x"),
])
def test_what_is_no_certificate_is_refused(edit: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=ConsistencyCertificate.FORMAT):
        ConsistencyCertificate.load(edited(tmp_path / "pairs.json", edit))


def test_pairs_are_begun_as_many_at_a_time_as_fit_and_none_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, whole = list[int](), certified.bounded

    def bounded(*given: Any) -> list[SubBox]:
        looked.append(len(given[2]))
        return whole(*given)

    monkeypatch.setattr(certified, "bounded", bounded)
    found, measured, _ = run(1.0, budget=Budget(seconds=1e-9))
    assert not looked
    assert set(found.reason[measured.regime == "A"]) == {certified.TIME}
    assert found.certificate.not_reached > 0 == found.certificate.undecided
    a_pair = 2 * certified.SLICES * NETWORK.work
    monkeypatch.setattr(certified, "SECONDS_A_SLICE", 10 / a_pair)  # half of the minute is three pairs
    run(1.0, budget=Budget(seconds=60.0))
    assert looked[0] <= 3
