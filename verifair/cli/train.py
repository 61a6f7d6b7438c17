"""verifair train: the networks of the PBA and CEC papers, written as ONNX next to their schema."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from verifair import datasets
from verifair.cli import options
from verifair.cli.helps import HELPS
from verifair.cli.output import save_answer
from verifair.datasets import Dataset
from verifair.errors import QueryError, TrainingError
from verifair.schema.schema import Schema
from verifair.systems.cec import training as cec
from verifair.systems.files import plain
from verifair.systems.result import Answer, Seed, Shape, Share
from verifair.training import METHODS, Choices
from verifair.training import train as fit


class ConsistencyShape(Shape):
    """Explanation consistency on the test rows: measured, no proof."""

    cec: float
    """Mean score."""
    flips: Share
    hidden: Share
    """In regime B."""
    matched: Share
    variance: float
    positive: Share
    auc: float | None
    silent: Share
    """People without any attribution."""


class TrainReport(Shape):
    """Measured, no proof."""

    train_accuracy: Share
    test_accuracy: Share
    base_rate: Share
    """Of the more frequent class, what guessing it would score."""
    positive_rate: dict[str, dict[str, float | None]]
    """Protected feature -> group -> share decided positively."""
    counterfactual_gap: dict[str, float | None]
    """Protected feature -> mean distance of probabilities between rows and their counterfactuals."""
    margin_gap: dict[str, float | None]
    losses: list[float | None]
    """After each epoch."""
    consistency: ConsistencyShape | None
    plain: ConsistencyShape | None
    """Of the same network trained for prediction alone."""


class TrainAnswer(Answer):
    """`verifair train`: a network, and what it is worth."""

    settings: dict[str, Any]
    report: TrainReport
    model: str
    """The ONNX file."""
    seed: Seed


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("train", help=HELPS["train"])
def train(
    data: Annotated[str, typer.Option("--data", help="german, adult, or a table file.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="NAME.onnx; the schema goes to NAME.toml.", show_default=False)],
    schema: Annotated[Path | None, typer.Option("--schema", help="Schema of a table file.")] = None,
    method: Annotated[str, typer.Option("--method", help="agnostic, certifair, fair-n or cec.")] = "agnostic",
    sensitive: Annotated[str | None, typer.Option("--sensitive", help="Feature of the fair methods; for cec any column.")] = None,
    hidden: Annotated[str | None, typer.Option("--hidden", help="Widths; none: 100,50, for cec its paper's 128,64.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes over the training rows.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Rows a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", help="Adam's.")] = None,
    dropout: Annotated[float | None, typer.Option("--dropout", help="Share of hidden neurons a step leaves out.")] = None,
    lambda_f: Annotated[float | None, typer.Option("--lambda-f", help="certifair, fair-n: weight of the fairness term.")] = None,
    lambda_cec: Annotated[float | None, typer.Option("--lambda-cec", help="cec: weight of the squared score.")] = None,
    lambda_eo: Annotated[float | None, typer.Option("--lambda-eo", help="cec: weight of equalized odds.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="cec: of integrated gradients.")] = None,
    tau: Annotated[float | None, typer.Option("--tau", help="cec: farthest match, in standard deviations of merit.")] = None,
    class_weight: Annotated[str | None, typer.Option("--class-weight", help="balanced, or none.")] = None,
    seed: options.Seed = 0,
    threads: Annotated[int, typer.Option("--threads", help="torch's; the last bits depend on it.")] = 1,
    json: options.Json = None,
) -> None:
    options.check_outputs({"--json": json, "--out": out, "the schema": out.with_suffix(".toml")} if out.name else {"--out": out})
    if out.suffix != ".onnx":
        raise QueryError(f"--out {out}: a network is written as NAME.onnx, next to NAME.toml; end the name in .onnx")
    dataset = _dataset(data, schema)
    choices: Choices = {
        "hidden": _widths(hidden, method), "epochs": epochs, "batch": batch, "learning_rate": learning_rate, "dropout": dropout,
        "lambda_f": lambda_f, "class_weight": class_weight, "seed": seed, "threads": threads,
    }
    asked = {"lambda_cec": lambda_cec, "lambda_eo": lambda_eo, "steps": steps, "tau": tau}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if method not in (*METHODS, "cec"):
        raise TrainingError(f"method {method!r} is unknown; choose one of {', '.join([*METHODS, 'cec'])}")
    if given and method != "cec":
        raise TrainingError(
            f"{method} training: lambda_eo, lambda_cec, steps and tau belong to the method cec; pass them with it, and with no "
            "other"
        )
    with options.progress_bar("epochs") as progress:
        if method == "cec":
            model = cec.train(dataset, sensitive=sensitive, consistency=cec.ConsistencyTerms(**given), progress=progress, **choices)
        else:
            model = fit(dataset, method=method, sensitive=sensitive, progress=progress, **choices)
    network, described = model.save(out)
    report = {"consistency": None, "plain": None, **asdict(model.report)}
    console = options.console()
    console.print(f"wrote {network} and {described}")
    console.print(
        f"accuracy {model.report.train_accuracy:.4f} (training rows), {model.report.test_accuracy:.4f} (test rows); "
        f"always the larger class: {model.report.base_rate:.4f}"
    )
    if isinstance(model.report, cec.ConsistencyReport):
        _print_consistency(console, model.report.plain, model.report.consistency, model.settings.sensitive)
    answer = TrainAnswer(settings=model.settings.plain(), report=TrainReport(**plain(report)), model=str(network), seed=seed)
    save_answer(json, answer)


def _widths(hidden: str | None, method: str) -> tuple[int, ...] | None:
    if hidden is None:
        return None if method == "cec" else (100, 50)
    try:
        return tuple(int(width) for width in hidden.split(","))
    except ValueError as error:
        raise QueryError(f"--hidden {hidden}: expected widths such as 100,50") from error


def _print_consistency(console: Console, plain: cec.Consistent, found: cec.Consistent, sensitive: str | None) -> None:
    """The measures beside each other: a low score alone says nothing about a model that hardly decides."""
    grid = Table(title=f"explanation consistency by {sensitive}: measured on the test rows, no proof", title_justify="left")
    for column in ("", "plain", "cec"):
        grid.add_column(column, justify="right" if column else "left")
    for name, before, after in (
        ("CEC, mean score", f"{plain.cec:.4f}", f"{found.cec:.4f}"),
        ("regime B, hidden bias", f"{plain.hidden:.2%}", f"{found.hidden:.2%}"),
        ("prediction flip rate", f"{plain.flips:.2%}", f"{found.flips:.2%}"),
        ("AUC", f"{plain.auc:.4f}", f"{found.auc:.4f}"),
        ("variance of the prediction", f"{plain.variance:.4f}", f"{found.variance:.4f}"),
        ("predicted positive", f"{plain.positive:.2%}", f"{found.positive:.2%}"),
        ("pairs matched", f"{plain.matched:.2%}", f"{found.matched:.2%}"),
    ):
        grid.add_row(name, before, after)
    console.print(grid)
    console.print("plain: the same network and draws, trained for prediction alone", soft_wrap=True)
    caveat = found.trivial.hardly_decides
    if caveat is not None:
        console.print(f"[bold]note:[/] a low CEC says little of this network: {caveat}", soft_wrap=True)


def _dataset(data: str, schema: Path | None) -> Dataset:
    if schema is None:
        if Path(data).suffix:
            raise QueryError(f"--data {data} is a file: pass its schema with --schema FILE")
        return datasets.load(data)
    return Dataset(name=Path(data).stem, frame=datasets.read_table(data), schema=Schema.load(schema))
