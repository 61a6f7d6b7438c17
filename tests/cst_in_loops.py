"""Counterfactual situation testing written out in loops from the paper's definitions, slow and independent of verifair.systems.cst.

`people_tested` is the CST paper's algorithm 1 with the mixed distance of equation 6 (overlap 0 for equal words): one complainant
after another, one distance after another. `authors_counts` is what the authors' code does on a table of numbers. Nothing is shared
with the package: no embedding, no tree, no ties at once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.arrays import Array, Booleans

EQUAL = 1e-9
"""Distances closer than this are one distance."""
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Person:
    """What was found for one complainant. Negative decisions among k rows: of the control group, of ST's and CST's test group."""

    row: int
    control: tuple[float, ...]
    standard: tuple[float, ...]
    counterfactual: tuple[float, ...]


def ranges(frame: pd.DataFrame, attributes: Sequence[str]) -> dict[str, float | None]:
    """Of numbers the largest less the smallest value; None for words."""
    found: dict[str, float | None] = {}
    for name in attributes:
        values = frame[name].tolist()
        found[name] = None if isinstance(values[0], str) else max(values) - min(values)
    return found


def distance(a: Row, b: Row, spans: Mapping[str, float | None]) -> float:
    """Equation 6: the mean over the attributes of |a - b| / range, or of 0 for equal and 1 for unequal words."""
    total = 0.0
    for name, span in spans.items():
        if span is None:
            total += 0.0 if a[name] == b[name] else 1.0
        elif span > 0:
            total += abs(a[name] - b[name]) / span
    return total / len(spans)


def refused(
    around: Row, rows: Sequence[int], people: Sequence[Row], negative: Sequence[bool], k: int, spans: Mapping[str, float | None],
    ties: str,
) -> float:
    """How many of the k rows nearest to `around` were refused.

    ties: with "first" the earliest rows are taken, with "last" the latest, with "share" each has an equal part.
    """
    by_distance = sorted((distance(around, people[i], spans), i) for i in rows)
    blocks: list[list[int]] = []
    last = -math.inf
    for d, i in by_distance:
        if not blocks or d - last > EQUAL:
            blocks.append([])
        blocks[-1].append(i)
        last = d
    left, found = float(k), 0.0
    for block in blocks:
        if len(block) <= left:
            taken, weight = sorted(block), 1.0
        elif ties != "share":
            taken, weight = sorted(block, reverse=ties == "last")[: int(left)], 1.0
        else:
            taken, weight = block, left / len(block)
        found += weight * sum(1 for i in taken if negative[i])
        left -= weight * len(taken)
        if left <= EQUAL:
            break
    return found


def people_tested(
    frame: pd.DataFrame, tilde: pd.DataFrame, do: Mapping[str, Any], attributes: Sequence[str], negative: Sequence[bool],
    k: Sequence[int], ties: str = "share",
) -> list[Person]:
    """Every complainant: a row that differs from `do` in all of its attributes.

    tilde: their counterfactuals, in the table's order.   negative: (N,) whether a row was refused.
    """
    people: list[Row] = frame.to_dict("records")
    others: list[Row] = tilde.to_dict("records")
    spans = ranges(frame, attributes)
    test = [i for i, one in enumerate(people) if all(one[a] == v for a, v in do.items())]
    complainants = [i for i, one in enumerate(people) if all(one[a] != v for a, v in do.items())]
    found = []
    for place, c in enumerate(complainants):
        alike = [i for i in complainants if i != c and all(people[i][a] == people[c][a] for a in do)]

        def count(around: Row, rows: list[int]) -> tuple[float, ...]:
            return tuple(refused(around, rows, people, negative, one, spans, ties) for one in k)

        found.append(Person(
            row=c,
            control=count(people[c], alike),
            standard=count(people[c], test),
            counterfactual=count(others[place], test),
        ))
    return found


def wald(p_c: float, n_c: float, p_t: float, n_t: float, z: float) -> tuple[float, float]:
    """Equation 5, with the plus under the root that it needs."""
    half = z * math.sqrt(p_c * (1 - p_c) / n_c + p_t * (1 - p_t) / n_t)
    return p_c - p_t - half, p_c - p_t + half


def authors_counts(
    table: Array, tilde: Array, protected: Booleans, negative: Booleans, negative_tilde: Booleans, k: int,
    *, own_scale: bool = True,
) -> dict[str, int]:
    """The authors' numbers of cases, and of significant ones (`_sig`), for one k. Ties go to the earlier row.

    table, tilde: (N, d) all rows as they are and under the intervention, each scaled by its own mean and standard deviation
    (own_scale; otherwise both by the table's).   protected, negative, negative_tilde: (N,).
    """
    center, spread = table.mean(axis=0), table.std(axis=0)
    x = (table - center) / spread
    y = (tilde - tilde.mean(axis=0)) / tilde.std(axis=0) if own_scale else (tilde - center) / spread
    mine, theirs = np.flatnonzero(protected), np.flatnonzero(~protected)
    found = dict.fromkeys(("ST", "CSTwo", "CSTwi", "CF", "ST_sig", "CSTwo_sig", "CSTwi_sig", "CF_sig"), 0)
    for c in mine:
        near = _nearest(x[c], x, mine, k + 1)
        alone = [i for i in near if i != c]
        standard, counter = _nearest(x[c], x, theirs, k), _nearest(y[c], x, theirs, k)
        control = [bool(negative[i]) for i in alone]
        groups = {
            "ST": (control, [bool(negative[i]) for i in standard]),
            "CSTwo": (control, [bool(negative[i]) for i in counter]),
            "CSTwi": ([bool(negative[i]) for i in near], [*(bool(negative[i]) for i in counter), bool(negative_tilde[c])]),
        }
        sure = False
        for name, (one, two) in groups.items():
            p_c, p_t = sum(one) / len(one), sum(two) / len(two)
            low, _ = wald(p_c, len(one), p_t, len(two), 1.645)
            sure = round(low, 3) > 0
            found[name] += round(p_c - p_t, 3) > 0
            found[f"{name}_sig"] += sure
        flips = bool(negative[c]) and not negative_tilde[c]
        found["CF"] += flips
        found["CF_sig"] += flips and sure  # of CST with search centers, the last of the three
    return found


def _nearest(center: Array, points: Array, rows: npt.NDArray[np.int64], k: int) -> list[int]:
    gaps = np.round(np.abs(points[rows] - center).mean(axis=1), 9)
    return [int(i) for i in rows[np.argsort(gaps, kind="stable")[:k]]]
