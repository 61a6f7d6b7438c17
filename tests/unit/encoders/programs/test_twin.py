"""The LP, the MILP and the exact formulation of a twin, against plain evaluation of the network.

Programs are solved here by scipy and by a literal translation to Z3, not through solvers/: these tests are about the encoders.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.arrays import Array
from encoders.bounds.twin import Twin
from encoders.network import Network
from encoders.problem import Goal, TwinProblem
from encoders.programs.big_m import big_m
from encoders.programs.smt import smt
from encoders.programs.triangle import naive_triangle, triangle
from encoders.programs.twin import Encoding
from encoders.programs.twin_box import Method, TwinBox
from solvers.program import Program
from tests.brute_force import margins, not_safe, optimum, pinned, relaxed, satisfiable
from tests.builders import DIFFERENCE, NO_FLIP, lattice, random_network, sample, twin_problem

ROWS = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [-0.5, 0.5]])
ENCODERS = {
    "triangle": triangle,
    "naive": naive_triangle,
    "triangle-difference": lambda box: triangle(box, difference=True),
    "big-m": big_m,
    "big-m-difference": lambda box: big_m(box, difference=True),
}
EXACT = ["big-m", "big-m-difference"]
SHAPES = {
    "two-layers": {"hidden": (5, 4)},
    "leaky": {"hidden": (4, 3), "slope": 0.1},
    "deep": {"hidden": (3, 3, 3, 3)},
    "two-logits": {"hidden": (4,), "outputs": 2},
    "scaled": {"hidden": (4, 3), "scale": 3.7},
    "one-hot": {"hidden": (4, 3), "categories": 3},
    "no-hidden-layer": {"hidden": ()},
    "one-unit": {"hidden": (1,)},
    "sparse": {"hidden": (5, 4), "sparsity": 0.6},
}


def least(program_encoding: Encoding, row: Array) -> float:
    found = optimum(program_encoding.minimise(row))
    assert found is not None
    return found[0]


def at_point(encoding: Encoding, raw: Array, row: Array) -> float | None:
    """The optimum with the inputs fixed; None when the program excludes the point."""
    found = optimum(replace(encoding, program=pinned(encoding, raw)).minimise(row))
    return None if found is None else found[0]


def reproduces(encoding: Encoding, problem: TwinProblem, points: Array) -> bool:
    """Whether an exact encoding gives the network's own margins at every point, in both directions."""
    for raw, pair in zip(points, margins(problem, points), strict=True):
        for row in ROWS[:4]:
            value = at_point(encoding, raw, row)
            if value is None or abs(value - row @ pair) > 1e-5:
                return False
    return True


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_box_of_one_point_gives_the_networks_output(shape: str, encoder: str) -> None:
    rng = np.random.default_rng(1)
    problem = twin_problem(rng, **SHAPES[shape])
    twin = Twin.of(problem)
    for raw in sample(rng, problem, 3):
        encoding = ENCODERS[encoder](TwinBox.of(twin, 0, raw, raw, method=Method.LINEAR))
        for row in ROWS:
            assert least(encoding, row) == pytest.approx(row @ margins(problem, raw[None, :])[0], abs=1e-6)


