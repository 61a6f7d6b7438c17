"""What cst and cec compute is kept as they go: a run that ended before its time goes on, and only with its own question."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from solvers import clock
from tests.command_line import Run
from tests.unit.verifair.systems.cst.test_estimator import MODEL, RULE, applicants
from verifair import datasets
from verifair.errors import DataError, QueryError
from verifair.systems.cec import attributions
from verifair.systems.cec import plots as cec_plots
from verifair.systems.cst import plots as cst_plots
from verifair.systems.cst.neighbours import counts as neighbours
from verifair.systems.stores import Parts

CST = ("cst", "--demo", "german", "--do", "sex=Male", "--k", "15", "--cases", "0")
CEC = ("cec", "--demo", "german", "--protected", "sex")
Stop = Callable[[Any, int | None], list[int]]
SEARCHED, EXPLAINED = (neighbours, "_step"), (attributions, "_checked")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of fewer people than German Credit has, and no pictures, which take longer than these."""
    for plots in (cec_plots, cst_plots):
        monkeypatch.setattr(plots, "plots", lambda result: {})
    monkeypatch.setattr(neighbours, "CENTERS", 100)
    monkeypatch.setattr(attributions, "AT_ONCE", 200)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stop:
    """Let what computes a part end with Ctrl-C after so many calls; gives a list with one number for each call."""

    def stop(where: tuple[Any, str], after: int | None) -> list[int]:
        module, name = where
        true, calls = getattr(module, name), list[int]()
        true = getattr(true, "true", true)

        def call(*given: Any, **named: Any) -> Any:
            if after is not None and len(calls) == after:
                raise KeyboardInterrupt
            calls.append(1)
            return true(*given, **named)

        call.true = true  # type: ignore[attr-defined]
        monkeypatch.setattr(module, name, call)
        return calls

    return stop


