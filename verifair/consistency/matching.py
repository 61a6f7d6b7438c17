"""Label-stratified matching: for everybody the nearest real person of each other group with the same true label.

Comparable means near in the standardised columns of merit. One KD-tree for each label and group, over distinct points of merit:
people who agree in merit exactly are all equally near, which on coarse features is the rule and not the exception (on Adult a
median of 31 and more), so that their number is reported and the choice among them is by a stated rule.
Reference: CEC, definition 2 and algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial import KDTree

from encoders.network import Array
from verifair.consistency.people import Integers, People
from verifair.errors import DataError, QueryError

Ties = Literal["first", "random"]
"""first: among equally near people the lowest row.   random: one drawn with the seed."""
SAME = 1e-9
"""Distances that differ by less, relatively or in standard deviations, count as equal."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """The real people that counterfactuals and baselines come from.

    columns: (F,) of merit.   mean, std: (F,) of these columns (std 1 where a column is constant).
    baselines: (2, G, n_0) the means b_{y,a} of each label and group; NaN where there is nobody.
    """

    people: People
    columns: Integers
    mean: Array
    std: Array
    baselines: Array

    @classmethod
    def of(cls, people: People, columns: Integers) -> Reference:
        """Raises DataError where there is one group or one label only, or a group that lacks a label altogether."""
        count = np.zeros((2, len(people.names)), dtype=int)
        np.add.at(count, (people.labels, people.groups), 1)
        if (count.sum(axis=0) > 0).sum() < 2:
            raise DataError(
                f"only one group, {people.names[int(count.sum(axis=0).argmax())]}, has rows: there is nobody to compare with; "
                "name a sensitive feature with two or more groups"
            )
        if not count.sum(axis=1).all():
            raise DataError(
                f"every row has the true label {int(count.sum(axis=1).argmax())}: nothing can be compared within two labels; pass "
                "rows of both, or correct positive_label in the schema"
            )
        empty = np.argwhere((count == 0) & (count.sum(axis=0) > 0))
        if len(empty):
            label, group = empty[0]
            raise DataError(
                f"group {people.names[group]!r} has no row with the true label {label} ({count[1 - label, group]} with label "
                f"{1 - label}), so nobody with that label has a counterpart there; add rows, or join groups"
            )
        baselines = np.full((2, len(people.names), people.x.shape[1]), np.nan)
        for label, group in np.argwhere(count > 0):
            baselines[label, group] = people.x[(people.labels == label) & (people.groups == group)].mean(axis=0)
        merit = people.x[:, columns]
        std = merit.std(axis=0)
        return cls(people=people, columns=columns, mean=merit.mean(axis=0), std=np.where(std > 0, std, 1.0), baselines=baselines)

    def standardised(self, people: People) -> Array:
        """Merit (N, F) in standard deviations from this reference's mean."""
        return np.asarray((people.x[:, self.columns] - self.mean) / self.std)

    def baseline(self, people: People) -> Array:
        """(N, n_0) each person's own label-group mean (the paper's principle 1: both of a pair are explained from it)."""
        return np.asarray(self.baselines[people.labels, people.groups])


@dataclass(frozen=True, kw_only=True, eq=False)
class Matches:
    """Pairs of a person and the nearest one of another group, by person, then by group.

    individual: (P,) rows of the audited people.   other: (P,) the other group.   row: (P,) the counterpart's row in the reference,
    -1 where nobody is within tau.   distance: (P,) to the nearest, matched or not.   ties: (P,) how many are equally near.
    """

    individual: Integers
    other: Integers
    row: Integers
    distance: Array
    ties: Integers
    tau: float | None

    @property
    def matched(self) -> Integers:
        """(M,) pairs with a counterpart."""
        return np.flatnonzero(self.row >= 0)

    @property
    def coverage(self) -> float:
        """Share of the pairs that have a counterpart within tau."""
        return float((self.row >= 0).mean())


def match(reference: Reference, people: People, *, tau: float | None = None, ties: Ties = "first", seed: int = 0) -> Matches:
    """The nearest person of each other group with the same label, by L2 on standardised merit; none farther than tau.

    tau: in standard deviations; None: however far.   Raises QueryError for a tau that is no positive number, and DataError where a
    needed label and group has nobody, or where everybody is farther than tau.
    """
    if tau is not None and not 0 < tau < np.inf:
        raise QueryError(f"tau = {tau}: expected a positive distance, in standard deviations of merit, or none at all")
    strangers = np.setdiff1d(people.groups, reference.people.groups)
    if len(strangers):
        raise DataError(
            f"group {people.names[strangers[0]]!r}: nobody of it is among the rows to compare with, so it has no baseline; add "
            "rows of it there, or leave such people out"
        )
    pool, merit = reference.standardised(reference.people), reference.standardised(people)
    generator = np.random.default_rng(seed)
    row = np.full((len(people), len(people.names)), -1)
    distance = np.full(row.shape, np.inf)
    equal = np.zeros(row.shape, dtype=np.int64)
    for label in np.unique(people.labels):
        for group in np.unique(reference.people.groups):
            asked = np.flatnonzero((people.labels == label) & (people.groups != group))
            cell = np.flatnonzero((reference.people.labels == label) & (reference.people.groups == group))
            if len(asked):
                near, distance[asked, group], equal[asked, group] = _nearest(pool[cell], merit[asked], ties, generator)
                row[asked, group] = cell[near]
    other = np.tile(np.arange(len(people.names)), (len(people), 1))
    wanted = (other != people.groups[:, None]) & np.isin(other, reference.people.groups)
    found = Matches(
        individual=np.nonzero(wanted)[0], other=other[wanted], row=row[wanted], distance=distance[wanted], ties=equal[wanted],
        tau=tau,
    )  # fmt: skip
    if tau is not None:
        found.row[found.distance > tau] = -1
        if not len(found.matched):
            raise DataError(
                f"tau = {tau:g}: nobody has a counterpart that near; the nearest pair is {found.distance.min():.3g} apart, the "
                f"median {np.median(found.distance):.3g}: choose a larger tau, or none"
            )
    return found


def _nearest(pool: Array, merit: Array, ties: Ties, generator: np.random.Generator) -> tuple[Integers, Array, Integers]:
    """For merit (Q, F): the row in the pool (C, F), its distance, and how many rows of the pool are equally near."""
    points, place = np.unique(pool, axis=0, return_inverse=True)
    order = np.argsort(place, kind="stable")  # rows of the pool, point by point, each point's in their own order
    count = np.bincount(place)
    start = np.cumsum(count) - count
    asked, who = np.unique(merit, axis=0, return_inverse=True)
    tree = KDTree(points)
    nearest, _ = tree.query(asked)
    within = tree.query_ball_point(asked, nearest * (1 + SAME) + SAME)
    equal = np.array([count[near].sum() for near in within])
    if ties == "first":
        chosen = np.array([order[start[near]].min() for near in within])[who]
    else:
        draws = generator.integers(equal[who])
        chosen = np.array([_drawn(within[q], draw, order, start, count) for q, draw in zip(who, draws, strict=True)])
    return chosen, nearest[who], equal[who]


def _drawn(near: list[int], draw: int, order: Integers, start: Integers, count: Integers) -> int:
    """Row number `draw` among all rows of the points `near`."""
    before = np.cumsum(count[near])
    k = int(np.searchsorted(before, draw, side="right"))
    return int(order[start[near[k]] + draw - (before[k] - count[near[k]])])
