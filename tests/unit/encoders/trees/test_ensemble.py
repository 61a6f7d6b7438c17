"""Tree ensembles: paths to leaves, in trees that are much deeper on one side than on the other."""

import numpy as np
import pytest

from encoders.model import Link
from encoders.trees.ensemble import TreeEnsemble


def chain(length: int) -> TreeEnsemble:
    """A tree that asks `x <= 0`, `x <= 1`, ... one after the other, the leaf on the left of each; and one with a single leaf."""
    inner = np.arange(length)
    leaves = length + np.arange(length + 1)
    return TreeEnsemble(
        root=np.array([0, 2 * length + 1]), column=np.concatenate([np.zeros(length, dtype=int), np.full(length + 2, -1)]),
        threshold=np.concatenate([inner, np.zeros(length + 2)]).astype(float),
        left=np.concatenate([leaves[:-1], leaves, [2 * length + 1]]),
        right=np.concatenate([inner[1:], leaves[-1:], leaves, [2 * length + 1]]),
        missing_left=np.arange(2 * length + 2) == 3, value=np.zeros((2 * length + 2, 1)), base=np.zeros(1), columns=1,
        link=Link.IDENTITY, source_sha256="",
    )  # fmt: skip


@pytest.mark.parametrize("length", [1, 7, 8, 9, 17, 100])
def test_paths_end_at_every_depth(length: int) -> None:
    trees = chain(length)
    assert trees.depth == length
    x = np.arange(-1.0, length + 1)[:, None]
    expected = length + np.clip(np.ceil(x[:, 0]), 0, length).astype(int)
    assert trees.leaves(x).tolist() == [[leaf, 2 * length + 1] for leaf in expected]
    missing = length + 3 if length > 3 else 2 * length
    assert trees.leaves(np.array([[np.nan]])).tolist() == [[missing, 2 * length + 1]]
    assert trees.leaves(np.empty((0, 1))).shape == (0, 2)


def test_more_rows_than_are_looked_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("encoders.trees.ensemble.ROWS", 6)
    assert chain(20).leaves(np.arange(20.0)[:, None])[:, 0].tolist() == list(range(20, 40))


def test_a_shared_node_is_in_one_group_after_all_below_it() -> None:
    """Node k leads to k + 1 and k + 2, so that paths of many lengths lead to it."""
    inner = np.arange(30)
    nodes = np.append(inner + 1, [30, 31])
    trees = TreeEnsemble(
        root=np.array([0]), column=np.append(np.zeros(30, dtype=int), [-1, -1]), threshold=np.zeros(32), left=nodes,
        right=np.append(inner + 2, [30, 31]), missing_left=np.zeros(32, dtype=bool), value=np.ones((32, 1)), base=np.zeros(1),
        columns=1, link=Link.IDENTITY, source_sha256="",
    )  # fmt: skip
    assert np.concatenate(trees.upwards).tolist() == inner[::-1].tolist()
