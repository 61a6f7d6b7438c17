"""Certificates of explanation consistency: pairs of people who are decided alike, for like reasons, wherever both move a little.

The file is JSON (gzip when its name ends in .gz), in raw units and schema order like `verifair.checker.certificate`; baselines are
in network inputs:

    {"format": "verifair-consistency-certificate/1", "network_sha256", "schema_sha256", "semantics",
     "query": {"kind", "delta", "threshold", "epsilon"}, "features": [names], "baselines": [[...]],
     "pairs": [{"row", "counterpart", "baseline", "boxes"}], "digest"}

`verifair.checker.kinds.consistency` defines what it states. The neighbourhoods are not in it: they follow from rows, delta and
schema.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from encoders.network import Array, Integers
from verifair.checker.certificate import Trust, read, write
from verifair.checker.fields import NO_MORE, Distance, Index, Number, Sha256, Text

FORMAT = "verifair-consistency-certificate/1"
Share = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class ConsistencyQuery:
    """What was asked: delta units of the schema around both people, the score's threshold, and the epsilon in its norms."""

    kind: Literal["explanation-consistency"]
    delta: Distance
    threshold: Share
    epsilon: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _PairFile:
    row: list[Number]
    counterpart: list[Number]
    baseline: Index
    boxes: Annotated[int, Field(strict=True, ge=2, lt=1 << 31)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _File:
    format: Literal["verifair-consistency-certificate/1"]
    network_sha256: Sha256
    schema_sha256: Sha256
    semantics: Text
    query: ConsistencyQuery
    features: tuple[str, ...] = Field(min_length=1)
    baselines: list[list[Number]]
    pairs: list[_PairFile]
    digest: Sha256


_ADAPTER = TypeAdapter(_File)


@dataclass(frozen=True, kw_only=True, eq=False)
class ConsistencyCertificate:
    """P pairs in regime A throughout their neighbourhoods.

    baselines: (K, n_0) network inputs.   rows, counterparts: (P, V) raw.   baseline: (P,) positions in baselines.   boxes: (P,)
    that it took, a hint at how hard a pair is.   intact: False when a file's digest does not fit its content.
    """

    network_sha256: str
    schema_sha256: str
    semantics: str
    query: ConsistencyQuery
    features: tuple[str, ...]
    baselines: Array
    rows: Array
    counterparts: Array
    baseline: Integers
    boxes: Integers
    intact: bool = True

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def kind(self) -> str:
        return self.query.kind

    @property
    def trust(self) -> Trust:
        """Every bound can be re-proved: no solver's word is in it."""
        return Trust.CHECKED

    @property
    def payload(self) -> dict[str, Any]:
        """Everything but the digest, as it stands in the file."""
        columns = self.rows, self.counterparts, self.baseline, self.boxes
        names = ("row", "counterpart", "baseline", "boxes")
        pairs = zip(*(column.tolist() for column in columns), strict=True)
        return {
            "format": FORMAT,
            "network_sha256": self.network_sha256,
            "schema_sha256": self.schema_sha256,
            "semantics": self.semantics,
            "query": asdict(self.query),
            "features": list(self.features),
            "baselines": self.baselines.tolist(),
            "pairs": [dict(zip(names, pair, strict=True)) for pair in pairs],
        }

    def save(self, path: str | Path) -> None:
        """Write the certificate; gzip when the name ends in .gz. The same proof gives the same bytes."""
        write(path, self.payload)

    @classmethod
    def load(cls, path: str | Path) -> ConsistencyCertificate:
        """Read a certificate. CertificateError for anything that is not one; a wrong digest only sets intact = False."""
        (file, arrays), intact = read(path, FORMAT, _parsed)
        return cls(
            network_sha256=file.network_sha256,
            schema_sha256=file.schema_sha256,
            semantics=file.semantics,
            query=file.query,
            features=file.features,
            **arrays,
            intact=intact,
        )


def _parsed(raw: Any) -> tuple[_File, dict[str, Any]]:
    file = _ADAPTER.validate_python(raw)
    return file, _arrays(file)


def _arrays(file: _File) -> dict[str, Any]:
    width = {len(one) for one in file.baselines}
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
        "boxes": np.array([pair.boxes for pair in file.pairs], dtype=np.int64),
    }
