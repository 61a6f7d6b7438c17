"""Comparison of a schema's decisions with those of the object itself, on rows of a table as the object's `predict` takes them and
as the schema reads them: they agree only if columns, categories, scales and thresholds are all right."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import logit

from encoders.arrays import Array, Booleans
from encoders.errors import ModelError
from encoders.model import Link, Model
from verifair.errors import VerifairError
from verifair.models.columns import names_of
from verifair.models.compare import ImportDifference, named_columns, predicted_classes, predictions, some_rows
from verifair.models.converters.pipelines import scales
from verifair.models.objects import called, package_of
from verifair.schema.outcome import PositiveRule

if TYPE_CHECKING:
    from verifair.schema.schema import Schema

RARE, FEW = 0.01, 2
"""Share of the rows, and number of rows: more different decisions than these are no rounding errors."""
REMEDY = (
    "give the table that it was fitted on, with its columns in their order and its categories as they were; where the rows hold a "
    "value that decides, move the threshold of `positive` off it, for models hold float32 numbers; where trees ask about decimals "
    "such as 14.81, fit it on float32 numbers (frame.astype with 'float32')"
)


def check_decisions(model: Any, network: Model, schema: Schema, frame: pd.DataFrame) -> None:
    """Compare the decisions on rows of a table with an object's own; models without predictions of their own are skipped.

    network: as `read` returned it. Raises ModelError if more than RARE of the rows (and FEW) are decided differently, warns of
    fewer (ImportDifference). Other functions refuse rows that the schema does not take, and objects that do not take the table.
    """
    if model is network or package_of(model) is None or isinstance(model, type):
        return
    try:
        rows = some_rows(frame).dropna(subset=[name for name in schema.columns_filled if name in frame.columns])
        expected = _own_decisions(model, network, schema, rows) if len(rows) else None
        if expected is None:
            return
        resolved_model, resolved = schema.settled(network)
        logits = resolved.judges(resolved_model).forward(resolved.encode(resolved.raw(rows, outside="keep")))
    except VerifairError:
        return
    decided = (logits[:, 0] > 0 if logits.shape[1] == 1 else logits[:, 1] > logits[:, 0]) == bool(resolved.good)
    differing = np.flatnonzero(decided != expected)
    if not len(differing):
        return
    first, names = int(differing[0]), resolved.class_names
    message = (
        f"{len(differing):,} of {len(rows):,} rows of the table are decided otherwise, as the schema reads them, than the object "
        f"itself predicts; the first is row {rows.index[first]}, {names[int(decided[first] == bool(resolved.good))]!r} in place of "
        f"{names[int(expected[first] == bool(resolved.good))]!r}"
    )
    scaled_trees = network.of_trees and scales(model)  # `compare` has checked these
    if len(differing) > max(RARE * len(rows), FEW) and not scaled_trees:
        raise ModelError(called(model), f"{message}; {REMEDY}")
    warnings.warn(f"{called(model)}: {message}. Proofs are about the model as it is read", ImportDifference, stacklevel=3)


def _own_decisions(model: Any, network: Model, schema: Schema, rows: pd.DataFrame) -> Booleans | None:
    """Return (N,) True for rows that an object's own predictions favour; None if it cannot predict for this table."""
    names, rule = names_of(model), schema.outcome
    inputs: Any = named_columns(rows, names)
    if inputs is None:
        return None
    if not names:
        if any(feature.scale is not None for feature in schema.features):  # the object takes what was made of the table
            return None
        columns = [name for name in rows.columns if name != schema.label]
        if len(columns) != getattr(model, "n_features_in_", len(columns)):
            return None
        inputs = rows[columns].to_numpy()
    by_class = len(getattr(model, "classes_", ())) > 0 and (rule.of == "class" or rule.plain)
    try:
        classes = predicted_classes(model, inputs) if by_class else None
        values = None if by_class else predictions(model, inputs)
    except Exception:  # objects may raise anything for a table that is not theirs; verifair's own code stands outside
        return None
    if values is not None:
        return _favoured_by_values(values, network.whole.link, rule)
    return None if classes is None else rule.favourable(classes)


def _favoured_by_values(values: Array, link: Link, rule: PositiveRule) -> Booleans | None:
    """Return the same from probabilities or values (N, k) of an object; None for a class that they do not determine."""
    if rule.of == "value":
        return rule.reached(values[:, 0])
    if rule.of == "class" or values.shape[1] > 2:
        return rule.favourable(values.argmax(axis=1)) if values.shape[1] > 1 else None
    chance = values[:, -1]
    match link:
        case Link.SHARES:
            return rule.reached(chance - 0.5)
        case Link.IDENTITY:
            return rule.reached(chance if values.shape[1] == 1 else chance - values[:, 0])
        case _:
            return rule.reached(logit(chance))
