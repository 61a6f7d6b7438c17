"""ONNX files with damaged fields, and ONNX files that were never meant well."""

import contextlib
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError, Message
from onnx import TensorProto, helper, numpy_helper
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression

import verifair as vf
from encoders.errors import ModelError
from encoders.onnx.reader import read_model, read_onnx
from tests import tree_models
from tests.fuzz.mutate import bytes_mutant
from tests.fuzz.target import Untrue

FIXTURES = Path(__file__).parents[1] / "fixtures" / "onnx"
LARGEST = 60_000
LOCATIONS = (
    "../../../../../../etc/passwd",
    "/etc/passwd",
    "/dev/zero",
    "link.data",
    "folder",
    "weights.data",
    "no such file",
    "",
    ".",
    "..",
    "./weights.data",
    "folder/../weights.data",
    "folder/../../x",
    "loop.data",
    "fifo.data",
    "a\x00b",
    "x" * 5000,
    "/proc/self/mem",
)
NUMBERS = (0, 1, -1, 2, 7, 13, 21, -(2**31), 2**31 - 1, 2**40, 10**12, 2**62, -(2**63), 2**63 - 1, 3000, 70_000)
FLOATS = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e38, 1e-45, -1.0, 0.5)
TEXTS = (
    "",
    "x",
    "y",
    "no such tensor",
    "\x00",
    "é",
    "a" * 3000,
    "Relu",
    "If",
    "Loop",
    "Scan",
    "Sigmoid",
    "Softmax",
    "Gemm",
    "Add",
    "MatMul",
    "Reshape",
    "Expand",
    "Tile",
    "ConstantOfShape",
    "Range",
    "Pad",
    "Concat",
    "Gather",
    "Identity",
    "Cast",
    "QuantizeLinear",
    "ai.onnx.ml",
    "com.microsoft",
    "ai.onnx.training",
    "LinearClassifier",
    "Scaler",
    "ZipMap",
    "StringNormalizer",
    "Where",
    "Resize",
)


class OnnxTarget:
    """`encoders.onnx.reader.read_onnx`; what it reads is read once more, with other points to compare with onnxruntime at."""

    name = "onnx"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        found = {path.name: path.read_bytes() for path in sorted(FIXTURES.glob("*.onnx")) if path.stat().st_size < LARGEST}
        found["weights_outside.onnx"] = outside_weights("weights.data")
        return found

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if rng.random() < 0.15:
            return bytes_mutant(rng, data)
        try:
            model = onnx.load_model_from_string(data)
        except DecodeError:
            return bytes_mutant(rng, data)
        try:
            for _ in range(rng.choice((1, 1, 2, 3))):
                if rng.random() < 0.45:
                    rng.choice(RECIPES)(rng, model)
                else:
                    _damage(rng, model)
            return bytes(model.SerializeToString())
        except (DecodeError, EncodeError):  # nested deeper than protobuf itself writes or reads
            return bytes_mutant(rng, data)

    def read(self, path: Path) -> str:
        beside(path.parent)
        read_onnx(path)
        try:
            read_onnx(path, seed=1, check_points=300)
        except ModelError as error:
            if re.search(r"(inf|nan) in onnxruntime", str(error)):  # beyond float32, at some of the other points
                return "network that overflows"
            raise Untrue(f"read at first, but then: {error}") from error
        return "network"


