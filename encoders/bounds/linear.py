"""Linear bounds: every pre-activation of both copies, and their difference, between two affine functions of the moving inputs.

With x_m = centre + radius * xi and xi in [-1, 1]^d, a *form* is a row (A, b) meaning A xi + b. A layer's lower and upper form
follow from those below by relaxing each unstable ReLU between two lines; kept as middle M and half-width H,

    lower = W M - |W| H,    upper = W M + |W| H + (bias in both),

two GEMMs instead of four. For the second layer this *is* CROWN (Zhang et al., NeurIPS 2018), since first-layer
pre-activations are affine; deeper it is its forward variant, always intersected with the interval bounds.
Sound? yes, outward-rounded (see `rounding`).  Complete? no.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.interval import crossed
from encoders.bounds.relu import LayerBounds, Lines, bends, first_lines, relu_difference_lines, relu_lines
from encoders.bounds.rounding import TINY
from encoders.bounds.smooth.curves import PairLines, copy_lines, difference_lines
from encoders.bounds.twin import Twin
from encoders.curves.layer import SmoothLayer
from solvers import clock

ENDS = {"one": ("lower", "upper"), "two": ("lower_prime", "upper_prime"), "apart": ("delta_lower", "delta_upper")}
"""Names of the lines around y, y' and y - y', and of the bounds of a, a' and a - a'."""
PAIRS = {"one": (1, 0), "two": (0, 1), "apart": (1, -1)}
"""The coefficients of y and y' in each of these."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Forms:
    """Lower and upper forms (n, B, d + 1) of one quantity of one layer: coefficients of xi, then the constant.

    Neuron-major, so that a whole batch goes through a layer in one GEMM.
    """

    lower: Array
    upper: Array

    @property
    def centre(self) -> Array:
        """Return the middle of the two forms at the box centre, (B, n)."""
        return np.asarray((self.lower[:, :, -1] + self.upper[:, :, -1]).T / 2)

    @property
    def direction(self) -> Array:
        """Return |coefficients| of the middle form, (B, n, d): the effect of each input on this quantity."""
        return np.abs(self.lower[:, :, :-1] + self.upper[:, :, :-1]).transpose(1, 0, 2) / 2

    def range(self) -> tuple[Array, Array]:
        """Return the smallest and largest value over the box, (B, n) each, not yet outward-rounded."""
        low = self.lower[:, :, -1] - np.abs(self.lower[:, :, :-1]).sum(axis=2)
        high = self.upper[:, :, -1] + np.abs(self.upper[:, :, :-1]).sum(axis=2)
        return low.T, high.T

    def between(self, lines: Lines) -> Forms:
        """Return forms around lines in this quantity; a falling line takes its least value at the quantity's largest."""
        low, high = self.lower, self.upper
        low_falls, up_falls = lines.low_slope.T[:, :, None] < 0, lines.up_slope.T[:, :, None] < 0
        lower = _line(np.where(low_falls, high, low) if low_falls.any() else low, lines.low_slope, lines.low_constant)
        upper = _line(np.where(up_falls, low, high) if up_falls.any() else high, lines.up_slope, lines.up_constant)
        return Forms(lower=lower, upper=upper)

    def image(self, weight: Array, absolute: Array, bias: Array | None) -> Forms:
        """Return the forms of  weight (m, n) . self + bias (m,);  absolute: |weight|."""
        n, batch, width = self.lower.shape
        clock.spend(2 * weight.size * batch * width)
        middle = weight @ ((self.lower + self.upper) / 2).reshape(n, batch * width)
        half = absolute @ ((self.upper - self.lower) / 2).reshape(n, batch * width)
        middle, half = middle.reshape(-1, batch, width), half.reshape(-1, batch, width)
        if bias is not None:
            middle[:, :, -1] += bias[:, None]
        return Forms(lower=middle - half, upper=middle + half)


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerForms:
    """Forms of a and of Delta = a - a' of neurons (m,) of one layer; those of a' follow."""

    neuron: Integers
    first: Forms
    delta: Forms

    @property
    def second(self) -> Forms:
        """Return forms of a' = a - Delta: as inputs are shared, they are about as tight as own forms of a', without a product."""
        return Forms(lower=self.first.lower - self.delta.upper, upper=self.first.upper - self.delta.lower)

    def centres(self, width: int) -> tuple[Array, Array]:
        """Return the middles (B, width) of a and of Delta at the box centre, 0 for other neurons."""
        centres = np.zeros((2, self.first.lower.shape[1], width))
        centres[0, :, self.neuron], centres[1, :, self.neuron] = self.first.centre.T, self.delta.centre.T
        return centres[0], centres[1]

    def shares(self, gap: Array) -> Array:
        """Distribute each neuron's gap (B, n) over the inputs (B, d) in proportion to their effects on it."""
        direction, selected = self.first.direction, gap[:, self.neuron]
        total = direction.sum(axis=2)
        weight = np.divide(selected, total, out=np.zeros_like(selected), where=total > 0)
        return np.asarray((weight[:, None, :] @ direction)[:, 0, :])


