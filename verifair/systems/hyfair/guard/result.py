"""The result of `guard`: the networks written, and their effects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, InstanceOf

from encoders.arrays import Array
from verifair.engine.queries import KDiscrimination
from verifair.systems.hyfair.explain.rules_file import RuleFile
from verifair.systems.hyfair.guard.effects import Effect
from verifair.systems.hyfair.guard.tighten import Tightened
from verifair.systems.results.result import Count, Seconds, Seed, Shape, Share, SystemAnswer
from verifair.systems.results.verdicts import Gap


class CertifiedGap(Shape):
    """The result of --target: a proof that no larger gap is left outside the rules."""

    upper: float
    """Certified: the target."""
    before: Gap
    """The largest gap without the new rules, from both sides."""
    boxes: Count
    """That were proved; the rest is refused."""
    domain: Share
    """Of the domain that these boxes cover; rules that were given, and rounding to float32, may refuse a part of them."""
    open: Count
    """Rows of the table in boxes that were refused because they were not decided in time."""


class InstanceCounts(Shape):
    people: Count
    rows: Count


class GuardResult(SystemAnswer):
    """`verifair guard`: a network that refuses the inputs that rules describe."""

    guarded: str
    """The ONNX file."""
    schema_file: Annotated[str, Field(alias="schema")]
    rules: list[str]
    certified: CertifiedGap | None
    retrained: str | None
    instances: InstanceCounts | None
    """Added for retraining."""
    effects: list[Effect]
    seconds: Seconds
    seed: Seed
    query: InstanceOf[KDiscrimination] = Field(exclude=True)
    given: RuleFile = Field(exclude=True)
    tightened: InstanceOf[Tightened] | None = Field(exclude=True)
    raw: Array | None = Field(exclude=True)
    earlier: int = Field(exclude=True)
    """Rules of the guardrail that the schema was made for."""
    model: Path = Field(exclude=True)
    certificate: Path | None = Field(exclude=True)


ANSWERS = {"guard": GuardResult}
