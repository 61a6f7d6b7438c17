"""Estimators of scikit-learn that combine probabilities: functions of the scores of models without trees, or of trees, as ONNX.

A mean of probabilities, as of bagging, soft voting and calibration by several folds, is a network with a hidden layer of sigmoids;
so is stacking. Isotonic calibration is a sum of ramps. Of trees the scores are those of one ensemble, with the same functions
behind, of weights of 0 or more: where stacking has a weight w < 0,  w h(f) = w + |w| h'(-f)  for h' = 1 - h(-f), which grows as h
does. skl2onnx writes all of them with post-transforms of classifiers in the middle of the graph, which are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper
from scipy.special import expit

from encoders.arrays import Array, Floats, Integers
from encoders.onnx.file import drop_nodes
from verifair.models.columns import model_of, names_of, renamed
from verifair.models.converters import discriminants
from verifair.models.converters.forests import WHOLE_WEIGHTS, TreeSum, linear, members, summed, total, whole_weights, written
from verifair.models.objects import called, flat, labels_of, last_of, own_of_boosting, own_of_sklearn, width_of

ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid", "identity": None}
LEVEL = 2.0**-24
"""Levels of isotonic calibration are whole numbers of it: float32 adds them up exactly, and a plateau at 1/2 is a tie."""
VOTES = "fit it with voting='soft'; hard votes are read of trees, forests and boosted trees, beside linear models, by whole weights"
STEEP = 2.0**64
"""Scale of a vote's ramp: a score that is not 0 is beyond it, but for less than any float64 sum of the object's rounds."""
TIED, CLOSEST = 2.0**-22, 2.0**-60
"""How much longer than the object's a plateau at 1/2 is, relative to the largest score; what a ramp's ends are apart at least."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Functions:
    """constant + sum of weight * h(scale (f - shift)),  h the logistic function, or cut off at 0 and 1: isotonic calibration."""

    shift: Array | Floats
    scale: Array | Floats
    weight: Array
    constant: float
    logistic: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Chance:
    """The logistic function of trees of the columns of the model itself, or of a tensor, as a score."""

    score: TreeSum | str


@dataclass(frozen=True, kw_only=True, eq=False)
class Margin:
    """Functions of trees' scores with weights, and a constant, that add up to the log-odds of a probability."""

    terms: Weighted
    constant: float


Score = str | TreeSum | Chance | Margin
"""A tensor's name, or what is made of trees of the columns of the model itself."""
Weighted = list[tuple[float, Score, "Functions | None"]]
"""Scores, whose logistic functions (None) with a weight, or curves with the weight within them, are added up."""
Response = str | TreeSum | Chance | Weighted
"""A score, or functions of scores that add up to a probability."""


class Unknown(Exception):
    """What is no combination of linear models and MLPs. Its text says of what it is made.   remedy: what would help."""

    def __init__(self, made_of: str, remedy: str = "") -> None:
        super().__init__(made_of)
        linear = "on linear models with probabilities (LogisticRegression), GaussianNB and MLPs alone (voting='soft')"
        self.remedy = remedy or f"fit it on trees alone, or {linear}"


