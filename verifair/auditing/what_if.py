"""Data of the page's *What if*: the model's numbers, the schema's ranges and constraints, and people to start with."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array
from encoders.curves.layer import SmoothLayer
from encoders.model import Link, Model
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees
from verifair.auditing.subject import AuditSubject
from verifair.engine.questions import box_of
from verifair.errors import VerifairError
from verifair.schema.constraint import boxes_of, labelled
from verifair.schema.schema import Schema
from verifair.systems.results.findings import Section, WitnessRow
from verifair.systems.results.result import Shape
from verifair.systems.work import called

LARGEST = 2_000_000
"""Bytes of a model on the page."""


class WhatIf(Shape):
    """Data of *What if*.   problem: the reason that the page cannot compute (None: it can).   content: data of its script.

    people: the raw row of each counterexample, in the order of the sections; None if it is not known.
    """

    problem: str | None
    content: dict[str, Any]
    people: list[list[float] | None]


def what_if(subject: AuditSubject, sections: Sequence[Section]) -> WhatIf:
    """Return the model and the schema for the page's script, with the proofs about possible people."""
    model, schema = subject.network.whole, subject.schema
    data = embedded(model)
    size = sum(len(values) for values in data["numbers"].values())
    problem = None
    if size > LARGEST:
        problem = f"The model is too large to embed: {size / 1e6:.1f} MB, at most {LARGEST / 1e6:.0f} MB are put on a page."
    content = {
        "features": [_feature(schema, v) for v in range(len(schema.features))], "forbidden": _forbidden(schema),
        "protected": [schema.index(name) for name in subject.protected], "favourable": subject.favourable,
        "unfavourable": subject.unfavourable, "model": None if problem else data, "output": _output(schema, model),
        "start": _first_person(subject), "held": _proved_statements(schema, subject.protected, sections),
    }  # fmt: skip
    return WhatIf(problem=problem, content=content, people=[_row(schema, w) for part in sections for w in part.witnesses])


def embedded(model: Model) -> dict[str, Any]:
    """Return a network, an ensemble or a mean of one's outputs, with its arrays in base64, little-endian.

    Arrays are float32 if all their numbers are float32 (as stored), otherwise float64 (if the reader folded constants).
    """
    if isinstance(model, TreeEnsemble):
        ints = {name: getattr(model, name).astype("<i4") for name in ("root", "column", "left", "right", "missing_left")}
        real = {name: _narrow(getattr(model, name)) for name in ("threshold", "value", "base")}
        return {"kind": "trees", "outputs": model.outputs, "numbers": {name: _text(array) for name, array in (ints | real).items()}}
    if isinstance(model, MeanOfTrees):
        ramps, trees = model.ramps, embedded(model.trees)
        ints = {name: getattr(ramps, name).astype("<i4") for name in ("score", "logistic", "chances")}
        real = {name: _narrow(getattr(ramps, name)) for name in ("shift", "scale", "weight")} | {"added": np.array(model.added)}
        for name, factor in (("lines", model.lines), ("squares", model.squares)):
            real[name] = np.zeros(0) if factor is None else _narrow(factor.ravel())
        numbers = trees["numbers"] | {name: _text(array) for name, array in (ints | real).items()}
        return {"kind": "mean", "outputs": 1, "numbers": numbers}
    numbers, layers = dict[str, str](), []
    for number, layer in enumerate(model.layered("What if").layers):
        is_smooth = isinstance(layer, SmoothLayer)
        slope = layer.bend if isinstance(layer, SmoothLayer) else layer.slope
        for name, values in (("weight", layer.weight), ("bias", layer.bias), ("slope", slope)):
            numbers[f"{name}{number}"] = _text(_narrow(values))
        if isinstance(layer, SmoothLayer):
            numbers[f"curve{number}"] = _text(layer.curve.astype("<i4"))
        layers.append({"inputs": layer.weight.shape[1], "outputs": layer.weight.shape[0], "smooth": is_smooth})
    return {"kind": "network", "outputs": model.outputs, "layers": layers, "numbers": numbers}


def _narrow(values: Array) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):
        narrow = values.astype("<f4")
    return narrow if np.array_equal(narrow.astype(np.float64), values) else values.astype("<f8")


