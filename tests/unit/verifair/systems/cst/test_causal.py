"""The causal model: fits, counterfactuals and what is refused."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

from verifair.errors import DataError, QueryError, SchemaError
from verifair.systems import groups
from verifair.systems.cst.causal.categorical import Categorical
from verifair.systems.cst.causal.draws import Draws
from verifair.systems.cst.causal.mechanisms import Additive, Linear, LinearMechanism, LogLinear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node


def chain(**options: object) -> CausalModel:
    """a -> x -> y, a -> y, with given coefficients; z is nobody's child."""
    return CausalModel(nodes=(
        Node(name="y", parents=("x", "a"), mechanism=Linear(coefficients={"x": 2.0, "a": 10.0})),
        Node(name="x", parents=("a",), mechanism=Linear(coefficients={"a": -3.0}, intercept=1.0)),
        Node(name="a"),
        Node(name="z"),
    ))


def people(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, rows)
    x = 1.0 - 3.0 * a + rng.normal(size=rows)
    return pd.DataFrame({"a": a, "x": x, "y": 5 + 2 * x + 10 * a + rng.normal(size=rows), "z": rng.normal(size=rows)})


def test_hand_computed_counterfactual() -> None:
    frame = pd.DataFrame({"a": [1, 0], "x": [4.0, 7.0], "y": [20.0, 1.5], "z": [0.0, 0.0]}, index=["p", "q"])
    found = chain().fit(frame).counterfactual(frame, {"a": 0})
    # x: U = 4 - (1 - 3) = 6, so 1 + 6 = 7.   y: U = 20 - (8 + 10) = 2, so 2 * 7 + 0 + 2 = 16
    assert found.loc["p"].tolist() == [0, 7.0, 16.0, 0.0]
    assert found.loc["q"].tolist() == frame.loc["q"].tolist()
    assert found["a"].dtype == frame["a"].dtype


def test_only_descendants_change() -> None:
    frame = people()
    model = chain().fit(frame)
    found = model.counterfactual(frame, {"a": 1})
    assert model.descendants("a") == ("x", "y")
    assert model.order.index("a") < model.order.index("x") < model.order.index("y")
    rows = frame["a"].to_numpy() == 0
    assert (found["x"] != frame["x"]).to_numpy().tolist() == rows.tolist()
    assert (found["y"] != frame["y"]).to_numpy().tolist() == rows.tolist()
    assert found["z"].equals(frame["z"])
    assert found.columns.tolist() == frame.columns.tolist()


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e9]))
def test_there_and_back_is_the_original(seed: int, size: float) -> None:
    frame = people(50, seed) * [1, size, 1, 1]
    model = CausalModel(
        nodes=(Node(name="a"), Node(name="x", parents=("a",)), Node(name="y", parents=("x", "a")), Node(name="z"))
    ).fit(frame)
    there = model.counterfactual(frame, {"a": 1})
    women = frame["a"] == 0
    back = model.counterfactual(there[women], {"a": 0})
    scale = frame.abs().max()
    assert ((back - frame[women]).abs() <= 1e-9 * scale).all(axis=None)
    assert there[~women].equals(frame[~women])


def test_ordinary_least_squares_with_errors_agree_with_the_normal_equations() -> None:
    frame = people()
    fitted = (
        CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",)), Node(name="y", parents=("x", "a"))))
        .fit(frame)
        .fitted["y"]
    )
    assert isinstance(fitted, LinearMechanism)
    design = np.column_stack((np.ones(len(frame)), frame["x"], frame["a"]))
    beta = np.linalg.solve(design.T @ design, design.T @ frame["y"])
    variance = ((frame["y"] - design @ beta) ** 2).sum() / (len(frame) - 3)
    found = fitted.coefficients
    assert found.names == ("intercept", "x", "a")
    assert found.degrees == len(frame) - 3
    np.testing.assert_allclose(found.estimates, beta, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(design.T @ design) * variance, rtol=1e-9)
    np.testing.assert_allclose(found.standard_errors, np.sqrt(np.diag(found.covariance)))


