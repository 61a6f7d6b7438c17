"""The independent re-checker of consistency certificates: are these pairs decided alike, for like reasons, wherever they move?

For every pair, all raw rows x within delta units of `row` and x~ within delta units of `counterpart` (each numeric feature that
has a unit and is neither protected nor change = "fixed" moves, clipped to its range, whole numbers where the feature has them; a
real feature around every value that becomes the same float32 input as the row's), in network inputs, with f = f_1 - f_0 or the
single logit of the real-valued network, and b the pair's baseline:

    f(x) > 0 and f(x~) > 0, or f(x) <= 0 and f(x~) <= 0;      1/2 | g / (|g| + epsilon) - g~ / (|g~| + epsilon) | < threshold
    with  g_j = (x_j - b_j) int_0^1 df/dx_j (b + alpha (x - b)) dalpha,  g~ the same of x~, and epsilon = 1e-8.

Imports neither what found the bounds, nor any of the engine's; shared with it are the network, the domain and the schema. Boxes are
bounded by `ExplanationBounds`, cut where that does not suffice, and points get more slices of their paths.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from encoders.domain import Batched, Domain
from encoders.network import Array, Integers, Network
from verifair.checker.consistency_certificate import FILE, ConsistencyCertificate
from verifair.checker.kernel.bounds import TINY, rounding_unit
from verifair.checker.kind import Kind
from verifair.checker.report import CheckReport, Progress, Rejection
from verifair.checker.words import exactly
from verifair.schema.space import InputSpace

EPSILON = 1e-8
"""In the norms of the score, as in CEC's definition 3."""
PAIRS_BOUNDED = 64
"""Pairs of boxes bounded at once."""
SLICES, FINE_SLICES, MOST_SLICES = 16, 256, 4096
"""Of the paths at first; twice as many with every third cut; and of points, four times as many each time."""
PATIENCE = 8
"""A pair may take so many times the boxes that it is said to have taken, ..."""
LEAST_BOXES, MOST_BOXES = 256, 1 << 16
"""... or this many, where that is more; but never more than so many: what a file says must not keep anybody busy for years."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _BoxPairs(Batched):
    """Q pairs of raw boxes still to be confirmed: pair (Q,), ends (Q, 2, V) for person and counterpart, slices and cuts (Q,)."""

    pair: Integers
    lower: Array
    upper: Array
    slices: Integers
    cuts: Integers


def check_consistency(
    given: ConsistencyCertificate, *, network: Network, schema: InputSpace, progress: Progress | None = None
) -> CheckReport:
    """Prove a certificate again.

    progress is called with the number of pairs done and of all pairs.
    """
    network.require_piecewise_linear("check of a consistency certificate")
    started = time.perf_counter()
    found = [Rejection(proof=None, reason=reason) for reason in _misfits(given, network, schema)]
    boxes = 0
    if not found:
        outside = np.flatnonzero(~(schema.domain.within(given.rows) & schema.domain.within(given.counterparts)))
        found = [Rejection(proof=int(k), reason="a row lies outside the declared domain") for k in outside]
        for start in range(0, len(given), PAIRS_BOUNDED):
            pairs = np.setdiff1d(np.arange(start, min(start + PAIRS_BOUNDED, len(given))), outside)
            reasons, used = _confirm(given, network, schema, pairs)
            found += [Rejection(proof=pair, reason=reason) for pair, reason in reasons.items()]
            boxes += used
            if progress is not None:
                progress(min(start + PAIRS_BOUNDED, len(given)), len(given))
    return CheckReport.of(found, proofs=len(given), leaves=boxes, started=started, extent=given.extent, unit="pairs")


def _misfits(given: ConsistencyCertificate, network: Network, schema: InputSpace) -> Iterator[str]:
    """Yield reasons for which the pairs need not be looked at."""
    yield from given.misfits(network, schema, None if len(given) else "it holds no pairs")
    stated = np.column_stack([given.rows, given.counterparts, given.baseline])
    if len(np.unique(stated, axis=0)) < len(given):
        yield "a pair stands in it twice"
    if given.query.epsilon != EPSILON:
        yield f"its score has epsilon = {given.query.epsilon:g} in the norms, expected {EPSILON:g}"
    if network.outputs > 2:
        yield f"the network has {network.outputs} classes: such certificates are about two"
    if schema.domain.columns == network.inputs and len(given) and given.baselines.shape[1] != network.inputs:
        yield f"its baselines have {given.baselines.shape[1]} columns, the network takes {network.inputs}"


def _near(schema: InputSpace, rows: Array, delta: float) -> tuple[Array, Array]:
    """Return raw boxes (P, V), (P, V) of all that is within delta units of rows (P, V), or of others with the same network
    inputs."""
    domain, lower, upper = schema.domain, rows.copy(), rows.copy()
    for v, feature in enumerate(schema.features):
        if feature.change == "fixed" or feature.protected or not feature.numeric or not feature.unit or delta == 0:
            continue
        low, high = rows[:, v] - delta * feature.unit, rows[:, v] + delta * feature.unit
        if domain.integer[v]:
            low, high = np.ceil(low), np.floor(high)
        else:  # within half a unit in the last place of float32, 2^-24, a value is not told from the row's
            size = np.abs(rows[:, v]) + delta * feature.unit
            unseen = 2.0**-23 * np.abs(rows[:, v] - domain.offset[v]) + 2.0**-149 * domain.scale[v] + 2.0**-51 * size
            low, high = low - unseen, high + unseen
        lower[:, v], upper[:, v] = np.maximum(low, domain.lower[v]), np.minimum(high, domain.upper[v])
    return lower, upper


def _confirm(given: ConsistencyCertificate, network: Network, schema: InputSpace, pairs: Integers) -> tuple[dict[int, str], int]:
    """Return why some of these pairs are not accepted, and how many boxes were bounded."""
    near = [_near(schema, rows[pairs], given.query.delta) for rows in (given.rows, given.counterparts)]
    lower, upper = (np.stack([box[end] for box in near], axis=1) for end in (0, 1))
    slices, cuts = np.full(len(pairs), SLICES), np.zeros(len(pairs), dtype=np.int64)
    work = _BoxPairs(pair=pairs, lower=lower, upper=upper, slices=slices, cuts=cuts)
    left = dict(zip(pairs.tolist(), np.clip(PATIENCE * given.boxes[pairs], LEAST_BOXES, MOST_BOXES).tolist(), strict=True))
    reasons: dict[int, str] = {}
    used = 0
    while len(work):
        most = int(work.slices.max())  # depth first, those of a kind together
        now = np.flatnonzero(work.slices == most)[-max(1, PAIRS_BOUNDED * SLICES // most) :]
        part, work = work.take(now), work.take(np.setdiff1d(np.arange(len(work)), now))
        used += 2 * len(part)
        more = _step(given, network, schema.domain, part, left, reasons)
        work = _BoxPairs.join([work, *more])
        work = work.take(np.flatnonzero(~np.isin(work.pair, list(reasons))))
    return reasons, used


def _step(
    given: ConsistencyCertificate, network: Network, domain: Domain, work: _BoxPairs,
    left: dict[int, float], reasons: dict[int, str],
) -> list[_BoxPairs]:
    """Bound pairs of boxes; returns what those that are not confirmed are cut into. `left`: boxes that each pair may still take."""
    margin = np.ones(1) if network.outputs == 1 else np.array([-1.0, 1.0])
    baseline = given.baselines[given.baseline[work.pair]]
    both = [
        explanations(network, margin, baseline, *domain.box(work.lower[:, side], work.upper[:, side]), int(work.slices[0]))
        for side in (0, 1)
    ]
    more = []
    for k, (one, two) in enumerate(zip(*both, strict=True)):
        pair = int(work.pair[k])
        known = None not in (one.decision, two.decision)
        if known and one.decision != two.decision:
            reasons.setdefault(pair, "the decisions differ within the neighbourhood")
        elif not (known and surely_near(one, two, given.query.threshold, EPSILON)):
            cut = _cut(network, domain, work.take(slice(k, k + 1)), one, two)
            left[pair] -= 2
            if cut is None or left[pair] < 0:
                reasons.setdefault(pair, f"the {'score' if known else 'decision'} is not confirmed")
            else:
                more.append(cut)
    return more


def _cut(network: Network, domain: Domain, work: _BoxPairs, one: ExplanationBounds, two: ExplanationBounds) -> _BoxPairs | None:
    """Return one pair of boxes with the one that strays more (or is undecided) halved; points get four times the slices, or
    None."""
    strays = [explanation.strays + 1e9 * (explanation.decision is None) for explanation in (one, two)]
    reach = np.abs(network.layers[0].weight).sum(axis=0)
    for side in np.argsort([-v for v in strays]):
        lower, upper = work.lower[:, side], work.upper[:, side]
        low, high = domain.box(lower, upper)
        effect = np.where(domain.one_hot, 0.0, ((high - low)[0] * reach)[domain.start])
        effect[~domain.divisible(lower, upper)[0]] = 0.0
        v = int(effect.argmax())
        if effect[v] > 0:
            halves = work.take(np.zeros(2, dtype=np.int64))
            halves.lower[:, side], halves.upper[:, side] = domain.halves(lower, upper, [v], domain.middle(lower, upper)[:, v])
            cuts = halves.cuts + 1
            return replace(halves, cuts=cuts, slices=np.maximum(halves.slices, np.minimum(SLICES << cuts // 3, FINE_SLICES)))
    if work.slices[0] >= MOST_SLICES:
        return None
    return replace(work, slices=4 * work.slices)


SHARE = 2.0**-40
COLUMNS = 256
"""Of one explanation: the smallest beyond these join the rest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplanationBounds:
    """All explanations of one box: centre (n,), columns (L, n), norms rest and radius; decision: the class, None where unknown."""

    centre: Array
    columns: Array
    rest: float
    radius: float
    decision: int | None

    @property
    def least(self) -> float:
        """What the norm of an explanation is at least; inf where its square overflows, which `surely_near` takes for no proof."""
        with np.errstate(over="ignore"):
            return float(np.linalg.norm(self.centre)) * (1 - len(self.centre) * 2.0**-50) - self.radius

    @property
    def strays(self) -> float:
        """How far explanations stray, relative to their size; inf where they may vanish."""
        return self.radius / self.least if self.least > 0 else float("inf")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mask:
    """(S, n): the mean is q +- half, the values are within `wide` of q and at most `top`."""

    q: Array
    half: Array
    wide: Array
    top: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Forms:
    """a = A.xi + a_0 +- e: slopes A (S, n, d + 1) with the slice's t last, middle a_0 (S, n), e (S, n)."""

    slopes: Array
    middle: Array
    e: Array

    @property
    def size(self) -> Array:
        return np.asarray(np.abs(self.slopes).sum(axis=2) + np.abs(self.middle) + self.e)


