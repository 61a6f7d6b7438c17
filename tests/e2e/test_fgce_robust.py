"""verifair fgce --robust, --only-robust and --certificate as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import predictions
from tests.command_line import verifair
from verifair import datasets

DEMO = ("fgce", "--demo", "german", "--protected", "sex", "--audit", "test")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("robust")
    files = ("--out", folder / "out", "--json", folder / "a.json", "--certificate", folder / "proof.json.gz")
    done = verifair(*DEMO, "--k", 12, "--robust", 40, "--robust", 1, "--robust", 5, *files)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "a.json").read_text()), folder


def test_verdicts_stand_on_the_screen_in_json_and_in_files(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, folder = run
    verdicts = pd.DataFrame(answer["robust"])
    assert set(verdicts["delta"]) == {1, 5, 40}
    assert set(verdicts["status"]) == {"proved", "violated"}
    for delta, part in verdicts.groupby("delta"):
        assert f"delta {delta:g}: {(part['status'] == 'proved').sum()} of {len(part)} proved to stay good credit" in screen
    advised = {(group["name"], advice["row"]) for group in answer["groups"] for advice in group["advice"]}
    assert set(zip(verdicts["group"], verdicts["row"], strict=True)) == advised
    assert {(line["group"], line["row"]) for line in answer["re_evaluated"]} == advised
    assert all(line["positive"] and line["float32"] and line["agrees"] for line in answer["re_evaluated"])
    assert "onnxruntime (float32) says the same of each" in screen
    stored = pd.read_csv(folder / "out" / "robust.csv")
    assert stored["status"].tolist() == verdicts["status"].tolist()
    assert sum("proved to stay good credit" in line for line in answer["trust"]["proved"]) == 3


def test_every_witness_is_near_and_decided_badly(run: tuple[str, dict[str, Any], Path]) -> None:
    _, answer, _ = run
    network, dataset = read_onnx(datasets.network_path("german")), datasets.load("german")
    refuted = [line for line in answer["robust"] if line["status"] == "violated"]
    assert refuted
    for line in refuted:
        own, there = dataset.frame.iloc[line["row"]], line["witness"]
        moved = {name for name in there if str(there[name]) != str(own[name])}
        assert moved <= {"duration", "credit-amount"}
        assert abs(there["duration"] - own["duration"]) <= line["delta"]
        assert abs(there["credit-amount"] - own["credit-amount"]) <= 100 * line["delta"]
        x = dataset.schema.encode(dataset.schema.raw(pd.DataFrame([there])))
        assert (predictions(network, x)[0] == 0) == line["float32_agrees"]


def test_the_certificate_is_accepted_and_says_what_it_states(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, folder = run
    proved = len({(line["row"], line["delta"]) for line in answer["robust"] if line["status"] == "proved"})
    done = verifair("check", folder / "proof.json.gz", "--demo", "german")
    assert done.returncode == 0, done.stderr
    assert f"{proved} proofs of robustness within 1, 5, 40 units" in done.stdout
    assert f"ACCEPTED: {proved} proofs" in done.stdout
    assert "verifair check" in screen


def test_only_robust_counterfactuals_cost_more_and_hold(run: tuple[str, dict[str, Any], Path], tmp_path: Path) -> None:
    _, before, _ = run
    done = verifair(*DEMO, "--k", 12, "--only-robust", 40, "--coverage", 0.9, "--json", tmp_path / "a.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refuted") == 0
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["query"]["only_robust"] == 40
    assert {line["status"] for line in answer["robust"]} == {"proved"}
    assert any(line["status"] == "violated" and line["delta"] == 40 for line in before["robust"])
    for group in answer["groups"]:
        assert group["certainty"]["text"] == "optimal among robust rows, proved"
        assert group["covered"] >= 0.9 * group["factuals"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--robust", "-1"), "--robust -1: expected at least 0"),
        (("--only-robust", "nan"), "--only-robust nan: expected a value that is a finite number"),
        (("--certificate", "proof.json"), "add --robust DELTA"),
        (("--robust", "1", "--certificate", "."), "is a folder; name a file"),
        (("--only-robust", "1000"), "have a counterfactual that may be robust"),
    ],
)
def test_mistakes_are_one_line(options: tuple[str, ...], told: str) -> None:
    done = verifair(*DEMO, "--k", 12, *options)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_schema_without_units_says_so(tmp_path: Path) -> None:
    text = datasets.load("german").schema.dumps()
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("unit"))
    (tmp_path / "s.toml").write_text(bare)
    datasets.load("german").frame.to_csv(tmp_path / "d.csv", index=False)
    files = (datasets.network_path("german"), "--schema", tmp_path / "s.toml", "--data", tmp_path / "d.csv")
    done = verifair("fgce", *files, "--protected", "sex", "--k", 12, "--robust", 1)
    assert done.returncode == 2
    assert "no feature that may move has one" in " ".join(done.stderr.split())
