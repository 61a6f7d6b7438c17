"""The checker of neuron branching: does a `PhaseTree` prove its claim? (What a claim says, and the bounds: `check_phase_bounds`.)

The tree has to cover the claim's box: every cut lies within the box it cuts, both signs of a neuron have a subtree. A leaf is
proved by the bound of its multipliers; or because no row in its box is legal; or, where its box is one single network input,
by exact arithmetic. The search asks this very kernel before it calls a leaf proved; the checker shares nothing else with it but
the network's forward pass and the domain.

Sound? Yes: multipliers only ever choose among valid bounds, so a damaged tree is rejected or still a proof.
Complete? Of trees that the search emits, yes: it leaves room for a different order of summation.
"""

from __future__ import annotations

import numpy as np

from encoders.exact.dyadic import Dyadic, exact
from encoders.network import Array, Layer, Network, affine
from encoders.probability import exceeds
from encoders.problem import Booleans, Domain, Integers
from verifair.checker.kernel.phase_bounds import LeafBounds, PhaseBounds, PhaseClaim, Regions
from verifair.checker.phase_tree import PhaseTree

CHUNK = 64
"""Leaves re-proved at once."""


def check_phases(network: Network, domain: Domain, claim: PhaseClaim, tree: PhaseTree) -> str | None:
    """Why the tree does not prove the claim, or None when it does."""
    flaw = claim.flaw(network, domain) or _misfit(tree)
    if flaw is not None:
        return flaw
    walked = _leaves(tree, Regions.whole(claim, network), domain)
    if isinstance(walked, str):
        return walked
    nodes, regions = walked
    multipliers = _multipliers(tree, nodes, regions.active.shape[1], len(claim.rows))
    if isinstance(multipliers, str):
        return multipliers
    slopes, weights, own = multipliers
    with np.errstate(all="ignore"):  # whatever overflows or is NaN proves nothing
        for start in range(0, len(nodes), CHUNK):
            part = slice(start, start + CHUNK)
            proved = proved_leaves(network, domain, claim, regions.take(part), weights[part], slopes[part], own[part])
            for k in np.flatnonzero(~proved)[:1] + start:
                box = f"{regions.lower[k].tolist()} .. {regions.upper[k].tolist()}"
                signs = int(regions.active[k].sum() + regions.inactive[k].sum())
                return f"node {nodes[k]}, {box} with {signs} signs fixed: its multipliers prove nothing"
    return None


def proved_leaves(
    network: Network, domain: Domain, claim: PhaseClaim, regions: Regions, weights: Array, slopes: Array, own: Array
) -> Booleans:
    """(B,) which regions the multipliers (or the region itself) prove."""
    proved = vacuous(domain, claim, regions)
    left = np.flatnonzero(~proved)
    if len(left):
        bounds = PhaseBounds(network, domain, claim, regions.take(left))
        for k in np.flatnonzero(bounds.point):
            proved[left[k]] = holds_at(network, domain, claim, regions.lower[left[k]])
        found: LeafBounds = bounds.lagrange(weights[left], slopes[left], own[left])
        proved[left] |= found.proved & ~bounds.point
    return proved


def vacuous(domain: Domain, claim: PhaseClaim, regions: Regions) -> Booleans:
    """(B,) regions whose box holds no legal row, or no legal partner: forbidden, or shifted out of the declared range."""
    low, high = claim.second(regions.lower), claim.second(regions.upper)
    outside = (~claim.differs & ((low > domain.upper) | (high < domain.lower))).any(axis=1)
    return np.asarray(domain.impossible(regions.lower, regions.upper) | domain.impossible(low, high) | outside)


