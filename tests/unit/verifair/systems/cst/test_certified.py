"""Certified counterfactual decisions: the shipped networks end to end, every tampering rejected, refusals with their remedy."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from typer.testing import CliRunner

import verifair as vf
from encoders.network import Layer, Network
from solvers.outcome import Budget
from tests.builders import categorical, integer, network_of, real, schema_of
from tests.tree_models import save
from verifair import datasets
from verifair.checker.certificates.certificate import Certificate, Proof
from verifair.checker.certificates.envelope import Trust
from verifair.checker.certificates.statement import (
    CounterfactualQuery,
    CounterfactualStatement,
    Equation,
    RowsQuery,
    RowStatement,
    Term,
)
from verifair.checker.certificates.tree import Tree
from verifair.checker.kinds.counterfactuals import covers
from verifair.cli.main import app
from verifair.errors import DataError, QueryError
from verifair.systems.cst.causal.categorical import Categorical
from verifair.systems.cst.causal.mechanisms import Additive, Linear, LogLinear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import LinearRule
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.result import CertifiedDecisions
from verifair.systems.cst.robustness import certified
from verifair.systems.cst.robustness.certified import CertifiedCounterfactuals, certify_counterfactuals
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.robustness.sensitivity import sensitivity
from verifair.systems.cst.tables import certified_lines
from verifair.systems.results.files import json_text

SCHEMA = schema_of(
    real("income", 0, 10),
    integer("years", 0, 9),
    categorical("sex", "f", "m", protected=True),
)


def network(income: float, years: float, sex: float, bias: float) -> Network:
    """logit = income * ... + bias, as one linear layer."""
    return network_of(([[income, years, sex]], [bias]))


def model(sex_income: float = 1.0, income_years: float = 0.5, **of_income: Any) -> CausalModel:
    """sex -> income -> years."""
    income = Node(name="income", parents=("sex",), mechanism=Linear(coefficients={"sex": {"m": sex_income}}), **of_income)
    years = Node(name="years", parents=("income",), mechanism=Linear(coefficients={"income": income_years}))
    return CausalModel(nodes=(Node(name="sex"), income, years))


FRAME = pd.DataFrame({"income": [2.0, 5.0, 6.0, 9.5, 4.0], "years": [1, 4, 5, 8, 2], "sex": ["f", "f", "f", "f", "m"]})
ERRORS = {"income": {"sex = m": 0.25}, "years": {"income": 0.125}}
NETWORK = network(1.0, 0.0, 0.0, -6.0)
"""Positive where income > 6."""


def certify(**more: Any) -> CertifiedCounterfactuals:
    given = {"causal_model": model(), "model": NETWORK, "schema": SCHEMA, "frame": FRAME, "do": {"sex": "m"}, "errors": ERRORS}
    return certify_counterfactuals(**{**given, **more})


def test_a_threshold_is_decided_as_by_hand() -> None:
    """Income becomes 1 -+ 0.49 more: 2 stays below 6, 5 may or may not pass it, 6 does, 9.5 is above it already."""
    found = certify()
    assert found.rows.tolist() == [0, 1, 2, 3]
    assert found.status.tolist() == ["stays", "depends", "flips", "stays"]
    assert found.factual.tolist() == [0, 0, 0, 1]
    assert found.clipped.tolist() == [False, False, False, True]
    assert found.counts == {"flips": 1, "stays": 2, "depends": 1, "unknown": 0}
    why = found.dependences[1]
    assert why.classes == (0, 1)
    assert why.counterfactuals[0]["income"] == 6.0
    assert why.counterfactuals[1]["sex"] == "m"
    assert found.certificate is not None
    assert found.certificate.trust is Trust.CHECKED
    assert vf.check(found.certificate, model=NETWORK, schema=SCHEMA).accepted
    assert json.loads(json_text(CertifiedDecisions.of(found)))["counts"]["depends"] == 1
    columns = ["row", "factual", "estimated", "status", "reason", "clipped", "cells", "otherwise_low", "otherwise_high"]
    assert found.table().columns.tolist() == columns
    assert found.otherwise.tolist() == [[0, 0], [0, 1], [1, 1], [0, 0]]  # no category is on the way


def test_the_effect_passes_through_the_node_between() -> None:
    """years + 0.5 * 1 = 1.5 rounds half to even to 2; in floats and at a tie the exact box decides."""
    exact = {"income": 0, "years": 0}
    above = certify(model=network(0.0, 1.0, 0.0, -1.5), errors=exact)
    assert above.status.tolist() == ["flips", "stays", "stays", "stays"]
    to_even = certify(model=network(0.0, 1.0, 0.0, -4.5), errors=exact)
    assert to_even.status.tolist() == ["stays", "stays", "stays", "stays"]  # 4 + 0.5 becomes 4, 5 + 0.5 becomes 6
    assert above.certificate is not None
    assert vf.check(above.certificate, model=network(0.0, 1.0, 0.0, -1.5), schema=SCHEMA).accepted


def test_ranges_of_nodes_are_kept() -> None:
    """Clipped to 6 nobody passes it; income = 9.5 falls to it, though its income rises."""
    found = certify(causal_model=model(range=(0.0, 6.0)))
    assert found.status.tolist() == ["stays", "stays", "stays", "flips"]
    assert found.certificate is not None
    assert vf.check(found.certificate, model=NETWORK, schema=SCHEMA).accepted


def test_attributes_that_the_network_does_not_take() -> None:
    schema = schema_of(*(feature.model_dump() for feature in SCHEMA.features[:2]))
    blind = network_of(([[1.0, 0.0]], [-6.0]))
    found = certify(schema=schema, model=blind)
    assert found.status.tolist() == ["stays", "depends", "flips", "stays"]
    assert found.certificate is not None
    assert found.certificate.query.also == {"sex": ("f", "m")}
    assert vf.check(found.certificate, model=blind, schema=schema).accepted
    asked = found.certificate.proofs[0].statement
    assert isinstance(asked, CounterfactualStatement)
    other = replace(asked, also=(1.0,))
    assert not accepted(found.certificate, proofs=[replace_statement(found.certificate, 0, other)], network=blind, schema=schema)


def test_more_errors_make_more_depend_and_simultaneous_intervals_are_wider() -> None:
    wide, narrow = certify(level=0.999), certify(level=0.5)
    assert (narrow.status == "depends").sum() <= (wide.status == "depends").sum()
    together = certify(simultaneous=True)
    assert (together.high - together.low > certify().high - certify().low).all()
    assert "Bonferroni" in together.box
    assert certify(errors={"income": 0, "years": 0}).counts["depends"] == 0


def test_halving_the_coefficients_box_decides_what_intervals_cannot() -> None:
    """income and years move against each other: income + years changes by (1 - 1) d = 0, but intervals alone say otherwise."""
    opposed = certify(
        causal_model=model(sex_income=1.0, income_years=-1.0), model=network(1.0, 1.0, 0.0, -2.0), schema=REAL, frame=REALS,
        errors={"income": {"sex = m": 0.25}, "years": 0}, cells=64,
    )
    assert opposed.status.tolist() == ["stays", "stays"]
    assert opposed.cells.max() > 1
    assert opposed.certificate is not None
    assert vf.check(opposed.certificate, model=network(1.0, 1.0, 0.0, -2.0), schema=REAL).accepted
    kept = [k for k, proof in enumerate(opposed.certificate.proofs) if proof.statement.cell]
    lost = [proof for k, proof in enumerate(opposed.certificate.proofs) if k != kept[3]]
    report = vf.check(replace(opposed.certificate, proofs=tuple(lost)), model=network(1.0, 1.0, 0.0, -2.0), schema=REAL)
    assert "leave out a part" in str(report.rejections[0])
    once = certify(
        causal_model=model(sex_income=1.0, income_years=-1.0), model=network(1.0, 1.0, 0.0, -2.0), schema=REAL, frame=REALS,
        errors={"income": {"sex = m": 0.25}, "years": 0}, cells=1,
    )
    assert once.reasons == {"relaxation-too-weak": 2}


REAL = schema_of(*({**f.model_dump(), "kind": "real"} if f.name == "years" else f.model_dump() for f in SCHEMA.features))
REALS = pd.DataFrame({"income": [0.0, 0.0, 4.0], "years": [2.2, 1.7, 2.0], "sex": ["f", "f", "m"]})


# Tampering

FOUND = certify()
CERTIFICATE = FOUND.certificate


def replace_statement(given: Certificate, k: int, statement: CounterfactualStatement) -> Proof:
    return Proof(statement=statement, evidence=given.proofs[k].evidence)


def accepted(given: Certificate | None, *, network: Network = NETWORK, schema: vf.Schema = SCHEMA, **changes: Any) -> bool:
    assert given is not None
    if "proofs" in changes:
        changes["proofs"] = (*changes["proofs"], *given.proofs[len(changes["proofs"]) :])
    return vf.check(replace(given, **changes), model=network, schema=schema).accepted


def tampered(change: Callable[[CounterfactualStatement], CounterfactualStatement], goal: str = "counterfactual") -> list[str]:
    """Rejections of the certificate with the first statement of that goal changed."""
    assert CERTIFICATE is not None
    proofs = list(CERTIFICATE.proofs)
    k = next(k for k, proof in enumerate(proofs) if proof.statement.goal == goal)
    statement = proofs[k].statement
    assert isinstance(statement, CounterfactualStatement)
    proofs[k] = Proof(statement=change(statement), evidence=proofs[k].evidence)
    return [str(one) for one in vf.check(replace(CERTIFICATE, proofs=tuple(proofs)), model=NETWORK, schema=SCHEMA).rejections]


def shrunk(one: CounterfactualStatement) -> CounterfactualStatement:
    return replace(one, upper=(one.upper[0] - 1e-6, *one.upper[1:]))


STATEMENTS: list[tuple[Callable[[CounterfactualStatement], CounterfactualStatement], str, str]] = [
    (shrunk, "counterfactual", "but the equations reach"),
    (lambda one: replace(one, lower=(one.lower[0] + 1e-6, *one.lower[1:])), "counterfactual", "but the equations reach"),
    (lambda one: replace(one, upper=(20.0, *one.upper[1:])), "counterfactual", "outside the declared domain"),
    (lambda one: replace(one, lower=one.upper, upper=one.lower), "counterfactual", "is empty"),
    (lambda one: replace(one, lower=()), "counterfactual", "has 0 and 3 ends"),
    (lambda one: replace(one, classes=(1, 0)), "counterfactual", "proves its goal"),
    (lambda one: replace(one, classes=(1, 1)), "counterfactual", "no two classes"),
    (lambda one: replace(one, classes=(1, 0)), "factual", "the claim is false"),
    (lambda one: replace(one, cell=((0.9, 1.1), (0.255, 0.745))), "counterfactual", "leave out a part"),
    (lambda one: replace(one, cell=((0.0, 2.0),)), "counterfactual", "leave out a part"),
    (lambda one: replace(one, row=(3.0, *one.row[1:])), "counterfactual", "needs one decision on itself"),
    (lambda one: replace(one, row=(3.0, *one.row[1:])), "factual", "needs one decision on itself"),
    (lambda one: replace(one, also=(1.0,)), "factual", "needs one decision on itself"),
    (lambda one: replace(one, cell=((0.0, 1.0),)), "factual", "names a cell or a box"),
]


@pytest.mark.parametrize(("change", "goal", "why"), STATEMENTS)
def test_changed_statements_are_rejected(
    change: Callable[[CounterfactualStatement], CounterfactualStatement], goal: str, why: str
) -> None:
    rejections = tampered(change, goal)
    assert any(why in one for one in rejections), rejections


def query_with(**changes: Any) -> Certificate:
    assert CERTIFICATE is not None
    return replace(CERTIFICATE, query=replace(CERTIFICATE.query, **changes))


def term(parent: str, low: float, high: float, values: tuple[float, ...] | None = None) -> Term:
    return Term(parent=parent, low=low, high=high, values=values)


def equations(
    *, low: float = 0.5, high: float = 1.5, values: tuple[float, ...] | None = (0.0, 1.0), **more: Any
) -> tuple[Equation, ...]:
    first = Equation(node="income", terms=(term("sex", low, high, values),), **more)
    return first, Equation(node="years", terms=(term("income", 0.2, 0.8),))


@pytest.mark.parametrize(("changes", "why"), [
    ({"do": {"sex": 0.0}}, "but the equations reach"),
    ({"do": {"sex": 2.0}}, "outside the declared domain"),
    ({"do": {"age": 1.0}}, "nowhere described"),
    ({"do": {"income": 1.0}}, "something set"),
    ({"equations": equations(low=-3.0)}, "but the equations reach"),
    ({"equations": equations(values=None)}, "has 2 categories, 0 values"),
    ({"equations": equations(values=(0.0,))}, "has 2 categories, 1 values"),
    ({"equations": equations()[::-1]}, "neither set nor the node of an earlier equation"),
    ({"equations": (*equations(), equations()[0])}, "or has one before it"),
    ({"equations": (Equation(node="sex", terms=(term("sex", 0, 1, (0.0, 1.0)),)),)}, "something set"),
    ({"equations": equations(range=(5.0, 1.0))}, "range of 'income' is reversed"),
    ({"equations": equations(low=2.0, high=1.0)}, "interval of its parent 'sex' is reversed"),
    ({"also": {"income": ()}}, "a further attribute too"),
    ({"also": {"region": ()}}, "further attributes, the query 1"),
    ({"categories": ("region",)}, "category 'region' is nothing described"),
    ({"categories": ("sex",)}, "category 'sex' is nothing described, something set"),
    ({"categories": ("years",)}, "the equation of 'years' is about nothing described, something set"),
    ({"categories": ("years",), "equations": equations()[:1]}, "gives 0 categories, the query has 1"),
    ({"equations": equations(logarithmic=True)}, "but the equations reach"),
    ({"equations": equations(high=1e300, logarithmic=True)}, "beyond all numbers"),
])
def test_changed_equations_are_rejected(changes: dict[str, Any], why: str) -> None:
    report = vf.check(query_with(**changes), model=NETWORK, schema=SCHEMA)
    assert any(why in str(one) for one in report.rejections), report.rejections


def test_a_changed_coefficient_is_rejected_even_where_cells_are_changed_with_it() -> None:
    """All cells and the query say [-3, 1.5] for sex -> income, so that income 6 need not rise."""
    assert CERTIFICATE is not None
    own = CERTIFICATE.query
    assert isinstance(own, CounterfactualQuery)
    moved = (replace(own.equations[0], terms=(replace(own.equations[0].terms[0], low=-3.0),)), own.equations[1])
    cell = tuple((one.low, one.high) for equation in moved for one in equation.terms)
    proofs = tuple(
        replace(proof, statement=replace(proof.statement, cell=cell)) if proof.statement.goal == "counterfactual" else proof
        for proof in CERTIFICATE.proofs
    )
    report = vf.check(replace(CERTIFICATE, query=replace(own, equations=moved), proofs=proofs), model=NETWORK, schema=SCHEMA)
    assert any("but the equations reach" in str(one) for one in report.rejections)


def test_statements_of_other_certificates_do_not_belong() -> None:
    assert CERTIFICATE is not None
    alone = replace(CERTIFICATE, proofs=CERTIFICATE.proofs[1:2])
    assert "needs one decision on itself" in str(vf.check(alone, model=NETWORK, schema=SCHEMA).rejections[0])
    robust = RowStatement(goal="robust", row=(2.0, 1.0, 0.0), delta=0.0, classes=(0, 1))
    mixed = replace(CERTIFICATE, proofs=(*CERTIFICATE.proofs, Proof(statement=robust, evidence=Tree.leaf())))
    assert "does not belong" in str(vf.check(mixed, model=NETWORK, schema=SCHEMA).rejections[0])
    query = RowsQuery(kind="robustness", protected=(), delta=(0.0,))
    assert "does not belong" in str(vf.check(replace(CERTIFICATE, query=query), model=NETWORK, schema=SCHEMA).rejections[0])


JOBS = schema_of(
    real("income", 0, 10), categorical("job", "none", "office", "shop"), categorical("sex", "f", "m", protected=True),
)
JOB_NETWORK = network_of(([[1.0, 0.5, -2.0]], [-0.2]))
"""Positive where income + job / 2 > 0.2, for the job's number 0, 1, 2, and above 2.2 for sex = m."""


