"""Rigorous lower bounds for the checker: two copies of one network, over batches of input boxes.

Written from the formulas alone, sharing nothing with the engine's own bounds, so that a slip in one is caught by the other.

Notation: layer i has a = W y + b and y = slope * a + (1 - slope) * r with r = max(a, 0); a prime marks the second
copy; D = a' - a, d = r' - r. Copies share every moving input, so x' - x is constant on a box.

Method
    Interval bounds of a, a' and D from below, each tightened by the two others; then backward substitution of one linear
    form P.y_i + Q.y'_i through the layers (CROWN, Zhang et al., NeurIPS 2018; difference planes as in ReluDiff, Paulsen et
    al., ICSE 2020). A neuron that is unstable in either copy is replaced by the best, at the centre, of three planes: one
    per copy; copy 1 and the difference; copy 2 and the difference. In the first layer D is a constant s, and
    h(a) = p max(a, 0) + q max(a + s, 0) gets a chord of its convex hull. Closer intervals of the hidden layers are those of a, a'
    and D by lines around r, r' and d alone (of smooth networks, D by the planes of pairs).
    Where signs of neurons are fixed, every interval is clipped by them before anything is built on it.
Sound? Yes, with the rounding argument below. Complete? No: whoever writes a proof splits boxes and signs until they suffice.

Rounding. u = 2^-53, gamma_n = n u / (1 - n u) (Higham, Accuracy and Stability, ch. 3): a sum or an inner product of n terms,
in any order and also with fused operations, is off by at most gamma_n times the sum of the terms' sizes.
    1. V_i = |W_i| Y_{i-1} + |b_i|, with Y the largest |y|, bounds |a_i| and every partial sum in computing a_i or its
       radius, for both copies together when V and V' are added. Centre and half-width of an interval and the slope of
       LeakyReLU cost a few u more, relative to Y. So a_i +- EPS V_i holds the true interval, and D is off by EPS (V + V').
    2. In a backward pass every plane is valid for the slopes *as computed*: its offset is the extreme of (function - slope
       * t) over the vertices, which bounds it for any slope. What is left is rounding, all of it relative to
       T_i = (|P_i| + |Q_i|).(V_i + V'_i), as slopes obey |alpha| + |beta| <= 3 (|P| + |Q|), and offsets add up to at most 4 T_i.
       With m the width of the layer and n that of the one below: forming slopes and offsets 40 u; adding up offsets
       4 gamma_m; P W and P b in place of exact products 3 gamma_m |alpha| (|W| Y + |b|) <= 3 gamma_m T_i; running totals over
       the layers 7 gamma_3L. At the first layer also a at the centre (3 gamma_n+1) and s (gamma_n+2), their product with
       the slopes (3 gamma_m), the slope in the inputs (3 gamma_m+1) and its product with the half-widths (3 gamma_n). The sum,
       and that T_i is itself rounded, is below 16 gamma_K with K = (largest m) + (largest n) + 2 layers + 40 for fewer
       than 100 layers (more are refused): EPS = 16 gamma_K, and the error of a bound is EPS sum_i T_i.
    3. Underflow adds at most 2^-1075 an operation. Parameters are refused unless they are 0 or within [1e-200, 1e100] in
       size, V is refused above 1e100 and floored at 1e-80 unless it is exactly 0: then a product |W| Y that is not 0 cannot
       vanish, EPS V covers underflow in step 1, and TINY = 1e-150 covers it in step 2. T_i = 0 needs no TINY only when no
       neuron of the layer has both a coefficient and a V that is not 0: then every term is an exact zero.
    4. Whatever overflows ends as inf or NaN, and the bound is then -inf: it proves nothing.
    5. Sigmoid and tanh neurons have Y = 1 above them, and lines of `curves`, whose offsets are rounded outwards there:
       they are at most 1 + |a| for each copy, slopes at most 1. 2 (V + V') + 4 in place of V + V' in T_i covers them. Of other
       curves Y is the largest |y| plus 1, at most 2 |a| + 2, offsets at most 4 |a| + 1, slopes at most 2: 6 (V + V') + 12.
    6. Of squares Y is the largest |y|. Relative to |P| + |Q|, |alpha| + |beta| is at most 4 (V + V') and offsets are at most
       4 (V + V')^2, and nothing is off by more than a few u of these. 12 (V + V')^2 in place of V + V', floored like it, is enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.curves.layer import Curve, SmoothLayer
from encoders.network import Layer, Network
from verifair.checker.kernel.curves import Band, CurvePairs, CurvePlanes, Smooth, chord, first_layer, plane, quantity_band
from verifair.checker.kernel.squares import SquarePairs

TINY = 1e-150
FLOOR = 1e-80
LARGEST = 1e100
UNIT = 2.0**-50
COPIES = ((1, 0), (0, 1), (-1, 1))
"""The coefficients of y and y' in y, y' and y' - y."""
BLOCK = 1 << 16
"""Entries of a coefficient matrix handled at once: larger ones fall out of the cache."""


