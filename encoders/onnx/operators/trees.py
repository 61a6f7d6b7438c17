"""Tree ensembles of ONNX: TreeEnsembleRegressor (ai.onnx.ml 1 and 3) and TreeEnsemble (5), as arrays over the node's own features.

A TreeEnsembleClassifier can only end a graph; `encoders.onnx.file` turns it into a regressor of its scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import numpy_helper

from encoders.arrays import Array, Booleans, Integers
from encoders.onnx.operators.least_tree import MOST_LEAVES, Nodes, least_tree
from encoders.onnx.tensor import NeuronSource, OnnxNode, Result, source_tensor

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
AGGREGATIONS = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
MOST_TARGETS = 1024
"""The most targets of one ensemble: a leaf has a number for each of them."""
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredTrees:
    """Trees as `encoders.trees.TreeEnsemble` has them, but over the features (F,) of the node's input tensor.

    sets: features with splits by a set of numbers. They must be whole, as onnxruntime truncates some fractions.
    """

    root: Integers
    feature: Integers
    threshold: Array
    left: Integers
    right: Integers
    missing_left: Booleans
    value: Array
    base: Array
    exact: bool
    sets: Integers


def _regressor(node: OnnxNode) -> Result:
    """ai.onnx.ml TreeEnsembleRegressor: sums of the leaves' weights for each target, and base values."""
    _no_transform(node, _text(node, "post_transform", "NONE"))
    treeid, nodeid, feature = (_integers(node, f"nodes_{name}") for name in ("treeids", "nodeids", "featureids"))
    names = list(node.attributes.get("nodes_modes", ()))  # type: ignore[call-overload]
    unknown = next((name for name in names if name not in (*MODES, "LEAF")), None)
    if unknown is not None:
        raise node.error(f"has a node of mode {unknown!r}; supported are {', '.join(MODES[:-1])} and LEAF")
    mode = np.array([LEAF if name == "LEAF" else MODES.index(name) for name in names], dtype=np.int64)
    key = _keys(node, treeid, nodeid)
    index = np.arange(len(key))
    left, right = (
        np.where(mode == LEAF, index, _positions(node, key, treeid, _integers(node, f"nodes_{name}nodeids"), mode != LEAF))
        for name in ("true", "false")
    )
    first = np.flatnonzero(np.diff(treeid, prepend=treeid[:1] - 1) != 0)
    if len(np.unique(treeid[first])) < len(first):
        raise node.error("the nodes of a tree do not stand together; write one tree after the other")
    value = _zeros(node, len(key))
    leaf = _positions(node, key, _integers(node, "target_treeids"), _integers(node, "target_nodeids"), None)
    target, weight = _integers(node, "target_ids"), _numbers(node, "target_weights")
    _add(node, value, leaf, target, weight)
    if (mode[leaf] != LEAF).any():
        raise node.error("gives a weight to a node that is no leaf")
    base = _numbers(node, "base_values") if _has(node, "base_values") else np.zeros(len(value[0]))
    tracks = _integers(node, "nodes_missing_value_tracks_true") if _has(node, "nodes_missing_value_tracks_true") else 0 * index
    threshold = _numbers(node, "nodes_values")
    return _ensemble(node, first, (mode, feature, threshold, tracks), (left, right), value, base,
                     _text(node, "aggregate_function", "SUM"), np.empty(0, dtype=np.int64))


