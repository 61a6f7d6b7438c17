"""The gate: each threshold passes and fails, and what is not decided is neither."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.audit_sample import HOSTILE, audit, replace
from verifair.auditing.audit_file import loads
from verifair.auditing.gate import exit_code, gate, save_junit, save_sarif
from verifair.auditing.page import page
from verifair.auditing.page.summary import features
from verifair.auditing.result import AuditResult
from verifair.auditing.settings import GateSection
from verifair.errors import SchemaError
from verifair.systems.results.findings import Evidence
from verifair.systems.results.words import rounded

PROOF = Evidence(file="p.files/gap-sex.json.gz", sha256="a" * 64, proves="", command="", checked="accepted")


def found(part: str, answer: dict[str, Any], evidence: tuple[Evidence, ...] = (PROOF,), name: str = "sex") -> AuditResult:
    """An audit in which `certify` answered so about one feature."""
    whole = audit(witnesses=0, groups=True, name=name)
    section = replace(whole.sections[0], answer={"by_feature": [{"protected": name, part: answer}]}, evidence=evidence)
    return replace(whole, sections=(section,), protected=(name,))


def outcome(result: AuditResult, **thresholds: Any) -> str:
    (check,) = gate(GateSection(**thresholds), result)
    return check.outcome


@pytest.mark.parametrize(("threshold", "expected"), [(0.62, "passed"), (0.63, "failed")])
def test_the_lowest_rate_is_compared_with_the_highest(threshold: float, expected: str) -> None:
    """50 % of women against 80 % of men; the group of one person does not count."""
    assert outcome(found("exchanged", {}), four_fifths=threshold) == expected


def test_groups_that_cannot_be_compared_are_not_decided() -> None:
    whole = replace(found("exchanged", {}), decisions=None)
    assert outcome(whole, four_fifths=0.1) == "unknown"


def test_a_gate_says_why_groups_are_not_compared() -> None:
    whole = found("exchanged", {})
    assert whole.decisions is not None
    nobody = tuple(one.model_copy(update={"ratio": None, "ratio_low": None, "ratio_high": None}) for one in whole.decisions.groups)
    (check,) = gate(GateSection(four_fifths=0.8), replace(whole, decisions=whole.decisions.model_copy(update={"groups": nobody})))
    assert check.outcome == "unknown"
    assert check.text.endswith(f"for nobody in a group of 30 people or more gets {whole.favourable}")


def test_a_threshold_that_nothing_answers_names_what_does() -> None:
    (check,) = gate(GateSection(certified_share=0.2), found("exchanged", {}))
    assert check.outcome == "unknown"
    assert check.text.endswith("[analyses.certify] share = true answers it")


@pytest.mark.parametrize(
    ("asked", "threshold", "expected"),
    [(100, 0.05, "passed"), (100, 0.049, "failed"), (90, 0.15, "passed"), (90, 0.149, "unknown"), (90, 0.04, "failed")],
)
def test_people_who_were_not_asked_may_be_decided_either_way(asked: int, threshold: float, expected: str) -> None:
    result = found("exchanged", {"people": 100, "asked": asked, "decided_otherwise": 5})
    assert outcome(result, flips_in_data=threshold) == expected


@pytest.mark.parametrize(("threshold", "expected"), [(0.4, "passed"), (0.39, "unknown"), (0.3, "unknown"), (0.29, "failed")])
def test_a_gap_passes_by_its_proof_and_fails_by_its_witness(threshold: float, expected: str) -> None:
    for quantity, told in (("probability", expected), ("value", "unknown")):
        answer = {"quantity": quantity, "lower": 0.3, "upper": 0.4}
        assert outcome(found("largest_gap", answer), certified_gap=threshold) == told


@pytest.mark.parametrize(("threshold", "expected"), [(0.7, "passed"), (0.71, "unknown"), (0.9, "unknown"), (0.91, "failed")])
@pytest.mark.parametrize("checked", ["accepted", "not re-checked"])
def test_a_share_passes_and_fails_by_what_is_proved(threshold: float, expected: str, checked: str) -> None:
    proof = replace(PROOF, file="p.files/share-sex-ab12.json.gz", checked=checked)
    result = found("share", {"fair": 0.7, "unfair": 0.1}, evidence=(proof,))
    assert outcome(result, certified_share=threshold) == (expected if checked == "accepted" else "unknown")


def test_a_share_that_is_the_threshold_passes_and_one_just_below_fails() -> None:
    """4/5 is no float64: as such the share was 0.7999999999999999 at least and 0.8 at most."""
    proof = replace(PROOF, file="p.files/share-sex-ab12.json.gz")
    nearly = {"fair": 0.7999999999999999, "unfair": 0.19999999999999998}
    for fair, unfair, expected, text in (
        ("4/5", "1/5", "passed", "at least 0.8: 80.0% proved to be treated alike, 20.0% not"),
        ("79999/100000", "20001/100000", "failed", "at least 0.8: 79.9% proved to be treated alike, 20.001% not"),
        ("79999/100000", "1/5", "unknown", "at least 0.8: 79.9% proved to be treated alike, 20.0% not"),
    ):
        result = found("share", nearly | {"exact": {"fair": fair, "unfair": unfair}}, evidence=(proof,))
        (check,) = gate(GateSection(certified_share=0.8), result)
        assert (check.outcome, check.text.partition("fair, ")[2]) == (expected, text)
    (check,) = gate(GateSection(certified_share=0.8), found("share", nearly, evidence=(proof,)))
    assert (check.outcome, "79.9% proved" in check.text) == ("unknown", True)
    sixths = found("share", {"exact": {"fair": "5/6", "unfair": "1/6"}}, evidence=(proof,))
    (check,) = gate(GateSection(certified_share=5 / 6), sixths)
    assert (check.outcome, check.low, check.high) == ("failed", 0.8333333333333333, 0.8333333333333334)


@pytest.mark.parametrize(
    ("threshold", "low", "high", "expected", "text"),
    [
        (0.001, 0.0, 0.001, "passed", "at most 0.001: 0.0000 is reached, more than 0.0010 is ruled out"),
        (0.00105, 0.0, 0.00104, "passed", "at most 0.00105: 0.0000 is reached, more than 0.00104 is ruled out"),
        (0.00105, 0.001052, 0.5, "failed", "at most 0.00105: 0.001052 is reached, more than 0.5000 is ruled out"),
        (0.12345678, 0.1, 0.12345679, "unknown", "at most 0.12345678: 0.1000 is reached, more than 0.1235 is ruled out"),
    ],
)
def test_numbers_beside_a_threshold_do_not_contradict_what_is_said(
    threshold: float, low: float, high: float, expected: str, text: str
) -> None:
    result = found("largest_gap", {"quantity": "probability", "lower": low, "upper": high})
    (check,) = gate(GateSection(certified_gap=threshold), result)
    assert (check.outcome, check.text.partition("alone, ")[2]) == (expected, text)


def test_what_is_proved_of_a_box_passes_no_threshold_about_everybody() -> None:
    """A pair of people in the box is one of the whole domain, and a gap too large is one."""
    def in_a_box(result: AuditResult) -> AuditResult:
        return replace(result, sections=tuple(replace(one, settings={"box": {"age": (30, 50)}}) for one in result.sections))

    gap = in_a_box(found("largest_gap", {"quantity": "probability", "lower": 0.3, "upper": 0.4}))
    assert [outcome(gap, certified_gap=threshold) for threshold in (0.4, 0.3, 0.29)] == ["unknown", "unknown", "failed"]
    (check,) = gate(GateSection(certified_gap=0.5), gap)
    assert "asked of the box" in check.text
    proof = replace(PROOF, file="p.files/share-sex-ab12.json.gz")
    share = in_a_box(found("share", {"fair": 0.7, "unfair": 0.1}, evidence=(proof,)))
    assert [outcome(share, certified_share=threshold) for threshold in (0.7, 0.95)] == ["unknown", "unknown"]


@pytest.mark.parametrize("part", ["share", "partition"])
def test_shares_that_let_ties_go_are_no_shares_of_decisions(part: str) -> None:
    """By the strict rule nobody may change while everybody's decision does, where a network is exactly on its threshold."""
    answer = {"fair": 1.0, "unfair": 0.0, "shares": {"volume": {"proved": 1.0}}}
    proof = replace(PROOF, file=f"p.files/{part}-sex-ab12.json.gz")
    result = found(part, answer, evidence=(proof,))
    (shown,) = features(result)
    assert shown.alike == (1.0, 0.0)
    asked = replace(result, sections=tuple(replace(one, settings={"signs": "strict"}) for one in result.sections))
    (shown,) = features(asked)
    assert shown.alike is None
    (check,) = gate(GateSection(certified_share=0.5), asked)
    assert check.outcome == "unknown"
    assert part == "partition" or "ties were counted on neither side" in check.text


