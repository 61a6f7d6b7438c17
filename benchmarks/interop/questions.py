"""Fairness questions small enough for a verifier that knows nothing of twins: the shipped networks around people of their tables,
and small networks that scikit-learn trains on the same tables, with boxes of several widths."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from encoders.arrays import Array
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.onnx.product_network import network_model
from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.datasets import Dataset
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import margin

TABLES = ("german", "adult")
HIDDEN = ((8,), (12, 6))
WIDTHS = (0.02, 0.1, 0.3)
"""Of a box, in shares of the features' ranges."""
OPEN = {"german": ("duration", "credit-amount", "installment-rate"), "adult": ("age", "fnlwgt", "hours-per-week")}
"""Whole numbers that move; everything else is the person's own."""
EPSILONS = (None, 0.05)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExportedQuery:
    """One fairness query, named by table, network, person and width."""

    name: str
    query: IndividualFairness


def questions(
    folder: Path, people: int, *, tables: Sequence[str] = TABLES, hidden: Sequence[tuple[int, ...]] = HIDDEN, seed: int = 0
) -> Iterator[ExportedQuery]:
    """Yield queries about `people` people for each network: three in four are nearest to its decision boundary, the others
    random."""
    for table in tables:
        dataset = datasets.load(table)
        networks = {"shipped": read_onnx(datasets.network_path(table))}
        networks |= {"x".join(map(str, widths)): trained(dataset, widths, folder, seed) for widths in hidden}
        raw = dataset.schema.raw(dataset.test)
        for kind, network in networks.items():
            for k, row in enumerate(_people(dataset, network, raw, people, seed)):
                width, epsilon = WIDTHS[k % len(WIDTHS)], EPSILONS[k % 4 == 3]
                query = IndividualFairness(
                    model=network, schema=dataset.schema, protected=["sex"], box=_box(dataset, row, width), epsilon=epsilon
                )
                goal = "flip" if epsilon is None else f"gap {epsilon}"
                yield ExportedQuery(name=f"{table} {kind} person {k} width {width} {goal}", query=query)


def _people(dataset: Dataset, network: Network, raw: Array, count: int, seed: int) -> Array:
    g = network.forward(dataset.schema.encode(raw)) @ margin(network, 1, 0)
    nearest = np.argsort(np.abs(g), kind="stable")[: count - count // 4]
    random_rows = np.random.default_rng(seed).choice(len(raw), size=count // 4, replace=False)
    return np.asarray(raw[np.concatenate([nearest, random_rows])])


def _box(dataset: Dataset, row: Array, width: float) -> dict[str, Any]:
    schema, box = dataset.schema, {}
    for v, feature in enumerate(schema.features):
        if feature.name in OPEN[dataset.name]:
            reach = np.floor(width * (schema.domain.upper[v] - schema.domain.lower[v]))
            low, high = max(schema.domain.lower[v], row[v] - reach), min(schema.domain.upper[v], row[v] + reach)
            box[feature.name] = (int(low), int(high))
        elif feature.name != "sex":
            box[feature.name] = feature.word(row[v])
    return box


def trained(dataset: Dataset, hidden: tuple[int, ...], folder: Path, seed: int) -> Network:
    """Return a ReLU network trained by scikit-learn, its weights rounded to float32, kept in the folder. Two logits, as the schemas
    say."""
    path = folder / f"{dataset.name}-{'x'.join(map(str, hidden))}.onnx"
    if not path.exists():
        frame = dataset.train.iloc[:2000]
        model = MLPClassifier(hidden_layer_sizes=hidden, random_state=seed, max_iter=60)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(dataset.schema.encode(dataset.schema.raw(frame)), dataset.schema.labels(frame))
        layers = []
        for k, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
            last = k == len(hidden)
            weights = np.concatenate([-weight.T / 2, weight.T / 2]) if last else weight.T
            constants = np.concatenate([-bias / 2, bias / 2]) if last else bias
            layers.append(
                Layer(
                    weight=weights.astype(np.float32).astype(np.float64),
                    bias=constants.astype(np.float32).astype(np.float64),
                    slope=np.full(len(constants), float(last)),
                )
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(network_model(Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256=""), {}), path)
    return read_onnx(path)
