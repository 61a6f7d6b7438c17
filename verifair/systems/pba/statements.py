"""PBA for a page: for how many people does a sensitive value alone raise the probability, also for everybody near them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from verifair.checker.certificates.certificate import Counterexample
from verifair.checker.certificates.envelope import semantics
from verifair.checker.words import counted, float32_words
from verifair.engine.exchange import Exchange
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.store import OPEN, PROVED, REFUTED, Verdicts
from verifair.engine.verdict import Status
from verifair.schema.outcome import PositiveRule
from verifair.systems.groups import SMALL
from verifair.systems.pba.evidence import certificates, classes_of
from verifair.systems.pba.plots import outcome_plot
from verifair.systems.pba.result import Asked, PbaResult
from verifair.systems.pba.settings import SYSTEM, PbaSettings
from verifair.systems.pba.solve import solve
from verifair.systems.results.findings import DataTable, Evidence, Picture, Section, Standing, Statement, Tone
from verifair.systems.results.pictures import picture
from verifair.systems.results.words import firmly, moves, of, units
from verifair.systems.subject import Subject
from verifair.systems.work import Work, called, standing

MOST_PAIRS = 10
"""Pairs of values that are told one by one; of a feature with more, such as an age in years, those by which most are biased."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Proved:
    """One query of one feature, and the files of its proofs."""

    query: PersistentBias | Robustness
    verdicts: Verdicts
    evidence: tuple[Evidence, ...]

    @property
    def exchange(self) -> Exchange:
        exchange = self.query.exchange
        assert exchange is not None
        return exchange

    @property
    def standing(self) -> Standing:
        """The standing of the weakest of its files."""
        return Standing.PROVED if all(standing(file) is Standing.PROVED for file in self.evidence) else Standing.CLAIMED


def section(settings: PbaSettings, subject: Subject, work: Work) -> Section:
    """Return the page's section on PBA."""
    result = solve(settings, subject, work)
    proved = [_save_proofs(asked, result, work) for asked in result.asked]
    statements, doubt = [], result.people.counts.doubt
    if doubt is not None:
        statements.append(Statement(text=doubt, standing=Standing.MEASURED, tone=Tone.BAD, headline=True))
    unit = moves(subject.schema, settings.protected)
    for name in result.protected:
        for answer in (answer for answer in proved if answer.exchange.name == name):
            biased = isinstance(answer.query, PersistentBias)
            statements += _biased(subject, answer, unit, result.rows) if biased else _robust(answer)
    return Section(
        **SYSTEM.heading,
        method=(
            f"Asked of {result.rows}: of those people whose label the model predicts correctly, as they are and with the "
            "sensitive value exchanged, and of "
            f"everybody near them: one unit moves {unit}; categories stay. Bounds and "
            "branch-and-bound; sound, and complete within the time. Every proof is in a certificate; every refutation has an "
            "exact counterexample."
        ),
        semantics=semantics(subject.network), statements=tuple(statements),
        pictures=tuple(_picture(result, name) for name in result.protected),
        tables=(_shares_table(result, subject), _rates_table(result.rates, result.rows), _gaps_table(result.gaps, result.rows)),
        evidence=tuple(file for answer in proved for file in answer.evidence),
        settings={
            "protected": list(settings.protected), "delta": list(settings.delta), "intersections": settings.intersections,
            "rows": result.rows, "robustness": settings.robustness,
            "seed": work.seed,
        },
        answer=result.model_dump(exclude={"verdicts", "stored", "seconds", "seed", "versions"}),
    )


