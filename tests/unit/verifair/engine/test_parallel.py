"""Many machines: what travels, what is refused, the same moment on another clock. A real cluster: tests/e2e/test_cluster.py."""

import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import joblib
import pytest

from verifair.engine import parallel
from verifair.engine.cascade import solve
from verifair.engine.parallel import DaskBackend, Deadline, _called, _SchedulerMoment, as_done, cluster, fingerprint, unlike
from verifair.errors import ClusterError, MissingPackage, QueryError


def test_a_deadline_is_the_same_moment_on_another_clock() -> None:
    client_behind, worker_behind = 3600.0, -7200.0  # the scheduler's clock is so far ahead of theirs
    deadline = Deadline.after(60)
    by_scheduler = _SchedulerMoment(at=deadline.at + client_behind)
    on_worker = by_scheduler.here(worker_behind)
    worker_now = time.time() + client_behind - worker_behind
    assert on_worker.at - worker_now == pytest.approx(60, abs=1)
    assert deadline.left() == pytest.approx(60, abs=1)


def test_other_software_is_named_with_both_versions() -> None:
    here = fingerprint()
    assert unlike(here) == ""
    other = {**here, "numpy": "1.0", "code": "0" * 16}
    del other["scipy"]
    said = unlike(other)
    assert f"numpy 1.0 (here {here['numpy']})" in said
    assert f"scipy missing (here {here['scipy']})" in said
    assert "code 0000000000000000" in said
    assert "pandas" not in said


def test_the_digest_is_that_of_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for package in parallel.CODE:
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text("a = 1\n")
    monkeypatch.setattr(parallel.resources, "files", lambda package: tmp_path / package)
    first = fingerprint.__wrapped__()["code"]
    (tmp_path / "encoders" / "one.py").write_text("a = 2\n")
    assert fingerprint.__wrapped__()["code"] != first != fingerprint()["code"]


@pytest.mark.parametrize("address", ["head:8786", "http://head:8786", "tcp://head", "tcp://:8786", "tcp://head:port", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(QueryError, match="expected the address of a dask scheduler, tcp://host:port"), cluster(address):
        pass


def test_without_dask_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPackage, match=r"pip install 'verifair\[distributed\]'") as raised, cluster("tcp://head:8786"):
        pass
    assert raised.value.exit_code == 4


def test_no_address_leaves_joblib_alone() -> None:
    with cluster(None):
        assert list(as_done(iter([joblib.delayed(abs)(-k) for k in range(3)]), 1)) == [0, 1, 2]




def test_a_backend_without_generators_is_asked_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary, asked = joblib.Parallel, []

    def only_lists(**settings: Any) -> Any:
        if "return_as" in settings:
            raise ValueError("does not support return_as")
        return ordinary(**settings)

    def tasks() -> Iterator[Any]:
        for k in range(5):
            asked.append(k)
            yield joblib.delayed(abs)(-k)

    monkeypatch.setattr(parallel.joblib, "Parallel", only_lists)
    results = as_done(tasks(), 1)
    assert next(results) == 0
    assert asked == [0, 1], "a round is two tasks a process: what is done can be kept before the rest is asked"
    assert list(results) == [1, 2, 3, 4]


def test_a_worker_asks_itself_before_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="needs dask: pip install 'verifair[distributed]'")
    worker = SimpleNamespace(address="tcp://10.0.0.7:1", state=SimpleNamespace(nthreads=1), scheduler_delay=0.0)
    monkeypatch.setattr(distributed, "get_worker", lambda: worker)
    assert _called(fingerprint(), pow, [2, 3], {}) == 8
    with pytest.raises(ClusterError, match=r"worker tcp://10\.0\.0\.7:1 joined with other software.*numpy 1\.0"):
        _called({**fingerprint(), "numpy": "1.0"}, pow, [2, 3], {})
    with pytest.raises(QueryError, match=r"worker tcp://10\.0\.0\.7:1: solver = highs: bnb asks no solver"):
        _called(fingerprint(), solve, [SimpleNamespace(network=None)], {"method": "bnb", "solver": "highs"})
    worker.state.nthreads = 4
    with pytest.raises(ClusterError, match="runs 4 threads in one process"):
        _called(fingerprint(), pow, [2, 3], {})


def test_a_batch_that_kills_its_workers_ends_the_run_with_a_reason() -> None:
    scheduler = pytest.importorskip("distributed.scheduler", reason="needs dask: pip install 'verifair[distributed]'")
    client = SimpleNamespace(run_on_scheduler=lambda function: function())
    backend = DaskBackend(client, "tcp://head:8786", patience=1.0)
    assert abs(backend.ahead) < 1
    error = scheduler.KilledWorker("batch", SimpleNamespace(address="tcp://10.0.0.7:1"), 3)
    killed = SimpleNamespace(status="error", exception=lambda: error)
    with pytest.raises(ClusterError, match=r"on 4 workers that died, the last tcp://10\.0\.0\.7:1.*--resume"):
        backend.retrieve_result_callback(killed)
    with pytest.raises(ClusterError, match=r"the connection to the scheduler was lost.*--resume"):
        backend.retrieve_result_callback(SimpleNamespace(status="cancelled"))
    assert backend.retrieve_result_callback(SimpleNamespace(status="finished", result=lambda: 7)) == [7]


def test_a_connection_that_is_lost_anywhere_is_the_clusters_fault() -> None:
    def closed(*_: Any, **__: Any) -> None:
        raise OSError("Timed out trying to connect")

    client = SimpleNamespace(run_on_scheduler=lambda function: function(), nthreads=closed, submit=closed)
    backend = DaskBackend(client, "tcp://head:8786", patience=1.0)
    with pytest.raises(ClusterError, match=r"the connection to the scheduler was lost.*--resume"):
        joblib.Parallel(n_jobs=2, backend=backend)([joblib.delayed(pow)(2, 3)])
    with pytest.raises(ClusterError, match=r"the connection to the scheduler was lost.*--resume"):
        backend.submit(SimpleNamespace(items=[(pow, (2, 3), {})]), print)
    with pytest.raises(ClusterError, match="the connection to the scheduler was lost"):
        backend.retrieve_result_callback(SimpleNamespace(status="finished", result=closed))
