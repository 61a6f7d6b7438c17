"""The inner loop of the search for tree ensembles: one goal over boxes of cells, depth first, in loops over flat lists.

Of every open box its trees are kept, without what the box cannot meet; halves are pruned from them, and bounded as they are: a line
p g + q g'  by the sum of what every tree's least leaf adds. A box is cut after the cell on which most of the bound depends, the sum
over the questions there of | least of the left branch - least of the right one |. Before a box is cut, points of it are tried:
counterexamples that are known, moved into the box, and then one value after the other changed for the better.

Rows are closed by combinations of lines, as `encoders.trees.twin.RowBounds` has them. They stand in clauses, all of which some row
has to close: one for scores, several for what is decided among classes (`encoders.trees.twin.ClauseRows`). Of a mean of functions
of scores the lines are filled in (`add_means`).
"""

from __future__ import annotations

import math
from typing import Any

from encoders.trees.compiled import compiled, narrow, real, room, whole
from encoders.trees.extremes import INFINITE, pruned
from encoders.trees.joint import holds
from verifair.engine.search.ensembles.cuts import cell_to_cut
from verifair.engine.search.ensembles.evened import EFFORT, evened, grown, room_to_even

GAIN_FACTOR, SMOOTHING = 1.5, 0.02
"""Evening out is tried where a bound lacks at most so many times what that gains mostly; and what the last gain counts of it."""
TRIES, SWEEPS, VALUES, PATH_NODES = 12, 2, 5, 6
"""Random points of a box that are tried, times that every variable of the best one is changed, and values that are tried of it;
nodes on the way of a point to a leaf, about."""
LOOSE, NARROW, SPARE, CURVED = 1 + 2.0**-36, 2.0**-44, 2.0**-22, 2.0**-45
"""What products may round, and more; how much longer windows are for that; what more they hold, of the largest ramp; and what the
logistic function may be off by."""


@compiled
def _at_point(
    begin: Any, end: Any, trees: Any, variable: Any, cut: Any, right: Any, hot: Any, sets: Any, adds: Any, lines: Any,
    base: Any, base_at: Any, point: Any, value: Any,
) -> None:
    """The lines (S,) at one point of cells."""
    for s in range(lines):
        value[s] = base[base_at + s]
    for t in range(begin, end):
        j = trees[2 * t]
        v = variable[j]
        while v >= 0:
            c, x = cut[j], point[v]
            to_left = holds(sets, c, x) if hot[v] > 0 else x <= c
            j = j + 1 if to_left else right[j]
            v = variable[j]
        k = cut[j] * lines
        for s in range(lines):
            value[s] += adds[k + s]


@compiled
def _log_odds(value: Any, begin: Any, inside: Any, outside: Any, above: Any) -> Any:
    """A number at most g, or -g where not `above`, from bounds of what every pair of classes differ by: log-sums in the places of
    the maximum over the side that it adds and the minimum over the other one (`encoders.trees.compared.least_margins`)."""
    largest, total = -INFINITE, 0.0
    for i in range(outside if above else inside):
        best, inner = -INFINITE, 0.0
        count = inside if above else outside
        for j in range(count):
            best = max(best, value[begin + (j * outside + i if above else i * outside + j)])
        for j in range(count):
            inner += math.exp(value[begin + (j * outside + i if above else i * outside + j)] - best)
        term = -best - math.log(inner)
        if term > largest:
            total = total * math.exp(largest - term) + 1.0
            largest = term
        else:
            total += math.exp(term - largest)
    return -largest - math.log(total)


@compiled
def _probability(odds: Any) -> Any:
    if odds < 0:
        power = math.exp(odds)
        return power / (1.0 + power)
    return 1.0 / (1.0 + math.exp(-odds))


