"""Lines under pairs of ReLUs: under the function everywhere, and along its lower hull at the midpoint."""

from __future__ import annotations

import numpy as np
import pytest

from encoders.arrays import Array
from encoders.bounds.relu import LayerBounds, first_lines, hinge


def _drawn(rng: np.random.Generator, coarse: bool) -> tuple[Array, Array, Array, LayerBounds]:
    """Coefficients (4, 6, 9), shifts and bounds (4, 9); coarse: whole numbers, so that bends fall on ends and midpoints."""
    p, q = rng.standard_normal((2, 4, 6, 9))
    centre, radius, s = rng.standard_normal((4, 9)), rng.random((4, 9)), rng.standard_normal((4, 9))
    if coarse:
        p, q, centre, radius, s = (np.rint(2 * one) for one in (p, q, centre, radius, s))
    low, high = centre - radius, centre + radius
    return p, q, s, LayerBounds(lower=low, upper=high, lower_prime=low - s, upper_prime=high - s, delta_lower=s, delta_upper=s)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("copies", ["both", "first", "second"])
def test_a_line_under_a_pair_is_the_edge_of_its_lower_hull(copies: str, coarse: bool) -> None:
    p, q, s, bounds = _drawn(np.random.default_rng(3), coarse)
    p, q = p * (copies != "second"), q * (copies != "first")
    slope, constant, gap = hinge(p, q, s[:, None], bounds.with_rows())
    low, high, shift = bounds.lower[:, None], bounds.upper[:, None], s[:, None]
    middle = (low + high) / 2

    def h(t: Array) -> Array:
        return np.asarray(p * np.maximum(t, 0.0) + q * np.maximum(t - shift, 0.0))

    points = [low, np.clip(0.0, low, high), np.clip(shift, low, high), high]
    for t in (*points, middle, 0.7 * low + 0.3 * high):
        assert (slope * t + constant <= h(t) + 1e-12).all()
    hull = np.full(p.shape, np.inf)
    for left in points:
        for right in points:
            with np.errstate(invalid="ignore", divide="ignore"):
                at = h(left) + (h(right) - h(left)) * (middle - left) / (right - left)
            hull = np.where((left <= middle) & (middle <= right) & (left < right), np.minimum(hull, at), hull)
    hull = np.where(low == high, h(middle), hull)
    at_bend = (middle == 0) | (middle == shift)  # there the first chord that touches is taken, mostly no edge
    assert np.allclose(np.where(at_bend, 0.0, slope * middle + constant - hull), 0.0, atol=1e-12)
    assert np.allclose(gap, h(middle) - (slope * middle + constant), atol=1e-12)


def test_rows_without_an_axis_of_their_own_get_the_same_lines() -> None:
    p, q, s, bounds = _drawn(np.random.default_rng(4), coarse=False)
    whole, one = hinge(p, q, s[:, None], bounds.with_rows()), hinge(p[:, 2], q[:, 2], s, bounds)
    for many, few in zip(whole, one, strict=True):
        assert np.array_equal(many[:, 2], few)


@pytest.mark.parametrize("leak", [0.0, 0.25])
@pytest.mark.parametrize("pair", [(1, 0), (0, 1), (1, -1)])
def test_lines_of_a_first_layer_are_those_of_the_hinge(pair: tuple[int, int], leak: float) -> None:
    """On whole numbers, so that bends of either copy fall on ends and midpoints, and a little off them."""
    whole = [one.ravel() for one in np.meshgrid(np.arange(-3.0, 3), np.arange(-2.0, 4), np.arange(-3.0, 4))]
    low, high, s = np.hstack([whole, whole + 1e-3 * np.random.default_rng(5).standard_normal((3, len(whole[0])))])
    low, high, s = (one[None, low < high] for one in (low, high, s))
    bounds = LayerBounds(lower=low, upper=high, lower_prime=low - s, upper_prime=high - s, delta_lower=s, delta_upper=s)
    found = first_lines(pair, np.full(low.shape[1], leak), s, bounds)
    for sign, slope, constant in ((1, found.low_slope, found.low_constant), (-1, -found.up_slope, -found.up_constant)):
        p, q = (np.full(s.shape, (1 - leak) * sign * one) for one in pair)
        line, level, _ = hinge(p, q, s, bounds)
        assert np.allclose(slope, line + leak * sign * sum(pair), atol=1e-12)
        assert np.allclose(constant, level - leak * sign * pair[1] * s, atol=1e-12)
