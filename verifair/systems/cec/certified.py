"""Certified CEC: proofs that pairs stay in regime A when both people move in their neighbourhoods.

A pair in regime A (same decision, same reasons) is *certified A* within delta when, for ALL x' within delta units of the person and
ALL x~' within delta units of the counterpart (PBA's neighbourhood; the two move independently, so that a shared displacement is a
special case), the decisions are equal and the CEC score of the exact path integrals of the real-valued network is below the
threshold. Otherwise it is *unknown*, with a reason.

Method: bounds of both explanations over their boxes (`gradient` and `attribution` in `encoders.bounds.explanations`); the checker's
rule, which is other code, has to prove the same. Where either is too loose, the box with the wider bounds of its explanation is
halved, then points get more slices of their paths; the cuts and slices are the proof.
Sound? yes, outward-rounded by two codes, and re-proved by `verifair.checker.kinds.consistency`.  Complete? no.
Reference: none; attributions from CEC (definition 3), neighbourhoods from PBA (equations 4 and 5), bounds are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import delayed
from threadpoolctl import threadpool_limits

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.explanations.attribution import Attributions, attributions, score_bound
from encoders.bounds.explanations.gradient import gradient_zonotopes
from encoders.domain import Domain
from encoders.network import Network
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.consistency import ConsistencyCertificate, ConsistencyQuery
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.tree import Tree
from verifair.checker.kinds.consistency import SLICES, ExplanationBounds, explanation_bounds, leaf_flaw
from verifair.checker.report import Progress
from verifair.engine.parallel import Deadline, Shared, Task, as_done
from verifair.engine.questions import decisions, neighbourhood
from verifair.engine.search.subdivision import SHARE, Objects, Open, subdivide
from verifair.engine.search.trees import NeuronTree
from verifair.errors import DataError, QueryError
from verifair.models.read import read_network
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import ComparedPairs
from verifair.systems.cec.explanations import EPSILON, cec_score, explanations, positive_margin
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People

AT_ONCE = 1024
"""Slices of paths bounded at once: their forms in a layer of 500, of 8 inputs that move, take 40 MiB."""
PAIRS_AT_ONCE = 32
"""Under way at once."""
SECONDS_A_SLICE = 5e-9
"""Upper estimate for bounding a person's path, per slice and weight of the network: a pair starts only if this time is left."""
FINE_SLICES, MAX_SLICES = 64, 1024
"""Paths are cut into `SLICES` at first; where boxes are cut, twice as many with every third cut; and of points, four times as many
each time."""
ROUNDING_FACTOR = 4.0
"""So many times the checker's rounding errors fit into what is written: it must hold in any order of summation, on any machine."""
NODES = 320
"""Boxes that one pair may be cut into, unless the budget says otherwise: some more than the bounds here need on their own."""
SAMPLES = 12
"""Corners of each neighbourhood at which regime A is tried before boxes are cut."""

CERTIFIED, UNKNOWN = "certified", "unknown"
ELSEWHERE, LEAVES, DECISION, SCORE, TIME = "not in regime A", "leaves A", "decision", "score", "time"


@dataclass(frozen=True, kw_only=True, eq=False)
class CertifiedConsistency:
    """The result of the M matched pairs, in the order of the audit.

    status: (M,) "certified" or "unknown".   reason: (M,) "" where certified; "not in regime A": nothing to certify; "leaves A":
    points of the neighbourhoods were found in another regime; "decision", "score": the quantity that could not be bounded; "time".
    bound: (M,) certified upper bound of the score, NaN where there is none.   score: (M,) as measured.
    boxes: (M,) number of boxes bounded.   certificate: the proof, about the certified pairs alone.
    """

    delta: float
    threshold: float
    status: npt.NDArray[np.str_]
    reason: npt.NDArray[np.str_]
    bound: Array
    score: Array
    boxes: Integers
    seconds: float
    certificate: ConsistencyCertificate = field(repr=False)

    @property
    def certified(self) -> Booleans:
        return np.asarray(self.status == CERTIFIED)

    @property
    def candidates(self) -> int:
        """Number of pairs in regime A."""
        return int((self.reason != ELSEWHERE).sum())

    @property
    def share(self) -> float:
        """Share of the pairs in regime A that are certified; NaN if there are none."""
        return float(self.certified.sum() / self.candidates) if self.candidates else float("nan")

    @property
    def reasons(self) -> dict[str, int]:
        """Number of unknown pairs for each reason."""
        return dict(Counter(self.reason[~self.certified].tolist()))


