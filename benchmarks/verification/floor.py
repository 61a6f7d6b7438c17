"""The fixed cost of one query in a running process, measured on trivial queries.

`verify`: a fairness query about a small box of a network that is loaded. `VNN-LIB`: a query of `verifair export` for the same box:
reading the file, reading the network (a new one each time, as a server of files would), and deciding. Median of CPU milliseconds.

    python -m benchmarks.run floor --rounds 20       a shorter run
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.shared import measured
from encoders.onnx.reader import read_onnx
from encoders.vnnlib.reader import read_vnnlib
from solvers.outcome import Budget
from verifair import datasets
from verifair.engine.queries import IndividualFairness
from verifair.engine.verdict import Verdict
from verifair.engine.verify import verify
from verifair.interop.decide import QueryAnswer, decide, networks_of
from verifair.interop.export import export


def run(folder: Path, *, rounds: int = 100) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as scratch, threadpool_limits(limits=1):
        return measured("Floor: CPU milliseconds of one query", _lines(Path(scratch), rounds), folder)


def _lines(folder: Path, rounds: int) -> Iterator[dict[str, Any]]:
    for name, widened in (("german", "duration"), ("adult", "age")):
        shipped, path = datasets.load(name), datasets.network_path(name)
        network, schema = read_onnx(path), shipped.schema
        for row in (0, 1):
            raw = schema.raw(shipped.test)[row]
            words = {f.name: f.word(value) for f, value in zip(schema.features, raw, strict=True) if f.name != "sex"}
            value = int(raw[schema.index(widened)])
            words[widened] = (value, value + 5)
            query = IndividualFairness(model=network, schema=schema, protected=["sex"], box=words)
            export(query, folder / f"{name} {row}", relaxed=True)
            file = next(iter(sorted((folder / f"{name} {row}").glob("2.0/vnnlib/*.vnnlib"))), None)
            yield {"query": f"{name}, row {row}", "what": "verify", **_median(partial(verify, query), rounds)}
            if file is not None:
                yield {"query": f"{name}, row {row}", "what": "VNN-LIB", **_median(partial(_read_and_decide, file, path), rounds)}


def _read_and_decide(file: Path, network: Path) -> QueryAnswer:
    query = read_vnnlib(file)
    networks = networks_of(query, {n.name: network for n in query.networks if n.equal_to is None})
    return decide(query, networks, budget=Budget(seconds=10))


def _median(ask: Callable[[], Verdict | QueryAnswer], rounds: int) -> dict[str, Any]:
    answer, times = ask(), []
    for _ in range(rounds):
        started = time.process_time()
        ask()
        times.append(1000 * (time.process_time() - started))
    status = answer.status if isinstance(answer, Verdict) else answer.answer
    return {"answer": status.value, "median ms": statistics.median(times), "most ms": max(times)}
