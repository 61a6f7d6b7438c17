"""Another verifier as one process for each query, by VNN-COMP's conventions: files in, the first line of a results file out.

The command is words with placeholders: {onnx}, {vnnlib} (version 1.0 over the product network) or {vnnlib2} (2.0, where two
networks are declared), {timeout} seconds and {results}. Results start with sat, unsat, unknown, timeout or error; an assignment
follows a sat.
It leads a process group and ends with the run; processes that it leaves running are killed.

Sound? `unsat` is its claim. A `sat` counts once its assignment is confirmed exactly, and for our own questions once the nearest row
violates the goal; an assignment that misses its query by more than VNN-COMP's tolerance is "wrong-witness".
Complete? no: boxes are relaxed to reals, so a `sat` that rounding loses is UNKNOWN, "witness-rejected".
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from encoders.model import Link
from encoders.network import Layer, Network
from encoders.onnx.product_network import network_model
from encoders.vnnlib.reader import VnnlibQuery, read_vnnlib
from solvers.outcome import Budget
from verifair.bench.processes import watch
from verifair.bench.questions import DecisionQuestion, FileQuestion, Question
from verifair.bench.records import WRONG_WITNESS, Reply, unknown
from verifair.errors import QueryError
from verifair.interop.decide import networks_of
from verifair.interop.export import question_files
from verifair.interop.witness import confirmed, read_inputs

WORDS = {"sat": "sat", "violated": "sat", "unsat": "unsat", "holds": "unsat", "unknown": "unknown", "timeout": "timeout"}
"""First word of a results file, to the first comma -> what it says; `violated` and `holds` are VNN-COMP's words of 2021. Anything
else is an error."""
STARTING = 30.0
"""Seconds that a start may take."""
GRACE = 2.0
"""Seconds that a process may take beyond its time before it is killed."""
REJECTED, NO_WITNESS = "witness-rejected", "no-witness"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
TRIVIAL = "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (>= X_0 0.0))\n(assert (<= X_0 1.0))\n"
TRIVIAL += "(assert (<= Y_0 -1.0))\n"
LONGEST = 4 << 20
"""Bytes of a results file that are read."""


@dataclass(frozen=True, kw_only=True)
class ProcessRun:
    """The output of one process, and the resources of it and all that it started.   peak_mb: the largest sum of resident sets
    seen."""

    status: str
    text: str
    seconds: float
    cpu_seconds: float
    peak_mb: float | None
    note: str


@dataclass(frozen=True, kw_only=True)
class Tool:
    """words: the command.   environment: variables set in addition.   startup: seconds that it takes to start, which
    are subtracted from every measured time as VNN-COMP does.   startup_cpu: those of the processor, subtracted from none here.
    here: it runs in the current folder, of which its command may name files; else in that of its query."""

    name: str
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    startup: float = 0.0
    startup_cpu: float = 0.0
    here: bool = False

    @property
    def version(self) -> str:
        """A fingerprint of the command: times of different commands are not comparable."""
        return hashlib.sha256(repr((self.words, self.environment)).encode()).hexdigest()[:8]

    @property
    def two(self) -> bool:
        """True if it takes VNN-LIB 2.0 over two networks."""
        return any("{vnnlib2}" in word for word in self.words)

    def takes(self, question: Question) -> bool:
        """Return True if the question can be written as a file for it."""
        if isinstance(question, FileQuestion):
            return (read_vnnlib(question.query).version == "2.0") == self.two
        network = question.problem.network if isinstance(question, DecisionQuestion) else None
        return network is not None and network.piecewise_linear and not network.of_trees

    def queries(self, question: Question) -> int:
        """Return the largest number of processes for a question."""
        return len(question.problem.batch) * len(question.problem.goals) if isinstance(question, DecisionQuestion) else 1

    def measured(self) -> Tool:
        """Return the tool with the least of two start-ups, measured on a query of one neuron."""
        layer = Layer(weight=np.ones((1, 1)), bias=np.zeros(1), slope=np.zeros(1))
        network = Network(layers=(layer, replace(layer, slope=np.ones(1))), link=Link.IDENTITY, source_sha256="")
        with TemporaryDirectory() as folder:
            model, query = Path(folder, "trivial.onnx"), Path(folder, "trivial.vnnlib")
            model.write_bytes(network_model(network, {}).SerializeToString())
            query.write_text(TRIVIAL, encoding="utf-8")
            if self.two:
                return self  # a trivial query of two networks is not worth another case here
            first = self.ask(model, query, STARTING, Path(folder))
            if first.status != "unsat":
                return self
            runs = first, self.ask(model, query, STARTING, Path(folder))
            seconds, cpu = min(run.seconds for run in runs), min(run.cpu_seconds for run in runs)
            return replace(self, startup=seconds, startup_cpu=cpu)

    def ask(self, model: Path, query: Path, seconds: float, folder: Path) -> ProcessRun:
        """Run it once. It is killed GRACE seconds after its time limit plus start-up."""
        results, log = folder / "results.txt", folder / "log.txt"
        results.unlink(missing_ok=True)
        values = {"onnx": model, "vnnlib": query, "vnnlib2": query, "timeout": f"{max(seconds, 0.001):.3f}", "results": results}
        words = [filled(word, values) for word in self.words]
        environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), **dict(self.environment)}
        started = time.perf_counter()
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=None if self.here else folder,
                    env=environment, process_group=None if sys.platform == "win32" else 0,
                )
            except OSError as error:
                return ProcessRun(status="error", text="", seconds=0.0, cpu_seconds=0.0, peak_mb=None, note=str(error))
            late, cpu, peak = watch(process, started + seconds + self.startup + GRACE)
        elapsed = time.perf_counter() - started
        text = results.read_bytes()[:LONGEST].decode("utf-8", "replace") if results.is_file() else ""
        first, _, rest = text.partition("\n")
        status = WORDS.get(first.partition(",")[0].strip().lower(), "error")
        note = ""
        if late and status not in ("sat", "unsat"):
            status, note = "timeout", "killed: it did not stop at its limit"
        elif status == "error":
            lines = log.read_bytes()[-LONGEST:].decode("utf-8", "replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            reason = f"its results say {first.strip()[:40]!r}" if text.strip() else "it wrote no results"
            note = f"{reason}, exit code {process.returncode}: {last[:200]}"
        return ProcessRun(status=status, text=rest, seconds=elapsed, cpu_seconds=cpu, peak_mb=peak, note=note)

    def decide(self, question: Question, budget: Budget) -> Reply:
        """Run all queries of a question, one process each; the first counterexample ends it."""
        started = time.perf_counter()
        runs: list[ProcessRun] = []
        undecided: list[tuple[str, str]] = []
        with TemporaryDirectory(prefix="verifair-bench-") as name:
            folder = Path(name)
            for q, g, model, query in _files(question, folder, self.two):
                remaining = budget.seconds - (time.perf_counter() - started - len(runs) * self.startup)
                if remaining <= 0:
                    undecided.append(("time", ""))
                    break
                run = self.ask(model, query, remaining, folder)
                runs.append(run)
                reply = _checked_reply(question, q, g, run, query, model)
                if reply.decided and reply.status == "violated":
                    return self._with(reply, runs)
                if not reply.decided:
                    undecided.append((reply.reason or "", reply.note))
                    if reply.reason == "time":
                        break
        if undecided:
            worst = next((entry for entry in undecided if entry[0] == WRONG_WITNESS), undecided[0])
            return self._with(unknown(*worst), runs)
        return self._with(Reply(status="proved", reason=None, trust="claimed"), runs)

    def _with(self, reply: Reply, runs: Sequence[ProcessRun]) -> Reply:
        peaks = [run.peak_mb for run in runs if run.peak_mb is not None]
        return replace(
            reply, engine=self.name, version=self.version, solve_seconds=None, cpu_seconds=sum(run.cpu_seconds for run in runs),
            peak_mb=max(peaks, default=None), startup_seconds=len(runs) * self.startup,
        )


def _files(question: Question, folder: Path, two: bool) -> Iterator[tuple[int, int, Path, Path]]:
    """Yield (box, goal, network, query) of each query of a question."""
    if isinstance(question, FileQuestion):
        query = folder / "query.vnnlib"  # never compressed
        query.write_text(question.text(), encoding="utf-8")
        yield 0, 0, question.networks[0][1], query
        return
    assert isinstance(question, DecisionQuestion)
    for q in range(len(question.problem.batch)):
        for g in range(len(question.problem.goals)):
            yield q, g, *question_files(question.problem, q, g, folder, two=two)


def _checked_reply(question: Question, q: int, g: int, run: ProcessRun, path: Path, model: Path) -> Reply:
    """Return the reply for an answer to one query, after checking its counterexample."""
    if run.status == "unsat":
        return Reply(status="proved", reason=None, trust="claimed")
    if run.status != "sat":
        return unknown({"timeout": "time", "unknown": "unknown"}.get(run.status, "solver-error"), run.note)
    exact = isinstance(question, FileQuestion)
    if not run.text.strip():
        if exact:
            return Reply(status="violated", reason=None, trust="claimed", note="no counterexample stands behind its sat")
        return unknown(NO_WITNESS, "no counterexample stands behind its sat")
    query = read_vnnlib(path)
    inputs = read_inputs(query, run.text)
    if inputs is None:
        return unknown(WRONG_WITNESS, "its counterexample names no number for some input")
    if isinstance(question, DecisionQuestion):
        row = question.nearest(q, inputs[0][: question.problem.domain.columns].astype(np.float64))
        is_refuted, value = question.refuted(q, g, row)
        if is_refuted:
            return Reply(status="violated", reason=None, trust="exact", upper=value)
    networks = question.read()[1] if isinstance(question, FileQuestion) else networks_of(query, _declared(query, model))
    witness, is_near = confirmed(query, networks, inputs)
    if witness is not None and exact:
        return Reply(status="violated", reason=None, trust="exact")
    if is_near:
        return unknown(REJECTED, "its counterexample is none of exact arithmetic" if exact else "no row is near its counterexample")
    return unknown(WRONG_WITNESS, "its counterexample does not meet the query")


def _declared(query: VnnlibQuery, model: Path) -> dict[str, Path]:
    return {declared.name: model for declared in query.networks if declared.equal_to is None}


def filled(word: str, values: Mapping[str, object]) -> str:
    """Return a word with its placeholders filled; other braces are kept."""
    return re.sub(r"\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), word)


def tool(text: str, homes: Mapping[str, Path]) -> Tool:
    """Return the tool of an option: NAME="command ...", or the name of a known one, whose checkout is in `homes`.

    Raises QueryError that says what is missing.
    """
    name, equals, command = (part.strip() for part in text.partition("="))
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        form = "NAME='command {onnx} {vnnlib} {timeout} {results}'"
        raise QueryError(f"--competitor {text}: expected {form} or a ready name")
    known = ready()
    environment: Mapping[str, str] = {}
    if not equals:
        if name not in known:
            raise QueryError(f"--competitor {name}: no command is ready for it; there are some for {', '.join(sorted(known))}")
        command, environment = known[name]["command"], known[name].get("environment", {})
    home = homes.get(name)
    if home is None and any("{home}" in text for text in (command, *environment.values())):
        raise QueryError(f"--competitor {name}: say where its checkout is, --competitor-home {name}=PATH")
    values = {"home": home.resolve(), "python": _python(home)} if home is not None else {"python": sys.executable}
    try:
        words = tuple(filled(word, values) for word in shlex.split(command))
    except ValueError as error:
        raise QueryError(f"--competitor {name}: its command cannot be read ({error})") from None
    whole = " ".join(words)
    if "{onnx}" not in whole or "{results}" not in whole or ("{vnnlib}" in whole) == ("{vnnlib2}" in whole):
        raise QueryError(f"--competitor {name}: its command needs {{onnx}}, {{results}}, and one of {{vnnlib}} and {{vnnlib2}}")
    settings = tuple((key, filled(value, values)) for key, value in sorted(environment.items()))
    return Tool(name=name, words=words, environment=settings, here=bool(equals))


def ready() -> dict[str, Any]:
    """Return the known verifiers: name -> `command`, `environment`, `about`."""
    return tomllib.loads(files("verifair.bench.peers").joinpath("ready.toml").read_text(encoding="utf-8"))


def _python(home: Path) -> Path:
    """Return the Python of a checkout: that of a virtual environment in it, else the current one."""
    candidates = (home.resolve() / place / "bin" / "python" for place in (".venv", "venv"))
    return next((path for path in candidates if path.exists()), Path(sys.executable))
