"""Cases of a VNN-LIB query as problems of the engine: goals that hold throughout exactly when the case is empty.

There are two ways. *Twin*: two equal networks over shared inputs, or with constants in some, and constraints on one margin of both.
This is a twin problem like fairness queries, with their bounds on differences. *Scalar*: everything else becomes one network with
one output (`encoders.vnnlib.scalar_network`), and the goal is that the output is positive. If only constraints on inputs prevent
the first way, the case is tried without them (a proof there is a proof of the case), and with blocks of inputs that sum up to 1 as
categories (a point found there may be a witness), before the second way.

Bounds that are no float32 numbers are rounded outwards and constants towards unsafe, so that a proof covers at least the
query; a witness is moved into the exact bounds and decided there (`verifair.interop.witness`).
Sound? yes, for proofs.  Complete? except for constraints that are met on their boundary alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

import numpy as np

from encoders.arrays import Array, Integers
from encoders.domain import Domain
from encoders.network import Network
from encoders.problem import Goal, TwinBatch, TwinProblem
from encoders.vnnlib.cases import Conjunction
from encoders.vnnlib.reader import Atom, VnnlibQuery, VnnlibUnsupported
from encoders.vnnlib.scalar_network import scalar_network
from verifair.schema.feature import LARGEST

MAX_LEFT = 4096
"""Constraints of one case: their maximum becomes dense layers as wide as they are many."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseProblem:
    """A problem of one question and one goal, and (V,) the network column of each free input u of the case: k for column k of x,
    -1 - k for column k of x'.   way: its name.   proves: True if a proof of it is one of the case."""

    problem: TwinProblem
    column: Integers
    way: str
    proves: bool

    def free_inputs(self, raw: Array) -> list[float]:
        """Return the free inputs u (V,) of a raw point (V,)."""
        domain = self.problem.domain
        first, second = domain.encode(raw[None])[0], domain.encode(self.problem.batch.second(raw[None]))[0]
        return [float(first[k] if k >= 0 else second[-1 - k]) for k in self.column.tolist()]


def case_problems(query: VnnlibQuery, case: Conjunction, networks: Sequence[Network]) -> Iterator[CaseProblem]:
    """Yield the problems of a case, to try in turn until one decides it; the last one is equivalent to the case.

    Raises VnnlibUnsupported for coefficients that float64 cannot hold, and for more than MAX_LEFT constraints.
    """
    if len(case.left) > MAX_LEFT:
        message = f"{len(case.left):,} constraints have to hold together, beside bounds on inputs, and {MAX_LEFT:,} are the most"
        raise VnnlibUnsupported(query.path, None, f"{message}; ask in several files")
    outputs = tuple(atom for atom in case.left if any(variable.side == "output" for variable, _ in atom.terms))
    twin = _twin(query, replace(case, left=outputs), networks)
    if twin is not None:
        yield twin
        if len(outputs) == len(case.left):
            return
        blocks = _blocks(case)
        if blocks:
            yield replace(twin, problem=_with_categories(twin.problem, blocks), way="categories", proves=False)
    yield _scalar(query, case, networks)


def _scalar(query: VnnlibQuery, case: Conjunction, networks: Sequence[Network]) -> CaseProblem:
    bounds = list(case.bounds)
    own, shift = [], []
    for j, network in enumerate(networks):
        entries = [case.place[j, i] for i in range(network.inputs)]
        own.append(np.array([k for k, _ in entries], dtype=np.int64))
        shift_columns = np.full(network.inputs, -1, dtype=np.int64)
        for i, (_, offset) in enumerate(entries):
            if offset:
                shift_columns[i] = len(bounds)
                bounds.append((offset, offset))
        shift.append(shift_columns)
    outputs = np.cumsum([0, *(network.outputs for network in networks)])
    mentioned = sorted({(v.network, v.index) for atom in case.left for v, _ in atom.terms if v.side == "input"})
    passed = sorted({case.place[key][0] for key in mentioned})
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
    if not rows:  # no constraint is left: every point of the box is a witness
        rows, constants = [np.zeros(int(outputs[-1]) + len(passed))], [0.0]
    network = scalar_network(networks, own, shift, np.array(passed, dtype=np.int64), np.array(rows), np.array(constants))
    strict = not all(atom.sign == "lt" for atom in case.left) or not case.left
    goal = Goal(rows=np.array([[1.0, 0.0]]), strict=strict)
    domain, lower, upper = _domain(query, bounds)
    batch = TwinBatch(lower=lower[None], upper=upper[None], prime=lower[None], protected=np.zeros(len(lower), dtype=bool))
    problem = TwinProblem(network=network, domain=domain, batch=batch, margin=np.ones(1), goals=(goal,))
    return CaseProblem(problem=problem, column=np.arange(len(case.bounds)), way="scalar", proves=True)


