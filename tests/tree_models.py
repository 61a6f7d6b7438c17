"""Tree ensembles of tests: as nested tuples, as ONNX files, and at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from encoders.model import Link
from encoders.trees.ensemble import TreeEnsemble

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


class Chains:
    """Random trees about sets of codes, each a chain of splits whose two ends are shared, as files of boosted trees hold them."""

    def __init__(self, rng: np.random.Generator, codes: dict[int, int]) -> None:
        """codes: how many codes, 0, 1, ..., each column has; columns of 2 and of 100 are numbers."""
        self.rng, self.codes, self.nodes = rng, codes, list[tuple[int, float, int, int, float]]()
        self.leaves, self.roots = 0, list[int]()

    def _node(self, column: int, threshold: float, left: int, right: int, value: float = 0.0) -> int:
        self.nodes.append((column, threshold, left, right, value))
        return len(self.nodes) - 1

    def add(self, depth: int) -> None:
        """Add a tree."""
        self.roots.append(self._tree(depth))

    def _tree(self, depth: int) -> int:
        if depth == 0:
            self.leaves += 1
            return self._node(-1, 0.0, len(self.nodes), len(self.nodes), float(np.float32(self.rng.normal())))
        inside, outside = self._tree(depth - 1), self._tree(depth - 1)
        column = int(self.rng.choice(list(self.codes)))
        count = self.codes[column]
        if count in (2, 100):
            return self._node(column, float(self.rng.integers(count - 1)), inside, outside)
        start = outside
        members = self.rng.choice(count, self.rng.integers(1, count - 1), replace=False)
        for code in sorted(members.tolist(), reverse=bool(self.rng.random() < 0.5)):
            below = self._node(column, code - 1.0, start, inside)     # x = code: x <= code, and not x <= code - 1
            start = self._node(column, float(code), below, start)
        return start

    def ensemble(self, **more: Any) -> TreeEnsemble:
        """Return the trees so far, of one score."""
        column, threshold, left, right, value = (np.array(values) for values in zip(*self.nodes, strict=True))
        return TreeEnsemble(
            root=np.array(self.roots), column=column, threshold=threshold, left=left, right=right,
            missing_left=np.zeros(len(column), dtype=bool), value=value[:, None], columns=len(self.codes),
            **{"base": np.zeros(1), "link": Link.IDENTITY, "source_sha256": "0" * 64, **more},
        )  # fmt: skip
