"""Counted time: it stands still unless work is told, and the wall ends it."""

import time

import pytest

from solvers import clock


def test_outside_time_is_the_walls() -> None:
    before = clock.now()
    clock.spend(1e12)
    assert 0 <= clock.now() - before < 1
    assert clock.counting() is None
    assert clock.patience(3.0) == 3.0


def test_within_it_is_that_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with clock.counted(time.monotonic() + 60) as counted:
        first = clock.now()
        time.sleep(0.05)
        assert clock.now() - first < 1e-4  # a look alone costs a little, so that every loop ends
        assert clock.now() > first
        clock.spend(2 / clock.A_MULTIPLICATION)
        assert clock.now() - first == pytest.approx(2 + clock.A_TASK, abs=1e-4)
        assert 50 < clock.patience(3.0) <= 60
        assert not counted.cut
        with clock.uncounted():
            assert clock.counting() is None
        monkeypatch.setattr("time.monotonic", lambda: counted.ceiling + 1)
        for _ in range(2):  # also for what begins after the end
            deadline = clock.now() + 3600
            assert clock.now() > deadline
        assert counted.cut
    assert clock.counting() is None
