"""What a review of FGCE found wrong: each of these failed once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import helper, numpy_helper
from typer.testing import CliRunner

from tests.builders import categorical, real, schema_of
from verifair.cli.main import app
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.findings import comparisons, summaries
from verifair.systems.fgce.instance import Block, Instance
from verifair.systems.fgce.measures import Burden, burden, levels_of

LEVELS = np.linspace(0.1, 1.4, 4)
PEOPLE = schema_of(
    real("score", 0, 10),
    categorical("group", "[low]", "[/b]", protected=True),
    positive="logit > 0",
    positive_label="yes",
)


class Threshold:
    """Scores above 5 are accepted."""

    classes_ = np.array(["no", "yes"])

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        return np.where(frame["score"] > 5, "yes", "no")


def question(f: int, c: int, scale: float, seed: int) -> Instance:
    cost = np.random.default_rng(seed).random((f, c)) * scale
    block = Block(component=0, factuals=np.arange(f), candidates=np.arange(100, 100 + c), cost=cost)
    return Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)


QUESTIONS = {"dear": question(9, 5, 1.5, 0), "cheap": question(8, 6, 1.0, 1)}


def stopped_before(step: int) -> Burden:
    """The measures of two groups, ended by Ctrl-C before so many steps are done."""

    def progress(done: int, total: int) -> None:
        if done == step:
            raise KeyboardInterrupt

    return burden(QUESTIONS, LEVELS, seconds=60, ks=range(1, 4), coverages=(0.5, 1.0), progress=progress)


def test_no_area_of_an_interrupted_run_differs_from_that_of_a_finished_one() -> None:
    """kAUC was over the costs asked so far, and cAUC over the groups asked so far."""
    full = stopped_before(-1)
    steps = len(QUESTIONS) * (2 + len(LEVELS) + 2)
    met = 0
    for step in range(steps):
        part = stopped_before(step)
        assert part.stopped == "interrupted"
        for name, by in (("kauc", "k"), ("dauc", "d"), ("cauc", "c")):
            table = getattr(part, name)
            if len(table):
                both = table.merge(getattr(full, name), on=[by, "group"], suffixes=("", " in full"))
                assert len(both) == len(table)
                np.testing.assert_allclose(both["score"], both["score in full"], err_msg=f"{name} before step {step}")
                met += len(both)
    assert met > 50


@pytest.mark.parametrize("value", [0.0, 2.5])
def test_paths_that_all_cost_the_same_have_levels_that_differ(value: float) -> None:
    """Ten levels between a cost and the next number were two, five times over."""
    block = Block(component=0, factuals=np.arange(3), candidates=np.arange(5, 7), cost=np.full((3, 2), value))
    same = {"all": Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)}
    levels = levels_of(None, same, "path")  # type: ignore[arg-type]  # the space is of no account for paths
    assert (np.diff(levels) > 0).all()
    found = burden(same, levels, seconds=30, ks=range(1, 3))
    assert found.stopped is None
    assert found.kauc["largest"].tolist() == [1.0, 1.0]


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"score": rng.uniform(0, 10, 60).round(2), "group": rng.choice(["[low]", "[/b]"], 60)})


def test_names_in_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    """The screen took [low] for markup and left it out, and died of [/b]."""
    weights = numpy_helper.from_array(np.array([[1.0], [0.0]], dtype=np.float32), "w")
    bias = numpy_helper.from_array(np.array([-5.0], dtype=np.float32), "b")
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, n]) for name, n in (("x", 2), ("y", 1)))
    graph = helper.make_graph([helper.make_node("Gemm", ["x", "w", "b"], ["y"])], "net", [x], [y], [weights, bias])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx")
    PEOPLE.save(tmp_path / "people.toml")
    people().to_csv(tmp_path / "people.csv", index=False)
    files = ["net.onnx", "--schema", "people.toml", "--data", "people.csv"]
    with contextlib.chdir(tmp_path):
        done = CliRunner().invoke(app, ["fgce", *files, "--protected", "group", "--k", "2", "--out", "out"])
    assert done.exit_code == 0, done.output
    for text in (done.stdout, (tmp_path / "out" / "fgce.txt").read_text()):
        for name in ("group = [low]", "group = [/b]"):
            assert f"{name}: counterfactuals" in text
    # a feature that is called as a column of ours stays beside it
    assert list(pd.read_csv(tmp_path / "out" / "attribute-changes.csv")) == ["group", "score", "group (feature)"]
    advice = pd.read_csv(tmp_path / "out" / "counterfactuals.csv")
    assert (advice["group"] == "group = " + advice["group (feature)"]).all()


def test_a_worse_largest_cost_is_told_only_where_the_bounds_say_so() -> None:
    """Out of time, the group with the greater cost found was called worse, though its optimum was the smaller one."""
    model = GroupCounterfactuals(Threshold(), PEOPLE, k=2)
    found = summaries(model.fit(people(), sensitive_features="group"), pd.RangeIndex(60))
    (line,) = (one for one in comparisons(model, found, None) if one.measure.startswith("largest cost d"))
    assert line.measure == "largest cost d"
    assert line.clear
    worst, other = sorted(found, key=lambda one: -one.cost)
    assert line.worst == worst.name
    late = worst.model_copy(update={"certainty": worst.certainty.model_copy(update={"bound": other.cost - 0.1, "optimal": False})})
    (line,) = (one for one in comparisons(model, [late, other], None) if one.measure.startswith("largest cost d"))
    assert line.measure == "largest cost d (best known)"
    assert not line.clear
    late = worst.model_copy(update={"certainty": worst.certainty.model_copy(update={"bound": other.cost, "optimal": False})})
    (line,) = (one for one in comparisons(model, [late, other], None) if one.measure.startswith("largest cost d"))
    assert line.clear
