"""A guardrail: the network with an extra output that says which inputs it refuses to judge.  (HyFair, mitigation 1)

Rules are closed boxes of raw variables; the deployed network sees float32 columns. Encoding is monotone, so a raw box is a box
of columns, but a real-valued raw number just outside may round to the same float32 column as the box's end. `snapped` therefore
moves each end to the outermost raw number with the same column. After that, for every legal row,

    the wrapper refuses the columns of the row    iff    the row lies in a raw box,

so a property that is certified outside the boxes (see `guarded_schema`) holds for everything that the wrapper answers. Sound? yes.

Refused rows get NaN in every output of floating type, and in probabilities by class, so that nobody uses them by mistake. Outputs
of other types (class labels) have no NaN and keep their value: read `abstain` first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.errors import ModelError
from encoders.model import NO_COLUMN, Feed, Model
from encoders.onnx import file as onnx_file
from encoders.onnx.reader import read_model
from encoders.onnx.runtime import open_session
from encoders.onnx.tensor import graph_input, graph_inputs
from verifair.errors import DataError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.refusals import earlier
from verifair.systems.hyfair.explain.rules import Rule, refused
from verifair.systems.hyfair.explain.rules_file import when

ABSTAIN = "abstain"
OLDEST_OPSET = 9
"""The first opset with the operator `Where`."""
NEW_OPSET = 15
"""For models without operators of the default set."""
OLDEST_IR = 4
"""The first version of the format in which constants need not be inputs as well. CatBoost writes 3."""
PREFIX = "guard/"
FLOATS = {"float32", "float64"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """The rules in network columns: row x is refused by rule f iff lower[f] <= x[columns] <= upper[f], (F, C) each."""

    columns: Integers
    lower: Array
    upper: Array


def columns_of(rules: Sequence[Rule], domain: Domain) -> Columns:
    """Return the thresholds of snapped rules, as float32 numbers. A one-hot block lies in a set of categories iff no other column
    is 1."""
    lower = np.full((len(rules), domain.columns), -np.inf)
    upper = np.full((len(rules), domain.columns), np.inf)
    for f, rule in enumerate(rules):
        for v in rule.conditions:
            start, width = int(domain.start[v]), int(domain.width[v])
            if domain.one_hot[v]:
                index = np.arange(width)
                upper[f, start : start + width][(index < rule.lower[v]) | (index > rule.upper[v])] = 0.5
                continue
            column = domain.take(np.array([v]))
            for ends, raw in ((lower, rule.lower[v]), (upper, rule.upper[v])):
                if np.isfinite(raw):
                    ends[f, start] = column.encode(np.array([[raw]]))[0, 0]
    used = np.flatnonzero(np.isfinite(lower).any(axis=0) | np.isfinite(upper).any(axis=0))
    return Columns(columns=used, lower=lower[:, used], upper=upper[:, used])


def guard(model: str | Path | Model, rules: Sequence[Rule], schema: Schema) -> onnx.ModelProto:
    """Return the stored model with masked outputs and a new bool output `abstain` [N]; rules must be snapped.

    It refuses the rows of these rules, and of the `earlier` rules if the schema is guarded already.
    model: the ONNX file, or a model that was read from one. Raises ModelError for a model that cannot be wrapped: an opset that
    onnx cannot raise to OLDEST_OPSET, names of the guardrail's own such as `abstain`, or
    a network without a file.
    """
    if isinstance(model, Model):
        if model.source is None:
            raise ModelError("network", "was not read from a file; a guardrail wraps an ONNX file: export it, and pass the file")
        stored, feeds = onnx_file.stored_model(model), model.feeds
    else:
        stored = onnx_file.load(model)
        feeds = tuple(graph_inputs(stored.path, stored.model)[0])
        if not {feed.kind for feed in feeds} <= FLOATS or sum(feed.columns for feed in feeds) != schema.domain.columns:
            feeds = read_model(model).feeds  # it may encode numbers
    model = stored.path
    if all(node.domain not in ("", "ai.onnx") for node in stored.model.graph.node):  # only tree operators: any opset version works
        stored.model.opset_import.append(helper.make_opsetid("", NEW_OPSET))
    _raise_opset(model, stored.model)
    stored.model.ir_version = max(stored.model.ir_version, OLDEST_IR)
    graph = stored.model.graph
    if ABSTAIN in {output.name for output in graph.output}:
        raise ModelError(model, f"has an output {ABSTAIN!r} already: it is guarded; put all rules into one guardrail of the model")
    tensors = [*(t.name for t in (*graph.input, *graph.initializer)), *(t for node in graph.node for t in node.output)]
    for existing in tensors:
        if existing == ABSTAIN or existing.startswith(PREFIX):
            raise ModelError(model, f"calls a tensor {existing!r}, as a guardrail calls its own; export it with another name")
    name, width, kind = _input(stored.path, stored.model, feeds)
    reduced = next((feature for feature in schema.features if feature.dropped is not None), None)
    if reduced is not None:
        raise ModelError(
            model, f"has no column for {reduced.name} = {reduced.dropped}, and a guardrail's rules are about columns; fit it on a "
            "table with a column for each category"
        )
    if width != schema.domain.columns:
        raise ModelError(model, f"takes {width} columns, the schema describes {schema.domain.columns}")
    rules = [*earlier(schema), *rules]
    _add_abstain(graph, name, width, kind, columns_of(rules, schema.domain))
    for output in graph.output:
        if output.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            _mask(model, graph, output)
    for node in [node for node in graph.node if node.op_type == "ZipMap"]:  # probabilities by class, a graph's last nodes
        graph.node.remove(node)
        _mask_input(graph, node)
        graph.node.append(node)
    graph.output.append(helper.make_tensor_value_info(ABSTAIN, TensorProto.BOOL, [None]))
    helper.set_model_props(
        stored.model,
        {p.key: p.value for p in stored.model.metadata_props}
        | {"guard_model_sha256": stored.sha256, "guard_rules_sha256": _digest(rules, schema)},
    )
    onnx.checker.check_model(stored.model)
    return stored.model


def _raise_opset(path: Path, model: onnx.ModelProto) -> None:
    """Convert a model below OLDEST_OPSET, such as of onnxmltools' LightGBM, to it. Raises ModelError if onnx cannot."""
    found, kept = onnx_file.opset(model), list(model.metadata_props)
    if found < OLDEST_OPSET:
        try:
            model.CopyFrom(version_converter.convert_version(model, OLDEST_OPSET))
        except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelError(path, f"opset {found}; a guardrail needs {OLDEST_OPSET} or later: export it again ({error})") from None
        del model.metadata_props[:]
        model.metadata_props.extend(kept)


