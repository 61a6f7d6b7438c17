"""German Credit, Adult, COMPAS, HMDA, law school, drawn applicants: from the original files to frames in their schema's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pandas as pd

from encoders.arrays import Integers
from verifair.datasets.balanced_adult import balanced_frame
from verifair.datasets.hmda_table import hmda_frame
from verifair.datasets.law_school_table import law_school_frame, law_school_schema
from verifair.datasets.loan_table import loan_frame, loan_schema
from verifair.datasets.synthetic_table import synthetic_frame, synthetic_schema
from verifair.datasets.table import read_table
from verifair.errors import DataError
from verifair.schema.feature import Feature
from verifair.schema.schema import Schema

DATA = files("verifair.datasets") / "data"


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """A preprocessed table with its schema and the paper's 80/20 split (stratified by label where each has two rows, seed 0).

    dropped: reason -> number of rows of the file that were left out.
    """

    name: str
    frame: pd.DataFrame
    schema: Schema
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The label column."""
        return str(self.schema.label)

    @property
    def train(self) -> pd.DataFrame:
        """Rows to train on, renumbered."""
        return self.frame.iloc[self.split[0]].reset_index(drop=True)

    @property
    def test(self) -> pd.DataFrame:
        """Rows held out, renumbered."""
        return self.frame.iloc[self.split[1]].reset_index(drop=True)

    @cached_property
    def split(self) -> tuple[Integers, Integers]:
        """Return positions in `frame` of training rows, and of held-out rows. Raises DataError for a table of a single row."""
        from sklearn.model_selection import train_test_split  # imported here: it takes half a second

        rows, labels = np.arange(len(self.frame)), self.schema.labels(self.frame)
        if len(rows) < 2:
            raise DataError(f"{self.name}: has one row, of which no fifth can be held out; give a table of more people")
        class_counts = np.unique(labels, return_counts=True)[1]
        stratified = class_counts.min() > 1 and len(class_counts) <= len(rows) / 5  # every label on both sides
        train, test = train_test_split(rows, test_size=0.2, random_state=0, stratify=labels if stratified else None)
        return np.sort(train), np.sort(test)


def named(text: str) -> Dataset | None:
    """Return the dataset that --data names ("german", "compas=compas-scores-two-years.csv"); None for the path of a file."""
    name, _, path = text.partition("=")
    return load(name, path or None) if name in (*SHIPPED, *UNSHIPPED) else None


def load(name: str, path: str | Path | None = None) -> Dataset:
    """Load a dataset by name: one of SHIPPED, or compas, hmda and law_school, which need the path of their file."""
    if name in UNSHIPPED:
        reason, reader = UNSHIPPED[name]
        if path is None:
            raise DataError(f"{name} is not shipped, {reason}; in a command: --data {name}=FILE")
        return reader(path)
    if name not in SHIPPED:
        raise DataError(f"there is no dataset {name!r}; known are {', '.join([*SHIPPED, *UNSHIPPED])}")
    if path is not None:
        raise DataError(f"{name} is shipped and takes no path, found {path}; drop it, or read your own file with read_table")
    return SHIPPED[name]()


def causal_path(name: str) -> Path:
    """Return the path of a dataset's shipped causal file: model, comparison and decider, all of them assumptions."""
    return _shipped(name, ".causal.toml", "causal model")


def audit_path(name: str) -> Path:
    """Return the path of the shipped audit file of a dataset (german or adult)."""
    return _shipped(name, ".audit.toml", "audit file")


def network_path(name: str) -> Path:
    """Return the path of the shipped network of a dataset (german or adult)."""
    return _shipped(name, ".onnx", "network")


def _shipped(name: str, suffix: str, kind: str) -> Path:
    """Return the path of a shipped file. Raises DataError if there is no such file."""
    resource = DATA / f"{name}{suffix}"
    if not resource.is_file():
        names = sorted(file.name.removesuffix(suffix) for file in DATA.iterdir() if file.name.endswith(suffix))
        raise DataError(f"no {kind} is shipped for {name!r}; there is one for {', '.join(names)}")
    with as_file(resource) as path:
        return path


def _schema(name: str) -> Schema:
    return Schema.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"), name=f"{name}.toml")


ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
    "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)


