"""The CEC paper's tables and figures: dominance, means beside the text, pictures; folds, and kept networks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from encoders.onnx.reader import read_onnx
from tests.command_line import is_drawn
from verifair.papers.catalog import Printed, chosen
from verifair.papers.cec import views
from verifair.papers.reproduce import draw, reproduce
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import audit
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People
from verifair.systems.cec.training import CEC_LOOP, METHODS, train_decider

pytest.importorskip("torch")
pytest.importorskip("fairlearn")

from verifair.papers.cec import tables
from verifair.papers.cec.data import ENCODINGS, CecData, keep

MEASURED = (*views.OF_METHODS, *views.REGIMES)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """Numbers drawn in place of trainings; each is noted."""
    noted: list[tuple[str, int, str]] = []

    def audited(case: str, fold: int, method: str, terms: object = None) -> dict[str, float]:
        noted.append((case, fold, f"{method} {terms}"))
        return dict(zip(MEASURED, np.random.default_rng(len(noted)).random(len(MEASURED)), strict=True))

    monkeypatch.setattr(tables, "audited", audited)
    monkeypatch.setattr(tables, "_case", lambda name, path: name)
    tables._trained.cache_clear()
    return noted


def made(kind: str, number: str, dataset: str = "german") -> Printed:
    (found,) = chosen("cec", *(([number], []) if kind == "table" else ([], [number])))
    return replace(found, datasets=(dataset,))


def test_dominated_means_worse_in_all_three() -> None:
    lines = [
        ("german", "unconstrained", 0, 0.8, 0.10, 0.5),
        ("german", "dir", 0, 0.7, 0.20, 0.6),  # worse than unconstrained in everything
        ("german", "hardt", 0, 0.7, 0.05, 0.6),  # has the least gap
        ("german", "cec", 0, 0.8, 0.10, 0.5),  # a tie is no dominance
        ("german", "merit-only", 0, 0.9, 0.01, 0.1),  # better than all, but not the paper's
        ("german", "unconstrained", 1, 0.8, 0.10, 0.5),
        ("german", "dir", 1, 0.7, 0.20, 0.4),
        ("adult", "hardt", 0, 0.7, 0.20, 0.4),  # the run has not come further yet
    ]
    results = pd.DataFrame(lines, columns=["dataset", "method", "fold", "F1", "EO gap", "CEC"])
    folds = []
    for _, fold in results.groupby(["dataset", "fold"], sort=False):
        rivals = fold[fold["method"] != "merit-only"]
        folds.append(fold.assign(**{"free": tables.free(fold, rivals), "free of ours": tables.free(fold, fold)}))
    table = views.pareto(pd.concat(folds)).set_index("method")
    assert table["german"].to_dict() == {"unconstrained": 2, "dir": 1, "hardt": 1, "cec": 1}
    assert table["adult"].to_dict() == {"unconstrained": 0, "dir": 0, "hardt": 1, "cec": 0}
    assert table["folds"].to_dict() == {"unconstrained": 2, "dir": 2, "hardt": 2, "cec": 1}
    assert table["share"].to_dict() == {"unconstrained": 1.0, "dir": 0.5, "hardt": 1.0, "cec": 1.0}
    assert table["with ours"].to_dict() == {"unconstrained": 1, "dir": 1, "hardt": 1, "cec": 0}
    assert table["paper's share"].to_dict() == {"unconstrained": 0.65, "dir": 0.0, "hardt": 0.05, "cec": 1.0}
    assert table.loc["unconstrained", "paper's count"] == "13/20"


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize(
    ("kind", "number", "lines", "trainings"),
    [
        ("table", "2", len(METHODS), len(METHODS)), ("table", "3", 7, len(METHODS)), ("table", "4", 4, 4),
        ("figure", "4", len(METHODS), len(METHODS)), ("figure", "5", len(METHODS), len(METHODS)), ("figure", "6", 36, 36),
        ("figure", "7", 4, 4),
    ],
)
def test_every_table_and_figure_is_made_and_drawn(
    kind: str, number: str, lines: int, trainings: int, seeds: int, trained: list[object], tmp_path: Path
) -> None:
    found = reproduce(made(kind, number), folder=None, datasets=(), seeds=seeds, seconds=None)
    assert (len(found.frame), len(trained)) == (lines, seeds * trainings)
    assert set(found.printed.keys) <= set(found.frame.columns)
    assert any(str(name).startswith("± ") for name in found.frame) == (seeds > 1 and number != "3")
    drawn = draw(found, tmp_path / "one.png")
    assert drawn == (number != "2"), "of table 2 the text repeats no number of its own"
    if drawn:
        assert is_drawn(tmp_path / "one.png")


def test_a_network_is_trained_once_for_all_that_is_made_of_it(trained: list[object], tmp_path: Path) -> None:
    for kind, number in (("table", "2"), ("table", "3"), ("figure", "4"), ("figure", "5"), ("table", "4"), ("figure", "6")):
        reproduce(made(kind, number), folder=None, datasets=(), seeds=1, seconds=None, kept=tmp_path)
    assert len(trained) == len(METHODS) + 4 + 36 - 1, "equal weights are the full loss of table 4"
    tables._trained.cache_clear()
    again = reproduce(made("figure", "7"), folder=None, datasets=(), seeds=1, seconds=None, kept=tmp_path, resume=True)
    assert len(trained) == len(METHODS) + 4 + 36 - 1, "its parts are table 4's, which are kept"
    assert again.frame["paper's text"].tolist() == ["", "", "", "C and D slightly above pred + CEC"]


def test_the_texts_numbers_stand_beside_their_columns(trained: list[object]) -> None:
    parts = tables.losses(0)
    four, seven = views.losses(parts).set_index("loss"), views.loss_regimes(parts).set_index("loss")
    assert four["paper's CEC"].dropna().to_dict() == {"pred": 0.578, "pred + CEC": 0.233}
    assert four["paper's EO gap"].dropna().to_dict() == {"pred + CEC": 0.0}
    assert seven["paper's B"].dropna().to_dict() == {"pred": 0.705, "pred + EO": 0.714, "pred + CEC": 0.21}
    assert "paper's CEC" not in seven
    assert four["paper's text"].tolist()[:2] == ["", "CEC not lower"]
    methods = ["cec", "unconstrained", "hardt", "dir"]
    places = {"PFR": [0.1, 0.3, 0.1, 0.3], "CEC": [0.2, 0.6, 0.6, 0.2]}
    plane = views.plane(pd.DataFrame({"dataset": "german", "method": methods, **places}))
    assert plane["quadrant"].tolist() == ["A", "D", "B", "C"]
    assert plane["paper's quadrant"].tolist() == ["A", "D", "B", "B"]


def test_a_kept_network_gives_the_measured_figures_back(tmp_path: Path) -> None:
    case = CecData.load("german")
    train, test = list(case.folds())[1]
    short = replace(CEC_LOOP, seed=1, epochs=3)
    decider = train_decider("unconstrained", train, case.columns, loop=short)
    keep(decider, case, tmp_path / "net", 1)
    network = read_onnx(tmp_path / "net.onnx")
    Schema.load(tmp_path / "net.toml").check_network(network)
    measured = tables.measured(decider, case.columns, train, test)
    assert set(MEASURED) <= set(measured)
    assert audit(network, Reference.of(train, case.columns.merit), test).score.mean() == pytest.approx(measured["CEC"], abs=1e-3)


def test_folds_share_out_everybody_and_every_cell() -> None:
    case = CecData.load("synthetic")

    def cells(people: People) -> pd.Series:
        return pd.Series(people.labels * 2 + people.groups).value_counts(normalize=True).sort_index()

    folds = list(case.folds())
    assert sum(len(test) for _, test in folds) == len(case.people)
    for train, test in folds:
        assert len(train) + len(test) == len(case.people)
        assert (cells(train) - cells(test)).abs().max() < 0.002


def test_encodings_are_of_the_same_people() -> None:
    case = CecData.load("german")
    for kind in ENCODINGS:
        other = case.encoded(kind)
        assert (other.people.labels == case.people.labels).all()
        assert len(other.columns.merit) == 7
        assert len(other.columns.sensitive) == 1
        if kind.endswith("minmax"):
            assert other.people.x.min() == 0
            assert other.people.x.max() == pytest.approx(1)
        else:
            assert abs(other.people.x.mean(axis=0)).max() < 1e-9
        assert other.people.x.shape[1] == (56 if kind.startswith("one-hot") else 20)
