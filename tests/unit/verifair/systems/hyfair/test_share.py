"""The certified share of stores written by hand: every kind of verdict, reasons, rows, blocks, and what a broken store is told."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit

from tests.builders import categorical, integer, network_of, schema_of
from verifair.checker.partition import PROVED, UNKNOWN, VIOLATED, Chunk, PartitionStore
from verifair.engine.partition import describe
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import box_of
from verifair.engine.verdict import Reason
from verifair.errors import CertificateError, DataError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.certify.partition import OUTCOMES, partition_summary
from verifair.systems.hyfair.certify.plots import partition_plot
from verifair.systems.hyfair.certify.result import Block, PartitionSummary
from verifair.systems.hyfair.certify.tables import people_table, shares_table
from verifair.systems.results.words import percent, two_digits

NETWORK = network_of(([[1.0, 0.0, 0.0]], None))
REASONS = tuple(Reason)


def people(ages: int = 10, hours: int = 4) -> Schema:
    sex = categorical("sex", "[b]Female", "Male", protected=True)
    return schema_of(sex, integer("age", 0, ages - 1), integer("hours", 1, hours))


def query_of(schema: Schema, **more: object) -> IndividualFairness:
    return IndividualFairness(model=NETWORK, schema=schema, protected=["sex"], **more)  # type: ignore[arg-type]


def chunk(
    first: int,
    status: Sequence[int],
    *,
    reason: Reason = Reason.TIME,
    probabilities: Sequence[tuple[float, float]] = (),
    agrees: Sequence[int] = (),
    ages: int = 10,
) -> Chunk:
    """A chunk without trees: a report does not look at them."""
    found = [k for k, one in enumerate(status) if one == VIOLATED]
    probabilities = probabilities or [(0.6, 0.4)] * len(found)
    nothing = np.empty(0, dtype=np.int64)
    return Chunk(
        first=first, status=np.array(status, dtype=np.int8),
        reason=np.where(np.array(status) == UNKNOWN, REASONS.index(reason), -1).astype(np.int8),
        size=nothing, feature=nothing, cut=np.empty(0), count=nothing, index=nothing, value=np.empty(0),
        pair=np.zeros(len(found), dtype=np.int64),
        goal=np.zeros(len(found), dtype=np.int64), x=np.array([[0.0, (first + k) % ages, 1.0] for k in found]).reshape(-1, 3),
        margins=logit(np.array(probabilities)).reshape(-1, 2), agrees=np.array(agrees or [1] * len(found), dtype=np.int8),
        float32=(np.array(status) == PROVED).astype(np.int8), nodes=10, seconds=0.5,
    )


def store_of(path: Path, query: IndividualFairness, size: int, chunks: Sequence[Chunk]) -> Path:
    with PartitionStore(path, describe(query, size, box_of(query.schema, query.box))) as store:
        for one in chunks:
            store.add(one)
    return path


def mixed(tmp_path: Path) -> tuple[IndividualFairness, Path]:
    """age 0..9 by 4: 0-3, 4-7, 8-9.   hours 1..4 is not cut: 3 parts, of 0.4, 0.4 and 0.2 of the domain."""
    query = query_of(people())
    return query, store_of(tmp_path / "s.sqlite", query, 4, [chunk(0, [PROVED]), chunk(2, [VIOLATED], agrees=[0])])


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    query = query_of(people())
    with PartitionStore(tmp_path / "s.sqlite", describe(query, 4, box_of(query.schema, query.box))) as store:
        pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
        store.connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DataError, match=r"s\.sqlite: cannot be written \(database or disk is full\); make room"):
            [store.add(chunk(first, [PROVED])) for first in range(400)]


def test_blocks_beyond_number_are_not_counted_one_by_one(tmp_path: Path) -> None:
    schema = schema_of(categorical("sex", "f", "m", protected=True), integer("cents", 1, 2**53), integer("hours", 1, 4))
    query = query_of(schema)
    store = store_of(tmp_path / "s.sqlite", query, 2, [chunk(0, [PROVED])])
    found = partition_summary(store, query=query)
    assert [one.feature for one in found.blocks] == ["hours"]
    assert (found.parts.proved, sum(dict(found.parts).values())) == (1, 2 * 2**52)


def test_shares_of_an_unfinished_run(tmp_path: Path) -> None:
    query, store = mixed(tmp_path)
    rows = np.array([[0, 0, 1], [1, 3, 4], [0, 5, 1], [0, 9, 2], [1, 10, 1], [0, 2, 9], [0, 2.5, 1]])
    found = partition_summary(store, query=query, rows=rows)
    assert dict(found.parts) == {"unknown": 0, "proved": 1, "violated": 1, "not_reached": 1}
    assert dict(found.volume) == pytest.approx({"unknown": 0, "proved": 0.4, "violated": 0.2, "not_reached": 0.4})
    assert found.rows is not None
    assert dict(found.rows) == {"unknown": 0, "proved": 2, "violated": 1, "not_reached": 1, "outside": 3}
    assert dict(found.float32) == {"agrees": 0, "disagrees": 1, "not_replayed": 0}
    assert (found.nodes, found.work_seconds) == (20, 1.0)
    assert found.reasons == {}
    only = found.blocks[0]
    assert [one.feature for one in found.blocks] == ["age"]
    assert only.low.tolist() == [0, 4, 8]
    assert only.high.tolist() == [3, 7, 9]
    np.testing.assert_array_equal(only.refuted, [0, np.nan, 1])
    assert partition_summary(store, query=query).rows is None


def test_unknown_parts_are_told_by_reason(tmp_path: Path) -> None:
    query = query_of(people(ages=40))
    chunks = [chunk(0, [UNKNOWN, PROVED, UNKNOWN]), chunk(3, [UNKNOWN, VIOLATED], reason=Reason.NODES)]
    found = partition_summary(store_of(tmp_path / "s.sqlite", query, 4, chunks), query=query)
    assert found.reasons == {Reason.TIME: 2, Reason.NODES: 1}
    assert dict(found.parts) == {"unknown": 3, "proved": 1, "violated": 1, "not_reached": 5}


def test_a_finished_run_adds_up_to_exactly_everything(tmp_path: Path) -> None:
    query = query_of(people(ages=997, hours=7))
    parts = 333 * 3
    found = partition_summary(store_of(tmp_path / "s.sqlite", query, 3, [chunk(0, [PROVED] * parts)]), query=query)
    assert dict(found.volume) == {"unknown": 0.0, "proved": 1.0, "violated": 0.0, "not_reached": 0.0}
    assert {one.feature: int(one.parts.sum()) for one in found.blocks} == {"age": parts, "hours": parts}


def test_examples_are_the_starkest_and_from_different_chunks(tmp_path: Path) -> None:
    query = query_of(people(ages=40))
    stark = [(0.9, 0.1), (0.95, 0.1), (0.51, 0.49)]
    chunks = [chunk(0, [VIOLATED] * 3, probabilities=stark), chunk(3, [PROVED, VIOLATED], probabilities=[(0.6, 0.45)], agrees=[-1])]
    found = partition_summary(store_of(tmp_path / "s.sqlite", query, 4, chunks), query=query)
    assert [one.x["age"] for one in found.examples] == [1, 4, 0]
    first = found.examples[0]
    assert (first.x["sex"], first.x_prime["sex"]) == ("[b]Female", "Male")
    assert first.probabilities == pytest.approx((0.95, 0.1))
    assert first.margin == pytest.approx(max(-logit(0.95), logit(0.1), (logit(0.1) - logit(0.95)) / 2))
    assert [one.float32_agrees for one in found.examples] == [True, None, True]
    assert dict(found.float32) == {"agrees": 3, "disagrees": 0, "not_replayed": 1}
    cells = [str(cell) for cell in people_table(query.schema, found.examples).columns[1]._cells]
    assert "[b]Female → Male" in cells, "a name is no markup"


def test_a_relaxed_example_shows_both_people(tmp_path: Path) -> None:
    query = query_of(people(), relax={"age": 1}, epsilon=0.1)
    one = chunk(1, [VIOLATED], probabilities=[(0.7, 0.5)])
    shifted = Chunk(**{**vars(one), "pair": np.array([2]), "x": np.array([[0.0, 5.0, 1.0]])})
    found = partition_summary(store_of(tmp_path / "s.sqlite", query, 4, [shifted]), query=query)
    assert found.examples[0].x_prime == {"sex": "Male", "age": 6, "hours": 1}
    assert found.examples[0].margin == pytest.approx(0.1 - 0.2)


@pytest.mark.parametrize(("chunks", "message"), [
    ([chunk(0, [PROVED, PROVED]), chunk(1, [PROVED])], "does not fit the partition"),
    ([chunk(2, [PROVED, PROVED])], "does not fit the partition"),
    ([chunk(0, [7])], "the chunk of part 0 is damaged"),
    ([chunk(0, [VIOLATED], agrees=[1, 1])], "does not fit together"),
    *(([replace(chunk(0, [UNKNOWN, VIOLATED]), **damage)], "does not fit together") for damage in (
        {"reason": np.array([0], dtype=np.int8)}, {"reason": np.array([99, -1], dtype=np.int8)}, {"pair": np.array([1])},
        {"pair": np.array([-1])}, {"goal": np.array([2])}, {"goal": np.empty(0, dtype=np.int64)}, {"margins": np.zeros((1, 3))},
        {"margins": np.array([[np.nan, 0.0]])}, {"x": np.array([[0.0, 10.0, 1.0]])}, {"x": np.array([[0.0, np.nan, 1.0]])},
        {"x": np.array([[0.0, 1.0]])},
    )),  # type: ignore[arg-type]
])
def test_a_store_that_makes_no_sense_gives_no_shares(chunks: list[Chunk], message: str, tmp_path: Path) -> None:
    query = query_of(people())
    with pytest.raises(CertificateError, match=message):
        partition_summary(store_of(tmp_path / "s.sqlite", query, 4, chunks), query=query)


def test_a_store_of_another_question_is_refused(tmp_path: Path) -> None:
    _, store = mixed(tmp_path)
    with pytest.raises(DataError, match="another question"):
        partition_summary(store, query=query_of(people(), epsilon=0.2))


def test_memory_does_not_grow_with_the_parts(tmp_path: Path) -> None:
    """A hundred chunks of 8,000 parts each: the verdicts alone are 800 kB, their boxes 40 MB."""
    query = query_of(people(ages=1600, hours=2000))
    status = np.where(np.random.default_rng(0).random(8000) < 0.1, VIOLATED, PROVED).tolist()
    store = store_of(tmp_path / "s.sqlite", query, 2, [chunk(8000 * k, status, ages=1600) for k in range(100)])
    tracemalloc.start()
    found = partition_summary(store, query=query)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.parts.all == 800_000 == 800 * 1000
    assert found.parts["not_reached"] == 0
    assert peak < 8e6


def test_percentages_never_round_to_all_or_nothing() -> None:
    shown = [percent(share) for share in (0, 1e-9, 0.25, 0.9994, 1 - 1e-9, 1)]
    assert shown == ["0.0%", "<0.1%", "25.0%", "99.9%", ">99.9%", "100.0%"]


def test_two_digits_never_show_all_of_what_is_not() -> None:
    shown = [two_digits(share) for share in (1.0, 0.9999, 0.996, 0.9949, 0.5, 3e-9)]
    assert shown == ["100 %", ">99 %", ">99 %", "99 %", "50 %", "3e-07 %"]


def test_features_are_ranked_by_how_much_the_refuted_share_varies() -> None:
    def blocks(*parts: tuple[int, int, int]) -> Block:
        ends = np.arange(len(parts), dtype=float)
        return Block(feature="f", low=ends, high=ends, **dict(zip(OUTCOMES, np.array(parts).T, strict=False)))

    steady, steep = blocks((0, 50, 50), (0, 51, 49)), blocks((0, 90, 10), (0, 11, 89))
    scattered = blocks(*[(0, k % 2, 1 - k % 2) for k in range(200)])
    assert steep.variation > scattered.variation > (0, 0)
    assert steep.variation > steady.variation


def test_table_and_picture_of_every_outcome(tmp_path: Path) -> None:
    query, store = mixed(tmp_path)
    rows = np.array([[0, 0, 1], [1, 10, 1]])
    found = partition_summary(store, query=query, rows=rows)
    table = shares_table(found)
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["proved"] == ["1 (33.3%)", "40.0%", "1 (50.0%)"]
    assert cells["outside"] == ["-", "-", "1 (50.0%)"]
    assert cells["unknown"] == ["0", "0", "0"]
    partition_plot(found, query.schema, "No decision flips", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_a_single_part(tmp_path: Path) -> None:
    query = query_of(people(ages=3))
    found = partition_summary(store_of(tmp_path / "s.sqlite", query, 4, []), query=query)
    assert isinstance(found, PartitionSummary)
    assert found.volume["not_reached"] == 1.0
    partition_plot(found, query.schema, "No decision flips", tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 0
