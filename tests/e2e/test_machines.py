"""Systems whose batches machines elsewhere compute give the answers that this one gives."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from solvers import clock
from solvers.outcome import Budget
from tests.builders import categorical, integer, random_network, schema_of
from tests.command_line import Run
from verifair.checker.check import check
from verifair.engine import cluster, parallel
from verifair.engine.buckets import kmax
from verifair.engine.gap import inputs
from verifair.engine.gap.maximise import MaximumGap, maximise
from verifair.engine.queries import KDiscrimination, ProbabilityGap
from verifair.systems.fgce.instance import CostBlock, Instance
from verifair.systems.fgce.measures.burden import Burden, burden


class Elsewhere:
    """Machines to which tasks travel, three at a time, and whose results come back in another order."""

    def __init__(self) -> None:
        self.tasks = 0

    def workers(self) -> int:
        return 3

    def as_done(self, tasks: Iterator[parallel.Task]) -> Iterator[Any]:
        while part := list(islice(tasks, 3)):
            self.tasks += len(part)
            for task in reversed(part):
                function, args, named = cloudpickle.loads(cloudpickle.dumps(task))
                yield function(*args, **named)


def untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: untimed(one) for key, one in value.items() if "seconds" not in key}
    return [untimed(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("words", [
    ("fgce", "--demo", "german", "--protected", "sex", "--k", "2", "--coverage", "0.3"),
    ("cst", "--demo", "loan", "--k", "5"),
    ("cec", "--demo", "german", "--protected", "sex", "--rows", "40"),
], ids=lambda words: words[0])
def test_answers_are_those_of_one_machine(
    words: tuple[str, ...], inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="--cluster needs dask: pip install 'verifair[distributed]'")
    there = Elsewhere()

    @contextmanager
    def machines(address: str | None) -> Iterator[None]:
        token = parallel.MACHINES.set(there if address else None)
        yield
        parallel.MACHINES.reset(token)

    monkeypatch.setattr(cluster, "cluster", machines)
    assert inside(*words, "--json", tmp_path / "here.json")[::2] == (0, "")
    assert there.tasks == 0
    assert inside(*words, "--json", tmp_path / "there.json", "--cluster", "tcp://127.0.0.1:1")[::2] == (0, "")
    assert there.tasks
    found = [untimed(json.loads((tmp_path / f"{name}.json").read_text())) for name in ("here", "there")]
    assert found[0] == found[1]


def test_fgces_measures_are_those_of_one_machine_also_after_ctrl_c() -> None:
    """Results come back in another order, so that costs of a share may be known of some numbers of counterfactuals only."""
    rng, groups = np.random.default_rng(0), {}
    for name, shape in (("many", (9, 5)), ("few", (8, 6))):
        nodes = np.arange(shape[0]), np.arange(100, 100 + shape[1])
        block = CostBlock(component=0, factuals=nodes[0], candidates=nodes[1], cost=rng.random(shape))
        groups[name] = Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)
    there = Elsewhere()

    def found(last: int = -1) -> Burden:
        def progress(done: int, total: int) -> None:
            if done == last:
                raise KeyboardInterrupt

        return burden(groups, np.array([0.3, 0.6]), seconds=600, ks=range(1, 4), grid="all", progress=progress)

    here, sent = found(), there.tasks
    token = parallel.MACHINES.set(there)
    try:
        away, parts = found(), [found(last) for last in range(3, 60, 4)]
    finally:
        parallel.MACHINES.reset(token)
    assert there.tasks > sent + 2 * (2 + 2 + 4 * 3 + 3)
    assert away.model_dump_json() == here.model_dump_json()
    assert {part.stopped for part in parts} == {"interrupted"}
    for part in parts:
        for table, key in (("coverage", ["group", "k", "d"]), ("cost", ["group", "k", "c"])):
            some, whole = getattr(part, table), getattr(here, table)
            if len(some):
                both = some.merge(whole, on=key, suffixes=("", " whole"))
                assert (both[key[2]].tolist(), len(both)) == (some[key[2]].tolist(), len(some))
                assert (some.groupby(["group", key[2]])["k"].nunique() == whole["k"].nunique()).all()
    assert any(0 < len(part.cost) < len(here.cost) for part in parts)


def test_boxes_of_kmax_are_bounded_elsewhere_to_the_same_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmax, "COPIES", 24)  # blocks of 4 boxes
    schema = schema_of(categorical("group", *"abcdef", protected=True), *(integer(name, 0, 12) for name in "vwxy"))
    network = random_network(np.random.default_rng(0), (5, 12, 8, 1))
    query = KDiscrimination(model=network, schema=schema, protected=["group"], buckets=8)
    there, found = Elsewhere(), []
    for machines in (None, there):
        token = parallel.MACHINES.set(machines)
        found.append(kmax.kmax(query, budget=Budget(seconds=60)))
        parallel.MACHINES.reset(token)
    assert there.tasks > 6
    assert len({(one.lower, one.upper, one.boxes) for one in found}) == 1
    one, other = (one.certificate.tree for one in found)
    assert len(one.feature) > 100
    assert (one.feature.tolist(), one.cut.tolist()) == (other.feature.tolist(), other.cut.tolist())


@pytest.mark.parametrize("widths", [(4, 8, 1), (4, 6, 6, 6, 1)], ids=["boxes of a step", "several gaps"])
def test_the_largest_gap_is_found_elsewhere_and_the_same_where_work_is_counted(
    widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "EACH", 1)
    schema = schema_of(categorical("group", "a", "b", protected=True), *(integer(name, 0, 8) for name in "vwx"))
    network = replace(random_network(np.random.default_rng(0), widths), source_sha256=f"{0:064x}")
    query = ProbabilityGap(model=network, schema=schema, protected=["group"])
    there = Elsewhere()

    def found(counts: bool) -> MaximumGap:
        with clock.counted(time.monotonic() + 100) if counts else nullcontext():
            return maximise(query, budget=Budget(seconds=5), tolerance=1e-3)

    here = found(True)
    token = parallel.MACHINES.set(there)
    try:
        counted, sent = found(True), there.tasks
        free = found(False)
    finally:
        parallel.MACHINES.reset(token)
    assert there.tasks > sent
    assert (here.lower, here.upper, here.nodes, here.witness) == (counted.lower, counted.upper, counted.nodes, counted.witness)
    assert free.reason is None
    assert here.lower <= free.upper
    assert free.lower <= here.upper
    assert free.certificate is not None
    assert check(free.certificate, model=network, schema=schema).accepted
