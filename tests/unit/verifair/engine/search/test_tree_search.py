"""What a search of trees keeps in memory, and what it says that its visits take."""

import gc
import os
import signal
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.onnx.reader import read_model
from encoders.problem import TwinProblem
from encoders.trees import twin
from encoders.trees.joint import LeafTerms
from solvers import clock
from tests.builders import integer, schema_of
from tests.tree_models import random_tree, save
from verifair.engine.questions import goals_of, questions_of, twin_problem
from verifair.engine.search import branch_and_bound
from verifair.engine.search.ensembles import search as module

PEOPLE = schema_of(integer("p", 0, 4), *(integer(f"x{k}", -5, 5) for k in range(3)), positive="logit > 0")


@pytest.fixture
def problem(tmp_path: Path) -> TwinProblem:
    """Of ten pairs of protected values."""
    rng = np.random.default_rng(0)
    path = save(tmp_path / "m.onnx", [random_tree(rng, 4, 4, grid=np.arange(-5.0, 5.0)) for _ in range(5)], 4)
    query = vf.IndividualFairness(model=read_model(path), schema=PEOPLE, protected=["p"])
    _, batch = questions_of(query)
    return twin_problem(query, batch, goals_of(query))


def test_trees_of_pairs_that_are_done_with_are_freed(problem: TwinProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector, which large arrays do not wake: an audit by age took gigabytes."""
    kept, made = weakref.WeakSet[object](), list[type]()
    for of in (LeafTerms, module.TreeSearch):
        def begun(self: object, *given: object, of: type = of, begin: object = of.__init__) -> None:
            begin(self, *given)
            kept.add(self)
            made.append(of)
        monkeypatch.setattr(of, "__init__", begun)
    gc.disable()
    try:
        branch_and_bound.decide(problem)
        twin._join.cache_clear()    # which holds the last few
        assert set(made) == {LeafTerms, module.TreeSearch}
        assert not list(kept)
    finally:
        gc.enable()


def test_trees_of_pairs_asked_long_ago_are_joined_again(problem: TwinProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    held = list[int]()
    visit = module.TreeSearch._visit

    def visited(self: module.TreeSearch, *given: object) -> None:
        visit(self, *given)
        assert self.twin._held == [sum(len(trees.adds) for trees in self.twin._latest.values())]
        held.append(len(self.twin._latest))

    monkeypatch.setattr(module.TreeSearch, "_visit", visited)
    every = branch_and_bound.decide(problem).status.tolist()
    assert max(held) > 1
    held.clear()
    monkeypatch.setattr("encoders.trees.twin.MAX_HELD", 1)
    assert branch_and_bound.decide(problem).status.tolist() == every
    assert set(held) == {1}


def test_joining_and_visiting_count(problem: TwinProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question may take one box alone; each takes half a millisecond or more all the same."""
    visits, visit = list[object](), module.TreeSearch._visit
    monkeypatch.setattr(module.TreeSearch, "_visit", lambda *given: (visits.append(given), visit(*given)))
    with clock.counted(time.monotonic() + 60) as counted:
        branch_and_bound.decide(problem)
    assert counted.spent > len(visits) * module.A_VISIT * clock.A_MULTIPLICATION > 0


def test_a_step_ends_between_pairs(problem: TwinProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    visits, visit = list[float](), module.TreeSearch._visit
    monkeypatch.setattr(module.TreeSearch, "_visit", lambda *given: (visits.append(clock.now()), visit(*given)))
    with clock.counted(time.monotonic() + 60):
        branch_and_bound.decide(problem)
    first = visits[0]
    assert len(visits) > 1
    visits.clear()
    with clock.counted(time.monotonic() + 60):      # time is up during the first visit
        found = branch_and_bound.decide(problem, seconds=first + 1e-4)
    assert len(visits) == 1
    assert "time" in found.out_of.tolist()


def test_ctrl_c_in_a_compiled_loop_is_ctrl_c(problem: TwinProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    explore = module.explore

    def compiled(*given: Any) -> Any:
        """What numba makes of a signal that comes within its loop."""
        try:
            os.kill(os.getpid(), signal.SIGINT)
            return explore(*given)
        except KeyboardInterrupt as error:
            raise SystemError("explore returned a result with an exception set") from error

    monkeypatch.setattr(module, "explore", compiled)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)     # as in the foreground
    try:
        with pytest.raises(KeyboardInterrupt):
            branch_and_bound.decide(problem)
    finally:
        signal.signal(signal.SIGINT, before)
