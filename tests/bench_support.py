"""Competitors that lie, crash, hang or throw, and records made by hand. (In a module that worker processes can import.)"""

import os
import signal
import time
from dataclasses import dataclass, replace
from typing import Any

from solvers.outcome import Budget, LicenceLimit
from verifair.bench.competitors import Competitor
from verifair.bench.questions import Question
from verifair.bench.records import BenchRecord, Reply


@dataclass(frozen=True, kw_only=True)
class Fake(Competitor):
    """Takes everything; does what its method is called."""

    def takes(self, question: Question) -> bool:
        return True

    def warm_up(self, question: Question) -> None:
        if self.method == "unloadable":
            raise ImportError("no such library")

    def ask(self, question: Question, budget: Budget) -> Reply:
        match self.method:
            case "lie":
                return Reply(status="proved", reason=None, trust="claimed", engine="lie")
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                while True:
                    time.sleep(0.05)
            case "throw":
                raise ValueError("found a bug")
            case "licence":
                raise LicenceLimit("too large")
            case "eat":
                block = b"x" * (64 << 20)
                return Reply(status="proved", reason=None, trust="claimed", note=str(len(block)))
        raise AssertionError(self.method)


RECORD = BenchRecord(
    case="f/1-0", family="f", kind="decision", size=1, question="q", subject="s", method="bnb", solver=None, version="", repeat=0,
    seed=0, limit=10.0, status="proved", reason=None, trust="checked", lower=0.5, upper=float("inf"), comparable=True,
    build_seconds=None, solve_seconds=None, total_seconds=1.0, peak_mb=1.0, base_mb=100.0, engine="", note="",
    cpu_seconds=None, startup_seconds=0.0,
)


def record(**changed: Any) -> BenchRecord:
    return replace(RECORD, **changed)
