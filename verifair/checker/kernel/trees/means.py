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

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.trees.mean import MeanOfTrees, Ramps
from verifair.checker.kernel.trees.bounds import TreeBounds, at_most

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
        self.network, self.scores = network, [TreeBounds(ensemble, domain) for ensemble in network.each]
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

    def single_path(self, low: Array, high: Array) -> Booleans:
        """Return (B,) which boxes low, high (B, n), of a row at least, meet one way through every tree: all their rows take it."""
        fixed = (low == high)[:, self.straight].all(axis=1)
        return np.asarray(fixed & np.all([score.single_path(low, high) for score in self.scores], axis=0))

    def float32_errors(self, margin: Array) -> Array:
        """Return (B,) what is known of float32: nothing."""
        return np.full(len(margin), np.inf)

    def least(
        self, first: tuple[Array, Array], second: tuple[Array, Array], differs: Booleans, box: Integers, p: Array, q: Array,
        needed: Array | None = None,
    ) -> Array:
        """Return lower bounds (N,) of  p g(x) + q g(x')  as `TreeBounds` does; for p and q of one sign -inf."""
        sign = -1.0 if self.network.below else 1.0
        a, b = sign * p[:, 0], sign * q[:, 0]
        sign_a, sign_b = np.sign(a), np.sign(b)
        lines = np.concatenate([[sign_a, 0 * sign_b], [0 * sign_a, sign_b], [sign_a, sign_b]], axis=1)[:, :, None]
        bounds = [score.least(first, second, differs, np.tile(box, 3), *lines) for score in self.scores]
        if self.network.lines is not None:
            bounds = [self._with_line(k, bound, first, second, differs, np.tile(box, 3), *lines) for k, bound in enumerate(bounds)]
        ends = np.stack(bounds, axis=1).reshape(3, len(box), len(bounds))
        empty, valid = (ends == np.inf).any(axis=(0, 2)), np.isfinite(ends).all(axis=(0, 2)) & (sign_a * sign_b <= 0)
        ends = np.where(valid[:, None], ends, 0.0)
        at_x, at_second = self._copies(ends[0], sign_a), self._copies(ends[1], sign_b)
        larger = (sign_a < 0)[:, None]     # which copy is to be no larger than the other one, by much
        low, high = np.where(larger, ends[1], ends[0]), -np.where(larger, ends[0], ends[1])
        gap = np.minimum(-ends[2], np.where(high == low, 0.0, np.nextafter(high - low, np.inf)))
        for k in np.flatnonzero(self.network.ramps.chances):
            positive, negative = np.flatnonzero(gap[:, k] > 0), np.flatnonzero(gap[:, k] < 0)
            gap[positive, k] = _steepest(0.0, 1.0, low[positive, k], high[positive, k], gap[positive, k])
            gap[negative, k] = -_flattest(True, 0.0, 1.0, low[negative, k], high[negative, k], -gap[negative, k])
            low[:, k], high[:, k] = expit(low[:, k]) - CURVED, expit(high[:, k]) + CURVED
        falls = [part.fall(low[:, k], high[:, k], gap[:, k]) for k, part in enumerate(self.parts)]
        rises = [part.rise(low[:, k], high[:, k], -gap[:, k]) for k, part in enumerate(self.parts)]
        difference = np.sum(rises, axis=0) * (1 - 2.0**-40) - np.sum(falls, axis=0) * (1 + 2.0**-40)
        separate = _down(np.abs(a) * at_x) + _down(np.abs(b) * at_second)
        common = np.minimum(np.abs(a), np.abs(b))
        left = _down(_down((np.abs(a) - common) * at_x)) + _down(_down((np.abs(b) - common) * at_second))  # two roundings
        together = left + _down(common * difference)
        total = np.where((a == 0) | (b == 0), separate, np.maximum(_down(separate), _down(together)))
        return np.asarray(np.where(empty, np.inf, np.where(valid, total, -np.inf)))

    def _with_line(
        self, score: int, least: Array, first: tuple[Array, Array], second: tuple[Array, Array], differs: Booleans, box: Integers,
        p: Array, q: Array,
    ) -> Array:
        """Return lower bounds (N,) of what trees, at least `least` (N,), and columns add to a score; p, q (N, 1) are 1, -1 or 0.

        A column that is the same in both adds  (p + q) (w x + s x^2);  of categories the one counts that adds least. -inf beyond
        float64."""
        assert self.network.lines is not None
        weight, square, p, q = self.network.lines[score], self.squares[score], p[:, 0], q[:, 0]
        finite = np.flatnonzero(np.isfinite(least))
        p, q, ends = p[finite], q[finite], [(low[box[finite]], high[box[finite]]) for low, high in (first, second)]
        terms = [(1.0, least[finite])]
        for v in range(self.domain.variables):
            col = slice(int(self.domain.start[v]), int(self.domain.start[v] + self.domain.width[v]))
            if not (weight[col].any() or square[col].any()):
                continue
            equal = np.all([end[:, col] == ends[0][0][:, col] for pair in ends for end in pair], axis=(0, 2)) | ~differs[col.start]
            for factor, (low, high) in zip((np.where(equal, p + q, p), np.where(equal, 0.0, q)), ends, strict=True):
                if self.domain.one_hot[v]:
                    values = factor[:, None] * (weight[col] + square[col])    # a category is 1
                    values = np.where(square[col] != 0, values - 2.0**-51 * np.abs(values), values)
                    terms.append((1.0, np.where(high[:, col] > 0, values, np.inf).min(axis=1)))
                elif s := float(square[col.start]):
                    w, stationary = float(weight[col.start]), self._stationary(v, float(weight[col.start]), s)
                    terms.append((1.0, _quadratic(w, s, stationary, factor, low[:, col.start], high[:, col.start])))
                else:
                    w = float(weight[col.start])
                    terms.append((w, factor * np.where(factor * w >= 0, low[:, col.start], high[:, col.start])))
        bounds, sums = least.copy(), at_most(terms)
        bounds[finite] = np.where(np.isfinite(sums), sums, -np.inf)
        return bounds

    def _stationary(self, v: int, w: float, s: float) -> Array:
        """Return three columns of a number, one after the other, about where  w x + s x^2  is flat; of a real one one thrice."""
        domain, single = self.domain, self.domain.take(np.array([v]))
        place = np.clip(-w / (2 * s), *single.box(single.lower[None], single.upper[None])).astype(np.float32).astype(float)
        if not domain.integer[v]:
            return np.repeat(place, 3)
        return single.encode(np.rint(place * domain.scale[v] + domain.offset[v]) + np.array([[-1.0], [0.0], [1.0]]))[:, 0]

    def _copies(self, lower: Array, sign: Array) -> Array:
        """Return lower bounds (N,) of  sign s,  sign (N,) 1, -1 or 0, from those (N, m) of  sign f."""
        ramps = self.network.ramps
        bounds = np.zeros(len(lower))
        for side in (1.0, -1.0):
            selected = np.flatnonzero(sign == side)
            scores = side * lower[selected]
            scores = np.where(ramps.chances, expit(scores) - side * CURVED, scores)
            distance = scores[:, ramps.score] - ramps.shift
            scaled = ramps.scale * distance
            argument = side * scaled - LOST * np.abs(scaled) - TINY * (distance != 0)    # at most  side c (f - t)
            value = np.where(ramps.logistic, side * expit(side * argument) - CURVED, np.clip(side * argument, 0.0, 1.0) * side)
            terms = [(float(w), value[:, k]) for k, w in enumerate(ramps.weight)]
            constants = [(side, np.full(len(selected), constant)) for constant in self.network.added]
            bounds[selected] = at_most([*terms, *constants])
        return bounds


