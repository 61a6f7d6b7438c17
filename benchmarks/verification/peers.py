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
    home_of = {name: Path(home).expanduser() for name, _, home in (text.partition("=") for text in homes)}
    tools = [Competitor(method="auto"), *processes([tool(text, home_of).measured() for text in competitors], [])]
    lines = measured("Peers: answers and CPU seconds", _lines(path.parent, entries, tools, limit, patience), folder)
    for name, answers in lines.groupby("query"):
        if {"sat", "unsat"} <= set(answers["answer"]):
            print(f"CONTRADICTION: {name}", *(f"{answer.tool}: {answer.answer}" for answer in answers.itertuples()), sep="\n   ")
    return show("Peers by family: decided, and PAR-2 in CPU seconds", by_family(lines, limit), folder)


def by_family(lines: pd.DataFrame, limit: float) -> pd.DataFrame:
    """Return queries decided and PAR-2 of every tool, a line for each family."""
    solved = lines["answer"].isin(DECIDED.values()) & (lines["cpu s"] <= limit)
    scored = lines.assign(solved=solved, score=lines["cpu s"].where(solved, 2 * limit))
    lines_out = []
    for family, part in scored.groupby("family", sort=False):
        line: dict[str, Any] = {"family": family, "n": part["query"].nunique()}
        for name, group in part.groupby("tool", sort=False):
            line |= {f"{name} decided": int(group["solved"].sum()), f"{name} PAR-2": float(group["score"].mean())}
        lines_out.append(line)
    return pd.DataFrame(lines_out)


def _lines(
    root: Path, entries: Sequence[dict[str, Any]], tools: Sequence[Competitor], limit: float, patience: float
) -> Iterator[dict[str, Any]]:
    for n, entry in enumerate(entries):
        family = entry.get("family") or _family(entry["name"], len(read_onnx(root / entry["network"]).hidden))
        for k in range(len(tools)):
            rival = tools[(n + k) % len(tools)]
            query, network = ("q1", "product") if rival.tool is not None else ("q2", "network")
            result = measure(rival, question(root / entry[query], root / entry[network]), seconds=limit * patience, seed=0)
            reply = result.reply
            cpu = max((reply.cpu_seconds or result.total_seconds) - (0.0 if rival.tool is None else rival.tool.startup_cpu), 0.0)
            yield {
                "query": entry["name"], "family": family, "tool": rival.method if rival.tool is not None else "verifair",
                "answer": DECIDED.get(reply.status, reply.reason), "cpu s": cpu, "note": reply.note,
            }


def question(query: Path, network: Path) -> FileQuestion:
    """Return the question of a VNN-LIB file whose networks are all the same file."""
    return FileQuestion.of(query, {declared.name: network for declared in read_vnnlib(query).networks if declared.equal_to is None})


def _family(name: str, layers: int) -> str:
    return f"{'flips' if '-flip' in name else 'gaps'}, {'deep' if layers >= DEEP else 'at most two layers'}"
