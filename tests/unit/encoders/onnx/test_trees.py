"""Tree ensembles in ONNX files: read exactly as onnxruntime runs them, and refused by name where that cannot be said."""

from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from encoders.decision import decided
from encoders.errors import ModelError, ModelFileError
from encoders.exact.dyadic import exact
from encoders.model import Link
from encoders.onnx.reader import read_model, read_onnx
from encoders.onnx.runtime import decisions, runtime_logits
from encoders.onnx.shown import apply_link
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.float32 import float32_errors
from tests.tree_models import MODES, random_tree, save, value_of
from verifair.schema.outcome import COMPARISONS, PositiveRule

GRID = np.array([-1, 0, 0.5, 1, 2], dtype=np.float32)


def read(path: Path) -> TreeEnsemble:
    model = read_model(path)
    assert isinstance(model, TreeEnsemble)
    return model


def edges(rng: np.random.Generator, count: int, columns: int) -> np.ndarray:
    """Rows of thresholds and of their neighbours."""
    x = rng.choice(GRID, size=(count, columns))
    return np.nextafter(x, x + rng.integers(-1, 2, size=x.shape).astype(np.float32))


@pytest.mark.parametrize("seed", range(40))
def test_scores_are_those_of_the_definition_and_of_the_runtime(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    columns, scores = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    trees = [random_tree(rng, columns, int(rng.integers(0, 5)), scores=scores) for _ in range(rng.integers(1, 9))]
    trees += trees[: rng.integers(0, 2)]
    base = rng.normal(size=scores).astype(np.float32).tolist()
    model = read(save(tmp_path / "m.onnx", trees, columns, base=base, missing=bool(seed % 2)))
    x = edges(rng, 200, columns)
    expected = [[sum(Fraction(value_of(t, row)[k]) for t in trees) + Fraction(base[k]) for k in range(scores)] for row in x]
    assert (model.forward(exact(x.astype(np.float64))).to_fractions() == np.array(expected, dtype=object)).all()
    assert (model.forward(np.array([[Fraction(float(v)) for v in row] for row in x], dtype=object)) == np.array(expected)).all()
    found, error = runtime_logits(model, x), float32_errors(model)
    assert (np.abs(found - np.array(expected, dtype=float)) <= error).all()
    assert (np.abs(np.array(expected, dtype=float)) <= model.largest).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_missing_value_takes_the_way_that_the_file_says(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    model = read(save(tmp_path / "m.onnx", [random_tree(rng, 2, 4) for _ in range(5)], 2, missing=True))
    x = edges(rng, 100, 2)
    x[rng.random(x.shape) < 0.4] = np.nan
    np.testing.assert_allclose(model.forward(x.astype(np.float64)), runtime_logits(model, x), atol=1e-5)


@pytest.mark.parametrize(("trees", "transform", "link"), [
    ([(0, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], "LOGISTIC", Link.SIGMOID),
    ([(0, "BRANCH_LT", 0.0, [-0.4], [0.7])], "NONE", Link.IDENTITY),
    ([(0, "BRANCH_LEQ", 0.0, [0.4], [0.7])], "NONE", Link.SHARES),
    ([(0, "BRANCH_LEQ", 0.0, [0.5], [0.50000006])], "NONE", Link.SHARES),
    ([(0, "BRANCH_GT", 0.0, [-0.4, 0.4], [0.7, -0.7])], "LOGISTIC", Link.SIGMOID),
])
def test_decisions_are_the_label_of_the_runtime(trees: list[Any], transform: str, link: Link, tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", trees, 1, classes=2, transform=transform)
    model, x = read(path), np.array([[-1.0], [0.0], [1.0]], dtype=np.float32)
    assert (model.link, model.outputs) == (link, 1)
    assert model.asking == len(trees)      # the -1/2 of a share asks nothing
    label = onnxruntime.InferenceSession(path.read_bytes()).run(["label"], {"X": x})[0]
    assert (decisions(model.forward(x.astype(np.float64))) == label).all()


@pytest.mark.parametrize("operator", list(COMPARISONS))
@pytest.mark.parametrize("count", [1, 2, 6, 12])
def test_a_share_of_votes_on_a_threshold_is_as_its_sign_says(count: int, operator: str, tmp_path: Path) -> None:
    """All shares lay 2^-25 too low, so that `logit >= 0` called a tie unfavourable, and a flip was proved away."""
    vote = float(np.float32(1 / count))
    model = read(save(tmp_path / "m.onnx", [(0, "BRANCH_LEQ", k + 0.5, [0.0], [vote]) for k in range(count)], 1, classes=2))
    assert model.link is Link.SHARES
    votes = np.arange(count + 1)
    for at in votes:
        rule = PositiveRule.parse(f"logit {operator} {float(at / count - 0.5)!r}")
        decision = rule.read(model)
        judged = model if decision is None else decided(model, decision)
        found = decisions(judged.forward(votes[:, None].astype(np.float64))) == rule.good
        assert (found == COMPARISONS[operator](votes, at)).all(), at


@pytest.mark.parametrize(("trees", "given", "said"), [
    ([(0, "BRANCH_LEQ", 0.0, [0.4], [0.0])], {"classes": 2, "transform": "LOGISTIC"}, "no decision follows both"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], {"classes": 2, "transform": "PROBIT"}, "post_transform 'PROBIT'"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], {"classes": 2, "transform": "SOFTMAX"}, "which the runtime takes for NONE"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4, 0.3], [0.7, 0.2])], {"classes": 2}, "scores of their own"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], {"transform": "PROBIT"}, "post_transform 'PROBIT'"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], {"transform": "LOGISTIC"}, "leaves out.*NONE and a Sigmoid node behind the trees"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], {"transform": "SOFTMAX"}, "leaves out.*NONE instead"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4, 0.3], [0.7, 0.2])], {"aggregate_function": "MIN"}, "'MIN' of 1 trees with 2 scores"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4, 1.0, 2.0], [0.7])], {"classes": 3}, "give every leaf a weight"),
    ([(3, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], {}, "feature 3, of 1"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], {"n_targets": 70_000}, "has 70,000 targets; supported are 1,024 at most"),
    ([(0, "BRANCH_LEQ", np.nan, [-0.4], [0.7])], {}, "threshold is NaN"),
    ([(0, "BRANCH_LEQ", 0.0, [np.inf], [0.7])], {}, "infinite"),
    # the probability of one of several classes that does not exclude the others is not the softmax of the scores
    ([(0, "BRANCH_LEQ", 0.0, [-0.4, 0.1], [0.7, 0.2])], {"transform": "LOGISTIC"}, "a sigmoid of each of 2 scores"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4, 0.1, 1.0], [0.7, 0.2, 0.1])], {"classes": 3, "transform": "LOGISTIC"}, "each of 3 scores"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4, 0.1, 1.0], [0.7, 0.2, 0.1])], {"classes": 3, "transform": "SOFTMAX_ZERO"}, "'SOFTMAX_ZERO'"),
])
def test_what_has_no_clear_decision_is_refused(trees: list[Any], given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        read_model(save(tmp_path / "m.onnx", trees, 1, **given))


@pytest.mark.parametrize(("trees", "found"), [
    ([(0, "BRANCH_LEQ", 0.0, [0.4, 0.6], [0.7, 0.3])], "outputs that add up to 1"),
    ([(0, "BRANCH_LEQ", 0.0, [0.2, 0.3], [0.1, 0.4]), [0.25, 0.25]], "outputs that add up to 1"),
    ([(0, "BRANCH_LEQ", 0.0, [20.0, 50.0, 30.0], [70.0, 20.0, 10.0])], "outputs that add up to 100"),
    ([(0, "BRANCH_LEQ", 0.0, [2.0, 5.0], [7.0, 0.0])], "outputs that add up to 7"),
    ([(0, "BRANCH_LEQ", 0.0, [0.25], [0.7])], "an output between 0.25 and 0.7"),
    ([(0, "BRANCH_LEQ", 0.0, [-0.25], [0.5]), [0.25]], "an output between 0 and 0.75"),
    ([(0, "BRANCH_LEQ", 0.0, [0.0], [100.0])], "an output between 0 and 100"),
    ([(0, "BRANCH_LEQ", 0.0, [0.25], [0.5])], ""),  # 1/2 decides nothing
    ([(0, "BRANCH_LEQ", 0.0, [0.25], [2.0])], ""),
    ([(0, "BRANCH_LEQ", 0.0, [0.4, 0.6], [0.9, 0.3])], ""),
    ([(0, "BRANCH_LEQ", 0.0, [-0.4, 0.4], [1.0, -1.0])], ""),
    ([(0, "BRANCH_LEQ", 0.0, [-0.25], [0.7])], ""),
    ([(0, "BRANCH_LEQ", 0.0, [0.5], [0.5])], ""),
    ([(0, "BRANCH_LEQ", 0.0, [0.3, 0.7], [0.3, 0.7])], ""),  # constants
])
def test_probabilities_values_and_votes_are_no_logits(trees: list[Any], found: str, tmp_path: Path) -> None:
    model = read_model(save(tmp_path / "m.onnx", trees, 1))
    assert model.link is Link.IDENTITY
    assert model.doubt.startswith(f"gives {found} at every input: ") if found else not model.doubt


def test_one_score_of_a_regressor_is_a_logit_below_a_sigmoid(tmp_path: Path) -> None:
    """onnxruntime leaves LOGISTIC out of one score, and not of several; a node behind it is what files of the former can have."""
    tree, x = (0, "BRANCH_LEQ", 0.0, [-0.4], [0.7]), np.array([[-1.0], [1.0]], dtype=np.float32)
    path = save(tmp_path / "m.onnx", [tree], 1, transform="LOGISTIC", base=[0.1])
    plain, left_out = onnx.load(path), onnxruntime.InferenceSession(path.read_bytes()).run(None, {"X": x})[0]
    assert left_out.ravel().tolist() == pytest.approx([-0.3, 0.8])
    trees = plain.graph.node[0]
    next(one for one in trees.attribute if one.name == "post_transform").s = b"NONE"
    trees.output[0] = "sums"
    plain.graph.node.append(helper.make_node("Sigmoid", ["sums"], ["scores"]))
    onnx.save(plain, path)
    model, given = read_model(path), onnxruntime.InferenceSession(path.read_bytes()).run(None, {"X": x})[0]
    logits = model.forward(x.astype(np.float64))
    assert model.link is Link.SIGMOID
    assert (1 / (1 + np.exp(-logits))).ravel().tolist() == pytest.approx(given.ravel().tolist(), rel=1e-6)


def test_whoever_needs_layers_refuses_trees_in_one_line(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [(0, "BRANCH_LEQ", 0.0, [-0.4], [0.7])], 1)
    with pytest.raises(ModelError, match="is a tree ensemble"):
        read_onnx(path)


@pytest.mark.parametrize("seed", range(10))
def test_scaled_columns_have_their_thresholds_where_the_runtime_has_them(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    offset, scale = rng.normal(size=3), rng.normal(size=3) * 10.0 ** rng.integers(-3, 4, size=3)
    scaler = helper.make_node("Scaler", ["X"], ["Z"], domain="ai.onnx.ml", offset=offset.tolist(), scale=scale.tolist())
    model = read(save(tmp_path / "m.onnx", [random_tree(rng, 3, 4) for _ in range(6)], 3, before=[scaler]))
    inner = (model.column >= 0) & np.isfinite(model.threshold)
    near = model.threshold[inner].astype(np.float32)
    x = rng.normal(size=(3 * len(near), 3)).astype(np.float32)
    for k, side in enumerate((-np.inf, None, np.inf)):
        at = np.arange(len(near)) + k * len(near)
        x[at, model.column[inner]] = near if side is None else np.nextafter(near, np.float32(side))
    np.testing.assert_allclose(model.forward(x.astype(np.float64)), runtime_logits(model, x), atol=1e-5)


def newer(
    path: Path, trees: list[Any], columns: int, rng: np.random.Generator, modes: tuple[str, ...] = MODES, *, whole: bool = False
) -> Path:
    """An ONNX file of a TreeEnsemble (since ai.onnx.ml 5). modes: in the place of `MODES`; sets hold the threshold t, t + 2 and 40.
    whole: columns are inputs of integers."""
    names = ("modes", "splits", "featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs", "missing_value_tracks_true")
    every = (*MODES, "BRANCH_MEMBER")
    nodes, leaves = list[list[Any]](), list[float]()

    def add(tree: Any) -> tuple[int, int]:
        if isinstance(tree, list):
            leaves.append(tree[0])
            return len(leaves) - 1, 1
        feature, mode, threshold, true, false = tree
        at = len(nodes)
        nodes.append([every.index(modes[MODES.index(mode)]), threshold, feature, 0, 0, 0, 0, int(rng.integers(2))])
        nodes[at][3:5], nodes[at][5:7] = add(true), add(false)
        return at, 0

    roots = [add(tree)[0] for tree in trees]
    given = {f"nodes_{name}": [one[k] for one in nodes] for k, name in enumerate(names)}
    sets = [[one[1], one[1] + 2, 40, np.nan] for one in nodes if every[one[0]] == "BRANCH_MEMBER"]
    kinds = {"nodes_modes": np.uint8, "nodes_splits": np.float32}
    if sets:
        given["membership_values"], kinds["membership_values"] = list(chain.from_iterable(sets)), np.float32
    tensors = {name: numpy_helper.from_array(np.array(given.pop(name), dtype=kind)) for name, kind in kinds.items()}
    node = helper.make_node(
        "TreeEnsemble", ["X"], ["Y"], name="trees", domain="ai.onnx.ml", tree_roots=roots, leaf_targetids=[0] * len(leaves),
        leaf_weights=numpy_helper.from_array(np.array(leaves, dtype=np.float32)), n_targets=1, **given, **tensors,
    )
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, n]) for name, n in (("X", columns), ("Y", 1)))
    inputs, before = [x], list[Any]()
    if whole:
        names = [f"c{k}" for k in range(columns)]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [None, 1]) for name in names]
        before = [helper.make_node("Cast", [name], [f"{name}f"], to=TensorProto.FLOAT) for name in names]
        before.append(helper.make_node("Concat", [f"{name}f" for name in names], ["X"], axis=1))
    opsets = [helper.make_opsetid("ai.onnx.ml", 5), helper.make_opsetid("", 21)]
    made = helper.make_model(helper.make_graph([*before, node], "g", inputs, [y]), ir_version=10, opset_imports=opsets)
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize("seed", range(12))
def test_the_newer_operator_is_read_as_the_runtime_runs_it(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    trees = [tree for tree in (random_tree(rng, 3, 4) for _ in range(6)) if not isinstance(tree, list)]
    path = newer(tmp_path / "m.onnx", trees, 3, rng)
    model, x = read(path), edges(rng, 2000, 3)
    x[rng.random(x.shape) < 0.1] = np.nan
    shown = onnxruntime.InferenceSession(path.read_bytes()).run(None, {"X": x})[0]
    np.testing.assert_allclose(model.forward(x.astype(np.float64)), shown, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_sets_of_whole_numbers_are_read_as_the_runtime_asks_them(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    drawn = (random_tree(rng, 2, 4, grid=np.array([0, 1, 2, 33], dtype=np.float32)) for _ in range(9))
    trees = [tree for tree in drawn if not isinstance(tree, list)]
    modes = (*MODES[:4], "BRANCH_MEMBER", MODES[5])
    path = newer(tmp_path / "m.onnx", [rounded(tree) for tree in trees], 2, rng, modes=modes, whole=True)
    assert any("BRANCH_EQ" in str(tree) for tree in trees)
    x = rng.choice([-1, 0, 1, 2, 3, 4, 32, 33, 34, 35, 39, 40, 41], size=(500, 2))
    shown = onnxruntime.InferenceSession(path.read_bytes()).run(None, {f"c{k}": x[:, k : k + 1] for k in range(2)})[0]
    np.testing.assert_allclose(read(path).forward(x.astype(np.float64)), shown, atol=1e-5)


def rounded(tree: Any) -> Any:
    """The tree with whole thresholds."""
    return tree if isinstance(tree, list) else (*tree[:2], float(round(tree[2])), rounded(tree[3]), rounded(tree[4]))


def test_sets_are_asked_of_whole_numbers_alone(tmp_path: Path) -> None:
    tree, modes = (0, "BRANCH_EQ", 0.0, [1.0], [2.0]), (*MODES[:4], "BRANCH_MEMBER", MODES[5])
    with pytest.raises(ModelError, match=r"it may be a fraction.*take the column as an input of integers"):
        read_model(newer(tmp_path / "m.onnx", [tree], 1, np.random.default_rng(0), modes=modes))
    path = newer(tmp_path / "m.onnx", [tree], 1, np.random.default_rng(0), modes=modes, whole=True)
    broken = onnx.load(path)
    (sets,) = (one for one in broken.graph.node[-1].attribute if one.name == "membership_values")
    sets.t.CopyFrom(numpy_helper.from_array(np.array([np.nan], dtype=np.float32), sets.t.name))
    with pytest.raises(ModelError, match="hold 1 sets, each ended by NaN, for 1 nodes"):
        read_model(broken.SerializeToString())


def test_averages_are_rounded_once_and_say_so(tmp_path: Path) -> None:
    trees = [(0, "BRANCH_LEQ", float(k), [0.1 * k], [0.3]) for k in range(3)]
    model = read(save(tmp_path / "m.onnx", trees, 1, aggregate_function="AVERAGE"))
    assert model.rounded == ("trees",)
    assert not model.knows_float32
    assert read(save(tmp_path / "n.onnx", trees[:2], 1, aggregate_function="AVERAGE")).rounded == ()


@pytest.mark.parametrize("seed", range(20))
def test_the_least_and_the_largest_of_trees_are_those_of_the_runtime(seed: int, tmp_path: Path) -> None:
    rng, kind = np.random.default_rng(seed), ("MIN", "MAX")[seed % 2]
    trees, base = [random_tree(rng, 2, int(rng.integers(0, 5))) for _ in range(rng.integers(1, 7))], float(np.float32(rng.normal()))
    model = read(save(tmp_path / "m.onnx", trees, 2, base=[base], missing=seed % 3 == 0, aggregate_function=kind))
    x, choose = edges(rng, 300, 2), min if kind == "MIN" else max
    exactly = model.forward(exact(x.astype(np.float64))).to_fractions()[:, 0]
    assert exactly.tolist() == [choose(Fraction(value_of(tree, row)[0]) for tree in trees) + Fraction(base) for row in x]
    x[rng.random(x.shape) < 0.3] = np.nan
    assert (model.forward(x.astype(np.float64)).astype(np.float32) == runtime_logits(model, x)).all()
    assert len(model.root) == 1
    assert model.knows_float32


def test_the_largest_of_many_deep_trees_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    trees = [random_tree(rng, 6, 5, grid=rng.normal(size=40)) for _ in range(12)]
    with pytest.raises(ModelError, match="'MAX' of 12 trees, which as one tree have more than 16,384 leaves: export fewer trees"):
        read_model(save(tmp_path / "m.onnx", trees, 6, aggregate_function="MAX"))


def fitted(name: str, x: np.ndarray, y: np.ndarray, path: Path) -> Any:
    """A model of three families of libraries, and its file."""
    if name == "sklearn":
        pytest.importorskip("skl2onnx")
        from skl2onnx import to_onnx
        from sklearn.ensemble import ExtraTreesClassifier

        model = ExtraTreesClassifier(20, max_depth=5, random_state=0).fit(x, y)
        path.write_bytes(to_onnx(model, x[:1], options={"zipmap": False}).SerializeToString())
        return model
    if name == "catboost":
        catboost = pytest.importorskip("catboost")
        model = catboost.CatBoostClassifier(iterations=20, depth=4, verbose=0, allow_writing_files=False).fit(x, y)
        model.save_model(str(path), format="onnx")
        return model
    library = pytest.importorskip(name)
    tools = pytest.importorskip("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    made = {"xgboost": "XGBClassifier", "lightgbm": "LGBMClassifier"}[name]
    quiet = {"verbose": -1} if name == "lightgbm" else {}
    model = getattr(library, made)(n_estimators=20, max_depth=4, n_jobs=1, **quiet).fit(x, y)
    convert = tools.convert_xgboost if name == "xgboost" else tools.convert_lightgbm
    path.write_bytes(convert(model, initial_types=[("X", FloatTensorType([None, x.shape[1]]))]).SerializeToString())
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["sklearn", "xgboost", "lightgbm", "catboost"])
def test_models_of_libraries_predict_what_the_library_predicts(name: str, classes: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(400, 5)).round(2).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int) + (classes == 3) * (x[:, 3] > 0.5)
    original = fitted(name, x, y, tmp_path / "m.onnx")
    model = read(tmp_path / "m.onnx")
    rows = rng.normal(size=(1000, 5)).astype(np.float32)        # not on thresholds: a library may compare float64 numbers
    seen = apply_link(model.forward(rows.astype(np.float64)), model.link)
    np.testing.assert_allclose(seen, original.predict_proba(rows)[:, -seen.shape[1] :], atol=2e-5)
    assert model.classes == tuple(map(str, range(classes)))


def test_a_branch_that_leads_back_to_itself_is_refused(tmp_path: Path) -> None:
    tree = (0, "BRANCH_LEQ", 0.5, (1, "BRANCH_LEQ", 0.5, [1.0], [2.0]), [3.0])
    stored = onnx.load(save(tmp_path / "t.onnx", [tree], 2))
    for attribute in stored.graph.node[0].attribute:
        if attribute.name == "nodes_truenodeids":
            attribute.ints[1] = 1
    onnx.save(stored, tmp_path / "t.onnx")
    with pytest.raises(ModelError):
        read_model(tmp_path / "t.onnx")


def test_lists_that_refer_to_a_function_are_refused(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path / "m.onnx", [(0, "BRANCH_LEQ", 0.5, [0.1], [0.7])], 2))
    next(one for one in model.graph.node[0].attribute if one.name == "nodes_values").ref_attr_name = "of_a_function"
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ModelFileError, match=r"not a valid ONNX model .*reference attribute"):
        read_model(tmp_path / "other.onnx")
