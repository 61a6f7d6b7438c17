"""The first screen, computed from the audit: the answer, the groups, a line for each analysis, examples, and open questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verifair.auditing.decisions import GroupDecisions, clear, fails, ratio_words, reference
from verifair.auditing.gate import accepted_files, boxed, by_feature, gaps, shares, strict
from verifair.auditing.page.contents import ended, evidence_counts, tone
from verifair.auditing.result import AuditResult
from verifair.auditing.settings import known_analyses
from verifair.auditing.subject import DRAFT
from verifair.systems.groups import SMALL
from verifair.systems.results.findings import Section, Statement, WitnessRow
from verifair.systems.results.words import DRAWN, listed, name_words, percent, rounded
from verifair.systems.system import system
from verifair.systems.work import called

PEOPLE = 3
"""Counterexamples of the first screen."""
LINES = 2
"""Headlines of an analysis that are shown there."""
NEEDS = {"causal": "a causal model"}
"""Required settings in words."""
ORDER = ("bad", "watch", "open", "good", "plain")
"""Tones, the gravest first."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The line of an analysis.   place: its section.   tone: of the worst headline.   ended: its outcome.   headlines: the first
    ones. more: number of others."""

    place: int
    title: str
    tone: str
    ended: str
    headlines: tuple[Statement, ...]
    more: int


@dataclass(frozen=True, kw_only=True)
class SensitiveFeature:
    """A sensitive feature: its groups, and the effect of the feature alone.

    flips: numbers of people of the table who would be decided otherwise, who are decided, and of all; None: not asked.
    gain: number of the former who would be decided favourably; None: not asked.
    hit: the group with the largest share of people who would gain, their number, and its size; None: nobody, or not asked.
    alike: shares of possible people (0 to 1) proved to be decided alike, and proved not to be; None: not asked.
    gap: bounds of the largest change of a probability; None: not asked.   boxed: True if both are about a part of all people only.
    """

    name: str
    groups: tuple[GroupDecisions, ...]
    flips: tuple[int, int, int] | None
    gain: int | None
    hit: tuple[str, int, int] | None
    alike: tuple[float, float] | None
    gap: tuple[float, float] | None
    boxed: bool

    @property
    def whom(self) -> str:
        return "the people asked about" if self.boxed else "all possible people"

    @property
    def shown(self) -> bool:
        return bool(self.groups) or any(one is not None for one in (self.flips, self.alike, self.gap))

    @property
    def top(self) -> float | None:
        """The highest rate of a compared group; None if none is compared."""
        return max((one.rate.mean for one in self.groups if one.ratio is not None), default=None)

    @property
    def reached(self) -> str:
        """The largest change that was found, rounded down."""
        return "" if self.gap is None else rounded(self.gap[0], up=False, digits=3)

    @property
    def ruled(self) -> str:
        """The proved bound of all changes, rounded up."""
        return "" if self.gap is None else rounded(self.gap[1], up=True, digits=3)


@dataclass(frozen=True, kw_only=True)
class Person:
    """A counterexample, and its section."""

    witness: WitnessRow
    place: int


def features(result: AuditResult) -> tuple[SensitiveFeature, ...]:
    """Return every sensitive feature, in the order of the audit."""
    alike = {name: (float(low), float(1 - high)) for name, low, high, _ in shares(result) if low is not None and high is not None}
    gap = {name: (low, high) for name, low, high, _ in gaps(result) if low is not None and high is not None}
    exchanged = dict(by_feature(result, "exchanged"))
    flips = {name: (one["decided_otherwise"], one["asked"], one["people"]) for name, one in exchanged.items()}
    parts = _parts(result)
    return tuple(
        SensitiveFeature(
            name=name, groups=() if result.decisions is None else result.decisions.of(name), flips=flips.get(name),
            gain=exchanged.get(name, {}).get("to_favourable"), hit=_hit(exchanged.get(name, {}).get("groups", {})),
            alike=alike.get(name, parts.get(name)), gap=gap.get(name), boxed=boxed(result),
        )
        for name in result.protected
    )  # fmt: skip


def _hit(groups: Mapping[str, Mapping[str, int]]) -> tuple[str, int, int] | None:
    found = [(name, one["to_favourable"], one["people"]) for name, one in groups.items() if one["people"] >= SMALL]
    most = max(found, key=lambda one: one[1] / one[2], default=None)
    return most if most is not None and most[1] else None


def _parts(result: AuditResult) -> dict[str, tuple[float, float]]:
    """Return, by feature, bounds of the share of possible people decided alike, from the proved parts; nothing is known of the
    others."""
    found = dict[str, tuple[float, float]]()
    if strict(result):
        return found
    for name, parts in by_feature(result, "partition"):
        files = [
            one.checked for section in result.sections for one in section.evidence
            if one.file.rpartition("/")[2].startswith(f"partition-{called(name)}-")
        ]
        sure = bool(files) and set(files) <= {"accepted", "accepted in part"}
        found[name] = (parts["shares"]["volume"]["proved"] if sure else 0.0, 0.0)
    return found


def answer(result: AuditResult) -> tuple[str, str]:
    """Return tone and text of the answer: does a sensitive feature alone change decisions, and which groups fail the four-fifths
    rule?"""
    known = features(result)
    flips = {one.name: one for one in known if one.flips is not None and one.flips[0]}
    nobody = {one.name for one in known if one.flips is not None and one.flips[2] == one.flips[1] and not one.flips[0]}
    how = {name: _depends(result, name) for name in result.protected}
    yes, no, open_ = ([name for name, one in how.items() if one == which] for which in ("yes", "no", "open"))
    changes: list[str] = []
    text: list[str] = []
    for name in sorted(yes, key=lambda one: one not in flips):
        only = f"{'if' if changes else 'If'} only {name_words(name)} changed"
        do = "would" if changes else "would get another decision"
        if name in flips:
            one = flips[name]
            assert one.flips is not None
            changed, asked, people = one.flips
            whom = f"{changed:,}" if changes else f"{changed:,} of the table's {people:,} people"
            share = percent(changed / people) + ("" if asked == people else " at least")
            changes.append(f"{only}, {whom} ({share}) {do}{_ways(one, result)}")
        else:
            here = ", nobody in the table would" if name in nobody else ""
            changes.append(f"{only}, possible people {do}{here}")
    if changes:
        text.append(f"Yes. {listed(changes)}.")
    no, open_ = ([name_words(name) for name in names] for names in (no, open_))
    if no:
        scope = "on anybody whom the schema describes"
        text.append(f"{'' if text else 'No. '}It is proved that another {listed(no)} alone changes no decision, {scope}.")
    if open_:
        text.append(f"{'' if text else 'Not known. '}Whether another {listed(open_)} alone changes decisions was not shown.")
    failing = [_failing(feature, one, result.favourable) for feature in known for one in feature.groups if fails(one)]
    if failing:
        text.append(f"Below the four-fifths limit of 0.8: {listed(failing)}.")
    return "bad" if yes or failing else "open" if open_ or not no else "good", " ".join(text)


def _ways(one: SensitiveFeature, result: AuditResult) -> str:
    """Return the direction in which decisions change, if it is known."""
    if one.flips is None or one.gain is None:
        return ""
    return f' ({one.gain:,} the favourable "{result.favourable}", {one.flips[0] - one.gain:,} "{result.unfavourable}")'


def _failing(feature: SensitiveFeature, one: GroupDecisions, favourable: str) -> str:
    best = reference(feature.groups)
    between = "" if one.ratio_low is None else f"95 % interval {one.ratio_low:.2f} to {one.ratio_high:.2f}, "
    counts = f"{one.people:,} and {best.people:,} people" + ("" if clear(one) else "; that it is below 0.8 may be chance")
    return f'{one.group} gets "{favourable}" {ratio_words(one.ratio or 0.0)} times as often as {best.group} ({between}{counts})'


def surely(result: AuditResult) -> str:
    """Return a sentence on the certainty of the first screen's numbers."""
    parts = []
    if any(one.flips is not None for one in features(result)):
        parts.append("changed decisions compare each person with themselves and are counted exactly")
    if result.decisions is not None:
        parts.append("ratios compare whole groups, in which other features differ too, and have 95 % intervals")
    checked = evidence_counts(result)
    if checked:
        fine, part = checked["accepted"] + checked["accepted in part"], checked["accepted in part"]
        other = [f"{checked[what]} {what}" for what in ("rejected", "not re-checked") if checked[what]]
        other = [*([f"in {part} of them some questions are undecided"] if part else []), *other]
        said = f"a separate program checked the proofs again and accepted {fine:,} of {checked.total():,} proof files"
        parts.append(said + (f" ({', '.join(other)})" if other else ""))
    return "; ".join(parts)


