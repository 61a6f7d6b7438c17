"""The checker of neuron branching: bounds hold for any multipliers, false claims are never accepted, wrong trees are named."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.arrays import Array
from encoders.domain import Domain, Regions
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.probability.logistic import exceeds, line_of
from encoders.problem import Goal, TwinBatch, TwinProblem
from tests.brute_force import fractions
from tests.builders import by_multipliers, claim_of, tree_flaw
from verifair.checker.certificates.tree import Tree
from verifair.checker.kernel.tasks import Task
from verifair.engine.questions import no_gap
from verifair.engine.search.signs.neurons import decide_by_phases
from verifair.engine.verdict import Status

ROWS = np.array([[-1.0, 0.0], [0.0, 1.0], [-0.5, 0.5]])
seeds = st.integers(0, 2**32 - 1)


def problem_of(seed: int, hidden: tuple[int, ...] = (5, 4), slope: float = 0.0) -> TwinProblem:
    """One protected number, two whole numbers in -3..3 and a one-hot variable with three categories."""
    rng = np.random.default_rng(seed)
    one_hot = np.array([False, False, False, True])
    width = np.where(one_hot, 3, 1)
    domain = Domain(
        integer=np.ones(4, dtype=bool), lower=np.array([0.0, -3, -3, 0]), upper=np.array([1.0, 3, 3, 2]),
        offset=np.zeros(4), scale=np.ones(4), start=np.cumsum(width) - width, one_hot=one_hot, width=width,
    )
    sizes = (6, *hidden, 1)
    layers = []
    for k, (n, m) in enumerate(pairwise(sizes)):
        last = k == len(hidden)
        weight = rng.standard_normal((m, n)).astype(np.float32).astype(float)
        layers.append(Layer(weight=weight, bias=0.5 * rng.standard_normal(m), slope=np.full(m, 1.0 if last else slope)))
    lower, upper = np.array([[0.0, -3, -3, 0]]), np.array([[0.0, 3, 3, 2]])
    batch = TwinBatch(lower=lower, upper=upper, prime=np.array([[1.0, 0, 0, 0]]), protected=np.array([True, False, False, False]))
    network = Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256="")
    goal = Goal(rows=ROWS, strict=False)
    return TwinProblem(network=network, domain=domain, batch=batch, margin=np.ones(1), goals=(goal,))


def points(claim: Task) -> Array:
    axes = [np.arange(a, b + 1) for a, b in zip(claim.lower, claim.upper, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def second(claim: Task, raw: Array) -> Array:
    return np.where(claim.differs, claim.prime, raw + claim.offset)


def exact_copies(problem: TwinProblem, raw: Array) -> tuple[list[np.ndarray], np.ndarray]:
    """Pre-activations (P, 2 H) of the hidden neurons in the tree's numbering, and g, g' (P, 2): fractions."""
    hidden, margins = [], []
    for copy in (raw, second(claim_of(problem), raw)):
        x = fractions(problem.domain.encode(copy))
        for layer in problem.network.layers:
            a = x @ fractions(layer.weight).T + fractions(layer.bias)
            x = np.where(a > 0, a, a * fractions(layer.slope))
            hidden.append(a)
        margins.append(hidden.pop()[:, 0])
    return [np.concatenate(hidden, axis=1)], np.stack(margins, axis=1)


def shifted(problem: TwinProblem, by: float) -> TwinProblem:
    """Rows raised so that the least best row over the lattice is about `by`."""
    _, margins = exact_copies(problem, points(claim_of(problem)))
    least = float((margins @ fractions(ROWS).T).max(axis=1).min())
    return replace(problem, goals=(Goal(rows=ROWS, strict=False, constant=np.full(3, by - least)),))


def proof_of(problem: TwinProblem) -> Tree:
    answer = decide_by_phases(problem, 0, 0, seconds=60, max_nodes=20_000)
    assert answer.status is Status.PROVED
    assert answer.tree is not None
    return answer.tree


def verdict(problem: TwinProblem, tree: Tree) -> str | None:
    return tree_flaw(problem.network, problem.domain, claim_of(problem), tree)


@settings(max_examples=40)
@given(
    seed=seeds, hidden=st.sampled_from([(4,), (5, 4), (3, 3, 3)]), slope=st.sampled_from([0.0, 0.25]),
    size=st.sampled_from([0.3, 1.0, 30.0]),
)
def test_bounds_hold_for_any_multipliers_in_every_region(seed: int, hidden: tuple[int, ...], slope: float, size: float) -> None:
    problem = problem_of(seed, hidden, slope)
    rng = np.random.default_rng(seed)
    claim = claim_of(problem)
    raw = points(claim)
    (a,), margins = exact_copies(problem, raw)
    count, neurons = 16, 2 * sum(hidden)
    signs = rng.choice([-1, 0, 0, 1], (count, neurons))
    regions = Regions(
        lower=np.tile(claim.lower, (count, 1)), upper=np.tile(claim.upper, (count, 1)), active=signs > 0, inactive=signs < 0
    )
    slopes = np.where(rng.random((count, neurons)) < 0.3, np.nan, size * rng.standard_normal((count, neurons)))
    weights = rng.random((count, 3)) * (rng.random((count, 1)) < 0.8)
    bound, nowhere, proved = by_multipliers(problem.network, problem.domain, claim, regions, weights, slopes)
    for k in range(count):
        inside = ((a >= 0) | (signs[k] <= 0)).all(axis=1) & ((a <= 0) | (signs[k] >= 0)).all(axis=1)
        assert not (nowhere[k] and inside.any())
        values = margins[inside] @ fractions(ROWS).T
        if not np.isinf(bound[k]) and len(values):
            assert Fraction(float(bound[k])) <= (values @ fractions(weights[k])).min()
        if proved[k] and len(values):
            assert (values.max(axis=1) >= 0).all()


@settings(max_examples=25)
@given(seed=seeds, epsilon=st.floats(0.01, 0.95), rise=st.booleans(), m=st.floats(-12, 12))
def test_a_line_of_the_leafs_own_is_one_more_row(seed: int, epsilon: float, rise: bool, m: float) -> None:
    """Whatever its slope: the bound is below the line's values at every point, and nothing false is proved."""
    problem = replace(problem_of(seed, (5, 4), 0.0), goals=(no_gap(epsilon)[int(rise)],))
    claim = claim_of(problem)
    (_,), margins = exact_copies(problem, points(claim))
    slope, rng = 2.0**m, np.random.default_rng(seed)
    whole = Regions.whole(claim.lower, claim.upper, 18)
    slopes = np.where(rng.random((1, 18)) < 0.5, np.nan, rng.standard_normal((1, 18)))
    slopes[0, 0] = 0.5
    rows = np.zeros((1, len(claim.goal.rows)))

    def bounded(m: float) -> tuple[Array, Array, Array]:
        return by_multipliers(problem.network, problem.domain, claim, whole, rows, slopes, np.array([m]))

    bound, _, proved = bounded(slope)
    (p, q), constant = ((slope, -1.0) if rise else (-1.0, slope)), line_of(epsilon, slope)
    values = [Fraction(p) * a + Fraction(q) * b + Fraction(constant) for a, b in margins.tolist()]
    assert Fraction(float(bound[0])) <= min(values)
    if proved[0]:
        assert not any(exceeds(*((b, a) if rise else (a, b)), epsilon) for a, b in margins.tolist())
    for none in (0.0, -1.0, np.inf, 2.0**31):
        _, nowhere, proved = bounded(none)
        assert not proved[0] or nowhere[0]


