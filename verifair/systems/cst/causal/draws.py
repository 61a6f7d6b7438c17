"""Random numbers that belong to a row and a node, so that no answer depends on the other rows of a query or on their order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.arrays import Array, Booleans

STEP = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio, odd: multiples of it are spread evenly (as in splitmix64)."""
WITHIN = 0xD1342543DE82EF95
"""Another odd number, for rows that share a label."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """keys: (N,) a number for each row and one node."""

    keys: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, index: pd.Index, *, node: str, seed: int) -> Draws:
        """Return keys of a table's rows: a hash of the row's label, the node's name and the seed.

        Rows that share a label are numbered in their order among each other.
        """
        labels = pd.util.hash_pandas_object(index, index=False).to_numpy()
        if not index.is_unique:
            order = pd.Series(labels).groupby(labels).cumcount().to_numpy().astype(np.uint64)
            labels = labels + order * np.uint64(WITHIN)
        return cls(keys=pd.util.hash_array(labels ^ pd.util.hash_array(np.array([f"{seed} {node}"], dtype=object))))

    def take(self, rows: Booleans | slice) -> Draws:
        """Only some of the rows, with the numbers they have among all."""
        return Draws(keys=self.keys[rows])

    def uniform(self, columns: int) -> Array:
        """(N, columns) numbers in (0, 1), 53 bits each."""
        result = np.empty((len(self.keys), columns))
        for column in range(columns):
            bits = pd.util.hash_array(self.keys + np.uint64((column + 1) * STEP % 2**64))  # splitmix64's finaliser
            result[:, column] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
        return result