def jobs(**more: Any) -> CertifiedCounterfactuals:
    """sex -> job (a category) -> income <- sex."""
    rng = np.random.default_rng(2)
    sex = np.array(["f", "m"])[np.arange(60) % 2]
    job = np.array(["none", "office", "shop"])[np.minimum(rng.integers(0, 3, 60), np.where(sex == "m", 2, 1))]
    income = np.round(1.0 + (job == "office") + 2.0 * (job == "shop") + 0.5 * (sex == "m") + rng.random(60), 2)
    frame = pd.DataFrame({"sex": sex, "job": job, "income": income})
    causal = CausalModel(nodes=(
        Node(name="sex"), Node(name="job", parents=("sex",), mechanism=Categorical()),
        Node(name="income", parents=("job", "sex"), mechanism=more.pop("mechanism", Linear())),
    ))
    given = {"causal_model": causal, "model": JOB_NETWORK, "schema": JOBS, "frame": frame, "do": {"sex": "m"}}
    return certify_counterfactuals(**{**given, **more})


@pytest.mark.parametrize("mechanism", [Linear(), LogLinear()])
def test_categories_are_enumerated_and_each_is_proved(mechanism: Any) -> None:
    found = jobs(mechanism=mechanism)
    assert found.left.max() < 1e-9
    assert found.counts["unknown"] == 0
    assert {"stays", "depends"} <= set(found.status)
    low, high = found.otherwise.T
    assert (low <= high).all()
    assert ((low > 0.01) & (high < 0.99)).any()  # by category, each of them proved
    given = found.certificate
    assert given is not None
    report = vf.check(given, model=JOB_NETWORK, schema=JOBS)
    assert report.accepted, report.rejections
    assert "with given categories of 'job'" in report.statement
    assert "nothing about other rows and categories" in report.statement
    asked = Counter(one.statement.goal for one in given.proofs if isinstance(one.statement, CounterfactualStatement))
    decided = given.extent.proved + given.extent.refuted
    assert given.extent.proved <= asked["counterfactual"]
    assert decided > len(found.rows) > asked["factual"]  # each row has several counterfactuals, one for each choice of a job
    open_ = vf.check(replace(given, undecided=3), model=JOB_NETWORK, schema=JOBS)
    assert open_.missing == f"{decided:,} of {decided + 3:,} counterfactuals are decided; 3 undecided"


