"""How many counterexamples on a tree ensemble hang on a tie, or on the order of a float32 sum."""

from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

from tests.builders import integer, schema_of
from tests.tree_models import save
from verifair.cli.main import app

NEAR = 2.0**-24
"""What a third of the people gain by sex: less than adding 1/2 and 1/4 in float32 may lose."""


def test_ties_are_counted_apart_from_what_is_near_them(tmp_path: Path) -> None:
    """By sex, who has a = 0 gains nothing, a = 1 loses NEAR, a = 2 loses 1: observed and flipped, for rows of sex 0 and 1."""
    by_sex = (1, "BRANCH_LEQ", 0.5, [0.0], (1, "BRANCH_LEQ", 1.5, [-NEAR], [-1.0]))
    trees = [(0, "BRANCH_LEQ", 0.5, [0.0], by_sex), [0.5], [2.25]]
    model = save(tmp_path / "trees.onnx", trees, 3)
    schema_of(integer("sex", 0, 1, protected=True), integer("a", 0, 2), integer("b", 0, 1, unit=1), label="good").save(
        tmp_path / "schema.toml"
    )
    pd.DataFrame({"sex": [0, 1] * 3, "a": [0, 0, 1, 1, 2, 2], "b": 0, "good": 1}).to_csv(tmp_path / "table.csv", index=False)
    done = CliRunner().invoke(app, [
        "pba", str(model), "--schema", str(tmp_path / "schema.toml"), "--data", str(tmp_path / "table.csv"), "--protected", "sex",
        "--delta", "0",
    ])
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    # a = 0: both questions of both rows are refuted by a tie. a = 1, 2: one of the two questions of each row.
    assert 'Of the 8 exact points 4 are ties (both copies have the same probability of "positive", or no decision is ahead)' in told
    assert "2 more are so near to one that the order of a float32 sum may decide" in told
