"""Runs that are killed, alone and on a cluster of workers, lose at most what is in flight and resume to the same verdicts."""

import json
import re
import sqlite3
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.machines import kills
from benchmarks.machines.kills import kept
from benchmarks.machines.local_cluster import LocalCluster, local_cluster
from tests.command_line import RUN, Run, flat, verifair
from verifair.checker.partition import ARRAYS, PartitionStore


def test_killed_commands_resume_to_the_same_answers(tmp_path: Path) -> None:
    """The short form of `python -m benchmarks.run kills`: nothing differs, no process is left, no traceback, exit codes hold."""
    found = kills.run(tmp_path, kills=3, cases=("pba", "partition", "cec"), places=("2",))
    assert (found["kills"].sum(), found["orphans"].sum(), set(found["wrong"])) == (3, 0, {"nothing"})


def test_a_killed_partition_states_what_it_has_and_resumes_to_the_whole(tmp_path: Path) -> None:
    """INCOMPLETE without --partial, and accepted with it; after --resume it is whole."""
    store = tmp_path / "parts.sqlite"
    command = [*PARTS, "--store", str(store)]
    running = subprocess.Popen([*RUN, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not kept(store, "chunks") and running.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    running.kill()
    running.communicate()
    assert kept(store, "chunks")
    whole = verifair("check", store, "--demo", "german", "--json", tmp_path / "c.json")
    extent = json.loads((tmp_path / "c.json").read_text())["extent"]
    assert 0 < extent["proved"] + extent["refuted"] < extent["total"] == sum(
        extent[name] for name in ("proved", "claimed", "refuted", "undecided", "not_reached")
    )
    assert (whole.returncode, "INCOMPLETE: " in whole.stdout, "--partial accepts" in flat(whole.stdout)) == (1, True, True)
    part = verifair("check", store, "--demo", "german", "--partial")
    assert (part.returncode, "PARTIALLY ACCEPTED: " in part.stdout) == (0, True)
    assert f"{extent['not_reached']:,} not reached" in flat(part.stdout)
    assert verifair(*command, "--resume").returncode == 0
    done = verifair("check", store, "--demo", "german")
    assert (done.returncode, "\nACCEPTED: " in done.stdout) == (0, True), done.stdout


# --cluster: the workers of a dask cluster give the answers of this machine, also when one of them is killed on the way.


PBA = ["pba", "--demo", "adult", "--protected", "sex", "--delta", "1", "--limit", "1200"]
PARTS = ["certify", "--demo", "german", "--protected", "sex", "--partition", "10", "--box", "duration=4:22", "--timeout", "600"]
FILES = ("verdicts.jsonl", "verdicts.parquet", "rates.csv", "shares.csv", "certificate.json.gz", "certificate-robustness.json.gz")


def begun(command: list[str], store: Path, table: str, dask: LocalCluster) -> subprocess.Popen[str]:
    """The command on the cluster, as soon as something is decided."""
    running = subprocess.Popen(
        [*RUN, *command, "--cluster", dask.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=store.parent, text=True
    )
    until = time.monotonic() + 300
    while not kept(store, table) and running.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert running.poll() is None, "it ended before anything could be killed: " + running.communicate()[1]
    return running


def ended(running: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and errors, white space folded, without the lines of progress that a busy machine adds."""
    _, errors = running.communicate(timeout=300)
    assert "Traceback" not in errors
    return running.returncode, flat(re.sub(r"(?m)^.* \(\d+%\), after \d+ s$", "", errors))


def same_files(one: Path, other: Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def same_parts(one: Path, other: Path) -> None:
    with PartitionStore(one) as there, PartitionStore(other) as here:
        assert there.about == here.about
        for chunk, expected in zip(there.chunks(), here.chunks(), strict=True):
            assert (chunk.first, chunk.nodes) == (expected.first, expected.nodes)
            for name in ARRAYS:
                assert np.array_equal(getattr(chunk, name), getattr(expected, name)), name


def audited(folder: Path) -> list[str]:
    """An audit of persistent bias of forty people."""
    settings = 'title = "Forty"\neffort = 120\ntimeout = 1200'
    kills.write_audit(folder, people=40, settings=settings, analyses="[analyses.pba]\ndelta = [1]")
    return ["audit", "audit.toml"]


def test_what_is_killed_on_a_cluster_changes_nothing(inside: Run, tmp_path: Path) -> None:
    """A worker killed during each verb: the same files as here. The scheduler killed: an error, and --resume goes on here."""
    pytest.importorskip("distributed", reason="--cluster needs dask: pip install 'verifair[distributed]'")
    for name in ("worker", "scheduler", "here"):
        (tmp_path / name).mkdir()
    with local_cluster(tmp_path / "cluster") as dask:
        running = begun([*PBA, "--out", "."], tmp_path / "worker" / "verdicts.sqlite", "verdicts", dask)
        dask.kill(dask.workers[0])
        assert ended(running) == (0, "")
        dask.add(1)

        running = begun([*PARTS, "--store", "parts.sqlite"], tmp_path / "worker" / "parts.sqlite", "chunks", dask)
        dask.kill(dask.workers[0])
        assert ended(running) == (0, "")

        assert inside(*audited(tmp_path), "--out", "there.html", "--cluster", dask.address)[::2] == (0, "")

        running = begun([*PBA, "--out", "."], tmp_path / "scheduler" / "verdicts.sqlite", "verdicts", dask)
        assert dask.scheduler is not None
        dask.scheduler.kill()
        code, errors = ended(running)
        code_audit, _, told = inside(*audited(tmp_path), "--out", "never.html", "--cluster", dask.address)
        assert (code_audit, "no dask scheduler answers" in told) == (4, True), told
        assert (code, "the connection to the scheduler was lost" in errors, "--resume" in errors) == (4, True, True), errors

    for command in ([*PBA, "--out", "here"], [*PARTS, "--store", "here/parts.sqlite"], [*PBA, "--out", "scheduler", "--resume"]):
        code, _, errors = inside(*command)
        assert code == 0, errors
    assert inside(*audited(tmp_path), "--out", "here.html")[0] == 0
    sections = [json.loads((tmp_path / f"{name}.json").read_text())["sections"] for name in ("there", "here")]
    assert [one["answer"] for one in sections[0]] == [one["answer"] for one in sections[1]]
    assert sections[0][0]["evidence"][0]["checked"] == "accepted"
    same_files(tmp_path / "worker", tmp_path / "here")
    same_files(tmp_path / "scheduler", tmp_path / "here")
    same_parts(tmp_path / "worker" / "parts.sqlite", tmp_path / "here" / "parts.sqlite")
    with sqlite3.connect(tmp_path / "worker" / "verdicts.sqlite") as store:
        assert store.execute("SELECT count(*) FROM verdicts").fetchone()[0] == len(
            (tmp_path / "here" / "verdicts.jsonl").read_text().splitlines()
        )
