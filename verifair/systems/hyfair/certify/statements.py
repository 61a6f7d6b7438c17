"""certify for a page: does a decision or probability depend on a sensitive value, in a box or in the whole domain?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from encoders.arrays import Array
from encoders.onnx.runtime import runtime_logits
from encoders.probability.shares import probabilities
from verifair.checker.certificates.certificate import Proof
from verifair.checker.certificates.envelope import semantics
from verifair.checker.words import counted, decided, exactly, float32_words
from verifair.engine.partition import describe, run_key
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import box_of, decisions, margin
from verifair.engine.verdict import Status
from verifair.engine.witness import witness_at
from verifair.errors import QueryError
from verifair.systems.hyfair.certify.plots import bracket_plot, partition_plot
from verifair.systems.hyfair.certify.result import (
    EnumerationResult,
    MaximumResult,
    PartitionResult,
    PartitionSummary,
    ShareResult,
    VerdictResult,
)
from verifair.systems.hyfair.certify.settings import SYSTEM, CertifySettings
from verifair.systems.hyfair.certify.solve import solve
from verifair.systems.hyfair.certify.tables import above, below, how_many, others, sample_words
from verifair.systems.results.findings import Evidence, Picture, Section, Standing, Statement, Tone, WitnessRow
from verifair.systems.results.pictures import picture
from verifair.systems.results.verdicts import Gap, VerdictShape
from verifair.systems.results.words import firmly, name_words, of, percent, rounded, value_words, witness_row
from verifair.systems.subject import Subject
from verifair.systems.work import Work, called, standing

RECHECK_SHARE = 0.5
"""Part of a share's time that is kept for re-checking it: the checker takes about as long to count the points of a cell."""
MAX_SHOWN = 300
"""Most people of the table who are shown one by one."""
GROUPS = 3
"""Most groups that a sentence counts one by one."""


@dataclass(kw_only=True)
class _SectionParts:
    """The parts of a section, collected question by question."""

    statements: list[Statement] = field(default_factory=list)
    witnesses: list[WitnessRow] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    answer: list[dict[str, Any]] = field(default_factory=list)
    open_index: int | None = None
    """For one feature: position of the statement that says that no verdict was found in time."""
    counterexample: str | None = None
    """For one feature: a sentence about a counterexample to the same question that another mode found."""

    @classmethod
    def joined(cls, parts: Sequence[_SectionParts]) -> _SectionParts:
        """Return the parts of all features, one after the other."""
        return cls(
            statements=[item for part in parts for item in part.statements],
            witnesses=[item for part in parts for item in part.witnesses],
            pictures=[item for part in parts for item in part.pictures],
            evidence=[item for part in parts for item in part.evidence],
            answer=[item for part in parts for item in part.answer],
        )

    @property
    def is_headline(self) -> bool:
        """True if a counterexample among possible people belongs on the first screen: nobody of the table is one."""
        return not self.answer[-1].get("exchanged", {}).get("decided_otherwise")


def section(settings: CertifySettings, subject: Subject, work: Work) -> Section:
    """Return the page's section on individual fairness, for each protected feature alone."""
    names = subject.names(settings.protected)
    base: dict[str, Any] = {"maximise": False, "partition": None, "enumerate": None, "share": False}
    extras = "maximise", "partition", "share", "enumerate"
    modes = [base, *({**base, mode: getattr(settings, mode)} for mode in extras if getattr(settings, mode))]
    for mode in modes:
        if mode["share"]:
            mode["epsilon"] = None  # a share is about decisions
    features = [_Feature(settings.model_copy(update={"protected": (name,)}), subject) for name in names]
    remaining = len(names) * len(modes)
    for mode in modes:  # cheap questions come first, for all features
        for feature in features:
            _ask(feature, mode, subject, replace(work, deadline=work.deadline - work.left * (1 - 1 / remaining)))
            remaining -= 1
    for asked in features:
        if asked.found.open_index is not None and asked.found.counterexample is not None:
            refutation = _refuted(settings, subject, asked.query, asked.found.counterexample, asked.found.is_headline)
            asked.found.statements[asked.found.open_index] = refutation
    parts = _SectionParts.joined([asked.found for asked in features])
    scope = "among everybody whom the schema describes" if not settings.box else f"where {_box_words(subject, settings)}"
    return Section(
        **SYSTEM.heading,
        method=(
            f"Asked of all pairs of people who differ in the sensitive feature alone, {scope}: bounds, branch-and-bound on inputs "
            "and neurons; sound, and complete within the time. Proofs are in certificates; every counterexample was decided in "
            f"exact or outward-rounded arithmetic and replayed in the runtime.{_rule(settings, subject)}"
        ),
        semantics=semantics(subject.network),
        statements=tuple(parts.statements), witnesses=tuple(parts.witnesses), pictures=tuple(parts.pictures),
        evidence=tuple(parts.evidence),
        settings={
            "protected": names, "epsilon": settings.epsilon, "signs": settings.signs, "box": dict(settings.box),
            "partition": settings.partition, "share": settings.share, "maximise": settings.maximise,
            "enumerate": settings.enumerate, "tolerance": settings.tolerance, "seed": work.seed,
        },
        answer={"by_feature": parts.answer},
    )


