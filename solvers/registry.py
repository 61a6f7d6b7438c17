"""The backends by name, their capabilities, and their common entry: solve()."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from solvers import cbc, clock, cpsat, gurobi, highs, ortools, scip, z3
from solvers.outcome import (
    BackendError,
    BackendRun,
    Budget,
    Outcome,
    Termination,
    Unavailable,
    UnsupportedProgram,
    installed_version,
)
from solvers.plugins import PluginError, plugins
from solvers.program import Program

GROUP = "verifair.backends"


class Capability(Enum):
    """Programs that a backend takes (first block), its results (second), and limits of a Budget that it obeys (third, beside
    seconds)."""

    LP = "linear programs"
    PURE_INTEGER = "programs whose columns are all integer"
    MIP = "programs with integer and continuous columns"
    RELU = "ReLU equalities"
    CLAUSES = "clauses"

    DUALS = "row duals of an LP"
    RAY = "a Farkas ray of an infeasible LP"
    EXACT = "exact arithmetic"

    NODE_LIMIT = "node limit"
    MEMORY_LIMIT = "memory limit"
    THREADS = "threads"
    SEED = "seed"
    STOP_BELOW = "stop at a point that is good enough"
    STOP_ABOVE = "stop at a bound that suffices"


METHODS = {
    "lp": {Capability.LP}, "milp": {Capability.MIP}, "smt": {Capability.LP, Capability.RELU, Capability.CLAUSES},
    "mip": {Capability.PURE_INTEGER},
}
"""Method -> what a backend needs for its programs: LPs, programs with real and binary columns, ReLUs, binary columns alone."""


class _Solve(Protocol):
    def __call__(self, program: Program, *, budget: Budget, presolve: bool | None) -> Outcome: ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One solver.   package: what is imported; distribution: its name on PyPI; extra: verifair's pip extra, None for a core
    dependency; tolerance: up to which its claims hold; max_columns, max_rows: what the licence that comes with the package solves,
    None for no limit."""

    name: str
    package: str
    distribution: str
    extra: str | None
    capabilities: frozenset[Capability]
    run: _Solve
    tolerance: float
    max_columns: int | None = None
    max_rows: int | None = None

    def is_available(self) -> bool:
        """Return True if the package is installed. Imports nothing and takes no licence."""
        return find_spec(self.package) is not None

    def version(self) -> str | None:
        """Return the installed version, from the package's metadata; None where it is not installed."""
        return installed_version(self.distribution) if self.is_available() else None

    def solve(self, program: Program, *, budget: Budget, relax_integrality: bool = False, presolve: bool | None = None) -> Outcome:
        """Solve one program.

        relax_integrality: drop the integrality of every column.   presolve: on, off, or None for the backend's own choice.
        budget.seconds counts building too. What the backend cannot obey of the budget is named in the outcome's message.
        Ctrl-C while solving gives back an Outcome with LIMIT / INTERRUPTED; a second one raises KeyboardInterrupt.

        Raises Unavailable, UnsupportedProgram or LicenceLimit, all before solving.
        """
        if relax_integrality and program.mixed_integer:
            program = replace(program, integer=np.zeros(program.columns, dtype=bool))
        self._check(program)
        crossed = _crossed(program)
        if crossed is not None:
            return BackendRun(program, self.name, self.distribution, 0.0).outcome(Termination.INFEASIBLE, crossed)
        if not program.rows.has_canonical_format:
            rows = program.rows.copy()
            rows.sum_duplicates()
            program = replace(program, rows=rows)
        outcome = self.run(program, budget=budget, presolve=presolve)
        if self.name != "highs":  # which tells of its own work
            clock.spend(outcome.solve_seconds / clock.A_MULTIPLICATION)
        ignored = self._ignored(program, budget)
        if not ignored:
            return outcome
        return replace(outcome, message=f"{outcome.message} (this backend has no {' and no '.join(ignored)})".strip())

    def _check(self, program: Program) -> None:
        if not self.is_available():
            remedy = f'pip install "verifair[{self.extra}]"' if self.extra else f"pip install {self.distribution}"
            raise Unavailable(f"{self.name}: the package {self.package} is not installed; {remedy}, "
                              f"or use one of: {_names(available())}")
        if program.columns == 0:
            raise UnsupportedProgram(f"{self.name}: the program has no columns, at least one is needed")
        parts = {"lower": program.lower, "upper": program.upper, "rows": program.rows.data, "row_lower": program.row_lower,
                 "row_upper": program.row_upper, "objective": program.objective}
        for part, array in parts.items():
            if array is not None and np.isnan(array).any():
                raise UnsupportedProgram(f"{self.name}: the program's {part} contains NaN")
        needed = needs(program)
        missing = needed - self.capabilities
        if missing:
            raise UnsupportedProgram(f"{self.name}: it does not take {_texts(missing)}; installed backends that do: "
                                     f"{_names(available(needed))}")

    def _ignored(self, program: Program, budget: Budget) -> list[str]:
        """Return the parts of the budget that are set but that this backend does not support."""
        branches = needs(program) != {Capability.LP}
        searches = branches and program.objective is not None
        requested = {
            Capability.NODE_LIMIT: budget.nodes is not None and branches,
            Capability.MEMORY_LIMIT: budget.memory_mb is not None,
            Capability.THREADS: budget.threads > 1,
            Capability.SEED: budget.seed != 0,
            Capability.STOP_BELOW: budget.stop_below is not None and searches,
            Capability.STOP_ABOVE: budget.stop_above is not None and searches,
        }
        return [capability.value for capability, is_set in requested.items() if is_set and capability not in self.capabilities]


