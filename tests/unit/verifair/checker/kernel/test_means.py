"""Bounds of means of functions of trees' scores, against all rows of small domains."""

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from encoders.exact.dyadic import exact
from encoders.model import Link
from encoders.onnx.reader import read_model
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees, Ramps
from tests.builders import integer, one_hot, real, schema_of
from tests.draws import draws
from tests.tree_models import random_tree, save
from verifair.checker.kernel.trees.choice import tree_bounds
from verifair.checker.kernel.trees.means import MeanBounds, ScorePart, _quadratic

SCHEMA = schema_of(integer("a", 0, 3), integer("b", 0, 3), integer("c", 0, 2), positive="logit > 0")
ROWS = np.stack(np.meshgrid(range(4), range(4), range(3), indexing="ij"), axis=-1).reshape(-1, 3).astype(float)


def ramps(rng: np.random.Generator, scores: int, logistic: bool, chances: tuple[int, ...] = ()) -> Ramps:
    """Ramps one after the other for each score, some steep, some next to one another, and logistic functions. chances: scores that
    are logistic functions of sums themselves."""
    parts = []
    for score in range(scores):
        ends = np.sort(rng.choice(np.arange(-8, 9) / 4 + 0.125, size=6, replace=False)).astype(np.float32)
        ends = ends / 8 + np.float32(0.5) if score in chances else ends
        ends[1::2] = np.where(rng.random(3) < 0.5, np.nextafter(ends[::2], np.float32(9)), ends[1::2])
        scale = np.float32(1) / np.diff(ends)[::2]
        scale = np.where(scale * np.diff(ends.astype(float))[::2] < 1, np.nextafter(scale, np.float32(np.inf)), scale)
        parts += [(score, False, *one) for one in zip(ends[::2], scale, rng.integers(0, 2**20, 3) * 2.0**-23, strict=True)]
        if logistic:
            parts.append((score, True, np.float32(rng.normal()), np.float32(rng.choice([0.5, 4.0, 1e4])), 2.0**-3))
    score, curved, shift, scale, weight = zip(*parts, strict=True)
    return Ramps(chances=np.isin(np.arange(scores), chances), score=np.array(score), logistic=np.array(curved),
                 shift=np.array(shift, dtype=float), scale=np.array(scale, dtype=float), weight=np.array(weight),
                 constant=float(rng.integers(0, 2**20) * 2.0**-23))


def mean(rng: np.random.Generator, tmp_path: object, *, logistic: bool) -> MeanOfTrees:
    trees = read_model(save(tmp_path / "m.onnx", [random_tree(rng, 3, 3, scores=2) for _ in range(3)], 3))
    made, below = ramps(rng, 2, logistic, ((), (0,), (1,), (0, 1))[rng.integers(4)] if logistic else ()), bool(rng.random() < 0.5)
    link = Link.SHARES if rng.random() < 0.5 else Link.SIGMOID
    if link is Link.SIGMOID:
        made = replace(made, weight=made.weight * rng.choice([1.0, 8.0, 3.5]), constant=-float(np.float32(rng.random())))
    lines = rng.choice([0.0, 0.0, 0.5, -1.25, 0.1], size=(2, 3)) if rng.random() < 0.5 else None
    squares = rng.choice([0.0, 0.5, -0.25, 0.1], size=(2, 3)) if lines is not None and rng.random() < 0.5 else None
    return MeanOfTrees(link=link, source_sha256="", trees=trees, ramps=made, lines=lines, squares=squares, at=0.25, below=below)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("seed", draws(80))
