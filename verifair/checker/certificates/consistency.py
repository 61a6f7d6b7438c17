"""Certificates of explanation consistency: pairs of people who get one decision for similar reasons even if both move a little.

Rows are in raw units and schema order, baselines in network inputs:

    {"format": "verifair-consistency-certificate/3", "network_sha256", "schema_sha256", "semantics",
     "query": {"kind", "delta", "threshold", "epsilon"}, "features": [names], "extent", "baselines": [[...]],
     "pairs": [{"row", "counterpart", "baseline", "tree"}], "digest"}

`verifair.checker.kinds.consistency` defines what it states, and what a tree proves. The neighbourhoods are not in it: they follow
from rows, delta and schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from encoders.arrays import Array, Integers
from verifair.checker.certificates.envelope import Distance, Envelope, EnvelopeFile, Index, Number
from verifair.checker.certificates.extent import NO_MORE
from verifair.checker.certificates.tree import Tree, TreeFile

Share = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class ConsistencyQuery:
    """The question. delta: units by which both people may move.   threshold: of the score.   epsilon: in the score's norms."""

    kind: Literal["explanation-consistency"]
    delta: Distance
    threshold: Share
    epsilon: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class PairFile:
    row: list[Number]
    counterpart: list[Number]
    baseline: Index
    tree: TreeFile


@validated(frozen=True, kw_only=True, config=NO_MORE)
class ConsistencyFile(EnvelopeFile):
    format: Literal["verifair-consistency-certificate/3"]
    query: ConsistencyQuery
    baselines: list[list[Number]]
    pairs: list[PairFile]


FILE = TypeAdapter(ConsistencyFile)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConsistencyCertificate(Envelope):
    """P pairs that are in regime A (same decision, same reasons) in their whole neighbourhoods.

    baselines: (K, n_0) network inputs.   rows, counterparts: (P, V) raw.   baseline: (P,) positions in baselines.   trees: one for
    each pair, over 2 V features: those of the person, then those of the counterpart.
    """

    FORMAT = "verifair-consistency-certificate/3"
    query: ConsistencyQuery
    baselines: Array
    rows: Array
    counterparts: Array
    baseline: Integers
    trees: tuple[Tree, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def _answered(self) -> dict[str, int]:
        return {"proved": len(self)}

    def _content(self) -> dict[str, Any]:
        trees = [tree.to_dict() for tree in self.trees]
        columns = {"row": self.rows.tolist(), "counterpart": self.counterparts.tolist(), "baseline": self.baseline.tolist()}
        pairs = zip(*columns.values(), trees, strict=True)
        return {"baselines": self.baselines.tolist(), "pairs": [dict(zip((*columns, "tree"), pair, strict=True)) for pair in pairs]}

    @classmethod
    def _parsed(cls, raw: Any) -> tuple[EnvelopeFile, dict[str, Any]]:
        file = FILE.validate_python(raw)
        return file, _arrays(file)


def _arrays(file: ConsistencyFile) -> dict[str, Any]:
    width = {len(baseline) for baseline in file.baselines}
    if len(width) > 1:
        raise ValueError("the baselines have different lengths")
    for number, pair in enumerate(file.pairs):
        if not len(pair.row) == len(pair.counterpart) == len(file.features):
            raise ValueError(
                f"pair {number}: row and counterpart have {len(pair.row)} and {len(pair.counterpart)} values, the certificate "
                f"{len(file.features)} features"
            )
        if pair.baseline >= len(file.baselines):
            raise ValueError(f"pair {number}: there is no baseline {pair.baseline}")
    shape = len(file.pairs), len(file.features)
    return {
        "baselines": np.array(file.baselines, dtype=float).reshape(len(file.baselines), max(width, default=0)),
        "rows": np.array([pair.row for pair in file.pairs], dtype=float).reshape(shape),
        "counterparts": np.array([pair.counterpart for pair in file.pairs], dtype=float).reshape(shape),
        "baseline": np.array([pair.baseline for pair in file.pairs], dtype=np.int64),
        "trees": tuple(pair.tree.tree() for pair in file.pairs),
    }
