"""The output of an answer: files first, then JSON, then the screen; and the early end of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from verifair.cli.command import NOTHING_KEPT, option_name
from verifair.errors import INTERRUPTED, MissingPackage, QueryError, require
from verifair.interrupts import Interrupted, OutOfTime, keeping
from verifair.notebook.progress import progress_bar
from verifair.screen import Screen
from verifair.systems.results.files import save_json, save_text
from verifair.systems.results.result import Answer, SystemAnswer
from verifair.systems.settings import Run, Settings
from verifair.systems.system import System

if TYPE_CHECKING:
    from verifair.systems.work import Work


def check(system: System, run: Run, settings: Settings) -> None:
    """Raise QueryError, before the run, for files that cannot be written and options that cannot be used."""
    files = {"json_file": run.json_file, "plot": run.plot, "store": run.store, "certificate": run.certificate}
    if run.plot is not None and run.plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise QueryError(f"--plot {run.plot}: pictures are drawn as .png, .pdf or .svg; name the file so")
    if run.plot is not None:
        require("matplotlib", "plots", "--plot")
    options = {option_name(name, Run.model_fields[name]): file for name, file in files.items() if name not in settings.folders}
    check_outputs(options | settings.files)
    if run.out is not None:
        if run.out.exists() and not run.out.is_dir():
            raise QueryError(f"--out {run.out}: is a file; name a folder")
        check_outputs({"--out": run.out / text_file(system)}, folder=run.out)
    check_workers(run.jobs if "jobs" in run.model_fields_set else 1, run.cluster)


def check_workers(jobs: int, cluster: str | None) -> None:
    """Raise QueryError, before anything is read, for both --jobs and --cluster, or for an invalid address."""
    if cluster is not None and jobs > 1:
        raise QueryError("--jobs counts processes of this machine, --cluster takes all workers of another: drop one")
    if cluster is not None:
        from verifair.engine.cluster import check_address

        check_address(cluster)


def check_outputs(files: Mapping[str, Path | None], *, new: bool = False, folder: Path | None = None) -> None:
    """Raise QueryError, before the run, for files that cannot be written or, with `new`, exist already.

    folder: of --out, if the option does not name the file itself.
    """
    outputs = {option: path for option, path in files.items() if path is not None}
    for option, path in outputs.items():
        if path.is_dir():
            raise QueryError(f"{option} {path}: is a folder; name a file in it")
        if new and path.exists():
            raise QueryError(f"{option} {path}: is there already; name another file, so that nothing is lost")
        existing = next(folder for folder in path.absolute().parents if folder.exists())
        if not (existing.is_dir() and os.access(existing, os.W_OK)):
            target, kind = (folder, "folder") if folder is not None and option == "--out" else (path, "file")
            raise QueryError(f"{option} {target}: nothing can be written in {existing}; name a {kind} elsewhere")
    paths = [path.resolve() for path in outputs.values()]
    duplicate = next((path for path in paths if paths.count(path) > 1), None)
    if duplicate is not None:
        options = " and ".join(option for option, path in outputs.items() if path.resolve() == duplicate)
        raise QueryError(f"{options} name the same file, {duplicate.name}; give each its own")


def text_file(system: System) -> str:
    """Return the name of the screen's text in the folder of --out."""
    return system.text_file or f"{system.verb}.txt"


def alone_in(out: Path) -> AbstractContextManager[None]:
    """Return a lock on the folder of --out for the time of a run. Raises QueryError if another run holds it."""
    from verifair.locks import alone

    return alone(out / ".lock", f"--out {out}: another run is writing there; wait until that has ended, or name another folder")


def work(run: Run, subject: Any, started: float, resources: ExitStack | None = None) -> Work:
    """Return the `Work` of a command."""
    from verifair.systems.work import Work

    return Work(
        started=started, deadline=started + run.timeout, seed=run.seed, nodes=run.nodes, jobs=run.jobs, top=run.top,
        folder=run.out, store=run.store, resume=run.resume, certificate=run.certificate,
        options=getattr(subject, "options", ""), bar=progress_bar, warn=warn, say=Screen().print, held=resources,
    )


def warn(text: str) -> None:
    """Print a message for the user at once."""
    tell(f"warning: {text}")


@contextmanager
def ending() -> Iterator[None]:
    """Handle the early end of a run: exit 130 after Ctrl-C, with a note on what is kept; QueryError if time ran out."""
    try:
        yield
    except OutOfTime as error:
        raise QueryError(f"--timeout: {error}; allow more, or ask for less") from None
    except KeyboardInterrupt as error:
        tell(str(error) if isinstance(error, Interrupted) else NOTHING_KEPT)
        raise typer.Exit(INTERRUPTED) from None


def save_answer(path: Path | None, answer: Answer) -> None:
    """Write the JSON of an answer if it was asked for."""
    if path is not None:
        save_json(path, answer)


def finish(system: System, run: Run, result: SystemAnswer) -> None:
    """Write the files and the JSON, print the screen, and end with the exit code of the answer."""
    show: Callable[[SystemAnswer, Screen], None] = system.part("tables", "show")
    interrupted = result.interrupted
    unwritten = None
    with keeping("not everything was written or shown"):
        try:
            if run.out is not None:
                try:
                    _write(system, run.out, result)
                except KeyboardInterrupt:
                    interrupted = f"not everything is in --out {run.out}"
            if run.plot is not None:
                run.plot.parent.mkdir(parents=True, exist_ok=True)
                system.part("plots", "plot")(result, run.plot)
            save_answer(run.json_file, result)
        except OSError as error:
            unwritten = error  # the answer is printed even if a file cannot be written
        show(result, Screen())
    if unwritten is not None:
        raise unwritten
    if interrupted is not None:
        raise Interrupted(f"interrupted: {interrupted}")
    if run.exit_verdict:
        raise typer.Exit(result.exit_code)


def _write(system: System, out: Path, result: SystemAnswer) -> None:
    """Write the screen's text, the tables, the pictures and other files into the folder of --out."""
    from verifair.systems.results.spreadsheets import save_table

    out.mkdir(parents=True, exist_ok=True)
    screen, text = StringIO(), system.optional("tables", "text") or system.part("tables", "show")
    text(result, Screen(file=screen, width=160))
    save_text(out / text_file(system), screen.getvalue())
    tables, plots, write = (system.optional(*names) for names in (("tables", "tables"), ("plots", "plots"), ("tables", "write")))
    for name, table in (tables(result) if tables else {}).items():
        save_table(out / name, [table])
    pictures = plots(result) if plots else {}
    try:
        for name, draw in pictures.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            draw(out / name)
    except MissingPackage as error:
        tell(f"{', '.join(pictures)}: not drawn; {error}")
    if write and (left_out := write(result, out)):
        tell(left_out)


def tell(text: str) -> None:
    Screen(stderr=True).print(text, soft_wrap=True)