def test_a_column_that_hardly_varies_around_a_huge_mean() -> None:
    rng = np.random.default_rng(4)
    steps = rng.integers(0, 4, 1001)
    frame = pd.DataFrame({"x": 1e9 + 0.1 + steps * 2.0**-20, "y": 5.0 * steps + rng.integers(0, 2, 1001)})
    centred = frame["x"] - frame["x"].iloc[0]  # exact
    expected = ((centred - centred.mean()) @ (frame["y"] - frame["y"].mean())) / ((centred - centred.mean()) ** 2).sum()
    fitted = CausalModel(nodes=(Node(name="x"), Node(name="y", parents=("x",)))).fit(frame).fitted["y"]
    assert isinstance(fitted, LinearMechanism)
    assert fitted.coefficients.estimates[1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1.7e308])
@pytest.mark.parametrize("column", ["x", "y"])
def test_numbers_without_squares_cannot_be_fitted(column: str, size: float) -> None:
    """Parents were called constant, or combinations of nothing; coefficients of children had errors of 0."""
    frame = people(50)
    frame[column] *= size / frame[column].abs().max()
    model = CausalModel(nodes=(Node(name="a"), Node(name="x"), Node(name="y", parents=("x", "a"))))
    with pytest.raises(DataError, match=f"column '{column}' has numbers up to .*: use another unit"):
        model.fit(frame)


def test_blocks_of_rows_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = people(101).assign(w=lambda table: np.where(table["z"] > table["a"], "p", "q"), n=lambda table: 1 + table["x"] ** 2)
    model = CausalModel(nodes=(
        Node(name="a"), Node(name="z"), Node(name="w", parents=("a", "z"), mechanism=Categorical()),
        Node(name="x", parents=("a", "w")), Node(name="n", parents=("x", "w"), mechanism=LogLinear()),
    ))
    whole = model.fit(frame)
    monkeypatch.setattr(groups, "ROWS", 7)
    found = model.fit(frame)
    for name in ("x", "n"):
        mine, theirs = (fitted.fitted[name].coefficients for fitted in (found, whole))  # type: ignore[attr-defined]
        np.testing.assert_allclose(mine.estimates, theirs.estimates, rtol=1e-9)
        np.testing.assert_allclose(mine.covariance, theirs.covariance, rtol=1e-7)
    one, other = (fitted.counterfactual(frame, {"a": 1}) for fitted in (found, whole))
    assert (one["w"] != frame["w"]).any()
    pd.testing.assert_frame_equal(one, other, rtol=1e-9)


def test_columns_of_very_different_sizes() -> None:
    rng = np.random.default_rng(1)
    rows = 500
    frame = pd.DataFrame({"big": 1e9 + 1e3 * rng.normal(size=rows), "small": 1e-3 * rng.normal(size=rows)})
    frame["y"] = 2e-3 * frame["big"] + 4e3 * frame["small"] + 1e-6 * rng.normal(size=rows)
    model = CausalModel(nodes=(Node(name="big"), Node(name="small"), Node(name="y", parents=("big", "small")))).fit(frame)
    fitted = model.fitted["y"]
    assert isinstance(fitted, LinearMechanism)
    np.testing.assert_allclose(fitted.coefficients.estimates[1:], [2e-3, 4e3], rtol=1e-6)
    assert fitted.residual_sd == pytest.approx(1e-6, rel=0.2)