@compiled
def _gap_row(value: Any, head: Any) -> Any:
    """A line that counts for a gap between probabilities, what is left of the gap allowed, and whether anything is.
    head: 0, classes inside and outside, the largest gap, and what rounding may take.

    sigma(u) - sigma(v)  for  u <= high, v >= low, u - v <= apart  is largest at the ends, or as near to u = apart / 2 as may be.
    """
    inside, outside = int(head[1]), int(head[2])
    pairs = inside * outside
    high, low = -_log_odds(value, 0, inside, outside, False), _log_odds(value, pairs, inside, outside, True)
    difference, row = -INFINITE, 2 * pairs
    for s in range(2 * pairs, 3 * pairs):
        if -value[s] > difference:
            difference, row = -value[s], s
    if difference > 0 and high - low > difference:
        high = min(max(difference / 2, low + difference), high)
        low = high - difference
    elif difference > 0:     # both ends count: the one at which the probability is steeper
        first, second = _probability(high), _probability(low)
        begin = 0 if first * (1 - first) > second * (1 - second) else pairs
        row = begin
        for s in range(begin, begin + pairs):
            if value[s] < value[row]:
                row = s
    largest = max(_probability(high) - _probability(low), 0.0) if difference > 0 else 0.0
    left = head[3] - largest - head[4]
    return row, left, left >= 0


@compiled
def _steepest(shift: Any, scale: Any, low: Any, high: Any, width: Any) -> Any:
    """How much a logistic function rises by in a window `width` long within low and high, at most: in that around its middle, or as
    near to it as may be, with room on both sides: large scores round where it ends."""
    slack = (abs(low) + abs(high)) * NARROW
    width = min(width * LOOSE, high - low) + slack
    top = min(max(shift + width / 2, low + width), high) + slack
    # never 0: float64 does not tell the ends of short windows apart, nor those of large scores
    return _probability(scale * (top - shift)) - _probability(scale * (top - width - 2 * slack - shift)) + CURVED


@compiled
def _flattest(curved: Any, shift: Any, scale: Any, low: Any, high: Any, width: Any) -> Any:
    """How much a function rises by, at least, from `high` or less to `low` or more, `width` or more: in the first or the last such
    window, for none is steep twice."""
    width = width / LOOSE - (abs(low) + abs(high)) * NARROW
    if not width > 0:
        return 0.0
    first, second = scale * (low - width - shift), scale * (low - shift)
    third, fourth = scale * (high - shift), scale * (high + width - shift)
    if curved:
        return min(_probability(second) - _probability(first), _probability(fourth) - _probability(third))
    return min(min(max(second, 0.0), 1.0) - min(max(first, 0.0), 1.0), min(max(fourth, 0.0), 1.0) - min(max(third, 0.0), 1.0))


@compiled
def _fall(head: Any, begin: Any, end: Any, low: Any, high: Any, drop: Any) -> Any:
    """How much functions begin ... end - 1 of a score may fall by in all while the score falls by `drop` within low and high, at
    most: in a window of that length around the middle of a logistic function, and in the best one that ends, or begins, where one
    of the ramps does, which follow one another; ramps that overlap as far as each of them is steep."""
    drop = min(drop * LOOSE, high - low) + (abs(low) + abs(high)) * NARROW
    fall, best, largest, before, passed, j = 0.0, 0.0, 0.0, 0.0, 0.0, begin
    for k in range(begin, end):
        kind, shift, scale, weight = head[5 * k + 1], head[5 * k + 2], head[5 * k + 3], head[5 * k + 4]
        if kind > 0:
            if kind > 1:
                fall += weight * min(scale * drop, 1.0)
            else:
                fall += weight * _steepest(shift, scale, low, high, drop)
            j = k + 1
            continue
        largest = max(largest, weight)
        stop = shift + 1 / scale
        top = min(stop, high)
        bottom = max(top - drop, low)
        while j < k and head[5 * j + 2] + 1 / head[5 * j + 3] <= bottom:
            passed += head[5 * j + 4]
            j += 1
        if top > low:
            part = head[5 * j + 4] * min(max(head[5 * j + 3] * (bottom - head[5 * j + 2]), 0.0), 1.0)
            full = weight * min(max(scale * (top - shift), 0.0), 1.0) if stop > high else weight
            best = max(best, before + full - passed - part)
        before += weight
        if stop >= high:
            break
    before, passed, j = 0.0, 0.0, begin
    for k in range(begin, end):
        shift, scale, weight = head[5 * k + 2], head[5 * k + 3], head[5 * k + 4]
        if head[5 * k + 1] > 0:
            j = k + 1
            continue
        if shift >= high:
            break
        bottom = max(shift, low)
        top = min(bottom + drop, high)
        while j < end and head[5 * j + 2] + 1 / head[5 * j + 3] <= top:
            passed += head[5 * j + 4]
            j += 1
        full = head[5 * j + 4] * min(max(head[5 * j + 3] * (top - head[5 * j + 2]), 0.0), 1.0) if j < end else 0.0
        part = weight * min(max(scale * (bottom - shift), 0.0), 1.0)
        best = max(best, passed + full - before - part)
        before += weight
    return fall + best + SPARE * largest


