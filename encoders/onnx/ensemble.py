"""From a graph with a tree ensemble to `TreeEnsemble`: thresholds in the model's own columns, and the check against onnxruntime.

Nodes in front of the trees (scalers, encoders) are never computed here. Every feature of the trees depends on one column, by
operations that round monotonically, so "feature <= t" is "column <= t'", and t' is found by bisection over float32 numbers with
onnxruntime itself. A feature made of a block of categories is evaluated at every category.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoders.arrays import Array, Floats, Integers
from encoders.curves.layer import Curve
from encoders.errors import ModelError
from encoders.exact.affine import ExactMatrix, as_column, as_vector
from encoders.model import Feed, Link
from encoders.onnx.feed import WHOLE, make_legal
from encoders.onnx.file import LogitsModel, StoredModel, class_labels, class_names
from encoders.onnx.graph import Reading
from encoders.onnx.operators.trees import StoredTrees
from encoders.onnx.runtime import decisions, open_session
from encoders.onnx.tensor import NeuronSource, Tensor
from encoders.trees.ensemble import TIE, TreeEnsemble
from encoders.trees.float32 import float32_errors

LARGEST_WHOLE = 2**24
PASSES = 6
"""Comparison rows, with every column next to a threshold, per threshold of the column that has most thresholds."""
MOST_ROWS = 20_000
"""The most of these rows: if there are more thresholds, some are drawn at random."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownColumns:
    """The features of a tree ensemble in terms of the model's columns.

    tensor: name of the node's input.   place: column of every neuron of source 0.   whole: (n,) columns of integers.
    block: (n,) number of the one-hot block that a column belongs to, -1 for none.
    """

    tensor: str
    x: Tensor
    place: Integers
    whole: Array
    block: Integers


def tree_ensemble(
    stored: StoredModel, logits: LogitsModel, reading: Reading, final: Tensor, feeds: tuple[Feed, ...], place: Integers, *,
    lines: bool = False,
) -> TreeEnsemble:
    """Return the ensemble that a graph computes. With `lines`, functions of the columns may be added; they are left out.
    Raises ModelError for any other computation, naming node and operator.   final: without squares (`expanded`)."""
    index = next(k for k, source in enumerate(reading.sources) if source.trees is not None)
    source = reading.sources[index]
    is_square = [lines and s.curve == Curve.SQUARE and k not in final.terms for k, s in enumerate(reading.sources)]
    other_sources = [s for k, s in enumerate(reading.sources) if k not in (0, index) and not is_square[k]]
    trees, x = source.trees, source.pre
    assert trees is not None
    assert x is not None
    assert source.before is not None
    if other_sources or set(final.terms) - {index, *([0] if lines else [])} or set(x.terms) - {0}:
        node = other_sources[0].node if other_sources else source.node
        raise ModelError(stored.path, "the graph computes with a tree ensemble and with something else; supported is one ensemble, "
                                      "scalers and encoders in front of it, sums and multiples of its scores behind it", node=node)
    n = len(place)
    integral, block, count = np.zeros(n, dtype=bool), np.full(n, -1), 0
    for feed in feeds:
        for position, start in enumerate(feed.start.tolist()):
            if position in feed.categories:
                block[start : start + len(feed.categories[position])], count = count, count + 1
            elif start >= 0:
                integral[start] = feed.kind in WHOLE
    known = KnownColumns(tensor=source.before, x=x, place=place, whole=integral, block=block)
    columns = _in_columns(stored, logits, feeds, known, trees, source)
    value, base, constant, exact = _behind(final, index, trees)
    voting = logits.link is Link.SHARES and len(base) == 1
    constant = constant - TIE * voting
    is_float32 = not any(feed.kind == "float64" for feed in feeds) and not reading.rounded and _plain(final, index)
    root, roots = columns["root"], len(columns["root"])
    if constant.any():      # one more number that is added: a tree without a split
        root = np.concatenate([root, [len(columns["column"])]])
        leaf = {"column": -1, "threshold": 0.0, "left": root[-1], "right": root[-1], "missing_left": False}
        columns |= {name: np.concatenate([columns[name], [number]]).astype(columns[name].dtype) for name, number in leaf.items()}
        value = np.concatenate([value, constant[None]])
    missing = len(columns["column"]) - len(value)
    value = np.concatenate([value[: len(trees.value)], np.zeros((missing, value.shape[1])), value[len(trees.value) :]])
    rounded = [*reading.rounded, *([] if exact else [source.node])]
    try:
        return TreeEnsemble(
            link=logits.link, source_sha256=stored.sha256, source=str(stored.path), rounded=tuple(dict.fromkeys(rounded)),
            feeds=feeds, classes=class_names(stored.model, max(len(base), 2)), root=root, column=columns["column"],
            threshold=columns["threshold"], left=columns["left"], right=columns["right"], missing_left=columns["missing_left"],
            value=value, base=base, columns=n, terms=roots + 4 + voting if is_float32 and exact else None,
        )
    except ValueError as error:
        raise ModelError(stored.path, f"its trees are none: {error}; export the model again") from error


