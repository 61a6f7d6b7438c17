"""Branch-and-bound for tree ensembles: boxes of cells, exact extremes of every tree, cuts at thresholds.

Every goal of a question is searched by itself, over joint trees of both copies (`encoders.trees.joint`). A visit to some boxes is a
run of `kernel.explore`. Here, its points are confirmed, its cuts and leaves are recorded, and the boxes that it leaves open are
kept for the next visit.
Sound? yes: PROVED rests on rigorous bounds of every leaf, VIOLATED on exact evaluation.
Complete? yes: margins are constant in a cell between thresholds, and where no bound tells them from 0 they are evaluated exactly;
log-odds of several classes by balls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit

from encoders.arrays import Array, Booleans, Integers
from encoders.probability.logistic import STEEPEST, line_of
from encoders.problem import Goal, TwinProblem
from encoders.trees.compared import ComparedTrees
from encoders.trees.compiled import COMPILED, held
from encoders.trees.mean import MeanOfTrees
from encoders.trees.twin import ClauseRows, MeanRows, RowBounds, ScoreLine, TreeTwin, odds_lines
from solvers import clock
from verifair.engine.parallel import uninterrupted
from verifair.engine.search.box_search import EXTRA_CUTS, BoxSearch, Limits
from verifair.engine.search.boxes import Nodes, anywhere, borders, legal_pairs, roots, rows_at
from verifair.engine.search.ensembles.kernel import explore
from verifair.engine.search.float32 import ROOM, Float32Rule
from verifair.engine.search.open_goals import FEW, OPEN
from verifair.engine.search.trees import GoalTrees

MIXED = np.array([[0.25, 0.75, 0.0], [0.75, 0.25, 0.0]])
"""Mixtures of a flip's first two rows that are bounded as well; its third row is their even mixture."""
FIRST, GROWTH = 256, 4
"""The most boxes of a question in its first visit, and in later ones as a multiple of all its boxes before."""
SECONDS, RATE = 0.5, 1e7 if COMPILED else 1e5
"""Seconds of a visit, about; and tree nodes visited per second, a low estimate until the first visit is measured."""
HINTS = 16
"""The newest counterexamples of other questions, so many of which are tried."""
PATH_NODES, GUESSES, GUESS_BATCH = 6, 128, 32
"""Limits of the random points that are tried first: all their paths pass at most so many tree nodes for each node of the ensemble;
at most so many points a question; and so many at once."""
ROUNDED, ROOM_OF_SUMS = 2.0**-38, 2.0**-8
"""Allowance for rounding in bounds of gaps under softmax, and the share of the scores' size that is added to it."""
WHOLE, LOST_A_FUNCTION = 2.0**30, 2.0**-46
"""Sums of multiples of 1 / WHOLE are exact; and the rounding error of other sums, for each function of a mean."""
NOTHING = held(np.zeros(0))
LOST, LOST_A_STEP, MOST_TREES = 2.0**-33, 2.0**-46, 1 << 13
"""Allowance for evened bounds, relative to the margins' size: at least, and for each tree and variable, as the checker rounds down
by 2^-48 in every step. The checker evens out only ensembles with fewer trees than these."""
A_VISIT = 2_000_000
"""Multiplications that take as long as the setup of a visit."""
LEGAL_TRIES = 32
"""Random points of a box that are tried if the point that was found is no legal row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Closing:
    """The rows that can close one goal, followed by mixtures of them. lines: (S, 2) by which these are bounded, or differences of
    scores. lists: arguments of the kernel. named: for each row and mixture, the rows of the goal that a proof names, with weights;
    none where it need not. A gap under softmax has only lines and no rows; a mean has lines of all scores."""

    lines: Array | tuple[ScoreLine, ...]
    lists: tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any, Any]
    named: list[tuple[Integers, Array]] = field(default_factory=list)


def _mixed(goal: Goal) -> bool:
    return len(goal.rows) == 3 and goal.gap is None


def _named(goal: Goal) -> list[tuple[Integers, Array]]:
    """Return the rows of the goal that a proof names, of a sum of trees."""
    empty = np.empty(0, dtype=np.int64), np.empty(0)
    rows = [(np.array([r]), np.ones(1)) if len(goal.rows) > FEW else empty for r in range(len(goal.rows))]
    mixed = [(np.flatnonzero(mixture), mixture[mixture > 0]) for mixture in MIXED if _mixed(goal)]
    return [*rows, *mixed, *((np.array([r]), np.ones(1)) for r in range(len(goal.rows))), *mixed]


def _compared(goal: Goal, network: ComparedTrees, margin: Array, rule: Float32Rule) -> Closing:
    """Return the rows that close a goal about classes. The checker bounds all rows by itself, so a proof names none."""
    if goal.gap is not None:
        lines, largest = odds_lines(network, rise=goal.gap.rise), 2 * float(network.undecided.largest.max())
        count, (inside, outside) = len(lines), map(len, network.sides)
        zeros, ints = held(np.zeros(count)), held(np.zeros(count, dtype=np.int64))
        gap = held(np.array([0, inside, outside, goal.gap.epsilon, ROUNDED * (1 + largest * ROOM_OF_SUMS)]))
        return Closing(lines=lines, lists=(
            count, held(np.eye(count)), zeros, zeros, held(np.ones(count)), ints, ints, held(np.full(count, np.inf)), gap, NOTHING
        ))
    rows = ClauseRows.of(goal, network, margin)
    count = len(rows.line)
    blank, size = np.zeros(count), np.array([abs(line.p) + abs(line.q) for line in rows.lines])[rows.line]
    shares = np.arange(len(rows.lines)) == rows.line[:, None]
    enough = np.inf if rule.error is None else ROOM * size.max() * rule.widest     # for the row of any clause
    lists = (count, held(shares.astype(float)), held(blank), held(blank), held(size), held(rows.strict.astype(np.int64)),
             held(rows.clause), held(np.full(count, enough)), NOTHING, NOTHING)
    return Closing(lines=rows.lines, lists=lists)


def mean_head(network: MeanOfTrees, first: float, second: float) -> Any:
    """Return the description of a mean for `kernel.add_means`, for its lines at x and at x', with these signs (0: not asked)."""
    ramps, scores, size = network.ramps, network.trees.outputs, network.size
    overlapping = np.isin(ramps.score, [score for score in range(scores) if not ramps.apart(score)])
    kind = np.where(ramps.logistic, 1, np.where(overlapping, 2, 0))
    order = np.lexsort([ramps.shift, kind == 0, ramps.score])
    functions = np.column_stack([ramps.score, kind, ramps.shift, ramps.scale, ramps.weight])[order]
    functions = functions[functions[:, 4] > 0]
    scaled = np.concatenate([ramps.weight, network.added]) * WHOLE
    rounds = size > 2**20 or bool((scaled != np.rint(scaled)).any())
    error = size * (len(functions) + 64) * LOST_A_FUNCTION
    ends = np.searchsorted(functions[:, 0], np.arange(scores), side="right")
    header = np.array([1, scores, len(functions), sum(network.added), rounds, error, first, second, float(first * second < 0), 0])
    return held(np.concatenate([header, functions.ravel(), 2.0 + ends, ramps.chances]))


