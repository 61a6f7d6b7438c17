"""Decide VNN-LIB queries with the engine: sat with an exact witness, unsat with a proof, or unknown.

Case by case (`encoders.vnnlib.cases`), each one problem of the engine (`verifair.interop.problems`). Its proofs are about float32
inputs where it decides points; here inputs are real numbers, so a proof counts only when every leaf of it was bounded as an
interval or is a single input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from pathlib import Path

import numpy as np

from encoders.domain import Regions
from encoders.errors import ModelError
from encoders.evaluate import seconds_exactly
from encoders.model import Link
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from encoders.problem import TwinProblem
from encoders.vnnlib.cases import Conjunction, cases
from encoders.vnnlib.reader import DeclaredNetwork, VnnlibQuery, VnnlibUnsupported
from solvers.outcome import Budget
from verifair.checker.certificates.tree import Tree, leaf_regions
from verifair.engine.cascade import solve
from verifair.engine.verdict import Reason, Status
from verifair.errors import QueryError
from verifair.interop.certificate import POINT, CaseProof, VnnlibCertificate
from verifair.interop.problems import case_problems
from verifair.interop.witness import Assignment, assignment

INWARDS = (Fraction(1, 2**20), Fraction(1, 1024), Fraction(1, 16), Fraction(1, 2))
"""Parts of the way from a point on the boundary to the centre of its case."""


class VnnlibStatus(Enum):
    """The answer to a query, in the words of the VNN-LIB standard's command line."""

    SAT = "sat"
    UNSAT = "unsat"
    UNKNOWN = "unknown"
    TIMED_OUT = "timed-out"

    @property
    def competition(self) -> str:
        """The word in VNN-COMP's results files, which differs for the last one."""
        return "timeout" if self is VnnlibStatus.TIMED_OUT else self.value


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryAnswer:
    """assignment: of a sat.   reason: of an unknown.   engines: that decided cases.   claimed: backends whose unchecked claims an
    unsat relies on (empty: the engine proved every case).   rounded: nodes that the reader had to round when folding.
    certificate: of an unsat without such claims."""

    answer: VnnlibStatus
    assignment: Assignment | None
    reason: str | None
    cases: int
    certificate: VnnlibCertificate | None
    engines: tuple[str, ...]
    claimed: tuple[str, ...]
    rounded: tuple[str, ...]
    seconds: float


def networks_of(query: VnnlibQuery, files: Mapping[str, Path]) -> tuple[Network, ...]:
    """Return the networks that a query declares, in order. files: name -> ONNX file, for each not declared equal to another.

    Raises QueryError for files that are missing, too many, or do not fit the declaration.
    """
    names = {declared.name for declared in query.networks}
    for name in files:
        if name not in names:
            listing = ", ".join(sorted(names)) or "none"
            raise QueryError(f"--network {name}=...: {query.path} declares no network {name}; it declares {listing}")
    networks: dict[str, Network] = {}
    for declared in query.networks:
        file = files.get(declared.name)
        if declared.equal_to is not None:
            other_file = files.get(_origin(query, declared.equal_to))
            if file is not None and (other_file is None or file.resolve() != other_file.resolve()):
                statement = f"{query.path} says that {declared.name} equals {declared.equal_to}"
                raise QueryError(f"--network {declared.name}={file}: {statement}; leave it out")
            networks[declared.name] = networks[declared.equal_to]
        elif file is None:
            option = f"--network {declared.name}=FILE.onnx" if declared.name else "--network FILE.onnx"
            raise QueryError(f"{query.path} is about {f'network {declared.name}' if declared.name else 'a network'}; pass {option}")
        else:
            networks[declared.name] = _read(file, declared)
        network = networks[declared.name]
        for side, size, n in (("input", declared.input.size, network.inputs), ("output", declared.output.size, network.outputs)):
            if size != n:
                suffix = f" of network {declared.name}" if declared.name else ""
                raise QueryError(f"{query.path} declares {size} {side}s{suffix}; {network.source} has {n}")
    return tuple(networks[declared.name] for declared in query.networks)