def test_bounds_are_below_what_all_rows_have(seed: int, logistic: bool, tmp_path: object) -> None:
    """Of both copies, of their difference, and of sums of both with weights, over boxes in which the last column is changed."""
    rng = np.random.default_rng(seed)
    model, domain = mean(rng, tmp_path, logistic=logistic), SCHEMA.domain
    bounds = tree_bounds(model, domain)
    assert isinstance(bounds, MeanBounds)
    apart, tight = np.array([False, False, True]), 0
    for _ in range(12):
        low, high = np.sort(rng.integers(0, 4, size=(2, 3)), axis=0).astype(float)
        z, z2 = rng.integers(0, 3, size=2)
        inside = ROWS[((ROWS[:, :2] >= low[:2]) & (ROWS[:, :2] <= high[:2])).all(axis=1) & (ROWS[:, 2] == 0)]
        first, second = (np.column_stack([inside[:, :2], np.full(len(inside), value)]) for value in (z, z2))
        boxes = [(np.append(low[:2], value)[None], np.append(high[:2], value)[None]) for value in (z, z2)]
        weights = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (-1, 1), (1, -1), (-0.5, 0.5), (2.0, -0.75), (-0.25, 0.75), (1, 1)])
        found = bounds.least(*boxes, apart, np.zeros(len(weights), dtype=int), weights[:, :1], weights[:, 1:])
        g, g2 = (model.forward(rows)[:, 0] for rows in (first, second))
        for (p, q), bound in zip(weights.tolist(), found.tolist(), strict=True):
            assert bound <= (p * g + q * g2).min() + 1e-12
            tight += bound >= (p * g + q * g2).min() - 1e-9
        if (g == g2).all() and bounds.single_path(*boxes[0])[0] and bounds.single_path(*boxes[1])[0]:
            assert (found[4:7] >= -1e-6).all()
    assert tight > (6 if model.lines is None else 2)
    if not logistic:
        np.testing.assert_allclose(model.forward(exact(ROWS)).to_float(), model.forward(ROWS), atol=1e-12)


@pytest.mark.parametrize("seed", draws(40))
def test_a_score_that_rises_lets_each_function_rise_as_in_its_flattest_window(seed: int) -> None:
    """From `high` or less to `low` or more, `least` or more apart."""
    rng = np.random.default_rng(seed)
    high, low, least = rng.normal(), rng.normal(), float(rng.choice([0.01, 0.5, 2.0]))
    least = max(least, low - high)
    begin = np.append(high - np.linspace(0, 8, 2001), [low - least, high])
    begin = begin[begin <= high]
    end = np.maximum(begin + least, low)
    for logistic in (False, True):
        made = replace(ramps(rng, 1, True), score=np.zeros(1, dtype=int), logistic=np.array([logistic]),
                       shift=np.array([rng.normal()]), scale=np.array([float(np.float32(rng.choice([0.25, 1.0, 9.0])))]),
                       weight=np.array([0.75]))
        truth = (made.of(end[:, None]) - made.of(begin[:, None])).min()
        (found,) = ScorePart.of(made, 0).rise(*(np.array([one]) for one in (low, high, least)))
        assert truth - 1e-9 <= found <= truth + 2.0**-50


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", draws(100))
def test_a_quadratic_function_is_least_where_its_bound_says(seed: int, whole: bool, tmp_path: Path) -> None:
    """Of whole numbers at one of those next to the vertex, of real ones there; columns far from 0 and scaled ones as well."""
    rng = np.random.default_rng(seed)
    scale, far = str(rng.choice(["none", "minmax"])), float(rng.choice([0.0, 2015.0]))
    feature = (integer if whole else real)("a", far, far + 9, scale=scale)
    trees = read_model(save(tmp_path / "m.onnx", [random_tree(rng, 1, 1, scores=2)], 1))
    assert isinstance(trees, TreeEnsemble)
    domain, s = schema_of(feature).domain, float(rng.normal() * rng.choice([1e-6, 1.0, 1e9]))
    middle = domain.encode(np.array([[far + rng.choice([rng.integers(10), rng.uniform(-3, 12)])]]))[0, 0]
    w = -2 * s * float(middle) * rng.choice([1.0, 1 + 1e-15])
    model = MeanOfTrees(link=Link.SIGMOID, source_sha256="", trees=trees, ramps=ramps(rng, 2, True), lines=np.array([[w], [0.0]]),
                        squares=np.array([[s], [0.0]]))
    low, high = np.sort(far + (rng.integers(0, 10, (2, 20)) if whole else rng.uniform(0, 9, (2, 20))), axis=0)[..., None]
    (first, last), bounds = domain.box(low, high), tree_bounds(model, domain)
    assert isinstance(bounds, MeanBounds)
    for factor in (1.0, -1.0):
        found = _quadratic(w, s, bounds._stationary(0, w, s), np.full(20, factor), first[:, 0], last[:, 0])
        for k in range(20):
            raw = np.arange(low[k, 0], high[k, 0] + 1) if whole else np.append(np.linspace(low[k, 0], high[k, 0], 99), high[k, 0])
            x = [*domain.encode(raw[:, None])[:, 0].tolist(), *([] if whole else [np.clip(middle, first[k, 0], last[k, 0])])]
            values = [Fraction(factor) * (Fraction(w) * Fraction(one) + Fraction(s) * Fraction(one) ** 2) for one in x]
            size = abs(s) * max(1.0, *(one * one for one in x)) + abs(w) * max(map(abs, x))
            assert Fraction(found[k]) <= min(values) <= Fraction(found[k]) + Fraction(2.0**-46 * size)


