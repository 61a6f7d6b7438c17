"""Settings: every option of every question, declared once.

A field and its docstring become the option of the command, the key of the audit file's section, the parameter
of the estimator, and the entry in the JSON schema. This module imports pydantic alone, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator


@dataclass(frozen=True, kw_only=True)
class Option:
    """The form of a field on the command line, as far as it does not follow from its name and type.

    name: the option, such as "--json", or the argument's name in the usage line.   argument: it is positional.
    type: of what is typed, before the field's own validators (dictionaries are typed as texts "name=value").
    hidden: keys of the audit file alone.
    unsaid: the help shows no default, as another file may give the value; the default applies if it does not.
    without: of what is true by default, the help of --no-NAME, the only form of the option.
    """

    name: str | None = None
    argument: bool = False
    type: Any = None
    hidden: bool = False
    unsaid: bool = False
    without: str | None = None


class Settings(BaseModel):
    """A group of settings. Values are checked when they are set; there is no second check.

    A value of another type is refused: "3" is no number, 1 is neither true nor false. Lists become tuples, which TOML lacks.
    A validator with a context is checking values typed on the command line.
    """

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=(),
        arbitrary_types_allowed=True,
    )
    belongs: ClassVar[Mapping[str, tuple[tuple[str, Any], ...]]] = {}
    """Option -> settings of which it needs at least one, with the needed values (None: any value)."""

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, data: Any) -> Any:
        return tuples(data)

    @classmethod
    def of(cls, given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, *, context: str | None = None) -> Self:
        """Return settings from `given`, with other defaults. Only `given` values count as given. Raises ValidationError."""
        settings = cls.model_validate({**(defaults or {}), **given}, context=context)
        settings.model_fields_set.intersection_update(given)
        return settings

    def check_options(self, inputs: Any, run: Run) -> None:
        """Raise ValueError for options that exclude each other; called for the command line alone, before anything is read."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the names of those `Run` files that are folders for this question."""
        return ()

    @property
    def files(self) -> dict[str, Path | None]:
        """Return option -> file, for settings that name files to write."""
        return {}

    def strays(self, *others: Settings) -> Iterator[tuple[str, tuple[tuple[str, Any], ...]]]:
        """Yield every given option that lacks all settings that it belongs to, with these settings."""
        for name, owners in self.belongs.items():
            if any(name in group.model_fields_set for group in (self, *others)) and not any(
                getattr(self, option) is not None if value is None else getattr(self, option) == value for option, value in owners
            ):
                yield name, owners


def tuples(value: Any) -> Any:
    """Return the value with all lists in it replaced by tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(map(tuples, value))
    return {key: tuples(item) for key, item in value.items()} if isinstance(value, Mapping) else value


Missing = Annotated[Literal["error", "drop", "most-frequent"], Field(
    description="Missing values in --data, except in features that have them as a category (missing in the schema): error, "
    "drop (their rows), or most-frequent (fill in that value; never for labels or protected features)."
)]
"""Treatment of missing values. Labels and protected features are never filled in: rows without them are left out."""
Outside = Annotated[
    Literal["error", "drop"], Field(description="Rows outside the schema's ranges or categories: error, or drop them.")
]


class Inputs(Settings):
    """The model, its schema and the table: files, or one of the shipped examples."""

    model: Annotated[Path | None, Option(argument=True)] = None
    """The model, an ONNX file: a network or trees."""
    schema_file: Annotated[Path | None, Option(name="--schema")] = None
    """Description of the inputs (TOML)."""
    data: Path | None = None
    """Table of rows: CSV, CSV.GZ or Parquet; or a dataset: german, german-years, adult, adult-balanced, synthetic, loan,
    compas=FILE, hmda=FILE or law_school=FILE."""
    demo: str | None = None
    """Use a shipped model, its schema and data: german or adult."""
    missing: Missing = "error"

    @model_validator(mode="after")
    def _named_once(self) -> Inputs:
        if self.demo is not None and (self.model, self.schema_file, self.data) != (None, None, None):
            raise ValueError("--demo brings its own model, schema and data: drop it, or drop the others")
        return self


class Run(Settings):
    """Settings of a run: files to write, limits, processes. A system names those that it takes."""

    out: Path | None = None
    """Folder for tables (CSV), plots (PNG) and the screen's text."""
    json_file: Annotated[Path | None, Option(name="--json")] = None
    """Write the whole answer to this JSON file."""
    certificate: Path | None = None
    """Write the proofs to this file (.json or .json.gz), for `verifair check`."""
    plot: Path | None = None
    """Draw the answer (PNG, PDF or SVG)."""
    store: Path | None = None
    """SQLite file of verdicts, written as they are decided."""
    resume: bool = False
    """Continue the interrupted run in the store."""
    top: Annotated[int, Field(ge=0)] = 10
    """Number of people to review on the screen."""
    jobs: Annotated[int, Field(ge=1)] = 1
    """Number of processes or threads; each uses one BLAS thread."""
    cluster: str | None = None
    """Use the workers of a dask cluster instead: tcp://host:port of its scheduler."""
    nodes: Annotated[int | None, Field(ge=1)] = None
    """Largest number of boxes that branch and bound may use for each question."""
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds for the whole run; what is not decided by then is UNKNOWN."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of every random draw."""
    exit_verdict: bool = False
    """Exit with 0 proved, 10 violated, 20 unknown."""


