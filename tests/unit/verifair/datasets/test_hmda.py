"""The mortgage register: bands, codes, clipping, what is left out and why; and the real extract where it is there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from verifair import datasets
from verifair.errors import DataError

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
    ))  # fmt: skip
    assert dict(data.dropped) == {
        "race not given": 2, "lender exempt from reporting": 1, "no debt-to-income": 1, "no loan-to-value": 1,
        "no property-value": 1, "no age": 1, "no purpose": 1,
    }  # fmt: skip
    assert len(data.frame) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (GOOD.replace("<20%", "<18%"), r"column debt_to_income_ratio: row 0 holds '<18%', expected a number or one of <20%, 20%"),
        (GOOD.replace(",5.0,", ",9,"), r"column applicant_race-1: row 0 holds '9', expected one of 5, 1, 2"),
        (GOOD.replace("185000", "a lot"), r"column property_value: row 0 holds 'a lot', expected a number; correct the file"),
        ("2" + GOOD[1:], r"column approved: row 0 holds '2', expected one of 1, 0"),
    ],
)
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
