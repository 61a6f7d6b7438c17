"""Guard is offered behind explain, and takes what explain takes: pipelines with words and codes as well."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import verifair as vf
from encoders.errors import ModelError
from encoders.onnx.reader import read_onnx
from tests.command_line import verifair
from tests.tree_models import random_tree, save
from verifair.systems.hyfair.explain import rules_file
from verifair.systems.hyfair.explain.refusals import snapped
from verifair.systems.hyfair.explain.rules import refused
from verifair.systems.hyfair.guard.guardrail import check_agreement, edge_rows, guard


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
def test_guard_is_offered_of_pipelines_and_of_encoded_tables(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sex": rng.choice(["f", "m"], 80), "age": rng.integers(20, 60, 80), "rate": rng.random(80).round(2)})
    label = ((table.age > 40) | (table.sex == "m")).astype(int)
    words = make_pipeline(make_column_transformer((OneHotEncoder(), ["sex"]), remainder="passthrough"), LogisticRegression())
    for name, model, rows in (("words", words, table), ("numbers", LogisticRegression(), pd.get_dummies(table, dtype=float))):
        (folder := tmp_path / name).mkdir()
        text, named = explained(model.fit(rows, label), rows.assign(paid=label), folder)
        assert "next: verifair guard" in text
        rules = ["--rules", str(folder / "rules" / "rules.json"), "--out", str(folder / "guarded.onnx")]
        assert verifair("guard", *named, *rules).returncode == 0


@pytest.mark.filterwarnings("ignore::verifair.DraftWarning")
@pytest.mark.parametrize("last", [LogisticRegression(), DecisionTreeClassifier(max_depth=3)], ids=["network", "trees"])
def test_words_and_codes_are_guarded_as_the_rules_say(last: object, tmp_path: Path) -> None:
    """A guarded pipeline takes the table's own cells: words, codes and numbers, some of which the model does not read."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({
        "age": rng.integers(20, 60, 200), "code": rng.choice([1, 5, 7], 200), "home": rng.choice(["free", "own", "rent"], 200),
        "rate": rng.random(200).astype(np.float32), "sex": rng.choice(["f", "m"], 200),
    })  # fmt: skip
    label = ((table.age > 40) ^ (table.home == "own")).astype(int)
    columns = make_column_transformer((OneHotEncoder(), ["sex", "home", "code"]), ("passthrough", ["rate", "age"]))
    model = vf.read(make_pipeline(columns, last).fit(table, label), table)
    schema = vf.Schema.infer(table.assign(paid=label), target="paid", positive=1, protected=["sex"], model=model)
    whens = [{"age": {"low": 31, "high": 45}, "home": ["own", "rent"]}, {"rate": {"high": 0.25}, "code": [5, 7]}, {"age": [50, 51]}]
    (tmp_path / "rules.json").write_text(json.dumps({"kind": rules_file.KIND, "rules": [{"when": when} for when in whens]}))
    rules = snapped(rules_file.load(tmp_path / "rules.json", schema).rules, schema)
    vf.save_onnx(model, tmp_path / "m.onnx")
    guarded = guard(tmp_path / "m.onnx", rules, schema)
    assert guarded == guard(vf.read(tmp_path / "m.onnx"), rules, schema)
    onnx.save(guarded, tmp_path / "g.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx")
    kinds = {"tensor(string)": object, "tensor(int64)": np.int64, "tensor(float)": np.float32}
    cells = {i.name: table[i.name].to_numpy()[:, None].astype(kinds[i.type]) for i in session.get_inputs()}
    (abstained,) = session.run(["abstain"], cells)
    expected = (
        table.age.between(31, 45) & table.home.isin(["own", "rent"]) | (table.rate <= 0.25) & table.code.isin([5, 7])
        | table.age.isin([50, 51])
    )
    assert abstained.ravel().tolist() == expected.tolist()
    raw = edge_rows(rules, schema, 20, rng)
    check_agreement(tmp_path / "g.onnx", guarded, rules, schema, raw, model.feeds)
    assert 0 < refused(rules, raw).mean() < 1


def test_read_onnx_names_the_reader_of_trees(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [random_tree(np.random.default_rng(0), 3, 2)], 3)
    with pytest.raises(ModelError, match="is a tree ensemble; expected a network here"):
        read_onnx(path)
