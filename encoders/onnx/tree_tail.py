"""Graphs that end in a tree ensemble with a post-transform: its scores, and the runtime's decisions on them.

A classifier's node is turned into a regressor of its scores. The runtime's rule (onnxruntime 1.18 on) for its label is:

    weights of class 0 alone, of two classes      one score z: label 1 iff z > 0, but iff z > 1/2 where no weight is negative
    weights of both of two classes                label 1 iff the second score > 0
    three classes and more                        the largest score, the first of equal ones

Files whose label and probabilities contradict each other by this rule are refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from encoders.arrays import Array, Integers
from encoders.errors import ModelError
from encoders.model import Link

LINKS = {"NONE": Link.IDENTITY, "LOGISTIC": Link.SIGMOID, "SOFTMAX": Link.SOFTMAX}
CLASSIFIER, REGRESSORS = "TreeEnsembleClassifier", ("TreeEnsembleRegressor", "TreeEnsemble")
NUMBERED = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Post-transforms of a TreeEnsemble by number."""


def scores(
    path: Path, node: onnx.NodeProto, name: str, values: dict[str, object], labels: int
) -> tuple[list[onnx.NodeProto], Link]:
    """Return the nodes that compute the scores `name` of a tree ensemble without its post-transform, and the link behind them.

    values: its attributes.   labels: number of classes that a classifier lists. Raises ModelError for cases not covered above.
    """
    shown = str(node.name or name)

    def refuse(problem: str) -> ModelError:
        return ModelError(path, problem, node=shown, op=node.op_type)

    stored = values.get("post_transform", 0 if node.op_type == "TreeEnsemble" else "NONE")
    transform = NUMBERED[stored] if isinstance(stored, int) else str(stored)
    if transform not in LINKS:
        raise refuse(f"post_transform {transform!r}; supported are NONE, LOGISTIC and SOFTMAX")
    regressor = onnx.NodeProto()
    regressor.CopyFrom(node)
    kept = [a for a in node.attribute if a.name != "post_transform"]
    del regressor.attribute[:]
    if node.op_type in REGRESSORS:
        if transform != "NONE" and values.get("n_targets", 1) == 1:
            remedy = "and a Sigmoid node behind the trees, or a classifier" if transform == "LOGISTIC" else "instead"
            raise refuse(f"post_transform {transform!r} of one score, which onnxruntime leaves out, against ONNX's definition: "
                         f"export post_transform NONE {remedy}")
        regressor.attribute.extend(kept)
        return [regressor], LINKS[transform]
    ids, weights, base = _integers(values, "class_ids"), _numbers(values, "class_weights"), _numbers(values, "base_values")
    kept = [a for a in kept if not a.name.startswith(("class_", "classlabels_", "base_values"))]
    trees, leaves = _integers(values, "class_treeids"), _integers(values, "class_nodeids")
    if labels < 2 or not len(ids) or not len(ids) == len(weights) == len(trees) == len(leaves):
        raise refuse(f"{len(ids)} weights for {labels} classes; supported is a classifier of two classes or more")
    selected = np.ones(len(ids), dtype=bool)
    half, positive = False, bool((weights >= 0).all())
    if labels == 2:
        if transform not in ("NONE", "LOGISTIC"):
            raise refuse(f"post_transform {transform!r} of two classes, which the runtime takes for NONE; export LOGISTIC or NONE")
        one_score = bool((ids == 0).all())
        if positive and (transform == "LOGISTIC" or not one_score):
            raise refuse("no weight is negative: the runtime's label asks whether the score is above 1/2, its probability "
                         "whether it is above 0; no decision follows both. Export a regressor of the score")
        if one_score and len(base) > 1:
            raise refuse(f"{len(base)} base_values for one score; supported is one")
        if not one_score:
            if not _opposite(ids, weights, base, trees, leaves):
                raise refuse("its two classes have scores of their own: the runtime's label asks whether the second one is above "
                             "0, not which one is larger. Supported are scores -z and z; export one score, or a regressor")
            selected = ids == 1
        ids, base, half = np.zeros_like(ids), base[-1:], positive
    elif not positive and not _always_scored(ids, labels, trees, leaves):
        raise refuse("some leaves have no weight for some classes, and the runtime's label looks at the others alone; give every "
                     "leaf a weight for every class")
    regressor.op_type, raw = "TreeEnsembleRegressor", name + ("/score" if half else "")
    del regressor.output[:]
    regressor.output.append(raw)
    regressor.attribute.extend(kept)
    regressor.attribute.extend([
        helper.make_attribute("target_treeids", trees[selected].tolist(), attr_type=onnx.AttributeProto.INTS),
        helper.make_attribute("target_nodeids", leaves[selected].tolist(), attr_type=onnx.AttributeProto.INTS),
        helper.make_attribute("target_ids", ids[selected].tolist(), attr_type=onnx.AttributeProto.INTS),
        helper.make_attribute("n_targets", 1 if labels == 2 else labels),
    ])
    for attribute, numbers in (("target_weights", weights[selected]), ("base_values", base)):
        if len(numbers):
            as_tensor = f"{'class_weights' if attribute == 'target_weights' else attribute}_as_tensor" in values
            regressor.attribute.append(
                helper.make_attribute(f"{attribute}_as_tensor", numpy_helper.from_array(numbers)) if as_tensor else
                helper.make_attribute(attribute, numbers.tolist())
            )
    if not half:
        shares = positive and labels > 2 and transform == "NONE"
        return [regressor], Link.SHARES if shares else LINKS[transform]
    constant = helper.make_node("Constant", [], [name + "/half"], value=numpy_helper.from_array(np.array([0.5], dtype=np.float32)))
    return [regressor, constant, helper.make_node("Sub", [raw, name + "/half"], [name], name=shown + "/above_half")], Link.SHARES


def _opposite(ids: Integers, weights: Array, base: Array, trees: Integers, leaves: Integers) -> bool:
    """Return True if the scores of two classes are -z and z, or 0 and z."""
    if (ids == 1).all():
        return len(base) == 0
    order = np.lexsort((ids, leaves, trees))
    i, j = order[::2], order[1::2]
    paired = len(order) % 2 == 0 and bool((ids[i] == 0).all() and (ids[j] == 1).all())
    matching = paired and bool((trees[i] == trees[j]).all() and (leaves[i] == leaves[j]).all())
    return matching and bool((weights[i] == -weights[j]).all()) and (len(base) == 0 or (len(base) == 2 and base[0] == -base[1]))


def _always_scored(ids: Integers, labels: int, trees: Integers, leaves: Integers) -> bool:
    """Return True if every class has a tree all of whose weighted leaves have a weight for it, and so a score in every row."""
    leaf = trees * 2**31 + leaves
    scored = set[int]()
    for tree in np.unique(trees).tolist():
        in_tree = trees == tree
        count = len(np.unique(leaf[in_tree]))
        scored |= {k for k in range(labels) if len(np.unique(leaf[in_tree & (ids == k)])) == count}
    return len(scored) == labels


def _integers(values: dict[str, object], name: str) -> Integers:
    return np.array(values.get(name, []), dtype=np.int64)


def _numbers(values: dict[str, object], name: str) -> Array:
    tensor = values.get(f"{name}_as_tensor")
    if isinstance(tensor, onnx.TensorProto):
        return numpy_helper.to_array(tensor).ravel().astype(np.float64)
    return np.array(values.get(name, []), dtype=np.float64)
