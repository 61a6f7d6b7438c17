"""Cells: rounded for reading, never to what they are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from verifair.audit.page.cells import Cell, grid, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"), (1.0, "1.000"), (0.5, "0.500"), (-0.25, "−0.250"), (0.99996, "0.99996"), (0.9999999, "0.9999999"),
        (1e-4, "0.0001"), (1e-9, "1.00e−09"), (-1e-9, "−1.00e−09"), (1234.5678, "1,234.568"), (float("inf"), "∞"),
        (float("-inf"), "−∞"), (float("nan"), "–"), (0.0004999, "0.0005"), (1 + 1e-12, "1.000000000001"),
    ],
)  # fmt: skip
def test_a_number_is_never_rounded_to_a_whole_one_that_it_is_not(value: float, text: str) -> None:
    assert number(value) == text


def test_a_column_of_numbers_with_gaps_stays_a_column_of_numbers() -> None:
    found = grid(pd.DataFrame({"gap": [0.25, None], "count": [1000, 2], "word": ["a", None], "flag": [np.True_, False]}), 10)
    assert found.columns == (("gap", True), ("count", True), ("word", False), ("flag", False))
    assert found.rows[0] == (
        Cell(text="0.250", number=0.25), Cell(text="1,000", number=1000), Cell(text="a"), Cell(text="yes"),
    )  # fmt: skip
    assert [cell.missing for cell in found.rows[1]] == [True, False, True, False]


def test_whole_numbers_with_gaps_and_those_of_pandas_are_numbers() -> None:
    frame = pd.DataFrame({"n": pd.array([3, None], dtype="Int64"), "x": np.array([1.5, 2.5], dtype=np.float32)})
    found = grid(frame, 10)
    assert [cell.text for cell in found.rows[0]] == ["3", "1.500"]
    assert found.rows[1][0].missing


def test_a_column_of_whole_numbers_shows_no_decimals_and_one_that_is_not_shows_them_all_over() -> None:
    found = grid(pd.DataFrame({"delta": [1.0, 2.0], "mixed": [1.0, 2.5], "none": [float("nan"), float("inf")]}), 10)
    assert [[cell.text for cell in row] for row in found.rows] == [["1", "1.000", "–"], ["2", "2.500", "∞"]]


def test_large_numbers_lose_their_decimals_and_long_tables_their_rows() -> None:
    found = grid(pd.DataFrame({"credit": [12345.678, 1.25], "days": [50.125, 2.0]}), 1)
    assert [cell.text for cell in found.rows[0]] == ["12,345.7", "50.12"]
    assert (len(found.rows), found.left_out) == (1, 1)


def test_columns_of_the_same_name_and_no_rows_at_all() -> None:
    assert grid(pd.DataFrame([[1, 2]], columns=["a", "a"]), 5).rows[0][1].number == 2
    empty = grid(pd.DataFrame({"a": []}), 5)
    assert (empty.columns, empty.rows, empty.left_out) == ((("a", False),), (), 0)
