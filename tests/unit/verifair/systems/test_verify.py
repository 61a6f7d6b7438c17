"""`vf.verify` gives each type of query to its own decider, and refuses what is none."""

from typing import Any

import pandas as pd
import pytest

import verifair as vf
from tests.builders import categorical, integer, network_of, schema_of
from verifair.engine.questions import box_of
from verifair.errors import QueryError
from verifair.systems.settings import parsed_box

SCHEMA = schema_of(
    integer("age", 0, 3, unit=1), integer("sex", 0, 1, protected=True), label="good"
)
ABOUT: dict[str, Any] = {"model": network_of(([[1.0, 0.5]], [-1.75])), "schema": SCHEMA, "protected": ["sex"]}
ROWS: dict[str, Any] = {"model": ABOUT["model"], "schema": SCHEMA, "protected": "sex", "delta": [1]}
FRAME = pd.DataFrame({"age": [3, 3], "sex": [0, 1], "good": [1, 1]})


@pytest.mark.parametrize(("query", "answer"), [
    (vf.IndividualFairness(**ABOUT), vf.Verdict), (vf.ProbabilityGap(**ABOUT), vf.MaximumGap),
    (vf.KDiscrimination(**ABOUT), vf.KmaxVerdict),
])
def test_every_question_about_a_box_is_decided(query: Any, answer: type) -> None:
    assert isinstance(vf.verify(query, budget=vf.Budget(seconds=20)), answer)
    with pytest.raises(QueryError, match=f"{type(query).__name__} is asked of a box: drop the table"):
        vf.verify(query, FRAME)


@pytest.mark.parametrize("query", [vf.PersistentBias(**ROWS), vf.Robustness(**ROWS)])
def test_every_question_about_rows_is_decided(query: Any) -> None:
    verdicts = vf.verify(query, FRAME, budget=vf.Budget(seconds=20))
    assert set(verdicts["row"]) == {0, 1}
    with pytest.raises(QueryError, match=r"is asked row by row: use verify\(query, frame\)"):
        vf.verify(query)


def test_a_box_may_name_the_category_without_a_name() -> None:
    schema = schema_of(categorical("job", "", "clerk", "a:b"), integer("sex", 0, 1, protected=True))
    for text, code in (("job=", 0), ("job=clerk", 1), ("job=a:b", 2)):
        lower, upper = box_of(schema, parsed_box([text]))
        assert (lower[0], upper[0]) == (code, code)


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(QueryError, match="str is no query; expected one of IndividualFairness, ProbabilityGap"):
        vf.verify("fair?")  # type: ignore[call-overload]