def _save_proofs(asked: Asked, result: PbaResult, work: Work) -> _Proved:
    """Save a query's proofs beside the page, re-check them, and return both."""
    kind, claim = ("bias", "persistent bias") if asked.is_bias else ("robustness", "robustness")
    tally = asked.verdicts.tally("status", "float32")
    if not (tally["status"] == Status.PROVED.value).any():
        return _Proved(query=asked.query, verdicts=asked.verdicts, evidence=())
    assert work.folder is not None
    evidence = []
    for file, certificate in certificates(asked, result.people, work.folder, f"pba-{kind}-{called(asked.sensitive)}"):
        proofs = [proof for proof in certificate.proofs if not isinstance(proof.evidence, Counterexample)]
        if not proofs:
            file.unlink()
            continue
        text = (
            f"{counted(len(proofs), 'proof', 'proofs')} of {claim} by {asked.sensitive}. "
            f"{float32_words(sum(proof.float32 for proof in proofs), len(proofs))}."
        )
        evidence.append(work.checked(file.name, text, result.network, result.described))
    return _Proved(query=asked.query, verdicts=asked.verdicts, evidence=tuple(evidence))


def _biased(subject: Subject, result: _Proved, unit: str, rows: str) -> Iterator[Statement]:
    """Yield a statement for each pair of values and delta, up to MOST_PAIRS for each delta. The pair with most biased people at the
    smallest delta goes to the first screen.

    unit: the move of one unit of delta, in words.   rows: the audited rows of the table, in words.
    """
    multiclass, outcome = subject.network.outputs > 2, subject.schema.outcome
    score, selection = f'the probability of "{subject.favourable}"', dict[str, Sequence[int]]()
    if multiclass:
        # With more classes, a margin over the others is about the favourable class only if that is the row's own class.
        favoured = outcome.favoured(subject.network.outputs)
        selection = {"labels": favoured, "against": [c for c in range(subject.network.outputs) if c not in favoured]}
        score = "the lead of their class over each that is not favourable" if len(favoured) > 1 else score
    if outcome.of == "value":
        score = "the value"
    pairwise = _by_pair(result.verdicts.answers(**selection), outcome)
    if not len(pairwise):
        yield from _of_other_classes(result, selection["labels"]) if multiclass else ()
        return
    persons = f"people whose label is {subject.favourable}, predicted" if multiclass else "people whose label the model predicts"
    persons += " correctly with either value"
    lower_is_better = outcome.of == "value" and outcome.operator in ("<", "<=")  # True if low values are favourable
    up, down = ("lowers", "raises") if lower_is_better else ("raises", "lowers")
    smallest = min(result.query.delta)
    pairwise["biased"] = pairwise["raises"] + pairwise["lowers"]
    shown = pairwise.sort_values("biased", ascending=False, kind="stable").groupby("delta").head(MOST_PAIRS)
    first = shown.index[shown["delta"] == smallest][0]
    exchange, pairs = result.exchange, int((pairwise["delta"] == smallest).sum())
    for position, line in shown.sort_index().iterrows():
        low, high = (exchange.format(line[end]) for end in ("low", "high"))
        biased, people = int(line["biased"]), int(line["people"])
        pair, raises, lowers = f"{exchange.name} {high} instead of {low}", int(line["raises"]), int(line["lowers"])
        nearby = f", also for everybody within {units(line['delta'])} of them" if line["delta"] else ""
        if biased:
            text = (
                f"{firmly(result.standing)}{nearby}: {pair} {up} {score} for "
                f"{of(raises, people)} {persons}, and {down} it for {of(lowers, people)}."
            )
        else:
            text = f"For none of {people:,} {persons} it is proved that {pair} changes {score}{nearby}."
        if line["neither"]:
            text += f" For {int(line['neither']):,} neither is true of everybody near them (an exact counterexample for each)."
        if line["unknown"]:
            text += f" {int(line['unknown']):,} were not decided."
        if nearby and unit and position == first:
            text += f" One unit: {unit}."
        tone = Tone.WATCH if biased or line["unknown"] else Tone.GOOD
        level = result.standing if biased else Standing.UNKNOWN if line["unknown"] else Standing.REFUTED
        note = " (and for everybody almost like them)" if nearby else ""
        brief = f"{pair} {up} {score} for {raises:,} of {people:,} {persons}{note}; {down} it for {lowers:,}"
        brief += f", neither for {int(line['neither']):,}" if line["neither"] else ""
        brief += f"; {int(line['unknown']):,} not decided." if line["unknown"] else "."
        comparison = "most people are biased by this one" if biased else "nobody is proved to be biased by any of them"
        brief += f" Asked of {rows}{'' if pairs == 1 else f', and of {pairs:,} pairs of values: {comparison}'}."
        yield Statement(text=text, standing=level, tone=tone, headline=position == first, brief=brief if position == first else "")
    words = len(exchange.names) > 1 or exchange.schema[exchange.names[0]].categories is not None
    ordering = "value that the schema names later" if words else "higher value"
    for delta, rest in pairwise.drop(shown.index).groupby("delta"):
        counts = [int((rest["raises"] > rest["lowers"]).sum()), int((rest["raises"] < rest["lowers"]).sum())]
        n_equal = int((rest["biased"] > 0).sum()) - sum(counts)
        nearby = f", also within {units(delta)}" if delta else ""
        text = (
            f"{counted(len(rest), 'further pair', 'further pairs')} of values of {exchange.name}, by none of which more people are "
            f"biased{nearby}: as far as is proved, the {ordering} {up} {score} "
            f"for more people than it {down} it for in {counts[0]:,} of them, and for fewer in {counts[1]:,}"
            f"{f'; in {n_equal:,} for as many' if n_equal else ''}."
        )
        biased, unknown = bool(rest["biased"].any()), bool(rest["unknown"].any())
        level = result.standing if biased else Standing.UNKNOWN if unknown else Standing.REFUTED
        yield Statement(text=text, standing=level, tone=Tone.WATCH if biased or unknown else Tone.GOOD)
    if multiclass:
        yield from _of_other_classes(result, selection["labels"])


