"""An ONNX file as it is stored: read, validated and hashed, and split into the logits and the link behind them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from encoders.errors import ModelError, ModelFileError
from encoders.model import Link, Model
from encoders.onnx import mean_tail, tree_tail
from encoders.onnx.functions import inlined

if TYPE_CHECKING:
    from encoders.trees.mean import Ramps

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
LISTS = (onnx.AttributeProto.FLOATS, onnx.AttributeProto.INTS)
MEMORY = "model in memory"
"""The name of a model in messages if it is not a file."""
_RUNS_CODE = "a pickle, which may run any code when it is loaded, so that verifair never loads one"
OTHER_FORMATS = {
    **dict.fromkeys((".pkl", ".pickle", ".joblib", ".skops", ".dill", ".cloudpickle"), _RUNS_CODE),
    **dict.fromkeys((".pt", ".pth", ".ckpt"), f"a file of PyTorch: {_RUNS_CODE}"),
    ".ubj": "a file of XGBoost", ".cbm": "a file of CatBoost", ".h5": "a file of Keras", ".keras": "a file of Keras",
}
"""Suffix -> the kind of such a file."""
CLASS_LABELS = ("classlabels_strings", "classlabels_ints", "classlabels_int64s")


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredModel:
    """A model in memory, with its external weights loaded and its local functions inlined.

    sha256: over the file's bytes, followed by the bytes of each file of external weights in the order of their names;
    for a model in one file it is that file's plain sha256.   files: all files that were read.
    data: the model's bytes if it was not read from a file; `path` is then only its name in messages.
    """

    path: Path
    model: onnx.ModelProto
    sha256: str
    files: tuple[Path, ...]
    data: bytes | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitsModel:
    """The part of a stored model up to the logits.

    model: in-memory model whose only output is the tensor `logits`.
    shown: the tensor of the stored model that its user sees, link(logits).
    link_node, link_axis: the softmax node and its axis as written, for the reader's check; None for other links.
    label: the tensor of the stored model with the classes that a tree ensemble decides; None for other models.
    mean: if the logit is a sum of functions of trees' scores, the part up to these, and the functions.
    """

    model: onnx.ModelProto
    logits: str
    link: Link
    shown: str
    link_node: str | None = None
    link_axis: int | None = None
    label: str | None = None
    mean: tuple[LogitsModel, Ramps] | None = None


def load(given: str | Path | bytes | onnx.ModelProto, name: str = MEMORY) -> StoredModel:
    """Read and validate an ONNX model: a file, its bytes, or the model itself.   name: of the latter two, for messages.

    Raises ModelFileError (exit code 2) for a missing, unreadable or damaged file, and for one of a format that runs code when it
    is loaded.
    """
    content = given.SerializeToString(deterministic=True) if isinstance(given, onnx.ModelProto) else given
    path = Path(name) if isinstance(content, bytes) else Path(content)
    if not isinstance(content, bytes) and (kind := OTHER_FORMATS.get(path.suffix.lower())) is not None:
        raise ModelFileError(path, f"is {kind}; give an .onnx file, or load it yourself and pass the fitted object")
    data = content if isinstance(content, bytes) else _bytes(path, path, "give the path of an .onnx file")
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelFileError(path, f"not a readable ONNX file ({len(data)} bytes; truncated, or another format): "
                               "export or copy it again") from error
    if isinstance(content, bytes) and any(map(external_data_helper.uses_external_data, stored_tensors(model))):
        raise ModelFileError(path, "keeps weights in other files, and in memory it has none beside it; give the path of its file")
    files = external_files(path, model)
    digest = hashlib.sha256(data)
    for file in files:
        digest.update(_bytes(path, file, "external weights must lie beside the model, under the name they had"))
    try:
        if files:
            with warnings.catch_warnings():     # keys that onnx does not know and ignores
                warnings.simplefilter("ignore", UserWarning)
                external_data_helper.load_external_data_for_model(model, str(path.parent))
        onnx.checker.check_model(model)
        check_numbers(path, model)
        model = inlined(model)
        for node in model.graph.node:           # each needs a value; a reference to a function's argument has none
            for attribute in node.attribute:
                if attribute.ref_attr_name or attribute.type not in LISTS:  # lists of trees have millions of numbers
                    _read(helper.get_attribute_value(attribute))
    except (onnx.checker.ValidationError, TypeError, ValueError, RuntimeError, OSError) as error:
        reason = next(iter(str(error).strip().splitlines()), "no reason given")
        raise ModelFileError(path, f"not a valid ONNX model (truncated or damaged?): {reason}") from error
    if isinstance(content, bytes):
        return StoredModel(path=path, model=model, sha256=digest.hexdigest(), files=(), data=content)
    return StoredModel(path=path, model=model, sha256=digest.hexdigest(), files=(path, *files))


def stored_model(network: Model) -> StoredModel:
    """Read the file or bytes of a network again.

    Raises ModelError if there are none, or if the file has changed since the network was read.
    """
    if network.source is None:
        raise ModelError("network", "was not read from a file or from a model in memory, so there is nothing to replay")
    stored = load(network.source if network.stored is None else network.stored, network.source)
    if stored.sha256 != network.source_sha256:
        raise ModelError(network.source, f"has changed since it was read (sha256 {stored.sha256[:12]}..., expected "
                                         f"{network.source_sha256[:12]}...): read it again")
    return stored


def save_onnx(network: Model, path: str | Path) -> None:
    """Write the ONNX model from which a network was read; reading this file gives the same network, with the same hash.

    Raises ModelError if the model's bytes are not known, or if it keeps its weights in other files.
    """
    stored = stored_model(network)
    if len(stored.files) > 1:
        names = ", ".join(file.name for file in stored.files)
        raise ModelError(stored.path, f"keeps weights in other files; copy all of them: {names}")
    Path(path).write_bytes(stored.path.read_bytes() if stored.data is None else stored.data)


def node_name(node: onnx.NodeProto) -> str:
    """Return a node's name for messages: exporters may leave a node nameless, but its first output always has a name."""
    return str(node.name or next(iter(node.output), "without a name"))


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    """Return a node's attributes by name, texts as str. Raises ValueError for one that has no type or is no UTF-8."""
    return {a.name: _read(helper.get_attribute_value(a)) for a in node.attribute}