@pytest.mark.parametrize("encoder", EXACT)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_exact_encoding_reproduces_the_network_at_every_fixed_input(shape: str, encoder: str) -> None:
    rng = np.random.default_rng(2)
    problem = twin_problem(rng, **SHAPES[shape])
    box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
    assert reproduces(ENCODERS[encoder](box), problem, sample(rng, problem, 6))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_relaxations_contain_the_exact_minimum_and_order_as_they_should(shape: str, seed: int) -> None:
    problem = twin_problem(np.random.default_rng(seed), **SHAPES[shape])
    twin = Twin.of(problem)
    interval, linear = (TwinBox.of(twin, 0, method=method) for method in (Method.INTERVAL, Method.LINEAR))
    points = lattice(problem.batch.lower[0], problem.batch.upper[0])
    for row in ROWS:
        truth = (margins(problem, points) @ row).min()
        plain, tight = least(triangle(interval), row), least(triangle(linear), row)
        both = least(triangle(linear, difference=True), row)
        assert least(naive_triangle(interval), row) == pytest.approx(plain, abs=1e-6)
        assert plain <= tight + 1e-6
        assert tight <= both + 1e-6
        assert both <= truth + 1e-6
        for encoder in EXACT:
            encoding = ENCODERS[encoder](linear)
            value, solution = optimum(encoding.minimise(row)) or (np.nan, np.empty(0))
            assert value == pytest.approx(truth, abs=1e-5)
            raw = encoding.decode(solution)
            assert problem.domain.legal(raw).all()
            assert (margins(problem, raw) @ row)[0] == pytest.approx(truth, abs=1e-5)
        root = replace(big_m(linear), program=relaxed(big_m(linear).program))
        root_difference = big_m(linear, difference=True)
        root_difference = replace(root_difference, program=relaxed(root_difference.program))
        assert least(root, row) == pytest.approx(tight, abs=1e-6)
        assert least(root_difference, row) >= both - 1e-6


def test_difference_rows_and_linear_bounds_are_worth_their_place() -> None:
    """Over many networks each of them must improve the bound somewhere by more than rounding, else it does nothing."""
    gains = []
    for seed in range(8):
        twin = Twin.of(twin_problem(np.random.default_rng(seed), (8, 8)))
        interval, linear = (TwinBox.of(twin, 0, method=method) for method in (Method.INTERVAL, Method.LINEAR))
        values = [
            least(encoding, ROWS[0])
            for encoding in (triangle(interval), triangle(linear), triangle(linear, difference=True))
        ]
        gains.append(np.diff(values))
    assert (np.array(gains) >= -1e-6).all()
    assert (np.max(gains, axis=0) > 1e-2).all()


def test_the_first_layer_hull_is_exact_for_one_pair() -> None:
    """One hidden unit: with the difference rows the LP over (a, relu(a), relu(a - s)) is the hull, so its minimum is exact."""
    for seed in range(30):
        problem = twin_problem(np.random.default_rng(seed), (1,), real=True)
        box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
        for row in ROWS:
            assert least(triangle(box, difference=True), row) == pytest.approx(least(big_m(box), row), abs=1e-6)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_sub_box_with_fixed_variables_and_fewer_categories(encoder: str) -> None:
    rng = np.random.default_rng(5)
    problem = twin_problem(rng, (4, 3), categories=4, scale=2.0)
    lower, upper = problem.batch.lower[0].copy(), problem.batch.upper[0].copy()
    lower[1] = upper[1] = 1.0
    lower[3], upper[3] = 1.0, 2.0
    encoding = ENCODERS[encoder](TwinBox.of(Twin.of(problem), 0, lower, upper, method=Method.LINEAR))
    truth = (margins(problem, lattice(lower, upper)) @ ROWS[0]).min()
    value, solution = optimum(encoding.minimise(ROWS[0])) or (np.nan, np.empty(0))
    assert value <= truth + 1e-6
    raw = encoding.decode(solution)[0]
    assert ((raw >= lower) & (raw <= upper)).all()
    if encoder in EXACT:
        assert value == pytest.approx(truth, abs=1e-5)


