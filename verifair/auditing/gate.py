"""The gate: thresholds of an audit file that its results must meet, for pipelines that should fail otherwise."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from xml.etree import ElementTree as xml

from encoders.text import visible
from verifair.auditing.decisions import lowest, not_compared, ratio_words
from verifair.auditing.result import AuditResult, GateCheck
from verifair.auditing.settings import GateSection
from verifair.systems.results.files import save_text
from verifair.systems.results.words import percent
from verifair.systems.work import called

WORDS = {
    "four_fifths": "lowest rate of a group over the highest one, at least",
    "flips_in_data": "share of the table's people whose decision changes with a sensitive value, at most",
    "certified_gap": "largest gap of probabilities between people who differ in a sensitive value alone, at most",
    "certified_share": "share of the domain that is proved fair, at least",
    "pba_share": "share of people for whom persistent bias is proved, at most",
}
"""Threshold -> what it is about."""
NEEDS = {
    "four_fifths": "[data]", "flips_in_data": "[analyses.certify]", "certified_gap": "[analyses.certify] maximise = true",
    "certified_share": "[analyses.certify] share = true", "pba_share": "[analyses.pba]",
}
"""Threshold -> what of the audit file answers it."""
OF_THE_DOMAIN = ("certified_gap", "certified_share")
"""Thresholds about everybody whom the schema describes."""


def gate(section: GateSection, result: AuditResult) -> list[GateCheck]:
    """Return the outcome of every threshold, feature by feature.

    passed and failed only if that is certain: by exact counts, a proved bound, or an exact counterexample.
    """
    checks, fifths = list[GateCheck](), partial(_four_fifths, threshold=section.four_fifths or 0.0)
    measures: dict[str, Callable[[AuditResult], Bounds | ShareBounds]] = {
        "four_fifths": fifths, "flips_in_data": flips, "certified_gap": partial(gaps, limit=_written(section.certified_gap or 0.0)),
        "certified_share": partial(shares, limit=_written(section.certified_share or 0.0)), "pba_share": bias,
    }  # fmt: skip
    for name, measure in measures.items():
        threshold = getattr(section, name)
        if threshold is None:
            continue
        values = {feature: (low, high, text) for feature, low, high, text in measure(result)}
        for feature in result.protected:
            low, high, text = values.get(feature, (None, None, f"not asked, or it did not run; {NEEDS[name]} answers it"))
            if name in OF_THE_DOMAIN and high is not None and boxed(result):  # of a box, only a counterexample counts
                low, high = low if name == "certified_gap" else 0.0, 1.0
                text += "; asked of the box in [analyses.certify] alone: without box, the threshold is answered"
            checks.append(_check(name, feature, threshold, low, high, text))
    rejected = [proof.file for section in result.sections for proof in section.evidence if proof.checked == "rejected"]
    if rejected:
        text = f"the separate checker rejected {', '.join(rejected)}"
        checks.append(GateCheck(name="proofs", feature=None, threshold=None, low=None, high=None, outcome="failed", text=text))
    return checks


def _check(
    name: str, feature: str, threshold: float, low: float | Fraction | None, high: float | Fraction | None, text: str
) -> GateCheck:
    """Return the check of one threshold against certain bounds of the quantity; None: no bound on that side."""
    at_least, limit = name in ("four_fifths", "certified_share"), _written(threshold)
    if low is None or high is None:
        outcome: Literal["passed", "failed", "unknown"] = "unknown"
    elif at_least:
        outcome = "passed" if _written(low) >= limit else "failed" if _written(high) < limit else "unknown"
    else:
        outcome = "passed" if _written(high) <= limit else "failed" if _written(low) > limit else "unknown"
    bounds = {end: None if bound is None else _float64(bound, up=end == "high") for end, bound in (("low", low), ("high", high))}
    message = f"{feature}: {WORDS[name]} {str(float(threshold)).removesuffix('.0')}: {text}"
    return GateCheck(name=name, feature=feature, threshold=threshold, **bounds, outcome=outcome, text=message)


Bounds = Iterator[tuple[str, float | None, float | None, str]]
"""Feature, the least and the most that the quantity can be, and what was found in words."""
ShareBounds = Iterator[tuple[str, Fraction | None, Fraction | None, str]]
"""The same, exactly."""


def _written(number: float | Fraction) -> Fraction:
    """Return a number as it is written: 0.8 in an audit file is exactly 4/5, which no float64 equals."""
    return number if isinstance(number, Fraction) else Fraction(str(float(number)))


def _float64(number: float | Fraction, *, up: bool) -> float:
    """Return the nearest float64 that is not below a number, or not above."""
    nearest = float(number)
    wrong_side = _written(nearest) < number if up else _written(nearest) > number
    return math.nextafter(nearest, math.inf if up else -math.inf) if isinstance(number, Fraction) and wrong_side else nearest


def _rounded(value: Fraction, limit: Fraction | None, *, up: bool, below: bool = False, digits: int = 4) -> str:
    """Return a number, at least 0, rounded up or down, with enough digits to stay on its side of a limit: above it or not, or
    `below` it or not."""
    side = operator.lt if below else operator.gt
    for decimals in count(digits):    # it ends, as more digits come as near to the value as needed
        scaled = (math.ceil if up else math.floor)(value * 10**decimals)
        if limit is None or side(Fraction(scaled, 10**decimals), limit) == side(value, limit):
            return f"{scaled // 10**decimals}.{scaled % 10**decimals:0{decimals}d}"
    raise AssertionError


def _percent(share: Fraction, limit: Fraction | None, *, below: bool) -> str:
    """Return a share in percent; rounded down, with more digits, if it would otherwise be on the other side of a limit."""
    text, side = percent(float(share)), operator.lt if below else operator.gt
    if limit is None or side(Fraction(text.strip("<>%")) / 100, limit) == side(share, limit):
        return text
    return f"{_rounded(100 * share, 100 * limit, up=False, below=below, digits=1)}%"


def _four_fifths(result: AuditResult, threshold: float) -> Bounds:
    if result.decisions is None:
        return
    for feature in result.protected:
        groups = result.decisions.of(feature)
        reason = not_compared(groups, result.favourable)
        if reason is not None:
            yield feature, None, None, f"rates of groups are not compared, for {reason}"
            continue
        worst = lowest(groups)
        detail = f"n = {worst.people:,}, 95 % interval {worst.ratio_low:.3f} to {worst.ratio_high:.3f}"
        ratio_text = ratio_words(worst.ratio or 0.0, threshold, digits=3)
        yield feature, worst.ratio, worst.ratio, f"{ratio_text} ({worst.group}, {detail})"


def boxed(result: AuditResult) -> bool:
    """Return True if `certify` was asked about a box, not about everybody whom the schema describes."""
    return any(section.key == "certify" and bool(section.settings.get("box")) for section in result.sections)


def strict(result: AuditResult) -> bool:
    """Return True if `certify` used the strict rule, which ignores ties: its answers are not about decisions."""
    return any(section.key == "certify" and section.settings.get("signs") == "strict" for section in result.sections)


def by_feature(result: AuditResult, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the answers of `certify` for each feature that has this part."""
    for section in result.sections:
        if section.key == "certify":
            for answer in section.answer.get("by_feature", ()):
                if answer.get(part) is not None:
                    yield answer["protected"], answer[part]


