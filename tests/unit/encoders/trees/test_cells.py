"""Sets of codes, which files store as chains of splits with two shared ends, are one node."""

import itertools

import numpy as np
import pytest

from encoders.errors import ModelError
from encoders.model import Link
from encoders.trees import cells as cells_of_trees
from encoders.trees.cells import TreeCells
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.joint import JointTrees
from tests.builders import integer, schema_of
from tests.tree_models import Chains

DOMAIN = schema_of(integer("job", 0, 7), integer("town", 0, 7), integer("age", 0, 99)).domain


def leaf_of(cells: TreeCells, node: int, cell: tuple[int, ...]) -> int:
    while (v := int(cells.variable[node])) >= 0:
        word = int(cells.goes_left[cells.at[node] + cell[v] // 64])
        to_left = word >> cell[v] % 64 & 1 if cells.sets[v] else cell[v] <= cells.last[node]
        node = int(cells.left[node] if to_left else cells.right[node])
    return node


@pytest.mark.parametrize(("seed", "codes"), [*((seed, 8) for seed in range(8)), (8, 63), (9, 64), (10, 65), (11, 200), (12, 200)])
def test_a_chain_is_one_node(seed: int, codes: int) -> None:
    chains = Chains(np.random.default_rng(seed), {0: codes, 1: 8, 2: 100})
    chains.add(4)
    ensemble = chains.ensemble()
    cells = TreeCells.of(ensemble, schema_of(integer("job", 0, codes - 1), integer("town", 0, 7), integer("age", 0, 99)).domain)
    rows = np.array(list(itertools.product(range(codes), range(8), range(0, 100, 7))), dtype=float)
    leaves = [leaf_of(cells, chains.roots[0], tuple(cell)) for cell in cells.of_boxes(rows, rows)[0].tolist()]
    assert leaves == ensemble.leaves(rows)[:, 0].tolist()
    nothing = np.zeros(len(ensemble.column), dtype=bool)
    joint = JointTrees.of(ensemble, cells, nothing, nothing)
    assert len(joint.leaf1) <= chains.leaves        # followed chain by chain, they would be many more
    assert set(leaves) <= set(joint.leaf1.tolist())


def test_sets_of_too_many_codes_are_refused_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = Chains(np.random.default_rng(0), {0: 8, 1: 8, 2: 100})
    chains.add(4)
    ensemble = chains.ensemble()
    monkeypatch.setattr(cells_of_trees, "MOST_PATHS", 100)
    assert TreeCells.of(ensemble, DOMAIN).sets.any()        # joined, they are few
    monkeypatch.setattr(cells_of_trees, "MOST_CATEGORIES", 7)
    with pytest.raises(ModelError, match=r"sets of a column's \d+ codes; at most 7 are supported: join the rare ones"):
        TreeCells.of(ensemble, DOMAIN)
    monkeypatch.setattr(cells_of_trees, "MOST_PATHS", 1e9)
    assert not TreeCells.of(ensemble, DOMAIN).sets.any()


def test_trees_of_numbers_stay_as_they_are() -> None:
    """Two splits on one number have three ends."""
    ensemble = TreeEnsemble(
        root=np.array([0]), column=np.array([0, 0, -1, -1, -1]), threshold=np.array([5.0, 2.0, 0.0, 0.0, 0.0]),
        left=np.array([1, 2, 2, 3, 4]), right=np.array([3, 4, 2, 3, 4]), missing_left=np.zeros(5, dtype=bool),
        value=np.zeros((5, 1)), base=np.zeros(1), columns=3, link=Link.IDENTITY, source_sha256="",
    )
    cells = TreeCells.of(ensemble, DOMAIN)
    assert not cells.sets.any()
    assert cells.left.tolist() == ensemble.left.tolist()
