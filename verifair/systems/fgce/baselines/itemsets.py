"""Binned features and the sets of their values that are frequent in the data: the predicates of AReS' rules.

An item is "feature v takes this value" or, for numbers of many values, "lies in this bin". Itemsets are grown level by level
(apriori): a set is extended by an item of a later feature, and all extensions of a level are counted in one matrix product.
Reference: Agrawal and Srikant (1994); AReS (Rawal and Lakkaraju, NeurIPS 2020), section 3 (candidate sets).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.network import Array, Booleans, Integers
from verifair.schema.schema import Schema

ROWS = 4096
Itemset = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """I items. feature: (I,).   low, high: (I,) values that it holds for, equal for a single value; a top bin holds its end too.

    value: (I,) the single value, or the bin's middle.   binned: (I,) it is a bin.   last: (I,) it is the top bin of its feature.
    """

    schema: Schema
    feature: Integers
    low: Array
    high: Array
    binned: Booleans
    last: Booleans

    @classmethod
    def of(cls, schema: Schema, raw: Array, bins: int) -> Items:
        """Numbers of more than `bins` values in the rows (N, V) are cut into `bins` parts of equal width, others kept."""
        feature, low, high, binned, last = [], [], [], [], []
        for v, described in enumerate(schema.features):
            values = np.unique(raw[:, v])
            cut = described.numeric and len(values) > bins
            edges = np.linspace(values[0], values[-1], bins + 1)
            begin, end = (edges[:-1], edges[1:]) if cut else (values, values)
            feature.append(np.full(len(begin), v))
            low.append(begin)
            high.append(end)
            binned.append(np.full(len(begin), cut))
            last.append(np.arange(len(begin)) == len(begin) - 1)
        return cls(
            schema=schema, feature=np.concatenate(feature), low=np.concatenate(low), high=np.concatenate(high),
            binned=np.concatenate(binned), last=np.concatenate(last),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def value(self) -> Array:
        return (self.low + self.high) / 2

    def hold(self, rows: Array) -> Booleans:
        """(n, I) which items hold for raw rows (n, V)."""
        x = rows[:, self.feature]
        inside = (x >= self.low) & np.where(self.binned & ~self.last, x < self.high, x <= self.high)
        return np.asarray(inside)

    def words(self, item: int) -> str:
        """ "age in 20 .. 25" or "sex = F"."""
        feature = self.schema.features[self.feature[item]]
        if self.binned[item]:
            return f"{feature.name} in {self.low[item]:.4g} .. {self.high[item]:.4g}"
        return f"{feature.name} = {feature.word(self.low[item])}"


def frequent(items: Items, raw: Array, support: float, width: int, allowed: Booleans) -> list[Itemset]:
    """All sets of at most `width` allowed (I,) items, of different features, that hold for this share of the rows (N, V)."""
    need = support * len(raw) - 1e-9
    kept = np.flatnonzero(allowed)
    level: list[Itemset] = [()]
    out: list[Itemset] = []
    for _ in range(width):
        counts = _extensions(items, raw, level, kept)
        last = np.array([items.feature[one[-1]] if one else -1 for one in level])
        later = items.feature[kept][None, :] > last[:, None]
        level = [(*level[s], int(kept[i])) for s, i in zip(*np.nonzero((counts >= need) & later), strict=True)]
        out += level
        if not level:
            break
    return out


def _extensions(items: Items, raw: Array, sets: Sequence[Itemset], kept: Integers) -> Array:
    """(S, K) for how many rows each set holds together with each kept item (K,)."""
    counts = np.zeros((len(sets), len(kept)))
    for start in range(0, len(raw), ROWS):
        held = items.hold(raw[start : start + ROWS])
        counts += meets(held, sets).T.astype(np.float32) @ held[:, kept].astype(np.float32)
    return counts


def meets(held: Booleans, sets: Sequence[Itemset]) -> Booleans:
    """(n, S) which sets hold for rows whose items are given (n, I). Sets of one call may differ in size."""
    padded = np.column_stack([held, np.ones(len(held), dtype=bool)])  # the extra item, always true, fills short sets
    width = max((len(one) for one in sets), default=0)
    out = np.ones((len(held), len(sets)), dtype=bool)
    for w in range(width):
        out &= padded[:, [one[w] if w < len(one) else -1 for one in sets]]
    return out
