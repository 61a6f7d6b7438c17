"""The linear program of PBA: two copies over shared inputs, each unstable ReLU replaced by its triangle.

    minimise    r g(x) + r' g(x')                                          (eq. 1, r = 1, r' = -1 there)
    subject to  x_m in the box,  x' = x but for the protected columns      (eq. 2-6)
                a_k = W_k y_{k-1} + b_k,   a'_k likewise                   (eq. 7-8)
                y >= a,   y >= 0,   y <= u (a - l)/(u - l)                 where l < 0 < u  (appendix A.2)
                y = a where l >= 0,   y = 0 where u <= 0.

Stable neurons are substituted; an unstable one has the one column y (`twin.Layout.hull`, the fastest of the forms tried).
LeakyReLU is y = s a + (1 - s) relu(a) with the triangle around relu(a).
`difference` adds the rows of `twin_difference` (ours, not the paper's) in the parts of `twin` (p - n = a), where the
triangle is the sparse row  (1 - t) p + t n <= -t l,  t = u/(u - l).
`naive_triangle` is the direct translation of the equations, with a column for every input and neuron of both copies; it has the
same optimum, and is for comparison.
With Method.INTERVAL bounds come from layer-by-layer propagation as in the paper, tightened by the difference of the copies.

What constraints among features forbid is ignored: more points, a lower minimum.

Sound? the true minimum is never below the LP's, up to the solver's tolerance (1e-6 or so): claimed, not proved.   Complete? no.
References: PBA (eq. 1-8, appendix A.2); Ehlers, Formal Verification of Piece-Wise Linear Feed-Forward Neural Networks, ATVA 2017.
"""

from __future__ import annotations

import numpy as np

from encoders.programs.rows import RowBlock
from encoders.programs.smt import FullTwin
from encoders.programs.twin import Encoding, Layout, NeuronColumns, difference_rows, edge_slope
from encoders.programs.twin_box import TwinBox


def triangle(box: TwinBox, *, difference: bool = False) -> Encoding:
    """Return the LP of one box, stable neurons substituted. Add an objective with `Encoding.minimise`."""
    if not difference:
        return Encoding.of(Layout.hull(box), [])
    layout = Layout.parts(box, integer=False, paired=True)
    return Encoding.of(layout, [_triangle(neurons) for pair in layout.neurons for neurons in pair] + difference_rows(layout))


def naive_triangle(box: TwinBox) -> Encoding:
    """Return the same relaxation with a column for every input and neuron of both copies: the baseline of the benchmarks."""
    full = FullTwin.of(box, exact=False)
    rows = []
    for layer in full.neurons:
        rows.append(RowBlock.of([layer.output, layer.input], [1.0, -1.0], 0.0, np.where(layer.active, 0.0, np.inf)))
        u = np.flatnonzero(~layer.active & ~layer.inactive)
        slope = edge_slope(layer.lower[u], layer.upper[u])
        rows.append(RowBlock.of([layer.output[u], layer.input[u]], [1.0, -slope], -np.inf, -slope * layer.lower[u]))
    return full.encoding(rows)


def _triangle(neurons: NeuronColumns) -> RowBlock:
    u = np.flatnonzero(neurons.unstable)
    slope = edge_slope(neurons.lower[u], neurons.upper[u])
    return RowBlock.of([neurons.positive[u], neurons.negative[u]], [1 - slope, slope], -np.inf, -slope * neurons.lower[u])
