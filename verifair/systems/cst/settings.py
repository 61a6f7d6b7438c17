"""The settings of CST."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationInfo, model_validator

from verifair.systems.settings import Inputs, Number, Option, Settings, Whole, assignments, typed
from verifair.systems.system import About, System

DEMOS = ("loan", "german", "adult")
BY_PATH = "law_school"
"""A data set that is not shipped: --data names its file, which is prepared as in the paper."""
Name = Annotated[str, Field(strict=True, min_length=1)]
Value = StrictBool | StrictInt | StrictFloat | StrictStr
Distance = Literal["mixed", "standardised", "heom", "mahalanobis"]
Interval = Literal["newcombe", "wald"]
Ties = Literal["share", "first", "last", "heap"]
Direction = Literal["negative", "positive"]
Small = Literal["error", "leave-out"]
Correction = Literal["bh"]
Preset = Literal["paper"]


def _do(texts: Any) -> dict[str, str]:
    expected = "expected ATTRIBUTE=VALUE, the value of those who are not protected, e.g. --do Gender=0"
    return assignments(texts, expected=expected, once="give each attribute once, with one value")


def _percent(level: Any, info: ValidationInfo) -> Any:
    """Return a level typed in percent as a share; 95 and 0.95 are the same."""
    if not info.context:
        return level
    share = level if 0 < level < 1 else level / 100
    if not 0.5 <= share < 1:
        raise ValueError("expected percent, at least 50 and below 100, such as 95")
    return share


def _sides(sides: Any, info: ValidationInfo) -> Any:
    return 1 if info.context and sides else sides


class Situation(Settings):
    """The settings of the comparison and of a case: options, and the causal file's [situation].

    An option that is not given takes the file's value, or the default where the file has none.
    """

    do: Annotated[dict[Name, Value], typed(_do), Option(type=list[str], unsaid=True)] = Field(default_factory=dict)
    """ATTRIBUTE=VALUE of the people who are not protected; repeat for several, each tested alone."""
    intersectional: Annotated[bool, Option(unsaid=True)] = False
    """Also test all these attributes jointly."""
    attributes: Annotated[tuple[Name, ...] | None, Option(name="--attribute", unsaid=True)] = None
    """Attribute by which people are compared; repeat. Default: all nodes but those of --do."""
    k: Annotated[tuple[Whole, ...], Option(unsaid=True)] = (15, 30, 50, 100)
    """Number of people in each group; repeat. Default: 15 30 50 100."""
    categorical: Annotated[tuple[Name, ...], Option(unsaid=True)] = ()
    """Attribute whose numbers are names of categories (only equal or not); repeat."""
    tau: Annotated[Number, Field(ge=0, lt=1), Option(unsaid=True)] = 0.0
    """A case is a difference of shares (delta p) above this, 0 to 1. Default: 0."""
    level: Annotated[Number, Field(gt=0, lt=1), BeforeValidator(_percent), Option(unsaid=True)] = 0.95
    """Confidence level of the intervals, in percent. Default: 95."""
    interval: Annotated[Interval, Option(unsaid=True)] = "newcombe"
    """newcombe (also valid at shares of 0 and 1), or wald as in the paper."""
    sides: Annotated[Literal[1, 2], BeforeValidator(_sides), Option(name="--one-sided", type=bool, unsaid=True)] = 2
    """Use one-sided intervals (z = 1.645 at 95 %)."""
    z: Annotated[Annotated[Number, Field(gt=0, le=38)] | None, Option(unsaid=True)] = None
    """Critical value of intervals, such as 1.645, in place of --level and --one-sided."""
    direction: Annotated[Direction, Option(unsaid=True)] = "negative"
    """negative: people treated worse because of the protected value; positive: treated better (delta p < -tau)."""
    correction: Annotated[Correction | None, Option(name="--correct", unsaid=True)] = None
    """bh: limit the share of false cases among the significant ones (Benjamini and Hochberg)."""
    distance: Annotated[Distance, Option(unsaid=True)] = "mixed"
    """mixed (range-normalised), standardised, heom or mahalanobis."""
    ties: Annotated[Ties, Option(unsaid=True)] = "share"
    """Equally near rows: share the last places, take the first or last of the table, or heap (the paper's code)."""
    small: Annotated[Small, Option(unsaid=True)] = "error"
    """Groups smaller than the largest k: error, or leave-out (and name them)."""
    preset: Annotated[Preset | None, Option(unsaid=True)] = None
    """paper: the authors' own procedure: distance, ties, interval and z."""

    @model_validator(mode="after")
    def _one_critical_value(self) -> Situation:
        given = [OF_PRESET[name] for name in ("level", "sides") if name in self.model_fields_set]
        if self.z is not None and given:
            raise ValueError(f"z = {self.z:g} is the critical value itself, in place of that of {given[0]}: drop one of them")
        return self


DEFAULTS = Situation()
OF_PRESET = {
    "level": "level", "sides": "one-sided", "z": "z", "distance": "distance",
    "interval": "interval", "ties": "ties", "correction": "correct",
}
"""The settings that `--preset paper` fixes, and the names of their options."""


class CstSettings(Situation):
    """The settings of `verifair cst`: the comparison, the definition of a case, and further analyses of the cases."""

    belongs: ClassVar = {"certificate": (("certify", None),)}
    causal: Annotated[Path, Field(strict=False)] | None = None
    """Causal file (TOML): the causal model, who is compared, and who decides (see docs/questions, cst)."""
    case: tuple[str, ...] = ()
    """Row to write a case file of, by its name in the table; repeat."""
    cases: Annotated[int, Field(ge=0)] = 5
    """Without --case: number of people to review of whom a case file is written."""
    chance: Annotated[int, Field(ge=0)] = 0
    """Repeat the test this number of times with shuffled protected values, to show how many cases chance finds."""
    draws: Annotated[int, Field(ge=2)] | None = None
    """Draw the categories of counterfactuals this number of times, and show in which share of the draws a person is a case."""
    sensitivity: bool = False
    """Show how wrong the (linear) causal model must be before the claims change."""
    certify: Annotated[Annotated[Number, Field(ge=0.5, lt=1)] | None, BeforeValidator(_percent)] = None
    """Prove decisions on counterfactuals (CF) for all coefficients within their LEVEL % intervals, e.g. 95."""
    rows: Annotated[Whole | None, Option(hidden=True)] = None
    """Only this number of rows of the table, drawn with the seed."""


class CstInputs(Inputs):
    """The inputs of `verifair cst`: a table, and optionally a network that decides; or a shipped example."""

    @model_validator(mode="after")
    def _named_once(self) -> CstInputs:
        if self.demo is not None and self.demo not in (*DEMOS, BY_PATH):
            known = ", ".join(DEMOS)
            more = f"or {BY_PATH} with --data; for others pass --data and --causal"
            raise ValueError(f"--demo {self.demo}: expected one of {known}, {more}")
        if self.demo is not None and (self.model or self.schema_file or (self.data and self.demo != BY_PATH)):
            raise ValueError("--demo brings its own model, schema and data: drop it, or drop the others")
        return self


SYSTEM = System(
    verb="cst",
    help="""
For each person of a protected group, compares two sets: the k most similar people of the same group, and the k people of the other
group who are most similar to the person's counterfactual under a causal model that you state (TOML). A person is a case if the
first set is refused more often. This is statistical evidence, not a proof (but see --certify).

Example: verifair cst --demo loan

With files: verifair cst --data loans.csv --causal loans.toml --do Gender=0 --k 15 --k 100 --out runs/loans

A network decides: verifair cst adult.onnx --schema adult.toml --data adult.csv --causal graph.toml --do sex=Male --case 17
""",
    settings=CstSettings,
    inputs=CstInputs,
    run=("certificate", "nodes", "top", "out", "store", "resume", "jobs", "cluster", "timeout", "seed", "json_file"),
    defaults={"jobs": 2},
    helps={
        "demo": "Shipped table and causal model: loan, german, adult (law_school: with --data).",
        "out": "Folder for tables (CSV), plots (PNG), case files and the screen's text.",
        "store": "SQLite file that keeps partial results until the run is complete (default: OUT/parts.sqlite).",
        "jobs": "Threads of the neighbour search.",
        "timeout": "Seconds for all tests and proofs.",
    },
    about=About(
        title="Situation testing",
        question="Would people of a protected group have been decided otherwise if they were not in it?",
        source="Counterfactual Situation Testing (Alvarez, Ruggieri)",
    ),
    keys=("causal", "do", "k", "tau", "rows", "certify", "draws"),
    required=("causal",),
)
