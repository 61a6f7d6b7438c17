"""Certificates: what a proof leaves behind, so that somebody else can check it without the engine.

The file is JSON (gzip when its name ends in .gz). Everything is in raw units and schema order:

    {"format": "verifair-certificate/1", "network_sha256", "schema_sha256", "semantics", "query", "features": [names],
     "proofs": [{"statement": ..., "tree": ...} or {..., "phases": ...} or {..., "claim": ...}], "digest"}

`digest` is the sha256 of the canonical JSON (sorted keys, no spaces) of everything else. A *statement* says what holds
on which box, a *tree* how that box was cut up until every leaf was proved (*phases*: by the signs of neurons as well). What
only a solver vouches for has a *claim* instead: it can be recorded, not re-proved. What each statement means is defined in
`verifair.checker.check`; what equations of a causal model mean, in `verifair.checker.counterfactual_statement`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from encoders.network import Array, Integers, Network
from verifair.checker.counterfactual_statement import CounterfactualQuery, CounterfactualStatement
from verifair.checker.fields import NO_MORE, Distance, Index, Number, Sha256, Text
from verifair.checker.phase_tree import PhaseTree
from verifair.errors import CertificateError

FORMAT = "verifair-certificate/1"


class Trust(Enum):
    """CHECKED: every statement comes with a tree that can be re-proved. CLAIMED: some rest on a solver's word."""

    CHECKED = "checked"
    CLAIMED = "claimed"


@validated(frozen=True, kw_only=True, config=NO_MORE)
class RowStatement:
    """A claim on the box of +-delta units around one row of raw values.

    The box moves every real or integer feature that has a unit and is neither protected (by the schema or the query) nor
    change = "fixed" by delta * unit, clipped to the feature's range; integer features take the whole values within.
    observed: g(x) - g(x') > 0. flipped: g(x') - g(x) > 0. robust (no prime): class i = classes[0] beats j = classes[1],
    g(x) >= 0 if i < j and g(x) > 0 if i > j (ties go to the smaller index).
    """

    goal: Literal["observed", "flipped", "robust"]
    row: tuple[Number, ...]
    delta: Distance
    classes: tuple[Index, Index]
    prime: dict[str, Number] = Field(default_factory=dict)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class BoxStatement:
    """A claim on all rows x in [lower, upper] and x' that can be. Protected features (those in prime) have lower = upper.

    no-flip: not (g(x) > 0 and g(x') < 0).   no-gap: sigma(g(x)) - sigma(g(x')) <= the query's
    epsilon (g(x) - g(x') on the logit scale).
    x' is x with the values in prime; relaxed features are shifted by the whole numbers in offset.
    """

    goal: Literal["no-flip", "no-gap"]
    lower: tuple[Number, ...]
    upper: tuple[Number, ...]
    prime: dict[str, Number]
    classes: tuple[Index, Index]
    offset: dict[str, Annotated[int, Field(strict=True)]] = Field(default_factory=dict)


Statement = RowStatement | BoxStatement | CounterfactualStatement


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """How a box was split, as preorder arrays over all K nodes (parent, left subtree, right subtree).

    feature: (K,) int; the feature a node is split on, or -1 for a leaf.
    cut: (K,) left = [lower, cut]; right = [cut + 1, upper] for integer and categorical features, [cut, upper] for real ones.
    bound: (K,) the claimed lower bound of the goal's best row on a leaf; NaN (null in the file) for splits, and for a leaf
    that is one single point, decided by exact arithmetic.
    """

    feature: Integers
    cut: Array
    bound: Array

    @staticmethod
    def leaf(bound: float | None) -> Tree:
        """The tree of a box proved as a whole."""
        value = np.nan if bound is None else bound
        return Tree(feature=np.array([-1]), cut=np.zeros(1), bound=np.array([value]))


@validated(frozen=True, kw_only=True, config=NO_MORE)
class Claim:
    """The word of a solver: which one, and the tolerance within which it calls a statement true."""

    backend: Text
    version: Text
    tolerance: Distance


@dataclass(frozen=True, kw_only=True, eq=False)
class Proof:
    """A statement and what stands behind it."""

    statement: Statement
    evidence: Tree | PhaseTree | Claim


