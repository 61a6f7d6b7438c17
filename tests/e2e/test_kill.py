"""A run that is killed loses at most the batch in flight; resuming gives the verdicts of an undisturbed run."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

RUN = [sys.executable, "-c", "from verifair.cli import main; main()"]
COMMAND = ["pba", "--demo", "adult", "--protected", "sex", "--delta", "1", "--limit", "3000"]


def decided(store: Path) -> int:
    with sqlite3.connect(store) as connection:
        return int(connection.execute("SELECT count(*) FROM verdicts").fetchone()[0])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_resumes_to_the_same_verdicts(how: signal.Signals, tmp_path: Path) -> None:
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
    for folder, more in ((store.parent, ["--resume"]), (tmp_path / "whole", [])):
        again = [*RUN, *COMMAND, "--out", str(folder), *more]
        done = subprocess.run(again, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    resumed, whole = (pd.read_parquet(tmp_path / name / "verdicts.parquet") for name in ("killed", "whole"))
    assert len(whole) > kept
    pd.testing.assert_frame_equal(resumed.drop(columns="nodes"), whole.drop(columns="nodes"))
