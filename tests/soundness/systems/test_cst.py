"""No coefficients of the confidence box, thousands of them, ever contradict what is certified of a row's counterfactual decision.

The truth is computed here by itself: counterfactuals in Python fractions, straight from the equations, and networks in fractions.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from encoders.arrays import Array
from encoders.curves.layer import Curve, SmoothLayer
from encoders.exact.balls import precision
from encoders.model import Link
from encoders.network import Layer, Network
from tests.builders import real, schema_of
from tests.draws import draws
from tests.soundness.random_twins import BITS, logits, nasty_network, smoothed
from verifair.systems.cst.causal.categorical import Categorical
from verifair.systems.cst.causal.mechanisms import Linear, LinearMechanism, LogLinear, LogLinearMechanism
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import LinearRule
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.result import CertifiedDecisions
from verifair.systems.cst.robustness.certified import (
    DEPENDS,
    FLIPS,
    STAYS,
    UNKNOWN,
    CertifiedCounterfactuals,
    certify_counterfactuals,
)
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.robustness.sensitivity import Sensitivity, sensitivity
from verifair.systems.cst.testing import Method
from verifair.systems.results.files import json_text

ROWS, SAMPLES = 8, 150
NUMBERS = ("a", "b", "c", "hidden")
"""Nodes below the protected attributes, in order; the network does not see "hidden"."""


class Case:
    """A random schema, table, causal model with given coefficients and errors, and network.   mix: of smooth neurons."""

    def __init__(self, seed: int, mix: str | None = None) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.seen = bool(rng.random() < 0.6)  # whether the network takes the protected attributes
        self.words = bool(rng.random() < 0.5)
        self.schema = self._schema()
        self.frame = self._frame()
        self.coefficients: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, dict[str, float]] = {}
        self.model = self._model().fit(self.frame)
        style = str(rng.choice(["plain", "sparse", "integer", "mixed"]))
        outputs = 2 if self.schema.positive == "class = 1" else 1
        network = nasty_network(rng, self.schema.domain.columns, style, depth=2, width=5, outputs=outputs)
        self.network: Network = replace(network if mix is None else smoothed(network, rng, mix), source_sha256="0" * 64)
        self.do: dict[str, Any] = {"sex": "m" if self.words else 1}
        if rng.random() < 0.3:
            self.do["race"] = "w"

    def _schema(self) -> vf.Schema:
        rng, features = self.rng, []
        for name in NUMBERS[:3]:
            kind = str(rng.choice(["integer", "real"]))
            feature: dict[str, Any] = {"name": name, "kind": kind, "range": [-6, 6]}
            if rng.random() < 0.5:
                feature["scale"] = "minmax"
            features.append(feature)
        if self.seen:
            sex = {"kind": "categorical", "categories": ["f", "m"]} if self.words else {"kind": "integer", "range": [0, 1]}
            race = {"kind": "one-hot", "categories": ["b", "w", "x"]}
            features += [{"name": "sex", "protected": True, **sex}, {"name": "race", "protected": True, **race}]
        return schema_of(*features, positive=str(rng.choice(["logit > 0", "class = 1"])))

    def _frame(self) -> pd.DataFrame:
        rng = self.rng
        table: dict[str, Any] = {}
        for name in NUMBERS:
            whole = name == "hidden" or self.schema[name].kind == "integer"
            table[name] = rng.integers(-6, 7, 2 * ROWS) if whole else rng.uniform(-6, 6, 2 * ROWS).round(2)
        table["sex"] = np.array(["f", "m"])[np.arange(2 * ROWS) % 2] if self.words else np.arange(2 * ROWS) % 2
        table["race"] = np.array(["b", "w", "x", "b"])[np.arange(2 * ROWS) // 2 % 4]
        return pd.DataFrame(table)

    def _model(self) -> CausalModel:
        rng, nodes = self.rng, [Node(name="sex"), Node(name="race")]
        for k, name in enumerate(NUMBERS):
            parents = tuple(one for one in ("sex", "race", *NUMBERS[:k]) if rng.random() < 0.7 or (name, one) == ("a", "sex"))
            given: dict[str, Any] = {}
            self.errors[name] = {}
            for parent in parents:
                words = {"sex": ["m"] if self.words else [None], "race": ["w", "x"]}.get(parent, [None])
                values = {word: float(rng.choice([0.5, -1.0, round(rng.normal(), 2)])) for word in words}
                given[parent] = values[None] if None in values else {str(word): value for word, value in values.items()}
                for word in words:
                    term = parent if word is None else f"{parent} = {word}"
                    self.errors[name][term] = float(rng.choice([0.0, 0.05, 0.3, 1.0]))
            self.coefficients[name] = given
            span = (-3.0, 4.5) if rng.random() < 0.3 else None
            decimals = int(rng.integers(0, 2)) if rng.random() < 0.3 else None
            mechanism = Linear(coefficients=given) if parents else Linear()
            nodes.append(Node(name=name, parents=parents, mechanism=mechanism, range=span, decimals=decimals))
        return CausalModel(nodes=tuple(nodes))

    def certify(self, **more: Any) -> CertifiedCounterfactuals:
        given = {}
        for name, terms in self.errors.items():
            moved = [p for p in self.model.by_name[name].parents if p in self.do or p in self.model.descendants(list(self.do))]
            given[name] = {term: error for term, error in terms.items() if term.split(" = ")[0] in moved}
        return certify_counterfactuals(self.model, self.network, self.schema, self.frame, do=self.do, errors=given, **more)

    def counterfactual(self, row: int, found: CertifiedCounterfactuals, theta: Array) -> dict[str, Any]:
        """The row under do with coefficients theta, by definition, in fractions; words stay words."""
        weight = dict(zip(found.effects.coefficients, map(Fraction, theta.tolist()), strict=True))
        fact = self.fact(row)
        new = dict(fact)
        for name, value in self.do.items():
            new[name] = value if isinstance(value, str) else Fraction(value)
        for name in NUMBERS:
            node = self.model.by_name[name]
            if all(new[parent] == fact[parent] for parent in node.parents):
                continue
            total = fact[name]
            for one, value in weight.items():
                if one.node == name:
                    h = [(x[one.parent] if one.word is None else Fraction(x[one.parent] == one.word)) for x in (new, fact)]
                    total += value * (h[0] - h[1])
            if node.decimals is not None:
                total = Fraction(round(total, node.decimals))
            new[name] = total if node.range is None else min(max(total, Fraction(node.range[0])), Fraction(node.range[1]))
        return new

    def fact(self, row: int) -> dict[str, Any]:
        return {name: v if isinstance(v, str) else Fraction(v) for name, v in self.frame.iloc[row].to_dict().items()}

    def decision(self, row: dict[str, Any]) -> int:
        """The network's class of a row in fractions, taken to the nearest that the schema allows."""
        raw = []
        for feature in self.schema.features:
            value = row[feature.name]
            if feature.categories is not None:
                raw.append(float(feature.categories.index(value)))
                continue
            low, high = map(Fraction, feature.range or ())
            whole = Fraction(round(value)) if feature.kind == "integer" else value
            raw.append(float(min(max(whole, low), high)))
        (x,) = self.schema.encode(np.array([raw]))
        with precision(BITS):
            found = logits(self.network, x)
            margin = found[0] if len(found) == 1 else found[1] - found[0]
            return 1 if margin > 0 else 0 if margin <= 0 else -1


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("seed", draws(80))
def test_what_is_certified_holds_for_all_coefficients_that_are_tried(seed: int) -> None:
    case = Case(seed, [None, None, "mixed", "falls", "squares", None, "jumps", "convex"][seed % 8])
    found = case.certify(cells=8)
    inside = found.low + (found.high - found.low) * case.rng.random((SAMPLES, len(found.low)))
    corners = np.where(case.rng.random((SAMPLES, len(found.low))) < 0.5, found.low, found.high)
    mixed = np.where(case.rng.random((SAMPLES, len(found.low))) < 0.5, inside, corners)
    theta = np.concatenate([found.effects.estimates[None], inside, corners, mixed])
    for k, row in enumerate(found.rows.tolist()):
        own = case.decision(case.fact(row))
        assert own == found.factual[k]
        decided = {case.decision(case.counterfactual(row, found, one)) for one in theta[k::4]}
        match found.status[k]:
            case "flips":
                assert decided <= {1 - own, -1}
            case "stays":
                assert decided <= {own, -1}
            case "depends":
                why = found.dependences[k]
                decided = [case.decision(case.counterfactual(row, found, np.array(one))) for one in why.coefficients]
                assert decided == list(why.classes)
                assert set(why.classes) == {0, 1}
                assert all((found.low <= one).all() and (one <= found.high).all() for one in map(np.array, why.coefficients))
            case _:
                assert found.status[k] == UNKNOWN
                assert found.reason[k]
    if found.certificate is not None:
        report = vf.check(found.certificate, model=case.network, schema=case.schema)
        assert not report.rejections, report.rejections[:3]
        assert report.accepted == (UNKNOWN not in found.status.tolist())
        assert {STAYS, FLIPS} & set(found.status.tolist())
    json_text(CertifiedDecisions.of(found))


