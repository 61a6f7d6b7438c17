"""Causal models from elsewhere: their TOML, what it says and how it says what is wrong, and DoWhy's models."""

import sys
import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from verifair.errors import MissingPackage, SchemaError
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.categorical import Categorical
from verifair.systems.cst.causal.dowhy_adapter import from_dowhy
from verifair.systems.cst.causal.mechanisms import Additive, Linear, LinearMechanism, LogLinear
from verifair.systems.cst.causal.model import CausalModel

LOAN = """
[[causal.node]]
name = "gender"
[[causal.node]]
name = "salary"
parents = ["gender"]
mechanism = "linear"
coefficients = { gender = -15796.351 }
intercept = 100655.288
[[causal.node]]
name = "balance"
parents = ["salary", "gender"]
range = [0, 48.5]
decimals = 2
[situation]
do = { gender = 0 }
attributes = ["salary", "balance"]
k = [15, 30]
level = 0.95
[decision]
column = "approved"
positive = 1
weights = { salary = 1, balance = 5 }
above = 225000
"""


def test_what_the_file_says() -> None:
    found = causal_file.loads(LOAN)
    gender, salary, balance = found.nodes
    assert (gender.name, gender.parents) == ("gender", ())
    assert isinstance(salary.mechanism, Linear)
    assert salary.mechanism.coefficients == {"gender": -15796.351}
    assert salary.mechanism.intercept == 100655.288
    assert (balance.range, balance.decimals) == ((0, 48.5), 2)
    assert found.situation.do == {"gender": 0}
    assert found.situation.attributes == ("salary", "balance")
    assert found.situation.k == (15, 30)
    assert "tau" not in found.situation.model_fields_set
    assert (found.decision.column, found.decision.positive, found.decision.above) == ("approved", 1, 225000)
    assert found.decision.weights == {"salary": 1, "balance": 5}
    assert CausalModel.loads(LOAN).graph.edges == {("gender", "salary"), ("salary", "balance"), ("gender", "balance")}


def test_mechanisms_by_name() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(["f", "m"], 400)})
    shift = (frame["a"] == "m").astype(float)
    frame["linear"] = shift + rng.normal(size=400)
    frame["log-linear"] = rng.poisson(np.exp(2 + shift)) + 1
    frame["forest"] = frame["boosting"] = frame["linear"]
    frame["categorical"] = np.where(rng.random(400) < 0.3 + 0.4 * shift, "yes", "no")
    names = ["linear", "log-linear", "forest", "boosting", "categorical"]
    nodes = [{"name": "a"}, *({"name": name, "parents": ["a"], "mechanism": name} for name in names)]
    model = CausalModel.build({"causal": {"node": nodes}})
    assert [type(node.mechanism) for node in model.nodes[1:]] == [Linear, LogLinear, Additive, Additive, Categorical]
    found = model.fit(frame).counterfactual(frame, {"a": "m"})
    women = frame["a"] == "f"
    assert found[~women].equals(frame[~women].astype(found.dtypes))
    for name in names[:-1]:
        assert (found[name] > frame[name])[women].all()
    assert found["categorical"].value_counts()["yes"] > frame["categorical"].value_counts()["yes"]
    assert model.fit(frame).counterfactual(frame, {"a": "m"}).equals(found)
    for name in ("logistic", "forest", "boosting"):
        node = {"name": "categorical", "parents": ["a"], "mechanism": "categorical", "classifier": name}
        CausalModel.build({"causal": {"node": [{"name": "a"}, node]}}).fit(frame).counterfactual(frame, {"a": "m"})


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cst.toml"
    path.write_text('[[causal.node]]\nname = "a"\n[decision]\nnetwork = "nets/a.onnx"\nschema = "a.toml"\n')
    found = causal_file.load(path)
    assert found.network_path == (tmp_path / "nets" / "a.onnx").resolve()
    assert found.schema_path == (tmp_path / "a.toml").resolve()
    for outside in ("../a.onnx", "/etc/a.onnx"):
        path.write_text(f'[[causal.node]]\nname = "a"\n[decision]\nnetwork = "{outside}"\nschema = "a.toml"\n')
        with pytest.raises(SchemaError, match="leaves the folder"):
            _ = causal_file.load(path).network_path


