"""Certificates of the share of a domain where nobody is treated differently: one tree of boxes, and a bracket.

    {"format": "verifair-share-certificate/1", "network_sha256", "schema_sha256", "semantics", "query", "features": [names],
     "extent", "fair": [numerator, denominator], "unfair": [numerator, denominator], "tree": {"feature", "cut"},
     "history": [[s, fair, unfair]], "digest"}

At least the share `fair` of the box is fair, and at least the share `unfair` is not; `verifair.checker.shares` computes what leaves
show. A bracket wider than the query's tolerance is undecided. The file is the store of the run as well: whoever goes on cuts the
same tree further. history: seconds of work and what was shown by then, for pictures; nothing is claimed by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from verifair.checker.certificates.envelope import Distance, Envelope, EnvelopeFile, Number, Text
from verifair.checker.certificates.extent import NO_MORE
from verifair.checker.certificates.kmax import SplitsFile
from verifair.checker.certificates.statement import Signs
from verifair.checker.certificates.tree import Tree

Whole = Annotated[str, Field(pattern=r"^[0-9]{1,400}$")]
"""A whole number as text: JSON's readers lose digits beyond 2^53."""


@validated(frozen=True, kw_only=True, config=NO_MORE)
class ShareQuery:
    """The question. box: (lower, upper) of every feature, raw, by name; differ: "all" or "any" of the protected features;
    tolerance: share of the box that may be left undecided (None in older files)."""

    kind: Literal["certified-share"]
    protected: tuple[Text, ...] = Field(min_length=1)
    box: dict[str, tuple[Number, Number]]
    differ: Literal["all", "any"]
    signs: Signs
    tolerance: Annotated[Distance, Field(lt=1)] | None = None


@validated(frozen=True, kw_only=True, config=NO_MORE)
class ShareFile(EnvelopeFile):
    format: Literal["verifair-share-certificate/1"]
    query: ShareQuery
    fair: tuple[Whole, Whole]
    unfair: tuple[Whole, Whole]
    tree: SplitsFile
    history: list[tuple[Number, Number, Number]]


FILE = TypeAdapter(ShareFile)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShareCertificate(Envelope):
    """Proof that at least the share `fair` of the query's box is fair, and at least the share `unfair` is not."""

    FORMAT = "verifair-share-certificate/1"
    query: ShareQuery
    fair: Fraction
    unfair: Fraction
    tree: Tree = field(repr=False)
    history: tuple[tuple[float, float, float], ...] = field(default=(), repr=False)

    def _answered(self) -> dict[str, int]:
        tolerance = self.query.tolerance
        is_open = tolerance is not None and 1 - self.fair - self.unfair > Fraction(tolerance)
        return {"proved": 1 - is_open, "undecided": int(is_open)}

    def _content(self) -> dict[str, Any]:
        tree = {"feature": self.tree.feature.tolist(), "cut": self.tree.cut.tolist()}
        shares = {name: [str(one.numerator), str(one.denominator)] for name, one in (("fair", self.fair), ("unfair", self.unfair))}
        return {**shares, "tree": tree, "history": [list(entry) for entry in self.history]}

    @classmethod
    def _parsed(cls, raw: Any) -> tuple[EnvelopeFile, dict[str, Any]]:
        file = FILE.validate_python(raw)
        if int(file.fair[1]) == 0 or int(file.unfair[1]) == 0:
            raise ValueError("a share has the denominator 0")
        shares = {name: Fraction(*map(int, getattr(file, name))) for name in ("fair", "unfair")}
        return file, {**shares, "tree": file.tree.tree(), "history": tuple(file.history)}