def adult() -> Dataset:
    """Read UCI Adult (Becker and Kohavi, CC BY 4.0): both files, rows with missing values dropped, husband and wife = Spouse."""
    parts = []
    for name, lines_above in (("adult.data.gz", 0), ("adult.test.gz", 1)):
        with (DATA / name).open("rb") as file:
            part = pd.read_csv(
                file, compression="gzip", names=list(ADULT_COLUMNS), skiprows=lines_above, skipinitialspace=True, na_values=["?"],
                keep_default_na=False,
            )
        parts.append(part)
    frame = pd.concat(parts, ignore_index=True).dropna().reset_index(drop=True)
    frame["income"] = frame["income"].str.rstrip(".")
    frame["relationship"] = frame["relationship"].replace({"Husband": "Spouse", "Wife": "Spouse"})
    return Dataset(name="adult", frame=frame, schema=_schema("adult"))


def adult_balanced(seed: int = 0) -> Dataset:
    """Draw 4,800 rows of Adult, Black and White people, labels balanced: what the PBA paper's numbers fit. (`balanced_adult`)"""
    dataset = adult()
    return Dataset(name="adult-balanced", frame=balanced_frame(dataset.frame, seed), schema=dataset.schema)


GERMAN_COLUMNS = (
    "status", "duration", "credit-history", "purpose", "credit-amount", "savings", "employment", "installment-rate",
    "personal-status", "other-debtors", "residence-since", "property", "age", "installment-plans", "housing", "existing-credits",
    "job", "people-liable", "telephone", "foreign-worker", "credit",
)
GERMAN_CODES = {
    "A11": "< 0 DM", "A12": "0-200 DM", "A13": ">= 200 DM", "A14": "no account",
    "A30": "no credits", "A31": "all paid here", "A32": "paid till now", "A33": "delay", "A34": "critical",
    "A40": "new car", "A41": "used car", "A42": "furniture", "A43": "television", "A44": "appliances", "A45": "repairs",
    "A46": "education", "A47": "vacation", "A48": "retraining", "A49": "business", "A410": "others",
    "A61": "< 100 DM", "A62": "100-500 DM", "A63": "500-1000 DM", "A64": ">= 1000 DM", "A65": "unknown",
    "A71": "unemployed", "A72": "< 1 year", "A73": "1-4 years", "A74": "4-7 years", "A75": ">= 7 years",
    "A101": "no other", "A102": "co-applicant", "A103": "guarantor",
    "A121": "real estate", "A122": "life insurance", "A123": "car or other", "A124": "no property",
    "A141": "bank", "A142": "stores", "A143": "no plans",
    "A151": "rent", "A152": "own", "A153": "for free",
    "A171": "unskilled non-resident", "A172": "unskilled resident", "A173": "skilled", "A174": "highly qualified",
    "A191": "no", "A192": "yes", "A201": "yes", "A202": "no",
}
FEMALE = {"A92", "A95"}


def german() -> Dataset:
    """Read UCI Statlog German Credit (Hofmann, CC BY 4.0). personal-status becomes sex, age the group Junior (<= 25) or Senior."""
    years = german_years()
    return Dataset(
        name="german", frame=years.frame.assign(age=np.where(years.frame["age"] <= 25, "Junior", "Senior")),
        schema=_schema("german"),
    )


def german_years() -> Dataset:
    """Read the same with age in years, as the CEC paper has it: one of its financial features, and no protected group."""
    with (DATA / "german.data.gz").open("rb") as file:
        coded = pd.read_csv(file, compression="gzip", sep=" ", names=list(GERMAN_COLUMNS))
    status = coded.pop("personal-status")
    words = {str(name): column.map(GERMAN_CODES) for name, column in coded.select_dtypes(exclude="number").items()}
    frame = coded.assign(
        **words, credit=coded["credit"].map({1: "good", 2: "bad"}), sex=np.where(status.isin(FEMALE), "Female", "Male")
    )
    groups = _schema("german")
    years = Feature.model_validate({"name": "age", "kind": "integer", "range": [19, 75], "scale": "minmax", "unit": 1,
                                    "unit_name": "years", "merit": True, "change": "increase"})
    features = tuple(years if feature.name == "age" else feature for feature in groups.features)
    fields = {name: getattr(groups, name) for name in Schema.model_fields}
    return Dataset(name="german-years", frame=frame, schema=Schema.model_validate({**fields, "features": features}))