class Graph:
    """An ONNX graph in the making.   convert_steps: converts the steps of a pipeline before its last one."""

    def __init__(self, convert_steps: Callable[[Any], onnx.ModelProto]) -> None:
        self.convert_steps = convert_steps
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, onnx.ValueInfoProto] = {}  # columns of the model, under names that nodes do not have
        self.matrix: str | None = None  # that trees take
        self.cache: dict[object, str] = {}  # names of matrices that were made before
        self.linear = set[str]()  # scores that are linear functions of columns, or of columns and their squares
        self.selections: dict[str, tuple[str, Integers]] = {}  # some columns of a matrix: which ones, of which one

    def constant(self, values: Any, dtype: type = np.float32) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def add(self, op: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """Add a node; the name of what it gives."""
        name = f"step{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def affine(self, x: str, weight: Array, bias: Array) -> str:
        """x W^T + b, for W (m, n)."""
        output = self.add("Gemm", [x, self.constant(weight), self.constant(bias)], transB=1)
        self.linear |= {output} if x in self.linear else set()
        return output

    def table(self, model: Any) -> str:
        """The matrix of the columns of the model itself, by name where the estimator knows their names."""
        names, count = names_of(model), width_of(model)
        shape = [None, 1 if names else count]
        columns = [self.take(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape), model) for name in names or ("X",)]
        if names and names not in self.cache:
            self.cache[names] = self.add("Concat", columns, axis=1)
        return self.cache[names] if names else columns[0]

    def take(self, column: onnx.ValueInfoProto, model: Any) -> str:
        """What nodes call a column of the model itself."""
        entry = self.inputs.setdefault(column.name, onnx.ValueInfoProto(name=f"input{len(self.inputs)}", type=column.type))
        if entry.type != column.type:
            raise Unknown(f"parts that take the column {column.name!r} as different types")
        return str(entry.name)

    def part(self, model: Any, x: str | None) -> str:
        """Add steps of a pipeline, of the model's own columns, or of the matrix x; the name of the matrix that they give."""
        converted = self.convert_steps(model)
        key = converted.SerializeToString(deterministic=True), x
        if key in self.cache:
            return self.cache[key]
        converted = compose.add_prefix(converted, f"part{len(self.nodes)}/", rename_inputs=False)
        inputs = list(converted.graph.input)
        if x is not None and len(inputs) > 1:
            raise Unknown(f"{called(model)} within another one, by its columns' names")
        names = {info.name: self.take(info, model) if x is None else x for info in inputs}
        for node in converted.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
        self.nodes.extend(converted.graph.node)
        self.constants.extend(converted.graph.initializer)
        self.cache[key] = str(converted.graph.output[0].name)
        return self.cache[key]

    def trees(self, ensemble: TreeSum, model: Any, x: str | None) -> TreeSum:
        """Trees of the matrix x, or of the columns of the model itself. Raises Unknown where others are of another one."""
        x = self.table(model) if x is None else x
        if x in self.selections:
            x, columns = self.selections[x]
            ensemble = ensemble.times(np.eye(len(ensemble.base)), columns)
        if self.matrix not in (None, x):
            raise Unknown("trees of different columns", "fit all of them on the same columns, behind the same steps")
        self.matrix = x
        return ensemble

    def score(self, model: Any, x: str | None) -> str:
        """The logit of a linear model, an MLP or a quadratic one, of the matrix x, or of the columns of the model itself."""
        model = flat(model)
        if not own_of_sklearn(model):
            raise Unknown(called(model))
        if hasattr(model, "steps"):
            return self.score(model[-1], self.part(model[:-1], x))
        if discriminants.quadratic(model):
            return self.quadratic(discriminants.scores(model), self.table(model) if x is None else x)
        layers = _layers(model)
        x = self.table(model) if x is None else x
        for k, (weight, bias) in enumerate(layers):
            x = self.affine(x, weight, bias)
            bend = ACTIVATIONS[model.activation] if k < len(layers) - 1 else None
            x = x if bend is None else self.add(bend, [x])
        self.linear |= {x} if len(layers) == 1 else set()
        return x

    def quadratic(self, scores: discriminants.Quadratic, x: str) -> str:
        """The scores of a quadratic model, of the matrix x."""
        centred = self.add("Sub", [x, self.constant(scores.centre)])
        if not len(scores.directions):  # the classes differ in their means alone
            self.linear |= {centred}
            return self.affine(centred, scores.line, scores.constant)
        projected = self.add("MatMul", [centred, self.constant(scores.directions.T)])
        parts = self.add("Concat", [self.add("Mul", [projected, projected]), centred], axis=1)
        output = self.affine(parts, np.concatenate([scores.squares, scores.line], axis=1), scores.constant)
        self.linear |= {output} if ((scores.directions != 0).sum(axis=1) <= 1).all() else set()
        return output

    def probability(self, model: Any, x: str | None, share: float = 1.0) -> Weighted:
        """The scores whose functions, with these weights, make the share of an estimator's probability."""
        model = flat(model)
        if not (own_of_sklearn(model) or own_of_boosting(model)):
            raise Unknown(called(model))
        if len(last_of(model).classes_) != 2:
            raise Unknown(f"{called(model)} of {len(last_of(model).classes_)} classes")
        if hasattr(model, "steps"):
            return self.probability(model[-1], self.part(model[:-1], x), share)
        if hasattr(model, "calibrated_classifiers_") and model.method in ("sigmoid", "isotonic"):
            folds = model.calibrated_classifiers_
            return [self._calibrated(fold, x, share / len(folds)) for fold in folds]
        if (trees := summed(model, "predict_proba")) is not None:
            return [(share, self.trees(trees.last(), model, x), _ramps([0.0, 1.0], [0.0, 1.0], share))]
        if (trees := summed(model, "decision_function")) is not None:
            factor = 2.0 if getattr(model, "loss", "") == "exponential" else 1.0
            return [(share, self.trees(trees.times(np.array([[factor]])), model, x), None)]
        if getattr(model, "voting", "soft") == "hard":
            raise Unknown("hard votes", VOTES)
        if (parts := members(model)) is not None:
            terms: Weighted = []
            for weight, member, columns in parts:
                if weight < 0:
                    raise Unknown("probabilities with negative weights", "fit it with weights of 0 or more")
                if columns is not None and x is None:
                    x = self.table(model)
                matrix = x if columns is None else self.select(x, columns, model)
                terms += self.probability(member, matrix, share * weight)
            return terms
        if hasattr(model, "stack_method_"):
            return [(share, self._stacked(model, x), None)]
        if hasattr(model, "estimator_weights_"):
            raise Unknown("decisions of estimators that are no single trees", "fit it on DecisionTreeClassifier")
        if not _gives_log_odds(model):
            raise Unknown(called(model))
        return [(share, self.score(model, x), None)]

    def votes(self, model: Any, x: str | None) -> Weighted:
        """The scores that decide the votes of a hard vote: a ramp each that is as good as a step."""
        model = flat(model)
        if hasattr(model, "steps"):
            return self.votes(model[-1], self.part(model[:-1], x))
        voters = members(model) or []
        units = np.sum(model._weights_not_none or 1) * WHOLE_WEIGHTS  # votes for and against differ by a part of it, or not at all
        if not whole_weights(model) or min(share for share, _, _ in voters) < 0 or 2 * units * len(voters) * LEVEL > 1:
            raise Unknown("hard votes by such weights", VOTES)
        levels = np.array([share for share, _, _ in voters]) / LEVEL
        shares = (levels if (levels == np.rint(levels)).all() else np.floor(levels)) * LEVEL  # half the votes are not more than 1/2
        terms: Weighted = []
        for share, (_, member, _) in zip(shares.tolist(), voters, strict=True):
            score, threshold = self.score_and_threshold(member, x)
            shift, scale = (np.array([number], dtype=np.float32) for number in (threshold, STEEP))
            terms.append((1.0, score, Functions(shift=shift, scale=scale, weight=np.array([share]), constant=0.0)))
        if not any(isinstance(score, TreeSum) for _, score, _ in terms):
            raise Unknown("hard votes without trees", VOTES)
        return terms

    def score_and_threshold(self, model: Any, x: str | None) -> tuple[Score, float]:
        """The score of a member, and what it exceeds where the member decides for the second class."""
        model = flat(model)
        if list(getattr(last_of(model), "classes_", ())) != [0, 1]:
            raise Unknown(f"a vote of {called(model)}, which decides alike about everybody")
        if hasattr(model, "steps"):
            return self.score_and_threshold(model[-1], self.part(model[:-1], x))
        zero = -CLOSEST if type(model).__name__ == "GradientBoostingClassifier" else 0.0  # it decides so at 0, too
        for method, threshold in (("predict_proba", 0.5 + TIED), ("decision_function", zero)):
            if (trees := summed(model, method)) is not None:
                return self.trees(trees.last(), model, x), threshold
        return self.score(model, x), 0.0

    def probabilities(self, model: Any) -> str:
        """The probabilities of all classes of the model itself."""
        if len(last_of(model).classes_) > 2:
            scores = self.score(model, None)
            first = self.affine(scores, np.zeros((1, len(last_of(model).classes_) - 1)), np.zeros(1))
            return self.add("Softmax", [self.add("Concat", [first, scores], axis=1)], axis=1)
        hard = getattr(last_of(model), "voting", "soft") == "hard"
        terms = self.votes(model, None) if hard else self.probability(model, None)
        log_odds = _log_odds(*terms[0]) if len(terms) == 1 else None
        if isinstance(log_odds, Margin):
            log_odds = self.weighted_sum(log_odds.terms, log_odds.constant)
        probability = self.weighted_sum(terms) if log_odds is None else self.add("Sigmoid", [log_odds])
        return self.add("Concat", [self.add("Sub", [self.constant([1.0]), probability]), probability], axis=1)

    def select(self, x: str | None, columns: Integers, model: Any) -> str:
        """The columns of a matrix that a member takes."""
        if np.array_equal(columns, np.arange(width_of(model))):
            return str(x)
        selected = self.add("Gather", [str(x), self.constant(columns, np.int64)], axis=1)
        self.selections[selected] = str(x), columns
        return selected

    def weighted_sum(self, terms: Weighted, constant: float | None = None) -> str:
        """The sum of functions, with their weights, and of a constant."""
        names, parts, weights, offset = self._names([score for _, score, _ in terms]), list[str](), list[float](), constant or 0.0
        for name, (share, _, curve) in zip(names, terms, strict=True):
            if curve is None:
                parts.append(self.add("Sigmoid", [name]))
                weights.append(share)
                continue
            scaled = self.add("Mul", [self.add("Sub", [name, self.constant(curve.shift)]), self.constant(curve.scale)])
            limits = [] if curve.logistic else [self.constant(0.0), self.constant(1.0)]
            parts.append(self.add("Clip" if limits else "Sigmoid", [scaled, *limits]))
            weights += curve.weight.tolist()
            offset += curve.constant
        joined, weight = self.add("Concat", parts, axis=1), self.constant(np.array(weights)[:, None])
        if constant is None and not offset:
            return self.add("MatMul", [joined, weight])
        return self.add("Gemm", [joined, weight, self.constant([offset])])

    def _names(self, scores: Sequence[Score]) -> list[str]:
        """Names of scores; those of trees are columns of what one ensemble gives. Raises Unknown for both beside each other."""
        if any(isinstance(score, Margin) for score in scores):
            remedy = "stack or calibrate scores there (stack_method='decision_function')"
            raise Unknown("log-odds of several functions of trees, within another estimator,", remedy)
        arguments = [score.score if isinstance(score, Chance) else score for score in scores]
        trees, names = [s for s in arguments if isinstance(s, TreeSum)], [s for s in arguments if isinstance(s, str)]
        if not trees:
            return [self.add("Sigmoid", [name]) if isinstance(s, Chance) else name for s, name in zip(scores, names, strict=True)]
        if not set(names) <= self.linear:
            raise Unknown("trees and other models than linear ones and GaussianNB")
        ensemble = total([score.times(np.eye(len(trees))[[k]]) for k, score in enumerate(trees)], np.zeros(len(trees)))
        assert ensemble is not None
        (node,) = written(0, ensemble, "NONE", ()).graph.node
        node.input[0], node.output[0] = str(self.matrix), "scores"
        self.nodes.append(node)
        columns = self.add("Concat", ["scores", *names], axis=1) if names else "scores"
        result, indices = list[str](), {True: iter(range(len(trees), len(scores))), False: iter(range(len(trees)))}
        for score, argument in zip(scores, arguments, strict=True):
            name = self.add("Gather", [columns, self.constant([next(indices[isinstance(argument, str)])], np.int64)], axis=1)
            result.append(self.add("Sigmoid", [name]) if isinstance(score, Chance) else name)
        return result

    def response(self, model: Any, x: str | None, method: str) -> Response:
        """What a method of a classifier gives: a score, or the probability of the second class, also as a sum of functions."""
        if (trees := summed(model, method)) is not None:
            return self.trees(trees.last(), model, x)
        if method == "decision_function":
            return self.score(model, x)
        if method != "predict_proba":
            raise Unknown(f"decisions of {called(model)}")
        terms = self.probability(model, x)
        ((_, first, curve), *others) = terms
        if any(isinstance(score, Margin) for _, score, _ in terms):
            return self.weighted_sum(terms)  # raises Unknown
        return Chance(score=first) if isinstance(first, TreeSum) and curve is None and not others else terms

    def _calibrated(self, calibrated: Any, x: str | None, share: float) -> tuple[float, Score, Functions | None]:
        estimator = flat(calibrated.estimator)
        (curve,) = calibrated.calibrators
        method = "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"
        score, isotonic = self.response(estimator, x, method), hasattr(curve, "X_thresholds_")
        slope, intercept = (1.0, 0.0) if isotonic else (-curve.a_, -curve.b_)  # 1 / (1 + exp(a f + b)) for the score f
        if isinstance(score, list) and all(isinstance(part, str) for _, part, _ in score):
            ((_, first, shape), *others) = score
            keep_score = share < 1 and first in self.linear and shape is None and not others  # GaussianNB, perhaps beside trees
            score = Chance(score=str(first)) if keep_score else self.weighted_sum(score)
        if isinstance(score, list):
            if isotonic or share < 1:
                reason = f"a calibration of {called(estimator)}, whose probability is a sum of functions of sums,"
                raise Unknown(reason, "calibrate its members, and combine these")
            return 1.0, Margin(terms=[self.times(slope, *part) for part in score], constant=intercept), None
        if isotonic:
            return share, score, _ramps(curve.X_thresholds_, curve.y_thresholds_, share)
        if isinstance(score, TreeSum):
            return share, score.times(np.array([[slope]])).plus(np.array([intercept])), None
        if isinstance(score, str):
            return share, self.affine(score, np.array([[slope]]), np.array([intercept])), None
        if slope == 0:
            return share, score, _logistic(0.0, 1.0, 0.0, share * float(expit(intercept)))
        if slope > 0:
            return share, score, _logistic(-intercept / slope, slope, share)
        return share, Chance(score=self.negative(score.score)), _logistic(1 + intercept / slope, -slope, share)

    def negative(self, score: TreeSum | str) -> TreeSum | str:
        """A score times -1."""
        return self.affine(score, -np.eye(1), np.zeros(1)) if isinstance(score, str) else score.times(-np.eye(1))

    def times(self, weight: float, share: float, score: Score, curve: Functions | None) -> tuple[float, Score, Functions | None]:
        """A function of a score times a number, with weights of 0 or more."""
        if weight >= 0:
            return weight * share, score, curve and replace(curve, weight=weight * curve.weight, constant=weight * curve.constant)
        assert not isinstance(score, Margin)
        negated = Chance(score=self.negative(score.score)) if isinstance(score, Chance) else self.negative(score)
        if curve is None:
            return -weight * share, negated, _logistic(0.0, 1.0, -weight * share, weight * share)
        offset = weight * (curve.constant + float(curve.weight.sum()))
        end = curve.shift.astype(np.float64) if curve.logistic else curve.shift + 1 / curve.scale.astype(np.float64)
        shift = (1.0 if isinstance(score, Chance) else 0.0) - end
        return -weight * share, negated, replace(
            curve, shift=shift.astype(np.float32), weight=-weight * curve.weight, constant=offset
        )

    def _stacked(self, model: Any, x: str | None) -> Score:
        final = linear(flat(model.final_estimator_))
        if final is None:
            raise Unknown(f"the final_estimator {called(model.final_estimator_)}")
        responses = [self.response(part, x, method) for part, method in zip(model.estimators_, model.stack_method_, strict=True)]
        parts = [p for part in responses for p in ([score for _, score, _ in part] if isinstance(part, list) else [part])]
        if all(isinstance(part, str) for part in parts):
            inputs = [self.weighted_sum(response) if isinstance(response, list) else str(response) for response in responses]
            if model.passthrough:
                inputs.append(self.table(model) if x is None else x)
            return self.affine(self.add("Concat", inputs, axis=1), *final)
        if model.passthrough or any(isinstance(response, str) for response in responses):
            other_inputs = "columns (passthrough=True)" if model.passthrough else "scores of other models"
            raise Unknown(f"trees and {other_inputs}", "stack probabilities alone (stack_method='predict_proba')")
        ((weights,), (constant,)) = final
        terms: Weighted = []
        linear_parts: list[TreeSum | None] = []
        for weight, response in zip(weights.tolist(), responses, strict=True):
            if isinstance(response, TreeSum):
                linear_parts.append(response.times(np.array([[weight]])))
            elif not isinstance(response, str):
                functions: Weighted = response if isinstance(response, list) else [(1.0, response.score, None)]
                terms += [self.times(weight, *term) for term in functions]
        line = total(linear_parts, np.zeros(1))
        return Margin(terms=terms if line is None else [*terms, (1.0, line, _identity(line))], constant=float(constant))