@compiled
def _rise(head: Any, begin: Any, end: Any, low: Any, high: Any, gain: Any) -> Any:
    """How much functions begin ... end - 1 of a score rise by in all, at least, while it rises by `gain` or more, from `high` or
    less to `low` or more."""
    rise = 0.0
    for k in range(begin, end):
        rise += head[5 * k + 4] * _flattest(head[5 * k + 1] == 1, head[5 * k + 2], head[5 * k + 3], low, high, gain)
    return rise


@compiled
def add_means(value: Any, head: Any) -> None:
    """Fill in the last lines, of a mean of functions of scores, from those of every score (`encoders.trees.twin.MeanRows`).

    head: 1, how many scores there are, and functions, what is added to them, whether their sums round, and what rounding may take;
    of x and of x' 1 for the mean there, -1 for its negative, and 1 where both are asked; from 10 on, of each function the score, 1
    if it is logistic, 2 for a ramp of a score whose ramps overlap, the shift, the scale and the weight, ramps that follow one
    another behind all others of their score, in their order; then where each score's end, and 1 for scores that are logistic
    functions of their lines. Functions at 0 and 1 alone are added up exactly: what is on a plateau is there.
    """
    scores, functions = int(head[1]), int(head[2])
    chances = 10 + 5 * functions + scores
    for c in range(3):
        begin, kind, total, rounded = c * scores, head[6 + c], 0.0, head[4] > 0
        if c == 2:
            upper_at, lower_at = (scores, 0) if head[6] > 0 else (0, scores)
            k = 2
            for i in range(scores if kind > 0 else 0):
                end = int(head[10 + 5 * functions + i])
                low, high = value[lower_at + i], -value[upper_at + i]
                difference = min(-value[begin + i], high - low)
                if head[chances + i] > 0 and difference < 0:
                    difference = min(CURVED - _flattest(head[chances + i] > 0, 0.0, 1.0, low, high, -difference), 0.0)
                    low, high = _probability(low) - CURVED, _probability(high) + CURVED
                elif head[chances + i] > 0 and difference > 0:
                    difference = _steepest(0.0, 1.0, low, high, difference)
                    low, high = _probability(low) - CURVED, _probability(high) + CURVED
                if difference > 0:
                    fall = _fall(head, k, end, low, high, difference)
                    total -= fall * LOOSE + head[5] if fall != 0 else 0.0
                elif difference < 0:
                    total += max(_rise(head, k, end, low, high, -difference) / LOOSE - head[5], 0.0)
                k = end
        elif kind != 0:
            for k in range(functions):
                offset = 10 + 5 * k
                score, slack = kind * value[begin + int(head[offset])], 0.0
                if head[chances + int(head[offset])] > 0:
                    score, slack = _probability(score), head[offset + 3] * CURVED
                scaled = head[offset + 3] * (score - head[offset + 2])
                if head[offset + 1] == 1:
                    total += head[offset + 4] * _probability(scaled)
                    rounded = True
                elif scaled >= LOOSE + slack:
                    total += head[offset + 4]
                elif scaled > -slack:
                    total += head[offset + 4] * min(max(scaled, 0.0), 1.0)
                    rounded = True
            total = kind * (total + head[3])
            if rounded:
                total -= head[5]
        value[3 * scores + c] = total


