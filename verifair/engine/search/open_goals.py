"""What branch-and-bound knows at any moment: which goals of which questions are decided, and by what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from encoders.bounds.difference import GoalBounds, mixed_goals
from encoders.bounds.twin import Twin
from encoders.evaluate import seems_unmet, settled_goals
from encoders.network import Array, Booleans, Integers
from encoders.problem import TwinProblem
from verifair.engine.search.boxes import Nodes, legal_pairs, rows_at
from verifair.engine.search.trees import ProofTrees

OPEN, PROVED, VIOLATED = 0, 1, 2
MAX_WIDE = 10
"""Real features of a box too small to be cut whose two ends are all tried: 1,024 corners."""


class BatchDecision:
    """What is decided of Q questions with G goals each; it grows while branch-and-bound is at work.

    status: (Q, G) OPEN, PROVED or VIOLATED.   lower: (Q, G) certified lower bound of the goal's best row over the box.
    upper: (Q, G) least value of the goal's best row met at any point.   witness: (Q, G, V) raw points x, NaN where none.
    margins: (Q, G, 2) g(x), g(x') at the witness.   nodes: (Q,) boxes bounded.   out_of: (Q,) '', 'time', 'nodes' or 'float'.
    trees: the proofs.   pending: (Q, G) open boxes of each goal.
    """

    def __init__(self, twin: Twin, goal_rows: GoalRows, group: Integers | None) -> None:
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
        self.trees = ProofTrees(count, goals)
        # float64 evaluation errs by at most this much: points that close to a tie are worth an exact look as well.
        self.noise = 2 * twin.error[-1][:, 0]

    def finished(self) -> Booleans:
        """Return (Q,) questions that need no more work."""
        return np.asarray((self.status != OPEN).all(axis=1) | (self.out_of != "") | self.refuted[self.group])

    def give_up(self, questions: Integers | None, out_of: str) -> None:
        if questions is not None:
            still = questions[(self.status[questions] == OPEN).any(axis=1)]
            self.out_of[still] = out_of

    def still_open(self, nodes: Nodes) -> Nodes:
        return self.alive(nodes)[0]

    def alive(self, nodes: Nodes) -> tuple[Nodes, Integers]:
        """Return the boxes in which some goal is still to be decided, and their positions."""
        q = nodes.question
        wanted = (self.out_of[q] == "") & ~self.refuted[self.group[q]]
        alive = nodes.open & (self.status[q] == OPEN) & wanted[:, None]
        kept = np.flatnonzero(alive.any(axis=1))
        return replace(nodes.take(kept), open=alive[kept]), kept

    def look_at(self, nodes: Nodes, point: Array) -> Array:
        """Evaluate one raw point (N, v) a box; points at which an open goal seems to fail are confirmed exactly. Returns the
        margins (N, 2)."""
        margins = self.twin.evaluate(nodes.question, self.twin.local.encode(point))
        values = margins @ self.problem.rows.T + self.problem.constants
        best = self.goal_rows.best(values)
        legal = legal_pairs(self.twin, nodes.question, point)
        np.minimum.at(self.upper, nodes.question, np.where(nodes.open & legal[:, None], best, np.inf))
        failing = seems_unmet(self.problem, margins, self.noise[nodes.question])
        index = np.flatnonzero((failing & nodes.open & (self.status[nodes.question] == OPEN)).any(axis=1) & legal)
        if len(index):
            # One candidate a group is enough: confirming is the expensive part.
            _, first = np.unique(self.group[nodes.question[index]], return_index=True)
            index = index[first]
            self.confirm(nodes.question[index], point[index])
        return margins

    def confirm(self, question: Integers, point: Array) -> tuple[Booleans, Array]:
        """Return which goals (N, G) are met at raw legal points of different questions; those that surely fail become VIOLATED (of
        a smooth network a goal may be neither, and stays open). Also a lower bound (N, G) of each goal's best row there."""
        raw = rows_at(self.twin, question, point)
        met, unmet, margins = settled_goals(self.problem, question, raw)
        index, goal = np.nonzero(unmet & (self.status[question] == OPEN))
        self.status[question[index], goal] = VIOLATED
        self.witness[question[index], goal] = raw[index]
        self.margins[question[index], goal] = margins[index]
        self.pending[question[index], goal] = 0
        if self.grouped:
            self.refuted[self.group[question[index]]] = True
        values = self.goal_rows.best(margins @ self.problem.rows.T + self.problem.constants)
        return met, values - self.noise[question, None]

    def close(self, ids: Integers, question: Integers, goal: Integers, bound: Array, lower: Array) -> None:
        """Record a proof: the bound for the certificate (NaN: none is needed) and the best lower bound (inf: no row is legal)."""
        self.trees.close(ids, goal, bound)
        np.minimum.at(self.leaf_lower, (question, goal), lower)
        np.subtract.at(self.pending, (question, goal), 1)
        done = (self.pending[question, goal] == 0) & (self.status[question, goal] == OPEN)
        self.status[question[done], goal[done]] = PROVED

    def close_impossible(self, ids: Integers, question: Integers, goal: Integers) -> None:
        """Record that boxes hold no legal row: nothing is claimed there, and nothing bounded."""
        self.close(ids, question, goal, np.full(len(ids), np.nan), np.full(len(ids), np.inf))

    def close_one(self, one: Nodes, met: Booleans, lower: Array) -> None:
        """Record the goals (G,) that exact evaluation has shown to be met throughout a single box, with their least rows (G,)."""
        goals = np.flatnonzero(met & one.open[0] & (self.status[one.question[0]] == OPEN))
        ids, question = np.repeat(one.ids, len(goals)), np.repeat(one.question, len(goals))
        self.close(ids, question, goals, np.full(len(goals), np.nan), lower[goals])

    def decide_corners(self, nodes: Nodes) -> None:
        """Boxes whose real features hold two neighbouring float64 each: their corners are all their points."""
        for k in range(len(nodes)):
            one = nodes.take(np.array([k]))
            wide = np.flatnonzero(one.lower[0] < one.upper[0])
            if len(wide) > MAX_WIDE:
                self.give_up(one.question, "float")
                continue
            met, lower = np.ones(len(self.problem.goals), dtype=bool), np.full(len(self.problem.goals), np.inf)
            for bits in product((False, True), repeat=len(wide)):
                point = one.lower.copy()
                point[0, wide] = np.where(bits, one.upper[0, wide], one.lower[0, wide])
                if legal_pairs(self.twin, one.question, point)[0]:
                    here, value = self.confirm(one.question, point)
                    met, lower = met & here[0], np.minimum(lower, value[0])
            self.close_one(one, met, lower)

    @cached_property
    def lower(self) -> Array:
        """To be read when the run has ended: the bound of the whole box, or the least of a finished proof's leaves."""
        leaves = np.where((self.status == PROVED) & np.isfinite(self.leaf_lower), self.leaf_lower, -np.inf)  # inf: no legal row
        return np.asarray(np.maximum(self.root_lower, leaves))


FEW = 3
"""Goals of up to so many rows have all of them bounded; of more, the likeliest ones are chosen box by box."""
PICKED = 2
MIXTURES = {
    1: np.empty((0, 1)),
    2: np.array([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]]),
    3: np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5], [0.25, 0, 0.75], [0, 0.25, 0.75], [0.25, 0.25, 0.5]]),
}
"""Convex combinations of a goal's rows that are bounded as well, by their number: they cost next to nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChosenRows:
    """Rows (B, S, 2), constants and strictness (B, S) for a batch of boxes; goal: (S,) that each row belongs to."""

    rows: Array
    constants: Array
    strict: Booleans
    goal: Integers

    def best(self, bounds: GoalBounds, radius: Array, goals: int) -> tuple[Array, Booleans]:
        """Return lower bounds (B, G) of each goal's best row from those chosen, single or mixed, -inf for goals without any; and
        which goals (B, G) they prove."""
        out = np.full((len(radius), goals), -np.inf)
        proved = np.zeros(out.shape, dtype=bool)
        for goal in np.unique(self.goal):
            mine = np.flatnonzero(self.goal == goal)
            part = GoalBounds(
                lower=bounds.lower[:, mine], slope=bounds.slope[:, mine], base=bounds.base[:, mine], score=bounds.score
            )
            weights = np.concatenate([np.eye(len(mine)), MIXTURES[len(mine)]])
            lower = np.concatenate([part.lower, mixed_goals(part, radius, MIXTURES[len(mine)])], axis=1)
            strict = (~self.strict[:, mine]).astype(float) @ weights.T == 0  # see `Goal`: one row that is not is enough
            out[:, goal] = lower.max(axis=1)
            proved[:, goal] = np.where(strict, lower > 0, lower >= 0).any(axis=1)
        return out, proved


@dataclass(frozen=True, kw_only=True, eq=False)
class GoalRows:
    """The rows of a problem's goals: first: (G,) position of each goal's first row; single: (G,) goals of one row."""

    problem: TwinProblem
    first: Integers
    single: Booleans

    @classmethod
    def of(cls, problem: TwinProblem) -> GoalRows:
        first = np.searchsorted(problem.goal_of, np.arange(len(problem.goals)))
        return cls(problem=problem, first=first, single=np.array([len(goal.rows) == 1 for goal in problem.goals]))

    def best(self, values: Array) -> Array:
        """Return (B, G) the best row of each goal, from values or bounds (B, R)."""
        return np.maximum.reduceat(values, self.first, axis=1)

    def choose(self, goals: Integers, rough: Array, margins: Array) -> ChosenRows:
        """GoalRows for the given goals, from interval bounds (B, R) of all rows and the margins (B, 2) at the boxes' centres.

        Of many rows: the one that the intervals come closest to proving, and the one that lies farthest from the centre.
        """
        problem, rows, constants = self.problem, self.problem.rows, self.problem.constants
        index, owner = [], []
        for goal in goals:
            mine = np.flatnonzero(problem.goal_of == goal)
            if len(mine) <= FEW:
                picks = np.broadcast_to(mine, (len(rough), len(mine)))
            else:
                norm = np.abs(rows[mine]).sum(axis=1)
                at_centre = margins @ rows[mine].T + constants[mine]
                picks = np.stack([mine[(values / norm).argmax(axis=1)] for values in (rough[:, mine], at_centre)], axis=1)
            index.append(picks)
            owner += [goal] * picks.shape[1]
        chosen = np.concatenate(index, axis=1)
        return ChosenRows(
            rows=rows[chosen], constants=constants[chosen], strict=problem.strict[chosen], goal=np.array(owner)
        )
