"""Messages about an unknown name: the one that was probably meant, or the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def closest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that is nearest to `name` in spelling, or None if it resembles none."""
    close = difflib.get_close_matches(name, known, n=1)
    return next(iter(close or [one for one in known if one.casefold() == name.casefold()]), None)


def nearest(name: str, known: Iterable[object]) -> str:
    """Return "did you mean ...?", or the known names."""
    names = [str(one) for one in known]
    close = closest(name, names)
    return f"did you mean {close!r}?" if close is not None else f"known are {listed(names, 20)}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
