"""Preparations before a time limit starts: the loops for tree ensembles are compiled, or loaded from a cache."""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from encoders.domain import Domain
from encoders.model import Link, Model
from encoders.problem import Goal, TwinBatch, TwinProblem
from encoders.trees.ensemble import TreeEnsemble


def ready(model: object) -> float:
    """Prepare everything that a search of this model needs. Returns the seconds that it took, which no time limit should count."""
    started = time.monotonic()
    if isinstance(model, Model) and model.of_trees:
        compile_loops()
    return time.monotonic() - started


@cache
def compile_loops() -> None:
    """Search a tiny ensemble, so that numba compiles the loops, once for all processes that share its cache folder."""
    from encoders.trees.compiled import COMPILED

    if not COMPILED:
        return
    from verifair.engine.search.box_search import Limits
    from verifair.engine.search.ensembles.search import TreeSearch  # numba is loaded for trees alone

    leaf, v = np.array([False, True, True]), np.arange(2)
    ensemble = TreeEnsemble(
        root=np.array([0]), column=np.where(leaf, -1, 1), threshold=np.zeros(3), left=np.array([1, 1, 2]),
        right=np.array([2, 1, 2]), missing_left=~leaf, value=np.array([[0.0], [-1.0], [1.0]]), base=np.zeros(1), columns=2,
        link=Link.IDENTITY, source_sha256="",
    )
    domain = Domain(
        integer=v >= 0, lower=np.zeros(2), upper=np.ones(2), offset=np.zeros(2), scale=np.ones(2), start=v, one_hot=v < 0,
        width=np.ones(2, dtype=np.int64),
    )
    batch = TwinBatch(lower=np.zeros((1, 2)), upper=np.array([[0.0, 1.0]]), prime=np.ones((1, 2)), protected=v == 0)
    goal = Goal(rows=np.array([[1.0, -1.0]]), strict=True)     # a goal of one row is not decided by random points
    problem = TwinProblem(network=ensemble, domain=domain, batch=batch, margin=np.ones(1), goals=(goal,))
    search = TreeSearch(problem, Limits(deadline=np.inf, max_nodes=None, group=None))
    search.start(np.random.default_rng(0))
    while (nodes := search.open.take(1)) is not None:
        search.step(nodes)
