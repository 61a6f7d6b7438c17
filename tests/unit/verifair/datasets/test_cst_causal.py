"""The shipped causal models: they can be read, they fit their tables, and those of the CST paper give its equations."""

from __future__ import annotations

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

NAMES = ("adult", "compas", "german", "law_school", "loan")
SHARED = Path(os.environ.get("VERIFAIR_DATA", ""))
PATHS = {"compas": SHARED / "tabular" / "compas_two_years.csv.gz", "law_school": SHARED / "tabular" / "law_school.csv.gz"}
needs_data = pytest.mark.skipif(not os.environ.get("VERIFAIR_DATA"), reason="VERIFAIR_DATA is not set")


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
    fitted = model("loan").fit(pd.read_csv(SHARED / "cst" / "LoanApplication_v2.csv.gz"))
    assert np.round(coefficients(fitted, "AnnualSalary"), 3).tolist() == [100655.288, -15796.351]
    assert coefficients(fitted, "AccountBalance") == pytest.approx([121.086, 0.298901, -1182.823], abs=5e-4)
    assert round(coefficients(fitted, "AccountBalance")[1], 6) == 0.298901


@needs_data
@pytest.mark.parametrize(("do", "file"), [({"nonwhite": 0}, "doWhite"), ({"female": 0}, "doMale")])
def test_the_authors_law_school_counterfactuals(do: dict[str, int], file: str) -> None:
    """Equal in every row that the intervention reaches. Others the authors' clipping reaches too: UGPA above 4."""
    frame = table("law_school")
    ours = model("law_school").fit(frame).counterfactual(frame, do)
    theirs = pd.read_csv(SHARED / "cst" / f"cf_LawSchool_lev3_{file}.csv.gz")
    for column in ("UGPA", "LSAT"):
        equal = ours[column].to_numpy() == theirs[f"scf_{column}"].to_numpy()
        reached = (frame[next(iter(do))] == 1).to_numpy()
        assert equal[reached].all()
        assert (frame["UGPA"][~equal & ~reached] > 4).all()


@needs_data
def test_the_authors_loan_counterfactuals() -> None:
    """Salaries to the cent; balances within a cent, and to the cent once residuals are rounded to cents, as the authors do."""
    frame = pd.read_csv(SHARED / "cst" / "LoanApplication_v2.csv.gz")
    fitted = model("loan").fit(frame)
    ours = fitted.counterfactual(frame, {"Gender": 0})
    theirs = pd.read_csv(SHARED / "cst" / "cf_LoanApplication_v2.csv.gz")
    assert (ours["AnnualSalary"] == theirs["AnnualSalary"]).all()
    assert (ours["AccountBalance"] - theirs["AccountBalance"]).abs().max() < 0.01001
    mechanism, parents = fitted.fitted["AccountBalance"], ["AnnualSalary", "Gender"]
    draws = Draws.of(frame.index, node="AccountBalance", seed=0)
    noise = np.round(mechanism.noise(frame[parents], frame["AccountBalance"], draws), 2)
    assert (np.round(mechanism.value(ours[parents], noise), 2) == theirs["AccountBalance"]).all()
