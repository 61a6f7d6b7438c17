"""Sigmoid and tanh: enclosures, lines and difference bounds against ball arithmetic, most of all at the corners."""

from itertools import pairwise

import numpy as np
import pytest
from flint import arb, ctx

from encoders.arrays import Array
from encoders.bounds.relu import LayerBounds
from encoders.bounds.smooth import curves as curve_lines
from encoders.bounds.smooth.curves import curved, curved_difference
from encoders.bounds.smooth.tanh import slope_bounds, tanh_bounds
from encoders.curves.floats import ERROR, tanh
from encoders.curves.layer import Curve, SmoothLayer, value
from verifair.checker.kernel import curves as check_curves

RNG = np.random.default_rng(0)
CORNERS = np.array([0.0, 5e-324, 1e-310, 1e-30, 1e-8, 0.3, 1.0, 2.5, 9.0, 18.4, 19.0, 20.0, 20.1, 40.0, 710.0, 1e30, 1e308])
POINTS = np.concatenate([-CORNERS, CORNERS, RNG.normal(size=300) * 3, RNG.uniform(-25, 25, 300), 10.0 ** RNG.uniform(-320, 3, 200)])
WIDTHS = (0.0, 1e-300, 1e-9, 0.01, 0.5, 3.0, 30.0, 1e30)


@pytest.fixture(autouse=True)
def _precise() -> object:
    before, ctx.prec = ctx.prec, 400
    yield
    ctx.prec = before


def intervals() -> tuple[Array, Array]:
    """Many intervals [l, u]: tiny, huge, of one point, across 0, saturated."""
    low = np.repeat(POINTS, len(WIDTHS))
    with np.errstate(over="ignore"):
        high = np.minimum((POINTS[:, None] + np.array(WIDTHS)).ravel(), 1e308)
    return low, high


def within(low: Array, high: Array, share: float) -> Array:
    return np.clip(low + share * (high - low), low, high)


def not_above(bound: float, truth: arb) -> bool:
    return not arb(bound) > truth


@pytest.mark.parametrize("of", [tanh, check_curves.tanh], ids=["engine", "checker"])
def test_tanh_is_off_by_less_than_its_error(of: object) -> None:
    found = of(POINTS)  # type: ignore[operator]
    for t, one in zip(POINTS.tolist(), found.tolist(), strict=True):
        assert abs(arb(t).tanh() - arb(one)) < ERROR / 2


def test_two_ways_to_tanh_share_nothing_and_agree() -> None:
    t = RNG.uniform(-22, 22, 20000)
    assert np.abs(tanh(t) - check_curves.tanh(t)).max() < ERROR
    assert np.abs(tanh(t) - np.tanh(t)).max() < ERROR


def test_ends_hold_the_true_value() -> None:
    for low, high in (tanh_bounds(POINTS), (check_curves.below(POINTS), check_curves.above(POINTS))):
        for t, below, above in zip(POINTS.tolist(), low.tolist(), high.tolist(), strict=True):
            truth = arb(t).tanh()
            assert not_above(below, truth)
            assert not truth > arb(above)
        assert (low >= -1).all()
        assert (high <= 1).all()
        assert (low[POINTS >= 0] >= 0).all()
        assert (high[POINTS <= 0] <= 0).all()


def test_nan_and_infinities_prove_nothing_wrong() -> None:
    odd = np.array([np.nan, np.inf, -np.inf])
    low, high = tanh_bounds(odd)
    assert np.isnan([low[0], high[0]]).all()
    assert (low[1:] <= [1, -1]).all()
    assert (high[1:] >= [1, -1]).all()
    assert np.isnan([check_curves.below(odd)[0], check_curves.above(odd)[0]]).all()


@pytest.mark.parametrize("of", [curve_lines._chord_above, check_curves._chord], ids=["engine", "checker"])
def test_a_line_over_an_interval_without_an_end_is_none(of: object) -> None:
    """Forms may overflow where the values do not: what is NaN must not come out as a line that looks like one."""
    low, high = np.array([np.nan, -1.0, np.nan]), np.array([1.0, np.nan, np.nan])
    slope, constant = of(np.full(3, 0.1), np.full(3, 0.9), low, high)  # type: ignore[operator]
    assert np.isnan(slope + constant).all()


