"""verifair certify on one box, or on several (--targeted): PROVED, VIOLATED or UNKNOWN for each."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from solvers.outcome import Budget
from verifair.cli import options
from verifair.engine.queries import IndividualFairness, ProbabilityGap
from verifair.engine.questions import Pairs, box_of
from verifair.engine.verdict import Status, Verdict, Witness
from verifair.engine.verify import describe, verify
from verifair.errors import QueryError

EXIT_CODES = {Status.PROVED: 0, Status.VIOLATED: 10, Status.UNKNOWN: 20}
UNPROVED = {
    Status.VIOLATED: "the two rows are the evidence, and anybody can evaluate them (--json FILE keeps them)",
    Status.UNKNOWN: "nothing was proved",
}
"""Why a verdict has no certificate."""
NEXT_FEATURE = re.compile(r",(?=[^,=]+=)")
"""A comma within a category's name is none between two features."""


def one(query: IndividualFairness, budget: Budget, *, method: str, solver: str | None, out: options.Output) -> int:
    """Decide one box, show and write the answer; returns the exit code of --exit-verdict."""
    try:
        verdict = verify(query, budget=budget, method=method, solver=solver)
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print("interrupted: nothing was decided")
        raise typer.Exit(options.INTERRUPTED) from None
    saved = out.save_certificate(verdict.certificate)
    options.write_json(
        out.json,
        {
            **verdict.to_dict(),
            "model_sha256": query.network.source_sha256,
            "schema_sha256": query.schema.sha256,
            "query": asked(query),
            "seed": budget.seed,
        },
    )
    _show(query, verdict)
    line = f"certificate: {out.check_line(saved)}" if saved else out.unsaved_line(UNPROVED.get(verdict.status, "there is none"))
    if line:
        options.console().print(line, soft_wrap=True, markup=False)
    return EXIT_CODES[verdict.status]


def several(
    query: IndividualFairness, targeted: list[str], budget: Budget, *, method: str, solver: str | None, out: options.Output
) -> int:
    """Decide each sub-population, all within the query's box; each gets its share of the time that is left."""
    queries = [_narrowed(query, text) for text in targeted]
    if out.certificate is not None and (out.certificate.is_file() or out.certificate.suffix in (".json", ".gz")):
        raise QueryError(f"--certificate {out.certificate}: is a file; with --targeted name a folder, for a file of each")
    deadline = time.monotonic() + budget.seconds
    verdicts: list[Verdict] = []
    interrupted = False
    with options.progress_bar("sub-populations") as progress:
        for k, part in enumerate(queries):
            progress(k, len(queries))
            seconds = max((deadline - time.monotonic()) / (len(queries) - k), 1e-3)
            try:
                verdicts.append(verify(part, budget=replace(budget, seconds=seconds), method=method, solver=solver))
            except KeyboardInterrupt:
                interrupted = True
                break
    files = [_certificate(out, verdict, k) for k, verdict in enumerate(verdicts, start=1)]
    answers = [
        {**verdict.to_dict(), "targeted": text, "query": asked(part), "certificate_file": str(file) if file else None}
        for text, part, verdict, file in zip(targeted, queries, verdicts, files, strict=False)
    ]
    options.write_json(
        out.json,
        {
            "verdicts": answers, "interrupted": interrupted, "model_sha256": query.network.source_sha256,
            "schema_sha256": query.schema.sha256, "seed": budget.seed,
        },
    )  # fmt: skip
    _show_all(query, targeted, verdicts, files, out)
    if interrupted:
        left = len(queries) - len(verdicts)
        Console(stderr=True, highlight=False).print(f"interrupted: {left} of {len(queries)} sub-populations are undecided")
        raise typer.Exit(options.INTERRUPTED)
    statuses = {verdict.status for verdict in verdicts}
    return EXIT_CODES[next(s for s in (Status.VIOLATED, Status.UNKNOWN, Status.PROVED) if s in statuses)]


def asked(query: IndividualFairness | ProbabilityGap) -> dict[str, Any]:
    """The question as JSON has it."""
    more = {"epsilon": query.epsilon} if isinstance(query, IndividualFairness) else {"scale": query.scale}
    return {
        "kind": "individual-fairness" if isinstance(query, IndividualFairness) else "probability-gap",
        "protected": list(query.protected), "box": dict(query.box), "differ": query.differ, "relax": dict(query.relax), **more,
    }  # fmt: skip


def holds(query: IndividualFairness) -> str:
    """What a proof of the query says, in words."""
    who = " and ".join(query.protected)
    near = f" and up to {_reach(query)}" if query.relax else ""
    if query.epsilon is None:
        return f"no decision flips with {who}{near}"
    return f"no probability moves by more than {query.epsilon:g} with {who}{near}"


def _reach(query: IndividualFairness) -> str:
    return ", ".join(f"{width} in {name}" for name, width in query.relax.items())


