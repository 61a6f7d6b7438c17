"""The description of a network's inputs: one typed schema, hand-written in TOML, used by every system.

A feature is a *raw variable* (a number in its own unit, or a category); the order of the features is the order of the network's
input columns. See `encoders.domain.Domain` for how raw values become float32 inputs, `feature` for what a feature may be,
`constraint` for which rows are not legal, `rows` for how tables are read, and `file` for
the file format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from encoders.domain import Domain
from encoders.network import Array, Booleans, Integers, Network
from verifair.errors import DataError, SchemaError
from verifair.schema import file as schema_file
from verifair.schema import network as schema_network
from verifair.schema import rows as schema_rows
from verifair.schema.constraint import Constraint, broken, forbidden, nothing_left, violations
from verifair.schema.feature import Feature, Scale, repeated, text
from verifair.schema.infer import inferred
from verifair.schema.spelling import nearest

__all__ = ["Constraint", "Feature", "Scale", "Schema"]


FEATURES = BeforeValidator(lambda value: schema_file.sections(value, Feature, "feature"))
CONSTRAINTS = BeforeValidator(lambda value: schema_file.sections(value, Constraint, "constraint"))
LABEL = BeforeValidator(lambda value: None if value is None else text(value))


class Schema(BaseModel):
    """All features in network order, what counts as positive, and where the label stands in the data. Raises SchemaError.

    positive: "logit > 0" (one logit) or "class = 1" (a logit for each class).   label: the data column of the true class.
    positive_label: its value for class 1; without one the column numbers the classes 0, 1, ...
    constraints: which rows are not legal, whatever the ranges of their features say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))
    features: Annotated[tuple[Feature, ...], FEATURES] = Field(min_length=1)
    positive: Literal["logit > 0", "class = 1"] = "logit > 0"
    label: str | None = None
    positive_label: Annotated[str | None, LABEL] = None
    outcomes: tuple[str, str] = ("negative", "positive")
    constraints: Annotated[tuple[Constraint, ...], CONSTRAINTS] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Schema:
        twice = repeated(feature.name for feature in self.features)
        if twice:
            raise ValueError(f"features named twice: {', '.join(twice)}; give each its own name")
        if self.label in [feature.source for feature in self.features]:
            raise ValueError(f"label {self.label!r} is also the column of a feature: the network would see the answer; drop one")
        return self

    @model_validator(mode="after")
    def _constraints_leave_a_row(self) -> Schema:
        try:
            empty = nothing_left(self.domain)
        except SchemaError as error:
            raise ValueError(str(error)) from None
        if empty:
            raise ValueError("the constraints leave no row at all: each can be met, not all of them together; correct one of them")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, data: Any, handler: ModelWrapValidatorHandler[Schema]) -> Schema:
        try:
            return handler(data)
        except ValidationError as error:
            known = [name for name in cls.model_fields if name not in ("features", "constraints")]
            raise SchemaError("\n".join(schema_file.problems(error, cls, known))) from None

    # Files

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a TOML schema. Raises SchemaError naming file, feature and remedy."""
        return cls.loads(schema_file.read(path), name=str(path))

    @classmethod
    def loads(cls, content: str, *, name: str = "schema") -> Schema:
        """Read a schema from TOML text; `name` is what errors call it."""
        return cls.build(schema_file.parse(content, name), name=name)

    @classmethod
    def build(cls, content: Mapping[str, Any], *, name: str = "schema") -> Schema:
        """Validate a mapping of the fields; raises SchemaError with one line a problem."""
        try:
            return cls.model_validate(content)
        except SchemaError as error:
            raise SchemaError(schema_file.with_name(error, name)) from None

    @classmethod
    def infer(
        cls, frame: pd.DataFrame, *, target: str, positive: str | None = None, protected: Sequence[str] = (),
        network: Network | None = None,
    ) -> Schema:
        """Return a first draft from a table; `verifair schema infer` writes it with notes on what to check. Raises DataError.

        network: the model that the schema is for, where it is a pipeline that takes the table's own columns.
        """
        return cls.build(inferred(frame, target=target, positive=positive, protected=protected, network=network))

    def dumps(self) -> str:
        """Return the schema as TOML, the same for equal schemas; `loads` gives it back."""
        model = self.model_dump(exclude={"features", "positive", "constraints"}, exclude_none=True, exclude_defaults=True)
        features = [f.model_dump(exclude_none=True, exclude_defaults=True) for f in self.features]
        return schema_file.toml({"positive": self.positive, **model}, features, [c.table() for c in self.constraints])

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.dumps(), encoding="utf-8", newline="\n")

    @cached_property
    def sha256(self) -> str:
        """Hash of the content: comments, order of keys, white space and fields left at their default do not count."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()

    # Names

    def index(self, name: str) -> int:
        """Position of a feature. Raises SchemaError with the closest name."""
        names = [feature.name for feature in self.features]
        if name in names:
            return names.index(name)
        raise SchemaError(f"there is no feature {name!r} in the schema; {nearest(name, names)}")

    def __getitem__(self, name: str) -> Feature:
        return self.features[self.index(name)]

    @property
    def protected_names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features if feature.protected)

    def values(self, name: str) -> Array:
        """Return all legal raw values of a feature that has finitely many: category indices, or the integers of its range."""
        v = self.index(name)
        if self.features[v].kind == "real":
            raise SchemaError(f"feature {name!r} is real-valued: its values cannot be listed; declare it integer or categorical")
        count = self.domain.upper[v] - self.domain.lower[v] + 1
        if count > 100_000:
            raise SchemaError(f"feature {name!r} has {count:.0f} values, too many to compare with each other; group them")
        return np.arange(self.domain.lower[v], self.domain.upper[v] + 1)

    def format(self, name: str, value: float) -> str:
        """Return a raw value in the schema's words."""
        word = self[name].word(value)
        return f"{word:g}" if isinstance(word, float) else str(word)

    def raw_value(self, name: str, value: Any) -> float:
        """Return one raw value from a number or a category name. Raises SchemaError for a value of another kind."""
        return schema_rows.raw_value(self[name], value)

    def decode(self, row: Iterable[float]) -> dict[str, Any]:
        """Return a raw row (V,) in the schema's words: category names, whole numbers as int."""
        return {feature.name: feature.word(value) for feature, value in zip(self.features, row, strict=True)}

    # Arrays

    @cached_property
    def domain(self) -> Domain:
        """The raw variables as arrays."""
        width = np.array([len(f.categories or ()) if f.kind == "one-hot" else 1 for f in self.features])
        ranges = np.array([f.range or (0.0, len(f.categories or ()) - 1.0) for f in self.features])
        affine = np.array([f.affine for f in self.features])
        return Domain(
            integer=np.array([f.kind != "real" for f in self.features]), lower=ranges[:, 0], upper=ranges[:, 1],
            offset=affine[:, 0], scale=affine[:, 1], start=np.cumsum(width) - width,
            one_hot=np.array([f.kind == "one-hot" for f in self.features]), width=width,
            forbidden=forbidden(self.constraints, self.features),
        )

    def encode(self, raw: Array) -> Array:
        """Network inputs (B, n) of raw rows (B, V)."""
        return self.domain.encode(raw)

    def inside(self, raw: Array) -> Booleans:
        """Return (B,) which raw rows are legal: in range, whole where they must be, and within the constraints."""
        return self.domain.legal(raw)

    def broken(self, raw: Array) -> dict[str, Booleans]:
        """For each constraint, called by its name or number, which raw rows (B, V) break it: (B,)."""
        return broken(self.constraints, self.features, raw)

    def forbidding(self, boxes: Sequence[Mapping[str, Any]], name: str) -> Schema:
        """Return the same schema with more rows forbidden: those that meet all conditions of one of `boxes` (feature -> value, list
        of values or {"low": ..., "high": ...}, as in a constraint's `never`). A guardrail refuses them. Raises SchemaError."""
        names = [name] if len(boxes) == 1 else [f"{name} {k}" for k in range(1, len(boxes) + 1)]
        more = [Constraint(name=one, never=box) for one, box in zip(names, boxes, strict=True)]
        fields = {field: getattr(self, field) for field in type(self).model_fields}
        return Schema.model_validate({**fields, "constraints": (*self.constraints, *more)})

    def steps(self, still: Sequence[str]) -> Array:
        """Return (V,) one perturbation unit of every feature that PBA moves, 0 for the others.

        Numbers with a unit move, save those in `still`, protected ones and those with change = "fixed". Raises SchemaError when
        nothing would move: delta counts units, so without any it means nothing.
        """
        moves = [f.numeric and f.change != "fixed" and f.name not in still and not f.protected for f in self.features]
        steps = np.array([float(f.unit or 0.0) if moving else 0.0 for f, moving in zip(self.features, moves, strict=True)])
        if not steps.any():
            could = ", ".join(f.name for f, moving in zip(self.features, moves, strict=True) if moving)
            raise SchemaError(
                f"delta counts units, but no feature that may move has one ({could or 'no number is free to move'}); add "
                "unit = ... (one perturbation step, in the feature's own unit) to each feature that delta is to move"
            )
        return steps

    def check_network(self, network: Network) -> None:
        """Raise SchemaError unless the schema's columns and outcome fit the network."""
        schema_network.check(self.features, self.domain, self.positive, self.positive_label, network)

    # Tables

    def raw(self, frame: pd.DataFrame, *, outside: Literal["error", "keep"] = "error") -> Array:
        """Return raw rows (N, V) of a table. Raises DataError naming file, feature, row, what was found and the remedy.

        outside: "error" refuses values outside the declared ranges, "keep" keeps them, for `inside` to tell.
        """
        with schema_rows.blamed(frame):
            raw = np.column_stack([schema_rows.raw_column(frame, feature) for feature in self.features])
            if outside == "error" and not self.inside(raw).all():
                self._raise_outside(raw, frame.index)
            return raw

    def fitting(self, frame: pd.DataFrame) -> Booleans:
        """Return (N,) which rows of a table are legal. Raises DataError for cells that are no values of their feature."""
        return self.inside(self.raw(frame, outside="keep"))

    def _raise_outside(self, raw: Array, rows: pd.Index) -> None:
        v = next((v for v in range(len(self.features)) if not self._legal(raw, v).all()), None)
        if v is None:
            raise DataError(violations(self.constraints, self.features, raw, rows))
        feature, bad = self.features[v], np.flatnonzero(~self._legal(raw, v))
        value, low, high = raw[bad[0], v], self.domain.lower[v], self.domain.upper[v]
        if feature.categories is not None:
            offset, scale = feature.affine  # what the table holds, and what it may hold, are codes
            value, low, high = (round((index - offset) / scale) for index in (value, low, high))
        raise DataError(
            f"feature {feature.name!r}: {len(bad)} {'row lies' if len(bad) == 1 else 'rows lie'} outside the declared "
            f"{'codes' if feature.categories else 'range'} {low:.10g} .. {high:.10g}, first row {rows[bad[0]]} with {value:.10g}; "
            f"{'add the category to' if feature.categories else 'widen the range in'} the schema, or leave such rows out "
            "(--outside drop)"
        )

    def _legal(self, raw: Array, v: int) -> Booleans:
        return self.domain.take(np.array([v])).legal(raw[:, [v]])

    def labels(self, frame: pd.DataFrame) -> Integers:
        """True classes (N,) of a table: 1 where the label column holds `positive_label`, else 0 (numbers 0 .. K-1 as they are).

        Raises SchemaError without a label, DataError for a column that does not fit it.
        """
        if self.label is None:
            raise SchemaError('the schema names no label column; add label = "..." to its [model] section')
        with schema_rows.blamed(frame):
            return schema_rows.labels(frame, self.label, self.positive_label)
