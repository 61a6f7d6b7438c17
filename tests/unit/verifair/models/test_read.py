"""`vf.read`: what it takes, what it refuses, and that the same object is the same model, at every door."""

import io
import pickle
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import verifair as vf
from encoders.errors import ModelError, ModelFileError
from encoders.model import Link
from encoders.network import Network
from encoders.onnx.runtime import decisions, runtime_outputs
from encoders.probability.shares import probabilities
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees
from verifair.errors import MissingPackage, QueryError, SchemaError
from verifair.systems.fgce.decider import positive

RANDOM = np.random.default_rng(0)
X = pd.DataFrame({
    "hours-per-week": RANDOM.integers(10, 60, 300).astype(float), "label": RANDOM.normal(size=300),
    "sex": RANDOM.choice(["Female", "Male"], 300), "housing": RANDOM.choice(["own", "rent", "free"], 300),
})  # fmt: skip
NUMBERS, WORDS = ["hours-per-week", "label"], ["sex", "housing"]
Y = np.where(X["label"] + (X["sex"] == "Male") + X["hours-per-week"] / 30 > 1.5, "good", "bad")


def mlp() -> MLPClassifier:
    return MLPClassifier((6,), max_iter=40, random_state=0)


def transformer() -> Any:
    return make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(), WORDS))


def dense() -> Any:
    return make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(sparse_output=False), WORDS))


def fitted(model: Any, frame: Any = X, y: Any = Y) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(frame, y)


def said(model: Any, frame: Any) -> np.ndarray:
    """The original's probability of the second class, or its value."""
    return np.asarray(model.predict_proba(frame)[:, 1] if hasattr(model, "predict_proba") else model.predict(frame))


def torch_module() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(5, 1))


PIPELINES: dict[str, tuple[Any, list[str]]] = {
    "words and numbers": (lambda: make_pipeline(transformer(), mlp()), [*NUMBERS, *WORDS]),
    "numbers, scaled": (lambda: make_pipeline(StandardScaler(), mlp()), NUMBERS),
    "words": (lambda: make_pipeline(OneHotEncoder(), mlp()), WORDS),
    "a linear model": (lambda: LogisticRegression(), NUMBERS),
    "naive Bayes": (GaussianNB, NUMBERS),
    "naive Bayes of words and numbers": (lambda: make_pipeline(dense(), GaussianNB(var_smoothing=1e-3)), [*NUMBERS, *WORDS]),
    "a quadratic discriminant": (lambda: make_pipeline(StandardScaler(), QuadraticDiscriminantAnalysis()), NUMBERS),
    "polynomials": (lambda: make_pipeline(dense(), PolynomialFeatures(), LogisticRegression()), [*NUMBERS, *WORDS]),
    "interactions": (lambda: make_pipeline(StandardScaler(), PolynomialFeatures(2, interaction_only=True), mlp()), NUMBERS),
    "an elimination": (lambda: RFE(LogisticRegression(), n_features_to_select=1), NUMBERS),
    "an elimination in between": (
        lambda: make_pipeline(transformer(), RFE(LogisticRegression(), n_features_to_select=4), mlp()), [*NUMBERS, *WORDS],
    ),
    "a search": (lambda: GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {"memory": [None]}), NUMBERS),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_fitted_pipeline_is_the_model_with_its_columns_by_name(name: str) -> None:
    make, columns = PIPELINES[name]
    frame = X[columns]
    model = fitted(make(), frame)
    network = vf.read(model, frame)
    assert [feed.name for feed in network.feeds] == columns
    assert network.classes == ("bad", "good")
    schema = vf.Schema.infer(frame.assign(y=Y), target="y", positive="good", model=model)
    given = schema.encode(schema.raw(frame)).astype(np.float32)
    assert np.abs(runtime_outputs(network, given)[:, 1] - said(model, frame)).max() < 1e-5


@pytest.mark.parametrize(("make", "squares"), [
    (GaussianNB, 3), (QuadraticDiscriminantAnalysis, 3), (
        lambda: make_pipeline(StandardScaler(), PolynomialFeatures(), LogisticRegression()), 9),
])  # fmt: skip
def test_a_quadratic_score_is_a_layer_of_squares(make: Any, squares: int) -> None:
    """Of as many as there are columns where the estimator's own numbers say so; no square where both classes vary alike."""
    x = np.column_stack([RANDOM.normal(size=(400, 2)) @ [[1, 0], [0.5, 3]], RANDOM.normal(2000, 5, 400), np.full(400, 1234.5)])
    y = (x[:, 0] ** 2 + x[:, 1] + RANDOM.normal(size=400) > 1).astype(int)
    if make is QuadraticDiscriminantAnalysis or squares > 3:
        x = x[:, :3]
    model = fitted(make(), x.astype(np.float32), y)
    network = vf.read(model)
    layer, last = network.layers
    assert layer.squared.sum() == squares
    x = x.astype(np.float32).astype(np.float64)
    score = np.diff(model.predict_joint_log_proba(x), axis=1)[:, 0] if make is GaussianNB else model.decision_function(x)
    assert np.abs(network.forward(x)[:, 0] - score).max() < 1e-4 * (1 + np.abs(score).max())
    if make is GaussianNB:
        assert not network.rounded
        assert (layer.weight[layer.squared] != 0).sum() == squares
    assert not network.knows_float32
    assert (last.slope == 1).all()


def test_three_classes_of_a_quadratic_score() -> None:
    y = np.digitize(X["label"], [-0.5, 0.5])
    for model in (GaussianNB(), QuadraticDiscriminantAnalysis()):
        network = vf.read(fitted(model, X[NUMBERS], y), X[NUMBERS])
        assert (network.link, network.outputs) == (Link.SOFTMAX, 3)
        x = X[NUMBERS].to_numpy(np.float32)
        assert np.abs(runtime_outputs(network, x) - model.predict_proba(X[NUMBERS])).max() < 1e-5
        assert network.forward(x.astype(np.float64)).argmax(axis=1).tolist() == model.predict(X[NUMBERS]).tolist()


def test_a_category_that_one_class_never_has_is_read() -> None:
    """It varies by 1e-9 there: float32 holds the others' numbers beside it around its mean alone."""
    x = np.column_stack([RANDOM.normal(size=(200, 2)), RANDOM.integers(0, 2, size=(200, 2)), np.ones(200)])
    x = x.astype(np.float32).astype(np.float64)  # of float32 numbers the object rounds as well
    y = (x[:, 0] + RANDOM.normal(size=200) > 0).astype(int)
    x[y == 1, 2], x[y == 0, 3] = 0, 1
    model = fitted(GaussianNB(), x, y)
    x[:, 4] = RANDOM.integers(0, 2, 200)
    for one in (model, fitted(VotingClassifier([("a", GaussianNB()), ("b", DecisionTreeClassifier(max_depth=2))]), x, y)):
        network = vf.read(one, pd.DataFrame(x))
        assert ((network.forward(x)[:, 0] > 0) == one.predict(x)).all()


def test_naive_bayes_of_classes_that_vary_alike_is_linear() -> None:
    model = fitted(GaussianNB(), X[NUMBERS].to_numpy(), (Y == "good").astype(int))
    model.var_[1] = model.var_[0]
    network = vf.read(model)
    assert len(network.layers) == 1
    x = X[NUMBERS].to_numpy(np.float32).astype(float)
    np.testing.assert_allclose(network.forward(x)[:, 0], np.diff(model.predict_joint_log_proba(x), axis=1)[:, 0], atol=1e-4)


@pytest.mark.parametrize("before", [(), (StandardScaler(),)])
def test_gradient_boosting_decides_for_the_second_class_at_a_score_of_zero(before: tuple[Any, ...]) -> None:
    """ONNX, and the other classifiers of scikit-learn, decide for the first one there."""
    x, y = np.array([[0, 0], [0, 0], [1, 0], [1, 0], [0, 1], [1, 1]], dtype=np.float64), np.array([0, 1, 0, 1, 1, 0])
    model = make_pipeline(*before, GradientBoostingClassifier(n_estimators=3, max_depth=2)).fit(x, y)
    assert (model.decision_function(x) == 0).sum() == 4
    network = vf.read(model)
    assert (decisions(network.forward(x)) == (model.predict(x) == 1)).all()


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_class_that_no_row_can_be_in_is_told() -> None:
    model = fitted(GaussianNB(priors=[0.0, 1.0]), X[NUMBERS])
    with pytest.raises(ModelError, match="sklearn GaussianNB: has a class without a chance, or variance"):
        vf.read(model, X[NUMBERS])