@compiled
def means_of(least: Any, count: Any, scores: Any, even: Any, odd: Any) -> Any:
    """The mean at x' and its difference from that at x, (N, 2), from lines (N, 3, m) of all scores. even, odd: heads, in turns."""
    value, result = real(3 * scores + 3), real(2 * count)
    for k in range(count):
        for s in range(3 * scores):
            value[s] = least[3 * scores * k + s]
        add_means(value, even if k % 2 == 0 else odd)
        result[2 * k], result[2 * k + 1] = value[3 * scores + 1], value[3 * scores + 2]
    return result


@compiled
def _best_row(
    value: Any, lines: Any, rows: Any, shares: Any, constants: Any, charges: Any, sizes: Any, strict: Any, clause: Any, head: Any
) -> Any:
    """The row with the largest value for its size, of lines (S,), its value, and whether it is met: at 0 a strict one is not.
    Of several clauses, those of the one that is farthest from being met. head: what is made of lines: a gap of probabilities under
    softmax, or a mean, whose own lines are filled in, else nothing."""
    if len(head) > 0:
        if head[0] == 0:
            return _gap_row(value, head)
        add_means(value, head)
    best, best_value, best_ratio = 0, -INFINITE, -INFINITE
    worst, worst_value, worst_holds = -1, INFINITE, True
    for r in range(rows):
        if r > 0 and clause[r] != clause[r - 1]:
            holds = best_value > 0 or (best_value == 0 and strict[best] == 0)
            if best_value < worst_value or (best_value == worst_value and worst_holds and not holds):
                worst, worst_value, worst_holds = best, best_value, holds
            best, best_value, best_ratio = r, -INFINITE, -INFINITE
        total = constants[r] - charges[r]
        for s in range(lines):
            if shares[r * lines + s] != 0:
                total += shares[r * lines + s] * value[s]
        relative = total / sizes[r]
        if relative > best_ratio or (relative == best_ratio and strict[r] < strict[best]):
            best, best_value, best_ratio = r, total, relative
    holds = best_value > 0 or (best_value == 0 and strict[best] == 0)
    if worst >= 0 and (worst_value < best_value or (worst_value == best_value and holds)):
        return worst, worst_value, worst_holds
    return best, best_value, holds


@compiled
def _try_points(
    begin: Any, end: Any, trees: Any, variable: Any, cut: Any, right: Any, hot: Any, sets: Any, adds: Any, lines: Any,
    base: Any, base_at: Any, first: Any, last: Any, at: Any, rows: Any, shares: Any, constants: Any, charges: Any, sizes: Any,
    strict: Any, clause: Any, head: Any, pool: Any, hints: Any, seed: Any, point: Any, best: Any, value: Any,
) -> Any:
    """Try points of a box: those known, moved into it, random ones, and what changing single values makes of the best one. Returns
    whether one was met at which no row is, left in `best`, the random state, and how many points were tried."""
    count, tried = len(hot), 0 * begin
    score = INFINITE
    for k in range(hints + TRIES):
        for v in range(count):
            a, b = first[at + v], last[at + v]
            if k < hints:
                x = pool[k * count + v]
                point[v] = a if x < a else b if x > b else x
            else:
                seed = (seed * 1103515245 + 12345) % 2147483648
                point[v] = a + (seed >> 8) % (b - a + 1)
        _at_point(begin, end, trees, variable, cut, right, hot, sets, adds, lines, base, base_at, point, value)
        _, row_value, holds = _best_row(value, lines, rows, shares, constants, charges, sizes, strict, clause, head)
        tried += 1
        if row_value < score or not holds:
            score = row_value
            for v in range(count):
                best[v] = point[v]
            if not holds:
                return True, seed, tried
    for v in range(count):
        point[v] = best[v]
    for _ in range(SWEEPS):
        previous = score
        for v in range(count):
            a, b = first[at + v], last[at + v]
            if a == b:
                continue
            exhaustive = b - a < VALUES
            for k in range(b - a + 1 if exhaustive else VALUES):
                if exhaustive:
                    x = a + k
                else:
                    seed = (seed * 1103515245 + 12345) % 2147483648
                    x = a + (seed >> 8) % (b - a + 1)
                if x == best[v]:
                    continue
                point[v] = x
                _at_point(begin, end, trees, variable, cut, right, hot, sets, adds, lines, base, base_at, point, value)
                _, row_value, holds = _best_row(value, lines, rows, shares, constants, charges, sizes, strict, clause, head)
                tried += 1
                if row_value < score or not holds:
                    score, best[v] = row_value, x
                    if not holds:
                        return True, seed, tried
            point[v] = best[v]
        if score >= previous:
            break
    return False, seed, tried


