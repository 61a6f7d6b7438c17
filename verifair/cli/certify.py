"""verifair certify: does any decision in the box flip when protected values change?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from encoders.onnx_reader import read_onnx
from verifair.cli import options
from verifair.errors import QueryError
from verifair.queries import IndividualFairness
from verifair.schema import Schema
from verifair.verdict import Status, Verdict
from verifair.verify.api import describe, verify

EXAMPLE = """
Proves that no decision in the box flips when protected values change, or shows an exact counterexample.

Example: verifair certify german.onnx --schema german.toml --protected sex --box age=Senior --certificate proof.json
"""
EXIT_CODES = {Status.PROVED: 0, Status.VIOLATED: 10, Status.UNKNOWN: 20}


def register(app: typer.Typer) -> None:
    app.command("certify", help=EXAMPLE)(certify)


def certify(
    model: options.Model,
    schema: options.SchemaFile,
    protected: Annotated[list[str] | None, typer.Option("--protected", help="Protected feature; repeat for several.")] = None,
    box: Annotated[list[str] | None, typer.Option("--box", help="feature=value or feature=low:high; repeat.")] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Decision flip (the property asked for; the only one so far).")] = True,
    differ: Annotated[str, typer.Option("--differ", help="all: every protected feature differs; any: at least one.")] = "all",
    method: options.Method = "auto",
    solver: options.Solver = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="Write the proof here (.json or .json.gz).")] = None,
    timeout: options.Timeout = 60.0,
    nodes: options.Nodes = None,
    seed: options.Seed = 0,
    json: options.Json = None,
    exit_verdict: options.ExitVerdict = False,
) -> None:
    network, described = read_onnx(model), Schema.load(schema)
    query = IndividualFairness(
        network=network, schema=described, protected=protected or [], box=_parsed(box or []), differ=differ
    )
    verdict = verify(query, budget=options.budget(timeout, nodes, seed), method=options.method_name(method), solver=solver)
    saved = certificate is not None and verdict.certificate is not None
    if certificate is not None and verdict.certificate is not None:
        verdict.certificate.save(certificate)
    _show(query, verdict)
    if saved:
        options.console().print(f"certificate: {certificate} (verifair check {certificate} --model {model} --schema {schema})")
    options.write_json(
        json,
        {
            **verdict.to_dict(),
            "model_sha256": network.source_sha256,
            "query": {"kind": "individual-fairness", "protected": protected, "box": box or [], "differ": differ},
            "seed": seed,
        },
    )
    if exit_verdict:
        raise typer.Exit(EXIT_CODES[verdict.status])


def _parsed(boxes: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for text in boxes:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise QueryError(f"--box {text}: expected feature=value or feature=low:high, e.g. --box age=30:40")
        if name in out:
            raise QueryError(f"--box names {name!r} twice; give each feature once")
        out[name] = tuple(value.split(":", 1)) if ":" in value else value
    return out


def _show(query: IndividualFairness, verdict: Verdict) -> None:
    console = options.console()
    who = " and ".join(query.protected)
    match verdict.status:
        case Status.PROVED:
            assert verdict.certificate is not None
            trust = verdict.certificate.trust.value
            console.print(f"PROVED ({trust}): no decision in the box flips with {who}. {verdict.seconds:.2f} s, {verdict.engine}.")
        case Status.VIOLATED:
            assert verdict.witness is not None
            console.print(f"VIOLATED: the same person, another {who}, another decision. {verdict.seconds:.2f} s, {verdict.engine}.")
            grid = Grid("feature", "x", "x'")
            for line in describe(verdict, query).itertuples(index=False):
                style = "bold" if line[1] != line[2] else ""
                grid.add_row(*(str(cell) for cell in line), style=style)
            console.print(grid)
            first, second = verdict.witness.outputs
            console.print(f"margins f(x) = {first:.9g}, f(x') = {second:.9g} (signs decided in exact arithmetic)")
            if verdict.witness.float32_agrees is False:
                console.print("float32_agrees = false: the float32 runtime rounds this violation away")
        case Status.UNKNOWN:
            assert verdict.reason is not None
            why = verdict.reason.value
            console.print(f"UNKNOWN ({why}) after {verdict.seconds:.2f} s; try a longer --timeout or a smaller --box")
    console.print(f"About the {verdict.semantics}.")