@pytest.mark.parametrize("of", [slope_bounds, check_curves.slopes], ids=["engine", "checker"])
def test_slopes_hold_the_derivative_of_the_whole_interval(of: object) -> None:
    low, high = intervals()
    least, most = of(low, high)  # type: ignore[operator]
    for share in (0.0, 0.4, 1.0):
        t = within(low, high, share)
        for k in range(0, len(t), 7):
            truth = 1 / arb(float(t[k])).cosh() ** 2
            assert not_above(least[k], truth)
            assert not truth > arb(float(most[k]))


def tanh_of(count: int) -> check_curves.Smooth:
    """The checker's tanh for so many neurons."""
    one = np.ones(count)
    return check_curves.Smooth(index=np.arange(count), scale=one, half=one, c=0 * one)


def lines(name: str, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """Slope and intercept above, and below, T on [low, high]."""
    if name == "engine":
        up, low_line = curve_lines.line_above(low, high), curve_lines.line_above(-high, -low)
        return *up, low_line[0], -low_line[1]
    band = tanh_of(1).band(low, high)
    return *band.over, *band.under


@pytest.mark.parametrize("name", ["engine", "checker"])
@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.filterwarnings("ignore:invalid")
def test_lines_enclose_the_curve(name: str) -> None:
    low, high = intervals()
    up_slope, up, low_slope, down = lines(name, low, high)
    assert ((up_slope >= 0) & (up_slope <= 1) & (low_slope >= 0) & (low_slope <= 1)).all()
    for share in (0.0, 1e-3, 0.3, 0.5, 0.9, 1.0):
        t = within(low, high, share)
        for k in range(len(t)):
            point = arb(float(t[k]))
            truth = point.tanh()
            assert not truth > arb(float(up_slope[k])) * point + arb(float(up[k]))
            assert not arb(float(low_slope[k])) * point + arb(float(down[k])) > truth


@pytest.mark.parametrize("name", ["engine", "checker"])
def test_lines_are_tight_on_narrow_intervals(name: str) -> None:
    low = RNG.uniform(-3, 3, 500)
    for width in (0.1, 0.01):
        high = low + width
        middle = (low + high) / 2
        up_slope, up, low_slope, down = lines(name, low, high)
        gap = (up_slope - low_slope) * middle + up - down
        assert (gap <= 0.77 * width**2 / 8 * 1.1 + 1e-12).all()


def random_layer(bounds_of: str) -> tuple[SmoothLayer, LayerBounds, Array]:
    """Neurons of all kinds with intervals of a and a' = a - s (`first`), or with independent ones (`later`)."""
    rng, n = np.random.default_rng(7), 400
    curve = rng.choice([Curve.SIGMOID, Curve.TANH, Curve.BENT], n).astype(np.int8)
    bend = np.where(curve == Curve.BENT, rng.choice([0.0, 0.25, 1.0], n), 1.0)
    layer = SmoothLayer(weight=np.zeros((n, 1)), bias=np.zeros(n), bend=bend, curve=curve)
    low = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-6, 1.7, n)
    high = low + rng.choice([0.0, 1e-7, 0.1, 2.0, 50.0], n)
    shift = rng.choice([0.0, 1e-9, -1e-4, 0.3, -2.0, 40.0], n)
    if bounds_of == "first":
        ends = (low, high, low - shift, high - shift, shift, shift)
    else:
        other = low + rng.normal(size=n), high + rng.normal(size=n) + 3.0
        ends = (low, high, *other, np.maximum(low - other[1], -5.0), np.maximum(np.minimum(high - other[0], 5.0), -4.9))
    names = ("lower", "upper", "lower_prime", "upper_prime", "delta_lower", "delta_upper")
    return layer, LayerBounds(**{name: end[None] for name, end in zip(names, ends, strict=True)}), shift[None]


def samples(bounds: LayerBounds, shift: Array | None) -> list[tuple[Array, Array]]:
    """Pairs (a, a') that the bounds allow, (1, n) each; NaN where a draw fell outside."""
    out = []
    for share in np.linspace(0, 1, 33):  # also between the ends of the cells, where a line could cut through the curve
        a = within(bounds.lower, bounds.upper, share)
        if shift is not None:
            out.append((a, a - shift))
            continue
        for other in (0.0, 0.5, 1.0):
            delta = within(bounds.delta_lower, bounds.delta_upper, other)
            prime = a - delta
            ok = (prime >= bounds.lower_prime) & (prime <= bounds.upper_prime) & (a - prime == delta)
            out.append((a, np.where(ok, prime, np.nan)))
    return out


def outputs(layer: SmoothLayer, a: Array) -> Array:
    bent = np.where(a > 0, a, layer.bend * a)
    return np.where(layer.curve == Curve.BENT, bent, value(a, layer.curve))


