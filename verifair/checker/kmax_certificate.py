"""Certificates of an upper bound of k-discrimination: one tree of boxes, on each of whose leaves few buckets can be hit.

    {"format": "verifair-kmax-certificate/2", "network_sha256", "schema_sha256", "semantics", "query", "features": [names],
     "extent", "upper", "tree": {"feature", "cut", "bound"}, "digest"}

What it states is defined in `verifair.checker.kinds.kmax`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from verifair.checker.envelope import Envelope, EnvelopeFile, Number, Text
from verifair.checker.extent import NO_MORE
from verifair.checker.tree import Tree, TreeFile

Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class BucketQuery:
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
class CountTreeFile(TreeFile):
    """A tree whose leaves claim whole numbers."""

    bound: list[Count | None]  # type: ignore[assignment]

    def tree(self) -> Tree:
        if any((feature == -1) != (bound is not None) for feature, bound in zip(self.feature, self.bound, strict=False)):
            raise ValueError("a leaf needs a bound, and only a leaf has one")
        return super().tree()


@validated(frozen=True, kw_only=True, config=NO_MORE)
class KmaxFile(EnvelopeFile):
    format: Literal["verifair-kmax-certificate/2"]
    query: BucketQuery
    upper: Count
    tree: CountTreeFile


FILE = TypeAdapter(KmaxFile)


@dataclass(frozen=True, kw_only=True, eq=False)
class KmaxCertificate(Envelope):
    """No legal x in the query's box hits more than `upper` buckets.

    tree: as in `verifair.checker.tree`, but a leaf's bound is the largest number of buckets that it is claimed to hold.
    """

    FORMAT = "verifair-kmax-certificate/2"
    query: BucketQuery
    upper: int
    tree: Tree = field(repr=False)

    def _answered(self) -> dict[str, int]:
        return {"proved": len(self.query.combinations)}

    def _content(self) -> dict[str, Any]:
        tree = self.tree.to_dict()
        return {"upper": self.upper, "tree": {**tree, "bound": [None if bound is None else int(bound) for bound in tree["bound"]]}}

    @classmethod
    def _parsed(cls, raw: Any) -> tuple[EnvelopeFile, dict[str, Any]]:
        file = FILE.validate_python(raw)
        return file, {"upper": file.upper, "tree": file.tree.tree()}
