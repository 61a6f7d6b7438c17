"""The adapter of DoWhy's models against DoWhy's own counterfactuals."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from verifair.errors import MissingPackage, SchemaError
from verifair.systems.cst.causal.dowhy_adapter import from_dowhy


def test_without_dowhy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dowhy.gcm", None)
    with pytest.raises(MissingPackage, match="pip install"):
        from_dowhy(object())


@pytest.fixture(scope="module")
def gcm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that dowhy imports
        return pytest.importorskip("dowhy.gcm")


def people(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, rows).astype(float)
    x = np.where(a == 1, -2.0, 1.0) + rng.normal(size=rows)
    return pd.DataFrame({"a": a, "x": x, "y": np.sin(x) + 3 * a + rng.normal(size=rows), "n": np.round(4 * x + a)})


def model(gcm: Any, frame: pd.DataFrame, cls: str = "InvertibleStructuralCausalModel") -> Any:
    found = getattr(gcm, cls)(nx.DiGraph([("a", "x"), ("x", "y"), ("a", "y"), ("x", "n"), ("a", "n")]))
    found.set_causal_mechanism("a", gcm.EmpiricalDistribution())
    found.set_causal_mechanism("x", gcm.AdditiveNoiseModel(gcm.ml.create_linear_regressor()))
    found.set_causal_mechanism("y", gcm.AdditiveNoiseModel(gcm.ml.create_hist_gradient_boost_regressor()))
    found.set_causal_mechanism("n", gcm.DiscreteAdditiveNoiseModel(gcm.ml.create_linear_regressor()))
    gcm.fit(found, frame)
    return found


@pytest.mark.filterwarnings("ignore")
def test_the_same_counterfactuals(gcm: Any) -> None:
    frame = people()
    theirs = model(gcm, frame)
    expected = gcm.counterfactual_samples(theirs, {"a": lambda _: 1.0}, observed_data=frame)
    found = from_dowhy(theirs).fit(frame).counterfactual(frame, {"a": 1})
    moved = frame["a"] == 0
    for name in ("a", "x", "y", "n"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12)
        assert found.loc[~moved, name].equals(frame.loc[~moved, name])
    assert (found["x"] != frame["x"])[moved].all()
    assert from_dowhy(theirs).fit(frame).equations()[1].startswith("x = LinearRegression(a) + U")


@pytest.mark.filterwarnings("ignore")
def test_what_is_refused(gcm: Any) -> None:
    frame = people()
    with pytest.raises(SchemaError, match=r"found StructuralCausalModel, expected gcm\.InvertibleStructuralCausalModel"):
        from_dowhy(model(gcm, frame, "StructuralCausalModel"))
    other = model(gcm, frame)
    other.set_causal_mechanism("n", gcm.ClassifierFCM())
    with pytest.raises(SchemaError, match=r"node 'n': has a ClassifierFCM, expected gcm\.AdditiveNoiseModel"):
        from_dowhy(other)
    unfitted = gcm.InvertibleStructuralCausalModel(nx.DiGraph([("a", "x")]))
    with pytest.raises(SchemaError, match="node 'x': has no mechanism"):
        from_dowhy(unfitted)
    unfitted.set_causal_mechanism("x", gcm.AdditiveNoiseModel(gcm.ml.create_linear_regressor()))
    with pytest.raises(SchemaError, match=r"not fitted to these parents; call gcm\.fit"):
        from_dowhy(unfitted)