def _input(path: Path, model: onnx.ModelProto, feeds: Sequence[Feed]) -> tuple[str, int, npt.DTypeLike]:
    """Return name, width and type of the tensor of all network columns: the only input, if it is that, or an added concatenation.

    There, words and numbers that the model encodes become a column of 0 and 1 for each category, whole numbers become float32.
    """
    kinds = {feed.kind for feed in feeds}
    if len(feeds) == 1 and kinds <= FLOATS and not feeds[0].categories:
        name, shape, _ = graph_input(path, model)
        return name, int(np.prod(shape)), np.dtype(feeds[0].kind)
    dtype = np.dtype(kinds.pop() if kinds == {"float64"} else "float32")
    parts = sorted(part for k, feed in enumerate(feeds) for part in _parts(model.graph, feed, f"{PREFIX}input/{k}", dtype))
    name = PREFIX + "inputs"
    model.graph.node.append(helper.make_node("Concat", [part for _, part in parts], [name], name=name, axis=1))
    return name, sum(feed.columns for feed in feeds), dtype


def _parts(graph: onnx.GraphProto, feed: Feed, whole: str, dtype: np.dtype[Any]) -> Iterator[tuple[int, str]]:
    """Add nodes that make network columns of an input; yield the first column and the tensor (N, columns) of each part.

    whole: a name for the tensor of the input's entries (N, w), which begins the names of the others.
    """

    def node(op: str, operands: Sequence[str], output: str, **attributes: Any) -> str:
        graph.node.append(helper.make_node(op, operands, [output], name=output, **attributes))
        return output

    def constant(name: str, value: object) -> str:
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    node("Reshape", [feed.name, constant(f"{whole}/shape", np.array([-1, len(feed.start)]))], whole)
    to = helper.np_dtype_to_tensor_dtype(dtype)
    if not feed.categories and (np.diff(feed.start) == 1).all() and feed.start[0] != NO_COLUMN:
        yield int(feed.start[0]), whole if feed.kind == dtype.name else node("Cast", [whole], f"{whole}/number", to=to)
        return
    for position, start in enumerate(feed.start):
        if start == NO_COLUMN:
            continue
        tag = f"{whole}/{position}"
        part = node("Gather", [whole, constant(f"{tag}/at", np.array([position]))], f"{tag}/one", axis=1)
        categories = feed.categories.get(position, ())
        if categories and feed.kind == "text":  # of a model with operators of this domain, as no other reads words
            block = node("OneHotEncoder", [part], f"{tag}/block", domain="ai.onnx.ml", zeros=1, cats_strings=list(categories))
            part = node("Reshape", [block, constant(f"{tag}/shape", np.array([-1, len(categories)]))], f"{tag}/flat")
        elif categories:
            values = constant(f"{tag}/categories", np.array([categories], dtype=feed.kind))
            other = [node(op, [part, values], f"{tag}/{op}") for op in ("Less", "Greater")]
            part = node("Not", [node("Or", other, f"{tag}/other")], f"{tag}/equal")
        yield int(start), node("Cast", [part], f"{tag}/number", to=to)


