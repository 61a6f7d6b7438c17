"""Reachability in the feasibility graph: weak and strong components, and the nodes that each node can reach.

A one-way coordinate never returns to a value it left, so a strong component lies within rows that agree in all one-way coordinates.
Only edges among such rows are searched for cycles, and sorting by those coordinates is a topological order of the rest.
Reference: FGCE, section II (feasible set A_x) and III (weak components split a group into subgroups).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from encoders.arrays import Booleans, Integers
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph, chunks
from verifair.systems.fgce.space import Moves

WORD = 64
EDGES = 1 << 20
"""Joined at once."""


def weak_components(graph: FeasibilityGraph) -> Integers:
    """Return (N,) number of the weakly connected component of each node; rows are joined in chunks, so that memory stays small."""
    nodes, label = len(graph), np.arange(len(graph))
    borders = np.unique(np.append(np.searchsorted(graph.indptr, np.arange(0, graph.edges, EDGES)), nodes))
    for first, last in itertools.pairwise(borders):
        begin, end = graph.indptr[first], graph.indptr[last]
        data, starts = np.ones(end - begin, dtype=np.int8), np.clip(graph.indptr, begin, end) - begin
        part = sp.csr_matrix((data, graph.indices[begin:end], starts), shape=(nodes, nodes))
        label_of = np.asarray(connected_components(part, connection="weak")[1], dtype=np.int64)
        label = _components(label, nodes + label_of, 2 * nodes, "weak")[label]  # each node joins its old and its new label
    return np.unique(label, return_inverse=True)[1]


def strong_components(graph: FeasibilityGraph) -> Integers:
    """Return (N,) number of the strongly connected component of each node."""
    level = _levels(graph)
    edges = [np.empty((2, 0), dtype=np.int64)]
    for part in chunks(graph.edges, 1 << 24):
        first, second = graph.sources[part], graph.indices[part]
        same = level[first] == level[second]
        edges.append(np.stack([first[same], second[same]]).astype(np.int64))
    ends = np.concatenate(edges, axis=1)
    return _components(ends[0], ends[1], len(graph), "strong")


@dataclass(frozen=True, kw_only=True)
class GraphStatistics:
    """A graph in numbers, as in the paper's tables I and VII. density: edges over ordered pairs of nodes, in percent."""

    nodes: int
    edges: int
    density: float
    strong: int
    weak: int
    alone: int

    @classmethod
    def of(cls, graph: FeasibilityGraph) -> GraphStatistics:
        """Return the statistics of a graph; for a group's own graph, build it over the group's rows."""
        pairs = len(graph) * (len(graph) - 1)
        return cls(
            nodes=len(graph), edges=graph.edges, density=100 * graph.edges / pairs if pairs else 0.0,
            strong=len(np.unique(strong_components(graph))), weak=len(np.unique(weak_components(graph))),
            alone=int(graph.alone.sum()),
        )


def _components(first: Integers, second: Integers, nodes: int, connection: str) -> Integers:
    matrix = sp.csr_matrix((np.ones(len(first), dtype=np.int8), (first, second)), shape=(nodes, nodes))
    return np.asarray(connected_components(matrix, connection=connection)[1], dtype=np.int64)


def _ranks(graph: FeasibilityGraph) -> Integers:
    """Return (N, m) the one-way coordinates as whole numbers that no move lowers."""
    direction = Moves.of(graph.space).direction
    ranks = [np.unique(graph.points[:, c] * direction[c], return_inverse=True)[1] for c in np.flatnonzero(direction)]
    return np.column_stack([np.zeros(len(graph), dtype=np.int64), *ranks])


def _levels(graph: FeasibilityGraph) -> Integers:
    """Return (N,) the same number for rows that agree in all one-way coordinates."""
    return np.asarray(np.unique(_ranks(graph), axis=0, return_inverse=True)[1]).ravel()


