"""Replies to questions, records with their resources, and the journal that keeps them: one JSON object per line.

The first line of the file holds the settings that all runs share. A killed run loses one line at most.
"""

from __future__ import annotations

import json
import math
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictBool, StrictFloat, StrictInt, TypeAdapter, ValidationError

from verifair.bench.questions import Kind
from verifair.errors import DataError

ReplyStatus = Literal["proved", "violated", "optimal", "unknown"]
Seconds = Annotated[float, Field(strict=True, ge=0, lt=1e15)]
LICENCE, SKIPPED, DISAGREEMENT, WRONG_WITNESS = "licence", "skipped", "disagreement", "wrong-witness"
"""Why nothing was decided, beside `verifair.engine.verdict.Reason`: the licence is too small for the program; larger questions of
a family were not asked any more; the engine itself met a contradiction and stopped; the
counterexample of another verifier does not meet its query."""
NAME = "runs.jsonl"
ONE_JOB = "1 process"
"""Default of the setting that says which processes measured the runs."""
LONGEST = 500
"""Characters of a message about what is wrong with a journal."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """status: proved and violated for a decision, optimal for the rest.   reason: why unknown, None otherwise.

    trust: "checked" for a proof that `verifair check` re-proves (and bounds with outward rounding), "exact" for a counterexample,
    or a cost, that was evaluated exactly, "claimed" for a solver's claim, "" if nothing was decided.
    lower, upper: bounds of the quantity (the goal's best row, the LP's optimum, the largest cost); infinite if not known.
    comparable: whether `lower` and `upper` are about the same number for every method (a decision about several rows is not).
    solve_seconds: within the solver, None without a solver.   version: of the backend.
    cpu_seconds, peak_mb: of processes that were started, None without any.   startup_seconds: of their start-up, before the query.
    """

    status: ReplyStatus
    reason: str | None
    trust: str
    lower: float = -np.inf
    upper: float = np.inf
    comparable: bool = False
    solve_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_mb: float | None = None
    startup_seconds: float = 0.0
    version: str = ""
    engine: str = ""
    note: str = ""

    @property
    def decided(self) -> bool:
        return self.status != "unknown"


def unknown(reason: str, note: str = "") -> Reply:
    """Return the reply of a competitor that decided nothing."""
    return Reply(status="unknown", reason=reason, trust="", note=note)


@dataclass(frozen=True, kw_only=True)
class BenchRecord:
    """question, subject: fingerprints (see `questions`).   repeat: 0, 1, ...   limit: seconds it had.

    status, reason, trust, lower, upper, comparable, engine, note: see `Answered`; infinite bounds are not known.
    total_seconds: from the question to the answer, on the clock.   solve_seconds: of these within the solver.   build_seconds: the
    rest: bounds, encoding, the backend's model, exact re-evaluation; both None without a solver.
    cpu_seconds: of the run and all that it started.   startup_seconds: of another verifier, not part of the total.
    peak_mb: the most resident memory that the run took beyond what its process held before, base_mb (Python, packages, question).
    """

    case: str
    family: str
    kind: Kind
    size: StrictInt
    question: str
    subject: str
    method: str
    solver: str | None
    version: str
    repeat: StrictInt
    seed: StrictInt
    limit: Seconds
    status: ReplyStatus
    reason: str | None
    trust: str
    lower: StrictFloat
    upper: StrictFloat
    comparable: StrictBool
    build_seconds: StrictFloat | None
    solve_seconds: StrictFloat | None
    total_seconds: Seconds
    cpu_seconds: StrictFloat | None
    startup_seconds: StrictFloat
    peak_mb: StrictFloat | None
    base_mb: StrictFloat | None
    engine: str
    note: str

    @property
    def competitor(self) -> str:
        """The competitor's name, e.g. milp:highs."""
        return self.method if self.solver is None else f"{self.method}:{self.solver}"

    @property
    def solved(self) -> bool:
        """True if it was decided within the limit."""
        return self.status != "unknown" and self.total_seconds <= self.limit

    @property
    def key(self) -> tuple[str, str, int]:
        """Two records with the same key are the same measurement."""
        return self.case, self.competitor, self.repeat

    def to_dict(self) -> dict[str, Any]:
        """Return the content as JSON values; infinite numbers become None."""
        return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> BenchRecord:
        """Read a record. Raises TypeError or ValueError for anything that `to_dict` did not write."""
        if not isinstance(content, dict) or set(content) != {field.name for field in fields(cls)}:
            raise ValueError("not a record of a run")
        for name, value in content.items():
            if isinstance(value, (int, float)) and not abs(value) <= sys.float_info.max:
                raise ValueError(f"{name} is no number that was measured")
            if isinstance(value, str) and not value.isprintable():
                value.encode()  # a lone surrogate, which cannot be written again
        lower, upper = content["lower"], content["upper"]
        try:
            values = {**content, "lower": -math.inf if lower is None else lower, "upper": math.inf if upper is None else upper}
            return _ADAPTER.validate_python(values)
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