def test_every_status_is_met() -> None:
    met = {status for seed in range(30) for status in Case(seed).certify(cells=1).status.tolist()}
    assert {FLIPS, STAYS, DEPENDS} <= met


def test_a_tie_of_a_smooth_network_is_unknown() -> None:
    """Two neurons cancel, so that the margin of some rows is exactly 0, which no ball tells."""
    layer = SmoothLayer(
        weight=np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), bias=np.zeros(3), bend=np.ones(3),
        curve=np.full(3, Curve.TANH, dtype=np.int8),
    )
    last = Layer(weight=np.array([[1.0, 1.0, 1.0]]), bias=np.zeros(1), slope=np.ones(1))
    network = Network(layers=(layer, last), link=Link.SIGMOID, source_sha256="0" * 64)
    schema = schema_of(real("a", -2, 2), real("b", -2, 2), positive="logit > 0")
    frame = pd.DataFrame({"sex": [0, 0, 0, 1], "a": [1.0, 1.0, 1.0, 0.0], "b": [0.0, 0.5, -1.0, 1.0]})
    nodes = (
        Node(name="sex"), Node(name="a"),
        Node(name="b", parents=("sex",), mechanism=Linear(coefficients={"sex": 1.0})),
    )
    found = certify_counterfactuals(
        CausalModel(nodes=nodes), network, schema, frame, do={"sex": 1}, errors={"b": {"sex": 0.0}},
    )
    assert found.factual.tolist() == [-1, 1, 0]
    assert found.status.tolist() == [UNKNOWN, STAYS, UNKNOWN]   # b becomes 1, 1.5 and 0
    assert found.reason.tolist() == ["tie", "", "tie"]
    assert vf.check(found.certificate, model=network, schema=schema).proofs == 2


