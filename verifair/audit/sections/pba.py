"""PBA: for whom does a sensitive value alone raise the probability of the favourable outcome, and for everybody near them?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from verifair.audit.pictures import picture
from verifair.audit.result import DataTable, Evidence, Picture, Section, Standing, Statement, Tone
from verifair.audit.sections.about import ABOUT
from verifair.audit.settings import Pba
from verifair.audit.subject import Subject
from verifair.audit.words import firmly, moves, of, units
from verifair.audit.work import Work, called, standing
from verifair.checker.check import check
from verifair.checker.envelope import semantics
from verifair.engine.queries import PersistentBias, Robustness
from verifair.errors import DataError, Disagreement
from verifair.systems.hyfair.share_views import percent
from verifair.systems.numbers import counted
from verifair.systems.pba.evidence import certificate_of
from verifair.systems.pba.report import answer_of, outcome_plot
from verifair.systems.pba.rows import Table, verify_rows
from verifair.systems.pba.scores import complementary, group_rates, proved_shares

FOUR_FIFTHS = 0.8
"""Below this ratio of the rates of two groups the selection is worth a look (US Uniform Guidelines on Employee Selection, 1978)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Asked:
    """One query of one feature, decided."""

    query: PersistentBias | Robustness
    verdicts: pd.DataFrame
    evidence: Evidence | None

    @property
    def standing(self) -> Standing:
        return Standing.PROVED if self.evidence is None else standing(self.evidence)


def section(settings: Pba, subject: Subject, work: Work) -> Section:
    frame, rows = subject.some(settings.rows, work.seed)
    table = Table.of(subject.network, subject.schema, frame)
    names = subject.names(settings.protected)
    asked: list[_Asked] = []
    statements = [] if table.doubt is None else [
        Statement(text=table.doubt, standing=Standing.MEASURED, tone=Tone.BAD, headline=True)
    ]  # fmt: skip
    pictures: list[Picture] = []
    rates = []
    kinds = (PersistentBias, Robustness) if settings.robustness else (PersistentBias,)
    for n, name in enumerate(names):
        _check_groups(subject, table, name)
        rates.append(group_rates(subject.network, subject.schema, table, name))
        for m, kind in enumerate(kinds):
            query = kind(network=subject.network, schema=subject.schema, sensitive=name, delta=list(settings.delta))
            share = 1 / ((len(names) - n) * len(kinds) - m)
            asked.append(_decided(query, table, frame, work, share))
    verdicts = pd.concat([one.verdicts for one in asked], ignore_index=True)
    if not complementary(verdicts):
        raise Disagreement("PBA: a row was proved in both directions; please report it with the audit file")
    all_rates, shares = pd.concat(rates, ignore_index=True), proved_shares(verdicts, subject.schema)
    for name in names:
        statements += _rates(subject, all_rates[all_rates["sensitive"] == name], name, len(frame))
        for one in (one for one in asked if one.query.sensitive == name):
            statements += _biased(subject, one) if isinstance(one.query, PersistentBias) else _robust(subject, one)
        pictures.append(_picture(subject, name, shares))
    answer = answer_of(subject.network, subject.schema, all_rates, shares, verdicts, 0.0, work.seed)
    return Section(
        key="pba", title=ABOUT["pba"].title, question=ABOUT["pba"].question,
        method=(
            f"Asked of {rows} whom the model decides rightly, as they are and with the sensitive value exchanged, and of "
            f"everybody near them: one unit moves {moves(subject.schema, names)}; categories stay. Bounds and branch-and-bound; "
            "sound, and complete within the time. Every proof is in a certificate, everything refuted has an exact point."
        ),
        source=ABOUT["pba"].source, semantics=semantics(subject.network),
        statements=tuple(statements), pictures=tuple(pictures),
        tables=(_shares_table(shares, subject), _rates_table(all_rates)),
        evidence=tuple(one.evidence for one in asked if one.evidence is not None),
        settings={
            "protected": names, "delta": list(settings.delta), "rows": rows, "robustness": settings.robustness, "seed": work.seed,
        },
        answer={key: value for key, value in answer.items() if key not in ("verdicts", "seconds", "seed")},
    )  # fmt: skip


