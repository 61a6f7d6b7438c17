"""Files of proofs say how much of their question they answer, and nobody can make them say more.

Stores of partitions and certificates about rows are forged by logic, thousands of times over all seeds: parts and statements left
out, repeated, relabelled, widened, their counts and digests left as they were or made to fit. Each forgery is refused, or what it
states is still true by enumeration.
"""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from solvers.outcome import Budget
from tests.brute_force import exact_forward
from tests.builders import integer, network_of, schema_of
from tests.draws import draws
from tests.soundness.random_fairness import LARGEST, Case, random_case
from tests.stores import contents, pieces, state, stated, written
from verifair.checker.certificates.certificate import Certificate, Counterexample, Proof
from verifair.checker.certificates.envelope import write
from verifair.checker.certificates.statement import RowStatement
from verifair.checker.certificates.tree import Tree
from verifair.checker.check import check
from verifair.checker.kernel.leaves import replay
from verifair.checker.kinds import partition
from verifair.checker.partition import PROVED, UNKNOWN, VIOLATED, Chunk
from verifair.checker.report import CheckReport
from verifair.engine.partition import certify_partition, partition_of
from verifair.errors import CertificateError, VerifairError
from verifair.systems.pba.evidence import certificate_of
from verifair.systems.pba.rows import verify_rows
from verifair.systems.pba.stream import LabelledRows

Store = tuple[dict[str, Any], list[Chunk]]
SIZE = 2


# Stores


@cache
def cases(count: int = 4) -> tuple[Case, ...]:
    """Queries whose parts are some proved, some refuted, with and without forbidden rows; the last one about a gap."""
    found: list[Case] = []
    seed = 0
    while len(found) < count:
        case = random_case(seed, "plain", constrained=seed % 2 == 0)
        seed += 1
        if len(case.rows) > LARGEST or any(feature.kind == "real" for feature in case.schema.features):
            continue
        if len(found) == count - 1:
            gaps = sorted(case.gaps())
            middle = float(gaps[3 * len(gaps) // 4]) if gaps else 0.0
            if not 1e-6 < middle < 0.9:
                continue
            case = case.asking(epsilon=middle)
        wrong = case.wrong_parts(partition_of(case.query, SIZE, case.box))
        if 2 <= wrong.sum() <= len(wrong) - 2:
            found.append(case)
    return tuple(found)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, Store]]:
    """A finished run of each case, and one that was stopped; in chunks of a few parts each."""
    folder, out = tmp_path_factory.mktemp("stores"), []
    for k, case in enumerate(cases()):
        path = certify_partition(case.query, size=SIZE, store=folder / f"{k}.sqlite", budget=Budget(seconds=30))
        about, chunks = contents(path)
        small = [one for chunk in chunks for one in pieces(chunk, case.query, SIZE, 1 + k)]
        first, *more = (one for chunk in chunks for one in pieces(chunk, case.query, SIZE, 1))
        out += [(case, (about, small)), (case, (about, [undecided(first), *more[:-1]]))]
    return out


def undecided(chunk: Chunk) -> Chunk:
    """The same parts without a verdict, as a run leaves them that ran out of time."""
    none: dict[str, Any] = {
        name: getattr(chunk, name)[:0]
        for name in ("size", "feature", "cut", "count", "index", "value", "pair", "goal", "x", "margins", "agrees")
    }
    open_ = np.full(len(chunk), UNKNOWN, dtype=np.int8)
    return replace(chunk, status=open_, float32=np.zeros(len(chunk), dtype=np.int8), **none)


def checked(path: Path, case: Case) -> CheckReport | None:
    """The report on a store; None where it is not even read."""
    try:
        return check(path, model=case.query.model, schema=case.schema)
    except VerifairError:
        return None


