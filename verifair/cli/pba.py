"""verifair pba: persistent bias with SP, EO, CFA and RB, for every row of a table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console

from encoders.network import Network
from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.checker.envelope import semantics
from verifair.cli import options
from verifair.engine import parallel
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.store import count, to_jsonl
from verifair.errors import DataError, QueryError
from verifair.schema.schema import Schema
from verifair.systems.pba.evidence import certificate_of
from verifair.systems.pba.report import answer_of, outcome_plot, pair_table, screen_table
from verifair.systems.pba.rows import Table, verify_rows
from verifair.systems.pba.scores import complementary, group_rates, proved_shares

EXAMPLE = """
Decides, for every eligible row, whether the network is more confident in it than in its counterfactual throughout the
neighbourhood (observed), and the reverse (flipped).

Example: verifair pba german.onnx --schema german.toml --data german.csv --protected age --delta 1 --delta 2 --out runs/german
"""


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("pba", help=EXAMPLE)
def pba(
    model: Annotated[Path | None, typer.Argument(help="The network, an ONNX file.", show_default=False)] = None,
    schema: Annotated[Path | None, typer.Option("--schema", help="Description of the inputs (TOML).")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table of rows: CSV, CSV.GZ or Parquet.")] = None,
    demo: Annotated[str | None, typer.Option("--demo", help="Use a shipped network and its test rows: german or adult.")] = None,
    protected: Annotated[list[str] | None, typer.Option("--protected", help="Sensitive feature; repeat for several.")] = None,
    delta: Annotated[list[float] | None, typer.Option("--delta", help="Neighbourhood in units; repeat for several.")] = None,
    method: options.Method = "exact",
    solver: options.Solver = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N rows of the table.")] = None,
    outside: Annotated[str, typer.Option("--outside", help="Rows outside the schema's ranges: error, or drop them.")] = "error",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for table, plots, verdicts and certificate.")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="SQLite file of verdicts (default: OUT/verdicts.sqlite).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run of the same question.")] = False,
    jobs: options.Jobs = 1,
    cluster: options.Cluster = None,
    nodes: options.Nodes = None,
    timeout: options.Timeout = 3600.0,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    started = time.monotonic()
    options.check_workers(jobs, cluster)
    network, described, frame = load_inputs(model, schema, data, demo)
    described.check_network(network)
    if not protected:
        known = ", ".join(described.protected_names) or "none is declared protected"
        raise QueryError(f"pba needs a sensitive feature: pass --protected NAME (protected in the schema: {known})")
    if resume and store is None and out is None:
        raise QueryError("--resume needs the store of the run to continue: pass --store FILE or --out FOLDER")
    frame = _chosen_rows(described, frame, limit, outside)
    kept = store or (out / "verdicts.sqlite" if out else None)
    deltas = delta or [1.0, 2.0, 3.0]
    options.budget(timeout, nodes, seed)
    rates, verdicts, certificates = [], [], []
    table = Table.of(network, described, frame)
    if table.doubt is not None:
        Console(stderr=True, highlight=False).print(f"[yellow]warning:[/] {table.doubt}", soft_wrap=True)
    protected = list(dict.fromkeys(protected))
    for name in protected:
        _check_groups(described, table, name)
        options.console().print(_moves(described, name))
    with parallel.cluster(cluster):
        for name in protected:
            rates.append(group_rates(network, described, table, name))
            for query in (
                PersistentBias(network=network, schema=described, sensitive=name, delta=deltas),
                Robustness(network=network, schema=described, sensitive=name, delta=deltas),
            ):
                label = f"{'PBA' if isinstance(query, PersistentBias) else 'RB'} {name}"
                left = max(timeout - (time.monotonic() - started), 1e-3)
                try:
                    with options.progress_bar(label) as progress:
                        found = verify_rows(
                            query, frame, budget=options.budget(left, nodes, seed), method=options.method_name(method),
                            solver=solver, jobs=jobs, store=kept, resume=resume, progress=progress,
                        )  # fmt: skip
                except KeyboardInterrupt:
                    again = f"finished batches are in {kept}; run the same command with --resume"
                    where = again if kept else "pass --out to keep work"
                    Console(stderr=True, highlight=False).print(f"interrupted during {label}: {where}", soft_wrap=True)
                    raise typer.Exit(options.INTERRUPTED) from None
                verdicts.append(found)
                certificates.append((query, found))
    all_verdicts = pd.concat(verdicts, ignore_index=True)
    all_rates, shares = pd.concat(rates, ignore_index=True), proved_shares(all_verdicts, described)
    seconds = time.monotonic() - started
    # Files before the screen: whoever pipes us into `head` still gets them.
    if out is not None:
        _write(out, network, described, table, protected, all_rates, shares, all_verdicts, certificates, seconds)
    options.write_json(json, answer_of(network, described, all_rates, shares, all_verdicts, seconds, seed))
    _show(network, described, protected, all_rates, shares, all_verdicts, seconds, options.console())


def _check_groups(schema: Schema, table: Table, name: str) -> None:
    """A comparison needs rows of two groups."""
    found = sorted(set(table.raw[:, schema.index(name)]))
    if len(found) < 2:
        missing = ", ".join(schema.format(name, v) for v in schema.values(name) if v not in found)
        raise DataError(
            f"feature {name!r}: all {len(table.raw)} rows are {schema.format(name, found[0])}, there is none of {missing}; "
            "comparing groups needs rows of at least two"
        )


def _moves(schema: Schema, name: str) -> str:
    """Which features one unit of delta moves when asked about `name`, and by how much."""
    steps = schema.steps([name])
    moved = [
        f"{feature.name} by {step:g}{' ' + feature.unit_name if feature.unit_name else ''}"
        for feature, step in zip(schema.features, steps, strict=True)
        if step
    ]
    still = [f.name for f, step in zip(schema.features, steps, strict=True) if f.numeric and not step and f.name != name]
    held = f" Numbers held still (no unit, fixed or protected): {', '.join(still)}." if still else ""
    return f"{name}: one unit of delta moves {', '.join(moved)}.{held} Categories stay."


def load_inputs(
    model: Path | None, schema: Path | None, data: Path | None, demo: str | None
) -> tuple[Network, Schema, pd.DataFrame]:
    """The three files, or a shipped example's network, schema and test rows."""
    if demo is not None:
        if model is not None or schema is not None or data is not None:
            raise QueryError("--demo brings its own model, schema and data: drop it, or drop the others")
        dataset = datasets.load(demo)
        return read_onnx(datasets.network_path(demo)), dataset.schema, dataset.test
    if model is None or schema is None or data is None:
        missing = [name for name, given in (("MODEL", model), ("--schema", schema), ("--data", data)) if given is None]
        raise QueryError(f"{' and '.join(missing)} missing; pass them, or try a shipped example with --demo german")
    described = Schema.load(schema)
    return read_onnx(model), described, datasets.read_table(data)