def test_what_is_said_of_categories_names_what_is_left_out_and_taken_as_given() -> None:
    found = jobs()
    told = CertifiedDecisions.of(found)
    left_out = "categories with together at most 1e-06 of the probability"
    given = "the equations, the intervals and the categories of counterfactuals with their probabilities"
    lines = " ".join(certified_lines(told))
    assert f"Taken as given are {given} (" in lines
    assert f"The decisions above leave out {left_out}." in lines
    said = {status: told.line_of(int(row)) or "" for row, status in zip(found.rows, found.status, strict=True)}
    assert said["stays"].endswith(f", but for {left_out}; taken as given are {given}.")
    assert "probabilities, taken as given, it is decided otherwise with a probability of 0." in said["depends"]
    alone = CertifiedDecisions.of(certify())
    assert "categories" not in f"{alone.line_of(0)} {alone.line_of(2)} {alone.given}"


def test_constraints_on_counterfactuals_are_said_with_what_is_proved() -> None:
    """No man has an income of 6 or more: coefficients that lead there prove nothing, and no decision depends on them."""
    allowed = schema_of(*SCHEMA.features, constraints=[{"never": {"sex": "m", "income": {"low": 6}}}])
    free, found = certify(), certify(schema=allowed)
    assert free.counts["depends"] > found.counts["depends"]
    for one, said in ((free, False), (found, True)):
        told = CertifiedDecisions.of(one)
        proved = int(np.flatnonzero(one.status == "stays")[0])
        words = [told.given, " ".join(told.trust()), " ".join(certified_lines(told)), told.line_of(int(one.rows[proved])) or ""]
        assert one.certificate is not None
        report = vf.check(one.certificate, model=NETWORK, schema=allowed if said else SCHEMA, partial=True)
        assert report.accepted
        assert [("the schema's constraints allow the counterfactual" in text) for text in (*words, report.statement)] == [said] * 5


