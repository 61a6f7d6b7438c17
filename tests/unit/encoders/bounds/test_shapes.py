"""Curves beside tanh: tables, enclosures, lines and pairs of engine and checker, against ball arithmetic and each other."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from flint import arb, ctx

from encoders.arrays import Array
from encoders.bounds.relu import LayerBounds
from encoders.bounds.smooth import shapes
from encoders.bounds.smooth.curves import PairLines, curved, curved_difference
from encoders.bounds.smooth.shapes import shaped
from encoders.curves.floats import ERROR
from encoders.curves.layer import Curve, SmoothLayer, value
from encoders.curves.shapes import SHAPES
from verifair.checker.kernel import curves as check_curves
from verifair.checker.kernel import shapes as check_shapes

KINDS = [kind for kind in Curve if Curve.TANH < kind != Curve.SQUARE]
RNG = np.random.default_rng(0)
CORNERS = np.array([0.0, 5e-324, 1e-310, 1e-30, 1e-8, 0.3, 1.0, 2.5, 3.0, 9.0, 18.4, 39.99, 40.0, 40.1, 710.0, 1e30])
WIDTHS = (0.0, 1e-300, 1e-12, 0.01, 0.5, 3.0, 6.0, 30.0, 1e30)
Evaluation = Callable[[Array, Curve], tuple[Array, Array]]


@pytest.fixture(autouse=True)
def _precise() -> object:
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


def points(kind: Curve) -> Array:
    turns = np.array([z for z in (kind.shape.z1, kind.shape.z2, kind.shape.lowest) if np.isfinite(z)])
    beside = [turns, np.nextafter(turns, -9), np.nextafter(turns, 9)]
    return np.concatenate([-CORNERS, CORNERS, *beside, RNG.normal(size=60) * 3, RNG.uniform(-45, 45, 30)])


def intervals(kind: Curve) -> tuple[Array, Array]:
    """Many intervals: of one point, tiny, huge, symmetrical, with ends at inflections and joints."""
    at = points(kind)
    low, high = np.repeat(at, len(WIDTHS)), (at[:, None] + np.array(WIDTHS)).ravel()
    symmetrical = RNG.uniform(0, 6, 30)
    return np.concatenate([low, -symmetrical, -CORNERS]), np.concatenate([high, symmetrical, CORNERS])


def above(bound: float, truth: arb) -> bool:
    return not truth > arb(float(bound))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of", [shaped, lambda t, kind: check_shapes.curve(kind, t)], ids=["engine", "checker"])
def test_values_and_slopes_are_off_by_less_than_their_error(of: Evaluation, kind: Curve) -> None:
    t = points(kind)
    found, slopes = of(t, kind)
    for x, one, slope in zip(t.tolist(), found.tolist(), slopes.tolist(), strict=True):
        assert abs(kind.shape.value(arb(x)) - arb(one)) < ERROR / 4 * (1 + abs(arb(x)))
        if abs(x) < 1e3:
            right = x if x not in kind.shape.joints else x + 0.1
            assert abs(kind.shape.series(arb(x), 2, right)[1] - arb(slope)) < ERROR / 4
    odd = of(np.array([np.nan, np.inf, -np.inf]), kind)
    assert np.isnan(odd[0][0])
    assert odd[0][1] == np.inf


@pytest.mark.parametrize("kind", KINDS)
def test_float_values_are_those_of_the_definition(kind: Curve) -> None:
    t = np.linspace(-9, 9, 101)
    expected = {
        "softplus": np.logaddexp(t, 0), "elu": np.where(t > 0, t, np.expm1(t)), "silu": t / (1 + np.exp(-t)),
        "mish": t * np.tanh(np.logaddexp(t, 0)), "hardswish": t * np.clip(t / 6 + 0.5, 0, 1),
        "selu": 1.0507009873554805 * np.where(t > 0, t, 1.6732632423543772 * np.expm1(t)),
        "gelu_tanh": t / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (t + 0.044715 * t**3))),
    }.get(kind.name.lower())
    if expected is not None:
        assert np.abs(value(t[:, None], np.array([kind], dtype=np.int8))[:, 0] - expected).max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", ["z1", "z2", "slopes", "lowest", "least", "kink", "bend", "twist", "floor", "rise"])
def test_a_wrong_fact_about_a_curve_makes_no_table(kind: Curve, wrong: str) -> None:
    """Ball arithmetic shows each of them; one that is infinite claims nothing."""
    shape, known = kind.shape, getattr(kind.shape, wrong)
    idle = (wrong == "slopes" and not np.isfinite(shape.z2)) or (wrong == "least" and not np.isfinite(shape.lowest))
    if known in (np.inf, -np.inf) or idle or (wrong == "kink" and not np.isfinite(shape.z2)):
        assert wrong in ("z1", "z2", "slopes", "lowest", "least", "kink", "twist")
        return
    changed = known * 0.9 if wrong in ("bend", "twist") else (known[0], known[1] + 1e-9) if wrong == "slopes" else known + 1e-9
    with pytest.raises(ArithmeticError, match="does not hold"):
        list(replace(shape, **{wrong: changed}).cells(16, 12))


def engine_lines(kind: Curve, low: Array, high: Array) -> tuple[Array, ...]:
    return shapes.lines(kind, low, high).fields


def checker_lines(kind: Curve, low: Array, high: Array) -> tuple[Array, ...]:
    under, over = check_shapes.band(kind, low, high)
    return *under, *over


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["engine", "checker"])
@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.filterwarnings("ignore:invalid")
def test_intervals_slopes_and_lines_enclose_the_curve(name: str, kind: Curve) -> None:
    low, high = intervals(kind)
    down_slope, down, up_slope, up = (engine_lines if name == "engine" else checker_lines)(kind, low, high)
    least, most = (shapes.values if name == "engine" else check_shapes.outputs)(kind, low, high)
    flat, steep = (shapes.slopes if name == "engine" else check_shapes.slopes)(kind, low, high)
    assert np.isfinite([down_slope, down, up_slope, up]).all()
    assert max(np.abs(down_slope).max(), np.abs(up_slope).max()) < 2
    assert (np.abs([down, up]) <= 4 * np.maximum(np.abs(low), np.abs(high)) + 1.0001).all()
    for share in (0.0, 1e-3, 0.3, 0.5, 0.9, 1.0):
        t = np.clip(low + share * (high - low), low, high)
        for k in range(int(10 * share) % 3, len(t), 3):
            point = arb(float(t[k]))
            truth = kind.shape.value(point)
            assert above(most[k], truth)
            assert above(-least[k], -truth)
            assert not truth > arb(float(up_slope[k])) * point + arb(float(up[k]))
            assert not truth < arb(float(down_slope[k])) * point + arb(float(down[k]))
            if abs(t[k]) < 1e3:
                for right in (t[k] - 1e-9, t[k] + 1e-9) if low[k] + 1e-9 < t[k] < high[k] - 1e-9 else ():
                    slope = kind.shape.series(arb(float(right)), 2, float(right))[1]
                    assert above(steep[k] + 1e-8, slope)
                    assert above(-flat[k] + 1e-8, -slope)


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_those_of_the_hull_at_the_middle(kind: Curve) -> None:
    low = RNG.uniform(-7, 6, 60)
    high = low + RNG.exponential(3, 60)
    down_slope, down, up_slope, up = engine_lines(kind, low, high)
    slopes = np.linspace(-0.6, 1.8, 4801)
    for k in range(60):
        t = np.linspace(low[k], high[k], 201)
        at, c = shaped(t, kind)[0], (low[k] + high[k]) / 2
        rest = at - slopes[:, None] * (t - c)
        assert up_slope[k] * c + up[k] <= rest.max(axis=1).min() + 3e-3
        assert down_slope[k] * c + down[k] >= rest.min(axis=1).max() - 3e-3


def random_layer(where: str) -> tuple[SmoothLayer, LayerBounds, Array]:
    """Neurons of all curves with intervals of a and a' = a - s (`first`), or with independent ones (`later`)."""
    rng, n = np.random.default_rng(7), 800
    curve = rng.choice([Curve.BENT, Curve.SIGMOID, Curve.TANH, *KINDS], n).astype(np.int8)
    layer = SmoothLayer(weight=np.zeros((n, 1)), bias=np.zeros(n), bend=np.where(curve == Curve.BENT, 0.25, 1.0), curve=curve)
    low = rng.normal(size=(1, n)) * 4
    high = low + rng.choice([0.0, 1e-9, 0.1, 1.0, 8.0], (1, n)) * rng.random((1, n))
    shift = rng.choice([0.0, 1e-6, 0.1, 2.0], (1, n)) * rng.normal(size=(1, n))
    if where == "first":
        delta, prime = (shift, shift), (low - shift, high - shift)
    else:
        prime = (low + rng.normal(size=(1, n)), high + 2.5 + rng.random((1, n)))
        delta = (low - prime[1], high - prime[0])
    return layer, LayerBounds.of((low, high), prime, delta), shift


