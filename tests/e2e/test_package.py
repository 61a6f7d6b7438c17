"""The package as others get it: built, installed away from the sources, without any extra, and used."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("build")
ROOT = Path(__file__).parents[2]
EXTRAS = ("torch", "captum", "gurobipy", "z3", "pyscipopt", "ortools", "pulp", "fairlearn", "dask", "distributed", "dowhy",
          "maraboupy", "skl2onnx", "vnnlib", "ray", "matplotlib", "pyarrow")
WITHOUT_EXTRAS = f"""
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {EXTRAS!r} else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from verifair.cli import main
main()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "-o", str(out), str(ROOT)], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip would."""
    target = tmp_path_factory.mktemp("site")
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(target)
    return target


def verifair(installed: Path, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    script = f"import sys; sys.path.insert(0, {str(installed)!r}); sys.argv[0] = 'verifair'\n{WITHOUT_EXTRAS}"
    return subprocess.run([sys.executable, "-I", "-c", script, *words], cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_demo_runs_from_the_wheel_without_any_extra(installed: Path, tmp_path: Path) -> None:
    asked = ["pba", "--demo", "german", "--protected", "age", "--delta", "1", "--limit", "40", "--out", "demo"]
    found = verifair(installed, asked, tmp_path)
    assert found.returncode == 0, found.stderr
    assert "0 unknown" in found.stdout
    assert all(f'pip install "verifair[{extra}]"' in found.stderr for extra in ("plots", "parquet"))
    checked = verifair(installed, ["check", "demo/certificate.json.gz", "--demo", "german"], tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(("words", "remedy"), [
    (["certify", "--demo", "german", "--protected", "sex", "--method", "smt"], "verifair[z3]"),
    (["certify", "--demo", "german", "--protected", "sex", "--method", "milp", "--solver", "scip"], "verifair[scip]"),
    (["certify", "--demo", "german", "--protected", "sex", "--method", "milp", "--solver", "gurobi"], "verifair[gurobi]"),
    (["train", "--data", "german", "--out", "net.onnx"], "verifair[torch]"),
    (["audit", "--demo", "german", "--out", "page.html"], "verifair[plots]"),
    (["certify", "--demo", "german", "--protected", "sex", "--partition", "10", "--plot", "share.png"], "verifair[plots]"),
    (["schema", "infer", "table.parquet", "--target", "credit"], "verifair[parquet]"),
])
def test_what_is_missing_is_said_with_the_remedy(installed: Path, tmp_path: Path, words: list[str], remedy: str) -> None:
    (tmp_path / "table.parquet").touch()
    found = verifair(installed, words, tmp_path)
    assert found.returncode in (2, 4), found.stderr
    assert "Traceback" not in found.stderr
    assert remedy in found.stderr


def test_what_is_held_back_has_a_reason_that_still_holds() -> None:
    """`python -m tests.surroundings pins` tries the newest versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    held = {re.split(r"[<>=\[]", one)[0]: re.findall(r"<=?([\d.]+)", one)[-1] for one in every if "<" in one.partition(";")[0]}
    assert held == {"highspy": "1.14", "torch": "2.13.0", "pulp": "4"}
    assert f"torch=={held['torch']}" in (ROOT / "Makefile").read_text(), "torch is held at the version that is tested"
    told = "does it share a process with highspy 1.14 (google/or-tools#5246)? Then highspy is no longer held back"
    assert tuple(map(int, version("ortools").split(".")[:2])) <= (9, 15), told


def test_doctor_lists_what_is_missing(installed: Path, tmp_path: Path) -> None:
    found = verifair(installed, ["doctor"], tmp_path)
    assert found.returncode == 0, found.stderr
    assert "highs" in found.stdout
    for extra in ("gurobi", "z3", "scip", "ortools", "pulp"):
        assert f'pip install "verifair[{extra}]"' in found.stdout


def test_the_source_archive_holds_what_its_tests_need(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.split("/", 1)[1] for name in file.getnames() if "/" in name}
    for wanted in ("tests/builders.py", "benchmarks/run.py", "Makefile", "LICENSE", "CITATION.cff", "CONTRIBUTING.md", "README.md",
                   "PERFORMANCE.md", "verifair/datasets/data/german.onnx"):
        assert wanted in names


def test_the_wheel_holds_all_that_is_no_module(installed: Path) -> None:
    sources = {path.relative_to(ROOT) for floor in ("verifair", "encoders", "solvers") for path in (ROOT / floor).rglob("*")
               if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in sources if not (installed / path).is_file()} == set()
