"""Two runs that would write the same files: the second is told before it does anything."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import verifair
from verifair.errors import QueryError
from verifair.locks import alone

HOLDER = "import sys; from filelock import FileLock\nwith FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.read()"


@contextmanager
def held(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """By another process, until it is killed."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_one_process_at_a_time_and_none_after_a_kill(tmp_path: Path) -> None:
    lock = tmp_path / "new" / ".lock"
    with held(lock) as other:
        with pytest.raises(QueryError, match="wait"), alone(lock, "wait"):
            raise AssertionError("it is held")
        other.kill()
        other.wait()
        with alone(lock, "wait"):
            assert lock.exists()
    assert not lock.exists()


def test_a_lock_that_its_holder_removes_as_another_takes_it_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise that one would hold a file without a name, and a third one a new file."""
    fcntl = pytest.importorskip("fcntl", reason="elsewhere an open file cannot be removed")
    lock, real = tmp_path / ".lock", fcntl.flock
    first = iter([lock])

    def late(file: int, how: int) -> None:
        for there in first:
            there.unlink()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with alone(lock, "wait"):
        assert lock.exists()
        with pytest.raises(QueryError, match="wait"), alone(lock, "wait"):
            raise AssertionError("it is held")


GERMAN = ("--demo", "german", "--protected", "sex", "--out", "runs")


@pytest.mark.parametrize(("command", "lock", "told"), [
    (("audit", "--demo", "german", "--only", "kmax", "--out", "a.html"), ".a.html.lock", "another audit is writing"),
    *((words, "runs/.lock", "--out runs: another run is writing there") for words in (
        ("bench", "--quick", "--timeout", "1", "--out", "runs"), ("cec", *GERMAN), ("fgce", *GERMAN), ("explain", *GERMAN),
        ("cst", "--demo", "german", "--do", "sex=Male", "--out", "runs"),
    )),
])
def test_verbs_leave_a_run_of_another_process_alone(command: tuple[str, ...], lock: str, told: str, tmp_path: Path) -> None:
    with held(tmp_path / lock):
        before = sorted(tmp_path.rglob("*"))
        done = verifair(*command, cwd=tmp_path)
        assert sorted(tmp_path.rglob("*")) == before
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
