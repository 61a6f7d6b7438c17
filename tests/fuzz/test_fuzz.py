"""A few damaged files for every reader, the same ones in every run; `python -m tests.fuzz` is the long campaign."""

from pathlib import Path

import pytest

from tests.draws import draws
from tests.fuzz.target import TARGETS, never_opens, outcome, target
from tests.fuzz.watch import campaign
from verifair import datasets

FEW = {
    "onnx": 70, "schema": 70, "audit": 35, "causal": 70, "table": 28, "rules": 112, "vnnlib": 28, "proof": 42, "bench": 84,
    "kept": 112, "trees": 35, "against": 42, "reproduce": 84,
}
"""Readers whose valid files are there, or made at once. The others begin with a run of our own verbs, and are for the campaign."""


@pytest.mark.parametrize("name", FEW)
def test_only_our_own_errors_come_out(name: str, tmp_path: Path) -> None:
    """In time, within bounded memory, from a process that lives on."""
    few = len(draws(FEW[name]))
    report = campaign(name, tmp_path, seconds=600, inputs=few)
    assert not report.failures, report.text()
    assert report.inputs == few
    assert report.refused or name == "kept"  # what was kept and is damaged is asked again
    assert report.read


def test_every_reader_has_its_target() -> None:
    assert {*FEW, "certificate", "partition", "store", "resume"} == set(TARGETS)


def test_a_table_with_a_third_label_is_read(tmp_path: Path) -> None:
    """Its warning is for the user, and no failure."""
    frame = datasets.load("german").frame.head(9)
    frame.assign(credit=["good", "bad", "fair"] * 3).to_csv(tmp_path / "t.csv", index=False)
    found = outcome(target("table"), tmp_path / "t.csv")
    assert (found.kind, found.said) == ("read", "table"), found.trace


def test_what_is_opened_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").touch()
    (tmp_path / "link").symlink_to("outside/a")
    with never_opens([tmp_path / "outside"]):
        (tmp_path / "b").touch()
    for name in ("outside/a", "link", "outside/../link"):
        with pytest.raises(AssertionError, match="lies outside"), never_opens([tmp_path / "outside"]), never_opens([]):
            (tmp_path / name).read_bytes()