def test_no_other_goal_has_lines_of_its_own() -> None:
    problem = problem_of(0, (5, 4), 0.0)
    claim = claim_of(problem)
    whole = Regions.whole(claim.lower, claim.upper, 18)
    slopes = np.where(np.arange(18) == 0, 0.5, np.nan)[None]
    bound, *_ = by_multipliers(problem.network, problem.domain, claim, whole, np.zeros((1, 3)), slopes, np.array([1.0]))
    assert not bound[0] > -np.inf


@settings(max_examples=8)
@given(seed=seeds, slope=st.sampled_from([0.0, 0.25]), data=st.data())
def test_false_claims_are_not_proved_by_damaged_trees(seed: int, slope: float, data: st.DataObject) -> None:
    """The tree of a true claim, damaged at random, put forward for a claim that is false by a hair."""
    problem = problem_of(seed, (5, 4), slope)
    tree, false = proof_of(shifted(problem, 1e-6)), shifted(problem, -1e-6)
    assert verdict(false, tree) is not None
    rng = np.random.default_rng(data.draw(seeds))
    for _ in range(10):
        value, feature, cut = tree.value.copy(), tree.feature.copy(), tree.cut.copy()
        match rng.integers(0, 4):
            case 0 if len(value):
                value[rng.integers(0, len(value))] = rng.choice([0.0, -1.0, 1e-300, 1e30, 1e200, np.inf, np.nan])
            case 1:
                value = value * (1 + rng.standard_normal(len(value)))
            case 2:
                feature[rng.integers(0, len(feature))] = rng.integers(-25, 5)
            case _:
                cut[rng.integers(0, len(cut))] += rng.integers(-2, 3)
        assert verdict(false, replace(tree, value=value, feature=feature, cut=cut)) is not None


