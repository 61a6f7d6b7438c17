"""Reproducing the papers' tables: parts by dataset and seed, combined with mean and spread over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from verifair.datasets import read_table
from verifair.errors import DataError
from verifair.figures import COLORS, figure
from verifair.interrupts import noted_interrupt
from verifair.papers.catalog import Printed, Request
from verifair.systems.results.files import file_name
from verifair.systems.results.spreadsheets import save_table

PAPERS_OWN = "paper's "
"""Start of the names of columns of printed numbers."""
SPREAD = "± "
"""Start of the names of columns of standard deviations over the seeds."""
PANELS, LETTERS = 4, 10
"""Panels of a picture side by side; and letters of its title in an inch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduced:
    """A reproduced table.   frame: our numbers beside the paper's; with several seeds their means and standard deviations.

    parts: number of parts (dataset and seed) in it, of `asked`.   seeds: number asked for.
    """

    printed: Printed
    frame: pd.DataFrame
    parts: int
    asked: int
    seeds: int


def reproduce(
    printed: Printed, *, folder: Path | None, datasets: Sequence[str], seeds: int, seconds: float | None,
    kept: Path | None = None, resume: bool = False, progress: Callable[[int, int], None] = lambda done, total: None,
) -> Reproduced:
    """Reproduce a table. Ctrl-C ends it: finished parts are combined, and `parts` is less than `asked`.

    seconds: for each search or solver (None: those of the table).   kept: folder for finished parts, from which `resume` reads
    them.   Raises the errors of the parts for missing data.
    """
    count = min(seeds, printed.seeds)
    requests = [
        Request(dataset=dataset, folder=folder, seed=seed, seconds=printed.seconds if seconds is None else seconds)
        for dataset in printed.datasets if not datasets or dataset in datasets for seed in range(count)
    ]
    parts: list[pd.DataFrame] = []
    try:
        for request in requests:
            parts.append(_part(printed, request, kept, resume))
            progress(len(parts), len(requests))
    except KeyboardInterrupt:
        if not parts:
            raise
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(printed.keys))
    if printed.together is not None and parts:
        frame = printed.together(frame)
    elif count > 1:
        frame = averaged(frame, printed.keys)
    return Reproduced(printed=printed, frame=frame, parts=len(parts), asked=len(requests), seeds=count)


def _part(printed: Printed, request: Request, kept: Path | None, resume: bool) -> pd.DataFrame:
    """Return one part, computed or read back."""
    path = None
    if kept is not None:
        path = kept / f"{file_name(f'{printed.parts or printed.name} {request.dataset} {request.seed} {request.seconds:g}')}.csv"
        if resume and path.exists():
            part = read_table(path)
            if not set(printed.keys) <= set(part.columns):
                raise DataError(f"{path}: has no column {' or '.join(printed.keys)}, so it is no part of {printed.name}; delete it")
            return part
    with noted_interrupt(deferred=False) as interrupted:
        table = printed.make(request)
    if interrupted():  # interrupted searches return partial results, which must not enter the table
        raise KeyboardInterrupt
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_table(path, [table])
    return table


