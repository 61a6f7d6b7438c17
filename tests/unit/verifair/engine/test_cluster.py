"""Many machines: what travels, what is refused, what breaks. A real cluster: tests/e2e/test_kill.py."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import joblib
import pytest

from verifair.engine import cluster as machines
from verifair.engine.cascade import solve
from verifair.engine.cluster import DaskCluster, _called, _silence, cluster, fingerprint, unlike
from verifair.engine.parallel import Deadline, Shared, as_done
from verifair.errors import ClusterError, MissingPackage, QueryError


class Future:
    """A task that has ended in some way, or is pending."""

    status: str

    def __init__(self, **how: Any) -> None:
        self.__dict__.update(how)

    def add_done_callback(self, put: Callable[[Any], None]) -> None:
        if self.status != "pending":
            put(self)


class Client:
    """A scheduler with one worker, whose task with the number `fails` ends as `how` says."""

    def __init__(self, workers: int = 1, *, fails: int = -1, how: dict[str, Any] | None = None) -> None:
        self.there, self.fails, self.how, self.submitted, self.cancelled = workers, fails, how or {}, 0, 0

    def nthreads(self) -> dict[str, int]:
        return {str(k): 1 for k in range(self.there)}

    def run_on_scheduler(self, function: Callable[[], float]) -> float:
        return function() + 1000

    def submit(self, function: Callable[..., Any], *args: Any, key: str, pure: bool) -> Any:
        if key.startswith("verifair-shared"):
            return function(*args)
        self.submitted += 1
        failed = self.submitted - 1 == self.fails
        if not self.there:
            return Future(status="pending")
        return Future(**self.how) if failed else Future(status="finished", result=lambda: function(*args))

    def cancel(self, futures: list[Any], force: bool) -> None:
        self.cancelled = len(futures)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The worker that a task is on."""
    distributed = pytest.importorskip("distributed", reason="needs dask: pip install 'verifair[distributed]'")
    one = SimpleNamespace(address="tcp://10.0.0.7:1", state=SimpleNamespace(nthreads=1), scheduler_delay=1000.0)
    monkeypatch.setattr(distributed, "get_worker", lambda: one)
    return one


def on(client: Any, patience: float = 60.0) -> DaskCluster:
    return DaskCluster.of(client, "tcp://head:8786", patience)


def _left(deadline: Deadline, shared: Shared[int], k: int) -> tuple[float, int]:
    return deadline.left(), shared.value + k


def test_a_deadline_is_the_same_moment_on_another_clock(worker: SimpleNamespace) -> None:
    """The scheduler's clock is 1,000 seconds ahead of the client's and of the worker's."""
    deadline, shared = Deadline.after(60), Shared(value=5)
    found = list(on(Client()).as_done(joblib.delayed(_left)(deadline, shared, k) for k in range(7)))
    assert [value for _, value in found] == list(range(5, 12))
    assert all(left == pytest.approx(60, abs=5) for left, _ in found)
    worker.scheduler_delay = 990.0
    ((left, _),) = on(Client()).as_done(iter([joblib.delayed(_left)(deadline, shared, 0)]))
    assert left == pytest.approx(70, abs=5)


def test_tasks_are_taken_as_they_are_needed_and_the_rest_is_cancelled(worker: SimpleNamespace) -> None:
    client = Client(workers=2)
    results = on(client).as_done(joblib.delayed(pow)(2, k) for k in range(1000))
    assert next(results) == 1
    assert client.submitted == 2 * (1 + machines.AHEAD)
    results.close()
    assert client.cancelled == client.submitted - 1


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
    for package in machines.CODE:
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text("a = 1\n")
    monkeypatch.setattr(machines.resources, "files", lambda package: tmp_path / package)
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


def test_no_address_leaves_this_machine_to_work() -> None:
    with cluster(None):
        assert list(as_done(iter([joblib.delayed(abs)(-k) for k in range(3)]), 1)) == [0, 1, 2]


