"""A table in chunks is answered as one in memory is: the same verdicts to the last bit, counts, rates and certificates."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from encoders.arrays import Array, Integers
from encoders.network import Network
from tests.builders import categorical, integer, random_network, schema_of
from verifair.datasets import table
from verifair.datasets.stream import Stream
from verifair.engine.exchange import Exchange
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.questions import decisions
from verifair.engine.store import GOALS, Store, VerdictRecord, Verdicts
from verifair.errors import DataError
from verifair.schema.rows import LabelWarning
from verifair.schema.schema import Schema
from verifair.systems.pba import evidence, rows, stream
from verifair.systems.pba.result import Asked
from verifair.systems.pba.rows import decide_rows, verify_rows
from verifair.systems.pba.scores import RANKS, group_rates, proved_shares
from verifair.systems.pba.stream import TableStream

PEOPLE = 120
FEATURES = (
    categorical("group", "a", "b", "c", protected=True), integer("x", -9, 9, unit=1), integer("y", -9, 9, unit=1),
    categorical("place", "east", "west", "north"),
)


def asked(outputs: int) -> tuple[Network, Schema, pd.DataFrame]:
    """A network, and people of whom those of group c, of the north and of the last class come late in the table."""
    rng = np.random.default_rng(outputs)
    network = random_network(rng, (4, 6, outputs))
    schema = schema_of(*FEATURES, label="label", positive="class = 1")
    late = np.arange(PEOPLE) >= 100
    raw = np.column_stack([
        np.where(late, 2, rng.integers(0, 2, PEOPLE)), rng.integers(-9, 10, (PEOPLE, 2)),
        np.where(late, 2, rng.integers(0, 2, PEOPLE)),
    ]).astype(float)
    won = (network.forward(raw)[:, 0] > 0).astype(int) if outputs == 1 else network.forward(raw).argmax(axis=1)
    frame = pd.DataFrame({f["name"]: raw[:, k].astype(int) for k, f in enumerate(FEATURES)})
    for name in ("group", "place"):
        frame[name] = np.array(next(f for f in FEATURES if f["name"] == name)["categories"])[frame[name]]
    frame["label"] = np.where(rng.random(PEOPLE) < 0.8, won, 1 - np.minimum(won, 1))
    return network, schema, frame


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("cut", [7, 100])
def test_chunks_do_not_change_an_answer(outputs: int, cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, schema, frame = asked(outputs)
    frame.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(rows, "BATCH", 32)
    monkeypatch.setattr(evidence, "STATEMENTS", 50)
    exchange = Exchange.of(schema, "group")
    query = PersistentBias(model=network, schema=schema, protected="group", delta=[1])
    robust = Robustness(model=network, schema=schema, protected="group", delta=[1])
    answers = []
    for size, source in ((1 << 14, frame), (cut, tmp_path / "t.csv")):
        monkeypatch.setattr(table, "CHUNK", size)
        monkeypatch.setattr(stream, "HELD", size)
        people = TableStream.of(network, schema, Stream.of(source), [query, robust], [exchange])
        found = [Asked(query=one, verdicts=decide_rows(one, people, method="bnb")) for one in (query, robust)]
        folder = tmp_path / str(size)
        folder.mkdir()
        files = [(file.name, file.read_bytes()) for one in found for file, _ in evidence.certificates(one, people, folder, "c")]
        answers.append((people, found, files))
    (one, its, files), (other, others, other_files) = answers
    assert (one.rows, one.sha256, one.counts.right) == (other.rows, other.sha256, other.counts.right)
    assert one.counts.eligible == other.counts.eligible
    assert len(other.digests) > len(one.digests)
    for mine, theirs in zip(its, others, strict=True):
        pd.testing.assert_frame_equal(mine.verdicts.frame(), theirs.verdicts.frame())
        assert mine.verdicts.run == theirs.verdicts.run
    pd.testing.assert_frame_equal(group_rates(one.counts.rates[0]), group_rates(other.counts.rates[0]))
    shares = [proved_shares([each.verdicts for each in found], [exchange]) for found in (its, others)]
    pd.testing.assert_frame_equal(*shares)
    assert len(files) > 2
    assert files == other_files


def test_what_was_killed_is_continued_from_another_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, schema, frame = asked(1)
    monkeypatch.setattr(rows, "BATCH", 32)
    monkeypatch.setattr(table, "CHUNK", 37)
    query = PersistentBias(model=network, schema=schema, protected="group", delta=[1, 2])
    whole, store = verify_rows(query, frame), tmp_path / "v.sqlite"

    class Killed(BaseException):
        """As if by kill -9: between two batches."""

    def progress(done: int, total: int) -> None:
        if done > total / 2:
            raise Killed

    with pytest.raises(Killed):
        verify_rows(query, frame, store=store, progress=progress)
    monkeypatch.setattr(table, "CHUNK", 50)
    told: list[tuple[int, int]] = []
    resumed = verify_rows(query, frame, store=store, resume=True, progress=lambda *step: told.append(step))
    pd.testing.assert_frame_equal(resumed, whole)
    assert len(whole) / 2 < told[0][0] < len(whole) == told[-1][0] == told[0][1]


def test_a_table_that_changes_meanwhile_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, schema, frame = asked(1)
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    monkeypatch.setattr(table, "CHUNK", 25)
    monkeypatch.setattr(stream, "HELD", 25)
    query = PersistentBias(model=network, schema=schema, protected="group", delta=[1])
    other = frame.assign(y=frame["y"].where(frame.index != 60, 1 - frame["y"].abs()))
    for changed in (frame.head(110), pd.concat([frame, frame.tail(1)]), other):
        people = TableStream.of(network, schema, Stream.of(path), [query])
        changed.to_csv(path, index=False)
        with pytest.raises(DataError, match="was changed while it was read"):
            decide_rows(query, people, jobs=1)
        frame.to_csv(path, index=False)


def test_verdicts_are_kept_before_the_table_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, schema, frame = asked(1)
    monkeypatch.setattr(table, "CHUNK", 25)
    monkeypatch.setattr(stream, "HELD", 25)
    monkeypatch.setattr(rows, "BATCH", 8)
    decided: list[int] = []

    def counted(network: Network, x: Array) -> Integers:
        decided.append(len(x))
        return decisions(network, x)

    monkeypatch.setattr(stream, "decisions", counted)
    query = PersistentBias(model=network, schema=schema, protected="group", delta=[1])
    people = TableStream.of(network, schema, Stream.of(frame), [query])
    assert not decided
    told: list[tuple[int, int, int]] = []
    found = decide_rows(query, people, progress=lambda done, total: told.append((done, total, sum(decided))))
    first = next(people for done, _, people in told if done)
    assert first <= 2 * 3 * 25 < sum(decided), "the first chunk is decided for the estimate and again for its questions"
    assert told[-1][:2] == (len(found), len(found))
    assert all(done <= total for done, total, _ in told)


def test_labels_are_read_by_all_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names that are both unknown would be a misspelt positive label, and the third comes in a later chunk."""
    schema = schema_of(integer("x", 0, 9), positive="class = 1", label="y", positive_label="c")
    network = random_network(np.random.default_rng(0), (1, 1))
    frame = pd.DataFrame({"x": [1, 2, 3, 4], "y": ["a", "b", "c", "a"]})
    monkeypatch.setattr(table, "CHUNK", 2)
    with pytest.warns(LabelWarning, match="label 'y': rows with a, b all count as not 'c'"):
        labels = [int(k) for part in TableStream.of(network, schema, Stream.of(frame)) for k in part.labels]
    assert labels == [0, 0, 1, 0]
    with pytest.raises(DataError, match="no row holds positive_label"):
        TableStream.of(network, schema, Stream.of(frame.assign(y=["a", "b"] * 2)))


