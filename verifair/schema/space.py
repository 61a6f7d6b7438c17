"""The input space of a network: its features, their ranges and constraints, hand-written in TOML. Proofs are about it.

A feature is a *raw variable* (a number in its own unit, or a category); the order of the features is the order of the network's
input columns. See `encoders.domain.Domain` for how raw values become float32 inputs, `feature` for what a feature may be,
`constraint` for which rows are not legal, and `file` for the file format. `schema` adds what works with tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from encoders.arrays import Array
from encoders.decision import decided
from encoders.domain import Domain
from encoders.model import Model
from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.schema.constraint import Constraint, forbidden, nothing_left
from verifair.schema.feature import Feature, Word, repeated, text
from verifair.schema.outcome import PositiveRule
from verifair.schema.spelling import nearest

FEATURES = BeforeValidator(lambda value: schema_file.sections(value, Feature, "feature"))
CONSTRAINTS = BeforeValidator(lambda value: schema_file.sections(value, Constraint, "constraint"))
POSITIVE = AfterValidator(lambda value: str(PositiveRule.parse(value)))
CLASSES = BeforeValidator(lambda value: tuple(map(text, value)) if isinstance(value, (list, tuple)) else value)


class InputSpace(schema_file.SchemaPart):
    """Description of a model's inputs: features in network order, favourable decision, label, constraints. Raises SchemaError.

    positive: the favourable decision: "logit > 0" (one logit), "class = 1" (a logit for each), "value >= 600" ... (`outcome`).
    classes: names of the model's classes, in the order of its outputs.
    label: the data column of the true class.   positive_label: its favourable value (None: the column holds numbers or names of the
    classes, or the value that `positive` compares).
    constraints: combinations of values that are not legal, although each value is.
    """

    model_config = ConfigDict(ignored_types=(cached_property,))
    KNOWN: ClassVar = ("positive", "classes", "label", "positive_label", "outcomes")
    features: Annotated[tuple[Feature, ...], FEATURES] = Field(min_length=1)
    positive: Annotated[str, POSITIVE] = "logit > 0"
    classes: Annotated[tuple[str, ...], CLASSES] = ()
    label: str | None = None
    positive_label: Word = None
    outcomes: tuple[str, str] = ("negative", "positive")
    constraints: Annotated[tuple[Constraint, ...], CONSTRAINTS] = ()

    def flaw(self) -> str | None:
        if duplicates := repeated(feature.name for feature in self.features):
            return f"features named twice: {', '.join(duplicates)}; give each its own name"
        if self.label in [feature.source for feature in self.features]:
            return f"label {self.label!r} is also the column of a feature: the network would see the answer; drop one"
        if self.classes:
            if repeated(self.classes) or len(self.classes) < 2:
                return f"classes = {list(self.classes)}: expected each of the model's classes once, in the order of its outputs"
            try:
                PositiveRule.parse(self.positive).numbered(self.classes)
            except SchemaError as error:
                return str(error)
        try:
            if not nothing_left(self.domain):
                return None
        except SchemaError as error:
            return str(error)
        return "the constraints leave no row at all: each can be met, not all of them together; correct one of them"

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML schema. Raises SchemaError naming file, feature and remedy."""
        return cls.loads(schema_file.read(path), name=str(path))

    @classmethod
    def loads(cls, content: str, *, name: str = "schema") -> Self:
        """Read a schema from TOML text; `name` is its name in errors."""
        return cls.build(schema_file.parse(content, name), name=name)

    @classmethod
    def build(cls, content: Mapping[str, Any], *, name: str = "schema") -> Self:
        """Validate a mapping of the fields; raises SchemaError with one line a problem."""
        try:
            return cls.model_validate(content)
        except SchemaError as error:
            raise SchemaError(schema_file.with_name(error, name)) from None

    @cached_property
    def sha256(self) -> str:
        """Hash of the content: comments, order of keys, white space and fields left at their default do not count."""
        content = self.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    # The decision

    @property
    def outcome(self) -> PositiveRule:
        """The favourable decision. Raises SchemaError if it is given by a name that only the model knows: see `named`."""
        return PositiveRule.parse(self.positive).numbered(self.classes)

    def named(self, model: Model) -> Self:
        """Return the schema with the model's names for its classes if it lists none and needs them: `positive` uses one, or there
        are more than two."""
        needs_names = PositiveRule.parse(self.positive).unnumbered or model.whole.outputs > 2
        if self.classes or not needs_names or not model.classes:
            return self
        return self.changed(classes=model.classes)

    def spread(self, model: Model) -> Model:
        """Return the model as it was read, over all of the schema's columns. Raises SchemaError if it reads dropped ones."""
        pairs, columns, whole = zip(self.features, self.domain.start.tolist(), strict=True), self.domain.columns, model.whole
        dropped = [start + f.categories.index(f.dropped) for f, start in pairs if f.dropped is not None and f.categories]
        if dropped and whole.inputs == columns - len(dropped):
            return whole.with_columns(np.setdiff1d(np.arange(columns), dropped), columns)
        spans = ((at, len(feed.categories.get(n, (at,)))) for feed in whole.feeds for n, at in enumerate(feed.start.tolist()))
        if dropped and whole.inputs == columns and any(at <= column < at + width for at, width in spans for column in dropped):
            raise SchemaError("a column that the network takes is of a dropped category; describe every column, in its order")
        return whole

    def reads(self, model: Model) -> Model:
        """Return the model with its only output compared with the threshold of `positive`; several classes stay as they are.

        Raises SchemaError where `positive` does not fit the model.
        """
        decision, whole = self.outcome.read(model), self.spread(model)
        return whole if decision is None else decided(whole, decision)

    def judges(self, model: Model, *, odds: bool = False) -> Model:
        """Return the model with one margin (or one logit each of two classes) that is above 0 where decision 1 is made.

        odds: the margin is the log-odds of that decision, whose probability is asked about; decisions of several classes, and with
        thresholds, are then those of `judges` without odds. Raises SchemaError, and ModelError as `encoders.decision.decided` does.
        """
        decision, whole = self.outcome.judged(model, odds=odds), self.spread(model)
        return whole if decision is None else decided(whole, decision)

    def compares(self, model: Model) -> Model:
        """Return the model with a margin for each class but the first, above 0 if that class or a higher one is decided: two people
        get different decisions if one of these flips. For two classes, as `judges`."""
        decision = self.outcome.compared(model)
        return self.judges(model) if decision is None else decided(self.spread(model), decision)

    def changed(self, **fields: Any) -> Self:
        """Return the schema with other values of some fields. Raises SchemaError."""
        return type(self).model_validate({**{field: getattr(self, field) for field in type(self).model_fields}, **fields})

    def index(self, name: str) -> int:
        """Return the position of a feature. Raises SchemaError with the closest name."""
        names = [feature.name for feature in self.features]
        if name in names:
            return names.index(name)
        raise SchemaError(f"there is no feature {name!r} in the schema; {nearest(name, names)}")

    def __getitem__(self, name: str) -> Feature:
        return self.features[self.index(name)]

    def values(self, name: str) -> Array:
        """Return all legal raw values of a feature that has finitely many: category indices, or the integers of its range."""
        v = self.index(name)
        if self.features[v].kind == "real":
            raise SchemaError(f"feature {name!r} is real-valued, and its values cannot be listed; if whole, declare it integer")
        count = self.domain.upper[v] - self.domain.lower[v] + 1
        if count > 100_000:
            raise SchemaError(f"feature {name!r} has {count:.0f} values, too many to compare with each other; group them")
        return np.arange(self.domain.lower[v], self.domain.upper[v] + 1)

    def format(self, name: str, value: float) -> str:
        """Return a raw value in the schema's words."""
        word = self[name].word(value)
        return f"{word:g}" if isinstance(word, float) else str(word)

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
