"""The shipped datasets against the originals' known counts, reading tables from files, synthetic applicants, and mortgages."""

import gzip
import hashlib
import os
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from verifair import datasets
from verifair.cli.train import TrainSettings
from verifair.datasets import Dataset, read_table
from verifair.datasets.sources import SHIPPED, UNSHIPPED
from verifair.datasets.synthetic_table import NOISE, SHIFT, TAU, WEIGHTS
from verifair.errors import DataError
from verifair.systems.settings import Inputs, Settings

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


@pytest.mark.parametrize(("name", "sha256"), [
    ("adult.data.gz", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    ("adult.test.gz", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    ("german.data.gz", "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"),
])
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
    ]
    assert first[["savings", "employment", "property", "telephone", "foreign-worker", "age", "sex", "credit"]].tolist() == [
        "unknown", ">= 7 years", "real estate", "yes", "yes", "Senior", "Male", "good",
    ]


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
    ]
    assert adult.schema["capital-gain"].unit == 100  # the paper's own


def test_merits_are_the_cec_paper_s(german: Dataset, adult: Dataset) -> None:
    """The paper's financial features; its age of German is a protected group here."""
    merits = {data.name: {f.name for f in data.schema.features if f.merit} for data in (german, adult)}
    assert merits["german"] == {
        "credit-amount", "duration", "installment-rate", "residence-since", "existing-credits", "people-liable",
    }
    assert merits["adult"] == {"capital-gain", "capital-loss", "hours-per-week", "occupation"}


def test_german_with_age_in_years_differs_in_age_alone(german: Dataset) -> None:
    years = datasets.load("german-years")
    assert years.frame["age"].between(19, 75).all()
    assert (np.where(years.frame["age"] <= 25, "Junior", "Senior") == german.frame["age"]).all()
    assert years.frame.drop(columns="age").equals(german.frame.drop(columns="age"))
    assert {f.name for f in years.schema.features if f.merit} == {"age"} | {f.name for f in german.schema.features if f.merit}
    assert years.schema.protected_names == ("sex",)


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


def test_a_label_of_one_row_is_on_one_side_of_the_split(german: Dataset) -> None:
    label = german.frame["credit"]
    for rows in ([*label.index[label == "good"][:30], label.index[label == "bad"][0]], label.index[:3], label.index[:2]):
        few = replace(german, frame=german.frame.loc[rows])
        assert sorted(np.concatenate(few.split).tolist()) == list(range(len(rows)))
        assert min(map(len, few.split)) > 0
    with pytest.raises(DataError, match="german: has one row, of which no fifth can be held out"):
        _ = replace(german, frame=german.frame.head(1)).split


def test_split_does_not_change(german: Dataset) -> None:
    """Shipped networks were trained on it: another split would measure them on rows that they have seen."""
    assert german.split[1][:5].tolist() == [4, 5, 6, 12, 21]
    again = datasets.load("german")
    assert np.array_equal(again.split[1], german.split[1])