@pytest.mark.parametrize(("old", "new", "message"), [
    ("[situation]", "[situaton]", r"unknown section \[situaton\]; did you mean 'situation'\?"),
    ("[[causal.node]]", "[[causal.nodes]]", r"no \[\[causal.node\]\] section"),
    ('parents = ["gender"]', 'parants = ["gender"]', r"node 'salary': parants: unknown key; did you mean 'parents'\?"),
    ('parents = ["gender"]', 'parents = "gender"', "node 'salary': parents: Input should be a valid list, found 'gender'"),
    ('parents = ["gender"]', 'parents = ["gendre"]', "node 'salary': coefficients name 'gender', which is no parent"),
    ('mechanism = "linear"', 'mechanism = "liner"', "node 'salary': mechanism: Input should be 'linear'"),
    ('mechanism = "linear"', 'mechanism = "forest"', "node 'salary': coefficients does not belong to a forest mechanism"),
    ('mechanism = "linear"', 'classifier = "forest"', "node 'salary': classifier belongs to a categorical mechanism"),
    ("gender = -15796.351", 'gender = "much"', "node 'salary': coefficients"),
    ("coefficients = { gender = -15796.351 }", "", "node 'salary': intercept is fitted unless coefficients are given"),
    ("range = [0, 48.5]", 'range = ["0", 48.5]', "node 'balance': range.0: Input should be a valid number, found '0'"),
    ("range = [0, 48.5]", "range = [48.5, 0]", "node 'balance': range = .* is reversed"),
    ("range = [0, 48.5]", "coefficients = { salary = 1.0 }", "node 'balance': coefficients leave out the parent 'gender'"),
    ("decimals = 2", "decimals = 2.5", "node 'balance': decimals"),
    ("decimals = 2", 'reference = { salry = "x" }', "node 'balance': reference name 'salry', which is no parent; did you mean"),
    ('name = "gender"\n', 'name = "gender"\nrange = [0, 1]\n', "node 'gender': range is not used without parents"),
    ('name = "gender"\n', "", "node number 1: name: is missing"),
    ('name = "gender"\n', 'name = "salary"\n', "node 'salary': is described twice"),
    (
        'parents = ["salary", "gender"]',
        'parents = ["salry"]',
        "node 'balance': parent 'salry' is no node; did you mean 'salary'",
    ),
    ('name = "gender"\n', 'name = "gender"\nparents = ["balance"]\n', "cycle: .* -> "),
    (
        "do = { gender = 0 }",
        "do = { gendre = 0 }",
        r"\[situation\]: do names 'gendre', which is no node; did you mean 'gender'",
    ),
    ("k = [15, 30]", "k = [0]", r"\[situation\]: k.0 = 0, expected a whole number of at least 1"),
    ("level = 0.95", "level = 95", r"\[situation\]: level = 95, expected a number above 0 and below 1"),
    ("positive = 1\n", "", r"\[decision\]: column and positive belong together"),
    ("above = 225000", "", r"\[decision\]: weights need one of above and at_least"),
    ("above = 225000", "above = 1\nat_least = 2", r"\[decision\]: weights need one of above and at_least"),
    ("weights = { salary = 1, balance = 5 }", "", r"\[decision\]: above and at_least belong to weights"),
    ("positive = 1", 'positive = 1\nnetwork = "a.onnx"', r"\[decision\]: network and schema belong together"),
    ("above = 225000", "abov = 225000", r"\[decision\]: abov: unknown key; did you mean 'above'\?"),
    ("k = [15, 30]", "k = [15, 30", "not valid TOML"),
])
def test_mistakes_are_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in LOAN
    path = tmp_path / "loan.toml"
    path.write_text(LOAN.replace(old, new) if "causal" in old else LOAN.replace(old, new, 1))
    with pytest.raises(SchemaError, match=message) as caught:
        CausalModel.load(path)
    assert all(line.startswith(str(path)) for line in str(caught.value).splitlines())


def test_all_mistakes_at_once() -> None:
    text = LOAN.replace("decimals = 2", "decimal = 2").replace("level = 0.95", 'level = "high"').replace("above", "abvoe")
    with pytest.raises(SchemaError) as caught:
        causal_file.loads(text, name="loan.toml")
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["node 'balance'", "[situation]", "[decision]"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="cannot be read"):
        CausalModel.load(tmp_path / "none.toml")


GIVEN = """
[[causal.node]]
name = "sex"
[[causal.node]]
name = "pay"
parents = ["sex"]
coefficients = { sex = { F = -10 } }
"""


def test_given_coefficients_may_have_standard_errors() -> None:
    frame = pd.DataFrame({"sex": list("FMFM"), "pay": [1.0, 2.0, 3.0, 4.0]})
    fitted = CausalModel.loads(GIVEN + "errors = { sex = { F = 2.5 } }\n").fit(frame).fitted["pay"]
    assert isinstance(fitted, LinearMechanism)
    assert fitted.coefficients.standard_errors is not None
    assert fitted.coefficients.standard_errors.tolist() == [0.0, 2.5]
    bare = CausalModel.loads(GIVEN).fit(frame).fitted["pay"]
    assert isinstance(bare, LinearMechanism)
    assert bare.coefficients.standard_errors is None


@pytest.mark.parametrize(("line", "message"), [
    ("errors = { age = 1 }", "'age', which is no parent"),
    ("errors = { sex = { M = 1 } }", "errors are of sex = M, the coefficients of sex = F"),
    ("errors = { sex = { F = -1 } }", "expected 0 or more"),
    ("errors = { sex = 1 }", "errors are of sex, the coefficients of sex = F"),
])
def test_standard_errors_that_do_not_fit(line: str, message: str) -> None:
    frame = pd.DataFrame({"sex": list("FMFM"), "pay": [1.0, 2.0, 3.0, 4.0]})
    with pytest.raises(SchemaError, match=message):
        CausalModel.loads(f"{GIVEN}{line}\n").fit(frame)


def test_standard_errors_belong_to_given_coefficients() -> None:
    with pytest.raises(SchemaError, match="errors is fitted unless coefficients are given"):
        CausalModel.loads(GIVEN.replace("coefficients", "errors"))


def test_a_file_nested_too_deeply_is_said() -> None:
    with pytest.raises(SchemaError, match="nested too deeply"):
        causal_file.loads("a = " + "[" * 20_000 + "]" * 20_000)


# The adapter of DoWhy's models against DoWhy's own counterfactuals.


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
