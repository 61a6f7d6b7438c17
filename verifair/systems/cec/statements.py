"""CEC for a page: do comparable people of different groups get the same decision for the same reasons?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from verifair.checker.certificates.envelope import semantics
from verifair.errors import DataError, QueryError
from verifair.systems.cec import plots
from verifair.systems.cec.result import CecResult, CertifiedPairs
from verifair.systems.cec.settings import SYSTEM, CecSettings
from verifair.systems.cec.solve import solve
from verifair.systems.cec.tables import REASON_WORDS, unproved, where
from verifair.systems.results.findings import DataTable, Evidence, Picture, Section, Standing, Statement, Tone, not_run
from verifair.systems.results.pictures import picture
from verifair.systems.results.words import drawn, firmly, of, percent
from verifair.systems.subject import Subject
from verifair.systems.work import Work, called, standing

MAX_SHOWN = 100
"""Pairs to review in the table."""
COLUMNS = {
    "cec": "CEC", "cec_low": "CEC, low", "cec_high": "CEC, high", "pfr": "PFR", "pfr_low": "PFR, low", "pfr_high": "PFR, high",
    "within": "control", "beyond": "excess", "beyond_low": "excess, low", "beyond_high": "excess, high",
}
"""Columns of the groups in the words of the documents."""
PROOF_SHARE = 0.7
"""Share of the time left that goes to certified pairs, of all features together."""
EXCLUDED: dict[str, Any] = {
    **dict.fromkeys(("query", "pairs", "trust", "model_sha256", "schema_sha256", "seconds", "seed", "versions"), True),
    "certified": {"people", "seconds", "certificate_file"},
}
"""Fields of a result that the section does not repeat."""


def section(settings: CecSettings, subject: Subject, work: Work) -> Section:
    """Return the page's section on CEC, with groups by each protected feature alone. Raises DataError or QueryError if none can be
    analysed."""
    names, everybody = list(dict.fromkeys(settings.protected)), subject.rows().count
    statements: list[Statement] = []
    pictures: list[Picture] = []
    tables: list[DataTable] = []
    evidence: list[Evidence] = []
    answers: list[dict[str, Any]] = []
    problems: list[DataError | QueryError] = []
    for n, name in enumerate(names):
        split = {column: cuts for column, cuts in settings.split.items() if column == name}
        share = replace(work, top=MAX_SHOWN, checks=1 - PROOF_SHARE / (len(names) - n))
        try:
            result = solve(settings.model_copy(update={"protected": (name,), "split": split}), subject, share).whole()
        except (DataError, QueryError) as error:
            problems.append(error)
            continue
        statements += _measured(name, result)
        if result.certified is not None:
            proof, proof_statements = _certified(result.certified, subject, name, work)
            evidence += [proof] if proof is not None else []
            statements += proof_statements
        pictures += _pictures(n, name, result)
        tables += [_groups(name, result), _review(name, result)]
        answers.append({"protected": name, **result.model_dump(exclude=EXCLUDED)})
    if not answers:
        raise problems[0] if len(problems) == 1 else QueryError("\n".join(map(str, problems)))
    statements += map(not_run, problems)
    asked = len(result.asked.people)
    description = f"all {everybody:,} people of the table"
    if asked < everybody:
        description = drawn(asked, f"the table's {everybody:,} people", work.seed)
    rows = description + subject.without
    return Section(
        **SYSTEM.heading,
        method=(
            f"Asked of {rows}: each is compared with the person of every other group who has the same true outcome and is nearest "
            f"in merit ({', '.join(result.query.merit)}). Reasons are {result.query.attributions}. Above a "
            f"score of {settings.threshold:g}, reasons count as different. Measured on these rows; the certified part is proved "
            "for everybody near each pair."
        ),
        semantics=semantics(subject.network), statements=tuple(statements), pictures=tuple(pictures), tables=tuple(tables),
        evidence=tuple(evidence),
        settings={
            "protected": names, "tau": settings.tau, "threshold": settings.threshold, "certify": settings.certify, "rows": rows,
            "seed": work.seed,
        },
        answer={"by_feature": answers},
    )


def _measured(name: str, result: CecResult) -> Iterator[Statement]:
    total = result.everybody
    if not total.matched:
        text = f"{name}: nobody has a comparable counterpart in another group; allow a larger tau."
        yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH)
        return
    pfr, hidden = percent(total.regimes["C"] + total.regimes["D"]), percent(total.regimes["B"])
    shares = (
        f"Of {total.matched:,} pairs from different groups, {pfr} are decided differently, and {hidden} alike, but for different "
        "reasons; the two people of a pair may differ in everything but merit"
    )
    excess = total.beyond
    if excess is None:
        text = f"{name}: it is not known whether the group adds to the difference of reasons, as nobody was compared within "
        text += f"their own group. {shares}."
        yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.PLAIN, headline=True)
    else:
        difference = (
            f"{name}: reasons of comparable people differ by {abs(excess.mean):.3f} {'less' if excess.mean < 0 else 'more'} across "
            f"groups than within a group ({excess.low:+.3f} to {excess.high:+.3f}, 95 %"
        )
        clear = excess.low > 0
        adds = "the group adds to the difference" if clear else "it is not clear whether the group adds anything"
        adds = "the group adds nothing to the difference" if excess.high <= 0 else adds
        yield Statement(
            text=f"{difference}; scores run from 0 to 1): {adds}. {shares}.",
            standing=Standing.MEASURED, tone=Tone.WATCH if clear else Tone.PLAIN, headline=True,
            brief=f"{difference}, {total.matched:,} pairs): {adds}.",
        )
    if total.matched < total.pairs:
        text = f"{name}: {of(total.pairs - total.matched, total.pairs)} pairs have no counterpart within tau, and are left out."
        yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.PLAIN)


def _certified(pairs: CertifiedPairs, subject: Subject, name: str, work: Work) -> tuple[Evidence | None, list[Statement]]:
    """Return the proofs and statements about pairs that keep the same decision and reasons wherever both people move within
    delta."""
    count, nearby = pairs.certified, where(pairs.delta)
    if not count:
        reason = "there is none" if not pairs.regime_A else f"none of {pairs.regime_A:,} could be certified: {unproved(pairs)}"
        text = f"{name}: no pair of people decided alike for like reasons is proved to stay so {nearby}: {reason}."
        return None, [Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.PLAIN)]
    proof = work.keep(
        f"cec-{called(name)}.json.gz", pairs.found.certificate,
        f"{count:,} pairs of people from different groups ({name}) are decided alike for like reasons, {nearby}.",
        subject.network, subject.schema,
    )
    rest, rank = pairs.regime_A - count, standing(proof)
    text = f"{firmly(rank)}: {of(count, pairs.regime_A)} pairs by {name} that are decided alike for like reasons stay so, {nearby}."
    statements = [Statement(text=text, standing=rank, tone=Tone.PLAIN if rest else Tone.GOOD)]
    if rest:
        why = unproved(pairs) if len(pairs.unknown) > 1 else REASON_WORDS[next(iter(pairs.unknown))]
        text = f"Not proved for {of(rest, pairs.regime_A)} pairs by {name}: {why}."
        statements.append(Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.PLAIN))
    return proof, statements


def _pictures(n: int, name: str, result: CecResult) -> Iterator[Picture]:
    groups = plots.groups_drawn(result.group_table())
    yield picture(
        f"cec-{n}-scores", f"How much reasons differ, by {name}",
        f"Distribution of the scores of all pairs (0: the same reasons, 1: opposite ones), by group; the mean is "
        f"{result.everybody.cec.mean if result.everybody.cec else float('nan'):.2f}, the threshold {result.query.threshold:g}.",
        lambda path: plots.scores(result.pairs, groups, result.query.threshold, path),
    )
    yield picture(
        f"cec-{n}-features", f"Which features the reasons differ in, by {name}",
        "Share of each feature in the difference of reasons; the table of pairs names them one by one.",
        lambda path: plots.contributions(result.features, path),
    )


def _groups(name: str, result: CecResult) -> DataTable:
    return DataTable(
        title=f"Groups by {name}", rows=result.group_table().rename(columns=COLUMNS),
        note="CEC: mean score, 0 (same reasons) to 1. PFR: share decided differently. control: mean score within the group; "
        "excess: how much higher it is across groups. low, high: of the 95 % interval. A: same decision, same reasons; B: same "
        "decision, other reasons; C: other decision, same reasons; D: both differ.",
    )


def _review(name: str, result: CecResult) -> DataTable:
    return DataTable(
        title=f"Pairs to review, by {name}", rows=result.review,
        note=f"The {len(result.review)} pairs of most concern; rows are counted from 0. reasons: the two features that differ "
        "most, as the share of the person's own reasons / of the counterpart's.",
    )