def _tree_ensemble(node: OnnxNode) -> Result:
    """ai.onnx.ml TreeEnsemble (since version 5): inner nodes and leaves are in separate lists, and a leaf has one weight."""
    _no_transform(node, TRANSFORMS[int(node.number("post_transform", 0))])
    mode, threshold = (_tensor(node, f"nodes_{name}") for name in ("modes", "splits"))
    feature, target = _integers(node, "nodes_featureids"), _integers(node, "leaf_targetids")
    count = len(feature)
    children = []
    for side in ("true", "false"):
        child, is_leaf = (_integers(node, f"nodes_{side}{name}") for name in ("nodeids", "leafs"))
        limit = np.where(is_leaf == 1, len(target), count)
        if len(child) != count or len(is_leaf) != count or ((child < 0) | (child >= limit)).any():
            raise node.error(f"a {side} branch leads to a node that does not exist")
        children.append(np.concatenate([np.where(is_leaf == 1, count + child, child), count + np.arange(len(target))]))
    value = _zeros(node, count + len(target))
    _add(node, value, count + np.arange(len(target)), target, _tensor(node, "leaf_weights").astype(np.float64))
    tracks = _integers(node, "nodes_missing_value_tracks_true") if _has(node, "nodes_missing_value_tracks_true") else 0 * feature
    zeros = np.zeros(len(target), dtype=np.int64)
    padded = tuple(
        np.concatenate([array, zeros + fill])
        for array, fill in ((mode.astype(np.int64), LEAF), (feature, 0), (threshold.astype(np.float64), 0), (tracks, 0))
    )
    aggregation, base = AGGREGATIONS[int(node.number("aggregate_function", 1))], np.zeros(len(value[0]))
    root, (tests, branches, value) = _integers(node, "tree_roots"), _without_sets(node, padded, (children[0], children[1]), value)
    return _ensemble(node, root, tests, branches, value, base, aggregation, np.unique(feature[mode == MEMBER]))


def _without_sets(
    node: OnnxNode, tests: tuple[npt.NDArray[np.generic], ...], children: tuple[Integers, Integers], value: Array
) -> tuple[tuple[npt.NDArray[np.generic], ...], tuple[Integers, Integers], Array]:
    """Return the nodes with one "equal" split for every member of a set, one after the other, in place of BRANCH_MEMBER."""
    members = np.flatnonzero(tests[0] == MEMBER)
    if not len(members):
        return tests, children, value
    listed = _tensor(node, "membership_values").astype(np.float64) if _has(node, "membership_values") else np.empty(0)
    ends = np.flatnonzero(np.isnan(listed))
    sets = [part[~np.isnan(part)] for part in np.split(listed, ends)][: len(ends)]
    if len(sets) != len(members) or not all(map(len, sets)) or not np.isnan(listed[-1]):
        raise node.error(f"its membership_values hold {len(sets)} sets, each ended by NaN, for {len(members)} nodes of mode "
                         "'BRANCH_MEMBER'; every node needs one that is not empty")
    mode, feature, threshold, tracks = (np.array(array) for array in tests)
    true, false = (array.copy() for array in children)
    extra: list[tuple[int, float, int]] = []     # node, member, and the branch of values that are no member
    for index, numbers in zip(members.tolist(), sets, strict=True):
        first, outside = len(value) + len(extra), int(false[index])
        mode[index], threshold[index] = EQ, numbers[0]
        after = [*range(first, first + len(numbers) - 1), outside]
        false[index] = after[0]
        extra += [(index, number, beyond) for number, beyond in zip(numbers[1:].tolist(), after[1:], strict=True)]
    ids, number, beyond = (np.array([row[k] for row in extra]) for k in range(3)) if extra else (np.empty(0, dtype=np.int64),) * 3
    nodes = (
        np.concatenate([mode, np.full(len(ids), EQ)]), np.concatenate([feature, feature[ids]]), np.concatenate([threshold, number]),
        np.concatenate([tracks, tracks[ids]]),
    )
    return nodes, (np.concatenate([true, true[ids]]), np.concatenate([false, beyond])), np.concatenate(
        [value, np.zeros((len(ids), value.shape[1]))]
    )


