"""A family of cases: one kind of question at growing sizes, reproducible by the seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verifair.bench.questions import Kind, Question


@dataclass(frozen=True, kw_only=True)
class BenchCase:
    """One question with a name: family/size-number, e.g. pba-adult/30-1; pba-adult/30-1@7 with several seeds."""

    family: Family
    size: int
    number: int
    seed: int
    marked: bool = False

    @property
    def name(self) -> str:
        return f"{self.family.name}/{self.size}-{self.number}" + (f"@{self.seed}" if self.marked else "")

    def question(self) -> Question:
        """Build the question, the same each time; a shipped network is read once."""
        return self.family.build(self.size, self.number, self.seed)


@dataclass(frozen=True, kw_only=True)
class Family:
    """about: one line for the list.   size_is: what the sizes count.   count: cases of each size.

    build: (size, number, seed) -> the question. Cases with the same number share the fixed parts, such as the row.
    drawn: True if the questions depend on the seed.
    """

    name: str
    kind: Kind
    about: str
    size_is: str
    sizes: tuple[int, ...]
    count: int
    build: Callable[[int, int, int], Question]
    drawn: bool = True

    def cases(self, seed: int, seeds: int = 1) -> list[BenchCase]:
        """Return the cases of `seeds` seeds from `seed` on, smallest first. If nothing is drawn, there is one seed."""
        all_seeds = range(seed, seed + (seeds if self.drawn else 1))
        return [
            BenchCase(family=self, size=size, number=n, seed=s, marked=len(all_seeds) > 1)
            for size in self.sizes for n in range(self.count) for s in all_seeds
        ]


def generator(name: str, number: int, seed: int) -> np.random.Generator:
    """Return the random generator of one case of a family, the same on every machine (Python's own hash is not)."""
    return np.random.default_rng([seed, number, zlib.crc32(name.encode())])
