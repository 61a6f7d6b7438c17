"""The one kind of program every backend reads: linear rows, integrality, ReLU equalities, clauses, a linear objective."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Clause:
    """A disjunction of linear inequalities: for some k,  rows[k] . v >= bound[k]  (strictly > where strict[k])."""

    rows: sp.csr_array
    bound: Array
    strict: Booleans


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """minimise  objective . v + constant   subject to   lower <= v <= upper,  row_lower <= rows v <= row_upper,
    v_j integer where integer[j],  v_out = max(v_in, 0) for (in, out) in relus,  and every clause.

    lower, upper: (n,) float64, infinities allowed.    integer: (n,) bool.
    rows: (m, n) scipy CSR array.                      row_lower, row_upper: (m,) float64, infinities allowed.
    relus: (k, 2) int64 pairs (in, out).               objective: (n,) float64 or None for a feasibility question.
    """

    lower: Array
    upper: Array
    integer: Booleans
    rows: sp.csr_array
    row_lower: Array
    row_upper: Array
    objective: Array | None = None
    constant: float = 0.0
    relus: Integers = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    clauses: tuple[Clause, ...] = ()

    def __post_init__(self) -> None:
        n, m = len(self.lower), len(self.row_lower)
        if len(self.upper) != n or len(self.integer) != n or self.rows.shape != (m, n) or len(self.row_upper) != m:
            raise ValueError(f"program parts do not fit: {n} columns, {m} rows, matrix {self.rows.shape}")
        if self.objective is not None and len(self.objective) != n:
            raise ValueError(f"objective has {len(self.objective)} entries for {n} columns")

    @property
    def columns(self) -> int:
        return len(self.lower)

    @property
    def costs(self) -> Array:
        """The objective's coefficients (n,), zeros for a feasibility question."""
        return np.zeros(self.columns) if self.objective is None else self.objective

    @property
    def mixed_integer(self) -> bool:
        return bool(self.integer.any())

    @property
    def objective_bounded(self) -> bool:
        """True if the objective is bounded below on the column box alone, so that the program cannot be unbounded."""
        if self.objective is None:
            return True
        lowest = np.where(self.objective > 0, self.lower, self.upper)[self.objective != 0]
        return bool(np.isfinite(lowest).all())
