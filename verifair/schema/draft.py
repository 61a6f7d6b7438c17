"""Draft a schema file from a table: facts are filled in, and decisions that a person must make are left as notes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

from verifair.schema.drafts.column import missing, row_numbers
from verifair.schema.drafts.infer import DraftWarning
from verifair.schema.drafts.one_hot import gathered, spread
from verifair.schema.schema import Feature, Scale, Schema

DRAFTED = "# Drafted from the data."
"""The first line of a draft; a person removes it after checking the draft."""


def draft(
    frame: pd.DataFrame, *, target: str, positive: Any = None, protected: Sequence[str] = (), model: Any = None
) -> str:
    """Return TOML text of a drafted schema with a comment on every guess. Raises DataError for columns that no feature kind
    fits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DraftWarning)  # the notes contain it
        schema = Schema.infer(frame, target=target, positive=positive, protected=protected, model=model)
    return noted(schema, frame)


def noted(schema: Schema, frame: pd.DataFrame) -> str:
    """Return TOML text of a schema that was drafted from a table, with a comment on every guess."""
    notes = {feature.name: _note(feature) for feature in schema.features}
    groups = (missing(frame, set(notes) - set(schema.missing)), gathered(frame, schema.features), spread(frame, list(notes)))
    for column, reason in (item for group in groups for item in group.items()):
        notes[column] += f"\n# {reason}"
    numbers = row_numbers(frame, [name for name in map(str, frame.columns) if name != schema.label])
    for column, reason in numbers.items():
        if column in notes:
            notes[column] += f"\n# check: it {reason}; drop it unless the model takes it, and then fit the model without it"
    omitted = [f"# check: column {column!r} {reason}, and is left out" for column, reason in numbers.items() if column not in notes]
    lines = [
        f"{DRAFTED} The order of the features must be the order of the network's input columns: check it first,",
        '# then every note. scale = "minmax" and one-hot blocks fit networks trained on normalised, encoded inputs.',
        *omitted,
    ]
    for line in schema.dumps().splitlines():
        lines.append(line)
        name = line.removeprefix("name = ").strip('"') if line.startswith("name = ") else None
        if name in notes:
            lines.append(f"# {notes[name]}")
        if line.startswith("outcomes = "):
            lines.append("# check: which label is the favourable one (positive_label), and what reports call the two outcomes")
    return "\n".join(lines) + "\n"


def _note(feature: Feature) -> str:
    """Return the note of what to check about a feature."""
    merit = "; merit was proposed: it goes with the label, but is it a legitimate reason?" if feature.merit else ""
    empty = f"; cells without a value are {feature.missing!r}, as the model's encoder has them" if feature.missing else ""
    scaled = "; scale (as the labels suggest; the table's mean and deviation, so correct them to those of the training)"
    return _note_of_kind(feature) + empty + (scaled if isinstance(feature.scale, Scale) else "") + merit


def _note_of_kind(feature: Feature) -> str:
    if feature.kind == "integer":
        return "check: range (the data's), unit (one PBA perturbation step), change (free, increase, decrease, fixed)"
    if feature.kind == "real":
        return "check: range (the data's), unit, and whether the network takes raw or scaled values"
    if feature.kind == "one-hot":
        return "check: order of the categories is the order of the columns; a network may take one code column instead"
    return "check: which category is code 0"
