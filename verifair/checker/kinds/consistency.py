"""The independent re-checker of consistency certificates: are these pairs decided alike, for like reasons, wherever they move?

For every pair, all raw rows x within delta units of `row` and x~ within delta units of `counterpart` (each numeric feature that
has a unit and is neither protected nor change = "fixed" moves, clipped to its range, whole numbers where the feature has them; a
real feature around every value that becomes the same float32 input as the row's), in network inputs, with f = f_1 - f_0 or the
single logit of the real-valued network, and b the pair's baseline:

    f(x) > 0 and f(x~) > 0, or f(x) <= 0 and f(x~) <= 0;      1/2 | g / (|g| + epsilon) - g~ / (|g~| + epsilon) | < threshold
    with  g_j = (x_j - b_j) int_0^1 df/dx_j (b + alpha (x - b)) dalpha,  g~ the same of x~, and epsilon = 1e-8.

The tree of a pair cuts the person's box (feature v < V) and the counterpart's (V + v) until one evaluation of the rule suffices on
every leaf: `ExplanationBounds` of both sides, with the paths cut into as many slices as the leaf's multipliers say (index 0 the
person's, 1 the counterpart's), must decide alike and be `surely_near`. Nothing is cut here.

Imports neither what found the proof, nor any of the engine's; shared with it are the network, the domain and the schema.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from encoders.arrays import Array, Integers
from encoders.domain import Domain, Regions
from encoders.model import Model
from encoders.network import Network
from verifair.checker.certificates.consistency import FILE, ConsistencyCertificate
from verifair.checker.certificates.tree import Tree, leaf_regions
from verifair.checker.kernel.bounds import TINY, rounding_unit
from verifair.checker.kind import Kind
from verifair.checker.report import Batches, CheckReport, Rejection
from verifair.checker.words import exactly
from verifair.schema.space import InputSpace

EPSILON = 1e-8
"""The epsilon in the norms of the score, as in CEC's definition 3."""
SLICES, MOST_SLICES = 16, 4096
"""Slices of a path, by default and at most: powers of 2, so that their ends and weights are exact."""
PAIRS_AT_ONCE, LEAVES_AT_ONCE, SLICES_AT_ONCE = 64, 256, 1024
"""Pairs whose leaves, leaves whose explanations, and slices whose forms are in memory at once."""


def check_consistency(cert: ConsistencyCertificate, *, network: Model, schema: InputSpace, batches: Batches) -> CheckReport:
    """Check a certificate of explanation consistency."""
    network = schema.judges(network).require_piecewise_linear("check of a consistency certificate")
    started = time.perf_counter()
    rejections = [Rejection(proof=None, reason=reason) for reason in _misfits(cert, network, schema)]
    leaves = sum(int((tree.feature == -1).sum()) for tree in cert.trees)
    if not rejections:
        outside = np.flatnonzero(~(schema.domain.within(cert.rows) & schema.domain.within(cert.counterparts)))
        rejections = [Rejection(proof=int(k), reason="a row lies outside the declared domain") for k in outside]
        inside = np.setdiff1d(np.arange(len(cert)), outside)
        parts = np.split(inside, np.arange(PAIRS_AT_ONCE, len(inside), PAIRS_AT_ONCE))
        for reasons in batches(partial(_flaws, cert, network, schema), zip(parts, strict=True), len(inside)):
            rejections += [Rejection(proof=pair, reason=reason) for pair, reason in reasons.items()]
    return CheckReport.of(rejections, proofs=len(cert), leaves=leaves, started=started, extent=cert.extent, unit="pairs")


