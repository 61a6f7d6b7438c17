"""What a competitor says of one question, before anybody believes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from solvers.outcome import Limit, Outcome, Termination

Said = Literal["proved", "violated", "optimal", "unknown"]
LICENCE, SKIPPED, DISAGREEMENT = "licence", "skipped", "disagreement"
"""Why nothing was decided, beside `verifair.engine.verdict.Reason`: the licence is too small for the program; larger questions of
a family were not asked any more; the engine itself met a contradiction and stopped."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """status: proved and violated for a decision, optimal for the rest.   reason: why unknown, None otherwise.

    trust: "checked" for a proof that `verifair check` re-proves (and bounds with outward rounding), "exact" for a counterexample,
    or a cost, that was evaluated exactly, "claimed" for what only a solver says, "" where nothing was decided.
    lower, upper: of the quantity asked about (the goal's best row, the LP's optimum, the largest cost); infinite where not known.
    comparable: whether `lower` and `upper` are about the same number for every method (a decision about several rows is not).
    solve_seconds: within the solver, None where no solver was asked.   version: of the backend.
    """

    status: Said
    reason: str | None
    trust: str
    lower: float = -np.inf
    upper: float = np.inf
    comparable: bool = False
    solve_seconds: float | None = None
    version: str = ""
    engine: str = ""
    note: str = ""

    @property
    def decided(self) -> bool:
        return self.status != "unknown"


def unknown(reason: str, note: str = "") -> Answered:
    """Nothing was decided, nothing is known."""
    return Answered(status="unknown", reason=reason, trust="", note=note)


def why(outcome: Outcome) -> str:
    """The reason, in the words of `verifair.engine.verdict.Reason`, that a solver's run for an optimum did not end with one."""
    match outcome.termination:
        case Termination.LIMIT:
            match outcome.limit:
                case Limit.TIME:
                    return "time"
                case Limit.NODES | Limit.ITERATIONS:
                    return "nodes"
                case Limit.MEMORY:
                    return "memory"
                case Limit.INTERRUPTED:
                    return "interrupted"
                case _:
                    return "solver-error"
        case Termination.ERROR | Termination.OPTIMAL | Termination.SATISFIED:
            return "solver-error"
        case _:  # infeasible or unbounded, where an optimum exists
            return "numerical"
