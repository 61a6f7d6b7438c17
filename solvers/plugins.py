"""Plug-ins of installed packages, by entry points."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from solvers.outcome import BackendError


class PluginError(BackendError):
    """An entry point for verifair that does not load."""


@lru_cache
def plugins(group: str) -> tuple[Any, ...]:
    """Return the objects of a group's entry points, in the order of their names. Raises PluginError for one that does not load."""
    objects = []
    for point in sorted(entry_points(group=group), key=lambda p: p.name):
        try:
            objects.append(point.load())
        except Exception as error:  # another package may raise anything
            message = f"{group}: {point.name} ({point.value}) does not load: {error}"
            raise PluginError(f"{message}; fix or remove that package") from error
    return tuple(objects)