class _Feature:
    """One sensitive feature: the questions about it alone, and the results, those about the table's people first."""

    def __init__(self, settings: CertifySettings, subject: Subject) -> None:
        self.settings, self.query = settings, settings.question(SYSTEM.verb, subject)
        self.found = _SectionParts(answer=[{"protected": settings.protected[0]}])
        if subject.data is not None:
            _exchange(subject, self.query, self.found)


def _ask(feature: _Feature, mode: dict[str, Any], subject: Subject, work: Work) -> None:
    """Answer one question about one feature."""
    settings, query, found = feature.settings, feature.query, feature.found
    if mode["partition"] is not None or mode["share"]:
        work = _with_store(mode["partition"], query, work)
    if mode["share"]:
        work = replace(work, checks=RECHECK_SHARE)
    try:
        result = solve(settings.model_copy(update=mode), subject, work).whole()
    except QueryError as error:
        if not mode["share"]:
            raise
        text = f"How many possible people are decided alike whatever their {query.protected[0]} is was not computed: {error}."
        found.statements.append(Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH))
        return
    match result:
        case VerdictResult():
            _box(settings, subject, result, work, found)
        case MaximumResult():
            _largest(settings, subject, result, work, found)
        case EnumerationResult():
            _people(subject, result, found)
        case PartitionResult():
            _parts(subject, result, work, found)
        case ShareResult():
            _bracket(subject, result, work, found)


def _rule(settings: CertifySettings, subject: Subject) -> str:
    rule = None if settings.epsilon is not None else settings.signs
    return f" Of a decision:{decided(rule, subject.network, subject.schema)}." if rule else ""


def _with_store(size: int | None, query: IndividualFairness, work: Work) -> Work:
    """Return the work with the store of a feature's parts, or (size None) of its share, from which a resumed audit continues."""
    assert work.folder is not None
    question = run_key(describe(query, size or 2, box_of(query.schema, query.box)))
    name = f"{called(query.protected[0])}-{question}"
    path = work.folder / (f"partition-{name}.sqlite" if size else f"share-{name}.json.gz")
    if not work.resume:
        path.unlink(missing_ok=True)
    return replace(work, store=path, resume=path.exists())


def _box_words(subject: Subject, settings: CertifySettings) -> str:
    parts = []
    for name, value in settings.box.items():
        ends = [value_words(subject.schema, name, subject.schema[name].word(subject.schema.raw_value(name, end)))
                for end in (value if isinstance(value, tuple) else (value,))]
        parts.append(f"{name} is {' to '.join(ends)}")
    return ", ".join(parts)


def _scope_words(subject: Subject, settings: CertifySettings) -> str:
    return f"where {_box_words(subject, settings)}" if settings.box else "among all possible people"


def _claim(query: IndividualFairness) -> str:
    """Return the question in words. The deployed rule is the usual meaning of a decision; only the strict one is named."""
    name = query.protected[0]
    if query.epsilon is not None:
        return f"no {query.quantity} moves by more than {exactly(query.epsilon)} with {name}"
    return f"no decision changes with {name}{_strict_words(query)}"


def _strict_words(query: IndividualFairness) -> str:
    return decided("strict", query.model, query.schema) if query.rule == "strict" else ""


