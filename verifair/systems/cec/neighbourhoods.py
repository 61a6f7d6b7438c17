"""Two people and all points within delta units of each: the boxes that an explanation's certificate is about, and their halves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.bounds.attribution import Attributions, attributions
from encoders.bounds.gradient import gradient_zonotopes
from encoders.network import Array, Integers, Network
from encoders.problem import Domain
from verifair.engine.questions import neighbourhood
from verifair.errors import DataError
from verifair.schema.schema import Schema
from verifair.systems.cec.attributions import positive_margin

AT_ONCE = 1024
"""Slices of paths bounded at once: their forms in a layer of 500, of 8 inputs that move, take 40 MiB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A raw box lower, upper (V,) of one person's neighbourhood, and what is known of it: the attributions (number `index` of a
    batch) from the baseline (n_0,), and bounds `least`, `most` of the margin. slices: into how many the paths were cut. cuts: how
    often the neighbourhood was halved to get here."""

    lower: Array
    upper: Array
    baseline: Array
    attributions: Attributions
    index: int
    least: float
    most: float
    slices: int
    cuts: int

    @property
    def decision(self) -> int | None:
        """The class throughout the box (1 iff the margin is positive), None where it is not known."""
        return 1 if self.least > 0 else 0 if self.most <= 0 else None

    @property
    def spread(self) -> float:
        """How far the attributions stray, relative to their size."""
        norm = self.attributions.length[self.index] + self.attributions.radius[self.index]
        return float(self.attributions.radius[self.index] / max(norm, np.finfo(float).tiny))


def raw_rows(schema: Schema, x: Array) -> Array:
    """Raw rows (N, V) that become the network inputs x (N, n_0). DataError for inputs that no row of the schema becomes."""
    domain = schema.domain
    raw = np.empty((len(x), domain.variables))
    number = ~domain.one_hot
    raw[:, number] = x[:, domain.start[number]] * domain.scale[number] + domain.offset[number]
    for v in np.flatnonzero(domain.one_hot):
        raw[:, v] = x[:, domain.start[v] : domain.start[v] + domain.width[v]].argmax(axis=1)
    raw = np.where(domain.integer, np.round(raw), raw)
    raw = np.clip(raw, domain.lower, domain.upper)  # float32(0.1) > 0.1: a row at the end of a range would seem to leave it
    wrong = np.flatnonzero((domain.encode(raw) != x).any(axis=1))
    if len(wrong):
        raise DataError(
            f"row {wrong[0]}: its network inputs are those of no row of the schema, so there is no neighbourhood to certify; pass "
            "people read by this schema (people_of)"
        )
    return raw


def boxes(schema: Schema, raw: Array, delta: float) -> tuple[Array, Array]:
    """Raw boxes (N, V), (N, V) of PBA's neighbourhood of raw rows (N, V): see `verify.questions.neighbourhood`.

    Protected features stay, and so does everything where delta is 0. The rows were read back from float32 inputs: where a real
    feature moves, its interval holds what is near any value that becomes the same input. Raises SchemaError where delta is positive
    and no feature has a unit.
    """
    if delta == 0:
        return raw, raw
    domain, step = schema.domain, schema.steps([]) * delta
    lower, upper = neighbourhood(schema, raw, delta, [])
    # Half a unit in the last place of the input, 2^-24 of it, twice; and what float64 rounds.
    hidden = 2.0**-23 * np.abs(raw - domain.offset) + 2.0**-149 * domain.scale + 2.0**-51 * (np.abs(raw) + step)
    hidden = np.where(domain.integer | (step == 0), 0.0, hidden)
    return np.maximum(lower - hidden, domain.lower), np.minimum(upper + hidden, domain.upper)


def bounded(
    network: Network, domain: Domain, baseline: Array, lower: Array, upper: Array, slices: int, cuts: Integers
) -> list[Part]:
    """What can be said of raw boxes lower, upper (B, V), explained from baselines (B, n_0), after `cuts` (B,) halvings.

    Sound? yes (`encoders.bounds.gradient`, `encoders.bounds.attribution`).  Complete? no.
    """
    low, high = domain.box(lower, upper)
    margin, step = positive_margin(network), max(1, AT_ONCE // slices)
    parts = []
    for start in range(0, len(low), step):
        batch = slice(start, start + step)
        zonotopes = gradient_zonotopes(network, margin, baseline[batch], low[batch], high[batch], slices)
        found = attributions(zonotopes, baseline[batch], low[batch], high[batch])
        parts += [
            Part(
                lower=lower[start + k], upper=upper[start + k], baseline=baseline[start + k], attributions=found, index=k,
                least=float(zonotopes.lower[k]), most=float(zonotopes.upper[k]), slices=slices, cuts=int(cuts[start + k]),
            )
            for k in range(len(found))
        ]  # fmt: skip
    return parts


def halves(network: Network, domain: Domain, part: Part) -> tuple[Array, Array] | None:
    """The raw boxes lower, upper (2, V) of a part's halves along the variable that moves the first layer most; None for a point.

    Whole numbers are divided between the halves, a real interval shares its cut.
    """
    low, high = domain.box(part.lower[None], part.upper[None])
    reach = (high - low)[0] * np.linalg.norm(network.layers[0].weight, axis=0)
    by_variable = np.where(domain.one_hot, 0.0, reach[domain.start])
    middle = part.lower + (part.upper - part.lower) / 2
    middle = np.where(domain.integer, np.floor(middle), middle)
    inside = (middle < part.upper) & (domain.integer | (middle > part.lower))
    if not (inside & (by_variable > 0)).any():
        return None
    v = int(np.where(inside, by_variable, -1.0).argmax())
    lower, upper = np.tile(part.lower, (2, 1)), np.tile(part.upper, (2, 1))
    upper[0, v] = middle[v]
    lower[1, v] = middle[v] + 1 if domain.integer[v] else middle[v]
    return lower, upper
