"""verifair doctor: what is installed, which versions, which limits."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.markup import escape
from rich.table import Table as Grid

from verifair.cli.command import app_of, asked
from verifair.cli.helps import HELPS
from verifair.systems.result import Answer, Shape
from verifair.systems.settings import Settings
from verifair.systems.system import System

CORE = ("numpy", "scipy", "pandas", "scikit-learn", "onnx", "onnxruntime", "python-flint", "pydantic", "joblib")
OPTIONAL = {
    "torch": ("torch", "verifair train, retraining, baselines"),
    "fairlearn": ("fairlearn", "baselines of CEC: Hardt, Agarwal"),
    "distributed": ("distributed", "--cluster"),
    "maraboupy": ("peers", "Marabou as a peer in verifair bench"),
    "dowhy": ("causal", "causal models of dowhy.gcm"),
}
"""Package -> its extra, and what needs it."""


class BackendShape(Shape):
    name: str
    available: bool
    version: str | None


class DoctorAnswer(Answer):
    """`verifair doctor`: what is installed."""

    backends: list[BackendShape]
    packages: dict[str, str | None]
    """Package -> version; null: not installed."""
    clash: str | None
    """Packages that cannot share a process."""


def run(system: System, given: dict[str, Any]) -> None:
    """Show what is installed, and what is missing."""
    from solvers import registry
    from verifair.cli.output import console as screen
    from verifair.cli.output import save_answer

    _, _, files = asked(system, given)
    console = screen()
    console.print(f"verifair {version('verifair')}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    grid = Grid("backend", "installed", "version", "can", "limit", title="Solvers", title_justify="left")
    found = []
    missing: dict[str, list[str]] = {}  # extra -> what comes with it
    for backend in registry.backends():
        there = backend.is_available()
        limit = f"{backend.max_columns:,} columns and {backend.max_rows:,} rows" if backend.max_columns else ""
        can = ", ".join(sorted(c.name.lower().replace("_", " ") for c in backend.capabilities))
        grid.add_row(backend.name, "yes" if there else "no", backend.version() if there else "", can, limit)
        if not there and backend.extra:
            missing[backend.extra] = [*missing.get(backend.extra, []), backend.name]
        found.append(BackendShape(name=backend.name, available=there, version=backend.version() if there else None))
    console.print(grid)
    packages = {name: _version(name) for name in (*CORE, *OPTIONAL)}
    console.print("; ".join(f"{name} {packages[name]}" for name in CORE))
    extras = Grid("package", "version", "needed for", title="Optional", title_justify="left")
    for name, (extra, purpose) in OPTIONAL.items():
        extras.add_row(name, packages[name] or "no", purpose)
        if packages[name] is None:
            missing[extra] = [*missing.get(extra, []), name]
    console.print(extras)
    for extra, names in missing.items():
        console.print(escape(f'missing: {", ".join(names)}: pip install "verifair[{extra}]"'), soft_wrap=True)
    clash = _highspy_clash()
    if clash is not None:
        console.print(f"clash: {clash}")
    save_answer(files.json_file, DoctorAnswer(backends=found, packages=packages, clash=clash))


SYSTEM = System(verb="doctor", help=HELPS["doctor"], settings=Settings, inputs=Settings, run=("json_file",))
app = app_of(SYSTEM, run)


def _highspy_clash() -> str | None:
    """highspy 1.14 and ortools cannot be loaded into one process (google/or-tools issue 5246)."""
    highspy, ortools = _version("highspy"), _version("ortools")
    if highspy and ortools and tuple(map(int, highspy.split(".")[:2])) >= (1, 14):
        return f"highspy {highspy} and ortools {ortools} cannot share a process; pip install 'highspy<1.14'"
    return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
