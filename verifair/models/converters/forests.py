"""Estimators of scikit-learn that add up trees, as one tree ensemble of ONNX.

Bagging, soft and hard voting, AdaBoost, stacking and calibration of trees are weighted sums of the trees' leaves. skl2onnx writes
each tree as a classifier of its own, followed by the arithmetic; here the weights are multiplied into the leaves, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from encoders.arrays import Array, Booleans, Integers
from encoders.onnx.operators.trees import floor32
from encoders.trees.ensemble import TreeEnsemble
from verifair.models.columns import model_of
from verifair.models.converters import boosting
from verifair.models.objects import flat, labels_of, own_of_boosting, own_of_sklearn, width_of

WHOLE_WEIGHTS = 2**10
"""Weights of hard votes have to be multiples of 1 / WHOLE_WEIGHTS: then their sums are exact, and ties are those of the object."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DecisionTree:
    """K nodes, the first one the root: a row goes to `left` where feature <= threshold; a leaf has feature -1. value: (K, C)."""

    feature: Integers
    threshold: Array
    left: Integers
    right: Integers
    missing_left: Booleans
    value: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeSum:
    """A sum of trees, and of a base (C,)."""

    trees: tuple[DecisionTree, ...]
    base: Array

    def times(self, matrix: Array, features: Integers | None = None) -> TreeSum:
        """Return the sum times a matrix (C, D).   features: the columns of the table that its own columns are."""
        trees = tuple(replace(tree, value=tree.value @ matrix) for tree in self.trees)
        if features is not None:
            trees = tuple(replace(tree, feature=np.where(tree.feature < 0, -1, features[tree.feature])) for tree in trees)
        return TreeSum(trees=trees, base=self.base @ matrix)

    def plus(self, number: Array) -> TreeSum:
        """Return the sum and a number (C,)."""
        return replace(self, base=self.base + number)

    def last(self) -> TreeSum:
        """Return the sum with only the last of its numbers: for two classes that of the second."""
        return self.times(np.eye(len(self.base))[:, -1:])


def convert(model: Any) -> onnx.ModelProto | None:
    """Return an estimator that adds up trees as ONNX, with one matrix as its input; None for any other."""
    from sklearn.base import is_regressor
    from sklearn.ensemble import AdaBoostClassifier, StackingClassifier

    if is_regressor(model):
        trees = summed(model, "predict")
        return None if trees is None else written(width_of(model), trees, "NONE", ())
    classes = len(model.classes_)
    if hasattr(model, "calibrated_classifiers_"):
        trees, transform = _calibrated(model)
    elif isinstance(model, AdaBoostClassifier | StackingClassifier):
        trees, transform = summed(model, "decision_function"), "LOGISTIC" if classes == 2 else "SOFTMAX"
        if trees and classes > 2 and isinstance(model, AdaBoostClassifier):
            trees = trees.times(np.eye(classes) / (classes - 1))  # its probabilities are the softmax of that
    elif getattr(model, "voting", "soft") == "hard":
        trees, transform = _votes(model), "NONE"
    else:
        trees, transform = summed(model, "predict_proba"), "NONE"
    return None if trees is None else written(width_of(model), trees, transform, labels_of(model))


def summed(model: Any, response: str) -> TreeSum | None:
    """Return the trees whose sum is the result of an estimator's method, a number for each class or one; None if it has none.

    Classifiers of boosting libraries have no `decision_function`; here it stands for the log-odds of their probability.
    Raises ModelError for one that cannot be read.
    """
    from sklearn import ensemble
    from sklearn.base import is_regressor

    model = flat(model)
    if own_of_boosting(model) and response == ("predict" if is_regressor(model) else "decision_function"):
        trees = boosting.trees(model, values=response == "predict")
        return None if trees is None else _as_tree_sum(trees)
    if not own_of_sklearn(model) or is_regressor(model) != (response == "predict"):
        return None
    if getattr(model, "n_outputs_", 1) != 1:
        return None
    if response == "predict_proba" and not hasattr(model, response):  # hard votes count only decisions
        return None
    if hasattr(model, "tree_"):
        return None if response == "decision_function" else _single(model, hard=False)
    if isinstance(model, ensemble.StackingClassifier | ensemble.StackingRegressor):
        return None if response == "predict_proba" else _stacked(model)
    if isinstance(model, ensemble.AdaBoostClassifier):
        return _boosted(model) if response == "decision_function" else None
    if hasattr(model, "learning_rate"):
        return None if response == "predict_proba" else _gradient(model)
    return None if response == "decision_function" else _mean(model, response)


