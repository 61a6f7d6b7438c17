"""Bounds of lines of a margin over boxes, the sums of every tree's least leaf, and the best cuts of boxes.

A line  p g(x, z) + q g(x, z')  of two copies with protected values z and z' is bounded by `JointTrees`. The score of a cut is the
sum, over the splits there, of | least of the left branch - least of the right one |.
Sound? yes.   Complete? for a box within one cell the bounds are the values, up to the rounding of `joint`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.model import Model
from encoders.trees.cells import TreeCells
from encoders.trees.compared import ComparedTrees, least_margins
from encoders.trees.compiled import compiled, held, narrow, real, whole
from encoders.trees.ensemble import BY_TIE
from encoders.trees.joint import JointTrees, LineTrees, between, holds, line_trees, some
from encoders.trees.mean import MeanOfTrees
from encoders.trees.stairs import searched

INFINITE = float("inf")
SCORES = 1 << 22
"""Numbers in memory at once for the choice of cuts."""
Signs = Literal["deployed", "strict"]
"""Cuts have a score only where the sign of the margin is open: positive or not; or positive, 0 or negative."""
MODES: dict[Signs | None, int] = {None: 0, "deployed": 1, "strict": 2}


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeLines:
    """S lines of P pairs of copies. trees: of each pair.   cells: nodes about protected variables belong to variable -2.

    rows: (S, 2).   compared: for margins of several classes, where every pair of classes has lines of its own, or of a mean, where
    every score has.   by_tie: of each pair of classes, what a bound of 0 of their difference stands for; 0 where it is one.
    owner: (C,) the variable of each value after which a box can be cut.   at: (C,) these values, raw.
    """

    cells: TreeCells
    trees: tuple[LineTrees, ...]
    rows: Array
    compared: ComparedTrees | None
    by_tie: Array
    owner: Integers
    at: Array

    @classmethod
    def of(
        cls, model: Model, domain: Domain, protected: Integers, margin: Array,
        pairs: Sequence[tuple[Array, Array]], lines: Array,
    ) -> TreeLines:
        """Return the lines. pairs: two raw rows (V,) each, of which only protected entries are used.   lines: (S, 2).   margin:
        (m,)."""
        compared, margins, by_tie, ensemble = None, [margin], np.zeros(1), model.ensemble
        if isinstance(model, MeanOfTrees):
            rows = np.concatenate([np.stack(pair) for pair in pairs])
            ensemble = searched(model, domain, np.where(np.isin(np.arange(domain.variables), protected), rows, np.nan))
        elif isinstance(model, ComparedTrees):
            compared, unit = model, np.eye(model.undecided.outputs)
            classes = list(product(*model.sides))
            margins = [unit[a] - unit[b] for a, b in classes]
            by_tie = model.decision.lowest * np.array([BY_TIE if a < b else -BY_TIE for a, b in classes])
        assert ensemble is not None, type(model)
        cells = TreeCells.of(ensemble, domain)
        cells = replace(cells, variable=np.where(np.isin(cells.variable, protected), -2, cells.variable))
        differing, column = cells.variable == -2, np.maximum(ensemble.column, 0)
        trees = []
        for pair in pairs:
            left = [differing & (row[column] <= ensemble.threshold) for row in domain.encode(np.stack(pair))]
            joint = JointTrees.of(ensemble, cells, left[0], left[1])
            if isinstance(model, MeanOfTrees):
                leaves_of = joint.scores(model.trees.outputs, lines)
            else:
                leaves_of = [[joint.terms(m).rounded(float(p), float(q)) for m in margins] for p, q in lines]
            trees.append(line_trees(joint.trees, [leaves for line in leaves_of for leaves in line]))
        count = [cells.count(v) for v in range(domain.variables)]
        values = [np.arange(count[v], dtype=np.float64) if domain.one_hot[v] else np.append(cuts, np.inf)
              for v, cuts in enumerate(cells.cuts)]
        return cls(
            cells=cells, trees=tuple(trees), rows=lines, compared=compared, by_tie=by_tie,
            owner=np.repeat(np.arange(domain.variables), count), at=np.concatenate(values),
        )

    def least(self, lower: Array, upper: Array, above: Booleans, *, undecided: Signs | None = None) -> tuple[Array, Array, Array]:
        """Return lower bounds (B, P, S) over raw boxes (B, V), for a mean those (B, P, S m) of its scores; the score of the best
        cut of every variable (B, V), and its value (B, V), NaN without one. above: (B, V) lower ends left out.

        undecided: cuts have scores only for pairs whose sign is open by this rule; the lines have to be g and -g, of no log-odds.
        """
        step = max(1, SCORES // len(self.at))
        parts = [self._least(lower[i : i + step], upper[i : i + step], above[i : i + step], undecided)
                 for i in range(0, len(lower), step)]
        bounds, score, cut = (np.concatenate(part) for part in zip(*parts, strict=True))
        return bounds, score, cut

    def _least(self, lower: Array, upper: Array, above: Booleans, undecided: Signs | None) -> tuple[Array, Array, Array]:
        first, last = self.cells.of_boxes(lower, upper, above=above)
        variables = len(self.cells.cuts)
        start = np.searchsorted(self.owner, np.arange(variables + 1))
        low, high, starts, scores = held(first), held(last), held(start), held(np.zeros(len(lower) * len(self.at)))
        inside, outside = (1, 1) if self.compared is None else map(len, self.compared.sides)
        ties = np.outer(np.where((self.rows == 0).any(axis=1), self.rows.sum(axis=1), 0.0), self.by_tie).ravel()
        results = []
        for line_tree in self.trees:
            trees = line_tree.trees
            bounds = extremes(
                trees.variable, trees.cut, trees.right, trees.root, trees.sets, trees.hot, line_tree.adds, len(line_tree.base),
                line_tree.base, held(ties), len(ties), len(lower), low, high, starts, MODES[undecided], inside, outside, scores,
            )
            results.append(self._margins(np.asarray(bounds).reshape(len(lower), len(self.rows), -1, outside)))
        sums = np.asarray(scores).reshape(len(lower), -1)
        score, cuts = np.zeros((len(lower), variables)), np.full((len(lower), variables), np.nan)
        for v in range(variables):
            part = sums[:, start[v] : start[v + 1]]
            best = part.argmax(axis=1)
            score[:, v] = part[np.arange(len(part)), best]
            cuts[:, v] = np.where(score[:, v] > 0, self.at[start[v] + best], np.nan)
        return np.stack(results, axis=1), score, cuts

    def _margins(self, lower: Array) -> Array:
        """Return bounds (B, S) of lines of the margin, from those of pairs of classes (B, S, inside, outside); for a mean (B, S
        m)."""
        if self.compared is None:
            return lower.reshape(len(lower), -1)
        odds = self.compared.decision.odds
        return np.stack([least_margins(lower[:, s], p, q, odds=odds) for s, (p, q) in enumerate(self.rows.tolist())], axis=1)


@compiled
def pruned(
    j: Any, variable: Any, cut: Any, right: Any, to_variable: Any, to_cut: Any, to_right: Any, top: Any, first: Any, last: Any,
    offset: Any, hot: Any, sets: Any, adds: Any, lines: Any, least: Any, stack: Any,
) -> Any:
    """Copy the tree at node j to `top`, without nodes that the box at `offset` cannot meet; return the copy's end.   least: (S,)
    is filled with the least values of its leaves."""
    for s in range(lines):
        least[s] = INFINITE
    count, patch = 0, -1
    while True:
        v = variable[j]
        while v >= 0:
            a, b, c = first[offset + v], last[offset + v], cut[j]
            if hot[v] == 1:
                box = between(a, b)
                some_left, some_right = sets[c] & box != 0, sets[c + 1] & box != 0
            elif hot[v] > 1:
                some_left, some_right = some(sets, c, a, b), some(sets, c + hot[v], a, b)
            else:
                some_left, some_right = a <= c, b > c
            if some_left and some_right:
                break
            j = j + 1 if some_left else right[j]
            v = variable[j]
        if patch >= 0:
            to_right[patch] = top
            patch = -1
        to_variable[top], to_cut[top] = v, cut[j]
        if v >= 0:
            stack[count], stack[count + 1] = right[j], top
            count += 2
            j, top = j + 1, top + 1
        else:
            k = cut[j] * lines
            for s in range(lines):
                if adds[k + s] < least[s]:
                    least[s] = adds[k + s]
            top += 1
            if count == 0:
                return top
            count -= 2
            j, patch = stack[count], stack[count + 1]


@compiled
def extremes(
    variable: Any, cut: Any, right: Any, root: Any, sets: Any, hot: Any, adds: Any, lines: Any, base: Any, ties: Any,
    tied: Any, boxes: Any, first: Any, last: Any, start: Any, undecided: Any, inside: Any, outside: Any, score: Any,
) -> Any:
    """Bound lines over N boxes from below (N, S).

    variable ... hot: `Preorder`.   adds, lines, base: `LineTrees`.   first, last: (N, V) cells.   undecided: of `MODES`.
    ties: (tied,) in place of bounds of 0, of the first lines.
    inside, outside: numbers of classes on both sides of the margin, each pair of which has a line; 1 for a margin that is a sum.
    score: (N, start[V]), to which the scores of all cuts are added, those of v from start[v] on.
    """
    count, trees, size = len(hot), len(root), len(variable)
    a_variable, a_cut, a_right, least_at = narrow(size), narrow(size), narrow(size), real(size * lines)
    stack, least, ends, bounds = whole(2 * size + 2), real(lines), whole(2 * trees), real(lines * boxes)
    for k in range(boxes):
        top, kept, offset, place = 0, 0, k * count, k * start[count]
        for s in range(lines):
            bounds[k * lines + s] = base[s]
        for t in range(trees):
            end = pruned(root[t], variable, cut, right, a_variable, a_cut, a_right, top, first, last, offset, hot, sets,
                         adds, lines, least, stack)
            for s in range(lines):
                bounds[k * lines + s] += least[s]
            if end > top + 1:
                ends[2 * kept], ends[2 * kept + 1] = top, end
                kept, top = kept + 1, end
        for s in range(tied):
            if bounds[k * lines + s] == 0:
                bounds[k * lines + s] = ties[s]
        if undecided > 0:
            above, below = INFINITE, INFINITE
            for b in range(outside):
                largest = -INFINITE
                for a in range(inside):
                    largest = max(largest, bounds[k * lines + a * outside + b])
                above = min(above, largest)
            for a in range(inside):
                largest = -INFINITE
                for b in range(outside):
                    largest = max(largest, bounds[k * lines + (inside + a) * outside + b])
                below = min(below, largest)
            if above > 0 or below > 0 or (below >= 0 and (undecided == 1 or above >= 0)):
                continue
        for t in range(kept):
            for j in range(ends[2 * t + 1] - 1, ends[2 * t] - 1, -1):
                v, c = a_variable[j], a_cut[j]
                if v == -1:
                    for s in range(lines):
                        least_at[j * lines + s] = adds[c * lines + s]
                    continue
                difference = 1e-300
                for s in range(lines):
                    left_least, right_least = least_at[(j + 1) * lines + s], least_at[a_right[j] * lines + s]
                    difference += abs(left_least - right_least)
                    least_at[j * lines + s] = min(left_least, right_least)
                if hot[v] == 0:
                    score[place + start[v] + c] += difference
                else:
                    for x in range(first[offset + v], last[offset + v]):
                        if holds(sets, c, x) != holds(sets, c, x + 1):
                            score[place + start[v] + x] += difference
    return bounds
