"""The file of verdicts that a run writes as they are decided: one rule for whoever keeps one."""

from __future__ import annotations

from pathlib import Path

from verifair.errors import QueryError
from verifair.locks import alone
from verifair.systems.work import Work


def claim(store: Path, work: Work) -> None:
    """Refuse other processes that store, until the command ends. Without a command, whoever asks sees to that.

    Raises QueryError where another run is writing it, where an earlier run stands in it that this one does not go on with, and
    where there is none to go on with.
    """
    if work.held is None:
        return
    if work.resume and not store.is_file():
        raise QueryError(f"--resume: {store} is not there; start without --resume, or name the run's file with --store")
    if store.is_file() and not work.resume:
        other = "folder with --out" if store.parent == work.folder else "file with --store"
        raise QueryError(f"{store}: is there already; continue it with --resume, or name another {other}")
    remedy = "wait until that has ended, and go on with --resume, or name another file with --store"
    work.held.enter_context(alone(store.with_name(f".{store.name}.lock"), f"{store}: another run is writing it; {remedy}"))