def _origin(query: VnnlibQuery, name: str) -> str:
    declared = {network.name: network for network in query.networks}
    while (target := declared[name].equal_to) is not None:
        name = target
    return name


def _read(file: Path, declared: DeclaredNetwork) -> Network:
    network = read_onnx(file, output=declared.output.onnx)
    is_tensor = len(network.feeds) == 1 and network.feeds[0].kind in ("float32", "float64") and not network.feeds[0].categories
    if not is_tensor or not np.array_equal(network.feeds[0].start, np.arange(network.inputs)):
        raise ModelError(file, f"takes {len(network.feeds)} typed inputs, a table; queries are read about one tensor of numbers")
    if declared.input.onnx is not None and declared.input.onnx != network.feeds[0].name:
        raise QueryError(f"{file}: its input is called {network.feeds[0].name!r}, the query says {declared.input.onnx!r}")
    if network.link is not Link.IDENTITY:
        raise ModelError(
            file, f"ends with {network.link.value}, and a query is about what the model shows; the engine decides queries about "
            "logits: cut the model in front of it (as `verifair export` does) and rewrite the bounds on outputs"
        )
    network.require_piecewise_linear("a query whose sat is exact")
    return network


def rounded_nodes(networks: Sequence[Network]) -> tuple[str, ...]:
    """Return the nodes of all networks whose folding was not exact."""
    return tuple(dict.fromkeys(node for network in networks for node in network.rounded))


def check_types(query: VnnlibQuery, *, as_real: bool) -> None:
    """Raise VnnlibUnsupported for a query about floating-point numbers, unless `as_real` takes them as real numbers."""
    for declared in query.networks:
        for tensor in (declared.input, declared.output):
            if tensor.type != "real" and not as_real:
                raise VnnlibUnsupported(
                    query.path,
                    None,
                    f"{tensor.name} is declared {tensor.type}, which asks for a proof about floating-point arithmetic; proofs here "
                    "are about the real-valued function of the stored weights: declare it real, or say so with --as-real",
                )