@validated(frozen=True, kw_only=True, config=NO_MORE)
class RowsQuery:
    """What was asked: the proofs of such a certificate stand one by one, nothing is claimed about the rows left out."""

    kind: Literal["persistent-bias", "robustness"]
    protected: tuple[str, ...]
    delta: tuple[Distance, ...]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class FairnessQuery:
    """No two rows of the box that differ in protected features alone are treated differently.

    epsilon None: decided differently; else: given probabilities (or logits) more than epsilon apart. relax: feature -> by how
    many units it may differ as well. box: feature name -> (lower, upper) in raw units; features left out take their whole range.
    differ: pairs that differ in "all" protected features, or in "any" (at least one) of them.
    The proofs must cover all these pairs, in both directions.
    """

    kind: Literal["individual-fairness"]
    protected: tuple[str, ...]
    box: dict[str, tuple[Number, Number]]
    differ: Literal["all", "any"]
    epsilon: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    scale: Literal["probability", "logit"] = "probability"
    relax: dict[str, Annotated[int, Field(strict=True, ge=1, le=100)]] = Field(default_factory=dict)


Query = RowsQuery | FairnessQuery | CounterfactualQuery


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _TreeFile:
    feature: list[Annotated[int, Field(strict=True, ge=-1, lt=1 << 31)]] = Field(min_length=1)
    cut: list[Number]
    bound: list[Number | None]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _PhaseFile:
    feature: list[Annotated[int, Field(strict=True, ge=-(1 << 31), lt=1 << 31)]] = Field(min_length=1)
    cut: list[Number]
    start: list[Index]
    index: list[Index]
    value: list[Number]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _ProofFile:
    statement: Annotated[Statement, Field(discriminator="goal")]
    tree: _TreeFile | None = None
    phases: _PhaseFile | None = None
    claim: Claim | None = None


@validated(frozen=True, kw_only=True, config=NO_MORE)
class _CertificateFile:
    format: Literal["verifair-certificate/1"]
    network_sha256: Sha256
    schema_sha256: Sha256
    semantics: Text
    query: Annotated[Query, Field(discriminator="kind")]
    features: tuple[str, ...] = Field(min_length=1)
    proofs: list[_ProofFile]
    digest: Sha256


_ADAPTER = TypeAdapter(_CertificateFile)