@dataclass(frozen=True, kw_only=True, eq=False)
class ScorePart:
    """What one score adds to s: logistic functions, and ramps in the order of their shifts.

    shift, scale, weight: of both, (K,).   stop: (K,) where ramps end, at least.   cumulative: (K + 1,) what the first ones add.
    apart: whether each ramp ends before the next one begins.
    """

    shift: tuple[Array, Array]
    scale: tuple[Array, Array]
    weight: tuple[Array, Array]
    stop: Array
    cumulative: Array
    apart: bool

    @classmethod
    def of(cls, ramps: Ramps, score: int) -> ScorePart:
        """Take the functions of a score."""
        selected = ramps.score == score
        shift, scale, weight = ([array[selected & ramps.logistic], array[selected & ~ramps.logistic]]
                                for array in (ramps.shift, ramps.scale, ramps.weight))
        order = np.argsort(shift[1], kind="stable")
        for pair in (shift, scale, weight):
            pair[1] = pair[1][order]
        stop = np.nextafter(np.nextafter(shift[1] + np.nextafter(1 / scale[1], np.inf), np.inf), np.inf)
        stop[:-1] = np.minimum(stop[:-1], shift[1][1:])
        return cls(shift=(shift[0], shift[1]), scale=(scale[0], scale[1]), weight=(weight[0], weight[1]), stop=stop,
                   cumulative=np.concatenate([[0.0], np.cumsum(weight[1])]), apart=ramps.apart(score))

    def fall(self, low: Array, high: Array, drop: Array) -> Array:
        """Return (N,) what this falls by, at drop, while the score falls by `drop` (N,) at drop, within low and high (N,)."""
        total = np.zeros(len(low))
        positive = np.flatnonzero(drop > 0)
        low, high = low[positive], high[positive]
        slack = 2.0**-48 * (np.abs(low) + np.abs(high))
        drop = np.minimum(drop[positive], high - low) + slack
        for shift, scale, weight in zip(self.shift[0], self.scale[0], self.weight[0], strict=True):
            total[positive] += weight * _steepest(shift, scale, low, high, drop)
        if len(self.stop):
            step = max(1, WINDOWS // len(self.stop))
            parts = [self._best(*(array[k : k + step, None] for array in (low, high, drop))) for k in range(0, len(positive), step)]
            total[positive] += np.concatenate(parts) if parts else 0.0
        return total

    def rise(self, low: Array, high: Array, gain: Array) -> Array:
        """Return (N,) what this rises by, at gain, while the score does by `gain` (N,) or more, from `high` (N,) or less to `low`
        (N,) or more."""
        total, positive = np.zeros(len(low)), np.flatnonzero(gain > 0)
        for curved in (True, False):
            for shift, scale, weight in zip(self.shift[not curved], self.scale[not curved], self.weight[not curved], strict=True):
                total[positive] += weight * _flattest(curved, shift, scale, low[positive], high[positive], gain[positive])
        return total

    def _best(self, low: Array, high: Array, drop: Array) -> Array:
        """Return (N,) what the best windows of ramps hold, for columns low, high, most (N, 1)."""
        rounding = 2.0**-50 * (len(self.stop) + 8) * self.cumulative[-1]
        if not self.apart:
            rises = np.minimum(self.weight[1], self.weight[1] * self.scale[1] * drop)
            return np.asarray(rises.sum(axis=1) + rounding)
        top, bottom = np.clip(self.stop, low, high), np.clip(self.shift[1], low, high)
        ending = self._height(top) - self._height(np.maximum(top - drop, low))
        beginning = self._height(np.minimum(bottom + drop, high)) - self._height(bottom)
        return np.asarray(np.maximum(ending.max(axis=1), beginning.max(axis=1)) + rounding)

    def _height(self, score: Array) -> Array:
        """Return what ramps add up to at scores (N, K)."""
        place = np.minimum(np.searchsorted(self.stop, score), len(self.stop) - 1)
        scaled = self.scale[1][place] * (score - self.shift[1][place])
        return np.asarray(self.cumulative[place] + self.weight[1][place] * np.clip(scaled, 0.0, 1.0))


def _steepest(shift: float, scale: float, low: Array, high: Array, width: Array) -> Array:
    """Return (N,) what a logistic function rises by, at most, in a window `width` (N,) long within low and high (N,)."""
    slack = 2.0**-48 * (np.abs(low) + np.abs(high) + abs(shift))
    width = np.minimum(width, high - low) + slack
    top = np.clip(shift + width / 2, np.minimum(low + width, high), high)
    ends = (scale * (t - shift) for t in (top + slack, top - width - slack))
    upper, lower = (expit(t + side * LOST * np.abs(t)) for t, side in zip(ends, (1, -1), strict=True))
    return np.asarray(upper - lower + 2 * CURVED)


def _flattest(curved: bool, shift: float, scale: float, low: Array, high: Array, width: Array) -> Array:
    """Return (N,) what a function rises by, at least, from `high` or less to `low` or more, `width` (N,) or more apart."""
    width = width - 2.0**-48 * (np.abs(low) + np.abs(high) + width)
    smallest = np.full(len(low), np.inf)
    for begin, end in ((low - width, low), (high, high + width)):
        first, last = scale * (begin - shift), scale * (end - shift)
        first, last = first + LOST * np.abs(first) + TINY, last - LOST * np.abs(last) - TINY
        rise = expit(last) - expit(first) - 2 * CURVED if curved else np.clip(last, 0.0, 1.0) - np.clip(first, 0.0, 1.0)
        smallest = np.minimum(smallest, rise)
    return np.asarray(np.maximum(smallest, 0.0))


def _quadratic(w: float, s: float, stationary: Array, factor: Array, low: Array, high: Array) -> Array:
    """Return numbers (N,) at most  factor (w x + s x^2)  for columns x within low and high (N,). factor: (N,) 1, -1 or 0.

    Where factor s <= 0 an end is least. Elsewhere let a be any column, b and c those next to it, or a itself where x is real: from
    a to x this rises by  (x - a) factor (w + s (x + a)),  whose last bracket, times factor, is at most that of b for x up to b,
    and at least that of c from c on. So a is least where these two have the right signs, else it falls by no more than they say.
    stationary: b, a, c about where it is least. Columns are float32 numbers, so their products are exact."""
    ends = np.minimum(*(at_most([(w, factor * end), (s, factor * (end * end))]) for end in (low, high)))
    left, middle, right = (np.clip(column, low, high) for column in stationary)
    inner = at_most([(w, factor * middle), (s, factor * (middle * middle))])
    for sign, beside, width in ((-1.0, left, middle - low), (1.0, right, high - middle)):
        rise = at_most([(w, sign * factor), (s, sign * factor * beside), (s, sign * factor * middle)])
        inner = np.where((rise < 0) & (width > 0), np.nextafter(inner + rise * width * (1 + 2.0**-48), -np.inf), inner)
    return np.where(factor * s <= 0, ends, inner)


def _down(value: Array) -> Array:
    """Return numbers at most what a product or sum would be that was rounded to these."""
    return np.asarray(np.where(value == 0, 0.0, np.nextafter(value, -np.inf)))
