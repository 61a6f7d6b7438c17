"""Results of certify: a verdict, verdicts of several boxes, counterexamples, the largest gap, or shares of points or of parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import ConfigDict, Field, InstanceOf, WithJsonSchema, computed_field

from encoders.arrays import Array, Integers
from verifair.checker.certificates.share import ShareCertificate
from verifair.engine.counterexamples import Counterexamples
from verifair.engine.gap.maximise import MaximumGap
from verifair.engine.queries import IndividualFairness, ProbabilityGap
from verifair.engine.verdict import Reason, Status, Verdict
from verifair.notebook.pictures import shares
from verifair.notebook.shown import Pictured
from verifair.systems.results.result import Count, Result, Seconds, Shape, Share
from verifair.systems.results.verdicts import CertificateNote, FairnessQuery, Gap, GapQuery, VerdictShape, WitnessShape

EXIT_CODES = {Status.PROVED: 0, Status.VIOLATED: 10, Status.UNKNOWN: 20}
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
Numbers = Annotated[Array, WithJsonSchema({"type": "array", "items": {"type": "number"}})]
Counts = Annotated[Integers, WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0}})]


# One box


class VerdictResult(VerdictShape, Result):
    """`verifair certify`: one box."""

    model_config = ConfigDict(json_schema_extra=EVIDENCE)

    query: FairnessQuery
    question: InstanceOf[IndividualFairness] = Field(exclude=True)
    verdict: InstanceOf[Verdict] = Field(exclude=True)
    proof_line: str | None = Field(exclude=True)
    """The file of the certificate, or the reason that there is none; null if not asked for."""


# Several boxes


class TargetedVerdict(VerdictShape):
    model_config = ConfigDict(json_schema_extra=EVIDENCE)

    targeted: str
    """The sub-population, as it was written."""
    query: FairnessQuery
    certificate_file: str | None


class TargetedResult(Result):
    """`verifair certify --targeted`: several boxes."""

    seconds: Seconds = Field(exclude=True)
    verdicts: list[TargetedVerdict]
    question: InstanceOf[IndividualFairness] = Field(exclude=True)
    proof_lines: tuple[str, ...] = Field(exclude=True)
    """The files of the certificates, and the reasons for missing ones."""

    def to_frame(self) -> pd.DataFrame:
        """Return a line for each sub-population: its verdict, or the reason that it has none."""
        lines = [{"targeted": v.targeted, "status": v.status.value, "reason": v.reason} for v in self.verdicts]
        return pd.DataFrame(lines)

    @computed_field(alias="interrupted")  # type: ignore[prop-decorator]
    @property
    def was_interrupted(self) -> bool:
        """True after Ctrl-C: sub-populations without a verdict are then undecided."""
        return self.interrupted is not None


# Who is treated differently


class EnumerationResult(Result):
    """`verifair certify --enumerate`: people who are treated differently, each with one partner."""

    query: FairnessQuery
    wanted: Count
    """Number asked for."""
    counterexamples: list[WitnessShape]
    """Each a person: another one differs in more than the protected features."""
    complete: bool
    """There are no others, but for those within `apart` of one of these."""
    rests_on: Literal["certificate", "search", "solver"] | None
    """What that rests on: a certificate, where there is nobody; the engine's bounds, of which no file is kept; or a solver's word.
    Null: there may be others."""
    apart: dict[str, float]
    """Real feature -> within this of somebody listed nobody else is looked for."""
    reason: Reason | None
    """Why the search ended before it had found all, or as many as were asked for; null: it had."""
    first_seconds: Seconds | None
    """Until the first was found."""
    certificate: CertificateNote | None
    engine: str
    semantics: str
    question: InstanceOf[IndividualFairness] = Field(exclude=True)
    enumeration: InstanceOf[Counterexamples] = Field(exclude=True)
    proof_line: str | None = Field(exclude=True)


# The largest gap


class MaximumResult(Gap, Result):
    """`verifair certify --maximise`: the largest gap between two people whom the query compares."""

    query: GapQuery
    tolerance: float
    question: InstanceOf[ProbabilityGap] = Field(exclude=True)
    gap: InstanceOf[MaximumGap] = Field(exclude=True)
    proof_line: str | None = Field(exclude=True)


# The share of a box


class ShareRows(Shape):
    """Rows of the table, each decided exactly."""

    fair: Count
    unfair: Count
    outside: Count
    """Outside the schema's domain or the box, or without legal rows to compare."""


class ShareSample(Shape):
    """Random points of the domain, each decided exactly: a measurement, no proof."""

    points: Count
    unfair: Count
    low: Share
    """Lower end of the 95 % interval of the unfair share (Wilson)."""
    high: Share


class SharePoint(Shape):
    """The shares shown so far, at a time of all runs together; estimates, except for the last point of a run."""

    seconds: Seconds
    fair: Share
    unfair: Share


