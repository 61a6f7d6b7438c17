"""Constraints among features: the boxes they become against direct evaluation of their conditions, files, and every message."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from encoders.domain import Domain, Forbidden
from tests.builders import categorical, integer, one_hot, real, schema_of
from verifair.errors import DataError, SchemaError
from verifair.schema.constraint import Constraint, boxes_of, nothing_left
from verifair.schema.schema import Schema

HOME = schema_of(
    integer("age", 0, 90),
    one_hot("marital-status", "Single", "Married", "Divorced", "Widowed"),
    one_hot("relationship", "Husband", "Wife", "Child"),
    categorical("sex", "Female", "Male"),
    real("income", 0, 1000),
    label="paid",
)
HUSBAND = """
[[constraint]]
name = "a husband is male"
if = { relationship = "Husband" }
then = { sex = "Male" }
"""
CHILD = """
[[constraint]]
never = { age = { high = 15 }, marital-status = ["Married", "Widowed"] }
"""
HASH_WITHOUT = "22d0287256221d1be2b0e62df31660cfb08838811334262ede577fd09059514b"


def home(*constraints: str) -> Schema:
    return Schema.loads(HOME.dumps() + "".join(constraints), name="home.toml")


def constrained(line: str) -> str:
    return f'\n[[constraint]]\nname = "c"\n{line}\n'


def row(schema: Schema, **values: Any) -> np.ndarray:
    words = {"age": 30, "marital-status": "Single", "relationship": "Child", "sex": "Female", "income": 5.0}
    words |= {name.replace("_", "-"): value for name, value in values.items()}
    return np.array([[schema.raw_value(name, value) for name, value in words.items()]])


# What the boxes mean


def meets(schema: Schema, conditions: Mapping[str, Any], raw: np.ndarray) -> bool:
    """The conditions of a table as they were written, evaluated on one raw row."""
    for name, condition in conditions.items():
        value = raw[schema.index(name)]
        if isinstance(condition, Mapping):
            if not condition.get("low", -math.inf) <= value <= condition.get("high", math.inf):
                return False
        elif value not in [schema.raw_value(name, word) for word in (condition if isinstance(condition, list) else [condition])]:
            return False
    return True


@st.composite
def conditions(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    return {name: draw(condition(name)) for name in chosen}


def condition(name: str) -> st.SearchStrategy[Any]:
    categories = {
        "marital-status": ["Single", "Married", "Divorced", "Widowed"],
        "relationship": ["Husband", "Wife", "Child"],
        "sex": ["Female", "Male"],
    }
    if name in categories:
        words = st.sampled_from(categories[name])
        return words | st.lists(words, min_size=1, max_size=3)
    number: st.SearchStrategy[float] = st.integers(0, 90) if name == "age" else st.floats(0, 1000, width=32)
    ends = st.tuples(number, number).map(sorted).map(lambda pair: {"low": pair[0], "high": pair[1]})
    one_end = st.tuples(st.sampled_from(["low", "high"]), number).map(lambda pair: {pair[0]: pair[1]})
    return ends | one_end | number | st.lists(number, min_size=1, max_size=4)


NAMES = ["age", "marital-status", "relationship", "sex", "income"]
TABLES = st.fixed_dictionaries({"if": conditions(NAMES), "then": conditions(NAMES)}) | st.fixed_dictionaries(
    {"never": conditions(NAMES)}
)


def telling_rows(schema: Schema, table: Mapping[str, Any], rng: np.random.Generator) -> np.ndarray:
    """Legal rows around every end that the conditions mention, the next float64 or whole number on each side included."""
    choices: list[list[float]] = []
    for v, feature in enumerate(schema.features):
        low, high = schema.domain.lower[v], schema.domain.upper[v]
        marks = [low, high]
        for conditions in table.values():
            given = conditions.get(feature.name, [])
            ends = list(given.values()) if isinstance(given, Mapping) else given if isinstance(given, list) else [given]
            marks += [schema.raw_value(feature.name, end) for end in ends]
        near = [np.nextafter(m, s * np.inf) if feature.kind == "real" else m + s for m in marks for s in (-1, 1)]
        choices.append([float(m) for m in [*marks, *near] if low <= m <= high])
    return np.array([[rng.choice(one) for one in choices] for _ in range(60)])


@given(table=TABLES, seed=st.integers(0, 2**31))
def test_a_row_is_forbidden_exactly_when_its_conditions_say_so(table: dict[str, Any], seed: int) -> None:
    schema = home()
    rows = telling_rows(schema, table, np.random.default_rng(seed))
    truth = [breaks(schema, table, raw) for raw in rows]
    forbidden, refused = None, ""
    try:
        forbidden = boxes_of(Constraint.model_validate(table), schema.features)
    except SchemaError as error:
        refused = str(error)
    if forbidden is None:
        assert ("forbids nothing" in refused and not any(truth)) or ("forbids every row" in refused and all(truth))
    else:
        assert forbidden.contain(rows, rows).tolist() == truth


def breaks(schema: Schema, table: Mapping[str, Any], raw: np.ndarray) -> bool:
    if "never" in table:
        return meets(schema, table["never"], raw)
    return meets(schema, table["if"], raw) and not meets(schema, table["then"], raw)


def test_both_answers_occur_in_the_test_above() -> None:
    schema, rng = home(), np.random.default_rng(0)
    table = {"if": {"age": {"high": 40}, "sex": "Male"}, "then": {"income": {"low": 10.5, "high": 20}, "age": [3, 4, 7]}}
    rows = telling_rows(schema, table, rng)
    assert {breaks(schema, table, raw) for raw in rows} == {True, False}


def test_runs_of_neighbouring_categories_are_one_box() -> None:
    schema = home()
    forbidden = boxes_of(Constraint(never={"marital-status": ["Divorced", "Single", "Married"], "age": [3, 4, 9]}), schema.features)
    assert forbidden.lower[:, :2].tolist() == [[3, 0], [9, 0]]
    assert forbidden.upper[:, :2].tolist() == [[4, 2], [9, 2]]
    assert np.isinf(forbidden.lower[:, 2:]).all()
    assert np.isinf(forbidden.upper[:, 2:]).all()


def test_then_with_several_features_fails_in_each_of_them() -> None:
    schema = home()
    forbidden = boxes_of(Constraint(if_={"age": {"high": 15}}, then={"sex": "Male", "income": {"high": 10}}), schema.features)
    assert len(forbidden.lower) == 2
    assert forbidden.lower[:, 4].tolist() == [-np.inf, np.nextafter(10, np.inf)]
    assert forbidden.upper[:, 0].tolist() == [15, 15]


@pytest.mark.parametrize(("values", "legal"), [
    ({"relationship": "Husband", "sex": "Female"}, False),
    ({"relationship": "Husband", "sex": "Male"}, True),
    ({"relationship": "Wife", "sex": "Male"}, True),
    ({"age": 15, "marital_status": "Married"}, False),
    ({"age": 16, "marital_status": "Married"}, True),
    ({"age": 3, "marital_status": "Divorced"}, True),
    ({"age": 3, "marital_status": "Widowed"}, False),
])
def test_legal_rows(values: dict[str, Any], legal: bool) -> None:
    schema = home(HUSBAND, CHILD)
    raw = row(schema, **values)
    assert schema.inside(raw).tolist() == [legal]
    assert home().inside(raw).all()
    broken = schema.broken(raw)
    assert list(broken) == ["constraint 'a husband is male'", "constraint number 2"]
    assert any(one[0] for one in broken.values()) is not legal


@given(seed=st.integers(0, 2**31), boxes=st.integers(1, 12), real=st.booleans())
def test_nothing_left_agrees_with_the_lattice(seed: int, boxes: int, real: bool) -> None:
    rng = np.random.default_rng(seed)
    upper = rng.integers(0, 3, 3).astype(float)
    low, high = np.sort(rng.integers(-1, 4, (2, boxes, 3)).astype(float), axis=0)
    low[rng.random(low.shape) < 0.4], high[rng.random(high.shape) < 0.4] = -np.inf, np.inf
    domain = Domain(
        integer=np.full(3, not real), lower=np.zeros(3), upper=upper, offset=np.zeros(3), scale=np.ones(3), start=np.arange(3),
        one_hot=np.zeros(3, dtype=bool), width=np.ones(3, dtype=np.int64), forbidden=Forbidden(lower=low, upper=high),
    )
    step = 0.25 if real else 1.0  # ends are whole, so quarters meet every cell between them
    points = np.array(list(itertools.product(*(np.arange(0, end + step, step) for end in upper))))
    assert nothing_left(domain) is not bool(domain.legal(points).any())


# Files


@given(tables=st.lists(TABLES, min_size=1, max_size=3))
def test_written_and_read_again_is_the_same(tables: list[dict[str, Any]]) -> None:
    try:
        schema = Schema.build({"features": home().features, "constraints": tables})
    except SchemaError as error:
        assume("forbids" not in str(error) and "no row at all" not in str(error))
        raise
    text = schema.dumps()
    again = Schema.loads(text)
    assert again == schema
    assert again.dumps() == text
    assert again.sha256 == schema.sha256 != home().sha256
    assert np.array_equal(again.domain.forbidden.lower, schema.domain.forbidden.lower)  # type: ignore[union-attr]


def test_names_that_are_no_bare_keys_are_quoted() -> None:
    feature = {"name": 'a "b" = é', "kind": "integer", "range": [0, 9]}
    schema = Schema.build({"features": [feature], "constraints": [{"never": {'a "b" = é': 3}}]})
    assert Schema.loads(schema.dumps()) == schema


def test_without_constraints_nothing_changes() -> None:
    assert home().domain.forbidden is None
    assert home().sha256 == HASH_WITHOUT
    assert Schema.build({"features": home().features, "label": "paid", "constraints": []}).sha256 == HASH_WITHOUT
    assert "constraint" not in home().dumps()


def test_sections_may_be_tables_of_their_own() -> None:
    title = '[[constraint]]\nname = "a husband is male"\n'
    spread = title + '[constraint.if]\nrelationship = "Husband"\n[constraint.then]\nsex = "Male"\n'
    assert home(spread) == home(HUSBAND)


# Messages


@pytest.mark.parametrize(("line", "message"), [
    ('if = { sexx = "Male" }\nthen = { age = 3 }', "constraint 'c': there is no feature 'sexx' in the schema; did you mean"),
    ('never = { sex = "Mole" }', "constraint 'c': feature 'sex': 'Mole' is an unknown category; did you mean 'Male'? Known are "
     "Female, Male; correct it, or add the category to the schema"),
    ('never = { sex = "male" }', "constraint 'c': feature 'sex': 'male' is an unknown category; did you mean 'Male'?"),
    ("never = { sex = [] }", "constraint 'c': never: feature 'sex': [] lists no value; name at least one"),
    ("never = {}", "constraint 'c': never: found {}, expected conditions such as { feature = value }, at least one"),
    ("never = 3", "constraint 'c': never: found 3, expected conditions"),
    ("never = { age = { low = 20, high = 10 } }", "feature 'age': low = 20, high = 10 is reversed; exchange the ends"),
    ("never = { age = { low = 95 } }", "feature 'age': low = 95 lies outside the declared range 0 .. 90; leave this end"),
    ("never = { age = [3, 95] }", "feature 'age': 95 lies outside the declared range 0 .. 90; correct it, or widen"),
    ("never = { age = { low = 2.5 } }", "feature 'age': 2.5 is not a whole number"),
    ('never = { age = "old" }', "feature 'age': 'old' is not a number"),
    ("never = { age = { } }", "feature 'age': the range has no end; give low, high, or both"),
    ("never = { age = { low = inf } }", "feature 'age': low = inf is no finite number"),
    (f"never = {{ age = {{ high = 1{400 * '0'} }} }}", f"feature 'age': high = 1{299 * '0'} ... is no finite number"),
    (f"never = {{ age = 1{400 * '0'} }}", "feature 'age': inf is not finite; give a number within its range"),
    ('never = { age = { low = "3" } }', "feature 'age': low = '3' is no finite number"),
    ("never = { age = { lo = 3 } }", "feature 'age': lo: unknown key of a range; known are low and high"),
    ("never = { age = [[3]] }", r"feature 'age': [3] is no value; give a category"),
    ("never = { sex = { low = 1 } }", "feature 'sex': a range is for numbers, the feature is categorical; list its categories"),
    ('if = { sex = "Male" }', "constraint 'c': has if; write either if = ... and then = ..., or never = ..."),
    ('then = { sex = "Male" }', "constraint 'c': has then; write either"),
    ("", "constraint 'c': has no condition; write either"),
    ('if = { age = 3 }\nthen = { sex = "Male" }\nnever = { age = 4 }', "constraint 'c': has if and then and never; write"),
    ("newer = { age = 3 }\nnever = { age = 3 }", "constraint 'c': newer: unknown key; did you mean 'never'?"),
    ('never = { sex = ["Male", "Female"] }', "constraint 'c': it forbids every row"),
    ("if = { age = { high = 5 } }\nthen = { age = { high = 8 } }", "constraint 'c': it forbids nothing: `then` always holds"),
])
def test_messages(line: str, message: str) -> None:
    with pytest.raises(SchemaError) as error:
        home(constrained(line))
    assert message in str(error.value)
    assert str(error.value).startswith("home.toml: ")
    assert "\n" not in str(error.value)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(SchemaError) as error:
        home(constrained('never = { sexx = 1, age = 99, sex = "x" }'), "\n[[constraint]]\nnever = { age = 91 }\n")
    assert len(str(error.value).splitlines()) == 4
    assert "home.toml: constraint number 2: feature 'age': 91" in str(error.value)


@pytest.mark.parametrize(("content", "message"), [
    (HUSBAND + HUSBAND, "constraint 'a husband is male' stands twice"),
    (constrained('never = { sex = "Male" }') + '\n[[constraint]]\nnever = { sex = "Female" }', "leave no row at all"),
    ("\n[constraint]\nnever = { age = 3 }", r"write \[\[constraint\]\], with two brackets"),
    ("constraint = [3]", r"constraint number 1: found 3, expected a \[\[constraint\]\] section"),
])
def test_messages_about_the_whole(content: str, message: str) -> None:
    text = f"{content}\n{HOME.dumps()}" if content.startswith("constraint") else HOME.dumps() + content
    with pytest.raises(SchemaError, match=message):
        Schema.loads(text)


def test_too_many_boxes() -> None:
    odd = list(range(1, 90, 2))
    features = [{"name": name, "kind": "integer", "range": [0, 90]} for name in ("a", "b")]
    with pytest.raises(SchemaError, match="constraint number 1: it takes 2025 boxes, at most 1000"):
        Schema.build({"features": features, "constraints": [{"never": {"a": odd, "b": odd}}]})


# Tables


def frame() -> pd.DataFrame:
    columns = {
        "age": [30, 30, 10, 40],
        "marital-status": ["Married", "Married", "Widowed", "Single"],
        "relationship": ["Husband", "Husband", "Child", "Wife"],
        "sex": ["Male", "Female", "Male", "Female"],
        "income": [1.0, 2.0, 3.0, 4.0],
    }
    return pd.DataFrame(columns, index=[10, 11, 12, 13])


def test_rows_that_break_a_constraint_are_told() -> None:
    with pytest.raises(DataError) as error:
        home(HUSBAND, CHILD).raw(frame())
    assert str(error.value) == (
        "constraint 'a husband is male': 1 row breaks it, first row 11 with relationship = Husband, sex = Female; constraint "
        "number 2: 1 row breaks it, first row 12 with age = 10, marital-status = Widowed; correct the data or the constraint, or "
        "leave such rows out (--outside drop; in an audit file under [data], and in Python: outside = \"drop\")"
    )
    schema = home(HUSBAND, CHILD)
    assert schema.fitting(frame()).tolist() == [True, False, False, True]


def test_a_value_out_of_range_is_told_first() -> None:
    with pytest.raises(DataError, match="feature 'age': 1 row lies outside the declared range"):
        home(HUSBAND).raw(frame().assign(age=[30, 30, 30, 99]))


# Guardrails


def test_forbidding_more() -> None:
    schema = home(HUSBAND)
    guarded = schema.forbidding([{"age": {"low": 80}, "sex": "Male"}, {"income": {"high": 1.5}}], name="guard")
    assert [constraint.name for constraint in guarded.constraints] == ["a husband is male", "guard 1", "guard 2"]
    assert guarded.features == schema.features
    rows = np.concatenate([row(schema, age=85, sex="Male"), row(schema, income=1.5), row(schema, income=1.6)])
    assert schema.inside(rows).all()
    assert guarded.inside(rows).tolist() == [False, False, True]
    assert Schema.loads(guarded.dumps()) == guarded
    assert schema.forbidding([{"age": np.int64(3)}], name="one").constraints[-1].name == "one"
    assert schema.forbidding([], name="none") == schema


def test_forbidding_speaks_of_the_constraint() -> None:
    with pytest.raises(SchemaError, match="constraint 'guard': there is no feature 'agee' in the schema; did you mean 'age'"):
        home().forbidding([{"agee": 3}], name="guard")
    with pytest.raises(SchemaError, match="forbids every row"):
        home().forbidding([{"age": {"low": 0}}], name="guard")
