"""Batches on this machine: rounds, a process that loses its parent, the same moment on another clock."""

import inspect
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import joblib
import numpy as np
import psutil
import pytest
from joblib.externals.loky import process_executor

from solvers import clock
from verifair.engine import parallel
from verifair.engine.parallel import Deadline, Helpers, ProcessError, Shared, as_done, workers


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


def test_a_deadline_does_not_move_with_the_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sets the clock back an hour; what another process receives after that is the same moment as well."""
    deadline = Deadline.after(60)
    day = time.time
    monkeypatch.setattr(time, "time", lambda: day() - 3600)
    assert deadline.left() == pytest.approx(60, abs=5)
    assert pickle.loads(pickle.dumps(deadline)).left() == pytest.approx(60, abs=5)


def _known(shared: Shared[int], deadline: Deadline, *, add: int = 0) -> int:
    return shared.value + add + (deadline.left() > 0)


def test_joblib_still_words_its_warning_so() -> None:
    """A process that held much memory is replaced, which concerns nobody: what joblib says of it is not shown."""
    words = " ".join(re.findall(r'"([^"\n]*)"', inspect.getsource(process_executor)))
    assert parallel.REPLACED in re.sub(r"\s+", " ", words)


def test_where_work_is_counted_arguments_are_those_of_the_task() -> None:
    """`Shared` and `Deadline` stay arguments of their own, so that a cluster translates them."""
    seen = []

    class Elsewhere:
        def workers(self) -> int:
            return 2

        def as_done(self, tasks: Iterator[parallel.Task]) -> Iterator[Any]:
            for function, args, named in tasks:
                seen.append({type(one) for one in args})
                yield function(*args, **named)

    token = parallel.MACHINES.set(Elsewhere())
    try:
        with clock.counted(time.monotonic() + 60) as counting:
            deadline = Deadline.after(5)
            tasks = (joblib.delayed(_known)(Shared(value=k), deadline, add=1) for k in range(3))
            assert sorted(as_done(tasks, 1)) == [2, 3, 4]
            assert counting.spent > 0
        assert workers(1) == 2
    finally:
        parallel.MACHINES.reset(token)
    assert all({Shared, Deadline} <= kinds for kinds in seen)
    assert workers(1) == 1


def _steps(deadline: Deadline, most: int) -> int:
    """A search of so many steps, if its deadline allows them: it makes half as many at once as there is time for."""
    done = 0
    while done < most and deadline.left() > 0:
        step = min(most - done, max(1, int(0.5 * deadline.left() / 0.01)))
        clock.spend(step * 0.01 / clock.A_MULTIPLICATION)
        done += step
    return done


class LateAndBackwards:
    """Machines that are given four tasks before they return any, the last one first."""

    def workers(self) -> int:
        return 4

    def as_done(self, tasks: Iterator[parallel.Task]) -> Iterator[Any]:
        while part := list(islice(tasks, 4)):
            for function, args, named in reversed(part):
                yield function(*args, **named)


@pytest.mark.parametrize("effort", [0.3, 1.0, 1.7, 2.9, 10.0])
def test_an_effort_does_the_same_whoever_works(effort: float) -> None:
    found = []
    for machines in (None, LateAndBackwards()):
        token = parallel.MACHINES.set(machines)
        with clock.counted(time.monotonic() + 60) as counting:
            deadline = Deadline.after(effort)
            done = list(as_done((joblib.delayed(_steps)(deadline, 5 + 3 * (k % 7)) for k in range(22)), 1))
        parallel.MACHINES.reset(token)
        found.append((done, counting.spent))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-9)
    assert (min(found[0][0]) < 5) == (effort < 3)


def test_who_hands_out_counted_work_has_the_clock() -> None:
    """Tasks are asked for by others' threads, and many a generator of them looks how much time is left."""
    token = parallel.MACHINES.set(LateAndBackwards())
    try:
        with clock.counted(time.monotonic() + 60):
            deadline = Deadline.after(5)
            left = (deadline.left() for _ in range(6))
            tasks = (joblib.delayed(_known)(Shared(value=k), deadline) for k, more in enumerate(left) if more > 0)
            assert list(as_done(tasks, 1)) == [1, 2, 3, 4, 5, 6]
    finally:
        parallel.MACHINES.reset(token)


