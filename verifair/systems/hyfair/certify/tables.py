"""certify on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from verifair.checker.words import counted, decided, exactly, float32_words, near
from verifair.engine.queries import IndividualFairness, PairQuestion
from verifair.engine.verdict import Reason, Status
from verifair.schema.naming import beside
from verifair.schema.schema import Schema
from verifair.systems.hyfair.certify.result import (
    CertifyResult,
    EnumerationResult,
    Float32Counts,
    MaximumResult,
    PartitionResult,
    PartitionSummary,
    ShareResult,
    ShareSample,
    TargetedResult,
    VerdictResult,
)
from verifair.systems.results.verdicts import VerdictShape, WitnessShape
from verifair.systems.results.words import percent, rounded

NAMES = {"proved": "proved", "violated": "refuted", "unknown": "unknown", "not_reached": "not reached", "outside": "outside"}
"""Names of the outcomes on the screen, in their order."""
COUNTEREXAMPLE_NOTE = (
    "Both are people whom the schema allows; they need not be in a table. --maximise bounds the largest gap, --share says for how "
    "many people there is such a pair, and --enumerate lists more pairs."
)
"""Said of a counterexample."""
SHOWN_PEOPLE = 5
"""Listed people who are shown side by side on the screen."""
MEASURES = {"parts": "parts", "volume": "domain", "rows": "data rows"}


def show(result: CertifyResult, console: Console) -> None:
    """Print the answer, then the files of its proofs."""
    match result:
        case VerdictResult():
            _verdict(result, console)
            lines: Sequence[str | None] = (result.proof_line,)
        case TargetedResult():
            _several(result, console)
            lines = (*result.proof_lines, *dict.fromkeys(f"About the {verdict.semantics}." for verdict in result.verdicts))
        case EnumerationResult():
            _people(result, console)
            lines = (result.proof_line,)
        case MaximumResult():
            _largest(result, console)
            lines = (result.proof_line,)
        case PartitionResult():
            _parts(result, console)
            lines = (result.proof_line,)
        case ShareResult():
            _share(result, console)
            lines = (result.proof_line,)
    for line in filter(None, lines):
        console.print(line, soft_wrap=True)


def tables(result: CertifyResult) -> dict[str, pd.DataFrame]:
    """Return file name -> table of all counterexamples."""
    match result:
        case VerdictResult():
            witnesses = [] if result.witness is None else [result.witness]
        case TargetedResult():
            witnesses = [verdict.witness for verdict in result.verdicts if verdict.witness is not None]
        case EnumerationResult():
            witnesses = result.counterexamples
        case MaximumResult() | ShareResult():
            witnesses = []
        case PartitionResult():
            witnesses = list(result.examples)
    return {"counterexamples.csv": pd.DataFrame([_line(result.question, witness) for witness in witnesses])} if witnesses else {}


def _line(query: PairQuestion, witness: WitnessShape) -> dict[str, Any]:
    """Return a counterexample as one row: both people, their decisions, and whether float32 agrees."""
    partner = {f"{name}'": value for name, value in witness.x_prime.items() if name in (*query.protected, *query.relax)}
    first, second = witness.decisions
    quantity = "value" if query.schema.outcome.of == "value" else "probability"
    rows = {**witness.x, **beside(partner, witness.x)}
    outcome = {
        "decision": first, "decision'": second, quantity: witness.shown[0], f"{quantity}'": witness.shown[1],
        "margin": witness.margin, "float32_agrees": witness.float32_agrees,
    }
    return {**rows, **beside(outcome, [*rows, *(f"{name}'" for name in rows)])}


def holds(query: IndividualFairness) -> str:
    """Return the property that a proof of the query shows, in words."""
    names = " and ".join(query.protected)
    if query.epsilon is None:
        return f"no decision flips with {names}{nearby(query)}{_rule(query)}"
    return f"no {query.quantity} moves by more than {exactly(query.epsilon)} with {names}{nearby(query)}"


def nearby(query: PairQuestion) -> str:
    """Return, in words, the other features in which the two people may differ; for unordered categories any number of units means
    any."""
    return f", and {near(query.relax, query.schema)}" if query.relax else ""


def headline(query: IndividualFairness) -> str:
    text = holds(query)
    return text[0].upper() + text[1:]


def _rule(query: IndividualFairness) -> str:
    return decided(query.rule, query.model, query.schema, query.classes == "any")


def _verdict(result: VerdictResult, console: Console) -> None:
    query, duration = result.question, f"{result.seconds:.2f} s"
    match result.status:
        case Status.PROVED:
            assert result.certificate is not None
            console.print(f"PROVED ({result.certificate.trust}): in the box, {holds(query)}. {duration}, {result.engine}.")
            proofs = result.verdict.certificate.proofs if result.verdict.certificate is not None else ()
            # A strict flip excludes ties, so its proof may rest on a bound of 0, rounded: this is not shown as a margin.
            margin = f" Margin {result.lower:.3g}." if result.lower is not None and 0 < result.lower < np.inf else ""
            console.print(f"{float32_words(sum(proof.float32 for proof in proofs), len(proofs))}.{margin}", soft_wrap=True)
        case Status.VIOLATED:
            assert result.witness is not None
            console.print(f"VIOLATED: {_violation_words(query, result.witness)}. {duration}, {result.engine}.")
            console.print(_pair(result.witness))
            first, second = result.witness.outputs
            arithmetic = "in exact arithmetic" if query.model.piecewise_linear else "by enclosures"
            console.print(f"margins f(x) = {first:.9g}, f(x') = {second:.9g} (signs decided {arithmetic})")
            schema, shown = query.schema, result.witness.shown
            names = " and ".join(result.witness.decisions)
            console.print(f"decided {names}; {schema.quantity} {shown[0]:.6g} and {shown[1]:.6g}")
            if result.witness.float32_agrees is False:
                console.print("float32_agrees = false: the float32 runtime rounds this violation away")
            console.print(COUNTEREXAMPLE_NOTE, soft_wrap=True)
        case Status.UNKNOWN:
            assert result.reason is not None
            console.print(f"UNKNOWN ({result.reason.value}) after {duration}; {_advice(result.reason)}", soft_wrap=True)
    console.print(f"About the {result.semantics}.")


def _advice(reason: Reason) -> str:
    """Return advice about a question that stayed open."""
    if reason is Reason.FLOAT32:
        return (
            "some margin is within what float32 may round: a longer run does not decide it, a smaller --box may; --arithmetic real "
            "asks of real numbers only"
        )
    if reason in (Reason.WITNESS_REJECTED, Reason.RELAXATION_TOO_WEAK):
        return "the solver's answer is within its tolerance, or its program too coarse: --method auto decides without one"
    return "try a longer --timeout or a smaller --box"


def _violation_words(query: IndividualFairness, witness: WitnessShape) -> str:
    same = f"the same person but for {near(query.relax, query.schema)}" if query.relax else "the same person"
    names = " and ".join(query.protected)
    if query.epsilon is None:
        return f"{same}, another value of {names}, another decision{_rule(query)}"
    first, second = witness.shown
    return (
        f"{same}, another value of {names}, and the {query.quantity} is {first:.4f} or {second:.4f}: {abs(first - second):.4f} "
        f"apart, more than {exactly(query.epsilon)}"
    )


def _pair(witness: WitnessShape) -> Grid:
    """Return the two rows side by side, differences in bold."""
    grid = Grid("feature", "x", "x'")
    for name, value in witness.x.items():
        other = witness.x_prime[name]
        grid.add_row(name, str(value), str(other), style="bold" if value != other else "")
    return grid


def _several(result: TargetedResult, console: Console) -> None:
    query = result.question
    grid = Grid("#", "sub-population", "verdict", "seconds", title=f"In each sub-population: {holds(query)}?", title_justify="left")
    for k, verdict in enumerate(result.verdicts, start=1):
        grid.add_row(str(k), verdict.targeted, _verdict_words(query, verdict), f"{verdict.seconds:.2f}")
    console.print(grid)
    count = {status: sum(verdict.status is status for verdict in result.verdicts) for status in Status}
    console.print(f"{count[Status.PROVED]} proved, {count[Status.VIOLATED]} refuted, {count[Status.UNKNOWN]} unknown")


def _people(result: EnumerationResult, console: Console) -> None:
    """Print the number of people found, whether there are others, and the first few."""
    query, people = result.question, result.counterexamples
    if result.certificate is not None:
        console.print(f"PROVED ({result.certificate.trust}): {holds(query)} in the box: there is nobody to list.")
    else:
        console.print(f"{how_many(result)} {others(result)}")
    if people:
        assert result.first_seconds is not None
        console.print(people_table(query.schema, people[:SHOWN_PEOPLE]))
        if len(people) > SHOWN_PEOPLE:
            console.print(f"The first {SHOWN_PEOPLE} of {len(people):,}; --out FOLDER and --json FILE have all of them.")
        replayed = [person.float32_agrees for person in people if person.float32_agrees is not None]
        console.print(_float32(Float32Counts(
            agrees=sum(replayed), disagrees=len(replayed) - sum(replayed), not_replayed=len(people) - len(replayed)
        )))
        console.print(f"The first after {result.first_seconds:.2f} s, all after {result.seconds:.2f} s, {result.engine}.")
    else:
        console.print(f"{result.seconds:.2f} s{f', {result.engine}' if result.engine else ''}.")
    console.print(f"About the {result.semantics}.")


def how_many(result: EnumerationResult) -> str:
    """Return a sentence with the number of people found."""
    query, count = result.question, len(result.counterexamples)
    names = " and ".join(query.protected)
    singular = count == 1
    if query.epsilon is None:
        phrase = f"{'is' if singular else 'are'} decided otherwise"
    else:
        phrase = f"{'has' if singular else 'have'} a {query.quantity} that moves by more than {exactly(query.epsilon)}"
    if not count:
        return "Nobody was found."
    return f"{counted(count, 'person', 'different people')} {phrase} with another value of {names}, all else equal."


def others(result: EnumerationResult) -> str:
    """Return a sentence on whether there are others; it says that there are none only if the search was complete."""
    count = len(result.counterexamples)
    if result.complete:
        limits = " or ".join(f"{distance:g} in {name}" for name, distance in result.apart.items())
        all_words = "There is nobody else" if count == 1 else "These are all"
        text = f"There are no others further than {limits} from {'this one' if count == 1 else 'these'}" if limits else all_words
        basis = "so a solver says, nobody has checked it" if result.rests_on == "solver" else (
            "by the engine's bounds, of which no certificate is kept"
        )
        return f"{text if count else 'There is nobody'}: {basis}."
    if result.reason is None:
        return "As many were asked for; there may be others."
    reasons = {Reason.TIME: "time ran out", Reason.INTERRUPTED: "it was interrupted", Reason.NODES: "it ran out of --nodes"}
    return f"The search did not come to its end ({reasons.get(result.reason, result.reason.value)}): there may be others."


def _verdict_words(query: IndividualFairness, verdict: VerdictShape) -> str:
    match verdict.status:
        case Status.PROVED:
            assert verdict.certificate is not None
            return f"PROVED ({verdict.certificate.trust})"
        case Status.VIOLATED:
            assert verdict.witness is not None
            first, second = verdict.witness.shown
            decisions = "" if query.epsilon else f", {' / '.join(verdict.witness.decisions)}"
            return f"VIOLATED: {first:.4f} / {second:.4f}{decisions}"
        case Status.UNKNOWN:
            assert verdict.reason is not None
            return f"UNKNOWN ({verdict.reason.value})"


def _largest(result: MaximumResult, console: Console) -> None:
    gap, quantity = result.gap, result.question.quantity
    upper, lower = rounded(gap.upper, up=True), rounded(gap.lower, up=False)
    if result.certificate is None:
        bound = f"No bound on the gap in {quantity} was certified"
    else:
        changes = " and ".join(result.query.protected) + f" changes{nearby(result.question)}"
        bound = f"Largest gap in {quantity} when {changes}: at most {upper}, certified"
    worst = "no pair was found that differs" if result.witness is None else f"the worst pair found differs by {lower}"
    console.print(f"{bound}; {worst}.")
    if result.witness is not None:
        grid = _pair(result.witness)
        grid.add_section()
        grid.add_row(result.question.schema.quantity, *(f"{p:.6f}" for p in result.witness.shown))
        console.print(grid)
        if result.witness.float32_agrees is False:
            console.print("float32_agrees = false: the float32 runtime shows another gap at this pair")
    if result.reason is not None:
        advice = {
            Reason.NUMERICAL: "the numbers are too large for float64 bounds", Reason.INTERRUPTED: "these are the bounds until then",
            Reason.NODES: "more --nodes bring them closer",
        }.get(result.reason, "a longer --timeout brings them closer")
        console.print(f"The two bounds differ by more than {result.tolerance:g} ({result.reason.value}): {advice}.")
    console.print(f"{result.nodes:,} boxes in {result.seconds:.2f} s, {result.engine}. About the {result.semantics}.")


def _share(result: ShareResult, console: Console) -> None:
    """Print the bracket as a table, and the verdicts of the table's people."""
    grid, rows = Grid(box=SIMPLE_HEAD), result.rows
    counts = {} if rows is None else {"fair": rows.fair, "not fair": rows.unfair, "outside": rows.outside}
    for column in ("", "of the domain", *(["data rows"] if rows else [])):
        grid.add_column(column, justify="left" if not column else "right")
    shares = {"fair": f"at least {below(result.fair)}", "not fair": f"at least {below(result.unfair)}"}
    for name, share in (shares | {"open": above(result.open)} | ({"outside": ""} if counts else {})).items():
        grid.add_row(name, share, *([f"{counts[name]:,}" if name in counts else ""] if rows else []))
    points = "points" if result.question.schema.domain.forbidden is None else "points of which the schema allows rows to compare"
    console.print(
        f"{headline(result.question)}: for at least {below(result.fair)} and at most {above(1 - result.unfair)} of all {points}.",
        soft_wrap=True,
    )
    console.print(grid)
    if result.reason is not None:
        console.print(f"More than {result.tolerance:g} is open ({result.reason.value}): --resume with more time decides more.")
    if result.sample is not None:
        console.print(f"Measured, not proved: {sample_words(result.sample)}.", soft_wrap=True)
    console.print(f"{result.cells:,} cells in {result.seconds:.1f} s. About the {result.semantics}.")


