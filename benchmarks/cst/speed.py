"""The time of counterfactual situation testing, beside brute force that gives the same numbers.

`law school`: all 21,790 applicants, race and gender, k = 15, 30, 50, 100 in one run, from the table in memory to counts; against
all distances, chunk by chunk with NumPy, one partition a k (shared ties). Interleaved; every count is compared.
`command`: the same as `verifair cst` in a fresh process, from the table's file to its files.
`authors`: their procedure, one complainant after another, for one k (`tests/cst_in_loops.py`).
`loops`: the definitions in plain Python, on some rows of the law school.
`many`: every k from 1 to 500 in one pass beside four k, with all intervals, in CPU seconds.

    python -m benchmarks.run cst_speed --rounds 1        shorter
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.shared import data_folder, show
from encoders.arrays import Array
from tests.cst_in_loops import authors_counts, people_tested
from verifair import datasets
from verifair.memory import keep_freed
from verifair.papers.cst.data import PublishedQuestion, law_school
from verifair.papers.cst.printed import K
from verifair.systems.cst.testing import Situations

CHUNK = 400
DIGITS = 9
"""Distances equal to so many decimals are ties: coordinates are at most 1."""
PARTS = ("law school", "command", "authors", "loops", "many")
MANY = {"four k to 100": K, "four k to 500": (125, 250, 375, 500), "all k from 1 to 500": tuple(range(1, 501))}
Counts = dict[str, tuple[Array, Array, Array]]
"""Intervention -> negative decisions (K, C) of control groups, ST's and CST's test groups."""


def run(folder: Path, *, rounds: int = 3, parts: Sequence[str] = PARTS) -> list[pd.DataFrame]:
    data = data_folder()
    audit = law_school(data)
    lines = []
    if "law school" in parts:
        lines += _law_school(audit, rounds)
    if "command" in parts:
        lines += _command(audit, rounds)
    if "authors" in parts:
        lines += _authors(audit)
    if "loops" in parts:
        lines += _loops(audit)
    if "many" in parts:
        lines += _many(audit, rounds)
    return [show("CST speed: seconds beside brute force", pd.DataFrame(lines), folder)]


def ours(audit: PublishedQuestion, frame: pd.DataFrame, threads: int) -> Counts:
    """Return the counts from the table, including the fit of the causal model."""
    situations = audit.estimator(k=K, threads=threads).fit(frame).test()
    return {words: _counts(s) for words, s in situations.items()}


def _counts(situations: Situations) -> tuple[Array, Array, Array]:
    for method in situations.methods:
        for k in situations.k:
            situations.claims(method, k).significant  # noqa: B018  intervals are part of the work
    return situations.control, situations.standard, situations.counterfactual


def brute(audit: PublishedQuestion, frame: pd.DataFrame) -> Counts:
    """Return the same counts from all distances; the causal model is ours."""
    test = audit.estimator(k=K).fit(frame)
    refused = (~test.decisions_).astype(float)
    scores = frame[list(test.attributes_)].to_numpy(dtype=float)
    weight = 1 / np.ptp(scores, axis=0) / scores.shape[1]
    result: Counts = {}
    for do in test.interventions():
        ((name, value),) = do.items()
        group, others = np.flatnonzero(frame[name] != value), np.flatnonzero(frame[name] == value)
        tilde = test.counterfactual(do)[0][list(test.attributes_)].to_numpy(dtype=float) * weight
        x = scores * weight
        result[f"{name} = {value}"] = (
            shared(x[group], x[group], refused[group], own=True),
            shared(x[group], x[others], refused[others]),
            shared(tilde, x[others], refused[others]),
        )
    return result


def shared(centers: Array, points: Array, refused: Array, *, own: bool = False) -> Array:
    """Return (K, C) the number of the k nearest points that were refused; ties share. own: the c-th center is the c-th point, and
    not counted."""
    result = np.empty((len(K), len(centers)))
    for begin in range(0, len(centers), CHUNK):
        part = centers[begin : begin + CHUNK]
        gaps = np.zeros((len(part), len(points)))
        for column in range(points.shape[1]):
            gaps += np.abs(part[:, column : column + 1] - points[:, column])
        gaps = np.round(gaps, DIGITS)
        if own:
            gaps[np.arange(len(part)), np.arange(begin, begin + len(part))] = np.inf
        for row, k in enumerate(K):
            edge = np.partition(gaps, k - 1, axis=1)[:, k - 1 : k]
            nearer, tied = gaps < edge, gaps == edge
            share = (k - nearer.sum(axis=1)) / tied.sum(axis=1)
            result[row, begin : begin + len(part)] = nearer @ refused + share * (tied @ refused)
    return result


def _law_school(audit: PublishedQuestion, rounds: int) -> list[dict[str, Any]]:
    runs: dict[str, Callable[[], Counts]] = {
        "verifair, 1 thread": lambda: ours(audit, audit.frame, 1),
        "verifair, 2 threads": lambda: ours(audit, audit.frame, 2),
        "NumPy, all distances, 1 thread": lambda: brute(audit, audit.frame),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    results: dict[str, Counts] = {}
    for _ in range(rounds):
        for name, work in runs.items():
            started = time.perf_counter()
            results[name] = work()
            seconds[name].append(time.perf_counter() - started)
    base = float(np.median(seconds["verifair, 1 thread"]))
    return [
        {
            "what": f"law school, {len(audit.frame):,} rows, both attributes, four k", "who": name,
            "s, median": round(float(np.median(times)), 2), "s, least": round(min(times), 2),
            "x verifair, 1 thread": round(float(np.median(times)) / base, 1),
            "largest difference of counts": _largest_difference(results[name], results["NumPy, all distances, 1 thread"]),
        }
        for name, times in seconds.items()
    ]


def _many(audit: PublishedQuestion, rounds: int) -> list[dict[str, Any]]:
    keep_freed()
    seconds: dict[str, list[float]] = {name: [] for name in MANY}
    for _ in range(2 * rounds + 1):     # the first one maps memory and is left out
        for name, k in MANY.items():
            started = time.process_time()
            for found in audit.estimator(k=k, threads=1).fit(audit.frame).test().values():
                _counts(found)
            seconds[name].append(time.process_time() - started)
    medians = {name: float(np.median(times[1:])) for name, times in seconds.items()}
    return [
        {
            "what": f"law school, {len(audit.frame):,} rows, both attributes, CPU s", "who": name, "s, median": round(median, 3),
            "s, least": round(min(seconds[name]), 3), "x four k to 500": round(median / medians["four k to 500"], 2),
        }
        for name, median in medians.items()
    ]


def _largest_difference(left: Counts, right: Counts) -> float:
    return max(float(np.abs(a - b).max()) for words in left for a, b in zip(left[words], right[words], strict=True))


def _command(audit: PublishedQuestion, rounds: int) -> list[dict[str, Any]]:
    """Time the same audit on the command line, from the table's file; most of its time is for the files that it writes."""
    with tempfile.TemporaryDirectory() as scratch:
        table, out = Path(scratch) / "law.csv", str(Path(scratch) / "out")
        audit.frame.to_csv(table, index=False)
        command = [sys.executable, "-c", "from verifair.cli import main; main()", "cst", "--data", str(table)]
        command += ["--causal", str(datasets.causal_path("law_school"))]
        variants = {
            "screen": [], "screen, tables, figures": ["--out", out, "--cases", "0"],
            "screen, tables, figures, 10 case files": ["--out", out, "--cases", "5"],
        }
        spent: dict[str, list[float]] = {variant: [] for variant in variants}
        for _ in range(rounds):
            for variant, extra in variants.items():
                started = time.perf_counter()
                subprocess.run([*command, *extra], check=True, stdout=subprocess.DEVNULL)
                spent[variant].append(time.perf_counter() - started)
    return [
        {
            "what": "the same by `verifair cst`, a fresh process", "who": variant,
            "s, median": round(float(np.median(seconds)), 2), "s, least": round(min(seconds), 2),
        }
        for variant, seconds in spent.items()
    ]


