"""Certificates of an upper bound of k-discrimination: one tree of boxes, on each of whose leaves few buckets can be hit.

The file is JSON (gzip when its name ends in .gz), in raw units and schema order like `verifair.checker.certificate`:

    {"format": "verifair-kmax-certificate/1", "network_sha256", "schema_sha256", "semantics", "query", "features": [names],
     "upper", "tree": {"feature", "cut", "bound"}, "digest"}

What it states is defined in `verifair.checker.kinds.kmax`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from verifair.checker.certificate import Tree, Trust, read, write
from verifair.checker.fields import NO_MORE, Number, Sha256, Text

FORMAT = "verifair-kmax-certificate/1"
Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class KmaxQuery:
    """What was asked.

    box: (lower, upper) of every feature that is not protected, raw, by name.
    combinations: all K rows of protected raw values, in the order of `protected`.
    """

    kind: Literal["k-discrimination"]
    protected: tuple[Text, ...] = Field(min_length=1)
    box: dict[str, tuple[Number, Number]]
    combinations: tuple[tuple[Number, ...], ...] = Field(min_length=1, max_length=100_000)
    buckets: Annotated[int, Field(strict=True, ge=2, le=1000)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _TreeFile:
    feature: list[Annotated[int, Field(strict=True, ge=-1, lt=1 << 31)]] = Field(min_length=1)
    cut: list[Number]
    bound: list[Count | None]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _File:
    format: Literal["verifair-kmax-certificate/1"]
    network_sha256: Sha256
    schema_sha256: Sha256
    semantics: Text
    query: KmaxQuery
    features: tuple[str, ...] = Field(min_length=1)
    upper: Count
    tree: _TreeFile
    digest: Sha256


_ADAPTER = TypeAdapter(_File)


@dataclass(frozen=True, kw_only=True, eq=False)
class KmaxCertificate:
    """No legal x in the query's box hits more than `upper` buckets.

    tree: as in `certificate.Tree`, but a leaf's bound is the largest number of buckets that it is claimed to hold.
    intact: False when a file's digest does not fit its content.
    """

    network_sha256: str
    schema_sha256: str
    semantics: str
    query: KmaxQuery
    features: tuple[str, ...]
    upper: int
    tree: Tree = field(repr=False)
    intact: bool = True

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
        tree = self.tree
        return {
            "format": FORMAT,
            "network_sha256": self.network_sha256,
            "schema_sha256": self.schema_sha256,
            "semantics": self.semantics,
            "query": asdict(self.query),
            "features": list(self.features),
            "upper": self.upper,
            "tree": {
                "feature": tree.feature.tolist(),
                "cut": tree.cut.tolist(),
                "bound": [None if bound != bound else int(bound) for bound in tree.bound.tolist()],
            },
        }

    def save(self, path: str | Path) -> None:
        """Write the certificate; gzip when the name ends in .gz. The same proof gives the same bytes."""
        write(path, self.payload)

    @classmethod
    def load(cls, path: str | Path) -> KmaxCertificate:
        """Read a certificate. CertificateError for anything that is not one; a wrong digest only sets intact = False."""
        (file, tree), intact = read(path, FORMAT, _parsed)
        return cls(
            network_sha256=file.network_sha256,
            schema_sha256=file.schema_sha256,
            semantics=file.semantics,
            query=file.query,
            features=file.features,
            upper=file.upper,
            tree=tree,
            intact=intact,
        )



def _parsed(raw: Any) -> tuple[_File, Tree]:
    file = _ADAPTER.validate_python(raw)
    return file, _tree(file.tree)


def _tree(file: _TreeFile) -> Tree:
    if not len(file.feature) == len(file.cut) == len(file.bound):
        raise ValueError(f"feature, cut and bound have {len(file.feature)}, {len(file.cut)} and {len(file.bound)} entries")
    for feature, bound in zip(file.feature, file.bound, strict=True):
        if (feature == -1) != (bound is not None):
            raise ValueError("a leaf needs a bound, and only a leaf has one")
    return Tree(
        feature=np.array(file.feature), cut=np.array(file.cut, dtype=float), bound=np.array(file.bound, dtype=float)
    )
