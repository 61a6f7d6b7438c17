"""Certificates of an upper bound of k-discrimination: one tree of boxes that bounds the number of buckets hit on every leaf.

    {"format": "verifair-kmax-certificate/3", "network_sha256", "schema_sha256", "semantics", "query", "features": [names],
     "extent", "upper", "reference", "tree": {"feature", "cut"}, "digest"}

What it states is defined in `verifair.checker.kinds.kmax`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from encoders.model import Model
from verifair.checker.certificates.envelope import Envelope, EnvelopeFile, Index, Number, Text
from verifair.checker.certificates.extent import NO_MORE
from verifair.checker.certificates.tree import Tree
from verifair.schema.space import InputSpace

Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]


def of_probability(buckets: int, schema: InputSpace, model: Model) -> bool:
    """Return True if buckets are intervals of a probability. Two are the decisions instead if these are not made at 1/2."""
    return buckets > 2 or schema.outcome.of == "value" or schema.outcome.judged(model, odds=False) is None


@validated(frozen=True, kw_only=True, config=NO_MORE)
class BucketQuery:
    """The question.

    box: (lower, upper) of every feature that is not protected, raw, by name.
    combinations: all K rows of protected raw values, in the order of `protected`.
    """

    kind: Literal["k-discrimination"]
    protected: tuple[Text, ...] = Field(min_length=1)
    box: dict[str, tuple[Number, Number]]
    combinations: tuple[tuple[Number, ...], ...] = Field(min_length=1, max_length=100_000)
    buckets: Annotated[int, Field(strict=True, ge=2, le=1000)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class SplitsFile:
    """A tree of inputs alone, as it stands in a file."""

    feature: list[Annotated[int, Field(strict=True, ge=-1, lt=1 << 31)]] = Field(min_length=1)
    cut: list[Number]

    def tree(self) -> Tree:
        """Return the tree. Raises ValueError for lists of different lengths."""
        if len(self.feature) != len(self.cut):
            raise ValueError(f"feature and cut have {len(self.feature)} and {len(self.cut)} entries")
        return Tree.plain(np.array(self.feature, dtype=np.int64), np.array(self.cut, dtype=float))


@validated(frozen=True, kw_only=True, config=NO_MORE)
class KmaxFile(EnvelopeFile):
    format: Literal["verifair-kmax-certificate/3"]
    query: BucketQuery
    upper: Count
    reference: Index
    tree: SplitsFile


FILE = TypeAdapter(KmaxFile)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KmaxCertificate(Envelope):
    """Proof that no legal x in the query's box is put into more than `upper` buckets as its protected values change.

    reference: position of the combination with which the others are compared, the same for all leaves.
    tree: boxes of inputs; for each leaf the checker's rule shows at most `upper` buckets.
    """

    FORMAT = "verifair-kmax-certificate/3"
    query: BucketQuery
    upper: int
    reference: int
    tree: Tree = field(repr=False)

    def _answered(self) -> dict[str, int]:
        return {"proved": len(self.query.combinations)}

    def _content(self) -> dict[str, Any]:
        tree = {"feature": self.tree.feature.tolist(), "cut": self.tree.cut.tolist()}
        return {"upper": self.upper, "reference": self.reference, "tree": tree}

    @classmethod
    def _parsed(cls, raw: Any) -> tuple[EnvelopeFile, dict[str, Any]]:
        file = FILE.validate_python(raw)
        return file, {"upper": file.upper, "reference": file.reference, "tree": file.tree.tree()}
