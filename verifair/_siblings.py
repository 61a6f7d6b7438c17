"""Our packages `encoders` and `solvers` have plain names: another module of such a name may lie before them on Python's path."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

SIBLINGS = ("encoders", "solvers")


class HiddenPackage(ImportError):
    """One of our packages cannot be imported, since another module of its name comes first. Uncaught, it is told in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        previous = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if error is self:
                print(f"error: {error}", file=sys.stderr)
            else:
                previous(kind, error, trace)

        sys.excepthook = hook


def check_siblings() -> None:
    """Raise HiddenPackage that names the file which hides one of our packages, and the remedy."""
    ours = Path(__file__).resolve().parents[1]
    for name in SIBLINGS:
        spec = find_spec(name)
        found = None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)
        if found is None:
            raise HiddenPackage(f"verifair needs its package {name!r}, which is not installed beside it; install verifair anew")
        if ours not in Path(found).resolve().parents:
            raise HiddenPackage(
                f"{found} hides verifair's own package {name!r}; rename that file or folder, or start Python in another folder"
            )
        if not Path(found).is_file() or "verifair" not in Path(found).read_text(encoding="utf-8", errors="replace"):
            raise HiddenPackage(
                f"another package called {name!r} was installed over verifair's own in {ours}; "
                f"run pip uninstall {name}, then install verifair anew"
            )
