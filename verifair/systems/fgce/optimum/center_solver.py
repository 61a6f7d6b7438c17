"""The paper's MIP for the k-center on any backend, to compare with: what it says is optimal is CLAIMED."""

from __future__ import annotations

from encoders.programs.k_center import k_center
from solvers.outcome import Budget, Termination
from solvers.registry import solve
from verifair.errors import QueryError
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import Centers, needed


def by_solver(
    instance: Instance, k: int, coverage: float = 1.0, *, backend: str = "highs", budget: Budget | None = None
) -> Centers:
    """The paper's MIP (eq. 1-6) on a backend: the answer is one of the costs, that nothing is better is the solver's claim.

    Raises QueryError where the solver claims that there is no solution, or found none in time.
    """
    program = k_center(instance.costs(), k=k, coverage=needed(instance, coverage), ranked=True)
    outcome = solve(program.program, backend=backend, budget=budget or Budget())
    found = None if outcome.values is None else program.decode(outcome.values)
    if found is None:
        stopped = f"{outcome.termination.value} without a solution for k = {k}, coverage {coverage:g}"
        raise QueryError(f"{backend}: {stopped}; method exact says which k would do. {outcome.message}".strip())
    lower = found.cost if outcome.termination is Termination.OPTIMAL else program.lower_bound(outcome.dual_bound)
    chosen = instance.columns[found.chosen]
    return Centers(chosen=chosen, cost=found.cost, lower=min(lower, found.cost), proved=False, steps=1, outcome=outcome)