def _authors(audit: PublishedQuestion) -> list[dict[str, Any]]:
    """Compare with the authors' code on race, k = 15; ours is timed for four k."""
    frame, k = audit.frame, 15
    started = time.perf_counter()
    test = audit.estimator(do={"nonwhite": 0}, k=(k,), preset="paper", threads=1).fit(frame)
    (result,) = test.test().values()
    counts = {name: int(result.claims(method, k).positive.sum()) for name, method in (("ST", "ST"), ("CSTwo", "CST w/o"))}  # type: ignore[arg-type]
    first = time.perf_counter() - started
    tilde, decisions = test.counterfactual({"nonwhite": 0})
    names, group = list(test.attributes_), (frame["nonwhite"] == 1).to_numpy()
    x = frame[names].to_numpy(dtype=float)
    y, tilde_negative = x.copy(), np.zeros(len(frame), dtype=bool)
    y[group] = tilde[names].to_numpy(dtype=float)
    assert decisions is not None
    tilde_negative[group] = ~decisions
    started = time.perf_counter()
    authors = authors_counts(x, y, group, ~test.decisions_, tilde_negative, k)
    second = time.perf_counter() - started
    case = "law school, race, one k, the authors' procedure"
    return [
        {"what": case, "who": "verifair, preset paper, 1 thread", "s, median": round(first, 2), "x verifair, 1 thread": 1.0},
        {
            "what": case, "who": "one complainant after another", "s, median": round(second, 2),
            "x verifair, 1 thread": round(second / first, 1),
            "largest difference of counts": max(abs(counts[name] - authors[name]) for name in counts),
        },
    ]


def _loops(audit: PublishedQuestion, rows: int = 800) -> list[dict[str, Any]]:
    """Compare with plain Python on gender, for some rows."""
    frame = audit.frame.sample(n=rows, random_state=0).reset_index(drop=True)
    test = audit.estimator(do={"female": 0}, k=K, threads=1)
    started = time.perf_counter()
    (result,) = test.fit(frame).test().values()
    counts = _counts(result)
    first = time.perf_counter() - started
    tilde = test.counterfactual({"female": 0})[0]
    started = time.perf_counter()
    people = people_tested(frame, tilde, {"female": 0}, test.attributes_, (~test.decisions_).tolist(), K)
    second = time.perf_counter() - started
    expected = tuple(np.array([getattr(person, name) for person in people]).T for name in ("control", "standard", "counterfactual"))
    case = f"law school, {rows} rows, gender, four k"
    return [
        {"what": case, "who": "verifair, 1 thread", "s, median": round(first, 3), "x verifair, 1 thread": 1.0},
        {
            "what": case, "who": "the definitions in plain Python", "s, median": round(second, 2),
            "x verifair, 1 thread": round(second / first, 1),
            "largest difference of counts": max(float(np.abs(a - b).max()) for a, b in zip(counts, expected, strict=True)),
        },
    ]