def untimed(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return {key: value for key, value in found.items() if key != "seconds"}


@pytest.mark.parametrize(("words", "where", "after"), [
    (CST, SEARCHED, 2), (CST, SEARCHED, 7), ((*CST, "--chance", "2"), SEARCHED, 20), ((*CST, "--preset", "paper"), SEARCHED, 5),
    (CEC, EXPLAINED, 1), (CEC, EXPLAINED, 6), ((*CEC, "--rows", "700", "--ties", "random"), EXPLAINED, 3),
])
def test_an_interrupted_run_goes_on_to_the_same_answer(
    inside: Run, tmp_path: Path, stopped: Stop, words: tuple[str, ...], where: Any, after: int
) -> None:
    every = stopped(where, None)
    assert inside(*words, "--out", "whole", "--json", "whole.json")[::2] == (0, "")
    assert not (tmp_path / "whole" / "parts.sqlite").exists()
    before = len(every)
    stopped(where, after)
    code, _, errors = inside(*words, "--out", "out", "--json", "out.json")
    again = "what was computed is in out/parts.sqlite: go on with --resume"
    assert (code, again in errors, "nothing is kept" in errors) == (130, True, False), errors
    code, _, errors = inside(*words, "--out", "out")
    assert code == 2
    assert "out/parts.sqlite: is there already; continue it with --resume, or name another folder with --out" in errors
    rest = stopped(where, None)
    assert inside(*words, "--out", "out", "--json", "out.json", "--resume")[::2] == (0, "")
    assert 0 < len(rest) <= before - after + 2
    assert untimed(tmp_path / "out.json") == untimed(tmp_path / "whole.json")
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == sorted(one.name for one in (tmp_path / "whole").iterdir())
    for table in (tmp_path / "whole").glob("*.csv"):
        assert (tmp_path / "out" / table.name).read_bytes() == table.read_bytes()
    code, _, errors = inside(*words, "--out", "out", "--resume")
    assert (code, "out/parts.sqlite is not there (a run that ends deletes it); start without --resume" in errors) == (2, True)


@pytest.mark.parametrize(("words", "where", "other"), [
    (CST, SEARCHED, ("--k", "30")), (CST, SEARCHED, ("--distance", "heom")), (CEC, EXPLAINED, ("--steps", "32")),
    (CEC, EXPLAINED, ("--protected", "age")), (CEC, EXPLAINED, ("--rows", "900")),
])
def test_another_question_is_refused_and_what_decides_no_part_is_not(
    inside: Run, tmp_path: Path, stopped: Stop, words: tuple[str, ...], where: Any,
    other: tuple[str, ...],
) -> None:
    stopped(where, 3)
    assert inside(*words, "--store", "s.sqlite")[0] == 130
    stopped(where, None)
    code, _, errors = inside(*words, *other, "--store", "s.sqlite", "--resume")
    assert (code, errors) == (
        2, "error: s.sqlite: holds another question; name another file with --store, or folder with --out"
    )
    later = stopped(where, None)
    assert inside(*words, "--top", "3", "--store", "s.sqlite", "--resume")[0] == 0
    assert later
    assert not Path("s.sqlite").exists()


@pytest.mark.parametrize(("words", "where"), [(CST, SEARCHED), (CEC, EXPLAINED)])
@pytest.mark.parametrize(("statement", "told"), [
    ("UPDATE parts SET content = zeroblob(length(content))", "a line of it is damaged"),
    ("UPDATE parts SET content = zeroblob(3)", "a line of it is damaged"),
    ("UPDATE parts SET content = 'text'", "a line of it is damaged"),
    ("UPDATE parts SET seal = NULL", "a line of it is damaged"),
    ("CREATE TRIGGER t AFTER INSERT ON parts BEGIN DELETE FROM parts; END", "its tables are others than ours"),
    ("CREATE VIEW v AS SELECT * FROM parts", "its tables are others than ours"),
])
def test_a_damaged_store_is_refused(
    inside: Run, stopped: Stop, words: tuple[str, ...], where: Any, statement: str, told: str
) -> None:
    stopped(where, 4)
    assert inside(*words, "--store", "s.sqlite")[0] == 130
    with closing(sqlite3.connect("s.sqlite")) as file, file:
        file.execute(statement)
    calls = stopped(where, None)
    code, _, errors = inside(*words, "--store", "s.sqlite", "--resume")
    expected = f"error: s.sqlite: no part store that can be used ({told}); name another file with --store"
    assert (code, errors, calls) == (2, expected, [])


@pytest.mark.parametrize("words", [CST, CEC])
def test_a_file_that_is_no_store_of_parts_is_left_as_it_is(inside: Run, words: tuple[str, ...]) -> None:
    for content in (b"no database, but a text" * 99, b"\0" * 5000):
        Path("s.sqlite").write_bytes(content)
        code, _, errors = inside(*words, "--store", "s.sqlite", "--resume")
        assert (code, errors.startswith("error: s.sqlite: no part store that can be used (")) == (2, True), errors
        assert Path("s.sqlite").read_bytes() == content
    assert inside("pba", *CEC[1:], "--limit", "5", "--delta", "1", "--store", "pba.sqlite")[0] == 0
    code, _, errors = inside(*words, "--store", "pba.sqlite", "--resume")
    assert (code, "its tables are others than ours" in errors) == (2, True)
    code, _, errors = inside(*words, "--resume")
    assert (code, "--resume needs the store of the run to continue: pass --store FILE or --out FOLDER" in errors) == (2, True)


@pytest.mark.parametrize(("words", "where"), [(CST, SEARCHED), (CEC, EXPLAINED)])
def test_a_run_whose_time_is_up_goes_on(
    inside: Run, monkeypatch: pytest.MonkeyPatch, stopped: Stop, words: tuple[str, ...], where: Any
) -> None:
    module, name = where
    true, now = getattr(module, name), {"late": 0.0}

    def slow(*given: Any, **named: Any) -> Any:
        now["late"] += 1e4
        return true(*given, **named)

    real = clock.now
    with monkeypatch.context() as patch:
        patch.setattr(clock, "now", lambda: real() + now["late"])
        patch.setattr(module, name, slow)
        code, _, errors = inside(*words, "--out", "out")
    assert code == 2
    assert "what was computed is in out/parts.sqlite: go on with --resume; allow more, or ask for less" in errors
    assert inside(*words, "--out", "out", "--resume")[0] == 0


def test_the_objects_take_a_store_too(tmp_path: Path, stopped: Stop) -> None:
    german = datasets.load("german")
    network, schema = vf.read(datasets.network_path("german")), german.schema

    def consistency(**how: Any) -> vf.ExplanationConsistency:
        return vf.ExplanationConsistency(network, schema, **how).fit(german.frame, sensitive_features="sex")

    whole = consistency().audit(german.frame, sensitive_features="sex")
    inner = consistency().control(whole)
    store = tmp_path / "deep" / "s.sqlite"
    stopped(EXPLAINED, 3)
    with pytest.raises(KeyboardInterrupt):
        consistency().audit(german.frame, sensitive_features="sex", store=store)
    calls = stopped(EXPLAINED, None)
    found = consistency().audit(german.frame, sensitive_features="sex", store=store, resume=True)
    for name in ("score", "g", "g_tilde", "length", "most", "silent", "decision", "probability_tilde", "parts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    used = len(calls)
    again = consistency().control(found, store=store, resume=True)
    np.testing.assert_array_equal(again.score, inner.score)
    calls = stopped(EXPLAINED, None)
    consistency().audit(german.frame, sensitive_features="sex", store=store, resume=True)
    assert (used > 0, calls) == (True, [])
    consistency().audit(german.frame, sensitive_features="sex", store=store)
    assert len(calls) > used  # without resume all is computed
    with pytest.raises(QueryError, match=r"store: .*leave the store out"):
        consistency(attribution=lambda x, background: x).audit(german.frame, sensitive_features="sex", store=store)


def test_situation_testing_takes_a_store_of_its_own_rows(tmp_path: Path, stopped: Stop) -> None:
    def fitted(frame: pd.DataFrame) -> vf.SituationTesting:
        return vf.SituationTesting(MODEL, RULE, do={"gender": 0, "race": 0}, k=[15, 30]).fit(frame)

    frame, store = applicants(700), tmp_path / "s.sqlite"
    whole = fitted(frame).test()
    stopped(SEARCHED, 5)
    with pytest.raises(KeyboardInterrupt):
        fitted(frame).test(store=store)
    first = stopped(SEARCHED, None)
    found = fitted(frame).test(store=store, resume=True)
    for name, one in whole.items():
        for side in ("control", "standard", "counterfactual"):
            np.testing.assert_array_equal(getattr(found[name], side), getattr(one, side))
    calls = stopped(SEARCHED, None)
    fitted(frame).test(store=store, resume=True)
    assert (len(first) > 0, calls) == (True, [])
    other = applicants(700, seed=1)
    theirs = fitted(other).test(store=store, resume=True)  # nothing of another table is taken
    np.testing.assert_array_equal(theirs["race = 0"].control, fitted(other).test()["race = 0"].control)
    assert calls


def test_a_part_that_is_kept_is_what_was_computed(tmp_path: Path) -> None:
    like = np.empty((2, 3)), np.empty(2, dtype=bool), np.empty((0, 4), dtype=np.int16)
    made = np.array([[1.0, -0.0, np.nan], [np.inf, 5e-324, 2.0]]), np.array([True, False]), np.empty((0, 4), dtype=np.int16)
    for path in (None, tmp_path / "s.sqlite"):
        with Parts.kept(path) as parts:
            asked = parts.question(3, ["a"], None, made[0])
            assert [one.tobytes() for one in parts.part(asked, "0", like, lambda: made)] == [one.tobytes() for one in made]
    with Parts.kept(tmp_path / "s.sqlite", resume=True) as parts:
        found = parts.part(asked, "0", like, lambda: pytest.fail("it is kept"))
        assert [(one.tobytes(), one.dtype, one.shape) for one in found] == [(one.tobytes(), one.dtype, one.shape) for one in made]
        assert len({asked, parts.question(4, ["a"], None, made[0]), parts.question(3, ["a"], None, made[0].T)}) == 3
        with pytest.raises(DataError, match="damaged"):
            parts.part(asked, "0", like[:1], lambda: made[:1])
