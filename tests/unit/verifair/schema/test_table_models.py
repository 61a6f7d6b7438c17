"""A schema for a model that takes a table must name its columns' kinds, categories and order; Schema.infer knows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from encoders.network import Feed, Network
from tests.builders import integer, network_of, one_hot, real, schema_of
from verifair.checker.envelope import semantics
from verifair.errors import DataError, SchemaError
from verifair.schema.draft import draft

AGE, SEX, HOURS = (
    integer("age", 17, 90),
    one_hot("sex", "F", "M"),
    real("hours-per-week", 0, 80),
)


def column(name: str, kind: str, start: int, *known: Any) -> Feed:
    return Feed(name=name, kind=kind, shape=(1,), start=np.array([start]), categories={0: known} if known else {})


def network(*feeds: Feed, outputs: int = 1) -> Network:
    n = sum(feed.columns for feed in feeds)
    return network_of((np.ones((outputs, n)), None), feeds=feeds)


MODEL = network(column("age", "int64", 0), column("sex", "text", 1, "F", "M"), column("hours_per_week", "float32", 3))


def schema(*features: dict[str, Any]) -> vf.Schema:
    return schema_of(*(list(features)), positive="logit > 0")


def test_a_schema_that_fits() -> None:
    schema(AGE, SEX, HOURS).check_network(MODEL)


@pytest.mark.parametrize(("features", "match"), [
    ((AGE, {**SEX, "categories": ["M", "F"]}, HOURS), r"'sex'.*\[\"F\", \"M\"\]; list these, in this order"),
    ((AGE, {**SEX, "categories": ["F", "X"]}, HOURS), r"list these, in this order"),
    (({**AGE, "range": [0, 2**24 + 2]}, SEX, HOURS), r"'age' has range = \[0, 16,777,218\].*float32.*larger unit"),
    (({**AGE, "kind": "real"}, SEX, HOURS), r"'age' has kind = 'real'.*takes integers.*kind = \"integer\""),
    (({**AGE, "scale": "minmax"}, SEX, HOURS), r"'age' has a scale.*leave the scale to the model"),
    ((SEX, AGE, HOURS), r"'sex' is encoded by the model: feature|the model's input 'sex'"),
    ((AGE, {**SEX, "kind": "categorical"}, HOURS), r"takes 4 \(age: 1 integer; sex: one-hot with 2"),
])
def test_what_does_not_fit_is_said(features: tuple[dict[str, Any], ...], match: str) -> None:
    with pytest.raises(SchemaError, match=match):
        schema(*features).check_network(MODEL)


def test_whole_numbers_that_float32_misses() -> None:
    """16,777,217 is fed as 16,777,216: a model of 64 bits may decide otherwise about it, and a proof would not see that."""
    double, single = (network(column("age", kind, 0)) for kind in ("float64", "float32"))
    wide = {**AGE, "range": [0, 2**24 + 1]}
    with pytest.raises(SchemaError, match=r"'age' has range = \[0, 16,777,217\].*takes numbers of 64 bits.*larger unit"):
        schema(wide).check_network(double)
    with pytest.raises(SchemaError, match="miss whole numbers"):
        schema({**wide, "scale": {"offset": 0.0, "scale": 1e6}}).check_network(double)
    for fits in (AGE, {**AGE, "range": [2**30, 2**30 + 7], "scale": {"offset": 2.0**30, "scale": 1.0}}):
        schema(fits).check_network(double)
    schema(wide).check_network(single)  # what a float32 model is fed is that float32 number
    assert semantics(double).endswith("on inputs rounded to float32 (the model takes float64)")
    assert semantics(single) == "real-valued function of the stored float32 weights"


def test_numbers_in_another_order() -> None:
    two = network(column("age", "float32", 0), column("hours_per_week", "float32", 1))
    schema({**AGE, "kind": "real"}, HOURS).check_network(two)
    with pytest.raises(SchemaError, match=r"'hours-per-week' stands in the place of another input.*age, hours_per_week"):
        schema(HOURS, {**AGE, "kind": "real"}).check_network(two)
    with pytest.raises(SchemaError, match="stands in the place"):
        schema({**HOURS, "name": "h", "column": "hours-per-week"}, {**AGE, "kind": "real"}).check_network(two)
    schema({**HOURS, "name": "other"}, {**AGE, "kind": "real", "name": "names"}).check_network(two)  # names that say nothing


FRAME = pd.DataFrame({"sex": ["M", "F", "M"], "hours-per-week": [1.5, 20, 80], "age": [17, 30, 90], "y": ["no", "yes", "no"]})


def test_infer_takes_order_and_categories_from_the_model() -> None:
    drafted = vf.Schema.infer(FRAME, target="y", positive="yes", protected=["sex"], network=MODEL)
    assert [(f.name, f.kind, f.scale) for f in drafted.features] == [
        ("age", "integer", "none"), ("sex", "one-hot", "none"), ("hours-per-week", "real", "none")]
    assert drafted["sex"].categories == ("F", "M")
    assert drafted.protected_names == ("sex",)
    assert drafted.positive == "logit > 0"
    drafted.check_network(MODEL)
    assert vf.Schema.loads(draft(FRAME, target="y", positive="yes", protected=["sex"], network=MODEL)) == drafted


def test_infer_for_one_matrix_takes_the_tables_order(tmp_path: Path) -> None:
    model = network(Feed(name="X", kind="float32", shape=(3,), start=np.array([0, 1, 3]), categories={1: (3, 4)}), outputs=2)
    frame = pd.DataFrame({"a": [1.0, 2.5], "b": [3, 4], "y": [0, 1], "c": [0, 9]})
    drafted = vf.Schema.infer(frame, target="y", network=model)
    assert [(f.name, f.kind, f.categories) for f in drafted.features] == [
        ("a", "real", None), ("b", "one-hot", ("3", "4")), ("c", "integer", None)]
    drafted.check_network(model)


def test_infer_names_what_does_not_fit_the_model() -> None:
    with pytest.raises(DataError, match=r"no column 'hours_per_week', which the model takes; known are sex, age, y"):
        vf.Schema.infer(FRAME.drop(columns="hours-per-week"), target="y", network=MODEL)
    with pytest.raises(DataError, match="'hours-per-week' holds text, but the model takes a number there"):
        vf.Schema.infer(FRAME.assign(**{"hours-per-week": ["a", "b", "c"]}), target="y", network=MODEL)
    with pytest.raises(DataError, match="takes 1 columns, the table has 3"):
        vf.Schema.infer(FRAME, target="y", network=network(column("X", "float32", 0)))
