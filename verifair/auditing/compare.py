"""Compare two audits: better, worse, unclear and incomparable quantities.

Shares of people differ if their 95 % intervals (Wilson) do not overlap. This holds even if the people of the two audits are
dependent, as the standard deviation of a difference is at most the sum of the two. Newcombe's interval, for independent people,
would be too short if two models err on different people of one table. A certified quantity lies between two bounds; it differs if
these do not overlap. A point estimate alone never makes anything better, worse or unchanged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from verifair.auditing.decisions import ratio_words
from verifair.auditing.gate import biased, by_feature, flips, gaps, shares
from verifair.auditing.result import AuditResult, Comparison, QuantityChange
from verifair.errors import QueryError
from verifair.systems.proportions import wilson_of
from verifair.systems.results.findings import Section
from verifair.systems.results.words import percent

Better = Literal["lower", "higher"] | None
COMPARED = ("decisions", "flips", "pba", "certify", "kmax")
"""Whose numbers are compared; `flips` are those of `certify` about the table's people."""
QUESTION_SETTINGS = {"certify": ("epsilon", "signs", "box"), "kmax": ("protected", "buckets", "values", "box")}
"""Settings on which the answers of an analysis depend, effort aside. PBA's delta is in the name of its quantity."""
MAX_PEOPLE = 2**53
"""More are counted by no table, and by no float64."""
OTHER_SCHEMA = "another schema describes other people"


MOST = 1 << 28
"""Bytes of the JSON of an audit."""


@dataclass(frozen=True, kw_only=True)
class _Quantity:
    """One number of an audit.   low, high: its bounds (None: not known).   people: number of people that it counts; None: it is
    about all possible people.   better: the direction that is better."""

    low: float | None
    high: float | None
    shown: str
    people: int | None
    better: Better

    def __post_init__(self) -> None:
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        if not all(map(math.isfinite, bounds)) or bounds != sorted(bounds):
            raise ValueError(f"{self.shown[:200]!r} lies between no two numbers")
        is_count = isinstance(self.people, int) and 0 <= self.people <= MAX_PEOPLE  # the JSON is not trusted
        if self.people is not None and not (is_count and all(0 <= bound <= 1 for bound in bounds)):
            raise ValueError(f"{self.shown[:200]!r} is no share of people")


