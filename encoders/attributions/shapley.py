r"""Exact interventional Shapley values of a tree ensemble: the contribution of each player to f(x) against background rows.

A coalition S of players takes their columns from x and those of all others from a background row z; its worth is the mean of f over
the background. A player owns some columns: one of a number, all of a one-hot block, so that no row is half of two categories.

    phi_i = sum over S without i of |S|! (P - |S| - 1)! / P! (v(S + i) - v(S)),        sum_i phi_i = f(x) - mean of f(z)

f is a sum over leaves, and so is phi. On the path to a leaf with value w let C be the players with a split that z fails, and F
those with a split that x fails. A coalition can reach the leaf only if C and F are disjoint; then exactly those that contain all of
C and none of F do. With u = |C| and v = |F| the leaf contributes, by the value of such an AND of u + v players,

    + w (u - 1)! v! / (u + v)!  for every i of C,        - w u! (v - 1)! / (u + v)!  for every i of F.

So only the counts of the background's sets C matter, leaf by leaf, and the set F of x: one walk through each tree for all rows.
Sound? a float64 evaluation, not a bound.  Complete? exact up to rounding: no sampling, and no assumption about how features
depend on each other (path-dependent variants take the training rows of each node instead of a background).
Reference: interventional Tree SHAP of Lundberg et al. 2020 ("From local explanations to global understanding with explainable AI
for trees", Nature Machine Intelligence 2, supplement); values of unanimity games: Shapley 1953; counting sets is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.trees.ensemble import TreeEnsemble

Masks = npt.NDArray[np.unsignedinteger]
PAIRS = 1 << 20
"""Pairs of sets F and C compared at once."""
COUNTED = 12
"""Up to so many players on a path, sets are counted in a table of all sets."""
MOST = 64
"""The most players on one path: a set of them is one machine word."""


def shapley_values(model: TreeEnsemble, margin: Array, owner: Integers, x: Array, background: Array) -> Array:
    """Return phi (B, P) of margin . logits at x (B, n) against background (R, n), R > 0.

    margin: (m,).   owner: (n,) the player 0 ... P - 1 of each column.   Raises ValueError for shapes that do not fit, and for more
    than MOST players on the path to one leaf.
    """
    if x.ndim != 2 or x.shape[1:] != (model.inputs,) or background.shape[1:] != x.shape[1:] or not len(background):
        raise ValueError(f"x {x.shape} and background {background.shape} do not fit {model.inputs} columns")
    if owner.shape != (model.inputs,) or margin.shape != (model.outputs,):
        raise ValueError(f"owner {owner.shape} and margin {margin.shape} do not fit a model of {model.inputs} columns")
    players = int(owner.max(initial=-1)) + 1
    phi = np.zeros((players, len(x)))
    if len(x):
        walk = _LeafSums(model, model.value @ margin, owner, np.concatenate([x, background]).T.copy(), phi)
        for root in model.root.tolist():
            walk.tree(root)
    return phi.T.copy()


class _LeafSums:
    """A walk of all rows through the trees: columns (n, B + R), those of x first; phi (P, B) is summed up."""

    def __init__(self, model: TreeEnsemble, value: Array, owner: Integers, columns: Array, phi: Array) -> None:
        self.value, self.columns, self.phi, self.rows = value, columns, phi, phi.shape[1]
        self.column, self.threshold, self.missing = model.column.tolist(), model.threshold.tolist(), model.missing_left.tolist()
        self.left, self.right, self.owner = model.left.tolist(), model.right.tolist(), owner.tolist()
        self.background = columns.shape[1] - self.rows
        depth = min(model.depth, len(phi))
        if depth > MOST:
            raise ValueError(f"up to {depth} features decide on the way to one leaf; supported are {MOST}")
        self.kind = np.min_scalar_type((1 << depth) - 1)
        self.gain, self.loss = _weights(depth)

    def tree(self, root: int) -> None:
        """Add the contributions of the leaves of one tree.

        Splits on one player's columns that follow each other are one step: a set of categories is a chain of splits, whose two
        ends are shared, and to follow each way through every chain would be exponential.
        """
        stack = [(root, np.zeros(self.columns.shape[1], dtype=self.kind), tuple[int, ...]())]
        while stack:
            node, failed, players = stack.pop()
            column = self.column[node]
            if column < 0:
                if players and self.value[node]:
                    self._leaf(failed, players, self.value[node])
                continue
            player = self.owner[column]
            if player not in players:
                players = (*players, player)
            bit = self.kind.type(1 << players.index(player))
            for end, passes in self._ends(node, player):
                fails = failed | (~passes * bit)
                if not (fails & bit).all():             # else C and F both have the player
                    stack.append((end, fails, players))

    def _ends(self, start: int, player: int) -> Iterator[tuple[int, Booleans]]:
        """Yield the nodes where the player's splits from a node on end, and which rows get there by this player's columns."""
        order, seen, stack = [], set[int](), [(start, False)]
        while stack:                                    # depth first: a node comes after all that it leads to
            node, left = stack.pop()
            column = self.column[node]
            if left:
                order.append(node)
            elif column >= 0 and self.owner[column] == player and node not in seen:
                seen.add(node)
                stack += [(node, True), (self.right[node], False), (self.left[node], False)]
        passes = {start: np.ones(self.columns.shape[1], dtype=np.bool_)}
        for node in reversed(order):
            numbers, present = self.columns[self.column[node]], passes.pop(node)
            goes_left = numbers <= self.threshold[node]
            if self.missing[node]:
                goes_left |= np.isnan(numbers)
            for end, mask in ((self.left[node], present & goes_left), (self.right[node], present & ~goes_left)):
                passes[end] = passes[end] | mask if end in passes else mask
        yield from passes.items()

    def _leaf(self, failed: Masks, players: tuple[int, ...], value: float) -> None:
        sets, place = _distinct(failed[: self.rows], len(players))
        background_sets, _, count = _counted(failed[self.rows :], len(players))
        contribution = self._worth(sets, background_sets, count * (value / self.background), len(players))
        for player, values in zip(players, contribution, strict=True):
            if values.any():
                self.phi[player] += values[place]

    def _worth(self, sets: Masks, others: Masks, count: Array, players: int) -> Array:
        """Return (D, K) the contribution of a leaf to each of its players.   sets: (K,) sets F.   others, count: (L,) sets C,
        counted."""
        contribution = np.zeros((players, len(sets)))
        members, missing = _bits(others, players), _bits(sets, players)
        u, v = members.sum(axis=0), missing.sum(axis=0)
        step = max(1, PAIRS // len(others))
        for start in range(0, len(sets), step):
            part = slice(start, start + step)
            weight = np.where(sets[part, None] & others == 0, count, 0.0)
            contribution[:, part] = members @ (weight * self.gain[u, v[part, None]]).T
            contribution[:, part] -= missing[:, part] * (weight * self.loss[u, v[part, None]]).sum(axis=1)
        return contribution


def _weights(most: int) -> tuple[Array, Array]:
    """Return (u - 1)! v! / (u + v)! and u! (v - 1)! / (u + v)!, at [u, v] each up to `most`; 0 instead of the factorial of -1."""
    gain, loss = np.zeros((most + 1, most + 1)), np.zeros((most + 1, most + 1))
    for u in range(most + 1):
        for v in range(most + 1 - u):
            gain[u, v] = factorial(u - 1) * factorial(v) / factorial(u + v) if u else 0.0
            loss[u, v] = factorial(u) * factorial(v - 1) / factorial(u + v) if v else 0.0
    return gain, loss


def _bits(sets: Masks, players: int) -> Integers:
    """Return (D, K) 1 for players that are in each set."""
    one = sets.dtype.type(1)
    return np.array([(sets >> sets.dtype.type(k)) & one for k in range(players)]).reshape(players, -1).astype(np.int64)


def _distinct(sets: Masks, players: int) -> tuple[Masks, Integers]:
    """Return the distinct sets (K,), and the position of each row's set among them."""
    distinct, place, _ = _counted(sets, players)
    return distinct, place


def _counted(sets: Masks, players: int) -> tuple[Masks, Integers, Integers]:
    """Return the same, and the number of rows with each set."""
    if players > COUNTED:
        unique, inverse, number = np.unique(sets, return_inverse=True, return_counts=True)
        return unique, inverse, number
    count = np.bincount(sets, minlength=1 << players)
    distinct = np.flatnonzero(count)
    place = np.zeros(len(count), dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct.astype(sets.dtype), place[sets], count[distinct]
