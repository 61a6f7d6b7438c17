"""Imported trees beside the objects that they were read from, on 100,000 rows: whole table rows, decimals between them, and rows on
the thresholds of the trees and right beside these.

Objects compute in float64, the imported model in float32. So rows are compared as they are, and rounded to float32: what is left
then is no matter of rounding. Models are fitted on the shipped Adult, words as numbers of categories.

    python -m benchmarks.run tree_rows --rows 100000
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.fairness.trees import EVERY, fitted
from benchmarks.shared import measured
from encoders.onnx.runtime import predictions, runtime_outputs
from encoders.trees.ensemble import TreeEnsemble
from verifair import datasets
from verifair.models.read import read

KINDS = (*EVERY, "tree", "extra", "gradient", "catboost")


def run(folder: Path, *, models: Sequence[str] = KINDS, rows: int = 100_000, seed: int = 0) -> pd.DataFrame:
    """Run the comparison.   rows: compared, a third of each kind.   seed: of what is drawn."""
    dataset = datasets.load("adult")
    table = dataset.frame.drop(columns=str(dataset.schema.label))
    words = table.select_dtypes(exclude="number").columns
    x = table.assign(**{name: table[name].astype("category").cat.codes for name in words}).to_numpy(dtype=float)
    y = (dataset.frame[str(dataset.schema.label)] == dataset.schema.positive_label).to_numpy().astype(int)
    return measured(f"Imported trees: {rows:,} rows", (_line(name, x, y, rows, seed) for name in models), folder)


def _line(name: str, x: np.ndarray, y: np.ndarray, rows: int, seed: int) -> dict[str, Any]:
    model = fitted(name, x, y)
    trees = read(model)
    assert isinstance(trees, TreeEnsemble)
    random = np.random.default_rng(seed)
    drawn = np.column_stack([random.choice(column, rows) for column in x.T])
    decimals, on = slice(rows // 3, 2 * rows // 3), np.arange(2 * rows // 3, rows)
    drawn[decimals] += random.uniform(-0.5, 0.5, drawn[decimals].shape)
    for column in np.unique(trees.column[trees.column >= 0]):
        at = random.choice(trees.threshold[trees.column == column], len(on))
        below, above = (np.nextafter(at.astype(np.float32), np.float32(side)) for side in (-np.inf, np.inf))
        drawn[on, column] = random.permuted(np.stack([at, below, above, drawn[on, column]]), axis=0)[0]
    return {"model": name, "leaves": int((trees.column < 0).sum()), **dict(_differences(model, trees, drawn))}


def _differences(model: Any, trees: TreeEnsemble, rows: np.ndarray) -> Iterator[tuple[str, Any]]:
    held = rows.astype(np.float32)
    shown = runtime_outputs(trees, held)
    for what, asked in (("as they are", rows), ("in float32", held.astype(float))):
        expected = model.predict_proba(asked)[:, -shown.shape[1] :]
        yield f"{what}: decided otherwise", int((model.predict(asked) != predictions(trees, held)).sum())
        yield f"{what}: off by more than 1e-4", int((np.abs(expected - shown).max(axis=1) > 1e-4).sum())
