"""Resources of a system's run: time, seed, files, and callbacks of progress."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.extent import Extent
from verifair.checker.report import Progress
from verifair.errors import QueryError
from verifair.files import whole
from verifair.interrupts import OutOfTime
from verifair.systems.results.files import file_name
from verifair.systems.results.findings import Evidence, Standing

if TYPE_CHECKING:
    from encoders.model import Model
    from verifair.schema.schema import Schema

Tell = Callable[[str, int, int], None]


class Saves(Protocol):
    """Any certificate that can be saved."""

    def save(self, path: str | Path) -> None: ...


class States(Saves, Protocol):
    """A certificate that states how much of its question it answers."""

    @property
    def extent(self) -> Extent: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """One question's share of time, processes and files.

    deadline: by `solvers.clock.now()`.   nodes: boxes of branch-and-bound a question may take.   jobs: processes or threads.
    top: people to review on the screen.
    folder: for files that are written during the work, None for none.   store, resume: file of verdicts, and whether to resume
    it.   certificate: the user's file for the proofs.
    options: those that name model and schema to `verifair check`.
    bar: context manager of a label's progress callback.   warn: receives messages for the user at once.
    say: receives the meaning of the question, before the work begins.
    held: the command's locks, held until its answer is written and shown; None: the caller makes sure that it is alone.
    shown: the page's name of the folder.   checks: the share of the remaining time for re-checking proofs in this run.
    """

    deadline: float
    seed: int
    started: float = field(default_factory=clock.now)
    nodes: int | None = None
    jobs: int = 1
    top: int = 10
    folder: Path | None = None
    store: Path | None = None
    resume: bool = False
    certificate: Path | None = None
    options: str = ""
    shown: str = ""
    checks: float = 0.0
    bar: Callable[[str], AbstractContextManager[Any]] = lambda label: nullcontext(lambda done, total: None)
    tell: Tell = lambda what, done, total: None
    warn: Callable[[str], None] = lambda text: None
    say: Callable[[str], None] = lambda text: None
    held: ExitStack | None = None

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(self.deadline - clock.now(), 1e-9)

    @property
    def up(self) -> bool:
        return clock.now() > self.deadline

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return clock.now() - self.started

    def budget(self, share: float = 1.0) -> Budget:
        """Return a share of the time that is left, with the node limit and the seed. Raises QueryError."""
        return budget(max(self.left * share * (1 - self.checks), 1e-9), self.nodes, self.seed)

    def progress(self, what: str) -> Progress:
        """Return the callback of work that watches the time itself."""
        return lambda done, total: self.tell(what, done, total)

    def stopping(self, what: str, progress: Progress | None = None) -> Progress:
        """Return the callback of work that does not watch the time; it ends the work with OutOfTime."""

        def report(done: int, total: int) -> None:
            (progress or self.progress(what))(done, total)
            if done < total and self.up:
                raise OutOfTime(f"the time was up after {done:,} of {total:,} ({what})")

        return report

    @contextmanager
    def bars(self) -> Iterator[Tell]:
        """Yield the callback of work in several steps that watch the time themselves, each with a bar of its own."""
        with ExitStack() as stack:
            bars: dict[str, Progress] = {}

            def tell(what: str, done: int, total: int) -> None:
                if what not in bars:
                    stack.close()
                    bars[what] = stack.enter_context(self.bar(what))
                bars[what](done, total)

            yield tell

    def save_certificate(self, certificate: Saves | None) -> Path | None:
        """Write the proofs to the user's file; return it, or None if there are no proofs or no file was asked for."""
        if self.certificate is None or certificate is None:
            return None
        self.certificate.parent.mkdir(parents=True, exist_ok=True)
        with whole(self.certificate) as temporary:
            certificate.save(temporary)
        return self.certificate

    def check_line(self, file: Path, *, partial: bool = False) -> str:
        """Return the command that checks a file of proofs.   partial: the file leaves part of its question open."""
        return f"{file} (verifair check {shlex.quote(str(file))} {self.options}{' --partial' * partial})"

    def save_proof(self, certificate: States | None, reason: str) -> tuple[Path | None, str | None]:
        """Write the proofs to the user's file; return the file and a line on how to check it, or on why there is none.

        A file that leaves some of its question open is accepted with --partial only, so the line says that.
        """
        file = self.save_certificate(certificate)
        if file is None or certificate is None:
            return None, self.unsaved_line(reason)
        return file, f"certificate: {self.check_line(file, partial=not certificate.extent.whole)}"

    def unsaved_line(self, reason: str) -> str | None:
        """Return the line that a certificate was asked for but there is none; None if nobody asked."""
        if self.certificate is None:
            return None
        note = f"; {self.certificate} is there from before and was left as it is" if self.certificate.is_file() else ""
        return f"no certificate was written: {reason}{note}"

    def keep(self, name: str, certificate: Saves, proves: str, network: Model, schema: Schema) -> Evidence:
        """Save a certificate beside the page, and let the separate checker check its file."""
        assert self.folder is not None
        path = self.folder / name
        with whole(path) as temporary:
            certificate.save(temporary)
        return self.checked(name, proves, network, schema)

    def checked(self, name: str, proves: str, network: Model, schema: Schema) -> Evidence:
        """Return the evidence in an existing file."""
        from verifair.checker.check import check

        assert self.folder is not None
        path, missing = self.folder / name, None
        outcome: Literal["accepted", "accepted in part", "rejected", "not re-checked"]
        try:
            report = check(path, model=network, schema=schema, progress=self.stopping(f"re-checking {name}"))
            outcome = "rejected" if report.rejections else "accepted" if report.accepted else "accepted in part"
            missing = report.missing
        except OutOfTime:
            outcome = "not re-checked"
        return Evidence(
            file=f"{self.shown}/{name}", sha256=sha256(path.read_bytes()).hexdigest(), proves=proves, missing=missing,
            command=f"verifair check {shlex.quote(f'{self.shown}/{name}')} {self.options}{' --partial' * (missing is not None)}",
            checked=outcome,
        )


def budget(seconds: float, nodes: int | None, seed: int) -> Budget:
    """Return the limits of a run. Raises QueryError for impossible ones."""
    try:
        return Budget(seconds=seconds, nodes=nodes, seed=seed)
    except ValueError as error:
        raise QueryError(f"{str(error).removeprefix('budget: ')} (--timeout, --nodes, --seed)") from error


def called(name: str) -> str:
    """Return a feature's name as part of a file name, different for each feature."""
    plain = file_name(name)
    return plain if plain == name else f"{plain}-{sha256(name.encode()).hexdigest()[:8]}"


def standing(evidence: Evidence) -> Standing:
    """Return PROVED only if the checker accepted the file in this very run.

    A file accepted in part proves the decided part, and statements that rely on it say so.
    """
    return Standing.PROVED if evidence.checked in ("accepted", "accepted in part") else Standing.CLAIMED