def averaged(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return one line for each value of the keys: means of our numbers with their standard deviations, the paper's unchanged.

    Without deviations if each value has one line.
    """
    groups = frame.groupby(list(keys), sort=False, dropna=False)
    spread = frame.duplicated(list(keys)).any()
    columns: dict[str, pd.Series] = {}
    for name in frame.columns:
        if name in keys:
            continue
        if str(name).startswith(PAPERS_OWN) or not pd.api.types.is_numeric_dtype(frame[name]):
            columns[name] = groups[name].first()
            continue
        columns[name] = groups[name].mean()
        if spread:
            columns[SPREAD + name] = groups[name].std(ddof=1)
    return pd.DataFrame(columns).reset_index()


def pairs(frame: pd.DataFrame) -> Iterator[tuple[str, pd.Series, pd.Series]]:
    """Yield name, ours and the paper's of every column that holds numbers on both sides."""
    for name in frame.columns:
        paper_name = PAPERS_OWN + str(name)
        if paper_name in frame.columns and all(pd.api.types.is_numeric_dtype(frame[column]) for column in (name, paper_name)):
            comparable = np.isfinite(frame[name].astype(float)) & np.isfinite(frame[paper_name].astype(float))
            if comparable.any():
                yield str(name), frame.loc[comparable, name].astype(float), frame.loc[comparable, paper_name].astype(float)


def draw(result: Reproduced, path: Path) -> bool:
    """Draw our numbers against the paper's, a panel for each common column; on the line both are equal. Values of the last key,
    such as methods, are told apart by colours if they are few. A table that the paper does not have is drawn as lines, a
    figure without printed numbers as bars, and a `Printed` with a `picture` by that. Return False if there is nothing to draw."""
    if result.printed.picture is not None:
        result.printed.picture(result, path)
        return True
    if result.printed.lines is not None:
        _lines(result, *result.printed.lines, path)
        return True
    common = list(pairs(result.frame))
    if not common and result.printed.name.startswith("figure"):
        _bars(result, path)
        return True
    if not common:
        return False
    columns = [(name, ours, paper, result.frame.get(SPREAD + name)) for name, ours, paper in common]
    across = min(len(common), PANELS)
    down = -(-len(common) // across)
    with figure(path, (4.2 * across, 4.4 * down), down, across) as picture:
        picture.suptitle(titled(result, 4.2 * across))
        for axis in picture.axes[len(common) :]:
            axis.remove()
        for axis, column in zip(picture.axes, columns, strict=True):
            _panel(axis, *column, kinds=_kinds(result))
        handles, kinds = picture.axes[0].get_legend_handles_labels()
        if len(kinds) > 1:
            picture.legend(handles, kinds, loc="outside lower center", ncols=len(COLORS))
    return True


def _kinds(result: Reproduced) -> pd.Series:
    """Return the value of the last key of every row, if these values are few; else the same for all."""
    keys = result.printed.keys
    values = result.frame[keys[-1]].astype(str) if len(keys) > 1 else pd.Series("", index=result.frame.index)
    return values if values.nunique() <= len(COLORS) else pd.Series("", index=values.index)


def titled(result: Reproduced, width: float) -> str:
    """Return the title of a picture, broken to fit its width in inches."""
    return fill(f"{result.printed.name}: {result.printed.about}", int(LETTERS * width))


def _lines(result: Reproduced, x_name: str, y_name: str, path: Path) -> None:
    """Draw a panel for each value of the first key, and in it a step line for each value of the second one,
    as nothing is known between the rows."""
    first, second = result.printed.keys[:2]
    panels = list(result.frame.groupby(first, sort=False))
    columns = min(len(panels), PANELS)
    rows = -(-len(panels) // columns)
    width = 3.4 * columns + 1.2
    with figure(path, (width, 2.8 * rows + 1), rows, columns) as picture:
        picture.suptitle(titled(result, width))
        for axis in picture.axes[len(panels) :]:
            axis.remove()
        for axis, (name, part) in zip(picture.axes, panels, strict=False):
            for number, (value, line) in enumerate(part.groupby(second, sort=False)):
                axis.plot(
                    line[x_name], line[y_name], color=COLORS[number % len(COLORS)], marker="o", markersize=4, linewidth=1,
                    drawstyle="steps-pre", label=f"{second} {value}" if axis is picture.axes[0] else None,
                )
            axis.set(xlabel=x_name, ylabel=y_name, title=str(name))
            axis.grid(True)
        picture.legend(loc="outside lower center", ncols=2 * columns)


def _bars(result: Reproduced, path: Path) -> None:
    """Draw a line of panels for each value of the first key: one a column that has numbers there, with a bar for each row."""
    first, *keys = result.printed.keys
    numbers = [name for name in result.frame.select_dtypes("number") if name not in keys and not str(name).startswith(SPREAD)]
    lines = [
        (name, part, [c for c in numbers if part[c].notna().any()]) for name, part in result.frame.groupby(first, sort=False)
    ]
    width = max(len(columns) for _, _, columns in lines)
    heights = [1.0 + 0.2 * len(part) for _, part, _ in lines]
    with figure(path, (4.2 * width, sum(heights) + 0.6), len(lines), width, heights=heights) as picture:
        picture.suptitle(titled(result, 4.2 * width))
        axes = iter(picture.axes)
        for name, part, columns in lines:
            for axis, column in zip([next(axes) for _ in range(width)], [*columns, *[None] * (width - len(columns))], strict=True):
                if column is None:
                    axis.remove()
                    continue
                axis.barh(range(len(part)), part[column], color=COLORS[0], xerr=part.get(f"{SPREAD}{column}"))
                axis.set_yticks(range(len(part)), part[keys].astype(str).agg(", ".join, axis=1))
                axis.set(title=f"{name}: {column}")
                axis.invert_yaxis()


def _panel(axis: Any, name: str, ours: pd.Series, paper: pd.Series, spread: pd.Series | None, *, kinds: pd.Series) -> None:
    low, high = float(min(ours.min(), paper.min())), float(max(ours.max(), paper.max()))
    margin = 0.05 * (high - low or 1.0)
    limits = [low - margin, high + margin]
    axis.plot(limits, limits, color="0.6", linewidth=1, zorder=1)
    error = None if spread is None else spread[ours.index].fillna(0.0)
    for color, kind in zip(COLORS, kinds.unique(), strict=False):
        rows = ours.index[kinds[ours.index] == kind]
        axis.errorbar(
            paper[rows], ours[rows], yerr=None if error is None else error[rows], fmt="o", color=color, markersize=4, alpha=0.7,
            linewidth=0.8, zorder=2, label=kind,
        )
    axis.set(xlim=limits, ylim=limits, xlabel="the paper", ylabel="verifair", title=name)
    axis.locator_params(nbins=5)  # numbers of six digits stand side by side
