"""Random ensembles against the truth: every row in exact arithmetic, and what onnxruntime computes; forged proofs are rejected.

The suite draws a few; `python -m tests.soundness.trees.test_random_trees 3000` draws as many as are asked for, from another
beginning.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import verifair as vf
from encoders.exact.dyadic import exact
from encoders.model import Model
from encoders.onnx.reader import read_model
from encoders.onnx.runtime import runtime_logits
from encoders.probability.logistic import exceeds
from encoders.problem import TwinBatch, TwinProblem
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.float32 import float32_errors
from tests.builders import categorical, integer, one_hot, real, schema_of
from tests.soundness.trees.test_trees import GRID, REAL
from tests.tree_models import Node, random_tree, save
from verifair.checker.certificates.certificate import Certificate
from verifair.engine.questions import FLIPPED, OBSERVED
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import PROVED, VIOLATED

KINDS = (
    "stumps", "deep", "equal thresholds", "adjacent thresholds", "duplicates", "constants", "missing", "three classes", "largest",
)
STEPS = (np.float32(0.5).view(np.int32) + np.arange(-3, 4, dtype=np.int32)).view(np.float32)
ADJACENT = STEPS[2:5]
"""Float32 numbers around 1/2, and those of thresholds, which `random_tree` moves by one more step at most."""


def rows_of(of: vf.Schema) -> np.ndarray:
    """Rows of every cell that the thresholds leave."""
    domain = of.domain
    reals = np.unique(np.concatenate([REAL, STEPS.astype(float)]))
    values = [np.arange(domain.lower[v], domain.upper[v] + 1) if domain.integer[v] else reals for v in range(domain.variables)]
    return np.array(list(itertools.product(*values)))


def drawn(kind: str, rng: np.random.Generator, columns: int) -> list[Node]:
    """Trees of one kind, few of each but for stumps."""
    scores = 3 if kind == "three classes" else 1
    depth = {"stumps": 1, "deep": 6, "constants": 0}.get(kind, 3)
    grid = {"equal thresholds": GRID[1:2], "adjacent thresholds": ADJACENT}.get(kind, GRID)
    count = int(rng.integers(1, 51 if kind == "stumps" else 5 if kind == "largest" else 9))
    found = [random_tree(rng, columns, depth, scores=scores, grid=grid) for _ in range(count)]
    if kind == "duplicates":
        found = found * int(rng.integers(2, 5))
    return found + ([random_tree(rng, columns, 2, grid=grid)] if kind == "constants" and rng.random() < 0.5 else [])


def people(seed: int, three: bool) -> vf.Schema:
    who = one_hot("p", "f", "m", "o") if seed % 3 == 0 else categorical("p", "f", "m")
    scaled = integer("a", -2, 2) if seed % 2 else {**integer("a", -2, 2), "scale": "minmax"}
    return schema_of(scaled, one_hot("c", "x", "y"), who, real("b", -1.5, 1.5), positive="class = 1" if three else "logit > 0")


def truth(model: Model, of: vf.Schema, x: np.ndarray, every: np.ndarray, epsilon: float | None) -> bool:
    """Whether nobody is treated differently, row by row in exact arithmetic."""
    logits = model.forward(exact(x)).to_fractions()
    groups = dict[bytes, list[list[Fraction]]]()
    for row, found in zip(np.delete(every, of.index("p"), axis=1), logits, strict=True):
        groups.setdefault(row.tobytes(), []).append(list(found))
    if epsilon is not None:
        return not any(exceeds(max(group)[0], min(group)[0], epsilon) for group in groups.values())
    return all(len({one[0] > 0 for one in group}) == 1 for group in groups.values())


def confidence(model: Model, of: vf.Schema, every: np.ndarray, margin: np.ndarray) -> tuple[TwinProblem, list[bool]]:
    """PBA's two questions, ties included, about everybody of p = 0 and of p = 1: is the margin always larger, or smaller?"""
    domain, v = of.domain, of.index("p")
    changes = np.arange(domain.variables) == v
    batch = TwinBatch(
        lower=np.where(changes, 0.0, domain.lower)[None], upper=np.where(changes, 0.0, domain.upper)[None],
        prime=np.where(changes, 1.0, domain.lower)[None], protected=changes,
    )
    one = every[every[:, v] == 0]
    exactly = [model.forward(exact(domain.encode(x))).to_fractions() for x in (one, np.where(changes, 1.0, one))]
    first, second = ([sum((int(m) * f for m, f in zip(margin, row, strict=True)), Fraction(0)) for row in side] for side in exactly)
    apart = [a - b for a, b in zip(first, second, strict=True)]
    problem = TwinProblem(network=model, domain=domain, batch=batch, margin=margin, goals=(OBSERVED, FLIPPED))
    return problem, [min(apart) > 0, max(apart) < 0]


