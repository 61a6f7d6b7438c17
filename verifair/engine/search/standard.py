"""Bounds that the checker can repeat: one row's bound by the standard relaxation (`encoders.bounds.regions`), rounded outwards.

Searches close boxes of piecewise-linear networks by it alone; other bounds only guide them. The hidden layers' bounds are first
those of interval arithmetic, and if these do not suffice, those of backward substitution: the checker tries both at a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.regions import Frame, RegionBounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.curves.layer import SmoothLayer
from encoders.domain import Regions
from verifair.engine.search.boxes import Nodes, rows_at


class StandardRelaxation:
    """The bounds of one twin. tried, proved: rows bounded by interval arithmetic so far, and those for which it sufficed."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.neurons = 2 * sum(twin.problem.network.hidden)
        self.tried = self.proved = 0
        # Forward forms of a second layer have the same lines as backward substitution, so either can replace the other.
        self.by_forms = twin.depth == 2 and not isinstance(twin.hidden[0], SmoothLayer)

    def lower(
        self, nodes: Nodes, intervals: list[LayerBounds], box: Integers, rows: Array, constants: Array, required: Array
    ) -> Array:
        """Return lower bounds (N,) of rows (N, 2) and constants (N,) over the boxes `box` (N,) of some nodes with these interval
        bounds; bounds above `required` (N,) need not be better."""
        bounds, left = np.full(len(box), -np.inf), np.arange(len(box))
        if len(box) and (self.twin.depth < 2 or 2 * self.proved >= self.tried):
            bounds = self.by_intervals(nodes, intervals, box, rows, constants)
            left = np.flatnonzero(~(bounds > required))
            self.tried, self.proved = self.tried + len(box), self.proved + len(box) - len(left)
        if len(left) and self.twin.depth > 1:
            bounds[left] = np.maximum(bounds[left], self.by_intervals(nodes, None, box[left], rows[left], constants[left]))
        return bounds

    def by_intervals(
        self, nodes: Nodes, intervals: list[LayerBounds] | None, box: Integers, rows: Array, constants: Array
    ) -> Array:
        """Return the same from these bounds of the hidden layers alone; if None, from those of backward substitution."""
        boxes, inverse = np.unique(box, return_inverse=True)
        layers = None if intervals is None else [layer.take(boxes) for layer in intervals]
        return self.regions(nodes.take(boxes), layers).rows(inverse, rows, constants)

    def regions(
        self, nodes: Nodes, intervals: list[LayerBounds] | None = None, *, differences: bool = True,
        frames: Sequence[Frame] = (), refine: bool = True, copy: Integers | None = None,
    ) -> RegionBounds:
        """Return the bounds of some boxes without fixed signs. copy: (N,) bounds only this copy, 0 for x and 1 for x'."""
        lower, upper = (rows_at(self.twin, nodes.question, end) for end in (nodes.lower, nodes.upper))
        free = np.zeros((len(nodes), self.neurons), dtype=bool)
        boxes = Regions(lower=lower, upper=upper, active=free, inactive=free)
        twin, question = self.twin, nodes.question
        if copy is not None:
            twin, question = twin.alone, question + copy * len(twin.problem.batch)
        return RegionBounds(twin, boxes, question, intervals, differences=differences, frames=frames, refine=refine)


FORWARD, COPIES, PAIRS, UNKNOWN = 0, 1, 2, -1
"""Methods to bound a box: forward forms (`difference.linear_goals`); backward substitution for the hidden layers of each copy (of
each copy alone if rows of one copy suffice); and backward substitution for their differences as well."""
MULTIPLICATIONS = 1 << 31
"""Multiplications between two looks at the clock: a fifth of a second."""
SECONDS = 2.0**-33
"""Seconds of a multiplication, until the first ones are measured."""
DEEP = 3
"""With so many hidden layers or more, backward substitution proves more than forward forms."""
EXPONENT = 2.4
"""A search takes about (looseness of bounds)^EXPONENT boxes (`branch_and_bound._too_loose`): halving a box leaves about 3/4 of the
looseness, and 2.4 = log 2 / log (4 / 3)."""