def first_forms(twin: Twin, question: Integers, middle: Array, radius: Array) -> Array:
    """Return the exact form (n_1, B, d + 1) of the first layer's a."""
    weight = twin.weights[0]
    form = np.empty((len(weight), len(question), len(twin.moving) + 1))
    np.multiply(weight[:, None, :], radius[None, :, :], out=form[:, :, :-1])
    form[:, :, -1] = (twin.base[question] + middle @ weight.T).T
    return form


def second_forms(
    twin: Twin, question: Integers, below: LayerBounds, first: Array, neuron: Integers, quantities: Sequence[str]
) -> list[tuple[Forms, Array]]:
    """Return forms of `quantities` of neurons (m,) of the second hidden layer, and their rounding errors (B, m): `twin.rate` of all
    terms. The first layer has to be piecewise linear.

    below, first: bounds of the first layer, and its form. The checker uses the same lines around first-layer neurons.
    """
    alive = np.flatnonzero(~((below.upper <= 0) & (below.upper_prime <= 0)).all(axis=0) | (twin.hidden[0].slope != 0))
    weight, bias = twin.weights[1][np.ix_(neuron, alive)], twin.biases[1][neuron]
    absolute, first, forms = np.abs(weight), first[alive], []
    shift, rounding = twin.shift[question][:, alive], twin.rate * (twin.magnitude[0][question][:, alive] @ absolute.T) + TINY
    layer = below.columns(alive)
    for quantity in quantities:
        pair, lines = np.array(PAIRS[quantity]), first_lines(PAIRS[quantity], twin.hidden[0].slope[alive], shift, layer)
        middle = _image(weight, first, (lines.low_slope + lines.up_slope) / 2, (lines.low_constant + lines.up_constant) / 2)
        middle[:, :, -1] += pair.sum() * bias[:, None]
        slope, constant = (lines.up_slope - lines.low_slope) / 2, (lines.up_constant - lines.low_constant) / 2
        loose = np.flatnonzero(((slope != 0) | (constant != 0)).any(axis=0))
        half = _image(absolute[:, loose], first[loose], slope[:, loose], constant[:, loose])
        error = np.abs(pair).sum() * rounding + twin.rate * np.abs(pair.sum() * bias)
        forms.append((Forms(lower=middle - half, upper=middle + half), error))
    return forms


def _image(weight: Array, form: Array, slope: Array, constant: Array) -> Array:
    """Return weight (m, n) times the form (n, B, d + 1) along lines (B, n)."""
    n, batch, width = form.shape
    clock.spend(weight.size * batch * width)
    return np.asarray((weight @ _line(form, slope, constant).reshape(n, batch * width)).reshape(-1, batch, width))


def tightened_by(
    bounds: LayerBounds, forms: list[tuple[Forms, Array]], box: Integers, neuron: Integers, mask: Booleans
) -> LayerBounds:
    """Return the bounds of a layer, tightened at `mask` (B, n) entries by forms of a, a' and perhaps a - a', of neurons (m,) over
    boxes (b,)."""
    ends, entries = bounds.ends(), np.ix_(box, neuron)
    selected = mask[entries]
    for (low, high), (form, error) in zip(ENDS.values(), forms, strict=False):
        lowest, highest = form.range()
        for name, choose, value in ((low, np.maximum, lowest - error), (high, np.minimum, highest + error)):
            current = ends[name][entries]
            ends[name][entries] = np.where(selected & np.isfinite(value), choose(current, value), current)
    return LayerBounds(**ends)


