"""Runs in processes of their own: what is killed or crashes is an answer like another, and a run continues where it was left."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from errno import ENOSPC
from multiprocessing import current_process
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from solvers.outcome import Budget
from tests.bench_support import Fake, record
from tests.builders import integer, one_hot, schema_of
from tests.tree_models import save
from verifair import datasets
from verifair.bench import methods, worker
from verifair.bench.cases import QUICK, chosen, families
from verifair.bench.cases.family import BenchCase
from verifair.bench.cases.shipped import own, own_families
from verifair.bench.competitors import Competitor
from verifair.bench.contradictions import contradictions
from verifair.bench.peers.process import Tool
from verifair.bench.questions import DecisionQuestion, FileQuestion, fingerprint, subject
from verifair.bench.records import NAME, Journal
from verifair.bench.run import in_turns, rotated, run
from verifair.bench.worker import measure
from verifair.engine import parallel
from verifair.errors import ClusterError, DataError, QueryError
from verifair.training.onnx_writer import onnx_model

SETTINGS = {"limit": 5.0}
ENGINE = Competitor(method="bnb")


def case(name: str = "random-wide/4-1") -> BenchCase:
    (one,) = chosen([name], 0)
    return one


def asked(journal: Journal, *competitors: Competitor, name: str = "random-wide/4-1", **changed: Any) -> None:
    settings = {"limit": 5.0, "repeats": 1, "patience": 2, **changed}
    run(chosen([name], 0), competitors, journal, **settings)


def test_there_are_enough_cases_of_every_kind_and_no_name_is_used_twice() -> None:
    names = [one.name for one in chosen((), 0)]
    assert len(names) >= 60
    assert len(set(names)) == len(names)
    assert {family.kind for family in families()} == {"decision", "relaxation", "minimum", "center"}
    assert all(list(family.sizes) == sorted(family.sizes) for family in families())
    assert {one.family.kind for one in chosen(QUICK, 0)} == {family.kind for family in families()}


def test_a_seed_is_a_set_of_questions_on_every_start_of_python() -> None:
    names = ["random-deep/2-1", "pba-german/3-0", "fair-german/2-1"]
    here = [fingerprint(one.question()) for name in names for one in chosen([name], 0)]
    text = (
        "from verifair.bench.cases import chosen; from verifair.bench.questions import fingerprint\n"
        f"print(*(fingerprint(one.question()) for name in {names} for one in chosen([name], 0)))"
    )
    there = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True)
    assert there.stdout.split() == here
    other = [fingerprint(one.question()) for name in names for one in chosen([name], 1)]
    assert not set(here) & set(other)


def test_questions_about_one_box_share_their_subject() -> None:
    decision, least, relaxed = (case(f"{family}/3-0").question() for family in ("pba-german", "min-german", "lp-german"))
    assert subject(decision) == subject(least) == subject(relaxed)
    assert len({fingerprint(decision), fingerprint(least), fingerprint(relaxed)}) == 3


def test_one_instance_with_another_coverage_is_another_subject() -> None:
    assert subject(case("center-german/10-0").question()) != subject(case("part-german/10-0").question())


def test_a_network_of_ones_own_is_asked_as_its_schema_describes_it(tmp_path: Path) -> None:
    """With a category that has no column it was an internal error; a threshold of the schema was taken for 0."""
    model, schema_file, data = tmp_path / "m.onnx", tmp_path / "s.toml", tmp_path / "t.csv"
    weights = [(np.array([[1, 0, 0], [0, 1, 3]]), np.zeros(2)), (np.ones((1, 2)), np.zeros(1))]     # age, and 1 for b, 3 for c
    model.write_bytes(onnx_model([(w.astype(np.float32), b.astype(np.float32)) for w, b in weights], {}).SerializeToString())
    job = one_hot("job", "a", "b", "c", dropped="a", protected=True)
    schema_file.write_text(schema_of(integer("age", 0, 3, unit=1), job, positive="logit > 2").dumps(), encoding="utf-8")
    data.write_text("age,job\n0,a\n1,b\n3,a\n0,c\n2,a\n", encoding="utf-8")
    asked = own(model, schema_file, data)
    assert asked.network.inputs == asked.schema.domain.columns == 4
    assert asked.table.labels.tolist() == [0, 0, 1, 1, 0]
    assert all(one.build(one.sizes[0], 0, 0) is not None for one in own_families(model, schema_file, data))


def test_trees_of_ones_own_are_asked_about_the_favourable_classes(tmp_path: Path) -> None:
    """Those of three classes; labels are classes, and what needs layers is not asked."""
    model, schema_file, data = tmp_path / "m.onnx", tmp_path / "s.toml", tmp_path / "t.csv"
    trees = [(0, "BRANCH_LEQ", 1.5, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]), (1, "BRANCH_LEQ", 0.5, [2.0, 0.0, 0.0], [0.0, 0.0, 0.5])]
    save(model, trees, 2, classes=3, transform="SOFTMAX")
    described = schema_of(integer("age", 0, 3, unit=1), integer("sex", 0, 1, protected=True), positive="class in [1, 2]", label="y")
    schema_file.write_text(described.dumps(), encoding="utf-8")
    data.write_text("age,sex,y\n0,0,0\n1,1,1\n3,1,2\n2,0,2\n", encoding="utf-8")
    asked = own(model, schema_file, data)
    assert asked.table.labels.tolist() == [0, 1, 1, 1]
    assert asked.table.predicted.tolist() == [0, 1, 1, 0]
    families = own_families(model, schema_file, data)
    assert {one.name for one in families} == {"pba-own", "robust-own", "fair-own", "gap-own", "parts-own"}
    flips = next(one for one in families if one.name == "fair-own").build(1, 0, 0)
    assert isinstance(flips, DecisionQuestion)
    assert methods.decide(flips, "bnb", None, Budget(seconds=20)).status == "violated"
    assert methods.decide(flips, "milp", "highs", Budget(seconds=20)).status == "violated"


def test_a_glob_that_matches_nothing_is_refused() -> None:
    with pytest.raises(QueryError, match="families are pba-german"):
        chosen(["pba-mars/*"], 0)


def test_what_ignores_its_limit_is_killed_and_unknown_for_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE", (1.0, 0.3))
    found = measure(Fake(method="hang"), case().question(), seconds=0.2, seed=0)
    assert (found.reply.status, found.reply.reason) == ("unknown", "time")
    assert 0.4 <= found.total_seconds < 30


@pytest.mark.parametrize(("method", "reason", "note"), [
    ("crash", "solver-error", "SIGSEGV"), ("throw", "solver-error", "ValueError: found a bug"),
    ("licence", "licence", "too large"), ("unloadable", "solver-error", "no such library"),
])
def test_no_failure_is_lost(method: str, reason: str, note: str) -> None:
    found = measure(Fake(method=method), case().question(), seconds=5, seed=0)
    assert (found.reply.status, found.reply.reason) == ("unknown", reason)
    assert note in found.reply.note


@pytest.mark.skipif(not worker.CLEAR.exists(), reason="peaks can be reset on Linux only")
def test_a_process_whose_benchmark_is_interrupted_before_it_asks_ends_quietly() -> None:
    here, there = worker._context().Pipe()
    process = worker._context().Process(target=worker.work, args=(there,))  # type: ignore[attr-defined]
    here.close()
    worker._start(process)
    there.close()
    process.join(30)
    assert process.exitcode == 0


def test_memory_is_what_the_question_took() -> None:
    big = measure(Fake(method="eat"), case().question(), seconds=30, seed=0)
    small = measure(ENGINE, case().question(), seconds=30, seed=0)
    assert big.peak_mb is not None
    assert small.peak_mb is not None
    assert 60 <= big.peak_mb <= 80
    assert small.peak_mb < 40


def test_a_liar_is_caught(tmp_path: Path) -> None:
    with Journal(tmp_path, SETTINGS, resume=False) as journal:
        asked(journal, ENGINE, Fake(method="lie"))
        (found,) = contradictions(journal.records.values())
    assert found.what == "proved against violated"
    assert {found.first.competitor, found.second.competitor} == {"lie", "bnb"}


def test_an_interrupted_run_continues_and_asks_nothing_twice(tmp_path: Path) -> None:
    def stop(done: int, total: int, now: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    pair = ENGINE, Competitor(method="auto")
    with Journal(tmp_path, SETTINGS, resume=False) as journal, pytest.raises(KeyboardInterrupt):
        asked(journal, *pair, name="random-wide/4-*", repeats=2, progress=stop)
    kept = (tmp_path / NAME).read_bytes()
    assert kept.count(b"\n") == 1 + 3
    (tmp_path / NAME).write_bytes(kept + b'{"case": "random-w')  # what kill -9 leaves
    with Journal(tmp_path, SETTINGS, resume=True) as journal:
        asked(journal, *pair, name="random-wide/4-*", repeats=2)
    content = (tmp_path / NAME).read_bytes()
    assert content.startswith(kept)
    lines = [json.loads(line) for line in content.splitlines()[1:]]
    keys = [(line["case"], line["method"], line["repeat"]) for line in lines]
    assert len(keys) == len(set(keys)) == 2 * 2 * 2


def test_a_journal_names_its_file_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(ENOSPC, "No space left on device")

    with Journal(tmp_path, SETTINGS, resume=False) as journal:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / NAME}'"):
            journal.add(record())


def test_a_journal_is_not_mixed_up(tmp_path: Path) -> None:
    with Journal(tmp_path, SETTINGS, resume=False) as journal:
        journal.add(record())
    with pytest.raises(DataError, match="--resume"):
        Journal(tmp_path, SETTINGS, resume=False)
    with pytest.raises(DataError, match=r"limit 5\.0 there, 6\.0 now"):
        Journal(tmp_path, {"limit": 6.0}, resume=True)
    with Journal(tmp_path, SETTINGS, resume=True) as journal:
        assert list(journal.records.values()) == [record()]
        with pytest.raises(DataError, match="another question"):
            journal.holds("f/1-0", "bnb", 0, "other", "")
        with pytest.raises(DataError, match=r"was version unknown there and is 2\.0 now"):
            journal.holds("f/1-0", "bnb", 0, "q", "2.0")


@pytest.mark.parametrize("content", [b"no json\n", b"[1]\n", b'{"settings": {"limit": 5.0}}\n{"case": 1}\n', b"\xff\xfe\n"])
def test_what_is_no_journal_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataError, match="journal"):
        Journal(tmp_path, SETTINGS, resume=True)


def test_who_is_out_of_time_twice_is_not_asked_about_larger_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE", (1.0, 0.1))
    with Journal(tmp_path, SETTINGS, resume=False) as journal:
        asked(journal, Fake(method="hang"), name="random-wide/*-1", limit=0.05, repeats=2)
        said = [(one.size, one.reason) for one in journal.records.values()]
    assert said == [(4, "time"), (8, "time"), (16, "skipped"), (32, "skipped")]


def test_several_processes_ask_and_skip_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE", (1.0, 0.1))
    said = []
    for jobs in (1, 2):
        with Journal(tmp_path / str(jobs), SETTINGS, resume=False) as journal:
            told: list[tuple[int, int]] = []

            def tell(done: int, total: int, now: str, told: list[tuple[int, int]] = told) -> None:
                told.append((done, total))

            pair = Fake(method="throw"), Fake(method="licence")
            asked(journal, *pair, name="random-*/*-1", repeats=2, patience=1, jobs=jobs, progress=tell)
        assert told == sorted(told)
        assert told[-1][0] == told[-1][1] == 2 * 2 * len(chosen(["random-*/*-1"], 0))
        said.append({key: (one.reason, one.question, one.seed) for key, one in journal.records.items()})
    assert said[0] == said[1]
    assert {reason for reason, _, _ in said[0].values()} == {"solver-error", "licence", "skipped"}


@contextmanager
def elsewhere() -> Iterator[list[str]]:
    """Machines to which tasks travel; the names of the cases, as their results come."""
    class Machines:
        def workers(self) -> int:
            return 2

        def as_done(self, tasks: Iterator[parallel.Task]) -> Iterator[Any]:
            for task in tasks:
                function, args, named = cloudpickle.loads(cloudpickle.dumps(task))
                name, records = function(*args, **named)
                names.append(name)
                yield name, records

    names: list[str] = []
    token = parallel.MACHINES.set(Machines())
    yield names
    parallel.MACHINES.reset(token)


def test_each_case_is_measured_on_one_machine(tmp_path: Path) -> None:
    pair = ENGINE, Competitor(method="auto")
    with Journal(tmp_path, SETTINGS, resume=False) as journal, elsewhere() as names:
        asked(journal, *pair, name="random-wide/4-*", repeats=2)
        assert {one.status for one in journal.records.values()} <= {"proved", "violated"}
        assert len(journal.records) == 2 * 2 * len(names)
        asked(journal, *pair, name="random-wide/4-*", repeats=2)
        assert len(names) == 2 * len(set(names)) == 4  # asked anew, and nothing of it was left to measure


def test_machines_that_cannot_measure_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Competitor(method="gone", tool=Tool(name="gone", words=("/nowhere/verifier", "{onnx}", "{vnnlib}", "{results}")))
    old = replace(ENGINE, method="milp", solver="highs", version="0.1")
    with Journal(tmp_path, SETTINGS, resume=False) as journal, elsewhere():
        with pytest.raises(ClusterError, match=r"gone \(/nowhere/verifier is not there\), milp:highs \S+ \(here 0\.1\)"):
            asked(journal, gone, old)
        with pytest.raises(ClusterError, match=r"milp:own \(missing\)"):
            asked(journal, replace(old, solver="own"))
        monkeypatch.setitem(current_process()._config, "daemon", True)  # type: ignore[attr-defined]
        with pytest.raises(ClusterError, match="DASK_DISTRIBUTED__WORKER__DAEMON=False"):
            asked(journal, ENGINE)
        assert not journal.records


def test_files_of_a_question_are_those_of_the_machine_that_asks(tmp_path: Path) -> None:
    query = tmp_path / "q.vnnlib"
    query.write_text("(declare-const X_0 Real)", encoding="utf-8")
    question = FileQuestion.of(query, {"N": datasets.network_path("german")})
    assert question.there()
    query.write_text("(declare-const X_1 Real)", encoding="utf-8")
    assert not question.there()
    query.unlink()
    assert not question.there()


def test_competitors_take_turns() -> None:
    assert rotated([ENGINE, *(Fake(method=m) for m in "ab")], 4)[0].method == "a"
    order = [[one.family.name for one in at_once] for at_once in in_turns(chosen(["random-*/*"], 0))]
    assert order[:2] == [["random-wide", "random-deep", "random-hundred", "random-trees", "random-classes"]] * 2
