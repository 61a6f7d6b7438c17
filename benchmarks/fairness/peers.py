"""Comparison with other verifiers on the same queries: number decided in each family, and CPU seconds.

Verifair (VNN-LIB 2.0, including the reading of files) and every competitor (VNN-LIB 1.0 over the product network) take turns on
each query, each in its own process with one thread. CPU seconds count, because the machine may have other load: a verifier that
needs more than the limit has not decided, and the clock allows `patience` times as much. A competitor's CPU seconds for starting,
measured on a query of one neuron, are subtracted. PAR-2 is the mean of the seconds, an undecided query counting twice the limit.

    python -m benchmarks.run peers --competitors abcrown nnenum --homes abcrown=~/abcrown nnenum=~/nnenum
    python -m benchmarks.run peers --index runs/bench/depth/index.json --only '*4x256*'       other queries, some of them
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.shared import data_folder, measured, show
from encoders.onnx.reader import read_onnx
from encoders.vnnlib.reader import read_vnnlib
from verifair.bench.competitors import Competitor, processes
from verifair.bench.peers.process import tool
from verifair.bench.questions import FileQuestion
from verifair.bench.worker import measure

DEEP = 3
"""Hidden layers from which on a network counts as deep."""
DECIDED = {"proved": "unsat", "violated": "sat"}


def run(
    folder: Path, *, index: str = "", only: Sequence[str] = (), limit: float = 10.0, patience: float = 1.0,
    competitors: Sequence[str] = (), homes: Sequence[str] = (),
) -> pd.DataFrame:
    path = Path(index) if index else data_folder() / "race" / "index.json"
    listed = json.loads(path.read_text(encoding="utf-8"))
    entries = [entry for entry in listed if not only or any(fnmatch(entry["name"], glob) for glob in only)]
    places = {name: Path(home).expanduser() for name, _, home in (one.partition("=") for one in homes)}
    asked = [Competitor(method="auto"), *processes([tool(one, places).measured() for one in competitors], [])]
    lines = measured("Peers: answers and CPU seconds", _lines(path.parent, entries, asked, limit, patience), folder)
    for name, answers in lines.groupby("query"):
        if {"sat", "unsat"} <= set(answers["answer"]):
            print(f"CONTRADICTION: {name}", *(f"{one.tool}: {one.answer}" for one in answers.itertuples()), sep="\n   ")
    return show("Peers by family: decided, and PAR-2 in CPU seconds", by_family(lines, limit), folder)


def by_family(lines: pd.DataFrame, limit: float) -> pd.DataFrame:
    """Return queries decided and PAR-2 of every tool, a line for each family."""
    solved = lines["answer"].isin(DECIDED.values()) & (lines["cpu s"] <= limit)
    scored = lines.assign(solved=solved, score=lines["cpu s"].where(solved, 2 * limit))
    out = []
    for family, part in scored.groupby("family", sort=False):
        line: dict[str, Any] = {"family": family, "n": part["query"].nunique()}
        for name, own in part.groupby("tool", sort=False):
            line |= {f"{name} decided": int(own["solved"].sum()), f"{name} PAR-2": float(own["score"].mean())}
        out.append(line)
    return pd.DataFrame(out)


def _lines(
    root: Path, entries: Sequence[dict[str, Any]], asked: Sequence[Competitor], limit: float, patience: float
) -> Iterator[dict[str, Any]]:
    for turn, entry in enumerate(entries):
        family = entry.get("family") or _family(entry["name"], len(read_onnx(root / entry["network"]).hidden))
        for at in range(len(asked)):
            one = asked[(turn + at) % len(asked)]
            query, network = ("q1", "product") if one.tool is not None else ("q2", "network")
            found = measure(one, question(root / entry[query], root / entry[network]), seconds=limit * patience, seed=0)
            reply = found.answered
            cpu = max((reply.cpu_seconds or found.total_seconds) - (0.0 if one.tool is None else one.tool.startup_cpu), 0.0)
            yield {
                "query": entry["name"], "family": family, "tool": one.method if one.tool is not None else "verifair",
                "answer": DECIDED.get(reply.status, reply.reason), "cpu s": cpu, "note": reply.note,
            }


def question(query: Path, network: Path) -> FileQuestion:
    """Return the question of a VNN-LIB file whose networks are all the same file."""
    return FileQuestion.of(query, {one.name: network for one in read_vnnlib(query).networks if one.equal_to is None})


def _family(name: str, layers: int) -> str:
    return f"{'flips' if '-flip' in name else 'gaps'}, {'deep' if layers >= DEEP else 'at most two layers'}"
