"""Joint and difference trees against the trees that they stand for, at every row; and the loops without numba."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoders.domain import Domain
from encoders.onnx.reader import read_model
from encoders.trees import joint as trees_of_both
from encoders.trees import twin
from encoders.trees.cells import TreeCells
from encoders.trees.compiled import held
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.joint import JointTrees, Preorder, holds, some
from tests.builders import categorical, integer, one_hot, schema_of
from tests.tree_models import random_tree, save


def joint_of(rng: np.random.Generator, path: Path) -> tuple[TreeEnsemble, Domain, TreeCells, JointTrees, int]:
    """Random trees, asked about one person as p = 0 and as p = 1."""
    who = one_hot("p", "f", "m", "o") if rng.integers(2) else categorical("p", "f", "m", "o")
    of = schema_of(integer("a", -2, 3), one_hot("c", "x", "y", "z", "w"), who, integer("b", -1, 2), positive="logit > 0")
    domain, v = of.domain, of.index("p")
    trees = [random_tree(rng, domain.columns, int(rng.integers(0, 6))) for _ in range(rng.integers(1, 8))]
    ensemble = read_model(save(path, trees, domain.columns))
    assert isinstance(ensemble, TreeEnsemble)
    cells = TreeCells.of(ensemble, domain)
    hidden = replace(cells, variable=np.where(cells.variable == v, -2, cells.variable))
    both = np.stack([domain.lower, np.where(np.arange(domain.variables) == v, 1.0, domain.lower)])
    goes = [(hidden.variable == -2) & (x[np.maximum(ensemble.column, 0)] <= ensemble.threshold) for x in domain.encode(both)]
    return ensemble, domain, cells, JointTrees.of(ensemble, hidden, goes[0], goes[1]), v


def leaf_of(trees: Preorder, tree: int, cell: np.ndarray) -> int:
    """The leaf that a row of cells ends in."""
    j = trees.root[tree]
    while trees.variable[j] >= 0:
        v, c = trees.variable[j], trees.cut[j]
        left = trees.sets[c] >> cell[v] & 1 == 1 if trees.hot[v] else cell[v] <= c
        j = j + 1 if left else trees.right[j]
    return int(trees.cut[j])


@pytest.mark.parametrize("seed", range(12))
def test_leaves_hold_the_pair_of_every_row(seed: int, tmp_path: Path) -> None:
    ensemble, domain, cells, joint, v = joint_of(np.random.default_rng(seed), tmp_path / "m.onnx")
    values = [np.arange(domain.lower[k], domain.upper[k] + 1) if k != v else [0.0] for k in range(domain.variables)]
    rows = np.array(list(itertools.product(*values)))
    other = np.where(np.arange(domain.variables) == v, 1.0, rows)
    pairs = [ensemble.leaves(domain.encode(x)) for x in (rows, other)]
    cell, _ = cells.of_boxes(rows, rows)
    terms = joint.terms(np.ones(1))
    lines = terms.lines(np.array([[1.0, -1.0], [0.25, -0.75]]))
    met = set()
    for k in range(len(rows)):
        totals = np.array(lines.base)
        for tree in range(len(ensemble.root)):
            leaf = leaf_of(joint.trees, tree, cell[k])
            met.add(leaf)
            assert (joint.leaf1[leaf], joint.leaf2[leaf]) == (pairs[0][k, tree], pairs[1][k, tree])
            at = leaf_of(lines.trees, tree, cell[k])
            totals += np.array(lines.adds[2 * at : 2 * at + 2])
        one, two = (float(ensemble.forward(domain.encode(x[k : k + 1]))[0, 0]) for x in (rows, other))
        assert totals == pytest.approx([one - two, 0.25 * one - 0.75 * two], abs=1e-12)
        if (pairs[0][k] == pairs[1][k]).all():
            assert totals[0] == 0
    assert met == set(range(len(joint.leaf1)))      # no way that no row goes


@pytest.mark.parametrize("seed", range(4))
def test_both_orders_of_the_copies_share_their_trees(seed: int, tmp_path: Path) -> None:
    ensemble, domain, cells, _, v = joint_of(np.random.default_rng(seed), tmp_path / "m.onnx")
    asked = cells.variable == v
    one, two = (asked & (ensemble.column % 2 == k) for k in range(2))
    first, second = (twin._join(ensemble, domain, asked.tobytes(), a.tobytes(), b.tobytes()) for a, b in ((one, two), (two, one)))
    assert first.trees is second.trees
    assert np.array_equal(first.leaf1, second.leaf2)
    assert np.array_equal(first.leaf2, second.leaf1)
    p, q = 0.25, -0.75
    assert np.array_equal(first.terms(np.ones(1)).rounded(p, q)[0], second.terms(np.ones(1)).rounded(q, p)[0])


def test_more_nodes_than_their_numbers_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble, _, cells, _, _ = joint_of(np.random.default_rng(0), tmp_path / "m.onnx")
    none = np.zeros(len(ensemble.column), dtype=bool)
    loop = trees_of_both._join
    monkeypatch.setattr(trees_of_both, "_join", getattr(loop, "py_func", loop))     # what is compiled keeps its constants
    size = len(JointTrees.of(ensemble, cells, none, none).trees.variable)
    monkeypatch.setattr(trees_of_both, "MOST", size)
    JointTrees.of(ensemble, cells, none, none)
    monkeypatch.setattr(trees_of_both, "MOST", size - 1)
    with pytest.raises(MemoryError, match=r"more than 2\^31 nodes; fit fewer or shallower trees"):
        JointTrees.of(ensemble, cells, none, none)


@pytest.mark.parametrize("seed", range(6))
def test_trees_without_a_protected_question_vanish_from_differences(seed: int, tmp_path: Path) -> None:
    ensemble, _, _, joint, _ = joint_of(np.random.default_rng(seed), tmp_path / "m.onnx")
    lines = joint.terms(np.ones(1)).lines(np.array([[1.0, -1.0]]))
    for tree in range(len(ensemble.root)):
        end = joint.trees.root[tree + 1] if tree + 1 < len(ensemble.root) else len(joint.trees.variable)
        nodes = range(joint.trees.root[tree], end)
        leaves = np.array([joint.trees.cut[j] for j in nodes if joint.trees.variable[j] == -1])
        if (joint.leaf1[leaves] == joint.leaf2[leaves]).all():
            assert lines.trees.variable[lines.trees.root[tree]] == -1


@pytest.mark.parametrize("cells", [1, 63, 64, 65, 128, 150])
def test_sets_are_as_many_words_as_their_cells_need(cells: int) -> None:
    rng = np.random.default_rng(cells)
    for share in (0.02, 0.5):
        member = rng.random(cells) < share
        padded = np.zeros(64 * -(-cells // 64), dtype=np.uint8)
        padded[:cells] = member
        sets = held(np.append([7, 7], np.packbits(padded, bitorder="little").view(np.int64)))
        assert [bool(holds(sets, 2, x)) for x in range(cells)] == member.tolist()
        for a, b in np.sort(rng.integers(cells, size=(60, 2)), axis=1).tolist():
            assert bool(some(sets, 2, a, b)) == member[a : b + 1].any()


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import verifair as vf
from encoders.trees.compiled import COMPILED
from tests.soundness.trees.test_trees import by_person, fair, model_of, schema
assert not COMPILED
for seed in range(6):
    of = schema(seed)
    model = model_of(np.random.default_rng(seed), of, Path(sys.argv[1]) / f"{seed}.onnx")
    epsilon = None if seed % 2 else 0.3
    found = vf.verify(vf.IndividualFairness(model=model, schema=of, protected=["p"], epsilon=epsilon))
    assert (found.status is vf.Status.PROVED) == fair(by_person(model, of), epsilon), seed
    assert found.certificate is None or vf.check(found.certificate, model=model, schema=of).accepted
"""


def test_the_same_loops_run_without_numba(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
