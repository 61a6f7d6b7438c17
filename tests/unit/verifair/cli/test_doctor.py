"""What doctor finds out by importing: packages that are broken, and those of others that are called as ours are."""

import json
from pathlib import Path

import pytest

from tests.command_line import answered
from verifair.cli import doctor


def test_what_cannot_be_imported_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half.py").write_text("import no_such_module_of_anybody")
    (tmp_path / "dead.py").write_text("import os; os._exit(7)")
    (tmp_path / "whole.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor._broken({"half": "half", "dead-one": "dead", "whole": "whole", "gone": "gone_of_nobody"}) == {
        "gone": "there is no module gone_of_nobody",
        "half": "ModuleNotFoundError: No module named 'no_such_module_of_anybody'",
        "dead-one": "its import ends Python (exit code 7)",
    }


def test_doctor_shows_and_writes_what_is_broken_and_what_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_broken", lambda modules: {"pandas": "ImportError: numpy.core [x]"} if "pandas" in modules else {})
    monkeypatch.setattr(doctor, "packages_distributions", lambda: {"solvers": ["verifair", "solvers"], "encoders": ["Encoders"]})
    done = answered("doctor", "--json", "doctor.json", cwd=tmp_path)
    assert "broken: pandas is installed, but cannot be imported: ImportError: numpy.core [x]" in done.stdout
    assert "pip uninstall solvers, then install verifair anew" in done.stdout
    answer = json.loads((tmp_path / "doctor.json").read_text())
    assert (answer["broken"], answer["foreign"]) == ({"pandas": "ImportError: numpy.core [x]"}, ["Encoders", "solvers"])
