"""The time by which commands exceed --timeout, on wide and deep networks whose questions cannot be decided in a second.

Each run is a fork of a process with all modules that the command imports on a small network, so that only the work counts,
including the reading of the network. `over` is the wall clock beyond the limit; `CPU over` is the processor's time spent beyond it,
which is the same on an idle machine and does not grow with other work on a busy one. Networks of random weights over Adult's
inputs, named by their layers; with VERIFAIR_DATA also AC-4 and compas-3.

    python -m benchmarks.run deadlines --limits 1 --commands certify kmax       a shorter run
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fairness.networks import random_weights
from benchmarks.shared import Skipped, data_folder, measured
from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.cli.main import main
from verifair.engine.queries import IndividualFairness
from verifair.interop.export import export
from verifair.papers.hyfair.data import fairify_schema
from verifair.training.onnx_writer import save_onnx

HIDDEN = {"1x4": (4,), "3x1000": (1000, 1000, 1000), "4x256": (256,) * 4, "6x100": (100,) * 6}
SMALL, WARM = "1x4", 3.0
"""The network on which a command shows what it imports, and its limit there."""
COMMANDS = {
    "certify": "certify MODEL --protected GROUP",
    "certify epsilon": "certify MODEL --protected GROUP --epsilon 0.3",
    "certify float32": "certify MODEL --protected GROUP --arithmetic float32",
    "certify milp": "certify MODEL --protected GROUP --method milp",
    "certify lp": "certify MODEL --protected GROUP --method lp",
    "certify smt": "certify MODEL --protected GROUP --method smt",
    "certify partition": "certify MODEL --protected GROUP --partition 10 --store OUT/store.sqlite --jobs 1",
    "certify enumerate": "certify MODEL --protected GROUP --enumerate 1000000",
    "certify share": "certify MODEL --protected GROUP --share --store OUT/share.json.gz",
    "certify maximise": "certify MODEL --protected GROUP --maximise",
    "certify logit": "certify MODEL --protected GROUP --maximise --logit",
    "explain": "explain MODEL --data DATA --protected GROUP --lime",
    "explain gap": "explain MODEL --data DATA --protected GROUP --measure gap",
    "kmax": "kmax MODEL --protected GROUP",
    "pba": "pba MODEL --data DATA --protected GROUP --delta 3 --rows 2000 --jobs 1",
    "fgce": "fgce MODEL --data DATA --protected GROUP --robust 3",
    "cec": "cec MODEL --data DATA --protected GROUP --rows 2000",
    "cec certify": "cec MODEL --data DATA --protected GROUP --certify 1 --rows 40",
    "verify": "verify QUERY --network MODEL",
}
"""What is asked. MODEL with its schema, DATA: a table, GROUP: a protected feature, OUT: a folder, QUERY: a VNN-LIB file."""


def run(
    folder: Path, *, limits: Sequence[float] = (1.0, 3.0, 10.0), commands: Sequence[str] = tuple(COMMANDS),
    nets: Sequence[str] = ("3x1000", "4x256", "6x100", "AC-4", "compas-3"),
) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as temp:
        _, *small = next(_models(Path(temp), [SMALL]))
        for words in commands:
            _import(Path(temp), small, words)
        models = list(_models(Path(temp), nets))
        lines = (_line(Path(temp), name, model, words, limit) for name, *model in models for words in commands for limit in limits)
        table = measured("Deadlines: seconds beyond --timeout", (line for line in lines if line), folder)
    worst = table.loc[table["CPU over"].idxmax()]
    print(f"{len(table)} runs; the worst is {worst['command']} of {worst['net']}: {worst['CPU over']:.2f} s of CPU over")
    return table


def _models(folder: Path, nets: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name of each network, its arguments (model and schema), a table and a protected feature."""
    adult = datasets.load("adult")
    adult.frame.to_csv(folder / "adult.csv", index=False)
    for name in nets:
        if name in HIDDEN:
            schema, table, path = adult.schema, folder / "adult.csv", folder / f"{name}.onnx"
            save_onnx(path, random_weights(adult.schema.domain.columns, HIDDEN[name]), {})
        else:
            try:
                data = data_folder()
            except Skipped:
                continue
            family = "adult" if name.startswith("AC") else "compas"
            schema, path, table = fairify_schema(data, family), data / "nets" / f"{name}.onnx", folder / f"{family}.encoded.csv"
            names = [feature.name for feature in schema.features]
            pd.read_csv(data / "encoded" / f"{family}.csv.gz").rename(columns=str)[names].to_csv(table, index=False)
        schema_file = folder / f"{name}.toml"
        schema.save(schema_file)
        group = "Race" if name.startswith("compas") else "sex"
        query = IndividualFairness(model=read_onnx(path), schema=schema, protected=[group])
        with contextlib.suppress(Exception):  # a query that VNN-LIB cannot express
            export(query, folder / name, relaxed=True)
        yield name, f"{path} --schema {schema_file}", str(table), group


