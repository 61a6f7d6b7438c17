"""A schema drafted from a table: its features, and the favourable class or value of the label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from encoders.network import Model
from verifair.errors import DataError, SchemaError
from verifair.models.converters.missing import MissingCategory
from verifair.models.objects import exported
from verifair.schema.drafts.column import row_numbers
from verifair.schema.drafts.one_hot import is_one_feature, is_whole, one_feature, one_hot_columns, words_of
from verifair.schema.drafts.table import CLEARLY, LabelledTable, by_name, taken_by
from verifair.schema.feature import text
from verifair.schema.network import TRUTHS, check_threshold, classes_called, other_class, upwards
from verifair.schema.outcome import PositiveRule
from verifair.schema.rows import label_values
from verifair.schema.spelling import listed, nearest

BARE = ("true", "false", "yes", "no")
CLASSES = 20
"""A label with more distinct values than this is a quantity, not a class."""
SURELY = 0.5
"""Further share needed to reverse labels 0 and 1, as class 1 is expected to be label 1."""


class DraftWarning(UserWarning):
    """A warning about a table that its drafted schema cannot express, such as missing values."""


def check_asked(frame: Any, *, target: Any, positive: Any) -> None:
    """Raise DataError unless the arguments are a table whose columns have words for names, and the label's name."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"frame: found {type(frame).__name__}; expected a DataFrame with the label and the model's columns")
    strange = [name for name in frame.columns if not isinstance(name, str)]
    if strange:
        remedy = "pass frame.rename(columns=str), and a model that was fitted on a table with such names"
        raise DataError(f"column {strange[0]!r}: its name is no text; {remedy}")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"the table has several columns {str(twice[0])!r}; give each its own name")
    if not isinstance(target, str):
        raise DataError(f"target: found {type(target).__name__}; expected the name of the label column")
    if not pd.api.types.is_scalar(positive):
        raise DataError(f"positive: found {type(positive).__name__}; expected one label, or a rule such as 'value >= 600'")


def column_names(found: Any, what: str) -> list[str]:
    """Return names of columns, from one or several. Raises DataError for anything else, such as the values of a column."""
    several = isinstance(found, Iterable) and not isinstance(found, pd.Series | pd.DataFrame)
    names = [found] if isinstance(found, str) else list(found) if several else [found]
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        raise DataError(f"{what}: found {type(strange[0]).__name__}; expected names of columns, such as {what}=['sex']")
    return names


def inferred(
    frame: pd.DataFrame, *, target: str, positive: Any, protected: Sequence[str], network: Model | None, unscaled: bool,
    encoded: Mapping[str, MissingCategory] | None = None,
) -> dict[str, Any]:
    """Return the fields of the drafted schema. Raises DataError for columns that no feature kind fits.

    network: the model that it is for. A pipeline that takes the table's columns determines their order, the encoded ones and their
    categories, and that numbers are unscaled; ranges come from the table. A model that takes a matrix determines only the width:
    numbers are drafted raw, by minmax or standardised, whichever predicts the table's labels best; unscaled: raw.
    encoded: `LabelledTable.missing`.
    """
    blocks = one_hot_columns(frame, taken_by(network, frame, target), protected)
    made = [feature for feature, block in blocks.items() if is_one_feature(frame, feature, block, protected)]
    words = {feature: words_of(frame, feature, blocks[feature]) for feature in made}
    for name in protected:
        for feature, block in blocks.items():
            if name in block and feature in words:
                of = f"of the one-hot columns {listed(block)} a draft makes one feature"
                raise DataError(f"{name!r}: {of}; name {feature!r} as protected")
            if (name == feature not in (*frame.columns, *words)) or (name in block and is_whole(frame, block)):
                raise DataError(f"{name!r} cannot be protected by a drafted schema: {one_feature(frame, feature, block)}")
    for name in (target, *protected):
        if name not in frame.columns and name not in words:
            raise DataError(f"the table has no column {name!r}; {nearest(name, [*words, *frame.columns])}")
    table = LabelledTable(
        frame=frame, target=target, protected=protected, network=network, unscaled=unscaled,
        named=pd.concat([frame, pd.DataFrame(words, index=frame.index)], axis=1),
        blocks={feature: blocks[feature] for feature in words}, missing=encoded,
    )
    values = sorted({text(v) for v in frame[target].dropna()})
    rule = rule_of(positive, values)
    if rule is not None and rule.of == "value":
        found = _of_value(table, rule)
    elif network is not None and network.outputs > 2:
        found = _of_many_classes(table, network, values, positive, rule)
    else:
        found = _of_two_classes(table, values, positive, rule)
    apart = next((name for name in protected if name in words and all(one["name"] != name for one in found["features"])), None)
    if apart is not None:
        where = "do not stand together among the model's inputs; fit it on a table in which they do"
        raise DataError(f"{apart!r} cannot be protected: its one-hot columns {listed(blocks[apart])} {where}")
    return found


