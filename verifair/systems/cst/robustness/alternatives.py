"""The categories that a row's counterfactual may have, each with its probability given the row.

A row does not determine the noise of a category (Gumbel-max, `causal.categorical`), so its counterfactual may have several. Nodes
are visited causes first; each category on a path from `do` takes every value that is possible under its parents' values. The noises
of different nodes are independent, so probabilities multiply. Numbers on the path are those at the estimated coefficients. If there
are many alternatives, the most probable ones of each row are kept at every node, and the probability of the others is reported.
Reference: Oberst and Sontag 2019, section 3, for the noise; the closed form is ours, checked against draws.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from verifair.systems.cst.causal.categorical import CategoricalMechanism
from verifair.systems.cst.causal.model import CausalModel

MIN_PROBABILITY = 1e-9
"""A category of a smaller probability is left out: rounding makes such ones of none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Alternatives:
    """A number A of counterfactuals of N rows, each row's most probable ones first.

    row: (A,) positions among the rows.   frame: (A rows) as they would be.   probability: (A,).   left: (N,) probability of those
    left out.
    """

    row: Integers
    frame: pd.DataFrame
    probability: Array
    left: Array

    @classmethod
    def of(
        cls, model: CausalModel, frame: pd.DataFrame, do: Mapping[str, Any], needed: Collection[str], *, max_per_row: int
    ) -> Alternatives:
        """Return the counterfactuals of a table's rows in the `needed` nodes, which are below do, and in their ancestors that do
        changes.

        max_per_row: number kept of each row.   Raises DataError for rows that the mechanisms do not take.
        """
        row, probability = np.arange(len(frame)), np.ones(len(frame))
        before, after = frame.reset_index(drop=True), model.set_to(frame, do).reset_index(drop=True)
        changed: dict[str, Booleans] = {name: np.asarray(before[name] != after[name], dtype=bool) for name in do}
        for name in (descendant for descendant in model.descendants(list(do)) if descendant in needed):
            parents = list(model.by_name[name].parents)
            moved = np.logical_or.reduce([changed[parent] for parent in parents if parent in changed])
            mechanism = model.fitted[name]
            if not moved.any():
                changed[name] = moved
                continue
            if not isinstance(mechanism, CategoricalMechanism):
                after[name], changed[name] = model.predicted(name, before, after, moved, seed=0)
                continue
            affected = np.flatnonzero(moved)
            factual = before.iloc[affected]
            probabilities = mechanism.transitions(factual[parents], factual[name], after.iloc[affected][parents])
            index, category = np.nonzero(probabilities > MIN_PROBABILITY)
            source = np.concatenate([np.flatnonzero(~moved), affected[index]])
            weight = probability[source] * np.concatenate([np.ones((~moved).sum()), probabilities[index, category]])
            values = np.concatenate([before[name].to_numpy(dtype=object)[~moved], mechanism.classes.astype(object)[category]])
            kept = _most_probable(row[source], weight, max_per_row)
            source, probability, values = source[kept], weight[kept], values[kept]
            row, before, after = row[source], before.iloc[source], after.iloc[source]
            before, after = before.reset_index(drop=True), after.reset_index(drop=True)
            after[name] = pd.Series(values).infer_objects()
            changed = {node: mask[source] for node, mask in changed.items()}
            changed[name] = np.asarray(before[name].to_numpy(dtype=object) != values, dtype=bool)
        kept_of_each = np.bincount(row, weights=probability, minlength=len(frame))
        return cls(row=row, frame=after, probability=probability, left=np.maximum(1 - kept_of_each, 0.0))


def _most_probable(row: Integers, weight: Array, max_count: int) -> Integers:
    """Positions of the `max_count` largest weights (A,) of each row (A,), row by row, the largest first."""
    order = np.lexsort((-weight, row))
    first = np.searchsorted(row[order], row[order], side="left")
    return np.asarray(order[np.arange(len(order)) - first < max_count])
