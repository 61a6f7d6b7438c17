"""The independent re-checker of certified shares: is at least the stated share of the box fair, and at least the other unfair?

The tree must cover the box of points without the protected features, and no split may be along one of those. Every leaf is bounded
once for every copy, by the planes of `kernel.planes`, or by the extremes of an ensemble's trees (`kernel.trees`); a single input is
decided by exact arithmetic. The fair and unfair points that these bounds prove are counted as `verifair.checker.shares` defines,
added up, and compared with the stated shares. Nothing is cut or chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from encoders.arrays import Array
from encoders.domain import Regions
from encoders.model import Model
from verifair.checker.certificates.share import FILE, ShareCertificate
from verifair.checker.certificates.statement import signs_flaw
from verifair.checker.certificates.tree import leaf_regions
from verifair.checker.kernel.planes import copy_planes
from verifair.checker.kernel.trees.choice import tree_bounds
from verifair.checker.kind import Kind
from verifair.checker.report import NOTHING_DECIDED, Batches, CheckReport, Rejection
from verifair.checker.shares import ShareQuestion
from verifair.checker.words import decided, where
from verifair.schema.space import InputSpace

COPIES = 4096
"""Copies bounded at once."""
MAX_COMBINATIONS = 1000


def check_share(cert: ShareCertificate, *, network: Model, schema: InputSpace, batches: Batches) -> CheckReport:
    """Check a certificate of a share."""
    network = schema.judges(network)
    if network.ensemble is None:
        network.require_piecewise_linear("check of a certified share")
    started, count = time.perf_counter(), 0
    claim = next(cert.misfits(network, schema, None), None) or signs_flaw(cert.query.signs, network) or _claim_of(cert, schema)
    if isinstance(claim, str):
        reason: str | None = claim
    else:
        count = len(claim[1])
        try:
            reason = _confirm(cert, *claim, network, batches)
        except OverflowError:
            reason = "its numbers are beyond the reach of exact arithmetic"
    rejections = [] if reason is None else [Rejection(proof=None, reason=reason)]
    return CheckReport.of(rejections, proofs=1, leaves=count, started=started, extent=cert.extent, unit="brackets")


def _claim_of(cert: ShareCertificate, schema: InputSpace) -> tuple[ShareQuestion, Regions] | str:
    """Return the question of a certificate and the leaves of its tree, or why it is invalid."""
    query, domain, tree = cert.query, schema.domain, cert.tree
    names = [feature.name for feature in schema.features]
    if set(query.box) != set(names) or not set(query.protected) <= set(names) or len(set(query.protected)) < len(query.protected):
        return "the query must name every feature of the schema in its box, and each protected one once"
    lower, upper = np.array([query.box[name] for name in names], dtype=np.float64).T
    if not (domain.within(np.stack([lower, upper])).all() and (lower <= upper).all()):
        return "the query's box is empty or leaves the declared domain"
    index = [names.index(name) for name in query.protected]
    if not domain.integer[index].all() or np.prod(upper[index] - lower[index] + 1) > MAX_COMBINATIONS:
        return f"the protected features are real-valued, or have more than {MAX_COMBINATIONS} combinations"
    question = ShareQuestion.of(domain, lower, upper, index, differ=query.differ, strict=query.signs == "strict")
    if not question.compared.any():
        return "the query's box leaves its protected features no two values: it claims nothing"
    if np.isin(tree.feature, question.index).any():
        return "the tree splits a protected feature"
    decoded = leaf_regions(tree.feature, tree.cut, Regions.whole(question.lower, question.upper), question.domain)
    return decoded if isinstance(decoded, str) else (question, decoded[1])


def _confirm(cert: ShareCertificate, question: ShareQuestion, leaves: Regions, network: Model, batches: Batches) -> str | None:
    """Return why the stated shares are more than the leaves show, or None."""
    fair, unfair, total = Fraction(0), Fraction(0), Fraction(0)
    step = max(1, COPIES // len(question.values))
    parts = (slice(start, start + step) for start in range(0, len(leaves), step))
    boxes = ((leaves.lower[part], leaves.upper[part]) for part in parts)
    for counts in batches(partial(_counted, network, question, _bounds_of(network, question)), boxes, len(leaves)):
        fair, unfair, total = fair + counts.fair.sum(), unfair + counts.unfair.sum(), total + counts.volume.sum()
    if not total:
        return "the schema forbids all that the query compares: it claims nothing"
    for name, stated, shown in (("fair", cert.fair, fair / total), ("unfair", cert.unfair, unfair / total)):
        if stated > shown:
            return f"it states that {float(stated):.9%} are {name}, but its leaves show {float(shown):.9%}"
    if cert.fair + cert.unfair > 1:
        return "it states more than the whole: fair and unfair points are different ones"
    return None if cert.fair + cert.unfair else NOTHING_DECIDED


def _counted(network: Model, question: ShareQuestion, bounds: Callable[..., Any], lower: Array, upper: Array) -> tuple[int, Any]:
    """Return the number of these leaves, and the points counted in them."""
    return len(lower), question.counted(network, lower, upper, *bounds(lower, upper))


def _bounds_of(network: Model, question: ShareQuestion) -> Callable[[Array, Array], tuple[tuple[Array, Array], ...]]:
    """Return the function from cells to planes under and over all their copies: slopes (B K, n_0) and values (B K,)."""
    margin = np.array([1.0]) if network.outputs == 1 else np.array([-1.0, 1.0])
    trees = tree_bounds(network, question.domain)
    if trees is None:
        layered = network.require_piecewise_linear("check of a certified share")
        return lambda lower, upper: copy_planes(layered, margin, question.domain, *question.boxes(lower, upper))

    def extremes(lower: Array, upper: Array) -> tuple[tuple[Array, Array], ...]:
        low, high = question.boxes(question.lower_ends(lower, upper), upper)
        zero, count, p = np.zeros_like(low), len(low), np.repeat([margin, -margin], len(low), axis=0)
        no_columns, index = np.zeros(low.shape[1], dtype=bool), np.tile(np.arange(count), 2)
        bounds = trees.least((low, high), (low, high), no_columns, index, p, np.zeros_like(p))
        return (zero, bounds[:count]), (zero, -bounds[count:])

    return extremes


def _statement(cert: ShareCertificate, schema: InputSpace, network: Model) -> str:
    """Return the file's statement in words."""
    query = cert.query
    names = " and ".join(query.protected)
    changes = f"{names} changes" if len(query.protected) == 1 else f"{query.differ} of {names} change"
    rest, tolerance = 1 - cert.fair - cert.unfair, "" if cert.extent.whole else f" (the tolerance is {query.tolerance})"
    rule = decided(query.signs, network, schema)
    points = "points" if schema.domain.forbidden is None else "points of which the schema allows rows to compare"
    return (
        f"It states: when {changes}, no decision flips for at least {float(cert.fair):.6%} of all {points}, some decision flips "
        f"for at least {float(cert.unfair):.6%}, and nothing is stated of {float(rest):.6%}{tolerance}{rule}; "
        f"{where(query.box, schema)}."
    )


KIND = Kind(
    format=ShareCertificate.FORMAT, counts="leaves", load=ShareCertificate.load, check=check_share, statement=_statement, file=FILE,
    title="Files of certified shares",
)