def _meant(goal: Goal, network: MeanOfTrees, margin: Array) -> Closing:
    """Return the rows that close a goal about a mean of functions of scores. The checker bounds all rows by itself."""
    rows = MeanRows.of(goal, network, margin)
    count, (first, second) = len(rows.constants), rows.lines[2].tolist()
    shares = np.concatenate([np.zeros((count, network.trees.outputs * len(rows.lines))), rows.shares], axis=1)
    zeros, charges = np.zeros(count, dtype=np.int64), np.abs(rows.constants) * 2.0**-44
    named = list[tuple[Integers, Array]]()
    if len(goal.rows) > FEW:    # the checker treats a named row as a combination of several
        charges += network.size * rows.shares @ np.array([1.0, 1.0, 2.0]) * 2.0**-44
        named = [(np.array([r]), np.ones(1)) for r in rows.row]
    return Closing(lines=rows.lines, named=named, lists=(
        count, held(shares), held(rows.constants), held(charges), held(rows.shares.sum(axis=1)), held(rows.strict.astype(np.int64)),
        held(zeros), held(np.full(count, np.inf)), mean_head(network, first, second), NOTHING,
    ))


class TreeSearch(BoxSearch):
    """The search for tree ensembles."""

    def __init__(self, problem: TwinProblem, limits: Limits) -> None:
        self.twin, count = TreeTwin.of(problem), len(problem.batch)
        self.trees = GoalTrees(count, [[] for _ in problem.goals])
        super().__init__(self.twin, limits, self.trees)
        self.closing = [self._closing(goal) for goal in problem.goals]
        self.trees.named = [closing.named for closing in self.closing]
        self.careful = np.zeros((count, len(problem.goals)), dtype=bool)
        self.known = [held(np.zeros((HINTS, problem.domain.variables), dtype=np.int64)) for _ in problem.goals]
        self.learnt = [0] * len(problem.goals)
        self.rate = RATE

    def _closing(self, goal: Goal) -> Closing:
        network, margin, rule = self.problem.network, self.problem.margin, self.goals.rule
        if isinstance(network, ComparedTrees):
            return _compared(goal, network, margin, rule)
        if isinstance(network, MeanOfTrees):
            return _meant(goal, network, margin)
        rows, constants, strict = goal.rows, goal.constants, goal.strict_rows
        if _mixed(goal):    # a mixture need not be positive (0 is enough) if one of its rows need not be
            strict = np.concatenate([strict, [bool(strict[mixture > 0].all()) for mixture in MIXED]])
            rows, constants = np.concatenate([rows, MIXED @ rows]), np.concatenate([constants, MIXED @ constants])
        size = np.abs(rows).sum(axis=1)
        bounds = RowBounds.of(rows, constants)
        thresholds = np.full(len(rows), np.inf) if rule.error is None else ROOM * size * rule.widest
        trees, steps = len(self.twin.ensemble.root), len(self.twin.ensemble.root) * self.problem.domain.variables
        evens = goal.constants.any() and trees < MOST_TREES     # for decisions it would close only a few boxes more
        losses = held(max(LOST, LOST_A_STEP * steps) * self.twin.size * size) if evens else NOTHING
        lists = (len(rows), held(bounds.shares), held(constants), held(bounds.charges(self.twin.size)), held(size),
                 held(strict.astype(np.int64)), held(np.zeros(len(rows), dtype=np.int64)), held(thresholds), NOTHING, losses)
        return Closing(lines=bounds.lines, lists=lists, named=_named(goal))

    def start(self, rng: np.random.Generator) -> None:
        """Try random points, if that takes less time than joining trees; open the whole boxes of all questions, once for every
        goal."""
        self.rng, self.seed = rng, int(rng.integers(1 << 31))
        whole, goals, ensemble = roots(self.twin), len(self.problem.goals), self.twin.ensemble
        points = PATH_NODES * len(ensemble.column) // (len(ensemble.root) * max(ensemble.depth, 1) * len(whole))
        self.guess(whole, min(points, GUESSES), GUESS_BATCH, rng)
        for g in range(goals - 1, -1, -1):
            is_goal = np.arange(goals) == np.full((len(whole), 1), g)
            self.open.add(replace(whole, ids=whole.ids + g * len(whole), open=is_goal))

    def step(self, nodes: Nodes) -> None:
        """Visit some boxes; those of the first pair of protected values at least, and of further ones while there is time."""
        nodes = self.without_impossible(nodes)
        goal = nodes.open.argmax(axis=1)
        pair = self.twin.pair_of[nodes.question]
        careful, visited = self.careful[nodes.question, goal], False
        for key in np.unique(np.stack([pair, goal, careful], axis=1), axis=0).tolist():
            index = np.flatnonzero((pair == key[0]) & (goal == key[1]) & (careful == key[2]))
            part = self.goals.still_open(nodes.take(index))
            if len(part) and visited and clock.now() >= self.deadline:      # every pair has trees of its own to be joined
                self.open.add(part)
            elif len(part):
                self._visit(part, *key)
                visited = True

    def _visit(self, nodes: Nodes, pair: int, goal: int, careful: int) -> None:
        """Visit boxes of one goal and one pair of protected values."""
        closing, question = self.closing[goal], nodes.question
        with uninterrupted():
            lines = self.twin.copies(pair, closing.lines)
        trees, number = lines.trees, np.unique(question, return_inverse=True)[1].reshape(-1)
        first, last = self.twin.boxes(question, nodes.lower, nodes.upper)
        possible = self.goals.float32[question, goal] & (self.goals.rule.error is not None)
        wanted = np.where(possible, 2 if self.problem.float32 else 1, 0)
        has_nodes = self.goals.nodes[question] < (np.inf if self.max_nodes is None else self.max_nodes // 2)
        extra = held(np.where(has_nodes, EXTRA_CUTS - self.goals.extra_cuts[question, goal], 0))
        extra_before = np.array(extra)
        limit = np.maximum(FIRST, GROWTH * self.goals.nodes[question])
        if self.max_nodes is not None:
            limit = np.minimum(limit, self.max_nodes - self.goals.nodes[question])
        limit = np.maximum(limit // np.bincount(number)[number], 1)
        left = self.deadline - clock.now()
        budget = max(int(self.rate * min(SECONDS, max(left, 0.0))), 1)
        owner = self.goals.group[question]
        owners, owner = np.unique(owner, return_inverse=True) if self.goals.grouped else (np.arange(number.max() + 1), number)
        started = clock.now()
        with uninterrupted():
            outcome = explore(
                trees.variable, trees.cut, trees.right, trees.root, trees.sets, trees.hot, trees.cells, lines.adds, len(lines.base),
                lines.base, *closing.lists, len(nodes), held(first), held(last), held(wanted), extra, held(limit), held(owner),
                len(owners), 0 if careful else 1, budget, self.known[goal], self.learnt[goal], self.seed,
            )
        cuts, closed, bounds, opened, low, high, points, cells, looked, root_bounds, self.learnt[goal], self.seed, spent = outcome
        looked, cuts, closed, points, opened = (np.asarray(part, dtype=np.int64) for part in (looked, cuts, closed, points, opened))
        cells, low, high = (np.asarray(part, dtype=np.int64).reshape(-1, len(trees.hot)) for part in (cells, low, high))
        clock.spend(A_VISIT + spent / RATE / clock.A_MULTIPLICATION)
        if spent >= budget // 10:
            self.rate = 0.5 * self.rate + 0.5 * float(spent) / (clock.now() - started)
        np.add.at(self.goals.nodes, question, looked)
        np.add.at(self.goals.extra_cuts[:, goal], question, extra_before - np.asarray(extra))
        visited = np.flatnonzero(looked > 0)
        root = visited[nodes.ids[visited] < self.trees.roots]
        np.maximum.at(self.goals.root_lower[:, goal], question[root], np.asarray(root_bounds, dtype=float)[root])
        self._confirm(nodes, goal, points, cells)
        self._record(nodes, goal, cuts.reshape(-1, 4), closed.reshape(-1, 4), np.asarray(bounds, dtype=float), (first, last),
                     (opened.reshape(-1, 3), low, high))

    def _confirm(self, nodes: Nodes, goal: int, box: Integers, cells: Integers) -> None:
        """Evaluate points of boxes exactly. Later visits to these questions are `careful`: they do not stop at points."""
        part = nodes.take(box)
        raw = self._raw(part, cells)
        legal = legal_pairs(self.twin, part.question, raw)
        if legal.any():
            _, values, _ = self.goals.confirm(part.question[legal], raw[legal])
            np.minimum.at(self.goals.upper, part.question[legal], values)
        if not legal.all():     # another point of the same box may be legal
            source = np.repeat(np.flatnonzero(~legal), LEGAL_TRIES)
            retries = part.take(source)
            if len(retries):
                self.goals.look_at(retries, anywhere(self.twin, retries, self.rng))
        self.careful[part.question, goal] = True

    def _raw(self, nodes: Nodes, cells: Integers) -> Array:
        """Return raw points (N, v) of the moving variables in given cells (N, V)."""
        batch = self.problem.batch
        lower, upper = batch.lower[nodes.question], batch.upper[nodes.question]
        lower[:, self.twin.variables], upper[:, self.twin.variables] = nodes.lower, nodes.upper
        return self.twin.cells.within(cells, lower, upper)[:, self.twin.variables]

    def _record(
        self, nodes: Nodes, goal: int, cuts: Integers, closed: Integers, bounds: Array, cells: tuple[Integers, Integers],
        opened: tuple[Integers, Integers, Integers],
    ) -> None:
        """Record cuts and closed leaves of questions that are still open, and keep their open boxes."""
        alive = np.zeros(len(nodes), dtype=bool)
        alive[self.goals.alive(nodes)[1]] = True
        cuts, kept = cuts[alive[cuts[:, 0]]], alive[closed[:, 0]]
        closed, bounds = closed[kept], bounds[kept]
        # Node 0 of box k is the box itself, nodes m >= 1 are halves; the cuts of one box are next to each other.
        base = self.trees.size + 2 * np.searchsorted(cuts[:, 0], np.arange(len(nodes))) - 1

        def number(box: Integers, node: Integers) -> Integers:
            return np.asarray(np.where(node == 0, nodes.ids[box], base[box] + node))

        if len(cuts):
            variable, cell = cuts[:, 2], cuts[:, 3]
            values = cell.astype(float)
            for v in np.flatnonzero(~self.problem.domain.one_hot).tolist():
                index = variable == v
                values[index] = self.twin.cells.cuts[v][cell[index]]
            self.trees.split(number(cuts[:, 0], cuts[:, 1]), variable, values)
            np.add.at(self.goals.pending[:, goal], nodes.question[cuts[:, 0]], 1)
        if len(closed):
            box, ids = closed[:, 0], number(closed[:, 0], closed[:, 1])
            goals = np.full(len(box), goal)
            if self.trees.named[goal]:
                self.trees.name(ids, closed[:, 2])
            self.goals.close(ids, nodes.question[box], goals, bounds, closed[:, 3] == 1)
        rows, low, high = opened
        kept = alive[rows[:, 0]]
        rows, low, high = rows[kept], low[kept], high[kept]
        box = rows[:, 0]
        part = nodes.take(box)
        lower, upper = self.twin.within(part.lower, part.upper, (cells[0][box], cells[1][box]), low, high)
        part = replace(part, ids=number(box, rows[:, 1]), lower=lower, upper=upper)
        is_constant = (rows[:, 2] == 1) & self.careful[part.question, goal]
        self._decide(part.take(is_constant), goal)
        rest = part.take(~is_constant)
        self.open.add(self.goals.still_open(rest))

    def _decide(self, nodes: Nodes, goal: int) -> None:
        """Decide boxes that no tree cuts and where no point violates the goal: their legal points all have the same margins."""
        nodes = self.without_impossible(self.goals.still_open(nodes))
        if not len(nodes):
            return
        if self.problem.float32:    # float32 is given up for the goal: the next visit closes it for the real-valued function only
            possible = self.goals.float32[nodes.question, goal]
            self.goals.float32[nodes.question, goal] = False
            self.open.add(nodes.take(possible))
            nodes = nodes.take(~possible)
        middle = self.twin.local.middle(self._lower_ends(nodes), nodes.upper)
        legal = legal_pairs(self.twin, nodes.question, middle)
        if legal.any():
            part, point = nodes.take(legal), middle[legal]
            met, values, margins = self.goals.confirm(part.question, point)
            is_constant = ~self._straight(part)
            self._close_by_lines(part.take(is_constant), goal, margins[is_constant])
            left = is_constant & met[:, goal] & ~self.trees.known["closed"][part.ids]
            left &= self.goals.status[part.question, goal] == OPEN
            retries = part.take(np.repeat(np.flatnonzero(~is_constant & met[:, goal]), LEGAL_TRIES))
            if len(retries):   # margins differ in the box: another row may be a counterexample
                self.goals.look_at(retries, anywhere(self.twin, retries, self.rng))
            self._close_exactly(part.take(left), goal, values[left, goal])
        nodes = self.goals.still_open(nodes.take(~self._seen(nodes)))
        middle = self.twin.local.middle(self._lower_ends(nodes), nodes.upper)
        divisible = self.twin.local.divisible(nodes.lower, nodes.upper)
        stuck: Booleans = legal_pairs(self.twin, nodes.question, middle) | ~divisible.any(axis=1)
        self.goals.give_up(np.unique(nodes.question[stuck]), "float")
        nodes, middle, divisible = nodes.take(~stuck), middle[~stuck], divisible[~stuck]
        if len(nodes):  # the middle is not legal, but other rows may be
            along, edge = borders(self.twin, nodes)
            variable = np.where(divisible, nodes.upper - nodes.lower, -1.0).argmax(axis=1)
            row = np.arange(len(nodes))
            self.cut(nodes, np.where(along >= 0, along, variable), np.where(along >= 0, edge, middle[row, variable]))

    def _straight(self, nodes: Nodes) -> Booleans:
        """Return (N,) True for boxes on which a linear function may vary: margins differ there, though no tree tells rows apart."""
        network, domain = self.problem.network, self.problem.domain
        if not isinstance(network, MeanOfTrees) or network.lines is None:
            return np.zeros(len(nodes), dtype=bool)
        owner = np.repeat(np.arange(domain.variables), domain.width)[np.argsort(domain.columns_of(np.arange(domain.variables)))]
        is_linear = np.isin(self.twin.variables, owner[network.straight])
        return np.asarray((nodes.lower < nodes.upper)[:, is_linear].any(axis=1))

    def _lower_ends(self, nodes: Nodes) -> Array:
        """Return the lower ends (N, v) of boxes; the part above a cut of a real variable leaves out the cut itself."""
        start = self.problem.batch.lower[nodes.question][:, self.twin.variables]
        return np.where((nodes.lower > start) & ~self.twin.local.integer, np.nextafter(nodes.lower, np.inf), nodes.lower)

    def _seen(self, nodes: Nodes) -> Booleans:
        """Return (N,) True for boxes that are closed, or cut."""
        return np.asarray(self.trees.known["closed"][nodes.ids] | (self.trees.feature[nodes.ids] != -1))

    def _close_exactly(self, nodes: Nodes, goal: int, values: Array) -> None:
        """Close boxes on which the margins are constant and meet the goal. The checker evaluates one row of a box if no tree tells
        its rows apart; other boxes are cut where a tree does, though both branches have the same value."""
        variable, cut = self._separating_split(nodes)
        uncut = variable < 0
        part = nodes.take(uncut)
        self.goals.close(part.ids, part.question, np.full(len(part), goal), values[uncut], False)
        if not uncut.all():
            self.cut(nodes.take(~uncut), variable[~uncut], cut[~uncut])

    def _separating_split(self, nodes: Nodes) -> tuple[Integers, Array]:
        """Return (N,) positions of variables and cuts: a split that tells rows of the box apart, on its lower end's path through a
        tree; -1 where there is none."""
        ensemble, cells, domain, batch = self.twin.ensemble, self.twin.cells, self.problem.domain, self.problem.batch
        low, high = rows_at(self.twin, nodes.question, self._lower_ends(nodes)), rows_at(self.twin, nodes.question, nodes.upper)
        second, row, split = batch.take(nodes.question).second, np.arange(len(nodes))[:, None], np.full(len(nodes), -1)
        for lower, upper in ((low, high), (second(low), second(high))):
            ends, node = domain.box(lower, upper), np.tile(ensemble.root, (len(nodes), 1))
            for _ in range(ensemble.depth):
                column = np.maximum(ensemble.column[node], 0)
                left, right = (end[row, column] <= ensemble.threshold[node] for end in ends)
                separates = (left != right) & (ensemble.column[node] >= 0)
                boxes = np.flatnonzero(separates.any(axis=1))
                split[boxes] = node[boxes, separates[boxes].argmax(axis=1)]
                node = np.where(left, ensemble.left[node], ensemble.right[node])
        variable, cut = np.full(len(nodes), -1), np.zeros(len(nodes))
        for k in np.flatnonzero(split >= 0).tolist():
            v = int(cells.variable[split[k]])
            variable[k] = np.searchsorted(self.twin.variables, v)
            category = ensemble.column[split[k]] - domain.start[v]
            cut[k] = min(category, high[k, v] - 1) if domain.one_hot[v] else cells.cuts[v][cells.last[split[k]]]
        return variable, cut

    def _close_by_lines(self, nodes: Nodes, goal: int, margins: Array) -> None:
        """Close boxes on which both margins (N, 2) are constant, and which none of a probability gap's lines closes, by a line of
        their own: the tangent of the curve at the margin."""
        gap = self.problem.goals[goal].gap
        if gap is None or not self.trees.named[goal]:
            return
        for k, (g, g_prime) in enumerate(margins.tolist()):
            first, second = (g_prime, g) if gap.rise else (g, g_prime)
            share = float(expit(second))
            if share + gap.epsilon >= 1:
                continue
            slope = share * (1 - share) / ((share + gap.epsilon) * (1 - share - gap.epsilon))
            if not 1 / STEEPEST <= slope <= STEEPEST:
                continue
            value = slope * second - first + line_of(gap.epsilon, slope)
            if value > 2.0**-36 * (1 + slope) * (self.twin.size + 1):      # far beyond the checker's rounding errors
                node = nodes.take(slice(k, k + 1))
                self.trees.name(node.ids, self.trees.code(goal, len(self.problem.goals[goal].rows), slope))
                self.goals.close(node.ids, node.question, np.array([goal]), np.array([value]), False)

