"""The report of a check: how many proofs were checked, and what is wrong with which of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from verifair.checker.certificates.extent import Extent

NOTHING_DECIDED = "nothing in it is decided, so it states nothing; go on with certify --resume"
Progress = Callable[[int, int], None]
"""Called with (done, total)."""
Spread = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]]
"""Calls a function with each of these arguments, here (`itertools.starmap`) or elsewhere, and yields the results in any order."""
Batches = Callable[[Callable[..., tuple[int, Any]], Iterable[tuple[Any, ...]], int], Iterator[Any]]
"""The same for a function that also returns how much work it did, of the given total; reports the progress by itself."""


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A flaw: the reason, and the position of the proof (None: the certificate as a whole)."""

    proof: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.proof is None else f"proof {self.proof}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The result of checking a file.   proofs, leaves: numbers of those checked.

    extent: how much of the question is answered, counted from the file.   unit: what is counted.
    partial: a file that leaves a part of its question open was to be accepted, too.
    refuted: number of counterexamples.   format: of the file.   statement: what it states, in words.
    float32: number of proofs that are certified for float32 (a wrong one is a rejection). None: this kind of proof is about the
    real-valued function only.
    """

    proofs: int
    leaves: int
    rejections: tuple[Rejection, ...]
    seconds: float
    extent: Extent
    unit: str
    partial: bool = False
    float32: int | None = None
    refuted: int = 0
    format: str = ""
    statement: str = ""

    @property
    def claimed(self) -> int:
        """Number of statements that are only claimed by a solver, and not proved again."""
        return self.extent.claimed

    @property
    def accepted(self) -> bool:
        """True if everything that the file states was proved again, and it answers the whole question (or `partial` was given)."""
        return not self.rejections and (self.partial or self.extent.whole)

    @property
    def missing(self) -> str | None:
        """The part of its question that the file leaves open, in words; None if it answers all of it."""
        left = self.extent
        if left.whole:
            return None
        counts = [(left.not_reached, "not reached"), (left.undecided, "undecided")]
        counted = ", ".join(f"{count:,} {word}" for count, word in counts if count)
        return f"{left.decided:,} of {left.total:,} {self.unit} are decided; {counted}"

    @property
    def verdict(self) -> str:
        """The result in capitals, such as ACCEPTED."""
        if not self.rejections:
            return "ACCEPTED" if self.extent.whole else "PARTIALLY ACCEPTED" if self.partial else "INCOMPLETE"
        if [rejection.reason for rejection in self.rejections] == [NOTHING_DECIDED]:
            return "NOTHING TO ACCEPT"
        # A solver's claim cannot be proved again: such a certificate is neither confirmed nor refuted.
        only_claims = len(self.rejections) == self.claimed > 0 and all(rejection.proof is not None for rejection in self.rejections)
        return "CLAIMED, NOT RE-PROVABLE" if only_claims else "REJECTED"

    @property
    def left_out(self) -> str:
        """The part of its question that the statement leaves out, and what follows; empty if it answers all of it."""
        if self.missing is None:
            return ""
        return f"{self.missing}; {'nothing more is stated' if self.partial else '--partial accepts what it does state'}"

    @classmethod
    def of(
        cls, rejections: Iterable[Rejection], *, proofs: int, leaves: int, started: float, extent: Extent, unit: str,
        float32: int | None = None, refuted: int = 0,
    ) -> CheckReport:
        """Return the report of a check that began at `started` (`time.perf_counter`), its rejections in the order of the proofs."""
        ordered = tuple(sorted(rejections, key=lambda rejection: -1 if rejection.proof is None else rejection.proof))
        seconds = time.perf_counter() - started
        return cls(
            proofs=proofs, leaves=leaves, rejections=ordered, seconds=seconds, extent=extent, unit=unit, float32=float32,
            refuted=refuted,
        )