def test_feasibility_turns_at_the_minimum() -> None:
    problem = twin_problem(np.random.default_rng(3), (4, 3))
    encoding = big_m(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    value = least(encoding, ROWS[0])
    nothing = np.zeros(encoding.program.columns)
    assert encoding.at_most(ROWS[0], value + 1e-3).objective is None
    assert optimum(replace(encoding.at_most(ROWS[0], value + 1e-3), objective=nothing)) is not None
    assert optimum(replace(encoding.at_most(ROWS[0], value - 1e-3), objective=nothing)) is None


TINY = {
    "leaky": {"hidden": (3,), "slope": 0.1},
    "scaled": {"hidden": (3,), "scale": 3.7},
    "one-hot": {"hidden": (3,), "categories": 3},
    "no-hidden-layer": {"hidden": ()},
    "one-unit": {"hidden": (1,)},
    "two-logits": {"hidden": (2, 2), "outputs": 2},
}


@pytest.mark.parametrize("goal", [DIFFERENCE, NO_FLIP], ids=["difference", "no-flip"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", TINY)
def test_smt_is_satisfiable_exactly_when_a_lattice_point_violates(shape: str, seed: int, goal: Goal) -> None:
    pytest.importorskip("z3")
    problem = twin_problem(np.random.default_rng(seed), **TINY[shape])
    encoding = smt(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    points = lattice(problem.batch.lower[0], problem.batch.upper[0])
    truth = not_safe(problem, points, goal)
    values = satisfiable(encoding.violated(goal))
    assert (values is not None) == truth.any()
    if values is not None:
        assert not_safe(problem, encoding.decode(values), goal).all()


def test_smt_answers_both_ways_on_the_tiny_networks() -> None:
    """The test above compares two answers: both of them must occur for either goal, or it compares nothing."""
    for goal in (DIFFERENCE, NO_FLIP):
        answers = set()
        for shape in TINY.values():
            for seed in range(6):
                problem = twin_problem(np.random.default_rng(seed), **shape)
                points = lattice(problem.batch.lower[0], problem.batch.upper[0])
                answers.add(bool(not_safe(problem, points, goal).any()))
        assert answers == {True, False}


@pytest.mark.parametrize("seed", range(12))
def test_smt_keeps_every_legal_input_of_a_scaled_domain(seed: int) -> None:
    """With scale and offset the network is fed rounded columns: the exact point must satisfy the rows that tie them to k."""
    rng = np.random.default_rng(seed)
    problem = twin_problem(rng, (2,))
    scale, offset = 10.0 ** rng.uniform(-3, 4, 2), rng.normal(size=2) * 10.0 ** rng.uniform(-2, 2)
    domain = replace(problem.domain, scale=np.array([1.0, *scale]), offset=np.array([0.0, *offset]))
    problem = replace(problem, domain=domain)
    encoding = smt(TwinBox.of(Twin.of(problem), 0, method=Method.INTERVAL))
    program = encoding.program
    whole = np.flatnonzero(program.integer)
    tied = [i for i in range(program.rows.shape[0]) if np.isin(whole, row_columns(program, i)).any()]
    assert len(tied) == len(whole) == 2
    points = lattice(problem.batch.lower[0], problem.batch.upper[0])
    columns = domain.encode(points)[:, encoding.inputs.box.twin.moving]
    for raw, column in zip(points, columns, strict=True):
        for v, i in enumerate(tied):
            left = Fraction(scale[v]) * Fraction(column[v]) - Fraction(raw[1 + v])
            assert Fraction(program.row_lower[i]) <= left <= Fraction(program.row_upper[i])
            assert Fraction(program.row_upper[i]) - Fraction(program.row_lower[i]) < Fraction(scale[v]) / 1000


def row_columns(program: Program, i: int) -> Array:
    return np.asarray(program.rows.indices[program.rows.indptr[i] : program.rows.indptr[i + 1]])


def test_smt_decides_ties_by_strictness() -> None:
    """A constant network has g = g' exactly: the strict goal is violated, the one that is not strict holds."""
    pytest.importorskip("z3")
    network = constant(random_network(np.random.default_rng(0), (3, 3, 1)))
    problem = twin_problem(np.random.default_rng(0), network=network)
    encoding = smt(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    assert satisfiable(encoding.violated(DIFFERENCE)) is not None
    assert satisfiable(encoding.violated(replace(DIFFERENCE, strict=False))) is None


def constant(network: Network) -> Network:
    last = network.layers[-1]
    return replace(network, layers=(*network.layers[:-1], replace(last, weight=np.zeros_like(last.weight))))


def twinned(network: Network) -> Network:
    """The same function with the first layer's neurons doubled and half weights above."""
    first, second = network.layers[0], network.layers[1]
    double = replace(
        first,
        weight=np.concatenate([first.weight] * 2),
        bias=np.concatenate([first.bias] * 2),
        slope=np.concatenate([first.slope] * 2),
    )
    above = replace(second, weight=np.concatenate([second.weight / 2] * 2, axis=1))
    return replace(network, layers=(double, above, *network.layers[2:]))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    hidden=st.sampled_from([(), (1,), (3,), (2, 3), (2, 2, 2), (1, 1, 1, 1)]),
    slope=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    sparsity=st.sampled_from([0.0, 0.5, 1.0]),
    scale=st.sampled_from([1.0, 0.1, 30.0]),
    form=st.sampled_from(["plain", "constant", "twinned"]),
)
def test_random_networks_never_contradict(
    seed: int, hidden: tuple[int, ...], slope: float, sparsity: float, scale: float, form: str
) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, (3, *hidden, 1), slope=slope, sparsity=sparsity)
    if form == "constant":
        network = constant(network)
    if form == "twinned" and hidden:
        network = twinned(network)
    problem = twin_problem(rng, network=network, scale=scale)
    box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
    values = margins(problem, lattice(problem.batch.lower[0], problem.batch.upper[0]))
    row = ROWS[seed % 4]
    truth = (values @ row).min()
    found = {name: least(encoder(box), row) for name, encoder in ENCODERS.items()}
    assert found["naive"] == pytest.approx(found["triangle"], abs=1e-5)
    assert found["triangle"] <= found["triangle-difference"] + 1e-5
    assert found["triangle-difference"] <= truth + 1e-5
    assert found["big-m"] == pytest.approx(truth, abs=1e-5)
    assert found["big-m-difference"] == pytest.approx(truth, abs=1e-5)


class TestMutations:
    """A wrong sign or a lost bias in the MILP must be seen by the check that the tests above rely on."""

    problem = twin_problem(np.random.default_rng(8), (3, 2))
    encoding = big_m(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    points = lattice(problem.batch.lower[0], problem.batch.upper[0])

    def test_the_encoding_itself_passes(self) -> None:
        assert reproduces(self.encoding, self.problem, self.points)

    def test_every_flipped_big_m_is_seen(self) -> None:
        program = self.encoding.program
        binary = np.flatnonzero(program.integer & (np.arange(program.columns) >= len(self.encoding.inputs.column)))
        assert len(binary) >= 4
        entries = np.flatnonzero(np.isin(program.rows.indices, binary))
        assert len(entries) == 2 * len(binary)
        for entry in entries:
            rows = program.rows.copy()
            rows.data[entry] *= -1
            mutant = replace(self.encoding, program=replace(program, rows=rows))
            assert not reproduces(mutant, self.problem, self.points)

    def test_every_dropped_bias_is_seen(self) -> None:
        program = self.encoding.program
        defining = np.flatnonzero((program.row_lower == program.row_upper) & (program.row_lower != 0))
        assert len(defining) >= 4
        for i in defining:
            lower, upper = program.row_lower.copy(), program.row_upper.copy()
            lower[i] = upper[i] = 0.0
            mutant = replace(self.encoding, program=replace(program, row_lower=lower, row_upper=upper))
            assert not reproduces(mutant, self.problem, self.points)
        for copy in (0, 1):
            constants = self.encoding.constants.copy()
            constants[copy] = 0.0
            assert not reproduces(replace(self.encoding, constants=constants), self.problem, self.points)

    def test_every_exchanged_pair_of_difference_rows_is_seen(self) -> None:
        """The first layer's rows say which copy is larger; exchanging the copies cuts off every point where it is active."""
        extended = big_m(self.encoding.inputs.box, difference=True)
        assert reproduces(extended, self.problem, self.points)
        program = extended.program
        pairs = [
            i
            for i in np.flatnonzero((np.diff(program.rows.indptr) == 2) & (program.row_upper == 0) & (program.row_lower == -np.inf))
            if not program.integer[program.rows.indices[program.rows.indptr[i] : program.rows.indptr[i + 1]]].any()
        ]
        assert len(pairs) >= 2
        for i in pairs:
            rows = program.rows.copy()
            at = slice(rows.indptr[i], rows.indptr[i + 1])
            rows.data[at] = rows.data[at][::-1]
            mutant = replace(extended, program=replace(program, rows=rows))
            assert not reproduces(mutant, self.problem, self.points)
