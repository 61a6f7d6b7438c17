"""Schemas: round trip, encoding, and every message that a wrong schema or table gets."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from encoders.network import Network
from tests.builders import network_of, random_network
from verifair.errors import DataError, SchemaError
from verifair.schema.rows import LabelWarning
from verifair.schema.schema import Feature, Scale, Schema

LOAN = """
# a hand-written schema
[model]
positive = "class = 1"
label = "paid"
positive_label = "yes"

[[feature]]
name = "age"
kind = "integer"
range = [18, 90]
scale = "minmax"
unit = 1

[[feature]]
name = "sex"
kind = "categorical"
categories = ["female", "male"]
protected = true

[[feature]]
name = "housing"
kind = "one-hot"
categories = ["own", "rent", "free"]

[[feature]]
name = "income"
kind = "real"
range = [0, 1000.5]
scale = { offset = 10, scale = 4 }
unit = 0.5
change = "increase"
"""


@pytest.fixture
def loan() -> Schema:
    return Schema.loads(LOAN, name="loan.toml")


@pytest.fixture
def rows() -> pd.DataFrame:
    return pd.DataFrame({
        "income": [10.0, 500.25],
        "age": [18, 90],
        "sex": ["male", "female"],
        "housing": ["free", "own"],
        "paid": ["yes", "no"],
    })


def network(inputs: int, outputs: int) -> Network:
    return network_of((np.ones((outputs, inputs)), None))


def text_of(error: pytest.ExceptionInfo[Exception]) -> str:
    return str(error.value)


# Round trip and hash


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(str.strip).filter(bool)
finite = st.floats(-1e6, 1e6)


@st.composite
def features(draw: st.DrawFn, name: str) -> Feature:
    kind = draw(st.sampled_from(["real", "integer", "categorical", "one-hot"]))
    shared = {
        "name": name,
        "kind": kind,
        "column": draw(st.none() | names),
        "change": draw(st.sampled_from(["increase", "decrease", "fixed", "free"])),
        "protected": draw(st.booleans()),
        "merit": draw(st.booleans()),
        "description": draw(st.none() | st.text(st.characters(codec="utf-8"))),
    }
    if kind in ("categorical", "one-hot"):
        categories = draw(st.lists(names, min_size=1, max_size=5, unique=True))
        first, step = draw(st.integers(-9, 9)), draw(st.integers(1, 4))
        codes = [first + step * k for k in range(len(categories))]
        given_codes = draw(st.booleans()) if kind == "categorical" else False
        return Feature(**shared, categories=categories, codes=codes if given_codes else None)
    low, high = sorted(draw(st.tuples(finite, finite)))
    if kind == "integer":
        low, high = math.floor(low), math.ceil(high)
    scales = [st.just("none"), st.builds(Scale, offset=finite, scale=st.floats(1e-3, 1e3))]
    scale = draw(st.one_of(*scales, *([st.just("minmax")] if high - low > 1e-6 else [])))
    unit = draw(st.none() | st.floats(1e-6, 1e6))
    return Feature(**shared, range=(low, high), scale=scale, unit=unit)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    chosen = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    return Schema(
        features=[draw(features(name)) for name in chosen],
        positive=draw(st.sampled_from(["logit > 0", "class = 1"])),
        positive_label=draw(st.none() | names),
    )


def raw_rows(schema: Schema, fractions: np.ndarray) -> np.ndarray:
    """Legal raw rows from fractions (N, V) of the ranges."""
    domain = schema.domain
    raw = np.clip(domain.lower + fractions * (domain.upper - domain.lower), domain.lower, domain.upper)
    return np.where(domain.integer, np.round(raw), raw)


@given(schemas())
def test_written_and_read_again_is_the_same(schema: Schema) -> None:
    text = schema.dumps()
    again = Schema.loads(text)
    assert again == schema
    assert again.dumps() == text
    assert again.sha256 == schema.sha256


@given(schemas(), st.data())
def test_decoded_rows_read_back_as_the_same_raw_rows(schema: Schema, data: st.DataObject) -> None:
    fraction = st.floats(0, 1)
    row = st.lists(fraction, min_size=len(schema.features), max_size=len(schema.features))
    fractions = np.array(data.draw(st.lists(row, min_size=1, max_size=4)))
    raw = raw_rows(schema, fractions)
    assert schema.inside(raw).all()
    words = pd.DataFrame([schema.decode(line) for line in raw])
    renamed = {f.name: f.source for f in schema.features}
    if len(set(renamed.values())) < len(renamed) or any(renamed[n] != n and renamed[n] in words for n in renamed):
        return  # two features that read one column cannot hold different values
    assert np.array_equal(schema.raw(words.rename(columns=renamed)), raw)


@given(schemas(), st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_encoded_columns_are_the_float32_numbers_of_the_definition(schema: Schema, fractions: list[float]) -> None:
    raw = raw_rows(schema, np.array([fractions[: len(schema.features)]]))
    encoded = schema.encode(raw)[0]
    assert np.array_equal(encoded, encoded.astype(np.float32))
    position = 0
    for feature, value in zip(schema.features, raw[0], strict=True):
        if feature.kind == "one-hot":
            width = len(feature.categories or ())
            assert encoded[position : position + width].tolist() == [float(k == value) for k in range(width)]
            position += width
            continue
        if feature.codes is not None:
            expected = float(feature.codes[int(value)])
        elif feature.range is not None and feature.scale == "minmax":
            expected = (value - feature.range[0]) / (feature.range[1] - feature.range[0])
        elif isinstance(feature.scale, Scale):
            expected = (value - feature.scale.offset) / feature.scale.scale
        else:
            expected = value
        assert encoded[position] == np.float32(expected)
        position += 1
    assert position == len(encoded)


def test_saved_and_loaded(loan: Schema, tmp_path) -> None:
    loan.save(tmp_path / "again.toml")
    assert Schema.load(tmp_path / "again.toml") == loan
    assert b"\r" not in (tmp_path / "again.toml").read_bytes()


def test_byte_order_mark_of_windows_editors_is_no_error(loan: Schema, tmp_path) -> None:
    path = tmp_path / "windows.toml"
    path.write_bytes(b"\xef\xbb\xbf" + LOAN.replace("\n", "\r\n").encode())
    assert Schema.load(path) == loan


def test_hash_ignores_how_it_is_written_and_nothing_else(loan: Schema) -> None:
    plain = "\n".join(line for line in LOAN.splitlines() if line and not line.startswith("#"))
    other_order = plain.replace('kind = "integer"\nrange = [18, 90]', 'protected = false\nrange = [18.0, 9e1]\nkind = "integer"')
    assert Schema.loads(other_order).sha256 == loan.sha256
    assert Schema.loads(LOAN.replace("[0, 1000.5]", "[-0.0, 1000.5]")).sha256 == loan.sha256
    assert Schema.loads(LOAN.replace("90", "91")).sha256 != loan.sha256
    assert Schema.loads(LOAN.replace('"female", "male"', '"male", "female"')).sha256 != loan.sha256


def test_frozen(loan: Schema) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        loan.label = "other"  # type: ignore[misc]


# What a schema says


def test_rows_in_the_schema_s_order(loan: Schema, rows: pd.DataFrame) -> None:
    raw = loan.raw(rows)
    assert raw.tolist() == [[18, 1, 2, 10], [90, 0, 0, 500.25]]
    assert loan.encode(raw).tolist() == [[0, 1, 0, 0, 1, 0], [1, 0, 1, 0, 0, float(np.float32(490.25 / 4))]]
    assert loan.decode(raw[0]) == {"age": 18, "sex": "male", "housing": "free", "income": 10.0}
    assert isinstance(loan.decode(raw[0])["age"], int)
    assert loan.labels(rows).tolist() == [1, 0]


def test_names_and_values(loan: Schema) -> None:
    assert loan.protected_names == ("sex",)
    assert loan.index("housing") == 2
    assert loan.values("sex").tolist() == [0, 1]
    assert loan.values("housing").tolist() == [0, 1, 2]
    assert loan.values("age")[[0, -1]].tolist() == [18, 90]
    assert [loan.format("sex", 1), loan.format("age", 30.0), loan.format("income", 2.5)] == ["male", "30", "2.5"]
    with pytest.raises(SchemaError, match=r"'income' is real-valued.*if whole, declare it integer"):
        loan.values("income")
    with pytest.raises(SchemaError, match=r"no feature 'housng' in the schema; did you mean 'housing'\?"):
        loan.index("housng")
    with pytest.raises(SchemaError, match="known are age, sex, housing, income"):
        loan["zzz"]


def test_one_raw_value(loan: Schema) -> None:
    assert loan.raw_value("sex", "male") == 1
    assert loan.raw_value("sex", 0) == 0
    assert loan.raw_value("age", "30") == 30
    for value, found in [("mole", r"unknown category; did you mean 'male'\?"), (7, "unknown category; known are female, male")]:
        with pytest.raises(SchemaError, match=f"feature 'sex': {value!r} is an {found}"):
            loan.raw_value("sex", value)
    for name, value, found in [
        ("age", "old", "is not a number"),
        ("age", 30.5, "is not a whole number"),
        ("income", "nan", "is not finite"),
    ]:
        with pytest.raises(SchemaError, match=f"feature '{name}': {value!r} {found}"):
            loan.raw_value(name, value)


def test_steps_of_pba(loan: Schema) -> None:
    assert loan.steps([]).tolist() == [1, 0, 0, 0.5]
    assert loan.steps(["age"]).tolist() == [0, 0, 0, 0.5]
    assert Schema.loads(LOAN.replace("unit = 1\n", 'unit = 1\nchange = "fixed"\n')).steps([]).tolist() == [0, 0, 0, 0.5]
    assert Schema.loads(LOAN.replace("unit = 1\n", "unit = 1\nprotected = true\n")).steps([]).tolist() == [0, 0, 0, 0.5]
    without = Schema.loads(LOAN.replace("unit = 1\n", "").replace("unit = 0.5\n", ""))
    with pytest.raises(SchemaError, match=r"no feature that may move has one \(age, income\); add unit = "):
        without.steps([])
    with pytest.raises(SchemaError, match=r"no feature that may move has one \(no number is free to move\)"):
        without.steps(["age", "income"])
    assert without.steps([], needed=False).tolist() == [0, 0, 0, 0]


def test_network_that_fits_and_networks_that_do_not(loan: Schema) -> None:
    loan.check_network(network(6, 2))
    with pytest.raises(SchemaError, match=r"6 input columns \(4 features; one-hot blocks: housing 3\), but the network takes 5"):
        loan.check_network(network(5, 2))
    loan.check_network(network(6, 1))  # of one logit class 1 is that above 0
    single = Schema.loads(LOAN.replace("class = 1", "logit > 0"))
    single.check_network(network(6, 1))
    with pytest.raises(SchemaError, match=r'needs a network with one logit, this one has 2; write positive = "class = 1"'):
        single.check_network(network(6, 2))


def test_codes_of_categories() -> None:
    schema = Schema(features=[Feature(name="grade", kind="categorical", categories=["low", "mid", "high"], codes=[-3, 0, 3])])
    assert schema.encode(np.array([[0.0], [1.0], [2.0]])).ravel().tolist() == [-3, 0, 3]
    assert schema.raw(pd.DataFrame({"grade": ["high", "low"]})).ravel().tolist() == [2, 0]
    assert schema.raw(pd.DataFrame({"grade": [3, -3, 0]})).ravel().tolist() == [2, 0, 1]
    assert schema.raw_value("grade", -3) == 0
    assert schema.fitting(pd.DataFrame({"grade": [3, 1, 6]})).tolist() == [True, False, False]
    with pytest.raises(DataError, match=r"feature 'grade': 1 row lies outside the declared codes -3 .. 3, first row 1 with 6"):
        schema.raw(pd.DataFrame({"grade": [0, 6]}))


# Wrong schemas


def with_feature(lines: str) -> str:
    return f'[[feature]]\nname = "age"\n{lines}\n'


NUMBER = 'kind = "integer"\nrange = [1, 9]\n'
SEX = 'kind = "categorical"\ncategories = ["f", "m"]\n'


@pytest.mark.parametrize(("text", "message"), [
    ("[model\n", r"bad\.toml: not valid TOML: .*line 1"),
    ("[modle]\n" + with_feature(NUMBER), r"bad\.toml: unknown section modle; a schema has \[model\] and \[\[feature\]\]"),
    ("[model]\n", r"bad\.toml: has no \[\[feature\]\] section; describe each input column"),
    ("feature = []\n", "bad.toml: there is no feature; describe each input column"),
    ('[feature]\nname = "age"\n', r"write \[\[feature\]\], with two brackets"),
    ("feature = [3]\n", r"feature number 1: found 3, expected a \[\[feature\]\] section"),
    ("model = 3\n" + with_feature(NUMBER), r"model is 3; write a \[model\] section"),
    ("[model]\nfeatures = 3\n" + with_feature(NUMBER), r"\[model\]: features: unknown key"),
    ('[model]\npositve = "class = 1"\n' + with_feature(NUMBER), r"bad\.toml: positve: unknown key; did you mean 'positive'\?"),
    ('[model]\npositive = "yes"\n' + with_feature(NUMBER), "positive = 'yes': expected .logit > 0. or another threshold"),
    ('[model]\nlabel = "age"\n' + with_feature(NUMBER), "label 'age' is also the column of a feature.*drop one"),
    (with_feature("range = [1, 2]"), r"^bad\.toml: feature 'age': kind: is missing; add it$"),
    (f'[[feature]]\nname = "sex"\n{SEX}[[feature]]\n{NUMBER}', r"^bad\.toml: feature number 2: name: is missing; add it$"),
    (with_feature('kind = "number"'), "feature 'age': kind: Input should be 'real', 'integer', .* found 'number'"),
    (with_feature(NUMBER + "rnage = [1, 2]"), r"feature 'age': rnage: unknown key; did you mean 'range'\?"),
    (with_feature(NUMBER + "zzzzzzz = 1"), "feature 'age': zzzzzzz: unknown key; known are name, kind, column"),
    (with_feature('kind = "real"'), r"feature 'age': a real feature needs range = \[low, high\] in raw units"),
    (with_feature('kind = "real"\nrange = [9, 1]'), r"feature 'age': range = \[9, 1\] is reversed; write \[1, 9\]"),
    (with_feature('kind = "real"\nrange = [0, inf]'), r"feature 'age': range\.1: .* finite number, found inf"),
    (with_feature('kind = "real"\nrange = [0]'), r"feature 'age': range\.1: is missing; add it"),
    (with_feature('kind = "real"\nrange = [1, 1]\nscale = "minmax"'), "divides by zero on range = .1, 1.; use scale"),
    (with_feature('kind = "real"\nrange = [0, 1e39]'), "leaves the range of float32 after scaling"),
    (with_feature('kind = "real"\nrange = [-1e308, 1e308]\nscale = "minmax"'), "leaves the range of float32"),
    (with_feature('kind = "real"\nrange = [-1e308, 1e308]\nscale = { offset = 0, scale = 1e308 }'), "or float64's; count"),
    (with_feature('kind = "integer"\nrange = [1, 2.5]'), r"range = \[1, 2\.5\] of an integer feature must have whole ends"),
    (with_feature('kind = "integer"\nrange = [0, 1e17]'), r"too wide: whole numbers are exact up to 2\*\*53"),
    (with_feature('kind = "integer"\nrange = [-4503599627370496, 4503599627370496]'), r"too wide: whole numbers are exact up to"),
    (with_feature(NUMBER + 'categories = ["a"]'), "categories and codes belong to categorical and one-hot features"),
    (with_feature(NUMBER + "unit = 0"), "feature 'age': unit = 0, expected a number above 0"),
    (with_feature(NUMBER + "unit = -1.5"), "feature 'age': unit = -1.5, expected a number above 0"),
    (with_feature(NUMBER + 'scale = "standard"'), "feature 'age': scale: Input should be 'none' or 'minmax', found 'standard'"),
    (with_feature(NUMBER + "scale = { offset = 1, scale = 0 }"), r"'age': scale\.scale = 0, expected a number above 0"),
    (with_feature(NUMBER + 'change = "up"'), "feature 'age': change: Input should be 'increase', .* found 'up'"),
    (with_feature(NUMBER + "protected = 3"), "feature 'age': protected: Input should be a valid boolean.* found 3"),
    (with_feature('kind = "one-hot"'), "feature 'age': a one-hot feature needs categories"),
    (with_feature('kind = "categorical"\ncategories = []'), "feature 'age': a categorical feature needs categories"),
    (with_feature('kind = "categorical"\ncategories = "ab"'), "feature 'age': categories: .* found 'ab'"),
    (with_feature('kind = "categorical"\ncategories = ["a", "b", " a"]'), "categories repeat 'a'; each may stand once"),
    (with_feature('kind = "categorical"\ncategories = ["", "b", " "]'), "categories repeat ''; each may stand once"),
    (with_feature('kind = "categorical"\ncategories = [1, 1.0]'), "categories repeat '1'; each may stand once"),
    (with_feature(SEX + "unit = 1"), "range, scale and unit belong to numbers, not to a categorical feature; drop them"),
    (with_feature(SEX + "range = [0, 1]"), "range, scale and unit belong to numbers"),
    (with_feature(SEX + "codes = [1]"), "1 codes for 2 categories; give one code for each"),
    (with_feature(SEX + "codes = [2, 1]"), r"codes = \[2, 1\] must increase in even steps"),
    (with_feature('kind = "categorical"\ncategories = ["a", "b", "c"]\ncodes = [1, 2, 4]'), "must increase in even steps"),
    (with_feature(SEX + "codes = [0, 100000000]"), r"must lie within -2\*\*24"),
    (with_feature(SEX.replace("categorical", "one-hot") + "codes = [0, 1]"), "codes belong to categorical features"),
    (with_feature(NUMBER) + with_feature(NUMBER), "features named twice: age; give each its own name"),
])
def test_wrong_schema(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as error:
        Schema.loads(text, name="bad.toml")
    assert all(line.startswith("bad.toml: ") for line in text_of(error).splitlines())


def test_all_problems_are_told_at_once() -> None:
    sex = '[[feature]]\nname = "sex"\nkind = "categorical"\nrnage = 1\n'
    text = "[model]\npositive = 3\n" + with_feature('kind = "real"') + sex
    with pytest.raises(SchemaError) as error:
        Schema.loads(text, name="bad.toml")
    lines = text_of(error).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["feature 'age'", "feature 'sex'", "positive"]


def test_constructors_raise_schema_errors_too() -> None:
    with pytest.raises(SchemaError, match="feature 'age': kind: Input should be"):
        Feature(name="age", kind="whole")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="feature without a name: name: String should have at least 1 character"):
        Feature(name="", kind="real", range=(0, 1))
    with pytest.raises(SchemaError, match="there is no feature"):
        Schema(features=[])


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no_such.toml: cannot be read .No such file"), (b"\xff\xfe\x00", "is not UTF-8 text; a schema is a TOML file")],
)
def test_files_that_are_no_schema(tmp_path, content: bytes | None, message: str) -> None:
    path = tmp_path / "no_such.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SchemaError, match=message):
        Schema.load(path)
    with pytest.raises(SchemaError, match="cannot be read"):
        Schema.load(tmp_path)


# Tables


def test_categories_by_code_or_name(loan: Schema, rows: pd.DataFrame) -> None:
    expected = loan.raw(rows)
    assert np.array_equal(loan.raw(rows.assign(sex=[1, 0], housing=[2.0, 0.0])), expected)
    assert np.array_equal(loan.raw(rows.assign(sex=pd.Categorical(["male", "female"]))), expected)
    assert np.array_equal(loan.raw(rows.assign(sex=rows["sex"].astype(object), age=["18", "90"])), expected)
    assert np.array_equal(loan.raw(rows.assign(sex=[" male", "female "], age=pd.Categorical([18, 90]))), expected)
    assert np.array_equal(loan.raw(rows.astype({"age": "Int64", "sex": "string"})), expected)


def test_a_number_that_is_two_categories_is_refused() -> None:
    """Readers of CSV files take 01 for 1 where all cells look like numbers."""
    schema = Schema(features=[Feature(name="site", kind="categorical", categories=("01", "1", "2"))])
    assert schema.raw(pd.DataFrame({"site": ["1", "01", "2"]})).ravel().tolist() == [1, 0, 2]
    assert schema.raw(pd.DataFrame({"site": [2, 2]})).ravel().tolist() == [2, 2]
    with pytest.raises(DataError, match="the table holds the number 1, which is '01' and '1' alike; read text"):
        schema.raw(pd.DataFrame({"site": [2, 1, 1]}))


def test_categories_named_by_numbers_are_never_read_as_codes() -> None:
    schema = Schema(features=[Feature(name="rate", kind="categorical", categories=[1, 2])])  # type: ignore[list-item]
    assert schema.raw(pd.DataFrame({"rate": [1.0, 2.0]})).ravel().tolist() == [0, 1]
    with pytest.raises(DataError, match="feature 'rate': row 0 holds '0', an unknown category; known are 1, 2"):
        schema.raw(pd.DataFrame({"rate": [0, 0]}))
    with pytest.raises(SchemaError, match="0 is an unknown category"):
        schema.raw_value("rate", 0)


def test_booleans_are_categories() -> None:
    schema = Schema(features=[Feature(name="own", kind="categorical", categories=[False, True])])  # type: ignore[list-item]
    assert schema.raw(pd.DataFrame({"own": [True, False]})).ravel().tolist() == [1, 0]


def test_one_hot_columns_of_the_table(loan: Schema, rows: pd.DataFrame) -> None:
    block = pd.get_dummies(rows, columns=["housing"]).assign(housing_rent=False)
    assert np.array_equal(loan.raw(block), loan.raw(rows))
    for columns, message in [
        ({"housing_own": [1, 1]}, r"feature 'housing': row 0 has 2 of its one-hot columns set \(housing_own, housing_free\)"),
        ({"housing_free": [0, 0]}, r"feature 'housing': row 0 has 0 of its one-hot columns set \(none\), expected exactly one"),
        ({"housing_own": [0.0, 0.5], "housing_rent": [0.0, 0.5]}, r"row 1 has 2 of its one-hot columns set"),
        ({"housing_own": [0.0, np.nan]}, "feature 'housing': 1 row has no value in column 'housing_own', first row 1"),
        ({"housing_own": ["no", "yes"]}, "feature 'housing': row 0 has 2 of its one-hot columns set"),
    ]:
        with pytest.raises(DataError, match=message):
            loan.raw(block.assign(**columns))
    with pytest.raises(DataError, match="has some of its one-hot columns but not housing_rent; add these"):
        loan.raw(block.drop(columns="housing_rent"))


@pytest.mark.parametrize(("column", "values", "message"), [
    ("age", [18, None], "feature 'age': 1 row has no value in column 'age', first row 1; drop such rows, or fill them in"),
    ("age", [None, None], "feature 'age': 2 rows have no value in column 'age', first row 0"),
    ("age", ["18", "old"], "feature 'age': row 1 holds 'old', expected a finite number"),
    ("age", ["18", "\t"], r"feature 'age': row 1 holds '\\t', expected a finite number"),
    ("age", ["18", "20\xa0"], r"feature 'age': row 1 holds '20\\xa0', expected a finite number"),
    ("sex", ["male", "\t"], r"feature 'sex': row 1 holds '\\t', "),
    ("age", [18.5, 20], "feature 'age': row 0 holds 18.5, expected a whole number; round the data"),
    ("income", [18, math.inf], "feature 'income': row 1 holds 'inf', expected a finite number"),
    ("age", pd.to_datetime(["2020-01-01", "2020-01-02"]), "feature 'age': the column's type is datetime64.*, expected numbers"),
    ("age", pd.period_range("2020-01", periods=2, freq="M"), "feature 'age': the column's type is period.*, expected numbers"),
    ("age", [18 + 1j, 20], "feature 'age': the column's type is complex128, expected numbers"),
    ("age", [17, 91], "feature 'age': 2 rows lie outside the declared range 18 .. 90, first row 0 with 17; widen the range"),
    ("income", [0, 1000.75], "feature 'income': 1 row lies outside the declared range 0 .. 1000.5, first row 1 with 1000.75"),
    ("sex", ["male", "femal"], r"feature 'sex': row 1 holds 'femal', an unknown category; did you mean 'female'\?"),
    ("sex", ["male", "x"], "feature 'sex': row 1 holds 'x', an unknown category; known are female, male; correct the data"),
    ("sex", [0, 2], "feature 'sex': 1 row lies outside the declared codes 0 .. 1, first row 1 with 2; add the category"),
    ("sex", [0, 0.5], "feature 'sex': row 1 holds 0.5, expected a whole number; give names or whole codes"),
    ("sex", [["male"], ["female"]], "feature 'sex': the cells hold lists or other compound values"),
])
def test_bad_cells(loan: Schema, rows: pd.DataFrame, column: str, values: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        loan.raw(rows.assign(**{column: values}))


def test_bad_columns(loan: Schema, rows: pd.DataFrame) -> None:
    with pytest.raises(DataError, match=r"no column 'age'; did you mean 'Age'\? Then name it in the schema: column = .Age."):
        loan.raw(rows.rename(columns={"age": "Age"}))
    with pytest.raises(DataError, match="feature 'age': the table has no column 'age'; it has income, sex, housing, paid"):
        loan.raw(rows.drop(columns="age"))
    with pytest.raises(DataError, match="feature 'sex': the table has 2 columns 'sex'; give each its own name"):
        loan.raw(pd.concat([rows, rows[["sex"]]], axis=1))


def test_rows_and_file_are_called_by_their_names(loan: Schema, rows: pd.DataFrame) -> None:
    rows.attrs["source"] = "loans.csv"
    later = rows.assign(age=[18, 99]).set_index(pd.Index([7, 42]))
    with pytest.raises(DataError, match=r"^loans\.csv: feature 'age': .* first row 42 with 99"):
        loan.raw(later)
    with pytest.raises(DataError, match=r"^loans\.csv: label: the table has no column 'paid'"):
        loan.labels(later.drop(columns="paid"))


def test_rows_outside_can_be_kept_and_told(loan: Schema, rows: pd.DataFrame) -> None:
    raw = loan.raw(rows.assign(age=[17, 30]), outside="keep")
    assert loan.inside(raw).tolist() == [False, True]
    assert loan.raw(rows.iloc[:0]).shape == (0, 4)


def test_an_unknown_category_is_outside(loan: Schema, rows: pd.DataFrame) -> None:
    assert loan.fitting(rows.assign(sex=["male", "other"])).tolist() == [True, False]
    assert loan.fitting(rows.assign(sex=pd.Categorical(["other", "male"]))).tolist() == [False, True]
    with pytest.raises(DataError, match="add the category to the schema, or leave such rows out"):
        loan.raw(rows.assign(sex=["male", "other"]), outside="keep")


def test_labels(loan: Schema, rows: pd.DataFrame) -> None:
    assert loan.labels(rows.assign(paid=["no", "no"])).tolist() == [0, 0]
    numbers = Schema(features=loan.features, label="paid", positive_label=1)  # type: ignore[arg-type]
    assert numbers.labels(rows.assign(paid=[1.0, 2.0])).tolist() == [1, 0]
    truths = Schema(features=loan.features, label="paid", positive_label=True)  # type: ignore[arg-type]
    assert truths.labels(rows.assign(paid=[False, True])).tolist() == [0, 1]
    classes = Schema(features=loan.features, label="paid")
    assert classes.labels(rows.assign(paid=[2, 0])).tolist() == [2, 0]
    with pytest.raises(SchemaError, match=r'names no label column; add label = "\.\.\." to its \[model\] section'):
        Schema(features=loan.features).labels(rows)
    for values, message in [
        (["Yes", "No"], "label 'paid': no row holds positive_label = 'yes'; found No, Yes; correct the schema's positive_label"),
        (["yes", None], "label: 1 row has no value in column 'paid', first row 1; drop such rows"),
    ]:
        with pytest.raises(DataError, match=message):
            loan.labels(rows.assign(paid=values))
    three = pd.concat([rows, rows.iloc[:1]], ignore_index=True)
    for missing in ("?", "NaN", "null"):
        assert loan.labels(rows.assign(paid=["yes", missing])).tolist() == [1, 0]  # may be the other one's name
        with pytest.raises(DataError, match=r"some rows hold '.*', which seems to stand for no value, .* not 'yes'"):
            loan.labels(three.assign(paid=["yes", "no", missing]))
    with pytest.warns(LabelWarning, match="label 'paid': rows with None, no all count as not 'yes'"):
        assert loan.labels(three.assign(paid=["yes", "no", "None"])).tolist() == [1, 0, 0]
    for values in (["yes", "no"], [0.5, 1], [-1, 1]):
        with pytest.raises(DataError, match=r"label 'paid' holds .*, not class numbers 0, 1, \.\.\.; name the positive value"):
            classes.labels(rows.assign(paid=values))


def test_labels_in_two_spellings_are_refused(loan: Schema, rows: pd.DataFrame) -> None:
    """They would count as not favourable; blanks around a word are no other spelling, and two names alone are two classes."""
    three = pd.concat([rows, rows.iloc[:1]], ignore_index=True)
    numbers = loan.changed(positive_label="1")
    for schema, values in ((loan, ["yes", "no", "Yes"]), (numbers, ["1", "0", "1.0"]), (numbers, ["1", "0", "01"])):
        with pytest.raises(DataError, match=r"some rows hold '(Yes|1.0|01)', which seems to be '(yes|1)' in another spelling, and"):
            schema.labels(three.assign(paid=values))
    with pytest.raises(DataError, match="some rows hold 'Yes', which seems to be 'yes' in another spelling"):
        loan.labels(rows.assign(paid="Yes"))
    with pytest.raises(DataError, match="some rows hold 'Yes', which seems to be 'yes' in another spelling"):
        Schema.infer(three.assign(paid=["yes", "no", "Yes"]), target="paid", positive="yes")
    assert loan.labels(three.assign(paid=["yes", "no", " yes "])).tolist() == [1, 0, 1]
    assert loan.labels(rows.assign(paid=["yes", "YES"])).tolist() == [1, 0]


@pytest.mark.parametrize(("positive", "outputs"), [("logit > 0", 1), ("class = 1", 2)])
def test_labels_beyond_the_classes_of_a_model_are_refused(
    loan: Schema, rows: pd.DataFrame, positive: str, outputs: int
) -> None:
    """Labels 1 and 2 are often good and bad: 1 would count as favourable, and 2 as another class."""
    network = random_network(np.random.default_rng(0), (loan.domain.columns, outputs))
    _, settled = loan.changed(positive=positive, positive_label=None).settled(network)
    assert settled.favoured(rows.assign(paid=[0, 1])).tolist() == [False, True]
    with pytest.raises(DataError, match="label 'paid' holds 1, 2, not class numbers 0 and 1; name the positive value in"):
        settled.favoured(rows.assign(paid=[1, 2]))
    assert settled.sha256 == loan.changed(positive=positive, positive_label=None).sha256


def test_names_of_the_domain(loan: Schema) -> None:
    assert loan.domain.forbidden is None
    arrays = [field.name for field in dataclasses.fields(loan.domain) if field.name != "forbidden"]
    domain = {name: getattr(loan.domain, name).tolist() for name in arrays}
    assert domain == {
        "integer": [True, True, True, False],
        "lower": [18, 0, 0, 0],
        "upper": [90, 1, 2, 1000.5],
        "offset": [18, 0, 0, 10],
        "scale": [72, 1, 1, 4],
        "start": [0, 1, 2, 5],
        "one_hot": [False, False, True, False],
        "width": [1, 1, 3, 1],
    }