def _single(model: Any, *, hard: bool) -> TreeSum:
    """Return a decision tree.   hard: 1 for the class that a leaf decides, the first of equal ones, and 0 for the others."""
    tree = model.tree_
    value = np.array(tree.value[:, 0, :], dtype=np.float64)
    if hard:
        value = np.eye(value.shape[1])[value.argmax(axis=1)]
    elif hasattr(model, "classes_"):
        value /= value.sum(axis=1, keepdims=True)  # scikit-learn before 1.3 counts rows
    missing = getattr(tree, "missing_go_to_left", np.zeros(len(value)))
    leaf = tree.children_left < 0
    return one_tree(np.where(leaf, -1, tree.feature), tree.threshold, tree.children_left, tree.children_right, missing, value)


def one_tree(feature: Any, threshold: Any, left: Any, right: Any, missing: Any, value: Array) -> TreeSum:
    """Return a single tree of K nodes; see `DecisionTree`."""
    feature, left, right = (np.asarray(array, dtype=np.int64) for array in (feature, left, right))
    tree = DecisionTree(feature=feature, threshold=np.asarray(threshold, dtype=np.float64), left=left, right=right,
                        missing_left=np.asarray(missing, dtype=bool), value=value)
    return TreeSum(trees=(tree,), base=np.zeros(value.shape[1]))


def _as_tree_sum(read: TreeEnsemble) -> TreeSum:
    """Return trees that were read, node by node; subtrees that several branches share are copied for each."""
    trees = list[DecisionTree]()
    for root in read.root.tolist():
        node, k, left, right = [root], 0, list[int](), list[int]()
        while k < len(node):
            current = node[k]
            for branch, child in ((left, int(read.left[current])), (right, int(read.right[current]))):
                branch.append(k if read.column[current] < 0 else len(node))
                if read.column[current] >= 0:
                    node.append(child)
            k += 1
        trees += one_tree(read.column[node], read.threshold[node], left, right, read.missing_left[node], read.value[node]).trees
    return TreeSum(trees=tuple(trees), base=read.base)


def total(parts: Sequence[TreeSum | None], base: Array) -> TreeSum | None:
    """Return the sum of all parts; None if one of them is None."""
    given = [part for part in parts if part is not None]
    if not given or len(given) < len(parts):
        return None
    return TreeSum(trees=tuple(tree for part in given for tree in part.trees), base=sum((part.base for part in given), base))


def members(model: Any) -> list[tuple[float, Any, Integers | None]] | None:
    """Return the estimators whose probabilities or values a forest, bagging or voting averages, each with its weight and its
    columns (None: all); None for other estimators."""
    from sklearn import ensemble

    if isinstance(model, ensemble.VotingClassifier | ensemble.VotingRegressor):
        weights = model._weights_not_none
        weights = np.ones(len(model.estimators_)) if weights is None else np.asarray(weights, dtype=np.float64)
        return [(w, estimator, None) for w, estimator in zip((weights / weights.sum()).tolist(), model.estimators_, strict=True)]
    forests = (ensemble.RandomForestClassifier, ensemble.RandomForestRegressor, ensemble.ExtraTreesClassifier,
               ensemble.ExtraTreesRegressor, ensemble.BaggingClassifier, ensemble.BaggingRegressor)
    if not isinstance(model, forests):
        return None
    feature_sets = getattr(model, "estimators_features_", [None] * len(model.estimators_))
    return [(1 / len(feature_sets), estimator, columns) for estimator, columns in zip(model.estimators_, feature_sets, strict=True)]


def _mean(model: Any, response: str) -> TreeSum | None:
    count = len(model.classes_) if response == "predict_proba" else 1
    parts = list[TreeSum | None]()
    for weight, member, columns in members(model) or ():
        trees = summed(member, response)
        classes = flat(member).classes_ if response == "predict_proba" else [0]
        # a sample of the rows may lack some classes; the labels of a member are the numbers of its classes
        positions = np.arange(count) if len(classes) == count else np.asarray(classes, dtype=np.int64)
        parts.append(trees and trees.times(weight * np.eye(count)[positions], columns))
    return total(parts, np.zeros(count))


def whole_weights(model: Any) -> bool:
    """Return True if sums of the weights of hard votes are exact, in float32 and float64."""
    scaled = np.asarray(model._weights_not_none or (), dtype=np.float64) * WHOLE_WEIGHTS
    return bool((scaled == np.rint(scaled)).all() and np.abs(scaled).sum() <= 2**23)


