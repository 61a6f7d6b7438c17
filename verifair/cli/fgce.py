"""verifair fgce: few feasible counterfactuals that explain each group's negative decisions, and how groups compare."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from encoders.onnx.reader import read_onnx
from solvers.registry import get
from verifair.cli import options
from verifair.cli.fgce_answer import Answer
from verifair.cli.fgce_inputs import Rows, parsed_changes, rows_of
from verifair.cli.helps import HELPS
from verifair.cli.inputs import inputs
from verifair.errors import QueryError
from verifair.systems.fgce.burden import Burden, burden, levels_of
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.estimator import Progress as Tell
from verifair.systems.fgce.robust import askable
from verifair.systems.fgce.robust_report import Standing

MEASURED = 0.5
"""Share of the time that goes to the groups' counterfactuals where measures are to follow."""
CERTIFIED = 0.1
"""Share of that which goes to proofs that the counterfactuals are robust, where they are asked for."""


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("fgce", help=HELPS["fgce"])
def fgce(
    model: options.Model = None,
    schema: options.SchemaFile = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table of rows: CSV, CSV.GZ or Parquet.")] = None,
    demo: options.Demo = None,
    protected: Annotated[list[str] | None, typer.Option("--protected", help="Feature that makes groups; several combine.")] = None,
    split: Annotated[
        list[str] | None, typer.Option("--split", help="feature=5: two groups, at most 5 and above; feature=5,9: three; repeat.")
    ] = None,
    k: Annotated[int, typer.Option("--k", help="At most so many counterfactuals a group.")] = 5,
    coverage: Annotated[float, typer.Option("--coverage", help="Share to cover of those with a feasible counterfactual.")] = 1.0,
    max_cost: Annotated[float | None, typer.Option("--max-cost", help="Cover the most at cost at most this.")] = None,
    cost: Annotated[str, typer.Option("--cost", help="l2 (distance), path (weighted by density) or hops (moves).")] = "l2",
    eps: Annotated[float | None, typer.Option("--eps", help="Longest move (default: the least that leaves no row alone).")] = None,
    factuals: Annotated[str, typer.Option("--factuals", help="Explain all negatives, or false-negatives only.")] = "negatives",
    change: Annotated[
        list[str] | None, typer.Option("--change", help="feature=increase, decrease, fixed or free, over the schema's; repeat.")
    ] = None,
    weighting: Annotated[
        str | None, typer.Option("--weighting", help="Of --cost path: inverse (default), negative-log, literal or length.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", help="Of its density: scott (default), cross-validated, or a number.")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="exact, components, mip (the paper's) or greedy.")] = "exact",
    solver: Annotated[str | None, typer.Option("--solver", help="Backend of mip (default: highs); see `verifair doctor`.")] = None,
    audit: Annotated[
        str, typer.Option("--audit", help="Whose decisions are explained: all, test (with --demo), or column=value.")
    ] = "all",
    outside: Annotated[str, typer.Option("--outside", help="Rows outside the schema's ranges: error, or drop them.")] = "error",
    empty: Annotated[str, typer.Option("--empty", help="Groups with nobody to explain or to help: error, or skip them.")] = "error",
    robust: Annotated[
        list[float] | None, typer.Option("--robust", help="Prove that counterfactuals stay positive within DELTA units; repeat.")
    ] = None,
    only_robust: Annotated[
        float | None, typer.Option("--only-robust", help="Choose only rows that are proved to stay positive within DELTA units.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="Write these proofs here (.json or .json.gz), for `verifair check`.")
    ] = None,
    measures: Annotated[bool, typer.Option("--measures", help="Also k0, d0, kAUC, dAUC, cAUC; compare groups by them.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for tables (CSV), plots (PNG) and the screen's text.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the groups side by side (PNG, PDF or SVG).")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Threads for graph and densities.")] = 2,
    timeout: options.Timeout = 600.0,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:  # fmt: skip
    started = time.monotonic()
    _check_outputs(json, options.picture(plot), out, certificate)
    deltas = _deltas(robust or [], only_robust, certificate)
    options.budget(timeout, None, seed)
    given = inputs(model, schema, data, demo)
    network = read_onnx(given.model)
    if deltas:
        askable(network, given.schema, deltas)
    weights, width = _weights(cost, weighting, bandwidth)
    changes, backend = parsed_changes(change or [], given.schema), _backend(method, solver)
    rows = rows_of(given, protected or [], split or [], audit, outside, demo=demo is not None)
    fitted = GroupCounterfactuals(
        network, given.schema, k=k, coverage=coverage, max_cost=max_cost, cost=cast(Any, cost), eps=eps,
        factuals=cast(Any, factuals), changes=changes, weighting=cast(Any, weights), bandwidth=cast(Any, width),
        method=cast(Any, method), solver=backend, threads=jobs, empty=cast(Any, empty), only_robust=only_robust,
        seconds=timeout * (MEASURED if measures else 1.0) * (1 - CERTIFIED if deltas else 1.0) / rows.count,
    )  # fmt: skip
    with _bars() as tell:
        finished = _fit(fitted, rows, tell)
        left = max(timeout - (time.monotonic() - started), 1.0)
        standing = _standing(fitted, rows, deltas, left * (CERTIFIED if measures else 1.0), tell) if finished else None
        left = max(timeout - (time.monotonic() - started), 1.0)
        measured = _measured(fitted, left, tell) if measures and standing is not None else None
    answer = Answer.of(fitted, measured, standing, rows, seconds=time.monotonic() - started, seed=seed)
    output = options.Output(source=given.words, json=json, certificate=certificate)
    saved = output.save_certificate(answer.certificate)
    # Files before the screen: whoever pipes us into `head` still gets them.
    if out is not None:
        answer.write(out)
    if plot is not None:
        answer.draw(plot)
    options.write_json(json, answer.to_dict() if json is not None else {})
    answer.show(Console(highlight=False, markup=False))  # names of groups and categories may hold [brackets]
    line = f"certificate: {output.check_line(saved)}" if saved else output.unsaved_line("nothing was proved robust")
    if line:
        options.console().print(line, soft_wrap=True, markup=False)
    if standing is None or (measured is not None and measured.stopped == "interrupted"):
        _err("interrupted: this is what was done until then")
        raise typer.Exit(options.INTERRUPTED)


def _fit(model: GroupCounterfactuals, rows: Rows, tell: Tell) -> bool:
    """Whether all groups were solved before Ctrl-C; ends the run where none was."""
    try:
        model.fit(rows.frame, sensitive_features=rows.groups, audit=rows.audit, progress=tell)
    except KeyboardInterrupt:
        if not getattr(model, "groups_", None):
            _err("interrupted before the first group was done: there is nothing to keep")
            raise typer.Exit(options.INTERRUPTED) from None
        return False
    return True


def _standing(model: GroupCounterfactuals, rows: Rows, deltas: list[float], seconds: float, tell: Tell) -> Standing | None:
    """What the network says about the counterfactuals; None after Ctrl-C."""
    try:
        return Standing.of(
            model, rows.frame.index, deltas, seconds=seconds, progress=lambda done, all_: tell("robust", done, all_)
        )
    except KeyboardInterrupt:
        return None


def _deltas(robust: list[float], only: float | None, certificate: Path | None) -> list[float]:
    """Neighbourhoods to prove. Raises QueryError for a certificate of nothing."""
    deltas = sorted({*robust, *([] if only is None else [only])})
    if certificate is not None and not deltas:
        raise QueryError("--certificate holds proofs that counterfactuals are robust: add --robust DELTA, or drop it")
    return deltas


def _measured(model: GroupCounterfactuals, seconds: float, tell: Tell) -> Burden:
    instances = {name: group.instance for name, group in model.groups_.items()}
    levels = levels_of(model.space_, instances, model.cost)
    return burden(
        instances, levels, exact=model.method != "greedy", seconds=seconds, progress=lambda done, all_: tell("measures", done, all_)
    )


def _weights(cost: str, weighting: str | None, bandwidth: str | None) -> tuple[str, str | float]:
    """Weighting and bandwidth of paths. Raises QueryError where costs are no paths, or the bandwidth is no width."""
    if cost != "path" and (weighting is not None or bandwidth is not None):
        raise QueryError("--weighting and --bandwidth weigh paths: add --cost path, or drop them")
    if bandwidth is None or bandwidth in ("scott", "cross-validated"):
        return weighting or "inverse", bandwidth or "scott"
    try:
        width = float(bandwidth)
    except ValueError:
        width = 0.0
    if not 0 < width < float("inf"):
        raise QueryError(f"--bandwidth {bandwidth}: expected scott, cross-validated, or a positive number")
    return weighting or "inverse", width


def _backend(method: str, solver: str | None) -> str:
    """The backend's name. Raises QueryError where no backend is asked, or it is not installed; BackendError for an unknown one."""
    if solver is None:
        return "highs"
    if method != "mip":
        raise QueryError(f"--solver {solver}: only --method mip asks a solver; add it, or drop --solver")
    if not get(solver).is_available():
        raise QueryError(f"--solver {solver}: is not installed; `verifair doctor` says how to install it")
    return solver


def _check_outputs(json: Path | None, plot: Path | None, out: Path | None, certificate: Path | None) -> None:
    """Before the run, so that nothing is lost after it."""
    options.check_outputs({"--json": json, "--plot": plot, "--certificate": certificate})
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise QueryError(f"--out {out}: is a file; name a folder")
    options.check_outputs({"--out": out / "fgce.txt"})


@contextmanager
def _bars() -> Iterator[Tell]:
    """A bar for each part of the work on a terminal, nothing elsewhere; gives progress(what, done, total)."""
    err = Console(stderr=True)
    if not err.is_terminal:
        yield lambda what, done, total: None
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield tell


def _err(text: str) -> None:
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)
