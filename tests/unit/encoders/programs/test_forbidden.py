"""Forbidden rows in programs: a point is a solution exactly when neither copy is forbidden, for random unions of boxes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.arrays import Array, Booleans
from encoders.bounds.twin import Twin
from encoders.domain import Forbidden
from encoders.problem import TwinProblem
from encoders.programs.big_m import big_m
from encoders.programs.smt import smt
from encoders.programs.triangle import naive_triangle
from encoders.programs.twin import Encoding
from encoders.programs.twin_box import Method, TwinBox, exclusions, exits
from tests.brute_force import margins, optimum, pinned, satisfiable
from tests.builders import lattice, twin_problem

ROWS = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
SHAPES: dict[str, dict[str, object]] = {
    "whole": {"hidden": (3,)},
    "one-hot": {"hidden": (2, 2), "categories": 4},
    "scaled": {"hidden": (3,), "scale": 3.7},
    "no-hidden-layer": {"hidden": ()},
}
ENCODERS = {"big-m": big_m, "big-m-difference": lambda box: big_m(box, difference=True)}


def forbid(rng: np.random.Generator, problem: TwinProblem, count: int) -> TwinProblem:
    """The same problem with `count` random boxes forbidden; about half of their sides are infinite."""
    domain = problem.domain
    shape = (2, count, domain.variables)
    low, high = np.sort(rng.integers(domain.lower - 1, domain.upper + 2, shape).astype(float), axis=0)
    low[rng.random(low.shape) < 0.5], high[rng.random(high.shape) < 0.5] = -np.inf, np.inf
    return replace(problem, domain=replace(domain, forbidden=Forbidden(lower=low, upper=high)))


def relaxed(problem: TwinProblem, shift: float) -> TwinProblem:
    """x' has variable 1 larger by `shift`; the box of x leaves room for it."""
    offset = np.zeros_like(problem.batch.lower)
    offset[:, 1] = shift
    lower, upper = problem.batch.lower.copy(), problem.batch.upper.copy()
    lower[:, 1] -= min(shift, 0.0)
    upper[:, 1] -= max(shift, 0.0)
    return replace(problem, batch=replace(problem.batch, lower=lower, upper=upper, offset=offset))


def asked(shape: str, seed: int, *, boxes: int = 3, shift: float = 0.0) -> TwinProblem:
    rng = np.random.default_rng(seed)
    problem = twin_problem(rng, **SHAPES[shape])  # type: ignore[arg-type]
    return forbid(rng, relaxed(problem, shift) if shift else problem, boxes)


def legal(problem: TwinProblem, points: Array) -> Booleans:
    second = problem.batch.take([0]).second(points)
    return problem.domain.legal(points) & problem.domain.legal(second)


def box_points(problem: TwinProblem) -> Array:
    return lattice(problem.batch.lower[0], problem.batch.upper[0])


def solvable(encoding: Encoding, raw: Array) -> bool:
    return optimum(replace(encoding, program=pinned(encoding, raw)).minimise(ROWS[0])) is not None


