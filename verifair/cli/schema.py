"""verifair schema: draft a schema from a table; print the JSON schemas of answers."""

from __future__ import annotations

from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from encoders.text import visible_lines
from verifair.checker.kind import KINDS, Kind, kind
from verifair.cli.helps import HELPS
from verifair.errors import QueryError
from verifair.screen import Screen
from verifair.systems.results.result import json_schema
from verifair.systems.system import SYSTEMS, system

app = typer.Typer(
    name="schema",
    add_completion=False,
    rich_markup_mode="rich",
    no_args_is_help=True,
    help=HELPS["schema"],
)
INFER_EXAMPLE = """
Drafts a schema from a table: kinds, ranges, categories and units, with notes on what to check.

For a pipeline that takes the table's own columns (docs/concepts/models.md), --model gives their order, kinds and categories.

Example: verifair schema infer german.csv --target credit --protected sex --out german.toml
"""

PROTECTED = "Column whose value should not matter, such as sex; repeat."


@app.command("infer", help=INFER_EXAMPLE)
def infer(
    data: Annotated[Path, typer.Argument(help="CSV, CSV.GZ or Parquet.", show_default=False)],
    target: Annotated[str, typer.Option("--target", help="Label column.", show_default=False)],
    positive: Annotated[str | None, typer.Option("--positive", help="Label value of the favourable class.")] = None,
    protected: Annotated[list[str] | None, typer.Option("--protected", help=PROTECTED)] = None,
    model: Annotated[Path | None, typer.Option("--model", help="A pipeline (ONNX) that takes the table's columns.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the draft here instead of to the screen.")] = None,
) -> None:
    from verifair import datasets
    from verifair.cli.output import check_outputs, tell
    from verifair.schema.draft import draft
    from verifair.schema.drafts.infer import guessed_favourable
    from verifair.schema.schema import Schema
    from verifair.systems.results.files import save_text

    check_outputs({"--out": out}, new=True)
    table = datasets.read_table(data)
    text = draft(table, target=target, positive=positive, protected=protected or [], model=model)
    if positive is None and (favourable := Schema.loads(text).positive_label) is not None:
        tell(guessed_favourable(table[target], favourable))
    if out is None:
        typer.echo(visible_lines(text), nl=False)
    else:
        save_text(out, text)
        Screen().print(f"wrote {out}; check every # note in it", soft_wrap=True)


JSON_EXAMPLE = """
Prints the JSON schema (draft 2020-12) of an answer or of a file of proofs; without a name, lists them all.

Example: verifair schema json certify > certify.schema.json
"""


TYPES = {
    "check": "verifair.cli.check:ANSWER",
    "doctor": "verifair.cli.doctor:DoctorAnswer",
    "export": "verifair.interop.export:ExportAnswer",
    "reproduce": "verifair.cli.reproduce:ReproduceAnswer",
    "train": "verifair.cli.train:TrainAnswer",
    "verify": "verifair.cli.verify:VerifyAnswer",
    "audit": "verifair.auditing.result:AuditResult",
    "bench": "verifair.bench.answer:BenchAnswer",
    "bench-list": "verifair.bench.answer:BenchListAnswer",
    "vnnlib-certificate": "verifair.interop.certificate:FILE",
}
"""Other types with a JSON schema, besides the answers of systems and the kinds of certificates: name -> type."""
TITLES = {
    "audit": "verifair audit: the JSON beside the page",
    "vnnlib-certificate": "Files of proofs that a VNN-LIB query is unsat",
}
"""Those whose title is not that of a verb's --json."""


def names() -> list[str]:
    """Return the names of all JSON schemas, in alphabetical order."""
    return sorted([*TYPES, *_answers(), *_kinds()])


def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of an answer or a file of proofs. Raises QueryError for an unknown name."""
    if name not in names():
        raise QueryError(f"there is no JSON schema {name!r}; expected one of {', '.join(names())}")
    if name in _kinds():
        return json_schema(name, _kinds()[name].title, _kinds()[name].file)
    made_of: Any = _answers().get(name)
    if made_of is None:
        module, _, attribute = TYPES[name].partition(":")
        made_of = getattr(import_module(module), attribute)
    return json_schema(name, TITLES.get(name, f"verifair {name.replace('-', ' --', 1)} --json"), made_of)


def _kinds() -> dict[str, Kind]:
    """Return the kinds of JSON files, by the names of their schemas."""
    kinds = {name.removeprefix("verifair-"): kind(name) for name in KINDS}
    return {name: item for name, item in kinds.items() if item.file is not None}


def _answers() -> dict[str, Any]:
    return {name: made_of for verb in SYSTEMS for name, made_of in system(verb).part("result", "ANSWERS").items()}


@app.command("json", help=JSON_EXAMPLE)
def json(
    name: Annotated[str | None, typer.Argument(help="A verb's answer, or a kind of certificate.", show_default=False)] = None,
) -> None:
    if name is not None:
        typer.echo(dumps(schema(name), indent=2, ensure_ascii=False))
        return
    for name_of in names():
        Screen().print(f"{name_of:24}{schema(name_of)['title']}", markup=False, soft_wrap=True)