def _ensemble(
    node: OnnxNode, root: Integers, tests: tuple[npt.NDArray[np.generic], ...], children: tuple[Integers, Integers], value: Array,
    base: Array, aggregation: str, sets: Integers,
) -> Result:
    """Bring all comparisons into one form. tests: mode, feature, threshold, and whether a missing value takes the true branch.
    sets: features with splits by a set."""
    x = node.tensor(0)
    mode, feature, tracks = (np.asarray(tests[k], dtype=np.int64) for k in (0, 1, 3))
    threshold, k = np.asarray(tests[2], dtype=np.float64), len(value)
    if not all(len(array) == k for array in (mode, feature, threshold, tracks, *children)):
        raise node.error("its lists of nodes have different lengths")
    if len(base) != value.shape[1]:
        raise node.error(f"has {len(base)} base_values for {value.shape[1]} scores; supported is one for each")
    inner = mode != LEAF
    if (mode == MEMBER).any():
        raise node.error("has a node of mode 'BRANCH_MEMBER', which lists no set here; write a TreeEnsemble of ai.onnx.ml 5")
    if ((feature < 0) | (feature >= x.size))[inner].any():
        raise node.error(f"asks about feature {int(feature[inner].max())}, of {x.size}")
    if np.isnan(threshold[inner]).any():
        raise node.error("a threshold is NaN")
    (true, false), exact = children, True
    if aggregation == "AVERAGE":
        averaged = value / len(root)
        exact = bool((averaged * len(root) == value).all()) and len(root) & (len(root) - 1) == 0
        value = averaged
    # float32 numbers are compared: a number below t is at most the next one below
    at_most = floor32(threshold)
    with np.errstate(over="ignore"):    # overflow below the least float32 number, with which CatBoost tests for missing values
        previous = np.nextafter(at_most.astype(np.float32), np.float32(-np.inf)).astype(np.float64)
    strictly = np.where(at_most == threshold, previous, at_most)
    bound = np.where((mode == LT) | (mode == GTE), strictly, at_most)
    swapped = (mode == GTE) | (mode == GT) | (mode == NEQ)
    left, right = np.where(swapped, false, true), np.where(swapped, true, false)
    missing_true = (tracks == 1) | (mode == NEQ)        # NaN is unequal to everything, and otherwise no comparison holds
    missing_left = np.where(swapped, ~missing_true, missing_true)
    equal = np.flatnonzero((mode == EQ) | (mode == NEQ))
    second = k + np.arange(len(equal))                  # x = t: at most t, and not below it
    left_child, right_child = left[equal], right[equal]
    left[equal] = second
    impossible = at_most[equal] != threshold[equal]
    columns = {
        "feature": np.where(inner, feature, -1), "threshold": np.where(inner, bound, 0.0), "left": left, "right": right,
        "missing_left": missing_left,
    }
    second_nodes = (
        feature[equal], np.where(impossible, np.inf, strictly[equal]), right_child, left_child, ~missing_left[equal],
    )
    arrays = {name: np.concatenate([array, extra]) for (name, array), extra in zip(columns.items(), second_nodes, strict=True)}
    value = np.concatenate([value, np.zeros((len(equal), value.shape[1]))])
    if aggregation in ("MIN", "MAX"):
        root, arrays, value = _joined(node, root, arrays, value, aggregation)
    trees = StoredTrees(root=root, value=value, base=base, exact=exact, sets=sets, **arrays)
    number = len(node.sources)
    node.sources.append(NeuronSource(node=node.name, before=node.input_names[0], after=node.output_names[0], level=1, pre=x,
                                     slope=np.ones(value.shape[1]), trees=trees))
    return source_tensor(number, (value.shape[1],))


def _joined(node: OnnxNode, root: Integers, nodes: Nodes, value: Array, aggregation: str) -> tuple[Integers, Nodes, Array]:
    """Return one tree in place of several of which the least or largest score counts."""
    subject = f"aggregate_function {aggregation!r} of {len(root):,} trees"
    if value.shape[1] > 1:
        raise node.error(f"{subject} with {value.shape[1]} scores; supported is one: export each score as a model of its own")
    tree = least_tree(root, nodes, value[:, 0], largest=aggregation == "MAX")
    if tree is None:
        raise node.error(f"{subject}, which as one tree have more than {MOST_LEAVES:,} leaves: export fewer trees, or add up their "
                         "scores (SUM, AVERAGE)")
    return np.zeros(1, dtype=np.int64), tree[0], tree[1][:, None]


