"""Train a ReLU network on a dataset, measure it, and write it as ONNX next to its schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from verifair.checker.report import Progress
from verifair.datasets import Dataset
from verifair.errors import DataError, require
from verifair.schema.schema import Schema
from verifair.training.measure import TrainingReport, measure
from verifair.training.onnx_writer import Weights, onnx_model, save_onnx
from verifair.training.rows import EncodedRows, Flip, check_trainable, flip_of, rows_of
from verifair.training.settings import Choices, TrainingSettings, settings_for

if TYPE_CHECKING:
    from verifair.training.objectives import Objective


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """A trained network: weights ((W (m, n), b (m,)), ...) float32, ReLU in between, two logits out, class 1 positive.

    schema: the dataset's, with positive = "class = 1".
    """

    weights: Weights
    schema: Schema
    settings: TrainingSettings
    report: TrainingReport
    dataset: str
    torch_version: str

    @property
    def metadata(self) -> dict[str, str]:
        """Settings and data of the training, as written into the ONNX file."""
        settings = json.dumps(self.settings.plain(), sort_keys=True)
        return {
            "dataset": self.dataset, "method": self.settings.method, "seed": str(self.settings.seed), "settings": settings,
            "torch": self.torch_version,
        }

    def onnx_bytes(self) -> bytes:
        """Return the ONNX file: the same weights and settings give the same bytes."""
        data: bytes = onnx_model(self.weights, self.metadata).SerializeToString(deterministic=True)
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
            save_onnx(model, self.weights, self.metadata)
        except OSError as error:
            raise DataError(f"{model}: cannot be written ({error.strerror}); choose another place") from error
        return model, schema


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingTask:
    """A dataset ready for training: encoded rows to train on and held out, and the flips of the reported features."""

    dataset: str
    schema: Schema
    settings: TrainingSettings
    rows: EncodedRows
    held_out: EncodedRows
    flips: dict[str, Flip]

    @classmethod
    def of(cls, dataset: Dataset, schema: Schema, settings: TrainingSettings) -> TrainingTask:
        """Return the task of a dataset. Raises DataError as `check_trainable` does, and for rows that do not fit the schema.

        The report covers the protected features with finitely many values, and the sensitive feature if it is one of them.
        """
        check_trainable(schema, dataset.frame)
        features = [f.name for f in schema.features if f.kind != "real" and (f.protected or f.name == settings.sensitive)]
        names = tuple(name for name in features if len(schema.values(name)) > 1)
        return cls(
            dataset=dataset.name, schema=schema, settings=settings, rows=rows_of(schema, dataset.train, names),
            held_out=rows_of(schema, dataset.test, names), flips={name: flip_of(schema, name) for name in names},
        )

    def train(self, objective: Objective, progress: Progress | None = None) -> TrainedModel:
        """Train on the rows, and measure on those held out."""
        from verifair.training.fit import fit  # imports torch

        return self.measured(*fit(self.rows.x, self.settings, objective, progress))

    def measured(self, weights: Weights, losses: tuple[float, ...]) -> TrainedModel:
        """Return a network that was trained on the rows, measured on those held out."""
        return TrainedModel(
            weights=weights, schema=self.schema, settings=self.settings, dataset=self.dataset, torch_version=version("torch"),
            report=measure(weights, self.rows, self.held_out, self.flips, losses),
        )


def train(
    dataset: Dataset, *, method: str, sensitive: str | None = None, progress: Progress | None = None,
    **choices: Unpack[Choices],
) -> TrainedModel:
    """Train on the dataset's 80 %, measure on its 20 %: Adam, no early stopping.  (PBA, section 3.1 and A.3)

    Settings that are not chosen come from `settings_for`, which also lists what the paper leaves open and the choices made here.
    The same seed and threads give the same bytes on the same machine and torch. progress(done, total) counts epochs.
    Raises MissingPackage without torch, TrainingError for settings that cannot be used or a loss that is no longer
    finite, SchemaError and DataError for a schema or rows that do not fit.
    """
    require_torch()
    schema = two_classes(dataset)
    settings = settings_for(dataset.name, schema, method=method, sensitive=sensitive, **choices)
    task = TrainingTask.of(dataset, schema, settings)

    from verifair.training.objectives import objective_for  # imports torch

    return task.train(objective_for(settings, task.rows, task.flips.get(settings.sensitive or "")), progress)


def two_classes(dataset: Dataset) -> Schema:
    """Return the dataset's schema for a network of two logits, class 1 positive."""
    return Schema.build({**dataset.schema.model_dump(), "positive": "class = 1"}, name=dataset.name)


def require_torch(what: str = "training") -> None:
    """Raise MissingPackage where torch is not installed, without importing it."""
    require("torch", "torch", what)
