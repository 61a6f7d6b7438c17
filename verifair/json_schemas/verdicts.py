"""certify in its four modes, kmax, verify: what is decided by proof or by exact counterexample."""

from __future__ import annotations

from typing import Literal

from verifair.json_schemas.words import (
    Answer,
    Count,
    Seconds,
)


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
