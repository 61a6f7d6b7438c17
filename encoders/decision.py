"""Decisions other than "the logit is above 0" as models: layers are appended to the model's outputs, or one more tree is added.

    Threshold    g = v - t, or t - v, of the only output v:  v > t  iff  v - t > 0,  and  v >= t  iff not  t - v > 0
    Favoured     for a group S of classes  g = max of f_c in S - max of f_c outside,  or with odds the log-odds of S under softmax,
                 g = log sum of e^f_c in S - log sum of e^f_c outside:  sigma(g) is the probability of S

Maxima are made of neurons, max(a, b) = b + relu(a - b), and so are log-sums, log(e^a + e^b) = b + softplus(a - b). Only numbers 1
and -1, and t, are added to the stored weights, so nothing is rounded: g is an exact function of the stored weights.

argmax gives a tie to the lower class. So "class c or a higher one" is g > 0 for S = {c, c + 1, ...}, and "class c or a lower one"
is not g > 0 for the classes above c, ties included. For any other S a tie of a class in S with one outside counts as outside,
except for maxima of trees, whose ties are common: `lowest` gives these to the lower class (`encoders.trees.compared`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from encoders.arrays import Array
from encoders.curves.layer import Curve, SmoothLayer
from encoders.model import Link, Model
from encoders.network import Layer, Network, Rounding
from encoders.trees.ensemble import BY_TIE, TIE, TreeEnsemble


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """g = v - at, or at - v where `below`, of a model with one output v."""

    at: float
    below: bool

    def of(self, outputs: Array) -> Array:
        """Return g (B, 1) of outputs (B, 1) that a runtime computed; its sign is exact."""
        difference = outputs - self.at
        return np.asarray(-difference if self.below else difference)


@dataclass(frozen=True, kw_only=True)
class Favoured:
    """g of each group of classes against all others, of a model with several outputs.

    odds: log-odds instead of maxima; where the outputs are shares of `votes`, the group's share less 1/2.
    lowest: g is above 0 where argmax names a class of the group, and below 0 elsewhere: g of a tie is BY_TIE, or -BY_TIE.
    """

    groups: tuple[tuple[int, ...], ...]
    odds: bool = False
    votes: bool = False
    lowest: bool = False

    def of(self, outputs: Array) -> Array:
        """Return g (B, groups) of outputs (B, classes) that a runtime computed; signs of maxima are exact."""
        margins = []
        for group in self.groups:
            in_group = np.isin(np.arange(outputs.shape[1]), group)
            group_outputs, rest = outputs[:, in_group], outputs[:, ~in_group]
            if not self.odds:
                margin = group_outputs.max(axis=1) - rest.max(axis=1)
                tie = np.where(in_group[outputs.argmax(axis=1)], BY_TIE, -BY_TIE)
                margins.append(np.where(self.lowest & (margin == 0), tie, margin))
            else:
                margins.append(group_outputs.sum(axis=1) - 0.5 if self.votes else _log_sum(group_outputs) - _log_sum(rest))
        return np.stack(margins, axis=1)


Decision = Threshold | Favoured


def decided(model: Model, decision: Decision) -> Model:
    """Return the model whose outputs are g: one, or one for each group.

    Requires: a model as it was read, with one output for a Threshold, else with every class of the groups and some beside them.
    The margin of a tree ensemble's classes is no sum of leaves (`encoders.trees.compared`); that of shares of votes is.
    """
    whole = model.whole
    if isinstance(whole, TreeEnsemble):
        if isinstance(decision, Threshold):
            return _tree_above(whole, decision)
        if decision.odds and decision.votes:
            return _share_of_trees(whole, decision)
        from encoders.trees.compared import ComparedTrees

        values = {field.name: getattr(whole, field.name) for field in fields(Model)}
        return ComparedTrees(**values | {"decision": decision, "undecided": whole})
    if not isinstance(whole, Network):
        from encoders.trees.mean import MeanOfTrees

        if not (isinstance(whole, MeanOfTrees) and isinstance(decision, Threshold)):
            raise TypeError(f"no decision of {type(whole).__name__}")
        return replace(whole, at=decision.at, below=decision.below, decision=decision, undecided=whole)
    added = _above(decision) if isinstance(decision, Threshold) else _compared(whole.outputs, decision)
    records = None if whole.rounding is None else (*whole.rounding, *map(_record, added))
    return replace(whole, layers=(*whole.layers, *added), rounding=records, decision=decision, undecided=whole)


def _log_sum(outputs: Array) -> Array:
    """Return log sum of e^f (B,) of outputs (B, n)."""
    largest = outputs.max(axis=1)
    return np.asarray(largest + np.log(np.exp(outputs - largest[:, None]).sum(axis=1)))


def _record(layer: Layer) -> Rounding:
    """Return the float32 roundings of an appended layer: a runtime compares outputs, or subtracts them first, and rounds that."""
    size = np.abs(layer.bias)
    reach = float((np.abs(layer.weight).sum(axis=1) + size).max())
    return Rounding(size=None, bias_size=size, operations=layer.weight.shape[1] + 1, reach=reach)


def _above(decision: Threshold) -> list[Layer]:
    sign = -1.0 if decision.below else 1.0
    return [Layer(weight=np.array([[sign]]), bias=np.array([-sign * decision.at]), slope=np.ones(1))]


def _tree_above(model: TreeEnsemble, decision: Threshold) -> TreeEnsemble:
    sign = -1.0 if decision.below else 1.0
    threshold = decision.at - 2 * TIE * (decision.below and model.link is Link.SHARES)  # shares were lowered by TIE
    signed = replace(model, value=sign * model.value, base=sign * model.base, decision=decision, undecided=model)
    return signed.plus(np.array([-sign * threshold]))


def _share_of_trees(model: TreeEnsemble, decision: Favoured) -> TreeEnsemble:
    """Return the ensemble for a group's share of votes less 1/2: every tree once for each class, so that nothing is rounded."""
    (group,) = decision.groups
    count = len(group)
    shift = len(model.column) * np.arange(count)[:, None]
    root, left, right = ((nodes + shift).ravel() for nodes in (model.root, model.left, model.right))
    shares = replace(
        model, root=root, column=np.tile(model.column, count), threshold=np.tile(model.threshold, count), left=left, right=right,
        missing_left=np.tile(model.missing_left, count), value=model.value[:, list(group)].T.reshape(-1, 1), base=np.zeros(1),
        terms=None if model.terms is None else count * model.terms, decision=decision, undecided=model,
    )
    for constant in (*model.base[list(group)], -0.5):
        shares = shares.plus(np.array([constant]))
    return shares