@dataclass(eq=False)
class _Pair:
    """A pair in progress: by node of the tree, the open parts of both neighbourhoods, and the parts that are proved by the bounds
    here but not yet by the checker's rule; and the worst score bound so far."""

    open: dict[int, tuple[SubBox, SubBox]]
    near: dict[int, tuple[float, SubBox, SubBox]] = field(default_factory=dict)
    tree: NeuronTree = field(default_factory=lambda: NeuronTree(0))
    bound: float = 0.0
    boxes: int = 2
    reason: str | None = None

    @property
    def proved(self) -> bool:
        return self.reason is None and not self.open

    @property
    def under_way(self) -> bool:
        return self.reason is None and bool(self.open)

    def close(self, node: int, bound: float, *slices: int) -> None:
        """Record that a node is proved with this bound of the score.   slices: of the paths to its two parts."""
        index = np.flatnonzero(np.array(slices) != SLICES)
        self.tree.multipliers[node] = index, np.array(slices, dtype=float)[index]
        self.bound = max(self.bound, bound)


def certify_consistency(
    model: Any, schema: Schema, audit: ComparedPairs, reference: Reference, people: People, delta: float, *,
    budget: Budget | None = None, jobs: int = 1, progress: Progress | None = None,
) -> CertifiedConsistency:
    """Prove that pairs of an audit stay in regime A (same decision, same reasons) when both people move by at most delta units.

    model: a network, or anything that `verifair.read` takes for one.
    audit, reference, people: the audit, its reference, and the people audited.   delta: units of the schema, 0 for the pair itself.
    budget: seconds for the whole run (default: no limit), boxes for each pair (nodes; default: 320).
    jobs: number of processes; within `vf.cluster` its workers.   progress: called with (pairs done, pairs in regime A).
    Raises QueryError for a delta below 0 or people not audited, SchemaError where delta is positive and no
    feature has a unit, DataError for people who are no rows of the schema.
    Sound? yes.  Complete? no.   Reference: CEC's score and regime A; the proof is ours (docs/concepts/cec-certified.md).
    """
    if not 0 <= delta < np.inf:
        raise QueryError(f"delta = {delta}: expected a number of units from 0 (the pair as it is), such as 1")
    if not all(np.array_equal(getattr(people, name), getattr(audit.people, name)) for name in ("values", "labels", "groups")):
        raise QueryError("people: found others than those of the audit, whose pairs are to be certified; pass the people audited")
    found, schema = schema.settled(read_network(model, "certified explanation consistency"))
    network = schema.judges(found).layered("certified explanation consistency")
    network.require_piecewise_linear("certified explanation consistency")
    started = clock.now()
    deadline = Deadline.after(np.inf if budget is None else budget.seconds)
    max_boxes = NODES if budget is None or budget.nodes is None else budget.nodes
    candidates = np.flatnonzero(audit.regime == "A")
    baseline = reference.baseline(people)
    raw, other = raw_rows(schema, people.x), raw_rows(schema, reference.people.x)
    status, reason = np.full(len(audit.score), UNKNOWN, dtype="<U15"), np.full(len(audit.score), ELSEWHERE, dtype="<U15")
    bound, count = np.full(len(audit.score), np.nan), np.zeros(len(audit.score), dtype=np.int64)
    trees: dict[int, Tree] = {}
    reason[candidates] = TIME
    seconds_needed, done = SECONDS_A_SLICE * 2 * SLICES * network.work, 0
    common = Shared(value=_Common(network=network, schema=schema, threshold=audit.threshold, max_boxes=max_boxes))

    def batches() -> Iterator[Task]:
        start = 0
        while start < len(candidates) and deadline.left() > seconds_needed:
            part = candidates[start : start + max(1, int(min(PAIRS_AT_ONCE, SHARE * deadline.left() / seconds_needed)))]
            start += len(part)
            regions = boxes(schema, raw[audit.individual[part]], delta), boxes(schema, other[audit.counterpart[part]], delta)
            yield delayed(_decide_batch)(common, part, baseline[audit.individual[part]], regions, deadline)

    for part, settled in as_done(batches(), jobs):
        for k, pair in zip(part.tolist(), settled, strict=True):
            if pair.tree is not None:
                trees[k] = pair.tree
            status[k], reason[k] = (UNKNOWN, pair.reason) if pair.tree is None else (CERTIFIED, "")
            bound[k], count[k] = pair.bound, pair.boxes
        done += len(part)
        if progress is not None:
            progress(done, len(candidates))
    pairs = raw[audit.individual], other[audit.counterpart], baseline[audit.individual]
    return CertifiedConsistency(
        delta=delta, threshold=audit.threshold, status=status, reason=reason, bound=bound, score=audit.score, boxes=count,
        seconds=clock.now() - started, certificate=_certificate(common.value, delta, pairs, candidates, count > 0, trees),
    )


