"""Matching: for each person the nearest real person of each other group with the same true label.

Comparable means near in the standardised columns of merit. There is one KD-tree for each label and group, over distinct points of
merit. People who agree in merit exactly are all equally near. On coarse features this is common (on Adult the median is 31 or
more), so their number is reported and one is chosen by a stated rule.
Reference: CEC, definition 2 and algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.spatial import KDTree

from encoders.arrays import Array, Integers
from verifair.aside import Aside, made, numbered, taken
from verifair.errors import DataError, QueryError
from verifair.systems.cec.people import People
from verifair.systems.cec.settings import Ties
from verifair.systems.groups import blocks, identities

SAME = 1e-9
"""Distances that differ by less, relatively or in standard deviations, count as equal."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """The people from whom counterparts and baselines are taken.

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
        """Raise DataError if there is only one group or label, or if a group lacks a label."""
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
        baselines = np.full((2, len(people.names), len(people.features)), np.nan)
        for label, group in np.argwhere(count > 0):
            rows = np.flatnonzero((people.labels == label) & (people.groups == group))
            baselines[label, group] = sum(people.inputs(rows[part]).sum(axis=0) for part in blocks(len(rows))) / len(rows)
        merit, identity = people.distinct(columns)
        count = np.bincount(identity)
        weighted = Aside.of(*merit.shape)

        def average(transform: Callable[[Array], Array]) -> Array:
            for part in blocks(len(merit)):
                weighted.put(part, transform(merit[part]) * count[part, None])
            return np.asarray(weighted.values.sum(axis=0) / len(people))

        mean = average(lambda merit: merit)
        std = np.where(np.ptp(merit, axis=0) > 0, np.sqrt(average(lambda merit: (merit - mean) ** 2)), 1.0)
        return cls(people=people, columns=columns, mean=mean, std=std, baselines=baselines)

    @property
    def determines(self) -> tuple[Any, ...]:
        """Everything that the explanations depend on, as arrays and JSON values: the key of stored results."""
        return *self.people.determines, self.baselines

    def background(self, label: int, group: int) -> Array:
        """Return (R, n_0) the model inputs of all people of a group with a label."""
        return self.people.inputs(np.flatnonzero((self.people.labels == label) & (self.people.groups == group)))

    def merit(self, people: People) -> tuple[Array, Integers]:
        """Return the distinct points (D, F) of their merit, in standard deviations from this reference's mean, and (N,) each
        person's point."""
        points, identity = people.distinct(self.columns)
        points -= self.mean
        points /= self.std
        return points, identity

    def rows_of(self, people: People) -> Integers:
        """Return (N,) each person's row in the reference, -1 where there is none; equal people are assigned to equal rows in
        order."""
        if people is self.people:
            return numbered(len(people))
        tables, same_domain = (self.people, people), self.people.domain is people.domain
        sides = [np.column_stack([side.values if same_domain else side.x, side.labels, side.groups]) for side in tables]
        identity = identities(np.concatenate(sides))
        own, others = (pd.Series(part) for part in np.split(identity, [len(self.people)]))
        rows = pd.MultiIndex.from_arrays([own, own.groupby(own).cumcount()])
        return np.asarray(rows.get_indexer(pd.MultiIndex.from_arrays([others, others.groupby(others).cumcount()])), dtype=np.int64)

    def baseline(self, people: People) -> Array:
        """(N, n_0) each person's own label-group mean (the paper's principle 1: both of a pair are explained from it)."""
        return np.asarray(self.baselines[people.labels, people.groups])


@dataclass(frozen=True, kw_only=True, eq=False)
class Matches:
    """Pairs of a person and the nearest person of another group, sorted by person, then by group.

    individual: (P,) rows of the audited people.   other: (P,) the other group.   row: (P,) the counterpart's row in the reference,
    -1 where nobody is within tau.   distance: (P,) to the nearest, matched or not.   ties: (P,) number of equally near people.
    seed: of the draw among these; None: the first was taken.   own: (N,) each person's own row in the reference, -1 where there is
    none; None: not known.
    """

    individual: Integers
    other: Integers
    row: Integers
    distance: Array
    ties: Integers
    tau: float | None
    seed: int | None = None
    own: Integers | None = None

    @property
    def matched(self) -> Integers:
        """(M,) positions of the pairs with a counterpart."""
        positions = np.flatnonzero(self.row >= 0)
        return np.asarray(made(len(positions), np.int64, lambda part: positions[part]))

    def of(self, values: npt.NDArray[Any], pairs: Integers) -> npt.NDArray[Any]:
        """Return the values (P,) at some pairs (M,), ascending; `values` itself if these are all pairs."""
        return values if len(pairs) == len(values) else np.asarray(taken(values, pairs))

    @property
    def coverage(self) -> float:
        """Share of the pairs that have a counterpart within tau."""
        return float((self.row >= 0).mean())


