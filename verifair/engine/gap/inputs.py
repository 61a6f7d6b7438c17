"""Best-first branch-and-bound on the inputs for the largest gap: the boxes with the largest bounds are cut first.

For a fall from x to x', with (a, b) = (g, g') (and (g', g) for a rise), a bound on a box is that of a line  a - m b <= w. Intervals
give D >= a - b, U >= a and L' <= b on it: of the pairs that these allow, a = b + D with b = -D/2 clipped into [L', U - D] has the
largest gap, and m is the slope of the curve there. Linear bounds then choose m around the slope that served the box's parent best,
and the standard relaxation shows w, as it will to whoever checks the proof. A direction of a box is closed when its gap is at most
what is known already. The proof ends at the first nodes whose own lines show the gap that is claimed, and names their slopes.
Sound? yes: D, U, L', w are rigorous, and the curve has 1e-9 to spare.  Complete? to the tolerance, given time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_expit, logit

from encoders.bounds.difference import GoalBounds, interval_goals, linear_goals, mixed_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.domain import Batched
from encoders.network import Array, Booleans, Integers
from encoders.problem import Goal, TwinProblem
from solvers import clock
from verifair.checker.certificates.tree import Tree
from verifair.engine.questions import no_gap
from verifair.engine.search.attack import Climb
from verifair.engine.search.boxes import (
    Nodes,
    corner,
    cuts,
    divide,
    impossible,
    legal_pairs,
    roots,
    rows_at,
    widest,
)
from verifair.engine.search.standard import SECONDS, Progress, StandardRelaxation
from verifair.engine.search.subdivision import Open, subdivide
from verifair.engine.search.trees import Trees

ROWS = np.array([[-1.0, 1.0], [-1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [0.0, -1.0], [1.0, 0.0]])
"""Their lower bounds are -D, -U, L' of the fall from x to x', then -D, -U, L' of the rise."""
TOP, MOST, LINEAR = 256, 2048, 128
"""Boxes cut in a step (fewer in the beginning), boxes bounded at a time."""
CHEAP = 512
"""So many boxes a second bounded by the standard relaxation, and all are."""
POLISH = 0.25
"""Seconds for an ascent from a better point."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LeftBoxes(Batched):
    """Boxes by id (N,), their bounds (N, 2) in both directions (at most what is known where closed) and slopes of lines (N, 2)."""

    ids: Integers
    bound: Array
    slope: Array


class InputSearch:
    """The mutable state of one run: all boxes by id, and of those that are left the ids with a bound for each direction."""

    def __init__(self, problem: TwinProblem, logit: bool, tolerance: float, rng: np.random.Generator) -> None:
        problem = replace(problem, goals=tuple(Goal(rows=part, strict=False) for part in (ROWS[:3], ROWS[3:])))
        self.problem, self.twin, self.logit, self.tolerance = problem, Twin.of(problem).with_room(), logit, tolerance
        self.standard, self.progress, self.deadline = StandardRelaxation(self.twin), Progress(self.twin, 0), np.inf
        self.climb = Climb(self.twin, "logit" if logit else "gap", rng)
        self.start = roots(self.twin)
        nothing = np.full((len(self.start), 2), np.inf)
        self.trees = Trees(len(self.start), gap=nothing, slope=nothing.copy())  # what a line of the node's own shows, and its slope
        self.lower, self.upper = self.start.lower.copy(), self.start.upper.copy()
        self.question, self.along = self.start.question.copy(), np.zeros(len(self.start), dtype=np.int64)
        self.left: list[LeftBoxes] = []
        self.value, self.where = -np.inf, (0, 0)
        self.point = rows_at(self.twin, np.array([0]), self.start.lower[:1])[0]
        self.polished = -np.inf
        self.nodes = 0
        count = len(self.start)
        self.stuck = np.full((count, 2), -np.inf)  # the largest bounds of boxes that cannot be cut
        self.taken = np.zeros((count, 2), dtype=bool)  # what somebody else has proved to be at most `known`

    @property
    def known(self) -> float:
        """Boxes are dropped when their gap is surely at most this."""
        return max(self.value, 0.0) + self.tolerance

    @property
    def trivial(self) -> float:
        """A bound on every gap."""
        return np.inf if self.logit else 1.0

    def bounds(self) -> Array:
        """Return (Q, 2) bounds on the gaps of all questions in both directions."""
        bounds = np.maximum(self.stuck, self.known)
        for part in self.left:
            np.maximum.at(bounds, self.question[part.ids], part.bound)
        return np.asarray(bounds)

    @property
    def finished(self) -> bool:
        """No box is left to cut."""
        return not any((self._priority(part) > self.known).any() for part in self.left)

    def _priority(self, part: LeftBoxes) -> Array:
        """Return (N,) the larger bound of the directions that are this search's business."""
        return np.asarray(np.where(self.taken[self.question[part.ids]], -np.inf, part.bound).max(axis=1))

    def attack(self, seconds: float) -> None:
        """Look for a good point by ascents; goes on where it left off."""
        self.climb.run(seconds)
        self._take()

    def polish(self) -> None:
        """Climb from the best point, once for each."""
        if self.value > self.polished:
            self.met(self.where[0], self.where[1], self.point)
            self.polished = self.value

    def met(self, question: int, direction: int, raw: Array) -> None:
        """A raw point (V,) worth climbing from."""
        seconds = min(POLISH, max(self.deadline - clock.now(), 0.0))
        self.climb.climb_from(np.array([question]), raw[None], np.array([direction]), seconds)
        self._take()

    def _take(self) -> None:
        found = self.climb.found(1)
        if len(found.value) and found.value[0] > self.value:
            self.value, self.point = float(found.value[0]), found.raw[0]
            self.where = int(found.question[0]), int(found.direction[0])

    def meet(self, nodes: Nodes, point: Array) -> None:
        """Evaluate a raw point (N, v) a box and keep the best legal one."""
        gaps = self._falls(nodes.question, point)
        better = np.flatnonzero(np.abs(gaps) > self.value)
        better = better[legal_pairs(self.twin, nodes.question[better], point[better])]
        if len(better):
            best = better[np.abs(gaps[better]).argmax()]
            self.value, self.where = float(np.abs(gaps[best])), (int(nodes.question[best]), int(gaps[best] < 0))
            self.point = rows_at(self.twin, nodes.question[[best]], point[[best]])[0]

    def _falls(self, question: Integers, point: Array) -> Array:
        """Return (N,) by how much each point (N, v) falls from x to x'; a rise is negative."""
        return self.climb.values(question, point, np.zeros(len(point), dtype=np.int64))[0]

    def offer(self, question: int, raw: Array) -> None:
        """Climb from the best of some raw points (N, V) when it beats what is known."""
        second = self.problem.batch.take(np.full(len(raw), question)).second(raw)
        raw = raw[self.problem.domain.legal(raw) & self.problem.domain.legal(second)]
        if not len(raw):
            return
        gaps = self._falls(np.full(len(raw), question), raw[:, self.twin.variables])
        best = int(np.abs(gaps).argmax())
        if np.abs(gaps[best]) > self.value:
            self.met(question, int(gaps[best] < 0), raw[best])

    def begin(self, stop: Callable[[], bool]) -> None:
        """Bound the whole boxes; those that are left when it is time to stop get what is trivial."""

        def unknown(part: Nodes) -> tuple[Array, Array]:
            return np.full((len(part), 2), self.trivial), np.ones((len(part), 2))

        whole = Open[Nodes](LINEAR)
        whole.add(self.start)
        subdivide(
            whole, lambda part: self.bound(part, *unknown(part)), ended=stop, deadline=self.deadline,
            cost=SECONDS * self.progress.forward,
        )
        for part in whole.batches:
            score = np.zeros_like(self.twin.local.box(part.lower, part.upper)[0])
            self._keep(part, np.zeros(len(part), dtype=bool), *unknown(part), score)

    def step(self, largest: LeftBoxes) -> None:
        """Cut boxes in two and bound the halves."""
        ids = largest.ids
        alive = largest.bound > self.known
        nodes = Nodes(ids=ids, question=self.question[ids], lower=self.lower[ids], upper=self.upper[ids], open=alive)
        variable, cut = cuts(self.twin, nodes, self.along[ids])
        children = self.trees.split(ids, self.twin.variables[variable], cut)
        halves = divide(self.twin, nodes, variable, cut, children)
        self._remember(halves)
        self.bound(halves, *(np.concatenate([one, one]) for one in (largest.bound, largest.slope)))
        self.polish()

    def take(self, most: int) -> LeftBoxes | None:
        """Take the boxes with the largest bounds off the list, None where it is finished."""
        if self.finished:
            return None
        every = LeftBoxes.join(self.left)
        every = every.take(every.bound.max(axis=1) > self.known)
        priority = self._priority(every)
        order = np.flatnonzero(priority > self.known)
        count = len(order) // 4 + 2 if len(order) < 4 * TOP else int(np.clip(len(order) // 20, TOP, MOST))
        count = min(count, most)
        if len(order) > count:
            order = order[np.argpartition(-priority[order], count)[:count]]
        rest = np.ones(len(every.ids), dtype=bool)
        rest[order] = False
        self.left = [every.take(rest)] if rest.any() else []
        return every.take(order)

    def _remember(self, nodes: Nodes) -> None:
        """Room for the new boxes (their ids follow the largest one), doubled when it runs out."""
        needed = int(nodes.ids.max()) + 1
        if needed > len(self.question):
            size = max(needed, 2 * len(self.question))
            self.lower, self.upper = (np.resize(one, (size, one.shape[1])) for one in (self.lower, self.upper))
            self.question, self.along = np.resize(self.question, size), np.resize(self.along, size)
        self.lower[nodes.ids], self.upper[nodes.ids], self.question[nodes.ids] = nodes.lower, nodes.upper, nodes.question

    def bound(self, nodes: Nodes, bound: Array, slope: Array) -> None:
        """Bound boxes in their open directions, look for better points in them, and keep those that may hold one.

        bound, slope: (N, 2) what is known of the boxes' parents: their bounds, and the lines that served them best.
        """
        self.nodes += len(nodes)
        gone = impossible(self.twin, nodes)
        self.trees.known["gap"][nodes.ids] = np.where(gone, -np.inf, np.inf)[:, None]  # not the parent's
        nodes, bound, slope = nodes.take(~gone), bound[~gone], slope[~gone]
        self.meet(nodes, self.twin.local.middle(nodes.lower, nodes.upper))
        for start in range(0, len(nodes), LINEAR):
            part = slice(start, start + LINEAR)
            self._bound(nodes.take(part), bound[part].copy(), slope[part].copy())

    def _bound(self, nodes: Nodes, bound: Array, slope: Array) -> None:
        """Intervals first, and lines for the directions that these leave open."""
        low, high = self.twin.local.box(nodes.lower, nodes.upper)
        intervals = interval_bounds(self.twin, nodes.question, low, high)
        rough = interval_goals(self.twin, nodes.question, intervals[-1])
        for d in (0, 1):
            least = rough[:, 3 * d : 3 * d + 3]
            w, m = (-least[:, 0], np.ones(len(nodes))) if self.logit else interval_line(least)
            bound[:, d] = self._shown(nodes.ids, np.full(len(nodes), d), w, m, bound[:, d])
        bound = np.where(nodes.open, bound, -np.inf)
        wanted = (bound > self.known) & ~self.taken[nodes.question]
        score = np.zeros(low.shape)
        for both in (True, False):
            mine = np.flatnonzero(wanted.all(axis=1) if both else wanted.sum(axis=1) == 1)
            if len(mine):
                some = [layer.take(mine) for layer in intervals]
                part = LeftBoxes(ids=mine, bound=bound[mine], slope=slope[mine])
                directions = np.tile([0, 1], (len(mine), 1)) if both else wanted[mine].argmax(axis=1)[:, None]
                box = nodes.take(mine)
                bound[mine], slope[mine], score[mine] = self._lines(box, low[mine], high[mine], some, part, directions)
        self._keep(nodes, (low == high).all(axis=1), bound, slope, score)

    def _lines(
        self, nodes: Nodes, low: Array, high: Array, intervals: list[LayerBounds], part: LeftBoxes, directions: Integers
    ) -> tuple[Array, Array, Array]:
        """Return bounds (N, 2), slopes for the halves (N, 2) and scores (N, d), by lines in each of S directions (N, S)."""
        bound, slope = part.bound.copy(), part.slope.copy()
        rows, wanted = rows_of(np.take_along_axis(slope, directions, axis=1), directions)
        found = linear_goals(self.twin, nodes.question, (low, high), intervals, rows, np.zeros(wanted.shape), wanted)
        for s in range(directions.shape[1]):
            at = np.arange(len(nodes)), directions[:, s]
            three = slice(3 * s, 3 * s + 3)
            mine = replace(found, lower=found.lower[:, three], slope=found.slope[:, three], base=found.base[:, three])
            linear, enough = mine.lower[:, 0], np.full(len(nodes), -self.known)
            if not self.logit:
                slope[at], linear = best_slope(mine, (high - low) / 2, slope[at], self.known)
                enough = -conjugate(self.known, slope[at])
            row, _ = rows_of(slope[at][:, None], directions[:, [s]])
            w = -self._standard(nodes, intervals, row[:, 0], linear, enough)
            bound[at] = self._shown(nodes.ids, at[1], w, slope[at], bound[at])
            self.meet(nodes, corner(self.twin, nodes, mine.slope[:, 0]))
        return bound, slope, found.score

    def _standard(self, nodes: Nodes, intervals: list[LayerBounds], rows: Array, linear: Array, enough: Array) -> Array:
        """Return lower bounds (N,) of rows (N, 2), one a box, by the standard relaxation. Where that is dear, and lines show
        (`linear`) less than `enough` (N,), interval bounds of the hidden layers have to do: the box will be cut anyway."""
        none, every = np.zeros(len(nodes)), np.arange(len(nodes))
        if self.progress.at_once >= CHEAP:
            return self.standard.lower(nodes, intervals, every, rows, none, enough)
        found = self.standard.by_intervals(nodes, intervals, every, rows, none)
        left = np.flatnonzero((linear >= enough) & ~(found > enough))
        for start in range(0, len(left), self.progress.at_once):
            part = left[start : start + self.progress.at_once]
            if clock.now() < self.deadline:
                closer = self.standard.by_intervals(nodes, None, part, rows[part], none[part])
                found[part] = np.maximum(found[part], closer)
        return found

    def _shown(self, ids: Integers, direction: Integers, w: Array, m: Array, bounds: Array) -> Array:
        """Record what lines a - m b <= w (N,) prove of boxes in one direction each (N,); returns what is known of their gaps then.

        bounds: (N,) on the gaps by the lines of whole parents: they are true of the halves too, but shown by a leaf at the parent.
        """
        if self.logit:  # the constant that is claimed is rounded as well
            gap = np.maximum(w, 0.0) * (1 + 4 * self.twin.rate + 1e-12)
        else:
            gap = gap_below(w, m, self.known, bounds)
            gap = np.where((gap < 1) & (w <= conjugate(np.minimum(gap, 1 - SLACK), m)), gap, np.inf)
        known = self.trees.known
        better = np.flatnonzero(gap < known["gap"][ids, direction])
        at = ids[better], direction[better]
        known["gap"][at], known["slope"][at] = gap[better], m[better]
        return np.fmin(bounds, gap)

    def _keep(self, nodes: Nodes, point: Booleans, bound: Array, slope: Array, score: Array) -> None:
        """List what cannot be closed, with where to cut it."""
        self.meet(nodes.take(point), nodes.lower[point])
        alive = nodes.open & (bound > self.known)
        can = np.asarray(self.twin.local.divisible(nodes.lower, nodes.upper).any(axis=1))
        stuck = np.flatnonzero(alive.any(axis=1) & ~can)
        np.maximum.at(self.stuck, nodes.question[stuck], np.where(alive, bound, -np.inf)[stuck])
        left = np.flatnonzero(alive.any(axis=1) & can)
        if len(left):
            self.along[nodes.ids[left]] = widest(self.twin, nodes.take(left), score[left])
            self.left.append(LeftBoxes(ids=nodes.ids[left], bound=np.where(alive, bound, -np.inf)[left], slope=slope[left]))

    def proofs(self, questions: Integers, direction: int, upper: float, claim: float) -> list[Tree]:
        """Return proofs, for questions whose `bounds` are at most `upper`, that no gap in a direction exceeds the claim, which has
        something to spare: cut off at the first nodes whose own lines show `upper`."""
        gap, slope = (self.trees.known[name][: self.trees.size, direction] for name in ("gap", "slope"))
        leaf, line = gap <= upper, {}
        if not self.logit:
            own = np.array([2 * sum(self.problem.network.hidden) + len(no_gap(claim)[direction].rows)])
            line = {k: (own, slope[k : k + 1]) for k in np.flatnonzero(leaf & np.isfinite(gap)).tolist()}
        return self.trees.written(questions, leaf, line)