def hit(result: AuditResult) -> str:
    """Return, for each feature, the group whose people would most often gain the favourable outcome with another value; or ""."""
    said = [(one.name, *one.hit) for one in features(result) if one.hit is not None]
    return " ".join(
        f'By {name_words(name)}, most often {group}: {gain:,} of {people:,} ({percent(gain / people)}) would get '
        f'"{result.favourable}" with another value.' for name, group, gain, people in said
    )


def _depends(result: AuditResult, name: str) -> str:
    """Return, in words, whether decisions depend on a feature alone: yes by an exact counterexample, no by an accepted proof, else
    open."""
    if any(feature == name and one["decided_otherwise"] for feature, one in by_feature(result, "exchanged")):
        return "yes"
    for section in result.sections:
        if section.key == "certify" and section.settings.get("epsilon") is None:
            found: Mapping[str, Any] = next((one for one in section.answer.get("by_feature", ()) if one["protected"] == name), {})
            status = found.get("verdict", {}).get("status")
            if status == "violated":
                return "yes"
            accepted = f"certify-{called(name)}.json.gz" in accepted_files(result)
            whole = not section.settings.get("box") and section.settings.get("signs") != "strict"
            if status == "proved" and accepted and whole:
                return "no"
    return "open"


def lines(result: AuditResult) -> tuple[Line, ...]:
    """Return a line for each analysis of the audit, in the order of the page."""
    return tuple(_line(place, section) for place, section in enumerate(result.sections, start=1))


