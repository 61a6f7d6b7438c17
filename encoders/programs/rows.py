"""Blocks of rows as arrays, and how they are stacked into one sparse matrix: no loop over rows or neurons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from encoders.network import Array, Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class RowBlock:
    """A block of m rows with k entries each: columns, values (m, k); limits lower, upper (m,)."""

    columns: Integers
    values: Array
    lower: Array
    upper: Array

    @classmethod
    def of(cls, columns: list[Integers], values: list[Array | float], lower: Array | float, upper: Array | float) -> RowBlock:
        """Rows with entry j at columns[j] (m,), a value or limit given once for all rows or (m,)."""
        m = len(columns[0])
        return cls(
            columns=np.stack(columns, axis=1),
            values=np.stack([np.broadcast_to(v, m) for v in values], axis=1),
            lower=np.broadcast_to(lower, m),
            upper=np.broadcast_to(upper, m),
        )


def matrix(blocks: list[RowBlock], width: int) -> tuple[sp.csr_array, Array, Array]:
    """Stack blocks of rows into one CSR array over `width` columns, with the limits of its rows."""
    nothing = RowBlock(columns=np.empty((0, 0), dtype=np.int64), values=np.empty((0, 0)), lower=np.empty(0), upper=np.empty(0))
    blocks = [nothing, *blocks]
    counts = np.concatenate([np.full(len(b.lower), b.columns.shape[1], dtype=np.int64) for b in blocks])
    starts = np.concatenate([[0], np.cumsum(counts)])
    data = np.concatenate([block.values.ravel() for block in blocks])
    indices = np.concatenate([block.columns.ravel() for block in blocks])
    rows = sp.csr_array((data, indices, starts), shape=(len(counts), width))
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows, np.concatenate([b.lower for b in blocks]), np.concatenate([b.upper for b in blocks])
