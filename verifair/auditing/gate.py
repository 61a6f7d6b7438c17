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

from verifair.auditing.decisions import lowest, not_compared, ratio_words
from verifair.auditing.result import AuditResult, GateCheck
from verifair.auditing.settings import GateSection
from verifair.engine.queries import PROBABILITIES
from verifair.screen import visible
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
WHOLE = ("certified_gap", "certified_share")
"""Thresholds about everybody whom the schema describes."""


def gate(asked: GateSection, result: AuditResult) -> list[GateCheck]:
    """Return the outcome of every threshold, feature by feature.

    passed and failed only if that is certain: by exact counts, a proved bound, or an exact counterexample.
    """
    checks, fifths = list[GateCheck](), partial(_four_fifths, threshold=asked.four_fifths or 0.0)
    asks: dict[str, Callable[[AuditResult], Found | Shares]] = {
        "four_fifths": fifths, "flips_in_data": flips, "certified_gap": partial(gaps, limit=_written(asked.certified_gap or 0.0)),
        "certified_share": partial(shares, limit=_written(asked.certified_share or 0.0)), "pba_share": bias,
    }  # fmt: skip
    for name, ask in asks.items():
        threshold = getattr(asked, name)
        if threshold is None:
            continue
        found = {feature: (low, high, text) for feature, low, high, text in ask(result)}
        for feature in result.protected:
            low, high, text = found.get(feature, (None, None, f"not asked, or it did not run; {NEEDS[name]} answers it"))
            if name in WHOLE and high is not None and boxed(result):  # of a box, only a counterexample counts
                low, high = low if name == "certified_gap" else 0.0, 1.0
                text += "; asked of the box in [analyses.certify] alone: without box, the threshold is answered"
            checks.append(_checked(name, feature, threshold, low, high, text))
    rejected = [one.file for section in result.sections for one in section.evidence if one.checked == "rejected"]
    if rejected:
        text = f"the separate checker rejected {', '.join(rejected)}"
        checks.append(GateCheck(name="proofs", feature=None, threshold=None, low=None, high=None, outcome="failed", text=text))
    return checks


