"""Certificates: files with which somebody else can check a proof without the engine.

    {"format": "verifair-certificate/3", "network_sha256", "schema_sha256", "semantics", "query", "features": [names], "extent",
     "proofs": [{"statement": ..., "float32": ..., "margin": ..., "tree": ...} or {..., "claim": ...} or {..., "witness": ...}],
     "digest"}

A *statement* says what holds on which box, a *tree* how that box was cut up until every leaf was proved, and by which multipliers.
What only a solver vouches for has a *claim* instead: it can be recorded, not re-proved. A statement about a row
that is false has a *witness*: a point of its box where it fails. `verifair.checker.kinds.proofs` defines what each statement means;
float32 says whether it is claimed of every float32 evaluation as well, margin by how much it holds at least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from verifair.checker.certificates.envelope import Distance, Envelope, EnvelopeFile, Number, Text, Trust
from verifair.checker.certificates.extent import NO_MORE
from verifair.checker.certificates.statement import CounterfactualQuery, CounterfactualStatement, Query, Statement
from verifair.checker.certificates.tree import Tree, TreeFile


@validated(frozen=True, kw_only=True, config=NO_MORE)
class Claim:
    """A solver's claim: which solver says that a statement is true, within which tolerance."""

    backend: Text
    version: Text
    tolerance: Distance


@validated(frozen=True, kw_only=True, config=NO_MORE)
class Counterexample:
    """A raw row x of the statement's box, in schema order, at which the statement is false; x' follows from x."""

    x: tuple[Number, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Proof:
    """A statement with its evidence, or its counterexample. float32: the proof also holds for every float32 evaluation of the
    network, in any order of summation (False: for the real-valued function only).
    margin: a lower bound of the goal's only row on the whole box, the smallest bound of the tree's leaves; None: nothing more
    than the goal itself is claimed."""

    statement: Statement
    evidence: Tree | Claim | Counterexample
    float32: bool = False
    margin: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the proof as it stands in the file."""
        name = {Claim: "claim", Counterexample: "witness", Tree: "tree"}[type(self.evidence)]
        content = self.evidence.to_dict() if isinstance(self.evidence, Tree) else vars(self.evidence)
        return {"statement": vars(self.statement), "float32": self.float32, "margin": self.margin, name: content}

    @property
    def key(self) -> Hashable:
        """The values of the statement; two proofs with the same key state the same."""
        return tuple(tuple(sorted(v.items())) if isinstance(v, dict) else v for v in vars(self.statement).values())


def answered(answers: Iterable[Proof | Statement]) -> dict[str, Any]:
    """Return the arguments `proofs` and `undecided` of a `Certificate`. answers: for each statement the proof that decides it, or
    the bare statement where there is none.

    A statement that is asked of several people with the same values counts once.
    """
    proofs: dict[Hashable, Proof] = {}
    undecided = set()
    for answer in answers:
        if isinstance(answer, Proof):
            proofs.setdefault(answer.key, answer)
        else:
            undecided.add(Proof(statement=answer, evidence=Tree.leaf()).key)
    return {"proofs": tuple(proofs.values()), "undecided": len(undecided - set(proofs))}


@validated(frozen=True, kw_only=True, config=NO_MORE)
class ProofFile:
    """A `Proof` as it stands in the file."""

    statement: Annotated[Statement, Field(discriminator="goal")]
    float32: Annotated[bool, Field(strict=True)] = False
    margin: Distance | None = None
    tree: TreeFile | None = None
    claim: Claim | None = None
    witness: Counterexample | None = None

    def proof(self) -> Proof:
        """Return it as a `Proof`. Raises ValueError unless there is exactly one piece of evidence, and a valid one."""
        pieces = [piece for piece in (self.tree, self.claim, self.witness) if piece is not None]
        if len(pieces) != 1:
            raise ValueError("needs either a tree, a claim or a witness")
        piece = pieces[0]
        if (self.float32 or self.margin is not None) and isinstance(piece, Claim | Counterexample):
            raise ValueError("a solver's claim, or a counterexample, says nothing of float32, and has no margin")
        evidence = piece if isinstance(piece, Claim | Counterexample) else piece.tree()
        return Proof(statement=self.statement, evidence=evidence, float32=self.float32, margin=self.margin)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class CertificateFile(EnvelopeFile):
    format: Literal["verifair-certificate/3"]
    query: Annotated[Query, Field(discriminator="kind")]
    proofs: list[ProofFile]


FILE = TypeAdapter(CertificateFile)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Certificate(Envelope):
    """Proofs about one model and one schema.

    proofs: of statements, by a tree, a solver's claim or a counterexample.   depends: the number of counterfactuals whose decision
    depends on where the coefficients are in their intervals; the file does not show these, and other kinds have none.
    """

    FORMAT = "verifair-certificate/3"
    query: Query
    proofs: tuple[Proof, ...] = field(repr=False)
    depends: int = 0

    @property
    def trust(self) -> Trust:
        has_claim = any(isinstance(proof.evidence, Claim) for proof in self.proofs)
        return Trust.CLAIMED if has_claim else Trust.CHECKED

    @property
    def unit(self) -> str:
        """The unit of the numbers in the extent."""
        if not isinstance(self.query, CounterfactualQuery):
            return "statements"
        return "counterfactuals" if self.query.categories else "rows"  # a row has one counterfactual for each choice of categories

    def _answered(self) -> dict[str, int]:
        if isinstance(self.query, CounterfactualQuery):
            statements = (proof.statement for proof in self.proofs)
            decided = {
                (s.row, s.also, s.categories)
                for s in statements if isinstance(s, CounterfactualStatement) and s.goal == "counterfactual"
            }
            return {"proved": len(decided), "refuted": self.depends}
        count = Counter(type(proof.evidence) for proof in self.proofs)
        return {"proved": count[Tree], "claimed": count[Claim], "refuted": count[Counterexample]}

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
        depends = file.extent.refuted if isinstance(file.query, CounterfactualQuery) else 0
        return file, {"proofs": tuple(proofs), "depends": depends}
