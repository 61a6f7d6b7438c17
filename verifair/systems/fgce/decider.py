"""Decisions of FGCE: by a model that was read (exactly), or by anything with scikit-learn's `predict`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from encoders.arrays import Array, Booleans
from encoders.evaluate import at_once
from encoders.model import Model
from verifair.engine.questions import decisions
from verifair.errors import QueryError
from verifair.models.objects import package_of
from verifair.models.read import read
from verifair.schema.feature import text
from verifair.schema.outcome import PositiveRule
from verifair.schema.schema import Schema

MOST = 10_000
"""Larger answers of an object without `classes_` are no numbers of classes."""


def as_decider(model: Any, schema: Schema) -> Any:
    """Return a model as `positive` takes it: the model itself if its scikit-learn `predict` decides, otherwise (and where a
    threshold decides) the model that `read` returns."""
    rule = PositiveRule.parse(schema.positive)
    if not rule.plain and rule.of != "class":
        return read(model)
    if hasattr(model, "predict") and (hasattr(model, "fit") or package_of(model) not in ("xgboost", "lightgbm")):
        return model
    return read(model)


def positive(
    model: Any, schema: Schema, raw: Array, progress: Callable[[int, int], None] | None = None, *, words: Words | None = None
) -> Booleans:
    """Return (N,) True for raw rows (N, V) with the favourable decision of a model that was read, or of an estimator.

    An estimator is given a DataFrame of the schema's columns, with categories as in `words`, else as the schema writes them. A
    model that was read decides exactly, ties included.
    Raises QueryError for a model that fails, or that does not return a class for each row.
    """
    if isinstance(model, Model):
        read, schema = schema.settled(model)
        model = schema.judges(read)
        result, step = np.empty(len(raw), dtype=bool), at_once(model, max(len(raw), 1))
        for start in range(0, len(raw), step):
            result[start : start + step] = decisions(model, schema.encode(raw[start : start + step])) == schema.good
            if progress is not None:
                progress(min(start + step, len(raw)), len(raw))
        return result
    result = np.asarray(_predicted(model, frame_of(schema, raw, words)))
    if result.shape != (len(raw),):
        raise QueryError(f"model: predict gave an array of shape {result.shape} for {len(raw)} rows; expected a class for each")
    if pd.isna(result).any():
        raise QueryError(f"model: predict gave no class for {int(pd.isna(result).sum())} of {len(raw)} rows; expected one for each")
    answers = pd.unique(result)
    classes = _classes(model, schema, [text(answer) for answer in answers])
    favourable = _favourable_classes(schema, classes)
    is_favourable = {answer: text(answer) in favourable for answer in answers.tolist()}
    return np.array([is_favourable[answer] for answer in result.tolist()], dtype=bool)


def _classes(model: Any, schema: Schema, answers: Sequence[str]) -> list[str]:
    """Return an estimator's classes in its order; without a list: False and True, whole numbers from 0, the schema's names, or the
    words it answers, whose order is unknown. Raises QueryError if the schema's rule needs that."""
    if hasattr(model, "classes_"):
        return [text(label) for label in model.classes_]
    if set(answers) <= {"False", "True"}:
        return ["False", "True"]
    largest = max(1, len(schema.classes) - 1, *(int(answer) if answer.isdecimal() else MOST for answer in answers))
    if largest < MOST:
        return [str(k) for k in range(largest + 1)]
    if set(answers) <= set(schema.classes):
        return list(schema.classes)
    rule = PositiveRule.parse(schema.positive)
    named = rule.operator in ("=", "in") and not schema.classes and not any(name.isdecimal() for name in rule.named)
    if rule.of == "class" and not named and (schema.positive_label is None or len(answers) > 2):
        raise QueryError(
            f'model: decides {", ".join(sorted(answers)[:5])}, and has no classes_: which of these is positive = "{rule}"? '
            'name them in the schema\'s [model] section in their order: classes = ["...", "..."]'
        )
    return sorted(answers)


def _favourable_classes(schema: Schema, classes: Sequence[str]) -> set[str]:
    """Return the favourable ones among an estimator's classes, in its order. Raises QueryError if there are none."""
    rule = PositiveRule.parse(schema.positive).numbered(schema.classes or classes)
    if rule.of == "class" and (len(classes) > 2 or schema.positive_label is None):
        return {classes[k] for k in rule.favoured(len(classes))}
    favourable = schema.positive_label if schema.positive_label is not None else str(rule.good)
    # Without positive_label "1" is a class's place and its name: of the classes 1 and 2 that would be two different ones.
    if favourable not in classes or (schema.positive_label is None and classes.index(favourable) != rule.good):
        unknown = f"none of these is the schema's positive label {favourable!r}"
        if schema.positive_label is None:
            unknown = "the schema does not say which of these is favourable"
        raise QueryError(
            f"model: decides {', '.join(sorted(classes))}, and {unknown}; set positive_label in the schema's [model] section"
        )
    return {favourable}


def _predicted(model: Any, frame: pd.DataFrame) -> Any:
    try:
        return model.predict(frame)
    except NotFittedError:
        raise QueryError(f"model: this {type(model).__name__} is not fitted yet; fit it before it is explained") from None
    except (ValueError, TypeError, KeyError) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        columns = ", ".join(map(str, frame.columns))
        raise QueryError(
            f"model: predict fails on a table of the schema's columns ({columns}): {message.rstrip('.')}; "
            "pass a pipeline that takes them as they are"
        ) from error


Words = dict[str, pd.Series]
"""Column -> the cells that stand for the schema's categories, in their order, as a table holds them: numbers, True, words with
blanks around them, or pandas categories."""


def words_of(schema: Schema, table: pd.DataFrame) -> Words:
    """Return the cells that stand for each category in a table: for equal categories, the first cell."""
    words: Words = {}
    for feature in schema.features:
        if feature.categories is None or feature.source not in table:
            continue
        column, missing = table[feature.source], feature.missing
        cell_of = {text(cell): cell for cell in column.dropna().unique().tolist()[::-1]}
        cells = [cell_of.get(name, name) for name in feature.categories if name != missing]
        # LightGBM and XGBoost take no words, but a column of the type that they were fitted on
        is_typed = isinstance(column.dtype, pd.CategoricalDtype) and set(cells) <= {*column.dtype.categories}
        if missing is not None:  # without a type of objects pandas writes NaN for None
            cells.insert(feature.categories.index(missing), next(iter(column[column.isna()].tolist()), np.nan))
        words[feature.source] = pd.Series(cells, dtype=column.dtype if is_typed else None if missing is None else object)
    return words


def frame_of(schema: Schema, raw: Array, words: Words | None = None) -> pd.DataFrame:
    """Return raw rows (N, V) as a table: categories as in `words`, else as the schema writes them, whole numbers as int."""
    columns: dict[str, Any] = {}
    for v, feature in enumerate(schema.features):
        if feature.categories is not None:
            cells = (words or {}).get(feature.source, pd.Series(feature.categories))
            columns[feature.source] = cells.take(raw[:, v].astype(int)).reset_index(drop=True)
        else:
            columns[feature.source] = raw[:, v].astype(np.int64) if feature.kind == "integer" else raw[:, v]
    return pd.DataFrame(columns)


def beside(taken: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return column names for features in a table with other columns: names that are taken already are marked."""
    return {name: f"{name} (feature)" if name in taken else name for name in names}
