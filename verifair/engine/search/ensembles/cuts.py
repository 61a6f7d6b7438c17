"""Where the search for tree ensembles cuts a box of cells."""

from __future__ import annotations

from typing import Any

from encoders.trees.compiled import compiled
from encoders.trees.extremes import INFINITE
from encoders.trees.joint import holds
from verifair.engine.search.ensembles.evened import EFFORT, leaves_of

SMALL = 1e-6
"""The least gain of a half in the product of both (Achterberg 2007, section 5.2)."""


@compiled
def _score_cuts(
    begin: Any, end: Any, tree_at: Any, variable: Any, cut: Any, right: Any, least_at: Any, hot: Any, sets: Any, adds: Any,
    lines: Any, line: Any, low: Any, high: Any, at: Any, start: Any, score: Any, seen: Any, touched: Any, stamp: Any,
) -> Any:
    """Add up, for each cell at which the box at `at` can be cut, how much of the line's bound depends on it. Returns how many such
    cells there are; `touched` says which: a variable's cells begin at `start`, and `seen` holds `stamp` there."""
    keys = 0
    for t in range(begin, end):
        for j in range(tree_at[2 * t + 1] - 1, tree_at[2 * t] - 1, -1):
            v = variable[j]
            if v == -1:
                least_at[j] = adds[cut[j] * lines + line]
                continue
            first, second = least_at[j + 1], least_at[right[j]]
            difference = first - second
            least_at[j] = first
            if difference > 0:
                least_at[j] = second
            else:
                difference = -difference
            c, ordered = cut[j], hot[v] == 0
            for x in range(c if ordered else low[at + v], c + 1 if ordered else high[at + v]):
                if ordered or holds(sets, c, x) != holds(sets, c, x + 1):
                    key = start[v] + x
                    if seen[key] != stamp:
                        seen[key], score[key], touched[keys] = stamp, 0.0, key
                        keys += 1
                    score[key] += difference
    return keys


@compiled
def _largest(score: Any, touched: Any, keys: Any) -> Any:
    """The first of the cells touched that has the largest score."""
    best = touched[0]
    for i in range(1, keys):
        if score[touched[i]] > score[best]:
            best = touched[i]
    return best


@compiled
def _best_cut(
    begin: Any, end: Any, trees: Any, variable: Any, cut: Any, right: Any, hot: Any, sets: Any, adds: Any, lines: Any,
    shares: Any, share: Any, first: Any, last: Any, at: Any, notes: Any,
) -> Any:
    """The variable and its cell at which a cut raises the bounds of both halves most: the largest product of what the row at
    `share` gains in either half, as the sum of the trees' least leaves there (strong branching: Achterberg, Constraint Integer
    Programming, 2007, section 5.4). -1 and -1 if no cut gains anything. notes: see `evened`."""
    low, high, value, begins, asks, gains, _, table, _, _, start, _, edge, widths = notes
    count, stride = len(hot), trees[2 * end - 1] - trees[2 * begin]
    leaves_of(begin, end, trees, variable, cut, right, hot, sets, adds, lines, shares, share, first, last, at, notes)
    best, best_cell, best_score = -1, -1, SMALL * SMALL
    for v in range(count):
        a, width = first[at + v], widths[v]
        if width == 1:
            continue
        row = v * stride
        for x in range(2 * width):
            gains[x] = 0.0
        for t in range(end - begin):
            if asks[t * count + v] == 0:
                continue
            for x in range(2 * width):      # least leaves that begin, and that end, in a cell
                table[x] = INFINITE
            for leaf in range(begins[t], begins[t + 1]):
                begins_at, ends_at = low[row + leaf], high[row + leaf]
                if hot[v] > 0:
                    begins_at, ends_at = 0, width - 1
                    if low[row + leaf] >= 0:
                        while not holds(sets, low[row + leaf], a + begins_at):
                            begins_at += 1
                        while not holds(sets, low[row + leaf], a + ends_at):
                            ends_at -= 1
                table[begins_at] = min(table[begins_at], value[leaf])
                table[width + ends_at] = min(table[width + ends_at], value[leaf])
            for x in range(1, width):
                table[x] = min(table[x], table[x - 1])
                table[2 * width - 1 - x] = min(table[2 * width - 1 - x], table[2 * width - x])
            least = table[width - 1]
            for x in range(width - 1):
                gains[x] += table[x] - least
                gains[width + x] += table[width + x + 1] - least
        for x in range(width - 1):
            score = max(gains[x], SMALL) * max(gains[width + x], SMALL)
            if score > best_score:
                best, best_cell, best_score = v, a + x if hot[v] > 0 else edge[start[v] + x], score
    return best, best_cell


@compiled
def cell_to_cut(
    begin: Any, end: Any, tree_at: Any, variable: Any, cut: Any, right: Any, least_at: Any, hot: Any, sets: Any, adds: Any,
    lines: Any, shares: Any, share: Any, low: Any, high: Any, at: Any, score: Any, seen: Any, touched: Any, stamp: Any,
    head: Any, losses: Any, notes: Any,
) -> Any:
    """Choose the variable and its cell after which the box at `at` is cut, for the row at `share`. Returns them, the stamp as left
    and what that took.

    Goals with constants (`losses`, see `kernel.explore`) are proved in few boxes by the best cut for both halves. Decisions, and
    what is made of several lines, are as soon proved by the cell on which most of the bound of the largest line depends.
    """
    if len(losses) > 0:
        v, cell = _best_cut(begin, end, tree_at, variable, cut, right, hot, sets, adds, lines, shares, share, low, high, at, notes)
        if v >= 0:
            return v, cell, stamp, EFFORT * (tree_at[2 * end - 1] - tree_at[2 * begin])
    start, line, largest, v = notes[10], 0 * begin, -1.0, 0
    for s in range(lines):
        if abs(shares[share + s]) > largest:
            line, largest = s, abs(shares[share + s])
    stamp += 1
    keys = _score_cuts(begin, end, tree_at, variable, cut, right, least_at, hot, sets, adds, lines, line, low, high, at, start,
                       score, seen, touched, stamp)
    key = _largest(score, touched, keys)
    if score[key] == 0 and len(head) > 0 and head[0] == 1 and line == lines - 1:
        # the copies differ by the same everywhere, but how much that counts depends on where they are
        stamp += 1
        keys = _score_cuts(begin, end, tree_at, variable, cut, right, least_at, hot, sets, adds, lines, lines - 3, low, high, at,
                           start, score, seen, touched, stamp)
        key = _largest(score, touched, keys)
    while start[v + 1] <= key:
        v += 1
    return v, key - start[v], stamp, 0 * begin