def _refuted(settings: CertifySettings, subject: Subject, query: IndividualFairness, sentence: str, is_headline: bool) -> Statement:
    if query.epsilon is None:
        event = f"a decision changes{_strict_words(query)}"
    else:
        event = f"a {query.quantity} moves by more than {exactly(query.epsilon)}"
    scope = f", where {_box_words(subject, settings)}" if settings.box else ""
    text = f"Refuted by an exact counterexample: {event} with {query.protected[0]} alone{scope}. {sentence}"
    brief = f"For at least one possible person {event} with {query.protected[0]} alone{scope}."
    return Statement(text=text, standing=Standing.REFUTED, tone=Tone.BAD, headline=is_headline, brief=brief)


ROWS_AT_ONCE = 10_000
"""Decided at once."""


def _exchange(subject: Subject, query: IndividualFairness, found: _SectionParts) -> None:
    """Decide everybody of the table with the sensitive value exchanged: exactly, and in the runtime."""
    schema, network, name = subject.schema, subject.judged, query.protected[0]
    raw, v = subject.raw(), schema.index(name)
    assert raw is not None, "asked where there is a table"
    flips: list[tuple[float, int, float]] = []
    ties, improved = set[int](), set[int]()
    weights = margin(network, 1, 0)
    sizes = np.asarray if schema.outcome.of == "value" else partial(probabilities, network)
    for start in range(0, len(raw), ROWS_AT_ONCE):
        part = raw[start : start + ROWS_AT_ONCE]
        before = decisions(network, schema.encode(part))
        for value in schema.values(name):
            variants = part.copy()
            variants[:, v] = value
            legal = (part[:, v] != value) & schema.inside(variants)
            after = decisions(network, schema.encode(variants[legal])) if legal.any() else before[legal]
            is_decided = np.minimum(after, before[legal]) >= 0  # a smooth network puts a row too near to a tie into no class
            changed = np.flatnonzero(legal)[is_decided & (after != before[legal])]
            ties.update((start + np.flatnonzero(legal)[~is_decided]).tolist())
            improved.update((start + changed[before[changed] != schema.good]).tolist())
            new, old = (sizes(network.forward(schema.encode(rows[changed])) @ weights) for rows in (variants, part))
            flips += [(float(gap), start + int(row), float(value)) for gap, row in zip(np.abs(new - old), changed, strict=True)]
    people = len(flipped := {row for _, row, _ in flips})
    n_open = len(ties - flipped)
    tie_note = f" {n_open:,} are too near a tie to tell." if n_open else ""
    flips.sort(key=lambda flip: (-flip[0], flip[1]))
    cap_note = f" The {MAX_SHOWN} with the largest change are shown one by one." if len(flips) > MAX_SHOWN else ""
    # If the other statements are about the strict rule, this one says that it is not.
    rule = decided("deployed", network, schema) if query.rule == "strict" else ""
    outcome = f"would be decided otherwise with another value of {name}, all else equal{rule}"
    group_of = [] if schema[name].numeric else [schema.format(name, value) for value in raw[:, v].tolist()]
    better, worse = (Counter(group_of[row] for row in rows if group_of) for rows in (improved, flipped - improved))
    totals = Counter(group_of)
    n_improved = len(improved)
    directions = f'{n_improved:,} would get "{schema.outcomes[1]}"{_by_group(name, better, totals)}, '
    directions += f'{people - n_improved:,} would get "{schema.outcomes[0]}"{_by_group(name, worse, totals)}'
    found.statements.append(Statement(
        text=f"Of the table's people, {of(people, len(raw))} {outcome}{f': {directions}' if people else ''}.{tie_note}{cap_note}"
        if people or tie_note else f"Nobody of the table ({counted(len(raw), 'row', 'rows')}) {outcome}.",
        standing=Standing.MEASURED, tone=Tone.BAD if people else Tone.WATCH if tie_note else Tone.GOOD, headline=True,
        brief=f"If only {name} changed, {of(people, len(raw))} people would be decided otherwise"
        f"{f': {directions}' if people else ''}.",
    ))
    found.answer[-1]["exchanged"] = {
        "people": len(raw), "asked": len(raw) - n_open, "decided_otherwise": people, "to_favourable": n_improved,
        "groups": {
            group: {"people": size, "decided_otherwise": better[group] + worse[group], "to_favourable": better[group]}
            for group, size in totals.items()
        },
    }
    rows_shown = _row_witnesses(subject, raw, v, [(row, value) for _, row, value in flips[:MAX_SHOWN]])
    found.witnesses += rows_shown
    if query.rule == "deployed":  # a change from or to a tie is no flip by the strict rule
        lower, upper = box_of(schema, query.box)
        in_box = set(np.flatnonzero(((raw >= lower) & (raw <= upper)).all(axis=1)).tolist())
        found.counterexample = next(
            (witness.sentence for witness, (_, row, value) in zip(rows_shown, flips, strict=False)
             if row in in_box and lower[v] <= value <= upper[v] and witness.flips), None
        )


