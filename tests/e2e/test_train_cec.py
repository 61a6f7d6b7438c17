"""verifair train --method cec as a user meets it: files, the table beside plain training, and mistakes in a line."""

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason='training needs torch: pip install "verifair[torch]"')

from encoders.onnx.reader import read_onnx
from tests.command_line import verifair


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return verifair("train", "--data", "german", "--method", "cec", *arguments)


def test_a_network_a_report_and_what_it_is_worth(tmp_path: Path) -> None:
    out, report = tmp_path / "fair.onnx", tmp_path / "fair.json"
    terms = ("--lambda-cec", "2", "--lambda-eo", "0.5", "--steps", "8", "--tau", "3")
    loop = ("--hidden", "16,8", "--epochs", "3", "--dropout", "0.1", "--learning-rate", "0.001", "--batch", "32")
    done = run("--sensitive", "sex", *terms, *loop, "--out", out, "--json", report)
    assert done.returncode == 0, done.stderr
    assert "measured on the test rows, no proof" in " ".join(done.stdout.split())
    for line in ("CEC, mean score", "variance of the prediction", "AUC", "predicted positive"):
        assert line in done.stdout
    assert read_onnx(out).hidden == (16, 8)
    content = json.loads(report.read_text())
    settings, found = content["settings"], content["report"]
    asked = {"lambda_cec": 2.0, "lambda_eo": 0.5, "steps": 8, "tau": 3.0}
    assert {name: settings["consistency"][name] for name in asked} == asked
    assert (settings["dropout"], settings["learning_rate"], settings["batch"]) == (0.1, 0.001, 32)
    assert 0 < found["consistency"]["cec"] < found["plain"]["cec"] < 1


def test_a_network_that_hardly_decides_is_called_so(tmp_path: Path) -> None:
    done = run("--sensitive", "sex", "--hidden", "8", "--epochs", "1", "--batch", "800", "--out", tmp_path / "n.onnx")
    assert done.returncode == 0, done.stderr
    assert "a low CEC says little of this network" in done.stdout


@pytest.mark.parametrize(("arguments", "message"), [
    (("--sensitive", "sex", "--tau", "1e-9"), "nobody has a counterpart that near"),
    (("--sensitive", "duration"), "has no row with the true label"),
    (("--sensitive", "sexx"), "the table has no such column"),
    (("--sensitive", "sex", "--lambda-cec", "-1"), "lambda_cec = -1"),
    (("--sensitive", "sex", "--auc-loss", "0.7"), "auc_loss = 0.7, expected at least 0 and below 0.5"),
    (("--sensitive", "sex", "--every", "0"), "every = 0, expected 1 to 100"),
    (("--sensitive", "sex", "--class-weight", "even"), "class_weight = 'even'"),
    ((), "pass sensitive=... or --sensitive NAME"),
    (("--method", "agnostic", "--tau", "1"), "tau, lambda_excess, every, auc_loss, variance_share belong to the method cec"),
    (("--method", "magic"), "method 'magic' is unknown; choose one of agnostic, certifair, fair-n, cec"),
])
def test_mistakes_are_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments, "--out", tmp_path / "n.onnx")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert not (tmp_path / "n.onnx").exists()
