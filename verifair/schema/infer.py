"""What can be seen of a schema in a table: the kinds, ranges and categories of its columns, and the classes of its label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from encoders.network import NO_COLUMN, Network
from verifair.errors import DataError
from verifair.schema.feature import text
from verifair.schema.network import exported, other_class

MANY = 50
"""A text column with more distinct values than this is an identifier or free text, not a category."""
BARE = ("true", "false", "yes", "no")
CLASSES = 20
"""A label with more distinct values than this is a quantity, not a class."""


def inferred(
    frame: pd.DataFrame, *, target: str, positive: str | None = None, protected: Sequence[str] = (), network: Network | None = None
) -> dict[str, Any]:
    """Return the fields of the drafted schema. Raises DataError for columns that no feature kind fits.

    network: the model that it is for, read from a file. Of a pipeline that takes the table's columns it knows the order, which of
    them are encoded, with which categories, and that numbers come unscaled; ranges come from the table.
    """
    for name in (target, *protected):
        if name not in frame.columns:
            raise DataError(f"the table has no column {name!r}; known are {', '.join(map(str, frame.columns))}")
    if network is None:
        features = [_feature(str(name), frame[name], name in protected) for name in frame.columns if name != target]
    else:
        features = _of_model(network, frame, target, protected)
    values = sorted({text(v) for v in frame[target].dropna()})
    if not 2 <= len(values) <= CLASSES:
        raise DataError(f"label {target!r} has {len(values)} distinct values, expected 2 to {CLASSES} classes; name another column")
    # Several classes are told apart by their numbers, and reports are about class 1.
    numbered = network is not None and network.outputs > 2 and all(value.isdecimal() for value in values)
    second = "1" if numbered else network.classes[1] if network is not None and network.classes else ""
    chosen = positive if positive is not None else second if second in values else values[-1]
    if chosen not in values:
        raise DataError(f"label {target!r} never is {chosen!r}; found {', '.join(values[:8])}")
    flaw = None if network is None or (numbered and chosen == "1") else other_class(network, chosen)
    if flaw is not None:
        raise DataError(f"label {target!r}, positive {chosen!r}: {flaw}")
    rule = "logit > 0" if network is not None and network.outputs == 1 else "class = 1"
    other = next(v for v in values if v != chosen) if len(values) == 2 else f"not {chosen}"
    outcomes = [_outcome(other, target), _outcome(chosen, target)]
    label = {"label": target} if numbered else {"label": target, "positive_label": chosen}
    return {"features": features, "positive": rule, **label, "outcomes": outcomes}


def _outcome(value: str, target: str) -> str:
    """Return a class in words: a number, or yes or no, says nothing by itself."""
    said = " ".join(value.split())
    bare = said.removeprefix("not ")
    return said if len(bare) > 1 and any(map(str.isalpha, bare)) and bare.lower() not in BARE else f"{target} {said or '(empty)'}"


def _of_model(network: Network, frame: pd.DataFrame, target: str, protected: Sequence[str]) -> list[dict[str, object]]:
    """Return a feature for each column that a stored model takes. Models with a single input take the table's columns in their
    order."""
    columns = [str(name) for name in frame.columns if name != target]
    inputs = [(feed, position) for feed in network.feeds for position in range(len(feed.start))]
    if len(network.feeds) > 1:
        known = {exported(name): name for name in columns}
        columns = [known.get(exported(feed.name), feed.name) for feed, _ in inputs]
    if len(inputs) != len(columns):
        found = f"the model takes {len(inputs)} columns, the table has {len(columns)} beside the label"
        raise DataError(f"{found}; give the table that it was trained on")
    features = []
    for name, (feed, position) in zip(columns, inputs, strict=True):
        if feed.start[position] == NO_COLUMN:
            continue
        if name not in frame.columns:
            known_names = ", ".join(map(str, frame.columns))
            raise DataError(f"the table has no column {name!r}, which the model takes; known are {known_names}")
        if position in feed.categories:
            feature: dict[str, object] = {"name": name, "kind": "one-hot", "categories": list(feed.categories[position])}
        else:
            feature = {k: v for k, v in _feature(name, frame[name], name in protected).items() if k != "scale"}
            if feature["kind"] == "one-hot" or (feature["kind"] == "categorical" and feature["categories"] != [0, 1]):
                raise DataError(f"column {name!r} holds text, but the model takes a number there; give the table it was trained on")
        features.append(feature | ({"protected": True} if name in protected else {}))
    return features


def _feature(name: str, column: pd.Series, protected: bool) -> dict[str, object]:
    values = column.dropna()
    if not len(values):
        raise DataError(f"column {name!r} is empty; drop it from the table")
    if pd.api.types.is_datetime64_any_dtype(values):
        raise DataError(f"column {name!r} holds dates, which no feature kind takes; turn it into a number, or drop it")
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        if not np.isfinite(values.to_numpy(dtype=float)).all():
            raise DataError(f"column {name!r} holds an infinite value, expected finite numbers; correct the data")
        if set(values) == {0, 1}:  # a flag: as a number, PBA would move it by a unit
            flag: dict[str, object] = {"name": name, "kind": "categorical", "categories": [0, 1]}
            return flag | ({"protected": True} if protected else {})
        low, high = float(values.min()), float(values.max())
        whole = bool((values == values.round()).all())
        if protected and whole and values.nunique() <= 10:
            return {"name": name, "kind": "integer", "range": [low, high], "protected": True}
        numeric: dict[str, object] = {"name": name, "kind": "integer" if whole else "real", "range": [low, high]}
        if low < high:
            numeric |= {"scale": "minmax", "unit": _unit(high - low, whole)}
        return numeric | ({"protected": True} if protected else {})
    categories = sorted({text(v) for v in values})
    if len(categories) > MANY:
        raise DataError(
            f"column {name!r} holds {len(categories)} distinct texts (for example {categories[0]!r}), too many for a category; "
            "drop it, or group its values"
        )
    kind = "categorical" if len(categories) <= 2 else "one-hot"
    return {"name": name, "kind": kind, "categories": categories} | ({"protected": True} if protected else {})


def _unit(width: float, whole: bool) -> float:
    """Return a round 1-2-5 number near half a percent of the range; at least 1 for whole numbers."""
    power = 10.0 ** math.floor(math.log10(width / 200))
    unit = min((m * power for m in (1, 2, 5, 10)), key=lambda u: abs(math.log(u * 200 / width)))
    return max(1.0, round(unit)) if whole else unit
