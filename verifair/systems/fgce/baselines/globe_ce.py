"""GLOBE-CE: few translations for a whole group, each row moved along one of them by the least scale that flips its decision.

A translation adds to coordinates of `FeatureSpace`; numbers are clipped to their range and rounded to legal ones, and the
largest entry of a one-hot block wins. Directions are sampled, sparse; some are kept greedily, by the people they help and the cost.
Measured, not proved: more samples or a finer grid of scales may find more. Limits on directions of change are ignored, as in the
paper.

The authors' code is not on PyPI and no installable package holds the method, so it is written here, from the paper. Differences:
the number of features a direction changes is drawn too, and costs are L2 lengths of `FeatureSpace`, as everywhere in FGCE.
Reference: Ley, Mishra, Magazzeni, GLOBE-CE, ICML 2023 (sections 3 and 4); compared with in FGCE, section V-B2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Integers
from verifair.errors import QueryError
from verifair.systems.fgce.baselines.recourse import ROWS, GroupRecourse, Positive, accepted, actionable, check_factuals
from verifair.systems.fgce.space import FeatureSpace, distance

MAX_SAMPLE = 200
"""Directions are chosen by at most so many of the factuals, drawn at random, and then scaled for all."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """samples: directions drawn.   features: the most that one changes.   translations: most that are kept.

    scales: points of the grid of scales, up to the largest cost (`FeatureSpace.largest_cost`); a direction has L2 length 1.
    """

    samples: int = 400
    features: int = 8
    translations: int = 3
    scales: int = 60

    def __post_init__(self) -> None:
        for name in ("samples", "features", "translations", "scales"):
            if getattr(self, name) < 1:
                raise QueryError(f"{name} = {getattr(self, name)}: expected a whole number of at least 1")


def globe_ce(
    space: FeatureSpace,
    raw: Array,
    factuals: Array,
    positive: Positive,
    *,
    sampling: Sampling | None = None,
    actionable_features: Sequence[str] | None = None,
    seed: int = 0,
) -> GroupRecourse:
    """Return counterfactuals for factuals (n, V) by few translations of actionable features (default: not protected, not fixed).

    raw: (N, V) rows of the data; only its features that take more than one value are translated.
    Raises DataError for a factual that is decided positively already, QueryError when there is nothing to change.
    """
    settings = sampling or Sampling()
    check_factuals(space, positive, factuals, "GLOBE-CE")
    rng = np.random.default_rng(seed)
    allowed = actionable(space, actionable_features)
    varying = allowed[(raw[:, allowed] != raw[0, allowed]).any(axis=0)]
    if not len(varying):
        raise QueryError("GLOBE-CE: every feature that may change takes one value only in all rows; pass more rows")
    directions = _directions(space, varying, settings, rng)
    scales = np.linspace(0.0, space.largest_cost, settings.scales + 1)[1:]
    sample = rng.permutation(len(factuals))[:MAX_SAMPLE]
    scales_needed = least_scales(space, factuals[sample], directions, scales, positive)
    chosen = _chosen(_worth(space, factuals[sample], directions, scales_needed), settings.translations)
    return _applied(space, factuals, directions[chosen], scales, positive)


def translated(space: FeatureSpace, rows: Array, steps: Array) -> Array:
    """Return (n, V) legal raw rows: raw rows (n, V) moved by steps (n, p) in the coordinates of the space.

    Clipped to the declared ranges and rounded where values are whole; features without a step keep their value exactly.
    """
    result = rows.copy()
    points, owner, domain = space.points(rows), space.feature_of, space.schema.domain
    for v, feature in enumerate(space.schema.features):
        block = np.flatnonzero(owner == v)
        is_moved = (steps[:, block] != 0).any(axis=1)
        target = points[np.ix_(is_moved, block)] + steps[np.ix_(is_moved, block)]
        if len(block) > 1:
            result[is_moved, v] = target.argmax(axis=1)
            continue
        low, high = domain.lower[v], domain.upper[v]
        value = np.clip(low + target[:, 0] * (high - low), low, high)
        result[is_moved, v] = value if feature.kind == "real" else np.rint(value)
    return result


def least_scales(space: FeatureSpace, factuals: Array, directions: Array, scales: Array, positive: Positive) -> Array:
    """Return (D, n) the least of the scales (S,), ascending, at which each direction (D, p) flips each factual (n, V), or NaN.

    Factuals that are flipped are left out at the next scale, so later batches are smaller.
    """
    result = np.full((len(directions), len(factuals)), np.nan)
    pending = np.stack(np.nonzero(np.isnan(result)))
    for scale in scales:
        unflipped = []
        for start in range(0, pending.shape[1], ROWS):
            d, i = pending[:, start : start + ROWS]
            flipped = accepted(space, positive, translated(space, factuals[i], scale * directions[d]))
            result[d[flipped], i[flipped]] = scale
            unflipped.append(np.stack([d[~flipped], i[~flipped]]))
        pending = np.concatenate(unflipped, axis=1) if unflipped else pending
    return result


def _directions(space: FeatureSpace, free: Integers, settings: Sampling, rng: np.random.Generator) -> Array:
    """Return (D, p) sparse directions of L2 length 1: 1 to `features` features each, uniform in size, either sign for numbers."""
    owner = space.feature_of
    block = np.bincount(owner)[owner] > 1
    result = np.zeros((settings.samples, len(owner)))
    for row in result:
        features = rng.choice(free, size=rng.integers(1, min(settings.features, len(free)) + 1), replace=False)
        is_changed = np.isin(owner, features)
        sign = np.where(block, 1.0, rng.choice([-1.0, 1.0], size=len(owner)))  # in a block only differences matter
        row[is_changed] = (sign * (1.0 - rng.random(len(owner))))[is_changed]
    return np.asarray(result / np.linalg.norm(result, axis=1, keepdims=True))


def _worth(space: FeatureSpace, factuals: Array, directions: Array, scale: Array) -> Array:
    """Return (D, n) 1 for help without cost, falling to 1/2 at the largest cost, 0 for no help: helping more people comes first."""
    result = np.zeros(scale.shape)
    d, i = np.nonzero(~np.isnan(scale))
    for start in range(0, len(d), ROWS):
        part = slice(start, start + ROWS)
        rows = translated(space, factuals[i[part]], scale[d[part], i[part], None] * directions[d[part]])
        cost = distance(space.points(factuals[i[part]]), space.points(rows))
        result[d[part], i[part]] = 1.0 - cost / (2 * space.largest_cost)
    return result


def _chosen(worth: Array, max_count: int) -> list[int]:
    """Choose greedily the direction that adds most, while one adds anything. Monotone and submodular: at least (1 - 1/e) of the
    best."""
    best = np.zeros(worth.shape[1])
    chosen: list[int] = []
    while len(chosen) < max_count:
        gains = np.maximum(worth - best, 0.0).sum(axis=1)
        index = int(gains.argmax())
        if gains[index] <= 0:
            break
        chosen.append(index)
        best = np.maximum(best, worth[index])
    return chosen


def _applied(space: FeatureSpace, factuals: Array, directions: Array, scales: Array, positive: Positive) -> GroupRecourse:
    """Return everyone's cheapest translation, each at its least scale."""
    scales_needed = least_scales(space, factuals, directions, scales, positive)
    counterfactuals = np.full(factuals.shape, np.nan)
    cheapest = np.full(len(factuals), np.inf)
    for direction, scale in zip(directions, scales_needed, strict=True):
        helped = np.flatnonzero(~np.isnan(scale))
        rows = translated(space, factuals[helped], scale[helped, None] * direction)
        cost = distance(space.points(factuals[helped]), space.points(rows))
        better = cost < cheapest[helped]
        counterfactuals[helped[better]], cheapest[helped[better]] = rows[better], cost[better]
    rules = tuple(_words(space, direction) for direction in directions)
    return GroupRecourse(name="GLOBE-CE", counterfactuals=counterfactuals, size=len(directions), rules=rules)


def _words(space: FeatureSpace, direction: Array) -> str:
    """Return a translation at scale 1 in words: numbers in their own unit, categories by the entries of their block."""
    parts, domain = [], space.schema.domain
    for v, feature in enumerate(space.schema.features):
        step = direction[space.feature_of == v]
        if not step.any():
            continue
        if len(step) > 1:
            names = feature.categories or ()
            entries = ", ".join(f"{names[c]} {step[c]:+.2g}" for c in np.argsort(-step, kind="stable"))
            parts.append(f"{feature.name} towards ({entries})")
        else:
            parts.append(f"{feature.name} {step[0] * (domain.upper[v] - domain.lower[v]):+.3g}")
    return "scale x (" + "; ".join(parts) + ")"
