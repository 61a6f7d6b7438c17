"""A schema drafted from a table: its features, and the favourable class or value of the label."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from encoders.model import Model
from verifair.errors import DataError, SchemaError
from verifair.models.converters.missing import MissingCategory
from verifair.models.objects import exported
from verifair.schema.drafts.column import row_numbers
from verifair.schema.drafts.one_hot import is_one_feature, is_whole, one_feature, one_hot_columns, words_of
from verifair.schema.drafts.table import CLEARLY, LabelledTable, by_name, taken_by
from verifair.schema.feature import text
from verifair.schema.network import TRUTHS, check_threshold, classes_called, other_class, upwards
from verifair.schema.outcome import PositiveRule
from verifair.schema.rows import check_names, label_values
from verifair.schema.spelling import listed, nearest
from verifair.screen import ShownWarning

BARE = ("true", "false", "yes", "no")
UNFAVOURABLE = (
    "arrest", "bad", "bankrupt", "charged", "churn", "default", "delinq", "deni", "deny", "dlq", "fail", "fraud", "recid", "refus",
    "reject",
)  # fmt: skip
"""Parts of the names of labels whose 1 is not what people hope for."""
CLASSES = 20
"""A label with more distinct values than this is a quantity, not a class."""
SURELY = 0.5
"""Further share needed to reverse labels 0 and 1, as class 1 is expected to be label 1."""


class DraftWarning(ShownWarning):
    """A warning about a table that its drafted schema cannot express, such as missing values."""


def check_asked(frame: Any, *, target: Any, positive: Any) -> None:
    """Raise DataError unless the arguments are a table whose columns have words for names, and the label's name."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"frame: found {type(frame).__name__}; expected a DataFrame with the label and the model's columns")
    invalid = [name for name in frame.columns if not isinstance(name, str)]
    if invalid:
        remedy = "pass frame.rename(columns=str), and a model that was fitted on a table with such names"
        raise DataError(f"column {invalid[0]!r}: its name is no text; {remedy}")
    duplicates = frame.columns[frame.columns.duplicated()]
    if len(duplicates):
        raise DataError(f"the table has several columns {str(duplicates[0])!r}; give each its own name")
    if not isinstance(target, str):
        raise DataError(f"target: found {type(target).__name__}; expected the name of the label column")
    if not pd.api.types.is_scalar(positive):
        raise DataError(f"positive: found {type(positive).__name__}; expected one label, or a rule such as 'class in [A, B]'")


def column_names(value: Any, what: str) -> list[str]:
    """Return names of columns, from one or several. Raises DataError for anything else, such as the values of a column."""
    is_list = isinstance(value, Iterable) and not isinstance(value, pd.Series | pd.DataFrame)
    names = [value] if isinstance(value, str) else list(value) if is_list else [value]
    invalid = [name for name in names if not isinstance(name, str)]
    if invalid:
        raise DataError(f"{what}: found {type(invalid[0]).__name__}; expected names of columns, such as {what}=['sex']")
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
    merged = [feature for feature, block in blocks.items() if is_one_feature(frame, feature, block, protected)]
    words = {feature: words_of(frame, feature, blocks[feature]) for feature in merged}
    for name in protected:
        for feature, block in blocks.items():
            if name in block and feature in words:
                problem = f"of the one-hot columns {listed(block)} a draft makes one feature"
                raise DataError(f"{name!r}: {problem}; name {feature!r} as protected")
            if (name == feature not in (*frame.columns, *words)) or (name in block and is_whole(frame, block)):
                raise DataError(f"{name!r} cannot be protected by a drafted schema: {one_feature(frame, feature, block)}")
    for name in (target, *protected):
        if name not in frame.columns and name not in words:
            raise DataError(f"the table has no column {name!r}; {nearest(name, [*words, *frame.columns])}")
    table = LabelledTable(
        frame=frame, target=target, protected=protected, network=network, unscaled=unscaled,
        worded=pd.concat([frame, pd.DataFrame(words, index=frame.index)], axis=1),
        blocks={feature: blocks[feature] for feature in words}, missing=encoded,
    )
    values = sorted({text(v) for v in frame[target].dropna()})
    rule = rule_of(positive, values)
    if rule is not None and rule.of == "value":
        draft = _draft_of_value(table, rule)
    elif network is not None and network.outputs > 2:
        draft = _draft_of_many_classes(table, network, values, positive, rule)
    else:
        draft = _draft_of_two_classes(table, values, positive, rule)
    separate = next((name for name in protected if name in words and all(f["name"] != name for f in draft["features"])), None)
    if separate is not None:
        reason = "do not stand together among the model's inputs; fit it on a table in which they do"
        raise DataError(f"{separate!r} cannot be protected: its one-hot columns {listed(blocks[separate])} {reason}")
    return draft


