"""scikit-learn estimators and pipelines as ONNX, by skl2onnx."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import compose

from encoders.errors import ModelError
from encoders.model import Link
from encoders.onnx.reader import read_model
from verifair.errors import QueryError
from verifair.models import columns
from verifair.models.columns import OPSETS
from verifair.models.converters import (
    additive,
    boosting,
    discriminants,
    forests,
    histograms,
    missing,
    mixtures,
    polynomials,
    scalers,
)
from verifair.models.objects import (
    COMBINED,
    called,
    check_objective,
    flat,
    gives_sparse,
    last_of,
    members,
    not_fitted,
    package_of,
    parts,
    thawed,
    width_of,
    with_steps,
)

TREES = ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees", "GradientBoosting", "HistGradientBoosting")
"""Estimators of scikit-learn that are trees, or sums of them, without Classifier or Regressor."""


def convert(model: Any, width: int | None = None) -> onnx.ModelProto:
    """Return a fitted estimator as ONNX: numbers are float32 inputs, words are text. The searches of scikit-learn give their best.

    Raises QueryError for an estimator that was not fitted, ImportError without skl2onnx.
    """
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    model = flat(model)
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise not_fitted(model) from None
    except TypeError:
        raise QueryError(f"model: {called(model)} is no estimator; pass a fitted classifier, regressor or pipeline") from None
    _check_columns(model)
    model = missing.in_words(missing.for_whole_rows(histograms.converted(_as_logistic(model))))
    last = last_of(model)
    if not hasattr(last, "predict"):
        raise QueryError(f"model: {called(model)} predicts nothing; pass a classifier, a regressor, or a pipeline to one")
    steps = "" if last is model else "a Pipeline of the steps before it and "
    _check_threshold(last, steps)
    _check_loss(last)
    if package_of(last) == "interpret":
        encoder, trees = additive.explainable(last, standalone=last is model)
        return _joined(_converted(model[:-1] if encoder is None else encoder, {}), trees)
    if package_of(last) != "sklearn":
        known = columns.names_of(model)
        model = boosting.without_scalers(_taking_zeros(model))
        last = last_of(model)
        return _ending_in(model, last, lambda names: boosting.convert(last, None, names=known if last is model else names))
    if type(last).__name__ in COMBINED or discriminants.quadratic(last):
        return _combined(model, steps)
    if (bins := _bins(model)) is not None:
        if (binned := additive.behind_bins(model)) is not None:
            encoder, trees = binned
            return columns.by_column(trees, columns.names_of(model)) if encoder is None else _joined(_converted(encoder, {}), trees)
        remedy = "fit LogisticRegression on columns that are all binned or encoded (OneHotEncoder), or trees on columns as they are"
        raise ModelError(called(bins), f"makes steps of a column, which no network does; {remedy}")
    options = {"zipmap": False} if hasattr(last, "predict_proba") else {}  # none, so that skl2onnx adds no zipmap of its own
    own_options = {id(last): options} if hasattr(last, "classes_") else {}
    if scales(model) and re.sub("(Classifier|Regressor)$", "", type(last).__name__) in TREES and not columns.names_of(last):
        onnx_model = _ending_in(model, last, lambda names: _converted(last, own_options))
    else:
        onnx_model = _converted(model, own_options)
    if type(last).__name__ == "GradientBoostingClassifier" and len(last.classes_) == 2:
        _raise_zero(onnx_model)
    return onnx_model


def _raise_zero(model: onnx.ModelProto) -> None:
    """Put the base of trees above 0 where it is 0: the object decides for the second class at a score of 0, ONNX for the first."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "base_values" and list(attribute.floats) == [0.0]:
                attribute.floats[0] = mixtures.CLOSEST


def _combined(model: Any, steps: str) -> onnx.ModelProto:
    """Return a pipeline that ends in a combination of estimators as ONNX; of values that are no sum of trees as skl2onnx converts
    them. Raises ModelError for classifiers that are neither sums of trees nor combinations of linear models and MLPs."""
    model = _taking_zeros(_calibrating_last(model))
    last = last_of(model)
    trees = forests.convert(last)
    if trees is not None:
        return _ending_in(model, last, lambda names: columns.by_column(trees, names))
    sets = next((part for part in parts(last) if histograms.categories(part)), None)
    if sets is not None and not hasattr(last, "calibrated_classifiers_"):
        reason = "asks about sets of categories, which are read of it alone, and not within another estimator"
        raise ModelError(called(sets), f"{reason}; fit it behind an encoder with categorical_features=None")
    if not hasattr(last, "classes_"):
        return _converted(_by_array(model, last), {})
    error, bins = mixtures.Unknown(f"{len(last.classes_)} classes"), _bins(model)
    if bins is not None:
        error = mixtures.Unknown(f"estimators behind {called(bins)}", "fit it on trees, which find the steps themselves")
    try:
        if (len(last.classes_) == 2 or discriminants.quadratic(last)) and bins is None:
            return _mixed(model, last)
    except mixtures.Unknown as unknown:
        error = unknown
    if hasattr(last, "calibrated_classifiers_"):
        _check_calibration(last, steps)
    raise ModelError(called(last), f"combines {error} in a way that is not read; {error.remedy}")