def categories_case(seed: int) -> tuple[CausalModel, Network, vf.Schema, pd.DataFrame]:
    """sex -> job (categories) -> amount (log-linear or linear) -> rank (categories) <- job, and years <- amount, rank."""
    rng = np.random.default_rng(seed)
    sex = np.array(["f", "m"])[np.arange(80) % 2]
    job = np.array(["a", "b", "c"])[np.clip(rng.integers(0, 3, 80) - (sex == "f") * rng.integers(0, 2, 80), 0, 2)]
    rank = np.where(rng.random(80) < np.where(job == "a", 0.3, 0.7), "high", "low")
    amount = np.round(np.exp(0.3 * (job == "b") + 0.6 * (sex == "m") + rng.normal(size=80) / 4), 2)
    years = np.round(amount + (rank == "high") + rng.normal(size=80) / 2, 1)
    frame = pd.DataFrame({"sex": sex, "job": job, "rank": rank, "amount": amount, "years": years})
    decimals = None if rng.random() < 0.5 else 1
    nodes = (
        Node(name="sex"), Node(name="job", parents=("sex",), mechanism=Categorical()),
        Node(name="rank", parents=("job", "sex"), mechanism=Categorical()),
        Node(name="amount", parents=("job", "sex"), mechanism=LogLinear() if rng.random() < 0.7 else Linear(), decimals=decimals),
        Node(name="years", parents=("amount", "rank")),
    )
    features: list[dict[str, Any]] = [
        {"name": "amount", "kind": "real", "range": [0, 8]}, {"name": "years", "kind": "real", "range": [-4, 12]},
        {"name": "rank", "kind": "categorical", "categories": ["low", "high"]},
        {"name": "sex", "kind": "categorical", "categories": ["f", "m"], "protected": True},
    ]
    if rng.random() < 0.5:  # else the network does not take it, and the equations do
        features.append({"name": "job", "kind": "one-hot", "categories": ["a", "b", "c"]})
    schema = schema_of(*features, positive="logit > 0")
    network = nasty_network(rng, schema.domain.columns, "mixed", depth=2, width=5, outputs=1)
    return CausalModel(nodes=nodes).fit(frame), replace(network, source_sha256="0" * 64), schema, frame


