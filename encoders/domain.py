"""The domain: raw variables, their encoding as network inputs, the legal rows, and cuts of boxes.

A *raw variable* is one feature of the schema: a number in its own unit, or the index of a category. Boxes, lattices and
splits are in raw variables, where integers are exact. The network's inputs are float32 columns:

    number      column = float32((raw - offset) / scale)
    one-hot     columns = e_raw  (raw is the index of the category)

so the input of the network at a raw point is *defined* as that float32 vector, exactly the runtime's input. Rounding to
float32 is monotone, hence an interval of raw values maps into the interval of the rounded ends: boxes need no extra slack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers


class Batched:
    """Base of dataclasses whose fields are arrays with a common first axis: that of boxes, points or regions."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.__dataclass_fields__))))

    def take(self, index: Integers | Booleans | slice) -> Self:
        """Return some of the items."""
        return type(self)(**{name: getattr(self, name)[index] for name in self.__dataclass_fields__})

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return several batches as one, in their order."""
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True, eq=False)
class Forbidden:
    """The illegal rows: a union of F closed boxes of raw variables, infinite where a variable does not matter.

    lower, upper: (F, V). An implication "if sex = Male then relationship is not Wife" forbids the box sex = Male and
    relationship = Wife; a guardrail's rules forbid the boxes that they refuse.
    """

    lower: Array
    upper: Array

    def contain(self, lower: Array, upper: Array) -> Booleans:
        """Return (B,) True for raw boxes [lower, upper] (B, V) that lie in one forbidden box: none of their points is legal."""
        contained = np.zeros(len(lower), dtype=bool)
        for low, high in zip(self.lower, self.upper, strict=True):  # a handful of boxes: memory matters more than the loop
            v = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
            contained |= ((lower[:, v] >= low[v]) & (upper[:, v] <= high[v])).all(axis=1)
        return contained

    def common(self, lower: Array, upper: Array) -> Iterator[Array]:
        """Yield (B, V) for each forbidden box: widths of its intersections with raw boxes [lower, upper], negative if empty."""
        return (np.minimum(upper, high) - np.maximum(lower, low) for low, high in zip(self.lower, self.upper, strict=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class Domain:
    """V raw variables and the n network columns that they become.

    integer: (V,) the variable takes whole values only (always true for one-hot variables).
    lower, upper: (V,) its declared range, in raw units.
    offset, scale: (V,) of the affine map above, scale > 0; ignored for one-hot variables.
    start, width: (V,) first column, and number of columns: 1 for a number, the number of categories for one-hot.
    forbidden: whole rows that are illegal (None: every row within the ranges is legal).
    """

    integer: Booleans
    lower: Array
    upper: Array
    offset: Array
    scale: Array
    start: Integers
    one_hot: Booleans
    width: Integers
    forbidden: Forbidden | None = None

    @property
    def variables(self) -> int:
        return len(self.lower)

    @property
    def columns(self) -> int:
        return int(self.width.sum())

    def take(self, variables: Integers) -> Domain:
        """Return the domain of some of the variables, its columns packed in the given order. Forbidden boxes are left out, as they
        are about whole rows."""
        width = self.width[variables]
        return Domain(
            integer=self.integer[variables], lower=self.lower[variables], upper=self.upper[variables],
            offset=self.offset[variables], scale=self.scale[variables], start=np.cumsum(width) - width,
            one_hot=self.one_hot[variables], width=width,
        )

    def columns_of(self, variables: Integers) -> Integers:
        """Return the positions of the network columns of some variables, in their order."""
        blocks = [np.arange(self.start[v], self.start[v] + self.width[v]) for v in variables]
        return np.concatenate([np.empty(0, dtype=np.int64), *blocks])

    def encode(self, raw: Array) -> Array:
        """Return network inputs (B, n) of raw points (B, V): float64 arrays whose entries are float32 numbers."""
        x, number = np.zeros((len(raw), self.columns)), ~self.one_hot
        x[:, self.start[number]] = ((raw[:, number] - self.offset[number]) / self.scale[number]).astype(np.float32)
        rows, v = np.nonzero(self.one_hot & (raw >= 0) & (raw < self.width) & (raw == np.floor(raw)))
        x[rows, self.start[v] + raw[rows, v].astype(np.int64)] = 1.0
        return x

    def box(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return the network box (B, n), (B, n) that holds every input of a raw point in [lower, upper] (B, V).

        Exact for numbers (the ends are inputs themselves). A one-hot block becomes 0/1 intervals: sound, and exact as soon
        as one category is left.
        """
        low, high, number = np.empty((len(lower), self.columns)), np.empty((len(lower), self.columns)), ~self.one_hot
        for target, raw in ((low, lower), (high, upper)):
            target[:, self.start[number]] = ((raw[:, number] - self.offset[number]) / self.scale[number]).astype(np.float32)
        for v in np.flatnonzero(self.one_hot):
            block = slice(int(self.start[v]), int(self.start[v] + self.width[v]))
            index = np.arange(self.width[v])
            possible = (index >= lower[:, v, None]) & (index <= upper[:, v, None])
            low[:, block], high[:, block] = possible & (lower[:, v, None] == upper[:, v, None]), possible
        return low, high

    def within(self, raw: Array) -> Booleans:
        """Return (B,) True for raw points (B, V) inside the declared ranges, with whole numbers where they must be."""
        integral = ~self.integer | (raw == np.floor(raw))
        return np.asarray(((raw >= self.lower) & (raw <= self.upper) & integral).all(axis=1))

    def legal(self, raw: Array) -> Booleans:
        """Return (B,) True for raw points (B, V) that are legal rows: within the ranges and not forbidden."""
        return np.asarray(self.within(raw) & ~self.impossible(raw, raw))

    def middle(self, lower: Array, upper: Array) -> Array:
        """Return a raw point (B, V) in the middle of each raw box lower, upper (B, V), within the ranges; it is also the cut.

        In an interval with several whole numbers it is below the upper end. Requires whole ends of at most 2^53 where values are
        whole. NaN where an end is NaN, or both are infinite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            width = upper - lower
            middle = lower + width / 2
            if np.isinf(width).any():  # ends too far apart for float64
                middle = np.where(np.isinf(width), lower / 2 + upper / 2, middle)
        # Beyond 2^52 the middle of two neighbouring whole numbers rounds up: the cut has to stay below the upper end.
        return np.where(self.integer, np.minimum(np.floor(middle), np.maximum(upper - 1, lower)), middle)

    def divisible(self, lower: Array, upper: Array) -> Booleans:
        """Return (B, V) True for variables along which raw boxes can be cut: a real interval needs a float64 strictly inside. False
        where an end is NaN or infinite."""
        middle = self.middle(lower, upper)
        return np.asarray((middle < upper) & (middle + self.integer > lower))

    def halves(self, lower: Array, upper: Array, variable: npt.ArrayLike, cut: npt.ArrayLike) -> tuple[Array, Array]:
        """Return the ends (2 B, V), (2 B, V) of raw boxes cut along a variable (B,): all left halves, then all right ones.

        A real interval shares its cut; of whole numbers the right half begins at the next one.
        """
        index = (np.arange(len(lower)), np.asarray(variable))
        left, right = upper.copy(), lower.copy()
        left[index], right[index] = cut, np.where(self.integer[index[1]], np.asarray(cut) + 1, cut)
        return np.concatenate([lower, right]), np.concatenate([left, upper])

    def impossible(self, lower: Array, upper: Array) -> Booleans:
        """Return (B,) True for raw boxes without a legal row, as they lie in one forbidden box (see `Forbidden.contain`)."""
        return np.zeros(len(lower), dtype=bool) if self.forbidden is None else self.forbidden.contain(lower, upper)


@dataclass(frozen=True, kw_only=True, eq=False)
class Regions(Batched):
    """B raw boxes lower, upper (B, V) with signs: active, inactive (B, N) hidden neurons with a >= 0, with a <= 0."""

    lower: Array
    upper: Array
    active: Booleans
    inactive: Booleans

    @staticmethod
    def whole(lower: Array, upper: Array, neurons: int = 0) -> Regions:
        """Return one box (V,), (V,) without fixed signs."""
        free = np.zeros((1, neurons), dtype=bool)
        return Regions(lower=lower[None], upper=upper[None], active=free, inactive=free)

    def halves(self, domain: Domain, feature: Integers, cut: Array) -> Regions:
        """Return the halves of regions after splits (B,), given as in a `Tree`: all first halves, then all second ones."""
        joined, count = Regions.join([self, self]), len(self)
        box, sign = np.flatnonzero(feature >= 0), np.flatnonzero(feature < -1)
        index = np.concatenate([box, count + box])
        joined.lower[index], joined.upper[index] = domain.halves(self.lower[box], self.upper[box], feature[box], cut[box])
        joined.inactive[sign, -2 - feature[sign]] = joined.active[count + sign, -2 - feature[sign]] = True
        return joined
