"""kmax: an exact witness below and a certified bound above, over whole domains and over Fairify's main partitions.

Whole domain: AC-1 ... AC-6 with age x race x sex, age by decades (K = 90) and all of it (K = 910); GC-1 ... GC-3 with sex x age.
`search` is the best of several seeded runs of HyFair's annealing (Algorithm 1, seeds drawn from the data), which proves no bound.
Partitions: every feature with more than T values is cut into blocks of T (Adult 10: 16,000; German 100: 201), one protected
attribute, the same random sample for every network; `exact` is the share whose two bounds meet. Every certificate is re-checked.

    python -m benchmarks.run kmax --seconds 5 --sample 20 --seeds 2 --nets AC-1 GC-3        a shorter run
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.shared import data_folder, show
from encoders.onnx.reader import read_onnx
from solvers.outcome import Budget
from verifair.checker.check import check
from verifair.datasets import read_table
from verifair.engine.buckets.kmax import KmaxVerdict, kmax
from verifair.engine.queries import KDiscrimination
from verifair.errors import Disagreement
from verifair.papers.hyfair.data import fairify_schema
from verifair.schema.schema import Schema
from verifair.systems.hyfair.search.annealing import search_clusters

FAMILY = {"AC": ("adult", 10), "GC": ("german", 100)}
"""Family and partition threshold T."""
DOMAINS: tuple[tuple[str, str, tuple[str, ...], Mapping[str, Sequence[float]]], ...] = (
    *((f"AC-{n}", "by decades", ("age", "race", "sex"), {"age": range(10, 100, 10)}) for n in range(1, 7)),
    *((f"AC-{n}", "every age", ("age", "race", "sex"), {}) for n in range(1, 7)),
    *((f"GC-{n}", "all", ("age", "sex"), {}) for n in range(1, 4)),
)
PARTITIONED = (("AC-1", "race"), ("AC-3", "race"), ("AC-6", "race"), *((f"GC-{n}", a) for n in (1, 3) for a in ("age", "sex")))


@dataclass(frozen=True, kw_only=True)
class KmaxRuns:
    """seconds: for each whole domain, and for all seeded searches of it together.   each: seconds for a partition."""

    seconds: float
    seeds: int
    sample: int
    each: float
    nets: tuple[str, ...]

    def wanted(self, net: str) -> bool:
        return not self.nets or net in self.nets


def run(
    folder: Path, *, seconds: float = 60.0, seeds: int = 10, sample: int = 200, each: float = 2.0, nets: Sequence[str] = ()
) -> list[pd.DataFrame]:
    data = data_folder()
    settings = KmaxRuns(seconds=seconds, seeds=seeds, sample=sample, each=each, nets=tuple(nets))
    with threadpool_limits(limits=1):
        domains = [_domain_line(data, settings, *run_settings) for run_settings in DOMAINS if settings.wanted(run_settings[0])]
        parts = [_partitioned(data, settings, *run_settings) for run_settings in PARTITIONED if settings.wanted(run_settings[0])]
    tables = {
        f"kmax domain: {settings.seconds:g} s each, beside the best of {settings.seeds} searches": domains,
        f"kmax partitions: {settings.each:g} s each, samples of at most {settings.sample}": parts,
    }
    return [show(title, pd.DataFrame(lines), folder) for title, lines in tables.items() if lines]


def _domain_line(
    data: Path, settings: KmaxRuns, net: str, values_text: str, protected: tuple[str, ...], values: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    family, _ = FAMILY[net[:2]]
    schema, network = fairify_schema(data, family), read_onnx(data / "nets" / f"{net}.onnx")
    query = KDiscrimination(model=network, schema=schema, protected=protected, values=values)
    rows = schema.raw(read_table(next((data / "encoded").glob(f"{family}.csv*"))), outside="keep")
    share = settings.seconds / settings.seeds
    runs = [search_clusters(query, data=rows, seconds=share, seed=seed) for seed in range(settings.seeds)]
    verdict = kmax(query, budget=Budget(seconds=settings.seconds))
    return {
        "net": net, "protected": " x ".join(protected), "values": values_text, "K": verdict.combinations,
        "search": max(s.k for s in runs), "searches at it": sum(s.k == max(o.k for o in runs) for s in runs),
        "lower": verdict.lower, "upper": verdict.upper, "gap": verdict.upper - verdict.lower,
        "seconds": verdict.seconds, "boxes": verdict.boxes, **_checked(verdict, query),
    }


def _partitioned(data: Path, settings: KmaxRuns, net: str, protected: str) -> dict[str, Any]:
    family, threshold = FAMILY[net[:2]]
    schema, network = fairify_schema(data, family), read_onnx(data / "nets" / f"{net}.onnx")
    verdicts, checks = [], []
    for box in sampled(schema, protected, threshold, settings.sample):
        query = KDiscrimination(model=network, schema=schema, protected=[protected], box=box)
        verdicts.append(kmax(query, budget=Budget(seconds=settings.each)))
        checks.append(_checked(verdicts[-1], query)["check seconds"])
    seconds = np.array([verdict.seconds for verdict in verdicts])
    uppers = [verdict.upper for verdict in verdicts]
    return {
        "net": net, "protected": protected, "K": verdicts[0].combinations, "partitions": len(verdicts),
        "exact": np.mean([verdict.reason is None for verdict in verdicts]), "largest gap": max(v.upper - v.lower for v in verdicts),
        "partitions by upper bound": ", ".join(f"{k}: {uppers.count(k)}" for k in sorted(set(uppers))),
        "mean seconds": seconds.mean(), "95 %": np.quantile(seconds, 0.95), "check seconds": np.mean(checks),
    }


def _checked(verdict: KmaxVerdict, query: KDiscrimination) -> dict[str, Any]:
    started = time.perf_counter()
    report = check(verdict.certificate, model=query.model, schema=query.schema)
    if not report.accepted:
        raise Disagreement(f"a kmax certificate was rejected: {'; '.join(map(str, report.rejections))}")
    return {"leaves": report.leaves, "check seconds": time.perf_counter() - started}


def sampled(schema: Schema, protected: str, threshold: int, count: int) -> Iterator[dict[str, tuple[float, float]]]:
    """Yield a random sample, with seed 0, of the main partitions: boxes by feature name, without the protected one."""
    blocks: dict[str, list[tuple[float, float]]] = {}
    for feature in schema.features:
        low, high = feature.range or (0.0, 0.0)
        is_whole = feature.name == protected or feature.protected or high - low + 1 <= threshold
        starts = [low] if is_whole else np.arange(low, high + 1, threshold).tolist()
        blocks[feature.name] = [(start, high if is_whole else min(start + threshold - 1, high)) for start in starts]
    sizes = [len(block) for block in blocks.values()]
    total = int(np.prod(sizes))
    for index in np.random.default_rng(0).choice(total, size=min(count, total), replace=False):
        indices = np.unravel_index(index, sizes)
        yield {name: intervals[k] for (name, intervals), k in zip(blocks.items(), indices, strict=True) if name != protected}