SLACK = 1e-9
"""Added to every bound on a gap, taken off every constant."""
STEEPEST = 2.0**10
HALVINGS = 8
"""Of what is between the parent's bound and what is known."""
RATIOS = 2.0 ** (np.arange(-16, 17) / 4)
"""Slopes tried, relative to the one that served the parent best."""
MIDDLE = 16
MIXTURES = np.where(
    RATIOS[:, None] < 1,
    np.stack([RATIOS, 1 - RATIOS, 0 * RATIOS], axis=1),
    np.stack([0 * RATIOS + 1, 0 * RATIOS, RATIOS - 1], axis=1),
)
"""(M, 3): -a + r m b = r (-a + m b) + (1 - r) (-a) for r < 1, else (-a + m b) + (r - 1) m b."""


def conjugate(epsilon: Array | float, m: Array) -> Array:
    """Return (N,) c(epsilon, m), a little less than computed. 0 < epsilon < 1."""
    linear, constant = 1 - m + 2 * m * epsilon, m * epsilon * (1 - epsilon)
    root = np.sqrt(np.maximum(linear * linear + 4 * (m - 1) * constant, 0.0))
    s = 2 * constant / (linear + root)  # where the line touches
    s = np.clip(s, 1e-300, (1 - epsilon) * (1 - 1e-15))
    least = logit(s + epsilon) - m * logit(s)
    return np.asarray(least - SLACK * (1 + m) * (1 + np.abs(least)))