def needs(program: Program) -> frozenset[Capability]:
    """Return the capabilities a backend must have to take the program."""
    kind = Capability.LP if not program.mixed_integer else Capability.PURE_INTEGER if program.integer.all() else Capability.MIP
    extra = {Capability.RELU: len(program.relus), Capability.CLAUSES: len(program.clauses)}
    return frozenset([kind, *(capability for capability, count in extra.items() if count)])


def backends() -> tuple[Backend, ...]:
    """Return all backends of verifair, installed or not, followed by those of installed packages.

    An entry point of the group `verifair.backends` is a `Backend`, or a function that returns one.
    Raises PluginError for one that does not load, or takes the name of another.
    """
    external = []
    names = {backend.name for backend in _BACKENDS}
    for entry in plugins(GROUP):
        backend = entry if isinstance(entry, Backend) else entry()
        if not isinstance(backend, Backend) or backend.name in names:
            raise PluginError(f"{GROUP}: {backend!r:.80} is no backend with a name of its own; fix or remove its package")
        names.add(backend.name)
        external.append(backend)
    return (*_BACKENDS, *external)


def get(name: str) -> Backend:
    """Return the backend of that name. Raises BackendError with the known names otherwise."""
    for group in (lambda: _BACKENDS, backends):  # packages are searched only if the name is none of verifair's own
        for backend in group():
            if backend.name == name:
                return backend
    raise BackendError(f"no solver is called {name!r}; known are {_names(backends())}")


def available(needed: Collection[Capability] = ()) -> tuple[Backend, ...]:
    """Return the installed backends that have all the needed capabilities."""
    return tuple(backend for backend in backends() if backend.capabilities.issuperset(needed) and backend.is_available())


def solve(
    program: Program, *, backend: str, budget: Budget, relax_integrality: bool = False, presolve: bool | None = None
) -> Outcome:
    """Solve a program on the backend of that name; see Backend.solve."""
    return get(backend).solve(program, budget=budget, relax_integrality=relax_integrality, presolve=presolve)


def _crossed(program: Program) -> str | None:
    """Return the column or row with crossed bounds, or None: backends treat these as an error or not; here they are infeasible."""
    for kind, lower, upper in (("column", program.lower, program.upper), ("row", program.row_lower, program.row_upper)):
        crossed = np.flatnonzero((lower > upper) | (lower == np.inf) | (upper == -np.inf))
        if len(crossed):
            i = int(crossed[0])
            return f"{kind} {i} has lower {lower[i]} and upper {upper[i]}"
    return None


def _names(chosen: Collection[Backend]) -> str:
    return ", ".join(backend.name for backend in chosen) or "none"


def _texts(capabilities: Collection[Capability]) -> str:
    return ", ".join(sorted(capability.value for capability in capabilities))


_MIXED = frozenset({Capability.LP, Capability.PURE_INTEGER, Capability.MIP, Capability.NODE_LIMIT, Capability.SEED})
_DUAL = frozenset({Capability.DUALS, Capability.RAY})
_STOPS = frozenset({Capability.STOP_BELOW, Capability.STOP_ABOVE})

_BACKENDS = (
    Backend(name="highs", package="highspy", distribution="highspy", extra=None, run=highs.solve,
            tolerance=highs.TOLERANCE, capabilities=_MIXED | _DUAL | _STOPS | {Capability.THREADS}),
    Backend(name="gurobi", package="gurobipy", distribution="gurobipy", extra="gurobi", run=gurobi.solve,
            tolerance=gurobi.TOLERANCE, capabilities=_MIXED | _DUAL | _STOPS | {Capability.THREADS, Capability.MEMORY_LIMIT},
            max_columns=gurobi.BUNDLED_LIMIT, max_rows=gurobi.BUNDLED_LIMIT),
    Backend(name="scip", package="pyscipopt", distribution="pyscipopt", extra="scip", run=scip.solve,
            tolerance=scip.TOLERANCE, capabilities=_MIXED | _STOPS | {Capability.MEMORY_LIMIT}),
    Backend(name="ortools-glop", package="ortools", distribution="ortools", extra="ortools", run=ortools.solve_glop,
            tolerance=ortools.TOLERANCE, capabilities=frozenset({Capability.LP, Capability.DUALS, Capability.SEED})),
    Backend(name="ortools-pdlp", package="ortools", distribution="ortools", extra="ortools", run=ortools.solve_pdlp,
            tolerance=ortools.TOLERANCE,
            capabilities=_DUAL | {Capability.LP, Capability.THREADS}),
    Backend(name="ortools-cpsat", package="ortools", distribution="ortools", extra="ortools", run=cpsat.solve,
            tolerance=cpsat.TOLERANCE,
            capabilities=_STOPS | {Capability.PURE_INTEGER, Capability.EXACT, Capability.MEMORY_LIMIT, Capability.THREADS,
                                   Capability.SEED}),
    Backend(name="ortools-scip", package="ortools", distribution="ortools", extra="ortools", run=ortools.solve_scip,
            tolerance=ortools.TOLERANCE, capabilities=_MIXED | {Capability.MEMORY_LIMIT}),
    Backend(name="cbc", package="pulp", distribution="pulp", extra="pulp", run=cbc.solve,
            tolerance=cbc.TOLERANCE, capabilities=_MIXED | {Capability.DUALS}),
    Backend(name="z3", package="z3", distribution="z3-solver", extra="z3", run=z3.solve,
            tolerance=z3.TOLERANCE,
            capabilities=_STOPS | {Capability.LP, Capability.PURE_INTEGER, Capability.MIP, Capability.RELU, Capability.CLAUSES,
                                   Capability.EXACT, Capability.SEED}),
)
