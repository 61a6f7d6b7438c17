"""One-hot columns in a table, as pandas.get_dummies makes them: their grouping into features, and messages about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans
from verifair.models.columns import holds_numbers, holds_truths
from verifair.schema.feature import Feature, text
from verifair.schema.rows import block_of
from verifair.schema.spelling import listed
from verifair.schema.writing import written

SEPARATORS = "_=.:|/-"
"""Characters that may separate a feature's name from a category's. A schema reads only columns with "_"."""


def one_hot_columns(frame: pd.DataFrame, columns: Sequence[str], features: Collection[str] = ()) -> dict[str, list[str]]:
    """Return name -> columns name_category of each feature that pandas.get_dummies seems to have spread over columns: of 0 and 1
    (or truth values), with one 1 in each row; or neighbours, no row with two ones: with drop_first some rows have none.

    features: names of features for sure: job_a_x and job_a_y may belong to job or to job_a. Otherwise the longest name is taken.
    """
    flags = {name: flag for name in columns if _prefixes(name) and (flag := _flag(frame[name])) is not None}
    heads = {head: k for k, head in enumerate(dict.fromkeys(_prefixes(name)[0] for name in flags))}
    names, result, start = sorted(flags, key=lambda name: heads[_prefixes(name)[0]]), dict[str, list[str]](), 0
    while start < len(names):
        block = _block_of(names[start:], flags, columns)
        if block:
            shared = [prefix for prefix in _prefixes(block[0]) if all(name.startswith(prefix) for name in block)]
            prefixes = [prefix for prefix in shared if prefix.endswith("_")] or shared
            exact = [prefix for prefix in prefixes if sum(name.startswith(prefix) for name in frame.columns) == len(block)]
            result.setdefault(next((prefix[:-1] for prefix in exact if prefix[:-1] in features), prefixes[-1][:-1]), block)
        start += max(1, len(block))
    return result


def _block_of(names: Sequence[str], flags: Mapping[str, Booleans], columns: Sequence[str]) -> list[str]:
    """Return the one-hot columns of the feature that the first name seems to be of, none where it is a flag: of two features with
    one beginning, such as home_own, home_rent, home_city_x, as many as have one 1 in each row."""
    for prefix in _prefixes(names[0]):
        end = next((size for size, name in enumerate(names) if not name.startswith(prefix)), len(names))
        block = list(names[:end])
        counts, complete = np.zeros(len(flags[names[0]]), dtype=np.int64), 0
        for size, name in enumerate(block, start=1):
            counts += flags[name]
            complete = size if (counts == 1).all() else complete
            if counts.max(initial=0) > 1:
                break
        if complete > 1:
            return block[:complete]
        neighbours = columns.index(block[-1]) - columns.index(block[0]) == len(block) - 1
        if counts.max(initial=0) == 1 and neighbours and sum(flags[name].any() for name in block) > 1:
            return block
    return []


def _prefixes(column: str) -> list[str]:
    """Return what the name of a one-hot column may begin with, its feature's name and a separator, the shortest first."""
    return [column[: match.end()] for match in re.finditer(f"(?<=[^{SEPARATORS}])[{SEPARATORS}]", column)]


def _flag(column: pd.Series) -> Booleans | None:
    """Return (N,) True where a column of 0 and 1, or truth values, is 1; None for any other column. It may be 0 in all rows."""
    flag = holds_truths(column) or (holds_numbers(column) and set(column.dropna().unique()) in ({0, 1}, {0}))
    return _is_one(column) if flag else None


def _is_one(column: pd.Series) -> Booleans:
    """Return (N,) True where a column is 1."""
    return np.asarray(column.eq(1).to_numpy(dtype=bool, na_value=False))


def spread(frame: pd.DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """Return column -> a message about the one-hot columns that it begins, if a model takes them."""
    blocks = one_hot_columns(frame, [name for name in frame.columns if name in columns])
    return {block[0]: one_feature(frame, feature, block) for feature, block in blocks.items()}


def gathered(frame: pd.DataFrame, features: Sequence[Feature]) -> dict[str, str]:
    """Return feature -> a message, for features of which a table has one-hot columns and no column of words."""
    messages = {}
    for feature in features:
        block = list(block_of(feature))
        if block and feature.name not in frame.columns:
            note = f"; rows with none of them are called {feature.dropped!r}: give that category its name in the schema"
            message = f"columns {listed(block)} are taken for the one-hot columns of one feature, {feature.name!r}"
            messages[feature.name] = message + (note if feature.dropped is not None else "")
    return messages


def is_one_feature(frame: pd.DataFrame, feature: str, block: Sequence[str], features: Collection[str] = ()) -> bool:
    """Return True if one-hot columns can be one feature: each row has one of its categories, with names that schemas allow.

    features: features of which rows may have no column (drop_first). Of others, two flags may go together although no row has both.
    """
    has_names = feature not in frame.columns and min(map(len, block)) > len(feature) + 1 and _has_plain_names(feature, block)
    return has_names and (feature in features or is_whole(frame, block))


def _has_plain_names(feature: str, block: Sequence[str]) -> bool:
    """Return True if a schema finds one-hot columns by their names, unlike "sex_ Male" or "sex=Male"."""
    return all(name == f"{feature}_{text(name[len(feature) + 1 :])}" for name in block)


def categories_of(frame: pd.DataFrame, feature: str, block: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the categories of one-hot columns, and the one without a column (or None), which rows without a 1 have."""
    words = [name[len(feature) + 1 :] for name in block]
    dropped = None if is_whole(frame, block) else next(word for word in _names_of_dropped() if word not in words)
    return ([] if dropped is None else [dropped]) + words, dropped


def _names_of_dropped() -> Iterator[str]:
    yield "unnamed"
    yield from (f"unnamed {number}" for number in count(2))


def words_of(frame: pd.DataFrame, feature: str, block: Sequence[str]) -> Array:
    """Return (N,) the category of each row by its one-hot columns."""
    categories, dropped = categories_of(frame, feature, block)
    flags = [_is_one(frame[name]) for name in block]
    if dropped is not None:
        flags.insert(0, ~np.any(flags, axis=0))
    return np.asarray(np.array(categories, dtype=object)[np.argmax(flags, axis=0)])


def is_whole(frame: pd.DataFrame, block: Sequence[str]) -> bool:
    """Return True if each row has a 1 in some of the columns."""
    return bool((np.sum([_is_one(frame[name]) for name in block], axis=0) == 1).all())


def one_feature(frame: pd.DataFrame, feature: str, block: Sequence[str]) -> str:
    """Return a message that these are one-hot columns of a feature, and how a schema declares it in TOML."""
    first, suffix = list(block[:3]), ", ..." * (len(block) > 3)
    names, dropped = categories_of(frame, feature, block)
    complete = dropped is None
    categories = ", ".join(map(written, names[: 3 + (not complete)])) + suffix
    declaration = f'name = {written(feature)}, kind = "one-hot", categories = [{categories}]'
    remedy = f"pass a schema with {declaration}{'' if complete else f', dropped = {written(dropped)}'} in their place"
    if not _has_plain_names(feature, block):
        remedy = f"fit the model on a table that calls them {feature}_CATEGORY, without blanks: they are then made one feature"
    return (
        f"columns {', '.join(first)}{suffix} seem to be the one-hot columns of one feature; each a feature of its own, they "
        f"change one by one, so that people have several of its values{' or none' * complete}; {remedy}"
    )
