"""The share of a box where nobody is treated differently: what is counted, and what an affine form of every copy shows of a cell.

A point x of the box without the protected features is *fair* where no decision flips between any two compared combinations of the
protected values, *unfair* otherwise. Cells are boxes of such points. Whole features weigh by their values, real ones by width.

With g_k(x) = value_k + slope_k . (x - middle) +- radius_k over a cell and a common direction a, the mean of the slopes over the
columns of whole numbers, every copy lies in  a . (x - middle) + [low_k, high_k].  a . (x - middle) is rounded, feature by feature,
to t whole units plus a remainder within known ends, so that the number of points at each t is a product of polynomials, exactly:

    fair where all copies are positive (t above one threshold) or none is (t below another),
    unfair where one of a compared pair is surely positive and the other one surely not (t in between).

Counts are whole numbers: float64 holds them up to 2^53, beyond that Python's own integers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from encoders.domain import Batched, Domain
from encoders.exact.dyadic import exact
from encoders.network import Array, Booleans, Integers, Network

SLACK = 2.0**-40
"""Of the sizes met in a cell: far more than the sums over its columns can lose."""
BINS = ((1e-3, 2048), (1e-5, 1024), (0.0, 512))
"""Units that a cell's direction is rounded to, by the cell's share of the box."""
MOST = 1 << 16
"""Values of a feature in a cell that are listed; a longer one is no part of the direction until it is cut."""
FEW = 12
"""Values of a feature that are added one by one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyShapes(Batched):
    """Affine forms of all K copies over B cells: slope (B, K, n_0), value and radius (B, K)."""

    slope: Array
    value: Array
    radius: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted:
    """Points of one cell, or of several: exact numbers, weighed by the widths of real features."""

    fair: Fraction
    unfair: Fraction

    def __add__(self, other: Counted) -> Counted:
        return Counted(fair=self.fair + other.fair, unfair=self.unfair + other.unfair)


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareQuestion:
    """A box lower, upper (V,), its protected positions `index`, and all K combinations of their values (K, p); compared: (K, K)
    which of them are; strict: whether a margin of 0 counts on neither side; slack: of the sizes met, what sums may lose."""

    domain: Domain
    lower: Array
    upper: Array
    index: tuple[int, ...]
    values: Array
    compared: Booleans
    strict: bool
    slack: float = SLACK

    @classmethod
    def of(cls, domain: Domain, lower: Array, upper: Array, index: Sequence[int], *, differ: str, strict: bool) -> ShareQuestion:
        """Return the question about a box of a domain without forbidden rows."""
        values = np.array(list(product(*(np.arange(lower[v], upper[v] + 1) for v in index))), dtype=np.float64)
        apart = values[:, None] != values[None]
        low, high = lower.copy(), upper.copy()
        low[list(index)] = high[list(index)] = values[0]
        compared = apart.all(axis=2) if differ == "all" else apart.any(axis=2)
        return cls(domain=domain, lower=low, upper=high, index=tuple(index), values=values, compared=compared, strict=strict)

    @cached_property
    def columns(self) -> Integers:
        """The network columns of the features that are counted along a direction."""
        return self.domain.columns_of(self.counted)

    @cached_property
    def counted(self) -> Integers:
        """The features that are counted along a direction: whole numbers and categories, not protected."""
        free = np.ones(self.domain.variables, dtype=bool)
        free[list(self.index)] = False
        return np.flatnonzero(self.domain.integer & free)

    @cached_property
    def total(self) -> Fraction:
        return self.volume(self.lower, self.upper)

    def rows(self, raw: Array) -> Array:
        """Return all copies' rows (B K, V) of raw points (B, V)."""
        rows = np.repeat(raw, len(self.values), axis=0)
        rows[:, list(self.index)] = np.tile(self.values, (len(raw), 1))
        return rows

    def volume(self, lower: Array, upper: Array) -> Fraction:
        """Return how much one cell (V,) holds: its values, times the widths of real features that the box leaves a width."""
        whole = self.domain.integer
        points = prod(int(b) - int(a) + 1 for a, b in zip(lower[whole].tolist(), upper[whole].tolist(), strict=True))
        return self._widths(lower, upper) * points

    def _widths(self, lower: Array, upper: Array) -> Fraction:
        """Return the volume of a cell's real features that the box leaves a width."""
        return prod((Fraction(upper[v]) - Fraction(lower[v]) for v in self._wide), start=Fraction(1))

    @cached_property
    def _wide(self) -> list[int]:
        return np.flatnonzero(~self.domain.integer & (self.upper > self.lower)).tolist()

    def shown(self, shapes: CopyShapes, radius: Array) -> tuple[Booleans, Booleans]:
        """Return which cells (B,) are fair throughout, and which are unfair throughout. radius: (B, n_0) of the network box."""
        swing = (np.abs(shapes.slope) @ radius[:, :, None])[:, :, 0] + shapes.radius
        slack = self.slack * (swing + np.abs(shapes.value))
        low, high = shapes.value - swing - slack, shapes.value + swing + slack
        fair = np.asarray((low > 0).all(axis=1) | (high <= 0).all(axis=1))
        return fair, np.asarray(((low > 0)[:, :, None] & self.negative(high)[:, None] & self.compared).any(axis=(1, 2)))

    def negative(self, high: Array | Integers) -> Booleans:
        """Return where margins of at most `high` surely count as not positive."""
        return np.asarray(high < 0 if self.strict else high <= 0)

    def decided(self, network: Network, margin: Array, raw: Array) -> Booleans:
        """Return (B,) whether raw points (B, V) are fair, in exact arithmetic. Raises OverflowError for absurd weights."""
        logits = network.forward(exact(self.domain.encode(self.rows(raw))))
        terms = exact(np.broadcast_to(margin, (len(raw) * len(self.values), len(margin)))) * logits
        total = terms[:, 0]
        for k in range(1, len(margin)):
            total = total + terms[:, k]
        sign = np.asarray(total.sign).reshape(len(raw), -1)
        flips = (sign > 0)[:, :, None] & self.negative(sign)[:, None] & self.compared
        return np.asarray(~flips.any(axis=(1, 2)))

    def count(self, lower: Array, upper: Array, shapes: CopyShapes) -> Counted:
        """Return what the forms of one cell (V,) show of its points, where it is neither fair nor unfair throughout."""
        low, high = (end[0] for end in self.domain.box(lower[None], upper[None]))
        middle, radius = (low + high) / 2, (high - low) / 2
        slope, value = shapes.slope[0], shapes.value[0]
        direction = np.zeros(slope.shape[1])
        many = np.array([int(upper[v]) - int(lower[v]) + 1 for v in self.counted], dtype=object)
        listed = self.counted[(many > 1) & (many <= MOST)]
        columns = self.domain.columns_of(listed)
        direction[columns] = slope[:, columns].mean(axis=0)
        along = [self._along(v, direction, middle, lower, upper) for v in listed]
        span = float(sum(one.max() - one.min() for one in along))
        size = span + float(np.abs(slope).max(axis=0) @ (radius + np.abs(middle))) + float((np.abs(value) + shapes.radius[0]).max())
        if not (0 < span < np.inf and np.isfinite(size)):
            return Counted(fair=Fraction(0), unfair=Fraction(0))
        every, widths = prod(map(len, along)), self._widths(lower, upper) * prod(int(n) for n in many if n > MOST)
        if not widths:  # a cell cut off at the end of a real feature
            return Counted(fair=Fraction(0), unfair=Fraction(0))
        share = every / float(self.total / widths)
        unit = span / next(bins for least, bins in BINS if share >= least)
        points, least, rest = np.ones(1, dtype=np.float64 if every < 2**53 else object), 0.0, 0.0
        for one in sorted(along, key=lambda one: float(one.max() - one.min())):
            steps = np.rint((one - one.min()) / unit)
            rounded = one - unit * steps
            least, rest = least + float(rounded.min()), rest + float(rounded.max())
            points = _product(points, steps.astype(np.int64))
        apart = (np.abs(slope - direction) @ radius) + shapes.radius[0]
        slack = self.slack * size
        line = unit * np.arange(len(points))
        lowest, highest = value - apart + least - slack, value + apart + rest + slack
        fair = points[(line + lowest.min() > 0) | (line + highest.max() <= 0)].sum()
        pairs = np.where(self.compared, lowest[:, None] - highest[None], -np.inf)
        i, j = np.unravel_index(int(pairs.argmax()), pairs.shape)
        unfair = points[(line + lowest[i] > 0) & self.negative(line + highest[j])].sum() if pairs[i, j] > 0 else 0
        return Counted(fair=widths * int(fair), unfair=widths * int(unfair))

    def _along(self, v: int, direction: Array, middle: Array, lower: Array, upper: Array) -> Array:
        """Return what each value of feature v in a cell adds to  direction . (x - middle)."""
        values, block = np.arange(lower[v], upper[v] + 1), slice(self.domain.start[v], self.domain.start[v] + self.domain.width[v])
        if self.domain.one_hot[v]:
            return np.asarray(direction[block][values.astype(np.int64)] - direction[block] @ middle[block])
        inputs = ((values - self.domain.offset[v]) / self.domain.scale[v]).astype(np.float32)
        return np.asarray(direction[block] * (inputs.astype(np.float64) - middle[block]))


def _product(points: Array, steps: Integers) -> Array:
    """Return the numbers of points at each t when a feature whose values add `steps` joins: a product of polynomials."""
    if len(steps) > FEW and points.dtype != object:
        return np.convolve(points, np.bincount(steps).astype(np.float64))
    out = np.zeros(len(points) + int(steps.max()), dtype=points.dtype)
    number = np.bincount(steps)
    for k in np.flatnonzero(number).tolist():
        out[k : k + len(points)] += points * int(number[k])
    return out
