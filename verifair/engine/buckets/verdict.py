"""The answer to a kmax query: bounds, witness, certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from encoders.network import Array
from verifair.checker.kmax_certificate import KmaxCertificate
from verifair.engine.verdict import Reason


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One protected combination at the witness, in the schema's words. bucket: None where the row is not legal."""

    combination: dict[str, Any]
    logit: float
    bucket: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class KmaxVerdict:
    """lower <= kmax <= upper.

    lower: k at the witness, exactly.   upper: certified, never above min(K, buckets).   x: (V,) raw witness, its protected
    entries those of the first legal combination.   witness: the same in the schema's words, without the protected features.
    reason: why lower < upper (None: they are equal).   float32_agrees: whether onnxruntime, in float32, shows `lower` buckets at
    the witness too (None: no model file, or no witness).   boxes: how many were bounded.
    """

    lower: int
    upper: int
    combinations: int
    buckets: int
    witness: dict[str, Any] | None
    x: Array | None = field(repr=False)
    outcomes: tuple[Outcome, ...] = field(repr=False)
    certificate: KmaxCertificate = field(repr=False)
    float32_agrees: bool | None
    boxes: int
    seconds: float
    reason: Reason | None
    semantics: str

    def __post_init__(self) -> None:
        if (self.reason is None) != (self.lower == self.upper):
            raise ValueError("a kmax verdict needs a reason exactly when its bounds differ")