def test_a_proof_about_another_feature_proves_nothing() -> None:
    proof = replace(PROOF, file="p.files/share-sex-2-ab12.json.gz")  # of a feature "sex-2"
    result = found("share", {"fair": 0.7, "unfair": 0.1}, evidence=(proof,))
    assert outcome(result, certified_share=0.5) == "unknown"


@pytest.mark.parametrize("checked", ["rejected", "not re-checked", "accepted in part"])
def test_a_bound_that_the_checker_did_not_accept_proves_nothing(checked: str) -> None:
    answer = {"quantity": "probability", "lower": 0.3, "upper": 0.4}
    result = found("largest_gap", answer, evidence=(replace(PROOF, checked=checked),))
    checks = gate(GateSection(certified_gap=0.5), result)
    assert checks[0].outcome == "unknown"
    assert [one.outcome for one in checks[1:]] == (["failed"] if checked == "rejected" else [])


@pytest.mark.parametrize(("proved", "unknown", "threshold", "expected"), [
    (30, 0, 0.3, "passed"), (31, 0, 0.3, "failed"), (20, 20, 0.3, "unknown"), (31, 60, 0.3, "failed"), (0, 100, 1.0, "passed"),
])  # fmt: skip
def test_persistent_bias_counts_people(proved: int, unknown: int, threshold: float, expected: str) -> None:
    line = {"sensitive": "sex", "people": 100}
    biased = [{**line, "delta": 2.0, "proved": 0, "unknown": 0}, {**line, "delta": 1.0, "proved": proved, "unknown": unknown}]
    whole = audit(witnesses=0)
    for checked, told in (("accepted", expected), ("accepted in part", expected), ("rejected", "unknown")):
        section = replace(whole.sections[1], answer={"biased": biased}, evidence=(replace(PROOF, checked=checked),))
        told = "passed" if threshold == 1 else told  # all people are 100 % at most
        first, *others = gate(GateSection(pba_share=threshold), replace(whole, sections=(section,), protected=("sex",)))
        assert first.outcome == told
        assert [one.outcome for one in others] == ["failed"] * (checked == "rejected")


