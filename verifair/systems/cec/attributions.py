"""Attributions of a model: integrated gradients of a network, interventional Shapley values of trees, or a function of the user.

All of them explain f, the margin of class 1, relative to the reference people of the person's label and group: to their mean
(integrated gradients; the paper's principle 1), or to each of them in turn (Shapley values). They sum to f(x) minus f at that mean,
or minus the mean of f. Trees of several classes decide by a margin that is no sum over trees; there f is the mean score of the
favourable classes minus that of the others, which does not change when a constant is added to all scores.
A tree ensemble has no gradients, and no row is the mean of several categories. Shapley values measure the change of f when features
are taken from one person instead of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from encoders.arrays import Array, Integers
from encoders.attributions.gradients import points_of
from encoders.attributions.shapley import shapley_values
from encoders.errors import ModelError
from encoders.evaluate import WORK
from encoders.model import Model
from encoders.network import Network
from encoders.trees.compared import ComparedTrees
from encoders.trees.ensemble import TreeEnsemble
from verifair.aside import made
from verifair.checker.report import Progress
from verifair.engine.parallel import Shared, in_order
from verifair.errors import QueryError
from verifair.systems.cec.explanations import explanations, positive_margin
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People
from verifair.systems.cec.settings import CecSettings

Attribution = Callable[[Array, Array], Any]
"""attribution(x, background) -> (B, n_0): what each column adds to f at model inputs x (B, n_0), against rows (R, n_0) of people
who have the same label and group."""
AT_ONCE = 2048
"""Pairs between two signs of progress, at most."""


def words_of(model: Model, settings: CecSettings, attribution: Attribution | None) -> str:
    """Return the name of the attributions. Raises QueryError for steps of a model without paths."""
    if attribution is not None:
        return f"attribution by {getattr(attribution, '__name__', type(attribution).__name__)}"
    if model.ensemble is not None:
        if settings.steps != "exact":
            raise QueryError(
                f"steps = {settings.steps}: a tree ensemble is piecewise constant, so its reasons are Shapley values, which are "
                "exact and have no steps; leave steps out"
            )
        target = "" if model.ensemble is model else " of the favourable classes' mean score less that of the others"
        return f"interventional Shapley values{target}, exact, against everybody of the person's own group and outcome"
    if model.of_trees:
        remedy = "ask in Python, with attribution=, or about the estimators within"
        raise ModelError(model.source or "model", f"is {model.kind}, whose Shapley values do not add up over trees; {remedy}")
    if settings.steps != "exact":
        return f"integrated gradients, {settings.steps}-step Riemann sum"
    return f"integrated gradients, {'exact path integral' if model.piecewise_linear else 'path integral by quadrature'}"


def attributed(
    model: Model, reference: Reference, people: People, person: Integers, row: Integers, settings: CecSettings,
    attribution: Attribution | None, *, threads: int, progress: Progress | None, has: Callable[[Integers], bool],
) -> Iterator[tuple[Integers, ExplainedPairs]]:
    """Yield the positions of some pairs and their explanations, until all pairs are done; without g where `has` says so.

    person: (M,) the person of each pair.   row: (M,) the counterpart's row in the reference. Each is explained among the reference
    people of the person's label and group.   progress(done, total) counts pairs.   has(pairs): True if their explanations are known
    already. Raises QueryError for an attribution that does not return a finite number for each column of each row.
    """
    explain, done = _explainer(model, reference, settings, attribution, threads), 0
    cell = made(len(person), np.int64, lambda part: people.labels[person[part]] * len(people.names) + people.groups[person[part]])
    for number in np.flatnonzero(np.bincount(cell)):
        label, group = divmod(int(number), len(people.names))
        of_cell = explain(label, group)
        parts = list(_parts(np.flatnonzero(cell == number), model, settings))
        pending = {int(pairs[0]) for pairs in parts if not has(pairs)}
        inputs = ((_inputs(reference, people, person[pairs], row[pairs]).x,) for pairs in parts if pairs[0] in pending)
        results = starmap(of_cell, inputs) if attribution else in_order(Shared(value=of_cell), inputs, 1)  # a user's own runs here
        for pairs in parts:
            explained = NO_PAIRS
            if pairs[0] in pending:
                explained = _inputs(reference, people, person[pairs], row[pairs])
                explained = replace(explained, g=_checked(next(results), explained.x.shape))
            yield pairs, explained
            done += len(pairs)
            if progress is not None:
                progress(done, len(person))


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplainedPairs:
    """Pairs of persons and counterparts with their explanations; a person in several pairs is stored once.

    x: (B, n_0) model inputs.   g: (B, n_0) attributions; those of a one-hot block may stand in its first column alone.
    own, other: (K,) rows of each pair's person and counterpart in x.
    """

    x: Array
    own: Integers
    other: Integers
    g: Array = field(default_factory=lambda: np.empty(0))


NO_PAIRS = ExplainedPairs(x=np.empty((0, 0)), own=np.empty(0, np.int64), other=np.empty(0, np.int64))


def _inputs(reference: Reference, people: People, person: Integers, row: Integers) -> ExplainedPairs:
    (persons, own), (counterparts, other) = (np.unique(rows, return_inverse=True) for rows in (person, row))
    x = np.concatenate([people.inputs(persons), reference.people.inputs(counterparts)])
    return ExplainedPairs(x=x, own=own, other=len(persons) + other)


def _parts(pairs: Integers, model: Model, settings: CecSettings) -> Iterator[Integers]:
    """Yield the pairs in parts, small ones for large networks; all at once for trees, where most of the work is on the
    background."""
    step = max(len(pairs), 1)
    if not model.of_trees:
        network = model.layered("integrated gradients")
        paths = WORK // (points_of(network, None if settings.steps == "exact" else settings.steps) * model.work)
        step = min(max(paths, 1), AT_ONCE)
    return (pairs[start : start + step] for start in range(0, len(pairs), step))


def _explainer(
    model: Model, reference: Reference, settings: CecSettings, attribution: Attribution | None, threads: int
) -> Callable[[int, int], Callable[[Array], Any]]:
    """Return a function (label, group) -> function that explains model inputs there, by the model's own attributions or those
    passed."""
    if attribution is None and model.ensemble is None:
        network, steps = model.layered("integrated gradients"), None if settings.steps == "exact" else settings.steps
        return lambda label, group: partial(_from_mean, network, reference.baselines[label, group], steps, threads)
    _, first, owner = np.unique(reference.people.features, return_index=True, return_inverse=True)

    def shapley(x: Array, background: Array) -> Array:
        trees, margin = _scores(model)
        values = np.zeros_like(x)
        values[:, first] = shapley_values(trees, margin, owner.reshape(-1), x, background)
        return values

    return lambda label, group: partial(_from_all, attribution or shapley, reference.background(label, group))


def _scores(model: Model) -> tuple[TreeEnsemble, Array]:
    """Return an ensemble and the weights (m,) of its scores in the margin f."""
    if isinstance(model, ComparedTrees):
        weights = np.zeros(model.undecided.outputs)
        for side, sign in zip(model.sides, (1, -1), strict=True):
            weights[side] = sign / len(side)
        return model.undecided, weights
    assert model.ensemble is not None, type(model)
    return model.ensemble, positive_margin(model)


def _from_all(attribution: Attribution, background: Array, x: Array) -> Any:
    return attribution(x, background)


def _from_mean(network: Network, mean: Array, steps: int | None, threads: int, x: Array) -> Array:
    return explanations(network, x, np.tile(mean, (len(x), 1)), steps, threads=threads)


def _checked(result: Any, shape: tuple[int, int]) -> Array:
    values = np.asarray(result)
    if values.shape != shape or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        problem = f"an array of shape {values.shape} and type {values.dtype}"
        raise QueryError(f"attribution: gave {problem} for {shape[0]} rows; expected finite numbers of shape {shape}, one a column")
    return values.astype(np.float64)