def _of_other_classes(result: _Proved, favoured: Sequence[int]) -> Iterator[Statement]:
    """Yield a statement for each delta on biased people whose class is not favourable; of the smallest on the first screen."""
    answers = result.verdicts.answers(labels=[c for c in range(result.query.model.outputs) if c not in favoured])
    biased = (answers["observed"] == PROVED) | (answers["flipped"] == PROVED)
    for delta, people in answers[biased].groupby("delta")["people"].sum().items():
        nearby = f", also for everybody within {units(delta)} of them" if delta else ""
        audited = int(answers["people"][answers["delta"] == delta].sum())
        each = "" if len({*answers["group"]}) == 2 else ", each counted with every other value"
        text = (
            f"{firmly(result.standing)}{nearby}: another value of {result.exchange.name} changes the margin of their own class, "
            f"for {of(int(people), audited)} people whose label is not favourable and predicted correctly with either value{each}."
        )
        brief = f"Another value of {result.exchange.name} also moves {int(people):,} of {audited:,} people whose label is not "
        brief += "favourable."
        first = delta == min(result.query.delta)
        yield Statement(text=text, standing=result.standing, tone=Tone.WATCH, headline=first, brief=brief if first else "")


def _by_pair(answers: pd.DataFrame, outcome: PositiveRule) -> pd.DataFrame:
    """Return the people favoured by the higher value of each pair: delta, low, high, people, raises, lowers, neither, unknown.

    answers: as `Verdicts.answers` counts them. A row with the favourable label that is proved *observed*, or another proved
    *flipped*, is favoured by its own value. With more than two classes a row counts if this holds against every other class.
    """
    favourable = outcome.favourable(answers["label"].to_numpy())
    observed, flipped = (answers[goal] == PROVED for goal in ("observed", "flipped"))
    own = (favourable & observed) | (~favourable & flipped)
    other = (favourable & flipped) | (~favourable & observed)
    higher = answers["group"] > answers["to"]
    unknown = ((answers["observed"] == OPEN) | (answers["flipped"] == OPEN)) & ~own & ~other
    outcomes = {"raises": (own & higher) | (other & ~higher), "lowers": (own & ~higher) | (other & higher), "unknown": unknown}
    table = pd.DataFrame({
        "delta": answers["delta"], "low": answers[["group", "to"]].min(axis=1), "high": answers[["group", "to"]].max(axis=1),
        **{name: answers["people"].where(mask, 0) for name, mask in outcomes.items()}, "people": answers["people"],
    })
    totals = table.groupby(["delta", "low", "high"], as_index=False).sum()
    totals["neither"] = totals["people"] - totals["raises"] - totals["lowers"] - totals["unknown"]
    return totals