def load(path: Path) -> AuditResult:
    """Return the audit in a JSON file, without its pictures. Raises QueryError for any other file."""
    try:
        if path.stat().st_size > MOST:
            raise QueryError(f"--against {path}: has more than {MOST >> 20} MiB; name the file that an audit wrote beside its page")
        content = _with_pictures(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise QueryError(f"--against {path}: cannot be read ({error.strerror}); name the JSON beside an audit's page") from None
    except (ValueError, RecursionError):
        raise QueryError(f"--against {path}: is no JSON; name the file that an audit wrote beside its page") from None
    expected = AuditResult.model_fields["format"].default
    actual = content.get("format") if isinstance(content, dict) else None
    if actual != expected:
        raise QueryError(f"--against {path}: its format is {actual!r}, expected {expected!r}: the JSON beside an audit's page")
    remedy = "another version of verifair wrote it: run that audit again"
    try:
        result = AuditResult.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        location = ".".join(map(str, problem["loc"]))
        raise QueryError(f"--against {path}: {location}: {problem['msg']}; {remedy}") from None
    try:  # answers of analyses have no type here: read what is compared before any analysis runs
        for key in COMPARED:
            _quantities(result, key)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise QueryError(f"--against {path}: an answer has another shape than ours ({reason}); {remedy}") from None
    return result


def _with_pictures(content: Any) -> Any:
    """Return the content with empty drawings, which the JSON leaves out."""
    if isinstance(content, dict):
        filled = {name: _with_pictures(value) for name, value in content.items()}
        return {**filled, "svg": ""} if set(content) == {"title", "alt"} else filled
    return [_with_pictures(item) for item in content] if isinstance(content, list) else content


def compare(now: AuditResult, before: AuditResult) -> Comparison:
    """Return the changes from one audit to another."""
    same = {role: _digest(now, role) == _digest(before, role) for role in ("model", "schema", "data")}
    changes = []
    if now.favourable != before.favourable:
        why = f"the favourable outcome is {now.favourable} here and {before.favourable} there"
        changes.append(_apart("decisions", None, why))
    else:
        table, model = all(same.values()), same["model"] and same["schema"]
        difference = "" if same["schema"] else OTHER_SCHEMA
        for key in COMPARED:
            why = "" if key == "decisions" else difference or _question_difference(now, before, key)
            same_people = model if key in ("certify", "kmax") else table
            changes += _changes(_quantities(now, key), _quantities(before, key), why, same_people)
    changes += _not_compared(now, before)
    return Comparison(title=before.title, started=before.started, same_model=same["model"], same_schema=same["schema"],
                      same_data=same["data"], changes=tuple(changes))  # fmt: skip


def _not_compared(now: AuditResult, before: AuditResult) -> Iterator[QuantityChange]:
    """Yield a line for each analysis whose numbers are not compared, so that nobody takes them for unchanged."""
    for key in ("cst", "cec", "fgce"):
        sections = [section for section in (_section(now, key), _section(before, key)) if section is not None]
        if sections:
            text = "its measurements are not compared: read them on both pages"
            yield _apart(sections[0].title, None, text if len(sections) == 2 else "only one of the two audits has it")


def _digest(result: AuditResult, role: str) -> str | None:
    return next((source.sha256 for source in result.sources if source.role.split(" ")[0] == role), None)


def _section(result: AuditResult, key: str) -> Section | None:
    return next((section for section in result.sections if section.key == key), None)


def _question_difference(now: AuditResult, before: AuditResult, key: str) -> str:
    """Return the difference between the two questions of an analysis; empty if they are the same."""
    first, second = _section(now, key), _section(before, key)
    if first is None or second is None:
        return ""
    names = [name for name in QUESTION_SETTINGS.get(key, ()) if first.settings.get(name) != second.settings.get(name)]
    return f"asked with other settings ({', '.join(names)})" if names else ""


def _quantities(result: AuditResult, key: str) -> dict[tuple[str, str], _Quantity]:
    """Return the quantities of one of COMPARED in an audit, by name and group."""
    by_name = {"decisions": _decisions, "flips": _flips}
    return dict(by_name[key](result) if key in by_name else _answers(result, key))


def _decisions(result: AuditResult) -> Iterator[tuple[tuple[str, str], _Quantity]]:
    """Yield the quantities of the model's decisions on the table's people."""
    if result.decisions is None:
        return
    for feature in result.protected:
        groups = result.decisions.of(feature)
        for group in groups:
            if not group.ranked:
                continue
            name, rate = f"{feature}: {group.group}", group.rate
            shown = f"{percent(rate.mean)} of {group.people:,}"
            yield ("rate of the favourable decision", name), _Quantity(
                low=rate.mean, high=rate.mean, shown=shown, people=group.people, better=None)
            if group.accuracy is not None:
                yield ("accuracy", name), _Quantity(low=group.accuracy, high=group.accuracy, people=group.people, better="higher",
                                                    shown=f"{percent(group.accuracy)} of {group.people:,}")  # fmt: skip
        # The reference has no interval. The lowest ratio is at most each group's; earlier versions had no bound for a rate of 0.
        ratios = [group for group in groups if group.ratio is not None and (group.ratio_low is not None or group.ratio < 1)]
        if ratios:
            worst = min(ratios, key=lambda group: group.ratio or 0.0)
            low = min(group.ratio_low or 0.0 for group in ratios)
            high = min((group.ratio_high for group in ratios if group.ratio_high is not None), default=None)
            ratio_text = ratio_words(worst.ratio or 0.0, digits=3)
            interval = f"{low:.3f} to {'?' if high is None else format(high, '.3f')}"
            yield ("lowest rate by the highest (four-fifths)", feature), _Quantity(
                low=low, high=high, people=None, better="higher", shown=f"{ratio_text} ({interval}, {worst.group})")


def _flips(result: AuditResult) -> Iterator[tuple[tuple[str, str], _Quantity]]:
    """Yield the shares of the table's people who would be decided otherwise with another value of a feature."""
    people = {feature: answer["people"] for feature, answer in by_feature(result, "exchanged")}
    for feature, low, high, shown in flips(result):
        yield ("people of the table decided otherwise with another value", feature), _Quantity(
            low=low, high=high, people=people[feature], better="lower", shown=shown,
        )


def _answers(result: AuditResult, key: str) -> Iterator[tuple[tuple[str, str], _Quantity]]:
    """Yield the quantities that one analysis proved, by feature."""
    section = _section(result, key)
    statuses = {proof.checked for proof in section.evidence} if section is not None else set()
    if key == "pba":
        for feature, rows, proved, undecided, delta in biased(result):
            yield (f"people with a proved persistent bias (delta {delta:g})", feature), _Quantity(
                low=proved / rows, people=rows, better="lower", high=(proved + undecided) / rows,
                shown=f"{proved:,} of {rows:,}" + (f" ({undecided:,} not decided)" if undecided else ""),
            )
    if key == "certify":
        for feature, low, high, shown in gaps(result):
            yield ("largest gap of the probability", feature), _Quantity(
                low=low, high=high, shown=shown, people=None, better="lower")
        for feature, fair, upper, shown in shares(result):
            yield ("share of possible people treated alike", feature), _Quantity(
                low=None if fair is None else float(fair), high=None if upper is None else float(upper), shown=shown, people=None,
                better="higher")
    if key == "kmax" and section is not None and "lower" in section.answer:
        low, high = section.answer["lower"], section.answer["upper"] if statuses == {"accepted"} else None
        shown = f"{low} to {high}" if low != high else f"{low}"
        yield ("outcome buckets of one person", ", ".join(section.settings.get("protected", ()))), _Quantity(
            low=low, high=high, shown=shown, people=None, better="lower")


def _changes(
    now: dict[tuple[str, str], _Quantity], before: dict[tuple[str, str], _Quantity], why: str, same: bool
) -> Iterator[QuantityChange]:
    for what, of in dict.fromkeys((*now, *before)):
        first, second = before.get((what, of)), now.get((what, of))
        if first is None or second is None:
            yield _apart(what, of, "only one of the two audits has it", first, second)
        elif why:
            yield _apart(what, of, why, first, second)
        else:
            yield _change(what, of, first, second, same)


def _apart(what: str, of: str | None, why: str, first: _Quantity | None = None, second: _Quantity | None = None) -> QuantityChange:
    return QuantityChange(
        what=what, of=of, before=first.shown if first else None, now=second.shown if second else None, low=None, high=None,
        standing="incomparable", why=why,
    )


def _change(what: str, of: str, first: _Quantity, second: _Quantity, same: bool) -> QuantityChange:
    """Compare two quantities by their bounds.

    same: both are of one model, and of one table if of people.
    """
    bounds = [bound for bound in (first.low, first.high, second.low, second.high) if bound is not None]
    if len(bounds) < 4:
        return QuantityChange(what=what, of=of, before=first.shown, now=second.shown, low=None, high=None, standing="not clear",
                      why="one end is not known")  # fmt: skip
    (a, b, c, d), why = bounds, ""
    low, high = c - b, d - a
    if first.people and second.people:
        low = wilson_of(c, second.people)[0] - wilson_of(b, first.people)[1]
        high = wilson_of(d, second.people)[1] - wilson_of(a, first.people)[0]
        why = "" if (a, c) == (b, d) else "not all were decided"
    standing: Any = "not clear"
    decided, is_count = (a, c) == (b, d), first.people is not None
    certain = (same and decided) if is_count else (same or decided)
    if certain and (a, b, first.people) == (c, d, second.people):
        standing = "unchanged"
    elif low > 0 or high < 0:
        direction = "higher" if low > 0 else "lower"
        standing = "moved" if second.better is None else "better" if direction == second.better else "worse"
    return QuantityChange(what=what, of=of, before=first.shown, now=second.shown, low=low, high=high, standing=standing, why=why)
