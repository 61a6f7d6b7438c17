"""Fairify's schemas (JSON, from VERIFAIR_DATA) as our Schema, and the queries with exact verdicts that come with them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoders.onnx_reader import read_onnx
from verifair.queries import IndividualFairness
from verifair.schema import Schema

FAMILIES = ("german", "adult", "bank")


@dataclass(frozen=True, kw_only=True)
class ExactQuery:
    """A query on a small integer box with its verdict by full enumeration: SAT = some decision flips."""

    name: str
    query: IndividualFairness
    verdict: str


def data_folder() -> Path | None:
    """The folder that VERIFAIR_DATA names, or None."""
    folder = os.environ.get("VERIFAIR_DATA")
    return Path(folder) if folder else None


def fairify_schema(folder: Path, family: str, *, named: bool = False) -> Schema:
    """Integer features over the declared domain, in the raw label-encoded units the networks take.

    named: label-encoded features are categorical, with the names of their classes, so that rules and witnesses read in words.
    """
    content = json.loads((folder / "schemas" / f"{family}.json").read_text(encoding="utf-8"))
    features = [{**_values(f, named), "protected": f["name"] in content["protected_attributes"]} for f in content["features"]]
    return Schema.build({"features": features, "positive": "logit > 0", "label": content["label_column"]}, name=family)


def _values(feature: dict[str, Any], named: bool) -> dict[str, Any]:
    """Name, kind and range. Where the declared domain has fewer codes than there are classes, the last classes are left out."""
    name, low, high, classes = (feature.get(key) for key in ("name", "low", "high", "label_classes"))
    if named and classes and low == 0 and high < len(classes):
        return {"name": name, "kind": "categorical", "categories": classes[: high + 1]}
    return {"name": name, "kind": "integer", "range": [low, high], "unit": 1}


def exact_queries(folder: Path) -> list[ExactQuery]:
    """All 84 queries of the three families."""
    out = []
    for family in FAMILIES:
        schema = fairify_schema(folder, family)
        listed = json.loads((folder / f"queries_{family}.json").read_text(encoding="utf-8"))
        networks = {name: read_onnx(folder / "nets" / f"{name}.onnx") for name in {q["net"] for q in listed["queries"]}}
        for k, entry in enumerate(listed["queries"]):
            box = {name: tuple(ends) for name, ends in zip(listed["features"], entry["box"], strict=True)}
            query = IndividualFairness(network=networks[entry["net"]], schema=schema, protected=[entry["pa"]], box=box)
            out.append(ExactQuery(name=f"{family}-{k} {entry['net']} {entry['pa']}", query=query, verdict=entry["verdict"]))
    return out
