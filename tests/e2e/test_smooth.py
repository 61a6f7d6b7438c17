"""A tanh network through the command line: proved, refuted, checked, partitioned, and refused where it must be."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.naive_bayes import GaussianNB

import verifair as vf
from tests.builders import categorical, integer, schema_of
from tests.command_line import answered, flat, verifair

SCHEMA = schema_of(
    categorical("sex", "f", "m", protected=True),
    integer("age", 0, 40, unit=1, merit=True),
    positive="logit > 0", label="credit", positive_label="good",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """g = tanh(0.2 age + 0.1 sex - 3) + 0.5 tanh(-0.1 age + 0.02 sex): flips with sex next to one age only."""
    constants = {"w": [[0.1, 0.2], [0.02, -0.1]], "b": [-3.0, 0.0], "v": [[1.0, 0.5]], "c": [0.4]}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["a"], transB=1, name="one"), helper.make_node("Tanh", ["a"], ["h"], name="two"),
        helper.make_node("Gemm", ["h", "v", "c"], ["y"], transB=1, name="three"),
    ]
    stored = [numpy_helper.from_array(np.array(value, dtype=np.float32), name) for name, value in constants.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in (("x", 2), ("y", 1))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    SCHEMA.save(tmp_path / "s.toml")
    return tmp_path


def asked(folder: Path, *more: object) -> tuple[int, str]:
    done = verifair("certify", folder / "m.onnx", "--schema", folder / "s.toml", "--protected", "sex", *more, cwd=folder)
    return done.returncode, flat(done.stdout + done.stderr)


def test_proved_refuted_checked_and_refused(folder: Path) -> None:
    proof = folder / "proof.json"
    code, told = asked(folder, "--box", "age=0:10", "--certificate", proof)
    assert code == 0
    assert "PROVED" in told
    checked = answered("check", proof, "--model", folder / "m.onnx", "--schema", folder / "s.toml", cwd=folder)
    assert "ACCEPTED" in checked.stdout
    code, told = asked(folder, "--epsilon", "0.001")
    assert code == 0
    assert "VIOLATED" in told
    assert "sigmoid and tanh as the real functions" in told
    for more in (("--method", "milp"), ("--method", "smt")):
        code, told = asked(folder, *more)
        assert code == 3
        assert "hidden layer 1 has tanh neurons" in told


def test_a_partition_is_decided_and_checked(folder: Path) -> None:
    store = folder / "parts.sqlite"
    code, _ = asked(folder, "--partition", 5, "--store", store, "--epsilon", "0.02")
    assert code == 0
    checked = answered("check", store, "--model", folder / "m.onnx", "--schema", folder / "s.toml", cwd=folder)
    assert "ACCEPTED" in checked.stdout


def test_naive_bayes_is_proved_bracketed_and_checked(tmp_path: Path) -> None:
    """A fitted estimator whose logit adds up squares: decisions, the largest gap and parts, as by brute force over everybody."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 2, 400), rng.integers(0, 41, 400)]).astype(float)
    y = (x[:, 1] + 9 * x[:, 0] + rng.normal(0, 12, 400) > 22).astype(int)
    model = GaussianNB().fit(x, y)
    vf.save_onnx(vf.read(model), tmp_path / "m.onnx")
    SCHEMA.save(tmp_path / "s.toml")
    everybody = np.array([[sex, age] for age in range(41) for sex in (0, 1)], dtype=float)
    chance = model.predict_proba(everybody)[:, 1].reshape(-1, 2)
    gap, flips = np.abs(np.diff(chance, axis=1)).max(), (model.predict(everybody).reshape(-1, 2) @ [1, -1] != 0)
    about = ("--model", tmp_path / "m.onnx", "--schema", tmp_path / "s.toml")
    code, told = asked(tmp_path, "--maximise", "--certificate", tmp_path / "gap.json", "--json", tmp_path / "gap.answer.json")
    assert code == 0, told
    found = json.loads((tmp_path / "gap.answer.json").read_text())
    assert found["lower"] - 1e-6 <= gap <= found["upper"] + 1e-6
    code, told = asked(tmp_path, "--partition", 5, "--store", tmp_path / "parts.sqlite", "--json", tmp_path / "parts.json")
    assert code == 0, told
    assert "square as the real functions" in told
    for proof in ("gap.json", "parts.sqlite"):
        assert "ACCEPTED" in answered("check", tmp_path / proof, *about, cwd=tmp_path).stdout
    age = int(np.flatnonzero(~flips)[0])
    code, told = asked(tmp_path, "--box", f"age={age}:{age}", "--certificate", tmp_path / "box.json")
    assert "PROVED" in told
    assert "ACCEPTED" in answered("check", tmp_path / "box.json", *about, cwd=tmp_path).stdout
    age = int(np.flatnonzero(flips)[0])
    assert "VIOLATED" in asked(tmp_path, "--box", f"age={age}:{age}")[1]
    code, told = asked(tmp_path, "--share")
    assert code == 3
    assert "hidden layer 1 has square neurons" in told


def test_an_audit_says_what_does_not_take_curves_and_goes_on(folder: Path) -> None:
    analyses = "[analyses.certify]\nmaximise = false\nbox = { age = [0, 10] }\n[analyses.kmax]\n"
    analyses += "[analyses.cec]\ncertify = 1\nrows = 20\n"
    named = {"model": "m.onnx", "schema": "s.toml", "data": "t.csv"}
    files = "".join(f'[{key}]\nfile = "{name}"\n' for key, name in named.items()) + '[sensitive]\nfeatures = ["sex"]\n'
    rows = [f"{age},{'fm'[age % 2]},{'good' if age % 3 else 'bad'}\n" for age in range(10, 30)]
    (folder / "t.csv").write_text("".join(["age,sex,credit\n", *rows]))
    (folder / "audit.toml").write_text('title = "Curves"\neffort = 30\ntimeout = 600\n' + files + analyses)
    answered("audit", "audit.toml", "--out", "report.html", cwd=folder)
    certify, kmax, cec = json.loads((folder / "report.json").read_text())["sections"]
    assert "proved" in [one["standing"] for one in certify["statements"]]
    assert certify["evidence"][0]["checked"] == "accepted"
    assert "sigmoid and tanh as the real functions" in certify["semantics"]
    assert kmax["evidence"][0]["checked"] == "accepted"
    (said,) = cec["statements"]
    assert said["standing"] == "skipped"
    assert said["text"].startswith("Did not run: m.onnx: hidden layer 1 has tanh neurons")   # no folder of ours on the page
    assert said["text"].endswith("smooth.md.")
