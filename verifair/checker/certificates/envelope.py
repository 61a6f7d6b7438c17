"""The parts that all certificates share: the values that fields may hold, reading and writing of files, and what a file is about.

A file is JSON (gzip when its name ends in .gz). `digest` is the sha256 of the canonical JSON (sorted keys, no spaces) of everything
else. `extent` says how much of its question the file answers. Numbers are finite, and nothing is converted silently.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass as validated
from pydantic_core import to_json

from encoders.curves.layer import Curve, SmoothLayer
from encoders.model import Model
from verifair.checker.certificates.extent import NO_MORE, Extent, Sha256, digest
from verifair.errors import CertificateError
from verifair.schema.space import InputSpace

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Index = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]
Distance = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Text = Annotated[str, Field(max_length=10_000)]


class Trust(Enum):
    """CHECKED: every statement has a tree that can be checked again. CLAIMED: some are only claimed by a solver."""

    CHECKED = "checked"
    CLAIMED = "claimed"


@validated(frozen=True, kw_only=True, config=NO_MORE)
class EnvelopeFile:
    """The fields that every certificate file has, beside its format and query."""

    network_sha256: Sha256
    schema_sha256: Sha256
    semantics: Text
    features: tuple[str, ...] = Field(min_length=1)
    extent: Extent
    digest: Sha256


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Envelope(ABC):
    """A certificate about one network and one schema. `intact` is False when a file's digest does not fit its content.

    undecided, not_reached: numbers of questions that were asked and not decided, or not begun; they are not in the certificate.
    stated: the extent that a file states (None: the certificate was not read from a file).
    """

    FORMAT: ClassVar[str]
    network_sha256: str
    schema_sha256: str
    semantics: str
    query: Any
    features: tuple[str, ...]
    undecided: int = 0
    not_reached: int = 0
    stated: Extent | None = None
    intact: bool = True

    @property
    def kind(self) -> str:
        return str(self.query.kind)

    @property
    def trust(self) -> Trust:
        """CHECKED: every bound can be proved again, and nothing is only claimed by a solver."""
        return Trust.CHECKED

    @property
    def question(self) -> dict[str, Any]:
        """The question and the hashes of the network and schema that it is about, as they stand in the file."""
        fields = {name: getattr(self, name) for name in ("network_sha256", "schema_sha256", "semantics")}
        usual = ("classes", "favourable"), ("tolerance", None)  # left out, as in files older than these fields
        query = {name: value for name, value in asdict(self.query).items() if (name, value) not in usual}
        return {"format": self.FORMAT, **fields, "query": query, "features": list(self.features)}

    @property
    def extent(self) -> Extent:
        """The extent of the answers to the question, counted from the content."""
        return Extent.of(self.question, **{"undecided": self.undecided, "not_reached": self.not_reached} | self._answered())

    @property
    def payload(self) -> dict[str, Any]:
        """Everything but the digest, as it stands in the file."""
        return {**self.question, "extent": asdict(self.extent), **self._content()}

    def save(self, path: str | Path) -> None:
        """Write the certificate; gzip when the name ends in .gz. The same proofs give the same bytes."""
        write(path, self.payload)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a certificate. Raises CertificateError for any other file; a wrong digest only sets intact = False."""
        (file, content), intact = read(path, cls.FORMAT, cls._parsed)
        fields = {name: getattr(file, name) for name in ("network_sha256", "schema_sha256", "semantics", "query", "features")}
        left = {name: getattr(file.extent, name) for name in ("undecided", "not_reached")}
        return cls(**fields, **left, **content, stated=file.extent, intact=intact)

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """Return the fields of the file that only this kind has."""

    @abstractmethod
    def _answered(self) -> dict[str, int]:
        """Return counts of answers in the content, by the names that `Extent.of` takes; a name that is left out counts 0."""

    @classmethod
    @abstractmethod
    def _parsed(cls, raw: Any) -> tuple[EnvelopeFile, dict[str, Any]]:
        """Return the validated file, and the arguments that only this kind takes. Raises ValueError if the content is invalid."""

    def misfits(self, network: Model, schema: InputSpace, extra: str | None = None) -> Iterator[str]:
        """Yield reasons to reject the file without a look at its proofs. extra: a further reason, found by this kind's rule."""
        if not self.intact:
            yield "the digest does not fit the content: the file was changed after it was written"
        flaw = None if self.stated is None else self.stated.differs(self.extent)
        yield from (reason for reason in (flaw, extra) if reason is not None)
        if self.network_sha256 != network.source_sha256:
            yield about_another("network", self.network_sha256, network.source_sha256)
        if self.schema_sha256 != schema.sha256:
            yield about_another("schema", self.schema_sha256, schema.sha256)
        if self.features != tuple(feature.name for feature in schema.features):
            yield "its features are not those of the schema, in order"
        if self.semantics != semantics(network):
            yield f"its semantics are {self.semantics!r}, expected {semantics(network)!r}"
        if schema.domain.columns != network.inputs:
            yield f"the schema describes {schema.domain.columns} input columns, the network takes {network.inputs}"


