"""The sections of an audit file: their keys and allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.schema.section import TomlSection
from verifair.schema.writing import written
from verifair.systems.cst.settings import Name
from verifair.systems.settings import Missing, Outside, Positive, Settings
from verifair.systems.system import SYSTEMS, system

EFFORT = 150.0
"""Seconds of work for a whole audit."""
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


class File(TomlSection):
    """A file, or the one of a shipped example."""

    file: Name | None = None
    demo: Literal["german", "adult"] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> File:
        if (self.file is None) == (self.demo is None):
            raise ValueError('needs file = "..." or demo = "german", one of the two')
        return self


class ModelSection(File):
    """[model]"""

    @classmethod
    def title(cls, data: Any) -> str:
        return "[model]"


class SchemaOf(TomlSection):
    """[schema]"""

    file: Name

    @classmethod
    def title(cls, data: Any) -> str:
        return "[schema]"


class Data(File):
    """[data]   rows: a shipped example's test rows, or all.

    outside, missing: treatment of rows outside the schema's ranges or categories, and of missing values."""

    rows: Literal["all", "test"] = "all"
    outside: Outside = "error"
    missing: Missing = "error"

    @classmethod
    def title(cls, data: Any) -> str:
        return "[data]"

    @model_validator(mode="after")
    def _test_rows_are_known(self) -> Data:
        if self.rows == "test" and self.demo is None:
            raise ValueError('rows = "test": only shipped examples say which rows are test rows; name a file of the rows you mean')
        return self


class Sensitive(TomlSection):
    """[sensitive]"""

    features: tuple[Name, ...]

    @classmethod
    def title(cls, data: Any) -> str:
        return "[sensitive]"

    @model_validator(mode="after")
    def _names_a_feature(self) -> Sensitive:
        if not self.features:
            raise ValueError("features names none; name the sensitive ones, or drop the section for those of the schema")
        return self


Part = Field(default=None, ge=0, le=1, allow_inf_nan=False)


class GateSection(TomlSection):
    """[gate]   Every threshold is checked for each sensitive feature.   unknown: the outcome of an undecided threshold."""

    four_fifths: float | None = Part
    flips_in_data: float | None = Part
    certified_gap: float | None = Part
    certified_share: float | None = Part
    pba_share: float | None = Part
    unknown: Literal["fail", "pass"] = "fail"

    @classmethod
    def title(cls, data: Any) -> str:
        return "[gate]"


def known_analyses() -> tuple[str, ...]:
    """Return the names of all analyses of an audit file."""
    return tuple(verb for verb in SYSTEMS if system(verb).about)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis of an audit file.   effort: seconds of work in place of an equal share."""

    settings: Any
    effort: float | None


class _Effort(Settings):
    """Keys of every analysis besides its own settings."""

    effort: Positive | None = None


def analysis_of(verb: str, content: Mapping[str, Any]) -> Analysis:
    """Return the settings of a section. Raises SchemaError, one line for each problem."""
    analysis = system(verb)
    keys = analysis.keys or tuple(analysis.settings.model_fields)
    present = {key: value for key, value in content.items() if key in keys}
    others = {key: value for key, value in content.items() if key not in keys}
    lines = [f"{key}: is missing; add it" for key in analysis.required if key not in present]
    validated: list[Any] = []
    lines += [f"{key}: List should have at least 1 item, found []" for key, value in present.items() if value == []]
    for kind, values, defaults in ((analysis.settings, present, analysis.audit_defaults), (_Effort, others, {})):
        try:
            validated.append(kind.of(values, defaults))
        except ValidationError as error:
            lines += schema_file.problems(error, kind, (*keys, "effort"))
    for name, owners in validated[0].strays() if not lines else ():
        settings = " or ".join(setting if value is None else f"{setting} = {written(value)}" for setting, value in owners)
        lines.append(f"{name}: belongs to {settings}: add {'that' if len(owners) == 1 else 'one'}, or drop {name}")
    if lines:
        raise SchemaError("\n".join(f"[analyses.{verb}]: {line}" for line in lines))
    return Analysis(settings=validated[0], effort=validated[1].effort)


SECTIONS: dict[str, type[TomlSection]] = {
    "model": ModelSection, "schema": SchemaOf, "data": Data, "sensitive": Sensitive, "gate": GateSection,
}  # fmt: skip


class Head(TomlSection):
    """Keys above the sections of an audit file.

    effort: seconds of work on one idle core for the whole audit, counted and not measured, so that results depend on it alone.
    timeout: seconds by the clock after which the rest is left out.
    what_if: whether the page holds the model, so that it can evaluate any person.
    """

    title_: Name | None = Field(default=None, alias="title")
    seed: Seed = 0
    effort: Positive = EFFORT
    timeout: Positive = 3600.0
    what_if: bool = True
