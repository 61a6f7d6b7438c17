"""The guarded network refuses exactly the rows of the raw boxes, up to the last float at every edge."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from encoders.arrays import Array
from encoders.errors import ModelError
from encoders.onnx.reader import read_model, read_onnx
from tests.builders import categorical, integer, one_hot, real, schema_of
from tests.tree_models import random_tree, save
from verifair.errors import DataError, QueryError, SchemaError
from verifair.models.columns import by_column as by_name
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.refusals import guarded_schema, snapped
from verifair.systems.hyfair.explain.rules import Rule, refused
from verifair.systems.hyfair.guard.guardrail import (
    abstains,
    check_agreement,
    columns_of,
    edge_rows,
    guard,
)

SCHEMA = schema_of(
    integer("age", 17, 90, scale="minmax"),
    integer("weight", 0, 2000000000, scale="minmax"),
    real("amount", -3.0, 7.0, scale={"offset": 0.1, "scale": 3.7}),
    real("rate", 0.0, 1.0),
    categorical("grade", "a", "b", "c", "d", codes=[10, 13, 16, 19]),
    one_hot("job", "none", "clerk", "nurse", "smith", "cook"),
    categorical("sex", "f", "m", protected=True),
)
INF = np.inf


def model(path: Path, inputs: int, *, link: str | None = None, double: bool = False, opset: int = 17, more: bool = False) -> Path:
    """Gemm, Relu, Gemm with an optional link; `more` adds an int64 output of labels."""
    rng, dtype = np.random.default_rng(0), np.float64 if double else np.float32
    kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
    shapes = {"w1": (4, inputs), "b1": (4,), "w2": (1, 4), "b2": (1,)}
    stored = [numpy_helper.from_array(rng.standard_normal(s).astype(dtype), name) for name, s in shapes.items()]
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["a"], transB=1), helper.make_node("Relu", ["a"], ["h"]),
        helper.make_node("Gemm", ["h", "w2", "b2"], ["out" if link is None else "z"], transB=1),
    ]
    if link:
        nodes.append(helper.make_node(link, ["z"], ["out"]))
    outputs = [helper.make_tensor_value_info("out", kind, ["N", 1])]
    if more:
        nodes.append(helper.make_node("Cast", ["out"], ["label"], to=TensorProto.INT64))
        outputs.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["N", 1]))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, ["N", inputs])], outputs, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def box(schema: Schema, **ends: tuple[float, float]) -> Rule:
    lower, upper = np.full(len(schema.features), -INF), np.full(len(schema.features), INF)
    for name, (low, high) in ends.items():
        lower[schema.index(name)], upper[schema.index(name)] = low, high
    return Rule(lower=lower, upper=upper)


@pytest.fixture(scope="module")
def schema() -> Schema:
    return SCHEMA


@pytest.fixture(scope="module")
def rules(schema: Schema) -> tuple[Rule, ...]:
    return snapped(
        [
            box(schema, age=(31, 45), amount=(0.3, 1.7)),
            box(schema, weight=(-INF, 1_000_000_000), grade=(1, 2)),
            box(schema, rate=(0.1, INF), job=(1, 3), age=(60, INF)),
            box(schema, job=(0, 0), amount=(-INF, -1.1)),
            box(schema, grade=(3, 3), job=(2, INF), rate=(1 / 3, 2 / 3)),
            box(schema, weight=(123_456_789, 123_456_789)),
        ],
        schema,
    )


def random_rows(schema: Schema, count: int, seed: int = 0) -> Array:
    domain, rng = schema.domain, np.random.default_rng(seed)
    raw = domain.lower + (domain.upper - domain.lower) * rng.random((count, domain.variables))
    return np.where(domain.integer, np.rint(raw), raw)


def run(path: Path, x: Array, dtype: type = np.float32) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {"x": x.astype(dtype)}), strict=True))


@pytest.mark.parametrize("double", [False, True])
def test_the_wrapper_agrees_with_the_raw_boxes_at_every_edge(
    schema: Schema, rules: tuple[Rule, ...], double: bool, tmp_path: Path
) -> None:
    source = model(tmp_path / "m.onnx", schema.domain.columns, double=double)
    guarded = guard(source, rules, schema)
    raw = np.concatenate([edge_rows(rules, schema, 40, np.random.default_rng(1)), random_rows(schema, 3000)])
    expected = refused(rules, raw)
    assert 0.1 < expected.mean() < 0.9
    assert (abstains(source, guarded, schema.encode(raw)) == expected).all()
    check_agreement(source, guarded, rules, schema, raw)


def test_edges_are_tight(schema: Schema, rules: tuple[Rule, ...]) -> None:
    """At each end of a rule there are rows inside whose neighbours, one float or one whole number further, are outside."""
    raw = edge_rows(rules[:1], schema, 5, np.random.default_rng(0))
    for v, end, beyond in ((0, 31.0, 30.0), (0, 45.0, 46.0), (2, rules[0].upper[2], np.nextafter(rules[0].upper[2], INF))):
        assert rules[0].contain(raw[raw[:, v] == end]).any()
        assert (raw[:, v] == beyond).any()
        assert not rules[0].contain(raw[raw[:, v] == beyond]).any()


def test_ends_move_outwards_to_the_last_raw_number_with_the_same_column(schema: Schema) -> None:
    (rule,) = snapped([box(schema, weight=(1_000_000_000, 1_000_000_000), amount=(0.3, 1.7))], schema)

    def column(v: int, raw: float) -> float:
        return float(schema.domain.take(np.array([v])).encode(np.array([[raw]]))[0, 0])

    assert rule.lower[1] < 1_000_000_000 < rule.upper[1], "neighbouring whole numbers share a float32 column here"
    assert column(1, rule.upper[1]) == column(1, 1e9) != column(1, rule.upper[1] + 1)
    assert column(1, rule.lower[1]) == column(1, 1e9) != column(1, rule.lower[1] - 1)
    assert column(2, rule.upper[2]) == column(2, 1.7) != column(2, np.nextafter(rule.upper[2], INF))
    assert column(2, rule.lower[2]) == column(2, 0.3) != column(2, np.nextafter(rule.lower[2], -INF))


def test_without_snapping_the_edges_would_differ(schema: Schema, tmp_path: Path) -> None:
    naive = [box(schema, amount=(0.3, 1.7))]
    source = model(tmp_path / "m.onnx", schema.domain.columns)
    raw = edge_rows(naive, schema, 20, np.random.default_rng(0))
    with pytest.raises(DataError, match="disagree"):
        check_agreement(source, guard(source, naive, schema), naive, schema, raw)


def test_refused_rows_get_no_answer_and_others_keep_theirs(schema: Schema, rules: tuple[Rule, ...], tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", schema.domain.columns, link="Sigmoid", more=True)
    path = tmp_path / "g.onnx"
    onnx.save(guard(source, rules, schema), path)
    raw = random_rows(schema, 500)
    before, after = run(source, schema.encode(raw)), run(path, schema.encode(raw))
    no = after["abstain"]
    assert no.shape == (500,)
    assert no.dtype == bool
    assert (no == refused(rules, raw)).all()
    assert np.isnan(after["out"][no]).all()
    assert (after["out"][~no] == before["out"][~no]).all()
    assert (after["label"] == before["label"]).all()


@pytest.mark.parametrize("name", ["points", "lower", "half"])
def test_an_input_may_be_called_like_a_part_of_the_guardrail(
    schema: Schema, rules: tuple[Rule, ...], name: str, tmp_path: Path
) -> None:
    stored = onnx.load(model(tmp_path / "m.onnx", schema.domain.columns))
    stored.graph.input[0].name = stored.graph.node[0].input[0] = name
    onnx.save(stored, tmp_path / "m.onnx")
    onnx.save(guard(tmp_path / "m.onnx", rules, schema), tmp_path / "g.onnx")
    session, raw = onnxruntime.InferenceSession((tmp_path / "g.onnx").read_bytes()), random_rows(schema, 200)
    (no,) = session.run(["abstain"], {name: schema.encode(raw).astype(np.float32)})
    assert (no == refused(rules, raw)).all()


@pytest.mark.parametrize("name", ["abstain", "guard/rows"])
def test_names_of_the_guardrail_s_own_are_refused(schema: Schema, rules: tuple[Rule, ...], name: str, tmp_path: Path) -> None:
    stored = onnx.load(model(tmp_path / "m.onnx", schema.domain.columns))
    stored.graph.node[0].output[0] = stored.graph.node[1].input[0] = name
    onnx.save(stored, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=f"calls a tensor '{name}'"):
        guard(tmp_path / "m.onnx", rules, schema)


@pytest.mark.parametrize("opset", [8, 9, 11, 13, 18, 21])
def test_every_opset(schema: Schema, rules: tuple[Rule, ...], opset: int, tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", schema.domain.columns, opset=opset)
    raw = random_rows(schema, 200)
    path = tmp_path / "g.onnx"
    onnx.save(guard(source, rules, schema), path)
    assert (run(path, schema.encode(raw))["abstain"] == refused(rules, raw)).all()
    network = read_onnx(path, output="guard/answer/out")
    assert network.forward(schema.encode(raw)) == pytest.approx(read_onnx(source).forward(schema.encode(raw)))


def test_the_guarded_schema_forbids_the_same_rows(schema: Schema, rules: tuple[Rule, ...], tmp_path: Path) -> None:
    guarded_schema(schema, rules).save(tmp_path / "guarded.toml")
    read = Schema.load(tmp_path / "guarded.toml")
    raw = np.concatenate([edge_rows(rules, schema, 20, np.random.default_rng(4)), random_rows(schema, 1000)])
    assert (read.inside(raw) == ~refused(rules, raw)).all()


def test_what_cannot_be_guarded_is_said(schema: Schema, rules: tuple[Rule, ...], tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="whole domain"):
        snapped([box(schema, age=(0, 100))], schema)
    with pytest.raises(QueryError, match=r"whole domain \(job is anything\)"):
        snapped([box(schema, job=(0, 4))], schema)
    with pytest.raises(SchemaError, match="no row"):
        guarded_schema(schema, snapped([box(schema, age=(-INF, 40)), box(schema, age=(41, INF))], schema))
    columns = schema.domain.columns
    with pytest.raises(ModelError, match="opset 5; a guardrail needs 9 or later: export it again"):
        guard(model(tmp_path / "old.onnx", columns, opset=5), rules, schema)
    with pytest.raises(ModelError, match="takes 3 columns"):
        guard(model(tmp_path / "narrow.onnx", 3), rules, schema)
    once = tmp_path / "once.onnx"
    onnx.save(guard(model(tmp_path / "m.onnx", columns), rules, schema), once)
    with pytest.raises(ModelError, match="guarded"):
        guard(once, rules, schema)
    network = read_onnx(tmp_path / "m.onnx")
    assert guard(network, rules, schema) == guard(str(tmp_path / "m.onnx"), rules, schema)
    with pytest.raises(ModelError, match="was not read from a file"):
        guard(replace(network, source=None), rules, schema)


def test_a_guarded_schema_s_rules_are_refused_again(schema: Schema, rules: tuple[Rule, ...], tmp_path: Path) -> None:
    """Half of the rules, then the other: as all at once, at every edge, through two files."""
    half, again = tmp_path / "half.toml", tmp_path / "again.toml"
    path = model(tmp_path / "m.onnx", schema.domain.columns)
    guarded_schema(schema, rules[::2]).save(half)
    wrapped = guard(path, rules[1::2], Schema.load(half))
    guarded_schema(Schema.load(half), rules[1::2]).save(again)
    raw = np.concatenate([edge_rows(rules, schema, 20, np.random.default_rng(4)), random_rows(schema, 1000)])
    assert (abstains(path, wrapped, schema.encode(raw)) == refused(rules, raw)).all()
    assert (Schema.load(again).inside(raw) == ~refused(rules, raw)).all()
    assert (abstains(path, guard(path, (), Schema.load(again)), schema.encode(raw)) == refused(rules, raw)).all()


def test_only_columns_with_a_condition_are_compared(schema: Schema, rules: tuple[Rule, ...]) -> None:
    used = columns_of(rules[:1], schema.domain)
    assert used.columns.tolist() == [0, 2]
    job = columns_of(snapped([box(schema, job=(1, 3))], schema), schema.domain)
    assert job.columns.tolist() == [5, 9], "a block lies in categories 1 to 3 where the columns of 0 and 4 are empty"


@pytest.mark.parametrize("by_column", [False, True])
def test_trees_are_guarded_like_networks(schema: Schema, rules: tuple[Rule, ...], by_column: bool, tmp_path: Path) -> None:
    """A model of the tree operators alone; of one input, or of one for each column; with probabilities by class behind it."""
    rng, columns = np.random.default_rng(0), schema.domain.columns
    stored = onnx.load(save(tmp_path / "m.onnx", [random_tree(rng, columns, 4) for _ in range(5)], columns, classes=2,
                            transform="LOGISTIC"))
    del stored.opset_import[1:]
    stored.ir_version = 8 if by_column else 3    # as CatBoost writes it
    stored.graph.node.append(helper.make_node("ZipMap", ["scores"], ["words"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]))
    word = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    stored.graph.output.append(helper.make_value_info("words", helper.make_sequence_type_proto(word)))
    path = tmp_path / "m.onnx"
    onnx.save(by_name(stored, [f"c{k}" for k in range(columns)]) if by_column else stored, path)
    raw = np.concatenate([edge_rows(rules, schema, 40, np.random.default_rng(1)), random_rows(schema, 500)])
    x = schema.encode(raw).astype(np.float32)
    guarded = guard(read_model(path, output="scores"), rules, schema)
    check_agreement(path, guarded, rules, schema, raw)
    fed = {f"c{k}": x[:, [k]] for k in range(columns)} if by_column else {"X": x}
    session = onnxruntime.InferenceSession(guarded.SerializeToString())
    abstain, scores, words = session.run(["abstain", "scores", "words"], fed)
    assert (abstain == refused(rules, raw)).all()
    plain = onnxruntime.InferenceSession(path.read_bytes()).run(["scores"], fed)[0]
    for shown in (scores, np.array([list(one.values()) for one in words])):
        assert np.isnan(shown[abstain]).all()
        assert np.array_equal(shown[~abstain], plain[~abstain])
