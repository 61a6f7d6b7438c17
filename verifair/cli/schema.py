"""verifair schema: draft a schema from a table; print the JSON schemas of our own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from encoders.onnx.reader import read_onnx
from verifair import datasets, json_schemas
from verifair.cli import options
from verifair.cli.helps import HELPS
from verifair.schema.draft import draft

app = typer.Typer(
    name="schema",
    add_completion=False,
    rich_markup_mode="rich",
    no_args_is_help=True,
    help=HELPS["schema"],
)
INFER_EXAMPLE = """
Drafts a schema from a table: kinds, ranges, categories and units, with notes on what to check.

For a pipeline that takes the table's own columns (docs/models.md), --model gives their order, kinds and categories.

Example: verifair schema infer german.csv --target credit --protected sex --out german.toml
"""


@app.command("infer", help=INFER_EXAMPLE)
def infer(
    data: Annotated[Path, typer.Argument(help="CSV, CSV.GZ or Parquet.", show_default=False)],
    target: Annotated[str, typer.Option("--target", help="Label column.", show_default=False)],
    positive: Annotated[str | None, typer.Option("--positive", help="Label value of the desirable class.")] = None,
    protected: Annotated[list[str] | None, typer.Option("--protected", help="Protected column; repeat.")] = None,
    model: Annotated[Path | None, typer.Option("--model", help="A pipeline (ONNX) that takes the table's columns.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the draft here instead of to the screen.")] = None,
) -> None:
    network = None if model is None else read_onnx(model)
    text = draft(datasets.read_table(data), target=target, positive=positive, protected=protected or [], network=network)
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
        options.console().print(f"wrote {out}; check every # note in it")


JSON_EXAMPLE = """
Prints the JSON schema (draft 2020-12) of an answer or of a file of proofs; without a name, lists what there is.

Example: verifair schema json certify > certify.schema.json
"""


@app.command("json", help=JSON_EXAMPLE)
def json(
    name: Annotated[str | None, typer.Argument(help="A verb's answer, or a kind of certificate.", show_default=False)] = None,
) -> None:
    if name is not None:
        typer.echo(json_schemas.text(name), nl=False)
        return
    for each in json_schemas.names():
        options.console().print(f"{each:24}{json_schemas.schema(each)['title']}", markup=False, soft_wrap=True)