@pytest.mark.parametrize(("name", "path", "message"), [
    ("germany", None, "there is no dataset 'germany'; known are german, german-years, adult, adult-balanced, synthetic, l"),
    ("compas", None, "compas is not shipped.*pass the path of ProPublica's compas-scores-two-years.csv"),
    ("adult", "adult.csv", r"adult is shipped and takes no path, found adult\.csv; drop it"),
    ("compas", "nowhere.csv", r"nowhere\.csv: there is no such file"),
])
def test_wrong_names(name: str, path: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        datasets.load(name, path)


@pytest.mark.parametrize("settings", [Inputs, TrainSettings])
def test_help_lists_all_names(settings: type[Settings]) -> None:
    words = re.findall(r"[\w-]+", settings.model_fields["data"].description or "")
    assert not {*SHIPPED, *UNSHIPPED} - set(words)


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


@pytest.mark.parametrize(("name", "content", "message"), [
    ("table.csv", None, "there is no such file; pass a CSV, CSV.GZ or Parquet table"),
    ("table.csv", b"", "is empty; expected a header line and rows"),
    ("table.csv", b"a,b\n", "has a header but no rows"),
    ("table.csv", b"a,b,a\n1,2,3\n", "columns named twice: a; give each its own name"),
    ("table.csv", b"a;b\n1;2\n", "the header 'a;b' has no commas, but semicolons; save the table with commas between"),
    ("table.csv", b"a;b\n1,5;2\n", r"'a;b' has no commas, but semicolons; save .*read_csv\(FILE, sep=';', decimal=','\)"),
    ("table.csv", b"a\tb\n1\t2\n", "has no commas, but tabs; save the table with commas between"),
    ("table.csv", b"a,b\n1,2\n1,2,3\n", r"cannot be read as a table \(.*Expected 2 fields in line 3, saw 3\)"),
    ("table.csv", b"a,b\n1,2,3\n4,5,6\n", r"cannot be read as a table \(.*Expected 2 fields in line 2, saw 3\)"),
    ("table.csv", b"a,b\n1,\xff\xfe\n", r"cannot be read as a table \(.*utf-8.*\); expected CSV in UTF-8, or Parquet"),
    ("table.csv.gz", b"a,b\n1,2\n", "cannot be read as a table .*gzipped"),
    ("table.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-12], "cannot be read as a table"),
    ("table.csv.gz", gzip.compress(b"a,b\n", mtime=0)[:10] + b"\x07" * 9, "cannot be read as a table"),
    ("table.parquet", b"a,b\n1,2\n", "cannot be read as a table .*Parquet"),
])
def test_bad_files(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read_table(path)
    assert str(error.value).startswith(str(path))


# The synthetic applicants: what the CEC paper's recipe promises.


DATA = datasets.synthetic(n=40_000, seed=3)
MERITS, PROXIES, NOISES = ([f"{kind}-{k}" for k in range(1, n + 1)] for kind, n in (("merit", 10), ("proxy", 5), ("noise", 5)))


def test_twenty_features_and_a_group_that_is_none() -> None:
    schema = datasets.load("synthetic").schema
    assert [feature.name for feature in schema.features] == [*MERITS, *PROXIES, *NOISES]
    assert [feature.name for feature in schema.features if feature.merit] == MERITS
    assert schema.domain.columns == 20
    assert set(datasets.load("synthetic").frame.columns) == {*MERITS, *PROXIES, *NOISES, "group", "approved"}
    assert len(datasets.load("synthetic").frame) == 10_000


def test_only_proxies_tell_the_group() -> None:
    group = (DATA.frame["group"] == "1").to_numpy()
    shift = DATA.frame.loc[group, [*MERITS, *PROXIES, *NOISES]].mean() - DATA.frame.loc[~group, [*MERITS, *PROXIES, *NOISES]].mean()
    assert np.abs(shift[PROXIES] - SHIFT).max() < 0.05  # 0.5 standard deviations, five times the sampling error
    assert np.abs(shift[[*MERITS, *NOISES]]).max() < 0.05
    within = DATA.frame.loc[group, [*MERITS, *PROXIES, *NOISES]].std()
    assert np.abs(within - 1).max() < 0.03


def test_merit_alone_decides() -> None:
    labels = DATA.schema.labels(DATA.frame)
    score = DATA.frame[MERITS].to_numpy() @ WEIGHTS
    assert ((score > TAU) == labels).mean() > 0.9
    assert (labels[score > TAU + 5 * NOISE] == 1).all()
    assert 0.48 < labels.mean() < 0.52
    fitted = LogisticRegression().fit(DATA.frame[[*MERITS, *PROXIES, *NOISES]], labels).coef_[0]
    assert np.abs(fitted[10:]).max() < 0.05 * fitted[0]  # neither proxies nor noise
    assert np.allclose(fitted[:10] / fitted[0], WEIGHTS, atol=0.05)


def test_the_seed_is_the_data() -> None:
    assert datasets.synthetic(n=50, seed=1).frame.equals(datasets.synthetic(n=50, seed=1).frame)
    assert not datasets.synthetic(n=50, seed=1).frame.equals(datasets.synthetic(n=50, seed=2).frame)


def test_every_draw_is_legal() -> None:
    assert DATA.schema.raw(DATA.frame).shape == (40_000, 20)  # raises for a row outside the declared range


def test_nobody() -> None:
    with pytest.raises(DataError, match="synthetic: n = 0, expected at least one person"):
        datasets.synthetic(n=0)


# The mortgage register: bands, codes, clipping, what is left out and why; and the real extract where it is there.


HEADER = (
    "approved,loan_amount,income,debt_to_income_ratio,loan_to_value_ratio,loan_purpose,applicant_race-1,applicant_sex,applicant_age,"
    "property_value,occupancy_type"
)
GOOD = "1,45000.0,29.0,<20%,24.0,32,5.0,1,45-54,185000,1"
REAL = Path(os.environ.get("VERIFAIR_DATA", "")) / "tabular" / "hmda_texas2022.csv.gz"
needs_real = pytest.mark.skipif(
    not ("VERIFAIR_DATA" in os.environ and REAL.is_file()), reason="VERIFAIR_DATA does not name the larger data"
)


def register(folder: Path, *lines: str) -> Path:
    path = folder / "register.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def test_words_bands_and_clipping(tmp_path: Path) -> None:
    path = register(
        tmp_path, GOOD, "0,2000000.0,-12.0,>60%,97.5,1,22,6,>74,9000000,3", "1,155000,232,30%-<36%,80,4,3,4,<25,185000,2"
    )
    data = datasets.load("hmda", path)
    assert data.frame["race"].tolist() == ["White", "non-White", "non-White"]
    assert data.frame["sex"].tolist() == ["male", "both", "not given"]
    assert data.frame["purpose"].tolist() == ["cash-out refinancing", "purchase", "other"]
    assert data.frame["occupancy"].tolist() == ["principal", "investment", "second"]
    assert data.frame["debt-to-income"].tolist() == [10, 65, 33]  # the middle of the band
    assert data.frame["loan-amount"].tolist() == [45000, 1500000, 155000]  # clipped to the declared range
    assert data.frame["income"].tolist() == [29, 0, 232]
    assert data.frame["property-value"].tolist() == [185000, 2000000, 185000]
    assert data.schema.labels(data.frame).tolist() == [1, 0, 1]
    assert data.schema.raw(data.frame).shape == (3, 10)
    assert dict(data.dropped) == {}


def test_rows_left_out_are_counted_once(tmp_path: Path) -> None:
    data = datasets.hmda(register(
        tmp_path, GOOD,
        "1,45000,29,,24,32,6.0,1,45-54,185000,1",  # race not given comes first
        "1,45000,29,40,24,32,,1,45-54,185000,1",
        "1,45000,29,Exempt,Exempt,32,5.0,1,45-54,Exempt,1",
        "0,45000,29,,24,32,5.0,1,45-54,185000,1",
        "0,45000,29,40,,32,5.0,1,45-54,,1",
        "0,45000,29,40,24,32,5.0,1,45-54,,1",
        "0,45000,29,40,24,5,5.0,1,45-54,185000,1",
        "0,45000,29,40,24,1,5.0,1,8888,185000,1",
    ))
    assert dict(data.dropped) == {
        "race not given": 2, "lender exempt from reporting": 1, "no debt-to-income": 1, "no loan-to-value": 1,
        "no property-value": 1, "no age": 1, "no purpose": 1,
    }
    assert len(data.frame) == 1


@pytest.mark.parametrize(("line", "message"), [
    (GOOD.replace("<20%", "<18%"), r"column debt_to_income_ratio: row 0 holds '<18%', expected a number or one of <20%, 20%"),
    (GOOD.replace(",5.0,", ",9,"), r"column applicant_race-1: row 0 holds '9', expected one of 5, 1, 2"),
    (GOOD.replace("185000", "a lot"), r"column property_value: row 0 holds 'a lot', expected a number; correct the file"),
    ("2" + GOOD[1:], r"column approved: row 0 holds '2', expected one of 1, 0"),
])
def test_strange_cells(tmp_path: Path, line: str, message: str) -> None:
    path = register(tmp_path, line)
    with pytest.raises(DataError, match=message) as error:
        datasets.hmda(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="hmda is not shipped, for it is large: pass the path of an extract"):
        datasets.load("hmda")
    path = tmp_path / "other.csv"
    path.write_text("approved,income\n1,30\n")
    with pytest.raises(DataError, match=r"other\.csv: has no column loan_amount, debt_to_income_ratio"):
        datasets.hmda(path)
    path = register(tmp_path, GOOD.replace(",5.0,", ",6.0,"))
    with pytest.raises(DataError, match=r"register\.csv: no row is left: race not given: 1"):
        datasets.hmda(path)


@needs_real
def test_texas_2022() -> None:
    data = datasets.hmda(REAL)
    assert len(data.frame) == 36166
    assert len(data.frame) + sum(data.dropped.values()) == 50_000
    assert data.dropped["race not given"] == 8965  # 8,943 times 6, 6 times 7, 16 times empty
    assert data.frame["race"].value_counts().to_dict() == {"White": 27211, "non-White": 8955}
    encoded = data.schema.encode(data.schema.raw(data.frame))
    assert encoded.shape == (36166, 25)
    assert encoded.min() == 0
    assert encoded.max() == 1
    numbers = [v for v, feature in enumerate(data.schema.features) if feature.merit]
    assert (encoded[:, data.schema.domain.start[numbers]].std(axis=0) > 0.05).all()  # no column is squashed by its tail
    assert np.isin(data.frame["debt-to-income"], [10, 25, 33, *range(36, 50), 55, 65]).all()
