"""The result of PBA: verdicts by row, and scores by group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field, InstanceOf

from encoders.model import Model
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.store import Verdicts
from verifair.engine.verdict import Reason, Status
from verifair.schema.schema import Schema
from verifair.systems.pba.stream import TableStream, sensitive_of
from verifair.systems.results.result import Count, Result, RowsOf, Shape, Share


class StatusCounts(Shape):
    proved: Count
    violated: Count
    unknown: Count


class Rate(Shape):
    """A group fairness rate beside PBA (SP, TPR, FPR or CFA), measured on the rows."""

    sensitive: str
    """A feature, or several: "sex & race" are the groups of both together."""
    metric: Literal["SP", "TPR", "FPR", "CFA"]
    group: str
    value: Share | None
    """Null: the group has no such rows; of CFA, no counterfactual that the schema's constraints allow."""
    rows: Count
    """Number of rows; for CFA, of pairs of a row and a counterfactual."""
    low: float | None
    """Wilson's 95 % interval; null for CFA, whose pairs share rows."""
    high: float | None
    ranked: bool
    """True if the group has enough rows to be compared."""


class RateGap(Shape):
    """The gap between the highest and the lowest group among those with enough rows; null if fewer than two have."""

    sensitive: str
    metric: Literal["SP", "TPR", "FPR"]
    lowest: str | None
    highest: str | None
    gap: float | None
    low: float | None
    """Lower end of Newcombe's 95 % interval, for all pairs of groups at once (Bonferroni)."""
    high: float | None
    groups: Count
    """Compared."""
    small: Count
    """Groups that are too small."""


class BiasShare(Shape):
    """Numbers of rows that are proved, refuted and unknown."""

    sensitive: str
    metric: Literal["PBA", "RB"]
    setting: Literal["observed", "flipped"]
    delta: float
    """In units of the schema."""
    group: str
    to: str
    """The counterfactual's group."""
    shown: str
    label: str
    """The rows' true class."""
    rows: Count
    proved: Count
    violated: Count
    unknown: Count


class BiasedPeople(Shape):
    """Number of rows with a persistent bias against at least one other value."""

    sensitive: str
    delta: float
    people: Count
    """Rows of which it was asked."""
    proved: Count
    """People with a proved bias against some other value, in one of the directions."""
    unknown: Count
    """Nothing is proved, and some question is not decided."""


class BiasVerdict(Shape):
    """One question about one row."""

    sensitive: str
    goal: Literal["observed", "flipped", "robust", "robust-flipped"]
    delta: float
    row: Count
    """Position in the table."""
    to: str | int | float | None
    """The counterfactual's value in the schema's words; the row's own where none is involved."""
    against: str
    """The other class."""
    group: str | int | float | None
    """The row's own value."""
    label: str
    """Its true class."""
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
    float32: Annotated[Literal[0, 1] | bool | None, Field(description="Whether a proof is certified for float32; null: no proof.")]


class StoredVerdicts(Shape):
    """The store of verdicts that are too many for a list."""

    file: str
    """SQLite. Its table `verdicts` has a line for each."""
    runs: list[str]
    """Values of its column `run` for this answer."""
    verdicts: Count


MAX_LISTED = 100_000
"""Verdicts that the JSON lists; more are in the store alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """One decided query of one feature, and its verdicts."""

    query: PersistentBias | Robustness
    verdicts: Verdicts

    @property
    def sensitive(self) -> str:
        return sensitive_of(self.query)

    @property
    def is_bias(self) -> bool:
        return isinstance(self.query, PersistentBias)


class PbaResult(Result):
    """`verifair pba`: persistent bias and robustness bias, for every row of a table."""

    query: Literal["pba"] = "pba"
    counts: StatusCounts
    rates: Annotated[pd.DataFrame, RowsOf(Rate)]
    gaps: Annotated[pd.DataFrame, RowsOf(RateGap)]
    shares: Annotated[pd.DataFrame, RowsOf(BiasShare)]
    biased: Annotated[pd.DataFrame, RowsOf(BiasedPeople)]
    verdicts: Annotated[pd.DataFrame, RowsOf(BiasVerdict)] | None
    """Null where there are more than 100,000."""
    stored: StoredVerdicts | None
    """Where these are; null where all are listed, or nobody named a store or a folder to keep them."""
    network: InstanceOf[Model] = Field(exclude=True)
    described: Schema = Field(exclude=True)
    people: InstanceOf[TableStream] = Field(exclude=True)
    asked: tuple[InstanceOf[Asked], ...] = Field(exclude=True)
    rows: str = Field(exclude=True)
    """The audited rows, in words."""

    @cached_property
    def tally(self) -> pd.DataFrame:
        """Return the number of verdicts (`number`) by status, reason, trust, float32 and float32_agrees."""
        parts = [asked.verdicts.tally("status", "reason", "trust", "float32", "float32_agrees") for asked in self.asked]
        return pd.concat(parts, ignore_index=True)

    @property
    def protected(self) -> list[str]:
        return list(dict.fromkeys(asked.sensitive for asked in self.asked))

    def suffix(self, name: str) -> str:
        """Return the suffix of file names that distinguishes several protected features."""
        return f"-{name.replace(' & ', '-')}" if len(self.protected) > 1 else ""


ANSWERS = {"pba": PbaResult}
