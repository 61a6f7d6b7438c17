"""The certified share of a partition: the proved, refuted and open shares of a domain, and how they vary along features.

A store is read chunk by chunk, so memory does not grow with the number of parts. For proved chunks only the verdicts are read;
chunks with refuted or open parts are opened for their witnesses and reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from encoders.arrays import Array, Integers
from encoders.evaluate import gap
from encoders.probability.shares import probabilities
from verifair.checker.partition import UNKNOWN, VIOLATED, Chunk, Partition, PartitionStore, readable
from verifair.checker.report import Progress
from verifair.engine.partition import REASONS, describe, partition_of
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, box_of, goals_of
from verifair.engine.verdict import Witness
from verifair.engine.witness import witness_at
from verifair.errors import CertificateError, DataError, QueryError
from verifair.systems.hyfair.certify.result import Block, Float32Counts, PartCounts, PartitionSummary, RowCounts, VolumeShares
from verifair.systems.results.verdicts import WitnessShape

OUTCOMES = ("unknown", "proved", "violated", "not_reached")
"""Outcomes by their number in a store; parts that no chunk holds yet are not reached."""
NOT_REACHED = 3
MAX_EXAMPLES = 3
MAX_BLOCKS = 1 << 16
"""Blocks of a feature: of one with more, such as an income in cents, they are not counted one by one."""


def located(partition: Partition, raw: Array) -> Integers:
    """Return (N,) the number of the part that holds each raw row (N, V), -1 for rows outside the box."""
    part = np.zeros(len(raw), dtype=np.int64)
    for v, count in enumerate(partition.blocks):
        width = partition.width[v]
        part = part * count + (np.floor((raw[:, v] - partition.lower[v]) / width).astype(np.int64) if width else 0)
    in_box = ((raw >= partition.lower) & (raw <= partition.upper)).all(axis=1)
    return np.where(in_box, part, -1)


def partition_summary(
    path: str | Path,
    *,
    query: IndividualFairness,
    rows: Array | None = None,
    progress: Progress | None = None,
) -> PartitionSummary:
    """Summarise the store that `certify_partition` wrote for a query, which may be unfinished.

    rows: (N, V) raw rows of a table, to count by the parts that hold them.   progress: called with (parts read, all parts).
    Raises DataError for a store of another query, CertificateError for a broken one, and QueryError for rows together with relaxed
    features: a part then covers pairs by their first row only.
    """
    if rows is not None and query.relax:
        raise QueryError("rows cannot be weighed where features are relaxed: a pair may end in another part; drop one of the two")
    with PartitionStore(path) as store:
        box = box_of(query.schema, query.box)
        partition = _partition_of(store, query, box)
        row_parts = _RowParts.of(query, partition, rows)
        counts, volume = np.zeros(4, dtype=np.int64), np.zeros(4)
        features = np.flatnonzero((partition.blocks > 1) & (partition.blocks <= MAX_BLOCKS)).tolist()
        blocks = {v: np.zeros((partition.blocks[v], NOT_REACHED), np.int64) for v in features}
        totals = _Totals(query=query, pairs=Pairs.of(query, *box))
        for first, status in _statuses(store, partition.count):
            part = np.arange(first, first + len(status))
            counts += np.bincount(status, minlength=4)
            volume += np.bincount(status, weights=partition.volume(part), minlength=4)
            _count_blocks(blocks, partition, part, status)
            row_parts.settle(first, status)
            if (status == UNKNOWN).any() or (status == VIOLATED).any():
                totals.read(store.chunk(first))
            if progress is not None:
                progress(first + len(status), partition.count)
        counts[NOT_REACHED] = partition.count - counts.sum()
        volume[NOT_REACHED] = 1 - volume.sum()
        # Removes rounding errors.
        volume = np.where(counts == 0, 0.0, np.where(counts == partition.count, 1.0, np.clip(volume, 0, 1)))
        with readable(store.path):
            nodes, seconds = store.connection.execute("SELECT SUM(nodes), SUM(seconds) FROM chunks").fetchone()
            return PartitionSummary(
                about=store.about,
                parts=PartCounts(**dict(zip(OUTCOMES, counts.tolist(), strict=True))),
                volume=VolumeShares(**dict(zip(OUTCOMES, volume.tolist(), strict=True))),
                rows=row_parts.counts(),
                reasons={REASONS[k]: int(n) for k, n in enumerate(totals.reasons) if n},
                float32=Float32Counts(**dict(zip(("agrees", "disagrees", "not_replayed"), totals.float32.tolist(), strict=True))),
                certified_for_float32=sum(store.certified().values()),
                nodes=int(nodes or 0),
                work_seconds=float(seconds or 0.0),
                blocks=tuple(_block(query, partition, v, block_counts) for v, block_counts in blocks.items()),
                examples=tuple(WitnessShape.model_validate(totals.witness(witness)) for witness in totals.starkest),
            )


def _partition_of(store: PartitionStore, query: IndividualFairness, box: tuple[Array, Array]) -> Partition:
    size = store.about.get("size")
    if not isinstance(size, int) or {k: v for k, v in store.about.items() if k != "format"} != describe(query, size, box):
        raise DataError(f"{store.path}: holds another question; pass the same model, schema and options as it was made with")
    return partition_of(query, size, box)


def _statuses(store: PartitionStore, count: int) -> Iterator[tuple[int, Integers]]:
    """Yield the store's verdicts in order, every part at most once."""
    end = 0
    for first, status in store.statuses():
        if first < end or first + len(status) > count or not np.isin(status, (0, 1, 2)).all():
            raise CertificateError(f"{store.path}: the chunk of part {first} does not fit the partition; see `verifair check`")
        end = first + len(status)
        yield first, status.astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _RowParts:
    """Rows of a table by the parts that hold them. part, outcome: (N,), sorted by part, rows outside first (part -1)."""

    part: Integers
    outcome: Integers
    given: bool

    @classmethod
    def of(cls, query: IndividualFairness, partition: Partition, rows: Array | None) -> _RowParts:
        if rows is None:
            return cls(part=np.empty(0, dtype=np.int64), outcome=np.empty(0, dtype=np.int64), given=False)
        part = np.sort(np.where(query.schema.inside(rows), located(partition, rows), -1))
        return cls(part=part, outcome=np.full(len(part), NOT_REACHED), given=True)

    def settle(self, first: int, status: Integers) -> None:
        low, high = np.searchsorted(self.part, (first, first + len(status)))
        self.outcome[low:high] = status[self.part[low:high] - first]

    def counts(self) -> RowCounts | None:
        in_box = np.bincount(self.outcome[self.part >= 0], minlength=4)
        counts = dict(zip(OUTCOMES, in_box.tolist(), strict=True))
        return RowCounts(**counts, outside=int((self.part < 0).sum())) if self.given else None


