"""The package of an object, and names for messages and exporters, from its class alone: no package is imported for it."""

from __future__ import annotations

import copy
import re
from typing import Any

from encoders.errors import ModelError
from verifair.errors import QueryError

ANOTHER_WAY = "convert it to ONNX in another way, and pass the file"
"""Remedy if a conversion fails, or gives another model."""
BOOSTING = ("xgboost", "lightgbm", "catboost")
PACKAGES = ("torch", *BOOSTING, "interpret", "sklearn")
COMBINED = ("AdaBoostClassifier", "BaggingClassifier", "BaggingRegressor", "CalibratedClassifierCV", "StackingClassifier",
            "StackingRegressor", "VotingClassifier", "VotingRegressor")
"""Estimators that are made of others."""
OBJECTIVES = {
    "(?i)poisson|gamma|tweedie|survival:":
        "gives exponentials of sums of trees; fit it on the values' logarithm, and ask about that",
    "reg:logistic": "gives probabilities as values; fit XGBClassifier",
    "binary:hinge": "gives decisions without probabilities; fit it with the objective 'binary:logistic'",
    "exponential": "gives another function of a sum of trees than is converted; fit it with loss='log_loss'",
}
"""Pattern of a boosted model's objective -> what the model gives, and the remedy."""
STEPS = ("steps", "transformers_", "transformer_list")
"""Where Pipeline, ColumnTransformer and FeatureUnion list what they are made of, with a name first."""


def package_of(model: Any) -> str | None:
    """Return the known package of an object's class, or of its nearest base class of a known package; None without one."""
    return next((root for root in map(_root, type(model).__mro__) if root in PACKAGES), None)


def own_of_sklearn(model: Any) -> bool:
    """Return True if an object's class is one of scikit-learn's own: derived classes may predict differently."""
    return _root(type(model)) == "sklearn"


def own_of_boosting(model: Any) -> bool:
    """Return the same for boosting libraries."""
    return _root(type(model)) in BOOSTING


def called(model: Any) -> str:
    """Return an object's name for messages."""
    kind = type(model)
    return f"{_root(kind)} {kind.__name__}" if _root(kind) in PACKAGES else kind.__name__


def check_decides(model: Any, positive: Any) -> None:
    """Raise QueryError for an estimator that outputs values if `positive` names no threshold of these."""
    if isinstance(positive, str) and positive.strip().startswith("value"):
        return
    if regresses(model):
        raise QueryError(
            f"model: {called(model)} gives values, and decisions are asked about; say which values are favourable, such as "
            'positive="value >= 600", or fit a classifier'
        )


def regresses(model: Any) -> bool:
    """Return True if an object is an estimator that outputs values."""
    if package_of(model) in (None, "torch") or not hasattr(model, "get_params"):
        return False
    from sklearn.base import is_regressor

    return bool(is_regressor(model))


def check_classes(model: Any) -> None:
    """Raise QueryError for a classifier that was fitted on rows of one class."""
    classes = getattr(model, "classes_", None)
    if classes is not None and len(classes) == 1:
        reason = f"{called(model)} was fitted on rows of one class, {classes[0]!s}"
        raise QueryError(f"model: {reason}: it decides nothing; fit it on rows of two classes or more")


def not_fitted(model: Any) -> QueryError:
    """Return the error about an object that was not fitted."""
    return QueryError(f"model: this {called(model)} is not fitted; fit it first, and pass the fitted object")


def check_objective(model: Any, objective: str) -> None:
    """Raise ModelError for boosted trees that give another function of their sum than a logistic one, by the objective (loss) that
    they were fitted with: conversions leave the function out, or write it in a way that is not read."""
    found = next((reason for pattern, reason in OBJECTIVES.items() if re.search(pattern, objective)), None)
    if found is not None:
        raise ModelError(called(model), f"was fitted with {objective!r}, and {found}")


def check_rows(frame: Any) -> None:
    """Raise QueryError for comparison rows that are no table, or whose columns have no names."""
    if not hasattr(frame, "iloc") or getattr(frame, "ndim", 0) != 2:
        raise QueryError(f"frame: found {type(frame).__name__}; expected a pandas DataFrame of the rows that the model takes")
    if frame.columns.has_duplicates:
        duplicate = frame.columns[frame.columns.duplicated()][0]
        raise QueryError(f"frame: has several columns {str(duplicate)!r}; give each its own name")


