"""What a leaf is re-proved by: one row's bound by the standard relaxation (`encoders.bounds.regions`), with room for rounding.

Searches close boxes of piecewise-linear networks by it alone; what other bounds promise guides them. The hidden layers' bounds are
first those of interval arithmetic, and where these do not suffice those of backward substitution: who re-proves a leaf tries both.
"""

from __future__ import annotations

import numpy as np

from encoders.bounds.regions import RegionBounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.domain import Regions
from encoders.network import Array, Integers
from verifair.engine.search.boxes import Nodes, rows_at


class StandardRelaxation:
    """The bounds of one twin, and how often interval arithmetic has sufficed so far: `tried` rows, `proved` ones."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.neurons = 2 * sum(twin.problem.network.hidden)
        self.tried = self.proved = 0

    def lower(
        self, nodes: Nodes, intervals: list[LayerBounds], box: Integers, rows: Array, constants: Array, enough: Array
    ) -> Array:
        """Return lower bounds (N,) of rows (N, 2) and constants (N,) over the boxes `box` (N,) of some nodes with these interval
        bounds; beyond `enough` (N,) nobody needs better ones."""
        found, left = np.full(len(box), -np.inf), np.arange(len(box))
        if len(box) and (self.twin.depth < 2 or 2 * self.proved >= self.tried):
            found = self._bound(nodes, intervals, box, rows, constants)
            left = np.flatnonzero(~(found > enough))
            self.tried, self.proved = self.tried + len(box), self.proved + len(box) - len(left)
        if len(left) and self.twin.depth > 1:
            found[left] = np.maximum(found[left], self._bound(nodes, None, box[left], rows[left], constants[left]))
        return found

    def _bound(
        self, nodes: Nodes, intervals: list[LayerBounds] | None, box: Integers, rows: Array, constants: Array
    ) -> Array:
        used, at = np.unique(box, return_inverse=True)
        part = nodes.take(used)
        lower, upper = (rows_at(self.twin, part.question, end) for end in (part.lower, part.upper))
        free = np.zeros((len(part), self.neurons), dtype=bool)
        known = None if intervals is None else [one.take(used) for one in intervals]
        regions = RegionBounds(self.twin, Regions(lower=lower, upper=upper, active=free, inactive=free), part.question, known)
        return regions.rows(at, rows, constants)
