"""Missing values that are a category of the model: an encoder was fitted on a column with NaN or None."""

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from typer.testing import CliRunner

import verifair as vf
from encoders.errors import ModelError
from encoders.onnx.runtime import runtime_logits
from tests.builders import categorical, integer, one_hot, schema_of
from verifair.cli.main import app
from verifair.errors import DataError, SchemaError
from verifair.models.compare import ImportDifference
from verifair.models.converters import pipelines
from verifair.schema.draft import draft
from verifair.schema.drafts.infer import DraftWarning
from verifair.systems.cec.people import people_of
from verifair.systems.pba.rows import verify_rows

JOBS = ("clerk", "farmer")
IGNORING = OneHotEncoder(handle_unknown="ignore")
MODELS = (LogisticRegression(C=10), RandomForestClassifier(7, max_depth=4, random_state=0),
          HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=6, min_samples_leaf=5))
ENCODERS = (IGNORING, OneHotEncoder(drop="first"),
            OrdinalEncoder(encoded_missing_value=-1, handle_unknown="use_encoded_value", unknown_value=-2))


def table(none: Any = np.nan, rows: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    job, sex, age = rng.integers(0, 3, rows), rng.choice(["F", "M"], rows), rng.integers(0, 8, rows)
    paid = age + np.array([3, 0, -2])[job] * np.where(sex == "M", 1, 0.5) + rng.normal(0, 1, rows) > 4
    words = pd.Series(np.array([*JOBS, none], dtype=object)[job], dtype=object)  # pandas itself would write NaN for None
    return pd.DataFrame({"job": words, "sex": sex, "age": age, "ok": paid.astype(int)})


def everybody(none: Any = np.nan) -> pd.DataFrame:
    people = pd.DataFrame(itertools.product([*JOBS, "?"], ["F", "M"], range(8)), columns=["job", "sex", "age"])
    return people.assign(job=pd.Series([none if job == "?" else job for job in people["job"]], dtype=object))


def fitted(data: pd.DataFrame, model: Any, encoder: Any = IGNORING) -> Pipeline:
    columns = ColumnTransformer([("words", clone(encoder), ["job", "sex"])], remainder="passthrough", sparse_threshold=0)
    return make_pipeline(columns, clone(model)).fit(data[["job", "sex", "age"]], data["ok"])


CASES = [(MODELS[0], ENCODERS[0], np.nan), (MODELS[1], ENCODERS[0], None), (MODELS[2], ENCODERS[0], np.nan),
         (MODELS[0], ENCODERS[1], np.nan), (MODELS[1], ENCODERS[2], np.nan)]


@pytest.mark.parametrize(("model", "encoder", "none"), CASES, ids=lambda one: type(one).__name__)
def test_verdicts_are_those_of_the_object_on_everybody(model: Any, encoder: Any, none: Any) -> None:
    """The whole domain: 48 people, among them those without a job."""
    data, people = table(none), everybody(none)
    own = fitted(data, model, encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ImportDifference)
        network = vf.read(own, data)
        assert vf.read(own).source_sha256 == network.source_sha256  # compared on random points
    schema = vf.Schema.infer(data, target="ok", positive=1, protected=["sex"], model=own)
    assert (schema["job"].categories, schema["job"].missing) == ((*JOBS, "missing"), "missing")
    settled = schema.settled(network)[1]
    decided = own.predict(people)
    assert (runtime_logits(network, settled.encode(settled.raw(people)))[:, -1] > 0).astype(int).tolist() == decided.tolist()
    of = {(job or "missing", *rest): one for (job, *rest), one in zip(people.fillna({"job": ""}).to_numpy(), decided, strict=True)}
    for protected, names, others in (("sex", ["F", "M"], (*JOBS, "missing")), ("job", (*JOBS, "missing"), ["F", "M"])):
        for age in range(0, 8, 2):
            found = vf.verify(vf.IndividualFairness(model=network, schema=schema, protected=[protected], box={"age": (age, age)}))
            alike = [{of[(a, b, age) if protected == "job" else (b, a, age)] for a in names} for b in others]
            assert found.status is (vf.Status.VIOLATED if any(len(some) > 1 for some in alike) else vf.Status.PROVED)
            if found.certificate is not None:
                assert vf.check(found.certificate, model=network, schema=schema).accepted
            if found.witness is not None:
                assert [f"ok {one}" for one in own.predict(found.witness.rows(data))] == list(found.witness.decisions)


def test_a_counterexample_without_a_value_is_a_row_of_the_table() -> None:
    for none in (np.nan, None):
        data = table(none)
        own = fitted(data, MODELS[0])
        schema = vf.Schema.infer(data, target="ok", positive=1, protected=["job"], model=own)
        without = schema.forbidding([{"job": "farmer"}], "no farmers")
        found = vf.verify(vf.IndividualFairness(model=own, schema=without, protected=["job"]))
        assert found.witness is not None
        assert "missing" in (found.witness.x["job"], found.witness.x_prime["job"])
        pair = found.witness.rows(data)
        (given,) = (job for job in pair["job"] if job != "clerk")
        assert given is None if none is None else np.isnan(given)
        assert [f"ok {one}" for one in own.predict(pair)] == list(found.witness.decisions)
        assert found.witness.rows(data.dropna())["job"].isna().sum() == 1


def test_a_counterexample_between_none_and_nan_is_one_of_the_object() -> None:
    """An encoder that knows both calls them None and nan, and does not know these texts: it took them for other categories."""
    data = table(None)
    data = data.assign(job=data["job"].where(data["job"] != "farmer", np.nan))
    data["ok"] = (data["age"] + 4 * data["job"].map(lambda job: job is None) > 4).astype(int)
    own = fitted(data, MODELS[1], OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-2, encoded_missing_value=-1))
    with pytest.warns(DraftWarning, match="column 'job' has no value"):
        schema = vf.Schema.infer(data, target="ok", positive=1, protected=["job"], model=own)
    without = schema.forbidding([{"job": "clerk"}], "no clerks")
    found = vf.verify(vf.IndividualFairness(model=vf.read(own, data), schema=without, protected=["job"]))
    assert found.witness is not None
    pair = found.witness.rows(data)
    assert pair["job"].isna().all()
    assert [f"ok {one}" for one in own.predict(pair)] == list(found.witness.decisions)


