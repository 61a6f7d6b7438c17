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

    word: what ONNX calls it.   value: what is missing to the object, NaN or None.   known: each category as ONNX calls it -> as the
    encoder has it."""

    word: str
    value: Any
    known: Mapping[str, Any]

    def words(self, column: pd.Series) -> pd.Series:
        """Return the categories of a column's cells as ONNX calls them; NaN for cells that are none of them. An encoder of NaN does
        not know None, nor the text "nan"."""
        own = {one: word for word, one in self.known.items() if not absent(one)}
        cells, empty = column.astype(object), ["None"] if self.value is None else ["nan", "<NA>"]
        return cells.map(own.get).astype(object).mask(column.isna() & cells.map(str).isin(empty), self.word)

    @property
    def codes(self) -> pd.CategoricalDtype:
        """The words, in the order of their codes."""
        return pd.CategoricalDtype([*self.known, self.word])

    def cells(self, words: Sequence[str]) -> pd.Series:
        """Return cells as the object takes them, of categories as ONNX calls them."""
        found = pd.Series([self.value if one == self.word else self.known[one] for one in words], dtype=object)
        # pandas itself would write NaN for None
        return found if kind_of([*self.known.values()]) == "text" else found.infer_objects()


def missing_categories(model: Any, rows: pd.DataFrame | None = None) -> dict[str, MissingCategory]:
    """Return column -> its category of missing values, of the columns that have one.   rows: with the object's columns.

    Columns without a name are called by their place. Not told of a column in which None and NaN are two categories.
    """
    model = flat(model) if package_of(model) == "sklearn" else model
    found, names = dict[str, MissingCategory](), names_of(model)
    package, coded, steps = package_of(model), dict[int, list[Any]](), list[Any]()
    if package == "sklearn":
        *steps, last = [one for _, one in getattr(model, "steps", [("", model)])]
        coded = boosting.categories(last) if package_of(last) in ("xgboost", "lightgbm") else histograms.categories(model)
    elif package in ("xgboost", "lightgbm"):
        coded = boosting.categories(model, rows)
    coded = {place: known for inner, known in coded.items() if (place := _handed_on(steps, inner)) is not None}
    for place, known in coded.items():
        own = {_word(one): one for one in known if not absent(one)}
        free = [word for word in ("nan", "None") if word not in own]
        if free and len(own) == sum(not absent(one) for one in known):
            value = None if None in known else np.nan
            found[exported(names[place]) if names else str(place)] = MissingCategory(word=free[0], value=value, known=own)
    if package != "sklearn":
        return found
    for place, known, filled in _encoded(model):
        none = [(str(one), one) for one in known if absent(one)]
        if filled is not None and filled[0] in known:
            none.append(filled)
        if len(none) == 1:
            own = {_word(one): one for one in known}
            one = MissingCategory(word=none[0][0], value=none[0][1], known=own)
            found[exported(names[place]) if names else str(place)] = one
    return found


def _handed_on(steps: Sequence[Any], place: int) -> int | None:
    """Return the column that steps hand on, as it is, as the column at a place of what they give; None where they change it."""
    for step in reversed(steps):
        if hasattr(step, "output_indices_"):
            name, first = next((name, at.start) for name, at in step.output_indices_.items() if at.start <= place < at.stop)
            place = int(step._transformer_to_input_indices[name][place - first]) if _idle(step.named_transformers_[name]) else -1
        elif not _idle(step):
            place = -1
        if place < 0:
            return None
    return place


def _idle(step: Any) -> bool:
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

    def mixed(known: Any) -> bool:
        return kind_of(known) != "text" and any(map(absent, np.asarray(known).tolist()))

    if not any(mixed(known) for part in parts(model) for known in getattr(part, "categories_", ())):
        return model
    model = copy.deepcopy(model)
    for part in parts(model):
        if hasattr(part, "categories_"):
            part.categories_ = [
                np.array([one if absent(one) else _word(one) for one in known.tolist()], dtype=object)
                if mixed(known) else known for known in part.categories_
            ]  # fmt: skip
    return model


def _encoded(model: Any) -> Iterator[tuple[int, list[Any], tuple[str, Any] | None]]:
    """Yield the columns that the encoders of an estimator take, by their place, with the categories that they know there, and the
    constant word that an imputer before them fills in, with what it takes for missing."""
    every = parts(flat(model))
    first: Any = next((one for one in every if hasattr(one, "transformers_") or hasattr(one, "categories_")), None)
    fills = next((one for one in every if fills_words(one) and one.strategy == "constant"), None)
    for k, known in enumerate(getattr(first, "categories_", ())):
        yield k, np.asarray(known).tolist(), None if fills is None else (str(fills.statistics_[k]), fills.missing_values)
    for name, one, _ in getattr(first, "transformers_", ()):
        places = first._transformer_to_input_indices.get(name, ()) if not isinstance(one, str) else ()
        if len(places):
            yield from ((int(places[k]), known, filled) for k, known, filled in _encoded(one))


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