@pytest.mark.parametrize(("nodes", "message"), [
    ((), "no nodes"),
    ((Node(name="a", parents=("b",)), Node(name="b", parents=("a",))), r"cycle: (a -> b -> a|b -> a -> b);"),
    ((Node(name="a", parents=("a",)),), "cycle: a -> a;"),
    ((Node(name="gender"), Node(name="x", parents=("gendre",))), "parent 'gendre' is no node; did you mean 'gender'"),
    ((Node(name="a"), Node(name="a")), "described twice"),
])
def test_impossible_graphs(nodes: tuple[Node, ...], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        CausalModel(nodes=nodes)


def test_impossible_nodes() -> None:
    with pytest.raises(SchemaError, match="parents name 'a' twice"):
        Node(name="x", parents=("a", "a"))
    with pytest.raises(SchemaError, match="reversed"):
        Node(name="x", range=(2, 1))


def test_tables_that_do_not_fit() -> None:
    frame = people()
    model = chain()
    with pytest.raises(DataError, match=r"node 'y': is no column.*hidden"):
        model.fit(frame.drop(columns="y"))
    with pytest.raises(DataError, match="no rows"):
        model.fit(frame.iloc[:0])
    with pytest.raises(DataError, match="stands 2 times"):
        model.fit(pd.concat([frame, frame[["x"]]], axis=1))
    with pytest.raises(DataError, match=r"column 'x': 1 of 200 rows have no value, the first is row 7"):
        model.fit(frame.assign(x=frame["x"].where(frame.index != 7)))
    with pytest.raises(DataError, match="infinite"):
        model.fit(frame.assign(x=frame["x"].where(frame.index != 7, np.inf)))
    with pytest.raises(DataError, match="dates"):
        model.fit(frame.assign(z=pd.Timestamp("2020-01-01")))
    with pytest.raises(DataError, match=r"column 'x': holds .* needs numbers"):
        CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",)))).fit(frame.assign(x="high"))


def test_questions_that_cannot_be_asked() -> None:
    frame = people()
    model = chain().fit(frame)
    with pytest.raises(QueryError, match=r"a = 2: no row has that value; known are 0, 1"):
        model.counterfactual(frame, {"a": 2})
    with pytest.raises(QueryError, match=r"'x': has the parent a, but a protected attribute has to be a root"):
        model.counterfactual(frame, {"x": 1.0})
    with pytest.raises(QueryError, match=r"'A': is no node"):
        model.counterfactual(frame, {"A": 1})
    with pytest.raises(QueryError, match="names no attribute"):
        model.counterfactual(frame, {})
    with pytest.raises(QueryError, match="not fitted"):
        chain().counterfactual(frame, {"a": 0})
    with pytest.raises(QueryError, match="no node"):
        model.descendants("b")


def test_values_are_matched_by_their_words() -> None:
    frame = people()
    model = chain().fit(frame)
    expected = model.counterfactual(frame, {"a": 0})
    for value in ("0", 0.0, False, " 0"):
        assert model.counterfactual(frame, {"a": value}).equals(expected)
    truth = frame.assign(a=frame["a"].astype(bool))
    for value in (False, 0, "false", "False"):
        found = chain().fit(truth).counterfactual(truth, {"a": value})
        assert found["a"].dtype == bool
        assert found["y"].equals(expected["y"])


def test_a_value_that_only_the_fitted_rows_have() -> None:
    frame = people()
    model = chain().fit(frame)
    women = frame[frame["a"] == 1]
    assert model.counterfactual(women, {"a": 0}).equals(model.counterfactual(frame, {"a": 0}).loc[women.index])


def test_collinear_and_constant_parents() -> None:
    frame = people().assign(w=lambda f: 2 * f["a"] + 1, one=1.0)
    with pytest.raises(DataError, match=r"node 'y': parent '(w|a)' is a combination of '(a|w)' in these rows"):
        CausalModel(nodes=(Node(name="a"), Node(name="w"), Node(name="y", parents=("a", "w")))).fit(frame)
    with pytest.raises(DataError, match=r"node 'y': parent 'one' has the same value in every row"):
        CausalModel(nodes=(Node(name="one"), Node(name="y", parents=("one",)))).fit(frame)
    with pytest.raises(DataError, match=r"parent 'a' has the same value"):
        CausalModel(nodes=(Node(name="a"), Node(name="y", parents=("a",)))).fit(frame[frame["a"] == 0])
    with pytest.raises(DataError, match="2 rows are too few"):
        CausalModel(nodes=(Node(name="a"), Node(name="y", parents=("a",)))).fit(frame.drop_duplicates("a"))


def test_range_and_decimals_bind_predictions_only() -> None:
    frame = pd.DataFrame({"a": [0, 1, 1, 0], "x": [9.0, 1.0, 3.333, -5.0]})
    node = Node(name="x", parents=("a",), mechanism=Linear(coefficients={"a": 2.0}), range=(0, 4), decimals=1)
    model = CausalModel(nodes=(Node(name="a"), node)).fit(frame)
    assert model.counterfactual(frame, {"a": 0})["x"].tolist() == [9.0, 0.0, 1.3, -5.0]
    assert model.equations()[1] == "x = 2.000 a + U, rounded to 1 decimals, clipped to [0, 4]"


def test_types_of_columns_are_kept_where_they_can_be() -> None:
    frame = pd.DataFrame({"a": pd.Categorical(["f", "m", "f", "m"]), "n": [1, 2, 3, 5], "s": np.float32([1.5, 2, 3, 4])})
    model = CausalModel(nodes=(
        Node(name="a"),
        Node(name="n", parents=("a",), mechanism=Linear(coefficients={"a": {"m": 2}})),
        Node(name="s", parents=("n",), mechanism=Linear(coefficients={"n": 0.5})),
    )).fit(frame)
    found = model.counterfactual(frame, {"a": "m"})
    assert found.dtypes.tolist() == frame.dtypes.tolist()
    assert found["n"].tolist() == [3, 2, 5, 5]
    assert found["s"].tolist() == [2.5, 2.0, 4.0, 4.0]
    half = CausalModel(nodes=(Node(name="a"), Node(name="n", parents=("a",), mechanism=Linear(coefficients={"a": {"m": 0.5}}))))
    assert half.fit(frame).counterfactual(frame, {"a": "m"})["n"].tolist() == [1.5, 2.0, 3.5, 5.0]


def test_words_as_parents() -> None:
    rng = np.random.default_rng(2)
    group = rng.choice(["black", "hispanic", "white"], 300)
    effect = pd.Series({"black": -5.0, "hispanic": -2.0, "white": 0.0})
    frame = pd.DataFrame({"race": group, "x": 10 + effect[group].to_numpy() + rng.normal(size=300)})
    default = CausalModel(nodes=(Node(name="race"), Node(name="x", parents=("race",)))).fit(frame)
    named = CausalModel(
        nodes=(Node(name="race"), Node(name="x", parents=("race",), mechanism=Linear(reference={"race": "white"})))
    ).fit(frame)
    assert default.fitted["x"].coefficients.names == ("intercept", "race = hispanic", "race = white")  # type: ignore[attr-defined]
    assert named.fitted["x"].coefficients.names == ("intercept", "race = black", "race = hispanic")  # type: ignore[attr-defined]
    means = frame.groupby("race")["x"].mean()
    np.testing.assert_allclose(
        named.fitted["x"].coefficients.estimates,  # type: ignore[attr-defined]
        [means["white"], means["black"] - means["white"], means["hispanic"] - means["white"]],
    )
    for model in (default, named):
        found = model.counterfactual(frame, {"race": "white"})
        np.testing.assert_allclose(found["x"], frame["x"] + means["white"] - means[group].to_numpy())
    with pytest.raises(DataError, match="'asian' is not among the words"):
        default.counterfactual(frame.assign(race=frame["race"].where(frame.index > 0, "asian")), {"race": "white"})
    with pytest.raises(SchemaError, match="no row has 'White'"):
        CausalModel(
            nodes=(Node(name="race"), Node(name="x", parents=("race",), mechanism=Linear(reference={"race": "White"})))
        ).fit(frame)


def test_log_linear_noise_stands_in_the_exponent() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, 4000)
    frame = pd.DataFrame({"a": a, "x": rng.poisson(np.exp(2.5 - 0.4 * a))}).query("x > 0")
    model = CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",), mechanism=LogLinear()))).fit(frame)
    means = frame.groupby("a")["x"].mean()
    found = model.fitted["x"].coefficients  # type: ignore[attr-defined]
    np.testing.assert_allclose(found.estimates, [np.log(means[0]), np.log(means[1] / means[0])], rtol=1e-6)
    # two groups, log link: var = dispersion (1 / sum of the one group + 1 / sum of the other)
    sums, rates = frame.groupby("a")["x"].sum(), frame["a"].map(means)
    dispersion = ((frame["x"] - rates) ** 2 / rates).sum() / (len(frame) - 2)
    assert found.standard_errors[1] == pytest.approx(np.sqrt(dispersion * (1 / sums[0] + 1 / sums[1])), rel=1e-6)
    assert found.standard_errors[0] == pytest.approx(np.sqrt(dispersion / sums[0]), rel=1e-6)
    cf = model.counterfactual(frame, {"a": 0})
    np.testing.assert_allclose(cf["x"], np.where(frame["a"] == 1, frame["x"] * means[0] / means[1], frame["x"]), rtol=1e-6)
    with pytest.raises(DataError, match=r"1 of .* rows hold 0 or less, such as row 999999 with 0"):
        model.counterfactual(pd.concat([frame, pd.DataFrame({"a": [1], "x": [0]}, index=[999999])]), {"a": 0})


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e4, 1e9])
def test_log_linear_fits_in_any_unit(unit: float) -> None:
    rng = np.random.default_rng(4)
    a = rng.integers(0, 2, 300)
    frame = pd.DataFrame({"a": a, "x": unit * rng.lognormal(0, 3, 300)})
    model = CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",), mechanism=LogLinear()))).fit(frame)
    means = frame.groupby("a")["x"].mean()
    found = model.fitted["x"].coefficients  # type: ignore[attr-defined]
    np.testing.assert_allclose(found.estimates, [np.log(means[0]), np.log(means[1] / means[0])], atol=1e-7)


