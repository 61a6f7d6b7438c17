"""Estimators by scikit-learn's conventions: its own checks as far as its tags let them, and the others on tables."""

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import verifair as vf
from tests.unit.verifair.systems.cec.test_audit import SCHEMA, some_network, table
from tests.unit.verifair.systems.cst.test_estimator import MODEL, RULE, applicants
from tests.unit.verifair.systems.fgce.test_estimator import X, made
from verifair.errors import DataError

ESTIMATORS: dict[str, tuple[Any, pd.DataFrame, dict[str, Any], Any]] = {
    "cec": (vf.ExplanationConsistency(some_network(), SCHEMA), table(), {"sensitive_features": "sex"},
            lambda fitted, frame: fitted.audit(frame, sensitive_features="sex").value),
    "cst": (vf.SituationTesting(MODEL, RULE, do={"gender": 0}, k=[15]), applicants(), {},
            lambda fitted, frame: fitted.test()["gender = 0"].counts().to_dict()),
    "fgce": (made(), X, {"sensitive_features": "sex"},
             lambda fitted, frame: [group.found.chosen.tolist() for group in fitted.groups_.values()]),
}
"""An estimator that is not fitted, a table, what else its `fit` takes, and what it answers."""


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scikit_learns_checks_pass_where_they_apply(name: str) -> None:
    """They fit arrays of numbers: an estimator of tables says by its tags that those do not apply."""
    estimator = ESTIMATORS[name][0]
    assert not estimator.__sklearn_tags__().input_tags.two_d_array
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Can't test estimator", category=UserWarning)
        done = check_estimator(estimator, on_fail=None, on_skip=None)
    assert {one["check_name"]: str(one["exception"]) for one in done if one["status"] != "passed"} == {}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_conventions_hold_on_tables(name: str) -> None:
    estimator, frame, more, answer = ESTIMATORS[name]
    assert isinstance(estimator, BaseEstimator)
    one = clone(estimator)
    before, table_before = one.get_params(deep=False), frame.copy()
    assert one.set_params(**before) is one
    assert one.fit(frame, **more) is one
    pd.testing.assert_frame_equal(frame, table_before)      # fitting changes neither the table nor a parameter
    assert all(value is before[key] for key, value in one.get_params(deep=False).items())
    assert one.feature_names_in_.tolist() == frame.columns.tolist()
    assert one.n_features_in_ == frame.shape[1]
    assert all(key.endswith("_") for key in vars(one) if key not in before)
    first = answer(one, frame)
    np.testing.assert_equal(answer(one.fit(frame, **more), frame), first)
    np.testing.assert_equal(answer(pickle.loads(pickle.dumps(one)), frame), first)
    assert not hasattr(clone(one), "n_features_in_")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_no_table_is_refused(name: str) -> None:
    estimator, frame, more, _ = ESTIMATORS[name]
    with pytest.raises(DataError, match="expected a DataFrame"):
        clone(estimator).fit(frame.to_numpy(), **more)


def test_an_estimator_that_is_not_fitted_says_so() -> None:
    with pytest.raises(NotFittedError):
        clone(ESTIMATORS["cst"][0]).test()
    with pytest.raises(NotFittedError):
        clone(ESTIMATORS["cec"][0]).audit(table(), sensitive_features="sex")