def rows_of(slope: Array, directions: Integers) -> tuple[Array, Array]:
    """Return rows (N, 3 S, 2) to bound, and what they count in choosing where to cut: for a fall -a + m b, -a and m b with (a, b) =
    (g, g') and m = slope (N, S); swapped for a rise. Their mixtures are all lines."""
    zero, one = np.zeros_like(slope), np.ones_like(slope)
    rows = np.stack([np.stack([-one, slope], axis=2), np.stack([-one, zero], axis=2), np.stack([zero, slope], axis=2)], axis=2)
    rows = np.where((directions == 0)[:, :, None, None], rows, rows[..., ::-1])
    wanted = np.array([1.0, 0.1, 0.1]) / np.maximum(slope, 1.0)[:, :, None]
    return rows.reshape(len(slope), -1, 2), wanted.reshape(len(slope), -1)


def interval_line(least: Array) -> tuple[Array, Array]:
    """Return w and m (B,) of lines a - m b <= w that suit the largest gaps that D, U, L' allow; least: (B, 3) lower bounds of -D,
    -U, L'."""
    d, u, low = -least[:, 0], -least[:, 1], least[:, 2]
    b = np.clip(-d / 2, low, np.maximum(u - d, low))
    with np.errstate(all="ignore"):  # of no use where d <= 0
        m = np.exp(log_expit(b) + log_expit(-b) - log_expit(b + d) - log_expit(-b - d))
    m = np.where(d > 0, np.clip(m, 1 / STEEPEST, STEEPEST), 1.0)
    return np.where(m < 1, m * d + (1 - m) * u, np.where(m > 1, d - (m - 1) * low, d)), m


