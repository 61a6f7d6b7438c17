"""An audit made by hand, as large and as hostile as a test wants it."""

import io
from typing import Any

import numpy as np
import pandas as pd

from verifair.auditing.decisions import Decisions, GroupCounts, count, described, rates
from verifair.auditing.result import AuditResult
from verifair.systems.results.findings import DataTable, Evidence, Picture, Section, Source, Standing, Statement, Tone, WitnessRow

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">'\"</script></style>{{ 7*7 }}"
"""Runs wherever somebody forgot to escape."""


def witness(place: int, name: str = "sex") -> WitnessRow:
    """No two are alike: sorting has one right answer in every number."""
    before, after = (place * 37 % 501) / 600, 0.9 - (place * 53 % 499) / 700
    was, became = ("Female", "Male") if place % 2 else ("Male", "Female")
    person = {
        "age": f"{18 + place % 60} years",
        "credit amount": f"{250 * place:,} DM",
        "purpose": ["car", "radio/TV", "education"][place % 3],
    }
    return WitnessRow(
        analysis="certify",
        person=person | {f"feature {n}": f"value {n}" for n in range(17)},
        changes={name: (was, became)},
        before=before,
        after=after,
        flips=(before > 0.5) != (after > 0.5),
        float32_agrees=[True, None, False][place % 3],
        sentence=f"A person, {name} {was}: {before:.2f}. The same person, {name} {became}: {after:.2f}.",
    )


def drawing(words: str = "share refuted") -> str:
    """A plot as matplotlib writes it: with a document type, a style of its own and names that repeat."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    axes.barh(["age 20 to 35", "age 35 to 50", "age 50 to 75"], [0.31, 0.12, 0.04], color="#2166ac")
    axes.set_xlabel(words)
    out = io.StringIO()
    drawn.savefig(out, format="svg")
    plt.close(drawn)
    return out.getvalue()


def decisions(name: str) -> Decisions:
    """Two groups, and one of a single person."""
    group = pd.Series(["Female"] * 310 + ["Male"] * 690 + ["other"])
    favoured = np.arange(1001) % 10 < np.where(group == "Male", 8, 5)
    groups: dict[str, GroupCounts] = {}
    count(groups, group, favoured, right=favoured, place=np.zeros(1001, np.int64))
    return described(rates(name, groups, known=False), {}, people=1001, favoured=int(favoured.sum()), favourable="good credit")


def audit(
    witnesses: int = 60, name: str = "sex", title: str = "Credit decisions of the German credit model", *, groups: bool = False
) -> AuditResult:
    """Five analyses, every standing, every tone. name: of the sensitive feature.   groups: with the decisions by group."""
    shares = pd.DataFrame({
        name: ["Female", "Male", "both"],
        "rows": [310, 690, 1000],
        "refuted": [0.0412, 0.13, 0.1024],
        "tiny": [1e-9, 0.5, float("nan")],
        "gap": [0.25, None, 0.125],
        "proved": [True, False, True],
    })
    proof = Evidence(
        file="certificates/certify.json.gz",
        sha256="3f" * 32,
        proves=f"No change of {name} moves the probability by more than 0.638.",
        command="verifair check certificates/certify.json.gz --model german.onnx --schema german.toml",
        checked="accepted",
    )
    sections = (
        Section(
            key="certify",
            title="Individual fairness",
            question=f"Would the same person be decided upon differently with another {name}?",
            method="Branch-and-bound on the twin network; sound and complete.",
            source="Khedr and Shoukry, CertiFair, AAAI 2023",
            semantics="The real-valued function of the stored float32 weights.",
            statements=(
                Statement(
                    text=f"Two applicants alike in all but {name} can get opposite decisions: good credit, and bad credit.",
                    standing=Standing.REFUTED,
                    tone=Tone.BAD,
                    headline=True,
                ),
                Statement(
                    text=f"No applicant's probability of good credit moves by more than 0.638 when {name} changes.",
                    standing=Standing.PROVED,
                    tone=Tone.WATCH,
                    headline=True,
                ),
                Statement(
                    text="For 412 of 1,000 applicants no sensitive value changes the decision.",
                    standing=Standing.PROVED,
                    tone=Tone.PLAIN,
                ),
            ),
            witnesses=tuple(witness(place, name) for place in range(1, witnesses + 1)),
            pictures=(
                Picture(title="Where it fails", alt="Share of the domain refuted, by age: largest below 35.", svg=drawing()),
            ),
            tables=(DataTable(title=f"By {name}", rows=shares, note="Rows of the table, not the domain."),),
            evidence=(proof,),
            settings={"protected": [name], "epsilon": 0.05, "seed": 0},
            seconds=12.5,
        ),
        Section(
            key="pba",
            title="Persistent bias",
            question="Does bias persist when an applicant changes a little?",
            method="Interval bounds; sound, not complete.",
            source="PBA",
            semantics="The real-valued function of the stored float32 weights.",
            statements=(
                Statement(
                    text="Bias is ruled out for 870 of 1,000 applicants within one unit.",
                    standing=Standing.PROVED,
                    tone=Tone.GOOD,
                    headline=True,
                ),
                Statement(text="A solver finds no bias for 30 more.", standing=Standing.CLAIMED, tone=Tone.GOOD),
                Statement(text="For 100 applicants the time was up.", standing=Standing.UNKNOWN, tone=Tone.WATCH, headline=True),
            ),
            witnesses=(witness(1001, name),),
            evidence=(
                Evidence(
                    file="../outside.json",
                    sha256="aa" * 32,
                    proves="Nothing.",
                    command="verifair check x",
                    checked="not re-checked",
                ),
            ),
            seconds=130.0,
        ),
        Section(
            key="cec",
            title="Consistency of explanations",
            question="Do similar people get similar reasons?",
            method="Integrated gradients.",
            source="CEC",
            semantics="Rows of the table.",
            statements=(
                Statement(
                    text="Reasons of women and men with the same record differ by 0.12 on average.",
                    standing=Standing.MEASURED,
                    tone=Tone.WATCH,
                    headline=True,
                ),
                Statement(
                    text="Reasons are worked out against one baseline.", standing=Standing.MEASURED, tone=Tone.PLAIN, headline=True
                ),
            ),
        ),
        Section(
            key="cst",
            title="Situation testing",
            question="Are similar people of the other group treated better?",
            method="Counterfactual situation testing.",
            source="CST",
            semantics="Rows of the table.",
            statements=(
                Statement(text="Not run: no causal model was given.", standing=Standing.SKIPPED, tone=Tone.PLAIN, headline=True),
            ),
        ),
    )
    return AuditResult(
        title=title,
        decisions=decisions(name) if groups else None,
        gate=None,
        sections=sections,
        rows=1000,
        protected=(name, "age"),
        favourable="good credit",
        unfavourable="bad credit",
        network="german.onnx",
        sources=tuple(
            Source(role=role, file=f"german.{end}", sha256=f"{n}b" * 32)
            for n, (role, end) in enumerate([("model", "onnx"), ("schema", "toml"), ("data", "csv.gz")])
        ),
        started="2026-11-22T08:35:33+00:00",
        seconds=171.0,
        effort=150.0,
        seed=0,
        versions={"verifair": "0.1.0", "numpy": "2.4.6", "onnxruntime": "1.31.1"},
    )


def replace(one: Any, **changes: Any) -> Any:
    """A copy of a part of an audit with some of its fields changed."""
    return one.model_copy(update=changes)
