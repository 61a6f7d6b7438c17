"""A file is checked in batches: whoever checks them, the report is the same, and a batch that is lost is never accepted."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice, starmap
from pathlib import Path
from typing import Any

import joblib
import pytest

import verifair as vf
from verifair import datasets
from verifair.checker.kinds import partition, proofs, share
from verifair.engine import partition as engine
from verifair.engine.parallel import spread
from verifair.errors import CertificateError
from verifair.systems.pba.evidence import certificate_of
from verifair.systems.pba.rows import LabelledRows, verify_rows

NETWORK, SCHEMA = vf.read_onnx(datasets.network_path("german")), datasets.load("german").schema
ROW = datasets.load("german").frame.iloc[0]
FREE = ("duration", "credit-amount", "sex", "job")
BOX = {name: ROW[name] for name in (one.name for one in SCHEMA.features) if name not in FREE} | {"credit-amount": (1100, 1190)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store of some parts, certificates of some proofs and of a share."""
    folder = tmp_path_factory.mktemp("files")
    files = {"parts": folder / "parts.sqlite", "rows": folder / "rows.json.gz", "share": folder / "share.json.gz"}
    fair = vf.IndividualFairness(model=NETWORK, schema=SCHEMA, protected=["sex"], box=BOX, epsilon=0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "QUESTIONS", 10)  # several chunks
        vf.certify_partition(fair, size=10, store=files["parts"])
    rows = datasets.load("german").frame.head(20)
    bias = vf.PersistentBias(model=NETWORK, schema=SCHEMA, protected="sex", delta=[1])
    table = LabelledRows.of(NETWORK, SCHEMA, rows)
    certificate_of(bias, table, verify_rows(bias, rows)).save(files["rows"])
    wider = {name: value for name, value in BOX.items() if name not in ("age", "housing")}
    plain = vf.IndividualFairness(model=NETWORK, schema=SCHEMA, protected=["sex"], box=wider)
    vf.certify_share(plain, tolerance=0, budget=vf.Budget(nodes=60), store=files["share"])
    return files


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches so small that these files have several."""
    monkeypatch.setattr(partition, "PARTS_HELD", 1)
    monkeypatch.setattr(proofs, "NODES_HELD", 1)
    monkeypatch.setattr(share, "COPIES", 4)


@pytest.mark.parametrize("name", ["parts", "rows", "share"])
def test_the_report_is_the_same_by_whomever_a_file_is_checked(name: str, files: dict[str, Path], small: None) -> None:
    told: list[tuple[int, int]] = []
    here = vf.check(files[name], model=NETWORK, schema=SCHEMA, progress=lambda done, total: told.append((done, total)))
    assert not here.rejections
    assert len(told) > 2
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    with joblib.parallel_config(backend="threading"):
        there = vf.check(files[name], model=NETWORK, schema=SCHEMA, spread=spread(2))
    assert replace(there, seconds=0) == replace(here, seconds=0)


@pytest.mark.parametrize("name", ["parts", "rows", "share"])
def test_a_batch_that_is_lost_is_not_accepted(name: str, files: dict[str, Path], small: None) -> None:
    def loses(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        given = list(arguments)
        return islice(starmap(function, given), len(given) - 1)

    with pytest.raises(RuntimeError, match="batches were to be checked, and"):
        vf.check(files[name], model=NETWORK, schema=SCHEMA, spread=loses)


def test_an_error_in_a_file_is_the_same_error_by_whomever_it_is_checked(files: dict[str, Path], small: None) -> None:
    """Its later chunks are read while earlier ones are checked, and what is wrong there is not forgotten."""
    damaged = files["parts"].with_name("damaged.sqlite")
    damaged.write_bytes(files["parts"].read_bytes())
    with closing(sqlite3.connect(damaged)) as store, store:
        store.execute("UPDATE chunks SET float32 = float32 + 1 WHERE first = (SELECT max(first) FROM chunks)")
    for who in (starmap, spread(2)):
        with joblib.parallel_config(backend="threading"):
            found = vf.check(damaged, model=NETWORK, schema=SCHEMA, spread=who)
        assert "its proofs certified for float32 are counted wrongly" in str(found.rejections)
    with closing(sqlite3.connect(damaged)) as store, store:
        store.execute("UPDATE chunks SET arrays = x'00' WHERE first = (SELECT max(first) FROM chunks)")
    for who in (starmap, spread(2)):
        with joblib.parallel_config(backend="threading"), pytest.raises(CertificateError):
            vf.check(damaged, model=NETWORK, schema=SCHEMA, spread=who)