COMPAS_COLUMNS = {
    "age": "age", "sex": "sex", "race": "race", "juv_fel_count": "juvenile-felonies", "juv_misd_count": "juvenile-misdemeanors",
    "juv_other_count": "juvenile-other", "priors_count": "priors", "c_charge_degree": "charge-degree",
    "two_year_recid": "recidivist",
}


def compas(path: str | Path) -> Dataset:
    """Read ProPublica's compas-scores-two-years.csv with ProPublica's own filters; class 1 is *not* recidivating within two years.

    Kept: charged within 30 days of the screening, a case that was found, no traffic offence, and a score (6,172 of 7,214 rows).
    """
    filters = ["days_b_screening_arrest", "is_recid", "score_text"]
    frame = read_table(path, columns=[*COMPAS_COLUMNS, *filters])  # the original file repeats two column names
    kept = frame[
        pd.to_numeric(frame["days_b_screening_arrest"], errors="coerce").between(-30, 30)
        & (frame["is_recid"] != -1)
        & (frame["c_charge_degree"] != "O")
        & (frame["score_text"] != "N/A")
    ]
    tidy = kept[list(COMPAS_COLUMNS)].rename(columns=COMPAS_COLUMNS).reset_index(drop=True)
    tidy["recidivist"] = tidy["recidivist"].map({0: "no", 1: "yes"})
    tidy["charge-degree"] = tidy["charge-degree"].map({"F": "felony", "M": "misdemeanor"})
    return Dataset(name="compas", frame=tidy, schema=_schema("compas"))


def hmda(path: str | Path) -> Dataset:
    """Read an extract of the Home Mortgage Disclosure Act's register; class 1 is an approved loan. (See `hmda_table`)"""
    schema = _schema("hmda")
    frame, dropped = hmda_frame(path, schema)
    return Dataset(name="hmda", frame=frame, schema=schema, dropped=dropped)


def synthetic(n: int = 10_000, seed: int = 0) -> Dataset:
    """Draw the CEC paper's synthetic applicants, whose group is the column `group`. (`verifair.datasets.synthetic_table`)"""
    return Dataset(name="synthetic", frame=synthetic_frame(n, seed), schema=synthetic_schema())


def loan(n: int = 5_000, seed: int = 0) -> Dataset:
    """Draw the CST paper's loan applicants by its equations; Gender 1 = female. (`verifair.datasets.loan_table`)"""
    frame, dropped = loan_frame(n, seed)
    return Dataset(name="loan", frame=frame, schema=loan_schema(), dropped=dropped)


def law_school(path: str | Path) -> Dataset:
    """Read the LSAC's survey of law school applicants, as in the CST paper. (`verifair.datasets.law_school_table`)"""
    return Dataset(name="law_school", frame=law_school_frame(path), schema=law_school_schema())


SHIPPED: dict[str, Callable[[], Dataset]] = {
    "german": german, "german-years": german_years, "adult": adult, "adult-balanced": adult_balanced, "synthetic": synthetic,
    "loan": loan,
}
UNSHIPPED: dict[str, tuple[str, Callable[[str | Path], Dataset]]] = {
    "compas": (
        "for it carries no licence: pass the path of ProPublica's compas-scores-two-years.csv "
        "(github.com/propublica/compas-analysis)",
        compas,
    ),
    "hmda": (
        "for it is large: pass the path of an extract of the register as CSV (ffiec.cfpb.gov/data-browser) with the columns "
        "approved, loan_amount, income, debt_to_income_ratio, loan_to_value_ratio, property_value and the others of "
        "verifair.datasets.hmda_table",
        hmda,
    ),
    "law_school": (
        "for it carries no licence: pass the path of the law school table of Kusner et al. 2017, law_data.csv "
        "(github.com/mkusner/counterfactual-fairness), or of one with the columns race, sex, LSAT and UGPA",
        law_school,
    ),
}