def test_rows_of_the_table_are_decided_with_those_that_lack_a_value() -> None:
    """Whether a decision survives a year more or less, of each row, against the object's own decisions."""
    data = table().drop_duplicates(["job", "sex", "age"])
    own = fitted(table(), MODELS[1])
    schema = vf.Schema.infer(table(), target="ok", positive=1, protected=["sex"], model=own)
    found = verify_rows(vf.Robustness(model=own, schema=schema, delta=[1]), data)
    near = [own.predict(data.assign(age=(data["age"] + step).clip(0, 7))) for step in (-1, 0, 1)]
    same = (near[0] == near[1]) & (near[1] == near[2])
    empty = data["job"].isna().to_numpy()
    asked = found[found["goal"] == "robust"]  # of rows that are decided as their label says
    assert [one == "proved" for one in asked["status"]] == same[asked["row"]].tolist()
    assert set(same[asked["row"]][empty[asked["row"]]]) == {True, False}


def test_empty_cells_are_read_as_the_category() -> None:
    data = table()
    schema = schema_of(one_hot("job", *JOBS, "none", missing="none"), integer("age", 0, 7), label="ok", positive_label="1")
    index = [[*JOBS, "none"].index(job) for job in data["job"].fillna("none")]
    for frame in (data, data.astype({"job": "category"}), data.assign(job=data["job"].astype("string"))):
        assert schema.raw(frame)[:, 0].tolist() == index
    assert schema.raw(schema.with_missing(data))[:, 0].tolist() == index  # the category's own word is the same
    coded = data.assign(job=data["job"].map({"clerk": 0, "farmer": 1}))
    assert schema.raw(coded)[:, 0].tolist() == index
    numbered = schema_of(categorical("grade", "1", "2", "unknown", missing="unknown"), integer("age", 0, 7))
    assert numbered.raw(pd.DataFrame({"grade": [2, None, 1], "age": [0, 1, 2]}))[:, 0].tolist() == [1, 2, 0]
    with pytest.raises(DataError, match="row 3 holds 'nan', an unknown category"):
        schema.raw(data.assign(job=data["job"].where(data.index != 3, "nan")))
    with pytest.raises(DataError, match="column 'age'"):
        schema.raw(data.assign(age=data["age"].where(data.index != 3)))
    plain = schema_of(one_hot("job", *JOBS, "nan"), integer("age", 0, 7))
    with pytest.raises(DataError, match=r"no value in column 'job'.* category 'nan' stands for them, write missing = .nan. in"):
        plain.raw(data)
    assert {"job", "age"} & {*schema.columns_filled, *schema.facts(["job"])} == {"age"}


