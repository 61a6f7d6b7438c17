"""Counterexamples as rows of a table."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import verifair as vf
from verifair.schema.drafts.infer import DraftWarning

TABLE = pd.DataFrame({
    "sex": [1, 2] * 20, "customer": [True, True, False, False] * 10, "grade": ["low", "low", "high", "high", "high"] * 8,
    "income": np.arange(40.0),
})  # fmt: skip


@pytest.mark.parametrize("types", [{}, {"sex": "category", "customer": "boolean", "grade": "category"}])
def test_rows_are_those_that_the_model_takes(types: dict[str, str]) -> None:
    """Codes and booleans have their types again: an encoder that ignores unknown words would decide both alike."""
    table = TABLE.astype(types)
    words = ["sex", "customer", "grade"]
    steps = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), words), (StandardScaler(), ["income"]))
    approved = TABLE["income"] + 9 * (TABLE["sex"] == 1) + 5 * TABLE["customer"] > 25
    model = make_pipeline(steps, LogisticRegression(C=100)).fit(table, approved)
    schema = vf.Schema.infer(table.assign(y=approved), target="y", positive=True, protected=["sex"], model=model)
    witness = vf.verify(vf.IndividualFairness(model=model, schema=schema, protected=["sex"])).witness
    assert witness is not None
    pair = witness.rows(table.assign(other="no feature"))
    assert list(pair.columns) == list(table.columns)
    assert [pair[name].dtype for name in words] == [table[name].dtype for name in words]
    assert [f"y {decided}" for decided in model.predict(pair)] == list(witness.decisions)


@pytest.mark.parametrize("dtype", [bool, int])
def test_rows_have_the_columns_of_get_dummies(dtype: type) -> None:
    """With one of three grades dropped, and beside a column that only looks like one of a block."""
    table = TABLE.drop(columns="customer").assign(grade=["low", "high", "mid", "mid"] * 10)
    table = pd.get_dummies(pd.get_dummies(table, columns=["grade"], drop_first=True, dtype=dtype), columns=["sex"], dtype=dtype)
    approved = table["income"] + 9 * table["grade_low"] > 20
    model = LogisticRegression(C=100, max_iter=1000).fit(table, approved)
    with pytest.warns(DraftWarning, match="one-hot columns of one feature, 'grade'"):
        schema = vf.Schema.infer(table.assign(y=approved), target="y", positive=True, protected=["grade"], model=model)
    assert [feature.name for feature in schema.features] == ["income", "grade", "sex"]
    witness = vf.verify(vf.IndividualFairness(model=model, schema=schema, protected=["grade"])).witness
    assert witness is not None
    pair = witness.rows(table.assign(grade_note="no feature"))
    assert list(pair.columns) == list(table.columns)
    assert {pair[name].dtype for name in table if name != "income"} == {np.dtype(dtype)}
    assert [f"y {decided}" for decided in model.predict(pair)] == list(witness.decisions)