def _block(query: IndividualFairness, partition: Partition, v: int, parts: Integers) -> Block:
    """Return a feature's blocks.   parts: (B, 3) number of reached parts in each block, by outcome."""
    low = partition.lower[v] + np.arange(partition.blocks[v]) * float(partition.width[v])
    high = np.minimum(low + partition.width[v] - 1, partition.upper[v])
    outcomes = dict(zip(OUTCOMES, parts.T, strict=False))
    return Block(feature=query.schema.features[v].name, low=low, high=high, **outcomes)


def _count_blocks(blocks: dict[int, Integers], partition: Partition, part: Integers, status: Integers) -> None:
    rest = part
    for v in range(len(partition.blocks) - 1, -1, -1):
        rest, digit = np.divmod(rest, partition.blocks[v])
        if v in blocks:
            np.add.at(blocks[v], (digit, status), 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class _StoredWitness:
    """One witness as a store holds it.   rank: in its chunk, 0 for the largest change.   apart: difference of the two
    probabilities."""

    rank: int
    apart: float
    x: Array
    margins: Array
    pair: int
    goal: int
    agrees: int


@dataclass(kw_only=True, eq=False)
class _Totals:
    """Totals over the chunks with witnesses and open parts."""

    query: IndividualFairness
    pairs: Pairs
    reasons: Integers = field(default_factory=lambda: np.zeros(len(REASONS), dtype=np.int64))
    float32: Integers = field(default_factory=lambda: np.zeros(3, dtype=np.int64))
    starkest: list[_StoredWitness] = field(default_factory=list)

    def read(self, chunk: Chunk) -> None:
        if not self._fits(chunk):
            raise CertificateError(f"the chunk of part {chunk.first} does not fit together; see `verifair check`")
        self.reasons += np.bincount(chunk.reason[chunk.status == UNKNOWN], minlength=len(REASONS))
        self.float32 += [int((chunk.agrees == code).sum()) for code in (1, 0, -1)]
        changes = np.abs(np.diff(probabilities(self.query.model, chunk.margins))[:, 0])
        witnesses = [
            _StoredWitness(
                rank=rank, apart=float(changes[w]), x=chunk.x[w].copy(), margins=chunk.margins[w].copy(), pair=int(chunk.pair[w]),
                goal=int(chunk.goal[w]), agrees=int(chunk.agrees[w]),
            )
            for rank, w in enumerate(np.argsort(-changes, kind="stable")[:MAX_EXAMPLES].tolist())
        ]
        # One of each chunk first: the witnesses with the largest changes are often neighbours.
        self.starkest = sorted(self.starkest + witnesses, key=lambda witness: (witness.rank, -witness.apart))[:MAX_EXAMPLES]

    def _fits(self, chunk: Chunk) -> bool:
        """Return True if a chunk's arrays have consistent lengths, and its witnesses are pairs of legal rows."""
        domain, reason = self.query.schema.domain, chunk.reason
        lengths = {len(chunk.x), len(chunk.margins), len(chunk.agrees), len(chunk.pair), len(chunk.goal)}
        shapes = chunk.x.shape[1] == domain.variables and chunk.margins.shape[1] == 2
        if len(lengths) != 1 or not shapes or len(reason) != len(chunk):
            return False
        goals = len(goals_of(self.query))
        valid = (chunk.pair >= 0) & (chunk.pair < len(self.pairs.z)) & (chunk.goal >= 0) & (chunk.goal < goals)
        reasons_known = np.isin(reason[chunk.status == UNKNOWN], range(len(REASONS)))
        if not (valid.all() and np.isfinite(chunk.margins).all() and reasons_known.all()):
            return False
        return bool((domain.legal(chunk.x) & domain.legal(self._second(chunk.x, chunk.pair))).all())

    def _second(self, x: Array, pair: Integers) -> Array:
        """Return the other rows x' (W, V) of raw rows x (W, V)."""
        second = x + self.pairs.shift[pair]
        second[:, self.pairs.index] = self.pairs.z_prime[pair]
        return second

    def witness(self, stored: _StoredWitness) -> Witness:
        goal, margins = goals_of(self.query)[stored.goal], stored.margins
        x_prime = self._second(stored.x[None], np.array([stored.pair]))[0]
        values = goal.rows @ margins + goal.constants
        value = float(values.max()) if goal.gap is None else goal.gap.epsilon - float(gap(margins, goal.gap))
        return witness_at(
            self.query.schema, self.query.model, np.stack([stored.x, x_prime]), (float(margins[0]), float(margins[1])),
            margin=value, agrees=None if stored.agrees < 0 else bool(stored.agrees),
        )
