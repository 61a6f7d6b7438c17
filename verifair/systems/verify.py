"""`vf.verify`: decide a query of any type."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack, overload

from verifair.checker.report import Progress
from verifair.engine.queries import IndividualFairness, KDiscrimination, PersistentBias, ProbabilityGap, Robustness
from verifair.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from encoders.arrays import Array
    from solvers.outcome import Budget
    from verifair.engine.buckets.kmax import KmaxVerdict
    from verifair.engine.gap.maximise import MaximumGap
    from verifair.engine.verdict import Verdict
    from verifair.systems.pba.rows import RowOptions


DECIDERS: dict[type, str] = {
    IndividualFairness: "verifair.engine.verify:verify",
    ProbabilityGap: "verifair.engine.gap.maximise:maximise",
    KDiscrimination: "verifair.engine.buckets.kmax:kmax",
    PersistentBias: "verifair.systems.pba.rows:verify_rows",
    Robustness: "verifair.systems.pba.rows:verify_rows",
}
"""Type of a query -> the function that decides it, imported when it is needed."""
BY_ROW = (PersistentBias, Robustness)
"""Types of queries that are asked of the rows of a table; the others are asked of a box."""


@overload
def verify(
    query: IndividualFairness, *, budget: Budget | None = None, method: str = "auto", solver: str | None = None
) -> Verdict: ...


@overload
def verify(
    query: ProbabilityGap, *, budget: Budget | None = None, tolerance: float = 1e-4, jobs: int = 1,
    progress: Callable[[float, float], None] | None = None,
) -> MaximumGap: ...


@overload
def verify(
    query: KDiscrimination, *, budget: Budget | None = None, start: Array | None = None, jobs: int = 1,
    progress: Progress | None = None,
) -> KmaxVerdict: ...


@overload
def verify(query: PersistentBias | Robustness, frame: pd.DataFrame, **options: Unpack[RowOptions]) -> pd.DataFrame: ...


def verify(query: Any, frame: pd.DataFrame | None = None, **options: Any) -> Any:
    """Decide a query of any type, within a budget.

    frame: for PersistentBias and Robustness the table whose rows are asked about; other queries take none.
    options, of all queries: budget.   IndividualFairness, PersistentBias, Robustness: method ("auto", "bnb", "lp", "milp", "smt"),
    solver (a backend's name).   ProbabilityGap: tolerance (1e-4).   KDiscrimination: start, (N, V) raw rows.   PersistentBias and
    Robustness: store (SQLite file), resume.   All but IndividualFairness: jobs (processes), progress.
    Returns: a Verdict (IndividualFairness), a MaximumGap (ProbabilityGap), a KmaxVerdict (KDiscrimination), or a table with one
    verdict per line, in the schema's words (PersistentBias, Robustness). Raises QueryError for anything else than a query, and for
    a missing or superfluous table.
    Method: branch and bound on inputs and on signs of neurons; see the functions in `DECIDERS`.
    Sound? Yes, but proofs of "lp", "milp" and "smt" are the solver's claims (`Trust.CLAIMED`).   Complete? "auto" is, within the
    budget.
    """
    home = next((home for kind, home in DECIDERS.items() if isinstance(query, kind)), None)
    if home is None:
        expected = ", ".join(kind.__name__ for kind in DECIDERS)
        raise QueryError(f"{type(query).__name__} is no query; expected one of {expected}")
    by_row = isinstance(query, BY_ROW)
    if by_row != (frame is not None):
        remedy = "use verify(query, frame)" if by_row else "drop the table"
        raise QueryError(f"{type(query).__name__} is asked {'row by row' if by_row else 'of a box'}: {remedy}")
    module, _, name = home.partition(":")
    decide = getattr(import_module(module), name)
    if not by_row:
        return decide(query, **options)
    from verifair.systems.pba.evidence import in_words

    return in_words(query, decide(query, frame, **options))