def _check_groups(subject: Subject, table: Table, name: str) -> None:
    found = sorted(set(table.raw[:, subject.schema.index(name)]))
    if len(found) < 2:
        raise DataError(
            f"feature {name!r}: all {len(table.raw)} rows are {subject.schema.format(name, found[0])}; comparing groups needs "
            "rows of at least two: name a table with both, or leave the feature out"
        )


def _decided(query: PersistentBias | Robustness, table: Table, frame: pd.DataFrame, work: Work, share: float) -> _Asked:
    what, of_what = ("bias", "persistent bias") if isinstance(query, PersistentBias) else ("robustness", "robustness")
    verdicts = verify_rows(
        query, frame, budget=work.budget(0.8 * share), jobs=work.jobs, store=work.folder / "pba.sqlite", resume=work.resume,
        progress=work.progress(f"{what} {query.sensitive}"),
    )  # fmt: skip
    proved = int((verdicts["status"] == "proved").sum())
    evidence = None
    if proved:
        evidence = work.keep(
            f"pba-{what}-{called(str(query.sensitive))}.json.gz", certificate_of(query, table, verdicts),
            f"{counted(proved, 'proof', 'proofs')} of {of_what} by {query.sensitive}.",
            lambda path, tell: check(path, network=query.network, schema=query.schema, progress=tell),
        )  # fmt: skip
    return _Asked(query=query, verdicts=verdicts, evidence=evidence)


def _biased(subject: Subject, one: _Asked) -> Iterator[Statement]:
    """For each pair of values and delta; on the first screen the pair that most people are biased by, at the smallest delta."""
    many = subject.network.outputs > 2
    # With more classes, a margin over the others tells of the favourable class only where that is the row's own.
    counted = _by_pair(one.verdicts[one.verdicts["label"] == 1] if many else one.verdicts)
    if not len(counted):
        return
    who = f"rightly decided people who truly are {subject.favourable}" if many else "rightly decided people"
    smallest = min(one.query.delta)
    first = counted[counted["delta"] == smallest]
    top = first.index[(first["raises"] + first["lowers"]).to_numpy().argmax()]
    name = str(one.query.sensitive)
    for place, line in counted.iterrows():
        low, high = (subject.schema.format(name, line[end]) for end in ("low", "high"))
        biased, people = int(line["raises"] + line["lowers"]), int(line["people"])
        pair, raises, lowers = f"{high} instead of {low}", int(line["raises"]), int(line["lowers"])
        near = f", also for everybody within {units(line['delta'])} of them" if line["delta"] else ""
        if biased:
            text = (
                f"{firmly(one.standing)}{near}: being {pair} raises the probability of {subject.favourable} for "
                f"{of(raises, people)} {who}, and lowers it for {of(lowers, people)}."
            )
        else:
            text = f"For none of {people:,} {who} it is proved that being {pair} changes the probability of "
            text += f"{subject.favourable}{near}."
        if line["neither"]:
            text += f" For {int(line['neither']):,} neither holds for everybody near them (an exact counterexample each)."
        if line["unknown"]:
            text += f" {int(line['unknown']):,} were not decided."
        tone = Tone.WATCH if biased or line["unknown"] else Tone.GOOD
        at = one.standing if biased else Standing.UNKNOWN if line["unknown"] else Standing.REFUTED
        yield Statement(text=text, standing=at, tone=tone, headline=place == top)


def _by_pair(verdicts: pd.DataFrame) -> pd.DataFrame:
    """How many people are favoured by the higher value of each pair: delta, low, high, people, raises, lowers, neither, unknown.

    A row with label 1 that is proved *observed*, or one with label 0 proved *flipped*, is favoured by its own value. With more
    than two classes a row counts where that holds against every other one.
    """
    key = ["delta", "row", "group", "to", "label"]
    wide = verdicts.assign(proved=verdicts["status"] == "proved", unknown=verdicts["status"] == "unknown")
    wide = wide.groupby([*key, "goal"]).agg(proved=("proved", "all"), unknown=("unknown", "any")).unstack("goal").reset_index()
    favourable = wide["label"] == 1
    observed, flipped = wide[("proved", "observed")], wide[("proved", "flipped")]
    own = (favourable & observed) | (~favourable & flipped)
    other = (favourable & flipped) | (~favourable & observed)
    higher = wide["group"] > wide["to"]
    unknown = (wide[("unknown", "observed")] | wide[("unknown", "flipped")]) & ~own & ~other
    flat = pd.DataFrame({
        "delta": wide["delta"], "low": wide[["group", "to"]].min(axis=1), "high": wide[["group", "to"]].max(axis=1),
        "raises": (own & higher) | (other & ~higher), "lowers": (own & ~higher) | (other & higher), "unknown": unknown,
        "people": 1,
    })  # fmt: skip
    counted = flat.groupby(["delta", "low", "high"], as_index=False).sum()
    counted["neither"] = counted["people"] - counted["raises"] - counted["lowers"] - counted["unknown"]
    return counted