def sample_words(sample: ShareSample) -> str:
    """Return a measured share in words."""
    interval = f"{100 * sample.low:.2f}% to {100 * sample.high:.2f}%"
    return f"{sample.unfair:,} of {sample.points:,} random points are not fair (95% interval of all points: {interval})"


def below(share: float) -> str:
    """Return a share in percent, rounded down."""
    return f"{np.floor(1e6 * share) / 1e4:.4f}%"


def above(share: float) -> str:
    """Return a share in percent, rounded up."""
    return f"{np.ceil(1e6 * share) / 1e4:.4f}%"


def _parts(result: PartitionResult, console: Console) -> None:
    query, refuted = result.question, ""
    if result.parts.violated:
        share = percent(result.volume.violated)
        refuted = f", refuted in parts that make up {share} (each holds a pair that is treated differently)"
    console.print(f"{headline(query)}: certified on {percent(result.volume.proved)} of the domain{refuted}.")
    console.print(shares_table(result))
    if result.reasons:
        console.print("unknown because of: " + ", ".join(f"{reason.value} ({n:,})" for reason, n in result.reasons.items()))
    console.print(
        f"Proofs: {result.trust.checked:,} checked (the store holds them for `verifair check`), "
        f"{result.trust.claimed:,} only claimed by a solver."
    )
    if result.parts.proved:
        console.print(f"{float32_words(result.certified_for_float32, result.parts.proved)}.", soft_wrap=True)
    if result.parts.violated:
        console.print(_float32(result.float32))
        console.print(people_table(query.schema, result.examples))
    console.print(f"{result.nodes:,} boxes bounded in {result.work_seconds:.1f} s of work; this run took {result.seconds:.1f} s.")
    console.print(f"About the {result.semantics}.")


