"""PolynomialFeatures as one product a degree, against the fitted objects."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from verifair.models.read import read

SETTINGS = [
    {"degree": 0}, {"degree": 1}, {"degree": 2}, {"degree": 3, "include_bias": False}, {"degree": 3, "interaction_only": True},
    {"degree": (2, 3), "include_bias": False}, {"degree": (3, 3)}, {"degree": (4, 4), "interaction_only": True},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("named", [False, True], ids=["array", "table"])
def test_terms_are_those_of_the_object(settings: dict[str, Any], named: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (300, 4)) / 4.0
    y = x[:, 0] - x[:, 1] * x[:, 2] + x[:, 3] ** 3 + x.prod(axis=1)
    given = pd.DataFrame(x, columns=list("abcd")) if named else x
    model = make_pipeline(PolynomialFeatures(**settings), LinearRegression()).fit(given, y)
    found = read(model).layered("test").forward(x)[:, 0]
    assert np.abs(found - model.predict(given)).max() < 1e-5


def test_a_term_is_made_of_the_one_of_the_degree_below() -> None:
    """x y and x^2 once, and not for each term of degree 3 again: as many squares as degree 2 has."""
    x = np.random.default_rng(0).normal(size=(200, 5))
    pair, triple = (
        read(make_pipeline(PolynomialFeatures(degree), LinearRegression()).fit(x, x[:, 0] ** 2 * x[:, 1])).layered("test")
        for degree in (2, 3)
    )
    assert triple.hidden[0] == pair.hidden[0]


def test_thousands_of_terms_take_a_few_nodes() -> None:
    x = np.random.default_rng(0).normal(size=(50, 60))
    model = make_pipeline(PolynomialFeatures(2), LinearRegression()).fit(x, x[:, 0] * x[:, 1])
    made = read(model)
    assert made.layered("test").hidden == (60 + 60 * 59 + 60,)
    assert np.abs(made.layered("test").forward(x)[:, 0] - model.predict(x)).max() < 1e-4
