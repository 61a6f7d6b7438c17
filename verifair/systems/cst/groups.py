"""The groups that an intervention compares: the complainants' groups, and the people with all its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import pandas as pd

from encoders.arrays import Booleans, Integers
from verifair.errors import DataError, QueryError
from verifair.schema.feature import text
from verifair.systems.arguments import check_number
from verifair.systems.cst.settings import Small

SMALL: tuple[Small, ...] = get_args(Small)


def groups_under(
    frame: pd.DataFrame, do: Mapping[str, Any], *, least: int = 0
) -> tuple[tuple[str, ...], Integers, Booleans]:
    """Return the names of the complainants' groups; (N,) the group of each row, -1 for none; (N,) True for rows with all of do's
    values.

    least: groups of fewer rows are left out.
    Raises QueryError for no attribute, DataError for absent columns and values, or where a group is empty.
    """
    if not do:
        raise QueryError("do: no protected attribute; name one with the value of those who are not protected, such as sex = Male")
    codes, words = zip(*(_codes(frame, name, value) for name, value in do.items()), strict=True)
    code = np.column_stack(codes)
    test, protected = (code == 0).all(axis=1), (code != 0).all(axis=1)
    if not protected.any():
        joint = " and ".join(f"{name} other than {text(value)}" for name, value in do.items())
        raise DataError(f"do {in_words(do)}: nobody has {joint}, so there is no complainant; correct the values")
    if not test.any():
        raise DataError(f"do {in_words(do)}: no row has all of these values, so there is no test group; correct the values")
    combination, inverse = np.unique(code[protected], axis=0, return_inverse=True)
    labels = [", ".join(f"{name} = {w[c]}" for name, w, c in zip(do, words, levels, strict=True)) for levels in combination]
    size = np.bincount(inverse)
    kept = [n for n in np.argsort(labels) if size[n] >= least]
    if not kept:
        raise DataError(f"do {in_words(do)}: every group has fewer than {least} rows (largest: {size.max()}); choose a smaller k")
    new_index = np.full(len(labels), -1, dtype=np.int64)
    new_index[kept] = np.arange(len(kept))
    group = np.full(len(frame), -1, dtype=np.int64)
    group[protected] = new_index[inverse]
    return tuple(labels[n] for n in kept), group, test


def _codes(frame: pd.DataFrame, name: str, value: Any) -> tuple[Integers, list[str]]:
    """Return (N,) codes of a protected attribute's values, 0 for that of `do`; and the values in words, by code."""
    if list(frame.columns).count(name) != 1:
        known = ", ".join(map(str, frame.columns))
        raise DataError(f"do {name} = {text(value)}: the table has no single column {name!r}; it has {known}")
    missing = int(frame[name].isna().sum())
    if missing:
        raise DataError(f"do {name} = {text(value)}: {missing} rows have no value in column {name!r}; drop such rows")
    codes, distinct = pd.factorize(frame[name])
    words = [text(level) for level in distinct]
    if text(value) not in words:
        raise DataError(f"do {name} = {text(value)}: no row has this value; found {', '.join(sorted(words)[:12])}")
    reference = words.index(text(value))
    swap = np.arange(len(words))
    swap[[0, reference]] = [reference, 0]  # exchanges code 0 and that of do's value: its own inverse
    return swap[codes], [words[c] for c in swap]


def in_words(do: Mapping[str, Any]) -> str:
    """Return an intervention in words, such as "Gender = 0"."""
    return ", ".join(f"{name} = {text(value)}" for name, value in do.items())


def check_sizes(k: tuple[int, ...], names: tuple[str, ...], group: Integers, test: Booleans) -> None:
    """Raise DataError naming the smallest group and the largest k, if the group is too small."""
    sizes = {name: int((group == g).sum()) - 1 for g, name in enumerate(names)}
    sizes["the test group"] = int(test.sum())
    name = min(sizes, key=lambda group_name: sizes[group_name])
    if max(k) > sizes[name]:
        others = " other" if name != "the test group" else ""
        raise DataError(
            f"k = {max(k)}: {name} has only {sizes[name]}{others} rows; the largest k is {sizes[name]}"
            + (
                ": ask for a smaller one, merge small groups, or leave them out (--small leave-out; small in Python)"
                if sizes[name]
                else ", so nobody can be tested: merge small groups, or leave them out (--small leave-out; small in Python)"
            )
        )


def check_k(k: Sequence[int]) -> tuple[int, ...]:
    """Return the group sizes, ascending, each once. Raises QueryError for anything but whole numbers from 1."""
    if isinstance(k, str) or not isinstance(k, Iterable):
        raise QueryError(f"k = {k!r}: expected group sizes, such as (15, 30)")
    if not len(k):
        raise QueryError("k: no group size; give at least one, such as 15")
    for size in k:
        check_number("k", size, whole=True)
        if size < 1:
            raise QueryError(f"k = {size}: expected 1 or more")
    return tuple(sorted({int(size) for size in k}))


def least_group(k: Sequence[int], small: Small) -> int:
    """Return the number of rows that a complainant's group needs in order not to be left out."""
    if small not in SMALL:
        raise QueryError(f"small = {small!r}: expected one of {', '.join(SMALL)}")
    return max(check_k(k)) + 1 if small == "leave-out" else 0


def left_out(frame: pd.DataFrame, do: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
    """Return the groups that are not tested: name -> number of rows."""
    all_names, group, _ = groups_under(frame, do)
    return {name: int((group == g).sum()) for g, name in enumerate(all_names) if name not in names}
