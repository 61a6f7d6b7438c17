"""The questions of a benchmark: four kinds, each small enough to be sent to a separate process, and their fingerprints."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array
from encoders.evaluate import exact_goals
from encoders.model import Model
from encoders.network import Network
from encoders.problem import TwinProblem
from encoders.vnnlib.reader import VnnlibQuery, read_vnnlib
from verifair.interop.decide import networks_of
from verifair.systems.fgce.instance import Instance

Kind = Literal["decision", "relaxation", "minimum", "center"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DecisionQuestion:
    """Do all goals hold everywhere in all boxes of the problem?  PROVED, VIOLATED, or UNKNOWN with its reason.

    One box and one goal for PBA and robustness; every pair of protected values, both directions, for individual fairness.
    """

    problem: TwinProblem

    @property
    def single(self) -> bool:
        """True if every method bounds the same number: goals have one row each."""
        return all(len(goal.rows) == 1 and goal.gap is None for goal in self.problem.goals)

    def refuted(self, q: int, g: int, raw: Array) -> tuple[bool, float]:
        """Return True if the row raw (V,) is exactly a legal witness against goal g of box q; and the value of the goal's best row
        there."""
        problem, index, goal = self.problem, np.array([q]), self.problem.goals[g]
        is_met, margins = exact_goals(problem, index, raw[None])
        copies = (raw[None], problem.batch.take(index).second(raw[None]))
        legal = all(bool(problem.domain.legal(copy)[0]) for copy in copies)
        return legal and not is_met[0, g], float((goal.rows @ margins[0] + goal.constants).max())

    def nearest(self, q: int, x: Array) -> Array:
        """Return the raw row of box q nearest to network inputs x (n,): it rounds a real point to whole numbers."""
        domain, batch = self.problem.domain, self.problem.batch
        raw = batch.lower[q].copy()
        for v in range(domain.variables):
            columns = x[domain.start[v] : domain.start[v] + domain.width[v]]
            raw[v] = int(np.argmax(columns)) if domain.one_hot[v] else columns[0] * domain.scale[v] + domain.offset[v]
        return np.asarray(np.clip(np.where(domain.integer, np.rint(raw), raw), batch.lower[q], batch.upper[q]))


@dataclass(frozen=True, kw_only=True, eq=False)
class FileQuestion:
    """Is a VNN-LIB query unsat (PROVED) or sat (VIOLATED)?   networks: (declared name, ONNX file).   digest: of all contents."""

    query: Path
    networks: tuple[tuple[str, Path], ...]
    digest: str

    @classmethod
    def of(cls, query: Path, networks: Mapping[str, Path]) -> FileQuestion:
        digest = hashlib.sha256()
        for path in (query, *networks.values()):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        files = tuple((name, path.resolve()) for name, path in networks.items())
        return cls(query=query.resolve(), networks=files, digest=digest.hexdigest())

    def there(self) -> bool:
        """Return True if the files are on this machine with the same content."""
        try:
            return self.of(self.query, dict(self.networks)).digest == self.digest
        except OSError:
            return False

    def text(self) -> str:
        """Return the query's text."""
        content = self.query.read_bytes()
        return (gzip.decompress(content) if self.query.suffix == ".gz" else content).decode("utf-8", "replace")

    def read(self) -> tuple[VnnlibQuery, tuple[Network, ...]]:
        """Read the query and the networks that it declares."""
        query = read_vnnlib(self.query)
        return query, networks_of(query, dict(self.networks))


@dataclass(frozen=True, kw_only=True, eq=False)
class RelaxationQuestion:
    """The optimum of the paper's triangle LP for the problem's single row over its single box."""

    problem: TwinProblem


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimumQuestion:
    """The exact least value of the problem's single row over its single box, to within `tolerance`."""

    problem: TwinProblem
    tolerance: float = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class CenterQuestion:
    """The k-center: at most k counterfactuals that cover a share of the factuals at the least largest cost.  (FGCE)"""

    instance: Instance
    k: int
    coverage: float


Question = DecisionQuestion | FileQuestion | RelaxationQuestion | MinimumQuestion | CenterQuestion


def fingerprint(question: Question | TwinProblem) -> str:
    """Return the sha256 of the whole content of a question; the path of the network's file does not count."""
    if isinstance(question, FileQuestion):
        return question.digest
    digest = hashlib.sha256()
    _feed(digest, question)
    return digest.hexdigest()


def subject(question: Question) -> str:
    """Return the sha256 of the quantity in question: questions of different kinds about one box share it.

    A k-center with another k or coverage has another optimum, so it is a subject of its own.
    """
    return fingerprint(question if isinstance(question, (CenterQuestion, FileQuestion)) else question.problem)


def _feed(digest: Any, value: Any) -> None:
    digest.update(type(value).__name__.removesuffix("Question").encode())
    if is_dataclass(value):
        held = vars(value)      # a smooth layer has no slope
        for field in fields(value):
            if field.name in held and not (isinstance(value, Model) and field.name == "source"):
                digest.update(field.name.encode())
                _feed(digest, held[field.name])
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, (tuple, list)):
        digest.update(str(len(value)).encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            _feed(digest, (repr(key), value[key]))
    elif isinstance(value, Enum):
        digest.update(value.name.encode())
    elif value is None or isinstance(value, (bool, int, float, str)):
        digest.update(repr(value).encode())
    elif sp.issparse(value):
        for part in (value.tocsr().data, value.tocsr().indices, value.tocsr().indptr):
            _feed(digest, part)
    else:
        raise TypeError(f"a question holds a {type(value).__name__}, which has no fingerprint")
