"""A twin problem about a tree ensemble, prepared for the search: cells, the trees of both copies, bounds of rows over boxes.

Real boxes are half open here: if a variable has been cut, the box above the cut leaves out the cut itself, which belongs to the box
below it. So boxes on both sides of a threshold never share a branch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.errors import ModelError
from encoders.problem import Goal, TwinBatch, TwinProblem
from encoders.trees.cells import HELD, TreeCells, cells_of
from encoders.trees.compared import ComparedTrees
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.joint import JointTrees, LineTrees, line_trees
from encoders.trees.mean import MeanOfTrees
from encoders.trees.stairs import searched
from solvers import clock

SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
"""Rows are bounded by s (-l g + (1 - l) g') for these l; a row with another share of g by a mixture of its two neighbours."""
A_JOIN, A_NODE, A_LEAF = 2_000_000, 640, 100
"""Multiplications that take as long as the setup of joining two copies' trees; as each node; and as each leaf of a line."""
MAX_HELD = 1 << 23
"""The most contributions of leaves that are kept, of the latest pairs and lines: every age beside every other makes thousands."""
MOST_SIDES = 1 << 24
"""The most nodes about protected variables, over all pairs of values, whose sides are compared to find pairs that are alike."""
STEP = 2
"""Multiplications that take as long as a step in a tree."""
ROOM = 2.0**-45
"""Bound of the rounding error of combining two bounds, relative to the size of the margins."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeTwin:
    """ensemble: its trees; for a mean with linear functions also these as trees, with bounds of their errors (`trees.stairs`).

    variables: raw variables that vary in some box; moving: their columns; local: the domain of these alone.

    cells: those of all variables.
    pair_of: (Q,) the number of each question's pair of differing values, one of all pairs that go the same ways in every tree;
    pairs: (P,) a question of each.
    """

    problem: TwinProblem
    ensemble: TreeEnsemble
    variables: Integers
    moving: Integers
    local: Domain
    cells: TreeCells
    pair_of: Integers
    pairs: Integers
    size: float
    _latest: dict[tuple[int, Any], LineTrees] = field(default_factory=dict)
    _held: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def of(cls, problem: TwinProblem) -> TreeTwin:
        """Return the twin. Raises ModelError for shifted features with a range: they need a question for each value."""
        batch, domain, network = problem.batch, problem.domain, problem.network
        if isinstance(network, MeanOfTrees):
            rows = np.concatenate([batch.lower, batch.second(batch.lower)])
            compared = np.where(np.tile(_differs(batch), (2, 1)), rows, np.nan)
            ensemble = searched(network, domain, compared, batch.lower, batch.upper)
            size = network.size + float(network.steepness @ ensemble.largest[: network.trees.outputs])
        elif (sums := network.ensemble) is not None:    # a margin of several classes is a difference of two scores
            ensemble, size = sums, float(np.abs(problem.margin) @ sums.largest if sums is network else 2 * sums.largest.max())
        else:
            raise TypeError(f"a tree ensemble is needed, not {type(network).__name__}")
        differs = _differs(batch)
        if (differs & (batch.lower != batch.upper)).any():
            raise ModelError(ensemble.source or "model", "is a tree ensemble, of which relaxed features are asked value by value")
        variables = np.flatnonzero((batch.lower != batch.upper).any(axis=0))
        columns = differs.any(axis=0)
        values = [differs, np.where(differs, batch.lower, 0.0), np.where(differs, batch.second(batch.lower), 0.0)]
        joined = np.concatenate([part[:, columns] for part in values], axis=1)
        _, pairs, inverse = np.unique(joined, axis=0, return_index=True, return_inverse=True)
        twin = cls(
            problem=problem, ensemble=ensemble, variables=variables, moving=domain.columns_of(variables),
            local=domain.take(variables), cells=cells_of(ensemble, domain), pair_of=inverse.reshape(-1), pairs=pairs, size=size,
        )
        asked = np.flatnonzero(np.isin(twin.cells.variable, np.flatnonzero(columns)))
        if len(pairs) == 1 or len(pairs) * len(asked) > MOST_SIDES:
            return twin
        sides = np.packbits(np.concatenate(twin._sides(np.arange(len(pairs)), asked), axis=1), axis=1)
        _, first, number = np.unique(sides, axis=0, return_index=True, return_inverse=True)
        return replace(twin, pair_of=number.reshape(-1)[twin.pair_of], pairs=pairs[first])

    def joint(self, pair: int) -> JointTrees:
        """Return the trees of both copies for a pair of protected values."""
        return self._joined(*self._sides([pair]))

    def alone(self, pair: int) -> tuple[JointTrees, ...]:
        """Return the trees of each copy alone, for a pair of protected values."""
        differs, first, second = self._sides([pair])
        return tuple(self._joined(differs, side, side) for side in (first, second))

    def copies(self, pair: int, lines: Array | tuple[ScoreLine, ...]) -> LineTrees:
        """Return the trees of both copies for a pair of protected values, collapsed for lines: (C, 2) of both margins, for a mean
        those of `scores`; or differences of scores. The latest are kept."""
        key = pair, lines if isinstance(lines, tuple) else lines.tobytes()
        found = self._latest.pop(key, None)
        if found is None:
            found = self._collapsed(pair, lines)
            clock.spend(A_JOIN + A_NODE * len(found.trees.variable) + A_LEAF * len(found.adds))
            self._held[0] += len(found.adds)
        self._latest[key] = found       # the last one now; the first one is the one that was not used for longest
        while self._held[0] > MAX_HELD and len(self._latest) > 1:
            self._held[0] -= len(self._latest.pop(next(iter(self._latest))).adds)
        return found

    def _collapsed(self, pair: int, lines: Array | tuple[ScoreLine, ...]) -> LineTrees:
        network = self.problem.network
        if isinstance(lines, tuple):
            return self._differences(pair, lines)
        if isinstance(network, MeanOfTrees):
            return self.scores(pair, lines, network.steepness)
        return self.joint(pair).terms(self.problem.margin).lines(lines)

    def _differences(self, pair: int, lines: tuple[ScoreLine, ...]) -> LineTrees:
        joint = self.joint(pair)
        unit = np.eye(self.ensemble.outputs)
        worths = {(a, b): joint.terms(unit[a] - unit[b]) for a, b in {(line.over, line.under) for line in lines}}
        return line_trees(joint.trees, [worths[line.over, line.under].rounded(line.p, line.q) for line in lines])

    def scores(self, pair: int, lines: Array, steep: Array) -> LineTrees:
        """Return the trees of both copies for a pair of protected values, collapsed for lines (C, 2) of every score, C m, followed
        by the sum of each line over the scores, times `steep` (m,)."""
        joint = self.joint(pair)
        by_line = joint.scores(len(steep), lines)
        sums = [(sum(s * leaves for s, (leaves, _) in zip(steep, line, strict=True)), float(steep @ [base for _, base in line]))
                for line in by_line]
        return line_trees(joint.trees, [*(entry for line in by_line for entry in line), *sums])

    def _joined(self, differs: Booleans, first: Booleans, second: Booleans) -> JointTrees:
        """Return the trees in which nodes of differing variables belong to variable -2."""
        return _join(self.ensemble, self.problem.domain, *(mask.tobytes() for mask in (differs, first, second)))

    def _sides(self, pairs: npt.ArrayLike, nodes: Integers | slice = slice(None)) -> tuple[Booleans, Booleans, Booleans]:
        """Return (P, K) True for nodes that split a variable in which the copies differ, and for those of them that go left, for
        both copies."""
        batch, column = self.problem.batch.take(self.pairs[np.asarray(pairs)]), np.maximum(self.ensemble.column[nodes], 0)
        differs = np.pad(_differs(batch), ((0, 0), (0, 1)))[:, self.cells.variable[nodes]]   # the last one: a leaf has no variable
        encode, threshold = self.problem.domain.encode, self.ensemble.threshold[nodes]
        first, second = (encode(raw)[:, column] <= threshold for raw in (batch.lower, batch.second(batch.lower)))
        return differs, differs & first, differs & second

    @property
    def noise(self) -> Array:
        """(Q,) bounds of the error of `evaluate`."""
        return np.full(len(self.pair_of), 2.0**-48 * (len(self.ensemble.root) + 2) * self.size)

    def evaluate(self, question: Integers, x: Array) -> Array:
        """Return margins (N, 2) = g(x), g(x') at moving columns x (N, d): to find witnesses, not to confirm them."""
        batch, domain = self.problem.batch, self.problem.domain
        batch = batch.take(question)
        lower, differs = batch.lower, np.repeat(_differs(batch), domain.width, axis=1)
        differing_columns = np.empty((len(x), domain.columns), dtype=bool)
        differing_columns[:, domain.columns_of(np.arange(domain.variables))] = differs
        clock.spend(STEP * 2 * len(x) * self.ensemble.work)
        margins = np.empty((len(x), 2))
        for k, raw in enumerate((lower, batch.second(lower))):
            columns = domain.encode(raw)
            columns[:, self.moving] = np.where(differing_columns[:, self.moving], columns[:, self.moving], x)
            margins[:, k] = self.problem.network.forward(columns) @ self.problem.margin
        return margins

    def boxes(self, question: Integers, lower: Array, upper: Array) -> tuple[Integers, Integers]:
        """Return the first and last cells (N, V) of raw boxes lower, upper (N, v) of the moving variables."""
        batch = self.problem.batch
        low, high = batch.lower[question], batch.upper[question]
        start = low[:, self.variables].copy()
        low[:, self.variables], high[:, self.variables] = lower, upper
        above = np.zeros(low.shape, dtype=bool)
        above[:, self.variables] = (lower > start) & ~self.local.integer
        return self.cells.of_boxes(low, high, above=above)

    def within(
        self, lower: Array, upper: Array, cells: tuple[Integers, Integers], first: Integers, last: Integers
    ) -> tuple[Array, Array]:
        """Return the parts (N, v), (N, v) of raw boxes lower, upper (N, v) that lie in cells first ... last (N, V). cells: the
        first and last cells (N, V), (N, V) of the boxes."""
        lower, upper = lower.copy(), upper.copy()
        for k, v in enumerate(self.variables.tolist()):
            starts, stops = np.flatnonzero(first[:, v] > cells[0][:, v]), np.flatnonzero(last[:, v] < cells[1][:, v])
            if self.local.one_hot[k]:
                lower[starts, k], upper[stops, k] = first[starts, v], last[stops, v]
            else:
                cuts = self.cells.cuts[v]
                lower[starts, k] = cuts[first[starts, v] - 1] + float(self.local.integer[k])
                upper[stops, k] = cuts[last[stops, v]]
        return lower, upper


@dataclass(frozen=True, kw_only=True, eq=False)
class RowBounds:
    """The bounds of rows (R, 2) with constants (R,): lines (S, 2) that are bounded, and their shares in each row (R, S).

    room: (R,) taken off, relative to the margins' size: 0 if a row is a line of one copy or of the difference, and has no constant
    or is the only row (else it is a mixture, or one of several rows: the checker combines those that a proof names).
    """

    lines: Array
    shares: Array
    constants: Array
    room: Array

    @classmethod
    def of(cls, rows: Array, constants: Array) -> RowBounds:
        """Write each row as a combination of lines."""
        signs = np.where(np.where(rows[:, 1] != 0, rows[:, 1], -rows[:, 0]) >= 0, 1.0, -1.0)
        size = np.abs(rows).sum(axis=1)
        share = np.divide(np.abs(rows[:, 0]), size, out=np.zeros(len(rows)), where=size > 0)
        opposed = rows[:, 0] * rows[:, 1] <= 0
        lines: dict[tuple[float, float], int] = {}
        combinations = []
        for (p, q), sign, total, part, mixed in zip(rows.tolist(), signs.tolist(), size.tolist(), share.tolist(), opposed.tolist(),
                                                  strict=True):
            upper = int(np.searchsorted(SHARES, part))
            if not mixed:
                combinations.append([((p, q), 1.0)])
            elif SHARES[upper] == part:
                combinations.append([(_line(sign, part), total)])
            else:
                low, high = SHARES[upper - 1], SHARES[upper]
                weight = (part - low) / (high - low)
                combinations.append([(_line(sign, low), total * (1 - weight)), (_line(sign, high), total * weight)])
        for key in [line for part in combinations for line, _ in part]:
            lines.setdefault(key, len(lines))
        shares = np.zeros((len(rows), len(lines)))
        for row, part in enumerate(combinations):
            for line, weight in part:
                shares[row, lines[line]] += weight
        single = ((constants == 0) | (len(rows) == 1)) & ((shares > 0).sum(axis=1) <= 1)    # a sum of two has the right sign
        exact = single & np.isin(shares.max(axis=1, initial=0.0), 2.0 ** np.arange(-4, 5)) & np.isin(share, (0.0, 0.5, 1.0))
        slack = np.where(exact, 0.0, ROOM)
        return cls(lines=np.array(list(lines)).reshape(-1, 2), shares=shares, constants=constants, room=slack)

    def charges(self, size: float) -> Array:
        """Return (R,) what is taken off the rows' bounds, for margins of this size."""
        return np.asarray((np.abs(self.shares).sum(axis=1) * size + np.abs(self.constants)) * self.room)


@lru_cache(maxsize=HELD)
def _join(ensemble: TreeEnsemble, domain: Domain, nodes: bytes, first: bytes, second: bytes) -> JointTrees:
    """Return both copies' trees. nodes: (K,) True for nodes of differing variables; first, second: (K,) True if they go left."""
    if second < first:      # the same trees serve both orders
        return _join(ensemble, domain, nodes, second, first).swapped
    differs, *sides = (np.frombuffer(mask, dtype=bool) for mask in (nodes, first, second))
    cells = cells_of(ensemble, domain)
    return JointTrees.of(ensemble, replace(cells, variable=np.where(differs, -2, cells.variable)), *sides)


def _differs(batch: TwinBatch) -> Booleans:
    """Return (Q, V) True for variables in which a question's copies differ: protected ones, and those that are shifted."""
    shifted = np.zeros(batch.lower.shape, dtype=bool) if batch.offset is None else batch.offset != 0
    return np.asarray(batch.protected | shifted)


@dataclass(frozen=True, kw_only=True)
class ScoreLine:
    """p d(x) + q d(x'), d = f_over - f_under."""

    over: int
    under: int
    p: float
    q: float

    def weights(self, scores: int) -> Array:
        """Return (2 scores,) the weights of all scores at x, then at x'."""
        d = np.eye(scores)[self.over] - np.eye(scores)[self.under]
        return np.concatenate([self.p * d, self.q * d])


@dataclass(frozen=True, kw_only=True, eq=False)
class ClauseRows:
    """A goal about decisions among classes as rows of their scores. Its margin is g = max of f in S - max of f outside.

    At x let b be the best class on the side that a row  p g(x) + q g(x')  subtracts, and b' at x', on the other side. Then
    |p| (f_a - f_b)(x) + |q| (f_a' - f_b')(x')  is at most the row, for any a and a' of the sides that it adds. So there is a clause
    for each pair b, b', with the rows of the goal for every a, or a'; rows of both copies have a = b' and a' = b, and are lines of
    one difference of scores, in which common leaves cancel. A box is closed if every clause has a row that holds in it.
    Where argmax decides ties, decision b is ruled out by f_a > f_b, or f_a = f_b and a < b, whatever the goal says of 0; a row of
    both copies at 0 suffices, as b at x and b' at x' put d = f_b - f_b' on different sides of the tie.
    Sound? yes.   Complete? within one cell of all trees, where the rows of single copies are the goal's own.

    lines: S.   line: (R,) of each row.   clause: (R,) ascending.   strict: (R,).
    """

    lines: tuple[ScoreLine, ...]
    line: Integers
    clause: Integers
    strict: Booleans

    @classmethod
    def of(cls, goal: Goal, network: ComparedTrees, margin: Array) -> ClauseRows:
        """Return the rows. Raises ModelError for goals that are not about decisions."""
        (k,) = np.flatnonzero(margin)
        in_group = np.isin(np.arange(network.undecided.outputs), network.decision.groups[int(k)])
        sides = np.flatnonzero(in_group).tolist(), np.flatnonzero(~in_group).tolist()
        rows = goal.rows * margin[k]
        first, second = ({float(np.sign(v)) for v in column if v} for column in rows.T)
        if network.decision.odds or goal.constants.any() or len(first) > 1 or len(second) > 1 or first & second:
            raise ModelError(network.source or "model", "is a tree ensemble of classes, of which decisions alone are proved")
        (down, up), (down2, up2) = ((sides if -1.0 in signs else sides[::-1]) if signs else ([-1], []) for signs in (first, second))
        lines, entries, lowest = dict[ScoreLine, int](), list[tuple[int, int, bool]](), network.decision.lowest
        for clause, (b, b2) in enumerate(product(down, down2)):
            for (p, q), strict in zip(np.abs(rows).tolist(), goal.strict_rows.tolist(), strict=True):
                differences = [ScoreLine(over=b2, under=b, p=p, q=-q)] if p and q else []
                firsts = [ScoreLine(over=a, under=b, p=p, q=0.0) for a in up] if not q else []
                seconds = [ScoreLine(over=a, under=b2, p=0.0, q=q) for a in up2] if not p else []
                entries += [(lines.setdefault(line, len(lines)), clause, strict) for line in differences]
                entries += [(lines.setdefault(line, len(lines)), clause, line.over > line.under if lowest else strict)
                            for line in (*firsts, *seconds)]
        line, clauses, stricts = zip(*entries, strict=True)
        return cls(lines=tuple(lines), line=np.array(line), clause=np.array(clauses), strict=np.array(stricts))


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanRows:
    """A goal about a mean p of increasing functions of scores, as rows of three lines: p at x and at x', each with its sign in the
    goal's rows, and p(x') - p(x), or its negative, which has better bounds than the sum of the two.

    lines: (3, 2) of every score and of p.   row: (R,) of the goal.   shares: (R, 3).   constants, strict: (R,).
    """

    lines: Array
    row: Integers
    shares: Array
    constants: Array
    strict: Booleans

    @classmethod
    def of(cls, goal: Goal, network: MeanOfTrees, margin: Array) -> MeanRows:
        """Return the rows. Raises ModelError for goals with rows of other signs."""
        sign = float(margin[0]) * (-1.0 if network.below else 1.0)
        rows = goal.rows * sign
        signs = [{float(np.sign(v)) for v in column if v} or {0.0} for column in rows.T]
        first, second = (next(iter(s)) for s in signs)
        if any(len(s) > 1 for s in signs) or first * second > 0:
            raise ModelError(network.source or "model", "is a mean of trees' probabilities, of which this is not proved")
        entries = list[tuple[int, float, float, float]]()
        for r, (p, q) in enumerate(np.abs(rows).tolist()):
            common = min(p, q)
            entries += [(r, p, q, 0.0), *([(r, p - common, q - common, common)] if common else [])]
        table = np.array(entries)
        row = table[:, 0].astype(np.int64)
        lines = np.array([(first, 0.0), (0.0, second), (first, second)])
        return cls(lines=lines, row=row, shares=table[:, 1:], constants=goal.constants[row], strict=goal.strict_rows[row])


def odds_lines(network: ComparedTrees, *, rise: bool) -> tuple[ScoreLine, ...]:
    """Return the lines that bound a gap between two probabilities, for a fall from x to x' (a rise: the other way round).

    For every pair of classes a of the group and b outside, d = f_a - f_b:  -d(x),  d(x')  and  d(x') - d(x)  from below, which give
    the largest g(x), the least g(x') and the largest  g(x) - g(x')  (`encoders.trees.compared.least_margins`).
    """
    pairs = list(product(*network.sides))
    weights = ((0.0, -1.0), (1.0, 0.0), (1.0, -1.0)) if rise else ((-1.0, 0.0), (0.0, 1.0), (-1.0, 1.0))
    return tuple(ScoreLine(over=a, under=b, p=p, q=q) for p, q in weights for a, b in pairs)


def _line(sign: float, share: float) -> tuple[float, float]:
    return (-sign * share + 0.0, sign * (1 - share) + 0.0)
