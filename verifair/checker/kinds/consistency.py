"""The independent re-checker of consistency certificates: are these pairs decided alike, for like reasons, wherever they move?

For every pair, all raw rows x within delta units of `row` and x~ within delta units of `counterpart` (each numeric feature that
has a unit and is neither protected nor change = "fixed" moves, clipped to its range, whole numbers where the feature has them; a
real feature around every value that becomes the same float32 input as the row's), in network inputs, with f = f_1 - f_0 or the
single logit of the real-valued network, and b the pair's baseline:

    f(x) > 0 and f(x~) > 0, or f(x) <= 0 and f(x~) <= 0;      1/2 | g / (|g| + epsilon) - g~ / (|g~| + epsilon) | < threshold
    with  g_j = (x_j - b_j) int_0^1 df/dx_j (b + alpha (x - b)) dalpha,  g~ the same of x~, and epsilon = 1e-8.

Imports neither what found the bounds, nor any of the engine's; shared with it are the network, the domain and the schema. Boxes are
bounded by `check_explanations`, cut where that does not suffice, and points get more slices of their paths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from encoders.network import Array, Network
from encoders.problem import Domain
from verifair.checker.certificate import semantics
from verifair.checker.check import CheckReport, about_another
from verifair.checker.consistency_certificate import ConsistencyCertificate
from verifair.checker.kernel.boxes import Rejection
from verifair.checker.kinds.explanations import Explanation, explanations, surely_near
from verifair.schema.schema import Schema

Progress = Callable[[int, int], None]
Integers = npt.NDArray[np.int64]

EPSILON = 1e-8
"""In the norms of the score, as in CEC's definition 3."""
CHUNK = 64
"""Pairs of boxes bounded at once."""
SLICES, FINE_SLICES, MOST_SLICES = 16, 256, 4096
"""Of the paths at first; twice as many with every third cut; and of points, four times as many each time."""
PATIENCE = 8
"""A pair may take so many times the boxes that it is said to have taken, ..."""
LEAST_BOXES, MOST_BOXES = 256, 1 << 16
"""... or this many, where that is more; but never more than so many: what a file says must not keep anybody busy for years."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work:
    """Q pairs of raw boxes still to be confirmed: pair (Q,), ends (Q, 2, V) for person and counterpart, slices and cuts (Q,)."""

    pair: Integers
    lower: Array
    upper: Array
    slices: Integers
    cuts: Integers

    def take(self, index: slice | Integers) -> _Work:
        return _Work(**{name: getattr(self, name)[index] for name in _Work.__dataclass_fields__})

    @staticmethod
    def join(parts: list[_Work]) -> _Work:
        return _Work(**{name: np.concatenate([getattr(one, name) for one in parts]) for name in _Work.__dataclass_fields__})


def check_consistency(
    certificate: ConsistencyCertificate | str | Path, *, network: Network, schema: Schema, progress: Progress | None = None
) -> CheckReport:
    """Re-prove a certificate. CertificateError when a file is no certificate at all; what is wrong with one is reported.

    progress is called with the number of pairs done and of all pairs.
    """
    network.require_piecewise_linear("check of a consistency certificate")
    started = time.perf_counter()
    given = certificate if isinstance(certificate, ConsistencyCertificate) else ConsistencyCertificate.load(certificate)
    found = [Rejection(proof=None, reason=reason) for reason in _misfits(given, network, schema)]
    boxes = 0
    if not found:
        outside = np.flatnonzero(~(schema.domain.within(given.rows) & schema.domain.within(given.counterparts)))
        found = [Rejection(proof=int(k), reason="a row lies outside the declared domain") for k in outside]
        for start in range(0, len(given), CHUNK):
            pairs = np.setdiff1d(np.arange(start, min(start + CHUNK, len(given))), outside)
            reasons, used = _confirm(given, network, schema, pairs)
            found += [Rejection(proof=pair, reason=reason) for pair, reason in reasons.items()]
            boxes += used
            if progress is not None:
                progress(min(start + CHUNK, len(given)), len(given))
    return CheckReport(
        proofs=len(given), leaves=boxes, claimed=0,
        rejections=tuple(sorted(found, key=lambda one: -1 if one.proof is None else one.proof)),
        seconds=time.perf_counter() - started,
    )  # fmt: skip


def _misfits(given: ConsistencyCertificate, network: Network, schema: Schema) -> Iterator[str]:
    """Reasons for which the pairs need not be looked at."""
    if not given.intact:
        yield "the digest does not fit the content: the file was changed after it was written"
    if not len(given):
        yield "it holds no pairs"
    if given.network_sha256 != network.source_sha256:
        yield about_another("network", given.network_sha256, network.source_sha256)
    if given.schema_sha256 != schema.sha256:
        yield about_another("schema", given.schema_sha256, schema.sha256)
    if given.features != tuple(feature.name for feature in schema.features):
        yield "its features are not those of the schema, in order"
    if given.semantics != semantics(network):
        yield f"its semantics are {given.semantics!r}, expected {semantics(network)!r}"
    if given.query.epsilon != EPSILON:
        yield f"its score has epsilon = {given.query.epsilon:g} in the norms, expected {EPSILON:g}"
    if network.outputs > 2:
        yield f"the network has {network.outputs} classes: such certificates are about two"
    if schema.domain.columns != network.inputs:
        yield f"the schema describes {schema.domain.columns} input columns, the network takes {network.inputs}"
    elif len(given) and given.baselines.shape[1] != network.inputs:
        yield f"its baselines have {given.baselines.shape[1]} columns, the network takes {network.inputs}"


def _near(schema: Schema, rows: Array, delta: float) -> tuple[Array, Array]:
    """Raw boxes (P, V), (P, V) of all that is within delta units of rows (P, V), or of others with the same network inputs."""
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


def _confirm(
    given: ConsistencyCertificate, network: Network, schema: Schema, pairs: Integers
) -> tuple[dict[int, str], int]:
    """Why some of these pairs are not accepted, and how many boxes were bounded."""
    near = [_near(schema, rows[pairs], given.query.delta) for rows in (given.rows, given.counterparts)]
    lower, upper = (np.stack([box[end] for box in near], axis=1) for end in (0, 1))
    slices, cuts = np.full(len(pairs), SLICES), np.zeros(len(pairs), dtype=np.int64)
    work = _Work(pair=pairs, lower=lower, upper=upper, slices=slices, cuts=cuts)
    left = dict(zip(pairs.tolist(), np.clip(PATIENCE * given.boxes[pairs], LEAST_BOXES, MOST_BOXES).tolist(), strict=True))
    reasons: dict[int, str] = {}
    used = 0
    while len(work.pair):
        most = int(work.slices.max())  # depth first, those of a kind together
        now = np.flatnonzero(work.slices == most)[-max(1, CHUNK * SLICES // most) :]
        part, work = work.take(now), work.take(np.setdiff1d(np.arange(len(work.pair)), now))
        used += 2 * len(part.pair)
        more = _step(given, network, schema.domain, part, left, reasons)
        work = _Work.join([work, *more])
        work = work.take(np.flatnonzero(~np.isin(work.pair, list(reasons))))
    return reasons, used


def _step(
    given: ConsistencyCertificate, network: Network, domain: Domain, work: _Work, left: dict[int, float], reasons: dict[int, str]
) -> list[_Work]:
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


def _cut(network: Network, domain: Domain, work: _Work, one: Explanation, two: Explanation) -> _Work | None:
    """One pair of boxes with the one that strays more (or is undecided) halved; points get four times the slices, or None."""
    strays = [explanation.strays + 1e9 * (explanation.decision is None) for explanation in (one, two)]
    reach = np.abs(network.layers[0].weight).sum(axis=0)
    for side in np.argsort([-v for v in strays]):
        lower, upper = work.lower[0, side], work.upper[0, side]
        low, high = domain.box(lower[None], upper[None])
        effect = np.where(domain.one_hot, 0.0, ((high - low)[0] * reach)[domain.start])
        middle = lower + (upper - lower) / 2
        middle = np.where(domain.integer, np.floor(middle), middle)
        effect[~((middle < upper) & (domain.integer | (middle > lower)))] = 0.0
        v = int(effect.argmax())
        if effect[v] > 0:
            halves = work.take(np.zeros(2, dtype=np.int64))
            halves.upper[0, side, v] = middle[v]
            halves.lower[1, side, v] = middle[v] + domain.integer[v]
            cuts = halves.cuts + 1
            return replace(halves, cuts=cuts, slices=np.maximum(halves.slices, np.minimum(SLICES << cuts // 3, FINE_SLICES)))
    if work.slices[0] >= MOST_SLICES:
        return None
    return replace(work, slices=4 * work.slices)
