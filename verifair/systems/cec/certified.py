"""The certified companion of CEC: whose regime A holds for everybody in the neighbourhood, and not only at two measured points.

A pair in regime A (same decision, same reasons) is *certified A* within delta when, for ALL x' within delta units of the person and
ALL x~' within delta units of the counterpart (PBA's neighbourhood; the two move independently, so that a shared displacement is a
special case), the decisions are equal and the CEC score of the exact path integrals of the real-valued network is below the
threshold. Otherwise it is *unknown*, with a reason.

Method: bounds of both explanations over their boxes (`encoders.bounds.gradient`, `encoders.bounds.attribution`); where these do not
suffice, the box whose explanation strays more is halved, then points get more slices of their paths.
Sound? yes, outward-rounded, and re-proved by `verifair.checker.kinds.consistency`.  Complete? no.
Reference: none; attributions from CEC (definition 3), neighbourhoods from PBA (equations 4 and 5), bounds are ours.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from encoders.bounds.attribution import score_bound
from encoders.network import Array, Booleans, Integers, Network
from solvers.outcome import Budget
from verifair.checker.consistency_certificate import ConsistencyCertificate, ConsistencyQuery
from verifair.checker.envelope import semantics
from verifair.engine.questions import decisions
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.cec.attributions import explanations
from verifair.systems.cec.audit import Audit
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.neighbourhoods import Part, bounded, boxes, halves, raw_rows
from verifair.systems.cec.people import People
from verifair.systems.cec.score import EPSILON, cec_score

Progress = Callable[[int, int], None]

CHUNK = 32
"""Pairs under way at once."""
SLICES, FINE_SLICES, MOST_SLICES = 16, 64, 1024
"""Of every path at first; where boxes are cut, twice as many with every third cut; and of points, four times as many each time."""
NODES = 256
"""Boxes that one pair may be cut into, unless the budget says otherwise."""
SAMPLES = 12
"""Corners of each neighbourhood at which regime A is tried before boxes are cut."""

CERTIFIED, UNKNOWN = "certified", "unknown"
ELSEWHERE, LEAVES, DECISION, SCORE, TIME = "not in regime A", "leaves A", "decision", "score", "time"


@dataclass(frozen=True, kw_only=True, eq=False)
class Certified:
    """What became of the M matched pairs, in the order of the audit.

    status: (M,) "certified" or "unknown".   reason: (M,) "" where certified; "not in regime A": nothing to certify; "leaves A":
    points of the neighbourhoods were found in another regime; "decision", "score": this is what could not be bounded; "time".
    bound: (M,) certified upper bound of the score, NaN where there is none.   score: (M,) as measured.
    boxes: (M,) how many boxes were bounded.   certificate: what proves it, about the certified pairs alone.
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
        """Pairs in regime A."""
        return int((self.reason != ELSEWHERE).sum())

    @property
    def share(self) -> float:
        """Of the pairs in regime A, those certified; NaN where there are none."""
        return float(self.certified.sum() / self.candidates) if self.candidates else float("nan")

    @property
    def reasons(self) -> dict[str, int]:
        """How many pairs are unknown for each reason."""
        return dict(Counter(self.reason[~self.certified].tolist()))


@dataclass(eq=False)
class _Pair:
    """One pair under way: the parts of both neighbourhoods that are still to be told apart, and the worst score bound so far."""

    open: list[tuple[Part, Part]]
    bound: float = 0.0
    boxes: int = 2
    reason: str | None = None

    @property
    def proved(self) -> bool:
        return self.reason is None and not self.open

    @property
    def under_way(self) -> bool:
        return self.reason is None and bool(self.open)


