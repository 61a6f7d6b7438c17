"""Leaves that take the lines of a larger box, their frame: what searches write is shown, bounds hold, forged frames are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from encoders.arrays import Array, Integers
from encoders.bounds.regions import RegionBounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.domain import Domain, Regions
from encoders.network import Layer, Network
from encoders.problem import Goal, TwinBatch, TwinProblem
from tests.builders import claim_of, random_network, tree_flaw
from tests.draws import draws
from verifair.checker.certificates.tree import Of, Tree
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kernel.tasks import Tasks
from verifair.engine.search import standard
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import PROVED, VIOLATED, GoalRows
from verifair.engine.search.standard import Progress

SIDE = 12
"""Values of each of the three features that move."""


def problem(seed: int) -> TwinProblem:
    """One question about a deep network: does g - g' stay above a little less than its least value on the lattice?"""
    rng = np.random.default_rng(seed)
    hidden = tuple(int(n) for n in rng.integers(4, 8, int(rng.integers(3, 6))))
    network = random_network(rng, (4, *hidden, 1), slope=float(rng.choice([0.0, 0.125])))
    none, upper = np.zeros(4, dtype=bool), np.array([1.0, *[SIDE - 1.0] * 3])
    domain = Domain(
        integer=~none, lower=np.zeros(4), upper=upper, offset=np.zeros(4), scale=np.array([1.0, *[SIDE - 1.0] * 3]),
        start=np.arange(4), one_hot=none, width=np.ones(4, dtype=np.int64),
    )
    protected = np.arange(4) == 0
    batch = TwinBatch(
        lower=np.zeros((1, 4)), upper=np.where(protected, 0.0, upper)[None], prime=protected[None].astype(float),
        protected=protected,
    )
    raw = np.array(np.meshgrid(0, *[np.arange(SIDE)] * 3)).reshape(4, -1).T.astype(float)
    first, second = (network.forward(domain.encode(x))[:, 0] for x in (raw, np.where(protected, 1.0, raw)))
    least, spread = (first - second).min(), np.ptp(first - second)
    goal = Goal(rows=np.array([[1.0, -1.0]]), strict=True, constant=np.array([1e-3 + 0.02 * spread - least]))
    return TwinProblem(network=network, domain=domain, batch=batch, margin=np.ones(1), goals=(goal,))


def proof(monkeypatch: pytest.MonkeyPatch, given: TwinProblem, way: int) -> Tree:
    """Return the proof of a search that bounds in one way alone, and lets boxes take frames whenever it can."""
    monkeypatch.setattr(standard, "SHRINK", np.inf)
    monkeypatch.setattr(Progress, "choose", lambda self, question, _, __: self.way.__setitem__(question, way))
    decision = decide(given)
    assert decision.status[0, 0] == PROVED
    return decision.trees.tree(0, 0)


def frames(given: TwinProblem, tree: Tree, outer: bool = False) -> Array:
    """Return the positions of what names frames of leaves among a tree's multipliers; or the frames that frames stand in."""
    return np.flatnonzero((tree.index > 2 * sum(given.network.hidden) + 1) & ((tree.index == outermost(given)) == outer))


def outermost(given: TwinProblem) -> int:
    """Return the index of multipliers that name the frame of a frame."""
    return 2 * sum(given.network.hidden) + 4


@pytest.mark.parametrize("way", [standard.COPIES, standard.PAIRS])
def test_proofs_with_frames_are_shown(monkeypatch: pytest.MonkeyPatch, way: int) -> None:
    shared = nested = 0
    for seed in draws(12):
        given = problem(seed)
        tree = proof(monkeypatch, given, way)
        assert tree_flaw(given.network, given.domain, claim_of(given), tree) is None
        shared += int((tree.value[frames(given, tree)] > 0).sum())
        nested += len(frames(given, tree, outer=True))
    assert shared > 20
    assert nested > 20


