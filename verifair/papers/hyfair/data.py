"""Fairify's schemas (JSON) as our Schema, and the questions that the HyFair paper asks about Fairify's networks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoders.network import Array, Network
from encoders.onnx.reader import read_onnx
from verifair.datasets import read_table
from verifair.papers.catalog import Request
from verifair.schema.schema import Schema

NINE_AGES = (0, 9)
"""Range of Bank's age with which the paper's k of up to 9 can be met: with the published one, 0 and 1, it is 2 at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """A network, its schema, what is protected, the protected values that are combined, and (N, V) rows of its table."""

    network: Network
    schema: Schema
    protected: tuple[str, ...]
    values: Mapping[str, Sequence[float]]
    rows: Array


def question(request: Request) -> Question:
    """Of Adult: age by decades, race and sex (K = 90); of Bank: nine ages."""
    adult = request.dataset.startswith("AC")
    family = "adult" if adult else "bank"
    path, folder = request.file("nets", f"{request.dataset}.onnx"), request.file("schemas").parent
    schema = fairify_schema(folder, family, ranges={} if adult else {"age": NINE_AGES})
    rows = schema.raw(read_table(request.file("encoded", f"{family}.csv.gz")), outside="keep")
    protected = ("age", "race", "sex") if adult else ("age",)
    values = {"age": range(10, 100, 10) if adult else range(1, 10)}
    return Question(network=read_onnx(path), schema=schema, protected=protected, values=values, rows=rows)


def fairify_schema(
    folder: Path, family: str, *, named: bool = False, scaled: bool = False, ranges: Mapping[str, tuple[int, int]] | None = None
) -> Schema:
    """Integer features over the declared domain, in the raw label-encoded units the networks take.

    named: label-encoded features are categorical, with the names of their classes, so that rules and witnesses read in words.
    scaled: the network takes all features scaled to 0 .. 1 by their ranges.   ranges: of some features, instead of the declared.
    """
    content = family_file(folder, family)
    scale = {"scale": "minmax"} if scaled else {}
    declared = [{**f, **dict(zip(("low", "high"), (ranges or {}).get(f["name"], ()), strict=False))} for f in content["features"]]
    features = [{**_values(f, named), **scale, "protected": f["name"] in content["protected_attributes"]} for f in declared]
    return Schema.build({"features": features, "positive": "logit > 0", "label": content["label_column"]}, name=family)


def family_file(folder: Path, family: str) -> dict[str, Any]:
    """Return what the schema file of a family holds."""
    content: dict[str, Any] = json.loads((folder / "schemas" / f"{family}.json").read_text(encoding="utf-8"))
    return content


def _values(feature: dict[str, Any], named: bool) -> dict[str, Any]:
    """Name, kind and range. Where the declared domain has fewer codes than there are classes, the last classes are left out."""
    name, low, high, classes = feature["name"], feature["low"], feature["high"], feature.get("label_classes")
    if named and classes and low == 0 and high < len(classes):
        return {"name": name, "kind": "categorical", "categories": classes[: high + 1]}
    return {"name": name, "kind": "integer", "range": [low, high], "unit": 1}
