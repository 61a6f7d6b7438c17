"""verifair export: a fairness question as VNN-LIB queries and ONNX networks, for other verifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verifair.cli import fairness, options
from verifair.cli.helps import HELPS
from verifair.cli.inputs import inputs
from verifair.errors import QueryError
from verifair.interop.export import MOST, Export, export

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("export", help=HELPS["export"])
def command(
    vnnlib: Annotated[Path, typer.Option("--vnnlib", help="Folder to write to.", show_default=False)],
    model: options.Model = None,
    schema: options.SchemaFile = None,
    demo: options.Demo = None,
    protected: fairness.Protected = None,
    flip: fairness.Flip = False,
    epsilon: fairness.Epsilon = None,
    box: options.Box = None,
    relax: fairness.Relax = None,
    differ: fairness.Differ = "all",
    enumerate_: Annotated[
        list[str] | None, typer.Option("--enumerate", help="A query for each value of this feature; repeat, or `all`.")
    ] = None,
    relaxed: Annotated[bool, typer.Option("--relaxed", help="Leave other whole numbers and categories open as intervals.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Queries that may be written.")] = MOST,
    timeout: Annotated[int, typer.Option("--timeout", min=1, help="Seconds that instances.csv grants a query.")] = 60,
    json: options.Json = None,
) -> None:
    asked = fairness.Question(
        verb="export", protected=protected, flip=flip, epsilon=epsilon, box=box, relax=relax, differ=differ
    )
    asked.check()
    if vnnlib.exists() and not vnnlib.is_dir():
        raise QueryError(f"--vnnlib {vnnlib}: is a file; name a folder")
    if vnnlib.is_dir() and any(vnnlib.iterdir()):
        raise QueryError(f"--vnnlib {vnnlib}: is not empty, and queries of another export would be mixed in; name a new folder")
    options.check_outputs({"--json": json})
    given = inputs(model, schema, None, demo)
    query = asked.about(given)
    with options.progress_bar("queries") as progress:
        written = export(
            query, vnnlib, enumerated=enumerate_ or [], relaxed=relaxed, timeout=timeout, limit=limit, progress=progress
        )
    _show(written)
    options.write_json(json, {"folder": str(written.folder), "files": list(written.files),
                              "relaxed": {"1.0": list(written.relaxed_1), "2.0": list(written.relaxed_2)}})  # fmt: skip


def _show(written: Export) -> None:
    out = options.console()
    out.print(f"[bold]{len(written.files)}[/] queries in {written.folder}, each as VNN-LIB 1.0 and 2.0", soft_wrap=True)
    out.print("proved when all files of one version are unsat", soft_wrap=True)
    if not written.single:
        out.print("the networks are float64: float32 does not hold the constants folded into their weights", soft_wrap=True)
    for version, loose in (("1.0", written.relaxed_1), ("2.0", written.relaxed_2)):
        if not loose:
            out.print(f"{version}: exact; a sat is a counterexample")
            continue
        out.print(f"{version}: [yellow]relaxed[/], so that unsat proves but a sat has to be confirmed:")
        for line in loose:
            out.print(f"  {line}", soft_wrap=True, markup=False)