def untrue(path: Path, case: Case, report: CheckReport) -> str | None:
    """What is false of a store that was not rejected, by enumeration of the question that it states."""
    about, chunks = contents(path)
    asked = case.asking(protected=about["protected"], differ=about["differ"], relax=about["relax"], epsilon=about["epsilon"])
    vars(asked)["box"] = raw_box(about, case)
    wrong = asked.wrong_parts(partition_of(asked.query, about["size"], asked.box))
    status = np.full(len(wrong), -1)
    for chunk in chunks:
        assert (status[chunk.first : chunk.first + len(chunk)] == -1).all(), "a part stands in it twice"
        status[chunk.first : chunk.first + len(chunk)] = chunk.status
    if (wrong & (status == PROVED)).any() or (~wrong & (status == VIOLATED)).any():
        return "a part is proved that is refuted, or the other way round"
    counts = Counter(status.tolist())
    found = {"proved": counts[PROVED], "refuted": counts[VIOLATED], "undecided": counts[UNKNOWN], "not_reached": counts[-1]}
    if {name: getattr(report.extent, name) for name in found} != found or report.extent.total != len(wrong):
        return "its counts are not those of its parts"
    if report.accepted != (counts[UNKNOWN] == counts[-1] == 0):
        return "it is accepted as a whole without being one"
    return None


def raw_box(about: dict[str, Any], case: Case) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = np.array([about["box"][feature.name] for feature in case.schema.features], dtype=float).T
    return lower, upper


def test_runs_state_how_much_they_decided(stores: list[tuple[Case, Store]], tmp_path: Path) -> None:
    for k, (case, (about, chunks)) in enumerate(stores):
        path = written(tmp_path / f"{k}.sqlite", about, chunks)
        report = checked(path, case)
        assert report is not None
        assert report.rejections == ()
        assert untrue(path, case, report) is None
        assert report.accepted == (k % 2 == 0)
        assert replace(report, partial=True).accepted
        assert (report.missing is None) == (k % 2 == 0)
        assert asdict(report.extent) == stated(path)


def forged_store(rng: np.random.Generator, about: dict[str, Any], chunks: list[Chunk], case: Case) -> tuple[str, Store]:
    """A store that somebody changed."""
    about, chunks = json.loads(json.dumps(about)), list(chunks)
    k = int(rng.integers(len(chunks)))
    one, status = chunks[k], chunks[k].status.copy()
    part = int(rng.integers(len(one)))
    name = str(rng.choice([feature.name for feature in case.schema.features]))
    what = str(rng.choice([
        "drop refuted", "drop undecided", "drop chunk", "move chunk", "overlap", "relabel", "swap", "size", "box", "differ",
        "protected", "epsilon", "relax", "parts", "evidence of another", "all proved",
    ]))
    match what:
        case "drop refuted":
            chunks = [
                replace(undecided(c), status=np.where(c.status == VIOLATED, UNKNOWN, c.status).astype(np.int8), **kept(c))
                for c in chunks
            ]
        case "drop undecided":
            chunks = [c for c in chunks if (c.status != UNKNOWN).any()]
        case "drop chunk":
            del chunks[k]
        case "move chunk":
            chunks[k] = replace(one, first=int(rng.integers(-1, about["parts"] + 1)))
        case "overlap":
            chunks.append(replace(one, first=one.first + int(rng.integers(1, len(one) + 1))))
        case "relabel":
            status[part] = int(rng.integers(3))
            chunks[k] = replace(one, status=status)
        case "swap":
            chunks[k] = replace(one, status=status[::-1].copy())
        case "size":
            about["size"] = int(rng.integers(2, 6))
        case "box":
            low, high = about["box"][name]
            ends = [[low - 1, high], [low, high + 1], [low, low], [high, high], [low + 1, high], [high, low]]
            about["box"][name] = ends[int(rng.integers(len(ends)))]
        case "differ":
            about["differ"] = "any" if about["differ"] == "all" else "all"
        case "protected":
            about["protected"] = [*about["protected"], name] if rng.random() < 0.5 else about["protected"][1:]
        case "epsilon":
            about["epsilon"] = None if about["epsilon"] and rng.random() < 0.3 else float(rng.choice([1e-6, 0.01, 0.1, 0.5]))
        case "relax":
            about["relax"] = {} if about["relax"] else {name: int(rng.integers(1, 3))}
        case "parts":
            about["parts"] += int(rng.choice([-1, 1]))
        case "evidence of another":
            other = chunks[int(rng.integers(len(chunks)))]
            chunks[k] = replace(other, first=one.first)
        case "all proved":
            leaves = np.ones(len(one.size) + 2 * int(rng.integers(0, 3)), dtype=np.int64)
            leaf = {"size": leaves, "feature": -leaves, "cut": np.zeros(len(leaves)), "count": 0 * leaves}
            chunks[k] = replace(undecided(one), status=np.full(len(one), PROVED, dtype=np.int8), **leaf)
    if what in ("size", "box") and rng.random() < 0.7:
        about["parts"] = partition_of(case.query, about["size"], raw_box(about, case)).count
    return what, (about, chunks)


