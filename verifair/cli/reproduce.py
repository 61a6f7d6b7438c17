"""verifair reproduce: the tables and figures of the five papers, our numbers beside the printed ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from rich.table import Table as Grid

from verifair.cli.command import app_of, parse_options
from verifair.cli.helps import HELPS
from verifair.errors import QueryError, require
from verifair.notebook.progress import progress_bar
from verifair.screen import Screen
from verifair.systems.results.result import Answer, Count, Measured, Shape, Table
from verifair.systems.settings import Option, Positive, Settings
from verifair.systems.system import System

if TYPE_CHECKING:
    import pandas as pd

    from verifair.papers.catalog import Printed
    from verifair.papers.reproduce import Reproduced

MAX_ROWS = 40
"""Lines of a table on the screen; files have all."""


class ReproduceSettings(Settings):
    """The settings of `verifair reproduce`: a paper, and its tables and figures."""

    paper: Annotated[str, Option(argument=True)]
    """pba, hyfair, fgce, cec or cst."""
    table: tuple[str, ...] = ()
    """Number of a table, 4 or IV; repeat. Default: all tables and figures."""
    figure: tuple[str, ...] = ()
    """Number of a figure; repeat."""
    dataset: tuple[str, ...] = ()
    """Only these datasets (or networks) of the paper; repeat."""
    seeds: Annotated[int, Field(ge=1)] = 3
    """Number of seeds (0, 1, ...) for draws and training; tables show mean and spread."""
    seconds: Positive | None = None
    """Seconds for each search or solver that the paper gives a time limit. Default: 100 in HyFair's Table I, else 10."""
    data: Path | None = None
    """Folder of the papers' data files that are not shipped. Default: the one that VERIFAIR_DATA names."""
    out: Path = Path("runs") / "papers"
    """Folder for tables (CSV) and pictures (PNG)."""
    list_tables: Annotated[bool, Option(name="--list")] = False
    """List the tables and figures, and compute nothing."""


class Agreement(Shape):
    """The agreement of our numbers with the printed ones of a column."""

    column: str
    numbers: Count
    mean_difference: Measured
    """Mean absolute difference."""
    rank_correlation: Measured
    """Spearman's."""


class ReproducedShape(Shape):
    """A reproduced table or figure."""

    name: str
    about: str
    differences: str
    """Known reasons for differences from the paper."""
    seeds: Count
    parts: Count
    """Number of parts (dataset and seed) in the rows."""
    asked: Count
    """Number of all parts of the table."""
    agreement: list[Agreement]
    rows: Table
    files: list[str]


class ReproduceAnswer(Answer):
    """`verifair reproduce`: our numbers, measured again, beside the paper's."""

    paper: str
    tables: list[ReproducedShape]


def run(system: System, arguments: dict[str, Any]) -> None:
    """Compute one table after the other; each is written and printed as soon as it is ready."""
    from verifair.cli.output import check_outputs, save_answer
    from verifair.interrupts import Interrupted
    from verifair.papers.catalog import DATA, catalog, chosen
    from verifair.papers.reproduce import reproduce

    _, settings, files = parse_options(system, arguments)
    screen = Screen()
    if settings.list_tables:
        _print_catalog(settings.paper, catalog(settings.paper), screen)
        return
    tables = chosen(settings.paper, settings.table, settings.figure)
    known_datasets = list(dict.fromkeys(name for table in tables for name in table.datasets))
    for name in settings.dataset:
        if name not in known_datasets:
            raise QueryError(f"--dataset {name}: {settings.paper} has no such dataset there; known are {', '.join(known_datasets)}")
    named = os.environ.get(DATA)
    data, option = (Path(named), DATA) if settings.data is None and named else (settings.data, "--data")
    if data is not None and not data.is_dir():
        raise QueryError(f"{option} {data}: is no folder; name the one that holds the papers' data files")
    require("matplotlib", "plots", "verifair reproduce")
    folder = settings.out / settings.paper
    check_outputs({"--json": files.json_file, "--out": folder / "table.csv"}, folder=settings.out)
    finished: list[ReproducedShape] = []
    for table in tables:
        if settings.dataset and not set(settings.dataset) & set(table.datasets):
            if settings.table or settings.figure:
                screen.print(f"{table.name} is left out: it is about {', '.join(table.datasets)} alone", soft_wrap=True)
            continue
        with progress_bar(f"{settings.paper} {table.name}") as progress:
            result = reproduce(
                table, folder=data, datasets=settings.dataset, seeds=settings.seeds, seconds=settings.seconds,
                kept=folder / "parts", resume=files.resume, progress=progress,
            )
        finished.append(_finish(result, folder, screen))
        if result.parts < result.asked:
            save_answer(files.json_file, ReproduceAnswer(paper=settings.paper, tables=finished))
            raise Interrupted(
                f"interrupted: {result.parts} of {result.asked} parts of {table.name} are done; go on with --resume"
            )
    save_answer(files.json_file, ReproduceAnswer(paper=settings.paper, tables=finished))


