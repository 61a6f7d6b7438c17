"""verifair certify in all its modes, and verifair check on what each of them wrote, as a user meets them.

Ground truth comes from a tiny network whose weights are multiples of 1/16: over its 882 rows everything is counted exactly.
"""

import contextlib
import gzip
import hashlib
import itertools
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.builders import categorical, integer, schema_of
from tests.command_line import RUN, Run, answered, flat
from verifair import cli, datasets
from verifair.bench.processes import family, kill
from verifair.checker.partition import TABLES, PartitionStore
from verifair.engine import counterexamples, partition

W1 = np.array([[2, 1, 0], [0, 0, 1], [1, -1, 1]], dtype=np.float32)
B1 = np.array([-10, -4, 0], dtype=np.float32)
W2, B2 = np.array([[0.5, -0.25, 0.125]], dtype=np.float32), np.array([-0.5625], dtype=np.float32)
SCHEMA = schema_of(
    categorical("sex", "Female", "Male", protected=True),
    integer("age", 0, 20),
    integer("hours", 0, 20),
    positive="logit > 0",
    outcomes=["no", "yes"],
)
ROWS = np.array(list(itertools.product(range(21), range(21))))


def logit(sex: int, rows: np.ndarray) -> np.ndarray:
    x = np.column_stack([np.full(len(rows), sex), rows])
    return (np.maximum(x @ W1.T + B1, 0) @ W2.T + B2)[:, 0]


def flips(rows: np.ndarray) -> np.ndarray:
    return logit(0, rows) * logit(1, rows) < 0


def gaps(rows: np.ndarray) -> np.ndarray:
    first, second = (1 / (1 + np.exp(-logit(sex, rows))) for sex in (0, 1))
    return np.abs(first - second)




@pytest.fixture
def verifair(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The entry point of the command, in this process: exit code, screen, errors; a line of the screen is not broken."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["verifair", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "300")
        code: Any = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """MODEL --schema SCHEMA --protected sex of the tiny network."""
    weights = [numpy_helper.from_array(value, name) for name, value in zip(("a", "b", "c", "d"), (W1, B1, W2, B2), strict=True)]
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["h"], transB=1), helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "c", "d"], ["y"], transB=1),
    ]
    return [*written(tmp_path_factory.mktemp("tiny"), nodes, weights), "--protected", "sex"]


def written(folder: Path, nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto]) -> list[object]:
    """MODEL --schema SCHEMA of a network from x, the schema's columns, to y."""
    SCHEMA.save(folder / "tiny.toml")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name, width in (("x", 3), ("y", 1))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "tiny.onnx")
    return [folder / "tiny.onnx", "--schema", folder / "tiny.toml"]


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The shipped model, around a person for whom the answer varies: MODEL --schema SCHEMA --protected sex --box ..."""
    folder = tmp_path_factory.mktemp("german")
    dataset = datasets.load("german")
    dataset.schema.save(folder / "german.toml")
    row = dataset.test.iloc[10]
    free = ("credit", "sex", "duration", "credit-amount", "installment-rate", "residence-since")
    box = [part for name in row.index if name not in free for part in ("--box", f"{name}={row[name]}")]
    return [datasets.network_path("german"), "--schema", folder / "german.toml", "--protected", "sex", *box]


def about(files: list[object]) -> tuple[object, ...]:
    return "--model", files[0], "--schema", files[2]


def strict(path: Path) -> Any:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} in {path}")

    return json.loads(path.read_text(), parse_constant=refuse)


def tampered(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The certificate with something changed, and a digest that fits again."""
    raw = path.read_bytes()
    payload = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    payload.pop("digest")
    change(payload)
    digest = hashlib.sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    out = path.with_name("tampered.json")
    out.write_text(json.dumps(payload | {"digest": digest}))
    return out


# One box


