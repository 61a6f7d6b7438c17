"""Categories that a model has no column for, as pandas.get_dummies(drop_first=True) makes tables."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from typer.testing import CliRunner

import verifair as vf
from encoders.onnx.runtime import runtime_logits
from tests.builders import categorical, integer, one_hot, schema_of
from verifair.cli.main import app
from verifair.errors import DataError, SchemaError
from verifair.schema.draft import draft
from verifair.schema.drafts.infer import DraftWarning
from verifair.schema.rows import block_of
from verifair.training.rows import check_trainable

JOBS = ("a", "b", "c")
NEURAL = MLPClassifier((6, 4), solver="lbfgs", max_iter=2000, random_state=0)
SMOOTH = MLPClassifier((3,), activation="tanh", solver="lbfgs", max_iter=2000, random_state=0)
FOREST = RandomForestClassifier(9, max_depth=4, random_state=0)
MODELS = (LogisticRegression(), NEURAL, SMOOTH, FOREST, CalibratedClassifierCV(FOREST, cv=2),
          CalibratedClassifierCV(FOREST, cv=2, method="isotonic"))


def table(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(0, 8, rows), "job": rng.choice(JOBS, rows)})
    score = frame["age"] + frame["job"].map({"a": 3, "b": 0, "c": -2}) + rng.normal(0, 1, rows)
    return frame.assign(credit=(score > 4).astype(int))


def spread(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.get_dummies(frame, columns=["job"], drop_first=True, dtype=int)


SCHEMA = schema_of(integer("age", 0, 7), one_hot("job", *JOBS, dropped="a"), label="credit", positive_label="1")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_every_question_is_about_the_people_of_all_categories(model: object) -> None:
    """Against the object's own decisions on the whole domain: 24 people, in both orders of the protected values."""
    people = pd.DataFrame([(age, job) for age in range(8) for job in JOBS], columns=["age", "job"])
    data = spread(table())[["age", "job_b", "job_c", "credit"]]
    fitted = model.fit(data[["age", "job_b", "job_c"]], data["credit"])  # type: ignore[attr-defined]
    columns = people.assign(job_b=(people.job == "b") * 1, job_c=(people.job == "c") * 1)[["age", "job_b", "job_c"]]
    decided = dict(zip(people.itertuples(index=False, name=None), fitted.predict(columns).tolist(), strict=True))
    shares = isinstance(model, RandomForestClassifier | CalibratedClassifierCV)
    schema = SCHEMA.changed(positive="logit > 0") if shares else SCHEMA
    network, settled = schema.settled(vf.read(fitted, data[["age", "job_b", "job_c"]]))
    x = settled.domain.encode(settled.raw(people))
    assert (runtime_logits(network, x)[:, 0] > 0).astype(int).tolist() == list(decided.values())
    assert np.allclose(network.forward(x), runtime_logits(network, x), atol=1e-5)
    for age in range(8):
        box = {"age": (age, age)}
        found = vf.verify(vf.IndividualFairness(model=network, schema=settled, protected=["job"], box=box))
        flips = len({decided[age, job] for job in JOBS}) > 1
        assert found.status is (vf.Status.VIOLATED if flips else vf.Status.PROVED)
        if found.certificate is not None:
            assert vf.check(found.certificate, model=vf.read(fitted), schema=schema).accepted


def test_a_block_without_a_column_for_one_category_is_read() -> None:
    data = spread(table())
    assert SCHEMA.raw(data)[:, 1].tolist() == table()["job"].map(dict(zip(JOBS, range(3), strict=True))).tolist()
    assert SCHEMA.raw(table())[:, 1].tolist() == SCHEMA.raw(data)[:, 1].tolist()
    assert block_of(SCHEMA["job"]) == {"job_b": "b", "job_c": "c"}
    with pytest.raises(DataError, match=r"row 0 has 2 of its one-hot columns set .*, expected one 1 at most, and zeros alone"):
        SCHEMA.raw(data.assign(job_b=1, job_c=1))
    with pytest.raises(DataError, match=r"but not job_c; add these \(for a category without a column, write dropped = \.\.\."):
        SCHEMA.raw(data.drop(columns="job_c"))