def _certificate(
    common: _Common, delta: float, pairs: tuple[Array, Array, Array], candidates: Integers, tried: Booleans, trees: dict[int, Tree]
) -> ConsistencyCertificate:
    """Return the certificate of the pairs that have a tree; pairs of people with the same values share one statement.

    pairs: (M, V) rows and counterparts, (M, n_0) baselines.   candidates: pairs in regime A.   tried: (M,) with bounded boxes.
    """
    identity = np.unique(np.column_stack(pairs)[candidates], axis=0, return_inverse=True)[1].reshape(-1)
    certified = np.isin(candidates, list(trees))
    proved_identity, first = np.unique(identity[certified], return_index=True)
    unproved = np.setdiff1d(identity, proved_identity)
    not_reached = np.setdiff1d(unproved, identity[tried[candidates]])
    proved = np.sort(candidates[certified][first])
    rows, counterparts, baselines = (side[proved] for side in pairs)
    distinct, baseline_index = np.unique(baselines, axis=0, return_inverse=True)
    query = ConsistencyQuery(
        kind="explanation-consistency", delta=float(delta), threshold=float(common.threshold), epsilon=EPSILON
    )
    return ConsistencyCertificate(
        network_sha256=common.network.source_sha256, schema_sha256=common.schema.sha256, semantics=semantics(common.network),
        query=query, features=tuple(feature.name for feature in common.schema.features), baselines=distinct, rows=rows,
        counterparts=counterparts, baseline=baseline_index.reshape(-1), trees=tuple(trees[k] for k in proved.tolist()),
        undecided=len(unproved) - len(not_reached), not_reached=len(not_reached),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Common:
    """Arguments that all batches of pairs share."""

    network: Network
    schema: Schema
    threshold: float
    max_boxes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _PairResult:
    """The result for one pair.   tree: its proof, None without one.   reason: why there is none.   bound: of the score, NaN without
    proof."""

    tree: Tree | None
    reason: str
    bound: float
    boxes: int


def _decide_batch(
    common: Shared[_Common], part: Integers, baseline: Array, regions: tuple[tuple[Array, Array], tuple[Array, Array]],
    deadline: Deadline,
) -> tuple[Integers, list[_PairResult]]:
    """Decide the pairs with these numbers; runs in any process."""
    run = common.value
    with threadpool_limits(limits=1):
        pairs = _decided(run.network, run.schema, baseline, regions, run.threshold, run.max_boxes, clock.now() + deadline.left())
    return part, [
        _PairResult(tree=pair.tree.tree(), reason="", bound=pair.bound, boxes=pair.boxes)
        if pair.proved
        else _PairResult(tree=None, reason=pair.reason or TIME, bound=np.nan, boxes=pair.boxes)
        for pair in pairs
    ]


def _decided(
    network: Network, schema: Schema, baseline: Array, regions: tuple[tuple[Array, Array], tuple[Array, Array]], threshold: float,
    max_boxes: int, deadline: float,
) -> list[_Pair]:
    """Return the pairs with baselines (Q, n_0) and the raw boxes of both people, each proved or with a reason."""
    no_cuts = np.zeros(len(baseline), dtype=np.int64)
    first, second = (bounded(network, schema.domain, baseline, *box, SLICES, no_cuts) for box in regions)
    pairs = [_Pair(open={0: parts}) for parts in zip(first, second, strict=True)]
    _close(network, schema.domain, pairs, threshold)
    for k, pair in enumerate(pairs):
        if pair.under_way and _leaves(network, schema, *pair.open[0], threshold, seed=k):
            pair.reason = LEAVES
    queue = Open[Objects](PAIRS_AT_ONCE)

    def step(batch: Objects) -> None:
        _refine(network, schema, batch.items.tolist(), threshold, max_boxes)
        queue.add(Objects.of([pair for pair in batch.items if pair.under_way]))

    queue.add(Objects.of([pair for pair in pairs if pair.under_way]))
    subdivide(queue, step, ended=lambda: clock.now() > deadline, deadline=deadline)
    return pairs


def _close(network: Network, domain: Domain, pairs: list[_Pair], threshold: float) -> None:
    """Close the open parts that are proved by the bounds here; once a pair has no others, also prove its parts by the checker's
    rule.

    A pair whose two parts are decided differently leaves regime A.
    """
    for pair in pairs:
        for node, (a, b) in list(pair.open.items()):
            if None in (a.decision, b.decision):
                continue
            if a.decision != b.decision:
                pair.reason = LEAVES
                break
            bound = score_bound(a.attributions, a.index, b.attributions, b.index, EPSILON)
            if bound < threshold:
                pair.near[node] = bound, *pair.open.pop(node)
    complete = [pair for pair in pairs if pair.proved]
    bounds_of = iter(_rechecked(network, domain, [part for pair in complete for _, *both in pair.near.values() for part in both]))
    for pair in complete:
        proved_parts, pair.near = pair.near, {}
        for node, (bound, a, b) in proved_parts.items():
            if leaf_flaw(next(bounds_of), next(bounds_of), threshold) is None:
                pair.close(node, bound, a.slices, b.slices)
            else:
                pair.open[node] = a, b


def _rechecked(network: Network, domain: Domain, parts: list[SubBox]) -> list[ExplanationBounds]:
    """Return the checker's bounds of each part, with room for the rounding of another order of summation."""
    missing = {id(part): part for part in parts if part.replayed is None}
    for slices in sorted({part.slices for part in missing.values()}):
        group = [part for part in missing.values() if part.slices == slices]
        step = max(1, AT_ONCE // slices)
        for batch in (group[start : start + step] for start in range(0, len(group), step)):
            box = domain.box(np.stack([part.lower for part in batch]), np.stack([part.upper for part in batch]))
            baseline = np.stack([part.baseline for part in batch])
            bounds = explanation_bounds(network, positive_margin(network), baseline, *box, slices, room=ROUNDING_FACTOR)
            for part, part_bounds in zip(batch, bounds, strict=True):
                part.replayed = part_bounds
    return [part.replayed for part in parts if part.replayed is not None]


def _refine(network: Network, schema: Schema, pairs: list[_Pair], threshold: float, max_boxes: int) -> None:
    """Run one round: cut one part of every open pair of parts, or the slices of its paths if it is a point."""
    requested: dict[int, tuple[SubBox, int]] = {}  # by identity: several pairs of parts may ask for the same one
    chosen: list[list[tuple[int, bool]]] = []
    cuts: dict[int, _Cut] = {}
    for k, pair in enumerate(pairs):
        chosen.append([])
        for node, (a, b) in pair.open.items():
            chosen_part = _part_to_refine(network, schema, a, b, cuts)
            if chosen_part is None or (pair.boxes >= max_boxes and len(cuts[id(chosen_part)].lower) > 1):
                pair.reason = DECISION if None in (a.decision, b.decision) else SCORE
                break
            if id(chosen_part) not in requested:
                requested[id(chosen_part)] = chosen_part, k
                pair.boxes += len(cuts[id(chosen_part)].lower)
            chosen[-1].append((node, chosen_part is a))
    parts = _bound_again(network, schema, [chosen_part for chosen_part, k in requested.values() if pairs[k].reason is None], cuts)
    for pair, picked in zip(pairs, chosen, strict=True):
        if pair.reason is not None:
            continue
        for node, is_first in picked:
            a, b = pair.open.pop(node)
            chosen_part = a if is_first else b
            feature, cut_at = cuts[id(chosen_part)].feature, cuts[id(chosen_part)].at
            nodes = [node]
            if feature is not None:
                nodes = pair.tree.halve(node, feature if is_first else schema.domain.variables + feature, cut_at)
            new_parts = parts[id(chosen_part)]
            pair.open |= {k: (part, b) if is_first else (a, part) for k, part in zip(nodes, new_parts, strict=True)}
    _close(network, schema.domain, [pair for pair in pairs if pair.reason is None], threshold)


def _part_to_refine(network: Network, schema: Schema, a: SubBox, b: SubBox, cuts: dict[int, _Cut]) -> SubBox | None:
    """Return the part of the two to refine, and put its refinement into `cuts`. None if neither can be refined further."""
    undecided = [part for part in (a, b) if part.decision is None]
    order = sorted(undecided or (a, b), key=lambda part: -part.spread)
    for part in order:
        if id(part) not in cuts:
            cut = _halves(network, schema.domain, part)
            if cut is None and part.slices < MAX_SLICES:
                cut = _Cut(lower=part.lower[None], upper=part.upper[None])
            if cut is None:
                continue
            cuts[id(part)] = cut
        return part
    return None


def _bound_again(network: Network, schema: Schema, parts: list[SubBox], cuts: dict[int, _Cut]) -> dict[int, list[SubBox]]:
    """Return the new parts in the place of each old one, by its identity; parts with equally many slices share a batch."""
    result: dict[int, list[SubBox]] = {}
    depth = {id(part): part.cuts + len(cuts[id(part)].lower) - 1 for part in parts}
    slices = {
        id(part): 4 * part.slices if depth[id(part)] == part.cuts else min(SLICES << depth[id(part)] // 3, FINE_SLICES)
        for part in parts
    }
    for count in sorted(set(slices.values())):
        group = [part for part in parts if slices[id(part)] == count]
        sizes = [len(cuts[id(part)].lower) for part in group]
        lower, upper = (np.concatenate([getattr(cuts[id(part)], end) for part in group]) for end in ("lower", "upper"))
        baseline = np.repeat([part.baseline for part in group], sizes, axis=0)
        halvings = np.repeat([depth[id(part)] for part in group], sizes)
        new_parts = bounded(network, schema.domain, baseline, lower, upper, count, halvings)
        ends = np.cumsum([0, *sizes])
        result.update({id(part): new_parts[ends[k] : ends[k + 1]] for k, part in enumerate(group)})
    return result


def _leaves(network: Network, schema: Schema, a: SubBox, b: SubBox, threshold: float, seed: int) -> bool:
    """Return True if some corners of the two neighbourhoods are measured outside regime A, so that no proof can exist."""
    generator = np.random.default_rng(seed)
    points = []
    for part in (a, b):
        high = generator.random((SAMPLES, len(part.lower))) < 0.5
        points.append(schema.domain.encode(np.where(high, part.upper, part.lower)))
    g = [explanations(network, x, np.tile(a.baseline, (SAMPLES, 1)), threads=1) for x in points]
    classes = [decisions(network, x) for x in points]
    score = cec_score(np.repeat(g[0], SAMPLES, axis=0), np.tile(g[1], (SAMPLES, 1)))
    return bool((score > threshold).any() or len(np.unique(np.concatenate(classes))) > 1)


# The neighbourhoods of two people, and their parts


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cut:
    """The boxes (1 or 2, V) that take a part's place: its halves along `feature` at `at`, or itself with finer slices."""

    lower: Array
    upper: Array
    feature: int | None = None
    at: float = 0.0


@dataclass(kw_only=True, eq=False)
class SubBox:
    """A raw box lower, upper (V,) of one person's neighbourhood, with bounds of the attributions (number `index` of a batch) from
    the baseline (n_0,), and bounds `g_low`, `g_high` of the margin.

    slices: number that the paths are cut into.   cuts: number of halvings from the whole neighbourhood.   replayed: the checker's
    bounds, None until asked for.
    """

    lower: Array
    upper: Array
    baseline: Array
    attributions: Attributions
    index: int
    g_low: float
    g_high: float
    slices: int
    cuts: int
    replayed: ExplanationBounds | None = None

    @property
    def decision(self) -> int | None:
        """The class on the whole box (1 iff the margin is positive), None if it is not certain."""
        return 1 if self.g_low > 0 else 0 if self.g_high <= 0 else None

    @property
    def spread(self) -> float:
        """Width of the attributions' bounds, relative to their size."""
        norm = self.attributions.length[self.index] + self.attributions.radius[self.index]
        return float(self.attributions.radius[self.index] / max(norm, np.finfo(float).tiny))


def raw_rows(schema: Schema, x: Array) -> Array:
    """Return the raw rows (N, V) that are encoded as the network inputs x (N, n_0). Raises DataError if there is no such row."""
    domain = schema.domain
    raw = np.empty((len(x), domain.variables))
    number = ~domain.one_hot
    raw[:, number] = x[:, domain.start[number]] * domain.scale[number] + domain.offset[number]
    for v in np.flatnonzero(domain.one_hot):
        raw[:, v] = x[:, domain.start[v] : domain.start[v] + domain.width[v]].argmax(axis=1)
    raw = np.where(domain.integer, np.round(raw), raw)
    raw = np.clip(raw, domain.lower, domain.upper)  # float32(0.1) > 0.1: a row at the end of a range would leave it
    wrong = np.flatnonzero((domain.encode(raw) != x).any(axis=1))
    if len(wrong):
        raise DataError(
            f"row {wrong[0]}: its network inputs are those of no row of the schema, so there is no neighbourhood to certify; pass "
            "people read by this schema (people_of)"
        )
    return raw


def boxes(schema: Schema, raw: Array, delta: float) -> tuple[Array, Array]:
    """Return raw boxes (N, V), (N, V) of PBA's neighbourhood of raw rows (N, V): see `verify.questions.neighbourhood`.

    Protected features stay, and so does everything where delta is 0. The rows were read back from float32 inputs, so the
    interval of a real feature that moves covers the neighbourhood of every value with the same float32 input. Raises SchemaError
    where delta is positive and no feature has a unit.
    """
    if delta == 0:
        return raw, raw
    domain, step = schema.domain, schema.steps([]) * delta
    lower, upper = neighbourhood(schema, raw, delta, [])
    # Twice half a unit in the last place of the input (2^-24 of it), and the rounding of float64.
    hidden = 2.0**-23 * np.abs(raw - domain.offset) + 2.0**-149 * domain.scale + 2.0**-51 * (np.abs(raw) + step)
    hidden = np.where(domain.integer | (step == 0), 0.0, hidden)
    return np.maximum(lower - hidden, domain.lower), np.minimum(upper + hidden, domain.upper)


def bounded(
    network: Network, domain: Domain, baseline: Array, lower: Array, upper: Array, slices: int, cuts: Integers
) -> list[SubBox]:
    """Return raw boxes lower, upper (B, V) with bounds of their attributions from baselines (B, n_0), after `cuts` (B,) halvings.

    Sound? yes (`encoders.bounds.explanations.gradient`, `encoders.bounds.explanations.attribution`).  Complete? no.
    """
    low, high = domain.box(lower, upper)
    margin, step = positive_margin(network), max(1, AT_ONCE // slices)
    parts = []
    for start in range(0, len(low), step):
        batch = slice(start, start + step)
        zonotopes = gradient_zonotopes(network, margin, baseline[batch], low[batch], high[batch], slices)
        bounds = attributions(zonotopes, baseline[batch], low[batch], high[batch])
        parts += [
            SubBox(
                lower=lower[start + k], upper=upper[start + k], baseline=baseline[start + k], attributions=bounds, index=k,
                g_low=float(zonotopes.lower[k]), g_high=float(zonotopes.upper[k]), slices=slices, cuts=int(cuts[start + k]),
            )
            for k in range(len(bounds))
        ]
    return parts


def _halves(network: Network, domain: Domain, part: SubBox) -> _Cut | None:
    """Return a part's halves along the variable that moves the first layer most; None for a point."""
    lower, upper = part.lower[None], part.upper[None]
    low, high = domain.box(lower, upper)
    effect = (high - low)[0] * np.linalg.norm(network.layers[0].weight, axis=0)
    by_variable = np.where(domain.one_hot, 0.0, effect[domain.start])
    is_divisible = domain.divisible(lower, upper)[0]
    if not (is_divisible & (by_variable > 0)).any():
        return None
    v = int(np.where(is_divisible, by_variable, -1.0).argmax())
    cut_at = domain.middle(lower, upper)[:, v]
    lower, upper = domain.halves(lower, upper, [v], cut_at)
    return _Cut(lower=lower, upper=upper, feature=v, at=float(cut_at[0]))
