"""The share of a box where nobody is treated differently: its definition, and counts of points by planes under and over all copies.

A point x of the box without the protected features is *fair* where no decision flips between any two compared combinations of the
protected values, *unfair* otherwise. Cells are boxes of such points. Whole features weigh by their values, real ones by width.
Combinations that the schema forbids are compared with nothing; points without any that are compared are not counted.

Every copy lies above one plane and below another one, value + slope . (x - middle). With a the mean of the lower planes' slopes in
the columns of whole numbers, the copies lie above  a . (x - middle) + least_k,  and likewise below  b . (x - middle) + most_k.
A cell is fair as a whole where no compared pair can flip. Points of others are counted by a . (x - middle) and b . (x - middle):

    fair where all copies are positive (the smallest least_k) or none is (the largest most_k),
    unfair, for a compared pair i, j: at least those where i is surely positive, less those where j may be.

The combinations of a few features are listed (at most MEET). What each other one adds is rounded to t whole units plus a remainder
within known ends, so that the number of their points at each t is a product of polynomials.

Counts are whole numbers: float64 holds them up to 2^53, beyond that Python's own integers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Batched, Domain
from encoders.exact.dyadic import exact
from encoders.model import Model

Numbers = npt.NDArray[np.object_]
"""Exact numbers: integers, or fractions."""
SLACK = 2.0**-40
"""Allowance for rounding, relative to the sizes in a cell: far more than sums over its columns can be off."""
BINS, FINE = (32, 1024), 8
"""Least and most units into which the range of unlisted features is divided, and the gap of the planes over all their roundings."""
MEET = 128
"""Combinations of values of a cell that are listed at most."""
MOST = 1 << 16
"""The most values of a feature in a cell; a feature with more is left out of the direction until it is cut."""
SHORT = 32
"""Coefficients of a polynomial up to which many products are made at once."""
FAR = 2
"""Points are counted if the border lies within this multiple of the norm of direction * radius from the middle."""
LARGEST = 1e30
"""Cells with sizes above it, or below its inverse, are not counted."""
CELLS, VALUES = 64, 1 << 17
"""Cells, and values of their features, that are counted at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Planes(Batched):
    """Planes under, or over, all K copies over B cells: slope (B, K, n_0), value (B, K), infinite where nothing is known."""

    slope: Array
    value: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted(Batched):
    """Points of B cells: exact numbers (B,), weighted by the widths of real features. volume: 0 where no copies are compared.
    whole: True for cells that are decided as a whole."""

    fair: Numbers
    unfair: Numbers
    volume: Numbers
    whole: Booleans


