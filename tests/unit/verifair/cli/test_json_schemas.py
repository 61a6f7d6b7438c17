"""The JSON schemas: valid themselves, made from the types as they are, one for each verb, and strict."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator, ValidationError

from solvers.outcome import Termination
from tests.audit_sample import audit
from verifair.checker.certificates.certificate import Certificate, Claim, Proof
from verifair.checker.certificates.statement import BoxQuery, BoxStatement
from verifair.checker.certificates.tree import Tree
from verifair.cli import schema as json_schemas
from verifair.cli.main import verbs
from verifair.engine.verdict import Reason, Status
from verifair.errors import QueryError
from verifair.systems.results.files import plain
from verifair.systems.results.findings import Standing

SILENT = {"schema"}
"""Verbs without an answer of their own."""


def certify(**changes: Any) -> dict[str, Any]:
    """An unknown verdict as `verifair certify` writes it."""
    answer: dict[str, Any] = {
        "status": "unknown", "reason": "time", "witness": None, "lower": None, "upper": 0.5, "certificate": None, "engine": "bnb",
        "semantics": "real-valued", "float32": None, "seconds": 1.5, "outcomes": [], "model_sha256": "0" * 64,
        "schema_sha256": "0" * 64, "seed": 0,
        "query": {
            "kind": "individual-fairness", "protected": ["sex"], "classes": "favourable",
            "box": {"age": [20, 30]}, "differ": "all", "relax": {},
            "epsilon": None, "scale": None, "epsilon_of": None, "signs": "deployed", "arithmetic": "real",
        },
        "versions": {"verifair": "0.1.0"},
    }
    return answer | changes


WITNESS = {
    "x": {"sex": "Male", "age": 30}, "x_prime": {"sex": "Female", "age": 30}, "outputs": [0.5, -0.5], "probabilities": [0.62, 0.38],
    "decisions": ["granted", "refused"], "values": None, "margin": -1.0, "float32_agrees": None,
}


def refused(name: str, answer: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as met:
        Draft202012Validator(json_schemas.schema(name)).validate(answer)
    return str(met.value.message)


@pytest.mark.parametrize("name", json_schemas.names())
def test_every_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(json_schemas.schema(name))


def test_there_is_a_schema_for_every_verb() -> None:
    assert set(verbs()) - SILENT <= set(json_schemas.names())


@pytest.mark.parametrize("name", json_schemas.names())
def test_shapes_are_closed_and_say_what_they_are(name: str) -> None:
    """Every object with fixed keys refuses others; answers say what they are."""
    whole = json_schemas.schema(name)
    parts = [whole, *whole.get("$defs", {}).values()]
    loose = [part for part in parts if "properties" in part and part.get("additionalProperties") is not False]
    assert [part["description"].split(":")[0] for part in loose] in ([], ["The same person with other protected values"])
    assert whole["title"]
    assert "certificate" in name or whole["description"].startswith("`verifair ")


def test_statuses_and_reasons_are_those_of_the_engine() -> None:
    found = json_schemas.schema("certify")["$defs"]
    assert found["Status"]["enum"] == [one.value for one in Status]
    assert found["Reason"]["enum"] == [one.value for one in Reason]
    assert found["Termination"]["enum"] == [one.value for one in Termination]
    assert json_schemas.schema("audit")["$defs"]["Standing"]["enum"] == [one.value for one in Standing]


@pytest.mark.parametrize(("changes", "fits"), [
    ({}, True),
    ({"status": "violated", "reason": None, "witness": WITNESS}, True),
    ({"status": "proved", "reason": None, "certificate": {"trust": "checked"}}, True),
    ({"status": "proved"}, False),
    ({"status": "proved", "reason": None}, False),
    ({"status": "violated", "reason": None}, False),
    ({"status": "violated", "witness": WITNESS}, False),
    ({"status": "violated", "reason": None, "witness": WITNESS, "certificate": {"trust": "checked"}}, False),
    ({"reason": None}, False),
    ({"reason": "tired"}, False),
    ({"witness": WITNESS}, False),
    ({"status": "timeout"}, False),
])
def test_a_verdict_has_exactly_its_evidence(changes: dict[str, Any], fits: bool) -> None:
    assert Draft202012Validator(json_schemas.schema("certify")).is_valid(certify(**changes)) == fits


def test_keys_that_are_too_many_or_missing_are_refused() -> None:
    assert "extra" in refused("certify", certify(extra=1))
    assert "'versions' is a required property" in refused("certify", {k: v for k, v in certify().items() if k != "versions"})
    assert "does not match" in refused("certify", certify(model_sha256="F" * 64))


def test_an_audit_is_as_its_schema_says() -> None:
    answer = json.loads(json.dumps(plain(audit(witnesses=4).content())))
    Draft202012Validator(json_schemas.schema("audit")).validate(answer)
    answer["sections"][0]["statements"][0]["standing"] = "certain"
    assert "'certain' is not one of" in refused("audit", answer)


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(QueryError, match="no JSON schema 'nothing'; expected one of audit, bench"):
        json_schemas.schema("nothing")


def test_a_saved_certificate_is_as_its_schema_says(tmp_path: Path) -> None:
    statement = BoxStatement(goal="no-flip", lower=(0.0,), upper=(1.0,), prime={"sex": 1.0}, classes=(0, 1))
    tree = Tree(
        feature=np.array([-2, -1, -1]), cut=np.zeros(3), start=np.array([0, 0, 1, 1]), index=np.array([7]), value=np.array([0.5])
    )
    proofs = [Proof(statement=statement, evidence=one, margin=margin) for one, margin in ((Tree.leaf(), 0.5), (tree, None))]
    claim = Proof(statement=statement, evidence=Claim(backend="highs", version="1.13.1", tolerance=1e-7))
    saved = Certificate(
        network_sha256="0" * 64, schema_sha256="1" * 64, semantics="real-valued", features=("sex",), proofs=(*proofs, claim),
        query=BoxQuery(kind="individual-fairness", protected=("sex",), box={"sex": (0.0, 1.0)}, differ="all", signs="strict"),
    )
    saved.save(tmp_path / "proof.json")
    content = json.loads((tmp_path / "proof.json").read_text())
    Draft202012Validator(json_schemas.schema("certificate")).validate(content)
    assert "digest" in refused("certificate", {key: value for key, value in content.items() if key != "digest"})
    assert refused("certificate", content | {"proofs": [{"statement": {"goal": "no-harm"}}]})
