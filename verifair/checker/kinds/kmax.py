"""The independent re-checker of kmax certificates: does no legal x of the box hit more than `upper` buckets?

    k(x) = number of different buckets (i / B, (i + 1) / B] of [0, 1] (the first one closed) that hold sigma(g(x, z)), over the
    listed combinations z of protected values for which the whole row (x, z) is legal;   g = f_1 - f_0, or the single logit

(B even: probability 1/2, a margin of 0, is in a bucket with negative decisions.)

Imports neither the search, nor the engine's bounds, nor a solver; shared with them are the network's forward pass, the exact
arithmetic and the schema. The tree must cover the box, and on every leaf the claimed count is proved again: with the bounds of
`kernel.bounds` for every copy and for its difference from one reference copy, else by cutting the leaf further, down to single
points that exact arithmetic decides.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import prod

import numpy as np
from flint import arb, ctx, fmpq

from encoders.domain import Domain, Regions
from encoders.exact.dyadic import exact
from encoders.network import Array, Booleans, Integers, Network
from encoders.probability import bucket
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kind import Kind
from verifair.checker.kmax_certificate import FILE, KmaxCertificate
from verifair.checker.report import CheckReport, Progress, Rejection
from verifair.checker.tree import leaf_regions
from verifair.checker.words import where
from verifair.schema.space import InputSpace

PAIRS = 1024
"""Pairs of copies bounded at once: so many divided by K are the boxes of a step."""
MAX_BOXES = 4096
"""Boxes that one leaf may be cut into before it counts as not confirmed."""
SPREAD = 0.1
"""What the width of a copy's own interval weighs beside that of its difference, when a variable to cut is chosen."""
DEPTH = 6
"""How often a slice of the reference's logits is halved before its count stands."""


def check_kmax(given: KmaxCertificate, *, network: Network, schema: InputSpace, progress: Progress | None = None) -> CheckReport:
    """Prove a certificate again.

    progress is called with the number of leaves done and of all leaves.
    """
    network.require_piecewise_linear("check of a kmax certificate")
    started = time.perf_counter()
    flaw = None
    if network.outputs > 2:
        flaw = f"the network has {network.outputs} logits: buckets of one probability need one or two"
    elif not given.extent.whole:
        flaw = "a bound holds for all combinations of the query: none can be undecided or not reached"
    count, reason = 0, next(given.misfits(network, schema, flaw), None)
    if reason is None:
        root = root_of(given, schema)
        leaves = root if isinstance(root, str) else leaves_of(given, root, schema.domain)
        if isinstance(leaves, str):
            reason = leaves
        else:
            count = len(leaves)
            reason = _KmaxChecker(network, schema, given, leaves).run(progress)
    rejections = [] if reason is None else [Rejection(proof=None, reason=reason)]
    return CheckReport.of(rejections, proofs=1, leaves=count, started=started, extent=given.extent, unit="combinations")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Enclosed:
    """g_z in [low, high] and g_z - g_r in [d_low, d_high] over boxes, (B, K) each."""

    low: Array
    high: Array
    d_low: Array
    d_high: Array


