"""verifair bench: the same queries through every method and solver that is installed."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.table import Table as Grid

from verifair.bench.answer import BenchAnswer, BenchListAnswer
from verifair.bench.cases import QUICK, chosen, families
from verifair.bench.cases.family import BenchCase
from verifair.bench.competitors import Competitor, competitors
from verifair.bench.contradictions import save
from verifair.bench.plots import draw
from verifair.bench.records import Journal
from verifair.bench.run import run
from verifair.bench.tables import KINDS, BenchResult, comparison, to_dict, write_tables
from verifair.cli import options
from verifair.cli.helps import HELPS
from verifair.cli.locks import alone
from verifair.cli.output import save_answer
from verifair.errors import Disagreement, QueryError
from verifair.systems.files import plain

OUT = Path("runs") / "bench"


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("bench", help=HELPS["bench"])
def bench(
    solvers: Annotated[
        str | None, typer.Option("--solvers", help="Only these backends, by commas; methods that ask none stay.")
    ] = None,
    methods: Annotated[str | None, typer.Option("--methods", help="Only these methods, by commas, e.g. auto,milp,marabou.")] = None,
    cases: Annotated[list[str] | None, typer.Option("--cases", help="Only cases of such names, e.g. 'pba-*/3-*'; repeat.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few small cases of every kind.")] = False,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="Rounds; medians are compared; default: 3, with --quick 1.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds for each run; default: 5, with --quick 1.")
    ] = None,
    patience: Annotated[
        int, typer.Option("--patience", min=0, help="Time-outs in a row after which larger cases are not asked; 0: all are.")
    ] = 2,
    out: Annotated[Path, typer.Option("--out", help="Folder for runs, tables and figures.")] = OUT,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List cases and competitors, and ask nothing.")] = False,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    rounds, seconds = (1, 1.0) if quick else (3, 5.0)
    budget = options.budget(seconds if timeout is None else timeout, None, seed)
    if quick and cases:
        raise QueryError("--quick chooses its own cases: drop it, or drop --cases")
    asked = chosen(QUICK if quick else cases or (), seed)
    everybody = selected(competitors(), _names(methods), _names(solvers))
    console = options.console()
    if list_:
        _list(asked, everybody, console)
        save_answer(json, BenchListAnswer.model_validate(_listed(asked, everybody)))
        return
    options.check_outputs({"--json": json, "--out": out / "runs.csv"})
    there = [one for one in everybody if one.available]
    if not there:
        raise QueryError("none of the competitors chosen is installed; verifair bench --list says how to install them")
    busy = f"--out {out}: another bench is writing there; wait until that has ended, or name another folder"
    with alone(out / ".lock", busy), Journal(out, _settings(there, budget.seconds, seed), resume=resume) as journal:
        interrupted = False
        try:
            with _bar() as progress:
                run(
                    asked, there, journal, limit=budget.seconds, repeats=repeats or rounds, patience=patience, progress=progress
                )
        except KeyboardInterrupt:
            interrupted = True
        wanted = {case.name for case in asked}, {one.name for one in there}
        records = [one for one in journal.records.values() if one.case in wanted[0] and one.competitor in wanted[1]]
    found = comparison(records, budget.seconds)
    files = _write(found, asked, out)
    content = {**to_dict(found), "interrupted": interrupted, "seed": seed, **_listed(asked, everybody)}
    answer = BenchAnswer.model_validate(plain(content))
    save_answer(out / "bench.json", answer)
    save_answer(json, answer)
    _show(found, everybody, [*files, out / "bench.json"], console)
    if interrupted:
        Console(stderr=True, highlight=False).print(f"interrupted: {out} keeps what was measured; continue with --resume")
        raise typer.Exit(options.INTERRUPTED)
    if found.contradictions:
        first = found.contradictions[0]
        raise Disagreement(
            f"{len(found.contradictions)} disagreements; the first: {first.first.competitor} and {first.second.competitor} on "
            f"{first.first.case}: {first.what}; both answers are in {out / first.name}, please report it"
        )


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


def selected(known: Sequence[Competitor], methods: Sequence[str], solvers: Sequence[str]) -> list[Competitor]:
    """Those of the methods and backends that are named. Raises QueryError for names that nobody has."""
    for option, names, there in (
        ("--methods", methods, {one.method for one in known}), ("--solvers", solvers, {one.solver for one in known if one.solver}),
    ):
        for name in names:
            if name not in there:
                raise QueryError(f"{option} {name}: is not known; choose among {', '.join(sorted(there))}")
    return [
        one for one in known
        if (not methods or one.method in methods) and (not solvers or one.solver is None or one.solver in solvers)
    ]


def _settings(there: Sequence[Competitor], limit: float, seed: int) -> dict[str, Any]:
    """What all runs of a journal share: times of different settings do not compare."""
    return {
        "verifair": version("verifair"), "python": platform.python_version(), "machine": platform.machine(), "limit": limit,
        "seed": seed,
    }


@contextmanager
def _bar() -> Iterator[Any]:
    """Runs done of all, and who is asked what; nothing where there is no terminal."""
    err = Console(stderr=True)
    if not err.is_terminal:
        yield None
        return
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, now: bar.update(task, completed=done, total=total, description=now)


def _write(found: BenchResult, asked: Sequence[BenchCase], out: Path) -> list[Path]:
    if not found.records:
        return []
    files = write_tables(found, out)
    files += draw(found, out, {case.family.name: case.family.size_is for case in asked})
    named = {record.case for one in found.contradictions for record in (one.first, one.second)}
    return [*files, *save(found.contradictions, out, {case.name: case.question() for case in asked if case.name in named})]


def _listed(asked: Sequence[BenchCase], everybody: Sequence[Competitor]) -> dict[str, Any]:
    return {
        "registry": [
            {"case": case.name, "family": case.family.name, "kind": case.family.kind, "size": case.size} for case in asked
        ],
        "competitors": [
            {"name": one.name, "available": one.available, "version": one.version, "install": one.remedy} for one in everybody
        ],
    }


def _list(asked: Sequence[BenchCase], everybody: Sequence[Competitor], console: Console) -> None:
    grid = Grid("family", "asks", "sizes", "cases", title=f"{len(asked)} cases (FAMILY/SIZE-NUMBER)", title_justify="left")
    for family in families():
        own = [case for case in asked if case.family.name == family.name]
        if own:
            sizes = ", ".join(dict.fromkeys(str(case.size) for case in own))
            grid.add_row(family.name, family.about, f"{sizes} ({family.size_is})", str(len(own)))
    console.print(grid)
    there = Grid("competitor", "version", "installed", title=f"{len(everybody)} competitors", title_justify="left")
    for one in everybody:
        there.add_row(one.name, one.version, "yes" if one.available else f"no: {one.remedy}".replace("[", "\\["))
    console.print(there)


def _show(found: BenchResult, everybody: Sequence[Competitor], files: Sequence[Path], console: Console) -> None:
    who = len({entry.competitor for entry in found.entries})
    console.print(
        f"{found.cases} cases, {who} competitors, {len(found.records)} runs of at most {found.limit:g} s: {found.decided} of "
        f"{found.asked} answers decided, {len(found.contradictions)} disagreements."
    )
    for kind in dict.fromkeys(entry.kind for entry in found.entries):
        part = found.scores[(found.scores["kind"] == kind) & (found.scores["family"] == "all")]
        heads = (Column("competitor", no_wrap=True), "solved", "claimed", "PAR-2 s", "median s", "peak MB", "mostly open for")
        grid = Grid(*heads, title=KINDS[kind], title_justify="left")
        for line in part.itertuples(index=False):
            cells = dict(zip(part.columns, line, strict=True))
            grid.add_row(
                cells["competitor"], f"{cells['solved']} of {cells['cases']}", str(cells["claimed"] or ""), f"{cells['PAR-2']:.3f}",
                _number(cells["median s"], 4), _number(cells["peak MB"], 0), cells["mostly open for"],
            )
        console.print(grid)
    for choice in found.choices:
        if choice.best != choice.default:
            console.print(
                f"{choice.kind}: {choice.default} is the default of {choice.method} (PAR-2 {choice.default_par2:.3f} s, "
                f"{choice.default_solved} solved); {choice.best} is faster ({choice.best_par2:.3f} s, {choice.best_solved} solved)."
            )
    for one in everybody:
        if not one.available:
            console.print(f"{one.name} was not asked: not installed; {one.remedy}".replace("[", "\\["))
    if files:
        named = [path.name for path in files if not path.name.startswith("disagreement-")]
        saved = f", {len(files) - len(named)} disagreement-*.json" if len(named) < len(files) else ""
        console.print(f"{files[0].parent}: {', '.join(named)}{saved}", soft_wrap=True)


def _number(value: float, digits: int) -> str:
    return "" if value != value else f"{value:.{digits}f}"
