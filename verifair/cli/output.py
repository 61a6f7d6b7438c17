"""Where an answer goes: files first, then JSON, then the screen; and how a run ends before its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from verifair.cli import options
from verifair.cli.command import option_name
from verifair.errors import QueryError
from verifair.systems.files import save_table, save_text
from verifair.systems.result import Answer, Result, json_text
from verifair.systems.settings import Run, Settings
from verifair.systems.system import System
from verifair.systems.work import Interrupted, OutOfTime, Work


def check(system: System, run: Run, settings: Settings) -> None:
    """Raise QueryError for what cannot be written or used; before the run, so that nothing is lost after it."""
    files = {"json_file": run.json_file, "plot": options.picture(run.plot), "store": run.store, "certificate": run.certificate}
    named = {option_name(name, Run.model_fields[name]): file for name, file in files.items() if name not in settings.folders}
    options.check_outputs(named | settings.files)
    if run.out is not None:
        if run.out.exists() and not run.out.is_dir():
            raise QueryError(f"--out {run.out}: is a file; name a folder")
        options.check_outputs({"--out": run.out / text_file(system)})
    options.check_workers(run.jobs if "cluster" in system.run else 1, run.cluster)
    options.budget(run.timeout, run.nodes, run.seed)


def text_file(system: System) -> str:
    """Return the name of the screen's text in the folder of --out."""
    return system.text_file or f"{system.verb}.txt"


def work(run: Run, subject: Any, started: float) -> Work:
    """Return what a system works with on the command line."""
    return Work(
        started=started, deadline=started + run.timeout, seed=run.seed, nodes=run.nodes, jobs=run.jobs, top=run.top,
        folder=run.out, store=run.store, resume=run.resume, certificate=run.certificate, cluster=run.cluster,
        options=getattr(subject, "options", ""), bar=options.progress_bar, warn=warn,
    )


def warn(text: str) -> None:
    """Tell what the user should know at once."""
    _tell(f"warning: {text}")


@contextmanager
def ending() -> Iterator[None]:
    """End a run that has nothing to show: exit 130 after Ctrl-C, QueryError when time was up."""
    try:
        yield
    except OutOfTime as error:
        raise QueryError(f"--timeout: {error}; allow more, or ask for less") from None
    except KeyboardInterrupt as error:
        _tell(str(error) if isinstance(error, Interrupted) else "interrupted: nothing is kept")
        raise typer.Exit(options.INTERRUPTED) from None


def save_answer(path: Path | None, answer: Answer) -> None:
    """Write the JSON of an answer, where one was asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_text(path, json_text(answer))


def finish(system: System, run: Run, result: Result) -> None:
    """Write the files and the JSON, show the screen, and end with the exit code of the answer."""
    show: Callable[[Result, Console], None] = system.part("tables", "show")
    interrupted = result.interrupted
    if run.out is not None:
        try:
            _write(system, run.out, result)
        except KeyboardInterrupt:
            interrupted = f"not everything is in --out {run.out}"
    if run.plot is not None:
        run.plot.parent.mkdir(parents=True, exist_ok=True)
        system.part("plots", "plot")(result, run.plot)
    save_answer(run.json_file, result)
    show(result, Console(highlight=False, markup=False))  # names of groups and categories may hold [brackets]
    if interrupted is not None:
        _tell(f"interrupted: {interrupted}")
        raise typer.Exit(options.INTERRUPTED)
    if run.exit_verdict:
        raise typer.Exit(result.exit_code)


def _write(system: System, out: Path, result: Result) -> None:
    """Write the screen's text, the tables, the pictures and what else there is into the folder of --out."""
    out.mkdir(parents=True, exist_ok=True)
    screen, text = StringIO(), system.optional("tables", "text") or system.part("tables", "show")
    text(result, Console(file=screen, width=160, highlight=False, markup=False))
    save_text(out / text_file(system), screen.getvalue())
    tables, plots, write = (system.optional(*one) for one in (("tables", "tables"), ("plots", "plots"), ("tables", "write")))
    for name, table in (tables(result) if tables else {}).items():
        save_table(out / name, [table])
    for name, draw in (plots(result) if plots else {}).items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        draw(out / name)
    if write:
        write(result, out)


def _tell(text: str) -> None:
    Console(stderr=True, highlight=False, markup=False).print(text, soft_wrap=True)
