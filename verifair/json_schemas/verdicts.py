"""certify in its four modes, kmax, verify: what is decided by proof or by exact counterexample."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from verifair.engine.verdict import Reason, Status
from verifair.json_schemas.words import (
    About,
    Answer,
    Count,
    FairnessQuery,
    GapQuery,
    Seconds,
    Seed,
    Sha256,
    Shape,
    Share,
    VerdictShape,
    Witness,
)
from verifair.systems.result import Gap

EVIDENCE: dict[str, Any] = {
    "oneOf": [
        {
            "properties": {
                "status": {"const": status.value},
                **{
                    name: {"not": {"type": "null"}} if name == evidence else {"type": "null"}
                    for name in ("certificate", "witness", "reason")
                },
            }
        }
        for status, evidence in ((Status.PROVED, "certificate"), (Status.VIOLATED, "witness"), (Status.UNKNOWN, "reason"))
    ]
}
"""Each status has exactly its evidence."""


class Certify(VerdictShape, Answer):
    """`verifair certify`: one box."""

    model_config = ConfigDict(json_schema_extra=EVIDENCE)

    model_sha256: Sha256
    schema_sha256: Sha256
    query: FairnessQuery
    seed: Seed


class TargetedVerdict(VerdictShape):
    model_config = ConfigDict(json_schema_extra=EVIDENCE)

    targeted: str
    """The sub-population, as it was written."""
    query: FairnessQuery
    certificate_file: str | None


class CertifyTargeted(Answer):
    """`verifair certify --targeted`: several boxes."""

    verdicts: list[TargetedVerdict]
    interrupted: bool
    """After Ctrl-C: sub-populations without a verdict are undecided."""
    model_sha256: Sha256
    schema_sha256: Sha256
    seed: Seed


class PartCounts(Shape):
    all: Count
    proved: Count
    violated: Count
    """Each holds a pair that is treated differently."""
    unknown: Count
    not_reached: Count


class RowCounts(PartCounts):
    outside: Count
    """Rows outside the schema's domain or the box."""


class VolumeShares(Shape):
    """Of the domain, or of its parts."""

    proved: Share
    violated: Share
    unknown: Share
    not_reached: Share


class RowShares(VolumeShares):
    outside: Share


class Shares(Shape):
    parts: VolumeShares
    volume: VolumeShares
    rows: RowShares | None


class Block(Shape):
    """Along one feature: how many parts lie in each interval, and how they were decided."""

    feature: str
    low: list[float]
    high: list[float]
    proved: list[Count]
    violated: list[Count]
    unknown: list[Count]


class TrustCounts(Shape):
    checked: Count
    claimed: Count


class Float32Counts(Shape):
    """Whether onnxruntime shows the witnesses too."""

    agrees: Count
    disagrees: Count
    not_replayed: Count


class CertifyPartition(About):
    """`verifair certify --partition`: every part of a domain, and which share of it is certified."""

    parts: PartCounts
    rows: RowCounts | None
    """Of the table; null without --data."""
    shares: Shares
    reasons: dict[Reason, Count]
    """Why parts are unknown."""
    trust: TrustCounts
    float32: Float32Counts
    nodes: Count
    """Boxes bounded."""
    work_seconds: Seconds
    """Of all processes and all runs together."""
    blocks: list[Block]
    examples: list[Witness]
    stopped: Literal["done", "limit", "interrupted"]
    store: str
    """The SQLite file of verdicts and proofs."""
    size: Any
    query: FairnessQuery
    semantics: str


class CertifyMaximise(Gap, About):
    """`verifair certify --maximise`: the largest gap between two people whom the query compares."""

    query: GapQuery
    tolerance: float


class Verify(Answer):
    """`verifair verify`: a VNN-LIB query."""

    query: str
    answer: str
    """In VNN-COMP's words; sat: an assignment was found, unsat: there is none."""
    reason: str | None
    assignment: list[str] | None
    """Lines in VNN-LIB's form."""
    float32_agrees: bool | None
    cases: Count
    engines: list[str]
    trust: Literal["proved", "claimed"] | None
    """Of an unsat."""
    claimed: list[str]
    """Solvers on whose word an unsat rests."""
    rounded: list[str]
    """What was rounded when the network was folded."""
    seconds: Seconds
