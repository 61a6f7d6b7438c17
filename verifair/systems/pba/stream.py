"""The rows of a run, chunk by chunk: raw values, true classes, and the network's decisions on them and on counterfactuals.

A first pass reads and checks every row and hashes each chunk; it does not run the network, which would take six times as long.
Later passes read the chunks again: a run holds one chunk at a time, or the whole of a small table.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, zip_longest

import numpy as np
import pandas as pd

from encoders.arrays import Array, Integers
from encoders.model import Model
from verifair.datasets.stream import Stream
from verifair.engine.exchange import Exchange
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.questions import decisions
from verifair.errors import DataError
from verifair.schema.schema import Schema

HELD = 1 << 16
"""Rows of a table that is held instead of being read again."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledRows:
    """Rows as the engine takes them: raw (N, V), labels (N,) true classes.

    judge: raw rows (B, V) -> the network's decisions (B,).   start: position in the table of a chunk's first row.
    """

    raw: Array
    labels: Integers
    judge: Callable[[Array], Integers]
    start: int = 0
    _exchanged: dict[tuple[str, float], tuple[Integers, Integers]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, network: Model, schema: Schema, frame: pd.DataFrame, *, names: Collection[str] | None = None) -> LabelledRows:
        """Return the rows of a table. Raises DataError for rows that do not fit the schema or its ranges.   names: as in
        `Schema.labels`."""
        return cls(raw=schema.raw(frame), labels=schema.labels(frame, names=names), judge=judge(network, schema))

    @cached_property
    def predicted(self) -> Integers:
        """(N,) the network's decisions."""
        return self.judge(self.raw)

    def counterfactuals(self, exchange: Exchange, number: float) -> tuple[Integers, Integers]:
        """Return the rows (E,) that have a counterfactual with these values, by place, and the network's decisions (E,) on these.

        Only rows that differ in all of the values, and whose counterfactual the schema's constraints allow. Decisions are cached.
        """
        if (exchange.name, number) not in self._exchanged:
            rows = np.flatnonzero(exchange.apart(self.raw, number))
            variants = exchange.put(self.raw[rows], np.full(len(rows), number))
            legal = exchange.schema.inside(variants)
            self._exchanged[exchange.name, number] = rows[legal], self.judge(variants[legal])
        return self._exchanged[exchange.name, number]

    def eligible(self, query: PersistentBias | Robustness, kind: str) -> tuple[Integers, Array]:
        """Return rows (E,) to ask about, by their places in this chunk, and the number (E,) of each one's counterfactual in the
        exchange (its own where none is involved), row by row."""
        is_correct, exchange = self.predicted == self.labels, query.exchange
        if exchange is None or kind == "robust":
            rows = np.flatnonzero(is_correct)
            return rows, exchange.of_rows(self.raw[rows]) if exchange else np.zeros(len(rows))
        row_parts, value_parts = [], []
        for value in exchange.numbers:
            rows, decided = self.counterfactuals(exchange, value)
            stays_correct = decided == self.labels[rows]
            rows = rows[stays_correct & is_correct[rows]] if kind == "bias" else rows[stays_correct]
            row_parts.append(rows)
            value_parts.append(np.full(len(rows), float(value)))
        all_rows, values = np.concatenate(row_parts), np.concatenate(value_parts)
        order = np.lexsort((values, all_rows))
        return all_rows[order], values[order]

    def take(self, low: int, high: int) -> LabelledRows:
        """Return the rows at places low .. high - 1, as a chunk."""
        return replace(self, raw=self.raw[low:high], labels=self.labels[low:high], start=self.start + low, _exchanged={})

    @property
    def content(self) -> bytes:
        """Return the raw values and the labels, row by row."""
        return np.column_stack([self.raw, self.labels]).tobytes()

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.content).digest()


def judge(network: Model, schema: Schema) -> Callable[[Array], Integers]:
    """Return the function that decides on raw rows."""
    return lambda raw: decisions(network, schema.encode(raw))


KINDS = {"bias": ("observed", "flipped"), "robust": ("robust",), "robust-flipped": ("robust-flipped",)}
"""Kind of a question about a row -> the goals that are decided together."""


