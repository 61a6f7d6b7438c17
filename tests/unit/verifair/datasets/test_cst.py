"""The CST paper's data: the loan applicants' equations, the law school table, and the shipped causal models."""

import os
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from verifair import datasets
from verifair.errors import DataError
from verifair.schema.schema import Schema
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.draws import Draws
from verifair.systems.cst.causal.mechanisms import LinearMechanism
from verifair.systems.cst.causal.model import CausalModel

LOAN = datasets.loan(n=100_000, seed=3)
DATA = Path(os.environ.get("VERIFAIR_DATA", ""))
needs_data = pytest.mark.skipif(not os.environ.get("VERIFAIR_DATA"), reason="VERIFAIR_DATA is not set")


def test_loan_columns_and_sizes() -> None:
    data = datasets.load("loan")
    assert list(data.frame.columns) == ["LoanApproval", "AnnualSalary", "AccountBalance", "Gender"]
    assert len(data.frame) + data.dropped["negative salary or balance"] == 5_000
    assert 0 < data.dropped["negative salary or balance"] < 25  # the authors drop 7
    assert (data.frame[["AnnualSalary", "AccountBalance"]] >= 0).all(axis=None)
    assert data.schema.raw(data.frame).shape == (len(data.frame), 3)
    assert data.schema.labels(data.frame).tolist() == (data.frame["LoanApproval"] == 1).astype(int).tolist()


def test_loan_follows_the_equations() -> None:
    frame = LOAN.frame
    women, men = frame[frame["Gender"] == 1], frame[frame["Gender"] == 0]
    assert abs(len(women) / len(frame) - 0.45) < 0.006  # three standard errors are 0.005
    assert (men["AnnualSalary"] % 10_000 == 0).all()
    assert (women["AnnualSalary"] % 500 == 0).all()
    assert men["AnnualSalary"].mean() == pytest.approx(100_000, rel=0.01)
    assert women["AnnualSalary"].mean() == pytest.approx(100_000 - 1_500 * 10, rel=0.01)
    noise = men["AccountBalance"] - 0.3 * men["AnnualSalary"]
    assert noise.std() == pytest.approx(2_500, rel=0.02)
    assert abs(noise.mean()) < 60
    penalty = 0.3 * women["AnnualSalary"] - women["AccountBalance"]
    assert penalty.mean() == pytest.approx(300 * 4, rel=0.05)  # the mean of chi2(4) is 4, its variance 8
    assert penalty.var() == pytest.approx(300**2 * 8 + 2_500**2, rel=0.03)
    granted = frame["AnnualSalary"] + 5 * frame["AccountBalance"] > 225_000
    assert ((frame["LoanApproval"] == 1) == granted).all()


def test_loan_refusals_are_those_of_the_paper() -> None:
    refused = (LOAN.frame["LoanApproval"] == -1).groupby(LOAN.frame["Gender"]).mean()
    assert refused[1] == pytest.approx(0.609, abs=0.015)
    assert refused[0] == pytest.approx(0.392, abs=0.03)


def test_the_seed_is_the_data() -> None:
    assert datasets.loan(n=60, seed=1).frame.equals(datasets.loan(n=60, seed=1).frame)
    assert not datasets.loan(n=60, seed=1).frame.equals(datasets.loan(n=60, seed=2).frame)
    with pytest.raises(DataError, match="loan: n = 0, expected at least one applicant"):
        datasets.loan(n=0)


AUTHORS = "race,sex,LSAT,UGPA,ZFYA,race_nonwhite\nWhite,Female,39.0,3.1,-0.98,White\nBlack,Male,30.5,4.2,0.1,NonWhite\n"
KUSNER = "row,race,sex,LSAT,UGPA,region_first\n0,White,1,39.0,3.1,GL\n1,Black,2,30.5,4.2,MS\n"


@pytest.mark.parametrize("table", [AUTHORS, KUSNER])
def test_law_school_from_either_file(tmp_path: Path, table: str) -> None:
    path = tmp_path / "law.csv"
    path.write_text(table)
    frame = datasets.load("law_school", path).frame
    assert frame["female"].tolist() == [1, 0]
    assert frame["nonwhite"].tolist() == [0, 1]
    assert frame["LSAT"].tolist() == [39, 30]  # half to even
    assert frame["LSAT-unrounded"].tolist() == [39, 30.5]
    assert frame["admitted"].tolist() == ["no", "no"]


