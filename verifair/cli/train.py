"""verifair train: the networks of the PBA and CEC papers, written as ONNX next to their schema."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from verifair.cli.command import app_of, parse_options
from verifair.cli.helps import HELPS
from verifair.errors import QueryError, TrainingError
from verifair.notebook.progress import progress_bar
from verifair.screen import Screen
from verifair.systems.results.result import Answer, Seed, Shape, Share
from verifair.systems.settings import Option, Settings
from verifair.systems.system import System

if TYPE_CHECKING:
    from verifair.datasets import Dataset
    from verifair.systems.cec.training import Consistent


class TrainSettings(Settings):
    """The settings of `verifair train`: a table, a method, and the network to write."""

    data: str
    """A dataset: german, german-years, adult, adult-balanced, synthetic, loan, compas=FILE (ProPublica's), hmda=FILE or
    law_school=FILE; or a table file."""
    out: Path
    """Network to write, NAME.onnx; its schema goes to NAME.toml."""
    schema_file: Annotated[Path | None, Option(name="--schema")] = None
    """Schema of a table file."""
    method: str = "agnostic"
    """agnostic, certifair, fair-n or cec."""
    sensitive: str | None = None
    """Sensitive feature of the fair methods; for cec any column."""
    hidden: str | None = None
    """Widths of the hidden layers (default: 100,50; for cec 128,64)."""
    epochs: int | None = None
    """Passes over the training rows."""
    batch: int | None = None
    """Rows in each step."""
    learning_rate: float | None = None
    """Learning rate of Adam."""
    dropout: float | None = None
    """Share of hidden neurons that each step leaves out."""
    lambda_f: float | None = None
    """certifair, fair-n: weight of the fairness term."""
    lambda_cec: float | None = None
    """cec: weight of the squared score."""
    lambda_eo: float | None = None
    """cec: weight of equalized odds."""
    lambda_excess: float | None = None
    """cec: weight of the score's excess over pairs of one group."""
    auc_loss: float | None = None
    """cec: largest loss of AUC compared with the plain network (trained without cec)."""
    variance_share: float | None = None
    """cec, with --auc-loss: smallest share of the plain network's variance of the probability."""
    every: int | None = None
    """cec: compute explanations in every Nth step only, with N times the weight."""
    steps: int | None = None
    """cec: steps of integrated gradients."""
    tau: float | None = None
    """cec: largest distance of a counterpart, in standard deviations of merit."""
    class_weight: str | None = None
    """Weights of the classes: balanced, or none."""
    threads: int = 1
    """Number of torch threads; the last bits of the weights depend on it."""

    @property
    def files(self) -> dict[str, Path | None]:
        """Return option -> file, for options that name files to write."""
        others = {"the schema": self.out.with_suffix(".toml"), "the test rows": self.test} if self.out.name else {}
        return {"--out": self.out, **others}

    @property
    def test(self) -> Path:
        """Return the table of the rows held out."""
        return self.out.with_suffix(".test.csv")


class ConsistencyShape(Shape):
    """Explanation consistency on the test rows: measured, not proved."""

    cec: float
    """Mean score."""
    excess: float
    """Over the mean score of pairs of one group."""
    flips: Share
    hidden: Share
    """Share of pairs in regime B."""
    matched: Share
    variance: float
    positive: Share
    auc: float | None
    silent: Share
    """People without any attribution."""


class TrainReport(Shape):
    """Measurements of the trained network on the test rows: not proved."""

    train_accuracy: Share
    test_accuracy: Share
    base_rate: Share
    """Share of the more frequent class, the accuracy of always guessing it."""
    positive_rate: dict[str, dict[str, float | None]]
    """Protected feature -> group -> share decided positively."""
    counterfactual_gap: dict[str, float | None]
    """Protected feature -> mean distance of probabilities between rows and their counterfactuals."""
    margin_gap: dict[str, float | None]
    losses: list[float | None]
    """After each epoch."""
    consistency: ConsistencyShape | None
    plain: ConsistencyShape | None
    """The same measures of the network trained for prediction alone."""


class TrainAnswer(Answer):
    """`verifair train`: a network, and its measurements."""

    settings: dict[str, Any]
    report: TrainReport
    model: str
    """The ONNX file."""
    test_rows: str
    """The rows held out (CSV)."""
    seed: Seed


def run(system: System, arguments: dict[str, Any]) -> None:
    """Train, save the network and its schema, and print the measurements."""
    from verifair.cli.output import save_answer
    from verifair.cli.warned import shown
    from verifair.systems.cec import training as cec
    from verifair.systems.results.files import plain
    from verifair.systems.results.spreadsheets import save_table
    from verifair.training import METHODS, train

    _, settings, files = parse_options(system, arguments)
    if settings.out.suffix != ".onnx":
        raise QueryError(f"--out {settings.out}: a network is written as NAME.onnx, next to NAME.toml; end the name in .onnx")
    dataset, method = _dataset(settings.data, settings.schema_file), settings.method
    names = ("sensitive", "epochs", "batch", "learning_rate", "dropout", "lambda_f", "class_weight", "threads")
    choices: Any = {name: getattr(settings, name) for name in names}
    choices |= {"hidden": _widths(settings.hidden, method), "seed": files.seed}
    term_values = {field.name: getattr(settings, field.name) for field in fields(cec.ConsistencyTerms)}
    terms = {name: value for name, value in term_values.items() if value is not None}
    if method not in (*METHODS, "cec"):
        raise TrainingError(f"method {method!r} is unknown; choose one of {', '.join([*METHODS, 'cec'])}")
    if terms and method != "cec":
        raise TrainingError(
            f"{method} training: {', '.join(term_values)} belong to the method cec; pass them with it, and with no other"
        )
    with progress_bar("epochs") as progress, shown():
        if method == "cec":
            model = cec.train(dataset, consistency=cec.ConsistencyTerms(**terms), progress=progress, **choices)
        else:
            model = train(dataset, method=method, progress=progress, **choices)
    network, schema = model.save(settings.out)
    save_table(settings.test, [dataset.test])
    report = {"consistency": None, "plain": None, **asdict(model.report)}
    screen = Screen()
    screen.print(f"wrote {network}, {schema} and the {len(dataset.test):,} test rows, {settings.test}", soft_wrap=True)
    screen.print(
        f"accuracy {model.report.train_accuracy:.4f} (training rows), {model.report.test_accuracy:.4f} (test rows); "
        f"always the larger class: {model.report.base_rate:.4f}"
    )
    if isinstance(model.report, cec.ConsistencyReport):
        _print_consistency(screen, model.report.plain, model.report.consistency, model.settings.sensitive)
    answer = TrainAnswer(
        settings=model.settings.plain(), report=TrainReport(**plain(report)), model=str(network),
        test_rows=str(settings.test), seed=files.seed,
    )
    save_answer(files.json_file, answer)


SYSTEM = System(verb="train", help=HELPS["train"], settings=TrainSettings, inputs=Settings, run=("seed", "json_file"))
app = app_of(SYSTEM, run)


def _widths(hidden: str | None, method: str) -> tuple[int, ...] | None:
    if hidden is None:
        return None if method == "cec" else (100, 50)
    try:
        return tuple(int(width) for width in hidden.split(","))
    except ValueError as error:
        raise QueryError(f"--hidden {hidden}: expected widths such as 100,50") from error


def _print_consistency(console: Screen, plain: Consistent, trained: Consistent, sensitive: str | None) -> None:
    """Print the measures beside each other: a low score alone says nothing about a model that hardly decides."""
    grid = Table(title=f"explanation consistency by {sensitive}: measured on the test rows, no proof", title_justify="left")
    for column in ("", "plain", "cec"):
        grid.add_column(column, justify="right" if column else "left")
    for name, before, after in (
        ("CEC, mean score", f"{plain.cec:.4f}", f"{trained.cec:.4f}"),
        ("excess over pairs of one group", f"{plain.excess:.4f}", f"{trained.excess:.4f}"),
        ("regime B, hidden bias", f"{plain.hidden:.2%}", f"{trained.hidden:.2%}"),
        ("prediction flip rate", f"{plain.flips:.2%}", f"{trained.flips:.2%}"),
        ("AUC", f"{plain.auc:.4f}", f"{trained.auc:.4f}"),
        ("variance of the prediction", f"{plain.variance:.4f}", f"{trained.variance:.4f}"),
        ("predicted positive", f"{plain.positive:.2%}", f"{trained.positive:.2%}"),
        ("pairs matched", f"{plain.matched:.2%}", f"{trained.matched:.2%}"),
    ):
        grid.add_row(name, before, after)
    console.print(grid)
    console.print("plain: the same network and draws, trained for prediction alone", soft_wrap=True)
    caveat = trained.trivial.hardly_decides
    if caveat is not None:
        console.print(f"note: a low CEC says little of this network: {caveat}", soft_wrap=True)


def _dataset(data: str, schema: Path | None) -> Dataset:
    from verifair import datasets
    from verifair.datasets import Dataset
    from verifair.schema.schema import Schema

    if schema is None:
        named = datasets.named(data)
        if named is None and Path(data).suffix:
            remedy = "is a file: pass its schema with --schema FILE" if Path(data).exists() else "there is no such file"
            raise QueryError(f"--data {data}: {remedy}")
        return datasets.load(data) if named is None else named
    # a file's name, with its suffix, never equals a paper's dataset name, whose loss weights do not apply to it
    return Dataset(name=Path(data).name, frame=datasets.read_table(data), schema=Schema.load(schema))