@pytest.mark.parametrize("where", ["first", "later"])
def test_outputs_and_differences_lie_in_their_intervals(where: str) -> None:
    layer, bounds, shift = random_layer(where)
    given = shift if where == "first" else None
    straight = (np.full_like(shift, -np.inf), np.full_like(shift, np.inf))
    ends = curved(layer, bounds.lower, bounds.upper, straight)
    low, high = curved_difference(layer, bounds, straight)
    slack = 2 * ERROR
    seen = 0
    for a, prime in samples(bounds, given):
        y, y_prime = outputs(layer, a), outputs(layer, prime)
        ok = np.isfinite(prime) & (layer.curve != Curve.BENT)
        assert ((y >= ends[0] - slack) & (y <= ends[1] + slack))[np.isfinite(a) & (layer.curve != Curve.BENT)].all()
        assert ((y - y_prime >= low - slack) & (y - y_prime <= high + slack))[ok].all()
        seen += int(ok.sum())
    assert seen > 500
    dead = (bounds.delta_lower == 0) & (bounds.delta_upper == 0) & (layer.curve != Curve.BENT)
    assert (low[dead] == 0).all()
    assert (high[dead] == 0).all()


@pytest.mark.parametrize("where", ["first", "later"])
def test_lines_of_copies_and_differences_hold(where: str) -> None:
    layer, bounds, shift = random_layer(where)
    one, apart = curve_lines.copy_lines(layer, bounds.lower, bounds.upper), curve_lines.difference_lines(layer, bounds)
    for a, prime in samples(bounds, shift if where == "first" else None):
        y = outputs(layer, a)
        slack = 1e-12 * (1 + np.abs(a))
        assert (one.low_slope * a + one.low_constant <= y + slack).all()
        assert (one.up_slope * a + one.up_constant >= y - slack).all()
        d, delta, ok = y - outputs(layer, prime), a - prime, np.isfinite(prime)
        inside = ok & (delta >= bounds.delta_lower) & (delta <= bounds.delta_upper)
        assert (apart.low_slope * delta + apart.low_constant <= d + slack)[inside].all()
        assert (apart.up_slope * delta + apart.up_constant >= d - slack)[inside].all()


def test_the_pair_line_lies_under_both_copies_and_keeps_them_together() -> None:
    layer, bounds, shift = random_layer("first")
    pairs = curve_lines.PairLines.of(layer, shift, bounds)
    for p, q in ((1.0, -1.0), (-1.0, 1.0), (2.0, -0.5), (0.0, 3.0), (-1.0, -1.0), (1e20, -1e20)):
        p_all, q_all = np.full_like(shift, p), np.full_like(shift, q)
        slope, constant, gap = pairs.under(p_all, q_all, ...)
        for a, prime in samples(bounds, shift):
            h = p * outputs(layer, a) + q * outputs(layer, prime)
            assert (slope * a + constant <= h + 1e-12 * (abs(p) + abs(q)) * (1 + np.abs(a) + np.abs(prime))).all()
        assert (gap[:, layer.curve != Curve.BENT] >= 0).all()
    narrow, smooth = (bounds.upper - bounds.lower <= 0.1) & (np.abs(shift) < 1e-3), layer.curve != Curve.BENT
    _, _, gap = pairs.under(np.ones_like(shift), -np.ones_like(shift), ...)
    assert (gap[narrow & smooth] <= 3e-3 * np.abs(shift[narrow & smooth]) + 1e-12).all()


def test_checker_planes_hold() -> None:
    layer, bounds, shift = random_layer("first")
    (smooth,) = check_curves.Smooth.of(layer)
    at = smooth.index
    ends = [smooth.scale * end[:, at] for end in (bounds.lower, bounds.upper, bounds.lower_prime, bounds.upper_prime)]
    delta = -smooth.scale * shift[:, at]  # the checker's D is a' - a
    planes = check_curves.CurvePlanes.of(smooth, [*ends, delta, delta])
    pairs = check_curves.CurvePairs.of(smooth, [*ends, delta, delta], delta)
    box = np.zeros(1, dtype=np.int64)
    for p, q in ((1.0, -1.0), (-1.0, 1.0), (2.0, -0.5), (0.0, 3.0), (-1.0, -1.0)):
        weights = np.full_like(delta, p), np.full_like(delta, q)
        for alpha, beta, offset in (planes.lines(*weights, box), pairs.lines(*weights, box)):
            for share in np.linspace(0, 1, 65):
                t = within(ends[0], ends[1], share)
                h = p * np.tanh(t) + q * np.tanh(t + delta)
                size = 1e-12 * (1 + np.abs(t) + np.abs(t + delta))
                assert (alpha * t + beta * (t + delta) + offset <= h + size).all()