@pytest.mark.parametrize("way", [standard.COPIES, standard.PAIRS])
def test_rows_that_fail_in_the_middle_of_a_part_are_not_bounded_there(monkeypatch: pytest.MonkeyPatch, way: int) -> None:
    asked, lines = [0, 0], RegionBounds.lines

    def counted(self: RegionBounds, box: Integers, rows: Array, constants: Array) -> tuple[Array, Array]:
        asked[0], asked[1] = asked[0] + len(box), asked[1] + 3 * len(self.question)
        return lines(self, box, rows, constants)

    monkeypatch.setattr(Progress, "choose", lambda self, question, _, __: self.way.__setitem__(question, way))
    monkeypatch.setattr(RegionBounds, "lines", counted)
    found = []
    for seed in draws(8):
        plain = problem(seed)
        raw = np.array(np.meshgrid(0, *[np.arange(SIDE)] * 3)).reshape(4, -1).T.astype(float)
        prime = np.where(np.arange(4) == 0, 1.0, raw)
        first, second = (plain.network.forward(plain.domain.encode(x))[:, 0] for x in (raw, prime))
        for share in (0.0, 0.02, 0.5):  # at the first, both copies are above the level nearly everywhere
            level = np.quantile(first, share) - 1e-3
            rows, constant = np.array([[-1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]]), np.array([level, -level, 0.0])
            goal = Goal(rows=rows, strict=False, constant=constant)
            given = replace(plain, goals=(goal,))
            decision = decide(given)
            holds = bool(((first <= level) | (second >= level) | (second >= first)).all())
            assert decision.status[0, 0] == (PROVED if holds else VIOLATED)
            found.append(holds)
            if holds:
                assert tree_flaw(given.network, given.domain, claim_of(given), decision.trees.tree(0, 0)) is None
    assert 3 < sum(found) < len(found)
    assert asked[0] < 0.9 * asked[1]


def test_forged_frames_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = 0
    for seed in draws(12):
        given = problem(seed)
        tree, about = proof(monkeypatch, given, standard.PAIRS), (given.network, given.domain, claim_of(given))
        named = frames(given, tree)
        if not len(named):
            continue
        for wrong in (np.nan, np.inf, -np.inf, -2.0, 0.5, 1e9, 2.0**63):
            value = tree.value.copy()
            value[named[-1]] = wrong
            assert tree_flaw(*about, replace(tree, value=value)) is not None
        node = np.repeat(np.arange(len(tree.feature)), np.diff(tree.start))[named[-1]]
        assert tree.feature[node] == -1
        if node > 1 and tree.feature[node - 1] == -1:  # the leaf before: its box does not hold this one
            value = tree.value.copy()
            value[named[-1]] = 1.0
            assert "nothing that it names" in str(tree_flaw(*about, replace(tree, value=value)))
            forged += 1
        start = tree.start.copy()
        start[1:] += 1  # the root, which is cut, names a frame
        index, value = np.append(tree.index[named[0]], tree.index), np.append(0.0, tree.value)
        if len(tree.feature) > 1:
            assert "frame" in str(tree_flaw(*about, replace(tree, start=start, index=index, value=value)))
    assert forged