class ShareResult(Result):
    """`verifair certify --share`: bounds on the shares of all points that are treated fairly and unfairly."""

    query: FairnessQuery
    tolerance: float
    fair: Share
    """Lower bound."""
    unfair: Share
    """Lower bound."""
    reason: Reason | None
    """The reason that more than the tolerance is open; null if it is not."""
    cells: Count
    rows: ShareRows | None
    """Rows of the table; null without --data."""
    sample: ShareSample | None
    """Null if no more than the tolerance is open, and after Ctrl-C."""
    history: list[SharePoint]
    store: str
    """File of the certificate, from which --resume continues."""
    semantics: str
    question: InstanceOf[IndividualFairness] = Field(exclude=True)
    certificate: InstanceOf[ShareCertificate] = Field(exclude=True)
    proof_line: str = Field(exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def open(self) -> Share:
        """The share that is shown neither fair nor unfair."""
        return max(0.0, 1 - self.fair - self.unfair)


# Every part of a box


class Named(Shape):
    """Numbers by name, which can also be read as from a dictionary."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


class VolumeShares(Named):
    """Shares of the domain, or of its parts."""

    unknown: Share
    proved: Share
    violated: Share
    not_reached: Share


class RowShares(VolumeShares):
    outside: Share


class PartCounts(Named):
    unknown: Count
    proved: Count
    violated: Count
    """Each holds a pair that is treated differently."""
    not_reached: Count

    @computed_field  # type: ignore[prop-decorator]
    @property
    def all(self) -> Count:
        return sum(dict(self).values())

    @property
    def shares(self) -> VolumeShares:
        kind = RowShares if isinstance(self, RowCounts) else VolumeShares
        return kind(**{name: count / max(self.all, 1) for name, count in self})


class RowCounts(PartCounts):
    outside: Count
    """Rows outside the schema's domain or the box."""


class Shares(Named):
    parts: VolumeShares
    volume: VolumeShares
    rows: RowShares | None


class Block(Shape):
    """The parts by intervals of one feature: their number in each interval, and their verdicts."""

    feature: str
    low: Numbers
    high: Numbers
    unknown: Counts
    proved: Counts
    violated: Counts

    @property
    def parts(self) -> Integers:
        """(B,) parts that were reached."""
        return np.asarray(self.unknown + self.proved + self.violated)

    @property
    def refuted(self) -> Array:
        """(B,) share of the reached parts that are refuted; NaN where none was reached."""
        return np.where(self.parts > 0, self.violated / np.maximum(self.parts, 1), np.nan)

    @property
    def variation(self) -> tuple[float, float]:
        """Return the variance of the refuted share over the blocks, minus its expectation by chance; and the variance itself. For
        ranking."""
        reached = self.parts
        is_reached, count = reached > 0, max(int(reached.sum()), 1)
        mean = float(self.violated.sum() / count)
        variance = float((reached[is_reached] * (self.refuted[is_reached] - mean) ** 2).sum() / count)
        return variance - mean * (1 - mean) * (int(is_reached.sum()) - 1) / count, variance


class TrustCounts(Named):
    checked: Count
    claimed: Count


class Float32Counts(Named):
    """Numbers of witnesses by whether onnxruntime shows them too."""

    agrees: Count
    disagrees: Count
    not_replayed: Count


class PartitionSummary(Pictured, Shape):
    """Results of a partition: counts of parts, and shares of the domain.

    volume: share of the box's points (of the length, for real features).   examples: counterexamples with the largest change."""

    about: dict[str, Any] = Field(exclude=True, repr=False)
    volume: VolumeShares = Field(exclude=True)
    parts: PartCounts
    rows: RowCounts | None
    """Numbers of rows of the table; null without --data."""
    reasons: dict[Reason, Count]
    """Numbers of unknown parts by reason."""
    float32: Float32Counts
    certified_for_float32: Count
    """Proved parts all of whose proofs hold for every float32 evaluation; the others are about the real-valued function only."""
    nodes: Count
    """Boxes bounded."""
    work_seconds: Seconds
    """Seconds of work of all processes and all runs together."""
    blocks: tuple[Block, ...] = Field(repr=False)
    """The blocks of each feature that is cut into at most 65,536."""
    examples: tuple[WitnessShape, ...] = Field(repr=False)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shares(self) -> Shares:
        rows = None if self.rows is None else self.rows.shares
        return Shares.model_construct(parts=self.parts.shares, volume=self.volume, rows=rows)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def trust(self) -> TrustCounts:
        """Number of parts by the evidence of their proofs; a store holds trees only, so no proof is a solver's claim."""
        return TrustCounts(checked=self.parts.proved, claimed=0)

    def to_frame(self) -> pd.DataFrame:
        """Return a table of shares: one row for parts, one for volume, and one for the rows of a table if one was given."""
        measured = {name: share.model_dump() for name, share in self.shares if share is not None}
        return pd.DataFrame.from_dict(measured, orient="index")

    def _draw(self, path: Path) -> None:
        volume = self.volume
        parts = {"fair": volume.proved, "open": volume.unknown + volume.not_reached, "not fair": volume.violated}
        shares(parts, "share of the domain", path)


class PartitionResult(PartitionSummary, Result):
    """`verifair certify --partition`: the verdicts of all parts of a domain, and the certified share."""

    stopped: Literal["done", "limit", "interrupted"]
    store: str
    """The SQLite file of verdicts and proofs."""
    size: int
    query: FairnessQuery
    semantics: str
    question: InstanceOf[IndividualFairness] = Field(exclude=True)
    proof_line: str = Field(exclude=True)


CertifyResult = VerdictResult | TargetedResult | EnumerationResult | MaximumResult | PartitionResult | ShareResult


ANSWERS = {
    "certify": VerdictResult, "certify-targeted": TargetedResult, "certify-partition": PartitionResult,
    "certify-maximise": MaximumResult, "certify-enumerate": EnumerationResult,
    "certify-share": ShareResult,
}
