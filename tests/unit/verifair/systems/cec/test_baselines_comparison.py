"""The comparison's own machinery: dominance, resuming, and kept networks that give the measured figures back."""

from pathlib import Path

import pandas as pd
import pytest

from encoders.onnx.reader import read_onnx
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import audit
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People

pytest.importorskip("torch")
pytest.importorskip("fairlearn")

from benchmarks.cec import comparison as cec_comparison
from verifair.papers.cec.data import ENCODINGS, Case


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
    table = cec_comparison.pareto(results).set_index("method")
    assert table["all"].to_dict() == {"unconstrained": "2/2", "dir": "1/2", "hardt": "2/2", "cec": "1/1"}
    assert table["with ours"].to_dict() == {"unconstrained": "1/2", "dir": "1/2", "hardt": "1/2", "cec": "0/1"}
    assert table["adult"].to_dict() == {"unconstrained": 0, "dir": 0, "hardt": 1, "cec": 0}


def test_a_run_resumes_and_keeps_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> pd.DataFrame:
        return cec_comparison.run(tmp_path, datasets=["german"], methods=["unconstrained"], folds=[1], kept=tmp_path / "nets")

    first = run()
    assert "german     unconstrained  fold 1" in capsys.readouterr().out
    written = tmp_path / "cec-folds" / "german-unconstrained-1.json"
    before = written.stat().st_mtime_ns
    assert run().equals(first)
    assert "fold 1" not in capsys.readouterr().out
    assert written.stat().st_mtime_ns == before
    assert {"cec-plane.png", "cec-regimes.png", "cec-folds.csv"} <= {path.name for path in tmp_path.iterdir()}

    case = Case.load("german")
    train, test = list(case.folds())[1]
    network = read_onnx(tmp_path / "nets" / "german-unconstrained-1.onnx")
    Schema.load(tmp_path / "nets" / "german-unconstrained-1.toml").check_network(network)
    found = audit(network, Reference.of(train, case.columns.merit), test)
    assert f"{found.score.mean():.3f}" in str(first["CEC"].iloc[0])


def test_folds_share_out_everybody_and_every_cell() -> None:
    case = Case.load("synthetic")

    def cells(people: People) -> pd.Series:
        return pd.Series(people.labels * 2 + people.groups).value_counts(normalize=True).sort_index()

    folds = list(case.folds())
    assert sum(len(test) for _, test in folds) == len(case.people)
    for train, test in folds:
        assert len(train) + len(test) == len(case.people)
        assert (cells(train) - cells(test)).abs().max() < 0.002


def test_encodings_are_of_the_same_people() -> None:
    case = Case.load("german")
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
