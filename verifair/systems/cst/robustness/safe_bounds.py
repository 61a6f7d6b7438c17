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

from encoders.network import Array, Booleans, Integers
from verifair.checker.report import Progress
from verifair.systems.cst.deciders import LinearRule, counterfactually, decided
from verifair.systems.cst.neighbours.counts import NeighbourPool
from verifair.systems.cst.robustness.cells import halved
from verifair.systems.cst.robustness.effects import PAD, Effects
from verifair.systems.cst.robustness.exact_flips import accepts, scores
from verifair.systems.cst.robustness.problem import SensitivityProblem

STEPS = 40
"""Steps of bisection for t."""
POINTS = 4
"""So many times k of the nearest points are looked at; what may be farther counts as unknown."""
GOLDEN = 60
"""Steps towards the least lower limit of an interval."""
SURROUNDINGS = 2048
"""Most complainants, or parts, whose surroundings are held at once."""
NARROW = 1e-9
"""Parts are not halved below this width."""
AT_ONCE = 4
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
        width = min(len(pool.points), max(POINTS * k, k + 100))
        distance, point = pool.search.value(centers, width)
        return cls(
            distance=distance, counted=np.cumsum(pool.count[point], axis=1), bad=np.cumsum(pool.bad[point], axis=1),
            whole=width == len(pool.points),
        )

    def negatives(self, k: int, rho: Array, rounding: float) -> tuple[Array, Array]:
        """(C,), (C,) least and most negative decisions among the k nearest of counterfactuals that moved by at most rho (C,)."""
        everyone = np.arange(len(rho))
        radius = self.distance[everyone, np.argmax(self.counted >= k, axis=1)]
        slack = 2 * rho + rounding * np.maximum(1.0, radius + rho)
        inner = (self.distance < (radius - slack)[:, None]).sum(axis=1)
        outer = (self.distance <= (radius + slack)[:, None]).sum(axis=1)
        sure, sure_bad = (np.where(inner > 0, total[everyone, inner - 1], 0) for total in (self.counted, self.bad))
        maybe, maybe_bad = self.counted[everyone, outer - 1] - sure, self.bad[everyone, outer - 1] - sure_bad
        left = k - sure
        most = sure_bad + np.minimum(maybe_bad, left)
        least = sure_bad + np.maximum(left - (maybe - maybe_bad), 0)
        beyond = (outer == self.distance.shape[1]) & (not self.whole)  # farther points may be in the group as well
        return np.where(beyond, sure_bad, least).astype(float), np.where(beyond, sure_bad + left, most).astype(float)


def safe(problem: SensitivityProblem, most: float) -> Array:
    """(C,) sizes t, in standard errors, up to `most`, of coefficients' boxes within which no verdict flips."""
    found = np.zeros(len(problem))
    for start in range(0, len(problem), SURROUNDINGS):
        who = np.arange(start, min(start + SURROUNDINGS, len(problem)))
        found[who] = _largest(Bounds(problem, who, np.tile(problem.effects.estimates, (len(who), 1))), most)
    return found


