"""The kill harness sees a process that outlives its command, and one that starts when the command has been killed."""

import os
import subprocess
import sys
import time
from uuid import uuid4

import pytest

from benchmarks.machines import kills

LATE = "import subprocess, time; time.sleep(0.3); subprocess.run(['sleep', '60'])"


def test_a_process_that_outlives_its_command_is_found_also_when_it_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    mark, own = uuid4().hex, [sys.executable, "-S", "-c"]
    starts = f"import subprocess, sys; subprocess.Popen([*{own!r}, {LATE!r}])"
    subprocess.run([*own, starts], env={**os.environ, kills.MARK: mark}, check=True)
    monkeypatch.setattr(kills, "CHILDREN", 1.0)
    left = kills.lasting(mark)
    monkeypatch.setattr(kills, "CHILDREN", 30.0)
    try:
        assert sorted(one.name() for one in left)[-1] == "sleep"
    finally:
        for one in left:
            one.kill()
    before = time.monotonic()
    assert kills.lasting(mark) == []
    assert time.monotonic() - before < 30
