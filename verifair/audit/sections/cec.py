"""CEC: are comparable people of different groups decided alike, and for like reasons?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from verifair.audit.sections.about import ABOUT
from verifair.audit.settings import Cec
from verifair.audit.subject import Subject
from verifair.checker.envelope import semantics
from verifair.checker.kinds.consistency import check_consistency
from verifair.datasets.groups import group_of
from verifair.systems.cec import plots as consistency_plots
from verifair.systems.cec.attributions import positive_margin
from verifair.systems.cec.audit import Audit, audit, control
from verifair.systems.cec.certified import TIME, certify_consistency
from verifair.systems.cec.findings import Consistency
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People, merit_columns, people_of
from verifair.systems.figures import picture
from verifair.systems.findings import DataTable, Evidence, Picture, Section, Standing, Statement, Tone
from verifair.systems.words import firmly, of, percent, units
from verifair.systems.work import Work, called, standing

SHOWN = 100
"""Pairs to review in the table."""


def section(settings: Cec, subject: Subject, work: Work) -> Section:
    frame = subject.rows()
    positive_margin(subject.network)
    columns = merit_columns(subject.schema)
    names = list(dict.fromkeys(settings.protected or subject.protected))
    chosen, rows = _chosen(frame, settings.rows, work.seed)
    rows += subject.without
    statements: list[Statement] = []
    pictures: list[Picture] = []
    tables: list[DataTable] = []
    evidence: list[Evidence] = []
    answers: list[dict[str, Any]] = []
    for n, name in enumerate(names):
        groups = pd.DataFrame({name: group_of(subject.schema, frame, name, settings.split.get(name))})
        everybody = people_of(subject.schema, frame, groups)
        reference, people = Reference.of(everybody, columns), everybody.take(chosen)
        tell = work.stopping(f"explanations {name}")
        measured = audit(
            subject.network, reference, people, tau=settings.tau, threshold=settings.threshold, seed=work.seed, threads=work.jobs,
            progress=tell,
        )  # fmt: skip
        inner = control(subject.network, reference, measured, seed=work.seed, threads=work.jobs, progress=tell)
        found = Consistency.of(
            measured, subject.schema, frame.index[chosen], frame.index, inner=inner, top=SHOWN, seed=work.seed
        )  # fmt: skip
        statements += _measured(subject, name, found)
        answer = {key: value for key, value in found.to_dict().items() if key != "pairs"}
        if settings.certify is not None:
            proof, said, counted = _certified(settings.certify, subject, name, measured, reference, people, work, len(names) - n)
            evidence += [proof] if proof is not None else []
            statements.append(said)
            answer["certified"] = counted
        pictures += _pictures(n, name, found)
        tables += [_groups(name, found), _review(name, found)]
        answers.append({"protected": name, **answer})
    merit = ", ".join(feature.name for feature in subject.schema.features if feature.merit)
    return Section(
        key="cec", title=ABOUT["cec"].title, question=ABOUT["cec"].question,
        method=(
            f"Asked of {rows}: each is compared with the person of every other group who has the same true outcome and is nearest "
            f"in merit ({merit}). Reasons are integrated gradients ({'exact path integral'}). Above a score of "
            f"{settings.threshold:g}, reasons count as different. Measured on these rows; the certified part is proved for "
            "everybody near each pair."
        ),
        source=ABOUT["cec"].source, semantics=semantics(subject.network), statements=tuple(statements),
        pictures=tuple(pictures), tables=tuple(tables), evidence=tuple(evidence),
        settings={
            "protected": names, "tau": settings.tau, "threshold": settings.threshold, "certify": settings.certify, "rows": rows,
            "seed": work.seed,
        },
        answer={"by_feature": answers},
    )  # fmt: skip


def _chosen(frame: pd.DataFrame, rows: int | None, seed: int) -> tuple[np.ndarray, str]:
    """Positions of the people whose explanations are compared, as the verb draws them; everybody may be compared with."""
    if rows is None or rows >= len(frame):
        return np.arange(len(frame)), f"all {len(frame):,} people of the table"
    drawn = np.sort(np.random.default_rng(seed).choice(np.arange(len(frame)), size=rows, replace=False))
    return drawn, f"{rows:,} of the table's {len(frame):,} people, drawn with seed {seed}"


def _measured(subject: Subject, name: str, found: Consistency) -> Iterator[Statement]:
    one = found.everybody
    if not one.matched:
        text = f"{name}: nobody has a comparable counterpart in another group; allow a larger tau."
        yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH)
        return
    regimes = one.regimes
    hidden, other = regimes["B"], regimes["C"] + regimes["D"]
    yield Statement(
        text=f"{name}: of {one.matched:,} pairs of comparable people from different groups, {percent(other)} are decided "
        f"differently. Another {percent(hidden)} are decided alike, but for different reasons.",
        standing=Standing.MEASURED, tone=Tone.WATCH if other > 0 else Tone.PLAIN, headline=True,
    )  # fmt: skip
    if one.beyond is None:
        return
    text = (
        f"{name}: reasons differ by {one.beyond.mean:+.3f} more across groups than among comparable people of the same group "
        f"({one.beyond.low:+.3f} to {one.beyond.high:+.3f}, 95 %; scores run from 0 to 1)"
    )
    clear = one.beyond.low > 0
    text += ": the group adds to the difference." if clear else ": whether the group adds anything is not clear."
    yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH if clear else Tone.PLAIN)
    if one.matched < one.pairs:
        text = f"{name}: {of(one.pairs - one.matched, one.pairs)} pairs have no counterpart within tau, and are left out."
        yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.PLAIN)


def _certified(
    delta: float, subject: Subject, name: str, measured: Audit, reference: Reference, people: People, work: Work, left: int
) -> tuple[Evidence | None, Statement, dict[str, Any]]:  # fmt: skip
    """Which pairs stay decided alike, for like reasons, wherever both move."""
    found = certify_consistency(
        subject.network, subject.schema, measured, reference, people, delta, budget=work.budget(0.7 / left),
        progress=work.progress(f"certified pairs {name}"),
    )  # fmt: skip
    count, where = int(found.certified.sum()), f"wherever both move within {units(delta)}" if delta else "as they are"
    counted = {
        "delta": delta, "threshold": found.threshold, "pairs": len(found.status), "regime_A": found.candidates, "certified": count,
        "unknown": {reason: n for reason, n in found.reasons.items() if reason},
    }  # fmt: skip
    if not count:
        why = "there is none" if not found.candidates else "none of them could be certified in the time given"
        text = f"{name}: no pair of people decided alike for like reasons is proved to stay so {where}: {why}."
        return None, Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.PLAIN), counted
    proof = work.keep(
        f"cec-{called(name)}.json.gz", found.certificate,
        f"{count:,} pairs of people from different groups ({name}) are decided alike for like reasons, {where}.",
        lambda path, tell: check_consistency(path, network=subject.network, schema=subject.schema, progress=tell),
    )  # fmt: skip
    text = (
        f"{firmly(standing(proof))}: {of(count, found.candidates)} pairs by {name} that are decided alike for like reasons stay "
        f"so, {where}."
    )
    late = found.reasons.get(TIME, 0)
    text += f" {late:,} were not decided in time." if late else ""
    return proof, Statement(text=text, standing=standing(proof), tone=Tone.GOOD), counted


def _pictures(n: int, name: str, found: Consistency) -> Iterator[Picture]:
    groups = consistency_plots.groups_drawn(found.group_table())
    yield picture(
        f"cec-{n}-scores", f"How much reasons differ, by {name}",
        f"Distribution of the scores of all pairs (0: the same reasons, 1: opposite ones), by group; the mean is "
        f"{found.everybody.cec.mean if found.everybody.cec else float('nan'):.2f}, the threshold {found.audit.threshold:g}.",
        lambda path: consistency_plots.scores(found.pairs(), groups, found.audit.threshold, path),
    )  # fmt: skip
    yield picture(
        f"cec-{n}-features", f"Which features the reasons differ in, by {name}",
        "Share of each feature in the difference of reasons; the table of pairs names them one by one.",
        lambda path: consistency_plots.contributions(found.features, path),
    )


def _groups(name: str, found: Consistency) -> DataTable:
    return DataTable(
        title=f"Groups by {name}", rows=found.group_table(),
        note="cec: mean score, 0 (same reasons) to 1. pfr: share decided differently. A: same decision, same reasons; B: same "
        "decision, other reasons; C: other decision, same reasons; D: both differ. within: score among the same group; beyond: "
        "how much more across.",
    )  # fmt: skip


def _review(name: str, found: Consistency) -> DataTable:
    return DataTable(
        title=f"Pairs to review, by {name}", rows=found.review,
        note=f"The {len(found.review)} pairs of most concern; rows are counted from 0. reasons: the two features that differ "
        "most, as the share of the person's own reasons / of the counterpart's.",
    )  # fmt: skip
