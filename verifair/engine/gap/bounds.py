"""Bounds of the gaps over a batch of boxes, and the corners with the largest gaps.

A box is bounded by a line  a - m b <= w,  with (a, b) = (g, g') for a fall from x to x', and (g', g) for a rise. Intervals give
D >= a - b, U >= a and L' <= b: of the pairs that these allow, a = b + D with b = -D/2 clipped into [L', U - D] has the largest gap,
and m is the slope of the curve there. Linear bounds then choose m around the slope that was best for the box's parent, and the
standard relaxation proves w, just as the checker will.
Sound? yes: D, U, L', w are rigorous, and the curve has 1e-9 to spare.  Complete? no; with cuts it is, to the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.difference import interval_goals, linear_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.domain import Batched
from encoders.problem import TwinProblem
from verifair.engine.gap.lines import SLACK, best_slope, conjugate, gap_below, interval_line, rows_of
from verifair.engine.parallel import Deadline
from verifair.engine.search.boxes import Nodes, corner, legal_pairs, widest
from verifair.engine.search.standard import Progress, StandardRelaxation

LINEAR = 128
"""Boxes bounded by lines at a time."""
CHEAP = 512
"""If the standard relaxation bounds so many boxes between two looks at the clock, it is applied to all boxes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GapBoxes(Batched):
    """N boxes.   bound: (N, 2) on the gaps in both directions, at most `known` if no gap is larger.   slope: (N, 2) of the best
    lines. gap, line: (N, 2) the gap that a line of the box's own proves, infinite without one, and its slope.   along: (N,)
    positions of the variables to cut along.   point: (N, v) legal corners, and `fall`: (N,) by how much the output falls there from
    x to x', 0 without one."""

    bound: Array
    slope: Array
    gap: Array
    line: Array
    along: Integers
    point: Array
    fall: Array


class GapBounds:
    """Bounds over boxes of one problem. The only state is how often each kind of bounds of hidden layers has sufficed."""

    def __init__(self, problem: TwinProblem, logit: bool) -> None:
        self.problem, self.twin, self.logit = problem, Twin.of(problem).with_room(), logit
        self.standard, self.progress = StandardRelaxation(self.twin), Progress(self.twin, 0)

    def falls(self, question: Integers, point: Array) -> Array:
        """Return (N,) by how much the output falls from x to x' at points (N, v); a rise is negative."""
        a, b = self.twin.evaluate(question, self.twin.local.encode(point)).T
        return a - b if self.logit else np.asarray(expit(a) - expit(b))

    def of(self, nodes: Nodes, bound: Array, slope: Array, wanted: Booleans, known: float, deadline: Deadline) -> GapBoxes:
        """Return the bounds of boxes, computed in parts of at most LINEAR.

        bound, slope: (N, 2) of their parents: bounds, and the slopes of their best lines.   wanted: (N, 2) directions in which
        lines are worth trying.   known: bounds need not be smaller than this gap.
        """
        parts = [slice(start, start + LINEAR) for start in range(0, len(nodes), LINEAR)]
        with np.errstate(all="ignore"):  # overflow proves nothing
            return GapBoxes.join([
                _Batch(self, nodes.take(part), known, deadline).bounded(bound[part], slope[part], wanted[part]) for part in parts
            ])


