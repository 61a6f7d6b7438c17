"""The description of a network's inputs: one typed schema, hand-written in TOML, used by every system.

A feature is a *raw variable* (a number in its own unit, or a category); the order of the features is the order of the network's
input columns. See `encoders.problem.Domain` for how raw values become float32 inputs.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from encoders.network import Array, Network
from encoders.problem import Domain
from verifair.errors import DataError, SchemaError

Integers = npt.NDArray[np.int64]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Scale(BaseModel):
    """column = float32((raw - offset) / scale)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    offset: float = 0.0
    scale: Positive = 1.0


class Feature(BaseModel):
    """One feature. range: raw units, for numbers; categories: names in code order, for categorical and one-hot features."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    name: str = Field(min_length=1)
    kind: Literal["real", "integer", "categorical", "one-hot"]
    column: str | None = None
    range: tuple[float, float] | None = None
    scale: Literal["none", "minmax"] | Scale = "none"
    categories: tuple[str, ...] | None = None
    unit: Positive | None = None
    unit_name: str | None = None
    change: Literal["increase", "decrease", "fixed", "free"] = "free"
    protected: bool = False
    merit: bool = False
    description: str | None = None

    @field_validator("categories", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        return None if value is None else tuple(str(v) for v in value)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Feature:
        if self.numeric:
            if self.range is None:
                raise ValueError(f"a {self.kind} feature needs range = [low, high] in raw units")
            if self.categories is not None:
                raise ValueError(f"categories belong to categorical and one-hot features, not to a {self.kind} one; drop them")
            low, high = self.range
            if not (np.isfinite(low) and np.isfinite(high)):
                raise ValueError(f"range = [{low:g}, {high:g}] must be finite")
            if low > high:
                raise ValueError(f"range = [{low:g}, {high:g}] is reversed; write [{high:g}, {low:g}]")
            if self.scale == "minmax" and low == high:
                raise ValueError(f'scale = "minmax" divides by zero on range = [{low:g}, {high:g}]; use scale = "none"')
            if self.kind == "integer" and (low != int(low) or high != int(high)):
                raise ValueError(f"range = [{low:g}, {high:g}] of an integer feature must have whole ends")
        else:
            if not self.categories:
                raise ValueError(f"a {self.kind} feature needs categories = [...] in code order")
            if len(set(self.categories)) < len(self.categories):
                twice = sorted({c for c in self.categories if self.categories.count(c) > 1})
                raise ValueError(f"categories repeat {', '.join(twice)}; each may stand once")
            if self.range is not None or self.scale != "none" or self.unit is not None:
                raise ValueError(f"range, scale and unit belong to numbers, not to a {self.kind} feature; drop them")
        return self

    @property
    def numeric(self) -> bool:
        return self.kind in ("real", "integer")

    @property
    def source(self) -> str:
        """Name of the data column."""
        return self.column or self.name


class Schema(BaseModel):
    """All features in network order, what counts as positive, and where the label stands in the data."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))
    features: tuple[Feature, ...] = Field(min_length=1)
    positive: Literal["logit > 0", "class = 1"] = "logit > 0"
    label: str | None = None
    positive_label: str | None = None
    outcomes: tuple[str, str] = ("negative", "positive")

    @field_validator("positive_label", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return None if value is None else str(value)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Schema:
        names = [feature.name for feature in self.features]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"features named twice: {', '.join(twice)}; give each its own name")
        return self

    # Files

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a TOML schema. Raises SchemaError naming file, feature and remedy."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise SchemaError(f"{path}: cannot be read ({error.strerror}); pass the path of a schema in TOML") from error
        except UnicodeDecodeError as error:
            raise SchemaError(f"{path}: is not UTF-8 text; a schema is a TOML file") from error
        return cls.loads(text, name=str(path))

    @classmethod
    def loads(cls, text: str, *, name: str = "schema") -> Schema:
        """Read a schema from TOML text; `name` is what errors call it."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"{name}: not valid TOML: {error}") from error
        unknown = sorted(set(content) - {"model", "feature"})
        if unknown:
            raise SchemaError(f"{name}: unknown section {', '.join(unknown)}; a schema has [model] and [[feature]] sections")
        if not isinstance(content.get("feature"), list):
            raise SchemaError(f"{name}: has no [[feature]] section; describe each input column in one")
        return cls.build({"features": content["feature"], **content.get("model", {})}, name=name)

    @classmethod
    def build(cls, content: Mapping[str, Any], *, name: str = "schema") -> Schema:
        """Validate a mapping of the fields; raises SchemaError with one line a problem."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise SchemaError("\n".join(_explained(error, content, name))) from error

    def dumps(self) -> str:
        """The schema as TOML; `loads` gives it back."""
        model = {k: v for k, v in self.model_dump(exclude={"features"}, exclude_none=True).items()}
        lines = ["[model]", *(f"{key} = {_toml(value)}" for key, value in model.items())]
        for feature in self.features:
            content = feature.model_dump(exclude_none=True, exclude_defaults=True)
            lines += ["", "[[feature]]", *(f"{key} = {_toml(value)}" for key, value in content.items())]
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.dumps(), encoding="utf-8")

    @cached_property
    def sha256(self) -> str:
        """Hash of the content: comments, order of keys and white space do not count."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    # Names

    def index(self, name: str) -> int:
        """Position of a feature. Raises SchemaError with the closest name."""
        names = [feature.name for feature in self.features]
        if name in names:
            return names.index(name)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
        raise SchemaError(f"there is no feature {name!r} in the schema; {hint}")

    def __getitem__(self, name: str) -> Feature:
        return self.features[self.index(name)]

    @property
    def protected_names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features if feature.protected)

    def values(self, name: str) -> Array:
        """All legal raw values of a feature that has finitely many: category codes, or the integers of its range."""
        v = self.index(name)
        if self.features[v].kind == "real":
            raise SchemaError(f"feature {name!r} is real-valued: its values cannot be listed; declare it integer or categorical")
        return np.arange(self.domain.lower[v], self.domain.upper[v] + 1)

    def format(self, name: str, value: float) -> str:
        """A raw value in the schema's words."""
        feature = self[name]
        if feature.categories is not None:
            return feature.categories[int(value)]
        return str(int(value)) if feature.kind == "integer" else f"{value:g}"

    def raw_value(self, name: str, value: Any) -> float:
        """One raw value from a number or a category name."""
        feature = self[name]
        if feature.categories is not None and str(value) in feature.categories:
            return float(feature.categories.index(str(value)))
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise SchemaError(f"feature {name!r}: {value!r} is {_expected(feature, str(value))}") from error
        if feature.kind != "real" and number != int(number):
            raise SchemaError(f"feature {name!r}: {value!r} is not a whole number, and the feature is {feature.kind}")
        return number

    def decode(self, row: Iterable[float]) -> dict[str, Any]:
        """A raw row (V,) in the schema's words: category names, whole numbers as int."""
        out: dict[str, Any] = {}
        for feature, value in zip(self.features, row, strict=True):
            if feature.categories is not None:
                out[feature.name] = feature.categories[int(value)]
            else:
                out[feature.name] = int(value) if feature.kind == "integer" else float(value)
        return out

    # Arrays

    @cached_property
    def domain(self) -> Domain:
        """The raw variables as arrays."""
        width = np.array([len(f.categories or ()) if f.kind == "one-hot" else 1 for f in self.features])
        ranges = np.array([f.range or (0.0, len(f.categories or ()) - 1.0) for f in self.features])
        scales = [self._scale(f) for f in self.features]
        return Domain(
            integer=np.array([f.kind != "real" for f in self.features]),
            lower=ranges[:, 0],
            upper=ranges[:, 1],
            offset=np.array([offset for offset, _ in scales]),
            scale=np.array([scale for _, scale in scales]),
            start=np.cumsum(width) - width,
            one_hot=np.array([f.kind == "one-hot" for f in self.features]),
            width=width,
        )

    @staticmethod
    def _scale(feature: Feature) -> tuple[float, float]:
        if isinstance(feature.scale, Scale):
            return feature.scale.offset, feature.scale.scale
        if feature.scale == "minmax" and feature.range is not None:
            return feature.range[0], feature.range[1] - feature.range[0]
        return 0.0, 1.0

    def encode(self, raw: Array) -> Array:
        """Network inputs (B, n) of raw rows (B, V)."""
        return self.domain.encode(raw)

    def inside(self, raw: Array) -> npt.NDArray[np.bool_]:
        """(B,) which raw rows are legal: in range, and whole where they must be."""
        return self.domain.legal(raw)

    def steps(self, still: Sequence[str]) -> Array:
        """(V,) one perturbation unit of every feature that PBA moves, 0 for the others.

        Numbers move, save those in `still` and those with change = "fixed". Raises SchemaError for a mover without a unit.
        """
        out = np.zeros(len(self.features))
        for v, feature in enumerate(self.features):
            if feature.numeric and feature.change != "fixed" and feature.name not in still and not feature.protected:
                if feature.unit is None:
                    raise SchemaError(
                        f"feature {feature.name!r} has no unit, so delta cannot move it; add unit = ... (one perturbation unit), "
                        'or change = "fixed" to keep it still'
                    )
                out[v] = feature.unit
        return out

    def check_network(self, network: Network) -> None:
        """Raise SchemaError unless the schema's columns and outcome fit the network."""
        if self.domain.columns != network.inputs:
            blocks = ", ".join(f"{f.name} {len(f.categories)}" for f in self.features if f.kind == "one-hot" and f.categories)
            raise SchemaError(
                f"the schema describes {self.domain.columns} input columns ({len(self.features)} features"
                + (f"; one-hot blocks: {blocks}" if blocks else "")
                + f"), but the network takes {network.inputs}; describe every column, in the network's order"
            )
        if self.positive == "logit > 0" and network.outputs != 1:
            raise SchemaError(
                f'positive = "logit > 0" needs a network with one logit, this one has {network.outputs}; write positive = "class = 1"'
            )

    def raw(self, frame: pd.DataFrame, *, outside: Literal["error", "keep"] = "error") -> Array:
        """Raw rows (N, V) of a table. Raises DataError naming feature, row, what was found and the remedy."""
        raw = np.column_stack([self._column(frame, feature) for feature in self.features])
        if outside == "error" and not self.inside(raw).all():
            self._raise_outside(raw)
        return raw

    def _raise_outside(self, raw: Array) -> None:
        domain = self.domain
        bad = (raw < domain.lower) | (raw > domain.upper)
        v = int(np.argmax(bad.any(axis=0)))
        row = int(np.argmax(bad[:, v]))
        raise DataError(
            f"feature {self.features[v].name!r}: {int(bad[:, v].sum())} rows lie outside the declared range "
            f"{domain.lower[v]:g} .. {domain.upper[v]:g}, first row {row} with {raw[row, v]:g}; widen the range, or pass --outside drop"
        )

    def _column(self, frame: pd.DataFrame, feature: Feature) -> Array:
        if feature.source not in frame.columns:
            if feature.kind == "one-hot":
                block = [f"{feature.source}_{c}" for c in feature.categories or ()]
                if all(name in frame.columns for name in block):
                    return _from_block(frame, feature, block)
            close = difflib.get_close_matches(feature.source, [str(c) for c in frame.columns], n=1)
            hint = f'; did you mean {close[0]!r}? Then write column = "{close[0]}"' if close else ""
            raise DataError(f"feature {feature.name!r}: the table has no column {feature.source!r}{hint}")
        column = frame[feature.source]
        missing = np.flatnonzero(column.isna().to_numpy())
        if len(missing):
            raise DataError(
                f"feature {feature.name!r}: {len(missing)} rows have no value, first row {missing[0]}; drop them or fill them in"
            )
        if feature.categories is not None:
            return _codes(column, feature)
        return _numbers(column, feature)

    def labels(self, frame: pd.DataFrame) -> Integers:
        """True classes (N,) of a table: 1 where the label column holds `positive_label`, else 0 (numbers 0 .. K-1 as they are)."""
        if self.label is None:
            raise SchemaError('the schema names no label column; add label = "..." to its [model] section')
        if self.label not in frame.columns:
            raise DataError(f"the table has no label column {self.label!r}; known are {', '.join(map(str, frame.columns))}")
        column = frame[self.label]
        if column.isna().any():
            row = int(np.argmax(column.isna().to_numpy()))
            raise DataError(f"label {self.label!r}: row {row} has no value; drop such rows")
        if self.positive_label is not None:
            hit = (column.map(_text) == self.positive_label).to_numpy()
            if not hit.any():
                known = ", ".join(sorted(set(column.map(_text)))[:6])
                raise DataError(f"label {self.label!r}: no row holds positive_label = {self.positive_label!r}; found {known}")
            return hit.astype(np.int64)
        numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
        if np.isnan(numbers).any() or (numbers != np.floor(numbers)).any() or (numbers < 0).any():
            raise DataError(f"label {self.label!r} is not numbered 0, 1, ...; name the positive value: positive_label = ...")
        return numbers.astype(np.int64)


