"""The leaf rule's bound for what tree ensembles decide among several classes.

With  g = max of f in S - max of f outside,  let b be a class that scores most at x on the side that  p g(x)  takes away, and b'
one at x' on the side that  q g(x')  takes away. Then  |p| (f_a - f_b)(x) + |q| (f_a' - f_b')(x')  is at most  p g(x) + q g(x')
for all a and a' of the other sides, and a sum over the trees. So a leaf is proved where, for every b and b', some row of its goal
and some a and a' have a bound that suffices: all of them where a row is about one copy, a = b' and a' = b where it is about both.
"""

from __future__ import annotations

import numpy as np

from encoders.domain import Domain
from encoders.errors import ModelError
from encoders.network import Array, Booleans, Integers, Model
from encoders.trees.compared import ComparedTrees
from verifair.checker.kernel.trees import TreeBounds


class ComparedBounds(TreeBounds):
    """The bounds of one ensemble's decisions. Raises ModelError where log-odds or shares of votes are asked about."""

    def __init__(self, network: Model, domain: Domain) -> None:
        if not isinstance(network, ComparedTrees) or network.decision.odds:
            raise ModelError(network.source or "model", "is a tree ensemble of several classes: nothing proves its probabilities")
        super().__init__(network.undecided, domain)
        classes = np.arange(network.undecided.outputs)
        self.inside = np.array([np.isin(classes, group) for group in network.decision.groups])

    def decided(
        self, first: tuple[Array, Array], second: tuple[Array, Array], apart: Booleans, box: Integers, p: Array, q: Array,
        strict: Booleans, target: Array,
    ) -> Booleans:
        """Return (B,) over which boxes some row of theirs, p, q (N, groups) of one group, is met with its target (N,)."""
        m = self.ensemble.outputs
        unit, count = np.eye(m), len(first[0])
        needed, met = np.ones((2, count, m), dtype=bool), np.zeros((count, m, m), dtype=bool)
        signs = np.zeros((2, 2, count), dtype=bool)     # which copies have rows below 0, and above
        every, which = np.unique(np.hstack([p, q]), axis=0, return_inverse=True)
        asked: list[tuple[Integers, Array, Array, Booleans]] = []
        for number, row in enumerate(every):
            mine = np.flatnonzero(which.reshape(-1) == number)
            k = int(np.flatnonzero(row)[0]) % len(self.inside)
            one, two = (float(side[k]) for side in np.split(row, 2))
            sides = [self.inside[k] if weight < 0 else ~self.inside[k] for weight in (one, two)]
            for copy, (weight, side) in enumerate(zip((one, two), sides, strict=True)):
                if weight:
                    needed[copy][box[mine]] &= side
                    signs[copy, int(weight > 0), box[mine]] = True
            for b, b2 in np.argwhere(np.outer(sides[0] if one else unit[0], sides[1] if two else unit[0])).tolist():
                if one and two:
                    choices = [(abs(one) * (unit[b2] - unit[b]), abs(two) * (unit[b] - unit[b2]))] if one * two < 0 else []
                else:
                    above = np.flatnonzero(~sides[0 if one else 1]).tolist()
                    choices = [(abs(one) * (unit[a] - unit[b]), abs(two) * (unit[a] - unit[b2])) for a in above]
                pairs = np.outer(unit[b] if one else np.ones(m), unit[b2] if two else np.ones(m)) > 0
                asked += [(mine, at, at2, pairs) for at, at2 in choices]
        if asked:
            item = np.concatenate([mine for mine, _, _, _ in asked])
            weights = [np.concatenate([np.tile(one[side], (len(one[0]), 1)) for one in asked]) for side in (1, 2)]
            least = self.least(first, second, apart, box[item], *weights)
            enough = np.where(strict[item], least > 0, least >= 0) & (least >= target[item])
            ends = np.cumsum([len(one[0]) for one in asked])[:-1]
            for (mine, _, _, pairs), good in zip(asked, np.split(enough, ends), strict=True):
                met[box[mine[good]]] |= pairs
        met |= ~(needed[0][:, :, None] & needed[1][:, None, :])
        return np.asarray(met.all(axis=(1, 2)) & ~signs.all(axis=1).any(axis=0))