def test_log_linear_needs_a_row_above_zero() -> None:
    frame = pd.DataFrame({"a": [0, 1] * 10, "x": [0.0] * 20})
    with pytest.raises(DataError, match=r"'x': all rows are 0; a log-linear mechanism needs x > 0"):
        CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",), mechanism=LogLinear()))).fit(frame)


def test_any_regressor_or_callable() -> None:
    frame = people()
    plain = CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",)))).fit(frame).counterfactual(frame, {"a": 0})
    for function in (LinearRegression(), lambda parents: -3.0 * parents["a"]):
        model = CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",), mechanism=Additive(function=function))))
        found = model.fit(frame).counterfactual(frame, {"a": 0})
        slope = (found["x"] - frame["x"])[frame["a"] == 1]
        np.testing.assert_allclose(slope, slope.iloc[0])
        if isinstance(function, LinearRegression):
            np.testing.assert_allclose(found["x"], plain["x"])
        else:
            np.testing.assert_allclose(slope, 3.0)
    bad = CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",), mechanism=Additive(function=lambda p: [1.0])))).fit(
        frame
    )
    with pytest.raises(DataError, match="one finite number a row"):
        bad.counterfactual(frame, {"a": 0})
    with pytest.raises(SchemaError, match="pass a scikit-learn regressor or a callable"):
        CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",), mechanism=Additive(function=3)))).fit(frame)


