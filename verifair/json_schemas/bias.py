"""pba: verdicts by row, and scores by group."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from verifair.engine.verdict import Reason, Status
from verifair.json_schemas.words import About, Count, Shape, Share


class StatusCounts(Shape):
    proved: Count
    violated: Count
    unknown: Count


class Rate(Shape):
    """A companion of PBA, measured on the rows."""

    sensitive: str
    metric: Literal["SP", "TPR", "FPR", "CFA"]
    group: str
    value: Share | None
    """Null: the group has no such rows."""
    rows: Count


class BiasShare(Shape):
    """How many rows are proved, refuted and unknown."""

    sensitive: str
    metric: Literal["PBA", "RB"]
    setting: Literal["observed", "flipped"]
    delta: float
    """In units of the schema."""
    group: str
    to: str
    """The counterfactual's group."""
    shown: str
    label: int
    rows: Count
    proved: Count
    violated: Count
    unknown: Count


class BiasVerdict(Shape):
    """One question about one row."""

    sensitive: str
    goal: Literal["observed", "flipped", "robust", "robust-flipped"]
    delta: float
    row: Count
    """Position in the table."""
    to: float | None
    """The counterfactual's raw value; the row's own where none is involved."""
    against: Count
    """The other class."""
    group: float | None
    """The row's own raw value."""
    label: int
    status: Status
    reason: Reason | Literal[""]
    lower: float | None
    """Certified lower bound of what has to stay positive."""
    upper: float | None
    engine: str
    trust: Literal["checked", "claimed", ""]
    float32_agrees: Annotated[Literal[0, 1] | bool | None, Field(description="Whether onnxruntime shows the witness too.")]
    nodes: Count
    witness: str | None
    """JSON: raw values of the row that refutes."""
    margins: str | None
    claim: str | None
    """JSON: backend, version and tolerance of a proof that only a solver claims."""


class Pba(About):
    """`verifair pba`: persistent bias and robustness bias, for every row of a table."""

    query: Literal["pba"]
    counts: StatusCounts
    rates: list[Rate]
    shares: list[BiasShare]
    verdicts: list[BiasVerdict]