def test_what_missing_may_say() -> None:
    schema = schema_of(one_hot("job", *JOBS, "none", missing="none"), integer("age", 0, 7))
    assert vf.Schema.loads(schema.dumps()) == schema
    plain = schema_of(one_hot("job", *JOBS, "none"), integer("age", 0, 7))
    assert plain.sha256 != schema.sha256
    assert plain.sha256 == "2a7771dd71893cda6f8f66c3ff4c415e83996dca8b5d24b8e61ed38743efefdf"  # as before there was such a field
    with pytest.raises(SchemaError, match="missing = 'nan' is none of its categories clerk, farmer"):
        schema_of(one_hot("job", *JOBS, missing="nan"))
    with pytest.raises(SchemaError, match="dropped and missing belong to features with categories"):
        schema_of(integer("age", 0, 7, missing="0"))


def test_a_draft_says_what_the_encoder_knows() -> None:
    data = table()
    own = fitted(data, MODELS[0])
    whole = data.dropna()
    known = vf.Schema.infer(whole, target="ok", positive=1, model=own)  # the object says so, whatever the table holds
    assert known["job"].missing == "missing"
    with warnings.catch_warnings():
        warnings.simplefilter("error", DraftWarning)
        assert vf.Schema.infer(data, target="ok", positive=1, model=own) == known
    assert "cells without a value are 'missing', as the model's encoder has them" in draft(data, target="ok", model=own)
    words = data.assign(job=data["job"].where(data.index != 3, "missing"))
    assert vf.Schema.infer(words, target="ok", positive=1, model=own)["job"].missing == "(missing)"
    without = fitted(whole, MODELS[0])
    with pytest.warns(DraftWarning, match="column 'job' has no value"):
        assert vf.Schema.infer(data, target="ok", positive=1, model=without)["job"].missing is None
    spoken = fitted(data.fillna({"job": "nan"}), MODELS[0])  # the text, not the value
    with pytest.warns(DraftWarning, match="column 'job' has no value"):
        assert vf.Schema.infer(data, target="ok", positive=1, model=spoken)["job"].missing is None
    both = data.assign(job=pd.Series([None if k < 5 else job for k, job in enumerate(data["job"])], dtype=object))
    with pytest.warns(DraftWarning, match="column 'job' has no value"):
        two = vf.Schema.infer(both, target="ok", positive=1, model=fitted(both, MODELS[0]))
    assert (two["job"].categories, two["job"].missing) == ((*JOBS, "None", "nan"), None)


def test_a_draft_for_a_file_looks_at_the_table(tmp_path: Path) -> None:
    """A file does not say whether its category "nan" is a text or a value."""
    data = table()
    vf.save_onnx(vf.read(fitted(data, MODELS[0]), data), tmp_path / "m.onnx")
    network = vf.read(tmp_path / "m.onnx")
    assert vf.Schema.infer(data, target="ok", positive=1, model=network)["job"].missing == "missing"
    texts = data.assign(job=data["job"].where(data.index != 3, "nan"))
    for frame in (data.dropna(), texts):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DraftWarning)
            assert vf.Schema.infer(frame, target="ok", positive=1, model=network)["job"].categories == (*JOBS, "nan")
    for words, missing in (((*JOBS, "nan"), "nan"), ((*JOBS, "unknown"), "unknown"), ((*JOBS, "nan"), None)):
        features = [one_hot("job", *words, missing=missing), one_hot("sex", "F", "M"), integer("age", 0, 7)]
        schema_of(*features).settled(network)
    for words, missing in (((*JOBS, "unknown"), None), (("unknown", "farmer", "nan"), "unknown"), ((*JOBS, "x", "y"), "x")):
        with pytest.raises(SchemaError, match="list these"):
            schema_of(one_hot("job", *words, missing=missing), one_hot("sex", "F", "M"), integer("age", 0, 7)).settled(network)