def match(
    reference: Reference, people: People, *, tau: float | None = None, ties: Ties = "first", seed: int = 0,
    own: Integers | None = None,
) -> Matches:
    """Match each person with the nearest of each other group with the same label, by L2 on standardised merit, within tau.

    tau: in standard deviations; None: no limit.   own: (N,) each person's row in the reference; None: found by `rows_of`.
    Raises QueryError for a tau that is no positive number, and DataError where a needed label and group has nobody, or where
    everybody is farther than tau.
    """
    if tau is not None and not 0 < tau < np.inf:
        raise QueryError(f"tau = {tau}: expected a positive distance, in standard deviations of merit, or none at all")
    check_groups(reference, people)
    pool, (merit, point) = _merits(reference, people)
    generator = np.random.default_rng(seed)
    groups = np.unique(reference.people.groups)
    n_others = len(groups) - 1  # everybody has a pair with each other group
    row, other, count = (Aside.of(len(people) * n_others, 1, np.int64) for _ in range(3))
    distance = Aside.of(len(people) * n_others, 1)
    for label in np.unique(people.labels):
        for index, group in enumerate(groups):
            persons = np.flatnonzero((people.labels == label) & (people.groups != group))
            cell = np.flatnonzero((reference.people.labels == label) & (reference.people.groups == group))
            if len(persons):
                nearest = _Points.of(pool[0], pool[1][cell]).near(merit, point[persons])
                equal = nearest.count[nearest.who]
                draws = generator.integers(equal) if ties == "random" else np.zeros(len(persons), dtype=np.int64)
                chosen = np.empty(len(persons), dtype=np.int64)
                for chunk, rows in nearest.each():
                    chosen[chunk] = rows[draws[chunk]]
                pair = persons * n_others + index - (people.groups[persons] < group)
                row.put(pair, cell[chosen])
                other.put(pair, np.full(len(pair), group))
                distance.put(pair, nearest.distance[nearest.who])
                count.put(pair, equal)
    matches = Matches(
        individual=made(len(row.values), np.int64, lambda part: np.arange(part.start, part.stop) // n_others), other=other.column,
        row=row.column, distance=distance.column, ties=count.column, tau=tau, seed=seed if ties == "random" else None,
        own=reference.rows_of(people) if own is None else own,
    )
    if tau is not None:
        matches.row[matches.distance > tau] = -1
        if not len(matches.matched):
            raise DataError(
                f"tau = {tau:g}: nobody has a counterpart that near; the nearest pair is {matches.distance.min():.3g} apart, the "
                f"median {np.median(matches.distance):.3g}: choose a larger tau, or none"
            )
    return matches


def match_within(
    reference: Reference, people: People, *, tau: float | None = None, ties: Ties = "first", seed: int = 0
) -> Matches:
    """Match each person with the nearest *other* person of the own group with the same label: the control of `match`.

    Rows equal to the person in every input are skipped: across groups there are none if the network sees the group.
    The rest as in `match`, but people without such a neighbour are unmatched, not an error.   Reference: ours, not in the paper.
    """
    check_groups(reference, people)
    pool, (merit, point) = _merits(reference, people)
    is_reference = people is reference.people
    codes = identities(people.values if is_reference else np.concatenate([reference.people.values, people.values]))
    reference_identity, identity_of = codes[: len(reference.people)], codes if is_reference else codes[len(reference.people) :]
    generator = np.random.default_rng(seed)
    row, distance, equal = Aside.of(len(people), 1, np.int64), Aside.of(len(people), 1), Aside.of(len(people), 1, np.int64)
    for label, group in product(np.unique(people.labels), np.unique(people.groups)):
        pending = np.flatnonzero((people.labels == label) & (people.groups == group))
        if not len(pending):
            continue
        cell = np.flatnonzero((reference.people.labels == label) & (reference.people.groups == group))
        points = _Points.of(pool[0], pool[1][cell])
        identity = reference_identity[cell]
        twins = np.zeros(len(codes), dtype=np.int32)  # equal rows are at distance 0, so always among the nearest
        np.add.at(twins, identity, 1)
        for rank in (1, 2):  # if all the nearest are equal to the person, take the next point
            nearest = points.near(merit, point[pending], rank)
            n_candidates = nearest.count[nearest.who] - twins[identity_of[pending]]
            has_match = n_candidates > 0
            draws = np.zeros(len(pending), dtype=np.int64)
            if ties == "random":
                draws[has_match] = generator.integers(n_candidates[has_match])
            chosen = np.full(len(pending), -1)
            for chunk, rows in nearest.each():
                for i in chunk[has_match[chunk]]:
                    chosen[i] = cell[_draw_other(rows, identity, identity_of[pending[i]], draws[i])]
            row.put(pending, chosen)
            distance.put(pending, nearest.distance[nearest.who])
            equal.put(pending, n_candidates)
            pending = pending[~has_match]
        distance.put(pending, np.full(len(pending), np.inf))
    if tau is not None:
        row.column[distance.column > tau] = -1
    return Matches(
        individual=numbered(len(people)), other=people.groups,
        row=row.column, distance=distance.column, ties=equal.column, tau=tau, seed=seed if ties == "random" else None,
    )


def _merits(reference: Reference, people: People) -> tuple[tuple[Array, Integers], tuple[Array, Integers]]:
    """Return the merit of the reference and that of the people."""
    pool = reference.merit(reference.people)
    return pool, pool if people is reference.people else reference.merit(people)


def _draw_other(rows: Integers, identity: Integers, own: int, draw: int) -> int:
    """Return number `draw` among the `rows` whose identity is not `own`."""
    start = 0
    while True:  # the first few nearly always suffice, and the whole list may be long
        part = rows[: start + draw + 64]
        different = part[identity[part] != own]
        if len(different) > draw:
            return int(different[draw])
        start += 64


def check_groups(reference: Reference, people: People) -> None:
    """Raise DataError for people of a group without a baseline."""
    strangers = np.setdiff1d(people.groups, reference.people.groups)
    if len(strangers):
        raise DataError(
            f"group {people.names[strangers[0]]!r}: nobody of it is among the rows to compare with, so it has no baseline; add "
            "rows of it there, or leave such people out"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Points:
    """The distinct points of a pool, and the rows that lie on each: rows[start[p] : start[p] + count[p]]."""

    tree: KDTree
    rows: Integers
    start: Integers
    count: Integers

    @classmethod
    def of(cls, merit: Array, place: Integers) -> _Points:
        """Return the points of a pool.   place: (C,) point of each of the pool's rows in merit (D, F)."""
        points, inverse = np.unique(place, return_inverse=True)
        count = np.bincount(inverse)
        tree = KDTree(taken(merit, points))
        return cls(tree=tree, rows=np.argsort(inverse, kind="stable"), start=np.cumsum(count) - count, count=count)

    def near(self, merit: Array, place: Integers, rank: int = 1) -> _Near:
        """Find the pool's points as near as the `rank`-th nearest one, or nearer, to places (Q,) in merit (D, F)."""
        queries, inverse = np.unique(place, return_inverse=True)
        distance, count, points = np.empty(len(queries)), np.empty(len(queries), dtype=np.int64), []
        for part in blocks(len(queries)):
            merits = merit[queries[part]]
            radius = self.tree.query(merits, k=[rank])[0][:, 0]
            neighbours = self.tree.query_ball_point(merits, np.where(np.isfinite(radius), radius * (1 + SAME) + SAME, 0.0))
            distance[part], count[part] = radius, [len(members) for members in neighbours]
            points.append(np.fromiter(chain.from_iterable(neighbours), dtype=np.int32))
        return _Near(pool=self, points=np.concatenate(points), end=np.cumsum(count), who=inverse, distance=distance)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Near:
    """Points of a pool near distinct places (K,): their numbers, place by place, the end of each place's, and their distances.

    who: (Q,) the place of each person.
    """

    pool: _Points
    points: npt.NDArray[np.int32]
    end: Integers
    who: Integers
    distance: Array

    @property
    def count(self) -> Integers:
        """(K,) number of rows on these points."""
        rows = np.concatenate([[0], np.cumsum(self.pool.count[self.points])])[self.end]
        return np.asarray(np.diff(rows, prepend=0))

    def each(self) -> Iterator[tuple[Integers, Integers]]:
        """Yield for each place the people there, and the rows on its points in increasing order."""
        order, count = np.argsort(self.who, kind="stable"), np.bincount(self.who, minlength=len(self.end))
        start, rows = self.pool.start, self.pool.rows
        for end, begin, last, size in zip(self.end, np.concatenate([[0], self.end]), np.cumsum(count), count, strict=False):
            parts = [rows[start[p] : start[p] + self.pool.count[p]] for p in self.points[begin:end]]
            yield order[last - size : last], np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
