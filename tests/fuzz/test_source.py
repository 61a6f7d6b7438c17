"""No file that is read can run code: nothing in the source unpickles, evaluates, or loads a format that could."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for package in ("verifair", "encoders", "solvers") for path in (ROOT / package).rglob("*.py"))
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml"}
NAMES = {"eval", "exec", "__import__", "compile"}
ATTRIBUTES = {
    ("joblib", "load"),
    ("pd", "read_pickle"),
    ("pandas", "read_pickle"),
    ("torch", "load"),
    ("yaml", "load"),
    ("os", "system"),
    ("frame", "eval"),
}


def findings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (f"import {one.name}" for one in names if one.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)):
                if module.partition(".")[0] in MODULES:
                    yield f"from {module}"
            case ast.Call(func=ast.Name(id=name)) if name in NAMES:
                yield f"{name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=attribute)) if (owner, attribute) in ATTRIBUTES:
                yield f"{owner}.{attribute}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="load"), keywords=keywords):
                said = {one.arg: one.value for one in keywords}.get("allow_pickle")
                if not (isinstance(said, ast.Constant) and said.value is False):
                    yield "np.load() that does not say allow_pickle=False"
            case ast.Call(keywords=keywords):
                told = [one for one in keywords if one.arg == "allow_pickle" or one.arg == "shell"]
                yield from (
                    f"{one.arg}=True" for one in told if not (isinstance(one.value, ast.Constant) and one.value.value is False)
                )


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_nothing_runs_what_it_reads(path: Path) -> None:
    assert list(findings(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("line", [
    "import pickle",
    "from dill import loads",
    "eval('1')",
    "exec(text)",
    "joblib.load(p)",
    "pd.read_pickle(p)",
    "np.load(p)",
    "np.load(p, allow_pickle=True)",
    "np.load(p, allow_pickle=x)",
    "import yaml",
    "subprocess.run(c, shell=True)",
    "torch.load(p)",
])
def test_what_is_looked_for_is_found(line: str) -> None:
    assert list(findings(ast.parse(line)))
