"""Models that take a table: typed columns, encoders of categories, and what the stored model is fed in return."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from encoders.errors import ModelError
from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import runtime_logits

from .onnx_models import node

F = np.float32
TYPES = {"f": TensorProto.FLOAT, "d": TensorProto.DOUBLE, "i": TensorProto.INT64, "j": TensorProto.INT32, "s": TensorProto.STRING,
         "b": TensorProto.BOOL}


def table(path: Path, inputs: dict[str, Any], nodes: list[Any], constants: dict[str, Any], *, opset: int = 17, ml: int = 3) -> Path:
    """A model whose inputs have a type each, by letter, or (letter, shape), and whose output is y."""
    infos = []
    for name, kind in inputs.items():
        letter, shape = kind if isinstance(kind, tuple) else (kind, (None, 1))
        infos.append(helper.make_tensor_value_info(name, TYPES[letter], shape))
    graph = helper.make_graph(nodes, "t", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, (None, None))],
                              [numpy_helper.from_array(np.asarray(v), name=k) for k, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ml)],
                              ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def mixed(path: Path) -> Path:
    """age and hours as numbers, sex and job encoded; job's numbers are no code 0, 1, ..."""
    return table(path, {"age": "i", "sex": "s", "hours": "f", "job": "i"}, [
        node("Cast", ["age"], ["a"], to=1, name="cast"), node("OneHotEncoder", ["sex"], ["s"], cats_strings=["F", "M"], zeros=0),
        node("OneHotEncoder", ["job"], ["j"], cats_int64s=[7, 1, 300], zeros=1, name="jobs"),
        node("Reshape", ["s", "two"], ["s2"], name="rs"), node("Reshape", ["j", "three"], ["j3"], name="rj"),
        node("Concat", ["hours", "a"], ["n"], axis=1, name="numbers"),
        node("Scaler", ["n"], ["z"], offset=[1.0, 40.0], scale=[0.5, 0.1]),
        node("Concat", ["z", "s2", "j3"], ["x"], axis=1), node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "v"], name="last")],
        {"two": np.array([-1, 2]), "three": np.array([-1, 3]), "w": np.random.default_rng(0).normal(size=(7, 5)).astype(F),
         "v": np.random.default_rng(1).normal(size=(5, 1)).astype(F)})


def test_columns_stand_in_the_order_of_the_inputs(tmp_path: Path) -> None:
    path = mixed(tmp_path / "m.onnx")
    network = read_onnx(path)
    assert network.inputs == 1 + 2 + 1 + 3
    assert [(feed.name, feed.kind, feed.start.tolist()) for feed in network.feeds] == [
        ("age", "int64", [0]), ("sex", "text", [1]), ("hours", "float32", [3]), ("job", "int64", [4])]
    assert [dict(feed.categories) for feed in network.feeds] == [{}, {0: ("F", "M")}, {}, {0: (7, 1, 300)}]


