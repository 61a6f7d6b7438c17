"""Loops over trees are compiled before a clock starts, and without a folder to keep them in; visits end by the nodes they read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import verifair as vf
from encoders.onnx.reader import read_model
from encoders.trees import joint
from encoders.trees.ensemble import TreeEnsemble
from tests.builders import integer, schema_of
from tests.tree_models import random_tree, save
from verifair.engine.questions import goals_of, questions_of, twin_problem
from verifair.engine.search import ready as module
from verifair.engine.search.box_search import Limits
from verifair.engine.search.ensembles import search as tree_search
from verifair.engine.search.ensembles.search import TreeSearch
from verifair.engine.search.ready import ready

PEOPLE = schema_of(integer("p", 0, 1), *(integer(f"x{k}", -50, 50) for k in range(8)), positive="logit > 0")
NOWHERE = """
import sys
import numba
def nowhere(*_, **__):
    raise RuntimeError("cannot cache function: no locator available")
caching = numba.core.dispatcher.Dispatcher.enable_caching
numba.core.dispatcher.Dispatcher.enable_caching = nowhere
from encoders.trees.compiled import whole
numba.core.dispatcher.Dispatcher.enable_caching = caching
assert whole(3).tolist() == [0, 0, 0] and hasattr(whole, "signatures")
"""


def ensemble(trees: int, path: Path) -> TreeEnsemble:
    rng, grid = np.random.default_rng(0), np.arange(-50.0, 50.0)
    found = [random_tree(rng, 9, 5, grid=grid) for _ in range(trees)]
    return read_model(save(path, found, 9))


def test_what_is_compiled_before_a_question_is_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation that takes long counts neither against the limit of a query nor of a search of its own."""
    begun = list[float]()
    monkeypatch.setattr(module, "compile_loops", lambda: (begun.append(time.monotonic()), time.sleep(0.2)))
    query = vf.IndividualFairness(model=ensemble(3, tmp_path / "m.onnx"), schema=PEOPLE, protected=["p"])
    assert len(begun) == 1
    started = time.monotonic()
    vf.verify(query, budget=vf.Budget(seconds=0.1))
    assert ready(query.model) >= 0.2
    assert len(begun) > 1
    assert begun[1] >= started
    assert ready(None) < 0.2


def test_loops_are_compiled_without_a_folder_to_keep_them_in() -> None:
    pytest.importorskip("numba")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-c", NOWHERE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("trees", [20, 400])
def test_a_visit_ends_by_the_nodes_that_it_reads(trees: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes of many trees take longer: the more trees, the fewer boxes a visit takes, and it overruns its budget by one box."""
    query = vf.IndividualFairness(model=ensemble(trees, tmp_path / "m.onnx"), schema=PEOPLE, protected=["p"], epsilon=0.999999)
    monkeypatch.setattr(tree_search, "SECONDS", 1.0)
    monkeypatch.setattr(tree_search, "RATE", 4e5)
    _, batch = questions_of(query)
    problem, found = twin_problem(query, batch, goals_of(query)), list[tuple[int, int]]()
    search = TreeSearch(problem, Limits(deadline=np.inf, max_nodes=None, group=None))
    explore = tree_search.explore

    def counted(*given: object) -> object:
        answer = explore(*given)
        found.append((int(np.sum(answer[8])), int(answer[-1])))
        return answer

    monkeypatch.setattr(tree_search, "explore", counted)
    search.start(np.random.default_rng(0))
    for _ in range(2):
        nodes = search.open.take(1)
        assert nodes is not None
        search.rate = 4e5
        search.step(nodes)
    size = len(search.twin.copies(0, search.closing[0].lines).trees.variable)
    assert all(0 < spent <= 4e5 + 4 * size for _, spent in found)


def test_all_loops_run_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[str]()
    for place, name in ((tree_search, "explore"), (joint, "_join"), (joint, "_collapsed")):
        loop = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given, loop=loop, name=name: (ran.append(name), loop(*given))[1])
    monkeypatch.setattr("encoders.trees.compiled.COMPILED", True)
    module.compile_loops.__wrapped__()
    assert ran == ["_join", "_collapsed", "explore"]
