"""What can be seen of a schema in a table: the kinds, ranges and categories of its columns, and the classes of its label."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from encoders.decision import decided
from encoders.network import NO_COLUMN, Array, Booleans, Category, Link, Model
from verifair.errors import DataError, SchemaError
from verifair.models.columns import holds_numbers, holds_truths
from verifair.models.objects import exported
from verifair.schema.feature import Feature, text
from verifair.schema.network import TRUTHS, check_threshold, classes_called, other_class, upwards
from verifair.schema.one_hot import is_one_feature, is_whole, one_feature, one_hot_columns, words_of
from verifair.schema.outcome import PositiveRule
from verifair.schema.rows import label_values, no_feature
from verifair.schema.spelling import listed, nearest

MANY = 50
"""A text column with more distinct values than this is an identifier or free text, not a category."""
BARE = ("true", "false", "yes", "no")
CLASSES = 20
"""A label with more distinct values than this is a quantity, not a class."""
CLEARLY, SURELY = 0.02, 0.5
"""Of the rows: so many more have to be predicted right; and where labels are 0 and 1, as class 1 is expected to be label 1."""
FLAGS = ([0, 1], list(TRUTHS.values()))
"""Categories whose code is the number that a model takes."""
SCALES = ("raw", "minmax", "standard")
"""How the numbers of a matrix may have been scaled."""
MOSTLY = 0.5
"""A column of texts with a larger share of numbers than this is one of numbers with wrong cells."""
RARE = 0.01
"""A word of no more rows than this share may be a slip."""
TRAINED_ON = "give the table that it was trained on"
ENOUGH = 30
"""Rows from which on a label says anything about scales and merit."""


class DraftWarning(UserWarning):
    """Something about a table that its drafted schema cannot say."""


def check_asked(frame: Any, *, target: Any, positive: Any) -> None:
    """Raise DataError unless a schema can be asked for so: of a table whose columns have words for names, by the label's name."""
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
) -> dict[str, Any]:
    """Return the fields of the drafted schema. Raises DataError for columns that no feature kind fits.

    network: the model that it is for. Of a pipeline that takes the table's columns it knows the order, which of them are encoded,
    with which categories, and that numbers come unscaled; ranges come from the table. Of a model that takes a matrix it knows the
    width alone: numbers are drafted raw, by minmax or standardised, whichever predicts the table's labels best; unscaled: raw.
    """
    blocks = one_hot_columns(frame, _taken_by(network, frame, target), protected)
    words = {feature: words_of(frame, feature, block) for feature, block in blocks.items() if is_one_feature(frame, feature, block)}
    for name in protected:
        for feature, block in blocks.items():
            if name in block and feature in words:
                made = f"of the one-hot columns {listed(block)} a draft makes one feature"
                raise DataError(f"{name!r}: {made}; name {feature!r} as protected")
            if (name == feature not in (*frame.columns, *words)) or (name in block and is_whole(frame, block)):
                raise DataError(f"{name!r} cannot be protected by a drafted schema: {one_feature(frame, feature, block)}")
    for name in (target, *protected):
        if name not in frame.columns and name not in words:
            raise DataError(f"the table has no column {name!r}; {nearest(name, [*words, *frame.columns])}")
    table = _LabelledTable(
        frame=frame, target=target, protected=protected, network=network, unscaled=unscaled,
        named=pd.concat([frame, pd.DataFrame(words, index=frame.index)], axis=1),
        blocks={feature: blocks[feature] for feature in words},
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
    """Return the outcome that `positive` says by a rule, such as "value >= 600"; None where it is a label, or nothing."""
    if not isinstance(positive, str) or text(positive) in values:
        return None
    try:
        return PositiveRule.parse(positive)
    except SchemaError:
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class _LabelledTable:
    """A table with its label and its protected columns, and the model that it is for.   unscaled: its numbers are the model's.

    blocks: feature -> the one-hot columns that it is spread over.   named: the table, with a column of words for each of these.
    """

    frame: pd.DataFrame
    target: str
    protected: Sequence[str]
    network: Model | None
    unscaled: bool
    blocks: Mapping[str, Sequence[str]]
    named: pd.DataFrame

    def feature(self, name: str) -> dict[str, Any]:
        """Return the feature that a column is, as far as the table tells."""
        return _feature(name, self.frame[name], name in self.protected)

    def columns(self) -> list[dict[str, Any]]:
        """Return a feature for every column but the label."""
        return self._gathered([self.feature(name) for name in self.frame.columns if name != self.target])

    def features(self, rule: PositiveRule, label: Booleans) -> list[dict[str, Any]]:
        """Return the features that the model takes; without a model, those of all columns.

        rule: what the model favours.   label: (N,) whose true class is favourable.
        """
        if self.network is None:
            return self.columns()
        decision = rule.judged(self.network, odds=False)
        judged = self.network if decision is None else decided(self.network, decision)
        return self.fitted(judged, label if rule.good else ~label)[0]

    def fitted(self, network: Model, label: Booleans) -> tuple[list[dict[str, Any]], float]:
        """Return a feature for each column that a model takes, and the share of rows whose label it predicts (0: not known).

        label: (N,) whose true class is the model's second one.
        """
        frame = self.frame
        columns = columns_of(network, frame, self.target)
        inputs = [(feed, position) for feed in network.feeds for position in range(len(feed.start))]
        matrix = not _by_name(network, set(map(exported, columns))) and not any(feed.categories for feed in network.feeds)
        if len(inputs) != len(columns):
            if matrix and (found := _blocks_of([self.feature(name) for name in columns], network.inputs)):
                return self._scaled(network, found, label, raw=self.unscaled)
            what = f"the model takes {len(inputs)} columns, the table has {len(columns)} beside the label"
            raise DataError(f"{what}; {self._culprit(network.inputs, columns) if matrix else TRAINED_ON}")
        features = [
            self._taken(name, feed.categories.get(position)) for name, (feed, position) in zip(columns, inputs, strict=True)
            if feed.start[position] != NO_COLUMN
        ]
        return self._scaled(network, features, label, raw=self.unscaled or not matrix)

    def _gathered(self, features: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the features with one in the place of each block of one-hot columns that stand together, in their order."""
        found = list(features)
        for name, block in self.blocks.items():
            flags = [one["kind"] != "one-hot" and one.get("categories", FLAGS[0]) in FLAGS for one in found]
            at = [place for place, one in enumerate(found) if one["name"] in block and flags[place]]
            if len(at) == len(block) == at[-1] - at[0] + 1:
                categories = [found[place]["name"][len(name) + 1 :] for place in at]
                one: dict[str, Any] = {"name": name, "kind": "one-hot", "categories": categories}
                found[at[0] : at[-1] + 1] = [one | ({"protected": True} if name in self.protected else {})]
        return found

    def _taken(self, name: str, categories: Sequence[Category] | None) -> dict[str, Any]:
        """Return the feature of a column that a model takes.   categories: those that the model encodes, if it does."""
        if name not in self.frame.columns:
            hint = f"known are {', '.join(map(str, self.frame.columns))}"
            if re.fullmatch(r"x\d+", name):
                hint = "the model was fitted without names of columns: fit it on a table whose column names are text"
            raise DataError(f"the table has no column {name!r}, which the model takes; {hint}")
        column = self.frame[name]
        if categories is not None:
            known = list(categories)
            if set(known) <= {0, 1} and holds_truths(column):
                known = [TRUTHS[text(code)] for code in known]
            feature: dict[str, Any] = {"name": name, "kind": "one-hot", "categories": known}
            return feature | ({"protected": True} if name in self.protected else {})
        feature = {k: v for k, v in self.feature(name).items() if k != "scale"}
        if isinstance(column.dtype, pd.CategoricalDtype):   # whose codes XGBoost and LightGBM take
            return feature | {"kind": "categorical", "categories": list(map(text, column.dtype.categories))}
        if feature["kind"] == "one-hot" or (feature["kind"] == "categorical" and feature["categories"] not in FLAGS):
            remedy = _texts_among_numbers(column) or TRAINED_ON
            raise DataError(f"column {name!r} holds text, but the model takes a number there; {remedy}")
        return feature

    def _culprit(self, inputs: int, columns: Sequence[str]) -> str:
        """Return which cells keep the columns from making so many inputs: texts among numbers, or a rare word without which they
        would."""
        found = [(name, said) for name in columns if (said := _texts_among_numbers(self.frame[name]))]
        if found:
            return "; ".join(f"column {name!r} is read as text, its values as categories: {said}" for name, said in found)
        features, rare = [self.feature(name) for name in columns], list[tuple[int, str, str]]()
        for place, name in enumerate(columns):
            fewer = _of_words(features[place].get("categories", ())[1:])
            if fewer["categories"] and _blocks_of([*features[:place], features[place] | fewer, *features[place + 1:]], inputs):
                word, count = Counter(self.frame[name].dropna().map(text)).most_common()[-1]
                rare.append((count, name, word))
        count, name, word = min(rare, default=(0, "", ""))
        if not 0 < count <= max(1, RARE * len(self.frame)):
            return TRAINED_ON
        first = self.frame.index[self.frame[name].map(text) == word][0]
        rows = f"in row {first} alone" if count == 1 else f"in {count:,} rows, first row {first}"
        return f"they would fit without {word!r}, which column {name!r} holds {rows}: correct it where it is wrong, or {TRAINED_ON}"

    def _scaled(
        self, network: Model, features: list[dict[str, Any]], label: Booleans, *, raw: bool
    ) -> tuple[list[dict[str, Any]], float]:
        """Return the features with numbers by minmax or standardised where that predicts the labels clearly better than raw.

        Beside them stands the share of rows whose label is predicted so.   raw: whether numbers are known to come unscaled.
        """
        features = [{k: v for k, v in feature.items() if k != "scale"} for feature in self._gathered(features)]
        rows = _known(self.named, features)
        if network.outputs > 2 or rows.sum() < ENOUGH or len(set(label[rows])) < 2:
            return features, 0.0
        tries = [[_with_scale(one, self.named, scale) for one in features] for scale in (SCALES[:1] if raw else SCALES)]
        right = [float((_predicted(network, _encoded(self.named[rows], one)) == label[rows]).mean()) for one in tries]
        best = int(np.argmax(right))
        best = best if right[best] > right[0] + max(CLEARLY, 1 / np.sqrt(rows.sum())) else 0
        return tries[best], right[best]

    def check_logits(self, features: list[dict[str, Any]]) -> None:
        """Raise SchemaError for a model that gives no logits, it seems, and DataError where its only number lies between 0 and 1 in
        every row: as a logit it would favour everybody."""
        network = self.network
        if network is None:
            return
        PositiveRule.parse("logit > 0" if network.outputs == 1 else "class = 1").fitting(network)
        if network.outputs > 1 or network.link is not Link.IDENTITY:
            return
        values = network.forward(_encoded(self.named[_known(self.named, features)], features))
        if len(values) and -1e-6 <= values.min() < values.max() <= 1 + 1e-6:  # sums of float32
            found = f"the model gives values from {values.min():.4g} to {values.max():.4g} on the table, such as probabilities"
            raise DataError(f"{found}: by logit > 0 it favours everybody; say which values are favourable: positive='value > 0.5'")

    def propose_merit(self, features: list[dict[str, Any]], label: Booleans) -> None:
        """Call the numbers merit that go with the label (N,) and are not protected."""
        for feature in features:
            if not feature.get("protected") and _goes_with(self.named[feature["name"]], label):
                feature["merit"] = True


def _blocks_of(features: list[dict[str, Any]], inputs: int) -> list[dict[str, Any]]:
    """Return the features with their words as the one-hot blocks that make so many inputs; none where these do not."""
    for blocks in (("one-hot",), ("one-hot", "categorical")):
        wide = [len(f["categories"]) if f["kind"] in blocks and f["categories"] != [0, 1] else 1 for f in features]
        if sum(wide) == inputs:
            return [f | {"kind": "one-hot"} if width > 1 else f for f, width in zip(features, wide, strict=True)]
    return []


def _texts_among_numbers(column: pd.Series) -> str:
    """Return which cell is the first that is no number, where most cells are numbers, and the remedy; "" where that is not so."""
    values = column.dropna().map(text)
    numbers = np.isfinite(pd.to_numeric(values, errors="coerce").astype(float))
    if holds_truths(column) or numbers.all() or numbers.mean() <= MOSTLY:
        return ""
    first = values[~numbers]
    return (
        f"row {first.index[0]} holds {first.iloc[0]!r}, and {numbers.sum():,} of {len(values):,} rows hold numbers; correct the "
        f"{'cell' if len(first) == 1 else f'{len(first):,} cells without a number'}, or leave "
        f"{'it' if len(first) == 1 else 'them'} empty"
    )


def _of_two_classes(table: _LabelledTable, values: list[str], positive: Any, rule: PositiveRule | None) -> dict[str, Any]:
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
    elif upper not in values and len(values) == 2:  # which label each class stands for its decisions say
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


def _of_value(table: _LabelledTable, rule: PositiveRule) -> dict[str, Any]:
    """Return the draft for a model that gives values, which a threshold compares, as it does the label's."""
    target = table.target
    label = rule.reached(label_values(table.frame, target))
    features = table.features(rule, label)
    table.propose_merit(features, label)
    opposite = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}[rule.operator]
    outcomes = [f"{target} {operator} {rule.number}" for operator in (opposite, rule.operator)]
    return {"features": features, "positive": str(rule), "label": target, "outcomes": outcomes}


def _of_many_classes(
    table: _LabelledTable, network: Model, values: list[str], positive: Any, rule: PositiveRule | None
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
    """Return the rule that favours all classes but the first, as far as one can be written; "0" may be a name and a place."""
    if any(name.isdecimal() and name != str(k) for k, name in enumerate(known)):
        return ""
    words = known[1:] if not any("," in name for name in known) else [str(k) for k in range(1, len(known))]
    return f" or positive='class in [{', '.join(words)}]'"


def missing(frame: pd.DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """Return column -> what to say of it, where it lacks values: schemas describe rows that have them all."""
    count = {name: int(frame[name].isna().sum()) for name in map(str, frame.columns) if name in columns}
    remedy = "such rows are refused: fill in the values, or drop the rows"
    return {name: f"column {name!r} has no value in {n:,} of {len(frame):,} rows; {remedy}" for name, n in count.items() if n}


def guesses(network: Model, drafted: dict[str, Any], frame: pd.DataFrame, *, compared: bool) -> list[str]:
    """Return what of a draft for a model was guessed, with what to check.   compared: whether an object decided the rows alike."""
    found = list[str]()
    features = [one for one in drafted["features"] if one["name"] in frame.columns]  # not those that were gathered
    if not _by_name(network, set(map(exported, map(str, frame.columns)))):
        unnamed = "the model takes a matrix without names"
        scaled = [one["name"] for one in features if "scale" in one]
        if scaled:
            names = f"{', '.join(scaled[:3])}{', ...' if len(scaled) > 3 else ''}"
            found.append(f"{unnamed}, and predicts labels best by scaled numbers ({names}): a guess; give a schema with each scale")
        if any(one["kind"] == "one-hot" for one in features) and not any(feed.categories for feed in network.feeds):
            remedy = "pass a schema with its order (pandas.get_dummies puts numbers first)"
            found.append(f"{unnamed}: that its one-hot blocks stand where the table has their columns is a guess; {remedy}")
    coded = [name for one in features if isinstance(frame[name := one["name"]].dtype, pd.CategoricalDtype)]
    if coded and not compared and not any(feed.categories for feed in network.feeds):
        remedy = "the model has to be fitted with the same ones in this order; pass the object itself, whose decisions are compared"
        found.append(f"column {coded[0]!r}: its categories are numbered as in this table; {remedy}")
    return found


def columns_of(network: Model, frame: pd.DataFrame, target: str) -> list[str]:
    """Return the table's columns that a model takes, in its order. Models with a single matrix take them as they stand."""
    columns = [str(name) for name in frame.columns if name != target]
    known = {exported(name): name for name in columns}
    if not _by_name(network, known):
        return columns
    for feed in network.feeds:
        alike = [name for name in columns if exported(name) == exported(feed.name)]
        if len(alike) > 1 and feed.name not in alike:
            both = " and ".join(map(repr, alike))
            raise DataError(f"columns {both} have one name in the model, {feed.name!r}; rename one of them, and fit it again")
    known |= {exported(feed.name): feed.name for feed in network.feeds if feed.name in columns}
    return [known.get(exported(feed.name), feed.name) for feed in network.feeds for _ in range(len(feed.start))]


def _taken_by(network: Model | None, frame: pd.DataFrame, target: str) -> list[str]:
    """Return the table's columns, without the label, that a model reads as far as it knows their names."""
    others = [str(name) for name in frame.columns if name != target]
    if network is None or not _by_name(network, set(map(exported, others))):
        return others
    read = [start != NO_COLUMN for feed in network.feeds for start in feed.start]
    return [name for name, kept in zip(columns_of(network, frame, target), read, strict=True) if kept and name in others]


def _by_name(network: Model, known: Container[str]) -> bool:
    """Return whether a model takes columns one by one; of a single one that is so where it is called like a column of the table."""
    feeds = network.feeds
    return len(feeds) > 1 or (len(feeds) == 1 and feeds[0].shape == (1,) and exported(feeds[0].name) in known)


def _goes_with(column: pd.Series, label: Booleans) -> bool:
    """Return whether a column of numbers is correlated with the label, by more than chance at about 5 %."""
    if not holds_numbers(column):
        return False
    numbers = column.to_numpy(dtype=float, na_value=np.nan)
    known = np.isfinite(numbers)
    if known.sum() < ENOUGH or len(set(numbers[known])) <= 2 or len(set(label[known])) < 2:
        return False
    numbers = numbers[known] / np.abs(numbers[known]).max()     # squares of huge ones overflow
    return bool(abs(np.corrcoef(numbers, label[known])[0, 1]) > 2 / np.sqrt(known.sum()))


def _outcome(value: str, target: str) -> str:
    """Return a class in words: a number, or yes or no, says nothing by itself."""
    said = " ".join(value.split())
    bare = said.removeprefix("not ")
    return said if len(bare) > 1 and any(map(str.isalpha, bare)) and bare.lower() not in BARE else f"{target} {said or '(empty)'}"


def _known(frame: pd.DataFrame, features: list[dict[str, Any]]) -> Booleans:
    """Which rows have a value of every feature that the draft knows."""
    known = np.ones(len(frame), dtype=bool)
    for one in features:
        column = frame[one["name"]]
        known &= column.notna().to_numpy()
        if "categories" in one:
            known &= column.map(text).isin(set(map(text, one["categories"]))).to_numpy()
    return known


def _with_scale(feature: dict[str, Any], frame: pd.DataFrame, scale: str) -> dict[str, Any]:
    low, high = feature.get("range", (0.0, 0.0))
    if low == high or scale == "raw":
        return feature
    column = frame[feature["name"]].to_numpy(dtype=float, na_value=np.nan)
    spread = {"offset": float(np.nanmean(column)), "scale": float(np.nanstd(column))}
    return feature | {"scale": "minmax" if scale == "minmax" else spread}


def _encoded(frame: pd.DataFrame, features: list[dict[str, Any]]) -> Array:
    """Inputs (N, n) of a table's rows as drafted features have them."""
    columns = []
    for feature in features:
        column = frame[feature["name"]]
        if "range" in feature:
            offset, scale = Feature.model_validate(feature).affine
            columns.append((column.to_numpy(dtype=float) - offset) / scale)
            continue
        code = column.map(text).map({name: k for k, name in enumerate(map(text, feature["categories"]))}).to_numpy(dtype=float)
        columns += [code] if feature["kind"] == "categorical" else list(np.eye(len(feature["categories"]))[code.astype(int)].T)
    return np.column_stack(columns).astype(np.float32).astype(float)


def _predicted(network: Model, x: Array) -> Booleans:
    """Whether float64 logits say the positive class: enough for a draft."""
    logits = network.forward(x)
    return np.asarray(logits[:, 0] > 0 if logits.shape[1] == 1 else logits[:, 1] > logits[:, 0])


def _feature(name: str, column: pd.Series, protected: bool) -> dict[str, Any]:
    values = column.dropna()
    if not len(values):
        raise DataError(f"column {name!r} is empty; drop it from the table")
    if (found := no_feature(values)) is not None:
        raise DataError(f"column {name!r} holds {found}, which no feature kind takes; turn it into a number, or drop it")
    described = _number(name, values, protected) if holds_numbers(values) else _category(name, values)
    return {"name": name} | described | ({"protected": True} if protected else {})


def _number(name: str, values: pd.Series, protected: bool) -> dict[str, Any]:
    if not np.isfinite(values.to_numpy(dtype=float)).all():
        raise DataError(f"column {name!r} holds an infinite value, expected finite numbers; correct the data")
    if set(values) == {0, 1}:  # a flag: as a number, PBA would move it by a unit
        return {"kind": "categorical", "categories": [0, 1]}
    low, high = float(values.min()), float(values.max())
    whole = bool((values == values.round()).all())
    found: dict[str, Any] = {"kind": "integer" if whole else "real", "range": [low, high]}
    if low == high or (protected and whole and values.nunique() <= 10):
        return found
    return found | {"scale": "minmax", "unit": _unit(high - low, whole)}


def _category(name: str, values: pd.Series) -> dict[str, Any]:
    categories = FLAGS[1] if holds_truths(values) else sorted({text(v) for v in values})
    if len(categories) > MANY:
        remedy = _texts_among_numbers(values) or "drop it, or group its values"
        raise DataError(
            f"column {name!r} holds {len(categories)} distinct texts (for example {categories[0]!r}), too many for a category; "
            + remedy
        )
    return _of_words(categories)


def _of_words(categories: Sequence[Any]) -> dict[str, Any]:
    """Return the kind of a feature that has these categories."""
    return {"kind": "categorical" if len(categories) <= 2 else "one-hot", "categories": categories}


def _unit(width: float, whole: bool) -> float:
    """Return a round 1-2-5 number near half a percent of the range; at least 1 for whole numbers."""
    power = 10.0 ** math.floor(math.log10(width / 200))
    unit = min((m * power for m in (1, 2, 5, 10)), key=lambda u: abs(math.log(u * 200 / width)))
    return max(1.0, round(unit)) if whole else unit