def assignments(texts: Sequence[str], *, expected: str, once: str = "give each feature once", void: bool = False) -> dict[str, str]:
    """Return name -> value of texts "name=value", if `void` also "name=". expected, once: remedies for other texts, repetition."""
    from verifair.schema.naming import assignment

    result: dict[str, str] = {}
    for text in texts:
        name, equals, value = assignment(text)
        if not (name and equals and (value or void)):
            raise ValueError(f"{text}: {expected}")
        if name in result:
            raise ValueError(f"names {name!r} twice; {once}")
        result[name] = value
    return result


def widths(texts: Sequence[str]) -> dict[str, int | str]:
    """Return feature -> whole number, or "any", of texts "feature=units"."""
    expected = "expected feature=units with a whole number, e.g. age=5, or feature=any of categories"
    assigned = assignments(texts, expected=expected)
    if wrong := next((f"{name}={width}" for name, width in assigned.items() if not (width.isdecimal() or width == "any")), None):
        raise ValueError(f"{wrong}: {expected}")
    return {name: int(width) if width.isdecimal() else width for name, width in assigned.items()}


def typed(parse: Callable[[Sequence[str]], Any]) -> BeforeValidator:
    """Return a validator that parses the texts of the command line, and passes on the table of an audit file."""
    return BeforeValidator(lambda value, info: parse(value) if info.context and isinstance(value, (list, tuple)) else value)


def parsed_box(texts: Sequence[str]) -> dict[str, Any]:
    """Return feature -> value or (low, high) of texts "feature=value" and "feature=low:high"."""
    assigned = assignments(texts, expected="expected feature=value or feature=low:high, e.g. age=30:40", void=True)
    return {name: tuple(end.strip() for end in value.split(":", 1)) if ":" in value else value for name, value in assigned.items()}


def _ends(value: Any) -> Any:
    """Return feature -> value, or [low, high] as (low, high)."""
    if not isinstance(value, Mapping):
        raise ValueError('expected { feature = value } or { feature = [low, high] }, such as { age = [30, 40], sex = "Male" }')
    result = {}
    for name, entry in value.items():
        ends = list(entry) if isinstance(entry, (list, tuple)) else [entry]
        if not all(isinstance(end, (str, int, float)) for end in ends) or (isinstance(entry, (list, tuple)) and len(ends) != 2):
            raise ValueError(f"{name}: found {entry!r}, expected a value, or [low, high]")
        result[name] = tuple(ends) if isinstance(entry, (list, tuple)) else entry
    return result


Protected = Annotated[tuple[str, ...], Option(type=list[str])]
Box = Annotated[dict[str, Any], BeforeValidator(_ends), typed(parsed_box), Option(type=list[str])]
"""feature -> value, or (low, high); on the command line feature=value or feature=low:high."""
Whole = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Units = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A number of the schema's units."""
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Method = Literal["auto", "bnb", "lp", "milp", "smt"]
Arithmetic = Literal["real", "float32"]


def no_claims(arithmetic: Arithmetic, method: Method, solver: str | None) -> None:
    """Raise ValueError for float32 with a solver."""
    if arithmetic == "float32" and (method in ("lp", "milp", "smt") or solver is not None):
        raise ValueError("--arithmetic float32 needs proofs with margins, and a solver's claim has none: use --method auto or bnb")


def _cuts(texts: Sequence[str]) -> dict[str, Any]:
    expected, once = "expected feature=number, or several numbers, e.g. --split age=25,60", "list all its cuts in one"
    result = {}
    for name, numbers in assignments(texts, expected=expected, once=once).items():
        try:
            result[name] = tuple(float(cut) for cut in numbers.split(","))
        except ValueError:
            raise ValueError(f"{name}={numbers}: {expected}") from None
    return result


def _rising(cuts: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
    if not cuts or sorted(set(cuts)) != list(cuts):
        expected = "expected numbers that rise, such as"
        raise ValueError(f"{expected} 25,60" if info.context else f"found {list(cuts)}, {expected} [25, 60]")
    return cuts


Cuts = Annotated[tuple[Number, ...], AfterValidator(_rising)]
class Grouped(Settings):
    """Settings of the groups in a table and the audited rows. `verifair.systems.groups` reads them."""

    protected: Protected = ()
    """Feature or column whose values are the groups; repeat for their combinations."""
    split: Annotated[dict[str, Cuts], typed(_cuts), Option(type=list[str])] = {}
    """Groups of a number: feature=5 makes two (at most 5, above), feature=5,9 three; repeat."""
    audit: str = "all"
    """Audited rows: all, test (with --demo), or column=value."""
    outside: Outside = "error"
