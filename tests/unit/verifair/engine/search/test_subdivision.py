"""The loop of all searches: in which order open parts are taken, what is dropped, and what ends it."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pytest

from encoders.arrays import Integers
from encoders.domain import Batched
from verifair.engine.search.subdivision import Objects, Open, subdivide


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts(Batched):
    number: Integers

    @classmethod
    def of(cls, *numbers: int) -> Parts:
        return cls(number=np.array(numbers, dtype=np.int64))


def taken(open_: Open[Parts]) -> list[list[int]]:
    found = []
    while (batch := open_.take(sys.maxsize)) is not None:
        found.append(batch.number.tolist())
    return found


def test_the_newest_come_first_and_each_batch_from_its_beginning() -> None:
    open_ = Open[Parts](2)
    open_.add(Parts.of(1, 2, 3))
    open_.add(Parts.of(4))
    assert taken(open_) == [[4, 1], [2, 3]]


def test_the_oldest_come_first_where_that_is_asked_for() -> None:
    open_ = Open[Parts](1, oldest=True)
    for k in (1, 2, 3):
        open_.add(Parts.of(k))
    assert taken(open_) == [[1], [2], [3]]


def test_a_batch_is_of_one_priority_the_highest() -> None:
    open_ = Open[Parts](4)
    for numbers, priority in (((1, 2), 1.0), ((3,), 2.0), ((4,), 1.0), ((5,), -np.inf)):
        open_.add(Parts.of(*numbers), priority)
    assert open_.top == 2.0
    assert taken(open_) == [[3], [4, 1, 2], [5]]
    assert open_.top == -np.inf


def test_what_needs_no_more_work_is_dropped_when_it_is_taken() -> None:
    open_ = Open[Parts](2, lambda batch: batch.take(batch.number % 2 == 0))
    open_.add(Parts.of(1, 2, 3, 4))
    open_.add(Parts.of(5, 7))
    open_.add(Parts.of(9), 3.0)
    assert taken(open_) == [[2, 4]]


def test_nothing_is_lost_and_nothing_taken_twice() -> None:
    rng = np.random.default_rng(0)
    open_, added, found = Open[Parts](5), 0, list[int]()
    for _ in range(200):
        if rng.random() < 0.6:
            size = int(rng.integers(0, 12))
            open_.add(Parts.of(*range(added, added + size)), float(rng.integers(0, 3)))
            added += size
        elif (batch := open_.take(sys.maxsize)) is not None:
            assert 0 < len(batch) <= 5
            found += batch.number.tolist()
    found += [number for batch in open_.batches for number in batch.number.tolist()]
    assert sorted(found) == list(range(added))


@pytest.mark.parametrize("most", [0, 3, 100])
def test_halves_are_looked_at_until_nothing_is_open_or_the_search_has_ended(most: int) -> None:
    open_, seen = Open[Parts](1), list[int]()
    open_.add(Parts.of(4))

    def step(batch: Parts) -> None:
        seen.append(int(batch.number[0]))
        if seen[-1] > 1:
            open_.add(Parts.of(seen[-1] // 2, seen[-1] // 2))

    subdivide(open_, step, ended=lambda: len(seen) >= most)
    assert seen == [4, 2, 1, 1, 2, 1, 1][:most]
    assert (open_.take(sys.maxsize) is None) == (most == 100)


@pytest.mark.parametrize(("cost", "whole"), [(1e-4, True), (0.1, False)])
def test_batches_shrink_towards_the_deadline(monkeypatch: pytest.MonkeyPatch, cost: float, whole: bool) -> None:
    """By a clock that only parts move: none is begun too late, and dear ones are not taken a hundred at a time."""
    clock, sizes = [0.0], list[int]()
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    open_ = Open[Parts](100)
    open_.add(Parts.of(*range(1000)))

    def step(batch: Parts) -> None:
        sizes.append(len(batch))
        clock[0] += cost * len(batch)

    subdivide(open_, step, ended=lambda: clock[0] > 5.0, deadline=5.0, cost=0.1)
    assert clock[0] <= 5.0 + 2 * cost
    assert (sum(sizes) == 1000) == whole
    assert sizes[0] == 25  # by the cost that was named, half of the time
    assert max(sizes) == (100 if whole else 25)


def test_items_are_objects() -> None:
    parts = Objects.of([{"a": 1}, {"b": 2}])
    assert parts.take(slice(1, None)).items.tolist() == [{"b": 2}]
    assert len(Objects.of([])) == 0
