"""What the model decides by group: rates, intervals, the four-fifths rule, and groups too small to be compared."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats.contingency import relative_risk
from sklearn.linear_model import LogisticRegression

from tests.builders import categorical, integer, random_network, schema_of
from verifair import datasets
from verifair.auditing.audit import audit
from verifair.auditing.decisions import Decisions, GroupCounts, clear, count, decisions, described, fails, rates, ratio_words
from verifair.datasets.stream import Stream
from verifair.models.compare import ImportDifference
from verifair.schema.rows import LabelWarning
from verifair.systems.fgce.findings import _of_means
from verifair.systems.groups import SMALL
from verifair.systems.results.findings import Tone


def decided(**groups: tuple[int, int]) -> Decisions:
    """Groups of people, of whom so many are decided favourably: name = (people, favourable)."""
    group = pd.Series([name for name, (people, _) in groups.items() for _ in range(people)])
    favoured = np.array([n < good for people, good in groups.values() for n in range(people)])
    counts: dict[str, GroupCounts] = {}
    for part in np.array_split(np.arange(len(group)), 3):  # as from chunks
        count(counts, group.iloc[part], favoured[part], right=favoured[part], place=np.zeros(len(part), np.int64))
    return described(rates("race", counts, known=False), {}, people=len(group), favoured=int(favoured.sum()), favourable="credit")


def test_a_failure_of_the_four_fifths_rule_is_a_headline_with_numbers_and_interval() -> None:
    found = decided(junior=(190, 60), senior=(810, 649))
    (said,) = found.statements
    assert said.headline
    assert said.tone is Tone.BAD
    assert "31.6% of 190 people with race junior" in said.text
    assert "80.1% of 810 people with race senior" in said.text
    assert "fails the four-fifths rule" in said.text
    (junior,) = (one for one in found.groups if one.group == "junior")
    assert junior.ratio == pytest.approx(60 / 190 / (649 / 810))
    assert junior.ratio_low is not None
    assert junior.ratio_high is not None
    katz = relative_risk(60, 190, 649, 810).confidence_interval(0.95)  # the same where counts are large
    assert (junior.ratio_low, junior.ratio_high) == pytest.approx((katz.low, katz.high), abs=0.006)


@pytest.mark.parametrize(
    ("good", "failing", "surely"),
    [(100, True, True), (76, True, True), (140, True, False), (155, False, False), (200, False, True)],
)
def test_the_rule_asks_of_the_rates_and_the_interval_says_how_surely(good: int, failing: bool, surely: bool) -> None:
    found = decided(low=(200, good), high=(1000, 950))
    (low,) = (one for one in found.groups if one.group == "low")
    assert low.ratio is not None
    assert fails(low) == failing == (low.ratio < 0.8)
    assert clear(low) == surely
    (said,) = found.statements
    assert said.tone is (Tone.BAD if failing and surely else Tone.WATCH if failing or not surely else Tone.PLAIN)


def test_groups_of_few_people_are_shown_and_never_ranked() -> None:
    found = decided(one=(1, 0), few=(SMALL - 1, 0), some=(SMALL, 20), many=(500, 400))
    (said,) = found.statements
    assert "some" in said.text
    assert said.text.endswith("Groups of fewer than 30 people (2) are not compared.")
    assert "(1 person)" not in said.text
    table = found.table.frame.set_index("group")
    assert table.loc["one", "people"] == 1
    assert table.loc["one", "four-fifths"] == table.loc["few", "four-fifths"] == "not compared"
    assert table.loc["some", "four-fifths"] == "passes, uncertain"


@pytest.mark.parametrize("groups", [{"one": (1, 1), "many": (500, 1)}, {"a": (100, 0), "b": (100, 0)}, {"all": (100, 50)}])
def test_what_cannot_be_compared_is_no_finding(groups: dict[str, tuple[int, int]]) -> None:
    (said,) = decided(**groups).statements
    assert said.tone is Tone.PLAIN
    assert "not compared" in said.text


def test_a_rate_of_exactly_four_fifths_of_another_passes() -> None:
    for people, other in itertools.product(range(30, 121, 5), range(30, 121, 7)):
        for better in range(5, other + 1, 5):
            good, rest = divmod(4 * better * people, 5 * other)
            if not rest:
                low, high = sorted(decided(low=(people, good), high=(other, better)).groups, key=lambda one: one.rate.mean)
                assert (low.ratio, high.ratio, fails(low)) == (0.8, 1.0, False)


def test_equal_rates_are_those_of_different_groups() -> None:
    (said,) = decided(women=(100, 50), men=(100, 50)).statements
    assert "50.0% of 100 people with race women and 50.0% of 100 people with race men" in said.text
    assert "ratio 1.00 (0.76 to 1.32), which passes the four-fifths rule (fails at one end" in said.text
    assert said.tone is Tone.WATCH


def test_that_none_of_few_people_is_favoured_may_be_chance() -> None:
    found = decided(women=(30, 0), men=(1000, 10))
    (women,) = (one for one in found.groups if one.group == "women")
    assert fails(women)
    assert not clear(women)
    assert women.ratio_low == 0.0
    assert women.ratio_high is not None
    assert women.ratio_high > 10  # 3 of 30 beside 10 of 1,000
    assert found.statements[0].tone is Tone.WATCH


def test_that_all_of_few_people_are_favoured_may_be_chance() -> None:
    found = decided(women=(30, 30), men=(31, 31))
    (women,) = (one for one in found.groups if one.group == "women")
    assert (women.ratio_low, women.ratio_high) == pytest.approx((1 - 0.1135, 1 / (1 - 0.1103)), abs=0.01)


def test_ratios_of_equal_groups_seldom_exclude_one() -> None:
    """The reference is the highest of six: the intervals hold together (those of single pairs do not in 40 % of tables)."""
    rng = np.random.default_rng(0)
    wrong = 0
    for rate in np.repeat([0.1, 0.5, 0.9], 100):
        found = decided(**{name: (200, int(rng.binomial(200, rate))) for name in "abcdef"})
        wrong += any(one.ratio_low is not None and not one.ratio_low <= 1 <= one.ratio_high for one in found.groups)
    assert wrong <= 22  # 15 expected at 5 %


def test_nobody_is_said_of_the_groups_that_could_be_compared() -> None:
    (said,) = decided(a=(100, 0), b=(100, 0), few=(10, 10)).statements
    assert "not compared, for nobody in a group of 30 people or more gets credit" in said.text


@pytest.mark.parametrize(("ratio", "said"), [(0.797, "0.797"), (0.7999, "0.7999"), (0.8, "0.80"), (1 / 300, "0.003"), (0, "0.00")])
def test_a_ratio_is_shown_on_its_side_of_four_fifths(ratio: float, said: str) -> None:
    assert ratio_words(ratio) == said


def test_a_group_that_nobody_of_is_favoured_fails() -> None:
    found = decided(none=(100, 0), half=(100, 50))
    (said,) = found.statements
    assert said.tone is Tone.BAD
    assert "0.0% of 100 people with race none" in said.text


def test_rates_are_of_the_whole_table_and_accuracy_of_its_labels() -> None:
    score = np.arange(200)
    frame = pd.DataFrame({"sex": ["f", "m"] * 100, "score": score, "label": (score >= 120).astype(int)})
    schema = schema_of(categorical("sex", "f", "m"), integer("score", 0, 199), label="label")
    model = LogisticRegression().fit(frame[["sex", "score"]].assign(sex=0), score >= 100)
    model.coef_, model.intercept_ = np.array([[0.0, 1.0]]), np.array([-99.5])
    with pytest.warns(ImportDifference, match="as no row"):  # the table says f and m, the model 0 and 1
        found = audit(model, frame, schema=schema, sensitive=["sex", "score"], analyses={"pba": {"rows": 5}})
    shown = found.result.decisions
    assert shown is not None
    assert (shown.people, shown.favourable) == (200, 100)
    women, men, low, high = shown.groups
    assert (women.people, women.favourable, women.accuracy) == (100, 50, 0.9)
    assert (men.people, men.favourable) == (100, 50)
    assert shown.cuts == {"score": 99.5}
    assert (low.group, low.favourable, high.group, high.favourable) == ("above 99.5", 100, "at most 99.5", 0)
    assert datasets.load("german").schema.label  # the shipped examples have accuracy on the first screen


def test_a_mean_of_one_person_is_no_headline_of_recourse() -> None:
    rng = np.random.default_rng(0)
    costs = {"one": np.array([9.0]), "few": rng.normal(2, 0.1, 40), "many": rng.normal(1, 0.1, 400)}
    line = _of_means("mean least cost", costs, seed=0)
    assert line.worst == "few"
    assert line.clear
    assert line.people == {"one": 1, "few": 40, "many": 400}
    assert line.values["one"] == 9.0
    alone = _of_means("mean least cost", {"one": np.array([9.0]), "many": rng.normal(1, 0.1, 400)}, seed=0)
    assert not alone.clear


@pytest.mark.parametrize(("rule", "favoured"), [("class = 2", [2]), ("class in [0, 2]", [0, 2]), ("class <= 1", [0, 1])])
def test_of_several_classes_all_favourable_ones_count(rule: str, favoured: list[int]) -> None:
    network = random_network(np.random.default_rng(3), (2, 6, 3))
    schema = schema_of(integer("age", -9, 9), categorical("sex", "a", "b", protected=True), positive=rule, label="y")
    raw = np.array([[age, sex] for age in range(-9, 10) for sex in range(2)], dtype=float)
    won = network.forward(raw).argmax(axis=1)
    frame = pd.DataFrame({"age": raw[:, 0].astype(int), "sex": np.where(raw[:, 1] == 1, "b", "a"), "y": won})
    data = Stream.of(frame)
    found = decisions(SimpleNamespace(schema=schema, network=network, data=data, protected=("sex",), favourable="yes"))
    assert found is not None
    assert found.favourable == np.isin(won, favoured).sum()
    assert 0 < found.favourable < len(frame)


def test_what_labels_count_as_and_why_they_give_no_accuracy_is_said_beside_the_groups() -> None:
    schema = schema_of(categorical("sex", "f", "m"), integer("score", 0, 199), label="paid", positive_label="yes")
    network = random_network(np.random.default_rng(1), (2, 3, 1))

    def found(labels: list[str | None]) -> Decisions:
        frame = pd.DataFrame({"sex": ["f", "m", "m"], "score": [1, 2, 3], "paid": labels})
        subject = SimpleNamespace(schema=schema, network=network, data=Stream.of(frame), protected=("sex",), favourable="yes")
        shown = decisions(subject)
        assert shown is not None
        assert shown.labels in shown.table.note
        return shown

    assert found(["yes", "no", "no"]).labels == ""
    with pytest.warns(LabelWarning):
        third = found(["yes", "no", "open"])
    assert third.labels == "Label 'paid': rows with no, open all count as not 'yes'."
    assert third.groups[0].accuracy is not None
    unreadable = found(["yes", "no", None])
    assert unreadable.labels.startswith("No accuracy: ")
    assert "'paid'" in unreadable.labels
    assert unreadable.groups[0].accuracy is None
