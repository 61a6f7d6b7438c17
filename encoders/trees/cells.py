"""Cells of raw variables, between neighbouring thresholds, where nothing changes; and the splits of an ensemble's nodes as cells.

k cuts divide the range of a number into cells 0 ... k. A cut is the largest raw value that goes left; cell c holds the values above
c cuts. The cells of a one-hot variable are its categories, and a node about one of its columns is a set of them. A set of codes in
one column is stored as a chain of splits with two ends that are shared: such a chain becomes one node about a set of cells.
Raw values are whole numbers, or float64 where a variable is real.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.errors import ModelError
from encoders.trees.ensemble import TreeEnsemble

Masks = npt.NDArray[np.uint64]
MOST_CATEGORIES, WORD = 1 << 12, 64
"""The most cells of a variable whose nodes are about sets of them; and how many a machine word holds: sets are several words."""
MOST_PATHS = 1e9
"""The most paths that are followed where more cells are told apart: trees would fill the memory."""
HELD = 8
"""Ensembles whose cells, stairs and joint trees are cached: successive batches of rows need the same ones."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeCells:
    """cuts: of each variable (V), sorted raw values; none for one-hot variables.

    variable: (K,) of each node, -1 for a leaf.   last: (K,) for nodes about numbers, the last cell that goes left, -1 for none.
    sets: (V,) True for variables whose nodes are about sets.   at: (K,) for these, where the words of the set that goes left begin
    in `goes_left`, the words of all nodes that some path meets, a bit for each cell.
    left, right: (K,) the branches.
    """

    domain: Domain
    cuts: tuple[Array, ...]
    variable: Integers
    last: Integers
    sets: Booleans
    at: Integers
    goes_left: Masks
    left: Integers
    right: Integers

    @classmethod
    def of(cls, ensemble: TreeEnsemble, domain: Domain) -> TreeCells:
        """Return the cells. Raises ModelError for sets of too many categories."""
        owner = np.repeat(np.arange(domain.variables), domain.width)[np.argsort(domain.columns_of(np.arange(domain.variables)))]
        inner = ensemble.column >= 0
        variable = np.where(inner, owner[np.maximum(ensemble.column, 0)], -1)
        last, sets = np.zeros(len(variable), dtype=np.int64), domain.one_hot.copy()
        cuts, masks, left, right = [], dict[int, Masks](), ensemble.left.copy(), ensemble.right.copy()
        for v in range(domain.variables):
            nodes = np.flatnonzero(variable == v)
            if domain.one_hot[v]:
                if len(nodes) and domain.width[v] > MOST_CATEGORIES:
                    raise ModelError(ensemble.source or "model", f"trees ask about a variable of {domain.width[v]} categories; at "
                                                                 f"most {MOST_CATEGORIES} are supported: join the rare ones")
                category, threshold = ensemble.column[nodes] - domain.start[v], ensemble.threshold[nodes]
                width = np.where(threshold < 0, 0, domain.width[v])
                others = ~(_up_to(category, domain.width[v]) ^ _up_to(category - 1, domain.width[v]))
                masks[v] = _up_to(width - 1, domain.width[v]) & np.where((threshold < 1)[:, None], others, ~np.uint64(0))
                cuts.append(np.empty(0))
                continue
            limit, inverse = np.unique(ensemble.threshold[nodes], return_inverse=True)
            largest = _largest(domain, v, limit)
            inside = (largest >= domain.lower[v]) & (largest < domain.upper[v])
            cuts.append(np.unique(largest[inside]))
            cell = np.where(largest < domain.lower[v], -1, np.searchsorted(cuts[-1], largest))
            last[nodes] = np.where(largest >= domain.upper[v], len(cuts[-1]), cell)[inverse]
        if (np.bincount(np.concatenate([left[inner], right[inner]]), minlength=1) > 1).any():   # else there are no chains
            for v in np.flatnonzero(~domain.one_hot).tolist():
                if len(cuts[v]) < MOST_CATEGORIES:
                    masks[v] = _up_to(last[variable == v], len(cuts[v]) + 1)
                    sets[v] = _join_chains(ensemble.upwards, variable == v, masks[v], left, right)
            if (most := max(map(len, cuts), default=0)) >= MOST_CATEGORIES:
                ways = np.ones(len(variable))      # paths below a node
                for group in ensemble.upwards:
                    ways[group] = ways[left[group]] + ways[right[group]]
                if ways[ensemble.root].sum() > MOST_PATHS:
                    raise ModelError(ensemble.source or "model", f"trees ask about sets of a column's {most + 1} codes; at most "
                                                                 f"{MOST_CATEGORIES} are supported: join the rare ones")
        met = np.zeros(len(variable), dtype=bool)
        met[ensemble.root] = True
        for group in ensemble.upwards[::-1]:
            met[left[group[met[group]]]] = met[right[group[met[group]]]] = True
        at, words = np.zeros(len(variable), dtype=np.int64), [np.zeros(1, dtype=np.uint64)]
        for v in np.flatnonzero(sets).tolist():
            kept, size = met[variable == v], sum(map(len, words))
            words.append(masks[v][kept].reshape(-1))
            at[(variable == v) & met] = size + masks[v].shape[1] * np.arange(kept.sum())
        return cls(
            domain=domain, cuts=tuple(cuts), variable=variable, last=last, sets=sets, at=at, goes_left=np.concatenate(words),
            left=left, right=right,
        )

    def count(self, v: int) -> int:
        """Return the number of cells of a variable."""
        return int(self.domain.width[v]) if self.domain.one_hot[v] else len(self.cuts[v]) + 1

    def of_boxes(self, lower: Array, upper: Array, *, above: Booleans | None = None) -> tuple[Integers, Integers]:
        """Return the first and the last cells (B, V) of raw boxes lower, upper (B, V). above: (B, V) lower ends that are left
        out."""
        first, last = np.empty(lower.shape, dtype=np.int64), np.empty(lower.shape, dtype=np.int64)
        for v, cuts in enumerate(self.cuts):
            if self.domain.one_hot[v]:
                first[:, v], last[:, v] = lower[:, v], upper[:, v]
                continue
            first[:, v], last[:, v] = np.searchsorted(cuts, lower[:, v]), np.searchsorted(cuts, upper[:, v])
            if above is not None and above[:, v].any():
                out = above[:, v]
                first[out, v] = np.searchsorted(cuts, lower[out, v], side="right")
        return first, last

    def within(self, cell: Integers, lower: Array, upper: Array) -> Array:
        """Return raw points (B, V) in given cells (B, V) and raw boxes that they meet: the cell's largest value in the box."""
        raw = upper.copy()
        for v in range(len(self.cuts)):
            raw[:, v] = self.values(v, cell[:, v], lower[:, v], upper[:, v])
        return raw

    def values(self, v: int, cell: Integers, lower: Array, upper: Array) -> Array:
        """Return the largest values of one variable in given cells and in intervals that they meet; arrays broadcast."""
        if self.domain.one_hot[v]:
            return cell.astype(float)
        return np.asarray(np.clip(np.minimum(np.append(self.cuts[v], np.inf)[cell], upper), lower, upper))


