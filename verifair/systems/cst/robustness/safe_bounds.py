"""Sizes of the coefficients' box below which a verdict cannot flip. Sound bounds, for any decider and any linear causal model.

The test group. If the counterfactual moves by at most rho in the embedding that distances are measured in, every row's distance
from it changes by at most rho, and so does the k-th smallest. With d_k the k-th distance now, rows nearer than d_k - 2 rho are
certainly in the group, those beyond d_k + 2 rho certainly are not, and the places that are left go to any of the others.

The decision on the counterfactual. A linear rule's decision is bounded by the interval of its score. Nothing is assumed of any
other decider: it may decide either way as soon as the counterfactual can move.

Larger safe boxes. Bounds for parts of the box are tighter than one for the whole box. Best first, for all complainants at once: the
part nearest to the estimates is bounded around its own centre; if the verdict may flip in it, it is halved. The box is safe up to
the nearest part that is left. Parts are measured in standard errors from the estimates.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from verifair.checker.report import Progress
from verifair.systems.cst.deciders import LinearRule, counterfactually, decided
from verifair.systems.cst.neighbours.counts import NeighbourPool
from verifair.systems.cst.robustness.cells import halved
from verifair.systems.cst.robustness.effects import PAD, Effects
from verifair.systems.cst.robustness.exact_flips import accepts, scores
from verifair.systems.cst.robustness.problem import SensitivityProblem

STEPS = 40
"""Steps of bisection for t."""
POINTS_PER_K = 4
"""So many times k of the nearest points are looked at; what may be farther counts as unknown."""
GOLDEN_STEPS = 60
"""Steps towards the least lower limit of an interval."""
COMPLAINANTS_AT_ONCE = 2048
"""Most complainants, or parts, whose surroundings are held at once."""
MIN_WIDTH = 1e-9
"""Parts are not halved below this width."""
PARTS_AT_ONCE = 4
"""Parts of one complainant that are bounded together."""

Part = tuple[float, int, Array, Array]
"""A part: its distance to the estimates, a number that breaks ties, and its ends (p,), (p,), in standard errors."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Around:
    """The nearest points of the test pool around C counterfactuals, nearest first, (C, W): distances, and cumulative numbers of
    rows and of negative decisions.   whole: whether these are all points."""

    distance: Array
    counted: Integers
    bad: Integers
    whole: bool

    @classmethod
    def of(cls, pool: NeighbourPool, centers: Array, k: int) -> Around:
        width = min(len(pool.points), max(POINTS_PER_K * k, k + 100))
        distance, point = pool.search.value(centers, width)
        return cls(
            distance=distance, counted=np.cumsum(pool.count[point], axis=1), bad=np.cumsum(pool.bad[point], axis=1),
            whole=width == len(pool.points),
        )

    def negatives(self, k: int, rho: Array, rounding: float) -> tuple[Array, Array]:
        """(C,), (C,) least and most negative decisions among the k nearest of counterfactuals that moved by at most rho (C,)."""
        index = np.arange(len(rho))
        radius = self.distance[index, np.argmax(self.counted >= k, axis=1)]
        slack = 2 * rho + rounding * np.maximum(1.0, radius + rho)
        inner = (self.distance < (radius - slack)[:, None]).sum(axis=1)
        outer = (self.distance <= (radius + slack)[:, None]).sum(axis=1)
        certain, certain_bad = (np.where(inner > 0, total[index, inner - 1], 0) for total in (self.counted, self.bad))
        possible, possible_bad = self.counted[index, outer - 1] - certain, self.bad[index, outer - 1] - certain_bad
        remaining = k - certain
        upper = certain_bad + np.minimum(possible_bad, remaining)
        lower = certain_bad + np.maximum(remaining - (possible - possible_bad), 0)
        beyond = (outer == self.distance.shape[1]) & (not self.whole)  # farther points may be in the group as well
        return np.where(beyond, certain_bad, lower).astype(float), np.where(beyond, certain_bad + remaining, upper).astype(float)


def safe(problem: SensitivityProblem, max_size: float) -> Array:
    """(C,) sizes t, in standard errors, up to `max_size`, of coefficients' boxes within which no verdict flips."""
    sizes = np.zeros(len(problem))
    for start in range(0, len(problem), COMPLAINANTS_AT_ONCE):
        subset = np.arange(start, min(start + COMPLAINANTS_AT_ONCE, len(problem)))
        sizes[subset] = _largest_safe(Bounds(problem, subset, np.tile(problem.effects.estimates, (len(subset), 1))), max_size)
    return sizes


