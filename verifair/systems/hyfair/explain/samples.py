"""Local samples around one person, and the labels of those discriminated against most.  (HyFair, Algorithm 2, lines 1 to 3)

A *severity* says how badly the network treats a raw point: k(x), the number of outcome buckets over all protected combinations, or
the largest probability gap between two of them. All functions here take it as a callable, (N, V) raw points -> (N,) numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.special

from encoders.arrays import Array, Booleans
from verifair.errors import QueryError
from verifair.systems.hyfair.search.space import Space

Severity = Callable[[Array], Array]
MEASURES = ("k", "gap")
ATTEMPTS = 100
"""Rounds of drawing until enough rows are legal; without constraints in the schema one is enough."""


def severity_of(space: Space, measure: str) -> Severity:
    """Return a severity.   k: the number of outcome buckets.   gap: the largest difference of two probabilities.   In float32, a
    guide.

    Raises QueryError for another measure, and for a gap if the question is about decisions, not probabilities.
    """
    if measure not in MEASURES:
        raise QueryError(f"measure {measure!r} is unknown; choose one of {', '.join(MEASURES)}")
    if measure == "gap" and not space.query.probable:
        raise QueryError("a gap is between probabilities, and 2 buckets are the two decisions of this model: leave --buckets out")
    if measure == "k":
        return lambda raw: space.count(raw).astype(np.float64)

    def gap(raw: Array) -> Array:
        probability = scipy.special.expit(space.logits(raw).astype(np.float64))
        possible = space.possible(raw)
        highest = np.where(possible, probability, -np.inf).max(axis=1)
        return np.asarray(highest - np.where(possible, probability, np.inf).min(axis=1))

    return gap


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbourhood:
    """A distribution of raw points near `centre` (V,).

    Every free feature keeps the centre's value with probability `keep`. Otherwise a number moves by a normal step with the
    standard deviation of the data (without data, that of the uniform distribution over its range), rounded where it is whole and
    clipped to its range; a category is drawn from the data's frequencies (without data, uniformly). Protected features stay: their
    value does not affect a severity. LIME draws its samples likewise (Ribeiro et al. 2016).

    spread: (V,) standard deviations.   shares: for each category feature the frequencies of its values, None for a number.
    """

    space: Space
    centre: Array
    spread: Array
    shares: tuple[Array | None, ...]
    keep: float = 0.5

    @classmethod
    def of(cls, space: Space, centre: Array, rows: Array | None = None) -> Neighbourhood:
        """Return the neighbourhood of a centre.   rows: (N, V) raw rows of data, for spreads and frequencies; None without data."""
        spread = (space.upper - space.lower) / np.sqrt(12.0) if rows is None or len(rows) < 2 else rows.std(axis=0)
        shares = tuple(
            None if feature.numeric else _frequencies(space, v, rows) for v, feature in enumerate(space.query.schema.features)
        )
        return cls(space=space, centre=space.canonical(centre[None, :])[0], spread=spread, shares=shares)

    @property
    def whole(self) -> Booleans:
        """(V,) True for variables that take whole values only."""
        return self.space.query.schema.domain.integer

    def draw(self, count: int, rng: np.random.Generator, moved: Callable[[Array], Array] | None = None) -> Array:
        """Return (count, V) legal raw points. Raises QueryError if nearly nothing around the centre is legal.

        moved: a map of all points drawn, (N, V) -> (N, V), applied before the legal ones are selected.
        """
        parts, n_legal = [], 0
        for _ in range(ATTEMPTS):
            raw = self._draw(count, rng)
            raw = raw if moved is None else moved(raw)
            raw = raw[self.space.legal(raw)]
            parts.append(raw)
            n_legal += len(raw)
            if n_legal >= count:
                return np.concatenate(parts)[:count]
        raise QueryError(
            f"only {n_legal} of {ATTEMPTS * count} random rows around the cluster are legal, {count} are needed: the schema's "
            "constraints forbid nearly everything there; loosen them, or explain another cluster"
        )

    def _draw(self, count: int, rng: np.random.Generator) -> Array:
        raw = np.repeat(self.centre[None, :], count, axis=0)
        for v in self.space.free:
            raw[:, v] = self.neighbours(int(v), count, rng)
        return raw

    def neighbours(self, v: int, count: int, rng: np.random.Generator) -> Array:
        """Return (count,) values of variable v near the centre's."""
        values = np.full(count, self.centre[v])
        is_moved = rng.random(count) >= self.keep
        values[is_moved] = self.redraw(v, values[is_moved], rng)
        return values

    def redraw(self, v: int, values: Array, rng: np.random.Generator) -> Array:
        """Return new values (N,) of variable v for points that had `values`."""
        shares = self.shares[v]
        if shares is not None:
            return np.asarray(self.space.lower[v] + rng.choice(len(shares), size=len(values), p=shares))
        new_values = values + self.spread[v] * rng.standard_normal(len(values))
        new_values = np.rint(new_values) if self.whole[v] else new_values
        return np.asarray(np.clip(new_values, self.space.lower[v], self.space.upper[v]))

    def between(self, v: int, low: float, high: float, count: int, rng: np.random.Generator) -> Array:
        """Return `count` values of variable v drawn uniformly from [low, high] within its range."""
        low, high = max(low, float(self.space.lower[v])), min(high, float(self.space.upper[v]))
        if self.whole[v]:
            return np.asarray(rng.integers(int(np.ceil(low)), int(np.floor(high)), size=count, endpoint=True), dtype=np.float64)
        return np.asarray(rng.uniform(low, high, size=count))


def _frequencies(space: Space, v: int, rows: Array | None) -> Array:
    first, count = int(space.lower[v]), int(space.upper[v] - space.lower[v]) + 1
    index = np.empty(0, dtype=np.int64) if rows is None else rows[:, v].astype(np.int64) - first
    counts = np.bincount(index[(index >= 0) & (index < count)], minlength=count).astype(np.float64)
    return counts / counts.sum() if counts.sum() else np.full(count, 1 / count)


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """Samples raw (N, V), their severity (N,), and `high` (N,), True where the severity is at least `threshold`."""

    raw: Array
    severity: Array
    threshold: float

    @property
    def high(self) -> Booleans:
        return np.asarray(self.severity >= self.threshold)


def label(raw: Array, severity: Array, quantile: float = 0.95) -> Labelled:
    """Label the samples with the highest severities as high (HyFair: quantile 0.95, so the top 5 %).

    Severities are often whole numbers with ties. If the quantile is the least value, all samples would be high, so the threshold is
    then the next larger value. Raises QueryError if all samples have the same severity, or one is NaN.
    """
    if not 0 < quantile < 1:
        raise QueryError(f"quantile = {quantile}, expected a share between 0 and 1, such as 0.95 for the top 5 %")
    n_beyond = int((~np.isfinite(severity)).sum())
    if n_beyond:
        raise QueryError(
            f"around the cluster {n_beyond} of {len(raw)} samples have logits beyond float32, so that their severity is no number; "
            "narrow the schema's ranges, or scale the model's inputs"
        )
    lowest, highest = float(severity.min()), float(severity.max())
    if lowest == highest:
        raise QueryError(
            f"all {len(raw)} samples around the cluster have the same severity, {lowest:g}: there is nothing to explain; "
            "explain another cluster, or measure with finer buckets or by the probability gap"
        )
    threshold = float(np.quantile(severity, quantile, method="higher"))
    if threshold == lowest:
        threshold = float(severity[severity > lowest].min())
    return Labelled(raw=raw, severity=np.asarray(severity, dtype=np.float64), threshold=threshold)