def _by_group(name: str, tally: Counter[str], sizes: Counter[str]) -> str:
    """Return the numbers found in each group of a feature, in brackets, the most frequent group first."""
    if not tally:
        return ""
    rest = [counted(len(tally) - GROUPS, "more group", "more groups")] if len(tally) > GROUPS else []
    shown = [f"{people:,} of {sizes[group]:,} with {name_words(name)} {group}" for group, people in tally.most_common(GROUPS)]
    return f" ({', '.join(shown + rest)})"


def _row_witnesses(subject: Subject, raw: Array, v: int, flips: list[tuple[int, float]]) -> list[WitnessRow]:
    """Return people of the table, each beside the same person with another value.   flips: (row, value)."""
    if not flips:
        return []
    schema, network, weights = subject.schema, subject.judged, margin(subject.judged, 1, 0)
    pairs = np.repeat(raw[[row for row, _ in flips]], 2, axis=0)
    pairs[1::2, v] = [value for _, value in flips]
    x = schema.encode(pairs)
    outputs = (network.forward(x) @ weights).reshape(-1, 2)
    signs = None
    if network.source is not None:
        signs = (runtime_logits(network, x.astype(np.float32)) @ weights).reshape(-1, 2) > 0
    positions = np.unique([row for row, _ in flips])
    names = dict(zip(positions.tolist(), subject.rows().take(positions).frame.index.tolist(), strict=True))
    result = []
    for n, (row, _) in enumerate(flips):
        witness = witness_at(
            schema, network, pairs[2 * n : 2 * n + 2], (float(outputs[n, 0]), float(outputs[n, 1])),
            margin=float(abs(outputs[n, 0] - outputs[n, 1])), agrees=None if signs is None else bool(signs[n, 0] != signs[n, 1]),
        )
        entry = witness_row("certify", schema, witness, person=f"The person of row {names[row]}")
        result.append(entry.model_copy(update={"row": names[row]}))
    return result


def _box(settings: CertifySettings, subject: Subject, result: VerdictResult, work: Work, found: _SectionParts) -> None:
    """Add the verdict about the whole box."""
    query, verdict = result.question, result.verdict
    name, scope, claim = query.protected[0], _scope_words(subject, settings), _claim(query)
    found.answer[-1]["verdict"] = result.model_dump(include=set(VerdictShape.model_fields))
    match result.status:
        case Status.PROVED:
            assert verdict.certificate is not None
            proof = work.keep(
                f"certify-{called(name)}.json.gz", verdict.certificate,
                f"{claim[0].upper()}{claim[1:]}, {scope}. {_float32(verdict.certificate.proofs)}.",
                query.model, query.schema,
            )
            found.evidence.append(proof)
            text = f"{firmly(standing(proof))}: {claim}, {scope}."
            found.statements.append(
                Statement(text=text, standing=standing(proof), tone=Tone.GOOD, headline=True, brief=f"{name}: {claim}, {scope}.")
            )
        case Status.VIOLATED:
            assert verdict.witness is not None
            row = witness_row("certify", subject.schema, verdict.witness, person="A possible person")
            found.witnesses.append(row)
            found.statements.append(_refuted(settings, subject, query, row.sentence, found.is_headline))
        case Status.UNKNOWN:
            assert verdict.reason is not None
            text = f"Whether {claim} {scope} was not decided ({verdict.reason.value}); allow more time, or a smaller box."
            found.open_index = len(found.statements)
            found.statements.append(Statement(
                text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH, headline=found.is_headline,
                brief=f"{name}: whether {claim} {scope} was not decided ({verdict.reason.value}).",
            ))


