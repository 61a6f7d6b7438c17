"""The shipped datasets against the originals' known counts, their schemas, and reading tables from files."""

from __future__ import annotations

import gzip
import hashlib
import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verifair import datasets
from verifair.datasets import Dataset, read_table
from verifair.errors import DataError

COMPAS = Path(os.environ.get("VERIFAIR_DATA", "")) / "tabular" / "compas_two_years.csv.gz"
needs_compas = pytest.mark.skipif(
    not ("VERIFAIR_DATA" in os.environ and COMPAS.is_file()), reason="VERIFAIR_DATA does not name the larger data"
)


@pytest.fixture(scope="module")
def german() -> Dataset:
    return datasets.german()


@pytest.fixture(scope="module")
def adult() -> Dataset:
    return datasets.adult()


@pytest.fixture(params=["german", "adult", pytest.param("compas", marks=needs_compas)])
def dataset(request: pytest.FixtureRequest) -> Dataset:
    return datasets.compas(COMPAS) if request.param == "compas" else request.getfixturevalue(request.param)


# The files are the UCI's own, byte by byte


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        ("adult.data.gz", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        ("adult.test.gz", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
        ("german.data.gz", "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"),
    ],
)
def test_shipped_bytes(name: str, sha256: str) -> None:
    packed = (files("verifair.datasets") / "data" / name).read_bytes()
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == sha256
    assert packed[4:8] == b"\0\0\0\0"  # no time stamp: packing again gives the same file
    assert sha256 in (files("verifair.datasets") / "data" / "README.md").read_text(encoding="utf-8")


# Preprocessing


def test_german(german: Dataset) -> None:
    frame = german.frame
    assert frame.shape == (1000, 21)
    assert frame["credit"].value_counts().to_dict() == {"good": 700, "bad": 300}
    assert frame["age"].value_counts().to_dict() == {"Senior": 810, "Junior": 190}  # 190 of 1,000 are 25 or younger
    assert frame["sex"].value_counts().to_dict() == {"Male": 690, "Female": 310}  # A92: 310
    assert frame["status"].value_counts().to_dict() == {"no account": 394, "< 0 DM": 274, "0-200 DM": 269, ">= 200 DM": 63}
    assert german.schema.protected_names == ("age", "sex")
    first = frame.iloc[0]  # A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1
    assert first[["status", "duration", "credit-history", "purpose", "credit-amount"]].tolist() == [
        "< 0 DM", 6, "critical", "television", 1169,
    ]  # fmt: skip
    assert first[["savings", "employment", "property", "telephone", "foreign-worker", "age", "sex", "credit"]].tolist() == [
        "unknown", ">= 7 years", "real estate", "yes", "yes", "Senior", "Male", "good",
    ]  # fmt: skip


def test_adult(adult: Dataset) -> None:
    frame = adult.frame
    assert frame.shape == (45222, 15)
    assert frame["income"].value_counts().to_dict() == {"<=50K": 34014, ">50K": 11208}
    assert frame["relationship"].value_counts()["Spouse"] == 20757  # 18,666 husbands, 2,091 wives
    assert frame["sex"].value_counts().to_dict() == {"Male": 30527, "Female": 14695}
    assert adult.schema.domain.columns == 102
    assert adult.schema.protected_names == ("race", "sex")
    moving = adult.schema.steps(["sex"]) > 0
    assert [f.name for f, moves in zip(adult.schema.features, moving, strict=True) if moves] == [
        "age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week",
    ]  # fmt: skip
    assert adult.schema["capital-gain"].unit == 100  # the paper's own


def test_merits_are_the_cec_paper_s(german: Dataset, adult: Dataset) -> None:
    """The paper's financial features; its age of German is a protected group here."""
    merits = {data.name: {f.name for f in data.schema.features if f.merit} for data in (german, adult)}
    assert merits["german"] == {
        "credit-amount", "duration", "installment-rate", "residence-since", "existing-credits", "people-liable",
    }  # fmt: skip
    assert merits["adult"] == {"capital-gain", "capital-loss", "hours-per-week", "occupation"}


