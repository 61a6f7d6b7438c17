"""Every kind of certificate: it loads as it was saved, and what was changed, is malformed or is about something else is refused."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pandas as pd
import pytest

import verifair as vf
from encoders.network import Network
from encoders.onnx.product_network import network_model
from encoders.onnx.reader import read_onnx
from encoders.vnnlib.reader import read_vnnlib
from solvers.outcome import Budget
from tests.builders import SHA, categorical, integer, linear_network, real, schema_of
from verifair.checker.certificates.centers import CentersCertificate
from verifair.checker.certificates.certificate import Certificate, Proof
from verifair.checker.certificates.consistency import ConsistencyCertificate
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.kmax import KmaxCertificate
from verifair.checker.certificates.statement import RowsQuery, RowStatement
from verifair.checker.certificates.tree import Tree
from verifair.checker.check import check
from verifair.engine.buckets.kmax import kmax
from verifair.engine.queries import KDiscrimination
from verifair.errors import CertificateError
from verifair.interop import certificate as vnnlib
from verifair.interop.decide import decide
from verifair.systems.cec.audit import audit
from verifair.systems.cec.certified import certify_consistency
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import merit_columns, people_of
from verifair.systems.cst.causal.mechanisms import Linear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.robustness.certified import certify_counterfactuals

SCHEMA = schema_of(
    real("income", 0, 10, unit=1, merit=True), integer("years", 0, 9), categorical("sex", "f", "m", protected=True),
    positive="logit > 0", label="good", positive_label="yes",
)
NETWORK = linear_network(1.0, 0.0, 0.0, bias=-6.0)
"""Positive where income exceeds 6."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One certificate, its class, and the rejections of a file or of a changed certificate."""

    certificate: Any
    of: Any
    rejections: Callable[..., list[str]]
    format: str


def own(certificate: Any, checker: Callable[..., Any]) -> Kind:
    """A kind about one network and one schema."""

    def rejections(given: Any, network: Network = NETWORK, schema: vf.Schema = SCHEMA) -> list[str]:
        report = checker(given, model=network, schema=schema)
        assert report.accepted == (not report.rejections and report.extent.whole)
        return [str(one) for one in report.rejections]

    return Kind(certificate=certificate, of=type(certificate), rejections=rejections, format=type(certificate).FORMAT)


def rows() -> Kind:
    statement = RowStatement(goal="robust", row=(2, 3, 1), delta=1, classes=(0, 1))
    return own(Certificate(
        network_sha256=SHA, schema_sha256=SCHEMA.sha256, semantics=semantics(NETWORK), features=("income", "years", "sex"),
        query=RowsQuery(kind="robustness", protected=("sex",), delta=(1,)),
        proofs=(Proof(statement=statement, evidence=Tree.leaf()),),
    ), check)


def fairness() -> Kind:
    return own(vf.verify(vf.IndividualFairness(model=NETWORK, schema=SCHEMA, protected=["sex"])).certificate, check)


def counterfactuals() -> Kind:
    income = Node(name="income", parents=("sex",), mechanism=Linear(coefficients={"sex": {"m": 1.0}}))
    found = certify_counterfactuals(
        causal_model=CausalModel(nodes=(Node(name="sex"), income)), model=NETWORK, schema=SCHEMA, do={"sex": "m"},
        frame=pd.DataFrame({"income": [2.0, 4.0], "years": [1, 2], "sex": ["f", "m"]}), errors={"income": {"sex = m": 0.25}},
    )
    return own(found.certificate, check)


def buckets() -> Kind:
    return own(kmax(KDiscrimination(model=NETWORK, schema=SCHEMA, protected=["sex"]), budget=Budget(seconds=20)).certificate,
               check)


def consistency() -> Kind:
    frame = pd.DataFrame({"income": [9.0, 8.0, 2.0, 1.0, 9.0, 8.0], "years": [1, 1, 3, 3, 5, 5], "sex": list("fmfmfm")})
    frame["good"] = ["yes"] * 4 + ["no"] * 2
    people = people_of(SCHEMA, frame, "sex")
    reference = Reference.of(people, merit_columns(SCHEMA))
    measured = audit(NETWORK, reference, people, threads=1)
    return own(certify_consistency(NETWORK, SCHEMA, measured, reference, people, 1.0).certificate, check)