def kept(chunk: Chunk) -> dict[str, Any]:
    """The trees of a chunk, and what they are certified for."""
    names = ("size", "feature", "cut", "count", "index", "value", "float32")
    return {name: getattr(chunk, name) for name in names}


@pytest.mark.parametrize("seed", draws(8))
def test_forged_stores_are_refused_or_true(seed: int, stores: list[tuple[Case, Store]], tmp_path: Path) -> None:
    """Fifty forgeries a seed, of which a third keeps the counts, a third the digest of the question, and a third recounts both."""
    rng = np.random.default_rng(seed)
    seen: Counter[str] = Counter()
    for _ in range(50):
        case, (about, chunks) = stores[int(rng.integers(len(stores)))]
        true = stated(written(tmp_path / "true.sqlite", about, chunks))
        what, forgery = forged_store(rng, about, chunks, case)
        try:
            path = written(tmp_path / "forged.sqlite", *forgery)
        except (ValueError, sqlite3.Error):
            continue  # not even something to write down
        now = stated(path)
        honest = int(rng.integers(3))
        if honest == 0:
            state(path, now | {key: true[key] for key in true if key != "question_sha256"})
        elif honest == 1:
            state(path, now | {"question_sha256": true["question_sha256"]})
        silent = stated(path) != now
        report = checked(path, case)
        if report is None or report.rejections:
            seen["refused"] += 1
            continue
        assert not silent, f"{what}: the counts or the question are not those that the file states"
        assert untrue(path, case, report) is None, what
        seen["true"] += 1
    assert seen["refused"] > seen["true"] > 0


@pytest.mark.parametrize("field", ["total", "proved", "claimed", "refuted", "undecided", "not_reached"])
@pytest.mark.parametrize("by", [-1, 1, 10**6])
def test_edited_counts_are_rejected(field: str, by: int, stores: list[tuple[Case, Store]], tmp_path: Path) -> None:
    for k, (case, (about, chunks)) in enumerate(stores[:2]):
        path = written(tmp_path / f"{k}.sqlite", about, chunks)
        state(path, stated(path) | {field: max(0, stated(path)[field] + by)} if stated(path)[field] + by >= 0 else {})
        report = checked(path, case)
        assert report is None or any("but what it holds makes" in str(one) for one in report.rejections)


def test_a_removed_or_doubled_statement_is_rejected(stores: list[tuple[Case, Store]], tmp_path: Path) -> None:
    case, (about, chunks) = stores[0]
    path = written(tmp_path / "s.sqlite", about, chunks)
    for change in ("DELETE FROM extent", "INSERT INTO extent SELECT value FROM extent", "UPDATE extent SET value = '{}'",
                   "INSERT INTO about SELECT value FROM about", "UPDATE extent SET value = NULL"):
        path = written(tmp_path / "s.sqlite", about, chunks)
        with closing(sqlite3.connect(path)) as file:
            file.execute(change)
            file.commit()
        assert checked(path, case) is None, change


def test_counts_and_digest_of_a_resumed_run_are_those_of_an_undisturbed_one(tmp_path: Path) -> None:
    case = cases()[0]
    one, whole = tmp_path / "one.sqlite", tmp_path / "whole.sqlite"
    certify_partition(case.query, size=SIZE, store=one, budget=Budget(seconds=1e-9))
    assert stated(one)["not_reached"] + stated(one)["undecided"] == stated(one)["total"]
    certify_partition(case.query, size=SIZE, store=one, resume=True, budget=Budget(seconds=30, nodes=1))
    report = checked(one, case)
    assert report is not None
    assert asdict(report.extent) == stated(one)
    certify_partition(case.query, size=SIZE, store=one, resume=True, budget=Budget(seconds=30))
    certify_partition(case.query, size=SIZE, store=whole, budget=Budget(seconds=30))
    assert stated(one) == stated(whole)
    report = checked(one, case)
    assert report is not None
    assert report.accepted