@needs_compas
def test_compas() -> None:
    compas = datasets.load("compas", COMPAS)
    assert compas.frame.shape == (6172, 9)  # ProPublica's own count after its filters
    assert compas.frame["recidivist"].value_counts().to_dict() == {"no": 3363, "yes": 2809}
    assert compas.schema.labels(compas.frame).sum() == 3363
    assert compas.frame["charge-degree"].value_counts().to_dict() == {"felony": 3970, "misdemeanor": 2202}


def propublica(tmp_path: Path) -> Path:
    """A file laid out like ProPublica's, whose header names two columns twice."""
    header = (
        "sex,age,race,juv_fel_count,decile_score,juv_misd_count,juv_other_count,priors_count,days_b_screening_arrest,"
        "c_charge_degree,is_recid,decile_score,score_text,priors_count,two_year_recid"
    )
    rows = [
        "Male,30,Caucasian,0,1,0,0,5,-1,F,0,1,Low,5,0",
        "Female,40,Other,0,1,0,0,0,30,M,1,1,Low,0,1",
        "Male,30,Caucasian,0,1,0,0,5,31,F,0,1,Low,5,0",  # charged too late
        "Male,30,Caucasian,0,1,0,0,5,,F,0,1,Low,5,0",  # no charge date
        "Male,30,Caucasian,0,1,0,0,5,-1,F,-1,1,Low,5,0",  # no case
        "Male,30,Caucasian,0,1,0,0,5,-1,O,0,1,Low,5,0",  # traffic
        "Male,30,Caucasian,0,1,0,0,5,-1,F,0,1,N/A,5,0",  # no score
    ]
    path = tmp_path / "compas-scores-two-years.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_compas_filters_on_the_original_layout(tmp_path: Path) -> None:
    compas = datasets.compas(propublica(tmp_path))
    assert compas.frame["sex"].tolist() == ["Male", "Female"]
    assert compas.schema.labels(compas.frame).tolist() == [1, 0]
    assert compas.schema.raw(compas.frame)[:, compas.schema.index("priors")].tolist() == [5, 0]