def rule_of(positive: Any, values: Sequence[str]) -> PositiveRule | None:
    """Return the outcome if `positive` is a rule, such as "value >= 600"; None if it is a label, or not given."""
    if not isinstance(positive, str) or text(positive) in values:
        return None
    try:
        return PositiveRule.parse(positive)
    except SchemaError:
        return None


def _draft_of_two_classes(table: LabelledTable, values: list[str], positive: Any, rule: PositiveRule | None) -> dict[str, Any]:
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
        problem = f"{len(values)} distinct value{'s' * (len(values) != 1)}"
        raise DataError(f"label {target!r} has {problem}, expected 2 to {CLASSES} classes; name another column")
    is_upper = rule is None or rule.of == "class" or upwards(rule)
    lower, upper = names or ("", "")
    likely = (upper if upper in values else values[-1]) if is_upper else lower if lower in values else values[0]
    positive_name = text(positive) if positive is not None else likely
    if positive_name not in values:
        unnamed = rule is not None and rule.of == "class" and not names
        remedy = f"; the model does not name its classes: pass the label, such as positive={values[0]!r}" if unnamed else ""
        raise DataError(f"label {target!r} never is {positive_name!r}; found {', '.join(values[:8])}{remedy}")
    check_names(f"label {target!r}", positive_name, values)
    first = positive_name in names[:1]
    flaw = None if network is None else other_class(network, positive_name, 0 if first else 1)
    if flaw is not None:
        raise DataError(f"label {target!r}, positive {positive_name!r}: {flaw}")
    label = (table.frame[target].map(text) == positive_name).to_numpy() & table.frame[target].notna().to_numpy()
    if network is None:
        features = table.columns()
    elif upper not in values and len(values) == 2:  # its decisions tell which label each class stands for
        numbered = values in (list(TRUTHS), list(TRUTHS.values()))
        first = positive_name == values[0] if numbered else not is_upper
        upper_rows = ~label if first else label
        features, accuracy = table.fitted(network, upper_rows)
        others, accuracy_of_others = table.fitted(network, ~upper_rows)
        if accuracy_of_others > accuracy + (SURELY if numbered else 0 if positive is None else CLEARLY):
            features = others
            if positive is None:
                label, positive_name = ~label, values[1 - values.index(positive_name)]
            else:
                first = not first
    else:
        features, _ = table.fitted(network, ~label if first else label)
    if rule is None:
        table.check_logits(features)
    table.propose_merit(features, label)
    rule_text = "class = 0" if first else "logit > 0" if network is not None and network.outputs == 1 else "class = 1"
    rule_text = str(rule) if rule is not None and rule.of == "logit" else rule_text
    negative_name = next(v for v in values if v != positive_name) if len(values) == 2 else f"not {positive_name}"
    outcomes = [_outcome(negative_name, target), _outcome(positive_name, target)]
    return {"features": features, "positive": rule_text, "label": target, "positive_label": positive_name, "outcomes": outcomes}


def _draft_of_value(table: LabelledTable, rule: PositiveRule) -> dict[str, Any]:
    """Return the draft for a model that outputs values, which are compared with a threshold, as the label's values are."""
    target = table.target
    label = rule.reached(label_values(table.frame, target))
    features = table.features(rule, label)
    table.propose_merit(features, label)
    opposite = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}[rule.operator]
    outcomes = [f"{target} {operator} {rule.number}" for operator in (opposite, rule.operator)]
    return {"features": features, "positive": str(rule), "label": target, "outcomes": outcomes}