def test_a_worker_asks_itself_before_each_task(worker: SimpleNamespace) -> None:
    assert _called(fingerprint(), pow, [2, 3], {}) == 8
    with pytest.raises(ClusterError, match=r"worker tcp://10\.0\.0\.7:1 joined with other software.*numpy 1\.0"):
        _called({**fingerprint(), "numpy": "1.0"}, pow, [2, 3], {})
    with pytest.raises(QueryError, match=r"worker tcp://10\.0\.0\.7:1: solver = highs: bnb asks no solver"):
        _called(fingerprint(), solve, [SimpleNamespace(network=None)], {"method": "bnb", "solver": "highs"})
    worker.state.nthreads = 4
    with pytest.raises(ClusterError, match="runs 4 threads in one process"):
        _called(fingerprint(), pow, [2, 3], {})


def test_a_batch_that_kills_its_workers_ends_the_run_with_a_reason(worker: SimpleNamespace) -> None:
    from distributed.scheduler import KilledWorker

    error = KilledWorker("batch", SimpleNamespace(address="tcp://10.0.0.7:1"), 3)
    killed = Client(fails=1, how={"status": "error", "exception": lambda: error})
    with pytest.raises(ClusterError, match=r"on 4 workers that died, the last tcp://10\.0\.0\.7:1.*--resume"):
        list(on(killed).as_done(joblib.delayed(pow)(2, k) for k in range(5)))
    assert killed.cancelled > 0


def test_a_result_that_dies_with_its_worker_is_awaited_again(worker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler has another worker compute it."""
    lost = Future(status="lost", result=lambda: 2)
    client, checks = Client(), count()
    submit = client.submit

    def submitted(*arguments: Any, **named: Any) -> Any:
        future = submit(*arguments, **named)
        return lost if client.submitted == 2 else future

    def nthreads() -> dict[str, int]:
        lost.status = "lost" if next(checks) < 3 else "finished"
        return {"one": 1}

    monkeypatch.setattr(client, "submit", submitted)
    monkeypatch.setattr(client, "nthreads", nthreads)
    found = list(on(client, patience=0.2).as_done(joblib.delayed(pow)(2, k) for k in range(5)))
    assert (sorted(found), lost.status) == ([1, 2, 4, 8, 16], "finished")


def _closed(*_: Any, **__: Any) -> None:
    raise OSError("Timed out trying to connect")


@pytest.mark.parametrize("how", [{"status": "cancelled"}, {"status": "finished", "result": _closed}])
def test_a_scheduler_that_is_lost_ends_the_run_with_a_reason(how: dict[str, Any], worker: SimpleNamespace) -> None:
    with pytest.raises(ClusterError, match=r"the connection to the scheduler was lost.*--resume"):
        list(on(Client(fails=1, how=how)).as_done(joblib.delayed(pow)(2, k) for k in range(5)))


@pytest.mark.parametrize("name", ["nthreads", "submit"])
def test_a_connection_that_is_lost_anywhere_is_the_clusters_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    monkeypatch.setattr(client, name, _closed)
    with pytest.raises(ClusterError, match=r"the connection to the scheduler was lost.*--resume"):
        list(on(client).as_done(iter([joblib.delayed(pow)(2, 3)])))


def test_a_run_without_any_worker_is_given_up() -> None:
    begun = time.monotonic()
    with pytest.raises(ClusterError, match=r"all workers are gone, and none came for 0\.2 s.*--resume"):
        list(on(Client(workers=0), patience=0.2).as_done(iter([joblib.delayed(pow)(2, 3)])))
    assert time.monotonic() - begun > 0.2


def test_a_deployer_of_dask_gives_the_address() -> None:
    """LocalCluster in the place of those for Slurm and Kubernetes: all have `scheduler_address`."""
    distributed = pytest.importorskip("distributed", reason="needs dask: pip install 'verifair[distributed]'")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=":0"
        ) as workers,
        cluster(workers.scheduler_address),
    ):
        assert sorted(as_done((joblib.delayed(pow)(2, k) for k in range(40)), 1)) == [2**k for k in range(40)]


def test_errors_of_futures_that_are_thrown_away_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """As distributed leaves them when a worker is killed while something is asked of it."""

    def thrown_away() -> None:
        loop = asyncio.new_event_loop()
        future = loop.create_future()
        future.set_exception(TimeoutError("Timeout"))
        cycle: list[object] = [future]
        cycle.append(cycle)  # so that it is thrown away later
        loop.close()

    with _silence():
        thrown_away()
    gc.collect()
    assert not caplog.records
    thrown_away()
    gc.collect()
    assert "never retrieved" in caplog.text
