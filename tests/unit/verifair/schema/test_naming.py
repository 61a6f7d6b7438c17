"""Names that hold what the command line uses as signs."""

import shlex

import pandas as pd
import pytest

from tests.builders import categorical, real, schema_of
from verifair.datasets.groups import group_of
from verifair.engine.questions import box_of
from verifair.errors import QueryError, SchemaError
from verifair.systems.results.words import box_options
from verifair.systems.settings import parsed_box


def test_names_with_an_equals_sign_and_categories_with_a_colon_can_be_asked_about() -> None:
    """On the command line `name=low:high` is a range, so that such names stand in quotes; what is printed is read back."""
    schema = schema_of(real("loan=amount", 0, 9), categorical("hours", "9:17", "22:6"))
    box = parsed_box(['"loan=amount"=1:2', "hours=22:6"])
    assert box == {"loan=amount": ("1", "2"), "hours": ("22", "6")}
    lower, upper = box_of(schema, box)
    assert (lower.tolist(), upper.tolist()) == ([1, 1], [2, 1])
    assert parsed_box(shlex.split(box_options(box))[1::2]) == box
    with pytest.raises(SchemaError, match=r"""no feature 'loan'.*stands in double quotes: '"loan=amount"=\.\.\.'$"""):
        box_of(schema, parsed_box(["loan=amount=1:2"]))
    with pytest.raises(SchemaError, match="'22' is an unknown category"):
        box_of(schema, parsed_box(["hours=22:7"]))
    number = pd.DataFrame({"a=b": range(50)})
    with pytest.raises(QueryError, match=r"""--split '"a=b"=24\.5'"""):
        group_of(schema, number, "a=b", None)
