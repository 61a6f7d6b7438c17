"""--cluster: the workers of a dask cluster give the answers of this machine, also when one of them is killed on the way."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.local_cluster import LocalCluster, local_cluster
from tests.cli_support import RUN, flat, verifair
from verifair.verify.partition_store import ARRAYS, PartitionStore

pytest.importorskip("distributed", reason="--cluster needs dask: pip install 'verifair[distributed]'")
PBA = ["pba", "--demo", "adult", "--protected", "sex", "--delta", "1", "--delta", "2", "--limit", "4000"]
PARTS = ["certify", "--demo", "german", "--protected", "sex", "--partition", "10", "--timeout", "600"]


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def kept(store: Path, table: str) -> int:
    """Lines of a store that another process may be about to create."""
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def killed_on_the_way(command: list[str], store: Path, table: str, dask: LocalCluster, cwd: Path) -> str:
    """Run the command on the cluster, kill -9 one of its workers once something is decided; what it showed in the end."""
    running = subprocess.Popen(
        [*RUN, *command, "--cluster", dask.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, text=True
    )
    until = time.monotonic() + 300
    while not kept(store, table) and running.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert running.poll() is None, "it ended before a worker could be killed"
    dask.kill(dask.workers[0])
    screen, errors = running.communicate(timeout=240)
    assert running.returncode == 0, errors
    assert "Traceback" not in errors
    return screen


def test_pba_survives_a_killed_worker_with_the_same_files(dask: LocalCluster, tmp_path: Path) -> None:
    killed_on_the_way([*PBA, "--out", "there"], tmp_path / "there" / "verdicts.sqlite", "verdicts", dask, tmp_path)
    done = verifair(*PBA, "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("verdicts.jsonl", "verdicts.parquet", "rates.csv", "shares.csv", "certificate.json.gz",
                 "certificate-robustness.json.gz"):  # fmt: skip
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name


def test_partitions_survive_a_killed_worker_with_the_same_proofs(dask: LocalCluster, tmp_path: Path) -> None:
    killed_on_the_way([*PARTS, "--store", "there.sqlite"], tmp_path / "there.sqlite", "chunks", dask, tmp_path)
    done = verifair(*PARTS, "--store", "here.sqlite", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with PartitionStore(tmp_path / "there.sqlite") as there, PartitionStore(tmp_path / "here.sqlite") as here:
        assert there.about == here.about
        for one, other in zip(there.chunks(), here.chunks(), strict=True):
            assert (one.first, one.nodes) == (other.first, other.nodes)
            for name in ARRAYS:
                assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("address", ["127.0.0.1:8786", "http://127.0.0.1:8786", "tcp://127.0.0.1", "tcp://:8786"])
def test_an_address_that_is_none_is_refused(address: str, tmp_path: Path) -> None:
    done = verifair(*PBA, "--cluster", address, cwd=tmp_path)
    assert (done.returncode, "expected the address of a dask scheduler, tcp://host:port" in flat(done.stderr)) == (2, True)