def _float32(counts: Float32Counts) -> str:
    replayed = counts.agrees + counts.disagrees
    total = replayed + counts.not_replayed
    if not replayed:
        return f"Witnesses: {total:,}, all exact; none was replayed in the float32 runtime."
    hidden = f"; it rounds {counts.disagrees:,} away" if counts.disagrees else ""
    return f"Witnesses: {total:,}, all exact; the float32 runtime shows {counts.agrees:,} of {replayed:,} replayed too{hidden}."


def shares_table(summary: PartitionSummary) -> Grid:
    """Return a line for each measure: parts, share of the domain, rows of the table."""
    grid = Grid(title="Certified share", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    grid.add_column("", no_wrap=True)
    outcomes = [outcome for outcome in NAMES if outcome != "outside" or summary.rows is not None]
    for outcome in outcomes:
        grid.add_column(NAMES[outcome], justify="right", no_wrap=True)
    for measure, label in MEASURES.items():
        share, counts = summary.shares[measure], {"parts": summary.parts, "rows": summary.rows}.get(measure)
        if share is not None:
            cells = [(getattr(counts, outcome, None), getattr(share, outcome, None)) for outcome in outcomes]
            grid.add_row(label, *(_cell(*cell) for cell in cells))
    return grid


def _cell(count: int | None, share: float | None) -> str:
    """Return a count with its share, or the share alone."""
    if not share:
        return "-" if share is None else "0"
    return percent(share) if count is None else f"{count:,} ({percent(share)})"


def people_table(schema: Schema, examples: Sequence[WitnessShape]) -> Grid:
    """Return witnesses side by side, one column for each person; differences between the two rows in bold."""
    people = (f"person {k}" for k in range(1, len(examples) + 1))
    grid = Grid("feature", *people, title="Some of those treated differently", title_justify="left")
    for feature in schema.features:
        grid.add_row(feature.name, *(_change(example.x[feature.name], example.x_prime[feature.name]) for example in examples))
    grid.add_section()
    grid.add_row("decision", *(_change(*example.decisions) for example in examples))
    probabilities = (_change(*(f"{p:.4f}" for p in example.shown)) for example in examples)
    grid.add_row(schema.quantity, *probabilities)
    return grid


def _change(first: Any, second: Any) -> Text:
    return Text(f"{first}") if first == second else Text(f"{first} → {second}", style="bold")