@pytest.mark.parametrize("where", ["first", "later"])
def test_engine_and_checker_take_the_same_lines(where: str) -> None:
    """The standard relaxation: whoever re-proves a leaf must find the lines that the search has found, up to rounding."""
    layer, bounds, shift = random_layer(where)
    (smooth,), box = check_curves.Smooth.of(layer), np.zeros(1, dtype=np.int64)
    at, scale, (_, _, half, _) = smooth.index, smooth.scale, curve_lines.smooth(layer)
    low, high, low2, high2, d_low, d_high = ends = [scale * end[:, at] for end in checker_ends(bounds)]
    size = 1e-11 * (1 + np.abs(low) + np.abs(high) + np.abs(d_low) + np.abs(d_high))
    band, other = smooth.band(low, high), curve_lines._lines(low, high)
    apart = check_curves.slope_band(*check_curves.slopes(np.minimum(low, low2), np.maximum(high, high2)), d_low, d_high)
    theirs = curve_lines.difference_lines(layer, bounds).take(np.s_[:, at])  # of y - y' in a - a', so mirrored
    for t, d in ((low, d_low), ((low + high) / 2, (d_low + d_high) / 2), (high, d_high)):
        assert (np.abs(band.under[0] * t + band.under[1] - other.low_slope * t - other.low_constant) <= size).all()
        assert (np.abs(band.over[0] * t + band.over[1] - other.up_slope * t - other.up_constant) <= size).all()
        under, over = (half * (line[0] * d + line[1]) for line in (apart.under, apart.over))
        assert (np.abs(under - theirs.up_slope * d / scale + theirs.up_constant) <= size).all()
        assert (np.abs(over - theirs.low_slope * d / scale + theirs.low_constant) <= size).all()
    if where == "first":
        pairs = check_curves.CurvePairs.of(smooth, [*ends[:4], -scale * shift[:, at], -scale * shift[:, at]], -scale * shift[:, at])
        for p, q in ((1.0, -1.0), (-1.0, 1.0), (2.0, -0.5), (0.0, 3.0), (-1.0, -1.0), (-1.0, 1e-6)):
            both = np.full_like(shift, p), np.full_like(shift, q)
            slope, constant, _ = curve_lines.PairLines.of(layer, shift, bounds).under(*both, ...)
            alpha, beta, offset = pairs.lines(half * np.full_like(low, p), half * np.full_like(low, q), box)
            constant = constant[:, at] - smooth.c * (p + q)
            for t in (low, (low + high) / 2, high):
                mine = alpha * t + beta * (t - scale * shift[:, at]) + offset
                assert (np.abs(mine - slope[:, at] * t / scale - constant) <= 10 * size * (abs(p) + abs(q))).all()


@pytest.mark.parametrize("where", ["first", "later"])
def test_engine_and_checker_enclose_differences_alike(where: str) -> None:
    layer, bounds, shift = random_layer(where)
    none = (np.full_like(shift, -np.inf), np.full_like(shift, np.inf))
    low, high = (end[:, layer.smooth] for end in curved_difference(layer, bounds, none))
    ends = checker_ends(bounds)
    (smooth,) = check_curves.Smooth.of(layer)
    d_low, d_high = smooth.difference(ends)
    copies = [smooth.outputs(*pair) for pair in (ends[:2], ends[2:4])]
    d_low, d_high = np.maximum(d_low, copies[1][0] - copies[0][1]), np.minimum(d_high, copies[1][1] - copies[0][0])
    assert np.abs(d_low + high).max() < 1e-12
    assert np.abs(d_high + low).max() < 1e-12


def checker_ends(bounds: LayerBounds) -> list[Array]:
    """Intervals of a, a' and a' - a."""
    return [bounds.lower, bounds.upper, bounds.lower_prime, bounds.upper_prime, -bounds.delta_upper, -bounds.delta_lower]


def test_a_smooth_layer_has_no_slope() -> None:
    layer, _, _ = random_layer("first")
    with pytest.raises(Exception, match=r"docs/concepts/smooth\.md") as caught:
        _ = layer.slope
    assert caught.type.__name__ == "CurveError"
    assert caught.value.exit_code == 3
    assert not layer.linear
    for below, above in pairwise(sorted(Curve)):
        assert below.shown != above.shown