@pytest.fixture(scope="session")
def query(tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """An unsat VNN-LIB query: 2 x is never below -0.01 for x in [0, 1]."""
    folder = tmp_path_factory.mktemp("query")
    onnx.save(network_model(linear_network(2.0), {}), folder / "net.onnx")
    (folder / "q.vnnlib").write_text(
        "(declare-const X_0 Real) (declare-const Y_0 Real) (assert (>= X_0 0.0)) (assert (<= X_0 1.0)) (assert (<= Y_0 -0.01))")
    asked, network = read_vnnlib(folder / "q.vnnlib"), read_onnx(folder / "net.onnx")

    def rejections(given: Any) -> list[str]:
        loaded = vnnlib.VnnlibCertificate.load(given) if isinstance(given, Path) else given
        return vnnlib.rejections(loaded, asked, [network])

    return Kind(certificate=decide(asked, [network], budget=Budget(seconds=20), method="bnb").certificate,
                of=vnnlib.VnnlibCertificate, rejections=rejections, format=vnnlib.FORMAT)


def centers() -> Kind:
    table = pd.DataFrame({"income": [1.0, 2.0, 3.0, 4.0, 7.0, 8.0, 9.0, 6.5], "years": [1, 2, 5, 4, 2, 5, 6, 9]})
    table["sex"] = list("ffffffmm")
    model = vf.GroupCounterfactuals(NETWORK, SCHEMA, k=2, coverage=0.75, eps=2.0, changes={"sex": "free"}).fit(table)
    return own(model.prove_optima(), check)


OWN = {"rows": cache(rows), "fairness": cache(fairness), "counterfactuals": cache(counterfactuals), "kmax": cache(buckets),
       "consistency": cache(consistency), "centers": cache(centers)}
each = pytest.mark.parametrize("name", [*OWN, "vnnlib"])


@pytest.fixture
def kind(name: str, request: pytest.FixtureRequest) -> Kind:
    return OWN[name]() if name in OWN else request.getfixturevalue("query")


def content(kind: Kind, folder: Path) -> dict[str, Any]:
    kind.certificate.save(folder / "proof.json")
    return json.loads((folder / "proof.json").read_text())


def refused(kind: Kind, folder: Path, text: bytes | str) -> str:
    """What is said of a file with this content."""
    path = folder / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CertificateError, match=rf"bad\.json: .*expected a {kind.format} file") as caught:
        kind.of.load(path)
    return str(caught.value)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON value whose fields are the format's, that is not those of boxes and other tables by name."""
    if isinstance(value, dict):
        if value and not {"income", "sex", ""} & set(value):
            yield value
        for inner in value.values():
            yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


@each
def test_a_true_certificate_is_accepted_and_comes_back_as_it_was(kind: Kind, tmp_path: Path) -> None:
    assert kind.rejections(kind.certificate) == []
    for name in ("proof.json", "proof.json.gz", "again.json"):
        certificate = kind.certificate if name != "again.json" else kind.of.load(tmp_path / "proof.json.gz")
        certificate.save(tmp_path / name)
        assert kind.of.load(tmp_path / name).intact
        assert kind.rejections(tmp_path / name) == []
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "proof.json").read_bytes()
    assert gzip.decompress((tmp_path / "proof.json.gz").read_bytes()) == (tmp_path / "proof.json").read_bytes()


@each
def test_a_changed_file_is_noticed_by_its_digest(kind: Kind, tmp_path: Path) -> None:
    raw = content(kind, tmp_path)
    for field in ("semantics", "digest"):
        other = {"semantics": "any", "digest": "f" * 64}[field]
        (tmp_path / "proof.json").write_text(json.dumps({**raw, field: other}))
        assert not kind.of.load(tmp_path / "proof.json").intact
        assert "digest" in kind.rejections(tmp_path / "proof.json")[0]


@each
def test_fields_that_are_unknown_or_missing_are_refused(kind: Kind, tmp_path: Path) -> None:
    raw = content(kind, tmp_path)
    for one in objects(raw):
        one["extra"] = 1
        assert "extra" in refused(kind, tmp_path, json.dumps(raw)) or raw is not one
        del one["extra"]
    for field in raw:
        refused(kind, tmp_path, json.dumps({name: value for name, value in raw.items() if name != field}))


@each
@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"[]", b"null", b"{}", b"[" * 200_000, b'{"format": NaN}'])
def test_what_is_no_certificate_is_one_clear_error(kind: Kind, text: bytes, tmp_path: Path) -> None:
    refused(kind, tmp_path, text)


@each
def test_other_formats_and_files_that_cannot_be_read_are_refused(kind: Kind, tmp_path: Path) -> None:
    raw = content(kind, tmp_path)
    refused(kind, tmp_path, json.dumps(raw)[:-20])
    refused(kind, tmp_path, json.dumps({**raw, "format": kind.format[:-1] + "9"}))
    (tmp_path / "text.json.gz").write_bytes(b"{}")
    kind.certificate.save(tmp_path / "short.json.gz")
    (tmp_path / "short.json.gz").write_bytes((tmp_path / "short.json.gz").read_bytes()[:-12])
    for path in (tmp_path / "text.json.gz", tmp_path / "short.json.gz", tmp_path / "absent.json", tmp_path):
        with pytest.raises(CertificateError, match=str(path)):
            kind.of.load(path)


@pytest.mark.parametrize("name", OWN)
def test_another_network_or_schema_is_told(kind: Kind, tmp_path: Path) -> None:
    features = [feature.model_dump() for feature in SCHEMA.features]
    features[1]["range"] = (0, 8)
    told = {
        "another network": kind.rejections(kind.certificate, network=replace(NETWORK, source_sha256="2" * 64)),
        "another schema": kind.rejections(kind.certificate, schema=schema_of(*features, positive="logit > 0")),
        "in order": kind.rejections(replace(kind.certificate, features=kind.certificate.features[::-1])),
        "semantics": kind.rejections(replace(kind.certificate, semantics="approximately")),
        "sha256 111111111111": kind.rejections(replace(kind.certificate, network_sha256="1" * 64)),
        "sha256 333333333333": kind.rejections(replace(kind.certificate, schema_sha256="3" * 64)),
        "digest": kind.rejections(replace(kind.certificate, intact=False)),
    }
    assert {text for text, found in told.items() if not any(text in one for one in found)} == set()


@pytest.mark.parametrize("name", OWN)
def test_another_network_under_the_same_digest_is_refuted_by_the_proofs(kind: Kind) -> None:
    """Its hash is forged: then the bounds themselves have to tell."""
    turned = linear_network(-1.0, 0.0, 7.0, bias=3.5)
    assert kind.rejections(kind.certificate, network=turned)


def test_every_kind_is_here() -> None:
    assert {KmaxCertificate, ConsistencyCertificate, CentersCertificate, Certificate} == {OWN[name]().of for name in OWN}