def _twin(query: VnnlibQuery, case: Conjunction, networks: Sequence[Network]) -> CaseProblem | None:
    """Return the twin problem of a case, or None if it has none."""
    if len(networks) != 2 or networks[0] is not networks[1] or any(offset for _, offset in case.place.values()):
        return None
    if not case.left or any(variable.side == "input" for atom in case.left for variable, _ in atom.terms):
        return None
    n = networks[0].inputs
    first = np.array([case.place[0, i][0] for i in range(n)])
    second = np.array([case.place[1, i][0] for i in range(n)])
    differs = first != second
    for k in {*first[differs].tolist(), *second[differs].tolist()}:  # constants, and such as inputs can hold
        low, high = case.bounds[k]
        if low != high or Fraction(float(np.float32(float(low)))) != low:
            return None
    factors = _margin(case.left, networks[0].outputs)
    if factors is None:
        return None
    margin, pairs = factors
    rows, constants, strict = [], [], []
    for (atom, factor), pair in zip(_inequalities(case.left), pairs, strict=True):
        numbers, low_constant = _floats(query, list(pair), factor * atom.constant, atom.line)
        rows.append(numbers)
        constants.append(low_constant)
        strict.append(atom.sign != "lt")
    mean = [(Fraction(a) + Fraction(b)) / 2 for a, b in zip(rows[0].tolist(), rows[-1].tolist(), strict=True)]
    if len(rows) == 2 and all(map(_is_float, mean)):  # follows from the two, and closes boxes in which neither holds throughout
        rows.append(np.array([float(value) for value in mean]))
        constants.append(float(np.nextafter((constants[0] + constants[1]) / 2, -np.inf)) if any(constants) else 0.0)
        strict.append(all(strict))
    goal = Goal(rows=np.array(rows), constant=np.array(constants), strict=np.array(strict))
    domain, lower, upper = _domain(query, [case.bounds[k] for k in first])
    prime = np.where(differs, [float(case.bounds[k][0]) for k in second], lower)
    batch = TwinBatch(lower=lower[None], upper=upper[None], prime=prime[None], protected=differs)
    problem = TwinProblem(network=networks[0], domain=domain, batch=batch, margin=margin, goals=(goal,))
    position = np.zeros(len(case.bounds), dtype=np.int64)
    position[first] = np.arange(n)
    position[second[differs]] = -1 - np.flatnonzero(differs)  # constants of the second network alone
    return CaseProblem(problem=problem, column=position, way="twin", proves=True)


def _blocks(case: Conjunction) -> list[tuple[int, int]]:
    """Return (first column, width) of neighbouring inputs of the first network in [0, 1] that must sum up to 1."""
    blocks: list[tuple[int, int]] = []
    for atom in case.left:
        columns = sorted(variable.index for variable, _ in atom.terms)
        is_sum = all(v.network == 0 and v.side == "input" and value + atom.constant == 0 for v, value in atom.terms)
        is_contiguous = columns[-1] - columns[0] == len(columns) - 1
        if not (is_sum and is_contiguous and atom.sign == "eq" and len(columns) > 1):
            continue
        unit = (Fraction(0), Fraction(1))
        is_free = all(case.bounds[case.place[0, i][0]] == unit and case.place[0, i] == case.place.get((1, i)) for i in columns)
        if is_free and not any(start <= columns[-1] and columns[0] < start + width for start, width in blocks):
            blocks.append((columns[0], len(columns)))
    return sorted(blocks)


