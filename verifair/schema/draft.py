"""A first draft of a schema file from a table: what can be seen is filled in, what has to be decided is left as a note."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from encoders.network import Network
from verifair.schema.schema import Feature, Schema


def draft(
    frame: pd.DataFrame, *, target: str, positive: str | None = None, protected: Sequence[str] = (), network: Network | None = None
) -> str:
    """Return TOML text of a drafted schema with a comment on every guess. Raises DataError for columns that no feature kind
    fits."""
    schema = Schema.infer(frame, target=target, positive=positive, protected=protected, network=network)
    notes = {feature.name: _note(feature) for feature in schema.features}
    lines = [
        "# Drafted from the data. The order of the features must be the order of the network's input columns: check it first,",
        '# then every note. scale = "minmax" and one-hot blocks fit networks trained on normalised, encoded inputs.',
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
    if feature.kind == "integer":
        return "check: range (the data's), unit (one PBA perturbation step), change (free, increase, decrease, fixed)"
    if feature.kind == "real":
        return "check: range (the data's), unit, and whether the network takes raw or scaled values"
    if feature.kind == "one-hot":
        return "check: order of the categories is the order of the columns; a network may take one code column instead"
    return "check: which category is code 0"
