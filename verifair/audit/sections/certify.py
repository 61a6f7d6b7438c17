"""Certification: does anybody's decision or probability depend on a sensitive value, in a box or anywhere?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from encoders.network import Array
from encoders.onnx.runtime import runtime_logits
from verifair.audit.sections.about import ABOUT
from verifair.audit.settings import Certify
from verifair.audit.subject import Subject
from verifair.checker.check import check
from verifair.checker.envelope import semantics
from verifair.checker.kinds.partition import check_partition
from verifair.engine.gap.maximise import maximise
from verifair.engine.partition import certify_partition, describe, run_key
from verifair.engine.queries import IndividualFairness, ProbabilityGap
from verifair.engine.questions import box_of, decisions, margin
from verifair.engine.verdict import Status, Witness
from verifair.engine.verify import verify
from verifair.systems.figures import picture
from verifair.systems.findings import Evidence, Picture, Section, Standing, Statement, Tone, WitnessRow
from verifair.systems.hyfair.share import summary
from verifair.systems.hyfair.share_views import partition_plot
from verifair.systems.words import firmly, of, percent, rounded, value_words, witness_row
from verifair.systems.work import Work, called, standing

SHOWN = 300
"""People of the table who are shown one by one."""


@dataclass(kw_only=True)
class _Found:
    """What is collected on the way."""

    statements: list[Statement]
    witnesses: list[WitnessRow]
    pictures: list[Picture]
    evidence: list[Evidence]
    answer: list[dict[str, Any]]
    open: int | None = None
    """Of the feature under way: where the statement stands that the verdict was not found in time."""
    broken: str | None = None
    """Of the feature under way: a counterexample to the same question that another step found."""

    @property
    def leads(self) -> bool:
        """Whether the first screen needs what fails for possible people: where no one of the table says so already."""
        return not self.answer[-1].get("exchanged", {}).get("decided_otherwise")


def section(settings: Certify, subject: Subject, work: Work) -> Section:
    names = subject.names(settings.protected)
    found = _Found(statements=[], witnesses=[], pictures=[], evidence=[], answer=[])
    steps = [_box, *([_largest] if settings.maximise else []), *([_parts] if settings.partition is not None else [])]
    left = len(names) * len(steps)
    for name in names:
        query = IndividualFairness(
            network=subject.network, schema=subject.schema, protected=[name], box=settings.box, epsilon=settings.epsilon
        )
        found.answer.append({"protected": name})
        found.open = found.broken = None
        if subject.frame is not None:
            _exchange(subject, query, found)
        for step in steps:
            step(settings, subject, query, replace(work, deadline=work.deadline - work.left * (1 - 1 / left)), found)
            left -= 1
        if found.open is not None and found.broken is not None:
            found.statements[found.open] = _refuted(settings, subject, query, found.broken, found.leads)
    where = "among everybody whom the schema describes" if not settings.box else f"where {_where(subject, settings)}"
    return Section(
        key="certify", title=ABOUT["certify"].title, question=ABOUT["certify"].question,
        method=(
            f"Asked of all pairs of people who differ in the sensitive feature alone, {where}: bounds, branch-and-bound on inputs "
            "and neurons; sound, and complete within the time. Proofs are in certificates; every counterexample was decided in "
            "exact or outward-rounded arithmetic and replayed in the runtime."
        ),
        source=ABOUT["certify"].source, semantics=semantics(subject.network),
        statements=tuple(found.statements), witnesses=tuple(found.witnesses), pictures=tuple(found.pictures),
        evidence=tuple(found.evidence),
        settings={
            "protected": names, "epsilon": settings.epsilon, "box": dict(settings.box), "partition": settings.partition,
            "maximise": settings.maximise, "tolerance": settings.tolerance, "seed": work.seed,
        },
        answer={"by_feature": found.answer},
    )  # fmt: skip


def _where(subject: Subject, settings: Certify) -> str:
    parts = []
    for name, value in settings.box.items():
        ends = [value_words(subject.schema, name, subject.schema[name].word(subject.schema.raw_value(name, end)))
                for end in (value if isinstance(value, tuple) else (value,))]  # fmt: skip
        parts.append(f"{name} is {' to '.join(ends)}")
    return ", ".join(parts)


def _asked(query: IndividualFairness) -> str:
    name = query.protected[0]
    return f"no decision changes with {name}" if query.epsilon is None else (
        f"no probability moves by more than {query.epsilon:g} with {name}"
    )


def _refuted(settings: Certify, subject: Subject, query: IndividualFairness, sentence: str, leads: bool) -> Statement:
    what = "a decision changes" if query.epsilon is None else f"a probability moves by more than {query.epsilon:g}"
    where = f", where {_where(subject, settings)}" if settings.box else ""
    text = f"Refuted by an exact counterexample: {what} with {query.protected[0]} alone{where}. {sentence}"
    return Statement(text=text, standing=Standing.REFUTED, tone=Tone.BAD, headline=leads)


def _exchange(subject: Subject, query: IndividualFairness, found: _Found) -> None:
    """Everybody of the table with the sensitive value exchanged: decided exactly, replayed in the runtime."""
    schema, network, name = subject.schema, subject.network, query.protected[0]
    raw, v = schema.raw(subject.rows()), schema.index(name)
    flips: list[tuple[float, int, float]] = []
    asked = 0
    own = decisions(network, schema.encode(raw))
    weights = margin(network, 1, 0)
    for value in schema.values(name):
        other = raw.copy()
        other[:, v] = value
        legal = (raw[:, v] != value) & schema.inside(other)
        asked += int(legal.sum())
        others = decisions(network, schema.encode(other[legal])) if legal.any() else own[legal]
        sure = np.minimum(others, own[legal]) >= 0  # of a smooth network, a row too near to a tie is in no class
        changed = np.flatnonzero(legal)[sure & (others != own[legal])]
        gap = np.abs(expit(network.forward(schema.encode(other)) @ weights) - expit(network.forward(schema.encode(raw)) @ weights))
        flips += [(float(gap[row]), int(row), float(value)) for row in changed]
    people = len({row for _, row, _ in flips})
    flips.sort(key=lambda one: (-one[0], one[1]))
    cap = f" The {SHOWN} with the largest change are shown one by one." if len(flips) > SHOWN else ""
    found.statements.append(Statement(
        text=f"Of the table's people, {of(people, len(raw))} would be decided otherwise with another {name}, all else equal.{cap}"
        if people else f"None of the table's {len(raw):,} people would be decided otherwise with another {name}, all else equal.",
        standing=Standing.MEASURED, tone=Tone.BAD if people else Tone.GOOD, headline=True,
    ))  # fmt: skip
    found.answer[-1]["exchanged"] = {"people": len(raw), "asked": asked, "decided_otherwise": people}
    shown = _row_witnesses(subject, raw, v, [(row, value) for _, row, value in flips[:SHOWN]])
    found.witnesses += shown
    if query.epsilon is None:
        lower, upper = box_of(schema, query.box)
        inside = set(np.flatnonzero(((raw >= lower) & (raw <= upper)).all(axis=1)).tolist())
        found.broken = next(
            (one.sentence for one, (_, row, value) in zip(shown, flips, strict=False)
             if row in inside and lower[v] <= value <= upper[v] and one.flips), None
        )  # fmt: skip


def _row_witnesses(subject: Subject, raw: Array, v: int, flips: list[tuple[int, float]]) -> list[WitnessRow]:
    """People of the table beside themselves with another value.   flips: (row, value)."""
    if not flips:
        return []
    schema, network, weights = subject.schema, subject.network, margin(subject.network, 1, 0)
    pairs = np.repeat(raw[[row for row, _ in flips]], 2, axis=0)
    pairs[1::2, v] = [value for _, value in flips]
    x = schema.encode(pairs)
    outputs = (network.forward(x) @ weights).reshape(-1, 2)
    probabilities, shown = expit(outputs), None
    if network.source is not None:
        shown = (runtime_logits(network, x.astype(np.float32)) @ weights).reshape(-1, 2) > 0
    out = []
    for n, (row, _) in enumerate(flips):
        witness = Witness(
            x=schema.decode(pairs[2 * n]), x_prime=schema.decode(pairs[2 * n + 1]),
            outputs=(float(outputs[n, 0]), float(outputs[n, 1])),
            probabilities=(float(probabilities[n, 0]), float(probabilities[n, 1])),
            margin=float(abs(outputs[n, 0] - outputs[n, 1])),
            float32_agrees=None if shown is None else bool(shown[n, 0] != shown[n, 1]),
        )  # fmt: skip
        out.append(witness_row("certify", schema, witness, person=f"The person of row {row}"))
    return out


def _box(settings: Certify, subject: Subject, query: IndividualFairness, work: Work, found: _Found) -> None:
    """One verdict about the whole box."""
    name, where = query.protected[0], "anywhere" if not settings.box else f"where {_where(subject, settings)}"
    work.tell(f"verdict {name}", 0, 1)
    verdict = verify(query, budget=work.budget())
    found.answer[-1]["verdict"] = verdict.to_dict()
    asked = _asked(query)
    match verdict.status:
        case Status.PROVED:
            assert verdict.certificate is not None
            proof = work.keep(
                f"certify-{called(name)}.json.gz", verdict.certificate, f"{asked[0].upper()}{asked[1:]}, {where}.",
                lambda path, tell: check(path, network=query.network, schema=query.schema, progress=tell),
            )  # fmt: skip
            found.evidence.append(proof)
            text = f"{firmly(standing(proof))}: {asked}, {where}."
            found.statements.append(Statement(text=text, standing=standing(proof), tone=Tone.GOOD, headline=True))
        case Status.VIOLATED:
            assert verdict.witness is not None
            row = witness_row("certify", subject.schema, verdict.witness, person="A possible person")
            found.witnesses.append(row)
            found.statements.append(_refuted(settings, subject, query, row.sentence, found.leads))
        case Status.UNKNOWN:
            assert verdict.reason is not None
            text = f"Whether {asked} {where} was not decided ({verdict.reason.value}); allow more time, or a smaller box."
            found.open = len(found.statements)
            found.statements.append(Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH, headline=found.leads))


def _largest(settings: Certify, subject: Subject, query: IndividualFairness, work: Work, found: _Found) -> None:
    """The largest change of the probability, from both sides."""
    name, where = query.protected[0], "anywhere" if not settings.box else f"where {_where(subject, settings)}"
    asked = ProbabilityGap(network=query.network, schema=query.schema, protected=query.protected, box=query.box)
    result = maximise(
        asked, budget=work.budget(0.75), tolerance=settings.tolerance,
        progress=lambda low, high: work.tell(f"largest change {name}", int(1000 * min(low, 1)), int(1000 * min(high, 1)) + 1),
    )  # fmt: skip
    _reraise(result.reason)
    found.answer[-1]["largest_gap"] = result.to_dict()
    if result.certificate is not None:
        bound = rounded(result.upper, up=True, digits=4)
        proof = work.keep(
            f"gap-{called(name)}.json.gz", result.certificate, f"No probability moves by more than {bound} with {name}, {where}.",
            lambda path, tell: check(path, network=query.network, schema=query.schema, progress=tell),
        )  # fmt: skip
        found.evidence.append(proof)
        text = f"{firmly(standing(proof))}: {name} alone moves nobody's probability of {subject.favourable} by more than {bound}"
        text += f", {where}."
        tone = Tone.GOOD if result.upper <= 0.05 else Tone.PLAIN if result.upper < 0.999 else Tone.WATCH
        found.statements.append(Statement(text=text, standing=standing(proof), tone=tone, headline=True))
    else:
        text = f"No bound on how far {name} alone can move a probability was proved in the time given."
        found.statements.append(Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH))
    if result.witness is not None and result.lower > 0:
        row = witness_row("certify", subject.schema, result.witness, person="A possible person")
        found.witnesses.append(row)
        text = f"The largest change found for {name} is {rounded(result.lower, up=False, digits=4)} (exact). {row.sentence}"
        found.statements.append(Statement(text=text, standing=Standing.REFUTED, tone=Tone.BAD if row.flips else Tone.WATCH))
        if row.flips if query.epsilon is None else result.lower > query.epsilon:
            found.broken = found.broken or row.sentence


def _parts(settings: Certify, subject: Subject, query: IndividualFairness, work: Work, found: _Found) -> None:
    """The certified share of the box, and of the table's people."""
    name = query.protected[0]
    assert settings.partition is not None
    question = run_key(describe(query, settings.partition, box_of(query.schema, query.box)))
    store = f"partition-{called(name)}-{question}.sqlite"
    path = (work.folder or Path()) / store
    if path.exists() and not work.resume:
        path.unlink()
    certify_partition(
        query, size=settings.partition, store=path, resume=path.exists(), budget=work.budget(0.7), jobs=work.jobs,
        progress=work.progress(f"parts {name}"),
    )  # fmt: skip
    rows = None if subject.frame is None else subject.schema.raw(subject.frame)
    parts = summary(path, query=query, rows=rows)
    answer = {key: value for key, value in parts.to_dict().items() if key != "blocks"}  # there may be millions of these
    found.answer[-1]["partition"] = answer
    examples = [witness_row("certify", subject.schema, one, person="A possible person") for one in parts.examples]
    found.witnesses += examples
    found.broken = found.broken or next((one.sentence for one in examples), None)
    proof = None
    if parts.parts["proved"] or parts.parts["violated"]:
        proof = work.checked(
            store, f"In each part that is proved, {_asked(query)}; each refuted part holds an exact counterexample.",
            lambda at, tell: check_partition(at, network=query.network, schema=query.schema, progress=tell),
        )  # fmt: skip
        found.evidence.append(proof)
    found.statements += list(_shares(query, parts, proof))
    if proof is None:
        return
    found.pictures.append(picture(
        f"certify-{subject.schema.index(name)}", f"Where {_asked(query)}",
        f"Share of all possible people for whom it is proved that {_asked(query)}: {percent(parts.volume['proved'])}; refuted "
        f"parts make up {percent(parts.volume['violated'])}.",
        lambda to: partition_plot(parts, subject.schema, _asked(query), to),
    ))  # fmt: skip