def rounding_unit(network: Network) -> float:
    """Return EPS of the argument above; inf when the network is outside its range, so that nothing is proved."""
    if len(network.layers) >= 100:
        return float("inf")
    for layer in network.layers:
        for parameters in (layer.weight, layer.bias, _slope_below_zero(layer)):
            size = np.abs(parameters[parameters != 0])
            if size.size and not (size.min() >= 1e-200 and size.max() <= LARGEST):
                return float("inf")
    m = max(len(layer.bias) for layer in network.layers)
    n = max(layer.weight.shape[1] for layer in network.layers)
    k = (m + n + 2 * len(network.layers) + 40) * 2.0**-53
    return float(16 * k / (1 - k))


@dataclass(frozen=True, kw_only=True, eq=False)
class Span:
    """Enclosures (B, m) of a, a' and D = a' - a of one layer, and the size V + V' that rounding errors are relative to."""

    low: Array
    high: Array
    low2: Array
    high2: Array
    d_low: Array
    d_high: Array
    size: Array

    @property
    def ends(self) -> tuple[Array, ...]:
        return self.low, self.high, self.low2, self.high2, self.d_low, self.d_high

    def take(self, index: Integers) -> Span:
        return Span(**{name: array[index] for name, array in vars(self).items()})

    def tightened(self) -> Span:
        """Return the three enclosures, each cut down by the two others, one after the other, rounded outwards."""

        def down(value: Array) -> Array:
            return np.nextafter(value, -np.inf)

        def up(value: Array) -> Array:
            return np.nextafter(value, np.inf)

        low, high = np.maximum(self.low, down(self.low2 - self.d_high)), np.minimum(self.high, up(self.high2 - self.d_low))
        low2, high2 = np.maximum(self.low2, down(low + self.d_low)), np.minimum(self.high2, up(high + self.d_high))
        d_low, d_high = np.maximum(self.d_low, down(low2 - high)), np.minimum(self.d_high, up(high2 - low))
        return Span(low=low, high=high, low2=low2, high2=high2, d_low=d_low, d_high=d_high, size=self.size)


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronForms:
    """The results of backward substitution for neurons (N,) in boxes (N,), in the order of the boxes: bounds, slopes and errors as
    `_forms` returns them, for both ends of a, a' and D."""

    box: Integers
    neuron: Integers
    forms: list[tuple[Array, Array, Array]]

    def narrowed(self, span: Span) -> Span:
        """Return the enclosures of the layer cut down to these bounds."""
        ends, place = [end.copy() for end in span.ends], (self.box, self.neuron)
        for n, (lower, _, _) in enumerate(self.forms):
            ends[n][place] = np.minimum(ends[n][place], -lower) if n % 2 else np.maximum(ends[n][place], lower)
        low, high, low2, high2, d_low, d_high = ends
        return replace(span, low=low, high=high, low2=low2, high2=high2, d_low=d_low, d_high=d_high).tightened()


def ranges(start: Integers, end: Integers) -> Integers:
    """Return start[0] ... end[0] - 1, start[1] ... end[1] - 1, and so on."""
    size = end - start
    return np.asarray(np.arange(size.sum()) + np.repeat(start - (np.cumsum(size) - size), size))


