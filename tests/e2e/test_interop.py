"""verifair export and verifair verify on the shipped networks, and Marabou on what was written."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.interop import marabou_files
from benchmarks.interop.marabou import compared
from benchmarks.interop.questions import questions
from encoders.onnx.product_network import network_model
from tests.builders import network_of
from tests.e2e.conftest import Run

PERSON = {
    "status": "< 0 DM", "credit-history": "paid till now", "purpose": "television", "savings": "< 100 DM",
    "employment": "1-4 years", "installment-rate": 4, "other-debtors": "no other", "residence-since": 2, "age": "Senior",
    "property": "real estate", "installment-plans": "no plans", "housing": "own", "existing-credits": 1, "people-liable": 1,
    "telephone": "no", "foreign-worker": "no",
}


def boxes(**more: object) -> list[object]:
    return [part for name, value in {**PERSON, **more}.items() for part in ("--box", f"{name}={value}")]


def test_export_and_verify_on_the_shipped_network(inside: Run, tmp_path: Path) -> None:
    common = ["export", "--demo", "german", "--protected", "sex", *boxes(job="skilled")]
    code, screen, errors = inside(*common, "--relaxed", "--vnnlib", "out", "--json", "out.json")
    assert code == 0, errors
    assert "2 queries in out, each as VNN-LIB 1.0 and 2.0" in screen
    assert "2.0: relaxed, so that unsat proves but a sat has to be confirmed" in screen
    assert "intervals here: duration, credit-amount" in screen
    assert json.loads((tmp_path / "out.json").read_text())["files"] == ["0000-fall.vnnlib", "0001-rise.vnnlib"]
    code, screen, _ = inside("certify", "--demo", "german", "--protected", "sex", *boxes(job="skilled"))
    asked = []
    for name in ("0000-fall", "0001-rise"):
        results = ["--results", f"{name}.txt"]
        old = inside("verify", f"out/1.0/vnnlib/{name}.vnnlib", "--network", "out/1.0/onnx/product.onnx", *results)
        question = ["verify", f"out/2.0/vnnlib/{name}.vnnlib", "--network", "f=out/2.0/onnx/network.onnx"]
        new = inside(*question, "--certificate", f"{name}.json")
        assert old[0] == new[0] == 0
        word = old[1].split()[0]
        assert word in ("sat", "unsat")
        assert new[1].split()[0] == word
        assert (tmp_path / f"{name}.txt").read_text().startswith(f"{word}\n")
        assert f"{'about the real-valued' if word == 'unsat' else '1 case'}" in new[2]
        if word == "unsat":
            assert inside(*question, "--check", f"{name}.json")[:2] == (0, "unsat")
        asked.append(word)
    assert "PROVED" in screen.upper() if asked == ["unsat", "unsat"] else "sat" in asked


def test_a_sat_comes_with_its_assignment(inside: Run, tmp_path: Path) -> None:
    inside("export", "--demo", "adult", "--protected", "sex", "--relaxed", "--vnnlib", "out")
    fall = ["verify", "out/2.0/vnnlib/0000-fall.vnnlib", "--network", "f=out/2.0/onnx/network.onnx"]
    code, screen, errors = inside(*fall, "--json", "a.json", "--exit-verdict")
    words = screen.split()
    assert (code, words[0]) == (10, "sat"), errors
    assert words[1:4] == ["X_f", "real", "[1,102]"]
    start = {name: words.index(name) + 3 for name in ("X_f", "Y_f", "X_g", "Y_g")}
    y, z = ([Fraction(v) for v in words[start[name] : start[name] + 2]] for name in ("Y_f", "Y_g"))
    assert y[1] > y[0]
    assert z[1] < z[0]
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["answer"] == "sat"
    assert answer["float32_agrees"] is True


def test_mistakes_are_named(inside: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    hidden = '(vnnlib-version <2.0>)\n(declare-network f (declare-input X real [1]) (declare-hidden H real [1] "h"))'
    (tmp_path / "q.vnnlib").write_text(hidden)
    code, screen, errors = inside("verify", "q.vnnlib", "--network", "f=no.onnx")
    assert (code, screen) == (3, "")
    assert "q.vnnlib: line 2: hidden variables" in errors
    (tmp_path / "q.vnnlib").write_text("(assert")
    assert "q.vnnlib: line 1: this parenthesis is never closed" in refused("verify", "q.vnnlib")
    assert "no.vnnlib: cannot be read" in refused("verify", "no.vnnlib")
    assert "--method smt" in refused("verify", "q.vnnlib", "--method", "smt")
    solver = ["--method", "bnb", "--solver", "highs"]
    assert "bnb asks no solver; drop it, or choose auto or milp" in refused("verify", "q.vnnlib", *solver)
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (<= X_0 1) (>= X_0 0) (<= Y_0 1)))"
    (tmp_path / "q.vnnlib").write_text(text)
    assert "pass --network FILE.onnx" in refused("verify", "q.vnnlib")
    export = ["export", "--demo", "german", "--vnnlib"]
    assert "whole numbers or categories open: status (4 values)" in refused(*export, "out", "--protected", "sex")
    assert "needs a protected feature" in refused(*export, "out")
    assert "is not empty" in refused(*export, ".", "--protected", "sex")


def test_a_proof_of_another_query_proves_nothing(inside: Run, tmp_path: Path) -> None:
    """The exit code says so, too; a model that ends in a sigmoid is no network for a query."""
    weights = [(np.array([[1.0]]), np.array([0.0])), (np.array([[2.0]]), np.array([0.0]))]
    model = network_model(network_of(*weights), {})
    onnx.save(model, tmp_path / "f.onnx")
    model.graph.node.append(onnx.helper.make_node("Sigmoid", [model.graph.output[0].name], ["p"]))
    model.graph.output[0].name = "p"
    onnx.save(model, tmp_path / "g.onnx")
    box = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (<= X_0 1) (>= X_0 0)))"
    for name, least in (("q", 3), ("other", 4)):
        (tmp_path / f"{name}.vnnlib").write_text(f"{box}(assert (>= Y_0 {least}))")
    assert inside("verify", "q.vnnlib", "--network", "f.onnx", "--certificate", "p.json")[:2] == (0, "unsat")
    for name, more, code in (("q", [], 0), ("q", ["--exit-verdict"], 0), ("other", [], 1), ("other", ["--exit-verdict"], 20)):
        found = inside("verify", f"{name}.vnnlib", "--network", "f.onnx", "--check", "p.json", *more)
        assert found[:2] == (code, "unknown" if code else "unsat")
    code, screen, errors = inside("verify", "q.vnnlib", "--network", "g.onnx")
    assert (code, screen) == (3, "")
    assert "ends with sigmoid" in errors


@pytest.mark.skipif(not marabou_files.installed(), reason="maraboupy is not installed: pip install 'verifair[peers]'")
def test_marabou_reads_the_files_and_agrees(tmp_path: Path) -> None:
    asked = questions(tmp_path / "nets", 1, tables=["german"], hidden=[(8,), (12, 6)])
    lines = [line for one in asked for line in compared(one, tmp_path / one.name.replace(" ", "-"), 20)]
    assert len(lines) == 6
    assert {line["marabou"] for line in lines} == {"sat", "unsat"}
    for line in lines:
        assert line["marabou"] == line["ours 1.0"] == line["ours 2.0"], line