def checker_ends(bounds: LayerBounds) -> list[Array]:
    return [bounds.lower, bounds.upper, bounds.lower_prime, bounds.upper_prime, -bounds.delta_upper, -bounds.delta_lower]


@pytest.mark.parametrize(("p", "q"), [(1.0, -1.0), (2.0, -0.5), (0.0, 3.0), (-1.0, -1.0), (-1.0, 1.0)])
def test_pair_lines_lie_below_and_are_the_checkers(p: float, q: float) -> None:
    layer, bounds, shift = random_layer("first")
    slope, constant, _ = PairLines.of(layer, shift, bounds).under(np.full_like(shift, p), np.full_like(shift, q), ...)
    for smooth in check_curves.Smooth.of(layer):
        at = smooth.index
        if smooth.kind is None:
            continue
        pairs = check_curves.CurvePairs.of(smooth, [end[:, at] for end in checker_ends(bounds)], -shift[:, at])
        alpha, beta, offset = pairs.lines(np.full((1, len(at)), p), np.full((1, len(at)), q), np.zeros(1, dtype=np.int64))
        for share in (0.0, 0.2, 0.5, 1.0):
            t = bounds.lower[:, at] + share * (bounds.upper - bounds.lower)[:, at]
            mine = slope[:, at] * t + constant[:, at]
            assert np.abs(alpha * t + beta * (t - shift[:, at]) + offset - mine).max() < 1e-12
            for k, x in enumerate(t[0].tolist()):
                truth = p * smooth.kind.shape.value(arb(x)) + q * smooth.kind.shape.value(arb(x) - arb(float(shift[0, at[k]])))
                assert not arb(float(mine[0, k])) > truth