def kinds(query: PersistentBias | Robustness) -> tuple[str, ...]:
    """Return the kinds of questions (goals) that a query asks of rows."""
    if isinstance(query, PersistentBias):
        return ("bias",)
    return ("robust", "robust-flipped") if query.protected else ("robust",)


def sensitive_of(query: PersistentBias | Robustness) -> str:
    """Return the name of a query's sensitive features in verdicts; "" without any."""
    return query.exchange.name if query.exchange else ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rates:
    """Rates of favourable decisions for the groups of an exchange, counted chunk by chunk.

    hits, rows: (4, K) for each rate and group, the number of rows that count, and of all rows.
    """

    exchange: Exchange
    hits: Integers
    rows: Integers

    NAMES = ("SP", "TPR", "FPR", "CFA")

    @classmethod
    def of(cls, exchange: Exchange) -> Rates:
        shape = (len(cls.NAMES), len(exchange.numbers))
        return cls(exchange=exchange, hits=np.zeros(shape, np.int64), rows=np.zeros(shape, np.int64))

    def add(self, table: LabelledRows) -> Rates:
        """Add the rows of a table, and return the sum."""
        exchange, count = self.exchange, len(self.exchange.numbers)
        group = np.searchsorted(exchange.numbers, exchange.of_rows(table.raw))
        positive, actual = (exchange.schema.outcome.favourable(classes) for classes in (table.predicted, table.labels))
        all_rows = np.arange(len(group))
        pairs = [table.counterfactuals(exchange, number) for number in exchange.numbers]
        selections = [(0, all_rows, positive), (1, all_rows[actual], positive[actual]), (2, all_rows[~actual], positive[~actual])]
        for rate, rows, hit in selections + [(3, rows, decided == table.predicted[rows]) for rows, decided in pairs]:
            self.hits[rate] += np.bincount(group[rows[hit]], minlength=count)
            self.rows[rate] += np.bincount(group[rows], minlength=count)
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class DecisionCounts:
    """Counts of the network's decisions on the rows of a run.

    rows: number of rows.   right: number of rows that it predicts as labelled.   highest: the highest class among labels and
    predictions. eligible: (kind, sensitive) -> number of rows to ask about, each with every counterfactual.
    rates: of the groups of each exchange.
    """

    rows: int
    right: int
    highest: int
    eligible: Counter[tuple[str, str]]
    rates: tuple[Rates, ...]

    @classmethod
    def of(
        cls, tables: Iterable[LabelledRows], queries: Sequence[PersistentBias | Robustness], exchanges: Sequence[Exchange] = ()
    ) -> DecisionCounts:
        rows = right = highest = 0
        eligible, rates = Counter[tuple[str, str]](), tuple(map(Rates.of, exchanges))
        queries_by_kind = {(kind, sensitive_of(query)): query for query in queries for kind in kinds(query)}
        for table in tables:
            rows += len(table.raw)
            right += int((table.labels == table.predicted).sum())
            highest = max(highest, int(table.labels.max(initial=0)), int(table.predicted.max(initial=0)))
            for (kind, name), query in queries_by_kind.items():
                eligible[kind, name] += len(table.eligible(query, kind)[0])
            for group_rates in rates:
                group_rates.add(table)
        return cls(rows=rows, right=right, highest=highest, eligible=eligible, rates=rates)

    def verdicts(self, query: PersistentBias | Robustness, classes: int) -> int:
        """Return the number of verdicts of a query that was counted."""
        goals = sum(self.eligible[kind, sensitive_of(query)] * len(KINDS[kind]) for kind in kinds(query))
        return goals * (classes - 1) * len(query.delta)

    @property
    def doubt(self) -> str | None:
        """A warning if the network predicts the labels worse than a coin: two classes were probably confused. None otherwise."""
        share = self.right / self.rows if self.rows else 1.0
        if share >= 0.5 or self.highest > 1:
            return None
        return (
            f"The network predicts the true outcome of only {share:.1%} of these people: is its positive class really the outcome "
            "that the schema calls positive (positive_label)? If not, all that follows is about the opposite outcome."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TableStream:
    """All rows of a run, and the results of the first pass over them.

    chunks(): yields the rows.   rows: their number.   sha256: of all raw values and labels, independent of the chunks.
    digests: of the chunks.   queries, exchanges: whose questions and groups are counted.
    groups: for each exchange, (K,) number of rows in each group.
    """

    chunks: Callable[[], Iterable[LabelledRows]]
    rows: int
    sha256: str
    digests: tuple[bytes, ...]
    queries: Sequence[PersistentBias | Robustness]
    exchanges: Sequence[Exchange]
    groups: tuple[Integers, ...]

    @classmethod
    def of(
        cls, network: Model, schema: Schema, source: Stream, queries: Sequence[PersistentBias | Robustness] = (),
        exchanges: Sequence[Exchange] = (),
    ) -> TableStream:  # fmt: skip
        """Read the rows once, and return their stream.

        Raises DataError for rows that do not fit the schema, and for rows outside its ranges.
        """
        names = schema.label_names(source.chunks())

        def chunks() -> Iterator[LabelledRows]:
            start = 0
            for table in source.each(lambda frame: LabelledRows.of(network, schema, frame, names=names)):
                yield replace(table, start=start)
                start += len(table.raw)

        return cls.passed(chunks, queries, exchanges)

    @classmethod
    def passed(
        cls, chunks: Callable[[], Iterable[LabelledRows]], queries: Sequence[PersistentBias | Robustness] = (),
        exchanges: Sequence[Exchange] = (),
    ) -> TableStream:  # fmt: skip
        """Return the stream of rows that are read already, or that `chunks` reads."""
        buffer: list[LabelledRows] = []
        rows, digest, digests = 0, hashlib.sha256(), []
        groups = tuple(np.zeros(len(exchange.numbers), np.int64) for exchange in exchanges)
        for table in chunks():
            rows += len(table.raw)
            buffer = [*buffer, table] if rows <= HELD else []
            digest.update(table.content)
            digests.append(table.digest)
            for exchange, people in zip(exchanges, groups, strict=True):
                people += (exchange.of_rows(table.raw)[:, None] == np.array(exchange.numbers)).sum(axis=0)
        return cls(
            chunks=(lambda: buffer) if rows <= HELD else chunks, rows=rows, sha256=digest.hexdigest(), digests=tuple(digests),
            queries=queries, exchanges=exchanges, groups=groups,
        )

    @property
    def held(self) -> bool:
        return self.rows <= HELD

    @cached_property
    def counts(self) -> DecisionCounts:
        """Counts of the network's decisions on all rows, from a separate pass."""
        return DecisionCounts.of(self, self.queries, self.exchanges)

    def expected(self, query: PersistentBias | Robustness, classes: int) -> int:
        """Return the expected number of verdicts of a query, estimated from the first chunk until all rows are counted.

        A table that is held in memory is counted at once, as the network's decisions are kept with it.
        """
        if self.held or "counts" in vars(self):
            return self.counts.verdicts(query, classes)
        first = DecisionCounts.of(islice(self, 1), [query])
        return first.verdicts(query, classes) * self.rows // max(first.rows, 1)

    def __iter__(self) -> Iterator[LabelledRows]:
        """Yield the chunks. Raises DataError if they have changed since the first pass."""
        for table, digest in zip_longest(self.chunks(), self.digests):
            if table is None or table.digest != digest:
                raise DataError("the table was changed while it was read; start again, on a copy that nothing writes to")
            yield table

    def pieces(self, rows: int) -> Iterator[LabelledRows]:
        """Yield all rows in tables of `rows` rows, independent of the chunks; the last may be shorter."""
        buffer, remaining = list[LabelledRows](), rows
        for table in self:
            low = 0
            while low < len(table.raw):
                buffer.append(table.take(low, low + remaining))
                low, remaining = low + len(buffer[-1].raw), remaining - len(buffer[-1].raw)
                if remaining == 0:
                    yield _join(buffer)
                    buffer, remaining = [], rows
        if buffer:
            yield _join(buffer)


def _join(tables: Sequence[LabelledRows]) -> LabelledRows:
    raw, labels = (np.concatenate([getattr(table, name) for table in tables]) for name in ("raw", "labels"))
    return replace(tables[0], raw=raw, labels=labels, _exchanged={})
