"""The space of moves: every feature scaled to [0, 1], and the changes that it allows.

Numbers and ordered categories are scaled by their declared range, two-valued categories are 0 or 1, other categories one-hot, so
that all of them are equally far apart.
Reference: FGCE, appendix B (preprocessing) and tables XII to XVI (constraints on moves).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from verifair.errors import SchemaError
from verifair.schema.feature import Feature
from verifair.schema.file import Change
from verifair.schema.schema import Schema
from verifair.systems.fgce.settings import CHANGES

Custom = Callable[[Array, Array], Booleans]
"""(n, V) raw rows before and after a move -> (n,) whether it is allowed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureSpace:
    """schema: of the raw rows.   changes: (V) how each feature may move.   custom: one more rule for moves, on raw rows."""

    schema: Schema
    changes: tuple[Change, ...]
    custom: Custom | None = None

    @classmethod
    def of(cls, schema: Schema, changes: Mapping[str, Change] | None = None, custom: Custom | None = None) -> FeatureSpace:
        """Return the space with the schema's rules, overridden by `changes` (feature -> change). Raises SchemaError for unknown
        names."""
        if not isinstance(changes or {}, Mapping):
            raise SchemaError(f"changes: found {type(changes).__name__}; expected the change of each feature by its name")
        if custom is not None and not callable(custom):
            raise SchemaError(f"custom: found {type(custom).__name__}; expected a function of the rows before and after moves")
        given = {schema.index(name): change for name, change in (changes or {}).items()}
        for v, change in given.items():
            if change not in CHANGES:
                raise SchemaError(f"feature {schema.features[v].name!r}: change = {change!r}; use one of {', '.join(CHANGES)}")
        defaults = [feature.change or ("fixed" if feature.protected else "free") for feature in schema.features]
        changes_ = tuple(given.get(v, change) for v, change in enumerate(defaults))
        return cls(schema=schema, changes=changes_, custom=custom)

    @cached_property
    def feature_of(self) -> Integers:
        """(p,) the feature that each coordinate belongs to."""
        return np.repeat(np.arange(len(self.changes)), [self._width(v) for v in range(len(self.changes))])

    @property
    def largest_cost(self) -> float:
        """The largest distance between two rows: the square root of the number of features that vary, one-hot blocks counted
        twice."""
        return float(np.sqrt(len(self._scaled[0]) + 2 * len(self._one_hot[0])))

    @property
    def paper_cost(self) -> float:
        """Square root of the number of features: the paper's upper end of costs (a one-hot block counts once)."""
        return float(np.sqrt(len(self.changes)))

    def points(self, raw: Array) -> Array:
        """Return (N, p) coordinates of raw rows (N, V)."""
        coordinates = np.zeros((len(raw), len(self.feature_of)))
        single, position, low, high = self._scaled
        coordinates[:, position] = (raw[:, single] - low) / (high - low)
        one_hot, start, width = self._one_hot
        codes = np.clip(raw[:, one_hot], 0, width - 1).astype(np.int64)
        coordinates[np.arange(len(raw))[:, None], start + codes] = codes == raw[:, one_hot]
        return coordinates

    def changed(self, before: Array, after: Array) -> Booleans:
        """Return (n, V) True where a feature differs between raw rows."""
        return np.asarray(before != after)

    @cached_property
    def _scaled(self) -> tuple[Integers, Integers, Array, Array]:
        """The varying features with a single coordinate, its position, and their least and largest values."""
        ranges = [feature.range or (0.0, len(feature.categories or ()) - 1.0) for feature in self.schema.features]
        single = np.array([v for v, (low, high) in enumerate(ranges) if self._width(v) == 1 and high > low], dtype=np.int64)
        low, high = np.array(ranges, dtype=np.float64)[single].T
        return single, np.searchsorted(self.feature_of, single), low, high

    @cached_property
    def _one_hot(self) -> tuple[Integers, Integers, Integers]:
        """The features with several coordinates, the first of these, and their number."""
        widths = np.array([self._width(v) for v in range(len(self.changes))])
        hot = np.flatnonzero(widths > 1)
        return hot, np.searchsorted(self.feature_of, hot), widths[hot]

    def _width(self, v: int) -> int:
        feature = self.schema.features[v]
        return len(feature.categories or ()) if _unordered(feature, self.changes[v]) and len(feature.categories or ()) > 2 else 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Coordinates:
    """Coordinates of raw rows (N, V), computed when rows are asked for: those of all rows take several times the memory."""

    space: FeatureSpace
    raw: Array

    def __getitem__(self, rows: Integers | slice) -> Array:
        """Return (n, p) coordinates of rows."""
        return self.space.points(self.raw[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Moves:
    """The allowed moves, as arrays over the coordinates and the raw features.

    fixed: (p,) coordinates that must stay.   direction: (p,) +1 may only rise, -1 may only fall, 0 either.
    pairs: feature -> (C, C) True where one category may become another, if the schema lists this.   custom: see `FeatureSpace`.
    """

    fixed: Booleans
    direction: Integers
    pairs: Mapping[int, Booleans]
    custom: Custom | None

    @classmethod
    def of(cls, space: FeatureSpace) -> Moves:
        changes = np.array(space.changes)[space.feature_of]
        pairs = {
            v: _allowed_pairs(feature)
            for v, feature in enumerate(space.schema.features)
            if feature.moves is not None and space.changes[v] != "fixed"
        }
        direction = (changes == "increase").astype(np.int64) - (changes == "decrease")
        return cls(fixed=changes == "fixed", direction=direction, pairs=pairs, custom=space.custom)

    def allowed(self, before: Array, after: Array, raw_before: Array, raw_after: Array) -> Booleans:
        """Return (n, m) True where a point before (n, p) may become a point after (m, p); raw (n, V), (m, V).

        The caller separates points that differ in a fixed coordinate. `custom` is called last, and only for the remaining pairs.
        Raises SchemaError if `custom` does not answer for each of them.
        """
        is_allowed = np.ones((len(before), len(after)), dtype=bool)
        for c in np.flatnonzero(self.direction):
            signed_before, signed_after = before[:, c, None] * self.direction[c], after[None, :, c] * self.direction[c]
            is_allowed &= signed_after >= signed_before
        for v, table in self.pairs.items():
            is_allowed &= table[np.ix_(raw_before[:, v].astype(int), raw_after[:, v].astype(int))]
        if self.custom is not None:
            i, j = np.nonzero(is_allowed)
            answer = np.asarray(self.custom(raw_before[i], raw_after[j]))
            if answer.shape != i.shape:
                raise SchemaError(f"custom: answered {len(i)} moves by an array of shape {answer.shape}; expected ({len(i)},)")
            is_allowed[i, j] = answer.astype(bool)
        return is_allowed


def distance(a: Array, b: Array) -> Array:
    """Return (n,) L2 distance of points (n, p), always summed in the same order, so that comparisons with a threshold agree."""
    return np.asarray(np.sqrt(((a - b) ** 2).sum(axis=-1)))


def _unordered(feature: Feature, change: Change) -> bool:
    """Return True if a feature has no order. Changes up or down need an order, so a category with one of them has an order."""
    return feature.categories is not None and not feature.ordered and change not in ("increase", "decrease")


def _allowed_pairs(feature: Feature) -> Booleans:
    names = feature.categories or ()
    table = np.ones((len(names), len(names)), dtype=bool)
    for name, others in (feature.moves or {}).items():
        table[names.index(name)] = [other in others or other == name for other in names]
    return table