def swing(domain: Domain, slope: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the least and the largest (B, m) of  slope . (x - middle)  over the inputs x in network boxes low, high (B, n), up to
    rounding errors. slope: (B, m, n). In a one-hot block x is one of the categories that are left."""
    middle, category = (low + high) / 2, domain.columns_of(np.flatnonzero(domain.one_hot))
    width = (high - low) / 2
    width[:, category] = 0.0
    upper = (np.abs(slope) @ width[:, :, None])[:, :, 0]
    lower = -upper
    for v in np.flatnonzero(domain.one_hot):
        block = slice(int(domain.start[v]), int(domain.start[v] + domain.width[v]))
        block_slopes, possible = slope[:, :, block], high[:, None, block] > 0
        base = (block_slopes @ middle[:, block, None])[:, :, 0]
        lower += np.where(possible, block_slopes, np.inf).min(axis=2) - base
        upper += np.where(possible, block_slopes, -np.inf).max(axis=2) - base
    return lower, upper


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareQuestion:
    """A box lower, upper (V,), its protected positions `index`, and all K combinations of their values (K, p); compared: (K, K)
    True for compared pairs; strict: a margin of 0 counts on neither side; slack: allowance for rounding, relative to sizes."""

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
        """Return the question about a box."""
        values = np.array(list(product(*(np.arange(lower[v], upper[v] + 1) for v in index))), dtype=np.float64)
        differs = values[:, None] != values[None]
        low, high = lower.copy(), upper.copy()
        low[list(index)] = high[list(index)] = values[0]
        compared = differs.all(axis=2) if differ == "all" else differs.any(axis=2)
        return cls(domain=domain, lower=low, upper=high, index=tuple(index), values=values, compared=compared, strict=strict)

    @cached_property
    def owner(self) -> Array:
        """(n_0, V) 1 where the network column belongs to the feature, else 0."""
        width, start = self.domain.width, self.domain.start
        column = np.arange(self.domain.columns)[:, None]
        return ((column >= start) & (column < start + width)).astype(np.float64)

    def rows(self, raw: Array) -> Array:
        """Return all copies' rows (B K, V) of raw points (B, V)."""
        rows = np.repeat(raw, len(self.values), axis=0)
        rows[:, list(self.index)] = np.tile(self.values, (len(raw), 1))
        return rows

    def boxes(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return the network boxes (B K, n_0) of all copies of cells (B, V)."""
        return self.domain.box(self.rows(lower), self.rows(upper))

    def lower_ends(self, lower: Array, upper: Array) -> Array:
        """Return the lower ends (B, V) of cells of a tree ensemble. Where a real feature has a width, this is the float64 after its
        end: a threshold belongs to the cell below it, and a single number has no width."""
        return np.where(~self.domain.integer & (lower < upper), np.nextafter(lower, np.inf), lower)

    def volumes(self, lower: Array, upper: Array) -> Numbers:
        """Return (B,) the volumes of cells (B, V): numbers of values, times widths of real features that have one in the box."""
        integer, real = self.domain.integer, np.flatnonzero(~self.domain.integer & (self.upper > self.lower))
        volume = _products(lower[:, integer], upper[:, integer])
        for v in real.tolist():
            volume = volume * [Fraction(b) - Fraction(a) for a, b in zip(lower[:, v].tolist(), upper[:, v].tolist(), strict=True)]
        return volume

    def comparisons(self, lower: Array, upper: Array) -> tuple[Booleans, Booleans]:
        """Return (B, K, K) True for copies that are compared in cells (B, V), and (B,) True if perhaps only at some points."""
        low, high = self.rows(lower), self.rows(upper)
        legal = ~self.domain.impossible(low, high).reshape(len(lower), len(self.values))
        affected = np.zeros_like(legal)
        for common in () if self.domain.forbidden is None else self.domain.forbidden.common(low, high):
            affected |= ((common > 0) | ((common == 0) & (self.domain.integer | (low == high)))).all(axis=1).reshape(affected.shape)
        return self.compared & legal[:, :, None] & legal[:, None], np.asarray((affected & legal).any(axis=1))

    def decided(self, network: Model, raw: Array, pairs: Booleans) -> Booleans:
        """Return (B,) True for raw points (B, V) that are fair, in exact arithmetic. Raises OverflowError for absurd weights."""
        logits = network.forward(exact(self.domain.encode(self.rows(raw))))
        margin = logits[:, 0] if network.outputs == 1 else logits[:, 1] - logits[:, 0]
        sign = margin.sign.reshape(len(raw), len(self.values))
        flips = (sign > 0)[:, :, None] & (sign < 0 if self.strict else sign <= 0)[:, None] & pairs
        return np.asarray(~flips.any(axis=(1, 2)))

    def counted(
        self, network: Model, lower: Array, upper: Array, under: tuple[Array, Array], over: tuple[Array, Array]
    ) -> Counted:
        """Return the points of cells (B, V) that planes under and over copies decide: slopes (B K, n_0) and values (B K,)."""
        shape = len(lower), len(self.values)
        planes = [Planes(slope=slope.reshape(*shape, -1), value=value.reshape(shape)) for slope, value in (under, over)]
        pairs, mixed = self.comparisons(lower, upper)
        outside = ~pairs.any(axis=(1, 2))
        fair, unfair = (mask & ~mixed & ~outside for mask in self._throughout(lower, upper, planes, pairs))
        low, high = self.domain.box(lower, upper)
        point = np.flatnonzero((low == high).all(axis=1) & ~fair & ~unfair & ~mixed & ~outside)
        if len(point):
            settled = self.decided(network, lower[point], pairs[point])
            fair[point], unfair[point] = settled, ~settled
        volume, whole = np.where(outside, 0, self.volumes(lower, upper)), fair | unfair | outside
        sloped = np.any([plane.slope.any(axis=(1, 2)) for plane in planes], axis=0)
        count, rest = np.where([fair, unfair], volume, 0), np.flatnonzero(~whole & ~mixed & sloped)
        count[:, rest] = self._partly(lower[rest], upper[rest], [plane.take(rest) for plane in planes], volume[rest], pairs[rest])
        return Counted(fair=count[0], unfair=count[1], volume=volume, whole=whole)

    def _throughout(self, lower: Array, upper: Array, planes: list[Planes], pairs: Booleans) -> tuple[Booleans, Booleans]:
        """Return (B,) True for cells that are fair throughout, and (B,) True for cells that are unfair throughout."""
        low, high = self.domain.box(lower, upper)
        ends = []
        for side, plane in enumerate(planes):
            slack = self.slack * ((np.abs(plane.slope) @ (high - low)[:, :, None])[:, :, 0] + np.abs(plane.value))
            ends.append(plane.value + swing(self.domain, plane.slope, low, high)[side] + (2 * side - 1) * slack)
        g_low, g_high = ends
        positive, negative = g_low > 0, g_high < 0 if self.strict else g_high <= 0
        never = [g_low >= 0 if self.strict else positive, g_high <= 0]  # negative; positive
        fair = (~pairs | never[1][:, :, None] | never[0][:, None]).all(axis=(1, 2))
        return np.asarray(fair), np.asarray((positive[:, :, None] & negative[:, None] & pairs).any(axis=(1, 2)))

    def _partly(self, lower: Array, upper: Array, planes: list[Planes], volume: Numbers, pairs: Booleans) -> Numbers:
        """Return (2, B) the numbers of points of cells that are shown to be fair, and unfair."""
        low, high = self.domain.box(lower, upper)
        middle, radius = (low + high) / 2, (high - low) / 2
        many = np.where(self.domain.integer & (upper - lower < MOST), upper - lower + 1, 1)
        counts = (many > 1) @ self.owner.T > 0
        size = np.zeros(len(lower))
        directions, ends, far = [], [], []
        for side, plane in enumerate(planes):
            reach = (np.abs(plane.slope).max(axis=1) * (radius + np.abs(middle))).sum(axis=1)
            size = np.maximum(size, reach + np.abs(plane.value).max(axis=1))
            mean = np.where(counts & (size < LARGEST)[:, None], plane.slope.mean(axis=1), 0.0)
            direction = mean.astype(np.float32).astype(np.float64)  # the same for slopes that differ by rounding
            directions.append(direction)
            ends.append(plane.value + swing(self.domain, plane.slope - direction[:, None], low, high)[side])
            far.append(FAR * np.sqrt(((direction * radius) ** 2).sum(axis=1)))
        g_low, g_high = ends
        finite = (size > 1 / LARGEST) & (size < LARGEST)
        difference = np.where(pairs, g_low[:, :, None] - g_high[:, None], -np.inf).reshape(len(lower), len(self.values) ** 2)
        (i, j), index = np.divmod(difference.argmax(axis=1), len(self.values)), np.arange(len(lower))
        separated, compared = finite & (difference.max(axis=1) > 0), pairs.any(axis=2)
        lowest, highest = np.where(compared, g_low, np.inf).min(axis=1), np.where(compared, g_high, -np.inf).max(axis=1)
        gap = (g_high - g_low).max(axis=1)
        total = _products(np.ones_like(many), many)
        points = np.stack([np.zeros((len(lower), 2), dtype=object), np.repeat(total[:, None], 2, axis=1)], axis=1)
        terms = np.stack([lowest, g_low[index, i], highest, g_high[index, j]], axis=1).reshape(-1, 2, 2)
        strips = _Strips(
            cell=np.arange(len(lower)), lower=lower, many=many.astype(np.int64), direction=directions[0], middle=middle, ends=terms,
            gap=gap, size=size,
        )
        under, over = (finite & (relevant | separated) for relevant in (lowest + far[0] > 0, highest - far[1] < 0))
        equal = (directions[0] == directions[1]).all(axis=1)
        longest = np.where(many.max(axis=1, initial=1) > MEET, many.max(axis=1, initial=1), 0)
        jobs = (equal & (under | over), 0, (0, 1)), (~equal & under, 0, (0,)), (~equal & over, 1, (1,))
        for mask, side, sides in jobs:
            direction, cells = directions[side], np.flatnonzero(mask)
            units = (np.abs(direction) * radius).sum(axis=1) / gap
            left = replace(strips, direction=direction).take(cells[np.lexsort((units[cells], longest[cells]))])
            while len(left):
                step = int(np.clip(VALUES // left.many[:CELLS].max(), 1, CELLS))
                part, left = left.take(slice(0, step)), left.take(slice(step, None))
                points[part.cell[:, None], sides] = self._above(part, sides)
        fair = points[:, 0, 0] + total - points[:, 1, 0]
        unfair = np.where(separated, np.maximum(points[:, 0, 1] - points[:, 1, 1], 0), 0)
        weight = np.array([1 if a == b else Fraction(a) / b for a, b in zip(volume, total, strict=True)], dtype=object)
        return np.array([fair * weight, unfair * weight])

    def _above(self, strips: _Strips, sides: tuple[int, ...]) -> Numbers:
        """Return (B, sides, 2) numbers of points with  direction . (x - middle) + ends > 0: at least for side 0, at most for 1."""
        sums = _Sums.of(self, strips)
        slack = self.slack * (strips.size + sums.span)
        shifts = sums.least - slack, sums.most + slack
        counts = [[sums.above(strips.ends[:, side, k] + shifts[side]).sum(axis=1) for k in (0, 1)] for side in sides]
        return np.asarray(np.frompyfunc(int, 1, 1)(np.array(counts))).transpose(2, 0, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Strips(Batched):
    """B cells in which the sign of  direction . (x - middle) + ends  (B, 2, 2) is counted: two planes under copies, two over them.

    cell: (B,) their numbers.   many: (B, V) numbers of values of the features along the direction, 1 for others.   gap: (B,) the
    largest between the planes.   size: (B,) of the terms.
    """

    cell: Integers
    lower: Array
    many: Integers
    direction: Array
    middle: Array
    ends: Array
    gap: Array
    size: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """The distribution of  a . (x - middle)  over the points of B cells.

    sums, inside: (B, M) the sums over those features whose combinations are listed, and True for entries that exist.
    suffix: (T + 1, B) numbers of points of the other features at t units or more.   unit: (B,).
    least, most: (B,) bounds of the other features' remainders beside whole units.   span: (B,) over all features.
    """

    sums: Array
    inside: Booleans
    suffix: npt.NDArray[Any]
    unit: Array
    least: Array
    most: Array
    span: Array

    @classmethod
    def of(cls, question: ShareQuestion, strips: _Strips) -> _Sums:
        many, count, (cell, feature) = strips.many, len(strips), np.nonzero(strips.many > 1)
        n = many[cell, feature]
        first, pair = np.cumsum(n) - n, np.repeat(np.arange(len(n)), n)
        raw = strips.lower[cell, feature][pair] + np.arange(len(pair)) - first[pair]
        products = _products_along(question, raw, cell[pair], feature[pair], strips)
        low = np.minimum.reduceat(products, first) if len(n) else np.empty(0)
        span = (np.maximum.reduceat(products, first) if len(n) else low) - low
        order = np.lexsort((-span, cell))  # the widest features of each cell first
        rank = np.arange(len(n)) - np.searchsorted(cell, cell)
        turns = [order[rank == k] for k in range(int(rank.max(initial=-1)) + 1)]
        group, size = np.zeros(len(n), dtype=np.int64), np.ones((count, max(1, len(turns))), dtype=np.int64)
        for turn in turns:  # the first group with room; long features have one of their own
            fits = size[cell[turn]] * n[turn, None] <= MEET
            group[turn] = np.where(n[turn] > MEET, -1, fits.argmax(axis=1))
            size[cell[turn], group[turn]] *= np.where(n[turn] > MEET, 1, n[turn])
        size = size[:, : int(group.max(initial=0)) + 1]
        left = np.tile(np.arange(float(size.max())), (size.size, 1))
        sums, inside = np.zeros_like(left), left.reshape(*size.shape, -1) < size[:, :, None]
        for turn in turns:  # the digits of a combination's number are the positions of its values
            members = turn[group[turn] >= 0]
            row, steps = cell[members] * size.shape[1] + group[members], n[members, None]
            quotient = np.floor(left[row] / steps)
            sums[row] += products[first[members, None] + (left[row] - quotient * steps).astype(np.int64)]
            left[row] = quotient
        sums, rest, is_long = sums.reshape(inside.shape), group != 0, group < 0
        width, other_groups = _added(cell, np.where(rest, span, 0.0), count), (size[:, 1:] > 1).sum(axis=1)
        other_groups = other_groups + _added(cell, is_long, count)
        with np.errstate(divide="ignore", invalid="ignore"):
            resolution = FINE * width * other_groups / strips.gap
            bins = 2 ** np.ceil(np.log2(np.clip(np.nan_to_num(resolution), *BINS)))
        unit = np.where(width > 0, width / bins, 1.0)
        value = np.concatenate([sums[:, 1:][inside[:, 1:]], products[is_long[pair]]])
        length = np.concatenate([size[:, 1:].ravel(), n[is_long]])
        owner = np.concatenate([np.repeat(np.arange(count), size.shape[1] - 1), cell[is_long]])
        group_of = np.concatenate([np.tile(np.arange(size.shape[1] - 1), count), size.shape[1] + rank[is_long]])
        points = np.ones((1, count), dtype=float if (many.astype(np.float64).prod(axis=1) < 2**53).all() else object)
        least = most = np.zeros(count)
        if len(value):
            first, entry = np.cumsum(length) - length, np.repeat(np.arange(len(length)), length)
            steps = np.rint((value - np.minimum.reduceat(value, first)[entry]) / unit[owner[entry]])
            remainder = value - unit[owner[entry]] * steps
            least = _added(owner, np.minimum.reduceat(remainder, first), count)
            most = _added(owner, np.maximum.reduceat(remainder, first), count)
            place = steps.astype(np.int64) * count + owner[entry]
            for k in np.unique(group_of)[::-1].tolist():
                members = place[group_of[entry] == k]
                number = np.bincount(members, minlength=(int(members.max()) // count + 1) * count).reshape(-1, count)
                number[0, ~number.any(axis=0)] = 1
                points = _product(points, number.astype(points.dtype))
        suffix = np.concatenate([points[::-1].cumsum(axis=0)[::-1], np.zeros((1, count), dtype=points.dtype)])
        return cls(
            sums=sums[:, 0], inside=inside[:, 0], suffix=suffix, unit=unit, least=least, most=most,
            span=_added(cell, span, count),
        )

    def above(self, limit: Array) -> npt.NDArray[Any]:
        """Return the number of points (B, M) with  listed + t units + limit > 0."""
        t = np.floor(-(self.sums + limit[:, None]) / self.unit[:, None]) + 1
        t = np.clip(t, 0, len(self.suffix) - 1).astype(np.int64)
        return np.where(self.inside, self.suffix[t, np.arange(len(limit))[:, None]], 0)


def _products_along(question: ShareQuestion, raw: Array, cell: Integers, feature: Integers, strips: _Strips) -> Array:
    """Return the terms (N,) of values of features in  direction . (x - middle)  of their cells."""
    domain, direction, middle = question.domain, strips.direction, strips.middle
    category = domain.one_hot[feature]
    column = domain.start[feature] + np.where(category, raw, 0).astype(np.int64)
    slope = direction[cell, column]
    number = ((raw - domain.offset[feature]) / domain.scale[feature]).astype(np.float32).astype(np.float64)
    if not category.any():
        return np.asarray(slope * (number - middle[cell, column]))
    base = ((direction * middle) @ question.owner)[cell, feature]
    return np.where(category, slope - base, slope * (number - middle[cell, column]))


def _added(cell: Integers, values: Array | Booleans, count: int) -> Array:
    """Return (B,) the sums of values (N,) by their cells (N,)."""
    return np.asarray(np.bincount(cell, weights=values, minlength=count), dtype=np.float64)


def _product(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the products of polynomials, coefficients (T, B) and (U, B)."""
    first, second = (first, second) if len(first) >= len(second) else (second, first)
    if len(second) > SHORT:
        return np.array([np.convolve(a, b) for a, b in zip(first.T.copy(), second.T.copy(), strict=True)], dtype=first.dtype).T
    out = np.zeros((len(first) + len(second) - 1, first.shape[1]), dtype=first.dtype)
    part = np.empty_like(first)
    for t in np.flatnonzero(second.any(axis=1)).tolist():
        out[t : t + len(first)] += np.multiply(first, second[t], out=part)
    return out


def _products(lower: npt.NDArray[Any], upper: npt.NDArray[Any]) -> Numbers:
    """Return (B,) the numbers of points of lattice boxes (B, C)."""
    rounded = (upper - lower + 1.0).prod(axis=1)
    exact = np.where(rounded < 2**53, rounded, 0).astype(np.int64).astype(object)  # products below 2^53 are exact
    for k in np.flatnonzero(rounded >= 2**53).tolist():
        exact[k] = prod(int(b) - int(a) + 1 for a, b in zip(lower[k].tolist(), upper[k].tolist(), strict=True))
    return exact