@compiled
def _bounded(
    begin: Any, end: Any, used: Any, top: Any, tree_at: Any, variable: Any, cut: Any, right: Any, hot: Any, sets: Any,
    adds: Any, lines: Any, low: Any, high: Any, zero: Any, before: Any, before_at: Any, rest: Any, rest_at: Any, value: Any,
    least: Any, stack: Any, rows: Any, shares: Any, constants: Any, charges: Any, sizes: Any, strict: Any, clause: Any, head: Any,
    losses: Any, gain: Any, notes: Any,
) -> Any:
    """Prune trees begin ... end - 1 to a box, behind `used` trees that end at node `top`, and bound the row nearest to closing it.

    before: (S,) what all but these trees add to the lines.   rest: (S,) filled with what all but those add of which the box still
    meets several leaves: these are kept. Returns how many trees there are then, and where they end; the row, its bound by least
    leaves, the better of that and the evened one, the row as a leaf names it, and whether the box is closed; what evening gains,
    and the nodes that it took.
    """
    for s in range(lines):
        rest[rest_at + s], value[s] = before[before_at + s], before[before_at + s]
    first, start = used, top
    for t in range(begin, end):
        stop = pruned(tree_at[2 * t], variable, cut, right, variable, cut, right, top, low, high, zero, hot, sets, adds,
                      lines, least, stack)
        for s in range(lines):
            value[s] += least[s]
        if stop == top + 1:
            for s in range(lines):
                rest[rest_at + s] += least[s]
        else:
            tree_at[2 * used], tree_at[2 * used + 1] = top, stop
            used, top = used + 1, stop
    row, simple, closed = _best_row(value, lines, rows, shares, constants, charges, sizes, strict, clause, head)
    bound, code, effort = simple, row, 0 * row
    if not closed and len(losses) > 0 and simple + GAIN_FACTOR * gain > 0:
        effort = EFFORT * (top - start)
        evened_bound = constants[row] - charges[row] - losses[row] + evened(
            first, used, tree_at, variable, cut, right, hot, sets, adds, lines, shares, row * lines, low, high, zero,
            losses[row] / 16, notes)
        for s in range(lines):
            evened_bound += shares[row * lines + s] * rest[rest_at + s]
        gained = max(evened_bound - simple, 0.0)
        gain = gained if gain == INFINITE else SMOOTHING * gained + (1 - SMOOTHING) * gain
        if evened_bound > simple:
            bound, code, closed = evened_bound, rows + row, evened_bound > 0
    return used, top, row, simple, bound, code, closed, gain, effort


@compiled
def _add_leaf(closed: Any, bounds: Any, leaves: Any, box: Any, node: Any, code: Any, certified: Any, bound: Any) -> Any:
    """Put a closed leaf behind so many others; returns their lists."""
    closed, bounds = room(closed, 4 * leaves + 4), room(bounds, leaves + 1)
    closed[4 * leaves], closed[4 * leaves + 1], closed[4 * leaves + 2], closed[4 * leaves + 3] = box, node, code, certified
    bounds[leaves] = bound
    return closed, bounds