class _Batch:
    """Some boxes, with their bounds so far."""

    def __init__(self, bounds: GapBounds, nodes: Nodes, known: float, deadline: Deadline) -> None:
        self.bounds, self.twin, self.logit = bounds, bounds.twin, bounds.logit
        self.nodes, self.known, self.deadline = nodes, known, deadline
        self.low, self.high = self.twin.local.box(nodes.lower, nodes.upper)
        self.gap, self.line = np.full((len(nodes), 2), np.inf), np.zeros((len(nodes), 2))
        self.point, self.fall = nodes.lower.copy(), np.zeros(len(nodes))

    def bounded(self, bound: Array, slope: Array, wanted: Booleans) -> GapBoxes:
        """Bound by intervals first, then by lines in directions that are still open."""
        nodes, bound, slope = self.nodes, bound.copy(), slope.copy()
        intervals = interval_bounds(self.twin, nodes.question, self.low, self.high)
        coarse, boxes = interval_goals(self.twin, nodes.question, intervals[-1]), np.arange(len(nodes))
        for d in (0, 1):
            part = coarse[:, 3 * d : 3 * d + 3]
            w, m = (-part[:, 0], np.ones(len(nodes))) if self.logit else interval_line(part)
            bound[:, d] = self._shown(boxes, np.full(len(nodes), d), w, m, bound[:, d])
        bound = np.where(nodes.open, bound, -np.inf)
        wanted = wanted & (bound > self.known)
        score = np.zeros(self.low.shape)
        for both in (True, False):
            index = np.flatnonzero(wanted.all(axis=1) if both else wanted.sum(axis=1) == 1)
            if len(index):
                directions = np.tile([0, 1], (len(index), 1)) if both else wanted[index].argmax(axis=1)[:, None]
                layers = [layer.take(index) for layer in intervals]
                bound[index], slope[index], score[index] = self._lines(index, layers, bound[index], slope[index], directions)
        return GapBoxes(
            bound=bound, slope=slope, gap=self.gap, line=self.line, along=widest(self.twin, nodes, score), point=self.point,
            fall=self.fall,
        )

    def _lines(
        self, selected: Integers, intervals: list[LayerBounds], bound: Array, slope: Array, directions: Integers
    ) -> tuple[Array, Array, Array]:
        """Return bounds (N, 2), slopes for the halves (N, 2) and scores (N, d) of boxes `selected` (N,), by lines in each of S
        directions (N, S)."""
        nodes, low, high = self.nodes.take(selected), self.low[selected], self.high[selected]
        rows, weights = rows_of(np.take_along_axis(slope, directions, axis=1), directions)
        goals = linear_goals(self.twin, nodes.question, (low, high), intervals, rows, np.zeros(weights.shape), weights)
        for s in range(directions.shape[1]):
            index = np.arange(len(nodes)), directions[:, s]
            part = slice(3 * s, 3 * s + 3)
            line = replace(goals, lower=goals.lower[:, part], slope=goals.slope[:, part], base=goals.base[:, part])
            linear, required = line.lower[:, 0], np.full(len(nodes), -self.known)
            if not self.logit:
                slope[index], linear = best_slope(line, (high - low) / 2, slope[index], self.known)
                required = -conjugate(self.known, slope[index])
            row, _ = rows_of(slope[index][:, None], directions[:, [s]])
            w = -self._standard(nodes, intervals, row[:, 0], linear, required)
            bound[index] = self._shown(selected, index[1], w, slope[index], bound[index])
            self._meet(selected, nodes, corner(self.twin, nodes, line.slope[:, 0]))
        return bound, slope, goals.score

    def _standard(self, nodes: Nodes, intervals: list[LayerBounds], rows: Array, linear: Array, required: Array) -> Array:
        """Return lower bounds (N,) of rows (N, 2), one a box, by the standard relaxation. If that takes long, and the linear bound
        is less than `required` (N,), interval bounds of the hidden layers are used: the box will be cut anyway."""
        standard, at_once = self.bounds.standard, self.bounds.progress.at_once
        zeros, boxes = np.zeros(len(nodes)), np.arange(len(nodes))
        if at_once >= CHEAP:
            return standard.lower(nodes, intervals, boxes, rows, zeros, required)
        lower = standard.by_intervals(nodes, intervals, boxes, rows, zeros)
        left = np.flatnonzero((linear >= required) & ~(lower > required))
        for start in range(0, len(left), at_once):
            part = left[start : start + at_once]
            if self.deadline.left() > 0:
                lower[part] = np.maximum(lower[part], standard.by_intervals(nodes, None, part, rows[part], zeros[part]))
        return lower

    def _shown(self, box: Integers, direction: Integers, w: Array, m: Array, bounds: Array) -> Array:
        """Record the gaps that lines a - m b <= w (N,) prove for boxes in one direction each (N,); returns bounds of their gaps.

        bounds: (N,) on the gaps by lines of the parents. They hold for the halves too, but only a leaf at the parent can prove
        them.
        """
        if self.logit:  # the constant that is claimed is rounded as well
            gap = np.maximum(w, 0.0) * (1 + 4 * self.twin.rate + 1e-12)
        else:
            gap = gap_below(w, m, self.known, bounds)
            gap = np.where((gap < 1) & (w <= conjugate(np.minimum(gap, 1 - SLACK), m)), gap, np.inf)
        improved = np.flatnonzero(gap < self.gap[box, direction])
        index = box[improved], direction[improved]
        self.gap[index], self.line[index] = gap[improved], m[improved]
        return np.fmin(bounds, gap)

    def _meet(self, box: Integers, nodes: Nodes, point: Array) -> None:
        """Keep legal points (N, v) of boxes (N,) with larger gaps than those kept so far."""
        falls = self.bounds.falls(nodes.question, point)
        improved = np.flatnonzero(np.abs(falls) > np.abs(self.fall[box]))
        improved = improved[legal_pairs(self.twin, nodes.question[improved], point[improved])]
        self.point[box[improved]], self.fall[box[improved]] = point[improved], falls[improved]
