"""verifair certify --maximise: the largest gap between two people who differ in protected values alone, from both sides."""

from __future__ import annotations

from typing import Literal

import typer
from rich.markup import escape
from rich.table import Table as Grid

from solvers.outcome import Budget
from verifair.cli import options
from verifair.cli.certify_verdict import asked
from verifair.engine.gap.maximise import MaximumGap, maximise
from verifair.engine.queries import IndividualFairness, ProbabilityGap
from verifair.engine.verdict import Reason
from verifair.systems.words import rounded


def run(
    pairs: IndividualFairness, scale: Literal["probability", "logit"], budget: Budget, tolerance: float, out: options.Output
) -> None:
    """Bracket the gap between the same pairs of people as a fairness query compares; show and write the answer."""
    query = ProbabilityGap(
        network=pairs.network, schema=pairs.schema, protected=pairs.protected, box=pairs.box, differ=pairs.differ,
        relax=pairs.relax, scale=scale,
    )  # fmt: skip
    with options.closing_bar() as progress:
        result = maximise(query, budget=budget, tolerance=tolerance, progress=progress)
    saved = out.save_certificate(result.certificate)
    options.write_json(
        out.json,
        {
            **result.to_dict(),
            "model_sha256": query.network.source_sha256,
            "schema_sha256": query.schema.sha256,
            "query": asked(query),
            "tolerance": tolerance,
            "seed": budget.seed,
        },
    )
    _show(query, result, tolerance)
    line = f"certificate: {out.check_line(saved)}" if saved else out.unsaved_line("no bound was proved in the time given")
    if line:
        options.console().print(line, soft_wrap=True, markup=False)
    if result.reason is Reason.INTERRUPTED:
        raise typer.Exit(options.INTERRUPTED)


def _show(query: ProbabilityGap, result: MaximumGap, tolerance: float) -> None:
    console = options.console()
    what = "log-odds" if result.scale == "logit" else "probability"
    upper, lower = rounded(result.upper, up=True), rounded(result.lower, up=False)
    if result.certificate is None:
        bound = f"No bound on the gap in {what} was certified"
    else:
        bound = f"Largest gap in {what} when {' and '.join(query.protected)} changes: at most {upper}, certified"
    found = "no pair was found that differs" if result.witness is None else f"the worst pair found differs by {lower}"
    console.print(f"{bound}; {found}.", markup=False)
    if result.witness is not None:
        grid = Grid("feature", "x", "x'")
        for name, value in result.witness.x.items():
            other = result.witness.x_prime[name]
            grid.add_row(escape(name), escape(str(value)), escape(str(other)), style="bold" if value != other else "")
        grid.add_section()
        grid.add_row("probability", *(f"{p:.6f}" for p in result.witness.probabilities))
        console.print(grid)
        if result.witness.float32_agrees is False:
            console.print("float32_agrees = false: the float32 runtime shows another gap at this pair")
    if result.reason is not None:
        further = {
            Reason.NUMERICAL: "the numbers are too large for float64 bounds", Reason.INTERRUPTED: "this is what stood until then",
        }.get(result.reason, "a longer --timeout closes in further")  # fmt: skip
        console.print(f"The two sides are not within {tolerance:g} ({result.reason.value}): {further}.")
    console.print(f"{result.nodes:,} boxes in {result.seconds:.2f} s, {result.engine}. About the {result.semantics}.")
