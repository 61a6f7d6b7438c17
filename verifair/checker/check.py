"""The independent re-checker: does a certificate prove what it says?

Imports neither the engine, nor its bounds, nor a solver; shared with them are the network's forward pass, the exact
arithmetic and the schema. For two copies x and x' (x' = x but for the protected features in `prime`) and g = f_i - f_j
(one logit: +f for classes (1, 0), -f for (0, 1)) the statements are

    observed   g(x) - g(x') > 0          flipped   g(x') - g(x) > 0          robust   g(x) > 0, or >= 0 where i < j
    no-flip    not (g(x) > 0 and g(x') < 0), which holds where one of -g(x), g(x'), (g(x') - g(x)) / 2 is >= 0
    factual, counterfactual    as robust: of a row, and of all that a causal model may make of it (`check_counterfactuals`)

at every point of the statement's box. The tree must cover the box, and on every leaf the checker proves that the
claimed bound is one: by its own bounds (`check_bounds`), else by cutting the leaf further, down to single points that
exact arithmetic decides. Every proof is about the real-valued function of the stored weights, at every input that the
raw box maps to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoders.network import Array, Network
from verifair.checker.certificate import Certificate, Claim, FairnessQuery, Query, Statement, semantics
from verifair.checker.counterfactual_statement import CounterfactualQuery, CounterfactualStatement
from verifair.checker.kernel.boxes import Checker, Rejection
from verifair.checker.kernel.leaves import Leaves, Task, Tasks, leaves_of, pairs_missing, task_of
from verifair.checker.kernel.phases import PhaseClaim, check_phases
from verifair.checker.kinds.counterfactuals import counterfactual_task, decisions_missing, query_flaw
from verifair.checker.phase_tree import PhaseTree
from verifair.schema.schema import Schema

Progress = Callable[[int, int], None]

GROUP = 2048
"""Leaves held in memory at once, unless one tree has more."""


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """proofs and leaves that were looked at; claimed: statements that only a solver vouches for, which nobody re-proved."""

    proofs: int
    leaves: int
    claimed: int
    rejections: tuple[Rejection, ...]
    seconds: float

    @property
    def accepted(self) -> bool:
        """Every statement of the certificate was re-proved."""
        return not self.rejections


def check(
    certificate: Certificate | str | Path, *, network: Network, schema: Schema, progress: Progress | None = None
) -> CheckReport:
    """Re-prove a certificate. CertificateError when a file is no certificate at all; what is wrong with one is reported.

    progress is called with the number of proofs done and of all proofs.
    """
    started = time.perf_counter()
    given = certificate if isinstance(certificate, Certificate) else Certificate.load(certificate)
    claimed = sum(isinstance(proof.evidence, Claim) for proof in given.proofs)
    leaves = sum(int((p.evidence.feature == -1).sum()) for p in given.proofs if isinstance(p.evidence, PhaseTree))
    found = [Rejection(proof=None, reason=reason) for reason in _misfits(given, network, schema)]
    if not found:
        for done, group in _groups(given, network, schema, found):
            leaves += len(group.task)
            found += Checker(network, schema.domain, group).run()
            if progress is not None:
                progress(done, len(given.proofs))
    return CheckReport(
        proofs=len(given.proofs),
        leaves=leaves,
        claimed=claimed,
        rejections=tuple(sorted(found, key=lambda one: -1 if one.proof is None else one.proof)),
        seconds=time.perf_counter() - started,
    )


def about_another(what: str, sha256: str, given: str) -> str:
    """Why a file cannot be checked against this network or schema."""
    return f"it is about another {what} (sha256 {sha256[:12]}, this one has {given[:12]}): check it against its own"


def _misfits(certificate: Certificate, network: Network, schema: Schema) -> Iterator[str]:
    """Reasons for which the proofs need not be looked at."""
    if not certificate.intact:
        yield "the digest does not fit the content: the file was changed after it was written"
    if not certificate.proofs:
        yield "it holds no proofs"
    if certificate.network_sha256 != network.source_sha256:
        yield about_another("network", certificate.network_sha256, network.source_sha256)
    if certificate.schema_sha256 != schema.sha256:
        yield about_another("schema", certificate.schema_sha256, schema.sha256)
    if certificate.features != tuple(feature.name for feature in schema.features):
        yield "its features are not those of the schema, in order"
    if certificate.semantics != semantics(network):
        yield f"its semantics are {certificate.semantics!r}, expected {semantics(network)!r}"
    if schema.domain.columns != network.inputs:
        yield f"the schema describes {schema.domain.columns} input columns, the network takes {network.inputs}"
    elif isinstance(certificate.query, FairnessQuery):
        missing = pairs_missing(certificate.query, certificate.proofs, network, schema)
        if missing is not None:
            yield missing
    elif isinstance(certificate.query, CounterfactualQuery):
        flaw = query_flaw(certificate.query, network, schema)
        yield from decisions_missing(certificate.query, certificate.proofs) if flaw is None else [flaw]


def _groups(
    certificate: Certificate, network: Network, schema: Schema, found: list[Rejection]
) -> Iterator[tuple[int, Leaves]]:
    """(proofs done, leaves) in groups of bounded size; what cannot be turned into leaves goes to `found`."""
    tasks: list[Task] = []
    parts: list[tuple[Array, Array, Array]] = []
    proofs: list[int] = []
    held = 0
    for number, proof in enumerate(certificate.proofs):
        task = _task(proof.statement, certificate.query, network, schema)
        leaves: tuple[Array, Array, Array] | str
        if isinstance(task, str):
            leaves = task
        elif isinstance(proof.evidence, PhaseTree):
            flaw = phase_flaw(proof.evidence, task, network, schema)
            if flaw is None:
                continue
            leaves = flaw
        elif isinstance(proof.evidence, Claim):
            leaves = f"claimed by {proof.evidence.backend} {proof.evidence.version}, not re-provable"
        else:
            leaves = leaves_of(proof.evidence, task, schema.domain.integer)
        if isinstance(leaves, str) or isinstance(task, str):
            found.append(Rejection(proof=number, reason=str(leaves)))
        else:
            tasks.append(task)
            parts.append(leaves)
            proofs.append(number)
            held += len(leaves[2])
        if held >= GROUP:
            yield number + 1, _gathered(tasks, parts, proofs)
            tasks, parts, proofs, held = [], [], [], 0
    if parts:
        yield len(certificate.proofs), _gathered(tasks, parts, proofs)


def _task(statement: Statement, query: Query, network: Network, schema: Schema) -> Task | str:
    """What a statement asks for, or why it may not be asked."""
    if isinstance(query, CounterfactualQuery) and isinstance(statement, CounterfactualStatement):
        return counterfactual_task(statement, query, network, schema)
    if isinstance(query, CounterfactualQuery) or isinstance(statement, CounterfactualStatement):
        return f"a {statement.goal} statement does not belong into a {query.kind} certificate"
    return task_of(statement, query, network, schema)


def phase_flaw(tree: PhaseTree, task: Task, network: Network, schema: Schema) -> str | None:
    """Why a tree that also splits neurons does not prove a task, or None."""
    if not network.piecewise_linear:
        return "neuron branching is about networks that are piecewise linear, and this one has smooth neurons"
    if task.asked.strict:
        return "neuron branching cannot show a strict goal"
    rows = np.array(task.asked.rows)
    claim = PhaseClaim(
        lower=task.lower, upper=task.upper, prime=task.prime, differs=task.differs, margin=task.margin, gap=task.asked.gap,
        offset=task.offset if task.offset.any() else None, rows=rows[:, :2], constants=rows[:, 2],
    )  # fmt: skip
    return check_phases(network, schema.domain, claim, tree)


def _gathered(tasks: list[Task], parts: Sequence[tuple[Array, Array, Array]], proofs: list[int]) -> Leaves:
    lower, upper, bound = (np.concatenate(part) for part in zip(*parts, strict=True))
    sizes = [len(part[2]) for part in parts]
    return Leaves(
        tasks=Tasks.of(tasks),
        task=np.repeat(np.arange(len(tasks)), sizes),
        proof=np.repeat(np.array(proofs, dtype=np.int64), sizes),
        lower=lower,
        upper=upper,
        bound=bound,
    )