def _votes(model: Any) -> TreeSum | None:
    """Return hard votes of single trees; None if sums of weights may be equal, but not after rounding to float32 or float64."""
    weights, count = model._weights_not_none, len(model.classes_)
    if (count > 2 and len(set(weights or ())) > 1) or not whole_weights(model):
        return None
    parts = list[TreeSum | None]()
    for weight, member, _ in members(model) or ():
        member = flat(member)
        is_single_tree = hasattr(member, "tree_") and own_of_sklearn(member) and list(member.classes_) == list(range(count))
        parts.append(_single(member, hard=True).times(weight * np.eye(count)) if is_single_tree else None)
    return total(parts, np.zeros(count))


def _boosted(model: Any) -> TreeSum | None:
    """Return AdaBoost (SAMME): each member votes for its class with its weight, and against the others with a share of it."""
    if getattr(model, "algorithm", "SAMME") == "SAMME.R":  # of scikit-learn before 1.6: sums of logarithms
        return None
    classes, parts = model.classes_.tolist(), list[TreeSum | None]()
    total_weight = float(model.estimator_weights_.sum())
    for weight, member in zip(model.estimator_weights_.tolist(), model.estimators_, strict=False):
        if not hasattr(member, "tree_") or not own_of_sklearn(member):
            return None
        votes = np.eye(len(classes))[[classes.index(label) for label in member.classes_.tolist()]]
        votes = np.where(votes == 1, weight / total_weight, -weight / total_weight / (len(classes) - 1))
        parts.append(_single(member, hard=True).times(votes[:, 1:] - votes[:, :1] if len(classes) == 2 else votes))
    return total(parts, np.zeros(1 if len(classes) == 2 else len(classes)))


def _gradient(model: Any) -> TreeSum | None:
    """Return gradient boosting, of scikit-learn's two kinds, by its raw values."""
    if hasattr(model, "_predictors"):
        loss = getattr(model, "_loss", None)
        supported = hasattr(model, "classes_") or type(getattr(loss, "link", None)).__name__ == "IdentityLink"
        if np.any(getattr(model, "is_categorical_", None)) or not supported:
            return None
        base = np.ravel(model._baseline_prediction).astype(np.float64)
        trees = [(k, _histogram(tree.nodes)) for row in model._predictors for k, tree in enumerate(row)]
    elif hasattr(model, "_raw_predict_init") and (model.init is None or isinstance(model.init, str)):
        base = np.ravel(model._raw_predict_init(np.zeros((1, model.n_features_in_)))).astype(np.float64)
        trees = [(k, _single(tree, hard=False).times(np.eye(1) * model.learning_rate))
                 for row in model.estimators_ for k, tree in enumerate(row)]
    else:
        return None
    return total([tree.times(np.eye(len(base))[k : k + 1]) for k, tree in trees], base)


def _histogram(nodes: Any) -> TreeSum:
    leaf = nodes["is_leaf"] == 1
    return one_tree(np.where(leaf, -1, nodes["feature_idx"]), nodes["num_threshold"], nodes["left"], nodes["right"],
                    nodes["missing_go_to_left"], np.where(leaf, nodes["value"], 0.0)[:, None])


def _stacked(model: Any) -> TreeSum | None:
    """Return stacking: a linear function of its members' outputs."""
    final = linear(model.final_estimator_)
    if final is None or model.passthrough:
        return None
    weight, bias = final
    parts, start = list[TreeSum | None](), 0
    for member, method in zip(model.estimators_, model.stack_method_, strict=True):
        trees = summed(member, method)
        if trees is None:
            return None
        if method == "predict_proba" and len(trees.base) != len(model.classes_):
            return None
        trees = trees.last() if method == "predict_proba" and len(model.classes_) == 2 else trees
        parts.append(trees.times(weight[:, start : start + len(trees.base)].T))
        start += len(trees.base)
    return total(parts, bias) if start == weight.shape[1] else None


def _calibrated(model: Any) -> tuple[TreeSum | None, str]:
    """Return calibrated probabilities of two classes as a sum of trees, and the post-transform of it. Functions of a single tree's
    leaves are applied to the leaves, and one sigmoid of a sum is the logistic function of another sum."""
    folds = model.calibrated_classifiers_
    if len(model.classes_) > 2 or model.method not in ("sigmoid", "isotonic"):
        return None, "NONE"
    if all(hasattr(flat(fold.estimator), "tree_") and own_of_sklearn(flat(fold.estimator)) for fold in folds):
        return total([_calibrated_tree(fold, len(folds)) for fold in folds], np.zeros(2)), "NONE"
    if len(folds) > 1 or model.method != "sigmoid":
        return None, "NONE"
    (fold,) = folds
    (curve,) = fold.calibrators
    estimator = flat(fold.estimator)
    trees = summed(estimator, "decision_function" if hasattr(estimator, "decision_function") else "predict_proba")
    return trees and trees.last().times(np.array([[-curve.a_]])).plus(np.array([-curve.b_])), "LOGISTIC"