def _people(subject: Subject, result: EnumerationResult, found: _SectionParts) -> None:
    """Add possible people who are treated differently, and whether the list is complete."""
    excluded = {"question", "enumeration", "proof_line", "query", "versions", "model_sha256", "schema_sha256", "seed"}
    found.answer[-1]["enumerated"] = result.model_dump(exclude=excluded)
    rows = [witness_row("certify", subject.schema, witness, person="A possible person") for witness in result.counterexamples]
    found.witnesses += rows[:MAX_SHOWN]
    found.counterexample = found.counterexample or next((entry.sentence for entry in rows), None)
    if rows:
        text = f"{how_many(result)} Each was decided exactly."
        found.statements.append(Statement(text=text, standing=Standing.REFUTED, tone=Tone.BAD))
    if rows or not result.complete:  # if there is nobody at all, the verdict says so
        level = Standing.CLAIMED if result.complete else Standing.UNKNOWN
        found.statements.append(Statement(text=others(result), standing=level, tone=Tone.PLAIN if result.complete else Tone.WATCH))


def _largest(settings: CertifySettings, subject: Subject, result: MaximumResult, work: Work, found: _SectionParts) -> None:
    """Add the bounds of the largest change of the probability."""
    query, gap = result.question, result.gap
    name, scope = query.protected[0], _scope_words(subject, settings)
    is_value = query.schema.outcome.of == "value"
    quantity = f'probability of "{subject.favourable}"' if query.quantity == "probability" else query.quantity
    found.answer[-1]["largest_gap"] = result.model_dump(include=set(Gap.model_fields))
    if gap.certificate is not None:
        bound = rounded(gap.upper, up=True, digits=4)
        proof = work.keep(
            f"gap-{called(name)}.json.gz", gap.certificate,
            f"No {query.quantity} moves by more than {bound} with {name}, {scope}.",
            query.model, query.schema,
        )
        found.evidence.append(proof)
        text = f"{firmly(standing(proof))}: {name} alone moves nobody's {quantity} by more than {bound}, {scope}."
        tone = Tone.PLAIN if is_value else Tone.GOOD if gap.upper <= 0.05 else Tone.PLAIN if gap.upper < 0.999 else Tone.WATCH
        brief = f"{name} alone moves nobody's {quantity} by more than {bound} (0: not at all, 1: from impossible to certain)."
        brief = f"{name} alone moves nobody's {quantity} by more than {bound}." if is_value else brief
        found.statements.append(Statement(text=text, standing=standing(proof), tone=tone, headline=True, brief=brief))
    else:
        text = f"No bound on how far {name} alone can move a {query.quantity} was proved in the time given."
        found.statements.append(Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH))
    if gap.witness is not None and gap.lower > 0:
        row = witness_row("certify", subject.schema, gap.witness, person="A possible person")
        found.witnesses.append(row)
        text = f"The largest change found for {name} is {rounded(gap.lower, up=False, digits=4)} (exact). {row.sentence}"
        found.statements.append(Statement(text=text, standing=Standing.REFUTED, tone=Tone.BAD if row.flips else Tone.WATCH))
        if row.flips and settings.signs != "strict" if settings.epsilon is None else gap.lower > settings.epsilon:
            found.counterexample = found.counterexample or row.sentence


def _float32(proofs: Sequence[Proof]) -> str:
    return float32_words(sum(proof.float32 for proof in proofs), len(proofs))


