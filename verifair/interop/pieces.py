"""A fairness query cut into the boxes that other verifiers can be asked about one at a time.

VNN-LIB knows real variables only. Protected values and shifts are constants of every question anyway; the other whole numbers and
categories of the box are either *enumerated*, a piece for every combination, which is exact, or *relaxed* to the interval
between them, which keeps every counterexample and may add some that are no rows. Never silently: see `pieces_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from encoders.network import Array, Booleans, Integers
from encoders.onnx.product_network import NONE
from encoders.probability import STEEPEST, gap_rows, line_of
from encoders.problem import TwinProblem
from encoders.vnnlib.writer import TwinQuery
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import goals_of, questions_of, twin_problem
from verifair.errors import QueryError
from verifair.schema.schema import Schema

ALL = "all"
"""Instead of a list of features to enumerate."""
MOST = 1000
"""Pieces of one export, unless asked for more: each becomes a file."""
LINES = 33
"""That stand for the curve of a probability gap."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """One box of one question in one direction.

    lower, upper: (V,) raw box of x, within that of `question` of the problem.   goal: 0 for a fall from x to x', 1 for a rise.
    """

    question: int
    goal: int
    lower: Array
    upper: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces:
    """All pieces of a query, over its twin problem.   relaxed: names of the features that pieces leave open although they take
    single values only.   real: names of those that are real-valued."""

    problem: TwinProblem
    pieces: tuple[Piece, ...]
    relaxed: tuple[str, ...]
    real: tuple[str, ...]


def pieces_of(query: IndividualFairness, *, enumerated: Sequence[str], relaxed: bool, limit: int = MOST) -> Pieces:
    """Cut a query into pieces. enumerated: features whose values become pieces of their own, or ["all"].

    Raises QueryError where a whole number or category that the box leaves open is neither enumerated nor to be relaxed, and
    for more than `limit` pieces.
    """
    schema = query.schema
    box, batch = questions_of(query)
    problem = twin_problem(query, batch, goals_of(query))
    free = (box[0] < box[1]) & ~batch.protected
    listed = _listed(schema, free & schema.domain.integer, enumerated)
    loose = free & schema.domain.integer & ~listed
    names = tuple(schema.features[v].name for v in np.flatnonzero(loose))
    if names and not relaxed:
        raise QueryError(_undecided(schema, loose, box))
    count = 2 * len(batch) * prod(int(n) for n in (box[1] - box[0] + 1)[listed])
    if count > limit:
        raise QueryError(
            f"{count} queries ({len(batch)} pairs of protected values, two directions, and values that are enumerated) are more "
            f"than {limit}; narrow --box, enumerate fewer features (--relaxed leaves them open), or raise --limit"
        )
    pieces = [
        Piece(question=q, goal=goal, lower=lower, upper=upper)
        for q in range(len(batch))
        for lower, upper in _cells(problem, q, listed)
        for goal in range(2)
    ]
    if not pieces:
        raise QueryError("the schema's constraints leave no row of the box to ask about; widen --box or loosen the constraints")
    real = tuple(schema.features[v].name for v in np.flatnonzero(free & ~schema.domain.integer))
    return Pieces(problem=problem, pieces=tuple(pieces), relaxed=names, real=real)


def _listed(schema: Schema, free: Booleans, enumerated: Sequence[str]) -> Booleans:
    if list(enumerated) == [ALL]:
        return free
    listed = np.zeros(len(free), dtype=bool)
    for name in enumerated:
        v = schema.index(name)
        if not schema.domain.integer[v]:
            raise QueryError(f"--enumerate {name}: it is real-valued, so its values cannot be listed; leave it out")
        listed[v] = True
    return listed & free


def _undecided(schema: Schema, loose: Booleans, box: tuple[Array, Array]) -> str:
    values = (box[1] - box[0] + 1).astype(int)
    listed = ", ".join(f"{schema.features[v].name} ({values[v]} values)" for v in np.flatnonzero(loose))
    first = schema.features[int(np.flatnonzero(loose)[0])].name
    return (
        f"VNN-LIB knows real variables only, and the box leaves whole numbers or categories open: {listed}; say what to do: "
        f"--enumerate {first} writes a query for each of its values (--enumerate all: for those of all), --relaxed leaves the rest "
        "open as intervals (then unsat still proves, but a sat has to be confirmed), --box fixes them"
    )


def _cells(problem: TwinProblem, q: int, listed: Booleans) -> Iterator[tuple[Array, Array]]:
    """Raw boxes (V,) of one question, one for each combination of the listed variables, without those that hold no two rows."""
    batch, domain = problem.batch.take([q]), problem.domain
    at = np.flatnonzero(listed)
    for values in product(*(np.arange(batch.lower[0, v], batch.upper[0, v] + 1) for v in at)):
        lower, upper = batch.lower.copy(), batch.upper.copy()
        lower[0, at] = upper[0, at] = values
        second = domain.impossible(batch.second(lower), batch.second(upper))
        if not (domain.impossible(lower, upper) | second).any():
            yield lower[0], upper[0]


def columns(pieces: Pieces, piece: Piece, rows: Array, constants: Array) -> TwinQuery:
    """A piece in network columns. rows (R, 2), constants (R,): what pairs (g, g') against its goal meet throughout."""
    problem, domain = pieces.problem, pieces.problem.domain
    batch = problem.batch.take([piece.question])
    lower, upper = domain.box(piece.lower[None], piece.upper[None])
    own = domain.columns_of(np.flatnonzero(batch.protected))
    shifted = shifted_variables(problem)
    by = np.zeros(0) if batch.offset is None else batch.offset[0, shifted]
    open_blocks = np.flatnonzero(domain.one_hot & (piece.lower < piece.upper))
    return TwinQuery(
        lower=lower[0], upper=upper[0], own=own, own_value=domain.encode(batch.second(piece.lower[None]))[0, own],
        shift=domain.start[shifted] if len(shifted) else NONE, shift_value=by, margin=problem.margin, rows=rows,
        constants=constants, blocks=[domain.columns_of(np.array([v])) for v in open_blocks],
    )


def shifted_variables(problem: TwinProblem) -> Integers:
    """Variables in which x' is shifted in some question: unscaled numbers, so that a shift is the same in their column."""
    return NONE if problem.batch.offset is None else np.flatnonzero(problem.batch.offset.any(axis=0))


def against(query: IndividualFairness, goal: int) -> tuple[Array, Array]:
    """(R, 2), (R,): every pair (g, g') against a goal of the query meets  rows @ (g, g') > constants  throughout.

    A flip: exactly those pairs. A gap: those and a few more, since lines under the curve stand for the curve; slopes are float32
    numbers, so that a product network can hold them.
    Sound? yes: a pair against the goal is never left out.  Complete? for a flip.
    """
    if query.epsilon is None:
        rows = np.array([[1.0, 0.0], [0.0, -1.0]])
        return (rows if goal == 0 else -rows), np.zeros(2)
    met, constants = gap_rows(query.epsilon, rise=False, count=LINES)
    lines = [(1.0, 0.0, constants[0]), (0.0, -1.0, constants[1])]
    slopes = sorted({float(np.float32(m)) for m in met[2:, 1]})
    lines += [(1.0, -m, line_of(query.epsilon, m)) for m in slopes if 1 / STEEPEST <= m <= STEEPEST]
    table = np.array(lines)
    return (table[:, :2] if goal == 0 else table[:, 1::-1]).copy(), table[:, 2].copy()
