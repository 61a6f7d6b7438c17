"""Scalers in front of trees, as thresholds on the numbers before them.

scikit-learn scales in float64, a converted scaler in float32, and the last digit matters, because rows of the training data lie on
thresholds. A scaler is monotone, so a comparison of a scaled number is one of the number itself. Its threshold is found by
bisection over all float32 numbers, with the scaler's own `transform`: the trees decide all rows of such numbers as the object does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx

from encoders.arrays import Array, Booleans, Integers
from verifair.models.objects import flat, gives_sparse, own_of_sklearn, with_steps

SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
LARGEST = int(np.finfo(np.float32).max.view(np.int32))
"""Position of the largest float32 number, 0 being at 0."""
Scaled = dict[int, list[Callable[[Array], Array]]]
"""Column of a matrix -> the scalers that its numbers went through."""


def folded(before: Any, trees: onnx.ModelProto) -> tuple[Any, onnx.ModelProto] | None:
    """Return steps without their last scalers, None without any other step, and trees of the matrix that these give.

    trees: of an estimator that rounds the matrix of `before` to float32; changed here.   None if nothing is scaled, if
    something else takes the matrix, or if the trees ask about scaled numbers in a way that is no threshold on those before.
    """
    steps, scaled = without(before)
    nodes = [node for node in trees.graph.node if node.op_type.startswith("TreeEnsemble")]
    inputs = [info.name for info in trees.graph.input]
    readers = [node for node in trees.graph.node if set(node.input) & set(inputs)]
    if not scaled or len(inputs) != 1 or readers != nodes or len(nodes) != 1:
        return None
    attributes = {attribute.name: attribute for attribute in nodes[0].attribute}
    lists = {name: onnx.helper.get_attribute_value(attribute) for name, attribute in attributes.items()}
    features, modes = np.array(lists["nodes_featureids"]), np.array(lists["nodes_modes"])
    asks = np.isin(features, list(scaled)) & (modes != b"LEAF")
    thresholds = np.array(lists["nodes_values"], dtype=np.float64)
    for mode in np.unique(modes[asks]).tolist():
        if mode not in (b"BRANCH_LEQ", b"BRANCH_GT", b"BRANCH_LT", b"BRANCH_GTE"):
            return None
        chosen = asks & (modes == mode)
        below = mode in (b"BRANCH_LT", b"BRANCH_GTE")
        raw = unscaled(scaled, features[chosen], thresholds[chosen], below=below, rounds=True)
        if raw is None:
            return None
        thresholds[chosen] = raw
    attributes["nodes_values"].CopyFrom(onnx.helper.make_attribute("nodes_values", thresholds.astype(np.float32).tolist()))
    return steps, trees


def without(step: Any, sparse: bool = False) -> tuple[Any, Scaled]:
    """Return a fitted transformer without the scalers at its end, None if it is one itself; and the columns that they scaled.

    sparse: whether it takes a sparse matrix, in which scalers multiply by 1/scale instead of dividing by the scale.
    """
    step = flat(step)
    if type(step).__name__ in SCALERS and own_of_sklearn(step):
        return None, {column: [partial(_scaled, step, column, sparse)] for column in range(step.n_features_in_)}
    if hasattr(step, "steps"):
        last, scaled = without(step[-1], gives_sparse(step[:-1], sparse))
        if hasattr(last, "get_support") and own_of_sklearn(last):      # it chooses columns
            earlier, before = without(step[:-1], sparse)
            steps = [] if earlier is None else earlier.steps if hasattr(earlier, "steps") else [("before", earlier)]
            chosen = enumerate(last.get_support(indices=True).tolist())
            scaled = {k: before[column] for k, column in chosen if column in before}
            return flat(with_steps(step, [*steps, step.steps[-1]])), scaled
        if last is not None:
            return with_steps(step, [*step.steps[:-1], (step.steps[-1][0], last)]), scaled
        earlier, scaled_before = without(step[:-1], sparse)
        return earlier, {column: scaled_before.get(column, []) + scalers for column, scalers in scaled.items()}
    if not hasattr(step, "transformers_") or step.transformer_weights:
        return step, {}
    transformers, columns = list[tuple[str, Any, Any]](), Scaled()
    for name, part, selected in step.transformers_:
        if not isinstance(part, str) and len(step._transformer_to_input_indices[name]):     # of no columns, it was not fitted
            part, scaled = without(part, sparse)
            part = "passthrough" if part is None else part
            columns |= {step.output_indices_[name].start + column: scalers for column, scalers in scaled.items()}
        transformers.append((name, part, selected))
    step = copy.copy(step)
    step.transformers_ = transformers
    return step, columns


def unscaled(scaled: Scaled, features: Integers, thresholds: Array, *, below: bool, rounds: bool) -> Array | None:
    """Return thresholds (m,) on the columns `features` (m,), those on scaled ones as thresholds on the numbers before: the largest
    float32 numbers whose scaled ones are at most them; `below`: the smallest whose scaled ones are not below them. None where no
    number is low enough; all are, where trees ask for missing values (threshold infinity).

    rounds: scaled numbers are rounded to float32 before they are compared.
    """
    thresholds = thresholds.copy()
    for column in scaled.keys() & set(features.tolist()):
        asks = features == column
        limits, inverse = np.unique(thresholds[asks], return_inverse=True)

        def holds(places: Integers, scalers: Any = scaled[column], limits: Array = limits) -> Booleans:
            numbers = _numbers(places)
            for scaler in scalers:
                numbers = scaler(numbers)
            if rounds:
                numbers = numbers.astype(np.float32).astype(np.float64)
            return np.asarray(numbers < limits if below else numbers <= limits)

        low, high = np.full(len(limits), -LARGEST), np.full(len(limits), LARGEST + 1)   # infinity, which is not asked
        with np.errstate(over="ignore"):
            if not holds(low).all():
                return None
            while (high - low > 1).any():
                middle = (low + high) // 2
                inside = holds(middle)
                low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        thresholds[asks] = _numbers(high if below else low)[inverse]
    return thresholds


def _scaled(scaler: Any, column: int, sparse: bool, numbers: Array) -> Array:
    """Return the numbers of a column as a scaler gives them."""
    matrix: Any = np.zeros((len(numbers), scaler.n_features_in_))
    matrix[:, column] = numbers
    if not sparse:
        return np.asarray(scaler.transform(matrix))[:, column]
    from scipy.sparse import csr_matrix

    return np.asarray(scaler.transform(csr_matrix(matrix)).toarray())[:, column]


def _numbers(places: Integers) -> Array:
    """Return the float32 numbers at these places, in the order of all of them."""
    return np.asarray(np.sign(places) * np.abs(places).astype(np.int32).view(np.float32).astype(np.float64))