def _checked(
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
    ends = {end: None if one is None else _float64(one, up=end == "high") for end, one in (("low", low), ("high", high))}
    said = f"{feature}: {WORDS[name]} {str(float(threshold)).removesuffix('.0')}: {text}"
    return GateCheck(name=name, feature=feature, threshold=threshold, **ends, outcome=outcome, text=said)


Found = Iterator[tuple[str, float | None, float | None, str]]
"""Feature, the least and the most that the quantity can be, and what was found in words."""
Shares = Iterator[tuple[str, Fraction | None, Fraction | None, str]]
"""The same, exactly."""


def _written(number: float | Fraction) -> Fraction:
    """Return a number as it is written: 0.8 in an audit file is exactly 4/5, which no float64 equals."""
    return number if isinstance(number, Fraction) else Fraction(str(float(number)))


def _float64(number: float | Fraction, *, up: bool) -> float:
    """Return the nearest float64 that is not below a number, or not above."""
    near = float(number)
    beyond = _written(near) < number if up else _written(near) > number
    return math.nextafter(near, math.inf if up else -math.inf) if isinstance(number, Fraction) and beyond else near


def _beside(value: Fraction, limit: Fraction | None, *, up: bool, below: bool = False, digits: int = 4) -> str:
    """Return a number, at least 0, rounded up or down, with enough digits to stay on its side of a limit: above it or not, or
    `below` it or not."""
    side = operator.lt if below else operator.gt
    for places in count(digits):    # it ends, as more digits come as near to the value as needed
        whole = (math.ceil if up else math.floor)(value * 10**places)
        if limit is None or side(Fraction(whole, 10**places), limit) == side(value, limit):
            return f"{whole // 10**places}.{whole % 10**places:0{places}d}"
    raise AssertionError


def _percent(share: Fraction, limit: Fraction | None, *, below: bool) -> str:
    """Return a share in percent; rounded down, with more digits, if it would otherwise be on the other side of a limit."""
    said, side = percent(float(share)), operator.lt if below else operator.gt
    if limit is None or side(Fraction(said.strip("<>%")) / 100, limit) == side(share, limit):
        return said
    return f"{_beside(100 * share, 100 * limit, up=False, below=below, digits=1)}%"


def _four_fifths(result: AuditResult, threshold: float) -> Found:
    if result.decisions is None:
        return
    for feature in result.protected:
        groups = result.decisions.of(feature)
        why = not_compared(groups, result.favourable)
        if why is not None:
            yield feature, None, None, f"rates of groups are not compared, for {why}"
            continue
        worst = lowest(groups)
        near = f"n = {worst.people:,}, 95 % interval {worst.ratio_low:.3f} to {worst.ratio_high:.3f}"
        said = ratio_words(worst.ratio or 0.0, threshold, digits=3)
        yield feature, worst.ratio, worst.ratio, f"{said} ({worst.group}, {near})"


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
            for one in section.answer.get("by_feature", ()):
                if one.get(part) is not None:
                    yield one["protected"], one[part]


def flips(result: AuditResult) -> Found:
    """Return the share of the table's people who are decided otherwise with another value."""
    for feature, found in by_feature(result, "exchanged"):
        people, asked, changed = found["people"], found["asked"], found["decided_otherwise"]
        if people:
            # Between none and all of the people not decided may be decided otherwise.
            text = f"{changed:,} of {people:,}" + (f" ({people - asked:,} not decided)" if asked < people else "")
            yield feature, changed / people, (changed + people - asked) / people, text


def accepted_files(result: AuditResult) -> set[str]:
    """Return the names of the files of proofs that the separate checker accepted as a whole in this run."""
    proofs = [one for section in result.sections for one in section.evidence]
    return {Path(one.file).name for one in proofs if one.checked == "accepted"}


def gaps(result: AuditResult, limit: Fraction | None = None) -> Found:
    """Return the largest gap of probabilities, in words that show on which side of a limit it lies."""
    accepted = accepted_files(result)
    for feature, found in by_feature(result, "largest_gap"):
        if found["quantity"] not in PROBABILITIES:
            yield feature, None, None, f"it was bounded as a {found['quantity']}, not as a probability"
            continue
        low, high = found["lower"], found["upper"] if f"gap-{called(feature)}.json.gz" in accepted else 1.0
        ruled = f"more than {_beside(_written(high), limit, up=True)} is ruled out" if high < 1 else "no bound is proved"
        yield feature, low, high, f"{_beside(_written(low), limit, up=False)} is reached, {ruled}"


def shares(result: AuditResult, limit: Fraction | None = None) -> Shares:
    """Return the share of people who are treated alike, exact if the answer has it, in words that show its side of a limit."""
    accepted = accepted_files(result)
    for feature, found in by_feature(result, "share"):
        if strict(result):
            yield feature, None, None, 'ties were counted on neither side (signs = "strict"), and decisions are not'
            continue
        file = re.compile(rf"share-{re.escape(called(feature))}-[0-9a-f]+\.json\.gz")
        proved = any(map(file.fullmatch, accepted))
        exactly = found.get("exact") or {side: str(found[side]) for side in ("fair", "unfair")}
        fair, unfair = (Fraction(exactly[side]) if proved else Fraction(0) for side in ("fair", "unfair"))
        alike = _percent(fair, limit, below=True)
        not_alike = _percent(unfair, None if limit is None else 1 - limit, below=False)
        yield feature, fair, 1 - unfair, f"{alike} proved to be treated alike, {not_alike} not"


def bias(result: AuditResult) -> Found:
    for feature, rows, proved, late, delta in biased(result):
        text = f"{proved:,} of {rows:,} proved, {late:,} not decided (delta {delta:g})"
        yield feature, proved / rows, (proved + late) / rows, text


def biased(result: AuditResult) -> Iterator[tuple[str, int, int, int, float]]:
    """Yield feature, number of people, number with a proved bias, number for whom it is open, and the least delta.

    Nothing counts as proved, and all as open, unless the separate checker accepted every file of proofs.
    """
    for section in result.sections:
        if section.key != "pba" or not section.answer:
            continue
        checked = {one.checked for one in section.evidence}
        whole = checked <= {"accepted", "accepted in part"}
        for feature in dict.fromkeys(one["sensitive"] for one in section.answer["biased"]):
            own = [one for one in section.answer["biased"] if one["sensitive"] == feature]
            first = min(own, key=lambda one: one["delta"])
            rows, proved, late = (first[what] for what in ("people", "proved", "unknown"))
            sure = whole and (bool(checked) or not proved)
            if rows:
                yield feature, rows, proved if sure else 0, late if sure else rows, first["delta"]


def exit_code(checks: list[GateCheck], unknown: str) -> int:
    """Return 10 if a threshold is failed, 20 if one is undecided and undecided ones fail, else 0."""
    outcomes = {one.outcome for one in checks}
    return 10 if "failed" in outcomes else 20 if "unknown" in outcomes and unknown == "fail" else 0


# Files for pipelines


def save_junit(result: AuditResult, path: Path, unknown: str) -> None:
    """Write the checks as JUnit XML: one test case for each threshold and feature; an undecided one fails, or is skipped.

    It is valid by the schema of Jenkins (junit-10.xsd), and has the elements that Ant's JUnit schema (windyroad/JUnit-Schema)
    requires.
    """
    cases = result.gate or []
    failing = sum(_fails(one, unknown) for one in cases)
    skipped = sum(one.outcome == "unknown" for one in cases) if unknown == "pass" else 0
    counts = {"tests": str(len(cases)), "failures": str(failing), "errors": "0", "skipped": str(skipped)}
    counts |= {"timestamp": result.started.partition("+")[0], "time": "0"}
    suite = xml.Element("testsuite", counts | {"name": "verifair audit", "package": "verifair", "id": "0", "hostname": "localhost"})
    xml.SubElement(suite, "properties")
    for one in cases:
        name = _clean(one.feature or one.name)
        case = xml.SubElement(suite, "testcase", classname=f"verifair.gate.{one.name}", name=name, time="0")
        if _fails(one, unknown):
            xml.SubElement(case, "failure", message=_clean(one.text), type=one.outcome).text = _clean(one.text)
        elif one.outcome == "unknown":
            xml.SubElement(case, "skipped", message=_clean(one.text))
    for empty in ("system-out", "system-err"):  # the schema requires them
        xml.SubElement(suite, empty)
    root = xml.Element("testsuites")
    root.append(suite)
    xml.indent(root)
    save_text(path, '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n")


def save_sarif(result: AuditResult, path: Path, unknown: str, model: str) -> None:
    """Write the thresholds that are not met as SARIF 2.1.0: one rule for each threshold, results at the model's file.

    model: the file's path, with "/" between its parts, relative to the pipeline's folder.
    """
    # A model has no lines, but GitHub shows no result without one.
    place = {"artifactLocation": {"uri": quote(model, errors="replace")}, "region": {"startLine": 1}}
    checks = result.gate or []
    names = list(dict.fromkeys(one.name for one in checks))
    proofs = "every proof is accepted by the separate checker"
    rules = [{"id": name, "shortDescription": {"text": WORDS.get(name, proofs)}} for name in names]
    results = [
        {
            "ruleId": one.name, "ruleIndex": names.index(one.name), "level": "error" if _fails(one, unknown) else "warning",
            "message": {"text": _clean(one.text)},
            "locations": [{"physicalLocation": place}],
        }
        for one in checks if one.outcome != "passed"
    ]  # fmt: skip
    driver = {"name": "verifair", "version": result.versions.get("verifair", ""), "rules": rules}
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }  # fmt: skip
    save_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _fails(one: GateCheck, unknown: str) -> bool:
    return one.outcome == "failed" or (one.outcome == "unknown" and unknown == "fail")


def _clean(text: str) -> str:
    """Return text that XML can hold: names of categories may have control characters."""
    return visible(text).encode("utf-8", "replace").decode()
