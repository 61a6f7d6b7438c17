"""What an analysis works with: its share of the time, the folder for its files, and who is told how far it is."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from solvers.outcome import Budget
from verifair.audit.result import Evidence, Standing
from verifair.checker.report import CheckReport
from verifair.systems.figures import file_name

Progress = Callable[[int, int], None]
Tell = Callable[[str, int, int], None]


class OutOfTime(Exception):
    """An analysis that has no answer without more time. The message says how far it came."""


class Saves(Protocol):
    """What a certificate can do, whatever it proves."""

    def save(self, path: str | Path) -> None: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """One analysis' share.   key: of the analysis.   deadline: by time.monotonic().   folder: where its files go.

    shown: what the page calls that folder.   options: that name network and schema to `verifair check`.   resume: continue the
    stores that are there.   tell: told (what, done, total).
    """

    key: str
    deadline: float
    seed: int
    jobs: int
    folder: Path
    shown: str
    options: str
    resume: bool
    tell: Tell

    @property
    def left(self) -> float:
        """Seconds."""
        return max(self.deadline - time.monotonic(), 1e-3)

    @property
    def up(self) -> bool:
        return time.monotonic() > self.deadline

    def budget(self, share: float = 1.0) -> Budget:
        """A share of the time that is left."""
        return Budget(seconds=max(self.left * share, 1e-3), nodes=None, seed=self.seed)

    def progress(self, what: str) -> Progress:
        """Tells of work that watches the time itself."""
        return lambda done, total: self.tell(what, done, total)

    def stopping(self, what: str) -> Progress:
        """Tells of work that does not watch the time, and ends it with OutOfTime."""

        def tell(done: int, total: int) -> None:
            self.tell(what, done, total)
            if done < total and self.up:
                raise OutOfTime(f"the time was up after {done:,} of {total:,} ({what})")

        return tell

    def keep(self, name: str, certificate: Saves, proves: str, check: Callable[[Path, Progress], CheckReport]) -> Evidence:
        """Save a certificate, and have it checked from its file. check(path, progress): the separate checker."""
        path = self.folder / name
        half = path.with_name(f"part-{name}")  # the suffix says how it is written
        certificate.save(half)
        half.replace(path)
        return self.checked(name, proves, check)

    def checked(self, name: str, proves: str, check: Callable[[Path, Progress], CheckReport]) -> Evidence:
        """The evidence in a file that is there already."""
        path = self.folder / name
        try:
            report = check(path, self.stopping(f"re-checking {name}"))
            said = "accepted" if report.accepted else "rejected"
        except OutOfTime:
            said = "not re-checked"
        return Evidence(
            file=f"{self.shown}/{name}", sha256=sha256(path.read_bytes()).hexdigest(), proves=proves,
            command=f"verifair check {shlex.quote(f'{self.shown}/{name}')} {self.options}", checked=said,
        )  # fmt: skip


def called(name: str) -> str:
    """A feature's name as part of a file's name, unlike that of any other feature."""
    plain = file_name(name)
    return plain if plain == name else f"{plain}-{sha256(name.encode()).hexdigest()[:8]}"


def standing(evidence: Evidence) -> Standing:
    """PROVED is only what the checker accepted in this very run."""
    return Standing.PROVED if evidence.checked == "accepted" else Standing.CLAIMED
