"""verifair train: the networks of the PBA paper, written as ONNX next to their schema."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from verifair import datasets
from verifair.cli import options
from verifair.datasets import Dataset
from verifair.errors import QueryError
from verifair.schema import Schema
from verifair.training import train as fit

EXAMPLE = """
Trains a ReLU network: agnostic, certifair (counterfactual penalty) or fair-n (margin gap of the groups). Needs the extra `torch`.

Example: verifair train --data adult --method fair-n --sensitive sex --hidden 500,100 --out adult-fair.onnx
"""


def register(app: typer.Typer) -> None:
    app.command("train", help=EXAMPLE)(train)


def train(
    data: Annotated[str, typer.Option("--data", help="german, adult, or a table file.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="NAME.onnx; the schema goes to NAME.toml.", show_default=False)],
    schema: Annotated[Path | None, typer.Option("--schema", help="Schema of a table file.")] = None,
    method: Annotated[str, typer.Option("--method", help="agnostic, certifair or fair-n.")] = "agnostic",
    sensitive: Annotated[str | None, typer.Option("--sensitive", help="Feature of the fair methods.")] = None,
    hidden: Annotated[str, typer.Option("--hidden", help="Widths of the hidden layers.")] = "100,50",
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes over the training rows.")] = None,
    lambda_f: Annotated[float | None, typer.Option("--lambda-f", help="Weight of the fairness term.")] = None,
    class_weight: Annotated[str | None, typer.Option("--class-weight", help="balanced, or none.")] = None,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    try:
        widths = tuple(int(width) for width in hidden.split(","))
    except ValueError as error:
        raise QueryError(f"--hidden {hidden}: expected widths such as 100,50") from error
    dataset = _dataset(data, schema)
    with options.progress_bar("epochs") as progress:
        model = fit(
            dataset, method=method, sensitive=sensitive, hidden=widths, epochs=epochs, lambda_f=lambda_f,
            class_weight=class_weight, seed=seed, progress=progress,
        )  # fmt: skip
    network, described = model.save(out)
    report = asdict(model.report)
    console = options.console()
    console.print(f"wrote {network} and {described}")
    console.print(
        f"accuracy {model.report.train_accuracy:.4f} (training rows), {model.report.test_accuracy:.4f} (test rows); "
        f"always the larger class: {model.report.base_rate:.4f}"
    )
    options.write_json(json, {"settings": model.settings.plain(), "report": report, "model": str(network), "seed": seed})


def _dataset(data: str, schema: Path | None) -> Dataset:
    if schema is None:
        if Path(data).suffix:
            raise QueryError(f"--data {data} is a file: pass its schema with --schema FILE")
        return datasets.load(data)
    return Dataset(name=Path(data).stem, frame=datasets.read_table(data), schema=Schema.load(schema))
