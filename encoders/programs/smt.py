"""The exact formulation: linear real and integer arithmetic with the stored weights, for a solver over the rationals.

    a_k - W_k y_{k-1} = b_k,    y_k = max(a_k, 0)    both copies, every layer (`twin_full`: no coefficient is rounded)
    y_k = a_k where l_k >= 0,   y_k = 0 where u_k <= 0   (rigorous bounds: fewer cases, same solutions)
    for every row of the goal:   row . (g, g') + constant <= 0      (< 0 for a goal that is not strict)
    x leaves every forbidden box through one of its exits   (`exits`, both copies)

The rows together say that *no* row of the goal holds, the negation of safe(x): a solution is a witness, none is a proof. For a
probability gap that only outlines the negation: a solution whose gap is small enough calls for a further row (`goal_rows.refined`).
Real inputs range over [float32(lower), float32(upper)], and so does every real of that interval, whether a float32 or not;
whole inputs with a scale range over a small interval around each lattice point (`twin_full._lattice`). Both only add points.

Sound? UNSAT is a proof (of the solver's, CLAIMED); a SAT point must be decoded and re-evaluated exactly.
Complete? for inputs that the network takes unscaled, and one-hot ones; else up to float32 rounding of the inputs, which matters
when the margin comes within about 1e-7 of 0 only.
Reference: Katz et al., Reluplex, CAV 2017 (the theory); Z3 as the oracle, for tiny networks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from encoders.network import Array
from encoders.problem import Goal
from encoders.programs.rows import RowBlock
from encoders.programs.twin import Encoding
from encoders.programs.twin_box import TwinBox, exit_clauses
from encoders.programs.twin_full import FullTwin
from solvers.program import Clause, Program


def smt(box: TwinBox) -> Encoding:
    """The exact twin of one box, no goal asked yet (see `violated`)."""
    full = FullTwin.of(box, exact=True)
    rows, relus = [], []
    for layer in full.neurons:
        rows.append(RowBlock.of([layer.output[layer.active], layer.input[layer.active]], [1.0, -1.0], 0.0, 0.0))
        open_ = ~layer.active & ~layer.inactive
        relus.append(np.stack([layer.input[open_], layer.output[open_]], axis=1))
    encoding = full.encoding(rows, np.concatenate([np.empty((0, 2), dtype=np.int64), *relus]))
    clauses = exit_clauses(full.inputs, full.counts, encoding.program.columns)
    return replace(encoding, program=replace(encoding.program, clauses=clauses))


def violated(encoding: Encoding, goal: Goal) -> Program:
    """Is there a point where no row of the goal holds? One clause of one inequality for each row: strictness needs clauses."""
    clauses = tuple(
        _not_met(row, constant, goal.strict, encoding) for row, constant in zip(goal.rows, goal.constants, strict=True)
    )
    return replace(encoding.program, clauses=(*encoding.program.clauses, *clauses))


def _not_met(row: Array, constant: float, strict: bool, encoding: Encoding) -> Clause:
    """-row . (g, g') >= constant, or > where equality would meet the row. (The full twin's margins are single columns: exact.)"""
    return Clause(rows=sp.csr_array((-row @ encoding.margins)[None, :]), bound=np.array([constant]), strict=np.array([not strict]))
