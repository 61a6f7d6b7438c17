"""What an unsat of a VNN-LIB query leaves behind, and its check against the query's own file and networks.

    {"format": "verifair-vnnlib-certificate/1", "query_sha256", "networks": {name: sha256}, "semantics",
     "cases": [{"way", "tree" | "phases"}], "digest"}

JSON (gzip when the name ends in .gz). The cases and their problems are worked out again from the query (`encoders.vnnlib.cases`,
`verifair.interop.problems`); their trees are re-proved by the checker of all other certificates, with rigorous bounds, but
for one thing: inputs are real numbers here, so no box is decided at float32 points alone.
Sound? yes: a tree is confirmed leaf by leaf.  Complete? of what the engine proves, but for leaves that only such points show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from encoders.network import Array, Integers, Network
from encoders.vnnlib.cases import Conjunction, cases
from encoders.vnnlib.query import VnnlibQuery
from verifair.checker.certificate import Tree, read, semantics, write
from verifair.checker.fields import NO_MORE, Index, Number, Sha256, Text
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kernel.boxes import Checker
from verifair.checker.kernel.leaves import Asked, Leaves, Task, Tasks, leaves_of
from verifair.checker.kernel.phases import PhaseClaim, check_phases
from verifair.checker.phase_tree import PhaseTree
from verifair.interop.problems import case_problems
from verifair.interop.witness import assignment

FORMAT = "verifair-vnnlib-certificate/1"
POINT = "point"
"""The way of a case that is one single input: nothing has to be recorded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """How one case was proved: as which of its problems (`CaseProblem.way`), and by which tree (None for a point)."""

    way: str
    tree: Tree | PhaseTree | None


@dataclass(frozen=True, kw_only=True, eq=False)
class VnnlibCertificate:
    """Evidence for every case of a query, in order. `intact` is False when a file's digest does not fit its content."""

    query_sha256: str
    networks: dict[str, str]
    semantics: str
    cases: tuple[Evidence, ...]
    intact: bool = True

    @classmethod
    def of(cls, query: VnnlibQuery, networks: Sequence[Network], evidence: Sequence[Evidence]) -> VnnlibCertificate:
        named = {one.name: network for one, network in zip(query.networks, networks, strict=True)}
        about = {name: semantics(network) for name, network in named.items()}
        alike = len(set(about.values())) == 1
        return cls(
            query_sha256=file_sha256(query.path),
            networks={name: network.source_sha256 for name, network in named.items()},
            semantics=semantics(networks[0]) if alike else "; ".join(f"{name}: {text}" for name, text in about.items()),
            cases=tuple(evidence),
        )

    def save(self, path: str | Path) -> None:
        """Write the certificate; the same proofs give the same bytes."""
        payload = {"format": FORMAT, "query_sha256": self.query_sha256, "networks": self.networks, "semantics": self.semantics}
        write(path, {**payload, "cases": [_payload(one) for one in self.cases]})

    @classmethod
    def load(cls, path: str | Path) -> VnnlibCertificate:
        """Read a certificate. CertificateError for anything that is not one."""
        file, intact = read(path, FORMAT, _ADAPTER.validate_python)
        found = tuple(Evidence(way=one.way, tree=one.read()) for one in file.cases)
        return cls(
            query_sha256=file.query_sha256, networks=file.networks, semantics=file.semantics, cases=found, intact=intact
        )


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rejections(certificate: VnnlibCertificate, query: VnnlibQuery, networks: Sequence[Network]) -> list[str]:
    """Why the certificate does not prove the query unsat; none when it does."""
    if not certificate.intact:
        return ["the file was changed: its digest does not fit"]
    if certificate.query_sha256 != file_sha256(query.path):
        return ["it is about another query file"]
    for declared, network in zip(query.networks, networks, strict=True):
        if certificate.networks.get(declared.name) != network.source_sha256:
            return [f"it is about another network {declared.name}".rstrip()]
    found = []
    for number, (case, evidence) in enumerate(zip_longest(cases(query), certificate.cases)):
        if case is None or evidence is None:
            return [f"it has {len(certificate.cases)} cases, the query {'more' if evidence is None else 'fewer'}"]
        reason = _flaw(query, case, networks, evidence)
        if reason is not None:
            found.append(f"case {number}: {reason}")
    return found