def _misfits(cert: ConsistencyCertificate, network: Network, schema: InputSpace) -> Iterator[str]:
    """Yield reasons to reject the file without a look at its pairs."""
    yield from cert.misfits(network, schema, None if len(cert) else "it holds no pairs")
    stated = np.column_stack([cert.rows, cert.counterparts, cert.baseline])
    if len(np.unique(stated, axis=0)) < len(cert):
        yield "a pair stands in it twice"
    if cert.query.epsilon != EPSILON:
        yield f"its score has epsilon = {cert.query.epsilon:g} in the norms, expected {EPSILON:g}"
    if schema.domain.columns == network.inputs and len(cert) and cert.baselines.shape[1] != network.inputs:
        yield f"its baselines have {cert.baselines.shape[1]} columns, the network takes {network.inputs}"


def _near(schema: InputSpace, rows: Array, delta: float) -> tuple[Array, Array]:
    """Return raw boxes (P, V), (P, V) that hold all rows within delta units of rows (P, V), or of others with the same network
    inputs."""
    domain = schema.domain
    moves = [f.numeric and f.change != "fixed" and not f.protected for f in schema.features]
    step = delta * np.array([f.unit or 0.0 if moving else 0.0 for f, moving in zip(schema.features, moves, strict=True)])
    # Real values within half a unit in the last place of float32, 2^-24, may be the same network input as the row's.
    rounding = 2.0**-23 * np.abs(rows - domain.offset) + 2.0**-149 * domain.scale + 2.0**-51 * (np.abs(rows) + step)
    lower = np.where(domain.integer, np.ceil(rows - step), rows - step - rounding)
    upper = np.where(domain.integer, np.floor(rows + step), rows + step + rounding)
    lower, upper = np.maximum(lower, domain.lower), np.minimum(upper, domain.upper)
    return np.where(step > 0, lower, rows), np.where(step > 0, upper, rows)


def _flaws(cert: ConsistencyCertificate, network: Network, schema: InputSpace, pairs: Integers) -> tuple[int, dict[int, str]]:
    """Return the number of these pairs, and the reason for each one that is rejected."""
    domain, reasons = schema.domain, dict[int, str]()
    boxes = [_near(schema, rows[pairs], cert.query.delta) for rows in (cert.rows, cert.counterparts)]
    lower, upper = (np.concatenate([box[end] for box in boxes], axis=1) for end in (0, 1))
    owners, parts = list[int](), [np.empty((0, 2, 2 + 2 * domain.variables))]
    for k, pair in enumerate(pairs.tolist()):
        leaves = _leaves(cert.trees[pair], int(cert.baseline[pair]), Regions.whole(lower[k], upper[k]), domain)
        if isinstance(leaves, str):
            reasons[pair] = leaves
        else:
            owners += [pair] * len(leaves)
            parts.append(leaves)
    all_leaves = np.concatenate(parts)
    for start in range(0, len(all_leaves), LEAVES_AT_ONCE):
        part = slice(start, start + LEAVES_AT_ONCE)
        for pair, (first, second) in zip(owners[part], _explained(cert, network, domain, all_leaves[part]), strict=True):
            flaw = leaf_flaw(first, second, cert.query.threshold)
            if flaw is not None:
                reasons.setdefault(pair, flaw)
    return len(pairs), reasons


def _leaves(tree: Tree, baseline: int, root: Regions, domain: Domain) -> Array | str:
    """Return the leaves (L, 2, 2 + 2 V) of a tree, or why it is invalid. Each side of a leaf has its slices, its baseline, and the
    ends of its raw box."""
    pair_domain = domain.take(np.tile(np.arange(domain.variables), 2))
    decoded = leaf_regions(tree.feature, tree.cut, root, pair_domain) if tree.misfit is None else tree.misfit
    if isinstance(decoded, str):
        return decoded
    nodes, regions = decoded
    if not (np.isin(tree.index, [0, 1]).all() and np.isin(tree.value, 2 ** np.arange(MOST_SLICES.bit_length())).all()):
        return f"a leaf has other multipliers than two numbers of slices, powers of 2 up to {MOST_SLICES}"
    slices = np.full((len(tree.feature), 2, 1), float(SLICES))
    slices[np.repeat(np.arange(len(slices)), np.diff(tree.start)), tree.index, 0] = tree.value
    lower, upper = (end.reshape(len(nodes), 2, -1) for end in (regions.lower, regions.upper))
    return np.concatenate([slices[nodes], np.full((len(nodes), 2, 1), baseline), lower, upper], axis=2)