def _import(folder: Path, model: Sequence[str], command: str) -> None:
    """Import what a command imports on a small network."""
    modules = folder / "modules.json"
    with tempfile.TemporaryDirectory() as out:
        _timed(_words(folder, SMALL, model, command, out, WARM), WARM, modules)
    for name in json.loads(modules.read_text()):
        with contextlib.suppress(Exception):  # a module that can only be imported by another one
            importlib.import_module(name)


def _words(folder: Path, name: str, model: Sequence[str], command: str, out: str, limit: float) -> list[str]:
    query = next(iter(sorted((folder / name).glob("2.0/vnnlib/*.vnnlib"))), None)
    words = COMMANDS[command]
    words = words.replace("QUERY", str(query)).replace("MODEL", model[0] if "QUERY" not in words else model[0].split()[0])
    words = words.replace("DATA", model[1]).replace("OUT", out).replace("GROUP", model[2])
    return [*words.split(), "--timeout", str(limit)]


def _line(folder: Path, name: str, model: Sequence[str], command: str, limit: float) -> dict[str, Any] | None:
    """Time one run. The parent reads the child's CPU time when the limit is over, and again when it has ended."""
    with tempfile.TemporaryDirectory() as out:
        words = _words(folder, name, model, command, out, limit)
        if "None" in words:  # VNN-LIB cannot express it
            return None
        output, code, wall, cpu, at_limit = _timed(words, limit)
    if code:
        print(f"verifair {' '.join(words)}: exit code {code}", output[-500:].strip(), sep="\n")
    return {
        "net": name, "command": command, "limit": limit, "wall": wall, "over": max(wall - limit, 0.0), "CPU over": cpu - at_limit,
        "exit": code,
    }


def _timed(words: Sequence[str], limit: float, modules: Path | None = None) -> tuple[str, int, float, float, float]:
    """Return a command's output, its exit code, its seconds by the clock and of CPU, and its CPU seconds when the limit was over.

    modules: file for the names of all modules that it imported."""
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            sys.argv = ["verifair", *words]
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                main()
            except SystemExit as exit_error:
                code = int(exit_error.code or 0)
            else:
                code = 0
            if modules is not None:
                modules.write_text(json.dumps(list(sys.modules)))
            sys.stdout.flush()
            os._exit(code)
        started, at_limit = time.monotonic(), None
        while True:
            pid, status, usage = os.wait4(child, os.WNOHANG)
            elapsed = time.monotonic() - started
            if pid:
                log.seek(0)
                cpu = usage.ru_utime + usage.ru_stime
                code, cpu_at_limit = os.waitstatus_to_exitcode(status), cpu if at_limit is None else at_limit
                return log.read().decode(errors="replace"), code, elapsed, cpu, cpu_at_limit
            if at_limit is None and elapsed >= limit:
                ticks = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                at_limit = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
            time.sleep(0.005)