def _flaw(query: VnnlibQuery, case: Conjunction, networks: Sequence[Network], evidence: Evidence) -> str | None:
    if evidence.way == POINT:
        if case.lower != case.upper:
            return "it is no single input"
        return None if assignment(query, case, networks, case.lower) is None else "its single input meets the query"
    part = next((one for one in case_problems(query, case, networks) if one.way == evidence.way and one.proves), None)
    if part is None:
        return f"there is no way {evidence.way} for it"
    problem, batch, goal = part.problem, part.problem.batch, part.problem.goals[0]
    rows = np.column_stack([goal.rows, goal.constants])
    task = Task(
        lower=batch.lower[0],
        upper=batch.upper[0],
        prime=batch.prime[0],
        offset=np.zeros(len(batch.prime[0])),
        differs=batch.protected,
        margin=problem.margin,
        asked=Asked(rows=tuple((float(p), float(q), float(c)) for p, q, c in rows), strict=goal.strict),
    )
    match evidence.tree:
        case PhaseTree() as phases:
            if goal.strict:
                return "neuron branching cannot show a strict goal"
            claim = PhaseClaim(
                lower=task.lower, upper=task.upper, prime=task.prime, differs=task.differs, margin=task.margin,
                gap=None, offset=None, rows=goal.rows, constants=goal.constants,
            )  # fmt: skip
            return check_phases(problem.network, problem.domain, claim, phases)
        case Tree() as tree:
            leaves = leaves_of(tree, task, problem.domain.integer)
            if isinstance(leaves, str):
                return leaves
            lower, upper, bound = leaves
            zeros = np.zeros(len(bound), dtype=np.int64)
            gathered = Leaves(tasks=Tasks.of([task]), task=zeros, proof=zeros, lower=lower, upper=upper, bound=bound)
            wrong = RealChecker(problem.network, problem.domain, gathered).run()
            return wrong[0].reason if wrong else None
        case None:
            return "it has no proof"


class RealChecker(Checker):
    """The checker for real inputs: a box that bounds do not confirm is not settled at its corners."""

    def _decide_corners(self, leaf: np.int64, lower: Array, upper: Array) -> None:
        self._reject(int(leaf), "not confirmed by bounds, and too small to be cut")

    def _likeliest(self, bounds: TwinBounds, box: Integers, task: Integers, which: Integers) -> Array:
        """(N, 3) the row of each box with the best bound, all of them tried: here rows are no lines of a known curve."""
        every = np.zeros(int(box.max()) + 1, dtype=np.int64)
        every[box] = task
        table = self.rows[self.first[0] : self.first[0] + self.count[0]]
        bound, *_ = self._bounds_of(bounds, every, np.repeat(box, len(table)), np.tile(table, (len(box), 1)))
        return np.asarray(table[bound.reshape(len(box), len(table)).argmax(axis=1)])


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _Tree:
    feature: list[Index | Literal[-1]] = Field(min_length=1)
    cut: list[Number]
    bound: list[Number | None]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _Phases:
    feature: list[int] = Field(min_length=1)
    cut: list[Number]
    start: list[Index]
    index: list[Index]
    value: list[Number]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _Case:
    way: Text
    tree: _Tree | None = None
    phases: _Phases | None = None

    def read(self) -> Tree | PhaseTree | None:
        """Raises ValueError for arrays of different lengths."""
        if self.phases is not None:
            one = self.phases
            return PhaseTree(
                feature=np.array(one.feature, dtype=np.int64), cut=np.array(one.cut, dtype=float),
                value=np.array(one.value, dtype=float), start=np.array(one.start, dtype=np.int64),
                index=np.array(one.index, dtype=np.int64),
            )  # fmt: skip
        if self.tree is None:
            return None
        return Tree(
            feature=np.array(self.tree.feature, dtype=np.int64),
            cut=np.array(self.tree.cut, dtype=float),
            bound=np.array(self.tree.bound, dtype=float),
        )

    def __post_init__(self) -> None:
        if self.tree is not None and not len(self.tree.feature) == len(self.tree.cut) == len(self.tree.bound):
            raise ValueError("feature, cut and bound differ in length")


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _File:
    format: Literal["verifair-vnnlib-certificate/1"]
    query_sha256: Sha256
    networks: dict[str, Sha256]
    semantics: Text
    cases: list[_Case]
    digest: Sha256


_ADAPTER = TypeAdapter(_File)


def _payload(one: Evidence) -> dict[str, Any]:
    match one.tree:
        case PhaseTree() as tree:
            arrays = ("feature", "cut", "start", "index", "value")
            return {"way": one.way, "phases": {name: getattr(tree, name).tolist() for name in arrays}}
        case Tree() as tree:
            bound = [None if value != value else value for value in tree.bound.tolist()]
            return {"way": one.way, "tree": {"feature": tree.feature.tolist(), "cut": tree.cut.tolist(), "bound": bound}}
        case None:
            return {"way": one.way}
