"""Certificates of group counterfactuals (FGCE). Each proves that a choice of rows of a table is the best one for a group.

    {"format": "verifair-centers-certificate/1", "network_sha256", "schema_sha256", "semantics", "query", "features": [names],
     "extent", "rows": [[raw values]], "groups": {name: {"chosen", "value", "contained", "steps"}}, "digest"}

What is stated is defined in `verifair.checker.kinds.centers`. value: the cost of the choice, or with a cost limit how many it
covers.   contained: [candidate, another that covers all that it covers].   steps: a tree of bounds, branch by branch, "in" before
"out"; of each the multipliers of the group's people in units of 2^-20, and what follows: -1 nothing (it is closed), -2 another
bound of the same branch, c >= 0 candidate c is in, then out. Candidates and people are counted in the order of the table's rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from encoders.arrays import Array
from verifair.checker.certificates.envelope import Envelope, EnvelopeFile, Index, Number, Text
from verifair.checker.certificates.extent import NO_MORE

UNIT = 20
"""Multipliers count in units of 2^-UNIT."""
MOST_ROWS = 8_000
"""The most rows of a table whose graph's transitive closure is computed here."""
NEAR = 1e-9
"""Share of a limit within which a distance counts as the limit: 1/3 and 1 - 2/3 are two numbers in float64."""
Costs = TypeVar("Costs", float, Array)
Units = Annotated[int, Field(strict=True, ge=0, le=1 << UNIT)]
Above = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


def up_to(limit: Costs) -> Costs:
    """Return the largest distance that counts as at most the limit; d counts as less where `up_to(d) < limit`."""
    return limit * (1 + NEAR)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class CentersQuery:
    """The question. eps: the longest move.   changes: how each feature may move.   k: the most rows that may be chosen.

    coverage: share of the group to be covered at the least cost, where max_cost is None; otherwise as many as possible are to be
    covered at that cost.   asked: group -> rows of the table that are to be helped.
    """

    kind: Literal["group-counterfactuals"]
    eps: Above
    changes: dict[str, Literal["increase", "decrease", "fixed", "free"]]
    k: Annotated[int, Field(strict=True, ge=1, le=1 << 20)]
    coverage: Annotated[float, Field(strict=True, gt=0, le=1)]
    max_cost: Above | None
    asked: dict[Text, tuple[Index, ...]] = Field(min_length=1)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class Step:
    multipliers: list[Units]
    split: Annotated[int, Field(strict=True, ge=-2, lt=1 << 31)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class GroupProof:
    chosen: tuple[Index, ...]
    value: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
    contained: list[tuple[Index, Index]]
    steps: list[Step]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class CentersFile(EnvelopeFile):
    format: Literal["verifair-centers-certificate/1"]
    query: CentersQuery
    rows: list[tuple[Number, ...]] = Field(min_length=1)
    groups: dict[Text, GroupProof]


FILE = TypeAdapter(CentersFile)
GROUPS = TypeAdapter(dict[str, GroupProof])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CentersCertificate(Envelope):
    """rows: (N, V) raw, of the whole table.   groups: name -> the statement about it, with its proof."""

    FORMAT = "verifair-centers-certificate/1"
    query: CentersQuery
    rows: Array = field(repr=False)
    groups: dict[str, GroupProof] = field(repr=False)

    def _answered(self) -> dict[str, int]:
        return {"proved": len(self.groups)}

    def _content(self) -> dict[str, Any]:
        return {"rows": self.rows.tolist(), "groups": GROUPS.dump_python(self.groups, mode="json")}

    @classmethod
    def _parsed(cls, raw: Any) -> tuple[EnvelopeFile, dict[str, Any]]:
        file = FILE.validate_python(raw)
        if {len(row) for row in file.rows} != {len(file.features)}:
            raise ValueError("its rows have not one value for each feature")
        return file, {"rows": np.array(file.rows, dtype=np.float64), "groups": file.groups}
