"""A tighter bound of a sum over trees than the sum of their smallest leaves, for the search (the checker has its own).

For one variable after the other, the least values of the trees that use it are evened out in each of its cells: every tree is given
the mean of all of them less its own, so that all corrections add up to 0. In the end the trees' minima are summed up (max-sum
diffusion: Werner, A Linear Programming Approach to Max-Sum Problem, PAMI 2007).
Sound? up to rounding, which the caller allows for; the checker proves every box again that it closes.
"""

from __future__ import annotations

from typing import Any

from encoders.trees.compiled import compiled, narrow, real, room, whole
from encoders.trees.extremes import INFINITE
from encoders.trees.joint import holds

EFFORT = 8
"""What evening out takes for a node, in reads of a node."""


@compiled
def room_to_even(trees: Any, cells: Any) -> Any:
    """Return work arrays of `evened` for so many trees, and the cells (V,) of variables: the first and last stretches of leaves;
    their values; where the leaves of a tree begin; the variables that it uses; the least leaf in every stretch; the stretch of a
    tree that holds each one; least leaves of 1, 2, 4, ... stretches; log2; the path down a tree; where the cells of each variable
    begin, the stretch of each cell, the last cell of each stretch, and numbers of stretches.

    A stretch is a run of cells that no tree tells apart; of categories each is one."""
    count, widest, levels = len(cells), 1, 1
    start = whole(count + 1)
    for v in range(count):
        widest, start[v + 1] = max(widest, cells[v]), start[v] + cells[v]
    logs = whole(widest + 1)
    for width in range(2, widest + 1):
        logs[width] = logs[width // 2] + 1
        levels = logs[width] + 1
    return (narrow(count), narrow(count), real(1), whole(trees + 1), whole(trees * count), real((trees + 1) * widest),
            whole(trees * widest), real(levels * widest), logs, whole(5), start, narrow(start[count]), narrow(start[count]),
            whole(count))


@compiled
def grown(notes: Any, nodes: Any, count: Any) -> Any:
    """Return the same work arrays for so many nodes of the trees, of `count` variables."""
    low, high, value, begins, asks, least, place, table, logs, trail, start, stretch, edge, widths = notes
    return (room(low, nodes * count), room(high, nodes * count), room(value, nodes), begins, asks, least, place, table, logs,
            room(trail, 5 * nodes), start, stretch, edge, widths)


@compiled
def _find_stretches(
    begin: Any, end: Any, trees: Any, variable: Any, cut: Any, hot: Any, first: Any, last: Any, at: Any, notes: Any
) -> None:
    """Find the stretches of cells that the trees tell apart in the box at `at`: 1 of a variable that none of them asks."""
    start, stretch, edge, widths = notes[10], notes[11], notes[12], notes[13]
    for v in range(len(hot)):
        widths[v] = 1
        for x in range(start[v] + first[at + v], start[v] + last[at + v] + 1 if hot[v] == 0 else 0):
            stretch[x] = 0
    for j in range(trees[2 * begin], trees[2 * end - 1]):
        v = variable[j]
        if v >= 0 and hot[v] == 0:
            stretch[start[v] + cut[j]] = 1
        elif v >= 0:
            widths[v] = last[at + v] - first[at + v] + 1
    for v in range(len(hot)):
        if hot[v] > 0:
            continue
        for x in range(start[v] + first[at + v], start[v] + last[at + v] + 1):
            is_end, stretch[x] = stretch[x], widths[v] - 1
            if is_end:
                edge[start[v] + widths[v] - 1] = x - start[v]
                widths[v] += 1


@compiled
def leaves_of(
    begin: Any, end: Any, trees: Any, variable: Any, cut: Any, right: Any, hot: Any, sets: Any, adds: Any, lines: Any,
    shares: Any, share: Any, first: Any, last: Any, at: Any, notes: Any,
) -> None:
    """Write the stretches of all leaves, variable by variable (for categories the place of their set in `low`, -1 for all), and the
    value of each leaf."""
    _find_stretches(begin, end, trees, variable, cut, hot, first, last, at, notes)
    low, high, value, begins, asks, _, _, _, _, trail, start, stretch, _, widths = notes
    count, stride, leaves = len(hot), trees[2 * end - 1] - trees[2 * begin], 0
    ends = whole(2 * count)
    for t in range(begin, end):
        base, depth, j = (t - begin) * count, 0, trees[2 * t]
        begins[t - begin] = leaves
        for v in range(count):
            asks[base + v], a, b = 0, first[at + v], last[at + v]
            ends[2 * v], ends[2 * v + 1] = (a, b) if hot[v] == 0 else (-1, b)
        while True:
            v, c = variable[j], cut[j]
            if v >= 0:
                asks[base + v], k = 1, 5 * depth
                trail[k], trail[k + 1], trail[k + 2], trail[k + 3], trail[k + 4] = right[j], v, c, ends[2 * v], ends[2 * v + 1]
                if hot[v] == 0:
                    ends[2 * v + 1] = min(ends[2 * v + 1], c)
                else:
                    ends[2 * v] = c
                depth, j = depth + 1, j + 1
                continue
            value[leaves] = 0.0
            for s in range(lines):
                value[leaves] += shares[share + s] * adds[c * lines + s]
            for v in range(count):
                if hot[v] > 0:
                    low[v * stride + leaves] = ends[2 * v]
                elif widths[v] > 1:
                    low[v * stride + leaves] = stretch[start[v] + ends[2 * v]]
                    high[v * stride + leaves] = stretch[start[v] + ends[2 * v + 1]]
            leaves += 1
            while depth > 0 and trail[5 * depth - 5] < 0:     # both branches are done
                depth -= 1
                v = trail[5 * depth + 1]
                ends[2 * v], ends[2 * v + 1] = trail[5 * depth + 3], trail[5 * depth + 4]
            if depth == 0:
                break
            k = 5 * depth - 5
            v, j, trail[k] = trail[k + 1], trail[k], -1
            if hot[v] == 0:
                ends[2 * v], ends[2 * v + 1] = max(trail[k + 3], trail[k + 2] + 1), trail[k + 4]
            else:
                ends[2 * v] = trail[k + 2] + hot[v]
    begins[end - begin] = leaves


@compiled
def evened(
    begin: Any, end: Any, trees: Any, variable: Any, cut: Any, right: Any, hot: Any, sets: Any, adds: Any, lines: Any,
    shares: Any, share: Any, first: Any, last: Any, at: Any, small: Any, notes: Any,
) -> Any:
    """Return a lower bound of the sum of trees begin ... end - 1 in the row at `share`, in the box at `at`.

    small: a tree whose cells differ by no more counts as independent of the variable.   notes: arrays of `room_to_even`, `grown`
    for all nodes of these trees. What no leaf of a tree tells apart is one stretch of its own; a leaf is the union of two runs
    of 2^k of them.
    """
    if end == begin:
        return 0.0
    low, high, value, begins, asks, least, place, table, logs, _, _, _, _, widths = notes
    count, stride, number = len(hot), trees[2 * end - 1] - trees[2 * begin], end - begin
    leaves_of(begin, end, trees, variable, cut, right, hot, sets, adds, lines, shares, share, first, last, at, notes)
    for v in range(count):
        a, width = first[at + v], widths[v]
        if width == 1:
            continue
        asking, sums, row = 0, number * width, v * stride
        for x in range(sums, sums + width):
            least[x] = 0.0
        for t in range(number):
            base, stretches = t * width, width
            if asks[t * count + v] == 0:
                continue
            if hot[v] == 0:
                for x in range(base, base + width):
                    place[x] = 0
                for leaf in range(begins[t], begins[t + 1]):
                    place[base + low[row + leaf]] = 1
                place[base] = 0
                for x in range(base + 1, base + width):
                    place[x] += place[x - 1]
                stretches = place[base + width - 1] + 1
                levels = logs[stretches]
                for i in range((levels + 1) * stretches):
                    table[i] = INFINITE
                for leaf in range(begins[t], begins[t + 1]):
                    start, stop, cost = place[base + low[row + leaf]], place[base + high[row + leaf]], value[leaf]
                    k = logs[stop - start + 1]
                    start, stop = k * stretches + start, k * stretches + stop + 1 - (1 << k)
                    table[start], table[stop] = min(table[start], cost), min(table[stop], cost)
                for k in range(levels, 0, -1):
                    for i in range(stretches + 1 - (1 << k)):
                        cost, start = table[k * stretches + i], (k - 1) * stretches + i
                        stop = start + (1 << (k - 1))
                        table[start], table[stop] = min(table[start], cost), min(table[stop], cost)
            else:
                for x in range(width):
                    place[base + x], table[x] = x, INFINITE
                for leaf in range(begins[t], begins[t + 1]):
                    for x in range(width):
                        if value[leaf] < table[x] and (low[row + leaf] < 0 or holds(sets, low[row + leaf], a + x)):
                            table[x] = value[leaf]
            lowest, highest = INFINITE, -INFINITE
            for x in range(stretches):
                least[base + x] = table[x]
                lowest, highest = min(lowest, table[x]), max(highest, table[x])
            if highest - lowest > small:
                asking += 1
                for x in range(width):
                    least[sums + x] += least[base + place[base + x]]
            else:
                asks[t * count + v] = 0
        if asking < 2:
            continue
        for x in range(sums, sums + width):
            least[x] /= asking
        for t in range(number):
            base = t * width
            if asks[t * count + v] == 0:
                continue
            stretches = place[base + width - 1] + 1
            for x in range(stretches):
                table[x] = INFINITE
            for x in range(width):
                start = place[base + x]
                table[start] = min(table[start], least[sums + x] - least[base + start])
            if hot[v] == 0:
                for k in range(1, logs[stretches] + 1):
                    for i in range(stretches + 1 - (1 << k)):
                        start = (k - 1) * stretches + i
                        table[k * stretches + i] = min(table[start], table[start + (1 << (k - 1))])
                for leaf in range(begins[t], begins[t + 1]):
                    start, stop = place[base + low[row + leaf]], place[base + high[row + leaf]]
                    k = logs[stop - start + 1]
                    value[leaf] += min(table[k * stretches + start], table[k * stretches + stop + 1 - (1 << k)])
            else:
                for leaf in range(begins[t], begins[t + 1]):
                    smallest = INFINITE
                    for x in range(width):
                        if table[x] < smallest and (low[row + leaf] < 0 or holds(sets, low[row + leaf], a + x)):
                            smallest = table[x]
                    value[leaf] += smallest
    total = 0.0
    for t in range(number):
        lowest = INFINITE
        for leaf in range(begins[t], begins[t + 1]):
            lowest = min(lowest, value[leaf])
        total += lowest
    return total