def test_a_store_of_another_version_is_refused_in_one_line(stores: list[tuple[Case, Store]], tmp_path: Path) -> None:
    case, (about, chunks) = stores[0]
    path = written(tmp_path / "s.sqlite", about, chunks)
    with closing(sqlite3.connect(path)) as file:
        file.execute("""UPDATE about SET value = replace(value, 'verifair-partition/4', 'verifair-partition/3')""")
        file.execute("DROP TABLE extent")
        file.commit()
    with pytest.raises(CertificateError, match=r"of another version .*, expected .*: write it again with this version$"):
        check(path, model=case.query.model, schema=case.schema)
    with pytest.raises(VerifairError, match=r"of another version .*: write it again with this version in another file"):
        certify_partition(case.query, size=SIZE, store=path, resume=True)


def test_one_part_a_chunk_costs_no_more_bounds(
    stores: list[tuple[Case, Store]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaves of all chunks are bounded together: as many calls as for the same parts in one chunk."""
    calls = 0

    def counted(*given: Any) -> dict[int, str]:
        nonlocal calls
        calls += 1
        return replay(*given)

    monkeypatch.setattr(partition, "replay", counted)
    counts = []
    case, (about, chunks) = stores[0]
    for size in (1, 2, 10**6):
        calls = 0
        parts = [piece for chunk in chunks for piece in pieces(chunk, case.query, SIZE, size)]
        report = checked(written(tmp_path / "s.sqlite", about, parts), case)
        assert report is not None
        assert report.accepted
        counts.append((calls, report.proofs, report.leaves))
    assert len(set(counts)) == 1
    assert counts[0][0] == 1


# Certificates about rows

PEOPLE = schema_of(
    integer("age", 0, 3, unit=1), integer("hours", 0, 3, unit=1), integer("sex", 0, 1, protected=True),
    positive="logit > 0", label="good", positive_label="1",
)


@cache
def rows_certificate(seed: int) -> tuple[Any, Certificate]:
    """All kinds of answers of a tiny run: proved, refuted, and undecided for want of boxes."""
    rng = np.random.default_rng(seed)
    weights = (rng.integers(-3, 4, (4, 3)) / 2, rng.integers(-3, 4, 4) / 2), (rng.integers(-3, 4, (1, 4)) / 2, None)
    network = network_of(*weights)
    raw = np.array(list(product(range(4), range(4), range(2))), dtype=float)
    labels = (network.forward(PEOPLE.encode(raw))[:, 0] > 0).astype(int)
    frame = pd.DataFrame(raw, columns=["age", "hours", "sex"]).assign(good=labels)
    frame = pd.concat([frame, frame.iloc[:5]])  # people with the same values
    query = vf.PersistentBias(model=network, schema=PEOPLE, protected="sex", delta=[0, 1])
    verdicts = verify_rows(query, frame, budget=Budget(seconds=20))
    lines = rng.random(len(verdicts)) < 0.1
    verdicts.loc[lines, ["status", "reason", "witness"]] = ["unknown", "time", None]
    return network, certificate_of(query, LabelledRows.of(network, PEOPLE, frame), verdicts)


def false_statement(network: Any, proof: Proof) -> bool:
    """Whether a proof or counterexample says what enumeration denies."""
    one = proof.statement
    assert isinstance(one, RowStatement)
    row, upper = np.array(one.row), np.array([3.0, 3.0, 1.0])
    reach = one.delta * np.array([1.0, 1.0, 0.0])
    low, high = np.maximum(row - reach, 0), np.minimum(row + reach, upper)
    points = np.array(list(product(*(np.arange(np.ceil(a), np.floor(b) + 1) for a, b in zip(low, high, strict=True)))))
    second = points.copy()
    second[:, 2] = one.prime["sex"]
    sign = 1 if one.classes == (1, 0) else -1
    first, other = (sign * exact_forward(network, at)[:, 0] for at in (points, second))
    values = first - other if one.goal == "observed" else other - first
    holds = all(value > 0 for value in values)
    return holds if isinstance(proof.evidence, Counterexample) else not holds


def seen_rows(seed: int) -> Counter[str]:
    return Counter(type(one.evidence).__name__ for one in rows_certificate(seed)[1].proofs)


def test_rows_are_counted_as_they_ended(tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()
    for seed in draws(6):
        network, certificate = rows_certificate(seed)
        certificate.save(tmp_path / "c.json")
        report = check(tmp_path / "c.json", model=network, schema=PEOPLE)
        assert report.rejections == ()
        assert report.accepted == (certificate.undecided == 0)
        assert not any(false_statement(network, proof) for proof in certificate.proofs)
        count = seen_rows(seed)
        assert (report.extent.proved, report.extent.refuted) == (count["Tree"], count["Counterexample"])
        assert report.extent.undecided == certificate.undecided
        assert report.extent.total == count.total() + certificate.undecided
        kinds += count
        kinds["undecided"] += certificate.undecided
    assert min(kinds["Tree"], kinds["Counterexample"], kinds["undecided"]) >= 5


def forged_rows(rng: np.random.Generator, given: Certificate) -> tuple[str, Certificate]:
    proofs = list(given.proofs)
    k, other = (int(at) for at in rng.integers(len(proofs), size=2))
    one = proofs[k]
    statement = one.statement
    assert isinstance(statement, RowStatement)
    kinds = ["drop", "double", "evidence", "witness", "delta", "goal", "classes", "row", "leaf", "undecided", "total"]
    what = str(rng.choice(kinds))
    changes: dict[str, Any] = {}
    match what:
        case "drop":
            del proofs[k]
        case "double":
            proofs[k] = proofs[other]
        case "evidence":
            proofs[k] = replace(one, evidence=proofs[other].evidence)
        case "witness":
            proofs[k] = replace(one, evidence=Counterexample(x=tuple(float(v) for v in rng.integers(-1, 5, 3))))
        case "delta":
            proofs[k] = replace(one, statement=replace(statement, delta=1.0 - statement.delta))
        case "goal":
            proofs[k] = replace(one, statement=replace(statement, goal="flipped" if statement.goal == "observed" else "observed"))
        case "classes":
            proofs[k] = replace(one, statement=replace(statement, classes=statement.classes[::-1]))
        case "row":
            row = list(statement.row)
            row[int(rng.integers(3))] = float(rng.integers(-1, 5))
            proofs[k] = replace(one, statement=replace(statement, row=tuple(row)))
        case "leaf":
            proofs[k] = replace(one, evidence=Tree.leaf(), margin=float(rng.choice([0.0, 1e-9, 0.5, 100.0])))
        case "undecided":
            changes = {"undecided": max(0, given.undecided + int(rng.choice([-1, 1])))}
        case "total":
            changes = {"not_reached": 1}
    return what, replace(given, proofs=tuple(proofs), **changes)


@pytest.mark.parametrize("seed", draws(6))
def test_forged_certificates_about_rows_are_refused_or_true(seed: int, tmp_path: Path) -> None:
    """A hundred forgeries a seed; half of them leave the counts as they were, under a digest that fits."""
    rng = np.random.default_rng(seed)
    network, given = rows_certificate(seed)
    path = tmp_path / "forged.json"
    given.save(path)
    seen: Counter[str] = Counter()
    for _ in range(100):
        what, forgery = forged_rows(rng, given)
        counts = given.extent if rng.random() < 0.5 else None
        report = check(replace(forgery, stated=counts), model=network, schema=PEOPLE)
        if report.rejections:
            seen["refused"] += 1
            continue
        assert counts is None or counts == forgery.extent, what
        assert not any(false_statement(network, proof) for proof in forgery.proofs), what
        assert report.accepted == (forgery.undecided == forgery.not_reached == 0)
        assert len({proof.key for proof in forgery.proofs}) == len(forgery.proofs)
        seen["true"] += 1
    assert min(seen.values()) > 0


def test_counts_of_a_file_are_compared_with_its_content(tmp_path: Path) -> None:
    network, given = rows_certificate(0)
    for field in ("total", "proved", "claimed", "refuted", "question_sha256"):
        raw = given.payload
        raw["extent"] |= {field: "0" * 64 if field == "question_sha256" else raw["extent"][field] + 1}
        write(tmp_path / "c.json", raw)
        found = Certificate.load(tmp_path / "c.json")
        assert found.intact
        assert check(found, model=network, schema=PEOPLE).rejections, field
