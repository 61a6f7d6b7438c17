"""Local search for the largest gap of a tree ensemble: a lower bound of it, and the row that reaches it.

A point has a cell of each variable, and a row in these cells: a variable that moves takes the largest value of its new cell, and
all others keep theirs, so that a row that is legal at first stays so. One variable after the other moves to the cell with the
largest gap, until none helps; then some of the best points are changed in a few variables, and climb again.
Sound? it only proposes points.   Complete? no: it ends in local maxima.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from encoders.arrays import Array, Integers
from encoders.problem import TwinProblem
from encoders.trees.compiled import COMPILED, compiled, held, real
from encoders.trees.joint import holds
from encoders.trees.mean import MeanOfTrees
from encoders.trees.twin import TreeTwin
from solvers import clock
from verifair.engine.search.boxes import legal_pairs

STARTS, KEPT, CHANGED = 64 if COMPILED else 4, 32, 3
"""Points that climb at a time, best points that are kept, and about how many variables of one are changed."""
PATIENCE = 8
"""The search ends after so many rounds without a better point, or after as many as the best one took, if that is more."""
A_SUM = 2.4
"""Multiplications that take as long as adding one tree's leaf to a sum; twice as long where there are more than two sums."""
COPIES = np.eye(2)


class Ascent:
    """The best points so far: questions (K,), cells (K, V), raw rows (K, V) in them, and gaps (K,), the largest first."""

    def __init__(self, problem: TwinProblem, logit: bool, rng: np.random.Generator) -> None:
        self.twin, self.logit, self.rng = TreeTwin.of(problem), logit, rng
        batch = problem.batch
        questions = np.arange(len(batch))
        self.first, self.last = self.twin.boxes(questions, batch.lower[:, self.twin.variables], batch.upper[:, self.twin.variables])
        self.question, self.gap = questions[:0], np.empty(0)
        self.cells, self.raw = self.first[:0], batch.lower[:0]

    @property
    def best(self) -> float:
        """The largest gap so far, by float64 evaluation."""
        return float(self.gap[0]) if len(self.gap) else -np.inf

    def run(self, ended: Callable[[], bool]) -> None:
        """Climb from random points, then from changed ones, until PATIENCE is over or the search has `ended`."""
        rounds = last = 0
        while rounds < 2 * last + PATIENCE and (rounds == 0 or not ended()):
            previous, rounds = self.best, rounds + 1
            question = self.rng.integers(len(self.first), size=STARTS)
            cells = self._anywhere(question)
            raw = self._raw(question, cells)
            if len(self.gap):
                old = self.rng.integers(len(self.gap), size=STARTS)
                keep = self.rng.random(cells.shape) * cells.shape[1] >= CHANGED
                question, cells = self.question[old], np.where(keep, self.cells[old], self._anywhere(self.question[old]))
                raw = np.where(keep, self.raw[old], self._raw(question, cells))
            self.climb(question, cells, raw, ended)
            last = rounds if self.best > previous else last

    def from_rows(self, question: Integers, raw: Array) -> None:
        """Climb from raw rows (N, V) of questions."""
        cells = self.twin.cells.of_boxes(raw, raw)[0]
        self.climb(question, np.clip(cells, self.first[question], self.last[question]), raw.copy(), lambda: False)

    def climb(self, question: Integers, cells: Integers, raw: Array, ended: Callable[[], bool]) -> None:
        """Move points, given by cells and raw rows (N, V), along one variable after the other while that helps; keep the best."""
        gap, moves = np.full(len(question), -np.inf), (self.first < self.last).any(axis=0)
        moving = np.flatnonzero(moves | ~moves.any())
        while True:
            previous = gap.copy()
            for v in self.rng.permutation(moving).tolist():
                cell, value, gaps = self._along(question, cells, raw, v)
                best = np.arange(len(cells)), gaps.argmax(axis=1)
                better = gaps[best] > gap
                cells[better, v], raw[better, v], gap[better] = cell[best][better], value[best][better], gaps[best][better]
            if not (gap > previous).any() or ended():
                break
        finite, old = gap > -np.inf, (self.question, self.cells, self.raw, self.gap)
        new = question[finite], cells[finite], raw[finite], gap[finite]
        question, cells, raw, gap = (np.concatenate(pair) for pair in zip(old, new, strict=True))
        _, unique = np.unique(np.column_stack([question, cells]), axis=0, return_index=True)
        order = unique[np.argsort(-gap[unique], kind="stable")[:KEPT]]
        self.question, self.cells, self.raw, self.gap = question[order], cells[order], raw[order], gap[order]

    def found(self) -> tuple[int, int, Array]:
        """Return the question of the best point, its direction (0: a fall from x to x'), and the raw point (V,); any point if none
        is legal."""
        if not len(self.gap):
            return 0, 0, self.twin.problem.batch.lower[0]
        question, raw = self.question[:1], self.raw[:1]
        g, g_prime = self.twin.evaluate(question, self.twin.local.encode(raw[:, self.twin.variables]))[0]
        return int(question[0]), int(g < g_prime), raw[0]

    def _anywhere(self, question: Integers) -> Integers:
        return np.asarray(self.rng.integers(self.first[question], self.last[question] + 1))

    def _raw(self, question: Integers, cells: Integers) -> Array:
        batch = self.twin.problem.batch
        return self.twin.cells.within(cells, batch.lower[question], batch.upper[question])

    def _along(self, question: Integers, cells: Integers, raw: Array, v: int) -> tuple[Integers, Array, Array]:
        """Return the cells (N, C) of a variable, a value in each, and the gaps of points with these values; -inf for rows that are
        not legal."""
        first, last = self.first[question, v], self.last[question, v]
        width = int((last - first).max()) + 1
        margins = np.empty((len(cells), width, 2))
        for pair in np.unique(self.twin.pair_of[question]).tolist():
            selected = np.flatnonzero(self.twin.pair_of[question] == pair)
            lines = self.twin.copies(pair, COPIES)
            trees = lines.trees
            sums = profiles(trees.variable, trees.cut, trees.right, trees.root, trees.sets, trees.hot, lines.adds, lines.base,
                             held(cells[selected]), v, held(first[selected]), held(last[selected]), width)
            margins[selected] = self._margins(np.reshape(sums, (-1, len(lines.base)))).reshape(len(selected), width, 2)
            a_sum = A_SUM if len(lines.base) == 2 else 2 * A_SUM
            clock.spend(len(selected) * (2 * self.twin.ensemble.work + int(a_sum * len(trees.root) * len(lines.base) * width)))
        values = margins if self.logit else expit(margins)
        gaps = np.abs(values[:, :, 0] - values[:, :, 1])
        cell = first[:, None] + np.arange(width)
        gaps[cell > last[:, None]] = -np.inf
        batch = self.twin.problem.batch
        ends = batch.lower[question, v, None], batch.upper[question, v, None]
        value = np.where(cell == cells[:, [v]], raw[:, [v]], self.twin.cells.values(v, np.minimum(cell, last[:, None]), *ends))
        if self.twin.problem.domain.forbidden is not None:
            rows, questions = np.repeat(raw, width, axis=0), np.repeat(question, width)
            rows[:, v] = value.reshape(-1)
            gaps[~legal_pairs(self.twin, questions, rows[:, self.twin.variables]).reshape(gaps.shape)] = -np.inf
        return cell, value, gaps

    def _margins(self, sums: Array) -> Array:
        """Return both margins (N, 2) from the sums of the trees (N, lines)."""
        network = self.twin.problem.network
        if not isinstance(network, MeanOfTrees):
            return sums
        scores = sums[:, : 2 * network.trees.outputs].reshape(-1, network.trees.outputs)
        return network.margins(scores).reshape(-1, 2)