def _text(values: npt.NDArray[Any]) -> str:
    """Return the kind of the numbers (i4, f4 or f8), and their bytes in base64."""
    return f"{values.dtype.str[1:]}:{base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()}"


def _output(schema: Schema, model: Model) -> dict[str, Any]:
    """Return the interpretation of the model's outputs: the quantity that is shown, and the decision."""
    rule = schema.outcome
    classes = max(2, model.outputs)
    chosen = list(rule.favoured(classes)) if rule.of == "class" else []
    group = chosen if schema.good else [k for k in range(classes) if k not in chosen]
    return {
        "quantity": schema.quantity, "value": rule.of == "value",
        "shares": model.link is Link.SHARES, "group": group, "classes": chosen,
        "operator": rule.operator if rule.of != "class" else None, "at": rule.at,
    }  # fmt: skip


def _feature(schema: Schema, v: int) -> dict[str, Any]:
    feature, domain = schema.features[v], schema.domain
    return {
        "name": feature.name, "unit": feature.unit_name, "categories": feature.categories, "integer": bool(domain.integer[v]),
        "low": float(domain.lower[v]), "high": float(domain.upper[v]), "offset": float(domain.offset[v]),
        "scale": float(domain.scale[v]), "start": int(domain.start[v]), "width": int(domain.width[v]),
        "one_hot": bool(domain.one_hot[v]),
    }  # fmt: skip


def _forbidden(schema: Schema) -> list[dict[str, Any]]:
    """Return the boxes of illegal rows, each with its constraint: feature -> [low, high], null for no end."""
    result = []
    for label, constraint in labelled(schema.constraints):
        boxes = boxes_of(constraint, schema.features)
        for low, high in zip(boxes.lower, boxes.upper, strict=True):
            bounds = {str(v): [_end(low[v]), _end(high[v])] for v in np.flatnonzero(np.isfinite(low) | np.isfinite(high)).tolist()}
            result.append({"name": label, "ends": bounds})
    return result


def _end(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _first_person(subject: AuditSubject) -> list[float]:
    """Return the first person to show: the table's medians and most frequent categories or, if the schema forbids these, the row
    that shares most of them; without a table the middle of all ranges, legal or not."""
    domain = subject.schema.domain
    raw = subject.raw()
    if raw is None or not len(raw):
        return [float(v) for v in domain.middle(domain.lower[None], domain.upper[None])[0]]
    typical = []
    for v, column in enumerate(raw.T):
        values, count = np.unique(column, return_counts=True)
        is_number = subject.schema.features[v].numeric
        typical.append(np.sort(column)[(len(column) - 1) // 2] if is_number else values[count.argmax()])
    middle = np.array(typical)
    if domain.legal(middle[None])[0]:
        return [float(v) for v in middle]
    return [float(v) for v in raw[int((raw == middle).sum(axis=1).argmax())]]


def _row(schema: Schema, witness: WitnessRow) -> list[float] | None:
    """Return the raw row of a counterexample's first person."""
    try:
        return [float(schema.raw_value(feature.name, witness.x[feature.name])) for feature in schema.features]
    except (KeyError, VerifairError):
        return None


def _proved_statements(schema: Schema, protected: Sequence[str], sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return the statements proved about everybody within a box and accepted by the checker in this run: the file's own sentence,
    the feature, the box, and the bound of a probability's change (None: the sentence is about something else)."""
    result = []
    for section in sections:
        if section.key != "certify":
            continue
        lower, upper = box_of(schema, section.settings.get("box", {}))
        by_feature = section.answer.get("by_feature", ())
        gaps = {answer["protected"]: answer["largest_gap"] for answer in by_feature if answer.get("largest_gap") is not None}
        for proof in (proof for proof in section.evidence if proof.checked == "accepted"):
            for name in protected:
                is_gap = Path(proof.file).name == f"gap-{called(name)}.json.gz"
                if not is_gap and Path(proof.file).name != f"certify-{called(name)}.json.gz":
                    continue
                bound = gaps[name]["upper"] if is_gap and gaps[name]["quantity"] == "probability" else None
                result.append({
                    "text": proof.proves, "file": proof.file, "feature": schema.index(name), "far": bound,
                    "lower": lower.tolist(), "upper": upper.tolist(),
                })  # fmt: skip
    return result
