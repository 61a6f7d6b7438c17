"""Train a ReLU network on a dataset, measure it, and write it as ONNX next to its schema."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from verifair.datasets import Dataset
from verifair.errors import DataError, MissingPackage
from verifair.schema.schema import Schema
from verifair.training.explained import Consistent, Explained
from verifair.training.measure import TrainingReport, measure, network_of
from verifair.training.onnx_writer import Weights, onnx_model
from verifair.training.rows import check_labels, flip_of, rows_of
from verifair.training.settings import Consistency, Settings, settings_for


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """A trained network: weights ((W (m, n), b (m,)), ...) float32, ReLU in between, two logits out, class 1 positive.

    schema: the dataset's, with positive = "class = 1".
    """

    weights: Weights
    schema: Schema
    settings: Settings
    report: TrainingReport
    dataset: str
    torch_version: str

    def onnx_bytes(self) -> bytes:
        """The ONNX file: the same weights and settings give the same bytes. Its metadata says how it was trained."""
        metadata = {
            "dataset": self.dataset,
            "method": self.settings.method,
            "seed": str(self.settings.seed),
            "settings": json.dumps(self.settings.plain(), sort_keys=True),
            "torch": self.torch_version,
        }
        data: bytes = onnx_model(self.weights, metadata).SerializeToString(deterministic=True)
        return data

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Write NAME.onnx and, next to it, NAME.toml with the schema; returns both paths. Makes missing folders.

        Raises DataError for a name that does not end in .onnx and for a place that cannot be written.
        """
        model = Path(path)
        if model.suffix != ".onnx":
            raise DataError(f"{model}: a network is written as NAME.onnx, next to NAME.toml; end the name in .onnx")
        schema = model.with_suffix(".toml")
        try:
            model.parent.mkdir(parents=True, exist_ok=True)
            self.schema.save(schema)
            part = model.with_suffix(".onnx.part")
            part.write_bytes(self.onnx_bytes())
            part.replace(model)  # a killed run leaves no half-written network behind
        except OSError as error:
            raise DataError(f"{model}: cannot be written ({error.strerror}); choose another place") from error
        return model, schema


def train(
    dataset: Dataset,
    *,
    method: str,
    sensitive: str | None = None,
    hidden: tuple[int, ...] | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    lambda_f: float | None = None,
    dropout: float | None = None,
    consistency: Consistency | None = None,
    seed: int = 0,
    class_weight: str | None = None,
    threads: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> TrainedModel:
    """Train on the dataset's 80 %, measure on its 20 %: Adam, no early stopping.  (PBA, section 3.1 and A.3; CEC)

    None takes the value of `settings_for`, which also says what the paper leaves open and what is done here. The same
    seed and threads give the same bytes on the same machine and torch. progress(done, total) counts epochs.
    sensitive: a feature; for cec any column of the dataset's frame, also one that is no input.
    Raises MissingPackage without torch, TrainingError for settings that cannot be used or a loss that is no longer
    finite, SchemaError and DataError for a schema or rows that do not fit.
    """
    torch_version = _require_torch()
    schema = Schema.build({**dataset.schema.model_dump(), "positive": "class = 1"}, name=dataset.name)
    settings = settings_for(
        dataset.name, schema, method=method, sensitive=sensitive, hidden=hidden, epochs=epochs, batch=batch,
        learning_rate=learning_rate, lambda_f=lambda_f, dropout=dropout, consistency=consistency, seed=seed,
        class_weight=class_weight, threads=threads,
    )  # fmt: skip
    check_labels(schema, dataset.frame)
    names = _reported(schema, settings.sensitive)
    train_rows, test_rows = rows_of(schema, dataset.train, names), rows_of(schema, dataset.test, names)
    flips = {name: flip_of(schema, name) for name in names}
    explained = Explained.of(schema, dataset, settings)

    from verifair.training.fit import fit  # imports torch
    from verifair.training.methods import objective_for
    from verifair.training.objectives import CrossEntropy

    objective = objective_for(settings, train_rows, flips.get(settings.sensitive or ""), explained)
    weights, losses = fit(train_rows.x, settings, objective, progress)
    report = measure(weights, train_rows, test_rows, flips, losses)
    if explained is not None:
        prediction = CrossEntropy(train_rows.labels, class_weight=class_weight)
        plain, _ = fit(train_rows.x, settings, prediction)  # a fifth of the time, and it says what fairness did
        before, after = (Consistent.of(network_of(layers), explained) for layers in (plain, weights))
        report = replace(report, consistency=after, plain=before)
    return TrainedModel(
        weights=weights,
        schema=schema,
        settings=settings,
        report=report,
        dataset=dataset.name,
        torch_version=torch_version,
    )


def _reported(schema: Schema, sensitive: str | None) -> tuple[str, ...]:
    """The features whose groups are measured: the protected ones that can be listed, and the sensitive one if it is one."""
    names = [f.name for f in schema.features if f.kind != "real" and (f.protected or f.name == sensitive)]
    return tuple(name for name in names if len(schema.values(name)) > 1)


def _require_torch() -> str:
    """torch's version, without importing it. Raises MissingPackage."""
    if importlib.util.find_spec("torch") is None:
        raise MissingPackage('training needs torch, which is not installed; run: pip install "verifair[torch]"')
    return version("torch")