def test_what_did_not_run_is_not_decided_and_fails_unless_the_gate_says_otherwise() -> None:
    checks = gate(GateSection(certified_share=0.1), found("exchanged", {}))
    assert [one.outcome for one in checks] == ["unknown"]
    assert exit_code(checks, "fail") == 20
    assert exit_code(checks, "pass") == 0
    assert exit_code(gate(GateSection(four_fifths=0.9), found("exchanged", {})), "pass") == 10


@pytest.mark.parametrize("unknown", ["fail", "pass"])
def test_pipelines_get_every_check(unknown: str, tmp_path: Path) -> None:
    result = found("exchanged", {"people": 100, "asked": 100, "decided_otherwise": 5}, name=HOSTILE + "\x1b[31m")
    result = replace(result, gate=gate(GateSection(four_fifths=0.6, flips_in_data=0.01, certified_gap=0.1), result))
    save_junit(result, tmp_path / "junit.xml", unknown)
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    failing = {"fail": 2, "pass": 1}[unknown]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", str(failing), str(2 - failing))
    first, *cases, out, err = suite  # in the order of the schema of Ant's JUnit task, with all that it requires
    assert [one.tag for one in (first, out, err)] == ["properties", "system-out", "system-err"]
    assert set(suite.keys()) >= {"package", "id", "name", "timestamp", "hostname", "tests", "failures", "errors", "time"}
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["failure" if unknown == "fail" else "skipped"]]
    save_sarif(result, tmp_path / "sarif.json", unknown, "models/a credit.onnx")
    (run,) = json.loads((tmp_path / "sarif.json").read_text())["runs"]
    rules = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert [rules[one["ruleIndex"]] for one in run["results"]] == [one["ruleId"] for one in run["results"]]
    assert [one["level"] for one in run["results"]] == ["error", "error" if unknown == "fail" else "warning"]
    (place,) = run["results"][0]["locations"]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": "models/a%20credit.onnx"}, "region": {"startLine": 1}}
    assert "Gate failed" in page(result)
    assert HOSTILE not in page(result)


