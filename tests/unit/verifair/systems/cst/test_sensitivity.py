"""Sensitivity of claims: never flipped below `safe`, really flipped at `flip`; exact for CF under a rule; edges and refusals."""

import json
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import verifair as vf
from encoders.arrays import Array, Booleans
from tests.builders import integer, network_of, real, schema_of
from verifair.errors import QueryError
from verifair.systems.cst.causal.categorical import Categorical
from verifair.systems.cst.causal.mechanisms import Additive, Linear, LogLinear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import Decider, EstimatorDecider, LinearRule, NetworkDecider, Recorded
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.neighbours.counts import NeighbourPool, negatives
from verifair.systems.cst.result import RobustClaims
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.robustness.exact_flips import polynomials, smallest_flips
from verifair.systems.cst.robustness.safe_bounds import Around, Bounds, safe
from verifair.systems.cst.robustness.sensitivity import Sensitivity, _problem, sensitivity
from verifair.systems.results.files import json_text

RULE = LinearRule(weights={"income": 1.0, "years": 2.0}, above=14.0)


def table(seed: int = 0, rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex = np.where(np.arange(rows) % 2 == 0, "f", "m")
    income = 5 + 1.5 * (sex == "m") + rng.normal(size=rows)
    years = 2 + 0.5 * income + 0.4 * (sex == "m") + rng.normal(size=rows)
    return pd.DataFrame({"sex": sex, "income": income, "years": years, "got": rng.choice(["yes", "no"], rows)})


def model(**of_years: Any) -> CausalModel:
    """sex -> income -> years <- sex."""
    return CausalModel(nodes=(
        Node(name="sex"), Node(name="income", parents=("sex",)), Node(name="years", parents=("income", "sex"), **of_years),
    ))


def ready(
    decider: Decider = RULE, *, frame: pd.DataFrame | None = None, causal: CausalModel | None = None, **more: Any
) -> SituationTesting:
    settings = {"do": {"sex": "m"}, "k": (5,), **more}
    return SituationTesting(causal or model(), decider, **settings).fit(table() if frame is None else frame)


def reference(test: SituationTesting, found: Sensitivity, theta: Array) -> np.ndarray:
    """(C,) the verdicts at coefficients theta (p,), by the library's own test of counterfactuals made with these coefficients."""
    given: dict[str, dict[str, Any]] = {}
    fitted = test.causal_model_
    nodes = []
    for node in fitted.nodes:
        if not node.parents:
            nodes.append(node)
            continue
        for one, value in zip(found.effects.coefficients, theta.tolist(), strict=True):
            if one.node == node.name:
                own = given.setdefault(node.name, {})
                own[one.parent] = value if one.word is None else {**own.get(one.parent, {}), one.word: value}
        held = node.name not in given
        nodes.append(node if held else replace(node, mechanism=type(node.mechanism)(coefficients=given[node.name])))
    moved = test.__class__(**{**test.get_params(deep=False), "causal_model": CausalModel(nodes=tuple(nodes))}).fit(test.frame_)
    again = moved.test_one(found.do)
    claims = again.claims(found.test, found.k)
    mine = np.isin(again.complainants, found.complainants)
    return (claims.positive if found.verdict == "positive" else claims.significant)[mine]


def check(test: SituationTesting, found: Sensitivity, seed: int = 0, samples: int = 60) -> None:
    """No coefficients inside `safe` flip, those at `flip` do, alone or together."""
    rng = np.random.default_rng(seed)
    effects = found.effects
    assert (found.safe <= found.flip).all()
    for _ in range(samples):
        size = rng.choice([rng.uniform(0, 1), rng.uniform(0, 5)])
        direction = rng.uniform(-1, 1, len(effects))
        if rng.random() < 0.5:
            direction = np.sign(direction)
        inside = size * np.abs(direction).max() < found.safe * (1 - 1e-9)
        if inside.any():
            now = reference(test, found, effects.estimates + size * direction * effects.errors)
            assert (now == found.claims)[inside].all()
    further = 1 + 1e-9 if found.exact else 1.0  # at the exact flip itself the score is the threshold, up to rounding
    for k in np.flatnonzero(np.isfinite(found.flip))[:6]:
        theta = effects.estimates + further * (found.theta[k] - effects.estimates)
        assert reference(test, found, theta)[k] != found.claims[k]
        reached = np.abs(found.theta[k] - effects.estimates) / np.where(effects.errors > 0, effects.errors, 1)
        assert reached.max() == pytest.approx(found.flip[k], rel=1e-6)


@pytest.mark.parametrize("method", ["CF", "CST w/o", "CST"])
@pytest.mark.parametrize("verdict", ["positive", "significant"])
@pytest.mark.parametrize("interval", ["newcombe", "wald"])
def test_below_safe_nothing_flips_and_at_flip_it_does(method: Any, verdict: Any, interval: Any) -> None:
    if method == "CF" and verdict == "significant":
        return
    test = ready(interval=interval, level=0.6)
    found = sensitivity(test, method=method, verdict=verdict, claims_only=False, effort=32)
    assert found.claims.any()
    assert found.exact == (method == "CF")
    assert np.isfinite(found.flip).any()
    check(test, found, samples=10)


@pytest.mark.parametrize("settings", [
    {"distance": "mahalanobis"}, {"distance": "heom"}, {"distance": "standardised", "ties": "first"}, {"preset": "paper"},
    {"tau": 0.2},
])
def test_distances_ties_and_the_paper(settings: dict[str, Any]) -> None:
    test = ready(**settings)
    found = sensitivity(test, method="CST w/o", claims_only=False, effort=16)
    assert found.claims.any()
    if settings != {"preset": "paper"}:  # there the scale is held, which the library's own test does not do
        check(test, found, samples=10)


def test_rounding_and_ranges_of_nodes_give_brackets_that_hold() -> None:
    whole = table().round({"income": 0, "years": 1})
    for years in ({"decimals": 0}, {"range": (0.0, 5.5)}, {"decimals": 1, "range": (2.0, 6.0)}):
        test = ready(frame=whole, causal=model(**years))
        for method in ("CF", "CST"):
            found = sensitivity(test, method=method, claims_only=False, effort=16)  # type: ignore[arg-type]
            assert not found.exact
            check(test, found, samples=8)


def with_jobs(**of_grade: Any) -> tuple[pd.DataFrame, CausalModel]:
    """sex -> job (a category) -> income (log-linear) -> years (linear); job -> grade -> rank (a category)."""
    rng, frame = np.random.default_rng(4), table(4, 160)
    other = np.where(rng.random(160) < 0.5, "shop", "none")
    job = np.where(rng.random(160) < np.where(frame["sex"] == "m", 0.7, 0.3), "office", other)
    grade = np.round(1 + 2.0 * (job == "office") + rng.normal(size=160) / 4)
    rank = np.where(grade + rng.normal(size=160) > 2, "high", "low")
    frame = frame.assign(job=job, grade=grade, rank=rank, income=frame["income"] + 3.0 * (job == "office") + (rank == "high"))
    return frame, CausalModel(nodes=(
        Node(name="sex"), Node(name="job", parents=("sex",), mechanism=Categorical()),
        Node(name="grade", parents=("job",), **of_grade), Node(name="rank", parents=("grade", "sex"), mechanism=Categorical()),
        Node(name="income", parents=("sex", "job", "rank"), mechanism=LogLinear()),
        Node(name="years", parents=("income", "sex")),
    ))


@pytest.mark.parametrize("method", ["CF", "CST w/o", "CST"])
def test_categories_on_the_way_are_held_as_the_test_drew_them(method: Any) -> None:
    exact_grade = Linear(coefficients={"job": {"office": 2.0, "shop": 0.0}}, errors={"job": {"office": 0.0, "shop": 0.0}})
    frame, causal = with_jobs(mechanism=exact_grade)
    test = ready(LinearRule(weights={"income": 1.0, "years": 2.0}, above=18.0), frame=frame, causal=causal)
    found = sensitivity(test, method=method, claims_only=False, effort=16)
    assert found.effects.nodes == ("grade", "income", "years")
    assert set(found.effects.categories) == {"job", "rank"}
    assert found.claims.any()
    assert not found.exact  # a log-linear equation stands on the way
    assert np.isfinite(found.flip).any()
    assert (found.safe > 0).any()
    check(test, found, samples=4)
    wide = {"sex = m": 200.0} | dict.fromkeys(("job = office", "job = shop", "rank = low"), 0.0)
    with pytest.raises(QueryError, match=r"node 'income': coefficients within 5 standard errors .* beyond all floats in .* of"):
        sensitivity(test, method=method, errors={"income": wide})


def test_categories_that_uncertain_coefficients_move_are_refused_by_name() -> None:
    frame, causal = with_jobs()
    with pytest.raises(QueryError, match=r"'rank': its categories depend on 'grade'.*counterfactuals;.*errors = 0.*drop 'grade'"):
        sensitivity(ready(frame=frame, causal=causal))


def test_brackets_of_cf_close_where_nodes_are_rounded() -> None:
    exact = sensitivity(ready(), method="CF")
    cents = sensitivity(ready(causal=model(decimals=6)), method="CF", most=50.0)
    both = np.isfinite(exact.flip) & (exact.flip < 50) & np.isin(exact.complainants, cents.complainants)
    assert np.array_equal(exact.complainants, cents.complainants)
    assert both.any()
    assert np.allclose(cents.safe[both], exact.safe[both], rtol=0.02)
    assert np.allclose(cents.flip[both], exact.flip[both], rtol=0.02)


def test_networks_classifiers_and_recorded_decisions() -> None:
    frame = table()
    frame = frame.assign(income=frame.income.clip(0, 12).round(1), years=frame.years.clip(0, 12).round().astype(int))
    schema = schema_of(real("income", 0, 12), integer("years", 0, 12))
    network = NetworkDecider(model=network_of(([[1.0, 2.0]], [-14.0])), schema=schema)
    label = RULE.decide(frame)
    columns = ["income", "years"]
    classifier = EstimatorDecider(estimator=LogisticRegression().fit(frame[columns], label), columns=columns, positive=True)
    for decider in (network, classifier, Recorded(column="got", positive="yes", counterfactual=RULE)):
        test = ready(decider, frame=frame)
        for method in ("CF", "CST"):
            found = sensitivity(test, method=method, claims_only=False, effort=16)  # type: ignore[arg-type]
            check(test, found, samples=6)
    without = ready(Recorded(column="got", positive="yes"), frame=frame)
    check(without, sensitivity(without, method="CST w/o", claims_only=False, effort=16), samples=6)
    with pytest.raises(QueryError, match="recorded"):
        sensitivity(without, method="CF")


class Unknown:
    """Decides as RULE does, and does not say by which columns."""

    words = "a rule of one's own"

    def decide(self, frame: pd.DataFrame) -> Booleans:
        return RULE.decide(frame)


@pytest.mark.parametrize("method", ["CF", "CST w/o", "CST"])
def test_a_decider_of_which_nothing_is_known_may_read_any_column(method: Any) -> None:
    known, own = (sensitivity(ready(one), method=method, claims_only=False, effort=16) for one in (RULE, Unknown()))
    assert own.effects.coefficients == known.effects.coefficients
    assert len(own.effects.coefficients) == 3
    assert np.isfinite(own.flip).any()
    assert (own.safe <= known.flip).all()
    check(ready(Unknown()), own, samples=6)


# CF under a rule, exactly


def grid_flip(effects: Effects, change: Array, base: float, above: float, accepted: bool, t: float) -> bool:
    """Whether some point of a dense grid of the box decides otherwise."""
    axes = [np.linspace(-t, t, 9) if error else [0.0] for error in effects.errors]
    theta = effects.estimates + np.array(list(product(*axes))) * effects.errors
    nodes = effects.counterfactuals(np.zeros((1, len(effects.nodes))), change[None], theta, bounded=False)[:, 0]
    score = base + nodes @ np.array([RULE.weights[name] for name in effects.nodes])
    return bool(((score > above) != accepted).any())


def test_corners_are_as_extreme_as_dense_grids() -> None:
    test = ready()
    found = sensitivity(test, method="CF")
    frame = test.frame_.iloc[found.complainants]
    effects, change = found.effects, found.effects.changes(frame, frame.assign(sex="m"))
    base = RULE.score(frame)
    assert found.exact
    assert (found.safe == found.flip).all()
    for k in range(len(frame)):
        t = min(found.flip[k], 50.0)
        assert not grid_flip(effects, change[k], base[k], 14.0, True, 0.999 * t)
        if np.isfinite(found.flip[k]):
            assert grid_flip(effects, change[k], base[k], 14.0, True, 1.001 * found.flip[k])


def test_polynomials_are_the_counterfactuals_at_every_size() -> None:
    test = ready()
    effects = sensitivity(test, method="CF").effects
    change = effects.changes(test.frame_.iloc[[0]], test.frame_.iloc[[0]].assign(sex="m"))[0]
    polynomial = polynomials(effects, change, effects.corners)
    for t in (0.0, 0.7, 3.0):
        theta = effects.estimates + t * effects.corners * effects.errors
        expected = effects.counterfactuals(np.zeros((1, 2)), change[None], theta, bounded=False)[:, 0]
        assert np.allclose(polynomial @ t ** np.arange(polynomial.shape[2]), expected)


def by_hand(estimate: float, error: float, income: float, at_least: bool = False) -> Sensitivity:
    """One edge sex -> income and the rule income > 6 (or >= 6); the other rows are the test group."""
    frame = pd.DataFrame({"sex": ["f", "f", "m", "m"], "income": [income, 0.0, 7.0, 7.0]})
    causal = CausalModel(nodes=(
        Node(name="sex"), Node(name="income", parents=("sex",), mechanism=Linear(coefficients={"sex": {"m": estimate}})),
    ))
    rule = LinearRule(weights={"income": 1.0}, **({"at_least": 6.0} if at_least else {"above": 6.0}))
    test = SituationTesting(causal, rule, do={"sex": "m"}, k=(1,)).fit(frame)
    return sensitivity(test, method="CF", errors={"income": {"sex = m": error}}, claims_only=False)


def test_one_edge_by_hand() -> None:
    found = by_hand(2.0, 0.5, 5.0)  # 5 + 2 > 6 by 1, two standard errors
    assert found.claims.tolist() == [True, False]
    assert found.flip[0] == pytest.approx(2.0)
    assert found.theta[0, 0] == pytest.approx(1.0)
    assert found.alone[0, 0] == pytest.approx(2.0)
    assert found.coefficient[0] == "sex = m -> income"
    assert found.flip[1] == pytest.approx(8.0)  # 0 + 2 needs 4 more
    assert found.robust(1.96) == (1.0, 0.0)
    assert found.robust(2.1) == (0.0, 1.0)


def test_what_is_no_number_is_not_sure() -> None:
    """At 2 standard errors the income passes 6; exp overflows before, but infinity times a weight of 0 bounds nothing."""
    frame = pd.DataFrame({"sex": ["f", "f", "m"], "income": [4.0, 0.0, 7.0], "years": [1.0, 1.0, 1.0]})
    causal = CausalModel(nodes=(
        Node(name="sex"), Node(name="income", parents=("sex",), mechanism=Linear(coefficients={"sex": {"m": 1.0}})),
        Node(name="years", parents=("sex",), mechanism=LogLinear(coefficients={"sex": {"m": 0.1}})),
    ))
    rule = LinearRule(weights={"income": 1.0, "years": 0.0}, above=6.0)
    test = SituationTesting(causal, rule, do={"sex": "m"}, k=(1,))
    found = test.fit(frame).test_one({"sex": "m"})
    errors = {"income": {"sex = m": 0.5}, "years": {"sex = m": 400.0}}
    what = _problem(test, {"sex": "m"}, found, errors, np.array([0]), found.claims("CF", 1), "positive", 5.0)
    assert safe(what, 5.0)[0] == pytest.approx(2.0)
    bounds = Bounds(what, np.array([0]), what.effects.estimates[None])
    known, endless = bounds.nodes, bounds.nodes * [[1.0, np.inf]]
    assert bounds._decided(rule, None, known, known).tolist() == [True]
    assert bounds._decided(rule, None, endless, endless).tolist() == [False]


def test_edges_of_effects_errors_and_thresholds() -> None:
    assert np.isinf(by_hand(2.0, 0.0, 5.0).flip).all()  # an exact coefficient
    assert by_hand(1.0, 0.5, 5.0).claims.tolist() == [False, False]  # 6 is not above 6 ...
    assert by_hand(1.0, 0.5, 5.0).flip[0] < 1e-9  # ... but anything more is
    met = by_hand(1.0, 0.5, 5.0, at_least=True)
    assert met.claims[0]
    assert met.flip[0] < 1e-9
    zero = by_hand(0.0, 0.5, 5.0)
    assert zero.flip.tolist() == pytest.approx([2.0, 12.0])
    accepted = by_hand(-1.0, 0.5, 6.5)  # was not refused: no claim, whatever the coefficients
    assert np.isinf(accepted.flip[0])
    assert np.isinf(accepted.safe[0])


def test_tau_met_exactly_is_no_claim_and_anything_may_tip_it() -> None:
    """One in five more refusals than tau allows is a claim; exactly tau is none."""
    test = ready()
    share = sensitivity(test, method="CST w/o", claims_only=False, effort=8)
    claims = test.test_one({"sex": "m"}).claims("CST w/o", 5)
    tau = float(np.unique(claims.delta[claims.delta > 0])[0])
    again = ready(tau=tau)
    found = sensitivity(again, method="CST w/o", claims_only=False, effort=8)
    assert not found.claims[claims.delta == tau].any()
    assert share.claims[claims.delta == tau].all()
    check(again, found, samples=10)


def test_distinct_smallest_flips_of_different_groups() -> None:
    """Two words besides the reference: each complainant's own change counts."""
    rng = np.random.default_rng(3)
    race = rng.choice(["a", "b", "w"], 150)
    frame = pd.DataFrame({"race": race, "income": 5 + 2 * (race == "w") + (race == "b") + rng.normal(size=150)})
    causal = CausalModel(nodes=(Node(name="race"), Node(name="income", parents=("race",))))
    test = SituationTesting(causal, LinearRule(weights={"income": 1.0}, above=6.0), do={"race": "w"}, k=(5,)).fit(frame)
    found = sensitivity(test, method="CF", claims_only=False)
    effects, rows = found.effects, test.frame_.iloc[found.complainants]
    base, change = rows["income"].to_numpy(), effects.changes(rows, rows.assign(race="w"))
    assert len(np.unique(change, axis=0)) == 2
    accepted = base + change @ effects.estimates > 6
    direct = np.abs(6 - base - change @ effects.estimates) / (np.abs(change) @ effects.errors)
    refused = base <= 6
    assert np.allclose(found.flip[refused], direct[refused])
    assert np.array_equal(found.claims, refused & accepted)
    again, _ = smallest_flips(effects, LinearRule(weights={"income": 1.0}, above=6.0), base, change, accepted, effects.corners)
    assert np.allclose(again, direct)


# The bound of the test group


def test_negatives_of_moved_centers_stay_within_bounds() -> None:
    rng = np.random.default_rng(1)
    test = ready()
    found = test.test_one({"sex": "m"})
    for digits in (1, 2, 8):
        points = rng.random((60, 2)).round(digits)
        pool = NeighbourPool.of(np.arange(60), points, rng.random(60) < 0.4, replace(found.metric, words=(), levels=()))
        centers = rng.random((20, 2))
        for k, rho in product((1, 4, 59), (0.001, 0.03, 0.4)):
            least, most = Around.of(pool, centers, k).negatives(k, np.full(20, rho), pool.rounding)
            assert (least >= 0).all()
            assert (most <= k).all()
            step = rng.uniform(-1, 1, (30, 20, 2))
            step *= rho * rng.random((30, 20, 1)) / np.linalg.norm(step, ord=pool.metric.p, axis=2, keepdims=True)
            count = negatives(pool, (centers + step).reshape(-1, 2), [k]).reshape(30, 20)
            assert (least <= count + 1e-9).all()
            assert (count <= most + 1e-9).all()


# What is said, and what is refused


def test_tables_and_json() -> None:
    tester = ready()
    found, rows = sensitivity(tester), tester.frame_.index
    assert isinstance(found, vf.Finding)
    assert found.table()["claim"].all()
    assert found.table()["flip"].is_monotonic_increasing
    shares = found.shares()
    assert shares["t"].tolist() == [1.0, 1.645, 1.96]
    assert np.allclose(shares[["robust", "overturned", "open"]].sum(axis=1), 1)
    assert found.value == shares["robust"].iloc[-1]
    assert json.loads(json_text(RobustClaims.of(found, rows)))["claims"] == len(found.complainants)
    assert found.coefficients()["coefficient"].tolist() == ["sex = m -> income", "income -> years", "sex = m -> years"]
    none = sensitivity(ready(LinearRule(weights={"income": 1.0}, above=-1e9)))
    assert not len(none.complainants)
    assert np.isnan(none.value)
    json_text(RobustClaims.of(none, rows))


@pytest.mark.parametrize(("settings", "asked", "why"), [
    ({}, {"method": "ST"}, "asks no causal model"),
    ({}, {"method": "other"}, "there is no such method"),
    ({}, {"method": "CF", "verdict": "significant"}, "expected 'positive'"),
    ({}, {"verdict": "large"}, "or 'significant'"),
    ({"correction": "bh"}, {"verdict": "significant"}, "depends on all complainants"),
    ({}, {"most": 0.0}, "expected a positive number"),
    ({}, {"k": 7}, "was not asked for"),
    ({"causal": model(mechanism=Additive(function=LinearRegression()))}, {}, 'Additive.*mechanism = "linear" or "log-linear"'),
    ({"causal": model(mechanism=Linear(coefficients={"income": 0.5, "sex": {"m": 0.4}}))}, {}, "so it has no standard error"),
])
def test_refusals(settings: dict[str, Any], asked: dict[str, Any], why: str) -> None:
    with pytest.raises(QueryError, match=why):
        sensitivity(ready(**settings), **asked)


def test_given_coefficients_with_errors() -> None:
    causal = model(mechanism=Linear(coefficients={"income": 0.5, "sex": {"m": 0.4}}))
    test = ready(causal=causal)
    exact = sensitivity(test, method="CF", errors={"years": 0.0})
    loose = sensitivity(test, method="CF", errors={"years": {"income": 0.2, "sex = m": 0.0}})
    assert (loose.flip <= exact.flip + 1e-9).all()
    assert (loose.flip < exact.flip).any()


def test_several_interventions_have_to_be_told_apart() -> None:
    frame = table().assign(race=np.where(np.arange(120) % 3 == 0, "b", "w"))
    causal = CausalModel(nodes=(Node(name="sex"), Node(name="race"), Node(name="income", parents=("sex", "race"))))
    rule = LinearRule(weights={"income": 1.0}, above=6.0)
    test = SituationTesting(causal, rule, do={"sex": "m", "race": "w"}, k=(5,), intersectional=True).fit(frame)
    with pytest.raises(QueryError, match="has 3 interventions"):
        sensitivity(test)
    joint = sensitivity(test, {"sex": "m", "race": "w"}, method="CF")
    assert len(joint.effects) == 2
    alone = sensitivity(test, {"race": "w"}, method="CF")
    assert [one.parent for one in alone.effects.coefficients] == ["race"]