def _mixed(model: Any, last: Any) -> onnx.ModelProto:
    """Return a pipeline that ends in a mixture of estimators as ONNX. Raises `mixtures.Unknown` for others."""
    convert = partial(mixtures.convert, convert_steps=lambda part: _converted(part, {}))
    if last is not model and scales(model[:-1]) and not columns.names_of(last):
        mixture = convert(last)
        if (without := scalers.folded(model[:-1], mixture)) is not None:
            return _after(*without, columns.names_of(model))
    return convert(model)


def _bins(model: Any) -> Any:
    """Return a part of an estimator that makes steps of columns; None without one."""
    return next((part for part in parts(model) if type(part).__name__ in additive.BINS), None)


def _by_array(model: Any, last: Any) -> Any:
    """Return a pipeline whose last estimator votes by weights as skl2onnx takes them: an array, of estimators that were fitted."""
    if getattr(last, "weights", None) is None:
        return model
    voting = copy.copy(last)
    voting.weights = np.asarray(last._weights_not_none, dtype=np.float64)
    return voting if last is model else with_steps(model, [*model.steps[:-1], ("voting", voting)])


def _calibrating_last(model: Any) -> Any:
    """Return a calibrated pipeline as a pipeline that ends in the calibrated estimator, where it was fitted once."""
    last: Any = last_of(model)
    folds: list[Any] = getattr(last, "calibrated_classifiers_", [])
    if len(folds) != 1:
        return model
    estimator: Any = flat(folds[0].estimator)
    steps = [*getattr(model, "steps", [])[:-1], *getattr(estimator, "steps", [])[:-1]]
    last, fold = copy.copy(last), copy.copy(folds[0])
    fold.estimator, last.calibrated_classifiers_ = last_of(estimator), [fold]
    last.n_features_in_ = width_of(fold.estimator)
    return with_steps(estimator if hasattr(estimator, "steps") else model, [*steps, ("calibrated", last)]) if steps else last


def _check_loss(last: Any) -> None:
    """Raise ModelError for a model whose outputs are another function of its scores than is converted."""
    if "GradientBoosting" in type(last).__name__:
        check_objective(last, last.loss)
    if type(last).__name__ == "SGDClassifier" and last.loss == "modified_huber":
        reason = "its probabilities are scores that are cut off at 0 and 1 (loss='modified_huber')"
        raise ModelError(called(last), f"{reason}, no logistic function; fit LogisticRegression")


def _check_threshold(last: Any, steps: str) -> None:
    """Raise ModelError for an estimator that decides by a threshold of its own, with the rule by which the estimator within decides
    alike: conversions hold no threshold. steps: that go before it."""
    threshold = getattr(last, "best_threshold_", getattr(last, "threshold", None))
    if threshold is None or not hasattr(last, "estimator_") or not hasattr(last, "response_method"):
        return
    by_score = last.response_method == "decision_function" or not hasattr(last_of(last.estimator_), "predict_proba")
    cutoff = (0.0 if by_score else 0.5) if threshold == "auto" else float(threshold)
    logit = _logit(last.estimator_, cutoff, by_score=by_score)
    positive_label = last._curve_scorer._get_pos_label() if hasattr(last, "_curve_scorer") else last.pos_label
    rule = f"logit <= {-logit!r}" if positive_label is not None and positive_label == last.classes_[0] else f"logit >= {logit!r}"
    quantity = "a score" if by_score else "a probability"
    reason = f"decides by a threshold of its own, {quantity} of {cutoff:g}, which its conversion would leave out"
    raise ModelError(called(last), f'{reason}; pass {steps}its estimator_, and positive = "{rule}"')


