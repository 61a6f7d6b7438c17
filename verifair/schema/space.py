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
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field

from encoders.domain import Domain
from encoders.network import Array
from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.schema.constraint import Constraint, forbidden, nothing_left
from verifair.schema.feature import Feature, repeated, text
from verifair.schema.spelling import nearest

FEATURES = BeforeValidator(lambda value: schema_file.sections(value, Feature, "feature"))
CONSTRAINTS = BeforeValidator(lambda value: schema_file.sections(value, Constraint, "constraint"))
LABEL = BeforeValidator(lambda value: None if value is None else text(value))


class InputSpace(schema_file.SchemaPart):
    """All features in network order, what counts as positive, and where the label stands in the data. Raises SchemaError.

    positive: the favourable decision: "logit > 0" (one logit), "class = 1" (a logit for each), or "class = 0" (of two classes).
    label: the data column of the true class.   positive_label: its favourable value; without one it numbers the classes 0, 1, ...
    constraints: which rows are not legal, whatever the ranges of their features say.
    """

    model_config = ConfigDict(ignored_types=(cached_property,))
    KNOWN: ClassVar = ("positive", "label", "positive_label", "outcomes")
    features: Annotated[tuple[Feature, ...], FEATURES] = Field(min_length=1)
    positive: Literal["logit > 0", "class = 1", "class = 0"] = "logit > 0"
    label: str | None = None
    positive_label: Annotated[str | None, LABEL] = None
    outcomes: tuple[str, str] = ("negative", "positive")
    constraints: Annotated[tuple[Constraint, ...], CONSTRAINTS] = ()

    def flaw(self) -> str | None:
        twice = repeated(feature.name for feature in self.features)
        if twice:
            return f"features named twice: {', '.join(twice)}; give each its own name"
        if self.label in [feature.source for feature in self.features]:
            return f"label {self.label!r} is also the column of a feature: the network would see the answer; drop one"
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
        """Read a schema from TOML text; `name` is what errors call it."""
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

    def index(self, name: str) -> int:
        """Position of a feature. Raises SchemaError with the closest name."""
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
            raise SchemaError(f"feature {name!r} is real-valued: its values cannot be listed; declare it integer or categorical")
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
