"""What a model's reasons are: integrated gradients of a network, interventional Shapley values of trees, or what somebody passes.

All of them explain f, the margin of class 1, against the person's own label and group in the reference: from the mean of these
people (integrated gradients; the paper's principle 1), or from all of them, one by one (Shapley values). Both sum to f(x) less
f of that.
A tree ensemble has no gradients, and no row is the mean of several categories; what its features add is what changes when they are
taken from one person instead of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from encoders.evaluate import WORK
from encoders.gradients import points_of
from encoders.network import Array, Integers, Model, Network, layered
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.shapley import shapley_values
from verifair.engine.parallel import Shared, in_order
from verifair.errors import QueryError
from verifair.systems.cec.explanations import explanations, positive_margin
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.settings import CecSettings
from verifair.systems.work import Progress

Attribution = Callable[[Array, Array], Any]
"""attribution(x, background) -> (B, n_0): what each column adds to f at model inputs x (B, n_0), against rows (R, n_0) of people
who have the same label and group."""
AT_ONCE = 4096
"""Rows between two signs of progress, at most."""


def words_of(model: Model, settings: CecSettings, attribution: Attribution | None) -> str:
    """Return what the attributions are. Raises QueryError for steps of a model that has no paths."""
    if attribution is not None:
        return f"attribution by {getattr(attribution, '__name__', type(attribution).__name__)}"
    if isinstance(model, TreeEnsemble):
        if settings.steps != "exact":
            raise QueryError(
                f"steps = {settings.steps}: a tree ensemble is piecewise constant, so its reasons are Shapley values, which are "
                "exact and have no steps; leave steps out"
            )
        return "interventional Shapley values, exact, against everybody of the person's own group and outcome"
    how = "exact path integral" if settings.steps == "exact" else f"{settings.steps}-step Riemann sum"
    return f"integrated gradients, {how}"


def attributed(
    model: Model, reference: Reference, x: Array, cells: Integers, settings: CecSettings, attribution: Attribution | None, *,
    threads: int = 1, progress: Progress | None = None,
) -> Array:
    """Return attributions (B, n_0) of model inputs x (B, n_0); those of a one-hot block may stand in its first column alone.

    cells: (B, 2) label and group in whose reference people each row is explained.   progress(done, total) counts rows.
    Raises QueryError for an attribution that gives something else than a finite number for each column of each row.
    """
    explain = attribution or _own(model, reference, settings, threads)
    found, done = np.empty_like(x), 0
    for label, group in np.unique(cells, axis=0).tolist():
        mine = np.flatnonzero((cells == (label, group)).all(axis=1))
        of_cell = partial(_explained, explain, reference.background(label, group))
        parts = list(_parts(mine, model, settings, threads))
        some = ((x[rows],) for rows in parts)
        given = starmap(of_cell, some) if attribution else in_order(Shared(value=of_cell), some, 1)  # what is passed stays here
        for rows, values in zip(parts, given, strict=True):
            found[rows] = _checked(values, (len(rows), x.shape[1]))
            done += len(rows)
            if progress is not None:
                progress(done, len(x))
    return found


def _explained(explain: Attribution, background: Array, x: Array) -> Any:
    return explain(x, background)


def _parts(rows: Integers, model: Model, settings: CecSettings, threads: int) -> Iterator[Integers]:
    """Some rows at a time, of large networks few; all at once where most of the work is about the background."""
    step = max(len(rows), 1)
    if isinstance(model, Network):
        paths = WORK // (points_of(model, None if settings.steps == "exact" else settings.steps) * model.work)
        step = min(max(paths, 1) * threads, AT_ONCE)
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _own(model: Model, reference: Reference, settings: CecSettings, threads: int) -> Attribution:
    """What explains a model where nobody says otherwise."""
    margin, features = positive_margin(model), reference.people.features
    if isinstance(model, TreeEnsemble):
        _, first, owner = np.unique(features, return_index=True, return_inverse=True)

        def shapley(x: Array, background: Array) -> Array:
            found = np.zeros_like(x)
            found[:, first] = shapley_values(model, margin, owner.reshape(-1), x, background)
            return found

        return shapley
    network, steps = layered(model, "integrated gradients"), None if settings.steps == "exact" else settings.steps

    def from_mean(x: Array, background: Array) -> Array:
        return explanations(network, x, np.tile(background.mean(axis=0), (len(x), 1)), steps, threads=threads)

    return from_mean


def _checked(found: Any, shape: tuple[int, int]) -> Array:
    values = np.asarray(found)
    if values.shape != shape or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        what = f"an array of shape {values.shape} and type {values.dtype}"
        raise QueryError(f"attribution: gave {what} for {shape[0]} rows; expected finite numbers of shape {shape}, one a column")
    return values.astype(np.float64)
