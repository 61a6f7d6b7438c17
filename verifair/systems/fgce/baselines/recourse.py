"""The result of AReS and GLOBE-CE: one counterfactual row for every factual that they can help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from verifair.errors import DataError, QueryError
from verifair.systems.fgce.space import FeatureSpace

Positive = Callable[[Array], Booleans]
"""(n, V) raw rows -> (n,) which are decided positively."""
ROWS = 1 << 12
"""Rows decided at once: few enough to stay in the cache (three times as fast as 2^16 on Adult)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupRecourse:
    """counterfactuals: (n, V) raw rows in the order of the factuals, each legal and decided positively; NaN where there is none.

    name: of the method.   size: number of rules or translations.   rules: each in words.
    """

    name: str
    counterfactuals: Array
    size: int
    rules: tuple[str, ...]

    @property
    def helped(self) -> Booleans:
        """(n,) factuals with a counterfactual."""
        return np.asarray(~np.isnan(self.counterfactuals).any(axis=1))

    @property
    def share(self) -> float:
        """Share of the factuals that have a counterfactual, feasible or not."""
        return float(self.helped.mean())

    @property
    def distinct(self) -> int:
        """Number of different counterfactual rows."""
        return len(np.unique(self.counterfactuals[self.helped], axis=0))


def accepted(space: FeatureSpace, positive: Positive, rows: Array) -> Booleans:
    """Return (n,) True for raw rows (n, V) that the schema allows and that are decided positively. Illegal rows are not passed to
    the model."""
    ok = np.array(space.schema.inside(rows), dtype=bool)
    legal = np.flatnonzero(ok)
    for start in range(0, len(legal), ROWS):
        part = legal[start : start + ROWS]
        ok[part] = np.asarray(positive(rows[part]), dtype=bool).ravel()
    return ok


def check_factuals(space: FeatureSpace, positive: Positive, factuals: Array, method: str) -> None:
    """Raise DataError unless there are factuals and all are decided negatively: a positive one needs no recourse."""
    if not len(factuals):
        raise DataError(f"{method}: there are no rows to be explained; pass rows with the negative decision")
    wrong = accepted(space, positive, factuals)
    if wrong.any():
        raise DataError(
            f"{method}: {int(wrong.sum())} of the {len(factuals)} rows to be explained are decided positively already, first row "
            f"{int(np.flatnonzero(wrong)[0])}; pass rows with the negative decision only"
        )


def actionable(space: FeatureSpace, names: Sequence[str] | None) -> Integers:
    """Return (m,) features that a method may change: those named, else all that are neither protected nor fixed.

    Raises SchemaError for an unknown name, QueryError for a protected one, or when nothing is left.
    """
    features = space.schema.features
    chosen = range(len(features)) if names is None else [space.schema.index(name) for name in names]
    taboo = [features[v].name for v in chosen if features[v].protected]
    if names is not None and taboo:
        raise QueryError(f"actionable names {', '.join(taboo)}, which the schema protects: no advice may change it; drop the name")
    kept = [v for v in chosen if not features[v].protected and (names is not None or space.changes[v] != "fixed")]
    if not kept:
        raise QueryError('there is no feature to change: all are protected or fixed; free some (change = "free")')
    return np.array(sorted(kept), dtype=np.int64)
