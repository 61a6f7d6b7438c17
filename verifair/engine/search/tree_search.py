"""Branch-and-bound for tree ensembles: boxes of cells, exact extremes of every tree, cuts at thresholds.

A box is bounded by what the pairs of leaves add that it meets (`encoders.trees.pairs`). Where that does not close it, points are
tried at which the leaves with the least values agree, and it is cut at the threshold on which most of the bound depends.
Sound? yes: PROVED rests on rigorous bounds of every leaf, VIOLATED on exact evaluation.
Complete? yes, but for values nearer to 0 than sums of float64 numbers tell: within a cell between thresholds nothing changes.
"""

from __future__ import annotations

import numpy as np

from encoders.network import Array, Booleans, Integers
from encoders.problem import TwinProblem
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.guide import Guide
from encoders.trees.pairs import Words
from encoders.trees.twin import ROOM, CellBoxes, RowBounds, TreeTwin
from verifair.engine.search.box_search import BoxSearch, Limits
from verifair.engine.search.boxes import Nodes, borders, legal_pairs, rows_at
from verifair.engine.search.nearby import Nearby
from verifair.engine.search.open_goals import BestRows

MIXED = np.array([[0.25, 0.75, 0.0], [0.75, 0.25, 0.0]])
"""Mixtures of a flip's first two rows that are bounded as well; its third row is the one in the middle."""


