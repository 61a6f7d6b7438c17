"""The settings of CEC."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo

from verifair.systems.settings import Grouped, Option, Positive, Units
from verifair.systems.system import About, System

MAX_STEPS = 10_000
"""More steps cost memory and time in vain: the exact integral is available."""
Ties = Literal["first", "random"]
"""Choice among equally near people. first: the lowest row.   random: one drawn with the seed."""


def _steps(value: Any, info: ValidationInfo) -> int | str:
    """Return "exact", or a number of steps; a number that was typed arrives as text."""
    if value == "exact":
        return "exact"
    typed = info.context and isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9
    if (typed or type(value) is int) and 0 < int(value) <= MAX_STEPS:
        return int(value)
    raise ValueError(f"expected exact, or a number of steps in 1 .. {MAX_STEPS}, such as the paper's 32")


class CecSettings(Grouped):
    """The settings of `verifair cec`: the comparison of explanations, and proofs."""

    belongs: ClassVar = {"certificate": (("certify", None),)}
    reference: Path | None = None
    """Table from which counterparts and baselines are taken, such as the training rows (default: --data)."""
    tau: Positive | None = None
    """Largest distance of a counterpart, in standard deviations of merit (default: no limit)."""
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Scores above this (0 to 1) count as different reasons."""
    steps: Annotated[int | Literal["exact"], BeforeValidator(_steps), Option(type=str)] = "exact"
    """exact (integral), or a number: steps of a Riemann sum, 32 in the paper."""
    ties: Ties = "first"
    """Among equally near people: the first, or random with --seed."""
    rows: Annotated[int | None, Field(ge=1)] = None
    """Audit only this number of these people, drawn with --seed."""
    within: Annotated[bool, Option(without="Leave out scores of comparable people of the same group.")] = True
    """Also show scores of comparable people of the same group."""
    certify: Units | None = None
    """Prove that pairs stay in regime A when both people move by at most DELTA units."""


DEFAULTS = CecSettings()
THRESHOLD = DEFAULTS.threshold
"""Explanations more than 60 degrees apart differ: the score is sin(angle / 2). The paper names no threshold."""
SYSTEM = System(
    verb="cec",
    help="""
Compares every person of a table with the nearest person (in merit) of each other group with the same true label. Do both get the
same decision, and for similar reasons (integrated gradients; Shapley values of trees)? The same decision for different reasons is
hidden bias. This is measured on the table, not proved (but see --certify).

Example: verifair cec --demo german --protected sex

Proofs for regime A (same decision, same reasons): verifair cec --demo german --protected sex --certify 1 --certificate a.json

With files: verifair cec adult.onnx --schema adult.toml --data adult.csv --protected sex --protected race --tau 1 --out runs/adult
""",
    settings=CecSettings,
    run=("top", "certificate", "nodes", "out", "store", "resume", "jobs", "cluster", "timeout", "seed", "json_file"),
    defaults={"jobs": 2},
    helps={
        "protected": "Column whose values are the groups, an input of the model or not; repeat for their combinations.",
        "audit": "Rows whose explanations are compared: all, test (with --demo), or column=value.",
        "store": "SQLite file that keeps partial results until the run is complete (default: OUT/parts.sqlite).",
        "jobs": "Threads for the attributions; with --certify processes for the pairs.",
    },
    about=About(
        title="Like people, like reasons",
        question="Are comparable people of different groups decided alike, and for the same reasons?",
        source="Do Fair Models Reason Fairly? Counterfactual Explanation Consistency (CEC)",
    ),
    keys=("protected", "split", "rows", "tau", "threshold", "certify"),
)
