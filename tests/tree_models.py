"""Tree ensembles of tests: as nested tuples, as ONNX files, and at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Node = Any
"""A leaf: a list of weights, one for each score. A question: (feature, mode, threshold, node if it holds, node if not)."""
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def listed(trees: list[Node], *, missing: bool = False) -> tuple[dict[str, list[Any]], list[tuple[int, int, list[float]]]]:
    """The attributes of the nodes, and (tree, node, weights) of the leaves. missing: NaN goes the true way at every other node."""
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    found: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}
    leaves = []

    def add(tree: int, node: Node) -> int:
        number = found["nodes_treeids"].count(tree)
        if isinstance(node, list):
            row = (tree, number, 0, "LEAF", 0.0, 0, 0, 0)
            leaves.append((tree, number, node))
        else:
            row = (tree, number, node[0], node[1], node[2], 0, 0, int(missing and number % 2 == 0))
        for name, value in zip(names, row, strict=True):
            found[f"nodes_{name}"].append(value)
        if not isinstance(node, list):
            at = len(found["nodes_treeids"]) - 1
            found["nodes_truenodeids"][at], found["nodes_falsenodeids"][at] = add(tree, node[3]), add(tree, node[4])
        return number

    for tree, node in enumerate(trees):
        add(tree, node)
    return found, leaves


def save(
    path: Path, trees: list[Node], columns: int, *, classes: int = 0, transform: str = "NONE", base: list[float] | None = None,
    missing: bool = False, before: list[onnx.NodeProto] | None = None, **more: Any,
) -> Path:
    """An ONNX file: a classifier of so many classes, or a regressor. before: nodes that turn X into Z, which the trees ask."""
    nodes, leaves = listed(trees, missing=missing)
    kind = "class" if classes else "target"
    weights: dict[str, list[Any]] = {f"{kind}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree, number, values in leaves:
        for k, value in enumerate(values):
            for name, one in (("treeids", tree), ("nodeids", number), ("ids", k), ("weights", float(value))):
                weights[f"{kind}_{name}"].append(one)
    attributes = {**nodes, **weights, "post_transform": transform, **({} if base is None else {"base_values": base}), **more}
    scores = max(len(values) for _, _, values in leaves)
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, classes or scores])]
    if classes:
        attributes["classlabels_int64s"] = list(range(classes))
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, [None]))
    else:
        attributes.setdefault("n_targets", scores)
    node = helper.make_node(
        "TreeEnsembleClassifier" if classes else "TreeEnsembleRegressor", ["Z" if before else "X"], [one.name for one in outputs],
        name="trees", domain="ai.onnx.ml", **attributes,
    )
    given = [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, columns])]
    graph = helper.make_graph([*(before or []), node], "g", given, outputs)
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 15)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path


def random_tree(
    rng: np.random.Generator, columns: int, depth: int, *, scores: int = 1, modes: tuple[str, ...] = MODES,
    grid: np.ndarray | None = None,
) -> Node:
    """Thresholds are drawn from `grid`, so that many are equal, or next to each other in float32."""
    if depth == 0 or rng.random() < 0.15:
        return np.round(rng.normal(size=scores), rng.integers(1, 4)).astype(np.float32).tolist()
    thresholds = np.array([-1, 0, 0.5, 1, 2]) if grid is None else grid
    threshold = np.float32(rng.choice(thresholds))
    if rng.random() < 0.3:
        threshold = np.nextafter(threshold, np.float32(rng.choice([-9, 9])))
    below = [random_tree(rng, columns, depth - 1, scores=scores, modes=modes, grid=grid) for _ in range(2)]
    return (int(rng.integers(columns)), str(rng.choice(modes)), float(threshold), *below)


def value_of(node: Node, row: np.ndarray) -> list[float]:
    """What a tree gives for one row of float32 numbers, from the definition of the modes."""
    compare = {"BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal, "BRANCH_GT": np.greater,
               "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal}
    while not isinstance(node, list):
        feature, mode, threshold, true, false = node
        node = true if compare[mode](np.float32(row[feature]), np.float32(threshold)) else false
    return node