def test_a_module_with_products() -> None:
    """A square, a gate, and a product of two layers."""
    torch = pytest.importorskip("torch")

    class Products(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            return self.last(self.one(x) ** 2 + self.one(x) * torch.sigmoid(self.two(x)) + self.two(x) * torch.relu(self.one(x)))

    torch.manual_seed(0)
    module = Products().eval()
    network = vf.read(module)
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    with torch.no_grad():
        own = module(torch.from_numpy(x)).numpy()[:, 0]
    assert np.abs(network.forward(x.astype(np.float64))[:, 0] - own).max() < 1e-5


def test_imputers_pass_rows_that_have_all_values() -> None:
    frame = X.copy()
    frame.loc[::9, "label"], frame.loc[::7, "housing"] = np.nan, np.nan
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), NUMBERS),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), WORDS),
    )
    model = fitted(make_pipeline(columns, mlp()), frame)
    with pytest.warns(vf.ImportDifference, match="fills in missing words, the converted model does not"):
        network = vf.read(model, frame)
    whole = frame.dropna()
    schema = vf.Schema.infer(whole.assign(y=Y[whole.index]), target="y", positive="good", model=network)
    shown = runtime_outputs(network, schema.encode(schema.raw(whole)).astype(np.float32))
    assert np.abs(shown[:, 1] - said(model, whole)).max() < 1e-5
    assert "Imputer" in {node.op_type for node in onnx.load_model_from_string(network.stored).graph.node}


@pytest.mark.parametrize("last", [LogisticRegression(), RandomForestClassifier(9, max_depth=4, random_state=0)])
@pytest.mark.parametrize("scaled", [False, True])
def test_marks_of_missing_values_are_zeros_of_rows_that_have_them(scaled: bool, last: Any) -> None:
    frame = X[NUMBERS].copy()
    frame.loc[::3, "label"] = np.nan
    imputer = SimpleImputer(add_indicator=True)
    within = make_column_transformer((make_pipeline(imputer, MinMaxScaler()) if scaled else imputer, NUMBERS))
    model = fitted(make_pipeline(within, last), frame)
    with pytest.warns(vf.ImportDifference, match="marks missing values, the converted model does not"):
        network = vf.read(model, frame)
    whole = frame.dropna()
    shown = runtime_outputs(network, whole.to_numpy(dtype=np.float32))
    apart = np.abs(shown[:, 1] - said(model, whole)) > 1e-5
    assert apart.mean() <= (0.02 if scaled and isinstance(network, TreeEnsemble) else 0)  # rows on thresholds


def test_another_number_for_a_missing_value_is_a_jump() -> None:
    frame = X[NUMBERS].assign(label=np.where(X["label"] > 1, -9.0, X["label"]))
    imputer = SimpleImputer(add_indicator=True, missing_values=-9.0)
    with pytest.raises(ModelError):
        vf.read(fitted(make_pipeline(imputer, LogisticRegression()), frame), frame)


def test_columns_that_the_model_drops_are_no_inputs() -> None:
    model = fitted(make_pipeline(make_column_transformer((StandardScaler(), ["label"]), (OneHotEncoder(), ["sex"])), mlp()))
    assert [feed.name for feed in vf.read(model, X).feeds] == ["label", "sex"]


def test_without_names_the_model_takes_one_matrix() -> None:
    numbers = X[NUMBERS].to_numpy()
    (feed,) = vf.read(fitted(make_pipeline(StandardScaler(), mlp()), numbers), pd.DataFrame(numbers)).feeds
    assert (feed.shape, feed.kind) == ((2,), "float32")


@pytest.mark.parametrize("make", [
    lambda: VotingClassifier([("a", LogisticRegression())]), lambda: VotingRegressor([("a", Ridge())]), BaggingClassifier,
    lambda: StackingClassifier([("a", LogisticRegression())]), AdaBoostClassifier, CalibratedClassifierCV, LogisticRegression,
])  # fmt: skip
def test_what_was_not_fitted_is_said_so(make: Any) -> None:
    for model in (make(), make_pipeline(StandardScaler(), make())):
        with pytest.raises(QueryError, match="is not fitted; fit it first"):
            vf.read(model)


@pytest.mark.parametrize("estimator", ["xgboost.XGBRegressor", "lightgbm.LGBMClassifier", "catboost.CatBoostClassifier"])
def test_boosters_that_were_not_fitted_are_said_so(estimator: str) -> None:
    package, name = estimator.split(".")
    with pytest.raises(QueryError, match=f"model: this {package} {name} is not fitted; fit it first"):
        vf.read(getattr(pytest.importorskip(package), name)())


@pytest.mark.parametrize(("package", "make"), [
    ("torch", lambda torch: torch.zeros(2)), ("torch", lambda torch: torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1)),
    ("xgboost", lambda xgboost: xgboost.DMatrix(X[NUMBERS])), ("lightgbm", lambda lightgbm: lightgbm.Dataset(X[NUMBERS])),
    ("catboost", lambda catboost: catboost.Pool(X[NUMBERS])), ("lightgbm", lambda lightgbm: lightgbm.CVBooster()),
], ids=["tensor", "optimizer", "xgboost", "lightgbm", "catboost", "boosters"])  # fmt: skip
def test_other_objects_of_a_models_package_are_no_models(package: str, make: Any) -> None:
    thing = make(pytest.importorskip(package))
    with pytest.raises(QueryError, match=rf"^model: found {package} {type(thing).__name__}; expected .* torch\.nn\.Module$"):
        vf.read(thing)


def test_rows_to_compare_on_are_a_table() -> None:
    model = fitted(LogisticRegression(), X[NUMBERS])
    with pytest.raises(QueryError, match="frame: found ndarray; expected a pandas DataFrame"):
        vf.read(model, X[NUMBERS].to_numpy())  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="frame: has several columns 'label'"):
        vf.read(model, X[[*NUMBERS, "label"]])


def test_rows_that_float32_does_not_hold_are_not_compared() -> None:
    table = X[NUMBERS].copy()
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression()), table)
    table.iloc[0, 0], table.iloc[1, 1] = 1e40, -1e300
    assert vf.read(model, table).link is Link.SIGMOID


def test_columns_that_are_one_name_in_onnx() -> None:
    """Random points gave both the same values, and a right conversion was called another model."""
    frame = X[NUMBERS].set_axis(["a b", "a_b"], axis=1)
    model = fitted(LogisticRegression(), frame)
    for given in (frame, None):
        with pytest.raises(ModelError, match="its columns 'a b' and 'a_b' have one name in ONNX; rename one of them"):
            vf.read(model, given)


@pytest.mark.parametrize("make", [RandomForestRegressor, DecisionTreeRegressor, LinearRegression])
def test_several_values_are_no_classes(make: Any) -> None:
    """Gaps of a softmax of them were proved."""
    several = np.stack([X["label"], 2 - X["hours-per-week"], X["label"] * 3], axis=1)
    for y in (several, np.eye(2)[(Y == "good").astype(int)]):
        with pytest.raises(ModelError, match=r"values a row, which are no classes|add up to 1"):
            vf.read(make().fit(X[NUMBERS], y), X[NUMBERS])


class Careful(LogisticRegression):  # type: ignore[misc]
    """Derived, with probabilities of its own."""

    def predict_proba(self, x: Any) -> Any:
        return np.clip(super().predict_proba(x), 0.2, 0.8)


@pytest.mark.filterwarnings("ignore:y contains no unlabeled samples")
@pytest.mark.parametrize(("make", "match"), [
    (lambda: make_pipeline(MaxAbsScaler().set_params(clip=True), LogisticRegression()),
     "sklearn MaxAbsScaler: cuts values off .*MinMaxScaler"),
    (lambda: make_pipeline(make_column_transformer((StandardScaler(), [1, 0])), LogisticRegression()),
     "sklearn ColumnTransformer: takes all columns in another order"),
    (lambda: BaggingClassifier(make_pipeline(make_column_transformer((StandardScaler(), [1, 0])), LogisticRegression()), 2),
     "sklearn ColumnTransformer: takes all columns in another order"),
    (lambda: VotingClassifier([("a", Careful()), ("b", LogisticRegression())], voting="soft"), "combines Careful in a way"),
    (lambda: BaggingClassifier(Careful(), 2), "combines Careful in a way"),
    (lambda: SelfTrainingClassifier(LogisticRegression()), "SelfTrainingClassifier: cannot be converted"),
])  # fmt: skip
def test_what_conversions_would_leave_out_is_refused(make: Any, match: str) -> None:
    """Each was read, silently where the table that it is compared on does not show it."""
    x, y = X[NUMBERS].to_numpy(), (Y == "good").astype(int)
    if "MaxAbsScaler" in match and "clip" not in MaxAbsScaler().get_params():
        pytest.skip("this scikit-learn has no such option")
    with pytest.raises(ModelError, match=match):
        vf.read(fitted(make(), x, y), pd.DataFrame(x))


def test_columns_without_names_slices_of_names_and_several_labels_are_named() -> None:
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    nameless = frame.rename(columns={"label": ""})
    with pytest.raises(ModelError, match="was fitted on a column without a name; name it"):
        vf.read(LogisticRegression().fit(nameless, y), nameless)
    sliced = make_pipeline(make_column_transformer((StandardScaler(), slice(*NUMBERS))), LogisticRegression())
    with pytest.raises(ModelError, match="list columns by their names, and not as a slice"):
        vf.read(fitted(sliced, frame, y), frame)
    both = MultiOutputClassifier(LogisticRegression()).fit(frame, np.column_stack([y, y[::-1]]))
    with pytest.raises(ModelError, match=r"MultiOutputClassifier: decides several labels.*pass one of its estimators_"):
        vf.read(both, frame)