def best_slope(bounds: GoalBounds, radius: Array, m: Array, known: float) -> tuple[Array, Array]:
    """Return slopes (N,) for lines, and the lower bounds (N,) of these: of mixtures of the three rows of `rows_of`, slopes
    RATIOS * m, the one whose constant is least in need."""
    lower = mixed_goals(bounds, radius, MIXTURES)  # (N, M) of -a + (RATIOS m) b
    slopes = np.clip(RATIOS * m[:, None], 1 / STEEPEST, STEEPEST)
    lower[slopes != RATIOS * m[:, None]] = -np.inf
    lower[:, MIDDLE] = np.maximum(lower[:, MIDDLE], bounds.lower[:, 0])
    spare = (lower + conjugate(known, slopes)) / (1 + slopes)
    best = np.arange(len(m)), spare.argmax(axis=1)
    return slopes[best], lower[best]


def gap_below(w: Array, m: Array, known: float, parents: Array) -> Array:
    """Return (N,) bounds on the gap where a - m b <= w: `known` where that suffices, at most `parents` (N,), found by bisection."""
    low, high = np.full(len(w), known), np.minimum(parents, 1.0)
    left = np.flatnonzero(~(w <= conjugate(known, m)) & (high > known))
    high[np.setdiff1d(np.arange(len(w)), left)] = known
    below, above, w, m = low[left], high[left], w[left], m[left]
    for _ in range(HALVINGS):
        middle = (below + above) / 2
        enough = w <= conjugate(middle, m)
        below, above = np.where(enough, below, middle), np.where(enough, middle, above)
    high[left] = above
    return high