def expanded(final: Tensor, sources: Sequence[NeuronSource]) -> tuple[Tensor, ExactMatrix | None]:
    """Return scores without squares of linear functions of one column each, and what the squares of the columns are multiplied by
    in them, None for nothing:  (a x + b)^2 = a^2 x^2 + 2 b (a x + b) - b^2,  exactly.

    Of columns far from 0 large numbers cancel then. They are rounded to float64 in the end, which moves a score by less than
    rounding the column to float32 may."""
    total: ExactMatrix | None = None
    for k, term in final.terms.items():
        pre = sources[k].pre
        linear = None if pre is None or set(pre.terms) != {0} else pre.terms[0]
        if sources[k].curve != Curve.SQUARE or linear is None or np.bincount(linear.row[linear.entries.nonzero]).max(initial=0) > 1:
            continue
        assert pre is not None
        squares = term @ ExactMatrix(start=linear.start, column=linear.column, entries=linear.entries * linear.entries)
        total = squares if total is None else total + squares
        without = replace(final, terms={s: t for s, t in final.terms.items() if s != k})
        final = without.plus(pre.scale(pre.const + pre.const).map(term, final.shape))
        final = final.shift(-as_vector(term @ as_column(pre.const * pre.const)))
        final = replace(final, inexact=tuple(dict.fromkeys([*final.inexact, sources[k].node])))
    return final, total


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnScores:
    """Terms of m scores in the columns and their squares: weights (m, n), for squares None if there are none; and the sizes of the
    parts of both (m, n) and of constants (m,).

    rounded: nodes whose constants gave weights that are no float64 numbers.
    """

    weight: Array
    square: Array | None
    size: Array
    square_size: Array
    constant: Array
    rounded: tuple[str, ...]

    @classmethod
    def of(cls, stored: StoredModel, final: Tensor, squares: ExactMatrix | None, place: Integers) -> ColumnScores | None:
        """Return the terms in columns of scores of trees and columns; None if there are none. Raises ModelError for numbers out of
        range."""
        if final.terms.get(0) is None and squares is None:
            return None
        coefficients, sizes = np.zeros((2, 2, final.size, len(place)))
        is_exact = True
        for k, term in enumerate((final.terms.get(0), squares)):
            if term is not None:
                numbers, term_exact = term.entries.rounded()
                np.add.at(coefficients[k], (term.row, place[term.column]), numbers)
                np.add.at(sizes[k], (term.row, place[term.column]), term.entries.size)
                is_exact = is_exact and term_exact
        if not np.isfinite(coefficients).all():
            raise ModelError(stored.path, f"folding its constants leaves the range of float64 (nodes {list(final.inexact)})")
        return cls(weight=coefficients[0], square=None if squares is None else coefficients[1], size=sizes[0], square_size=sizes[1],
                   constant=np.asarray(final.const.size, dtype=np.float64), rounded=() if is_exact else tuple(final.inexact))

    def at(self, x: Array) -> tuple[Array, Array]:
        """Return what columns add to the scores of rows (B, n), and the size of the numbers that this is made of."""
        value, size = x @ self.weight.T, np.abs(x) @ self.size.T + self.constant
        if self.square is not None:
            value, size = value + (x * x) @ self.square.T, size + (x * x) @ self.square_size.T
        return value, size


def _plain(final: Tensor, source: int) -> bool:
    """Return True if the logits are scores, perhaps negated and shifted, so that only the sum rounds."""
    term = final.terms[source]
    return bool((np.abs(term.entries.values.astype(np.float64)) == 1).all()) and len(np.unique(term.row)) == len(term.row)


