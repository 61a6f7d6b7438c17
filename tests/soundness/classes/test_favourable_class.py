"""A favourable class that sorts first: decisions, counterfactuals and proofs against brute force, with ties in plenty.

Ties are the lower class's, so that for `positive = "class = 0"` a tie is favourable: f <= 0 of one logit, f_0 >= f_1 of two.
"""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from encoders.arrays import Array
from encoders.network import Network
from tests.builders import schema_of
from tests.draws import draws
from tests.soundness.classes.whole_weights import FEATURES, ROWS, made
from verifair.engine.exchange import Exchange
from verifair.systems.cst.deciders import NetworkDecider
from verifair.systems.fgce.decider import positive
from verifair.systems.fgce.robust import certify_robust, re_evaluated
from verifair.systems.pba.scores import group_rates
from verifair.systems.pba.stream import LabelledRows, Rates


def favourable(network: Network, raw: Array, good: int) -> np.ndarray:
    """By the definition, in fractions: the largest logit, and of equal ones the first; one logit is that of class 1 against 0."""
    exact = network.forward(np.array([[Fraction(int(v)) for v in row] for row in raw], dtype=object))
    logits = [[0, row[0]] if len(row) == 1 else list(row) for row in exact]
    return np.array([row.index(max(row)) == good for row in logits])


def schema(network: Network, good: int) -> vf.Schema:
    rule = "class = 0" if good == 0 else "logit > 0" if network.outputs == 1 else "class = 1"
    return schema_of(*FEATURES, positive=rule, label="y", positive_label="yes", outcomes=("refused", "granted"))


@pytest.mark.parametrize("good", [0, 1])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("seed", draws(6))
def test_decisions_and_proofs_are_those_of_the_favourable_class(seed: int, outputs: int, good: int) -> None:
    network = made(seed, outputs)
    described = schema(network, good)
    expected = favourable(network, ROWS, good)
    frame = pd.DataFrame(ROWS.astype(int), columns=["a", "b", "sex"]).assign(y=np.where(expected, "yes", "no"))
    frame["sex"] = np.where(frame["sex"] == 1, "M", "F")
    assert np.array_equal(positive(network, described, ROWS), expected)
    assert np.array_equal(NetworkDecider(model=network, schema=described).decide(frame), expected)
    told = re_evaluated(network, described, ROWS)
    assert np.array_equal(told["positive"], expected)
    assert np.array_equal(told["float32"].astype(bool), expected)  # onnxruntime decides ties so too
    table = LabelledRows.of(network, described, frame)
    assert np.array_equal(table.labels, table.predicted)
    rates = group_rates(Rates.of(Exchange.of(described, "sex")).add(table)).set_index(["metric", "group"])["value"]
    for name in ("F", "M"):
        assert rates["SP", name] == pytest.approx(expected[(frame["sex"] == name).to_numpy()].mean())
    # Every row within one unit, the protected feature held still.
    found = certify_robust(network, described, ROWS, delta=[1.0])
    for row, status in zip(ROWS, found.table["status"], strict=True):
        near = ROWS[(np.abs(ROWS[:, :2] - row[:2]) <= 1).all(axis=1) & (ROWS[:, 2] == row[2])]
        assert status == ("proved" if favourable(network, near, good).all() else "violated"), row
    assert found.table["float32_agrees"].isin([True, None]).all()
    if found.certificate is not None:
        assert vf.check(found.certificate, model=network, schema=described).accepted
        other = schema(network, 1 - good)
        assert not vf.check(found.certificate, model=network, schema=other).accepted


@pytest.mark.parametrize("outputs", [1, 2])
def test_flips_are_the_same_whichever_class_is_favourable(outputs: int) -> None:
    """What is compared are decisions; a schema of the other class names them otherwise, and is another schema."""
    for seed in draws(8):
        network = made(seed, outputs)
        one, zero = (
            vf.verify(vf.IndividualFairness(model=network, schema=schema(network, good), protected=["sex"])) for good in (1, 0)
        )
        half = len(ROWS) // 2
        flips = favourable(network, ROWS[0::2], 1) != favourable(network, ROWS[1::2], 1)
        assert len(flips) == half
        assert one.status == zero.status == (vf.Status.VIOLATED if flips.any() else vf.Status.PROVED)


def test_labels_are_in_the_order_of_the_networks_classes() -> None:
    frame = pd.DataFrame({"a": [0, 1], "b": [0, 1], "sex": ["F", "M"], "y": ["yes", "no"]})
    network = made(0, 2)
    assert schema(network, 1).labels(frame).tolist() == [1, 0]
    assert schema(network, 0).labels(frame).tolist() == [0, 1]
    assert (schema(network, 0).class_names, schema(network, 1).class_names) == (("granted", "refused"), ("refused", "granted"))
    numbered = schema_of(*FEATURES, positive="class = 0", label="y")
    assert numbered.labels(frame.assign(y=[0, 1])).tolist() == [0, 1]