def _line(place: int, section: Section) -> Line:
    chosen = [one for one in section.statements if one.headline] or list(section.statements[:1])
    chosen.sort(key=lambda one: ORDER.index(tone(one)))
    worst = min((tone(one) for one in chosen), key=ORDER.index, default="open")
    return Line(
        place=place, title=section.title, tone=worst, ended=ended(section),
        headlines=tuple(chosen[:LINES]), more=max(0, len(chosen) - LINES),
    )


def questions(result: AuditResult) -> dict[str, str]:
    """Return title -> question of each analysis, those of the audit first."""
    left_out = (system(key).heading for key in known_analyses())
    return {one.title: one.question for one in result.sections} | {one["title"]: one["question"] for one in left_out}


def people(result: AuditResult) -> tuple[Person, ...]:
    """Return the clearest counterexamples: changed decisions first, people of the table before possible ones, then by size of the
    change.

    Each shows another feature or, failing that, another person than those before it, as long as there are such.
    """
    found = [(place, one) for place, section in enumerate(result.sections, start=1) for one in section.witnesses]
    found.sort(key=lambda one: (not one[1].flips, one[1].row is None, -abs(one[1].after - one[1].before)))
    chosen = list[Person]()
    while found and len(chosen) < PEOPLE:
        told, met = {tuple(one.witness.changes) for one in chosen}, [_who(one.witness) for one in chosen]
        place, witness = min(found, key=lambda one: (_who(one[1]) in met, tuple(one[1].changes) in told))  # the first of the least
        chosen.append(Person(witness=witness, place=place))
        found = [one for one in found if one[1] is not witness]
    return tuple(chosen)


def _who(witness: WitnessRow) -> Any:
    """Return the person whom a counterexample is about: a row, or a possible person by all values that are not exchanged."""
    return witness.row if witness.row is not None else {k: v for k, v in witness.person.items() if k not in witness.changes}


def not_examined(result: AuditResult) -> Iterator[str]:
    """Yield the questions that the audit does not answer, one per line."""
    if any(source.role == DRAFT for source in result.sources):
        yield (
            "Whether the schema is right: it was drafted from the table, and nobody has confirmed its ranges, scaling and order of "
            "columns. Every proof depends on them."
        )
    asked = {section.key for section in result.sections}
    left_out = [system(key) for key in known_analyses() if key not in asked]
    if left_out:
        missing = [one.heading["title"] + "".join(f" (needs {NEEDS.get(name, name)})" for name in one.required) for one in left_out]
        yield f"Not asked for: {'; '.join(missing)}."
    for section in result.sections:
        how = ended(section)
        if how != "finished":
            yield f"{section.title}: {how}."
    drawn = [f"{section.title} ({words})" for section in result.sections if DRAWN in (words := str(section.settings.get("rows")))]
    if drawn:
        yield f"People of the table who were not drawn: {listed(drawn)}."
    if result.treated:
        yield f"The original rows of people with missing values or values outside the schema{result.treated}."
    if result.decisions is None:
        yield "Rates of groups: there is no table of people."
    else:
        small = [f"{name_words(one.feature)} {one.group} ({one.people:,})" for one in result.decisions.groups if not one.ranked]
        if small:
            yield f"Groups of fewer than {SMALL} people, too few to compare: {listed(small)}."
    for one in features(result):
        if one.flips is not None and one.flips[1] < one.flips[2]:
            rest = f"{one.flips[2] - one.flips[1]:,} of the table's {one.flips[2]:,} people"
            yield f"Not decided for {rest}: whether another {name_words(one.name)} changes the decision."
        open_ = 0.0 if one.alike is None else 1.0 - sum(one.alike)
        if open_ > 0:
            most = f" for {percent(open_)} of {one.whom}: whether" if open_ < 1 else f": for how many of {one.whom}"
            yield f"Not decided{most} another {name_words(one.name)} changes the decision."
    others = f"The effect of features other than {listed(result.protected)}; whether" if result.protected else "Whether"
    yield f"{others} the labels are right, and whether the table represents those who are decided on."
