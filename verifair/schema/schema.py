"""The schema in use: tables, networks and drafts, on top of the input space that proofs are about (`verifair.schema.space`).

`rows` reads tables, `network` checks that a network fits, `infer` makes drafts, and `writing` writes files.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import PrivateAttr

from encoders.arrays import Array, Booleans, Integers
from encoders.model import Model
from verifair.errors import DataError, SchemaError
from verifair.files import whole
from verifair.models.columns import names_of
from verifair.models.compare import named_columns, some_rows
from verifair.models.converters.missing import missing_categories
from verifair.models.objects import check_decides, package_of
from verifair.models.read import read
from verifair.notebook.shown import Shown
from verifair.schema import network as schema_network
from verifair.schema import rows as schema_rows
from verifair.schema.agreement import check_decisions
from verifair.schema.constraint import Constraint
from verifair.schema.drafts.column import missing, row_numbers
from verifair.schema.drafts.infer import (
    DraftWarning,
    check_asked,
    column_names,
    guessed_favourable,
    guesses,
    inferred,
    is_customary,
)
from verifair.schema.drafts.one_hot import gathered, spread
from verifair.schema.drafts.table import columns_of
from verifair.schema.feature import Feature, Scale
from verifair.schema.space import InputSpace
from verifair.schema.writing import toml

__all__ = ["Constraint", "Feature", "Scale", "Schema"]


class Schema(Shown, InputSpace):
    """Description of a model's inputs: features in network order, favourable decision, label, constraints. Raises SchemaError."""

    _count: int | None = PrivateAttr(default=None)
    """Number of the model's classes, once the schema is settled."""

    @classmethod
    def infer(
        cls, frame: pd.DataFrame, *, target: str, positive: Any = None, protected: Sequence[str] = (), model: Any = None,
    ) -> Schema:
        """Return a draft from a table, to be checked; `verifair schema infer` writes it with notes. Raises DataError.

        target: the label's column.   positive: the label of the favourable class, in the column's own type; or a rule, such as
        "value >= 600" for a regression model, or "class in [low, middle]" (`verifair.schema.outcome`).
        model: whatever `verifair.read` takes. If it takes the table's own columns, it gives their order, kinds and categories; if
        it takes a matrix of numbers, scaling and one-hot blocks are guessed from the table and its labels (`infer`).
        A DraftWarning names columns with missing values, and a favourable label that was guessed. Numbers that go with the label,
        and are not protected, are proposed as merit.
        """
        check_asked(frame, target=target, positive=positive)
        protected = column_names(protected, "protected")
        check_decides(model, positive)
        network = None if model is None else read(model, some_rows(frame).drop(columns=target, errors="ignore"))
        return cls.drafted(frame, target=target, positive=positive, protected=protected, model=model, network=network)

    @classmethod
    def drafted(
        cls, frame: pd.DataFrame, *, target: str, positive: Any, protected: Sequence[str], model: Any, network: Model | None,
    ) -> Schema:
        """Return the draft of `infer` for a model that was read already.   network: what `read` returned for it."""
        unscaled = package_of(model) is not None  # an object takes the table as it is
        fields = inferred(
            frame, target=target, positive=positive, protected=protected, network=network, unscaled=unscaled,
            encoded=missing_categories(model, named_columns(frame, names_of(model))) if unscaled else None,
        )  # fmt: skip
        drafted = cls.build(fields)
        if positive is None and drafted.positive_label is not None and not is_customary(frame[target]):
            warnings.warn(guessed_favourable(frame[target], drafted.positive_label), DraftWarning, stacklevel=3)
        if network is not None:
            check_decisions(model, network, drafted, frame)
            guessed = guesses(network, fields, frame, compared=model is not network)
            if guessed:
                warnings.warn("; ".join(guessed), DraftWarning, stacklevel=3)
        columns = [str(name) for name in frame.columns] if network is None else columns_of(network, frame, target)
        names = [feature.name for feature in drafted.features]
        numbers = {name: f"column {name!r} {note}; is the model to know it?" for name, note in row_numbers(frame, names).items()}
        absent = missing(frame, set(columns) - set(drafted.missing))
        for messages in (absent, numbers, gathered(frame, drafted.features), spread(frame, names)):
            if messages:
                warnings.warn("; ".join(messages.values()), DraftWarning, stacklevel=3)
        return drafted

    def dumps(self) -> str:
        """Return the schema as TOML text, the same for equal schemas; `loads` reads it."""
        return toml(self)

    def save(self, path: str | Path) -> None:
        with whole(Path(path)) as half:
            half.write_text(self.dumps(), encoding="utf-8", newline="\n")

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each feature: kind, values, unit, change, and whether it is protected."""
        records = [{"kind": f.kind, "values": ", ".join(f.categories) if f.categories else "{} to {}".format(*f.range or ("", "")),
                 "unit": f.unit, "change": f.change, "protected": f.protected} for f in self.features]
        return pd.DataFrame(records, index=pd.Index([f.name for f in self.features], name="feature"))

    # Names

    @property
    def protected_names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features if feature.protected)

    @property
    def good(self) -> int:
        """Return the favourable one of the two decisions (`PositiveRule.good`); for two classes, its number."""
        return self.outcome.good

    @property
    def class_names(self) -> tuple[str, str]:
        """Return the names of decision 0 and decision 1."""
        return (self.outcomes[1 - self.good], self.outcomes[self.good])

    @property
    def quantity(self) -> str:
        """Return the name of the number compared beside decisions: a probability (of decision 1, or the model's) or a value."""
        threshold = {"value": "value", "logit": "model's probability"}.get(self.outcome.of)
        return f'probability of "{self.class_names[1]}"' if threshold is None or self.outcome.plain else threshold

    def raw_value(self, name: str, value: Any) -> float:
        """Return one raw value from a number or a category name. Raises SchemaError for a value of another kind."""
        return self[name].raw_value(value)

    def decode(self, row: Iterable[float]) -> dict[str, Any]:
        """Return a raw row (V,) in the schema's words: category names, whole numbers as int."""
        return {feature.name: feature.word(value) for feature, value in zip(self.features, row, strict=True)}

    # Arrays

    def encode(self, raw: Array) -> Array:
        """Return network inputs (B, n) of raw rows (B, V)."""
        return self.domain.encode(raw)

    def inside(self, raw: Array) -> Booleans:
        """Return (B,) True for legal raw rows: in range, whole where they must be, and within the constraints."""
        return self.domain.legal(raw)

    def broken(self, raw: Array) -> dict[str, Booleans]:
        """Return constraint (by its name or number) -> (B,) True for raw rows (B, V) that break it."""
        return schema_rows.broken(self.constraints, self.features, raw)

    @property
    def columns_filled(self) -> list[str]:
        """Return the names of the table's columns that need a value in each row: those of the label, and of the features without a
        category for missing values."""
        return self._read_from(self.features)

    def facts(self, protected: Collection[str] = ()) -> list[str]:
        """Return those of these columns in which missing values are never filled in: of the label, of protected features, and of
        the features or other columns `protected`."""
        features = [f for f in self.features if f.protected or f.name in protected]
        return [*self._read_from(features), *(name for name in protected if name not in {f.name for f in self.features})]

    def _read_from(self, features: Sequence[Feature]) -> list[str]:
        """Return the names of the columns of these features and of the label that need a value."""
        blocks = [name for f in features for name in schema_rows.block_of(f)]
        return [*(f.source for f in features if f.missing is None), *blocks, *([] if self.label is None else [self.label])]

    @property
    def missing(self) -> dict[str, str]:
        """Return feature -> the category of rows with an empty cell, for features that have one."""
        return {feature.name: feature.missing for feature in self.features if feature.missing is not None}

    def forbidding(self, boxes: Sequence[Mapping[str, Any]], name: str) -> Schema:
        """Return the schema with one more constraint for each of `boxes` (feature -> value, list of values, or {"low": ..., "high":
        ...}): rows that meet all conditions of a box are forbidden, as a guardrail refuses them. Raises SchemaError."""
        names = [name] if len(boxes) == 1 else [f"{name} {k}" for k in range(1, len(boxes) + 1)]
        added = [Constraint(name=label, never=box) for label, box in zip(names, boxes, strict=True)]
        return self.changed(constraints=(*self.constraints, *added))

    def steps(self, still: Sequence[str], *, needed: bool = True) -> Array:
        """Return (V,) the unit of every feature that moves in PBA, 0 for the others.

        Numbers with a unit move, except those in `still`, protected ones and those with change = "fixed". Raises SchemaError if
        nothing would move and that is needed, as for every delta but 0.
        """
        moves = [f.numeric and f.change != "fixed" and f.name not in still and not f.protected for f in self.features]
        steps = np.array([float(f.unit or 0.0) if moving else 0.0 for f, moving in zip(self.features, moves, strict=True)])
        if needed and not steps.any():
            movable = ", ".join(f.name for f, moving in zip(self.features, moves, strict=True) if moving)
            raise SchemaError(
                f"delta counts units, but no feature that may move has one ({movable or 'no number is free to move'}); add "
                "unit = ... (one perturbation step, in the feature's own unit) to each feature that delta is to move"
            )
        return steps

    def check_network(self, network: Model) -> None:
        """Raise SchemaError unless the schema's columns and outcome fit the network."""
        schema_network.check(self.features, self.domain, self.outcome, self.positive_label, network)
        if self.classes and len(self.classes) != max(2, network.outputs):
            raise SchemaError(
                f"classes names {len(self.classes)}, the model has {max(2, network.outputs)}; name all, in the order of its outputs"
            )
        numbers = tuple(map(str, range(len(network.classes))))  # no names: the schema may give them
        if self.classes and network.classes not in ((), numbers, self.classes):
            raise SchemaError(
                f"classes = {list(self.classes)}, but the model calls its classes {', '.join(network.classes)}, in this order; "
                "correct the schema, or leave classes out"
            )

    def settled(self, model: Model) -> tuple[Model, Schema]:
        """Return the model with the schema's outcome as its decision (see `reads`), and the schema with the model's class names.

        Every question, system and estimator calls this first. Raises SchemaError unless the schema's columns and outcome fit.
        """
        schema = self.named(model)
        schema.check_network(schema.spread(model))
        schema = schema.model_copy()
        schema._count = max(2, model.whole.outputs)
        return schema.reads(model), schema

    # Tables

    def raw(self, frame: pd.DataFrame, *, outside: Literal["error", "keep"] = "error") -> Array:
        """Return the raw rows (N, V) of a table. Raises DataError naming file, feature, row, value and remedy.

        outside: "error" refuses values outside the declared ranges, "keep" keeps them (`inside` finds them).
        """
        with schema_rows.blamed(frame):
            raw = np.column_stack([schema_rows.raw_column(frame, feature) for feature in self.features])
            if outside == "error" and not self.inside(raw).all():
                self._raise_outside(raw, frame.index)
            return raw

    def with_missing(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table with the category's word in empty cells that stand for one, for code that takes no schema."""
        word_of = {f.source: f.missing for f in self.features if f.missing is not None and f.source in frame.columns}
        return frame.assign(**{name: frame[name].astype(object).where(frame[name].notna(), word) for name, word in word_of.items()})

    def fitting(self, frame: pd.DataFrame) -> Booleans:
        """Return (N,) True for legal rows of a table; an unknown category is not legal.

        Raises DataError for a missing value, or for text where a number is expected.
        """
        with schema_rows.blamed(frame):
            return self.inside(np.column_stack([schema_rows.raw_column(frame, f, unknown="nan") for f in self.features]))

    def _raise_outside(self, raw: Array, rows: pd.Index) -> None:
        v = next((v for v in range(len(self.features)) if not self._legal(raw, v).all()), None)
        if v is None:
            raise DataError(schema_rows.violations(self.constraints, self.features, raw, rows))
        feature, bad = self.features[v], np.flatnonzero(~self._legal(raw, v))
        value, low, high = raw[bad[0], v], self.domain.lower[v], self.domain.upper[v]
        if feature.categories is not None:
            offset, scale = feature.affine  # the table's values, and the permitted ones, are codes
            value, low, high = (round((index - offset) / scale) for index in (value, low, high))
        raise DataError(
            f"feature {feature.name!r}: {len(bad)} {'row lies' if len(bad) == 1 else 'rows lie'} outside the declared "
            f"{'codes' if feature.categories else 'range'} {low:.10g} .. {high:.10g}, first row {rows[bad[0]]} with {value:.10g}; "
            f"{'add the category to' if feature.categories else 'widen the range in'} the schema, or leave such rows out "
            f"({schema_rows.LEAVE_OUT})"
        )

    def _legal(self, raw: Array, v: int) -> Booleans:
        return self.domain.take(np.array([v])).legal(raw[:, [v]])

    def labels(self, frame: pd.DataFrame, *, names: Collection[str] | None = None) -> Integers:
        """Return the true classes (N,) of a table: `good` if the label is `positive_label`, or a value that `positive` calls
        favourable, else the other class; without a rule for labels, the number of the class that the label names.

        names: names of the label in the whole table (`label_names`), if the frame is a chunk of it.
        Raises SchemaError without a label, DataError for a column that does not fit it.
        """
        label = self._label
        with schema_rows.blamed(frame):
            if self._valued:
                labels = self.outcome.reached(schema_rows.label_values(frame, label)).astype(np.int64)
            else:
                labels = schema_rows.labels(
                    frame, label, self.positive_label, self.classes, count=self._count or len(self.classes) or None, names=names
                )
                if self.positive_label is None:
                    return labels
        return labels if self.good else 1 - labels

    def label_names(self, chunks: Iterable[pd.DataFrame]) -> Collection[str] | None:
        """Return all names of the label in a table that comes in chunks, for `labels`; None if the label is a number compared
        with a threshold. Raises as `labels` does."""
        label = self._label
        if self._valued:
            return None
        names: set[str] = set()
        for chunk in chunks:
            with schema_rows.blamed(chunk):
                names |= schema_rows.label_names(chunk, label)
        return names

    @property
    def _label(self) -> str:
        if self.label is None:
            raise SchemaError('the schema names no label column; add label = "..." to its [model] section')
        return self.label

    @property
    def _valued(self) -> bool:
        """True if the label is a number that is compared with a threshold."""
        return self.positive_label is None and self.outcome.of == "value"

    def favoured(self, frame: pd.DataFrame, *, names: Collection[str] | None = None) -> Booleans:
        """Return (N,) True if the true class is favourable.   names, errors: as in `labels`."""
        return self.outcome.favourable(self.labels(frame, names=names))
