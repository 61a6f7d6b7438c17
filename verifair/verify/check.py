"""The independent re-checker: does a certificate prove what it says?

Imports neither the engine, nor its bounds, nor a solver; shared with them are the network's forward pass, the exact
arithmetic and the schema. For two copies x and x' (x' = x but for the protected features in `prime`) and g = f_i - f_j
(one logit: +f for classes (1, 0), -f for (0, 1)) the statements are

    observed   g(x) - g(x') > 0          flipped   g(x') - g(x) > 0          robust   g(x) > 0, or >= 0 where i < j
    no-flip    not (g(x) > 0 and g(x') < 0), which holds where one of -g(x), g(x'), (g(x') - g(x)) / 2 is >= 0

at every point of the statement's box. The tree must cover the box, and on every leaf the checker proves that the
claimed bound is one: by its own bounds (`check_bounds`), else by cutting the leaf further, down to single points that
exact arithmetic decides. Every proof is about the real-valued function of the stored weights, at every input that the
raw box maps to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from encoders.dyadic import Dyadic, exact
from encoders.network import Array, Network
from encoders.problem import Domain
from verifair.schema import Schema
from verifair.verify.certificate import Certificate, Claim, FairnessQuery, semantics
from verifair.verify.check_bounds import TwinBounds
from verifair.verify.check_leaves import Task, leaves_of, pairs_missing, task_of

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Progress = Callable[[int, int], None]

CHUNK = 128
"""Boxes bounded at once."""
MAX_BOXES = 4096
"""Boxes that one leaf may be cut into before it counts as not confirmed."""
GROUP = 2048
"""Leaves held in memory at once, unless one tree has more."""
SLACK = 1e-6
"""A claimed bound may exceed the proved one by this share of itself (and by the rounding error): two programs, two roundings."""


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """What is wrong, and in which proof (its position; None: the certificate as a whole)."""

    proof: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.proof is None else f"proof {self.proof}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """proofs and leaves that were looked at; claimed: statements that only a solver vouches for, which nobody re-proved."""

    proofs: int
    leaves: int
    claimed: int
    rejections: tuple[Rejection, ...]
    seconds: float

    @property
    def accepted(self) -> bool:
        """Every statement of the certificate was re-proved."""
        return not self.rejections


@dataclass(frozen=True, kw_only=True, eq=False)
class _Leaves:
    """Leaves (L) of several proofs: their raw boxes (L, V), claimed bounds (NaN: a point), and position in `tasks`."""

    tasks: list[Task]
    task: Integers
    proof: Integers
    lower: Array
    upper: Array
    bound: Array


def check(
    certificate: Certificate | str | Path, *, network: Network, schema: Schema, progress: Progress | None = None
) -> CheckReport:
    """Re-prove a certificate. CertificateError when a file is no certificate at all; what is wrong with one is reported.

    progress is called with the number of proofs done and of all proofs.
    """
    started = time.perf_counter()
    given = certificate if isinstance(certificate, Certificate) else Certificate.load(certificate)
    claimed = sum(isinstance(proof.evidence, Claim) for proof in given.proofs)
    leaves = 0
    found = [Rejection(proof=None, reason=reason) for reason in _misfits(given, network, schema)]
    if not found:
        for done, group in _groups(given, network, schema, found):
            leaves += len(group.task)
            found += _Checker(network, schema.domain, group).run()
            if progress is not None:
                progress(done, len(given.proofs))
    return CheckReport(
        proofs=len(given.proofs),
        leaves=leaves,
        claimed=claimed,
        rejections=tuple(sorted(found, key=lambda one: -1 if one.proof is None else one.proof)),
        seconds=time.perf_counter() - started,
    )


def _misfits(certificate: Certificate, network: Network, schema: Schema) -> Iterator[str]:
    """Reasons for which the proofs need not be looked at."""
    if not certificate.intact:
        yield "the digest does not fit the content: the file was changed after it was written"
    if not certificate.proofs:
        yield "it holds no proofs"
    if certificate.network_sha256 != network.source_sha256:
        yield f"it is about another network (sha256 {certificate.network_sha256[:12]}, this one has {network.source_sha256[:12]})"
    if certificate.schema_sha256 != schema.sha256:
        yield f"it is about another schema (sha256 {certificate.schema_sha256[:12]}, this one has {schema.sha256[:12]})"
    if certificate.features != tuple(feature.name for feature in schema.features):
        yield "its features are not those of the schema, in order"
    if certificate.semantics != semantics(network):
        yield f"its semantics are {certificate.semantics!r}, expected {semantics(network)!r}"
    if schema.domain.columns != network.inputs:
        yield f"the schema describes {schema.domain.columns} input columns, the network takes {network.inputs}"
    elif isinstance(certificate.query, FairnessQuery):
        missing = pairs_missing(certificate.query, certificate.proofs, network, schema)
        if missing is not None:
            yield missing


def _groups(
    certificate: Certificate, network: Network, schema: Schema, found: list[Rejection]
) -> Iterator[tuple[int, _Leaves]]:
    """(proofs done, leaves) in groups of bounded size; what cannot be turned into leaves goes to `found`."""
    tasks: list[Task] = []
    parts: list[tuple[Array, Array, Array]] = []
    proofs: list[int] = []
    held = 0
    for number, proof in enumerate(certificate.proofs):
        task = task_of(proof.statement, certificate.query, network, schema)
        leaves: tuple[Array, Array, Array] | str
        if isinstance(task, str):
            leaves = task
        elif isinstance(proof.evidence, Claim):
            leaves = f"claimed by {proof.evidence.backend} {proof.evidence.version}, not re-provable"
        else:
            leaves = leaves_of(proof.evidence, task, schema.domain.integer)
        if isinstance(leaves, str) or isinstance(task, str):
            found.append(Rejection(proof=number, reason=str(leaves)))
        else:
            tasks.append(task)
            parts.append(leaves)
            proofs.append(number)
            held += len(leaves[2])
        if held >= GROUP:
            yield number + 1, _gathered(tasks, parts, proofs)
            tasks, parts, proofs, held = [], [], [], 0
    if parts:
        yield len(certificate.proofs), _gathered(tasks, parts, proofs)


def _gathered(tasks: list[Task], parts: Sequence[tuple[Array, Array, Array]], proofs: list[int]) -> _Leaves:
    lower, upper, bound = (np.concatenate(part) for part in zip(*parts, strict=True))
    sizes = [len(part[2]) for part in parts]
    return _Leaves(
        tasks=tasks,
        task=np.repeat(np.arange(len(tasks)), sizes),
        proof=np.repeat(np.array(proofs, dtype=np.int64), sizes),
        lower=lower,
        upper=upper,
        bound=bound,
    )


class _Checker:
    """Confirms the leaves of one group. `row_*`: the (p, q) rows of all tasks, one after the other, from `first[task]`."""

    def __init__(self, network: Network, domain: Domain, leaves: _Leaves) -> None:
        self.network, self.domain, self.leaves = network, domain, leaves
        tasks = leaves.tasks
        self.prime, self.differs = np.array([t.prime for t in tasks]), np.array([t.differs for t in tasks])
        self.margin, self.strict = np.array([t.margin for t in tasks]), np.array([t.strict for t in tasks])
        self.count = np.array([len(t.rows) for t in tasks])
        self.first = np.cumsum(self.count) - self.count
        self.rows = np.array([row for t in tasks for row in t.rows])
        claimed = leaves.bound - SLACK * np.abs(leaves.bound)
        self.target = np.where(np.isnan(claimed), 0.0, np.maximum(claimed, 0.0))
        self.reason: dict[int, str] = {}
        variable = np.repeat(np.arange(domain.variables), domain.width)
        self.variable_of = np.empty(domain.columns, dtype=np.int64)
        self.variable_of[domain.columns_of(np.arange(domain.variables))] = variable

    def run(self) -> list[Rejection]:
        """Depth first over the boxes that leaves are cut into: all leaves first, then what is left of them."""
        leaf, lower, upper = np.arange(len(self.leaves.task)), self.leaves.lower, self.leaves.upper
        boxes = np.zeros(len(leaf), dtype=np.int64)
        with np.errstate(all="ignore"):  # whatever overflows or is NaN proves nothing, see check_bounds
            while len(leaf):
                now, later = slice(-CHUNK, None), slice(0, max(0, len(leaf) - CHUNK))
                open_now = ~np.isin(leaf[now], list(self.reason)) if self.reason else np.ones(len(leaf[now]), dtype=bool)
                chunk = leaf[now][open_now], lower[now][open_now], upper[now][open_now]
                np.add.at(boxes, chunk[0], 1)
                for over in np.unique(chunk[0][boxes[chunk[0]] > MAX_BOXES]):
                    self._reject(int(over), f"not confirmed within {MAX_BOXES} boxes")
                more = self._step(*chunk) if len(chunk[0]) else chunk
                leaf, lower, upper = (
                    np.concatenate([old[later], new]) for old, new in zip((leaf, lower, upper), more, strict=True)
                )
        return [Rejection(proof=int(self.leaves.proof[one]), reason=text) for one, text in sorted(self.reason.items())]

    def _reject(self, leaf: int, text: str) -> None:
        box = f"{self.leaves.lower[leaf].tolist()} .. {self.leaves.upper[leaf].tolist()}"
        bound = self.leaves.bound[leaf]
        claim = "no bound" if np.isnan(bound) else f"bound {bound:.9g}"
        self.reason.setdefault(leaf, f"leaf {box} with {claim}: {text}")

    def _step(self, leaf: Integers, lower: Array, upper: Array) -> tuple[Integers, Array, Array]:
        """Bound some boxes; returns the halves of those that are neither confirmed nor hopeless."""
        task = self.leaves.task[leaf]
        low, high = self.domain.box(lower, upper)
        other = self._second(task, lower), self._second(task, upper)
        low2, high2 = self.domain.box(*other)
        for bad in leaf[~(np.isfinite(low) & np.isfinite(high) & np.isfinite(low2) & np.isfinite(high2)).all(axis=1)]:
            self._reject(int(bad), "its network inputs are no float32 numbers")
        point = (low == high).all(axis=1)
        for bad in leaf[~point & np.isnan(self.leaves.bound[leaf])]:
            self._reject(int(bad), "a leaf without a bound must be one single point")
        self._decide(leaf[point], lower[point], "the claim is false at this point")
        open_ = np.flatnonzero(~point & ~np.isin(leaf, list(self.reason)))
        score = np.zeros((len(leaf), self.domain.variables))
        toward = np.zeros((len(leaf), self.domain.variables))
        for close in (False, True):
            if not len(open_):
                break
            bounds = TwinBounds(self.network, low[open_], high[open_], low2[open_], high2[open_], close=close)
            done, slope, weight = self._confirmed(bounds, task[open_], self.target[leaf[open_]])
            variables = self.variable_of[bounds.moving]
            indicator = (variables[:, None] == np.arange(self.domain.variables)).astype(float)
            score[open_] = (weight * bounds.radius[:, bounds.moving]) @ indicator
            toward[open_] = slope @ indicator
            open_ = open_[~done]
        corner = np.where(toward > 0, lower, upper)
        middle = np.clip(lower + (upper - lower) / 2, lower, upper)
        middle = np.where(self.domain.integer, np.floor(middle), middle)
        corner = np.where(self.domain.one_hot, middle, corner)
        for sample in (corner, middle):
            self._refute(leaf[open_], sample[open_])
        open_ = open_[~np.isin(leaf[open_], list(self.reason))]
        return self._halves(leaf[open_], lower[open_], upper[open_], score[open_], middle[open_])

    def _second(self, task: Integers, raw: Array) -> Array:
        return np.where(self.differs[task], self.prime[task], raw)

    def _confirmed(self, bounds: TwinBounds, task: Integers, target: Array) -> tuple[Booleans, Array, Array]:
        """Which boxes some row of the goal holds on, with the claimed bound; and the best row's input slopes and weights."""
        start = np.cumsum(self.count[task]) - self.count[task]
        box = np.repeat(np.arange(len(task)), self.count[task])
        row = self.rows[self.first[task][box] + np.arange(len(box)) - start[box]]
        margin = self.margin[task][box]
        bound, error, slope, weight = bounds.lower(
            row[:, :1] * margin, row[:, 1:] * margin, box, layer=len(self.network.layers) - 1
        )
        # g' - g is exactly 0 where no output that counts can differ between the copies.
        last = bounds.spans[-1]
        alike = ((margin == 0) | ((last.d_low == 0) & (last.d_high == 0))[box]).all(axis=1) & (row.sum(axis=1) == 0)
        bound = np.where(alike, np.maximum(bound, 0.0), bound)
        met = np.where(self.strict[task][box], bound > 0, bound >= 0) & (bound + error >= target[box])
        best = np.lexsort((bound, box))[start + self.count[task] - 1]
        return np.logical_or.reduceat(met, start), slope[best], weight[best]

    def _decide(self, leaf: Integers, raw: Array, text: str) -> None:
        """Exact arithmetic at one raw point a leaf: reject the leaf where the claim is false."""
        if not len(leaf):
            return
        task = self.leaves.task[leaf]
        met = np.zeros(len(leaf), dtype=bool)
        try:
            first, second = self._exact(task, raw), self._exact(task, self._second(task, raw))
        except OverflowError:  # weights of absurdly different sizes
            for one in leaf:
                self._reject(int(one), "beyond the reach of exact arithmetic")
            return
        for r in range(int(self.count.max())):
            row = self.rows[self.first[task] + np.minimum(r, self.count[task] - 1)]
            value = exact(row[:, 0]) * first + exact(row[:, 1]) * second
            met |= (value.sign > -(~self.strict[task]).astype(int)) & ((value - exact(self.target[leaf])).sign >= 0)
        for k in np.flatnonzero(~met):
            self._reject(int(leaf[k]), f"{text}: x = {raw[k].tolist()}")

    def _exact(self, task: Integers, raw: Array) -> Dyadic:
        """g at raw points, exactly."""
        logits = self.network.forward(exact(self.domain.encode(raw)))
        terms = exact(self.margin[task]) * logits
        total = terms[:, 0]
        for k in range(1, self.network.outputs):
            total = total + terms[:, k]
        return total

    def _refute(self, leaf: Integers, raw: Array) -> None:
        """Try the claim at one point of each box in float64; what looks false is decided exactly. Saves hopeless splitting."""
        task = self.leaves.task[leaf]
        first, second = (
            (self.network.forward(self.domain.encode(x)) * self.margin[task]).sum(axis=1) for x in (raw, self._second(task, raw))
        )
        best = np.full(len(leaf), -np.inf)
        for r in range(int(self.count.max())):
            row = self.rows[self.first[task] + np.minimum(r, self.count[task] - 1)]
            best = np.maximum(best, row[:, 0] * first + row[:, 1] * second)
        false = np.isfinite(best) & (best <= self.target[leaf])
        self._decide(leaf[false], raw[false], "the claim is false")

    def _halves(
        self, leaf: Integers, lower: Array, upper: Array, score: Array, middle: Array
    ) -> tuple[Integers, Array, Array]:
        """Both halves of each box along its heaviest variable."""
        after = np.where(self.domain.integer, middle + 1, middle)
        can = np.where(self.domain.integer, upper > lower, (middle > lower) & (middle < upper))
        share = (upper - lower) / np.maximum(self.domain.upper - self.domain.lower, np.finfo(float).tiny)
        score = np.where(can, score + 1e-9 * share * score.max(axis=1, keepdims=True, initial=0) + 1e-300 * share, -np.inf)
        for bad in leaf[~can.any(axis=1)]:
            self._reject(int(bad), "not confirmed, and too small to be cut")
        keep = np.flatnonzero(can.any(axis=1))
        at = (np.arange(len(keep)), np.argmax(score[keep], axis=1))
        left, right = upper[keep].copy(), lower[keep].copy()
        left[at], right[at] = middle[keep][at], after[keep][at]
        two = np.concatenate([leaf[keep], leaf[keep]])
        return two, np.concatenate([lower[keep], right]), np.concatenate([left, upper[keep]])
