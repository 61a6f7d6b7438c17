"""Confirming leaves: boxes on which a goal is claimed to hold, bounded, cut further where need be, decided exactly at points.

The checker's working part (see `check` for what is claimed). Depth first over the boxes that leaves are cut into; a leaf is
confirmed by the bounds of `kernel.bounds`, by exact arithmetic where it is one single input, or because no row in it is legal.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from flint import arb
from scipy.special import expit

from encoders.domain import Domain
from encoders.exact.balls import PRECISIONS, Balls, ball, precision, same_start, sigmoid
from encoders.exact.dyadic import Dyadic, exact
from encoders.network import Array, Booleans, Integers, Network
from encoders.probability import exceeds
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kernel.float32 import NOTHING_KNOWN, known, margin_errors
from verifair.checker.kernel.leaves import Leaves, StatedGoal
from verifair.checker.report import Rejection
from verifair.checker.statement import Signs

BOXES_BOUNDED = 128
"""Boxes bounded at once."""
LEAVES_OPEN = 4096
"""Leaves under way at once."""
MAX_BOXES = 4096
"""Boxes that one leaf may be cut into before it counts as not confirmed."""
SLACK = 1e-6
"""A claimed bound may exceed the proved one by this share of itself (and by the rounding error): two programs, two roundings."""
UNIT = 2.0**-50
MAX_WIDE = 10
"""Real features of a box too small to be cut whose two ends are all tried: 1,024 corners."""
TRIES = 33
"""Further lines tried on a box that no row of a gap seems to prove."""
FEW = 3
"""Goals of up to so many rows have all of them bounded."""


class LeafChecker:
    """Confirms leaves. `rows`: the (p, q, c, strict) of everything asked, one after the other, from `first[which]`."""

    def __init__(self, network: Network, domain: Domain, leaves: Leaves) -> None:
        self.network, self.domain, self.leaves, self.tasks = network, domain, leaves, leaves.tasks
        asked = leaves.tasks.asked
        self.count = np.array([len(one.rows) for one in asked])
        self.first = np.cumsum(self.count) - self.count
        self.rows = np.array([(*row, strict) for one in asked for row, strict in zip(one.rows, one.strict, strict=True)])
        claimed = leaves.bound - SLACK * np.abs(leaves.bound)
        self.target = np.where(np.isnan(claimed), 0.0, np.maximum(claimed, 0.0))
        self.reason: dict[int, str] = {}
        self.widest = self._widest() if leaves.float32.any() and known(network) else np.inf
        variable = np.repeat(np.arange(domain.variables), domain.width)
        self.variable_of = np.empty(domain.columns, dtype=np.int64)
        self.variable_of[domain.columns_of(np.arange(domain.variables))] = variable

    def _widest(self) -> float:
        """Return the error of any margin over all leaves certified for float32 together."""
        leaves = self.leaves.lower[self.leaves.float32], self.leaves.upper[self.leaves.float32]
        task = self.leaves.task[self.leaves.float32]
        with np.errstate(all="ignore"):
            boxes = [self.domain.box(*leaves), self.domain.box(*(self.tasks.second(task, end) for end in leaves))]
            low = np.minimum(*(box[0].min(axis=0) for box in boxes))
            high = np.maximum(*(box[1].max(axis=0) for box in boxes))
            most = np.abs(self.tasks.margin).max(axis=0)
            return float(margin_errors(self.network, most[None], low[None], high[None])[0])

    def run(self) -> list[Rejection]:
        """Depth first over the boxes that leaves are cut into, a group of leaves at a time."""
        boxes = np.zeros(len(self.leaves.task), dtype=np.int64)
        if self.leaves.float32.any() and not known(self.network):
            return [Rejection(proof=int(one), reason=NOTHING_KNOWN) for one in np.unique(self.leaves.proof[self.leaves.float32])]
        with np.errstate(all="ignore"):  # whatever overflows or is NaN proves nothing, see check_bounds
            for start in range(0, len(boxes), LEAVES_OPEN):
                part = slice(start, start + LEAVES_OPEN)
                self._run(np.arange(len(boxes))[part], self.leaves.lower[part], self.leaves.upper[part], boxes)
        return [Rejection(proof=int(self.leaves.proof[one]), reason=text) for one, text in sorted(self.reason.items())]

    def failing(self, rows: Booleans) -> Booleans:
        """Return (L,) at which leaves that are legal `rows` (L,), one point each, what is asked surely fails: exactly, or by balls
        where the network is smooth."""
        failing, leaf = np.zeros(len(rows), dtype=bool), np.flatnonzero(rows)
        raw, task = self.leaves.lower[leaf], self.leaves.task[leaf]
        if self.network.piecewise_linear:
            with suppress(OverflowError):  # weights of absurdly different sizes: nothing is known
                failing[leaf] = ~self._met(leaf, self._exact(task, raw), self._exact(task, self.tasks.second(task, raw)))
            return failing
        x, x_prime = self.domain.encode(raw), self.domain.encode(self.tasks.second(task, raw))
        for k, one in enumerate(leaf.tolist()):
            asked, margin = self.tasks.asked[self.tasks.which[task[k]]], self.tasks.margin[task[k]]
            failing[one] = holds_at(self.network, asked, margin, 0.0, x[k], x_prime[k]) is False
        return failing

    def _run(self, leaf: Integers, lower: Array, upper: Array, boxes: Integers) -> None:
        while len(leaf):
            now, later = slice(-BOXES_BOUNDED, None), slice(0, max(0, len(leaf) - BOXES_BOUNDED))
            open_now = ~np.isin(leaf[now], list(self.reason)) if self.reason else np.ones(len(leaf[now]), dtype=bool)
            chunk = leaf[now][open_now], lower[now][open_now], upper[now][open_now]
            np.add.at(boxes, chunk[0], 1)
            for over in np.unique(chunk[0][boxes[chunk[0]] > MAX_BOXES]):
                self._reject(int(over), f"not confirmed within {MAX_BOXES} boxes")
            more = self._step(*chunk) if len(chunk[0]) else chunk
            leaf, lower, upper = (np.concatenate([old[later], new]) for old, new in zip((leaf, lower, upper), more, strict=True))

    def _reject(self, leaf: int, text: str) -> None:
        box = f"{self.leaves.lower[leaf].tolist()} .. {self.leaves.upper[leaf].tolist()}"
        bound = self.leaves.bound[leaf]
        claim = "no bound" if np.isnan(bound) else f"bound {bound:.9g}"
        self.reason.setdefault(leaf, f"leaf {box} with {claim}: {text}")

    def _step(self, leaf: Integers, lower: Array, upper: Array) -> tuple[Integers, Array, Array]:
        """Bound some boxes; returns the halves of those that are neither confirmed nor hopeless."""
        task = self.leaves.task[leaf]
        other = self.tasks.second(task, lower), self.tasks.second(task, upper)
        gone = self.domain.impossible(lower, upper) | self.domain.impossible(*other)  # nothing is claimed where no row is legal
        leaf, task, lower, upper = leaf[~gone], task[~gone], lower[~gone], upper[~gone]
        other = other[0][~gone], other[1][~gone]
        low, high = self.domain.box(lower, upper)
        low2, high2 = self.domain.box(*other)
        for bad in leaf[~(np.isfinite(low) & np.isfinite(high) & np.isfinite(low2) & np.isfinite(high2)).all(axis=1)]:
            self._reject(int(bad), "its network inputs are no float32 numbers")
        point = (low == high).all(axis=1)
        for bad in leaf[~point & np.isnan(self.leaves.bound[leaf]) & self.domain.divisible(lower, upper).any(axis=1)]:
            self._reject(int(bad), "a leaf without a bound must be one single point")
        # Several raw rows may be one input: where the lowest of them is not legal, the others may be, and the box is cut further.
        point &= self.domain.legal(lower) & self.domain.legal(other[0])
        self._decide(leaf[point], lower[point], "the claim is false at this point")
        open_ = np.flatnonzero(~point & ~np.isin(leaf, list(self.reason)))
        score = np.zeros((len(leaf), self.domain.variables))
        toward = np.zeros((len(leaf), self.domain.variables))
        for close in (False, True):
            if not len(open_):
                break
            bounds = TwinBounds(self.network, low[open_], high[open_], low2[open_], high2[open_], close=close)
            ends = np.minimum(low, low2)[open_], np.maximum(high, high2)[open_]
            done, slope, weight = self._confirmed(bounds, leaf[open_], ends)
            variables = self.variable_of[bounds.moving]
            indicator = (variables[:, None] == np.arange(self.domain.variables)).astype(float)
            score[open_] = (weight * bounds.radius[:, bounds.moving]) @ indicator
            toward[open_] = slope @ indicator
            open_ = open_[~done]
        corner = np.where(toward > 0, lower, upper)
        middle = self.domain.middle(lower, upper)
        corner = np.where(self.domain.one_hot, middle, corner)
        for sample in (corner, middle):
            self._refute(leaf[open_], sample[open_])
        open_ = open_[~np.isin(leaf[open_], list(self.reason))]
        return self._halves(leaf[open_], lower[open_], upper[open_], score[open_], middle[open_])

    def _confirmed(self, bounds: TwinBounds, leaf: Integers, ends: tuple[Array, Array]) -> tuple[Booleans, Array, Array]:
        """Return which boxes some row of the goal holds on, with the claimed bound and, where that is claimed, in float32; and the
        best row's input slopes and weights. ends: (B, n_0), (B, n_0) of both copies' network inputs."""
        task, target = self.leaves.task[leaf], self.target[leaf]
        which = self.tasks.which[task]
        many = self.count[which] > FEW
        sizes = self.count[which[~many]]
        boxes = [np.repeat(np.flatnonzero(~many), sizes)]
        within = np.arange(len(boxes[0])) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = [self.rows[self.first[which[boxes[0]]] + within]]
        if many.any():
            boxes.append(np.flatnonzero(many))
            rows.append(self._likeliest(bounds, boxes[1], task[many], which[many]))
        box, row = np.concatenate(boxes), np.concatenate(rows)
        order = np.argsort(box, kind="stable")
        box, row = box[order], row[order]
        start = np.flatnonzero(np.diff(box, prepend=-1))
        bound, error, slope, weight = self._bounds_of(bounds, task, box, row)
        met = np.where(row[:, 3] == 1, bound > 0, bound >= 0) & (bound + error >= target[box])
        short = self.leaves.float32[leaf][box] & met
        if short.any():
            size = np.abs(row[:, :2]).sum(axis=1)
            met &= ~short | (bound > size * self.widest)
            left = np.unique(box[short & ~met])
            if len(left):
                error = np.full(len(leaf), self.widest)
                error[left] = margin_errors(self.network, self.tasks.margin[task[left]], *(end[left] for end in ends))
                met |= short & (bound > size * error[box])
        best = np.lexsort((bound, box))[np.append(start[1:], len(box)) - 1]
        return np.logical_or.reduceat(met, start), slope[best], weight[best]

    def _bounds_of(self, bounds: TwinBounds, task: Integers, box: Integers, row: Array) -> tuple[Array, Array, Array, Array]:
        """Return rigorous lower bounds (N,) of rows (p, q, c) over boxes, with error, slopes and weights (see
        `TwinBounds.lower`)."""
        margin = self.tasks.margin[task][box]
        p, q = row[:, :1] * margin, row[:, 1:2] * margin
        bound, error, slope, weight = bounds.lower(p, q, box, layer=len(self.network.layers) - 1, constant=row[:, 2])
        bound = np.maximum(bound, bounds.least(p, q, box) + row[:, 2] - UNIT * np.abs(row[:, 2]))
        # g' - g is exactly 0 where no output that counts can differ between the copies.
        last = bounds.spans[-1]
        alike = ((margin == 0) | ((last.d_low == 0) & (last.d_high == 0))[box]).all(axis=1) & (row[:, :2].sum(axis=1) == 0)
        return np.where(alike & (row[:, 2] >= 0), np.maximum(bound, 0.0), bound), error, slope, weight

    def _likeliest(self, bounds: TwinBounds, box: Integers, task: Integers, which: Integers) -> Array:
        """Return (N, 4) of many rows -g + m g' + c (a rise: m g - g' + c) the likeliest to hold on each box: the one that comes out
        best when the linear bounds of g' - g, -g and g' (g - g', g, -g') are mixed. Only a choice: the row is then bounded by
        itself."""
        sign = np.array([1.0 if one.gap is not None and one.gap.rise else -1.0 for one in self.tasks.asked])[which]
        corners = sign[:, None, None] * np.array([[1.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
        every = np.zeros(int(box.max()) + 1, dtype=np.int64)
        every[box] = task
        bound, _, slope, _ = self._bounds_of(bounds, every, np.repeat(box, 3), corners.reshape(-1, 3))
        radius = bounds.radius[box][:, bounds.moving]
        slope = slope.reshape(len(box), 3, -1)
        base = bound.reshape(len(box), 3) + (np.abs(slope) @ radius[:, :, None])[:, :, 0]
        chosen = np.zeros((len(box), 4))  # no line of a gap is strict
        for k in np.unique(which):
            mine, table = which == k, self.rows[self.first[k] : self.first[k] + self.count[k], :3]
            p, q, c = table.T * np.array([[sign[mine][0]], [sign[mine][0]], [1.0]])
            shared = np.minimum(p, -q)
            mix = np.stack([shared, p - shared, -q - shared], axis=1)
            value = base[mine] @ mix.T - (np.abs(mix @ slope[mine]) @ radius[mine][:, :, None])[:, :, 0] + c
            value = value / mix.sum(axis=1)
            best = value.argmax(axis=1)
            chosen[mine, :3] = table[best]
            short = np.flatnonzero(value.max(axis=1) < 0)
            if len(short):
                at = np.flatnonzero(mine)[short]
                chosen[at, :3] = self._between(self.tasks.asked[k], best[short], base[at], slope[at], radius[at])
        return chosen

    def _between(self, asked: StatedGoal, best: Integers, base: Array, slope: Array, radius: Array) -> Array:
        """Return (N, 3) of many more lines of a gap those that come out best next to the likeliest of its rows (N,)."""
        rise = asked.gap is not None and asked.gap.rise
        steepness = 0 if rise else 1
        coarse, dense = np.array(asked.rows)[:, steepness], asked.denser
        coarse[:2] = 0.0, np.inf  # the rows -a and b
        order = np.argsort(coarse)
        place = np.argsort(order)[best]
        ends = (np.searchsorted(dense[:, steepness], coarse[order[np.clip(place + k, 0, len(order) - 1)]]) for k in (-1, 1))
        start, end = (np.clip(one, 0, len(dense) - 1) for one in ends)
        at = start[:, None] + np.linspace(0, 1, TRIES) * (end - start)[:, None]
        rows = dense[at.astype(np.int64)]  # (N, TRIES, 3)
        m = rows[:, :, steepness]
        shared = np.minimum(m, 1.0)
        alone = [m - shared, 1.0 - shared] if rise else [1.0 - shared, m - shared]
        mix = np.stack([shared, *alone], axis=2)
        value = (mix * base[:, None]).sum(axis=2) - (np.abs(mix @ slope) @ radius[:, :, None])[:, :, 0] + rows[:, :, 2]
        return np.asarray(rows[np.arange(len(rows)), (value / mix.sum(axis=2)).argmax(axis=1)])

    def _decide(self, leaf: Integers, raw: Array, text: str, *, refuting: bool = False) -> None:
        """Exact arithmetic at one raw point a leaf: reject the leaf where the claim is false.

        Of a smooth network, also where it cannot be decided, unless one is only `refuting`.
        """
        if not len(leaf):
            return
        task = self.leaves.task[leaf]
        if not self.network.piecewise_linear:
            self._decide_smooth(leaf, raw, text, refuting=refuting)
            return
        try:
            first, second = self._exact(task, raw), self._exact(task, self.tasks.second(task, raw))
            met = self._met(leaf, first, second)
        except OverflowError:  # weights of absurdly different sizes
            for one in leaf:
                self._reject(int(one), "beyond the reach of exact arithmetic")
            return
        for k in np.flatnonzero(~met):
            self._reject(int(leaf[k]), f"{text}: x = {raw[k].tolist()}")
        claimed = np.flatnonzero(met & self.leaves.float32[leaf])
        for k in claimed[~self._met_in_float32(leaf[claimed], raw[claimed], first[claimed], second[claimed])]:
            self._reject(int(leaf[k]), f"its margin is within the rounding of float32: x = {raw[k].tolist()}")

    def _met_in_float32(self, leaf: Integers, raw: Array, first: Dyadic, second: Dyadic) -> Booleans:
        """Return (N,) whether some row of the goal exceeds the rounding of float32 at points with exact margins g(x), g(x')."""
        if not len(leaf):
            return np.zeros(0, dtype=bool)
        task = self.leaves.task[leaf]
        error = self._error_at(task, raw)
        g, g_prime = first.to_float(), second.to_float()
        error = error * (1 + SLACK)  # g and g' are rounded to float64 here, by far less than E exceeds what any runtime errs by
        values = [
            max(p * a + q * b + c - (abs(p) + abs(q)) * e for p, q, c in self.tasks.asked[which].rows)
            for which, a, b, e in zip(self.tasks.which[task], g, g_prime, error, strict=True)
        ]
        return np.array(values) > 0

    def _error_at(self, task: Integers, raw: Array) -> Array:
        """Return (N,) the error of both margins at raw points (N, V)."""
        margin, copies = self.tasks.margin[task], [self.domain.encode(one) for one in (raw, self.tasks.second(task, raw))]
        return np.maximum(*(margin_errors(self.network, margin, x, x) for x in copies))

    def _decide_smooth(self, leaf: Integers, raw: Array, text: str, *, refuting: bool) -> None:
        task = self.leaves.task[leaf]
        x, x_prime = self.domain.encode(raw), self.domain.encode(self.tasks.second(task, raw))
        for k, one in enumerate(leaf.tolist()):
            asked, margin = self.tasks.asked[self.tasks.which[task[k]]], self.tasks.margin[task[k]]
            holds = holds_at(self.network, asked, margin, float(self.target[one]), x[k], x_prime[k])
            if holds is None and not refuting:
                self._reject(one, f"no precision tells whether the claim holds: x = {raw[k].tolist()}")
            elif holds is False:
                self._reject(one, f"{text}: x = {raw[k].tolist()}")

    def _met(self, leaf: Integers, first: Dyadic, second: Dyadic) -> Booleans:
        """Return (N,) whether the goal holds at exact margins g(x), g(x'), with the claimed bound where there is one."""
        which = self.tasks.which[self.leaves.task[leaf]]
        met = np.zeros(len(leaf), dtype=bool)
        for k in np.unique(which):
            mine, asked = np.flatnonzero(which == k), self.tasks.asked[k]
            one, two = first[mine], second[mine]
            if asked.gap is not None:
                pairs = zip(one.to_fractions(), two.to_fractions(), strict=True)
                met[mine] = [not exceeds(*((b, a) if asked.gap.rise else (a, b)), asked.gap.epsilon) for a, b in pairs]
                continue
            for (p, q, c), strict in zip(asked.rows, asked.strict, strict=True):
                value = exact(np.full(len(mine), p)) * one + exact(np.full(len(mine), q)) * two + exact(np.full(len(mine), c))
                enough = (value - exact(self.target[leaf[mine]])).sign >= 0
                met[mine] |= ((value.sign > 0) if strict else (value.sign >= 0)) & enough
        return met

    def _exact(self, task: Integers, raw: Array) -> Dyadic:
        """g at raw points, exactly."""
        logits = self.network.forward(exact(self.domain.encode(raw)))
        terms = exact(self.tasks.margin[task]) * logits
        total = terms[:, 0]
        for k in range(1, self.network.outputs):
            total = total + terms[:, k]
        return total

    def _refute(self, leaf: Integers, raw: Array) -> None:
        """Try the claim at one point of each box in float64; what looks false is decided exactly. Saves hopeless splitting."""
        task = self.leaves.task[leaf]
        prime = self.tasks.second(task, raw)
        legal = self.domain.legal(raw) & self.domain.legal(prime)
        first, second = ((self.network.forward(self.domain.encode(x)) * self.tasks.margin[task]).sum(axis=1) for x in (raw, prime))
        which = self.tasks.which[task]
        false = np.zeros(len(leaf), dtype=bool)
        for k in np.unique(which):
            table = self.rows[self.first[k] : self.first[k] + self.count[k]]
            best = (first[:, None] * table[:, 0] + second[:, None] * table[:, 1] + table[:, 2]).max(axis=1)
            seems = best <= self.target[leaf]
            gap = self.tasks.asked[k].gap
            if gap is not None:
                seems = (expit(first) - expit(second)) * (-1 if gap.rise else 1) > gap.epsilon - 1e-9
            near = np.flatnonzero((which == k) & self.leaves.float32[leaf] & ~seems & legal)
            if len(near):
                rows = first[near, None] * table[:, 0] + second[near, None] * table[:, 1] + table[:, 2]
                size = np.abs(table[:, :2]).sum(axis=1)
                near, rows = (one[(rows - size * self.widest).max(axis=1) <= 0] for one in (near, rows))
                seems[near] = (rows - size * self._error_at(task[near], raw[near])[:, None]).max(axis=1) <= 0
            false |= (which == k) & np.isfinite(best) & seems
        self._decide(leaf[false & legal], raw[false & legal], "the claim is false", refuting=True)

    def _halves(self, leaf: Integers, lower: Array, upper: Array, score: Array, middle: Array) -> tuple[Integers, Array, Array]:
        """Return both halves of each box along its heaviest variable."""
        can = self.domain.divisible(lower, upper)
        share = (upper - lower) / np.maximum(self.domain.upper - self.domain.lower, np.finfo(float).tiny)
        score = np.where(can, score + 1e-9 * share * score.max(axis=1, keepdims=True, initial=0) + 1e-300 * share, -np.inf)
        for small in np.flatnonzero(~can.any(axis=1)):
            self._decide_corners(leaf[small], lower[small], upper[small])
        keep = np.flatnonzero(can.any(axis=1))
        v = np.argmax(score[keep], axis=1)
        return np.tile(leaf[keep], 2), *self.domain.halves(lower[keep], upper[keep], v, middle[keep, v])

    def _decide_corners(self, leaf: np.int64, lower: Array, upper: Array) -> None:
        """A box whose real features hold two neighbouring float64 each, and nothing else: its corners are all its points."""
        wide = np.flatnonzero(lower < upper)
        if len(wide) > MAX_WIDE:
            self._reject(int(leaf), "not confirmed, and too small to be cut")
            return
        corners = np.tile(lower, (1 << len(wide), 1))
        for bit, v in enumerate(wide):
            corners[(np.arange(len(corners)) >> bit) & 1 == 1, v] = upper[v]
        leaves = np.full(len(corners), leaf)
        legal = self.domain.legal(corners) & self.domain.legal(self.tasks.second(self.leaves.task[leaves], corners))
        self._decide(leaves[legal], corners[legal], "the claim is false")


def holds_at(network: Network, asked: StatedGoal, margin: Array, target: float, x: Array, x_prime: Array) -> bool | None:
    """Return whether some row p g + q g' + c of what is asked holds at network inputs x, x' (n,), with at least `target`; None:
    undecided.

    A gap is decided by the probabilities themselves, whatever the target.
    """
    same = bool(same_start(network, x[None], x_prime[None])[0])
    for bits in PRECISIONS:
        with precision(bits):
            g, g_prime = _margins(network, margin, x, x_prime)
            if asked.gap is not None:
                difference = ball(0.0) if same else sigmoid(g) - sigmoid(g_prime)
                values = [ball(asked.gap.epsilon) - (-difference if asked.gap.rise else difference)]
                met, unmet = values[0] >= 0, values[0] < 0
            else:
                values = [_row(p, q, c, g, g if same else g_prime) for p, q, c in asked.rows]
                signs = list(zip(values, asked.strict, strict=True))
                met = any(value >= target and (value > 0 or not strict) for value, strict in signs)
                unmet = all(value < target or (strict and value <= 0) for value, strict in signs)
        if met or unmet:
            return bool(met)
    return None


def witnessed(network: Network, epsilon: float | None, signs: Signs | None, fall: bool, x: Array, x_prime: Array) -> bool:
    """Return whether the probability surely falls (rises) by more than epsilon from x to x', or with none the decision flips."""
    margin = np.array([1.0]) if network.outputs == 1 else np.array([-1.0, 1.0])
    for bits in PRECISIONS:
        with precision(bits):
            g, g_prime = _margins(network, margin, x, x_prime)
            high, low = (g, g_prime) if fall else (g_prime, g)
            flips = high > 0 and (low < 0 if signs == "strict" else low <= 0)
            if flips if epsilon is None else sigmoid(high) - sigmoid(low) > ball(epsilon):
                return True
    return False


def _margins(network: Network, margin: Array, x: Array, x_prime: Array) -> list[arb]:
    rows = network.forward(Balls.of(np.stack([x, x_prime]))).rows()
    weights = [ball(float(v)) for v in margin]
    return [sum((w * v for w, v in zip(weights, row, strict=True)), ball(0.0)) for row in rows]


def _row(p: float, q: float, c: float, g: arb, g_prime: arb) -> arb:
    """p g + q g' + c; where both are one ball, (p + q) g + c, so that their difference is 0 and no ball around it."""
    if g is g_prime:
        return (ball(p) + ball(q)) * g + ball(c)
    return ball(p) * g + ball(q) * g_prime + ball(c)
