"""The search behind `maximise`: the largest probability (or logit) gap over a box, a point below and a certified bound above.

Best-first branch-and-bound on the inputs: the boxes with the largest bounds are cut first, so that the bound comes down and the
witness goes up until they meet, or time is up. For a fall from x to x', with  D >= g - g',  U >= g  and  L' <= g'  on a box,

    gap <= sigma(b + D) - sigma(b),     D := min(D, U - L'),     b := -D/2 clipped into [L', U - D]      (0 where D <= 0),

and a box is dropped as soon as some line shows that its gap is at most what is known already (`encoders.probability`).
Sound? yes: D, U, L' are rigorous, sigma is evaluated with 1e-9 to spare, and the certificate claims "gap <= upper", which
`check` re-proves with lines in ball arithmetic.  Complete? yes, to the tolerance, given time.
Reference: HyFair, section III-A, maximises |F(x, z) - F(x, z')| by MILP; corrects it: probabilities are never linear in logits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from encoders.bounds.difference import GoalBounds, interval_goals, linear_goals, mixed_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.twin import Twin
from encoders.network import Array
from encoders.probability import gap_rows
from encoders.problem import Goal, TwinProblem
from verifair.verify.boxes import Nodes, anywhere, centre, corner, divisible, halve, legal_pairs, roots, rows_at, widest
from verifair.verify.forest import Forest

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

SLACK = 1e-9
"""Added to every bound: a million times what an evaluation of the logistic function in float64 can be off."""
ROWS = np.array([[-1.0, 1.0], [-1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [0.0, -1.0], [1.0, 0.0]])
"""Their lower bounds are -D, -U, L' of the fall from x to x', then -D, -U, L' of the rise."""
WORTH = np.array([1.0, 0.2, 0.2, 1.0, 0.2, 0.2])
"""What the rows count in choosing where to cut: mostly the difference matters."""
TOP, MOST, LINEAR = 256, 2048, 128
GUESSES = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Extreme:
    """What was found of the largest gap: a bound on it, and the best point met (raw x (V,), its question and direction).

    forest, goal: the boxes, each of which has a gap of at most `upper` in the directions 0 (fall) and 1 (rise).
    """

    upper: float
    value: float
    question: int
    direction: int
    point: Array
    forest: Forest
    nodes: int
    out_of: str


def largest_gap(
    problem: TwinProblem,
    *,
    logit: bool,
    tolerance: float,
    seconds: float,
    max_nodes: int | None = None,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
) -> Extreme:
    """Bracket the largest gap over all questions of a problem, whatever its goals. progress is told (witness, bound)."""
    goals = tuple(Goal(rows=part, strict=False) for part in (ROWS[:3], ROWS[3:]))
    deadline = time.monotonic() + seconds
    search = _Search(replace(problem, goals=goals), logit, tolerance)
    rng = np.random.default_rng(seed)
    for _ in range(GUESSES):
        search.meet(search.start, anywhere(search.twin, search.start, rng))
    search.bound(search.start)
    while (out_of := search.reason(deadline, max_nodes)) == "open":
        search.step()
        if progress is not None:
            progress(search.value, search.bounded)
    return search.extreme(out_of)


