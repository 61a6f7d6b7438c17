"""What a resumed run asks again, and what of it is kept: results like those of an undisturbed run, and never fewer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from verifair import datasets
from verifair.checker.partition import UNKNOWN, PartitionStore
from verifair.engine.partition import certify_partition
from verifair.engine.store import Store, VerdictRecord
from verifair.systems.pba import rows

RECORD = VerdictRecord(
    sensitive="sex", goal="observed", delta=1.0, row=0, to=1.0, against=0, group=0.0, label=1, status="unknown", reason="nodes",
    lower=0.0, upper=0.0, engine="", trust="", float32_agrees=None, nodes=50, witness=None, margins=None, tree=None, claim=None,
)  # fmt: skip


@pytest.mark.parametrize(("nodes", "again"), [(50, False), (10, False), (51, True), (None, True)])
def test_out_of_boxes_is_asked_again_only_with_more_of_them(tmp_path: Path, nodes: int | None, again: bool) -> None:
    with Store(tmp_path / "v.sqlite") as store:
        store.begin("run", {}, resume=False)
        store.add("run", [RECORD, replace(RECORD, row=1, reason="time"), replace(RECORD, row=2, status="proved", reason="")])
        assert {key[3] for key in store.decided("run", nodes)} == ({2} if again else {0, 2})


def german() -> tuple[vf.PersistentBias, pd.DataFrame]:
    data, network = datasets.load("german"), vf.read_onnx(datasets.network_path("german"))
    query = vf.PersistentBias(network=network, schema=data.schema, sensitive="sex", delta=[12])
    return query, data.test


def test_a_resumed_run_with_few_boxes_is_an_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some questions end without an answer for want of boxes: asked again, in a batch of others, they could end otherwise."""
    query, frame = german()
    monkeypatch.setattr(rows, "BATCH", 32)
    sizes: list[int] = []
    solve = rows._solve_batch
    monkeypatch.setattr(rows, "_solve_batch", lambda *task: sizes.append(len(task[1].rows)) or solve(*task))
    budget = vf.Budget(nodes=1)
    whole = vf.verify_rows(query, frame, method="bnb", budget=budget)
    assert 0 < (whole["reason"] == "nodes").sum() < len(whole)
    store, done = tmp_path / "v.sqlite", 0

    class Killed(BaseException):
        """As if by kill -9: between two batches."""

    def progress(finished: int, total: int) -> None:
        nonlocal done
        done += 1
        if done == 4:
            raise Killed

    with pytest.raises(Killed):
        vf.verify_rows(query, frame, method="bnb", budget=budget, store=store, progress=progress)
    every, sizes[:] = sizes[:-3], []
    resumed = vf.verify_rows(query, frame, method="bnb", budget=budget, store=store, resume=True)
    pd.testing.assert_frame_equal(resumed, whole)
    assert sizes == every[3:], "the batches of the undisturbed run, but for the three that were kept"


def test_a_chunk_that_had_more_time_stays(tmp_path: Path) -> None:
    data, network = datasets.load("german"), vf.read_onnx(datasets.network_path("german"))
    box = {"duration": 12, "credit-amount": (1000, 2000)}
    query = vf.IndividualFairness(network=network, schema=data.schema, protected=["sex"], box=box)
    path = certify_partition(query, size=40, store=tmp_path / "p.sqlite")
    with PartitionStore(path) as kept:
        whole = list(kept.chunks())
        about = {key: value for key, value in kept.about.items() if key != "format"}
    first = whole[0]
    assert (first.status != UNKNOWN).all()
    nothing = replace(first, status=np.full(len(first), UNKNOWN, dtype=np.int8), seconds=0.0)
    with PartitionStore(path, about, resume=True) as kept:
        kept.add(nothing)
        assert np.array_equal(kept.chunk(first.first).status, first.status)
        kept.add(replace(first, seconds=-1.0))
        assert kept.chunk(first.first).seconds == -1.0, "as many decided: the later one"