@pytest.mark.parametrize("seed", draws(12))
def test_what_is_certified_of_categories_holds_for_all_that_are_drawn(seed: int) -> None:
    """Counterfactuals drawn by the causal model itself, with many seeds and coefficients: no decision contradicts a row's status,
    and the share decided otherwise lies between the bounds."""
    model, network, schema, frame = categories_case(seed)
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(frame["sex"] == "f")[:6]
    found = certify_counterfactuals(model, network, schema, frame, do={"sex": "m"}, rows=rows.tolist(), alternatives=30)
    assert found.left.max() < 1e-9
    many = pd.concat([frame.iloc[rows]] * 200, ignore_index=True)
    otherwise = np.zeros((len(rows), 5))
    for number in range(5):
        share = rng.random(len(found.low)) if number % 2 else (rng.random(len(found.low)) < 0.5).astype(float)
        theta = found.low + share * (found.high - found.low) if number else found.effects.estimates
        drawn = with_coefficients(model, found.effects, theta).counterfactual(many, {"sex": "m"}, seed=number)
        for feature in schema.features:
            if feature.range is not None:
                drawn[feature.source] = drawn[feature.source].astype(float).clip(*feature.range)
        logit = network.forward(schema.encode(schema.raw(drawn)))[:, 0]
        decided = (logit > 0).reshape(200, len(rows))
        clear = (np.abs(logit) > 1e-9).reshape(200, len(rows))  # floats drew them; the proofs are exact
        assert all(
            (decided[clear[:, k], k] == (found.factual[k] == (status == STAYS))).all()
            for k, status in enumerate(found.status.tolist()) if status in (FLIPS, STAYS)
        )
        otherwise[:, number] = (decided != (found.factual == 1)).mean(axis=0)
    room = 4.5 * np.sqrt(0.25 / 200)
    low, high = found.otherwise.T
    assert (otherwise >= (low - room)[:, None]).all()
    assert (otherwise <= (high + room)[:, None]).all()
    if found.certificate is not None:
        report = vf.check(found.certificate, model=network, schema=schema)
        assert not report.rejections, report.rejections[:3]
    json_text(CertifiedDecisions.of(found))


# Random causal models, tables, rules and distances: no coefficients inside `safe` change a verdict, those at `flip` do.


COLUMNS = ("a", "b", "c")
PEOPLE = 90