def _finish(result: Reproduced, folder: Path, screen: Screen) -> ReproducedShape:
    """Write a table and its picture, print it, and return its part of the JSON."""
    from verifair.papers.reproduce import draw, pairs
    from verifair.systems.results.files import file_name, plain
    from verifair.systems.results.spreadsheets import save_table

    printed, stem = result.printed, file_name(result.printed.name)
    table, picture = folder / f"{stem}.csv", folder / f"{stem}.png"
    folder.mkdir(parents=True, exist_ok=True)
    save_table(table, [result.frame])
    files = [str(table), *([str(picture)] if draw(result, picture) else [])]
    agreement = [
        Agreement(
            column=name, numbers=len(ours), mean_difference=float((ours - paper).abs().mean()), rank_correlation=_rank(ours, paper)
        )
        for name, ours, paper in pairs(result.frame)
    ]
    show(result, agreement, files, screen)
    return ReproducedShape(
        name=printed.name, about=printed.about, differences=printed.differences, seeds=result.seeds, parts=result.parts,
        asked=result.asked, agreement=agreement, rows=plain(result.frame.to_dict(orient="records")), files=files,
    )


def _rank(ours: pd.Series, paper: pd.Series) -> float:
    """Return Spearman's correlation, NaN if one column is constant."""
    return float(ours.corr(paper, method="spearman")) if min(ours.nunique(), paper.nunique()) > 1 else float("nan")


def show(result: Reproduced, agreement: list[Agreement], files: list[str], screen: Screen) -> None:
    """Print a table, in parts if it is wider than the screen, with its agreement and notes."""
    from verifair.papers.reproduce import PAPERS_OWN, SPREAD
    from verifair.systems.results.words import cell

    frame = result.frame
    spread = any(str(name).startswith(SPREAD) for name in frame.columns)
    seeds = f", mean of {result.seeds} seeds and ± standard deviation" if spread else ""
    constant = [name for name in result.printed.keys if len(frame) > 1 and frame[name].nunique() == 1]
    compared = [name for name in frame.columns if f"{PAPERS_OWN}{name}" in frame.columns]
    paper_columns = {f"{PAPERS_OWN}{name}" for name in compared}
    columns = dict[str, list[str]]()  # by their headings
    for name in frame.columns:
        if name in (*constant, *paper_columns) or str(name).startswith(SPREAD):
            continue
        cells = [_number(value) for value in frame[name].head(MAX_ROWS)]
        if SPREAD + str(name) in frame.columns:
            parts = frame[SPREAD + str(name)].head(MAX_ROWS)
            spreads = ["" if part is None or part != part else f" ±{cell(part, '.2g')}" for part in parts]
            cells = [text + part for text, part in zip(cells, spreads, strict=True)]
        if name in compared:
            paper = frame[f"{PAPERS_OWN}{name}"].head(MAX_ROWS)
            cells = [f"{text} / {_number(value)}" for text, value in zip(cells, paper, strict=True)]
        columns[f"{name} / paper's" if name in compared else str(name)] = cells
    keys = [name for name in map(str, result.printed.keys) if name in columns]
    title = f"{result.printed.name}: {result.printed.about}{seeds}"
    for names in _blocks(columns, keys, screen.width):
        grid = Grid(title=title, title_justify="left")
        for name in names:
            grid.add_column(name, justify="left" if name in keys else "right")
        for row in zip(*(columns[name] for name in names), strict=True):
            grid.add_row(*row)
        screen.print(grid)
        title = ""
    if constant:
        screen.print("All lines: " + ", ".join(f"{name} = {frame[name].iloc[0]}" for name in constant))
    if len(result.frame) > MAX_ROWS:
        screen.print(f"The first {MAX_ROWS} of {len(result.frame)} lines; the file has all.")
    for line in agreement:
        rank = f", rank correlation {line.rank_correlation:.3f}" if line.rank_correlation == line.rank_correlation else ""
        screen.print(f"{line.column}: {line.numbers} printed numbers, mean difference {_number(line.mean_difference)}{rank}")
    if result.printed.differences:
        equal = agreement and all(line.mean_difference == 0 for line in agreement)
        screen.print(f"{'All numbers agree. Notes' if equal else 'Why they differ'}: {result.printed.differences}")
    screen.print("wrote " + " and ".join(files) + "\n", soft_wrap=True)


def _blocks(columns: dict[str, list[str]], keys: list[str], width: int) -> Iterator[list[str]]:
    """Yield the headings of parts of a table that fit on the screen, each part with the keys."""
    needs = {name: 3 + max(map(len, [*name.split(), *cells])) for name, cells in columns.items()}
    block = list(keys)
    for name in columns:
        if name in keys:
            continue
        if len(block) > len(keys) and 1 + sum(map(needs.__getitem__, [*block, name])) > width:
            yield block
            block = list(keys)
        block.append(name)
    yield block


def _number(value: Any) -> str:
    from verifair.systems.results.words import short

    return short(value) if isinstance(value, float) else str(value)


def _print_catalog(paper: str, tables: tuple[Printed, ...], screen: Screen) -> None:
    from verifair.papers.catalog import MANY, PAPERS

    grid = Grid("", "what", "datasets", "seeds at most", title=PAPERS[paper], title_justify="left")
    for table in tables:
        grid.add_row(table.name, table.about, ", ".join(table.datasets), str(table.seeds) if table.seeds < MANY else "any")
    screen.print(grid)


SYSTEM = System(
    verb="reproduce", help=HELPS["reproduce"], settings=ReproduceSettings, inputs=Settings, run=("resume", "json_file"),
    helps={"resume": "Continue: reuse the finished parts in --out."},
)
app = app_of(SYSTEM, run)