def test_of_few_alternatives_nothing_is_said_of_the_row() -> None:
    few, all_ = jobs(alternatives=1), jobs()
    assert jobs(rows=[]).counts == {"flips": 0, "stays": 0, "depends": 0, "unknown": 0}
    assert few.reasons["categories"] == int((few.left > 1e-6).sum() - (few.status[few.left > 1e-6] == "depends").sum()) > 0
    assert (few.otherwise[:, 0] <= all_.otherwise[:, 1] + 1e-9).all()
    assert (few.otherwise[:, 1] >= all_.otherwise[:, 0] - 1e-9).all()


@pytest.mark.parametrize(("change", "why"), [
    (lambda one: replace(one, categories=(7.0,)), "the counterfactual's job = 7 lies outside"),
    (lambda one: replace(one, categories=(0.5,)), "the counterfactual's job = 0.5 lies outside"),
    (lambda one: replace(one, categories=()), "gives 0 categories, the query has 1"),
    (lambda one: replace(one, categories=((one.categories[0] + 1) % 3,)), "but the equations reach"),
])
def test_other_categories_are_rejected(change: Callable[[CounterfactualStatement], CounterfactualStatement], why: str) -> None:
    given = jobs().certificate
    assert given is not None
    own, other = given.proofs[:2]
    assert vf.check(replace(given, proofs=(own, other)), model=JOB_NETWORK, schema=JOBS).accepted
    assert isinstance(other.statement, CounterfactualStatement)
    changed = Proof(statement=change(other.statement), evidence=other.evidence)
    report = vf.check(replace(given, proofs=(own, changed)), model=JOB_NETWORK, schema=JOBS)
    assert any(why in str(one) for one in report.rejections), report.rejections


