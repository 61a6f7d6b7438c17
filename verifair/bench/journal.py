"""Runs on disk as they are made: one JSON object a line, the first says what all runs share. A killed run loses one at most."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from verifair.bench.answer import SKIPPED
from verifair.bench.record import Record
from verifair.errors import DataError

NAME = "runs.jsonl"
LONGEST = 500
"""Characters of a message about what is wrong with it."""


class Journal:
    """The runs in folder/runs.jsonl; what is asked again replaces what was said before."""

    def __init__(self, folder: Path, settings: dict[str, Any], *, resume: bool) -> None:
        """Start a file, or with `resume` continue the one that is there. settings: what all its runs have in common.

        Raises DataError for a file that is there and not to be continued, that was made with other settings, or is none of ours.
        """
        self.path = folder / NAME
        self.records: dict[tuple[str, str, int], Record] = {}
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
        self._file.close()

    def add(self, record: Record) -> None:
        """On disk before the next run starts."""
        self.records[record.key] = record
        self._write(record.to_dict())

    def holds(self, case: str, competitor: str, repeat: int, question: str, version: str) -> bool:
        """Whether this was measured. Raises DataError where the same name stood for another question, or another version."""
        known = self.records.get((case, competitor, repeat))
        if known is not None and known.question != question:
            raise DataError(
                f"{self.path}: {case} is another question there (another version of verifair); name another folder with --out"
            )
        if known is not None and known.version != version:
            raise DataError(
                f"{self.path}: {competitor} was version {known.version or 'unknown'} there and is {version or 'unknown'} now; "
                "name another folder with --out"
            )
        return known is not None and known.reason not in (SKIPPED, "interrupted")

    def _write(self, content: dict[str, Any]) -> None:
        self._file.write(json.dumps(content, allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, settings: dict[str, Any]) -> None:
        """What is there; half a last line is what a kill leaves, and is cut off."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            found = lines[0]["settings"] if lines else settings
            if not isinstance(found, dict):
                raise ValueError("its settings are none")
            records = [Record.from_dict(line) for line in lines[1:]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            said = str(error)[:LONGEST]
            raise DataError(f"{self.path}: is no journal of verifair bench, or damaged ({said}); name another folder") from error
        if found != settings:
            differs = sorted(name for name in {*found, *settings} if found.get(name) != settings.get(name))
            said = ", ".join(f"{name} {found.get(name)} there, {settings.get(name)} now" for name in differs)[:LONGEST]
            raise DataError(f"{self.path}: was made with other settings ({said}), and times would not compare; name another folder")
        if len(whole) < len(content):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        if not lines:
            self.path.write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")
        self.records = {record.key: record for record in records}