def _check_calibration(last: Any, steps: str) -> None:
    """Raise ModelError for calibrated probabilities; of a single estimator within and two classes with the rule."""
    reason = "calibrates probabilities in a way that is not read"
    crossing = _crossing(last.calibrated_classifiers_[0].calibrators[0]) if len(last.classes_) == 2 else None
    if len(last.calibrated_classifiers_) > 1 or crossing is None:
        # each has fitted steps of its own; scorecards belong to theirs
        has_steps = any(hasattr(fold.estimator, "steps") and _bins(fold.estimator) is None for fold in last.calibrated_classifiers_)
        remedy = "behind the steps, as in make_pipeline(steps, CalibratedClassifierCV(...)), or " if has_steps else ""
        remedy += "with ensemble=False on two classes, or pass what it calibrates, which decides otherwise"
        raise ModelError(called(last), f"{reason}; fit it {remedy}")
    (calibrated,) = last.calibrated_classifiers_
    is_frozen = type(calibrated.estimator).__name__ == "FrozenEstimator"
    logit = _logit(calibrated.estimator, crossing[1], by_score=hasattr(last_of(calibrated.estimator), "decision_function"))
    location = "calibrated_classifiers_[0].estimator" + (".estimator" if is_frozen else "")
    rule = f"logit {crossing[0]} {logit!r}"
    raise ModelError(called(last), f'{reason}; it decides as {steps}its {location} does by positive = "{rule}"')


def _crossing(curve: Any) -> tuple[str, float] | None:
    """Return on which side of which score a calibration gives more than 1/2; None where on none, or on all, or of another one."""
    if hasattr(curve, "a_"):    # the probability is 1 / (1 + exp(a f + b)) for the score f
        return ">" if curve.a_ < 0 else "<", float(-curve.b_ / curve.a_)
    if not hasattr(curve, "X_thresholds_"):
        return None
    x, y = (np.asarray(values, dtype=np.float64) for values in (curve.X_thresholds_, curve.y_thresholds_))
    last = int((y <= 0.5).sum()) - 1
    return None if last in (-1, len(y) - 1) else (">", float(np.interp(0.5, y[last : last + 2], x[last : last + 2])))


def _logit(model: Any, cut: float, *, by_score: bool) -> float:
    """Return the logit of an estimator's converted model where its score, or its probability, is `cut`. Raises ModelError for an
    estimator that is not read, and for scores of which that says nothing."""
    shares = read_model(convert(model), name=called(model)).link is Link.SHARES
    if by_score:
        if shares:
            raise ModelError(called(model), "shows a mean of probabilities, and a threshold of its scores says nothing about that")
        return cut
    return cut - 0.5 if shares else float(np.log(cut / (1 - cut))) if 0 < cut < 1 else float(np.copysign(np.inf, cut - 0.5))


