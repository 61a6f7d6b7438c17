"""The exact mixed-integer program of a twin: a binary for each unstable ReLU, tight big-M, stable neurons left out.

For every unstable neuron, with rigorous bounds l < 0 < u on a (Tjeng et al., ICLR 2019),

    y >= a,    y >= 0,    y <= a - l (1 - z),    y <= u z,    z in {0, 1};

in the parts of `twin` (y = p, n = y - a >= 0) these are  p <= u z  and  n <= -l (1 - z).  LeakyReLU is p - s n. Whole inputs are
integer columns, one-hot inputs binaries with sum 1; `exits` cuts off the illegal rows of either copy.
`difference` adds valid rows that cut the relaxation, not the solutions: `twin_difference`, the linear bound of every goal row

    r g(x) + r' g(x') + c >= L   (`bounds.difference`),    and    z >= z'  where Delta >= 0,   z <= z'  where Delta <= 0.

Sound? Complete?  Both, up to the solver's tolerances and float64 coefficients: an answer is CLAIMED; a point found is to be
decoded and re-evaluated exactly.
References: HyFair's MILP (a = x - s with x <= M+ (1 - z), s <= M- z); Tjeng, Xiao and Tedrake, ICLR 2019.
"""

from __future__ import annotations

import numpy as np

from encoders.programs.rows import RowBlock
from encoders.programs.twin import Encoding, Layout, difference_rows
from encoders.programs.twin_box import TwinBox, exit_rows


def big_m(box: TwinBox, *, difference: bool = False) -> Encoding:
    """Return the MILP of one box: ask it with `Encoding.minimise` or, as a feasibility question, `Encoding.at_most`."""
    layout = Layout.parts(box, integer=True, paired=difference)
    first = len(layout.lower)
    width = first
    rows: list[RowBlock] = []
    switches: list[np.ndarray] = []  # per layer and copy: the column of z of each neuron with columns, -1 for a stable one
    for pair in layout.neurons:
        for neurons in pair:
            u = np.flatnonzero(neurons.unstable)
            z = width + np.arange(len(u))
            width += len(u)
            lower = neurons.lower[u]
            rows += [
                RowBlock.of([neurons.positive[u], z], [1.0, -neurons.upper[u]], -np.inf, 0.0),
                RowBlock.of([neurons.negative[u], z], [1.0, -lower], -np.inf, -lower),
            ]
            switches.append(np.full(len(neurons.index), -1))
            switches[-1][u] = z
    if difference:
        rows += difference_rows(layout)
        rows += _ordered(layout, switches)
        rows += _goal_rows(layout)
    forbidden, binaries = exit_rows(layout.inputs, width)
    return Encoding.of(layout, rows + forbidden, binaries=width + binaries - first)


def _ordered(layout: Layout, switches: list[np.ndarray]) -> list[RowBlock]:
    """z >= z' where a >= a' throughout, z <= z' where a <= a'."""
    rows = []
    for k, (first, _) in enumerate(layout.neurons):
        z, z_prime = switches[2 * k], switches[2 * k + 1]
        binary = (z >= 0) & (z_prime >= 0)
        above = binary & (layout.box.layers[k].delta_lower[0, first.index] >= 0)
        below = binary & (layout.box.layers[k].delta_upper[0, first.index] <= 0)
        rows += [
            RowBlock.of([z[above], z_prime[above]], [1.0, -1.0], 0.0, np.inf),
            RowBlock.of([z[below], z_prime[below]], [1.0, -1.0], -np.inf, 0.0),
        ]
    return rows


def _goal_rows(layout: Layout) -> list[RowBlock]:
    """Each row of the problem's goals is at least its rigorous bound, which counts the row's constant."""
    goals = layout.box.twin.rows
    values = goals @ layout.margins
    columns = np.flatnonzero(values.any(axis=0))
    return [
        RowBlock(
            columns=np.broadcast_to(columns, (len(goals), len(columns))), values=values[:, columns],
            lower=layout.box.rows_lower - layout.box.twin.constants - goals @ layout.constants,
            upper=np.full(len(goals), np.inf),
        )
    ]