def _largest(bounds: Bounds, most: float) -> Array:
    effects = bounds.problem.effects

    def holds(t: Array) -> Booleans:
        reach = t[:, None] * effects.errors
        return bounds.holds(effects.estimates - reach, effects.estimates + reach, t)

    low, high = np.zeros(len(bounds.who)), np.full(len(bounds.who), most)
    all_the_way = holds(high)
    for _ in range(STEPS):
        middle = (low + high) / 2
        held = holds(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return np.where(all_the_way, most, low)


class Bounds:
    """Complainants who (R,), their counterfactuals at coefficients centre (R, p), and the points around these."""

    def __init__(self, problem: SensitivityProblem, who: Integers, centre: Array) -> None:
        self.problem, self.who, self.centre = problem, who, centre
        self.nodes = problem.nodes(who, centre)
        self.now = problem.now[who]
        rows = problem.rows(who, self.nodes)
        self.rule = counterfactually(problem.decider)
        legal, accepted = decided(problem.decider, rows)
        self.tilde = np.zeros(len(who)) if accepted is None else (~accepted).astype(float)
        self.score = self.rule.score(rows) if isinstance(self.rule, LinearRule) else np.zeros(len(who))
        if problem.method != "CF":
            self.around = Around.of(problem.found.test_pool, problem.metric.embed(legal), problem.k)

    def holds(self, low: Array, high: Array, t: Array | None = None) -> Booleans:
        """Return (R,) True where the bounds show that no coefficients in low .. high (R, p) change the verdict.

        t: (R,) where the boxes are estimates -+ t standard errors.
        """
        problem = self.problem
        ends = problem.effects.enclosure(problem.values[self.who], problem.change[self.who], low, high)
        least, most = (problem.allowed(end) for end in ends)
        tilde = self._tilde(t, least, most)
        if problem.method == "CF":
            refused = problem.found.refused[problem.index[self.who]]
            return np.asarray(~refused | ((tilde[0] == tilde[1]) & ((tilde[0] == 0) == self.now)))
        moved = np.maximum(np.abs(least - self.nodes), np.abs(most - self.nodes))
        rho = self._length(moved)
        fewest, largest = self.around.negatives(problem.k, rho, problem.found.test_pool.rounding)
        held = self._constant(fewest, largest, *tilde)
        still = np.flatnonzero((rho == 0) & ~held & (tilde[0] == tilde[1]))  # the very same test group, ties included
        held[still] = problem.verdicts(self.who[still], self.centre[still]) == self.now[still]
        return held

    def _length(self, moved: Array) -> Array:
        """Return (R,) the largest distance that a counterfactual moves if its nodes move by up to `moved` (R, m)."""
        metric = self.problem.metric
        of = [self.problem.effects.nodes.index(name) if name in self.problem.effects.nodes else None for name in metric.numbers]
        steps = np.column_stack([np.zeros((len(moved), 0)), *(moved[:, n] if n is not None else np.zeros(len(moved)) for n in of)])
        length = np.linalg.norm(steps @ np.abs(metric.linear), ord=metric.p, axis=1)
        return np.asarray(length * (1 + 1e-12))

    def _tilde(self, t: Array | None, least: Array, most: Array) -> tuple[Array, Array]:
        """Return (R,), (R,) least and largest refusal of the counterfactual, 0 or 1 each."""
        if self.problem.method == "CST w/o":  # CST w/o does not use the decision on the counterfactual
            return np.zeros(len(least)), np.zeros(len(least))
        still = (least == most).all(axis=1)
        sure = still if not isinstance(self.rule, LinearRule) else still | self._decided(self.rule, t, least, most)
        return np.where(sure, self.tilde, 0.0), np.where(sure, self.tilde, 1.0)

    def _decided(self, rule: LinearRule, t: Array | None, least: Array, most: Array) -> Booleans:
        """Return (R,) True where the rule's score stays on its side of the threshold: by intervals, or by corners with room for
        rounding."""
        problem = self.problem
        effects = problem.effects
        weights = np.array([rule.weights.get(name, 0.0) for name in effects.nodes])
        score = self.score
        size = np.abs(score) + np.abs(self.nodes) @ np.abs(weights)
        with np.errstate(invalid="ignore"):  # an infinite end times a weight of 0 is NaN, which proves nothing
            down = np.where(weights > 0, least - self.nodes, most - self.nodes) @ weights - PAD * size
            up = np.where(weights > 0, most - self.nodes, least - self.nodes) @ weights + PAD * size
        refused = self.tilde > 0

        def on_its_side(low: Array, high: Array) -> Booleans:
            end = np.where(refused, high, low)
            return np.asarray((accepts(rule, end) != refused) & np.isfinite(end))

        sure = on_its_side(score + down, score + up)
        if t is not None and (effects.errors > 0).sum() <= CORNERED and not any(effects.logarithmic):
            room = _rounding_room(effects, t) @ np.abs(weights) + PAD * size
            smallest, largest = self._corners(rule, t)
            unmoved = rule.score(problem.rows(self.who, problem.values[self.who]))
            sure |= on_its_side(unmoved + smallest - room, unmoved + largest + room) & self._unclipped(t)
        return np.asarray(sure)

    def _corners(self, rule: LinearRule, t: Array) -> tuple[Array, Array]:
        """(R,), (R,) least and largest change of the score over the corners of boxes of size t (R,), unrounded and unclipped."""
        problem = self.problem
        change = problem.change[self.who]
        distinct, place = np.unique(change, axis=0, return_inverse=True)
        least, most = np.empty(len(t)), np.empty(len(t))
        for group, one in enumerate(distinct):
            polynomial = scores(problem.effects, rule, one, problem.effects.corners)
            mine = np.flatnonzero(place.reshape(-1) == group)
            value = polynomial @ (t[mine] ** np.arange(polynomial.shape[1])[:, None])
            least[mine], most[mine] = value.min(axis=0), value.max(axis=0)
        return least, most

    def _unclipped(self, t: Array) -> Booleans:
        """Return (R,) True where neither the nodes' ranges nor a decider's rounding has an effect within t."""
        problem = self.problem
        effects = replace(problem.effects, range=(None,) * len(problem.effects.nodes))
        reach = t[:, None] * effects.errors
        ends = effects.enclosure(
            problem.values[self.who], problem.change[self.who], effects.estimates - reach, effects.estimates + reach
        )
        inside = np.ones(len(t), dtype=bool)
        for n, span in enumerate(problem.effects.range):
            if span is not None:
                inside &= (ends[0][:, n] >= span[0]) & (ends[1][:, n] <= span[1])
        return inside

    def _constant(self, fewest: Array, largest: Array, accepted: Array, refused: Array) -> Booleans:
        """Return (R,) True where the verdict is the same for all test groups with fewest .. largest negative decisions."""
        problem, who = self.problem, self.who
        ends = [problem.judged(who, fewest, accepted), problem.judged(who, largest, refused)]
        same = (ends[0] == self.now) & (ends[1] == self.now)
        if problem.verdict == "significant" and problem.terms.interval == "wald":  # its lower limit is convex, not monotone, in p_t
            same &= self._least_limit(fewest + accepted, largest + refused) == self.now
        return np.asarray(same)

    def _least_limit(self, low: Array, high: Array) -> Booleans:
        """Return (R,) the verdict at the minimum of Wald's lower limit between low and high negative decisions."""
        ratio = (np.sqrt(5) - 1) / 2

        def limit(counter: Array) -> Array:
            return self.problem.claims(self.who, counter, np.zeros(len(counter))).low

        for _ in range(GOLDEN):
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            smaller = limit(left) < limit(right)
            low, high = np.where(smaller, low, left), np.where(smaller, right, high)
        return self.problem.judged(self.who, (low + high) / 2, np.zeros(len(low)))


CORNERED = 10
"""Uncertain coefficients up to which corners are used beside intervals."""


def _rounding_room(effects: Effects, t: Array) -> Array:
    """Return (R, m) bounds on the change of the nodes caused by rounding, their own and that of nodes above, within t (R,)."""
    largest = np.abs(effects.estimates) + t[:, None] * effects.errors
    room = np.zeros((len(t), len(effects.nodes)))
    for n, name in enumerate(effects.nodes):
        decimals = effects.decimals[n]
        room[:, n] = 0.0 if decimals is None else 0.5 * 10.0**-decimals
        for k, one in enumerate(effects.coefficients):
            if one.node == name and one.parent in effects.nodes:
                room[:, n] += largest[:, k] * room[:, effects.nodes.index(one.parent)]
    return room


def refined(
    problem: SensitivityProblem, safe: Array, upper: Array, *, effort: int, progress: Progress | None = None
) -> Array:
    """(C,) sizes of boxes in which no verdict flips, at least `safe` (C,) and at most `upper` (C,), where a flip is known.

    effort: parts to bound for each complainant.   progress(done, total) counts rounds.
    """
    number = count()
    weight = _weights(problem)
    loose = np.flatnonzero(problem.effects.errors > 0)
    heaps: dict[int, list[Part]] = {
        k: _slabs(float(safe[k]), float(upper[k]), loose, len(problem.effects), number)
        for k in np.flatnonzero(safe < upper).tolist()
    }
    found = np.minimum(np.maximum(safe, 0.0), upper)
    rounds = -(-effort // AT_ONCE)
    for step in range(rounds):
        taken: list[tuple[int, Part]] = []
        for k, heap in heaps.items():
            taken += [(k, part) for part in _nearest(heap, float(upper[k]))]
        if not taken:
            break
        held = _held(problem, taken)
        for (k, (near, _, low, high)), proved in zip(taken, held, strict=True):
            if not proved:
                j = int(np.argmax(weight[k] * (high - low)))
                for half_low, half_high in halved(low, high, j):
                    heapq.heappush(heaps[k], (max(near, _nearness(half_low, half_high)), next(number), half_low, half_high))
        if progress is not None:
            progress(step + 1, rounds)
    for k, heap in heaps.items():
        found[k] = max(found[k], min(heap[0][0], upper[k]) if heap else upper[k])
    return found


def _nearest(heap: list[Part], upper: float) -> list[Part]:
    """Take a few of the nearest parts from a heap, but none beyond `upper` and none too narrow to be halved."""
    parts: list[Part] = []
    while heap and len(parts) < AT_ONCE and heap[0][0] < upper and (heap[0][3] - heap[0][2]).max() > NARROW:
        parts.append(heapq.heappop(heap))
    return parts


def _held(problem: SensitivityProblem, taken: list[tuple[int, Part]]) -> Booleans:
    """Return True for each part in which the verdict is certainly the same throughout."""
    who = np.array([k for k, _ in taken], dtype=np.int64)
    low, high = (np.array([part[end] for _, part in taken]) * problem.effects.errors + problem.effects.estimates for end in (2, 3))
    found = np.empty(len(who), dtype=bool)
    for start in range(0, len(who), SURROUNDINGS):
        part = slice(start, start + SURROUNDINGS)
        middle = low[part] + (high[part] - low[part]) / 2
        found[part] = Bounds(problem, who[part], middle).holds(low[part], high[part])
    return found


def _slabs(safe: float, upper: float, loose: Integers, p: int, number: count[int]) -> list[Part]:
    """Return the region between two boxes of sizes safe and upper: a slab on each side of every coefficient."""
    parts: list[Part] = []
    for place, j in enumerate(loose.tolist()):
        low, high = np.zeros(p), np.zeros(p)
        low[loose], high[loose] = -upper, upper
        low[loose[:place]], high[loose[:place]] = -safe, safe
        for ends in ((-upper, -safe), (safe, upper)):
            one, other = low.copy(), high.copy()
            one[j], other[j] = ends
            parts.append((safe, next(number), one, other))
    heapq.heapify(parts)
    return parts


def _nearness(low: Array, high: Array) -> float:
    """Return the least size of a box around the estimates that meets this part."""
    return float(np.maximum(np.maximum(low, -high), 0.0).max(initial=0.0))


def _weights(problem: SensitivityProblem) -> Array:
    """Return (C, p) the move of a complainant's counterfactual by one standard error of each coefficient: it picks the halving."""
    effects = problem.effects
    weight = np.zeros((len(problem), len(effects)))
    here = effects.counterfactuals(problem.values, problem.change, effects.estimates[None], bounded=False)[0]
    spread = np.maximum(problem.values.std(axis=0), 1e-12) if len(problem) else np.ones(len(effects.nodes))
    for k in np.flatnonzero(effects.errors > 0).tolist():
        theta = effects.estimates.copy()
        theta[k] += effects.errors[k]
        there = effects.counterfactuals(problem.values, problem.change, theta[None], bounded=False)[0]
        weight[:, k] = (np.abs(there - here) / spread).sum(axis=1) + 1e-12
    return weight
