"""A table with its label, and the model that it is for: the columns that the model takes, their order and their scale."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans
from encoders.decision import decided
from encoders.model import NO_COLUMN, Category, Link, Model
from verifair.errors import DataError
from verifair.models.columns import holds_numbers, holds_truths
from verifair.models.converters.missing import MissingCategory
from verifair.models.objects import exported
from verifair.schema.drafts.column import FLAGS, feature_of, of_words, row_numbers, texts_among_numbers
from verifair.schema.drafts.one_hot import categories_of
from verifair.schema.feature import Feature, text
from verifair.schema.network import TRUTHS
from verifair.schema.outcome import PositiveRule
from verifair.schema.rows import MISSING

CLEARLY = 0.02
"""A scale is chosen only if it predicts so many more of the rows right, as a share."""
SCALES = ("raw", "minmax", "standard")
"""Possible scalings of the numbers in a matrix."""
RARE = 0.01
"""A word in no more than this share of the rows may be a typing error."""
TRAINED_ON = "give the table that it was trained on"
NUMBERED = (
    "if it numbers the categories itself (LightGBM, XGBoost), only its object knows their order: draft the schema in Python, "
    'vf.Schema.infer(table, ..., model=object).save("schema.toml"), and give it with --schema; else ' + TRAINED_ON
)
ENOUGH = 30
"""The fewest rows from which a label says anything about scales and merit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledTable:
    """A table with its label and its protected columns, and the model that it is for.   unscaled: its numbers are the model's.

    blocks: feature -> the one-hot columns that it is spread over.   worded: the table, with a column of words for each of these.
    missing: column -> the object's categories, with the one that stands for missing values (`missing_categories`), if one does;
    None: there is no object.
    """

    frame: pd.DataFrame
    target: str
    protected: Sequence[str]
    network: Model | None
    unscaled: bool
    blocks: Mapping[str, Sequence[str]]
    worded: pd.DataFrame
    missing: Mapping[str, MissingCategory] | None = None

    def feature(self, name: str) -> dict[str, Any]:
        """Return a column's feature, as far as the table shows it."""
        return feature_of(name, self.frame[name], name in self.protected)

    def columns(self) -> list[dict[str, Any]]:
        """Return a feature for every column but the label."""
        return self._blocks_merged([self.feature(name) for name in self.frame.columns if name != self.target])

    def features(self, rule: PositiveRule, label: Booleans) -> list[dict[str, Any]]:
        """Return the features that the model takes; without a model, those of all columns.

        rule: the outcome that the model favours.   label: (N,) True for rows whose true class is favourable.
        """
        if self.network is None:
            return self.columns()
        decision = rule.judged(self.network, odds=False)
        judged = self.network if decision is None else decided(self.network, decision)
        return self.fitted(judged, label if rule.good else ~label)[0]

    def fitted(self, network: Model, label: Booleans) -> tuple[list[dict[str, Any]], float]:
        """Return a feature for each column that a model takes, and the share of rows whose label it predicts (0: not known).

        label: (N,) True for rows whose true class is the model's second one.
        """
        frame = self.frame
        columns = columns_of(network, frame, self.target)
        inputs = [(feed, position) for feed in network.feeds for position in range(len(feed.start))]
        matrix = not by_name(network, set(map(exported, columns))) and not any(feed.categories for feed in network.feeds)
        if len(inputs) != len(columns):
            if matrix and (draft := _blocks_of([self.feature(name) for name in columns], network.inputs)):
                return self._scaled(network, draft, label, raw=self.unscaled)
            rest = self._without_row_numbers(columns)
            if matrix and len(rest) < len(columns) and (draft := _blocks_of([self.feature(name) for name in rest], network.inputs)):
                return self._scaled(network, draft, label, raw=self.unscaled)
            problem = f"the model takes {len(inputs)} columns, the table has {len(columns)} beside the label"
            raise DataError(f"{problem}; {self._culprit(network.inputs, columns) if matrix else TRAINED_ON}")
        features = [
            self._feature_taken(name, feed.categories.get(position)) for name, (feed, position) in zip(columns, inputs, strict=True)
            if feed.start[position] != NO_COLUMN
        ]
        return self._scaled(network, features, label, raw=self.unscaled or not matrix)

    def _without_row_numbers(self, columns: Sequence[str]) -> list[str]:
        """Return the columns without those that number the rows; protected ones stay."""
        numbers = row_numbers(self.frame, columns)
        return [name for name in columns if name not in numbers or name in self.protected]

    def _blocks_merged(self, features: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the features, with one in place of each block of neighbouring one-hot columns."""
        result = list(features)
        for name, block in self.blocks.items():
            flags = [feature["kind"] != "one-hot" and feature.get("categories", FLAGS[0]) in FLAGS for feature in result]
            indices = [index for index, feature in enumerate(result) if feature["name"] in block and flags[index]]
            if len(indices) == len(block) == indices[-1] - indices[0] + 1:
                categories, dropped = categories_of(self.frame, name, [result[index]["name"] for index in indices])
                feature: dict[str, Any] = {"name": name, "kind": "one-hot", "categories": categories}
                feature |= {} if dropped is None else {"dropped": dropped}
                result[indices[0] : indices[-1] + 1] = [feature | ({"protected": True} if name in self.protected else {})]
        return result

    def _feature_taken(self, name: str, categories: Sequence[Category] | None) -> dict[str, Any]:
        """Return the feature of a column that a model takes.   categories: those that the model encodes, if it does."""
        if name not in self.frame.columns:
            hint = f"known are {', '.join(map(str, self.frame.columns))}"
            if name.lstrip() in self.frame.columns:
                hint = f"it has {name.lstrip()!r}: blanks before names are left out where a CSV file is read. Fit the model on a "
                hint += "table with that name, or give the table as Parquet, which keeps names as they are"
            if re.fullmatch(r"x\d+", name):
                hint = "the model was fitted without names of columns: fit it on a table whose column names are text"
            raise DataError(f"the table has no column {name!r}, which the model takes; {hint}")
        column, kind, own = self.frame[name], "one-hot", (self.missing or {}).get(exported(name))
        if categories is None and own is not None:  # the model takes codes, and has one for missing values, which a table may lack
            cells = own.words(column[column.isna()])
            categories, kind = [*own.value_of, *([own.word] if len(cells) and cells.notna().all() else [])], "categorical"
        if categories is not None:
            values, word = list(categories), self._missing_word(name, categories)
            if holds_truths(column) and set(values) <= ({0, 1} if word is None else {*TRUTHS, word}):
                values = [TRUTHS.get(text(code), code) for code in values]
            feature: dict[str, Any] = {"name": name, "kind": kind, "categories": values}
            if word in values:
                texts = {*map(text, values), *column.dropna().map(text)}
                unused = [candidate for candidate in ("missing", "(missing)") if candidate not in texts and word in MISSING]
                missing = [*unused, word][0]
                feature |= {"categories": [missing if value == word else value for value in values], "missing": missing}
            return feature | ({"protected": True} if name in self.protected else {})
        feature = {k: v for k, v in self.feature(name).items() if k != "scale"}
        if isinstance(column.dtype, pd.CategoricalDtype):   # XGBoost and LightGBM take their codes
            return feature | {"kind": "categorical", "categories": list(map(text, column.dtype.categories))}
        if feature["kind"] == "one-hot" or (feature["kind"] == "categorical" and feature["categories"] not in FLAGS):
            remedy = texts_among_numbers(column) or NUMBERED
            raise DataError(f"column {name!r} holds text, but the model takes a number there; {remedy}")
        return feature

    def _missing_word(self, name: str, categories: Sequence[Category]) -> str | None:
        """Return the category of an encoder that stands for missing values; None if there is none, or if it is not clear.

        A file does not store it. There it is a category with ONNX's name of missing values, if the table has these and no such
        word.
        """
        if self.missing is not None:
            category = self.missing.get(exported(name))
            return None if category is None else category.word
        words = [value for value in categories if isinstance(value, str) and value in MISSING]
        cells = self.frame[name]
        is_clear = len(words) == 1 and cells.isna().any() and words[0] not in set(cells.dropna().map(text))
        return words[0] if is_clear else None

    def _culprit(self, inputs: int, columns: Sequence[str]) -> str:
        """Return the cells because of which the columns do not make so many inputs: texts among numbers, or a rare word without
        which they would."""
        texts = [(name, note) for name in columns if (note := texts_among_numbers(self.frame[name]))]
        if texts:
            return "; ".join(f"column {name!r} is read as text, its values as categories: {note}" for name, note in texts)
        features, rare = [self.feature(name) for name in columns], list[tuple[int, str, str]]()
        for index, name in enumerate(columns):
            trimmed = of_words(features[index].get("categories", ())[1:])
            if trimmed["categories"] and _blocks_of([*features[:index], features[index] | trimmed, *features[index + 1:]], inputs):
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
        """Return the features with numbers by minmax or standardised if that predicts the labels clearly better than raw.

        Also return the share of rows whose label is then predicted.   raw: True if numbers are known to be unscaled.
        """
        features = [{k: v for k, v in feature.items() if k != "scale"} for feature in self._blocks_merged(features)]
        rows = _known_rows(self.worded, features)
        if network.outputs > 2 or rows.sum() < ENOUGH or len(set(label[rows])) < 2:
            return features, 0.0
        drafts = [[_with_scale(f, self.worded, scale) for f in features] for scale in (SCALES[:1] if raw else SCALES)]
        accuracies = [float((_predicted(network, _encoded(self.worded[rows], draft)) == label[rows]).mean()) for draft in drafts]
        best = int(np.argmax(accuracies))
        best = best if accuracies[best] > accuracies[0] + max(CLEARLY, 1 / np.sqrt(rows.sum())) else 0
        return drafts[best], accuracies[best]

    def check_logits(self, features: list[dict[str, Any]]) -> None:
        """Raise SchemaError for a model that seems to output no logits, and DataError if its only number lies between 0 and 1 in
        every row: as a logit it would favour everybody."""
        network = self.network
        if network is None:
            return
        PositiveRule.parse("logit > 0" if network.outputs == 1 else "class = 1").fitting(network)
        if network.outputs > 1 or network.link is not Link.IDENTITY:
            return
        values = network.forward(_encoded(self.worded[_known_rows(self.worded, features)], features))
        if len(values) and -1e-6 <= values.min() < values.max() <= 1 + 1e-6:  # allows for float32 sums
            reason = f"the model gives values from {values.min():.4g} to {values.max():.4g} on the table, such as probabilities"
            raise DataError(f"{reason}: by logit > 0 it favours everybody; say which values are favourable: positive='value > 0.5'")

    def propose_merit(self, features: list[dict[str, Any]], label: Booleans) -> None:
        """Mark numbers as merit if they are correlated with the label (N,) and not protected."""
        for feature in features:
            if not feature.get("protected") and _correlates(self.worded[feature["name"]], label):
                feature["merit"] = True


def _blocks_of(features: list[dict[str, Any]], inputs: int) -> list[dict[str, Any]]:
    """Return the features with their words as one-hot blocks if these make so many inputs; else nothing."""
    for blocks in (("one-hot",), ("one-hot", "categorical")):
        widths = [len(f["categories"]) if f["kind"] in blocks and f["categories"] != [0, 1] else 1 for f in features]
        if sum(widths) == inputs:
            return [f | {"kind": "one-hot"} if width > 1 else f for f, width in zip(features, widths, strict=True)]
    return []


def columns_of(network: Model, frame: pd.DataFrame, target: str) -> list[str]:
    """Return the table's columns that a model takes, in its order; for a model with a single matrix, in the table's order."""
    columns = [str(name) for name in frame.columns if name != target]
    column_of = {exported(name): name for name in columns}
    if not by_name(network, column_of):
        return columns
    for feed in network.feeds:
        duplicates = [name for name in columns if exported(name) == exported(feed.name)]
        if len(duplicates) > 1 and feed.name not in duplicates:
            names = " and ".join(map(repr, duplicates))
            raise DataError(f"columns {names} have one name in the model, {feed.name!r}; rename one of them, and fit it again")
    column_of |= {exported(feed.name): feed.name for feed in network.feeds if feed.name in columns}
    return [column_of.get(exported(feed.name), feed.name) for feed in network.feeds for _ in range(len(feed.start))]


def taken_by(network: Model | None, frame: pd.DataFrame, target: str) -> list[str]:
    """Return the table's columns, without the label, that a model reads; all of them if it does not know their names."""
    others = [str(name) for name in frame.columns if name != target]
    if network is None or not by_name(network, set(map(exported, others))):
        return others
    is_read = [start != NO_COLUMN for feed in network.feeds for start in feed.start]
    return [name for name, is_used in zip(columns_of(network, frame, target), is_read, strict=True) if is_used and name in others]


def by_name(network: Model, column_names: Container[str]) -> bool:
    """Return True if a model takes columns one by one; a single input has to have the name of a column of the table."""
    feeds = network.feeds
    return len(feeds) > 1 or (len(feeds) == 1 and feeds[0].shape == (1,) and exported(feeds[0].name) in column_names)


def _correlates(column: pd.Series, label: Booleans) -> bool:
    """Return True if a column of numbers is correlated with the label, by more than chance at about 5 %."""
    if not holds_numbers(column):
        return False
    numbers = column.to_numpy(dtype=float, na_value=np.nan)
    finite = np.isfinite(numbers)
    if finite.sum() < ENOUGH or len(set(numbers[finite])) <= 2 or len(set(label[finite])) < 2:
        return False
    numbers = numbers[finite] / np.abs(numbers[finite]).max()     # as squares of huge numbers overflow
    return bool(abs(np.corrcoef(numbers, label[finite])[0, 1]) > 2 / np.sqrt(finite.sum()))


def _known_rows(frame: pd.DataFrame, features: list[dict[str, Any]]) -> Booleans:
    """Return (N,) True for rows with a known value of every feature of the draft."""
    is_known = np.ones(len(frame), dtype=bool)
    for feature in features:
        is_known &= frame[feature["name"]].notna().to_numpy() | ("missing" in feature)
        if "categories" in feature:
            is_known &= _words(frame, feature).isin(set(map(text, feature["categories"]))).to_numpy()
    return is_known


def _words(frame: pd.DataFrame, feature: dict[str, Any]) -> pd.Series:
    """Return the categories (N,) of a drafted feature, as text."""
    column = frame[feature["name"]]
    return column.map(text).where(column.notna(), feature.get("missing"))


def _with_scale(feature: dict[str, Any], frame: pd.DataFrame, scale: str) -> dict[str, Any]:
    low, high = feature.get("range", (0.0, 0.0))
    if low == high or scale == "raw":
        return feature
    column = frame[feature["name"]].to_numpy(dtype=float, na_value=np.nan)
    spread = {"offset": float(np.nanmean(column)), "scale": float(np.nanstd(column))}
    return feature | {"scale": "minmax" if scale == "minmax" else spread}


def _encoded(frame: pd.DataFrame, features: list[dict[str, Any]]) -> Array:
    """Return the inputs (N, n) of a table's rows by the drafted features."""
    columns = []
    for feature in features:
        if "range" in feature:
            offset, scale = Feature.model_validate(feature).affine
            columns.append((frame[feature["name"]].to_numpy(dtype=float) - offset) / scale)
            continue
        code_of = {name: k for k, name in enumerate(map(text, feature["categories"]))}
        code = _words(frame, feature).map(code_of).to_numpy(dtype=float)
        if feature["kind"] == "categorical":
            columns.append(code)
        else:
            columns += [code == k for k, word in enumerate(feature["categories"]) if word != feature.get("dropped")]
    return np.column_stack(columns).astype(np.float32).astype(float)


def _predicted(network: Model, x: Array) -> Booleans:
    """Return True for rows that float64 logits put into the positive class, which is exact enough for a draft."""
    logits = network.forward(x)
    return np.asarray(logits[:, 0] > 0 if logits.shape[1] == 1 else logits[:, 1] > logits[:, 0])
