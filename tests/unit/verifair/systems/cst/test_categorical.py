"""Categories by Gumbel-max: their frequencies, their stability, and that no answer hangs on the other rows."""

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from verifair.errors import DataError, SchemaError
from verifair.systems.cst.causal.categorical import Categorical, CategoricalMechanism
from verifair.systems.cst.causal.design import Design
from verifair.systems.cst.causal.draws import Draws
from verifair.systems.cst.causal.mechanisms import Linear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node


class Table:
    """A classifier that knows the probabilities: one row of `rows` (M, C) for each value 0, 1, ... of its one column."""

    def __init__(self, rows: Any) -> None:
        self.rows = np.asarray(rows, dtype=float)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return self.rows[x[:, 0].astype(int)]


def mechanism(rows: Any) -> CategoricalMechanism:
    classes = np.array(list("uvwxyz")[: len(rows[0])], dtype=object)
    return CategoricalMechanism(design=Design(levels={"a": None}), classifier=Table(rows), classes=classes)


def drawn(rows: Any, people: int, seed: int = 0) -> tuple[CategoricalMechanism, pd.DataFrame, pd.Series]:
    """People with a = 0 whose categories have the probabilities of that row."""
    found = mechanism(rows)
    rng = np.random.default_rng(seed)
    return found, pd.DataFrame({"a": np.zeros(people)}), pd.Series(rng.choice(found.classes, people, p=rows[0]), name="c")


@settings(max_examples=60)
@given(st.lists(st.floats(0.001, 1), min_size=8, max_size=8), st.integers(0, 10**9))
def test_abduction_gives_back_the_fact_and_categories_are_stable(weights: list[float], seed: int) -> None:
    rows = np.reshape(weights, (2, 4))
    rows /= rows.sum(axis=1, keepdims=True)
    found, before, fact = drawn(rows, 200, seed)
    noise = found.noise(before, fact, Draws.of(before.index, node="c", seed=seed))
    assert (found.value(before, noise) == fact).all()
    after = found.value(before + 1, noise)
    ratio = rows[1] / rows[0]
    for place, category in enumerate(found.classes):
        if ratio[place] >= ratio.max() - 1e-12:  # its odds fall against no other
            assert (after[fact == category] == category).all()


def test_frequencies_of_counterfactual_categories() -> None:
    """Over people, the counterfactual categories are distributed as the categories of those who are so: no bias by abduction."""
    rows = [[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]]
    people = 200_000
    found, before, fact = drawn(rows, people)
    after = found.value(before + 1, found.noise(before, fact, Draws.of(before.index, node="c", seed=3)))
    shares = pd.Series(after).value_counts(normalize=True).loc[list(found.classes)].to_numpy()
    spread = np.sqrt(np.array(rows[1]) * (1 - np.array(rows[1])) / people)
    assert (np.abs(shares - rows[1]) < 5 * spread).all()


def test_noises_are_independent_standard_gumbels_over_the_population() -> None:
    found, before, fact = drawn([[0.6, 0.3, 0.1]], 100_000)
    noise = found.noise(before, fact, Draws.of(before.index, node="c", seed=1))
    uniform = np.exp(-np.exp(-noise))
    assert np.abs(np.quantile(uniform, [0.1, 0.5, 0.9], axis=0).T - [0.1, 0.5, 0.9]).max() < 0.01
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.015


def test_counterfactual_given_the_fact_agrees_with_rejection_sampling() -> None:
    """Those who are 'v': the share of each category had a been 1, against Gumbels drawn freely and kept where they give 'v'."""
    rows = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    gumbel = np.random.default_rng(5).gumbel(size=(400_000, 3))
    kept = gumbel[(np.log(rows[0]) + gumbel).argmax(axis=1) == 1]
    expected = np.bincount((np.log(rows[1]) + kept).argmax(axis=1), minlength=3) / len(kept)
    found = mechanism(rows)
    before, fact = pd.DataFrame({"a": np.zeros(100_000)}), pd.Series(["v"] * 100_000, name="c")
    after = found.value(before + 1, found.noise(before, fact, Draws.of(before.index, node="c", seed=0)))
    shares = pd.Series(after).value_counts(normalize=True).reindex(list(found.classes), fill_value=0).to_numpy()
    np.testing.assert_allclose(shares, expected, atol=0.008)


def test_probabilities_of_zero_and_one() -> None:
    found = mechanism([[1.0, 0.0], [0.0, 1.0]])
    before = pd.DataFrame({"a": np.zeros(50)})
    for category, expected in (("u", "v"), ("v", "v")):  # 'v' was observed although the classifier gives it 0
        fact = pd.Series([category] * 50, name="c")
        noise = found.noise(before, fact, Draws.of(before.index, node="c", seed=0))
        assert np.isfinite(noise).all()
        assert (found.value(before + 1, noise) == expected).all()


def table(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows)
    job = np.where(rng.random(rows) < np.where(sex == "m", 0.7, 0.3), "office", rng.choice(["farm", "shop"], rows))
    return pd.DataFrame({"sex": sex, "job": job, "pay": (job == "office") * 10.0 + (sex == "m") + rng.normal(size=rows)})


def model() -> CausalModel:
    return CausalModel(nodes=(
        Node(name="sex"),
        Node(name="job", parents=("sex",), mechanism=Categorical()),
        Node(name="pay", parents=("job", "sex"), mechanism=Linear()),
    ))


