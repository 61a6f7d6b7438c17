"""The table "What can be asked of which model" in docs/concepts/models.md is true: all is asked of a small real model of each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, StackingClassifier
from sklearn.neural_network import MLPClassifier
from typer.testing import CliRunner

import verifair as vf
from encoders.errors import ModelError
from solvers.outcome import BackendError
from tests.builders import categorical, integer, schema_of
from verifair import datasets
from verifair.cli.main import app
from verifair.errors import VerifairError
from verifair.schema.schema import Schema

DOCUMENT = Path(__file__).parents[2] / "docs" / "concepts" / "models.md"
HEADING = "## What can be asked of which model"
MODELS: Mapping[str, Any] = {
    "ReLU network": lambda: MLPClassifier((4,), random_state=0, alpha=1.0, solver="lbfgs", max_iter=2000),
    "smooth network": lambda: MLPClassifier(
        (3,), activation="tanh", random_state=0, alpha=1.0, solver="lbfgs", max_iter=2000
    ),
    "boosted trees": lambda: GradientBoostingClassifier(n_estimators=4, max_depth=3, learning_rate=1.0, random_state=0),
    "forest": lambda: RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0),
    "calibrated forest": lambda: CalibratedClassifierCV(RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0), cv=3),
    "isotonic forest": lambda: CalibratedClassifierCV(
        RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0), cv=3, method="isotonic"
    ),
    "stacking of trees": lambda: StackingClassifier([
        ("f", RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0)),
        ("b", GradientBoostingClassifier(n_estimators=4, max_depth=3, learning_rate=1.0, random_state=0)),
    ], cv=3),
    "three classes": lambda: MLPClassifier((4,), random_state=0, alpha=1.0, solver="lbfgs", max_iter=2000),
    "trees of three classes": lambda: GradientBoostingClassifier(n_estimators=4, max_depth=3, learning_rate=1.0, random_state=0),
}
ASKED: Mapping[str, tuple[str, ...]] = {
    "pba": ("pba", "--protected", "sex", "--delta", "1", "--rows", "15"),
    "certify": ("certify", "--protected", "sex", "--box", "rate=1:2"),
    "certify --epsilon": ("certify", "--protected", "sex", "--epsilon", "0.9", "--box", "rate=1"),
    "certify --relax": ("certify", "--protected", "sex", "--relax", "rate=1", "--box", "duration=6:9"),
    "certify --partition": ("certify", "--protected", "sex", "--partition", "100", "--store", "parts.sqlite"),
    "certify --share": ("certify", "--protected", "sex", "--share"),
    "certify --maximise": ("certify", "--protected", "sex", "--maximise", "--tolerance", "0.3"),
    "certify --method milp": ("certify", "--protected", "sex", "--method", "milp", "--box", "rate=1"),
    "kmax": ("kmax", "--protected", "sex", "--buckets", "2", "--timeout", "3"),
    "explain": ("explain", "--protected", "sex", "--measure", "gap", "--samples", "300", "--leaf", "5", "--iterations", "5",
                "--seed", "1", "--timeout", "3"),
    "guard": ("guard", "--protected", "sex", "--rules", "rules.json", "--out", "guarded.onnx", "--iterations", "5",
              "--timeout", "3"),
    "guard --retrain": ("guard", "--protected", "sex", "--rules", "rules.json", "--out", "again.onnx", "--retrain", "new.onnx",
                        "--epochs", "1", "--iterations", "5", "--timeout", "3"),
    "fgce": ("fgce", "--protected", "sex", "--k", "9", "--coverage", "0.5"),
    "fgce --robust": ("fgce", "--protected", "sex", "--k", "9", "--coverage", "0.5", "--robust", "1"),
    "cst": ("cst", "--causal", "graph.toml", "--do", "sex=m", "--k", "5"),
    "cst --certify": ("cst", "--causal", "graph.toml", "--do", "sex=m", "--k", "5", "--certify", "95"),
    "cec": ("cec", "--protected", "sex", "--rows", "20"),
    "cec --certify": ("cec", "--protected", "sex", "--rows", "20", "--certify", "0"),
}
MEANS = ("calibrated forest", "isotonic forest", "stacking of trees")
GRAPH = """
[[causal.node]]
name = "sex"
[[causal.node]]
name = "duration"
parents = ["sex"]
"""
RULES = '{"kind": "verifair rules", "rules": [{"when": {"duration": [6, 12]}}]}'


def refused() -> set[tuple[str, str]]:
    """Question and kind of each "no" of the document's table."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert HEADING in text
    lines = [line for line in text.partition(HEADING)[2].partition("\n## ")[0].splitlines() if line.startswith("|")]
    (_, *kinds), _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert all({*answers} <= {"yes", "no"} and len(answers) == len(kinds) for _, *answers in rows)
    no = [(question.strip("`"), kind) for question, *row in rows for kind, one in zip(kinds, row, strict=True) if one == "no"]
    return {(question, name) for question, kind in no for name in (MEANS if kind == "means of functions" else (kind,))}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of each kind, fitted to 200 rows of German; its schema, and the table."""
    folder = tmp_path_factory.mktemp("kinds")
    german = datasets.load("german").frame.iloc[:200]
    frame = german[["duration", "credit"]].assign(
        amount=(german["credit-amount"] / 100).round().astype(int), rate=german["installment-rate"],
        sex=np.where(german["sex"] == "Male", "m", "f"),
    )
    women = (frame["sex"] == "f") & (frame["duration"] > 12)  # are refused: so that there is something to find
    good = ((frame["credit"] == "good") & ~women).to_numpy().astype(int)
    (folder / "graph.toml").write_text(GRAPH)
    (folder / "rules.json").write_text(RULES)
    for name, make in MODELS.items():
        three = name.endswith("three classes")
        schema = described(positive="class = 1") if three else described(positive="logit > 0", positive_label="good")
        classes = good * (1 + (frame["rate"] > 2)) if three else good
        frame.assign(credit=classes if three else frame["credit"]).to_csv(folder / f"{name}.csv", index=False)
        model = vf.read(make().fit(schema.encode(schema.raw(frame)), classes))
        vf.save_onnx(model, folder / f"{name}.onnx")
        schema.save(folder / f"{name}.toml")
    return folder


def described(**more: str) -> Schema:
    return schema_of(
        integer("duration", 4, 72, unit=1, merit=True, scale="minmax"), integer("amount", 2, 185, unit=1, scale="minmax"),
        integer("rate", 1, 4), categorical("sex", "f", "m", protected=True), label="credit", **more,
    )


def test_the_table_names_kinds_and_questions_that_are_asked() -> None:
    assert len(refused()) == 26
    assert {asked for asked, _ in refused()} <= set(ASKED)
    assert {name for _, name in refused()} <= set(MODELS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("asked", ASKED)
def test_a_question_is_answered_or_told_to_be_refused(name: str, asked: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    verb, *options = ASKED[asked]
    data = () if verb in ("certify", "kmax") else ("--data", f"{name}.csv")
    options = [option.replace("parts", name).replace("guarded", f"g-{name}").replace("again", f"a-{name}") for option in options]
    done = CliRunner().invoke(app, [verb, f"{name}.onnx", "--schema", f"{name}.toml", *data, *options])
    told = done.exception  # the command writes it in one line
    assert told is None or isinstance(told, (VerifairError, ModelError, BackendError)), told
    assert (told is not None) == ((asked, name) in refused()), told or done.output


@pytest.mark.parametrize("asked", ["guard --retrain", "cec --certify"])
@pytest.mark.parametrize("name", ["boosted trees", "forest"])
def test_what_needs_gradients_says_what_to_do(name: str, asked: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    verb, *options = ASKED[asked]
    done = CliRunner().invoke(app, [verb, f"{name}.onnx", "--schema", f"{name}.toml", "--data", f"{name}.csv", *options])
    told = str(done.exception)
    assert f"{name}.onnx: is a tree ensemble, and --" in told
    assert f"drop {asked.split()[1]}" in told
    assert "\n" not in told


@pytest.mark.parametrize(("asked", "by"), [("certify --share", "the certified share"), ("certify --method milp", "method milp")])
def test_what_needs_layers_names_itself_and_the_kind(asked: str, by: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    verb, *options = ASKED[asked]
    done = CliRunner().invoke(app, [verb, "calibrated forest.onnx", "--schema", "calibrated forest.toml", *options])
    kind = "a mean of functions of trees' sums"
    assert str(done.exception) == f"calibrated forest.onnx: is {kind}, not supported by {by}: see docs/concepts/models.md"


@pytest.mark.parametrize("name", MEANS)
def test_float32_of_functions_of_sums_is_refused_as_such(name: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither a network with smooth layers, nor a model that was not read from a file."""
    monkeypatch.chdir(files)
    asked = ("certify", f"{name}.onnx", "--schema", f"{name}.toml", *ASKED["certify"][1:], "--arithmetic", "float32")
    kind = "a sum" if name.startswith("stacking") else "a mean"
    reason = f"no error is specified of {kind} of functions of trees' sums in float32"
    assert reason in str(CliRunner().invoke(app, [*asked]).exception)


def test_a_model_without_log_odds_is_not_asked_for_them(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    about = ("certify", "forest.onnx", "--schema", "forest.toml", *ASKED["certify --maximise"][1:], "--box", "rate=1")
    assert CliRunner().invoke(app, [*about]).exception is None
    told = str(CliRunner().invoke(app, [*about, "--logit"]).exception)
    assert told == "--logit: of this model gaps between probabilities are bounded, not between log-odds; drop --logit"