def test_given_coefficients_are_checked() -> None:
    frame = people().assign(race="white")
    frame.loc[:50, "race"] = "black"

    def node(coefficients: dict[str, object]) -> CausalModel:
        mechanism = Linear(coefficients=coefficients)  # type: ignore[arg-type]
        return CausalModel(nodes=(Node(name="a"), Node(name="race"), Node(name="y", parents=("a", "race"), mechanism=mechanism)))

    with pytest.raises(SchemaError, match="but the parents are a, race"):
        node({"a": 1.0}).fit(frame)
    with pytest.raises(SchemaError, match="needs a table of words"):
        node({"a": 1.0, "race": 2.0}).fit(frame)
    with pytest.raises(SchemaError, match="needs one number"):
        node({"a": {"x": 1.0}, "race": {"black": 1.0}}).fit(frame)
    with pytest.raises(SchemaError, match="leave out black, white; only one word"):
        node({"a": 1.0, "race": {"blakc": 1.0}}).fit(frame)
    found = node({"a": 1.0, "race": {"black": -4.0}}).fit(frame).counterfactual(frame, {"race": "white"})
    np.testing.assert_allclose((found["y"] - frame["y"]).iloc[:51], 4.0)


def test_a_parent_of_one_value_is_refused_by_every_fit() -> None:
    frame = people().assign(race="white")
    for mechanism in (Linear(), LogLinear(), Additive(function=LinearRegression()), Categorical()):
        model = CausalModel(nodes=(Node(name="race"), Node(name="x", parents=("race",), mechanism=mechanism)))
        with pytest.raises(DataError, match="node 'x': parent 'race' has the same value in every row"):
            model.fit(frame.assign(x=(frame["x"] > 0).astype(int)))