def test_a_dummy_is_named_alone_and_as_a_member() -> None:
    """Of a vote it was said that "decides alike about everybody, and needs no proof", as if that were the vote."""
    y = (Y == "good").astype(int)
    vote = VotingClassifier([("line", LogisticRegression()), ("dummy", DummyClassifier())], voting="soft")
    mean = VotingRegressor([("line", Ridge()), ("dummy", DummyRegressor())])
    for model in (DummyClassifier(), vote, mean):
        with pytest.raises(ModelError, match=r"Dummy.*: answers without reading a column: alone it needs no proof, and within "
                                             "another model it is not read; fit that without it$"):
            vf.read(model.fit(X[NUMBERS], y), X[NUMBERS])


def test_transformed_targets_are_named() -> None:
    model = TransformedTargetRegressor(Ridge()).fit(X[NUMBERS], X["label"])
    with pytest.raises(ModelError, match="TransformedTargetRegressor: transforms values back; pass the regressor_ within"):
        vf.read(model, X[NUMBERS])


def test_a_module_that_shows_both_probabilities() -> None:
    torch = pytest.importorskip("torch")

    class Shown(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, mean: bool) -> None:
            super().__init__()
            self.linear, self.mean = torch.nn.Linear(3, 2 if mean else 1), mean

        def forward(self, x: Any) -> Any:
            p = torch.sigmoid(self.linear(x))
            p = torch.cat([p[:, :1], p[:, 1:]], 1) @ torch.tensor([[0.25], [0.75]]) if self.mean else p
            return torch.cat([1 - p, p], 1)

    torch.manual_seed(0)
    assert vf.read(Shown(mean=False)).link is Link.SIGMOID


def test_the_same_object_is_the_same_model_at_every_door(tmp_path: Path) -> None:
    model = fitted(PIPELINES["words and numbers"][0]())
    network = vf.read(model)
    vf.save_onnx(network, tmp_path / "m.onnx")
    stored = onnx.load(tmp_path / "m.onnx")
    again = [vf.read(model, X), vf.read(tmp_path / "m.onnx"), vf.read(str(tmp_path / "m.onnx")), vf.read(stored)]
    again += [vf.read((tmp_path / "m.onnx").read_bytes()), vf.read(network)]
    assert {one.source_sha256 for one in again} == {network.source_sha256}
    schema = vf.Schema.infer(X.assign(y=Y), target="y", positive="good", model=model)
    query = vf.IndividualFairness(model=model, schema=schema, protected=["sex"], epsilon=0.99)
    assert query.model.source_sha256 == network.source_sha256
    verdict = vf.verify(query)
    assert verdict.certificate is not None
    verdict.certificate.save(tmp_path / "proof.json")
    for one in (model, tmp_path / "m.onnx", network):
        assert vf.check(tmp_path / "proof.json", model=one, schema=schema).accepted
    # What was read from memory crosses process borders, and replays there.
    copy = pickle.loads(pickle.dumps(network))
    given = schema.encode(schema.raw(X)).astype(np.float32)
    assert np.array_equal(runtime_outputs(copy, given), runtime_outputs(network, given))


def test_a_module_is_the_model_as_it_evaluates(tmp_path: Path) -> None:
    module = torch_module()
    torch = sys.modules["torch"]
    frame = X[NUMBERS]
    module.train()
    network = vf.read(module, frame)
    assert module.training
    module.eval()
    own = module(torch.tensor(frame.to_numpy(dtype=np.float32))).detach().numpy()
    assert np.abs(network.forward(frame.to_numpy(dtype=np.float32).astype(float)) - own).max() < 1e-5
    assert vf.read(module).source_sha256 == network.source_sha256
    torch.save(module, tmp_path / "m.pt")
    with pytest.raises(ModelFileError, match=r"m\.pt: is a file of PyTorch: a pickle, which may run any code"):
        vf.read(tmp_path / "m.pt")
    with pytest.raises(QueryError, match=r"has no Linear layer that tells its input columns; pass read\(model, columns=\.\.\.\)"):
        vf.read(torch.nn.ReLU())
    assert vf.read(torch.nn.ReLU(), columns=3).inputs == 3


