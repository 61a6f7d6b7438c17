"""One measured run, as it is kept: who was asked what, what was said, and what that took."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictFloat, StrictInt, TypeAdapter, ValidationError

from verifair.bench.answer import Said
from verifair.bench.family import Kind

Seconds = Annotated[float, Field(strict=True, ge=0, lt=1e15)]


@dataclass(frozen=True, kw_only=True)
class Record:
    """question, subject: fingerprints (see `questions`).   repeat: 0, 1, ...   limit: seconds it was given.

    status, reason, trust, lower, upper, comparable, engine, note: see `answer.Answered`; infinite bounds are not known.
    total_seconds: from the question to the answer, on the clock.   solve_seconds: of these within the solver.   build_seconds: the
    rest: bounds, encoding, the backend's model, exact re-evaluation; both None where no solver was asked.
    peak_mb: the most resident memory that the run took beyond what its process held before, base_mb (Python, packages, question).
    """

    case: str
    family: str
    kind: Kind
    size: StrictInt
    question: str
    subject: str
    method: str
    solver: str | None
    version: str
    repeat: StrictInt
    seed: StrictInt
    limit: Seconds
    status: Said
    reason: str | None
    trust: str
    lower: StrictFloat
    upper: StrictFloat
    comparable: StrictBool
    build_seconds: StrictFloat | None
    solve_seconds: StrictFloat | None
    total_seconds: Seconds
    peak_mb: StrictFloat | None
    base_mb: StrictFloat | None
    engine: str
    note: str

    @property
    def competitor(self) -> str:
        """The competitor's name, e.g. milp:highs."""
        return self.method if self.solver is None else f"{self.method}:{self.solver}"

    @property
    def solved(self) -> bool:
        """Whether it was decided, and within the limit."""
        return self.status != "unknown" and self.total_seconds <= self.limit

    @property
    def key(self) -> tuple[str, str, int]:
        """Two records with the same key are the same measurement."""
        return self.case, self.competitor, self.repeat

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what is infinite becomes None."""
        return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Record:
        """Raises TypeError or ValueError for anything that `to_dict` did not write."""
        if not isinstance(content, dict) or set(content) != {field.name for field in fields(cls)}:
            raise ValueError("not a record of a run")
        for name, value in content.items():
            if isinstance(value, (int, float)) and not abs(value) <= sys.float_info.max:
                raise ValueError(f"{name} is no number that was measured")
            if isinstance(value, str) and not value.isprintable():
                value.encode()  # half a character, which nothing can write again
        lower, upper = content["lower"], content["upper"]
        try:
            given = {**content, "lower": -math.inf if lower is None else lower, "upper": math.inf if upper is None else upper}
            return _ADAPTER.validate_python(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


_ADAPTER = TypeAdapter(Record)
