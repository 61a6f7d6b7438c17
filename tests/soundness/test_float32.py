"""Proofs certified for float32: no float32 evaluation contradicts one, near boundaries least of all; false flags are rejected."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from encoders.network import Layer, Network
from encoders.onnx.product_network import network_model
from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import runtime_logits
from solvers.outcome import Budget
from tests.builders import integer, layer, network_of, random_network, schema_of
from tests.soundness.test_whole_domain import rewritten
from verifair.checker.check import check
from verifair.checker.partition import PROVED, Partition, PartitionStore
from verifair.engine.partition import certify_partition
from verifair.engine.queries import IndividualFairness, PersistentBias
from verifair.engine.questions import box_of
from verifair.engine.verdict import Reason, Status
from verifair.engine.verify import verify
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.pba.rows import verify_rows

POINTS = 100_000


def on_disk(network: Network, folder: Path) -> Network:
    """The network as a file has it: with a record of its rounding. Any number of rows at a time."""
    model = network_model(network, {})
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    path = folder / "net.onnx"
    onnx.save(model, path)
    return read_onnx(path)


def in_random_order(rng: np.random.Generator, network: Network, x: np.ndarray) -> np.ndarray:
    """Logits (B, m) in float32, every sum one after the other in a random order."""
    y = x.astype(np.float32)
    for one in network.layers:
        weight, bias = one.weight.astype(np.float32), one.bias.astype(np.float32)
        order = rng.permutation(weight.shape[1] + 1)
        terms = np.concatenate([y[:, None, :] * weight, np.broadcast_to(bias[None, :, None], (len(y), len(bias), 1))], axis=2)
        y = np.cumsum(terms[:, :, order], axis=2, dtype=np.float32)[:, :, -1]
        y = np.where(y > 0, y, one.slope.astype(np.float32) * y)
    return y.astype(np.float64)


def wide_schema() -> Schema:
    return schema_of(integer("sex", 0, 1, protected=True), *(integer(f"x{k}", 0, 40) for k in range(4)))


@pytest.mark.parametrize("seed", range(3))
def test_no_runtime_flips_a_decision_in_parts_certified_for_float32(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    schema = wide_schema()
    drawn = random_network(rng, (5, 12, 12, 1))
    first, *above = drawn.layers
    drawn = replace(drawn, layers=(replace(first, weight=(first.weight * 1000).astype(np.float32).astype(float)), *above))
    network = on_disk(drawn, tmp_path)
    query = IndividualFairness(model=network, schema=schema, protected=["sex"])
    path = certify_partition(query, size=14, store=tmp_path / "s.sqlite", budget=Budget(seconds=60, nodes=2000))
    report = check(path, model=network, schema=schema)
    assert report.accepted, report.rejections[:3]
    with PartitionStore(path) as store:
        held = [chunk.first + np.flatnonzero(chunk.float32) for chunk in store.chunks()]
        proved = sum(int((chunk.status == PROVED).sum()) for chunk in store.chunks())
    parts = np.concatenate(held)
    assert proved >= len(parts) > 0
    partition = Partition.of(schema.domain, *box_of(schema, {}), size=14, whole=[0])
    low, high = partition.boxes(rng.choice(parts, POINTS // 3))
    raw = np.floor(low + rng.random(low.shape) * (high - low + 1))
    raw[:, 0] = 0.0
    for _ in range(4):  # towards the boundary: the best of a few neighbours
        margin = np.abs(network.forward(schema.domain.encode(raw))[:, 0])
        step = np.clip(raw + rng.integers(-2, 3, raw.shape) * (np.arange(5) > 0), low, high)
        step[:, 0] = 0.0
        nearer = np.abs(network.forward(schema.domain.encode(step))[:, 0]) < margin
        raw = np.where(nearer[:, None], step, raw)
    other = raw.copy()
    other[:, 0] = 1.0
    x, x_prime = schema.domain.encode(raw), schema.domain.encode(other)
    for _ in range(2):
        assert ((in_random_order(rng, network, x) > 0) == (in_random_order(rng, network, x_prime) > 0)).all()
    assert ((runtime_logits(network, x) > 0) == (runtime_logits(network, x_prime) > 0)).all()


def line(folder: Path, bias: float) -> tuple[Network, Schema]:
    """g = 1000 x + sex / 4 + bias for x = 0 .. 10, one affine layer."""
    schema = schema_of(integer("sex", 0, 1, protected=True), integer("x", 0, 10))
    layers: tuple[Layer, ...] = (layer([[0.25, 1000.0]], [bias]),)
    return on_disk(Network(layers=layers, link=network_of(([[1.0]], None)).link, source_sha256=""), folder), schema


def test_a_margin_within_the_rounding_is_proved_of_real_numbers_only(tmp_path: Path) -> None:
    network, schema = line(tmp_path, -4000.0 + 2**-12)  # 2^-12 and 1/4 + 2^-12 at x = 4: no flip, but not for every runtime
    real = verify(IndividualFairness(model=network, schema=schema, protected=["sex"]))
    assert (real.status, real.float32) == (Status.PROVED, False)
    asked = verify(IndividualFairness(model=network, schema=schema, protected=["sex"], arithmetic="float32"))
    assert (asked.status, asked.reason, asked.float32) == (Status.UNKNOWN, Reason.FLOAT32, None)
    assert real.certificate is not None
    proofs = tuple(replace(proof, float32=True) for proof in real.certificate.proofs)
    report = check(replace(real.certificate, proofs=proofs), model=network, schema=schema)
    assert not report.accepted
    assert "rounding of float32" in str(report.rejections[0])


def test_an_exact_violation_stands_whatever_float32_shows(tmp_path: Path) -> None:
    network, schema = line(tmp_path, -4000.0 - 2**-12)  # -2^-12 and 1/4 - 2^-12 at x = 4
    for arithmetic in ("real", "float32"):
        found = verify(IndividualFairness(model=network, schema=schema, protected=["sex"], arithmetic=arithmetic))  # type: ignore[arg-type]
        assert (found.status, found.float32) == (Status.VIOLATED, None)


def test_large_margins_are_certified_for_float32(tmp_path: Path) -> None:
    network, schema = line(tmp_path, -4500.0)
    for arithmetic in ("real", "float32"):
        found = verify(IndividualFairness(model=network, schema=schema, protected=["sex"], arithmetic=arithmetic))  # type: ignore[arg-type]
        assert (found.status, found.float32) == (Status.PROVED, True)
        assert found.certificate is not None
        report = check(found.certificate, model=network, schema=schema)
        assert (report.accepted, report.float32) == (True, report.proofs)


def test_a_false_flag_of_a_part_is_rejected(tmp_path: Path) -> None:
    network, schema = line(tmp_path, -4000.0 + 2**-12)
    query = IndividualFairness(model=network, schema=schema, protected=["sex"])
    path = certify_partition(query, size=5, store=tmp_path / "s.sqlite")
    with PartitionStore(path) as store:
        (chunk,) = store.chunks()
    assert chunk.float32.tolist() == [0, 1, 1]  # x = 0 .. 4, 5 .. 9, 10
    assert check(path, model=network, schema=schema).accepted
    for flags in ([1, 1, 1], [1, 0, 0], [2, 1, 1], [-1, 1, 1], [1, 1]):
        rewritten(path, lambda one, flags=flags: replace(one, float32=np.array(flags, dtype=np.int8)))
        assert not check(path, model=network, schema=schema).accepted
    rewritten(path, lambda one: replace(one, float32=np.array([0, 1, 0], dtype=np.int8)))
    assert check(path, model=network, schema=schema).float32 == 2  # less than is true: both directions of one part


def test_a_store_that_asks_for_float32_holds_nothing_else(tmp_path: Path) -> None:
    network, schema = line(tmp_path, -4000.0 + 2**-12)
    query = IndividualFairness(model=network, schema=schema, protected=["sex"], arithmetic="float32")
    path = certify_partition(query, size=5, store=tmp_path / "s.sqlite")
    with PartitionStore(path) as store:
        (chunk,) = store.chunks()
    assert (chunk.status == PROVED).tolist() == [False, True, True]
    assert check(path, model=network, schema=schema).rejections == ()
    rewritten(path, lambda one: replace(one, float32=np.array([0, 1, 0], dtype=np.int8)))
    assert check(path, model=network, schema=schema).rejections


def test_float32_is_refused_where_nothing_is_known_of_it() -> None:
    schema = schema_of(integer("sex", 0, 1, protected=True), integer("x", 0, 10))
    network = network_of(([[0.25, 1.0]], [0.0]), ([[1.0]], [0.0]))  # of no file
    with pytest.raises(QueryError, match="not read from an ONNX file"):
        IndividualFairness(model=network, schema=schema, protected=["sex"], arithmetic="float32")
    with pytest.raises(QueryError, match="expected 'real' or 'float32'"):
        PersistentBias(model=network, schema=schema, protected="sex", delta=[1.0], arithmetic="float16")  # type: ignore[arg-type]
    found = verify(IndividualFairness(model=network, schema=schema, protected=["sex"], box={"x": (1, 10)}))
    assert found.status is Status.PROVED
    assert found.float32 is False


def test_flags_of_a_network_without_a_record_are_rejected() -> None:
    schema = schema_of(integer("sex", 0, 1, protected=True), integer("x", 0, 10))
    network = network_of(([[0.25, 1.0]], [0.0]), ([[1.0]], [0.0]))
    found = verify(IndividualFairness(model=network, schema=schema, protected=["sex"], box={"x": (1, 10)}))
    assert found.certificate is not None
    proofs = tuple(replace(proof, float32=True) for proof in found.certificate.proofs)
    report = check(replace(found.certificate, proofs=proofs), model=network, schema=schema)
    assert "nothing is known" in str(report.rejections[0])


def test_rows_of_pba_say_which_proofs_hold_for_float32(tmp_path: Path) -> None:
    import pandas as pd

    features = (integer("sex", 0, 1, protected=True), integer("x", 0, 10, unit=1.0))
    schema = schema_of(*features, label="y", positive="logit > 0")
    layers = (layer([[2.0**-12, 1000.0]], [-4500.0]),)
    network = on_disk(Network(layers=layers, link=network_of(([[1.0]], None)).link, source_sha256=""), tmp_path)
    frame = pd.DataFrame({"sex": [0, 1], "x": [9, 9], "y": [1, 1]})
    tiny = verify_rows(PersistentBias(model=network, schema=schema, protected="sex", delta=[1.0]), frame)
    proved = tiny[tiny["status"] == "proved"]
    assert len(proved) == 2
    assert (proved["float32"] == 0).all()  # the sexes are 2^-12 apart
    asked = PersistentBias(model=network, schema=schema, protected="sex", delta=[1.0], arithmetic="float32")
    strict = verify_rows(asked, frame)
    assert not (strict["status"] == "proved").any()
    assert set(strict.loc[strict["status"] == "unknown", "reason"]) == {"float32"}
