"""What has to be trusted of `verifair check`: the modules that a fresh process loads, and how many lines they have."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import verifair as vf
from verifair import datasets

FORBIDDEN = ("verifair.engine", "encoders.bounds", "encoders.programs", "encoders.evaluate", "solvers")
READER = ("encoders.onnx", "encoders.exact.affine")
"""The ONNX reader, which is not counted."""
ALL_KINDS = 11_222
"""Lines of the checker with every kind of file, and of all that it imports. This may fall, and rise with a new kind
of file or of bound alone; the aim is 4,000."""
CODE = 7_675
"""Those of them that are neither blank, nor comments, nor docstrings."""
ONE_RUN = 8_649
"""Lines that one run loads, the command line included: it loads the kind of its file alone."""
MODEL, SCHEMA = datasets.network_path("german"), Path(datasets.__file__).parent / "data" / "german.toml"
LOADED = """
import atexit, json, sys
def tell():
    ours = {name: one.__file__ for name, one in sys.modules.items() if name.split(".")[0] in ("verifair", "encoders", "solvers")}
    print("loaded:", json.dumps(ours), file=sys.stderr)
atexit.register(tell)
"""


def loaded(program: str, *arguments: object) -> tuple[dict[str, int], str]:
    """Return the lines of each of our modules that a fresh process has loaded in the end, and its screen."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED + program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = json.loads(done.stderr.rpartition("loaded: ")[2])
    lines = {name: len(Path(file).read_text(encoding="utf-8").splitlines()) for name, file in files.items()}
    return {name: count for name, count in lines.items() if not name.startswith(READER)}, done.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind about the shipped network whose proofs take no time."""
    folder = tmp_path_factory.mktemp("files")
    network, schema = vf.read_onnx(MODEL), vf.Schema.load(SCHEMA)
    about = {"model": network, "schema": schema, "protected": ["sex"], "box": {"age": ("Junior", "Junior")}}
    files = {"box": folder / "box.json.gz", "kmax": folder / "kmax.json", "parts": folder / "parts.sqlite"}
    found = vf.verify(vf.IndividualFairness(**about, epsilon=0.9))
    assert found.certificate is not None
    found.certificate.save(files["box"])
    vf.verify(vf.KDiscrimination(**about), budget=vf.Budget(seconds=20)).certificate.save(files["kmax"])
    vf.certify_partition(vf.IndividualFairness(**about, epsilon=0.9), size=1000, store=files["parts"])
    return files


@pytest.mark.parametrize("kind", ["box", "kmax", "parts"])
def test_check_loads_no_engine_no_bounds_no_programs_and_no_solver(kind: str, files: dict[str, Path], tmp_path: Path) -> None:
    options = ("check", files[kind], "--model", MODEL, "--schema", SCHEMA, "--json", tmp_path / "answer.json")
    lines, screen = loaded("from verifair.cli import main; main()", *options)
    assert "ACCEPTED" in screen
    assert not [name for name in lines if name.startswith(FORBIDDEN)]
    assert {"verifair.checker.check", "verifair.checker.kind"} <= set(lines)
    assert sum(name.startswith("verifair.checker.kinds.") for name in lines) == (2 if kind == "box" else 1)
    assert sum(lines.values()) <= ONE_RUN, sorted(lines.items())


def test_the_checker_and_all_that_it_imports_do_not_grow() -> None:
    every = (
        "from verifair.checker import check, kind\nimport encoders.curves.shapes\n"
        "import verifair.checker.kernel.trees.compared\nimport verifair.checker.kernel.trees.means\n"
        "import verifair.checker.kinds.counterfactuals\n"
        "[kind.kind(name) for name in kind.KINDS]\n"
        "assert 'pandas' not in sys.modules"
    )
    lines, _ = loaded(every)
    assert not [name for name in lines if name.startswith((*FORBIDDEN, "verifair.cli", "verifair.systems"))]
    assert sum(lines.values()) <= ALL_KINDS, sorted(lines.items())
    assert sum(lines_of_code(Path(importlib.import_module(name).__file__ or "")) for name in lines) <= CODE


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank, nor comments, nor part of a docstring."""
    text = path.read_text(encoding="utf-8")
    said = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    rest = (line for number, line in enumerate(text.splitlines(), 1) if number not in said)
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in rest)


def calls(path: Path, names: set[str]) -> list[tuple[str, str]]:
    """(function, name) of every call of something so named, by the outermost function or class that it stands in."""
    return [
        (outer.name, name)
        for outer in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(outer, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(outer)
        if isinstance(node, ast.Call)
        for name in [getattr(node.func, "attr", getattr(node.func, "id", ""))]
        if name in names
    ]


def test_no_box_is_cut_by_who_checks_but_in_the_one_decoder() -> None:
    """`Domain.halves` and `Regions.halves` are called by `leaf_regions` alone; whoever has a tree decodes it with that."""
    folder = Path(importlib.import_module("verifair.checker").__file__ or "").parent
    found = {path.relative_to(folder).as_posix(): calls(path, {"halves", "leaf_regions"}) for path in folder.rglob("*.py")}
    cuts = [(file, outer) for file, some in found.items() for outer, name in some if name == "halves"]
    assert cuts == [("certificates/tree.py", "leaf_regions")]
    decoders = {file for file, some in found.items() if any(name == "leaf_regions" for _, name in some)}
    assert decoders == {"kernel/leaves.py", "kinds/kmax.py", "kinds/consistency.py", "kinds/share.py"}
    kernel = (node for file in (folder / "kernel").rglob("*.py") for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    assert not any(isinstance(node, ast.While) for node in kernel)