class TwinBounds:
    """Bounds over B boxes of network inputs [low, high] (B, n_0) for copy 1 and [low2, high2] for copy 2.

    `moving` columns have the same interval in both copies and move together; all others are fixed, low = high.
    close=True also substitutes backwards for every unstable inner neuron, for the first `quantities` of a, a' and D (fewer suffice
    where copy 2 is copy 1, or where D is not needed): tighter, and several times the work.
    signs: (B, 2 H), (B, 2 H) hidden neurons of both copies, one after the other, with a >= 0, with a <= 0; None: none is fixed.
    frame: bounds over larger boxes, and (B,) which of these holds each box: above the second layer every enclosure is cut down to
    the larger box's, and by the lines found there. Errors of the lines are taken off twice: slope * (centre - centre) adds no more.
    refine: also substitute for neurons that are still unstable after that.
    """

    def __init__(
        self, network: Network, low: Array, high: Array, low2: Array, high2: Array, *, close: bool, quantities: int = len(COPIES),
        signs: tuple[Booleans, Booleans] | None = None, frame: tuple[TwinBounds, Integers] | None = None, refine: bool = True,
    ) -> None:
        self.network = network
        self.eps = rounding_unit(network)
        self.inputs = np.minimum(low, low2), np.maximum(high, high2)
        self.centre, self.radius, centre2 = (low + high) / 2, (high - low) / 2, (low2 + high2) / 2
        centre, self.neuron_forms = self.centre, dict[int, NeuronForms]()
        self.moving = np.flatnonzero((self.radius > 0).any(axis=0))
        first = network.layers[0]
        self.a, self.a2 = centre @ first.weight.T + first.bias, centre2 @ first.weight.T + first.bias
        self.shift = (centre2 - centre) @ first.weight.T
        self._below: tuple[tuple[Array, Array], ...] | None = None  # of the outputs: y, y' and y' - y of the last hidden layer
        self._curves: dict[int, list[tuple[Smooth, CurvePlanes | CurvePairs | SquarePairs]]] = {}
        self._bands: dict[tuple[int, int], Band] = {}
        ends = np.cumsum(network.hidden)[:-1]
        copies = [np.split(copy, 2, axis=1) for copy in signs or ()]
        self._signs = list(zip(*(np.split(part, ends, axis=1) for copy in copies for part in copy), strict=True))
        self.spans = [self._clipped(self._first_span(centre, centre2), 0)]
        for k, layer in enumerate(network.layers[1:], start=1):
            span = self._clipped(self._next_span(k), k)
            if close and k + 1 < len(network.layers):
                if frame is not None and k > 1:
                    span = self._clipped(self._framed(span, *frame, k), k)
                if frame is None or k == 1 or refine:
                    unstable = (_unstable(span) & (_slope_below_zero(layer) < 1)) | _smooth(layer)
                    span = self._clipped(self._substituted(span, k, unstable, quantities), k)
            self.spans.append(span)

    def _clipped(self, span: Span, k: int) -> Span:
        """Return the enclosures of layer k that the signs leave, tightened against each other."""
        if k >= len(self._signs):
            return span
        on, on2, off, off2 = self._signs[k]
        return replace(
            span, low=np.where(on, np.maximum(span.low, 0.0), span.low), high=np.where(off, np.minimum(span.high, 0.0), span.high),
            low2=np.where(on2, np.maximum(span.low2, 0.0), span.low2),
            high2=np.where(off2, np.minimum(span.high2, 0.0), span.high2),
        ).tightened()

    @cached_property
    def in_range(self) -> Booleans:
        """(B,) True if all numbers of the box are within the range of the rounding argument; NaN is not."""
        bounded = [(span.size <= LARGEST).all(axis=1) for span in self.spans]
        return np.asarray(np.logical_and.reduce(bounded) & np.isfinite(self.eps))

    @cached_property
    def empty(self) -> Booleans:
        """(B,) True if the region surely holds no point: the two ends of some enclosure have crossed."""
        crossed = np.zeros(len(self.radius), dtype=bool)
        for span in self.spans:
            for low, high in ((span.low, span.high), (span.low2, span.high2), (span.d_low, span.d_high)):
                crossed |= (low > high).any(axis=1)
        return crossed & self.in_range

    def alike(self, margin: Array) -> Booleans:
        """Return (B,) True where margin . f, with weights (B, n_N), is exactly the same number in both copies."""
        last = self.spans[-1]
        equal = ((margin == 0) | ((last.d_low == 0) & (last.d_high == 0))).all(axis=1)
        return np.asarray(equal & self.in_range)

    def _first_span(self, centre: Array, centre2: Array) -> Span:
        layer = self.network.layers[0]
        weight = np.abs(layer.weight)
        radius = self.radius[:, self.moving] @ weight[:, self.moving].T
        size = _floored((np.abs(centre) + self.radius) @ weight.T + np.abs(layer.bias))
        size2 = _floored((np.abs(centre2) + self.radius) @ weight.T + np.abs(layer.bias))
        error, error2 = self.eps * size, self.eps * size2
        # The error is relative to the differing columns alone: exactly 0 for a neuron that none of them reaches.
        shift_error = self.eps * _floored(np.abs(centre2 - centre) @ weight.T)
        return Span(
            low=self.a - radius - error, high=self.a + radius + error, low2=self.a2 - radius - error2,
            high2=self.a2 + radius + error2, d_low=self.shift - shift_error, d_high=self.shift + shift_error, size=size + size2,
        ).tightened()

    def _next_span(self, k: int) -> Span:
        """Return interval bounds of layer k (0-based) from the enclosures of layer k - 1."""
        below, span, layer = self.network.layers[k - 1], self.spans[k - 1], self.network.layers[k]
        slope = _slope_below_zero(below)
        y, y2 = _activated(span.low, span.high, slope), _activated(span.low2, span.high2, slope)
        reach, reach2 = _size(span.low, span.high, slope), _size(span.low2, span.high2, slope)
        d = _difference(span, slope, y, y2)
        for smooth in Smooth.of(below) if isinstance(below, SmoothLayer) else ():
            index = smooth.index
            for copy, sizes, ends in ((y, reach, (span.low, span.high)), (y2, reach2, (span.low2, span.high2))):
                copy[0][:, index], copy[1][:, index] = low, high = smooth.outputs(*ends)
                sizes[:, index] = 1.0 if smooth.kind is None else 1.0 + np.maximum(np.abs(low), np.abs(high))
                if smooth.kind is Curve.SQUARE:
                    sizes[:, index] = np.maximum(high, FLOOR)
            difference = smooth.difference(span.ends)
            d[0][:, index] = np.maximum(difference[0], _minus(y2[0], y[1], -np.inf)[:, index])
            d[1][:, index] = np.minimum(difference[1], _minus(y2[1], y[0], np.inf)[:, index])
        if k + 1 == len(self.network.layers):
            self._below = y, y2, d
        weight = np.abs(layer.weight)
        size = _floored(reach @ weight.T + np.abs(layer.bias))
        size2 = _floored(reach2 @ weight.T + np.abs(layer.bias))
        # The error is relative to d alone, so that exact zeros stay zero; with LeakyReLU, d also has the roundings of y and y'.
        leaky = ((slope > 0) & (slope < 1)).any()
        size_d = _floored(np.maximum(np.abs(d[0]), np.abs(d[1])) @ weight.T)
        if leaky:  # where no neuron differs at all, y and y' are the same numbers, rounded alike
            size_d = np.where(((d[0] == 0) & (d[1] == 0)).all(axis=1, keepdims=True), size_d, size + size2)
        bounds = []
        for (low, high), bias, error in (
            (y, layer.bias, self.eps * size),
            (y2, layer.bias, self.eps * size2),
            (d, 0.0, self.eps * size_d),
        ):
            middle = ((low + high) / 2) @ layer.weight.T + bias
            radius = ((high - low) / 2) @ weight.T + error
            bounds += [middle - radius, middle + radius]
        low, high, low2, high2, d_low, d_high = bounds
        return Span(low=low, high=high, low2=low2, high2=high2, d_low=d_low, d_high=d_high, size=size + size2).tightened()

    def _substituted(self, span: Span, k: int, unstable: Booleans, quantities: int) -> Span:
        """Return the enclosures of layer k, narrowed by backward substitution for the neurons `unstable` (B, m)."""
        box, neuron = np.nonzero(unstable)
        forms = [self._forms(n // 2, 1.0 - 2 * (n % 2), k, box, neuron) for n in range(2 * quantities)]
        neuron_forms = self.neuron_forms[k] = NeuronForms(box=box, neuron=neuron, forms=forms)
        return neuron_forms.narrowed(span)

    def _forms(self, quantity: int, sign: float, k: int, box: Integers, neuron: Integers) -> tuple[Array, Array, Array]:
        """Return lower bounds (N,) of sign times a, a' or D (`quantity`: 0, 1, 2) of neurons of layer k, slopes (N, d) in the
        moving inputs, and the rounding errors (N,) that the bounds already allow for."""
        (p, q), layer = COPIES[quantity], self.network.layers[k]
        rows, constant = sign * layer.weight[neuron], sign * (p + q) * layer.bias[neuron]
        if not self.network.piecewise_linear:
            lower = self.by_substitution(p * rows, q * rows, box, layer=k - 1, constant=constant)
            return lower, np.zeros((len(box), len(self.moving))), np.full(len(box), np.inf)
        parts = [self._by_quantity(quantity, rows[i], box[i], k - 1, constant[i]) for i in self._blocks(len(box)) or [slice(0, 0)]]
        lower, slope, error = (np.concatenate(part) for part in zip(*parts, strict=True))
        return lower, slope, error

    def _framed(self, span: Span, frame: TwinBounds, index: Integers, k: int) -> Span:
        """Return the enclosures of layer k cut down by those over the boxes `index` of a frame, and by the lines found there."""
        frame_forms, frame_span = frame.neuron_forms[k], frame.spans[k].take(index)
        ends = [(np.minimum if n % 2 else np.maximum)(*pair) for n, pair in enumerate(zip(span.ends, frame_span.ends, strict=True))]
        low, high, low2, high2, d_low, d_high = ends
        span = replace(span, low=low, high=high, low2=low2, high2=high2, d_low=d_low, d_high=d_high)
        start, end = np.searchsorted(frame_forms.box, index), np.searchsorted(frame_forms.box, index, side="right")
        box, line = np.repeat(np.arange(len(index)), end - start), ranges(start, end)
        shift = (self.centre[box] - frame.centre[index[box]])[:, frame.moving]
        narrower = (frame.radius[index[box]] - self.radius[box])[:, frame.moving]
        forms = []
        for lower, slope, error in frame_forms.forms:
            gain = np.einsum("nj,nj->n", slope[line], shift) + np.einsum("nj,nj->n", np.abs(slope[line]), narrower)
            bound = lower[line] + gain - error[line]
            forms.append((np.where(np.isfinite(bound), bound, -np.inf), slope[line], error[line]))
        return NeuronForms(box=box, neuron=frame_forms.neuron[line], forms=forms).narrowed(span)

    def _by_quantity(
        self, quantity: int, rows: Array, box: Integers, last: int, constant: Array
    ) -> tuple[Array, Array, Array]:
        """Return lower bounds (N,), slopes and errors, as `_forms` does, of rows . y + constant, row n over box[n], with y of layer
        `last`, or y' or y' - y in its place. Only lines in the same quantity are used: in a, a' or D; in the first layer, in a."""
        total, error = constant, self.eps * np.abs(constant)
        for k in range(last, -1, -1):
            layer, band = self.network.layers[k], self._band(quantity, k).take(box)
            error = error + self.rounding(np.abs(rows), self._charge(k)[box])
            relu_weight = (1 - layer.slope) * rows
            positive, negative = np.maximum(relu_weight, 0.0), np.minimum(relu_weight, 0.0)
            total = total + np.einsum("nj,nj->n", positive, band.under[1]) + np.einsum("nj,nj->n", negative, band.over[1])
            leak, rows = layer.slope * rows, positive * band.under[0] + negative * band.over[0]
            if k:
                rows = rows + leak
                total = total + rows @ layer.bias if quantity < 2 else total
                rows = rows @ layer.weight
        p, q = COPIES[quantity]
        return *self._at_inputs(rows + p * leak, q * leak, box, total, error), error

    def _band(self, quantity: int, k: int) -> Band:
        """Return lines around r, r' or r' - r of layer k: in a, a' or D; in the first layer all in a."""
        if (quantity, k) not in self._bands:
            span = self.spans[k]
            if k:
                band = quantity_band(quantity, span.ends)
            else:
                (p, q), ones = COPIES[quantity], np.ones_like(span.low)
                slope, offset = chord(-p * ones, -q * ones, span.low, span.high, self.shift)
                band = Band(under=chord(p * ones, q * ones, span.low, span.high, self.shift), over=(-slope, -offset))
            self._bands[quantity, k] = band
        return self._bands[quantity, k]

    def by_substitution(self, p: Array, q: Array, box: Integers, *, layer: int, constant: Array | None = None) -> Array:
        """Return lower bounds (N,) of p.y + q.y' + constant, with y of the given layer (0-based) and row n over box[n]."""
        constant = np.zeros(len(p)) if constant is None else constant
        parts = [self._lower(p[i], q[i], box[i], layer, constant[i]) for i in self._blocks(len(p))]
        return np.concatenate([np.zeros(0), *parts])

    def _blocks(self, rows: int) -> list[slice]:
        step = max(1, BLOCK // max(len(layer.bias) for layer in self.network.layers))
        return [slice(i, i + step) for i in range(0, rows, step)]

    def _lower(self, p: Array, q: Array, box: Integers, last: int, constant: Array) -> Array:
        total, error = constant.copy(), self.eps * np.abs(constant)
        for k in range(last, -1, -1):
            layer = self.network.layers[k]
            error = error + self.rounding(np.abs(p) + np.abs(q), self._charge(k)[box])
            if isinstance(layer, SmoothLayer):
                p, q, offset = self._relaxed_curves(k, layer, p, q, box)
            else:
                p, q, offset = self._relaxed(k, layer.slope, p, q, box)
            total += offset
            if k:
                total += p @ layer.bias + q @ layer.bias
                p, q = p @ layer.weight, q @ layer.weight
        return self._at_inputs(p, q, box, total, error)[0]

    def _at_inputs(self, p: Array, q: Array, box: Integers, total: Array, error: Array) -> tuple[Array, Array]:
        """Return the minimum (N,) of p . a + q . a' + total less the error, with a, a' of the first layer, and slopes (N, d)."""
        total = total + np.einsum("nj,nj->n", p, self.a[box]) + np.einsum("nj,nj->n", q, self.a2[box])
        slope = (p + q) @ self.network.layers[0].weight[:, self.moving]
        bound = total - np.einsum("nj,nj->n", np.abs(slope), self.radius[box][:, self.moving]) - error
        return np.where(np.isfinite(bound) & np.isfinite(error), bound, -np.inf), slope

    def margins(self, margin: Array) -> Span:
        """Return interval bounds (B, 1) of g = margin . f and g', with weights (B, n_N), and of g' - g.

        Two bounds are intersected: one from the outputs, and one from the layer below, in which shared terms of outputs cancel.
        """
        last = self.spans[-1]
        size = np.einsum("nj,nj->n", np.abs(margin), last.size)
        ends = []
        for low, high in ((last.low, last.high), (last.low2, last.high2), (last.d_low, last.d_high)):
            at_low, at_high = np.where(margin == 0, 0.0, margin * low), np.where(margin == 0, 0.0, margin * high)
            rounding = UNIT * np.maximum(np.abs(at_low), np.abs(at_high)).sum(axis=1) * margin.shape[1]
            ends += [np.minimum(at_low, at_high).sum(axis=1) - rounding, np.maximum(at_low, at_high).sum(axis=1) + rounding]
        if self._below is not None:
            layer, error = self.network.layers[-1], self.eps * size
            weight, bias = margin @ layer.weight, margin @ layer.bias
            equal = np.logical_and.reduce([(end == 0).all(axis=1) for end in self._below[2]])
            for k, ((low, high), constant) in enumerate(zip(self._below, (bias, bias, 0.0), strict=True)):
                middle = np.einsum("nj,nj->n", weight, (low + high) / 2) + constant
                reach = np.einsum("nj,nj->n", np.abs(weight), (high - low) / 2) + np.where((k == 2) & equal, 0.0, error)
                ends[2 * k] = np.maximum(ends[2 * k], middle - reach)
                ends[2 * k + 1] = np.minimum(ends[2 * k + 1], middle + reach)
        low, high, low2, high2, d_low, d_high = (end[:, None] for end in ends)
        return Span(low=low, high=high, low2=low2, high2=high2, d_low=d_low, d_high=d_high, size=size[:, None]).tightened()

    def by_intervals(self, margins: Span, p: Array, q: Array, box: Integers) -> Array:
        """Return lower bounds (N,) of p g + q g' over box[n] from intervals of g, g' and g' - g alone.

        Where p and q have opposite signs, their common part t (g' - g) is bounded by the difference. Every term is off by at most
        2 u of itself, and the sum of 3 terms by gamma_3 of their sizes: 2^-48 of the sizes covers both.
        """
        shared = np.where(p * q < 0, np.sign(q) * np.minimum(np.abs(p), np.abs(q)), 0.0)
        total, size = np.zeros(len(p)), np.zeros(len(p))
        for c, low, high in (
            (shared, margins.d_low[box, 0], margins.d_high[box, 0]),
            (p + shared, margins.low[box, 0], margins.high[box, 0]),
            (q - shared, margins.low2[box, 0], margins.high2[box, 0]),
        ):
            total += np.where(c == 0, 0.0, np.minimum(c * low, c * high))
            size += np.where(c == 0, 0.0, np.abs(c) * np.maximum(np.abs(low), np.abs(high)))
        bound = total - 2.0**-48 * size - TINY
        in_range = np.isfinite(bound) & (size <= LARGEST) & self.in_range[box]
        return np.where(in_range, bound, -np.inf)

    def rounding(self, coefficient: Array, size: Array) -> Array:
        """Return EPS T + TINY of one layer for every row; 0 where all terms are exact zeros, inf where sizes are out of range."""
        total = np.einsum("nj,nj->n", coefficient, size)
        zero = total == 0
        if zero.any():
            zero[zero] = ~((coefficient[zero] != 0) & (size[zero] != 0)).any(axis=1)
        error = np.where(zero, 0.0, self.eps * total + TINY)
        return np.where((total <= LARGEST) & (size.max(axis=1) <= LARGEST) & np.isfinite(self.eps), error, np.inf)

    def _charge(self, k: int) -> Array:
        """Return the sizes (B, m) that rounding errors of backward substitution at layer k are relative to."""
        size, layer = self.spans[k].size, self.network.layers[k]
        if not isinstance(layer, SmoothLayer):
            return size
        squared = _floored(12 * size * size)
        return np.select([layer.squared, layer.smooth], [squared, np.where(layer.shaped, 3, 1) * (2 * size + 4)], size)

    def _relaxed_curves(self, k: int, layer: SmoothLayer, p: Array, q: Array, box: Integers) -> tuple[Array, Array, Array]:
        """Do the same as `_relaxed` for a layer with smooth neurons; its piecewise-linear neurons are relaxed by `_relaxed`."""
        curve, span = _smooth(layer), self.spans[k]
        alpha, beta, offset = self._relaxed(k, layer.bend, np.where(curve, 0.0, p), np.where(curve, 0.0, q), box)
        if k not in self._curves:
            self._curves[k] = []
            for smooth in Smooth.of(layer):
                *scaled, shift = (smooth.scale * end[:, smooth.index] for end in (*span.ends, self.shift if k == 0 else span.size))
                lines = CurvePlanes.of(smooth, scaled) if k else first_layer(smooth, scaled, shift)
                self._curves[k].append((smooth, lines))
        alpha, beta = np.array(alpha), np.array(beta)
        for smooth, lines in self._curves[k]:
            index = smooth.index
            m, m2, c = lines.lines(smooth.half * p[:, index], smooth.half * q[:, index], box)
            alpha[:, index], beta[:, index] = smooth.scale * m, smooth.scale * m2
            offset = offset + (c + smooth.c * (p + q)[:, index]).sum(axis=1)
        return alpha, beta, offset

    def _relaxed(self, k: int, slope: Array, p: Array, q: Array, box: Integers) -> tuple[Array, Array, Array]:
        """Return alpha, beta (N, m) and offsets (N,) with  p.y + q.y' >= alpha.a + beta.a' + offset  over each row's box."""
        span = self.spans[k]
        if (slope == 1).all():
            return p, q, np.zeros(len(p))
        active, active2 = span.low >= 0, span.low2 >= 0
        leak, leak2 = slope * p, slope * q
        if slope.any():
            p, q = (1 - slope) * p, (1 - slope) * q
        alpha, beta = p * active[box], q * active2[box]
        row, neuron = np.nonzero(_unstable(span)[box] & ((p != 0) | (q != 0)))
        offset: Array = np.zeros(len(p))
        if len(row):
            place = (box[row], neuron)
            p_at, q_at = p[row, neuron], q[row, neuron]
            if k == 0:
                m, c = chord(p_at, q_at, span.low[place], span.high[place], self.shift[place])
                alpha[row, neuron], beta[row, neuron] = m, 0.0
            else:
                ends = [end[place] for end in span.ends]
                alpha[row, neuron], beta[row, neuron], c = plane(p_at, q_at, ends)
            offset = np.asarray(np.bincount(row, weights=c, minlength=len(p)), dtype=np.float64)
        return alpha + leak, beta + leak2, offset


def _slope_below_zero(layer: Layer) -> Array:
    """Return (m,) the slopes of piecewise-linear neurons for a < 0, and 1 for smooth neurons."""
    return layer.bend if isinstance(layer, SmoothLayer) else layer.slope


def _smooth(layer: Layer) -> Booleans:
    """Return (m,) True for smooth neurons."""
    return layer.smooth if isinstance(layer, SmoothLayer) else np.zeros(len(layer.bias), dtype=bool)


def _minus(a: Array, b: Array, towards: float) -> Array:
    """Return a - b, rounded outwards."""
    return np.nextafter(a - b, towards)


def _floored(size: Array) -> Array:
    return np.where(size > 0, np.maximum(size, FLOOR), 0.0)


def _unstable(span: Span) -> Booleans:
    """Return (B, m) True for neurons whose ReLU bends inside the box, in at least one copy."""
    return ((span.low < 0) & (span.high > 0)) | ((span.low2 < 0) & (span.high2 > 0))


def _activated(low: Array, high: Array, slope: Array) -> tuple[Array, Array]:
    return np.where(low > 0, low, slope * low), np.where(high > 0, high, slope * high)


def _size(low: Array, high: Array, slope: Array) -> Array:
    """Return the largest |y|, at least FLOOR unless y is 0 throughout."""
    nonzero = (high > 0) | ((low < 0) & (slope > 0))
    return np.where(nonzero, np.maximum(np.maximum(high, slope * -low), FLOOR), 0.0)


def _difference(span: Span, slope: Array, y: tuple[Array, Array], y2: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return bounds of y' - y = slope D + (1 - slope) d, with d = max(a', 0) - max(a, 0) = max(a + D, 0) - max(a, 0), which grows
    with D and is monotone in a; and no more than the two copies' own bounds allow."""
    active, inactive = (span.low >= 0) & (span.low2 >= 0), (span.high <= 0) & (span.high2 <= 0)
    down, up = -np.inf, np.inf
    low = np.minimum(_step(span.low, span.d_low, down), _step(span.high, span.d_low, down))
    high = np.maximum(_step(span.low, span.d_high, up), _step(span.high, span.d_high, up))
    low = np.maximum(low, _relu_difference(span.low2, span.high, down))
    high = np.minimum(high, _relu_difference(span.high2, span.low, up))
    leak_low, leak_high, rest = slope * span.d_low, slope * span.d_high, 1 - slope
    low = np.where(active, span.d_low, np.where(inactive, leak_low, np.where(slope == 0, low, leak_low + rest * low)))
    high = np.where(active, span.d_high, np.where(inactive, leak_high, np.where(slope == 0, high, leak_high + rest * high)))
    return np.maximum(low, y2[0] - y[1]), np.minimum(high, y2[1] - y[0])


def _step(a: Array, d: Array, towards: float) -> Array:
    """Return max(a + d, 0) - max(a, 0), rounded outwards; exactly 0 where d is."""
    return np.where(d == 0, 0.0, _relu_difference(np.nextafter(a + d, towards), a, towards))


def _relu_difference(a: Array, b: Array, towards: float) -> Array:
    """Return max(a, 0) - max(b, 0), rounded outwards; exactly 0 where both maxima are."""
    a, b = np.maximum(a, 0.0), np.maximum(b, 0.0)
    return np.where((a == 0) & (b == 0), 0.0, np.nextafter(a - b, towards))
