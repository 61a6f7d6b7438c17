"""verifair audit: all analyses of one model, as one page that an auditor can read and re-check."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from verifair import datasets
from verifair.audit.audit_file import load
from verifair.audit.example import EXAMPLE as STARTING_FILE
from verifair.audit.result import AuditResult
from verifair.audit.run import Places, run
from verifair.audit.settings import ANALYSES
from verifair.audit.subject import read
from verifair.cli import options
from verifair.cli.helps import HELPS
from verifair.cli.locks import alone
from verifair.engine import parallel
from verifair.errors import QueryError
from verifair.systems.cst.causal.checks import nearest
from verifair.systems.files import save_text
from verifair.systems.findings import Section, Standing

STYLES = {
    Standing.PROVED: "green", Standing.REFUTED: "red", Standing.CLAIMED: "yellow", Standing.MEASURED: "cyan",
    Standing.UNKNOWN: "yellow", Standing.SKIPPED: "yellow",
}  # fmt: skip


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("audit", help=HELPS["audit"])
def audit(
    file: Annotated[
        Path | None, typer.Argument(metavar="AUDIT.toml", help="What to audit, and how (TOML).", show_default=False)
    ] = None,
    demo: Annotated[str | None, typer.Option("--demo", help="Audit a shipped network: german or adult.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The page to write (.html); proofs go into a folder beside it.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="The whole answer (default: beside the page).")] = None,
    only: Annotated[str | None, typer.Option("--only", help="Some of the analyses, with commas: pba,kmax.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds for the whole audit (default: the file's).")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of every random draw (default: the file's).")] = None,
    jobs: options.Jobs = 1,
    cluster: options.Cluster = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted audit; what is finished is kept.")] = False,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder that the file's paths may not leave (default: the audit file's).")
    ] = None,
    write_example: Annotated[
        Path | None, typer.Option("--write-example", help="Write an audit file to begin with, and end.")
    ] = None,
    exit_verdict: Annotated[
        bool, typer.Option("--exit-verdict", help="Exit with 10 where something is refuted, 20 where something is unknown.")
    ] = False,
) -> None:  # fmt: skip
    if write_example is not None:
        _write_example(write_example)
        return
    options.check_workers(jobs, cluster)
    path = _path(file, demo, root)
    if out is None:
        raise QueryError("audit needs --out PAGE.html, the page to write")
    places = _places(out, json)
    asked = load(path, root=root)
    budget = options.budget(asked.head.timeout if timeout is None else timeout, None, asked.head.seed if seed is None else seed)
    chosen = _only(only, list(asked.analyses))
    places.check()
    subject = read(asked)
    console = options.console()
    try:
        with alone(places.lock, _in_use(places)), parallel.cluster(cluster), _bars() as tell:
            result = run(
                asked, subject, places, timeout=budget.seconds, seed=budget.seed, jobs=jobs, resume=resume, only=chosen, tell=tell,
                done=lambda section: _show(section, console),
            )  # fmt: skip
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print(
            "interrupted: finished analyses are kept; run the same command with --resume to go on", soft_wrap=True
        )
        raise typer.Exit(options.INTERRUPTED) from None
    _close(result, places, console)
    if exit_verdict:
        found = {one.standing for one in result.statements}
        raise typer.Exit(10 if Standing.REFUTED in found else 20 if found & {Standing.UNKNOWN, Standing.SKIPPED} else 0)


def _path(file: Path | None, demo: str | None, root: Path | None) -> Path:
    if demo is None:
        if file is None:
            raise QueryError("audit needs an audit file; pass one, try --demo german, or begin with --write-example my.audit.toml")
        return file
    if file is not None or root is not None:
        raise QueryError("--demo brings its own audit file: drop it, or drop the others")
    if demo not in ("german", "adult"):
        raise QueryError(f"--demo {demo}: expected german or adult; for other models write an audit file (--write-example)")
    return datasets.audit_path(demo)


def _places(out: Path, json: Path | None) -> Places:
    if out.suffix.lower() not in (".html", ".htm"):
        raise QueryError(f"--out {out}: the page is HTML; name it so, e.g. {out.with_suffix('.html').name}")
    places = Places(page=out, json=json or out.with_suffix(".json"))
    options.check_outputs({"--out": places.page, "--json": places.json})
    return places


def _in_use(places: Places) -> str:
    return f"--out {places.page}: another audit is writing it; wait until that has ended, or name another page"


def _only(text: str | None, asked: list[str]) -> list[str]:
    if text is None:
        return []
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in ANALYSES:
            raise QueryError(f"--only {name}: there is no such analysis; {nearest(name, ANALYSES)}")
        if name not in asked:
            has = ", ".join(asked)
            raise QueryError(f"--only {name}: the audit file does not ask for it; add [analyses.{name}] there (it has {has})")
    if not names:
        raise QueryError("--only: names no analysis; give one or more, such as --only pba,kmax")
    return names


def _write_example(path: Path) -> None:
    options.check_outputs({"--write-example": path})
    if path.exists():
        raise QueryError(f"--write-example {path}: is there already; name another file, so that nothing is lost")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, STARTING_FILE)
    options.console().print(f"{path}: edit it, then run verifair audit {shlex.quote(str(path))} --out report.html", soft_wrap=True)


@contextmanager
def _bars() -> Iterator[Callable[[str, str, int, int], None]]:
    """A line for the analysis under way on a terminal, nothing elsewhere; gives tell(key, what, done, total)."""
    err = Console(stderr=True)
    if not err.is_terminal:
        yield lambda key, what, done, total: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[far]}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("reading", total=None, far="")
        yield lambda key, what, done, total: bar.update(task, description=f"{key}: {what}", far=f"{done:,} of {total:,}")


def _show(section: Section, console: Console) -> None:
    """The summary statements of a finished analysis; all of them where it says nothing else."""
    console.print(f"[bold]{section.title}[/] ({section.seconds:.1f} s)", soft_wrap=True)
    chosen = [one for one in section.statements if one.headline] or list(section.statements[:3])
    for one in chosen:
        console.print(f"  {one.standing.value:<9}", style=STYLES[one.standing], end="")
        console.print(one.text, soft_wrap=True, markup=False)


def _close(result: AuditResult, places: Places, console: Console) -> None:
    proofs = [proof for section in result.sections for proof in section.evidence]
    accepted = sum(proof.checked == "accepted" for proof in proofs)
    console.print(f"page: {places.page}    answer: {places.json}    {result.seconds:.1f} s", soft_wrap=True, markup=False)
    if proofs:
        console.print(
            f"proofs: {len(proofs)} files in {places.final}, {accepted} accepted by the separate checker just now; to re-check "
            "them all:",
            soft_wrap=True, markup=False,
        )  # fmt: skip
        _, _, rest = proofs[0].command.partition(f"{shlex.quote(proofs[0].file)} ")
        kinds = sorted({Path(proof.file).suffix for proof in proofs})
        every = " ".join(f"{shlex.quote(places.final.name)}/*{kind}" for kind in kinds)
        command = f'for proof in {every}; do verifair check "$proof" {rest}; done'
        console.print(f"  cd {shlex.quote(str(places.page.resolve().parent))} && {command}", soft_wrap=True, markup=False)