def is_guarded(model: Path) -> bool:
    """Return True if the ONNX file has a guardrail."""
    return ABSTAIN in {output.name for output in onnx_file.load(model).model.graph.output}


def _digest(rules: Sequence[Rule], schema: Schema) -> str:
    return hashlib.sha256(json.dumps([when(rule, schema) for rule in rules], sort_keys=True).encode()).hexdigest()


def _add_abstain(graph: onnx.GraphProto, name: str, width: int, dtype: npt.DTypeLike, rules: Columns) -> None:
    """Add nodes for abstain = some rule has no column outside. Counts of columns and rules are small whole numbers: sums are
    exact."""
    f, c = rules.lower.shape
    constants = {
        "wide": np.array([-1, width]), "pick": rules.columns, "apart": np.array([-1, 1, c]), "flat": np.array([-1]),
        "lower": rules.lower.astype(dtype)[None], "upper": rules.upper.astype(dtype)[None],
        "sum_columns": np.ones((c, 1), dtype=np.float32), "sum_rules": np.ones((1, f), dtype=np.float32),
        "half": np.array(0.5, dtype=np.float32),
    }  # fmt: skip
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), PREFIX + key) for key, value in constants.items())

    def node(op: str, inputs: str, output: str, attributes: dict[str, Any] | None = None) -> None:
        operands = [PREFIX + operand if operand else name for operand in inputs.split("|")]
        result = output if output == ABSTAIN else PREFIX + output
        graph.node.append(helper.make_node(op, operands, [result], name=PREFIX + "node/" + output, **(attributes or {})))

    node("Reshape", "|wide", "rows")
    node("Gather", "rows|pick", "picked", {"axis": 1})
    node("Reshape", "picked|apart", "points")  # (N, 1, C) against (1, F, C)
    node("Less", "points|lower", "below")
    node("Greater", "points|upper", "above")
    node("Or", "below|above", "outside")
    node("Cast", "outside", "outside_number", {"to": TensorProto.FLOAT})
    node("MatMul", "outside_number|sum_columns", "columns_outside")  # (N, F, 1)
    node("Less", "columns_outside|half", "hit")
    node("Cast", "hit", "hit_number", {"to": TensorProto.FLOAT})
    node("MatMul", "sum_rules|hit_number", "rules_hit")  # (N, 1, 1)
    node("Greater", "rules_hit|half", "refused")
    node("Reshape", "refused|flat", ABSTAIN)