def _largest_safe(bounds: Bounds, max_size: float) -> Array:
    effects = bounds.problem.effects

    def holds(t: Array) -> Booleans:
        half_width = t[:, None] * effects.errors
        return bounds.holds(effects.estimates - half_width, effects.estimates + half_width, t)

    low, high = np.zeros(len(bounds.subset)), np.full(len(bounds.subset), max_size)
    safe_throughout = holds(high)
    for _ in range(STEPS):
        middle = (low + high) / 2
        is_safe = holds(middle)
        low, high = np.where(is_safe, middle, low), np.where(is_safe, high, middle)
    return np.where(safe_throughout, max_size, low)


class Bounds:
    """Complainants `subset` (R,), their counterfactuals at coefficients centre (R, p), and the points around these."""

    def __init__(self, problem: SensitivityProblem, subset: Integers, centre: Array) -> None:
        self.problem, self.subset, self.centre = problem, subset, centre
        self.nodes = problem.nodes(subset, centre)
        self.now = problem.now[subset]
        rows = problem.rows(subset, self.nodes)
        self.rule = counterfactually(problem.decider)
        legal, accepted = decided(problem.decider, rows)
        self.tilde = np.zeros(len(subset)) if accepted is None else (~accepted).astype(float)
        self.score = self.rule.score(rows) if isinstance(self.rule, LinearRule) else np.zeros(len(subset))
        if problem.method != "CF":
            self.around = Around.of(problem.found.test_pool, problem.metric.embed(legal), problem.k)

    def holds(self, low: Array, high: Array, t: Array | None = None) -> Booleans:
        """Return (R,) True where the bounds show that no coefficients in low .. high (R, p) change the verdict.

        t: (R,) where the boxes are estimates -+ t standard errors.
        """
        problem = self.problem
        ends = problem.effects.enclosure(problem.values[self.subset], problem.change[self.subset], low, high)
        lower, upper = (problem.allowed(end) for end in ends)
        tilde = self._refusal_bounds(t, lower, upper)
        if problem.method == "CF":
            refused = problem.found.refused[problem.index[self.subset]]
            return np.asarray(~refused | ((tilde[0] == tilde[1]) & ((tilde[0] == 0) == self.now)))
        move = np.maximum(np.abs(lower - self.nodes), np.abs(upper - self.nodes))
        rho = self._max_move(move)
        fewest, largest = self.around.negatives(problem.k, rho, problem.found.test_pool.rounding)
        is_safe = self._is_constant(fewest, largest, *tilde)
        fixed = np.flatnonzero((rho == 0) & ~is_safe & (tilde[0] == tilde[1]))  # the very same test group, ties included
        is_safe[fixed] = problem.verdicts(self.subset[fixed], self.centre[fixed]) == self.now[fixed]
        return is_safe

    def _max_move(self, move: Array) -> Array:
        """Return (R,) the largest distance that a counterfactual moves if its nodes move by up to `move` (R, m)."""
        metric = self.problem.metric
        index = [self.problem.effects.nodes.index(name) if name in self.problem.effects.nodes else None for name in metric.numbers]
        steps = np.column_stack([np.zeros((len(move), 0)), *(move[:, n] if n is not None else np.zeros(len(move)) for n in index)])
        length = np.linalg.norm(steps @ np.abs(metric.linear), ord=metric.p, axis=1)
        return np.asarray(length * (1 + 1e-12))

    def _refusal_bounds(self, t: Array | None, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return (R,), (R,) least and largest refusal of the counterfactual, 0 or 1 each."""
        if self.problem.method == "CST w/o":  # CST w/o does not use the decision on the counterfactual
            return np.zeros(len(lower)), np.zeros(len(lower))
        fixed = (lower == upper).all(axis=1)
        certain = fixed if not isinstance(self.rule, LinearRule) else fixed | self._decided(self.rule, t, lower, upper)
        return np.where(certain, self.tilde, 0.0), np.where(certain, self.tilde, 1.0)

    def _decided(self, rule: LinearRule, t: Array | None, lower: Array, upper: Array) -> Booleans:
        """Return (R,) True where the rule's score stays on its side of the threshold: by intervals, or by corners with room for
        rounding."""
        problem = self.problem
        effects = problem.effects
        weights = np.array([rule.weights.get(name, 0.0) for name in effects.nodes])
        score = self.score
        size = np.abs(score) + np.abs(self.nodes) @ np.abs(weights)
        with np.errstate(invalid="ignore"):  # an infinite end times a weight of 0 is NaN, which proves nothing
            decrease = np.where(weights > 0, lower - self.nodes, upper - self.nodes) @ weights - PAD * size
            increase = np.where(weights > 0, upper - self.nodes, lower - self.nodes) @ weights + PAD * size
        refused = self.tilde > 0

        def on_its_side(low: Array, high: Array) -> Booleans:
            end = np.where(refused, high, low)
            return np.asarray((accepts(rule, end) != refused) & np.isfinite(end))

        certain = on_its_side(score + decrease, score + increase)
        if t is not None and (effects.errors > 0).sum() <= MAX_CORNERED and not any(effects.logarithmic):
            margin = _rounding_room(effects, t) @ np.abs(weights) + PAD * size
            smallest, largest = self._corners(rule, t)
            factual_score = rule.score(problem.rows(self.subset, problem.values[self.subset]))
            certain |= on_its_side(factual_score + smallest - margin, factual_score + largest + margin) & self._is_unclipped(t)
        return np.asarray(certain)

    def _corners(self, rule: LinearRule, t: Array) -> tuple[Array, Array]:
        """(R,), (R,) least and largest change of the score over the corners of boxes of size t (R,), unrounded and unclipped."""
        problem = self.problem
        change = problem.change[self.subset]
        distinct, inverse = np.unique(change, axis=0, return_inverse=True)
        lower, upper = np.empty(len(t)), np.empty(len(t))
        for group, direction in enumerate(distinct):
            polynomial = scores(problem.effects, rule, direction, problem.effects.corners)
            members = np.flatnonzero(inverse.reshape(-1) == group)
            value = polynomial @ (t[members] ** np.arange(polynomial.shape[1])[:, None])
            lower[members], upper[members] = value.min(axis=0), value.max(axis=0)
        return lower, upper

    def _is_unclipped(self, t: Array) -> Booleans:
        """Return (R,) True where neither the nodes' ranges nor a decider's rounding has an effect within t."""
        problem = self.problem
        effects = replace(problem.effects, range=(None,) * len(problem.effects.nodes))
        half_width = t[:, None] * effects.errors
        ends = effects.enclosure(
            problem.values[self.subset], problem.change[self.subset], effects.estimates - half_width, effects.estimates + half_width
        )
        inside = np.ones(len(t), dtype=bool)
        for n, span in enumerate(problem.effects.range):
            if span is not None:
                inside &= (ends[0][:, n] >= span[0]) & (ends[1][:, n] <= span[1])
        return inside

    def _is_constant(self, fewest: Array, largest: Array, accepted: Array, refused: Array) -> Booleans:
        """Return (R,) True where the verdict is the same for all test groups with fewest .. largest negative decisions."""
        problem, subset = self.problem, self.subset
        ends = [problem.judged(subset, fewest, accepted), problem.judged(subset, largest, refused)]
        constant = (ends[0] == self.now) & (ends[1] == self.now)
        if problem.verdict == "significant" and problem.terms.interval == "wald":  # its lower limit is convex, not monotone, in p_t
            constant &= self._least_limit(fewest + accepted, largest + refused) == self.now
        return np.asarray(constant)

    def _least_limit(self, low: Array, high: Array) -> Booleans:
        """Return (R,) the verdict at the minimum of Wald's lower limit between low and high negative decisions."""
        ratio = (np.sqrt(5) - 1) / 2

        def limit(counter: Array) -> Array:
            return self.problem.claims(self.subset, counter, np.zeros(len(counter))).low

        for _ in range(GOLDEN_STEPS):
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            smaller = limit(left) < limit(right)
            low, high = np.where(smaller, low, left), np.where(smaller, right, high)
        return self.problem.judged(self.subset, (low + high) / 2, np.zeros(len(low)))


MAX_CORNERED = 10
"""Uncertain coefficients up to which corners are used beside intervals."""


def _rounding_room(effects: Effects, t: Array) -> Array:
    """Return (R, m) bounds on the change of the nodes caused by rounding, their own and that of nodes above, within t (R,)."""
    largest = np.abs(effects.estimates) + t[:, None] * effects.errors
    room = np.zeros((len(t), len(effects.nodes)))
    for n, name in enumerate(effects.nodes):
        decimals = effects.decimals[n]
        room[:, n] = 0.0 if decimals is None else 0.5 * 10.0**-decimals
        for k, coefficient in enumerate(effects.coefficients):
            if coefficient.node == name and coefficient.parent in effects.nodes:
                room[:, n] += largest[:, k] * room[:, effects.nodes.index(coefficient.parent)]
    return room


def refined(
    problem: SensitivityProblem, safe: Array, upper: Array, *, effort: int, progress: Progress | None = None
) -> Array:
    """(C,) sizes of boxes in which no verdict flips, at least `safe` (C,) and at most `upper` (C,), where a flip is known.

    effort: parts to bound for each complainant.   progress(done, total) counts rounds.
    """
    counter = count()
    weight = _weights(problem)
    uncertain = np.flatnonzero(problem.effects.errors > 0)
    heaps: dict[int, list[Part]] = {
        k: _slabs(float(safe[k]), float(upper[k]), uncertain, len(problem.effects), counter)
        for k in np.flatnonzero(safe < upper).tolist()
    }
    sizes = np.minimum(np.maximum(safe, 0.0), upper)
    rounds = -(-effort // PARTS_AT_ONCE)
    for step in range(rounds):
        batch: list[tuple[int, Part]] = []
        for k, heap in heaps.items():
            batch += [(k, part) for part in _nearest(heap, float(upper[k]))]
        if not batch:
            break
        verdicts = _are_safe(problem, batch)
        for (k, (distance, _, low, high)), proved in zip(batch, verdicts, strict=True):
            if not proved:
                j = int(np.argmax(weight[k] * (high - low)))
                for half_low, half_high in halved(low, high, j):
                    heapq.heappush(heaps[k], (max(distance, _nearness(half_low, half_high)), next(counter), half_low, half_high))
        if progress is not None:
            progress(step + 1, rounds)
    for k, heap in heaps.items():
        sizes[k] = max(sizes[k], min(heap[0][0], upper[k]) if heap else upper[k])
    return sizes


def _nearest(heap: list[Part], upper: float) -> list[Part]:
    """Take a few of the nearest parts from a heap, but none beyond `upper` and none too narrow to be halved."""
    parts: list[Part] = []
    while heap and len(parts) < PARTS_AT_ONCE and heap[0][0] < upper and (heap[0][3] - heap[0][2]).max() > MIN_WIDTH:
        parts.append(heapq.heappop(heap))
    return parts


def _are_safe(problem: SensitivityProblem, batch: list[tuple[int, Part]]) -> Booleans:
    """Return True for each part in which the verdict is certainly the same throughout."""
    subset = np.array([k for k, _ in batch], dtype=np.int64)
    low, high = (np.array([part[end] for _, part in batch]) * problem.effects.errors + problem.effects.estimates for end in (2, 3))
    held = np.empty(len(subset), dtype=bool)
    for start in range(0, len(subset), COMPLAINANTS_AT_ONCE):
        part = slice(start, start + COMPLAINANTS_AT_ONCE)
        middle = low[part] + (high[part] - low[part]) / 2
        held[part] = Bounds(problem, subset[part], middle).holds(low[part], high[part])
    return held


def _slabs(safe: float, upper: float, uncertain: Integers, p: int, counter: count[int]) -> list[Part]:
    """Return the region between two boxes of sizes safe and upper: a slab on each side of every coefficient."""
    parts: list[Part] = []
    for position, j in enumerate(uncertain.tolist()):
        low, high = np.zeros(p), np.zeros(p)
        low[uncertain], high[uncertain] = -upper, upper
        low[uncertain[:position]], high[uncertain[:position]] = -safe, safe
        for ends in ((-upper, -safe), (safe, upper)):
            slab_low, slab_high = low.copy(), high.copy()
            slab_low[j], slab_high[j] = ends
            parts.append((safe, next(counter), slab_low, slab_high))
    heapq.heapify(parts)
    return parts


def _nearness(low: Array, high: Array) -> float:
    """Return the least size of a box around the estimates that meets this part."""
    return float(np.maximum(np.maximum(low, -high), 0.0).max(initial=0.0))


def _weights(problem: SensitivityProblem) -> Array:
    """Return (C, p) the move of a complainant's counterfactual by one standard error of each coefficient: it picks the halving."""
    effects = problem.effects
    weight = np.zeros((len(problem), len(effects)))
    base = effects.counterfactuals(problem.values, problem.change, effects.estimates[None], bounded=False)[0]
    scale = np.maximum(problem.values.std(axis=0), 1e-12) if len(problem) else np.ones(len(effects.nodes))
    for k in np.flatnonzero(effects.errors > 0).tolist():
        theta = effects.estimates.copy()
        theta[k] += effects.errors[k]
        moved = effects.counterfactuals(problem.values, problem.change, theta[None], bounded=False)[0]
        weight[:, k] = (np.abs(moved - base) / scale).sum(axis=1) + 1e-12
    return weight
