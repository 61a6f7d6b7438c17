"""The leaf rule: does a tree prove its task? Nothing is searched: every leaf is bounded once, as its multipliers say.

A tree has to cover its task's box: every cut lies within the box it cuts, both signs of a neuron have a subtree. A leaf is proved
    where no row of its box is legal, or no partner of one is;
    where its box is one network input, or all its rows take the same path through every tree, so that margins are constant on it,
        or its real features have two neighbouring float64 each: points decide (`kernel.points`);
    where no point of the box has its signs: some interval is empty;
    where both margins are the same number, and that is enough for a row;
    else by a bound (`kernel.bounds`), above 0, or 0 where that is enough:
        without multipliers of each row of its goal by itself, which may have up to FEW rows: from intervals alone, then by the
        standard relaxation, with intervals of the hidden layers, then with closer ones;
        with weights of rows (or the slope of a line of its own) of what they make of the rows, in the same ways, then by the
        defaults of slopes of neurons;
        with slopes of neurons of the same by these (`kernel.multipliers`);
        where a leaf names a frame, a box that holds its own, by the intervals that lines over that box leave it, and nothing else;
        where it names itself, by closer ones. Frames may lie in larger ones, whose lines then come first. If the frame is of one
        copy, all this is done for that copy alone, as a pair with itself, and proves a row of that copy.
If a margin is claimed, the bound has to reach it; if float32 is claimed, to exceed (sum of |p| + |q|) E over the leaf's box.
Sound? Yes: see the bounds.   Complete? For trees whose writer closed leaves by this rule, with room for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Batched, Domain, Regions
from encoders.model import Model
from encoders.network import Network
from encoders.probability.logistic import STEEPEST, line_of
from verifair.checker.certificates.tree import MAX_ROWS, Of, Tree, leaf_regions
from verifair.checker.kernel.bounds import TwinBounds, ranges
from verifair.checker.kernel.float32 import NOTHING_KNOWN, margin_errors
from verifair.checker.kernel.multipliers import LeafRows, lagrange
from verifair.checker.kernel.points import Points
from verifair.checker.kernel.tasks import Tasks
from verifair.checker.kernel.trees.choice import tree_bounds

if TYPE_CHECKING:
    from verifair.checker.kernel.trees.bounds import TreeBounds
    from verifair.checker.kernel.trees.compared import ComparedBounds
    from verifair.checker.kernel.trees.means import MeanBounds

BOUNDED, LEAVES_HELD, LEAVES_OF_TREES = 128, 2048, 1 << 14
"""Leaves bounded at once, leaves whose boxes are in memory at once, and the same for ensembles of trees."""
MAX_WIDE = 10
"""Real features of a box too small to be cut whose two ends are all tried: 1,024 corners."""
FEW = 3
"""A leaf without multipliers has all rows of its goal bounded if there are at most so many; otherwise it has to name rows."""
UNIT, CHARGE = 2.0**-50, 2.0**-48
"""Bounds of the rounding errors of an addition, and of combining rows of trees, relative to the sizes of the terms."""
FRAMES = {Of.COPIES: 2, Of.DIFFERENCES: 3, Of.FIRST: 1, Of.SECOND: 1}
"""How many of a, a' and D are substituted for, by the quantities that a leaf's frame bounds."""
SMALLEST = 1e-200
"""Smaller weights of rows could underflow in a product; they count as 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JoinedTrees:
    """T trees, one after the other: size (T,) their numbers of nodes; other arrays as in `Tree`. float32: (T,) True if the proof
    claims to hold in float32;   margin: (T,) lower bound that the proof claims, NaN where it claims none."""

    size: Integers
    feature: Integers
    cut: Array
    start: Integers
    index: Integers
    value: Array
    float32: Booleans
    margin: Array

    @classmethod
    def of(cls, trees: Sequence[Tree], float32: Sequence[bool], margin: Sequence[float | None]) -> JoinedTrees:
        """Join trees whose arrays fit together (`Tree.misfit`)."""
        ends = np.cumsum([0, *(len(tree.index) for tree in trees)])
        starts = [np.zeros(1, dtype=np.int64), *(tree.start[1:] + end for tree, end in zip(trees, ends.tolist(), strict=False))]
        arrays = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in ("feature", "cut", "index", "value")}
        return cls(
            size=np.array([len(tree.feature) for tree in trees]), start=np.concatenate(starts), **arrays, float32=np.array(float32),
            margin=np.array(margin, dtype=float),
        )

    def nodes(self, trees: Integers) -> Integers:
        """Return the positions of the nodes of some trees, one tree after the other."""
        end = np.cumsum(self.size)
        return ranges(end[trees] - self.size[trees], end[trees])


