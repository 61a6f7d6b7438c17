"""Missing values that a model takes for a category, and those that estimators of scikit-learn fill in or mark."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from verifair.models.columns import kind_of, names_of
from verifair.models.converters import additive, boosting, histograms
from verifair.models.objects import STEPS, exported, flat, package_of, parts


@dataclass(frozen=True, kw_only=True)
class MissingCategory:
    """That a column's encoder takes missing values for a category, or an imputer before it fills in a constant word, or that trees
    ask about a column's categories, of which a missing value is none. Their code follows those of the others.

    word: what ONNX calls it.   value: what is missing to the object, NaN or None.   value_of: each category as ONNX calls it ->
    as the encoder has it."""

    word: str
    value: Any
    value_of: Mapping[str, Any]

    def words(self, column: pd.Series) -> pd.Series:
        """Return the categories of a column's cells as ONNX calls them; NaN for cells that are none of them. An encoder of NaN does
        not know None, nor the text "nan"."""
        names = {category: word for word, category in self.value_of.items() if not absent(category)}
        cells, empty = column.astype(object), ["None"] if self.value is None else ["nan", "<NA>"]
        return cells.map(names.get).astype(object).mask(column.isna() & cells.map(str).isin(empty), self.word)

    @property
    def codes(self) -> pd.CategoricalDtype:
        """The words, in the order of their codes."""
        return pd.CategoricalDtype([*self.value_of, self.word])

    def cells(self, words: Sequence[str]) -> pd.Series:
        """Return cells as the object takes them, of categories as ONNX calls them."""
        series = pd.Series([self.value if word == self.word else self.value_of[word] for word in words], dtype=object)
        # pandas itself would write NaN for None
        return series if kind_of([*self.value_of.values()]) == "text" else series.infer_objects()


def missing_categories(model: Any, rows: pd.DataFrame | None = None) -> dict[str, MissingCategory]:
    """Return column -> its category of missing values, of the columns that have one.   rows: with the object's columns.

    Columns without a name are called by their place. Not told of a column in which None and NaN are two categories.
    """
    model = flat(model) if package_of(model) == "sklearn" else model
    result, names = dict[str, MissingCategory](), names_of(model)
    package, categories, steps = package_of(model), dict[int, list[Any]](), list[Any]()
    if package == "sklearn":
        *steps, last = [step for _, step in getattr(model, "steps", [("", model)])]
        categories = boosting.categories(last) if package_of(last) in ("xgboost", "lightgbm") else histograms.categories(model)
    elif package in ("xgboost", "lightgbm"):
        categories = boosting.categories(model, rows)
    categories = {column: values for inner, values in categories.items() if (column := _source_column(steps, inner)) is not None}
    for column, values in categories.items():
        pairs = {_word(value): value for value in values if not absent(value)}
        unused = [word for word in ("nan", "None") if word not in pairs]
        if unused and len(pairs) == sum(not absent(value) for value in values):
            value = None if None in values else np.nan
            result[exported(names[column]) if names else str(column)] = MissingCategory(word=unused[0], value=value, value_of=pairs)
    if package != "sklearn":
        return result
    for column, values, filled in _encoded(model):
        missing_words = [(str(value), value) for value in values if absent(value)]
        if filled is not None and filled[0] in values:
            missing_words.append(filled)
        if len(missing_words) == 1:
            pairs = {_word(value): value for value in values}
            category = MissingCategory(word=missing_words[0][0], value=missing_words[0][1], value_of=pairs)
            result[exported(names[column]) if names else str(column)] = category
    return result


def _source_column(steps: Sequence[Any], column: int) -> int | None:
    """Return the column that steps hand on, as it is, as the column at a place of what they give; None where they change it."""
    for step in reversed(steps):
        if hasattr(step, "output_indices_"):
            key, start = next((key, cols.start) for key, cols in step.output_indices_.items() if cols.start <= column < cols.stop)
            column = int(step._transformer_to_input_indices[key][column - start]) if _is_idle(step.named_transformers_[key]) else -1
        elif not _is_idle(step):
            column = -1
        if column < 0:
            return None
    return column


def _is_idle(step: Any) -> bool:
    """Return whether a step does nothing; of a ColumnTransformer it is a word to older versions of scikit-learn."""
    return isinstance(step, str) or (type(step).__name__ == "FunctionTransformer" and step.func is None)


def absent(value: Any) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or value != value


def _word(value: Any) -> str:
    """Return a category as text, as tables and schemas have it: 1 for 1.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def in_words(model: Any) -> Any:
    """Return a pipeline whose encoders know words in place of numbers beside missing values, for which ONNX's have no number."""

    def mixed(categories: Any) -> bool:
        return kind_of(categories) != "text" and any(map(absent, np.asarray(categories).tolist()))

    if not any(mixed(categories) for part in parts(model) for categories in getattr(part, "categories_", ())):
        return model
    model = copy.deepcopy(model)
    for part in parts(model):
        if hasattr(part, "categories_"):
            part.categories_ = [
                np.array([value if absent(value) else _word(value) for value in categories.tolist()], dtype=object)
                if mixed(categories) else categories for categories in part.categories_
            ]  # fmt: skip
    return model


