"""scikit-learn pipelines on the shipped tables, from training to verdicts: fit, export, draft the schema, certify, replay."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from tests.command_line import Run
from tests.pipelines import export, pipeline
from verifair import datasets

pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")

POSITIVE = {"german": "good", "adult": ">50K"}
MODELS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "network": lambda: (MLPClassifier((8,), max_iter=12, random_state=0), StandardScaler(), OneHotEncoder(handle_unknown="ignore")),
    "logistic": lambda: (LogisticRegression(max_iter=200), MinMaxScaler(), OrdinalEncoder()),
}


def trained(name: str, kind: str, folder: Path, rows: int = 800) -> tuple[Any, pd.DataFrame, str]:
    """A fitted pipeline, exported to model.onnx, and the table that it was fitted on, written to data.csv."""
    dataset = datasets.load(name)
    frame = dataset.frame.iloc[:rows].reset_index(drop=True)
    model, numbers, categories = MODELS[kind]()
    table = frame.drop(columns=dataset.target)
    fitted = pipeline(table, model, numbers=numbers, categories=categories)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted.fit(table, dataset.schema.labels(frame))
    export(fitted, table, folder / "model.onnx")
    frame.to_csv(folder / "data.csv", index=False)
    return fitted, frame, dataset.target


def replayed(fitted: Any, frame: pd.DataFrame, row: dict[str, Any]) -> float:
    """What scikit-learn itself says of a witness: the logit of its own predict_proba."""
    table = pd.DataFrame([row])[[name for name in frame.columns if name in row]].astype(
        {name: frame[name].dtype for name in frame.columns if name in row})
    p = fitted.predict_proba(table)[0, 1]
    return float(np.log(p) - np.log1p(-p))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", POSITIVE)
def test_from_training_to_verdicts(name: str, kind: str, inside: Run, tmp_path: Path) -> None:
    fitted, frame, target = trained(name, kind, tmp_path)
    code, _, errors = inside("schema", "infer", "data.csv", "--target", target, "--positive", POSITIVE[name], "--protected", "sex",
                             "--model", "model.onnx", "--out", "schema.toml")
    assert code == 0, errors

    code, screen, errors = inside("certify", "model.onnx", "--schema", "schema.toml", "--protected", "sex", "--timeout", "60",
                                  "--json", "answer.json", "--certificate", "proof.json")
    assert code == 0, errors
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["status"] == "violated", screen
    witness = answer["witness"]
    assert witness["float32_agrees"]
    for side, found in zip(("x", "x_prime"), witness["outputs"], strict=True):
        assert replayed(fitted, frame, witness[side]) == pytest.approx(found, abs=1e-4)

    frame.head(8).to_csv(tmp_path / "few.csv", index=False)
    code, screen, errors = inside("pba", "model.onnx", "--schema", "schema.toml", "--data", "few.csv", "--protected", "sex",
                                  "--delta", "1", "--json", "pba.json")
    assert code == 0, errors
    assert "0 unknown" in screen


def test_a_proof_about_a_pipeline_is_checked_again(inside: Run, tmp_path: Path) -> None:
    """A network that gives the sex no weight is fair, whatever else it does: proved, and the certificate is checked again."""
    fitted, frame, target = trained("german", "network", tmp_path)
    table = frame.drop(columns=target)
    weight = fitted.named_steps["model"].coefs_[0]
    names = list(fitted.named_steps["columns"].get_feature_names_out())
    weight[[k for k, name in enumerate(names) if "__sex_" in name]] = 0.0
    export(fitted, table, tmp_path / "model.onnx")
    inside("schema", "infer", "data.csv", "--target", target, "--positive", "good", "--protected", "sex", "--model", "model.onnx",
           "--out", "schema.toml")
    code, screen, errors = inside("certify", "model.onnx", "--schema", "schema.toml", "--protected", "sex", "--timeout", "60",
                                  "--certificate", "proof.json", "--exit-verdict")
    assert (code, errors) == (0, ""), screen
    code, screen, errors = inside("check", "proof.json", "--model", "model.onnx", "--schema", "schema.toml")
    assert (code, errors) == (0, ""), screen

    wrong = (tmp_path / "schema.toml").read_text().replace('["Female", "Male"]', '["Male", "Female"]')
    (tmp_path / "wrong.toml").write_text(wrong)
    code, _, errors = inside("certify", "model.onnx", "--schema", "wrong.toml", "--protected", "sex")
    assert code == 2
    assert "list these, in this order" in errors
