"""Stores of partitions taken apart and written again: whole, in pieces of any size, or as somebody would forge them."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from verifair.checker.partition import PROVED, VIOLATED, Chunk, PartitionStore
from verifair.engine.partition import partition_of
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, box_of


def contents(path: Path) -> tuple[dict[str, Any], list[Chunk]]:
    """What a store is about, without its format, and its chunks."""
    with PartitionStore(path) as store:
        return {key: value for key, value in store.about.items() if key != "format"}, list(store.chunks())


def written(path: Path, about: dict[str, Any], chunks: Iterable[Chunk]) -> Path:
    """A store of these chunks that states what they hold."""
    path.unlink(missing_ok=True)
    with PartitionStore(path, about) as store:
        for chunk in chunks:
            store.add(chunk)
    return path


def stated(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as file:
        found: dict[str, Any] = json.loads(file.execute("SELECT value FROM extent").fetchone()[0])
        return found


def state(path: Path, extent: dict[str, Any]) -> None:
    """Write down an extent, true or not."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE extent SET value = ?", (json.dumps(extent),))
        file.commit()


def pieces(chunk: Chunk, query: IndividualFairness, size: int, most: int) -> Iterator[Chunk]:
    """The same verdicts and evidence in chunks of at most `most` parts. size: values a block of the partition."""
    status, box = chunk.status, box_of(query.schema, query.box)
    partition = partition_of(query, size, box)
    lower, upper = partition.boxes(chunk.first + np.flatnonzero(status == PROVED))
    _, which, _ = Pairs.of(query, *box).batch(query.schema.domain, lower, upper, box)
    part = np.flatnonzero(status == PROVED)[which]
    nodes, entries, found = _ends(chunk.size), _ends(chunk.count), _ends(status == VIOLATED)
    for a in range(0, len(chunk), most):
        b = min(a + most, len(chunk))
        q, w = slice(*(2 * np.searchsorted(part, [a, b]))), slice(found[a], found[b])
        n = slice(nodes[q.start], nodes[q.stop])
        e = slice(entries[n.start], entries[n.stop])
        yield replace(
            chunk, first=chunk.first + a, status=status[a:b], reason=chunk.reason[a:b], float32=chunk.float32[a:b],
            size=chunk.size[q], feature=chunk.feature[n], cut=chunk.cut[n], count=chunk.count[n], index=chunk.index[e],
            value=chunk.value[e],
            pair=chunk.pair[w], goal=chunk.goal[w], x=chunk.x[w], margins=chunk.margins[w], agrees=chunk.agrees[w],
        )


def _ends(count: Any) -> Any:
    return np.concatenate([[0], np.cumsum(count)])