def gap_of(w: float, m: float, known: float) -> float:
    """Return the same for one line, to a millionth of what is above `known`: a hundred candidates at once, three times."""
    low, high = known, 1.0
    for _ in range(3):
        candidates = np.linspace(low, high, 101)[:-1]
        enough = np.flatnonzero(w <= conjugate(candidates, np.full(100, m)))
        k = int(enough[0]) if len(enough) else 100
        low, high = float(candidates[max(k - 1, 0)]), float(candidates[k]) if k < 100 else high
        if k == 0:
            break
    return high


def weights_of(first: Array, second: Array, rows: Array, direction: int) -> Array:
    """Return weights (N, R) of a claim's rows (R, 2) that add up to -A a + B b, A = first and B = second (N,): of the two rows on
    either side of it, which leaves the largest constants as c is concave. A single row is -a + b."""
    weights = np.zeros((len(first), len(rows)))
    if len(rows) == 1:
        weights[:, 0] = first
        return weights
    b, a = rows.T[:: 1 if direction else -1]
    size, total = b - a, first + second
    angle = b / size  # from 0, the row -a, to 1, the row b
    order = np.argsort(angle)
    at = np.divide(second, total, out=np.zeros_like(total), where=total > 0)
    next_one = np.clip(np.searchsorted(angle[order], at), 1, len(order) - 1)
    left, right = order[next_one - 1], order[next_one]
    share = np.clip((at - angle[left]) / (angle[right] - angle[left]), 0.0, 1.0)
    row = np.arange(len(first))
    weights[row, left] = (1 - share) * total / size[left]
    weights[row, right] = share * total / size[right]
    return weights
