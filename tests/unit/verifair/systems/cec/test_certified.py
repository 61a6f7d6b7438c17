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

from encoders.network import Array, Network
from solvers.outcome import Budget
from tests.builders import categorical, integer, one_hot, random_network, real, schema_of
from verifair.checker.check import check
from verifair.checker.consistency_certificate import ConsistencyCertificate
from verifair.engine.questions import decisions
from verifair.errors import CertificateError, DataError, QueryError, SchemaError
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import Audit, audit
from verifair.systems.cec.certified import CertifiedConsistency, certify_consistency, raw_rows
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
) -> tuple[CertifiedConsistency, Audit, Reference]:
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
    other = replace(who, x=who.x + np.where(np.arange(8) == 0, by, 0.0))
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
    found = check(given, network=network, schema=schema)
    assert found.accepted == (not found.rejections and found.extent.whole)
    return "; ".join(map(str, found.rejections))


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0])
def test_a_true_certificate_is_accepted(delta: float) -> None:
    given = run(delta)[0].certificate
    seen: list[tuple[int, int]] = []
    found = check(given, network=NETWORK, schema=SCHEMA, progress=lambda done, of: seen.append((done, of)))
    assert replace(found, partial=True).accepted, found.rejections
    assert found.accepted == (len(given) == found.extent.total), "a pair without a proof is left out of the statement"
    assert found.proofs == len(given) > 0
    assert found.leaves >= 2 * len(given)
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
                             baseline=CERTIFICATE.baseline[:0], boxes=CERTIFICATE.boxes[:0]),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_tampered_with_is_rejected(what: str, tmp_path: Path) -> None:
    TAMPERED[what]().save(tmp_path / "pairs.json")  # with a digest that fits
    assert report(tmp_path / "pairs.json")


def test_weights_that_were_changed_are_found_out_by_the_bounds() -> None:
    assert "not confirmed" in report(CERTIFICATE, network=weaker(NETWORK)) or "differ" in report(
        CERTIFICATE, network=weaker(NETWORK)
    )


def test_the_boxes_are_only_a_hint() -> None:
    assert not report(replace(CERTIFICATE, boxes=np.full(len(CERTIFICATE), 2)))


def edited(path: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    CERTIFICATE.save(path)
    raw = json.loads(path.read_text())
    edit(raw)
    path.write_text(json.dumps(raw))
    return path


@pytest.mark.parametrize("edit", [
    lambda raw: raw["pairs"][0].update(row=[1.0]),
    lambda raw: raw["pairs"][0].update(baseline=99),
    lambda raw: raw["pairs"][0].update(boxes=0),
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