def thawed(model: Any) -> Any:
    """Return the estimator in a FrozenEstimator, or the best one of a search; any other object unchanged."""
    while type(model).__name__ == "FrozenEstimator" or hasattr(model, "best_estimator_"):
        model = model.estimator if type(model).__name__ == "FrozenEstimator" else model.best_estimator_
    return model


def flat(model: Any) -> Any:
    """Return an estimator thawed; a pipeline without nested pipelines and without steps that do nothing; recursive feature
    elimination (RFE) as a choice of columns, followed by the estimator fitted on these."""
    model = thawed(model)
    if _eliminates(model):
        from sklearn.pipeline import Pipeline

        model = Pipeline([("chosen", _choice(model)), ("fitted", model.estimator_)])
    if not hasattr(model, "steps"):
        return model
    steps: list[tuple[str, Any]] = []
    for k, (name, step) in enumerate(model.steps):
        if step not in (None, "passthrough") and not (type(step).__name__ == "FunctionTransformer" and step.func is None):
            fitted = _choice(step) if _eliminates(step) and k + 1 < len(model.steps) else flat(step)
            steps += [(f"{name}__{inner}", part) for inner, part in fitted.steps] if hasattr(fitted, "steps") else [(name, fitted)]
    if not steps:
        return model
    return steps[0][1] if len(steps) == 1 else with_steps(model, steps)


def _eliminates(model: Any) -> bool:
    return type(model).__name__ in ("RFE", "RFECV") and hasattr(model, "support_")


def _choice(elimination: Any) -> Any:
    """Return a step that selects the columns left by an elimination, as converters would treat the elimination as a classifier."""
    from sklearn.feature_selection import SelectKBest

    chosen = SelectKBest(k=int(elimination.support_.sum()))
    chosen.scores_, chosen.n_features_in_ = elimination.support_.astype(float), elimination.n_features_in_
    if hasattr(elimination, "feature_names_in_"):
        chosen.feature_names_in_ = elimination.feature_names_in_
    return chosen


def with_steps(pipeline: Any, steps: list[tuple[str, Any]]) -> Any:
    """Return a fitted pipeline with other fitted steps."""
    pipeline = copy.copy(pipeline)
    pipeline.steps = steps
    return pipeline


def last_of(model: Any) -> Any:
    """Return the estimator that predicts: the last one of a pipeline, or of those within one another."""
    model = thawed(model)
    return last_of(model.steps[-1][1]) if hasattr(model, "steps") else model


def parts(model: Any) -> list[Any]:
    """Return an estimator and all that it is made of."""
    components = [entry[1] for name in STEPS for entry in getattr(model, name, ())] + members(model)
    return [model, *(part for component in components if not isinstance(component, str) for part in parts(thawed(component)))]


def members(model: Any) -> list[Any]:
    """Return the estimators that a combination is made of; none of another one."""
    if type(model).__name__ not in COMBINED:
        return []
    return [calibrated.estimator for calibrated in getattr(model, "calibrated_classifiers_", ())] or list(model.estimators_)


def gives_sparse(step: Any, sparse: bool = False) -> bool:
    """Return whether a transformer gives a sparse matrix.   sparse: whether it takes one, which most hand on."""
    if hasattr(step, "steps"):
        for _, inner in step.steps:
            sparse = gives_sparse(inner, sparse)
        return sparse
    if hasattr(step, "transformer_list"):
        return any(gives_sparse(inner, sparse) for _, inner in step.transformer_list)
    if hasattr(step, "components_"):
        return False
    return bool(getattr(step, "sparse_output_", getattr(step, "sparse_output", sparse or getattr(step, "encode", "") == "onehot")))


def width_of(model: Any) -> int:
    """Return the number of an estimator's input columns. Combinations of pipelines that begin with "passthrough" do not store
    it."""
    count = getattr(model, "n_features_in_", None)
    if count is not None:
        return int(count)
    parts = [calibrated.estimator for calibrated in getattr(model, "calibrated_classifiers_", ())] or model.estimators_
    return width_of(flat(parts[0]))


def labels_of(model: Any) -> list[str | int]:
    """Return the labels of a classifier as ONNX writes them, words or whole numbers. Raises ModelError for others."""
    labels: list[Any] = model.classes_.tolist()
    if all(isinstance(label, str) for label in labels):
        return labels
    if all(isinstance(label, bool | int | float) and label == int(label) for label in labels):
        return [int(label) for label in labels]
    raise ModelError(called(model), f"has the labels {', '.join(map(str, labels[:3]))}; fit it on whole numbers, or words")


def exported(name: str) -> str:
    """Return a column's name as exporters write it: skl2onnx replaces every character but letters, digits and _ by _."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _root(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]