def about_another(noun: str, sha256: str, actual: str) -> str:
    """Return why a file cannot be checked against this network or schema."""
    return f"it is about another {noun} (sha256 {sha256[:12]}, this one has {actual[:12]}): pass the {noun} that it is about"


def of_another_version(found: str, expected: str) -> str:
    """Return the message about a file that another version wrote."""
    return f"is a file of another version ({found}), expected {expected}: write it again with this version"


def semantics(network: Model) -> str:
    """Return a description of the function that proofs about this network are about."""
    text = f"real-valued function of the stored float32 {'thresholds and leaf values' if network.of_trees else 'weights'}"
    if any(feed.kind == "float64" for feed in network.feeds):
        text = f"{text.replace('float32 ', '')}, on inputs rounded to float32 (the model takes float64)"
    if not network.piecewise_linear:
        text += f", {_curves(network)} as the real functions, enclosed"
    return f"{text}; rounded when folded: {', '.join(network.rounded)}" if network.rounded else text


def _curves(model: Model) -> str:
    """Return the names of the network's curves ("sigmoid and tanh" for either of the two); for trees, the link on their sums."""
    if model.of_trees:
        return "softmax" if model.ensemble is not None else "sigmoid"
    network = model.layered("bounds of curves")
    kinds = sorted({int(kind) for layer in network.layers if isinstance(layer, SmoothLayer) for kind in layer.curve[layer.smooth]})
    return ", ".join(dict.fromkeys("sigmoid and tanh" if kind <= Curve.TANH else Curve(kind).shown for kind in kinds))


Content = TypeVar("Content")
MAX_BYTES = 1 << 29
"""The most bytes of an unpacked certificate: a larger file is an attack or a mistake."""
MAX_MEMORY = 8 << 30
"""The most bytes that its lists and numbers may take in memory: text that is all brackets and commas takes many times its size."""
HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def write(path: str | Path, payload: Mapping[str, Any]) -> None:
    """Write the payload with its digest. The same payload gives the same bytes."""
    content = {**payload, "digest": digest(payload)}
    text = to_json(content)
    Path(path).write_bytes(gzip.compress(text, 6, mtime=0) if str(path).endswith(".gz") else text)


def read(path: str | Path, expected: str, parse: Callable[[Any], Content]) -> tuple[Content, bool]:
    """Return the content that `parse` reads from the JSON, and whether the digest fits the rest of it.

    expected: the format's name, for errors.   Raises CertificateError if the file cannot be read, or if parse raises a ValueError
    (such as pydantic's ValidationError).
    """
    try:
        content = _content(Path(path))
        raw = json.loads(content, parse_constant=_no_constant)
        if not isinstance(raw, dict):
            raise ValueError("is no JSON object")
        if HALF.search(content) is not None:
            _check_characters(raw)
        parsed = parse(raw)
        intact = digest({key: value for key, value in raw.items() if key != "digest"}) == raw["digest"]
    except (OSError, ValueError, EOFError, zlib.error, RecursionError, MemoryError) as error:
        remedy = f"expected a {expected} file as verifair writes it: copy it again, or run again"
        raise CertificateError(f"{path}: {_flaw(error)}; {remedy}") from error
    return parsed, intact


def _flaw(cause: Exception) -> str:
    """Return what is wrong with a file, without the jargon of the libraries that read it."""
    match cause:
        case ValidationError():
            first = cause.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"] if not str(part).startswith("_")) or "its content"
            return f"{place} {'is missing' if first['type'] == 'missing' else 'is not what it should be'}"
        case json.JSONDecodeError():
            return f"is damaged: its JSON breaks off or is malformed at line {cause.lineno}, column {cause.colno}"
        case EOFError() | zlib.error() | gzip.BadGzipFile():
            return "is a damaged gzip file"
        case UnicodeDecodeError():
            return "is damaged: it is not UTF-8 text"
        case RecursionError():
            return "is nested too deeply"
        case MemoryError():
            return "needs more memory than there is"
        case OSError():
            return f"cannot be read ({cause.strerror or cause})"
        case _:
            return f"is damaged ({cause})"  # messages from this package: arrays of unequal length, a file too large, NaN


def _content(path: Path) -> bytes:
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
        content: bytes = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    lists, numbers = content.count(b"[") + content.count(b"{"), content.count(b",")
    if 64 * lists + 32 * numbers + 3 * len(content) > MAX_MEMORY:  # bytes that Python needs for each
        raise ValueError(f"{lists:,} lists and {numbers:,} numbers would take more than {MAX_MEMORY >> 30} GiB of memory")
    return content


def _check_characters(raw: Any) -> None:
    """Raise ValueError for a lone surrogate: JSON's escapes can stand for one, but no UTF-8 file can hold it."""
    try:
        json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text of it has half a character") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
