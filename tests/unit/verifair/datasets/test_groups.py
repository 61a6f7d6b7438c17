"""Groups of a table's rows: what cannot be grouped is told with an option that can be copied."""

import re
import shlex
import tomllib

import pandas as pd
import pytest

from tests.builders import integer, real, schema_of
from verifair.datasets.groups import group_of
from verifair.errors import QueryError


def test_the_split_that_is_proposed_can_be_typed_and_written_into_a_file() -> None:
    schema, name = schema_of(integer("Alter (Jahre)", 18, 80)), "Alter (Jahre)"
    with pytest.raises(QueryError) as error:
        group_of(schema, pd.DataFrame({name: range(20, 61)}), name, None)
    found = re.search(r"e\.g\. (--split .*) \(in an audit file: (.*)\)$", str(error.value))
    assert found is not None
    assert shlex.split(found[1]) == ["--split", f"{name}=40"]
    assert tomllib.loads(found[2]) == {"split": {name: [40]}}


def test_cuts_that_are_near_each_other_make_groups_of_their_own() -> None:
    schema, frame = schema_of(real("income", 0, 1e7)), pd.DataFrame({"income": [25.0, 1234567.5, 1234568.0, 1234568.25, 2e6]})
    assert group_of(schema, frame, "income", [1234567, 1234568, 1234568.25]).tolist() == [
        "at most 1234567", "above 1234567 to 1234568", "above 1234567 to 1234568", "above 1234568 to 1234568.25",
        "above 1234568.25",
    ]
    assert group_of(schema, frame, "income", [1e6])[0] == "at most 1e+06"