def holds_at(network: Network, domain: Domain, claim: PhaseClaim, raw: Array) -> bool:
    """Whether the claim holds at one raw point (V,), exactly. False also where exact arithmetic does not reach."""
    try:
        pair = np.concatenate([domain.encode(raw[None]), domain.encode(claim.second(raw[None]))])
        margin = Layer(weight=claim.margin[None], bias=np.zeros(1), slope=np.ones(1))
        margins = affine(network.forward(exact(pair)), margin)
        both = Dyadic(limbs=margins.limbs.reshape(len(margins.limbs), 1, 2), exponent=margins.exponent)
        rows = Layer(weight=claim.rows, bias=claim.constants, slope=np.ones(len(claim.rows)))
        if (affine(both, rows).sign >= 0).any():
            return True
        if claim.gap is None:
            return False
        first, second = margins.to_fractions().ravel()
        larger, smaller = (second, first) if claim.gap.rise else (first, second)
        return not exceeds(larger, smaller, claim.gap.epsilon)
    except (OverflowError, ValueError):  # absurd sizes, or a raw value that is no float32 input
        return False


def _misfit(tree: PhaseTree) -> str | None:
    """Why the arrays are no tree with multipliers."""
    k = len(tree.feature)
    if not (k and len(tree.cut) == k and len(tree.start) == k + 1 and len(tree.index) == len(tree.value)):
        return f"the tree's arrays do not fit together: {k} nodes, {len(tree.cut)} cuts, {len(tree.start)} starts"
    if tree.start[0] != 0 or tree.start[-1] != len(tree.index) or (np.diff(tree.start) < 0).any():
        return "the tree's multipliers are not in order"
    return None


def _leaves(tree: PhaseTree, root: Regions, domain: Domain) -> tuple[Integers, Regions] | str:
    """Node numbers (L,) and regions (L) of the leaves, or why the tree does not cover the root."""
    pending = [(root.lower[0], root.upper[0], root.active[0], root.inactive[0])]
    nodes, found = [], []
    for node, (v, cut) in enumerate(zip(tree.feature.tolist(), tree.cut.tolist(), strict=True)):
        if not pending:
            return "the tree has nodes left over after its last leaf"
        lower, upper, active, inactive = pending.pop()
        if v == -1:
            nodes.append(node)
            found.append((lower, upper, active, inactive))
        elif v < -1:
            if -2 - v >= len(active):
                return f"the tree splits neuron {-2 - v}, which does not exist"
            on, off = active.copy(), inactive.copy()
            on[-2 - v] = off[-2 - v] = True
            pending += [(lower, upper, on, inactive), (lower, upper, active, off)]
        else:
            if v >= len(lower):
                return f"the tree splits feature {v}, which does not exist"
            last = upper[v] - 1 if domain.integer[v] else upper[v]
            if not lower[v] <= cut <= last or (domain.integer[v] and cut != np.floor(cut)):
                return f"the tree cuts feature {v} at {cut:g}, outside the box {lower[v]:g} .. {upper[v]:g}"
            left, right = upper.copy(), lower.copy()
            left[v], right[v] = cut, cut + 1 if domain.integer[v] else cut
            pending += [(right, upper, active, inactive), (lower, left, active, inactive)]
    if pending:
        return f"the tree ends before its box is covered: {len(pending)} leaves are missing"
    lower, upper, active, inactive = (np.array(part) for part in zip(*found, strict=True))
    return np.array(nodes, dtype=np.int64), Regions(lower=lower, upper=upper, active=active, inactive=inactive)


def _multipliers(tree: PhaseTree, nodes: Integers, neurons: int, rows: int) -> tuple[Array, Array, Array] | str:
    """Slopes (L, 2 H), NaN where left out, weights (L, R), and slopes of own lines (L,), NaN for none; or what is wrong."""
    table = np.full((len(nodes), neurons + rows + 1), np.nan)
    table[:, neurons:-1] = 0.0
    if not np.isfinite(tree.value).all():
        return "a multiplier is not a finite number"
    if len(tree.index) and not (tree.index.min() >= 0 and tree.index.max() <= neurons + rows):
        return f"a multiplier belongs to none of the {neurons} neurons and {rows} rows, and is no line's slope"
    for k, node in enumerate(nodes.tolist()):
        part = slice(int(tree.start[node]), int(tree.start[node + 1]))
        table[k, tree.index[part]] = tree.value[part]
    if (table[:, neurons:] < 0).any():
        return "a row has a negative weight"
    return table[:, :neurons], table[:, neurons:-1], table[:, -1]
