"""verifair check: re-prove a certificate without the engine, its bounds, or a solver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from encoders.onnx_reader import read_onnx
from verifair import datasets
from verifair.cli import options
from verifair.errors import QueryError
from verifair.schema import Schema
from verifair.verify.check import check as recheck

EXAMPLE = """
Re-proves a certificate by recomputing every leaf with rigorous arithmetic; imports neither the engine nor a solver.
Exits with 1 when anything in it is rejected.

Example: verifair check proof.json --model german.onnx --schema german.toml
"""


def register(app: typer.Typer) -> None:
    app.command("check", help=EXAMPLE)(check)


def check(
    certificate: Annotated[Path, typer.Argument(help="Certificate file (.json or .json.gz).", show_default=False)],
    model: Annotated[Path | None, typer.Option("--model", help="The network it is about (ONNX).")] = None,
    schema: Annotated[Path | None, typer.Option("--schema", help="The schema it is about (TOML).")] = None,
    demo: Annotated[str | None, typer.Option("--demo", help="Use a shipped network and schema: german or adult.")] = None,
    json: options.Json = None,
) -> None:
    if demo is not None:
        network, described = read_onnx(datasets.network_path(demo)), datasets.load(demo).schema
    elif model is None or schema is None:
        raise QueryError("check needs --model and --schema (or --demo german)")
    else:
        network, described = read_onnx(model), Schema.load(schema)
    with options.progress_bar("leaves") as progress:
        report = recheck(certificate, network=network, schema=described, progress=progress)
    console = options.console()
    for rejection in report.rejections[:10]:
        console.print(f"not accepted: {rejection}")
    if len(report.rejections) > 10:
        console.print(f"... and {len(report.rejections) - 10} more")
    # Nobody can re-prove a solver's word: such a certificate is neither true nor false to us.
    only_claims = len(report.rejections) == report.claimed > 0
    verdict = "ACCEPTED" if report.accepted else "CLAIMED, NOT RE-PROVABLE" if only_claims else "REJECTED"
    console.print(f"{verdict}: {report.proofs:,} proofs, {report.leaves:,} leaves re-proved in {report.seconds:.1f} s")
    options.write_json(
        json,
        {
            "accepted": report.accepted, "claimed": report.claimed, "proofs": report.proofs, "leaves": report.leaves,
            "rejections": [str(r) for r in report.rejections], "seconds": report.seconds,
        },
    )  # fmt: skip
    if not report.accepted:
        raise typer.Exit(1)
