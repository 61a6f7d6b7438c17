"""ExplanationConsistency as a scikit-learn user meets it: indices, arrays, parameters, and an interval that hangs on no seed."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from encoders.network import Network
from encoders.onnx.reader import read_onnx
from verifair import ExplanationConsistency, datasets
from verifair.errors import DataError, QueryError
from verifair.systems.cec.audit import Audit
from verifair.systems.cec.measures import excess

GERMAN = datasets.german()
FRAME = GERMAN.frame.iloc[:300]


@pytest.fixture(scope="module")
def network() -> Network:
    return read_onnx(datasets.network_path("german"))


@pytest.fixture(scope="module")
def model(network: Network) -> ExplanationConsistency:
    return ExplanationConsistency(network, GERMAN.schema).fit(FRAME, sensitive_features="sex")


@pytest.fixture(scope="module")
def found(model: ExplanationConsistency) -> Audit:
    return model.audit(FRAME, sensitive_features="sex")


def test_values_are_taken_by_place_whatever_their_index(model: ExplanationConsistency, found: Audit) -> None:
    named = FRAME.set_axis([f"p{n}" for n in range(len(FRAME))])
    y = pd.Series((FRAME["credit"] == "good").to_numpy(), index=range(5000, 5000 + len(FRAME)))
    sex = pd.Series(FRAME["sex"].to_numpy(), index=range(7000, 7000 + len(FRAME)), name="sex")
    for again in (
        model.audit(named, sensitive_features="sex"),
        model.audit(named, y, sensitive_features=sex),
        model.audit(FRAME, FRAME["credit"].tolist(), sensitive_features=FRAME[["sex"]]),
        pickle.loads(pickle.dumps(model)).audit(FRAME, sensitive_features="sex"),
    ):
        np.testing.assert_array_equal(again.score, found.score)


@pytest.mark.parametrize("which", ["y", "series", "frame"])
def test_the_same_rows_in_another_order_are_refused(model: ExplanationConsistency, which: str) -> None:
    """They would be paired with the wrong people, and the figures be wrong without a word."""
    turned = FRAME.iloc[::-1]
    y = turned["credit"] if which == "y" else None
    sensitive: Any = {"y": "sex", "series": turned["sex"], "frame": turned[["sex"]]}[which]
    with pytest.raises(DataError, match=r"in another order \(at place 0 row 299, in the table 0\)"):
        model.audit(FRAME, y, sensitive_features=sensitive)
    aligned = y if y is None else y.loc[FRAME.index]
    if not isinstance(sensitive, str):
        sensitive = sensitive.loc[FRAME.index]
    assert len(model.audit(FRAME, aligned, sensitive_features=sensitive).score) == len(FRAME)


def test_a_column_that_is_there_twice_is_refused(model: ExplanationConsistency) -> None:
    with pytest.raises(DataError, match="'sex': the table has more than one such column"):
        model.audit(pd.concat([FRAME, FRAME[["sex"]]], axis=1), sensitive_features="sex")


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"seed": -1}, "seed = -1: expected 0 or more"),
        ({"seed": "a"}, "seed = 'a': expected a whole number"),
        ({"threads": 0}, "threads = 0: expected 1 or more"),
        ({"threads": "2"}, "threads = '2': expected a whole number"),
        ({"schema": "german.toml"}, "schema: found str; expected a Schema (Schema.load)"),
        ({"steps": 10**20}, f"steps: expected exact, or a number of steps in 1 .. 10000, such as the paper's 32, found {10**20}"),
    ],
)
def test_parameters_that_cannot_be_are_named(model: ExplanationConsistency, parameter: dict[str, Any], message: str) -> None:
    wrong = clone(model, safe=False).set_params(**parameter)
    with pytest.raises(QueryError, match=re.escape(message)):
        wrong.fit(FRAME, sensitive_features="sex").audit(FRAME, sensitive_features="sex")


def test_whether_the_excess_holds_zero_does_not_hang_on_the_seed(network: Network) -> None:
    """On all of German its low end lies at -0.0005, where 1,000 resamples fell on either side."""
    model = ExplanationConsistency(network, GERMAN.schema).fit(GERMAN.frame, sensitive_features="sex")
    found = model.audit(GERMAN.frame, sensitive_features="sex")
    inside = model.control(found)
    difference = found.score - inside.score
    normal = difference.mean() - 1.96 * difference.std() / len(difference) ** 0.5
    for seed in range(6):
        low = excess(found, inside, seed=seed).low
        assert low < 0
        assert low == pytest.approx(normal, abs=5e-4)