def test_cells_have_to_cover_the_box() -> None:
    whole = ((0.0, 2.0), (0.0, 1.0), (3.0, 3.0))
    left, right = ((0.0, 1.0), (0.0, 1.0), (3.0, 3.0)), ((1.0, 2.0), (0.0, 1.0), (3.0, 3.0))
    assert covers(whole, [left, right])
    assert covers(whole, [left, ((0.5, 2.0), (0.0, 0.5), (3.0, 3.0)), ((1.0, 2.0), (0.25, 1.0), (2.0, 3.0))])
    assert not covers(whole, [left])
    assert not covers(whole, [left, ((1.0, 2.0), (0.0, 0.9), (3.0, 3.0))])
    assert not covers(whole, [left, ((1.0, 2.0), (0.0, 1.0), (4.0, 4.0))])
    assert not covers(whole, [])
    assert covers((), [()])


# Refusals

def refused(why: str, **more: Any) -> None:
    with pytest.raises(QueryError, match=why):
        certify(**more)


def with_income(mechanism: Any) -> CausalModel:
    return CausalModel(nodes=(Node(name="sex"), Node(name="income", parents=("sex",), mechanism=mechanism)))


def test_models_that_are_not_linear_are_refused_with_the_remedy() -> None:
    refused("Additive", causal_model=with_income(Additive(function=LinearRegression())))
    refused(r"no standard error; give it beside the coefficients", errors=None)
    refused("'sex = x' is no coefficient", errors={**ERRORS, "income": {"sex = x": 1.0}})
    refused("expected a finite number from 0", errors={**ERRORS, "income": {"sex = m": -1.0}})
    refused("level = 1", level=1.0)
    refused("cells = 0", cells=0)
    refused("give positions in it", rows=[7])
    refused("named twice", rows=[1, 1])
    refused("changes nothing that the network takes", schema=UNRELATED, frame=FRAME.assign(x=1.0), model=ALONE)


