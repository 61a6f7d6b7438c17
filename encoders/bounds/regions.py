"""Bounds over regions, boxes with some signs of pre-activations fixed, for neuron branching: with multipliers or without.

    p . y + q . y'  >=  alpha . a + beta . a' + c          over every (a, a') that the region leaves a neuron

replaces one layer after the other, from the goal's row down to the inputs. A *multiplier* names alpha and beta of a neuron, any
numbers, and c is then the exact minimum over the neuron's polygon (a, a' and a - a' within their intervals). Without multipliers
the *standard relaxation* chooses:

    first layer: a' = a - s with a constant s; the chord, over the middle of the interval, of the lower hull of p y + q y'
    others: the best, at the middles of both intervals, of three ways to write p y + q y' that are bounded term by term,
        p y + q y',      (p + q) y - q (y - y'),      (p + q) y' + p (y - y')
    the first way where p = 0 or q = 0: bounds of one copy do not use the other
    y >= floor a with floor 1 where u > -l and 0 elsewhere; y <= the chord; y - y' between its two lines
    the first of choices that are equal up to a share of 1e-9 (TIE): ties are common, for example where u = u'
    the inputs lie anywhere in the network box; with multipliers, in one category of each one-hot block

The intervals of the deeper hidden layers come from backward substitutions as well, six a neuron: a, a' and a - a' from both sides,
each by the lines of y, y' or y - y' alone, all the way down. For smooth networks a - a' is bounded as a pair.

The checker computes these bounds again by its own code, so it accepts proofs of a search that leaves room for rounding.
Sound? yes, for any multipliers.   Complete? no; with splitting it is.
Rounding: RATE = 8 (2 K + 64) u, with K the widest layer plus the widest input of a layer plus 2 layers + 8, covers the operations
of all layers relative to the terms (|p| + |q| + |alpha| + |beta|) Q_k (`rounding`), and TINY covers underflow.
References: CROWN (Zhang et al., NeurIPS 2018); ReluDiff (Paulsen et al., ICSE 2020); Bunel et al. (JMLR 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.interval import crossed, first_layer, next_layer
from encoders.bounds.linear import ENDS, PAIRS, first_forms, second_forms, substituted, tightened_by
from encoders.bounds.relu import TIE, LayerBounds, bends, first_lines, hinge, relu_difference_lines, relu_lines
from encoders.bounds.rounding import TINY
from encoders.bounds.smooth.curves import PairLines, copy_lines, difference_lines
from encoders.bounds.twin import Twin
from encoders.curves.layer import SmoothLayer
from encoders.domain import Batched, Regions
from encoders.network import Layer
from solvers import clock

BLOCK, FORMS = 1 << 17, 1 << 19
"""Coefficients of rows, and of forms in the inputs, processed at once: larger arrays do not fit the cache."""
FEW = 8
"""In up to so many regions, neurons that are 0 or linear in all of them are treated apart; in more regions these are rare."""
SQUARED, NORMS = 1e-150, 1e-9
"""Added to a norm, because squares underflow; and the share by which the computed norms may be too small."""
SMALLEST = 1e-200
"""Smaller weights of rows could underflow in a product; they count as 0."""


Frame: TypeAlias = "tuple[RegionBounds, Integers, Integers]"
"""Bounds over larger boxes, regions (N,) that lie in these, and (N,) the position of the box that holds each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionBound:
    """bound: (B,) of the rows' combination, with the rounding `error` (B,) taken off.

    first, second: per hidden layer (B, m) the coefficients of y and y'; slope: (B, d) those of the moving inputs.
    """

    bound: Array
    error: Array
    first: tuple[Array, ...]
    second: tuple[Array, ...]
    slope: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Substitution:
    """The results of backward substitution for neurons (N, U) of a layer in boxes (N,); entries that are not `mask` (N, U) are
    padding.

    least: by quantity (see ENDS) lower bounds (N, 2 U) of neurons and of their negatives, slopes (N, 2 U, d) of their lines in the
    inputs, and the rounding errors (N, 2 U) taken off.
    """

    box: Integers
    neuron: Integers
    mask: Booleans
    least: dict[str, tuple[Array, Array, Array]]

    def tighten(self, ends: dict[str, Array]) -> None:
        """Tighten the ends (B, n) of the layer's bounds in all boxes by these results."""
        entries = self.box[:, None], self.neuron
        for quantity, (lower, _, _) in self.least.items():
            lowest, highest = np.split(lower, 2, axis=1)
            for name, choose, value in zip(ENDS[quantity], (np.maximum, np.minimum), (lowest, -highest), strict=True):
                ends[name][entries] = np.where(self.mask, choose(ends[name][entries], value), ends[name][entries])