@compiled
def _add_open(
    left: Any, lows: Any, highs: Any, opens: Any, box: Any, node: Any, is_constant: Any, low: Any, high: Any, at: Any, count: Any
) -> Any:
    """Put an open leaf, the box at `at`, behind so many others; returns their lists."""
    left, lows, highs = room(left, 3 * opens + 3), room(lows, (opens + 1) * count), room(highs, (opens + 1) * count)
    left[3 * opens], left[3 * opens + 1], left[3 * opens + 2] = box, node, is_constant
    for v in range(count):
        lows[opens * count + v], highs[opens * count + v] = low[at + v], high[at + v]
    return left, lows, highs


@compiled
def _add_point(points: Any, points_cell: Any, number: Any, box: Any, point: Any, at: Any, count: Any) -> Any:
    """Put a point of a box behind so many others; returns their lists."""
    points, points_cell = room(points, number + 1), room(points_cell, (number + 1) * count)
    points[number] = box
    for v in range(count):
        points_cell[number * count + v] = point[at + v]
    return points, points_cell


@compiled
def explore(
    variable: Any, cut: Any, right: Any, root: Any, sets: Any, hot: Any, cells: Any, adds: Any, lines: Any, base: Any,
    rows: Any, shares: Any, constants: Any, charges: Any, sizes: Any, strict: Any, clause: Any,
    enough: Any, head: Any, losses: Any,
    boxes: Any, first: Any, last: Any, wanted: Any, extra: Any, limit: Any, owner: Any, owners: Any, stop: Any, budget: Any,
    pool: Any, added: Any, seed: Any,
) -> Any:
    """Look for a proof of one goal, or a point against it, in N boxes, one after the other.

    variable ... cells: `Preorder`.   adds, lines, base: `LineTrees`.   rows: R, of shares (R, S) of the lines, constants, charges
    and sizes (R,).   strict: (R,) 1 where a row has to be positive.   clause: (R,) the number of its clause, ascending.
    enough: (R,) what it has to exceed to hold in float32.   head: see `_best_row`.   losses: (R,) what rounding may cost bounds of
    `evened`, which closes boxes as row R + r; nothing where it is not asked.
    first, last: (N, V) cells.   limit: (N,) boxes that each may take, `budget`: all.   stop: 1 where any point will do.
    wanted: (N,) 1 where leaves that do not hold in float32 are cut up to `extra` (N,) times more, 2 where they have to hold.
    owner: (N,) of `owners`: when there is a point for one, its other boxes are left.
    pool: (K, V) points to begin with, a ring; added: how many were put into it so far.

    Returns cuts (box, node, variable, cell; the halves of a box's k-th cut are its nodes 2 k + 1 and 2 k + 2), closed leaves (box,
    node, row, 1 if float32) with their bounds, open leaves (box, node, 1 if no tree tells its points apart) with their cells,
    points (box) with their cells, how many boxes each took, bounds of the whole boxes, `added` and `seed` as left, and the nodes
    looked at.
    """
    count, trees, size = len(hot), len(root), len(variable)
    zero = whole(1)[0]      # 0, but no literal: numba compiles what is called with a literal once more
    notes = room_to_even(zero + 1, cells)
    if len(losses) > 0:
        notes = grown(room_to_even(trees, cells), size, count)
    start = notes[10]
    score, seen, touched = real(start[count]), whole(start[count]), whole(start[count])
    # The trees, and behind them those pruned from them of all boxes that wait: node by node, and where each begins and ends.
    a_variable, a_cut, a_right, least_at = narrow(3 * size), narrow(3 * size), narrow(3 * size), real(3 * size)
    tree_at = whole(10 * trees + 2)
    for j in range(size):
        a_variable[j], a_cut[j], a_right[j] = variable[j], cut[j], right[j]
    for t in range(trees):
        tree_at[2 * t], tree_at[2 * t + 1] = root[t], root[t + 1] if t + 1 < trees else size
    stack, least, value = whole(2 * size + 2), real(lines), real(lines)
    point, best = whole(count), whole(count)
    item, bounds, low, high = whole(8 * 64), real(lines * 64), whole(count * 64), whole(count * 64)
    worst = real(64)
    cuts, splits = whole(4 * 64), 0
    closed, closed_bound, leaves = whole(4 * 64), real(64), zero
    left, left_low, left_high, opens = whole(3 * 64), whole(count * 64), whole(count * 64), zero
    points, points_cell, found_points = whole(64), whole(count * 64), zero
    looked, whole_bound, done = whole(boxes), real(boxes), whole(owners)
    spent, stamp = 0, 0
    half_low, half_high = whole(count), whole(count)
    side_trees, side_end, side_row = whole(3), whole(3), whole(3)
    side_bound, side_value = real(2 * lines), real(2)
    gain = INFINITE
    for k in range(boxes):
        pending, number = 0, 0
        give_up = spent >= budget or done[owner[k]] == 1
        whole_bound[k] = -INFINITE
        if not give_up:
            for v in range(count):
                low[v], high[v] = first[k * count + v], last[k * count + v]
            used, top, row, simple, bound, code, proved, gain, effort = _bounded(
                zero, trees, trees, size, tree_at, a_variable, a_cut, a_right, hot, sets, adds, lines, low, high, zero,
                base, zero, bounds, zero, value, least, stack, rows, shares, constants, charges, sizes, strict, clause, head,
                losses, gain, notes)
            item[0], item[1], item[2], item[3], item[4], item[5] = trees, used - trees, top, used, 0, row
            whole_bound[k], worst[0], pending = simple, bound, 1
            looked[k] += 1
            spent += trees + top - size + effort
            certified = bound > enough[row]
            if proved and (certified or wanted[k] == 0 or (wanted[k] == 1 and (extra[k] <= 0 or bound <= 0))):
                closed, closed_bound = _add_leaf(closed, closed_bound, leaves, k, zero, code, 1 if certified else 0, bound)
                leaves, pending = leaves + 1, 0
            elif proved and wanted[k] == 1:
                extra[k] -= 1
            elif stop == 1:
                hints = added if added < len(pool) // count else len(pool) // count
                refuted, seed, tried = _try_points(
                    trees, used, tree_at, a_variable, a_cut, a_right, hot, sets, adds, lines, bounds, zero, low, high,
                    zero, rows, shares, constants, charges, sizes, strict, clause, head, pool, hints, seed, point, best, value)
                spent += (used - trees) * PATH_NODES * tried
                if refuted:
                    points, points_cell = _add_point(points, points_cell, found_points, k, best, zero, count)
                    place = added % (len(pool) // count)
                    for v in range(count):
                        pool[place * count + v] = best[v]
                    found_points, added = found_points + 1, added + 1
                    give_up, done[owner[k]] = True, 1
        while pending > 0 and not give_up:
            if spent >= budget or looked[k] >= limit[k]:
                give_up = True
                break
            pending -= 1
            at = 8 * pending
            begin, n, top, used, node, row = item[at], item[at + 1], item[at + 2], item[at + 3], item[at + 4], item[at + 5]
            box, sums = pending * count, pending * lines
            if n == 0 and wanted[k] != 2 and (worst[pending] > 0 or (worst[pending] == 0 and strict[row] == 0)):
                closed, closed_bound = _add_leaf(closed, closed_bound, leaves, k, node, row, zero, worst[pending])
                leaves += 1
                continue
            if n == 0:       # no tree tells the points of the box apart
                left, left_low, left_high = _add_open(left, left_low, left_high, opens, k, node, zero + 1, low, high, box, count)
                points, points_cell = _add_point(points, points_cell, found_points, k, low, box, count)
                opens, found_points = opens + 1, found_points + 1
                if stop == 1:
                    give_up, done[owner[k]] = True, 1
                continue
            v, cell, stamp, effort = cell_to_cut(
                begin, begin + n, tree_at, a_variable, a_cut, a_right, least_at, hot, sets, adds, lines, shares, row * lines,
                low, high, box, score, seen, touched, stamp, head, losses, notes)
            spent += effort
            cuts = room(cuts, 4 * splits + 4)
            cuts[4 * splits], cuts[4 * splits + 1], cuts[4 * splits + 2], cuts[4 * splits + 3] = k, node, v, cell
            splits += 1
            spent += 3 * (top - tree_at[2 * begin])     # they were read for the cut, and are for both halves
            # Both halves, pruned from the trees of the box, which stay where they are until both are done with.
            for u in range(count):
                half_low[u], half_high[u] = low[box + u], high[box + u]
            side_trees[0], side_end[0] = used, top
            stop_at, tree_at = top + 2 * (tree_at[2 * (begin + n) - 1] - tree_at[2 * begin]), room(tree_at, 2 * used + 4 * n)
            a_variable, a_cut, a_right = room(a_variable, stop_at), room(a_cut, stop_at), room(a_right, stop_at)
            least_at = room(least_at, stop_at)
            for side in range(2):
                if side == 0:
                    half_high[v] = cell
                else:
                    half_low[v], half_high[v] = cell + 1, high[box + v]
                used, top, row, simple, bound, code, proved, gain, effort = _bounded(
                    begin, begin + n, used, top, tree_at, a_variable, a_cut, a_right, hot, sets, adds, lines, half_low,
                    half_high, zero, bounds, sums, side_bound, side * lines, value, least, stack, rows, shares, constants,
                    charges, sizes, strict, clause, head, losses, gain, notes)
                looked[k] += 1
                spent += effort
                side_row[side], side_value[side] = row, bound
                certified = bound > enough[row]
                if proved and (certified or wanted[k] == 0 or (wanted[k] == 1 and (extra[k] <= 0 or bound <= 0))):
                    closed, closed_bound = _add_leaf(
                        closed, closed_bound, leaves, k, 2 * number + 1 + side, code, 1 if certified else 0, bound)
                    leaves += 1
                    side_row[side] = -1
                    used, top = side_trees[side], side_end[side]
                elif proved and wanted[k] == 1:
                    extra[k] -= 1
                side_trees[side + 1], side_end[side + 1] = used, top
            item, worst, bounds = room(item, 8 * pending + 16), room(worst, pending + 2), room(bounds, (pending + 2) * lines)
            low, high = room(low, (pending + 2) * count), room(high, (pending + 2) * count)
            old_high = high[box + v]
            for u in range(count):
                half_low[u], half_high[u] = low[box + u], high[box + u]
            later = 0 if side_value[0] > side_value[1] else 1       # the half that is farther from closing comes first
            for order in range(2):
                side = later if order == 0 else 1 - later
                if side_row[side] < 0:
                    continue
                at = 8 * pending
                item[at], item[at + 1] = side_trees[side], side_trees[side + 1] - side_trees[side]
                item[at + 2], item[at + 3], item[at + 4] = top, used, 2 * number + 1 + side
                item[at + 5], worst[pending] = side_row[side], side_value[side]
                for u in range(count):
                    low[pending * count + u], high[pending * count + u] = half_low[u], half_high[u]
                if side == 0:
                    high[pending * count + v] = cell
                else:
                    low[pending * count + v], high[pending * count + v] = cell + 1, old_high
                for s in range(lines):
                    bounds[pending * lines + s] = side_bound[side * lines + s]
                pending += 1
            number += 1
        if give_up and looked[k] == 0:
            left, left_low, left_high = _add_open(left, left_low, left_high, opens, k, zero, zero, first, last, k * count, count)
            opens += 1
        for i in range(pending if give_up else 0):
            left, left_low, left_high = _add_open(
                left, left_low, left_high, opens, k, item[8 * i + 4], zero, low, high, i * count, count)
            opens += 1
    return (cuts[: 4 * splits], closed[: 4 * leaves], closed_bound[:leaves], left[: 3 * opens], left_low[: opens * count],
            left_high[: opens * count], points[:found_points], points_cell[: found_points * count], looked, whole_bound,
            added, seed, spent)