UNRELATED = schema_of(real("x", 0, 2))
ALONE = replace(NETWORK, layers=(Layer(weight=np.ones((1, 1)), bias=np.zeros(1), slope=np.ones(1)),))


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_logarithms_of_rows_asked_about_need_numbers_above_0(value: float) -> None:
    """years stays at the estimates, where income rounds to what it is, so that no noise is asked for; in the box it moves."""
    causal = CausalModel(nodes=(
        Node(name="sex"),
        Node(name="income", parents=("sex",), mechanism=Linear(coefficients={"sex": {"m": 0.1}}), decimals=0),
        Node(name="years", parents=("income",), mechanism=LogLinear(coefficients={"income": 0.3})),
    ))
    frame = FRAME.assign(income=[2.0, 5.0, 6.0, 9.0, 4.0], years=[1.0, value, 5.0, 8.0, value])
    schema = schema_of(real("income", 0, 10), integer("years", -1, 9), categorical("sex", "f", "m", protected=True))
    errors = {"income": {"sex = m": 0.5}, "years": {"income": 0.05}}
    asked = {"causal_model": causal, "frame": frame, "schema": schema, "errors": errors}
    with pytest.raises(DataError, match=rf"node 'years': 1 of 4 rows hold 0 or less, such as row 1 with {value}; .* needs x > 0"):
        certify(**asked)
    assert len(certify(**asked, rows=[0, 2, 3]).rows) == 3
    test = SituationTesting(causal, LinearRule(weights={"years": 1.0}, above=4.0), do={"sex": "m"}, k=(1,)).fit(frame)
    with pytest.raises(DataError, match=rf"such as row 1 with {value}"):
        sensitivity(test, method="CF", claims_only=False, errors=errors)