def _read(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], bytes):  # long lists of numbers stay as they are
        return [item.decode() for item in value]
    return value.decode() if isinstance(value, bytes) else value


def opset(model: onnx.ModelProto) -> int:
    """Return the version of the default operator set."""
    return max((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)


def producers(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {name: node for node in model.graph.node for name in node.output if name}


def logits_model(stored: StoredModel, output: str | None) -> LogitsModel:
    """Find the output that carries the decision, and cut the graph before its sigmoid or softmax.

    Tails that are recognised: Sigmoid, Softmax, LogSoftmax, Identity and ZipMap, scikit-learn's binary pair (1 - p,
    p), and its LinearClassifier and tree ensembles with their own post-transforms. For a binary pair the one logit is that of the
    second class. output: name of a graph output or of any other tensor; None takes the only output of floating type.
    """
    by_output = producers(stored.model)
    shown = _shown_tensor(stored, by_output, output)
    name = _through(by_output, shown, {"Identity", "Cast", "Normalizer"})
    pair = _pair(stored.model, by_output, name)
    reshaped = {"Identity", "Cast", "Squeeze", "Unsqueeze", "Flatten", "Reshape"}
    inner = by_output.get(pair or _through(by_output, shown, reshaped))
    if inner is not None and inner.op_type == "Sigmoid":
        cut = _cut(stored.model, inner.input[0], Link.SIGMOID, shown)
        return _with_functions(stored, by_output, inner.input[0], cut)
    if pair is not None and (mean := mean_tail.sum_of(by_output, partial(_constant, stored.model), pair)) and mean.whole:
        cut = _followed(_cut(stored.model, pair, Link.SHARES, shown), "above_half", "Sub", np.array([0.5], dtype=np.float32))
        return _with_functions(stored, by_output, pair, cut)
    node = by_output.get(name)
    if node is not None and node.op_type in ("Softmax", "LogSoftmax"):
        link = Link.SOFTMAX if node.op_type == "Softmax" else Link.LOG_SOFTMAX
        axis = attributes(node).get("axis", -1 if opset(stored.model) >= 13 else 1)
        assert isinstance(axis, int)
        return _cut(stored.model, node.input[0], link, shown, link_node=node_name(node), link_axis=axis)
    if node is not None and node.op_type == "LinearClassifier" and list(node.output).index(name) == 1:
        return _cut_classifier(stored, node, name, shown)
    if node is not None and (node.op_type in tree_tail.REGRESSORS or (
            node.op_type == tree_tail.CLASSIFIER and list(node.output).index(name) == 1)):
        return _cut_trees(stored, node, name, shown)
    return _cut(stored.model, _through(by_output, shown, {"Identity", "Cast"}), Link.IDENTITY, shown)


def _bytes(model: Path, file: Path, remedy: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        detail = "" if file == model else f" (external weights {file.name!r})"
        raise ModelFileError(model, f"cannot be read{detail}: {error.strerror or error}; {remedy}") from error


def _shown_tensor(stored: StoredModel, by_output: dict[str, onnx.NodeProto], output: str | None) -> str:
    """Return the tensor of the chosen output; for a ZipMap, the probabilities that it wraps."""
    outputs = list(stored.model.graph.output)
    names = ", ".join(repr(o.name) for o in outputs) or "none"
    if output is not None:
        if output not in by_output:
            raise ModelError(stored.path, f"has no tensor {output!r}; its outputs are: {names}")
        candidates = [output]
    else:
        candidates = [o.name for o in outputs if not o.type.HasField("tensor_type")
                      or o.type.tensor_type.elem_type not in (TensorProto.INT64, TensorProto.INT32, TensorProto.STRING)]
    if len(candidates) != 1:
        problem = "no output of floating type" if not candidates else "several outputs that could carry the decision"
        raise ModelError(stored.path, f"{problem} (outputs: {names}); "
                                      "name the tensor that holds the logits or probabilities with output=...")
    node = by_output.get(candidates[0])
    return str(node.input[0]) if node is not None and node.op_type == "ZipMap" else candidates[0]


def _through(by_output: dict[str, onnx.NodeProto], name: str, passing: set[str]) -> str:
    """Step back over nodes that do not change the numbers (a Normalizer does not only after a softmax or a pair)."""
    while (node := by_output.get(name)) is not None and node.op_type in passing:
        if node.op_type == "Cast" and attributes(node).get("to") not in FLOATS:
            break
        if node.op_type == "Normalizer" and not _sums_to_one(by_output.get(node.input[0]), node):
            break
        name = node.input[0]
    return name


def _sums_to_one(below: onnx.NodeProto | None, normalizer: onnx.NodeProto) -> bool:
    if below is None or attributes(normalizer).get("norm") != "L1":
        return False
    transform = attributes(below).get("post_transform")
    return below.op_type == "Softmax" or (below.op_type == "LinearClassifier" and (
        transform == "SOFTMAX" or (transform == "LOGISTIC" and _antisymmetric(below))))


def _pair(model: onnx.ModelProto, by_output: dict[str, onnx.NodeProto], name: str) -> str | None:
    """Return the name p if `name` is  Concat(1 - p, p)  along the columns, the end of scikit-learn's binary classifiers."""
    concat = by_output.get(name)
    if concat is None or concat.op_type != "Concat" or len(concat.input) != 2:
        return None
    if attributes(concat)["axis"] not in (1, -1):
        return None
    minus, p = by_output.get(concat.input[0]), str(concat.input[1])
    if minus is None or minus.op_type != "Sub" or minus.input[1] != p:
        return None
    unit = _constant(model, minus.input[0])
    return p if unit is not None and unit.size == 1 and bool((unit == 1).all()) else None


def _constant(model: onnx.ModelProto, name: str) -> npt.NDArray[Any] | None:
    """Return the real numbers of an initializer or of a Constant node; None if there are none of that name."""
    nodes = {n.output[0]: n.attribute[0].t for n in model.graph.node if n.op_type == "Constant" and n.attribute}
    tensor = next((initializer for initializer in model.graph.initializer if initializer.name == name), nodes.get(name))
    values = None if tensor is None else numpy_helper.to_array(tensor)
    return values if values is not None and values.dtype.kind in "fiu" else None


def _with_functions(stored: StoredModel, by_output: dict[str, onnx.NodeProto], name: str, cut: LogitsModel) -> LogitsModel:
    """Return a cut graph, with the functions of trees' scores if `name`, from which its logit is made, is a sum of such
    functions."""
    constant = partial(_constant, stored.model)
    mean = mean_tail.sum_of(by_output, constant, name)
    parts = None if mean is None else mean_tail.ramps_of(mean, by_output, constant)
    if parts is None:
        return cut
    scores, ramps = parts
    return replace(cut, mean=(_cut(stored.model, scores, Link.IDENTITY, scores), ramps))


def _antisymmetric(classifier: onnx.NodeProto) -> bool:
    """Return True for two classes whose scores are -z and z, which is how skl2onnx writes a binary logistic regression."""
    values = attributes(classifier)
    coefficients = np.array(values.get("coefficients"), dtype=np.float64)
    intercepts = np.array(values.get("intercepts", (0.0, 0.0)), dtype=np.float64)
    half = len(coefficients) // 2
    return (len(class_labels(values)) == 2 and len(intercepts) == 2 and bool(intercepts[0] == -intercepts[1])
            and np.array_equal(coefficients[:half], -coefficients[half:]))


def class_labels(values: Mapping[str, object]) -> Sequence[object]:
    """Return the classes in the attributes of a classifier's node, in the order of its scores; empty if it lists none."""
    return next((found for name in CLASS_LABELS if isinstance(found := values.get(name), list | tuple) and found), ())


def _cut_classifier(stored: StoredModel, node: onnx.NodeProto, name: str, shown: str) -> LogitsModel:
    transform = str(attributes(node).get("post_transform", "NONE"))
    link = tree_tail.LINKS.get(transform)
    if link is None:
        raise ModelError(stored.path, f"post_transform {transform!r}; supported: NONE, LOGISTIC, SOFTMAX",
                         node=node_name(node), op=node.op_type)
    cut = _cut(stored.model, name, link, shown)
    (scores,) = (n for n in cut.model.graph.node if name in n.output)
    for attribute in scores.attribute:
        if attribute.name == "post_transform":
            attribute.s = b"NONE"
    if link is not Link.SIGMOID or not _antisymmetric(node):
        return cut
    return _followed(cut, "second_class", "Gather", np.array([1], dtype=np.int64), axis=1)


def _cut_trees(stored: StoredModel, node: onnx.NodeProto, name: str, shown: str) -> LogitsModel:
    values = attributes(node)
    nodes, link = tree_tail.scores(stored.path, node, name, values, len(class_labels(values)))
    part = onnx.ModelProto()
    part.CopyFrom(stored.model)
    index = next(k for k, n in enumerate(part.graph.node) if name in n.output)
    all_nodes = [*part.graph.node[:index], *nodes, *part.graph.node[index + 1 :]]
    del part.graph.node[:]
    part.graph.node.extend(all_nodes)
    if not any(o.domain in ("", "ai.onnx") for o in part.opset_import):
        part.opset_import.append(helper.make_opsetid("", 13))
    cut = _cut(part, name, link, shown)
    return replace(cut, label=str(node.output[0]) if node.op_type == tree_tail.CLASSIFIER else None)


def drop_nodes(graph: onnx.GraphProto, outputs: Sequence[str]) -> set[str]:
    """Remove all nodes that the outputs do not depend on, in place; return the names of all inputs and outputs of the others."""
    needed = set(outputs)
    for k in reversed(range(len(graph.node))):           # ONNX graphs are stored in topological order
        if needed.intersection(graph.node[k].output):
            needed.update(graph.node[k].input)
        else:
            del graph.node[k]
    return needed


def _cut(model: onnx.ModelProto, logits: str, link: Link, shown: str, *,
         link_node: str | None = None, link_axis: int | None = None) -> LogitsModel:
    """Return a copy of the model that computes only `logits`."""
    part = onnx.ModelProto()
    part.CopyFrom(model)
    needed = drop_nodes(part.graph, [logits])
    del part.graph.output[:], part.graph.value_info[:]
    part.graph.output.append(onnx.ValueInfoProto(name=logits))
    unused = [i for i in part.graph.initializer if i.name not in needed]
    for initializer in unused:
        part.graph.initializer.remove(initializer)
    return LogitsModel(model=part, logits=logits, link=link, shown=shown, link_node=link_node, link_axis=link_axis)


def _followed(cut: LogitsModel, name: str, op: str, constant: npt.NDArray[Any], axis: int | None = None) -> LogitsModel:
    """Return a cut graph with one more node, which computes the logit from the graph's output and a constant.   name: of it."""
    part, logit = cut.model, f"{cut.logits}/{name}"
    options: dict[str, Any] = {} if axis is None else {"axis": axis}
    part.graph.initializer.append(numpy_helper.from_array(constant, name=f"{logit}/constant"))
    part.graph.node.append(helper.make_node(op, [cut.logits, f"{logit}/constant"], [logit], name=logit, **options))
    part.graph.output[0].name = logit
    if not any(o.domain in ("", "ai.onnx") for o in part.opset_import):
        part.opset_import.append(helper.make_opsetid("", 13))
    return replace(cut, logits=logit)


def stored_tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield all tensors: of the graph and the graphs within it, of sparse tensors, of attributes and of local functions."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from chain.from_iterable(map(_node_tensors, function.node))
        yield from chain.from_iterable(map(_attribute_tensors, function.attribute_proto))


def external_files(path: Path, model: onnx.ModelProto) -> tuple[Path, ...]:
    """Return the files with external weights of the model, in the order of their names.

    Raises ModelFileError for anything but a plain file in the model's folder or below it, links followed.
    """
    return tuple(_beside(path, name) for name in sorted(
        {_location(t) for t in stored_tensors(model) if external_data_helper.uses_external_data(t)}))


def check_numbers(path: Path, model: onnx.ModelProto) -> None:
    """Raises ModelFileError for a tensor that does not hold the numbers that its shape and type ask for."""
    for tensor in stored_tensors(model):
        try:
            fits = min(tensor.dims, default=0) >= 0 and numpy_helper.to_array(tensor) is not None
        except (ValueError, TypeError, KeyError, OverflowError, NotImplementedError, MemoryError):
            fits = False
        if not fits:
            shape = ", ".join(map(str, tensor.dims))
            kind = type_name(tensor.data_type)
            raise ModelFileError(path, f"does not hold the numbers of shape ({shape}) and type {kind} that it "
                                       "says: the file is damaged; export or copy it again", node=tensor.name or "a tensor")


def type_name(number: int) -> str:
    """Return ONNX's name of an element type, or its number if there is no such type."""
    return str(TensorProto.DataType.Name(number)) if number in TensorProto.DataType.values() else f"number {number}"


def _beside(path: Path, name: str) -> Path:
    folder = path.parent
    remedy = "put the weights beside the model, under the name they had, or store the model in one file"
    try:
        target = (folder / name).resolve()
        inside = bool(name) and target.is_relative_to(folder.resolve())
        is_file = inside and (target.is_file() or not target.exists())
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a name too long, links in a circle
        raise ModelFileError(path, f"names external weights {name[:200]!r}, which no file can be called; {remedy}") from error
    if not inside:
        raise ModelFileError(path, f"names external weights {name[:200]!r}, outside the folder of the model; {remedy}")
    if not is_file:
        raise ModelFileError(path, f"names external weights {name[:200]!r}, which is no plain file; {remedy}")
    return folder / name


def _location(tensor: TensorProto) -> str:
    """Return the location of external numbers; if several are given the last one, as `onnx` does."""
    return next((str(entry.value) for entry in reversed(tensor.external_data) if entry.key == "location"), "")


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from chain.from_iterable(map(_node_tensors, graph.node))


def _node_tensors(node: onnx.NodeProto) -> Iterator[TensorProto]:
    return chain.from_iterable(map(_attribute_tensors, node.attribute))


def _attribute_tensors(attribute: onnx.AttributeProto) -> Iterator[TensorProto]:
    yield from ([attribute.t] if attribute.HasField("t") else [])
    yield from attribute.tensors
    for sparse in (*([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []), *attribute.sparse_tensors):
        yield from (sparse.values, sparse.indices)
    for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
        yield from _graph_tensors(graph)


def class_names(model: onnx.ModelProto, count: int) -> tuple[str, ...]:
    """Return the names of `count` classes as converters of classifiers write them; empty if there are none, or two different lists.

    Words have precedence over numbers: a converter may number classes first, and name them in the end.
    """
    lists = {names for names in _listed(model) if len(names) == count}
    words = {names for names in lists if not all(name.removeprefix("-").isdecimal() for name in names)}
    chosen = words or lists
    return tuple(map(str.strip, chosen.pop())) if len(chosen) == 1 else ()  # as tables are read without blanks around words


def _listed(model: onnx.ModelProto) -> Iterator[tuple[str, ...]]:
    constants = {constant.name: constant for constant in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("ZipMap", "LinearClassifier", tree_tail.CLASSIFIER):
            yield _texts(class_labels(attributes(node)))
        elif node.op_type == "ArrayFeatureExtractor" and node.input and node.input[0] in constants:  # picks the label to show
            yield _texts(numpy_helper.to_array(constants[node.input[0]]).ravel().tolist())


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(map(str, values))