@dataclass(frozen=True, kw_only=True, eq=False)
class Reachability:
    """strong, weak: (N,) components.   member: (S,) a node of each strong component.   bits: (S, words) strong components reached.

    A strong component's bit is its place among those of its weak component (`place`), so that rows stay short.
    """

    strong: Integers
    weak: Integers
    member: Integers
    place: Integers
    bits: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, graph: FeasibilityGraph) -> Reachability:
        """Return reachability between all strong components: reached sets are joined, from the last component to the first.

        A successor that is already reached adds nothing, so about as many joins are made as the transitive reduction has edges.
        """
        weak, strong = weak_components(graph), strong_components(graph)
        order = _topological(graph, strong)  # nodes, by strong component
        first = np.flatnonzero(np.r_[True, np.diff(strong[order]) != 0])
        ends = np.r_[first[1:], len(order)]
        rank = np.empty(len(first), dtype=np.int64)
        rank[strong[order[first]]] = np.arange(len(first))  # of a strong component in the order
        weak_of = weak[order[first]]  # weak component, by rank
        place = np.empty(len(first), dtype=np.int64)
        for w in np.split(np.argsort(weak_of, kind="stable"), np.flatnonzero(np.diff(np.sort(weak_of))) + 1):
            place[w] = np.arange(len(w))
        words = (np.bincount(weak_of)[weak_of] + WORD - 1) // WORD
        bits: list[np.ndarray] = [np.empty(0, dtype=np.uint64)] * len(first)
        for r in range(len(first) - 1, -1, -1):
            reached = np.zeros(words[r], dtype=np.uint64)
            reached[place[r] // WORD] |= np.uint64(1) << np.uint64(place[r] % WORD)
            members = order[first[r] : ends[r]]
            targets = [graph.indices[graph.indptr[i] : graph.indptr[i + 1]] for i in members]
            pending = np.unique(rank[strong[np.concatenate(targets)]])
            pending = pending[pending > r]
            while len(pending):
                reached |= bits[pending[0]]
                pending = pending[~_has(reached, place[pending])]
            bits[r] = reached
        member = order[first]
        return cls(strong=rank[strong], weak=weak, member=member, place=place, bits=tuple(bits))

    def reaches(self, sources: Integers, targets: Integers) -> Booleans:
        """Return (n, m) True where a target (m,) can be reached from a source (n,); a node reaches itself."""
        result = np.zeros((len(sources), len(targets)), dtype=bool)
        rows, inverse = np.unique(self.strong[sources], return_inverse=True)
        columns, column_inverse = np.unique(self.strong[targets], return_inverse=True)
        table = np.zeros((len(rows), len(columns)), dtype=bool)
        for n, row in enumerate(rows):
            same = self.weak[self.member[columns]] == self.weak[self.member[row]]
            table[n, same] = _has(self.bits[row], self.place[columns[same]])
        for n in range(0, len(sources), 1024):
            result[n : n + 1024] = table[inverse[n : n + 1024]][:, column_inverse]
        return result

    @cached_property
    def strong_count(self) -> int:
        return len(self.member)

    @cached_property
    def weak_count(self) -> int:
        return int(self.weak.max()) + 1


def _has(bits: np.ndarray, place: Integers) -> Booleans:
    return np.asarray((bits[place // WORD] >> (place % WORD).astype(np.uint64)) & np.uint64(1), dtype=bool)


def _topological(graph: FeasibilityGraph, strong: Integers) -> Integers:
    """Return nodes (N,) ordered so that strong components stand together and no edge leads to an earlier one."""
    height = _ranks(graph).sum(axis=1)  # rises along every edge between levels
    level = _levels(graph)
    later = np.zeros(int(strong.max()) + 1, dtype=np.int64)  # order within a level, if there are moves between its components
    within = nx.DiGraph()
    for part in chunks(graph.edges, 1 << 24):
        first, second = graph.sources[part], graph.indices[part]
        between = (level[first] == level[second]) & (strong[first] != strong[second])
        within.add_edges_from(zip(strong[first[between]].tolist(), strong[second[between]].tolist(), strict=True))
    for n, component in enumerate(nx.topological_sort(within), start=1):
        later[component] = n
    return np.lexsort((strong, later[strong], height))