def test_a_size_that_is_given_twice_is_asked_once() -> None:
    network, schema, frame = asked(1)
    once, twice = (
        verify_rows(PersistentBias(model=network, schema=schema, protected="group", delta=delta), frame)
        for delta in ([1, 0], [1, 0.0, 1.0, -0.0])
    )
    pd.testing.assert_frame_equal(once, twice)


def test_the_store_counts_as_the_table_of_verdicts_does(tmp_path: Path) -> None:
    rng, records = np.random.default_rng(0), []
    for row in range(200):
        for against in (1, 2):
            for goal, to in product(GOALS[: 2 if row % 3 else 4], range(1 + row % 2)):
                status = str(rng.choice(["proved", "violated", "unknown"], p=[0.3, 0.6, 0.1]))
                records.append(VerdictRecord(
                    sensitive="sex", goal=goal, delta=1.0, row=row, to=float(to), against=against, group=float(row % 5),
                    label=row % 2, status=status, reason="", lower=0.0, upper=0.0, engine="", trust="", float32_agrees=None,
                    nodes=0, witness=None, margins=None, tree=None, claim=None, float32=None,
                ))
    with Store(tmp_path / "v.sqlite") as kept:
        kept.begin("run", {}, resume=False)
        kept.add("run", records)
    verdicts = Verdicts(path=tmp_path / "v.sqlite", run="run", sensitive="sex", deltas=(1.0,))
    frame = verdicts.frame()
    pd.testing.assert_frame_equal(pd.concat(verdicts.parts(), ignore_index=True), frame)
    pd.testing.assert_frame_equal(verdicts.of_rows(0, 200), frame)
    assert verdicts.tally("status").set_index("status")["number"].to_dict() == frame["status"].value_counts().to_dict()
    order = ["proved", "unknown", "violated"].index
    of_goal = frame.groupby(["goal", "row", "to"])["status"].agg(lambda found: max(found, key=order))
    answers = verdicts.answers()
    for goal in GOALS:
        expected = of_goal[goal].value_counts().to_dict()
        assert {name: int(answers.loc[answers[goal] == rank, "people"].sum()) for name, rank in RANKS.items()} == expected
    shown = of_goal[["observed", "flipped"]].groupby("row").agg(lambda found: min(found, key=order))
    (people,) = verdicts.biased().to_dict(orient="records")
    assert people == {"sensitive": "sex", "delta": 1.0, "people": 200, "proved": (shown == "proved").sum(),
                      "unknown": (shown == "unknown").sum()}  # fmt: skip
    both = frame[frame["status"] == "proved"]
    both = both[both["goal"].isin(["observed", "flipped"])]
    assert verdicts.complementary is not bool(both.duplicated(["row", "to", "against"]).any())
    only = verdicts.answers(labels=[1], against=[2])
    kept_rows = frame[(frame["label"] == 1) & (frame["against"] == 2)].groupby(["row", "to"]).ngroups
    assert only["people"].sum() == kept_rows