def convert(model: Any, convert_steps: Callable[[Any], onnx.ModelProto]) -> onnx.ModelProto:
    """Return a classifier of two classes, a quadratic one of several, or a pipeline that ends in it, as ONNX. Raises Unknown for
    what it cannot combine."""
    graph, labels = Graph(convert_steps), labels_of(model)
    probabilities = graph.probabilities(model)
    column_names = set(names_of(model)) or {f"x{k}" for k in range(width_of(model))}
    if not set(graph.inputs) <= column_names and set(graph.inputs) != {"X"}:
        reason = "estimators that take columns by name or place, and ones that were fitted on an array"
        raise Unknown(reason, "fit all of them on a table with names of its columns")
    is_text = isinstance(labels[0], str)
    graph.constants.append(numpy_helper.from_array(np.array(labels, dtype=object if is_text else np.int64), "classes"))
    argmax = graph.add("ArgMax", [probabilities], axis=1, keepdims=0)
    gathered = graph.add("ArrayFeatureExtractor", ["classes", argmax], "ai.onnx.ml")
    label = graph.add("Reshape", [gathered, graph.constant([-1], np.int64)])  # it gives one row of labels
    outputs = [
        helper.make_tensor_value_info(label, TensorProto.STRING if is_text else TensorProto.INT64, [None]),
        helper.make_tensor_value_info(probabilities, TensorProto.FLOAT, [None, len(labels)]),
    ]
    names = sorted(graph.inputs, key=[*names_of(model), *graph.inputs].index)
    onnx_graph = helper.make_graph(graph.nodes, "model", [graph.inputs[name] for name in names], outputs, graph.constants)
    drop_nodes(onnx_graph, [label, probabilities])
    return renamed(model_of(onnx_graph), names)


