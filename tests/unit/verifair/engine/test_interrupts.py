"""Ctrl-C during steps that it would break."""

import os
import signal
from collections.abc import Iterator

import pytest

from verifair.engine.parallel import uninterrupted
from verifair.interrupts import noted_interrupt


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """As Python has it, also in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_step_ends_before_it_is_interrupted() -> None:
    done = []

    def step() -> None:
        with uninterrupted():
            interrupt()
            done.append(1)
        done.append(2)

    with pytest.raises(KeyboardInterrupt):
        step()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def twice(done: list[int]) -> None:
    with uninterrupted():
        interrupt()
        done.append(1)
        interrupt()
        done.append(2)


def test_a_second_one_interrupts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        twice(done := [])
    assert done == [1]


@pytest.mark.parametrize("deferred", [False, True])
def test_a_second_one_ends_work_that_notes_the_first(deferred: bool) -> None:
    def work() -> None:
        with noted_interrupt(deferred=deferred) as interrupted:
            try:
                twice([])
            finally:
                assert interrupted()

    with pytest.raises(KeyboardInterrupt):
        work()


def test_work_that_notes_an_interrupt_goes_on_after_the_step() -> None:
    with noted_interrupt(deferred=True) as interrupted:
        with uninterrupted():
            interrupt()
        assert interrupted()


def test_what_a_compiled_loop_makes_of_an_interrupt_is_one_again() -> None:
    def looped(interrupts: int) -> None:
        with uninterrupted():
            for _ in range(interrupts):
                try:
                    interrupt()
                except KeyboardInterrupt as error:
                    raise SystemError("returned a result with an exception set") from error
            raise SystemError("another")

    with pytest.raises(KeyboardInterrupt):
        looped(2)
    with pytest.raises(SystemError, match="another"):
        looped(0)
