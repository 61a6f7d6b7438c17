"""The independent re-checker of partition stores: every proved part is proved again, every witness evaluated exactly.

As `check`, it imports neither the engine, nor its bounds, nor a solver; what a part is and how the file is laid out
(`verifair.checker.partition`) are definitions that it shares. For a part and a pair z < z' of protected combinations (with every
shift of what is relaxed) the first copy lies in the part and the second one in the query's box; both directions are claimed.
How many parts are proved, refuted, undecided and not reached is counted from the partition's definition and the chunks, and
compared with what the file states. Chunks are checked many at a time, so that the cost is that of the leaves, however they are
chunked, and millions of parts need no more memory than some thousand leaves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np

from encoders.arrays import Array, Integers
from encoders.domain import Batched
from encoders.model import Model
from encoders.probability.logistic import GapGoal
from verifair.checker.certificates.envelope import about_another
from verifair.checker.certificates.extent import Extent
from verifair.checker.certificates.statement import Scale, Signs
from verifair.checker.kernel.leaves import JoinedTrees, replay
from verifair.checker.kernel.points import Points
from verifair.checker.kernel.tasks import StatedGoal, Tasks, question_flaw, stated_goal
from verifair.checker.kind import Kind
from verifair.checker.partition import (
    ARRAYS,
    FORMAT,
    PROVED,
    VIOLATED,
    WRITTEN,
    Chunk,
    Partition,
    PartitionStore,
    damaged,
    extent_of,
)
from verifair.checker.report import NOTHING_DECIDED, Batches, CheckReport, Rejection
from verifair.checker.words import decided, moving, where
from verifair.errors import CertificateError
from verifair.schema.space import InputSpace

DIRECTIONS = ((1, 0), (0, 1))
"""Classes (i, j) of both directions: claims about flips or gaps from class 1 to 0, and from 0 to 1."""
MAX_COMBINATIONS, MAX_QUESTIONS, MAX_PARTS = 1000, 1_000_000, 1 << 60
"""The most protected combinations, pairs with shifts, and parts that certify --partition takes. A file may claim more."""
PARTS_HELD, NODES_HELD = 2048, 1 << 15
"""Parts, and nodes of trees, up to which chunks are joined before they are checked; a chunk is never cut."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _PartQuestions(Batched):
    """Q questions: lower, upper, prime, offset (Q, V), and the part (Q,) that each is about."""

    lower: Array
    upper: Array
    prime: Array
    offset: Array
    part: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts:
    """Chunks, joined: `chunk` has their arrays, part (P,) the numbers of its parts."""

    part: Integers
    chunk: Chunk

    @classmethod
    def of(cls, chunks: list[Chunk]) -> _Parts:
        arrays = {name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("status", *ARRAYS)}
        part = np.concatenate([chunk.first + np.arange(len(chunk)) for chunk in chunks])
        return cls(part=part, chunk=Chunk(first=chunks[0].first, nodes=0, seconds=0.0, **arrays))


@dataclass(frozen=True, kw_only=True, eq=False)
class _StoredQuery:
    """The claim of a store as numbers: pairs z, z_prime (P, p) at the protected positions `index`, each with a shift (P, V) of the
    relaxed features; goals: the goal and the margin of each direction."""

    partition: Partition
    index: list[int]
    z: Array
    z_prime: Array
    shift: Array
    goals: tuple[tuple[StatedGoal, Array], ...]
    float32: bool

    def tasks(self, queries: _PartQuestions, direction: Integers) -> Tasks:
        """Return the tasks (T) of questions (T). direction: (T,) of each, as its number in DIRECTIONS."""
        differs = np.zeros(queries.lower.shape, dtype=bool)
        differs[:, self.index] = True
        return Tasks(
            lower=queries.lower, upper=queries.upper, prime=queries.prime, offset=queries.offset, differs=differs,
            margin=np.array([margin for _, margin in self.goals])[direction], goals=tuple(goal for goal, _ in self.goals),
            goal=direction.astype(np.int64),
        )

    def questions(self, parts: Integers) -> _PartQuestions:
        """Return the questions about some parts."""
        low, high = self.partition.boxes(parts)
        part, pair = (grid.ravel() for grid in np.meshgrid(np.arange(len(parts)), np.arange(len(self.z)), indexing="ij"))
        shift = self.shift[pair]
        lower = np.maximum(low[part], self.partition.lower - shift)
        upper = np.minimum(high[part], self.partition.upper - shift)
        lower[:, self.index] = upper[:, self.index] = self.z[pair]
        prime = lower.copy()
        prime[:, self.index] = self.z_prime[pair]
        candidates = _PartQuestions(lower=lower, upper=upper, prime=prime, offset=shift, part=parts[part])
        return candidates.take(np.asarray((lower <= upper).all(axis=1)))