def _robust(result: _Proved) -> Iterator[Statement]:
    """Yield statements on whether decisions on people as they are change nearby."""
    answers = result.verdicts.answers()
    for delta, part in answers[answers["robust"].notna()].groupby("delta"):
        count = part.groupby("robust")["people"].sum()
        proved, refuted, unknown = (int(count.get(status, 0)) for status in (PROVED, REFUTED, OPEN))
        total, condition = proved + refuted + unknown, f"within {units(delta)}, {result.exchange.name} unchanged"
        if proved:
            text = f"{firmly(result.standing)} {condition}: the decision stays the same for everybody near {of(proved, total)} "
            text += f"people whose label is predicted correctly{f'; near {refuted:,} it changes' if refuted else ''}."
        else:
            persons = f"{total:,} people whose label is predicted correctly"
            text = f"For none of {persons} it is proved that the decision stays the same {condition}"
            text += f"; near {refuted:,} it changes." if refuted else "."
        text += f" {unknown:,} were not decided." if unknown else ""
        tone = Tone.GOOD if proved == total else Tone.WATCH if unknown else Tone.PLAIN
        level = result.standing if proved else Standing.UNKNOWN if unknown else Standing.REFUTED
        yield Statement(text=text, standing=level, tone=tone)


def _picture(result: PbaResult, name: str) -> Picture:
    return picture(
        f"pba-{called(name)}", f"Proved persistent bias by {name}",
        f"Share of people in whom the model is proved to be more confident as they are (left), or with {name} exchanged (right), "
        "by true outcome and group; the table below has the numbers.",
        lambda path: outcome_plot(name, result.shares, path, classes_of(result.asked[0].query)),
    )


def _shares_table(result: PbaResult, subject: Subject) -> DataTable:
    new = {"sensitive": "feature", "rows": "people", "label": "true outcome"}
    table = result.shares.drop(columns=["shown"]).rename(columns=new)
    outcome, classes, names = subject.schema.outcome, classes_of(result.asked[0].query), dict[str, str]()
    if len(classes) >= 3 and len(favoured := outcome.numbered(classes).favoured(len(classes))) == 1:
        names = {classes[favoured[0]]: subject.favourable}
    table["true outcome"] = [names.get(label, label) for label in table["true outcome"]]
    return DataTable(
        title="Proved shares", rows=table.reset_index(drop=True),
        note="PBA observed: the model is more confident in people as they are than with the other value, for everybody near them; "
        "flipped: the reverse. RB: the decision stays the same near them. One row for each true outcome, own group and other "
        "group.",
    )


def _rates_table(rates: pd.DataFrame, rows_words: str) -> DataTable:
    return DataTable(
        title="Rates by group", rows=rates.rename(columns={"sensitive": "feature", "rows": "people"}).reset_index(drop=True),
        note="SP: share given the favourable outcome. TPR, FPR: the same among people with, or without, the favourable label. "
        "CFA: share of pairs of a person and a legal counterfactual that are decided alike; none where the schema's "
        "constraints allow no counterfactual. low, high: of the 95 % interval. ranked: compared with other groups. "
        f"Measured on {rows_words}.",
    )


def _gaps_table(gaps: pd.DataFrame, rows_words: str) -> DataTable:
    return DataTable(
        title="Gaps between groups", rows=gaps.rename(columns={"sensitive": "feature"}).reset_index(drop=True),
        note="The highest rate of a group minus the lowest, with its 95 % interval for all pairs of groups together. Groups "
        f"of fewer than {SMALL} people are not compared; small: how many. Measured on {rows_words}.",
    )