def flips(result: AuditResult) -> Bounds:
    """Return the share of the table's people who are decided otherwise with another value."""
    for feature, answer in by_feature(result, "exchanged"):
        people, examined, changed = answer["people"], answer["asked"], answer["decided_otherwise"]
        if people:
            # Between none and all of the people not decided may be decided otherwise.
            text = f"{changed:,} of {people:,}" + (f" ({people - examined:,} not decided)" if examined < people else "")
            yield feature, changed / people, (changed + people - examined) / people, text


def accepted_files(result: AuditResult) -> set[str]:
    """Return the names of the files of proofs that the separate checker accepted as a whole in this run."""
    proofs = [proof for section in result.sections for proof in section.evidence]
    return {Path(proof.file).name for proof in proofs if proof.checked == "accepted"}


def gaps(result: AuditResult, limit: Fraction | None = None) -> Bounds:
    """Return the largest gap of probabilities, in words that show on which side of a limit it lies."""
    accepted = accepted_files(result)
    for feature, answer in by_feature(result, "largest_gap"):
        if answer["quantity"] != "probability":
            yield feature, None, None, f"it was bounded as a {answer['quantity']}, not as a probability"
            continue
        low, high = answer["lower"], answer["upper"] if f"gap-{called(feature)}.json.gz" in accepted else 1.0
        upper_text = f"more than {_rounded(_written(high), limit, up=True)} is ruled out" if high < 1 else "no bound is proved"
        yield feature, low, high, f"{_rounded(_written(low), limit, up=False)} is reached, {upper_text}"


def shares(result: AuditResult, limit: Fraction | None = None) -> ShareBounds:
    """Return the share of people who are treated alike, exact if the answer has it, in words that show its side of a limit."""
    accepted = accepted_files(result)
    for feature, answer in by_feature(result, "share"):
        if strict(result):
            yield feature, None, None, 'ties were counted on neither side (signs = "strict"), and decisions are not'
            continue
        file = re.compile(rf"share-{re.escape(called(feature))}-[0-9a-f]+\.json\.gz")
        proved = any(map(file.fullmatch, accepted))
        exact = answer.get("exact") or {side: str(answer[side]) for side in ("fair", "unfair")}
        fair, unfair = (Fraction(exact[side]) if proved else Fraction(0) for side in ("fair", "unfair"))
        fair_text = _percent(fair, limit, below=True)
        unfair_text = _percent(unfair, None if limit is None else 1 - limit, below=False)
        yield feature, fair, 1 - unfair, f"{fair_text} proved to be treated alike, {unfair_text} not"


