"""Kills at random moments of random verbs, then the same command again: are the answers those of an undisturbed run?

pba, certify --partition, certify --share, audit, bench, check, cec, cst and fgce of networks; pba and certify --partition of a
forest and of a calibrated one (a mean of functions of five). With one process, with two, and on a cluster of three workers, where
the command or a worker is killed (kill -9; the worker is replaced and the command goes on). The command gets kill -9, SIGTERM or
SIGINT. The kills of a command are spread over its progress, each at a random point of its part of it: the work that is kept or,
for commands that keep little, their CPU time, in twentieths of the whole. Every fifth comes while the command starts. After each:
no process is left whose environment has the run's mark, there is no traceback, and the exit code is the one in the docs (130, -9
for kill -9, 0 where the command had finished). Only times are excluded from the comparison; of `certify --share`, whose tree
depends on where it was stopped, the proofs have to be accepted by `verifair check`.

    python -m benchmarks.run kills --kills 100 --seed 0
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import psutil
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import verifair as vf
from benchmarks.machines.local_cluster import LocalCluster, local_cluster
from benchmarks.shared import measured
from verifair import datasets

RUN = [sys.executable, "-m", "verifair"]
LIMIT = 3600.0
"""Seconds a command may take, on however busy a machine."""
START_UP = 4.0
"""Seconds within which a kill comes that is to hit a command as it starts."""
CHILDREN = 20.0
"""Seconds after which a process of a command that has ended is an orphan."""
MARK = "VERIFAIR_KILLS"
"""Variable of the environment that a command hands down to all of its processes: the number of its run."""
PARTS_OF_CPU = 20
TIMES = ("seconds", "work_seconds", "started", "sha256", "command", "file", "first_seconds")
"""Of answers; the digest and command of a file of proofs name it, and gzip writes the time into it."""
ONE, TWO, COMMAND, WORKER = "1 process", "2 processes", "cluster, command", "cluster, worker"


@dataclass(frozen=True, kw_only=True)
class KilledVerb:
    """A command, run in a folder of its own.

    begun: files without which it cannot be resumed; empty: it starts again.   kept: returns the amount of kept work; None: its
    progress is its CPU time, in twentieths of an undisturbed run.
    answer: returns what must be the same in the end.   places: where it is run.   prepare(folder, undisturbed): make the files it
    reads.
    """

    name: str
    command: tuple[str, ...]
    begun: str
    kept: Callable[[Path], int] | None
    answer: Callable[[Path], Any]
    places: tuple[str, ...] = (ONE, TWO, COMMAND, WORKER)
    prepare: Callable[[Path, Path], object] = lambda folder, undisturbed: None


def rows(store: Path, table: str) -> list[tuple[Any, ...]]:
    """Return all columns except the seconds, in an order that does not depend on when a line was written."""
    with sqlite3.connect(store) as connection:
        columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})") if name not in TIMES]
        chosen = ", ".join(f'"{name}"' for name in columns)
        return sorted(connection.execute(f"SELECT {chosen} FROM {table}").fetchall(), key=repr)


def kept(store: Path, table: str) -> int:
    """Return the number of lines of a store that another process may be about to create."""
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def _decided(folder: Path) -> int:
    return kept(folder / "verdicts.sqlite", "verdicts")


def untimed(value: Any) -> Any:
    """Return an answer without its times."""
    if isinstance(value, dict):
        return {key: untimed(item) for key, item in value.items() if key not in TIMES}
    return [untimed(item) for item in value] if isinstance(value, list) else value


def _json(path: Path) -> Any:
    return untimed(json.loads(path.read_text(encoding="utf-8")))


def _pba(folder: Path) -> Any:
    names = ("verdicts.jsonl", "rates.csv", "shares.csv", "certificate.json.gz", "certificate-robustness.json.gz", "outcomes.png")
    table = re.sub(r"[\d.]+ s:", "", (folder / "table.txt").read_text(encoding="utf-8"))
    files = [(folder / name).read_bytes() for name in names]
    return files, table, rows(folder / "verdicts.sqlite", "verdicts"), _json(folder / "answer.json")


def _partition(folder: Path) -> Any:
    return rows(folder / "parts.sqlite", "chunks"), _json(folder / "answer.json")


def _share(folder: Path) -> Any:
    """Return whether its proofs are accepted, and whether the largest number of cells was cut."""
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    check = subprocess.run([*RUN, "check", "share.json.gz", "--demo", "german"], cwd=folder, capture_output=True, timeout=LIMIT)
    return answer["reason"], check.returncode


def _audit(folder: Path) -> Any:
    return _json(folder / "report.json")["sections"]


def write_audit(folder: Path, *, people: int, settings: str, analyses: str) -> None:
    """Write audit.toml and what it names: the shipped network, its schema, and the first people of German Credit."""
    shipped = datasets.network_path("german").parent
    for name in ("german.onnx", "german.toml"):
        (folder / name).write_bytes((shipped / name).read_bytes())
    datasets.german().frame.head(people).to_csv(folder / "rows.csv", index=False)
    files = '[model]\nfile = "german.onnx"\n[schema]\nfile = "german.toml"\n[data]\nfile = "rows.csv"\n'
    (folder / "audit.toml").write_text(f'{settings}\n{files}[sensitive]\nfeatures = ["sex"]\n{analyses}\n')


def _prepare_audit(folder: Path, undisturbed: Path) -> None:
    write_audit(
        folder, people=60, settings='title = "Killed"\ntimeout = 3000\neffort = 60',
        analyses="[analyses.pba]\ndelta = [1, 2, 3, 4]\n[analyses.certify]\nmaximise = true\neffort = 5",
    )


def _prepare_model(kind: str, folder: Path, undisturbed: Path) -> None:
    """Write model.onnx, its schema and rows.csv, the people of German Credit: a forest, or a calibrated one."""
    fitted = undisturbed / kind
    if not fitted.exists():
        fitted.mkdir()
        _fit(kind, fitted)
    shutil.copytree(fitted, folder, dirs_exist_ok=True)


def _fit(kind: str, folder: Path) -> None:
    frame, schema = datasets.german().frame, datasets.german().schema
    words = [feature.name for feature in schema.features if not feature.numeric]
    columns = make_column_transformer((OneHotEncoder(), words), remainder="passthrough")
    if kind == "forest":
        model: Any = RandomForestClassifier(50, max_depth=6, random_state=0)
    else:
        model = CalibratedClassifierCV(RandomForestClassifier(10, max_depth=4, random_state=0), method="isotonic", cv=5)
    people = frame[[feature.name for feature in schema.features]]
    network = vf.read(make_pipeline(columns, model).fit(people, frame["credit"]), people)
    vf.save_onnx(network, folder / "model.onnx")
    vf.Schema.infer(frame, target="credit", positive="good", protected=["sex"], model=network).save(folder / "model.toml")
    frame.to_csv(folder / "rows.csv", index=False)


def _bench(folder: Path) -> Any:
    """Return the decisions of each competitor; times and time-outs differ from run to run."""
    lines = (json.loads(line) for line in (folder / "b" / "runs.jsonl").read_text(encoding="utf-8").splitlines())
    decided = {(line["case"], line["method"], line["repeat"]) for line in lines if "case" in line}
    return sorted(decided), _json(folder / "answer.json")["disagreements"]


def _benched(folder: Path) -> int:
    file = folder / "b" / "runs.jsonl"
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def _check(folder: Path) -> Any:
    return _json(folder / "answer.json")


def _computed(folder: Path) -> Any:
    """Return the answer and its tables; the store of its parts must have been deleted."""
    tables = {file.name: file.read_bytes() for file in folder.glob("*.csv")}
    return _check(folder), tables, (folder / "parts.sqlite").exists()


BENCH = ("--methods", "auto", "--repeats", "1", "--timeout", "2", "--patience", "0")
GERMAN, ADULT = ("--demo", "german", "--protected", "sex"), ("--demo", "adult")
DELTAS = tuple(word for k in range(1, 9) for word in ("--delta", str(k)))
MODEL = ("model.onnx", "--schema", "model.toml", "--protected", "sex")
BOXES = ("--partition", "10", "--timeout", "3000", "--box", "duration=4:24")
PARTS = ("certify", *GERMAN, "--protected", "age", "--partition", "10", "--timeout", "3000")
CASES = (
    KilledVerb(
        name="pba", command=("pba", *GERMAN, *DELTAS, "--limit", "400", "--out", ".", "--json", "answer.json"),
        begun="verdicts.sqlite", kept=_decided, answer=_pba,
    ),
    KilledVerb(
        name="partition", command=(*PARTS, "--store", "parts.sqlite", "--json", "answer.json"),
        begun="parts.sqlite", kept=lambda folder: kept(folder / "parts.sqlite", "chunks"), answer=_partition,
    ),
    KilledVerb(
        name="share",
        command=("certify", *GERMAN, "--share", "--nodes", "4000", "--store", "share.json.gz", "--json", "answer.json"),
        begun="share.json.gz", kept=None, answer=_share,
    ),
    KilledVerb(
        name="audit", command=("audit", "audit.toml", "--out", "report.html"), begun="report.files.part/resume", kept=None,
        answer=_audit, prepare=_prepare_audit,
    ),
    KilledVerb(
        name="bench", command=("bench", "--cases", "pba-german/*", *BENCH, "--out", "b", "--json", "answer.json"),
        begun="b/runs.jsonl", kept=_benched, answer=_bench,
    ),
    KilledVerb(
        name="check", command=("check", "parts.sqlite", "--demo", "german", "--json", "answer.json"), begun="",
        kept=None, answer=_check,
        prepare=lambda folder, undisturbed: shutil.copy(undisturbed / "partition" / "parts.sqlite", folder),
    ),
    *(
        KilledVerb(
            name=command[0], command=(*command, "--out", ".", "--json", "answer.json"), begun="parts.sqlite", kept=None,
            answer=_computed,
        )
        for command in (("cec", *ADULT, "--protected", "sex"), ("cst", *ADULT, "--do", "sex=Male", "--chance", "2"))
    ),
    *(
        KilledVerb(
            name=f"{name} of a {kind}", command=(*command, "--json", "answer.json"), begun=begun, kept=of_kept, answer=answer,
            prepare=partial(_prepare_model, kind),
        )
        for kind in ("forest", "mean")
        for name, command, begun, of_kept, answer in (
            ("pba", ("pba", *MODEL, "--data", "rows.csv", *DELTAS, "--out", "."), "verdicts.sqlite", _decided, _pba),
            ("partition", ("certify", *MODEL, *BOXES, "--store", "parts.sqlite"), "parts.sqlite", None, _partition),
        )
    ),
    KilledVerb(
        name="fgce", command=("fgce", *GERMAN, "--k", "20", "--json", "answer.json"), begun="", kept=None, answer=_check
    ),
)


@dataclass(kw_only=True)
class KillCell:
    """Kills of one command in one place.

    kills: their number.   total: the progress of an undisturbed run.   states: the progress at each kill.   signals: of each.
    problems: all failures.
    """

    case: KilledVerb
    place: str
    kills: int = 0
    total: float = 0
    expected: Any = None
    states: list[int] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    runs: int = 0
    orphans: int = 0
    problems: list[str] = field(default_factory=list)

    def progress(self, folder: Path, process: int) -> float:
        """Return the amount of kept work, or the CPU seconds of a process and its children."""
        return sum(map(_cpu, _processes(process))) if self.case.kept is None else self.case.kept(folder)

    def state(self, progress: float) -> int:
        return int(progress if self.case.kept else PARTS_OF_CPU * progress / self.total)


def run(
    folder: Path, *, kills: int = 100, seed: int = 0, cases: Sequence[str] = tuple(case.name for case in CASES),
    places: Sequence[str] = ("1", "2", "command", "worker"),
) -> pd.DataFrame:
    """Run the kills.   cases: names of `CASES`.   places: with one process, with two, on a cluster whose command, or whose workers
    are killed."""
    with tempfile.TemporaryDirectory() as scratch:
        lines = _lines(Path(scratch), kills, seed, [case for case in CASES if case.name in cases], places)
        table = measured(f"{kills} kills and what came after, seed {seed}", lines, folder)
    states = {(line["command"], state) for _, line in table.iterrows() for state in line["states"].split()}
    distinct = f"{table['distinct states'].sum()} distinct states ({len(states)} where the place does not count)"
    right = f"{(table['wrong'] == 'nothing').sum()} of {len(table)} lines with nothing wrong"
    print(f"{table['kills'].sum()} kills, {distinct}, {table['orphans'].sum()} orphans, {right}")
    return table


def _lines(scratch: Path, kills: int, seed: int, cases: Sequence[KilledVerb], places: Sequence[str]) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    cells = [KillCell(case=case, place=place) for case in cases for place in case.places if any(text in place for text in places)]
    cpu: dict[str, float] = {}
    for case in CASES:
        if any(cell.case is case or (cell.case.name == "check" and case.name == "partition") for cell in cells):
            folder = _folder(scratch / case.name)
            case.prepare(folder, scratch)
            usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*RUN, *case.command], cwd=folder, check=True, capture_output=True, timeout=LIMIT)
            usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu[case.name] = usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    with local_cluster(scratch / "cluster") if any("cluster" in cell.place for cell in cells) else nullcontext() as cluster:
        for number, cell in enumerate(cells):
            cell.kills = kills // len(cells) + (number < kills % len(cells))
            if cell.kills:
                case, reference = cell.case, scratch / cell.case.name
                cell.expected = case.answer(reference)
                cell.total = cpu[case.name] if case.kept is None else case.kept(reference)
                _kill(cell, scratch / f"{case.name} {cell.place}", cluster if "cluster" in cell.place else None, rng)
                yield {
                    "command": case.name, "where": cell.place, "kills": len(cell.states), "runs": cell.runs,
                    "signals": " ".join(cell.signals), "states": " ".join(map(str, cell.states)),
                    "of": PARTS_OF_CPU if case.kept is None else int(cell.total), "distinct states": len(set(cell.states)),
                    "orphans": cell.orphans, "wrong": "; ".join(cell.problems) or "nothing",
                }


def _kill(cell: KillCell, scratch: Path, cluster: LocalCluster | None, rng: np.random.Generator) -> None:
    """Run a command in separate folders until it was killed `kills` times; each run is resumed to its end and compared. An error
    ends the cell."""
    while len(cell.states) < cell.kills:
        cell.runs += 1
        folder = _folder(scratch / str(cell.runs))
        cell.case.prepare(folder, scratch.parent)
        if not _to_the_end(cell, folder, cluster, rng):
            return
        answer = cell.case.answer(folder)
        if answer != cell.expected:
            cell.problems.append(f"run {cell.runs} gave another answer")


def _to_the_end(cell: KillCell, folder: Path, cluster: LocalCluster | None, rng: np.random.Generator) -> bool:
    """Run a command, killed and resumed, to its end; return False if it ended in an error."""
    while True:
        mark = uuid4().hex
        log = folder / "log"
        log_start = log.stat().st_size if log.exists() else 0
        running = _start(cell, folder, cluster, mark)
        stopped = None
        while len(cell.states) < cell.kills and (state := _await_kill(cell, folder, running, rng)) is not None:
            cell.states.append(state)
            if cell.place == WORKER:
                assert cluster is not None
                cluster.kill(cluster.workers[rng.integers(len(cluster.workers))])
                cluster.add(1)
                cell.signals.append("worker")
                continue
            stopped = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[rng.integers(3)]
            cell.signals.append(stopped.name.removeprefix("SIG"))
            running.send_signal(stopped)
            break
        code, orphans = running.wait(LIMIT), lasting(mark)
        text = log.read_bytes()[log_start:].decode(errors="replace")
        cell.orphans += len(orphans)
        for process in orphans:
            with suppress(psutil.Error):
                process.kill()
        expected = {None: (0,), signal.SIGKILL: (-9, 0)}.get(stopped, (130, 0))
        if stopped in (signal.SIGTERM, signal.SIGINT) and code == -stopped and "verifair" not in text:
            expected = (code,)  # killed before Python began to import verifair, perhaps with a traceback of its own start
        if code not in expected or ("Traceback" in text and code != -2):
            excerpt = text[text.find("Traceback") :][-1500:] if "Traceback" in text else text[-300:]
            cell.problems.append(f"{stopped and stopped.name}: exit code {code}: {excerpt}")
        if code == 0 or code not in (130, -9, -15, -2):
            return code == 0


def _start(cell: KillCell, folder: Path, cluster: LocalCluster | None, mark: str) -> subprocess.Popen[bytes]:
    options = ["--cluster", cluster.address] if cluster else ["--jobs", "2"] if cell.place == TWO else []
    resume = ["--resume"] if cell.case.begun and (folder / cell.case.begun).exists() else []
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*RUN, *cell.case.command, *options, *resume], cwd=folder, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), MARK: mark},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # SIGINT is ignored in background processes
        )


def _await_kill(cell: KillCell, folder: Path, running: subprocess.Popen[bytes], rng: np.random.Generator) -> int | None:
    """Wait for the moment of the next kill; return the command's progress then, None if it ended before."""
    largest = at_start = cell.progress(folder, running.pid)
    if rng.random() < 0.2 or at_start >= 0.95 * cell.total:
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.3 + START_UP * rng.random())
    else:
        target = max(min((len(cell.states) + rng.random()) / cell.kills, 0.95) * cell.total, at_start + 1e-9)
        while running.poll() is None and largest < target:
            time.sleep(0.02)
            largest = max(largest, cell.progress(folder, running.pid))
    if running.poll() is None:
        return cell.state(cell.progress(folder, running.pid))
    if cell.case.kept is None:
        cell.total = min(cell.total, largest)  # on a cluster the command itself takes less
    return None


def lasting(mark: str) -> list[psutil.Process]:
    """Return the processes that still exist some time after their run has ended, also those started after the kill."""
    until = time.monotonic() + CHILDREN
    while True:
        left = _processes_of(mark)
        if not left:    # one may start meanwhile, and has no environment until its program is loaded
            time.sleep(0.3)
            left = _processes_of(mark)
        if not left or time.monotonic() >= until:
            return left
        time.sleep(0.1)


def _processes_of(mark: str) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                processes.append(process)
    return processes


def _cpu(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(sum(process.cpu_times()[:2]))
    return 0.0


def _processes(process: int) -> list[psutil.Process]:
    """Return the process of a command, and those that it has started."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(process)
        return [first, *first.children(recursive=True)]
    return []


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
