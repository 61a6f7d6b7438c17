"""The whole Adult test split through the public API: every row, both directions; everything must be decided."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pandas as pd

from benchmarks.pba.adult import SIZES, Adult
from benchmarks.shared import show
from solvers.outcome import Budget
from verifair import datasets
from verifair.datasets.stream import Stream
from verifair.engine.queries import PersistentBias
from verifair.systems.pba.rows import decide_rows
from verifair.systems.pba.stream import TableStream


def run(folder: Path) -> pd.DataFrame:
    frame = datasets.load("adult").test
    lines = []
    for hidden in SIZES:
        adult = Adult.of(hidden)
        for deltas, jobs in (([1.0], 1), ([1.0], 2), ([1.0, 2.0, 3.0], 2)):
            query = PersistentBias(model=adult.network, schema=adult.schema, protected="sex", delta=deltas)
            seconds = []
            for _ in range(3):
                started = time.perf_counter()
                people = TableStream.of(adult.network, adult.schema, Stream.of(frame), [query])
                verdicts = decide_rows(query, people, budget=Budget(seconds=3600), jobs=jobs)
                seconds.append(time.perf_counter() - started)
            usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            status = verdicts.tally("status").set_index("status")["number"]
            trust = verdicts.tally("trust").set_index("trust")["number"]
            lines.append(
                {
                    "network": "-".join(map(str, hidden)), "deltas": str(deltas), "jobs": jobs, "rows": len(frame),
                    "questions": len(verdicts), "seconds (median of 3)": sorted(seconds)[1], "proved": int(status.get("proved", 0)),
                    "violated": int(status.get("violated", 0)), "unknown": int(status.get("unknown", 0)),
                    "claimed": int(trust.get("claimed", 0)), "observed+flipped <= 100 %": verdicts.complementary,
                    "peak MiB": usage / 1024,
                }
            )
    return show("PBA split: the Adult test split, sex, through decide_rows (store and certificates' trees included)",
                pd.DataFrame(lines), folder)
