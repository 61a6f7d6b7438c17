"""Runs a target in a child process with limits: a file that hangs, eats memory or kills the process is found, by its number.

Input number k of a seed is always the same file (`Corpus.mutant`), whatever came before it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.target import Outcome, Target, outcome

ROOT = Path(__file__).parents[2]
SECONDS, WAITING = 10.0, 60.0
"""Of computing, and of waiting: longer than this, one file hangs."""
STARTING = 600.0
"""So long imports and the making of valid files may take: the machine may be busy."""
MEGABYTES = 1500
"""Address space that reading one file may take beyond what the process has after its imports and first reads."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The valid files of a target, and every damaged one by number."""

    target: Target
    seeds: dict[str, bytes]
    seed: int

    @staticmethod
    def of(target: Target, folder: Path, seed: int) -> Corpus:
        """The corpus that lies in the folder; made there at first."""
        kept = folder / "corpus"
        if not (kept / ".complete").is_file():
            kept.mkdir(parents=True, exist_ok=True)
            for name, data in target.seeds(folder).items():
                (kept / name).write_bytes(data)
            (kept / ".complete").touch()
        files = sorted(path for path in kept.iterdir() if path.name != ".complete")
        return Corpus(target=target, seeds={path.name: path.read_bytes() for path in files}, seed=seed)

    def mutant(self, number: int) -> tuple[str, bytes]:
        """Name and content of input `number`. The first ones are the valid files themselves."""
        names = list(self.seeds)
        if number < len(names):
            return names[number], self.seeds[names[number]]
        rng = random.Random(f"{self.target.name} {self.seed} {number}")
        name = rng.choice(names)
        return name, self.target.mutate(rng, name, self.seeds[name])


@dataclass(kw_only=True)
class Report:
    """What a campaign found. failures: said -> (first input number, how many, trace)."""

    target: str
    seed: int
    inputs: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[Any]] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, -1)
    megabytes: int = 0

    def add(self, number: int, found: Outcome, seconds: float) -> None:
        self.inputs += 1
        self.slowest = max(self.slowest, (seconds, number))
        match found.kind:
            case "refused":
                self.refused[found.said] += 1
            case "read":
                self.read[found.said] += 1
            case _:
                if found.said not in self.failures:
                    print(f"{self.target}: FAILED input {number}, {seconds:.1f} s: {found.said}", file=sys.stderr, flush=True)
                first = self.failures.setdefault(found.said, [number, 0, found.trace])
                first[1] += 1

    def text(self) -> str:
        lines = [
            f"{self.target}: {self.inputs:,} files in {self.seconds:.0f} s (seed {self.seed}): "
            f"{sum(self.refused.values()):,} refused in "
            f"{len(self.refused)} different ways, {sum(self.read.values()):,} read, {len(self.failures)} kinds of failure; slowest "
            f"{self.slowest[0]:.1f} s (input {self.slowest[1]}), most memory {self.megabytes} MB"
        ]
        lines += [f"  read: {count:,} x {said}" for said, count in self.read.most_common(12)]
        for said, (number, count, trace) in self.failures.items():
            lines += [f"  FAILED {count:,} x {said} (first: input {number})"]
            lines += [f"      {line[:300]}" for line in trace.splitlines()[-6:]]
        return "\n".join(lines)


def campaign(
    name: str, folder: Path, *, seconds: float, seed: int = 0, inputs: int | None = None, first: int = 0, patience: float = SECONDS
) -> Report:
    """Feeds damaged files to a target until the time, or the number of inputs, is over; an interrupt (Ctrl-C) ends it early."""
    report = Report(target=name, seed=seed)
    number, last = first, None if inputs is None else first + inputs
    with contextlib.suppress(KeyboardInterrupt):
        while report.seconds < seconds and (last is None or number < last):
            for at, found, took in _child(name, folder, seed, number, last, seconds, patience, report):
                report.add(at, found, took)
                number = at
            number += 1
    return report


def _child(
    name: str, folder: Path, seed: int, first: int, last: int | None, seconds: float, patience: float, report: Report
) -> Iterator[tuple[int, Outcome, float]]:
    """(number, outcome, seconds) from one child until it is done, hangs or dies; a hang or a death is an outcome too.

    The time that counts is that of the files; imports and the making of valid files come on top.
    """
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.watch",
        name,
        str(folder),
        str(seed),
        str(first),
        str(-1 if last is None else last),
    ]
    with (
        (folder / "stderr").open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, bufsize=0) as child,
    ):
        assert child.stdout is not None
        number, since, ready = first, time.monotonic(), False
        try:
            while report.seconds < seconds:
                if not _speaks(child, since, ready, patience):
                    report.seconds += time.monotonic() - since
                    yield number, Outcome(kind="failed", said=f"hangs: more than {patience:.0f} s"), time.monotonic() - since
                    return
                line = child.stdout.readline()
                if not line:
                    if child.wait() != 0:
                        tail = (folder / "stderr").read_text(errors="replace")[-1500:]
                        if not ready:
                            raise RuntimeError(f"{name}: its valid files cannot be made or read: {tail}")
                        yield number, Outcome(kind="failed", said=f"died with {child.returncode}", trace=tail), 0.0
                    return
                told, now = json.loads(line), time.monotonic()
                report.seconds += now - since if ready else 0.0
                if "begins" in told:
                    number, ready = told["begins"], True
                else:
                    report.megabytes = max(report.megabytes, told["megabytes"])
                    yield number, Outcome(**told["outcome"]), now - since
                since = now
        finally:
            child.kill()


def _speaks(child: subprocess.Popen[bytes], since: float, ready: bool, patience: float) -> bool:
    """Whether the child's next line comes before it has computed for too long, or waited for something that does not come."""
    assert child.stdout is not None
    began = _computed(child.pid)
    while not select.select([child.stdout], [], [], 0.5)[0]:
        waited = time.monotonic() - since
        if waited > STARTING or (ready and (waited > WAITING or _computed(child.pid) - began > patience)):
            return False
    return True


def _computed(pid: int) -> float:
    """Seconds of processor that a process has had; what the clock says where nobody tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run(name: str, folder: Path, seed: int, first: int, last: int) -> None:
    """The child's side: one line before each file, one after."""
    from tests.fuzz.target import target

    corpus = Corpus.of(target(name), folder, seed)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    for file, data in corpus.seeds.items():  # everything is imported, and every cache is filled, before the limit
        (work / file).write_bytes(data)
        found = outcome(corpus.target, work / file)
        if found.kind != "read":
            print(found.trace, file=sys.stderr)
            raise SystemExit(f"{file} is no valid file: {found.said}")
    _limit()
    number = first
    while last < 0 or number < last:
        print(json.dumps({"begins": number}), flush=True)
        file, data = corpus.mutant(number)
        (work / file).write_bytes(data)
        found = outcome(corpus.target, work / file)
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"outcome": asdict(found), "megabytes": megabytes}), flush=True)
        number += 1


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    now = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEGABYTES * 2**20,) * 2)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    for option in ("seed", "first", "last"):
        parser.add_argument(option, type=int)
    given = parser.parse_args()
    _run(given.target, given.folder, given.seed, given.first, given.last)
