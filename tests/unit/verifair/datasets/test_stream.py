"""Tables in chunks: the same rows, texts and errors as all at once, wherever the chunks are cut."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.api.types import infer_dtype

from verifair import aside
from verifair.datasets import read_table, table
from verifair.datasets import stream as streams
from verifair.datasets.stream import Stream
from verifair.errors import DataError
from verifair.schema.feature import text

ROWS = 40
COLUMNS = {
    "whole": [str(n) for n in range(ROWS)],
    "then a fraction": [*(str(n) for n in range(30)), *(f"{n}.5" for n in range(30, ROWS))],
    "then words": [*(f"0{n}" for n in range(25)), *("none", "NA", "x") * 5],
    "first words": ["x", *("1.0",) * 39],
    "flags, then words": [*("TRUE",) * 20, *("maybe",) * 20],
    "flags with gaps": [*("True", "False", "") * 13, "True"],
    "missing at first": [*("",) * 20, *("3",) * 20],
    "gaps at the end": [*("3",) * 20, *("",) * 10, *("2.5",) * 10],
    "fractions and flags": [*("0.5",) * 20, *("True",) * 20],
    "beyond 64 bits": [*(str(2**63 + n) for n in range(20)), *("-1",) * 20],
    "blanks": [" a", "a "] * 20,
}
"""What a column of a CSV holds that looks otherwise in some chunk of it than in all rows."""


@pytest.fixture(params=["t.csv", "t.csv.gz", "t.parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    lines = [",".join(COLUMNS).replace("flags, ", "flags "), *(",".join(row) for row in zip(*COLUMNS.values(), strict=True))]
    content = "\n".join(lines) + "\n"
    if path.suffix == ".parquet":
        plain = tmp_path / "t.csv"
        plain.write_text(content)
        read_table(plain).to_parquet(path, row_group_size=11)
    else:
        path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


@pytest.mark.parametrize("rows", [1, 7, 20, 39, 40, 41])
def test_chunks_hold_what_the_whole_table_holds(path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_table(path)
    monkeypatch.setattr(table, "CHUNK", rows)
    stream = Stream.of(path)
    for _ in range(2):
        chunks = list(stream.chunks())
        assert max(map(len, chunks)) <= rows
        assert [label for chunk in chunks for label in chunk.index] == list(whole.index)
        assert all(chunk.attrs["source"] == str(path) for chunk in chunks)
        for name in whole.columns:
            told = [None if pd.isna(value) else text(value) for chunk in chunks for value in chunk[name]]
            assert told == [None if pd.isna(value) else text(value) for value in whole[name]], name
    assert (stream.count, stream.columns) == (ROWS, list(whole.columns))
    pd.testing.assert_frame_equal(stream.frame, whole)


@pytest.mark.parametrize("rows", [7, 50])
def test_parts_of_a_stream_are_those_of_the_table(path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, numbers = read_table(path), np.array([0, 6, 7, 13, 39])
    monkeypatch.setattr(table, "CHUNK", rows)

    def even(frame: pd.DataFrame) -> np.ndarray:
        return (frame["whole"] % 2 == 0).to_numpy()

    for stream, expected in (
        (Stream.of(path).take(numbers), whole.iloc[numbers]),
        (Stream.of(path).where(even), whole[even(whole)]),
        (Stream.of(path).head(9).where(even), whole.head(9)[even(whole.head(9))]),
        (Stream.of(whole).where(even).head(100), whole[even(whole)]),
    ):
        got = pd.concat(stream.chunks())
        assert got.index.tolist() == stream.stored.index.tolist() == expected.index.tolist(), "called as they were"
        assert got["whole"].tolist() == stream.frame["whole"].tolist() == expected["whole"].tolist()
        assert stream.count == len(expected)
    assert Stream.of(path).where(lambda frame: np.zeros(len(frame), dtype=bool)).count == 0


@pytest.mark.parametrize(("index", "called"), [
    (pd.RangeIndex(100, 109), list(range(100, 109))),           # of frame[100:109]
    (pd.RangeIndex(9, 0, -1), list(range(9, 0, -1))),
    (pd.date_range("2026-01-01", periods=9), [f"2026-01-0{n} 00:00:00" for n in range(1, 10)]),
    (pd.MultiIndex.from_product([["a", "b", "c"], [0, 1, 2]]), [f"('{a}', {n})" for a in "abc" for n in range(3)]),
    (pd.Index([*range(8), np.nan]), [*range(8), "nan"]),
])
def test_rows_of_a_file_are_called_as_those_in_memory(
    index: pd.Index, called: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"a": range(9)}, index=index)
    path = tmp_path / "t.parquet"
    frame.to_parquet(path)
    monkeypatch.setattr(table, "CHUNK", 4)
    for stream in (Stream.of(path), Stream.of(frame)):
        chunked = [label for chunk in stream.chunks() for label in chunk.index]
        assert chunked == stream.whole().index.tolist() == called


@pytest.mark.parametrize("content", [
    "", "a,b\n", "\n\n", "a;b\n1;2\n", "a,a\n1,2\n", "a,b\n1,2\n1,2,3\n",
    pytest.param("a,b\n" + "1,2\n" * 9 + "1,2,3\n", marks=pytest.mark.xfail(
        tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1), reason="pandas < 3.1 counts no cells of a chunk's first row",
    )),
])
def test_errors_are_those_of_the_whole_table(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(DataError) as whole:
        read_table(path)
    monkeypatch.setattr(table, "CHUNK", 3)
    with pytest.raises(DataError) as chunked:
        list(Stream.of(path).chunks())
    assert str(chunked.value) == str(whole.value)


def test_an_error_of_a_chunk_says_which_rows_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "CHUNK", 4)

    def read(frame: pd.DataFrame) -> int:
        if (frame["a"] > 5).any():
            raise DataError(f"{(frame['a'] > 5).sum()} rows are too large")
        return len(frame)

    with pytest.raises(DataError, match=r"2 rows are too large \(found among rows 4 to 7; later ones were not looked at\)"):
        list(Stream.of(pd.DataFrame({"a": range(12)})).each(read))
    with pytest.raises(DataError, match=r"large$"):
        list(Stream.of(pd.DataFrame({"a": [9, 0]})).each(read))


HOLES = pd.DataFrame({
    "age": [30.0, np.nan, 40.0, 40.0], "sex": ["f", "m", None, "m"], "fit": [True, None, False, False], "note": [None] * 4,
})


def test_rows_with_missing_values_are_left_out_or_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "CHUNK", 3)
    rows, looked_at = Stream.of(HOLES), ["age", "sex", "fit"]
    assert rows.missing(looked_at) == (3, 2)
    assert rows.missing([]) == (0, 0)
    whole = rows.complete(looked_at)
    assert whole.frame["age"].tolist() == [30, 40]
    assert whole.frame.index.tolist() == [0, 3]
    filled = rows.filled(looked_at)
    assert filled.frame["age"].tolist() == [30, 40, 40, 40]
    assert filled.frame["sex"].tolist() == ["f", "m", "m", "m"]
    assert filled.frame["fit"].tolist() == [True, False, False, False]
    assert filled.frame["note"].isna().all(), "nobody asked for it"
    pd.testing.assert_frame_equal(pd.concat(filled.chunks()), filled.frame)
    assert rows.settled("error", looked_at) == (rows, "")
    assert rows.settled("drop", ["no such column"]) == (rows, "")
    assert rows.settled("drop", looked_at)[1] == " (2 rows with missing values left out)"
    assert rows.settled("most-frequent", looked_at)[1] == " (3 missing values in 2 rows filled in)"
    some, words = rows.settled("most-frequent", ["age", "fit"], facts=["sex", "label"])
    assert rows.settled("drop", ["age", "fit"], facts=["sex"])[0].count == 2
    assert (some.frame["age"].tolist(), some.frame["sex"].tolist()) == ([30, 30, 40], ["f", "m", "m"])
    assert words == " (1 row with missing values left out) (2 missing values in 1 row filled in)"
    with pytest.raises(DataError, match="no row has a value in each of the columns age, sex; fill them in"):
        Stream.of(HOLES.iloc[1:3]).complete(["age", "sex"])
    for treated in (rows.complete, rows.filled):
        with pytest.raises(DataError, match="column 'note' has no value at all; fill in the table"):
            treated(["age", "note"])


def test_of_equally_frequent_values_the_first_is_filled_in_whatever_the_order_of_categories() -> None:
    words = pd.Series(["m", "f", None], dtype=pd.CategoricalDtype(["f", "m"]))
    assert Stream.of(pd.DataFrame({"sex": words})).filled(["sex"]).frame["sex"].tolist() == ["m", "f", "m"]


@pytest.mark.parametrize("missing", ["drop", "most-frequent"])
def test_an_error_about_missing_values_names_the_file(missing: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    HOLES.to_csv(path, index=False)
    with pytest.raises(DataError, match=rf"{path}: .*note"):
        Stream.of(path).settled(missing, ["age", "note"])


def test_rows_are_a_table_or_its_file() -> None:
    for other in ({"age": [30]}, [30], np.array([[30]]), None):
        with pytest.raises(DataError, match=rf"rows: found {type(other).__name__}; expected a DataFrame, or the path"):
            Stream.of(other)


@pytest.mark.parametrize("rows", [7, 20, 40, 41])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_stored_table_is_the_whole_one_with_words_as_categories(
    name: str, path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = path.with_name(f"some{''.join(path.suffixes)}")
    both = read_table(path)[["whole", *({name.replace(",", "")} - {"whole"})]]
    both.to_parquet(some) if path.suffix == ".parquet" else both.to_csv(some, index=False)
    whole = read_table(some)
    monkeypatch.setattr(table, "CHUNK", rows)
    monkeypatch.setattr(aside, "ASIDE", 64)
    found = Stream.of(some).stored
    words = [column for column in found if isinstance(found[column].dtype, pd.CategoricalDtype)]
    assert words == [column for column in whole if rows <= 20 and infer_dtype(whole[column]) == "string"]
    assert all(found[column].cat.categories.tolist() == sorted(whole[column].dropna().unique()) for column in words)
    assert found.attrs == whole.attrs
    pd.testing.assert_frame_equal(found.astype({column: whole[column].dtype for column in words}), whole)


def test_a_stored_table_may_have_no_rows() -> None:
    none = pd.DataFrame({"word": ["a"], "number": [1.5]}).head(0)
    found = Stream(chunks=lambda: iter([none, none]), whole=lambda: none).stored
    assert found.columns.tolist() == ["word", "number"]
    assert len(found) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux's files")
def test_a_stored_table_takes_no_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(table, "CHUNK", 1 << 10)
    monkeypatch.setattr(aside, "ASIDE", 1 << 12)
    rng, rows = np.random.default_rng(0), 40_000
    frame = pd.DataFrame({f"n{n}": rng.integers(0, 9, rows) for n in range(8)} | {"word": rng.choice(["b", "a"], rows)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    Stream.of(tmp_path / "t.csv").head(3000).stored  # noqa: B018  imports what reads a table
    tracemalloc.start()
    found = Stream.of(tmp_path / "t.csv").stored
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 4 * rows
    assert peak < 45 * rows  # of 72 and more; the oldest pandas that is declared takes 34 to read it
    pd.testing.assert_frame_equal(found.astype({"word": frame["word"].dtype}), frame)


def test_a_table_of_ever_new_words_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "CHUNK", 4)
    monkeypatch.setattr(streams, "MOST_WORDS", 9)
    frame = pd.DataFrame({"word": list("abcdefghij")})
    assert Stream.of(frame).stored is frame
    assert Stream.of(frame.head(9)).stored["word"].cat.codes.tolist() == list(range(9))
