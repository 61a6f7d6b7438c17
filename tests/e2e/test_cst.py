"""verifair cst as a user meets it: screens, files, figures, case files, JSON, errors and Ctrl-C."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.command_line import Run, answered, flat, is_drawn, verifair
from verifair import datasets
from verifair.interrupts import OutOfTime
from verifair.systems.cst import plots, solve
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.deciders import LinearRule, Recorded
from verifair.systems.cst.estimator import SituationTesting, redraws
from verifair.systems.cst.findings import Intervention

DEMO = ("cst", "--demo", "loan")
FIGURES = ("graph.png", "counts.png", "intervals.png")
TABLES = ("summary", "claims", "counterfactuals", "overlaps", "rates", "changes")

Refused = Callable[..., str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with loan.csv (600 applicants), its causal file loan.toml, and recorded.toml, which names no rule."""
    folder = tmp_path_factory.mktemp("files")
    datasets.load("loan").frame.head(600).to_csv(folder / "loan.csv", index=False)
    written = datasets.causal_path("loan").read_text()
    (folder / "loan.toml").write_text(written)
    rule = [line for line in written.splitlines() if line.startswith(("weights", "above"))]
    assert len(rule) == 2
    (folder / "recorded.toml").write_text(written.replace(rule[0], "").replace(rule[1], ""))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """One run with everything written: screen, JSON, folder."""
    folder = tmp_path_factory.mktemp("cst")
    done = answered(*DEMO, "--k", 15, "--k", 50, "--cases", 2, "--out", folder / "out", "--json", folder / "a.json")
    return done.stdout, json.loads((folder / "a.json").read_text()), folder / "out"


def estimator(do: dict[str, Any], **options: Any) -> SituationTesting:
    """The shipped loan example in Python."""
    file = causal_file.load(datasets.causal_path("loan"))
    said = file.decision
    assert said.weights is not None
    rule = LinearRule(weights=said.weights, above=said.above, at_least=said.at_least)
    decider = Recorded(column=str(said.column), positive=said.positive, counterfactual=rule)
    return SituationTesting(CausalModel(nodes=file.nodes), decider, do=do, **options)


def test_the_documented_example_answers() -> None:
    done = answered(*DEMO)
    words = (
        "evidence, not proved", "AnnualSalary + 5 AccountBalance > 225000", "- 15654.958 Gender + U", "CST w/o", "k = 100",
        "Negative decisions", "What do(Gender = 0) changes", "To review first", "Found by CST and not by CF", "never a proof",
        "chance alone would make about",
    )
    for expected in words:
        assert expected in flat(done.stdout)
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if line[:1] in "┏┃┡│├└"), "tables fit a terminal"


