"""Messages about estimators of scikit-learn that cannot be read after any conversion: one line, in place of the failing node."""

from __future__ import annotations

from typing import Any

from encoders.errors import ModelError
from verifair.models.objects import called, package_of, parts

_DISTANCES = "compares each row with rows that it was fitted on; fit LogisticRegression, LinearSVC, MLPClassifier or trees"
_BENT = "bends a column by a curve that is not read; fit StandardScaler or MinMaxScaler, or trees on the column as it is"
_FUNCTION = "applies a function that is not read; fit StandardScaler or MinMaxScaler, or put the result into the table"
_LOG_LINK = "gives exponentials of a sum; fit Ridge on the logarithm of the values, and ask about that"
_EACH = "combines a classifier for each class, or pair of classes; fit LogisticRegression or trees, which take several classes"
_MISSING = "fills in values from other columns; fit it on rows that have all their values, or use SimpleImputer"
_BLIND = "answers without reading a column: alone it needs no proof, and within another model it is not read; fit that without it"
REASONS = {
    **dict.fromkeys(("KNeighborsClassifier", "KNeighborsRegressor", "RadiusNeighborsClassifier", "RadiusNeighborsRegressor", "SVC",
                     "SVR", "NuSVC", "NuSVR", "GaussianProcessClassifier", "GaussianProcessRegressor"), _DISTANCES),
    **dict.fromkeys(("PowerTransformer", "QuantileTransformer", "SplineTransformer"), _BENT),
    "FunctionTransformer": _FUNCTION,
    **dict.fromkeys(("PoissonRegressor", "GammaRegressor", "TweedieRegressor"), _LOG_LINK),
    **dict.fromkeys(("OneVsRestClassifier", "OneVsOneClassifier", "OutputCodeClassifier"), _EACH),
    **dict.fromkeys(("KNNImputer", "IterativeImputer"), _MISSING),
    "Normalizer": "divides each row by its own length, which is not piecewise linear; fit StandardScaler or MinMaxScaler",
    "AdaBoostRegressor": "gives a weighted median of trees, no sum; fit GradientBoostingRegressor or RandomForestRegressor",
    "MultiOutputClassifier": "decides several labels, each by a classifier of its own; pass one of its estimators_",
    **dict.fromkeys(("DummyClassifier", "DummyRegressor"), _BLIND),
    "BernoulliNB": "asks whether a column is above a number, and a network has no jumps; fit trees, or LogisticRegression",
    "IsolationForest": "gives the depths of leaves, and no decisions about people; fit RandomForestClassifier on labels",
    "TransformedTargetRegressor": "transforms values back; pass the regressor_ within, and ask about the values that it gives",
}
"""Name of a class -> what it does, and the remedy."""


def better(model: Any, error: ModelError) -> ModelError:
    """Return an error that names the unreadable part of an estimator, and the remedy; for other models the given error."""
    if package_of(model) != "sklearn":
        return error
    explained = (part for part in parts(model) if package_of(part) == "sklearn" and type(part).__name__ in REASONS)
    # "passthrough" is a FunctionTransformer without a function
    candidates = (part for part in explained if type(part).__name__ != "FunctionTransformer" or part.func is not None)
    refused = next(candidates, None)
    return error if refused is None else ModelError(called(refused), REASONS[type(refused).__name__])