@pytest.mark.parametrize("where", ["first", "later"])
def test_engine_and_checker_enclose_alike(where: str) -> None:
    layer, bounds, shift = random_layer(where)
    none = (np.full_like(shift, -np.inf), np.full_like(shift, np.inf))
    low, high = curved_difference(layer, bounds, none)
    y = curved(layer, bounds.lower, bounds.upper, none)
    ends = checker_ends(bounds)
    for smooth in check_curves.Smooth.of(layer):
        at = smooth.index
        copies = [smooth.outputs(*pair) for pair in (ends[:2], ends[2:4])]
        d_low, d_high = smooth.difference(ends)
        d_low, d_high = np.maximum(d_low, copies[1][0] - copies[0][1]), np.minimum(d_high, copies[1][1] - copies[0][0])
        assert np.abs(d_low + high[:, at]).max() < 1e-12
        assert np.abs(d_high + low[:, at]).max() < 1e-12
        assert np.abs(np.stack(copies[0]) - np.stack([end[:, at] for end in y])).max() < 1e-12
        if smooth.kind is not None:
            mine, theirs = (lines(smooth.kind, *(end[:, at] for end in ends[:2])) for lines in (engine_lines, checker_lines))
            for t in (bounds.lower[:, at], bounds.upper[:, at]):
                assert np.abs((mine[0] - theirs[0]) * t + mine[1] - theirs[1]).max() < 1e-12
                assert np.abs((mine[2] - theirs[2]) * t + mine[3] - theirs[3]).max() < 1e-12


def test_every_shape_is_a_curve() -> None:
    assert set(SHAPES) == {kind.name.lower() for kind in KINDS}
