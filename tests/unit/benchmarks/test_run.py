"""The comparisons: each is named in the README, can be imported, and has options made from its signature."""

import sys
from pathlib import Path

import pytest

from benchmarks.run import CASES, main, options_of

README = Path(__file__).parents[3] / "benchmarks" / "README.md"
OPTIONAL = {
    "fairlearn": ("cec_encodings", "cec_verified", "cec_frontier"),
    "captum": ("cec_audit",), "torch": ("cec_epoch",),
}


@pytest.mark.parametrize("name", CASES)
def test_every_comparison_has_options_and_a_row_in_the_readme(name: str) -> None:
    for package, names in OPTIONAL.items():
        if name in names:
            pytest.importorskip(package)
    assert isinstance(options_of(name, []), dict)
    assert f"| `{name}` |" in README.read_text(encoding="utf-8")


def test_options_are_the_arguments_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = options_of("partitions", ["--nets", "AC-1", "GC-3", "--seconds", "10"])
    assert (found["nets"], found["seconds"], found["jobs"], found["race"]) == (["AC-1", "GC-3"], 10.0, 2, False)
    assert options_of("race_partitions", [])["race"] is True
    with pytest.raises(SystemExit):
        options_of("fgce_tables", ["--names", "nobody"])
    assert "invalid choice: 'nobody'" in capsys.readouterr().err


def test_without_data_a_comparison_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("VERIFAIR_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["run", "gaps", "stress", "--out", str(tmp_path)])
    assert main() == 0
    assert capsys.readouterr().out.splitlines() == [f"{name}: skipped, VERIFAIR_DATA is not set" for name in ("gaps", "stress")]
