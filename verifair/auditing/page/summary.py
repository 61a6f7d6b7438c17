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

MAX_PEOPLE = 3
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
        return bool(self.groups) or any(value is not None for value in (self.flips, self.alike, self.gap))

    @property
    def top(self) -> float | None:
        """The highest rate of a compared group; None if none is compared."""
        return max((group.rate.mean for group in self.groups if group.ratio is not None), default=None)

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
    flips = {name: (entry["decided_otherwise"], entry["asked"], entry["people"]) for name, entry in exchanged.items()}
    parts = _proved_parts(result)
    return tuple(
        SensitiveFeature(
            name=name, groups=() if result.decisions is None else result.decisions.of(name), flips=flips.get(name),
            gain=exchanged.get(name, {}).get("to_favourable"), hit=_hit(exchanged.get(name, {}).get("groups", {})),
            alike=alike.get(name, parts.get(name)), gap=gap.get(name), boxed=boxed(result),
        )
        for name in result.protected
    )  # fmt: skip


def _hit(groups: Mapping[str, Mapping[str, int]]) -> tuple[str, int, int] | None:
    candidates = [(name, counts["to_favourable"], counts["people"]) for name, counts in groups.items() if counts["people"] >= SMALL]
    top = max(candidates, key=lambda candidate: candidate[1] / candidate[2], default=None)
    return top if top is not None and top[1] else None


def _proved_parts(result: AuditResult) -> dict[str, tuple[float, float]]:
    """Return, by feature, bounds of the share of possible people decided alike, from the proved parts; nothing is known of the
    others."""
    bounds = dict[str, tuple[float, float]]()
    if strict(result):
        return bounds
    for name, parts in by_feature(result, "partition"):
        files = [
            proof.checked for section in result.sections for proof in section.evidence
            if proof.file.rpartition("/")[2].startswith(f"partition-{called(name)}-")
        ]
        accepted = bool(files) and set(files) <= {"accepted", "accepted in part"}
        bounds[name] = (parts["shares"]["volume"]["proved"] if accepted else 0.0, 0.0)
    return bounds


def answer(result: AuditResult) -> tuple[str, str]:
    """Return tone and text of the answer: does a sensitive feature alone change decisions, and which groups fail the four-fifths
    rule?"""
    sensitive = features(result)
    flips = {feature.name: feature for feature in sensitive if feature.flips is not None and feature.flips[0]}
    unchanged = {f.name for f in sensitive if f.flips is not None and f.flips[2] == f.flips[1] and not f.flips[0]}
    dependence = {name: _dependence(result, name) for name in result.protected}
    yes, no, open_ = ([name for name, state in dependence.items() if state == kind] for kind in ("yes", "no", "open"))
    changes: list[str] = []
    text: list[str] = []
    for name in sorted(yes, key=lambda n: n not in flips):
        clause = f"{'if' if changes else 'If'} only {name_words(name)} changed"
        verb = "would" if changes else "would get another decision"
        if name in flips:
            feature = flips[name]
            assert feature.flips is not None
            changed, examined, people = feature.flips
            people_text = f"{changed:,}" if changes else f"{changed:,} of the table's {people:,} people"
            share = percent(changed / people) + ("" if examined == people else " at least")
            changes.append(f"{clause}, {people_text} ({share}) {verb}{_directions(feature, result)}")
        else:
            table_text = ", nobody in the table would" if name in unchanged else ""
            changes.append(f"{clause}, possible people {verb}{table_text}")
    if changes:
        text.append(f"Yes. {listed(changes)}.")
    no, open_ = ([name_words(name) for name in names] for names in (no, open_))
    if no:
        scope = "on anybody whom the schema describes"
        text.append(f"{'' if text else 'No. '}It is proved that another value of {listed(no)} alone changes no decision, {scope}.")
    if open_:
        unknown = "" if text else "Not known. "
        text.append(f"{unknown}Whether another value of {listed(open_)} alone changes decisions was not shown.")
    failing = [_failing(f, group, result.favourable) for f in sensitive for group in f.groups if fails(group)]
    if failing:
        text.append(f"Below the four-fifths limit of 0.8: {listed(failing)}.")
    return "bad" if yes or failing else "open" if open_ or not no else "good", " ".join(text)


