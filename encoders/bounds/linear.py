"""Linear bounds: every pre-activation of both copies, and their difference, between two affine functions of the moving inputs.

With x_m = centre + radius * xi and xi in [-1, 1]^d, a *form* is a row (A, b) meaning A xi + b. A layer's lower and upper form
follow from those below by relaxing each unstable ReLU between two lines; kept as middle M and half-width H,

    lower = W M - |W| H,    upper = W M + |W| H + (bias in both),

two GEMMs instead of four. For the second layer this *is* CROWN (Zhang et al., NeurIPS 2018), since first-layer
pre-activations are affine; deeper it is its forward variant, always intersected with the interval bounds.
Sound? yes, outward-rounded (see `rounding`).  Complete? no.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.bounds.interval import LayerBounds, crossed
from encoders.bounds.twin import Indices, Twin
from encoders.network import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Forms:
    """Lower and upper forms (n, B, d + 1) of one quantity of one layer: coefficients of xi, then the constant.

    Neuron-major, so that a whole batch goes through a layer in one GEMM.
    """

    lower: Array
    upper: Array

    @property
    def centre(self) -> Array:
        """Middle of the two forms at the box centre, (B, n)."""
        return np.asarray((self.lower[:, :, -1] + self.upper[:, :, -1]).T / 2)

    @property
    def direction(self) -> Array:
        """|coefficients| of the middle form, (B, n, d): how much each input moves this quantity."""
        return np.abs(self.lower[:, :, :-1] + self.upper[:, :, :-1]).transpose(1, 0, 2) / 2

    def range(self) -> tuple[Array, Array]:
        """Smallest and largest value over the box, (B, n) each, not yet outward-rounded."""
        low = self.lower[:, :, -1] - np.abs(self.lower[:, :, :-1]).sum(axis=2)
        high = self.upper[:, :, -1] + np.abs(self.upper[:, :, :-1]).sum(axis=2)
        return low.T, high.T


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerForms:
    """Forms of a and of Delta = a - a' of one layer; those of a' follow."""

    first: Forms
    delta: Forms

    @property
    def second(self) -> Forms:
        """a' = a - Delta: shared inputs make this about as tight as forms of a' of its own, at no product."""
        return Forms(lower=self.first.lower - self.delta.upper, upper=self.first.upper - self.delta.lower)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReluLines:
    """Lines around max(a, 0) on [l, u], each (B, n):  low_slope * a  <=  max(a, 0)  <=  up_slope * a + up_constant.

    The triangle of Ehlers (ATVA 2017, used in PBA appendix A.2); the lower slope is 0 or 1, whichever leaves the smaller area.
    """

    low_slope: Array
    up_slope: Array
    up_constant: Array

    @classmethod
    def of(cls, lower: Array, upper: Array) -> ReluLines:
        active, inactive = lower >= 0, upper <= 0
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = upper / (upper - lower)
        up_slope = np.where(active, 1.0, np.where(inactive, 0.0, slope))
        up_constant = np.where(active | inactive, 0.0, -slope * lower)
        low_slope = np.where(active | (~inactive & (upper > -lower)), 1.0, 0.0)
        return cls(low_slope=low_slope, up_slope=up_slope, up_constant=up_constant)


@dataclass(frozen=True, kw_only=True, eq=False)
class DifferenceLines:
    """Lines in Delta around e = relu(a) - relu(a'), each (B, n):

        low_slope Delta + low_constant  <=  e  <=  up_slope Delta + up_constant.

    For Delta_l < 0 < Delta_u these are
    Delta_l (Delta_u - Delta)/(Delta_u - Delta_l)  and  Delta_u (Delta - Delta_l)/(Delta_u - Delta_l).
    """

    low_slope: Array
    low_constant: Array
    up_slope: Array
    up_constant: Array

    @classmethod
    def of(cls, layer: LayerBounds) -> DifferenceLines:
        low, high = layer.delta_lower, layer.delta_upper
        equal = (layer.lower >= 0) & (layer.lower_prime >= 0)
        zero = (layer.upper <= 0) & (layer.upper_prime <= 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            up_share, low_share = high / (high - low), -low / (high - low)
        up_slope = np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, up_share))
        low_slope = np.where(high <= 0, 1.0, np.where(low >= 0, 0.0, low_share))
        mixed = (low < 0) & (high > 0) & ~equal & ~zero
        return cls(
            low_slope=np.where(equal, 1.0, np.where(zero, 0.0, low_slope)),
            low_constant=np.where(mixed, -low_slope * high, 0.0),
            up_slope=np.where(equal, 1.0, np.where(zero, 0.0, up_slope)),
            up_constant=np.where(mixed, -up_slope * low, 0.0),
        )


def first_forms(twin: Twin, question: Indices, middle: Array, radius: Array) -> Array:
    """The exact form (n_1, B, d + 1) of the first layer's a."""
    weight = twin.weights[0]
    form = np.empty((len(weight), len(question), len(twin.moving) + 1))
    np.multiply(weight[:, None, :], radius[None, :, :], out=form[:, :, :-1])
    form[:, :, -1] = (twin.base[question] + middle @ weight.T).T
    return form


def hidden_forms(
    twin: Twin, question: Indices, intervals: list[LayerBounds], first: Array
) -> tuple[list[LayerForms], list[LayerBounds]]:
    """Forms of hidden layers 2 ... N-1 and the bounds of all layers tightened by them."""
    bounds = list(intervals)
    forms: list[LayerForms] = []
    for k in range(1, twin.depth):
        below, slope = bounds[k - 1], twin.slopes[k - 1]
        if k == 1:
            y, d = _relaxed_first(twin, question, below, first)
        else:
            y = _relaxed_copy(forms[-1].first, ReluLines.of(below.lower, below.upper), slope)
            d = _relaxed_difference(forms[-1].delta, DifferenceLines.of(below), slope)
        layer = LayerForms(first=_image(twin, k, y, twin.biases[k]), delta=_image(twin, k, d, None))
        forms.append(layer)
        bounds[k] = _tightened(bounds[k], layer, twin.form_error[k - 1][question], twin.error[k][question])
    return forms, bounds


def _image(twin: Twin, k: int, y: Forms, bias: Array | None) -> Forms:
    n, batch, width = y.lower.shape
    middle = twin.weights[k] @ ((y.lower + y.upper) / 2).reshape(n, -1)
    half = twin.absolute[k] @ ((y.upper - y.lower) / 2).reshape(n, -1)
    middle, half = middle.reshape(-1, batch, width), half.reshape(-1, batch, width)
    if bias is not None:
        middle[:, :, -1] += bias[:, None]
    return Forms(lower=middle - half, upper=middle + half)


def _line(form: Array, slope: Array, constant: Array | float) -> Array:
    """slope * form + constant with (B, n) slopes over an (n, B, d + 1) form."""
    out = form * slope.T[:, :, None]
    out[:, :, -1] += constant.T if isinstance(constant, np.ndarray) else constant
    return out


def _relaxed_first(twin: Twin, question: Indices, below: LayerBounds, first: Array) -> tuple[Forms, Forms]:
    """Forms of y and d = y - y' above the first layer, where Delta = s is constant and d a clamp of a."""
    slope = twin.slopes[0]
    shift = twin.shift[question]
    y = _relaxed_copy(Forms(lower=first, upper=first), ReluLines.of(below.lower, below.upper), slope)
    one = np.ones_like(shift)
    low_slope, low_constant, _ = hinge(one, -one, shift, below)
    up_slope, up_constant, _ = hinge(-one, one, shift, below)
    lower = _line(first, (1 - slope) * low_slope, slope * shift + (1 - slope) * low_constant)
    upper = _line(first, -(1 - slope) * up_slope, slope * shift - (1 - slope) * up_constant)
    return y, Forms(lower=lower, upper=upper)


def _relaxed_copy(a: Forms, lines: ReluLines, slope: Array) -> Forms:
    rest = 1 - slope
    return Forms(
        lower=_line(a.lower, slope + rest * lines.low_slope, 0.0),
        upper=_line(a.upper, slope + rest * lines.up_slope, rest * lines.up_constant),
    )


def _relaxed_difference(delta: Forms, lines: DifferenceLines, slope: Array) -> Forms:
    rest = 1 - slope
    return Forms(
        lower=_line(delta.lower, slope + rest * lines.low_slope, rest * lines.low_constant),
        upper=_line(delta.upper, slope + rest * lines.up_slope, rest * lines.up_constant),
    )


def _tightened(bounds: LayerBounds, forms: LayerForms, form_error: Array, error: Array) -> LayerBounds:
    low, high = forms.first.range()
    low_prime, high_prime = forms.second.range()
    delta_low, delta_high = forms.delta.range()
    narrower = LayerBounds(  # a' = a - Delta errs with both: hence the factor
        lower=np.maximum(bounds.lower, low - form_error),
        upper=np.minimum(bounds.upper, high + form_error),
        lower_prime=np.maximum(bounds.lower_prime, low_prime - 3 * form_error),
        upper_prime=np.minimum(bounds.upper_prime, high_prime + 3 * form_error),
        delta_lower=np.maximum(bounds.delta_lower, delta_low - form_error),
        delta_upper=np.minimum(bounds.delta_upper, delta_high + form_error),
    )
    return crossed(narrower, error)


def hinge(p: Array, p_prime: Array, shift: Array, layer: LayerBounds) -> tuple[Array, Array, Array]:
    """A line under h(a) = p relu(a) + p' relu(a - s) on [l, u], neuron by neuron: slope, constant and gap, shaped as p.

    h is piecewise linear with kinks at 0 and s, so for *any* slope m the line m a + min over t in {l, 0, s, u} of (h(t) - m t)
    lies under it (0 and s clipped to [l, u]). m is the slope of the lower hull's chord over the midpoint: exact for one pair.
    p, p_prime may carry leading dimensions over (B, n): (B, R, n) with `shift` and the bounds broadcast.
    """
    shape = np.broadcast_shapes(p.shape, shift.shape)
    low, high, s = (np.broadcast_to(v, shape) for v in (layer.lower, layer.upper, shift))
    first_on, second_on = layer.lower >= 0, layer.lower_prime >= 0
    slope = p * first_on + p_prime * second_on
    constant = -p_prime * second_on * shift
    gap = np.zeros(shape)
    kinked = ~((first_on | (layer.upper <= 0)) & (second_on | (layer.upper_prime <= 0)))
    index = np.nonzero(np.broadcast_to(kinked, shape) & ((p != 0) | (p_prime != 0)))
    slope[index], constant[index], gap[index] = _hull_line(p[index], p_prime[index], s[index], low[index], high[index])
    return slope, constant, gap


def _hull_line(p: Array, p_prime: Array, s: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    points = np.stack([low, np.clip(np.minimum(s, 0.0), low, high), np.clip(np.maximum(s, 0.0), low, high), high])
    values = p * np.maximum(points, 0.0) + p_prime * np.maximum(points - s, 0.0)
    middle = (low + high) / 2
    best, slope = np.full_like(low, np.inf), np.zeros_like(low)
    for i, j in ((0, 3), (0, 1), (0, 2), (1, 2), (1, 3), (2, 3)):
        width = points[j] - points[i]
        over = (points[i] <= middle) & (middle <= points[j]) & (width > 0)
        m = np.divide(values[j] - values[i], width, out=np.zeros_like(width), where=over)
        at = values[i] + m * (middle - points[i])
        better = over & (at < best)
        best, slope = np.where(better, at, best), np.where(better, m, slope)
    constant = (values - slope * points).min(axis=0)
    at_middle = p * np.maximum(middle, 0.0) + p_prime * np.maximum(middle - s, 0.0)
    return slope, constant, at_middle - (slope * middle + constant)