def test_a_word_that_an_imputer_fills_in_is_the_category() -> None:
    data, people = table(), everybody()
    filled = make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), OneHotEncoder(handle_unknown="ignore"))
    columns = ColumnTransformer([("words", filled, ["job", "sex"])], remainder="passthrough", sparse_threshold=0)
    own = make_pipeline(columns, MODELS[1]).fit(data[["job", "sex", "age"]], data["ok"])
    with pytest.warns(ImportDifference, match="fills in missing words"):
        schema = vf.Schema.infer(data, target="ok", positive=1, protected=["sex"], model=own)
    with pytest.warns(ImportDifference):
        network, settled = schema.settled(vf.read(own))
    assert (schema["job"].categories, schema["job"].missing, schema["sex"].missing) == ((*JOBS, "none"), "none", None)
    decided = own.predict(people)
    for rows in (people, people.fillna({"job": "none"})):
        assert (runtime_logits(network, settled.encode(settled.raw(rows)))[:, -1] > 0).astype(int).tolist() == decided.tolist()
    often = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    guessing = make_pipeline(ColumnTransformer([("words", often, ["job", "sex"])]), MODELS[0])
    with pytest.warns(DraftWarning, match="column 'job' has no value"), pytest.warns(ImportDifference):
        drafted = vf.Schema.infer(data, target="ok", positive=1, model=guessing.fit(data[["job", "sex"]], data["ok"]))
    assert drafted["job"].missing is None


@pytest.mark.parametrize("kind", ["float64", "Int64", "object", "boolean"])
@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda one: type(one).__name__ + str(getattr(one, "drop", "")))
def test_numbers_beside_missing_values_become_words(encoder: Any, kind: str) -> None:
    values = {"clerk": True, "farmer": False} if kind in ("object", "boolean") else {"clerk": 1, "farmer": 2}

    def coded(frame: pd.DataFrame) -> pd.DataFrame:
        cells = [values.get(job, None if kind == "object" else np.nan) for job in frame["job"]]
        first = {"Int64": "float64", "boolean": "object"}.get(kind, kind)
        return frame.assign(job=pd.Series(cells, dtype=first).astype(kind))

    data, people = coded(table()), coded(everybody())
    own = fitted(data, MODELS[0], encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ImportDifference)
        network = vf.read(own, data)
        vf.read(own)
    schema = vf.Schema.infer(data, target="ok", positive=1, protected=["sex"], model=own)
    assert schema["job"].categories == (*sorted(map(str, values.values())), "missing")
    settled = schema.settled(network)[1]
    decided = own.predict(people)
    assert (runtime_logits(network, settled.encode(settled.raw(people)))[:, -1] > 0).astype(int).tolist() == decided.tolist()
    found = vf.verify(vf.IndividualFairness(model=own, schema=schema, protected=["job"]))
    assert found.witness is not None
    pair = found.witness.rows(data)
    assert pair["job"].dtype == data["job"].dtype
    assert [f"ok {one}" for one in own.predict(pair)] == list(found.witness.decisions)


def test_an_encoder_that_leaves_missing_values_without_a_number_is_refused() -> None:
    """Its conversion numbers them, so that trees decide otherwise than the object."""
    with pytest.raises(ModelError, match=r"leaves missing values without a number.*encoded_missing_value=-1, or use OneHotEncoder"):
        vf.read(fitted(table(), MODELS[2], OrdinalEncoder()))
    vf.read(fitted(table().dropna(), MODELS[2], OrdinalEncoder()))


