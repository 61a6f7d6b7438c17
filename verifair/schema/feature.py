"""One feature of a schema: its kind, its values, and their encoding as network columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
)

from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.schema.file import Change
from verifair.schema.spelling import closest, listed

LARGEST = float(np.finfo(np.float32).max)
EXACT = 2.0**53
"""Whole numbers beyond this have neighbours that float64 cannot tell apart."""


def text(value: Any) -> str:
    """Return a cell, category or label as text: 1.0 and 1 are the same, blanks around a word do not count."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def number(value: Any) -> float:
    """Return float(value), infinite for whole numbers beyond all floats."""
    try:
        return float(value) + 0.0  # no -0: equal schemas are written alike
    except OverflowError:
        return np.inf


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def _texts(value: Any) -> Any:
    return tuple(text(v) for v in value) if isinstance(value, (list, tuple)) else value


Finite = Annotated[float, Field(allow_inf_nan=False), AfterValidator(lambda value: value + 0.0)]
"""Finite, and 0 where it was -0."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


Moves = dict[Annotated[str, BeforeValidator(text)], Annotated[tuple[str, ...], BeforeValidator(_texts)]]


Word = Annotated[str | None, BeforeValidator(lambda value: None if value is None else text(value))]


class Scale(BaseModel):
    """column = float32((raw - offset) / scale)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    offset: Finite = 0.0
    scale: Positive = 1.0


class Feature(schema_file.SchemaPart):
    """One feature of a schema. Raises SchemaError, with a line for each problem, if its fields do not fit together.

    kind: "one-hot" has a column for each category, "categorical" one column of codes.   range: raw units, for numbers.
    scale: column = (raw - offset) / scale; "minmax" maps the range to [0, 1].   categories: names in code order.
    codes: the network's input for each category, if not 0, 1, ...: increasing, evenly spaced.   column: the table's, if not `name`.
    dropped: a category without a column: rows that have it are 0 in the one-hot block.   missing: that of rows with an empty cell.
    change: how a counterfactual may change it (default: fixed if protected, else free).   ordered: its categories have an order.
    moves: category -> those it may become; others may become any.   protected: its value should not matter.
    unit: one perturbation unit of PBA, in raw units; `unit_name` names it.   merit: it may legitimately decide (CEC).
    """

    WORD: ClassVar = "feature"
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
    dropped: Word = None
    missing: Word = None
    unit: Positive | None = None
    unit_name: str | None = None
    change: Change | None = None
    ordered: bool = False
    moves: Moves | None = None
    protected: bool = False
    merit: bool = False
    description: str | None = None

    def flaw(self) -> str | None:
        return self._problem_of_number() if self.numeric else self._problem_of_category()

    def _problem_of_number(self) -> str | None:
        if self.categories is not None or self.codes is not None:
            return f"categories and codes belong to categorical and one-hot features, not to a {self.kind} one; drop them"
        if self.ordered or (self.moves, self.dropped, self.missing) != (None, None, None):
            return f"ordered, moves, dropped and missing belong to features with categories, not to a {self.kind} one; drop them"
        if self.range is None:
            return f"a {self.kind} feature needs range = [low, high] in raw units"
        low, high = self.range
        bounds = f"range = [{low:g}, {high:g}]"
        if low > high:
            return f"{bounds} is reversed; write [{high:g}, {low:g}]"
        if self.scale == "minmax" and low == high:
            return f'scale = "minmax" divides by zero on {bounds}; use scale = "none"'
        if self.kind == "integer" and not (low.is_integer() and high.is_integer()):
            return f"{bounds} of an integer feature must have whole ends"
        if self.kind == "integer" and (max(-low, high) > EXACT or high - low >= EXACT):  # so that their number is exact, too
            return f"{bounds} is too wide: whole numbers are exact up to 2**53 only; count in a larger unit"
        offset, scale = self.affine
        if high - low == np.inf or not max(abs(low - offset), abs(high - offset)) / scale <= LARGEST:
            return f"{bounds} leaves the range of float32 after scaling, or float64's; count in a larger unit or use another scale"
        return None

    def _problem_of_category(self) -> str | None:
        if not self.categories:
            return f"a {self.kind} feature needs categories = [...] in code order"
        if duplicates := repeated(self.categories):
            return f"categories repeat {', '.join(map(schema_file.shown, duplicates))}; each may stand once"
        for source, targets in (self.moves or {}).items():
            unknown = [schema_file.shown(name) for name in (source, *targets) if name not in self.categories]
            if unknown:
                return f"moves name {', '.join(unknown)}, not one of its categories {', '.join(self.categories)}; correct the name"
        if self.range is not None or self.scale != "none" or self.unit is not None:
            return f"range, scale and unit belong to numbers, not to a {self.kind} feature; drop them"
        if self.dropped is not None and (self.kind != "one-hot" or self.dropped not in self.categories or len(self.categories) < 2):
            declared = f"dropped = {schema_file.shown(self.dropped)} of a {self.kind} feature with {listed(self.categories)}"
            return f"{declared}: expected one of two or more categories of a one-hot feature, each other of which has a column"
        if self.missing not in (None, *self.categories):
            return f"missing = {schema_file.shown(self.missing)} is none of its categories {listed(self.categories)}; correct it"
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

    def word(self, value: float) -> str | int | float:
        """Return a legal raw value in the schema's words: a category name, an int, or a float."""
        if self.categories is not None:
            return self.categories[int(value)]
        return int(value) if self.kind == "integer" else float(value)

    def raw_value(self, value: Any) -> float:
        """Return one raw value from a category name or a number. Raises SchemaError."""
        prefix = f"feature {self.name!r}: {schema_file.shown(value)}"
        if self.categories is not None:
            name = text(value)
            if name in self.categories:
                return float(self.categories.index(name))
            codes = [text(code) for code in self.codes or range(len(self.categories))]
            if name in codes and self.read_by_code:
                return float(codes.index(name))
            raise SchemaError(f"{prefix} is {self.unknown(name)}; correct it, or add the category to the schema")
        try:
            raw = number(value)
        except (TypeError, ValueError):
            raise SchemaError(f"{prefix} is not a number, and the feature is {self.kind} (a range is written 6:24)") from None
        if not np.isfinite(raw):
            raise SchemaError(f"{prefix} is not finite; give a number within its range")
        if self.kind == "integer" and not raw.is_integer():
            raise SchemaError(f"{prefix} is not a whole number, and the feature is integer")
        return raw

    @property
    def read_by_code(self) -> bool:
        """True if a number in a table may be a category's code: not if some category's name is a number."""
        for category in self.categories or ():
            with suppress(ValueError):
                float(category)
                return False
        return True

    def unknown(self, name: str) -> str:
        """Return the message about an unknown category."""
        categories = self.categories or ()
        suggestion = closest(name, categories)
        hint = f"did you mean {suggestion!r}? Known are " if suggestion is not None else "known are "
        return f"an unknown category; {hint}{listed(categories)}"
