"""What a check answers: the proofs that were looked at, and what is wrong with which of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Progress = Callable[[int, int], None]
"""Called with what is done, and all there is to do."""


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """What is wrong, and in which proof (its position; None: the certificate as a whole)."""

    proof: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.proof is None else f"proof {self.proof}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """proofs and leaves that were looked at; claimed: statements that only a solver vouches for, which nobody re-proved.

    refuted: of the proofs, those that are counterexamples.
    float32: proofs that claim to be certified for float32; a claim that does not stand is a rejection. None: this kind of proof is
    about the real-valued function only.
    """

    proofs: int
    leaves: int
    claimed: int
    rejections: tuple[Rejection, ...]
    seconds: float
    float32: int | None = None
    refuted: int = 0

    @property
    def accepted(self) -> bool:
        """Every statement of the certificate was re-proved."""
        return not self.rejections

    @classmethod
    def of(
        cls, rejections: Iterable[Rejection], *, proofs: int, leaves: int, started: float, claimed: int = 0,
        float32: int | None = None,
    ) -> CheckReport:
        """Return the report of a check that began at `started` (`time.perf_counter`), its rejections in the order of the proofs."""
        ordered = tuple(sorted(rejections, key=lambda one: -1 if one.proof is None else one.proof))
        seconds = time.perf_counter() - started
        return cls(proofs=proofs, leaves=leaves, claimed=claimed, rejections=ordered, seconds=seconds, float32=float32)