def _parts(subject: Subject, parts: PartitionResult, work: Work, found: _SectionParts) -> None:
    """Add the certified share of the box, and of the table's people."""
    query = parts.question
    assert work.store is not None
    names = {*PartitionSummary.model_fields, *PartitionSummary.model_computed_fields} - {"blocks"}  # there may be millions of these
    found.answer[-1]["partition"] = parts.model_dump(include=names)
    examples = [witness_row("certify", subject.schema, example, person="A possible person") for example in parts.examples]
    found.witnesses += examples
    found.counterexample = found.counterexample or next((example.sentence for example in examples), None)
    proof = None
    if parts.parts.proved or parts.parts.violated:
        proof = work.checked(
            work.store.name, f"In each part that is proved, {_claim(query)}; each refuted part holds an exact counterexample.",
            query.model, query.schema,
        )
        found.evidence.append(proof)
    found.statements += list(_shares(query, parts, proof))
    if proof is None:
        return
    found.pictures.append(picture(
        f"certify-{subject.schema.index(query.protected[0])}", f"Where {_claim(query)}",
        f"Share of all possible people for whom it is proved that {_claim(query)}: {percent(parts.volume.proved)}; refuted "
        f"parts make up {percent(parts.volume.violated)}.",
        lambda to: partition_plot(parts, subject.schema, _claim(query), to),
    ))


def _bracket(subject: Subject, share: ShareResult, work: Work, found: _SectionParts) -> None:
    """Add the share of all points of the box, and of the table's people, that are treated fairly."""
    query, lower, upper = share.question, below(share.fair), above(1 - share.unfair)
    assert work.store is not None
    fields = {"tolerance", "fair", "unfair", "open", "reason", "cells", "rows", "sample"}
    exact = {"fair": str(share.certificate.fair), "unfair": str(share.certificate.unfair)}
    found.answer[-1]["share"] = share.model_dump(mode="json", include=fields) | {"exact": exact}
    scope = "all possible people" if not query.box else "the people asked about"
    if share.sample is not None:
        text = f"Measured, not proved: {sample_words(share.sample)}."
        found.statements.append(Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH))
    if not share.fair and not share.unfair:
        text = f"For how many of {scope} {_claim(query)} is open: nothing was shown in the time given."
        found.statements.append(Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH))
        return
    proof = work.checked(
        work.store.name, f"For at least {lower} and at most {upper} of {scope}, {_claim(query)}.", query.model, query.schema
    )
    found.evidence.append(proof)
    text = f"For at least {lower} and at most {upper} of {scope}, all combinations of values alike, {_claim(query)}."
    if share.reason is not None:
        text += f" {above(share.open)} are open: the time was not enough for {share.tolerance:g}."
    if share.rows is not None:
        people = share.rows.fair + share.rows.unfair
        note = " Nobody of the table is among them, with two legal combinations of values to compare."
        text += f" So it is for {of(share.rows.fair, people)} of the table's people." if people else note
    tone = Tone.BAD if share.unfair else Tone.GOOD if share.reason is None else Tone.WATCH
    found.statements.append(Statement(text=text, standing=standing(proof), tone=tone))
    found.pictures.append(picture(
        f"certify-share-{subject.schema.index(query.protected[0])}", f"For how many people {_claim(query)}",
        f"What was shown over time; in the end it is proved for {lower} of {scope} that {_claim(query)}, and for "
        f"{below(share.unfair)} that some decision changes.",
        lambda to: bracket_plot(share, to),
    ))


def _shares(query: IndividualFairness, parts: PartitionSummary, proof: Evidence | None) -> Iterator[Statement]:
    total, volume = parts.parts.all, parts.volume
    decided = parts.parts.proved + parts.parts.violated
    scope = "all possible people" if not query.box else "the people asked about"
    text = f"None of {total:,} parts of {scope} was decided in the time given."
    if decided:
        text = (
            f"Of {total:,} parts of {scope}, {decided:,} were decided in the time given: {_claim(query)} in parts that make up "
            f"{percent(volume.proved)}, while each of the parts that make up {percent(volume.violated)} holds a pair "
            "treated differently."
        )
    if parts.rows is not None and decided:
        people = parts.rows.all
        text += f" Of the table's people, {of(parts.rows.proved, people)} lie in proved parts."
    if parts.parts.proved:
        text += f" {float32_words(parts.certified_for_float32, parts.parts.proved)}."
    if proof is None:
        yield Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH)
        return
    refuted = parts.parts.violated > 0
    level = standing(proof)
    if level is Standing.PROVED and not parts.parts.proved:
        level = Standing.REFUTED
    tone = Tone.BAD if refuted else Tone.GOOD if decided == total else Tone.WATCH
    yield Statement(text=text, standing=level, tone=tone)