class TreeSearch(BoxSearch):
    """The search for tree ensembles."""

    def __init__(self, problem: TwinProblem, ensemble: TreeEnsemble, limits: Limits) -> None:
        self.twin = TreeTwin.of(problem, ensemble)
        super().__init__(self.twin, limits)
        rows, constants = problem.rows, problem.constants
        self.flips = [g for g, goal in enumerate(problem.goals) if len(goal.rows) == 3 and goal.gap is None]
        mixed = [MIXED @ rows[self.goal_rows.first[g] : self.goal_rows.first[g] + 3] for g in self.flips]
        self.bounds = RowBounds.of(np.concatenate([rows, *mixed]), np.concatenate([constants, np.zeros(2 * len(mixed))]),
                                   np.empty((0, 2)))
        self.size = np.array([one.size for one in self.twin.worth])
        self.guides = tuple(Guide(one) for one in self.twin.worth)

    def start(self, rng: np.random.Generator) -> None:
        self.nearby = Nearby(self.goals, rng, self.deadline)
        super().start(rng)

    def step(self, nodes: Nodes) -> None:
        """Look at some boxes, and keep the halves of those that are left."""
        nodes = self.nearby.look(nodes) if self.flips else nodes
        self.goals.nodes += np.bincount(nodes.question, minlength=len(self.goals.nodes))
        nodes = self.without_impossible(nodes)
        boxes = self.twin.boxes(nodes.question, nodes.lower, nodes.upper)
        reach = self.twin.reach(boxes)
        lines = self.twin.least(boxes, reach, [(p, q) for p, q in self.bounds.lines.tolist()])
        lower = self.bounds.lower(lines, self.size[boxes.which])
        nodes, kept = self.close_by(nodes, self._best(lower, self.size[boxes.which]), [])
        if not len(nodes):
            return
        boxes, lower = boxes.take(kept), lower[kept]
        place = np.full(len(lines), -1)
        place[kept] = np.arange(len(kept))
        bits = [(place[at[place[at] >= 0]], some[place[at] >= 0]) for at, _, some in reach]
        scores = self._look(nodes, boxes, bits, self._nearest(nodes, lower))
        nodes, alive = self.goals.alive(nodes)
        if len(nodes):
            self._split(nodes, boxes.take(alive), [one[alive] for one in scores])

    def _best(self, lower: Array, size: Array) -> BestRows:
        """Return what is nearest to closing each goal: the best row, else the best mixture. size: (N,) of the margins."""
        rows = len(self.problem.rows)
        best = self.goal_rows.best(lower[:, :rows])
        for k, g in enumerate(self.flips):
            mixed = lower[:, rows + 2 * k : rows + 2 * k + 2]
            which = mixed.argmax(axis=1)
            value = mixed[np.arange(len(mixed)), which]
            at = np.flatnonzero(~best.proved[:, g] & (value > ROOM * size))
            best.rows[at, g] = self.goal_rows.first[g] + np.arange(3)
            best.weights[at, g], best.lower[at, g], best.proved[at, g] = MIXED[which[at]], value[at], True
            best.size[at, g] = np.abs(MIXED[which[at]] @ self.problem.rows[self.goal_rows.first[g] :][:3]).sum(axis=1)
        return best

    def _nearest(self, nodes: Nodes, lower: Array) -> Integers:
        """Return (N,) the row, or mixture, of an open goal whose bound is nearest to closing it."""
        owner = np.concatenate([self.problem.goal_of, np.repeat(self.flips, 2).astype(np.int64)])
        return np.asarray(np.where(nodes.open[:, owner], lower, -np.inf).argmax(axis=1))

    def _look(self, nodes: Nodes, boxes: CellBoxes, bits: list[tuple[Integers, Words]], nearest: Integers) -> list[Array]:
        """Look at points where the leaves that add least agree, by the nearest row of each box. Returns, for each box, the variable
        and the cell after which a cut changes most."""
        variable, cell = np.full(len(nodes), -1), np.zeros(len(nodes), dtype=np.int64)
        lines = np.asarray(np.concatenate([self.problem.rows, *(MIXED @ self._flip(g) for g in self.flips)]))
        for group, words in bits:
            for row in np.unique(nearest[group]).tolist():
                mine = np.flatnonzero(nearest[group] == row)
                at = group[mine]
                guide = self.guides[boxes.which[at[0]]]
                line = lines[row].tolist()
                variable[at], cell[at] = guide.cut(boxes.take(at), words[mine], *line)
                # A flip is about two margins, and the point is best for one line: of those only whole questions have it tried.
                few = np.flatnonzero(nodes.ids[at] < len(self.goals.nodes)) if self.flips else np.arange(len(at))
                if len(few):
                    chosen = guide.agreed(boxes.take(at[few]), words[mine[few]], *line)
                    self.goals.look_at(nodes.take(at[few]), self._raw(nodes.take(at[few]), chosen))
        return [variable, cell]

    def _flip(self, goal: int) -> Array:
        return self.problem.rows[self.goal_rows.first[goal] :][:3]

    def _raw(self, nodes: Nodes, cell: Integers) -> Array:
        """Raw points (N, v) of the moving variables in given cells (N, V)."""
        lower, upper = (rows_at(self.twin, nodes.question, end) for end in (nodes.lower, nodes.upper))
        return self.twin.cells.within(cell, lower, upper)[:, self.twin.variables]

    def _split(self, nodes: Nodes, boxes: CellBoxes, scores: list[Array]) -> None:
        variable, cell = scores
        position = np.full(len(self.twin.cells.cuts), -1)
        position[self.twin.variables] = np.arange(len(self.twin.variables))
        along, edge = borders(self.twin, nodes)
        spread = boxes.last - boxes.first
        spread[:, position < 0] = 0
        widest = spread.argmax(axis=1)
        none = variable < 0
        variable = np.where(none, widest, variable)
        middle = (boxes.first + (spread - 1) // 2)[np.arange(len(nodes)), variable]
        cell = np.where(none, middle, cell)
        within = (spread.max(axis=1, initial=0) == 0) & (along < 0)
        self._decide_cells(nodes.take(within))
        rest = np.flatnonzero(~within)
        nodes, variable, cell, along, edge = (
            nodes.take(rest), variable[rest], cell[rest], along[rest], edge[rest]
        )
        cuts = self.twin.cells.cuts
        chosen = zip(variable.tolist(), cell.tolist(), strict=True)
        cut = np.array([float(cuts[v][c]) if len(cuts[v]) else float(c) for v, c in chosen])
        self.cut(nodes, np.where(along >= 0, along, position[variable]), np.where(along >= 0, edge, cut))

    def _decide_cells(self, nodes: Nodes) -> None:
        """Boxes within one cell: both margins are constant, so any legal point decides them."""
        if not len(nodes):
            return
        legal = self._legal_middle(nodes)
        for k in range(len(nodes)):
            one = nodes.take(np.array([k]))
            if legal[k]:
                self.goals.confirm(one.question, self.twin.local.middle(one.lower, one.upper))
        left = self.goals.still_open(nodes)
        legal = self._legal_middle(left)
        can = self.twin.local.divisible(left.lower, left.upper).any(axis=1)
        stuck = legal | ~can
        self.goals.give_up(np.unique(left.question[stuck]), "float")
        left = left.take(~stuck)
        left = self.goals.still_open(left)
        if len(left):  # its middle is nobody: perhaps others of it are not
            width = np.where(self.twin.local.divisible(left.lower, left.upper), left.upper - left.lower, -1.0)
            variable = width.argmax(axis=1)
            self.cut(left, variable, self.twin.local.middle(left.lower, left.upper)[np.arange(len(left)), variable])

    def _legal_middle(self, nodes: Nodes) -> Booleans:
        return legal_pairs(self.twin, nodes.question, self.twin.local.middle(nodes.lower, nodes.upper))

