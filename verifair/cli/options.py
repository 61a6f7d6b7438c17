"""Options that several verbs share, declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from solvers.outcome import Budget
from verifair.engine.parallel import check_address
from verifair.errors import QueryError
from verifair.systems.files import save_json, versions

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
Json = Annotated[Path | None, typer.Option("--json", help="Write the whole answer to this JSON file.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random draw.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Processes (joblib); each keeps to one BLAS thread.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="Use the workers of a dask cluster instead: tcp://host:port of its scheduler.")
]
Nodes = Annotated[int | None, typer.Option("--nodes", help="Boxes of branch-and-bound a question may take.")]


def budget(timeout: float, nodes: int | None, seed: int) -> Budget:
    try:
        return Budget(seconds=timeout, nodes=nodes, seed=seed)
    except ValueError as error:
        raise QueryError(f"{str(error).removeprefix('budget: ')} (--timeout, --nodes, --seed)") from error


def check_workers(jobs: int, cluster: str | None) -> None:
    """Raise QueryError for two answers to who does the work, or for what is no address; before anything is read."""
    if cluster is not None and jobs > 1:
        raise QueryError("--jobs counts processes of this machine, --cluster takes all workers of another: drop one")
    if cluster is not None:
        check_address(cluster)


def picture(path: Path | None) -> Path | None:
    """A plot's path, once its suffix is known to be one that can be drawn; before the run, so that nothing is lost after it."""
    if path is not None and path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise QueryError(f"--plot {path}: pictures are drawn as .png, .pdf or .svg; name the file so")
    return path


def check_outputs(files: Mapping[str, Path | None]) -> None:
    """Raise QueryError for what cannot be written, option -> path; before the run, so that nothing is lost after it."""
    for option, path in files.items():
        if path is None:
            continue
        if path.is_dir():
            raise QueryError(f"{option} {path}: is a folder; name a file in it")
        near = next(folder for folder in path.absolute().parents if folder.exists())
        if not (near.is_dir() and os.access(near, os.W_OK)):
            raise QueryError(f"{option} {path}: nothing can be written in {near}; name a file elsewhere")
    named = [path.resolve() for path in files.values() if path is not None]
    twice = next((path for path in named if named.count(path) > 1), None)
    if twice is not None:
        both = " and ".join(option for option, path in files.items() if path is not None and path.resolve() == twice)
        raise QueryError(f"{both} name the same file, {twice.name}; give each its own")


class Saves(Protocol):
    """What a certificate can do, whatever it proves."""

    def save(self, path: str | Path) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where an answer goes. source: the options that name the model and schema it is about."""

    source: str
    json: Path | None
    certificate: Path | None

    def save_certificate(self, certificate: Saves | None) -> Path | None:
        """Write it where the user asked for it, and say where that is; None where there is none, or nobody asked."""
        if self.certificate is None or certificate is None:
            return None
        self.certificate.parent.mkdir(parents=True, exist_ok=True)
        certificate.save(self.certificate)
        return self.certificate

    def unsaved_line(self, why: str) -> str | None:
        """What became of a certificate that was asked for and that there is none of; None when nobody asked."""
        if self.certificate is None:
            return None
        old = f"; {self.certificate} is there from before and was left as it is" if self.certificate.is_file() else ""
        return f"no certificate was written: {why}{old}"

    def check_line(self, file: Path) -> str:
        """How to check a file of proofs."""
        return f"{file} (verifair check {file} {self.source})"


def console() -> Console:
    return Console(highlight=False)


def assignments(texts: Sequence[str], option: str, *, expected: str, once: str) -> dict[str, str]:
    """name -> value, as written in name=value. expected, once: the remedies for another form, and for a name given twice.

    Raises QueryError.
    """
    out: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise QueryError(f"{option} {text}: {expected}")
        if name in out:
            raise QueryError(f"{option} names {name!r} twice; {once}")
        out[name] = value
    return out




@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and remaining time on a terminal, nothing elsewhere; gives progress(done, total)."""
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    err = Console(stderr=True)
    if not err.is_terminal:
        yield lambda done, total: None
        return
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def write_json(path: Path | None, answer: dict[str, Any]) -> None:
    """The answer with the versions that made it."""
    if path is not None:
        save_json(path, answer | {"versions": versions()})