def random_test(rng: np.random.Generator) -> SituationTesting:
    """Two protected attributes of words, three numbers below them, a rule on the numbers, and random settings."""
    table: dict[str, Any] = {"sex": rng.choice(["f", "m"], PEOPLE), "race": rng.choice(["b", "w", "x"], PEOPLE)}
    nodes = [Node(name="sex"), Node(name="race")]
    for k, name in enumerate(COLUMNS):
        parents = tuple(one for one in ("sex", "race", *COLUMNS[:k]) if rng.random() < 0.7 or (name, one) == ("a", "sex"))
        column = rng.normal(size=PEOPLE) + sum(rng.normal() * table[one] for one in parents if one in COLUMNS)
        column = column + rng.normal() * (table["sex"] == "m") * ("sex" in parents) + (table["race"] == "w") * ("race" in parents)
        decimals = int(rng.integers(0, 2)) if rng.random() < 0.4 else None
        table[name] = column if decimals is None else column.round(decimals)
        span = (-1.5, 1.5) if rng.random() < 0.2 else None
        nodes.append(Node(name=name, parents=parents, decimals=decimals, range=span))
    weights = {name: round(float(rng.normal()), 2) for name in COLUMNS if rng.random() < 0.8} or {"a": 1.0}
    frame = pd.DataFrame(table)
    above = float(np.median(LinearRule(weights=weights, above=0.0).score(frame)))
    do = {"sex": "m"} if rng.random() < 0.7 else {"sex": "m", "race": "w"}
    return SituationTesting(
        CausalModel(nodes=tuple(nodes)), LinearRule(weights=weights, above=above), do=do, k=(4,), intersectional=True,
        distance=str(rng.choice(["mixed", "standardised", "heom", "mahalanobis"])), ties=str(rng.choice(["share", "first"])),  # type: ignore[arg-type]
        interval=str(rng.choice(["newcombe", "wald"])), level=0.6, attributes=list(COLUMNS),  # type: ignore[arg-type]
    ).fit(frame)


def with_coefficients(model: CausalModel, effects: Effects, theta: Array) -> CausalModel:
    """The fitted model with other coefficients where the effects have some."""
    fitted = dict(model.fitted)
    for node in effects.nodes:
        mechanism = fitted[node]
        assert isinstance(mechanism, LinearMechanism | LogLinearMechanism)
        given = mechanism.coefficients
        estimates = given.estimates.copy()
        for one, value in zip(effects.coefficients, theta.tolist(), strict=True):
            if one.node == node:
                term = one.parent if one.word is None else f"{one.parent} = {one.word}"
                estimates[given.names.index(term)] = value
        fitted[node] = replace(mechanism, coefficients=replace(given, estimates=estimates))
    return replace(model, fitted=fitted)


def verdicts(test: SituationTesting, found: Sensitivity, theta: Array) -> np.ndarray:
    """(C,) of the whole test with these coefficients."""
    settings = {**test.get_params(deep=False), "causal_model": with_coefficients(test.causal_model_, found.effects, theta)}
    again = SituationTesting(**settings).fit(test.frame_).test_one(found.do)
    claims = again.claims(found.test, found.k)
    every = claims.positive if found.verdict == "positive" else claims.significant
    return every[np.isin(again.complainants, found.complainants)]


@pytest.mark.parametrize("seed", draws(24))
def test_brackets_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    test = random_test(rng)
    method: Method = ("CF", "CST w/o", "CST")[seed % 3]  # type: ignore[assignment]
    verdict = "significant" if method != "CF" and rng.random() < 0.5 else "positive"
    found = sensitivity(
        test, test.interventions()[-1], method=method, verdict=verdict, claims_only=False, effort=int(rng.choice([0, 16, 64]))
    )  # type: ignore[arg-type]
    effects, errors = found.effects, np.where(found.effects.errors > 0, found.effects.errors, 1.0)
    assert (found.safe <= found.flip).all()
    assert np.array_equal(verdicts(test, found, effects.estimates), found.claims)
    for _ in range(40):
        direction = rng.uniform(-1, 1, len(effects))
        direction = np.where(rng.random(len(effects)) < 0.5, np.sign(direction), direction)
        size = float(rng.choice(np.concatenate([found.safe[np.isfinite(found.safe)], [0.5, 2.0]]))) * rng.choice([0.7, 0.99])
        theta = effects.estimates + size * direction * effects.errors
        safe = np.abs((theta - effects.estimates) / errors).max(initial=0.0) < found.safe * (1 - 1e-9)
        if safe.any():
            assert (verdicts(test, found, theta) == found.claims)[safe].all()
    for k in np.flatnonzero(np.isfinite(found.flip))[:10]:
        further = 1 + 1e-9 if found.exact else 1.0  # at the exact flip itself the score is the threshold, up to rounding
        theta = effects.estimates + further * (found.theta[k] - effects.estimates)
        assert verdicts(test, found, theta)[k] != found.claims[k]