def test_law_school_admits_at_the_threshold_on_the_unrounded_score(tmp_path: Path) -> None:
    path = tmp_path / "law.csv"
    path.write_text("race,sex,LSAT,UGPA\nWhite,Male,46.0,4.0\nWhite,Male,46.0,3.9\nWhite,Male,45.5,4.2\n")
    frame = datasets.law_school(path).frame
    assert frame["admitted"].tolist() == ["yes", "no", "no"]  # 20.8 exactly, 20.74, 20.72: of the rounded 46 it would be 20.92
    assert frame["LSAT"].tolist() == [46, 46, 46]


@pytest.mark.parametrize(("row", "said"), [
    ("White,Other,40,3.0", "row 0 has sex Other, expected Female or Male, or 1 (female) or 2 (male)"),
    (",Male,40,3.0", "row 0 has no race"),
    ("White,Male,400,3.0", "row 0 has LSAT 400, expected a number from 10 to 48; 1 such rows"),
    ("White,Male,40,", "row 0 has UGPA nan, expected a number from 0 to 4.2"),
])
def test_law_school_says_what_is_wrong(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "law.csv"
    path.write_text(f"race,sex,LSAT,UGPA\n{row}\n")
    with pytest.raises(DataError) as error:
        datasets.law_school(path)
    assert said in str(error.value)
    assert "law.csv" in str(error.value)


def test_law_school_needs_its_path() -> None:
    with pytest.raises(DataError, match="law_school is not shipped, for it carries no licence: pass the path"):
        datasets.load("law_school")


@needs_data
def test_the_real_law_school() -> None:
    data = datasets.law_school(DATA / "tabular" / "law_school.csv.gz")
    frame = data.frame
    assert len(frame) == 21_790
    assert round(100 * frame["female"].mean(), 1) == 43.8
    assert round(100 * frame["nonwhite"].mean(), 1) == 16.1
    admitted = pd.Series(frame["admitted"] == "yes")
    shares = [admitted.groupby(frame[name]).mean() for name in ("female", "nonwhite")]
    assert np.round(100 * shares[0], 2).tolist() == [2.65, 1.89]  # the paper prints 1.88, cut off
    assert np.round(100 * shares[1], 2).tolist() == [2.58, 0.94]
    other = datasets.law_school(DATA / "tabular" / "law_school_kusner.csv.gz").frame
    assert len(other) == 21_791
    assert other["admitted"].value_counts()["yes"] == admitted.sum() == 505


# The shipped causal models: they can be read, they fit their tables, and those of the CST paper give its equations.


NAMES = ("adult", "compas", "german", "law_school", "loan")
PATHS = {"compas": DATA / "tabular" / "compas_two_years.csv.gz", "law_school": DATA / "tabular" / "law_school.csv.gz"}


def model(name: str) -> CausalModel:
    return CausalModel(nodes=causal_file.load(datasets.causal_path(name)).nodes)


def table(name: str) -> pd.DataFrame:
    return datasets.load(name, PATHS.get(name)).frame


def coefficients(fitted: CausalModel, node: str) -> list[float]:
    mechanism = fitted.fitted[node]
    assert isinstance(mechanism, LinearMechanism)
    return [round(float(one), 6) for one in mechanism.coefficients.estimates]


@pytest.mark.parametrize("name", NAMES)
def test_protected_attributes_are_roots_that_reach_something(name: str) -> None:
    file, found = causal_file.load(datasets.causal_path(name)), model(name)
    assert nx.is_directed_acyclic_graph(found.graph)
    assert file.situation.do
    for attribute in file.situation.do:
        assert attribute in found.roots
        assert found.descendants(attribute)
    assert set(file.situation.attributes or ()) <= set(found.by_name) - set(file.situation.do)


@pytest.mark.parametrize("name", ["adult", "compas", "german"])
def test_nodes_are_features_of_the_schema_whose_ranges_they_keep(name: str) -> None:
    file = causal_file.load(datasets.causal_path(name))
    schema = Schema.load(datasets.causal_path(name).with_name(f"{name}.toml"))
    if name != "compas":  # nobody decides there
        assert file.schema_path == datasets.causal_path(name).with_name(f"{name}.toml").resolve()
    for node in file.nodes:
        feature = schema[node.name]
        if node.parents and feature.numeric and node.range is not None:
            assert feature.range == node.range
        if node.parents and feature.kind == "integer" and node.range is not None:
            assert node.decimals == 0
    missing = {feature.name for feature in schema.features} - {node.name for node in file.nodes}
    assert missing == ({"fnlwgt"} if name == "adult" else set())


@pytest.mark.parametrize("name", ["loan", "german"])
def test_shipped_tables_have_counterfactuals_of_legal_values(name: str) -> None:
    """Of the network's domain; and nobody else than the complainants changes."""
    file, data = causal_file.load(datasets.causal_path(name)), datasets.load(name)
    fitted = model(name).fit(data.frame)
    for attribute, value in (file.situation.do or {}).items():
        new = fitted.counterfactual(data.frame, {attribute: value})
        others = (data.frame[attribute] == value).to_numpy()
        pd.testing.assert_frame_equal(new[others], data.frame[others], check_dtype=False)
        changed = [column for column in new if (new[column].to_numpy() != data.frame[column].to_numpy()).any()]
        assert set(changed) <= {attribute, *fitted.descendants(attribute)}
        assert len(changed) > 1
        if name == "german":
            assert data.schema.raw(new).shape == (1000, 20)  # raises for anything that the schema does not allow


def test_what_has_no_causal_model() -> None:
    with pytest.raises(
        DataError, match="no causal model is shipped for 'hmda'; there is one for adult, compas, german, law_school, loan"
    ):
        datasets.causal_path("hmda")


@needs_data
def test_the_equations_of_the_law_school() -> None:
    fitted = model("law_school").fit(table("law_school"))
    assert coefficients(fitted, "UGPA") == [3.207057, 0.125166, -0.218987]
    assert coefficients(fitted, "LSAT") == [37.784813, -0.608711, -4.638558]


@needs_data
def test_the_equations_of_the_authors_loan_table() -> None:
    fitted = model("loan").fit(pd.read_csv(DATA / "cst" / "LoanApplication_v2.csv.gz"))
    assert np.round(coefficients(fitted, "AnnualSalary"), 3).tolist() == [100655.288, -15796.351]
    assert coefficients(fitted, "AccountBalance") == pytest.approx([121.086, 0.298901, -1182.823], abs=5e-4)
    assert round(coefficients(fitted, "AccountBalance")[1], 6) == 0.298901


@needs_data
@pytest.mark.parametrize(("do", "file"), [({"nonwhite": 0}, "doWhite"), ({"female": 0}, "doMale")])
def test_the_authors_law_school_counterfactuals(do: dict[str, int], file: str) -> None:
    """Equal in every row that the intervention reaches. Others the authors' clipping reaches too: UGPA above 4."""
    frame = table("law_school")
    ours = model("law_school").fit(frame).counterfactual(frame, do)
    theirs = pd.read_csv(DATA / "cst" / f"cf_LawSchool_lev3_{file}.csv.gz")
    for column in ("UGPA", "LSAT"):
        equal = ours[column].to_numpy() == theirs[f"scf_{column}"].to_numpy()
        reached = (frame[next(iter(do))] == 1).to_numpy()
        assert equal[reached].all()
        assert (frame["UGPA"][~equal & ~reached] > 4).all()


@needs_data
def test_the_authors_loan_counterfactuals() -> None:
    """Salaries to the cent; balances within a cent, and to the cent once residuals are rounded to cents, as the authors do."""
    frame = pd.read_csv(DATA / "cst" / "LoanApplication_v2.csv.gz")
    fitted = model("loan").fit(frame)
    ours = fitted.counterfactual(frame, {"Gender": 0})
    theirs = pd.read_csv(DATA / "cst" / "cf_LoanApplication_v2.csv.gz")
    assert (ours["AnnualSalary"] == theirs["AnnualSalary"]).all()
    assert (ours["AccountBalance"] - theirs["AccountBalance"]).abs().max() < 0.01001
    mechanism, parents = fitted.fitted["AccountBalance"], ["AnnualSalary", "Gender"]
    draws = Draws.of(frame.index, node="AccountBalance", seed=0)
    noise = np.round(mechanism.noise(frame[parents], frame["AccountBalance"], draws), 2)
    assert (np.round(mechanism.value(ours[parents], noise), 2) == theirs["AccountBalance"]).all()