def _as_logistic(model: Any) -> Any:
    """Return a linear discriminant analysis, also at the end of a pipeline, as the logistic regression that gives the same
    probabilities: skl2onnx converts it to another model."""
    if hasattr(model, "steps"):
        last = _as_logistic(model[-1])
        return model if last is model[-1] else with_steps(model, [*model.steps[:-1], ("last", last)])
    if type(model).__name__ != "LinearDiscriminantAnalysis" or not hasattr(model, "coef_"):
        return model
    from sklearn.linear_model import LogisticRegression

    logistic = LogisticRegression()
    for name in ("coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(logistic, name, getattr(model, name))
    return logistic


def _check_columns(model: Any) -> None:
    """Raise ModelError for steps that change the columns in a way that conversions leave out."""
    for part in parts(model):
        if type(part).__name__ == "MaxAbsScaler" and getattr(part, "clip", False):
            reason = "cuts values off (clip=True), which its conversion does not"
            raise ModelError(called(part), f"{reason}; fit MinMaxScaler(clip=True)")
        for name, _, selection in getattr(part, "transformers_", ()):
            if np.asarray(selection).dtype == bool:
                reason = f"chooses columns by a mask ({name}), which its conversion takes for places"
                raise ModelError(called(part), f"{reason}; list their names, and fit it again")
        for name, indices in getattr(part, "_transformer_to_input_indices", {}).items():
            order = [int(k) for k in indices]
            if not columns.names_of(part) and order != sorted(order) and len(order) == part.n_features_in_:
                reason = f"takes all columns in another order ({name}), and its conversion in theirs"
                raise ModelError(called(part), f"{reason}; list them in the table's order, or fit it on a table with names")
        missing_code = getattr(part, "encoded_missing_value", 0)
        if missing_code != missing_code and any(categories[-1] != categories[-1] for categories in part.categories_):
            reason = "leaves missing values without a number, and its conversion numbers them like a category"
            raise ModelError(called(part), f"{reason}; fit it with encoded_missing_value=-1, or use OneHotEncoder")
        if not hasattr(part, "statistics_"):
            continue
        if missing.fills_words(part) and part.add_indicator:
            reason = "marks missing words, which become categories of an encoder"
            raise ModelError(called(part), f"{reason}; fit it with add_indicator=False, or with a word of its own for missing ones")
        if not part.keep_empty_features and any(map(missing.absent, part.statistics_.tolist())):
            reason = "drops columns that had no values when it was fitted, and its conversion does not"
            raise ModelError(called(part), f"{reason}; leave these columns out, or fit it with keep_empty_features=True")


def scales(model: Any) -> bool:
    """Return whether an estimator has a scaler in it: it computes in float64, and its conversion in float32."""
    return any(type(part).__name__.endswith("Scaler") for part in parts(thawed(model)))


def _taking_zeros(model: Any) -> Any:
    """Return a model in which XGBoost models take 0 for a missing value where they are given a sparse matrix."""
    estimators = parts(model)
    if not any(package_of(estimator) == "xgboost" for estimator in estimators) or not any(map(gives_sparse, estimators)):
        return model
    model = copy.deepcopy(model)

    def walk(estimator: Any, sparse: bool) -> None:
        estimator = thawed(estimator)
        if hasattr(estimator, "steps"):
            walk(estimator.steps[-1][1], gives_sparse(estimator[:-1], sparse))
        for member in members(estimator):
            walk(member, sparse)
        if sparse and package_of(estimator) == "xgboost" and estimator.missing != estimator.missing:
            estimator.missing = 0.0  # another number would be missing as well, which no converter knows

    walk(model, False)
    return model


def _converted(model: Any, options: dict[int, Any]) -> onnx.ModelProto:
    """Return an estimator of scikit-learn's own as ONNX."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
    from sklearn.preprocessing import PolynomialFeatures

    convert = partial(
        convert_sklearn, model, "model", options=options, target_opset=OPSETS,
        custom_conversion_functions={PolynomialFeatures: polynomials.write},
    )
    count, names = width_of(model), columns.names_of(model)
    column_kinds = kinds(model, count)
    types = {"number": FloatTensorType, "integer": Int64TensorType, "text": StringTensorType}
    by_name = _selects(model) and bool(names)
    if set(column_kinds) <= {"number"} and not by_name:
        onnx_model = convert([("X", FloatTensorType([None, count]))])
        onnx_model.graph.name = "model"
        return columns.by_column(onnx_model, names)
    names = names or tuple(f"x{k}" for k in range(count))
    initial = [(name, types[kind]([None, 1])) for name, kind in zip(names, column_kinds, strict=True)]
    onnx_model = convert(initial)
    onnx_model.graph.name = "model"  # the converter draws one at random
    return columns.renamed(onnx_model, names)


def _ending_in(model: Any, last: Any, convert: Callable[[Sequence[str]], onnx.ModelProto]) -> onnx.ModelProto:
    """Return a pipeline as ONNX that ends in a model which `convert` makes, of columns with these names, or of one matrix."""
    if last is model:
        return convert(columns.names_of(model))
    trees = convert(())
    before, trees = scalers.folded(model[:-1], trees) or (model[:-1], trees)
    return _after(before, trees, columns.names_of(model))


def _after(before: Any, model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model of the matrix that steps give, None for no steps, as one of the columns with these names."""
    return columns.by_column(model, names) if before is None else _joined(_converted(before, {}), model)


def _joined(first: onnx.ModelProto, second: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that gives a matrix and one that takes it as one model."""
    for model in (first, second):
        model.ir_version = max(first.ir_version, second.ir_version)
        opsets = {o.domain: o.version for o in model.opset_import}
        del model.opset_import[:]
        model.opset_import.extend(onnx.helper.make_opsetid(domain, max(opsets.get(domain, 1), OPSETS[domain])) for domain in OPSETS)
    second = compose.add_prefix(second, "last/")
    joined = compose.merge_models(first, second, io_map=[(first.graph.output[0].name, second.graph.input[0].name)])
    joined.graph.name = "model"
    return joined


def _selects(model: Any) -> bool:
    """Return whether the first step takes columns by name or place."""
    while hasattr(model, "steps"):
        model = model.steps[0][1]
    return hasattr(model, "transformers_")


def kinds(step: Any, count: int) -> list[str]:
    """Return what each of the columns is that an estimator was fitted on, as its encoders know it: number, integer or text."""
    if hasattr(step, "steps"):
        for _, part in step.steps:
            column_kinds = kinds(part, count)
            if set(column_kinds) != {"number"} or not (part in (None, "passthrough") or hasattr(part, "statistics_")):
                return column_kinds
        return ["number"] * count
    if hasattr(step, "transformers_"):
        column_kinds = ["number"] * count
        for name, part, _ in step.transformers_:
            indices = [int(k) for k in step._transformer_to_input_indices.get(name, ())]
            if indices and not isinstance(part, str):
                for index, kind in zip(indices, kinds(part, len(indices)), strict=True):
                    column_kinds[index] = kind
        return column_kinds
    if hasattr(step, "categories_"):
        return [columns.kind_of(categories) for categories in step.categories_]
    if hasattr(step, "statistics_"):
        return [columns.kind_of(np.asarray([value])) for value in step.statistics_]
    return ["number"] * count