def _join_chains(groups: list[Integers], about: Booleans, goes_left: Masks, left: Integers, right: Integers) -> bool:
    """Make one node, in place, of a node and its branches on the same variable, wherever they have two ends. Returns True if there
    is any such node.

    groups: nodes, each after all below it.   about: (K,) True for nodes on the variable.   goes_left: (nodes, words) of these.
    left, right: `TreeCells`.
    """
    joined, row = False, np.cumsum(about) - 1
    for group in groups:
        for skipped in ((True, True), (True, False), (False, True)):    # branches that are left out
            node = group[about[group]]
            ends, masks = list[Integers](), list[Masks]()
            own = goes_left[row[node]]
            for branch, cells, skip in zip((left[node], right[node]), (own, ~own), skipped, strict=True):
                through, below = about[branch] & skip, goes_left[row[branch]]
                ends += [np.where(through, left[branch], branch), np.where(through, right[branch], branch)]
                column = through[:, None]
                masks += [np.where(column, cells & below, cells), np.where(column, cells & ~below, np.uint64(0))]
            first, other = ends[0], np.where(ends[1] != ends[0], ends[1], np.where(ends[2] != ends[0], ends[2], ends[3]))
            found = np.all([(end == first) | (end == other) for end in ends], axis=0)
            found &= about[left[node]] & skipped[0] | about[right[node]] & skipped[1]
            node = node[found]
            to_first = [np.where((end == first)[:, None], mask, np.uint64(0))[found] for end, mask in zip(ends, masks, strict=True)]
            goes_left[row[node]], left[node], right[node] = np.bitwise_or.reduce(to_first), first[found], other[found]
            joined |= len(node) > 0
    return joined


def _up_to(last: Integers, cells: int) -> Masks:
    """Return the sets (N, words) of the first cells 0 ... last (N,), of a variable with so many; none for -1."""
    inside = np.clip(last[:, None] + 1 - WORD * np.arange(-(-cells // WORD)), 0, WORD).astype(np.uint64)
    return np.where(inside == WORD, ~np.uint64(0), (np.uint64(1) << inside % np.uint64(WORD)) - np.uint64(1))


@lru_cache(maxsize=HELD)
def cells_of(ensemble: TreeEnsemble, domain: Domain) -> TreeCells:
    """Return the result of `TreeCells.of`, cached."""
    return TreeCells.of(ensemble, domain)


def _largest(domain: Domain, v: int, limit: Array) -> Array:
    """Return the largest raw values (N,) of a number, in its range, whose column is at most `limit` (N,); below it for none."""
    single = domain.take(np.array([v]))

    def column(raw: Array) -> Array:
        return single.encode(raw[:, None])[:, 0]

    ends = np.array([domain.lower[v], domain.upper[v]])
    first, last = (ends.astype(np.int64) if domain.integer[v] else _keys(ends)).tolist()
    low, high = np.full(len(limit), first - 1), np.full(len(limit), last)
    while (low < high).any():
        middle = (low | high) - ((low ^ high) >> 1)     # their mean, rounded up: the difference of keys may exceed 2^63
        raw = middle.astype(np.float64) if domain.integer[v] else _numbers(middle)
        holds = column(raw) <= limit
        low, high = np.where(holds, middle, low), np.where(holds, high, middle - 1)
    largest = np.maximum(low, first)
    raw = largest.astype(np.float64) if domain.integer[v] else _numbers(largest)
    return np.where(low < first, -np.inf, raw)


def _keys(numbers: Array) -> Integers:
    """Return the rank of each float64 number among all of them; both zeros have the same rank."""
    bits = (numbers + 0.0).view(np.int64)
    return np.asarray(np.where(bits >= 0, bits, -(bits & np.int64(0x7FFFFFFFFFFFFFFF))))


def _numbers(keys: Integers) -> Array:
    return np.where(keys >= 0, keys.view(np.float64), -np.abs(keys).view(np.float64))
