"""The sections of an audit file: which keys each has, and what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.systems.cst.causal.file import Name, Section, Value
from verifair.systems.system import SYSTEMS, system

Whole = Annotated[int, Field(strict=True, ge=1)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Units = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0, lt=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


class File(Section):
    """A file, or what a shipped example brings in its place."""

    file: Name | None = None
    demo: Literal["german", "adult"] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> File:
        if (self.file is None) == (self.demo is None):
            raise ValueError('needs file = "..." or demo = "german", one of the two')
        return self


class Model(File):
    """[model]"""

    @classmethod
    def title(cls, data: Any) -> str:
        return "[model]"


class SchemaOf(Section):
    """[schema]"""

    file: Name

    @classmethod
    def title(cls, data: Any) -> str:
        return "[schema]"


class Data(File):
    """[data]   rows: a shipped example's test rows, or all.   outside: what to do with rows outside the schema's ranges."""

    rows: Literal["all", "test"] = "all"
    outside: Literal["error", "drop"] = "error"

    @classmethod
    def title(cls, data: Any) -> str:
        return "[data]"

    @model_validator(mode="after")
    def _test_rows_are_known(self) -> Data:
        if self.rows == "test" and self.demo is None:
            raise ValueError('rows = "test": only shipped examples say which rows are test rows; name a file of the rows you mean')
        return self


class Sensitive(Section):
    """[sensitive]"""

    features: tuple[Name, ...]

    @classmethod
    def title(cls, data: Any) -> str:
        return "[sensitive]"

    @model_validator(mode="after")
    def _some(self) -> Sensitive:
        if not self.features:
            raise ValueError("features names none; name the sensitive ones, or drop the section for those of the schema")
        return self


class Analysis(Section):
    """Of every analysis.   protected: features in place of [sensitive]'s.   timeout: seconds in place of an equal share."""

    protected: Names | None = None
    timeout: Positive | None = None


class OfRows(Analysis):
    """rows: use so many rows of the table only, drawn with the audit's seed."""

    rows: Whole | None = None





class Cst(OfRows):
    """[analyses.cst]: under the causal model of a file, whose [situation] counts where nothing is said here.

    do: attribute -> value of those not protected.   certify: prove decisions on counterfactuals at this level, such as 0.95.
    """

    causal: Name
    do: dict[Name, Value] | None = None
    k: Annotated[tuple[Whole, ...], Field(min_length=1)] | None = None
    tau: Units | None = None
    certify: Annotated[float, Field(strict=True, ge=0.5, lt=1)] | None = None

    @classmethod
    def title(cls, data: Any) -> str:
        return "[analyses.cst]"


OLD: dict[str, type[Analysis]] = {"cst": Cst}
ANALYSES = tuple(dict.fromkeys((*(verb for verb in SYSTEMS if system(verb).about), *OLD)))
"""Every analysis that an audit file may ask for."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One analysis of an audit file.   timeout: seconds in place of an equal share."""

    settings: Any
    timeout: float | None


class _Timeout(Section):
    """What every analysis may say beside its own settings."""

    timeout: Positive | None = None


def asked(verb: str, content: Mapping[str, Any]) -> Asked:
    """Return what a section asks for. Raises SchemaError, one line a problem."""
    if verb in OLD:
        old = OLD[verb].read(content)
        return Asked(settings=old, timeout=old.timeout)
    found = system(verb)
    keys = found.keys or tuple(found.settings.model_fields)
    title = f"[analyses.{verb}]"
    unknown = [key for key in content if key not in (*keys, "timeout")]
    try:
        given = {key: value for key, value in content.items() if key != "timeout"}
        rest = _Timeout.model_validate({key: content[key] for key in content if key == "timeout" or key in unknown})
        return Asked(settings=found.settings.model_validate({**found.audit_defaults, **given}), timeout=rest.timeout)
    except ValidationError as error:
        lines = (line.replace("valid tuple", "valid list") for line in schema_file.problems(error, (*keys, "timeout")))
        raise SchemaError("\n".join(f"{title}: {line}" for line in lines)) from None


SECTIONS: dict[str, type[Section]] = {"model": Model, "schema": SchemaOf, "data": Data, "sensitive": Sensitive}


class Head(Section):
    """What stands above the sections.   timeout: seconds for the whole audit."""

    title_: Name | None = Field(default=None, alias="title")
    seed: Seed = 0
    timeout: Positive = 600.0