def _chosen_rows(schema: Schema, frame: pd.DataFrame, limit: int | None, outside: str) -> pd.DataFrame:
    if outside not in ("error", "drop"):
        raise QueryError(f"--outside {outside}: expected error or drop")
    if limit is not None:
        frame = frame.head(limit)
    if outside == "drop":
        frame = frame[schema.inside(schema.raw(frame, outside="keep"))]
    if not len(frame):
        raise DataError("the table has no rows left to ask about")
    return frame.reset_index(drop=True)


def _show(
    network: Network, schema: Schema, protected: list[str], rates: pd.DataFrame, shares: pd.DataFrame, verdicts: pd.DataFrame,
    seconds: float, console: Console,
) -> None:  # fmt: skip
    for name in protected:
        console.print(screen_table(name, rates, shares))
        if len(schema.values(name)) > 2:
            console.print(pair_table(name, shares))
    counts = count(verdicts)
    claimed = int((verdicts["trust"] == "claimed").sum())
    console.print(
        f"{len(verdicts):,} questions in {seconds:.1f} s: {counts['proved']:,} proved, {counts['violated']:,} refuted by an exact "
        f"point, {counts['unknown']:,} unknown" + (f"; {claimed:,} proofs are only claimed by a solver" if claimed else "")
    )
    if counts["unknown"]:
        reasons = verdicts.loc[verdicts["status"] == "unknown", "reason"].value_counts()
        console.print("unknown because of: " + ", ".join(f"{reason} ({n})" for reason, n in reasons.items()))
    disagree = int((verdicts["float32_agrees"] == 0).sum())
    if disagree:
        console.print(f"{disagree:,} exact violations are too small to show in the float32 runtime (float32_agrees = false)")
    console.print(f"Proofs are about the {semantics(network)}.", markup=False)
    assert complementary(verdicts), "a row was proved in both directions"


def _write(
    out: Path, network: Network, schema: Schema, table: Table, protected: list[str], rates: pd.DataFrame, shares: pd.DataFrame,
    verdicts: pd.DataFrame, certificates: list[tuple[Any, pd.DataFrame]], seconds: float,
) -> None:  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with (out / "table.txt").open("w", encoding="utf-8") as file:
        _show(network, schema, protected, rates, shares, verdicts, seconds, Console(file=file, width=160))
    rates.to_csv(out / "rates.csv", index=False)
    shares.to_csv(out / "shares.csv", index=False)
    verdicts.to_parquet(out / "verdicts.parquet", index=False)
    to_jsonl(verdicts, out / "verdicts.jsonl")
    for name in protected:
        suffix = f"-{name}" if len(protected) > 1 else ""
        outcome_plot(name, shares, out / f"outcomes{suffix}.png", schema.outcomes)
    for query, found in certificates:
        kind = "certificate" if isinstance(query, PersistentBias) else "certificate-robustness"
        suffix = f"-{query.sensitive}" if len(protected) > 1 else ""
        certificate_of(query, table, found).save(out / f"{kind}{suffix}.json.gz")
