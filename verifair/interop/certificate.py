"""Certificates of unsat VNN-LIB queries, and their check against the query's file and networks.

    {"format": "verifair-vnnlib-certificate/2", "query_sha256", "networks": {name: sha256}, "semantics",
     "cases": [{"way", "tree"}], "digest"}

JSON (gzip when the name ends in .gz). The cases and their problems are computed again from the query (`encoders.vnnlib.cases`,
`verifair.interop.problems`); their trees are re-proved by the checker of all other certificates, with rigorous bounds. There is one
difference: inputs are real numbers here, so no box is decided by its corners alone.
Sound? yes: a tree is confirmed leaf by leaf.  Complete? for what the engine proves, except leaves that only corners show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as validated

from encoders.network import Network
from encoders.vnnlib.cases import Conjunction, cases
from encoders.vnnlib.reader import VnnlibQuery
from verifair.checker.certificates.envelope import Text, read, semantics, write
from verifair.checker.certificates.extent import NO_MORE, Sha256
from verifair.checker.certificates.tree import Tree, TreeFile
from verifair.checker.kernel.leaves import JoinedTrees, replay
from verifair.checker.kernel.tasks import StatedGoal, Task, Tasks
from verifair.interop.problems import case_problems
from verifair.interop.witness import assignment

FORMAT = "verifair-vnnlib-certificate/2"
POINT = "point"
"""The way of a case that is one single input: nothing has to be recorded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseProof:
    """The proof of one case: the problem that it was proved as (`CaseProblem.way`), and the tree (None for a point)."""

    way: str
    tree: Tree | None

    def to_dict(self) -> dict[str, Any]:
        """Return the proof as the file has it."""
        return {"way": self.way} if self.tree is None else {"way": self.way, "tree": self.tree.to_dict()}


@dataclass(frozen=True, kw_only=True, eq=False)
class VnnlibCertificate:
    """CaseProof for every case of a query, in order. `intact` is False when a file's digest does not fit its content."""

    query_sha256: str
    networks: dict[str, str]
    semantics: str
    cases: tuple[CaseProof, ...]
    intact: bool = True

    @classmethod
    def of(cls, query: VnnlibQuery, networks: Sequence[Network], evidence: Sequence[CaseProof]) -> VnnlibCertificate:
        network_of = {declared.name: network for declared, network in zip(query.networks, networks, strict=True)}
        semantics_of = {name: semantics(network) for name, network in network_of.items()}
        is_same = len(set(semantics_of.values())) == 1
        return cls(
            query_sha256=file_sha256(query.path), networks={name: network.source_sha256 for name, network in network_of.items()},
            semantics=semantics(networks[0]) if is_same else "; ".join(f"{name}: {text}" for name, text in semantics_of.items()),
            cases=tuple(evidence),
        )

    def save(self, path: str | Path) -> None:
        """Write the certificate; the same proofs give the same bytes."""
        payload = {"format": FORMAT, "query_sha256": self.query_sha256, "networks": self.networks, "semantics": self.semantics}
        write(path, {**payload, "cases": [proof.to_dict() for proof in self.cases]})

    @classmethod
    def load(cls, path: str | Path) -> VnnlibCertificate:
        """Read a certificate. Raises CertificateError for anything else."""
        (file, proofs), intact = read(path, FORMAT, _parsed)
        header = {name: getattr(file, name) for name in ("query_sha256", "networks", "semantics")}
        return cls(**header, cases=proofs, intact=intact)


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rejections(certificate: VnnlibCertificate, query: VnnlibQuery, networks: Sequence[Network]) -> list[str]:
    """Return the reasons that the certificate does not prove the query unsat; none if it does."""
    if not certificate.intact:
        return ["the file was changed: its digest does not fit"]
    if certificate.query_sha256 != file_sha256(query.path):
        return ["it is about another query file"]
    for declared, network in zip(query.networks, networks, strict=True):
        if certificate.networks.get(declared.name) != network.source_sha256:
            return [f"it is about another network {declared.name}".rstrip()]
    reasons = []
    for number, (case, evidence) in enumerate(zip_longest(cases(query), certificate.cases)):
        if case is None or evidence is None:
            return [f"it has {len(certificate.cases)} cases, the query {'more' if evidence is None else 'fewer'}"]
        reason = _flaw(query, case, networks, evidence)
        if reason is not None:
            reasons.append(f"case {number}: {reason}")
    return reasons


def _flaw(query: VnnlibQuery, case: Conjunction, networks: Sequence[Network], evidence: CaseProof) -> str | None:
    if evidence.way == POINT:
        if case.lower != case.upper:
            return "it is no single input"
        return None if assignment(query, case, networks, case.lower) is None else "its single input meets the query"
    part = next((c for c in case_problems(query, case, networks) if c.way == evidence.way and c.proves), None)
    if part is None:
        return f"there is no way {evidence.way} for it"
    problem, batch, goal = part.problem, part.problem.batch, part.problem.goals[0]
    rows = np.column_stack([goal.rows, goal.constants])
    task = Task(
        lower=batch.lower[0], upper=batch.upper[0], prime=batch.prime[0], offset=np.zeros(len(batch.prime[0])),
        differs=batch.protected, margin=problem.margin,
        goal=StatedGoal(rows=tuple(map(tuple, rows.tolist())), strict=tuple(goal.strict_rows.tolist()), reals=True),
    )
    if evidence.tree is None:
        return "it has no proof"
    joined = JoinedTrees.of([evidence.tree], [False], [None])
    return evidence.tree.misfit or replay(problem.network, problem.domain, Tasks.of([task]), joined).get(0)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class CaseFile:
    """A `CaseProof` as the file has it."""

    way: Text
    tree: TreeFile | None = None


@validated(frozen=True, kw_only=True, config=NO_MORE)
class VnnlibFile:
    format: Literal["verifair-vnnlib-certificate/2"]
    query_sha256: Sha256
    networks: dict[str, Sha256]
    semantics: Text
    cases: list[CaseFile]
    digest: Sha256


FILE = TypeAdapter(VnnlibFile)


def _parsed(raw: Any) -> tuple[VnnlibFile, tuple[CaseProof, ...]]:
    file = FILE.validate_python(raw)
    return file, tuple(CaseProof(way=case.way, tree=None if case.tree is None else case.tree.tree()) for case in file.cases)
