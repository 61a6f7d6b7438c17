"""The cost of depth: flips and gaps around rows of Adult, for random and trained networks of growing depth and width.

Networks are named by their layers; trained ones (our own training, 5 epochs, seed 0) are made once and kept beside the queries.
A flip asks whether the decision of a row can change with sex, numeric features within a radius (in standard deviations) of the row
and others as they are; no sampled point does so. A gap asks whether log-odds of both copies differ by 1.15 times as much as they do
at sampled points. All are VNN-LIB files with their networks, in the layout of data/race, and are put to verifair and others as
`peers` does it; the table has a line for each network, with its queries' time relative to the shallowest of its kind.

    python -m benchmarks.run depth --nets 4x100 6x100 --rows 1 --limit 5                  a shorter run
    python -m benchmarks.run depth --competitors abcrown --homes abcrown=~/abcrown        beside another verifier
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.fairness.networks import random_weights
from benchmarks.shared import show
from benchmarks.verification import peers
from encoders.arrays import Array
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from encoders.problem import Goal, TwinBatch, TwinProblem
from verifair import datasets
from verifair.engine.questions import NO_FALL, NO_RISE, margin
from verifair.interop.export import question_files
from verifair.training.onnx_writer import save_onnx

NETS = ("2x100", "4x100", "6x100", "8x100", "4x256", "3x1000")
"""Networks by hidden layers and neurons in each."""
KINDS = ("random", "trained")
FLIPS, GAPS = (0.1, 0.4, 1.0), (0.1, 0.4)
"""Radii in standard deviations."""
POINTS, SLACK, EPOCHS = 2048, 1.15, 5
"""Points that are sampled within a box, and corners of it.   How many times the largest gap of these is asked about."""


def run(
    folder: Path, *, nets: Sequence[str] = NETS, kinds: Sequence[str] = KINDS, rows: int = 2, limit: float = 10.0,
    patience: float = 1.0, competitors: Sequence[str] = (), homes: Sequence[str] = (),
) -> pd.DataFrame:
    place = folder / "depth"
    place.mkdir(parents=True, exist_ok=True)
    entries = [entry for kind in kinds for name in nets for entry in _entries(place, kind, name, rows)]
    (place / "index.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    index, options = str(place / "index.json"), {"limit": limit, "patience": patience}
    return growth(peers.run(folder, index=index, competitors=competitors, homes=homes, **options), folder)


def growth(families: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Add to the table of families a query's time relative to the first, shallowest line of its kind."""
    kind = families["family"].str.replace(r"\d+x\d+ ", "", regex=True)
    for column in [name for name in families.columns if name.endswith("PAR-2")]:
        families[column.replace("PAR-2", "times")] = families[column] / families[column].groupby(kind).transform("first")
    return show("Depth: decided, PAR-2 in CPU seconds and growth", families, folder)


def _entries(place: Path, kind: str, name: str, rows: int) -> Iterator[dict[str, Any]]:
    """Write the network and its queries, unless they are there."""
    path = place / f"{kind}-{name}.onnx"
    layers, width = map(int, name.split("x"))
    if not path.exists():
        _make(path, kind, (width,) * layers)
    network = read_onnx(path)
    for kind_of_goal, radii in (("flip", FLIPS), ("gap", GAPS)):
        for radius, number in itertools.product(radii, range(rows if kind_of_goal == "flip" else 1)):
            label = f"{kind}-{name}-{kind_of_goal}-r{radius}-{number}"
            files = {"network": f"{label}/network.onnx", "q2": f"{label}/q2.vnnlib", "product": f"{label}/product.onnx"}
            entry = {"name": label, "family": f"{kind} {name} {kind_of_goal}s", **files, "q1": f"{label}/q1.vnnlib"}
            if not (place / entry["q1"]).exists():
                problem, goal = _problem(network, kind_of_goal, radius, np.random.default_rng([number, int(1000 * radius)]))
                _write(place / label, problem, goal)
            yield entry


def _make(path: Path, kind: str, hidden: tuple[int, ...]) -> None:
    dataset = datasets.load("adult")
    if kind == "trained":
        from verifair.training import train

        train(dataset, method="agnostic", sensitive=None, hidden=hidden, epochs=EPOCHS, seed=0).save(path)
        return
    save_onnx(path, random_weights(dataset.schema.domain.columns, hidden), {})


@lru_cache
def _adult() -> tuple[Any, Array, Array]:
    """The schema, the test rows, and the standard deviations of numbers (0 of what is none)."""
    dataset = datasets.load("adult")
    raw = dataset.schema.raw(dataset.test)
    number = np.array([feature.kind == "integer" for feature in dataset.schema.features])
    return dataset.schema, raw, np.where(number, raw.std(axis=0), 0.0)


def _problem(network: Network, kind_of_goal: str, radius: float, rng: np.random.Generator) -> tuple[TwinProblem, int]:
    """Draw rows until no point sampled in the row's box violates the goal; return the problem and the goal's number."""
    schema, rows, spread = _adult()
    sex, domain, mark = schema.index("sex"), schema.domain, margin(network, 1, 0)
    while True:
        row = rows[rng.integers(len(rows))]
        low, high = (np.clip(row + sign * radius * spread, domain.lower, domain.upper) for sign in (-1, 1))
        corners = np.where(rng.random((POINTS, len(row))) < 0.5, low, high)
        points = np.concatenate([rng.uniform(low, high, corners.shape), corners])
        exchanged = points.copy()
        exchanged[:, sex] = 1 - row[sex]
        g, g_prime = (network.forward(schema.encode(x)) @ mark for x in (points, exchanged))
        goals, goal = (NO_FALL, NO_RISE), 0 if g[0] > 0 else 1
        if kind_of_goal == "gap":
            difference = (g - g_prime)[np.abs(g - g_prime).argmax()]
            rows_of = np.sign(difference) * np.array([[-1.0, 1.0]])
            goals, goal = (Goal(rows=rows_of, strict=False, constant=np.array([SLACK * abs(difference)])),), 0
        elif (np.stack([g, g_prime]) > 0).any() != (g[0] > 0) or (np.stack([g, g_prime]) <= 0).any() != (g[0] <= 0):
            continue
        batch = TwinBatch(lower=low[None], upper=high[None], prime=exchanged[:1], protected=np.arange(len(row)) == sex)
        return TwinProblem(network=network, domain=domain, batch=batch, margin=mark, goals=goals), goal


def _write(folder: Path, problem: TwinProblem, goal: int) -> None:
    folder.mkdir(exist_ok=True)
    for two, network, query in ((True, "network", "q2"), (False, "product", "q1")):
        model, file = question_files(problem, 0, goal, folder, two=two)
        model.rename(folder / f"{network}.onnx")
        file.rename(folder / f"{query}.vnnlib")