def test_who_receives_results_of_counted_work_has_the_clock() -> None:
    token = parallel.MACHINES.set(LateAndBackwards())
    try:
        with clock.counted(time.monotonic() + 60) as counting:
            tasks = (joblib.delayed(_known)(Shared(value=k), Deadline.after(5)) for k in range(6))
            assert [clock.counting() for _ in as_done(tasks, 1)] == [counting] * 6
    finally:
        parallel.MACHINES.reset(token)


def test_a_process_whose_parent_died_before_it_began_ends_at_once() -> None:
    late = "import time; from verifair.engine.parallel import _begin; _begin(1 << 30); time.sleep(100)"
    assert subprocess.run([sys.executable, "-c", late], check=False, timeout=60).returncode == 1


def test_a_process_that_is_killed_is_named_with_the_remedy() -> None:
    with pytest.raises(ProcessError, match=r"--jobs 2: one of the processes was killed .* fewer; .*--resume"):
        list(as_done((joblib.delayed(os._exit)(1) for _ in range(2)), 2))


def _who(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_a_search_works_alone_until_its_helpers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An easy search starts none; nobody waits for them; where work is counted, steps are those of one process."""
    alone = Helpers(Shared(value=_who), 2)
    monkeypatch.setattr(alone, "_alone_until", np.inf)
    assert (alone.ready(), alone.together([(7,)])) == (1, [(7, os.getpid())])
    assert list(alone.each((k,) for k in (5, 6))) == [(0, (5, os.getpid())), (1, (6, os.getpid()))]
    helpers, until = Helpers(Shared(value=_who), 2), time.monotonic() + 60
    while helpers.ready() < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert (helpers.ready(), helpers.steps()) == (2, 2)
    found = helpers.together([(k,) for k in range(6)])
    assert [number for number, _ in found] == list(range(6))
    assert os.getpid() not in {process for _, process in found}
    each = sorted(helpers.each((k,) for k in range(6)))
    assert [(number, argument) for number, (argument, _) in each] == [(k, k) for k in range(6)]
    assert os.getpid() not in {process for _, (_, process) in each}
    with clock.counted(time.monotonic() + 60):
        assert (helpers.ready(), helpers.steps()) == (2, 1)
    with joblib.parallel_config(backend="threading"):
        assert Helpers(Shared(value=_who), 3).ready() == 3


def test_one_process_starts_no_other() -> None:
    """Not even joblib's and multiprocessing's trackers."""
    code = (
        "import joblib, psutil\nfrom verifair.engine.parallel import as_done\n"
        "assert list(as_done((joblib.delayed(abs)(-k) for k in range(3)), 1)) == [0, 1, 2]\n"
        "assert not psutil.Process().children()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


ORPHANS = """
import sys, time
import joblib
from verifair.engine.parallel import as_done
for _ in as_done((joblib.delayed(time.sleep)(k > 1) for k in range(400)), 2):
    print("begun", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="asks for children by the parent's number")
def test_processes_end_soon_after_a_parent_that_is_killed() -> None:
    running = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    children = psutil.Process(running.pid).children(recursive=True)
    assert len(children) >= 2
    running.kill()
    running.communicate()
    _, alive = psutil.wait_procs(children, timeout=60)
    for one in alive:
        one.kill()
    assert not alive


INTERRUPTED_AT_THE_START = """
import os, signal
import joblib
from joblib.externals.loky.backend import fork_exec as module
from verifair.engine.parallel import as_done

started, genuine = [], module.fork_exec

def fork_exec(*arguments, **options):
    started.append(genuine(*arguments, **options))
    if len(started) == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return started[-1]

module.fork_exec = fork_exec
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    list(as_done((joblib.delayed(abs)(-k) for k in range(3)), 2))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_while_a_process_starts_leaves_it_no_half_message_to_read() -> None:
    """The process would print a traceback."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_AT_THE_START], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