@pytest.mark.parametrize("apart", ["b", "c"])
@pytest.mark.parametrize("seed", draws(80))
def test_bounds_of_functions_of_categories_are_below_what_all_rows_have(seed: int, apart: str, tmp_path: Path) -> None:
    """Boxes of a number and of categories, of which b or c is changed."""
    rng, schema = np.random.default_rng(seed), schema_of(integer("a", 0, 3), one_hot("b", *"xyz"), one_hot("c", *"uvw"))
    trees = read_model(save(tmp_path / "m.onnx", [random_tree(rng, 7, 3, scores=2) for _ in range(2)], 7))
    assert isinstance(trees, TreeEnsemble)
    model = MeanOfTrees(link=Link.SIGMOID, source_sha256="", trees=trees, ramps=ramps(rng, 2, True, (1,)),
                        lines=np.where(rng.random((2, 7)) < 0.3, 0.0, rng.normal(size=(2, 7))),
                        squares=np.where(rng.random((2, 7)) < 0.5, 0.0, rng.normal(size=(2, 7))) if seed % 2 else None)
    domain, bounds, tight = schema.domain, tree_bounds(model, schema.domain), 0
    assert isinstance(bounds, MeanBounds)
    moved, weights = "abc".index(apart), np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (-1, 1), (1, -1)], dtype=float)
    apart_columns = np.isin(np.arange(7), domain.columns_of(np.array([moved])))
    every = np.array(list(itertools.product(range(4), range(3), range(3))), dtype=float)
    for _ in range(12):
        low, high = np.sort(rng.integers(0, [4, 3, 3], size=(2, 3)), axis=0).astype(float)
        low2, high2 = low.copy(), high.copy()
        low[moved] = high[moved] = rng.integers(3)
        low2[moved] = high2[moved] = rng.integers(3)
        first = every[((every >= low) & (every <= high)).all(axis=1)]
        second = first.copy()
        second[:, moved] = low2[moved]
        boxes = [domain.box(one[None], two[None]) for one, two in ((low, high), (low2, high2))]
        found = bounds.least(*boxes, apart_columns, np.zeros(len(weights), dtype=int), weights[:, :1], weights[:, 1:])
        g, g2 = (model.forward(domain.encode(rows))[:, 0] for rows in (first, second))
        for (p, q), bound in zip(weights.tolist(), found.tolist(), strict=True):
            assert bound <= (p * g + q * g2).min() + 1e-12
            tight += bound >= (p * g + q * g2).min() - 1e-9
        if len(first) > 1 and not bounds.single_path(*boxes[0])[0]:
            tight += 1
        elif len(first) > 1:
            assert np.ptp(g) < 1e-12
    assert tight > 2


