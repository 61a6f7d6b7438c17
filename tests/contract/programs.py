"""Programs the contract suite asks of every backend, and the checks that need no second solver."""

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array
from solvers.outcome import Outcome
from solvers.program import Program

INF = np.inf


def program(
    *, lower: list[float], upper: list[float], rows: list[list[float]], row_lower: list[float], row_upper: list[float],
    objective: list[float] | None, integer: list[bool] | None = None, constant: float = 0.0,
    relus: list[tuple[int, int]] | None = None,
) -> Program:
    n = len(lower)
    return Program(
        lower=np.array(lower, float), upper=np.array(upper, float), integer=np.array(integer or [False] * n),
        rows=sp.csr_array(np.array(rows, float).reshape(len(row_lower), n)), row_lower=np.array(row_lower, float),
        row_upper=np.array(row_upper, float), objective=None if objective is None else np.array(objective, float),
        constant=constant, relus=np.array(relus or [], np.int64).reshape(-1, 2))


def random_lp(columns: int, rows: int, density: float, seed: int) -> Program:
    """Feasible and bounded, with equality, ranged and one-sided rows."""
    rng = np.random.default_rng(seed)
    pattern = sp.random_array((rows, columns), density=density, rng=rng, data_sampler=lambda size: rng.normal(size=size))
    matrix = sp.csr_array(pattern)
    activity = matrix @ rng.uniform(-1, 1, columns)
    lower, upper = np.full(rows, -INF), activity + rng.uniform(0, 1, rows)
    lower[::5] = upper[::5] - 2
    lower[1::5], upper[1::5] = activity[1::5] - 0.5, INF
    lower[2 :: 5 * 5] = upper[2 :: 5 * 5] = activity[2 :: 5 * 5]
    return Program(lower=np.full(columns, -1.0), upper=np.full(columns, 1.0), integer=np.zeros(columns, bool), rows=matrix,
                   row_lower=lower, row_upper=upper, objective=rng.normal(size=columns), constant=0.25)


def market_split(binaries: int = 50, splits: int = 6, seed: int = 0) -> Program:
    """Cornuejols and Dawande's market split with integer slacks: tiny, and out of reach of branch and bound."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 100, (splits, binaries)).astype(float)
    half = np.floor(weights.sum(axis=1) / 2)
    slack = np.full(2 * splits, 1000.0)
    return Program(
        lower=np.zeros(binaries + 2 * splits), upper=np.concatenate([np.ones(binaries), slack]),
        integer=np.ones(binaries + 2 * splits, bool), rows=sp.csr_array(np.hstack([weights, np.eye(splits), -np.eye(splits)])),
        row_lower=half, row_upper=half, objective=np.concatenate([np.zeros(binaries), np.ones(2 * splits)]))


def violation(asked: Program, values: Array) -> float:
    """Largest violation of a bound, a row or integrality."""
    activity = asked.rows @ values
    parts = [asked.lower - values, values - asked.upper, asked.row_lower - activity, activity - asked.row_upper,
             np.abs(values - np.round(values))[asked.integer]]
    return max(float(part.max(initial=0.0)) for part in parts)


def dual_objective(asked: Program, duals: Array) -> float:
    """Value of the dual point, by weak duality a bound on the optimum; -inf where a multiplier uses an infinite side."""
    objective = asked.objective if asked.objective is not None else np.zeros(asked.columns)
    reduced = objective - asked.rows.T @ duals
    return _cheapest(duals, asked.row_lower, asked.row_upper) + _cheapest(reduced, asked.lower, asked.upper) + asked.constant


def farkas_gap(asked: Program, ray: Array) -> float:
    """How far the ray's combination of rows misses the column box; positive proves that the program is infeasible."""
    ray = ray / np.abs(ray).max()
    return _cheapest(ray, asked.row_lower, asked.row_upper) + _cheapest(-(asked.rows.T @ ray), asked.lower, asked.upper)


def _cheapest(multipliers: Array, lower: Array, upper: Array) -> float:
    used = np.abs(multipliers) > 1e-7
    side = np.where(multipliers > 0, lower, upper)[used]
    return float(multipliers[used] @ side) if np.isfinite(side).all() else -INF


def sound(asked: Program, outcome: Outcome, slack: float) -> None:
    """What holds of every outcome that carries a point."""
    assert outcome.values is not None
    assert violation(asked, outcome.values) <= slack
    if asked.objective is not None:
        assert outcome.primal_bound is not None
        assert np.isclose(outcome.primal_bound, asked.objective @ outcome.values + asked.constant)
        assert outcome.dual_bound is not None
        assert outcome.dual_bound <= outcome.primal_bound + slack * (1 + abs(outcome.primal_bound))
