"""Rules as a JSON file, for `verifair guard` and for people: conditions are written as in a schema's constraints.

    {"rules": [{"when": {"age": {"low": 31, "high": 45}, "relationship": ["Husband", "Wife"]}}], ...}

A hand-written file needs no more than that; `verifair explain` adds its evidence and settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from encoders.arrays import Array
from verifair.errors import DataError, SchemaError
from verifair.schema.constraint import Constraint, boxes_of
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.rules import Explained, Rule
from verifair.systems.results.files import plain, save_text
from verifair.systems.results.result import Count, Shape, Share

KIND = "verifair-rules"


class RuleEvidence(Shape):
    """The evidence of samples about a rule: mean severities and their standard deviations, and its coverage."""

    inside: float | None
    inside_deviation: float | None
    negated: float | None
    negated_deviation: float | None
    outside: float | None
    effects: dict[str, float | None]
    """Feature -> by how much severity falls when that condition alone is negated."""
    samples: Share
    domain: Share
    rows: Share | None
    difference: float | None
    """inside less negated; null: no legal row negates the rule."""


class FoundRule(Shape):
    when: dict[str, Any]
    """Conditions as a schema's constraint writes them."""
    words: str
    size: Count
    cluster: Count
    evidence: RuleEvidence


@dataclass(frozen=True, kw_only=True, eq=False)
class RuleFile:
    """The content of a file of rules.

    rules: their boxes; a rule whose categories are not consecutive in the schema's order becomes several.   words: a text for each
    box. model_sha256: of the network that was explained (None in hand-written files).   query: the arguments of KDiscrimination.
    clusters: (C, V) raw points that were explained.   settings: how the samples were drawn.
    """

    rules: tuple[Rule, ...]
    words: tuple[str, ...]
    model_sha256: str | None
    query: dict[str, Any]
    clusters: Array
    settings: dict[str, Any]


EMPTY_FILE = RuleFile(rules=(), words=(), model_sha256=None, query={}, clusters=np.empty((0, 0)), settings={})


def when(rule: Rule, schema: Schema) -> dict[str, Any]:
    """Return the conditions of a rule as the `never` of a constraint takes them."""
    domain = schema.domain
    conditions: dict[str, Any] = {}
    for v in rule.conditions:
        feature = schema.features[v]
        low, high = max(rule.lower[v], domain.lower[v]), min(rule.upper[v], domain.upper[v])
        if feature.categories is not None:
            conditions[feature.name] = list(feature.categories[int(low) : int(high) + 1])
        else:
            ends = (("low", low, low > domain.lower[v]), ("high", high, high < domain.upper[v]))
            limits = {key: int(end) if domain.integer[v] else float(end) for key, end, is_inside in ends if is_inside}
            if limits:
                conditions[feature.name] = limits
    return conditions


def plain_box(box: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query's box with the numbers that JSON has."""
    return {name: list(map(_plain, v)) if isinstance(v, (tuple, list)) else _plain(v) for name, v in box.items()}


def found_rule(explained: Explained, schema: Schema, cluster: int) -> FoundRule:
    """Return a rule in words, with the evidence of samples.   cluster: number of the explained cluster that it is about."""
    evidence = asdict(explained.evidence) | {"difference": explained.evidence.difference}
    effects = {schema.features[v].name: fall for v, fall in zip(explained.rule.conditions, explained.evidence.effects, strict=True)}
    return FoundRule(
        when=when(explained.rule, schema), words=explained.rule.words(schema), size=len(explained.rule.conditions), cluster=cluster,
        evidence=RuleEvidence(**evidence | {"effects": effects}),
    )


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def save(path: Path, answer: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, json.dumps(plain(answer), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def load(path: Path, schema: Schema) -> RuleFile:
    """Read rules about a schema. Raises DataError naming the file, the rule and the remedy."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False).encode()  # escapes may stand for lone surrogates, which cannot be written again
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); pass the rules.json of `verifair explain`") from error
    except ValueError as error:  # no UTF-8, no JSON, a number of 5,000 digits, a lone surrogate
        raise DataError(f"{path}: is not valid JSON ({error}); pass the rules.json of `verifair explain`") from error
    except RecursionError as error:
        raise DataError(f"{path}: is nested too deeply; pass the rules.json of `verifair explain`") from error
    entries = content.get("rules") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f'{path}: has no list of rules; expected {{"rules": [{{"when": {{...}}}}, ...]}}')
    if not entries:
        raise DataError(f"{path}: holds no rule, so there is nothing to refuse; explain with a smaller --delta or another cluster")
    rules, words = [], []
    for index, entry in enumerate(entries, start=1):
        for rule in _read_rule(path, index, entry, schema):
            rules.append(rule)
            words.append(rule.words(schema))
    query = _query(path, content.get("query", {}))
    check_protected(path, rules, query.get("protected", []), schema)
    return RuleFile(
        rules=tuple(rules),
        words=tuple(words),
        model_sha256=content.get("model_sha256"),
        query=query,
        clusters=_clusters(path, content.get("clusters", []), schema),
        settings=content.get("settings", {}),
    )


def _read_rule(path: Path, index: int, entry: dict[str, Any], schema: Schema) -> list[Rule]:
    try:
        boxes = boxes_of(Constraint.model_validate({"name": f"rule {index}", "never": entry.get("when")}), schema.features)
    except SchemaError as error:
        message = str(error).replace(f"constraint 'rule {index}': ", "")
        raise DataError(f"{path}: rule {index}: {message}") from None
    return [Rule(lower=lower, upper=upper) for lower, upper in zip(boxes.lower, boxes.upper, strict=True)]


class _Query(BaseModel):
    """The query that the rules were found by, as far as `verifair guard` repeats it."""

    protected: list[str] = []
    buckets: int = 20
    box: dict[str, float | str | tuple[float | str, float | str]] = {}
    values: dict[str, list[float]] = {}


def _query(path: Path, content: Any) -> dict[str, Any]:
    try:
        return _Query.model_validate(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        key = ".".join(["query", *map(str, error.errors()[0]["loc"][:2])])
        raise DataError(f"{path}: {key} is not as `verifair explain` writes it; leave it out, or explain again") from error


def check_protected(path: Path | None, rules: Sequence[Rule], protected: Sequence[str], schema: Schema) -> None:
    """Raise an error if rules use protected features: such a guardrail would itself treat people differently by them."""
    for number, rule in enumerate(rules, start=1):
        for name in (schema.features[v].name for v in rule.conditions):
            if name in protected or schema[name].protected:
                raise DataError(
                    f"{path}: rule {number} is about {name!r}, which is protected: to refuse some people by it would be "
                    "discrimination itself; take this condition out"
                )


def _clusters(path: Path, entries: Sequence[Any], schema: Schema) -> Array:
    try:
        rows = [[schema.raw_value(f.name, entry["x"][f.name]) for f in schema.features] for entry in entries]
    except (KeyError, TypeError, SchemaError) as error:
        flaw = str(error) if isinstance(error, SchemaError) else "expected a list of people, each with an x of all features"
        raise DataError(f"{path}: clusters: {flaw}; leave them out, or explain again with this schema") from error
    raw, domain = np.array(rows, dtype=np.float64).reshape(len(rows), len(schema.features)), schema.domain
    # a guarded schema's constraints may exclude the people who were explained; its ranges may not
    outside = np.flatnonzero(((raw < domain.lower) | (raw > domain.upper)).any(axis=0))
    if len(outside):
        name = schema.features[outside[0]].name
        raise DataError(f"{path}: clusters: {name!r} lies outside the schema's range; explain again with this schema")
    return raw
