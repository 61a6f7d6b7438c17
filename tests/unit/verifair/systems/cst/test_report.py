"""What is told and drawn of situation tests: tables against the claims, the causal graph's layout, case files, figures."""

from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.command_line import flat, is_drawn
from verifair.errors import QueryError
from verifair.figures import figure
from verifair.systems.cst import plots as situation_plots
from verifair.systems.cst import statements
from verifair.systems.cst import tables as words
from verifair.systems.cst.case import Case, grid, place_of
from verifair.systems.cst.causal.graph_plot import HEIGHT, WIDTH, Passing, causal_graph, layout
from verifair.systems.cst.causal.mechanisms import Linear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import LinearRule, Recorded
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.findings import DrawnCases, Intervention, differing, several
from verifair.systems.cst.groups import in_words
from verifair.systems.results.files import file_name, save_text
from verifair.systems.results.spreadsheets import save_table

N = 240
MODEL = CausalModel(nodes=(
    Node(name="sex"), Node(name="race"), Node(name="town"),
    Node(name="income", parents=("sex", "race"), mechanism=Linear(coefficients={"sex": {"m": 2.0}, "race": {"w": 1.0}})),
))
RULE = LinearRule(weights={"income": 1.0}, above=5.0)


def people(seed: int = 0) -> pd.DataFrame:
    """Incomes that fall behind for women and for b; rows are called p0, p1, ..."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "sex": draw.choice(["f", "m"], N), "race": draw.choice(["b", "w"], N), "town": draw.choice(["n", "s"], N),
    }, index=[f"p{n}" for n in range(N)])
    frame["income"] = np.round(draw.normal(4.0, 1.5, N) + 2.0 * (frame["sex"] == "m") + 1.0 * (frame["race"] == "w"), 1)
    frame["granted"] = np.where(frame["income"] > 5, "yes", "no")
    return frame


def asked_of(decider: Any = RULE, **options: Any) -> tuple[SituationTesting, list[Intervention]]:
    asked: dict[str, Any] = {"do": {"sex": "m", "race": "w"}, "k": (5, 20), "intersectional": True, **options}
    model = SituationTesting(MODEL, decider, **asked).fit(people())
    return model, [Intervention.of(model, do) for do in model.interventions()]


@pytest.fixture(scope="module")
def run() -> tuple[SituationTesting, list[Intervention]]:
    return asked_of()


def said(what: Any) -> str:
    console = Console(width=160, markup=False, highlight=False, record=True, file=None, quiet=False)
    with console.capture() as told_:
        console.print(what)
    return flat(told_.get())


def test_counts_overlaps_and_review_follow_from_the_claims(run: tuple[SituationTesting, list[Intervention]]) -> None:
    for one in run[1]:
        claims = one.lines()
        assert len(claims) == len(one.rows) * 4 * 2
        cases = claims.groupby(["method", "k"])["case"].sum()
        for line in one.counts.to_dict(orient="records"):
            assert line["cases"] == cases[line["method"], line["k"]]
            assert line["share"] == pytest.approx(line["cases"] / line["complainants"])
            assert line["significant"] <= line["cases"]
        wide = claims.pivot(index="row", columns=["method", "k"], values="case")
        for line in one.overlaps.to_dict(orient="records"):
            only = wide[line["found by"], line["k"]] & ~wide[line["not by"], line["k"]]
            assert line["people"] == only.sum()
        review = one.review(1000)
        own = claims[(claims["method"] == "CST") & (claims["k"] == 5) & claims["case"]]
        assert set(review["row"]) == set(own["row"])
        assert review["significant"].is_monotonic_decreasing
        sure = review[review["significant"]]["delta"]
        assert sure.is_monotonic_decreasing
        assert (one.frame.index[review["place"]] == review["row"]).all()


def test_the_least_k_and_a_single_complainant_are_told_alike(run: tuple[SituationTesting, list[Intervention]]) -> None:
    one = run[1][0]
    claims = one.lines()
    for at in (0, 7):
        own = claims[claims["row"] == one.rows[at]].reset_index(drop=True)
        alone = one.claims_of(at)
        for column in ("method", "k", "control", "test", "delta", "low", "high", "case", "significant"):
            assert own[column].tolist() == alone[column].tolist()


def test_rates_and_changes_are_those_of_the_tables(run: tuple[SituationTesting, list[Intervention]]) -> None:
    frame = people()
    alone, _, joint = run[1]
    rates = alone.rates.set_index("group")
    women = frame[frame["sex"] == "f"]
    assert rates.loc["sex = f", "people"] == len(women)
    assert rates.loc["sex = f", "negative"] == pytest.approx((women["income"] <= 5).mean())
    assert rates.loc["sex = f", "counterfactual"] == pytest.approx((women["income"] + 2 <= 5).mean())
    assert rates.loc["sex = m", "negative"] == pytest.approx((frame.loc[frame["sex"] == "m", "income"] <= 5).mean())
    (change,) = joint.changes.to_dict(orient="records")
    assert (change["attribute"], change["people"]) == ("income", len(joint.rows))
    assert change["after"] - change["before"] == pytest.approx(3.0)
    assert joint.moved == ["income"]


@pytest.mark.parametrize("dtype", ["float64", "Int64", "string", "object"])
def test_what_is_missing_before_and_after_has_not_moved(dtype: str) -> None:
    before = pd.Series([None, 1, 2, None], dtype=dtype)
    assert not differing(before, before.copy()).any()
    assert differing(before, pd.Series([None, 1, 3, 4], dtype=dtype)).tolist() == [False, False, True, True]


def test_columns_that_nobody_reads_hold_whatever_they_like() -> None:
    """Lists, as a Parquet file has them: of two the comparison is no single truth value."""
    frame = people().assign(visits=[np.arange(2)] * N)
    model = SituationTesting(MODEL, RULE, do={"sex": "m"}, k=(5,)).fit(frame)
    one = Intervention.of(model, {"sex": "m"})
    assert one.moved == one.changes["attribute"].tolist() == ["income"]


def test_several_attributes_are_counted_per_person(run: tuple[SituationTesting, list[Intervention]]) -> None:
    sex, race, joint = run[1]
    table = several(run[1])
    both = set(sex.rows) & set(race.rows)
    assert set(joint.rows) == both
    for line in table.to_dict(orient="records"):
        found = []
        for one in (sex, race):
            claims = one.found.claims(line["method"], line["k"])
            found.append(set(one.rows[claims.positive]))
        assert line["multiple"] == len(found[0] & found[1] & both)
        assert line["intersectional"] == joint.found.claims(line["method"], line["k"]).positive.sum()
        assert line["people"] == len(both)
    assert several(run[1][:1]).empty
    assert several([sex, race])["intersectional"].isna().all()


def test_expected_by_chance_depends_on_level_and_sides() -> None:
    _, (two, *_) = asked_of()
    _, (one, *_) = asked_of(sides=1, level=0.9)
    people = len(two.rows)
    assert two.expected_significant_by_chance == pytest.approx(0.025 * people)
    assert one.expected_significant_by_chance == pytest.approx(0.1 * people)
    assert f"about {two.expected_significant_by_chance:.0f} of {people:,}" in words.chance_line(two)
    _, (held, *_) = asked_of(correction="bh")
    assert "Benjamini-Hochberg" in words.chance_line(held)
    assert "chance alone" not in words.chance_line(held)


def test_the_screen_says_what_the_tables_hold(run: tuple[SituationTesting, list[Intervention]]) -> None:
    _, (one, *_) = run
    counts = said(words.counts_grids(one)[0])
    for line in one.counts.to_dict(orient="records"):
        assert f"{line['cases']} ({100 * line['share']:.1f}%)" in counts
    review = one.review(3)
    shown = said(words.review_grid(one, 3))
    for row in review["row"]:
        assert row in shown
    assert words.review_grid(one, 0) is None
    assert words.nothing_line(one) is None
    assert words.unknown_line(one) is None
    assert "never a proof" in words.honest_line()
    assert "multiple: by each alone" in said(words.several_grid(run[1]))
    assert words.several_grid(run[1][:1]) is None


def test_many_sizes_are_shown_below_each_other() -> None:
    _, (one,) = asked_of(do={"sex": "m"}, k=(3, 4, 5, 6, 7, 8), intersectional=False)
    grids = words.counts_grids(one)
    assert ["k = 3" in said(grid) for grid in grids] == [True, False]
    assert ["k = 8" in said(grid) for grid in grids] == [False, True]


def test_recorded_decisions_say_nothing_of_counterfactuals() -> None:
    _, (one, *_) = asked_of(Recorded(column="granted", positive="yes"))
    assert one.methods == ["CST w/o", "ST"]
    assert one.ranking == "CST w/o"
    assert set(one.overlaps["found by"]) == {"CST w/o", "ST"}
    assert one.rates["counterfactual"].isna().sum() == 1
    assert "nobody decided on the counterfactuals" in str(words.unknown_line(one))
    assert "CF" not in words.legend(one)
    assert one.proved is False


def test_a_case_file_tells_one_person(run: tuple[SituationTesting, list[Intervention]], tmp_path: Path) -> None:
    model, (one, *_) = run
    place = int(one.review(1)["place"].iloc[0])
    case = Case.of(one, model.causal_model_, place, seed=0, notes=["A note."])
    assert case.place == place
    assert case.row == one.frame.index[place]
    sizes = case.people.groupby("group")["weight"].sum()
    assert sizes.to_dict() == pytest.approx({"control": 5, "ST test": 5, "CST test": 5})
    control = case.people[case.people["group"] == "control"]
    assert (case.records.loc[control.index, "sex"] == "f").all()
    assert case.row not in set(control["row"])
    shares = (case.people["weight"] * case.people["negative"]).groupby(case.people["group"]).sum() / 5
    line = case.claims.set_index(["method", "k"]).loc[("CST w/o", 5)]
    assert (line["control"], line["test"]) == pytest.approx((shares["control"], shares["CST test"]))
    situation_plots.complainant(case, tmp_path / "case.png")
    text = case.markdown("case.png")
    assert is_drawn(tmp_path / "case.png")
    income = one.frame["income"].iloc[place]
    assert f"income {income:.10g} -> {income + 2:.10g}: income = " in text
    assert "sex f -> m" in text
    assert "A note." in text
    assert "(case.png)" in text
    assert "(case.png)" not in case.markdown(None)


def test_rows_are_found_by_what_the_table_calls_them(run: tuple[SituationTesting, list[Intervention]]) -> None:
    frame, found = run[0].frame_, run[1][0].found
    woman = int(found.complainants[3])
    assert place_of(frame, found.do, found.complainants, f"p{woman}") == woman
    man = next(n for n in range(N) if n not in found.complainants)
    with pytest.raises(QueryError, match=r"is no complainant under do\(sex = m\), for it has sex = m; rows that are: p"):
        place_of(frame, found.do, found.complainants, f"p{man}")
    with pytest.raises(QueryError, match=r"no such row; its rows are p0 \.\. p239"):
        place_of(frame, found.do, found.complainants, "17")


def test_each_case_has_files_of_its_own() -> None:
    """Of rows that are called alike, as in two tables one below the other, or alike but for signs that files' names leave out."""
    for names in ([n % (N // 2) for n in range(N)], [f"7{'/ '[n % 2]}{n // 2}" for n in range(N)]):
        frame = people().set_axis(names)
        model = SituationTesting(MODEL, RULE, do={"sex": "m"}, k=(5,)).fit(frame)
        one = Intervention.of(model, {"sex": "m"})
        files = {Case.of(one, model.causal_model_, int(place), seed=0).file for place in one.found.complainants}
        assert len(files) == len(one.found.complainants)
        twice = [name for name in names if (one.rows == name).sum() > 1]
        if twice:
            with pytest.raises(QueryError, match=f"--case {twice[0]}: the table calls 2 complainants so; give each row"):
                place_of(frame, {"sex": "m"}, one.found.complainants, str(twice[0]))
            alone = next(place for place in one.found.complainants if (one.rows == names[place]).sum() == 1)
            assert place_of(frame, {"sex": "m"}, one.found.complainants, str(names[alone])) == alone


def test_counterfactuals_stand_beside_the_facts(run: tuple[SituationTesting, list[Intervention]]) -> None:
    one = run[1][0]
    table = one.counterfactuals
    assert (table["income counterfactual"] - table["income"]).tolist() == pytest.approx([2.0] * len(table))
    assert (table["sex counterfactual"] == "m").all()
    assert (table["town"] == table["town counterfactual"]).all()
    flipped = (table["decision"] == "negative") & (table["decision counterfactual"] == "positive")
    assert flipped.sum() == one.found.claims("CF", 5).positive.sum()


def test_figures_are_drawn(run: tuple[SituationTesting, list[Intervention]], tmp_path: Path) -> None:
    model, (one, *_) = run
    situation_plots.counts(one, tmp_path / "counts.png")
    situation_plots.intervals(one, tmp_path / "intervals.png")
    _, (nobody,) = asked_of(do={"town": "n"}, tau=0.9, intersectional=False)
    assert not nobody.lines()["case"].any()
    situation_plots.intervals(nobody, tmp_path / "nobody.png")
    for name in ("income", "town"):
        situation_plots.distribution(name, one.before(name), one.tilde[name], "women", tmp_path / f"{name}.png")
        cases = [Case.of(one, model.causal_model_, int(place), seed=0) for place in one.review(3)["place"]]
        around = pd.concat([
            pd.DataFrame({"case": case.row, "group": case.people["group"], "value": case.records[name]}) for case in cases
        ])
        own = pd.DataFrame({"case": [case.row for case in cases], "factual": 1.0, "counterfactual": 2.0})
        situation_plots.groups(name, around, own, "", tmp_path / f"groups-{name}.png")
    causal_graph(MODEL.graph, ["sex"], "decision", ["income"], tmp_path / "graph.png")
    drawn = sorted(tmp_path.iterdir())
    assert len(drawn) == 8
    assert all(is_drawn(file) for file in drawn), "and no half files are left"


def test_many_categories_are_drawn_together() -> None:
    values = pd.Series([f"c{n}" for n in range(20) for _ in range(20 - n)])
    order = situation_plots._categories(values)
    assert len(order) == situation_plots.CATEGORIES
    assert order[-1] == "others"
    kept = situation_plots._grouped(values, order).value_counts()
    assert kept.sum() == len(values)
    assert kept["others"] == sum(20 - n for n in range(7, 20))


@given(st.integers(2, 9), st.data())
def test_nodes_do_not_overlap_and_edges_go_forward(count: int, data: st.DataObject) -> None:
    edges = data.draw(st.lists(st.sampled_from(list(combinations(range(count), 2))), unique=True))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    places, ways = layout(graph, None)
    for one, other in combinations(places.values(), 2):
        assert abs(one[0] - other[0]) >= WIDTH or abs(one[1] - other[1]) >= HEIGHT
    for (start, end), way in ways.items():
        assert way[0] == places[start]
        assert way[-1] == places[end]
        steps = np.diff([x for x, _ in way])
        assert (steps > 0).all()
        assert np.ptp(steps) == pytest.approx(0, abs=1e-9), "no layer is left out"
        for x, y in way[1:-1]:
            assert all(x != other[0] or abs(y - other[1]) > HEIGHT / 2 for other in places.values()), "runs through no box"


def test_the_decision_stands_last() -> None:
    graph = nx.DiGraph([("a", "b"), ("a", "decision"), ("b", "c")])
    places, _ = layout(graph, "decision")
    assert places["decision"][0] > places["c"][0] > places["b"][0] > places["a"][0]
    assert Passing("a", "decision", 1).layer == 1


def test_files_are_whole_or_absent(tmp_path: Path) -> None:
    save_text(tmp_path / "a.txt", "text")
    save_table(tmp_path / "a.csv", (pd.DataFrame({"x": [n]}) for n in range(3)))
    assert (tmp_path / "a.csv").read_text() == "x\n0\n1\n2\n"
    with pytest.raises(ValueError, match="stopped"), figure(tmp_path / "a.png", (4, 4)):
        raise ValueError("stopped")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.csv", "a.txt"]
    assert file_name("sex = Male, age = < 25") == "sex-Male-age-25"
    assert file_name("../..") == "nameless"


def test_cells_with_bars_do_not_break_a_table() -> None:
    lines = list(grid(("a", "b"), [("x|y", 1)]))
    assert lines[0] == "| a    | b |"
    assert lines[2] == "| x\\|y | 1 |"


def test_interventions_are_told_as_the_estimator_does(run: tuple[SituationTesting, list[Intervention]]) -> None:
    model, tests = run
    expected = ["sex = m", "race = w", "sex = m, race = w"]
    assert [one.name for one in tests] == [in_words(do) for do in model.interventions()] == expected


@pytest.mark.parametrize("direction", ["negative", "positive"])
@pytest.mark.parametrize("correction", [None, "bh"])
def test_a_page_says_which_way_people_are_treated_and_what_chance_makes(direction: str, correction: str | None) -> None:
    _, (one, *_) = asked_of(direction=direction, correction=correction, tau=0.1)
    said, cases, *_ = statements.measured(one)
    more = f"{'more' if direction == 'negative' else 'less'} often (by more than 0.1)"
    assert said.brief is not None
    assert f"significantly {more} than" in said.text
    assert f"significantly {more} than" in said.brief
    assert f"of them it is {more}" in cases.text
    chance = "at most 5 % of these are due to chance (Benjamini-Hochberg)" if correction else "chance alone would give about"
    assert chance in said.text
    assert chance in said.brief
    refused = "is refused, the counterfactual is not" if direction == "negative" else "is not refused, the counterfactual is"
    assert f"CF: the complainant {refused}." in words.legend(one)


def test_a_page_tells_of_draws_where_categories_are_drawn(run: tuple[SituationTesting, list[Intervention]]) -> None:
    _, (one, *_) = run
    found = {method: one.found.claims(method, 5).positive for method in one.methods}
    cases = int(found["CST"].sum())
    nobody = {method: np.zeros_like(who) for method, who in found.items()}
    drawn = [DrawnCases.of([found, nobody, found], k=5, seed=0, categories=names) for names in ([], ["income"])]
    without, told = (" ".join(s.text for s in statements.measured(one.model_copy(update={"draws": d}))) for d in drawn)
    assert "draws" not in without
    assert (
        f"Counterfactuals are drawn in part (income): 3 draws give 0 to {cases:,} such cases, {2 * cases / 3:,.1f} on average, "
        f"and {cases:,} people are a case in more than half of the draws."
    ) in told


def test_neighbours_that_are_not_listed_are_not_called_equally_near() -> None:
    model, (one, *_) = asked_of(k=(105,), intersectional=False, do={"sex": "m"})
    case = Case.of(one, model.causal_model_, int(one.found.complainants[0]), seed=0)
    own = case.people[case.people["group"] == "control"]
    assert f"and {len(own) - 100} more, at a distance of {own['distance'].max():.4g} at most." in case.markdown(None)


def test_the_screen_says_how_many_of_every_method_are_significant(run: tuple[SituationTesting, list[Intervention]]) -> None:
    one = run[1][0]
    (grid,) = words.counts_grids(one)
    labels = list(grid.columns[0].cells)
    assert labels.count("  significant") == len(one.methods) - 1
    found = dict(zip(labels, grid.columns[1].cells, strict=True))
    assert found["  significant by CST's interval"].startswith(f"{int(one.found.claims('CF', 5).significant.sum()):,} ")


def test_attributes_may_be_called_like_what_is_told_of_them() -> None:
    """Such as the weight of a person, beside the weight of a neighbour."""
    called = {"income": "decision", "town": "weight", "race": "group"}
    frame, plain = people().rename(columns=called), people()
    model = SituationTesting(CausalModel(nodes=(
        Node(name="sex"), Node(name="group"), Node(name="weight"),
        Node(name="decision", parents=("sex",), mechanism=Linear(coefficients={"sex": {"m": 2.0}})),
    )), LinearRule(weights={"decision": 1.0}, above=5.0), do={"sex": "m"}, k=(5,)).fit(frame)
    one = Intervention.of(model, {"sex": "m"})
    table = one.counterfactuals
    assert table["decision"].tolist() == plain.loc[table["row"], "income"].tolist()
    assert set(table["decision (verifair)"]) == {"negative", "positive"}
    case = Case.of(one, model.causal_model_, int(one.found.complainants[0]), seed=0)
    assert case.people["weight"].groupby(case.people["group"]).sum().to_dict() == {"control": 5, "ST test": 5, "CST test": 5}
    assert case.records["weight"].tolist() == plain.loc[case.people["row"], "town"].tolist()
    near = case.people.iloc[0]
    line = next(words for text in case.markdown(None).splitlines() if near["row"] in (words := text.replace("|", " ").split()))
    assert {frame.loc[near["row"], "weight"], frame.loc[near["row"], "group"]} <= set(line)
    lines = case.markdown(None).splitlines()
    heads = [[name.strip() for name in text.strip("|").split("|")] for text in lines if text.startswith("| row ")]
    assert heads
    assert all(len(set(head)) == len(head) and {"decision", "decision (verifair)"} <= set(head) for head in heads)