def test_a_module_that_fails_on_rows_of_so_many_columns_says_what_to_pass() -> None:
    torch = pytest.importorskip("torch")

    class Parts(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(2, 1), torch.nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            return self.one(x[:, :2]) + self.two(x[:, 2:])

    with pytest.raises(QueryError, match=r"a row of 2 columns .* its first Linear layer has so many: .*pass read\(model, columns="):
        vf.read(Parts())
    assert vf.read(Parts(), columns=3).inputs == 3
    with pytest.raises(QueryError, match=r"a row of 5 columns \(mat1 and mat2 .*\); if it takes several tensors, wrap it"):
        vf.read(Parts(), columns=5)


def test_an_embedding_is_the_one_hot_block_of_its_column() -> None:
    torch = pytest.importorskip("torch")

    class Embedded(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.codes, self.linear = torch.nn.Embedding(3, 2), torch.nn.Linear(3, 1)

        def forward(self, x: Any) -> Any:
            return self.linear(torch.cat([self.codes(x[:, 1].long()), x[:, :1]], 1))

    model = Embedded()
    with pytest.raises(QueryError, match="has an Embedding in front of the Linear layer"):
        vf.read(model)
    frame = pd.DataFrame({"hours": [5.0, 7.5, 40.0], "housing": [0, 2, 1]})
    network = vf.read(model, frame, columns=2)
    schema = vf.Schema.infer(frame.assign(y=[0, 1, 1]), target="y", model=network)
    assert schema["housing"].categories == ("0", "1", "2")
    own = model(torch.tensor(frame.to_numpy(dtype=np.float32))).detach().numpy()
    assert np.abs(network.forward(schema.encode(schema.raw(frame))) - own).max() < 1e-5


@pytest.mark.parametrize("package", ["xgboost", "lightgbm", "catboost"])
def test_boosted_trees_and_pipelines_that_end_in_them(package: str) -> None:
    boosting = pytest.importorskip(package)
    made = {
        "xgboost": lambda: boosting.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1),
        "lightgbm": lambda: boosting.LGBMClassifier(n_estimators=4, verbose=-1, n_jobs=1),
        "catboost": lambda: boosting.CatBoostClassifier(
            iterations=4, depth=3, verbose=0, allow_writing_files=False, thread_count=1
        ),
    }[package]
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    alone = fitted(made(), frame, y)
    model = vf.read(alone, frame)
    assert [feed.name for feed in model.feeds] == NUMBERS
    shown = runtime_outputs(model, frame.to_numpy(dtype=np.float32))
    assert np.abs(shown[:, 1] - said(alone, frame)).max() < 1e-5
    if package == "lightgbm":  # which writes _ for a space
        spaced = frame.assign(**{"home of one": X["housing"].astype("category")})
        assert vf.read(fitted(made(), spaced, y), spaced).feeds[2].name == "home_of_one"  # warns of nothing: it was compared
    booster = getattr(alone, "booster_", None) or (alone.get_booster() if package == "xgboost" else alone)
    assert vf.read(booster, frame).source_sha256
    # Halves are exact in float32 and in float64, so that the scaler moves no number over a threshold.
    halves = make_pipeline(StandardScaler(with_mean=False, with_std=False), made())
    assert [feed.name for feed in vf.read(fitted(halves, frame, y), frame).feeds] == NUMBERS
    behind_words = make_pipeline(make_column_transformer(("passthrough", NUMBERS), (OneHotEncoder(), WORDS)), made())
    whole = vf.read(fitted(behind_words, X, y), X)
    assert [feed.name for feed in whole.feeds] == [*NUMBERS, *WORDS]
    assert whole.inputs == 2 + 2 + 3


@pytest.mark.parametrize(("estimator", "options"), [
    ("lightgbm.LGBMRegressor", {"verbose": -1}),
    ("lightgbm.LGBMClassifier", {"verbose": -1, "boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
    ("lightgbm.LGBMRegressor", {"verbose": -1, "boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
    ("xgboost.XGBClassifier", {}), ("xgboost.XGBRegressor", {}),
])  # fmt: skip
def test_values_forests_and_truth_values_of_boosting_libraries(estimator: str, options: dict[str, Any]) -> None:
    package, name = estimator.split(".")
    library = pytest.importorskip(package)
    frame = X[NUMBERS].assign(owns=X["housing"] == "own")
    model = getattr(library, name)(n_estimators=3, **options).fit(frame, (Y == "good") | frame["owns"])
    booster = model.booster_ if package == "lightgbm" else model.get_booster()
    assert model.feature_importances_[-1] > 0
    shown = runtime_outputs(vf.read(model, frame), frame.to_numpy(dtype=np.float32))
    own = said(model, frame)
    assert np.abs(shown[:, -1] - own).max() < 1e-5
    if options.get("boosting_type") == "rf":
        assert np.abs(runtime_outputs(vf.read(booster, frame), frame.to_numpy(dtype=np.float32))[:, -1] - own).max() < 1e-5
        booster.best_iteration = 2  # of three: what its predictions and its file hold
        shown = runtime_outputs(vf.read(booster, frame), frame.to_numpy(dtype=np.float32))
        assert np.abs(shown[:, -1] - booster.predict(frame)).max() < 1e-5


def test_classes_of_softmax_are_softprob() -> None:
    xgboost = pytest.importorskip("xgboost")
    frame = X[NUMBERS]
    model = xgboost.XGBClassifier(n_estimators=2, objective="multi:softmax").fit(frame, X["housing"].astype("category").cat.codes)
    shown = runtime_outputs(vf.read(model, frame), frame.to_numpy(dtype=np.float32))
    assert np.abs(shown - model.predict_proba(frame)).max() < 1e-5
    assert model.objective == "multi:softmax"


@pytest.mark.parametrize(("estimator", "options", "match"), [
    ("lightgbm.LGBMClassifier", {"verbose": -1, "linear_tree": True}, "leaves hold linear functions.*linear_tree=False"),
    ("xgboost.XGBClassifier", {"booster": "dart"}, "boosted by 'dart'.*booster='gbtree'"),
    ("xgboost.XGBClassifier", {"booster": "gblinear"}, "boosted by 'gblinear'"),
    ("xgboost.XGBClassifier", {"missing": -9.0}, "missing=numpy.nan"),
    ("xgboost.XGBClassifier", {"objective": "binary:logitraw"}, "objective 'binary:logistic'"),
    ("lightgbm.LGBMClassifier", {"verbose": -1, "zero_as_missing": True}, "0 for a missing value.*zero_as_missing=False"),
    ("lightgbm.LGBMClassifier", {"verbose": -1, "objective": "cross_entropy"}, "objective 'binary'"),
    ("catboost.CatBoostClassifier", {"verbose": 0, "allow_writing_files": False}, "labels 0 and 1"),
    ("catboost.CatBoostRegressor", {"verbose": 0, "allow_writing_files": False, "grow_policy": "Lossguide"}, "SymmetricTree"),
    ("lightgbm.LGBMClassifier", {"verbose": -1, "sigmoid": 2.0}, "sigmoid of its own, .*; fit it with sigmoid=1"),
    ("xgboost.XGBRegressor", {"objective": "count:poisson"}, "exponentials of sums of trees; fit it on the values"),
    ("xgboost.XGBRegressor", {"objective": "reg:logistic"}, "probabilities as values; fit XGBClassifier"),
    ("xgboost.XGBClassifier", {"objective": "binary:hinge"}, "without probabilities; .* 'binary:logistic'"),
    ("lightgbm.LGBMRegressor", {"verbose": -1, "objective": "tweedie"}, "exponentials of sums of trees"),
    ("catboost.CatBoostRegressor", {"verbose": 0, "allow_writing_files": False, "loss_function": "Poisson"}, "exponentials"),
    ("catboost.CatBoostClassifier", {"verbose": 0, "allow_writing_files": False, "loss_function": "MultiClass"}, "'Logloss'"),
    ("sklearn.ensemble.GradientBoostingClassifier", {"loss": "exponential"}, "loss='log_loss'"),
    ("sklearn.ensemble.HistGradientBoostingRegressor", {"loss": "poisson"}, "exponentials of sums of trees"),
])  # fmt: skip
def test_boosters_that_no_converter_knows(estimator: str, options: dict[str, Any], match: str) -> None:
    package, _, name = estimator.rpartition(".")
    count = "max_iter" if name.startswith("Hist") else "n_estimators"
    model = getattr(pytest.importorskip(package), name)(**{count: 2}, **options).fit(X[NUMBERS], Y == "good")
    with pytest.raises(ModelError, match=match) as caught:
        vf.read(model, X[NUMBERS])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_objectives_that_give_what_is_converted_are_read() -> None:
    """XGBoost's reg:logistic of a classifier is binary:logistic; CatBoost shows Cox and sums of models as they are."""
    xgboost, catboost = pytest.importorskip("xgboost"), pytest.importorskip("catboost")
    quiet = {"iterations": 2, "verbose": 0, "allow_writing_files": False}
    label = (Y == "good").astype(int)
    logistic = xgboost.XGBClassifier(n_estimators=2, objective="reg:logistic").fit(X[NUMBERS], label)
    assert vf.read(logistic, X[NUMBERS]).link is Link.SIGMOID
    classifier = catboost.CatBoostClassifier(**quiet).fit(X[NUMBERS], label)
    cox = catboost.CatBoostRegressor(**quiet, loss_function="Cox").fit(X[NUMBERS], label + 1)
    for model in (cox, catboost.sum_models([classifier, classifier])):
        read = vf.read(model, X[NUMBERS])
        values = read.forward(X[NUMBERS].to_numpy(dtype=np.float32).astype(np.float64))[:, 0]
        assert np.abs(values - model.predict(X[NUMBERS])).max() < 1e-5


@pytest.mark.parametrize("package", ["lightgbm", "xgboost"])
def test_categories_of_a_table_are_the_codes_of_the_model(package: str) -> None:
    library = pytest.importorskip(package)
    frame = X.assign(**{name: X[name].astype("category") for name in WORDS})
    made = (
        library.LGBMClassifier(n_estimators=5, verbose=-1, min_data_per_group=5) if package == "lightgbm" else
        library.XGBClassifier(n_estimators=5, enable_categorical=True, max_cat_to_onehot=2)
    )
    model = made.fit(frame, Y == "good")    # bool classes too
    schema = vf.Schema.infer(frame.assign(y=Y == "good"), target="y", positive=True, model=model)
    assert schema["housing"].categories == ("free", "own", "rent")
    shown = runtime_outputs(vf.read(model, frame), schema.encode(schema.raw(frame)).astype(np.float32))
    assert np.abs(shown[:, -1] - said(model, frame)).max() < 1e-5


@pytest.mark.parametrize("dtype", [bool, object, "boolean"])
@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
def test_truth_values_behind_an_encoder_are_its_categories(encoder: Any, dtype: Any) -> None:
    frame = X[NUMBERS].assign(owns=(X["housing"] == "own").astype(dtype))
    columns = make_column_transformer(("passthrough", NUMBERS), (encoder(), ["owns"]))
    y = (Y == "good") & (X["housing"] == "own")
    model = fitted(make_pipeline(columns, DecisionTreeClassifier(max_depth=3)), frame, y)
    network = vf.read(model, frame)
    schema = vf.Schema.infer(frame.assign(y=y), target="y", protected=["owns"], model=network)
    assert schema["owns"].categories == ("False", "True")
    shown = runtime_outputs(network, schema.encode(schema.raw(frame)).astype(np.float32))
    assert np.abs(shown[:, 1] - said(model, frame)).max() < 1e-5
    own = model.predict_proba
    model.predict_proba = lambda rows: np.where(rows[["owns"]].astype(bool), 0.5, own(rows))
    with pytest.raises(ModelError, match="of 300 rows of the table differ"):  # no scaler before the trees explains that many
        vf.read(model, frame)
    numbered = vf.Schema.infer(frame.assign(y=y, owns=frame["owns"].astype(int)), target="y", model=network)
    assert numbered["owns"].categories == ("0", "1")


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("kind", ["XGBClassifier", "XGBRegressor"])
def test_zeros_of_a_sparse_matrix_are_missing_values_to_xgboost(kind: str, alone: bool, dense: bool) -> None:
    """They go where missing values go, between numbers that may go the other way on both sides."""
    xgboost = pytest.importorskip("xgboost")
    encoder = OneHotEncoder(sparse_output=not dense)
    before = encoder if alone else make_column_transformer(("passthrough", NUMBERS), (encoder, WORDS), sparse_threshold=1)
    rng = np.random.default_rng(0)
    frame = X[WORDS].assign(**({} if alone else {name: rng.integers(-2, 3, len(X)) for name in NUMBERS}))
    y = (frame["sex"] == "Male").to_numpy() ^ (rng.random(len(X)) < 0.2)
    if not alone:
        y = y ^ (frame[NUMBERS[0]] == 0).to_numpy() ^ (frame[NUMBERS[1]] != 0).to_numpy()
    model = fitted(make_pipeline(before, getattr(xgboost, kind)(n_estimators=9, max_depth=4)), frame, y.astype(int))
    network = vf.read(model, frame)
    positive = "value > 0.5" if kind == "XGBRegressor" else None
    schema = vf.Schema.infer(frame.assign(y=y.astype(int)), target="y", model=network, positive=positive)
    shown = network.forward(schema.encode(schema.raw(frame)).astype(np.float64))[:, 0]
    expected = said(model, frame) if kind == "XGBClassifier" else model.predict(frame)
    np.testing.assert_allclose(1 / (1 + np.exp(-shown)) if kind == "XGBClassifier" else shown, expected, atol=1e-5)


def test_what_xgboost_takes_for_a_missing_value() -> None:
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(-2, 3, 300).astype(float), "b": rng.integers(0, 3, 300).astype(float)})
    y = (frame["a"] == 0) ^ (frame["b"] > 0) ^ (rng.random(300) < 0.1)
    model = fitted(xgboost.XGBClassifier(n_estimators=9, max_depth=4, missing=0), frame, y.astype(int))
    shown = vf.read(model, frame).forward(frame.to_numpy())[:, 0]
    np.testing.assert_allclose(1 / (1 + np.exp(-shown)), said(model, frame), atol=1e-5)


def test_a_number_that_is_missing_beside_zeros_of_a_sparse_matrix_is_refused() -> None:
    """Rows that hold it were decided as if it were a number, and the scaler was blamed for that."""
    xgboost = pytest.importorskip("xgboost")
    before = make_column_transformer((MaxAbsScaler(), NUMBERS), (OneHotEncoder(), WORDS), sparse_threshold=1)
    model = fitted(make_pipeline(before, xgboost.XGBClassifier(n_estimators=3, max_depth=2, missing=-1)), X, Y == "good")
    with pytest.raises(ModelError, match=r"missing=numpy\.nan"):
        vf.read(model, X)


def test_a_table_without_a_row_that_the_model_takes_is_told() -> None:
    model = fitted(make_pipeline(OneHotEncoder(), LogisticRegression()), X[WORDS])
    with pytest.warns(vf.ImportDifference, match="compared on random points, as no row of the table has values that"):
        vf.read(model, X[WORDS].assign(sex="M"))


@pytest.mark.parametrize("around", ["outside", "within", "calibrated"])
def test_zeros_of_a_sparse_matrix_are_missing_values_to_members_as_well(around: str) -> None:
    """To those of XGBoost, and to no others."""
    member = pytest.importorskip("xgboost").XGBClassifier(n_estimators=5, max_depth=3)
    before = make_column_transformer(("passthrough", NUMBERS), (OneHotEncoder(), WORDS), sparse_threshold=1)
    rng = np.random.default_rng(0)
    frame = X[WORDS].assign(**{name: rng.integers(-2, 3, len(X)).astype(float) for name in NUMBERS})
    y = (frame["sex"] == "Male") ^ (frame[NUMBERS[0]] == 0) ^ (frame[NUMBERS[1]] != 0) ^ (rng.random(len(X)) < 0.1)

    def voting(one: Any) -> VotingClassifier:
        return VotingClassifier([("a", one), ("b", RandomForestClassifier(3, random_state=0))], voting="soft")

    if around == "within":
        model = CalibratedClassifierCV(make_pipeline(before, member), cv=2, ensemble=False)
    else:
        model = make_pipeline(before, CalibratedClassifierCV(member, cv=2) if around == "calibrated" else voting(member))
    network = vf.read(fitted(model, frame, y.astype(int)), frame)
    schema = vf.Schema.infer(frame.assign(y=y.astype(int)), target="y", model=network)
    shown = network.forward(schema.encode(schema.raw(frame)).astype(np.float64))[:, 0]
    np.testing.assert_allclose(probabilities(network, shown), said(model, frame), atol=1e-5)


def library(name: str, kind: str, **options: Any) -> Any:
    """A small model of a boosting library."""
    package = pytest.importorskip(name.lower())
    quiet = {"XGB": {}, "LGBM": {"verbose": -1}, "CatBoost": {"verbose": 0, "allow_writing_files": False}}[SHORT[name]]
    return getattr(package, SHORT[name] + kind)(n_estimators=4, max_depth=3, **quiet, **options)


SHORT = {"xgboost": "XGB", "lightgbm": "LGBM", "catboost": "CatBoost"}


@pytest.mark.parametrize("name", SHORT)
def test_missing_values_of_members_go_their_own_ways(name: str) -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random((300, 3)) < 0.2, np.nan, rng.integers(-3, 4, size=(300, 3)).astype(float))
    y = (np.nan_to_num(x[:, 0], nan=2) + np.nan_to_num(x[:, 1], nan=-2) * x[:, 0] + rng.normal(size=300) > 0).astype(int)
    members = [("a", HistGradientBoostingClassifier(max_iter=4)), ("b", library(name, "Classifier")),
               ("c", RandomForestClassifier(4, max_depth=4, random_state=0))]
    for model in (VotingClassifier(members, voting="soft"), StackingClassifier(members, cv=2)):
        network = vf.read(fitted(model, x, y), pd.DataFrame(x))
        own = model.predict_proba(x)[:, 1]
        np.testing.assert_allclose(probabilities(network, network.forward(x)[:, 0]), own, atol=1e-6)
        np.testing.assert_allclose(runtime_outputs(network, x.astype(np.float32))[:, 1], own, atol=1e-6)


@pytest.mark.parametrize("name", SHORT)
def test_regressors_of_boosting_libraries_are_members(name: str) -> None:
    frame = X[NUMBERS]
    value = frame[NUMBERS[0]] * frame[NUMBERS[1]]
    members = [("a", library(name, "Regressor")), ("b", RandomForestRegressor(3, max_depth=3, random_state=0))]
    for model in (VotingRegressor(members), StackingRegressor(members, Ridge(), cv=2)):
        network = vf.read(fitted(model, frame, value), frame)
        assert isinstance(network, TreeEnsemble)
        rows = frame.astype(np.float32)
        found = network.forward(rows.to_numpy(dtype=np.float64))[:, 0]
        np.testing.assert_allclose(found, model.predict(rows), rtol=1e-5, atol=1e-3)


def test_categories_that_a_library_numbers_are_refused_of_members() -> None:
    frame = X[NUMBERS].assign(code=pd.Categorical(X[WORDS[0]].map({one: 10 * k for k, one in enumerate(sorted(set(X[WORDS[0]])))})))
    for one in (library("lightgbm", "Classifier"), library("xgboost", "Classifier", enable_categorical=True)):
        model = VotingClassifier([("a", one), ("b", RandomForestClassifier(3, random_state=0))], voting="soft")
        with pytest.raises(ModelError, match=r"numbers the categories of a table's columns, .*; fit it behind an encoder"):
            vf.read(fitted(model, frame, Y == "good"), frame)


def test_what_is_no_model(tmp_path: Path) -> None:
    accepted = r"expected the path of an \.onnx file, its bytes, .* or a torch\.nn\.Module"
    for wrong, what in ((3, "int"), (None, "NoneType"), (X, "DataFrame"), (MLPClassifier, "the class MLPClassifier")):
        with pytest.raises(QueryError, match=f"^model: found {what}; {accepted}$"):
            vf.read(wrong)
    with pytest.raises(QueryError, match="model: this sklearn MLPClassifier is not fitted; fit it first"):
        vf.read(mlp())
    with pytest.raises(QueryError, match="StandardScaler predicts nothing; pass a classifier"):
        vf.read(fitted(StandardScaler(), X[NUMBERS], None))
    with pytest.raises(ModelFileError, match="model in memory: not a readable ONNX file"):
        vf.read(b"\xff\xff")
    with pytest.raises(ModelFileError, match="cannot be read"):
        vf.read(tmp_path / "absent.onnx")
    with pytest.raises(ModelFileError, match=r"m\.joblib: is a pickle, which may run any code when it is loaded"):
        vf.read("m.joblib")


class Bomb:
    """What a pickle may do."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('a pickle was loaded')",)


@pytest.mark.parametrize("name", ["m.pkl", "m.pt", "m.joblib", "m.onnx"])
def test_no_pickle_is_ever_loaded_from_a_path(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelFileError):
        vf.read(tmp_path / name)


def test_values_are_no_decisions() -> None:
    """Read they are, for gaps between values; a draft would take them for logits."""
    model = fitted(Ridge(), X[NUMBERS], X["label"])
    assert vf.read(model, X).outputs == 1
    for ask in (
        lambda: vf.Schema.infer(X.assign(y=Y), target="y", positive="good", model=model),
        lambda: vf.audit(model, X.assign(y=Y), target="y", sensitive=["sex"]),
    ):
        with pytest.raises(QueryError, match="model: sklearn Ridge gives values, and decisions are asked about; say which values"):
            ask()


def test_a_missing_converter_is_one_line_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(LogisticRegression(), X[NUMBERS])
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(MissingPackage, match=r"^sklearn LogisticRegression: .* needs skl2onnx, .*: pip install skl2onnx$"):
        vf.read(model)


def test_no_package_is_imported_for_what_is_not_its_object() -> None:
    import subprocess

    program = (
        "import sys, numpy as np, verifair as vf\nfrom sklearn.linear_model import LogisticRegression\n"
        "vf.read(LogisticRegression().fit(np.eye(2), [0, 1]))\n"
        "print([name for name in ('torch', 'xgboost', 'lightgbm', 'catboost') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_difference_from_the_object_is_told() -> None:
    model = fitted(LogisticRegression(), X[NUMBERS])
    own = model.predict_proba
    model.predict_proba = lambda frame: np.round(own(frame), 2)
    with pytest.warns(vf.ImportDifference, match=r"the converted model .*differs from it by more than 0.0001 on \d+ of 300 rows"):
        vf.read(model, X)


def test_differences_that_float32_explains_are_told_apart() -> None:
    """Rows next to a threshold decide otherwise in float32; another decision on float32 numbers is another model."""
    frame = pd.DataFrame({"a": np.linspace(0, 1, 300)})
    model = fitted(DecisionTreeRegressor(max_depth=3), frame, frame["a"])
    own = model.predict
    model.predict = lambda rows: own(rows) + 0.5 * (rows["a"] != rows["a"].astype(np.float32))
    with pytest.warns(vf.ImportDifference, match="of rows rounded to float32 none differs"):
        vf.read(model, frame.where(frame["a"] < 0.1, 0.5))
    model.predict = lambda rows: own(rows) + 0.5 * (rows["a"] > 0.95)
    with pytest.raises(ModelError, match="does not reproduce it: 15 of 300 rows of the table differ"):
        vf.read(model, frame)


def test_a_model_of_one_class_decides_nothing() -> None:
    for model in (make_pipeline(StandardScaler(), DecisionTreeClassifier()), MLPClassifier((2,), max_iter=1)):
        with pytest.raises(QueryError, match="fitted on rows of one class, good: it decides nothing"):
            vf.read(fitted(model, X[NUMBERS], ["good"] * len(X)))


def test_another_model_in_place_of_the_object_is_refused() -> None:
    model = fitted(Ridge(), X[NUMBERS], X["label"])
    own = model.predict
    model.predict = lambda frame: own(frame) + 1
    with pytest.raises(ModelError, match="its conversion to ONNX does not reproduce it: 300 of 300 rows of the table differ"):
        vf.read(model, X)


def test_a_model_in_memory_that_keeps_its_weights_elsewhere(tmp_path: Path) -> None:
    vf.save_onnx(vf.read(fitted(mlp(), X[NUMBERS]), X), tmp_path / "m.onnx")
    stored = onnx.load(tmp_path / "m.onnx")
    for one in stored.graph.initializer:
        one.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(one), one.name))
    onnx.save(stored, tmp_path / "n.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    with pytest.raises(ModelFileError, match="model in memory: keeps weights in other files"):
        vf.read((tmp_path / "n.onnx").read_bytes())
    with pytest.raises(ModelError, match=r"keeps weights in other files; copy all of them: n\.onnx, w\.bin"):
        vf.save_onnx(vf.read(tmp_path / "n.onnx"), tmp_path / "o.onnx")


def test_what_a_stream_holds_is_no_model() -> None:
    with pytest.raises(QueryError, match="found BytesIO"):
        vf.read(io.BytesIO(b""))


@pytest.mark.parametrize("name", ["lightgbm", "HistGradientBoosting"])
def test_rows_on_float64_thresholds_are_decided_as_the_library_does(name: str) -> None:
    """Thresholds that are no float32 numbers, one of them next to 0: rows on the float32 numbers below and above."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 3))
    y = (x[:, 0] + np.sin(3 * x[:, 1]) > 0).astype(int)
    if name == "lightgbm":
        fitted = pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=30, verbose=-1, n_jobs=1).fit(x, y)
    else:
        fitted = HistGradientBoostingClassifier(max_iter=30).fit(x, y)
    model = vf.read(fitted)
    assert isinstance(model, TreeEnsemble)
    rows = x[:2000].astype(np.float32)
    for column in range(3):
        limits = np.unique(model.threshold[model.column == column]).astype(np.float32)
        at = rng.choice(limits, size=len(rows))
        rows[:, column] = np.where(rng.random(len(rows)) < 0.5, at, np.nextafter(at, np.float32(np.inf)))
    shown = probabilities(model, model.forward(rows.astype(np.float64))[:, 0])
    np.testing.assert_allclose(shown, fitted.predict_proba(rows.astype(np.float64))[:, 1], atol=1e-6)


@pytest.mark.parametrize(("step", "last", "match"), [
    (StandardScaler(), KNeighborsClassifier(), "sklearn KNeighborsClassifier: compares each row with rows .*; fit Logistic"),
    (KBinsDiscretizer(3, encode="ordinal"), DecisionTreeClassifier(), "sklearn KBinsDiscretizer: .*, or trees on columns"),
    (FunctionTransformer(np.exp), LogisticRegression(), "sklearn FunctionTransformer: applies a function that is not read"),
    ("passthrough", BaggingClassifier(KNeighborsClassifier(), 2), "sklearn KNeighborsClassifier: compares"),
    ("passthrough", CalibratedClassifierCV(VotingClassifier([("a", RandomForestClassifier(3)), ("b", LogisticRegression())],
                                                            voting="soft"), cv=2), "sklearn CalibratedClassifierCV: calibrates"),
])  # fmt: skip
def test_what_no_conversion_makes_readable_is_named_with_what_would_help(step: Any, last: Any, match: str) -> None:
    model = fitted(make_pipeline(make_column_transformer((step, NUMBERS)), last))
    with pytest.raises(ModelError, match=match) as caught:
        vf.read(model, X)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


# Estimators that decide by thresholds of their own


WITHIN: dict[str, Any] = {
    "boosted": lambda: GradientBoostingClassifier(n_estimators=8, random_state=0), "linear": LogisticRegression,
    "forest": lambda: RandomForestClassifier(9, max_depth=3, random_state=0), "margin": LinearSVC,
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "mean": lambda: BaggingClassifier(LogisticRegression(), 3, max_samples=0.2, random_state=0),
    "folds": lambda: CalibratedClassifierCV(LogisticRegression(), cv=3),
    "one vote": lambda: VotingClassifier([("a", LogisticRegression())], voting="soft"),
}
THRESHOLDS: dict[str, Any] = {
    "tuned": lambda one: TunedThresholdClassifierCV(one, cv=3, random_state=0),
    "fixed": lambda one: FixedThresholdClassifier(one, threshold=0.3),
    "at one half": FixedThresholdClassifier,
    "of the first class": lambda one: FixedThresholdClassifier(one, threshold=0.7, pos_label=0),
    "searched": lambda one: GridSearchCV(FixedThresholdClassifier(one), {"threshold": [0.3, 0.31]}, cv=2),
}


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("within", sorted(set(WITHIN) - {"mean"}))  # the scores of which its members' do not add up to
def test_a_classifier_that_was_calibrated_once_is_read(within: str, frozen: bool) -> None:
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    one = fitted(WITHIN[within](), frame[:150], y[:150])
    model = fitted(CalibratedClassifierCV(FrozenEstimator(one) if frozen else one, ensemble=False), frame[150:], y[150:])
    network = vf.read(model, frame)
    assert network.link is Link.SIGMOID
    assert [feed.name for feed in network.feeds] == NUMBERS
    shown = runtime_outputs(network, frame.to_numpy(dtype=np.float32))
    np.testing.assert_allclose(shown, model.predict_proba(frame), atol=1e-5)
    schema = vf.Schema.infer(frame.assign(y=y), target="y", model=network)
    assert positive(network, schema, schema.raw(frame)).tolist() == (model.predict(frame) == 1).tolist()


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("bagged", [True, False])
def test_a_calibrated_booster_is_read_or_refused_with_the_rule_that_decides_alike(method: str, bagged: bool) -> None:
    booster = pytest.importorskip("xgboost").XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1)
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    one = fitted(BaggingClassifier(booster, 2, random_state=0) if bagged else booster, frame[:150], y[:150])
    model = fitted(CalibratedClassifierCV(FrozenEstimator(one), ensemble=False, method=method), frame[150:], y[150:])
    said, rule = model.predict(frame) == 1, "logit > 0"
    if bagged and method == "isotonic":
        with pytest.raises(ModelError, match="calibrates probabilities in a way that is not read") as caught:
            vf.read(model, frame)
        (rule,) = re.findall(r'positive = "(.*)"', str(caught.value))
        network = vf.read(one, frame)
    else:
        network = vf.read(model, frame)
        assert network.link is (Link.SIGMOID if method == "sigmoid" else Link.SHARES)
        shown = runtime_outputs(network, frame.to_numpy(dtype=np.float32))
        np.testing.assert_allclose(shown, model.predict_proba(frame), atol=1e-5)
    schema = vf.Schema.infer(frame.assign(y=y), target="y", model=network, positive=rule)
    assert 0 < said.mean() < 1
    assert positive(network, schema, schema.raw(frame)).tolist() == said.tolist()