def _calibrated_tree(fold: Any, count: int) -> TreeSum:
    """Return a calibrated tree as one of `count` summands of a mean."""
    (curve,) = fold.calibrators
    (tree,) = _single(flat(fold.estimator), hard=False).last().trees
    probability = curve.predict(tree.value[:, 0])
    return TreeSum(trees=(replace(tree, value=np.column_stack([1 - probability, probability]) / count),), base=np.zeros(2))


def linear(model: Any) -> tuple[Array, Array] | None:
    """Return weights (m, n) and bias (m,) of a linear model that outputs logistic (softmax) probabilities, or values; None for
    other estimators."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.linear_model._base import LinearModel

    if not own_of_sklearn(model):
        return None
    multiclass = len(getattr(model, "classes_", ())) > 2
    if isinstance(model, LogisticRegression):
        valid = getattr(model, "multi_class", "auto") in ("auto", "deprecated") and not (multiclass and model.solver == "liblinear")
    elif isinstance(model, SGDClassifier):
        valid = model.loss == "log_loss" and not multiclass
    else:
        valid = isinstance(model, LinearDiscriminantAnalysis) or (isinstance(model, LinearModel) and not hasattr(model, "classes_"))
    if not valid:
        return None
    weight = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    return weight, np.broadcast_to(np.ravel(model.intercept_).astype(np.float64), len(weight)).copy()


def written(width: int, trees: TreeSum, transform: str, labels: Sequence[str | int]) -> onnx.ModelProto:
    """Return trees of a matrix (N, width) as ONNX.   labels: of the classes; empty for values, of which there may be several.
    transform: post-transform of the scores."""
    count = [len(tree.feature) for tree in trees.trees]
    tree = np.repeat(np.arange(len(count)), count)
    node = np.concatenate([np.arange(k) for k in count])
    fields = ("feature", "threshold", "left", "right", "missing_left", "value")
    feature, threshold, left, right, missing, value = (
        np.concatenate([getattr(tree, name) for tree in trees.trees]) for name in fields
    )
    leaf = feature < 0
    value[: count[0]] += trees.base  # added to the first tree: onnxruntime treats two base values of two classes in a special way
    # one score of two classes: the second one's share of votes, or the scores -z and z, of which onnxruntime takes the second
    if labels and len(labels) == 2:
        value = value[:, 1:] if transform == "NONE" else value * [-1.0, 1.0]
    leaves = np.flatnonzero(leaf)
    scores = value.shape[1]
    mask = (np.ones((len(leaves), scores), dtype=bool) if labels else (value[leaves] != 0) | (np.arange(scores) == 0)).ravel()
    kind = "class" if labels else "target"
    attributes: dict[str, Any] = {
        "nodes_treeids": tree, "nodes_nodeids": node, "nodes_featureids": np.where(leaf, 0, feature),
        "nodes_values": floor32(np.where(leaf, 0.0, threshold)), "nodes_truenodeids": np.where(leaf, 0, left),
        "nodes_falsenodeids": np.where(leaf, 0, right), "nodes_missing_value_tracks_true": np.where(leaf, 0, missing.astype(int)),
        f"{kind}_treeids": np.repeat(tree[leaves], scores)[mask], f"{kind}_nodeids": np.repeat(node[leaves], scores)[mask],
        f"{kind}_ids": np.tile(np.arange(scores), len(leaves))[mask], f"{kind}_weights": value[leaves].ravel()[mask],
    }
    lists: dict[str, Any] = {name: array.tolist() for name, array in attributes.items()}
    lists["nodes_modes"] = np.where(leaf, "LEAF", "BRANCH_LEQ").tolist()
    outputs = [helper.make_tensor_value_info("probabilities" if labels else "values", TensorProto.FLOAT, [None, len(labels) or 1])]
    if labels:
        if len(labels) == 2 and transform == "LOGISTIC" and list(labels) != [0, 1]:  # onnxruntime names the numbers 0 and 1 alone
            labels = list(map(str, labels))
        is_text = isinstance(labels[0], str)
        lists["classlabels_strings" if is_text else "classlabels_int64s"] = list(labels)
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.STRING if is_text else TensorProto.INT64, [None]))
    else:
        lists["n_targets"] = scores
    onnx_node = helper.make_node(
        "TreeEnsembleClassifier" if labels else "TreeEnsembleRegressor", ["X"], [output.name for output in outputs], name="trees",
        domain="ai.onnx.ml", post_transform=transform, **lists,
    )
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, width])]
    graph = helper.make_graph([onnx_node], "model", inputs, outputs)
    return model_of(graph)
