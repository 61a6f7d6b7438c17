"""Certificates: what a proof leaves behind, so that somebody else can check it without the engine.

    {"format": "verifair-certificate/1", "network_sha256", "schema_sha256", "semantics", "query", "features": [names],
     "proofs": [{"statement": ..., "float32": ..., "tree": ...} or {..., "phases": ...} or {..., "claim": ...}], "digest"}

A *statement* says what holds on which box, a *tree* how that box was cut up until every leaf was proved (*phases*: by the signs of
neurons as well). What only a solver vouches for has a *claim* instead: it can be recorded, not re-proved. `verifair.checker.check`
defines what each statement means; float32 says whether it is claimed of every float32 evaluation as well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from verifair.checker.envelope import NO_MORE, Distance, Envelope, EnvelopeFile, Text, Trust
from verifair.checker.statement import Query, Statement
from verifair.checker.tree import PhaseFile, PhaseTree, Tree, TreeFile


@validated(frozen=True, kw_only=True, config=NO_MORE)
class Claim:
    """The word of a solver: which one, and the tolerance within which it calls a statement true."""

    backend: Text
    version: Text
    tolerance: Distance


@dataclass(frozen=True, kw_only=True, eq=False)
class Proof:
    """A statement and what stands behind it. float32: it is certified for float32, so it holds of every float32 evaluation of the
    network as well, in whatever order that sums; else it is about the real-valued function only."""

    statement: Statement
    evidence: Tree | PhaseTree | Claim
    float32: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the proof as it stands in the file."""
        name = {Claim: "claim", PhaseTree: "phases", Tree: "tree"}[type(self.evidence)]
        evidence = asdict(self.evidence) if isinstance(self.evidence, Claim) else self.evidence.to_dict()
        return {"statement": asdict(self.statement), "float32": self.float32, name: evidence}


@validated(frozen=True, kw_only=True, config=NO_MORE)
class ProofFile:
    """A `Proof` as it stands in the file."""

    statement: Annotated[Statement, Field(discriminator="goal")]
    float32: Annotated[bool, Field(strict=True)] = False
    tree: TreeFile | None = None
    phases: PhaseFile | None = None
    claim: Claim | None = None

    def proof(self) -> Proof:
        """Raises ValueError unless there is one piece of evidence that fits together."""
        found = [one for one in (self.tree, self.phases, self.claim) if one is not None]
        if len(found) != 1:
            raise ValueError("needs either a tree, phases or a claim")
        if self.float32 and self.claim is not None:
            raise ValueError("a solver's claim says nothing of float32")
        evidence = found[0] if isinstance(found[0], Claim) else found[0].tree()
        return Proof(statement=self.statement, evidence=evidence, float32=self.float32)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class CertificateFile(EnvelopeFile):
    format: Literal["verifair-certificate/1"]
    query: Annotated[Query, Field(discriminator="kind")]
    proofs: list[ProofFile]


FILE = TypeAdapter(CertificateFile)


@dataclass(frozen=True, kw_only=True, eq=False)
class Certificate(Envelope):
    """Proofs about one network and one schema."""

    FORMAT = "verifair-certificate/1"
    query: Query
    proofs: tuple[Proof, ...] = field(repr=False)

    @property
    def trust(self) -> Trust:
        claimed = any(isinstance(proof.evidence, Claim) for proof in self.proofs)
        return Trust.CLAIMED if claimed else Trust.CHECKED

    def _content(self) -> dict[str, Any]:
        return {"proofs": [proof.to_dict() for proof in self.proofs]}

    @classmethod
    def _parsed(cls, raw: Any) -> tuple[EnvelopeFile, dict[str, Any]]:
        file, proofs = FILE.validate_python(raw), []
        for number, proof in enumerate(file.proofs):
            try:
                proofs.append(proof.proof())
            except ValueError as error:
                raise ValueError(f"proof {number}: {error}") from None
        return file, {"proofs": tuple(proofs)}