def test_json_agrees_with_the_estimator(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, _ = run
    model = estimator({"Gender": 0}, k=(15, 50)).fit(datasets.load("loan").frame)
    found = model.test()["Gender = 0"]
    (told,) = answer["tests"]
    for line in told["counts"]:
        claims = found.claims(line["method"], line["k"])
        assert line["cases"] == claims.positive.sum()
        assert line["significant"] == claims.significant.sum()
        assert line["share"] == pytest.approx(claims.positive.mean())
        assert f"{line['cases']:,} ({100 * line['share']:.1f}%)" in screen
    cst = found.claims("CST", 15)
    listed = pd.DataFrame([line for line in told["claims"] if line["method"] == "CST"]).set_index("row")
    rows = model.frame_.index[found.complainants]
    expected = pd.Series(cst.delta, index=rows)
    assert set(rows[cst.positive]) <= set(listed.index)
    assert listed["delta"].tolist() == pytest.approx(expected.loc[listed.index].tolist())
    assert told["expected_significant_by_chance"] == pytest.approx(0.025 * len(found.complainants))


def test_json_never_says_proved(run: tuple[str, dict[str, Any], Path]) -> None:
    _, answer, _ = run
    assert answer["trust"]["proved"] == []
    assert answer["tests"][0]["proved"] is False
    assert answer["query"]["do"] == {"Gender": "0"}
    assert len(answer["equations"]) == 3
    assert len(answer["causal_sha256"]) == 64


def test_tables_and_figures_are_written(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, out = run
    assert all(is_drawn(out / name) for name in FIGURES)
    tables = {name: pd.read_csv(out / f"{name}.csv") for name in TABLES}
    people = answer["tests"][0]["complainants"]
    assert len(tables["claims"]) == people * 4 * 2
    assert len(tables["counterfactuals"]) == people
    assert (tables["counterfactuals"]["Gender counterfactual"] == 0).all()
    moved = tables["counterfactuals"]["AnnualSalary counterfactual"] - tables["counterfactuals"]["AnnualSalary"]
    assert (moved.round(1) == 15655.0).all(), "everybody's salary moves by the coefficient of Gender"
    found = tables["claims"].groupby(["method", "k"])["case"].sum()
    for line in tables["summary"].to_dict(orient="records"):
        assert found[line["method"], line["k"]] == line["cases"]
    for name in ("AnnualSalary", "AccountBalance"):
        assert is_drawn(out / f"figure2-left-{name}.png")
        assert is_drawn(out / f"figure2-right-{name}.png")
    assert "AccountBalance = 45.757" in (out / "equations.txt").read_text()
    assert flat(screen).split("Statistical evidence")[0][-80:] in flat((out / "cst.txt").read_text())
    assert not [file for file in out.rglob("*") if file.name.endswith(".part")]


def test_overlaps_are_counted_from_the_claims(run: tuple[str, dict[str, Any], Path]) -> None:
    _, _, out = run
    claims = pd.read_csv(out / "claims.csv").pivot(index="row", columns=["method", "k"], values="case")
    for line in pd.read_csv(out / "overlaps.csv").to_dict(orient="records"):
        one, other = (claims[line[which], line["k"]] for which in ("found by", "not by"))
        assert line["people"] == (one & ~other).sum()


def test_a_case_file_says_who_was_compared_and_why(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, _, out = run
    texts = sorted((out / "cases").glob("*.md"))
    assert len(texts) == 2
    for file in texts:
        assert is_drawn(file.with_suffix(".png"))
        assert re.search(rf"│ +{file.stem} │ neg. -> pos. │", screen), "one of those to review first"
        written = file.read_text()
        assert f"]({file.stem}.png)" in written
        assert "no proof of discrimination" in flat(written)
        assert "AnnualSalary = 100668.626 - 15654.958 Gender + U, with U = " in written
        claims = pd.read_csv(out / "claims.csv")
        own = claims[claims["row"].astype(str) == file.stem].set_index(["method", "k"])
        line = own.loc[("CST", 15)]
        ends = f"{line['low']:+.3f} .. {line['high']:+.3f}"
        assert f"| {line['control']:.3f}   | {line['test']:.3f} | {line['delta']:+.3f}  | {ends} |" in written
        assert written.count("| negative |") + written.count("| positive |") == 3 * 15


def test_what_is_written_of_a_neighbour_is_true(run: tuple[str, dict[str, Any], Path]) -> None:
    _, _, out = run
    frame = datasets.load("loan").frame
    file = sorted((out / "cases").glob("*.md"))[0]
    control, standard, counterfactual = (
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line.startswith("| ")][1:]
        for part in file.read_text().split("\n## ")[1:]
    )
    for group, gender in ((control, 1), (standard, 0), (counterfactual, 0)):
        distances = [float(line[1]) for line in group]
        assert distances == sorted(distances)
        for row, _, decision, own, *_ in group:
            assert frame.loc[int(row), "Gender"] == gender == int(own)
            assert (decision == "positive") == (frame.loc[int(row), "LoanApproval"] == 1)
    assert file.stem not in {line[0] for line in control}, "nobody is a neighbour of themselves"


def test_a_named_case_is_printed_where_there_is_no_folder(files: Path) -> None:
    done = answered("cst", "--data", files / "loan.csv", "--causal", files / "loan.toml", "--k", 15, "--case", 1)
    assert "# Complaint of row 1: Gender = 1; what if Gender = 0?" in done.stdout
    assert "## Control group" in done.stdout


def test_several_attributes_alone_and_jointly(tmp_path: Path) -> None:
    asked = ("--do", "sex=Male", "--do", "age=Senior", "--intersectional", "--k", 15, "--cases", 0, "--correct", "bh")
    done = answered("cst", "--demo", "german", *asked, "--json", tmp_path / "a.json", "--out", tmp_path / "out")
    answer = json.loads((tmp_path / "a.json").read_text())
    names = [test["do"] for test in answer["tests"]]
    assert names == [{"sex": "Male"}, {"age": "Senior"}, {"sex": "Male", "age": "Senior"}]
    frame = datasets.load("german").frame
    both = (frame["sex"] == "Female") & (frame["age"] == "Junior")
    assert [test["complainants"] for test in answer["tests"]] == [310, 190, both.sum()]
    for line in answer["several"]:
        assert line["people"] == both.sum()
        joint = next(one for one in answer["tests"][2]["counts"] if one["method"] == line["method"] and one["k"] == line["k"])
        assert line["intersectional"] == joint["cases"]
    claims = pd.read_csv(tmp_path / "out" / "claims.csv")
    cst = claims[(claims["method"] == "CST") & claims["case"]]
    alone = [set(cst.loc[cst["do"] == name, "row"]) for name in ("sex = Male", "age = Senior")]
    multiple = next(line for line in answer["several"] if line["method"] == "CST")
    assert multiple["multiple"] == len(alone[0] & alone[1])
    assert "intersectional: jointly" in flat(done.stdout)
    assert "Benjamini-Hochberg" in flat(done.stdout)
    assert answer["model_sha256"] is not None
    assert is_drawn(tmp_path / "out" / "sex-Male" / "figure2-left-housing.png")
    assert not (tmp_path / "out" / "sex-Male" / "cases").exists()


def test_recorded_decisions_leave_cf_out(files: Path, tmp_path: Path) -> None:
    asked = ("--data", files / "loan.csv", "--causal", files / "recorded.toml", "--k", 15, "--out", tmp_path / "out")
    done = answered("cst", *asked, "--json", tmp_path / "a.json")
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["tests"][0]["methods"] == ["CST w/o", "ST"]
    assert "neither CF nor CST with search centers can be computed" in flat(done.stdout)
    assert "Found by CST and" not in done.stdout
    case = next((tmp_path / "out" / "cases").glob("*.md")).read_text()
    assert "Nobody decided on the counterfactual." in case


def test_options_override_the_file(files: Path, tmp_path: Path) -> None:
    written = (files / "loan.toml").read_text().replace("[situation]", "[situation]\nk = [20]\nlevel = 0.9\ntau = 0.1")
    (tmp_path / "graph.toml").write_text(written)

    def query(*options: object) -> dict[str, Any]:
        asked = ("--data", files / "loan.csv", "--causal", tmp_path / "graph.toml", *options, "--json", tmp_path / "a.json")
        answered("cst", *asked)
        found: dict[str, Any] = json.loads((tmp_path / "a.json").read_text())["query"]
        return found

    said = query()
    assert (said["k"], said["level"], said["tau"], said["sides"]) == ([20], 0.9, 0.1, 2)
    said = query("--k", 10, "--level", 99, "--tau", 0.2, "--one-sided", "--distance", "heom", "--interval", "wald")
    assert (said["k"], said["level"], said["tau"], said["sides"]) == ([10], 0.99, 0.2, 1)
    assert (said["distance"], said["interval"]) == ("heom", "wald")


def test_a_network_on_the_command_line_decides(tmp_path: Path) -> None:
    german = datasets.load("german")
    german.frame.to_csv(tmp_path / "german.csv", index=False)
    german.schema.save(tmp_path / "german.toml")
    graph = '[[causal.node]]\nname = "sex"\n[[causal.node]]\nname = "housing"\nparents = ["sex"]\nmechanism = "categorical"\n'
    (tmp_path / "graph.toml").write_text(graph + '[decision]\ncolumn = "credit"\npositive = "good"\n')
    model = (datasets.network_path("german"), "--schema", tmp_path / "german.toml", "--data", tmp_path / "german.csv")
    asked = ("--causal", tmp_path / "graph.toml", "--do", "sex=Male", "--attribute", "housing", "--attribute", "duration")
    answered("cst", *model, *asked, "--k", 15, "--json", tmp_path / "a.json")
    answer = json.loads((tmp_path / "a.json").read_text())
    assert "a network of" in answer["query"]["decides"]
    assert answer["tests"][0]["methods"] == ["CST w/o", "ST", "CST", "CF"]
    assert answer["query"]["attributes"] == ["housing", "duration"]
    assert answer["schema_sha256"] == german.schema.sha256


def test_an_attribute_without_effects_is_said(files: Path, tmp_path: Path) -> None:
    graph = "".join(f'[[causal.node]]\nname = "{name}"\n' for name in ("Gender", "AnnualSalary", "AccountBalance"))
    (tmp_path / "graph.toml").write_text(graph + '[decision]\ncolumn = "LoanApproval"\npositive = 1\n')
    asked = ("--data", files / "loan.csv", "--causal", tmp_path / "graph.toml", "--do", "Gender=0", "--k", 15)
    done = answered("cst", *asked, "--out", tmp_path / "out", "--json", tmp_path / "a.json")
    assert "changes no other attribute" in flat(done.stdout)
    counts = {line["method"]: line["cases"] for line in json.loads((tmp_path / "a.json").read_text())["tests"][0]["counts"]}
    assert counts["CST w/o"] == counts["ST"]
    assert "nothing: the model knows no effect" in next((tmp_path / "out" / "cases").glob("*.md")).read_text()


def test_where_nobody_is_a_case_the_answer_has_no_claims(tmp_path: Path) -> None:
    pd.DataFrame({"sex": ["f", "m"] * 6, "paid": [5, 6, 7] * 4}).to_csv(tmp_path / "t.csv", index=False)
    nodes = '[[causal.node]]\nname = "sex"\n[[causal.node]]\nname = "paid"\nparents = ["sex"]\n'
    (tmp_path / "g.toml").write_text(nodes + "[decision]\nweights = { paid = 1 }\nabove = 0\n")
    asked = ("--data", tmp_path / "t.csv", "--causal", tmp_path / "g.toml", "--do", "sex=m", "--k", 2)
    answered("cst", *asked, "--json", tmp_path / "a.json")
    (test,) = json.loads((tmp_path / "a.json").read_text())["tests"]
    assert test["claims"] == []
    assert {line["cases"] for line in test["counts"]} == {0}


GERMAN = """
[[causal.node]]
name = "sex"
[[causal.node]]
name = "credit-amount"
parents = ["sex"]
[[causal.node]]
name = "duration"
parents = ["credit-amount", "sex"]
[situation]
do = { sex = "Male" }
k = [15]
"""
"""Linear equations below sex; who decides is the shipped example's network."""


def test_counterfactual_decisions_are_certified_and_checked(tmp_path: Path) -> None:
    (tmp_path / "graph.toml").write_text(GERMAN)
    proof = tmp_path / "proof.json.gz"
    files = ("--certificate", proof, "--json", tmp_path / "a.json", "--out", tmp_path / "out", "--cases", 1)
    done = answered("cst", "--demo", "german", "--causal", tmp_path / "graph.toml", "--certify", 95, *files)
    answer = json.loads((tmp_path / "a.json").read_text())
    (certified,) = answer["certified"]
    counts = certified["counts"]
    assert sum(counts.values()) == answer["tests"][0]["complainants"] == 310
    assert counts["flips"] > 0
    assert counts["stays"] > 200
    assert f"of 310 complainants {counts['flips']} would be decided otherwise" in flat(done.stdout)
    assert answer["trust"]["proved"][0].startswith(f"the decision on the counterfactual of {counts['flips'] + counts['stays']} ")
    people = pd.read_csv(tmp_path / "out" / "certified.csv").set_index("row")
    before_after = pd.read_csv(tmp_path / "out" / "counterfactuals.csv").set_index("row")
    flips = people.index[people["status"] == "flips"]
    assert (before_after.loc[flips, "decision"] != before_after.loc[flips, "decision counterfactual"]).all()
    (case,) = (tmp_path / "out" / "cases").glob("*.md")
    status = people.loc[int(case.stem), "status"]
    assert ("Proved: the counterfactual is decided" in case.read_text()) == (status in ("flips", "stays"))
    checked = answered("check", proof, "--demo", "german")
    assert "ACCEPTED" in checked.stdout
    assert re.search(r"[1-9]\d* of \d+ proofs hold for float32 too", flat(checked.stdout))
    assert f"{counts['flips']} of {counts['flips'] + counts['stays']} rows would be decided otherwise" in flat(checked.stdout)


def test_proofs_of_several_interventions_have_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "graph.toml").write_text(GERMAN + '[[causal.node]]\nname = "age"\n')
    asked = ("--do", "sex=Male", "--do", "age=Senior", "--certify", 90, "--certificate", tmp_path / "proof.json")
    done = answered("cst", "--demo", "german", "--causal", tmp_path / "graph.toml", *asked)
    for name in ("sex-Male", "age-Senior"):
        assert f"proof-{name}.json" in flat(done.stdout).replace(" ", "")
        assert verifair("check", tmp_path / f"proof-{name}.json", "--demo", "german").returncode == 0


def test_what_chance_finds_stands_beside_what_is_found(tmp_path: Path) -> None:
    asked = ("--k", 15, "--k", 50, "--chance", 3, "--cases", 0, "--out", tmp_path / "out", "--json", tmp_path / "a.json")
    done = answered(*DEMO, *asked)
    counts = json.loads((tmp_path / "a.json").read_text())["tests"][0]["counts"]
    summary = pd.read_csv(tmp_path / "out" / "summary.csv").set_index(["method", "k"])
    for line in counts:
        known = line["method"] in ("ST", "CST w/o")
        assert (line["significant share by chance"] is not None) == known
        if known:
            assert 0 <= line["significant share by chance"] <= line["share by chance"]
            assert summary.loc[(line["method"], line["k"]), "share by chance"] == pytest.approx(line["share by chance"])
            assert f"({100 * line['share by chance']:.1f}%)" in done.stdout
    found = {(line["method"], line["k"]): line for line in counts}
    assert found["CST w/o", 15]["significant share"] > 10 * found["CST w/o", 15]["significant share by chance"]
    assert "shuffled among the rows" in flat(done.stdout)
    assert is_drawn(tmp_path / "out" / "counts.png")


JOBS = """
[[causal.node]]
name = "sex"
[[causal.node]]
name = "job"
parents = ["sex"]
mechanism = "categorical"
[situation]
do = { sex = "Male" }
attributes = ["job", "duration", "credit-amount"]
k = [5, 30]
"""


@pytest.fixture
def run_jobs(inside: Run) -> Run:
    """The command in a folder with a causal model whose jobs are drawn."""
    Path("jobs.toml").write_text(JOBS)
    return lambda *more: inside("cst", "--demo", "german", "--causal", "jobs.toml", "--json", "a.json", *more)


def test_shares_of_draws_are_written_for_each_person(run_jobs: Run) -> None:
    code, screen, _ = run_jobs("--draws", "4", "--cases", "1", "--out", "o")
    assert code == 0
    (one,) = json.loads(Path("a.json").read_text())["tests"]
    draws = one["draws"]
    assert (draws["seeds"], draws["categories"]) == ([0, 1, 2, 3], ["job"])
    counts = {line["method"]: line for line in draws["counts"]}
    assert [line["method"] for line in draws["counts"]] == ["CST w/o", "ST", "CST", "CF"]
    assert len(set(counts["CST w/o"]["by draw"])) > 1
    assert "Cases over 4 draws of categories, k = 5" in screen
    for line in counts.values():
        shown = (line["method"], f"{line['cases']:,}", f"{line['mean']:,.1f}", f"{line['least']} .. {line['most']}")
        assert any(all(word in told for word in shown) for told in screen.splitlines())
    assert "(job), drawn with seeds 0 to 3" in screen
    assert all(len(line) <= 80 for line in screen.splitlines() if line[:1] in "┏┃┡│├└"), "tables fit a terminal"
    claims = pd.read_csv(Path("o") / "claims.csv")
    least = claims[claims["k"] == 5]
    assert claims.loc[claims["k"] == 30, ["share of draws", "draws low", "draws high"]].isna().all(axis=None)
    for method, line in counts.items():
        share = least.loc[least["method"] == method, "share of draws"]
        assert share.sum() == pytest.approx(line["mean"])
        assert (share > 0.5).sum() == line["in over half"]
    assert (least["draws low"] <= least["share of draws"]).all()
    assert (least["share of draws"] <= least["draws high"]).all()
    told = pd.DataFrame(one["claims"])
    assert set(told["row"]) == set(least.loc[least["share of draws"] > 0, "row"])
    assert told["share of draws"].tolist() == least[least["row"].isin(told["row"])]["share of draws"].tolist()
    assert pd.read_csv(Path("o") / "draws.csv")["mean"].tolist() == [line["mean"] for line in draws["counts"]]
    (case,) = (Path("o") / "cases").glob("*.md")
    assert "Over 4 draws of the counterfactual's categories it is a case by CST w/o in " in case.read_text()
    for draw, seed in enumerate(draws["seeds"]):
        assert run_jobs("--seed", str(seed))[0] == 0
        alone = json.loads(Path("a.json").read_text())["tests"][0]
        assert alone["draws"] is None
        assert "share of draws" not in alone["claims"][0]
        for line in alone["counts"]:
            if line["k"] == 5:
                assert line["cases"] == counts[line["method"]]["by draw"][draw]


def test_where_nothing_is_drawn_nothing_is_repeated(run_loan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(solve, "redraws", lambda *of, draws, **how: asked.append(draws) or redraws(*of, draws=draws, **how))
    code, told, _ = run_loan("--causal", "loan.toml", "--draws", "50", "--json", "a.json", "--out", "o", "--cases", "1")
    assert code == 0
    assert asked == [1]
    assert "do(Gender = 0) draws no category that the test reads, so all draws would be equal and none was made (--draws)." in told
    assert "draws of categories" not in told
    answer = json.loads(Path("a.json").read_text())
    draws = answer["tests"][0]["draws"]
    assert (draws["seeds"], draws["categories"], answer["notes"]) == ([0], [], [])
    claims = pd.read_csv(Path("o") / "claims.csv").dropna(subset=["share of draws"])
    for column in ("share of draws", "draws low", "draws high"):
        assert claims[column].tolist() == claims["case"].astype(float).tolist()


@pytest.mark.parametrize("draws", ["1", "0", "-3", "many"])
def test_fewer_than_two_draws_are_refused(draws: str, run_jobs: Run) -> None:
    code, _, error = run_jobs("--draws", draws)
    assert code == 2
    assert "--draws" in error


@pytest.mark.parametrize(("ends", "code"), [(KeyboardInterrupt(), 130), (OutOfTime("the time was up"), 0)])
@pytest.mark.parametrize("done", [1, 3])
def test_draws_that_were_done_are_kept(
    done: int, ends: BaseException, code: int, run_jobs: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(*of: Any, **how: Any) -> Any:
        yield from (one for one, _ in zip(redraws(*of, **how), range(done), strict=False))
        raise ends

    monkeypatch.setattr(solve, "redraws", some)
    found, told, _ = run_jobs("--draws", "6")
    assert found == code
    answer = json.loads(Path("a.json").read_text())
    assert answer["notes"] == [f"Of the 6 draws asked for there are {done} for do(sex = Male): there was no time for more."]
    assert answer["notes"][0] in told
    draws = answer["tests"][0]["draws"]
    assert draws is None if done == 1 else draws["seeds"] == [0, 1, 2]


def test_robustness_to_the_causal_model_is_told(tmp_path: Path) -> None:
    files = ("--json", tmp_path / "a.json", "--out", tmp_path / "out", "--cases", 1)
    done = answered(*DEMO, "--k", 15, "--sensitivity", *files)
    answer = json.loads((tmp_path / "a.json").read_text())
    claims = answer["sensitivity"][0]["claims"]
    counts = {line["method"]: line for line in answer["tests"][0]["counts"]}
    assert [(one["method"], one["verdict"]) for one in claims] == [("CST", "positive"), ("CST", "significant"), ("CF", "positive")]
    assert [one["claims"] for one in claims] == [counts["CST"]["cases"], counts["CST"]["significant"], counts["CF"]["cases"]]
    table = pd.read_csv(tmp_path / "out" / "sensitivity.csv")
    for one, (_, own) in zip(claims, table.groupby(["method", "claim"], sort=False), strict=True):
        assert len(own) == one["claims"]
        assert (own["safe"] <= own["flip"]).all()
        for line in one["shares"]:
            assert line["robust"] == pytest.approx((own["safe"] >= line["t"]).mean())
            assert f"{100 * line['robust']:.1f}%" in done.stdout
    assert is_drawn(tmp_path / "out" / "sensitivity.png")
    (case,) = (tmp_path / "out" / "cases").glob("*.md")
    assert "How wrong must the causal model be (k = 15)? the case holds for all coefficients within" in case.read_text()


BAD: dict[str, tuple[str, tuple[object, ...]]] = {
    "no such demo": ("--demo loans: expected one of loan, german, adult", ("--demo", "loans")),
    "demo and data": ("--demo brings its own", ("--demo", "loan", "--data", "loan.csv")),
    "no causal model": ("cst needs a causal model, --causal FILE.toml", ("--data", "loan.csv")),
    "no rows": ("cst needs rows: pass --data TABLE", ("--causal", "loan.toml")),
    "no such file": ("no.toml: cannot be read", ("--data", "loan.csv", "--causal", "no.toml")),
    "a network alone": ("MODEL and --schema belong together", ("a.onnx", "--data", "loan.csv", "--causal", "loan.toml")),
    "unknown attribute": (
        "--do Gendr: is no node of the causal model; did you mean 'Gender'?",
        ("--demo", "loan", "--do", "Gendr=0"),
    ),
    "no value": ("--do Gender: expected ATTRIBUTE=VALUE", ("--demo", "loan", "--do", "Gender")),
    "twice": ("--do names 'Gender' twice", ("--demo", "loan", "--do", "Gender=0", "--do", "Gender=1")),
    "unknown value": ("no row has that value; known are 0, 1", ("--demo", "loan", "--do", "Gender=7")),
    "no root": ("has to be a root", ("--demo", "loan", "--do", "AnnualSalary=35000")),
    "k too large": ("k = 500: Gender = 1 has only", ("--data", "loan.csv", "--causal", "loan.toml", "--k", 500)),
    "the largest k": ("the largest k is", ("--data", "loan.csv", "--causal", "loan.toml", "--k", 500)),
    "no complainant": ("--case 0: is no complainant under do(Gender = 0), for it has Gender = 0", ("--demo", "loan", "--case", 0)),
    "no such row": ("--case 99999: the table has no such row; its rows are 0 ..", ("--demo", "loan", "--case", 99999)),
    "unknown similarity": ("--attribute Salary: the table has no such column", ("--demo", "loan", "--attribute", "Salary")),
    "protected similarity": ("'Gender' is what do changes", ("--demo", "loan", "--attribute", "Gender")),
    "preset and more": ("--preset paper sets", ("--demo", "loan", "--preset", "paper", "--distance", "heom")),
    "unknown preset": ("--preset papers: expected paper", ("--demo", "loan", "--preset", "papers")),
    "distance": ("--distance l7: expected mixed, standardised, heom or mahalanobis", ("--demo", "loan", "--distance", "l7")),
    "interval": ("--interval exact: expected newcombe or wald", ("--demo", "loan", "--interval", "exact")),
    "ties": ("--ties middle: expected share, first, last or heap", ("--demo", "loan", "--ties", "middle")),
    "correction": ("--correct fdr: expected bh", ("--demo", "loan", "--correct", "fdr")),
    "level": ("--level 5: expected percent", ("--demo", "loan", "--level", 5)),
    "tau": ("--tau 1: expected a number of at least 0 and below 1, such as 0", ("--demo", "loan", "--tau", 1)),
    "no network": ("--certify proves what a network decides, and here decides none", ("--demo", "loan", "--certify", 95)),
    "certificate of nothing": ("--certificate belongs to --certify", ("--demo", "loan", "--certificate", "proof.json")),
    "certified level": ("--certify 5: expected percent", ("--demo", "german", "--certify", 5)),
    "out is a file": ("--out loan.csv: is a file", ("--demo", "loan", "--out", "loan.csv")),
    "nowhere to write": ("nothing can be written", ("--demo", "loan", "--json", "loan.csv/a.json")),
    "time is up": ("--timeout: the time was up after", ("--demo", "loan", "--timeout", 1e-6)),
    "no time": ("--timeout", ("--demo", "loan", "--timeout", 0)),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_named_with_their_remedy(case: str, files: Path, tmp_path: Path, refused: Refused) -> None:
    for name in ("loan.csv", "loan.toml"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    expected, arguments = BAD[case]
    assert expected in refused("cst", *arguments)


def test_a_causal_file_that_says_too_little_is_named(files: Path, tmp_path: Path, refused: Refused) -> None:
    written = (files / "loan.toml").read_text()
    (tmp_path / "nobody.toml").write_text(written[: written.index("[decision]")])
    asked = ("--data", files / "loan.csv")
    assert "nobody decides; name in [decision]" in refused("cst", *asked, "--causal", "nobody.toml")
    (tmp_path / "whom.toml").write_text(written.replace("do = { Gender = 0 }", ""))
    assert "pass --do ATTRIBUTE=VALUE" in refused("cst", *asked, "--causal", "whom.toml")


@pytest.mark.parametrize("finished", [0, 1])
def test_ctrl_c_keeps_what_was_tested(finished: int, tmp_path: Path, ctrl_c: Callable[..., None]) -> None:
    ctrl_c(Intervention, "of", finished + 1)
    asked = ["cst", "--demo", "german", "--do", "sex=Male", "--do", "age=Senior", "--k", "15", "--json", str(tmp_path / "a.json")]
    done = verifair(*asked)
    assert done.returncode == 130, done.stderr
    if not finished:
        assert "interrupted before the first intervention was tested: nothing is kept" in flat(done.stderr)
        assert not (tmp_path / "a.json").exists()
        return
    answer = json.loads((tmp_path / "a.json").read_text())
    assert [test["do"] for test in answer["tests"]] == [{"sex": "Male"}]
    assert answer["not_tested"] == ["age = Senior"]
    assert "do(age = Senior) was not tested" in flat(done.stdout)
    assert answer["several"] == []


def test_small_groups_are_an_error_or_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    race = np.array(["White"] * 60 + ["Black"] * 40 + ["Other"] * 3)
    table = pd.DataFrame({"race": race, "pay": rng.integers(10, 90, len(race)) * 1000})
    table.to_csv(tmp_path / "pay.csv", index=False)
    (tmp_path / "pay.toml").write_text(
        '[[causal.node]]\nname = "race"\n[[causal.node]]\nname = "pay"\nparents = ["race"]\n'
        '[decision]\nweights = { pay = 1 }\nabove = 50000\n'
    )
    asked = ("cst", "--data", tmp_path / "pay.csv", "--causal", tmp_path / "pay.toml", "--do", "race=White", "--k", 5)
    run = verifair(*asked)
    assert run.returncode == 2
    assert "race = Other has only 2 other rows; the largest k is 2" in flat(run.stderr)
    run = answered(*asked, "--small", "leave-out", "--json", tmp_path / "a.json")
    assert "race = Other (3 people)" in flat(run.stdout)
    (one,) = json.loads((tmp_path / "a.json").read_text())["tests"]
    assert one["left_out"] == {"race = Other": 3}
    assert one["complainants"] == 40


@pytest.mark.skipif(not os.environ.get("VERIFAIR_DATA"), reason="VERIFAIR_DATA is not set")
def test_the_papers_law_school_from_its_file(tmp_path: Path) -> None:
    table = Path(os.environ["VERIFAIR_DATA"]) / "tabular" / "law_school.csv.gz"
    answered("cst", "--demo", "law_school", "--data", table, "--preset", "paper", "--k", 15, "--json", tmp_path / "a.json")
    tests = json.loads((tmp_path / "a.json").read_text())["tests"]
    counts = [{one["method"]: one["cases"] for one in test["counts"]} for test in tests]
    assert [one["CF"] for one in counts] == [231, 56]
    assert (counts[0]["CST w/o"], counts[0]["CST"]) == (243, 284)


def test_law_school_needs_its_file() -> None:
    run = verifair("cst", "--demo", "law_school")
    assert run.returncode == 2
    assert "law_school is not shipped" in run.stderr


# verifair cst in clumsy hands: what is found, expected and to be done is said; nothing is taken in silence.


LOAN = datasets.causal_path("loan").read_text()


@pytest.fixture
def run_loan(inside: Run) -> Run:
    """run(*arguments): exit code, screen, errors, in a folder with loan.csv (300 rows) and loan.toml."""
    datasets.load("loan").frame.head(300).to_csv("loan.csv", index=False)
    Path("loan.toml").write_text(LOAN)

    def run_it(*arguments: object) -> tuple[int, str, str]:
        return inside("cst", "--data", "loan.csv", "--k", 5, *arguments)

    return run_it


def written(text: str) -> str:
    Path("own.toml").write_text(text)
    return "own.toml"


def test_the_recorded_decision_makes_nobody_similar(run_loan: Run) -> None:
    node = '[[causal.node]]\nname = "LoanApproval"\nparents = ["AnnualSalary", "AccountBalance"]\n\n[situation]'
    graph = written(LOAN.replace("[situation]", node))
    code, told, _ = run_loan("--causal", graph, "--json", "with.json")
    assert code == 0
    assert "over AnnualSalary, AccountBalance. Causal model" in told
    run_loan("--causal", "loan.toml", "--json", "without.json")
    one, other = (json.loads(Path(name).read_text())["tests"][0]["counts"] for name in ("with.json", "without.json"))
    assert one == other
    code, _, told = run_loan("--causal", "loan.toml", "--attribute", "LoanApproval")
    assert (code, told.startswith("error: attributes: 'LoanApproval' is the decision itself")) == (2, True)


@pytest.mark.parametrize(("line", "told"), [
    ("seed = 5", "seed: unknown key"),
    ("tau = -0.5", "[situation]: tau = -0.5, expected a number of at least 0 and below 1"),
    ('preset = "paper"\nlevel = 0.9', "itself: drop it, or drop your level"),
    ('attributes = ["AnualSalary"]', "own.toml: [situation]: attribute AnualSalary: the table has no such column"),
])
def test_a_causal_file_is_not_ignored_in_silence(run_loan: Run, line: str, told: str) -> None:
    code, _, error = run_loan("--causal", written(LOAN.replace("[situation]", f"[situation]\n{line}")))
    assert code == 2
    assert told in error


def test_the_preset_names_options_as_they_are_called(run_loan: Run) -> None:
    _, _, told = run_loan("--causal", "loan.toml", "--preset", "paper", "--one-sided")
    assert told.endswith("sets level, one-sided, z, distance, interval, ties, correct itself: drop it, or drop your one-sided")
    code, _, _ = run_loan("--causal", written(LOAN.replace("[situation]", "[situation]\nlevel = 0.9")), "--preset", "paper")
    assert code == 0, "the command line goes before the file"


def test_the_word_among_numbers_is_named(run_loan: Run) -> None:
    table = pd.read_csv("loan.csv").astype({"AnnualSalary": object})
    table.loc[7, "AnnualSalary"] = "lots"
    table.to_csv("loan.csv", index=False)
    assert "values such as 'lots'" in run_loan("--causal", "loan.toml")[2]


def test_deciders_who_disagree_are_shown(run_loan: Run) -> None:
    assert "otherwise than is recorded" not in run_loan("--causal", "loan.toml")[1]
    table = pd.read_csv("loan.csv")
    table.loc[:2, "LoanApproval"] *= -1
    table.to_csv("loan.csv", index=False)
    assert "Of the rows it decides 3 (1.0 %) otherwise than is recorded" in run_loan("--causal", "loan.toml")[1]


def test_chance_without_time_is_said(run_loan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any, **__: Any) -> None:
        raise OutOfTime("the time was up")

    monkeypatch.setattr("verifair.systems.cst.solve.chance", late)
    code, told, _ = run_loan("--causal", "loan.toml", "--chance", "2", "--json", "a.json")
    assert code == 0
    note = "What chance finds (--chance) was not finished for do(Gender = 0): there was no time."
    assert note in told
    assert json.loads(Path("a.json").read_text())["notes"] == [note]


def test_measured_chance_takes_the_place_of_the_expected(run_loan: Run) -> None:
    told = run_loan("--causal", "loan.toml", "--chance", "1")[1]
    assert "sig. by chance" in told
    assert "would make about" not in told


def test_ctrl_c_while_pictures_are_drawn_keeps_the_answer(run_loan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plots, "causal_graph", interrupted)
    code, told, error = run_loan("--causal", "loan.toml", "--out", "o", "--json", "a.json")
    assert code == 130
    assert "To review first" in told
    assert error.endswith("interrupted: not everything is in --out o")
    assert json.loads(Path("a.json").read_text())["tests"]


def test_letters_without_a_glyph_are_no_warning(run_loan: Run, recwarn: pytest.WarningsRecorder) -> None:
    table = pd.read_csv("loan.csv")
    table["Gender"] = table["Gender"].map({0: "ma[le]", 1: "日本"})
    table.to_csv("loan.csv", index=False)
    code, told, error = run_loan("--causal", "loan.toml", "--do", "Gender=ma[le]", "--cases", "1", "--out", "a b")
    assert (code, error) == (0, "")
    assert "Gender = 日本" in told
    assert not [one for one in recwarn if "Glyph" in str(one.message)]


def test_an_earlier_runs_robustness_does_not_stay(run_loan: Run) -> None:
    Path("o").mkdir()
    for name in ("sensitivity.png", "sensitivity.csv"):
        (Path("o") / name).write_text("old")
    assert run_loan("--causal", "loan.toml", "--out", "o", "--cases", "0")[0] == 0
    assert not list(Path("o").glob("sensitivity*"))