class _KmaxChecker:
    """Confirms the leaves of one tree."""

    def __init__(self, network: Network, schema: InputSpace, given: KmaxCertificate, leaves: Regions) -> None:
        query = given.query
        self.network, self.domain, self.buckets, self.claim = network, schema.domain, query.buckets, given.upper
        self.margin = np.array([1.0]) if network.outputs == 1 else np.array([-1.0, 1.0])
        self.values = np.array(query.combinations)
        self.order = np.array([schema.index(name) for name in query.protected])
        self.lower, self.upper, self.reference = leaves.lower, leaves.upper, given.reference
        self.border_low, self.border_high = _borders(query.buckets)

    def run(self, progress: Progress | None) -> str | None:
        """Depth first; returns the first reason to reject."""
        if self.claim >= min(len(self.values), self.buckets):  # more cannot be hit anyway
            return None
        leaf, lower, upper = np.arange(len(self.lower)), self.lower, self.upper
        boxes = np.zeros(len(leaf), dtype=np.int64)
        step = max(1, PAIRS // len(self.values))
        with np.errstate(all="ignore"):  # whatever overflows or is NaN proves nothing, see check_bounds
            while len(leaf):
                now, later = slice(-step, None), slice(0, max(0, len(leaf) - step))
                np.add.at(boxes, leaf[now], 1)
                over = leaf[now][boxes[leaf[now]] > MAX_BOXES]
                if len(over):
                    return self._text(int(over[0]), f"not confirmed within {MAX_BOXES} boxes")
                more = self._step(leaf[now], lower[now], upper[now])
                if isinstance(more, str):
                    return more
                leaf, lower, upper = (np.concatenate([a[later], b]) for a, b in zip((leaf, lower, upper), more, strict=True))
                if progress is not None:
                    progress(len(self.lower) - len(np.unique(leaf)), len(self.lower))
        return None

    def _text(self, leaf: int, text: str) -> str:
        box = f"{self.lower[leaf].tolist()} .. {self.upper[leaf].tolist()}"
        return f"leaf {box}: {text}"

    def _step(self, leaf: Integers, lower: Array, upper: Array) -> tuple[Integers, Array, Array] | str:
        """Confirm what can be; returns the halves of the other boxes, or the reason to reject."""
        low, high = self.domain.box(lower, upper)
        if not (np.isfinite(low) & np.isfinite(high)).all():
            return self._text(int(leaf[0]), "its network inputs are no float32 numbers")
        middle = self.domain.middle(lower, upper)
        counted = ~self.domain.impossible(self._rows(lower), self._rows(upper)).reshape(len(lower), -1)
        point = (low == high).all(axis=1)
        for n in np.flatnonzero(point):
            if self._exactly(middle[n], counted[n]) > self.claim:
                return self._text(int(leaf[n]), f"more are hit at x = {middle[n].tolist()}")
        open_ = np.flatnonzero(~point & (counted.sum(axis=1) > self.claim))
        found = self._refuted(leaf[open_], middle[open_])
        if found is not None:
            return found
        for close in (False, True):
            if not len(open_):
                break
            bounds = self._enclosed(lower[open_], upper[open_], close)
            most = np.array([self._most(bounds, n, counted[open_[n]]) for n in range(len(open_))])
            open_ = open_[most > self.claim]
        return self._halves(leaf[open_], lower[open_], upper[open_], middle[open_])

    def _rows(self, raw: Array) -> Array:
        """Return all copies' rows (B * K, V) of raw points (B, V)."""
        rows = np.repeat(raw, len(self.values), axis=0)
        rows[:, self.order] = np.tile(self.values, (len(raw), 1))
        return rows

    def _logits(self, raw: Array) -> Array:
        return np.asarray((self.network.forward(self.domain.encode(self._rows(raw))) @ self.margin).reshape(len(raw), -1))

    def _exactly(self, raw: Array, counted: Booleans) -> int:
        """Return how many buckets the counted copies hit at one point."""
        if not counted.any():
            return 0
        logits = self.network.forward(exact(self.domain.encode(self._rows(raw[None])[counted]))).to_fractions()
        values = logits[:, 0] if self.network.outputs == 1 else logits[:, 1] - logits[:, 0]
        return len({bucket(value, self.buckets) for value in values})

    def _refuted(self, leaf: Integers, raw: Array) -> str | None:
        """Try the claim at one point of each box in float64; what looks false is decided exactly. Saves hopeless splitting."""
        if not len(leaf):
            return None
        legal = self.domain.legal(self._rows(raw)).reshape(len(raw), -1)
        hit = np.searchsorted(self.border_low, self._logits(raw), side="left")
        for n in range(len(raw)):
            seems = len(np.unique(hit[n][legal[n]]))
            if seems > self.claim and self._exactly(raw[n], legal[n]) > self.claim:
                return self._text(int(leaf[n]), f"more are hit at x = {raw[n].tolist()}")
        return None

    def _enclosed(self, lower: Array, upper: Array, close: bool) -> _Enclosed:
        count, shape = len(self.values), (len(lower), len(self.values))
        low2, high2 = self.domain.box(self._rows(lower), self._rows(upper))
        first = np.repeat(np.arange(len(lower)) * count + self.reference, count)
        bounds = TwinBounds(self.network, low2[first], high2[first], low2, high2, close=close)
        pair = np.arange(len(low2))
        plus, zero = np.tile(self.margin, (len(low2), 1)), np.zeros((len(low2), len(self.margin)))
        layer = len(self.network.layers) - 1
        rows = ((zero, plus), (zero, -plus), (-plus, plus), (plus, -plus))
        ends = [bounds.lower(p, q, pair, layer=layer)[0].reshape(shape) for p, q in rows]
        low, high, d_low, d_high = ends[0], -ends[1], ends[2], -ends[3]
        last = bounds.spans[-1]
        if self.network.outputs == 1:  # the interval pass has enclosed the logit itself, and its difference often more closely
            low, high = np.fmax(low, last.low2.reshape(shape)), np.fmin(high, last.high2.reshape(shape))
            d_low, d_high = np.fmax(d_low, last.d_low.reshape(shape)), np.fmin(d_high, last.d_high.reshape(shape))
        # g_z - g_r is exactly 0 where no output that counts can differ between the copies.
        alike = ((self.margin == 0) | ((last.d_low == 0) & (last.d_high == 0))).all(axis=1).reshape(shape)
        alike[:, self.reference] = True
        d_low, d_high = np.where(alike, 0.0, d_low), np.where(alike, 0.0, d_high)
        return _Enclosed(low=low, high=high, d_low=d_low, d_high=d_high)

    def _most(self, bounds: _Enclosed, n: int, counted: Booleans) -> int:
        """Return an upper bound of the buckets hit in box n: slices of the reference's logit, halved where they show more than
        claimed."""
        first, last = bounds.low[n, self.reference], bounds.high[n, self.reference]
        start, end = np.append(-np.inf, self.border_low), np.append(self.border_high, np.inf)
        home = np.flatnonzero((start <= last) & (end >= first))
        low, high = np.maximum(start[home], first), np.minimum(end[home], last)
        most = 0
        for depth in range(DEPTH + 1):
            found = self._in_slices(bounds, n, counted, home, low, high)
            again = (found > self.claim) & np.isfinite(high - low) & (depth < DEPTH)
            most = max(most, int(found[~again].max(initial=0)))
            if most > self.claim or not again.any():
                break
            home, low, high = home[again], low[again], high[again]
            half = np.clip(low + (high - low) / 2, low, high)
            home, low, high = np.tile(home, 2), np.concatenate([low, half]), np.concatenate([half, high])
        return most

    def _in_slices(self, bounds: _Enclosed, n: int, counted: Booleans, home: Integers, low: Array, high: Array) -> Integers:
        """Return (S,) the same where the reference lies in [low, high] (S,) within its bucket `home` (S,)."""
        d_low, d_high = bounds.d_low[n], bounds.d_high[n]
        least = np.maximum(bounds.low[n], np.nextafter(low[:, None] + d_low, -np.inf))
        most = np.minimum(bounds.high[n], np.nextafter(high[:, None] + d_high, np.inf))
        first = np.searchsorted(self.border_high, least, side="left")
        last = np.searchsorted(self.border_low, most, side="left")
        first = np.where(d_low >= 0, np.maximum(first, home[:, None]), first)  # never below the reference, nor its bucket
        last = np.where(d_high <= 0, np.minimum(last, home[:, None]), last)
        nowhere = ((least > most) | (first > last)).any(axis=1)
        first, last = first[:, counted], last[:, counted]
        free, hit = np.ones(first.shape, dtype=bool), np.zeros(len(home), dtype=np.int64)
        for k in range(self.buckets):  # each bucket to a copy that can be in it and has the least choice left
            able = free & (first <= k) & (last >= k)
            some = np.flatnonzero(able.any(axis=1))
            chosen = np.where(able[some], last[some], self.buckets).argmin(axis=1)
            free[some, chosen] = False
            hit[some] += 1
        return np.where(nowhere, 0, hit)

    def _halves(self, leaf: Integers, lower: Array, upper: Array, middle: Array) -> tuple[Integers, Array, Array] | str:
        """Return both halves of each box along the variable whose halves have the narrowest differences, all of them tried:
        expensive, but few boxes come here, and a poor choice costs many more."""
        can = self.domain.divisible(lower, upper)
        if not can.any(axis=1).all():
            return self._text(int(leaf[~can.any(axis=1)][0]), "not confirmed, and too small to be cut")
        width = np.full(lower.shape, np.inf)
        for v in np.flatnonzero(can.any(axis=0)):
            some = np.flatnonzero(can[:, v])
            halves = self.domain.halves(lower[some], upper[some], np.full(len(some), v), middle[some, v])
            bounds = self._enclosed(*halves, close=True)
            span = (bounds.d_high - bounds.d_low + SPREAD * (bounds.high - bounds.low)).sum(axis=1)
            width[some, v] = np.nan_to_num(span, nan=1e300, posinf=1e300).reshape(2, -1).sum(axis=0)
        v = width.argmin(axis=1)
        return np.tile(leaf, 2), *self.domain.halves(lower, upper, v, middle[np.arange(len(v)), v])


def _borders(buckets: int) -> tuple[Array, Array]:
    """Return float64 numbers not above and not below the logits log(i / (B - i)) at which the buckets i = 1 ... B - 1 begin."""
    before, ctx.prec = ctx.prec, 256
    try:
        balls = [arb(0) if 2 * i == buckets else (arb(fmpq(i, buckets - i))).log() for i in range(1, buckets)]
        pairs = [(float(ball.lower()), float(ball.upper())) for ball in balls]
    finally:
        ctx.prec = before
    low, high = np.array(pairs).T  # rounded to nearest: one step outwards makes both safe; 0 is exact
    return np.where(low == 0, 0.0, np.nextafter(low, -np.inf)), np.where(high == 0, 0.0, np.nextafter(high, np.inf))


def root_of(certificate: KmaxCertificate, schema: InputSpace) -> tuple[Array, Array] | str:
    """Return the root box, its protected entries those of the first combination, or why the query means nothing."""
    query, domain = certificate.query, schema.domain
    names = [feature.name for feature in schema.features]
    if not set(query.protected) <= set(names) or len(set(query.protected)) < len(query.protected):
        return f"the protected features {', '.join(query.protected)} are not features of the schema, each named once"
    if set(query.box) != set(names) - set(query.protected):
        return "the query's box must name every feature but the protected ones"
    lower, upper = domain.lower.copy(), domain.upper.copy()
    for name, (low, high) in query.box.items():
        v = names.index(name)
        lower[v], upper[v] = (np.ceil(low), np.floor(high)) if domain.integer[v] else (low, high)
        if not domain.lower[v] <= low <= high <= domain.upper[v] or lower[v] > upper[v]:
            return f"the query's box of {name} is empty, or leaves the declared range"
    protected = [names.index(name) for name in query.protected]
    if len({*query.combinations}) < len(query.combinations):
        return "a combination is listed twice"
    for row in query.combinations:
        if len(row) != len(protected):
            return f"a combination has {len(row)} values for {len(protected)} protected features"
        inside = (domain.lower[protected] <= row) & (np.array(row) <= domain.upper[protected])
        if not (inside & domain.integer[protected] & (np.array(row) == np.floor(row))).all():
            return f"the combination {row} is not one of whole values in the declared ranges"
    if certificate.reference >= len(query.combinations):
        return f"the reference is combination {certificate.reference} of {len(query.combinations)}, counted from 0"
    lower[protected] = upper[protected] = query.combinations[0]
    return lower, upper


def leaves_of(certificate: KmaxCertificate, root: tuple[Array, Array], domain: Domain) -> Regions | str:
    """Return the leaves of the tree, their protected entries those of the first combination, or why it is no tree over the root."""
    tree, names = certificate.tree, certificate.features
    for v in tree.feature.tolist():
        if 0 <= v < len(names) and names[v] in certificate.query.protected:
            return f"the tree splits {names[v]!r}, which is protected"
    found = leaf_regions(tree.feature, tree.cut, Regions.whole(*root), domain)
    return found if isinstance(found, str) else found[1]


def _statement(given: KmaxCertificate, schema: InputSpace, outputs: int) -> str:
    """What the file states, in words."""
    query = given.query
    known = {feature.name for feature in schema.features}
    every = prod(len(schema.values(name)) for name in query.protected) if known >= set(query.protected) else 0
    of = f"{len(query.combinations)} of {every}" if every > len(query.combinations) else f"all {len(query.combinations)}"
    return (
        f"It states: nobody falls into more than {given.upper} of {query.buckets} outcome buckets over "
        f"{of} combinations of {', '.join(query.protected)}; {where(query.box, schema)}."
    )


KIND = Kind(
    format=KmaxCertificate.FORMAT, counts="leaves", load=KmaxCertificate.load, check=check_kmax, statement=_statement, file=FILE,
    title="Files of proofs of an upper bound of k",
)