@pytest.mark.parametrize("seed", draws(8))
def test_columns_that_are_alike_in_both_copies_add_nothing_to_a_difference(seed: int, tmp_path: Path) -> None:
    """Whatever the weights: no product of theirs is rounded. Column c may be told apart, and is the same."""
    rng, schema = np.random.default_rng(seed), schema_of(integer("a", 0, 3), one_hot("b", *"xyz"), integer("c", 0, 3))
    trees = read_model(save(tmp_path / "m.onnx", [random_tree(rng, 4, 3, scores=2) for _ in range(2)], 5))
    assert isinstance(trees, TreeEnsemble)
    model = MeanOfTrees(link=Link.SIGMOID, source_sha256="", trees=trees, ramps=ramps(rng, 2, True, (1,)),
                        lines=rng.normal(size=(2, 5)), squares=rng.normal(size=(2, 5)))
    box = schema.domain.box(np.array([[0.0, 0.0, 2.0]]), np.array([[3.0, 2.0, 2.0]]))
    apart, one = np.arange(5) == 4, np.ones((1, 1))
    for p in (one, -one):
        assert tree_bounds(model, schema.domain).least(box, box, apart, np.zeros(1, dtype=int), p, -p)[0] == 0


@pytest.mark.parametrize("squares", [None, np.full((2, 1), 1e300), np.full((2, 1), -1e300)])
@pytest.mark.parametrize("weight", [1e300, -1e300])
def test_nothing_is_known_of_a_function_beyond_float64(weight: float, squares: np.ndarray | None, tmp_path: Path) -> None:
    """An infinite bound would say that nobody is in a box."""
    rng, schema = np.random.default_rng(0), schema_of(integer("a", 0, 10**9))
    trees = read_model(save(tmp_path / "m.onnx", [random_tree(rng, 1, 2, scores=2)], 1))
    assert isinstance(trees, TreeEnsemble)
    model = MeanOfTrees(link=Link.SIGMOID, source_sha256="", trees=trees, ramps=ramps(rng, 2, True), lines=np.full((2, 1), weight),
                        squares=squares)
    box, one = schema.domain.box(np.array([[5e8]]), np.array([[1e9]])), np.ones((1, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for p, q in itertools.product((-one, 0 * one, one), repeat=2):
            bound = tree_bounds(model, schema.domain).least(box, box, np.zeros(1, dtype=bool), np.zeros(1, dtype=int), p, q)[0]
            assert bound <= 0 or np.isnan(bound)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("seed", draws(200))
def test_windows_hold_all_that_a_score_can_fall_by(seed: int, logistic: bool) -> None:
    rng = np.random.default_rng(seed)
    model = ramps(rng, 1, logistic)
    part = ScorePart.of(model, 0)
    assert part.apart
    overlapping = ScorePart.of(replace(model, scale=model.scale / 64), 0)
    low, most = rng.choice(np.append(model.shift, rng.normal(size=3)), size=(2, 20))
    high, most = low + np.abs(rng.normal(size=20)) * rng.choice([0.01, 1, 3], size=20), np.abs(most)
    found, loose = part.fall(low, high, most), overlapping.fall(low, high, most)
    for k in range(20):
        top = np.concatenate([np.linspace(low[k], high[k], 400), model.shift + 1 / model.scale, model.shift + most[k],
                              low[[k]] + most[k]])
        top = np.clip(top, low[k], high[k])
        bottom = np.maximum(top - most[k], low[k])
        fall = (model.of(top[:, None]) - model.of(bottom[:, None])).max()
        assert found[k] >= fall - 1e-12
        assert logistic or found[k] <= fall + 1e-5
        wide = replace(model, scale=model.scale / 64)
        assert loose[k] >= (wide.of(top[:, None]) - wide.of(bottom[:, None])).max() - 1e-12
    assert (part.fall(low, high, -most) == 0).all()


@pytest.mark.parametrize("change", [{"weight": -1.0}, {"scale": 0.0}, {"shift": np.nan}])
def test_functions_that_fall_are_none(change: dict[str, float]) -> None:
    one = ramps(np.random.default_rng(0), 1, True)
    with pytest.raises(ValueError, match="a mean's weights are 0 or more"):
        replace(one, **{name: np.full(len(one.score), value) for name, value in change.items()})
