"""One feature of a schema: its kind, what it may be, and how it becomes network columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    model_validator,
)

from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.schema.file import Change

LARGEST = float(np.finfo(np.float32).max)
EXACT = 2.0**53
"""Whole numbers beyond this have neighbours that float64 cannot tell apart."""


def text(value: Any) -> str:
    """Return a cell, category or label as text: 1.0 and 1 are the same, blanks around a word do not count."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def number(value: Real) -> float:
    """float(value), infinite for whole numbers beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return np.inf


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that stand more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def _texts(value: Any) -> Any:
    return tuple(text(v) for v in value) if isinstance(value, (list, tuple)) else value


Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


Moves = dict[Annotated[str, BeforeValidator(text)], Annotated[tuple[str, ...], BeforeValidator(_texts)]]


class Scale(BaseModel):
    """column = float32((raw - offset) / scale)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    offset: Finite = 0.0
    scale: Positive = 1.0


class Feature(BaseModel):
    """One feature. Raises SchemaError, one line a problem, where its fields do not fit each other.

    range: raw units, for numbers.   categories: names in code order, for categorical and one-hot features.
    codes: what the network takes for each category of a categorical feature, if not 0, 1, 2, ...: increasing, evenly spaced.
    change: which way a counterfactual may move it; unless said, a protected feature is fixed and any other free.
    ordered: the order of the categories means something.   moves: category -> the categories it may become; others are free.
    unit: one perturbation unit of PBA, in raw units.   column: the data column, if it is not called like the feature.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(min_length=1)
    kind: Literal["real", "integer", "categorical", "one-hot"]
    column: str | None = None
    range: tuple[Finite, Finite] | None = None
    scale: Annotated[
        Annotated[Literal["none", "minmax"], Tag("word")] | Annotated[Scale, Tag("affine")],
        Discriminator(lambda value: "affine" if isinstance(value, (Mapping, Scale)) else "word"),
    ] = "none"
    categories: Annotated[tuple[str, ...], BeforeValidator(_texts)] | None = None
    codes: tuple[int, ...] | None = None
    unit: Positive | None = None
    unit_name: str | None = None
    change: Change | None = None
    ordered: bool = False
    moves: Moves | None = None
    protected: bool = False
    merit: bool = False
    description: str | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Feature:
        problem = self._problem_of_number() if self.numeric else self._problem_of_category()
        if problem:
            raise ValueError(problem)
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, data: Any, handler: ModelWrapValidatorHandler[Feature]) -> Feature:
        try:
            return handler(data)
        except ValidationError as error:
            name = data.get("name") if isinstance(data, Mapping) else None
            place = f"feature {name!r}: " if name else "feature without a name: "
            raise SchemaError("\n".join(place + line for line in schema_file.problems(error, cls))) from None

    def _problem_of_number(self) -> str | None:
        if self.categories is not None or self.codes is not None:
            return f"categories and codes belong to categorical and one-hot features, not to a {self.kind} one; drop them"
        if self.ordered or self.moves is not None:
            return f"ordered and moves belong to categorical and one-hot features, not to a {self.kind} one; drop them"
        if self.range is None:
            return f"a {self.kind} feature needs range = [low, high] in raw units"
        low, high = self.range
        written = f"range = [{low:g}, {high:g}]"
        if low > high:
            return f"{written} is reversed; write [{high:g}, {low:g}]"
        if self.scale == "minmax" and low == high:
            return f'scale = "minmax" divides by zero on {written}; use scale = "none"'
        if self.kind == "integer" and not (low.is_integer() and high.is_integer()):
            return f"{written} of an integer feature must have whole ends"
        if self.kind == "integer" and max(-low, high) > EXACT:
            return f"{written} is too wide: whole numbers are exact up to 2**53 only; count in a larger unit"
        offset, scale = self.affine
        if not max(abs(low - offset), abs(high - offset)) / scale <= LARGEST:
            return f"{written} leaves the range of float32 after scaling; count in a larger unit, or use another scale"
        return None

    def _problem_of_category(self) -> str | None:
        if not self.categories:
            return f"a {self.kind} feature needs categories = [...] in code order"
        twice = repeated(self.categories)
        if twice:
            return f"categories repeat {', '.join(twice)}; each may stand once"
        for one, others in (self.moves or {}).items():
            unknown = [name for name in (one, *others) if name not in self.categories]
            if unknown:
                return f"moves name {', '.join(unknown)}, not one of its categories {', '.join(self.categories)}; correct the name"
        if self.range is not None or self.scale != "none" or self.unit is not None:
            return f"range, scale and unit belong to numbers, not to a {self.kind} feature; drop them"
        if self.codes is None:
            return None
        if self.kind == "one-hot":
            return "codes belong to categorical features: a one-hot block has a column for each category; drop them"
        if len(self.codes) != len(self.categories):
            return f"{len(self.codes)} codes for {len(self.categories)} categories; give one code for each"
        steps = {after - before for before, after in zip(self.codes, self.codes[1:], strict=False)}
        if len(steps) > 1 or min(steps, default=1) < 1:
            return (
                f"codes = {list(self.codes)} must increase in even steps, such as [1, 2, 3]; put the categories into that order, "
                "or give the network a one-hot block"
            )
        if max(abs(code) for code in self.codes) > 2**24:
            return f"codes = {list(self.codes)} must lie within -2**24 .. 2**24, where float32 is exact"
        return None

    @property
    def numeric(self) -> bool:
        return self.kind in ("real", "integer")

    @property
    def source(self) -> str:
        """Name of the data column."""
        return self.column or self.name

    @property
    def affine(self) -> tuple[float, float]:
        """(offset, scale) of column = (raw - offset) / scale; the raw value of a categorical feature is its category's index."""
        if self.codes is not None:
            step = self.codes[1] - self.codes[0] if len(self.codes) > 1 else 1
            return -self.codes[0] / step, 1 / step
        if isinstance(self.scale, Scale):
            return self.scale.offset, self.scale.scale
        if self.scale == "minmax" and self.range is not None:
            return self.range[0], self.range[1] - self.range[0]
        return 0.0, 1.0

    @property
    def actionability(self) -> Change:
        """Which way a counterfactual may move it."""
        return self.change or ("fixed" if self.protected else "free")

    def word(self, value: float) -> str | int | float:
        """Return a legal raw value in the schema's words: a category name, an int, or a float."""
        if self.categories is not None:
            return self.categories[int(value)]
        return int(value) if self.kind == "integer" else float(value)
