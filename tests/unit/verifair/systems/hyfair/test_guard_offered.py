"""Guard is offered behind explain, and takes what explain takes: pipelines with words and codes as well."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from onnx import helper, numpy_helper
from sklearn.compose import ColumnTransformer, make_column_transformer
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


@pytest.mark.filterwarnings("ignore::verifair.DraftWarning")
@pytest.mark.parametrize("names", [["code", "age"], ["code", "code/0"], ["code", "code/shape"], None], ids=str)
def test_numbers_that_a_model_encodes_are_guarded(names: list[str] | None, tmp_path: Path) -> None:
    """Columns of floats, each an input of any name, and one matrix without names."""
    rng = np.random.default_rng(2)
    cells = np.stack([rng.choice([1, 5, 7], 200), rng.integers(20, 60, 200)], axis=1).astype(np.float32)
    table = pd.DataFrame(cells, columns=names or ["code", "age"])
    label = ((cells[:, 0] == 5) ^ (cells[:, 1] > 40)).astype(int)
    encoder = ColumnTransformer([("codes", OneHotEncoder(), [0])], remainder="passthrough")
    model = vf.read(make_pipeline(encoder, LogisticRegression()).fit(table if names else cells, label), table)
    schema = vf.Schema.infer(table.assign(paid=label), target="paid", positive=1, model=model)
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"when": {"code": [5, 7], table.columns[1]: {"high": 40}}}]}))
    rules = snapped(rules_file.load(tmp_path / "rules.json", schema).rules, schema)
    vf.save_onnx(model, tmp_path / "m.onnx")
    guarded = guard(tmp_path / "m.onnx", rules, schema)
    inputs = {name: cells[:, k : k + 1] for k, name in enumerate(names)} if names else {"X": cells}
    (abstained,) = onnxruntime.InferenceSession(guarded.SerializeToString()).run(["abstain"], inputs)
    assert abstained.ravel().tolist() == ((cells[:, 0] > 1) & (cells[:, 1] <= 40)).tolist()


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_codes_of_an_embedding_are_guarded(kind: type, tmp_path: Path) -> None:
    """The graph has no operators for tables, and onnxruntime has no OneHotEncoder of int32."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("Gather", ["table", "code"], ["rows"]), helper.make_node("Flatten", ["rows"], ["flat"]),
        helper.make_node("Concat", ["flat", "rate"], ["all"], axis=1), helper.make_node("MatMul", ["all", "w"], ["logit"]),
    ]  # fmt: skip
    weights = {"table": rng.normal(size=(4, 2)), "w": rng.normal(size=(3, 1))}
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    kinds = {"code": helper.np_dtype_to_tensor_dtype(np.dtype(kind)), "rate": onnx.TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, number, ["n", 1]) for name, number in kinds.items()]
    output = helper.make_tensor_value_info("logit", onnx.TensorProto.FLOAT, ["n", 1])
    graph = helper.make_graph(nodes, "m", inputs, [output], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    schema = vf.Schema.loads("""
        model = {positive = "logit > 0"}
        feature = [
          {name = "code", kind = "one-hot", categories = ["0", "1", "2", "3"]}, {name = "rate", kind = "real", range = [0, 1]},
        ]
    """)
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"when": {"code": ["1", "2"], "rate": {"low": 0.5}}}]}))
    guarded = guard(tmp_path / "m.onnx", snapped(rules_file.load(tmp_path / "rules.json", schema).rules, schema), schema)
    code, rate = rng.integers(4, size=(40, 1)).astype(kind), rng.random((40, 1), dtype=np.float32)
    (abstained,) = onnxruntime.InferenceSession(guarded.SerializeToString()).run(["abstain"], {"code": code, "rate": rate})
    assert abstained.ravel().tolist() == (np.isin(code, [1, 2]) & (rate >= 0.5)).ravel().tolist()


def test_read_onnx_names_the_reader_of_trees(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [random_tree(np.random.default_rng(0), 3, 2)], 3)
    with pytest.raises(ModelError, match="is a tree ensemble; expected a network here"):
        read_onnx(path)
