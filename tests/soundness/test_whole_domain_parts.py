"""Partitioned certification against enumeration, part by part; runs that end early; stores that were tampered with."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.network import Booleans
from verifair.checker.kinds.partition import check_partition
from verifair.checker.partition import PROVED, UNKNOWN, VIOLATED, Chunk, Partition, PartitionStore
from verifair.engine.partition import certify_partition
from verifair.errors import DataError

from .fairness_truth import Case
from .random_fairness import LARGEST, STYLES_HERE, near_cases, random_case, small_cases


def wrong_parts(case: Case, partition: Partition) -> Booleans:
    """(parts,) whether a part holds the first copy of a pair that the query forbids, in either order."""
    first, second = case.pairs
    bad = {(i, k) for i, k, is_bad in zip(first.tolist(), second.tolist(), case.wrong(), strict=True) if is_bad}
    part = partition.locate(case.rows)
    out = np.zeros(partition.count, dtype=bool)
    for i, k, earlier in zip(first.tolist(), second.tolist(), case.first_copy, strict=True):
        out[part[i]] |= earlier and ((i, k) in bad or (k, i) in bad)
    return out


def partition_of(case: Case, size: int) -> Partition:
    whole = [case.schema.index(name) for name in case.query.protected]
    return Partition.of(case.schema.domain, *case.box, size=size, whole=whole)


def statuses(path: Path, count: int) -> np.ndarray:
    found = np.full(count, UNKNOWN)
    with PartitionStore(path) as store:
        for first, status in store.statuses():
            found[first : first + len(status)] = status
    return found


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("style", STYLES_HERE)
def test_parts_are_decided_as_enumeration_does(style: str, gap: bool, tmp_path: Path) -> None:
    """Relaxed and constrained ones among them; with many boxes, with few, and with one, which leaves it to neuron branching."""
    cases = near_cases(style, 4, 1e-6, first=200) if gap else small_cases(style, 4, first=200)
    for k, case in enumerate(cases):
        size, path = 2 + k % 2, tmp_path / f"{k}.sqlite"
        budget = vf.Budget(seconds=20, nodes=(None, 5, 1)[k % 3])
        certify_partition(case.query, size=size, store=path, budget=budget)
        partition = partition_of(case, size)
        found, truth = statuses(path, partition.count), wrong_parts(case, partition)
        assert ((found == UNKNOWN) | ((found == VIOLATED) == truth)).all()
        if k % 3 == 0:
            assert (found != UNKNOWN).all()
        report = check_partition(path, network=case.query.network, schema=case.schema)
        assert report.accepted == bool((found != UNKNOWN).any()), (style, case.seed, report.rejections)


def mixed_case() -> Case:
    """One whose parts are some proved, some violated."""
    for seed in range(1000):
        case = random_case(seed, "plain", constrained=False)
        if len(case.rows) <= LARGEST and not any(feature.kind == "real" for feature in case.schema.features):
            truth = wrong_parts(case, partition_of(case, 2))
            if 2 <= truth.sum() <= len(truth) - 2:
                return case
    raise AssertionError("no seed gives such a case")


def test_a_partial_run_is_taken_up_again(tmp_path: Path) -> None:
    case = mixed_case()
    path, whole = tmp_path / "run.sqlite", tmp_path / "whole.sqlite"
    count = partition_of(case, 2).count
    certify_partition(case.query, size=2, store=path, budget=vf.Budget(seconds=1e-9))
    assert (statuses(path, count) == UNKNOWN).all()
    certify_partition(case.query, size=2, store=path, resume=True, budget=vf.Budget(seconds=20, nodes=1))
    certify_partition(case.query, size=2, store=path, resume=True, budget=vf.Budget(seconds=20))
    certify_partition(case.query, size=2, store=whole, budget=vf.Budget(seconds=20))
    truth = wrong_parts(case, partition_of(case, 2))
    assert (statuses(path, count) == np.where(truth, VIOLATED, PROVED)).all()
    assert (statuses(whole, count) == statuses(path, count)).all()


def test_a_store_is_about_one_question_only(tmp_path: Path) -> None:
    case = mixed_case()
    path = tmp_path / "run.sqlite"
    certify_partition(case.query, size=2, store=path)
    differ = "any" if case.query.differ == "all" else "all"
    others = [(case.query, 3), (replace(case.query, epsilon=0.1), 2), (replace(case.query, differ=differ), 2)]
    for query, size in others:
        for resume in (False, True):
            with pytest.raises(DataError, match="another question"):
                certify_partition(query, size=size, store=path, resume=resume)
    with pytest.raises(DataError, match="this question already"):
        certify_partition(case.query, size=2, store=path)


def rewritten(path: Path, change: Any) -> None:
    """Every chunk of a store after `change`."""
    with PartitionStore(path) as store:
        about = {key: value for key, value in store.about.items() if key != "format"}
        chunks = list(store.chunks())
    with PartitionStore(path, about, resume=True) as store:
        for chunk in chunks:
            store.add(change(chunk))


def all_proved(chunk: Chunk) -> Chunk:
    """Every part claimed as proved by a single leaf for each question."""
    count = len(chunk)
    return replace(
        chunk, status=np.full(count, PROVED, dtype=np.int8), pair=chunk.pair[:0], goal=chunk.goal[:0], x=chunk.x[:0],
        margins=chunk.margins[:0], agrees=chunk.agrees[:0],
    )  # fmt: skip


def with_leaves(chunk: Chunk, questions: int) -> Chunk:
    leaves = np.ones(questions, dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    return replace(
        all_proved(chunk), size=leaves, feature=-leaves, cut=np.zeros(questions), phase_size=none, phase_feature=none,
        phase_cut=np.empty(0), phase_start=none, phase_index=none, phase_value=np.empty(0),
    )  # fmt: skip


def moved_witness(chunk: Chunk) -> Chunk:
    x = chunk.x.copy()
    x[0] = x[-1]
    return replace(chunk, x=x)


def swapped(chunk: Chunk) -> Chunk:
    """Each verdict given to its mirror image."""
    return replace(chunk, status=chunk.status[::-1].copy())


@pytest.mark.parametrize("change", [all_proved, moved_witness, swapped, "goal", "leaves", "tree"])
def test_a_store_that_was_tampered_with_is_rejected(change: Any, tmp_path: Path) -> None:
    case = mixed_case()
    path = tmp_path / "run.sqlite"
    certify_partition(case.query, size=2, store=path)
    assert check_partition(path, network=case.query.network, schema=case.schema).accepted
    match change:
        case "goal":
            rewritten(path, lambda chunk: replace(chunk, goal=1 - chunk.goal))
        case "tree":
            rewritten(path, lambda chunk: replace(chunk, feature=chunk.feature[:-1], cut=chunk.cut[:-1]))
        case "leaves":
            pairs = len(case_pairs(case))
            rewritten(path, lambda chunk: with_leaves(chunk, pairs * len(chunk)))
        case _:
            rewritten(path, change)
    assert not check_partition(path, network=case.query.network, schema=case.schema).accepted


def case_pairs(case: Case) -> set[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Pairs of protected combinations that the query compares."""
    index = [case.schema.index(name) for name in case.query.protected]
    first, second = case.pairs
    return {
        (tuple(case.rows[i, index]), tuple(case.rows[k, index]))
        for i, k, earlier in zip(first.tolist(), second.tolist(), case.first_copy, strict=True)
        if earlier
    }


def test_a_store_about_another_epsilon_network_or_schema_is_rejected(tmp_path: Path) -> None:
    case = mixed_case()
    gaps = case.gaps()
    case = case.asking(epsilon=float(max(gaps) + Decimal("1e-6")), relax={})
    path = tmp_path / "run.sqlite"
    certify_partition(case.query, size=2, store=path)
    assert check_partition(path, network=case.query.network, schema=case.schema).accepted
    other = replace(case.query.network, source_sha256="0" * 64)
    assert not check_partition(path, network=other, schema=case.schema).accepted
    with sqlite3.connect(path) as connection:
        (about,) = connection.execute("SELECT value FROM about").fetchone()
        smaller = float(max(gaps) - Decimal("1e-6"))
        connection.execute("UPDATE about SET value = ?", (about.replace(repr(case.query.epsilon), repr(smaller)),))
    assert not check_partition(path, network=case.query.network, schema=case.schema).accepted
