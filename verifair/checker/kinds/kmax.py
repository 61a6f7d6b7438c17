"""The independent re-checker of kmax certificates: does no legal x of the box hit more than `upper` buckets?

    k(x) = number of different buckets (i / B, (i + 1) / B] of [0, 1] (the first one closed) that hold sigma(g(x, z)), over the
    listed combinations z of protected values for which the whole row (x, z) is legal;   g = f_1 - f_0, or the single logit

(B even: probability 1/2, a margin of 0, is in a bucket with negative decisions.) Of several classes sigma(g) is the probability of
the favourable ones under softmax; B = 2 of them counts decisions as the model makes them: g is the difference of the maxima.

Imports neither the search, nor the engine's bounds, nor a solver; shared with them are the network's forward pass, the exact
arithmetic, the buckets of single points and the schema. The tree must cover the box, and every leaf must show the claim by itself:
a single point by `encoders.buckets`; others because no more combinations are legal there, or by the bounds of `kernel.bounds` (of
trees `kernel.trees`) for every copy and for its difference from the reference copy that the certificate names. Nothing is cut, and
nothing is chosen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import prod

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.buckets import borders, buckets_of
from encoders.domain import Domain, Regions
from encoders.model import Model
from encoders.probability.shares import logistic
from encoders.trees.ensemble import BY_TIE
from verifair.checker.certificates.kmax import FILE, KmaxCertificate, of_probability
from verifair.checker.certificates.tree import leaf_regions
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kernel.trees.choice import tree_bounds
from verifair.checker.kind import Kind
from verifair.checker.report import Batches, CheckReport, Rejection
from verifair.checker.words import decided, where
from verifair.schema.space import InputSpace

PAIRS = 1024
"""Pairs of copies bounded at once: a step takes this number divided by K leaves."""
PARTS, FINEST = 64, 2.0**-20
"""A slice is halved down to this fraction of the reference's range in its bucket, or down to this width."""


def check_kmax(certificate: KmaxCertificate, *, network: Model, schema: InputSpace, batches: Batches) -> CheckReport:
    """Check a certificate of k-discrimination."""
    whole = network.whole
    values = schema.outcome.of == "value"
    network = schema.judges(whole, odds=of_probability(certificate.query.buckets, schema, whole) and not values)
    started = time.perf_counter()
    flaw = "it is about probabilities, and the model gives values" if values else None
    if not certificate.extent.whole:
        flaw = "a bound holds for all combinations of the query: none can be undecided or not reached"
    count, reason = 0, next(certificate.misfits(network, schema, flaw), None)
    if reason is None:
        root = root_of(certificate, schema)
        leaves = root if isinstance(root, str) else leaves_of(certificate, root, schema.domain, trees=whole.of_trees)
        if isinstance(root, str) or isinstance(leaves, str):
            reason = str(leaves)
        else:
            count = len(leaves)
            reason = _KmaxChecker(network, schema, certificate).run(leaves, batches)
    rejections = [] if reason is None else [Rejection(proof=None, reason=reason)]
    return CheckReport.of(rejections, proofs=1, leaves=count, started=started, extent=certificate.extent, unit="combinations")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Enclosed:
    """g_z in [low, high] and g_z - g_r in [d_low, d_high] over boxes, (B, K) each."""

    low: Array
    high: Array
    d_low: Array
    d_high: Array