class Progress:
    """The method that bounds the boxes of each question: way (Q,), UNKNOWN until it is chosen. The choice is the method with the
    least expected work, judged on the question's whole box by the looseness of its bound and by its multiplications.

    forward: multiplications of a box by forward forms.   most: at most those of a box by substitution.   boxes, work, spent: boxes
    bounded by substitution so far (and one of `most`), their multiplications, and their seconds.
    """

    def __init__(self, twin: Twin, questions: int) -> None:
        deep = twin.problem.network.piecewise_linear and twin.depth >= DEEP
        self.way = np.full(questions, UNKNOWN if deep else FORWARD)
        widths, inputs = [len(layer.bias) for layer in twin.hidden], len(twin.moving)
        self.forward = 4 * (inputs + 1) * sum(m * n for m, n in pairwise(widths))
        weights_below = np.cumsum([inputs * widths[0], *(m * n for m, n in pairwise(widths))]) if widths else np.zeros(1)
        self.most = 6 * sum(width * int(size) for width, size in zip(widths[1:], weights_below, strict=False))
        self.boxes, self.work, self.spent = 1, self.most, SECONDS * self.most

    @property
    def at_once(self) -> int:
        """The number of boxes bounded between two looks at the clock."""
        return max(1, self.boxes * MULTIPLICATIONS // max(1, self.work))

    def note(self, boxes: int, work: int, seconds: float) -> None:
        """Count the multiplications that boxes took, mostly a tenth of `most`, and the seconds.

        Sums are kept, not the last measurement: for a batch of two boxes the overhead takes longer than its multiplications.
        """
        self.boxes, self.work, self.spent = self.boxes + boxes, self.work + work, self.spent + seconds

    def seconds(self, boxes: int) -> float:
        """Return the expected seconds to bound boxes by backward substitution, with lines of their own."""
        return boxes * self.spent / self.boxes

    def choose(self, question: Integers, times: Array, work: Array) -> None:
        """Choose the method for questions (N,) with bounds that are `times` (N, 3) too loose, and with work (3,) per box."""
        self.way[question] = (work * times**EXPONENT).argmin(axis=1)


LEVELS, SHRINK = 2, 0.5
"""Boxes up to LEVELS cuts below a frame use its lines, as long as each cut leaves at most SHRINK of the bound's distance to 0.
Others become frames themselves, as lines of their own would be much better."""
HELD = 1 << 24
"""Coefficients of lines that are kept; the boxes below the oldest frames become frames themselves."""


class FrameBounds:
    """Boxes bounded by backward substitution in all hidden layers, whose lines then bound the boxes cut from them."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[RegionBounds, tuple[int, int]]] = {}  # by node, the oldest first
        self._size = 0

    def add(self, nodes: Integers, bounds: RegionBounds, place: Integers) -> None:
        """Keep the bounds of nodes (N,). place: (N, 2) the position of each copy in these, -1 if it has none."""
        self._size += bounds.coefficients
        for node, first, second in zip(nodes.tolist(), *place.T.tolist(), strict=True):
            self._held[node] = bounds, (first, second)
        while self._size > HELD:
            oldest = next(iter(self._held.values()))[0]
            if oldest is bounds:
                return
            self._size -= oldest.coefficients
            self._held = {node: entry for node, entry in self._held.items() if entry[0] is not oldest}

    def of(
        self, frames: Integers, below: Integers, needed: Booleans, sizes: tuple[int, int]
    ) -> list[tuple[Integers, bool, list[Frame]]]:
        """Return N nodes in parts. frames, below: (N,) the frame of each node, and how many cuts it lies below that. A part is: the
        nodes (M,), at most sizes[1] if they are to become frames themselves, else sizes[0]; True if they are; and the frames that
        hold them, empty if these are not kept. needed: (N, 2) copies that are bounded, in the order of `copies_of`."""
        groups: dict[tuple[bool, bool], list[tuple[int, RegionBounds | None, tuple[int, int]]]] = {}
        order = np.argsort(frames, kind="stable")
        lists = order.tolist(), frames[order].tolist(), (below[order] > LEVELS).tolist(), needed[order].tolist()
        for k, frame, far, need in zip(*lists, strict=True):
            bounds, position = self._held.get(frame, (None, (-1, -1)))
            if any(is_needed and place < 0 for is_needed, place in zip(need, position, strict=True)):
                bounds = None
            groups.setdefault((bounds is not None, bounds is None or far), []).append((k, bounds, position))
        parts = []
        for (framed, refine), members in groups.items():
            for start in range(0, len(members), sizes[refine]):
                part = members[start : start + sizes[refine]]
                nodes = np.array([k for k, _, _ in part])
                outer: dict[int, tuple[Any, list[int], list[int]]] = {}
                for row, (k, copy) in enumerate(np.transpose(copies_of(needed[nodes])).tolist() if framed else []):
                    _, bounds, position = part[k]
                    frame = outer.setdefault(id(bounds), (bounds, [], []))
                    frame[1].append(row)
                    frame[2].append(position[copy])
                parts.append((nodes, refine, [(bounds, np.array(rows), np.array(index)) for bounds, rows, index in outer.values()]))
        return parts


def copies_of(needed: Booleans) -> tuple[Integers, Integers]:
    """Return the box (M,) and the copy (M,) of every True entry of `needed` (N, 2), those of x first."""
    copy, box = np.nonzero(needed.T)
    return box, copy