def test_forged_frames_of_frames_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = 0
    for seed in draws(12):
        given = problem(seed)
        tree, about = proof(monkeypatch, given, standard.PAIRS), (given.network, given.domain, claim_of(given))
        named = frames(given, tree, outer=True)
        node = np.repeat(np.arange(len(tree.feature)), np.diff(tree.start))
        for one in named[:1].tolist() + named[-1:].tolist():
            for wrong in (np.nan, np.inf, -2.0, 0.0, 0.5, 1e9, float(node[one] + 1)):
                value = tree.value.copy()
                value[one] = wrong
                assert "frame" in str(tree_flaw(*about, replace(tree, value=value))) or not np.isfinite(wrong)
                assert tree_flaw(*about, replace(tree, value=value)) is not None
            if tree.feature[node[one] - 1] == -1:  # a leaf, whose box does not hold the frame's
                value = tree.value.copy()
                value[one] = 1.0
                assert "nothing that it names" in str(tree_flaw(*about, replace(tree, value=value)))
                forged += 1
        fewer = np.ones(len(tree.index), dtype=bool)  # without the frames that frames stand in it is another proof, or none
        fewer[named] = False
        start = np.concatenate([[0], np.cumsum(np.bincount(node[fewer], minlength=len(tree.feature)))])
        flaw = tree_flaw(*about, replace(tree, start=start, index=tree.index[fewer], value=tree.value[fewer]))
        assert flaw is None or "nothing that it names" in flaw
    assert forged


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("seed", draws(12))
def test_both_bounds_hold_on_parts_of_a_frame_and_agree(seed: int, refine: bool) -> None:
    given, rng = problem(seed), np.random.default_rng(seed)
    twin, size, neurons = Twin.of(given), 8, 2 * sum(given.network.hidden)
    lower, upper = (np.tile(end, (size, 1)) for end in (given.batch.lower[0], given.batch.upper[0]))
    ends = np.sort(rng.integers(0, SIDE, (2, size, 3)), axis=0)
    lower[:, 1:], upper[:, 1:] = ends
    inner = np.sort(rng.integers(ends[0], ends[1] + 1, (2, size, 3)), axis=0)
    small_lower, small_upper = lower.copy(), upper.copy()
    small_lower[:, 1:], small_upper[:, 1:] = inner
    at = np.arange(size)
    mine, some = RegionBounds(twin, regions(lower, upper, neurons)), RegionBounds(twin, regions(lower[3:], upper[3:], neurons))
    frames = [(mine, at[:3], at[:3]), (some, at[3:], at[:-3])]
    part = RegionBounds(twin, regions(small_lower, small_upper, neurons), frames=frames, refine=refine)
    tasks = Tasks.of([claim_of(given)])
    around = TwinBounds(given.network, *network_boxes(given, tasks, lower, upper), close=True)
    small = network_boxes(given, tasks, small_lower, small_upper)
    inside = TwinBounds(given.network, *small, close=True, frame=(around, at), refine=refine)
    for k, (one, around_one, span) in enumerate(zip(part.layers[:-1], mine.layers, inside.spans[:-1], strict=False)):
        if k > 1:
            assert (one.lower >= around_one.lower).all()
            assert (one.delta_upper <= around_one.delta_upper).all()
        np.testing.assert_allclose(one.lower, span.low, atol=1e-9)
        np.testing.assert_allclose(one.upper_prime, span.high2, atol=1e-9)
        np.testing.assert_allclose(one.delta_lower, -span.d_high, atol=1e-9)
        for _ in range(50):
            raw = np.floor(small_lower + rng.random(small_lower.shape) * (small_upper - small_lower + 1))
            first, second = (
                hidden(given.network, given.domain.encode(x), k) for x in (raw, tasks.second(np.zeros(size, dtype=np.int64), raw))
            )
            holds(one, first, second)
    values = part.rows(at, given.goals[0].rows.repeat(size, axis=0), np.zeros(size))
    assert np.isfinite(values).all()


def flips(given: TwinProblem, level: float) -> TwinProblem:
    """Return the same question of a fall below a level: g at most that, or g' at least, or g' at least g."""
    rows, constant = np.array([[-1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]]), np.array([level, -level, 0.0])
    return replace(given, goals=(Goal(rows=rows, strict=False, constant=constant),))


def test_bounds_of_one_copy_alone_prove_rows_of_that_copy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a row of the other copy, or of both, they say nothing."""
    found = {Of.FIRST: 0, Of.SECOND: 0}
    for seed in draws(24):
        plain = problem(seed)
        raw = np.array(np.meshgrid(0, *[np.arange(SIDE)] * 3)).reshape(4, -1).T.astype(float)
        first, second = (plain.network.forward(plain.domain.encode(x))[:, 0] for x in (raw, np.where(np.arange(4) == 0, 1.0, raw)))
        for level in (first.max() + 1e-3, second.min() - 1e-3):  # all of one copy lies on one side, of the other one not all
            given = flips(plain, float(level))
            if decide(given).status[0, 0] != PROVED or (first <= level).all() == (second >= level).all():
                continue
            tree, rows = proof(monkeypatch, given, standard.COPIES), 2 * sum(given.network.hidden) + 3
            named = np.flatnonzero((tree.index > rows) & (tree.index != rows + Of.FRAME))
            assert tree_flaw(given.network, given.domain, claim_of(given), tree) is None
            of = Of.FIRST if (first <= level).all() else Of.SECOND
            found[of] += int((tree.index[named] == rows + of).sum())
            for row, one in ((0, Of.SECOND), (1, Of.FIRST), (2, Of.FIRST), (2, Of.SECOND)):
                goal = Goal(rows=given.goals[0].rows[[row]], strict=False, constant=given.goals[0].constants[[row]])
                index = tree.index - 2
                index[named] = rows - 2 + one
                flaw = tree_flaw(given.network, given.domain, claim_of(replace(given, goals=(goal,))), replace(tree, index=index))
                assert flaw is not None or not len(named)
    assert min(found.values()) > 10


def test_one_copy_alone_does_not_stand_for_two_that_are_alike() -> None:
    """g' - g >= 0 holds where both margins are the same number, as those of one copy taken twice are."""
    for seed in draws(6):
        given = problem(seed)
        goal = Goal(rows=np.array([[-1.0, 1.0]]), strict=False, constant=np.zeros(1))
        claim, neurons = claim_of(replace(given, goals=(goal,))), 2 * sum(given.network.hidden)
        for of in (Of.FIRST, Of.SECOND):
            tree = replace(Tree.leaf(), start=np.array([0, 1]), index=np.array([neurons + 1 + of]), value=np.zeros(1))
            assert "nothing that it names" in str(tree_flaw(given.network, given.domain, claim, tree))


