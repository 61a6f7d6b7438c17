"""Networks with each activation: CPU seconds of search and check for random boxes of German, all of the same weights.

    python -m benchmarks.run curves --boxes 8 --width 30
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.shared import measured
from encoders.curves.layer import Curve, SmoothLayer
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.onnx.reader import read_onnx
from solvers.outcome import Budget
from verifair import datasets
from verifair.checker.check import check
from verifair.engine.queries import IndividualFairness
from verifair.engine.verify import verify


def run(folder: Path, *, boxes: int = 8, width: int = 30) -> pd.DataFrame:
    with threadpool_limits(limits=1):
        return measured("Curves: boxes of German, CPU seconds", _lines(boxes, width), folder)


def _lines(boxes: int, width: int) -> Iterator[dict[str, Any]]:
    schema, inputs = datasets.load("german").schema, read_onnx(datasets.network_path("german")).inputs
    for kind in Curve:
        network, rng = _network(kind, [inputs, width, width, 2]), np.random.default_rng(5)
        search, checked, leaves, statuses = 0.0, 0.0, 0, []
        for _ in range(boxes):
            box = {}
            for feature in schema.features:
                words = schema.values(feature.name)
                low = int(rng.integers(0, len(words)))
                high = min(len(words) - 1, low + int(rng.integers(0, max(1, len(words) // 3) + 1)))
                box[feature.name] = (words[low], words[high])
            del box["sex"]
            query = IndividualFairness(model=network, schema=schema, protected=["sex"], box=box, epsilon=0.04)
            started = time.process_time()
            verdict = verify(query, budget=Budget(seconds=20))
            search += time.process_time() - started
            statuses.append(verdict.status.value)
            if verdict.certificate is not None:
                started = time.process_time()
                report = check(verdict.certificate, model=network, schema=schema)
                checked, leaves = checked + time.process_time() - started, leaves + report.leaves
                assert report.accepted
        answers = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
        yield {"curve": kind.shown, "answers": answers, "search s": search, "check s": checked, "leaves": leaves}


def _network(kind: Curve, sizes: list[int]) -> Network:
    rng, layers = np.random.default_rng(0), []
    for n, m in pairwise(sizes):
        weight = (rng.normal(size=(m, n)) * 1.2 / np.sqrt(n)).astype(np.float32).astype(np.float64)
        bias = 0.3 * rng.normal(size=m).astype(np.float32).astype(np.float64)
        if len(layers) == len(sizes) - 2 or kind == Curve.BENT:
            slope = np.full(m, float(len(layers) == len(sizes) - 2))
            layers.append(Layer(weight=weight, bias=bias, slope=slope))
        else:
            layers.append(SmoothLayer(weight=weight, bias=bias, bend=np.ones(m), curve=np.full(m, kind, dtype=np.int8)))
    return Network(layers=tuple(layers), link=Link.SOFTMAX, source_sha256="0" * 64)