@pytest.mark.parametrize("shift", [0.0, 1.0, -2.0])
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["whole", "one-hot", "no-hidden-layer"])
def test_the_milp_has_exactly_the_legal_points(shape: str, seed: int, encoder: str, shift: float) -> None:
    problem = asked(shape, seed, shift=shift)
    encoding = ENCODERS[encoder](TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    points = box_points(problem)[::3]
    assert [solvable(encoding, raw) for raw in points] == legal(problem, points).tolist()


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31), shape=st.sampled_from(list(SHAPES)), boxes=st.integers(1, 8),
    shift=st.sampled_from([0.0, 1.0, -3.0]),
    row=st.sampled_from(range(len(ROWS))), encoder=st.sampled_from(list(ENCODERS)),
)
def test_the_milp_has_the_least_value_over_the_legal_points(
    seed: int, shape: str, boxes: int, shift: float, row: int, encoder: str
) -> None:
    problem = asked(shape, seed, boxes=boxes, shift=0.0 if shape == "scaled" else shift)
    rng = np.random.default_rng(seed)
    ends = rng.integers(problem.batch.lower, problem.batch.upper + 1, (2, 1, problem.domain.variables)).astype(float)
    lower, upper = np.sort(ends, axis=0)[:, 0] if seed % 2 else (problem.batch.lower[0], problem.batch.upper[0])
    encoding = ENCODERS[encoder](TwinBox.of(Twin.of(problem), 0, lower, upper, method=Method.LINEAR))
    points = lattice(lower, upper)
    points = points[legal(problem, points)]
    found = optimum(encoding.minimise(ROWS[row]))
    assert (found is None) == (len(points) == 0)
    if found is not None:
        assert found[0] == pytest.approx((margins(problem, points) @ ROWS[row]).min(), abs=1e-5)
        raw = encoding.decode(found[1])
        assert legal(problem, raw).all()
        assert (margins(problem, raw) @ ROWS[row])[0] == pytest.approx(found[0], abs=1e-5)


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", ["whole", "one-hot", "scaled"])
def test_smt_has_exactly_the_legal_points(shape: str, seed: int, shift: float) -> None:
    pytest.importorskip("z3")
    problem = asked(shape, seed, shift=0.0 if shape == "scaled" else shift, boxes=4)
    encoding = smt(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    points = box_points(problem)
    points = points[:: max(1, len(points) // 9)]
    found = [satisfiable(fixed(encoding, raw)) is not None for raw in points]
    assert found == legal(problem, points).tolist()


def fixed(encoding: Encoding, raw: Array):  # type: ignore[no-untyped-def]
    """The exact program with its network columns at one raw point (a little room, where they are rounded)."""
    program, inputs = encoding.program, encoding.inputs
    columns = inputs.box.twin.problem.domain.encode(raw[None, :])[0, inputs.box.twin.moving[inputs.column]]
    lower, upper = program.lower.copy(), program.upper.copy()
    lower[: len(columns)], upper[: len(columns)] = columns, columns
    return replace(program, lower=lower, upper=upper)


@pytest.mark.parametrize("shift", [1.0, -2.0])
@pytest.mark.parametrize("shape", ["whole", "one-hot", "no-hidden-layer"])
def test_a_shifted_copy_has_its_own_inputs_in_every_formulation(shape: str, shift: float) -> None:
    pytest.importorskip("z3")
    problem = relaxed(twin_problem(np.random.default_rng(3), **SHAPES[shape]), shift)  # type: ignore[arg-type]
    box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
    moving, whole = smt(box), big_m(box)
    naive = naive_triangle(box)
    for raw in box_points(problem)[::7]:
        pair = margins(problem, raw[None, :])[0]
        solution = satisfiable(fixed(moving, raw))
        assert solution is not None
        assert moving.margins @ solution == pytest.approx(pair, abs=1e-6)
        for row in ROWS:
            found = optimum(replace(whole, program=pinned(whole, raw)).minimise(row))
            assert found is not None
            assert found[0] == pytest.approx(row @ pair, abs=1e-6)
            below = optimum(replace(naive, program=fixed(naive, raw)).minimise(row))
            assert below is not None
            assert below[0] <= row @ pair + 1e-6


def test_both_answers_occur() -> None:
    """The tests above compare sets of points: some must be legal, some not because of x and some because of x' alone."""
    seen = set()
    for shape in ("whole", "one-hot", "no-hidden-layer"):
        for seed in range(4):
            problem = asked(shape, seed)
            points = box_points(problem)
            second = problem.batch.take([0]).second(points)
            seen |= set(zip(problem.domain.legal(points).tolist(), problem.domain.legal(second).tolist(), strict=True))
    assert len(seen) == 4


@given(
    seed=st.integers(0, 2**31), boxes=st.integers(1, 6), shift=st.sampled_from([0.0, 1.0, -1.0]),
    shape=st.sampled_from(["whole", "one-hot"]),
)
def test_exclusions_are_what_either_copy_may_not_be(seed: int, boxes: int, shift: float, shape: str) -> None:
    problem = asked(shape, seed, boxes=boxes, shift=shift)
    rng = np.random.default_rng(seed)
    ends = rng.integers(problem.batch.lower, problem.batch.upper + 1, (2, problem.domain.variables)).astype(float)
    lower, upper = np.sort(ends, axis=0)
    points = lattice(lower, upper)
    found = exclusions(problem, 0, lower, upper)
    inside = np.zeros(len(points), dtype=bool) if found is None else found.contain(points, points)
    assert inside.tolist() == (~legal(problem, points)).tolist()
    every = exits(problem, 0, lower, upper)
    assert all(lower[way.variable] <= way.end <= upper[way.variable] for ways in every for way in ways)
    assert all(ways or inside.all() for ways in every)


@pytest.mark.parametrize("encode", [big_m, smt], ids=["big-m", "smt"])
def test_a_question_about_no_row_is_infeasible(encode) -> None:  # type: ignore[no-untyped-def]
    """Forbid the protected value of x, then that of x': the question is about nothing either way."""
    for value in (1.0, 0.0):
        problem = twin_problem(np.random.default_rng(0), (2,))
        low, high = np.full((1, 3), -np.inf), np.full((1, 3), np.inf)
        low[0, 0] = high[0, 0] = value
        problem = replace(problem, domain=replace(problem.domain, forbidden=Forbidden(lower=low, upper=high)))
        encoding = encode(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
        if encode is smt:
            pytest.importorskip("z3")
            assert satisfiable(encoding.program) is None
        else:
            assert optimum(encoding.minimise(ROWS[0])) is None


@pytest.mark.parametrize("seed", range(6))
def test_real_inputs_lose_no_legal_point_and_decode_to_legal_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = twin_problem(rng, (3,), real=True, scale=0.7)
    low, high = np.sort(rng.uniform(-2.2, 2.2, (2, 2, 3)), axis=0)
    low[:, 0], high[:, 0] = -np.inf, np.inf
    low[0, 1] = -np.inf
    problem = replace(problem, domain=replace(problem.domain, forbidden=Forbidden(lower=low, upper=high)))
    encoding = big_m(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    axes = [np.array([1.0])]
    for v in (1, 2):
        ends = np.concatenate([low[:, v], high[:, v], [-2.0, 2.0]])
        near = np.concatenate([ends, np.nextafter(ends, -np.inf), np.nextafter(ends, np.inf), rng.uniform(-2, 2, 3)])
        axes.append(near[(near >= -2) & (near <= 2)])
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3)
    points = points[rng.permutation(len(points))[:60]]
    may = legal(problem, points)
    assert may.any()
    assert all(solvable(encoding, raw) for raw in points[may])
    steps = np.array([[0, u, v] for u in (-1e-3, 0, 1e-3) for v in (-1e-3, 0, 1e-3)])
    around = np.clip(points[:, None, :] + steps, [1, -2, -2], [1, 2, 2])
    deep = points[~legal(problem, around.reshape(-1, 3)).reshape(len(points), -1).any(axis=1)]
    assert not any(solvable(encoding, raw) for raw in deep)
    for row in ROWS:
        found = optimum(encoding.minimise(row))
        assert found is not None
        assert legal(problem, encoding.decode(found[1])).all()


class TestMutations:
    """A wrong sign or end in the rows of the exits must be seen by the comparison that the tests above rely on."""

    problem = twin_problem(np.random.default_rng(1), (2,), categories=4)
    problem = replace(problem, domain=replace(
        problem.domain,
        forbidden=Forbidden(  # x may not have variable 1 in 0 .. 1 and variable 2 >= 1; x' not 2 <= -2 and category 1 .. 2
            lower=np.array([[1.0, 0.0, 1.0, -np.inf], [0.0, -np.inf, -np.inf, 1.0]]),
            upper=np.array([[1.0, 1.0, np.inf, np.inf], [0.0, np.inf, -2.0, 2.0]]),
        ),
    ))
    points = box_points(problem)
    encoding = big_m(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    without = big_m(TwinBox.of(Twin.of(replace(problem, domain=replace(problem.domain, forbidden=None))), 0, method=Method.LINEAR))

    def right(self, encoding: Encoding) -> bool:
        return [solvable(encoding, raw) for raw in self.points] == legal(self.problem, self.points).tolist()

    def test_the_encoding_itself_passes(self) -> None:
        assert self.right(self.encoding)
        assert not self.right(self.without)

    def test_every_flipped_sign_is_seen(self) -> None:
        program = self.encoding.program
        first = self.without.program.rows.shape[0]
        entries = np.arange(program.rows.indptr[first], program.rows.nnz)
        assert len(entries) == 4 * 2 + 3 + 3
        for entry in entries:
            rows = program.rows.copy()
            rows.data[entry] *= -1
            assert not self.right(replace(self.encoding, program=replace(program, rows=rows)))