def _directions(feature: SensitiveFeature, result: AuditResult) -> str:
    """Return the direction in which decisions change, if it is known."""
    if feature.flips is None or feature.gain is None:
        return ""
    lost = feature.flips[0] - feature.gain
    return f' ({feature.gain:,} to the favourable "{result.favourable}", {lost:,} to "{result.unfavourable}")'


def _failing(feature: SensitiveFeature, group: GroupDecisions, favourable: str) -> str:
    best = reference(feature.groups)
    bounds = "" if group.ratio_low is None else f"95 % interval {group.ratio_low:.2f} to {group.ratio_high:.2f}, "
    counts = f"{group.people:,} and {best.people:,} people" + ("" if clear(group) else "; that it is below 0.8 may be chance")
    name, often = name_words(feature.name), ratio_words(group.ratio or 0.0)
    people = f'people with {name} {group.group} get "{favourable}" {often} times as often as those with {name} {best.group}'
    return f"{people} ({bounds}{counts})"


def surely(result: AuditResult) -> str:
    """Return a sentence on the certainty of the first screen's numbers."""
    parts = []
    if any(feature.flips is not None for feature in features(result)):
        parts.append("changed decisions compare each person with themselves and are counted exactly")
    if result.decisions is not None:
        parts.append("ratios compare whole groups, in which other features differ too, and have 95 % intervals")
    checked = evidence_counts(result)
    if checked:
        accepted, partly = checked["accepted"] + checked["accepted in part"], checked["accepted in part"]
        remarks = [f"{checked[status]} {status}" for status in ("rejected", "not re-checked") if checked[status]]
        remarks = [*([f"in {partly} of them some questions are undecided"] if partly else []), *remarks]
        text = f"a separate program checked the proofs again and accepted {accepted:,} of {checked.total():,} proof files"
        parts.append(text + (f" ({', '.join(remarks)})" if remarks else ""))
    return "; ".join(parts)


def hit(result: AuditResult) -> str:
    """Return, for each feature, the group whose people would most often gain the favourable outcome with another value; or ""."""
    hits = [(feature.name, *feature.hit) for feature in features(result) if feature.hit is not None]
    return " ".join(
        f'By {name_words(name)}, most often people with {name_words(name)} {group}: {gain:,} of {people:,} '
        f'({percent(gain / people)}) would get "{result.favourable}" with another value.' for name, group, gain, people in hits
    )


def _dependence(result: AuditResult, name: str) -> str:
    """Return, in words, whether decisions depend on a feature alone: yes by an exact counterexample, no by an accepted proof, else
    open."""
    if any(feature == name and entry["decided_otherwise"] for feature, entry in by_feature(result, "exchanged")):
        return "yes"
    for section in result.sections:
        if section.key == "certify" and section.settings.get("epsilon") is None:
            entry: Mapping[str, Any] = next((e for e in section.answer.get("by_feature", ()) if e["protected"] == name), {})
            status = entry.get("verdict", {}).get("status")
            if status == "violated":
                return "yes"
            accepted = f"certify-{called(name)}.json.gz" in accepted_files(result)
            unrestricted = not section.settings.get("box") and section.settings.get("signs") != "strict"
            if status == "proved" and accepted and unrestricted:
                return "no"
    return "open"


def lines(result: AuditResult) -> tuple[Line, ...]:
    """Return a line for each analysis of the audit, in the order of the page."""
    return tuple(_line(position, section) for position, section in enumerate(result.sections, start=1))


