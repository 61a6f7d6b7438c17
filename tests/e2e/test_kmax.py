"""verifair kmax as a user meets it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import runtime_logits
from tests.command_line import verifair
from verifair import datasets
from verifair.schema.schema import Schema
from verifair.systems.hyfair.search import annealing


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model, schema and table of German Credit."""
    folder = tmp_path_factory.mktemp("german")
    dataset = datasets.load("german")
    dataset.schema.save(folder / "german.toml")
    dataset.test.to_csv(folder / "german.csv", index=False)
    (folder / "german.onnx").write_bytes(datasets.network_path("german").read_bytes())
    return folder


def where(folder: Path) -> tuple[object, ...]:
    return folder / "german.onnx", "--schema", folder / "german.toml", "--protected", "sex", "--protected", "age"


def test_answer_plot_and_json_agree_with_the_runtime(german: Path, tmp_path: Path) -> None:
    done = verifair(
        "kmax", *where(german), "--data", german / "german.csv", "--buckets", 10, "--timeout", 4,
        "--json", tmp_path / "k.json", "--plot", tmp_path / "k.png", "--certificate", tmp_path / "proof.json.gz",
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads((tmp_path / "k.json").read_text())
    assert f"k = {answer['lower']}: this person falls into {answer['lower']} of 10 outcome buckets" in " ".join(done.stdout.split())
    assert 1 <= answer["lower"] <= answer["upper"] <= answer["query"]["combinations"]
    assert answer["gap"] == answer["upper"] - answer["lower"]
    assert answer["search"]["proof"] is False
    assert answer["search"]["k"] <= answer["lower"]
    for name in ("k.png", "proof.json.gz"):
        assert (tmp_path / name).stat().st_size > 0
    network, schema = read_onnx(german / "german.onnx"), Schema.load(german / "german.toml")
    names = [feature.name for feature in schema.features]
    people = [{**answer["witness"], **{p: line[p] for p in ("sex", "age")}} for line in answer["outcomes"]]
    raw = np.array([[schema.raw_value(name, person[name]) for name in names] for person in people])
    assert schema.inside(raw).all()
    logits = runtime_logits(network, schema.encode(raw))
    values = logits[:, 0] if network.outputs == 1 else logits[:, 1] - logits[:, 0]
    probability = 1 / (1 + np.exp(-values))
    assert probability == pytest.approx([line["probability"] for line in answer["outcomes"]], abs=1e-5)
    assert len(set(np.floor(10 * probability))) == answer["runtime_k"]


def test_nobody_depends_on_protected_values(german: Path, tmp_path: Path) -> None:
    """Two wide buckets and one person whose two probabilities lie in the same one: k = 1 is all there is."""
    dataset = datasets.load("german")
    row = dataset.test.iloc[10]
    box = [part for name in row.index if name not in ("credit", "sex") for part in ("--box", f"{name}={row[name]}")]
    files = german / "german.onnx", "--schema", german / "german.toml"
    done = verifair("kmax", *files, "--protected", "sex", *box, "--buckets", 2, "--timeout", 2, "--plot", tmp_path / "k.png")
    assert done.returncode == 0, done.stderr
    assert "k = 1" in done.stdout
    assert "none had k >= 2" in " ".join(done.stdout.split())
    assert "nan" not in done.stdout
    assert (tmp_path / "k.png").stat().st_size > 0


@pytest.mark.parametrize("method", ["rw", "sa-knn"])
def test_every_search_runs(german: Path, tmp_path: Path, method: str) -> None:
    done = verifair(
        "kmax", *where(german), "--data", german / "german.csv", "--search", method, "--no-bound", "--timeout", 1,
        "--json", tmp_path / "k.json",
    )
    assert done.returncode == 0, done.stderr
    assert "No upper bound was certified" in " ".join(done.stdout.split())
    answer = json.loads((tmp_path / "k.json").read_text())
    assert answer["upper"] is None
    assert answer["search"]["method"] == method
    assert answer["search"]["statistics"]["rows"] > 0


@pytest.mark.parametrize(("extra", "message"), [
    (["--search", "hill"], "--search hill: expected rw, sa or sa-knn"),
    (["--search", "sa-knn"], "pass --data TABLE"),
    (["--values", "age"], "expected feature=low:high:step"),
    (["--values", "age=Senior"], "at least two different legal values"),
    (["--values", "credit-amount=300:500:0"], "positive step"),
    (["--box", "age=Senior"], "the feature is protected"),
    (["--buckets", "1"], "--buckets 1: expected at least 2"),
    (["--chains", "0"], "--chains 0: expected at least 1"),
    (["--timeout", "0"], "positive number"),
    (["--no-bound", "--certificate", "x.json"], "drop --no-bound"),
    (["--data", "missing.csv"], "no such file"),
    (["--protected", "sex"], "named twice"),
    (["--values", "credit-amount=300:1e300:1"], "more than 1,000 values"),
    (["--certificate", "."], "--certificate .: is a folder; name a file in it"),
    (["--json", "x.json", "--certificate", "x.json"], "--json and --certificate name the same file"),
])
def test_mistakes_are_one_line(german: Path, extra: list[str], message: str) -> None:
    done = verifair("kmax", *where(german), *extra)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_protected_feature_it_says_which_there_are(german: Path) -> None:
    done = verifair("kmax", german / "german.onnx", "--schema", german / "german.toml")
    assert done.returncode == 2
    assert "pass --protected NAME (protected in the schema:" in done.stderr


def test_help_has_an_example() -> None:
    assert "Example: verifair kmax" in " ".join(verifair("kmax", "--help").stdout.split())


def test_ctrl_c_shows_the_best_so_far(german: Path, tmp_path: Path, ctrl_c: Callable[..., None]) -> None:
    ctrl_c(annealing._Run, "step", 20, after=True)
    row = datasets.load("german").test.iloc[0]
    fixed = [name for name in row.index if name not in ("credit", "sex", "age", "credit-amount")]
    box = [part for name in fixed for part in ("--box", f"{name}={row[name]}")]  # where two buckets are not to be had
    command = ["kmax", *map(str, where(german)), "--buckets", "2", "--timeout", "200", *box, "--json", str(tmp_path / "k.json")]
    done = verifair(*command)
    assert done.returncode == 130, done.stderr
    assert "k = 1: this person" in done.stdout
    assert "interrupted: this is the best found until then" in " ".join(done.stderr.split())
    answer = json.loads((tmp_path / "k.json").read_text())
    assert answer["search"]["statistics"]["stopped"] == "interrupted"
    assert answer["search"]["statistics"]["iterations"] == 20
    assert answer["bound"] is None