def rule_of(positive: Any, values: Sequence[str]) -> PositiveRule | None:
    """Return the outcome if `positive` is a rule, such as "value >= 600"; None if it is a label, or not given."""
    if not isinstance(positive, str) or text(positive) in values:
        return None
    try:
        return PositiveRule.parse(positive)
    except SchemaError:
        return None


def _of_two_classes(table: LabelledTable, values: list[str], positive: Any, rule: PositiveRule | None) -> dict[str, Any]:
    """Return the draft for a model of two classes, or for no model.   values: the label's."""
    network, target = table.network, table.target
    names = () if network is None else classes_called(network, values)
    if rule is not None and rule.of == "class":
        positive = names[rule.numbered(names).favoured(2)[0]] if len(names) == 2 else rule.named[0]
    elif rule is not None:
        positive = None
        if network is not None and network.outputs == 1:
            check_threshold(rule, network)
    if not 2 <= len(values) <= CLASSES:
        found = f"{len(values)} distinct value{'s' * (len(values) != 1)}"
        raise DataError(f"label {target!r} has {found}, expected 2 to {CLASSES} classes; name another column")
    above = rule is None or rule.of == "class" or upwards(rule)
    lower, upper = names or ("", "")
    likely = (upper if upper in values else values[-1]) if above else lower if lower in values else values[0]
    chosen = text(positive) if positive is not None else likely
    if chosen not in values:
        raise DataError(f"label {target!r} never is {chosen!r}; found {', '.join(values[:8])}")
    first = chosen in names[:1]
    flaw = None if network is None else other_class(network, chosen, 0 if first else 1)
    if flaw is not None:
        raise DataError(f"label {target!r}, positive {chosen!r}: {flaw}")
    label = (table.frame[target].map(text) == chosen).to_numpy() & table.frame[target].notna().to_numpy()
    if network is None:
        features = table.columns()
    elif upper not in values and len(values) == 2:  # its decisions tell which label each class stands for
        numbered = values in (list(TRUTHS), list(TRUTHS.values()))
        first = chosen == values[0] if numbered else not above
        upper_rows = ~label if first else label
        features, right = table.fitted(network, upper_rows)
        others, right_of_others = table.fitted(network, ~upper_rows)
        if right_of_others > right + (SURELY if numbered else 0 if positive is None else CLEARLY):
            features = others
            if positive is None:
                label, chosen = ~label, values[1 - values.index(chosen)]
            else:
                first = not first
    else:
        features, _ = table.fitted(network, ~label if first else label)
    if rule is None:
        table.check_logits(features)
    table.propose_merit(features, label)
    said = "class = 0" if first else "logit > 0" if network is not None and network.outputs == 1 else "class = 1"
    said = str(rule) if rule is not None and rule.of == "logit" else said
    other = next(v for v in values if v != chosen) if len(values) == 2 else f"not {chosen}"
    outcomes = [_outcome(other, target), _outcome(chosen, target)]
    return {"features": features, "positive": said, "label": target, "positive_label": chosen, "outcomes": outcomes}


def _of_value(table: LabelledTable, rule: PositiveRule) -> dict[str, Any]:
    """Return the draft for a model that outputs values, which are compared with a threshold, as the label's values are."""
    target = table.target
    label = rule.reached(label_values(table.frame, target))
    features = table.features(rule, label)
    table.propose_merit(features, label)
    opposite = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}[rule.operator]
    outcomes = [f"{target} {operator} {rule.number}" for operator in (opposite, rule.operator)]
    return {"features": features, "positive": str(rule), "label": target, "outcomes": outcomes}


