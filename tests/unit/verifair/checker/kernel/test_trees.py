"""Bounds of trees against every row: no bound exceeds what some row adds, however large the numbers, and evening out gains."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.exact.dyadic import exact
from encoders.onnx.reader import read_model
from encoders.trees.ensemble import TreeEnsemble
from tests.builders import categorical, integer, schema_of
from tests.soundness.trees.test_random_trees import KINDS, drawn, people, rows_of
from tests.tree_models import MODES, Chains, Node, random_tree, save
from verifair.checker.kernel.trees import bounds as kernel_trees
from verifair.checker.kernel.trees.bounds import TreeBounds, _evened
from verifair.checker.kernel.trees.choice import tree_bounds

Box = tuple[tuple[int, int], ...]


def leaves(rng: np.random.Generator, box: Box, depth: int) -> Iterator[Box]:
    """The first and the last cells of a random tree's leaves in every variable."""
    wide = [v for v, (first, last) in enumerate(box) if first < last]
    if not depth or not wide:
        yield box
        return
    v = int(rng.choice(wide))
    cut = int(rng.integers(*box[v]))
    for part in ((box[v][0], cut), (cut + 1, box[v][1])):
        yield from leaves(rng, (*box[:v], part, *box[v + 1 :]), depth - 1)


@pytest.mark.parametrize("seed", range(12))
def test_evened_bounds_are_at_most_what_every_row_adds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    closer = 0
    for _ in range(8):
        cells, count = rng.integers(1, 5, size=int(rng.integers(1, 4))), int(rng.integers(1, 6))
        trees = [list(leaves(rng, tuple((0, int(c) - 1) for c in cells), 4)) for _ in range(count)]
        if seed % 3 == 0:   # some rows are nobody's
            trees = [[leaf for leaf in tree if rng.random() < 0.9] or tree for tree in trees]
        boxes, tree = np.array(list(itertools.chain(*trees))), np.repeat(np.arange(count), [len(one) for one in trees])
        most = (1 << 60) // count if seed % 2 else 1 << int(rng.integers(16, 58))
        whole = rng.integers(-most, most, size=len(boxes), endpoint=True) // rng.choice([1, 1 << 14, 1 << 30], size=len(boxes))
        bound = _evened(whole, tree, ((np.arange(len(boxes)), boxes[:, v, 0], boxes[:, v, 1]) for v in range(len(cells))))
        plain = sum(int(whole[tree == t].min()) for t in range(count))
        closer += bound > plain
        for row in itertools.product(*(range(c) for c in cells.tolist())):
            holds = ((boxes[:, :, 0] <= row) & (row <= boxes[:, :, 1])).all(axis=1)
            if len(np.unique(tree[holds])) == count:
                assert bound <= sum(whole[holds].tolist())
    assert closer


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_bounds_are_at_most_what_every_row_of_a_box_has(seed: int, tmp_path: Path) -> None:
    rng, kind = np.random.default_rng(seed), KINDS[seed]
    three = kind == "three classes"
    of = people(seed, three)
    domain, v = of.domain, of.index("p")
    more = {"classes": 3, "transform": "SOFTMAX"} if three else {"base": [float(np.float32(rng.normal()))]}
    trees = drawn(kind, rng, domain.columns) + drawn(kind, rng, domain.columns)
    model = read_model(save(tmp_path / "m.onnx", trees, domain.columns, missing=kind == "missing", **more))
    assert isinstance(model, TreeEnsemble)
    every = rows_of(of)
    bounds = tree_bounds(model, domain)
    assert bounds is not None
    apart = np.zeros(domain.columns, dtype=bool)
    apart[domain.columns_of(np.array([v]))] = True
    lower, upper = np.sort(every[rng.integers(len(every), size=(2, 20))], axis=0)
    lower[:, v] = upper[:, v] = 0.0
    prime = np.where(np.arange(domain.variables) == v, 1.0, lower), np.where(np.arange(domain.variables) == v, 1.0, upper)
    row = np.array([-1.0, 1.0, 0.0]) if three else np.ones(1)
    p, q = (np.repeat(np.array(side)[:, None] * row, 20, axis=0) for side in ([1.0, -1.0, 0.5, 0.0], [-1.0, 1.0, -0.5, -1.0]))
    ends = domain.box(lower, upper), domain.box(*prime), apart, np.tile(np.arange(20), 4)
    plain, even = bounds.least(*ends, p, q), bounds.least(*ends, p, q, np.full(80, np.inf))
    assert (even >= plain).all()
    for k in range(80):
        inside = every[((lower[k % 20] <= every) & (every <= upper[k % 20])).all(axis=1)]
        x = domain.encode(inside), domain.encode(np.where(np.arange(domain.variables) == v, 1.0, inside))
        first, second = (model.forward(exact(one)).to_fractions() for one in x)
        found = [sum(int(4 * a) * f + int(4 * b) * g for a, b, f, g in zip(p[k], q[k], one, two, strict=True)) / 4
                 for one, two in zip(first, second, strict=True)]
        assert even[k] <= min(found)