def _draft_of_many_classes(
    table: LabelledTable, network: Model, values: list[str], positive: Any, rule: PositiveRule | None
) -> dict[str, Any]:
    """Return the draft for a model of more than two classes: the label, with these values, names or numbers them."""
    target = table.target
    names = network.classes or tuple(str(k) for k in range(network.outputs))
    numbering = ", ".join(f"{k} for {name}" for k, name in enumerate(names))
    unknown = [value for value in values if value not in names and not (value.isdecimal() and int(value) < network.outputs)]
    if rule is not None and rule.of == "logit":
        remedy = f"name the favourable ones, such as positive={names[-1]!r}" + _rule_of_several(names)
        raise DataError(f"positive = {str(rule)!r}: each of the model's {len(names)} classes has a logit; {remedy}")
    if unknown:
        problem = f"label {target!r} holds {unknown[0]!r}, and the model has the classes {', '.join(names)}"
        raise DataError(f"{problem}; give the label column their names or numbers ({numbering})")
    if rule is None:
        if positive is None and not set(values) <= {str(k) for k in range(network.outputs)}:
            raise DataError(
                f"label {target!r}: the model has the classes {', '.join(names)}; say which is favourable, such as "
                f"positive={names[-1]!r}" + _rule_of_several(names)
            )
        positive_name = text(positive) if positive is not None else "1"
        if positive_name not in names and positive_name not in values:
            raise DataError(f"label {target!r} never is {positive_name!r}; found {', '.join(values[:8])}")
        number = names.index(positive_name) if positive_name in names else int(positive_name)
        rule = PositiveRule(of="class", operator="=", named=(str(number) if names[number].isdecimal() else names[number],))
    given = () if positive is None or text(positive) in names else rule.named
    ambiguous = [name for name in given if name in names and name.isdecimal() and names.index(name) != int(name) < len(names)]
    if ambiguous:
        problem = f"{ambiguous[0]} is the number of class {names[int(ambiguous[0])]!r}, and the name of another one"
        raise DataError(f"positive = {str(rule)!r}: {problem}; pass one label, or fit the model on labels that are words")
    numbered_rule = rule.numbered(names)
    favourable = numbered_rule.favoured(network.outputs)
    label_names = {names[k] for k in favourable} | {str(k) for k in favourable if str(k) not in names}
    label = table.frame[target].map(text).isin(label_names).to_numpy()
    features = table.features(numbered_rule, label)
    table.propose_merit(features, label)
    first_name = names[favourable[0]]
    outcome_name = first_name if len(favourable) == 1 else str(rule).replace("class", target)
    outcomes = [_outcome(name, target) for name in (f"not {outcome_name}", outcome_name)]
    classes = {"classes": list(names)} if not all(name.isdecimal() for name in names) else {}
    return {"features": features, "positive": str(rule), **classes, "label": target, "outcomes": outcomes}


def _rule_of_several(names: Sequence[str]) -> str:
    """Return the rule that favours all classes but the first, if it can be written; "0" may be both a name and a number."""
    if any(name.isdecimal() and name != str(k) for k, name in enumerate(names)):
        return ""
    words = names[1:] if not any("," in name for name in names) else [str(k) for k in range(1, len(names))]
    return f" or positive='class in [{', '.join(words)}]'"


def guesses(network: Model, drafted: dict[str, Any], frame: pd.DataFrame, *, compared: bool) -> list[str]:
    """Return the guesses in a draft for a model, with what to check.   compared: an object's decisions were compared with it."""
    notes = list[str]()
    features = [feature for feature in drafted["features"] if feature["name"] in frame.columns]  # not those that were gathered
    if not by_name(network, set(map(exported, map(str, frame.columns)))):
        unnamed = "the model takes a matrix without names"
        scaled = [feature["name"] for feature in features if "scale" in feature]
        if scaled:
            names = f"{', '.join(scaled[:3])}{', ...' if len(scaled) > 3 else ''}"
            notes.append(f"{unnamed}, and predicts labels best by scaled numbers ({names}): a guess; give a schema with each scale")
        if any(feature["kind"] == "one-hot" for feature in features) and not any(feed.categories for feed in network.feeds):
            remedy = "pass a schema with its order (pandas.get_dummies puts numbers first)"
            notes.append(f"{unnamed}: that its one-hot blocks stand where the table has their columns is a guess; {remedy}")
        used = {drafted["label"], *(feature["name"] for feature in drafted["features"])}
        for column, reason in row_numbers(frame, [str(name) for name in frame.columns if name not in used]).items():
            notes.append(f"{unnamed}: that it does not take column {column!r}, which {reason}, is a guess; drop it from the table")
    categorical = [name for feature in features if isinstance(frame[name := feature["name"]].dtype, pd.CategoricalDtype)]
    if categorical and not compared and not any(feed.categories for feed in network.feeds):
        remedy = "the model has to be fitted with the same ones in this order; pass the object itself, whose decisions are compared"
        notes.append(f"column {categorical[0]!r}: its categories are numbered as in this table; {remedy}")
    return notes


def guessed_favourable(label: pd.Series, chosen: str) -> str:
    """Return what to check about a favourable label that was not named, but chosen."""
    other = next((value for value in sorted({text(value) for value in label.dropna()}) if value != chosen), chosen)
    guess = f"label {label.name!r}: {chosen!r} is taken as the favourable value, as none was named"
    return f"{guess}; if it is another, name it: positive={other!r} (--positive {shlex.quote(other)})"


def is_customary(label: pd.Series) -> bool:
    """Return True for labels 0 and 1, yes and no, of which 1, and yes, are favourable by custom; not where the name of the label
    speaks against it, such as "deny"."""
    bare = all(value.lower() in BARE or _is_number(value) for value in {text(value) for value in label.dropna()})
    return bare and not any(word in str(label.name).lower() for word in UNFAVOURABLE)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _outcome(value: str, target: str) -> str:
    """Return a class in words: a number, or yes or no, needs the label's name beside it."""
    words = " ".join(value.split())
    bare = words.removeprefix("not ")
    return words if len(bare) > 1 and any(map(str.isalpha, bare)) and bare.lower() not in BARE else f"{target} {words or '(empty)'}"
