"""The extent of a file of proofs. The module imports nothing heavy: the command line shows the type in its help."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as validated

Total = Annotated[int, Field(strict=True, ge=0, le=1 << 60)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
NO_MORE = ConfigDict(extra="forbid")
COUNTED = ("total", "proved", "claimed", "refuted", "undecided", "not_reached")


@validated(frozen=True, kw_only=True, config=NO_MORE)
class Extent:
    """How much of its question a file of proofs answers, as counts in the unit of its kind (statements, rows, parts, ...).

    question_sha256: of the canonical JSON of the question, with the hashes of network and schema.   total: all that was asked.
    proved: with a proof that can be checked.   claimed: a solver says so.   refuted: false, as a rule with a counterexample.
    undecided: tried without an answer.   not_reached: not tried. The last five add up to the total.
    """

    question_sha256: Sha256
    total: Total
    proved: Total
    claimed: Total
    refuted: Total
    undecided: Total
    not_reached: Total

    @classmethod
    def of(
        cls, question: Mapping[str, Any], *, proved: int = 0, claimed: int = 0, refuted: int = 0, undecided: int = 0,
        not_reached: int = 0,
    ) -> Extent:
        """Return the extent with these counts, and with their sum as its total."""
        return cls(
            question_sha256=digest(question), total=proved + claimed + refuted + undecided + not_reached, proved=proved,
            claimed=claimed, refuted=refuted, undecided=undecided, not_reached=not_reached,
        )

    @property
    def decided(self) -> int:
        return self.proved + self.claimed + self.refuted

    @property
    def whole(self) -> bool:
        """True if everything that was asked has an answer."""
        return self.undecided == 0 and self.not_reached == 0

    def differs(self, actual: Extent) -> str | None:
        """Return in which numbers this extent, as stated, differs from the one found in the file, or None."""
        if self.question_sha256 != actual.question_sha256:
            return "its question is not the one that its counts are about: the file was changed"
        wrong = [name for name in COUNTED if getattr(self, name) != getattr(actual, name)]
        if not wrong:
            return None
        stated_counts = ", ".join(f"{getattr(self, name):,} {name.replace('_', ' ')}" for name in wrong)
        actual_counts = ", ".join(f"{getattr(actual, name):,}" for name in wrong)
        return f"it states {stated_counts}, but what it holds makes {actual_counts}"


def digest(payload: Mapping[str, Any]) -> str:
    """Return the sha256 of the canonical JSON: sorted keys, no spaces. Raises ValueError for numbers that are not finite."""
    return hashlib.sha256(json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()