def _log_odds(share: float, score: Score, curve: Functions | None) -> str | Margin | None:
    """Return the log-odds of a single function of a score; None where they are no sum of functions."""
    if curve is None and share == 1:
        return score if isinstance(score, str | Margin) else None
    if curve is None or not (isinstance(score, Chance) and curve.logistic and curve.weight.all()):
        return None
    steep = float(curve.scale[0])
    return Margin(terms=[(steep, score.score, None)], constant=-steep * float(curve.shift[0]))


def _logistic(shift: float, scale: float, weight: float, constant: float = 0.0) -> Functions:
    """Return a logistic function of a score, with a weight."""
    parameters = [np.array([number], dtype=np.float32) for number in (shift, scale)]
    return Functions(shift=parameters[0], scale=parameters[1], weight=np.array([weight]), constant=constant, logistic=True)


def _identity(line: TreeSum) -> Functions:
    """Return what a sum of trees is between its ends, as a ramp whose steps are exact: from a float32 number, and a power of two
    wide."""
    bounds = [float(line.base[0] + sum(end(tree.value[tree.feature < 0]) for tree in line.trees)) for end in (np.min, np.max)]
    margin = 2.0**-16 * (abs(bounds[0]) + abs(bounds[1])) + 2.0**-60
    low = float(np.float32(bounds[0] - margin))
    width = 2.0 ** np.ceil(np.log2(bounds[1] + margin - low))
    return Functions(shift=np.array([low]), scale=np.array([1 / width]), weight=np.array([width]), constant=low)


