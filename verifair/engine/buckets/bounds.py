"""Bound the number of different buckets of K copies, from bounds of the copies and of their differences.

Every x of a box has one reference logit t = g_r(x). Given t, copy z lies in  [t + delta_lower, t + delta_upper]  and in its own
[lower, upper], so it can be in a run of consecutive buckets, and the number of different buckets is at most a maximum matching of
copies to buckets. [lower_r, upper_r] is cut into slices of t, none of which crosses the border of a bucket, and the largest count
of a slice is the bound. This uses the differences where they matter: near 1/2 a bucket is narrow in logits, near 0 and 1 it is
wide. It is never worse than the matching over one slice, nor than floor(spread / width) + 2 buckets for copies that differ by at
most D, so neither of these is computed.
Sound? yes: slices overlap and cover, additions are rounded outwards, thresholds are enclosed.  Complete? no; with splitting it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.copies import CopyBounds, Thresholds
from encoders.domain import Batched
from encoders.trees.ensemble import BY_TIE

PARTS, FINEST = (4, 16, 64), 2.0**-20
"""A slice with too high a count is cut into parts: down to these fractions of the reference's range in its bucket, or this
width."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Slices(Batched):
    """N slices: box (N,), bucket of the reference (N,), t in [low, high] (N,), and length (N,) of all t of that box and bucket."""

    box: Integers
    bucket: Integers
    low: Array
    high: Array
    length: Array

    def halves(self) -> _Slices:
        """Cut each slice in the middle, or an unbounded one ever farther out. The places do not depend on bounds: with tighter
        bounds the cuts are the same, and no slice has a larger count."""
        low = np.where(np.isinf(self.low), 3 * self.high - 2, self.low)
        high = np.where(np.isinf(self.high), 3 * self.low + 2, self.high)
        middle = low + (high - low) / 2
        return self.join([replace(self, high=middle), replace(self, low=middle)])

    def cut(self, parts: int, low: Array, high: Array) -> _Slices:
        """Halve slices until none is wider than 1 / parts of its length; leave out those outside of [low, high] (B,)."""
        done, slices = list[_Slices](), self
        while len(slices):
            slices = slices.take((slices.low <= high[slices.box]) & (slices.high >= low[slices.box]))
            too_wide = slices.high - slices.low > np.maximum(slices.length / parts, FINEST)
            done.append(slices.take(~too_wide))
            slices = slices.take(too_wide).halves()
        return self.join([self.take(slice(0)), *done])


def most_buckets(bounds: CopyBounds, thresholds: Thresholds, reference: int, possible: Booleans, enough: int) -> Integers:
    """Return (B,) upper bounds of the number of different buckets over each box; `possible` (B, K) are the copies that count.

    Slices are refined only while they show more than `enough`.
    """
    bound = np.zeros(len(bounds.lower), dtype=np.int64)
    low, high = bounds.lower[:, reference], bounds.upper[:, reference]
    start, end = np.concatenate([[-np.inf], thresholds.lower]), np.concatenate([thresholds.upper, [np.inf]])
    box, bucket = np.nonzero((start <= high[:, None]) & (end >= low[:, None]))
    length = np.minimum(end[bucket], high[box]) - np.maximum(start[bucket], low[box])
    slices = _Slices(box=box, bucket=bucket, low=start[bucket], high=end[bucket], length=length)
    for parts in (*PARTS, None):
        count = _count(bounds, thresholds, reference, possible, slices)
        above = count > enough
        refined = above & (parts is not None)
        if parts != PARTS[0]:  # if a cut brought no slice down to `enough`, the box has to be split anyway: its slices stay
            refined &= (np.bincount(slices.box[~above], minlength=len(bound)) > 0)[slices.box]
        np.maximum.at(bound, slices.box[~refined], count[~refined])
        if parts is None or not refined.any():
            break
        slices = slices.take(refined).cut(parts, low, high)
    return bound


def _count(bounds: CopyBounds, thresholds: Thresholds, reference: int, possible: Booleans, slices: _Slices) -> Integers:
    """Return (N,) the most buckets in each slice, 0 if the reference of no x of the box lies there."""
    box, bucket = slices.box, slices.bucket[:, None]
    delta_low, delta_high = bounds.delta_lower[box], bounds.delta_upper[box]
    start, end = np.maximum(slices.low, bounds.lower[box, reference]), np.minimum(slices.high, bounds.upper[box, reference])
    low = np.maximum(bounds.lower[box], np.nextafter(start[:, None] + delta_low - 4 * BY_TIE, -np.inf))   # +-BY_TIE may stand for 0
    high = np.minimum(bounds.upper[box], np.nextafter(end[:, None] + delta_high + 4 * BY_TIE, np.inf))
    first, last = thresholds.surely(low), thresholds.possibly(high)
    # The reference is in its bucket exactly, so copies never below (above) it are not in a bucket below (above).
    first = np.where(delta_low >= 0, np.maximum(first, bucket), first)
    last = np.where(delta_high <= 0, np.minimum(last, bucket), last)
    empty = (start > end) | ((low > high) | (first > last)).any(axis=1)
    last = np.where(possible[box], last, -1)
    count = np.zeros(len(box), dtype=np.int64)
    nonempty = np.flatnonzero(~empty)
    count[nonempty] = matching(first[nonempty], last[nonempty], thresholds.buckets)
    return count


def matching(first: Integers, last: Integers, buckets: int) -> Integers:
    """Return (N,) maximum matchings of K copies to buckets, copy z to one of first[n, z] ... last[n, z] (none where last < first).

    Greedy: copies in the order of their last bucket, each to the first free one. Exact for runs of consecutive buckets: if some
    optimum gives that bucket to another copy, the two can be exchanged, as the other's run reaches at least as far.
    """
    kind: Any = np.int64 if buckets < 63 else np.object_  # a bit for each bucket; Python's integers if 64 bits are too few
    order = np.argsort(last, axis=1, kind="stable")
    start = np.take_along_axis(first, order, axis=1).astype(kind)
    end = np.take_along_axis(np.maximum(last + 1, first), order, axis=1).astype(kind)
    runs = (1 << end) - (1 << start)
    taken: Any = np.zeros(len(first), dtype=kind)
    count = np.zeros(len(first), dtype=np.int64)
    for k in range(runs.shape[1]):
        free: Any = runs[:, k] & ~taken
        taken = taken | (free & -free)
        count += free != 0
    return count


def different(buckets: Integers, counted: Booleans) -> Integers:
    """Return (N,) the number of different buckets (N, K) among the counted copies."""
    ordered = np.sort(np.where(counted, buckets, -1), axis=1)
    is_new = np.diff(ordered, axis=1, prepend=-1) > 0
    return np.asarray(is_new.sum(axis=1), dtype=np.int64)