def explanations(network: Network, margin: Array, baseline: Array, low: Array, high: Array, slices: int) -> list[ExplanationBounds]:
    """Return the explanations of margin . logits from baseline (B, n_0) over boxes [low, high] (B, n_0); margin (n_N,)."""
    with np.errstate(all="ignore"):  # what overflows or is NaN proves nothing
        eps = rounding_unit(network)
        ends = np.arange(slices + 1) / slices
        inside = _walked(network, margin, baseline, low, high, (ends[:-1], ends[1:]), eps)
        _, least, most = _walked(network, margin, baseline, low, high, (np.ones(1), np.ones(1)), eps)
        gradient, columns, whose = _pulled(network, margin, inside[0], len(low) * slices, slices)
        size = np.abs(margin) @ np.abs(network.layers[-1].weight)
        for layer in reversed(network.layers[:-1]):
            size = size @ np.abs(layer.weight) + TINY
        error = (16 * len(network.layers) ** 2 * eps + slices * 2.0**-50) * size + TINY
        middle, reach = _middle(low, high)
        found = []
        for k in range(len(low)):
            decision = 1 if least[k] > 0 else 0 if most[k] <= 0 else None
            found.append(_explanation(gradient[k], columns[whose == k], error, middle[k] - baseline[k], reach[k], decision))
        return found