_ADAPTER = TypeAdapter(BenchRecord)


class Journal:
    """The runs in folder/runs.jsonl, written as they are made; a repeated run replaces the earlier one."""

    def __init__(self, folder: Path, settings: dict[str, Any], *, resume: bool) -> None:
        """Start a file, or with `resume` continue an existing one.   settings: those that all its runs share.

        Raises DataError for an existing file without `resume`, one with other settings, and one that is not a journal.
        """
        self.path = folder / NAME
        self.records: dict[tuple[str, str, int], BenchRecord] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size:
            if not resume:
                raise DataError(f"{self.path}: holds an earlier run; continue it with --resume, or name another folder with --out")
            self._read(settings)
            self._file = self.path.open("a", encoding="utf-8")
        else:
            self._file = self.path.open("w", encoding="utf-8")
            self._write({"settings": settings})

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):  # every line was written, or an error was raised
            self._file.close()

    def add(self, record: BenchRecord) -> None:
        """Keep a record, on disk before the next run starts."""
        self.records[record.key] = record
        self._write(record.to_dict())

    def holds(self, case: str, competitor: str, repeat: int, question: str, version: str) -> bool:
        """Return True if this was measured. Raises DataError if the name belongs to another question, or another version."""
        record = self.records.get((case, competitor, repeat))
        if record is not None and record.question != question:
            raise DataError(
                f"{self.path}: {case} is another question there (another version of verifair); name another folder with --out"
            )
        if record is not None and record.version != version:
            raise DataError(
                f"{self.path}: {competitor} was version {record.version or 'unknown'} there and is {version or 'unknown'} now; "
                "name another folder with --out"
            )
        return record is not None and record.reason not in (SKIPPED, "interrupted")

    def _write(self, content: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(content, allow_nan=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def _read(self, settings: dict[str, Any]) -> None:
        """Read the file. A kill may leave half a last line, which is cut off."""
        content = self.path.read_bytes()
        complete = content[: content.rfind(b"\n") + 1]
        try:
            lines = [json.loads(line) for line in complete.splitlines()]
            stored = lines[0]["settings"] if lines else settings
            if not isinstance(stored, dict):
                raise ValueError("its settings are none")
            records = [BenchRecord.from_dict(line) for line in lines[1:]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            text = str(error)[:LONGEST]
            raise DataError(f"{self.path}: is no journal of verifair bench, or damaged ({text}); name another folder") from error
        if stored != settings:
            values = {name: (stored.get(name, ONE_JOB), settings.get(name, ONE_JOB)) for name in sorted({*stored, *settings})}
            differences = [f"{name} {before} there, {after} now" for name, (before, after) in values.items() if before != after]
            text = ", ".join(differences)[:LONGEST]
            raise DataError(f"{self.path}: was made with other settings ({text}), and times would not compare; name another folder")
        if len(complete) < len(content):
            with self.path.open("r+b") as file:
                file.truncate(len(complete))
        if not lines:
            self.path.write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")
        self.records = {record.key: record for record in records}