@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_boxes_in_groups_are_those_of_all_at_once(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, of = np.random.default_rng(seed), schema_of(integer("a", 0, 31), integer("b", 0, 31), categorical("p", "f", "m"))
    domain, v = of.domain, of.index("p")
    trees = [random_tree(rng, domain.columns, 6, modes=MODES[:4]) for _ in range(8)]    # equality would make sets of codes
    trees += [staircase(column, 0, 31, rng) for column in (0, 1)]
    model = read_model(save(tmp_path / "m.onnx", trees, domain.columns))
    lower = rng.integers(0, 30, size=(40, 3)).astype(float)
    upper = lower + rng.integers(0, 3, size=lower.shape)
    lower[:, v], upper[:, v] = 0.0, 0.0
    prime = tuple(np.where(np.arange(3) == v, 1.0, end) for end in (lower, upper))
    bounds, apart = tree_bounds(model, domain), np.arange(domain.columns) == domain.start[v]
    assert isinstance(bounds, TreeBounds)
    asked = domain.box(lower, np.minimum(upper, domain.upper)), domain.box(*prime), apart, np.repeat(np.arange(40), 2)
    p, q = np.tile([[1.0], [-0.5]], (40, 1)), np.tile([[-1.0], [0.25]], (40, 1))
    groups, least = [], TreeBounds._least

    def counted(self: TreeBounds, ends: Any, *more: Any) -> Any:
        groups.append(len(ends[0]))
        return least(self, ends, *more)

    monkeypatch.setattr(TreeBounds, "_least", counted)
    for even in (None, np.full(80, np.inf)):
        monkeypatch.setattr(kernel_trees, "PAIRS", 1 << 22)
        together = bounds.least(*asked, p, q, even)
        assert groups == [40]
        monkeypatch.setattr(kernel_trees, "PAIRS", 1)
        assert np.array_equal(bounds.least(*asked, p, q, even), together)
        assert len(groups) > 4
        assert sum(groups) == 80
        groups.clear()


def staircase(column: int, low: int, high: int, rng: np.random.Generator) -> Node:
    """A tree with a leaf for each whole number of a column."""
    middle = (low + high) // 2
    if low == high:
        return [float(np.float32(rng.normal()))]
    return (column, "BRANCH_LEQ", middle + 0.5, staircase(column, low, middle, rng), staircase(column, middle + 1, high, rng))


def test_what_is_smaller_than_the_unit_of_sums_is_rounded_down(tmp_path: Path) -> None:
    of = people(1, three=False)
    domain, tiny = of.domain, 2.0**-70
    model = read_model(save(tmp_path / "m.onnx", [(0, "BRANCH_LEQ", 0.0, [-tiny], (0, "BRANCH_LEQ", 1.0, [tiny], [1.0]))],
                            domain.columns))
    bounds, v = tree_bounds(model, domain), of.index("a")
    assert bounds is not None
    ends = domain.box(*(np.where(np.arange(domain.variables) == v, [[-1.0], [1.0], [2.0]], domain.lower),) * 2)
    nobody, box = np.zeros(domain.columns, dtype=bool), np.repeat(np.arange(3), 3)
    p, q = np.tile([[1.0], [-1.0], [1.0]], (3, 1)), np.tile([[0.0], [0.0], [-1.0]], (3, 1))
    found = bounds.least(ends, ends, nobody, box, p, q, np.full(9, np.inf))
    exactly = np.array([-tiny, tiny, 0.0, tiny, -tiny, 0.0, 1.0, -1.0, 0.0])
    assert (found <= exactly).all()
    assert (found[2::3] == 0).all()     # ties are exact
    assert np.abs(found - exactly).max() < 2.0**-46


@pytest.mark.parametrize("even", [-np.inf, np.inf])
def test_sums_that_float64_does_not_hold_are_rounded_down(even: float, tmp_path: Path) -> None:
    """1 + 2^-53 + 2^-54 lies nearer to the next float64 above than to 1."""
    domain, small = people(1, three=False).domain, 0.75 * 2.0**-52
    trees = [(0, "BRANCH_LEQ", 0.0, [value], [value]) for value in (1.0, small)]
    bounds = tree_bounds(read_model(save(tmp_path / "m.onnx", trees, domain.columns)), domain)
    assert bounds is not None
    ends, nobody = domain.box(domain.lower[None], domain.upper[None]), np.zeros(domain.columns, dtype=bool)
    weights = np.array([[1.0], [-1.0]]), np.zeros((2, 1))
    found = bounds.least(ends, ends, nobody, np.zeros(2, dtype=np.int64), *weights, np.full(2, even))
    assert found.tolist() == [1.0, -1.0 - 2.0**-52]


def test_products_that_float64_does_not_hold_are_rounded_down(tmp_path: Path) -> None:
    """Weights that are no float32 numbers, and a product below 2^-1074."""
    domain, tiny, third = people(1, three=False).domain, 2.0**-1074, 1 / 3
    nobody = np.zeros(domain.columns, dtype=bool)
    ends = domain.box(domain.lower[None], domain.upper[None])
    model = read_model(save(tmp_path / "m.onnx", [(0, "BRANCH_LEQ", 0.0, [5.0], [5.0])], domain.columns))
    assert isinstance(model, TreeEnsemble)
    for value, weight in ((5.0, third), (5.0, -third), (-tiny, 0.5), (tiny, -0.5)):
        bounds = tree_bounds(replace(model, value=np.sign(model.value) * value), domain)
        assert bounds is not None
        found = bounds.least(ends, ends, nobody, np.zeros(1, dtype=np.int64), np.array([[weight]]), np.zeros((1, 1)))
        assert Fraction(found.item()) <= Fraction(value) * Fraction(weight) <= Fraction(found.item()) + Fraction(1, 10**15)


def test_weights_that_are_no_numbers_have_no_bound(tmp_path: Path) -> None:
    """Such as the slope of a line of its own, which a forged leaf names where the goal has no curve."""
    domain = people(1, three=False).domain
    bounds = tree_bounds(read_model(save(tmp_path / "m.onnx", [(0, "BRANCH_LEQ", 0.0, [1.0], [2.0])], domain.columns)), domain)
    assert bounds is not None
    ends, nobody = domain.box(domain.lower[None], domain.upper[None]), np.zeros(domain.columns, dtype=bool)
    weights = np.array([[np.nan], [np.inf], [-np.inf]])
    with np.errstate(invalid="ignore"):
        assert np.isnan(bounds.least(ends, ends, nobody, np.zeros(3, dtype=np.int64), weights, np.zeros((3, 1)))).all()


def test_what_both_copies_share_cancels_whatever_its_size(tmp_path: Path) -> None:
    """CatBoost's leaves of three classes hold rests of 1e-16 beside numbers of 0.1, whose sums float64 does not hold."""
    values = [float(np.float32(value)) for value in (-0.04444444552063942, 6.697260815043994e-16, 0.04444444552063942)]
    trees = [(0, "BRANCH_LEQ", 1.5, values, values[::-1]), (0, "BRANCH_LEQ", 0.5, values[1:] + values[:1], values)]
    model = read_model(save(tmp_path / "trees.onnx", trees, 2, classes=3, transform="SOFTMAX", base=values))
    schema = schema_of(integer("age", 0, 3), categorical("sex", "f", "m"), positive="class = 1")
    about: Any = {"model": model, "schema": schema, "protected": ["sex"]}
    for query in (vf.IndividualFairness(**about), vf.IndividualFairness(**about, classes="any")):
        found = vf.verify(query)
        assert found.status is vf.Status.PROVED
        assert vf.check(found.certificate, model=model, schema=schema).accepted


@pytest.mark.parametrize("seed", range(8))
def test_a_set_of_codes_is_two_paths(seed: int) -> None:
    """Files hold it as a chain of splits: followed one by one, they are as many as its codes, times those above it."""
    rng = np.random.default_rng(seed)
    chains = Chains(rng, {0: 9, 1: 70, 2: 100, 3: 2})
    for _ in range(4):
        chains.add(3)
    ensemble = chains.ensemble()
    domain = schema_of(integer("job", 0, 8), integer("town", 0, 69), integer("age", 0, 98), categorical("p", "f", "m")).domain
    bounds = tree_bounds(ensemble, domain)
    assert isinstance(bounds, TreeBounds)
    paths = bounds.paths
    assert len(paths) <= chains.leaves
    rows = np.stack([rng.integers(domain.upper + 1) for _ in range(500)]).astype(float)
    x = domain.encode(rows)
    met = paths.meet(bounds._ends(x, x))
    leaves = ensemble.leaves(x)
    assert (met.sum(axis=1) == 4).all()     # no row is in two paths of a tree
    for k in range(len(rows)):
        assert paths.node[met[k]].tolist() == leaves[k].tolist()
    assert bounds.single_path(x, x).all()
    prime = rows.copy()
    prime[:, 3] = 1 - rows[:, 3]
    apart, weight = np.arange(4) == 3, np.ones((500, 1))
    for even in (None, np.full(500, np.inf)):
        found = bounds.least((x, x), (domain.encode(prime),) * 2, apart, np.arange(500), weight, -weight, even)
        f, g = (ensemble.forward(exact(domain.encode(one))).to_fractions()[:, 0] for one in (rows, prime))
        assert all(low <= a - b <= low + 2.0**-40 for low, a, b in zip(found.tolist(), f, g, strict=True))
    lower, upper = np.sort(rows[rng.integers(500, size=(2, 40))], axis=0)
    lower[:, 3], upper[:, 3] = 0.0, 0.0
    ends = domain.box(lower, upper), domain.box(*(np.where(np.arange(4) == 3, 1.0, end) for end in (lower, upper)))
    for even in (None, np.full(40, np.inf)):
        found = bounds.least(*ends, apart, np.arange(40), weight[:40], -weight[:40], even)
        for k in range(40):
            some = np.stack([rng.integers(lower[k], upper[k] + 1) for _ in range(100)]).astype(float)
            f, g = (ensemble.forward(exact(domain.encode(one))).to_fractions()[:, 0] for one in (some, some + apart))
            assert found[k] <= min(f - g)
