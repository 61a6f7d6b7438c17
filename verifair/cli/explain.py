"""verifair explain: under which conditions does the network discriminate most?  (HyFair, Algorithm 2)"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from encoders.network import Array
from encoders.onnx.reader import read_onnx
from verifair.cli import fairness, options
from verifair.cli.helps import HELPS
from verifair.cli.inputs import inputs
from verifair.datasets import Dataset
from verifair.engine.queries import KDiscrimination
from verifair.errors import DataError, QueryError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain import lime, rules_file
from verifair.systems.hyfair.explain.samples import severity_of
from verifair.systems.hyfair.mitigation.rounds import INTERRUPTED, Rounds, Settings, explain_rounds
from verifair.systems.hyfair.rules_report import by_difference, comparison_table, print_rules, rules_plot
from verifair.systems.hyfair.search.space import Space

SHOWN = 10
Outside = Annotated[str, typer.Option("--outside", help="Rows outside the schema's ranges: error, or drop them.")]


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("explain", help=HELPS["explain"])
def explain(
    model: options.Model = None,
    schema: options.SchemaFile = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table of rows: CSV, CSV.GZ or Parquet (recommended).")] = None,
    demo: options.Demo = None,
    protected: fairness.Protected = None,
    box: options.Box = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for rules.json, rules.txt and rules.png.")] = None,
    measure: Annotated[str, typer.Option("--measure", help="k: outcome buckets; gap: largest probability gap.")] = "k",
    buckets: Annotated[int, typer.Option("--buckets", help="Outcome buckets of k.")] = 20,
    rounds: Annotated[int, typer.Option("--rounds", help="Clusters, each outside the rules of those before.")] = 1,
    samples: Annotated[int, typer.Option("--samples", help="Local samples around each cluster.")] = 5000,
    quantile: Annotated[float, typer.Option("--quantile", help="Samples above it count as high.")] = 0.95,
    delta: Annotated[float | None, typer.Option("--delta", help="Least fall by negation (default: 5 % of the largest).")] = None,
    depth: Annotated[int, typer.Option("--depth", help="Of the decision tree.")] = 8,
    leaf: Annotated[int, typer.Option("--leaf", help="Fewest samples of a leaf.")] = 25,
    purity: Annotated[float, typer.Option("--purity", help="Share of high samples that makes a leaf high.")] = 0.3,
    iterations: Annotated[int, typer.Option("--iterations", help="Steps of each search for a cluster.")] = 500,
    baseline: Annotated[bool, typer.Option("--lime", help="Compare with local surrogates as LIME fits them.")] = False,
    outside: Outside = "error",
    timeout: options.Timeout = 300.0,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    started = time.monotonic()
    options.budget(timeout, None, seed)
    options.check_outputs({"--json": json, "--out": None if out is None else out / "rules.json"})
    given = inputs(model, schema, data, demo)
    described, dataset = given.schema, given.dataset
    query = KDiscrimination(
        network=read_onnx(given.model), schema=described, protected=names(described, protected), buckets=buckets,
        box=options.parsed_box(box or []),
    )  # fmt: skip
    settings = Settings(
        measure=measure, rounds=rounds, samples=samples, quantile=quantile, delta=delta, depth=depth, leaf=leaf, purity=purity,
        iterations=iterations, seconds=timeout / (2 * max(rounds, 1)), seed=seed,
    )  # fmt: skip
    rows = None if dataset is None else legal_rows(dataset, outside)[0]
    try:
        with options.progress_bar("clusters") as progress:
            found = explain_rounds(query, settings, rows=rows, deadline=started + timeout, progress=progress)
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print("interrupted: no cluster was explained")
        raise typer.Exit(options.INTERRUPTED) from None
    lines = _baseline(query, settings, found, rows) if baseline else []
    answer = rules_file.content(query, found.found, asdict(settings), dropped=True)
    answer |= {"stopped": found.stopped, "lime": lines, "seconds": time.monotonic() - started}
    if out is not None:  # files before the screen: whoever pipes us into `head` still gets them
        rules_file.save(out / "rules.json", answer)
        with (out / "rules.txt").open("w", encoding="utf-8") as file:
            _show(described, found, settings, lines, Console(file=file, width=160), shown=10**9)
        if found.rules:
            rules_plot(described, by_difference(found.found), measure, out / "rules.png")
    options.write_json(json, answer | {"proof": False, "seed": seed})
    _show(described, found, settings, lines, options.console(), shown=SHOWN)
    if query.box:
        about = "These rules were found within the box; a guardrail made of them refuses people outside of it as well:"
        options.console().print(f"{about} {options.box_options(query.box)}", soft_wrap=True, markup=False)
    if out is not None and found.rules:
        source, rules = given.words.removeprefix("--model "), out / "rules.json"
        options.console().print(f"wrote {rules}; next: verifair guard {source} --rules {rules} --out guarded.onnx", soft_wrap=True)
    if found.stopped == INTERRUPTED:
        Console(stderr=True, highlight=False).print(f"interrupted: {len(found.found)} of {rounds} clusters were explained")
        raise typer.Exit(options.INTERRUPTED)


def names(schema: Schema, protected: list[str] | None) -> list[str]:
    """The features asked for, each once; without any, those that the schema declares."""
    found = list(dict.fromkeys(protected or schema.protected_names))
    if not found:
        raise QueryError("no feature is declared protected: pass --protected NAME")
    return found


def legal_rows(dataset: Dataset, outside: str) -> tuple[Array, Dataset]:
    """Raw rows (N, V), and the table of the same rows. Raises DataError for rows outside the schema unless they are dropped."""
    if outside not in ("error", "drop"):
        raise QueryError(f"--outside {outside}: expected error or drop")
    frame = dataset.frame
    if outside == "drop":
        frame = frame[dataset.schema.inside(dataset.schema.raw(frame, outside="keep"))].reset_index(drop=True)
    if not len(frame):
        raise DataError(f"{dataset.name}: no row lies within the schema's ranges and constraints")
    return dataset.schema.raw(frame), Dataset(name=dataset.name, frame=frame, schema=dataset.schema)


def _baseline(query: KDiscrimination, settings: Settings, found: Rounds, rows: Array | None) -> list[dict[str, object]]:
    space = Space.of(query)
    severity = severity_of(space, settings.measure)
    fitted = [
        lime.surrogates(space, one.centre, severity, rows=rows, samples=settings.samples, seed=settings.seed) for one in found.found
    ]
    return lime.comparison(query.schema, found.found, fitted)


def _show(
    schema: Schema, found: Rounds, settings: Settings, lines: list[dict[str, object]], console: Console, shown: int
) -> None:
    what = "outcome buckets" if settings.measure == "k" else "between the highest and the lowest probability"
    for number, one in enumerate(found.found, start=1):
        values = f"{one.severity:g}" if settings.measure == "k" else f"{one.severity:.4f}"
        high = int(one.labelled.high.sum())
        console.print(
            f"cluster {number}: {values} {what}; {high} of {len(one.labelled.raw):,} samples around it are high (from "
            f"{one.labelled.threshold:.4g}); {len(one.rules)} rules kept, {len(one.dropped)} not confirmed by negation"
        )
        words = ", ".join(f"{f.name} {schema.format(f.name, x)}" for f, x in zip(schema.features, one.centre, strict=True))
        console.print(f"  {words}", soft_wrap=True)
    rules = by_difference(found.found)
    if rules:
        print_rules(schema, rules[:shown], settings.measure, console)
        if len(rules) > shown:
            console.print(f"... and {len(rules) - shown} more")
        if np.isnan([one.evidence.difference for one in rules]).any():
            console.print("a difference that is not a number: no legal row negates the rule")
    else:
        console.print("no rule was confirmed: negating the conditions changes little; try a smaller --delta or a lower --purity")
    if lines:
        console.print(comparison_table(lines))
    if found.stopped:
        console.print(f"stopped after {len(found.found)} of {settings.rounds} rounds: {found.stopped}")
    console.print("Findings of sampling, not proofs.")
