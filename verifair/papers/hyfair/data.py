"""Fairify's schemas (JSON) as our Schema, and the questions that the HyFair paper asks about Fairify's networks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from encoders.network import Network
from encoders.onnx.reader import read_onnx
from verifair.datasets import Dataset, read_table
from verifair.engine.queries import KDiscrimination
from verifair.papers.catalog import Request
from verifair.schema.schema import Schema

NINE_AGES = (0, 9)
"""Range of Bank's age with which the paper's k of up to 9 can be met: with the published one, 0 and 1, it is 2 at most."""

FAMILIES = {"AC": "adult", "BM": "bank", "GC": "german"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """A network, its protected features, the protected values that are combined, and the rows of its table that its schema
    allows."""

    network: Network
    protected: tuple[str, ...]
    values: Mapping[str, Sequence[float]]
    table: Dataset

    @property
    def schema(self) -> Schema:
        return self.table.schema

    @property
    def clusters(self) -> KDiscrimination:
        """Return the query that the paper counts: outcomes over the combined protected values."""
        return KDiscrimination(model=self.network, schema=self.schema, protected=self.protected, values=self.values)


def question(request: Request) -> Question:
    """Return the question for Adult (age by decades, race and sex, K = 90) or Bank (nine ages)."""
    adult = request.dataset.startswith("AC")
    result = declared(request, ranges={} if adult else {"age": NINE_AGES})
    protected = ("age", "race", "sex") if adult else ("age",)
    values = {"age": range(10, 100, 10) if adult else range(1, 10)}
    return replace(result, protected=protected, values=values)


def declared(request: Request, ranges: Mapping[str, tuple[int, int]] | None = None) -> Question:
    """Return the question for any of Fairify's networks, with all values of the features that its schema declares protected."""
    family = FAMILIES[request.dataset[:2]]
    path, folder = request.file("nets", f"{request.dataset}.onnx"), request.file("schemas").parent
    schema = fairify_schema(folder, family, ranges=ranges)
    frame = read_table(request.file("encoded", f"{family}.csv.gz"))
    frame = frame[schema.fitting(frame)].reset_index(drop=True)
    table = Dataset(name=family, frame=frame, schema=schema)
    return Question(network=read_onnx(path), protected=tuple(schema.protected_names), values={}, table=table)


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
    """Return the content of a family's schema file."""
    content: dict[str, Any] = json.loads((folder / "schemas" / f"{family}.json").read_text(encoding="utf-8"))
    return content


def _values(feature: dict[str, Any], named: bool) -> dict[str, Any]:
    """Name, kind and range. Where the declared domain has fewer codes than there are classes, the last classes are left out."""
    name, low, high, classes = feature["name"], feature["low"], feature["high"], feature.get("label_classes")
    if named and classes and low == 0 and high < len(classes):
        return {"name": name, "kind": "categorical", "categories": classes[: high + 1]}
    return {"name": name, "kind": "integer", "range": [low, high], "unit": 1}