def check_partition(path: str | Path, *, network: Model, schema: InputSpace, batches: Batches) -> CheckReport:
    """Check a store that `certify_partition` wrote. Raises CertificateError for any other file.

    A rejection names the part.
    """
    started = time.perf_counter()
    rejects: list[Rejection] = []
    proofs = leaves = float32 = 0
    with PartitionStore(path) as store:
        network = schema.judges(network, odds=store.about.get("signs") is None and schema.outcome.of != "value")
        query, extent = _stored_query(path, store.about, network, schema), store.extent
        if isinstance(query, str):
            rejects.append(Rejection(proof=None, reason=query))
        else:
            counted, flaws = _counted(store, query.partition)
            rejects += [Rejection(proof=None, reason=flaw) for flaw in (*flaws, extent.differs(counted)) if flaw is not None]
            extent = counted
            if not flaws and not counted.decided:
                rejects.append(Rejection(proof=None, reason=NOTHING_DECIDED))
            groups, total = () if flaws else _joined(store, schema, rejects), counted.total - counted.not_reached
            for new, count, leaf_count, certified in batches(partial(_check_parts, query, network, schema), groups, total):
                rejects += new
                proofs, leaves, float32 = proofs + count, leaves + leaf_count, float32 + certified
    return CheckReport.of(
        rejects, proofs=proofs, leaves=leaves, started=started, extent=extent, unit="parts", float32=float32, refuted=extent.refuted
    )


def _counted(store: PartitionStore, partition: Partition) -> tuple[Extent, list[str]]:
    """Return the extent of what the chunks decide, and the flaws of chunks that overlap or leave the partition."""
    counts, end, flaws = np.zeros(3, dtype=np.int64), 0, []
    for first, status in store.statuses():
        if not 0 <= first <= partition.count - len(status):
            flaws.append(f"the chunk of part {first} lies outside the partition of {partition.count:,} parts")
        elif first < end:
            flaws.append(f"chunks overlap: part {first} stands in two")
        counts += np.bincount(status, minlength=3)
        end = max(end, first + len(status))
    return extent_of(store.about, partition.count, counts), flaws


def _joined(store: PartitionStore, schema: InputSpace, rejects: list[Rejection]) -> Iterator[tuple[_Parts]]:
    """Yield all chunks in order, joined up to PARTS_HELD parts or NODES_HELD nodes. Wrong counts of proofs for float32 are added to
    `rejects`."""
    group, certified = list[Chunk](), store.certified()
    parts = nodes = 0
    for chunk in store.chunks():
        if (chunk.x.shape[1], chunk.margins.shape[1]) != (schema.domain.variables, 2):
            raise CertificateError(f"{store.path}: {damaged(chunk.first)}")
        if certified[chunk.first] != int(chunk.float32.sum()):
            rejects.append(Rejection(proof=chunk.first, reason="its proofs certified for float32 are counted wrongly"))
        group.append(chunk)
        parts, nodes = parts + len(chunk), nodes + len(chunk.feature)
        if parts >= PARTS_HELD or nodes >= NODES_HELD:
            yield (_Parts.of(group),)
            group, parts, nodes = [], 0, 0
    if group:
        yield (_Parts.of(group),)