@pytest.mark.parametrize(("rows", "constants", "alone"), [
    ([[-1, 0], [0, 1], [-0.5, 0.5]], [0, 0, 0], True),  # where g' >= g, one of the others holds
    ([[-2, 0], [0, 1], [-1, 3]], [4, -1, -1], True),  # 2 - g >= 0 and three times g' - 1 >= 0 make 3 g' - g - 1
    ([[-2, 0], [0, 1], [-1, 3]], [4, -1, -0.5], False),
    ([[-1, 0], [-0.5, 0.5]], [0, 0], False),
    ([[1, -1]], [1], False),
])
def test_copies_are_bounded_alone_where_their_rows_suffice(rows: list[list[float]], constants: list[float], alone: bool) -> None:
    goal = Goal(rows=np.array(rows, dtype=float), strict=False, constant=np.array(constants, dtype=float))
    given = replace(problem(0), goals=(flips(problem(0), 1.0).goals[0], goal))
    assert GoalRows.of(given).alone == alone


def test_one_copy_alone_does_not_take_the_signs_of_the_other() -> None:
    """a = x + 1 and a' = x - 2 of one neuron, x in 0 .. 1: a' <= 0 says nothing of a, and g = relu(a) <= 1/2 is false."""
    layer = Layer(weight=np.array([[3.0, 1.0]]), bias=np.array([-2.0]), slope=np.zeros(1))
    last = Layer(weight=np.ones((1, 1)), bias=np.zeros(1), slope=np.ones(1))
    none, protected = np.zeros(2, dtype=bool), np.array([True, False])
    domain = Domain(
        integer=~none, lower=np.zeros(2), upper=np.ones(2), offset=np.zeros(2), scale=np.ones(2), start=np.arange(2), one_hot=none,
        width=np.ones(2, dtype=np.int64),
    )
    batch = TwinBatch(lower=np.array([[1.0, 0.0]]), upper=np.ones((1, 2)), prime=np.zeros((1, 2)), protected=protected)
    goal = Goal(rows=np.array([[-1.0, 0.0]]), strict=False, constant=np.array([0.5]))
    network = replace(problem(0).network, layers=(layer, last))
    claim = claim_of(TwinProblem(network=network, domain=domain, batch=batch, margin=np.ones(1), goals=(goal,)))
    whole = Tree.plain(np.array([-2 - 1, -1, -1]), np.zeros(3))
    assert tree_flaw(network, domain, claim, whole) is not None
    for of in (Of.FIRST, Of.SECOND):
        tree = replace(whole, start=np.array([0, 0, 1, 1]), index=np.array([2 + 1 + of]), value=np.zeros(1))
        assert "nothing that it names" in str(tree_flaw(network, domain, claim, tree))