def test_no_time_is_a_reason_and_no_proof() -> None:
    found = certify(budget=Budget(seconds=1e-9))
    assert found.counts["flips"] == found.counts["stays"] == 0
    assert found.reasons == {"time": 3}
    assert found.certificate is None


def test_corners_are_tried_until_half_of_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adult's complainants have 235,120 counterfactuals with 256 corners each; all were tried, whatever the limit was."""
    monkeypatch.setattr(certified, "ROWS_AT_ONCE", 1)
    assert certify(budget=Budget(seconds=1e-9)).reasons == {"time": 4}
    assert certify().counts == {"flips": 1, "stays": 2, "depends": 1, "unknown": 0}


def test_counterfactuals_that_cannot_be_are_not_decided() -> None:
    features = [feature.model_dump() for feature in SCHEMA.features]
    never = {"sex": "m", "income": {"low": 6.5}}
    schema = schema_of(*features, constraints=[{"name": "rich", "never": never}])
    found = certify(schema=schema)
    assert found.reason.tolist() == ["", "", "impossible", "impossible"]
    assert found.status.tolist()[2:] == ["unknown", "unknown"]


def test_one_row_may_be_asked_about_alone() -> None:
    found = certify(rows=[2])
    assert found.rows.tolist() == [2]
    assert found.status.tolist() == ["flips"]


def test_nobody_and_those_who_have_the_value_already() -> None:
    nobody = certify(rows=[])
    assert nobody.counts == {"flips": 0, "stays": 0, "depends": 0, "unknown": 0}
    assert nobody.certificate is None
    assert json.loads(json_text(CertifiedDecisions.of(nobody)))["rows"] == 0
    man = certify(rows=[4])
    assert man.status.tolist() == ["stays"]
    assert man.certificate is not None
    one = man.certificate.proofs[1].statement
    assert isinstance(one, CounterfactualStatement)
    assert one.lower == one.upper == one.row


@pytest.mark.parametrize("codes", [[0, 1], [1, 3]])
def test_categories_that_the_table_and_the_equations_hold_as_codes(codes: list[int]) -> None:
    """The equation counts the codes, not the positions of the categories: 0.5 for each step of the code."""
    features = [f.model_dump() for f in SCHEMA.features[:2]]
    coded = categorical("sex", "f", "m", codes=codes, protected=True)
    schema = schema_of(*features, coded)
    frame = FRAME.assign(sex=[codes[0]] * 4 + [codes[1]])
    income = Node(name="income", parents=("sex",), mechanism=Linear(coefficients={"sex": 1.0 / (codes[1] - codes[0])}))
    found = certify(
        causal_model=CausalModel(nodes=(Node(name="sex"), income)), schema=schema, frame=frame, do={"sex": codes[1]},
        errors={"income": 0.25 / (codes[1] - codes[0])},
    )
    assert found.status.tolist() == ["stays", "depends", "flips", "stays"]
    assert found.certificate is not None
    assert vf.check(found.certificate, model=NETWORK, schema=schema).accepted


def test_a_fitted_model_brings_its_errors() -> None:
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 200)
    income = np.clip(3 + 2.0 * (sex == "m") + rng.normal(size=200), 0, 10)
    frame = pd.DataFrame({"sex": sex, "income": income, "years": rng.integers(0, 10, 200)})
    fitted = with_income(Linear()).fit(frame)
    effects = Effects.of(fitted, {"sex": "m"}, needed={"income"})
    assert effects.errors[0] == pytest.approx(2 * np.std(income - effects.estimates[0] * (sex == "m")) / np.sqrt(200), rel=0.1)
    found = certify(causal_model=fitted, frame=frame, errors=None)
    assert found.low[0] == pytest.approx(effects.estimates[0] - 1.959964 * effects.errors[0])
    assert found.certificate is not None
    assert vf.check(found.certificate, model=NETWORK, schema=SCHEMA).accepted


# The shipped networks