def _behind(final: Tensor, source: int, trees: StoredTrees) -> tuple[Array, Array, Array, bool]:
    """Return leaves' values and base after the nodes behind the trees, the constant that these add, and True if all is exact."""
    term = final.terms[source]
    weights, is_exact = term.entries.rounded()
    matrix = np.zeros((final.size, trees.value.shape[1]))
    matrix[term.row, term.column] = weights
    constant, same_constant = final.const.rounded()
    if (matrix[matrix != 0] == 1).all() and ((matrix != 0).sum(axis=1) == 1).all():
        pick = matrix.argmax(axis=1)
        return trees.value[:, pick], trees.base[pick], constant, trees.exact and same_constant
    is_signed_pick = bool(np.isin(np.abs(matrix), (0.0, 1.0)).all()) and bool(((matrix != 0).sum(axis=1) == 1).all())
    return trees.value @ matrix.T, trees.base @ matrix.T, constant, trees.exact and is_exact and same_constant and is_signed_pick


def _in_columns(
    stored: StoredModel, logits: LogitsModel, feeds: Sequence[Feed], known: KnownColumns, trees: StoredTrees, source: NeuronSource
) -> dict[str, np.ndarray]:
    """Return the nodes' arrays with columns in place of features."""
    x, term = known.x, known.x.terms.get(0)
    arrays = {"root": trees.root, "column": trees.feature.copy(), "threshold": trees.threshold.copy(), "left": trees.left.copy(),
             "right": trees.right.copy(), "missing_left": trees.missing_left.copy()}
    inner = np.flatnonzero(trees.feature >= 0)
    entries = [np.empty(0, dtype=np.int64)] * x.size
    if term is not None:
        nonzero = term.entries.nonzero
        order = np.argsort(term.row[nonzero], kind="stable")
        rows, columns = term.row[nonzero][order], known.place[term.column[nonzero]][order]
        entries = np.split(columns, np.searchsorted(rows, np.arange(1, x.size)))
    is_copy = x.operations == 0 and x.const.is_float and not np.asarray(x.const.values, dtype=np.float64).any()
    if is_copy and term is not None:
        is_copy = bool((np.asarray(term.entries.values[term.entries.nonzero], dtype=np.float64) == 1).all())
    number = np.array([entry[0] if len(entry) == 1 else -1 for entry in entries])
    sets = set(trees.sets.tolist())
    integral = {feature for feature in sets if is_copy and known.whole[entries[feature]].all()}
    if is_copy and (number[trees.feature[inner]] >= 0).all() and sets == integral:
        arrays["column"][inner] = number[trees.feature[inner]]
        return arrays
    evaluator = _Evaluator(stored, logits, feeds, known)
    for feature in np.unique(trees.feature[inner]).tolist():
        nodes, columns = np.flatnonzero(trees.feature == feature), entries[feature]
        by_category = len(columns) > 0 and (known.block[columns] >= 0).all() and len(np.unique(known.block[columns])) == 1
        fraction = feature in sets - integral
        if fraction and by_category:
            values = evaluator.categories(feature, int(known.block[columns[0]]))[1]
            fraction = bool((values != np.floor(values)).any())
        if fraction:
            raise ModelError(stored.path, f"asks whether feature {feature} is in a set, and it may be a fraction, of which "
                                          "onnxruntime truncates some; take the column as an input of integers (INT64), or encode "
                                          "it as one-hot", node=source.node, op="TreeEnsemble")
        if len(columns) == 1:
            limit, decreasing = evaluator.thresholds(feature, int(columns[0]), trees.threshold[nodes])
            arrays["column"][nodes], arrays["threshold"][nodes] = columns[0], limit
            if decreasing:
                arrays["left"][nodes], arrays["right"][nodes] = trees.right[nodes], trees.left[nodes]
                arrays["missing_left"][nodes] = ~trees.missing_left[nodes]
        elif len(columns) == 0:
            value = evaluator.at(feature, np.zeros((1, len(known.place))))[0]
            arrays["column"][nodes], arrays["threshold"][nodes] = 0, np.where(value <= trees.threshold[nodes], np.inf, -np.inf)
        elif by_category:
            _by_category(arrays, nodes, evaluator.categories(feature, int(known.block[columns[0]])), trees.threshold[nodes])
        else:
            raise ModelError(stored.path, f"asks about feature {feature}, which depends on {len(columns)} columns; supported are "
                                          "features that depend on one column, or on one category", node=source.node, op="trees")
    return arrays


