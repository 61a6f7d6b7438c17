"""verifair cec and train in clumsy hands: what is found, expected and to be done is said, before the work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verifair import datasets

DEMO = ("cec", "--demo", "german", "--protected", "sex")
MODEL = datasets.network_path("german")
Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("steps", ["²", "٣", "9" * 25, "10001", "1e3"])
def test_steps_that_are_no_usable_number_are_refused(inside: Run, steps: str) -> None:
    assert inside(*DEMO, "--steps", steps)[::2] == (
        2, f"error: --steps {steps}: expected exact, or a number of steps in 1 .. 10000, such as the paper's 32",
    )  # fmt: skip


def test_a_demo_without_a_network_is_refused(inside: Run) -> None:
    code, _, told = inside("cec", "--demo", "compas", "--protected", "sex")
    assert code == 2
    assert "--demo compas: expected german or adult; others bring no network: pass MODEL, --schema and --data" in told


def test_groups_may_be_another_column_and_these_are_named(inside: Run, tmp_path: Path) -> None:
    german = datasets.german()
    german.schema.save(tmp_path / "g.toml")
    german.frame.assign(county=["N", "S"] * 500).to_csv(tmp_path / "g.csv", index=False)
    code, _, told = inside("cec", MODEL, "--schema", "g.toml", "--data", "g.csv", "--protected", "country")
    assert code == 2
    assert told.endswith("other columns of the table: credit, county")


def test_an_error_says_which_of_two_tables_it_is_about(inside: Run, tmp_path: Path) -> None:
    german = datasets.german()
    german.schema.save(tmp_path / "g.toml")
    german.frame.to_csv(tmp_path / "g.csv", index=False)
    german.frame[german.frame["sex"] == "Male"].to_csv(tmp_path / "men.csv", index=False)
    german.frame.drop(columns="credit").to_csv(tmp_path / "unlabelled.csv", index=False)
    asked = ("cec", MODEL, "--schema", "g.toml", "--data", "g.csv", "--protected", "sex", "--reference")
    code, _, told = inside(*asked, "men.csv")
    assert code == 2
    assert told.startswith("error: --reference men.csv: only one group, sex = Male, has rows")
    code, _, told = inside(*asked, "unlabelled.csv")
    assert (code, told.count("unlabelled.csv")) == (2, 1)


def test_merit_that_is_the_same_for_everybody_is_said(inside: Run, tmp_path: Path) -> None:
    german = datasets.german()
    german.schema.save(tmp_path / "g.toml")
    merit = [feature.name for feature in german.schema.features if feature.merit]
    table = german.frame.assign(**{name: german.frame[name].iloc[0] for name in merit})
    table.to_csv(tmp_path / "g.csv", index=False)
    asked = ("cec", MODEL, "--schema", "g.toml", "--data", "g.csv", "--protected", "sex", "--rows", 50)
    code, screen, _ = inside(*asked, "--no-within")
    assert code == 0
    assert "note: everybody has the same merit" in screen


def test_proofs_of_an_earlier_run_do_not_stay_in_the_folder(inside: Run, tmp_path: Path) -> None:
    assert inside(*DEMO, "--rows", 40, "--no-within", "--certify", 0, "--out", "o")[0] == 0
    assert (tmp_path / "o" / "certified.csv").exists()
    assert inside(*DEMO, "--rows", 40, "--no-within", "--out", "o")[0] == 0
    assert (tmp_path / "o" / "pairs.csv").exists()
    assert not (tmp_path / "o" / "certified.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "o.txt"), "--out o.txt: a network is written as NAME.onnx"),
        (("--out", "."), "--out .: is a folder; name a file in it"),
        (("--out", "o.onnx", "--json", "."), "--json .: is a folder; name a file in it"),
        (("--out", "o.onnx", "--json", "o.toml"), "name the same file, o.toml"),
        (("--out", "o.onnx", "--steps", 10**14), f"steps = {10**14}, expected 1 to 1000"),
    ],
)
def test_train_says_what_it_cannot_write_before_the_work(
    inside: Run, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    pytest.importorskip("torch")
    code, _, told = inside("train", "--data", "german", "--method", "cec", "--sensitive", "sex", "--epochs", 100_000, *options)
    assert code == 2
    assert message in told
    assert not list(tmp_path.iterdir())