GRAPHS: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "german": [("sex", ()), ("age", ()), ("duration", ("sex", "age")), ("credit-amount", ("sex", "age", "duration"))],
    "adult": [
        ("sex", ()), ("race", ()), ("age", ()), ("education-num", ("sex", "race", "age")),
        ("hours-per-week", ("sex", "age", "education-num")),
    ],
}


@pytest.mark.parametrize("name", ["german", "adult"])
def test_the_shipped_networks(name: str, tmp_path: Path) -> None:
    data, net = datasets.load(name), vf.read_onnx(datasets.network_path(name))
    causal = CausalModel(nodes=tuple(Node(name=node, parents=parents) for node, parents in GRAPHS[name])).fit(data.frame)
    women = np.flatnonzero(data.frame["sex"] == "Female")[:300]
    found = certify_counterfactuals(causal, net, data.schema, data.frame, do={"sex": "Male"}, rows=women)
    assert sum(found.counts.values()) == 300 or len(women) < 300
    assert found.counts["unknown"] == 0
    assert found.certificate is not None
    found.certificate.save(tmp_path / "proof.json.gz")
    assert vf.check(tmp_path / "proof.json.gz", model=net, schema=data.schema).accepted
    for why in found.dependences.values():
        assert why.float32_agrees is not None
    # The model's own counterfactuals at the estimates are among those that were decided.
    tilde = causal.counterfactual(data.frame.iloc[women], {"sex": "Male"})
    raw = data.schema.raw(tilde.assign(**{
        feature.name: np.clip(np.rint(tilde[feature.name]), *feature.range) for feature in data.schema.features if feature.range
    }))
    logits = net.forward(data.schema.encode(raw))
    assert np.array_equal(logits.argmax(axis=1), found.estimated)


@pytest.mark.parametrize(("flip_first", "code", "word"), [(False, 0, "ACCEPTED"), (True, 1, "REJECTED")])
def test_the_check_verb_says_what_is_stated(flip_first: bool, code: int, word: str, tmp_path: Path) -> None:
    """On the shipped German network; a certificate whose first statement is turned round is rejected."""
    data, net = datasets.load("german"), vf.read_onnx(datasets.network_path("german"))
    causal = CausalModel(nodes=tuple(Node(name=node, parents=parents) for node, parents in GRAPHS["german"]))
    women = np.flatnonzero(data.frame["sex"] == "Female")[:40]
    found = certify_counterfactuals(causal, net, data.schema, data.frame, do={"sex": "Male"}, rows=women)
    proof = found.certificate
    assert proof is not None
    if flip_first:
        first = proof.proofs[0].statement
        assert isinstance(first, CounterfactualStatement)
        turned = Proof(statement=replace(first, classes=first.classes[::-1]), evidence=proof.proofs[0].evidence)
        proof = replace(proof, proofs=(turned, *proof.proofs[1:]))
    proof.save(tmp_path / "proof.json")
    done = CliRunner().invoke(app, ["check", str(tmp_path / "proof.json"), "--demo", "german"])
    assert done.exit_code == code
    assert word in done.output
    decided = found.counts["flips"] + found.counts["stays"]
    assert f"of {decided} rows would be decided otherwise" in " ".join(done.output.split())
    assert "with sex = Male" in done.output
    assert "95 % confidence intervals of each coefficient alone" in " ".join(done.output.split())


def test_evidence_is_boxes_alone() -> None:
    assert CERTIFICATE is not None
    assert all(isinstance(proof.evidence, Tree) for proof in CERTIFICATE.proofs)


def test_trees_are_decided_as_the_network_that_asks_the_same(tmp_path: Path) -> None:
    """One question, income <= 6, like NETWORK's threshold. Its proofs are none about one that asks income <= 7."""
    six, seven = (vf.read(save(tmp_path / f"{at}.onnx", [(0, "BRANCH_LEQ", at, [-1.0], [1.0])], 3)) for at in (6.0, 7.0))
    found = certify(model=six)
    assert found.status.tolist() == ["stays", "depends", "flips", "stays"]
    assert found.dependences[1].float32_agrees is True
    assert certify(model=seven).status.tolist() == ["stays", "stays", "depends", "stays"]
    assert found.certificate is not None
    assert vf.check(found.certificate, model=six, schema=SCHEMA).accepted
    forged = replace(found.certificate, network_sha256=seven.source_sha256)
    assert not vf.check(forged, model=seven, schema=SCHEMA).accepted