def test_a_calibration_without_such_a_rule_is_one_line() -> None:
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    voting = VotingClassifier([("a", WITHIN["boosted"]()), ("b", WITHIN["linear"]())], voting="soft")
    with pytest.raises(ModelError, match="not read; fit it with ensemble=False on two classes"):
        vf.read(fitted(CalibratedClassifierCV(voting, cv=2), frame, y), frame)


def test_a_pipeline_in_each_fold_of_a_calibration_belongs_in_front_of_it() -> None:
    """The remedy works."""
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    inside = CalibratedClassifierCV(make_pipeline(StandardScaler(), WITHIN["boosted"]()), cv=2)
    with pytest.raises(ModelError, match=r"fit it behind the steps, as in make_pipeline\(steps, CalibratedClassifierCV"):
        vf.read(fitted(inside, frame, y), frame)
    vf.read(fitted(make_pipeline(StandardScaler(), CalibratedClassifierCV(WITHIN["boosted"](), cv=2)), frame, y), frame)


# Combinations of estimators; tests/soundness/test_combined_estimators.py has their decisions


def pipelined(model: Any) -> Any:
    """The model behind a transformer of words, and of numbers but for trees."""
    scaler = "passthrough" if isinstance(model, RandomForestClassifier | BaggingClassifier) else StandardScaler()
    return make_pipeline(make_column_transformer((scaler, NUMBERS), (OneHotEncoder(), WORDS)), model)


