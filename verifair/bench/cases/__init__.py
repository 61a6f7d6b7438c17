"""The cases: all families, and the selection by globs."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from solvers.plugins import plugins
from verifair.bench.cases import centers, random_models, shipped
from verifair.bench.cases.family import BenchCase, Family
from verifair.errors import QueryError

QUICK = ("pba-german/*-2", "lp-german/3-0", "min-german/3-0", "fair-german/2-0", "random-wide/4-*", "random-trees/4-*",
         "center-german/[12]0-0")
"""A taste of every kind, for `--quick`."""
GROUP = "verifair.cases"


@lru_cache
def families() -> tuple[Family, ...]:
    """Return all families of the shipped data and of random models, and those that installed packages bring.

    An entry point of the group `verifair.cases` is a function that returns families.
    Raises PluginError for one that does not load.
    """
    external = (family for build in plugins(GROUP) for family in build())
    return (*shipped.families(), *random_models.families(), *centers.families(), *external)


def chosen(globs: Sequence[str], seed: int, known: Sequence[Family] | None = None, seeds: int = 1) -> list[BenchCase]:
    """Return the cases whose name matches one of the globs (all without globs), families in their order, smallest first.

    seeds: number of seeds that draw them, from `seed` on.

    Raises QueryError for a glob that matches nothing.
    """
    known = families() if known is None else known
    cases = [case for family in known for case in family.cases(seed, seeds)]
    for glob in globs:
        if not any(_matches(case, glob) for case in cases):
            raise QueryError(
                f"--cases {glob}: no case is called so; families are {', '.join(family.name for family in known)}, "
                "and cases FAMILY/SIZE-NUMBER, e.g. --cases 'pba-*/3-*'; verifair bench --list shows all"
            )
    return [case for case in cases if not globs or any(_matches(case, glob) for glob in globs)]


def _matches(case: BenchCase, glob: str) -> bool:
    """Return True if a glob matches the case's name, with its seed or without."""
    return any(fnmatchcase(name, glob) for name in (case.name, case.name.partition("@")[0]))