def test_nodes_and_tables_of_the_wrong_type() -> None:
    with pytest.raises(SchemaError, match=r"parents are several.*parents=\(\"sex\",\)"):
        Node(name="x", parents="sex")  # type: ignore[arg-type]
    for mechanism in ("linear", Linear):
        with pytest.raises(SchemaError, match=r"pass one of Linear\(\)"):
            Node(name="x", parents=("sex",), mechanism=mechanism)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="found ndarray; expected a DataFrame"):
        chain().fit(people().to_numpy())  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="names no attribute"):
        chain().fit(people()).counterfactual(people(), "a")  # type: ignore[arg-type]


def test_whole_numbers_beyond_their_type_become_floats() -> None:
    frame = pd.DataFrame({"a": [0, 1, 1], "x": np.array([250, 3, 200], dtype=np.uint8)})

    def found(weight: float) -> pd.Series:
        node = Node(name="x", parents=("a",), mechanism=Linear(coefficients={"a": weight}))
        return CausalModel(nodes=(Node(name="a"), node)).fit(frame).counterfactual(frame, {"a": 1})["x"]

    assert (found(5.0).tolist(), found(5.0).dtype) == ([255, 3, 200], np.uint8)
    assert found(6.0).tolist() == [256.0, 3.0, 200.0]
    assert found(-251.0).tolist() == [-1.0, 3.0, 200.0]


@settings(max_examples=40)
@given(st.integers(0, 10**9), st.integers(2, 7), st.booleans())
def test_any_linear_graph_against_its_total_effects(seed: int, size: int, fitted: bool) -> None:
    """W = B W + U, so do(root) moves everything by (I - B)^-1 times the root's change: another way to the same counterfactual."""
    rng = np.random.default_rng(seed)
    names = [f"n{i}" for i in range(size)]
    weights = np.tril(rng.normal(size=(size, size)) * (rng.random((size, size)) < 0.6), k=-1)
    u = rng.normal(size=(60, size))
    u[:, 0] = rng.integers(0, 2, 60)
    frame = pd.DataFrame(u @ np.linalg.inv(np.eye(size) - weights).T, columns=names, index=rng.permutation(60)).assign(n0=u[:, 0])
    nodes = []
    for row, name in enumerate(names):
        parents = tuple(names[i] for i in np.flatnonzero(weights[row]))
        given = {parent: float(weights[row, names.index(parent)]) for parent in parents}
        nodes.append(Node(name=name, parents=parents, mechanism=Linear(coefficients=None if fitted else given)))
    model = CausalModel(nodes=tuple(nodes[i] for i in rng.permutation(size))).fit(frame)
    used = np.zeros((size, size))
    for name, mechanism in model.fitted.items():
        assert isinstance(mechanism, LinearMechanism)
        for term, weight in zip(mechanism.coefficients.names[1:], mechanism.coefficients.estimates[1:], strict=True):
            used[names.index(name), names.index(term)] = weight
    total = np.linalg.inv(np.eye(size) - used)[:, 0]
    before = frame.copy(deep=True)
    found = model.counterfactual(frame, {"n0": 1})
    pd.testing.assert_frame_equal(frame, before)
    np.testing.assert_allclose(found, frame + np.outer(1 - frame["n0"], total), atol=1e-9 * (1 + np.abs(total).max()))
    reached = {"n0", *model.descendants("n0")}
    own = frame["n0"] == 1
    assert found[own].equals(frame[own])
    assert all(found[name].equals(frame[name]) for name in names if name not in reached)
    assert all((found.loc[~own, name] != frame.loc[~own, name]).all() for name in reached if abs(total[names.index(name)]) > 1e-6)