COMBINED: dict[str, tuple[Any, type]] = {
    "trees and a linear model": (
        lambda: VotingClassifier([("a", pipelined(LogisticRegression())),
                                  ("b", pipelined(RandomForestClassifier(5, max_depth=4, random_state=0)))], voting="soft"),
        MeanOfTrees),
    "bagging": (lambda: pipelined(BaggingClassifier(DecisionTreeClassifier(max_depth=3), 5, random_state=0)), TreeEnsemble),
    "adaboost": (lambda: pipelined(AdaBoostClassifier(n_estimators=5, random_state=0)), TreeEnsemble),
    "voting": (lambda: pipelined(VotingClassifier([("a", LogisticRegression()), ("b", mlp())], voting="soft")), Network),
    "voting of pipelines": (
        lambda: VotingClassifier([("a", pipelined(LogisticRegression())), ("b", pipelined(mlp()))], voting="soft"), Network),
    "stacking": (lambda: pipelined(StackingClassifier([("a", LogisticRegression()), ("b", LinearSVC())], cv=3)), Network),
    "calibrated": (lambda: CalibratedClassifierCV(pipelined(LogisticRegression()), cv=3), Network),
    "calibrated forest": (
        lambda: CalibratedClassifierCV(pipelined(RandomForestClassifier(5, random_state=0)), cv=3, ensemble=False), TreeEnsemble),
    "discriminant": (lambda: pipelined(LinearDiscriminantAnalysis()), Network),
}


