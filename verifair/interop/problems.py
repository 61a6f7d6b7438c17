"""Cases of a VNN-LIB query as problems of the engine: goals that hold throughout exactly when the case is empty.

Two ways lead there. *Twin*: two equal networks over shared inputs, or with constants in some, and constraints on one margin of
both: a twin problem as fairness queries are, with the bounds on differences that those have. *Scalar*: everything else becomes one
network with one output (`encoders.scalar_network`), and the goal is that the output is positive.

Bounds that are no float32 numbers are rounded outwards and constants towards unsafe, so that a proof covers at least what was
asked; a witness is taken back into the exact bounds and decided there (`verifair.interop.witness`).
Sound? yes, for proofs.  Complete? up to constraints that are met on their boundary alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from encoders.network import Array, Network
from encoders.problem import Domain, Goal, Integers, TwinBatch, TwinProblem
from encoders.scalar_network import scalar_network
from encoders.vnnlib_cases import Case
from encoders.vnnlib_query import Atom, VnnlibQuery
from encoders.vnnlib_text import VnnlibUnsupported


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseProblem:
    """A problem of one question and one goal, and which raw variable each free input u of the case is (V,)."""

    problem: TwinProblem
    variable: Integers
    twin: bool


def case_problem(query: VnnlibQuery, case: Case, networks: Sequence[Network]) -> CaseProblem:
    """The problem of a case. Raises VnnlibUnsupported for coefficients that float64 cannot hold."""
    return _twin(query, case, networks) or _scalar(query, case, networks)


def _scalar(query: VnnlibQuery, case: Case, networks: Sequence[Network]) -> CaseProblem:
    bounds = list(case.bounds)
    own, shift = [], []
    for j, network in enumerate(networks):
        places = [case.place[j, i] for i in range(network.inputs)]
        own.append(np.array([k for k, _ in places], dtype=np.int64))
        added = np.full(network.inputs, -1, dtype=np.int64)
        for i, (_, offset) in enumerate(places):
            if offset:
                added[i] = len(bounds)
                bounds.append((offset, offset))
        shift.append(added)
    outputs = np.cumsum([0, *(network.outputs for network in networks)])
    mentioned = sorted({(v.network, v.index) for atom in case.left for v, _ in atom.terms if v.side == "input"})
    passed = sorted({case.place[place][0] for place in mentioned})
    rows, constants = [], []
    for atom, factor in _inequalities(case.left):
        row = [Fraction(0)] * (int(outputs[-1]) + len(passed))
        constant = factor * atom.constant
        for variable, value in atom.terms:
            if variable.side == "output":
                row[int(outputs[variable.network]) + variable.index] += factor * value
            else:
                k, offset = case.place[variable.network, variable.index]
                row[int(outputs[-1]) + passed.index(k)] += factor * value
                constant += factor * value * offset
        numbers, low = _floats(query, row, constant, atom.line)
        rows.append(numbers)
        constants.append(low)
    if not rows:  # nothing is left to be met: every point of the box is a witness
        rows, constants = [np.zeros(int(outputs[-1]) + len(passed))], [0.0]
    network = scalar_network(networks, own, shift, np.array(passed, dtype=np.int64), np.array(rows), np.array(constants))
    strict = not all(atom.sign == "lt" for atom in case.left) or not case.left
    goal = Goal(rows=np.array([[1.0, 0.0]]), strict=strict)
    domain, lower, upper = _domain(query, bounds)
    batch = TwinBatch(lower=lower[None], upper=upper[None], prime=lower[None], protected=np.zeros(len(lower), dtype=bool))
    problem = TwinProblem(network=network, domain=domain, batch=batch, margin=np.ones(1), goals=(goal,))
    return CaseProblem(problem=problem, variable=np.arange(len(case.bounds)), twin=False)


def _twin(query: VnnlibQuery, case: Case, networks: Sequence[Network]) -> CaseProblem | None:
    """The twin problem of a case, or None where it is none."""
    if len(networks) != 2 or networks[0] is not networks[1] or any(offset for _, offset in case.place.values()):
        return None
    if not case.left or any(variable.side == "input" for atom in case.left for variable, _ in atom.terms):
        return None
    n = networks[0].inputs
    first = np.array([case.place[0, i][0] for i in range(n)])
    second = np.array([case.place[1, i][0] for i in range(n)])
    own = first != second
    for k in {*first[own].tolist(), *second[own].tolist()}:  # constants, and such as inputs can hold
        low, high = case.bounds[k]
        if low != high or Fraction(float(np.float32(float(low)))) != low:
            return None
    found = _margin(case.left, networks[0].outputs)
    if found is None:
        return None
    margin, pairs = found
    rows, constants = [], []
    for (atom, factor), pair in zip(_inequalities(case.left), pairs, strict=True):
        numbers, low_constant = _floats(query, list(pair), factor * atom.constant, atom.line)
        rows.append(numbers)
        constants.append(low_constant)
    if len(rows) == 2:  # follows from the two, and closes boxes in which neither holds throughout
        rows.append((rows[0] + rows[1]) / 2)
        constants.append(float(np.nextafter((constants[0] + constants[1]) / 2, -np.inf)) if any(constants) else 0.0)
    strict = not all(atom.sign == "lt" for atom in case.left)
    goal = Goal(rows=np.array(rows), constant=np.array(constants), strict=strict)
    domain, lower, upper = _domain(query, [case.bounds[k] for k in first])
    prime = np.where(own, [float(case.bounds[k][0]) for k in second], lower)
    batch = TwinBatch(lower=lower[None], upper=upper[None], prime=prime[None], protected=own)
    problem = TwinProblem(network=networks[0], domain=domain, batch=batch, margin=margin, goals=(goal,))
    position = np.zeros(len(case.bounds), dtype=np.int64)
    position[first] = np.arange(n)
    position[second[own]] = -1 - np.flatnonzero(own)  # constants of the second network alone
    return CaseProblem(problem=problem, variable=position, twin=True)


def _inequalities(left: Sequence[Atom]) -> list[tuple[Atom, int]]:
    """Atoms with the factors, 1 or -1, under which they say  terms + constant <= 0: an equation says so twice."""
    return [(atom, factor) for atom in left for factor in ((1, -1) if atom.sign == "eq" else (1,))]


def _margin(left: Sequence[Atom], outputs: int) -> tuple[Array, list[tuple[Fraction, Fraction]]] | None:
    """Weights m such that every constraint is about m . f(x) and m . f(x') alone, and its two factors; None where none are."""
    margin: list[Fraction] | None = None
    pairs = []
    for atom, factor in _inequalities(left):
        pair = []
        for j in range(2):
            row = [Fraction(0)] * outputs
            for variable, value in atom.terms:
                if variable.network == j:
                    row[variable.index] += factor * value
            lead = next((value for value in row if value), None)
            if lead is None:
                pair.append(Fraction(0))
                continue
            direction = [value / lead for value in row]
            margin = margin or direction
            if direction != margin:
                return None
            pair.append(lead)
        pairs.append((pair[0], pair[1]))
    if margin is None or any(Fraction(float(value)) != value for value in margin):
        return None
    return np.array([float(value) for value in margin]), pairs


def _floats(query: VnnlibQuery, row: Sequence[Fraction], constant: Fraction, line: int) -> tuple[Array, float]:
    """Coefficients that are floats exactly, scaled up where need be, and the constant rounded down: towards unsafe."""
    scale = 1 if all(_is_float(value) for value in row) else lcm(*(value.denominator for value in row))
    scaled = [value * scale for value in row]
    if not all(_is_float(value) for value in scaled):
        raise VnnlibUnsupported(
            query.path, line, "its coefficients have more digits together than float64 holds; write it with shorter ones"
        )
    low = _down(constant * scale)
    if not np.isfinite(low):
        raise VnnlibUnsupported(query.path, line, "its constant is beyond float64")
    return np.array([float(value) for value in scaled]), low


def _is_float(value: Fraction) -> bool:
    try:
        return Fraction(float(value)) == value
    except OverflowError:
        return False


def _down(value: Fraction) -> float:
    """The largest float64 that is not above value."""
    try:
        near = float(value)
    except OverflowError:
        return -np.inf
    return near if Fraction(near) <= value else float(np.nextafter(near, -np.inf))


def _outward(query: VnnlibQuery, value: Fraction, direction: float) -> float:
    """The nearest float32 that is not inside of value."""
    with np.errstate(over="ignore"):
        near = np.float32(float(value)) if abs(value) < 10**38 else np.float32(np.inf)
    if not np.isfinite(near):
        raise VnnlibUnsupported(query.path, None, f"a bound of {float(value):g} on an input is beyond float32")
    outside = Fraction(float(near)) >= value if direction > 0 else Fraction(float(near)) <= value
    return float(near if outside else np.nextafter(near, np.float32(direction)))


def _domain(query: VnnlibQuery, bounds: Sequence[tuple[Fraction, Fraction]]) -> tuple[Domain, Array, Array]:
    """Real variables that are network columns themselves, in float32 boxes that hold the bounds."""
    lower = np.array([_outward(query, low, -np.inf) for low, _ in bounds])
    upper = np.array([_outward(query, high, np.inf) for _, high in bounds])
    count = len(bounds)
    domain = Domain(
        integer=np.zeros(count, dtype=bool),
        lower=lower,
        upper=upper,
        offset=np.zeros(count),
        scale=np.ones(count),
        start=np.arange(count),
        one_hot=np.zeros(count, dtype=bool),
        width=np.ones(count, dtype=np.int64),
    )
    return domain, lower, upper