def test_widths_that_do_not_fit_are_errors() -> None:
    """With a column for each category the model is another one than the schema says."""
    short, full = (
        vf.read(LogisticRegression().fit(data.drop(columns="credit"), data["credit"]))
        for data in (spread(table()), pd.get_dummies(table(), columns=["job"], dtype=int))
    )
    with pytest.raises(SchemaError, match="a column that the network takes is of a dropped category"):
        SCHEMA.settled(full)
    plain = schema_of(integer("age", 0, 7), one_hot("job", *JOBS))
    with pytest.raises(SchemaError, match=r'but the network takes 3 .*, and write dropped = "CATEGORY" of a one-hot feature'):
        plain.settled(short)
    proved = vf.verify(vf.IndividualFairness(model=full, schema=plain, protected=["job"], box={"age": (7, 7)}))
    assert proved.certificate is not None
    assert vf.check(proved.certificate, model=full, schema=plain).accepted
    with pytest.raises(SchemaError, match="of a dropped category"):  # whatever a forger wrote
        vf.check(replace(proved.certificate, schema_sha256=SCHEMA.sha256), model=full, schema=SCHEMA)
    network, schema = SCHEMA.settled(short)
    with pytest.raises(SchemaError, match="of a dropped category"):
        schema_of(integer("age", 0, 7), one_hot("job", *JOBS, dropped="b")).settled(network)
    assert (network.inputs, schema.settled(network)[0].inputs) == (4, 4)
    assert [int(start) for feed in network.feeds for start in feed.start] == [0, 2, 3]


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        (one_hot("job", *JOBS, dropped="d"), "dropped = 'd' of a one-hot feature with a, b, c: expected one of two"),
        (one_hot("job", "a", dropped="a"), "expected one of two or more categories"),
        (categorical("job", "a", "b", dropped="a"), "of a categorical feature with a, b: expected one of two or more"),
        (integer("age", 0, 7, dropped="a"), "ordered, moves, dropped and missing belong to features with categories"),
    ],
)  # fmt: skip
def test_what_cannot_be_dropped(feature: dict[str, object], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        schema_of(integer("height", 0, 7), feature)


def test_a_draft_makes_one_feature_where_it_is_asked_for() -> None:
    """Of two flags that no row has both of, nobody says that they belong together."""
    data = spread(table())
    with pytest.warns(DraftWarning, match="one feature, 'job'; rows with none of them are called 'unnamed': give that category"):
        schema = vf.Schema.infer(data, target="credit", protected=["job"])
    assert (schema["job"].categories, schema["job"].dropped) == (("unnamed", "b", "c"), "unnamed")
    assert vf.Schema.loads(schema.dumps()) == schema
    assert "rows with none of them are called 'unnamed'" in draft(data, target="credit", protected=["job"])
    named = data.rename(columns={"job_b": "job_unnamed"})
    with pytest.warns(DraftWarning, match="'unnamed 2'"):
        assert vf.Schema.infer(named, target="credit", protected=["job"])["job"].dropped == "unnamed 2"
    with pytest.warns(DraftWarning, match=r'categories = \["unnamed", "b", "c"\], dropped = "unnamed" in their place'):
        assert [one.name for one in vf.Schema.infer(data, target="credit").features] == ["age", "job_b", "job_c"]


def test_trained_networks_have_a_column_for_each_category() -> None:
    """The network that was written took four columns, and its schema described three."""
    with pytest.raises(DataError, match="feature 'job': a network that is trained has a column for each category; leave dropped"):
        check_trainable(SCHEMA, table())
    check_trainable(schema_of(integer("age", 0, 7), one_hot("job", *JOBS), label="credit", positive_label="1"), table())


def test_sessions_are_told_apart_by_their_widths() -> None:
    """Without the last category of the last feature all columns stand where they stood; the model was run as it was read before."""
    data = pd.get_dummies(table(), columns=["job"], dtype=int)[["age", "job_a", "job_b"]]
    model = vf.read(LogisticRegression().fit(data, table()["credit"]), data)
    runtime_logits(model, np.zeros((1, 3)))
    network, schema = schema_of(integer("age", 0, 7), one_hot("job", *JOBS, dropped="c")).settled(model)
    x = schema.domain.encode(np.array([[3.0, 0.0], [3.0, 2.0]]))
    assert x.shape == (2, 4)
    assert np.allclose(runtime_logits(network, x), network.forward(x), atol=1e-5)
    assert runtime_logits(model, np.zeros((1, 3))).shape == (1, 1)


def test_what_is_known_of_float32_stays_with_its_weights() -> None:
    data = spread(table())
    model = vf.read(NEURAL.fit(data.drop(columns="credit"), data["credit"]))
    wide = model.with_columns(np.array([1, 3, 4]), 6)
    assert wide.layers[0].weight[:, [1, 3, 4]].tolist() == model.layers[0].weight.tolist()  # type: ignore[attr-defined]
    assert not wide.layers[0].weight[:, [0, 2, 5]].any()  # type: ignore[attr-defined]
    size = replace(model.rounding[0], size=np.abs(model.layers[0].weight))  # type: ignore[attr-defined]
    known = replace(model, rounding=(size, *model.rounding[1:]))  # type: ignore[attr-defined]
    assert known.with_columns(np.array([1, 3, 4]), 6).rounding[0].size.shape == (6, 6)  # type: ignore[attr-defined]


def test_explain_proposes_no_guardrail_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = spread(table())
    vf.save_onnx(vf.read(LogisticRegression().fit(data[["age", "job_b", "job_c"]], data["credit"])), tmp_path / "m.onnx")
    SCHEMA.save(tmp_path / "s.toml")
    table().to_csv(tmp_path / "t.csv", index=False)
    asked = ["explain", "m.onnx", "--schema", "s.toml", "--data", "t.csv", "--protected", "job", "--measure", "gap", "--out", "out"]
    done = CliRunner().invoke(app, [*asked, "--samples", "200", "--leaf", "5", "--iterations", "5"])
    assert done.exception is None, done.output
    assert "rules.json" in done.output
    assert "verifair guard" not in done.output