@compiled
def profiles(
    variable: Any, cut: Any, right: Any, root: Any, sets: Any, hot: Any, adds: Any, base: Any, points: Any, v: Any, first: Any,
    last: Any, width: Any,
) -> Any:
    """Return all S lines of N points (N, V) with the cells first ... last (N,) of variable v, flat (N, width, S). Every tree is
    followed once for all cells up to the next one at which its path may change."""
    lines = len(base)
    sums, variables = real(lines * len(first) * width), len(hot)
    for k in range(len(first)):
        offset, place, count = k * variables, lines * k * width, last[k] - first[k] + 1
        for x in range(count):
            for s in range(lines):
                sums[place + lines * x + s] = base[s]
        for t in range(len(root)):
            x = 0
            while x < count:
                j, end = root[t], count
                u = variable[j]
                while u >= 0:
                    c, cell = cut[j], first[k] + x if u == v else points[offset + u]
                    if hot[u] > 0:
                        to_left = holds(sets, c, cell)
                        if u == v:
                            end = x + 1
                    else:
                        to_left = cell <= c
                        if u == v and to_left:
                            end = min(end, c + 1 - first[k])
                    j = j + 1 if to_left else right[j]
                    u = variable[j]
                leaf = lines * cut[j]
                if lines == 2:      # most often, and twice as fast
                    for y in range(x, end):
                        sums[place + 2 * y] += adds[leaf]
                        sums[place + 2 * y + 1] += adds[leaf + 1]
                else:
                    for y in range(x, end):
                        for s in range(lines):
                            sums[place + lines * y + s] += adds[leaf + s]
                x = end
    return sums
