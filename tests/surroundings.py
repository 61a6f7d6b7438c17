"""The package with the oldest versions that it declares, and with the newest on every Python at hand: it is imported and used.

    python -m tests.surroundings              all of it          (make surroundings)
    python -m tests.surroundings lowest       the oldest versions alone, with some of the tests (in .ci/run)
    python -m tests.surroundings wheel        a wheel, in an empty environment of each Python
    python -m tests.surroundings pins         whether the newest of what is held back works by now

Environments are made in a temporary folder by uv, which chooses the versions and is installed there too. The base has no
matplotlib and no pyarrow. Warnings of old packages are no failures.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("plots", "parquet", "solvers", "distributed", "trees", "fairlearn")
"""torch is not among them: its oldest version has no build without CUDA."""
TOOLS = ("pytest", "hypothesis", "jsonschema", "sybil", "nbformat", "nbclient")
SMOKE = (
    "tests/contract/test_backends.py", "tests/contract/test_certificates.py",
    "tests/contract/test_systems.py::test_files_are_written_before_the_screen_and_the_json_is_as_its_schema",
    "tests/unit/encoders/onnx/test_trees.py", "tests/unit/verifair/models", "tests/unit/verifair/schema/test_agreement.py",
    "tests/unit/verifair/datasets/test_stream.py", "tests/unit/verifair/cli/test_json_schemas.py",
    "tests/e2e/test_cec.py::test_a_constant_model_does_not_look_fair",
    "tests/e2e/test_cst.py::test_letters_without_a_glyph_are_no_warning",
)
"""Every backend, every kind of certificate, a question of every system with its files; how models, schemas and tables are read, and
what failed with older versions. (Without a solver's Ctrl-C, which takes long.)"""
IMPORTS = """
import importlib, pkgutil
OF_EXTRAS = ("torch", "captum", "fairlearn", "dask", "distributed", "matplotlib", "pyarrow")
for root in ("solvers", "encoders", "verifair"):
    for module in pkgutil.walk_packages(importlib.import_module(root).__path__, root + "."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name.partition(".")[0] not in OF_EXTRAS:
                    raise
"""
THREADS = {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1"}
"""As in the Makefile's tests."""


def run(*command: object, folder: Path, **more: str) -> None:
    subprocess.run([str(one) for one in command], cwd=folder, check=True, env={**os.environ, **THREADS, **more})


def imported(python: Path, folder: Path) -> None:
    run(python, "-W", "ignore", "-c", IMPORTS, folder=folder)


def tried(python: Path, folder: Path) -> None:
    """Import everything, print the versions, ask the demo's question and prove its answer again."""
    verifair = python.with_name("verifair")
    imported(python, folder)
    run(verifair, "doctor", folder=folder)
    shutil.rmtree(folder / "demo", ignore_errors=True)
    run(verifair, "pba", "--demo", "german", "--protected", "age", "--delta", "1", "--limit", "20", "--out", "demo", folder=folder)
    run(verifair, "check", "demo/certificate.json.gz", "--demo", "german", folder=folder)


def found(version: str) -> str | None:
    """A Python of this version: on the path, or of pyenv."""
    own = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(own[-1]) if own else shutil.which(f"python{version}")


def oldest(uv: Path, folder: Path) -> Path:
    """Make an environment of the oldest versions and return its Python."""
    python, versions = folder / "oldest" / "bin" / "python", folder / "oldest.txt"
    run(uv, "venv", "-q", "--clear", "--python", sys.executable, folder / "oldest", folder=folder)
    words = [word for name in EXTRAS for word in ("--extra", name)]
    how = ("--python", python, "--resolution", "lowest-direct")
    run(uv, "pip", "compile", "-q", *how, ROOT / "pyproject.toml", *words, "-o", versions, folder=folder)
    run(uv, "pip", "install", "-q", "--python", python, "-r", versions, *TOOLS, folder=folder)
    run(uv, "pip", "install", "-q", "--python", python, "--no-deps", ROOT, folder=folder)
    return python


def lowest(uv: Path, folder: Path) -> None:
    try:
        python = oldest(uv, folder)
    except subprocess.CalledProcessError as error:  # an index may not have them; the gate goes on
        print(f"note: the oldest versions could not be installed, and were not tried ({error})")
        return
    tried(python, folder)
    words = ("-q", "-o", "filterwarnings=ignore", "-k", "not ctrl_c", *SMOKE)
    # Two versions of numba that keep loops beside the same sources overwrite each other's, and every process compiles them again.
    run(python, "-m", "pytest", *words, folder=ROOT, PYTHONPATH=str(ROOT), NUMBA_CACHE_DIR=str(folder / "numba"))
    print("these tests passed with the oldest versions that are declared")


def wheel(uv: Path, folder: Path) -> None:
    run(uv, "build", "-q", "--wheel", "-o", folder, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    for version in PYTHONS:
        own = found(version)
        if own is None:
            print(f"Python {version}: none is at hand")
            continue
        python = folder / version / "bin" / "python"
        run(uv, "venv", "-q", "--python", own, folder / version, folder=folder)
        run(uv, "pip", "install", "-q", "--python", python, built, folder=folder)
        tried(python, folder)


def pins(uv: Path, folder: Path) -> None:
    """Try the newest of the solvers that are held back, and say whether they still have to be: highspy and ortools cannot share a
    process in every version and order of imports."""
    python, free = folder / "pins" / "bin" / "python", folder / "free.txt"
    free.write_text("highspy\npulp\n")
    run(uv, "venv", "-q", "--python", sys.executable, folder / "pins", folder=folder)
    run(uv, "pip", "install", "-q", "--python", python, "--override", free, f"{ROOT}[solvers]", *TOOLS, folder=folder)
    run(uv, "pip", "list", "--python", python, folder=folder)
    words = [str(python), "-m", "pytest", "-q", "-x", "-o", "filterwarnings=ignore", "tests/contract/test_backends.py"]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    print("the upper bounds of highspy and pulp", "can go" if done.returncode == 0 else "are still needed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.surroundings", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="lowest, wheel or pins")
    asked = parser.parse_args().what or ("lowest", "wheel", "pins")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run(sys.executable, "-m", "venv", folder / "uv", folder=folder)
        run(folder / "uv" / "bin" / "python", "-m", "pip", "install", "-q", "uv", folder=folder)
        for one in asked:
            {"lowest": lowest, "wheel": wheel, "pins": pins}[one](folder / "uv" / "bin" / "uv", folder)


if __name__ == "__main__":
    main()
