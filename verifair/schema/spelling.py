"""Messages about an unknown name: the one that was probably meant, or the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def closest(name: str, names: Sequence[str]) -> str | None:
    """Return the known name that is nearest to `name` in spelling or contains it, or None if it resembles none."""
    same = [n for n in names if n.casefold() == name.casefold()]
    return next(iter(same or difflib.get_close_matches(name, names, n=1) or [n for n in names if name[2:] and name in n]), None)


def nearest(name: str, candidates: Iterable[object]) -> str:
    """Return "did you mean ...?", or the known names."""
    names = [str(item) for item in candidates]
    match = closest(name, names)
    return f"did you mean {match!r}?" if match is not None else f"known are {listed(names, 20)}"


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Return the first names, and how many more there are."""
    suffix = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + suffix