def _stored_query(path: str | Path, about: dict[str, Any], network: Model, schema: InputSpace) -> _StoredQuery | str:
    """Return the store's query as numbers, or why it is invalid or not about this network and schema."""
    domain, names = schema.domain, [feature.name for feature in schema.features]
    try:
        if about["network_sha256"] != network.source_sha256 or about["output"] != network.output:
            return about_another("network", str(about["network_sha256"]), network.source_sha256)
        if about["schema_sha256"] != schema.sha256:
            return about_another("schema", str(about["schema_sha256"]), schema.sha256)
        if about["rounded"] != list(network.rounded) or domain.columns != network.inputs or network.outputs > 2:
            return "it is about a network that was read differently"
        lower, upper = np.array([[_number(end) for end in about["box"][name]] for name in names], dtype=np.float64).T
        index = [names.index(name) for name in about["protected"]]
        relax = {names.index(name): _whole(width) for name, width in about["relax"].items()}
        epsilon, size, differ = about["epsilon"], _whole(about["size"]), about["differ"]
        if about["arithmetic"] not in ("real", "float32"):
            raise ValueError("no arithmetic")
        epsilon, parts = None if epsilon is None else _number(epsilon), _whole(about["parts"])
        signs, scale = about["signs"], about["scale"]
        if signs not in (None, *get_args(Signs)) or scale not in get_args(Scale):
            raise ValueError(f"{signs!r} is no rule of decisions, or {scale!r} no scale")
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        flaw = f"lacks {error}" if isinstance(error, KeyError) else "is malformed"
        message = f"what it says of its query {flaw}; expected {WRITTEN}"
        raise CertificateError(f"{path}: {message}: copy it again, or run again") from error
    if not (domain.within(np.stack([lower, upper])).all() and (lower <= upper).all()):
        return "the query's box is empty or leaves the declared domain"
    if not index or len(set(index)) < len(index) or not domain.integer[index].all() or set(index) & set(relax):
        return "the query's protected features are none, repeated, real-valued, or relaxed"
    unscaled = domain.integer & ~domain.one_hot & (domain.offset == 0) & (domain.scale == 1)
    unscaled &= (np.maximum(np.abs(lower), np.abs(upper)) < 2**24)
    valid = all(1 <= width <= 100 for width in relax.values())
    if not (valid and unscaled[list(relax)].all()) or not 2 <= size < 2**31 or differ not in ("all", "any"):
        return "the query relaxes a feature that the network does not take as it is, or its relax, size or differ make no sense"
    if reason := question_flaw(epsilon, scale, signs, network, values=schema.outcome.of == "value"):
        return reason
    partition = Partition.of(domain, lower, upper, size=size, whole=index)
    if not _within_limits(lower, upper, index, relax) or partition.count > MAX_PARTS:
        return "the query has more pairs, shifts or parts than certify --partition takes"
    if partition.count != parts:
        return f"it says that it is about {parts:,} parts, but its box and size make {partition.count:,}"
    z, z_prime, shift = _pairs(lower, upper, index, relax, differ)
    if not len(z):
        return "the query's box leaves its protected features no two values: it claims nothing"
    gap = None if epsilon is None or scale == "logit" else GapGoal(epsilon=epsilon, rise=False)
    goals = tuple(
        stated_goal("no-flip" if gap is None else "no-gap", classes, gap, network, signs or "deployed") for classes in DIRECTIONS
    )
    if epsilon is not None and gap is None:
        goals = tuple((StatedGoal.at_most(epsilon), margin) for _, margin in goals)
    float32 = about["arithmetic"] == "float32"
    return _StoredQuery(partition=partition, index=index, z=z, z_prime=z_prime, shift=shift, goals=goals, float32=float32)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _within_limits(lower: Array, upper: Array, index: list[int], relax: dict[int, int]) -> bool:
    """Return True if the pairs and their shifts are few enough to be listed."""
    combinations = float(np.prod(upper[index] - lower[index] + 1))
    shifts = float(np.prod([2.0 * min(width, upper[v] - lower[v]) + 1 for v, width in relax.items()]))
    return combinations <= MAX_COMBINATIONS and combinations * (combinations - 1) / 2 * shifts <= MAX_QUESTIONS


