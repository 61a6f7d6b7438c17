"""The assignment of people to counterfactuals, and the attributes that change: how often (ACF) and by how much.

Reference: FGCE, section IV and appendix B.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from encoders.arrays import Array, Integers
from verifair.checker.certificates.centers import up_to
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.cover import within
from verifair.systems.fgce.space import FeatureSpace

MAX_DISTINCT, BINS = 100, 6
"""Different values of a number above which attribute changes see bins of it, and how many bins, as in the authors' code."""


def assignment(instance: Instance, chosen: Integers, cost: float = np.inf) -> tuple[Integers, Array]:
    """Return (F,) the cheapest chosen node for each factual, -1 if none is within `cost`, and its cost (F,)."""
    if not len(chosen):
        return np.full(instance.size, -1), np.full(instance.size, np.inf)
    costs = instance.to(chosen)
    nearest, lowest = chosen[costs.argmin(axis=1)], costs.min(axis=1)
    served = within(lowest, up_to(cost))
    return np.where(served, nearest, -1), np.where(served, lowest, np.inf)


def binned(space: FeatureSpace, raw: Array) -> Array:
    """Return raw rows (N, V) with continuous features (those of more than MAX_DISTINCT different values) replaced by bin numbers.

    Bins have equal width over the rows. Two amounts in one bin are equal to ACF, as in the paper's preprocessing (appendix B, whose
    rule makes BINS of this many values); without bins an amount changes for nearly everybody.
    """
    result = raw.copy()
    for v, feature in enumerate(space.schema.features):
        values = np.unique(raw[:, v])
        if feature.categories is not None or len(values) <= MAX_DISTINCT:
            continue
        edges = np.linspace(values[0], values[-1], BINS + 1)[1:-1]
        result[:, v] = np.searchsorted(edges, raw[:, v], side="right")
    return result


def change_frequency(space: FeatureSpace, rows: Array, factuals: Integers, assigned: Integers) -> pd.Series:
    """Return ACF: the share of factuals whose counterfactual differs from them in each feature of rows (N, V), raw or `binned`."""
    served = assigned >= 0
    changed = space.changed(rows[factuals[served]], rows[assigned[served]])
    names = [feature.name for feature in space.schema.features]
    return pd.Series(changed.mean(axis=0) if served.any() else np.full(len(names), np.nan), index=names)


def change_size(space: FeatureSpace, raw: Array, factuals: Integers, assigned: Integers) -> pd.Series:
    """Return the mean change of each number, in its own unit, over the factuals for whom it changes.

    NaN for categories, and for numbers that change for nobody.
    """
    served = assigned >= 0
    change = np.abs(raw[assigned[served]] - raw[factuals[served]])
    count = (change > 0).sum(axis=0)
    mean = np.divide(change.sum(axis=0), count, out=np.full(raw.shape[1], np.nan), where=count > 0)
    is_number = [feature.categories is None for feature in space.schema.features]
    return pd.Series(np.where(is_number, mean, np.nan), index=[feature.name for feature in space.schema.features])