def _robust(subject: Subject, one: _Asked) -> Iterator[Statement]:
    """Whether decisions on people as they are change nearby."""
    mine = one.verdicts[one.verdicts["goal"] == "robust"]
    for delta, part in mine.groupby("delta"):
        status = part.groupby("row")["status"].agg(lambda found: "violated" if "violated" in set(found) else max(found, key=_open))
        count = status.value_counts()
        proved, refuted, unknown = (int(count.get(which, 0)) for which in ("proved", "violated", "unknown"))
        held = f"within {units(delta)}, {one.query.sensitive} held still"
        if proved:
            text = f"{firmly(one.standing)} {held}: the decision stays the same for everybody near {of(proved, len(status))} "
            text += f"rightly decided people{f'; near {refuted:,} it changes' if refuted else ''}."
        else:
            text = f"For none of {len(status):,} rightly decided people it is proved that the decision stays the same {held}"
            text += f"; near {refuted:,} it changes." if refuted else "."
        text += f" {unknown:,} were not decided." if unknown else ""
        tone = Tone.GOOD if proved == len(status) else Tone.WATCH if unknown else Tone.PLAIN
        at = one.standing if proved else Standing.UNKNOWN if unknown else Standing.REFUTED
        yield Statement(text=text, standing=at, tone=tone)


def _open(status: str) -> int:
    return ("proved", "unknown", "violated").index(status)


def _rates(subject: Subject, rates: pd.DataFrame, name: str, rows: int) -> Iterator[Statement]:
    """Shares of groups that get the favourable outcome, and the four-fifths rule."""
    positive = rates[(rates["metric"] == "SP") & (rates["rows"] > 0)].set_index("group")["value"]
    told = ", ".join(f"{percent(value)} of {group}" for group, value in positive.sort_values().items())
    ratio = float(positive.min() / positive.max()) if positive.max() > 0 else 1.0
    text = f"{name}: the model gives {subject.favourable} to {told} (the table's {rows:,} rows). "
    text += f"The lowest rate is {percent(ratio)} of the highest"
    text += ", less than four fifths." if ratio < FOUR_FIFTHS else "."
    yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH if ratio < FOUR_FIFTHS else Tone.PLAIN)


def _picture(subject: Subject, name: str, shares: pd.DataFrame) -> Picture:
    return picture(
        f"pba-{subject.schema.index(name)}", f"Proved persistent bias by {name}",
        f"Share of people proved to be treated with more confidence as they are (left) or with {name} exchanged (right), by "
        "outcome and group; the table below has the numbers.",
        lambda path: outcome_plot(name, shares, path, subject.schema.outcomes),
    )  # fmt: skip


def _shares_table(shares: pd.DataFrame, subject: Subject) -> DataTable:
    table = shares.drop(columns=["shown"]).rename(columns={"sensitive": "feature", "rows": "people", "label": "true outcome"})
    names = dict(enumerate(subject.schema.outcomes if subject.network.outputs < 3 else (None, subject.favourable)))
    table["true outcome"] = [names.get(label) or f"class {label}" for label in table["true outcome"]]
    return DataTable(
        title="Proved shares", rows=table.reset_index(drop=True),
        note="PBA observed: the model is more confident in people as they are than with the other value, for everybody near them; "
        "flipped: the reverse. RB: the decision stays the same near them. By the true outcome, from the own group to the "
        "other.",
    )  # fmt: skip


def _rates_table(rates: pd.DataFrame) -> DataTable:
    return DataTable(
        title="Rates by group", rows=rates.rename(columns={"sensitive": "feature", "rows": "people"}).reset_index(drop=True),
        note="SP: share given the favourable outcome. TPR, FPR: the same among those who truly are, or are not, of that outcome. "
        "CFA: share whose decision survives another value of the feature. Measured on the table.",
    )  # fmt: skip