def _by_category(arrays: dict[str, np.ndarray], nodes: Integers, category: tuple[Integers, Array], thresholds: Array) -> None:
    """Replace splits of a number that stands for a category by splits of the categories, one after the other."""
    columns, values = category
    for node, threshold in zip(nodes.tolist(), thresholds.tolist(), strict=True):
        left, right = arrays["left"][node], arrays["right"][node]
        at_most = values <= threshold
        fewer = columns[at_most] if at_most.sum() <= (~at_most).sum() else columns[~at_most]
        inside, outside = (left, right) if at_most.sum() <= (~at_most).sum() else (right, left)
        if not len(fewer):
            arrays["column"][node], arrays["threshold"][node] = columns[0], np.inf
            arrays["left"][node], arrays["right"][node] = outside, outside
            continue
        first = len(arrays["column"])
        chain = [node, *range(first, first + len(fewer) - 1)]
        for name, fill in (("column", -1), ("threshold", 0.0), ("left", 0), ("right", 0), ("missing_left", True)):
            padding = np.full(len(fewer) - 1, fill, dtype=arrays[name].dtype)
            arrays[name] = np.concatenate([arrays[name], padding])
        arrays["column"][chain], arrays["threshold"][chain], arrays["right"][chain] = fewer, 0.5, inside
        arrays["left"][chain] = [*chain[1:], outside]


class _Evaluator:
    """Evaluates features of the trees at rows of the model's columns, by onnxruntime."""

    def __init__(self, stored: StoredModel, logits: LogitsModel, feeds: Sequence[Feed], known: KnownColumns) -> None:
        self.known, self.columns = known, len(known.place)
        self.session = open_session(stored.path, logits.model, [known.tensor], feeds)
        self.legal = np.zeros(self.columns)     # any row that the model takes
        for block in range(int(known.block.max(initial=-1)) + 1):
            self.legal[np.flatnonzero(known.block == block)[0]] = 1.0

    def at(self, feature: int, x: Array) -> Array:
        (values,) = self.session.run(x.astype(np.float32), [self.known.tensor])
        return values[:, feature]

    def categories(self, feature: int, block: int) -> tuple[Integers, Array]:
        """Return the columns of a block, and the feature's value at each category."""
        columns = np.flatnonzero(self.known.block == block)
        x = np.tile(self.legal, (len(columns), 1))
        x[:, columns] = np.eye(len(columns))
        return columns, self.at(feature, x)

    def thresholds(self, feature: int, column: int, limit: Array) -> tuple[Array, bool]:
        """Return the largest float32 numbers (N,) of the column at which the feature is at most `limit` (N,), and False; if the
        feature falls with the column, those at which it is larger, and True. -inf where there are none."""
        integral, block = bool(self.known.whole[column]), self.known.block[column] >= 0

        def value(key: Integers) -> Array:
            x = np.tile(self.legal, (len(key), 1))
            x[:, column] = _number(key, whole=integral)
            if block:       # another category, else
                others = np.flatnonzero((self.known.block == self.known.block[column]) & (np.arange(self.columns) != column))
                x[:, others] = 0.0
                x[x[:, column] == 0, others[0] if len(others) else column] = 1.0
            return self.at(feature, x)

        first, last = (0, 1) if block else (-LARGEST_WHOLE, LARGEST_WHOLE) if integral else (_key(-np.inf) + 1, _key(np.inf) - 1)
        if block:
            values = value(np.array([_key(0.0), _key(1.0)]))
            decreasing = bool(values[1] < values[0])
            holds = (values[:, None] > limit) if decreasing else (values[:, None] <= limit)
            return np.where(holds[1], np.inf, np.where(holds[0], 0.0, -np.inf)), decreasing
        ends = value(np.array([first, last]))
        decreasing = bool(ends[1] < ends[0])
        low, high = np.full(len(limit), first - 1), np.full(len(limit), last)      # holds at low, and not above high
        while (low < high).any():
            middle = low + (high - low + 1) // 2
            values = value(middle)
            holds = (values > limit) if decreasing else (values <= limit)
            low, high = np.where(holds, middle, low), np.where(holds, high, middle - 1)
        return np.where(low < first, -np.inf, _number(np.maximum(low, first), whole=integral)), decreasing


