"""The search's bounds of means of functions of scores: below what the means differ by, and no better than what the checker says."""

import numpy as np
import pytest

from encoders.exact.balls import Balls, precision
from encoders.model import Link
from encoders.trees.compiled import held
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees, Ramps
from tests.builders import integer, schema_of
from verifair.checker.kernel.trees.choice import tree_bounds
from verifair.checker.kernel.trees.means import MeanBounds
from verifair.engine.search.ensembles.kernel import add_means
from verifair.engine.search.ensembles.search import mean_head

DOMAIN = schema_of(integer("a", 0, 1), integer("b", 0, 1)).domain
Functions = list[tuple[bool, float, float, float]]


def mean(first: float, second: float, chances: bool, functions: Functions) -> MeanOfTrees:
    """A score by a, and its functions: whether logistic, shift, scale and weight; and a score by b, which both copies share."""
    logistic, *numbers = zip(*functions, (False, 0.0, 1.0, 1.0), strict=True)
    shift, scale, weight = np.float32(numbers).astype(float)
    trees = TreeEnsemble(
        link=Link.SIGMOID, source_sha256="", root=np.array([0, 3]), column=np.array([0, -1, -1, 1, -1, -1]),
        threshold=np.full(6, 0.5), left=np.array([1, 1, 2, 4, 4, 5]), right=np.array([2, 1, 2, 5, 4, 5]),
        missing_left=np.ones(6, dtype=bool), value=np.array([[0.0, 0], [first, 0], [second, 0], [0, 0], [0, 0], [0, 1]]),
        base=np.zeros(2), columns=2)
    made = Ramps(chances=np.array([chances, False]), score=np.repeat([0, 1], [len(functions), 1]), logistic=np.array(logistic),
                 shift=shift, scale=scale, weight=weight, constant=0.0)
    return MeanOfTrees(link=Link.SIGMOID, source_sha256="", trees=trees, ramps=made)


@pytest.mark.parametrize(("first", "second", "chances", "functions"), [
    (2.0**60, -0.3, False, [(True, 0.0, 1.0, 1.0)]),    # the smaller score is lost in the difference
    (-0.3, 2.0**60, True, [(True, 0.0, 1.0, 1.0)]),
    (750.0, 749.0, False, [(True, 750.0, 1e12, 1.0)]),      # as steep as float64 tells scores apart
    (1 + 2.0**-20, 1.0, False, [(True, 1 + 2.0**-21, 1e6, 1.0)]),
    (0.75, 0.25, False, [(False, 0.0, 1.0, 0.0), (False, 1.0, 1.0, 1.0)]),      # what has no weight says nothing of ramps
    (0.25, 0.75, True, [(False, 0.5, 4.0, 0.5), (True, -1.0, 3.0, 1.0)]),
])
def test_what_the_search_says_of_a_mean_holds_and_is_what_the_checker_says(
    first: float, second: float, chances: bool, functions: Functions
) -> None:
    """Both are given the checker's bounds of the scores."""
    model = mean(first, second, chances, functions)
    bounds, apart = tree_bounds(model, DOMAIN), np.array([True, False])
    assert isinstance(bounds, MeanBounds)
    boxes = tuple((np.array([[a, 0.0]]), np.array([[a, 1.0]])) for a in (0.0, 1.0))
    with precision(768):
        (at_x,), (at_second,) = model.forward(Balls.of(np.array([[0.0, 0.0], [1.0, 0.0]]))).rows()
    for p, q in ((1.0, -1.0), (-1.0, 1.0)):
        lines = np.array([[p], [0.0], [p]]), np.array([[0.0], [q], [q]])
        (said,) = bounds.least(*boxes, apart, np.zeros(1, dtype=int), lines[0][2:], lines[1][2:])
        each = [score.least(*boxes, apart, np.zeros(3, dtype=int), *lines) for score in bounds.scores]
        value = held([*np.stack(each, axis=1).ravel(), 0.0, 0.0, 0.0])
        add_means(value, mean_head(model, p, q))
        assert max(value[6] + value[7], value[8]) <= said <= float((p * at_x + q * at_second).upper())
