"""Packages that cannot be imported. This needs Python alone: `verifair doctor` runs it before it loads packages that it needs
itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec

NEEDED = {name: name for name in ("numpy", "scipy", "pandas", "pydantic", "rich", "typer")}
"""Packages that `verifair doctor` loads: package -> module. Those that others load come first."""
PATIENCE = 120.0
"""Seconds that one import may take."""


def broken(modules: Mapping[str, str]) -> dict[str, str]:
    """Return package -> reason, for packages that cannot be imported; each is tried in its own process, since some crash it."""
    with ThreadPoolExecutor(2) as pool:
        failures = dict(zip(modules, pool.map(_failure, modules.values()), strict=True))
    return {name: reason for name, reason in failures.items() if reason is not None}


@cache
def _failure(module: str) -> str | None:
    """Return the reason that a module cannot be imported, None if it can."""
    if find_spec(module) is None:
        return f"there is no module {module}"
    code = f"import sys; sys.path[:] = {sys.path!r}; import {module}"
    try:
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, errors="replace", timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"its import takes more than {PATIENCE:.0f} s"
    last = (process.stderr.strip().splitlines() or [""])[-1][:500]
    return None if process.returncode == 0 else last or f"its import ends Python (exit code {process.returncode})"


def line(name: str, module: str, reason: str) -> str:
    """Return the screen's line about a broken package: its name, the reason, and the repair."""
    spec = find_spec(module)
    file = None if spec is None else spec.origin
    is_users = file is not None and "-packages" not in file  # site-packages and dist-packages are pip's
    remedy = f"{file} is in its place: rename that" if is_users else f"run pip install --force-reinstall {name}"
    return f"broken: {name} cannot be imported: {reason}; {remedy}"