@dataclass(frozen=True, kw_only=True, eq=False)
class Leaves(Batched):
    """Leaves (L): the tree of each, which is its task's number as well; its node; its box and signs as in `Regions`; the number of
    its frame, -1 where it has none; is_frame: True if the leaf is a frame itself, which lies in that one."""

    tree: Integers
    node: Integers
    lower: Array
    upper: Array
    frame: Integers
    is_frame: Booleans
    active: Booleans
    inactive: Booleans


@dataclass(frozen=True, kw_only=True, eq=False)
class Frames(Batched):
    """Frames (F) of leaves: the tree of each, its box, and the number of the frame that it lies in, -1 where there is none."""

    tree: Integers
    lower: Array
    upper: Array
    frame: Integers

    def hold(self, boxes: Leaves | Frames) -> Booleans:
        """Return True for boxes that lie in their frames, or have none."""
        within = (self.lower[boxes.frame] <= boxes.lower) & (boxes.upper <= self.upper[boxes.frame])
        return np.asarray(within.all(axis=1) | (boxes.frame < 0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Boxes(Batched):
    """Network inputs (L, n_0) of both copies: low, high those of x, low2, high2 those of x'."""

    low: Array
    high: Array
    low2: Array
    high2: Array

    def ends(self, scope: Of) -> tuple[Array, Array, Array, Array]:
        """Return the boxes of both copies; those of one copy, twice, where `scope` is one copy (see FRAMES)."""
        first, second = (self.low, self.high), (self.low2, self.high2)
        return *(second if scope == Of.SECOND else first), *(first if scope == Of.FIRST else second)


def replay(network: Model, domain: Domain, tasks: Tasks, joined: JoinedTrees) -> dict[int, str]:
    """Return the reason, by number, for each tree that does not prove the task of the same number."""
    with np.errstate(all="ignore"):  # whatever overflows or is NaN proves nothing
        rule = LeafRule(network, domain, tasks, joined)
        reasons = rule.misfits() | tasks.flaws(domain)
        for leaves, frames in rule.leaves(reasons):
            limit = LEAVES_HELD if rule.trees is None else LEAVES_OF_TREES
            for start in range(0, len(leaves), limit):
                part = leaves.take(slice(start, start + limit))
                for k, text in rule.unproved(part, frames):
                    signs = int(part.active[k].sum() + part.inactive[k].sum())
                    fixed = f" with {signs} signs fixed" if signs else ""
                    reasons.setdefault(
                        int(part.tree[k]), f"leaf {part.lower[k].tolist()} .. {part.upper[k].tolist()}{fixed}: {text}"
                    )
    return dict(sorted(reasons.items()))


class LeafRule:
    """The rule for the leaves of some trees. rows: (A, R, 3) of the A goals, padded; strict: (A, R) True for strict rows."""

    def __init__(self, network: Model, domain: Domain, tasks: Tasks, joined: JoinedTrees) -> None:
        self.network, self.domain, self.tasks = network, domain, tasks
        self.neurons = 2 * sum(network.hidden)
        self.points = Points(network, domain, tasks)
        self.trees = tree_bounds(network, domain)
        reals = np.array([goal.reals for goal in tasks.goals], dtype=bool)[tasks.goal]
        self.opens = ~domain.integer & ~reals[:, None] & (self.trees is not None)  # (T, V), see `leaf_regions`
        self.count = np.array([len(goal.rows) for goal in tasks.goals])
        node = np.repeat(np.arange(len(joined.feature)), np.diff(joined.start))
        tree = np.repeat(np.arange(len(joined.size)), joined.size)
        code = joined.index - self.neurons - self.count[tasks.goal[tree[node]]]
        framed = np.isin(code, list(FRAMES))
        # (K,) for each node: the distance in nodes back to its frame; if it is a frame, the distance back to the frame around it
        # (-1: none); and the quantities that its frame bounds.
        self.before, self.outer = np.full((2, len(tree)), -1.0)
        self.frame_of = np.zeros(len(tree), dtype=np.int64)
        self.before[node[framed]], self.frame_of[node[framed]] = joined.value[framed], code[framed]
        self.outer[node[code == Of.FRAME]] = joined.value[code == Of.FRAME]
        place, framed = np.arange(len(tree)) - (np.cumsum(joined.size) - joined.size)[tree], framed | (code == Of.FRAME)
        invalid = ((self.before >= 0) & (joined.feature != -1)) | (self.outer == 0)
        for step in (self.before, self.outer):
            invalid |= ~(step <= place) | (step != np.floor(step)) | (step < -1) | ((step >= 0) & (not network.piecewise_linear))
        self.invalid = tree[invalid]
        counts = np.bincount(node[~framed], minlength=len(tree))
        self.joined = joined = replace(
            joined, start=np.concatenate([[0], np.cumsum(counts)]), index=joined.index[~framed], value=joined.value[~framed]
        )
        self.rows = np.zeros((len(tasks.goals), self.count.max(), 3))
        self.strict = np.ones(self.rows.shape[:2], dtype=bool)
        for k, goal in enumerate(tasks.goals):
            self.rows[k, : len(goal.rows)], self.strict[k, : len(goal.rows)] = goal.rows, goal.strict
        equal = (self.rows[:, :, :2].sum(axis=2) == 0) & self.rows[:, :, :2].any(axis=2)
        suffices = equal & np.where(self.strict, self.rows[:, :, 2] > 0, self.rows[:, :, 2] >= 0)
        # The value of the best row where both margins are the same number, which is its constant; -inf where none suffices.
        self.equal = np.where(suffices, self.rows[:, :, 2], -np.inf).max(axis=1)
        self.target = np.where(np.isnan(joined.margin), 0.0, joined.margin)

    @property
    def layered(self) -> Network:
        """The model as the `Network` that bounds of layers need."""
        return self.network.layered("a bound of layers")

    def misfits(self) -> dict[int, str]:
        """Return the reason, by number, for each tree that makes a claim this rule cannot prove, or has an invalid multiplier."""
        joined, rows, smooth = self.joined, self.count[self.tasks.goal], not self.network.piecewise_linear
        tree = np.repeat(np.arange(len(rows)), joined.size)
        tree_of, stated = np.repeat(tree, np.diff(joined.start)), ~np.isnan(joined.margin)
        slopes = (joined.index >= 0) & (joined.index < self.neurons)
        wrong = (
            (tree_of[~np.isfinite(joined.value)], "a multiplier is not a finite number"),
            (tree_of[(joined.index < 0) | (joined.index > self.neurons + rows[tree_of])],
             f"a multiplier belongs to none of the {self.neurons} neurons and to no row of its goal"),
            (tree_of[~slopes & (joined.value < 0)], "a row has a negative weight"),
            (self.invalid, "a frame is not the node of a tree of piecewise-linear neurons that a leaf can have"),
            (tree_of[smooth & slopes], "it has slopes of neurons, and some of the network's are smooth"),
            (tree[smooth & (joined.feature < -1)], "it splits signs of neurons, and some of the network's are smooth"),
            (np.flatnonzero(joined.margin < 0), "its margin is below 0"),
            (np.flatnonzero(stated & (rows > 1)), "it claims a margin, and its goal has several rows"),
            (np.flatnonzero(joined.float32 & (not self.network.knows_float32)), NOTHING_KNOWN),
        )
        return {number: text for numbers, text in wrong for number in numbers.tolist()}

    def leaves(self, reasons: dict[int, str]) -> Iterator[tuple[Leaves, Frames]]:
        """Yield the leaves of trees without a flaw, with their frames. Add to `reasons` the flaws of trees that are no trees."""
        joined = self.joined
        signed = np.zeros(len(joined.size), dtype=bool)
        signed[np.repeat(np.arange(len(signed)), joined.size)[joined.feature < -1]] = True
        for neurons, selected in ((0, ~signed), (self.neurons, signed)):
            trees = np.array([number for number in np.flatnonzero(selected).tolist() if number not in reasons], dtype=np.int64)
            decoded = self._decoded(trees, neurons)
            if isinstance(decoded, str):
                flaws = {tree: self._decoded(np.array([tree]), neurons) for tree in trees.tolist()}
                reasons |= {tree: flaw for tree, flaw in flaws.items() if isinstance(flaw, str)}
                decoded = self._decoded(np.array([tree for tree in trees.tolist() if tree not in reasons], dtype=np.int64), neurons)
            if isinstance(decoded, str):
                raise AssertionError(f"trees that are right by themselves are not together: {decoded}")
            yield decoded

    def _decoded(self, trees: Integers, neurons: int) -> tuple[Leaves, Frames] | str:
        joined, nodes = self.joined, self.joined.nodes(trees)
        free, size = np.zeros((len(trees), neurons), dtype=bool), joined.size[trees]
        roots = Regions(lower=self.tasks.lower[trees], upper=self.tasks.upper[trees], active=free, inactive=free)
        every_node = np.arange(len(nodes))
        distance = np.stack([self.before[nodes], self.outer[nodes]])
        frame, outer = np.where(distance >= 0, every_node - distance, -1).astype(np.int64)
        is_frame = frame == every_node
        frame = np.where(is_frame, outer, frame)
        frames = np.unique(np.concatenate([frame, outer]))
        frames = frames[frames >= 0]
        decoded = leaf_regions(joined.feature[nodes], joined.cut[nodes], roots, self.domain, size, frames, self.opens[trees])
        if isinstance(decoded, str):
            return decoded
        kept, regions = decoded
        tree, leaf, index = np.repeat(trees, size), joined.feature[nodes[kept]] == -1, np.searchsorted(kept, frames)
        boxes, frame_boxes, node = regions.take(leaf), regions.take(index), kept[leaf]
        number = np.append(np.searchsorted(frames, every_node), -1)  # of each named node; the last one, for "none", is -1
        return Leaves(
            tree=tree[node], node=nodes[node], lower=boxes.lower, upper=boxes.upper, frame=number[frame[node]],
            is_frame=is_frame[node], active=boxes.active, inactive=boxes.inactive,
        ), Frames(tree=tree[frames], lower=frame_boxes.lower, upper=frame_boxes.upper, frame=number[outer[frames]])

    def unproved(self, leaves: Leaves, frames: Frames) -> list[tuple[int, str]]:
        """Return the leaves that are not proved, as (number, reason)."""
        domain, tree, lower = self.domain, leaves.tree, leaves.lower
        partner = self.tasks.second(tree, lower), self.tasks.second(tree, leaves.upper)
        outside = ~self.tasks.differs[tree] & ((partner[0] > domain.upper) | (partner[1] < domain.lower))
        empty = domain.impossible(leaves.lower, leaves.upper) | domain.impossible(*partner) | outside.any(axis=1)
        boxes = self._boxes(tree, lower, leaves.upper)
        low, high, low2, high2 = vars(boxes).values()
        finite = np.isfinite(np.hstack([low, high, low2, high2])).all(axis=1)
        reasons = dict.fromkeys(np.flatnonzero(~finite & ~empty).tolist(), "its network inputs are no float32 numbers")
        point = (low == high).all(axis=1) & (low2 == high2).all(axis=1)
        left = np.flatnonzero(~point & finite & ~empty)
        rest = left[~self._bounded(leaves.take(left), boxes.take(left), frames)]
        if self.trees is not None:  # rows that take the same path through every tree have the same margins
            point[rest] = self.trees.single_path(low[rest], high[rest]) & self.trees.single_path(low2[rest], high2[rest])
        points = np.flatnonzero(point & finite & ~empty)
        flaws = self._at_points(tree[points], lower[points]) if len(points) else {}
        # Where the goal fails at a point, several raw rows may be this one input, and perhaps none of them is legal.
        for k, text in [*((int(points[k]), flaw) for k, flaw in flaws.items()), *((k, None) for k in rest[~point[rest]].tolist())]:
            flaw = self._at_corners(leaves.take(slice(k, k + 1)), text)
            if flaw is not None:
                reasons[k] = flaw
        return list(reasons.items())

    def _boxes(self, tree: Integers, lower: Array, upper: Array) -> Boxes:
        low, high = self.domain.box(lower, upper)
        low2, high2 = self.domain.box(self.tasks.second(tree, lower), self.tasks.second(tree, upper))
        return Boxes(low=low, high=high, low2=low2, high2=high2)

    def _at_points(self, tree: Integers, raw: Array) -> dict[int, str]:
        return self.points.flaws(tree, raw, self.target[tree], self.joined.float32[tree])

    def _at_corners(self, leaf: Leaves, flaw: str | None) -> str | None:
        """Return why the corners of a leaf (L = 1) do not prove it, or None. flaw: why nothing else does. Corners prove a leaf if
        its real features hold two neighbouring float64 each, and it holds no other rows."""
        tree = int(leaf.tree[0])
        wide = np.flatnonzero(leaf.lower[0] < leaf.upper[0])
        divisible = self.domain.divisible(leaf.lower, leaf.upper).any() or self.tasks.goals[self.tasks.goal[tree]].reals
        if divisible or len(wide) > MAX_WIDE:
            margin, float32 = self.joined.margin[tree], self.joined.float32[tree]
            extent = " of every float32 evaluation" * bool(float32) + ("" if np.isnan(margin) else f" with the margin {margin:g}")
            return flaw or f"nothing that it names proves its goal{extent}"
        corners = np.tile(leaf.lower, (1 << len(wide), 1))
        for bit, v in enumerate(wide):
            corners[(np.arange(len(corners)) >> bit) & 1 == 1, v] = leaf.upper[0, v]
        trees = np.full(len(corners), tree)
        legal = self.domain.legal(corners) & self.domain.legal(self.tasks.second(trees, corners))
        flaws = self._at_points(trees[legal], corners[legal])
        return next(iter(flaws.values()), None)

    def _by_trees(self, leaves: Leaves, boxes: Boxes, bounds: TreeBounds | MeanBounds) -> Booleans:
        """Return (L,) True for leaves that the extremes of an ensemble's trees prove."""
        proved, (rows, _), tree = np.zeros(len(leaves), dtype=bool), self.rows_of(leaves), leaves.tree
        compared = cast("ComparedBounds", bounds) if bounds.compares else None
        differing = self.tasks.differs | (self.tasks.offset != 0)
        for pattern in np.unique(differing[np.unique(tree)], axis=0):
            differs = np.zeros(self.domain.columns, dtype=bool)
            differs[self.domain.columns_of(np.flatnonzero(pattern))] = True
            index = np.flatnonzero((differing[tree] == pattern).all(axis=1))
            part, place = rows.take(np.isin(rows.leaf, index)), np.searchsorted(index, np.arange(len(leaves)))
            margin = self.tasks.margin[tree[part.leaf]]
            ends = (boxes.low[index], boxes.high[index]), (boxes.low2[index], boxes.high2[index])
            if compared is not None and compared.odds:
                for goal in np.unique(self.tasks.goal[tree[index]]).tolist():
                    gap, selected = self.tasks.goals[goal].gap, np.flatnonzero(self.tasks.goal[tree[index]] == goal)
                    if gap is not None:
                        first, second = ((low[selected], high[selected]) for low, high in ends)
                        proved[index[selected]] |= compared.gaps(first, second, differs, gap)
                continue
            error = np.where(self.joined.float32[tree[part.leaf]], part.size * bounds.float32_errors(margin), -np.inf)
            if compared is not None:
                simple = np.flatnonzero(~part.mixed & (part.constant == 0))
                part, error = part.take(simple), error[simple]
                target = self.target[tree[part.leaf]]
                proved[index] |= compared.decided(*ends, differs, place[part.leaf], part.p, part.q, part.strict, target, error)
                continue
            rounding = np.where(part.mixed, CHARGE * (part.size * (np.abs(margin) @ bounds.sizes) + part.size_of_constant), 0.0)
            target = self.target[tree[part.leaf]] * part.weight
            required = np.maximum(target, error) + rounding - part.constant
            evened_to = np.where(part.mixed, required + 8 * UNIT * (np.abs(required) + np.abs(part.constant)), -np.inf)
            extreme = bounds.least(*ends, differs, place[part.leaf], part.p, part.q, evened_to)
            total = extreme + part.constant   # a rounded sum of two numbers has the sign of the exact sum
            bound = total - UNIT * (np.abs(part.constant) + np.abs(extreme)) * (part.constant != 0) - rounding
            lower, sufficient = np.where(part.mixed, bound, total), (bound >= target) | ~part.mixed & (target == 0)
            holds = np.where(part.strict, lower > 0, lower >= 0) & sufficient & (bound > error)
            proved[part.leaf[holds]] = True
        return proved

    def _bounded(self, leaves: Leaves, boxes: Boxes, frames: Frames) -> Booleans:
        """Return (L,) True for leaves that a bound proves."""
        proved = np.zeros(len(leaves), dtype=bool)
        if not len(leaves):
            return proved
        if self.trees is not None:
            return self._by_trees(leaves, boxes, self.trees)
        start, end = self.joined.start[leaves.node], self.joined.start[leaves.node + 1]
        entries, owner = ranges(start, end), np.repeat(np.arange(len(leaves)), end - start)
        sloped = np.isin(np.arange(len(leaves)), owner[self.joined.index[entries] < self.neurons])
        widest, scopes = self._widest(leaves, boxes), self.frame_of[leaves.node]
        framed = (leaves.frame >= 0) | leaves.is_frame
        options = [False, True][: 1 + (len(self.layered.layers) > 2)]
        for group, closes in ((~framed & ~sloped, options), (~framed & sloped, [True])):
            for close in closes:
                left = np.flatnonzero(group & ~proved)
                for k in range(0, len(left), BOUNDED):
                    part = left[k : k + BOUNDED]
                    proved[part] = self.proved(leaves.take(part), boxes.take(part), close, widest)
        for scope in FRAMES:
            part = np.flatnonzero(framed & ~sloped & (scopes == scope))
            if len(part):
                proved[part] = self._by_frames(leaves.take(part), boxes.take(part), frames, scope, widest)
        return proved

    def _by_frames(self, leaves: Leaves, boxes: Boxes, frames: Frames, scope: Of, widest: float) -> Booleans:
        """Return (L,) True for leaves that the lines of their frames prove, from the outermost frames inwards."""
        proved, needed = np.zeros(len(leaves), dtype=bool), np.zeros(len(frames), dtype=bool)
        frame_ids = np.unique(leaves.frame[leaves.frame >= 0])
        for _ in range(len(frames)):  # a chain of frames is no longer than that
            needed[frame_ids] = True
            frame_ids = np.unique(frames.frame[frame_ids])
            frame_ids = frame_ids[frame_ids >= 0]
            if not len(frame_ids):
                break
        sound = np.ones(len(leaves), dtype=bool)
        if len(frames):
            needed &= frames.hold(frames)
            sound = frames.hold(leaves)
        used = np.flatnonzero(needed)
        inside, members = used[np.argsort(frames.frame[used], kind="stable")], np.flatnonzero(sound)
        members = members[np.argsort(leaves.frame[members], kind="stable")]
        stack: list[tuple[TwinBounds | None, Integers]] = [(None, np.array([-1]))]
        for _ in range(len(used) + 1):  # each frame is bounded once
            if not stack:
                break
            bounds, parents = stack.pop()
            for is_frame in (False, True):
                selected = _members(members[leaves.is_frame[members] == is_frame], leaves.frame, parents)
                for k in range(0, len(selected[0]), BOUNDED):
                    part, place = (array[k : k + BOUNDED] for array in selected)
                    frame = None if bounds is None else (bounds, place)
                    proved[part] = self.proved(leaves.take(part), boxes.take(part), True, widest, frame, is_frame, scope)
            selected = _members(inside, frames.frame, parents)
            for k in range(0, len(selected[0]), BOUNDED):
                part, place = (array[k : k + BOUNDED] for array in selected)
                ends = self._boxes(frames.tree[part], frames.lower[part], frames.upper[part]).ends(scope)
                frame = None if bounds is None else (bounds, place)
                stack.append((TwinBounds(self.layered, *ends, close=True, quantities=FRAMES[scope], frame=frame), part))
        return proved

    def proved(
        self, leaves: Leaves, boxes: Boxes, close: bool, widest: float, frame: tuple[TwinBounds, Integers] | None = None,
        refine: bool = True, scope: Of = Of.DIFFERENCES,
    ) -> Booleans:
        """Return (L,) True for leaves that are proved; all or none of them have slopes of neurons. widest: bounds float32 errors.

        close, frame, refine: see `TwinBounds`; none is always the tightest, as closer intervals may lead to other lines. scope: see
        FRAMES; for one copy alone, only rows of that copy are bounded.
        """
        tree, margin = leaves.tree, self.tasks.margin[leaves.tree]
        single, ends = FRAMES[scope] == 1, boxes.ends(scope)  # bounds of one copy alone use no signs
        signs = (leaves.active, leaves.inactive) if leaves.active.shape[1] and not single else None
        bounds = TwinBounds(self.layered, *ends, close=close, quantities=FRAMES[scope], signs=signs, frame=frame, refine=refine)
        rows, slopes = self.rows_of(leaves)
        proved = bounds.empty
        if single:
            rows = rows.of_copy(scope == Of.SECOND)
        else:
            value = np.where(bounds.alike(margin), self.equal[self.tasks.goal[tree]], -np.inf)
            proved |= (value >= self.target[tree]) & ~self.joined.float32[tree]
        margins = bounds.margins(margin)
        methods = ("intervals", "relaxation", "slopes")[: 3 if self.network.piecewise_linear else 2]
        for method in methods if slopes is None else ("slopes",):
            part = rows.take(~proved[rows.leaf] & (rows.mixed | (method != "slopes")))
            if not len(part):
                continue
            if method == "intervals":
                rough = bounds.by_intervals(margins, part.first, part.second, part.leaf)
                bound = rough + part.constant - UNIT * (np.abs(part.constant) + np.abs(rough))
            elif method == "relaxation":
                last = len(self.layered.layers) - 1
                bound = bounds.by_substitution(part.p, part.q, part.leaf, layer=last, constant=part.constant)
            else:
                known_slopes = np.full((len(part), self.neurons), np.nan) if slopes is None else slopes[part.leaf]
                bound, empty = lagrange(bounds, self.domain, ends[:2], part, known_slopes)
                proved[part.leaf[empty]] = True
            sufficient = self._sufficient(part, bound - part.charge(bounds, margin[part.leaf]), leaves, bounds, widest)
            proved[part.leaf[sufficient]] = True
        return proved

    def _sufficient(self, rows: LeafRows, bound: Array, leaves: Leaves, bounds: TwinBounds, widest: float) -> Booleans:
        """Return (N,) True where the bound of a row proves its leaf."""
        tree = leaves.tree[rows.leaf]
        holds = np.where(rows.strict, bound > 0, bound >= 0) & (bound >= self.target[tree] * rows.weight)
        short = holds & self.joined.float32[tree] & ~(bound > rows.size * widest)
        if short.any():
            left = np.unique(rows.leaf[short])
            error = np.full(len(leaves), np.inf)
            spans = [span.take(left) for span in bounds.spans[:-1]]
            enclosures = [(np.minimum(span.low, span.low2), np.maximum(span.high, span.high2)) for span in spans]
            low, high = (end[left] for end in bounds.inputs)
            error[left] = margin_errors(self.layered, self.tasks.margin[leaves.tree[left]], low, high, enclosures)
            holds &= ~short | (bound > rows.size * error[rows.leaf])
        return np.asarray(holds)

    def _widest(self, leaves: Leaves, boxes: Boxes) -> float:
        """Return a bound of the float32 error of any margin on any of the leaves that claim float32."""
        mask = self.joined.float32[leaves.tree]
        if not mask.any():
            return 0.0
        low, high = np.minimum(boxes.low, boxes.low2)[mask].min(axis=0), np.maximum(boxes.high, boxes.high2)[mask].max(axis=0)
        margin = np.abs(self.tasks.margin[leaves.tree[mask]]).max(axis=0)
        return float(margin_errors(self.layered, margin[None], low[None], high[None])[0])

    def rows_of(self, leaves: Leaves) -> tuple[LeafRows, Array | None]:
        """Return the rows to be bounded on leaves, and slopes (L, 2 H) of neurons, NaN where left out; None if there are none."""
        goal = self.tasks.goal[leaves.tree]
        start, end = self.joined.start[leaves.node], self.joined.start[leaves.node + 1]
        plain = np.flatnonzero((start == end) & (self.count[goal] <= FEW))
        leaf, row = np.repeat(plain, self.count[goal[plain]]), ranges(np.zeros(len(plain), dtype=np.int64), self.count[goal[plain]])
        plain_rows, ones = self.rows[goal[leaf], row], np.ones(len(leaf))
        named = np.flatnonzero(start < end)
        entries, owner = ranges(start[named], end[named]), np.repeat(np.arange(len(named)), (end - start)[named])
        index, value = self.joined.index[entries] - self.neurons, self.joined.value[entries]
        weights, is_line = np.zeros((len(named), self.count.max() + 1)), index == self.count[goal[named]][owner]
        slopes = None
        if (index < 0).any():
            slopes = np.full((len(named), self.neurons), np.nan)
            slopes[owner[index < 0], index[index < 0]] = value[index < 0]
        weights[owner[(index >= 0) & ~is_line], index[(index >= 0) & ~is_line]] = value[(index >= 0) & ~is_line]
        weights = np.where(weights < SMALLEST, 0.0, weights)[:, :-1]  # sound, as any weights are
        weights[(weights > 0).sum(axis=1) > MAX_ROWS] = np.nan  # more than the rounding allows for
        table = self.rows[goal[named]]
        mixed, size = np.einsum("nr,nri->ni", weights, table), np.einsum("nr,nri->ni", weights, np.abs(table))
        strict = np.asarray(~((weights > 0) & ~self.strict[goal[named]]).any(axis=1))  # one row that is not strict makes 0 enough
        weight = weights.sum(axis=1)
        for k, slope in zip(owner[is_line].tolist(), value[is_line].tolist(), strict=True):  # the leaf's own line replaces all rows
            mixed[k], strict[k], weight[k] = self._line(int(goal[named[k]]), slope), False, 1.0
            size[k] = np.abs(mixed[k])
        rows, sizes = np.concatenate([plain_rows, mixed]), np.concatenate([np.abs(plain_rows), size])
        leaf = np.concatenate([leaf, named])
        margin = self.tasks.margin[leaves.tree[leaf]]
        return LeafRows(
            leaf=leaf, first=rows[:, 0], second=rows[:, 1], p=rows[:, :1] * margin, q=rows[:, 1:2] * margin, constant=rows[:, 2],
            strict=np.concatenate([self.strict[goal[leaf[: len(ones)]], row], strict]), weight=np.concatenate([ones, weight]),
            size=sizes[:, 0] + sizes[:, 1], size_of_constant=sizes[:, 2], mixed=np.arange(len(leaf)) >= len(ones),
        ), slopes

    def _line(self, goal: int, m: float) -> tuple[float, float, float]:
        """Return the line (p, q, c) of slope m under the curve of a probability gap, NaN where there is none."""
        gap = self.tasks.goals[goal].gap
        if gap is None or not 1 / STEEPEST <= m <= STEEPEST:
            return np.nan, np.nan, np.nan
        return (m, -1.0, line_of(gap.epsilon, m)) if gap.rise else (-1.0, m, line_of(gap.epsilon, m))


def _members(ids: Integers, frame: Integers, frames: Integers) -> tuple[Integers, Integers]:
    """Return the members of `ids` whose frame is one of `frames`, and its position there. frame: of all; `ids` is sorted by it."""
    start, end = (np.searchsorted(frame[ids], frames, side=side) for side in ("left", "right"))
    return ids[ranges(start, end)], np.repeat(np.arange(len(frames)), end - start)
