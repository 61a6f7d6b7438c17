"""The ground truth about small problems: brute force over lattices, exact where asked, by solvers of its own."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import scipy.optimize

from encoders.arrays import Array, Booleans
from encoders.curves.layer import SmoothLayer
from encoders.network import Network
from encoders.problem import Goal, TwinProblem
from encoders.programs.twin import Encoding
from solvers.program import Program


def margins(problem: TwinProblem, raw: Array) -> Array:
    """g(x), g(x') (P, 2) of raw points of the first question, by plain evaluation."""
    batch = problem.batch.take([0])
    pair = [problem.network.forward(problem.domain.encode(points)) @ problem.margin for points in (raw, batch.second(raw))]
    return np.stack(pair, axis=1)


def optimum(program: Program) -> tuple[float, Array] | None:
    """The least value of a program and a point, by scipy's own HiGHS (not through solvers/); None when infeasible."""
    assert program.objective is not None
    result = scipy.optimize.milp(
        program.objective,
        integrality=program.integer.astype(int),
        bounds=scipy.optimize.Bounds(program.lower, program.upper),
        constraints=scipy.optimize.LinearConstraint(program.rows, program.row_lower, program.row_upper),
        options={"mip_rel_gap": 0.0, "time_limit": 60.0},
    )
    assert result.status in (0, 2), result.message
    return None if result.status == 2 else (result.fun + program.constant, result.x)


def relaxed(program: Program) -> Program:
    """The same program without integrality."""
    return replace(program, integer=np.zeros_like(program.integer))


def pinned(encoding: Encoding, raw: Array) -> Program:
    """The encoding's program with its inputs fixed to one raw point (V,) of its box."""
    inputs, box = encoding.inputs, encoding.inputs.box
    at = inputs.variable
    width = np.where(inputs.one_hot, 1.0, box.upper[at] - box.lower[at])
    number = inputs.lower + (raw[at] - box.lower[at]) / width * (inputs.upper - inputs.lower)
    value = np.where(inputs.one_hot, raw[at] == inputs.category, number)
    lower, upper = encoding.program.lower.copy(), encoding.program.upper.copy()
    lower[: len(value)] = upper[: len(value)] = value
    return replace(encoding.program, lower=lower, upper=upper)


def exact_margins(problem: TwinProblem, raw: Array) -> npt.NDArray[np.object_]:
    """g(x), g(x') (P, 2) as fractions, at raw points of the first question."""
    batch = problem.batch.take([0])
    weight = fractions(problem.margin)
    pair = [exact_forward(problem.network, problem.domain.encode(p)) @ weight for p in (raw, batch.second(raw))]
    return np.stack(pair, axis=1)


def not_safe(problem: TwinProblem, points: Array, goal: Goal) -> Booleans:
    """Which points are witnesses against the goal, in exact arithmetic."""
    values = exact_margins(problem, points) @ fractions(goal.rows.T)
    met = np.where(goal.strict_rows, values > 0, values >= 0)
    return ~met.astype(bool).any(axis=1)


def fractions(values: Array) -> npt.NDArray[np.object_]:
    """The same numbers as exact fractions."""
    return np.array([Fraction(float(v)) for v in values.ravel()], dtype=object).reshape(values.shape)


def exact_forward(network: Network, x: Array) -> npt.NDArray[np.object_]:
    """Logits (P, m) of points (P, n) as fractions, by arithmetic of its own: whole numbers over one power of two. Of smooth neurons
    the network may have squares alone."""
    values, power = _whole(x)
    for layer in network.layers:
        smooth = isinstance(layer, SmoothLayer)
        (weight, by), (bias, at), (slope, more) = map(_whole, (layer.weight, layer.bias, layer.bend if smooth else layer.slope))
        common = max(power + by, at)
        a = values @ weight.T * 2 ** (common - power - by) + bias * 2 ** (common - at)
        values, power = np.where(a > 0, a * 2**more, a * slope), common + more
        if smooth:
            assert (layer.squared == layer.smooth).all()
            values, power = np.where(layer.squared, a * a * 2**more, values * 2**common), power + common
    return np.array([Fraction(v, 2**power) for v in values.ravel()], dtype=object).reshape(values.shape)


def _whole(values: Array) -> tuple[npt.NDArray[np.object_], int]:
    """Whole numbers and a power: values = whole / 2^power, exactly."""
    ratios = [float(v).as_integer_ratio() for v in values.ravel()]
    power = max((denominator.bit_length() - 1 for _, denominator in ratios), default=0)
    whole = [numerator * 2**power // denominator for numerator, denominator in ratios]
    return np.array(whole, dtype=object).reshape(values.shape), power


def satisfiable(program: Program, seconds: float = 20.0) -> Array | None:
    """A point of a program with relus and clauses by a literal translation to Z3 over the rationals; None when there is none."""
    import z3

    def term(indices: npt.NDArray[np.int32], data: Array) -> z3.ArithRef:
        return z3.Sum([z3.Q(*Fraction(float(c)).as_integer_ratio()) * v[j] for j, c in zip(indices, data, strict=True)])

    def number(c: float) -> z3.RatNumRef:
        return z3.Q(*Fraction(float(c)).as_integer_ratio())

    solver = z3.Solver()
    solver.set("timeout", int(1000 * seconds))
    v = [(z3.ToReal(z3.Int(f"k{j}")) if whole else z3.Real(f"v{j}")) for j, whole in enumerate(program.integer)]
    limits = [*zip(v, program.lower, program.upper, strict=True)]
    r = program.rows
    for i in range(r.shape[0]):
        at = slice(r.indptr[i], r.indptr[i + 1])
        limits.append((term(r.indices[at], r.data[at]), program.row_lower[i], program.row_upper[i]))
    for expression, low, high in limits:
        if np.isfinite(low):
            solver.add(expression >= number(low))
        if np.isfinite(high):
            solver.add(expression <= number(high))
    for a, y in program.relus:
        solver.add(v[y] == z3.If(v[a] > 0, v[a], 0))
    for clause in program.clauses:
        cases = []
        for i, (bound, strict) in enumerate(zip(clause.bound, clause.strict, strict=True)):
            at = slice(clause.rows.indptr[i], clause.rows.indptr[i + 1])
            left = term(clause.rows.indices[at], clause.rows.data[at])
            cases.append(left > number(bound) if strict else left >= number(bound))
        solver.add(z3.Or(cases))
    answer = solver.check()
    assert answer != z3.unknown, solver.reason_unknown()
    if answer == z3.unsat:
        return None
    model = solver.model()
    return np.array([float(model.eval(x, model_completion=True).as_fraction()) for x in v])
