"""Batches of boxes of the moving variables: corners that are likely witnesses, and places to cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Batched
from encoders.problem import TwinCopies


@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes(Batched):
    """N boxes: numbers in the proof trees, questions, raw boxes (N, v) of the moving variables, and the goals open there (N, G)."""

    ids: Integers
    question: Integers
    lower: Array
    upper: Array
    open: Booleans


N = TypeVar("N", bound=Nodes)


def roots(twin: TwinCopies) -> Nodes:
    """Return the whole boxes of all questions, every goal open."""
    batch = twin.problem.batch
    count = len(batch)
    return Nodes(
        ids=np.arange(count), question=np.arange(count), lower=batch.lower[:, twin.variables], upper=batch.upper[:, twin.variables],
        open=np.ones((count, len(twin.problem.goals)), dtype=bool),
    )


def rows_at(twin: TwinCopies, question: Integers, point: Array) -> Array:
    """Return full raw rows (N, V) for points (N, v) of the moving variables."""
    raw = twin.problem.batch.lower[question].copy()
    raw[:, twin.variables] = point
    return np.asarray(raw)


def anywhere(twin: TwinCopies, nodes: Nodes, rng: np.random.Generator) -> Array:
    """Return a uniformly random raw point (N, v) of each box."""
    return uniform(rng, nodes.lower, nodes.upper, twin.local.integer)


def uniform(rng: np.random.Generator, lower: Array, upper: Array, whole: Booleans) -> Array:
    """Return a uniformly random raw point of each box lower, upper (N, v).   whole: (v,) True for variables with whole values."""
    share = rng.random(lower.shape)
    points = lower + np.where(whole, np.floor(share * (upper - lower + 1)), share * (upper - lower))
    return np.asarray(np.clip(points, lower, upper))


def legal_pairs(twin: TwinCopies, question: Integers, point: Array) -> Booleans:
    """Return (N,) True where both copies x and x' at points (N, v) of the moving variables are legal rows."""
    if twin.problem.domain.forbidden is None:
        return np.ones(len(question), dtype=bool)
    raw = rows_at(twin, question, point)
    legal = twin.problem.domain.legal
    return np.asarray(legal(raw) & legal(twin.problem.batch.take(question).second(raw)))


def corner(twin: TwinCopies, nodes: Nodes, slope: Array) -> Array:
    """Return the raw corner (N, v) of each box at which a linear bound with slopes (N, d) in the network columns is least."""
    local = twin.local
    point = np.where(slope[:, local.start] > 0, nodes.lower, nodes.upper)
    for v in np.flatnonzero(local.one_hot):  # the allowed category with the least slope
        block = slope[:, local.start[v] : local.start[v] + local.width[v]]
        index = np.arange(local.width[v])
        allowed = (index >= nodes.lower[:, v, None]) & (index <= nodes.upper[:, v, None])
        point[:, v] = np.where(allowed, block, np.inf).argmin(axis=1)
    return np.asarray(point)


def widest(twin: TwinCopies, nodes: Nodes, score: Array) -> Integers:
    """Return (N,) positions of the variables to halve the boxes along: those with the largest score (N, d columns)."""
    local = twin.local
    if not len(local.start):  # no variable moves: each box is one point
        return np.zeros(len(nodes), dtype=np.int64)
    by_variable = np.add.reduceat(score, local.start, axis=1)
    relative = (nodes.upper - nodes.lower) / np.maximum(local.upper - local.lower, 1e-300)
    by_variable = np.where(local.divisible(nodes.lower, nodes.upper), np.maximum(by_variable, 0.0) + 1e-12 * relative, -np.inf)
    return np.asarray(by_variable.argmax(axis=1))


def divide(twin: TwinCopies, nodes: N, variable: Integers, cut: Array, ids: Integers) -> N:
    """Return all left halves of boxes cut along a variable (N,), numbered `ids`, then all right ones, `ids` + 1."""
    lower, upper = twin.local.halves(nodes.lower, nodes.upper, variable, cut)
    return replace(nodes.join([nodes, nodes]), ids=np.concatenate([ids, ids + 1]), lower=lower, upper=upper)


def cuts(twin: TwinCopies, nodes: Nodes, variable: Integers) -> tuple[Integers, Array]:
    """Return (N,) positions of variables and cuts: along the border of a forbidden box, else in the middle of the given
    variables."""
    along, edge = borders(twin, nodes)
    middle = twin.local.middle(nodes.lower, nodes.upper)[np.arange(len(nodes)), variable]
    return np.where(along >= 0, along, variable), np.where(along >= 0, edge, middle)


def impossible(twin: TwinCopies, nodes: Nodes) -> Booleans:
    """Return (N,) True for boxes that hold no legal row, or no legal partner: nothing is claimed there, so they need no bound."""
    domain = twin.problem.domain
    if domain.forbidden is None:
        return np.zeros(len(nodes), dtype=bool)
    lower, upper = rows_at(twin, nodes.question, nodes.lower), rows_at(twin, nodes.question, nodes.upper)
    batch = twin.problem.batch.take(nodes.question)
    return np.asarray(domain.impossible(lower, upper) | domain.impossible(batch.second(lower), batch.second(upper)))


def borders(twin: TwinCopies, nodes: Nodes) -> tuple[Integers, Array]:
    """Return (N,) positions of variables and cuts along the border of a forbidden box, -1 where there is nothing to gain.

    If a box sticks out of a forbidden box along only one variable (or two), the forbidden part can be cut off: it holds no legal
    row, so it needs no proof. Forbidden boxes of both copies are considered.
    """
    forbidden, domain, batch = twin.problem.domain.forbidden, twin.problem.domain, twin.problem.batch.take(nodes.question)
    variable, cut = np.full(len(nodes), -1), np.zeros(len(nodes))
    if forbidden is None:
        return variable, cut
    position = np.full(domain.variables, -1)
    position[twin.variables] = np.arange(len(twin.variables))
    lower, upper = rows_at(twin, nodes.question, nodes.lower), rows_at(twin, nodes.question, nodes.upper)
    copies = ((lower, upper), (batch.second(lower), batch.second(upper)))
    for axes in (1, 2):
        for low, high in copies:
            for f_low, f_high in zip(forbidden.lower, forbidden.upper, strict=True):
                outside = ~((f_low <= low) & (high <= f_high))
                candidates = ((low <= f_high) & (high >= f_low)).all(axis=1) & (outside.sum(axis=1) == axes) & (variable < 0)
                k = np.flatnonzero(candidates)
                v = outside[k].argmax(axis=1)
                cell = (k, v)
                whole = domain.integer[v]
                below = low[cell] < f_low[v]
                before, after = np.where(whole, np.ceil(f_low[v]) - 1, f_low[v]), np.where(whole, np.floor(f_high[v]), f_high[v])
                edge = np.where(below, before, after) - (low[cell] - lower[cell])  # as values of the first copy
                inside = np.where(whole, (edge >= lower[cell]) & (edge < upper[cell]), (edge > lower[cell]) & (edge < upper[cell]))
                inside &= position[v] >= 0
                variable[k[inside]], cut[k[inside]] = position[v[inside]], edge[inside]
    return variable, cut