class TreesTarget(OnnxTarget):
    """The same of tree ensembles, and of means of functions of them, `read_model`."""

    name = "trees"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        rng = np.random.default_rng(0)
        one, three = ([tree_models.random_tree(rng, 3, 3, scores=scores) for _ in range(3)] for scores in (1, 3))
        two = [(0, "BRANCH_GT", 0.5, [-0.4, 0.4], (1, "BRANCH_LEQ", 2.0, [0.7, -0.7], [-0.1, 0.1]))]
        kinds: dict[str, tuple[Any, dict[str, Any]]] = {
            "regressor": (one, {"base": [0.25]}), "missing": (one, {"missing": True}),
            "two": (two, {"classes": 2, "transform": "LOGISTIC"}), "three": (three, {"classes": 3, "transform": "SOFTMAX"}),
        }  # fmt: skip
        path = folder / "made.onnx"
        made = {f"{name}.onnx": tree_models.save(path, trees, 3, **more).read_bytes() for name, (trees, more) in kinds.items()}
        return made | means(path)

    def read(self, path: Path) -> str:
        beside(path.parent)
        read_model(path)
        try:
            return type(read_model(path, seed=1, check_points=300)).__name__
        except ModelError as error:
            if re.search(r"(inf|nan) in onnxruntime", str(error)):  # beyond float32, at some of the other points
                return "model that overflows"
            raise Untrue(f"read at first, but then: {error}") from error


def means(path: Path) -> dict[str, bytes]:
    """Means of functions of trees' scores, alone and beside a linear function: a calibrated forest and a soft vote."""
    rng, forest = np.random.default_rng(0), RandomForestClassifier(3, max_depth=2, random_state=0)
    x = rng.integers(-3, 4, size=(200, 3)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=200) > 0).astype(int)
    vote = VotingClassifier([("forest", forest), ("line", LogisticRegression())], voting="soft")
    found = {}
    for name, model in (("isotonic", CalibratedClassifierCV(forest, cv=2, method="isotonic")), ("vote", vote)):
        vf.save_onnx(vf.read(model.fit(x, y)), path)
        found[f"{name}.onnx"] = path.read_bytes()
    return found


def beside(folder: Path) -> None:
    """Files that models refer to: weights, a folder, links that leave the folder, and a pipe that nobody writes to."""
    import os

    for fixture in FIXTURES.glob("*.data"):
        if not (folder / fixture.name).exists():
            (folder / fixture.name).write_bytes(fixture.read_bytes())
    if (folder / "fifo.data").exists():
        return
    (folder / "weights.data").write_bytes(np.arange(64, dtype=np.float32).tobytes())
    (folder / "folder").mkdir(exist_ok=True)
    for link, goal in (("link.data", "/etc/passwd"), ("loop.data", "loop.data")):
        if not (folder / link).is_symlink():
            (folder / link).symlink_to(goal)
    os.mkfifo(folder / "fifo.data")


def outside_weights(location: str, **more: Any) -> bytes:
    """x (N, 4) @ W (4, 2) with W in a file of its own."""
    weight = TensorProto(name="W", dims=[4, 2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "length": "32", **more}.items():
        weight.external_data.add(key=key, value=str(value))
    return _model([helper.make_node("MatMul", ["x", "W"], ["y"])], [weight])


def _model(nodes: Sequence[onnx.NodeProto], weights: Sequence[TensorProto]) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 2))],
        list(weights),
    )
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())


def _damage(rng: random.Random, message: Message) -> None:
    """One field of one message somewhere in the model."""
    for _ in range(30):  # down to a random depth
        inner: list[Message] = []
        for field, value in message.ListFields():
            if field.message_type is not None:
                inner += list(value) if _many(field) else [value]
        if not inner or rng.random() < 0.15:
            break
        message = rng.choice(inner)
    field = rng.choice(list(message.DESCRIPTOR.fields))
    if not _many(field):
        if field.message_type is not None or rng.random() < 0.2:
            message.ClearField(field.name)
        else:
            _set(rng, lambda value: setattr(message, field.name, value), field)
        return
    values = getattr(message, field.name)
    match rng.randrange(5):
        case 0 if len(values):
            del values[rng.randrange(len(values))]
        case 1 if len(values):
            del values[rng.randrange(len(values)) :]
        case 2 if len(values) > 1:
            order = [type(v)() if field.message_type is not None else v for v in values]
            if field.message_type is not None:
                for new, old in zip(order, values, strict=True):
                    new.CopyFrom(old)
            rng.shuffle(order)
            del values[:]
            values.extend(order)
        case 3 if len(values):
            values.extend([values[rng.randrange(len(values))]] * rng.choice((1, 1, 3)))
        case _:
            if field.message_type is not None:
                values.add()
            elif len(values) and rng.random() < 0.7:
                k = rng.randrange(len(values))
                _set(rng, lambda value: values.__setitem__(k, value), field)
            else:
                _set(rng, values.append, field)


