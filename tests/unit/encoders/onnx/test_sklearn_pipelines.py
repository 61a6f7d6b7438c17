"""scikit-learn pipelines through skl2onnx: read, replayed through the stored model, and compared with predict_proba."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from encoders.errors import ModelError
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import runtime_outputs
from encoders.onnx.shown import apply_link
from tests.pipelines import export, pipeline

pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")

ROWS = 120


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": rng.integers(18, 90, ROWS), "sex": rng.choice(["Female", "Male"], ROWS),
        "hours": rng.normal(40, 9, ROWS).astype("f4"),
        "job": rng.choice(["clerk", "farmer", "none of these", "nurse"], ROWS), "children": rng.integers(0, 4, ROWS)})


def encoded(network: Network, frame: pd.DataFrame) -> np.ndarray:
    """The network's columns of a table, from what the reader says about them (the schema's way is tested end to end)."""
    columns = []
    for feed in network.feeds:
        known = feed.categories.get(0)
        values = frame[feed.name].to_numpy()
        columns += [values] if known is None else [values == category for category in known]
    return np.column_stack(columns).astype(np.float32)


def quietly_fitted(model: Any, frame: pd.DataFrame, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(frame, y)


def mlp(kind: Any = MLPClassifier, **options: Any) -> Any:
    return kind(hidden_layer_sizes=(6, 4), max_iter=15, random_state=0, **options)


MODELS = {"logistic": LogisticRegression, "mlp": mlp}
COLUMNS: dict[str, tuple[Any, Any]] = {
    "standard and one-hot": (StandardScaler, OneHotEncoder),
    "minmax and one-hot without the first": (MinMaxScaler, lambda: OneHotEncoder(drop="first", handle_unknown="ignore")),
    "maxabs and ordinal": (MaxAbsScaler, OrdinalEncoder),
    "robust and dense one-hot": (RobustScaler, lambda: OneHotEncoder(sparse_output=False)),
    "numbers as they are": (FunctionTransformer, OneHotEncoder),
}


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers(columns: str, model: str, classes: int, tmp_path: Path) -> None:
    frame, y = table(), np.random.default_rng(1).integers(0, classes, ROWS)
    numbers, categories = COLUMNS[columns]
    fitted = quietly_fitted(pipeline(frame, MODELS[model](), numbers=numbers(), categories=categories()), frame, y)
    for number, options in enumerate(({}, {"zipmap": False})):
        network = read_onnx(export(fitted, frame, tmp_path / f"{number}.onnx", **options))
        x = encoded(network, frame)
        expected = fitted.predict_proba(frame)
        np.testing.assert_allclose(runtime_outputs(network, x), expected, atol=2e-5)
        logits = network.forward(x.astype(np.float64))
        np.testing.assert_allclose(apply_link(logits, network.link), expected[:, -network.outputs :], atol=2e-5)
        clear = np.abs(expected.max(axis=1) - 1 / 2) > 1e-4
        classes_found = (logits[:, 0] > 0).astype(int) if network.outputs == 1 else logits.argmax(axis=1)
        assert (classes_found[clear] == fitted.predict(frame)[clear]).all()


@pytest.mark.parametrize("model", [LinearRegression, Ridge, lambda: mlp(MLPRegressor)])
def test_regressors(model: Any, tmp_path: Path) -> None:
    frame = table()
    y = frame["hours"].to_numpy() / 20 - frame["children"].to_numpy()
    fitted = quietly_fitted(pipeline(frame, model(), numbers=StandardScaler(), categories=OneHotEncoder()), frame, y)
    network = read_onnx(export(fitted, frame, tmp_path / "m.onnx"))
    x = encoded(network, frame)
    for found in (runtime_outputs(network, x), network.forward(x.astype(np.float64))):
        np.testing.assert_allclose(found[:, 0], fitted.predict(frame), rtol=1e-4, atol=1e-3)


def test_passed_through_dropped_and_scaled_twice(tmp_path: Path) -> None:
    frame, y = table(), np.random.default_rng(1).integers(0, 2, ROWS)
    columns = ColumnTransformer([("scaled", make_pipeline(StandardScaler(), MinMaxScaler()), ["hours", "age"]),
                                 ("kept", "passthrough", ["children"]), ("one-hot", OneHotEncoder(), ["job"])], remainder="drop")
    fitted = quietly_fitted(Pipeline([("columns", columns), ("model", mlp())]), frame, y)
    network = read_onnx(export(fitted, frame, tmp_path / "m.onnx"))
    assert [(feed.name, feed.columns) for feed in network.feeds] == [
        ("age", 1), ("sex", 0), ("hours", 1), ("job", 4), ("children", 1)]
    kept = frame.drop(columns="sex")
    x = np.column_stack([kept["age"], kept["hours"], *(kept["job"] == k for k in sorted(set(kept["job"]))), kept["children"]])
    np.testing.assert_allclose(runtime_outputs(network, x.astype(np.float32)), fitted.predict_proba(frame), atol=2e-5)


REFUSED: dict[str, tuple[Any, str]] = {
    "rows normalised": (lambda: Pipeline([("columns", _one_hot()), ("norm", Normalizer()), ("model", LogisticRegression())]),
                        "Normalizer is not supported here .*its own norm"),
    "calibrated": (lambda: Pipeline([("columns", _one_hot()), ("model", CalibratedClassifierCV(LogisticRegression(), cv=2))]),
                   "not supported|must be a constant"),
}


def _one_hot() -> ColumnTransformer:
    return ColumnTransformer([("n", StandardScaler(), ["age", "hours", "children"]), ("c", OneHotEncoder(), ["sex", "job"])])


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str, tmp_path: Path) -> None:
    build, message = REFUSED[what]
    frame, y = table(), np.random.default_rng(1).integers(0, 2, ROWS)
    path = export(quietly_fitted(build(), frame, y), frame, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=message):
        read_onnx(path)


@pytest.mark.parametrize("words", [("no", "yes"), ("approved", "denied"), ("high", "low", "middle"), (0, 1), (1, 2, 4)])
@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("model", [mlp(), LogisticRegression()], ids=["MLPClassifier", "LogisticRegression"])
def test_classes_are_named_in_the_order_of_the_outputs(model: Any, zipmap: bool, words: tuple[Any, ...], tmp_path: Path) -> None:
    """Where a row's class is the one that scikit-learn predicts, whatever the classifier and its labels."""
    frame = table()[["age", "hours"]]
    score = frame["age"] + 2 * frame["hours"]
    y = np.array(words)[pd.qcut(score, len(words), labels=False).to_numpy()]
    fitted = quietly_fitted(pipeline(frame, model, numbers=StandardScaler(), categories="drop"), frame, y)
    network = read_onnx(export(fitted, frame, tmp_path / "m.onnx", zipmap=zipmap))
    assert network.classes == tuple(map(str, words))
    logits = network.forward(encoded(network, frame).astype(float))
    index = (logits[:, 0] > 0).astype(int) if network.outputs == 1 else logits.argmax(axis=1)
    assert [network.classes[k] for k in index] == [str(label) for label in fitted.predict(frame)]