def floor32(values: Array) -> Array:
    """Return the largest float32 numbers that are at most `values`, as float64."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
        return np.where(rounded > values, np.nextafter(rounded, np.float32(-np.inf)), rounded).astype(np.float64)


def _no_transform(node: OnnxNode, transform: str) -> None:
    if transform != "NONE":
        raise node.error(f"post_transform {transform!r}; supported are NONE anywhere, LOGISTIC and SOFTMAX at the end of the graph")


def _zeros(node: OnnxNode, nodes: int) -> Array:
    """Return zeros (nodes, targets)."""
    targets = int(node.number("n_targets", 1))
    if targets > MOST_TARGETS:
        raise node.error(f"has {targets:,} targets; supported are {MOST_TARGETS:,} at most")
    return np.zeros((nodes, max(targets, 1)))


def _text(node: OnnxNode, name: str, default: str) -> str:
    return str(node.attributes.get(name, default))


def _has(node: OnnxNode, name: str) -> bool:
    return bool(node.attributes.get(name)) or f"{name}_as_tensor" in node.attributes


def _tensor(node: OnnxNode, name: str) -> npt.NDArray[np.generic]:
    return numpy_helper.to_array(node.attributes[name]).ravel()  # type: ignore[arg-type]


def _integers(node: OnnxNode, name: str) -> Integers:
    return np.array(node.attributes.get(name, []), dtype=np.int64)


def _numbers(node: OnnxNode, name: str) -> Array:
    """Return stored numbers, float32 in a list or float64 in a tensor."""
    if f"{name}_as_tensor" in node.attributes:
        return _tensor(node, f"{name}_as_tensor").astype(np.float64)
    return np.array(node.numbers(name) or [], dtype=np.float64)


def _keys(node: OnnxNode, treeid: Integers, nodeid: Integers) -> Integers:
    """Return one number for each pair of tree and node."""
    if not len(treeid) or len(nodeid) != len(treeid) or (treeid < 0).any() or (nodeid < 0).any() or (nodeid >= 2**31).any():
        raise node.error("its lists of nodes are empty, or have different lengths")
    key = treeid * 2**31 + nodeid
    if len(np.unique(key)) < len(key):
        raise node.error("two of its nodes have one number")
    return key


def _positions(node: OnnxNode, key: Integers, treeid: Integers, nodeid: Integers, needed: Booleans | None) -> Integers:
    """Return the positions of nodes in `key`; any position for those that are not `needed`."""
    if len(treeid) != len(nodeid):
        raise node.error("its lists of nodes have different lengths")
    order = np.argsort(key)
    position = order[np.minimum(np.searchsorted(key, treeid * 2**31 + nodeid, sorter=order), len(key) - 1)]
    missing = key[position] != treeid * 2**31 + nodeid
    if (missing if needed is None else missing & needed).any():
        raise node.error("a branch or a weight belongs to a node that does not exist")
    return np.asarray(position)


def _add(node: OnnxNode, value: Array, leaf: Integers, target: Integers, weight: Array) -> None:
    if len(target) != len(leaf) or len(weight) != len(leaf) or ((target < 0) | (target >= value.shape[1])).any():
        raise node.error(f"its weights do not fit its {value.shape[1]} scores")
    if len(np.unique(leaf * value.shape[1] + target)) < len(leaf):
        raise node.error("gives a leaf two weights for one score")
    if not np.isfinite(weight).all():
        raise node.error("its weights hold NaN or infinite numbers")
    value[leaf, target] = weight


TREE_OPERATORS: dict[str, Callable[[OnnxNode], Result]] = {"TreeEnsemble": _tree_ensemble, "TreeEnsembleRegressor": _regressor}