def test_neither_order_nor_company_changes_an_answer() -> None:
    frame = table()
    fitted = model().fit(frame)
    found = fitted.counterfactual(frame, {"sex": "m"}, seed=4)
    assert (found["job"] != frame["job"]).sum() > 20
    mixed = frame.sample(frac=1, random_state=1)
    assert fitted.counterfactual(mixed, {"sex": "m"}, seed=4).loc[frame.index].equals(found)
    few = frame.iloc[[3, 77, 200]]
    assert fitted.counterfactual(few, {"sex": "m"}, seed=4).equals(found.iloc[[3, 77, 200]])
    other = CausalModel(nodes=model().nodes[::-1]).fit(frame)
    assert other.counterfactual(frame, {"sex": "m"}, seed=4).equals(found)
    assert not fitted.counterfactual(frame, {"sex": "m"}, seed=5).equals(found)


def test_nodes_have_noises_of_their_own() -> None:
    index = pd.RangeIndex(20_000)
    first, second = (Draws.of(index, node=node, seed=0).uniform(2) for node in ("job", "town"))
    assert np.abs(np.corrcoef(first.T, second.T) - np.eye(4)).max() < 0.03
    later = Draws.of(index, node="job", seed=1).uniform(2)
    assert np.abs(np.corrcoef(first.T, later.T) - np.eye(4)).max() < 0.03


def test_unchanged_parents_keep_the_category() -> None:
    frame = table()
    found = model().fit(frame).counterfactual(frame, {"sex": "m"})
    men = frame["sex"] == "m"
    assert found[men].equals(frame[men])
    same = (found["job"] == frame["job"]) & ~men
    np.testing.assert_allclose((found["pay"] - frame["pay"])[same].std(), 0, atol=1e-12)


def test_rows_that_share_a_label_have_their_own_noise() -> None:
    frame = pd.DataFrame({"sex": ["f"] * 500, "job": ["farm"] * 500}, index=[7] * 500)
    nodes = (Node(name="sex"), Node(name="job", parents=("sex",), mechanism=Categorical()))
    found = CausalModel(nodes=nodes).fit(table()).counterfactual(frame, {"sex": "m"})
    assert 0.1 < (found["job"] == "office").mean() < 0.9


@pytest.mark.parametrize("dtype", ["category", object, "str"])
def test_types_of_words_are_kept(dtype: Any) -> None:
    frame = table().astype({"sex": dtype, "job": dtype})
    found = model().fit(frame).counterfactual(frame, {"sex": "m"})
    assert found.dtypes.tolist() == frame.dtypes.tolist()
    assert found["job"].astype(str).tolist() == model().fit(table()).counterfactual(table(), {"sex": "m"})["job"].tolist()


@pytest.mark.parametrize("categories", [[0, 1, 2], [False, True, True], [1.5, 2.5, 3.5]])
def test_categories_that_are_numbers(categories: list[Any]) -> None:
    frame = table()
    code = frame["job"].map(dict(zip(["farm", "shop", "office"], categories, strict=True))).infer_objects()
    fitted = CausalModel(nodes=model().nodes[:2]).fit(frame.assign(job=code))
    found = fitted.counterfactual(frame.assign(job=code), {"sex": "m"})
    assert found["job"].dtype == code.dtype
    assert set(found["job"]) <= set(categories)
    assert (found["job"] != code).any()


def test_any_classifier_with_probabilities() -> None:
    frame = table()
    node = Node(name="job", parents=("sex",), mechanism=Categorical(classifier=DecisionTreeClassifier()))
    fitted = CausalModel(nodes=(Node(name="sex"), node)).fit(frame).fitted["job"]
    assert isinstance(fitted, CategoricalMechanism)
    shares = pd.crosstab(frame["sex"], frame["job"], normalize="index").loc["f"]
    np.testing.assert_allclose(fitted.classifier.predict_proba(np.zeros((1, 1)))[0], shares[list(fitted.classes)])


def test_distinct_rows_with_weights_are_all_rows() -> None:
    parents, child = table()[["sex"]].assign(age=np.arange(len(table())) % 5), table()["job"]
    every = Categorical(classifier=make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)))
    found, expected = (one.fit(parents, child, seed=0)._probabilities(parents) for one in (Categorical(), every))
    assert len(parents.assign(job=child).drop_duplicates()) < len(parents) / 2
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_one_copy_of_the_design_is_held() -> None:
    """60,000 distinct rows of 48 columns: 23 MB."""
    rng = np.random.default_rng(0)
    parents = pd.DataFrame({"number": rng.normal(size=60_000), "town": rng.integers(48, size=60_000).astype(str)})
    child = pd.Series(rng.choice(["farm", "office"], len(parents)), name="job")
    tracemalloc.start()
    Categorical().fit(parents, child, seed=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * 60_000 * 48 * 8


def test_what_is_refused() -> None:
    frame = table()
    fitted = model().fit(frame)
    with pytest.raises(DataError, match="category 'mine' is not among those the model was fitted on, farm, office, shop"):
        fitted.counterfactual(frame.assign(job=frame["job"].replace("shop", "mine")), {"sex": "m"})
    with pytest.raises(DataError, match="1 different values; a categorical node has 2 to"):
        model().fit(frame.assign(job="farm"))
    with pytest.raises(DataError, match="node 'job': a value is no category"):
        model().fit(frame.assign(job=[["farm"]] * len(frame)))
    with pytest.raises(DataError, match=r'400 different values.*mechanism = "linear"'):
        CausalModel(nodes=(Node(name="sex"), Node(name="pay", parents=("sex",), mechanism=Categorical()))).fit(frame)
    node = Node(name="job", parents=("sex",), mechanism=Categorical(classifier=LinearRegression()))
    with pytest.raises(SchemaError, match="pass a scikit-learn classifier with predict_proba"):
        CausalModel(nodes=(Node(name="sex"), node)).fit(frame)
