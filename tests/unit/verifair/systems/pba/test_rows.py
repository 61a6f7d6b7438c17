"""Rows that PBA asks about: who is decided how, as they are and with another group, and how often the network is asked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from encoders.arrays import Array, Integers
from encoders.model import Model
from tests.builders import integer, random_network, schema_of
from verifair import PersistentBias
from verifair.engine.exchange import Exchange
from verifair.engine.questions import decisions
from verifair.errors import DataError
from verifair.systems.pba import stream
from verifair.systems.pba.rows import verify_rows
from verifair.systems.pba.scores import group_rates
from verifair.systems.pba.stream import LabelledRows, Rates, judge
from verifair.systems.pba.tables import without_pairs

SCHEMA = schema_of(integer("group", 0, 2), integer("x", -3, 3), integer("y", -3, 3))
NETWORK = random_network(np.random.default_rng(3), (3, 8, 1))


def test_every_counterfactual_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    raw = rng.integers([0, -3, -3], [3, 4, 4], size=(60, 3)).astype(float)
    asked: list[int] = []

    def counted(network: Model, x: Array) -> Integers:
        asked.append(len(x))
        return decisions(network, x)

    monkeypatch.setattr(stream, "decisions", counted)
    own = decisions(NETWORK, SCHEMA.encode(raw))
    table = LabelledRows(raw=raw, labels=rng.integers(0, 2, 60), judge=judge(NETWORK, SCHEMA))
    for _ in range(2):
        for value in (0.0, 1.0, 2.0):
            other = raw.copy()
            other[:, 0] = value
            rows, decided = table.counterfactuals(Exchange.of(SCHEMA, "group"), value)
            np.testing.assert_array_equal(rows, np.flatnonzero(raw[:, 0] != value))
            np.testing.assert_array_equal(decided, decisions(NETWORK, SCHEMA.encode(other[rows])))
    rates = group_rates(Rates.of(Exchange.of(SCHEMA, "group")).add(table))
    assert sum(asked) == 3 * len(raw)  # each row as it is, and with the two other values
    for place, value in enumerate((0.0, 1.0, 2.0)):
        same = []
        for to in {0.0, 1.0, 2.0} - {value}:
            other = raw[raw[:, 0] == value]
            other[:, 0] = to
            same += (decisions(NETWORK, SCHEMA.encode(other)) == own[raw[:, 0] == value]).tolist()
        line = rates[rates["metric"] == "CFA"].iloc[place]
        assert (line["value"], line["rows"]) == (pytest.approx(np.mean(same)), len(same))


def test_survival_counts_counterfactuals_that_the_constraints_allow() -> None:
    """Of group 2 nobody has one: no share, and the screen says so."""
    rules = [
        {"never": {"group": [0, 1], "x": {"low": 2}}}, {"if": {"group": 2}, "then": {"x": {"low": 2}}},
        {"never": {"group": 1, "y": 3}},
    ]  # fmt: skip
    schema = schema_of(integer("group", 0, 2), integer("x", -3, 3), integer("y", -3, 3), constraints=rules)
    raw = np.random.default_rng(1).integers([0, -3, -3], [3, 4, 4], size=(200, 3)).astype(float)
    raw = raw[schema.inside(raw)]
    table = LabelledRows(raw=raw, labels=np.zeros(len(raw), np.int64), judge=judge(NETWORK, schema))
    rates = group_rates(Rates.of(Exchange.of(schema, "group")).add(table))
    lines = rates[rates["metric"] == "CFA"].set_index("group")
    own = decisions(NETWORK, schema.encode(raw))
    for group in (0.0, 1.0):
        mine, other = raw[:, 0] == group, raw.copy()
        other[:, 0] = 1 - group
        legal = mine & schema.inside(other)
        same = own[legal] == decisions(NETWORK, schema.encode(other[legal]))
        assert tuple(lines.loc[f"{group:g}", ["value", "rows"]]) == (pytest.approx(same.mean()), legal.sum())
    assert lines.loc["2", "rows"] == 0
    assert np.isnan(lines.loc["2", "value"])
    assert without_pairs("group", rates) == "2"


def test_where_constraints_forbid_every_counterfactual_the_error_says_so() -> None:
    rules = [{"if": {"group": [0, 1]}, "then": {"x": {"high": 0}}}, {"if": {"group": 2}, "then": {"x": {"low": 1}}},
             {"never": {"group": 1}}]  # fmt: skip
    schema = schema_of(integer("group", 0, 2), integer("x", -3, 3, unit=1), integer("y", -3, 3), constraints=rules, label="label")
    frame = pd.DataFrame({"group": [0, 0, 2], "x": [-1, 0, 1], "y": [0, 1, 2]})
    frame["label"] = decisions(NETWORK, schema.encode(schema.raw(frame)))
    query = PersistentBias(model=NETWORK, schema=schema, protected="group", delta=[1])
    with pytest.raises(DataError, match="no label right for a row and its counterfactual alike, or the constraints forbid its c"):
        verify_rows(query, frame)
