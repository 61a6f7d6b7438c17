"""Disparate Impact Remover: every number is repaired to the median of the groups' distributions.

Feldman, Friedler, Moeller, Scheidegger and Venkatasubramanian, "Certifying and removing disparate impact" (KDD 2015), section 5: a
value at quantile q of its group becomes median_g F_g^-1(q), so that the repaired feature says nothing about the group, while the
order within a group stays. Partial repair moves a share of the way (their geometric repair). Written from the paper: only numbers
are repaired, and the columns of the sensitive feature itself, which the paper takes away, are set to their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Integers
from verifair.errors import DataError, TrainingError
from verifair.systems.cec.people import People


@dataclass(frozen=True, kw_only=True, eq=False)
class Repair:
    """columns: (C,) to repair.   values: for each group the sorted values (n_g, C) of the rows it was fitted on.
    hidden: (H,) columns of the sensitive feature, mean: (H,) what they become.   level: 0 (nothing) to 1 (full repair)."""

    columns: Integers
    values: tuple[Array, ...]
    hidden: Integers
    mean: Array
    level: float

    @classmethod
    def of(cls, people: People, columns: Integers, hidden: Integers, level: float = 1.0) -> Repair:
        """Fit on these people. Raises TrainingError for a level outside 0 .. 1, DataError for a group without rows."""
        if not 0 <= level <= 1:
            raise TrainingError(f"repair level = {level}, expected a number in 0 .. 1: 0 changes no number, 1 repairs fully")
        values = tuple(np.sort(people.x[people.groups == group][:, columns], axis=0) for group in range(len(people.names)))
        empty = [name for name, rows in zip(people.names, values, strict=True) if not len(rows)]
        if empty:
            raise DataError(f"group {empty[0]!r} has no rows to fit the repair on; add rows of it, or leave the group out")
        return cls(columns=columns, values=values, hidden=hidden, mean=people.x[:, hidden].mean(axis=0), level=level)

    def apply(self, people: People) -> People:
        """Return the people as a repaired classifier sees them; a value that its group never had gets the rank it would have
        there."""
        x = people.x.copy()
        x[:, self.hidden] = self.mean
        for group, known in enumerate(self.values):
            rows = np.flatnonzero(people.groups == group)
            for k, column in enumerate(self.columns):
                old = x[rows, column]
                x[rows, column] = (1 - self.level) * old + self.level * self._median(k, _ranks(known[:, k], old))
        return people.fed(x)

    def _median(self, k: int, quantile: Array) -> Array:
        """Return median_g F_g^-1(q) of column k, for quantiles (B,)."""
        inverse = [np.quantile(known[:, k], quantile, method="inverted_cdf") for known in self.values]
        return np.asarray(np.median(np.stack(inverse), axis=0))


def _ranks(known: Array, values: Array) -> Array:
    """Return the quantile (B,) of values among sorted known ones (n,): the middle of the ranks of equal ones."""
    return np.asarray((np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")) / (2 * len(known)))
