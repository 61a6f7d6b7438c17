"""The competitors: every method with every installed backend that takes its programs, and other verifiers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from encoders.problem import TwinProblem
from solvers import registry
from solvers.outcome import Budget, installed_version
from solvers.program import Program
from verifair.bench import methods
from verifair.bench.peers import fairify, marabou
from verifair.bench.peers.process import Tool
from verifair.bench.questions import (
    CenterQuestion,
    DecisionQuestion,
    FileQuestion,
    MinimumQuestion,
    Question,
    RelaxationQuestion,
)
from verifair.bench.records import Reply
from verifair.engine.search.ready import ready
from verifair.errors import QueryError

DEFAULTS = {"decision": "auto", "relaxation": "lp:highs", "minimum": "bnb", "center": "exact"}
"""Kind of question -> who answers it when the user chooses nothing."""
BACKENDS = {"lp": "highs", "milp": "highs", "smt": "z3", "mip": "highs"}
"""Method -> the backend it asks when the user names none."""


class Peer(Protocol):
    """A module of `peers`."""

    def takes(self, problem: TwinProblem) -> bool: ...

    def decide(self, question: DecisionQuestion, budget: Budget) -> Reply: ...


PEERS: dict[str, Peer] = {"marabou": marabou, "fairify": fairify}


@dataclass(frozen=True, kw_only=True)
class Competitor:
    """A method, and the backend that it calls (None: none).

    package: must be importable.   remedy: how to install it.   version: of the backend, "" where there is none.
    tool: another verifier that is a process; `method` is its name then.
    """

    method: str
    solver: str | None = None
    package: str | None = None
    remedy: str = ""
    version: str = ""
    tool: Tool | None = None

    @property
    def name(self) -> str:
        return self.method if self.solver is None else f"{self.method}:{self.solver}"

    @property
    def available(self) -> bool:
        return self.package is None or find_spec(self.package) is not None

    def takes(self, question: Question) -> bool:
        """Return True if it answers questions of this kind."""
        if self.tool is not None:
            return self.tool.takes(question)
        match question:
            case FileQuestion():
                return self.method in ("auto", "bnb", "milp")
            case DecisionQuestion():
                if self.method in PEERS:
                    return PEERS[self.method].takes(question.problem)
                return self.method in ("auto", "bnb", *question.problem.network.programs)
            case RelaxationQuestion():
                return self.method == "lp"
            case MinimumQuestion():
                return self.method in ("bnb", "milp")
            case CenterQuestion():
                return self.method in ("exact", "mip") or (self.method == "components" and question.coverage == 1)

    def ask(self, question: Question, budget: Budget) -> Reply:
        """Return its answer. The caller records errors."""
        if self.tool is not None:
            return self.tool.decide(question, budget)
        match question:
            case FileQuestion():
                return methods.decide_file(question, self.method, self.solver, budget)
            case DecisionQuestion():
                if self.method in PEERS:
                    return PEERS[self.method].decide(question, budget)
                return methods.decide(question, self.method, self.solver, budget)
            case RelaxationQuestion():
                assert self.solver is not None
                return methods.relax(question, self.solver, budget)
            case MinimumQuestion():
                return methods.least(question, self.method, self.solver, budget)
            case CenterQuestion():
                return methods.cover(question, self.method, self.solver, budget)

    def startup(self, question: Question) -> float:
        """Return the largest number of seconds that starting other programs takes in a run; it does not count as its time."""
        return 0.0 if self.tool is None else self.tool.startup * self.tool.queries(question)

    def warm_up(self, question: Question) -> None:
        """Load the backend's package and take its licence by solving a trivial program, and load the compiled loops for trees,
        before anything is measured."""
        if self.tool is not None:
            return
        if isinstance(question, DecisionQuestion):
            ready(question.problem.network)
        if self.method == "marabou":
            marabou.load()
        else:
            ones = np.ones(1)
            backend = self.solver or "highs"  # the engine and the exact k-center may call it too
            pure = backend == "ortools-cpsat"
            program = Program(
                lower=np.zeros(1), upper=ones, integer=np.array([pure]), rows=sp.csr_array(np.ones((1, 1))), row_lower=np.zeros(1),
                row_upper=ones, objective=ones,
            )
            registry.solve(program, backend=backend, budget=Budget(seconds=10))


def competitors() -> list[Competitor]:
    """Return all competitors, installed or not, in a fixed order."""
    return [*_own_competitors(), *_peers()]


def _own_competitors() -> Iterator[Competitor]:
    yield Competitor(method="auto")
    yield Competitor(method="bnb")
    for method, capabilities in registry.METHODS.items():
        if method == "mip":
            yield Competitor(method="exact")
            yield Competitor(method="components")
        for backend in registry.backends():
            if backend.capabilities.issuperset(capabilities):
                remedy = f'pip install "verifair[{backend.extra}]"' if backend.extra else f"pip install {backend.distribution}"
                yield Competitor(
                    method=method, solver=backend.name, package=backend.package, remedy=remedy, version=backend.version() or ""
                )


def _peers() -> Iterator[Competitor]:
    remedy = 'pip install "verifair[peers]"'
    yield Competitor(method="marabou", package="maraboupy", remedy=remedy, version=_version("maraboupy"))
    z3 = registry.get("z3")
    yield Competitor(
        method="fairify", solver="z3", package=z3.package, remedy=f'pip install "verifair[{z3.extra}]"', version=z3.version() or ""
    )


def lacking(others: Sequence[Competitor]) -> str:
    """Return the competitors of another machine that this one lacks or has in another version; empty if it has all."""
    installed = {own.name: own for own in competitors()}
    problems = []
    for other in others:
        own_version = installed.get(other.name)
        if other.tool is not None:
            files = [word for word in other.tool.words[1:] if Path(word).is_absolute()]
            missing = [word for word in files if not Path(word).exists()]
            missing += [] if shutil.which(other.tool.words[0]) else [other.tool.words[0]]
            problems += [f"{other.name} ({word} is not there)" for word in missing]
        elif own_version is None or not own_version.available:
            problems.append(f"{other.name} (missing)")
        elif own_version.version != other.version:
            problems.append(f"{other.name} {own_version.version} (here {other.version})")
    return ", ".join(problems)


def processes(tools: Sequence[Tool], others: Sequence[Competitor]) -> list[Competitor]:
    """Return other verifiers as competitors. Raises QueryError for a name that is taken."""
    names = [name for competitor in others for name in (competitor.name, competitor.method)]
    for tool in tools:
        if tool.name in names:
            raise QueryError(f"--competitor {tool.name}: the name is taken; choose another one")
        names.append(tool.name)
    return [Competitor(method=tool.name, version=tool.version, tool=tool) for tool in tools]


def _version(distribution: str) -> str:
    try:
        return installed_version(distribution)
    except PackageNotFoundError:
        return ""