def certify_consistency(
    network: Network, schema: Schema, audit: Audit, reference: Reference, people: People, delta: float, *,
    budget: Budget | None = None, progress: Progress | None = None,
) -> Certified:  # fmt: skip
    """Certify regime A within delta units for the pairs of an audit of `people` against `reference` by this network.

    budget: seconds for the whole run (default: no limit), nodes: boxes a pair may be cut into (default 256).
    progress(done, total) counts pairs in regime A.
    Raises QueryError for a delta that is no number from 0 or people not audited, SchemaError where delta is positive and no
    feature has a unit, DataError for people who are no rows of the schema.
    Sound? yes.  Complete? no.
    """
    if not 0 <= delta < np.inf:
        raise QueryError(f"delta = {delta}: expected a number of units from 0 (the pair as it is), such as 1")
    if not all(np.array_equal(getattr(people, name), getattr(audit.people, name)) for name in ("x", "labels", "groups")):
        raise QueryError("people: found others than those of the audit, whose pairs are to be certified; pass the people audited")
    schema.check_network(network)
    network.require_piecewise_linear("certified explanation consistency")
    started = time.perf_counter()
    deadline = np.inf if budget is None else started + budget.seconds
    most = NODES if budget is None or budget.nodes is None else budget.nodes
    candidates = np.flatnonzero(audit.regime == "A")
    baseline = reference.baseline(people)
    raw, other = raw_rows(schema, people.x), raw_rows(schema, reference.people.x)
    status, reason = np.full(len(audit.score), UNKNOWN, dtype="<U15"), np.full(len(audit.score), ELSEWHERE, dtype="<U15")
    bound, count = np.full(len(audit.score), np.nan), np.zeros(len(audit.score), dtype=np.int64)
    for start in range(0, len(candidates), CHUNK):
        part = candidates[start : start + CHUNK]
        person, counterpart = audit.individual[part], audit.counterpart[part]
        near = boxes(schema, raw[person], delta), boxes(schema, other[counterpart], delta)
        pairs = _decided(network, schema, baseline[person], near, audit.threshold, most, deadline)
        for k, pair in zip(part, pairs, strict=True):
            status[k], reason[k] = (CERTIFIED, "") if pair.proved else (UNKNOWN, pair.reason or TIME)
            bound[k], count[k] = pair.bound if pair.proved else np.nan, pair.boxes
        if progress is not None:
            progress(min(start + CHUNK, len(candidates)), len(candidates))
    proved = np.flatnonzero(status == CERTIFIED)
    return Certified(
        delta=delta, threshold=audit.threshold, status=status, reason=reason, bound=bound, score=audit.score, boxes=count,
        seconds=time.perf_counter() - started,
        certificate=_certificate(network, schema, audit, baseline, raw, other, delta, proved, count),
    )  # fmt: skip


def _decided(
    network: Network, schema: Schema, baseline: Array, near: tuple[tuple[Array, Array], tuple[Array, Array]], threshold: float,
    most: int, deadline: float,
) -> list[_Pair]:  # fmt: skip
    """Pairs with baselines (Q, n_0) and the raw boxes of both people: proved, or with a reason."""
    if time.perf_counter() > deadline:
        return [_Pair(open=[], boxes=0, reason=TIME) for _ in baseline]
    uncut = np.zeros(len(baseline), dtype=np.int64)
    first, second = (bounded(network, schema.domain, baseline, *box, SLICES, uncut) for box in near)
    pairs = [_Pair(open=[(a, b)]) for a, b in zip(first, second, strict=True)]
    for pair in pairs:
        _close(pair, threshold)
    for k, pair in enumerate(pairs):
        if pair.under_way and _leaves(network, schema, *pair.open[0], threshold, seed=k):
            pair.reason = LEAVES
    while any(pair.under_way for pair in pairs):
        if time.perf_counter() > deadline:
            break
        _refine(network, schema, [pair for pair in pairs if pair.under_way], threshold, most)
    return pairs


def _close(pair: _Pair, threshold: float) -> None:
    """Drop what is proved from the open parts; a pair that two parts decide differently has left regime A."""
    still = []
    for a, b in pair.open:
        if None not in (a.decision, b.decision):
            if a.decision != b.decision:
                pair.reason = LEAVES
                return
            bound = score_bound(a.attributions, a.index, b.attributions, b.index, EPSILON)
            if bound < threshold:
                pair.bound = max(pair.bound, bound)
                continue
        still.append((a, b))
    pair.open = still