def _many(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _set(rng: random.Random, put: Callable[[Any], None], field: Any) -> None:
    """A scalar of the field's type."""
    kinds: dict[int, Sequence[Any]] = {
        field.CPPTYPE_FLOAT: FLOATS,
        field.CPPTYPE_DOUBLE: FLOATS,
        field.CPPTYPE_BOOL: (True, False),
        field.CPPTYPE_STRING: TEXTS if field.type == field.TYPE_STRING else (b"", b"\xff\xfe", rng.randbytes(16), b"x" * 4000),
    }
    value = rng.choice(kinds.get(field.cpp_type, NUMBERS))
    try:
        put(value)
    except (ValueError, TypeError):  # out of the field's range
        with contextlib.suppress(ValueError):  # of an enumeration
            put(rng.randrange(100))


def _tensor(rng: random.Random, model: onnx.ModelProto) -> TensorProto:
    found = list(model.graph.initializer) + [a.t for n in model.graph.node for a in n.attribute if a.HasField("t")]
    return rng.choice(found) if found else model.graph.initializer.add()


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    return rng.choice(list(model.graph.node)) if model.graph.node else model.graph.node.add()


def _dims(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(rng, model)
    dims = list(tensor.dims) or [1]
    match rng.randrange(4):
        case 0:
            dims[rng.randrange(len(dims))] = rng.choice(NUMBERS)
        case 1:
            dims.append(rng.choice((0, 1, 2)))
        case 2:
            dims = dims[::-1]
        case _:
            dims = [10**6, 10**6]
    del tensor.dims[:]
    tensor.dims.extend(dims)


def _type(rng: random.Random, model: onnx.ModelProto) -> None:
    _tensor(rng, model).data_type = rng.randrange(-1, 26)


def _raw(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(rng, model)
    data = tensor.raw_data
    tensor.raw_data = rng.choice((data[:-1], data + b"\0", b"", data * 2, rng.randbytes(len(data)), data[: len(data) // 2]))


def _external(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(rng, model)
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key in rng.choice((("location",), ("location", "offset", "length"), ("location", "location"), ("offset",), ())):
        value = rng.choice(LOCATIONS) if key == "location" else str(rng.choice((*NUMBERS, "x", "1e9", "")))
        tensor.external_data.add(key=key, value=value)
    if rng.random() < 0.7:
        tensor.ClearField("raw_data")
        del tensor.float_data[:]


def _sparse(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(rng, model)
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(tensor)
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0, 10**9][: rng.choice((1, 2))], dtype=np.int64), name="i"))
    sparse.dims.extend(rng.choice(([4], [10**6, 10**6], [-1], [])))
    if rng.random() < 0.5:
        model.graph.initializer.remove(tensor) if tensor in model.graph.initializer else None


def _branch(rng: random.Random, model: onnx.ModelProto) -> None:
    """If or Loop with the graph itself inside, possibly many deep."""
    node = _node(rng, model)
    inner = onnx.GraphProto()
    inner.CopyFrom(model.graph)
    for _ in range(rng.choice((0, 1, 40))):
        outer = onnx.GraphProto(name="outer")
        outer.node.add(op_type="If", input=["c"], output=["y"]).attribute.add(name="then_branch", type=5).g.CopyFrom(inner)
        outer.output.add(name="y")
        inner = outer
    node.op_type = rng.choice(("If", "Loop", "Scan"))
    for name in rng.sample(("then_branch", "else_branch", "body"), 2):
        node.attribute.add(name=name, type=onnx.AttributeProto.GRAPH).g.CopyFrom(inner)


def _function(rng: random.Random, model: onnx.ModelProto) -> None:
    """A local function; it may call itself."""
    domain = rng.choice(("local", "", "ai.onnx"))
    function = model.functions.add(name="F", domain=domain, input=["a"], output=["b"])
    function.opset_import.add(domain="", version=17)
    function.opset_import.add(domain=domain, version=1)
    body = rng.choice(("Relu", "F", "G"))
    function.node.add(op_type=body, domain="" if body == "Relu" else domain, input=["a"], output=["b"])
    if body == "G":
        other = model.functions.add(name="G", domain=domain, input=["a"], output=["b"])
        other.opset_import.extend(function.opset_import)
        other.node.add(op_type="F", domain=domain, input=["a"], output=["b"])
    node = _node(rng, model)
    node.op_type, node.domain = "F", domain
    model.opset_import.add(domain=domain, version=1)


def _names(rng: random.Random, model: onnx.ModelProto) -> None:
    """Cycles, missing and repeated names."""
    node, other = _node(rng, model), _node(rng, model)
    names = [name for n in model.graph.node for name in (*n.input, *n.output)] or ["x"]
    match rng.randrange(4):
        case 0 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice((*names, "", "nowhere"))
        case 1 if node.output:
            node.output[0] = rng.choice((*names, "", "x"))
        case 2 if node.input and other.output:
            node.input[0] = other.output[0]
        case _ if model.graph.output:
            model.graph.output[0].name = rng.choice((*names, "", "nowhere"))


def _attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    """An attribute of the wrong type, or one that nobody asked for."""
    node = _node(rng, model)
    name = rng.choice([a.name for a in node.attribute] or ["axis"])
    name = rng.choice(
        (name, "axis", "alpha", "beta", "transB", "perm", "axes", "to", "value", "epsilon", "start", "end", "split", "allowzero")
    )
    for old in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(old)
    value = rng.choice((1, -1, 0, 2**40, 1.5, float("nan"), "text", [1, 2], [1.0, 2.0], ["a"], [-(2**62)], [0] * 10, b"\xff"))
    node.attribute.append(helper.make_attribute(name, value))


def _opset(rng: random.Random, model: onnx.ModelProto) -> None:
    if rng.random() < 0.3:
        del model.opset_import[:]
    model.opset_import.add(
        domain=rng.choice(("", "ai.onnx", "ai.onnx.ml", "x")), version=rng.choice((0, 1, 6, 7, 9, 13, 21, 99, -1, 2**40))
    )
    model.ir_version = rng.choice((0, 3, 8, 9, 10, 11, 99, -1, 2**40))


def _grown(rng: random.Random, model: onnx.ModelProto) -> None:
    """Constants and tensors that a few bytes make enormous."""
    first = _node(rng, model)
    if not first.input:
        return
    count = rng.choice((2, 12, 40))
    kind = rng.choice(("double", "fill", "expand", "tile", "range", "outer", "columns", "pad", "constants", "gather"))
    big = numpy_helper.from_array(
        np.array(rng.choice(([10**6, 10**6], [10**12], [2**31, 4], [30_000, 30_000])), dtype=np.int64), "big"
    )
    model.graph.initializer.append(big)
    new: list[onnx.NodeProto] = []
    here = first.input[0]
    match kind:
        case "double":
            for k in range(count):
                new.append(helper.make_node("Concat", [here, here], [f"d{k}"], axis=1))
                here = f"d{k}"
        case "constants":
            model.graph.initializer.append(numpy_helper.from_array(np.ones(4, dtype=np.float32), "c0"))
            new = [helper.make_node("Concat", [f"c{k}"] * 9, [f"c{k + 1}"], axis=0) for k in range(count)]
            new.append(helper.make_node("Add", [here, f"c{count}"], ["grown"]))
        case "fill":
            new = [helper.make_node("ConstantOfShape", ["big"], ["f"]), helper.make_node("Add", [here, "f"], ["grown"])]
        case "expand":
            new = [
                helper.make_node("Expand", [here if rng.random() < 0.5 else "one", "big"], ["e"]),
                helper.make_node("Add", [here, "e"], ["grown"]),
            ]
            model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1), dtype=np.float32), "one"))
        case "tile":
            new = [helper.make_node("Tile", ["one", "big"], ["e"]), helper.make_node("Add", [here, "e"], ["grown"])]
            model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1), dtype=np.float32), "one"))
        case "range":
            for name, value in (("zero", 0), ("end", 10**12), ("step", 1)):
                model.graph.initializer.append(numpy_helper.from_array(np.array(value, dtype=np.int64), name))
            new = [helper.make_node("Range", ["zero", "end", "step"], ["r"]), helper.make_node("Add", [here, "r"], ["grown"])]
        case "outer":
            model.graph.initializer.append(numpy_helper.from_array(np.ones((20_000, 1), dtype=np.float32), "column"))
            model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 20_000), dtype=np.float32), "row"))
            new = [
                helper.make_node(rng.choice(("MatMul", "Add", "Mul")), ["column", "row"], ["o"]),
                helper.make_node("Add", [here, "o"], ["grown"]),
            ]
        case "pad":
            model.graph.initializer.append(numpy_helper.from_array(np.array([0, 10**9], dtype=np.int64), "pads"))
            model.graph.initializer.append(numpy_helper.from_array(np.ones(3, dtype=np.float32), "short"))
            new = [helper.make_node("Pad", ["short", "pads"], ["p"]), helper.make_node("Add", [here, "p"], ["grown"])]
        case "gather":
            model.graph.initializer.append(numpy_helper.from_array(np.zeros(1_000_000, dtype=np.int64), "many"))
            new = [helper.make_node("Gather", [here, "many"], ["g"], axis=1)]
        case _:
            for value in model.graph.input:
                for dim in list(value.type.tensor_type.shape.dim)[1:]:
                    dim.dim_value = rng.choice((10**5, 10**9, 2**62))
    position = list(model.graph.node).index(first)
    if new and rng.random() < 0.8:
        first.input[0] = new[-1].output[0]
    kept = [*list(model.graph.node)[:position], *new, *list(model.graph.node)[position:]]
    copies = [onnx.NodeProto() for _ in kept]
    for one, old in zip(copies, kept, strict=True):
        one.CopyFrom(old)
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _quantised(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(rng, model)
    count = int(np.prod([d for d in tensor.dims if 0 < d < 1000] or [1]))
    dims, name = list(tensor.dims), tensor.name
    kind = rng.choice((np.int8, np.uint8, np.float16, np.float64, np.int64, np.bool_, np.complex64, object))
    values = np.array([b"a"] * count, dtype=object) if kind is object else np.ones(count).astype(kind)
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    del tensor.dims[:]
    tensor.dims.extend(dims)


def _weights(rng: random.Random, model: onnx.ModelProto) -> None:
    """Numbers at the edge of what float32 holds, in an otherwise sound model."""
    tensor = _tensor(rng, model)
    if tensor.data_type == TensorProto.FLOAT and tensor.raw_data and len(tensor.raw_data) % 4 == 0:
        values = np.frombuffer(tensor.raw_data, dtype=np.float32).copy()
        if len(values):
            values[rng.randrange(len(values))] = rng.choice((np.nan, np.inf, 3e38, 1e-45, -3e38, 0.0))
        tensor.raw_data = values.tobytes()


RECIPES: tuple[Callable[[random.Random, onnx.ModelProto], None], ...] = (
    _dims,
    _type,
    _raw,
    _external,
    _sparse,
    _branch,
    _function,
    _names,
    _names,
    _attribute,
    _attribute,
    _opset,
    _grown,
    _grown,
    _quantised,
    _weights,
)
