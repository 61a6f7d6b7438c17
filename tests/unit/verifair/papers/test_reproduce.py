"""The papers' tables made again: what is asked for by number, how seeds are put together, what is kept, and what agrees exactly."""

import json
import os
import re
import signal
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from tests.command_line import is_drawn
from verifair import datasets
from verifair.cli.main import app
from verifair.cli.reproduce import Agreement, show
from verifair.errors import QueryError
from verifair.papers.catalog import DATA as DATA_FOLDER
from verifair.papers.catalog import PAPERS, Printed, Request, catalog, chosen
from verifair.papers.cst.data import audit
from verifair.papers.cst.tables import balances
from verifair.papers.hyfair import tables as hyfair
from verifair.papers.pba import tables as pba
from verifair.papers.pba.printed import BLOCKS, DELTAS, printed
from verifair.papers.reproduce import Reproduced, averaged, draw, pairs, reproduce, titled
from verifair.screen import Screen

DATA = os.environ.get(DATA_FOLDER)
SOME = [
    ("fgce", "8", "German"), ("fgce", "7", "German"), ("fgce", "15", "German"), ("hyfair", "2", "BM-1"), ("hyfair", "3", "BM-1"),
]
needs_data = pytest.mark.skipif(not DATA, reason="VERIFAIR_DATA is not set")


def made(request: Request) -> pd.DataFrame:
    return pd.DataFrame({"who": [request.dataset, "all"], "share": [0.2 + request.seed, 1.0], "paper's share": [0.5, 0.9]})


TABLE = Printed(name="table 3", about="shares", datasets=("a", "b"), make=made, keys=("who",), seeds=2)