def surely_near(first: ExplanationBounds, second: ExplanationBounds, threshold: float, epsilon: float) -> bool:
    """Return whether every score between the two is below the threshold."""
    with np.errstate(all="ignore"):
        least = min(first.least, second.least)
        if not least > 0:
            return False
        allowed = threshold * (1 - 2.0**-40) - epsilon / (2 * (least + epsilon))
        if not allowed > 0:
            return False
        kappa = 1 - 2 * allowed**2 + 2.0**-50
        c, c2, v, v2 = first.centre, second.centre, first.columns, second.columns
        norm, norm2, rho, rho2 = float(np.linalg.norm(c)), float(np.linalg.norm(c2)), first.radius, second.radius
        q = norm2 / norm
        if not (norm < np.inf and 0 < q < np.inf):
            return False
        linear = np.abs(v @ (c2 - kappa * q * c)).sum() + np.abs(v2 @ (c - kappa / q * c2)).sum()
        mixed = abs(kappa) * rho * rho2 if kappa < 0 else kappa / 2 * (q * rho**2 + rho2**2 / q)
        one, two = np.abs(c).sum() + np.abs(v).sum(), np.abs(c2).sum() + np.abs(v2).sum()
        slack = 64 * 2.0**-52 * (len(c) + len(v) + len(v2) + 32) * (one * two + q * one**2 + two**2 / q)
        slack += 4 * (first.rest * norm2 + second.rest * norm)
        return bool(c @ c2 - kappa * norm * norm2 - linear - (rho * rho2 + mixed) * (1 + 2.0**-45) - slack > 0)