@pytest.mark.parametrize("name", COMBINED)
def test_combined_estimators_take_the_columns_by_name(name: str) -> None:
    make, kind = COMBINED[name]
    model = fitted(make())
    network = vf.read(model, X)
    assert isinstance(network, kind)
    assert sorted(feed.name for feed in network.feeds) == sorted([*NUMBERS, *WORDS])
    assert network.classes == ("bad", "good")
    schema = vf.Schema.infer(X.assign(y=Y), target="y", positive="good", model=network)
    shown = runtime_outputs(network, schema.encode(schema.raw(X)).astype(np.float32))
    assert np.abs(shown[:, 1] - said(model, X)).max() < 1e-5
    assert vf.verify(vf.IndividualFairness(model=network, schema=schema, protected=["sex"])).status is not vf.Status.UNKNOWN


def test_a_linear_model_of_margins_is_read_behind_a_scaler() -> None:
    frame = X[NUMBERS]
    model = fitted(make_pipeline(StandardScaler(), LinearSVC()), frame)
    with pytest.warns(vf.ImportDifference, match="gives scores, no probabilities; .* fit CalibratedClassifierCV on it"):
        assert vf.read(model, frame).link is Link.IDENTITY


def test_combinations_of_pipelines_that_begin_with_nothing() -> None:
    """They do not say how many columns they take."""
    x, y = X[NUMBERS].to_numpy(), (Y == "good").astype(int)
    linear, tree = (make_pipeline("passthrough", one) for one in (LogisticRegression(), DecisionTreeClassifier(max_depth=3)))
    for model in (CalibratedClassifierCV(linear, cv=2), CalibratedClassifierCV(tree, cv=2, ensemble=False),
                  StackingClassifier([("a", linear)], cv=2), StackingClassifier([("a", tree)], cv=2),
                  VotingClassifier([("a", linear), ("b", linear)], voting="soft"), VotingClassifier([("a", tree), ("b", tree)])):
        network = vf.read(fitted(model, x, y), pd.DataFrame(x))
        assert network.inputs == len(NUMBERS)


@pytest.mark.parametrize("make", [
    lambda: VotingClassifier([("a", mlp()), ("b", DecisionTreeClassifier())], voting="soft"),
    lambda: VotingClassifier([("a", QuadraticDiscriminantAnalysis()), ("b", DecisionTreeClassifier())], voting="soft"),
    lambda: BaggingClassifier(LinearSVC(), 3),
    lambda: StackingClassifier([("a", LogisticRegression())], final_estimator=RandomForestClassifier(3), cv=2),
])  # fmt: skip
def test_other_combinations_are_refused_in_one_line(make: Any) -> None:
    with pytest.raises(ModelError, match=r"combines .* in a way that is not read; fit it on trees alone, or on linear models"):
        vf.read(fitted(make(), X[NUMBERS]), X[NUMBERS])


def stumps(**options: Any) -> VotingClassifier:
    return VotingClassifier([(f"tree{k}", DecisionTreeClassifier(max_depth=1 + k, random_state=k)) for k in range(3)], **options)


@pytest.mark.parametrize(("make", "match"), [
    (lambda: VotingClassifier([("a", LogisticRegression()), ("b", LinearSVC())]), "hard votes .*voting='soft'"),
    (lambda: VotingClassifier([("a", mlp()), ("b", DecisionTreeClassifier())]),
     "trees and other models than linear ones and GaussianNB"),
    (lambda: VotingClassifier([("a", RandomForestClassifier(3)), ("b", LinearSVC())], weights=[0.1, 0.2]), "hard votes by such"),
    (lambda: VotingClassifier([("a", RandomForestClassifier(3)), ("b", LinearSVC()), ("c", LinearSVC())],
                              weights=[4194303 / 1024, 2048, 2048]), "hard votes by such"),     # shares are rounded by more
    (lambda: stumps(weights=[0.1, 0.2, 0.3]), "hard votes .*by whole weights"),  # .1 + .2 > .3, of float64
    (lambda: stumps(weights=[1e8, 1, 1e8]), "hard votes .*by whole weights"),
    # it counts decisions, not votes
    (lambda: BaggingClassifier(stumps(), 3, random_state=0), "sklearn BaggingClassifier: combines hard votes .*voting='soft'"),
    (lambda: AdaBoostClassifier(LogisticRegression(), n_estimators=3), "decisions .*DecisionTreeClassifier"),
    (lambda: AdaBoostClassifier(RandomForestClassifier(3), n_estimators=3), "decisions .*DecisionTreeClassifier"),
    (lambda: VotingClassifier([("a", StackingClassifier([("b", GradientBoostingClassifier(n_estimators=3))], cv=2)),
                               ("c", DecisionTreeClassifier())], voting="soft"), "log-odds of several functions .*; stack or cal"),
    (lambda: StackingClassifier([("a", GradientBoostingClassifier(n_estimators=3))], cv=2, passthrough=True),
     r"trees and columns \(passthrough=True\).*; stack probabilities"),
    (lambda: StackingClassifier([("a", DecisionTreeClassifier()), ("b", LinearSVC())], cv=2),
     "trees and scores of other models .*; stack probabilities"),
    (lambda: CalibratedClassifierCV(BaggingClassifier(HistGradientBoostingClassifier(max_iter=3), 3), cv=2),
     "calibrates .*not read"),
    # such a sum may leave [0, 1]: it is no probability, of which a gap is asked
    (lambda: VotingClassifier([("a", LogisticRegression()), ("b", LinearDiscriminantAnalysis())], voting="soft", weights=[2, -0.5]),
     "negative weights .*0 or more"),
    (lambda: SGDClassifier(loss="modified_huber", random_state=0), "cut off at 0 and 1 .*fit LogisticRegression"),
])  # fmt: skip
def test_what_would_help_is_named_for_each_combination(make: Any, match: str) -> None:
    for model in (make(), make_pipeline(StandardScaler(), make())):
        with pytest.raises(ModelError, match=match) as caught:
            vf.read(fitted(model, X[NUMBERS]), X[NUMBERS])
        assert "\n" not in str(caught.value)


def test_weights_that_are_parts_of_one_another_vote() -> None:
    model = fitted(stumps(weights=[0.5, 0.25, 0.25]), X[NUMBERS])
    network = vf.read(model, X[NUMBERS])
    assert network.link is Link.SHARES
    rows = X[NUMBERS].astype(np.float32)
    decided = decisions(network.forward(rows.to_numpy(dtype=np.float64)))
    assert (np.asarray(model.classes_)[decided] == model.predict(rows)).all()