def hidden_forms(
    twin: Twin, question: Integers, intervals: list[LayerBounds], first: Array
) -> tuple[list[LayerForms], list[LayerBounds]]:
    """Return the forms of hidden layers 2 ... N-1, and the bounds of all layers tightened by them."""
    bounds = list(intervals)
    forms: list[LayerForms] = []
    for k in range(1, twin.depth):
        below, layer_below = bounds[k - 1], twin.hidden[k - 1]
        if isinstance(layer_below, SmoothLayer):
            y, d = _curved(twin, question, below, layer_below, first if k == 1 else forms[-1])
        elif k == 1:
            substituted_neurons = substituted(twin, k, question, bounds[k])
            last = twin.depth == 2 and not isinstance(twin.hidden[1], SmoothLayer)  # forms of stable neurons are not needed
            neuron = np.flatnonzero(substituted_neurons.any(axis=0)) if last else np.arange(substituted_neurons.shape[1])
            second = second_forms(twin, question, below, first, neuron, tuple(PAIRS))
            forms.append(LayerForms(neuron=neuron, first=second[0][0], delta=second[2][0]))
            tightened = tightened_by(bounds[k], second, np.arange(len(question)), neuron, substituted_neurons)
            bounds[k] = crossed(tightened, twin.error[k][question])
            continue
        else:
            slope = layer_below.slope
            y = forms[-1].first.between(relu_lines(below.lower, below.upper).leaky(slope))
            d = forms[-1].delta.between(relu_difference_lines(below).leaky(slope))
        weights = twin.weights[k], twin.absolute[k]
        neurons = np.arange(len(twin.weights[k]))
        layer = LayerForms(neuron=neurons, first=y.image(*weights, twin.biases[k]), delta=d.image(*weights, None))
        forms.append(layer)
        bounds[k] = _tightened(bounds[k], layer, twin.form_error[k - 1][question], twin.error[k][question])
    return forms, bounds


def _line(form: Array, slope: Array, constant: Array | float) -> Array:
    """Return slope * form + constant with (B, n) slopes over an (n, B, d + 1) form."""
    out = form * slope.T[:, :, None]
    out[:, :, -1] += constant.T if isinstance(constant, np.ndarray) else constant
    return out


def substituted(twin: Twin, k: int, question: Integers, bounds: LayerBounds) -> Booleans:
    """Return (B, n) True for neurons of hidden layer k to be bounded by substitution: unstable in either copy, or smooth."""
    layer = twin.hidden[k]
    neurons = bends(bounds) & ((layer.bend if isinstance(layer, SmoothLayer) else layer.slope) < 1)
    if isinstance(layer, SmoothLayer):
        neurons |= layer.smooth
    return np.asarray(neurons & twin.in_range[question][:, None])


def _curved(
    twin: Twin, question: Integers, below: LayerBounds, layer: SmoothLayer, forms: LayerForms | Array
) -> tuple[Forms, Forms]:
    """Return forms of y and d = y - y' above a smooth layer, from its forms: for the first layer the one exact form of a."""
    if isinstance(forms, LayerForms):
        a, d = forms.first, forms.delta.between(difference_lines(layer, below))
    else:
        a, shift = Forms(lower=forms, upper=forms), twin.shift[question]
        ones = np.ones_like(shift)
        pairs = PairLines.of(layer, shift, below)
        low_slope, low_constant, _ = pairs.under(ones, -ones, ...)
        up_slope, up_constant, _ = pairs.under(-ones, ones, ...)
        d = Forms(lower=_line(forms, low_slope, low_constant), upper=_line(forms, -up_slope, -up_constant))
    return a.between(copy_lines(layer, below.lower, below.upper)), d


def _tightened(bounds: LayerBounds, forms: LayerForms, form_error: Array, error: Array) -> LayerBounds:
    low, high = forms.first.range()
    low_prime, high_prime = forms.second.range()
    delta_low, delta_high = forms.delta.range()
    tightened = LayerBounds.of(
        (np.maximum(bounds.lower, low - form_error), np.minimum(bounds.upper, high + form_error)),
        (  # a' = a - Delta has the errors of both: hence the factor
            np.maximum(bounds.lower_prime, low_prime - 3 * form_error), np.minimum(bounds.upper_prime, high_prime + 3 * form_error),
        ),
        (np.maximum(bounds.delta_lower, delta_low - form_error), np.minimum(bounds.delta_upper, delta_high + form_error)),
    )
    return crossed(tightened, error)
