"""Marabou on files: its own readers of ONNX and VNN-LIB 1.0, and its own solver, in a separate process.

    python -m benchmarks.interop.marabou_files onnx/product.onnx vnnlib/0000-fall.vnnlib 20

prints one line of JSON: the answer (sat, unsat, TIMEOUT, ...), the inputs of a sat, the seconds. It imports nothing of verifair.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

GRACE = 20.0
"""Seconds beyond its own limit until it is stopped from outside."""
SPLITTING = "relu-violation"
"""Of its strategies the one that decides most twins; its own choice splits inputs."""


@dataclass(frozen=True, kw_only=True)
class MarabouAnswer:
    """answer: sat, unsat, timeout, or error.   inputs: of a sat, in floats.   detail: of an error."""

    answer: str
    inputs: tuple[float, ...] | None
    seconds: float
    detail: str = ""


def installed() -> bool:
    return find_spec("maraboupy") is not None


def ask(network: Path, query: Path, seconds: int) -> MarabouAnswer:
    """Return Marabou's answer, also if its process fails."""
    command = [sys.executable, "-m", "benchmarks.interop.marabou_files", str(network), str(query), str(seconds)]
    started = time.perf_counter()
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE, check=False)
    except subprocess.TimeoutExpired:
        return MarabouAnswer(answer="timeout", inputs=None, seconds=time.perf_counter() - started, detail="stopped from outside")
    lines = run.stdout.strip().splitlines()
    if run.returncode != 0 or not lines:
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        detail = f"exit {run.returncode}: {last}"
        return MarabouAnswer(answer="error", inputs=None, seconds=time.perf_counter() - started, detail=detail)
    answer: dict[str, Any] = json.loads(lines[-1])
    status = {"sat": "sat", "unsat": "unsat", "TIMEOUT": "timeout"}.get(answer["said"], "error")
    inputs = tuple(answer["inputs"]) if status == "sat" else None
    detail = answer["said"] if status == "error" else ""
    return MarabouAnswer(answer=status, inputs=inputs, seconds=answer["seconds"], detail=detail)


def main() -> None:
    network, query, seconds = sys.argv[1:]
    from maraboupy import MarabouCore
    from maraboupy.MarabouNetworkONNX import MarabouNetworkONNX

    network_read = MarabouNetworkONNX(network)
    loaded = network_read.getInputQuery()
    MarabouCore.loadProperty(loaded, query)
    options = MarabouCore.Options()
    options._verbosity = 0
    options._splittingStrategy = SPLITTING
    options._timeoutInSeconds = int(seconds)
    started = time.perf_counter()
    status, values, _ = MarabouCore.solve(loaded, options, "")
    elapsed = time.perf_counter() - started
    inputs = [values[loaded.inputVariableByIndex(i)] for i in range(loaded.getNumInputVariables())] if status == "sat" else []
    print(json.dumps({"said": status, "inputs": inputs, "seconds": elapsed}))


if __name__ == "__main__":
    main()