NESTED: dict[str, Any] = {
    "bagging": lambda: BaggingClassifier(DecisionTreeClassifier(max_depth=3), 5, random_state=0),
    "adaboost": lambda: AdaBoostClassifier(n_estimators=5, random_state=0), "hard": stumps,
    "linear": LogisticRegression, "discriminant": LinearDiscriminantAnalysis,
    "soft": lambda: VotingClassifier([("a", LogisticRegression()), ("b", LinearDiscriminantAnalysis())], voting="soft"),
    "calibrated": lambda: CalibratedClassifierCV(
        make_pipeline(StandardScaler(), make_pipeline(MinMaxScaler(), RandomForestClassifier(3, max_depth=3, random_state=0))),
        ensemble=False, cv=2),
    "calibrated, nothing before": lambda: CalibratedClassifierCV(
        make_pipeline("passthrough", RandomForestClassifier(3, max_depth=3, random_state=0)), ensemble=False, cv=2),
}
AROUND: dict[str, Any] = {
    "pipelines": lambda one: make_pipeline(StandardScaler(), make_pipeline(MinMaxScaler((-1, 1)), one)),
    "nothing": lambda one: make_pipeline("passthrough", make_pipeline(one)),
    "search": lambda one: make_pipeline(StandardScaler(), GridSearchCV(make_pipeline(MinMaxScaler(), one), {}, cv=2)),
    "frozen": lambda one: FrozenEstimator(fitted(make_pipeline(StandardScaler(), one), X[NUMBERS])),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", NESTED)
def test_pipelines_within_others_keep_all_their_steps(name: str, around: str) -> None:
    model = fitted(AROUND[around](NESTED[name]()), X[NUMBERS])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows on thresholds, behind a scaler: the draws below are not
        network = vf.read(model, X[NUMBERS])
    rows = pd.DataFrame(np.random.default_rng(1).uniform([10, -2], [60, 2], size=(500, 2)), columns=NUMBERS).astype(np.float32)
    decided = decisions(network.forward(rows.to_numpy(dtype=np.float64)))
    assert (np.asarray(model.classes_)[decided] == model.predict(rows)).mean() > 0.995


@pytest.mark.parametrize("labels", [[0, 1], [-1, 1], ["bad", "good"]])
def test_hard_votes_of_a_search_are_compared_as_votes(labels: list[Any]) -> None:
    y = np.asarray(labels)[(Y == "good").astype(int)]
    within = make_pipeline("passthrough", make_pipeline(stumps()))
    for model in (GridSearchCV(stumps(), {"tree0__max_depth": [1, 2]}, cv=2), within):
        assert vf.read(fitted(model, X[NUMBERS], y), X[NUMBERS]).link is Link.SHARES  # a warning would be an error


def test_members_that_were_fitted_on_arrays_are_not_mixed_with_columns_of_a_table() -> None:
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    one = FrozenEstimator(fitted(LogisticRegression(), frame.to_numpy(), y))
    on_array = VotingClassifier([("a", one), ("b", LinearDiscriminantAnalysis())], voting="soft")
    whole = np.random.default_rng(0).integers(0, 4, size=(200, 3))
    by_place = make_pipeline(make_column_transformer((OneHotEncoder(), [2]), remainder="passthrough"), LogisticRegression())
    both = VotingClassifier([("a", by_place), ("b", LogisticRegression())], voting="soft")
    for model, table in ((fitted(on_array, frame, y), frame), (fitted(both, whole, whole[:, 0] > 1), pd.DataFrame(whole))):
        for given in (table, None):
            with pytest.raises(ModelError, match=r"fitted on an array .*; fit all of them on a table"):
                vf.read(model, given)


@pytest.mark.parametrize("weights", [None, [1, 3], np.array([1, 3])])
@pytest.mark.parametrize("dropped", [True, False])
def test_regressors_vote_by_weights_of_any_kind(weights: Any, dropped: bool) -> None:
    listed = [("a", Ridge()), ("b", LinearRegression()), *([("c", "drop")] if dropped else [])]
    weights = weights if weights is None or not dropped else [*weights, 7]
    model = VotingRegressor(listed, weights=weights).fit(X[NUMBERS], X["label"] * 3 + X["hours-per-week"])
    network = vf.read(model, X[NUMBERS])
    np.testing.assert_allclose(network.forward(X[NUMBERS].to_numpy())[:, 0], model.predict(X[NUMBERS]), rtol=1e-5)


def test_marks_of_missing_values_in_a_union_are_zeros() -> None:
    table = X[NUMBERS].copy()
    table.iloc[::7, 1] = np.nan
    union = make_union(SimpleImputer(add_indicator=True), SimpleImputer(strategy="median"))
    model = fitted(make_pipeline(union, StandardScaler(), LogisticRegression()), table)
    with pytest.warns(vf.ImportDifference, match="marks missing values"):
        network = vf.read(model, X[NUMBERS])
    shown = runtime_outputs(network, X[NUMBERS].to_numpy(dtype=np.float32))[:, -1]
    np.testing.assert_allclose(shown, said(model, X[NUMBERS]), atol=1e-5)


@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
@pytest.mark.parametrize(("make", "match"), [
    (lambda: make_pipeline(SimpleImputer(), RandomForestClassifier(3)), "drops columns that had no values .*keep_empty_features"),
    (lambda: make_pipeline(SimpleImputer(add_indicator=True), LogisticRegression()), "drops columns .*keep_empty_features"),
    (lambda: make_pipeline(
        make_column_transformer((make_pipeline(SimpleImputer(strategy="most_frequent", add_indicator=True), OneHotEncoder()),
                                 ["sex"]), ("passthrough", ["label"])), LogisticRegression()), "marks missing words"),
])  # fmt: skip
def test_imputers_that_change_the_columns_are_refused(make: Any, match: str) -> None:
    table = X[["hours-per-week", "label"]].assign(**{"hours-per-week": np.nan})
    if match == "marks missing words":
        table = X.assign(sex=X["sex"].where(np.arange(len(X)) % 9 > 0, np.nan))
    with pytest.raises(ModelError, match=match):
        vf.read(fitted(make(), table), table)


@pytest.mark.filterwarnings("ignore:.*gives scores, no probabilities")
@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_a_threshold_that_the_conversion_leaves_out_is_refused_with_the_one_to_write(within: str, threshold: str) -> None:
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    model = fitted(THRESHOLDS[threshold](WITHIN[within]()), frame, y)
    with pytest.raises(ModelError, match="decides by a threshold of its own") as caught:
        vf.read(model, frame)
    best = getattr(model, "best_estimator_", model)
    network = vf.read(best.estimator_, frame)
    (rule,) = re.findall(r'positive = "(.*)"', str(caught.value))
    schema = vf.Schema.infer(frame.assign(y=y), target="y", model=network, positive=rule)
    favoured = 0 if threshold == "of the first class" else 1
    assert schema.positive_label == str(favoured)
    said = best.predict(frame) == favoured
    assert 0 < said.mean() < 1
    assert positive(network, schema, schema.raw(frame)).tolist() == said.tolist()


def test_a_threshold_that_an_object_was_given_later_is_seen() -> None:
    catboost = pytest.importorskip("catboost")
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    model = fitted(catboost.CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False), frame, y)
    assert isinstance(vf.read(model, frame), TreeEnsemble)
    model.set_probability_threshold(0.2)
    with pytest.raises(ModelError, match="rows of the table otherwise than its own probabilities, by a threshold"):
        vf.read(model, frame)


@pytest.mark.parametrize("rule", ["value >= 0.3", "logit >= -1.5", "logit < 0.6"])
def test_log_odds_are_no_threshold_of_votes(rule: str) -> None:
    frame, y = X[NUMBERS], (Y == "good").astype(int)
    forest = fitted(WITHIN["forest"](), frame, y)
    with pytest.raises(SchemaError, match=r"the probability less 1/2|votes or a mean, less 1/2; .* between -0\.5 and 0\.5"):
        vf.Schema.infer(frame.assign(y=y), target="y", model=forest, positive=rule)


@pytest.mark.parametrize("named", [True, False])
def test_below_a_threshold_the_favourable_label_is_that_of_the_first_class(named: bool) -> None:
    frame, y = X[NUMBERS], Y if named else (Y == "good").astype(int)
    model = vf.read(fitted(LogisticRegression(), frame, y), frame)
    for rule, label in (("logit < -0.5", "bad"), ("logit <= 0.5", "bad"), ("logit >= 0.5", "good"), ("logit > -0.5", "good")):
        schema = vf.Schema.infer(frame.assign(y=y), target="y", model=model, positive=rule)
        assert schema.positive_label == (label if named else str(["bad", "good"].index(label)))
        schema.check_network(model)


@pytest.mark.parametrize("wanted", [None, True, False, "class = 1", "class = 0"])
def test_truth_values_as_labels_are_the_classes_0_and_1(wanted: Any) -> None:
    """However badly the model predicts them: here it says the opposite of most labels."""
    frame, y = X[NUMBERS], Y == "good"
    model = fitted(LogisticRegression(), frame, ~y)
    schema = vf.Schema.infer(frame.assign(y=y), target="y", model=model, positive=wanted)
    favoured = wanted not in (False, "class = 0")
    assert schema.positive_label == str(favoured)
    network = vf.read(model, frame)
    assert positive(network, schema, schema.raw(frame)).tolist() == (model.predict(frame) == favoured).tolist()
    with pytest.raises(SchemaError, match="classes are False, True, in this order"):
        schema.changed(positive_label=str(not favoured)).check_network(network)


@pytest.mark.parametrize("labels", [("0", "1"), ("False", "True"), (0, 1)])
def test_a_model_without_names_that_predicts_badly_is_not_turned_round(labels: tuple[Any, Any]) -> None:
    """Class 1 is label 1; where nearly all predictions say the opposite, the labels are."""
    torch = pytest.importorskip("torch")
    frame = pd.DataFrame({"a": np.arange(100) / 99, "b": np.arange(100) % 2.0})

    def drafted(weight: float, bias: float, wanted: Any) -> tuple[str, str | None]:
        model = torch.nn.Sequential(torch.nn.Linear(2, 1))
        with torch.no_grad():
            model[0].weight[:], model[0].bias[:] = torch.tensor([[weight, 0.0]]), bias
        y = np.where(frame["a"] > 0.3, labels[1], labels[0])
        schema = vf.Schema.infer(frame.assign(y=y), target="y", model=model, positive=wanted)
        return schema.positive, schema.positive_label

    lower, upper = map(str, labels)
    for wanted, said in ((None, ("logit > 0", upper)), (labels[1], ("logit > 0", upper)), (labels[0], ("class = 0", lower))):
        assert drafted(1.0, -0.9, wanted) == said  # right of 40 in 100
    assert drafted(-1.0, 0.3, None) == ("logit > 0", lower)  # right of none
    assert drafted(-1.0, 0.3, labels[1]) == ("class = 0", upper)
    assert drafted(-1.0, 0.3, labels[0]) == ("logit > 0", lower)