def bias(result: AuditResult) -> Bounds:
    for feature, rows, proved, unknown, delta in biased(result):
        text = f"{proved:,} of {rows:,} proved, {unknown:,} not decided (delta {delta:g})"
        yield feature, proved / rows, (proved + unknown) / rows, text


def biased(result: AuditResult) -> Iterator[tuple[str, int, int, int, float]]:
    """Yield feature, number of people, number with a proved bias, number for whom it is open, and the least delta.

    Nothing counts as proved, and all as open, unless the separate checker accepted every file of proofs.
    """
    for section in result.sections:
        if section.key != "pba" or not section.answer:
            continue
        checked = {proof.checked for proof in section.evidence}
        all_accepted = checked <= {"accepted", "accepted in part"}
        for feature in dict.fromkeys(entry["sensitive"] for entry in section.answer["biased"]):
            entries = [entry for entry in section.answer["biased"] if entry["sensitive"] == feature]
            least = min(entries, key=lambda entry: entry["delta"])
            rows, proved, unknown = (least[key] for key in ("people", "proved", "unknown"))
            is_proved = all_accepted and (bool(checked) or not proved)
            if rows:
                yield feature, rows, proved if is_proved else 0, unknown if is_proved else rows, least["delta"]


def exit_code(checks: list[GateCheck], unknown: str) -> int:
    """Return 10 if a threshold is failed, 20 if one is undecided and undecided ones fail, else 0."""
    outcomes = {check.outcome for check in checks}
    return 10 if "failed" in outcomes else 20 if "unknown" in outcomes and unknown == "fail" else 0


# Files for pipelines


def save_junit(result: AuditResult, path: Path, unknown: str) -> None:
    """Write the checks as JUnit XML: one test case for each threshold and feature; an undecided one fails, or is skipped.

    It is valid by the schema of Jenkins (junit-10.xsd), and has the elements that Ant's JUnit schema (windyroad/JUnit-Schema)
    requires.
    """
    cases = result.gate or []
    failing = sum(_fails(check, unknown) for check in cases)
    skipped = sum(check.outcome == "unknown" for check in cases) if unknown == "pass" else 0
    counts = {"tests": str(len(cases)), "failures": str(failing), "errors": "0", "skipped": str(skipped)}
    counts |= {"timestamp": result.started.partition("+")[0], "time": "0"}
    suite = xml.Element("testsuite", counts | {"name": "verifair audit", "package": "verifair", "id": "0", "hostname": "localhost"})
    xml.SubElement(suite, "properties")
    for check in cases:
        name = _clean(check.feature or check.name)
        case = xml.SubElement(suite, "testcase", classname=f"verifair.gate.{check.name}", name=name, time="0")
        if _fails(check, unknown):
            xml.SubElement(case, "failure", message=_clean(check.text), type=check.outcome).text = _clean(check.text)
        elif check.outcome == "unknown":
            xml.SubElement(case, "skipped", message=_clean(check.text))
    for tag in ("system-out", "system-err"):  # the schema requires them
        xml.SubElement(suite, tag)
    root = xml.Element("testsuites")
    root.append(suite)
    xml.indent(root)
    save_text(path, '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n")


def save_sarif(result: AuditResult, path: Path, unknown: str, model: str) -> None:
    """Write the thresholds that are not met as SARIF 2.1.0: one rule for each threshold, results at the model's file.

    model: the file's path, with "/" between its parts, relative to the pipeline's folder.
    """
    # A model has no lines, but GitHub shows no result without one.
    location = {"artifactLocation": {"uri": quote(model, errors="replace")}, "region": {"startLine": 1}}
    checks = result.gate or []
    names = list(dict.fromkeys(check.name for check in checks))
    proofs = "every proof is accepted by the separate checker"
    rules = [{"id": name, "shortDescription": {"text": WORDS.get(name, proofs)}} for name in names]
    results = [
        {
            "ruleId": check.name, "ruleIndex": names.index(check.name), "level": "error" if _fails(check, unknown) else "warning",
            "message": {"text": _clean(check.text)},
            "locations": [{"physicalLocation": location}],
        }
        for check in checks if check.outcome != "passed"
    ]  # fmt: skip
    driver = {"name": "verifair", "version": result.versions.get("verifair", ""), "rules": rules}
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }  # fmt: skip
    save_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _fails(check: GateCheck, unknown: str) -> bool:
    return check.outcome == "failed" or (check.outcome == "unknown" and unknown == "fail")


def _clean(text: str) -> str:
    """Return text that XML can hold: names of categories may have control characters."""
    return visible(text).encode("utf-8", "replace").decode()