class RegionBounds:
    """Regions of a twin's questions (B,), or of its only one. Signs and multipliers are for piecewise-linear layers.

    intervals: bounds of all layers over boxes without signs; if given, they replace backward substitution, and are looser.
    layers: the bounds of every layer, clipped by the signs.   low, high: (B, d) of the moving columns.
    point: (B,) True for boxes that are one network input.   differences: also substitute backwards for differences of the hidden
    layers, not only for the copies, which costs several times as much.   work: multiplications so far.
    frames: larger boxes that hold the regions: from the third hidden layer on, bounds are cut down to theirs, and their lines are
    applied to the region's box, which costs next to nothing. For piecewise-linear layers.
    refine: also substitute for neurons that are still unstable after that.
    """

    def __init__(
        self, twin: Twin, regions: Regions, question: Integers | None = None, intervals: list[LayerBounds] | None = None, *,
        differences: bool = True, frames: Sequence[Frame] = (), refine: bool = True,
    ) -> None:
        self.twin, self.work = twin, 0
        self.quantities = list(ENDS)[: 1 if twin.lone else 2 + differences]
        self._substitutions: dict[int, Substitution] = {}
        self.question = np.zeros(len(regions), dtype=np.int64) if question is None else question
        moving = twin.variables
        self.low, self.high = twin.local.box(regions.lower[:, moving], regions.upper[:, moving])
        self.middle, self.radius = (self.low + self.high) / 2, (self.high - self.low) / 2
        self.point = np.asarray((self.low == self.high).all(axis=1))
        self.centre = twin.base[self.question] + self.middle @ twin.weights[0].T  # of a, at the middle of the inputs
        widths = np.cumsum([0, *(len(layer.bias) for layer in twin.hidden)])
        self._signs = [
            tuple(signs[:, start + copy : end + copy] for signs in (regions.active, regions.inactive) for copy in (0, widths[-1]))
            for start, end in pairwise(widths.tolist())
        ]
        self._layers: dict[int, RelaxedLayer] = {}
        self._alone: dict[tuple[str, int], tuple[Array, Array]] = {}
        self._weights: dict[int, Array] = {}
        self.layers: list[LayerBounds] = [] if intervals is None else intervals
        for k in range(len(self.layers), twin.depth + 1):
            if k:
                bounds = next_layer(twin, self.question, k, self.layers[-1])
            else:
                bounds = first_layer(twin, self.question, self.low, self.high)
            if k < twin.depth:
                bounds = self._clipped(bounds, k)
                if k > 1 and frames:
                    bounds = self._framed(bounds, frames, k)
                if k and (k == 1 or refine or not frames):
                    bounds = self._closer(bounds, k)
                bounds = self._clipped(bounds, k)
            self.layers.append(bounds)

    @property
    def coefficients(self) -> int:
        """The number of coefficients of all lines found by substitution."""
        return sum(slope.size for substitution in self._substitutions.values() for _, slope, _ in substitution.least.values())

    def _clipped(self, bounds: LayerBounds, k: int) -> LayerBounds:
        """Return the bounds of hidden layer k that the signs leave, tightened against each other."""
        on, on_prime, off, off_prime = self._signs[k]
        if not (on.any() or on_prime.any() or off.any() or off_prime.any()):
            return bounds
        return crossed(
            LayerBounds(
                lower=np.where(on, np.maximum(bounds.lower, 0.0), bounds.lower),
                upper=np.where(off, np.minimum(bounds.upper, 0.0), bounds.upper),
                lower_prime=np.where(on_prime, np.maximum(bounds.lower_prime, 0.0), bounds.lower_prime),
                upper_prime=np.where(off_prime, np.minimum(bounds.upper_prime, 0.0), bounds.upper_prime),
                delta_lower=bounds.delta_lower, delta_upper=bounds.delta_upper,
            ),
            self.twin.error[k][self.question],
        )

    def _closer(self, bounds: LayerBounds, k: int) -> LayerBounds:
        """Return the bounds of hidden layer k, tightened by backward substitution for smooth neurons and for those unstable in
        either copy."""
        bending = substituted(self.twin, k, self.question, bounds)
        if k == 1 and not isinstance(self.twin.hidden[0], SmoothLayer):
            return self._by_forms(bounds, bending)
        substitution = self._substitutions[k] = self._substituted(bending, k)
        if not len(substitution.box):
            return bounds
        ends = bounds.ends()
        substitution.tighten(ends)
        return self._crossed(LayerBounds(**ends), k)

    def _crossed(self, bounds: LayerBounds, k: int) -> LayerBounds:
        """Return the bounds of layer k tightened against each other."""
        if self.twin.lone:
            return LayerBounds.of_one(bounds.lower, bounds.upper)
        return crossed(bounds, self.twin.error[k][self.question])

    def _substituted(self, bending: Booleans, k: int) -> Substitution:
        """Return the results of backward substitution for the True entries of `bending` (B, n), neurons of hidden layer k."""
        box, neuron = _padded(bending)
        count, width, quantities = bending[box].sum(axis=1), neuron.shape[1], self.quantities
        order = np.argsort(count, kind="stable")  # so that boxes with few neurons are not padded to those with many
        rows = 2 * len(quantities) * (int(count.mean()) if len(box) else 1)
        step = max(1, BLOCK // max(1, rows * max(len(self._relaxed(layer).alive) for layer in range(k))))
        weight, bias = self.twin.weights[k][:, self._relaxed(k - 1).alive], self.twin.biases[k][neuron]
        ends = len(quantities), len(box), 2, width
        lowest, slope, error = np.full(ends, -np.inf), np.zeros((*ends, self.low.shape[1])), np.zeros(ends)
        for start in range(0, len(box), step):
            index = order[start : start + step]
            largest = int(count[index[-1]])
            part, constant = _Part(self, box[index]), bias[index, :largest]
            p = weight[:, part.columns(k - 1)[0]][neuron[index, :largest]]
            found = self._least_of(np.concatenate([p, -p], axis=1), np.concatenate([constant, -constant], axis=1), part, k - 1)
            for target, values in zip((lowest, slope, error), found, strict=True):
                target[:, index, :, :largest] = values.reshape(*values.shape[:2], 2, largest, *values.shape[3:])
        shape = len(box), 2 * width
        least = {
            quantity: (lowest[n].reshape(shape), slope[n].reshape(*shape, self.low.shape[1]), error[n].reshape(shape))
            for n, quantity in enumerate(quantities)
        }
        return Substitution(box=box, neuron=neuron, mask=bending[box[:, None], neuron], least=least)

    def _framed(self, bounds: LayerBounds, frames: Sequence[Frame], k: int) -> LayerBounds:
        """Return the bounds of hidden layer k tightened by those over the boxes of frames, and by the lines found there.

        A line that lies below on the whole box also does on a part of it. Its new value has the same rounding error once more.
        """
        ends = bounds.ends()
        for frame, inside, place in frames:
            for name in (name for quantity in self.quantities for name in ENDS[quantity]):
                end = ends[name]
                end[inside] = (np.minimum if "upper" in name else np.maximum)(end[inside], getattr(frame.layers[k], name)[place])
            substitution = frame._substitutions[k]
            position = np.full(len(frame.question), -1)
            position[substitution.box] = np.arange(len(substitution.box))
            found = np.flatnonzero(position[place] >= 0)
            source, box, place = position[place[found]], inside[found], place[found]
            shift, narrower = self.middle[box] - frame.middle[place], frame.radius[place] - self.radius[box]
            least = {}
            for quantity, (lowest, slope, error) in substitution.least.items():
                part, rounding = slope[source], error[source]
                value = lowest[source] + _sums(part, shift) + _sums(np.abs(part), narrower) - rounding
                least[quantity] = np.where(np.isfinite(value), value, -np.inf), part, rounding
            Substitution(box=box, neuron=substitution.neuron[source], mask=substitution.mask[source], least=least).tighten(ends)
        return self._crossed(LayerBounds(**ends), k)

    def _by_forms(self, bounds: LayerBounds, bending: Booleans) -> LayerBounds:
        """Return the same for the second layer: lines around neurons of the first one are lines in the inputs, so two matrix
        products bound all neurons of many boxes."""
        boxes, neuron = np.flatnonzero(bending.any(axis=1)), np.flatnonzero(bending.any(axis=0))
        step = max(1, FORMS // (self.layers[0].lower.shape[1] * (self.low.shape[1] + 1)))
        for start in range(0, len(boxes), step):
            part = boxes[start : start + step]
            first = first_forms(self.twin, self.question[part], self.middle[part], self.radius[part])
            forms = second_forms(self.twin, self.question[part], self.layers[0].take(part), first, neuron, self.quantities)
            bounds = tightened_by(bounds, forms, part, neuron, bending)
            self._count(2 * len(forms) * len(neuron) * first.size)
        return self._crossed(bounds, 1) if len(boxes) else bounds

    def _least_of(self, p: Array, constant: Array, part: _Part, last: int) -> tuple[Array, Array, Array]:
        """Return, for each quantity (`one`, `two`, `apart`), lower bounds (Q, B, R) over a part's regions of p . y + constant,
        p . y' + constant or p . (y - y'), p (B, R, m), y of the part's columns of layer `last`; their slopes (Q, B, R, d) in the
        inputs; and the rounding errors (Q, B, R) taken off."""
        if self.twin.problem.network.piecewise_linear:
            return self._least_alone(self.quantities, p, constant, part, last)
        found = []
        for quantity in self.quantities:
            if quantity == "apart":
                lower, slope = self._least(p, -p, np.zeros_like(constant), part.box, last)
                found.append((lower[None], slope[None], np.full((1, *constant.shape), np.inf)))
            else:
                found.append(self._least_alone([quantity], p, constant, part, last))
        lower, slope, error = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return lower, slope, error

    def _least_alone(
        self, quantities: Sequence[str], p: Array, constant: Array, part: _Part, last: int, rounds: int = 1
    ) -> tuple[Array, Array, Array]:
        """Return the same by lines of each quantity alone, with `rounds` times the rounding errors taken off.

        With p- the negative part of p:  p . v >= p . (low a + low_c) + p- . ((up - low) a + up_c - low_c).
        Errors: |p| . size is at most the product of the norms of p and of size.
        """
        twin, box, error, p = self.twin, part.box, self.twin.rate * np.abs(constant), p[None]  # at first, p is the same for all
        copies = np.array([quantity != "apart" for quantity in quantities])[:, None, None]
        total = copies * constant
        for k in range(last, -1, -1):
            index, bent = part.columns(k)
            if k == 0 and isinstance(twin.hidden[0], SmoothLayer):
                error = error + twin.rate * _sums(np.abs(p), self._of(twin.magnitude[0], box)) + TINY
                first, second = (p[0], None) if quantities[0] == "one" else (None, p[0])
                p, offset = self._under_curves(first, second, box)
                total = total + offset
                break
            lines, size = part.lines(quantities, k)
            error = error + (np.sqrt(np.einsum("qbrm,qbrm->qbr", p, p)) + SQUARED) * size[:, :, None] + TINY
            low, wider, low_constant, wider_constant = lines
            curved = p[..., bent:]
            negative = np.minimum(curved, 0.0)
            total = total + _sums(negative, wider_constant)
            if low_constant.any():
                total = total + _sums(curved, low_constant)
            curved, negative = curved * low[:, :, None], negative * wider[:, :, None]
            curved += negative
            if not k:
                p = curved
                break
            weight = part.weight(k)
            self._count(curved.size * weight.shape[1])
            product = _product(curved, weight[bent:])
            if bent:
                self._count(p[..., :bent].size * weight.shape[1])
                product += _product(p[..., :bent], weight[:bent])
            total, p = total + copies * product[..., -1], product[..., :-1]
        rows = len(quantities) * len(box), constant.shape[1]
        lower, slope = self._at_inputs(
            p.reshape(*rows, p.shape[-1]), (total - rounds * error).reshape(rows), np.tile(box, len(quantities)),
            self._relaxed(0).alive[index],
        )
        return lower.reshape(total.shape), slope.reshape(*total.shape, slope.shape[-1]), np.broadcast_to(error, total.shape)

    def _count(self, multiplications: int) -> None:
        self.work += multiplications
        clock.spend(multiplications)

    def _alive_weights(self, k: int) -> Array:
        """Return the weights of layer k between neurons that are alive, with the biases as the last column."""
        if k not in self._weights:
            self._weights[k] = self._weights_of(k, self._relaxed(k).alive, self._relaxed(k - 1).alive)
        return self._weights[k]

    def _weights_of(self, k: int, neuron: Integers, below: Integers) -> Array:
        return np.concatenate([self.twin.weights[k][np.ix_(neuron, below)], self.twin.biases[k][neuron, None]], axis=1)

    def _lines_alone(self, quantity: str, k: int) -> tuple[Array, Array]:
        """Return lines (B, 4, m) around y, y' or y - y' of the neurons of hidden layer k that are alive, for all regions: the lower
        line's slope, by how much the upper line's exceeds it, and the same of constants; and norms (B,) of the errors' sizes."""
        if (quantity, k) not in self._alone:
            layer, difference = self._relaxed(k), quantity == "apart"
            if k:
                lines = layer.around(quantity)
                if layer.slope.any():
                    lines = (1 - layer.slope) * lines
                    lines[:, :2] += layer.slope
            else:
                shift = self.twin.shift[self.question][:, layer.alive]
                lines = first_lines(PAIRS[quantity], layer.slope, shift, layer.bounds).stacked()
            low, up, low_constant, up_constant = lines.swapaxes(0, 1)
            lines = np.stack([low, up - low, low_constant, up_constant - low_constant], axis=1)
            size = (1 + difference) * self.twin.rate * np.linalg.norm(self.twin.magnitude[k][:, layer.alive], axis=1)
            self._alone[quantity, k] = lines, (1 + NORMS) * size[self.question]
        return self._alone[quantity, k]

    def _least(self, p: Array, q: Array, constant: Array, box: Integers, last: int, rounds: int = 1) -> tuple[Array, Array]:
        """Return lower bounds (B, R) of p . y + q . y' + constant over regions `box` (B,), y of hidden layer `last`, and slopes
        (B, R, d) in the inputs.

        p, q: (B, R, n).   rounds: so many times the rounding error is taken off.
        """
        twin, total, error = self.twin, constant, self.twin.rate * np.abs(constant)
        for k in range(last, -1, -1):
            layer = self._relaxed(k)
            alive, slope = layer.alive, layer.slope
            size = self._of(twin.magnitude[k], box)[:, alive]
            error = error + twin.rate * _sums(np.abs(p) + np.abs(q), size) + TINY
            if k == 0:
                under = self._under_curves if isinstance(twin.hidden[0], SmoothLayer) else self._under_pairs
                p, offset = under(p, q, box)
                total = total + offset
                break
            alpha, beta, offset = standard(layer.lines.take(box), (1 - slope) * p, (1 - slope) * q)
            p, q = alpha + slope * p, beta + slope * q
            weight = self._alive_weights(k)
            self._count(2 * total.size * weight.size)
            p, q = _product(p, weight), _product(q, weight)
            total, p, q = total + offset + p[:, :, -1] + q[:, :, -1], p[:, :, :-1], q[:, :, :-1]
        return self._at_inputs(p, total - rounds * error, box, alive)

    def _under_pairs(self, p: Array, q: Array, box: Integers) -> tuple[Array, Array]:
        """Return slopes (B, R, m) and constants (B, R) of lines in a under p . y + q . y' of a piecewise-linear first layer."""
        layer = self._relaxed(0)
        shift, rest = self._of(self.twin.shift, box)[:, None, layer.alive], 1 - layer.slope
        line, constants, _ = hinge(rest * p, rest * q, shift, layer.bounds.take(box).with_rows())
        return line + layer.slope * (p + q), (constants - layer.slope * q * shift).sum(axis=2)

    def _under_curves(self, p: Array | None, q: Array | None, box: Integers) -> tuple[Array, Array]:
        """Return slopes (B, R, m) and constants (B, R) of lines in a under p . y + q . y' of a first layer that is smooth."""
        first, second = _both(p, q)
        boxes, width = np.repeat(box, first.shape[1]), first.shape[2]
        line, constant, _ = self._pairs.under(first.reshape(-1, width), second.reshape(-1, width), boxes)
        return line.reshape(first.shape), constant.sum(axis=1).reshape(first.shape[:2])

    @cached_property
    def _pairs(self) -> PairLines:
        layer = self.twin.hidden[0]
        assert isinstance(layer, SmoothLayer)
        shift = np.broadcast_to(self._of(self.twin.shift, np.arange(len(self.question))), self.layers[0].lower.shape)
        return PairLines.of(layer, shift, self.layers[0])

    def _at_inputs(self, line: Array, total: Array, box: Integers, alive: Integers) -> tuple[Array, Array]:
        """Return the minimum (B, R) of line . a + total over the whole network box, and its slopes (B, R, d) in the inputs; a: the
        first layer's pre-activations, in copy x, of neurons that are alive."""
        slope = _product(line, self.twin.weights[0][alive])
        total = total + _sums(line, self.centre[box][:, alive]) - _sums(np.abs(slope), self.radius[box]) - TINY
        in_range = self.twin.in_range[self.question[box]]
        return np.where(np.isfinite(total) & in_range[:, None], total, -np.inf), slope

    def _one_category(self, slope: Array, box: Integers) -> Array:
        """Return (N,) the least of slope . (x - middle): numbers within their radius, one category of each block."""
        minimum, number = np.zeros(len(slope)), np.ones(slope.shape[1], dtype=bool)
        local = self.twin.local
        for v in np.flatnonzero(local.one_hot):
            block = slice(int(local.start[v]), int(local.start[v] + local.width[v]))
            number[block] = False
            possible = np.where(self.high[box, block] > 0, slope[:, block], np.inf).min(axis=1)
            minimum += possible - np.einsum("nj,nj->n", slope[:, block], self.middle[box, block])
        return np.asarray(minimum - np.einsum("nj,nj->n", np.abs(slope[:, number]), self.radius[box][:, number]))

    def _relaxed(self, k: int) -> RelaxedLayer:
        """Return the relaxation of hidden layer k, whose bounds are known."""
        if k not in self._layers:
            self._layers[k] = RelaxedLayer.of(self.layers[k], self.twin.hidden[k])
        return self._layers[k]

    def _of(self, table: Array, box: Integers) -> Array:
        """Return the rows (N, m) of a table for the questions of regions `box`; a single row if there is one question."""
        return table if len(table) == 1 else table[self.question[box]]

    def rows(self, box: Integers, rows: Array, constants: Array) -> Array:
        """Return lower bounds (N,) of rows (N, 2) and constants (N,) over regions `box` (N,), by the standard relaxation.

        The rounding error is taken off twice: a bound of 0 here stays at least 0 in another order of summation.
        """
        return self.lines(box, rows, constants)[0]

    def lines(self, box: Integers, rows: Array, constants: Array) -> tuple[Array, Array]:
        """Return the same, and the slopes (N, d) of the bounds' lines in the moving columns."""
        twin = self.twin
        error = twin.rate * (np.abs(constants) + np.abs(rows).sum(axis=1) * self._of(twin.magnitude[-1], box)[:, 0])
        total = (constants - 2 * error)[:, None]
        if not twin.depth:  # the margins are the first layer themselves
            total = total - rows[:, 1:] * self._of(twin.shift, box)[:, :1]
            lower, slope = self._at_inputs(rows.sum(axis=1)[:, None, None], total, box, np.zeros(1, dtype=np.int64))
            return lower[:, 0], slope[:, 0]
        total, last = total + rows.sum(axis=1, keepdims=True) * twin.biases[-1][0], twin.depth - 1
        p, q = rows[:, :, None, None].swapaxes(0, 1) * twin.weights[-1][:, self._relaxed(last).alive]
        lower, slope = np.empty(len(box)), np.empty((len(box), self.low.shape[1]))
        lone = twin.problem.network.piecewise_linear & (rows == 0).any(axis=1)
        kind = np.where(lone, rows[:, 0] == 0, 2)  # a row of one copy needs only that copy's lines
        for k in np.unique(kind).tolist():
            selected = kind == k
            if k < 2:
                part = _Part(self, box[selected])
                alone = (p + q)[selected][:, :, part.columns(last)[0]]
                (low,), (line,), _ = self._least_alone([list(ENDS)[k]], alone, total[selected], part, last, rounds=2)
            else:
                low, line = self._least(p[selected], q[selected], total[selected], box[selected], last, rounds=2)
            lower[selected], slope[selected] = low[:, 0], line[:, 0]
        return lower, slope

    @cached_property
    def empty(self) -> Booleans:
        """(B,) True for regions that surely hold no point: two bounds have crossed by more than any rounding."""
        empty = np.zeros(len(self.question), dtype=bool)
        for bounds, error in zip(self.layers, self.twin.error, strict=True):
            slack = 4 * error[self.question]
            for low, high in (
                (bounds.lower, bounds.upper), (bounds.lower_prime, bounds.upper_prime), (bounds.delta_lower, bounds.delta_upper)
            ):
                empty |= (low - high > slack).any(axis=1)
        return empty & self.twin.in_range[self.question]

    @cached_property
    def alike(self) -> Booleans:
        """(B,) True for regions where g - g' is exactly 0, which proves some row  c (g - g') + constant >= 0  with constant >=
        0."""
        last, problem = self.layers[-1], self.twin.problem
        equal = ((last.delta_lower == 0) & (last.delta_upper == 0)).all(axis=1) & self.twin.in_range[self.question]
        return np.asarray(equal & ((problem.rows.sum(axis=1) == 0) & (problem.constants >= 0) & ~problem.strict).any())

    def lagrange(self, weights: Array, slopes: Array) -> RegionBound:
        """Return the bound of the goal's rows with weights (B, R), by slopes (B, 2 H) of the neurons, NaN for the standard ones of
        a lone neuron. It holds for any weights and slopes."""
        twin, problem = self.twin, self.twin.problem
        weights = np.where(weights < SMALLEST, 0.0, weights)
        row = weights @ problem.rows
        p, q, total = row[:, :1], row[:, 1:], weights @ problem.constants
        if twin.depth:  # else the margins are the first layer themselves
            total = total + row.sum(axis=1) * twin.biases[-1][0]
            p, q = p * twin.weights[-1], q * twin.weights[-1]
        size = weights @ np.abs(problem.rows).sum(axis=1)
        box = np.arange(len(weights))
        error = twin.rate * (weights @ np.abs(problem.constants) + size * self._of(twin.magnitude[-1], box)[:, 0])
        given_slopes = [np.split(copy, np.cumsum(problem.network.hidden)[:-1], axis=1) for copy in np.split(slopes, 2, axis=1)]
        first: list[Array] = []
        second: list[Array] = []
        for k in range(twin.depth - 1, -1, -1):
            first, second = [p, *first], [q, *second]
            alpha, beta, offset = self._by_slopes(k, p, q, given_slopes[0][k], given_slopes[1][k])
            size = np.abs(p) + np.abs(q) + np.abs(alpha) + np.abs(beta)
            error = error + twin.rate * np.einsum("nj,nj->n", size, self._of(twin.magnitude[k], box)) + TINY
            total = total + offset
            p, q = alpha, beta
            if k:
                total = total + (p + q) @ twin.biases[k]
                p, q = p @ twin.weights[k], q @ twin.weights[k]
        slope = (p + q) @ twin.weights[0]
        total = total - np.einsum("nj,nj->n", q, self._of(twin.shift, box)) - error
        bound = total + np.einsum("nj,nj->n", p + q, self.centre) + self._one_category(slope, box) - TINY
        bound = np.where(np.isfinite(bound) & twin.in_range[self.question], bound, -np.inf)
        return RegionBound(
            bound=np.where((weights >= 0).all(axis=1), bound, -np.inf), error=error, first=tuple(first), second=tuple(second),
            slope=slope,
        )

    def _by_slopes(self, k: int, p: Array, q: Array, fixed: Array, fixed_prime: Array) -> tuple[Array, Array, Array]:
        """Return alpha, beta (B, m) and c (B,) with  p . y + q . y' >= alpha . a + beta . a' + c  over each region."""
        slope, bounds = self.twin.hidden[k].slope, self.layers[k]
        leak, leak_prime = slope * p, slope * q
        p, q = (1 - slope) * p, (1 - slope) * q
        alpha = np.where(np.isnan(fixed), _default_slope(p, bounds.lower, bounds.upper), fixed - leak)
        beta = np.where(np.isnan(fixed_prime), _default_slope(q, bounds.lower_prime, bounds.upper_prime), fixed_prime - leak_prime)
        nonzero = np.nonzero((p != 0) | (q != 0) | (alpha != 0) | (beta != 0))
        offset = np.zeros(p.shape)
        offset[nonzero] = polygon_minimum(p[nonzero], q[nonzero], alpha[nonzero], beta[nonzero], bounds.take_at(nonzero))
        return leak + alpha, leak_prime + beta, np.asarray(offset.sum(axis=1))


def _default_slope(p: Array, low: Array, high: Array) -> Array:
    """Return the slope of p relu(a) for a in [low, high] where no multiplier is given."""
    lines = relu_lines(low, high)
    return p * np.where(p >= 0, lines.low_slope, lines.up_slope)


def _both(p: Array | None, q: Array | None) -> tuple[Array, Array]:
    """Return the coefficients of both copies, 0 for one that is None."""
    known = p if q is None else q
    assert known is not None
    return np.zeros_like(known) if p is None else p, np.zeros_like(known) if q is None else q


def _padded(chosen: Booleans) -> tuple[Integers, Integers]:
    """Return the boxes (B,) with chosen neurons, and these neurons (B, U), padded by others up to the box with most."""
    box = np.flatnonzero(chosen.any(axis=1))
    count = int(chosen.sum(axis=1).max(initial=0))
    return box, np.argsort(~chosen[box], axis=1, kind="stable")[:, :count]


def _product(rows: Array, weight: Array) -> Array:
    """Return rows (..., m) times weight (m, n), as one matrix product."""
    *shape, width = rows.shape
    return np.asarray((rows.reshape(math.prod(shape), width) @ weight).reshape(*shape, weight.shape[1]))


def _sums(rows: Array, values: Array) -> Array:
    """Return (..., B, R) the sums of rows (..., B, R, m) times values, (..., B, m) or (1, m) for all boxes."""
    return np.asarray((rows @ values[..., None])[..., 0])


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerLines(Batched):
    """The lines of the standard relaxation for one layer over B boxes.

    one, two, apart: (B, 4, n) slopes and then constants of the lower and the upper line around y, y' and y - y'.
    at_*: (B, 2, n) the lines' values at the middles of the intervals.   size: (B, n) of the terms in them.
    bends: (B, n) True for neurons that are unstable in either copy.   on: (B, 2, n) True for copies that are active.
    """

    one: Array
    two: Array
    apart: Array
    at_one: Array
    at_two: Array
    at_apart: Array
    size: Array
    bends: Booleans
    on: Booleans

    @classmethod
    def of(cls, bounds: LayerBounds, smooth: SmoothLayer | None) -> LayerLines:
        copies = (bounds.lower, bounds.upper), (bounds.lower_prime, bounds.upper_prime)
        first, second = (relu_lines(*copy) if smooth is None else copy_lines(smooth, *copy) for copy in copies)
        difference = relu_difference_lines(bounds) if smooth is None else difference_lines(smooth, bounds)
        middle, middle_prime = (bounds.lower + bounds.upper) / 2, (bounds.lower_prime + bounds.upper_prime) / 2
        arrays, size = {}, np.zeros_like(bounds.lower)
        for name, lines, point in (
            ("one", first, middle), ("two", second, middle_prime), ("apart", difference, middle - middle_prime)
        ):
            arrays[name] = lines.stacked()
            terms = arrays[name][:, :2] * point[:, None], arrays[name][:, 2:]
            arrays[f"at_{name}"] = terms[0] + terms[1]
            sizes = np.abs(terms[0]) + np.abs(terms[1])
            size = size + np.maximum(sizes[:, 0], sizes[:, 1])  # ten times as fast as the largest along an axis of two
        on = np.stack([bounds.lower >= 0, bounds.lower_prime >= 0], axis=1)
        return cls(bends=bends(bounds) if smooth is None else np.ones_like(size, dtype=bool), on=on, size=size, **arrays)


@dataclass(frozen=True, kw_only=True, eq=False)
class RelaxedLayer:
    """The neurons of a layer that are alive in some box (others are 0 throughout): their numbers (m,), bounds, and slopes (m,) s in
    y = s a + (1 - s) relu(a). The lines are around relu(a), or around y itself if the layer is smooth."""

    alive: Integers
    bounds: LayerBounds
    slope: Array
    smooth: SmoothLayer | None

    @classmethod
    def of(cls, bounds: LayerBounds, layer: Layer) -> RelaxedLayer:
        if isinstance(layer, SmoothLayer):
            index = np.arange(bounds.lower.shape[1])
            return cls(alive=index, bounds=bounds, slope=np.zeros(len(index)), smooth=layer)
        dead = ((bounds.upper <= 0) & (bounds.upper_prime <= 0)).all(axis=0) & (layer.slope == 0)
        alive = np.flatnonzero(~dead)  # keeps neurons with a NaN bound
        part = bounds.columns(alive)
        return cls(alive=alive, bounds=part, slope=layer.slope[alive], smooth=None)

    @cached_property
    def lines(self) -> LayerLines:
        return LayerLines.of(self.bounds, self.smooth)

    @cached_property
    def reach(self) -> tuple[Array, Array]:
        """(B, m), (B, m) the least and the largest pre-activation of both copies."""
        bounds = self.bounds
        return np.minimum(bounds.lower, bounds.lower_prime), np.maximum(bounds.upper, bounds.upper_prime)

    def around(self, quantity: str) -> Array:
        """Return (B, 4, m) the lines around y, y' or y - y' (`one`, `two`, `apart`), in the order of `lines`."""
        if quantity == "apart" or self.smooth is not None:
            return np.asarray(getattr(self.lines, quantity))
        return relu_lines(*(getattr(self.bounds, end) for end in ENDS[quantity])).stacked()


class _Part:
    """Regions (B,) whose rows are carried backwards together, by lines of each quantity alone."""

    def __init__(self, bounds: RegionBounds, box: Integers) -> None:
        self.bounds, self.box = bounds, box
        self.are_few = len(box) <= FEW and bounds.twin.problem.network.piecewise_linear
        self._columns: dict[int, tuple[Integers, int]] = {}
        self._weights: dict[int, Array] = {}

    def columns(self, k: int) -> tuple[Integers, int]:
        """Return the neurons (m,) of hidden layer k that are not 0 throughout these regions, as positions among those alive, and
        how many of them are linear there in both copies: these come first. Where it does not pay to look, for many regions, all
        count as not linear; so do those of the first layer."""
        if k not in self._columns:
            layer = self.bounds._relaxed(k)
            linear = dead = np.zeros(len(layer.alive), dtype=bool)
            if self.are_few:
                least, largest = layer.reach[0][self.box].min(axis=0), layer.reach[1][self.box].max(axis=0)  # NaN stays
                dead = (largest <= 0) & (layer.slope == 0)
                linear = ~dead & ((least >= 0) | (layer.slope == 1)) & (k > 0)
            self._columns[k] = np.concatenate([np.flatnonzero(linear), np.flatnonzero(~(linear | dead))]), int(linear.sum())
        return self._columns[k]

    def weight(self, k: int) -> Array:
        """Return the weights of layer k between its columns and those of the layer below; the biases are the last column."""
        if not self.are_few:
            return self.bounds._alive_weights(k)
        if k not in self._weights:
            neuron, below = (self.bounds._relaxed(layer).alive[self.columns(layer)[0]] for layer in (k, k - 1))
            self._weights[k] = self.bounds._weights_of(k, neuron, below)
        return self._weights[k]

    def lines(self, quantities: Sequence[str], k: int) -> tuple[Array, Array]:
        """Return lines (4, Q, B, n) around quantities of the neurons of layer k that are not linear, and norms (Q, B) of the
        errors' sizes, as `_lines_alone` does."""
        index, bent = self.columns(k)
        found = [self.bounds._lines_alone(quantity, k) for quantity in quantities]
        lines = np.stack([lines[self.box] for lines, _ in found])
        if self.are_few:
            lines = lines[..., index[bent:]]
        return lines.transpose(2, 0, 1, 3), np.stack([size[self.box] for _, size in found])


def standard(lines: LayerLines, p: Array, q: Array) -> tuple[Array, Array, Array]:
    """Return alpha, beta (B, R, n) and c (B, R) with  p . relu(a) + q . relu(a') >= alpha . a + beta . a' + c.

    For each neuron it is the best, at the middles of both intervals, of the three ways listed at the head of this file.
    """
    def signs(c: Array) -> tuple[Array, Array]:
        plus = np.maximum(c, 0.0)
        return plus, c - plus

    def value(c: tuple[Array, Array], at: Array) -> Array:
        return c[0] * at[:, None, 0] + c[1] * at[:, None, 1]

    first, second, sums = signs(p), signs(q), signs(p + q)
    swapped = -second[1], -second[0]  # of -q
    values = (
        value(first, lines.at_one) + value(second, lines.at_two), value(sums, lines.at_one) + value(swapped, lines.at_apart),
        value(sums, lines.at_two) + value(first, lines.at_apart),
    )
    threshold = np.maximum(np.maximum(*values[:2]), values[2]) - TIE * (np.abs(p) + np.abs(q)) * lines.size[:, None]
    way1 = (values[0] >= threshold) | (p == 0) | (q == 0)
    way2 = ~way1 & (values[1] >= threshold)
    way3 = ~way1 & ~way2
    y = [np.where(way1, c, np.where(way2, d, 0.0)) for c, d in zip(first, sums, strict=True)]
    y_prime = [np.where(way1, c, np.where(way3, d, 0.0)) for c, d in zip(second, sums, strict=True)]
    difference = [np.where(way2, c, np.where(way3, d, 0.0)) for c, d in zip(swapped, first, strict=True)]
    shared = value((difference[0], difference[1]), lines.apart)
    alpha, beta = value((y[0], y[1]), lines.one) + shared, value((y_prime[0], y_prime[1]), lines.two) - shared
    bends = lines.bends[:, None]
    constant = np.zeros(p.shape[:2])
    for parts, band in ((y, lines.one), (y_prime, lines.two), (difference, lines.apart)):
        for end, c in enumerate(parts, start=2):
            if band[:, end].any():
                constant = constant + _sums(np.where(bends, c, 0.0), band[:, end])
    return np.where(bends, alpha, p * lines.on[:, None, 0]), np.where(bends, beta, q * lines.on[:, None, 1]), constant


def polygon_minimum(p: Array, q: Array, alpha: Array, beta: Array, bounds: LayerBounds) -> Array:
    """Return (N,) the least of  p relu(a) + q relu(a') - alpha a - beta a'  over a, a' and a - a' in their bounds (N,).

    With the signs of a and a' fixed it is linear: at any a, the best a' is an end of its remaining interval, and the minimum over
    a' is a function of a with one kink. So the ends of a and that kink decide. Quadrants without a point do not count; if none has
    one, rounding has crossed the bounds of a neuron that is one point, and its middle is taken instead.
    """
    minimum = np.full(p.shape, np.inf)
    for on in (False, True):
        low, high = (np.maximum(bounds.lower, 0.0), bounds.upper) if on else (bounds.lower, np.minimum(bounds.upper, 0.0))
        for on_prime in (False, True):
            low_prime = np.maximum(bounds.lower_prime, 0.0) if on_prime else bounds.lower_prime
            high_prime = bounds.upper_prime if on_prime else np.minimum(bounds.upper_prime, 0.0)
            c, c_prime = p * on - alpha, q * on_prime - beta
            start = np.maximum(low, np.nextafter(low_prime + bounds.delta_lower, -np.inf))
            end = np.minimum(high, np.nextafter(high_prime + bounds.delta_upper, np.inf))
            bend = np.where(c_prime >= 0, low_prime + bounds.delta_upper, high_prime + bounds.delta_lower)
            value = np.full(p.shape, np.inf)
            for a in (start, end, np.clip(bend, start, end)):
                a_prime = np.where(
                    c_prime >= 0, np.maximum(low_prime, a - bounds.delta_upper), np.minimum(high_prime, a - bounds.delta_lower)
                )
                value = np.minimum(value, c * a + c_prime * a_prime)
            minimum = np.where((low <= high) & (low_prime <= high_prime) & (start <= end), np.minimum(minimum, value), minimum)
    a, a_prime = (bounds.lower + bounds.upper) / 2, (bounds.lower_prime + bounds.upper_prime) / 2
    at_middle = p * np.maximum(a, 0.0) + q * np.maximum(a_prime, 0.0) - alpha * a - beta * a_prime
    return np.where(np.isfinite(minimum), minimum, at_middle)
