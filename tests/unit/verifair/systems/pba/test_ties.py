"""How many counterexamples on a tree ensemble hang on a tie, or on the order of a float32 sum."""

from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.builders import integer, schema_of
from tests.tree_models import save
from verifair.cli.main import app

NEAR = 2.0**-24
"""What a third of the people gain by sex: less than adding 1/2 and 1/4 in float32 may lose."""


@pytest.mark.parametrize(("positive", "same"), [("logit > 0", 'probability of "positive"'), ("logit > 0.5", "probability")])
def test_ties_are_counted_apart_from_what_is_near_them(positive: str, same: str, tmp_path: Path) -> None:
    """By sex, who has a = 0 gains nothing, a = 1 loses NEAR, a = 2 loses 1: observed and flipped, for rows of sex 0 and 1."""
    by_sex = (1, "BRANCH_LEQ", 0.5, [0.0], (1, "BRANCH_LEQ", 1.5, [-NEAR], [-1.0]))
    trees = [(0, "BRANCH_LEQ", 0.5, [0.0], by_sex), [0.5], [2.25]]
    model = save(tmp_path / "trees.onnx", trees, 3)
    features = integer("sex", 0, 1, protected=True), integer("a", 0, 2), integer("b", 0, 1, unit=1)
    schema_of(*features, label="good", positive=positive).save(tmp_path / "schema.toml")
    pd.DataFrame({"sex": [0, 1] * 3, "a": [0, 0, 1, 1, 2, 2], "b": 0, "good": 1}).to_csv(tmp_path / "table.csv", index=False)
    done = CliRunner().invoke(app, [
        "pba", str(model), "--schema", str(tmp_path / "schema.toml"), "--data", str(tmp_path / "table.csv"), "--protected", "sex",
        "--delta", "0",
    ])
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    # a = 0: both questions of both rows are refuted by a tie. a = 1, 2: one of the two questions of each row.
    assert f"Of the 8 exact points 4 are ties (both copies have the same {same}, or no decision is ahead)" in told
    assert "2 more are so near to one that the order of a float32 sum may decide" in told


@pytest.mark.parametrize("scores", [1, 3])
def test_a_model_whose_float32_sums_are_not_known_has_ties(scores: int, tmp_path: Path) -> None:
    """Scores times 0.1, which is rounded into the leaves: nothing says how a runtime rounds."""
    model = onnx.load(save(tmp_path / "trees.onnx", [(1, "BRANCH_LEQ", 0.5, [1.0] * scores, [0.0] * scores)], 2))
    model.graph.node[0].output[0] = "raw"
    model.graph.node.append(onnx.helper.make_node("Mul", ["raw", "factor"], ["scores"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0.1], dtype=np.float32), "factor"))
    onnx.save(model, tmp_path / "trees.onnx")
    features = integer("sex", 0, 1, protected=True), integer("a", 0, 1, unit=1)
    schema_of(*features, label="good", **({} if scores == 1 else {"positive": "class = 1"})).save(tmp_path / "schema.toml")
    good = [1, 1, 0, 0] if scores == 1 else [0, 0, 0, 0]
    pd.DataFrame({"sex": [0, 1] * 2, "a": [0, 0, 1, 1], "good": good}).to_csv(tmp_path / "table.csv", index=False)
    done = CliRunner().invoke(app, [
        "pba", str(tmp_path / "trees.onnx"), "--schema", str(tmp_path / "schema.toml"), "--data", str(tmp_path / "table.csv"),
        "--protected", "sex", "--delta", "0",
    ])
    assert done.exit_code == 0, done.output
    assert "are ties" in done.output
    assert "how float32 rounds the sums of this model is not known" in " ".join(done.output.split())