def _with_categories(problem: TwinProblem, blocks: Sequence[tuple[int, int]]) -> TwinProblem:
    """Return the same question with blocks of columns as one-hot variables, which covers only some of its points."""
    dropped = [start + k for start, width in blocks for k in range(1, width)]
    keep = np.setdiff1d(np.arange(problem.domain.columns), dropped)
    width = np.ones(len(keep), dtype=np.int64)
    width[np.searchsorted(keep, [start for start, _ in blocks])] = [count for _, count in blocks]
    one_hot = width > 1
    domain, batch = problem.domain, problem.batch
    upper = np.where(one_hot, width - 1.0, batch.upper[:, keep])
    return replace(
        problem,
        domain=Domain(
            integer=one_hot, lower=domain.lower[keep], upper=upper[0], offset=np.zeros(len(keep)), scale=np.ones(len(keep)),
            start=np.cumsum(width) - width, one_hot=one_hot, width=width,
        ),
        batch=TwinBatch(lower=batch.lower[:, keep], upper=upper, prime=batch.prime[:, keep], protected=batch.protected[keep]),
    )


def _inequalities(left: Sequence[Atom]) -> list[tuple[Atom, int]]:
    """Return atoms with the factors, 1 or -1, with which they say  terms + constant <= 0: an equation occurs twice."""
    return [(atom, factor) for atom in left for factor in ((1, -1) if atom.sign == "eq" else (1,))]


def _margin(left: Sequence[Atom], outputs: int) -> tuple[Array, list[tuple[Fraction, Fraction]]] | None:
    """Return weights m such that every constraint is about m . f(x) and m . f(x') alone, and its two factors; None if there are
    none."""
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
    """Return coefficients that are exact floats, scaled up if necessary, and the constant rounded down, towards unsafe."""
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
    """Return the largest float64 that is not above value."""
    try:
        nearest = float(value)
    except OverflowError:
        return -np.inf
    return nearest if Fraction(nearest) <= value else float(np.nextafter(nearest, -np.inf))


def _outward(query: VnnlibQuery, values: Sequence[Fraction], direction: float) -> Array:
    """Return the nearest float32 numbers that are not inside of values."""
    too_large = next((value for value in values if abs(value) > LARGEST), None)
    if too_large is not None:
        text = f"{float(too_large):g}" if abs(too_large) < 10**308 else f"{'-' * (too_large < 0)}1e308 and beyond"
        raise VnnlibUnsupported(query.path, None, f"a bound of {text} on an input is beyond float32")
    nearest, is_inside = np.array([float(value) for value in values]).astype(np.float32), []
    for value, rounded in zip(values, nearest.tolist(), strict=True):
        numerator, denominator = rounded.as_integer_ratio()
        sign = numerator * value.denominator - value.numerator * denominator  # has the sign of rounded - value
        is_inside.append(sign < 0 if direction > 0 else sign > 0)
    with np.errstate(over="ignore"):  # overflows beyond the largest number are not used
        return np.where(is_inside, np.nextafter(nearest, np.float32(direction)), nearest).astype(np.float64)


def _domain(query: VnnlibQuery, bounds: Sequence[tuple[Fraction, Fraction]]) -> tuple[Domain, Array, Array]:
    """Return real variables that are the network's columns, with float32 boxes that contain the bounds."""
    lower = _outward(query, [low for low, _ in bounds], -np.inf)
    upper = _outward(query, [high for _, high in bounds], np.inf)
    count = len(bounds)
    domain = Domain(
        integer=np.zeros(count, dtype=bool), lower=lower, upper=upper, offset=np.zeros(count), scale=np.ones(count),
        start=np.arange(count), one_hot=np.zeros(count, dtype=bool), width=np.ones(count, dtype=np.int64),
    )
    return domain, lower, upper