def _refine(network: Network, schema: Schema, pairs: list[_Pair], threshold: float, most: int) -> None:
    """One round: of every open pair of parts, cut the one that matters, or its paths where it is a point."""
    wanted: dict[int, tuple[Part, int]] = {}  # by identity: several pairs of parts may ask for the same one
    chosen: list[list[tuple[Part, Part, bool]]] = []
    boxes_of: dict[int, tuple[Array, Array]] = {}
    for k, pair in enumerate(pairs):
        chosen.append([])
        for a, b in pair.open:
            one = _to_cut(network, schema, a, b, boxes_of)
            if one is None or (pair.boxes >= most and len(boxes_of[id(one)][0]) > 1):
                pair.reason = DECISION if None in (a.decision, b.decision) else SCORE
                break
            if id(one) not in wanted:
                wanted[id(one)] = one, k
                pair.boxes += len(boxes_of[id(one)][0])
            chosen[-1].append((a, b, one is a))
    parts = _bounded_again(network, schema, [one for one, k in wanted.values() if pairs[k].reason is None], boxes_of)
    for pair, picked in zip(pairs, chosen, strict=True):
        if pair.reason is None:
            pair.open = [
                (new, b) if is_first else (a, new) for a, b, is_first in picked for new in parts[id(a if is_first else b)]
            ]
            _close(pair, threshold)


def _to_cut(network: Network, schema: Schema, a: Part, b: Part, boxes_of: dict[int, tuple[Array, Array]]) -> Part | None:
    """Which of two parts to look at more closely; its new boxes go to `boxes_of`. None where both are looked at closely enough."""
    undecided = [part for part in (a, b) if part.decision is None]
    order = sorted(undecided or (a, b), key=lambda part: -part.spread)
    for part in order:
        if id(part) not in boxes_of:
            cut = halves(network, schema.domain, part)
            if cut is None and part.slices < MOST_SLICES:
                cut = part.lower[None], part.upper[None]
            if cut is None:
                continue
            boxes_of[id(part)] = cut
        return part
    return None


def _bounded_again(
    network: Network, schema: Schema, parts: list[Part], boxes_of: dict[int, tuple[Array, Array]]
) -> dict[int, list[Part]]:
    """The new parts in the place of each old one, by its identity; those of equally many slices in one batch."""
    found: dict[int, list[Part]] = {}
    cuts = {id(part): part.cuts + len(boxes_of[id(part)][0]) - 1 for part in parts}
    slices = {
        id(part): 4 * part.slices if cuts[id(part)] == part.cuts else min(SLICES << cuts[id(part)] // 3, FINE_SLICES)
        for part in parts
    }
    for count in sorted(set(slices.values())):
        mine = [part for part in parts if slices[id(part)] == count]
        sizes = [len(boxes_of[id(part)][0]) for part in mine]
        lower, upper = (np.concatenate([boxes_of[id(part)][side] for part in mine]) for side in (0, 1))
        baseline = np.repeat([part.baseline for part in mine], sizes, axis=0)
        halvings = np.repeat([cuts[id(part)] for part in mine], sizes)
        new = bounded(network, schema.domain, baseline, lower, upper, count, halvings)
        ends = np.cumsum([0, *sizes])
        found.update({id(part): new[ends[k] : ends[k + 1]] for k, part in enumerate(mine)})
    return found


def _leaves(network: Network, schema: Schema, a: Part, b: Part, threshold: float, seed: int) -> bool:
    """Whether some corners of the two neighbourhoods were measured outside regime A: there is then no proof to look for."""
    generator = np.random.default_rng(seed)
    points = []
    for part in (a, b):
        high = generator.random((SAMPLES, len(part.lower))) < 0.5
        points.append(schema.domain.encode(np.where(high, part.upper, part.lower)))
    g = [explanations(network, x, np.tile(a.baseline, (SAMPLES, 1)), threads=1) for x in points]
    decided = [decisions(network, x) for x in points]
    score = cec_score(np.repeat(g[0], SAMPLES, axis=0), np.tile(g[1], (SAMPLES, 1)))
    return bool((score > threshold).any() or len(np.unique(np.concatenate(decided))) > 1)


def _certificate(
    network: Network, schema: Schema, audit: Audit, baseline: Array, raw: Array, other: Array, delta: float, proved: Integers,
    count: Integers,
) -> ConsistencyCertificate:  # fmt: skip
    explained = baseline[audit.individual[proved]]
    distinct, which = np.unique(explained, axis=0, return_inverse=True)
    return ConsistencyCertificate(
        network_sha256=network.source_sha256,
        schema_sha256=schema.sha256,
        semantics=semantics(network),
        query=ConsistencyQuery(
            kind="explanation-consistency", delta=float(delta), threshold=float(audit.threshold), epsilon=EPSILON
        ),
        features=tuple(feature.name for feature in schema.features),
        baselines=distinct,
        rows=raw[audit.individual[proved]],
        counterparts=other[audit.counterpart[proved]],
        baseline=which.reshape(-1),
        boxes=count[proved],
    )