def _pairs(lower: Array, upper: Array, index: list[int], relax: dict[int, int], differ: str) -> tuple[Array, Array, Array]:
    """Return unordered pairs of protected combinations in lexicographic order, each with every shift that fits in the box."""
    points = list(product(*(np.arange(lower[v], upper[v] + 1) for v in index)))
    compare = all if differ == "all" else any
    pairs = [(a, b) for k, a in enumerate(points) for b in points[k + 1 :] if compare(p != q for p, q in zip(a, b, strict=True))]
    reach = [min(width, int(upper[v] - lower[v])) for v, width in relax.items()]
    steps = list(product(*(range(-limit, limit + 1) for limit in reach)))
    shift = np.zeros((len(steps), len(lower)))
    shift[:, list(relax)] = np.array(steps, dtype=np.float64).reshape(len(steps), len(relax))
    z, z_prime = (np.array([pair[k] for pair in pairs for _ in steps], dtype=np.float64) for k in (0, 1))
    return z, z_prime, np.tile(shift, (len(pairs), 1))


def _check_parts(query: _StoredQuery, network: Model, schema: InputSpace, joined: _Parts) -> tuple[int, Any]:
    """Return the number of these parts, and: rejections, and numbers of statements, leaves, and proofs certified for float32."""
    rejects: list[Rejection] = []
    chunk = joined.chunk
    flaw = _shape_flaw(chunk, query)
    if flaw is not None:
        return len(chunk), ([Rejection(proof=chunk.first, reason=flaw)], 0, 0, 0)
    queries = query.questions(joined.part[chunk.status == PROVED])
    if len(chunk.size) != 2 * len(queries):
        return len(chunk), ([Rejection(proof=chunk.first, reason=f"{len(chunk.size)} trees for {len(queries)} questions")], 0, 0, 0)
    float32 = chunk.float32[np.searchsorted(joined.part, queries.part)] == 1
    if len(queries):
        trees = JoinedTrees(
            size=chunk.size, feature=chunk.feature, cut=chunk.cut, start=np.concatenate([[0], np.cumsum(chunk.count)]),
            index=chunk.index, value=chunk.value, float32=np.repeat(float32, 2), margin=np.full(len(chunk.size), np.nan),
        )
        doubled = queries.take(np.repeat(np.arange(len(queries)), 2))
        flaws = replay(network, schema.domain, query.tasks(doubled, np.tile([0, 1], len(queries))), trees)
        rejects += [Rejection(proof=int(queries.part[tree // 2]), reason=reason) for tree, reason in flaws.items()]
    rejects += _check_witnesses(joined, query, network, schema)
    leaves = int((chunk.feature == -1).sum())
    return len(chunk), (rejects, 2 * len(queries), leaves, 2 * int(float32.sum()))


def _shape_flaw(chunk: Chunk, query: _StoredQuery) -> str | None:
    """Return what is wrong with joined chunks before anything is proved, or None."""
    counts = ((chunk.size, chunk.feature, 1), (chunk.count, chunk.index, 0))
    if not len(chunk.feature) == len(chunk.cut) == len(chunk.count) or len(chunk.index) != len(chunk.value) or any(
        (size < minimum).any() or size.sum() != len(array) for size, array, minimum in counts
    ):
        return "its trees do not fit together"
    valid = len(chunk.float32) == len(chunk) and np.isin(chunk.float32, (0, 1)).all()
    if not valid or (chunk.status[chunk.float32 == 1] != PROVED).any():
        return "what is certified for float32 is not proved"
    if query.float32 and (chunk.float32[chunk.status == PROVED] == 0).any():
        return "the query asks for float32, and a proof is not certified for it"
    return None


def _check_witnesses(joined: _Parts, query: _StoredQuery, network: Model, schema: InputSpace) -> list[Rejection]:
    """Check every refuted part: is its x in the part, legal with its partner, and does the goal fail there, exactly?"""
    chunk, domain = joined.chunk, schema.domain
    parts = joined.part[chunk.status == VIOLATED]
    if not len(parts) == len(chunk.pair) == len(chunk.goal) == len(chunk.x):
        return [Rejection(proof=chunk.first, reason=f"{len(chunk.x)} witnesses for {len(parts)} refuted parts")]
    if not len(parts):
        return []
    if not ((chunk.pair >= 0) & (chunk.pair < len(query.z)) & np.isin(chunk.goal, (0, 1))).all():
        return [Rejection(proof=chunk.first, reason="a witness names a pair or direction that does not exist")]
    low, high = query.partition.boxes(parts)
    low[:, query.index] = high[:, query.index] = query.z[chunk.pair]
    prime = chunk.x + query.shift[chunk.pair]
    prime[:, query.index] = query.z_prime[chunk.pair]
    valid = ((chunk.x >= low) & (chunk.x <= high)).all(axis=1) & domain.legal(chunk.x) & domain.legal(prime)
    valid &= ((prime >= query.partition.lower) & (prime <= query.partition.upper)).all(axis=1)
    index = np.flatnonzero(valid)  # only legal rows are evaluated
    if len(index):
        queries = _PartQuestions(
            lower=chunk.x[index], upper=chunk.x[index], prime=prime[index], offset=query.shift[chunk.pair[index]], part=parts[index]
        )
        tasks = query.tasks(queries, chunk.goal[index])
        valid[index] = Points(network, domain, tasks).failing(np.arange(len(index)), chunk.x[index])
    return [
        Rejection(proof=part, reason=f"its witness x = {chunk.x[k].tolist()} is none")
        for k, part in enumerate(parts.tolist())
        if not valid[k]
    ]


def _statement(path: Path, schema: InputSpace, network: Model) -> str:
    """Return the file's statement in words."""
    with PartitionStore(path) as store:
        about, extent = store.about, store.extent
    protected, relax, box = (about.get(key) or () for key in ("protected", "relax", "box"))
    epsilon, names = about.get("epsilon"), " and ".join(map(str, protected))
    rule: Signs = "strict" if about.get("signs") == "strict" else "deployed"
    moves = moving("logit" if about.get("scale") == "logit" else "probability", network, schema)
    goal = "no decision flips" if epsilon is None else f"no {moves} by more than {epsilon}"
    pairs = f"with {names}" if len(protected) == 1 else f"with {about.get('differ')} of {names}"
    unanswered = ((extent.undecided, "are undecided"), (extent.not_reached, "were not reached"))
    left = "".join(f"; {count:,} {text}" for count, text in unanswered if count)
    try:
        near = "".join(f", and {name} by up to {width}," for name, width in dict(relax).items())
        place = where({name: (low, high) for name, (low, high) in dict(box).items()}, schema)
    except (TypeError, ValueError, AttributeError):
        near, place = "", "in a box that it does not describe"  # only for a file that is rejected
    near += decided(rule, network, schema) if epsilon is None else ""
    return (
        f"It states: {goal} {pairs}{near} in {extent.proved:,} of {extent.total:,} parts (size {about.get('size')}); it fails in "
        f"{extent.refuted:,} of them{left}; the parts lie {place}."
    )


KIND = Kind(format=FORMAT, counts="chunks", load=Path, check=check_partition, statement=_statement)