def _narrowed(query: IndividualFairness, text: str) -> IndividualFairness:
    """The query on a sub-population."""
    more = options.parsed_box(NEXT_FEATURE.split(text), option="--targeted")
    twice = next((name for name in more if name in query.box), None)
    if twice is not None:
        raise QueryError(f"--targeted {text}: {twice!r} is in --box as well; give each feature once")
    narrowed = replace(query, box={**query.box, **more})
    Pairs.of(narrowed, *box_of(query.schema, narrowed.box))  # a mistake in the last one should not cost the time of the others
    return narrowed


def _certificate(out: options.Output, verdict: Verdict, k: int) -> Path | None:
    if out.certificate is None or verdict.certificate is None:
        return None
    out.certificate.mkdir(parents=True, exist_ok=True)
    file = out.certificate / f"targeted-{k}.json.gz"
    verdict.certificate.save(file)
    return file


def _show(query: IndividualFairness, verdict: Verdict) -> None:
    console = options.console()
    match verdict.status:
        case Status.PROVED:
            assert verdict.certificate is not None
            trust = verdict.certificate.trust.value
            proved = f"PROVED ({trust}): {holds(query)} in the box. {verdict.seconds:.2f} s, {verdict.engine}."
            console.print(proved, markup=False)
        case Status.VIOLATED:
            assert verdict.witness is not None
            told = f"VIOLATED: {_told(query, verdict.witness)}. {verdict.seconds:.2f} s, {verdict.engine}."
            console.print(told, markup=False)
            grid = Grid("feature", "x", "x'")
            for line in describe(verdict, query).itertuples(index=False):
                style = "bold" if line[1] != line[2] else ""
                grid.add_row(*(escape(str(cell)) for cell in line), style=style)
            console.print(grid)
            first, second = verdict.witness.outputs
            how = "in exact arithmetic" if query.network.piecewise_linear else "by enclosures"
            console.print(f"margins f(x) = {first:.9g}, f(x') = {second:.9g} (signs decided {how})")
            if verdict.witness.float32_agrees is False:
                console.print("float32_agrees = false: the float32 runtime rounds this violation away")
        case Status.UNKNOWN:
            assert verdict.reason is not None
            why = verdict.reason.value
            console.print(f"UNKNOWN ({why}) after {verdict.seconds:.2f} s; try a longer --timeout or a smaller --box")
    console.print(f"About the {verdict.semantics}.")


def _told(query: IndividualFairness, witness: Witness) -> str:
    same = f"the same person but for {_reach(query)}" if query.relax else "the same person"
    who = " and ".join(query.protected)
    if query.epsilon is None:
        return f"{same}, another {who}, another decision"
    first, second = witness.probabilities
    return (
        f"{same}, another {who}, and the probability is {first:.4f} or {second:.4f}: {abs(first - second):.4f} apart, more than "
        f"{query.epsilon:g}"
    )


def _show_all(
    query: IndividualFairness, targeted: Sequence[str], verdicts: Sequence[Verdict], files: Sequence[Path | None],
    out: options.Output,
) -> None:  # fmt: skip
    grid = Grid("#", "sub-population", "verdict", "seconds", title=escape(f"In each sub-population: {holds(query)}?"))
    grid.title_justify = "left"
    for k, (text, verdict) in enumerate(zip(targeted, verdicts, strict=False), start=1):
        grid.add_row(str(k), escape(text), _in_a_word(query, verdict), f"{verdict.seconds:.2f}")
    console = options.console()
    console.print(grid)
    count = {status: sum(verdict.status is status for verdict in verdicts) for status in Status}
    console.print(f"{count[Status.PROVED]} proved, {count[Status.VIOLATED]} refuted, {count[Status.UNKNOWN]} unknown")
    saved = [file for file in files if file is not None]
    if saved:
        console.print(f"{len(saved)} certificates in {out.certificate}: {out.check_line(saved[0])}", soft_wrap=True, markup=False)
    if out.certificate is not None and len(saved) < len(verdicts):
        n = len(verdicts) - len(saved)
        why = "refuted ones show their rows in --json FILE, of unknown ones nothing was proved"
        console.print(f"no certificate was written for {n} of {len(verdicts)}: {why}", soft_wrap=True)
    for semantics in dict.fromkeys(verdict.semantics for verdict in verdicts):
        console.print(f"About the {semantics}.")


def _in_a_word(query: IndividualFairness, verdict: Verdict) -> str:
    match verdict.status:
        case Status.PROVED:
            assert verdict.certificate is not None
            return f"PROVED ({verdict.certificate.trust.value})"
        case Status.VIOLATED:
            assert verdict.witness is not None
            first, second = verdict.witness.probabilities
            names = query.schema.outcomes
            decisions = "" if query.epsilon else f", {' / '.join(names[int(g > 0)] for g in verdict.witness.outputs)}"
            return escape(f"VIOLATED: {first:.4f} / {second:.4f}{decisions}")
        case Status.UNKNOWN:
            assert verdict.reason is not None
            return f"UNKNOWN ({verdict.reason.value})"