def _compared(outputs: int, decision: Favoured) -> list[Layer]:
    """Return the layers that compare groups: each halves the terms of all sides, the last one subtracts."""
    unit = np.eye(outputs)
    sides = []
    for group in decision.groups:
        in_group = np.isin(np.arange(outputs), group)
        if not 0 < in_group.sum() < outputs or len(set(group)) != in_group.sum():
            raise ValueError(f"classes {group} of {outputs}: expected some of them, not all")
        sides += [list(unit[in_group]), list(unit[~in_group])]
    layers: list[Layer] = []
    while any(len(terms) > 1 for terms in sides):
        sides, layer = _halved(sides, decision.odds)
        layers.append(layer)
    differences = [first[0] - second[0] for first, second in zip(sides[::2], sides[1::2], strict=True)]
    return [*layers, _affine(differences)]


def _halved(sides: Iterable[Sequence[Array]], odds: bool) -> tuple[list[list[Array]], Layer]:
    """Return a further layer that combines the terms of each side in pairs a, b, and the sides over its outputs."""
    rows: list[Array] = []
    halved: list[bool] = []
    places: list[list[tuple[int, ...]]] = []
    for terms in sides:
        places_of = []
        for k in range(0, len(terms), 2):
            places_of.append(tuple(range(len(rows), len(rows) + (2 if k + 1 < len(terms) else 1))))
            rows += [terms[k]] if k + 1 == len(terms) else [terms[k + 1], terms[k] - terms[k + 1]]
            halved += [False] if k + 1 == len(terms) else [False, True]
        places.append(places_of)
    unit = np.eye(len(rows))
    affine, curved = _affine(rows), np.array(halved)
    if odds:
        kinds = np.where(curved, Curve.SOFTPLUS, Curve.BENT).astype(np.int8)
        made: Layer = SmoothLayer(weight=affine.weight, bias=affine.bias, bend=np.ones(len(rows)), curve=kinds)
    else:
        made = replace(affine, slope=np.where(curved, 0.0, 1.0))
    return [[unit[list(place)].sum(axis=0) for place in places_of] for places_of in places], made


def _affine(rows: Sequence[Array]) -> Layer:
    return Layer(weight=np.array(rows), bias=np.zeros(len(rows)), slope=np.ones(len(rows)))