def test_one_word_written_in_two_ways() -> None:
    frame = people().assign(a=lambda f: f["a"].map({0: "Male", 1: "Female"}))
    frame.loc[5, "a"] = " Male"
    model = CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",))))
    with pytest.raises(DataError, match="column 'a': writes one value in two ways"):
        model.fit(frame).counterfactual(frame, {"a": "Male"})


def test_a_fitted_model_can_be_sent_to_another_process() -> None:
    frame = people()
    mechanisms = (Additive(function=RandomForestRegressor(n_estimators=5)), Linear())
    for mechanism in mechanisms:
        model = CausalModel(nodes=(Node(name="a"), Node(name="x", parents=("a",), mechanism=mechanism))).fit(frame)
        sent = pickle.loads(pickle.dumps(model))
        assert sent.counterfactual(frame, {"a": 0}).equals(model.counterfactual(frame, {"a": 0}))


def test_estimators_that_draw_follow_the_seed() -> None:
    frame = people()
    node = Node(name="x", parents=("z", "a"), mechanism=Additive(function=RandomForestRegressor(n_estimators=5)))
    model = CausalModel(nodes=(Node(name="a"), Node(name="z"), node))
    first, again, other = (model.fit(frame, seed=seed).counterfactual(frame, {"a": 0}) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)
    own = Node(name="x", parents=("z", "a"), mechanism=Additive(function=RandomForestRegressor(n_estimators=5, random_state=1)))
    chosen = CausalModel(nodes=(Node(name="a"), Node(name="z"), own)).fit(frame, seed=2)
    assert chosen.counterfactual(frame, {"a": 0}).equals(first)


def test_joint_intervention() -> None:
    frame = people().assign(b=lambda f: (f["z"] > 0).astype(int))
    model = CausalModel(nodes=(
        Node(name="a"),
        Node(name="b"),
        Node(name="y", parents=("a", "b"), mechanism=Linear(coefficients={"a": 1.0, "b": 10.0})),
    )).fit(frame)
    found = model.counterfactual(frame, {"a": 0, "b": 1})
    np.testing.assert_allclose(found["y"] - frame["y"], -frame["a"] + 10 * (1 - frame["b"]), atol=1e-12)
    assert found["a"].eq(0).all()
    assert found["b"].eq(1).all()


def test_transitions_of_categories_are_what_draws_give() -> None:
    """The closed form beside 20,000 draws of the noise, and where no probability moves."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.choice(["f", "m"], 400), "z": rng.normal(size=400)})
    sums = np.stack([0 * frame["z"], 1.2 * (frame["a"] == "m") + frame["z"], 0.5 - (frame["a"] == "m"), -1 + frame["z"] / 3], 1)
    child = pd.Series(np.array(["p", "q", "r", "s"])[(sums + rng.gumbel(size=(400, 4))).argmax(axis=1)], name="c")
    mechanism = Categorical().fit(frame, child, seed=0)
    other = frame.assign(a="m", z=frame["z"] - 0.5)
    found = mechanism.transitions(frame, child, other)
    assert np.allclose(found.sum(axis=1), 1)
    for row in range(6):
        index = pd.RangeIndex(20_000)
        own, moved = (one.iloc[[row] * len(index)].set_index(index) for one in (frame, other))
        fact = child.iloc[[row] * len(index)].set_axis(index)
        drawn = mechanism.value(moved, mechanism.noise(own, fact, Draws.of(index, node="c", seed=row)))
        shares = [(drawn == name).mean() for name in mechanism.classes]
        assert np.allclose(shares, found[row], atol=0.016)  # 4.5 standard errors
    still = mechanism.transitions(frame, child, frame)
    assert np.allclose(still, child.to_numpy()[:, None] == mechanism.classes)
