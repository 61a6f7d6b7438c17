"""A run that is killed loses at most the batch in flight; resuming gives the verdicts of an undisturbed run."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.command_line import RUN, verifair

COMMAND = ["pba", "--demo", "adult", "--protected", "sex", "--delta", "1", "--limit", "3000"]


def decided(store: Path) -> int:
    with sqlite3.connect(store) as connection:
        return int(connection.execute("SELECT count(*) FROM verdicts").fetchone()[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """What a run finds that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    done = verifair(*COMMAND, "--out", folder)
    assert done.returncode == 0, done.stderr
    return pd.read_parquet(folder / "verdicts.parquet")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_resumes_to_the_same_verdicts(how: signal.Signals, whole: pd.DataFrame, tmp_path: Path) -> None:
    store = tmp_path / "killed" / "verdicts.sqlite"
    running = subprocess.Popen([*RUN, *COMMAND, "--out", str(store.parent)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and running.poll() is None:
        try:
            if decided(store) > 0:
                break
        except sqlite3.OperationalError:
            pass
        time.sleep(0.02)
    running.send_signal(how)
    _, errors = running.communicate(timeout=60)
    kept = decided(store)
    assert kept > 0
    if how is signal.SIGINT and running.returncode == 130:
        assert b"Traceback" not in errors
        assert b"--resume" in errors
    done = verifair(*COMMAND, "--out", store.parent, "--resume")
    assert done.returncode == 0, done.stderr
    assert len(whole) > kept
    pd.testing.assert_frame_equal(pd.read_parquet(store.with_name("verdicts.parquet")), whole)