def _key(number: float) -> int:
    """Return the rank of a float32 number among all of them."""
    bits = int(np.float32(number).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def _number(key: Integers, *, whole: bool) -> Array:
    if whole:
        return key.astype(np.float64)
    bits = np.where(key >= 0, key, -key | 0x80000000).astype(np.uint32)
    return bits.view(np.float32).astype(np.float64)


def check_trees(
    stored: StoredModel, logits: LogitsModel, model: TreeEnsemble, x: Floats, random: np.random.Generator,
    lines: ColumnScores | None = None,
) -> Floats:
    """Compare scores and label with onnxruntime's: at x (B, n), and at rows all of whose columns lie next to thresholds. Returns
    all these rows.

    Raises ModelError for a score with a larger error than any order of a float32 sum explains, and for a label of another class.
    """
    rows = np.concatenate([x, _near_thresholds(model, x, random)])
    for feed in model.feeds:
        make_legal(feed, rows, random)
    here = model.forward(rows.astype(np.float64))
    (there,) = open_session(stored.path, logits.model, [logits.logits], model.feeds).run(rows, [logits.logits])
    size = model.largest
    errors = float32_errors(model)
    allowed = np.where(np.isfinite(errors), errors, (len(model.root) + 8) * 2.0**-23 * size)
    if lines is not None:
        added, reach = lines.at(rows.astype(np.float64))
        here, allowed = here + added, allowed + (lines.weight.shape[1] + 16) * 2.0**-23 * reach
    if here.shape != there.shape:
        raise ModelError(stored.path, f"the import gives {here.shape[1]} scores, onnxruntime {there.shape[1]}; please report it")
    wrong = ~(np.abs(here - there) <= allowed)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        most = np.broadcast_to(allowed, here.shape)[row, column]
        raise ModelError(stored.path, f"the import does not reproduce onnxruntime at x = {rows[row].tolist()[:1000]}: "
                                      f"{here[row, column]:.9g} here, {there[row, column]:.9g} in onnxruntime (allowed "
                                      f"{most:.2g}); please report this model", op="import check", node="trees")
    _check_label(stored, logits, model, rows, there)
    return rows


def _check_label(stored: StoredModel, logits: LogitsModel, model: TreeEnsemble, rows: Floats, scores: Array) -> None:
    """Compare the class that the runtime names with the one that its own scores decide by verifair's rule."""
    node = next((n for n in stored.model.graph.node if logits.label in n.output), None)
    if logits.label is None or node is None or (logits.link is Link.SOFTMAX and model.outputs == 2):
        return
    labels = class_labels({a.name: list(a.ints) for a in node.attribute if a.ints})
    if not labels:      # labels are words, but a session returns only numbers
        return
    (shown,) = open_session(stored.path, stored.model, [logits.label], model.feeds).run(rows, [logits.label])
    expected = np.array(labels, dtype=np.float64)[decisions(scores)]
    ordered = np.sort(scores, axis=1)
    distance = np.abs(scores[:, 0]) if scores.shape[1] == 1 else ordered[:, -1] - ordered[:, -2]
    ties = distance <= 2 * float32_errors(model).max()        # two runs may add in two orders
    differs = np.flatnonzero((shown[:, 0] != expected) & ~ties)
    if len(differs):
        raise ModelError(stored.path, f"its label at x = {rows[differs[0]].tolist()[:1000]} is {shown[differs[0], 0]:g}, and its "
                                      f"scores decide {expected[differs[0]]:g}: no decision follows both; please report this model",
                         node=logits.label, op="import check")


def _near_thresholds(model: TreeEnsemble, x: Floats, random: np.random.Generator) -> Floats:
    """Return rows (B, n) in which every column that is split is a threshold, or the next float32 number on either side."""
    inner = (model.column >= 0) & np.isfinite(model.threshold)
    order = np.flatnonzero(inner)[np.argsort(model.column[inner])]
    thresholds = {int(model.column[part[0]]): np.unique(model.threshold[part])
             for part in np.split(order, np.flatnonzero(np.diff(model.column[order])) + 1) if len(part)}
    longest = max((len(values) for values in thresholds.values()), default=0)
    rows = np.repeat(x[:1], min(PASSES * longest, MOST_ROWS), axis=0)
    rows = x[random.integers(len(x), size=len(rows))] if len(rows) else rows
    for column, limits in thresholds.items():
        copies = np.tile(limits.astype(np.float32), (len(rows) // len(limits) + 1, 1))
        cut = random.permuted(copies, axis=1).reshape(-1)[: len(rows)]
        step = random.integers(-1, 2, size=len(rows))
        with np.errstate(over="ignore"):
            rows[:, column] = np.where(step == 0, cut, np.nextafter(cut, np.where(step > 0, np.inf, -np.inf).astype(np.float32)))
    largest = np.finfo(np.float32).max
    return np.asarray(np.clip(rows, -largest, largest))

