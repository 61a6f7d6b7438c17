"""What installed packages bring of their own, by entry points."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from solvers.outcome import BackendError


class PluginError(BackendError):
    """An entry point of ours that does not load."""


@lru_cache
def plugins(group: str) -> tuple[Any, ...]:
    """Return what the entry points of a group name, in the order of their names. Raises PluginError for one that does not load."""
    found = []
    for point in sorted(entry_points(group=group), key=lambda one: one.name):
        try:
            found.append(point.load())
        except Exception as error:  # whatever somebody else's package throws
            message = f"{group}: {point.name} ({point.value}) does not load: {error}"
            raise PluginError(f"{message}; fix or remove that package") from error
    return tuple(found)