@pytest.mark.parametrize("seed", draws(8))
def test_both_bounds_of_one_copy_alone_hold_and_agree(seed: int) -> None:
    given, rng = problem(seed), np.random.default_rng(seed)
    twin, size, neurons = Twin.of(given), 8, 2 * sum(given.network.hidden)
    lower, upper = (np.tile(end, (size, 1)) for end in (given.batch.lower[0], given.batch.upper[0]))
    lower[:, 1:], upper[:, 1:] = ends = np.sort(rng.integers(0, SIDE, (2, size, 3)), axis=0)
    small_lower, small_upper = lower.copy(), upper.copy()
    small_lower[:, 1:], small_upper[:, 1:] = np.sort(rng.integers(ends[0], ends[1] + 1, (2, size, 3)), axis=0)
    copy, at, tasks = rng.integers(0, 2, size), np.arange(size), Tasks.of([claim_of(given)])
    mine = RegionBounds(twin.alone, regions(lower, upper, neurons), copy)
    part = RegionBounds(twin.alone, regions(small_lower, small_upper, neurons), copy, frames=[(mine, at, at)], refine=False)
    boxes = (network_boxes(given, tasks, *ends) for ends in ((lower, upper), (small_lower, small_upper)))
    low, high = (tuple(np.where(copy[:, None] == 0, one[k], one[k + 2]) for k in (0, 1)) for one in boxes)
    around = TwinBounds(given.network, *low, *low, close=True, quantities=1)
    inside = TwinBounds(given.network, *high, *high, close=True, quantities=1, frame=(around, at), refine=False)
    for k, (one, span) in enumerate(zip(part.layers[:-1], inside.spans[:-1], strict=False)):
        np.testing.assert_allclose(one.lower, span.low, atol=1e-9)
        np.testing.assert_allclose(one.upper, span.high, atol=1e-9)
        for _ in range(20):
            raw = np.floor(small_lower + rng.random(small_lower.shape) * (small_upper - small_lower + 1))
            raw = np.where((copy == 0)[:, None], raw, tasks.second(np.zeros(size, dtype=np.int64), raw))
            value = hidden(given.network, given.domain.encode(raw), k)
            assert ((one.lower <= value + 1e-12) & (value <= one.upper + 1e-12)).all()
    nothing = RegionBounds(twin.alone, regions(lower[:0], upper[:0], neurons), copy[:0])
    assert len(nothing.rows(at[:0], np.zeros((0, 2)), np.zeros(0))) == 0
    values = part.rows(at, np.tile([1.0, 0.0], (size, 1)), np.zeros(size))
    theirs = inside.by_substitution(np.ones((size, 1)), np.zeros((size, 1)), at, layer=len(given.network.layers) - 1)
    np.testing.assert_allclose(values, theirs, atol=1e-9)
    assert (values <= theirs).all()


@pytest.mark.parametrize("seed", draws(8))
def test_neurons_that_are_treated_apart_in_few_boxes_change_no_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given, rng = problem(seed), np.random.default_rng(seed)
    twin, size, neurons = Twin.of(given), 2, 2 * sum(given.network.hidden)
    lower, upper = (np.tile(end, (size, 1)) for end in (given.batch.lower[0], given.batch.upper[0]))
    lower[:, 1:], upper[:, 1:] = np.sort(rng.integers(0, SIDE, (2, size, 3)), axis=0)
    question, at = np.zeros(size, dtype=np.int64), np.arange(size)
    found = []
    for few in (0, size):
        monkeypatch.setattr("encoders.bounds.regions.FEW", few)
        bounds = RegionBounds(twin, regions(lower, upper, neurons), question)
        found.append((bounds, bounds.rows(at, np.tile([1.0, 0.0], (size, 1)), np.zeros(size))))
    (together, row), (apart, row_apart) = found
    np.testing.assert_allclose(row, row_apart, atol=1e-9)
    for one, two in zip(together.layers, apart.layers, strict=True):
        for name, end in one.ends().items():
            np.testing.assert_allclose(end, two.ends()[name], atol=1e-9)


def regions(lower: Array, upper: Array, neurons: int) -> Regions:
    free = np.zeros((len(lower), neurons), dtype=bool)
    return Regions(lower=lower, upper=upper, active=free, inactive=free)


def network_boxes(given: TwinProblem, tasks: Tasks, lower: Array, upper: Array) -> tuple[Array, ...]:
    first = np.zeros(len(lower), dtype=np.int64)
    return *given.domain.box(lower, upper), *given.domain.box(tasks.second(first, lower), tasks.second(first, upper))


def hidden(network: Network, x: Array, k: int) -> Array:
    """Return pre-activations (B, n) of layer k."""
    for layer in network.layers[:k]:
        x = layer.activated(x @ layer.weight.T + layer.bias)
    return np.asarray(x @ network.layers[k].weight.T + network.layers[k].bias)


def holds(bounds: LayerBounds, first: Array, second: Array) -> None:
    for low, value, high in (
        (bounds.lower, first, bounds.upper), (bounds.lower_prime, second, bounds.upper_prime),
        (bounds.delta_lower, first - second, bounds.delta_upper),
    ):
        assert (low <= value + 1e-12).all()
        assert (value <= high + 1e-12).all()