class _KmaxChecker:
    """Confirms the leaves of one tree."""

    def __init__(self, network: Model, schema: InputSpace, certificate: KmaxCertificate) -> None:
        query = certificate.query
        self.trees = tree_bounds(network, schema.domain)
        self.network, self.domain, self.buckets, self.claim = network, schema.domain, query.buckets, certificate.upper
        self.margin = np.array([1.0]) if network.outputs == 1 else np.array([-1.0, 1.0])
        self.values, self.reference = np.array(query.combinations), certificate.reference
        self.order = np.array([schema.index(name) for name in query.protected])
        self.border_low, self.border_high = borders(query.buckets, shares=not logistic(network))

    def run(self, leaves: Regions, batches: Batches) -> str | None:
        """Return a reason to reject the certificate, or None."""
        if self.claim >= min(len(self.values), self.buckets):  # more cannot be hit anyway
            return None
        step = max(1, PAIRS // len(self.values))
        parts = ((leaves.take(slice(start, start + step)),) for start in range(0, len(leaves), step))
        return next((reason for reason in batches(self._flaw, parts, len(leaves)) if reason is not None), None)

    def _flaw(self, part: Regions) -> tuple[int, str | None]:
        """Return the number of these leaves and None, or 0 and what is wrong with the first that is not proved."""
        with np.errstate(all="ignore"):  # whatever overflows or is NaN proves nothing, see kernel.bounds
            counts = self._bucket_bounds(part.lower, part.upper)
        for n in np.flatnonzero(counts > self.claim):
            return 0, f"leaf {part.lower[n].tolist()} .. {part.upper[n].tolist()}: {counts[n]} buckets cannot be ruled out"
        return len(part), None

    def _bucket_bounds(self, lower: Array, upper: Array) -> Integers:
        """Return (B,) an upper bound of the number of buckets that any x of each box hits."""
        low, high = self.domain.box(lower, upper)
        counted = ~self.domain.impossible(self._rows(lower), self._rows(upper)).reshape(len(lower), -1)
        counts, point = counted.sum(axis=1), (low == high).all(axis=1)
        finite = (np.isfinite(low) & np.isfinite(high)).all(axis=1)  # else some network input is no float32 number
        middle = self.domain.middle(lower, upper)
        for n in np.flatnonzero(finite & point & (counts > self.claim)):
            counts[n] = self._at_point(middle[n], counted[n])
        for close in (False, True):
            box = np.flatnonzero(finite & ~point & (counts > self.claim))
            if len(box):
                bounds = self._enclosed(lower[box], upper[box], close)
                counts[box] = [self._most(bounds, n, counted[k]) for n, k in enumerate(box)]
        return np.asarray(counts)

    def _rows(self, raw: Array) -> Array:
        """Return all copies' rows (B * K, V) of raw points (B, V)."""
        rows = np.repeat(raw, len(self.values), axis=0)
        rows[:, self.order] = np.tile(self.values, (len(raw), 1))
        return rows

    def _at_point(self, raw: Array, counted: Booleans) -> int:
        """Return the most buckets that the counted copies hit at one point: each undecided copy may hit a further one."""
        if not counted.any():
            return 0
        lowest, highest = buckets_of(self.network, self.domain.encode(self._rows(raw[None])[counted]), self.buckets).T
        return len(np.unique(lowest[lowest == highest])) + int((lowest < highest).sum())

    def _enclosed(self, lower: Array, upper: Array, close: bool) -> _Enclosed:
        count, shape = len(self.values), (len(lower), len(self.values))
        low2, high2 = self.domain.box(self._rows(lower), self._rows(upper))
        first = np.repeat(np.arange(len(lower)) * count + self.reference, count)
        index = np.arange(len(low2))
        plus, zero = np.tile(self.margin, (len(low2), 1)), np.zeros((len(low2), len(self.margin)))
        rows = ((zero, plus), (zero, -plus), (-plus, plus), (plus, -plus))
        if self.trees is None:
            network = self.network.layered("check of a kmax certificate")
            bounds, layer = TwinBounds(network, low2[first], high2[first], low2, high2, close=close), len(network.layers) - 1
            ends = [bounds.by_substitution(p, q, index, layer=layer).reshape(shape) for p, q in rows]
            equal = bounds.alike(plus).reshape(shape)
        else:
            differs, reference, copy = self._protected_columns(), (low2[first], high2[first]), (low2, high2)
            ends = [self.trees.least(reference, copy, differs, index, p, q).reshape(shape) for p, q in rows]
            equal = np.zeros(shape, dtype=bool)
        equal[:, self.reference] = True
        d_low, d_high = np.where(equal, 0.0, ends[2]), np.where(equal, 0.0, -ends[3])
        return _Enclosed(low=ends[0], high=-ends[1], d_low=d_low, d_high=d_high)

    def _protected_columns(self) -> Booleans:
        """Return (n,) True for columns of protected features."""
        columns = np.zeros(self.domain.columns, dtype=bool)
        columns[self.domain.columns_of(self.order)] = True
        return columns

    def _most(self, bounds: _Enclosed, n: int, counted: Booleans) -> int:
        """Return an upper bound of the buckets hit in box n. The range of the reference's logit is cut into slices, and they are
        halved while they show more than claimed (unbounded ones ever farther out, up to `bounds.LARGEST`: then bounds are inf)."""
        low, high = np.append(-np.inf, self.border_low), np.append(self.border_high, np.inf)
        bucket, most = np.arange(self.buckets), 0
        length = np.minimum(high, bounds.high[n, self.reference]) - np.maximum(low, bounds.low[n, self.reference])
        width = np.maximum(length / PARTS, FINEST)
        while len(bucket) and most <= self.claim:
            counts = self._in_slices(bounds, n, counted, bucket, low, high)
            split = (counts > self.claim) & (high - low > width)
            most = max(most, int(counts[~split].max(initial=0)))
            bucket, low, high, width = bucket[split], low[split], high[split], width[split]
            start, end = np.where(np.isinf(low), 3 * high - 2, low), np.where(np.isinf(high), 3 * low + 2, high)
            half = start + (end - start) / 2
            bucket, width = np.tile(bucket, 2), np.tile(width, 2)
            low, high = np.concatenate([low, half]), np.concatenate([half, high])
        return most

    def _in_slices(self, bounds: _Enclosed, n: int, counted: Booleans, bucket: Integers, low: Array, high: Array) -> Integers:
        """Return (S,) upper bounds of the buckets hit if the reference lies in [low, high] (S,) within its bucket `bucket` (S,)."""
        d_low, d_high = bounds.d_low[n], bounds.d_high[n]
        low, high = np.maximum(low, bounds.low[n, self.reference]), np.minimum(high, bounds.high[n, self.reference])
        lower = np.maximum(bounds.low[n], np.nextafter(low[:, None] + d_low - 4 * BY_TIE, -np.inf))   # +-BY_TIE may stand for 0
        upper = np.minimum(bounds.high[n], np.nextafter(high[:, None] + d_high + 4 * BY_TIE, np.inf))
        first, last = np.searchsorted(self.border_high, lower), np.searchsorted(self.border_low, upper)
        first = np.where(d_low >= 0, np.maximum(first, bucket[:, None]), first)  # never below the reference, nor its bucket
        last = np.where(d_high <= 0, np.minimum(last, bucket[:, None]), last)
        empty = (low > high) | ((lower > upper) | (first > last)).any(axis=1)
        first, last = first[:, counted], last[:, counted]
        free, hit = np.ones(first.shape, dtype=bool), np.zeros(len(bucket), dtype=np.int64)
        for k in range(self.buckets):  # match each bucket to a copy that can be in it and has the fewest later ones
            possible = free & (first <= k) & (last >= k)
            matched = np.flatnonzero(possible.any(axis=1))
            chosen = np.where(possible[matched], last[matched], self.buckets).argmin(axis=1)
            free[matched, chosen] = False
            hit[matched] += 1
        return np.where(empty, 0, hit)


def root_of(certificate: KmaxCertificate, schema: InputSpace) -> tuple[Array, Array] | str:
    """Return the root box, with the protected values of the first combination, or why the query is invalid."""
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


def leaves_of(certificate: KmaxCertificate, root: tuple[Array, Array], domain: Domain, *, trees: bool) -> Regions | str:
    """Return the leaves of the tree, with the protected values of the first combination, or why it is no tree over the root.
    trees: boxes are open below in real features, see `leaf_regions`."""
    tree, names = certificate.tree, certificate.features
    for v in tree.feature.tolist():
        if 0 <= v < len(names) and names[v] in certificate.query.protected:
            return f"the tree splits {names[v]!r}, which is protected"
    opens = (~domain.integer & trees)[None]
    decoded = leaf_regions(tree.feature, tree.cut, Regions.whole(*root), domain, opens=opens)
    return decoded if isinstance(decoded, str) else decoded[1]


def _statement(certificate: KmaxCertificate, schema: InputSpace, network: Model) -> str:
    """Return the file's statement in words."""
    query = certificate.query
    names = {feature.name for feature in schema.features}
    total = prod(len(schema.values(name)) for name in query.protected) if names >= set(query.protected) else 0
    compared = f"{len(query.combinations)} of {total}" if total > len(query.combinations) else f"all {len(query.combinations)}"
    outputs = network.whole.outputs
    quantity = f" of the probability that {'' if schema.outcome.good else 'not '}{schema.positive}" if outputs > 2 else ""
    rule = quantity if of_probability(query.buckets, schema, network) else decided("deployed", network, schema)
    return (
        f"It states: nobody falls into more than {certificate.upper} of {query.buckets} outcome buckets{rule} over "
        f"{compared} combinations of {', '.join(query.protected)}; {where(query.box, schema)}."
    )


KIND = Kind(
    format=KmaxCertificate.FORMAT, counts="leaves", load=KmaxCertificate.load, check=check_kmax, statement=_statement, file=FILE,
    title="Files of proofs of an upper bound of k",
)