def _explained(
    cert: ConsistencyCertificate, network: Network, domain: Domain, leaves: Array
) -> list[tuple[ExplanationBounds, ExplanationBounds]]:
    """Return the explanations of both sides of leaves (L, 2, 2 + 2 V); a side that several leaves share is bounded once."""
    sides, inverse = np.unique(leaves.reshape(2 * len(leaves), -1), axis=0, return_inverse=True)
    (slices, baseline), (lower, upper) = sides[:, :2].astype(int).T, np.split(sides[:, 2:], 2, axis=1)
    margin = np.ones(1) if network.outputs == 1 else np.array([-1.0, 1.0])
    explanations: list[ExplanationBounds] = []
    while len(explanations) < len(sides):  # in the order of the slices
        count = int(slices[len(explanations)])
        last = min(len(explanations) + max(1, SLICES_AT_ONCE // count), int(np.searchsorted(slices, count, side="right")))
        part = slice(len(explanations), last)
        box = domain.box(lower[part], upper[part])
        explanations += explanation_bounds(network, margin, cert.baselines[baseline[part]], *box, count)
    ordered = [explanations[k] for k in inverse.ravel().tolist()]
    return list(zip(ordered[::2], ordered[1::2], strict=True))


def leaf_flaw(first: ExplanationBounds, second: ExplanationBounds, threshold: float) -> str | None:
    """Return why the explanations of two boxes do not prove the same decision for similar reasons on all their rows, or None."""
    if first.decision is None or second.decision is None:
        return "the decision is not confirmed"
    if first.decision != second.decision:
        return "the decisions differ within the neighbourhood"
    return None if surely_near(first, second, threshold, EPSILON) else "the score is not confirmed"


SHARE = 2.0**-40
COLUMNS = 256
"""The most columns of one explanation: the smallest of any more are merged into its rest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplanationBounds:
    """Enclosure of all explanations of one box: centre (n,), columns (L, n), norms rest and radius; decision: the class or None."""

    centre: Array
    columns: Array
    rest: float
    radius: float
    decision: int | None

    @property
    def least(self) -> float:
        """A lower bound of the norm of an explanation; inf where its square overflows, which `surely_near` takes for no proof."""
        with np.errstate(over="ignore"):
            return float(np.linalg.norm(self.centre)) * (1 - len(self.centre) * 2.0**-50) - self.radius


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mask:
    """Slopes of activations on slices, (S, n) each: the mean is q +- half, the values are within `wide` of q and at most `top`."""

    q: Array
    half: Array
    wide: Array
    top: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Forms:
    """Affine forms a = A.xi + a_0 +- e: slopes A (S, n, d + 1) with the slice's t last, middle a_0 (S, n), e (S, n)."""

    slopes: Array
    middle: Array
    e: Array

    @property
    def size(self) -> Array:
        return np.asarray(np.abs(self.slopes).sum(axis=2) + np.abs(self.middle) + self.e)


def explanation_bounds(
    network: Network, margin: Array, baseline: Array, low: Array, high: Array, slices: int, *, room: float = 1.0
) -> list[ExplanationBounds]:
    """Return the explanations of margin . logits from baseline (B, n_0) over boxes [low, high] (B, n_0); margin (n_N,).

    room: factor of all rounding errors; more than 1 where the same bounds are to hold in another order of summation.
    """
    with np.errstate(all="ignore"):  # what overflows or is NaN proves nothing
        eps = room * rounding_unit(network)
        ends = np.arange(slices + 1) / slices
        walked = _forward(network, margin, baseline, low, high, (ends[:-1], ends[1:]), eps)
        _, margin_low, margin_high = _forward(network, margin, baseline, low, high, (np.ones(1), np.ones(1)), eps)
        gradient, columns, owner = _backward(network, margin, walked[0], len(low) * slices, slices)
        size = np.abs(margin) @ np.abs(network.layers[-1].weight)
        for layer in reversed(network.layers[:-1]):
            size = size @ np.abs(layer.weight) + TINY
        error = (16 * len(network.layers) ** 2 * eps + slices * 2.0**-50) * size + TINY
        middle, reach = _middle(low, high)
        explanations = []
        for k in range(len(low)):
            decision = 1 if margin_low[k] > 0 else 0 if margin_high[k] <= 0 else None
            explanations.append(_explanation(gradient[k], columns[owner == k], error, middle[k] - baseline[k], reach[k], decision))
        return explanations


def surely_near(first: ExplanationBounds, second: ExplanationBounds, threshold: float, epsilon: float) -> bool:
    """Return True if every score between the two is below the threshold."""
    with np.errstate(all="ignore"):
        smallest = min(first.least, second.least)
        if not smallest > 0:
            return False
        allowed = threshold * (1 - 2.0**-40) - epsilon / (2 * (smallest + epsilon))
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
        size, size2 = np.abs(c).sum() + np.abs(v).sum(), np.abs(c2).sum() + np.abs(v2).sum()
        slack = 64 * 2.0**-52 * (len(c) + len(v) + len(v2) + 32) * (size * size2 + q * size**2 + size2**2 / q)
        slack += 4 * (first.rest * norm2 + second.rest * norm)
        return bool(c @ c2 - kappa * norm * norm2 - linear - (rho * rho2 + mixed) * (1 + 2.0**-45) - slack > 0)


def _forward(
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
    centre = baseline[:, None, :] + ((start + end) / 2)[:, None] * (middle - baseline)[:, None, :]
    error = 2.0**-50 * (np.abs(low) + np.abs(high) + 2 * np.abs(baseline))
    z = _Forms(
        slopes=slopes.transpose(0, 1, 3, 2).reshape(boxes * count, network.inputs, -1), middle=centre.reshape(boxes * count, -1),
        e=np.repeat(error, count, axis=0),
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
    """Return the middle of each box, rounded in any way, and the largest distance of an end from it."""
    middle = low + (high - low) / 2
    return middle, np.maximum(high - middle, middle - low) * (1 + 2.0**-50)


def _image(weight: Array, bias: Array, y: _Forms, eps: float) -> _Forms:
    size = np.abs(weight)
    error = eps * (y.size @ size.T + np.abs(bias)) + TINY
    return _Forms(slopes=weight @ y.slopes, middle=y.middle @ weight.T + bias, e=y.e @ size.T + error)


def _activated(a: _Forms, lower: Array, upper: Array, slope: Array) -> _Forms:
    """Return the forms of y = s a + (1 - s) r with r = lam a + mu +- mu."""
    unstable = ~((lower > 0) | (upper < 0))
    width = np.where(unstable & (upper > lower), upper - lower, 1.0)
    lam = np.where(lower > 0, 1.0, np.where(unstable, np.clip(upper / width, 0.0, 1.0), 0.0))
    width2 = np.where(unstable, np.maximum(np.maximum(-lam * lower, upper - lam * upper), 0.0), 0.0)
    factor, mu = slope + (1 - slope) * lam, (1 - slope) * width2 / 2
    return _Forms(slopes=a.slopes * factor[:, :, None], middle=a.middle * factor + mu, e=(a.e * factor + mu) * (1 + 2.0**-48))


def _mask(a: _Forms, lower: Array, upper: Array, slope: Array, eps: float) -> _Mask:
    spread = np.abs(a.slopes[:, :, :-1]).sum(axis=2) + a.e + eps * a.size
    rise = a.slopes[:, :, -1]
    active_share = _positive(a.middle - spread - rise, a.middle - spread + rise)
    inactive_share = _positive(-a.middle - spread - rise, -a.middle - spread + rise)
    active, inactive = lower > 0, upper < 0
    unstable = ~(active | inactive) & (slope < 1)
    lowest, highest = np.maximum(active_share - SHARE, 0.0), np.minimum(1 - inactive_share + SHARE, 1.0)
    middle = slope + (1 - slope) * (lowest + highest) / 2
    q = np.where(unstable, middle, np.where(active, 1.0, slope))
    return _Mask(
        q=q, half=np.where(unstable, (1 - slope) * np.maximum(highest - lowest, 0.0) / 2 + SHARE, 0.0),
        wide=np.where(unstable, np.maximum(q - slope, 1 - q) + SHARE, 0.0), top=np.where(unstable | active, 1.0, slope),
    )


def _positive(start: Array, end: Array) -> Array:
    """Return the share of [0, 1] on which the line from `start` to `end` is positive, 0 where it is unknown."""
    high = np.maximum(start, end)
    crossing = np.divide(high, np.abs(start) + np.abs(end), out=np.zeros_like(high), where=(high > 0) & np.isfinite(high))
    return np.where(np.minimum(start, end) > 0, 1.0, np.where(high > 0, crossing, 0.0))


def _backward(network: Network, margin: Array, masks: list[_Mask], count: int, slices: int) -> tuple[Array, Array, Integers]:
    """Return mean gradients (B, n_0), columns (L, n_0) by which they can differ, and the box (L,) of each column."""
    p = np.tile(margin @ network.layers[-1].weight, (count, 1))
    w = np.zeros_like(p)
    columns, owners = [np.empty((0, network.inputs))], [np.empty(0, dtype=np.int64)]
    for k in range(len(masks) - 1, -1, -1):
        mask, weight = masks[k], network.layers[k].weight
        size = (mask.half * np.abs(p) + mask.wide * w) / slices
        slice_, neuron = np.nonzero(size)
        row = weight[neuron] * size[slice_, neuron][:, None]
        if k:
            for below in range(k - 1, -1, -1):
                row = (row * masks[below].q[slice_]) @ network.layers[below].weight
            columns.append(row)
            owners.append(slice_ // slices)
        else:
            per_box = size.reshape(-1, slices, size.shape[1]).sum(axis=1)
            box, neuron = np.nonzero(per_box)
            columns.append(weight[neuron] * per_box[box, neuron][:, None])
            owners.append(box)
        w = (mask.top * w + mask.wide * np.abs(p)) @ np.abs(weight)
        p = (mask.q * p) @ weight
    gradient = p.reshape(-1, slices, p.shape[1]).mean(axis=1)
    return gradient, np.concatenate(columns), np.concatenate(owners)


def _explanation(gradient: Array, columns: Array, error: Array, d: Array, reach: Array, decision: int | None) -> ExplanationBounds:
    sums = 1 + 2.0**-51 * len(columns)  # covers the rounding of sums over columns
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


def _statement(cert: ConsistencyCertificate, schema: InputSpace, network: Model) -> str:
    """Return the file's statement in words."""
    query = cert.query
    units = f"{exactly(query.delta)} unit" + "s" * (query.delta != 1)
    place = f"wherever both move within {units}" if query.delta else "as they are"
    return (
        f"It states: {len(cert):,} of {cert.extent.total:,} pairs of people asked about, {place}, are decided alike, with scores "
        f"of their explanations (exact integrated gradients from the file's baselines) below {exactly(query.threshold)}; nothing "
        "about other rows."
    )


KIND = Kind(
    format=ConsistencyCertificate.FORMAT, counts="pairs", load=ConsistencyCertificate.load, check=check_consistency,
    statement=_statement, file=FILE, title="Files of proofs of consistent explanations",
)
