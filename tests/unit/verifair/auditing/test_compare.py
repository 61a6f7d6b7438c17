"""Two audits side by side: nothing is better or worse by a point estimate, and what differs in question is not compared."""

import json
from pathlib import Path
from typing import Any

import pytest

import verifair as vf
from tests.command_line import verifair
from verifair import datasets
from verifair.auditing.compare import compare, load
from verifair.auditing.result import AuditResult
from verifair.errors import QueryError


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The JSON of a real audit."""
    german = datasets.load("german")
    found = vf.audit(
        datasets.network_path("german"), german.frame, schema=german.schema, sensitive=["sex"], effort=4,
        analyses={"pba": {"rows": 100}, "certify": {"maximise": True}, "kmax": {}},
    )
    page = found.save(tmp_path_factory.mktemp("compare") / "page.html")
    return page.with_suffix(".json")


def changed(path: Path, change: Any) -> AuditResult:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path = path.with_name("changed.json")
    path.write_text(json.dumps(content), encoding="utf-8")
    return load(path)


def part(content: Any, key: str) -> Any:
    return next(one for one in content["sections"] if one["key"] == key)


def standings(now: AuditResult, before: AuditResult) -> dict[str, str]:
    return {f"{one.what}, {one.of}": one.standing for one in compare(now, before).changes}


def test_the_same_audit_has_not_changed(audited: Path) -> None:
    one = load(audited)
    found = compare(one, one)
    assert (found.same_model, found.same_schema, found.same_data) == (True, True, True)
    assert {one.what for one in found.changes} >= {
        "accuracy", "rate of the favourable decision", "lowest rate by the highest (four-fifths)", "largest gap of the probability",
        "people of the table decided otherwise with another value", "outcome buckets of one person",
    }
    assert {one.standing for one in found.changes} <= {"unchanged", "not clear"}
    assert found.count("unchanged") >= 6
    assert "the same model, schema and data" in found.headline


def test_what_differs_clearly_is_worse_or_better_and_what_may_be_chance_is_not(audited: Path) -> None:
    now = load(audited)

    def worse(content: Any) -> None:
        (one,) = part(content, "certify")["answer"]["by_feature"]
        one["exchanged"]["decided_otherwise"] = 2
        one["largest_gap"] |= {"lower": 0.01, "upper": 0.02}
        part(content, "kmax")["answer"] |= {"lower": 1, "upper": 1}
        for group in content["decisions"]["groups"]:
            group["accuracy"] -= 0.01

    found = standings(now, changed(audited, worse))
    assert found["people of the table decided otherwise with another value, sex"] == "worse"
    assert found["largest gap of the probability, sex"] == "worse"
    assert found["outcome buckets of one person, sex"] == "worse"
    assert found["accuracy, sex: Male"] == "not clear"  # one point of 690 people
    back = standings(changed(audited, worse), now)
    assert back["people of the table decided otherwise with another value, sex"] == "better"
    assert back["largest gap of the probability, sex"] == "better"


def test_ends_that_overlap_are_not_clear(audited: Path) -> None:
    def wider(content: Any) -> None:
        (one,) = part(content, "certify")["answer"]["by_feature"]
        one["largest_gap"] |= {"lower": 0.0, "upper": 1.0}

    assert standings(load(audited), changed(audited, wider))["largest gap of the probability, sex"] == "not clear"


def test_a_proof_that_was_not_accepted_bounds_nothing(audited: Path) -> None:
    def unproved(content: Any) -> None:
        for proof in part(content, "certify")["evidence"]:
            proof["checked"] = "rejected"
        (one,) = part(content, "certify")["answer"]["by_feature"]
        one["largest_gap"] |= {"lower": 0.0, "upper": 0.001}

    assert standings(load(audited), changed(audited, unproved))["largest gap of the probability, sex"] == "not clear"


@pytest.mark.parametrize(("change", "why"), [
    (lambda content: [one.update(sha256="0" * 64) for one in content["sources"] if one["role"].startswith("schema")],
     "another schema describes other people"),
    (lambda content: part(content, "kmax")["settings"].update(buckets=5), "asked with another buckets"),
    (lambda content: content.update(sections=[]), "only one of the two audits has it"),
])  # fmt: skip
def test_other_questions_are_not_compared(audited: Path, change: Any, why: str) -> None:
    found = compare(load(audited), changed(audited, change))
    (kmax,) = [one for one in found.changes if one.what == "outcome buckets of one person"]
    assert (kmax.standing, kmax.why) == ("incomparable", why)


def test_another_outcome_is_not_compared_at_all(audited: Path) -> None:
    (one,) = compare(load(audited), changed(audited, lambda content: content.update(favourable="approved"))).changes
    assert one.standing == "incomparable"
    assert "favourable outcome" in one.why


def test_files_that_are_no_audit_are_named(audited: Path, tmp_path: Path) -> None:
    for text, told in (("{", "is no JSON"), ("[]", "its format is None"), ('{"format": "other/1"}', "its format is 'other/1'"),
                       ('{"format": "verifair-audit/1"}', "another version of verifair wrote it")):  # fmt: skip
        path = tmp_path / "other.json"
        path.write_text(text)
        with pytest.raises(QueryError, match=told) as caught:
            load(path)
        assert str(path) in str(caught.value)
    with pytest.raises(QueryError, match="cannot be read"):
        load(tmp_path / "missing.json")
    found = verifair("audit", "--demo", "german", "--out", str(tmp_path / "r.html"), "--against", str(tmp_path / "missing.json"))
    assert found.returncode == 2
