"""What doctor finds out by importing: packages that are broken, and those of others that are called as ours are."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from solvers import registry
from tests import tree_models
from tests.command_line import RUN, answered, flat
from verifair import _packages
from verifair.bench.competitors import competitors
from verifair.cli import doctor

ROOT = Path(doctor.__file__).parents[2]


def test_what_cannot_be_imported_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half.py").write_text("import no_such_module_of_anybody")
    (tmp_path / "dead.py").write_text("import os; os._exit(7)")
    (tmp_path / "whole.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert _packages.broken({"half": "half", "dead-one": "dead", "whole": "whole", "gone": "gone_of_nobody"}) == {
        "gone": "there is no module gone_of_nobody",
        "half": "ModuleNotFoundError: No module named 'no_such_module_of_anybody'",
        "dead-one": "its import ends Python (exit code 7)",
    }


def test_doctor_shows_and_writes_what_is_broken_and_what_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = {"pandas": "ImportError: numpy.core [x]"}
    monkeypatch.setattr(_packages, "broken", lambda modules: why if "pandas" in modules else {})
    monkeypatch.setattr(doctor, "packages_distributions", lambda: {"solvers": ["verifair", "solvers"], "encoders": ["Encoders"]})
    done = answered("doctor", "--json", "doctor.json", cwd=tmp_path)
    remedy = "run pip install --force-reinstall pandas"
    assert f"broken: pandas cannot be imported: {why['pandas']}; {remedy}\n" in done.stdout
    assert "pip uninstall solvers, then install verifair anew" in done.stdout
    answer = json.loads((tmp_path / "doctor.json").read_text())
    assert (answer["broken"], answer["foreign"]) == (why, ["Encoders", "solvers"])


@pytest.mark.parametrize("name", _packages.NEEDED)
def test_a_package_that_doctor_needs_itself_is_told_and_how_to_repair_it(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    file = tmp_path / name / "__init__.py"
    file.write_text('raise ImportError("half of it is gone")')
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([*RUN, "doctor"], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, cwd=tmp_path)
    first, *_, last = done.stderr.splitlines()
    remedy = f"{file} is in its place: rename that"
    assert (done.returncode, first) == (4, f"broken: {name} cannot be imported: ImportError: half of it is gone; {remedy}")
    assert last == "error: verifair doctor needs these itself: repair the first, and run it again"
    assert "Traceback" not in done.stderr


def test_doctor_names_every_package_that_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra: names for extra, names in project["optional-dependencies"].items() if extra not in ("dev", "docs")}
    solvers = {(one.distribution, one.extra) for one in registry.backends()}
    listed = {(name, None) for name in doctor.CORE} | {(name, extra) for name, (extra, _) in doctor.OPTIONAL.items()} | solvers
    declared = [(None, one) for one in project["dependencies"]] + [(extra, one) for extra, names in extras.items() for one in names]
    found = {(re.sub(r"dask\[(\w+)\]", r"\1", one), extra) for extra, one in declared if not one.startswith("verifair[")}
    assert {(re.split(r"[^\w-]", one)[0], extra) for one, extra in found} == listed


@pytest.fixture
def all_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing every package takes eleven seconds; `tests/e2e/test_package.py` does."""
    monkeypatch.setattr(_packages, "broken", lambda _: {})


@pytest.mark.usefixtures("all_import")
def test_doctor_says_in_a_line_for_which_methods_a_solver_can_be_named(tmp_path: Path) -> None:
    done = answered("doctor", "--json", "doctor.json", cwd=tmp_path)
    cells = [[cell.strip() for cell in line.split("│")] for line in done.stdout.splitlines()]
    lines = {row[1]: row[4] for row in cells if len(row) == 7}
    found = {one["name"]: ", ".join(one["methods"]) for one in json.loads((tmp_path / "doctor.json").read_text())["backends"]}
    assert (found["highs"], found["ortools-glop"], found["ortools-cpsat"]) == ("lp, milp, mip", "lp", "mip")
    assert all(lines[name] == methods for name, methods in found.items() if name != "z3")  # which takes two lines
    for method in ("lp", "milp", "smt", "mip"):
        taken = {one.solver for one in competitors() if one.method == method}
        assert taken == {name for name, methods in found.items() if method in methods.split(", ")}


@pytest.mark.usefixtures("all_import")
def test_doctor_shows_how_trees_are_read_and_how_far_their_sums_are_rounded(tmp_path: Path) -> None:
    trees = [(0, "BRANCH_LEQ", 0.5, [0.1], [0.7]), (1, "BRANCH_LT", -1.0, [0.3], [-0.9])]
    file = tree_models.save(tmp_path / "trees.onnx", trees, 2)
    done = answered("doctor", "--model", file, "--json", "doctor.json", cwd=tmp_path)
    assert "2 input columns, 2 trees, 4 leaves, 1 output; it reproduces onnxruntime" in flat(done.stdout)
    read = json.loads((tmp_path / "doctor.json").read_text())["network"]
    assert (read["hidden"], read["built"]) == ([], "2 trees, 4 leaves")
    assert 0 < read["error"] <= read["bound"] < 1e-6
