"""Two audits side by side: nothing is better or worse by a point estimate, and what differs in question is not compared."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import verifair as vf
from tests.command_line import verifair
from verifair import datasets
from verifair.auditing.compare import _change, _Quantity, compare, load
from verifair.auditing.result import AuditResult
from verifair.errors import QueryError
from verifair.systems.proportions import critical, newcombe


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
    (lambda content: part(content, "kmax")["settings"].update(buckets=5), "asked with other settings (buckets)"),
    (lambda content: content.update(sections=[]), "only one of the two audits has it"),
])  # fmt: skip
def test_other_questions_are_not_compared(audited: Path, change: Any, why: str) -> None:
    found = compare(load(audited), changed(audited, change))
    (kmax,) = [one for one in found.changes if one.what == "outcome buckets of one person"]
    assert (kmax.standing, kmax.why) == ("incomparable", why)
    assert why in kmax.text
    assert "None" not in kmax.text


def test_another_outcome_is_not_compared_at_all(audited: Path) -> None:
    (one,) = compare(load(audited), changed(audited, lambda content: content.update(favourable="approved"))).changes
    assert one.standing == "incomparable"
    assert one.text == f"decisions; {one.why}"
    assert "favourable outcome" in one.why


def test_measured_analyses_are_named_as_not_compared(audited: Path) -> None:
    """Whoever reads "nothing is worse" has to know what was not looked at."""
    measured, without = changed(audited, lambda one: part(one, "kmax").update(key="cst")), load(audited)
    for before, why in ((measured, "its measurements are not compared"), (without, "only one of the two audits has it")):
        (told,) = (one for one in compare(measured, before).changes if one.what == part_of(measured, "cst").title)
        assert told.standing == "incomparable"
        assert told.why.startswith(why)


def part_of(result: AuditResult, key: str) -> Any:
    return next(one for one in result.sections if one.key == key)


def test_files_that_are_no_audit_are_named(audited: Path, tmp_path: Path) -> None:
    for text, told in (("{", "is no JSON"), ("[" * 10**5, "is no JSON"), ("[]", "its format is None"),
                       ('{"format": "other/1"}', "its format is 'other/1'"),
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


def in_certify(**answer: Any) -> Callable[[Any], None]:
    return lambda content: part(content, "certify")["answer"].update(answer)


def first_feature(name: str, **found: Any) -> Callable[[Any], None]:
    return lambda content: part(content, "certify")["answer"]["by_feature"][0][name].update(found)


@pytest.mark.parametrize(("change", "told"), [
    (in_certify(by_feature=3), "'int' object is not iterable"),
    (in_certify(by_feature=[{"largest_gap": {}}]), "'protected' is missing"),
    (first_feature("largest_gap", lower="much"), "'much'"),
    (first_feature("largest_gap", lower=0.5, upper=0.25), "lies between no two numbers"),
    (first_feature("largest_gap", upper=float("nan")), "lies between no two numbers"),
    (first_feature("exchanged", decided_otherwise=10**400), "too large"),
    (first_feature("exchanged", decided_otherwise=10**5), "is no share of people"),
    (first_feature("exchanged", people=1e-200, asked=1e-200, decided_otherwise=0), "is no share of people"),
    (first_feature("exchanged", people=10**200), "is no share of people"),
    (lambda content: part(content, "kmax")["answer"].pop("upper"), "'upper' is missing"),
])  # fmt: skip
def test_an_answer_of_another_shape_is_refused_before_anything_runs(audited: Path, change: Any, told: str) -> None:
    with pytest.raises(QueryError, match=rf"another shape than ours \(.*{told}.*; another version of verifair wrote it"):
        changed(audited, change)


def quantity(low: float, high: float, people: int | None = None) -> _Quantity:
    return _Quantity(low=low, high=high, shown="", people=people, better="higher")


@pytest.mark.parametrize(("ends", "people", "same", "standing"), [
    ((0.0, 1.0), None, False, "not clear"),  # two models, neither decided
    ((0.1, 0.4), None, False, "not clear"),
    ((0.1, 0.4), None, True, "unchanged"),
    ((2.0, 2.0), None, False, "unchanged"),  # proved exactly
    ((0.5, 0.5), 100, False, "not clear"),
    ((0.5, 0.5), 100, True, "unchanged"),
    ((0.2, 0.5), 100, True, "not clear"),
])  # fmt: skip
def test_equal_numbers_are_unchanged_only_where_nothing_is_open(
    ends: tuple[float, float], people: int | None, same: bool, standing: str
) -> None:
    one = quantity(*ends, people=people)
    assert _change("", "", one, one, same).standing == standing


def test_models_that_err_on_different_people_of_one_table_are_not_taken_for_different_people() -> None:
    """Of 100 people one model is right of 59 and another of the other 41: McNemar's test sees no difference at 5 %."""
    assert binomtest(41, 100).pvalue > 0.05
    low, high = newcombe(np.array(0.41), 100, np.array(0.59), 100, critical(0.95, 2))
    assert high < 0  # as of different people it would be worse
    found = _change("accuracy", "", quantity(0.59, 0.59, 100), quantity(0.41, 0.41, 100), False)
    assert found.standing == "not clear"
    assert found.low is not None
    assert found.high is not None
    assert found.low < low < high < 0 < found.high
    assert f"difference {found.low:+.4g} to {found.high:+.4g}" in found.text
    assert _change("", "", quantity(0.75, 0.75, 100), quantity(0.25, 0.25, 100), False).standing == "worse"


def test_a_group_that_is_always_refused_is_the_lowest(audited: Path) -> None:
    def refused(content: Any) -> None:
        lowest = next(one for one in content["decisions"]["groups"] if one["ratio_low"] is not None)
        lowest.update(ratio=0.0, ratio_low=None, ratio_high=None)

    now = changed(audited, refused)
    (one,) = [one for one in compare(now, load(audited)).changes if one.what.startswith("lowest rate")]
    assert one.standing == "not clear"
    assert one.now is not None
    assert one.now.startswith("0.000 (0.000 to ?")


def test_persistent_bias_and_flips_of_another_schema_are_not_compared(audited: Path) -> None:
    def other(content: Any) -> None:
        for one in content["sources"]:
            one["sha256"] = "0" * 64 if one["role"].startswith("schema") else one["sha256"]

    found = {one.what: one.standing for one in compare(load(audited), changed(audited, other)).changes}
    assert {standing for what, standing in found.items() if what.startswith("people")} == {"incomparable"}
    assert sum(what.startswith("people") for what in found) == 2


@pytest.mark.parametrize("checked", ["rejected", "not re-checked"])
def test_bias_and_buckets_without_an_accepted_proof_are_not_clear(audited: Path, checked: str) -> None:
    def unproved(content: Any) -> None:
        for key in ("pba", "kmax"):
            for proof in part(content, key)["evidence"]:
                proof["checked"] = checked

    found = standings(load(audited), changed(audited, unproved))
    assert {found[name] for name in found if "persistent bias" in name or "buckets" in name} == {"not clear"}