def decide(
    query: VnnlibQuery, networks: Sequence[Network], *, budget: Budget, method: str = "auto", solver: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> QueryAnswer:
    """Decide a query. budget.seconds is for all of it; progress is called with the number of cases done.

    Sound? sat: exact, over the rationals. unsat: every case proved, with bounds on real intervals, or claimed by a MILP solver as
    `claimed` says.  Complete? for constraints with strict room on either side, within the budget.
    """
    started = time.monotonic()
    count = 0
    engines: set[str] = set()
    claimed: set[str] = set()
    reasons: list[str] = []
    proofs: list[CaseProof] = []
    timed_out, witness = False, None
    for count, case in enumerate(cases(query), start=1):
        remaining = budget.seconds - (time.monotonic() - started)
        if remaining <= 0:
            timed_out = True
            break
        if all(low == high for low, high in case.bounds):  # one point: exact arithmetic decides it
            engines.add("exact")
            witness = assignment(query, case, networks, case.lower)
            if witness is not None:
                break
            proofs.append(CaseProof(way=POINT, tree=None))
            continue
        outcome = _decide_case(query, case, networks, replace(budget, seconds=remaining), method, solver)
        engines.update(outcome.engines)
        if outcome.assignment is not None:
            witness = outcome.assignment
            break
        claimed.update(outcome.claimed)
        if outcome.evidence is not None:
            proofs.append(outcome.evidence)
        timed_out = timed_out or outcome.late
        if outcome.reason is not None:
            reasons.append(outcome.reason)
        if progress is not None:
            progress(count)
    otherwise = VnnlibStatus.TIMED_OUT if timed_out else VnnlibStatus.UNKNOWN if reasons else VnnlibStatus.UNSAT
    status = VnnlibStatus.SAT if witness else otherwise
    return QueryAnswer(
        answer=status, assignment=witness,
        reason="; ".join(dict.fromkeys(reasons)) or None if status in (VnnlibStatus.UNKNOWN, VnnlibStatus.TIMED_OUT) else None,
        cases=count,
        certificate=VnnlibCertificate.of(query, networks, proofs) if status is VnnlibStatus.UNSAT and not claimed else None,
        engines=tuple(sorted(engines)), claimed=tuple(sorted(claimed)) if status is VnnlibStatus.UNSAT else (),
        rounded=rounded_nodes(networks), seconds=time.monotonic() - started,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Decided:
    """The result of one case: a witness, or the reason that it is open (`late`: time), or neither: proved, or claimed by
    `claimed`."""

    assignment: Assignment | None = None
    reason: str | None = None
    late: bool = False
    claimed: tuple[str, ...] = ()
    evidence: CaseProof | None = None
    engines: tuple[str, ...] = ()


def _decide_case(
    query: VnnlibQuery, case: Conjunction, networks: Sequence[Network], budget: Budget, method: str, solver: str | None
) -> _Decided:
    """Try one problem after the other (`case_problems`), each with half of the remaining time, the last one with all of it."""
    deadline = time.monotonic() + budget.seconds
    engines: list[str] = []
    timed_out, reason, edge = False, "undecided", None
    problems = case_problems(query, case, networks)
    current = next(problems)
    while True:
        upcoming = next(problems, None)
        remaining = max(deadline - time.monotonic(), 1e-3) * (1.0 if upcoming is None else 0.5)
        answer = solve(current.problem, method=method, solver=solver, budget=replace(budget, seconds=remaining))[0][0]
        engines.append(f"{answer.engine} ({current.way})")
        match answer.status:
            case Status.VIOLATED:
                assert answer.witness is not None
                edge = current.free_inputs(answer.witness)
                witness = assignment(query, case, networks, edge)
                if witness is not None:
                    return _Decided(assignment=witness, engines=tuple(engines))
                reason = "a point was found on the boundary, which does not meet the query exactly"
            case Status.PROVED if current.proves:
                if answer.tree is None:
                    return _Decided(claimed=(answer.outcomes[-1].backend,), engines=tuple(engines))
                if covers_reals(answer.tree, current.problem):
                    return _Decided(evidence=CaseProof(way=current.way, tree=answer.tree), engines=tuple(engines))
                reason = "decided at float32 inputs alone, and inputs are real numbers here"
            case Status.UNKNOWN:
                timed_out = answer.reason is Reason.TIME
                reason = str(answer.reason.value if answer.reason else "undecided")
        if upcoming is None:
            witness = _nearby(query, case, networks, edge, deadline)
            return _Decided(assignment=witness, reason=reason, late=timed_out, engines=tuple(engines))
        current = upcoming


def _nearby(
    query: VnnlibQuery, case: Conjunction, networks: Sequence[Network], edge: Sequence[float] | None, deadline: float
) -> Assignment | None:
    """Try a few points exactly, for cases that would stay open: the corners of all lower and of all upper bounds (float32 may miss
    a witness on the boundary), the centre, and points inwards from a boundary point (strict bounds exclude the boundary)."""
    centre = [(low + high) / 2 for low, high in case.bounds]
    inwards = [] if edge is None else [
        [u + step * (middle - u) for u, middle in zip(map(Fraction, edge), centre, strict=True)] for step in INWARDS
    ]
    if time.monotonic() + max(map(seconds_exactly, networks)) > deadline:
        return None
    for u in (case.lower, case.upper, *inwards, centre):
        witness = assignment(query, case, networks, u)
        if witness is not None or time.monotonic() > deadline:
            return witness
    return None


def covers_reals(tree: Tree, problem: TwinProblem) -> bool:
    """Return True if a proof holds for all real inputs of its box: leaves too small to be cut may have been decided at their
    corners, so they must be single network inputs, or state their bounds."""
    box = problem.batch.lower[0], problem.batch.upper[0]
    leaves = leaf_regions(tree.feature, tree.cut, Regions.whole(*box, 2 * sum(problem.network.hidden)), problem.domain)
    if isinstance(leaves, str):
        return False
    nodes, regions = leaves
    low, high = problem.domain.box(regions.lower, regions.upper)
    small = ~problem.domain.divisible(regions.lower, regions.upper).any(axis=1) & (low != high).any(axis=1)
    return not (small & (tree.start[nodes] == tree.start[nodes + 1])).any()