def _ramps(scores: Any, levels: Any, share: float) -> Functions:
    """Return a function that is linear between its levels at ascending scores, times a share of the mean: a ramp between every two
    plateaus, whose ends are float32 numbers, one after the other. A plateau at 1/2, which may be the point where a single function
    crosses it, is TIED longer on both sides: sums of float32 leaves that should be its ends are on it. Shares of several are
    rounded down, by one to two LEVEL, so that plateaus whose sum is 1/2 do not exceed it, nor a row a little up a ramp."""
    x, level = np.asarray(scores, dtype=np.float64), np.asarray(levels, dtype=np.float64) * share
    crossing_index = int(np.searchsorted(level, 0.5))
    if share == 1 and 0 < crossing_index < len(level) and level[crossing_index] > 0.5:
        crossing = np.interp(0.5, level[crossing_index - 1 : crossing_index + 1], x[crossing_index - 1 : crossing_index + 1])
        x, level = np.insert(x, crossing_index, crossing), np.insert(level, crossing_index, 0.5)
    if share < 1:
        level = np.maximum(np.floor(level / LEVEL + 2.0**-20) - 1, 0) * LEVEL
    level = np.where((level > 0.5) & (level < 0.5 + LEVEL), 0.5 + LEVEL, np.rint(level / LEVEL) * LEVEL)
    at_half = np.flatnonzero(level == 0.5)
    if len(at_half):
        first, last = at_half[0], at_half[-1]
        nearest = np.diff(np.concatenate([x[:first][-1:], [x[first]]])), np.diff(x[last : last + 2])
        extension = min(TIED * np.abs(x).max(), *(0.25 * np.concatenate(nearest)))
        x = np.concatenate([x[:first], [x[first] - extension, x[last] + extension], x[last + 1 :]])
        level = np.concatenate([level[:first], [0.5, 0.5], level[last + 1 :]])
    knots = x.astype(np.float32)
    for k in range(1, len(knots)):
        knots[k] = max(knots[k], knots[k - 1] + max(np.spacing(abs(knots[k - 1])), np.float32(CLOSEST)))
    rises = np.flatnonzero(np.diff(level) > 0)
    width = np.diff(knots.astype(np.float64))[rises]
    scale = (1 / width).astype(np.float32)
    scale = np.where(scale * width < 1, np.nextafter(scale, np.float32(np.inf)), scale)
    if not len(rises):  # a constant
        return Functions(shift=knots[:1], scale=np.ones(1, dtype=np.float32), weight=np.zeros(1), constant=float(level[0]))
    return Functions(shift=knots[rises], scale=scale, weight=np.diff(level)[rises], constant=float(level[0]))


def _layers(model: Any) -> list[tuple[Array, Array]]:
    """Return weights (m, n) and bias (m,) of each layer of a model with one score. Raises Unknown for other models."""
    from sklearn.base import is_classifier
    from sklearn.linear_model._base import LinearClassifierMixin

    if not is_classifier(model) or len(model.classes_) != 2:
        raise Unknown(f"{called(model)}, no classifier of two classes")
    if type(model).__name__ == "MLPClassifier":
        return [(np.asarray(weight).T, np.asarray(bias)) for weight, bias in zip(model.coefs_, model.intercepts_, strict=True)]
    if isinstance(model, LinearClassifierMixin):
        return [(np.atleast_2d(np.asarray(model.coef_)), np.broadcast_to(np.ravel(model.intercept_), 1).copy())]
    raise Unknown(called(model))


def _gives_log_odds(model: Any) -> bool:
    """Return whether an estimator's probability is the logistic function of its score."""
    is_logistic = type(model).__name__ == "MLPClassifier" or discriminants.quadratic(model)
    return is_logistic or (linear(model) is not None and hasattr(model, "classes_"))