def _walked(
    network: Network, margin: Array, baseline: Array, low: Array, high: Array, slices: tuple[Array, Array], eps: float
) -> tuple[list[_Mask], Array, Array]:
    """Return the masks of the hidden layers on all slices, from start to end, box-major; and bounds (S,) of the margin on them."""
    start, end = slices
    middle, reach = _middle(low, high)
    moving = np.flatnonzero(reach.any(axis=0))
    boxes, count = len(low), len(start)
    slopes = np.zeros((boxes, count, len(moving) + 1, network.inputs))
    slopes[:, :, np.arange(len(moving)), moving] = end[:, None] * reach[:, None, moving]
    slopes[:, :, -1, :] = ((end - start) / 2)[:, None] * (middle - baseline)[:, None, :]
    at = baseline[:, None, :] + ((start + end) / 2)[:, None] * (middle - baseline)[:, None, :]
    rough = 2.0**-50 * (np.abs(low) + np.abs(high) + 2 * np.abs(baseline))
    z = _Forms(
        slopes=slopes.transpose(0, 1, 3, 2).reshape(boxes * count, network.inputs, -1), middle=at.reshape(boxes * count, -1),
        e=np.repeat(rough, count, axis=0),
    )
    masks = []
    for layer in network.layers[:-1]:
        a = _image(layer.weight, layer.bias, z, eps)
        spread = np.abs(a.slopes).sum(axis=2) + a.e + eps * a.size
        lower, upper = a.middle - spread, a.middle + spread
        masks.append(_mask(a, lower, upper, layer.slope, eps))
        z = _activated(a, lower, upper, layer.slope)
    last = network.layers[-1]
    out = _image((margin @ last.weight)[None], (margin @ last.bias)[None], z, eps)
    extra = 4 * eps * (z.size @ (np.abs(margin) @ np.abs(last.weight)) + np.abs(margin) @ np.abs(last.bias))
    spread = np.abs(out.slopes).sum(axis=2)[:, 0] + out.e[:, 0] + eps * out.size[:, 0] + extra
    return masks, out.middle[:, 0] - spread, out.middle[:, 0] + spread


def _middle(low: Array, high: Array) -> tuple[Array, Array]:
    """Return a middle of each box, whatever its rounding, and how far the ends are from it at most."""
    middle = low + (high - low) / 2
    return middle, np.maximum(high - middle, middle - low) * (1 + 2.0**-50)


def _image(weight: Array, bias: Array, y: _Forms, eps: float) -> _Forms:
    size = np.abs(weight)
    error = eps * (y.size @ size.T + np.abs(bias)) + TINY
    return _Forms(slopes=weight @ y.slopes, middle=y.middle @ weight.T + bias, e=y.e @ size.T + error)


def _activated(a: _Forms, lower: Array, upper: Array, slope: Array) -> _Forms:
    """y = s a + (1 - s) r with r = lam a + mu +- mu."""
    bends = ~((lower > 0) | (upper < 0))
    width = np.where(bends & (upper > lower), upper - lower, 1.0)
    lam = np.where(lower > 0, 1.0, np.where(bends, np.clip(upper / width, 0.0, 1.0), 0.0))
    most = np.where(bends, np.maximum(np.maximum(-lam * lower, upper - lam * upper), 0.0), 0.0)
    factor, mu = slope + (1 - slope) * lam, (1 - slope) * most / 2
    return _Forms(slopes=a.slopes * factor[:, :, None], middle=a.middle * factor + mu, e=(a.e * factor + mu) * (1 + 2.0**-48))


def _mask(a: _Forms, lower: Array, upper: Array, slope: Array, eps: float) -> _Mask:
    still = np.abs(a.slopes[:, :, :-1]).sum(axis=2) + a.e + eps * a.size
    rise = a.slopes[:, :, -1]
    on = _positive(a.middle - still - rise, a.middle - still + rise)
    off = _positive(-a.middle - still - rise, -a.middle - still + rise)
    sure, never = lower > 0, upper < 0
    bends = ~(sure | never) & (slope < 1)
    from_, to = np.maximum(on - SHARE, 0.0), np.minimum(1 - off + SHARE, 1.0)
    middle = slope + (1 - slope) * (from_ + to) / 2
    q = np.where(bends, middle, np.where(sure, 1.0, slope))
    return _Mask(
        q=q, half=np.where(bends, (1 - slope) * np.maximum(to - from_, 0.0) / 2 + SHARE, 0.0),
        wide=np.where(bends, np.maximum(q - slope, 1 - q) + SHARE, 0.0), top=np.where(bends | sure, 1.0, slope),
    )