def compared(model: TreeEnsemble, x: np.ndarray) -> None:
    """onnxruntime's float32 logits lie within the bound of any order of summation."""
    shown, exactly = runtime_logits(model, x.astype(np.float32)).astype(float), model.forward(x)
    assert (np.abs(shown - exactly) <= float32_errors(model) + 2.0**-40 * (1 + np.abs(exactly))).all()


def case(seed: int, folder: Path, forged: dict[tuple[object, ...], Certificate]) -> tuple[str, str]:
    """Decide three questions about one random ensemble, and compare. forged: earlier proofs, to be shown for models that they are
    not about. Returns the kind, and the verdict."""
    rng, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    three = kind == "three classes"
    of = people(seed, three)
    columns = of.domain.columns
    trees = drawn(kind, rng, columns)
    more = {"classes": 3, "transform": "SOFTMAX"} if three else {"base": [float(np.float32(rng.normal() + rng.choice([-1, 0, 1])))]}
    if kind == "largest":
        more["aggregate_function"] = "MIN" if seed % 2 else "MAX"
    model = read_model(save(folder / f"{seed}.onnx", trees, columns, missing=kind == "missing", **more))
    assert isinstance(model, TreeEnsemble)
    every = rows_of(of)
    x = of.domain.encode(every)
    compared(model, x)
    margin = np.array([-1.0, 1.0, 0.0]) if three else np.ones(1)
    problem, holds = confidence(model, of, every, margin)
    answer = decide(problem, seconds=60).status[0].tolist()
    assert answer == [PROVED if one else VIOLATED for one in holds], (seed, kind)
    if three:
        return kind, "proved" if any(holds) else "violated"
    epsilon = None if seed % 2 else float(rng.choice([0.05, 0.3, 0.6]))
    query = vf.IndividualFairness(model=model, schema=of, protected=["p"], epsilon=epsilon)
    found = vf.verify(query, budget=vf.Budget(seconds=60))
    assert found.status is (vf.Status.PROVED if truth(model, of, x, every, epsilon) else vf.Status.VIOLATED), (seed, kind, found)
    about = (seed % 6, epsilon)
    if found.certificate is not None:
        assert vf.check(found.certificate, model=model, schema=of).accepted, (seed, kind)
        forged[about] = found.certificate
    elif about in forged:
        claimed = replace(forged[about], network_sha256=model.source_sha256)
        assert not vf.check(claimed, model=model, schema=of).accepted, (seed, kind)
    return kind, found.status.value


@pytest.mark.parametrize("first", range(0, 120, 12))
def test_verdicts_about_random_ensembles_are_true(first: int, tmp_path: Path) -> None:
    forged = dict[tuple[object, ...], Certificate]()
    for seed in range(first, first + 12):
        case(seed, tmp_path, forged)


if __name__ == "__main__":
    started, counts = time.process_time(), Counter[tuple[str, str]]()
    proofs = dict[tuple[object, ...], Certificate]()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(1000, 1000 + int(sys.argv[1])):
            counts[case(number, Path(scratch), proofs)] += 1
    for (name, verdict), count in sorted(counts.items()):
        print(f"{name}: {verdict} {count}")
    print(f"{time.process_time() - started:.0f} s of CPU")