@dataclass(frozen=True, kw_only=True, eq=False)
class Certificate:
    """Proofs about one network and one schema. `intact` is False when a file's digest does not fit its content."""

    network_sha256: str
    schema_sha256: str
    semantics: str
    query: Query
    features: tuple[str, ...]
    proofs: tuple[Proof, ...] = field(repr=False)
    intact: bool = True

    @property
    def kind(self) -> str:
        return self.query.kind

    @property
    def trust(self) -> Trust:
        claimed = any(isinstance(proof.evidence, Claim) for proof in self.proofs)
        return Trust.CLAIMED if claimed else Trust.CHECKED

    @property
    def payload(self) -> dict[str, Any]:
        """Everything but the digest, as it stands in the file."""
        return {
            "format": FORMAT,
            "network_sha256": self.network_sha256,
            "schema_sha256": self.schema_sha256,
            "semantics": self.semantics,
            "query": asdict(self.query),
            "features": list(self.features),
            "proofs": [_proof_payload(proof) for proof in self.proofs],
        }

    def save(self, path: str | Path) -> None:
        """Write the certificate; gzip when the name ends in .gz. The same proofs give the same bytes."""
        write(path, self.payload)

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate. CertificateError for anything that is not one; a wrong digest only sets intact = False."""
        (file, proofs), intact = read(path, FORMAT, _parsed)
        return cls(
            network_sha256=file.network_sha256,
            schema_sha256=file.schema_sha256,
            semantics=file.semantics,
            query=file.query,
            features=file.features,
            proofs=proofs,
            intact=intact,
        )


def semantics(network: Network) -> str:
    """What a proof about this network is a proof about."""
    text = "real-valued function of the stored float32 weights"
    if any(feed.kind == "float64" for feed in network.feeds):
        text = "real-valued function of the stored weights, on inputs rounded to float32 (the model takes float64)"
    if not network.piecewise_linear:
        text += ", sigmoid and tanh as the real functions, enclosed"
    return f"{text}; rounded when folded: {', '.join(network.rounded)}" if network.rounded else text



def _parsed(raw: Any) -> tuple[_CertificateFile, tuple[Proof, ...]]:
    file = _ADAPTER.validate_python(raw)
    return file, tuple(_proof(number, proof) for number, proof in enumerate(file.proofs))


def _proof_payload(proof: Proof) -> dict[str, Any]:
    statement = asdict(proof.statement)
    match proof.evidence:
        case Claim() as claim:
            return {"statement": statement, "claim": asdict(claim)}
        case PhaseTree() as tree:
            arrays = ("feature", "cut", "start", "index", "value")
            return {"statement": statement, "phases": {name: getattr(tree, name).tolist() for name in arrays}}
        case Tree() as tree:
            bound = [None if value != value else value for value in tree.bound.tolist()]
            return {"statement": statement, "tree": {"feature": tree.feature.tolist(), "cut": tree.cut.tolist(), "bound": bound}}


def _proof(number: int, file: _ProofFile) -> Proof:
    if [file.tree, file.phases, file.claim].count(None) != 2:
        raise ValueError(f"proof {number} needs either a tree, phases or a claim")
    if file.claim is not None:
        return Proof(statement=file.statement, evidence=file.claim)
    if file.phases is not None:
        one = file.phases
        return Proof(
            statement=file.statement,
            evidence=PhaseTree(
                feature=np.array(one.feature), cut=np.array(one.cut, dtype=float), start=np.array(one.start, dtype=np.int64),
                index=np.array(one.index, dtype=np.int64), value=np.array(one.value, dtype=float),
            ),
        )  # fmt: skip
    assert file.tree is not None
    feature, cut, bound = file.tree.feature, file.tree.cut, file.tree.bound
    if not len(feature) == len(cut) == len(bound):
        raise ValueError(f"proof {number}: feature, cut and bound have {len(feature)}, {len(cut)} and {len(bound)} entries")
    return Proof(
        statement=file.statement,
        evidence=Tree(feature=np.array(feature), cut=np.array(cut, dtype=float), bound=np.array(bound, dtype=float)),
    )


Content = TypeVar("Content")
MAX_BYTES = 1 << 29
"""No certificate is larger than this once unpacked: a file that is, is an attack or a mistake."""
MAX_MEMORY = 8 << 30
"""Bytes that its lists and numbers may take in memory: brackets and commas alone would need many times what the text does."""
HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def write(path: str | Path, payload: Mapping[str, Any]) -> None:
    """Write the payload with its digest. The same payload gives the same bytes."""
    content = {**payload, "digest": _digest(payload)}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    Path(path).write_bytes(gzip.compress(text, 6, mtime=0) if str(path).endswith(".gz") else text)


def read(path: str | Path, expected: str, parse: Callable[[Any], Content]) -> tuple[Content, bool]:
    """What `parse` makes of the JSON, and whether the digest fits the rest of it.

    expected: the format's name, for errors.   Raises CertificateError for whatever cannot be read, or that parse refuses with a
    ValueError (pydantic's ValidationError included).
    """
    try:
        content = _content(Path(path))
        raw = json.loads(content, parse_constant=_no_constant)
        if not isinstance(raw, dict):
            raise ValueError("is no JSON object")
        if HALF.search(content) is not None:
            _check_characters(raw)
        found = parse(raw)
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise CertificateError(f"{path}: {place}: {first['msg']}; expected a {expected} file") from error
    except RecursionError as error:
        raise CertificateError(f"{path}: nested too deeply; expected a {expected} file") from error
    except MemoryError as error:
        raise CertificateError(f"{path}: needs more memory than there is; expected a {expected} file") from error
    except (ValueError, EOFError, zlib.error) as error:
        raise CertificateError(f"{path}: {error}; expected a {expected} file") from error
    return found, _digest({key: value for key, value in raw.items() if key != "digest"}) == raw["digest"]


def _digest(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _content(path: Path) -> bytes:
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
        content: bytes = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    lists, numbers = content.count(b"[") + content.count(b"{"), content.count(b",")
    if 64 * lists + 32 * numbers + 3 * len(content) > MAX_MEMORY:  # what Python takes for each
        raise ValueError(f"{lists:,} lists and {numbers:,} numbers would take more than {MAX_MEMORY >> 30} GiB of memory")
    return content


def _check_characters(raw: Any) -> None:
    """Escapes may stand for half characters, which nothing can write again."""
    try:
        json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text of it has half a character") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
