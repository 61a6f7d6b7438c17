"""Models over more columns than they read, for example if a one-hot block lacks a category (dummy variables of a regression)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from encoders.arrays import Integers
from encoders.model import NO_COLUMN, Model
from encoders.network import Network
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees


def with_columns(model: Model, place: Integers, columns: int) -> Model:
    """Return the model, as it was read, over more columns: it reads only its own n columns, at `place` (n,)."""
    feeds = tuple(replace(feed, start=np.where(feed.start == NO_COLUMN, NO_COLUMN, place[feed.start])) for feed in model.feeds)
    trees = model.trees if isinstance(model, MeanOfTrees) else model
    if isinstance(trees, TreeEnsemble):
        trees = replace(trees, column=np.where(trees.column < 0, trees.column, place[trees.column]), columns=columns, feeds=feeds)
        if not isinstance(model, MeanOfTrees):
            return trees
        lines, squares = (None if matrix is None else matrix @ np.eye(columns)[place] for matrix in (model.lines, model.squares))
        return replace(model, trees=trees, feeds=feeds, lines=lines, squares=squares)
    assert isinstance(model, Network), type(model)
    pick = np.eye(columns)[place]  # 0 and 1, so that products are exact; `replace` would read a smooth layer's slope
    (first, *others), records = model.layers, model.rounding
    if records is not None and records[0].size is not None:
        records = (replace(records[0], size=records[0].size @ pick), *records[1:])
    fields = {**vars(first), "weight": first.weight @ pick}
    return replace(model, layers=(type(first)(**fields), *others), rounding=records, feeds=feeds)