def _shares(query: IndividualFairness, parts: Any, proof: Evidence | None) -> Iterator[Statement]:
    every, volume = sum(parts.parts.values()), parts.volume
    decided = parts.parts["proved"] + parts.parts["violated"]
    where = "all possible people" if not query.box else "the people asked about"
    text = f"None of {every:,} parts of {where} was decided in the time given."
    if decided:
        text = (
            f"Of {every:,} parts of {where}, {decided:,} were decided in the time given: {_asked(query)} in parts that make up "
            f"{percent(volume['proved'])}, while each of the parts that make up {percent(volume['violated'])} holds a pair "
            "treated differently."
        )
    if parts.rows is not None and decided:
        people = sum(parts.rows.values())
        text += f" Of the table's people, {of(parts.rows['proved'], people)} lie in proved parts."
    if proof is None:
        yield Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH)
        return
    refuted = parts.parts["violated"] > 0
    at = standing(proof)
    if at is Standing.PROVED and not parts.parts["proved"]:
        at = Standing.REFUTED
    tone = Tone.BAD if refuted else Tone.GOOD if decided == every else Tone.WATCH
    yield Statement(text=text, standing=at, tone=tone)


def _reraise(reason: Any) -> None:
    """`maximise` ends quietly on Ctrl-C; the audit is to stop."""
    if reason is not None and reason.value == "interrupted":
        raise KeyboardInterrupt
