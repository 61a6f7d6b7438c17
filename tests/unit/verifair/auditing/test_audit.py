"""An audit in one call, and in one command: what it finds, what it saves, and what cannot be asked."""

import hashlib
import json
import re
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import verifair as vf
from tests.command_line import verifair
from verifair.errors import DataError, QueryError, SchemaError
from verifair.schema.drafts.infer import DraftWarning

RANDOM = np.random.default_rng(0)
PEOPLE = pd.DataFrame({
    "income": RANDOM.integers(10, 60, 200), "sex": RANDOM.choice(["Female", "Male"], 200),
    "housing": RANDOM.choice(["own", "rent"], 200),
})  # fmt: skip
PEOPLE["credit"] = np.where(PEOPLE["income"] + 10 * (PEOPLE["sex"] == "Male") > 40, "good", "bad")


@pytest.fixture(scope="module")
def model() -> Pipeline:
    columns = make_column_transformer((StandardScaler(), ["income"]), (OneHotEncoder(), ["sex", "housing"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_pipeline(columns, MLPClassifier((6,), learning_rate_init=0.05, max_iter=60, random_state=0)).fit(
            PEOPLE.drop(columns="credit"), PEOPLE["credit"]
        )


def test_a_model_and_a_table_become_a_page_with_proofs(model: Pipeline, tmp_path: Path) -> None:
    told: list[str] = []
    found = vf.audit(
        model, PEOPLE, target="credit", positive="good", sensitive=["sex"], timeout=20,
        analyses={"pba": {"rows": 25}, "kmax": {}}, progress=lambda key, what, done, total: told.append(key),
    )  # fmt: skip
    assert [section.key for section in found.result.sections] == ["pba", "kmax"]
    assert {"pba", "kmax"} <= set(told)
    assert "Male" in str(found)
    assert found.schema.protected_names == ("sex",)
    shown = found.to_frame()
    assert list(shown["statement"]) == [one.text for one in found.statements]
    assert set(shown["analysis"]) == {"decisions", "pba", "kmax"}
    assert len(repr(found)) < 200
    assert "Male" in found._repr_html_()
    assert "<svg" in found.plot()._repr_svg_()
    page = found.save(tmp_path / "my page.html")
    folder = tmp_path / "my page.files"
    html, answer = page.read_text(encoding="utf-8"), json.loads((tmp_path / "my page.json").read_text(encoding="utf-8"))
    assert "audit.files" not in html
    assert html != found.to_html()  # which names the files that are not saved yet
    assert answer["title"] == "Audit of sklearn Pipeline"
    # Every file is what the page says, and every proof is about the model and the schema beside it.
    sources = {one["role"]: one["sha256"] for one in answer["sources"]}
    assert sources["model"] == hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest() == vf.read(model).source_sha256
    assert "Whether the schema is right: it was drafted from the table," in html
    assert sources["schema (a draft)"] == hashlib.sha256((folder / "schema.toml").read_bytes()).hexdigest()
    proofs = [proof for section in answer["sections"] for proof in section["evidence"]]
    assert proofs
    for proof in proofs:
        assert proof["file"].startswith("my page.files/")
        assert "--model 'my page.files/model.onnx' --schema 'my page.files/schema.toml'" in proof["command"]
        schema = vf.Schema.load(folder / "schema.toml")
        assert vf.check(tmp_path / proof["file"], model=folder / "model.onnx", schema=schema).accepted
    # Saved twice, over an older page and under another name: the same. What is no audit's stays.
    found.save(page)
    assert found.save(tmp_path / "other.html").read_text(encoding="utf-8") != html
    (tmp_path / "third.files").mkdir()
    with pytest.raises(QueryError, match=r"third\.files is in the way and no audit wrote it"):
        found.save(tmp_path / "third.html")
    with pytest.raises(QueryError, match=r"the page is HTML; name it so, e\.g\. .*page\.html"):
        found.save(tmp_path / "page.txt")
    folder = found.folder
    assert folder.is_dir()
    del found
    assert not folder.exists()


def test_rows_with_names_of_any_kind_are_audited(model: Pipeline) -> None:
    several = pd.MultiIndex.from_arrays([["a"] * len(PEOPLE), range(len(PEOPLE))])
    for names in (several, pd.date_range("2020-01-01", periods=len(PEOPLE))):
        found = vf.audit(
            model, PEOPLE.set_axis(names), target="credit", positive="good", sensitive=["sex"], timeout=20,
            analyses={"cec": {"rows": 60}, "fgce": {"k": 5, "coverage": 0.5, "rows": 60}},
        )  # fmt: skip
        assert not [one.text for one in found.statements if one.standing.value == "skipped"]
        said = json.dumps([section.answer for section in found.result.sections])
        assert any(json.dumps(str(name)) in said for name in names)


def test_missing_values_and_rows_outside_are_treated_as_an_audit_file_treats_them(model: Pipeline) -> None:
    """Of three rows without a value of a feature, and one without a sensitive one, which is never filled in."""
    gaps = PEOPLE.astype({"income": float})
    gaps.loc[[3, 5, 8], "income"] = np.nan
    gaps.loc[9, "sex"] = None
    asked: dict[str, Any] = {"target": "credit", "positive": "good", "sensitive": ["sex"], "analyses": {"kmax": {"buckets": 5}}}
    told = r'in Python: missing="drop" of vf\.audit'
    with pytest.raises(DataError, match=told), pytest.warns(DraftWarning, match="has no value in"):
        vf.audit(model, gaps, effort=2.0, **asked)
    for missing, rows, said in (("drop", 196, "4 rows with missing values left out"), ("most-frequent", 199, "3 missing values")):
        found = vf.audit(model, gaps, effort=2.0, missing=missing, **asked).result
        assert found.rows == rows
        assert said in found.treated
    with pytest.raises(SchemaError, match=r"\[data\]: missing: Input should be 'error', 'drop' or 'most-frequent'"):
        vf.audit(model, gaps, effort=2.0, missing="mean", **asked)  # type: ignore[arg-type]
    schema = vf.Schema.infer(PEOPLE[PEOPLE["income"] < 50], target="credit", positive="good", protected=["sex"], model=model)
    found = vf.audit(model, PEOPLE, schema=schema, outside="drop", analyses=asked["analyses"], effort=2.0).result
    assert found.rows == (PEOPLE["income"] < 50).sum() < len(PEOPLE)


def test_a_schema_that_was_checked_is_taken_as_it_is(model: Pipeline) -> None:
    schema = vf.Schema.infer(PEOPLE, target="credit", positive="good", protected=["sex"], model=model)
    found = vf.audit(model, PEOPLE, schema=schema, analyses={"kmax": {"buckets": 5}}, timeout=9, title="Our", seed=3, what_if=False)
    assert found.result.what_if is None
    assert "what-if-data" not in found.to_html()
    assert (found.result.title, found.result.seed, found.schema) == ("Our", 3, schema)
    assert found.result.sections[0].settings["buckets"] == 5
    assert [one.role for one in found.result.sources] == ["audit file", "model", "schema", "data"]


def test_trees_are_audited() -> None:
    from sklearn.ensemble import GradientBoostingClassifier

    frame = PEOPLE[["income"]].assign(sex=(PEOPLE["sex"] == "Male").astype(int))
    trees = GradientBoostingClassifier(n_estimators=3, max_depth=2, random_state=0).fit(frame, PEOPLE["credit"])
    people = frame.assign(credit=PEOPLE["credit"])
    asked: dict[str, Any] = {"target": "credit", "positive": "good", "sensitive": ["sex"], "timeout": 20}
    found = vf.audit(trees, people, analyses=["pba", "certify", "kmax"], **asked)
    said = {section.key: [one.standing.value for one in section.statements] for section in found.result.sections}
    assert "proved" in said["pba"]
    assert {"refuted", "proved"} & set(said["certify"])
    assert said["kmax"] == ["measured", "proved"]


def test_reasons_of_smooth_networks_are_measured() -> None:
    """Where they cannot be certified, an audit that nobody wrote asks for what can be measured."""
    frame = PEOPLE[["income"]].assign(sex=(PEOPLE["sex"] == "Male").astype(int))
    linear = [(f"l{k}", make_pipeline(StandardScaler(), LogisticRegression(C=10.0 ** -k))) for k in range(3)]
    votes = VotingClassifier(linear, voting="soft").fit(frame, PEOPLE["credit"])
    people = frame.assign(credit=PEOPLE["credit"])
    found = vf.audit(votes, people, target="credit", positive="good", sensitive=["sex"], analyses=["cec"], timeout=20)
    (section,) = found.result.sections
    assert "certify" not in {key for key, value in section.settings.items() if value is not None}
    assert {one.standing.value for one in section.statements} == {"measured"}


def test_what_cannot_be_audited(model: Pipeline) -> None:
    with pytest.raises(QueryError, match="pass target=, the label's column, to draft a schema"):
        vf.audit(model, PEOPLE, sensitive=["sex"])
    with pytest.raises(QueryError, match="sensitive names no feature"):
        vf.audit(model, PEOPLE, target="credit")
    with pytest.raises(DataError, match=r"credit\.csv: there is no such file; pass a CSV"):
        vf.audit(model, "credit.csv", target="credit", sensitive=["sex"])
    with pytest.raises(DataError, match="the table has no column 'gender'; known are income, sex, housing, credit"):
        vf.audit(model, PEOPLE, target="credit", sensitive=["gender"])
    with pytest.raises(QueryError, match=r"analyses: 'pbo': unknown analysis; .*pba"):
        vf.audit(model, PEOPLE, target="credit", positive="good", sensitive=["sex"], analyses=["pbo"])
    with pytest.raises(SchemaError, match=r"audit: \[analyses\.kmax\]: bucket: unknown key"):
        vf.audit(model, PEOPLE, target="credit", positive="good", sensitive=["sex"], analyses={"kmax": {"bucket": 5}})
    with pytest.raises(QueryError, match=r"timeout|seconds"):
        vf.audit(model, PEOPLE, target="credit", sensitive=["sex"], timeout=-1)
    with pytest.raises(QueryError, match="model: found DataFrame; expected the path"):
        vf.audit(PEOPLE, PEOPLE, target="credit", sensitive=["sex"])


def test_a_table_may_be_named_by_its_file(model: Pipeline, tmp_path: Path) -> None:
    PEOPLE.to_csv(tmp_path / "people.csv", index=False)
    asked: dict[str, Any] = {"target": "credit", "positive": "good", "sensitive": ["sex"], "analyses": ["kmax"], "timeout": 10}
    for named in (tmp_path / "people.csv", str(tmp_path / "people.csv")):
        assert vf.audit(model, named, **asked).result.rows == len(PEOPLE)
    with pytest.raises(DataError, match=r"no\.csv: there is no such file; pass a CSV, CSV\.GZ or Parquet table"):
        vf.audit(model, tmp_path / "no.csv", **asked)
    with pytest.raises(DataError, match="frame: found list; expected a DataFrame"):
        vf.audit(model, [1, 2], **asked)  # type: ignore[arg-type]


def test_one_command_drafts_the_files_that_it_runs(model: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    vf.save_onnx(vf.read(model), "models/credit.onnx")
    PEOPLE.to_csv("credit.csv", index=False)
    asked = ("audit", "--model", "models/credit.onnx", "--data", "credit.csv", "--only", "kmax", "--timeout", "10")
    drafted = (*asked, "--target", "credit", "--positive", "good", "--sensitive", "sex", "--out", "credit.html")
    done = verifair(*drafted)
    assert done.returncode == 0, (done.stdout + done.stderr)
    assert "schema: credit.schema.toml, drafted from the table" in (done.stdout + done.stderr)
    file = tomllib.loads(Path("credit.audit.toml").read_text())
    assert (file["model"]["file"], file["schema"]["file"], file["data"]["file"]) == (
        "models/credit.onnx", "credit.schema.toml", "credit.csv")  # fmt: skip
    assert list(file["analyses"]) == ["pba", "certify", "kmax", "fgce", "cec"]
    assert verifair(*drafted).returncode == 0  # what would be drafted is there
    again = verifair("audit", "credit.audit.toml", "--only", "kmax", "--timeout", "10", "--out", "again.html")
    assert again.returncode == 0, (again.stdout + again.stderr)
    # Somebody corrects the draft: it is not overwritten, and can be named.
    with Path("credit.schema.toml").open("a") as written:
        written.write("# checked\n")
    done = verifair(*drafted)
    assert done.returncode == 2
    assert "credit.schema.toml: is there already, and is not what would be drafted; pass it with --schema" in done.stderr
    done = verifair(*asked, "--schema", "credit.schema.toml", "--out", "checked.html")
    assert done.returncode == 0, (done.stdout + done.stderr)


SAYS = r"label 'decision': '{}' is taken as the favourable value, .* name it: positive='{}' \(--positive {}\)"


def test_a_favourable_word_that_was_guessed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of approved and denied, the last by name is no good guess."""
    monkeypatch.chdir(tmp_path)
    people = PEOPLE[["income"]].assign(sex=(PEOPLE["sex"] == "Male").astype(int))
    words = np.where(PEOPLE["credit"] == "good", "approved", "denied")
    trees = DecisionTreeClassifier(max_depth=2, random_state=0).fit(people, words)
    with pytest.warns(DraftWarning, match=SAYS.format("denied", "approved", "approved")):
        vf.audit(trees, people.assign(decision=words), target="decision", sensitive=["sex"], analyses=["kmax"], effort=1.0)
    numbers = (words == "approved").astype(int)
    trees = DecisionTreeClassifier(max_depth=2, random_state=0).fit(people, numbers)
    vf.audit(trees, people.assign(decision=numbers), target="decision", sensitive=["sex"], analyses=["kmax"], effort=1.0)
    vf.save_onnx(vf.read(trees, people), "trees.onnx")
    people.assign(decision=numbers).to_csv("people.csv", index=False)
    asked = ("audit", "--model", "trees.onnx", "--data", "people.csv", "--target", "decision", "--sensitive", "sex")
    done = verifair(*asked, "--effort", "1", "--only", "kmax", "--out", "page.html")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(SAYS.format("1", "0", "0"), " ".join(done.stdout.split()))


def test_a_sensitive_number_is_cut_at_its_median(model: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its many values would be a group, and nothing was compared at all, not even by the other sensitive features."""
    monkeypatch.chdir(tmp_path)
    cut = float(np.median(PEOPLE["income"]))
    sensitive = ["sex", "income"]
    page = vf.audit(model, PEOPLE, target="credit", positive="good", sensitive=["income"], analyses=["fgce"], effort=4.0)
    assert "each would be a group" not in str(page)
    vf.save_onnx(vf.read(model, PEOPLE.drop(columns="credit")), "credit.onnx")
    PEOPLE.to_csv("credit.csv", index=False)
    options = ["--model", "credit.onnx", "--data", "credit.csv", "--only", "fgce", "--effort", "2"]
    drafted = ["--target", "credit", "--positive", "good", *(part for name in sensitive for part in ("--sensitive", name))]
    for more, name in ((drafted, "a"), (["--schema", "a.schema.toml"], "b")):
        done = verifair("audit", *options, *more, "--out", f"{name}.html")
        assert done.returncode == 0, done.stdout + done.stderr
        asked = tomllib.loads(Path(f"{name}.audit.toml").read_text(encoding="utf-8"))["analyses"]
        assert asked["cec"]["split"] == asked["fgce"]["split"] == {"income": [cut]}
        assert "each would be a group" not in done.stdout


def test_the_legend_explains_the_mark_of_the_first_sentence(model: Pipeline, tmp_path: Path) -> None:
    """Also if no analysis has it: here the groups' rates differ, and nobody asked about changed decisions."""
    found = vf.audit(model, PEOPLE, target="credit", positive="good", sensitive=["sex"], analyses={"fgce": {"k": 99}}, effort=4.0)
    page = found.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Not known. Whether another value of sex alone changes decisions was not shown. Below the four-fifths limit" in page
    assert "people or groups are treated differently" in page


@pytest.mark.parametrize(
    ("analysis", "settings", "told"),
    [("fgce", {"k": 99}, "leads to the favourable decision, by sex: "), ("cec", {}, "sex: reasons of comparable people ")],
)
def test_a_feature_that_cannot_be_asked_about_does_not_stop_the_others(
    model: Pipeline, analysis: str, settings: dict[str, Any], told: str
) -> None:
    asked: dict[str, Any] = {"target": "credit", "positive": "good", "effort": 4.0}
    coded = PEOPLE.assign(code=range(len(PEOPLE)))
    said = str(vf.audit(model, coded, sensitive=["sex"], analyses={analysis: {**settings, "protected": ["code", "sex"]}}, **asked))
    assert "Did not run: 'code' has 200 values, and each would be a group; split it" in said
    assert told in said
    said = str(vf.audit(model, coded, sensitive=["sex"], analyses={analysis: {"protected": ["code"]}}, **asked))
    assert "Did not run: 'code' has 200 values" in said


def test_drafts_that_a_check_refuses_do_not_stand_in_the_way(
    model: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    vf.save_onnx(vf.read(model), "credit.onnx")
    lacking = PEOPLE.copy()
    lacking.loc[3, "sex"] = None
    lacking.to_csv("credit.csv", index=False)
    asked = ("audit", "--model", "credit.onnx", "--data", "credit.csv", "--only", "kmax", "--timeout", "10", "--out", "credit.html")
    drafted = (*asked, "--target", "credit", "--positive", "good", "--sensitive", "sex")
    refused = verifair(*drafted)
    assert refused.returncode == 2
    assert "no value in column 'sex', first row 3; drop such rows, or fill them in (--missing drop" in refused.stderr
    assert "drafted" not in refused.stdout
    assert verifair(*drafted[:-7], "new/credit.html", *drafted[-6:]).returncode == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["credit.csv", "credit.onnx"]
    Path("credit.audit.toml").symlink_to("nowhere")
    assert "credit.audit.toml: is there already" in verifair(*drafted).stderr
    Path("credit.audit.toml").unlink()  # which did not do that
    done = verifair(*drafted, "--missing", "drop")
    assert done.returncode == 0, (done.stdout + done.stderr)
    assert tomllib.loads(Path("credit.audit.toml").read_text())["data"] == {"file": "credit.csv", "missing": "drop"}
    # Rows outside a schema that was named; a draft that was there before stays.
    PEOPLE.assign(income=PEOPLE["income"].where(PEOPLE.index != 3, 900)).to_csv("credit.csv", index=False)
    checked = (*asked[:-1], "again.html", "--schema", "credit.schema.toml")
    refused = verifair(*checked)
    assert refused.returncode == 2
    assert "(--outside drop" in refused.stderr
    assert Path("credit.schema.toml").exists()
    done = verifair(*checked, "--outside", "drop")
    assert done.returncode == 0, (done.stdout + done.stderr)
    assert tomllib.loads(Path("again.audit.toml").read_text())["data"] == {"file": "credit.csv", "outside": "drop"}


def test_a_sensitive_column_that_the_model_does_not_read_is_named(model: Pipeline) -> None:
    with pytest.raises(SchemaError, match=r"no feature 'area'.*; the table has such a column, which the model does not read: "
                                          r'compare groups by it with protected = \["area"\] of fgce and cec'):
        vf.audit(model, PEOPLE.assign(area="north"), schema=vf.Schema.infer(PEOPLE, model=model, target="credit", positive="good"),
                 sensitive=["area"])


def test_neither_groups_nor_labels_are_made_up_and_the_page_says_who_is_left_out(
    model: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema declares nothing protected: the audit file does, and pba, fgce and cec are asked about it by an option."""
    monkeypatch.chdir(tmp_path)
    vf.save_onnx(vf.read(model), "credit.onnx")
    vf.Schema.infer(PEOPLE, model=model, target="credit", positive="good").save("credit.toml")
    holes = PEOPLE.copy()
    holes.loc[:4, "sex"], holes.loc[5:7, "credit"], holes.loc[8:9, "housing"] = None, None, None
    holes.to_csv("credit.csv", index=False)
    Path("a.toml").write_text(
        'title = "A"\neffort = 5\n[model]\nfile = "credit.onnx"\n[schema]\nfile = "credit.toml"\n[data]\nfile = "credit.csv"\n'
        'missing = "most-frequent"\n[sensitive]\nfeatures = ["sex"]\n[analyses.cec]\nprotected = ["housing"]\n'
    )
    done = verifair("audit", "a.toml", "--out", "a.html")
    assert done.returncode == 0, (done.stdout + done.stderr)
    told, whole = json.loads(Path("a.json").read_text()), PEOPLE.drop(index=range(10))
    assert (told["rows"], told["treated"]) == (190, " (10 rows with missing values left out)")
    counted = {one["group"]: one["people"] for one in told["decisions"]["groups"]}
    assert counted == whole["sex"].value_counts().to_dict()
    page = Path("a.html").read_text(encoding="utf-8")
    assert "190 rows (10 rows with missing values left out)" in page
    assert "values outside the schema (10 rows with missing values left out)." in page
    done = verifair(
        "cec", "credit.onnx", "--schema", "credit.toml", "--data", "credit.csv", "--protected", "sex", "--missing", "most-frequent",
        "--json", "cec.json",
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)
    assert "(8 rows with missing values left out) (2 missing values in 2 rows filled in)" in done.stdout + done.stderr


@pytest.mark.parametrize(("options", "message"), [
    (("--model", "m.onnx", "--target", "y", "--sensitive", "sex"), "--model needs --data TABLE"),
    (("--model", "m.onnx", "--data", "t.csv", "--sensitive", "sex"), "--model needs --target LABEL, .* or --schema FILE"),
    (("--model", "m.onnx", "--data", "t.csv", "--target", "y"), "--model needs --sensitive NAME"),
    (("--model", "m.onnx", "--demo", "german"), "--model drafts an audit file of its own"),
    (("--data", "t.csv", "a.toml"), "--data belongs to --model"),
    (("--model", "m.onnx", "--data", "t.csv", "--target", "y", "--sensitive", "s", "--junit", "j"), "--junit tells of a gate"),
    ((), "audit needs an audit file; pass one, .* name your --model and --data"),
])  # fmt: skip
def test_options_that_do_not_go_together(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = verifair("audit", *options, "--out", str(tmp_path / "a.html"))
    assert done.returncode == 2
    assert re.search(message, " ".join(done.stderr.split())), done.stderr
    assert not list(tmp_path.iterdir())
