r"""The paper's MIP of coverage-constrained FGCE: at most k counterfactuals that cover n factuals at the least largest cost.

With r_{x x'} = 1 where candidate x' covers factual x, and u_{x'} = 1 where x' is chosen (FGCE, eq. 1-6),

    \begin{align}
    \text{minimise}\quad   & d \\
    \text{subject to}\quad & \sum_{x'} cost(x, x')\, r_{x x'} \le d        & \forall x \in X               \tag{1} \\
                           & \sum_{x'} r_{x x'} \le 1                      & \forall x \in X               \tag{2} \\
                           & \sum_{x'} u_{x'} \le k                                                        \tag{3} \\
                           & r_{x x'} \le u_{x'}                           & \forall x \in X,\ x' \in X'   \tag{4} \\
                           & \sum_x \sum_{x'} r_{x x'} \ge n                                               \tag{5} \\
                           & u_{x'},\ r_{x x'} \in \{0, 1\}                & \forall x \in X,\ x' \in X'   \tag{6}
    \end{align}

where r exists for feasible pairs only, n = c |X|, and for n = |X| (2) is an equality and (5) is left out. Columns: d, then u for
the candidates that cover some factual, then r for the feasible pairs, row by row.

`ranked` replaces every cost by its rank among the distinct ones, 0, 1, 2, ..., and d by an integer: the same solutions in the same
order, so the same optimum, in a pure integer program. Distinct costs are then at least 1 apart whatever the backend's tolerance;
with the costs themselves a solver may take one for another that is within 1e-6 of it.

Sound? Complete?  Both, up to the solver's tolerances: optimality is CLAIMED. The cost of a decoded point is one of the given costs,
not the solver's float, and can be checked against them.
Reference: FGCE, section III-B (coverage-constrained FGCE), equations 1-6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Integers
from solvers.program import Program

TOLERANCE = 1e-6
"""The tolerance of a solver's claim about d; a bound is lowered by it before it is raised to the next existing cost."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CoveringCenters:
    """A set of counterfactuals and the factuals that they cover.

    chosen: (s,) ascending columns of the cost matrix, s <= k.
    assignment: (F,) for each factual its cheapest chosen column, -1 where that costs more than `cost` or is not feasible.
    cost: the largest cost of the assignment, the least at which these columns cover as many factuals as asked.
    """

    chosen: Integers
    assignment: Integers
    cost: float

    @property
    def covered(self) -> int:
        """Factuals covered, at least as many as asked: more where several share the largest cost."""
        return int((self.assignment >= 0).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class KCenter:
    """The program, with the decoding of its answers.

    cost: (F, C) as given.   k: at most so many columns.   coverage: at least so many factuals.
    candidates: (U,) columns of cost that have a u: those that are feasible for some factual.
    distinct: (R,) the different finite costs, ascending.   ranked: True if the program uses ranks in `distinct` as costs.
    """

    program: Program
    cost: Array
    k: int
    coverage: int
    candidates: Integers
    distinct: Array
    ranked: bool

    def decode(self, values: Array) -> CoveringCenters | None:
        """Return a solver's point (n,) as centers; None if its choice, rounded, is no solution: more than k, or too few covered.

        Only u is read. Each factual goes to its cheapest chosen column, which is never worse than the solver's r.
        """
        chosen = self.candidates[values[1 : 1 + len(self.candidates)] > 0.5]
        return centers(self.cost, chosen, self.coverage) if len(chosen) <= self.k else None

    def lower_bound(self, dual_bound: float | None) -> float:
        """Return the least cost that is consistent with the solver's bound on the objective: claimed, as the bound is."""
        bound = 0.0 if dual_bound is None else dual_bound - TOLERANCE
        first = max(int(np.ceil(bound)), 0) if self.ranked else int(np.searchsorted(self.distinct, bound))
        return float(self.distinct[first]) if first < len(self.distinct) else np.inf


def centers(cost: Array, chosen: Integers, coverage: int) -> CoveringCenters | None:
    """Return the cheapest way to cover `coverage` factuals of cost (F, C) with the chosen columns; None where they cannot."""
    if not len(chosen):
        return None
    nearest = chosen[np.argmin(cost[:, chosen], axis=1)]
    costs = cost[np.arange(len(cost)), nearest]
    largest = float(np.partition(costs, coverage - 1)[coverage - 1])
    if largest == np.inf:
        return None
    return CoveringCenters(chosen=chosen, assignment=np.where(costs <= largest, nearest, -1), cost=largest)


def k_center(cost: Array, *, k: int, coverage: int, ranked: bool = False) -> KCenter:
    """Return the program for cost (F, C) float64, np.inf where the column is no feasible counterfactual of the row.

    coverage: how many factuals are to be covered, 1 to F. A factual that no column covers makes full coverage infeasible.
    Raises ValueError for a cost that is NaN or negative, and for k or coverage out of range.
    """
    factuals = len(cost)
    if np.isnan(cost).any() or (cost < 0).any():
        raise ValueError("k-center: costs are numbers >= 0, np.inf where a pair is not feasible")
    if k < 1:
        raise ValueError(f"k-center: k = {k}, expected at least 1")
    if not 1 <= coverage <= factuals:
        raise ValueError(f"k-center: coverage = {coverage}, expected 1 to {factuals}, the number of factuals")
    row, column = np.nonzero(np.isfinite(cost))
    candidates, u = np.unique(column, return_inverse=True)
    distinct, rank = np.unique(cost[row, column], return_inverse=True)
    paid = rank.astype(np.float64) if ranked else distinct[rank]

    width = 1 + len(candidates) + len(row)
    upper = np.ones(width)
    upper[0] = paid.max(initial=0.0)
    integer = np.ones(width, dtype=bool)
    integer[0] = ranked
    objective = np.zeros(width)
    objective[0] = 1.0
    rows, row_lower, row_upper = _rows(row, 1 + u, paid, 1 + len(candidates), factuals, k, coverage)
    program = Program(lower=np.zeros(width), upper=upper, integer=integer, rows=rows, row_lower=row_lower, row_upper=row_upper,
                      objective=objective)
    return KCenter(program=program, cost=cost, k=k, coverage=coverage, candidates=candidates, distinct=distinct, ranked=ranked)


def _rows(
    row: Integers, u: Integers, paid: Array, first: int, factuals: int, k: int, coverage: int
) -> tuple[sp.csr_array, Array, Array]:
    """Return constraints (1) to (5), with sides. Pair p is of factual row[p] and column u[p], costs paid[p], r is first + p."""
    pairs = np.arange(len(row))
    r = first + pairs
    width = first + len(row)
    full = coverage == factuals
    ones = np.ones(len(row))
    costs = sp.hstack([sp.csr_array(np.full((factuals, 1), -1.0)), sp.csr_array((paid, (row, r - 1)), shape=(factuals, width - 1))])
    assigned = sp.csr_array((ones, (row, r)), shape=(factuals, width))
    size = sp.csr_array((np.ones(first - 1), (np.zeros(first - 1, dtype=np.int64), np.arange(1, first))), shape=(1, width))
    linked = sp.csr_array((np.concatenate([ones, -ones]), (np.tile(pairs, 2), np.concatenate([r, u]))), shape=(len(row), width))
    blocks = [costs, assigned, size, linked]
    lower = [np.full(factuals, -np.inf), np.full(factuals, 1.0 if full else -np.inf), np.array([-np.inf]),
             np.full(len(row), -np.inf)]
    upper = [np.zeros(factuals), np.ones(factuals), np.array([float(k)]), np.zeros(len(row))]
    if not full:
        blocks.append(sp.csr_array((ones, (np.zeros(len(row), dtype=np.int64), r)), shape=(1, width)))
        lower.append(np.array([float(coverage)]))
        upper.append(np.array([np.inf]))
    rows = sp.csr_array(sp.vstack(blocks, format="csr"))
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows, np.concatenate(lower), np.concatenate(upper)
