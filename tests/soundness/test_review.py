"""Defects that a review found, each with the question that showed it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from encoders.exact.dyadic import exact
from encoders.network import Layer, Link, Network
from encoders.problem import Domain, TwinBatch, TwinProblem
from tests.brute_force import fractions
from tests.builders import integer, schema_of
from verifair.checker.check import check
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import decisions
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import OPEN
from verifair.engine.store import Store, VerdictRecord
from verifair.engine.verdict import Status
from verifair.engine.verify import verify
from verifair.errors import QueryError
from verifair.schema.schema import Schema

from .random_twins import PBA


def network(*parts: tuple[np.ndarray, np.ndarray], link: Link = Link.IDENTITY) -> Network:
    layers = tuple(
        Layer(weight=np.asarray(w, dtype=float), bias=np.asarray(b, dtype=float), slope=np.full(len(b), float(k == len(parts) - 1)))
        for k, (w, b) in enumerate(parts)
    )
    return Network(layers=layers, link=link, source_sha256="0" * 64)


@pytest.mark.parametrize("width", [1023, 1024, 1025, 1100, 1500, 2047, 2048, 2049])
def test_exact_products_of_any_width(width: int) -> None:
    rng = np.random.default_rng(width)
    weight = rng.standard_normal((1, width)).astype(np.float32).astype(float)
    x = rng.standard_normal((1, width)).astype(np.float32).astype(float)
    wide = network((weight, np.zeros(1)))
    assert (wide.forward(exact(x)).to_fractions() == wide.forward(fractions(x))).all()


def schema(kind: str) -> Schema:
    age = {"name": "age", "kind": kind, "range": [0, 40], "unit": 1}
    return schema_of(age, integer("sex", 0, 1, protected=True))


@pytest.mark.parametrize("kind", ["real", "integer"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_network_that_ignores_the_protected_feature_is_proved(kind: str, hidden: bool) -> None:
    """Its difference is exactly 0 while the decision changes with age: rounding must not blur the zero."""
    first = (np.array([[0.37, 0.0], [-0.21, 0.0]]), np.array([-5.1, 3.3]))
    parts = [first, (np.array([[1.3, -0.7]]), np.array([-1.1]))] if hidden else [(np.array([[0.37, 0.0]]), np.array([-5.1]))]
    fair = network(*parts)
    query = IndividualFairness(network=fair, schema=schema(kind), protected=["sex"])
    verdict = verify(query)
    assert verdict.status is Status.PROVED
    assert verdict.certificate is not None
    report = check(verdict.certificate, network=fair, schema=query.schema)
    assert report.accepted, report.rejections


def test_a_protected_path_that_is_never_on_is_proved() -> None:
    first, last = (np.array([[0.37, 0.0], [-1.0, 0.5]]), np.array([-5.1, -2.0])), (np.array([[1.3, 4.0]]), np.array([-1.1]))
    dead = network(first, last)
    query = IndividualFairness(network=dead, schema=schema("real"), protected=["sex"])
    verdict = verify(query)
    assert verdict.status is Status.PROVED
    assert verdict.certificate is not None
    assert check(verdict.certificate, network=dead, schema=query.schema).accepted


def test_flips_need_two_classes() -> None:
    three = network((np.ones((3, 2)), np.zeros(3)))
    described = Schema.build({**schema("integer").model_dump(), "positive": "class = 1"})
    with pytest.raises(QueryError, match="two classes, the network has 3"):
        IndividualFairness(network=three, schema=described, protected=["sex"])


def test_a_box_between_neighbouring_floats_ends_unknown() -> None:
    one = np.array([False, True])
    domain = Domain(
        integer=one, lower=np.zeros(2), upper=np.array([2.0, 1.0]), offset=np.zeros(2), scale=np.array([1e-30, 1.0]),
        start=np.arange(2), one_hot=np.array([False, False]), width=np.ones(2, dtype=np.int64),
    )
    low = np.array([[1.0, 0.0]])
    batch = TwinBatch(
        lower=low, upper=np.array([[np.nextafter(1.0, 2.0), 0.0]]), prime=np.array([[1.0, 1.0]]),
        protected=np.array([False, True]),
    )
    steep = network((np.array([[1e-3, 0.0], [-1e-3, 1.0]]), np.zeros(2)), (np.array([[1.0, 1.0]]), np.zeros(1)))
    problem = TwinProblem(network=steep, domain=domain, batch=batch, margin=np.ones(1), goals=PBA)
    decision = decide(problem, seconds=20)
    assert (decision.nodes < 100).all(), "it stops by itself"
    assert all(decision.out_of[0] in ("", "float") for _ in np.argwhere(decision.status == OPEN))


def test_decisions_are_exact_where_terms_cancel() -> None:
    big = 2.0**60
    cancelling = network((np.array([[big, -big, 0.5]]), np.zeros(1)))
    assert decisions(cancelling, np.array([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0]])).tolist() == [1, 0]


def test_a_certificate_without_content_is_rejected() -> None:
    fair = network((np.array([[1.0, 0.0]]), np.zeros(1)))
    query = IndividualFairness(network=fair, schema=schema("integer"), protected=["sex"])
    certificate = verify(query).certificate
    assert certificate is not None
    from dataclasses import replace

    for box in ({"sex": (0.2, 0.8)}, {"sex": (0.0, 0.0)}, {}):
        empty = replace(certificate, proofs=(), query=replace(certificate.query, box={**certificate.query.box, **box}))
        assert not check(empty, network=fair, schema=query.schema).accepted


def test_a_decided_verdict_is_never_overwritten(tmp_path: Path) -> None:
    def record(status: str, reason: str) -> VerdictRecord:
        return VerdictRecord(
            sensitive="sex", goal="observed", delta=1.0, row=0, to=1.0, against=0, group=0.0, label=1, status=status, reason=reason,
            lower=0.0, upper=0.0, engine="", trust="", float32_agrees=None, nodes=0, witness=None, margins=None, tree=None,
            claim=None,
        )

    with Store(tmp_path / "v.sqlite") as store:
        store.begin("run", {}, resume=False)
        for status, reason in (("unknown", "time"), ("violated", ""), ("unknown", "time")):
            store.add("run", [record(status, reason)])
        assert store.frame("run")["status"].tolist() == ["violated"]