def _positive(start: Array, end: Array) -> Array:
    """Return the share of [0, 1] on which the line from `start` to `end` is positive, 0 where that cannot be said."""
    high = np.maximum(start, end)
    crossing = np.divide(high, np.abs(start) + np.abs(end), out=np.zeros_like(high), where=(high > 0) & np.isfinite(high))
    return np.where(np.minimum(start, end) > 0, 1.0, np.where(high > 0, crossing, 0.0))


def _pulled(network: Network, margin: Array, masks: list[_Mask], count: int, slices: int) -> tuple[Array, Array, Integers]:
    """Return mean gradients (B, n_0), columns (L, n_0) of what they can differ by, and whose box each is (L,)."""
    p = np.tile(margin @ network.layers[-1].weight, (count, 1))
    w = np.zeros_like(p)
    columns, whose = [np.empty((0, network.inputs))], [np.empty(0, dtype=np.int64)]
    for k in range(len(masks) - 1, -1, -1):
        mask, weight = masks[k], network.layers[k].weight
        size = (mask.half * np.abs(p) + mask.wide * w) / slices
        slice_, neuron = np.nonzero(size)
        row = weight[neuron] * size[slice_, neuron][:, None]
        if k:
            for below in range(k - 1, -1, -1):
                row = (row * masks[below].q[slice_]) @ network.layers[below].weight
            columns.append(row)
            whose.append(slice_ // slices)
        else:
            per_box = size.reshape(-1, slices, size.shape[1]).sum(axis=1)
            box, neuron = np.nonzero(per_box)
            columns.append(weight[neuron] * per_box[box, neuron][:, None])
            whose.append(box)
        w = (mask.top * w + mask.wide * np.abs(p)) @ np.abs(weight)
        p = (mask.q * p) @ weight
    gradient = p.reshape(-1, slices, p.shape[1]).mean(axis=1)
    return gradient, np.concatenate(columns), np.concatenate(whose)


def _explanation(gradient: Array, columns: Array, error: Array, d: Array, reach: Array, decision: int | None) -> ExplanationBounds:
    sums = 1 + 2.0**-51 * len(columns)  # what a sum over columns may lose
    total = (np.abs(gradient) + np.abs(columns).sum(axis=0) + error) * sums
    size = np.abs(d) + reach
    rest = size * (error + 2.0**-48 * total) + TINY
    turned = reach * (1 + 2.0**-48) * total
    v = np.concatenate([columns * d, np.diag(turned)[turned > 0]])
    if len(v) > COLUMNS:
        order = np.argsort(np.linalg.norm(v, axis=1))
        rest = rest + np.abs(v[order[:-COLUMNS]]).sum(axis=0) * sums
        v = v[order[-COLUMNS:]]
    outside = float(np.linalg.norm(rest)) * (1 + 2.0**-40)
    hull = np.abs(v).sum(axis=0)
    gram = float(np.abs(v @ v.T).sum()) + 2.0**-50 * (len(d) + len(v) ** 2 + 32) * float(hull @ hull) + TINY
    radius = float(np.sqrt(gram)) * (1 + 2.0**-48) + outside
    return ExplanationBounds(centre=gradient * d, columns=v, rest=outside, radius=radius, decision=decision)


def _statement(given: ConsistencyCertificate, schema: InputSpace, outputs: int) -> str:
    """What the file states, in words."""
    query = given.query
    units = f"{exactly(query.delta)} unit" + "s" * (query.delta != 1)
    where = f"wherever both move within {units}" if query.delta else "as they are"
    return (
        f"It states: {len(given):,} of {given.extent.total:,} pairs of people asked about, {where}, are decided alike, with scores "
        f"of their explanations (exact integrated gradients from the file's baselines) below {exactly(query.threshold)}; nothing "
        "about other rows."
    )


KIND = Kind(
    format=ConsistencyCertificate.FORMAT, counts="pairs", load=ConsistencyCertificate.load, check=check_consistency,
    statement=_statement, file=FILE, title="Files of proofs of consistent explanations",
)