def test_what_is_wrong_with_a_tree_is_said() -> None:
    problem = next(p for p in (shifted(problem_of(seed), 1e-3) for seed in range(50)) if (proof_of(p).feature < -1).any())
    tree = proof_of(problem)
    assert verdict(problem, tree) is None
    assert len(tree.feature) > 2
    first = int(tree.start[-2])
    cases = {
        "leaves are missing": Tree(
            feature=tree.feature[:-1], cut=tree.cut[:-1], start=tree.start[:-1], index=tree.index[:first], value=tree.value[:first]
        ),
        "left over": replace(
            tree, feature=np.append(tree.feature, -1), cut=np.append(tree.cut, 0.0), start=np.append(tree.start, tree.start[-1])
        ),
        "does not exist": replace(tree, feature=np.append(-2 - 18, tree.feature[1:])),
        "do not fit together": replace(tree, cut=tree.cut[1:]),
        "not in order": replace(tree, start=np.append(1, tree.start[1:])),
        "belongs to none": replace(tree, index=np.append(99, tree.index[1:])),
        "not a finite number": replace(tree, value=np.append(np.nan, tree.value[1:])),
        "proves its goal": replace(tree, value=np.where(tree.index < 18, 1e40, tree.value)),
        "negative weight": replace(tree, value=np.where(tree.index >= 18, -1.0, tree.value)),
    }
    for text, broken in cases.items():
        reason = verdict(problem, broken)
        assert reason is not None
        assert text in reason


def test_a_cut_outside_the_box_is_rejected() -> None:
    problem = shifted(problem_of(3), 1.0)
    leaf = proof_of(problem)
    for feature, cut in ((1, 3.0), (1, 0.5), (1, -4.0), (2, np.nan), (9, 0.0)):
        start = np.array([0, 0, 0, 0])
        tree = Tree(
            feature=np.array([feature, -1, -1]), cut=np.array([cut, 0, 0]), start=start, index=leaf.index[:0], value=leaf.value[:0]
        )
        reason = verdict(problem, tree)
        assert reason is not None
        assert "feature" in reason


@pytest.mark.parametrize(("change", "text"), [
    ({"lower": np.array([0.0, -np.inf, -3, 0])}, "not finite"),
    ({"upper": np.array([0.0, -4, 3, 2])}, "empty"),
    ({"margin": np.array([np.nan])}, "not finite"),
    ({"upper": np.array([1.0, 3, 3, 2])}, "protected feature is not fixed"),
    ({"offset": np.array([0.0, 0.5, 0, 0])}, "shifts"),
    ({"offset": np.array([0.0, 0, 0, 1])}, "shifts"),
    ({"offset": np.array([0.0, 2.0**24, 0, 0])}, "shifts"),
])
def test_claims_that_are_not_covered_are_refused(change: dict[str, Array], text: str) -> None:
    problem = shifted(problem_of(1), 1.0)
    reason = tree_flaw(problem.network, problem.domain, replace(claim_of(problem), **change), proof_of(problem))
    assert reason is not None
    assert text in reason


def test_more_rows_than_the_rounding_allows_for_prove_nothing() -> None:
    problem = shifted(problem_of(5), 1.0)
    task, tree = claim_of(problem), proof_of(problem)
    many = replace(task, goal=replace(task.goal, rows=task.goal.rows * 200, strict=task.goal.strict * 200))
    for count, accepted in ((300, True), (301, False)):
        weights = Tree(
            feature=np.array([-1]), cut=np.zeros(1), start=np.array([0, count]), index=18 + np.arange(count),
            value=np.full(count, 1.0),
        )
        flaw = tree_flaw(problem.network, problem.domain, many, weights)
        assert not (flaw is None and not accepted)
    assert verdict(problem, tree) is None


def test_numbers_out_of_range_prove_nothing() -> None:
    problem = shifted(problem_of(5), 1.0)
    tree = proof_of(problem)
    layers = tuple(replace(layer, bias=layer.bias * 1e120) for layer in problem.network.layers)
    huge = replace(problem, network=replace(problem.network, layers=layers))
    assert verdict(huge, tree) is not None
