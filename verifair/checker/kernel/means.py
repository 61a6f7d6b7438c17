"""The leaf rule's bound for sums of functions of sums of trees, of which each grows with its score: means of probabilities.

    s(x) = sum over k of  w_k h_k(c_k (f_k(x) - t_k))  and numbers that are added,        w_k >= 0, c_k > 0, h_k logistic or cut off

is the margin, or its negative; f is a sum of trees, of columns times numbers (`lines`) and of their squares times numbers
(`squares`), or the logistic function of one (`chances`), and its ends and windows follow from those of the sum. Where every f is at
least l, s is at least its value at l; where it is at most u, at most its value at u.
Where  f(x') - f(x)  is at least -d for a score f, its part of s falls from x to x' by at most what it grows by within a window of
length d between the least f(x') and the largest f(x), the best one: of a logistic function the window around its middle, or as near
to that as may be; of ramps, one after the other, one that ends where a ramp ends, begins where one begins, or lies at an end of
all. If d < 0 each function rises, by at least what it grows by within a window of length -d that ends at the least f(x') or begins
at the largest f(x), or lies between these two: one at an end is the flattest, for no function is steep twice. So -a s(x) + b s(x')
is bounded by both terms, or by the smaller of a and b times the fall and what is left of a term. Windows are taken somewhat longer
(for rises, shorter) than they are: s grows, so that they hold all, or no more than, what the true ones do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from encoders.domain import Domain
from encoders.network import Array, Booleans, Integers
from encoders.trees.mean import MeanOfTrees, Ramps
from verifair.checker.kernel.trees import TreeBounds, at_most

LOST, TINY, CURVED = 2.0**-51, 2.0**-1000, 2.0**-46
"""What moving and scaling a score may round, relative to the result, and beside; and a logistic function of that, at most."""
WINDOWS = 1 << 19
"""Numbers held at once."""


class MeanBounds:
    """The bounds of one mean. sizes: (1,) no margin is larger."""

    compares = False

    def __init__(self, network: MeanOfTrees, domain: Domain) -> None:
        ramps = network.ramps
        if not ((ramps.scale > 0).all() and (ramps.weight >= 0).all()):
            raise ValueError("a mean has weights of 0 or more, and scales above 0")
        self.network, self.scores = network, [TreeBounds(one, domain) for one in network.each]
        self.parts = [ScorePart.of(ramps, k) for k in range(network.trees.outputs)]
        if len(ramps.chances) != len(self.parts):
            raise ValueError("a mean says of every score whether it is a logistic function")
        self.domain, self.straight = domain, network.straight
        if network.lines is not None and not (network.lines.shape == (len(self.parts), domain.columns)
                                              and np.isfinite(network.lines).all()):
            raise ValueError("a mean multiplies each column by a number for each score")
        self.squares = np.zeros((len(self.parts), domain.columns)) if network.squares is None else network.squares
        if self.squares.shape != (len(self.parts), domain.columns) or (network.lines is None and self.squares.any()):
            raise ValueError("a mean multiplies the square of each column by a number for each score, beside the column")
        self.sizes = np.array([(ramps.weight.sum() + np.abs(network.added).sum()) * (1 + 2.0**-40)])

    def one_way(self, low: Array, high: Array) -> Booleans:
        """Return (B,) which boxes low, high (B, n), of a row at least, meet one way through every tree: all their rows take it."""
        fixed = (low == high)[:, self.straight].all(axis=1)
        return np.asarray(fixed & np.all([one.one_way(low, high) for one in self.scores], axis=0))

    def float32_errors(self, margin: Array) -> Array:
        """Return (B,) what is known of float32: nothing."""
        return np.full(len(margin), np.inf)

    def least(
        self, first: tuple[Array, Array], second: tuple[Array, Array], apart: Booleans, box: Integers, p: Array, q: Array,
        even: Array | None = None,
    ) -> Array:
        """Return lower bounds (N,) of  p g(x) + q g(x')  as `TreeBounds` does; for p and q of one sign -inf."""
        sign = -1.0 if self.network.below else 1.0
        a, b = sign * p[:, 0], sign * q[:, 0]
        one, two = np.sign(a), np.sign(b)
        lines = np.concatenate([[one, 0 * two], [0 * one, two], [one, two]], axis=1)[:, :, None]
        each = [score.least(first, second, apart, np.tile(box, 3), *lines) for score in self.scores]
        if self.network.lines is not None:
            each = [self._with_line(k, one, first, second, apart, np.tile(box, 3), *lines) for k, one in enumerate(each)]
        ends = np.stack(each, axis=1).reshape(3, len(box), len(each))
        nowhere, known = (ends == np.inf).any(axis=(0, 2)), np.isfinite(ends).all(axis=(0, 2)) & (one * two <= 0)
        ends = np.where(known[:, None], ends, 0.0)
        at_x, at_second = self._copies(ends[0], one), self._copies(ends[1], two)
        larger = (one < 0)[:, None]     # which copy is to be no larger than the other one, by much
        low, high = np.where(larger, ends[1], ends[0]), -np.where(larger, ends[0], ends[1])
        most = np.minimum(-ends[2], np.where(high == low, 0.0, np.nextafter(high - low, np.inf)))
        for k in np.flatnonzero(self.network.ramps.chances):
            some, other = np.flatnonzero(most[:, k] > 0), np.flatnonzero(most[:, k] < 0)
            most[some, k] = _steepest(0.0, 1.0, low[some, k], high[some, k], most[some, k])
            most[other, k] = -_flattest(True, 0.0, 1.0, low[other, k], high[other, k], -most[other, k])
            low[:, k], high[:, k] = expit(low[:, k]) - CURVED, expit(high[:, k]) + CURVED
        falls = [part.fall(low[:, k], high[:, k], most[:, k]) for k, part in enumerate(self.parts)]
        rises = [part.rise(low[:, k], high[:, k], -most[:, k]) for k, part in enumerate(self.parts)]
        difference = np.sum(rises, axis=0) * (1 - 2.0**-40) - np.sum(falls, axis=0) * (1 + 2.0**-40)
        alone = _down(np.abs(a) * at_x) + _down(np.abs(b) * at_second)
        both = np.minimum(np.abs(a), np.abs(b))
        left = _down(_down((np.abs(a) - both) * at_x)) + _down(_down((np.abs(b) - both) * at_second))  # two roundings
        together = left + _down(both * difference)
        found = np.where((a == 0) | (b == 0), alone, np.maximum(_down(alone), _down(together)))
        return np.asarray(np.where(nowhere, np.inf, np.where(known, found, -np.inf)))

    def _with_line(
        self, score: int, least: Array, first: tuple[Array, Array], second: tuple[Array, Array], apart: Booleans, box: Integers,
        p: Array, q: Array,
    ) -> Array:
        """Return lower bounds (N,) of what trees, at least `least` (N,), and columns add to a score; p, q (N, 1) are 1, -1 or 0.

        A column that is the same in both adds  (p + q) (w x + s x^2);  of categories the one counts that adds least. -inf beyond
        float64."""
        assert self.network.lines is not None
        weight, square, p, q = self.network.lines[score], self.squares[score], p[:, 0], q[:, 0]
        some = np.flatnonzero(np.isfinite(least))
        p, q, ends = p[some], q[some], [(low[box[some]], high[box[some]]) for low, high in (first, second)]
        terms = [(1.0, least[some])]
        for v in range(self.domain.variables):
            own = slice(int(self.domain.start[v]), int(self.domain.start[v] + self.domain.width[v]))
            if not (weight[own].any() or square[own].any()):
                continue
            same = np.all([end[:, own] == ends[0][0][:, own] for pair in ends for end in pair], axis=(0, 2)) | ~apart[own.start]
            for factor, (low, high) in zip((np.where(same, p + q, p), np.where(same, 0.0, q)), ends, strict=True):
                if self.domain.one_hot[v]:
                    adds = factor[:, None] * (weight[own] + square[own])    # a category is 1
                    adds = np.where(square[own] != 0, adds - 2.0**-51 * np.abs(adds), adds)
                    terms.append((1.0, np.where(high[:, own] > 0, adds, np.inf).min(axis=1)))
                elif s := float(square[own.start]):
                    w, flat = float(weight[own.start]), self._flat(v, float(weight[own.start]), s)
                    terms.append((1.0, _quadratic(w, s, flat, factor, low[:, own.start], high[:, own.start])))
                else:
                    w = float(weight[own.start])
                    terms.append((w, factor * np.where(factor * w >= 0, low[:, own.start], high[:, own.start])))
        found, sums = least.copy(), at_most(terms)
        found[some] = np.where(np.isfinite(sums), sums, -np.inf)
        return found

    def _flat(self, v: int, w: float, s: float) -> Array:
        """Return three columns of a number, one after the other, about where  w x + s x^2  is flat; of a real one one thrice."""
        domain, alone = self.domain, self.domain.take(np.array([v]))
        place = np.clip(-w / (2 * s), *alone.box(alone.lower[None], alone.upper[None])).astype(np.float32).astype(float)
        if not domain.integer[v]:
            return np.repeat(place, 3)
        return alone.encode(np.rint(place * domain.scale[v] + domain.offset[v]) + np.array([[-1.0], [0.0], [1.0]]))[:, 0]

    def _copies(self, least: Array, sign: Array) -> Array:
        """Return lower bounds (N,) of  sign s,  sign (N,) 1, -1 or 0, from those (N, m) of  sign f."""
        ramps = self.network.ramps
        found = np.zeros(len(least))
        for side in (1.0, -1.0):
            mine = np.flatnonzero(sign == side)
            scores = side * least[mine]
            scores = np.where(ramps.chances, expit(scores) - side * CURVED, scores)
            apart = scores[:, ramps.score] - ramps.shift
            moved = ramps.scale * apart
            near = side * moved - LOST * np.abs(moved) - TINY * (apart != 0)    # at most  side c (f - t)
            value = np.where(ramps.logistic, side * expit(side * near) - CURVED, np.clip(side * near, 0.0, 1.0) * side)
            terms = [(float(w), value[:, k]) for k, w in enumerate(ramps.weight)]
            constants = [(side, np.full(len(mine), one)) for one in self.network.added]
            found[mine] = at_most([*terms, *constants])
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class ScorePart:
    """What one score adds to s: logistic functions, and ramps in the order of their shifts.

    shift, scale, weight: of both, (K,).   stop: (K,) where ramps end, at least.   passed: (K + 1,) what the first ones add in all.
    apart: whether each ramp ends before the next one begins.
    """

    shift: tuple[Array, Array]
    scale: tuple[Array, Array]
    weight: tuple[Array, Array]
    stop: Array
    passed: Array
    apart: bool

    @classmethod
    def of(cls, ramps: Ramps, score: int) -> ScorePart:
        """Take the functions of a score."""
        mine = ramps.score == score
        shift, scale, weight = ([one[mine & ramps.logistic], one[mine & ~ramps.logistic]]
                                for one in (ramps.shift, ramps.scale, ramps.weight))
        order = np.argsort(shift[1], kind="stable")
        for one in (shift, scale, weight):
            one[1] = one[1][order]
        stop = np.nextafter(np.nextafter(shift[1] + np.nextafter(1 / scale[1], np.inf), np.inf), np.inf)
        stop[:-1] = np.minimum(stop[:-1], shift[1][1:])
        return cls(shift=(shift[0], shift[1]), scale=(scale[0], scale[1]), weight=(weight[0], weight[1]), stop=stop,
                   passed=np.concatenate([[0.0], np.cumsum(weight[1])]), apart=ramps.apart(score))

    def fall(self, low: Array, high: Array, most: Array) -> Array:
        """Return (N,) what this falls by, at most, while the score falls by `most` (N,) at most, within low and high (N,)."""
        found = np.zeros(len(low))
        some = np.flatnonzero(most > 0)
        low, high = low[some], high[some]
        room = 2.0**-48 * (np.abs(low) + np.abs(high))
        most = np.minimum(most[some], high - low) + room
        for shift, scale, weight in zip(self.shift[0], self.scale[0], self.weight[0], strict=True):
            found[some] += weight * _steepest(shift, scale, low, high, most)
        if len(self.stop):
            step = max(1, WINDOWS // len(self.stop))
            parts = [self._best(*(one[k : k + step, None] for one in (low, high, most))) for k in range(0, len(some), step)]
            found[some] += np.concatenate(parts) if parts else 0.0
        return found

    def rise(self, low: Array, high: Array, least: Array) -> Array:
        """Return (N,) what this rises by, at least, while the score does by `least` (N,) or more, from `high` (N,) or less to `low`
        (N,) or more."""
        found, some = np.zeros(len(low)), np.flatnonzero(least > 0)
        for curved in (True, False):
            for shift, scale, weight in zip(self.shift[not curved], self.scale[not curved], self.weight[not curved], strict=True):
                found[some] += weight * _flattest(curved, shift, scale, low[some], high[some], least[some])
        return found

    def _best(self, low: Array, high: Array, most: Array) -> Array:
        """Return (N,) what the best windows of ramps hold, for columns low, high, most (N, 1)."""
        lost = 2.0**-50 * (len(self.stop) + 8) * self.passed[-1]
        if not self.apart:
            steep = np.minimum(self.weight[1], self.weight[1] * self.scale[1] * most)
            return np.asarray(steep.sum(axis=1) + lost)
        top, bottom = np.clip(self.stop, low, high), np.clip(self.shift[1], low, high)
        ended = self._height(top) - self._height(np.maximum(top - most, low))
        begun = self._height(np.minimum(bottom + most, high)) - self._height(bottom)
        return np.asarray(np.maximum(ended.max(axis=1), begun.max(axis=1)) + lost)

    def _height(self, score: Array) -> Array:
        """Return what ramps add up to at scores (N, K)."""
        place = np.minimum(np.searchsorted(self.stop, score), len(self.stop) - 1)
        moved = self.scale[1][place] * (score - self.shift[1][place])
        return np.asarray(self.passed[place] + self.weight[1][place] * np.clip(moved, 0.0, 1.0))


def _steepest(shift: float, scale: float, low: Array, high: Array, most: Array) -> Array:
    """Return (N,) what a logistic function rises by, at most, in a window `most` (N,) long within low and high (N,)."""
    room = 2.0**-48 * (np.abs(low) + np.abs(high) + abs(shift))
    most = np.minimum(most, high - low) + room
    top = np.clip(shift + most / 2, np.minimum(low + most, high), high)
    ends = (scale * (one - shift) for one in (top + room, top - most - room))
    above, below = (expit(one + side * LOST * np.abs(one)) for one, side in zip(ends, (1, -1), strict=True))
    return np.asarray(above - below + 2 * CURVED)


def _flattest(curved: bool, shift: float, scale: float, low: Array, high: Array, least: Array) -> Array:
    """Return (N,) what a function rises by, at least, from `high` or less to `low` or more, `least` (N,) or more apart."""
    least = least - 2.0**-48 * (np.abs(low) + np.abs(high) + least)
    found = np.full(len(low), np.inf)
    for begin, end in ((low - least, low), (high, high + least)):
        first, last = scale * (begin - shift), scale * (end - shift)
        first, last = first + LOST * np.abs(first) + TINY, last - LOST * np.abs(last) - TINY
        rise = expit(last) - expit(first) - 2 * CURVED if curved else np.clip(last, 0.0, 1.0) - np.clip(first, 0.0, 1.0)
        found = np.minimum(found, rise)
    return np.asarray(np.maximum(found, 0.0))


def _quadratic(w: float, s: float, flat: Array, factor: Array, low: Array, high: Array) -> Array:
    """Return numbers (N,) at most  factor (w x + s x^2)  for columns x within low and high (N,). factor: (N,) 1, -1 or 0.

    Where factor s <= 0 an end is least. Elsewhere let a be any column, b and c those next to it, or a itself where x is real: from
    a to x this rises by  (x - a) factor (w + s (x + a)),  whose last bracket, times factor, is at most that of b for x up to b,
    and at least that of c from c on. So a is least where these two have the right signs, else it falls by no more than they say.
    flat: b, a, c about where it is least. Columns are float32 numbers, so their products are exact."""
    ends = np.minimum(*(at_most([(w, factor * end), (s, factor * (end * end))]) for end in (low, high)))
    before, at, after = (np.clip(one, low, high) for one in flat)
    inner = at_most([(w, factor * at), (s, factor * (at * at))])
    for sign, beside, width in ((-1.0, before, at - low), (1.0, after, high - at)):
        rise = at_most([(w, sign * factor), (s, sign * factor * beside), (s, sign * factor * at)])
        inner = np.where((rise < 0) & (width > 0), np.nextafter(inner + rise * width * (1 + 2.0**-48), -np.inf), inner)
    return np.where(factor * s <= 0, ends, inner)


def _down(value: Array) -> Array:
    """Return numbers at most what a product or sum would be that was rounded to these."""
    return np.asarray(np.where(value == 0, 0.0, np.nextafter(value, -np.inf)))
