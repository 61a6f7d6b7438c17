"""Rows that tie the two copies of a twin to each other: what is known about the difference of two neurons.

Reference: twin difference as in ReluDiff (Paulsen, Wang and Wang, ICSE 2020), here as rows of a program; the hull of the first
layer, where the difference is constant, is ours.
"""

from __future__ import annotations

import numpy as np

from encoders.bounds.hinges import DifferenceLines
from encoders.bounds.interval import LayerBounds
from encoders.network import Array
from encoders.programs.rows import Rows
from encoders.programs.twin import Layout, Neurons


def difference_rows(layout: Layout) -> list[Rows]:
    """What a paired layout knows about Delta = a - a' and e = relu(a) - relu(a') = p - p', neuron by neuron.

    First layer, Delta = s constant; let (p, n), (q, m) belong to the copy with the larger and the smaller pre-activation, apart
    by |s|. The graph of (a, relu(a), relu(a - |s|)) on [l, u] is a path over four points; the facets of its hull that the two
    triangles do not have are

        q <= (u - |s|)/u p,        n <= (|l_q| - |s|)/|l_q| m            (l_q the lower bound of the smaller one).

    Deeper layers:  Delta_l <= Delta <= Delta_u  and the two planes of `bounds.linear.DifferenceLines` around e.
    Last layer:     the interval of g - g'.
    Sound? yes: every row holds at every point of the network's graph.
    """
    rows: list[Rows] = []
    for k, (first, second) in enumerate(layout.neurons):
        if k == 0:
            rows += _first_difference(layout, first, second)
        else:
            rows += _deeper_difference(layout, k, first, second)
    last = layout.box.layers[-1]
    constant = layout.constants[0] - layout.constants[1]
    margins = (layout.margins[0] - layout.margins[1])[None, :]
    used = np.flatnonzero(margins[0])
    rows.append(
        Rows(
            columns=used[None, :],
            values=margins[:, used],
            lower=last.delta_lower[0] - constant,
            upper=last.delta_upper[0] - constant,
        )
    )
    return rows


def _first_difference(layout: Layout, first: Neurons, second: Neurons) -> list[Rows]:
    shift = layout.box.twin.shift[layout.box.question][first.index]
    rows = []
    for one, two, sign in ((first, second, 1.0), (second, first, -1.0)):  # one: the copy with the larger pre-activation
        at = np.flatnonzero(first.unstable & second.unstable & (sign * shift > 0))
        size = np.abs(shift[at])
        p_ratio = np.maximum(1 - size / one.upper[at], 0.0)
        n_ratio = np.maximum(1 + size / two.lower[at], 0.0)
        rows += [
            Rows.of([two.positive[at], one.positive[at]], [1.0, -p_ratio], -np.inf, 0.0),
            Rows.of([one.negative[at], two.negative[at]], [1.0, -n_ratio], -np.inf, 0.0),
        ]
    return rows


def _deeper_difference(layout: Layout, k: int, first: Neurons, second: Neurons) -> list[Rows]:
    bounds = layout.box.layers[k]
    narrow = LayerBounds(
        lower=first.lower,
        upper=first.upper,
        lower_prime=second.lower,
        upper_prime=second.upper,
        delta_lower=bounds.delta_lower[0, first.index],
        delta_upper=bounds.delta_upper[0, first.index],
    )
    lines = DifferenceLines.of(narrow)
    columns = [first.positive, first.negative, second.positive, second.negative]

    def plane(slope: Array) -> list[Array | float]:  # e - slope Delta, with e = p - p' and Delta = p - n - p' + n'
        return [1 - slope, slope, slope - 1, -slope]

    return [
        Rows.of(columns, [1.0, -1.0, -1.0, 1.0], narrow.delta_lower, narrow.delta_upper),
        Rows.of(columns, plane(lines.low_slope), lines.low_constant, np.inf),
        Rows.of(columns, plane(lines.up_slope), -np.inf, lines.up_constant),
    ]