def run(printed: Printed, **more: object) -> Reproduced:
    asked = {"folder": None, "datasets": (), "seeds": 2, "seconds": 1.0, **more}
    return reproduce(printed, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_of_a_paper_has_a_name_of_its_own(paper: str) -> None:
    names = [one.name for one in catalog(paper)]
    assert len(set(names)) == len(names) > 0
    assert all(name.split()[0] in ("table", "figure") and name.split()[1].isdecimal() for name in names)


def test_differences_from_the_paper_are_explained() -> None:
    """Of CST's Table 1 there is none."""
    assert [(paper, table.name) for paper in PAPERS for table in catalog(paper) if not table.differences] == [("cst", "table 1")]


@pytest.mark.parametrize(("text", "name"), [("4", "table 4"), ("IV", "table 4"), ("iv", "table 4"), ("XI", "table 11")])
def test_a_table_is_named_by_either_numeral(text: str, name: str) -> None:
    assert [one.name for one in chosen("fgce", [text], ["2"])] == [name, "figure 2"]
    assert len(chosen("fgce", [], [])) == len(catalog("fgce"))


@pytest.mark.parametrize(("text", "told"), [
    ("12", "table 12 cannot be made"), ("XII", "table 12 cannot be made; known are table 1"), ("", "the number"),
    ("four", "the number"), ("IIII", "the number"),
])
def test_a_table_that_is_not_there_is_refused(text: str, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        chosen("cst", [text], [])


def test_seeds_are_averaged_and_the_papers_numbers_are_not() -> None:
    found = run(TABLE)
    assert (found.parts, found.asked, found.seeds) == (4, 4, 2)
    one = found.frame.set_index("who").loc["a"]
    assert one["share"] == pytest.approx(0.7)
    assert one["± share"] == pytest.approx(np.std([0.2, 1.2], ddof=1))
    assert one["paper's share"] == 0.5
    assert "± paper's share" not in found.frame
    assert run(replace(TABLE, seeds=1)).frame["share"].tolist() == [0.2, 1.0, 0.2, 1.0], "nothing is drawn: one seed will do"


def test_a_table_has_its_own_seconds() -> None:
    asked: list[float] = []
    timed = replace(TABLE, make=lambda request: asked.append(request.seconds) or made(request), seconds=100.0, seeds=1)
    for seconds in (None, 3.0):
        run(timed, seconds=seconds)
    assert asked == [100.0, 100.0, 3.0, 3.0]


def test_parts_are_kept_and_taken_up_again(tmp_path: Path) -> None:
    calls: list[Request] = []

    def stopped(request: Request) -> pd.DataFrame:
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(request)
        return made(request)

    part = run(replace(TABLE, make=stopped), kept=tmp_path)
    assert (part.parts, part.asked) == (3, 4)
    whole = run(replace(TABLE, make=lambda request: calls.append(request) or made(request)), kept=tmp_path, resume=True)
    assert [(one.dataset, one.seed) for one in calls] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    pd.testing.assert_frame_equal(whole.frame, run(TABLE).frame)


def test_a_part_that_was_interrupted_is_none_though_its_search_gives_back_what_it_has(tmp_path: Path) -> None:
    def searched(request: Request) -> pd.DataFrame:
        with suppress(KeyboardInterrupt):  # as searches do, which keep what they have met
            if request.seed == 1:
                signal.raise_signal(signal.SIGINT)
        return made(request)

    found = run(replace(TABLE, make=searched), kept=tmp_path)
    assert (found.parts, found.asked) == (1, 4)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(KeyboardInterrupt):
        run(replace(TABLE, make=lambda request: searched(replace(request, seed=1))), kept=tmp_path)


def test_a_picture_shows_the_columns_that_both_have(tmp_path: Path) -> None:
    found = run(TABLE)
    assert [name for name, _, _ in pairs(found.frame)] == ["share"]
    assert draw(found, tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 1000
    assert not draw(replace(found, frame=found.frame.drop(columns="paper's share")), tmp_path / "none.png")
    lines = replace(TABLE, keys=("who", "share"), lines=("share", "paper's share"))
    assert draw(replace(found, printed=lines), tmp_path / "lines.png")


def test_many_columns_are_drawn_in_rows_and_large_numbers_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *where, **how: (drawn.append(figure), save(figure, *where, **how)))
    numbers = {f"measure {k}": [0.0, 330_359.0] for k in range(6)}
    frame = pd.DataFrame({"who": ["a", "b"], **numbers, **{f"paper's {name}": values for name, values in numbers.items()}})
    assert draw(Reproduced(printed=TABLE, frame=frame, parts=1, asked=1, seeds=1), tmp_path / "t.png")
    (figure,) = drawn
    assert len(figure.axes) == 6
    assert len({round(axis.get_position().y0, 2) for axis in figure.axes}) == 2
    assert figure.get_figwidth() < 20
    for axis in figure.axes:
        boxes = sorted((label.get_window_extent() for label in axis.get_xticklabels()), key=lambda box: box.x0)
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_figure_whose_numbers_are_not_printed_is_drawn_of_ours_alone(tmp_path: Path) -> None:
    """Columns without numbers for a dataset are left out there, as the groups of another one."""
    men = {"Men": [0.1, 0.2, None], "± Men": [0.1, 0.0, None]}
    columns = {"dataset": ["a", "a", "b"], "k": [1, 2, 1], **men, "Old": [0.4, 0.1, 0.3]}
    figure = replace(TABLE, name="figure 9", keys=("dataset", "k"))
    found = Reproduced(printed=figure, frame=pd.DataFrame(columns), parts=1, asked=1, seeds=2)
    assert draw(found, tmp_path / "bars.png")
    assert is_drawn(tmp_path / "bars.png")


def test_a_table_may_be_more_than_means_and_share_parts_and_have_its_own_picture(tmp_path: Path) -> None:
    drawn: list[Path] = []
    counted = replace(
        TABLE, name="table 5", parts="table 3", together=lambda parts: pd.DataFrame({"who": ["all"], "lines": [len(parts)]}),
        picture=lambda made, path: drawn.append(path), make=lambda request: pytest.fail("the parts are there"),
    )
    run(TABLE, kept=tmp_path)
    found = run(counted, kept=tmp_path, resume=True)
    assert found.frame.to_dict("records") == [{"who": "all", "lines": 8}]
    assert draw(found, tmp_path / "own.png")
    assert drawn == [tmp_path / "own.png"]
    long = replace(found, printed=replace(counted, about="a title that is longer than a narrow picture is wide, in words"))
    assert max(map(len, titled(long, 4.2).splitlines())) <= 42


def test_averages_keep_lines_apart_that_have_no_name() -> None:
    frame = pd.DataFrame({"k": [1.0, np.nan, 1.0, np.nan], "cost": [1.0, 2.0, 3.0, 4.0], "note": list("abcd")})
    assert averaged(frame, ["k"])["cost"].tolist() == [2.0, 3.0]
    assert list(averaged(frame.head(2), ["k"])) == ["k", "cost", "note"], "one line has no deviation"


@pytest.mark.parametrize(("dataset", "sensitive"), BLOCKS)
def test_what_pba_prints_is_read_column_by_column(dataset: str, sensitive: str) -> None:
    table = printed(dataset, sensitive)
    assert table["paper's share"].between(0, 1).all()
    wide = table[table["metric"] == "PBA"].pivot_table(
        index=["hidden", "method", "group", "delta"], columns="setting", values="paper's share", sort=False
    )
    for _, part in wide.groupby(["hidden", "method", "group"]):
        assert (part.diff().dropna() <= 1e-9).all(axis=None), "more units prove fewer rows"
    groups = list(dict.fromkeys(table["group"]))
    observed = wide["observed"].xs(groups[0], level="group")
    flipped = wide["flipped"].xs(groups[1], level="group").reindex(observed.index)
    assert ((observed + flipped).dropna() <= 1.0011).all(), "a row is never proved in both directions"


def test_pba_on_german_is_near_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(pba, "SIZES", ((100, 50),))
    monkeypatch.setattr(pba, "METHODS", ("agnostic",))
    table = pba.metrics(datasets.load("german"), "age", 0, "german")
    assert len(table) == 2 * (3 + 4 * len(DELTAS))
    assert (table["share"] - table["paper's share"]).abs().mean() < 0.06


def test_outcomes_of_german_add_up_to_the_groups_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 3's bars, put together over the outcomes, are the lines PBA of table 3."""
    pytest.importorskip("torch")
    monkeypatch.setattr(pba, "SIZES", ((20, 10),))
    monkeypatch.setattr(pba, "METHODS", ("agnostic",))
    german = datasets.load("german")
    bars = pba.outcomes(german, "age", 0, "german")
    assert bars["outcome"].nunique() == 2
    whole = bars.assign(proved=bars["share"] * bars["rows"]).groupby(["setting", "group"])[["proved", "rows"]].sum()
    line = pba._network(german, "age", 0, (20, 10), "agnostic")
    line = line[(line["metric"] == "PBA") & (line["delta"] == 1.0)].set_index(["setting", "group"])["share"]
    assert (whole["proved"] / whole["rows"]).to_dict() == pytest.approx(line.to_dict())


def test_the_sample_of_adult_has_the_papers_sizes() -> None:
    sample = datasets.load("adult-balanced")
    assert len(sample.frame) == 4800
    assert sample.frame["sex"].value_counts().to_dict() == {"Male": 3290, "Female": 1510}
    assert sample.frame["race"].value_counts().to_dict() == {"White": 3870, "Black": 930}
    high = sample.frame["income"] == ">50K"
    women, black = sample.frame["sex"] == "Female", sample.frame["race"] == "Black"
    assert (high.sum(), high[women].sum(), high[black].sum()) == (2400, 715, 395)
    assert len(sample.test) == 960


def test_a_table_that_is_wider_than_the_screen_is_shown_in_parts() -> None:
    def wide(request: Request) -> pd.DataFrame:
        numbers = {f"measure {k}": [k + 0.125 * request.seed, 7000.5] for k in range(6)}
        return made(request).assign(**numbers, **{f"paper's {name}": [1.5, 2.5] for name in numbers})

    found, told = run(replace(TABLE, make=wide)), StringIO()
    show(found, [], ["table.csv"], Screen(file=told, width=60))
    lines = told.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert "…" not in told.getvalue()
    for k in range(6):
        assert f"{k + 0.0625:.3g} ±0.088 / 1.5" in told.getvalue()
    assert sum(line.startswith("│ a ") for line in lines) == sum(line.startswith("│ b ") for line in lines) >= 3
    large = Agreement(column="measure 1", numbers=2, mean_difference=182_345.6, rank_correlation=0.5)
    show(found, [large], ["table.csv"], Screen(file=(once := StringIO()), width=400))
    assert "measure 1: 2 printed numbers, mean difference 182,346, rank correlation 0.500" in once.getvalue()
    assert re.search(r"\de[+]\d", once.getvalue()) is None  # 7000.5 is no 7e+03
    assert sum(line.startswith("│ a ") for line in once.getvalue().splitlines()) == 1
    explained = replace(found, printed=replace(found.printed, differences="Rounded."))
    equal = large.model_copy(update={"mean_difference": 0.0})
    for line, words in ((large, "Why they differ: Rounded."), (equal, "All numbers agree. Notes: Rounded.")):
        show(explained, [line], ["table.csv"], Screen(file=(noted := StringIO()), width=400))
        assert words in noted.getvalue()


def test_figure_2_of_cst_is_about_all_and_five_complainants() -> None:
    """As in the paper's figure, the counterfactual balances are higher, and ctr is nearer to tst-st than to tst-cf."""
    found = balances(audit("loan", datasets.load("loan").frame)).set_index(["panel", "people"])["median"]
    assert found["left", "all, counterfactual"] > found["left", "all, as they are"] + 3000
    right = found["right"].to_numpy().reshape(-1, 3)
    assert len(right) == 5
    assert (np.abs(right[:, 1] - right[:, 0]) < np.abs(right[:, 2] - right[:, 0])).all()


def test_what_no_seed_gives_has_no_spread() -> None:
    found, told = run(replace(TABLE, make=lambda request: made(request).assign(k=[np.nan, 3.0]))), StringIO()
    show(found, [], ["table.csv"], Screen(file=told, width=100))
    assert "3 ±0" in told.getvalue()
    assert "±-" not in told.getvalue()


@needs_data
def test_the_command_writes_tables_pictures_and_json(tmp_path: Path) -> None:
    words = ["reproduce", "cst", "--table", "1", "--table", "III", "--data", str(DATA), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, "--json", str(tmp_path / "cst.json")])
    assert done.exit_code == 0, done.output
    answer = json.loads((tmp_path / "cst.json").read_text())
    first, third = answer["tables"]
    assert first["agreement"] == [{"column": "cases", "numbers": 16, "mean_difference": 0.0, "rank_correlation": 1.0}]
    assert max(one["mean_difference"] for one in third["agreement"]) < 0.005
    table = pd.read_csv(tmp_path / "cst" / "table-1.csv")
    assert (table["cases"] == table["paper's cases"]).all()
    assert (tmp_path / "cst" / "table-1.png").stat().st_size > 1000


@needs_data
@pytest.mark.parametrize(("paper", "table", "dataset"), SOME)
def test_one_table_of_one_dataset(paper: str, table: str, dataset: str, tmp_path: Path) -> None:
    words = ["reproduce", paper, "--table", table, "--dataset", dataset, "--seeds", "1", "--seconds", "0.5"]
    done = CliRunner().invoke(app, [*words, "--data", str(DATA), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert len(pd.read_csv(tmp_path / paper / f"table-{table}.csv")) > 1


@needs_data
def test_a_table_that_is_asked_for_and_not_about_the_dataset_is_named(tmp_path: Path) -> None:
    words = ["reproduce", "cst", "--table", "1", "--table", "4", "--dataset", "loan"]
    done = CliRunner().invoke(app, [*words, "--data", str(DATA), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "table 4 is left out: it is about law school alone" in done.output


@needs_data
def test_certified_gaps_are_priced_before_and_after_retraining(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(hyfair, "RETRAININGS", 1)
    request = Request(dataset="GC-3", folder=Path(str(DATA)), seed=0, seconds=0.5)
    table = hyfair.prices(request)
    assert list(dict.fromkeys(table["retrained"])) == [0, 1]
    assert table["gap met"].nunique() == 2, "the second network is another one"
    for _, part in table.groupby("retrained"):
        assert part["refused, %"].iloc[0] == 0, "nothing is refused before there is a guardrail"
        assert (part["certified gap"].diff().dropna() <= 0).all()
        assert (part["certified k"] <= 20).all()
    targets = table[table["part of it"] == "0.25"]["certified gap"]
    assert targets.max() <= 0.25 * table["gap met"].iloc[0] + 1e-12, "targets are parts of the first network's gap"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["law"], "there is no such paper"), (["cst", "--table", "9"], "table 9 cannot be made"),
        (["cst", "--table", "1"], "pass --data DIR"), (["cst", "--data", "nowhere"], "is no folder"),
        (["pba", "--dataset", "law"], "known are adult sample, adult, compas, german"),
    ],
)
def test_mistakes_are_told_before_any_work(words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_FOLDER, raising=False)
    done = CliRunner().invoke(app, ["reproduce", *words, "--out", str(tmp_path / "out")])
    assert done.exit_code != 0
    assert told in str(done.exception)


MISSING = [
    ("cst", "1", "loan", "counterfactual-situation-testing"), ("cst", "4", "law school", "counterfactual-situation-testing"),
    ("pba", "2", "compas", "propublica/compas-analysis"), ("hyfair", "2", "BM-1", "sumonbis/Fairify"),
    ("fgce", "2", "Student", "xristosfrag/FGCE"), ("fgce", "8", "German", "archive.ics.uci.edu"),
    ("fgce", "8", "HELOC", "xristosfrag/FGCE"), ("cec", "2", "hmda", "loan-approval-bias-auditor"),
]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(("paper", "table", "dataset", "address"), MISSING)
def test_an_error_says_where_missing_data_is_to_be_had(
    paper: str, table: str, dataset: str, address: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a folder, and in one that the variable names and where the file is missing."""
    monkeypatch.delenv(DATA_FOLDER, raising=False)
    if there:
        monkeypatch.setenv(DATA_FOLDER, str(tmp_path))
    words = ["reproduce", paper, "--table", table, "--dataset", dataset, "--out", str(tmp_path / "out")]
    told = str(CliRunner().invoke(app, words).exception)
    assert address in told.split("from https://")[1]
    assert (str(tmp_path) if there else "pass --data DIR, or set VERIFAIR_DATA") in told


def test_a_variable_that_names_no_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_FOLDER, "nowhere")
    done = CliRunner().invoke(app, ["reproduce", "cst", "--out", str(tmp_path / "out")])
    assert "VERIFAIR_DATA nowhere: is no folder" in str(done.exception)


def test_what_there_is_is_listed() -> None:
    done = CliRunner().invoke(app, ["reproduce", "fgce", "--list"])
    assert done.exit_code == 0
    assert "figure 8" in done.stdout
