"""verifair kmax: into how many outcome buckets can one person fall when only protected values change?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table as Grid

from encoders.onnx.reader import read_onnx
from verifair.cli import options
from verifair.cli.helps import HELPS
from verifair.cli.inputs import Inputs, inputs
from verifair.engine.buckets.kmax import kmax as certified
from verifair.engine.buckets.verdict import KmaxVerdict
from verifair.engine.queries import MAX_COMBINATIONS, KDiscrimination
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.clusters_report import answer_of, best_of, search_plot
from verifair.systems.hyfair.search import clusters
from verifair.systems.hyfair.search.annealing import METHODS, Schedule, search
from verifair.systems.hyfair.search.clusters import Cluster, ClusterSearch
from verifair.systems.hyfair.search.neighbours import Pool
from verifair.systems.hyfair.search.seeds import SolverSeeds
from verifair.systems.hyfair.search.space import Space

SEARCHING = 0.5
"""Share of the time that goes to the search where a bound is to be certified too."""


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("kmax", help=HELPS["kmax"])
def kmax(
    model: options.Model = None,
    schema: options.SchemaFile = None,
    demo: options.Demo = None,
    protected: Annotated[list[str] | None, typer.Option("--protected", help="Protected feature; repeat: all combine.")] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--values", help="Only these: feature=low:high:step or feature=one,two; repeat. Default: all legal values."),
    ] = None,
    buckets: Annotated[int, typer.Option("--buckets", help="Outcome buckets of equal width in [0, 1].")] = 20,
    box: options.Box = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table of rows to start from and to walk among.")] = None,
    method: Annotated[str, typer.Option("--search", help=f"{', '.join(METHODS)} (HyFair, Algorithm 1).")] = "sa",
    chains: Annotated[int, typer.Option("--chains", help="Rows that walk at once.")] = 64,
    bound: Annotated[bool, typer.Option("--bound/--no-bound", help="Certify an upper bound after the search.")] = True,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="Write the bound's proof (.json or .json.gz).")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the search and the cluster (PNG, PDF or SVG).")] = None,
    timeout: options.Timeout = 60.0,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    started = time.monotonic()
    plot = options.picture(plot)
    options.check_outputs({"--json": json, "--plot": plot, "--certificate": certificate})
    budget = options.budget(timeout, None, seed)
    given = inputs(model, schema, data, demo)
    query = _query(given, protected or [], values or [], buckets, box or [])
    if certificate is not None and not bound:
        raise QueryError("--certificate proves the upper bound: drop --no-bound")
    space = Space.of(query)
    rows = None if given.frame is None else query.schema.raw(given.frame, outside="keep")
    if method == "sa-knn" and rows is None:
        raise QueryError("--search sa-knn walks among the rows of a table: pass --data TABLE, or choose --search sa")
    seeds = SolverSeeds(space=space, pool=Pool.of(space, rows))
    with options.progress_bar(f"search ({method}), seconds") as progress:
        found = search(
            query, method=method, data=rows, seconds=budget.seconds * (SEARCHING if bound else 1.0), seed=seed,
            schedule=Schedule(chains=chains), reseed=seeds, progress=progress,
        )  # fmt: skip
    verdict = None
    if bound and found.statistics.stopped != "interrupted":
        left = options.budget(max(timeout - (time.monotonic() - started), 1e-3), None, seed)
        with options.progress_bar("k found of the bound") as progress:
            verdict = certified(query, budget=left, start=found.peers, progress=progress)
    # Files before the screen: whoever pipes us into `head` still gets them.
    if verdict is not None and certificate is not None:
        certificate.parent.mkdir(parents=True, exist_ok=True)
        verdict.certificate.save(certificate)
    best = best_of(space, found, verdict)
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        search_plot(found, best, clusters.outcomes(space, best), plot, upper=verdict.upper if verdict else None)
    options.write_json(json, answer_of(space, found, best, verdict, time.monotonic() - started))
    _show(space, found, best, verdict, options.console())
    if found.statistics.stopped == "interrupted":
        Console(stderr=True, highlight=False).print("interrupted: this is the best found until then, and nothing is certified")
        raise typer.Exit(options.INTERRUPTED)


def _query(given: Inputs, protected: list[str], values: list[str], buckets: int, box: list[str]) -> KDiscrimination:
    network, described = read_onnx(given.model), given.schema
    described.check_network(network)
    if not protected:
        known = ", ".join(described.protected_names) or "none is declared protected"
        raise QueryError(f"kmax needs protected features: pass --protected NAME (protected in the schema: {known})")
    return KDiscrimination(
        network=network, schema=described, protected=protected, box=options.parsed_box(box),
        values=_listed(described, values), buckets=buckets,
    )  # fmt: skip


def _listed(schema: Schema, texts: list[str]) -> dict[str, list[float]]:
    """feature -> raw values of `--values feature=low:high:step` (both ends included) and `--values feature=one,two`."""
    out: dict[str, list[float]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals or not listed:
            raise QueryError(f"--values {text}: expected feature=low:high:step or feature=one,two, e.g. --values age=20:80:10")
        if name in out:
            raise QueryError(f"--values names {name!r} twice; list all its values in one")
        out[name] = _range(schema, name, text, listed.split(":")) if ":" in listed and schema[name].numeric else [
            schema.raw_value(name, value.strip()) for value in listed.split(",")
        ]  # fmt: skip
    return out


def _range(schema: Schema, name: str, text: str, parts: list[str]) -> list[float]:
    numbers = [schema.raw_value(name, part) for part in parts]
    low, high, step = numbers if len(numbers) == 3 else (*numbers, 1.0) if len(numbers) == 2 else (0.0, 0.0, 0.0)
    if step <= 0 or low > high:
        raise QueryError(f"--values {text}: expected low:high:step with low <= high and a positive step, e.g. age=20:80:10")
    if (high - low) / step > MAX_COMBINATIONS:
        raise QueryError(f"--values {text}: are more than {MAX_COMBINATIONS:,} values; take a larger step")
    return [float(value) for value in np.arange(low, high + step / 2, step) if value <= high]


def _show(space: Space, found: ClusterSearch, best: Cluster, verdict: KmaxVerdict | None, console: Console) -> None:
    who, s = ", ".join(space.query.protected), found.statistics
    console.print(
        f"k = {best.k}: this person falls into {best.k} of {best.buckets} outcome buckets, by {who} alone "
        f"({len(best.combinations)} combinations, counted exactly)."
    )
    console.print(_grid(pd.DataFrame(clusters.person(space, best).items(), columns=["feature", "value"])))
    console.print(_grid(clusters.by_bucket(space, best)))
    console.print(_bound(space, best, verdict))
    if best.runtime_k is not None:
        agrees = "too" if best.runtime_k == best.k else "(rounding moves logits across a bucket's edge)"
        console.print(f"The float32 runtime counts {best.runtime_k} {agrees}.")
    skipped = f"; {s.skipped:,} rows of the table lie outside and were left out" if s.skipped else ""
    had = f"{100 * s.success_rate:.1f}% had k >= 2, {s.mean_k:.1f} on average" if s.instances else "none had k >= 2"
    console.print(
        f"Search ({found.method}, seed {found.seed}): {s.rows:,} rows, {s.evaluations:,} network evaluations in {s.seconds:.1f} s; "
        f"{had}; best after {s.best_seconds:.2f} s{skipped}."
    )


def _bound(space: Space, best: Cluster, verdict: KmaxVerdict | None) -> str:
    if verdict is None:
        return f"No upper bound was certified: k may be as large as {space.cap}."
    if verdict.upper == best.k:
        return f"Certified: no person of the box falls into more than {verdict.upper}, so this is the largest k."
    why = verdict.reason.value if verdict.reason else "open"
    return (
        f"Certified: no person of the box falls into more than {verdict.upper} (gap {verdict.upper - best.k}, {why}; a longer "
        "--timeout or a smaller --box narrows it)."
    )


def _grid(frame: pd.DataFrame) -> Grid:
    grid = Grid(*map(str, frame.columns))
    for line in frame.itertuples(index=False):
        grid.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in line))
    return grid