def test_conversions_are_compared_at_missing_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "_check_columns", lambda model: None)
    data = table()
    own = fitted(data, MODELS[2], OrdinalEncoder())
    for frame, where in ((data, "240 rows of the table"), (None, "256 random points")):
        with pytest.raises(ModelError, match=f"does not reproduce it: .* of {where} differ"):
            vf.read(own, frame)
    texts = data.assign(job=pd.Series(["nan", None, *data["job"][2:]], dtype=object))  # of which an encoder of NaN knows neither
    with pytest.raises(ModelError, match="of 238 rows of the table differ"):
        vf.read(own, texts)


def test_counterfactuals_of_an_object_are_those_of_its_network() -> None:
    """The object is asked about NaN or None, as the table has them, which the encoder takes, and not about the word."""
    for none in (np.nan, None):
        data = table(none)
        own = fitted(data, MODELS[0], OneHotEncoder())
        schema = vf.Schema.infer(data, target="ok", positive=1, protected=["sex"], model=own)
        people = data[["job", "sex", "age"]]
        one, other = (vf.GroupCounterfactuals(model, schema, k=6).fit(people) for model in (own, vf.read(own, data)))
        pd.testing.assert_frame_equal(one.counterfactuals("all"), other.counterfactuals("all"))
        assert "missing" in set(one.counterfactuals("all")["job"])
        groups = vf.GroupCounterfactuals(own, schema, k=6).fit(people, sensitive_features="job").groups_
        assert set(groups) == {"job = clerk", "job = farmer", "job = missing"}
        assert set(people_of(schema, data, "job").names) == set(groups)


CAUSAL = """
[[causal.node]]
name = "sex"
[[causal.node]]
name = "job"
[[causal.node]]
name = "age"
parents = ["sex"]
[situation]
do = { sex = "M" }
k = [5]
attributes = ["job", "age"]
"""


def test_situation_testing_compares_people_without_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = table()
    vf.save_onnx(vf.read(fitted(data, MODELS[0]), data), "m.onnx")
    vf.Schema.infer(data, target="ok", positive=1, protected=["sex"], model=vf.read(Path("m.onnx"))).save("s.toml")
    Path("c.toml").write_text(CAUSAL)
    answers = []
    for name, frame in (("t.csv", data), ("w.csv", data.fillna({"job": "missing"}))):
        frame.to_csv(name, index=False)
        asked = ["--schema", "s.toml", "--data", name, "--causal", "c.toml", "--json", "a.json"]
        done = CliRunner().invoke(app, ["cst", "m.onnx", *asked])
        assert done.exit_code == 0, done.output
        answers.append(json.loads(Path("a.json").read_text()))
    one, other = ([answer["equations"], answer["tests"]] for answer in answers)
    assert one == other


def test_an_audit_of_files_counts_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = table()
    data.to_csv("t.csv", index=False)
    vf.save_onnx(vf.read(fitted(data, MODELS[0]), data), "m.onnx")
    files = ["--model", "m.onnx", "--data", "t.csv", "--out", "a.html", "--only", "certify", "--missing", "drop"]
    done = CliRunner().invoke(app, ["audit", *files, "--target", "ok", "--positive", "1", "--sensitive", "job"])
    assert done.exit_code == 0, done.output
    assert 'missing = "missing"' in Path("a.schema.toml").read_text()
    said = json.loads(Path("a.json").read_text())
    groups = {one["group"]: (one["people"], one["favourable"]) for one in said["decisions"]["groups"]}
    own = fitted(data, MODELS[0]).predict(data[["job", "sex", "age"]])
    jobs = data["job"].fillna("missing")
    assert groups == {job: (int((jobs == job).sum()), int(own[jobs == job].sum())) for job in (*JOBS, "missing")}
    assert (said["rows"], said["treated"]) == (240, "")
    checked = CliRunner().invoke(app, ["check", "a.files", "--model", "m.onnx", "--schema", "a.schema.toml", "--partial"])
    assert checked.exit_code == 0, checked.output
