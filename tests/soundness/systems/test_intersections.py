"""PBA of several sensitive features at once, against brute force in exact arithmetic; rates and gaps against their definitions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from encoders.network import Network
from tests.builders import categorical, integer, network_of, one_hot, schema_of
from tests.draws import draws
from verifair.engine.exchange import Exchange
from verifair.errors import QueryError
from verifair.systems.pba.evidence import certificate_of
from verifair.systems.pba.rows import verify_rows
from verifair.systems.pba.scores import group_gaps, group_rates
from verifair.systems.pba.stream import LabelledRows, Rates, judge

FEATURES = (
    integer("age", 0, 3, unit=1.0), categorical("sex", "F", "M", protected=True), one_hot("race", "a", "b", "c", protected=True),
)  # fmt: skip
ROWS = np.array([[a, s, r] for a in range(4) for s in range(2) for r in range(3)], dtype=float)


def made(seed: int) -> Network:
    """Small whole weights, so that ties are many."""
    rng = np.random.default_rng(seed)
    first, last = rng.integers(-2, 3, (4, 5)).astype(float), rng.integers(-2, 3, (1, 4)).astype(float)
    biases = rng.integers(-2, 3, 4).astype(float), rng.integers(-1, 2, 1).astype(float)
    return network_of((first, biases[0]), (last, biases[1]), source_sha256="3" * 64)


def logits(network: Network, schema: vf.Schema) -> dict[tuple[float, ...], Fraction]:
    exact = network.forward(np.array([[Fraction(v) for v in row] for row in schema.encode(ROWS).tolist()], dtype=object))
    return {tuple(row): value for row, (value,) in zip(ROWS.tolist(), exact, strict=True)}


@pytest.mark.parametrize("constrained", [False, True])
def test_pba_of_an_intersection_is_that_of_brute_force(constrained: bool) -> None:
    never = [{"never": {"sex": "F", "race": "c", "age": {"high": 1}}}] if constrained else []
    schema, statuses = schema_of(*FEATURES, label="y", constraints=never), set()
    for seed in draws(8):
        network = made(seed)
        logit, rows = logits(network, schema), ROWS[schema.inside(ROWS)]
        frame = pd.DataFrame([schema.decode(row) for row in rows]).assign(y=[int(logit[tuple(row)] > 0) for row in rows.tolist()])
        query = vf.PersistentBias(model=network, schema=schema, protected=["sex", "race"], delta=[0, 1])
        found = verify_rows(query, frame)
        expected = {}
        for k, (age, sex, race) in enumerate(rows.tolist()):
            for s, r in ((s, r) for s in (0.0, 1.0) for r in (0.0, 1.0, 2.0) if s != sex and r != race):
                same = (logit[age, sex, race] > 0) == (logit[age, s, r] > 0)
                if not same or not schema.inside(np.array([[age, s, r]]))[0]:
                    continue
                sign = 1 if logit[age, sex, race] > 0 else -1
                for delta in (0.0, 1.0):
                    near = [
                        sign * (logit[a, sex, race] - logit[a, s, r])
                        for a in np.arange(max(0, age - delta), min(3, age + delta) + 1)
                        if schema.inside(np.array([[a, sex, race], [a, s, r]])).all()
                    ]
                    expected["observed", delta, k, 3 * s + r] = all(one > 0 for one in near)
                    expected["flipped", delta, k, 3 * s + r] = all(one < 0 for one in near)
        assert {(line.goal, line.delta, line.row, line.to): line.status == "proved" for line in found.itertuples()} == expected
        statuses |= set(found["status"])
        told = vf.verify(query, frame)
        assert set(told["group"]) <= {f"{s}, {r}" for s in "FM" for r in "abc"}
        certificate = certificate_of(query, LabelledRows.of(network, schema, frame), found)
        report = vf.check(certificate, model=network, schema=schema)
        assert not report.rejections, report.rejections
    assert statuses == {"proved", "violated"}


def test_robustness_of_an_intersection_holds_its_features_still() -> None:
    schema = schema_of(*FEATURES, label="y")
    for seed in draws(4):
        network = made(seed)
        logit = logits(network, schema)
        frame = pd.DataFrame([schema.decode(row) for row in ROWS]).assign(y=[int(logit[tuple(row)] > 0) for row in ROWS.tolist()])
        query = vf.Robustness(model=network, schema=schema, protected=["sex", "race"], delta=[1])
        found = verify_rows(query, frame)
        for line in found.itertuples():
            age, sex, race = ROWS[line.row]
            if line.goal == "robust-flipped":
                sex, race = divmod(line.to, 3)
            near = {logit[a, sex, race] > 0 for a in np.arange(max(0, age - 1), min(3, age + 1) + 1)}
            assert (line.status == "proved") == (near == {line.label == 1})
        certificate = certificate_of(query, LabelledRows.of(network, schema, frame), found)
        assert not vf.check(certificate, model=network, schema=schema).rejections


def test_rates_and_gaps_of_intersections_are_counts() -> None:
    rng = np.random.default_rng(0)
    schema, network = schema_of(*FEATURES, label="y"), made(1)
    logit = logits(network, schema)
    raw = ROWS[rng.choice(len(ROWS), size=400, p=np.where(ROWS[:, 2] == 2, 0.1, 1.0) / np.where(ROWS[:, 2] == 2, 0.1, 1.0).sum())]
    good = np.array([logit[tuple(row)] > 0 for row in raw.tolist()])
    table = LabelledRows(raw=raw, labels=rng.integers(0, 2, 400), judge=judge(network, schema))
    exchange = Exchange.of(schema, ["sex", "race"])
    rates = group_rates(Rates.of(exchange).add(table))
    for s, r in ((s, r) for s in range(2) for r in range(3)):
        mine = (raw[:, 1] == s) & (raw[:, 2] == r)
        line = rates[(rates["group"] == f"{'FM'[s]}, {'abc'[r]}")].set_index("metric")
        assert line.loc["SP", "value"] == pytest.approx(good[mine].mean())
        assert line.loc["SP", "low"] < line.loc["SP", "value"] + 1e-12 < line.loc["SP", "high"] + 1e-9
        same = [
            (logit[a, 1.0 - s, float(q)] > 0) == decided
            for (a, _, _), decided in zip(raw[mine].tolist(), good[mine], strict=True) for q in {0, 1, 2} - {r}
        ]  # fmt: skip
        assert line.loc["CFA", "value"] == pytest.approx(np.mean(same))
        assert line.loc["CFA", "rows"] == len(same)
    (gap,) = group_gaps(rates)[lambda found: found["metric"] == "SP"].itertuples()
    ranked = rates[(rates["metric"] == "SP") & (rates["rows"] >= 30)]
    assert (gap.groups, gap.small) == (len(ranked), 6 - len(ranked))
    assert gap.small > 0
    assert not {gap.lowest, gap.highest} & set(rates.loc[(rates["metric"] == "SP") & (rates["rows"] < 30), "group"])
    assert gap.gap == pytest.approx(ranked["value"].max() - ranked["value"].min())
    assert gap.low < gap.gap < gap.high or gap.gap in (0, 1)
    tied = group_gaps(rates.assign(value=0.5))[lambda found: found["metric"] == "SP"].iloc[0]
    assert (tied["gap"], tied["lowest"] != tied["highest"]) == (0, True), "groups that tie are two groups"


def test_what_cannot_be_exchanged_is_refused() -> None:
    schema, network = schema_of(*FEATURES, label="y"), made(0)
    with pytest.raises(QueryError, match="each named once"):
        vf.PersistentBias(model=network, schema=schema, protected=["sex", "sex"], delta=[1])
    wide = schema_of(integer("age", 0, 600), categorical("sex", "F", "M"), integer("x", 0, 1, unit=1.0))
    with pytest.raises(QueryError, match="1202 combinations"):
        Exchange.of(wide, ["age", "sex"])
