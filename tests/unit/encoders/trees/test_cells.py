"""Sets of codes, which files store as chains of splits with two shared ends, are one node."""

import itertools

import numpy as np
import pytest

from encoders.network import Link
from encoders.trees.cells import TreeCells
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.joint import JointTrees
from tests.builders import integer, schema_of

CODES = 8
DOMAIN = schema_of(integer("job", 0, CODES - 1), integer("town", 0, CODES - 1), integer("age", 0, 99)).domain


class Chains:
    """A random tree over sets of codes, as nodes `x <= t`."""

    def __init__(self, rng: np.random.Generator, depth: int) -> None:
        self.rng, self.nodes = rng, list[tuple[int, float, int, int]]()
        self.leaves = 0
        self.root = self.tree(depth)

    def node(self, column: int, threshold: float, left: int, right: int) -> int:
        self.nodes.append((column, threshold, left, right))
        return len(self.nodes) - 1

    def tree(self, depth: int) -> int:
        if depth == 0:
            self.leaves += 1
            return self.node(-1, 0.0, len(self.nodes), len(self.nodes))
        inside, outside = self.tree(depth - 1), self.tree(depth - 1)
        column = int(self.rng.integers(3))
        if column == 2:
            return self.node(2, float(self.rng.integers(99)), inside, outside)
        start = outside
        for code in sorted(self.rng.choice(CODES, self.rng.integers(1, CODES - 1), replace=False), reverse=self.rng.random() < 0.5):
            below = self.node(column, code - 1.0, start, inside)     # x = code: x <= code, and not x <= code - 1
            start = self.node(column, float(code), below, start)
        return start

    def ensemble(self) -> TreeEnsemble:
        column, threshold, left, right = (np.array(values) for values in zip(*self.nodes, strict=True))
        return TreeEnsemble(
            root=np.array([self.root]), column=column, threshold=threshold, left=left, right=right,
            missing_left=np.zeros(len(column), dtype=bool), value=np.zeros((len(column), 1)), base=np.zeros(1), columns=3,
            link=Link.IDENTITY, source_sha256="",
        )  # fmt: skip


def leaf_of(cells: TreeCells, node: int, cell: tuple[int, ...]) -> int:
    while (v := int(cells.variable[node])) >= 0:
        to_left = int(cells.goes_left[node]) >> cell[v] & 1 if cells.sets[v] else cell[v] <= cells.last[node]
        node = int(cells.left[node] if to_left else cells.right[node])
    return node


@pytest.mark.parametrize("seed", range(12))
def test_a_chain_is_one_node(seed: int) -> None:
    chains = Chains(np.random.default_rng(seed), 4)
    ensemble = chains.ensemble()
    cells = TreeCells.of(ensemble, DOMAIN)
    rows = np.array(list(itertools.product(range(CODES), range(CODES), range(0, 100, 7))), dtype=float)
    leaves = [leaf_of(cells, chains.root, tuple(cell)) for cell in cells.of_boxes(rows, rows)[0].tolist()]
    assert leaves == ensemble.leaves(rows)[:, 0].tolist()
    nothing = np.zeros(len(ensemble.column), dtype=bool)
    joint = JointTrees.of(ensemble, cells, nothing, nothing)
    assert len(joint.leaf1) <= chains.leaves        # followed chain by chain, they would be many more
    assert set(leaves) <= set(joint.leaf1.tolist())


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
