"""What a model says of itself, so that nobody has to ask for its class."""

from dataclasses import replace

import numpy as np

from encoders.decision import Favoured, Threshold, decided
from encoders.model import Link
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees, Ramps
from tests.builders import linear_network

TREES = TreeEnsemble(
    root=np.array([0, 3]), column=np.array([1, -1, -1, -1]), threshold=np.zeros(4), left=np.array([1, 1, 2, 3]),
    right=np.array([2, 1, 2, 3]), missing_left=np.ones(4, dtype=bool), value=np.eye(4, 3), base=np.zeros(3), columns=2,
    link=Link.SHARES, source_sha256="",
)  # fmt: skip
"""A tree that asks, and one that does not; three scores."""


def test_the_trees_whose_sums_are_scores() -> None:
    compared = decided(TREES, Favoured(groups=((0, 2),)))
    shares = decided(TREES, Favoured(groups=((0, 2),), odds=True, votes=True))
    assert TREES.ensemble is TREES
    assert compared.ensemble is TREES
    assert shares.ensemble is shares     # a share of votes is a sum of leaves, of the deciding model's and not of the read one's
    for model, trees in ((TREES, 1), (compared, 1), (shares, 2)):
        assert (model.of_trees, model.asking) == (True, trees)


def test_a_mean_is_of_trees_but_no_sum_and_a_network_is_neither() -> None:
    one = np.ones(1)
    ramps = Ramps(chances=np.zeros(3, dtype=bool), score=np.zeros(1, dtype=int), logistic=one > 0, shift=0 * one, scale=one,
                  weight=one, constant=0.0)
    mean = MeanOfTrees(link=Link.SHARES, source_sha256="", trees=TREES, ramps=ramps)
    for model in (mean, decided(mean, Threshold(at=0.25, below=True))):
        assert (model.ensemble, model.of_trees, model.asking) == (None, True, 1)
    network = linear_network(1.0, -1.0)
    assert (network.ensemble, network.of_trees, network.asking) == (None, False, 0)


def test_columns_that_are_not_read_change_nothing() -> None:
    place, x = np.array([0, 2]), np.array([[0.5, 1.0], [2.0, -1.0]])
    spread = np.array([[0.5, 7.0, 1.0, 7.0], [2.0, 7.0, -1.0, 7.0]])
    one = np.ones(3)
    ramps = Ramps(chances=one < 0, score=np.arange(3), logistic=one < 0, shift=-2 * one, scale=one / 8, weight=one, constant=0.0)
    mean = MeanOfTrees(link=Link.SHARES, source_sha256="", trees=TREES, ramps=ramps, lines=np.eye(3, 2), squares=np.eye(3, 2) / 4)
    for model in (linear_network(1.0, -1.0), TREES, replace(mean, squares=None), mean):
        wide = model.with_columns(place, 4)
        assert (type(wide), wide.inputs) == (type(model), 4)
        assert wide.forward(spread).tolist() == model.forward(x).tolist()
