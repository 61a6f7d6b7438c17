"""Batched bounds of all K copies of a network that share everything but the protected variables, and the borders of buckets.

The copies g(x, z), z = z_1 ... z_K, are bounded over a box of the shared variables one by one, and by their differences from a
*reference* copy r: copy z is g_r + [delta_lower, delta_upper]. Shared inputs make the differences far narrower than the values.

Method: one question of a twin problem for each pair (r, z), bounded by the standard relaxation (`regions`), by which proofs are
checked: in the first layer the difference is constant, above it is tracked as a quantity of its own.
Sound? yes, outward-rounded (see `rounding`).  Complete? no.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.difference import every_row, linear_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.regions import RegionBounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.buckets import borders
from encoders.domain import Domain, Regions
from encoders.network import Network, activate
from encoders.problem import Goal, TwinBatch, TwinProblem
from solvers import clock

_ROWS = Goal(rows=np.array([[0.0, 1.0], [0.0, -1.0], [-1.0, 1.0], [1.0, -1.0]]), strict=True)
"""Rows (p, q) for lower bounds of  g_z,  -g_z,  g_z - g_r  and  g_r - g_z,  with x the reference copy r and x' the copy z."""
_WEIGHTS = np.array([0.25, 0.25, 1.0, 1.0])
"""The weights of the rows in the score: the difference of the copies matters more than their values."""
ROOM = 15
"""So many times the rounding error is taken off a linear bound in addition: more than another order of summation changes it by."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Thresholds:
    """The lower ends of the buckets 1 ... B - 1 as logits: log(i / (B - i)) lies in [lower[i - 1], upper[i - 1]], each (B - 1,).

    A logit g is in bucket i exactly when i of the B - 1 thresholds are < g.
    """

    lower: Array
    upper: Array

    @classmethod
    def of(cls, buckets: int, *, shares: bool = False) -> Thresholds:
        """Return the thresholds. shares: g + 1/2 is a share of votes, and the thresholds are i / B - 1/2."""
        lower, upper = borders(buckets, shares=shares)
        return cls(lower=lower, upper=upper)

    @property
    def buckets(self) -> int:
        return len(self.lower) + 1

    def surely(self, logit: Array) -> Integers:
        """Return the least bucket that a number >= logit can be in."""
        return np.searchsorted(self.upper, logit, side="left")

    def possibly(self, logit: Array) -> Integers:
        """Return the greatest bucket that a number <= logit can be in."""
        return np.searchsorted(self.lower, logit, side="left")


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyBounds:
    """Over B boxes: g_z in [lower, upper] and g_z - g_r in [delta_lower, delta_upper], each (B, K) and outward-rounded."""

    lower: Array
    upper: Array
    delta_lower: Array
    delta_upper: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Copied:
    """K rows that differ in protected variables alone.

    values: (K, P) the protected values z, raw.   protected: (P,) positions of their variables.   reference: the position of r among
    the copies.
    """

    domain: Domain
    values: Array
    protected: Integers
    reference: int

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, raw: Array) -> Array:
        """Return (N, K, V) the rows of all copies at raw points (N, V)."""
        out = np.repeat(raw[:, None, :], len(self), axis=1)
        out[:, :, self.protected] = self.values
        return out

    def possible(self, lower: Array, upper: Array) -> Booleans:
        """Return (B, K) True for copies with a possible row in the raw box (B, V); see `Domain.impossible`."""
        if self.domain.forbidden is None:
            return np.ones((len(lower), len(self)), dtype=bool)
        low, high = (self.rows(end).reshape(-1, lower.shape[1]) for end in (lower, upper))
        return ~self.domain.impossible(low, high).reshape(len(lower), len(self))


@dataclass(frozen=True, kw_only=True, eq=False)
class Copies(Copied):
    """K copies of a network, prepared for bounds over boxes within one root box.

    margin: (n_N,), g = margin . f.   twin: the twin problem of the K pairs (r, z).
    """

    network: Network
    margin: Array
    twin: Twin

    @classmethod
    def of(
        cls, network: Network, domain: Domain, margin: Array, values: Array, protected: Integers, root: tuple[Array, Array],
        reference: int = 0,
    ) -> Copies:
        """Return copies over the root box (lower, upper), each (V,); its protected entries are ignored."""
        lower, upper = root
        is_protected = np.isin(np.arange(domain.variables), protected)
        low, high, prime = (np.tile(end, (len(values), 1)) for end in (lower, upper, lower))
        low[:, protected] = high[:, protected] = values[reference]
        prime[:, protected] = values
        batch = TwinBatch(lower=low, upper=high, prime=prime, protected=is_protected)
        twin = Twin.of(TwinProblem(network=network, domain=domain, batch=batch, margin=margin, goals=(_ROWS,))).with_room()
        return cls(
            network=network, domain=domain, margin=margin, values=values, protected=protected, reference=reference, twin=twin,
        )

    def with_reference(self, reference: int, lower: Array, upper: Array) -> Copies:
        """Return the same copies over another root box, compared with another reference copy."""
        return Copies.of(self.network, self.domain, self.margin, self.values, self.protected, (lower, upper), reference)

    @property
    def variables(self) -> Integers:
        """The variables that vary in some box."""
        return self.twin.variables

    @property
    def final(self) -> bool:
        """True if `linear` proves as much as the standard relaxation, by which proofs are checked."""
        return self.twin.depth < 2

    def evaluate(self, raw: Array) -> Array:
        """Return g(x, z) in float64, (N, K), at raw points (N, V): to search for witnesses, never to decide."""
        clock.spend(2 * len(raw) * len(self) * self.network.work)
        first = self.network.layers[0]
        columns = self.domain.columns_of(self.protected)
        z = self.domain.take(self.protected).encode(self.values)
        x = self.domain.encode(raw)
        x[:, columns] = 0.0
        a = (x @ first.weight.T + first.bias)[:, None, :] + z @ first.weight[:, columns].T
        a = a.reshape(-1, a.shape[2])
        for below, layer in zip(self.network.layers, self.network.layers[1:], strict=False):
            a = activate(a, below) @ layer.weight.T + layer.bias
        return np.asarray((a @ self.margin).reshape(len(raw), len(self)))

    def linear(self, lower: Array, upper: Array) -> tuple[CopyBounds, Array, Array]:
        """Return bounds of all copies over raw boxes (B, V) within the root box, (B, v) the looseness that each moving variable
        causes, and (B, v) its cut. With at most one hidden layer they are the standard relaxation's, with room for rounding."""
        twin, (question, low, high) = self.twin, self._pairs(lower, upper)
        weights = np.broadcast_to(_WEIGHTS, (len(question), len(_WEIGHTS)))
        intervals = interval_bounds(twin, question, low, high)
        goals = linear_goals(twin, question, (low, high), intervals, *every_row(twin, len(question)), weights)
        score = np.add.reduceat(goals.score.reshape(len(lower), len(self), -1).sum(axis=1), twin.local.start, axis=1)
        middle = self.domain.middle(lower, upper)[:, self.variables]
        return self._bounds((goals.lower - ROOM * goals.error).T, intervals[-1]), score, middle

    def standard(self, lower: Array, upper: Array, *, closer: bool) -> CopyBounds:
        """Return bounds by the standard relaxation (see `regions`), with room for rounding, for two hidden layers or more.

        closer: hidden layers are bounded by substitution as well, not by their intervals alone.
        """
        twin, (question, low, high) = self.twin, self._pairs(lower, upper)
        intervals = None if closer else interval_bounds(twin, question, low, high)
        free = np.zeros((len(question), 2 * sum(self.network.hidden)), dtype=bool)
        ends = (np.repeat(end, len(self), axis=0) for end in (lower, upper))
        regions = RegionBounds(twin, Regions(lower=next(ends), upper=next(ends), active=free, inactive=free), question, intervals)
        rows, pair = np.repeat(_ROWS.rows, len(question), axis=0), np.tile(np.arange(len(question)), len(_ROWS.rows))
        return self._bounds(regions.rows(pair, rows, np.zeros(len(rows))), regions.layers[-1])

    def _pairs(self, lower: Array, upper: Array) -> tuple[Integers, Array, Array]:
        """Return the questions (B K,) and network boxes (B K, d) of all pairs over raw boxes (B, V)."""
        low, high = self.twin.local.box(lower[:, self.twin.variables], upper[:, self.twin.variables])
        return np.tile(np.arange(len(self)), len(lower)), np.repeat(low, len(self), axis=0), np.repeat(high, len(self), axis=0)

    def _bounds(self, lower: Array, margins: LayerBounds) -> CopyBounds:
        """Return the bounds from lower bounds of all rows of all pairs. g_z - g_r is exactly 0 if no differing neuron is ever
        on."""
        lower = lower.reshape(len(_ROWS.rows), -1, len(self))
        equal = ((margins.delta_lower == 0) & (margins.delta_upper == 0)).reshape(lower.shape[1:])
        equal[:, self.reference] = True
        delta_lower, delta_upper = np.where(equal, 0.0, lower[2]), np.where(equal, 0.0, -lower[3])
        return CopyBounds(lower=lower[0], upper=-lower[1], delta_lower=delta_lower, delta_upper=delta_upper)