def _encoded(model: Any) -> Iterator[tuple[int, list[Any], tuple[str, Any] | None]]:
    """Yield the columns that the encoders of an estimator take, by their place, with the categories that they know there, and the
    constant word that an imputer before them fills in, with what it takes for missing."""
    all_parts = parts(flat(model))
    encoder: Any = next((part for part in all_parts if hasattr(part, "transformers_") or hasattr(part, "categories_")), None)
    imputer = next((part for part in all_parts if fills_words(part) and part.strategy == "constant"), None)
    for k, categories in enumerate(getattr(encoder, "categories_", ())):
        yield k, np.asarray(categories).tolist(), None if imputer is None else (str(imputer.statistics_[k]), imputer.missing_values)
    for name, transformer, _ in getattr(encoder, "transformers_", ()):
        indices = encoder._transformer_to_input_indices.get(name, ()) if not isinstance(transformer, str) else ()
        if len(indices):
            yield from ((int(indices[k]), categories, filled) for k, categories, filled in _encoded(transformer))


def for_whole_rows(model: Any) -> Any:
    """Return a pipeline for rows that have all their values: without its steps that fill in missing words, which skl2onnx does not
    convert, and with zeros for the columns that say which numbers are missing, which it leaves out."""
    if not asks_for_missing(model):
        return model
    model = copy.deepcopy(model)
    for part in parts(model):
        for name in STEPS:
            if hasattr(part, name):
                kept = [one for one in getattr(part, name) if name != "steps" or not fills_words(one[1])]
                setattr(part, name, [(one[0], _with_zeros(one[1]) if _marks_missing(one[1]) else one[1], *one[2:]) for one in kept])
    return model


def asks_for_missing(model: Any) -> str:
    """Return what a model does with missing values that its conversion does not; nothing, where it does nothing of that kind."""
    if any(map(fills_words, parts(model))):
        return "fills in missing words"
    if any(map(additive.scores_missing, parts(model))):
        return "has learned scores for missing values"
    return "marks missing values" if any(map(_marks_missing, parts(model))) else ""


def _marks_missing(step: Any) -> bool:
    if not hasattr(step, "statistics_") or not step.add_indicator or not isinstance(step.missing_values, float):
        return False    # of another number than NaN it is a jump
    return bool(np.isnan(step.missing_values)) and len(step.indicator_.features_) > 0


def fills_words(step: Any) -> bool:
    return hasattr(step, "statistics_") and kind_of(step.statistics_) == "text" and step.missing_values != step.missing_values


def _with_zeros(imputer: Any) -> Any:
    """Return an imputer of numbers that marks missing ones as one that marks none."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.pipeline import FeatureUnion

    zeros = TruncatedSVD(n_components=len(imputer.indicator_.features_))
    zeros.components_ = np.zeros((len(imputer.indicator_.features_), len(imputer.statistics_)))
    zeros.n_features_in_ = len(imputer.statistics_)
    imputer.add_indicator = False
    return FeatureUnion([("values", imputer), ("missing", zeros)])
