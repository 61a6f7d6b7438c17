"""Stores: files that keep the verdicts or partial results of a run, written during the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from verifair.engine.store import PartStore
from verifair.errors import DataError, QueryError
from verifair.interrupts import Interrupted, OutOfTime
from verifair.locks import alone
from verifair.systems.work import Work

Arrays = tuple[npt.NDArray[Any], ...]
PARTS = "parts.sqlite"
"""The store of partial results in the folder of --out; it is deleted once the answer is complete."""


def claim(store: Path, work: Work) -> None:
    """Lock the store against other processes until the command ends. Outside a command the caller is responsible.

    Raises QueryError if another run is writing it, if it holds an earlier run and this one does not resume, and if there is none to
    resume.
    """
    if work.held is None:
        return
    if work.resume and not store.is_file():
        ended = " (a run that ends deletes it)" if store.name == PARTS else ""
        raise QueryError(f"--resume: {store} is not there{ended}; start without --resume, or name the run's file with --store")
    if store.is_file() and not work.resume:
        alternative = "folder with --out" if store.parent == work.folder else "file with --store"
        raise QueryError(f"{store}: is there already; continue it with --resume, or name another {alternative}")
    remedy = "wait until that has ended, and go on with --resume, or name another file with --store"
    work.held.enter_context(alone(store.with_name(f".{store.name}.lock"), f"{store}: another run is writing it; {remedy}"))
    work.held.enter_context(_kept_on_interrupt(store))


@contextmanager
def _kept_on_interrupt(store: Path) -> Iterator[None]:
    """After Ctrl-C, say that the store is kept, unless a message says so already."""
    try:
        yield
    except KeyboardInterrupt as error:
        if isinstance(error, Interrupted) or not store.is_file():
            raise
        raise Interrupted(f"interrupted: {store} keeps finished work; pass the same command with --resume to go on") from None


def claimed(name: str, work: Work) -> Path | None:
    """Claim and return the store of a run: the file that it names, else the file `name` in its folder; None if it has neither.

    Raises QueryError as `claim` does, if the folder holds an earlier run that this one would ignore, and for --resume without a
    store.
    """
    default = None if work.folder is None else work.folder / name
    store = work.store or default
    if default is not None and default != store and default.exists():
        raise QueryError(f"{default}: an earlier run stands there, and --store names another file; name another folder with --out")
    if work.resume and store is None:
        raise QueryError("--resume needs the store of the run to continue: pass --store FILE or --out FOLDER")
    if store is not None:
        claim(store, work)
    return store


@dataclass(kw_only=True, eq=False)
class Parts:
    """Arrays that take long to compute, part by part; those of an earlier run are taken from its store.

    A part's key is made of everything that determines it, so that a run finds its own parts only.   path: of the store, created
    before the first part is computed; None: nothing is kept.   resume: whether to use stored parts.   own: the store holds parts of
    one question only, so a run that does not find its first part is another question.   whole: True if nothing is left to resume.
    """

    path: Path | None = None
    resume: bool = False
    own: bool = False
    whole: bool = False
    _files: ExitStack = field(default_factory=ExitStack)
    _store: PartStore | None = None
    _asked: bool = False

    @classmethod
    @contextmanager
    def kept(cls, path: str | Path | None, *, resume: bool = False, own: bool = False) -> Iterator[Parts]:
        """Open a store of parts. Raises DataError, before anything is computed, for a file that is not one."""
        parts = cls(path=None if path is None else Path(path), resume=resume, own=own)
        with parts._files:
            if parts.path is not None and parts.path.exists():
                parts._opened(parts.path)
            yield parts

    @classmethod
    @contextmanager
    def of(cls, work: Work) -> Iterator[Parts]:
        """Yield the parts of a run of a command or an audit. The store is deleted once the whole answer is written and shown.

        Ctrl-C and the end of the time say where the parts are.
        """
        path = claimed(PARTS, work)
        with cls.kept(path, resume=work.resume, own=work.held is not None) as parts:
            if work.held is not None and path is not None:
                work.held.push(lambda kind, error, trace: parts._end(error))
            try:
                yield parts
            except (Interrupted, OutOfTime) as error:
                raise type(error)(parts.with_remedy(str(error))) from None

    @property
    def again(self) -> str:
        """The sentence on how to resume the command; "" if nothing is kept, and in an audit, which has its own sentence."""
        return f"what was computed is in {self.path}: go on with --resume" if self.own and self._store is not None else ""

    def with_remedy(self, message: str) -> str:
        """Return the note about a run that ended early, with how to resume it."""
        return "; ".join(filter(None, [message, self.again]))

    def question(self, *determines: Any) -> str:
        """Return the hash of arrays and JSON values that determine some parts; "" if nothing is kept."""
        if self.path is None:
            return ""
        digest = hashlib.sha256(version("verifair").encode())
        for item in determines:
            if isinstance(item, np.ndarray):
                digest.update(f"{item.dtype.str}{item.shape}".encode())
                digest.update(np.ascontiguousarray(item).data)
            else:
                digest.update(json.dumps(item).encode())
        return digest.hexdigest()

    def has(self, question: str, place: str) -> bool:
        """Return True if a part is stored. Raises DataError if the store is that of another question."""
        if self.path is None:
            return False
        store = self._opened(self.path) if self._store is None else self._store
        is_stored = self.resume and f"{question} {place}" in store
        if self.resume and self.own and not self._asked and not is_stored and len(store):
            raise DataError(f"{self.path}: holds another question; name another file with --store, or folder with --out")
        self._asked = True
        return is_stored

    def part(self, question: str, place: str, like: Sequence[npt.NDArray[Any]], compute: Callable[[], Arrays]) -> Arrays:
        """Return the arrays of a part; compute and store them if they are not stored.   like: arrays of their shapes and types.

        Raises DataError as `has` does, for a damaged part, and if the disk is full.
        """
        if self.path is None:
            return compute()
        name = f"{question} {place}"
        if self.has(question, place):
            assert self._store is not None
            content, offset, stored = self._store.get(name, sum(a.nbytes for a in like)), 0, []
            for a in like:
                stored.append(np.frombuffer(content, dtype=a.dtype, count=a.size, offset=offset).reshape(a.shape))
                offset += a.nbytes
            return tuple(stored)
        arrays = tuple(np.asarray(values, dtype=a.dtype).reshape(a.shape) for values, a in zip(compute(), like, strict=True))
        assert self._store is not None
        self._store.add(name, b"".join(a.tobytes() for a in arrays))
        return arrays

    def _opened(self, path: Path) -> PartStore:
        self._store = self._files.enter_context(PartStore(path))
        return self._store

    def _end(self, error: BaseException | None) -> None:
        if error is None and self.whole and self.path is not None:
            self.path.unlink(missing_ok=True)


NO_STORE = Parts()
"""The store of a run that keeps nothing."""