class _Search:
    """The mutable state of one run: all boxes by id, and of those that are left the ids with a bound for each direction."""

    def __init__(self, problem: TwinProblem, logit: bool, tolerance: float) -> None:
        self.problem, self.twin, self.logit, self.tolerance = problem, Twin.of(problem), logit, tolerance
        self.start = roots(self.twin)
        self.forest = Forest(len(self.start), 2)
        self.lower, self.upper = self.start.lower.copy(), self.start.upper.copy()
        self.question, self.along = self.start.question.copy(), np.zeros(len(self.start), dtype=np.int64)
        self.left: list[tuple[Integers, Array]] = []  # ids of boxes and their bounds (N, 2)
        self.value, self.where = -np.inf, (0, 0)
        self.point = rows_at(self.twin, np.array([0]), self.start.lower[:1])[0]
        self.nodes = 0
        self.stuck = -np.inf  # the largest bound of a box that cannot be cut
        self.lines_at, self.lines = -1.0, gap_rows(0.5, rise=False)

    @property
    def known(self) -> float:
        """Boxes are dropped when their gap is surely at most this."""
        return max(self.value, 0.0) + self.tolerance

    @property
    def bounded(self) -> float:
        """The largest gap is at most this."""
        return max([self.known, self.stuck, *(float(bound.max()) for _, bound in self.left if len(bound))])

    def reason(self, deadline: float, max_nodes: int | None) -> str:
        """Why to stop: '' when closed, 'time', 'nodes' or 'float'; 'open' to go on."""
        if not self.left:
            return "" if self.stuck <= self.known else "float"
        if time.monotonic() > deadline:
            return "time"
        return "nodes" if max_nodes is not None and self.nodes >= max_nodes else "open"

    def meet(self, nodes: Nodes, point: Array) -> None:
        """Evaluate a raw point (N, v) a box and keep the best one that can be."""
        margins = self.twin.evaluate(nodes.question, self.twin.local.encode(point))
        gaps = margins[:, 0] - margins[:, 1] if self.logit else expit(margins[:, 0]) - expit(margins[:, 1])
        better = np.flatnonzero(np.abs(gaps) > self.value)
        better = better[legal_pairs(self.twin, nodes.question[better], point[better])]
        if len(better):
            best = better[np.abs(gaps[better]).argmax()]
            self.value, self.where = float(np.abs(gaps[best])), (int(nodes.question[best]), int(gaps[best] < 0))
            self.point = rows_at(self.twin, nodes.question[[best]], point[[best]])[0]

    def step(self) -> None:
        """Halve the boxes with the largest bounds and bound the halves."""
        ids, parents = self._largest()
        if not len(ids):
            return
        both = np.ones((len(ids), 2), dtype=bool)
        nodes = Nodes(ids=ids, question=self.question[ids], lower=self.lower[ids], upper=self.upper[ids], open=both)
        cut, left_upper, right_lower = halve(self.twin, nodes, self.along[ids])
        children = self.forest.split(ids, self.twin.variables[self.along[ids]], cut)
        halves = Nodes.join([replace(nodes, ids=children, upper=left_upper), replace(nodes, ids=children + 1, lower=right_lower)])
        self._remember(halves)
        self.bound(halves, np.concatenate([parents, parents]))

    def _largest(self) -> tuple[Integers, Array]:
        """Take the boxes with the largest bounds off the list; drop those that no longer matter."""
        ids, bounds = (np.concatenate(part) for part in zip(*self.left, strict=True))
        most = bounds.max(axis=1)
        keep = most > self.known
        self._drop(ids[~keep])
        ids, bounds, most = ids[keep], bounds[keep], most[keep]
        count = int(np.clip(len(ids) // 20, TOP, MOST))
        if len(ids) <= count:
            self.left = []
            return ids, bounds
        order = np.argpartition(-most, count)
        self.left = [(ids[order[count:]], bounds[order[count:]])]
        return ids[order[:count]], bounds[order[:count]]

    def _remember(self, nodes: Nodes) -> None:
        """Room for the new boxes (their ids follow the largest one), doubled when it runs out."""
        needed = int(nodes.ids.max()) + 1
        if needed > len(self.question):
            size = max(needed, 2 * len(self.question))
            self.lower, self.upper = (np.resize(one, (size, one.shape[1])) for one in (self.lower, self.upper))
            self.question, self.along = np.resize(self.question, size), np.resize(self.along, size)
        self.lower[nodes.ids], self.upper[nodes.ids], self.question[nodes.ids] = nodes.lower, nodes.upper, nodes.question

    def _drop(self, ids: Integers) -> None:
        both = np.repeat(ids, 2)
        self.forest.close(both, np.tile([0, 1], len(ids)), np.zeros(len(both)))

    def bound(self, nodes: Nodes, parents: Array | None = None) -> None:
        """Bound boxes in both directions, look for better points in them, and keep those that may hold one."""
        known = np.full((len(nodes), 2), np.inf) if parents is None else parents
        self.nodes += len(nodes)
        nodes, known = self._without_impossible(nodes, known)
        self.meet(nodes, centre(self.twin, nodes))
        for start in range(0, len(nodes), LINEAR):
            part = slice(start, start + LINEAR)
            self._bound(nodes.take(part), known[part])

    def _without_impossible(self, nodes: Nodes, known: Array) -> tuple[Nodes, Array]:
        """Boxes that hold no row that can be have no gap: they are leaves that need no bound."""
        domain = self.problem.domain
        if domain.forbidden is None:
            return nodes, known
        lower, upper = rows_at(self.twin, nodes.question, nodes.lower), rows_at(self.twin, nodes.question, nodes.upper)
        batch = self.problem.batch.take(nodes.question)
        gone = domain.impossible(lower, upper) | domain.impossible(batch.second(lower), batch.second(upper))
        self._drop(nodes.ids[gone])
        return nodes.take(~gone), known[~gone]

    def _bound(self, nodes: Nodes, parents: Array) -> None:
        low, high = self.twin.local.box(nodes.lower, nodes.upper)
        intervals = interval_bounds(self.twin, nodes.question, low, high)
        count = len(nodes)
        rows, wanted = np.broadcast_to(ROWS, (count, *ROWS.shape)), np.broadcast_to(WORTH, (count, len(ROWS)))
        bounds = linear_goals(self.twin, nodes.question, low, high, intervals, rows, np.zeros((count, len(ROWS))), wanted)
        best = np.maximum(bounds.lower, interval_goals(self.twin, nodes.question, intervals[-1]))
        mine = np.stack([self._gap(best[:, :3]), self._gap(best[:, 3:])], axis=1)
        mine = np.minimum(mine, parents)  # bounds are not monotone under splitting, the truth is
        point = (low == high).all(axis=1)
        self.meet(nodes.take(point), nodes.lower[point])
        self._cut_off(bounds, (high - low) / 2, mine)
        for row in (0, 3):  # where the difference may be largest: the likeliest witnesses
            self.meet(nodes, corner(self.twin, nodes, bounds.slope[:, row]))
        keep = mine.max(axis=1) > self.known
        self._drop(nodes.ids[~keep])
        can = np.asarray(divisible(self.twin, nodes).any(axis=1))
        self.stuck = max(self.stuck, float(mine[keep & ~can].max(initial=-np.inf)))
        self._drop(nodes.ids[keep & ~can])
        left = np.flatnonzero(keep & can)
        self.along[nodes.ids[left]] = widest(self.twin, nodes.take(left), bounds.score[left])
        if len(left):
            self.left.append((nodes.ids[left], mine[left]))

    def _gap(self, least: Array) -> Array:
        """(B,) the largest gap that D, U, L' allow; least: (B, 3) lower bounds of -D, -U, L'."""
        d, u, low = -least[:, 0], -least[:, 1], least[:, 2]
        d = np.minimum(d, u - low)
        if self.logit:
            return np.maximum(d, 0.0) * (1 + 1e-12)
        with np.errstate(invalid="ignore"):
            b = np.clip(-d / 2, low, np.maximum(u - d, low))
            gap = expit(b + d) - expit(b) + SLACK
        return np.asarray(np.where(d <= 0, 0.0, np.where(np.isnan(gap), 1.0, np.minimum(gap, 1.0))))

    def _cut_off(self, bounds: GoalBounds, radius: Array, mine: Array) -> None:
        """Where some line shows that the gap is at most what is known, say so: mixtures of the rows' linear bounds are lines'."""
        if self.logit or not 0 < self.known < 1:
            return
        if self.known > self.lines_at:  # the same lines serve while the best point stays
            self.lines_at, self.lines = self.known, gap_rows(self.known, rise=False)
        rows, constants = self.lines
        for direction, first in enumerate((0, 3)):
            part = GoalBounds(
                lower=bounds.lower[:, first : first + 3], slope=bounds.slope[:, first : first + 3],
                base=bounds.base[:, first : first + 3], score=bounds.score,
            )  # fmt: skip
            weights, constant = _as_mixtures(rows, constants)
            # The weights are rounded: what that can do to the mixture is a few units of the rows' own sizes.
            spare = 1e-13 * (1 + np.abs(part.base).max(axis=1) + np.abs(constants).max())
            shown = (mixed_goals(part, radius, weights) + constant).max(axis=1) > spare
            mine[:, direction] = np.where(shown, np.minimum(mine[:, direction], self.known), mine[:, direction])

    def extreme(self, out_of: str) -> Extreme:
        upper = self.bounded
        for ids, _ in self.left:
            self._drop(ids)
        return Extreme(
            upper=upper, value=self.value, question=self.where[0], direction=self.where[1], point=self.point,
            forest=self.forest, nodes=self.nodes, out_of=out_of,
        )  # fmt: skip


def _as_mixtures(rows: Array, constants: Array) -> tuple[Array, Array]:
    """Lines -g + m g' + c >= 0 as convex weights (M, 3) on (-g + g', -g, g') and constants (M,): divided by the weights' sum."""
    m = rows[:, 1] / np.maximum(-rows[:, 0], 1e-300)
    line = rows[:, 0] < 0
    zero = np.zeros_like(m)
    weights = np.where(m[:, None] <= 1, np.stack([m, 1 - m, zero], axis=1), np.stack([zero + 1, zero, m - 1], axis=1))
    weights = np.where(line[:, None], weights, np.array([0.0, 0.0, 1.0]))
    total = weights.sum(axis=1)
    return weights / total[:, None], constants / total