def _mask(model: Path, graph: onnx.GraphProto, output: onnx.ValueInfoProto) -> None:
    """Add nodes for output = NaN where abstain; the original output gets a new name."""
    name, inner = output.name, PREFIX + "answer/" + output.name
    if not any(name in node.output for node in graph.node):
        raise ModelError(model, f"output {name!r} is an input or a constant, not computed; there is nothing to guard")
    for node in graph.node:
        for names in (node.input, node.output):
            for k, tensor in enumerate(names):
                if tensor == name:
                    names[k] = inner
    dtype = helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
    rank = max(1, len(output.type.tensor_type.shape.dim))
    tag = PREFIX + "mask/" + name
    graph.initializer.append(numpy_helper.from_array(np.array(np.nan, dtype=dtype), tag + "/nan"))
    graph.initializer.append(numpy_helper.from_array(np.array([-1] + [1] * (rank - 1), dtype=np.int64), tag + "/shape"))
    graph.node.append(helper.make_node("Reshape", [ABSTAIN, tag + "/shape"], [tag + "/refused"], name=tag + "/reshape"))
    graph.node.append(helper.make_node("Where", [tag + "/refused", tag + "/nan", inner], [name], name=tag + "/where"))


def _mask_input(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    """Mask the probabilities (N, classes) that a node turns into dictionaries."""
    tag = PREFIX + "mask/" + node.output[0]
    graph.initializer.append(numpy_helper.from_array(np.array(np.nan, dtype=np.float32), tag + "/nan"))
    graph.initializer.append(numpy_helper.from_array(np.array([-1, 1], dtype=np.int64), tag + "/shape"))
    graph.node.append(helper.make_node("Reshape", [ABSTAIN, tag + "/shape"], [tag + "/refused"], name=tag + "/reshape"))
    graph.node.append(helper.make_node("Where", [tag + "/refused", tag + "/nan", node.input[0]], [tag], name=tag + "/where"))
    node.input[0] = tag


def abstains(path: Path, model: onnx.ModelProto, x: Array, feeds: Sequence[Feed] = ()) -> Booleans:
    """Return (B,) the `abstain` output of onnxruntime for network inputs x (B, n).   feeds: of a model that encodes its inputs."""
    (output,) = open_session(path, model, [ABSTAIN], feeds, x.shape[1] if feeds else None).run(x, [ABSTAIN])
    return np.asarray(output[:, 0] != 0)


def edge_rows(rules: Sequence[Rule], schema: Schema, count: int, rng: np.random.Generator) -> Array:
    """Return (M, V) legal raw rows around each end of every rule: at the end, and one step inside and outside."""
    domain, rows = schema.domain, []
    for rule in rules:
        low, high = np.maximum(rule.lower, domain.lower), np.minimum(rule.upper, domain.upper)
        within = low + (high - low) * rng.random((count, domain.variables))
        within = np.where(domain.integer, np.clip(np.rint(within), low, high), within)
        rows.append(within)
        for v in rule.conditions:
            for end in (rule.lower[v], rule.upper[v]):
                for direction in (-np.inf, np.inf):
                    step = end + np.sign(direction) if domain.integer[v] else np.nextafter(end, direction)
                    for value in (end, step):
                        row = within.copy()
                        row[:, v] = value
                        rows.append(row)
    raw = np.concatenate(rows)
    is_finite = np.isfinite(raw).all(axis=1)
    return np.asarray(raw[is_finite][domain.legal(raw[is_finite])])


def check_agreement(
    path: Path, model: onnx.ModelProto, rules: Sequence[Rule], schema: Schema, raw: Array, feeds: Sequence[Feed] = ()
) -> None:
    """Raise DataError unless the wrapper refuses exactly the raw rows (B, V) that lie in a rule's box."""
    if not len(raw):
        return
    actual, expected = abstains(path, model, schema.encode(raw), feeds), refused(rules, raw)
    diff = np.flatnonzero(actual != expected)
    if len(diff):
        raise DataError(
            f"{path}: the guarded network and the rules disagree on {len(diff)} of {len(raw)} rows, first "
            f"{schema.decode(raw[diff[0]])}: refused {bool(actual[diff[0]])}, by the rules {bool(expected[diff[0]])}; nothing was "
            "written, please report this"
        )