def _line(position: int, section: Section) -> Line:
    shown = [statement for statement in section.statements if statement.headline] or list(section.statements[:1])
    shown.sort(key=lambda statement: ORDER.index(tone(statement)))
    worst = min((tone(statement) for statement in shown), key=ORDER.index, default="open")
    return Line(
        place=position, title=section.title, tone=worst, ended=ended(section),
        headlines=tuple(shown[:LINES]), more=max(0, len(shown) - LINES),
    )


def questions(result: AuditResult) -> dict[str, str]:
    """Return title -> question of each analysis, those of the audit first."""
    headings = (system(key).heading for key in known_analyses())
    return {one.title: one.question for one in result.sections} | {one["title"]: one["question"] for one in headings}


def people(result: AuditResult) -> tuple[Person, ...]:
    """Return the clearest counterexamples: changed decisions first, people of the table before possible ones, then by size of the
    change.

    Each shows another feature or, failing that, another person than those before it, as long as there are such.
    """
    pairs = [(place, witness) for place, section in enumerate(result.sections, start=1) for witness in section.witnesses]
    pairs.sort(key=lambda pair: (not pair[1].flips, pair[1].row is None, -abs(pair[1].after - pair[1].before)))
    selected = list[Person]()
    while pairs and len(selected) < MAX_PEOPLE:
        seen, ids = {tuple(person.witness.changes) for person in selected}, [_key(person.witness) for person in selected]
        place, witness = min(pairs, key=lambda p: (_key(p[1]) in ids, tuple(p[1].changes) in seen))  # the first of the least
        selected.append(Person(witness=witness, place=place))
        pairs = [pair for pair in pairs if pair[1] is not witness]
    return tuple(selected)


def _key(witness: WitnessRow) -> Any:
    """Return the person whom a counterexample is about: a row, or a possible person by all values that are not exchanged."""
    return witness.row if witness.row is not None else {k: v for k, v in witness.person.items() if k not in witness.changes}


def not_examined(result: AuditResult) -> Iterator[str]:
    """Yield the questions that the audit does not answer, one per line."""
    if any(source.role == DRAFT for source in result.sources):
        yield (
            "Whether the schema is right: it was drafted from the table, and nobody has confirmed its favourable decision, ranges, "
            "scaling and order of columns. Every proof depends on them."
        )
    keys = {section.key for section in result.sections}
    left_out = [system(key) for key in known_analyses() if key not in keys]
    if left_out:
        missing = [s.heading["title"] + "".join(f" (needs {NEEDS.get(name, name)})" for name in s.required) for s in left_out]
        yield f"Not asked for: {'; '.join(missing)}."
    for section in result.sections:
        outcome = ended(section)
        if outcome != "finished":
            yield f"{section.title}: {outcome}."
    sampled = [f"{section.title} ({words})" for section in result.sections if DRAWN in (words := str(section.settings.get("rows")))]
    if sampled:
        yield f"People of the table who were not drawn: {listed(sampled)}."
    if result.treated:
        yield f"The original rows of people with missing values or values outside the schema{result.treated}."
    if result.decisions is None:
        yield "Rates of groups: there is no table of people."
    else:
        small = [f"{name_words(g.feature)} {g.group} ({g.people:,})" for g in result.decisions.groups if not g.ranked]
        if small:
            yield f"Groups of fewer than {SMALL} people, too few to compare: {listed(small)}."
    for feature in features(result):
        if feature.flips is not None and feature.flips[1] < feature.flips[2]:
            rest = f"{feature.flips[2] - feature.flips[1]:,} of the table's {feature.flips[2]:,} people"
            yield f"Not decided for {rest}: whether another value of {name_words(feature.name)} changes it."
        open_ = 0.0 if feature.alike is None else 1.0 - sum(feature.alike)
        if open_ > 0:
            text = f" for {percent(open_)} of {feature.whom}: whether" if open_ < 1 else f": for how many of {feature.whom}"
            yield f"Not decided{text} another value of {name_words(feature.name)} changes the decision."
    others = f"The effect of features other than {listed(result.protected)}; whether" if result.protected else "Whether"
    yield f"{others} the labels are right, and whether the table represents those who are decided on."