@pytest.mark.parametrize("thresholds", [{}, {"four_fifths": 0.6, "flips_in_data": 0.01, "certified_gap": 0.1, "pba_share": 0.1}])
@pytest.mark.parametrize("unknown", ["fail", "pass"])
def test_files_for_pipelines_are_valid_by_their_schemas(unknown: str, thresholds: dict[str, float], tmp_path: Path) -> None:
    """JUnit by that of Jenkins, SARIF by that of OASIS; each schema refuses what is none of its own."""
    etree = pytest.importorskip("lxml.etree", reason="pip install lxml")
    sarif = pytest.importorskip("sarif_kit.validate", reason="pip install sarif-kit")
    answer = {"people": 100, "asked": 100, "decided_otherwise": 5}
    result = found("exchanged", answer, evidence=(replace(PROOF, checked="rejected"),), name=HOSTILE + "\x1b[31m")
    result = replace(result, gate=gate(GateSection(**thresholds), result))
    schema = etree.XMLSchema(etree.parse(Path(__file__).parents[3] / "fixtures" / "schemas" / "junit-10.xsd"))
    save_junit(result, tmp_path / "junit.xml", unknown)
    tree = etree.parse(tmp_path / "junit.xml")
    schema.assertValid(tree)
    for case in tree.iter("testcase"):
        del case.attrib["name"]
    assert not schema.validate(tree)
    save_sarif(result, tmp_path / "sarif.json", unknown, "models/credit.onnx")
    log = json.loads((tmp_path / "sarif.json").read_text())
    sarif.assert_valid(log)
    assert len(log["runs"][0]["results"]) == (4 if thresholds else 1)
    assert sarif.validation_errors(log | {"version": "2.0.0"})
    for one in log["runs"][0]["results"]:
        del one["message"]
    assert sarif.validation_errors(log)


@pytest.mark.parametrize("line", ["four_fifths = 1.5", "four_fifth = 0.8", 'unknown = "maybe"', "certified_gap = nan"])
def test_a_threshold_that_means_nothing_is_told(line: str, tmp_path: Path) -> None:
    text = f'[model]\ndemo = "german"\n[gate]\n{line}\n[analyses.pba]\n'
    with pytest.raises(SchemaError, match=rf"\[gate\]: {line.split()[0]}"):
        loads(text, name="a.toml", folder=tmp_path)


def test_bounds_are_rounded_as_they_are_written() -> None:
    """As float64, 0.001 and 0.1 are a little more than these decimals, and 0.3 is a little less."""
    assert [rounded(v, up=True, digits=4) for v in (0.001, 0.1, 0.00101)] == ["0.0010", "0.1000", "0.0011"]
    assert [rounded(v, up=False, digits=4) for v in (0.3, 0.9, 0.00109)] == ["0.3000", "0.9000", "0.0010"]