def _of_many_classes(
    table: LabelledTable, network: Model, values: list[str], positive: Any, rule: PositiveRule | None
) -> dict[str, Any]:
    """Return the draft for a model of more than two classes: the label, with these values, names or numbers them."""
    target = table.target
    known = network.classes or tuple(str(k) for k in range(network.outputs))
    named = ", ".join(f"{k} for {name}" for k, name in enumerate(known))
    strange = [value for value in values if value not in known and not (value.isdecimal() and int(value) < network.outputs)]
    if strange:
        what = f"label {target!r} holds {strange[0]!r}, and the model has the classes {', '.join(known)}"
        raise DataError(f"{what}; give the label column their names or numbers ({named})")
    if rule is None:
        if positive is None and not set(values) <= {str(k) for k in range(network.outputs)}:
            raise DataError(
                f"label {target!r}: the model has the classes {', '.join(known)}; say which is favourable, such as "
                f"positive={known[-1]!r}" + _several_named(known)
            )
        chosen = text(positive) if positive is not None else "1"
        if chosen not in known and chosen not in values:
            raise DataError(f"label {target!r} never is {chosen!r}; found {', '.join(values[:8])}")
        number = known.index(chosen) if chosen in known else int(chosen)
        rule = PositiveRule(of="class", operator="=", named=(str(number) if known[number].isdecimal() else known[number],))
    asked = () if positive is None or text(positive) in known else rule.named
    unclear = [name for name in asked if name in known and name.isdecimal() and known.index(name) != int(name) < len(known)]
    if unclear:
        what = f"{unclear[0]} is the number of class {known[int(unclear[0])]!r}, and the name of another one"
        raise DataError(f"positive = {str(rule)!r}: {what}; pass one label, or fit the model on labels that are words")
    numbered = rule.numbered(known)
    favoured = numbered.favoured(network.outputs)
    said = {known[k] for k in favoured} | {str(k) for k in favoured if str(k) not in known}
    label = table.frame[target].map(text).isin(said).to_numpy()
    features = table.features(numbered, label)
    table.propose_merit(features, label)
    one = known[favoured[0]]
    what = one if len(favoured) == 1 else str(rule).replace("class", target)
    words = [_outcome(name, target) for name in (f"not {what}", what)]
    classes = {"classes": list(known)} if not all(name.isdecimal() for name in known) else {}
    return {"features": features, "positive": str(rule), **classes, "label": target, "outcomes": words}


def _several_named(known: Sequence[str]) -> str:
    """Return the rule that favours all classes but the first, if it can be written; "0" may be both a name and a number."""
    if any(name.isdecimal() and name != str(k) for k, name in enumerate(known)):
        return ""
    words = known[1:] if not any("," in name for name in known) else [str(k) for k in range(1, len(known))]
    return f" or positive='class in [{', '.join(words)}]'"


def guesses(network: Model, drafted: dict[str, Any], frame: pd.DataFrame, *, compared: bool) -> list[str]:
    """Return the guesses in a draft for a model, with what to check.   compared: an object's decisions were compared with it."""
    found = list[str]()
    features = [one for one in drafted["features"] if one["name"] in frame.columns]  # not those that were gathered
    if not by_name(network, set(map(exported, map(str, frame.columns)))):
        unnamed = "the model takes a matrix without names"
        scaled = [one["name"] for one in features if "scale" in one]
        if scaled:
            names = f"{', '.join(scaled[:3])}{', ...' if len(scaled) > 3 else ''}"
            found.append(f"{unnamed}, and predicts labels best by scaled numbers ({names}): a guess; give a schema with each scale")
        if any(one["kind"] == "one-hot" for one in features) and not any(feed.categories for feed in network.feeds):
            remedy = "pass a schema with its order (pandas.get_dummies puts numbers first)"
            found.append(f"{unnamed}: that its one-hot blocks stand where the table has their columns is a guess; {remedy}")
        taken = {drafted["label"], *(one["name"] for one in drafted["features"])}
        for column, said in row_numbers(frame, [str(one) for one in frame.columns if one not in taken]).items():
            found.append(f"{unnamed}: that it does not take column {column!r}, which {said}, is a guess; drop it from the table")
    coded = [name for one in features if isinstance(frame[name := one["name"]].dtype, pd.CategoricalDtype)]
    if coded and not compared and not any(feed.categories for feed in network.feeds):
        remedy = "the model has to be fitted with the same ones in this order; pass the object itself, whose decisions are compared"
        found.append(f"column {coded[0]!r}: its categories are numbered as in this table; {remedy}")
    return found


def _outcome(value: str, target: str) -> str:
    """Return a class in words: a number, or yes or no, needs the label's name beside it."""
    said = " ".join(value.split())
    bare = said.removeprefix("not ")
    return said if len(bare) > 1 and any(map(str.isalpha, bare)) and bare.lower() not in BARE else f"{target} {said or '(empty)'}"
