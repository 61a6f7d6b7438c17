"""Our packages `encoders` and `solvers` have common names: another module of the same name may come first on Python's path."""

from __future__ import annotations

import os.path
import sys
from types import TracebackType

SIBLINGS = ("encoders", "solvers")


class HiddenPackage(ImportError):
    """One of our packages cannot be imported, because another module of its name comes first. Uncaught, it prints one line."""

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
    """Raise HiddenPackage that names the file which hides one of our packages, and the remedy.

    It runs before all other code of ours, and loads nothing: it uses modules that Python itself has loaded.
    """
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for name in SIBLINGS:
        file = _file_of(name)
        if file is None:
            raise HiddenPackage(f"verifair needs its package {name!r}, which is not installed beside it; install verifair anew")
        if not os.path.realpath(file).startswith(root + os.sep):
            raise HiddenPackage(
                f"{file} hides verifair's own package {name!r}; rename that file or folder, or start Python in another folder"
            )
        if not _is_ours(file):
            raise HiddenPackage(
                f"another package called {name!r} was installed over verifair's own in {root}; "
                f"run pip uninstall {name}, then install verifair anew"
            )


def _file_of(name: str) -> str | None:
    """Return the file of a package, its folder if it has no file; None if there is no such package."""
    loaded = sys.modules.get(name)
    specs = (finder.find_spec(name, None) for finder in sys.meta_path)
    spec = next(filter(None, specs), None) if loaded is None else loaded.__spec__
    return None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def _is_ours(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        return "verifair" in file.read()
