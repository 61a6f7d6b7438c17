"""The state of a branch and bound: which goals of which questions are decided, and their evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.difference import GoalBounds, mixed_goals
from encoders.bounds.relu import LayerBounds
from encoders.evaluate import seems_unmet, settled_goals
from encoders.problem import TwinCopies, TwinProblem
from verifair.engine.search.boxes import Nodes, legal_pairs, rows_at
from verifair.engine.search.float32 import Float32Rule
from verifair.engine.search.trees import GoalTrees, ProofTrees

OPEN, PROVED, VIOLATED, SHORT = 0, 1, 2, 3
OUT_OF_NODES = "nodes"
"""SHORT: float32 was asked for, but the goal is proved for the real-valued function only."""
MAX_WIDE = 10
"""Real features of a box too small to be cut whose two ends are all tried: 1,024 corners."""


class BatchDecision:
    """The decisions on Q questions with G goals each, as branch-and-bound updates them.

    status: (Q, G) OPEN, PROVED, VIOLATED or SHORT.   lower: (Q, G) certified lower bound of the goal's best row over the box.
    upper: (Q, G) least value of the goal's best row met at any point.   witness: (Q, G, V) raw points x, NaN where none.
    margins: (Q, G, 2) g(x), g(x') at the witness.   nodes: (Q,) boxes bounded.   out_of: (Q,) '', 'time', 'nodes' or 'float'.
    trees: the proofs.   pending: (Q, G) open boxes of each goal.   float32: (Q, G) True if all leaves so far hold in float32.
    extra_cuts: (Q, G) boxes that were proved, and cut further so that the proof may hold in float32.
    """

    def __init__(
        self, twin: TwinCopies, goal_rows: GoalRows, group: Integers | None, trees: ProofTrees | GoalTrees
    ) -> None:
        self.problem, self.twin, self.goal_rows = twin.problem, twin, goal_rows
        count, goals = len(self.problem.batch), len(self.problem.goals)
        self.grouped = group is not None
        self.group = np.arange(count) if group is None else group
        self.refuted = np.zeros(int(self.group.max(initial=-1)) + 1, dtype=bool)
        self.status = np.zeros((count, goals), dtype=np.int8)
        self.pending = np.ones((count, goals), dtype=np.int64)
        self.root_lower = np.full((count, goals), -np.inf)
        self.leaf_lower = np.full((count, goals), np.inf)
        self.upper = np.full((count, goals), np.inf)
        self.witness = np.full((count, goals, self.problem.domain.variables), np.nan)
        self.margins = np.full((count, goals, 2), np.nan)
        self.nodes = np.zeros(count, dtype=np.int64)
        self.out_of = np.full(count, "", dtype="<U5")
        self.trees = trees
        self.rule = Float32Rule.of(twin)
        self.float32 = np.full((count, goals), self.rule.error is not None)
        self.extra_cuts = np.zeros((count, goals), dtype=np.int64)
        self.noise = twin.noise

    def finished(self) -> Booleans:
        """Return (Q,) True for questions that need no more work."""
        return np.asarray((self.status != OPEN).all(axis=1) | (self.out_of != "") | self.refuted[self.group])

    def give_up(self, questions: Integers | None, out_of: str) -> None:
        if questions is not None:
            remaining = questions[(self.status[questions] == OPEN).any(axis=1)]
            self.out_of[remaining] = out_of

    def still_open(self, nodes: Nodes) -> Nodes:
        return self.alive(nodes)[0]

    def alive(self, nodes: Nodes) -> tuple[Nodes, Integers]:
        """Return the boxes in which some goal is still to be decided, and their positions."""
        q = nodes.question
        undecided = (self.out_of[q] == "") & ~self.refuted[self.group[q]]
        alive = nodes.open & (self.status[q] == OPEN) & undecided[:, None]
        kept = np.flatnonzero(alive.any(axis=1))
        return replace(nodes.take(kept), open=alive[kept]), kept

    def look_at(self, nodes: Nodes, point: Array) -> Array:
        """Evaluate one raw point (N, v) a box; points at which an open goal seems to fail are confirmed exactly. Returns the
        margins (N, 2)."""
        margins = self.twin.evaluate(nodes.question, self.twin.local.encode(point))
        values = margins @ self.problem.rows.T + self.problem.constants
        best = self.goal_rows.largest(values)
        legal = legal_pairs(self.twin, nodes.question, point)
        if self.problem.float32:
            self._note_short(nodes.take(legal), margins[legal], point[legal])
        np.minimum.at(self.upper, nodes.question, np.where(nodes.open & legal[:, None], best, np.inf))
        failing = seems_unmet(self.problem, margins, self.noise[nodes.question])
        index = np.flatnonzero((failing & nodes.open & (self.status[nodes.question] == OPEN)).any(axis=1) & legal)
        if len(index):
            # The clearest candidate of each group is enough: confirming is the expensive part.
            index = index[np.argsort(np.where(nodes.open, best, np.inf).min(axis=1)[index], kind="stable")]
            _, first = np.unique(self.group[nodes.question[index]], return_index=True)
            index = index[first]
            self.confirm(nodes.question[index], point[index])
        return margins

    def _note_short(self, nodes: Nodes, margins: Array, point: Array) -> None:
        """Give up float32 for goals whose rows are within the error at a legal point: no box around that can hold in float32."""
        values = margins @ self.problem.rows.T + self.problem.constants
        candidates = nodes.open & self.float32[nodes.question]
        close = np.flatnonzero((candidates & (self.goal_rows.largest(values - self.rule.widest * self.rule.size) <= 0)).any(axis=1))
        if len(close):
            error = self.rule.at(nodes.question[close], point[close])
            best = self.goal_rows.largest(values[close] - error[:, None] * self.rule.size) + self.noise[nodes.question[close], None]
            index, goal = np.nonzero(candidates[close] & (best < 0))
            self.float32[nodes.question[close[index]], goal] = False

    def surely(self, nodes: Nodes, best: BestRows, bounds: Callable[[Integers], Sequence[LayerBounds]]) -> Booleans:
        """Return the result of `Float32Rule.surely` for the goals that may still hold in float32."""
        candidates = nodes.open & self.float32[nodes.question]
        return self.rule.surely(replace(nodes, open=candidates), best.lower, best.size, bounds)

    def surely_at(self, question: Integers, point: Array, margins: Array) -> Booleans:
        """Return (N, G) True for goals that hold in float32 at points with these margins (N, 2)."""
        values = margins @ self.problem.rows.T + self.problem.constants - self.noise[question, None]
        return np.asarray(self.goal_rows.largest(values - self.rule.at(question, point)[:, None] * self.rule.size) > 0)

    def confirm(self, question: Integers, point: Array) -> tuple[Booleans, Array, Array]:
        """Decide goals exactly at raw legal points of different questions; goals that surely fail become VIOLATED. Return (N, G)
        True for goals that are met (for a smooth network a goal may be neither, and stays open), a lower bound (N, G) of each
        goal's best row there, and the margins (N, 2)."""
        raw = rows_at(self.twin, question, point)
        met, unmet, margins = settled_goals(self.problem, question, raw)
        index, goal = np.nonzero(unmet & (self.status[question] == OPEN))
        self.status[question[index], goal] = VIOLATED
        self.witness[question[index], goal] = raw[index]
        self.margins[question[index], goal] = margins[index]
        self.pending[question[index], goal] = 0
        if self.grouped:
            self.refuted[self.group[question[index]]] = True
        values = self.goal_rows.largest(margins @ self.problem.rows.T + self.problem.constants)
        return met, values - self.noise[question, None], margins

    def close(
        self, ids: Integers, question: Integers, goal: Integers, lower: Array, float32: Booleans | bool
    ) -> None:
        """Record a proof: the best lower bound (inf: no row is legal), and whether the goal holds in float32."""
        self.trees.close(ids, goal)
        np.minimum.at(self.leaf_lower, (question, goal), lower)
        np.logical_and.at(self.float32, (question, goal), float32)
        np.subtract.at(self.pending, (question, goal), 1)
        finished = (self.pending[question, goal] == 0) & (self.status[question, goal] == OPEN)
        question, goal = question[finished], goal[finished]
        self.status[question, goal] = np.where(self.problem.float32 & ~self.float32[question, goal], SHORT, PROVED)

    def close_impossible(self, ids: Integers, question: Integers, goal: Integers) -> None:
        """Record that boxes hold no legal row: nothing is claimed there, and nothing bounded."""
        self.close(ids, question, goal, np.full(len(ids), np.inf), self.rule.error is not None)

    def close_one(self, node: Nodes, met: Booleans, lower: Array, float32: Booleans) -> None:
        """Record the goals (G,) that exact evaluation has shown to be met throughout a single box, with their least rows (G,), and
        whether they hold in float32."""
        goals = np.flatnonzero(met & node.open[0] & (self.status[node.question[0]] == OPEN))
        ids, question = np.repeat(node.ids, len(goals)), np.repeat(node.question, len(goals))
        self.close(ids, question, goals, lower[goals], float32[goals])

    def decide_corners(self, nodes: Nodes) -> None:
        """Decide boxes whose real features hold two neighbouring float64 each, by their corners, which are all their points."""
        for k in range(len(nodes)):
            node = nodes.take(np.array([k]))
            wide = np.flatnonzero(node.lower[0] < node.upper[0])
            if len(wide) > MAX_WIDE:
                self.give_up(node.question, "float")
                continue
            met, lower = np.ones(len(self.problem.goals), dtype=bool), np.full(len(self.problem.goals), np.inf)
            float32 = met
            for bits in product((False, True), repeat=len(wide)):
                point = node.lower.copy()
                point[0, wide] = np.where(bits, node.upper[0, wide], node.lower[0, wide])
                if legal_pairs(self.twin, node.question, point)[0]:
                    holds, value, margins = self.confirm(node.question, point)
                    met, lower = met & holds[0], np.minimum(lower, value[0])
                    float32 = float32 & self.surely_at(node.question, point, margins)[0]
            self.close_one(node, met, lower, float32)

    def margin(self, question: int, goal: int) -> float | None:
        """Return a lower bound of the row of a proved goal; None for a goal of several rows, as its proof only says that some row
        is met. It is a little less than the proved bound, as the checker rounds differently."""
        lower = (1 - ROUNDED) * float(self.leaf_lower[question, goal])
        return (max(lower, 0.0) if np.isfinite(lower) else 0.0) if self.goal_rows.single[goal] else None

    @cached_property
    def lower(self) -> Array:
        """(Q, G) the bound of the whole box, or the least of a finished proof's leaves. Valid once the run has ended."""
        leaves = np.where((self.status == PROVED) & np.isfinite(self.leaf_lower), self.leaf_lower, -np.inf)  # inf: no legal row
        return np.asarray(np.maximum(self.root_lower, leaves))


ROUNDED = 1e-6
"""Share of a proved margin that is not stated: the checker accepts no margin larger than its own bound."""
FEW = 3
"""For goals of up to so many rows all rows are bounded, by the checker as well. For goals of more, the likeliest rows are chosen in
each box, and a proof names those that closed it."""

MIXTURES = {
    2: np.array([[0.5, 0.5, 0], [0.25, 0.75, 0], [0.75, 0.25, 0]]),
    3: np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5], [0.25, 0, 0.75], [0, 0.25, 0.75], [0.25, 0.25, 0.5]]),
}
"""Number of a goal's rows -> convex combinations of them that are bounded as well; they cost next to nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BestRows:
    """The combination of rows that is nearest to closing each goal: rows (N, G, 3) of the problem and weights (N, G, 3), mostly one
    row alone. lower: (N, G) its bound, -inf where nothing was bounded.   size: (N, G) its |p| + |q|.

    proved: (N, G) True if the bound closes the goal.
    """

    rows: Integers
    weights: Array
    lower: Array
    size: Array
    proved: Booleans


@dataclass(frozen=True, kw_only=True, eq=False)
class ChosenRows:
    """Rows of a problem for a batch of boxes: their positions (B, S), and the goal (S,) that each belongs to."""

    index: Integers
    goal: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class GoalRows:
    """The rows (R, 2) of a problem's goals, constants and strictness (R,), and sizes (R,) |p| + |q|, 1 where both are 0.

    first: (G,) position of each goal's first row.   single, many: (G,) True for goals of one row, of more than FEW.   lone: (R,)
    True for rows of one copy.
    """

    rows: Array
    constants: Array
    strict: Booleans
    size: Array
    every: ChosenRows
    first: Integers
    single: Booleans
    many: Booleans
    lone: Booleans

    @classmethod
    def of(cls, problem: TwinProblem) -> GoalRows:
        count, size = np.array([len(goal.rows) for goal in problem.goals]), np.abs(problem.rows).sum(axis=1)
        return cls(
            rows=problem.rows, constants=problem.constants, strict=problem.strict, size=np.where(size == 0, 1.0, size),
            every=ChosenRows(index=np.arange(len(problem.rows))[None], goal=problem.goal_of), first=np.cumsum(count) - count,
            single=count == 1, many=count > FEW, lone=np.count_nonzero(problem.rows, axis=1) == 1,
        )

    @cached_property
    def alone(self) -> bool:
        """True if rows of one copy suffice: every other row is at most a sum of these, so one of them holds wherever it does."""
        sides = np.stack([self.rows[:, 0] > 0, self.rows[:, 0] < 0, self.rows[:, 1] > 0, self.rows[:, 1] < 0], axis=1)
        largest = np.where(sides & self.lone[:, None], (self.constants / self.size)[:, None], -np.inf)
        largest = np.maximum.reduceat(largest, self.first)[self.every.goal]
        sums = (np.repeat(np.abs(self.rows), 2, axis=1) * np.where(sides, largest, 0.0)).sum(axis=1)
        return bool((self.lone | (self.constants <= sums)).all())

    def largest(self, values: Array) -> Array:
        """Return (B, G) the largest row of each goal, from values or bounds (B, R)."""
        return np.maximum.reduceat(values, self.first, axis=1)

    def best(self, lower: Array, chosen: ChosenRows | None = None) -> BestRows:
        """Return the row of each goal whose lower bound (B, S) is largest relative to its size, of all rows or of the chosen ones.

        A single row has to close a goal; this one exceeds the rounding error of float32 by most.
        """
        chosen = chosen or self.every
        index = np.broadcast_to(chosen.index, lower.shape)
        row = np.full((len(lower), len(self.first)), -1)
        bounds = np.full(row.shape, -np.inf)
        for goal in np.unique(chosen.goal):
            places = np.flatnonzero(chosen.goal == goal)
            pick = (lower[:, places] / self.size[index[:, places]]).argmax(axis=1) if len(places) > 1 else 0
            row[:, goal], bounds[:, goal] = (array[np.arange(len(lower)), places[pick]] for array in (index, lower))
        return self.decided(row, bounds)

    def decided(self, row: Integers, lower: Array) -> BestRows:
        """Return the goals that lower bounds (B, G) of single rows (B, G) prove."""
        rows, weights = np.repeat(row[:, :, None], 3, axis=2), np.zeros((*row.shape, 3))
        weights[:, :, 0] = 1.0
        proved = np.where(self.strict[row], lower > 0, lower >= 0)
        return BestRows(rows=rows, weights=weights, lower=lower, size=self.size[row], proved=proved)

    def mixed(self, bounds: GoalBounds, radius: Array, chosen: ChosenRows, goal: int) -> tuple[Integers, Array, Array]:
        """Return the rows (B, 3) of a goal and the weights (B, 3) of their best mixture, with its lower bound (B,)."""
        places = np.flatnonzero(chosen.goal == goal)
        part = replace(bounds, lower=bounds.lower[:, places], slope=bounds.slope[:, places], base=bounds.base[:, places])
        mixtures, rows = MIXTURES[len(places)], chosen.index[:, np.resize(places, 3)]
        lower = mixed_goals(part, radius, mixtures[:, : len(places)])
        best = (lower / (self.size[rows] @ mixtures.T)).argmax(axis=1)
        return rows, mixtures[best], lower[np.arange(len(best)), best]

    def values(self, chosen: ChosenRows, margins: Array) -> Array:
        """Return (B, S) the rows' values at margins (B, 2)."""
        return np.asarray(np.einsum("bi,bsi->bs", margins, self.rows[chosen.index]) + self.constants[chosen.index])

    def named(self, best: BestRows, index: Integers, goal: Integers) -> tuple[Booleans, Integers, Array]:
        """Return (N,) True for goals, at positions `index`, whose proofs name rows: goals of many rows, and those closed by a
        mixture. Also return their rows (M, 3), counted within the goal, and weights (M, 3)."""
        is_named = self.many[goal] | (best.weights[index, goal, 0] < 1)
        entries = index[is_named], goal[is_named]
        return is_named, best.rows[entries] - self.first[entries[1]][:, None], best.weights[entries]

    def choose(self, goals: Integers, rough: Array | None, margins: Array) -> ChosenRows:
        """Return rows of the given goals to be bounded. rough: interval bounds (B, R) of all rows, needed if some goal has many.
        margins: (B, 2) at the boxes' centres.

        Of many rows two are chosen: the one with the best interval bound, and the one with the best value at the centre.
        """
        index, owner = [], []
        for goal in goals:
            places = np.flatnonzero(self.every.goal == goal)
            if self.many[goal] and rough is not None:
                at_centre = margins @ self.rows[places].T + self.constants[places]
                picks = np.stack(
                    [places[(values / self.size[places]).argmax(axis=1)] for values in (rough[:, places], at_centre)], axis=1
                )
            else:
                picks = np.broadcast_to(places, (len(margins), len(places)))
            index.append(picks)
            owner += [goal] * picks.shape[1]
        return ChosenRows(index=np.concatenate(index, axis=1), goal=np.array(owner))
