"""Two runs that would write the same files: the second is told before it does anything. JSON is written piece by piece."""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from tests.command_line import verifair
from verifair.errors import QueryError
from verifair.locks import alone
from verifair.systems.results import files
from verifair.systems.results.files import Records, json_text, plain, save_json

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


TABLE = pd.DataFrame({
    "a b": [1, 2, 3], "c": [0.5, float("nan"), 2], "d": ["x", None, 'é\n"'], "e": [[1, [2]], {"q": 1, "r": {}}, ()],
    4: [True, False, True],
})


@pytest.mark.parametrize("value", [
    {}, [], 3, "a\nb", None, float("inf"), (), {"a": {}}, {"a": [], "b": {"c": [1, {"d": "x\ny"}]}}, {1: 2, None: 3}, [[], [{}]],
    [{"a": 1}, {"b": [{}]}, 2],
    {"r": TABLE}, {"r": Records(TABLE), "s": {"t": Records(TABLE[:0]), "u": [Records(TABLE)]}}, Records(TABLE),
    Records(TABLE[["c", "d"]]),
])
def test_json_in_pieces_is_that_of_the_whole(value: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "AT_ONCE", 2)
    save_json(tmp_path / "new" / "a.json", value)
    assert (tmp_path / "new" / "a.json").read_text() == json_text(value) == json.dumps(plain(value), indent=1) + "\n"


def test_rows_become_objects_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And where one of them has no JSON, the older file stays."""
    made: list[int] = []
    whole = pd.DataFrame.to_dict
    monkeypatch.setattr(pd.DataFrame, "to_dict", lambda frame, **how: made.append(len(frame)) or whole(frame, **how))
    monkeypatch.setattr(files, "AT_ONCE", 2)
    save_json(tmp_path / "a.json", {"rows": Records(TABLE)})
    assert made == [2, 1]
    with pytest.raises(TypeError, match="no JSON for"):
        save_json(tmp_path / "a.json", {"rows": Records(pd.DataFrame({"a": [1, object()]}))})
    assert len(json.loads((tmp_path / "a.json").read_text())["rows"]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_tables_in_a_list_are_written_row_by_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of each intervention, say: of a million people their text takes more memory than all else."""
    monkeypatch.setattr(files, "AT_ONCE", 100)
    value = {"tests": [{"rows": Records(pd.DataFrame({"a": range(20_000)}))}]}
    tracemalloc.start()
    save_json(tmp_path / "a.json", value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (tmp_path / "a.json").stat().st_size / 2