def test_every_legal_row_gives_what_the_stored_model_gives(tmp_path: Path) -> None:
    path = mixed(tmp_path / "m.onnx")
    network = read_onnx(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for age in (0, 17, 90):
        for s, sex in enumerate(("F", "M")):
            for j, job in enumerate((7, 1, 300)):
                x = np.concatenate([[age], np.eye(2)[s], [0.25], np.eye(3)[j]])[None, :]
                (expected,) = session.run(["y"], {"age": np.array([[age]]), "sex": np.array([[sex]], dtype=object),
                                                  "hours": np.array([[0.25]], dtype=F), "job": np.array([[job]])})
                np.testing.assert_allclose(network.forward(x), expected, rtol=1e-5, atol=1e-6)
                assert runtime_logits(network, x.astype(F))[0, 0] == expected[0, 0]


def test_rows_that_the_stored_model_cannot_be_fed(tmp_path: Path) -> None:
    network = read_onnx(mixed(tmp_path / "m.onnx"))
    legal = np.array([[30, 1, 0, 1.5, 0, 0, 1]], dtype=F)
    runtime_logits(network, legal)
    for column, value, match in ((0, 1e20, "'age'.*beyond 4.6"), (0, 30.5, "'age'.*takes integers.*30.5"),
                                 (1, 0, "'sex'.*not one-hot"), (2, 1, "'sex'.*not one-hot"), (1, 0.5, "'sex'.*not one-hot"),
                                 (5, 1, "'job'.*not one-hot")):
        x = legal.copy()
        x[0, column] = value
        with pytest.raises(ModelError, match=match):
            runtime_logits(network, x)


def test_ordinal_encoders_are_sums_over_the_block(tmp_path: Path) -> None:
    path = table(tmp_path / "m.onnx", {"edu": "s", "rank": "i"}, [
        node("LabelEncoder", ["edu"], ["e"], keys_strings=["low", "mid", "top"], values_int64s=[0, 1, 2], name="edu_codes"),
        node("LabelEncoder", ["rank"], ["r"], keys_int64s=[10, 5], values_floats=[0.5, -2.0], name="rank_codes"),
        node("Cast", ["e"], ["c"], to=1), node("Concat", ["c", "r"], ["y"], axis=1)], {})
    network = read_onnx(path)
    assert network.layers[0].weight.tolist() == [[0, 1, 2, 0, 0], [0, 0, 0, 0.5, -2]]
    assert [dict(feed.categories) for feed in network.feeds] == [{0: ("low", "mid", "top")}, {0: (10, 5)}]


def test_one_float_matrix_with_encoded_columns(tmp_path: Path) -> None:
    """As skl2onnx writes a ColumnTransformer over a plain array: pick columns, cast them to integers, encode."""
    path = table(tmp_path / "m.onnx", {"X": ("f", (None, 3))}, [
        node("ArrayFeatureExtractor", ["X", "i"], ["p"]), node("ArrayFeatureExtractor", ["X", "k"], ["q"], name="second"),
        node("Cast", ["q"], ["c"], to=7), node("OneHotEncoder", ["c"], ["o"], cats_int64s=[3, 4], zeros=0),
        node("Reshape", ["o", "two"], ["b"]), node("Concat", ["p", "b"], ["y"], axis=1)],
        {"i": np.array([2, 0]), "k": np.array([1]), "two": np.array([-1, 2])})
    network = read_onnx(path)
    assert network.inputs == 4
    (feed,) = network.feeds
    assert feed.start.tolist() == [0, 1, 3]
    assert dict(feed.categories) == {1: (3, 4)}
    assert runtime_logits(network, np.array([[10, 0, 1, 20]], dtype=F)).tolist() == [[20, 10, 0, 1]]
    assert network.forward(np.array([[10.0, 0, 1, 20]])).tolist() == [[20, 10, 0, 1]]


def test_embeddings_are_linear_in_the_block(tmp_path: Path) -> None:
    """As torch writes nn.Embedding: codes of the table's rows, of an input of integers or of a column of a matrix."""
    table_2, table_3 = np.array([[1, 2], [3, 4], [5, 7]], dtype=F), np.array([[0.5], [0.25]], dtype=F)
    path = table(tmp_path / "m.onnx", {"c": "i", "X": ("f", (None, 2))}, [
        node("Gather", ["two", "c"], ["e"], name="first"), node("Flatten", ["e"], ["g"]),
        node("Gather", ["X", "one"], ["k"], axis=1, name="pick"), node("Cast", ["k"], ["code"], to=7),
        node("Gather", ["three", "code"], ["h"], name="second"), node("Gather", ["X", "zero"], ["z"], axis=1, name="rest"),
        node("Concat", ["g", "h", "z"], ["y"], axis=1)],
        {"two": table_2, "three": table_3, "one": np.int64(1), "zero": np.array([0])})
    network = read_onnx(path)
    assert [dict(feed.categories) for feed in network.feeds] == [{0: (0, 1, 2)}, {1: (0, 1)}]
    assert network.inputs == 3 + 1 + 2
    for code, other in ((0, 1), (1, 0), (2, 1)):
        x = np.concatenate([np.eye(3)[code], [9.5], np.eye(2)[other]])[None]
        expected = [[*table_2[code], *table_3[other], 9.5]]
        assert network.forward(x).tolist() == expected == runtime_logits(network, x.astype(F)).tolist()


def test_columns_that_the_model_does_not_read(tmp_path: Path) -> None:
    """Numbers keep their place among the columns; words have none, and are fed empty."""
    network = read_onnx(table(tmp_path / "m.onnx", {"name": "s", "a": "f", "b": "f"}, [node("Neg", ["b"])], {}))
    assert network.inputs == 2
    assert runtime_logits(network, np.array([[5, 7]], dtype=F)).tolist() == [[-7]]


def test_numbers_of_several_inputs_and_a_fixed_batch(tmp_path: Path) -> None:
    network = read_onnx(table(tmp_path / "m.onnx", {"a": ("d", (2, 2)), "b": ("i", (2, 1)), "s": ("s", (2, 1))}, [
        node("Cast", ["a"], ["af"], to=1), node("Cast", ["b"], ["bf"], to=1, name="b_float"),
        node("OneHotEncoder", ["s"], ["o"], cats_strings=["u"], zeros=1), node("Reshape", ["o", "one"], ["os"]),
        node("Concat", ["bf", "os", "af"], axis=1)], {"one": np.array([2, 1])}))
    x = np.array([[1, 2, 3, 1], [4, 5, 6, 1], [7, 8, 9, 1]], dtype=F)
    assert runtime_logits(network, x).tolist() == [[3, 1, 1, 2], [6, 1, 4, 5], [9, 1, 7, 8]]
    assert runtime_logits(network, x[:0]).shape == (0, 4)


REFUSED: dict[str, tuple[Any, ...]] = {  # name: (inputs, nodes, constants, what the message says)
    "a step function of computed numbers": (
        {"x": "f"}, [node("Mul", ["x", "c"], ["m"]), node("OneHotEncoder", ["m"], ["o"], cats_int64s=[0, 1], zeros=1),
                     node("Flatten", ["o"])], {"c": F(2)}, "step function"),
    "an embedding of computed numbers": (
        {"x": "i"}, [node("Cast", ["x"], ["f"], to=1), node("Mul", ["f", "c"], ["m"]),
                     node("Cast", ["m"], ["n"], to=7, name="to_int"), node("Gather", ["t", "n"], ["o"]), node("Flatten", ["o"])],
        {"c": F(2), "t": np.ones((2, 2), F)}, "no full float"),
    "columns of a table": ({"x": "i"}, [node("Gather", ["t", "x"], ["o"], axis=1), node("Flatten", ["o"])],
                           {"t": np.ones((2, 2), F)}, "rows of a table .axis 0., as embeddings"),
    "a large embedding of many columns": (
        {"x": ("i", (None, 300))}, [node("Gather", ["t", "x"], ["o"]), node("Flatten", ["o"])], {"t": np.ones((30_000, 2), F)},
        "300 entries, 30,000 categories each, as 2 numbers; at most 16,777,216"),
    "an imputer of numbers": (
        {"x": "f"}, [node("Imputer", ["x"], imputed_value_floats=[1.0], replaced_value_float=-9.0)], {}, "imputers of missing"),
    "used as number and category": (
        {"x": "i"}, [node("Cast", ["x"], ["f"], to=1), node("Neg", ["f"], ["n"]),
                     node("OneHotEncoder", ["x"], ["o"], cats_int64s=[0, 1], zeros=1), node("Flatten", ["o"], ["p"]),
                     node("Concat", ["n", "p"], axis=1)], {}, "'x'.*both as a number and as a category"),
    "two encoders that disagree": (
        {"x": "i"}, [node("OneHotEncoder", ["x"], ["o"], cats_int64s=[0, 1], zeros=1), node("Flatten", ["o"], ["p"]),
                     node("OneHotEncoder", ["x"], ["q"], cats_int64s=[1, 0], zeros=1, name="b"),
                     node("Flatten", ["q"], ["r"], name="f"), node("Concat", ["p", "r"], axis=1)], {},
        r"different categories.*\[0, 1\] and \[1, 0\]"),
    "integer arithmetic": ({"x": "i"}, [node("Div", ["x", "c"], ["d"]), node("Cast", ["d"], to=1)], {"c": np.int64(2)},
                           "computes with integers"),
    "truncation": ({"x": "f"}, [node("Cast", ["x"], ["i"], to=7), node("Cast", ["i"], ["f"], to=1, name="back"),
                                node("Neg", ["f"])], {}, "no full float"),
    "truncation before what takes integers": (  # its weight is too small for the comparison with the runtime to notice
        {"x": "f", "z": "f"}, [node("Cast", ["x"], ["i"], to=7), node("Scaler", ["i"], ["s"], offset=[0.0], scale=[1.0]),
                               node("Concat", ["z", "s"], ["c"], axis=1), node("MatMul", ["c", "w"])],
        {"w": np.array([[1.0], [1e-9]], dtype=F)}, "'x'.*cut from float32 to whole numbers.*a step function"),
    "categories twice": ({"x": "i"}, [node("OneHotEncoder", ["x"], ["o"], cats_int64s=[1, 1], zeros=1), node("Flatten", ["o"])], {},
                         "distinct"),
    "categories beyond float32": ({"x": "i"}, [node("OneHotEncoder", ["x"], ["o"], cats_int64s=[2**24 + 1], zeros=1),
                                               node("Flatten", ["o"])], {}, "float32 skips integers"),
    "words encoded as numbers": ({"x": "s"}, [node("OneHotEncoder", ["x"], ["o"], cats_int64s=[1], zeros=1),
                                              node("Flatten", ["o"])], {}, "encodes numbers, but the input 'x' is of type text"),
    "words that become words": ({"x": "s"}, [node("LabelEncoder", ["x"], ["w"], keys_strings=["a"], values_strings=["b"]),
                                             node("OneHotEncoder", ["w"], ["o"], cats_strings=["b"], zeros=1),
                                             node("Flatten", ["o"])], {}, "a number for each"),
    "text without an encoder": ({"x": "s"}, [node("Identity", ["x"], ["i"]), node("Cast", ["i"], ["f"], to=1),
                                             node("Neg", ["f"])], {}, "no full float"),
    "bool": ({"x": "b"}, [node("Cast", ["x"], to=1)], {}, "BOOL.*STRING"),
    "integers at the end": ({"x": "i"}, [node("Identity", ["x"], ["i"]), node("Cast", ["i"], to=1)], {}, "ends with integers"),
    "a tree": ({"x": "f"}, [node("TreeEnsembleClassifier", ["x"], ["l", "y"])], {}, "0 weights for 0 classes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_say_why(what: str, tmp_path: Path) -> None:
    inputs, nodes, constants, message = REFUSED[what]
    path = table(tmp_path / "m.onnx", inputs, nodes, constants)
    with pytest.raises(ModelError, match=message) as caught:
        read_onnx(path)
    assert "\n" not in str(caught.value)
