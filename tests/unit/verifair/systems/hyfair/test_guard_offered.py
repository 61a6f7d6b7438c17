"""Guard is offered behind explain where it takes the model, and what it says helps where it does not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import verifair as vf
from encoders.errors import ModelError
from encoders.onnx.reader import read_onnx
from tests.command_line import verifair
from tests.tree_models import random_tree, save


def explained(model: object, table: pd.DataFrame, folder: Path) -> tuple[str, list[str]]:
    """What explain prints of it, and the arguments that name model and schema."""
    network = vf.read(model, table)
    vf.save_onnx(network, folder / "m.onnx")
    vf.Schema.infer(table, target="paid", positive=1, protected=["sex"], model=network).save(folder / "m.toml")
    table.to_csv(folder / "m.csv", index=False)
    named = [str(folder / "m.onnx"), "--schema", str(folder / "m.toml")]
    asked = ["--protected", "sex", "--data", str(folder / "m.csv"), "--measure", "gap", "--delta", "0", "--samples", "500"]
    done = verifair("explain", *named, *asked, "--iterations", "20", "--out", str(folder / "rules"))
    return done.stdout + done.stderr, named


@pytest.mark.filterwarnings("ignore::verifair.DraftWarning")
def test_guard_is_offered_of_encoded_tables_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sex": rng.choice(["f", "m"], 80), "age": rng.integers(20, 60, 80), "rate": rng.random(80).round(2)})
    label = ((table.age > 40) | (table.sex == "m")).astype(int)
    words = make_pipeline(make_column_transformer((OneHotEncoder(), ["sex"]), remainder="passthrough"), LogisticRegression())
    text, named = explained(words.fit(table, label), table.assign(paid=label), tmp_path)
    assert "wrote" in text
    assert "next: verifair guard" not in text
    rules = ["--rules", str(tmp_path / "rules" / "rules.json"), "--out", str(tmp_path / "guarded.onnx")]
    refused = verifair("guard", *named, *rules)
    assert refused.returncode == 3
    assert "takes words or whole numbers ('sex')" in refused.stderr
    assert "pandas.get_dummies" in refused.stderr

    encoded = pd.get_dummies(table, dtype=float)    # what that error advises
    (tmp_path / "encoded").mkdir()
    text, named = explained(LogisticRegression().fit(encoded, label), encoded.assign(paid=label), tmp_path / "encoded")
    assert "next: verifair guard" in text
    rules[1] = str(tmp_path / "encoded" / "rules" / "rules.json")
    assert verifair("guard", *named, *rules).returncode == 0


def test_read_onnx_names_the_reader_of_trees(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [random_tree(np.random.default_rng(0), 3, 2)], 3)
    with pytest.raises(ModelError, match="is a tree ensemble; expected a network here"):
        read_onnx(path)
