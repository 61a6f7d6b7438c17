"""verifair certify --partition: decide every part of a domain, and say which share of it is certified."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import typer
from rich.console import Console

from encoders.network import Array
from solvers.outcome import Budget
from verifair.checker.envelope import semantics
from verifair.cli import options
from verifair.cli.certify_verdict import EXIT_CODES, asked, holds
from verifair.engine import parallel
from verifair.engine.partition import certify_partition, describe, run_key
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import box_of
from verifair.engine.verdict import Status
from verifair.errors import DataError, QueryError
from verifair.systems.hyfair.share import PartitionSummary, summary
from verifair.systems.hyfair.share_views import partition_plot, people_table, shares_table
from verifair.systems.words import percent


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of this mode."""

    size: int
    store: Path | None
    resume: bool
    jobs: int
    cluster: str | None
    data: pd.DataFrame | None
    plot: Path | None


def run(query: IndividualFairness, budget: Budget, settings: Settings, out: options.Output) -> int:
    """Decide the parts until all are or time is up, then show and write the shares; returns the exit code of --exit-verdict.

    Ctrl-C shows the shares so far, and exits with INTERRUPTED.
    """
    started = time.monotonic()
    box = box_of(query.schema, query.box)
    store = settings.store or Path(f"partition-{run_key(describe(query, settings.size, box))}.sqlite")
    if settings.resume and not store.is_file():
        raise QueryError(f"--resume: {store} is not there; start without --resume, or name the run's file with --store")
    if settings.data is not None and query.relax:
        raise QueryError("--data cannot be weighed with --relax: a row's partner may lie in another part; drop one of the two")
    rows = _rows(query, settings.data)
    store.parent.mkdir(parents=True, exist_ok=True)
    interrupted = False
    try:
        with parallel.cluster(settings.cluster), options.progress_bar("parts") as progress:
            certify_partition(
                query, size=settings.size, store=store, resume=settings.resume, budget=budget, jobs=settings.jobs, progress=progress
            )
    except KeyboardInterrupt:
        interrupted = True
        if not store.is_file():
            raise
    except sqlite3.Error as error:
        raise DataError(f"{store}: cannot be written or read on ({error}); name another file with --store") from error
    with options.progress_bar("parts read") as progress:
        found = summary(store, query=query, rows=rows, progress=progress)
    open_parts = found.parts["unknown"] + found.parts["not_reached"]
    stopped = "interrupted" if interrupted else "done" if not open_parts else "limit"
    # Files before the screen: whoever pipes us into `head` still gets them.
    if settings.plot is not None:
        settings.plot.parent.mkdir(parents=True, exist_ok=True)
        partition_plot(found, query.schema, _headline(query), settings.plot)
    options.write_json(
        out.json,
        {
            **found.to_dict(),
            "stopped": stopped,
            "seconds": time.monotonic() - started,
            "store": str(store),
            "size": settings.size,
            "query": asked(query),
            "model_sha256": query.network.source_sha256,
            "schema_sha256": query.schema.sha256,
            "semantics": semantics(query.network),
            "seed": budget.seed,
        },
    )
    _show(query, found, time.monotonic() - started, options.console())
    options.console().print(f"verdicts and proofs: {out.check_line(store)}", soft_wrap=True, markup=False)
    if open_parts:
        more = "pass the same command with --resume to go on" + ("" if interrupted else ", with a longer --timeout or more --nodes")
        why = "interrupted" if interrupted else "stopped by --timeout or --nodes"
        Console(stderr=True, highlight=False).print(f"{why}: {open_parts:,} parts are open; {more}", soft_wrap=True, markup=False)
    if interrupted:
        raise typer.Exit(options.INTERRUPTED)
    status = Status.VIOLATED if found.parts["violated"] else Status.UNKNOWN if open_parts else Status.PROVED
    return EXIT_CODES[status]


def _rows(query: IndividualFairness, data: pd.DataFrame | None) -> Array | None:
    """Raw rows, also those outside the domain; read first, so that a mistake in the table costs no time."""
    return None if data is None else query.schema.raw(data, outside="keep")


def _headline(query: IndividualFairness) -> str:
    text = holds(query)
    return text[0].upper() + text[1:]


def _show(query: IndividualFairness, found: PartitionSummary, seconds: float, console: Console) -> None:
    volume = found.volume
    refuted = ""
    if found.parts["violated"]:
        refuted = f", refuted in parts that make up {percent(volume['violated'])} (each holds a pair that is treated differently)"
    console.print(f"{_headline(query)}: certified on {percent(volume['proved'])} of the domain{refuted}.", markup=False)
    console.print(shares_table(found))
    if found.reasons:
        console.print("unknown because of: " + ", ".join(f"{reason} ({n:,})" for reason, n in found.reasons.items()))
    trust = found.trust
    console.print(
        f"Proofs: {trust['checked']:,} checked (the store holds what it takes to prove them again), "
        f"{trust['claimed']:,} only claimed by a solver."
    )
    if found.parts["violated"]:
        console.print(_float32(found.float32))
        console.print(people_table(query.schema, found.examples))
    console.print(f"{found.nodes:,} boxes bounded in {found.seconds:.1f} s of work; {seconds:.1f} s here.")
    console.print(f"About the {semantics(query.network)}.")


def _float32(counts: dict[str, int]) -> str:
    every, asked_ = sum(counts.values()), counts["agrees"] + counts["disagrees"]
    if not asked_:
        return f"Witnesses: {every:,}, all exact; none was replayed in the float32 runtime."
    hidden = f"; it rounds {counts['disagrees']:,} away" if counts["disagrees"] else ""
    return f"Witnesses: {every:,}, all exact; the float32 runtime shows {counts['agrees']:,} of {asked_:,} replayed too{hidden}."
