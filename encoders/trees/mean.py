"""Sums of functions of sums of trees: calibrated forests and boosted trees, soft votes of these, and stacking by probabilities.

    p = constant + sum over k of  weight_k h_k(scale_k (f_k - shift_k)),        h_k the logistic function, or cut off at 0 and 1,

f_k one of the scores, a sum of trees, of columns times numbers (`lines`) and of their squares times numbers (`squares`), or the
logistic function of one (`chances`), weights of 0 or more, scales above 0. So p grows with every score: over a box it lies between
its values at the least scores and at the largest ones, and of two copies the one all of whose scores are at least the other's has
no smaller p. p is a mean of probabilities, or the log-odds of one (stacking).
Isotonic calibration is a sum of ramps, one between every two of its plateaus; a share of votes itself is one ramp, from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from flint import arb, arb_mat
from scipy.special import expit

from encoders.arrays import Array, Booleans, Integers
from encoders.errors import ModelError
from encoders.exact.balls import Balls, ball, sigmoid
from encoders.exact.dyadic import Dyadic, exact, total
from encoders.model import Link, Model
from encoders.trees.ensemble import TreeEnsemble

NUMBERS = 1 << 22
"""Values of functions held at once."""
ROUNDED = 2.0**-40
"""Far more than float64 numbers of logistic functions may be off by, of rounded scores as well."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ramps:
    """K functions of scores. score: (K,) the number of its score.   logistic: (K,); the others are cut off.   shift, scale, weight:
    (K,) float32 numbers, as float64.   constant: what is added.   chances: (m,) scores that are logistic functions of sums."""

    chances: Booleans
    score: Integers
    logistic: Booleans
    shift: Array
    scale: Array
    weight: Array
    constant: float

    def __post_init__(self) -> None:
        if not np.isfinite([self.shift, self.scale, self.weight]).all() or not (self.scale > 0).all() or (self.weight < 0).any():
            raise ValueError("a mean's weights are 0 or more, and its scales above 0")

    def of(self, scores: Array, error: float = 0.0) -> Array:
        """Return p (B,) of float64 sums of trees (B, m).   error: what is added to their logistic functions."""
        scores = np.where(self.chances, expit(scores) + error, scores) if self.chances.any() else scores
        result, step = np.empty(len(scores)), max(1, NUMBERS // len(self.score))
        for start in range(0, len(scores), step):
            scaled = self.scale * (scores[start : start + step, self.score] - self.shift)
            result[start : start + step] = np.where(self.logistic, expit(scaled), np.clip(scaled, 0.0, 1.0)) @ self.weight
        return result + self.constant

    def apart(self, score: int) -> bool:
        """Return whether each ramp of a score ends before the next one begins, exactly."""
        index = np.flatnonzero((self.score == score) & ~self.logistic)
        index = index[np.argsort(self.shift[index], kind="stable")]
        gaps = zip(self.shift[index].tolist(), self.shift[index[1:]].tolist(), self.scale[index].tolist(), strict=False)
        return all((Fraction(after) - Fraction(before)) * Fraction(scale) >= 1 for before, after, scale in gaps)

    @property
    def exact(self) -> bool:
        """Whether p is a rational number where the sums of trees are."""
        return not (self.logistic.any() or self.chances.any())

    @property
    def steepness(self) -> Array:
        """(m,) what p may grow by, at most, while each score grows by 1."""
        slopes = self.weight * self.scale * np.where(self.logistic, 0.25, 1.0)
        return np.asarray(np.bincount(self.score, weights=slopes, minlength=len(self.chances)) * (1 + 2.0**-40), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeanOfTrees(Model):
    """The margin  p - 1/2 - at,  or its negative where `below`, of a mean p of what `ramps` make of the sums of `trees`; of
    log-odds p (link SIGMOID)  p - at.

    Exact where all functions are cut off; balls around it where some are logistic.
    """

    trees: TreeEnsemble
    ramps: Ramps
    lines: Array | None = None
    """(m, n) what the columns of a row are multiplied by, and added to each sum of trees; None: nothing is."""
    squares: Array | None = None
    """(m, n) what their squares are multiplied by, and added too; None without `lines`, and where nothing is."""
    at: float = 0.0
    below: bool = False

    @property
    def inputs(self) -> int:
        return self.trees.inputs

    @property
    def outputs(self) -> int:
        return 1

    @property
    def built(self) -> str:
        sums = "sums of trees" if self.lines is None else "sums of trees and linear functions"
        sums = sums if self.squares is None else "sums of trees and quadratic functions"
        return f"a mean of functions of {self.trees.outputs:,} {sums}: {self.trees.built}"

    @property
    def work(self) -> int:
        return self.trees.work + 8 * len(self.ramps.score)

    @property
    def knows_float32(self) -> bool:
        return False

    @property
    def kind(self) -> str:
        return f"a {'mean' if self.link is Link.SHARES else 'sum'} of functions of trees' sums"

    @property
    def asking(self) -> int:
        return self.trees.asking

    @property
    def of_trees(self) -> bool:
        return True

    @property
    def piecewise_linear(self) -> bool:
        return self.ramps.exact

    @property
    def each(self) -> list[TreeEnsemble]:
        """The trees of each score by themselves: those that may add something to it, or the first one."""
        nonzero = self.trees.value != 0
        for nodes in self.trees.upwards:
            nonzero[nodes] = nonzero[self.trees.left[nodes]] | nonzero[self.trees.right[nodes]]
        ensembles = []
        for k in range(self.trees.outputs):
            roots = np.flatnonzero(nonzero[self.trees.root, k])
            root = self.trees.root[roots if len(roots) else slice(1)]
            ensembles.append(replace(self.trees, root=root, value=self.trees.value[:, [k]], base=self.trees.base[[k]]))
        return ensembles

    @property
    def steepness(self) -> Array:
        """(m,) what the margin may move by, at most, while each sum of trees moves by 1."""
        return np.asarray(self.ramps.steepness * np.where(self.ramps.chances, 0.25, 1.0))

    @property
    def size(self) -> float:
        """What no number that is added up for a margin exceeds, nor what rounding logistic functions within does, for each unit."""
        inner = float(self.ramps.steepness[self.ramps.chances].sum())
        return float(self.ramps.weight.sum() + np.abs(self.added).sum()) + inner

    @property
    def added(self) -> tuple[float, float, float]:
        """What is added to the weighted functions before the sign is taken."""
        return self.ramps.constant, -0.5 if self.link is Link.SHARES else 0.0, -self.at

    def with_columns(self, place: Integers, columns: int) -> Self:
        trees = self.trees.with_columns(place, columns)
        lines, squares = (None if matrix is None else matrix @ np.eye(columns)[place] for matrix in (self.lines, self.squares))
        return replace(super().with_columns(place, columns), trees=trees, lines=lines, squares=squares)

    @property
    def straight(self) -> Booleans:
        """(n,) columns that are multiplied by numbers, they or their squares, and added."""
        columns = np.zeros(self.inputs, dtype=bool)
        for factors in (self.lines, self.squares):
            columns |= False if factors is None else (factors != 0).any(axis=0)
        return columns

    def surely_equal(self, x: Array, x_prime: Array) -> Booleans:
        # leaves may differ that add up alike, and scores on one plateau
        first, second = self.sums(exact(x)), self.sums(exact(x_prime))
        equal, plateau, other = (self._moved(first) - self._moved(second)).sign == 0, self._plateaus(first), self._plateaus(second)
        return np.asarray((equal | ((plateau != 0) & (plateau == other))).all(axis=1))

    def _plateaus(self, sums: Dyadic) -> Integers:
        """Return (B, K) of sums (B, m): 1 where a function that is cut off surely is 1, -1 where it is 0, and 0 elsewhere."""
        ramps, values = self.ramps, sums.to_float()
        scores = np.where(ramps.chances, expit(values), values)[:, ramps.score]
        scaled = ramps.scale * (scores - ramps.shift)
        tolerance = ROUNDED * (1 + ramps.scale * (1 + np.abs(scores) + np.abs(ramps.shift)))
        plateaus = np.where(scaled > 1 + tolerance, 1, np.where(scaled < -tolerance, -1, 0))
        return np.asarray(np.where(ramps.logistic, 0, plateaus))

    def _moved(self, sums: Dyadic) -> Dyadic:
        """Return (B, K) sums (B, m) as each function takes them, moved and scaled, cut off where it is one of a sum."""
        ramps = self.ramps
        scaled = (sums[:, ramps.score] - exact(ramps.shift)) * exact(ramps.scale)
        uncut = ramps.logistic | ramps.chances[ramps.score]
        inside, above = (scaled.sign > 0) | uncut, ((scaled - exact(np.ones(1))).sign > 0) & ~uncut
        return Dyadic(limbs=scaled.limbs * (inside & ~above), exponent=scaled.exponent) + exact(above.astype(np.float64))

    def sums(self, x: Any) -> Any:
        """Return what trees and columns add up to (B, m), in the arithmetic of rows x (B, n)."""
        result = self.trees.forward(x)
        for power, factor in ((x, self.lines), (x if self.squares is None else x * x, self.squares)):
            if factor is None:
                continue
            if isinstance(power, Dyadic):
                result = result + total(power[:, None] * exact(factor), axis=2)
            else:
                result = result + power @ (np.vectorize(Fraction, otypes=[object])(factor) if x.dtype == object else factor).T
        return result

    def margins(self, scores: Array) -> Array:
        """Return margins (B,) of float64 scores (B, m)."""
        p = self.ramps.of(scores) + self.added[1] - self.at
        return -p if self.below else p

    def forward(self, x: Any) -> Any:
        """Margins (B, 1) of rows x (B, n), in the arithmetic of x. Raises ModelError for exact ones of logistic functions."""
        if isinstance(x, Balls):
            return self._balls(x)
        if isinstance(x, np.ndarray) and x.dtype != object:
            return self.margins(self.sums(x))[:, None]
        if not self.piecewise_linear:
            raise ModelError(self.source or "model", "has logistic functions of sums of trees, which are no rational numbers")
        if not isinstance(x, Dyadic):
            return self.forward(exact(np.asarray(x, dtype=np.float64))).to_fractions()
        weighted = self._moved(self.sums(x)) * exact(self.ramps.weight)
        result = total(weighted, axis=1)[:, None] + total(exact(np.array(self.added)[:, None]), axis=0)
        return -result if self.below else result

    def _balls(self, x: Balls) -> Balls:
        """Margins around rows of float32 numbers."""
        rows, ramps = np.array([[float(v) for v in row] for row in x.rows()]), self.ramps
        sums = self.sums(exact(rows))
        plateaus, scores = self._plateaus(sums), sums.to_fractions().tolist()
        constant = total(exact(np.where(plateaus == 1, ramps.weight, 0.0)), axis=1).to_fractions().tolist()
        numbers = list(zip(ramps.score.tolist(), ramps.logistic.tolist(), ramps.shift.tolist(), ramps.scale.tolist(),
                           ramps.weight.tolist(), strict=True))
        margins = []
        for row, row_scores in enumerate(scores):
            margin = sum((ball(value) for value in self.added), ball(constant[row]))
            for function in np.flatnonzero(plateaus[row] == 0).tolist():
                k, logistic, shift, scale, weight = numbers[function]
                if ramps.chances[k]:
                    argument = ball(scale) * (sigmoid(ball(row_scores[k])) - ball(shift))
                else:
                    argument = ball(Fraction(scale) * (row_scores[k] - Fraction(shift)))
                margin += ball(weight) * (sigmoid(argument) if logistic else _cut_off(argument))
            margins.append([-margin if self.below else margin])
        return Balls(matrix=arb_mat(margins))


def _cut_off(number: arb) -> arb:
    """Return a ball around a number that is cut off at 0 and 1: of radius 0 where it surely is."""
    zero, one = ball(0.0), ball(1.0)
    if number <= zero or number >= one:
        return zero if number <= zero else one
    return number.max(zero).min(one)