def test_a_flip_is_shown_and_its_absence_is_proved_and_checked(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    assert flips(ROWS).any()
    code, out, _ = verifair("certify", *tiny, "--flip", "--exit-verdict", "--json", tmp_path / "v.json")
    assert code == 10
    assert "VIOLATED: the same person, another value of sex, another decision" in out
    answer = strict(tmp_path / "v.json")
    x = answer["witness"]["x"]
    assert flips(np.array([[x["age"], x["hours"]]]))[0]
    assert answer["witness"]["float32_agrees"] is True
    assert (answer["query"]["epsilon"], answer["query"]["signs"]) == (None, "deployed")
    fair = ROWS[~flips(ROWS)]
    ages = [age for age in range(21) if not flips(ROWS[ROWS[:, 0] == age]).any()]
    assert len(fair)
    assert ages
    proof = tmp_path / "deep" / "proof.json"
    code, out, _ = verifair("certify", *tiny, "--box", f"age={ages[0]}", "--exit-verdict", "--certificate", proof)
    assert code == 0
    assert "PROVED (checked): in the box, no decision flips with sex (positive means logit > 0)." in out
    assert f"verifair check {proof}" in out
    code, out, _ = verifair("check", proof, *about(tiny))
    assert (code, "ACCEPTED" in out) == (0, True)
    assert f"no decision flips when sex changes (positive means logit > 0); where age = {ages[0]}" in out
    wider = next(age for age in range(21) if flips(ROWS[ROWS[:, 0] == age]).any())

    def widen(payload: dict[str, Any]) -> None:
        payload["query"]["box"]["age"] = [wider, wider]
        for one in payload["proofs"]:
            one["statement"]["lower"][1] = one["statement"]["upper"][1] = wider

    code, out, _ = verifair("check", tampered(proof, widen), *about(tiny))
    assert (code, "REJECTED" in out) == (1, True)


@pytest.mark.parametrize(("signs", "words", "status", "code"), [
    ("deployed", "(positive means logit > 0)", "violated", 10),
    ("strict", "(positive means logit > 0, negative < 0; ties count on neither side)", "proved", 0),
])
def test_a_tie_is_decided_by_the_rule_that_is_asked_for(
    signs: str, words: str, status: str, code: int, verifair: Run, tmp_path: Path
) -> None:
    """logit = relu(age + 2 sex - 5): at age 4 it is 0 for one, 1 for the other."""
    weights = [numpy_helper.from_array(np.array(one, dtype=np.float32), name) for one, name in (([[2, 1, 0]], "a"), ([-5], "b"))]
    nodes = [helper.make_node("Gemm", ["x", "a", "b"], ["h"], transB=1), helper.make_node("Relu", ["h"], ["y"])]
    files = [*written(tmp_path, nodes, weights), "--protected", "sex"]
    proof = tmp_path / "proof.json"
    asked = ("certify", *files, "--signs", signs, "--exit-verdict")
    found, out, _ = verifair(*asked, "--json", tmp_path / "v.json", "--certificate", proof)
    assert (found, words in out) == (code, True)
    answer = strict(tmp_path / "v.json")
    assert (answer["status"], answer["query"]["signs"]) == (status, signs)
    store = tmp_path / "parts.sqlite"
    _, out, _ = verifair("certify", *files, "--signs", signs, "--partition", 3, "--store", store, "--json", tmp_path / "p.json")
    assert f"No decision flips with sex {words}: certified on" in out
    answer = strict(tmp_path / "p.json")
    assert (answer["query"]["signs"], answer["parts"]["violated"] > 0) == (signs, signs == "deployed")
    for file in (proof, store)[signs == "deployed" :]:
        found, out, _ = verifair("check", file, *about(files))
        assert (found, words in out, "ACCEPTED" in out) == (0, True, True)


def test_epsilon_is_decided_at_the_edge_of_the_true_gap(
    german: list[object], tiny: list[object], verifair: Run, tmp_path: Path
) -> None:
    most = float(gaps(ROWS).max())
    code, out, _ = verifair("certify", *tiny, "--epsilon", most - 1e-3, "--exit-verdict", "--json", tmp_path / "v.json")
    assert code == 10
    answer = strict(tmp_path / "v.json")
    first, second = answer["witness"]["probabilities"]
    assert abs(first - second) == pytest.approx(most - 1e-3 - answer["witness"]["margin"])
    assert answer["witness"]["margin"] < 0
    assert f"{abs(first - second):.4f} apart" in out
    proof = tmp_path / "e.json.gz"
    code, out, _ = verifair("certify", *tiny, "--epsilon", most + 1e-3, "--exit-verdict", "--certificate", proof)
    assert code == 0
    assert verifair("check", proof, *about(tiny))[0] == 0
    assert verifair("check", tampered(proof, lambda p: p["query"].update(epsilon=most - 1e-3)), *about(tiny))[0] == 1
    assert verifair("certify", *german, "--epsilon", 0.9, "--exit-verdict")[0] == 0


def test_what_is_not_decided_is_unknown(german: list[object], verifair: Run, tmp_path: Path) -> None:
    everyone = german[:5]
    command = ("certify", *everyone, "--epsilon", 0.5, "--timeout", 0.001, "--exit-verdict")
    code, out, _ = verifair(*command, "--json", tmp_path / "v.json")
    assert code == 20
    assert "UNKNOWN (time)" in out
    assert strict(tmp_path / "v.json")["reason"] == "time"


@pytest.fixture(scope="module")
def ties(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """MODEL --schema SCHEMA --protected sex of max(hours - 20 + sex / 2, 0): 0 but for men of 20 hours."""
    weights = [
        numpy_helper.from_array(np.array([[0.5], [0], [1]], dtype=np.float32), "a"),
        numpy_helper.from_array(np.array([-20], dtype=np.float32), "b"),
    ]
    nodes = [helper.make_node("Gemm", ["x", "a", "b"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    return [*written(tmp_path_factory.mktemp("ties"), nodes, weights), "--protected", "sex"]


def test_ties_have_no_margin_and_one_person_is_one(ties: list[object], verifair: Run, tmp_path: Path) -> None:
    proof = tmp_path / "strict.json"
    code, out, _ = verifair("certify", *ties, "--signs", "strict", "--certificate", proof, "--exit-verdict")
    assert (code, "ties count on neither side" in out, "Margin" in out) == (0, True, False)
    assert verifair("check", proof, *about(ties))[0] == 0
    code, out, _ = verifair("certify", *ties, "--box", "age=3", "--enumerate", 9, "--exit-verdict")
    assert code == 10
    assert out.startswith("1 person is decided otherwise with another value of sex, all else equal. There is nobody else: ")
    code, out, _ = verifair("certify", *ties, "--box", "hours=0:19", "--arithmetic", "float32", "--exit-verdict")
    assert (code, "UNKNOWN (float32)" in out, "a longer run does not decide it" in out) == (20, True, True)


def test_a_certificate_that_is_not_written_is_explained(
    tiny: list[object], german: list[object], verifair: Run, tmp_path: Path
) -> None:
    proof = tmp_path / "p.json"
    code, out, _ = verifair("certify", *tiny, "--certificate", proof)
    assert (code, proof.exists(), "VIOLATED" in out) == (0, False, True)
    assert "no certificate was written: the rows found are the evidence" in out
    proof.write_text("older")
    code, out, _ = verifair("certify", *german, "--timeout", 1e-9, "--certificate", proof)
    assert (code, proof.read_text(), "UNKNOWN" in out) == (0, "older", True)
    assert f"no certificate was written: nothing was proved; {proof} is there from before" in out
    targeted = ("--targeted", "age=1:9", "--targeted", "age=0:20")
    code, out, _ = verifair("certify", *tiny, "--certificate", tmp_path / "proofs", *targeted)
    assert (code, "no certificate was written for 1 of 2" in out) == (0, True)
    code, out, _ = verifair("certify", *tiny)
    assert "certificate" not in out


def test_relaxed_people_differ_a_little_more(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    """The largest gap between people whose age may differ by one, against brute force."""
    pairs = [(row, row + np.array([shift, 0])) for row in ROWS for shift in (-1, 0, 1) if 0 <= row[0] + shift <= 20]
    a, b = (np.array(one) for one in zip(*pairs, strict=True))
    most = float(np.abs(1 / (1 + np.exp(-logit(0, a))) - 1 / (1 + np.exp(-logit(1, b)))).max())
    assert most > gaps(ROWS).max() + 0.01
    proof = tmp_path / "m.json"
    more = ("--relax", "age=1", "--maximise", "--certificate", proof)
    code, out, _ = verifair("certify", *tiny, *more, "--json", tmp_path / "m.out")
    assert (code, "when sex changes, and age by up to 1: at most" in " ".join(out.split())) == (0, True)
    answer = strict(tmp_path / "m.out")
    assert answer["lower"] <= most + 1e-12
    assert most - 1e-12 <= answer["upper"] <= answer["lower"] + 1.1e-4
    code, out, _ = verifair("check", proof, *about(tiny))
    assert (code, "and age by up to 1" in out) == (0, True)


# Several boxes


def test_each_sub_population_has_its_verdict(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    texts = ["age=1:9", "hours=0:5,age=12:20", "age=9:12"]
    age, hours = ROWS.T
    parts = [ROWS[(age >= 1) & (age <= 9)], ROWS[(hours <= 5) & (age >= 12)], ROWS[(age >= 9) & (age <= 12)]]
    truth = ["violated" if flips(part).any() else "proved" for part in parts]
    assert len(set(truth)) == 2
    asked = [part for text in texts for part in ("--targeted", text)]
    files = ("--certificate", tmp_path / "p", "--json", tmp_path / "t.json")
    code, out, _ = verifair("certify", *tiny, *asked, "--exit-verdict", *files)
    assert code == 10
    answer = strict(tmp_path / "t.json")
    assert [one["status"] for one in answer["verdicts"]] == truth
    assert [one["targeted"] for one in answer["verdicts"]] == texts
    assert f"{truth.count('proved')} proved, {truth.count('violated')} refuted, 0 unknown" in out
    proofs = [one["certificate_file"] for one in answer["verdicts"]]
    assert [file is not None for file in proofs] == [status == "proved" for status in truth]
    for file in filter(None, proofs):
        assert verifair("check", file, *about(tiny))[0] == 0


# Who is treated differently


@pytest.mark.parametrize("method", [(), ("--method", "bnb"), ("--method", "milp", "--solver", "highs")])
def test_everybody_who_is_treated_differently_is_listed(
    method: tuple[str, ...], tiny: list[object], verifair: Run, tmp_path: Path
) -> None:
    answer, out = tmp_path / "a.json", tmp_path / "found"
    inside = (ROWS >= [8, 0]).all(axis=1) & (ROWS <= [12, 20]).all(axis=1)
    wrong = {tuple(row) for row in ROWS[inside & flips(ROWS)].tolist()}
    assert len(wrong) > 5
    command = ["certify", *tiny, "--box", "age=8:12", *method, "--json", answer, "--out", out, "--exit-verdict"]
    code, screen, _ = verifair(*command, "--enumerate", 1000)
    found = strict(answer)
    assert code == 10
    assert {(one["x"]["age"], one["x"]["hours"]) for one in found["counterexamples"]} == wrong
    assert len(found["counterexamples"]) == len(wrong)
    for one in found["counterexamples"]:
        assert {one["x"]["sex"], one["x_prime"]["sex"]} == {"Female", "Male"}
        assert one["float32_agrees"] is True
    assert (found["complete"], found["wanted"], found["reason"], found["certificate"]) == (True, 1000, None, None)
    assert found["rests_on"] == ("solver" if method[1:2] == ("milp",) else "search") or found["rests_on"] == "search"
    assert f"{len(wrong)} different people are decided otherwise with another value of sex" in screen
    assert "These are all" in screen
    assert "no certificate" in screen or "nobody has checked it" in screen
    table = pd.read_csv(out / "counterexamples.csv")
    assert set(zip(table["age"], table["hours"], strict=True)) == wrong
    assert (table["decision"] != table["decision'"]).all()
    assert (out / "certify.txt").read_text(encoding="utf-8").startswith(f"{len(wrong)} different people")
    code, screen, _ = verifair(*command, "--enumerate", 3)
    assert (code, len(strict(answer)["counterexamples"]), strict(answer)["complete"]) == (10, 3, False)
    assert "there may be others" in screen


def test_nobody_to_list_is_a_proof(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    assert not flips(ROWS[(ROWS[:, 0] >= 3) & (ROWS[:, 0] <= 6)]).any()
    proof, answer = tmp_path / "p.json", tmp_path / "a.json"
    command = ["certify", *tiny, "--box", "age=3:6", "--enumerate", 5, "--json", answer, "--exit-verdict"]
    code, out, _ = verifair(*command, "--certificate", proof)
    assert (code, strict(answer)["counterexamples"], strict(answer)["rests_on"]) == (0, [], "certificate")
    assert "there is nobody to list" in out
    code, out, _ = verifair("check", proof, *about(tiny))
    assert (code, "ACCEPTED" in out) == (0, True)


def test_ctrl_c_keeps_who_was_found(
    german: list[object], verifair: Run, tmp_path: Path, ctrl_c: Callable[..., None]
) -> None:
    ctrl_c(counterexamples, "witness_of", 3, after=True)
    code, out, err = verifair("certify", *german, "--enumerate", 100000, "--json", tmp_path / "a.json")
    found = strict(tmp_path / "a.json")
    assert code == 130
    assert (found["complete"], found["reason"]) == (False, "interrupted")
    assert len(found["counterexamples"]) >= 2
    assert "of 100,000 had been found" in err
    assert "The search did not come to its end (it was interrupted)" in out


# The largest gap


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_the_largest_gap_is_bracketed(scale: str, tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    most = float((np.abs(logit(0, ROWS) - logit(1, ROWS)) if scale == "logit" else gaps(ROWS)).max())
    more = ["--logit"] if scale == "logit" else []
    proof = tmp_path / "m.json.gz"
    code, out, _ = verifair(
        "certify", *tiny, "--maximise", *more, "--tolerance", 1e-3, "--certificate", proof, "--json", tmp_path / "m.json"
    )
    assert code == 0
    answer = strict(tmp_path / "m.json")
    assert answer["lower"] <= most <= answer["upper"] <= answer["lower"] + 1.1e-3
    assert answer["quantity"] == answer["query"]["quantity"] == {"logit": "log-odds"}.get(scale, scale)
    assert "certified; the worst pair found differs by" in out
    shown = out.split("at most ")[1].split(",")[0], out.split("differs by ")[1].split()[0].rstrip(".")
    assert float(shown[0]) >= answer["upper"]
    assert float(shown[1]) <= answer["lower"]
    code, out, _ = verifair("check", proof, *about(tiny))
    assert (code, str(answer["upper"]) in out) == (0, True)
    less = tampered(proof, lambda payload: payload["query"].update(epsilon=0.9 * most))
    assert verifair("check", less, *about(tiny))[0] == 1


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a run's processes are found in /proc")
def test_ctrl_c_in_a_terminal_keeps_both_sides(tmp_path: Path) -> None:
    """It reaches all processes of the run, those that share its boxes, too."""
    command = ["certify", "--demo", "german", "--protected", "sex", "--maximise", "--jobs", "2", "--timeout", "300"]
    command += ["--json", str(tmp_path / "m.json"), "--certificate", str(tmp_path / "proof.json.gz")]
    running = subprocess.Popen(
        [*RUN, *command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while len(family(running.pid)) < 4 and running.poll() is None and time.monotonic() < deadline:  # two of them, and joblib's
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=120)
        deadline = time.monotonic() + 20
        while family(running.pid) and time.monotonic() < deadline:  # trackers end when they hear that it has
            time.sleep(0.05)
        assert not family(running.pid)
    finally:
        kill(running.pid)
    assert (running.returncode, err.strip()) == (130, "interrupted: these are the two bounds found until then")
    assert "(interrupted): these are the bounds until then" in flat(out)
    assert strict(tmp_path / "m.json")["reason"] == "interrupted"
    assert answered("check", tmp_path / "proof.json.gz", "--demo", "german").returncode == 0


# The whole domain


def test_the_share_of_people_is_bracketed_resumed_drawn_and_checked(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    frame = pd.DataFrame({"sex": "Male", "age": ROWS[:, 0] + 2, "hours": ROWS[:, 1]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    store = tmp_path / "new" / "share.json.gz"
    command = ["certify", *tiny, "--signs", "strict", "--share", "--tolerance", "0", "--store", store]
    command += ["--json", tmp_path / "s.json"]
    shipped = ("certify", "--demo", "german", "--protected", "sex")
    code, out, _ = verifair(*shipped, "--share", "--nodes", 1, "--store", tmp_path / "nothing.json.gz")
    assert (code, "which shows nothing yet" in " ".join(out.split())) == (0, True)
    code, out, err = verifair(*command, "--nodes", 5)
    assert (code, "--resume" in err) == (0, True)
    measured, true = strict(tmp_path / "s.json"), flips(ROWS).mean()
    assert measured["reason"] == "nodes"
    assert measured["sample"]["points"] == 10_000
    assert measured["sample"]["low"] <= true <= measured["sample"]["high"]
    assert abs(measured["sample"]["unfair"] - 10_000 * true) < 4 * (10_000 * true * (1 - true)) ** 0.5
    assert f"Measured, not proved: {measured['sample']['unfair']:,} of 10,000 random points are not fair" in " ".join(out.split())
    for partial, said in (((), "INCOMPLETE: 0 of 1 brackets"), (("--partial",), "PARTIALLY ACCEPTED: 0 of 1 brackets")):
        code, out, _ = verifair("check", store, *about(tiny), *partial)
        assert (code, said in out, "(the tolerance is 0.0)" in out) == (1 - len(partial), True, True)
    code, _, err = verifair(*command)
    assert (code, "is there already" in err) == (2, True)
    code, out, _ = verifair(*command, "--resume", "--jobs", 2, "--data", tmp_path / "rows.csv", "--plot", tmp_path / "s.png")
    answer, old = strict(tmp_path / "s.json"), frame["age"].to_numpy() > 20
    assert (code, answer["reason"], answer["sample"]) == (0, None, None)
    assert (answer["fair"], answer["unfair"]) == (pytest.approx(1 - true, abs=1e-12), pytest.approx(true, abs=1e-12))
    hit = int(flips(frame[["age", "hours"]].to_numpy()[~old]).sum())
    assert answer["rows"] == {"fair": int((~old).sum()) - hit, "unfair": hit, "outside": int(old.sum())}
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = verifair("check", store, *about(tiny))
    assert (code, "no decision flips for at least" in out, "ACCEPTED" in out) == (0, True, True)
    more = tampered(store, lambda payload: payload.update(fair=["1", "1"]))
    assert verifair("check", more, *about(tiny))[0] == 1


def test_the_certified_share_is_the_true_one(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    size = 4
    frame = pd.DataFrame({"sex": "Male", "age": ROWS[:, 0] + 2, "hours": ROWS[:, 1]}).sample(300, random_state=0)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    store = tmp_path / "new one" / "tiny.sqlite"
    code, out, _ = verifair(
        "certify", *tiny, "--partition", size, "--store", store, "--data", tmp_path / "rows.csv", "--plot", tmp_path / "s.png",
        "--json", tmp_path / "s.json", "--exit-verdict",
    )
    assert code == 10
    cell = ROWS // size
    unfair = {tuple(one) for one in cell[flips(ROWS)].tolist()}
    part = np.array([tuple(one) in unfair for one in cell.tolist()])
    count = len({tuple(one) for one in cell.tolist()})
    answer = strict(tmp_path / "s.json")
    assert answer["parts"] == {"all": count, "unknown": 0, "proved": count - len(unfair), "violated": len(unfair), "not_reached": 0}
    assert answer["shares"]["volume"]["violated"] == pytest.approx(part.mean())
    assert answer["shares"]["parts"]["proved"] == pytest.approx(1 - len(unfair) / count)
    rows = frame[["age", "hours"]].to_numpy()
    outside = rows[:, 0] > 20
    hit = sum(tuple(one) in unfair for one in (rows[~outside] // size).tolist())
    expected = {"all": 300, "proved": int((~outside).sum()) - hit, "violated": hit, "outside": int(outside.sum())}
    assert answer["rows"] == {**expected, "unknown": 0, "not_reached": 0}
    assert answer["trust"] == {"checked": count - len(unfair), "claimed": 0}
    assert answer["float32"] == {"agrees": len(unfair), "disagrees": 0, "not_replayed": 0}
    assert answer["stopped"] == "done"
    assert answer["examples"]
    for one in answer["examples"]:
        assert flips(np.array([[one["x"]["age"], one["x"]["hours"]]]))[0]
        assert {one["x"]["sex"], one["x_prime"]["sex"]} == {"Female", "Male"}
    ages = next(one for one in answer["blocks"] if one["feature"] == "age")
    assert ages["low"] == [0, 4, 8, 12, 16, 20]
    assert ages["violated"] == [sum(a == k for a, _ in unfair) for k in range(6)]
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    for word in ("Certified share", "data rows", "person 1", "Female → Male", f"verifair check '{store}'"):
        assert word in out
    code, out, _ = verifair("check", store, *about(tiny))
    assert (code, f"ACCEPTED: {2 * (count - len(unfair)):,} proofs, {len(unfair):,} counterexamples, " in out) == (0, True)
    with sqlite3.connect(store) as connection:
        first, status = connection.execute("SELECT first, status FROM chunks").fetchone()
        connection.execute("UPDATE chunks SET status = ? WHERE first = ?", (status.replace(b"\2", b"\1", 1), first))
    connection.close()
    code, out, _ = verifair("check", store, *about(tiny))
    assert (code, "REJECTED" in out) == (1, True)


def test_a_time_out_leaves_a_file_that_resumes(german: list[object], verifair: Run, tmp_path: Path) -> None:
    command = ["certify", *german, "--partition", 1000, "--store", tmp_path / "g.sqlite", "--json", tmp_path / "g.json"]
    code, _, err = verifair(*command, "--timeout", 0.0001, "--exit-verdict")
    assert code == 20
    first = strict(tmp_path / "g.json")
    assert first["stopped"] == "limit"
    assert first["parts"]["unknown"] + first["parts"]["not_reached"] == first["parts"]["all"] == 19
    assert "19 parts are open; pass the same command with --resume" in err
    code, _, err = verifair(*command)
    assert (code, "continue it with --resume" in err) == (2, True)
    code, _, err = verifair(*command, "--resume", "--exit-verdict", "--jobs", 2)
    assert (code, err) == (10, "")
    assert strict(tmp_path / "g.json")["stopped"] == "done"
    code, _, err = verifair(*command, "--resume", "--epsilon", 0.1)
    assert (code, "holds another question" in err) == (2, True)


def test_an_interrupted_run_resumes_to_the_same_shares(
    german: list[object], verifair: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctrl_c: Callable[..., None]
) -> None:
    command = ["certify", *german, "--partition", "100", "--json", tmp_path / "g.json", "--store"]
    monkeypatch.setattr(partition, "QUESTIONS", 16)
    ctrl_c(PartitionStore, "add", 4, after=True)
    code, out, err = verifair(*command, tmp_path / "killed.sqlite")
    assert code == 130
    assert "interrupted: 118 parts are open" in err
    assert "Certified share" in out
    answer = strict(tmp_path / "g.json")
    assert answer["stopped"] == "interrupted"
    assert answer["parts"]["not_reached"] == 182 - 4 * 16
    shares = []
    for more in (["killed.sqlite", "--resume"], ["whole.sqlite"]):
        assert verifair(*command, tmp_path / more[0], *more[1:])[0] == 0
        answer = strict(tmp_path / "g.json")
        assert answer["stopped"] == "done"
        shares.append((answer["parts"], answer["shares"], answer["blocks"]))
    assert shares[0] == shares[1]
    assert shares[0][0]["proved"] > 0 < shares[0][0]["violated"]


def test_check_knows_a_bound_of_k(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    proof = tmp_path / "k.json"
    code, out, _ = verifair("kmax", *tiny, "--buckets", 10, "--box", "age=4:8", "--timeout", 2, "--certificate", proof)
    assert code == 0
    assert f"certificate: {proof} (verifair check {proof} " in out
    code, out, _ = verifair("check", proof, *about(tiny), "--json", tmp_path / "c.json")
    assert (code, "ACCEPTED" in out) == (0, True)
    answer, digest = strict(tmp_path / "c.json"), hashlib.sha256(Path(str(tiny[0])).read_bytes()).hexdigest()
    assert answer["format"] == "verifair-kmax-certificate/3"
    assert answer["model_sha256"] == digest
    assert f"SHA-256 {digest}" in out
    assert f"SHA-256 of its content {answer['schema_sha256']}" in out
    upper = json.loads(proof.read_text())["upper"]
    assert f"nobody falls into more than {upper} of 10 outcome buckets" in out

    def claim_less(payload: dict[str, Any]) -> None:
        payload["upper"] = upper - 1

    assert verifair("check", tampered(proof, claim_less), *about(tiny))[0] == 1


# Mistakes


@pytest.mark.parametrize(("extra", "message"), [
    (["--flip", "--epsilon", "0.1"], "choose one"),
    (["--signs", "strict", "--epsilon", "0.1"], "--signs says when a decision flips, --epsilon asks about probabilities: drop one"),
    (["--signs", "deployed", "--epsilon", "0.1"], "drop one of the two"),
    (["--signs", "loose"], "--signs loose: expected deployed or strict"),
    (["--maximise", "--signs", "strict"], "drop --signs"),
    (["--epsilon", "1.5"], "epsilon = 1.5: expected a gap between two probabilities"),
    (["--box", "age"], "expected feature=value or feature=low:high"),
    (["--box", "=3"], "expected feature=value or feature=low:high"),
    (["--box", "age="], "feature 'age': '' is not a number"),
    (["--box", "age=3", "--box", "age=4"], "names 'age' twice"),
    (["--box", "agee=3"], "did you mean 'age'?"),
    (["--box", "age=9:3"], "reversed"),
    (["--box", "age=9:30"], "leaves the declared range 0 .. 20"),
    (["--relax", "age"], "expected feature=units"),
    (["--relax", "age=-1"], "whole number"),
    (["--relax", "sex=1"], "is protected"),
    (["--protected", "sex"], "named twice"),
    (["--differ", "some"], "--differ some: expected all or any"),
    (["--method", "magic"], "--method magic: expected auto, bnb,"),
    (["--method", "bnb", "--solver", "highs"], "bnb asks no solver"),
    (["--demo", "german"], "--demo brings its own model"),
    (["--targeted", "age=3", "--maximise"], "different questions"),
    (["--targeted", "age=3,sex"], "'3,sex' is not a number"),
    (["--targeted", "age=3", "--box", "age=4"], "is in --box as well"),
    (["--targeted", "age=3", "--targeted", "sex=Male"], "no two different values"),
    (["--targeted", "age=3", "--certificate", "x.json"], "name a folder"),
    (["--enumerate", "5", "--maximise"], "different questions"),
    (["--enumerate", "0"], "--enumerate 0: expected a whole number of at least 1"),
    (["--enumerate", "5", "--relax", "age=1"], "--relax leaves open"),
    (["--maximise", "--epsilon", "0.1"], "drop --epsilon"),
    (["--maximise", "--exit-verdict"], "drop --exit-verdict"),
    (["--maximise", "--method", "milp"], "drop --method"),
    (["--maximise", "--tolerance", "1e-9"], "--tolerance 1e-09: expected a number of at least 1e-06 and below 1, such as 0.0001"),
    (["--tolerance", "1e-3"], "--tolerance belongs to --maximise or --share"),
    (["--tolerance", "0.0001"], "--tolerance belongs to --maximise or --share: add one, or drop --tolerance"),  # the default, given
    (["--share", "--maximise"], "different questions"),
    (["--share", "--epsilon", "0.1"], "drop --epsilon"),
    (["--share", "--relax", "age=1"], "drop --relax"),
    (["--share", "--exit-verdict"], "drop --exit-verdict"),
    (["--share", "--solver", "highs"], "drop --solver"),
    (["--share", "--arithmetic", "float32"], "drop --arithmetic float32"),
    (["--share", "--certificate", "x.json"], "drop --certificate"),
    (["--share", "--resume", "--store", "no.json"], "no.json is not there"),
    (["--share", "--tolerance", "1"], "--tolerance 1: expected a number of at least 0 and below 1"),
    (["--jobs", "1"], "--jobs belongs to --partition or --share or --maximise: add one, or drop --jobs"),
    (["--logit"], "--logit belongs to --maximise"),
    (["--plot", "x.png"], "--plot belongs to --partition or --share: add one, or drop --plot"),
    (["--store", "x.sqlite", "--maximise"], "--store belongs to --partition or --share: add one, or drop --store"),
    (["--partition", "1"], "--partition 1: expected a whole number of at least 2"),
    (["--partition", "3", "--certificate", "x.json"], "drop --certificate"),
    (["--partition", "3", "--solver", "highs"], "drop --solver"),
    (["--partition", "3", "--resume", "--store", "no.sqlite"], "no.sqlite is not there"),
    (["--partition", "3", "--data", "no.csv"], "no such file"),
    (["--partition", "3", "--timeout", "0"], "--timeout 0: expected a number above 0"),
    (["--partition", "3", "--store", "."], "--store .: is a folder"),
    (["--json", "."], "--json .: is a folder"),
    (["--certificate", "/dev/null/p.json"], "nothing can be written in"),
])
def test_mistakes_are_one_line(
    extra: list[str], message: str, tiny: list[object], verifair: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = verifair("certify", *tiny, *extra)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def sqlite_file(*statements: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as file:
            for statement in statements:
                file.execute(statement)
            file.commit()

    return write


OURS = tuple(TABLES.values())
INTERNALS = ("pydantic", "Field required", "Input should", "Expecting", "codec", "char ", "KeyError", "no such table", "NoneType")
"""Words that come out of libraries, and tell a user nothing."""


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.json", b"", "is empty"),
    ("a.sqlite", b"", "is empty"),
    ("a.json", b"hello", "neither JSON with a certificate nor SQLite"),
    ("a.json", bytes(range(256)), "neither JSON with a certificate nor SQLite"),
    ("a.json", b"[1, 2]", "neither JSON with a certificate nor SQLite"),
    ("a.json", b'{"a": 1}', "is JSON that names no format; expected verifair-certificate/3"),
    ("a.json", b'{"format": "other/1"}', "names 'other/1' as its format"),
    ("a.json", b'{"format": "verifair-certificate/1"}', "of another version (verifair-certificate/1), expected verifair-cert"),
    ("a.json", b'{"format": "verifair-vnnlib-certificate/1"}', "is about a VNN-LIB query; expected a certificate"),
    ("a.json", b'{"format": "verifair-certificate/3"}', "features is missing; expected a verifair-certificate/3 file"),
    ("a.json", b'{"format": "verifair-certificate/3", "fea', "breaks off or is malformed at line 1, column"),
    ("a.json", b'{"format": "verifair-certificate/3", "x": "\xff"}', "it is not UTF-8 text"),
    ("a.json", b'{"format": "verifair-kmax-certificate/3", "upper": "x"}', "features is missing; expected a verifair-kmax"),
    ("a.json", gzip.compress(b'{"a": 1}', mtime=0), "does not end in .gz"),
    ("a.json.gz", b'{"a": 1}', "is not compressed by gzip"),
    ("a.json.gz", b"\x1f\x8b", "is a damaged gzip file"),
    ("a.json.gz", gzip.compress(b'{"format": "verifair-certificate/3"' + bytes(99), mtime=0)[:40], "is a damaged gzip file"),
    ("a.sqlite", b"SQLite format 3\0hello", "is a damaged SQLite file"),
    ("a.sqlite", sqlite_file("CREATE TABLE people (name)"), "is an SQLite file with the tables people"),
    ("a.sqlite", sqlite_file("CREATE TABLE runs (a)", "CREATE TABLE verdicts (a)"), "is the store of a pba run"),
    ("a.sqlite", sqlite_file(*OURS), "names no format, expected verifair-partition/4"),
    ("a.sqlite", sqlite_file(*OURS, "INSERT INTO about VALUES ('[1]')"), "names no format, expected verifair-partition/4"),
    ("a.sqlite", sqlite_file(*OURS, "CREATE VIEW more AS SELECT 1"), "its tables are others than ours"),
    ("a.sqlite", sqlite_file(*OURS[:-1], OURS[-1].replace("arrays BLOB", "arrays AS (zeroblob(1000))")), "others than ours"),
    (
        "a.sqlite",
        sqlite_file(*OURS, """INSERT INTO about VALUES ('{"format": "verifair-partition/4"}')"""),
        "what it says of its query lacks 'network_sha256'",
    ),
    (
        "a.sqlite",
        sqlite_file(OURS[0], OURS[-1], """INSERT INTO about VALUES ('{"format": "verifair-partition/3"}')"""),
        "is a file of another version (verifair-partition/3), expected verifair-partition/4: write it again with this version",
    ),
    ("a.json", Path.mkdir, "is a folder without files of proofs"),
    ("a.json", lambda path: None, "there is no such file"),
])
def test_check_tells_what_is_no_certificate(
    name: str, content: bytes | Callable[[Path], object], message: str, tiny: list[object], verifair: Run, tmp_path: Path
) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        content(tmp_path / name)
    code, out, err = verifair("check", tmp_path / name, *about(tiny))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {tmp_path / name}: ")
    assert message in err
    assert "expected" in err or "pba --out" in err
    assert err.count("\n") == 1
    assert not [word for word in INTERNALS if word in err]


def test_check_tells_that_a_store_is_damaged(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    store = tmp_path / "t.sqlite"
    assert verifair("certify", *tiny, "--partition", 5, "--store", store)[0] == 0
    whole = store.read_bytes()
    for column, value in (("arrays", b"nothing"), ("status", b"1"), ("status", None), ("count", "x"), ("arrays", None)):
        store.write_bytes(whole)
        with contextlib.closing(sqlite3.connect(store)) as file:
            file.execute(f"UPDATE chunks SET {column} = ?", (value,))
            file.commit()
        code, out, err = verifair("check", store, *about(tiny))
        assert (code, out) == (2, "")
        assert str(store) in err
        assert "damaged; expected a store that certify --partition wrote" in err
        assert not [word for word in INTERNALS if word in err]


@pytest.mark.parametrize("change", [
    "nodes = -73", "seconds = -0.5", "float32 = -35",
    "status = zeroblob(length(status))",  # undecided parts of which the store states none
])
def test_numbers_of_a_resumed_store_that_cannot_be_are_told(
    change: str, tiny: list[object], verifair: Run, tmp_path: Path
) -> None:
    store = tmp_path / "t.sqlite"
    assert verifair("certify", *tiny, "--partition", 5, "--store", store)[0] == 0
    with contextlib.closing(sqlite3.connect(store)) as file:
        file.execute(f"UPDATE chunks SET {change}")
        file.commit()
    code, _, err = verifair("certify", *tiny, "--partition", 5, "--store", store, "--resume")
    assert code == 2
    assert f"error: {store}: is damaged; expected a store that certify --partition wrote" in err
    assert not [word for word in INTERNALS if word in err]


def test_check_against_another_network_says_so(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    proof, store = tmp_path / "p.json", tmp_path / "t.sqlite"
    assert verifair("certify", *tiny, "--box", "age=0:2", "--epsilon", 0.5, "--certificate", proof)[0] == 0
    assert verifair("certify", *tiny, "--partition", 5, "--store", store)[0] == 0
    for file in (proof, store):
        code, out, _ = verifair("check", file, "--demo", "german")
        assert (code, "REJECTED" in out) == (1, True)
        assert "it is about another network (sha256" in out
        assert "that it is about" in out


@pytest.mark.parametrize("mode", [(), ("--maximise",), ("--partition", 40)])
def test_a_demo_is_certified_and_checked(mode: tuple[object, ...], verifair: Run, tmp_path: Path) -> None:
    """The line that the screen shows for checking works as it stands."""
    row = datasets.load("german").test.iloc[0]
    box = [part for name in row.index if name not in ("credit", "sex", "duration") for part in ("--box", f"{name}={row[name]}")]
    file = ("--store", tmp_path / "s.sqlite") if "--partition" in mode else ("--certificate", tmp_path / "p.json")
    question = () if "--maximise" in mode else ("--epsilon", 0.9)
    code, out, _ = verifair("certify", "--demo", "german", "--protected", "sex", *box, *question, *mode, *file)
    assert code == 0
    shown = re.search(r"\(verifair (check .*--demo german)\)", out)
    assert shown is not None
    code, out, _ = verifair(*shown[1].split())
    assert (code, "ACCEPTED" in out) == (0, True)


def test_check_takes_a_demo_or_files(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    code, _, err = verifair("check", tmp_path / "p.json", *about(tiny), "--demo", "german")
    assert (code, "--demo brings its own model and schema" in err) == (2, True)


def test_a_store_without_verdicts_is_not_accepted(tiny: list[object], verifair: Run, tmp_path: Path) -> None:
    store = tmp_path / "t.sqlite"
    assert verifair("certify", *tiny, "--partition", 5, "--store", store, "--timeout", 1e-9)[0] == 0
    code, out, _ = verifair("check", store, *about(tiny), "--json", tmp_path / "c.json")
    assert (code, "ACCEPTED" in out) == (1, False)
    assert "nothing in it is decided" in out
    assert "NOTHING TO ACCEPT" in out
    assert strict(tmp_path / "c.json")["accepted"] is False


def test_help_shows_every_mode(verifair: Run) -> None:
    code, out, _ = verifair("certify", "--help")
    assert code == 0
    for option in ("--epsilon 0.05", "--targeted", "--maximise", "--partition 10"):
        assert f"--protected sex {option}" in " ".join(out.split()) or option in out.split("Usage")[1]
