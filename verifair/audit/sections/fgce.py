"""FGCE: what would those refused have to change, and does one group have it harder than another?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, cast

import pandas as pd

from verifair.audit.sections.about import ABOUT
from verifair.audit.settings import Fgce
from verifair.audit.subject import Subject
from verifair.checker.check import check
from verifair.checker.envelope import semantics
from verifair.datasets.groups import group_of
from verifair.systems.fgce import plots as group_plots
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.findings import GroupSummary, advice_table, summaries
from verifair.systems.fgce.robust_report import Standing as Decided
from verifair.systems.fgce.tables import Comparison, comparisons
from verifair.systems.figures import picture
from verifair.systems.findings import DataTable, Evidence, Picture, Section, Standing, Statement, Tone
from verifair.systems.words import firmly, listed, moves, of, percent, units
from verifair.systems.work import OutOfTime, Work, called, standing

SOLVING = 0.6
"""Share of a feature's time that goes to the groups' counterfactuals; the rest is for proofs that they are robust."""


def section(settings: Fgce, subject: Subject, work: Work) -> Section:
    frame, rows = subject.some(settings.rows, work.seed)
    names = list(dict.fromkeys(settings.protected or subject.protected))
    statements: list[Statement] = []
    pictures: list[Picture] = []
    tables: list[DataTable] = []
    evidence: list[Evidence] = []
    answers: list[dict[str, Any]] = []
    for n, name in enumerate(names):
        groups = pd.DataFrame({name: group_of(subject.schema, frame, name, settings.split.get(name))})
        model = _fitted(settings, subject, frame, groups, work, len(names) - n)
        found = summaries(model, frame.index, seed=work.seed)
        compared = comparisons(model, found, None, seed=work.seed)
        statements += [*_groups(subject, settings, model, found), *_compared(name, compared, model.stranded_)]
        decided = Decided.of(
            model, frame.index, settings.robust, seconds=0.7 * work.left / (len(names) - n),
            progress=lambda done, total: work.tell("robust counterfactuals", done, total),
        )  # fmt: skip
        if decided.certified is not None:
            proof, said = _robust(subject, name, decided, work)
            evidence += [proof] if proof is not None else []
            statements += said
        pictures.append(picture(
            f"fgce-{n}", f"What has to change, and what it costs, by {name}",
            "Left: how often each feature has to change, by group. Right: what the changes cost. Groups: "
            f"{listed([one.name for one in found])}.",
            lambda path, model=model, found=found: group_plots.overview(  # type: ignore[misc]
                found, model.attribute_changes(), None, path, model.cost
            ),
        ))  # fmt: skip
        tables += [_advice(name, found), _comparison(name, compared)]
        answers.append({
            "protected": name, "groups": [one.to_dict() for one in found], "left_out": model.skipped_,
            "comparison": [asdict(one) | {"clear": one.clear} for one in compared], **decided.to_dict(),
            "graph": {"nodes": len(model.graph_), "edges": model.graph_.edges, "eps": model.graph_.eps},
        })  # fmt: skip
    return Section(
        key="fgce", title=ABOUT["fgce"].title, question=ABOUT["fgce"].question,
        method=(
            f"A graph over {rows}: steps between people that only change what may change, in the allowed direction. For each "
            f"group at most {settings.k} people with {subject.favourable} are chosen as examples, so that the longest way to one "
            f"is shortest. The choice is optimal where that is proved; costs ({group_plots.UNITS[settings.cost]}) and comparisons "
            "are measured on these rows (95 % by bootstrap)."
        ),
        source=ABOUT["fgce"].source, semantics=semantics(subject.network),
        statements=tuple(statements), pictures=tuple(pictures), tables=tuple(tables), evidence=tuple(evidence),
        settings={
            "protected": names, "k": settings.k, "coverage": settings.coverage, "max_cost": settings.max_cost,
            "cost": settings.cost, "factuals": settings.factuals, "robust": list(settings.robust), "rows": rows, "seed": work.seed,
        },
        answer={"by_feature": answers},
    )  # fmt: skip


def _fitted(
    settings: Fgce, subject: Subject, frame: pd.DataFrame, groups: pd.DataFrame, work: Work, left: int
) -> GroupCounterfactuals:  # fmt: skip
    seconds = SOLVING * work.left / left / max(len(groups.drop_duplicates()), 1)
    model = GroupCounterfactuals(
        subject.network, subject.schema, k=settings.k, coverage=settings.coverage, max_cost=settings.max_cost, cost=settings.cost,
        eps=settings.eps, factuals=settings.factuals, changes=cast(Any, settings.changes), seconds=seconds, threads=work.jobs,
        empty="skip",
    )  # fmt: skip

    def tell(what: str, done: int, total: int) -> None:
        work.tell(what, done, total)
        if what != "groups" and done < total and work.up:  # the groups watch the time themselves
            raise OutOfTime(f"the time was up after {done:,} of {total:,} ({what}); ask about fewer rows (rows = ...)")

    return model.fit(frame, sensitive_features=groups, progress=tell)


def _groups(
    subject: Subject, settings: Fgce, model: GroupCounterfactuals, found: list[GroupSummary]
) -> Iterator[Statement]:  # fmt: skip
    for one in found:
        way = f"{one.name}: {of(one.factuals, one.negatives)} people refused can reach somebody with {subject.favourable}"
        way += " by allowed steps"
        if one.hopeless:
            way += f"; for {one.hopeless:,} the rows used show no such way"
        yield Statement(text=way + ".", standing=Standing.MEASURED, tone=Tone.WATCH if one.hopeless else Tone.PLAIN)
        if not one.advice:
            continue
        best = one.certainty
        text = f"{one.name}: {one.used} examples serve {of(one.covered, one.factuals)} of them, at a cost of at most {one.cost:.4g}"
        if best.optimal:
            text += f"; no other choice of at most {settings.k} does better on these rows."
            at = Standing.PROVED if best.trust == "proved" else Standing.CLAIMED
        else:
            text += f"; that nothing better exists is not shown ({best.text})."
            at = Standing.UNKNOWN
        yield Statement(text=text, standing=at, tone=Tone.PLAIN)
    for name, people in model.stranded_.items():
        text = f"{name}: none of {people:,} people refused can reach somebody with {subject.favourable} by allowed steps between "
        text += "the rows used, so there is nothing to compare."
        yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH, headline=True)
    for name, why in model.skipped_.items():
        if name not in model.stranded_:
            yield Statement(text=f"{name}: left out, {why}.", standing=Standing.SKIPPED, tone=Tone.PLAIN)


def _compared(name: str, compared: list[Comparison], stranded: Mapping[str, int]) -> Iterator[Statement]:
    """Which group has it harder; the first screen gets the mean cost, and who has no way at all."""
    without = f" (without {listed([group.removeprefix(f'{name} = ') for group in stranded])})" if stranded else ""
    for one in compared:
        head = one.measure in ("mean cost", "share without any feasible counterfactual")
        share = one.measure.startswith("share")
        own = {group.removeprefix(f"{name} = "): value for group, value in one.values.items()}
        told = ", ".join(f"{group} {percent(value) if share else f'{value:.3g}'}" for group, value in own.items())
        text = f"{_measure(one.measure)}, by {name}{without}: {told}."
        if one.clear:
            text += f" It is higher for {str(one.worst).removeprefix(f'{name} = ')}."
        elif len(one.values) > 1:
            text += " No clear difference." if one.known else " What time left open could change the order."
        tone = Tone.WATCH if one.clear and one.worst is not None and head else Tone.PLAIN
        yield Statement(text=text, standing=Standing.MEASURED, tone=tone, headline=head and one.clear)


def _measure(name: str) -> str:
    """In words for the first screen."""
    return {
        "share without any feasible counterfactual": "People refused for whom the rows used show no way to the favourable decision",
        "mean cost": "What people refused have to change, on average (cost)", "largest cost d": "The costliest way within a group",
    }.get(name, f"{name[0].upper()}{name[1:]}")  # fmt: skip


def _robust(subject: Subject, name: str, decided: Decided, work: Work) -> tuple[Evidence | None, list[Statement]]:
    assert decided.certified is not None
    table, certificate = decided.certified.table, decided.certified.certificate
    proof = None
    if certificate is not None:
        proof = work.keep(
            f"fgce-{called(name)}.json.gz", certificate, f"Examples for {name} that keep {subject.favourable} nearby.",
            lambda path, tell: check(path, network=subject.network, schema=subject.schema, progress=tell),
        )  # fmt: skip
    said = []
    for delta, part in table.drop_duplicates(["row", "delta"]).groupby("delta"):
        count = part["status"].value_counts()
        proved, refuted, unknown = (int(count.get(one, 0)) for one in ("proved", "violated", "unknown"))
        at = standing(proof) if proof is not None and proved else Standing.REFUTED if refuted else Standing.UNKNOWN
        text = (
            f"{firmly(at) if proved else 'Asked'} within {units(float(delta))}: {of(proved, len(part))} examples for {name} keep "
            f"{subject.favourable}, also for everybody near them ({moves(subject.schema, [])})."
        )
        text += f" {refuted:,} do not (an exact counterexample each)." if refuted else ""
        text += f" {unknown:,} were not decided." if unknown else ""
        said.append(Statement(text=text, standing=at, tone=Tone.WATCH if refuted or unknown else Tone.GOOD))
    return proof, said


def _advice(name: str, found: list[GroupSummary]) -> DataTable:
    return DataTable(
        title=f"Examples by {name}", rows=advice_table(found).reset_index(drop=True),
        note="Each is a real row of the table with the favourable decision; serves: how many people refused are sent to it.",
    )  # fmt: skip


def _comparison(name: str, compared: list[Comparison]) -> DataTable:
    rows = pd.DataFrame([
        {"measure": one.measure, **one.values, "higher for": one.worst if one.clear else "not clear", "by": one.apart,
         "low": one.chance.low if one.chance else None, "high": one.chance.high if one.chance else None}
        for one in compared
    ])  # fmt: skip
    return DataTable(title=f"Groups by {name} compared", rows=rows, note="low, high: 95 % bootstrap interval of the difference.")
