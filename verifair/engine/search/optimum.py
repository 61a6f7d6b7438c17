"""The exact minimum of a row over each box, as a bracket: a point above, a certified bound below.

Best-first in spirit, depth-first in memory: a box is dropped once its bound is within `tolerance` of the best point met.
Sound? yes: `lower` is the least rigorous bound of the boxes that were dropped or left.  Complete? yes, to `tolerance`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from encoders.arrays import Array
from encoders.bounds.difference import goal_bounds
from encoders.bounds.twin import Twin
from encoders.problem import TwinProblem
from solvers import clock
from verifair.engine.search.box_search import STEP_BOXES
from verifair.engine.search.boxes import Nodes, corner, divide, roots, rows_at, widest
from verifair.engine.search.subdivision import Open, subdivide
from verifair.errors import QueryError


@dataclass(frozen=True, kw_only=True, eq=False)
class RowMinimum:
    """lower <= min <= upper, (Q,) each; point: (Q, V) raw points with value `upper` (float64 evaluation)."""

    lower: Array
    upper: Array
    point: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _KnownNodes(Nodes):
    """known: (N,) lower bounds."""

    known: Array


def minimum(problem: TwinProblem, *, tolerance: float = 1e-6, seconds: float = np.inf) -> RowMinimum:
    """Bracket the least value of the problem's single row over each box, to `tolerance` unless time runs out.

    Raises QueryError when the problem has more than one row.
    """
    if len(problem.rows) != 1:
        raise QueryError(f"the minimum of one row is asked for, found {len(problem.rows)} rows")
    twin, deadline = Twin.of(problem), clock.now() + seconds
    count = len(problem.batch)
    upper, lower = np.full(count, np.inf), np.full(count, np.inf)
    point = np.full((count, problem.domain.variables), np.nan)
    start, open_ = roots(twin), Open[_KnownNodes](STEP_BOXES)
    open_.add(_KnownNodes(**vars(start), known=np.full(count, -np.inf)))

    def meet(nodes: Nodes, raw: Array) -> None:
        values = twin.evaluate(nodes.question, twin.local.encode(raw)) @ problem.rows[0] + problem.constants[0]
        order = np.argsort(-values)  # of several points of one question, the least is written last
        improved = order[values[order] < upper[nodes.question[order]]]
        upper[nodes.question[improved]] = values[improved]
        point[nodes.question[improved]] = rows_at(twin, nodes.question[improved], raw[improved])

    def step(nodes: _KnownNodes) -> None:
        meet(nodes, twin.local.middle(nodes.lower, nodes.upper))
        low, high = twin.local.box(nodes.lower, nodes.upper)
        bounds = goal_bounds(twin, nodes.question, low, high, np.ones((len(nodes), 1)))
        bound = np.maximum(nodes.known, bounds.lower[:, 0])  # the minimum only rises under splitting, though bounds may fall
        meet(nodes, corner(twin, nodes, bounds.slope[:, 0]))
        slack = np.maximum(tolerance, 4 * twin.error[-1][nodes.question, 0])  # no bound gets closer than rounding lets it
        closed = (bound >= upper[nodes.question] - slack) | ~twin.local.divisible(nodes.lower, nodes.upper).any(axis=1)
        np.minimum.at(lower, nodes.question[closed], bound[closed])
        rest = replace(nodes, known=bound).take(~closed)
        if len(rest):
            variable = widest(twin, rest, bounds.score[~closed])
            cut = twin.local.middle(rest.lower, rest.upper)[np.arange(len(rest)), variable]
            open_.add(divide(twin, rest, variable, cut, rest.ids))

    subdivide(open_, step, ended=lambda: clock.now() > deadline, deadline=deadline)
    for nodes in open_.batches:
        np.minimum.at(lower, nodes.question, nodes.known)
    return RowMinimum(lower=lower, upper=upper, point=point)