def _codes(column: pd.Series, feature: Feature) -> Array:
    """Category codes; names first, then codes 0 .. K-1 where the column is numeric."""
    categories = feature.categories or ()
    code = {name: float(k) for k, name in enumerate(categories)}
    values = column.map(_text)
    known = values.isin(code.keys())
    if not known.all() and pd.api.types.is_numeric_dtype(column):
        numbers = column.to_numpy(dtype=float)
        if (numbers == np.floor(numbers)).all() and not known.any():
            return numbers  # out-of-range codes are for `inside` to report
    if not known.all():
        row = int(np.argmax(~known.to_numpy()))
        raise DataError(f"feature {feature.name!r}: row {row} holds {values.iloc[row]!r}, {_expected(feature, values.iloc[row])}")
    return np.asarray(values.map(code), dtype=np.float64)


def _expected(feature: Feature, found: str) -> str:
    if feature.categories is None:
        return f"not a number, and the feature is {feature.kind}"
    close = difflib.get_close_matches(found, feature.categories, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"an unknown category{hint} Known are {', '.join(feature.categories)}. Map it to one of these, or add it to the schema"


def _numbers(column: pd.Series, feature: Feature) -> Array:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DataError(f"feature {feature.name!r}: row {bad[0]} holds {column.iloc[bad[0]]!r}, expected a finite number")
    if feature.kind == "integer":
        bad = np.flatnonzero(numbers != np.floor(numbers))
        if len(bad):
            raise DataError(
                f"feature {feature.name!r}: row {bad[0]} holds {numbers[bad[0]]:g}, but the feature is integer; round the data, or "
                'declare kind = "real"'
            )
    return numbers


def _from_block(frame: pd.DataFrame, feature: Feature, block: list[str]) -> Array:
    """Codes of a feature that the table holds as one-hot columns."""
    values = frame[block].to_numpy(dtype=float)
    bad = np.flatnonzero((values.sum(axis=1) != 1) | ~np.isin(values, (0, 1)).all(axis=1))
    if len(bad):
        ones = [name for name, value in zip(block, values[bad[0]], strict=True) if value]
        raise DataError(
            f"feature {feature.name!r}: row {bad[0]} has {len(ones)} of its one-hot columns set ({', '.join(ones) or 'none'}), "
            "expected exactly one"
        )
    return values.argmax(axis=1).astype(np.float64)


def _text(value: Any) -> str:
    """A cell as text; 1.0 and 1 are the same code."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return json.dumps(value, ensure_ascii=False)


def _explained(error: ValidationError, content: Mapping[str, Any], name: str) -> Iterable[str]:
    """One line a problem, naming the feature by its name."""
    for problem in error.errors():
        where = list(problem["loc"])
        place = "[model]"
        if len(where) >= 2 and where[0] == "features" and isinstance(where[1], int):
            given = content["features"][where[1]]
            called = given.get("name") if isinstance(given, Mapping) else None
            place = f"feature {called!r}" if called else f"feature number {where[1] + 1}"
            where = where[2:]
        keys = [str(w) for w in where if str(w) not in ("function-after", "Scale", "literal['none','minmax']")]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = Feature.model_fields if place.startswith("feature") else Schema.model_fields
            close = difflib.get_close_matches(keys[-1], list(known), n=1)
            message = "unknown key" + (f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}")
        elif problem["type"] == "missing":
            message = "is missing; add it"
        elif "input" in problem and not isinstance(problem["input"], Mapping):
            message = f"{message}, found {problem['input']!r}" if keys else message
        yield f"{name}: {place}: {'.'.join(keys) + ': ' if keys else ''}{message}"
