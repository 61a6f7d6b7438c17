"""The K copies of a tree ensemble that share everything but the protected variables, bounded over boxes.

As `encoders.bounds.copies` does for networks: every copy and its difference from the reference copy are bounded by the extremes of
the trees, the difference by those of both copies at once. For a mean of functions of scores, all scores are bounded like this, and
bounds of the mean follow from these, as in the search. The part above a cut of a real variable begins at the next number
(`above_cut`).
Sound? yes.   Complete? yes, with splitting at thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from encoders.arrays import Array, Integers
from encoders.bounds.copies import Copied, CopyBounds
from encoders.domain import Domain
from encoders.model import Model
from encoders.trees.mean import MeanOfTrees
from solvers import clock

if TYPE_CHECKING:
    from encoders.trees.extremes import TreeLines

LINES = np.array([[0.0, 1.0], [0.0, -1.0], [-1.0, 1.0], [1.0, -1.0]])
"""Rows (p, q) for lower bounds of  g_z,  -g_z,  g_z - g_r  and  g_r - g_z,  with x the reference copy r and x' the copy z."""
LINES_OF_SCORES = np.array([[-1.0, 0.0], [0.0, 1.0], [-1.0, 1.0], [1.0, 0.0], [0.0, -1.0], [1.0, -1.0]])
"""The same for every score of a mean: three rows and their negatives, from which `add_means` computes bounds of the mean."""
ROOM = 2.0**-45
"""Share of the margins' size that is taken off bounds if leaves are no float32 numbers: the checker rounds their sums
differently."""
ROOM_OF_ODDS = 2.0**-36
"""The same for log-sums of such numbers."""
NODE = 8
"""Multiplications that take as long as a visit to a tree node."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeCopies(Copied):
    """margin: (m,), g = margin . f.   variables: those that vary in the root box.   lines: joint trees of all pairs (r, z).   room:
    taken off every bound.   heads: `mean_head` of a mean, for its bounds from below and from above."""

    network: Model
    margin: Array
    variables: Integers
    lines: TreeLines
    room: float
    heads: tuple[Any, Any] | None

    @classmethod
    def of(
        cls, model: Model, domain: Domain, margin: Array, values: Array, protected: Integers, root: tuple[Array, Array],
        reference: int = 0,
    ) -> TreeCopies:
        """Return the copies over the root box (lower, upper), each (V,); its protected entries are ignored."""
        from encoders.trees.extremes import TreeLines  # numba is loaded for trees alone

        rows = np.repeat(root[0][None], len(values), axis=0)
        rows[:, protected] = values
        moves = root[0] < root[1]
        moves[protected] = False
        lines, heads = LINES, None
        if isinstance(model, MeanOfTrees):
            from verifair.engine.search.ensembles.search import mean_head

            sign = -1.0 if model.below else 1.0
            lines, heads = sign * LINES_OF_SCORES, (mean_head(model, -sign, sign), mean_head(model, sign, -sign))
            slack = ROOM * (1 + model.size)
        else:
            slack = _room(model, margin)
        return cls(
            network=model, domain=domain, margin=margin, values=values, protected=protected, reference=reference,
            variables=np.flatnonzero(moves), room=slack, heads=heads,
            lines=TreeLines.of(model, domain, protected, margin, [(rows[reference], row) for row in rows], lines),
        )

    def with_reference(self, reference: int, lower: Array, upper: Array) -> TreeCopies:
        """Return the same copies over another root box, compared with another reference copy."""
        return self.of(self.network, self.domain, self.margin, self.values, self.protected, (lower, upper), reference)

    @property
    def final(self) -> bool:
        """True if `linear` gives the bounds that the checker computes."""
        return True

    def evaluate(self, raw: Array) -> Array:
        """Return g(x, z) in float64, (N, K), at raw points (N, V): to search for witnesses, never to decide."""
        clock.spend(2 * len(raw) * len(self) * self.network.work)
        x = self.domain.encode(self.rows(raw).reshape(-1, raw.shape[1]))
        return np.asarray((self.network.forward(x) @ self.margin).reshape(len(raw), len(self)))

    def linear(self, lower: Array, upper: Array) -> tuple[CopyBounds, Array, Array]:
        """Return bounds of all copies over raw boxes (B, V) within the root box, (B, v) the score of each moving variable's best
        threshold, and (B, v) that threshold. Without one it is the middle if the schema forbids rows, or if a mean has a whole
        variable there, else NaN."""
        clock.spend(NODE * len(lower) * len(self) * len(self.lines.cells.variable))
        lower_bounds, score, cuts = self.lines.least(lower, upper, np.zeros(lower.shape, dtype=bool))
        if self.heads is None:
            lower_bounds = lower_bounds - self.room
        else:  # the checker rounds every bound of a mean except 0
            lower_bounds = _means(lower_bounds, *self.heads)
            lower_bounds = np.where(lower_bounds == 0, 0.0, lower_bounds - self.room)
        equal = np.zeros(lower_bounds.shape[:2], dtype=bool)
        equal[:, self.reference] = True
        bounds = CopyBounds(
            lower=lower_bounds[:, :, 0], upper=-lower_bounds[:, :, 1], delta_lower=np.where(equal, 0.0, lower_bounds[:, :, 2]),
            delta_upper=np.where(equal, 0.0, -lower_bounds[:, :, 3]),
        )
        if self.domain.forbidden is not None or self.heads is not None:  # single rows may decide where bounds are too coarse
            middle = np.isnan(cuts) & ((self.domain.forbidden is not None) | self.domain.integer)
            cuts = np.where(middle, self.domain.middle(lower, upper), cuts)
        return bounds, score[:, self.variables], cuts[:, self.variables]

    def above_cut(self, variable: Integers, cut: Array, lower: Array) -> Array:
        """Return the lower ends (B, V) of boxes above cuts (B,) of variables (B,), from those of `Domain.halves`: the cut of a real
        variable belongs to the part below, also where it is the end of the whole box."""
        row = np.flatnonzero(~self.domain.integer[variable])
        lower[row, variable[row]] = np.nextafter(cut[row], np.inf)
        return lower

    def standard(self, lower: Array, upper: Array, *, closer: bool) -> CopyBounds:
        """Return the same bounds: trees have only one kind."""
        return self.linear(lower, upper)[0]


def _room(model: Model, margin: Array) -> float:
    """Return what is taken off bounds because the checker may round sums differently."""
    ensemble = model.ensemble
    assert ensemble is not None, type(model)
    size = 2 * float(ensemble.largest.max()) if model is not ensemble else float(np.abs(margin) @ ensemble.largest)
    numbers = [ensemble.value, ensemble.base]
    exact = bool(np.isin(np.abs(margin), (0, 1)).all()) and all((array.astype(np.float32) == array).all() for array in numbers)
    slack = 0.0 if exact else ROOM * size
    return slack if model.piecewise_linear else ROOM_OF_ODDS * (1 + size)


def _means(least: Array, below: Any, above: Any) -> Array:
    """Return bounds (B, K, 4) of `LINES` for a mean, from those (B, K, 6 m) of `LINES_OF_SCORES`.   below, above: `mean_head`."""
    from encoders.trees.compiled import held
    from verifair.engine.search.ensembles.kernel import means_of

    boxes, pairs, numbers = least.shape
    bounds = np.asarray(means_of(held(least), 2 * boxes * pairs, numbers // len(LINES_OF_SCORES), below, above))
    return np.asarray(bounds.reshape(boxes, pairs, 2, 2).swapaxes(2, 3).reshape(boxes, pairs, len(LINES)))