def test_wrong_compas_file(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("sex,age\nMale,30\n")
    with pytest.raises(DataError, match=r"other\.csv: has no column race, juv_fel_count, .*; it has sex, age"):
        datasets.compas(path)


# What holds for every dataset


def test_schema_fits_the_table_exactly(dataset: Dataset) -> None:
    """Ranges are those of the data, and every category occurs."""
    raw = dataset.schema.raw(dataset.frame)
    assert set(dataset.frame.columns) == {f.name for f in dataset.schema.features} | {dataset.target}
    assert np.array_equal(raw.min(axis=0), dataset.schema.domain.lower)
    assert np.array_equal(raw.max(axis=0), dataset.schema.domain.upper)
    for v, feature in enumerate(dataset.schema.features):
        if feature.categories is not None:
            assert set(raw[:, v]) == set(range(len(feature.categories)))
        else:
            assert feature.scale == "minmax"
            levels = raw[:, v].max() - raw[:, v].min() + 1
            assert feature.unit is not None or levels <= 4  # codes of a few levels stay still under PBA
    encoded = dataset.schema.encode(raw)
    assert encoded.min() == 0
    assert encoded.max() == 1


def test_rows_survive_a_csv_file(dataset: Dataset, tmp_path: Path) -> None:
    """Also through pandas' own reader, which takes words such as None for missing cells."""
    raw, labels = dataset.schema.raw(dataset.frame), dataset.schema.labels(dataset.frame)
    path = tmp_path / "table.csv"
    dataset.frame.to_csv(path, index=False)
    for frame in (pd.read_csv(path), read_table(path)):
        assert np.array_equal(dataset.schema.raw(frame), raw)
        assert np.array_equal(dataset.schema.labels(frame), labels)


def test_split_is_the_paper_s(dataset: Dataset) -> None:
    train, test = dataset.split
    assert sorted([*train, *test]) == list(range(len(dataset.frame)))
    assert len(test) == -(-len(dataset.frame) // 5)
    assert dataset.test.equals(dataset.frame.iloc[test].reset_index(drop=True))
    assert len(dataset.train) == len(train)
    shares = [dataset.schema.labels(part).mean() for part in (dataset.train, dataset.test)]
    assert abs(shares[0] - shares[1]) < 1e-3  # stratified


def test_split_does_not_change(german: Dataset) -> None:
    """Shipped networks were trained on it: another split would measure them on rows that they have seen."""
    assert german.split[1][:5].tolist() == [4, 5, 6, 12, 21]
    again = datasets.load("german")
    assert np.array_equal(again.split[1], german.split[1])


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("germany", None, "there is no dataset 'germany'; known are german, adult, synthetic, loan, compas, hmda, law_school"),
        ("compas", None, "compas is not shipped.*pass the path of ProPublica's compas-scores-two-years.csv"),
        ("adult", "adult.csv", r"adult is shipped and takes no path, found adult\.csv; drop it"),
        ("compas", "nowhere.csv", r"nowhere\.csv: there is no such file"),
    ],
)
def test_wrong_names(name: str, path: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        datasets.load(name, path)


# Tables


def test_words_that_look_missing_are_words(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("name,plan, size\nNone,NA,1\nnan,N/A,\n")
    frame = read_table(path)
    assert frame["name"].tolist() == ["None", "nan"]
    assert frame["plan"].tolist() == ["NA", "N/A"]
    assert frame["size"].isna().tolist() == [False, True]
    assert frame.attrs["source"] == str(path)


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.parquet"])
def test_formats(tmp_path: Path, german: Dataset, name: str) -> None:
    path = tmp_path / name
    german.frame.to_parquet(path) if name.endswith("parquet") else german.frame.to_csv(path, index=False)
    frame = read_table(path)
    assert np.array_equal(german.schema.raw(frame), german.schema.raw(german.frame))
    assert list(read_table(path, columns=["credit", "sex"]).columns.sort_values()) == ["credit", "sex"]
    with pytest.raises(DataError, match="has no column nothing; it has status, duration"):
        read_table(path, columns=["credit", "nothing"])


def test_a_late_word_makes_the_whole_column_words(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    header, numbers, word = (",".join([cell] * 60) for cell in ("{}", "1", "x"))
    path.write_text(header.format(*range(60)) + "\n" + (numbers + "\n") * 20_000 + word + "\n")
    assert {repr(cell) for cell in read_table(path)["0"]} == {"'1'", "'x'"}  # pandas guesses types chunk by chunk unless told


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("table.csv", None, "there is no such file; pass a CSV, CSV.GZ or Parquet table"),
        ("table.csv", b"", "is empty; expected a header line and rows"),
        ("table.csv", b"a,b\n", "has a header but no rows"),
        ("table.csv", b"a,b,a\n1,2,3\n", "columns named twice: a; give each its own name"),
        ("table.csv", b"a;b\n1;2\n", "the header 'a;b' has no commas; save the table with commas between the cells"),
        ("table.csv", b"a,b\n1,2\n1,2,3\n", r"cannot be read as a table \(.*Expected 2 fields in line 3, saw 3\)"),
        ("table.csv", b"a,b\n1,2,3\n4,5,6\n", r"cannot be read as a table \(.*Expected 2 fields in line 2, saw 3\)"),
        ("table.csv", b"a,b\n1,\xff\xfe\n", r"cannot be read as a table \(.*utf-8.*\); expected CSV in UTF-8, or Parquet"),
        ("table.csv.gz", b"a,b\n1,2\n", "cannot be read as a table .*gzipped"),
        ("table.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-12], "cannot be read as a table"),
        ("table.csv.gz", gzip.compress(b"a,b\n", mtime=0)[:10] + b"\x07" * 9, "cannot be read as a table"),
        ("table.parquet", b"a,b\n1,2\n", "cannot be read as a table .*Parquet"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read_table(path)
    assert str(error.value).startswith(str(path))
